"""Window least squares with more digits than a double has, as a reference for the hard series.

`least_squares` takes many windows at once in ``numpy.longdouble``; `exact_slopes` takes one
window with 60 decimal digits and says whether the former is good enough.
"""

from __future__ import annotations

import mpmath
import numpy as np

LONG = np.longdouble
_BLOCK = 400_000  # elements of one batch of windows


def rolling_bounds(n: int, window: int, min_periods: int) -> np.ndarray:
    """Return (start, stop) of every window that ends at a row, oldest first."""
    stops = np.arange(min_periods, n + 1)
    return np.column_stack([np.maximum(stops - window, 0), stops])


def panel_bounds(n_stamps: int, rows: int, window: int) -> np.ndarray:
    """Return (start, stop) of the windows of `window` stamps, each stamp holding `rows` rows."""
    last = np.arange(n_stamps)
    return np.column_stack([rows * np.maximum(last - window + 1, 0), rows * (last + 1)])


def least_squares(
    X: np.ndarray, y: np.ndarray, bounds: np.ndarray, weight: np.ndarray | None = None, halflife: float | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return slopes (n_windows, k), intercepts (n_windows,) and feature means (n_windows, k)."""
    weight = np.ones(len(X)) if weight is None else weight
    size = max(1, _BLOCK // int((bounds[:, 1] - bounds[:, 0]).max()))
    parts = [_batch(X, y, bounds[i : i + size], weight, halflife) for i in range(0, len(bounds), size)]
    slopes, intercepts, means = (np.concatenate(one) for one in zip(*parts, strict=True))
    return slopes, intercepts, means


def _batch(X, y, bounds, weight, halflife):
    starts, stops = bounds.T
    rows = starts[:, None] + np.arange((stops - starts).max())
    inside = rows < stops[:, None]
    rows = np.where(inside, rows, starts[:, None])
    w = np.where(inside, weight[rows], 0).astype(LONG)
    if halflife is not None:
        w = w * np.exp2(-(stops[:, None] - 1 - rows).astype(LONG) / LONG(halflife))
    share = w / w.sum(axis=1, keepdims=True)
    columns = [column[rows].astype(LONG) for column in (*X.T, y)]
    means = [(share * column).sum(axis=1) for column in columns]
    columns = [column - mean[:, None] for column, mean in zip(columns, means, strict=True)]
    # Centred once more: what rounding left of the mean goes too.
    rests = [(share * column).sum(axis=1) for column in columns]
    columns = [(column - rest[:, None]) * np.sqrt(w) for column, rest in zip(columns, rests, strict=True)]
    means = np.stack([mean + rest for mean, rest in zip(means, rests, strict=True)], axis=1)
    slopes = _gram_schmidt(columns)
    intercepts = means[:, -1] - (slopes * means[:, :-1]).sum(axis=1)
    return slopes, intercepts, means[:, :-1]


def _gram_schmidt(columns: list[np.ndarray]) -> np.ndarray:
    """Regress the last column on the others; (n_windows, k)."""
    k = len(columns) - 1
    R: dict[tuple[int, int], np.ndarray] = {}
    for j in range(k):
        square = (columns[j] ** 2).sum(axis=1)
        R[j, j] = np.ones_like(square)
        for m in range(j + 1, k + 1):
            R[j, m] = (columns[j] * columns[m]).sum(axis=1) / square
            columns[m] = columns[m] - R[j, m][:, None] * columns[j]
    slopes = np.zeros((len(columns[0]), k), dtype=LONG)
    for j in reversed(range(k)):
        slopes[:, j] = R[j, k] - sum(R[j, m] * slopes[:, m] for m in range(j + 1, k))
    return slopes


def exact_slopes(X: np.ndarray, y: np.ndarray, weight: np.ndarray | None = None) -> list[mpmath.mpf]:
    """Return one window's slopes from the normal equations, in 60 digits."""
    with mpmath.workdps(60):
        columns = [[mpmath.mpf(float(v)) for v in column] for column in (*X.T, y)]
        w = [mpmath.mpf(1)] * len(y) if weight is None else [mpmath.mpf(float(v)) for v in weight]
        total = mpmath.fsum(w)
        means = [mpmath.fdot(w, column) / total for column in columns]
        columns = [[v - mean for v in column] for column, mean in zip(columns, means, strict=True)]
        weighted = [[a * b for a, b in zip(w, column, strict=True)] for column in columns]
        k = len(columns) - 1
        gram = mpmath.matrix(k, k)
        right = mpmath.matrix(k, 1)
        for i in range(k):
            right[i] = mpmath.fdot(weighted[i], columns[k])
            for j in range(k):
                gram[i, j] = mpmath.fdot(weighted[i], columns[j])
        return list(mpmath.lu_solve(gram, right))


def slope_errors(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return each window's largest slope error over its largest slope."""
    return (np.abs(found.astype(LONG) - expected).max(axis=-1) / np.abs(expected).max(axis=-1)).astype(np.float64)
