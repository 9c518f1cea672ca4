"""Ranges to search: intervals of an axis as a grid for GridSearchCV."""

from __future__ import annotations

import datetime
from numbers import Integral, Real
from typing import Any

import numpy as np

from skjaxwin.bounds import coordinate_values

__all__ = ["interval_grid"]

_MOST_INTERVALS = 1e5


def interval_grid(
    coordinates: Any, n: int | None = None, *, widths: Any = None, step: Any = None, prefix: str = ""
) -> list[dict[str, list[Any]]]:
    """Cut an axis into intervals, none of them empty.

    For the selection of intervals by cross-validation, as in interval PLS: the result is a ``param_grid``.

    Parameters
    ----------
    coordinates : array-like of shape (n_points,)
        Numbers or dates, in any order.
    n : int, default=None
        That many adjacent intervals of equally many distinct coordinates (or one more).
    widths : scalar or sequence, default=None
        Widths in the unit of the coordinates (timedeltas for dates), instead of `n`. For each width, intervals
        begin at the smallest coordinate and then every `step`.
    step : scalar, default=None
        Distance between the beginnings of intervals of a width; None is the width itself.
    prefix : str, default=""
        Put before the names, for a step of a pipeline: ``"subset__"``.

    Returns
    -------
    grid : list of dict
        Dicts like ``{"start": [1.0], "stop": [2.0]}``. Intervals are half-open; those that reach the last
        coordinate have ``stop=None``.

    Raises
    ------
    ValueError
        If not one of `n` and `widths` is given, or they make no interval.

    References
    ----------
    L. Norgaard, A. Saudland, J. Wagner, J. P. Nielsen, L. Munck, S. B. Engelsen: Interval partial least-squares
    regression (iPLS). Applied Spectroscopy 54 (2000), 413-419.

    Examples
    --------
    >>> from skjaxwin import interval_grid
    >>> interval_grid([400, 500, 600, 700, 800], 2)
    [{'start': [400], 'stop': [700]}, {'start': [700], 'stop': [None]}]
    >>> [(c["start"][0], c["stop"][0]) for c in interval_grid([0, 1, 2, 9], widths=[3, 8])]
    [(0, 3), (9, None), (0, 8), (8, None)]
    """
    points = np.unique(coordinate_values(coordinates, "coordinate"))
    if not len(points):
        raise ValueError("coordinates are empty; give at least one.")
    if (n is None) == (widths is None):
        raise ValueError("Give either n, the number of intervals, or widths.")
    if n is not None:
        if step is not None:
            raise ValueError("step goes with widths, not with n.")
        bounds = _equal_counts(points, n)
    else:
        bounds = [pair for width in np.atleast_1d(widths) for pair in _of_width(points, width, step)]
    return [{f"{prefix}start": [_scalar(a)], f"{prefix}stop": [_scalar(b)]} for a, b in bounds]


def _equal_counts(points: np.ndarray, n: Any) -> list[tuple[Any, Any]]:
    if not isinstance(n, Integral) or isinstance(n, bool) or not 1 <= int(n) <= len(points):
        raise ValueError(
            f"n={n!r} must be an integer from 1 to {len(points)}, the number of distinct coordinates: each interval "
            "holds at least one."
        )
    starts = [part[0] for part in np.array_split(points, int(n))]
    return list(zip(starts, [*starts[1:], None], strict=True))


def _of_width(points: np.ndarray, width: Any, step: Any) -> list[tuple[Any, Any]]:
    """Return the intervals of one width that hold a point."""
    if points.dtype.kind in "iu" and points.dtype.itemsize < 8:
        points = points.astype(np.int64)  # bounds may lie beyond a small type
    width = _length(width, points, "widths")
    tiles = step is None
    step = width if tiles else _length(step, points, "step")
    ratio = float((points[-1] - points[0]) / step)
    if not ratio < _MOST_INTERVALS:
        raise ValueError(f"step={step!r} makes {ratio:.0f} intervals; take a larger step.")
    # Multiples of the step, which do not drift as sums would; one more than needed, should the ratio be rounded down.
    starts = points[0] + step * np.arange(int(ratio) + 2)
    if points.dtype.kind == "f":
        starts = starts.astype(points.dtype)  # so that bounds are not rounded once more when they are used
    intervals: list[tuple[Any, Any]] = []
    for i, start in enumerate(starts[:-1]):
        stop = starts[i + 1] if tiles else start + width
        last = bool(stop > points[-1])
        if np.searchsorted(points, stop) > np.searchsorted(points, start):
            intervals.append((start, None if last else stop))
        if last:
            return intervals
    if tiles and starts[-1] <= points[-1]:
        intervals.append((starts[-1], None))
    return intervals


def _length(length: Any, points: np.ndarray, name: str) -> Any:
    """Return a width or step as a number, or as a timedelta64 for dates."""
    if isinstance(length, datetime.timedelta):
        length = np.timedelta64(length)
    dates = points.dtype.kind in "mM"
    right_kind = isinstance(length, np.timedelta64) if dates else isinstance(length, Real)
    if not right_kind or isinstance(length, np.timedelta64) != dates or not length > length * 0:
        raise ValueError(
            f"{name} must be positive {'timedeltas' if dates else 'numbers'}, for coordinates of dtype "
            f"{points.dtype}; got {length!r}."
        )
    return length


def _scalar(value: Any) -> Any:
    """Turn a NumPy number into Python's; dates stay NumPy's, which keep their unit."""
    return value.item() if isinstance(value, np.generic) and value.dtype.kind in "iuf" else value
