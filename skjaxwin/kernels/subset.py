"""Cut a range out of arrays at a fixed size, also inside a function that JAX compiles.

There a range's bounds are traced and its length is unknown, so ``x[i:j]`` cannot be compiled. Here a window has the
fixed `size`; rows beyond the range are zero and a mask says which are real. The window is a ``dynamic_slice``, which
clamps a start too close to the end without a word: the clamping is done here, and undone by a second slice.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.bounds import comparable, coordinate_values, exact_bound

__all__ = ["Isolated", "isolate", "isolate_rows"]


class Isolated(tuple):
    """The windows and the mask, as a tuple; JAX sees it as a pytree.

    Attributes
    ----------
    count : int or scalar array
        How many rows lie in the range. If it is greater than the size, the windows hold only the first of them.
    first : int or scalar array
        Row number of the first of them.
    """

    count: Any
    first: Any

    def __new__(cls, parts: Any, count: Any, first: Any) -> Isolated:
        """Make the tuple."""
        made = super().__new__(cls, parts)
        made.count = count
        made.first = first
        return made

    def __getnewargs__(self) -> Any:
        """Say what a copy is made from."""
        return tuple(self), self.count, self.first


jax.tree_util.register_pytree_node(
    Isolated,
    lambda isolated: ((tuple(isolated), isolated.count, isolated.first), None),
    lambda _, children: Isolated(*children),
)


def isolate(x: Any, *arrays: Any, start: Any = None, stop: Any = None, size: int) -> Isolated:
    r"""Cut the rows with ``start <= x < stop`` out of sorted x and arrays beside it.

    Works inside ``jax.jit``, ``vmap`` and ``grad`` with traced bounds: one compile for all ranges.

    Parameters
    ----------
    x : array of shape (n,)
        Coordinates, ascending or descending, evenly spaced or not, with or without ties.
    *arrays : array of shape (n, ...)
        Cut like `x`.
    start, stop : scalar, default=None
        The range is half-open, ``[start, stop)``. None is no bound. May be traced.
    size : int
        Length of the windows; fixed when compiling.

    Returns
    -------
    isolated : tuple (x_window, \*array_windows, mask)
        Windows of shape (size, ...): the range's rows in their order, then zeros. `mask` of shape (size,) is
        True for the range's rows. The attributes ``count``, the number of rows in range, and ``first``, the row
        number of the first, come along.

    Raises
    ------
    ValueError
        If lengths differ or `size` is not positive. Outside of compiled code also if the range has more rows than
        `size`, if x is not sorted or has NaN, or if stop is below start.
    TypeError
        If `size` is traced, or bounds do not fit the dtype of `x`.

    See Also
    --------
    isolate_rows : By row number.
    map_pieces : A function on all pieces of a signal.

    Notes
    -----
    Compiled code cannot raise: look at ``count``, which says how many rows are in range even if `size` is too
    small for them. Nor does it look at all of `x` to see whether it is sorted; if it is not, rows may be missing,
    but the mask never marks one whose x is out of range.

    Bounds are rounded to the dtype of `x`, which under JAX's defaults is float32 in compiled code. A range
    without rows gives ``count`` 0 and a mask of False. For numbers of a range alone, as for a mean, divide by
    the mask's sum and not by `size`.

    Where x and the bounds are known and not traced, the rows are found by NumPy: exactly, whatever precision JAX has.
    Outside of compiled code x may then hold dates; arrays come back as JAX's if any argument was one.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, numpy as np
    >>> from skjaxwin import isolate
    >>> x = np.linspace(0, 10, 1001)
    >>> y = np.sin(x)
    >>> @jax.jit
    ... def mean_between(start, stop):
    ...     x_window, y_window, mask = isolate(x, y, start=start, stop=stop, size=300)
    ...     return jnp.sum(y_window, where=mask) / jnp.sum(mask)
    >>> bool(np.isclose(mean_between(2.0, 4.0), y[200:400].mean()))
    True
    >>> bool(np.isclose(mean_between(5.0, 7.5), y[500:750].mean()))  # not compiled again
    True
    >>> outside = isolate(x, y, start=2.0, stop=4.0, size=300)
    >>> outside.count, outside.first, len(outside)
    (200, 200, 3)
    """
    size = _checked_size(size)
    if _traced(x, start, stop):
        x, *others = (_as_jax(array) for array in (x, *arrays))
        _check_lengths(x, others)
        return _isolate_traced(x, others, start, stop, size)
    coordinates = np.asarray(x)
    _check_lengths(coordinates, [])
    coordinates = coordinate_values(coordinates, "coordinate (x)")
    low, high = _sorted_bounds(coordinates, *(_python_scalar(bound) for bound in (start, stop)))
    return _cut_known([x, *arrays], low, high, size, _any_jax(start, stop))


def isolate_rows(*arrays: Any, start: Any = None, stop: Any = None, size: int) -> Isolated:
    r"""Cut rows ``[start, stop)`` out of arrays, by row number.

    Works inside ``jax.jit``, ``vmap`` and ``grad`` with traced bounds, where ``x[start:stop]`` does not.

    Parameters
    ----------
    *arrays : array of shape (n, ...)
    start, stop : int, default=None
        As in ``x[start:stop]``: None is no bound, negative numbers count from the end, and numbers beyond the
        ends are cut off. May be traced.
    size : int
        Length of the windows; fixed when compiling.

    Returns
    -------
    isolated : tuple (\*array_windows, mask)
        As from `isolate`.

    Raises
    ------
    ValueError
        If there is no array, lengths differ or `size` is not positive; outside of compiled code also if the range
        has more rows than `size`.
    TypeError
        If `size` is traced or a bound is no integer.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import isolate_rows
    >>> window, mask = isolate_rows(np.arange(10.0), start=-3, size=4)
    >>> window.tolist(), mask.tolist()
    ([7.0, 8.0, 9.0, 0.0], [True, True, True, False])
    """
    size = _checked_size(size)
    if not arrays:
        raise ValueError("isolate_rows needs at least one array.")
    if _traced(start, stop):
        cut = [_as_jax(array) for array in arrays]
        _check_lengths(cut[0], cut[1:])
        low = _traced_row(start, 0, len(cut[0]), "start")
        high = _traced_row(stop, len(cut[0]), len(cut[0]), "stop")
        count = jnp.maximum(high - low, 0)
        return _cut(cut, low, count, jnp.arange(size) < count)
    low, high, _ = slice(_row(start, "start"), _row(stop, "stop")).indices(_check_lengths(arrays[0], arrays[1:]))
    return _cut_known(list(arrays), low, max(low, high), size, _any_jax(start, stop))


def _isolate_traced(x: jax.Array, others: list[jax.Array], start: Any, stop: Any, size: int) -> Isolated:
    if x.ndim != 1:
        raise ValueError(f"x must be 1-dimensional, got shape {x.shape}.")
    if not jnp.issubdtype(x.dtype, jnp.integer) and not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"x has dtype {x.dtype}; in compiled code it must hold numbers.")
    start, stop = _traced_bound(start, x, "start"), _traced_bound(stop, x, "stop")
    descending = x[0] > x[-1]
    before_start = _count_before(x, -math.inf if start is None else start, descending)
    before_stop = _count_before(x, math.inf if stop is None else stop, descending)
    low = jnp.where(descending, before_stop, before_start)
    count = jnp.maximum(jnp.where(descending, before_start, before_stop) - low, 0)
    for bound in (start, stop):
        if isinstance(bound, jax.Array):
            count = jnp.where(bound == bound, count, 0)  # NaN bounds nothing
    mask = jnp.arange(size) < count
    (window,) = _cut([x], low, count, mask)[:1]
    if start is not None:
        mask &= _at_least(window, start)
    if stop is not None:
        mask &= ~_at_least(window, stop) & (window == window)
    return _cut([x, *others], low, count, mask)


def _cut(arrays: list[jax.Array], low: Any, count: Any, mask: Any) -> Isolated:
    """Move rows from `low` on to the front of windows as long as the mask, zero where it is False."""
    n, size = len(arrays[0]), len(mask)
    width = min(size, n)
    begin = jnp.clip(low, 0, n - width)
    windows = []
    for array in arrays:
        piece = lax.dynamic_slice_in_dim(array, begin, width)
        room = jnp.concatenate([piece, jnp.zeros((size, *array.shape[1:]), array.dtype)])
        window = lax.dynamic_slice_in_dim(room, low - begin, size)
        shaped = mask.reshape(size, *[1] * (array.ndim - 1))
        windows.append(jnp.where(shaped, window, jnp.zeros((), array.dtype)))
    return Isolated([*windows, mask], count, low)


def _count_before(x: jax.Array, bound: Any, descending: Any) -> Any:
    """Count the leading rows below a bound (of ascending x) or not below it (of descending x), by bisection."""
    n = len(x)
    if isinstance(bound, float) and math.isinf(bound):  # also for integers, which know no infinity
        return jnp.where(descending == (bound < 0), n, 0)

    def halve(_: Any, span: Any) -> Any:
        low, high = span
        middle = (low + high) // 2
        # Beyond the end the index is clamped; by then low == high, and nothing moves any more.
        ahead = jnp.where(descending, x[middle] >= bound, x[middle] < bound) & (low < high)
        return jnp.where(ahead, middle + 1, low), jnp.where(ahead, high, middle)

    dtype = jnp.int32 if n < 2**30 else jnp.int64
    return lax.fori_loop(0, n.bit_length(), halve, (jnp.zeros((), dtype), jnp.full((), n, dtype)))[0]


def _at_least(x: Any, bound: Any) -> Any:
    if isinstance(bound, float) and math.isinf(bound):
        return jnp.full(x.shape, bound < 0)
    return x >= bound


def _traced_bound(bound: Any, x: jax.Array, name: str) -> Any:
    """Return a bound in the dtype of x; infinities of integers stay Python's."""
    if bound is None:
        return None
    if not isinstance(bound, jax.Array):
        return _finite_scalar(exact_bound(_python_scalar(bound), x.dtype, name))
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


def _finite_scalar(bound: Any) -> Any:
    """Turn NumPy's infinities into Python's; other scalars keep their dtype."""
    return float(bound) if isinstance(bound, (float, np.floating)) and np.isinf(bound) else bound


def _sorted_bounds(x: np.ndarray, start: Any, stop: Any) -> tuple[int, int]:
    """Return the rows [low, high) of sorted x that lie in [start, stop)."""
    values = comparable(x)
    descending = bool(values[0] > values[-1])
    ascending = values[::-1] if descending else values
    if not (ascending[1:] >= ascending[:-1]).all():
        raise ValueError(
            "x is not sorted; sort x and the arrays by it, or use SubsetTransformer, which takes any order."
        )
    low = 0 if start is None else _search(ascending, exact_bound(start, x.dtype, "start"))
    high = len(x) if stop is None else _search(ascending, exact_bound(stop, x.dtype, "stop"))
    if high < low:
        raise ValueError(f"stop={stop!r} is below start={start!r}.")
    return (len(x) - high, len(x) - low) if descending else (low, high)


def _search(ascending: np.ndarray, bound: Any) -> int:
    if isinstance(bound, (float, np.floating)) and np.isinf(bound):
        return 0 if bound < 0 else len(ascending)
    # Of the same dtype: unsigned integers and Python's would meet as floats.
    return int(np.searchsorted(ascending, ascending.dtype.type(bound)))


def _cut_known(arrays: list[Any], low: int, high: int, size: int, as_jax: bool) -> Isolated:
    """Cut rows whose numbers are known, in NumPy where arrays are known, too."""
    count = high - low
    _check_lengths(arrays[0], arrays[1:])
    if count > size:
        raise ValueError(f"The range holds {count} rows, but size={size}; set size to at least {count}.")
    mask = np.arange(size) < count
    if _traced(*arrays):
        return _cut([_as_jax(array) for array in arrays], low, count, jnp.asarray(mask))
    windows = []
    for array in map(np.asarray, arrays):
        window = np.zeros((size, *array.shape[1:]), array.dtype)
        window[:count] = array[low:high]
        windows.append(window)
    windows.append(mask)
    as_jax = as_jax or _any_jax(*arrays)
    return Isolated([jnp.asarray(window) for window in windows] if as_jax else windows, count, low)


def _checked_size(size: Any) -> int:
    try:
        size = operator.index(size)
    except (TypeError, jax.errors.JAXTypeError):
        raise TypeError(
            f"size must be an integer that is known when compiling, got {size!r}; pass it from outside the compiled "
            "function, or name it in static_argnames."
        ) from None
    if size < 1:
        raise ValueError(f"size={size} must be at least 1.")
    return size


def _check_lengths(x: Any, others: Any) -> int:
    """Return the number of rows that all arrays have."""
    lengths = [np.shape(array)[0] if np.ndim(array) else None for array in (x, *others)]
    if None in lengths or len(set(lengths)) > 1:
        raise ValueError(f"x and the arrays must have the same number of rows, got {lengths}.")
    if lengths[0] == 0:
        raise ValueError("x has no rows; there is nothing to isolate.")
    return int(lengths[0] or 0)


def _traced_row(bound: Any, default: int, n: int, name: str) -> Any:
    """Return a row number between 0 and n, as a slice would take it."""
    if bound is None:
        return jnp.asarray(default)
    if not isinstance(bound, jax.Array):
        bound = _row(bound, name)
        return jnp.asarray(slice(bound, None).indices(n)[0])
    if bound.ndim != 0 or not jnp.issubdtype(bound.dtype, jnp.integer):
        raise TypeError(f"{name} must be an integer, got {bound.dtype} of shape {bound.shape}.")
    if bound.dtype.itemsize < 4:
        bound = bound.astype(np.int32)  # n may be beyond a small type
    return jnp.clip(jnp.where(bound < 0, bound + n, bound), 0, n)


def _row(bound: Any, name: str) -> int | None:
    try:
        return None if bound is None else operator.index(bound)
    except TypeError:
        raise TypeError(
            f"{name}={bound!r} is no row number; give an integer, or use isolate to cut by value."
        ) from None


def _traced(*values: Any) -> bool:
    return any(isinstance(value, jax.core.Tracer) for value in values)


def _any_jax(*values: Any) -> bool:
    return any(isinstance(value, jax.Array) for value in values)


def _as_jax(array: Any) -> jax.Array:
    if isinstance(array, jax.Array):
        return array
    array = np.asarray(array)
    if array.dtype.kind in "mM":
        raise TypeError(f"Compiled code takes no {array.dtype}; pass numbers, such as array.astype('int64').")
    # A view, because JAX remembers an array's dtype by its identity, whatever the 64-bit mode.
    placed = jnp.asarray(array.view())
    if array.dtype.kind in "iu" and placed.dtype != array.dtype and array.size:
        limits = np.iinfo(placed.dtype)
        if array.min() < limits.min or array.max() > limits.max:
            raise ValueError(
                f"An array holds integers beyond {placed.dtype}, the widest that JAX takes without 64-bit types; "
                "enable those (jax.enable_x64), or subtract an offset."
            )
    return placed


def _python_scalar(bound: Any) -> Any:
    """Return a bound that is a JAX or NumPy array without dimensions as a scalar."""
    if isinstance(bound, (jax.Array, np.ndarray)):
        if bound.ndim:
            raise ValueError(f"A bound must be a scalar, got shape {bound.shape}.")
        return np.asarray(bound)[()]
    return bound
