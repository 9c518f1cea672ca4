"""Searches that walk forward through the estimator's own windows, and the choice of each window."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LinearRegression
from sklearn.metrics import log_loss, mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from skjaxwin import RollingJaxEstimator, WindowRandomizedSearchCV, WindowSearchCV, models

GRID = {"model__alpha": [0.1, 30.0, 1000.0], "window": [15, "expanding"]}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    n = 120
    X = rng.normal(size=(n, 2))
    slope = np.where(np.arange(n) < 60, 0.0, 1.5)  # nothing to learn at first
    return X, slope * X[:, 0] + rng.normal(size=n), rng.uniform(0.5, 2, size=n), rng.permutation(n) // 3


def predictions(rolling, X, y, grid, **fit):
    """Return each candidate's predictions out of sample, one candidate after the other."""
    return np.array([clone(rolling).set_params(**one).walk_forward_predict(X, y, **fit) for one in ParameterGrid(grid)])


def test_each_candidate_is_scored_on_the_rows_that_all_predict(data):
    X, y, weight, _ = data
    rolling = RollingJaxEstimator(models.Linear(), min_periods=5)
    grid = GRID | {"gap": [0, 2]}
    expected = predictions(rolling, X, y, grid, sample_weight=weight)
    rows = np.isfinite(expected).all(axis=0)
    assert rows.sum() == 120 - 7
    search = WindowSearchCV(rolling, grid).fit(X, y, sample_weight=weight)
    scores = [r2_score(y[rows], one[rows], sample_weight=weight[rows]) for one in expected]
    np.testing.assert_allclose(search.cv_results_["split0_test_score"], scores, rtol=1e-8)
    assert search.n_splits_ == 1 and search.batched_ and search.best_index_ == int(np.argmax(scores))
    assert not search.cv_results_["std_test_score"].any()
    plain = predictions(rolling, X, y, GRID)
    rows = np.isfinite(plain).all(axis=0)
    each = WindowSearchCV(rolling, GRID, scoring=["neg_max_error", "neg_mean_absolute_error"], refit=False).fit(X, y)
    worst = [-np.abs(y - one)[rows].max() for one in plain]
    np.testing.assert_allclose(each.cv_results_["mean_test_neg_max_error"], worst, rtol=1e-8)
    errors = [-mean_absolute_error(y[rows], one[rows]) for one in plain]
    np.testing.assert_allclose(each.cv_results_["mean_test_neg_mean_absolute_error"], errors, rtol=1e-8)


def chosen_by_hand(losses, known, row_stamp, ends, lookback):
    """Choose as a user would at each time: look at the mean loss of the rows that are over."""
    path = []
    for end in ends:
        over = known & (row_stamp <= end) & (row_stamp > end - lookback)
        path.append(int(np.argmin(losses[:, over].mean(axis=1))) if over.any() else 0)
    return np.array(path)


@pytest.mark.parametrize("lookback", [None, 10])
@pytest.mark.parametrize("panel", [False, True])
def test_the_choice_of_each_window(data, lookback, panel):
    X, y, _, stamp = data
    rolling = RollingJaxEstimator(models.Linear(), min_periods=5, gap=1)
    if panel:  # three rows a stamp, shuffled
        X = np.column_stack([stamp, X])
        rolling.set_params(time=0)
    else:
        stamp = np.arange(len(y))
    each = predictions(rolling, X, y, GRID)
    known = np.isfinite(each).all(axis=0)
    search = WindowSearchCV(rolling, GRID, selection="per_window", lookback=lookback).fit(X, y)
    ends = search.selection_times_
    expected = chosen_by_hand((y - each) ** 2, known, stamp, ends, np.inf if lookback is None else lookback)
    np.testing.assert_array_equal(search.selection_path_, expected)
    assert len(np.unique(expected)) > 1
    candidates = list(ParameterGrid(GRID))
    assert search.best_params_path_ == [candidates[i] for i in expected]
    assert search.best_params_ == candidates[expected[-1]] and search.best_index_ == expected[-1]
    # Row by row: the choice at the newest end that lies before it, with a stamp between.
    by_hand = np.full(len(y), np.nan)
    for i in range(len(y)):
        before = np.flatnonzero(ends <= stamp[i] - 2)
        if len(before):
            by_hand[i] = each[expected[before[-1]], i]
    np.testing.assert_allclose(search.walk_forward_predictions_, by_hand, rtol=1e-8)
    assert search.walk_forward_score_ == pytest.approx(r2_score(y[known], by_hand[known]))


@pytest.mark.parametrize(
    ("scoring", "score"),
    [
        ("r2", r2_score),
        ("neg_root_mean_squared_error", lambda y, p: -root_mean_squared_error(y, p)),
        ("neg_mean_absolute_error", lambda y, p: -mean_absolute_error(y, p)),
    ],
)
@pytest.mark.parametrize("lookback", [None, 25])
def test_the_choice_for_several_outputs_is_that_of_the_score(scoring, score, lookback):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 2))
    slope = np.where(np.arange(120) < 60, 1.0, -1.0)
    # Errors of the second output are a thousand times larger, and say nothing of the first one.
    noise = rng.normal(size=(120, 2))
    Y = np.column_stack([slope * X[:, 0] + 0.3 * noise[:, 0], 1000 * (X[:, 1] + 2 * noise[:, 1])])
    rolling, grid = RollingJaxEstimator(models.Linear(), min_periods=6), {"window": [8, 60]}
    each = predictions(rolling, X, Y, grid)
    known = np.isfinite(each).all(axis=(0, 2))
    search = WindowSearchCV(rolling, grid, selection="per_window", lookback=lookback, scoring=scoring).fit(X, Y)
    row, expected = np.arange(120), []
    for end in search.selection_times_:
        over = known & (row <= end) & (row > end - (lookback or 120))
        expected.append(int(np.argmax([score(Y[over], one[over]) for one in each])) if over.sum() > 1 else 0)
    np.testing.assert_array_equal(search.selection_path_[10:], expected[10:])
    assert len(set(expected[10:])) == 2


def test_the_score_of_the_path_of_a_single_row(data):
    X, y, _, _ = data
    rolling = RollingJaxEstimator(min_periods=119)
    search = WindowSearchCV(rolling, {}, selection="per_window", scoring="neg_mean_absolute_error").fit(X, y)
    predictions = search.walk_forward_predictions_
    assert np.flatnonzero(np.isfinite(predictions)).tolist() == [119]
    assert search.walk_forward_score_ == pytest.approx(-abs(y[119] - predictions[119]))


def test_candidates_have_the_same_times(data):
    X, y, _, stamp = data
    table = np.column_stack([stamp, 2 * stamp, X])
    search = WindowSearchCV(RollingJaxEstimator(min_periods=5), {"time": [0, 1]}, selection="per_window")
    with pytest.raises(ValueError, match="same time stamps; leave `time`"):
        search.fit(table, y)


def test_what_comes_later_changes_no_choice(data):
    X, y, _, _ = data
    rolling = RollingJaxEstimator(models.Linear(), min_periods=5)
    options = {"selection": "per_window", "lookback": 20, "scoring": "neg_mean_absolute_error"}
    search = WindowSearchCV(rolling, GRID, **options).fit(X, y)
    other = y.copy()
    other[80:] = 1e6 * np.sign(X[80:, 1])
    changed = WindowSearchCV(rolling, GRID, **options).fit(X, other)
    early = search.selection_times_ < 80
    np.testing.assert_array_equal(changed.selection_path_[early], search.selection_path_[early])
    np.testing.assert_allclose(changed.walk_forward_predictions_[:81], search.walk_forward_predictions_[:81], rtol=1e-8)
    assert (changed.selection_path_[~early] != search.selection_path_[~early]).any()


def no_fit(X, y, weight, column):
    return jnp.sum(weight) * 0.0 + column


def one_column(params, X):
    return 0.4 * jnp.take(X, params.astype(int), axis=1)


def test_hindsight_is_of_no_use_on_noise():
    """Thirty candidates guess at random: the best of them seems to know something, choices in time do not."""
    chosen, best = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(150, 30)), rng.normal(size=150)
        guesses = RollingJaxEstimator(models.Custom(no_fit, one_column, column=0.0), window=20, min_periods=5)
        search = WindowSearchCV(guesses, {"model__column": np.arange(30.0)}, selection="per_window", refit=False)
        chosen.append(search.fit(X, y).walk_forward_score_)
        best.append(search.cv_results_["mean_test_score"].max())
    assert np.mean(chosen) < -0.08 < -0.04 < np.mean(best)  # a random guess: -0.16


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_a_candidate_that_predicts_nothing_fails_alone(data):
    X, y, _, _ = data
    search = WindowSearchCV(RollingJaxEstimator(models.Linear()), {"min_periods": [10, 120]})
    with pytest.warns(FitFailedWarning, match="no row is predicted from earlier rows"):
        search.fit(X, y)
    assert np.isnan(search.cv_results_["mean_test_score"]).tolist() == [False, True]
    with pytest.raises(ValueError, match="no row is predicted from earlier rows"):
        search.set_params(error_score="raise").fit(X, y)


def test_other_estimators_with_a_window_get_folds(data):
    class Window(LinearRegression):
        def __init__(self, window=3):
            self.window = window

        fit_intercept, copy_X, n_jobs, positive, tol = True, True, None, False, 1e-6

    X, y, _, _ = data
    search = WindowSearchCV(Window(), {"window": [3, 4]}).fit(X, y)
    assert search.n_splits_ == 5 and not search.batched_


def test_classes_and_pipelines(data):
    X, y, _, _ = data
    labels = np.where(y > 0, "up", "down")
    rolling = RollingJaxEstimator(models.Logistic(), window=40, min_periods=20, step=10)
    grid = {"normalizer": ["passthrough"], "rollingjaxestimator__model__C": [0.01, 1.0]}
    pipeline = make_pipeline(Normalizer(), rolling)
    options = {"scoring": "neg_log_loss", "selection": "per_window"}
    with pytest.raises(ValueError, match="varies 'normalizer'"):
        WindowSearchCV(pipeline, grid, **options).fit(X, labels)
    search = WindowSearchCV(pipeline, {"rollingjaxestimator__model__C": [0.01, 1.0]}, **options).fit(X, labels)
    rows = Normalizer().fit_transform(X)
    each = [
        clone(rolling).set_params(model__C=C).walk_forward_predict(rows, labels, method="predict_proba")
        for C in (0.01, 1.0)
    ]
    known = np.isfinite(each[0][:, 0])
    losses = [-log_loss(labels[known], one[known]) for one in each]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], losses, rtol=1e-7)
    chosen = search.walk_forward_predictions_
    assert set(chosen[known]) <= {"up", "down"} and all(one is None for one in chosen[~known])
    assert search.predict(X[:3]).shape == (3,)


def test_random_candidates_walk_forward_too(data):
    X, y, _, _ = data
    rolling = RollingJaxEstimator(models.Linear(), min_periods=5)
    drawn = {"model__alpha": [0.1, 1.0, 10.0], "window": [10, 20, 40]}
    search = WindowRandomizedSearchCV(rolling, drawn, n_iter=3, random_state=0).fit(X, y)
    assert len(search.cv_results_["params"]) == 3 and search.n_splits_ == 1


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_a_candidate_that_fails_is_never_chosen(data):
    X, y, _, _ = data
    grid = [{"model__alpha": [-1.0, 1.0]}, {"min_periods": [1000]}]
    search = WindowSearchCV(RollingJaxEstimator(models.Linear(), min_periods=5), grid, selection="per_window")
    with pytest.warns(FitFailedWarning, match="2 fits failed out of a total of 3"):
        search.fit(X, y)
    np.testing.assert_array_equal(np.isnan(search.cv_results_["mean_test_score"]), [True, False, True])
    assert set(search.selection_path_) == {1}
    with pytest.raises(ValueError, match="alpha"):
        search.set_params(error_score="raise").fit(X, y)
    again = search.set_params(selection="global", param_grid={"model__alpha": [1.0]}).fit(X, y)
    assert not hasattr(again, "selection_path_")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cv": 3}, "cv=None"),
        ({"refit": lambda results: 0}, "refit must be True or False"),
        ({"scoring": "neg_max_error"}, "mean over rows"),
        ({"selection": "global", "lookback": 5}, "needs selection"),
        ({"selection": "best"}, "'selection' parameter"),
        ({"lookback": 0}, "'lookback' parameter"),
        ({"return_train_score": True}, "asks for folds"),
        ({"estimator": make_pipeline(StandardScaler(), RollingJaxEstimator())}, "StandardScaler"),
        ({"estimator": RollingJaxEstimator(models.Moments())}, "Moments predicts nothing"),
        ({"estimator": RollingJaxEstimator(gap=200)}, "no row is predicted by every candidate"),
    ],
)
def test_mistakes(data, options, message):
    X, y, _, _ = data
    options = {"estimator": RollingJaxEstimator(models.Linear()), "param_grid": {}, "selection": "per_window"} | options
    with pytest.raises(ValueError, match=message):
        WindowSearchCV(**options).fit(X, y)
