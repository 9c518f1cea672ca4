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

__all__ = ["comparable", "coordinate_values", "exact_bound", "exact_range", "refuse_masked"]

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
        If a coordinate is NaN, NaT, masked or infinite.
    TypeError
        If the column holds neither numbers nor dates, or durations in months or years.
    """
    refuse_masked(column, f"The {name} column")
    dtype = getattr(column, "dtype", None)
    values = np.asarray(column)
    floats = _holds_floats(values.dtype)
    zoned = getattr(dtype, "kind", None) == "M" and not isinstance(column, np.ndarray)
    if zoned or not (floats or values.dtype.kind in "iumM"):
        values = time_values(column, name)  # objects, and dates with a time zone
        floats = values.dtype.kind == "f"
    if values.ndim != 1:
        raise ValueError(f"The {name} column must be 1-dimensional, got shape {values.shape}.")
    if values.dtype.kind not in "iu":
        missing = np.isnan(values) if floats else np.isnat(values)
        if missing.any():
            raise ValueError(
                f"The {name} column contains NaN or NaT in {int(missing.sum())} place(s), the first being "
                f"{int(np.argmax(missing))}; remove these points, each needs a coordinate."
            )
    if floats and np.isinf(values).any():
        raise ValueError(f"The {name} column contains infinity; coordinates must be finite.")
    if values.dtype.kind == "M" and np.datetime_data(values.dtype)[0] in ("Y", "M"):
        return values.astype("datetime64[D]")  # years and months have no fixed length
    if values.dtype.kind == "m" and np.datetime_data(values.dtype)[0] not in _ATTOSECONDS:
        raise TypeError(
            f"The {name} column holds durations of dtype {values.dtype}, which have no fixed length; give them in days "
            "or smaller units, or as integers."
        )
    return values


def refuse_masked(array: Any, what: str) -> None:
    """Raise if an array has masked entries, whose values NumPy would hand over as if they were data."""
    if np.ma.is_masked(array):
        raise ValueError(
            f"{what} has masked entries; remove these rows, or fill the entries with numpy.ma.filled (NaN, say, where "
            "they are no coordinates)."
        )


def comparable(coordinates: np.ndarray) -> np.ndarray:
    """Return what bounds from `exact_bound` are compared with: dates and durations as their integers."""
    if coordinates.dtype.kind in "mM":
        # In the machine's byte order, without which a view would read other integers.
        return coordinates.astype(coordinates.dtype.newbyteorder("="), copy=False).view(np.int64)
    if coordinates.dtype.kind == "V":
        return coordinates.astype(np.float32)  # bfloat16 and its like, which searches do not know
    return coordinates


def exact_range(start: Any, stop: Any, dtype: np.dtype, names: tuple[str, str] = ("start", "stop")) -> tuple[Any, Any]:
    """Return the bounds of a range as `exact_bound` does; None stays None.

    Parameters
    ----------
    start, stop : number, date, duration, str or None
    dtype : dtype
        Of the coordinates.
    names : tuple of str
        What to call the bounds in messages.

    Raises
    ------
    ValueError
        If stop is below start, even if no coordinate of the dtype lies between the two.
    """
    low = None if start is None else exact_bound(start, dtype, names[0])
    high = None if stop is None else exact_bound(stop, dtype, names[1])
    if low is not None and high is not None:
        # Floats that are rounded to the same coordinate name that coordinate.
        below = high < low if _holds_floats(dtype) else _unrounded(stop, dtype) < _unrounded(start, dtype)
        if below:
            raise ValueError(f"{names[1]}={stop!r} is below {names[0]}={start!r}.")
    return low, high


def _unrounded(bound: Any, dtype: np.dtype) -> Any:
    """Return a bound of integers, dates or durations as a number that compares exactly."""
    bound = _plain(bound, "bound")
    if dtype.kind in "mM" and not _is_infinite(bound):
        read = _date if dtype.kind == "M" else _duration
        return _attoseconds(read(bound, "bound"))
    if isinstance(bound, Integral):
        return int(bound)
    return bound if isinstance(bound, np.longdouble) else float(bound)


def exact_bound(bound: Any, dtype: np.dtype, name: str) -> Any:
    """Return a bound that compares exactly with coordinates of a dtype.

    Parameters
    ----------
    bound : number, date, duration or str
        Also as an array without dimensions, of any library. Text is read as an ISO date; infinities are allowed
        for every dtype.
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
    bound = _plain(bound, name)
    if isinstance(bound, Real) and not isinstance(bound, np.timedelta64):
        if bound != bound:
            raise ValueError(f"{name} is NaN; give a number, or None for no bound.")
        if _is_infinite(bound):
            return dtype.type(bound) if _holds_floats(dtype) else float(bound)
        if _holds_floats(dtype):
            return _nearest(bound, dtype)
        if dtype.kind in "iu":
            # math.ceil would take NumPy's longest floats through Python's.
            above: Any = int(np.ceil(bound)) if isinstance(bound, np.floating) else math.ceil(bound)
            return _within(above, dtype)
        example = {
            "M": f"a date, such as {name}='2024-01-31'",
            "m": f"a duration, such as {name}=numpy.timedelta64(5, 's')",
        }
        raise TypeError(
            f"{name}={bound!r} is a number, but the coordinates are {_described(dtype)}; give "
            f"{example.get(dtype.kind, 'one of those')}."
        )
    if dtype.kind == "m":
        return _within(_ceil_ticks(_duration(bound, name), dtype), np.dtype(np.int64))
    if dtype.kind == "M":
        return _within(_ceil_ticks(_date(bound, name), dtype), np.dtype(np.int64))
    raise TypeError(f"{name}={bound!r} is no number, but the coordinates are {_described(dtype)}; give a number.")


def _plain(bound: Any, name: str) -> Any:
    """Return a bound that is an array without dimensions, of NumPy or another library, as the scalar in it."""
    if hasattr(bound, "__array__") and not isinstance(bound, np.generic):
        array = np.asarray(bound)
        if array.ndim:
            raise ValueError(f"{name} must be a scalar, got shape {array.shape}.")
        bound = array[()]
    if isinstance(bound, np.generic) and bound.dtype.kind == "V" and _holds_floats(bound.dtype):
        return float(bound)
    return bound


def _is_infinite(bound: Any) -> bool:
    return isinstance(bound, (float, np.floating)) and bool(abs(bound) == math.inf)


def _holds_floats(dtype: np.dtype) -> bool:
    """Say whether a dtype is one of floats: NumPy's, or one like bfloat16, which NumPy takes for a kind of its own."""
    if dtype.kind != "V":
        return dtype.kind == "f"
    return np.can_cast(dtype, np.float32) and not np.can_cast(dtype, np.int32)


def _described(dtype: np.dtype) -> str:
    return {"M": "dates", "m": "durations"}.get(dtype.kind, "numbers")


def _nearest(bound: Real, dtype: np.dtype) -> Any:
    """Round to the dtype; what lies beyond it becomes infinite."""
    with np.errstate(over="ignore"):
        try:
            if dtype.kind == "V" or not isinstance(bound, (Integral, np.floating)):
                return dtype.type(float(bound))
            return dtype.type(int(bound) if isinstance(bound, Integral) else bound)
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
        raise TypeError(
            f"{name}={bound!r} is no date, but the coordinates are dates; give a date"
            + (", such as the first date plus that duration." if _is_duration(bound) else ".")
        )
    if np.isnat(np.datetime64(bound)) if isinstance(bound, np.datetime64) else bound != bound:
        raise ValueError(f"{name} is NaT; give a date, or None for no bound.")
    date = time_values(np.array([bound], dtype=object), name)
    return date.astype("datetime64[D]") if np.datetime_data(date.dtype)[0] in ("Y", "M") else date


def _is_duration(bound: Any) -> bool:
    return isinstance(bound, (datetime.timedelta, np.timedelta64))


def _duration(bound: Any, name: str) -> np.ndarray:
    if not _is_duration(bound):
        raise TypeError(f"{name}={bound!r} is no duration, but the coordinates are durations; give a timedelta.")
    duration = bound if isinstance(bound, np.timedelta64) else np.timedelta64(bound)
    if np.isnat(duration):
        raise ValueError(f"{name} is NaT; give a timedelta, or None for no bound.")
    if np.datetime_data(duration.dtype)[0] not in _ATTOSECONDS:
        raise TypeError(f"{name}={bound!r} has no fixed length; give it in days or smaller units.")
    return np.array([duration])


def _attoseconds(bound: np.ndarray) -> int:
    """Return a date or duration in Python's unlimited integers."""
    unit, count = np.datetime_data(bound.dtype)
    return int(bound.astype(np.int64)[0]) * count * _ATTOSECONDS[unit]


def _ceil_ticks(bound: np.ndarray, dtype: np.dtype) -> int:
    """Express a date or duration in the unit of another dtype, rounded up."""
    unit, count = np.datetime_data(dtype)
    return -(-_attoseconds(bound) // (count * _ATTOSECONDS[unit]))
