"""Poisson, Gamma and Tweedie regression in windows, against scikit-learn's on each of them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import DataConversionWarning, FitFailedWarning
from sklearn.linear_model import GammaRegressor, PoissonRegressor, TweedieRegressor
from sklearn.model_selection import TimeSeriesSplit

from skjaxwin import RollingJaxEstimator, WindowSearchCV, models, walk_forward_grid
from tests.families import DATA, each_window, walk_forward

WINDOW = {"window": 120, "min_periods": 60, "step": 13}
EXACT = {"solver": "newton-cholesky", "tol": 1e-13, "max_iter": 1000}

FAMILIES = {
    "poisson": (models.Poisson(alpha=0.2), lambda **p: PoissonRegressor(**EXACT, **{"alpha": 0.2, **p})),
    "gamma": (models.Gamma(alpha=0.2), lambda **p: GammaRegressor(**EXACT, **{"alpha": 0.2, **p})),
    "tweedie 1": (models.Tweedie(power=1, alpha=0.2), lambda **p: PoissonRegressor(**EXACT, **{"alpha": 0.2, **p})),
    "tweedie 1.5": (
        models.Tweedie(power=1.5, alpha=0.2),
        lambda **p: TweedieRegressor(power=1.5, **EXACT, **{"alpha": 0.2, **p}),
    ),
}


def target(family, score, seed=0):
    """Draw targets of a family around ``exp(score / 2)``."""
    rng, mean = np.random.default_rng(seed), np.exp(score / 2)
    if family in ("poisson", "tweedie 1"):
        return rng.poisson(mean).astype(float)
    if family == "tweedie 1.5":
        return rng.poisson(mean) * rng.gamma(2.0, 0.5, len(mean))
    return mean * rng.gamma(3.0, 1 / 3, len(mean))


@pytest.mark.slow(all_but=["poisson-simulated"])
@pytest.mark.parametrize("name", list(DATA))
@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_window_equals_its_twin(family, name):
    X, score = DATA[name]()
    y = target(family, score)
    model, make = FAMILIES[family]
    rolling = RollingJaxEstimator(model, **WINDOW)
    predictions = rolling.walk_forward_predict(X, y)
    fits = each_window(rolling, make, X, y)
    assert rolling.converged_.all() and rolling.determined_.all() and rolling.gradient_norm_.max() < 1e-8
    np.testing.assert_allclose(rolling.params_["coef"], [fit.coef_ for fit in fits], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(rolling.params_["intercept"], [fit.intercept_ for fit in fits], rtol=1e-6, atol=1e-8)
    expected = walk_forward(rolling, fits, X, "predict")
    np.testing.assert_allclose(predictions[-len(expected) :], expected, rtol=1e-6)
    assert np.isnan(predictions[: -len(expected)]).all()


@pytest.mark.slow(all_but=["poisson"])
@pytest.mark.parametrize("family", ["poisson", "gamma", "tweedie 1.5"])
def test_weights_half_life_no_intercept_no_penalty(family):
    X, score = DATA["diabetes"]()
    X, y = X[:150], target(family, score)[:150]
    weight = np.random.default_rng(1).integers(0, 3, len(X)).astype(float)
    model, make = FAMILIES[family]
    model = type(model)(**{**model.get_params(), "alpha": 0.0})
    weighted = RollingJaxEstimator(model, min_periods=60, halflife=30.0).fit(X, y, sample_weight=weight)
    ages = np.flatnonzero(weight)[-1] - np.arange(150.0)  # in row numbers, from the newest row that counts
    fit = make(alpha=0.0).fit(X, y, sample_weight=weight * 0.5 ** (ages / 30.0))
    np.testing.assert_allclose(weighted.coef_, fit.coef_, rtol=1e-7)
    np.testing.assert_allclose(weighted.intercept_, fit.intercept_, rtol=1e-7)
    model = type(model)(**{**model.get_params(), "fit_intercept": False, "alpha": 0.1})
    through_zero = RollingJaxEstimator(model, min_periods=150).fit(X, y)
    np.testing.assert_allclose(through_zero.coef_, make(alpha=0.1, fit_intercept=False).fit(X, y).coef_, rtol=1e-7)
    assert through_zero.intercept_ == 0


@pytest.mark.parametrize("power", [2.0, 2.5, 3.0])
def test_powers_from_two_on_end_where_the_gradient_vanishes(power):
    # The deviance is not convex in the predictor then.
    X, score = DATA["medical"]()
    y = target("gamma", score)
    rolling = RollingJaxEstimator(models.Tweedie(power=power, alpha=0.1), **WINDOW).fit(X, y)
    assert rolling.converged_.all()
    for coef, intercept, first, last in zip(
        *(rolling.params_[name] for name in ("coef", "intercept")),
        rolling.window_starts_,
        rolling.window_stops_,
        strict=True,
    ):
        rows, mean = X[first:last], np.exp(X[first:last] @ coef + intercept)
        slope = mean ** (2 - power) - y[first:last] * mean ** (1 - power)
        assert abs(slope.mean()) < 1e-9
        centred = (rows - rows.mean(axis=0)) / rows.std(axis=0)
        gradient = centred.T @ slope / len(rows) + 0.1 * coef / rows.std(axis=0)
        np.testing.assert_allclose(gradient, 0, atol=1e-9)


def test_exposures_are_weights_of_rates():
    rng = np.random.default_rng(2)
    X, exposure = rng.normal(size=(300, 2)), rng.uniform(0.5, 20, 300)
    events = rng.poisson(exposure * np.exp(0.3 + X @ [0.4, -0.2]))
    rolling = RollingJaxEstimator(models.Poisson(alpha=0.0), min_periods=300)
    rolling.fit(X, events / exposure, sample_weight=exposure)
    # The score equations of the likelihood with an offset of log(exposure).
    expected = exposure * rolling.predict(X)
    np.testing.assert_allclose(np.column_stack([np.ones(300), X]).T @ (events - expected), 0, atol=1e-7 * events.sum())


def test_panel_with_dates_and_a_gap():
    X, score = DATA["simulated"]()
    y = target("poisson", score)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(len(X)) // 5, unit="D")
    frame = pd.DataFrame(X, columns=["x", "y", "z"]).assign(day=day)
    order = np.random.default_rng(0).permutation(len(X))
    rolling = RollingJaxEstimator(models.Poisson(alpha=0.2), time="day", window="20D", min_periods=60, gap=1)
    predictions = rolling.walk_forward_predict(frame.iloc[order], y[order])
    rows = (day > day[300] - pd.Timedelta("22D")) & (day <= day[300] - pd.Timedelta("2D"))
    fit = PoissonRegressor(**EXACT, alpha=0.2).fit(X[rows], y[rows])
    np.testing.assert_allclose(predictions[np.argsort(order)][300:305], fit.predict(X[300:305]), rtol=1e-7)


def test_no_value_recompiles(compiled):
    X, score = DATA["simulated"]()
    y = target("gamma", score)
    RollingJaxEstimator(models.Tweedie(), **WINDOW).fit(X, y)
    before = len(compiled)
    for power, alpha in ((1, 0.0), (2, 1e-3), (2.5, 7)):
        RollingJaxEstimator(models.Tweedie(power=power, alpha=alpha, tol=1e-7), **WINDOW).fit(X[:350], y[:350])
    assert len(compiled) == before


@pytest.mark.slow
def test_windows_without_events():
    X, score = DATA["simulated"]()
    y = target("poisson", score)
    y[100:200] = 0
    rolling = RollingJaxEstimator(models.Poisson(alpha=0.0), window=40, min_periods=40).fit(X, y)
    first, last = rolling.window_starts_, rolling.window_stops_
    empty = (first >= 100) & (last <= 200)
    assert empty.sum() == 61 and not rolling.determined_[empty].any() and rolling.converged_[empty].all()
    assert not rolling.params_["coef"][empty].any()
    np.testing.assert_allclose(rolling.params_["intercept"][empty], np.log(0.5 / 40))
    assert np.isfinite(rolling.params_["coef"]).all()
    clean = RollingJaxEstimator(models.Poisson(alpha=0.0), window=40, min_periods=40).fit(X[200:], y[200:])
    np.testing.assert_allclose(rolling.params_["coef"][-161:], clean.params_["coef"], rtol=1e-7)


@pytest.mark.parametrize("family", ["poisson", "gamma"])
def test_outliers_are_fitted_exactly_and_leave_no_trace(family):
    X, score = DATA["simulated"]()
    y = target(family, score)
    hard, y_hard = X.copy(), y.copy()
    hard[150, 0], y_hard[250] = 1e8, 1e8
    model = FAMILIES[family][0]
    rolling = RollingJaxEstimator(model, window=50, min_periods=50).fit(hard, y_hard)
    clean = RollingJaxEstimator(model, window=50, min_periods=50).fit(X, y)
    assert rolling.converged_.all() and np.isfinite(rolling.params_["coef"]).all()
    first, last = rolling.window_starts_, rolling.window_stops_
    untouched = (last <= 150) | ((first > 150) & (last <= 250)) | (first > 250)
    np.testing.assert_allclose(
        rolling.params_["coef"][untouched], clean.params_["coef"][untouched], rtol=1e-7, atol=1e-9
    )
    # The gradient of the objective vanishes with the outlier, too.
    i = int(np.flatnonzero((first <= 250) & (last > 250))[20])
    rows = slice(first[i], last[i])
    mean = np.exp(hard[rows] @ rolling.params_["coef"][i] + rolling.params_["intercept"][i])
    residual = (mean - y_hard[rows]) / (1 if family == "poisson" else mean)
    centred = hard[rows] - hard[rows].mean(axis=0)
    gradient = centred.T @ residual / 50 + model.alpha * rolling.params_["coef"][i]
    assert np.abs(gradient).max() < 1e-6 * np.abs(centred).max() * np.abs(residual).mean()


@pytest.mark.slow
def test_targets_out_of_range():
    X = np.zeros((5, 1)) + np.arange(5)[:, None]
    for model, low in (
        (models.Poisson(), -1.0),
        (models.Gamma(), 0.0),
        (models.Tweedie(2.5), 0.0),
        (models.Tweedie(), -2),
    ):
        with pytest.raises(ValueError, match=f"valid range of {type(model).__name__}"):
            RollingJaxEstimator(model).fit(X, [1.0, 2.0, low, 3.0, 1.0])
    with pytest.raises(ValueError, match="power"):
        RollingJaxEstimator(models.Tweedie(power=0.5)).fit(X, [1.0, 2.0, 1.0, 3.0, 1.0])
    with pytest.warns(DataConversionWarning):
        assert RollingJaxEstimator(models.Poisson()).fit(X, np.ones((5, 1))).predict(X).shape == (5,)
    with pytest.raises(ValueError, match="1d array"):
        RollingJaxEstimator(models.Poisson()).fit(X, np.ones((5, 2)))


def test_single_precision():
    X, score = DATA["medical"]()
    y = target("gamma", score)
    single = X.astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rolling = RollingJaxEstimator(models.Gamma(), **WINDOW).fit(single, y.astype(np.float32))
    double = RollingJaxEstimator(models.Gamma(), **WINDOW).fit(single.astype(float), y.astype(np.float32).astype(float))
    np.testing.assert_allclose(rolling.params_["coef"], double.params_["coef"], rtol=1e-6)


@pytest.mark.parametrize("family", ["poisson", "gamma", "tweedie 3"])
def test_the_unit_of_the_target_costs_no_digits(family):
    # Rates of one in a billion, and amounts in billions: the slopes are those of targets around one.
    X, score = DATA["diabetes"]()
    y = target("poisson" if family == "poisson" else "gamma", score)
    model = {"poisson": models.Poisson(0.0), "gamma": models.Gamma(0.0), "tweedie 3": models.Tweedie(3.0, 0.0)}[family]
    power = {"poisson": 1, "gamma": 2, "tweedie 3": 3}[family]
    options = {"window": 120, "min_periods": 120, "step": 93}
    one = RollingJaxEstimator(model, **options).fit(X, y)
    fits = each_window(one, lambda: TweedieRegressor(power=power, link="log", **EXACT, alpha=0.0), X, y)
    for unit in (1e-9, 1e9):
        rolling = RollingJaxEstimator(model, **options).fit(X, y * unit)
        assert rolling.converged_.all()
        np.testing.assert_allclose(rolling.params_["coef"], [fit.coef_ for fit in fits], rtol=1e-6)
        np.testing.assert_allclose(
            rolling.params_["intercept"], np.log(unit) + [fit.intercept_ for fit in fits], rtol=1e-7
        )


@pytest.mark.filterwarnings("ignore:One or more of the test scores")
@pytest.mark.parametrize("powers", [[1.5, 2.5], [2.5, 1.5], [2.5]])
def test_each_power_of_a_grid_has_a_range_of_its_own(powers):
    X, y = np.ones((40, 1)), np.arange(40.0) % 3  # amounts of zero, which powers from 2 on do not allow
    rolling = RollingJaxEstimator(models.Tweedie(), min_periods=10)
    with pytest.raises(ValueError, match="0.0, for example, is not positive"):
        walk_forward_grid(rolling, X, y, param_grid={"model__power": powers})
    for cv in (None, TimeSeriesSplit(3)):
        search = WindowSearchCV(rolling, {"model__power": powers}, cv=cv, refit=False)
        if len(powers) == 1:
            with pytest.raises(ValueError, match="0.0, for example, is not positive"):
                search.fit(X, y)
            continue
        with pytest.warns(FitFailedWarning, match="is not positive"):
            search.fit(X, y)
        refused = np.array(powers) == 2.5
        assert np.isnan(search.cv_results_["mean_test_score"][refused]).all()
        assert np.isfinite(search.cv_results_["mean_test_score"][~refused]).all()
