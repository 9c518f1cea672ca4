"""TimeWindowSplit against its definition, row by row, and the public cases of splitters that leak."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_predict, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from skjaxwin import RollingJaxEstimator, TimeWindowSplit, models, walk_forward_predict


def sets(splitter, X, groups=None):
    return [(train.tolist(), test.tolist()) for train, test in splitter.split(X, groups=groups)]


def test_a_date_is_never_on_both_sides():
    dates = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2, 2])
    assert sets(TimeWindowSplit(), dates[:, None], dates) == [
        ([0, 1, 2], [3, 4, 5, 6]),
        ([0, 1, 2, 3, 4, 5, 6], [7, 8, 9]),
    ]
    with pytest.raises(ValueError, match="number of folds=5 greater than the number of time stamps=3"):
        list(TimeWindowSplit(4).split(dates, groups=dates))


def test_unsorted_times_are_cut_by_time():
    time = np.array([3, 0, 1, 2])
    assert sets(TimeWindowSplit(), time, time) == [([1], [2]), ([1, 2], [3]), ([1, 2, 3], [0])]


def test_training_sets_reach_their_largest_size():
    splitter = TimeWindowSplit(4, window=504, test_window=201)
    assert [len(train) for train, _ in splitter.split(np.zeros(1008))] == [204, 405, 504, 504]
    theirs = TimeSeriesSplit(4, max_train_size=504).split(np.zeros(1008))
    for ours, (train, test) in zip(splitter.split(np.zeros(1008)), theirs, strict=True):
        np.testing.assert_array_equal(ours[0], train)
        np.testing.assert_array_equal(ours[1], test)


def test_the_number_of_splits_follows_from_the_windows():
    splitter = TimeWindowSplit(window=10, test_window=3)
    found = sets(splitter, np.zeros(40))
    assert len(found) == splitter.get_n_splits(np.zeros(40)) == 10
    assert found[0] == (list(range(10)), [10, 11, 12])
    assert found[-1] == (list(range(27, 37)), [37, 38, 39])


def test_an_index_that_is_not_unique_changes_nothing():
    frame = pd.DataFrame({"day": [0, 1, 2, 3, 4, 5], "x": np.arange(6.0)})
    expected = sets(TimeWindowSplit(gap=1, time="day"), frame)
    assert expected[0] == ([0], [2])
    assert sets(TimeWindowSplit(gap=1, time="day"), frame.set_axis([0, 0, 0, 1, 1, 1])) == expected
    assert sets(TimeWindowSplit(gap=1, time="day"), pl.DataFrame(frame)) == expected
    assert sets(TimeWindowSplit(gap=1, time=0), frame.to_numpy()) == expected


def test_refitted_less_often_than_it_predicts():
    """28 rows to predict, a new fit for every 7 of them."""
    y = np.arange(40.0)
    splitter = TimeWindowSplit(test_window=7, min_train=12)
    assert [len(test) for _, test in splitter.split(y)] == [7, 7, 7, 7]
    predictions = walk_forward_predict(LinearRegression(), y[:, None], y, cv=splitter)
    assert np.isnan(predictions[:12]).all()
    np.testing.assert_allclose(predictions[12:], y[12:])


def all_tests(stamps, test_window, step, counts):
    """Return the stamps of every test there may be, oldest first, by going back step after step."""
    tests = []
    for i in range(10_000):
        if counts:
            last = len(stamps) - i * step
            if last < test_window:
                break
            tests.append(stamps[last - test_window : last].tolist())
        else:
            latest = stamps[-1] - i * step
            if latest < stamps[0]:
                break
            tests.append(stamps[(stamps > latest - test_window) & (stamps <= latest)].tolist())
    return [test for test in tests[::-1] if test]


@pytest.mark.parametrize("n_panels", [2000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_random_panels_never_train_on_the_present(n_panels):
    """The definition, looked at row by row, in panels of any order."""
    rng = np.random.default_rng(0)
    n_splits = 0
    for _ in range(n_panels):
        time = rng.integers(0, rng.integers(2, 12), size=rng.integers(2, 25))
        if rng.random() < 0.3:
            time = time * 0.25 - 3
        counts = rng.random() < 0.5
        draw = (lambda low: int(rng.integers(low, 4))) if counts else (lambda low: float(rng.uniform(0.2, 3)))
        gap, window = draw(0), "expanding" if rng.random() < 0.4 else draw(1)
        test_window, step = draw(1), draw(1)
        splitter = TimeWindowSplit(window=window, test_window=test_window, step=step, gap=gap, min_train=1)
        try:
            found = list(splitter.split(time, groups=time))
        except ValueError as error:
            assert "are possible" in str(error)
            continue
        if rng.random() < 0.2:
            assert_purged(splitter, rng, time, found)
        stamps = np.unique(time)
        tests = all_tests(stamps, test_window, step, counts)
        assert [np.unique(time[test]).tolist() for _, test in found] == tests[len(tests) - len(found) :]
        if len(found) < len(tests):  # nothing can train for the next older one
            first = tests[len(tests) - len(found) - 1][0]
            before = stamps[stamps < first]
            assert len(before) <= gap if counts else not (before + gap < first).any()
        for train, test in found:
            n_splits += 1
            first, newest = time[test].min(), time[train].max()
            if counts:
                assert (np.flatnonzero(stamps == first) - np.flatnonzero(stamps == newest))[0] > gap
                assert len(np.unique(time[test])) == test_window
            else:
                assert newest + gap < first
                assert time[test].max() - first < test_window
            for rows in (train, test):  # whole stamps, all that lie between
                inside = (time >= time[rows].min()) & (time <= time[rows].max())
                np.testing.assert_array_equal(rows, np.flatnonzero(inside))
            older = stamps[stamps < time[train].min()]
            if window == "expanding":
                assert len(older) == 0
            elif counts:
                n_train = len(np.unique(time[train]))
                assert n_train == window or (n_train < window and len(older) == 0)
            else:
                assert newest - time[train].min() < window and not (older > newest - window).any()
            # What may train does: the stamp after the newest is too near.
            later = stamps[(stamps > newest) & (stamps < first)]
            if len(later):
                near = len(stamps[(stamps >= later[0]) & (stamps < first)]) - 1
                assert near < gap if counts else later[0] + gap >= first
    assert n_splits > n_panels


def assert_purged(splitter, rng, time, whole):
    """Hold the splits of labels that take time against those that take none, row by row."""
    ends = time + rng.integers(0, 4, size=len(time)) * rng.integers(0, 2, size=len(time))
    counts = rng.random() < 0.5
    embargo = int(rng.integers(0, 3)) if counts else float(rng.uniform(0, 2))
    stamps = np.unique(time)
    expected = []
    for train, test in whole:
        first = time[test].min()
        kept = []
        for row in train:
            if counts:  # so many stamps between the end of the label and the test
                between = ((stamps > ends[row]) & (stamps < first)).sum()
                known = ends[row] < first and between >= embargo
            else:
                known = ends[row] + embargo < first
            if known:
                kept.append(row)
        expected.append((kept, test.tolist()))
    purging = clone_with(splitter, embargo=embargo, time=0, label_end=1)
    empty = [len(train) == 0 for train, _ in expected]
    oldest = empty.index(False) if False in empty else len(empty)
    if oldest == len(empty):
        with pytest.raises(ValueError, match="0 are possible"):
            sets(purging, np.column_stack([time, ends]))
    elif any(empty[oldest:]):
        with pytest.raises(ValueError, match="No row trains for the test that begins at"):
            sets(purging, np.column_stack([time, ends]))
    else:
        assert sets(purging, np.column_stack([time, ends])) == expected[oldest:]


def test_labels_that_overlap_the_test_are_purged():
    time = np.arange(10)
    ends = time + np.array([0, 5, 0, 3, 0, 2, 0, 1, 0, 0])
    X = np.column_stack([time, ends])
    splitter = TimeWindowSplit(1, test_window=2, time=0, label_end=1)
    assert sets(splitter, X) == [([0, 1, 2, 3, 4, 5, 6], [8, 9])]  # that of row 7 ends in the test
    assert sets(clone_with(splitter, embargo=1), X) == [([0, 1, 2, 3, 4, 6], [8, 9])]  # and row 5's at 7
    assert sets(clone_with(splitter, embargo=2), X) == [([0, 2, 4], [8, 9])]  # and those of rows 1 and 3 at 6
    assert sets(clone_with(splitter, embargo=1.5), X) == [([0, 1, 2, 3, 4, 6], [8, 9])]
    # An embargo leaves out rows; a gap moves the window.
    assert sets(clone_with(splitter, embargo=2, window=3, label_end=None), X) == [([5], [8, 9])]
    assert sets(clone_with(splitter, gap=2, window=3, label_end=None), X) == [([3, 4, 5], [8, 9])]
    with pytest.raises(ValueError, match="label of row 0 ends at -1, before its time 0"):
        list(splitter.split(X - [0, 1]))


def clone_with(splitter, **parameters):
    return TimeWindowSplit(**{**vars(splitter), **parameters})


def test_a_test_that_purging_leaves_without_training_rows_is_not_passed_over():
    time = np.arange(12)
    X = np.column_stack([time, time + 4 * (time == 9) + 4 * (time == 10)])
    splitter = TimeWindowSplit(2, window=2, time=0, label_end=1)
    with pytest.raises(ValueError, match=r"No row trains for the test that begins at 11: .* widen window"):
        list(splitter.split(X))
    assert sets(clone_with(splitter, window=3), X) == [([7, 8], [10]), ([8], [11])]
    # The oldest tests have nothing before them anyway.
    long = np.column_stack([time, time + 4])
    assert sets(TimeWindowSplit(time=0, label_end=1), long)[0] == ([0], [5])


def test_labels_and_embargoes_in_dates():
    days = pd.date_range("2024-04-02", periods=12, tz="Europe/Rome")
    frame = pd.DataFrame({"day": days, "end": days + pd.Timedelta(days=2), "x": 1.0})
    splitter = TimeWindowSplit(1, test_window="1D", window="6D", time="day", label_end="end")
    assert sets(splitter, frame) == [([5, 6, 7, 8], [11])]
    assert sets(clone_with(splitter, embargo="1D"), frame) == [([5, 6, 7], [11])]
    assert sets(clone_with(splitter, embargo=np.timedelta64(36, "h")), frame) == [([5, 6, 7], [11])]
    assert sets(clone_with(splitter, embargo=1), frame) == [([5, 6, 7], [11])]
    with pytest.raises(ValueError, match="both must be dates, or numbers"):
        list(clone_with(splitter, label_end="x").split(frame))


def test_an_unsorted_panel_does_not_leak():
    """Firm after firm, each with its own dates: a cut by rows trains on firms' futures."""
    frame = pd.DataFrame({"firm": np.repeat(list("abc"), 4), "day": [1, 2, 3, 4, 3, 4, 5, 6, 0, 2, 4, 6]})
    for train, test in TimeWindowSplit(3, time="day").split(frame):
        assert frame["day"].iloc[train].max() < frame["day"].iloc[test].min()
    assert sets(TimeWindowSplit(1, time="day"), frame) == [([0, 1, 2, 3, 4, 5, 6, 8, 9, 10], [7, 11])]


def test_dates_and_durations():
    days = pd.date_range("2024-01-01", periods=60, tz="Europe/Rome").repeat(2)
    order = np.random.default_rng(0).permutation(120)
    frame = pd.DataFrame({"when": days[order], "x": np.arange(120.0)})
    splitter = TimeWindowSplit(3, window="14D", test_window="7D", gap="2D", time="when")
    bounds = pd.DataFrame(splitter.get_window_bounds(frame))
    assert bounds["n_test"].tolist() == [14] * 3 and bounds["n_train"].tolist() == [28] * 3
    last = bounds.iloc[-1]
    assert (last["test_last"] - last["test_first"]).days == 6
    assert (last["test_first"] - last["train_last"]).days == 3
    assert (last["train_last"] - last["train_first"]).days == 13
    for name in ("7", 7.0):
        with pytest.raises(ValueError, match="test_window="):
            list(TimeWindowSplit(test_window=name, time="when").split(frame))


def test_decimal_times_are_cut_as_whole_numbers_are():
    """Tenths are no binary fractions; each of these splits is that of ten times the numbers."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        tenths = np.sort(rng.choice(200, size=rng.integers(5, 60), replace=False)) + int(rng.integers(-100, 100))
        whole = {name: int(rng.integers(1, 9)) for name in ("window", "test_window", "step", "gap", "embargo")}
        whole |= {"gap": whole["gap"] % 4, "embargo": whole["embargo"] % 3}
        if rng.random() < 0.3:
            whole["window"] = "expanding"
        decimal = {name: value if isinstance(value, str) else value / 10 for name, value in whole.items()}
        exact = {name: value if isinstance(value, str) else float(value) for name, value in whole.items()}
        try:
            expected = sets(TimeWindowSplit(min_train=3.0, **exact), tenths, tenths)
        except ValueError:
            continue
        assert sets(TimeWindowSplit(min_train=0.3, **decimal), tenths / 10, tenths / 10) == expected
    tiles = TimeWindowSplit(test_window=0.1).split(np.arange(60), groups=np.arange(60) / 10)
    assert np.concatenate([test for _, test in tiles]).tolist() == list(range(1, 60))


def test_narrow_and_wide_integers():
    time = np.arange(-30000, 30000, 600)
    splitter = TimeWindowSplit(test_window=3000.0, min_train=10000.0)
    expected = sets(splitter, time, time)
    assert len(expected) == 16
    assert sets(splitter, time, time.astype(np.int16)) == expected
    # Numbers without a sign, and next to the smallest there is.
    for start in (np.uint64(0), np.int64(-(2**63))):
        at_the_edge = start + np.arange(6).astype(start.dtype)
        assert sets(TimeWindowSplit(test_window=1.0, step=2.0), at_the_edge, at_the_edge) == [
            ([0], [1]),
            ([0, 1, 2], [3]),
            ([0, 1, 2, 3, 4], [5]),
        ]
    with pytest.raises(ValueError, match="above the largest time"):
        sets(TimeWindowSplit(), time[:20], np.uint64(2**63) + np.arange(20, dtype=np.uint64))
    # Nanoseconds: tests of one, apart by far less than a float of this size can tell.
    nanoseconds = 1_700_000_000_000_000_000 + np.arange(20)
    found = sets(TimeWindowSplit(test_window=3.0, window=5.0, gap=1.0), nanoseconds, nanoseconds)
    small = sets(TimeWindowSplit(test_window=3.0, window=5.0, gap=1.0), np.arange(20), np.arange(20.0))
    assert found == small and found[-1] == ([11, 12, 13, 14, 15], [17, 18, 19])


def test_no_distance_may_be_a_duration():
    time = np.arange(6.0)
    assert sets(TimeWindowSplit(gap=0.0, embargo=0.0), time, time) == sets(TimeWindowSplit(), time, time)
    days = np.arange("2024-01-01", "2024-01-07", dtype="datetime64[D]")
    assert sets(TimeWindowSplit(gap="0D"), days, days) == sets(TimeWindowSplit(), time, time)
    for name in ("gap", "window", "test_window"):
        with pytest.raises(ValueError, match=f"{name}=True must be a number of time stamps, or a duration"):
            list(TimeWindowSplit(**{name: True}).split(time, groups=time))


def test_tests_without_a_stamp_are_passed_over():
    time = np.array([0.0, 1.0, 2.0, 1e6, 1e6 + 1])
    found = sets(TimeWindowSplit(test_window=1.0), time, time)
    assert found == [([0], [1]), ([0, 1], [2]), ([0, 1, 2], [3]), ([0, 1, 2, 3], [4])]


@pytest.mark.parametrize("routing", [False, True])
def test_searches_and_scores_take_it(routing):
    rng = np.random.default_rng(0)
    time = rng.permutation(np.repeat(np.arange(30), 2))
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    cv = TimeWindowSplit(5, test_window=2)
    expected = [
        LinearRegression().fit(X[time < first], y[time < first]).score(X[test], y[test])
        for first in range(20, 30, 2)
        for test in [(time >= first) & (time < first + 2)]
    ]
    with config_context(enable_metadata_routing=routing):
        passed = {"params": {"groups": time}} if routing else {"groups": time}
        np.testing.assert_allclose(cross_val_score(LinearRegression(), X, y, cv=cv, **passed), expected)
        search = GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=cv).fit(X, y, groups=time)
        assert search.n_splits_ == 5
    again = pickle.loads(pickle.dumps(cv))
    assert sets(again, X, time) == sets(cv, X, time)
    assert repr(again) == repr(cv) and "n_splits=5" in repr(cv)


def test_predictions_out_of_fold():
    rng = np.random.default_rng(0)
    time = rng.permutation(np.repeat(np.arange(20), 3))
    X, y = rng.normal(size=(60, 2)), rng.normal(size=(60,))
    weight = rng.uniform(0.5, 2, size=60)
    found = walk_forward_predict(
        Ridge(), X, y, cv=TimeWindowSplit(window=8, gap=1, min_train=4), groups=time, sample_weight=weight
    )
    rolling = RollingJaxEstimator(models.Linear(alpha=1.0), time=0, window=8, gap=1, min_periods=12)
    windows = rolling.walk_forward_predict(np.column_stack([time, X]), y, sample_weight=weight)
    np.testing.assert_allclose(found, windows, rtol=1e-9)
    assert np.isnan(found).sum() == 15
    labels = np.where(y > 0, "up", "down")
    classes = walk_forward_predict(LogisticRegression(), X, labels, cv=TimeWindowSplit(2, test_window=5), groups=time)
    assert set(classes[time >= 10]) <= {"up", "down"} and all(label is None for label in classes[time < 10])
    probabilities = walk_forward_predict(
        LogisticRegression(), X, labels, cv=TimeWindowSplit(2, test_window=5), groups=time, method="predict_proba"
    )
    np.testing.assert_array_equal(probabilities[time >= 10].argmax(axis=1), (classes == "up")[time >= 10])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_splits": 0}, "n_splits=0 must be a positive integer"),
        ({"n_splits": 2.0}, "n_splits=2.0"),
        ({"n_splits": 8, "test_window": 3}, "Too many splits=8 for 10 time stamps"),
        ({"min_train": 10}, "0 are possible"),
        ({"window": 0}, "window=0 must be at least 1"),
        ({"gap": -1}, "gap=-1 must be at least 0"),
        ({"window": "all"}, "window='all' cannot be read"),
        ({"test_window": 2, "step": 1.5}, "must both count time stamps, or both be durations"),
        ({"time": 5}, "time=5 is not a column"),
        ({"time": "day"}, "time='day' names a column"),
        ({"label_end": 1}, "label_end: the label of row 1 ends at 0.0"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    X = np.column_stack([np.arange(10.0), np.zeros(10)])
    with pytest.raises(ValueError, match=message):
        list(TimeWindowSplit(**parameters).split(X))


def test_what_does_not_fit_together():
    X = np.arange(6.0)[:, None]
    with pytest.raises(ValueError, match="given twice"):
        list(TimeWindowSplit(time=0).split(X, groups=X[:, 0]))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        list(TimeWindowSplit().split(X, groups=np.arange(5)))
    with pytest.raises(ValueError, match="pass X, or groups"):
        TimeWindowSplit().get_n_splits()
    with pytest.raises(ValueError, match="n_splits=0 must be a positive integer"):
        TimeWindowSplit(0).get_n_splits()
    with pytest.raises(ValueError, match="contains NaN"):
        list(TimeWindowSplit().split(X, groups=[0, 1, 2, 3, 4, np.nan]))
    two = np.column_stack([X[:, 0] > 2, X[:, 0] < 1]).astype(int)
    with pytest.raises(ValueError, match="returns a list with an entry for each target"):
        walk_forward_predict(KNeighborsClassifier(1), X, two, cv=TimeWindowSplit(test_window=2), method="predict_proba")
    labels = np.repeat([0, 1], 3)
    found = walk_forward_predict(KNeighborsClassifier(1), X, labels, cv=3)
    np.testing.assert_array_equal(found, cross_val_predict(KNeighborsClassifier(1), X, labels, cv=3))
    with pytest.raises(ValueError, match="method='transform'"):
        walk_forward_predict(Ridge(), X, X[:, 0], method="transform")
    with pytest.raises(ValueError, match=r"cv=\[\] gives no split"):
        walk_forward_predict(Ridge(), X, X[:, 0], cv=[])
    assert clone(TimeWindowSplit(3), safe=False).n_splits == 3
