"""Plain NumPy references: slow, obvious, and written without looking at the package's algorithms.

Everything here goes row by row and compares times with ``<``; nothing is sorted into codes,
padded or batched. Times are Python lists, so integers have no width and dates no rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

KINDS = ("expanding", "stamps", "duration")


def stamps_of(times: list[Any], weight: np.ndarray) -> list[Any]:
    """Return the distinct times of rows that have weight, oldest first."""
    return sorted({t for t, w in zip(times, weight, strict=True) if w > 0})


def window_rows(
    times: list[Any] | None,
    weight: np.ndarray,
    *,
    window: Any = "expanding",
    step: int = 1,
    min_periods: int = 1,
) -> list[tuple[Any, list[int]]]:
    """Return (newest time, row numbers) of each window, oldest window first.

    `window` is "expanding", an int (that many newest stamps) or anything that can be
    subtracted from a time: the span ``(t - window, t]``. Row numbers are the caller's.
    """
    times = list(range(len(weight))) if times is None else times
    stamps = stamps_of(times, weight)
    found = []
    for number, newest in enumerate(stamps, start=1):
        if number % step != 0 and number != len(stamps):
            continue
        rows = []
        for row, (t, w) in enumerate(zip(times, weight, strict=True)):
            if w <= 0 or t > newest:
                continue
            if isinstance(window, str):
                inside = True
            elif isinstance(window, int):
                inside = len([s for s in stamps if t < s <= newest]) < window
            else:
                inside = t > newest - window
            if inside:
                rows.append(row)
        if len(rows) >= min_periods:
            found.append((newest, rows))
    return found


def halflife_weights(times: list[Any], newest: Any, halflife: Any) -> np.ndarray:
    """Return ``0.5 ** (age / halflife)``."""
    return np.array([0.5 ** float((newest - t) / halflife) for t in times])


def least_squares(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray, alpha: float = 0.0, fit_intercept: bool = True
) -> tuple[np.ndarray, np.ndarray, float]:
    """Weighted ridge by ``lstsq`` on sqrt-weighted, augmented rows.

    Where the columns are dependent the slopes are the shortest ones, with columns
    centred if there is an intercept. Returns coef (k,) or (outputs, k), intercept, and
    the condition number of the column-scaled problem (inf where it is rank-deficient).
    """
    X, y = X.astype(np.float64), y.astype(np.float64)
    targets = y.reshape(len(y), -1)
    k = X.shape[1]
    x_mean, y_mean = np.zeros(k), np.zeros(targets.shape[1])
    if fit_intercept:
        x_mean, y_mean = weight @ X / weight.sum(), weight @ targets / weight.sum()
        # Again on what is left: a large offset must not cost the reference its digits.
        x_mean = x_mean + weight @ (X - x_mean) / weight.sum()
        y_mean = y_mean + weight @ (targets - y_mean) / weight.sum()
    root = np.sqrt(weight)[:, None]
    A = np.vstack([root * (X - x_mean), np.sqrt(alpha) * np.eye(k)])
    B = np.vstack([root * (targets - y_mean), np.zeros((k, targets.shape[1]))])
    # What centring leaves of a constant column is rounding: call it zero.
    length = np.sqrt((A**2).sum(axis=0))
    A[:, length <= 1e-14 * np.sqrt((weight @ X**2) + alpha)] = 0
    length = np.sqrt((A**2).sum(axis=0))
    singular = np.linalg.svd(A / np.where(length > 0, length, 1), compute_uv=False)
    regular = len(singular) == k and singular[-1] > 1e-11 * max(singular[0], 1)
    if regular:
        slopes = np.linalg.lstsq(A / length, B, rcond=0)[0] / length[:, None]
    else:
        slopes = np.linalg.lstsq(A, B, rcond=1e-12)[0]
    coef, intercept = slopes.T, y_mean - slopes.T @ x_mean
    condition = singular[0] / singular[-1] if regular else np.inf
    return (coef[0], intercept[0], condition) if y.ndim == 1 else (coef, intercept, condition)


def window_before(time: Any, stamps: list[Any], newest_times: list[Any], gap: int = 0) -> int | None:
    """Return which window may predict a row at `time`, None if none may.

    The newest one that ended strictly before, with at least `gap` known stamps between.
    """
    best = None
    for i, newest in enumerate(newest_times):
        between = [s for s in stamps if newest < s < time]
        if newest < time and len(between) >= gap:
            best = i
    return best


def walk_forward(
    X: np.ndarray,
    y: np.ndarray,
    times: list[Any] | None,
    weight: np.ndarray,
    *,
    alpha: float = 0.0,
    fit_intercept: bool = True,
    gap: int = 0,
    **cut: Any,
) -> np.ndarray:
    """Fit every window of least squares and predict every row strictly out of sample."""
    times = list(range(len(weight))) if times is None else times
    stamps = stamps_of(times, weight)
    windows = window_rows(times, weight, **cut)
    fits = [least_squares(X[r], y[r], weight[r], alpha, fit_intercept) for _, r in windows]
    predictions = np.full(y.shape, np.nan)
    for row, t in enumerate(times):
        i = window_before(t, stamps, [newest for newest, _ in windows], gap)
        if i is not None:
            coef, intercept, _ = fits[i]
            predictions[row] = X[row] @ coef.T + intercept
    return predictions
