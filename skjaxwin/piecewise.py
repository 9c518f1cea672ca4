"""Cut a signal into pieces and run a function over all of them."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from skjaxwin.bounds import coordinate_values, exact_range, refuse_masked
from skjaxwin.kernels.pieces import Cuts, refuse_traced, run_pieces
from skjaxwin.kernels.shapes import bucket
from skjaxwin.models._base import source_place
from skjaxwin.models._keys import freeze, held

__all__ = ["map_pieces", "pieces"]

_CHECKED_AT_ONCE = 2**20
# Pieces and halos beyond a signal are cut down to its length, but not below this, so that short signals share a kernel.
_SHORT = 1024


def pieces(n: int, size: int) -> np.ndarray:
    """Cut `n` rows into pieces.

    Parameters
    ----------
    n : int
        Rows of the signal.
    size : int
        Rows of a piece; the last one may have fewer.

    Returns
    -------
    bounds : ndarray of int of shape (n_pieces, 2)
        Half-open ranges ``[start, stop)`` that cover every row once.

    Raises
    ------
    ValueError
        If `n` or `size` is not positive.

    Examples
    --------
    >>> from skjaxwin import pieces
    >>> pieces(10, 4).tolist()
    [[0, 4], [4, 8], [8, 10]]
    """
    n, size = _whole(n, "n", 1), _whole(size, "size", 1)
    starts = np.arange(0, n, size)
    return np.column_stack([starts, np.minimum(starts + size, n)])


def map_pieces(
    function: Callable[..., Any],
    x: Any,
    *arrays: Any,
    size: int | None = None,
    edges: Any = None,
    halo: int = 0,
    output: str = "stack",
    batch_size: int | str = "auto",
) -> Any:
    r"""Run a function over all pieces of a signal, with one compile.

    Parameters
    ----------
    function : callable
        ``function(x_piece, *array_pieces, mask) -> results``, a plain function of arrays that JAX can trace. Each
        piece has the same number of rows, `size` (or, with `edges`, the longest piece's rounded up to a power of
        two) and ``2 * halo`` more; `size` and `halo` beyond the signal are cut down to its length, rounded up to a
        power of two of at least 1024. `mask` is True for rows of the signal; other rows are zero and must not
        count. `results` is an array, or a tuple or dict of arrays.
    x : array-like of shape (n,) or (n, ...)
        The signal's coordinates, or, with `size`, any array. A ``numpy.memmap`` is read piece by piece.
    *arrays : array-like of shape (n, ...)
        Cut like `x`.
    size : int, default=None
        Cut every `size` rows; the last piece may have fewer.
    edges : array-like of shape (n_pieces + 1,), default=None
        Cut by value instead: piece k has the rows with ``edges[k] <= x < edges[k + 1]``. `edges` must be
        ascending, `x` ascending or descending. The first edge may be ``-np.inf`` and the last ``np.inf``; a last
        edge equal to the largest x leaves that row out.
    halo : int, default=0
        Rows on either side that a piece gets to see in addition, as a filter needs; beyond the signal they are
        masked.
    output : {"stack", "stitch"}, default="stack"
        "stack" puts results side by side, leading axis pieces. "stitch" is for results with a row for each row of
        the piece: the halo is cut off and the rows are joined to an array of the signal's length.
    batch_size : int or "auto", default="auto"
        Pieces in one call. More take more memory; "auto" keeps a batch to a few megabytes, or to a single piece if
        that is longer, however long the signal.

    Returns
    -------
    results : pytree of ndarray
        Shaped (n_pieces, ...), in the order of `edges`, or (n, ...) for "stitch", in the order of rows.

    Raises
    ------
    ValueError
        If not one of `size` and `edges` is given, if lengths differ, an array has masked entries, x is not sorted or
        has NaN, edges are not ascending, or edges to be stitched leave rows out.
    TypeError
        If the function cannot be compiled, with its line; if an array is traced or not of numbers that JAX knows.

    See Also
    --------
    isolate : A single range, inside a function of your own.

    Notes
    -----
    The compiled function is found again by its code: further signals compile nothing, as long as dtypes and `size`
    stay the same (of those shorter than a batch, one for each power of two of pieces does). What it reads from
    globals, its closure and objects of your own classes is part of that, so that a change is seen. Objects of
    installed libraries count by identity: if you change one that the function reads, pass a new one.

    Arrays keep their dtype, float64 included. Batches are computed on all cores.

    An interval of `edges` without rows gives a piece whose mask is False. All pieces get the room of the longest, so
    that edges far apart beside narrow ones cost the time and memory of the long piece for each.

    Examples
    --------
    Means of pieces, and a centred moving average over a signal in pieces:

    >>> import jax.numpy as jnp, numpy as np
    >>> from skjaxwin import map_pieces
    >>> x = np.linspace(0, 10, 1000)
    >>> def mean(x, y, mask):
    ...     return jnp.sum(y, where=mask) / jnp.sum(mask)
    >>> map_pieces(mean, x, 2 * x, edges=[0, 2, 4, 6, 8, np.inf]).round(2).tolist()
    [1.99, 6.0, 10.0, 14.0, 18.01]
    >>> def average(y, mask):
    ...     total = jnp.convolve(y, jnp.ones(5), "same")
    ...     return total / jnp.convolve(mask * 1.0, jnp.ones(5), "same")
    >>> smooth = map_pieces(average, x, size=256, halo=2, output="stitch")
    >>> smooth.shape, bool(np.allclose(smooth, x, atol=0.03))
    ((1000,), True)
    """
    if not callable(function):
        raise TypeError(f"function={function!r} must be a function of pieces and a mask.")
    if (size is None) == (edges is None):
        raise ValueError("Give either size, the rows of a piece, or edges, the values of x where to cut.")
    if output not in ("stack", "stitch"):
        raise ValueError(f'output={output!r} must be "stack" or "stitch".')
    halo = _whole(halo, "halo", 0)
    if batch_size != "auto":
        batch_size = _whole(batch_size, "batch_size", 1)
    key = freeze(function, "function")
    refuse_traced((x, *arrays, edges, *held(key)))
    for array in (x, *arrays, edges):
        refuse_masked(array, "An array given to map_pieces")
    signal = [np.asanyarray(array) for array in (x, *arrays)]
    lengths = [len(array) if array.ndim else None for array in signal]
    if None in lengths or len(set(lengths)) > 1:
        raise ValueError(f"x and the arrays must have the same number of rows, got {lengths}.")
    if not lengths[0]:
        raise ValueError("x has no rows; there is nothing to cut.")
    for array in signal:
        if array.dtype.kind not in "fiubc" or array.dtype.itemsize > (16 if array.dtype.kind == "c" else 8):
            raise TypeError(
                f"map_pieces takes JAX's numbers, of up to 64 bits, got an array of dtype {array.dtype}; "
                f"{_instead(array.dtype)}."
            )
    halo = min(halo, bucket(lengths[0], minimum=_SHORT))
    cuts = _by_size(len(signal[0]), size, halo) if edges is None else _by_edges(signal[0], edges, halo)
    if output == "stitch" and cuts.rows != (0, len(signal[0])):
        raise ValueError(
            f'output="stitch" needs every row in a piece, but the edges cover rows {cuts.rows[0]} to '
            f"{cuts.rows[1]} of {len(signal[0])}; let the edges begin with -np.inf and end with np.inf."
        )
    name = getattr(function, "__name__", type(function).__name__)
    return run_pieces(
        function,
        key,
        signal,
        cuts,
        stitch=output == "stitch",
        batch_size=None if batch_size == "auto" else int(batch_size),
        what=f"{name}{source_place(function)}, given to map_pieces,",
    )


def _instead(dtype: np.dtype) -> str:
    """Say what to pass instead of an array that compiled code does not take."""
    if dtype.kind in "mM":
        return "turn dates into numbers first, for example (x - x[0]) / np.timedelta64(1, 's')"
    if dtype.kind == "c":
        return "pass array.astype('complex128')"
    return f"pass array.astype('{'float64' if dtype.kind in 'fO' else 'float32'}')"


def _by_size(n: int, size: Any, halo: int) -> Cuts:
    bounds = pieces(n, size)
    return Cuts(bounds[:, 0], bounds[:, 1], min(int(size), bucket(n, minimum=_SHORT)), halo, True)


def _by_edges(x: np.ndarray, edges: Any, halo: int) -> Cuts:
    """Find the rows of each interval; x is checked in parts, so that a memory map is not held in full."""
    if x.ndim != 1 or x.dtype.kind not in "fiu":
        raise ValueError(f"edges cut a 1-dimensional x of numbers, got shape {x.shape} and dtype {x.dtype}.")
    if np.ndim(edges) != 1:
        raise TypeError(f"edges must be a flat sequence of ascending values, got {edges!r}.")
    edges = list(np.asarray(edges) if hasattr(edges, "__array__") else edges)
    if any(edge is None for edge in edges):
        raise TypeError(f"edges hold None: {edges}; write -numpy.inf or numpy.inf for no bound.")
    if len(edges) < 2:
        raise ValueError(f"edges must hold at least two values, got {edges}.")
    descending = bool(x[0] > x[-1])
    last = None
    for begin in range(0, len(x), _CHECKED_AT_ONCE):
        part = coordinate_values(x[begin : begin + _CHECKED_AT_ONCE], "coordinate (x)")
        if last is not None:
            part = np.concatenate([last, part])
        if not ((part[1:] <= part[:-1]) if descending else (part[1:] >= part[:-1])).all():
            raise ValueError("x is not sorted; sort x and the arrays by it, or cut by size.")
        last = part[-1:]
    names = [f"edges[{i}]" for i in range(len(edges))]
    pairs = (exact_range(*two, x.dtype, name) for two, name in zip(pairwise(edges), pairwise(names), strict=True))
    lows, highs = zip(*pairs, strict=True)
    below = _n_below(x, [*lows, highs[-1]], descending)
    longest = int(np.diff(below).max())
    if longest == 0:
        raise ValueError(f"No row of x lies between the edges; x goes from {x[0]} to {x[-1]}.")
    starts, stops = (len(x) - below[1:], len(x) - below[:-1]) if descending else (below[:-1], below[1:])
    return Cuts(starts, stops, bucket(longest, minimum=1), halo, False)


def _n_below(x: np.ndarray, bounds: list[Any], descending: bool) -> np.ndarray:
    """Return how many values of sorted x lie below each bound, reading only those that bisection looks at.

    ``np.searchsorted`` would copy all of an x that is not contiguous, or not of the machine's byte order.
    """
    n = len(x)
    infinite = np.array([isinstance(bound, (float, np.floating)) and bool(np.isinf(bound)) for bound in bounds])
    positive = np.array([bound > 0 for bound in bounds])
    finite = [0 if skip else bound for bound, skip in zip(bounds, infinite, strict=True)]
    values = np.array(finite, x.dtype.newbyteorder("="))
    low, high = np.where(infinite & positive, n, 0), np.where(infinite & ~positive, 0, n)
    while (low < high).any():
        middle = (low + high) // 2
        at = np.minimum(middle, n - 1)  # bounds that are done may have reached the end
        below = (x[n - 1 - at if descending else at] < values) & (low < high)
        low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
    return low


def _whole(value: Any, name: str, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r} must be an integer.") from None
    if number < least:
        raise ValueError(f"{name}={value!r} must be at least {least}.")
    return number
