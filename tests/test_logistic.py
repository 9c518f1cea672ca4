"""Logistic regression in windows, against scikit-learn's on each of them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skjaxwin import RollingJaxEstimator, models, walk_forward_grid
from tests.families import classes, each_window, walk_forward

WINDOW = {"window": 120, "min_periods": 60, "step": 13}


def twin(C=1.0):
    return LogisticRegression(C=C, tol=1e-13, max_iter=1000, solver="newton-cholesky")


@pytest.mark.slow(all_but=["medical-1.0"])
@pytest.mark.parametrize("C", [0.05, 1.0, np.inf])
@pytest.mark.parametrize("name", ["simulated", "medical", "diabetes"])
def test_two_classes(name, C):
    X, y = classes(name, 2)
    rolling = RollingJaxEstimator(models.Logistic(C=C), **WINDOW)
    probabilities = rolling.walk_forward_predict(X, y, method="predict_proba")
    fits = each_window(rolling, lambda: twin(C), X, y)
    assert rolling.converged_.all() and rolling.determined_.all() and rolling.gradient_norm_.max() < 1e-8
    np.testing.assert_allclose(rolling.params_["coef"], [fit.coef_[0] for fit in fits], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(rolling.params_["intercept"], [fit.intercept_[0] for fit in fits], rtol=1e-6)
    expected = walk_forward(rolling, fits, X, "predict_proba")
    np.testing.assert_allclose(probabilities[-len(expected) :], expected, rtol=1e-6, atol=1e-9)
    assert np.isnan(probabilities[: -len(expected)]).all()
    found = rolling.walk_forward_predict(X, y)
    assert found[-len(expected) :].tolist() == walk_forward(rolling, fits, X, "predict").tolist()
    assert set(found[: -len(expected)]) == {None}


@pytest.mark.slow(all_but=["iris"])
@pytest.mark.parametrize("name", ["simulated", "iris"])
def test_three_classes(name):
    X, y = classes(name, 3)
    rolling = RollingJaxEstimator(models.Logistic(C=0.5), window=100, min_periods=60, step=13)
    probabilities = rolling.walk_forward_predict(X, y, method="predict_proba")
    fits = each_window(rolling, lambda: twin(0.5), X, y)
    assert rolling.converged_.all() and rolling.determined_.all()
    for i, fit in enumerate(fits):
        np.testing.assert_allclose(rolling.params_["coef"][i], fit.coef_, rtol=1e-6, atol=1e-7)
        # Intercepts are the same but for a constant, of which their sum is free here.
        shift = fit.intercept_ - fit.intercept_.mean()
        np.testing.assert_allclose(rolling.params_["intercept"][i], shift, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rolling.params_["coef"].sum(axis=1), 0, atol=1e-9)
    np.testing.assert_allclose(rolling.params_["intercept"].sum(axis=1), 0, atol=1e-8)
    expected = walk_forward(rolling, fits, X, "predict_proba")
    np.testing.assert_allclose(probabilities[-len(expected) :], expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(rolling.predict_proba(X).sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.exp(rolling.predict_log_proba(X)), rolling.predict_proba(X), rtol=1e-12)
    assert rolling.decision_function(X).shape == (len(X), 3)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_and_half_life(n_classes):
    X, y = classes("simulated", n_classes)
    weight = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    X, y, weight = X[:150], y[:150], weight[:150]
    model = models.Logistic(C=0.7)
    weighted = RollingJaxEstimator(model, min_periods=60).fit(X, y, sample_weight=weight)
    repeated = RollingJaxEstimator(model, min_periods=60).fit(
        np.repeat(X, weight.astype(int), axis=0), np.repeat(y, weight.astype(int))
    )
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-8)
    np.testing.assert_allclose(weighted.intercept_, repeated.intercept_, rtol=1e-8)
    fading = RollingJaxEstimator(model, min_periods=149, halflife=20.0).fit(X, y)
    ages = np.arange(149, -1, -1)
    expected = twin(0.7).fit(X, y, sample_weight=0.5 ** (ages / 20.0))
    np.testing.assert_allclose(np.atleast_2d(fading.coef_), expected.coef_, rtol=1e-6, atol=1e-8)


def test_time_column_and_gap():
    X, y = classes("simulated", 2)
    day = np.arange(len(X)) // 4
    frame = pd.DataFrame(X, columns=["x", "y", "z"]).assign(day=day).sample(frac=1, random_state=0)
    target = pd.Series(y)[frame.index]
    rolling = RollingJaxEstimator(models.Logistic(), time="day", window=30, min_periods=60, gap=2).fit(frame, target)
    at = 60
    last = np.flatnonzero(rolling.window_times_ < at - 2)[-1]  # two known days lie between
    assert rolling.window_times_[last] == at - 3
    rows = (day > at - 3 - 30) & (day <= at - 3)
    expected = twin().fit(X[rows], y[rows])
    np.testing.assert_allclose(rolling.params_["coef"][last], expected.coef_[0], rtol=1e-7)
    new = frame[frame["day"] == at]
    np.testing.assert_allclose(
        rolling.predict_proba(new), expected.predict_proba(new[["x", "y", "z"]].to_numpy()), rtol=1e-7
    )


def test_a_new_penalty_compiles_nothing(compiled):
    X, y = classes("simulated", 2)
    RollingJaxEstimator(models.Logistic(C=1.0), **WINDOW).fit(X, y)
    before = len(compiled)
    RollingJaxEstimator(models.Logistic(C=np.inf, tol=1e-9, max_iter=17), **WINDOW).fit(X[:300], y[:300])
    assert len(compiled) == before


def test_grid_of_penalties_in_one_call(compiled):
    X, y = classes("simulated", 2)
    before = len(compiled)
    rolling = RollingJaxEstimator(models.Logistic(), **WINDOW)
    grid = walk_forward_grid(rolling, X, y, param_grid={"model__C": [0.01, 1.0, 100.0, np.inf]})
    assert len(compiled) == before + 1
    for candidate, predictions in zip(grid.candidates, grid.predictions, strict=True):
        alone = RollingJaxEstimator(models.Logistic(C=candidate["model__C"]), **WINDOW)
        assert predictions.tolist() == alone.walk_forward_predict(X, y).tolist()


@pytest.mark.slow
def test_searched_like_any_classifier():
    X, y = classes("simulated", 2)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), RollingJaxEstimator(models.Logistic())),
        {"rollingjaxestimator__model__C": [0.001, 1.0]},
        cv=TimeSeriesSplit(3),
        scoring="neg_log_loss",
    ).fit(X, y)
    twins = GridSearchCV(
        make_pipeline(StandardScaler(), twin()),
        {"logisticregression__C": [0.001, 1.0]},
        cv=TimeSeriesSplit(3),
        scoring="neg_log_loss",
    ).fit(X, y)
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], twins.cv_results_["mean_test_score"], rtol=1e-7)
    found = cross_val_predict(search.best_estimator_, X, y, cv=3, method="predict_proba")
    np.testing.assert_allclose(
        found, cross_val_predict(twins.best_estimator_, X, y, cv=3, method="predict_proba"), rtol=1e-6
    )


def test_windows_that_lack_a_class():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 3))
    y = rng.integers(0, 3, 300)
    y[:100] = 0
    y[100:200] = rng.integers(0, 2, 100)
    rolling = RollingJaxEstimator(models.Logistic(C=0.3), window=50, step=50).fit(X, y)
    assert np.isfinite(rolling.params_["coef"]).all() and np.isfinite(rolling.params_["intercept"]).all()
    assert rolling.converged_.all()
    assert rolling.determined_.tolist() == [False] * 4 + [True] * 2
    # One class: the two others share half a row each, at the mean of the features.
    assert not rolling.params_["coef"][0].any()
    odds = np.exp(rolling.params_["intercept"][0])
    np.testing.assert_allclose(odds / odds[0], [1, 0.01, 0.01])
    # Two classes: those of a fit of the two, and a third that is improbable.
    first, last = rolling.window_starts_[3], rolling.window_stops_[3]
    coef = rolling.params_["coef"][3]
    assert not coef[2].any()
    decision = X @ coef.T + rolling.params_["intercept"][3]
    # A softmax of two with the penalty on both is a logistic regression with half the penalty.
    fit = twin(0.6).fit(X[first:last], y[first:last])
    np.testing.assert_allclose(decision[:, 1] - decision[:, 0], fit.decision_function(X), rtol=1e-7)
    nan = RollingJaxEstimator(models.Logistic(), window=50, step=50, underdetermined="nan").fit(X, y)
    assert np.isnan(nan.params_["coef"][:4]).all() and np.isfinite(nan.params_["coef"][4:]).all()


def test_one_class_among_two():
    X = np.random.default_rng(2).normal(size=(100, 3))
    y = np.repeat([0, 1], 50)
    rolling = RollingJaxEstimator(models.Logistic(), window=40, step=20).fit(X, y)
    assert rolling.determined_.tolist() == [False, False, True, True, False]
    np.testing.assert_allclose(rolling.params_["intercept"][[0, 1]], [-np.log(41), -np.log(81)])
    assert not rolling.params_["coef"][0].any()
    with pytest.raises(ValueError, match="only one class is present"):
        RollingJaxEstimator(models.Logistic()).fit(X, np.zeros(100))


@pytest.mark.slow
def test_hard_windows_are_flagged_and_harm_no_other():
    X, y = classes("simulated", 2)
    hard, labels = X.copy(), y.copy()
    hard[150] = 1e8
    hard[250:290, 1] = 7.0
    labels[320:360] = np.where(hard[320:360, 0] > 0, "a", "b")  # separable
    options = {"window": 30, "min_periods": 30}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rolling = RollingJaxEstimator(models.Logistic(C=np.inf), **options).fit(hard, labels)
        clean = RollingJaxEstimator(models.Logistic(C=np.inf), **options).fit(X, y)
    assert np.isfinite(rolling.params_["coef"]).all()
    first, last = rolling.window_starts_, rolling.window_stops_
    separable = (first >= 320) & (last <= 360)
    assert separable.any() and not (rolling.converged_ & rolling.determined_)[separable].any()
    constant = (first >= 250) & (last <= 290)
    assert (
        constant.any() and not rolling.determined_[constant].any() and not rolling.params_["coef"][constant][:, 1].any()
    )
    untouched = (last <= 150) | ((first > 150) & (last <= 250)) | (first >= 360)
    both = untouched & clean.determined_ & clean.converged_
    assert both.sum() > 100
    np.testing.assert_allclose(rolling.params_["coef"][both], clean.params_["coef"][both], rtol=1e-6, atol=1e-7)


def test_failures_are_counted_once():
    X = np.random.default_rng(3).normal(size=(60, 3))
    with pytest.warns(ConvergenceWarning, match="of 21 windows did not converge") as caught:
        RollingJaxEstimator(models.Logistic(C=1e4, max_iter=1), min_periods=40).fit(X, X[:, 0] > 0.2)
    assert len(caught) == 1


def test_single_precision_is_computed_in_double():
    X, y = classes("medical", 2)
    single = X.astype(np.float32)
    rolling = RollingJaxEstimator(models.Logistic(), **WINDOW).fit(single, y)
    double = RollingJaxEstimator(models.Logistic(), **WINDOW).fit(single.astype(np.float64), y)
    np.testing.assert_allclose(rolling.predict_proba(single), double.predict_proba(single), rtol=1e-6)
    np.testing.assert_allclose(rolling.params_["coef"], double.params_["coef"], rtol=1e-6)


def test_labels_that_are_missing():
    X, y = classes("simulated", 2)
    numbers = (y == "b").astype(float)
    numbers[100:110] = np.nan
    rolling = RollingJaxEstimator(models.Logistic(), missing="skip", min_periods=60, step=30).fit(X, numbers)
    known = ~np.isnan(numbers)
    np.testing.assert_allclose(rolling.coef_, twin().fit(X[known], numbers[known]).coef_[0], rtol=1e-7)
    assert rolling.classes_.tolist() == [0.0, 1.0]
    for missing in (None, np.nan, pd.NA):
        names = y.astype(object)
        names[100:110] = missing
        other = RollingJaxEstimator(models.Logistic(), missing="skip", min_periods=60, step=30).fit(X, names)
        np.testing.assert_array_equal(other.coef_, rolling.coef_)
        assert other.classes_.tolist() == ["a", "b"]
        with pytest.raises(ValueError, match="(?s)y contains NaN or None, first in row 100.*missing="):
            RollingJaxEstimator(models.Logistic()).fit(X, names)


@pytest.mark.parametrize("missing", ["raise", "skip"])
def test_infinite_labels_are_refused(missing):
    X, y = classes("simulated", 2)
    with pytest.raises(ValueError, match="Input y contains infinity"):
        RollingJaxEstimator(models.Logistic(), missing=missing).fit(X, np.where(y == "b", np.inf, 1.0))


def test_numbers_for_labels_are_returned_as_such():
    X, y = classes("simulated", 2)
    rolling = RollingJaxEstimator(models.Logistic(), min_periods=60)
    predictions = rolling.walk_forward_predict(X, np.where(y == "b", 5, -2))
    assert rolling.predict(X).dtype.kind == "i" and set(rolling.predict(X)) == {5, -2}
    assert np.isnan(predictions[:60]).all() and set(predictions[60:]) == {5.0, -2.0}
    assert rolling.score(X, np.where(y == "b", 5, -2)) == np.mean(rolling.predict(X) == np.where(y == "b", 5, -2))


def test_only_a_classifier_has_probabilities():
    X, y = classes("simulated", 2)
    rolling = RollingJaxEstimator(models.Linear()).fit(X, X[:, 0])
    assert not hasattr(rolling, "predict_proba") and not hasattr(rolling, "classes_")
    with pytest.raises(ValueError, match="method='predict_proba'"):
        rolling.walk_forward_predict(X, X[:, 0], method="predict_proba")
    assert hasattr(rolling.set_params(model=models.Logistic()).fit(X, y), "predict_proba")
