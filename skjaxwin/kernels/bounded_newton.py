"""Damped Newton steps within bounds, for objectives that need not be convex.

An unknown at its bound is held there while the objective falls only beyond it (Bertsekas, "Projected Newton methods
for optimization problems with simple constraints", SIAM J. Control Optim. 20, 1982). A Hessian that is not positive
definite gets the damping that makes it so. A step is one call, so that many fits can go side by side, each at a
pace of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from skjaxwin.kernels.linalg import inverse_factor
from skjaxwin.kernels.newton import Local

__all__ = ["NewtonState", "begin_newton", "fall", "free_hessian", "held", "newton_step"]

# The share of the predicted decrease that a step must bring (Armijo's rule), below which damping stays, and above
# which it falls fast.
_ENOUGH, _POOR, _GOOD = 1e-4, 0.25, 0.9
_FIRST_DAMPING, _MOST_DAMPING = 1e-3, 1e12
_HARDER, _EASIER = 10.0, 0.1
_NO_DAMPING = 1e-6
# A start is far off if a step promises to lower the objective by this share.
_FAR_OFF = 0.1
# Differences of objectives below so many roundings say nothing.
_NOISE = 16
# Slopes below so many roundings of the root of the objective, which has their unit, are none.
_LEVEL = 256
# Objectives that differ by so small a share are compared by their slopes (Hager and Zhang, SIAM J. Optim. 16, 2005):
# a sum of squared differences has lost more digits than its own rounding.
_CLOSE = 1e-8


class NewtonState(NamedTuple):
    """Where a fit stands.

    Attributes
    ----------
    point : array of shape (p,)
    local : Local
        The objective there.
    fallback : array of shape (p,)
        Where to start instead, if the start turns out to be far off.
    damping : scalar
    n_iter : int
        Steps so far, those that were refused included; -1 before the start was evaluated.
    converged, stuck : bool
        Whether the fit is over, with a solution or without.
    """

    point: Any
    local: Local
    fallback: Any
    damping: Any
    n_iter: Any
    converged: Any
    stuck: Any


def begin_newton(start: Any, fallback: Any) -> NewtonState:
    """Return the state before the first step, which is none and evaluates the start.

    Where that promises to lower the objective by a great part, the second step goes to `fallback`, if that is lower.
    """
    p, dtype = len(start), start.dtype
    unknown = Local(jnp.full((), jnp.inf, dtype), jnp.zeros(p, dtype), jnp.eye(p, dtype=dtype))
    no = jnp.zeros((), bool)
    return NewtonState(start, unknown, fallback, jnp.zeros((), dtype), jnp.full((), -1, jnp.int32), no, no)


def newton_step(
    evaluate: Callable[[Any], Local], state: NewtonState, *, lower: np.ndarray, upper: np.ndarray, tol: Any
) -> NewtonState:
    """Try a step.

    The end is reached when a step without damping is at most `tol` of the largest unknown, each measured by the
    curvature along it; or when the decrease it promises is below the rounding of the objective; or where there is no
    slope left and the Hessian is not positive definite, which counts as an end, but not as a minimum that is known.

    Parameters
    ----------
    evaluate : callable
        From a point of shape (p,) to `Local`. What is not finite counts as too high.
    state : NewtonState
    lower, upper : ndarray of shape (p,)
        Bounds, infinite where there are none.
    tol : scalar
    """
    point, local = state.point, state.local
    eps = jnp.finfo(point.dtype).eps
    first = state.n_iter < 0
    aim, size, damping, definite = _step(local, state.damping, held(point, local.gradient, lower, upper))
    promised = -(local.gradient @ aim) / 2
    back = (state.n_iter == 0) & jnp.any(point != state.fallback) & (promised > _FAR_OFF * jnp.abs(local.value))
    trial = jnp.clip(point + aim, jnp.asarray(lower, point.dtype), jnp.asarray(upper, point.dtype))
    trial = jnp.where(back, state.fallback, trial)
    step = trial - point
    predicted = jnp.where(back, 0, -(local.gradient @ step + step @ (local.hessian @ step) / 2))
    there = evaluate(trial)
    decrease = fall(local.value, there.value, local.gradient, there.gradient, step)
    noise = _NOISE * eps * (jnp.abs(local.value) + jnp.abs(there.value))
    finite = jnp.isfinite(there.value) & jnp.all(jnp.isfinite(there.gradient)) & jnp.all(jnp.isfinite(there.hessian))
    taken = finite & (first | ((decrease >= _ENOUGH * predicted - noise) & (predicted >= 0)))
    # Where the aim lies beyond a bound the step is shorter, but the end is not near.
    small = jnp.max(size * jnp.abs(aim)) <= tol * jnp.max(size * jnp.abs(trial))
    flat = promised <= eps * jnp.abs(local.value)
    # Without any slope no step helps: where the Hessian is singular, damping would go on to the last step.
    slope = jnp.where(held(point, local.gradient, lower, upper), 0, local.gradient) / size
    level = ~definite & (jnp.max(jnp.abs(slope)) <= _LEVEL * eps * jnp.sqrt(jnp.abs(local.value)))
    done = finite & ~first & ~back & ((damping == 0) & (small | flat) | level)
    # The better the prediction was, the less damping the next step gets.
    eased = state.damping * jnp.where(decrease > _GOOD * predicted, _EASIER**2, _EASIER)
    eased = jnp.where(eased < _NO_DAMPING, 0, eased)
    eased = jnp.where(decrease < _POOR * predicted - noise, state.damping, eased)
    harder = jnp.where(damping == 0, _FIRST_DAMPING, damping * _HARDER)
    damping = jnp.where(back, state.damping, jnp.where(taken, eased, harder))
    return NewtonState(
        jnp.where(taken, trial, point),
        jax.tree_util.tree_map(lambda new, old: jnp.where(taken, new, old), there, local),
        state.fallback,
        damping,
        state.n_iter + 1,
        done,
        (damping > _MOST_DAMPING) | (first & ~taken),
    )


def fall(value: Any, there: Any, gradient: Any, gradient_there: Any, step: Any) -> Any:
    """Return by how much a step lowers the objective: of values that nearly agree the slopes say more."""
    by_slopes = -((gradient + gradient_there) @ step) / 2
    return jnp.where(jnp.abs(value - there) <= _CLOSE * jnp.abs(value), by_slopes, value - there)


def held(point: Any, gradient: Any, lower: np.ndarray, upper: np.ndarray) -> Any:
    """Say which unknowns stand at a bound beyond which alone the objective falls."""
    return ((point <= lower) & (gradient > 0)) | ((point >= upper) & (gradient < 0))


def free_hessian(hessian: Any, held: Any) -> Any:
    """Cut the ties of unknowns that are held, which then count as determined by themselves."""
    eye = jnp.eye(len(held), dtype=hessian.dtype)
    return jnp.where(held[:, None] | held[None], eye, hessian)


def _step(local: Local, damping: Any, held: Any) -> tuple[Any, Any, Any, Any]:
    """Return the step, the root of the curvature along each unknown, the damping it took, and whether without more."""
    hessian = free_hessian(local.hessian, held)
    diagonal = jnp.diagonal(hessian)
    # An unknown on which nothing depends stays where it is.
    size = jnp.sqrt(jnp.where(diagonal != 0, jnp.abs(diagonal), 1))
    eye = jnp.eye(len(size), dtype=size.dtype)
    scaled = jnp.where((eye > 0) & (diagonal == 0), 1, hessian / (size[:, None] * size[None]))
    gradient = jnp.where(held, 0, local.gradient) / size
    # Gershgorin: with that much on the diagonal every matrix is positive definite.
    own = jnp.diagonal(scaled)
    enough = jnp.max(jnp.sum(jnp.abs(scaled), axis=1) - jnp.abs(own) - own) + _FIRST_DAMPING
    both = jnp.stack([damping, jnp.maximum(damping, enough)])
    factors = inverse_factor(scaled[:, :, None] + both * eye[:, :, None])
    definite = jnp.all(jnp.isfinite(factors[:, :, 0]))
    factor = jnp.where(definite, factors[:, :, 0], factors[:, :, 1])
    return -(factor.T @ (factor @ gradient)) / size, size, jnp.where(definite, both[0], both[1]), definite
