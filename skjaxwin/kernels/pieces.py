"""Run a function over the pieces of a signal: batches of pieces of one shape, one compile.

Pieces are copied out of the signal in NumPy, batch by batch. So a memory map is read in order and never held in full,
and no batch depends on where in the signal it lies.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels.linalg import lapack_can_block
from skjaxwin.kernels.shapes import aligned_empty, bucket
from skjaxwin.kernels.traced_range import is_traced
from skjaxwin.kernels.tracing import Traced, trace

__all__ = ["Cuts", "refuse_traced", "run_pieces"]

# As for windows: batches the size of a core's cache run fastest.
_BATCH_BYTES = 4 * 2**20
# Of all intermediate results, most of which the compiler never keeps.
_TRACED_BYTES = 64 * 2**20
_MAX_BATCH = 4096
_CALLED_WITH = "it gets one piece of each array and the mask of shape (width,), True for rows of the signal"


@dataclass(frozen=True)
class Cuts:
    """How a signal is cut.

    Attributes
    ----------
    starts, stops : ndarray of int of shape (n_pieces,)
        Half-open row bounds, without the halo.
    body : int
        Rows of the longest piece.
    halo : int
        Rows on either side that a piece gets to see.
    even : bool
        Whether each piece begins `body` rows after the one before.
    """

    starts: np.ndarray
    stops: np.ndarray
    body: int
    halo: int
    even: bool

    @property
    def width(self) -> int:
        """Rows that the function gets."""
        return self.body + 2 * self.halo

    @cached_property
    def rows(self) -> tuple[int, int]:
        """The rows [first, end) that all pieces cover together; adjacent pieces may come in either order."""
        return int(self.starts.min()), int(self.stops.max())


def refuse_traced(values: Any) -> None:
    """Raise if map_pieces is called on what only compiled code knows."""
    if is_traced(*jax.tree_util.tree_leaves(values)):
        raise TypeError(
            "map_pieces reads a signal in NumPy and compiles the function itself; it cannot be part of a compiled or "
            "transformed function, where arrays are traced. There, cut pieces with isolate or isolate_rows under "
            "jax.lax.map."
        )


def run_pieces(
    function: Callable[..., Any],
    key: Hashable,
    arrays: list[np.ndarray],
    cuts: Cuts,
    *,
    stitch: bool,
    batch_size: int | None,
    what: str,
) -> Any:
    """Call a function on each piece.

    Parameters
    ----------
    function : callable
        Of one piece of each array, of shape (width, ...), and a mask.
    key : hashable
        What the function is known by in the kernel cache.
    arrays : list of ndarray of shape (n_rows, ...)
        Numbers; memory maps are read piece by piece.
    cuts : Cuts
    stitch : bool
        Whether results have a row for each row of the piece, to be put together without the halo.
    batch_size : int or None
        Pieces in one call; None chooses by memory.
    what : str
        How to call the function in messages.

    Returns
    -------
    results : pytree of ndarray
        Leading axis pieces, or the rows from the first start to the last stop.
    """
    n_pieces = len(cuts.starts)
    dtype = np.dtype(np.float64 if any(array.dtype.itemsize >= 8 for array in arrays) else np.float32)
    signature = tuple((array.shape[1:], array.dtype.str) for array in arrays)
    traced, exclusive = compiling.cached(
        ("trace_pieces", key, signature, cuts.width, dtype.str),
        lambda: _look_at(function, arrays, cuts.width, dtype, what),
    )
    if stitch:
        _check_rows(traced.result, cuts.width, what)
    if batch_size is None:
        batch_size = min(_batch_size(arrays, traced, cuts.width), bucket(n_pieces, minimum=1))
    batch_size = min(batch_size, bucket(n_pieces, minimum=4))  # no room for pieces that are not there
    compiled = compiling.cached(
        ("map_pieces", key, signature, cuts.width, dtype.str, batch_size, exclusive),
        lambda: _make(function, cuts.width, exclusive),
    )

    def call(begin: int) -> Any:
        end = min(begin + batch_size, n_pieces)
        batch = [_copy(array, cuts, begin, end, batch_size) for array in arrays]
        first, last = _real_rows(cuts, len(arrays[0]), begin, end, batch_size)
        return compiling.run(compiled, batch, first, last, dtype=dtype, exclusive=exclusive)

    begins = range(0, n_pieces, batch_size)
    out: list[np.ndarray] = []
    structure = jax.tree_util.tree_structure(traced.result)
    for begin, result in zip(begins, _computed(call, begins, exclusive), strict=True):
        leaves = jax.tree_util.tree_leaves(result)
        n_out = cuts.rows[1] - cuts.rows[0] if stitch else n_pieces
        if not out:
            out = [np.empty((n_out, *leaf.shape[1 + stitch :]), leaf.dtype) for leaf in leaves]
        for whole, leaf in zip(out, leaves, strict=True):
            _store(whole, np.asarray(leaf), cuts, begin, min(begin + batch_size, n_pieces), stitch)
    return jax.tree_util.tree_unflatten(structure, out)


def _computed(call: Callable[[int], Any], begins: range, exclusive: bool) -> Iterator[Any]:
    """Yield the results of all batches, also while somebody's function is traced that a known signal is part of.

    What is traced is a matter of the thread, so another one computes then. Within ``jax.ensure_compile_time_eval``
    every constant that the function makes would be computed, and compiled, by itself.
    """
    if not is_traced(jax.device_put(0)):
        yield from compiling.run_many(call, begins, exclusive=exclusive)
        return
    with ThreadPoolExecutor(1) as elsewhere:
        for begin in begins:
            yield elsewhere.submit(call, begin).result()


def _look_at(
    function: Callable[..., Any], arrays: list[np.ndarray], width: int, dtype: np.dtype, what: str
) -> tuple[Traced, bool]:
    shapes = [jax.ShapeDtypeStruct((width, *array.shape[1:]), array.dtype.newbyteorder("=")) for array in arrays]
    mask = jax.ShapeDtypeStruct((width,), np.dtype(bool))
    traced = trace(function, *shapes, mask, dtype=dtype, what=what, called_with=_CALLED_WITH)
    if not jax.tree_util.tree_leaves(traced.result):
        raise ValueError(f"{what} returned no array; it must return an array, or a tuple or dict of arrays.")
    return traced, lapack_can_block(traced.primitives)


def _batch_size(arrays: list[np.ndarray], traced: Traced, width: int) -> int:
    """Return the power of two of pieces that keeps both what goes in and out, and temporary memory, small."""
    moved = sum(width * array[:1].nbytes for array in arrays)
    moved += sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in jax.tree_util.tree_leaves(traced.result))
    most = min(_BATCH_BYTES // max(moved, 1), _TRACED_BYTES // max(traced.bytes, 1), _MAX_BATCH)
    return 1 << (max(most, 1).bit_length() - 1)


def _check_rows(result: Any, width: int, what: str) -> None:
    for leaf in jax.tree_util.tree_leaves(result):
        if not leaf.shape or leaf.shape[0] != width:
            raise ValueError(
                f"{what} returned an array of shape {leaf.shape} for a piece of {width} rows (halo included); with "
                'output="stitch" it must return a row for each. Use output="stack" for other results.'
            )


def _make(function: Callable[..., Any], width: int, exclusive: bool) -> Any:
    def map_pieces(batch: Any, first: Any, last: Any) -> Any:
        def one(parts: Any) -> Any:
            arrays, low, high = parts
            rows = jnp.arange(width, dtype=jnp.int32)
            return function(*arrays, (rows >= low) & (rows < high))

        if exclusive:
            return jax.lax.map(one, (batch, first, last))
        return jax.vmap(lambda *parts: one(parts))(batch, first, last)

    return compiling.kernel(map_pieces, "map_pieces")


def _real_rows(cuts: Cuts, n_rows: int, begin: int, end: int, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows of each piece, halo included, are rows of the signal; none of what fills up the batch."""
    first, last = np.zeros(batch_size, np.int32), np.zeros(batch_size, np.int32)
    origin = cuts.starts[begin:end] - cuts.halo
    filled = cuts.stops[begin:end] > cuts.starts[begin:end]  # an empty piece has no halo, either
    first[: end - begin] = np.maximum(0, -origin)
    last[: end - begin] = np.where(filled, np.minimum(n_rows, cuts.stops[begin:end] + cuts.halo) - origin, 0)
    return first, last


def _copy(array: np.ndarray, cuts: Cuts, begin: int, end: int, batch_size: int) -> np.ndarray:
    """Copy a batch of pieces with their halos; what lies beyond the signal or the piece is zero."""
    n_rows, halo, width, body = len(array), cuts.halo, cuts.width, cuts.body
    origin, n_here = int(cuts.starts[begin]), end - begin
    inside = cuts.even and origin >= halo and origin + n_here * body + halo <= n_rows and n_here == batch_size
    if inside and not halo and array.flags.c_contiguous and array.dtype.isnative:
        return array[origin : origin + n_here * body].reshape(n_here, body, *array.shape[1:])
    batch = aligned_empty((batch_size, width, *array.shape[1:]), array.dtype.newbyteorder("="))
    if inside:
        run = array[origin - halo : origin + n_here * body + halo]
        batch[:] = np.moveaxis(np.lib.stride_tricks.sliding_window_view(run, width, axis=0)[::body], -1, 1)
        return batch
    batch[:] = 0
    for i in range(n_here):
        if cuts.starts[begin + i] == cuts.stops[begin + i]:
            continue  # an empty piece has no halo, either
        low, high = int(cuts.starts[begin + i]) - halo, int(cuts.stops[begin + i]) + halo
        real = array[max(low, 0) : min(high, n_rows)]
        batch[i, max(-low, 0) : max(-low, 0) + len(real)] = real
    return batch


def _store(whole: np.ndarray, leaf: np.ndarray, cuts: Cuts, begin: int, end: int, stitch: bool) -> None:
    """Put the results of a batch in their place."""
    if not stitch:
        whole[begin:end] = leaf[: end - begin]
        return
    halo, offset = cuts.halo, cuts.rows[0]
    if cuts.even:
        rows = leaf[: end - begin, halo : halo + cuts.body]
        low, high = int(cuts.starts[begin]) - offset, int(cuts.stops[end - 1]) - offset
        n_full = (high - low) // cuts.body
        target = whole[low : low + n_full * cuts.body]
        target.reshape(n_full, cuts.body, *whole.shape[1:])[:] = rows[:n_full]
        if low + n_full * cuts.body < high:
            whole[low + n_full * cuts.body : high] = rows[n_full][: high - low - n_full * cuts.body]
        return
    for i in range(end - begin):
        low, high = int(cuts.starts[begin + i]) - offset, int(cuts.stops[begin + i]) - offset
        whole[low:high] = leaf[i, halo : halo + high - low]
