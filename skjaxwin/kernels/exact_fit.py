"""A quadratic's least value among the points that fit given rows exactly, with the rows' multipliers."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from skjaxwin.kernels.definite import definite_solver
from skjaxwin.kernels.moments import triangle

__all__ = ["ExactFit", "least_exact_fit"]

# How much residuals count against the quadratic: the solver loses as many digits, which its repetitions win back.
_STIFF = 1e7
# Rows that nearly depend on each other take more rounds than others.
_ROUNDS, _MOST_ROUNDS = 12, 120
# Residuals below so many roundings are none.
_ROUNDINGS = 256


class ExactFit(NamedTuple):
    """A fit through rows, if there is one.

    Attributes
    ----------
    point : array of shape (p,)
    pull : array of shape (n,)
        Multipliers: ``columns @ (share * pull) + along = size * point``.
    exact : bool
        Whether it does go through the rows.
    """

    point: Any
    pull: Any
    exact: Any


def least_exact_fit(columns: Any, products: Any, target: Any, share: Any, size: Any, along: Any) -> ExactFit:
    """Minimise ``size @ point**2 / 2 - along @ point`` where ``point @ columns = target`` in the rows that count.

    By the method of multipliers: least squares with a faint share of the quadratic, repeated with what was missing
    added to the target. The shares change its path, but not where it ends.

    Parameters
    ----------
    columns : array of shape (p, n)
    products : array of shape (p (p + 1) / 2, n)
        Of each two of the columns.
    target, share : array of shape (n,)
        Rows of share 0 do not count.
    size, along : array of shape (p,)
        `size` is not negative, and not zero in all.
    """
    stiff = _STIFF * jnp.min(jnp.where(size > 0, size, jnp.inf))
    solve = definite_solver((products @ share)[triangle(len(columns))] + jnp.diag(size / stiff))

    def fits(point: Any) -> Any:
        left = jnp.abs(target - point @ columns)
        rounding = _ROUNDINGS * jnp.finfo(left.dtype).eps * (jnp.abs(target) + jnp.abs(point) @ jnp.abs(columns))
        return jnp.all((left <= rounding) | (share == 0))

    def again(state: Any) -> Any:
        point, lag, n, _ = state
        # From the last point, so that rounding is that of the change.
        point = point + solve(columns @ (share * (target - lag - point @ columns)) + (along - size * point) / stiff)
        return point, lag + point @ columns - target, n + 1, fits(point)

    def going_on(state: Any) -> Any:
        _, _, n, exact = state
        return (n < _ROUNDS) | ~exact & (n < _MOST_ROUNDS)

    start = jnp.zeros(len(columns), columns.dtype), jnp.zeros_like(target), jnp.int32(0), jnp.zeros((), bool)
    point, lag, _, exact = lax.while_loop(going_on, again, start)
    return ExactFit(point, -stiff * lag, exact)
