"""TimeWindowSplit: cross-validation that cuts by time, strictly forwards."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import indexable

from skjaxwin import windows as win
from skjaxwin.columns import take_column
from skjaxwin.durations import parse_duration

__all__ = ["TimeWindowSplit"]


class TimeWindowSplit(BaseCrossValidator):
    r"""Split rows by time: every training row is older than every test row.

    A *time stamp* is one distinct time. Stamps are never split, so rows of one date are all in training or all in
    the test; neither the order of the rows nor the number of rows for each stamp matters. Tests end at the newest
    stamp, and at `step` before it, twice `step`, and so on; splits come oldest first.

    Parameters
    ----------
    n_splits : int, default=None
        How many splits: the newest ones. None: as many as there are.
    window : "expanding", int, float, timedelta or str, default="expanding"
        Which time stamps train: all before the test; that many; or those of a duration, ``(t - window, t]`` with t the
        newest stamp that may train. Numbers and durations as for `RollingJaxEstimator`.
    test_window : int, float, timedelta or str, default=1
        Which time stamps test: that many, or those of a duration, ``(t - test_window, t]``.
    step : int, float, timedelta or str, default=None
        From one test's end to the next one's, counted as `test_window` is; None: `test_window`, so that tests neither
        overlap nor leave anything out.
    gap : int, float, timedelta or str, default=0
        Time stamps that lie between training and test, or a duration: then a training row's time plus `gap` is before
        the test. The training window ends earlier by that.
    embargo : int, float, timedelta or str, default=0
        As `gap`, but from the end of a training row's label, and rows that are too close are left out of the training
        window, which stays where it is.
    min_train : int, float, timedelta or str, default=None
        Fewest time stamps before a test's gap, or the least time since the oldest stamp. None: one stamp if
        `n_splits` is given or the window expands, otherwise a whole `window`.
    time : int or str, default=None
        Position or name of the column of X that holds the time. None: the time is passed as ``groups``; without these
        every row is a stamp of its own.
    label_end : int or str, default=None
        Column of X that says until when a row's target was observed. Rows whose label ends in or after the test are
        left out of training (they are *purged*, [1]_). None: labels end when their row happens.

    See Also
    --------
    walk_forward_predict : Out-of-fold predictions, for any estimator.
    RollingJaxEstimator.walk_forward_predict : The same from windows of one fit.

    Notes
    -----
    An embargo after the test, as in [1]_, has no rows to act on here: what is newer than a test never trains for it.

    References
    ----------
    .. [1] Lopez de Prado, "Advances in Financial Machine Learning", Wiley 2018, chapter 7.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import TimeWindowSplit
    >>> time = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 2])
    >>> for train, test in TimeWindowSplit().split(time[:, None], groups=time):
    ...     print(time[train], time[test])
    [0 0 0] [1 1 1 1]
    [0 0 0 1 1 1 1] [2 2 2]
    """

    # Metadata routing: groups are taken where they are passed.
    __metadata_request__split = {"groups": True}  # noqa: RUF012

    def __init__(
        self,
        n_splits: int | None = None,
        *,
        window: Any = "expanding",
        test_window: Any = 1,
        step: Any = None,
        gap: Any = 0,
        embargo: Any = 0,
        min_train: Any = None,
        time: int | str | None = None,
        label_end: int | str | None = None,
    ) -> None:
        self.n_splits = n_splits
        self.window = window
        self.test_window = test_window
        self.step = step
        self.gap = gap
        self.embargo = embargo
        self.min_train = min_train
        self.time = time
        self.label_end = label_end

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Generate row numbers of training and test sets, oldest test first.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)
        y : array-like of shape (n_rows,), default=None
            Not looked at.
        groups : array-like of shape (n_rows,), default=None
            The time of each row: numbers or dates.

        Yields
        ------
        train, test : ndarray of int
            Ascending.

        Raises
        ------
        ValueError
            If there are fewer splits than `n_splits`, or none; if purging leaves nothing to train on for a test that is
            not among the oldest; for bad parameters, naming them.
        """
        for cut in self._cuts(X, y, groups):
            yield cut.train, cut.test

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of splits; X (or groups) is needed unless `n_splits` says it."""
        self._check_n_splits()
        if self.n_splits is not None:
            return int(self.n_splits)
        if X is None and groups is None:
            raise ValueError("With n_splits=None the number of splits follows from the data; pass X, or groups.")
        return len(self._cuts(groups if X is None else X, y, groups))

    def get_window_bounds(self, X: Any, y: Any = None, groups: Any = None) -> dict[str, np.ndarray]:
        """Report each split: the first and the last time that trains and tests, and how many rows.

        Parameters
        ----------
        X, y, groups
            As in `split`.

        Returns
        -------
        bounds : dict of ndarray of shape (n_splits,)
            ``train_first``, ``train_last``, ``test_first``, ``test_last``, ``n_train`` and ``n_test``; a dataframe
            takes it as it is.
        """
        cuts = self._cuts(X, y, groups)
        names = ("train_first", "train_last", "test_first", "test_last")
        bounds = {name: np.array([getattr(cut, name) for cut in cuts]) for name in names}
        return bounds | {f"n_{part}": np.array([len(getattr(cut, part)) for cut in cuts]) for part in ("train", "test")}

    def _cuts(self, X: Any, y: Any, groups: Any) -> list[_Cut]:
        times, ends = self._times(X, y, groups)
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        timeline = win.make_timeline(times, n_rows)
        rule = _Rule(self, timeline.stamps)
        edges = np.append(0, np.cumsum(np.bincount(timeline.codes, minlength=len(timeline.stamps))))
        label_ends = timeline.stamps[timeline.codes] if ends is None else ends[timeline.order]
        cuts: list[_Cut] = []
        purged: list[Any] = []
        for first, stop in rule.tests():
            if self.n_splits is not None and len(cuts) == self.n_splits:
                break
            begin, end = rule.training(first)
            if begin is None:
                break
            rows = np.arange(edges[begin], edges[end])
            rows = rows[rule.known_before(label_ends[rows], first)]
            if len(rows) == 0:
                purged.append(timeline.stamps[first])
                continue
            if purged:  # only the oldest tests may lack rows to train on, as they do without any purging
                raise ValueError(
                    f"No row trains for the test that begins at {purged[0]}: within the window, all labels end too "
                    "late; widen window, or lower embargo."
                )
            of_test = timeline.order[edges[first] : edges[stop]]
            codes = timeline.codes[rows[[0, -1]]]
            inner = timeline.stamps[[*codes, first, stop - 1]]
            cuts.append(_Cut(np.sort(timeline.order[rows]), np.sort(of_test), *inner))
        self._check_number(len(cuts), len(timeline.stamps))
        return cuts[::-1]

    def _check_n_splits(self) -> None:
        if self.n_splits is not None and not (_is_count(self.n_splits) and self.n_splits >= 1):
            raise ValueError(f"n_splits={self.n_splits!r} must be a positive integer, or None.")

    def _check_number(self, found: int, n_stamps: int) -> None:
        wanted = 1 if self.n_splits is None else self.n_splits
        if found >= wanted:
            return
        if self.n_splits is not None and wanted + 1 > n_stamps:
            raise ValueError(
                f"Cannot have number of folds={wanted + 1} greater than the number of time stamps={n_stamps}."
            )
        parameters = ("window", "test_window", "step", "gap", "embargo", "min_train")
        told = ", ".join(f"{name}={getattr(self, name)!r}" for name in parameters)
        raise ValueError(f"Too many splits={wanted} for {n_stamps} time stamps with {told}: {found} are possible.")

    def _times(self, X: Any, y: Any, groups: Any) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the times of rows and of the ends of their labels."""
        self._check_n_splits()
        indexable(X, y, groups)
        if groups is not None and self.time is not None:
            raise ValueError("The time is given twice, as groups and by the parameter time; give one of them.")
        times = None
        if self.time is not None:
            times = win.time_values(take_column(X, "time", self.time), f"time ({self.time!r})")
        elif groups is not None:
            times = win.time_values(_one_column(groups), "groups (time)")
        if self.label_end is None:
            return times, None
        ends = win.time_values(take_column(X, "label_end", self.label_end), f"label_end ({self.label_end!r})")
        start = np.arange(len(ends)) if times is None else times
        if (ends.dtype.kind == "M") != (start.dtype.kind == "M"):
            raise ValueError(
                f"label_end holds {ends.dtype}, but the time {start.dtype}; both must be dates, or numbers."
            )
        if (ends < start).any():
            row = int(np.argmax(ends < start))
            raise ValueError(f"label_end: the label of row {row} ends at {ends[row]}, before its time {start[row]}.")
        return times, ends


@dataclass(frozen=True)
class _Cut:
    """Rows of one split, and the times at its ends."""

    train: np.ndarray
    test: np.ndarray
    train_first: Any
    train_last: Any
    test_first: Any
    test_last: Any


class _Span(int):
    """A duration between integers, which is no number of stamps."""


class _Rule:
    """The parameters of a splitter, read for given time stamps; stamps are meant by their positions."""

    def __init__(self, splitter: TimeWindowSplit, stamps: np.ndarray) -> None:
        self.stamps = stamps
        self.expanding = isinstance(splitter.window, str) and splitter.window == "expanding"
        self.window: Any = None if self.expanding else self._length("window", splitter.window, 1)
        self.test_window = self._length("test_window", splitter.test_window, 1)
        self.step = self.test_window if splitter.step is None else self._length("step", splitter.step, 1)
        if _is_count(self.step) != _is_count(self.test_window):
            raise ValueError(
                f"step={splitter.step!r} and test_window={splitter.test_window!r} must both count time stamps, or both "
                "be durations."
            )
        self.gap = self._length("gap", splitter.gap, 0)
        self.embargo = self._length("embargo", splitter.embargo, 0)
        if splitter.min_train is not None:
            self.min_train = self._length("min_train", splitter.min_train, 1)
        else:
            self.min_train = 1 if self.expanding or splitter.n_splits is not None else self.window

    def _length(self, name: str, value: Any, least: int) -> Any:
        if isinstance(value, bool | np.bool_):
            raise ValueError(f"{name}={value!r} must be a number of time stamps, or a duration.")
        if _is_count(value):
            if value < least:
                raise ValueError(f"{name}={value!r} must be at least {least}, or a duration.")
            return int(value)
        duration = parse_duration(value, self.stamps, name, zero=least == 0)
        if self.stamps.dtype.kind in "iu" and (name not in ("step", "test_window") or duration.is_integer()):
            # Less than 1.5 apart is less than 2 apart, and more than 1.5 apart more than 1: exact beyond 2**53, too.
            return _Span(math.floor(duration) if least == 0 else math.ceil(duration))
        return duration

    def _rounding(self, duration: Any) -> Any:
        return win.rounding_of(self.stamps, duration)

    def tests(self) -> Iterator[tuple[int, int]]:
        """Yield the stamps [first, stop) of tests, newest first."""
        n = len(self.stamps)
        if _is_count(self.test_window):
            for stop in range(n, self.test_window - 1, -self.step):
                yield stop - self.test_window, stop
            return
        stop, i = n, 0
        off = self._rounding(self.test_window) + self._rounding(self.step)
        # Below the oldest stamp there is nothing, and integers may wrap round.
        while stop > 0 and i * self.step <= self.stamps[-1] - self.stamps[0] + off:
            latest = self.stamps[-1] - i * self.step
            stop = int(np.searchsorted(self.stamps, latest + off, side="right"))
            first = int(np.searchsorted(self.stamps, latest - self.test_window + off, side="right"))
            if first < stop:
                yield first, stop
                i += 1
            elif stop:  # no stamp in this one: go on to the first that reaches back to the next one
                between = self.stamps[-1] - self.stamps[stop - 1] - self.test_window - off
                i = max(i + 1, int(between // self.step))

    def training(self, first: int) -> tuple[int | None, int]:
        """Return the stamps [begin, end) that train for a test, None if they are too few."""
        end = self._before(self.stamps, first, self.gap)
        if end == 0 or not self._enough(end):
            return None, end
        if self.expanding:
            return 0, end
        if _is_count(self.window):
            return max(end - self.window, 0), end
        oldest = self.stamps[end - 1] - self.window + self._rounding(self.window)
        return int(np.searchsorted(self.stamps, oldest, side="right")), end

    def _before(self, times: np.ndarray, first: int, distance: Any) -> int:
        """Return how many of ascending times lie before a test, by more than a distance."""
        if _is_count(distance):
            return max(first - distance, 0)
        return int(np.searchsorted(times, self.stamps[first] - distance - self._rounding(distance), side="left"))

    def _enough(self, end: int) -> bool:
        if _is_count(self.min_train):
            return end >= self.min_train
        return bool(self.stamps[end - 1] - self.stamps[0] >= self.min_train - self._rounding(self.min_train))

    def known_before(self, label_ends: np.ndarray, first: int) -> np.ndarray:
        """Say of which rows the label ended before a test, by more than the embargo."""
        if _is_count(self.embargo):
            position = np.searchsorted(self.stamps, label_ends, side="right") - 1
            return (label_ends < self.stamps[first]) & (position + self.embargo < first)
        return label_ends + self.embargo < self.stamps[first] - self._rounding(self.embargo)


def _is_count(value: Any) -> bool:
    """Say whether a length counts time stamps (numpy.timedelta64 registers as an integer)."""
    return isinstance(value, numbers.Integral) and not isinstance(value, np.timedelta64 | bool | _Span)


def _one_column(groups: Any) -> Any:
    """Keep a dataframe's column, whose dates know their zone; make an array of anything else."""
    return groups if hasattr(groups, "dtype") else np.asarray(groups)
