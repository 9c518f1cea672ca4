"""L-BFGS steps within bounds: for many unknowns, from gradients alone.

The memory is a fixed number of pairs of steps and changes of the gradient (Nocedal, "Updating quasi-Newton matrices
with limited storage", Math. Comp. 35, 1980). Unknowns at a bound beyond which alone the objective falls are held. A
step is one evaluation, taken or refused, so that many fits can go side by side, each at a pace of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels.bounded_newton import fall, held

__all__ = ["QuasiState", "begin_quasi_newton", "quasi_newton_step"]

_MEMORY = 10
_ENOUGH = 1e-4
_SHORTEST = 1e-12
_NOISE = 16


class QuasiState(NamedTuple):
    """Where a fit stands; see `kernels.bounded_newton.NewtonState`.

    Attributes
    ----------
    point, gradient, direction : array of shape (p,)
    value : scalar
    fallback : array of shape (p,)
        Where to go in the second step, if the objective is lower there.
    length : scalar
        What the direction is multiplied with in the next step.
    steps, changes : array of shape (memory, p)
        The newest last.
    curvatures : array of shape (memory,)
        Inverse products of each two of them, 0 where there is none.
    """

    point: Any
    value: Any
    gradient: Any
    direction: Any
    fallback: Any
    length: Any
    steps: Any
    changes: Any
    curvatures: Any
    n_iter: Any
    converged: Any
    stuck: Any


def begin_quasi_newton(start: Any, fallback: Any) -> QuasiState:
    """Return the state before the first step, which is none and evaluates the start."""
    p, dtype = len(start), start.dtype
    zeros, pairs, no = jnp.zeros(p, dtype), jnp.zeros((_MEMORY, p), dtype), jnp.zeros((), bool)
    infinite, one = jnp.full((), jnp.inf, dtype), jnp.ones((), dtype)
    curvatures = jnp.zeros(_MEMORY, dtype)
    count = jnp.full((), -1, jnp.int32)
    return QuasiState(start, infinite, zeros, zeros, fallback, one, pairs, pairs, curvatures, count, no, no)


def quasi_newton_step(
    evaluate: Callable[[Any], tuple[Any, Any]], state: QuasiState, *, lower: np.ndarray, upper: np.ndarray, tol: Any
) -> QuasiState:
    """Try a step.

    The end is reached when a full step is at most `tol` of the largest unknown, or when the decrease that the next
    one promises is below the rounding of the objective.

    Parameters
    ----------
    evaluate : callable
        From a point of shape (p,) to the objective and its gradient. What is not finite counts as too high.
    state : QuasiState
    lower, upper : ndarray of shape (p,)
        Bounds, infinite where there are none.
    tol : scalar
    """
    dtype = state.point.dtype
    eps = jnp.finfo(dtype).eps
    first = state.n_iter < 0
    trial = state.point + state.length * state.direction
    trial = jnp.clip(trial, jnp.asarray(lower, dtype), jnp.asarray(upper, dtype))
    back = (state.n_iter == 0) & jnp.any(state.point != state.fallback)
    trial = jnp.where(back, state.fallback, trial)
    step = trial - state.point
    slope = jnp.where(back, 0, state.gradient @ step)
    value, gradient = evaluate(trial)
    noise = _NOISE * eps * (jnp.abs(state.value) + jnp.abs(value))
    finite = jnp.isfinite(value) & jnp.all(jnp.isfinite(gradient))
    decrease = fall(state.value, value, state.gradient, gradient, step)
    taken = finite & (first | ((decrease >= -_ENOUGH * slope - noise) & (slope <= 0)))

    change = gradient - state.gradient
    product = step @ change
    kept = taken & ~first & ~back & (product > eps * jnp.sqrt((step @ step) * (change @ change)))
    # Without a step down along the direction, what the memory says is wrong.
    forget = ~taken & (state.length < _SHORTEST**0.5) & jnp.any(state.curvatures > 0)
    point = jnp.where(taken, trial, state.point)
    gradient = jnp.where(taken, gradient, state.gradient)
    value = jnp.where(taken, value, state.value)
    steps = _appended(state.steps, step, kept)
    changes = _appended(state.changes, change, kept)
    inverse = 1 / jnp.where(kept, product, 1)
    curvatures = jnp.where(forget, 0, _appended(state.curvatures, inverse, kept))

    fixed = held(point, gradient, lower, upper)
    direction = _direction(jnp.where(fixed, 0, gradient), steps, changes, curvatures)
    direction = jnp.where(fixed, 0, direction)
    known = jnp.any(curvatures > 0)
    downhill = gradient @ direction < 0
    steepest = -jnp.where(fixed, 0, gradient)
    direction = jnp.where(known & downhill, direction, steepest)
    slowly = jnp.minimum(1, 1 / jnp.maximum(jnp.sum(jnp.abs(steepest)), jnp.finfo(dtype).tiny))
    anew = taken | forget
    length = jnp.where(known & downhill, jnp.ones((), dtype), slowly)
    # The parabola through the values and the slope, kept within reason.
    curvature = 2 * (value - state.value - slope)
    shorter = jnp.where(finite & (curvature > 0), -slope / jnp.where(curvature > 0, curvature, 1), 0.1)
    length = jnp.where(anew, length, state.length * jnp.where(back, 1, jnp.clip(shorter, 0.1, 0.5)))

    small = jnp.max(jnp.abs(step)) <= tol * jnp.max(jnp.abs(trial))
    full = (state.length == 1) & jnp.any(state.curvatures > 0)
    flat = -(gradient @ direction) / 2 <= eps * jnp.abs(value)
    done = taken & (jnp.all(gradient * ~fixed == 0) | (known & downhill & flat) | (full & small))
    return QuasiState(
        point,
        value,
        gradient,
        jnp.where(anew, direction, state.direction),
        state.fallback,
        length,
        steps,
        changes,
        curvatures,
        state.n_iter + 1,
        done,
        (length < _SHORTEST) & ~anew | (first & ~taken),
    )


def _appended(memory: Any, newest: Any, kept: Any) -> Any:
    return jnp.where(kept, jnp.concatenate([memory[1:], newest[None]]), memory)


def _direction(gradient: Any, steps: Any, changes: Any, curvatures: Any) -> Any:
    """Return minus the inverse Hessian, as far as it is known, times the gradient: the two loops of L-BFGS."""

    def back(rest: Any, pair: Any) -> tuple[Any, Any]:
        step, change, curvature = pair
        share = curvature * (step @ rest)
        return rest - share * change, share

    def forth(rest: Any, pair: Any) -> tuple[Any, None]:
        step, change, curvature, share = pair
        return rest + step * (share - curvature * (change @ rest)), None

    rest, shares = lax.scan(back, gradient, (steps, changes, curvatures), reverse=True)
    square = changes[-1] @ changes[-1]
    scale = jnp.where(curvatures[-1] > 0, 1 / jnp.where(curvatures[-1] > 0, curvatures[-1] * square, 1), 1)
    return -lax.scan(forth, rest * scale, (steps, changes, curvatures, shares))[0]
