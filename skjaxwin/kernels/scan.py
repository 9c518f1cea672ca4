"""Every window x every hyperparameter with one compiled kernel.

The kernel takes a chunk of windows: `lanes` of them side by side, each lane going through
`steps` consecutive windows, so that a model can start from the window before. The number
of steps is a traced loop bound: a chunk that is not full costs no more than its windows.
Hyperparameters are one more batch axis inside a window; what does not depend on them is
computed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels.checks import (
    MIN_ROWS_TO_CHECK,
    check_masked_rows,
    check_padding,
    check_result_shapes,
    trace_model,
)
from skjaxwin.kernels.linalg import lapack_can_block, row_of
from skjaxwin.kernels.shapes import ChunkShape, bucket, chunk_shape, pad_rows
from skjaxwin.kernels.tracing import Traced, explain, trace

__all__ = ["Rows", "fit_windows"]

_MAX_GRID = 64


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
    def n_columns(self) -> int:
        return self.n_features + (self.n_outputs or self.has_target) + 1 + 2 * self.has_age

    def split(self, table: Any) -> Rows:
        k = self.n_features
        y, after = None, k
        if self.has_target:
            after = k + (self.n_outputs or 1)
            y = table[:, k] if self.n_outputs is None else table[:, k:after]
        return Rows(table[:, :k], y, table[:, after], table[:, after + 1 :] if self.has_age else None)


@dataclass(frozen=True)
class _Plan:
    """One kernel and the shapes it was made for."""

    kernel: Any
    chunk: ChunkShape
    grid: int
    width: int
    exclusive: bool
    counts_rows: bool  # numbers in the computation change with the number of rows
    unchecked: list[bool]  # not empty until the model has been checked on real data


def fit_windows(
    model: Any,
    hyper: dict[str, np.ndarray],
    rows: Rows,
    starts: np.ndarray,
    stops: np.ndarray,
    *,
    max_rows: int | None,
    capacity: int,
    max_memory: float,
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

    Returns
    -------
    params : pytree of ndarray
        Leading axes (n_windows, n_candidates).
    info : FitInfo of ndarray of shape (n_windows, n_candidates)
    """
    n_candidates = len(next(iter(hyper.values()))) if hyper else 1
    call = _bind(model, hyper, rows, n_candidates, max_rows, capacity, max_memory)
    if call.plan.unchecked and len(rows.X) >= MIN_ROWS_TO_CHECK:
        _check_model(model, hyper, rows, call, max_memory)
        call.plan.unchecked.clear()

    plan, dtype = call.plan, rows.X.dtype
    result: Any = None
    per_call = plan.chunk.steps * plan.chunk.lanes
    for low in range(0, n_candidates, plan.grid):
        high = min(low + plan.grid, n_candidates)
        # The last candidate fills the grid up; what it yields twice is cut off below.
        pick = np.minimum(np.arange(low, low + plan.grid), n_candidates - 1)
        candidates = {name: np.asarray(values, dtype)[pick] for name, values in hyper.items()}
        for first in range(0, len(starts), per_call):
            last = min(first + per_call, len(starts))
            part = call(starts[first:last], stops[first:last], candidates)
            if result is None:
                shape = (len(starts), n_candidates)
                result = jax.tree_util.tree_map(lambda a, s=shape: np.empty(s + a.shape[2:], a.dtype), part)
            for whole, piece in zip(jax.tree_util.tree_leaves(result), jax.tree_util.tree_leaves(part), strict=True):
                whole[first:last, low:high] = piece[:, : high - low]
    return result


def _bind(
    model: Any,
    hyper: dict[str, np.ndarray],
    rows: Rows,
    n_candidates: int,
    max_rows: int | None,
    capacity: int,
    max_memory: float,
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
    table = pad_rows(np.column_stack([a for a in rows if a is not None]), capacity)
    start = model.initial(layout.n_features, layout.n_outputs)
    start = jax.tree_util.tree_map(lambda leaf: np.asarray(leaf, dtype), start)
    return _Call(plan, table, start, dtype, model.described())


@dataclass(frozen=True)
class _Call:
    """One plan bound to its padded data."""

    plan: _Plan
    table: np.ndarray
    start: Any
    dtype: Any
    what: str

    def __call__(
        self,
        starts: np.ndarray,
        stops: np.ndarray,
        candidates: dict[str, np.ndarray],
        fills: np.ndarray | None = None,
    ) -> Any:
        """Fit up to steps x lanes windows; leading axes (n_windows, grid)."""
        chunk = self.plan.chunk
        n_windows = len(starts)
        steps = -(-n_windows // chunk.lanes)
        # Lane after lane of consecutive windows; the last window fills up the rest.
        index = np.minimum(np.arange(steps * chunk.lanes), n_windows - 1).reshape(chunk.lanes, steps).T
        bounds = np.zeros((chunk.steps, 3, chunk.lanes), np.int32)
        fills = stops - 1 if fills is None else fills
        for slot, values in enumerate((starts, stops, fills)):
            bounds[:steps, slot] = values[index]
        arguments = self.table, bounds, np.int32(steps), candidates, self.start
        try:
            out = compiling.run(self.plan.kernel, *arguments, dtype=self.dtype, exclusive=self.plan.exclusive)
        except jax.errors.UnexpectedTracerError as error:  # kept from a trace before, so not seen in one
            explain(error, self.what)
            raise
        return jax.tree_util.tree_map(lambda a: np.swapaxes(a[:steps], 0, 1).reshape(-1, *a.shape[2:])[:n_windows], out)


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
    exclusive = counts_rows = False
    if not model.checked:
        shorter, longer = (trace_model(model, hyper, layout, n, initial, dtype) for n in (width, width + 1))
        check_result_shapes(model, shorter, longer)
        exclusive = lapack_can_block(shorter.primitives)
        counts_rows = shorter.literals != longer.literals
    one_window = _one_window(model, layout, width, sequential=exclusive)
    table = jax.ShapeDtypeStruct((capacity, layout.n_columns), dtype)
    bound = jax.ShapeDtypeStruct((), np.int32)

    def trace_grid(grid: int) -> Traced:
        shapes = {name: np.shape(values)[1:] for name, values in hyper.items()}
        candidates = {name: jax.ShapeDtypeStruct((grid, *shape), dtype) for name, shape in shapes.items()}
        start = jax.tree_util.tree_map(lambda a: jax.ShapeDtypeStruct((grid, *np.shape(a)), dtype), initial)
        return trace(one_window, table, (bound, bound, bound), candidates, start, dtype=dtype, what=model.described())

    window = trace_grid(grid)
    while window.bytes > max_memory and grid > 1:
        smaller = trace_grid(grid // 2)
        if smaller.bytes > 0.9 * window.bytes:
            break  # the memory is that of what all candidates share
        grid, window = grid // 2, smaller
    result_bytes = sum(int(np.prod(a.shape)) * a.dtype.itemsize for a in jax.tree_util.tree_leaves(window.result))
    chunk = chunk_shape(window.bytes, result_bytes, max_memory)
    if exclusive:
        chunk = ChunkShape(chunk.steps, 1)
    kernel = compiling.kernel(_make_kernel(one_window, chunk, window.result), "fit_windows", quick=model.checked)
    return _Plan(kernel, chunk, grid, width, exclusive, counts_rows, [] if model.checked else [True])


def _one_window(model: Any, layout: Layout, width: int, *, sequential: bool) -> Any:
    """Return the function that fits one window for a grid of candidates."""

    def one_window(table: Any, bounds: Any, candidates: Any, start: Any) -> Any:
        begin, end, fill = bounds
        X, y, weight = _cut(table, layout, begin, end, fill, width)
        if not jax.tree_util.tree_leaves((candidates, start)):  # no hyperparameters, no warm start
            return jax.tree_util.tree_map(lambda a: jnp.asarray(a)[None], model.fit(X, y, weight, candidates, start))
        if sequential:
            return lax.map(lambda args: model.fit(X, y, weight, *args), (candidates, start))
        return jax.vmap(lambda one, from_: model.fit(X, y, weight, one, from_))(candidates, start)

    return one_window


def _cut(table: Any, layout: Layout, begin: Any, end: Any, fill: Any, width: int) -> Any:
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
    X, y, weight, age = layout.split(jnp.where(inside[:, None], cut, row_of(table, fill)))
    weight = jnp.where(inside, weight, 0)
    if age is not None:
        newest = row_of(table, end - 1)[-2:]
        high, low = jnp.where(inside[:, None], age - newest, 0).T
        weight = weight * jnp.exp2(high + low)
    return X, y, weight


def _make_kernel(one_window: Any, chunk: ChunkShape, result: Any) -> Any:
    """Return the function of a chunk: lanes side by side, steps in a loop."""

    def fit_windows(table: Any, bounds: Any, steps: Any, candidates: Any, initial: Any) -> Any:
        lanes_of = jax.vmap(one_window, in_axes=(None, 0, None, 0))
        grid = jax.tree_util.tree_leaves(result)[0].shape[0]
        start = jax.tree_util.tree_map(lambda a: jnp.broadcast_to(a, (chunk.lanes, grid, *a.shape)), initial)
        out = jax.tree_util.tree_map(lambda a: jnp.zeros((chunk.steps, chunk.lanes, *a.shape), a.dtype), result)

        def step(s: Any, state: Any) -> Any:
            out, start = state
            fitted = lanes_of(table, tuple(row_of(bounds, s)), candidates, start)
            out = jax.tree_util.tree_map(lambda whole, one: _put(whole, one, s), out, fitted)
            return out, None if initial is None else fitted[0]

        return lax.fori_loop(jnp.int32(0), steps, step, (out, start))[0]

    return fit_windows


def _put(whole: Any, one: Any, position: Any) -> Any:
    start = (position,) + (jnp.int32(0),) * one.ndim
    return lax.dynamic_update_slice(whole, one[None], start, allow_negative_indices=False)


def _check_model(model: Any, hyper: dict[str, np.ndarray], rows: Rows, call: _Call, max_memory: float) -> None:
    """Check the weight rule on the data at hand: once for each kernel of a model that is not our own."""
    first = {name: np.asarray(values[:1], call.dtype) for name, values in hyper.items()}
    n_rows = len(rows.X)
    length = max(min(n_rows, call.plan.width) // 2, 1)
    begin = (n_rows - length) // 2
    one = {name: np.repeat(values, call.plan.grid, axis=0) for name, values in first.items()}
    check_masked_rows(
        model,
        [
            call(np.array([begin]), np.array([begin + length]), one, np.array([fill]))[0]
            for fill in (begin, begin + length - 1)
        ],
    )
    if call.plan.counts_rows:
        few = Rows(*(None if a is None else a[:MIN_ROWS_TO_CHECK] for a in rows))
        whole = np.array([0]), np.array([MIN_ROWS_TO_CHECK])
        calls = [_bind(model, first, few, 1, None, MIN_ROWS_TO_CHECK + more, max_memory) for more in (1, 9)]
        check_padding(model, [each(*whole, first)[0] for each in calls])
