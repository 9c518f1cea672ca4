"""Huber regression in windows, against scikit-learn's objective minimised by SciPy on each of them."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize, root
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import HuberRegressor, QuantileRegressor

from skjaxwin import RollingJaxEstimator, walk_forward_grid
from skjaxwin.models import Huber
from tests.families import DATA, each_window, walk_forward

WINDOW = {"window": 120, "min_periods": 60, "step": 13}


def data(name, seed=0):
    X, score = DATA[name]()
    return X, score + np.random.default_rng(seed).standard_t(2, len(score))


class Exact:
    """The optimum by BFGS and a root of the gradient, both for standardised features: L-BFGS alone has few digits."""

    def __init__(self, epsilon=1.35, alpha=1e-4, fit_intercept=True):
        self.epsilon, self.alpha, self.fit_intercept = epsilon, alpha, fit_intercept

    def gradient(self, unknowns, A, y, weight, ridge):
        *coef, scale = unknowns
        z = (y - A @ coef) / scale
        pull = np.clip(z, -self.epsilon, self.epsilon)
        value = weight @ (scale + scale * (2 * pull * z - pull**2)) + ridge @ np.square(coef)
        slope = -2 * A.T @ (weight * pull) + 2 * ridge * coef
        return value, np.append(slope, weight.sum() - weight @ pull**2)

    def fit(self, X, y, sample_weight=None):
        weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight)
        size = X.std(axis=0)
        centre = X.mean(axis=0) if self.fit_intercept else np.zeros(X.shape[1])
        A = (X - centre) / size
        ridge = self.alpha / size**2
        if self.fit_intercept:
            A, ridge = np.column_stack([np.ones(len(y)), A]), np.append(0, ridge)

        def by_log(unknowns):
            scale = np.exp(unknowns[-1])
            value, gradient = self.gradient([*unknowns[:-1], scale], A, y, weight, ridge)
            return value, np.append(gradient[:-1], gradient[-1] * scale)

        start = np.append(np.linalg.lstsq(A, y, rcond=None)[0], np.log(y.std()))
        near = minimize(by_log, start, jac=True, method="BFGS", options={"gtol": 1e-9}).x
        near[-1] = np.exp(near[-1])
        found = root(lambda u: self.gradient(u, A, y, weight, ridge)[1], near, tol=1e-14).x
        assert np.abs(self.gradient(found, A, y, weight, ridge)[1]).max() < 1e-9 * weight.sum()
        *coef, self.scale_ = found
        self.coef_ = np.array(coef[self.fit_intercept :]) / size
        self.intercept_ = coef[0] - self.coef_ @ centre if self.fit_intercept else 0.0
        return self

    def predict(self, X):
        return X @ self.coef_ + self.intercept_


def objective(X, y, coef, intercept, scale, epsilon, alpha):
    z = np.abs(y - X @ coef - intercept) / scale
    return (scale + scale * np.where(z < epsilon, z**2, 2 * epsilon * z - epsilon**2)).sum() + alpha * coef @ coef


@pytest.mark.parametrize("epsilon, alpha", [(1.35, 1e-4), (1.1, 0.0), (2.0, 5.0)])
@pytest.mark.parametrize("name", list(DATA))
def test_every_window_equals_its_twin(name, epsilon, alpha):
    X, y = data(name)
    rolling = RollingJaxEstimator(Huber(epsilon, alpha), **WINDOW)
    predictions = rolling.walk_forward_predict(X, y)
    fits = each_window(rolling, lambda: Exact(epsilon, alpha), X, y)
    assert rolling.converged_.all() and rolling.determined_.all() and rolling.gradient_norm_.max() < 1e-8
    np.testing.assert_allclose(rolling.params_["coef"], [fit.coef_ for fit in fits], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(rolling.params_["intercept"], [fit.intercept_ for fit in fits], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(rolling.params_["scale"], [fit.scale_ for fit in fits], rtol=1e-6)
    expected = walk_forward(rolling, fits, X, "predict")
    np.testing.assert_allclose(predictions[-len(expected) :], expected, rtol=1e-6, atol=1e-7)
    assert np.isnan(predictions[: -len(expected)]).all()


def test_scikit_learn_finds_nothing_lower():
    X, y = data("diabetes")
    rolling = RollingJaxEstimator(Huber(), window=120, min_periods=120, step=70).fit(X, y)
    fits = each_window(rolling, lambda: HuberRegressor(tol=1e-10, max_iter=10_000), X, y)
    for i, fit in enumerate(fits):
        rows = slice(rolling.window_starts_[i], rolling.window_stops_[i])
        ours = objective(X[rows], y[rows], *(rolling.params_[name][i] for name in rolling.params_), 1.35, 1e-4)
        theirs = objective(X[rows], y[rows], fit.coef_, fit.intercept_, fit.scale_, 1.35, 1e-4)
        assert theirs * (1 - 1e-8) < ours < theirs * (1 + 1e-13)
        np.testing.assert_allclose(rolling.params_["scale"][i], fit.scale_, rtol=1e-3)


@pytest.mark.slow
def test_weights_half_life_and_no_intercept():
    X, y = data("diabetes")
    X, y = X[:150], y[:150]
    weight = np.random.default_rng(1).integers(0, 3, len(X)).astype(float)
    weighted = RollingJaxEstimator(Huber(alpha=0.3), min_periods=60).fit(X, y, sample_weight=weight)
    times = weight.astype(int)
    repeated = RollingJaxEstimator(Huber(alpha=0.3), min_periods=60).fit(
        np.repeat(X, times, axis=0), np.repeat(y, times)
    )
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, rtol=1e-8)
    np.testing.assert_allclose(weighted.coef_, Exact(alpha=0.3).fit(X, y, weight).coef_, rtol=1e-6)
    fading = RollingJaxEstimator(Huber(fit_intercept=False), min_periods=150, halflife=30.0).fit(X, y)
    fit = Exact(fit_intercept=False).fit(X, y, 0.5 ** (np.arange(149, -1, -1) / 30))
    np.testing.assert_allclose(fading.coef_, fit.coef_, rtol=1e-6)
    assert fading.intercept_ == 0


def test_panel_with_dates_and_a_gap():
    X, y = data("simulated")
    day = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(len(X)) // 5, unit="D")
    frame = pd.DataFrame(X, columns=["x", "y", "z"]).assign(day=day)
    order = np.random.default_rng(0).permutation(len(X))
    rolling = RollingJaxEstimator(Huber(), time="day", window="20D", min_periods=60, gap=1)
    predictions = rolling.walk_forward_predict(frame.iloc[order], y[order])
    rows = (day > day[300] - pd.Timedelta("22D")) & (day <= day[300] - pd.Timedelta("2D"))
    expected = Exact().fit(X[rows], y[rows]).predict(X[300:305])
    np.testing.assert_allclose(predictions[np.argsort(order)][300:305], expected, rtol=1e-6)


@pytest.mark.slow
def test_several_targets_and_single_precision():
    X, first = data("medical")
    X = X.astype(np.float32)
    y = np.column_stack([first, 1e3 * data("medical", 1)[1]]).astype(np.float32)
    rolling = RollingJaxEstimator(Huber(alpha=0.1), **WINDOW).fit(X, y)
    assert rolling.params_["coef"].shape == (len(rolling.window_stops_), 2, 3) and rolling.converged_.all()
    for i in range(2):
        alone = RollingJaxEstimator(Huber(alpha=0.1), **WINDOW).fit(X.astype(float), y[:, i].astype(float))
        np.testing.assert_allclose(rolling.params_["coef"][:, i], alone.params_["coef"], rtol=2e-6)
        np.testing.assert_allclose(rolling.params_["scale"][:, i], alone.params_["scale"], rtol=2e-6)
        np.testing.assert_allclose(rolling.predict(X)[:, i], alone.predict(X.astype(float)), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_no_value_recompiles(compiled):
    X, y = data("simulated")
    RollingJaxEstimator(Huber(), **WINDOW).fit(X, y)
    before = len(compiled)
    for epsilon, alpha in ((1.1, 0), (3, 1e-3), (50.0, 7)):
        RollingJaxEstimator(Huber(epsilon, alpha, tol=1e-9, max_iter=90), **WINDOW).fit(X[:350], y[:350])
    assert len(compiled) == before
    grid = walk_forward_grid(
        RollingJaxEstimator(Huber(), **WINDOW), X, y, param_grid={"model__epsilon": [1.1, 1.35, 3.0]}
    )
    assert len(compiled) <= before + 1
    alone = RollingJaxEstimator(Huber(3.0), **WINDOW).walk_forward_predict(X, y)
    np.testing.assert_allclose(grid.predictions[2], alone, rtol=1e-9)


@pytest.mark.slow
def test_outliers_leave_no_trace():
    X, y = data("simulated")
    hard, y_hard = X.copy(), y.copy()
    hard[150], y_hard[250] = 1e8, 1e8
    hard[320:380, 1] = 7.0
    options = {"window": 50, "min_periods": 50}
    with pytest.warns(ConvergenceWarning, match="the first of them ends at 150"):
        rolling = RollingJaxEstimator(Huber(alpha=0.0), **options).fit(hard, y_hard)
    clean = RollingJaxEstimator(Huber(alpha=0.0), **options).fit(X, y)
    assert all(np.isfinite(a).all() for a in rolling.params_.values())
    first, last = rolling.window_starts_, rolling.window_stops_
    # Next to a row of 1e8 in all features these cannot be told from each other.
    dependent = (first <= 150) & (last > 150)
    assert rolling.converged_[~dependent].all() and not rolling.determined_[dependent].any()
    changed = np.array([150, 250, *range(320, 380)])
    untouched = ~((first[:, None] <= changed) & (changed < last[:, None])).any(axis=1)
    assert untouched.sum() > 150
    for name in rolling.params_:
        np.testing.assert_allclose(
            rolling.params_[name][untouched], clean.params_[name][untouched], rtol=1e-7, atol=1e-9
        )
    constant = (first >= 320) & (last <= 380)
    assert not rolling.determined_[constant].any() and not rolling.params_["coef"][constant][:, 1].any()
    # A target of 1e8 pulls no more than any other that is far off.
    i = int(np.flatnonzero((first <= 250) & (last > 250))[20])
    near = y_hard[first[i] : last[i]].copy()
    near[250 - first[i]] = 1e3
    expected = Exact(alpha=0.0).fit(X[first[i] : last[i]], near)
    np.testing.assert_allclose(rolling.params_["coef"][i], expected.coef_, rtol=1e-6)
    np.testing.assert_allclose(rolling.params_["scale"][i], expected.scale_, rtol=1e-6)


def test_perfect_fits_are_exact_and_flagged():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X @ [1.0, 2.0, 3.0] + 1
    y[200:] += rng.normal(size=100)
    rolling = RollingJaxEstimator(Huber(alpha=0.0), window=50, min_periods=4).fit(X, y)
    perfect = rolling.window_stops_ <= 200
    np.testing.assert_allclose(
        rolling.params_["coef"][perfect], np.tile([1.0, 2.0, 3.0], (perfect.sum(), 1)), rtol=1e-9
    )
    assert not rolling.determined_[perfect].any() and rolling.converged_[perfect].all()
    assert (rolling.params_["scale"][perfect] < 1e-13).all()
    noisy = rolling.window_starts_ >= 200
    assert rolling.determined_[noisy].all() and rolling.converged_[noisy].all()
    level = RollingJaxEstimator(Huber(), window=50, min_periods=4).fit(X, np.full(300, -7.0))
    np.testing.assert_allclose(level.params_["intercept"], -7)
    assert level.converged_.all() and not level.determined_.any() and not level.params_["coef"].any()


@pytest.mark.parametrize("alpha", [1e-4, *(pytest.param(a, marks=pytest.mark.slow) for a in (0.0, 0.1))])
def test_of_the_fits_through_all_rows_the_smallest_is_taken(alpha):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(6, 9)) * [1, 2, 1, 1, 30, 0.1, 1, 1, 0] + 5
    y = rng.normal(size=6)
    rows = np.repeat(np.arange(6), [1, 3, 1, 2, 1, 4])
    repeated = RollingJaxEstimator(Huber(alpha=alpha), min_periods=12).fit(X[rows], y[rows])
    weighted = RollingJaxEstimator(Huber(alpha=alpha), min_periods=6).fit(X, y, sample_weight=np.bincount(rows))
    # The intercept has no penalty: differences from any of the rows are what the slopes must explain.
    expected = np.linalg.pinv(X[1:] - X[0]) @ (y[1:] - y[0])
    for fit in (repeated, weighted):
        np.testing.assert_allclose(fit.coef_, expected, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(fit.predict(X), y, rtol=1e-9)
        assert fit.converged_[-1] and not fit.determined_[-1]


def test_a_large_penalty_leaves_residuals_where_all_rows_could_be_fitted():
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(6, 9)), rng.normal(size=6)
    rolling = RollingJaxEstimator(Huber(alpha=100.0), min_periods=6).fit(X, y)
    pull = np.clip((y - rolling.predict(X)) / rolling.params_["scale"][-1], -1.35, 1.35)
    np.testing.assert_allclose(X.T @ pull, 100 * rolling.coef_, atol=1e-8)
    np.testing.assert_allclose([pull.sum(), pull @ pull], [0, 6], atol=1e-8)
    assert rolling.converged_[-1] and rolling.determined_[-1]


@pytest.mark.slow
def test_close_fits_have_all_digits():
    # Residuals of a ten thousandth of the targets, of which an offset of 1e6 leaves ten digits.
    rng = np.random.default_rng(4)
    X = rng.normal(size=(200, 3))
    y = X @ [100.0, 200.0, -100.0] + 0.03 * rng.standard_t(2, 200)
    rolling = RollingJaxEstimator(Huber(), window=60, min_periods=60, step=20).fit(X, y)
    shifted = RollingJaxEstimator(Huber(), window=60, min_periods=60, step=20).fit(X + 1e6, y - 1e6)
    assert rolling.converged_.all() and rolling.n_iter_.max() < 10
    fits = each_window(rolling, Exact, X, y)
    np.testing.assert_allclose(rolling.params_["scale"], [fit.scale_ for fit in fits], rtol=1e-6)
    np.testing.assert_allclose(shifted.params_["scale"], rolling.params_["scale"], rtol=1e-6)
    np.testing.assert_allclose(shifted.params_["coef"], rolling.params_["coef"], rtol=1e-7)


def test_failures_are_counted_once():
    X, y = data("simulated")
    with pytest.warns(ConvergenceWarning, match="did not converge") as caught:
        RollingJaxEstimator(Huber(max_iter=1), **WINDOW).fit(X, y)
    assert len(caught) == 1
    with pytest.raises(ValueError, match="epsilon"):
        RollingJaxEstimator(Huber(epsilon=0.9)).fit(X, y)


def lowest(X, y, epsilon, alpha):
    """Return the lower objective of two fits: scikit-learn's, and the least absolute residuals, at a scale of zero."""
    absolute = QuantileRegressor(quantile=0.5, alpha=0).fit(X, y)
    residuals = np.abs(y - absolute.predict(X)).sum()
    found = [2 * epsilon * residuals + alpha * absolute.coef_ @ absolute.coef_]
    with contextlib.suppress(ValueError):
        fit = HuberRegressor(epsilon=epsilon, alpha=alpha, tol=1e-10, max_iter=3000).fit(X, y)
        found.append(objective(X, y, fit.coef_, fit.intercept_, fit.scale_, epsilon, alpha))
    return min(found)


@pytest.mark.parametrize("more, epsilon", [(1, 1.35), (2, 1.35), (4, 1.35), (2, 1.05), (24, 1.1)])
def test_windows_of_hardly_more_rows_than_coefficients(more, epsilon):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(120, 5))
    y = X.sum(axis=1) + rng.standard_t(2, size=120)
    n = 6 + more
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rolling = RollingJaxEstimator(Huber(epsilon, alpha=1e-4), window=n, min_periods=n).fit(X, y)
    assert rolling.converged_.mean() > 0.98
    told = [int(str(one.message).split()[0]) for one in caught if one.category is ConvergenceWarning]
    assert sum(told) == (~rolling.converged_).sum()
    for i in np.flatnonzero(rolling.converged_)[::4]:
        rows = slice(rolling.window_starts_[i], rolling.window_stops_[i])
        coef, intercept, scale = (rolling.params_[name][i] for name in ("coef", "intercept", "scale"))
        ours = objective(X[rows], y[rows], coef, intercept, scale, epsilon, 1e-4)
        assert ours <= lowest(X[rows], y[rows], epsilon, 1e-4) * (1 + 1e-9)
        # Only the scale at an optimum without any is too small to be told.
        assert rolling.determined_[i] == (scale > 1e-10)


def test_an_epsilon_of_one_leaves_absolute_residuals():
    X, y = data("simulated")
    edge = RollingJaxEstimator(Huber(epsilon=1.0, alpha=0.0), **WINDOW).fit(X, y)
    assert edge.converged_.all() and not edge.determined_.any()
    for i in range(0, len(edge.window_stops_), 5):
        rows = slice(edge.window_starts_[i], edge.window_stops_[i])
        fit = QuantileRegressor(quantile=0.5, alpha=0).fit(X[rows], y[rows])
        np.testing.assert_allclose(edge.params_["coef"][i], fit.coef_, rtol=1e-8, atol=1e-10)
