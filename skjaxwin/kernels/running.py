"""Expanding windows of additive models, continued: statistics of all rows so far, and one merge for each new row."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels.additive import trace_statistics
from skjaxwin.kernels.linalg import lapack_can_block, row_of
from skjaxwin.kernels.merging import faded, join, row_statistics
from skjaxwin.kernels.scan import Layout, Rows, padded_table

__all__ = ["Running"]

# Rows, and windows, of one call at most.
_AT_ONCE = 64
# Rows are merged in blocks of so many, and blocks with each other: errors add up over far fewer merges.
_BLOCK = 256


class Running:
    """Statistics of the first rows of a table that grows.

    Attributes
    ----------
    n_rows : int
        How many rows they are of.
    state : dict or None
        The statistics of whole blocks, of the rows after these, and how many those are.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self.state: Any = None

    def fit(
        self, model: Any, hyper: dict[str, np.ndarray], rows: Rows, stops: np.ndarray, *, errors: bool
    ) -> tuple[Any, Any, Any]:
        """Go on to the end of the rows, and fit the windows from the first row to each of `stops`.

        Parameters
        ----------
        model : WindowModel
            With ``statistics``, ``merge``, ``scale`` and ``solve``.
        hyper : dict of ndarray of shape (1, ...)
        rows : Rows
            All rows in time order.
        stops : ndarray of shape (n_windows,)
            Ascending, none before `n_rows`.
        errors : bool
            Whether to return what standard errors are made of, too.

        Returns
        -------
        params, info, errors : pytrees of ndarray
            Leading axes (n_windows, 1); `errors` is None unless asked for.
        """
        dtype, layout = rows.X.dtype, Layout.of(rows)
        one = {name: np.asarray(values[0], dtype) for name, values in hyper.items()}
        shapes = tuple((name, value.shape) for name, value in sorted(one.items()))
        compiled, exclusive, empty = compiling.cached(
            ("running", model.static_key(), shapes, layout, dtype.str, errors),
            lambda: _make(model.static_copy(), hyper, layout, dtype, errors),
        )
        state = empty if self.state is None else self.state
        n_rows, done, parts = self.n_rows, 0, []
        while n_rows < len(rows.X) or done < len(stops):
            until = min(n_rows + _AT_ONCE, len(rows.X))
            last = min(int(np.searchsorted(stops, until, side="right")), done + _AT_ONCE)
            if last - done == _AT_ONCE:
                until = int(stops[last - 1])
            table = padded_table(Rows(*(None if a is None else a[n_rows:until] for a in rows)), _AT_ONCE)
            at = np.zeros(_AT_ONCE, np.int32)
            at[: last - done] = stops[done:last] - n_rows
            counts = np.array([until - n_rows, last - done], np.int32)
            state, found = compiling.run(compiled, table, counts, at, state, one, dtype=dtype, exclusive=exclusive)
            if last > done:
                parts.append(jax.tree_util.tree_map(lambda a, n=last - done: np.asarray(a)[:n, None], found))
            n_rows, done = until, last
        self.n_rows, self.state = n_rows, state
        return jax.tree_util.tree_map(lambda *some: np.concatenate(some), *parts)


def _make(model: Any, hyper: dict[str, np.ndarray], layout: Layout, dtype: np.dtype, errors: bool) -> Any:
    """Define the kernel, and the state that stands for no rows."""
    traced, solve = trace_statistics(model, hyper, layout, dtype, errors)
    nothing, result = jax.tree_util.tree_map(lambda a: np.zeros((*a.shape[:-1], 1), a.dtype), traced.result)
    empty = {"blocks": nothing, "rest": nothing, "n_blocks": np.int32(0), "n_rest": np.int32(0)}
    if layout.has_age:
        empty["age"] = np.zeros((1, 2), dtype)
    return (
        compiling.kernel(_make_kernel(model, layout, solve, result), "fit_running"),
        lapack_can_block(traced.primitives),
        empty,
    )


def _make_kernel(model: Any, layout: Layout, solve: Any, like: Any) -> Any:
    """Return the function that merges rows one after the other, and then solves for windows one after the other."""

    def total(state: Any) -> Any:
        return join(model, state["blocks"], state["n_blocks"] > 0, state["rest"], state["n_rest"] > 0)

    def add(state: Any, columns: Any) -> Any:
        one, age = row_statistics(model, layout, columns)
        blocks, rest = (faded(model, state[name], state.get("age"), age) for name in ("blocks", "rest"))
        full = state["n_rest"] == _BLOCK
        joined = join(model, blocks, state["n_blocks"] > 0, rest, full)
        blocks = jax.tree_util.tree_map(lambda a, b: jnp.where(full, a, b), joined, blocks)
        rest = join(model, rest, (state["n_rest"] > 0) & ~full, one, jnp.ones((), bool))
        n_blocks, n_rest = state["n_blocks"] + full, jnp.where(full, 0, state["n_rest"]) + 1
        after = {"blocks": blocks, "rest": rest, "n_blocks": n_blocks, "n_rest": n_rest}
        return after if age is None else after | {"age": age}

    def fit_running(table: Any, counts: Any, at: Any, state: Any, one: Any) -> Any:
        def put(whole: Any, values: Any, position: Any) -> Any:
            return jax.tree_util.tree_map(
                lambda a, b: lax.dynamic_update_index_in_dim(a, b.astype(a.dtype), position, 0), whole, values
            )

        def step(t: Any, carry: Any) -> Any:
            state, series = carry
            state = add(state, row_of(table, t)[:, None])
            return state, put(series, total(state), t + 1)

        before = total(state)
        series = jax.tree_util.tree_map(lambda a: jnp.zeros((_AT_ONCE + 1, *a.shape), a.dtype), before)
        state, series = lax.fori_loop(jnp.int32(0), counts[0], step, (state, put(series, before, jnp.int32(0))))

        def window(i: Any, out: Any) -> Any:
            own = jax.tree_util.tree_map(lambda a: row_of(a, at[i]), series)
            return put(out, jax.tree_util.tree_map(lambda a: a[..., 0], solve(own, one)), i)

        out = jax.tree_util.tree_map(lambda a: jnp.zeros((_AT_ONCE, *a.shape[:-1]), a.dtype), like)
        return state, lax.fori_loop(jnp.int32(0), counts[1], window, out)

    return fit_running
