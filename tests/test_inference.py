"""Standard errors, t values and R squared of each window equal statsmodels' on exactly its rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as sm

from skjaxwin import RollingJaxEstimator, models
from tests import reference

KINDS = ["nonrobust", "HC0", "HC1", "HAC"]
K = 2
# (rows, window): the first is refitted row by row, the second takes the fast path.
SMALL, LARGE = (60, 20), (6_000, 120)


def make_data(n, seed=3):
    """Heteroskedastic, autocorrelated noise: the kinds of standard errors differ by far."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, K)) + [0.0, 2.0]
    shocks = rng.normal(size=n) * (0.3 + np.abs(X[:, 0]))
    noise = shocks + 0.6 * np.roll(shocks, 1) + 0.3 * np.roll(shocks, 2)
    return X, 2 + X @ [1.0, -0.5] + noise, rng.uniform(0.2, 3.0, size=n)


def default_lags(n):
    return math.floor(4 * (n / 100) ** (2 / 9))


def reference_fit(X, y, weight, kind, intercept=True, maxlags=None):
    design = np.column_stack([X, np.ones(len(X))]) if intercept else X
    lags = default_lags(len(X)) if maxlags is None else maxlags
    options = {"cov_kwds": {"maxlags": lags}} if kind == "HAC" else {}
    return sm.WLS(y, design, weights=weight).fit(cov_type=kind, **options)


def spread(n_windows, first, count=15):
    return np.unique(np.linspace(first, n_windows - 1, count).astype(int))


def check_window(fitted, i, expected, intercept=True, rtol=1e-7):
    for found, wanted in ((fitted.standard_errors_, expected.bse), (fitted.t_values_, expected.tvalues)):
        np.testing.assert_allclose(found["coef"][i], wanted[:K], rtol=rtol, atol=rtol * np.abs(wanted).max())
        if intercept:
            np.testing.assert_allclose(found["intercept"][i], wanted[K], rtol=rtol, atol=rtol * np.abs(wanted).max())
        assert set(found) == ({"coef", "intercept"} if intercept else {"coef"})
    np.testing.assert_allclose(fitted.r2_[i], expected.rsquared, rtol=rtol, atol=rtol)


def rolling(kind, intercept=True, **parameters):
    return RollingJaxEstimator(models.Linear(fit_intercept=intercept), inference=kind, **parameters)


@pytest.mark.slow(all_but=["60-20-HC1-False-False", "60-20-nonrobust-False-False"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "window"), [SMALL, LARGE])
def test_rolling_windows(n, window, kind, intercept, weighted):
    X, y, weight = make_data(n)
    weight = weight if weighted else np.ones(n)
    fitted = rolling(kind, intercept, window=window).fit(X, y, weight if weighted else None)
    assert fitted.standard_errors_["coef"].shape == fitted.t_values_["coef"].shape == (n, K)
    assert fitted.r2_.shape == (n,)
    for i in spread(n, first=K + 2):
        rows = slice(max(0, i - window + 1), i + 1)
        check_window(fitted, i, reference_fit(X[rows], y[rows], weight[rows], kind, intercept), intercept)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "algorithm"), [("nonrobust", "exact"), ("HAC", "exact"), *((kind, "refit") for kind in KINDS)]
)
def test_both_algorithms_at_a_large_offset(kind, algorithm):
    # Residuals of 1 around a level of 1e6: squares of y would have lost them.
    X, y, weight = make_data(60)
    X, y = X + [1e5, -1e5], y + 1e6
    fitted = rolling(kind, window=25, algorithm=algorithm).fit(X, y, weight)
    for i in spread(60, first=10):
        rows = slice(max(0, i - 24), i + 1)
        # statsmodels sees the data moved back, which changes the intercept alone.
        expected = reference_fit(X[rows] - [1e5, -1e5], y[rows] - 1e6, weight[rows], kind)
        np.testing.assert_allclose(fitted.standard_errors_["coef"][i], expected.bse[:K], rtol=1e-7)
        np.testing.assert_allclose(fitted.t_values_["coef"][i], expected.tvalues[:K], rtol=1e-6)
        np.testing.assert_allclose(fitted.r2_[i], expected.rsquared, rtol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "kind"), [*((60, kind) for kind in KINDS), (6_000, "HC1"), (6_000, "HAC")])
def test_expanding_windows(n, kind):
    X, y, weight = make_data(n)
    step = 1 if n == 60 else 50
    fitted = rolling(kind, step=step).fit(X, y, weight)
    stops = fitted.window_stops_
    for i in spread(len(stops), first=K + 2 if step == 1 else 0):
        rows = slice(0, int(stops[i]))
        # The default number of lags follows the window.
        check_window(fitted, i, reference_fit(X[rows], y[rows], weight[rows], kind))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("stamps", "window"), [(20, 8), (2_000, 40)])
def test_panels(stamps, window, kind):
    n = 3 * stamps
    X, y, weight = make_data(n)
    timed = np.column_stack([np.arange(n) // 3, X])
    fitted = rolling(kind, window=window, time=0).fit(timed, y, weight)
    for i in spread(stamps, first=1):
        rows = slice(3 * max(0, i - window + 1), 3 * (i + 1))
        check_window(fitted, i, reference_fit(X[rows], y[rows], weight[rows], kind))


@pytest.mark.parametrize("maxlags", [0, 1, 7])
@pytest.mark.parametrize(("n", "window"), [SMALL, LARGE])
def test_a_given_number_of_lags(n, window, maxlags):
    X, y, weight = make_data(n)
    fitted = rolling("HAC", window=window, hac_maxlags=maxlags).fit(X, y, weight)
    for i in spread(n, first=K + 2):
        rows = slice(max(0, i - window + 1), i + 1)
        check_window(fitted, i, reference_fit(X[rows], y[rows], weight[rows], "HAC", maxlags=maxlags))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_weight_zero_are_absent(kind):
    X, y, weight = make_data(90)
    weight[::3] = 0.0
    kept = np.flatnonzero(weight)
    fitted = rolling(kind, window=20).fit(X, y, weight)
    assert len(fitted.r2_) == len(kept) == 60
    for i in spread(60, first=K + 2):
        rows = kept[max(0, i - 19) : i + 1]
        # They count neither as observations nor as a lag.
        check_window(fitted, i, reference_fit(X[rows], y[rows], weight[rows], kind))


@pytest.mark.slow
@pytest.mark.parametrize(("n", "window", "kind"), [(*SMALL, "nonrobust"), (*LARGE, "HC1")])
def test_half_lives_are_weights(n, window, kind):
    X, y, _ = make_data(n)
    fitted = rolling(kind, window=window, halflife=10.0).fit(X, y)
    for i in spread(n, first=K + 2):
        rows = np.arange(max(0, i - window + 1), i + 1)
        weight = reference.halflife_weights(list(rows), i, 10.0)
        check_window(fitted, i, reference_fit(X[rows], y[rows], weight, kind))


@pytest.mark.parametrize(("n", "window", "kind"), [(*SMALL, "HAC"), (*LARGE, "nonrobust")])
def test_single_precision(n, window, kind):
    X, y, _ = make_data(n)
    X, y = X.astype(np.float32), y.astype(np.float32)
    fitted = rolling(kind, window=window).fit(X, y)
    assert fitted.standard_errors_["coef"].dtype == fitted.t_values_["intercept"].dtype == np.float32
    for i in spread(n, first=K + 5):
        rows = slice(max(0, i - window + 1), i + 1)
        one = np.ones(rows.stop - rows.start)
        check_window(fitted, i, reference_fit(X[rows].astype(float), y[rows].astype(float), one, kind), rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "window", "kind", "intercept"), [(*SMALL, "HAC", False), (*LARGE, "HC1", True)])
def test_each_output_equals_its_own_fit(n, window, kind, intercept):
    X, y, weight = make_data(n)
    _, other, _ = make_data(n, seed=4)
    both = rolling(kind, intercept, window=window).fit(X, np.column_stack([y, other]), weight)
    assert both.standard_errors_["coef"].shape == (n, 2, K)
    assert both.r2_.shape == (n, 2)
    for j, target in enumerate((y, other)):
        for i in spread(n, first=K + 2, count=6):
            rows = slice(max(0, i - window + 1), i + 1)
            expected = reference_fit(X[rows], target[rows], weight[rows], kind, intercept)
            np.testing.assert_allclose(both.standard_errors_["coef"][i, j], expected.bse[:K], rtol=1e-7)
            np.testing.assert_allclose(both.t_values_["coef"][i, j], expected.tvalues[:K], rtol=1e-6)
            np.testing.assert_allclose(both.r2_[i, j], expected.rsquared, rtol=1e-7)
            if intercept:
                np.testing.assert_allclose(both.standard_errors_["intercept"][i, j], expected.bse[K], rtol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intercept", [True, False])
def test_no_standard_errors_without_spare_rows(intercept, kind):
    X, y, _ = make_data(30)
    fitted = rolling(kind, intercept, window=10).fit(X, y)
    n_parameters = K + intercept
    for found in (fitted.standard_errors_, fitted.t_values_):
        for values in found.values():
            finite = np.isfinite(values.reshape(30, -1)).all(axis=1)
            assert finite.tolist() == [rows > n_parameters for rows in range(1, 31)]
            assert np.isnan(values[:n_parameters]).all()
    # A window never has a spare row if it is no longer than the parameters are many.
    short = rolling(kind, intercept, window=n_parameters).fit(X, y)
    assert np.isnan(short.standard_errors_["coef"]).all()


def test_parameters_are_those_without_inference():
    X, y, weight = make_data(60)
    plain = RollingJaxEstimator(window=30, min_periods=10).fit(X, y, weight)
    for kind in KINDS:
        fitted = rolling(kind, window=30, min_periods=10).fit(X, y, weight)
        np.testing.assert_allclose(fitted.params_["coef"], plain.params_["coef"], rtol=1e-10)
        np.testing.assert_allclose(fitted.params_["intercept"], plain.params_["intercept"], rtol=1e-10)


def test_a_refit_without_inference_leaves_no_standard_errors_behind():
    X, y, _ = make_data(40)
    fitted = rolling("HC0", window=20).fit(X, y)
    assert hasattr(fitted, "standard_errors_") and hasattr(fitted, "t_values_")
    fitted.set_params(inference=None).fit(X[:30], y[:30])
    assert not hasattr(fitted, "standard_errors_") and not hasattr(fitted, "t_values_")


@pytest.mark.parametrize("kind", KINDS)
def test_a_penalty_has_no_standard_errors(kind):
    X, y, _ = make_data(40)
    with pytest.raises(ValueError, match=r"(?s)alpha.*inference|inference.*alpha"):
        RollingJaxEstimator(models.Linear(alpha=0.5), inference=kind).fit(X, y)


def test_only_least_squares_has_standard_errors():
    X, y, _ = make_data(40)
    for model in (models.Moments(), models.Custom(fit=lambda X, y, weight: (weight * y).sum() / weight.sum())):
        with pytest.raises(ValueError, match="inference"):
            RollingJaxEstimator(model, inference="HC0").fit(X, y)


@pytest.mark.parametrize("bad", [{"inference": "HC9"}, {"inference": "HAC", "hac_maxlags": -1}])
def test_bad_parameters_are_named(bad):
    X, y, _ = make_data(40)
    with pytest.raises(ValueError, match=list(bad)[-1]):
        RollingJaxEstimator(**bad).fit(X, y)
