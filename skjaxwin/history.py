"""What a fitted estimator remembers of its rows: those that windows to come may hold."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skjaxwin import windows as win
from skjaxwin.kernels import Rows, Running, bucket
from skjaxwin.models import WindowModel
from skjaxwin.problem import Given, Problem, fewest_rows, in_two_parts
from skjaxwin.spare_room import Column

__all__ = ["Extension", "History"]

# Parameters that give windows their meaning: all windows must be fitted with the same.
_SETTINGS = (
    "window",
    "time",
    "step",
    "min_periods",
    "halflife",
    "underdetermined",
    "missing",
    "inference",
    "hac_maxlags",
    "cluster",
    "exposure",
)
# A fit's own capacity serves later rows up to this size: its kernels are compiled already.
_SMALL = 4096
# Up to here floats hold every integer.
_EXACT = 2**53


@dataclass(frozen=True)
class History:
    """Rows of the newest window and, where windows expand, all before; a row is meant by its place in time order.

    Attributes
    ----------
    X, y, weight, age : Column
        As in `kernels.Rows`; y and age may be None.
    code, position : Column
        Each row's time stamp, by its number, and its place among all rows, those without weight included.
    cluster : Column or None
    stamps : Column
        All time stamps.
    first : int
        The oldest stamp of the newest window.
    n_rows : int
        How many rows there have been, with those that do not count.
    newest : number or datetime64
        The newest of their times.
    capacity : int
        Rows are padded to this many.
    max_rows : int or None
        The most rows of a window so far, None for expanding windows.
    running : Running
        For expanding windows of additive models.
    model : WindowModel
    settings : dict
        The estimator's parameters that must not change.
    """

    X: Column
    y: Column | None
    weight: Column
    age: Column | None
    code: Column
    position: Column
    cluster: Column | None
    stamps: Column
    first: int
    n_rows: int
    newest: Any
    capacity: int
    max_rows: int | None
    running: Running
    model: WindowModel
    settings: dict[str, Any]

    @classmethod
    def of(cls, estimator: Any, problem: Problem, capacity: int) -> History:
        """Return what to remember of a fit whose rows were padded to a capacity."""
        timeline, rows = problem.timeline, problem.rows
        first = int(win.first_stamps(timeline.stamps, np.array([len(timeline.stamps) - 1]), estimator.window)[0])
        begin = int(np.searchsorted(timeline.codes, first))

        def column(array: np.ndarray | None, own: bool = False) -> Any:
            # The caller may write to theirs; and the newest rows alone must not keep the memory of all.
            return None if array is None else Column(array if own and begin == 0 else array[begin:].copy())

        position = np.arange(len(rows.X)) if problem.kept is None else problem.kept
        return cls(
            X=column(rows.X),
            y=column(rows.y),
            weight=column(rows.weight),
            age=column(rows.age),
            code=column(timeline.codes, own=True),
            position=column(position, own=True),
            cluster=column(problem.clusters),
            stamps=Column(timeline.stamps),
            first=first,
            n_rows=len(problem.X),
            newest=problem.times.max(),
            capacity=capacity if capacity <= _SMALL or begin == 0 else bucket(len(rows.X) - begin),
            max_rows=problem.windows.max_rows,
            running=Running(),
            model=problem.model,
            settings={name: getattr(estimator, name) for name in _SETTINGS},
        )

    def check(self, estimator: Any, model: WindowModel) -> None:
        """Refuse to go on with other parameters than those of the windows so far."""
        changed = [name for name, value in self.settings.items() if not _same(getattr(estimator, name), value)]
        old, new = self.model.hyperparameters(), model.hyperparameters()
        same_numbers = old.keys() == new.keys() and all(np.array_equal(old[name], new[name]) for name in old)
        if self.model.static_key() != model.static_key() or not same_numbers:
            changed.append("model")
        if changed:
            raise ValueError(
                f"partial_fit: {', '.join(changed)} changed since the windows so far were fitted; call fit with all "
                "rows, or set back what was changed."
            )

    def extended(self, estimator: Any, given: Given) -> Extension:
        """Append later rows.

        Parameters
        ----------
        estimator : RollingJaxEstimator
        given : Given

        Raises
        ------
        ValueError
            If rows are earlier than known ones, or of another form.
        """
        self._check_form(given)
        times = given.times
        if times is None:
            times = np.arange(self.n_rows, self.n_rows + len(given.features))
        order = np.argsort(times, kind="stable")
        self._check_later(times, order)
        positive, counted = given.positive[order], given.counted[order]
        known = len(self.stamps)
        later, codes = np.unique(times[order[positive]], return_inverse=True)
        # Rows of the newest stamp belong to its windows: these are fitted again.
        again = int(len(later) > 0 and later[0] == self.stamps.values[-1])
        stamps = self.stamps.extended(later[again:])
        since = known - again
        rows, codes = order[counted], since + codes[counted[positive]]

        def longer(column: Column | None, new: Any) -> Any:
            return None if column is None else column.extended(np.asarray(new)[rows])

        dtype = self.X.values.dtype
        age = self.age
        if age is not None:
            exact = win.halflives_since(stamps.values[0], stamps.values[since:], estimator.halflife)
            age = age.extended(in_two_parts(exact, dtype)[codes - since])
        after = replace(
            self,
            X=longer(self.X, given.features.astype(dtype, copy=False)),
            y=self.y if given.target is None else longer(self.y, given.target.astype(dtype, copy=False)),
            weight=longer(self.weight, given.weight.astype(dtype, copy=False)),
            age=age,
            code=self.code.extended(codes),
            position=self.position.extended(self.n_rows + np.flatnonzero(counted)),
            cluster=longer(self.cluster, given.clusters),
            stamps=stamps,
            n_rows=self.n_rows + len(order),
            newest=times[order[-1]],
            running=copy.copy(self.running),  # a call that fails leaves this one as it is
        )
        return after._with_windows(estimator, given, times, order, known, since)

    def _check_form(self, given: Given) -> None:
        """Refuse targets of another shape."""
        before = None if self.y is None else self.y.values.shape[1:]
        now = None if given.target is None else given.target.shape[1:]
        if before != now:
            what = ["no target" if shape is None else f"{(*shape, 1)[0]} target(s)" for shape in (now, before)]
            raise ValueError(f"y holds {what[0]}, but the rows so far had {what[1]}; pass as many.")

    def _check_later(self, times: np.ndarray, order: np.ndarray) -> None:
        """Refuse rows that are earlier than known ones."""
        if (times.dtype.kind == "M") != (self.stamps.values.dtype.kind == "M"):
            raise ValueError(
                f"The time column has dtype {times.dtype}, but it was fitted with {self.stamps.values.dtype}; use "
                "dates in both or numbers in both."
            )
        if {times.dtype.kind, self.stamps.values.dtype.kind} == {"i", "f"}:
            # As floats, which is what they are together, large integers would be the same time.
            whole = times if times.dtype.kind == "i" else self.stamps.values[[0, -1]]
            if max(-int(whole.min()), int(whole.max())) > _EXACT:
                raise ValueError(
                    f"The time column has dtype {times.dtype}, but it was fitted with {self.stamps.values.dtype}; pass "
                    "integers in both, as floats do not tell integers above 2**53 apart."
                )
        if times[order[0]] < self.newest:
            early = np.flatnonzero(times < self.newest)
            raise ValueError(
                f"X holds {len(early)} row(s) earlier than {self.newest}, the newest time so far (the first of them is "
                f"row {early[0]}, at {times[early[0]]}); partial_fit appends later rows only. Call fit with all rows."
            )

    def _with_windows(
        self, estimator: Any, given: Given, times: np.ndarray, order: np.ndarray, known: int, since: int
    ) -> Extension:
        """Find the windows that end at stamps from `since` on, and forget rows that none of those to come can hold."""
        total, step = len(self.stamps), int(estimator.step)
        last = np.arange(since + (step - 1 - since) % step, total, step)
        if since < total and (len(last) == 0 or last[-1] != total - 1):
            last = np.append(last, total - 1)
        n_kept = int(np.searchsorted(estimator._last_stamps, since))
        if n_kept and known % step and estimator._last_stamps[n_kept - 1] == known - 1 < total - 1:
            n_kept -= 1  # it was there because it was the newest, which is another now
        tail = self.stamps.values[self.first :]
        first = self.first + win.first_stamps(tail, np.append(last, total - 1) - self.first, estimator.window)
        code = self.code.values
        starts, stops = np.searchsorted(code, first[:-1]), np.searchsorted(code, last, side="right")
        sizes = stops - starts
        min_periods, why = fewest_rows(estimator, self.model, self.X.values.shape[1])
        enough = sizes >= max(min_periods, 1)
        if not n_kept and not enough.any():
            raise win.too_few_rows(min_periods, int(sizes.max(initial=0)), why)
        max_rows = None if self.max_rows is None else max(self.max_rows, int(sizes.max(initial=0)))
        capacity = self.capacity
        while capacity < len(code):
            capacity *= 2
        starts, stops, last = starts[enough], stops[enough], last[enough]
        stamps = self.stamps.values
        windows = win.Windows(starts, stops, last, stamps[last], max_rows)
        rows = Rows(*(None if part is None else part.values for part in (self.X, self.y, self.weight, self.age)))
        problem = Problem(
            self.model,
            rows,
            windows,
            win.Timeline(order, stamps, code),
            self.position.values,
            given.features,
            times,
            given.target_is_column,
            given.classes,
            None if self.cluster is None else self.cluster.values,
            given.exposures,
        )
        history = replace(self, capacity=capacity, max_rows=max_rows)
        return Extension(history._since(int(first[-1])), problem, n_kept)

    def _since(self, first: int) -> History:
        """Forget the rows of older stamps than `first`."""
        n = int(np.searchsorted(self.code.values, first))
        if n == 0:
            return replace(self, first=first)
        names = ("X", "y", "weight", "age", "code", "position", "cluster")
        columns = {name: getattr(self, name) for name in names}
        shorter: Any = {name: None if column is None else column.without_first(n) for name, column in columns.items()}
        return replace(self, first=first, **shorter)


@dataclass(frozen=True)
class Extension:
    """A history with later rows, its new windows, and how many of the windows so far remain as they are."""

    history: History
    problem: Problem
    n_kept: int


def _same(a: Any, b: Any) -> bool:
    # Of another type means something else: 5 rows, or a duration of 5.0. NumPy's numbers are as Python's.
    a, b = _plain(a), _plain(b)
    return type(a) is type(b) and bool(a == b)


def _plain(value: Any) -> Any:
    number = isinstance(value, np.number | np.bool_) and not isinstance(value, np.timedelta64)
    return value.item() if number else value
