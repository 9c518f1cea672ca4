"""Half-open ranges ``[start, stop)`` and their unions: parameters in, masks out. NumPy only."""

from __future__ import annotations

import datetime
import operator
from numbers import Real
from typing import Any

import numpy as np

from skjaxwin.bounds import comparable, exact_bound

__all__ = ["BOUND", "described", "parse_ranges", "position_masks", "refuse_empty", "value_masks"]

# What a bound may be, as scikit-learn's parameter constraints; numpy.timedelta64 registers as a number.
BOUND: list[Any] = [Real, str, datetime.date, datetime.timedelta, np.datetime64, np.timedelta64, "array-like", None]

Ranges = list[tuple[Any, Any]]


def parse_ranges(start: Any, stop: Any) -> Ranges:
    """Pair bounds.

    Parameters
    ----------
    start, stop : scalar, None, or sequences of equal length of these

    Returns
    -------
    ranges : list of (start, stop)

    Raises
    ------
    ValueError
        For sequences of different length, or without a range.
    """
    starts, stops = _listed(start, "start"), _listed(stop, "stop")
    if starts is None and stops is None:
        return [(_scalar(start), _scalar(stop))]
    if starts is None or stops is None or len(starts) != len(stops):
        raise ValueError(
            f"start and stop must be two bounds, or two lists of equal length (None stands for no bound); got "
            f"start={start!r} and stop={stop!r}."
        )
    if not starts:
        raise ValueError("start and stop are empty lists; give at least one range, or None for no bound.")
    return list(zip(starts, stops, strict=True))


def _listed(bounds: Any, name: str) -> list[Any] | None:
    """Return a sequence of bounds as a list, None for a single bound."""
    if np.ndim(bounds) == 0:
        return None
    if np.ndim(bounds) > 1:
        raise ValueError(f"{name} must be a bound or a flat list of bounds, got shape {np.shape(bounds)}.")
    return list(bounds)


def _scalar(bound: Any) -> Any:
    """Return an array without dimensions as the scalar in it."""
    return bound[()] if isinstance(bound, np.ndarray) else bound


def described(ranges: Ranges) -> str:
    """Write ranges as intervals, for messages."""
    return " or ".join(
        f"[{'...' if start is None else start}, {'...' if stop is None else stop})" for start, stop in ranges
    )


def value_masks(coordinates: np.ndarray, ranges: Ranges, *, refuse_reversed: bool = True) -> np.ndarray:
    """Say which coordinates lie in each range.

    Parameters
    ----------
    coordinates : ndarray of shape (n_points,)
        As returned by `bounds.coordinate_values`, in any order.
    ranges : list of (start, stop)
    refuse_reversed : bool, default=True
        Whether to raise if a stop is not above its start. Bounds that were in order for the data of a fit need not
        be so in the dtype of other data: no integer lies in [5.1, 5.9).

    Returns
    -------
    masks : ndarray of bool of shape (n_ranges, n_points)

    Raises
    ------
    ValueError
        If a stop is not above its start, unless that is let through.
    """
    x = comparable(coordinates)
    masks = np.ones((len(ranges), len(x)), bool)
    for mask, (start, stop) in zip(masks, ranges, strict=True):
        low = None if start is None else exact_bound(start, coordinates.dtype, "start")
        high = None if stop is None else exact_bound(stop, coordinates.dtype, "stop")
        if refuse_reversed and low is not None and high is not None and not low < high:
            _refuse_order(start, stop, f" as {coordinates.dtype}")
        if low is not None:
            mask &= x >= low
        if high is not None:
            mask &= x < high
    return masks


def position_masks(n: int, ranges: Ranges) -> np.ndarray:
    """Say which of `n` positions lie in each range; negative bounds count from the end, as in slices.

    Returns
    -------
    masks : ndarray of bool of shape (n_ranges, n)

    Raises
    ------
    ValueError
        If a stop is not above its start.
    TypeError
        If a bound is no integer.
    """
    masks = np.zeros((len(ranges), n), bool)
    for mask, (start, stop) in zip(masks, ranges, strict=True):
        low, high = position(start, "start"), position(stop, "stop")
        if low is not None and high is not None and (low < 0) == (high < 0) and low >= high:
            _refuse_order(start, stop)
        mask[low:high] = True
    return masks


def position(bound: Any, name: str) -> int | None:
    """Return a position as an integer; None stays None."""
    if bound is None:
        return None
    try:
        if isinstance(bound, (bool, np.bool_, np.timedelta64)):
            raise TypeError
        return operator.index(bound)
    except TypeError:
        raise TypeError(f'{name}={bound!r} is no position; positions (by="position") are integers or None.') from None


def _refuse_order(start: Any, stop: Any, compared: str = "") -> None:
    raise ValueError(
        f"start={start!r} is not below stop={stop!r}{compared}; a range is half-open, [start, stop), and must hold "
        "something."
    )


def refuse_empty(masks: np.ndarray, ranges: Ranges, what: str, *, coordinates: np.ndarray | None, each: bool) -> None:
    """Raise if nothing lies in the ranges.

    Parameters
    ----------
    masks : ndarray of bool of shape (n_ranges, n_points)
    ranges : list of (start, stop)
    what : str
        What the points are, "row" or "column".
    coordinates : ndarray of shape (n_points,) or None
        To say where the data are; None for positions.
    each : bool
        Whether every range must hold something, or only their union.
    """
    filled: np.ndarray = np.logical_or.reduce(masks, axis=1)
    if filled.all() or (filled.any() and not each):
        return
    empty = [r for r, full in zip(ranges, filled, strict=True) if not full]
    where = f"X has {masks.shape[1]} {'sample' if what == 'row' else 'feature'}(s)"
    if coordinates is not None:
        where += f" with coordinates from {coordinates.min()} to {coordinates.max()}"
    raise ValueError(
        f"No {what} lies in {described(empty)}; {where}. Choose start and stop so that the range holds some."
    )
