"""Damped Newton: the solver of all models with a smooth loss.

Levenberg's and Marquardt's damping turns a step that raises the objective into a shorter one, closer to the
gradient. A trial point is evaluated once, with its gradient and Hessian, so that a step costs one pass over the
rows whether it is taken or not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from skjaxwin.kernels.linalg import inverse_factor

__all__ = ["Local", "Solution", "condition", "newton"]

# The share of the predicted decrease that a step must bring (Armijo's rule).
_ENOUGH = 1e-4
# A factorisation of a single matrix gains little from being written out, and takes long to compile.
_WRITTEN_OUT = 3
_FIRST_DAMPING, _MOST_DAMPING = 1e-3, 1e12
_HARDER, _EASIER = 10.0, 0.1
_NO_DAMPING = 1e-7
# So many roundings of the curvature are always added, which keep a singular Hessian from stopping it all.
_FLOOR = 64
# Differences of objectives below so many roundings say nothing.
_NOISE = 16
# A column of which so many roundings are left beside the others depends on them.
_LOST = 32


class Local(NamedTuple):
    """An objective at a point: its value, gradient (p,) and Hessian (p, p)."""

    value: Any
    gradient: Any
    hessian: Any


class Solution(NamedTuple):
    """Where the solver ended.

    Attributes
    ----------
    point : array of shape (p,)
    local : Local
        The objective there.
    n_iter : int
        Steps, those that were refused included.
    converged : bool
    """

    point: Any
    local: Local
    n_iter: Any
    converged: Any


class _State(NamedTuple):
    point: Any
    local: Local
    damping: Any
    n_iter: Any
    converged: Any
    stuck: Any


def newton(evaluate: Callable[[Any], Local], start: Any, *, tol: Any, max_iter: Any) -> Solution:
    """Minimise a smooth function.

    The end is reached when a step without damping is at most `tol` of the largest unknown, each measured by the
    curvature along it, so that the next one would be about its square; or when the decrease it promises is below the
    rounding of the objective.

    Parameters
    ----------
    evaluate : callable
        From a point of shape (p,) to `Local`. What is not finite counts as too high.
    start : array of shape (p,)
    tol : scalar
    max_iter : int scalar
        Most steps.

    Returns
    -------
    solution : Solution
    """
    eps = jnp.finfo(start.dtype).eps

    def advance(state: _State) -> _State:
        point, local = state.point, state.local
        step, size = _step(local, state.damping)
        predicted = -(local.gradient @ step + step @ (local.hessian @ step) / 2)
        trial = point + step
        there = evaluate(trial)
        noise = _NOISE * eps * (jnp.abs(local.value) + jnp.abs(there.value))
        lower = local.value - there.value >= _ENOUGH * predicted - noise
        finite = jnp.isfinite(there.value) & jnp.all(jnp.isfinite(there.gradient))
        taken = lower & finite & (predicted >= 0)
        first = state.n_iter < 0
        undamped = (state.damping == 0) & ~first
        small = jnp.max(size * jnp.abs(step)) <= tol * jnp.max(size * jnp.abs(trial))
        done = taken & undamped & (small | (predicted <= eps * jnp.abs(local.value)))
        eased = jnp.where(state.damping < _NO_DAMPING, 0, state.damping * _EASIER)
        damping = jnp.where(taken, eased, jnp.maximum(state.damping * _HARDER, _FIRST_DAMPING))
        return _State(
            jnp.where(taken, trial, point),
            jax.tree_util.tree_map(lambda new, old: jnp.where(taken, new, old), there, local),
            damping,
            state.n_iter + 1,
            done,
            (damping > _MOST_DAMPING) | (first & ~taken),
        )

    def going_on(state: _State) -> Any:
        return ~state.converged & ~state.stuck & (state.n_iter < max_iter)

    # The first step is none, and evaluates the start: an evaluation that stands here, too, would compile twice.
    p, dtype = len(start), start.dtype
    unknown = Local(jnp.full((), jnp.inf, dtype), jnp.zeros(p, dtype), jnp.eye(p, dtype=dtype))
    zero, no = jnp.zeros((), dtype), jnp.zeros((), bool)
    state = lax.while_loop(going_on, advance, _State(start, unknown, zero, jnp.int32(-1), no, no))
    return Solution(state.point, state.local, state.n_iter, state.converged)


def _step(local: Local, damping: Any) -> tuple[Any, Any]:
    """Return the step, and the root of the curvature along each unknown; not finite if not positive definite."""
    diagonal = jnp.diagonal(local.hessian)
    # An unknown on which nothing depends stays where it is.
    size = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1))
    correlation = local.hessian / (size[:, None] * size[None])
    eye = jnp.eye(len(size), dtype=size.dtype)
    own = jnp.where(diagonal == 0, 1, jnp.diagonal(correlation))
    floor = _FLOOR * jnp.finfo(size.dtype).eps
    correlation = jnp.where(eye > 0, (own * (1 + damping + floor))[None], correlation)
    factor = inverse_factor(correlation[:, :, None], _WRITTEN_OUT)[:, :, 0]
    return -(factor.T @ (factor @ (local.gradient / size))) / size, size


def condition(hessian: Any) -> Any:
    """Return the root of the largest variance inflation factor of a Hessian; infinite where it is singular."""
    diagonal = jnp.diagonal(hessian)
    size = jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1))
    correlation = hessian / (size[:, None] * size[None])
    correlation = jnp.where(jnp.eye(len(size), dtype=bool), jnp.ones_like(size), correlation)
    factor = inverse_factor(correlation[:, :, None], _WRITTEN_OUT)[:, :, 0]
    largest = jnp.maximum(jnp.sqrt(jnp.max(jnp.sum(factor * factor, axis=0))), 1)
    # Of columns that are the same, rounding may leave a pivot of about eps: that is no information.
    told_apart = largest < float(_LOST * jnp.finfo(hessian.dtype).eps) ** -0.5
    return jnp.where(jnp.all(diagonal > 0) & told_apart, largest, jnp.inf)
