"""Folds whose training rows go on from each other share one table; others lie one after another."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import KFold, TimeSeriesSplit

from skjaxwin import RollingJaxEstimator, TimeWindowSplit, models
from skjaxwin.fold_problems import join_folds, lay_out_fold

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(60, 2)), rng.normal(size=60)
TIME = rng.permutation(60) // 2
UNSORTED = np.column_stack([TIME, X])


def joined(splits, X, **options):
    rolling = RollingJaxEstimator(models.Linear(), **options)
    folds = [lay_out_fold(rolling, X, Y, None, i, split, train_scores=False) for i, split in enumerate(splits)]
    return folds, join_folds(folds)


@pytest.mark.parametrize(
    ("splits", "options", "n_rows"),
    [
        (TimeSeriesSplit(5).split(X), {}, 50),
        (TimeSeriesSplit(5, max_train_size=15).split(X), {}, 50),
        (TimeSeriesSplit(5, max_train_size=8).split(X), {}, 5 * 8),  # no rows in common
        (TimeSeriesSplit(5).split(X), {"halflife": 5.0}, 10 + 20 + 30 + 40 + 50),
        (KFold(3, shuffle=True, random_state=0).split(X), {}, 3 * 40),
        ([(np.arange(40), np.arange(40, 60)), (np.arange(20), np.arange(20, 40))], {}, 60),  # backwards
        (TimeWindowSplit(3, test_window=5, time=0).split(UNSORTED), {"time": 0}, 50),
        (TimeWindowSplit(3, test_window=5, window=8, time=0).split(UNSORTED), {"time": 0}, 16 + 2 * 10),
        (KFold(3).split(UNSORTED), {"time": 0, "window": 6, "gap": 1}, 3 * 40),
    ],
    ids=["growing", "rolling", "apart", "half-life", "shuffled", "backwards", "stamps", "rolling stamps", "unsorted"],
)
def test_the_table_holds_each_folds_rows_in_its_windows(splits, options, n_rows):
    data = UNSORTED if "time" in options else X
    folds, whole = joined(list(splits), data, **options)
    assert len(whole.rows.X) == n_rows
    assert (np.diff(whole.windows.starts) >= 0).all() and (np.diff(whole.windows.stops) >= 0).all()
    at = 0
    for fold in folds:
        own = fold.problem
        for start, stop in zip(own.windows.starts, own.windows.stops, strict=True):
            there = slice(whole.windows.starts[at], whole.windows.stops[at])
            np.testing.assert_array_equal(whole.rows.X[there], own.rows.X[start:stop])
            np.testing.assert_array_equal(whole.rows.y[there], Y[fold.row_numbers[start:stop]])
            at += 1
    assert at == len(whole.windows.starts)
