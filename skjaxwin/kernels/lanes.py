"""Least squares on consecutive windows: lanes that advance in lockstep, and are checked.

Time is cut into lanes. Each starts from the exact solution of its first window and goes on
window by window: the row that arrives and the row that leaves are one change of rank two of
the inverse cross products (Sherman, Morrison and Woodbury). A lane goes one window further
than it has to, where the exact solution is known again. Rounding that entered anywhere in a
lane is still there at its end, since adding and removing rows leaves an error of the cross
products as it is: so the end tells of the whole lane. Lanes that miss the tolerance are
reported, for a path that keeps no state.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels.lane_rows import Moves, lay_out
from skjaxwin.kernels.lane_state import deviation, exact_state
from skjaxwin.kernels.linalg import row_of
from skjaxwin.kernels.ranges import range_products
from skjaxwin.kernels.scratch import scratch

__all__ = ["LaneFit", "fit_lanes", "lanes_at_once"]

_STEPS = 416
# Lanes shorter than this do not pay for their exact start.
_USUAL_STEPS = 400
_FEWEST = 8
# Below so many features two calls at a time would wait for each other more than they compute: one takes more lanes.
_SIDE_BY_SIDE_FROM = 5
# How often the size of the inverse is measured on the way.
_SAMPLED = 16
# Relative to the size that a coefficient can have, given the spread of the data.
_TOLERANCE = 4e-13


class LaneFit(NamedTuple):
    """Least squares of each window, in the caller's units.

    Attributes
    ----------
    good : ndarray of bool of shape (n_windows, n_candidates)
        False where the lane missed the tolerance: then nothing else here is to be used.
    coef : ndarray of shape (n_windows, n_candidates, m, k)
    intercept : ndarray of shape (n_windows, n_candidates, m)
    condition : ndarray of shape (n_windows, n_candidates)
        Root of the largest variance inflation factor.
    parts : dict or None
        What standard errors are made of, as in `models.Linear.error_parts`: ``rss`` and ``tss``
        (..., m), ``slopes`` (..., k), ``constant`` (...).
    """

    good: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray
    condition: np.ndarray
    parts: dict[str, np.ndarray] | None

    def view(self, index: Any) -> LaneFit:
        """Return views of some windows or candidates."""
        parts = None if self.parts is None else {name: part[index] for name, part in self.parts.items()}
        coef, intercept, condition = self.coef[index], self.intercept[index], self.condition[index]
        return LaneFit(self.good[index], coef, intercept, condition, parts)


def lanes_at_once(k: int, m: int, max_memory: float) -> int:
    """Return how many lanes share a step: as many as the caches hold, fewer if memory is short, 0 if too short."""
    side = 256 if k < _SIDE_BY_SIDE_FROM else 128 if k < 12 else 64 if k < 24 else 32
    # Results of all steps, inverse and rows, with standard errors; two calls at a time.
    lane_bytes = 8 * (_STEPS * (m * (k + 5) + 5 * k + 4) + 4 * (k + 1) * (k + m + 1))
    while side >= _FEWEST and 2 * side * lane_bytes > max_memory:
        side //= 2
    return side if side >= _FEWEST else 0


def fit_lanes(
    X: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
    starts: np.ndarray,
    stops: np.ndarray,
    *,
    first: int,
    alphas: np.ndarray,
    fit_intercept: bool,
    errors: bool,
    max_memory: float,
) -> LaneFit:
    """Fit windows of which each gains and loses at most one row against the one before.

    Parameters
    ----------
    X : ndarray of shape (n_rows, k), float64
    y : ndarray of shape (n_rows, m), float64
    weight : ndarray of shape (n_rows,) or None
        None for ones.
    starts, stops : ndarray of shape (n_windows,)
        Half-open row bounds.
    first : int
        Windows before this one are left alone: NaN, with an infinite condition.
    alphas : ndarray of shape (n_candidates,)
        Penalties. Each is a pass of its own, from the same exact cross products.
    fit_intercept : bool
    errors : bool
        Whether to return `LaneFit.parts`.
    max_memory : float
        Bytes of temporary memory; see `lanes_at_once`.
    """
    k, m = X.shape[1], y.shape[1]
    # Candidates first while being filled: then what a lane fills lies together.
    whole = _empty((len(alphas), len(starts)), first, k, m, errors)
    starts, stops = starts[first:], stops[first:]
    n_windows = len(starts)
    side = lanes_at_once(k, m, max_memory)
    calls = max(1, -(-n_windows // (side * _USUAL_STEPS)))
    steps = -(-n_windows // (side * calls))
    n_lanes = -(-n_windows // steps)
    edge = np.minimum(np.arange(n_lanes + 1) * steps, n_windows - 1)
    leaving = bool((starts != starts[0]).any())

    exact = range_products(X, y, weight, starts[edge], stops[edge])
    layout = _layout(k, m, errors)
    key = ("lanes", side, k, m, weight is not None, fit_intercept, errors, leaving)
    compiled = compiling.cached(
        key,
        lambda: compiling.kernel(_make(k, m, side, fit_intercept, errors, leaving), "fit_lanes", quick_compile=False),
    )
    root = None if weight is None else np.sqrt(weight)
    arrive, leave = Moves.of(stops), Moves.of(starts) if leaving else None

    @np.errstate(all="ignore")  # what is not finite misses the tolerance
    def one_call(job: tuple[int, int]) -> None:
        candidate, low = job
        alpha, fit = float(alphas[candidate]), whole.view((candidate, slice(first, None)))
        lane = np.minimum(np.arange(low, low + side), n_lanes - 1)
        state = exact_state(exact.take(lane), k, alpha, fit_intercept)
        truth = exact_state(exact.take(lane + 1), k, alpha, fit_intercept, basis=(state.origin, state.unit))
        with scratch() as buffers:
            new, old = (
                None
                if moves is None
                else lay_out(X, y, root, moves, lane, steps, _STEPS, state.origin, state.unit, buffers.empty)
                for moves in (arrive, leave)
            )
            # Room for the results comes from outside: what fills it in the kernel would be shared out among threads.
            room = {name: buffers.empty((side, _STEPS, *shape), X.dtype) for name, shape in layout.items()}
            penalty, n_steps = np.float64(alpha), np.int32(steps + 1)
            out, end = compiling.run(compiled, new, old, room, state, truth.gram, penalty, n_steps, dtype=np.float64)
        _collect(fit, out, low, steps, side, n_windows)
        real = np.arange(low, min(low + side, n_lanes))
        error = deviation(truth, end)[: len(real)]
        for i, bad in zip(real, ~(error <= _TOLERANCE), strict=True):  # NaN is bad, too
            fit.good[i * steps : (i + 1) * steps] = not bad

    jobs = [(i, low) for low in range(0, n_lanes, side) for i in range(len(alphas))]
    for _ in compiling.run_many(one_call, jobs, exclusive=k < _SIDE_BY_SIDE_FROM):
        pass
    parts = None if whole.parts is None else {name: np.moveaxis(part, 0, 1) for name, part in whole.parts.items()}
    coef, intercept = np.moveaxis(whole.coef, 0, 1), np.moveaxis(whole.intercept, 0, 1)
    return LaneFit(whole.good.T, coef, intercept, whole.condition.T, parts)


def _empty(size: tuple[int, int], first: int, k: int, m: int, errors: bool) -> LaneFit:
    arrays = {name: np.empty((*size, *shape)) for name, shape in _layout(k, m, errors).items()}
    for name, array in arrays.items():
        array[:, :first] = np.inf if name == "condition" else np.nan
    coef, intercept, condition = (arrays.pop(name) for name in ("coef", "intercept", "condition"))
    return LaneFit(np.zeros(size, bool), coef, intercept, condition, arrays or None)


def _layout(k: int, m: int, errors: bool) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a window's results."""
    shapes: dict[str, tuple[int, ...]] = {"coef": (m, k), "intercept": (m,), "condition": ()}
    if errors:
        shapes |= {"rss": (m,), "tss": (m,), "slopes": (k,), "constant": ()}
    return shapes


def _collect(fit: LaneFit, out: Any, low: int, steps: int, side: int, n_windows: int) -> None:
    """Write one call's windows, lane after lane, where they belong."""
    first, last = low * steps, min((low + side) * steps, n_windows)
    whole, rest = divmod(last - first, steps)
    names = {"coef": fit.coef, "intercept": fit.intercept, "condition": fit.condition, **(fit.parts or {})}
    for name, target in names.items():
        values = out[name]  # (lanes, steps, ...)
        lanes = target[first : first + whole * steps].reshape(whole, steps, *target.shape[1:])
        lanes[...] = values[:whole, :steps]
        if rest:
            target[last - rest : last] = values[whole, :rest]


def _make(k: int, m: int, side: int, fit_intercept: bool, errors: bool, leaving: bool) -> Any:
    """Return the function of one call: all lanes, step by step.

    Sums are written out and nothing is concatenated or read back from a new inverse: the compiler
    then makes a few loops over the lanes out of a step.
    """
    p = k + fit_intercept

    def advance(new: Any, old: Any, room: Any, start: Any, gram: Any, alpha: Any, steps: Any) -> Any:
        unit = 1 / start.unit
        penalty = alpha * unit[:k] ** 2

        series = (new, old) if leaving else (new,)

        def design(row: Any) -> list[Any]:
            return [row[0]] * fit_intercept + [row[1][j] for j in range(k)]

        def dot(vector: Any, row: Any) -> Any:
            # A reduction is computed once; a sum written out would be repeated wherever it is used.
            x = row[1][:k].reshape(k, *[1] * (vector.ndim - 2), side)
            total = jnp.sum(vector[fit_intercept:] * x, axis=0)
            return total + vector[0] * row[0] if fit_intercept else total

        def step(s: Any, state: Any) -> Any:
            rows = [(row_of(own, s), row_of(columns, s)) for own, columns in series]
            inverse, beta, diagonal, rss, weight, first, second, jump, least, out = state
            own, columns = rows[0]
            v, e = _product(inverse, design(rows[0])), columns[k:] - dot(beta, rows[0])
            weight, first, second = weight + own * own, first + columns * own, second + columns * columns
            if leaving:
                own, columns = rows[1]
                v2, e2 = _product(inverse, design(rows[1])), columns[k:] - dot(beta, rows[1])
                weight, first, second = weight - own * own, first - columns * own, second - columns * columns
                a, b, d = 1 + dot(v, rows[0]), dot(v, rows[1]), dot(v2, rows[1]) - 1
                scale = 1 / (a * d - b * b)
                jump = jnp.maximum(jump, a * jnp.maximum(1, jnp.abs(scale)))
                g, g2 = (d * v - b * v2) * scale, (a * v2 - b * v) * scale
                beta = beta + g[:, None] * e[None] + g2[:, None] * e2[None]
                rss = rss + ((d * e - b * e2) * e + (a * e2 - b * e) * e2) * scale
                diagonal = diagonal - (v * g + v2 * g2)
                inverse = inverse - (v[:, None] * g[None] + v2[:, None] * g2[None])
            else:
                scale = 1 / (1 + dot(v, rows[0]))
                g = v * scale
                beta = beta + g[:, None] * e[None]
                rss = rss + e * e * scale
                diagonal = diagonal - v * g
                inverse = inverse - v[:, None] * g[None]
            spread = second - first * (first * (1 / weight)) if fit_intercept else second
            least = jnp.minimum(least, spread[k:])
            found = report(inverse, beta, rss, diagonal, spread)
            out = {name: _put(whole, found[name], s) for name, whole in out.items()}
            return inverse, beta, diagonal, rss, weight, first, second, jump, least, out

        def report(inverse: Any, beta: Any, rss: Any, diagonal: Any, spread: Any) -> dict[str, Any]:
            """Return a window's results in the caller's units."""
            scale = 1 / unit[k:]
            slopes = beta[fit_intercept:] * unit[:k, None] * scale[None]  # (k, m, lanes)
            inflation = [(spread[j] + penalty[j]) * diagonal[j + fit_intercept] for j in range(k)]
            found = {
                "coef": jnp.moveaxis(slopes, 0, 1),
                "intercept": jnp.zeros_like(rss),
                "condition": jnp.sqrt(functools.reduce(jnp.maximum, inflation, jnp.ones(side, rss.dtype))),
            }
            if fit_intercept:
                shift = _product(slopes, [start.origin[j] for j in range(k)])
                found["intercept"] = start.origin[k:] + (beta[0] * scale - shift)
            if errors:
                # Roots, so that the size of the data leaves no trace but its own.
                found["rss"] = jnp.sqrt(jnp.maximum(rss, 0)) * scale
                found["tss"] = jnp.sqrt(jnp.maximum(spread[k:], 0)) * scale
                found["slopes"] = jnp.sqrt(diagonal[fit_intercept:]) * unit[:k]
                found["constant"] = jnp.zeros_like(diagonal[0])
                if fit_intercept:
                    lever = [jnp.ones(side, rss.dtype)] + [-start.origin[j] * unit[j] for j in range(k)]
                    found["constant"] = _product(_product(inverse, lever), lever)
            return found

        dtype = start.inverse.dtype
        # Kept for itself: reading it out of the new inverse makes the compiler compute that twice.
        diagonal = jnp.stack([start.inverse[j, j] for j in range(p)])
        state = (
            start.inverse,
            start.beta,
            diagonal,
            start.rss,
            start.weight,
            start.first,
            start.second,
            jnp.ones(side, dtype),
            jnp.full((m, side), jnp.inf, dtype),
            room,
        )

        def stretch(i: Any, state: Any) -> Any:
            trace, state = state
            # Over one axis at a time: a sum over both is done by a library with threads of its own.
            whole = functools.reduce(jnp.add, [state[0][j] * gram[j] for j in range(p)])
            trace = jnp.maximum(trace, functools.reduce(jnp.add, [whole[j] for j in range(p)]))
            return trace, lax.fori_loop(i * _SAMPLED, jnp.minimum((i + 1) * _SAMPLED, steps), step, state)

        stretches = (steps + _SAMPLED - 1) // _SAMPLED
        trace, state = lax.fori_loop(jnp.int32(0), stretches, stretch, (jnp.zeros(side, dtype), state))
        inverse, beta, _, rss, *_, jump, least, out = state
        return out, (inverse, beta, rss, trace, least, jump)

    return advance


def _put(whole: Any, values: Any, step: Any) -> Any:
    """Store one step's values, each with its lane."""
    at = (jnp.int32(0), step) + (jnp.int32(0),) * (values.ndim - 1)
    return lax.dynamic_update_slice(whole, jnp.moveaxis(values, -1, 0)[:, None], at, allow_negative_indices=False)


def _product(array: Any, vector: list[Any]) -> Any:
    """Contract the first axis with a vector, lane by lane."""
    total = array[0] * vector[0]
    for j in range(1, len(vector)):
        total = total + array[j] * vector[j]
    return total
