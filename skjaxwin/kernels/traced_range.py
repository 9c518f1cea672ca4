"""Find the rows of a range, and move them to the front, where bounds or coordinates are traced.

Compiled code cannot look at every coordinate for each range, so rows are found by bisection. It cannot raise either:
what a window holds is compared with the bounds once more, so that the mask never marks a row out of range, and the
count is that of the marked rows unless there are more than fit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.bounds import exact_bound, exact_range

__all__ = ["cut_rows", "find_range", "is_traced", "row_type", "traced_row"]


def is_traced(*values: Any) -> bool:
    """Say whether one of some values is known to compiled code alone."""
    return any(isinstance(value, jax.core.Tracer) for value in values)


def find_range(x: jax.Array, start: Any, stop: Any, size: int) -> tuple[Any, Any, jax.Array]:
    """Find the rows of a range.

    Parameters
    ----------
    x : jax.Array of shape (n,)
        Sorted; where it ends or begins with NaN, these rows belong to no range.
    start, stop : scalar or None
    size : int
        Length of the window.

    Returns
    -------
    first : int scalar array
        Number of the first row in range.
    count : int scalar array
        How many there are.
    mask : jax.Array of bool of shape (size,)
        Which rows of the window are in range.
    """
    if x.ndim != 1:
        raise ValueError(f"x must be 1-dimensional, got shape {x.shape}.")
    if not jnp.issubdtype(x.dtype, jnp.integer) and not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"x has dtype {x.dtype}; in compiled code it must hold numbers.")
    if not is_traced(start, stop):
        exact_range(start, stop, x.dtype)  # to refuse a stop below the start
    start, stop = _bound(start, x, "start"), _bound(stop, x, "stop")
    begin, end = _rows_with_numbers(x)
    descending = x[begin] > x[end - 1]

    def row_of(bound: Any, without: int) -> Any:
        """Return the row at which values reach a bound, or fall below it; without one the first or last row."""
        if bound is None:
            return jnp.where(descending, (end, begin)[without], (begin, end)[without])
        if _beyond_integers(bound):
            return jnp.where(descending == (bound < 0), end, begin)
        return _leading(lambda value: jnp.where(descending, value >= bound, value < bound), x, begin, end)

    at_start, at_stop = row_of(start, 0), row_of(stop, 1)
    first = jnp.where(descending, at_stop, at_start)
    count = jnp.maximum(jnp.where(descending, at_start, at_stop) - first, 0)
    for bound in (start, stop):
        if is_traced(bound):
            count = jnp.where(bound == bound, count, 0)  # NaN bounds nothing
    mask = jnp.arange(size) < count
    (window,) = cut_rows([x], first, mask)
    if jnp.issubdtype(x.dtype, jnp.floating):
        mask &= window == window
    if start is not None and not _beyond_integers(start):
        mask &= window >= start
    if stop is not None and not _beyond_integers(stop):
        mask &= window < stop
    return first, jnp.where(count <= size, jnp.sum(mask, dtype=count.dtype), count), mask


def cut_rows(arrays: list[jax.Array], first: Any, mask: Any) -> list[jax.Array]:
    """Move rows from `first` on to the front of windows as long as the mask, zero where it is False.

    A ``dynamic_slice`` clamps a start too close to the end without a word: the clamping is done here, and undone by a
    second slice.
    """
    n, size = len(arrays[0]), len(mask)
    width = min(size, n)
    begin = jnp.clip(first, 0, n - width)
    windows = []
    for array in arrays:
        piece = lax.dynamic_slice_in_dim(array, begin, width)
        room = jnp.concatenate([piece, jnp.zeros((size, *array.shape[1:]), array.dtype)])
        window = lax.dynamic_slice_in_dim(room, first - begin, size)
        shaped = mask.reshape(size, *[1] * (array.ndim - 1))
        windows.append(jnp.where(shaped, window, jnp.zeros((), array.dtype)))
    return windows


def traced_row(bound: jax.Array, n: int, name: str) -> jax.Array:
    """Return a row number between 0 and `n`, as a slice would take it, in the type of row numbers."""
    if bound.ndim != 0 or not jnp.issubdtype(bound.dtype, jnp.integer):
        raise TypeError(f"{name} must be an integer, got {bound.dtype} of shape {bound.shape}.")
    if bound.dtype.itemsize < 4:
        bound = bound.astype(np.int32)  # n may be beyond a small type
    limits = np.iinfo(bound.dtype)
    row = jnp.clip(bound, max(-n - 1, limits.min), min(n, limits.max)).astype(row_type(n))
    return jnp.maximum(jnp.where(row < 0, row + n, row), 0)


def row_type(n: int) -> Any:
    """Return the integers that number `n` rows."""
    return jnp.int32 if n < 2**31 - 1 else jnp.int64


def _rows_with_numbers(x: jax.Array) -> tuple[Any, Any]:
    """Return the rows [begin, end) that remain without the NaN at either end of x."""
    dtype = row_type(len(x))
    zero, n = jnp.zeros((), dtype), jnp.full((), len(x), dtype)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        return zero, n
    begin = lax.cond(x[0] == x[0], lambda: zero, lambda: _leading(lambda value: value != value, x, zero, n))
    end = lax.cond(x[-1] == x[-1], lambda: n, lambda: _leading(lambda value: value == value, x, begin, n))
    return begin, end


def _leading(holds: Callable[[Any], Any], x: jax.Array, begin: Any, end: Any) -> Any:
    """Return the first row in [begin, end) for which a condition no longer holds, by bisection."""

    def halve(_: Any, span: Any) -> Any:
        low, high = span
        middle = low + ((high - low) >> 1)
        # Beyond the end the index is clamped; by then low == high, and nothing moves any more.
        ahead = holds(x[middle]) & (low < high)
        return jnp.where(ahead, middle + 1, low), jnp.where(ahead, high, middle)

    return lax.fori_loop(0, len(x).bit_length(), halve, (begin, end))[0]


def _bound(bound: Any, x: jax.Array, name: str) -> Any:
    """Return a bound that compares exactly with x; infinities of integers stay Python's."""
    if bound is None:
        return None
    if not is_traced(bound):
        return exact_bound(bound, x.dtype, name)
    if bound.ndim != 0:
        raise ValueError(f"{name} must be a scalar, got shape {bound.shape}; for many ranges use jax.vmap.")
    if jnp.issubdtype(x.dtype, jnp.floating):
        return bound.astype(x.dtype)
    if not jnp.issubdtype(bound.dtype, jnp.integer):
        raise TypeError(
            f"x holds integers ({x.dtype}), but the traced {name} is {bound.dtype}; round it up first: "
            f"jnp.ceil({name}).astype(x.dtype)."
        )
    return _comparable(bound, x.dtype)


def _beyond_integers(bound: Any) -> bool:
    """Say whether a bound is an infinity that the integers of x do not know; those of floats are of its dtype."""
    return type(bound) is float and math.isinf(bound)


def _comparable(bound: jax.Array, dtype: Any) -> jax.Array:
    """Return an integer bound in a type in which comparing it with `dtype` neither wraps nor rounds."""
    if bound.dtype.itemsize < 4:
        bound = bound.astype(np.int32)
    if np.dtype(dtype).itemsize < 4:
        return bound if bound.dtype.kind == "u" else bound.astype(bound.dtype)  # no longer a weak type
    own, other = np.iinfo(dtype), np.iinfo(bound.dtype)
    if bound.dtype.kind != np.dtype(dtype).kind or other.bits > own.bits:
        bound = jnp.clip(bound, max(own.min, other.min), min(own.max, other.max)).astype(dtype)
    return bound
