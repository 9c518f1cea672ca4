"""Intervals of one width along an axis: exact among integers and dates, and on the grid's own points among floats.

Integers and dates are counted in Python's unlimited numbers, with widths taken as the decimal numbers that they are
written as: ten steps of 0.1 are 1. Among floats ``0.1 + 2 * 0.1`` is not the 0.3 of a grid; a bound that
misses a point by so little is moved onto it, or the point would change sides.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable
from fractions import Fraction
from numbers import Rational, Real
from typing import Any

import numpy as np

__all__ = ["intervals_of_width"]

_MOST_INTERVALS = 1e5
# How close to a point a bound is the point: as a share of the step, or in units of the last place. Grids made by adding
# up a step miss their decimals by hundreds of these units, but by a tiny share of the step.
_NEAR, _NEAR_PLACES, _NEVER = 1e-6, 8, 0.1

Intervals = list[tuple[Any, Any]]


def intervals_of_width(points: np.ndarray, width: Any, step: Any) -> Intervals:
    """Return the intervals of one width that hold a point.

    Parameters
    ----------
    points : ndarray of shape (n_points,)
        Distinct coordinates, ascending.
    width : number or timedelta
    step : number, timedelta or None
        Distance between the beginnings of intervals; None is the width.

    Returns
    -------
    intervals : list of (start, stop)
        The stop of one that reaches the last point is None.

    Raises
    ------
    ValueError
        If a length is not positive or of the wrong kind, or there would be too many intervals.
    """
    width = _length(width, points, "widths")
    step = width if step is None else _length(step, points, "step")
    if points.dtype.kind == "f":
        return _among_floats(points, width, step)
    if points.dtype.kind in "iu":
        found = _among_integers(points, _exact(width), _exact(step))
        return [(_number(start), _number(stop)) for start, stop in found]
    length = np.result_type((points[:1] - points[:1]).dtype, width, step)  # of the finest unit among them
    dtype = length if points.dtype.kind == "m" else np.dtype(length.str.replace("m8", "M8"))
    ticks = _in_unit(points, dtype, "coordinates").view(np.int64)
    lengths = (int(_in_unit(np.array([value]), length, "widths").view(np.int64)[0]) for value in (width, step))
    found = _among_integers(ticks, *lengths)

    def date(tick: int | None) -> Any:
        return None if tick is None else np.array(tick, np.int64).view(dtype)[()]

    return [(date(start), date(stop)) for start, stop in found]


def _length(length: Any, points: np.ndarray, name: str) -> Any:
    """Return a width or step as a number, or as a timedelta64 for dates."""
    if hasattr(length, "__array__") and np.ndim(length) == 0:
        length = np.asarray(length)[()]  # also an array without dimensions of another library
    dates = points.dtype.kind in "mM"
    if dates and isinstance(length, datetime.timedelta):
        length = np.timedelta64(length)
    right_kind = isinstance(length, np.timedelta64) if dates else isinstance(length, Real)
    if not right_kind or isinstance(length, np.timedelta64) != dates or not length > (length * 0 if dates else 0):
        raise ValueError(
            f"{name} must be positive {'timedeltas' if dates else 'numbers'}, for coordinates of dtype "
            f"{points.dtype}; got {length!r}."
        )
    if dates and np.datetime_data(length.dtype)[0] in ("Y", "M"):
        raise ValueError(f"{name}={length!r} has no fixed length; give it in days or smaller units.")
    if not dates and not length < math.inf:
        raise ValueError(f"{name} must be finite, got {length!r}.")
    return length


def _exact(length: Any) -> Any:
    """Return a length as the decimal number that it is written as, an integer if it is whole."""
    exact = Fraction(length) if isinstance(length, Rational) else Fraction(str(length))
    return int(exact) if exact.denominator == 1 else exact


def _number(bound: Any) -> Any:
    """Return an exact bound among integers as an int, or as a float that has the same integers above it."""
    if not isinstance(bound, Fraction) or bound.denominator == 1:
        return bound if bound is None else int(bound)
    whole = math.ceil(bound)
    return float(bound) if math.ceil(float(bound)) == whole else whole


def _in_unit(values: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    """Return dates or durations in a finer unit, which holds a shorter span."""
    try:
        converted = values.astype(dtype)
        fits = (converted.astype(values.dtype.newbyteorder("=")) == values).all()
    except OverflowError:  # of newer versions of NumPy; older ones wrap
        fits = False
    if not fits:
        raise ValueError(f"{name} are beyond {dtype}, the finest unit among them and the step; take coarser units.")
    return converted


def _among_integers(points: np.ndarray, width: Any, step: Any) -> Intervals:
    first, last = int(points[0]), int(points[-1])
    n = _how_many(Fraction(last - first) / step, step)
    starts = [first + k * step for k in range(n)]
    stops = [start + width for start in starts]
    begins = np.array([math.ceil(start) for start in starts], points.dtype)
    # A stop beyond the points may be beyond their dtype, too.
    ends = np.array([min(math.ceil(stop), last) for stop in stops], points.dtype)
    return _that_hold(points, starts, stops, begins, ends)


def _among_floats(points: np.ndarray, width: Any, step: Any) -> Intervals:
    wide = np.result_type(points.dtype, np.float64).type
    width, step = (wide(v if isinstance(v, np.longdouble) else float(_exact(v))) for v in (width, step))
    with np.errstate(over="ignore"):
        n = _how_many(float((wide(points[-1]) - wide(points[0])) / step), step) + 1
        # Multiples of the step, which do not drift as sums would; one more than needed, should the ratio be rounded
        # down.
        before = step * np.arange(n + 1)
        starts = points[0] + before[:-1]
        stops = points[0] + (before[1:] if step == width else before[:-1] + width)
        starts, stops = (_onto_points(points, bounds, min(step, width)) for bounds in (starts, stops))
        # In the dtype of the points, so that they are not rounded once more when they are used.
        begins, ends = starts.astype(points.dtype), np.minimum(stops, points[-1]).astype(points.dtype)
    found = _that_hold(points, starts, stops, begins, ends)
    return [(start.astype(points.dtype), None if stop is None else stop.astype(points.dtype)) for start, stop in found]


def _onto_points(points: np.ndarray, bounds: np.ndarray, step: Any) -> np.ndarray:
    """Return bounds, those that miss a point by rounding alone as that point."""
    largest = max(abs(float(points[0])), abs(float(points[-1])))
    near = max(_NEAR_PLACES * float(np.finfo(points.dtype).eps) * largest, _NEAR * step)
    above = np.searchsorted(points, bounds).clip(1, len(points) - 1) if len(points) > 1 else np.zeros(len(bounds), int)
    below = np.maximum(above - 1, 0)
    nearest = points[np.where(bounds - points[below] < points[above] - bounds, below, above)]
    return np.where(abs(bounds - nearest) <= min(near, _NEVER * step), nearest, bounds)


def _how_many(ratio: Any, step: Any) -> int:
    """Return how many intervals begin at a point or before the last."""
    if not ratio < _MOST_INTERVALS:
        raise ValueError(f"step={step} makes {float(ratio):.0f} intervals; take a larger step.")
    return int(ratio) + 1


def _that_hold(
    points: np.ndarray, starts: Iterable[Any], stops: Iterable[Any], begins: np.ndarray, ends: np.ndarray
) -> Intervals:
    """Return the intervals that hold a point, up to the first that reaches the last one."""
    last = points[-1].item()
    found: Intervals = []
    rows = zip(np.searchsorted(points, begins), np.searchsorted(points, ends), strict=True)
    for start, stop, (low, high) in zip(starts, stops, rows, strict=True):
        if start > last:
            break
        if stop > last:
            return [*found, (start, None)]
        if high > low:
            found.append((start, stop))
    return found
