"""Exact cross products of a few ranges of rows, in NumPy: where the lanes start and end.

Plain reference and helper in one: two passes over the rows of a range, and merges only where
ranges are long.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from skjaxwin.kernels.compile import run_many

__all__ = ["RangeProducts", "range_products"]

_BLOCK = 256
_DIRECT = 4 * _BLOCK
# Rows gathered at a time: what a cache holds, or, for many columns, what is worth a thread.
_CACHE_BYTES = 2**20
_THREAD_BYTES = 32 * 2**20
_FEW_COLUMNS = 16


class RangeProducts(NamedTuple):
    """Weighted means and centred cross products of c columns in each of n ranges.

    Attributes
    ----------
    weight : ndarray of shape (n,)
    origin, mean : ndarray of shape (n, c)
        The mean is their sum.
    products : ndarray of shape (n, c, c)
    """

    weight: np.ndarray
    origin: np.ndarray
    mean: np.ndarray
    products: np.ndarray

    def take(self, index: np.ndarray) -> RangeProducts:
        return RangeProducts(*(part[index] for part in self))


def range_products(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, starts: np.ndarray, stops: np.ndarray
) -> RangeProducts:
    """Return the statistics of every range.

    Parameters
    ----------
    X, y : ndarray of shape (n_rows, k) and (n_rows, m)
        Together the c columns.
    weight : ndarray of shape (n_rows,) or None
        None for ones.
    starts, stops : ndarray of shape (n,)
        Half-open row bounds.
    """
    if len(starts) > 3 and bool((starts == starts[0]).all() and (np.diff(stops) >= 0).all()):
        return _growing(X, y, weight, int(starts[0]), stops)
    if int((stops - starts).max()) <= _DIRECT:
        return _ends_apart(X, y, weight, starts, stops)
    first, last = -(-starts // _BLOCK), stops // _BLOCK
    inside = first < last
    first, last = np.where(inside, first, 0), np.where(inside, last, 0)
    # Without a whole block inside, a range has fewer than two blocks of rows: all of it counts as its end.
    older = _direct(X, y, weight, np.minimum(starts, first * _BLOCK), np.where(inside, first * _BLOCK, 0))
    newer = _direct(X, y, weight, np.where(inside, last * _BLOCK, starts), stops)
    return _merge(_merge(older, _whole_blocks(X, y, weight, first, last)), newer)


def _ends_apart(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, starts: np.ndarray, stops: np.ndarray
) -> RangeProducts:
    """Gather the first and the last range apart: all others are equally long, as a rule, and need no gather."""
    pieces = [slice(0, 1), slice(1, -1), slice(-1, None)] if len(starts) > 2 else [slice(None)]
    return _concatenate([_direct(X, y, weight, starts[piece], stops[piece]) for piece in pieces])


def _direct(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, starts: np.ndarray, stops: np.ndarray
) -> RangeProducts:
    """Gather the rows of each range and go over them twice."""
    size = max(int((stops - starts).max()), 1)
    c = X.shape[1] + y.shape[1]
    few = c < _FEW_COLUMNS
    most = _CACHE_BYTES if few else _THREAD_BYTES
    at_once = max(min(most // (8 * size * c), -(-len(starts) // (1 if few else 2))), 1)
    parts = list(
        run_many(
            lambda i: _gather(X, y, weight, starts[i : i + at_once], stops[i : i + at_once], size),
            range(0, len(starts), at_once),
            exclusive=few,
        )
    )
    return parts[0] if len(parts) == 1 else _concatenate(parts)


def _concatenate(parts: list[RangeProducts]) -> RangeProducts:
    return RangeProducts(*(np.concatenate(part) for part in zip(*parts, strict=True)))


@np.errstate(all="ignore")  # what is not finite is seen later
def _gather(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, starts: np.ndarray, stops: np.ndarray, size: int
) -> RangeProducts:
    n, k = len(starts), X.shape[1]
    full = bool((stops - starts == size).all())
    first = np.minimum(starts, len(X) - 1)
    origin = np.concatenate([X[first], y[first]], axis=1)
    pick = _rows(starts, stops, size, full)
    # Rows last: loops run along them, and not along a handful of columns.
    part = np.empty((n, k + y.shape[1], size))
    np.subtract(pick(X).transpose(0, 2, 1), origin[:, :k, None], out=part[:, :k])
    np.subtract(pick(y).transpose(0, 2, 1), origin[:, k:, None], out=part[:, k:])
    if weight is None and full:
        total = np.full(n, float(size))
        mean = part.sum(axis=2) / size
        part -= mean[:, :, None]
        return RangeProducts(total, origin, mean, part @ part.transpose(0, 2, 1))
    each = np.ones((n, size)) if weight is None else pick(weight)
    if not full:
        each = np.where(np.arange(size) < (stops - starts)[:, None], each, 0.0)
    total = each.sum(axis=1)
    mean = (part @ each[:, :, None])[:, :, 0] / np.where(total > 0, total, 1)[:, None]
    part -= mean[:, :, None]
    return RangeProducts(total, origin, mean, (part * each[:, None]) @ part.transpose(0, 2, 1))


def _rows(starts: np.ndarray, stops: np.ndarray, size: int, full: bool) -> Any:
    """Return what picks the rows of all ranges, (n, size, ...): a view where ranges are evenly spaced."""
    gaps = np.diff(starts)
    if full and (len(gaps) == 0 or bool((gaps == gaps[0]).all())):
        low, gap = int(starts[0]), int(gaps[0]) if len(gaps) else 0

        def view(array: np.ndarray) -> np.ndarray:
            step = array.strides[0]
            shape, strides = (len(starts), size, *array.shape[1:]), (gap * step, step, *array.strides[1:])
            return np.lib.stride_tricks.as_strided(array[low:], shape, strides, writeable=False)

        return view
    row = starts[:, None] + np.arange(size)
    if not full:  # rows that are not in the range repeat its first one
        row = np.where(row < stops[:, None], row, starts[:, None])
    return lambda array: array[np.minimum(row, len(array) - 1)]


@np.errstate(all="ignore")  # what is not finite is seen later
def _growing(X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, start: int, stops: np.ndarray) -> RangeProducts:
    """Return the statistics of ranges with a common start: each merges the rows since the one before.

    All are measured from their first row, which each of them holds, so that the merges are sums
    of terms none of which is ever taken back.
    """
    edges = np.append(start, stops)
    parts = _ends_apart(X, y, weight, edges[:-1], edges[1:])
    total = np.cumsum(parts.weight)
    origin = np.concatenate([X[start], y[start]])
    mean = (parts.origin - origin) + parts.mean
    before = np.cumsum(parts.weight[:, None] * mean, axis=0) / total[:, None]
    shift = mean[1:] - before[:-1]
    between = shift * (total[:-1] * (parts.weight[1:] / total[1:]))[:, None]
    products = parts.products.copy()
    products[1:] += shift[:, :, None] * between[:, None]
    np.cumsum(products, axis=0, out=products)
    return RangeProducts(total, np.broadcast_to(origin, mean.shape), before, products)


@np.errstate(all="ignore")  # what is not finite is seen later
def _merge(left: RangeProducts, right: RangeProducts) -> RangeProducts:
    """Merge pairs of ranges; one of a pair may be empty."""
    weight = left.weight + right.weight
    safe = np.where(weight > 0, weight, 1)
    share, rest = (right.weight / safe)[:, None], (left.weight / safe)[:, None]
    difference = (right.origin - left.origin) + (right.mean - left.mean)
    heavier = share > 0.5
    mean = np.where(heavier, right.mean - difference * rest, left.mean + difference * share)
    outer = difference[:, :, None] * (difference * share * left.weight[:, None])[:, None]
    return RangeProducts(
        weight, np.where(heavier, right.origin, left.origin), mean, left.products + right.products + outer
    )


def _whole_blocks(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray | None, first: np.ndarray, last: np.ndarray
) -> RangeProducts:
    """Merge ranges of whole blocks by doubling: each takes the runs of its length's binary digits."""
    n_blocks = max(int(last.max()), 1)
    block = np.arange(n_blocks)
    runs = _direct(X, y, weight, block * _BLOCK, np.minimum((block + 1) * _BLOCK, len(X)))
    total = runs.take(np.zeros_like(first))._replace(weight=np.zeros(len(first)))
    total = total._replace(products=np.zeros_like(total.products))
    position, length, span = first.copy(), last - first, 1
    while span <= length.max():
        wanted = (length & span) > 0
        taken = runs.take(np.minimum(position, n_blocks - 1))
        merged = _merge(total, taken)
        total = RangeProducts(
            *(np.where(wanted.reshape(-1, *[1] * (a.ndim - 1)), a, b) for a, b in zip(merged, total, strict=True))
        )
        position += np.where(wanted, span, 0)
        runs = _merge(runs, runs.take(np.minimum(block + span, n_blocks - 1)))
        span *= 2
    return total
