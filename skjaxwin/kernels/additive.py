"""Additive models: every window at the price of a merge and a solve.

Groups of windows (`kernels.groups`) are the lanes of a kernel. Each lane merges rows
backwards and forwards from the rows that its windows share, keeps what it has after each row,
and then puts every window together from two or three of these statistics. A window's result
therefore depends on its own rows alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels.blocks import middles
from skjaxwin.kernels.groups import LONG, SHORT, Groups, make_groups
from skjaxwin.kernels.linalg import lapack_can_block, row_of
from skjaxwin.kernels.merging import ages_of, faded, join, row_statistics
from skjaxwin.kernels.scan import Layout, Rows, padded_table
from skjaxwin.kernels.shapes import bucket
from skjaxwin.kernels.tracing import Traced, trace

__all__ = ["fit_additive", "trace_statistics"]

# Statistics of all steps that fit into the caches ran fastest.
_CACHE_BYTES = 32 * 2**20
_MAX_LANES = 256
# Candidates at a time: a power of two, as is the size of a grid.
_SIDE_BY_SIDE = 16
# So many windows are traced to see whether a model keeps them apart.
_TRIAL = 3


@dataclass(frozen=True)
class _Shape:
    """The fixed sizes of the kernel that goes through groups."""

    lanes: int
    steps: int
    grid: int
    plain: bool  # all weights are one, and stay so
    rows: int  # of the table that one call is given


def fit_additive(
    model: Any,
    hyper: dict[str, np.ndarray],
    rows: Rows,
    starts: np.ndarray,
    stops: np.ndarray,
    *,
    capacity: int,
    max_memory: float,
    errors: bool = False,
) -> tuple[Any, Any, Any]:
    """Fit an additive model on every window for every hyperparameter.

    Parameters
    ----------
    model : WindowModel
        With ``statistics``, ``merge``, ``scale`` and ``solve``.
    hyper : dict of ndarray of shape (n_candidates, ...)
    rows : Rows
        The data in time order.
    starts, stops : ndarray of shape (n_windows,)
        Half-open row bounds, both ascending; every window has a row.
    capacity : int
        Rows are padded to this many.
    max_memory : float
        Bytes of temporary memory.
    errors : bool
        Whether to return what standard errors are made of, too.

    Returns
    -------
    params, info, errors : pytrees of ndarray
        Leading axes (n_windows, n_candidates); `errors` is None unless asked for.
    """
    dtype, layout = rows.X.dtype, Layout.of(rows)
    n_candidates = len(next(iter(hyper.values()))) if hyper else 1
    grid = 1 if n_candidates == 1 else bucket(n_candidates, minimum=4)
    # Two kernels for all windows there are: no other length and no step compiles anew.
    whole = int((stops - starts).max()) > SHORT
    if not whole:
        rows, starts, stops = _without_gaps(rows, starts, stops)
    groups = make_groups(starts, stops)
    steps = LONG if whole else SHORT
    shapes = tuple((name, np.shape(values)[1:]) for name, values in sorted(hyper.items()))
    key = (model.static_key(), shapes, layout, dtype.str, capacity)
    sizes = steps, grid, not layout.has_age and bool((rows.weight == 1).all())

    def make() -> tuple[Any, _Shape, bool, Any]:
        return _make(model.static_copy(), hyper, layout, dtype, sizes, capacity, max_memory, errors, whole)

    kernel, shape, exclusive, like = compiling.cached(("groups", *key, *sizes, errors, whole, max_memory), make)
    pick = np.minimum(np.arange(grid), n_candidates - 1)  # the last candidate fills the grid up
    candidates = {name: np.asarray(values, dtype)[pick] for name, values in hyper.items()}
    table = middle = None
    if whole:
        table = compiling.place(padded_table(rows, capacity), dtype)
        middle = middles(model, key, layout, table, groups, capacity, dtype, exclusive)
    return _run(kernel, shape, exclusive, like, table, rows, groups, starts, stops, middle, candidates, n_candidates)


def _without_gaps(rows: Rows, starts: np.ndarray, stops: np.ndarray) -> tuple[Rows, np.ndarray, np.ndarray]:
    """Leave out the rows between windows that lie far apart: a call takes rows that follow each other."""
    between = np.maximum(starts[1:] - stops[:-1], 0).sum()
    if 2 * between < len(rows.X):
        return rows, starts, stops
    bounds = np.bincount(starts, minlength=len(rows.X) + 1) - np.bincount(stops, minlength=len(rows.X) + 1)
    inside = np.cumsum(bounds)[:-1] > 0
    position = np.append(0, np.cumsum(inside))
    kept = Rows(*(None if part is None else part[inside] for part in rows))
    return kept, position[starts], position[stops]


def _run(
    compiled: Any,
    shape: _Shape,
    exclusive: bool,
    like: Any,
    table: Any,
    rows: Rows,
    groups: Groups,
    starts: np.ndarray,
    stops: np.ndarray,
    middles: Any,
    candidates: dict[str, np.ndarray],
    n_candidates: int,
) -> Any:
    """Go through all groups, some lanes at a time, and put the windows in order."""
    dtype, n_windows = rows.X.dtype, len(starts)
    leaves, structure = jax.tree_util.tree_flatten(like)
    result = [np.empty((n_windows, n_candidates, *leaf.shape[:-1]), leaf.dtype) for leaf in leaves]

    def one_call(span: tuple[int, int]) -> None:
        low, high = span
        lane = np.minimum(np.arange(low, low + shape.lanes), high - 1)
        window = groups.first[lane] + np.minimum(np.arange(SHORT)[:, None], groups.count[lane] - 1)
        bounds = {
            "start": groups.middle_start[lane],
            "stop": groups.middle_stop[lane],
            "back": groups.middle_start[lane] - starts[window],
            "front": stops[window] - groups.middle_stop[lane],
            "steps": np.array([groups.back[lane].max(), groups.front[lane].max(), groups.count[lane].max()]),
        }
        bounds["even"] = np.array(all((bounds[name] == bounds[name][:, :1]).all() for name in ("back", "front")))
        its_table = table
        if table is None:  # a part that stays in the cache
            first, last = starts[groups.first[low]], stops[window[-1, high - 1 - low]]
            its_table = padded_table(Rows(*(None if part is None else part[first:last] for part in rows)), shape.rows)
            bounds["start"], bounds["stop"] = bounds["start"] - first, bounds["stop"] - first
        bounds = {name: array if name == "even" else array.astype(np.int32) for name, array in bounds.items()}
        middle = jax.tree_util.tree_map(lambda a: a[..., lane], middles)
        out = compiling.run(compiled, its_table, bounds, middle, candidates, dtype=dtype, exclusive=exclusive)
        _collect(result, jax.tree_util.tree_leaves(out), groups, low, high, n_candidates)

    spans = _calls(groups, starts, stops, shape, table is not None)
    for _ in compiling.run_many(one_call, spans, exclusive=exclusive):
        pass
    return jax.tree_util.tree_unflatten(structure, result)


def _calls(groups: Groups, starts: np.ndarray, stops: np.ndarray, shape: _Shape, whole: bool) -> list[tuple[int, int]]:
    """Return which groups go into each call: as many as there are lanes, and rows in its table."""
    n_groups = len(groups.first)
    if whole:
        return [(low, min(low + shape.lanes, n_groups)) for low in range(0, n_groups, shape.lanes)]
    start, stop = starts[groups.first], stops[groups.first + groups.count - 1]
    after = np.searchsorted(stop, start + shape.rows, side="right")
    spans, low = [], 0
    while low < n_groups:
        spans.append((low, min(low + shape.lanes, int(after[low]))))
        low = spans[-1][1]
    return spans


def _collect(
    result: list[np.ndarray], leaves: list[np.ndarray], groups: Groups, low: int, high: int, n_candidates: int
) -> None:
    """Write the windows of one call where they belong."""
    first, counts = groups.first[low], groups.count[low:high]
    for whole, part in zip(result, leaves, strict=True):
        if (counts == counts[0]).all():
            n_lanes, count = high - low, counts[0]
            block = whole[first : first + n_lanes * count].reshape(n_lanes, count, *whole.shape[1:])
            block[...] = np.swapaxes(part[:count, :n_lanes, :n_candidates], 0, 1)
            continue
        for i, count in enumerate(counts):
            begin = groups.first[low + i]
            whole[begin : begin + count] = part[:count, i, :n_candidates]


def _make(
    model: Any,
    hyper: dict[str, np.ndarray],
    layout: Layout,
    dtype: np.dtype,
    sizes: tuple[int, int, bool],
    capacity: int,
    max_memory: float,
    errors: bool,
    whole: bool,
) -> tuple[Any, _Shape, bool, Any]:
    """Choose the lanes by memory and define the kernel."""
    steps, grid, plain = sizes
    traced, solve = trace_statistics(model, hyper, layout, dtype, errors)
    statistic_bytes, result_bytes = (_bytes(part) // _TRIAL for part in traced.result)
    lane_bytes = 2 * steps * statistic_bytes + SHORT * grid * result_bytes
    lanes = int(min(_CACHE_BYTES, max_memory / 4) // lane_bytes)
    lanes = min(max(1 << max(lanes.bit_length() - 1, 0), 16 if 16 * lane_bytes < max_memory else 1), _MAX_LANES)
    shape = _Shape(lanes, steps, grid, plain, capacity if whole else min(capacity, (lanes + 1) * SHORT))
    compiled = compiling.kernel(_make_kernel(model, layout, shape, solve, whole), "fit_groups", quick_compile=False)
    return compiled, shape, lapack_can_block(traced.primitives), traced.result[1]


def trace_statistics(
    model: Any, hyper: dict[str, np.ndarray], layout: Layout, dtype: np.dtype, errors: bool
) -> tuple[Traced, Any]:
    """Trace all that kernels of merged statistics call.

    Returns
    -------
    traced : Traced
        The result is statistics and what `solve` returns, of `_TRIAL` windows that lie along the last axis.
    solve : callable
        ``solve(statistics, one)`` gives parameters, how the fit went, and what standard errors are made of or None.
    """

    def solve(statistics: Any, one: Any) -> Any:
        params, info = model.solve(statistics, one)
        return params, info, model.error_parts(statistics, one) if errors else None

    def one_lane(table: Any, one: Any) -> Any:
        statistics = row_statistics(model, layout, table.T)[0]
        # All that the kernels call: what blocks in a merge would block there.
        statistics = model.merge(model.scale(statistics, table[:, 0]), model.append(statistics, statistics))
        return statistics, solve(statistics, one)

    row = jax.ShapeDtypeStruct((_TRIAL, layout.n_columns), dtype)
    one = {name: jax.ShapeDtypeStruct(np.shape(values)[1:], dtype) for name, values in hyper.items()}
    traced = trace(one_lane, row, one, dtype=dtype, what=model.described_solve())
    _check_axes(model, traced.result)
    return traced, solve


def _for_each(solve: Any, candidates: Any, grid: int) -> Any:
    """Solve for all candidates, some side by side: enough for the price of a call, not for all memory."""
    some = min(grid, _SIDE_BY_SIDE)
    batches = jax.tree_util.tree_map(lambda a: a.reshape(grid // some, some, *a.shape[1:]), candidates)
    found = lax.map(jax.vmap(solve), batches)
    return jax.tree_util.tree_map(lambda a: a.reshape(grid, *a.shape[2:]), found)


def _check_axes(model: Any, result: Any) -> None:
    """Refuse statistics or parameters that have lost the axis of the windows."""
    for leaf in jax.tree_util.tree_leaves(result):
        if not leaf.shape or leaf.shape[-1] != _TRIAL:
            raise ValueError(
                f"{model.described_solve()} returns an array of shape {leaf.shape} for {_TRIAL} windows; keep the last "
                "axis, which is that of the windows: sum over axis 0 and not over all axes."
            )


def _make_kernel(model: Any, layout: Layout, shape: _Shape, solve: Any, whole: bool) -> Any:
    """Return the function of one call: the groups of all lanes."""
    together = model.windows_at_once

    def fit_groups(table: Any, bounds: Any, middle: Any, candidates: Any) -> Any:
        n_back, n_front, n_windows = (bounds["steps"][i] for i in range(3))
        before, after = bounds["start"] - 1, bounds["stop"]
        pivot_age = ages_of(layout, table[jnp.maximum(before, 0)])
        backward = _grow(model, layout, table, before, -1, n_back, shape, pivot_age)
        forward = _grow(model, layout, table, after, 1, n_front, shape, None)
        newest_age = ages_of(layout, table[jnp.maximum(after - 1, 0)])

        def window(j: Any) -> Any:
            back, front = row_of(bounds["back"], j), row_of(bounds["front"], j)
            total, filled = _pick(backward, back, bounds["even"]), back > 0
            age = ages_of(layout, table[jnp.maximum(after + front - 1, 0)])
            total = faded(model, total, pivot_age, age)
            if whole:
                full = bounds["stop"] > bounds["start"]
                total = join(model, total, filled, faded(model, middle, newest_age, age), full)
                filled = filled | full
            return join(model, total, filled, _pick(forward, front, bounds["even"]), front > 0)

        def fitted(statistics: Any) -> Any:
            if shape.grid == 1:
                one = jax.tree_util.tree_map(lambda a: a[0], candidates)
                found = jax.tree_util.tree_map(lambda a: a[None], solve(statistics, one))
            else:
                found = _for_each(lambda one: solve(statistics, one), candidates, shape.grid)
            return jax.tree_util.tree_map(lambda a: jnp.moveaxis(a, -1, 0), found)

        def some(first: Any) -> Any:
            if together == 1:
                return jax.tree_util.tree_map(lambda a: a[None], fitted(window(first)))
            statistics = lax.map(window, first + jnp.arange(together, dtype=jnp.int32))
            beside = jax.tree_util.tree_map(lambda a: jnp.moveaxis(a, 0, -2).reshape(*a.shape[1:-1], -1), statistics)
            return jax.tree_util.tree_map(lambda a: a.reshape(together, -1, *a.shape[1:]), fitted(beside))

        like = jax.eval_shape(lambda: some(jnp.int32(0)))
        out = jax.tree_util.tree_map(lambda a: jnp.zeros((SHORT, *a.shape[1:]), a.dtype), like)

        def step(i: Any, out: Any) -> Any:
            return _store(out, some(i * together), i * together)

        return lax.fori_loop(jnp.int32(0), (n_windows + (together - 1)) // together, step, out)

    return fit_groups


def _grow(
    model: Any, layout: Layout, table: Any, first: Any, sign: int, n: Any, shape: _Shape, pivot_age: Any
) -> tuple[Any, list[Any], list[Any]]:
    """Merge row after row, and return the statistics after each: leading axis steps.

    Backwards, weights are relative to the newest row, which comes first; forwards, to the
    row just merged, so that they stay in range however short the half-life.

    Returns
    -------
    structure, fixed, series : treedef, list, list
        The leaves of the statistics that stay what they are for the first row, and the others
        after each row; None in place of those in the other list.
    """
    last_row = table.shape[0] - 1
    appends = shape.plain and model.has_append

    def add(statistics: Any, one: Any) -> Any:
        if appends:
            return model.append(statistics, one)
        return model.merge(statistics, one) if sign > 0 else model.merge(one, statistics)  # older rows come first

    def fetch(t: Any) -> Any:
        # Lanes that have no row left repeat one: nothing of what they get is picked.
        return table[jnp.clip(first + sign * t, 0, last_row)].T

    statistics, age = row_statistics(model, layout, fetch(jnp.int32(0)))
    leaves, structure = jax.tree_util.tree_flatten(statistics)
    kept = _unchanged(add, statistics) if appends else [False] * len(leaves)

    def moving(statistics: Any) -> list[Any]:
        leaves = jax.tree_util.tree_leaves(statistics)
        return [None if fixed else leaf for fixed, leaf in zip(kept, leaves, strict=True)]

    out = jax.tree_util.tree_map(lambda a: jnp.zeros((shape.steps, *a.shape), a.dtype), moving(statistics))
    out = _store(out, moving(statistics), jnp.int32(0))

    def step(t: Any, state: Any) -> Any:
        columns, moved, age, out = state
        statistics = jax.tree_util.tree_unflatten(
            structure, [a if b is None else b for a, b in zip(leaves, moved, strict=True)]
        )
        one, its_age = row_statistics(model, layout, columns)
        if sign > 0:
            statistics = faded(model, statistics, age, its_age)
        else:
            one = faded(model, one, its_age, pivot_age)
        moved = moving(add(statistics, one))
        # One row ahead: what a loop carries is stored, and not gathered again by each of its users.
        return fetch(t + 1), moved, its_age, _store(out, moved, t)

    state = fetch(jnp.int32(1)), moving(statistics), age, out
    series = lax.fori_loop(jnp.int32(1), n, step, state)[3]
    return structure, [leaf if fixed else None for fixed, leaf in zip(kept, leaves, strict=True)], series


def _unchanged(add: Any, statistics: Any) -> list[bool]:
    """Say which leaves of the statistics a further row leaves as they are."""
    jaxpr = jax.make_jaxpr(add)(statistics, statistics).jaxpr
    return [out is own for out, own in zip(jaxpr.outvars, jaxpr.invars, strict=False)]


def _pick(grown: Any, n: Any, even: Any) -> Any:
    """Return what each lane had after n rows (anything for n = 0); `even` says that n is the same in all lanes."""
    structure, fixed, series = grown
    index = jnp.maximum(n - 1, 0)

    def gather(series: Any) -> Any:
        def pick(array: Any) -> Any:
            shaped = index.reshape((1,) * (array.ndim - 1) + (-1,))
            return jnp.take_along_axis(array, shaped, axis=0, mode="promise_in_bounds")[0]

        return jax.tree_util.tree_map(pick, series)

    def cut(series: Any) -> Any:
        return jax.tree_util.tree_map(lambda array: row_of(array, index[0]), series)

    picked = lax.cond(even, cut, gather, series)
    whole = [a if b is None else b for a, b in zip(fixed, picked, strict=True)]
    return jax.tree_util.tree_unflatten(structure, whole)


def _store(series: Any, values: Any, position: Any) -> Any:
    """Write one entry of the first axis, or several."""

    def put(whole: Any, some: Any) -> Any:
        start = (position,) + (jnp.int32(0),) * (whole.ndim - 1)
        some = some.reshape(-1, *whole.shape[1:])
        return lax.dynamic_update_slice(whole, some, start, allow_negative_indices=False)

    return jax.tree_util.tree_map(put, series, values)


def _bytes(tree: Any) -> int:
    leaves = jax.tree_util.tree_leaves(tree)
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)
