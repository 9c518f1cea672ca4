"""Elastic nets from cross products: coordinate descent on many small problems side by side.

A problem is a window's Gram matrix, one of its targets and one pair of penalties. Problems need very
different numbers of sweeps, and a loop over many of them runs until the last one is done. So they are
taken in chunks: a chunk stops when an eighth of it is left, and what all chunks have left makes the
chunks of the next pass. Where sweeps alone are slow, because features are correlated, the equations of the
features in use are solved in between (Lee et al., "Efficient sparse coding algorithms", NIPS 2006).
Each problem goes its own way whatever its neighbours are.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from skjaxwin.kernels.linalg import inverse_factor, row_of

__all__ = ["ElasticNets", "Penalties", "conditions", "elastic_nets"]

# Of all Gram matrices of a chunk: every sweep reads them, and should find them in the cache.
_CHUNK_BYTES = 2**17
_MAX_CHUNK = 256
_LEAST_CHUNK = 4  # as a power of two
# After so many sweeps, when few slopes still become zero or leave it, the equations are solved for the first time, and
# again every so many sweeps: a solution costs about ten of them.
_FIRST_SOLUTION = 16
_SWEEPS_BETWEEN = 4
# Sweeps, solutions among them, in which the violation must halve: where features are the same to the last digits,
# slopes are taken in and out for ever.
_PATIENCE = 48
# Rounding, in units of what a residual correlation is the small rest of.
_ROUNDING = 32
# A feature depends on others if what is left of its square outside of them is so many roundings.
_DEPENDENT = 1000
# What became of a problem; _CUT is an open one whose last solution ended where a slope became zero.
_CUT, _OPEN, _FAILED, _SOLVED = -1, 0, 1, 2


class Penalties(NamedTuple):
    """Hyperparameters of c candidates on n windows: arrays of shape (c, n).

    Attributes
    ----------
    absolute, square : array
        Penalties on absolute values and on half the squares of slopes.
    tol : array
        Largest violation of the optimality conditions, as a correlation with the target.
    max_iter : array
        Most sweeps.
    """

    absolute: Any
    square: Any
    tol: Any
    max_iter: Any


class ElasticNets(NamedTuple):
    """Solutions for c candidates, m targets and n windows.

    Attributes
    ----------
    coef : array of shape (c, m, k, n)
    n_iter : array of int32 of shape (c, m, n)
        Sweeps.
    converged : array of bool of shape (c, m, n)
    """

    coef: Any
    n_iter: Any
    converged: Any


@custom_vmap
def elastic_nets(gram: Any, cross: Any, square: Any, penalties: Penalties) -> ElasticNets:
    """Minimise ``b' G b / 2 - c' b + absolute |b|_1 + square |b|_2^2 / 2`` for all windows and candidates.

    Under `jax.vmap` all problems still share chunks.

    Parameters
    ----------
    gram : array of shape (k, k, n)
        Mean products of centred features. Features that do not vary get slopes of zero.
    cross : array of shape (m, k, n)
        Mean products of features and targets.
    square : array of shape (m, n)
        Mean squares of the targets.
    penalties : Penalties
    """
    n_candidates, (n_targets, k, n) = len(penalties.tol), cross.shape
    count = n_candidates * n_targets * n
    width = min(_chunk_width(gram), count)
    number = jnp.arange(-(-count // width) * width, dtype=jnp.int32)

    settings = jnp.stack(penalties)
    targets = jnp.concatenate([cross, jnp.sqrt(square)[:, None]], axis=1)
    # The engine fills its axes up with copies of the last window and candidate: these are solved once.
    new_window = _differs(gram) | _differs(targets) | _differs(settings)
    new_candidate = _differs(jnp.moveaxis(settings, 1, -1))
    new = new_candidate[:, None, None] & jnp.broadcast_to(new_window, (n_targets, n))
    new = jnp.pad(new.reshape(-1), (0, len(number) - count))
    settings = settings.reshape(len(settings), -1)
    targets = jnp.moveaxis(targets, 0, 1).reshape(k + 1, -1)

    def pick(number: Any) -> _Equations:
        """Return the equations of some problems: they are numbered by candidate, target and window."""
        number = jnp.minimum(number, count - 1)
        window, candidate = lax.rem(number, jnp.int32(n)), lax.div(number, jnp.int32(n_targets * n))
        target = _at(targets, lax.rem(number, jnp.int32(n_targets * n)))
        penalties = Penalties(*_at(settings, candidate * n + window))
        return _Equations(_at(gram, window), target[:k], target[k], penalties)

    def one_pass(problems: _Problems) -> _Problems:
        is_open = problems.outcome <= _OPEN
        rank = jnp.cumsum(is_open, dtype=jnp.int32)
        n_open = rank[-1]
        # The open ones first; what follows them is never looked at.
        order = jnp.minimum(jnp.searchsorted(rank, number + 1), len(number) - 1).astype(jnp.int32)
        n_chunks = (n_open + (width - 1)) // width
        enough = jnp.where(n_chunks > 1, width // 8, 0)

        def one_chunk(i: Any, gathered: _Problems) -> _Problems:
            some = _Problems(*(lax.dynamic_slice_in_dim(part, i * width, width, axis=-1) for part in gathered))
            its_number = lax.dynamic_slice_in_dim(order, i * width, width)
            some = some._replace(outcome=jnp.where(i * width + number[:width] < n_open, some.outcome, _SOLVED))
            some = _descend(pick(its_number), some, enough)

            def put(whole: Any, part: Any) -> Any:
                return lax.dynamic_update_slice_in_dim(whole, part, i * width, axis=-1)

            return _Problems(*(put(whole, part) for whole, part in zip(gathered, some, strict=True)))

        gathered = _Problems(*(_at(part, order) for part in problems))
        gathered = lax.fori_loop(jnp.int32(0), n_chunks, one_chunk, gathered)
        place = jnp.maximum(rank - 1, 0)
        return _Problems(
            *(jnp.where(is_open, _at(part, place), old) for part, old in zip(gathered, problems, strict=True))
        )

    start = _Problems(
        jnp.zeros_like(number),
        jnp.where(new, _OPEN, _SOLVED).astype(jnp.int32),
        jnp.zeros((k, len(number)), gram.dtype),
        jnp.full(len(number), jnp.inf, gram.dtype),
        jnp.zeros_like(number),
    )
    solved = lax.while_loop(lambda problems: jnp.any(problems.outcome <= _OPEN), one_pass, start)
    # Where a window and candidate like this one was solved.
    window = lax.cummax(jnp.where(new_window, np.arange(n, dtype=np.int32), 0))
    candidate = lax.cummax(jnp.where(new_candidate, np.arange(n_candidates, dtype=np.int32), 0))
    target = np.arange(n_targets, dtype=np.int32)[:, None]
    place = (candidate[:, None, None] * n_targets + target) * n + window
    coef = jnp.moveaxis(_at(solved.coef, place), 0, 2)
    return ElasticNets(coef, _at(solved.sweeps, place), _at(solved.outcome, place) == _SOLVED)


@elastic_nets.def_vmap
def _batched(
    size: int, batched: Any, gram: Any, cross: Any, square: Any, penalties: Penalties
) -> tuple[ElasticNets, ElasticNets]:
    """Make a batch further candidates where windows are the same, else further windows."""
    everything = ElasticNets(True, True, True)
    if not any(batched[:3]):
        whole = Penalties(*(_with_batch(p, flag, size) for p, flag in zip(penalties, batched[3], strict=True)))
        found = elastic_nets(gram, cross, square, Penalties(*(p.reshape(-1, p.shape[-1]) for p in whole)))
        return ElasticNets(*(a.reshape(size, -1, *a.shape[1:]) for a in found)), everything

    def beside(array: Any, flag: bool) -> Any:
        array = jnp.moveaxis(_with_batch(array, flag, size), 0, -2)
        return array.reshape(*array.shape[:-2], -1)

    data = (beside(a, flag) for a, flag in zip((gram, cross, square), batched[:3], strict=True))
    found = elastic_nets(*data, Penalties(*(beside(p, flag) for p, flag in zip(penalties, batched[3], strict=True))))
    return ElasticNets(*(jnp.moveaxis(a.reshape(*a.shape[:-1], size, -1), -2, 0) for a in found)), everything


def _with_batch(array: Any, batched: bool, size: int) -> Any:
    return array if batched else jnp.broadcast_to(array, (size, *array.shape))


def conditions(gram: Any) -> Any:
    """Return the root of each window's largest variance inflation factor: infinite where features are dependent.

    Parameters
    ----------
    gram : array of shape (k, k, n)
    """
    k, _, n = gram.shape
    width = min(_chunk_width(gram), n)

    def some(gram: Any) -> Any:
        diagonal = _diagonal(gram)
        scale = jnp.where(diagonal > 0, lax.rsqrt(jnp.where(diagonal > 0, diagonal, 1)), 0)
        factor = inverse_factor(jnp.where(_eye(k), 1, gram * scale[:, None] * scale[None]), written_out=0)
        inflation = jnp.max(jnp.sum(factor * factor, axis=0), axis=0)
        # Above, rounding alone would look like this.
        known = jnp.all(diagonal > 0, axis=0) & (inflation * (_DEPENDENT * jnp.finfo(gram.dtype).eps) < 1)
        return jnp.where(known, jnp.sqrt(jnp.maximum(inflation, 1)), jnp.inf)

    whole = jnp.pad(gram, ((0, 0), (0, 0), (0, -n % width)), mode="edge")
    return lax.map(some, jnp.moveaxis(whole.reshape(k, k, -1, width), 2, 0)).reshape(-1)[:n]


def _chunk_width(gram: Any) -> int:
    """Return how many Gram matrices stay in the cache together: a power of two."""
    bytes_each = gram.shape[0] ** 2 * gram.dtype.itemsize
    return min(1 << max(int(math.log2(_CHUNK_BYTES / bytes_each)), _LEAST_CHUNK), _MAX_CHUNK)


def _at(array: Any, index: Any) -> Any:
    """Return entries of the last axis, all in bounds."""
    return array.at[..., index].get(mode="promise_in_bounds")


def _differs(array: Any) -> Any:
    """Say which entries of the last axis differ from the one before."""
    same = jnp.all(array[..., 1:] == array[..., :-1], axis=tuple(range(array.ndim - 1)))
    return jnp.concatenate([jnp.ones(1, bool), ~same])


class _Problems(NamedTuple):
    """Where problems stand: arrays with the problems along the last axis.

    `best` is a violation of the optimality conditions, and `since` the sweep after which it was that small.
    """

    sweeps: Any
    outcome: Any
    coef: Any
    best: Any
    since: Any


class _Equations(NamedTuple):
    """The data of some problems, along the last axis."""

    gram: Any
    cross: Any
    spread: Any
    penalties: Penalties


def _descend(equations: _Equations, problems: _Problems, enough: Any) -> _Problems:
    """Go on until no more than `enough` problems are open."""
    gram, cross, spread, penalties = equations
    k, eps = gram.shape[0], jnp.finfo(gram.dtype).eps
    diagonal = _diagonal(gram)
    varies = diagonal > 0
    total = diagonal + penalties.square
    inverse = jnp.where(varies, 1 / jnp.where(varies, total, 1), 0)
    length = jnp.sqrt(diagonal)
    # What a slope's step says of the violation of its optimality condition, as a correlation.
    violation = jnp.where(varies, total / jnp.where(varies, length, 1), 0)

    def sweep(coef: Any, is_open: Any) -> tuple[Any, Any]:
        def coordinate(j: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
            coef, worst = state
            old = row_of(coef, j)
            # Anew from all slopes: a residual that is carried along would gather rounding.
            rest = row_of(cross, j) - jnp.sum(row_of(gram, j) * coef, axis=0) + row_of(diagonal, j) * old
            new = (rest - jnp.clip(rest, -penalties.absolute, penalties.absolute)) * row_of(inverse, j)
            worst = jnp.maximum(worst, jnp.abs(new - old) * row_of(violation, j))
            start = (j, jnp.int32(0))
            new = jnp.where(is_open, new, old)[None]
            return lax.dynamic_update_slice(coef, new, start, allow_negative_indices=False), worst

        return lax.fori_loop(jnp.int32(0), jnp.int32(k), coordinate, (coef, jnp.zeros_like(spread)))

    def step(problems: _Problems) -> _Problems:
        sweeps, outcome, coef, best, since = problems
        is_open, more = outcome <= _OPEN, sweeps - _FIRST_SOLUTION
        due = (outcome == _CUT) | (is_open & (more >= 0) & (more % _SWEEPS_BETWEEN == 0))

        def solve(coef: Any) -> tuple[Any, Any]:
            moved, cut = _solve_active(equations, coef)
            return jnp.where(due, moved, coef), due & cut

        coef, cut = lax.cond(jnp.any(due), solve, lambda coef: (coef, jnp.zeros_like(due)), coef)
        # The slopes that are left are solved for first: a sweep would bring back the one that became zero.
        coef, worst = sweep(coef, is_open & ~cut)
        sweeps = sweeps + is_open.astype(jnp.int32)
        rounding = _ROUNDING * eps * jnp.sum(jnp.abs(coef) * length, axis=0)
        settled = ~cut & (worst <= penalties.tol * spread + rounding)
        better = worst < best / 2
        best, since = jnp.where(better, worst, best), jnp.where(better, sweeps, since)
        failed = (sweeps >= penalties.max_iter) | (sweeps - since >= _PATIENCE) | ~jnp.isfinite(worst)
        now = jnp.where(settled, _SOLVED, jnp.where(failed, _FAILED, jnp.where(cut, _CUT, _OPEN))).astype(jnp.int32)
        return _Problems(sweeps, jnp.where(is_open, now, outcome), coef, best, since)

    def unfinished(problems: _Problems) -> Any:
        return jnp.sum(problems.outcome <= _OPEN, dtype=jnp.int32) > enough

    return lax.while_loop(unfinished, step, problems)


def _solve_active(equations: _Equations, coef: Any) -> tuple[Any, Any]:
    """Move to the minimum among slopes that are not zero, or to where the first of them becomes zero.

    Returns the slopes, and whether that is where it ended.
    """
    gram, cross, _, penalties = equations
    eps = jnp.finfo(gram.dtype).eps
    free = penalties.absolute == 0  # signs do not matter then
    diagonal = _diagonal(gram)
    active = ((coef != 0) | free) & (diagonal > 0)
    scale = jnp.where(active, lax.rsqrt(jnp.where(active, diagonal + penalties.square, 1)), 0)
    matrix = jnp.where(_eye(len(gram)), 1, gram * scale[:, None] * scale[None])
    least = _DEPENDENT * eps

    def mend(pivot: Any) -> Any:
        # Along dependent features the fit stays the same, and the penalty falls until one of them is zero: go far.
        return jnp.where(pivot > least, pivot, least**0.75)

    factor = inverse_factor(matrix, written_out=0, mend=mend) * scale[None]
    descent = cross - jnp.sum(gram * coef[None], axis=1) - penalties.square * coef - penalties.absolute * jnp.sign(coef)
    step = jnp.sum(factor * jnp.sum(factor * descent[None], axis=1)[:, None], axis=0)
    target = coef + step
    crosses = ~free & (coef != 0) & (target * jnp.sign(coef) <= 0)
    reach = jnp.where(crosses, coef / jnp.where(crosses, coef - target, 1), jnp.inf)
    nearest = jnp.min(reach, axis=0)
    moved = jnp.where(nearest < 1, jnp.where(reach == nearest, 0, coef + nearest * step), target)
    valid = jnp.all(jnp.isfinite(moved), axis=0)
    return jnp.where(valid, moved, coef), valid & (nearest < 1)


def _eye(k: int) -> np.ndarray:
    return np.eye(k, dtype=bool)[:, :, None]


def _diagonal(gram: Any) -> Any:
    return jnp.sum(jnp.where(_eye(len(gram)), gram, 0), axis=1)
