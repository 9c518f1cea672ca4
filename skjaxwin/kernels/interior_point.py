"""Least asymmetric absolute residuals: a linear programme, by an interior point and then exactly at a corner.

Minimises the sum over the rows of ``up r`` for residuals r above zero and of ``-down r`` for those below, where
``r = target - columns' b``. Its dual has a variable d between ``-down`` and ``up`` for each row, and each step of
Mehrotra's predictor and corrector takes one weighted cross product of the columns (Portnoy and Koenker, "The Gaussian
hare and the Laplacian tortoise", Statistical Science 12, 1997). Interior points only come close to an optimum. Some
optimum is a corner, that is, a fit through as many rows as there are unknowns: these are those of the least
residuals, and a dual solution proves that no other fit is better.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels.definite import definite_solver
from skjaxwin.kernels.linalg import row_of
from skjaxwin.kernels.moments import triangle

__all__ = ["LeastResiduals", "Problem", "least_residuals"]

# The gaps, relative to the objective, at which a corner is looked for: 1e-5, 1e-9 and 1e-13, which is rounding.
_FIRST_GAP, _NEXT_GAP, _ROUNDS = 1e-5, 1e-4, 3
_EXACT = 1e-13
# Steps end so much before a variable becomes zero.
_SHORT = 0.9995
# Products of dual variables and residuals that a careful step aims at, as a share of their mean.
_CENTRED = 0.5
# What residuals are taken for where all are zero.
_TINY = 1e-70
_FLOOR = 64
# What elimination leaves of a row that depends on others is at most this share of it.
_DEPENDENT = 1e-8
# Dual variables may leave their bounds by this share of them.
_OUTSIDE = 1e-9


class Problem(NamedTuple):
    """Rows and what their residuals cost.

    Attributes
    ----------
    columns : array of shape (p, n)
    target, up, down : array of shape (n,)
        Rows of which both costs are zero do not count.
    """

    columns: Any
    target: Any
    up: Any
    down: Any


class LeastResiduals(NamedTuple):
    """Where the solver ended.

    Attributes
    ----------
    point : array of shape (p,)
    value : scalar
        The objective there.
    gap : scalar
        By how much a better point could be better at most.
    n_iter : int
    converged : bool
    """

    point: Any
    value: Any
    gap: Any
    n_iter: Any
    converged: Any


class _Interior(NamedTuple):
    """A point, the dual variables, how far these are from their upper and lower bounds, and the parts of residuals.

    With `careful`, the next step heads for the centre; when even that fails, the search is stuck.
    """

    point: Any
    dual: Any
    above: Any
    below: Any
    positive: Any
    negative: Any
    n_iter: Any
    careful: Any
    stuck: Any


class _Best(NamedTuple):
    """The lowest point so far, its value, and what no point is lower than."""

    point: Any
    value: Any
    least: Any


def least_residuals(problem: Problem, *, tol: Any, max_iter: Any) -> LeastResiduals:
    """Minimise the sum of asymmetric absolute residuals.

    Parameters
    ----------
    problem : Problem
        The last p rows are the unknowns' own, ``columns[:, -p:]`` the identity, of cost zero or a penalty.
    tol : scalar
        What has converged is where no point could be better by this share of the objective; the solver goes on to
        the last digits anyway.
    max_iter : int scalar
        Most steps.
    """
    columns = problem.columns
    rows, others = np.triu_indices(len(columns))
    products = columns[rows] * columns[others]
    begin = _begin(problem, products)
    dtype = columns.dtype
    unknown = _Best(begin.point, jnp.full((), jnp.inf, dtype), jnp.full((), -jnp.inf, dtype))
    rounding = jnp.finfo(dtype).eps * ((problem.up + problem.down) @ jnp.abs(problem.target))
    rounding = jnp.maximum(rounding, 2 * len(problem.target) * _TINY)

    def proven(best: _Best, share: Any) -> Any:
        return jnp.isfinite(best.value) & (best.value - best.least <= share * best.value + rounding)

    def search(state: Any) -> Any:
        interior, best, level, wanted = state

        def going_on(interior: _Interior) -> Any:
            gap = _gap(interior)
            return (
                ~interior.stuck
                & (interior.n_iter < max_iter)
                & (gap > wanted * _value(problem, interior.point) + rounding)
            )

        interior = lax.while_loop(going_on, lambda interior: _step(problem, products, interior), interior)
        best = _better(best, _corner(problem, interior))
        return interior, best, level + 1, wanted * _NEXT_GAP

    def unproven(state: Any) -> Any:
        interior, best, level, _ = state
        return ~proven(best, _EXACT) & (level < _ROUNDS) & ~interior.stuck & (interior.n_iter < max_iter)

    state = begin, unknown, jnp.int32(0), jnp.full((), _FIRST_GAP, dtype)
    interior, best, *_ = lax.while_loop(unproven, search, state)
    return LeastResiduals(best.point, best.value, best.value - best.least, interior.n_iter, proven(best, tol))


def _better(best: _Best, other: _Best) -> _Best:
    """Take the lower of two points, and the smaller of the bounds on what is lower still."""
    lower = other.value <= best.value
    value = jnp.where(lower, other.value, best.value)
    least = jnp.minimum(jnp.maximum(best.least, other.least), value)
    return _Best(jnp.where(lower, other.point, best.point), value, least)


def _counts(problem: Problem) -> Any:
    return problem.up + problem.down > 0


def _residuals(problem: Problem, point: Any) -> Any:
    return problem.target - point @ problem.columns


def _value(problem: Problem, point: Any) -> Any:
    residuals = _residuals(problem, point)
    return jnp.sum(jnp.where(residuals > 0, problem.up, -problem.down) * residuals)


def _gap(interior: _Interior) -> Any:
    return interior.above @ interior.positive + interior.below @ interior.negative


def _begin(problem: Problem, products: Any) -> _Interior:
    """Start from least squares, with dual variables of zero."""
    columns, target, up, down = problem
    counts = _counts(problem)
    weight = up + down
    point = definite_solver((products @ weight)[triangle(len(columns))])(columns @ (weight * target))
    residuals = _residuals(problem, point)
    # All rows but those far off contribute as much to the gap, whatever they cost.
    share = jnp.sum(weight * jnp.abs(residuals)) / jnp.sum(counts)
    share = jnp.maximum(share, _TINY)
    extra = share / jnp.where(counts, weight, 1)
    one = jnp.ones_like(target)
    return _Interior(
        point,
        jnp.zeros_like(target),
        jnp.where(counts, up, one),
        jnp.where(counts, down, one),
        jnp.where(counts, jnp.maximum(residuals, 0) + extra, 0),
        jnp.where(counts, jnp.maximum(-residuals, 0) + extra, 0),
        jnp.int32(0),
        jnp.zeros((), bool),
        jnp.zeros((), bool),
    )


def _weights(interior: _Interior) -> Any:
    """Return the weights of rows in a step: large where dual variables are inside of their bounds."""
    _, _, above, below, positive, negative, *_ = interior
    slope = positive * below + negative * above
    return jnp.where(slope > 0, above * below / jnp.where(slope > 0, slope, 1), 0)


def _step(problem: Problem, products: Any, interior: _Interior) -> _Interior:
    """Go a step of Mehrotra's predictor and corrector, or a careful one if the last of them failed."""
    point, dual, above, below, positive, negative, n_iter, careful, _ = interior
    columns, target = problem.columns, problem.target
    counts = _counts(problem)
    n_products = 2 * jnp.sum(counts)
    weights = _weights(interior)
    solve = definite_solver((products @ weights)[triangle(len(columns))])
    residuals = _residuals(problem, point)
    missing = columns @ dual
    gap = _gap(interior)
    second_order = jnp.where(careful, 0, jnp.ones_like(gap))

    def predict_or_correct(_: Any, found: Any) -> Any:
        centre, _, move, more, less, *_ = found
        to_above = centre - above * positive + second_order * move * more
        to_below = centre - below * negative - second_order * move * less
        pull = residuals - positive + negative - to_above / above + to_below / below
        by = solve(columns @ (weights * pull) + missing)
        move = weights * (pull - by @ columns)
        more = jnp.where(counts, (to_above + positive * move) / above, 0)
        less = jnp.where(counts, (to_below - negative * move) / below, 0)
        primal, other = _longest(interior, counts, move, more, less)
        left = (above - primal * move) @ (positive + other * more) + (below + primal * move) @ (negative + other * less)
        centre = jnp.where(careful, _CENTRED, (left / gap) ** 3) * gap / n_products
        return centre, by, move, more, less, primal, other

    zero, nothing = jnp.zeros_like(gap), jnp.zeros_like(target)
    start = zero, jnp.zeros_like(point), nothing, nothing, nothing, zero, zero
    _, by, move, more, less, primal, other = lax.fori_loop(jnp.int32(0), jnp.int32(2), predict_or_correct, start)
    # Steps of the same length towards the centre of a feasible point always narrow the gap.
    shorter = jnp.minimum(primal, other)
    primal, other = (_SHORT * jnp.where(careful, shorter, length) for length in (primal, other))
    following = _Interior(
        point + other * by,
        dual + primal * move,
        above - primal * move,
        below + primal * move,
        positive + other * more,
        negative + other * less,
        n_iter + 1,
        jnp.zeros((), bool),
        jnp.zeros((), bool),
    )
    fine = (_gap(following) < gap) & jnp.all(jnp.isfinite(following.point))
    kept = jax.tree_util.tree_map(lambda new, old: jnp.where(fine, new, old), following, interior)
    # Where a careful step is none either, rounding sets an end to all progress.
    return kept._replace(n_iter=n_iter + 1, careful=~fine, stuck=~fine & careful)


def _longest(interior: _Interior, counts: Any, move: Any, more: Any, less: Any) -> tuple[Any, Any]:
    """Return how far dual variables, and residuals, can go in a direction, 1 at most."""

    def until_zero(value: Any, change: Any) -> Any:
        falls = counts & (change < 0)
        return jnp.min(jnp.where(falls, value / jnp.where(falls, -change, 1), 1 / _SHORT))

    primal = jnp.minimum(until_zero(interior.above, -move), until_zero(interior.below, move))
    other = jnp.minimum(until_zero(interior.positive, more), until_zero(interior.negative, less))
    return jnp.minimum(primal, 1 / _SHORT), jnp.minimum(other, 1 / _SHORT)


def _corner(problem: Problem, interior: _Interior) -> _Best:
    """Return the fit through independent rows of the least residuals, or the interior point if better."""
    columns, target, up, down = problem
    chosen, inverse = _independent_rows(problem, interior)
    basis = columns[:, chosen].T
    point = inverse @ target[chosen]
    point = point + inverse @ (target[chosen] - basis @ point)
    residuals = _residuals(problem, point)
    size = jnp.abs(target) + jnp.abs(point) @ jnp.abs(columns)
    rounding = _FLOOR * jnp.finfo(size.dtype).eps * size
    # Rows on the fit that it was not made through may have any dual variable within its bounds.
    on_fit = jnp.clip(interior.dual, -down, up)
    dual = jnp.where(residuals > rounding, up, jnp.where(residuals < -rounding, -down, on_fit))
    dual = dual.at[chosen].set(0)
    own = -(inverse.T @ (columns @ dual))
    own = own - inverse.T @ (columns @ dual + basis.T @ own)
    cost = up + down
    slack = _OUTSIDE * (cost[chosen] + jnp.sum(cost) / jnp.sum(_counts(problem)))
    optimal = jnp.all((own <= up[chosen] + slack) & (own >= -down[chosen] - slack)) & jnp.all(jnp.isfinite(point))
    value = _value(problem, point)
    value = jnp.where(jnp.isfinite(value), value, jnp.inf)
    inside = _value(problem, interior.point)
    least = inside - _gap(interior)
    lower = optimal | (value <= inside)
    best = jnp.where(lower, value, inside)
    return _Best(jnp.where(lower, point, interior.point), best, jnp.where(optimal, best, least))


def _independent_rows(problem: Problem, interior: _Interior) -> tuple[Any, Any]:
    """Eliminate the unknowns by rows of the least residuals; return these, and the inverse of their matrix."""
    p, n = problem.columns.shape
    # Rows on the fit have residuals near zero here; next come those that are not far from it.
    parts = interior.positive + interior.negative
    tiny = jnp.finfo(parts.dtype).tiny ** 0.5
    weight = jnp.where(_counts(problem), 1 / jnp.maximum(parts, tiny), 0)
    # Unknowns that no row tells are set to zero in the end.
    weight = jnp.where(np.arange(n) >= n - p, jnp.maximum(weight, tiny), weight)
    enough = _DEPENDENT * jnp.max(jnp.abs(problem.columns), axis=0)
    place = np.arange(p, dtype=np.int32)

    def eliminate(i: Any, state: Any) -> Any:
        columns, weight, chosen, pivots = state
        free = ~jnp.any(pivots[:, None] == place, axis=0)
        left = jnp.max(jnp.where(free[:, None], jnp.abs(columns), 0), axis=0)
        row = jnp.argmax(jnp.where(left > enough, weight * left, 0)).astype(jnp.int32)
        entries = lax.dynamic_slice_in_dim(columns, row, 1, axis=1)[:, 0]
        pivot = jnp.argmax(jnp.where(free, jnp.abs(entries), 0)).astype(jnp.int32)
        line = row_of(columns, pivot) / entries[pivot]
        columns = columns - jnp.where(place == pivot, entries - 1, entries)[:, None] * line
        return columns, weight.at[row].set(0), chosen.at[i].set(row), pivots.at[i].set(pivot)

    columns = problem.columns
    nothing = jnp.full(p, -1, jnp.int32)
    columns, _, chosen, pivots = lax.fori_loop(0, p, eliminate, (columns, weight, nothing, nothing))
    # The last rows began as the identity, and now hold what was done to the columns.
    done = columns[:, n - p :]
    return chosen, done[pivots].T
