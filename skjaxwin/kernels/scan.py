"""Every window x every hyperparameter with one compiled kernel: each window from its rows.

The kernel takes a chunk of windows: `lanes` of them side by side, each lane going through
`steps` consecutive windows, so that a model can start from the window before. The number
of steps is a traced loop bound: a chunk that is not full costs no more than its windows.
Hyperparameters are one more batch axis inside a window; what does not depend on them is
computed once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels.checks import check_result, check_weight_rule, trace_model
from skjaxwin.kernels.linalg import lapack_can_block, row_of
from skjaxwin.kernels.own_pace import make_own_pace_kernel
from skjaxwin.kernels.shapes import ChunkShape, aligned_empty, bucket, chunk_shape
from skjaxwin.kernels.tracing import Traced, run, trace

__all__ = ["Layout", "Rows", "padded_table", "refit_windows"]

_MAX_GRID = 64
# Windows in a run that starts anew, where they are fitted in turn; and in each lane, where lanes go at their own pace.
_RUN = 64
_RUN_OF_LANE = 8
_LANES, _BYTES_OF_LANES = 32, 64 * 2**20


class Rows(NamedTuple):
    """The data of all windows, in time order.

    Attributes
    ----------
    X : array of shape (n_rows, n_features)
    y : array of shape (n_rows,) or (n_rows, n_outputs), or None
    weight : array of shape (n_rows,)
    age : array of shape (n_rows, 2) or None
        Time in half-lives, as a float and the rest it leaves: the difference of two
        such pairs is exact where that of two single-precision floats is not.
    """

    X: Any
    y: Any
    weight: Any
    age: Any


@dataclass(frozen=True)
class Layout:
    """Which columns of the one table hold what: a kernel cuts a single array."""

    n_features: int
    n_outputs: int | None
    has_target: bool
    has_age: bool

    @classmethod
    def of(cls, rows: Rows) -> Layout:
        n_outputs = None if rows.y is None or rows.y.ndim == 1 else rows.y.shape[1]
        return cls(rows.X.shape[1], n_outputs, rows.y is not None, rows.age is not None)

    @property
    def weight_column(self) -> int:
        return self.n_features + (self.n_outputs or self.has_target)

    @property
    def n_columns(self) -> int:
        return self.weight_column + 1 + 2 * self.has_age

    def split(self, table: Any) -> Rows:
        k, after, y = self.n_features, self.weight_column, None
        if self.has_target:
            y = table[:, k] if self.n_outputs is None else table[:, k:after]
        return Rows(table[:, :k], y, table[:, after], table[:, after + 1 :] if self.has_age else None)


def padded_table(rows: Rows, capacity: int) -> np.ndarray:
    """Put all columns side by side, followed by zero rows."""
    columns = [part if part.ndim == 2 else part[:, None] for part in rows if part is not None]
    n = len(rows.X)
    table = aligned_empty((capacity, sum(part.shape[1] for part in columns)), rows.X.dtype)
    at = 0
    for part in columns:
        table[:n, at : at + part.shape[1]] = part
        at += part.shape[1]
    table[n:] = 0
    return table


@dataclass(frozen=True)
class _Plan:
    """One kernel and the shapes it was made for."""

    kernel: Any
    chunk: ChunkShape
    grid: int
    exclusive: bool
    sequential: bool
    in_turn: bool


def refit_windows(
    model: Any,
    hyper: dict[str, np.ndarray],
    rows: Rows,
    starts: np.ndarray,
    stops: np.ndarray,
    *,
    max_rows: int | None,
    capacity: int,
    max_memory: float,
    start: Any = None,
) -> tuple[Any, Any]:
    """Fit a model on every window for every hyperparameter.

    Parameters
    ----------
    model : WindowModel
        What to fit.
    hyper : dict of ndarray of shape (n_candidates, ...)
        The traced hyperparameters.
    rows : Rows
        The data in time order, all floats of one dtype.
    starts, stops : ndarray of shape (n_windows,)
        Half-open row bounds; every window has a row of positive weight.
    max_rows : int or None
        A bound on the rows of one window: windows are then cut to that width
        (rounded up to a power of two) instead of masked over all rows.
    capacity : int
        Rows are padded to this many.
    max_memory : float
        Bytes of temporary memory.
    start : pytree of ndarray, default=None
        Parameters to start from, for models that start from any; None for the model's `initial` ones.

    Returns
    -------
    params : pytree of ndarray
        Leading axes (n_windows, n_candidates).
    info : FitInfo of ndarray of shape (n_windows, n_candidates)
    """
    n_candidates = len(next(iter(hyper.values()))) if hyper else 1
    call = _bind(model, hyper, rows, n_candidates, max_rows, capacity, max_memory, start)
    if not model.checked:
        _check_once(model, hyper, call, int(starts[-1]), int(stops[-1]))

    result: Any = None
    for low in range(0, n_candidates, call.plan.grid):
        high = min(low + call.plan.grid, n_candidates)
        # The last candidate fills the grid up; what it yields twice is cut off below.
        pick = np.minimum(np.arange(low, low + call.plan.grid), n_candidates - 1)
        candidates = {name: np.asarray(values, rows.X.dtype)[pick] for name, values in hyper.items()}
        for first, last, part in _runs(call, starts, stops, candidates):
            if result is None:
                shape = (len(starts), n_candidates)
                result = jax.tree_util.tree_map(lambda a, s=shape: np.empty(s + a.shape[2:], a.dtype), part)
            _put_windows(result, part, slice(first, last), slice(low, high))
        if call.plan.in_turn:
            _once_more(call, result, starts, stops, candidates, low, high)
    return result


def _runs(call: _Call, starts: np.ndarray, stops: np.ndarray, candidates: dict[str, np.ndarray]) -> Iterator[Any]:
    """Yield the results of all windows, some at a time, with the bounds of each part."""
    plan, n_windows = call.plan, len(starts)
    per_call = plan.chunk.steps * plan.chunk.lanes
    if plan.in_turn:
        run = _RUN if plan.chunk.lanes == 1 else plan.chunk.steps * plan.chunk.lanes
        per_call = -(-n_windows // -(-n_windows // min(per_call, run)))
    spans = [(first, min(first + per_call, n_windows)) for first in range(0, n_windows, per_call)]
    carried = None

    def one_call(span: tuple[int, int]) -> Any:
        nonlocal carried
        first, last = span
        part, carried = call(starts[first:last], stops[first:last], candidates, carried)
        return first, last, part

    return compiling.run_many(one_call, spans, exclusive=plan.exclusive or not plan.in_turn)


def _once_more(
    call: _Call,
    result: Any,
    starts: np.ndarray,
    stops: np.ndarray,
    candidates: dict[str, np.ndarray],
    low: int,
    high: int,
) -> None:
    """Fit windows again that did not converge from where the window before them ended."""
    missed = np.flatnonzero(~result[1].converged[:, low:high].all(axis=1))
    per_call = min(_RUN, call.plan.chunk.steps * call.plan.chunk.lanes)
    for first in range(0, len(missed), per_call):
        pick = missed[first : first + per_call]
        again, _ = call(starts[pick], stops[pick], candidates, None, anew=True)
        better = again[1].converged[:, : high - low] & ~result[1].converged[pick, low:high]
        window, candidate = np.nonzero(better)
        for whole, piece in zip(jax.tree_util.tree_leaves(result), jax.tree_util.tree_leaves(again), strict=True):
            whole[pick[window], low + candidate] = piece[window, candidate]


def _put_windows(result: Any, part: Any, windows: Any, candidates: slice) -> None:
    width = candidates.stop - candidates.start
    for whole, piece in zip(jax.tree_util.tree_leaves(result), jax.tree_util.tree_leaves(part), strict=True):
        whole[windows, candidates] = piece[:, :width]


def _check_once(model: Any, hyper: dict[str, np.ndarray], call: _Call, start: int, stop: int) -> None:
    """Check the weight rule on a window of the data until it was conclusive for this model."""
    if stop - start < 2:
        return  # copies of a single row cannot tell a mean from a weighted mean
    shapes = tuple((name, np.shape(values)[1:]) for name, values in sorted(hyper.items()))
    done: list[bool] = compiling.cached(("check", model.static_key(), shapes, call.layout, call.table.dtype.str), list)
    if not done and check_weight_rule(model, hyper, call.layout, call.table[start:stop], call.plan.exclusive):
        done.append(True)


def _bind(
    model: Any,
    hyper: dict[str, np.ndarray],
    rows: Rows,
    n_candidates: int,
    max_rows: int | None,
    capacity: int,
    max_memory: float,
    start: Any,
) -> _Call:
    """Find or make the kernel for these shapes, and bind it to the padded data."""
    dtype, layout = rows.X.dtype, Layout.of(rows)
    width = capacity if max_rows is None else min(bucket(max_rows), capacity)
    grid = 1 if n_candidates == 1 else min(bucket(n_candidates, minimum=4), _MAX_GRID)
    key = (
        "fit",
        model.static_key(),
        tuple((name, np.shape(values)[1:]) for name, values in sorted(hyper.items())),
        layout,
        dtype.str,
        width,
        capacity,
        grid,
        float(max_memory),
    )
    plan = compiling.cached(
        key, lambda: _make_plan(model.static_copy(), hyper, layout, dtype, grid, width, capacity, max_memory)
    )
    table = padded_table(rows, capacity)
    initial = model.initial(layout.n_features, layout.n_outputs)
    initial, start = jax.tree_util.tree_map(
        lambda leaf: _in_dtype(leaf, dtype), (initial, initial if initial is None or start is None else start)
    )
    return _Call(plan, layout, table, initial, start, dtype, model.described())


@dataclass(frozen=True)
class _Call:
    """One plan bound to its padded data."""

    plan: _Plan
    layout: Layout
    table: np.ndarray
    initial: Any
    start: Any
    dtype: Any
    what: str

    def __call__(
        self,
        starts: np.ndarray,
        stops: np.ndarray,
        candidates: dict[str, np.ndarray],
        carried: Any,
        anew: bool = False,
    ) -> tuple[Any, Any]:
        """Fit up to steps x lanes windows; leading axes (n_windows, grid).

        A sequential model starts from what the call before `carried` over; what the next one gets is returned, too.
        With `anew` windows start from `initial`, and none from another.
        """
        chunk = self.plan.chunk
        n_windows = len(starts)
        steps = -(-n_windows // chunk.lanes)
        # Lane after lane of consecutive windows; the last window fills up the rest.
        index = np.minimum(np.arange(steps * chunk.lanes), n_windows - 1).reshape(chunk.lanes, steps).T
        bounds = np.zeros((chunk.steps, 3, chunk.lanes), np.int32)
        bounds[:steps, 0], bounds[:steps, 1], bounds[:steps, 2] = starts[index], stops[index], anew
        if self.plan.sequential and carried is None:
            carried = jax.tree_util.tree_map(lambda a: np.broadcast_to(a, (1, self.plan.grid, *a.shape)), self.start)
        start = self.initial if anew or self.plan.sequential else self.start
        arguments = self.table, bounds, np.int32(steps), candidates, start, carried
        exclusive = self.plan.exclusive
        out, carried = run(self.plan.kernel, *arguments, dtype=self.dtype, exclusive=exclusive, what=self.what)
        out = jax.tree_util.tree_map(lambda a: np.swapaxes(a[:steps], 0, 1).reshape(-1, *a.shape[2:])[:n_windows], out)
        return out, carried


def _make_plan(
    model: Any,
    hyper: dict[str, np.ndarray],
    layout: Layout,
    dtype: np.dtype,
    grid: int,
    width: int,
    capacity: int,
    max_memory: float,
) -> _Plan:
    """Trace one window, choose the chunk by its memory, and define the kernel."""
    initial = model.initial(layout.n_features, layout.n_outputs)
    exclusive = False
    if not model.checked:
        shorter, longer = (trace_model(model, hyper, layout, n, initial, dtype) for n in (width, width + 1))
        check_result(model, shorter, longer)
        exclusive = lapack_can_block(shorter.primitives)
    one_window = _one_window(model, layout, width, sequential=exclusive)
    table = jax.ShapeDtypeStruct((capacity, layout.n_columns), dtype)
    bound = jax.ShapeDtypeStruct((), np.int32)

    def trace_grid(grid: int) -> Traced:
        shapes = {name: np.shape(values)[1:] for name, values in hyper.items()}
        candidates = {name: jax.ShapeDtypeStruct((grid, *shape), dtype) for name, shape in shapes.items()}
        start = jax.tree_util.tree_map(
            lambda a: jax.ShapeDtypeStruct((grid, *np.shape(a)), _in_dtype(a, dtype).dtype), initial
        )
        return trace(one_window, table, (bound, bound), candidates, start, dtype=dtype, what=model.described())

    window = trace_grid(grid)
    while window.bytes > max_memory and grid > 1:
        smaller = trace_grid(grid // 2)
        if smaller.bytes > 0.9 * window.bytes:
            break  # the memory is that of what all candidates share
        grid, window = grid // 2, smaller
    result_bytes = sum(int(np.prod(a.shape)) * a.dtype.itemsize for a in jax.tree_util.tree_leaves(window.result))
    chunk = chunk_shape(window.bytes, result_bytes, max_memory)
    sequential = model.sequential and initial is not None
    steps = None if exclusive else model.steps(layout.n_features)
    in_turn = model.in_turn or model.steps(layout.n_features) is not None
    if exclusive or sequential or model.in_turn:
        chunk = ChunkShape(chunk.steps, 1)
    if steps is not None:
        # Side by side not for the caches' sake, but because a step of few rows costs little more for many lanes.
        lanes = bucket(int(_BYTES_OF_LANES // max(window.bytes, 1)) + 1, minimum=1) // 2
        chunk = ChunkShape(min(chunk.steps, _RUN_OF_LANE), max(min(lanes, int(max_memory // window.bytes), _LANES), 1))
    if steps is None:
        function = _make_kernel(one_window, chunk, window.result, in_turn)
    else:
        function = make_own_pace_kernel(
            steps, lambda table, begin, end: _cut(table, layout, begin, end, width), chunk.steps
        )
    return _Plan(compiling.kernel(function, "fit_windows"), chunk, grid, exclusive, sequential, in_turn)


def _one_window(model: Any, layout: Layout, width: int, *, sequential: bool) -> Any:
    """Return the function that fits one window for a grid of candidates."""

    def one_window(table: Any, bounds: Any, candidates: Any, start: Any) -> Any:
        begin, end = bounds
        X, y, weight = _cut(table, layout, begin, end, width)
        if not jax.tree_util.tree_leaves((candidates, start)):  # no hyperparameters, no warm start
            return jax.tree_util.tree_map(lambda a: jnp.asarray(a)[None], model.fit(X, y, weight, candidates, start))
        if sequential:
            return lax.map(lambda args: model.fit(X, y, weight, *args), (candidates, start))
        return jax.vmap(lambda one, from_: model.fit(X, y, weight, one, from_))(candidates, start)

    return one_window


def _cut(table: Any, layout: Layout, begin: Any, end: Any, width: int) -> Any:
    """Return the window's rows at fixed width, weight 0 and a neutral row elsewhere.

    Rows that are not in the window are replaced *before* the model sees them:
    weighting them by zero would not stop a NaN or an infinity.
    """
    capacity = table.shape[0]
    first = jnp.int32(0)
    cut = table
    if width < capacity:
        # dynamic_slice would clamp silently: bound the start here and mask by row number.
        first = jnp.clip(end - width, 0, capacity - width)
        cut = lax.dynamic_slice(table, (first, jnp.int32(0)), (width, table.shape[1]), allow_negative_indices=False)
    row = first + jnp.arange(width, dtype=jnp.int32)
    inside = (row >= begin) & (row < end)
    newest = row_of(table, end - 1)
    X, y, weight, age = layout.split(jnp.where(inside[:, None], cut, newest))
    weight = jnp.where(inside, weight, 0)
    if age is not None:
        high, low = jnp.where(inside[:, None], age - newest[-2:], 0).T
        weight = weight * jnp.exp2(high + low)
    return X, y, weight


def _make_kernel(one_window: Any, chunk: ChunkShape, result: Any, in_turn: bool) -> Any:
    """Return the function of a chunk: lanes side by side, steps in a loop."""

    def fit_windows(table: Any, bounds: Any, steps: Any, candidates: Any, initial: Any, carried: Any) -> Any:
        lanes_of = jax.vmap(one_window, in_axes=(None, 0, None, 0))
        grid = jax.tree_util.tree_leaves(result)[0].shape[0]
        first = jax.tree_util.tree_map(lambda a: jnp.broadcast_to(a, (chunk.lanes, grid, *a.shape)), initial)
        out = jax.tree_util.tree_map(lambda a: jnp.zeros((chunk.steps, chunk.lanes, *a.shape), a.dtype), result)

        def step(s: Any, state: Any) -> Any:
            out, start = state
            begin, end, anew = row_of(bounds, s)
            if start is not None:
                start = jax.tree_util.tree_map(lambda a, b: jnp.where(_along(anew > 0, a), b, a), start, first)
            fitted = lanes_of(table, (begin, end), candidates, start)
            out = jax.tree_util.tree_map(lambda whole, one: _put(whole, one, s), out, fitted)
            return out, None if initial is None else _next_start(fitted, first, in_turn)

        out, last = lax.fori_loop(jnp.int32(0), steps, step, (out, first if carried is None else carried))
        return out, None if carried is None else last

    return fit_windows


def _put(whole: Any, one: Any, position: Any) -> Any:
    start = (position,) + (jnp.int32(0),) * one.ndim
    return lax.dynamic_update_slice(whole, one[None], start, allow_negative_indices=False)


def _next_start(fitted: tuple[Any, Any], first: Any, in_turn: bool) -> Any:
    """Start the next window from this one's parameters, or anew where they are not finite, or in turn no solution."""
    params, info = fitted
    good = [jnp.isfinite(a).reshape(*a.shape[:2], -1).all(axis=-1) for a in jax.tree_util.tree_leaves(params)]
    if in_turn:
        good.append(info.converged)
    both = jnp.stack(good).all(axis=0)
    return jax.tree_util.tree_map(lambda new, old: jnp.where(_along(both, new), new, old), params, first)


def _along(flag: Any, array: Any) -> Any:
    """Give a flag of the leading axes the other axes of an array."""
    return flag.reshape(flag.shape + (1,) * (array.ndim - flag.ndim))


def _in_dtype(leaf: Any, dtype: np.dtype) -> np.ndarray:
    """Cast floats to the working dtype; integers and flags stay what they are."""
    array = np.asarray(leaf)
    return (
        array.astype(dtype) if array.dtype.kind == "f" else array.astype(np.int32 if array.dtype.kind == "i" else bool)
    )
