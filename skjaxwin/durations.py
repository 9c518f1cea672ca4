"""Durations such as "90D", timedelta(days=90) or 90.0, in the unit of the time stamps. NumPy only."""

from __future__ import annotations

import numbers
import re
from typing import Any

import numpy as np

__all__ = ["parse_duration"]

_UNITS = {
    "w": "W",
    "d": "D",
    "day": "D",
    "days": "D",
    "h": "h",
    "hour": "h",
    "hours": "h",
    "min": "m",
    "t": "m",
    "s": "s",
    "sec": "s",
    "ms": "ms",
    "us": "us",
    "ns": "ns",
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


def parse_duration(value: Any, stamps: np.ndarray, name: str, *, zero: bool = False) -> Any:
    """Express a duration in the unit of the time stamps.

    Parameters
    ----------
    value : float, timedelta, numpy.timedelta64 or str such as "90D"
        The duration.
    stamps : ndarray
        The distinct times.
    name : str
        The parameter, for messages.
    zero : bool
        Whether it may be zero.

    Returns
    -------
    duration : float or numpy.timedelta64
        A positive duration that can be subtracted from a stamp.

    Raises
    ------
    ValueError
        If the text cannot be read, the duration is not positive, or its kind
        does not fit the time column.
    """
    dated = stamps.dtype.kind == "M"
    if isinstance(value, numbers.Real) and not isinstance(value, np.timedelta64):
        if dated:
            raise ValueError(
                f"{name}={value!r} has no unit, but the time column holds dates; "
                f"write a duration such as {name}='90D' or datetime.timedelta(days=90)."
            )
        duration: Any = float(value)
        if not (0 < duration < np.inf or (zero and duration == 0)):
            raise ValueError(f"{name}={value!r} must be positive and finite.")
        return duration
    duration = _text_duration(value, name) if isinstance(value, str) else _timedelta(value)
    if not dated:
        raise ValueError(
            f"{name}={value!r} is a duration in calendar units, but the times are plain numbers "
            f"(or there is no time column); give {name} as a number in the times' own unit."
        )
    least = np.timedelta64(0, "s")
    if np.isnat(duration) or duration < least or (duration == least and not zero):
        raise ValueError(f"{name}={value!r} must be a positive duration.")
    return _in_coarsest_unit(duration)


def _timedelta(value: Any) -> np.timedelta64:
    """Convert datetime, pandas and NumPy durations exactly."""
    if isinstance(value, np.timedelta64):
        return value
    nanoseconds = getattr(value, "value", None)  # pandas.Timedelta
    if isinstance(nanoseconds, int) and hasattr(value, "nanoseconds"):
        return np.timedelta64(value.to_timedelta64())
    return np.timedelta64(value, "us")


def _in_coarsest_unit(duration: np.timedelta64) -> np.timedelta64:
    """Express a duration in the coarsest unit that keeps it exact.

    Subtracting nanoseconds would drag dates into the range of datetime64[ns], which ends in 2262.
    """
    for unit in ("D", "h", "m", "s", "ms", "us"):
        coarse = duration.astype(f"timedelta64[{unit}]")
        if coarse == duration:
            return coarse
    return duration


def _text_duration(text: str, name: str) -> np.timedelta64:
    """Read a duration such as "90D", "36h", "15min" or "1.5h"."""
    match = _DURATION.fullmatch(text)
    unit: Any = _UNITS.get(match.group(2).lower()) if match else None
    if match is None or unit is None:
        raise ValueError(
            f"{name}={text!r} cannot be read; write a number and one of the units W, D, h, min, s, ms, us, ns, "
            f"for example '90D' (months and years have no fixed length){_other_text(name)}."
        )
    number = match.group(1)
    if "." not in number:
        return np.timedelta64(int(number), unit)
    in_nanoseconds = np.timedelta64(1, unit) / np.timedelta64(1, "ns")
    return np.timedelta64(round(float(number) * float(in_nanoseconds)), "ns")


def _other_text(name: str) -> str:
    return ", or 'expanding'" if name == "window" else ""
