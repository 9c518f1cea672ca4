"""Folds as windows: a fold's training rows, the windows that predict its rows, and all folds' rows in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skjaxwin import windows as win
from skjaxwin._sklearn_private import safe_indexing
from skjaxwin.columns import split_columns
from skjaxwin.kernels import Rows
from skjaxwin.problem import Problem
from skjaxwin.rolling import RollingJaxEstimator

__all__ = ["Fold", "features_and_times", "join_folds", "lay_out_fold"]


@dataclass(frozen=True)
class Fold:
    """One fold, ready to be fitted.

    Attributes
    ----------
    number : int
        Which of the splits it is.
    problem : Problem
        Its training rows, and no windows but those that predict its rows.
    row_numbers : ndarray of shape (n_train,)
        Where the problem's rows stand in X.
    parts : list of ndarray
        The rows to predict: those of the test and, if they are scored too, those of the training.
    window : list of ndarray
        For each of `parts`, which window predicts each row.
    """

    number: int
    problem: Problem
    row_numbers: np.ndarray
    parts: list[np.ndarray]
    window: list[np.ndarray]


def lay_out_fold(
    estimator: RollingJaxEstimator,
    X: Any,
    y: Any,
    sample_weight: np.ndarray | None,
    number: int,
    split: tuple[np.ndarray, np.ndarray],
    *,
    train_scores: bool,
) -> Fold:
    """Validate a fold's training rows, and find the windows that its rows are predicted by.

    Parameters
    ----------
    estimator : RollingJaxEstimator
        Takes note of the columns of X.
    X, y, sample_weight
        All rows.
    number : int
    split : (train, test)
        Row numbers.
    train_scores : bool
        Whether training rows are predicted, too.
    """
    train, test = (np.flatnonzero(part) if np.asarray(part).dtype == bool else np.asarray(part) for part in split)
    problem = estimator._prepare(
        safe_indexing(X, train),
        None if y is None else safe_indexing(y, train),
        None if sample_weight is None else sample_weight[train],
    )
    parts = [test, train] if train_scores else [test]
    windows = problem.windows
    if estimator.time is None:
        needed, found = np.array([len(windows.stops) - 1]), [np.zeros(len(part), int) for part in parts]
    else:
        known, gap = problem.timeline.stamps, int(estimator.gap)
        times = [features_and_times(estimator, safe_indexing(X, part))[1] for part in parts]
        before = [win.newest_window_before(one, known, windows.last_stamps, gap) for one in times if one is not None]
        needed, every = np.unique(np.maximum(np.concatenate(before), 0), return_inverse=True)
        found = np.split(every, np.cumsum([len(part) for part in parts])[:-1])
    kept = win.Windows(
        windows.starts[needed],
        windows.stops[needed],
        windows.last_stamps[needed],
        windows.times[needed],
        int((windows.stops[needed] - windows.starts[needed]).max()),
    )
    return Fold(number, replace(problem, windows=kept), train[problem.timeline.order], parts, found)


def features_and_times(estimator: RollingJaxEstimator, X: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Validate rows to predict, as an estimator that has seen the columns of X does."""
    columns = split_columns(estimator, X, reset=False, supervised=False, missing=estimator.missing == "skip")
    return columns.features, columns.times


def join_folds(folds: Sequence[Fold]) -> Problem:
    """Return one problem with the windows of all folds, each within its own fold's rows.

    A fold that goes on where the one before it was, as those of a splitter that goes forward in time do, adds no rows
    but those which that one lacks; others are laid out one after another.
    """
    if len(folds) == 1:
        return folds[0].problem
    # A row's age is measured from its fold's first time, so that ages are no row's own.
    shared = folds[0].problem.rows.age is None
    laid_out: list[tuple[Problem, int]] = []  # a problem, and from which of its rows on the table has them
    offsets: list[int] = []
    table, n_rows = np.empty(0, int), 0  # the row numbers of the last stretch of folds that go on
    for fold in folds:
        begins = np.flatnonzero(table == fold.row_numbers[0])
        at = int(begins[0]) if shared and len(begins) else len(table)
        known = min(len(table) - at, len(fold.row_numbers))
        bounds = fold.problem.windows
        goes_on = known > 0 and at + len(fold.row_numbers) >= len(table)
        if goes_on and np.array_equal(table[at:], fold.row_numbers[:known]):
            offset = n_rows - len(table) + at
            last = laid_out[-1][0], offsets[-1]
            goes_on = _ascend(last[0].windows, last[1], bounds, offset)
        else:
            goes_on = False
        if not goes_on:
            offset, known, at, table = n_rows, 0, 0, np.empty(0, int)
        laid_out.append((fold.problem, known))
        offsets.append(offset)
        table = np.append(table, fold.row_numbers[known:])
        n_rows += len(fold.row_numbers) - known
    parts = zip(*(_from(problem.rows, known) for problem, known in laid_out), strict=True)
    rows = Rows(*(None if part[0] is None else np.concatenate(part) for part in parts))
    windows = [fold.problem.windows for fold in folds]
    joined = win.Windows(
        np.concatenate([one.starts + offset for one, offset in zip(windows, offsets, strict=True)]),
        np.concatenate([one.stops + offset for one, offset in zip(windows, offsets, strict=True)]),
        np.concatenate([one.last_stamps for one in windows]),
        np.concatenate([one.times for one in windows]),
        max(one.max_rows or 0 for one in windows),
    )
    return replace(folds[0].problem, rows=rows, windows=joined)


def _ascend(last: win.Windows, last_offset: int, bounds: win.Windows, offset: int) -> bool:
    """Say whether windows follow others in order, as the kernels want them."""
    return bool(
        bounds.starts[0] + offset >= last.starts[-1] + last_offset
        and bounds.stops[0] + offset >= last.stops[-1] + last_offset
    )


def _from(rows: Rows, first: int) -> Rows:
    return Rows(*(None if part is None else part[first:] for part in rows))
