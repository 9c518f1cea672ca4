"""Quantile regression in windows, against scikit-learn's linear programmes on each of them."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import QuantileRegressor

from skjaxwin import RollingJaxEstimator, walk_forward_grid
from skjaxwin.models import Quantile
from tests.families import DATA, each_window, walk_forward

WINDOW = {"window": 120, "min_periods": 60, "step": 13}


def data(name):
    X, score = DATA[name]()
    return X, score + np.random.default_rng(0).standard_t(2, len(score))


def objective(X, y, weight, coef, intercept, quantile, alpha):
    residual = y - X @ coef - intercept
    loss = np.maximum(quantile * residual, (quantile - 1) * residual)
    return weight @ loss / weight.sum() + alpha * np.abs(coef).sum()


def assert_optimal(rolling, X, y, weight=None, rtol=1e-9):
    """Compare the objective of each window with that of SciPy's linear programme, which may end at another optimum."""
    model = rolling.model
    make = {"quantile": model.quantile, "alpha": model.alpha, "fit_intercept": model.fit_intercept}
    fits = each_window(rolling, lambda: QuantileRegressor(**make), X, y, weight)
    weight = np.ones(len(y)) if weight is None else weight
    for i, fit in enumerate(fits):
        rows = slice(rolling.window_starts_[i], rolling.window_stops_[i])
        own = X[rows], y[rows], weight[rows]
        ours = objective(*own, rolling.params_["coef"][i], rolling.params_["intercept"][i], model.quantile, model.alpha)
        theirs = objective(*own, fit.coef_, fit.intercept_, model.quantile, model.alpha)
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=1e-12 * np.abs(y[rows]).max())
    assert rolling.converged_.all() and np.isfinite(rolling.params_["coef"]).all()
    return fits


@pytest.mark.slow(all_but=["diabetes-0.5-0.01", "diabetes-0.9-0.0"])
@pytest.mark.parametrize("quantile, alpha", [(0.5, 0.0), (0.9, 0.0), (0.1, 0.1), (0.5, 0.01)])
@pytest.mark.parametrize("name", list(DATA))
def test_every_window_equals_its_twin(name, quantile, alpha):
    X, y = data(name)
    rolling = RollingJaxEstimator(Quantile(quantile, alpha), window=117, min_periods=117, step=13)
    predictions = rolling.walk_forward_predict(X, y)
    fits = assert_optimal(rolling, X, y)
    # An odd number of rows, of which no quantile here is a whole number, leaves one optimum.
    np.testing.assert_allclose(rolling.params_["coef"], [fit.coef_ for fit in fits], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(rolling.params_["intercept"], [fit.intercept_ for fit in fits], rtol=1e-9, atol=1e-12)
    expected = walk_forward(rolling, fits, X, "predict")
    np.testing.assert_allclose(predictions[-len(expected) :], expected, rtol=1e-9, atol=1e-12)
    assert np.isnan(predictions[: -len(expected)]).all() and rolling.determined_.all()
    # It goes through as many rows as there are coefficients that are not zero.
    for i, (coef, intercept) in enumerate(zip(rolling.params_["coef"], rolling.params_["intercept"], strict=True)):
        rows = slice(rolling.window_starts_[i], rolling.window_stops_[i])
        on_fit = np.abs(y[rows] - X[rows] @ coef - intercept) < 1e-10
        assert on_fit.sum() == np.count_nonzero(coef) + 1


def tied():
    rng = np.random.default_rng(1)
    return rng.integers(0, 3, (300, 3)).astype(float), rng.integers(0, 4, 300).astype(float)


def repeated():
    X, y = data("diabetes")
    return np.repeat(X[:30], 10, axis=0), np.repeat(y[:30], 10)


def constant():
    X, y = data("diabetes")
    X[:, 1] = 3.0
    return X[:300], y[:300]


def dependent():
    X, y = data("diabetes")
    X[:, 1] = 2 * X[:, 0] + 1
    return X[:300], y[:300]


def outliers():
    X, y = data("diabetes")
    X[150, 0], y[200] = 1e8, 1e8
    return X[:300], y[:300]


def perfect():
    X, _ = data("diabetes")
    return X[:300], X[:300] @ [1.0, 2.0, 3.0] + 1


@pytest.mark.slow
@pytest.mark.parametrize("quantile, alpha", [(0.5, 0.0), (0.25, 0.05), (0.97, 0.0)])
@pytest.mark.parametrize("make", [tied, repeated, constant, dependent, outliers, perfect])
def test_degenerate_windows_have_the_right_objective(make, quantile, alpha):
    X, y = make()
    # The programmes of SciPy have rounding of 1e-6 where the optimum is zero.
    rtol = 1e-5 if make is outliers else 1e-9
    rolling = RollingJaxEstimator(Quantile(quantile, alpha), window=60, min_periods=60, step=20).fit(X, y)
    assert_optimal(rolling, X, y, rtol=rtol)
    if alpha == 0 and make in (constant, dependent):
        assert not rolling.determined_.any()
    elif make is not outliers:
        assert rolling.determined_.all()
    if make is constant:
        assert not rolling.params_["coef"][:, 1].any()


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [2, 4, 6])
def test_few_rows(n_rows):
    X, y = data("diabetes")
    rolling = RollingJaxEstimator(Quantile(0.3, alpha=0.0), window=n_rows, min_periods=n_rows, step=40).fit(X, y)
    assert_optimal(rolling, X, y)
    assert rolling.determined_.all() if n_rows > 4 else np.isfinite(rolling.params_["intercept"]).all()
    level = RollingJaxEstimator(Quantile(0.3, alpha=0.0), window=n_rows, step=40).fit(X, np.full(len(X), -7.0))
    np.testing.assert_allclose(level.predict(X), -7)


@pytest.mark.slow
def test_weights_half_life_and_no_intercept():
    X, y = data("diabetes")
    X, y = X[:150], y[:150]
    weight = np.random.default_rng(1).integers(0, 3, len(X)).astype(float)
    model = Quantile(0.4, alpha=0.02)
    weighted = RollingJaxEstimator(model, min_periods=60, step=30).fit(X, y, sample_weight=weight)
    assert_optimal(weighted, X, y, weight)
    times = weight.astype(int)
    repeated = RollingJaxEstimator(model, min_periods=60).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-9, atol=1e-12)
    # The oldest rows weigh 1e-9 of the newest.
    model = Quantile(0.4, alpha=0.02, fit_intercept=False)
    fading = RollingJaxEstimator(model, min_periods=150, halflife=5.0).fit(X, y)
    assert_optimal(fading, X, y, 0.5 ** (np.arange(149, -1, -1) / 5))
    assert fading.intercept_ == 0


@pytest.mark.slow
def test_many_features_and_rows():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1100, 20))
    y = X @ rng.normal(size=20) + rng.standard_t(2, 1100)
    rolling = RollingJaxEstimator(Quantile(0.7, alpha=0.01), window=1000, min_periods=1000, step=100).fit(X, y)
    fits = assert_optimal(rolling, X, y)
    np.testing.assert_allclose(rolling.params_["coef"], [fit.coef_ for fit in fits], rtol=1e-8, atol=1e-12)


def test_panel_with_dates_and_a_gap_in_single_precision():
    X, y = data("simulated")
    X, y = X.astype(np.float32), y.astype(np.float32)
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(len(X)) // 5, unit="D")
    frame = pd.DataFrame(X, columns=["x", "y", "z"]).assign(day=day)
    order = np.random.default_rng(0).permutation(len(X))
    rolling = RollingJaxEstimator(Quantile(0.51, alpha=0.0), time="day", window="20D", min_periods=60, gap=1)
    predictions = rolling.walk_forward_predict(frame.iloc[order], y[order])
    rows = (day > day[300] - pd.Timedelta("22D")) & (day <= day[300] - pd.Timedelta("2D"))
    fit = QuantileRegressor(quantile=0.51, alpha=0.0).fit(X[rows].astype(float), y[rows].astype(float))
    np.testing.assert_allclose(predictions[np.argsort(order)][300:305], fit.predict(X[300:305]), rtol=1e-5)


@pytest.mark.slow
def test_no_value_recompiles(compiled):
    X, y = data("simulated")
    RollingJaxEstimator(Quantile(), **WINDOW).fit(X, y)
    before = len(compiled)
    for quantile, alpha in ((0.1, 0), (0.9, 1e-3), (0.5, 7)):
        RollingJaxEstimator(Quantile(quantile, alpha, tol=1e-7, max_iter=90), **WINDOW).fit(X[:350], y[:350])
    assert len(compiled) == before
    quantiles = [0.1, 0.5, 0.9]
    rolling = RollingJaxEstimator(Quantile(alpha=0.0), **WINDOW)
    grid = walk_forward_grid(rolling, X, y, param_grid={"model__quantile": quantiles})
    assert len(compiled) <= before + 1
    for quantile, predictions in zip(quantiles, grid.predictions, strict=True):
        alone = RollingJaxEstimator(Quantile(quantile, alpha=0.0), **WINDOW).walk_forward_predict(X, y)
        np.testing.assert_allclose(predictions, alone, rtol=1e-9)
    below = np.mean(y[60:] < grid.predictions[:, 60:], axis=1)
    np.testing.assert_allclose(below, quantiles, atol=0.1)


def test_outliers_harm_no_other_window():
    X, y = data("simulated")
    hard, y_hard = X.copy(), y.copy()
    hard[150], y_hard[250] = 1e8, -1e8
    options = {"window": 51, "min_periods": 51}
    rolling = RollingJaxEstimator(Quantile(alpha=0.0), **options).fit(hard, y_hard)
    clean = RollingJaxEstimator(Quantile(alpha=0.0), **options).fit(X, y)
    first, last = rolling.window_starts_, rolling.window_stops_
    untouched = (last <= 150) | ((first > 150) & (last <= 250)) | (first > 250)
    assert rolling.converged_.all() and np.isfinite(rolling.params_["coef"]).all()
    np.testing.assert_allclose(rolling.params_["coef"][untouched], clean.params_["coef"][untouched], rtol=1e-12)


def test_mistakes_and_failures():
    X, y = data("simulated")
    with pytest.raises(ValueError, match="quantile"):
        RollingJaxEstimator(Quantile(1.0)).fit(X, y)
    with pytest.raises(ValueError, match="alpha"):
        RollingJaxEstimator(Quantile(alpha=-1.0)).fit(X, y)
    with pytest.raises(ValueError, match="1d array"):
        RollingJaxEstimator(Quantile()).fit(X, np.column_stack([y, y]))
    with pytest.warns(ConvergenceWarning, match="did not converge") as caught:
        rolling = RollingJaxEstimator(Quantile(alpha=0.0, max_iter=1), **WINDOW).fit(X, y)
    assert len(caught) == 1 and np.isfinite(rolling.params_["coef"]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RollingJaxEstimator(Quantile(alpha=0.0), **WINDOW).fit(X, y)
