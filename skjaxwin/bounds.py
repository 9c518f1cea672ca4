"""Coordinates and bounds that are compared exactly: each in the coordinates' own dtype, never through floats.

A 32-bit float cannot tell 20240101 from 20240102, nor a 64-bit one 2**53 from 2**53 + 1. Integers and dates are
therefore compared as integers, with the bound rounded up: ``x >= 2.5`` and ``x >= 3`` are the same for whole x, and so
are ``x < 2.5`` and ``x < 3``. Among floats a bound is rounded to the coordinates' dtype, so that 0.7 names the
point ``np.float32(0.7)`` of a 32-bit grid.
"""

from __future__ import annotations

import datetime
import math
from numbers import Integral, Real
from typing import Any

import numpy as np

from skjaxwin.windows import time_values

__all__ = ["comparable", "coordinate_values", "exact_bound"]

_ATTOSECONDS = {
    "W": 7 * 86400 * 10**18,
    "D": 86400 * 10**18,
    "h": 3600 * 10**18,
    "m": 60 * 10**18,
    "s": 10**18,
    "ms": 10**15,
    "us": 10**12,
    "ns": 10**9,
    "ps": 10**6,
    "fs": 10**3,
    "as": 1,
}


def coordinate_values(column: Any, name: str) -> np.ndarray:
    """Turn a column into coordinates of its own dtype.

    Parameters
    ----------
    column : array-like of shape (n_points,)
        Numbers, dates or durations: anything that `windows.time_values` takes.
    name : str
        What to call the column in messages.

    Returns
    -------
    coordinates : ndarray of shape (n_points,)
        Integers, floats, datetime64 or timedelta64.

    Raises
    ------
    ValueError
        If a coordinate is NaN, NaT or infinite.
    TypeError
        If the column holds neither numbers nor dates.
    """
    dtype = getattr(column, "dtype", None)
    values = np.asarray(column)
    if values.dtype.kind not in "fiumM" or (getattr(dtype, "kind", None) == "M" and not isinstance(column, np.ndarray)):
        values = time_values(column, name)  # objects, and dates with a time zone
    if values.ndim != 1:
        raise ValueError(f"The {name} column must be 1-dimensional, got shape {values.shape}.")
    if values.dtype.kind not in "iu":
        missing = np.isnan(values) if values.dtype.kind == "f" else np.isnat(values)
        if missing.any():
            raise ValueError(
                f"The {name} column contains NaN or NaT in {int(missing.sum())} place(s), the first being "
                f"{int(np.argmax(missing))}; remove these points, each needs a coordinate."
            )
    if values.dtype.kind == "f" and np.isinf(values).any():
        raise ValueError(f"The {name} column contains infinity; coordinates must be finite.")
    if values.dtype.kind == "M" and np.datetime_data(values.dtype)[0] in ("Y", "M"):
        return values.astype("datetime64[D]")  # years and months have no fixed length
    return values


def comparable(coordinates: np.ndarray) -> np.ndarray:
    """Return what bounds from `exact_bound` are compared with: dates and durations as their integers."""
    return coordinates.view(np.int64) if coordinates.dtype.kind in "mM" else coordinates


def exact_bound(bound: Any, dtype: np.dtype, name: str) -> Any:
    """Return a bound that compares exactly with coordinates of a dtype.

    Parameters
    ----------
    bound : number, date, duration or str
        Text is read as an ISO date; infinities are allowed for every dtype.
    dtype : dtype
        Of the coordinates.
    name : str
        What to call the bound in messages.

    Returns
    -------
    bound : int, float or floating scalar
        For integers, dates and durations the smallest integer that is not below the bound, or an infinity if
        that lies beyond the dtype; for floats a scalar of the dtype.

    Raises
    ------
    ValueError
        If the bound is NaN or NaT, or text that is no date.
    TypeError
        If the bound and the coordinates are of different kinds.
    """
    if isinstance(bound, Real) and not isinstance(bound, np.timedelta64):
        if bound != bound:
            raise ValueError(f"{name} is NaN; give a number, or None for no bound.")
        if abs(bound) == math.inf:
            return float(bound) if dtype.kind != "f" else dtype.type(bound)
        if dtype.kind == "f":
            return _nearest(bound, dtype)
        if dtype.kind in "iu":
            above: Any = math.ceil(bound)
            return _within(above, dtype)
        raise TypeError(
            f"{name}={bound!r} is a number, but the coordinates are {_described(dtype)}; give one of those."
        )
    if dtype.kind == "m":
        return _within(_ceil_ticks(_duration(bound, name), dtype), np.dtype(np.int64))
    if dtype.kind == "M":
        return _within(_ceil_ticks(_date(bound, name), dtype), np.dtype(np.int64))
    raise TypeError(f"{name}={bound!r} is no number, but the coordinates are {_described(dtype)}; give a number.")


def _described(dtype: np.dtype) -> str:
    return {"M": "dates", "m": "durations"}.get(dtype.kind, "numbers")


def _nearest(bound: Real, dtype: np.dtype) -> Any:
    """Round to the dtype; what lies beyond it becomes infinite."""
    with np.errstate(over="ignore"):
        try:
            return dtype.type(float(bound) if isinstance(bound, Integral) else bound)
        except OverflowError:
            return dtype.type(math.copysign(math.inf, bound))


def _within(bound: int, dtype: np.dtype) -> Any:
    limits = np.iinfo(dtype)
    if bound > limits.max:
        return math.inf
    return -math.inf if bound <= limits.min else bound


def _date(bound: Any, name: str) -> np.ndarray:
    if isinstance(bound, str):
        try:
            bound = np.datetime64(bound)
        except ValueError:
            raise ValueError(
                f"{name}={bound!r} is no date; write it like '2024-01-31' or '2024-01-31T12:00'."
            ) from None
    if not isinstance(bound, (datetime.date, np.datetime64)):
        raise TypeError(f"{name}={bound!r} is no date, but the coordinates are dates; give a date.")
    if np.isnat(np.datetime64(bound)) if isinstance(bound, np.datetime64) else bound != bound:
        raise ValueError(f"{name} is NaT; give a date, or None for no bound.")
    date = time_values(np.array([bound], dtype=object), name)
    return date.astype("datetime64[D]") if np.datetime_data(date.dtype)[0] in ("Y", "M") else date


def _duration(bound: Any, name: str) -> np.ndarray:
    if not isinstance(bound, (datetime.timedelta, np.timedelta64)):
        raise TypeError(f"{name}={bound!r} is no duration, but the coordinates are durations; give a timedelta.")
    duration = bound if isinstance(bound, np.timedelta64) else np.timedelta64(bound)
    if np.isnat(duration):
        raise ValueError(f"{name} is NaT; give a timedelta, or None for no bound.")
    if np.datetime_data(duration.dtype)[0] not in _ATTOSECONDS:
        raise TypeError(f"{name}={bound!r} has no fixed length; give it in days or smaller units.")
    return np.array([duration])


def _ceil_ticks(bound: np.ndarray, dtype: np.dtype) -> int:
    """Express a date or duration in the unit of another dtype, rounded up, in Python's unlimited integers."""
    unit, count = np.datetime_data(bound.dtype)
    other_unit, other_count = np.datetime_data(dtype)
    ticks = int(bound.view(np.int64)[0]) * count * _ATTOSECONDS[unit]
    return -(-ticks // (other_count * _ATTOSECONDS[other_unit]))
