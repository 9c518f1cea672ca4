"""Objectives of a user's functions of rows, with their derivatives: what the solvers evaluate.

Functions that take each row for itself are evaluated on blocks of rows that stay in the caches. All objectives are
means over the weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from skjaxwin.kernels.newton import Local

__all__ = ["mean_loss", "mean_loss_gradient", "mean_squares", "whole_loss", "whole_loss_gradient"]

_BLOCK = 1024


def mean_squares(function: Callable[[Any, Any], Any], X: Any, y: Any, weight: Any) -> Callable[[Any], Local]:
    """Return half the mean squared residual of a curve, with Gauss and Newton's Hessian.

    Parameters
    ----------
    function : callable
        From the unknowns of shape (p,) and rows of X to predictions (n,).
    X : array of shape (n, k)
    y, weight : array of shape (n,)
    """

    def part(point: Any, X: Any, y: Any, share: Any) -> Local:
        tangents = jnp.eye(len(point), dtype=point.dtype)
        predicted, slopes = jax.vmap(
            lambda tangent: jax.jvp(lambda at: function(at, X), (point,), (tangent,)), out_axes=(None, 0)
        )(tangents)
        residual = jnp.where(share > 0, y - predicted, 0)
        slopes = jnp.where(share > 0, slopes, 0)
        weighted = slopes * share
        return Local(residual @ (share * residual) / 2, -(weighted @ residual), weighted @ slopes.T)

    return _summed(part, X, y, weight)


def mean_loss(loss: Callable[[Any, Any, Any], Any], X: Any, y: Any, weight: Any) -> Callable[[Any], Local]:
    """Return the mean loss of rows, with its derivatives.

    Parameters
    ----------
    loss : callable
        From the unknowns (p,), rows of X and of y to losses (n,).
    X : array of shape (n, k)
    y : array of shape (n,) or None
    weight : array of shape (n,)
    """
    return _summed(lambda point, *rows: _local(lambda at: _total(loss, at, *rows), point), X, y, weight)


def mean_loss_gradient(loss: Callable[[Any, Any, Any], Any], X: Any, y: Any, weight: Any) -> Callable[[Any], Any]:
    """Return the mean loss of rows with its gradient alone; see `mean_loss`."""
    return _summed(lambda point, *rows: jax.value_and_grad(lambda at: _total(loss, at, *rows))(point), X, y, weight)


def whole_loss(loss: Callable[[Any], Any], total: Any) -> Callable[[Any], Local]:
    """Return a loss of all rows at a time over the sum of the weights, with its derivatives.

    They go forward through the rows: nothing of a recursion need be kept.
    """

    safe = _unless_zero(total)

    def evaluate(point: Any) -> Local:
        tangents = jnp.eye(len(point), dtype=point.dtype)

        def with_gradient(at: Any) -> tuple[Any, Any]:
            def along(tangent: Any) -> tuple[Any, Any]:
                return jax.jvp(lambda at: loss(at) / safe, (at,), (tangent,))

            return jax.vmap(along, out_axes=(None, 0))(tangents)

        (value, gradient), (_, hessian) = jax.vmap(
            lambda tangent: jax.jvp(with_gradient, (point,), (tangent,)), out_axes=(None, 0)
        )(tangents)
        return Local(value, gradient, (hessian + hessian.T) / 2)

    return evaluate


def whole_loss_gradient(loss: Callable[[Any], Any], total: Any) -> Callable[[Any], Any]:
    """Return a loss of all rows at a time over the sum of the weights, with its gradient alone."""
    safe = _unless_zero(total)
    return jax.value_and_grad(lambda point: loss(point) / safe)


def _total(loss: Callable[[Any, Any, Any], Any], point: Any, X: Any, y: Any, share: Any) -> Any:
    return jnp.sum(jnp.where(share > 0, share * loss(point, X, y), 0))


def _local(total: Callable[[Any], Any], point: Any) -> Local:
    """Return a function's value and derivatives: forward through the gradient."""
    tangents = jnp.eye(len(point), dtype=point.dtype)
    (value, gradient), (_, hessian) = jax.vmap(
        lambda tangent: jax.jvp(jax.value_and_grad(total), (point,), (tangent,)), out_axes=(None, 0)
    )(tangents)
    return Local(value, gradient, (hessian + hessian.T) / 2)


def _summed(part: Callable[..., Any], X: Any, y: Any, weight: Any) -> Callable[[Any], Any]:
    """Add up what `part` says of each block of rows."""
    rows = X, y, weight / _unless_zero(jnp.sum(weight))
    n = len(X)
    if n <= _BLOCK:
        return lambda point: part(point, *rows)
    n_blocks = -(-n // _BLOCK)
    # Copies of the last row, with weight 0, fill the last block up.
    pick = jnp.minimum(jnp.arange(n_blocks * _BLOCK, dtype=jnp.int32), n - 1)
    there = jnp.arange(n_blocks * _BLOCK, dtype=jnp.int32) < n
    X, y, share = jax.tree_util.tree_map(lambda a: a[pick], rows) if n_blocks * _BLOCK > n else rows
    rows = X, y, jnp.where(there, share, 0)
    blocks = jax.tree_util.tree_map(lambda a: a.reshape(n_blocks, _BLOCK, *a.shape[1:]), rows)

    def evaluate(point: Any) -> Any:
        nothing = jax.tree_util.tree_map(
            lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(lambda: part(point, *(_first(a) for a in blocks)))
        )
        return lax.scan(
            lambda sums, rows: (jax.tree_util.tree_map(jnp.add, sums, part(point, *rows)), None), nothing, blocks
        )[0]

    return evaluate


def _unless_zero(total: Any) -> Any:
    """Return the sum of the weights; 1 if there are none: then all parts of an objective are zero, and not NaN."""
    return jnp.where(total > 0, total, 1)


def _first(blocks: Any) -> Any:
    return None if blocks is None else blocks[0]
