"""Cut a range out of arrays at a fixed size, also inside a function that JAX compiles.

There a range's bounds are traced and its length is unknown, so ``x[i:j]`` cannot be compiled. Here a window has the
fixed `size`; rows beyond the range are zero and a mask says which are real. What is known when tracing is checked and
cut by NumPy; `traced_range` does the rest.
"""

from __future__ import annotations

import operator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from skjaxwin.bounds import comparable, coordinate_values, exact_range, refuse_masked
from skjaxwin.kernels.traced_range import cut_rows, find_range, is_traced, row_type, traced_row

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
        If lengths differ, `size` is not positive or an array has masked entries. Where x is known and not traced,
        also if it is not sorted, has NaN, or (in compiled code) has numbers that JAX's precision cannot tell apart;
        where bounds are known, if stop is below start; where both are, if the range has more rows than `size`.
    TypeError
        If `size` is traced, or bounds do not fit the dtype of `x`.

    See Also
    --------
    isolate_rows : By row number.
    map_pieces : A function on all pieces of a signal.

    Notes
    -----
    Compiled code cannot raise: look at ``count``, which says how many rows are in range even if `size` is too
    small for them. Nor does it look at all of a traced `x` to see whether it is sorted; if it is not, rows may be
    missing, but the mask never marks one whose x is out of range. NaN at the end of x (where sorting puts them) or
    at its beginning are in no range.

    Bounds are rounded to the dtype of `x`. Under JAX's defaults that is float32 in compiled code: a float64 x that is
    handed to a jitted function has been rounded, and neighbours made equal, before `isolate` sees it. A range
    without rows gives ``count`` 0 and a mask of False. Compiled code may take numbers closer to zero than the smallest
    normal one (1.2e-38 in float32) for zero. For numbers of a range alone, as for a mean, divide by
    the mask's sum and not by `size`.

    Where x and the bounds are known and not traced, the rows are found by NumPy: exactly, whatever precision JAX has.
    x may then hold dates, and each window is of the kind and dtype of the array that it was cut from: NumPy's from
    NumPy's. All of x is looked at in each such call; for many ranges of a long signal compile the function.

    A call of a compiled function costs some tens of microseconds, nearly all of them JAX's own; many ranges cost a
    fraction of that each in one call, under ``jax.lax.map``. Where other processes keep the CPU busy, separate calls
    wait less with ``jax.config.update("jax_cpu_enable_async_dispatch", False)``.

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
    _refuse_all_masked((x, *arrays))
    if is_traced(x, start, stop):
        others = [_as_jax(array, "An array") for array in arrays]
        with np.errstate(over="ignore"):  # looked at below
            placed = _as_jax(x, "x")
        _check_lengths([placed, *others])
        if not is_traced(x):
            _check_known(np.asarray(x), placed.dtype)
        first, count, mask = find_range(placed, start, stop, size)
        return Isolated([*cut_rows([placed, *others], first, mask), mask], count, first)
    coordinates = np.asarray(x)
    _check_lengths([coordinates])
    coordinates = coordinate_values(coordinates, "coordinate (x)")
    low, high = _sorted_bounds(coordinates, start, stop)
    return _cut_known([x, *arrays], low, high, size)


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
    _refuse_all_masked(arrays)
    n = _check_lengths(arrays)
    if is_traced(start, stop):
        first, end = (
            traced_row(bound, n, name) if is_traced(bound) else jnp.asarray(_row(bound, name, last, n), row_type(n))
            for bound, name, last in ((start, "start", 0), (stop, "stop", n))
        )
        count = jnp.maximum(end - first, 0)
        mask = jnp.arange(size) < count
        return Isolated([*cut_rows([_as_jax(array, "An array") for array in arrays], first, mask), mask], count, first)
    low, high = _row(start, "start", 0, n), _row(stop, "stop", n, n)
    return _cut_known(list(arrays), low, max(low, high), size)


def _sorted_bounds(x: np.ndarray, start: Any, stop: Any) -> tuple[int, int]:
    """Return the rows [low, high) of sorted x that lie in [start, stop)."""
    values = comparable(x)
    descending = bool(values[0] > values[-1])
    ascending = values[::-1] if descending else values
    _check_sorted(ascending)
    start_bound, stop_bound = exact_range(start, stop, x.dtype)
    low = 0 if start is None else _search(ascending, start_bound)
    high = len(x) if stop is None else _search(ascending, stop_bound)
    high = max(low, high)  # floats that are rounded to one another
    return (len(x) - high, len(x) - low) if descending else (low, high)


def _check_sorted(ascending: np.ndarray) -> None:
    if not (ascending[1:] >= ascending[:-1]).all():
        raise ValueError(
            "x is not sorted; sort x and the arrays by it, or use SubsetTransformer, which takes any order."
        )


def _check_known(x: np.ndarray, dtype: np.dtype) -> None:
    """Raise for what compiled code would get wrong without a word, as far as x is known."""
    x = comparable(coordinate_values(x, "coordinate (x)"))
    _check_sorted(x[::-1] if x[0] > x[-1] else x)
    with np.errstate(over="ignore"):
        placed = comparable(x.astype(dtype))
    if ((placed[1:] == placed[:-1]) & (x[1:] != x[:-1])).any() or not np.isfinite(placed).all():
        raise ValueError(
            f"x holds {x.dtype} numbers that {dtype} cannot tell apart or cannot hold; enable 64-bit types "
            "(jax.enable_x64), or subtract an offset from x and the bounds."
        )


def _search(ascending: np.ndarray, bound: Any) -> int:
    if isinstance(bound, (float, np.floating)) and np.isinf(bound):
        return 0 if bound < 0 else len(ascending)
    # Of the same dtype: unsigned integers and Python's would meet as floats.
    return int(np.searchsorted(ascending, ascending.dtype.type(bound)))


def _cut_known(arrays: list[Any], low: int, high: int, size: int) -> Isolated:
    """Cut rows whose numbers are known, out of each array as it is: NumPy's in NumPy, in any dtype."""
    count = high - low
    _check_lengths(arrays)
    if count > size:
        raise ValueError(f"The range holds {count} rows, but size={size}; set size to at least {count}.")
    mask = np.arange(size) < count
    windows: list[Any] = []
    for array in arrays:
        if is_traced(array):
            windows += cut_rows([array], low, jnp.asarray(mask))
            continue
        known = np.asarray(array)
        window = np.zeros((size, *known.shape[1:]), known.dtype)
        window[:count] = known[low:high]
        with jax.enable_x64(True):  # so that a 64-bit array stays one
            windows.append(jnp.asarray(window) if isinstance(array, jax.Array) else window)
    any_jax = any(isinstance(array, jax.Array) for array in arrays)
    return Isolated([*windows, jnp.asarray(mask) if any_jax else mask], count, low)


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


def _refuse_all_masked(arrays: Any) -> None:
    for array in arrays:
        refuse_masked(array, "An array given to isolate")


def _check_lengths(arrays: Any) -> int:
    """Return the number of rows that all arrays have."""
    lengths = [np.shape(array)[0] if np.ndim(array) else None for array in arrays]
    if None in lengths or len(set(lengths)) > 1:
        raise ValueError(f"x and the arrays must have the same number of rows, got {lengths}.")
    if lengths[0] == 0:
        raise ValueError("x has no rows; there is nothing to isolate.")
    return int(lengths[0] or 0)


def _row(bound: Any, name: str, default: int, n: int) -> int:
    """Return a row number between 0 and `n`, as a slice would take it."""
    if bound is None:
        return default
    try:
        return slice(operator.index(bound), None).indices(n)[0]
    except TypeError:
        raise TypeError(
            f"{name}={bound!r} is no row number; give an integer, or use isolate to cut by value."
        ) from None


def _as_jax(array: Any, what: str) -> jax.Array:
    if isinstance(array, jax.Array):
        return array
    array = np.asarray(array)
    if array.dtype.kind in "mM":
        raise TypeError(f"Compiled code takes no {array.dtype}; pass numbers, such as array.astype('int64').")
    if array.dtype.kind in "fc" and array.dtype.itemsize > (8 if array.dtype.kind == "f" else 16):
        raise TypeError(f"Compiled code takes no {array.dtype}; pass array.astype('float64'), or complex128.")
    # Of the machine's byte order; and a view, because JAX remembers an array's dtype by its identity, whatever the
    # 64-bit mode.
    placed = jnp.asarray(array.astype(array.dtype.newbyteorder("="), copy=False).view())
    if array.dtype.kind in "iu" and placed.dtype.itemsize < array.dtype.itemsize and array.size:
        limits = np.iinfo(placed.dtype)
        if array.min() < limits.min or array.max() > limits.max:
            raise ValueError(
                f"{what} holds integers beyond {placed.dtype}, the widest that JAX takes without 64-bit types; "
                "enable those (jax.enable_x64), or subtract an offset."
            )
    return placed
