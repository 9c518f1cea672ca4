"""Which rows belong to which window: times in, row bounds out. NumPy only.

A *time stamp* is one distinct value of the time column; without a time column
every row is its own stamp. Times are turned into dense integer codes here, on
the host, because a 32-bit float cannot tell 20240101 from 20240102. All bounds
are half-open row ranges ``[start, stop)`` in time order, and rows of equal time
are never separated.
"""

from __future__ import annotations

import datetime
import math
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from skjaxwin.durations import parse_duration

__all__ = [
    "Timeline",
    "Windows",
    "ages_in_halflives",
    "first_stamps",
    "halflives_since",
    "is_missing",
    "make_timeline",
    "make_windows",
    "newest_window_before",
    "rounding_of",
    "time_values",
    "too_few_rows",
]


@dataclass(frozen=True)
class Timeline:
    """Rows sorted by time.

    Attributes
    ----------
    order : ndarray of shape (n_rows,)
        The rows in time order; rows of equal time keep the caller's order.
    stamps : ndarray of shape (n_stamps,)
        The distinct times, ascending (integers, floats or datetime64).
    codes : ndarray of shape (n_rows,)
        For each row in time order, the position of its time in ``stamps``.
    """

    order: np.ndarray
    stamps: np.ndarray
    codes: np.ndarray

    def keep(self, rows: np.ndarray) -> Timeline:
        """Return the timeline of the rows (boolean mask, caller's order) to keep."""
        kept = rows[self.order]
        used, codes = np.unique(self.codes[kept], return_inverse=True)
        return Timeline(self.order[kept], self.stamps[used], codes)

    def skip(self, rows: np.ndarray) -> Timeline:
        """Return the timeline of the rows (boolean mask, caller's order) to keep, with all time stamps."""
        kept = rows[self.order]
        return Timeline(self.order[kept], self.stamps, self.codes[kept])

    def one_row_each(self) -> bool:
        """Say whether each stamp has one row."""
        if self.codes is self.stamps:  # without a time column, as `make_timeline` numbers them
            return True
        return len(self.stamps) == len(self.codes) and bool(self.codes[0] == 0 and (np.diff(self.codes) == 1).all())


@dataclass(frozen=True)
class Windows:
    """Row bounds of every window, oldest window first.

    Attributes
    ----------
    starts, stops : ndarray of shape (n_windows,)
        Half-open row bounds in time order.
    last_stamps : ndarray of shape (n_windows,)
        Position of each window's newest time stamp in ``Timeline.stamps``.
    times : ndarray of shape (n_windows,)
        The newest time of each window.
    max_rows : int or None
        A bound on the rows that one window can hold, None for expanding windows.
    """

    starts: np.ndarray
    stops: np.ndarray
    last_stamps: np.ndarray
    times: np.ndarray
    max_rows: int | None


def time_values(column: Any, name: str = "time") -> np.ndarray:
    """Turn a column into sortable times without going through floats.

    Parameters
    ----------
    column : array-like of shape (n_rows,)
        Integers, floats, datetime64, timedelta64, pandas or polars datetimes
        (with or without a time zone), or datetime objects.
    name : str
        What to call the column in messages.

    Returns
    -------
    times : ndarray of shape (n_rows,)
        int, float, or datetime64 values.

    Raises
    ------
    ValueError
        If a time is NaN, NaT or infinite.
    TypeError
        If the column holds neither numbers nor dates.
    """
    dtype: Any = getattr(column, "dtype", None)
    if getattr(dtype, "kind", None) == "M" and not isinstance(column, np.ndarray):
        # A pandas column with a time zone would become objects: ask for UTC.
        unit = getattr(dtype, "unit", None) or getattr(getattr(dtype, "pyarrow_dtype", None), "unit", "ns")
        column = np.asarray(column, dtype=f"datetime64[{unit}]")
    times = np.asarray(column)
    if times.ndim != 1:
        raise ValueError(f"The {name} column must be 1-dimensional, got shape {times.shape}.")
    if times.dtype.kind == "O":
        times = _objects_to_times(times, name)
    if times.dtype.kind == "m":
        unit = np.datetime_data(times.dtype)[0]
        times = times.astype(np.int64).astype(f"datetime64[{unit}]")
    # Differences of narrow numbers, or of numbers without a sign, would leave their range.
    if times.dtype.kind in "biu":
        if times.dtype == np.uint64 and len(times) and times.max() > np.iinfo(np.int64).max:
            raise ValueError(
                f"The {name} column holds {times.max()}, which is above the largest time of {np.iinfo(np.int64).max}; "
                "subtract the first time."
            )
        times = times.astype(np.int64, copy=False)
    if times.dtype.kind == "f" and times.dtype.itemsize < 8:
        times = times.astype(np.float64)
    if times.dtype.kind == "M":
        missing = np.isnat(times)
    elif times.dtype.kind == "f":
        missing = np.isnan(times)
        if np.isinf(times).any():
            raise ValueError(f"The {name} column contains infinity; it must be finite.")
    elif times.dtype.kind in "iu":
        missing = np.zeros(0, dtype=bool)
    else:
        raise TypeError(
            f"The {name} column has dtype {times.dtype}; it must hold numbers or dates. "
            "Convert text with pandas.to_datetime or numpy.asarray(..., dtype='datetime64[D]')."
        )
    if missing.any():
        raise ValueError(
            f"The {name} column contains NaN or NaT in {int(missing.sum())} row(s), the first at "
            f"row {int(np.argmax(missing))}; remove these rows, every row needs a {name}."
        )
    return times


def _objects_to_times(values: np.ndarray, name: str) -> np.ndarray:
    """Convert objects to datetime64 where they are dates, to numbers otherwise."""
    missing = np.array([is_missing(v) for v in values], dtype=bool)
    present = values[~missing]
    if any(isinstance(v, str) for v in present):
        raise TypeError(
            f"The {name} column holds text; convert it with pandas.to_datetime or "
            "numpy.asarray(..., dtype='datetime64[D]')."
        )
    if len(present) and all(isinstance(v, (datetime.date, np.datetime64)) for v in present):
        known = np.array([_utc(v) for v in present])  # of the finest unit among them
        dates = np.full(len(values), "NaT", known.dtype)
        dates[~missing] = known
        return dates
    whole = not missing.any() and all(isinstance(v, numbers.Integral) for v in present)
    result = np.full(len(values), np.nan) if not whole else np.empty(len(values), np.int64)
    try:
        result[~missing] = np.array(present, dtype=result.dtype)
    except OverflowError:
        raise ValueError(f"The {name} column holds integers beyond 64 bits; give them in a larger unit.") from None
    except TypeError as error:
        raise TypeError(
            f"{error}: the {name} column must hold numbers or dates; convert others to dates "
            "(a pandas Period with .dt.to_timestamp())."
        ) from error
    return result


def is_missing(value: Any) -> bool:
    """Say whether an object is None, NaN, NaT or pandas.NA."""
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA has no truth value
        return True


def _utc(value: Any) -> np.datetime64:
    """Return a date or datetime in UTC without its zone, which NumPy cannot hold."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    if hasattr(value, "to_datetime64"):  # pandas.Timestamp, which may hold nanoseconds
        return value.to_datetime64()
    return np.datetime64(value)


def make_timeline(times: np.ndarray | None, n_rows: int) -> Timeline:
    """Sort rows by time and number the distinct times.

    Parameters
    ----------
    times : ndarray of shape (n_rows,) or None
        As returned by `time_values`; None makes every row its own stamp.
    n_rows : int
        Number of rows.
    """
    if times is None:
        rows = np.arange(n_rows)
        return Timeline(rows, rows, rows)
    order = np.argsort(times, kind="stable")
    stamps, codes = np.unique(times[order], return_inverse=True)
    return Timeline(order, stamps, codes)


def make_windows(
    timeline: Timeline, *, window: Any = "expanding", step: int = 1, min_periods: int = 1, why: str = ""
) -> Windows:
    """Cut a timeline into windows.

    Parameters
    ----------
    timeline : Timeline
        The rows in time order; at least one row.
    window : "expanding", int, float, timedelta or str
        Everything so far; that many most recent time stamps; or a duration, the
        half-open span ``(t - window, t]``.
    step : int
        One window at every ``step``-th time stamp, and always one at the last.
    min_periods : int
        Windows with fewer rows are left out.
    why : str
        Where `min_periods` comes from, for messages.

    Returns
    -------
    windows : Windows
        At least one window.

    Raises
    ------
    ValueError
        If no window holds ``min_periods`` rows, or `window` cannot be read.
    """
    n_stamps = len(timeline.stamps)
    single = timeline.one_row_each()
    last = np.arange(step - 1, n_stamps, step)
    if len(last) == 0 or last[-1] != n_stamps - 1:
        last = np.append(last, n_stamps - 1)
    max_rows: int | None = None
    first = first_stamps(timeline.stamps, last, window)
    if single:
        starts, stops = first, last + 1
    else:
        # The codes ascend: counting them is a searchsorted of every stamp, only faster.
        edges = np.append(0, np.cumsum(np.bincount(timeline.codes, minlength=n_stamps)))
        starts, stops = edges[first], edges[last + 1]
    sizes = stops - starts
    if not (isinstance(window, str) and window == "expanding"):
        max_rows = int(sizes.max())
        if _is_count(window) and single:
            max_rows = int(window)  # one row per stamp: the same width for every data size
    enough = sizes >= max(min_periods, 1)
    if not enough.any():
        raise too_few_rows(min_periods, int(sizes.max()), why)
    if not enough.all():
        starts, stops, last = starts[enough], stops[enough], last[enough]
    times = timeline.stamps if len(last) == n_stamps else timeline.stamps[last]
    return Windows(starts, stops, last, times, max_rows)


def first_stamps(stamps: np.ndarray, last: np.ndarray, window: Any) -> np.ndarray:
    """Return the oldest stamp of the windows that end at given ones; stamps are meant by their positions."""
    if isinstance(window, str) and window == "expanding":
        return np.zeros_like(last)
    if _is_count(window):
        return np.maximum(last - int(window) + 1, 0)
    return _first_stamps_within(stamps, last, parse_duration(window, stamps, "window"))


def too_few_rows(min_periods: int, most: int, why: str) -> ValueError:
    """Return the error that no window can be fitted, given the most rows that one holds."""
    return ValueError(
        f"min_periods={min_periods}{why}: no window holds that many rows of positive weight "
        f"(the largest holds {most}); lower min_periods or widen the window."
    )


def _is_count(window: Any) -> bool:
    """Say whether a window counts time stamps (numpy.timedelta64 registers as an integer)."""
    return isinstance(window, numbers.Integral) and not isinstance(window, np.timedelta64)


def _first_stamps_within(stamps: np.ndarray, last: np.ndarray, duration: Any) -> np.ndarray:
    """Return the first stamp later than ``stamps[last] - duration``."""
    if stamps.dtype.kind in "iu":
        # Between integers, less than 1.5 apart means less than 2 apart; so times beyond 2**53 stay exact.
        stamps = (stamps - stamps[0]).astype(np.int64)
        duration = min(math.ceil(duration), 2**62)
    return np.searchsorted(stamps, stamps[last] - duration + rounding_of(stamps, duration), side="right")


def rounding_of(stamps: np.ndarray, duration: Any) -> Any:
    """Return how much a time less a duration may be off: times such as 0.3 and 0.1 are no binary fractions.

    Zero for integers and dates, and where all are whole numbers. Differences within this count as equal.

    Parameters
    ----------
    stamps : ndarray
        Ascending.
    duration : float or numpy.timedelta64
    """
    if stamps.dtype.kind != "f":
        return duration - duration  # in its unit
    if float(duration).is_integer() and (stamps == np.floor(stamps)).all():
        return 0.0
    return 2 * np.finfo(stamps.dtype).eps * (max(abs(stamps[0]), abs(stamps[-1])) + duration)


def newest_window_before(times: np.ndarray, stamps: np.ndarray, last_stamps: np.ndarray, gap: int) -> np.ndarray:
    """Return for each time the newest window that ended strictly before it.

    Parameters
    ----------
    times : ndarray of shape (n_rows,)
        Times to predict at.
    stamps : ndarray of shape (n_stamps,)
        The distinct times known from fitting.
    last_stamps : ndarray of shape (n_windows,)
        Each window's newest stamp, ascending.
    gap : int
        Known stamps that must lie between the window's end and the row's time.

    Returns
    -------
    window : ndarray of shape (n_rows,)
        Position of the window, -1 where there is none.

    Raises
    ------
    ValueError
        If dates are compared with numbers.
    """
    if (times.dtype.kind == "M") != (stamps.dtype.kind == "M"):
        raise ValueError(
            f"The time column has dtype {times.dtype}, but it was fitted with {stamps.dtype}; "
            "use dates in both or numbers in both."
        )
    newest_allowed = np.searchsorted(stamps, times, side="left") - 1 - gap
    return np.searchsorted(last_stamps, newest_allowed, side="right") - 1


def ages_in_halflives(timeline: Timeline, halflife: Any) -> np.ndarray:
    """Return each row's time since the first row, in half-lives (float64).

    The weight of row i in a window that ends at row j is
    ``2 ** (position[i] - position[j])``.
    """
    return halflives_since(timeline.stamps[0], timeline.stamps, halflife)[timeline.codes]


def halflives_since(origin: Any, stamps: np.ndarray, halflife: Any) -> np.ndarray:
    """Return the time from an origin to each stamp, in half-lives (float64)."""
    halflife = parse_duration(halflife, stamps, "halflife")
    since = stamps - origin  # integers and dates: exact before the division
    with np.errstate(over="ignore"):
        position = np.asarray(since / halflife, dtype=np.float64)
    if not np.isfinite(position).all():
        raise ValueError(f"halflife={halflife!r} is too short for times that span {since[-1]!r}.")
    return position
