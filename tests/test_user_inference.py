"""Standard errors of a user's curve or loss, against curve_fit and statsmodels on single windows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from scipy.optimize import curve_fit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skjaxwin import RollingJaxEstimator, models
from skjaxwin.kernels.newton import condition

WINDOW = {"window": 100, "min_periods": 100, "step": 50}


def decay(params, X):
    return params["size"] * jnp.exp(-params["rate"] * X[:, 0]) + params["level"]


def line(params, X):
    return params["level"] + X @ params["slopes"]


def poisson(params, X, y):
    eta = line(params, X)
    return jnp.exp(eta) - y * eta


def poisson_of_all(params, X, y, weight):
    return jnp.sum(weight * poisson(params, X, y))


START = {"level": 0.0, "slopes": np.zeros(2)}


def curve_data():
    rng = np.random.default_rng(0)
    t = rng.uniform(0, 4, size=200)
    return t[:, None], 3 * np.exp(-1.5 * t) + 1 + 0.1 * (1 + t) * rng.normal(size=200), rng.uniform(0.5, 2, size=200)


def line_data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(250, 2))
    firm = rng.integers(0, 13, size=250)
    return X, X @ [0.5, -0.2] + (0.5 + np.abs(X[:, 0])) * rng.normal(size=250), firm


@pytest.mark.parametrize("weighted", [False, True])
def test_curves_have_the_errors_of_curve_fit(weighted):
    X, y, weight = curve_data()
    model = models.LeastSquares(decay, {"size": 1.0, "rate": 1.0, "level": 0.0})
    rolling = RollingJaxEstimator(model, inference="nonrobust", **WINDOW).fit(X, y, weight if weighted else None)
    assert set(rolling.standard_errors_) == {"size", "rate", "level"} and not hasattr(rolling, "r2_")
    for i, (first, last) in enumerate(zip(rolling.window_starts_, rolling.window_stops_, strict=True)):
        _, covariance = curve_fit(
            lambda t, size, rate, level: size * np.exp(-rate * t) + level,
            X[first:last, 0],
            y[first:last],
            p0=[3, 1.5, 1],
            sigma=1 / np.sqrt(weight[first:last]) if weighted else None,
            jac=lambda t, size, rate, level: np.column_stack(
                [np.exp(-rate * t), -size * t * np.exp(-rate * t), np.ones_like(t)]
            ),
            ftol=1e-14,
            xtol=1e-14,
        )
        found = [rolling.standard_errors_[name][i] for name in ("size", "rate", "level")]
        np.testing.assert_allclose(found, np.sqrt(np.diag(covariance)), rtol=1e-6)
    np.testing.assert_allclose(
        rolling.t_values_["rate"], rolling.params_["rate"] / rolling.standard_errors_["rate"], rtol=1e-14
    )


@pytest.mark.slow(all_but=["curve-HC1", "loss-HAC"])
@pytest.mark.parametrize("inference", ["nonrobust", "HC0", "HC1", "HAC", "cluster"])
@pytest.mark.parametrize("kind", ["curve", "loss"])
def test_lines_have_the_errors_of_statsmodels(kind, inference):
    X, y, firm = line_data()
    model = models.LeastSquares(line, START)
    if kind == "loss":
        y = np.random.default_rng(2).poisson(np.exp(X @ [0.5, -0.2])).astype(float)
        model = models.Loss(poisson, START)
    rolling = RollingJaxEstimator(model, inference=inference, hac_maxlags=3, cluster=2, **WINDOW)
    rolling.fit(np.column_stack([X, firm]), y)
    kinds = {"HAC": {"maxlags": 3}, "cluster": None}
    for i, (first, last) in enumerate(zip(rolling.window_starts_, rolling.window_stops_, strict=True)):
        rows, design = slice(first, last), sm.add_constant(X[first:last])
        options = {"groups": firm[rows]} if inference == "cluster" else kinds.get(inference)
        if kind == "curve":
            expected = sm.OLS(y[rows], design).fit(cov_type=inference, cov_kwds=options).bse
        else:
            expected = sm.GLM(y[rows], design, family=sm.families.Poisson())
            cov_type = "HC0" if inference == "HC1" else inference  # statsmodels' GLM leaves HC1 uncorrected
            expected = expected.fit(cov_type=cov_type, cov_kwds=options, tol=1e-13).bse
            expected = expected * (np.sqrt(100 / 97) if inference == "HC1" else 1)
        found = np.append(rolling.standard_errors_["level"][i], rolling.standard_errors_["slopes"][i])
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_loss_of_all_rows_has_the_errors_of_its_hessian():
    X, _, _ = line_data()
    y = np.random.default_rng(2).poisson(np.exp(X @ [0.5, -0.2])).astype(float)
    model = models.Loss(poisson_of_all, START, per_row=False)
    rolling = RollingJaxEstimator(model, inference="nonrobust", **WINDOW).fit(X, y)
    expected = sm.GLM(y[-100:], sm.add_constant(X[-100:]), family=sm.families.Poisson()).fit(tol=1e-13).bse
    np.testing.assert_allclose(rolling.standard_errors_["slopes"][-1], expected[1:], rtol=1e-6)
    with pytest.raises(ValueError, match="inference='HC0' needs the loss of each row, got per_row=False"):
        clone(rolling).set_params(inference="HC0").fit(X, y)
    with pytest.raises(ValueError, match="the standard errors of Quantile are not known"):
        RollingJaxEstimator(models.Quantile(), inference="HC0").fit(X, y)


def test_a_parameter_at_its_bound_has_no_error_and_is_as_good_as_known():
    X, y, _ = line_data()
    bounded = models.LeastSquares(line, START, upper={"slopes": np.array([0.1, np.inf])})
    rolling = RollingJaxEstimator(bounded, inference="HC1", **WINDOW).fit(X, y)
    np.testing.assert_array_equal(rolling.params_["slopes"][:, 0], 0.1)
    assert np.isnan(rolling.standard_errors_["slopes"][:, 0]).all()
    known = sm.OLS(y[-100:] - 0.1 * X[-100:, 0], sm.add_constant(X[-100:, 1])).fit(cov_type="HC1")
    found = [rolling.standard_errors_["level"][-1], rolling.standard_errors_["slopes"][-1, 1]]
    np.testing.assert_allclose(found, known.bse, rtol=1e-6)


@pytest.mark.slow
def test_windows_that_end_in_a_hole_and_rows_that_come_later():
    X, y, _ = line_data()
    holes = y.copy()
    holes[[60, 61, 62, 90, 120]] = np.nan
    rolling = RollingJaxEstimator(
        models.LeastSquares(line, START), window=40, min_periods=20, missing="skip", inference="HC0", capacity=256
    ).fit(X, holes)
    assert len(np.unique(rolling.window_stops_)) < len(rolling.window_stops_)
    for i in np.flatnonzero((rolling.window_times_ > 55) & (rolling.window_times_ < 66)):
        rows = np.arange(max(rolling.window_times_[i] - 39, 0), rolling.window_times_[i] + 1)
        rows = rows[np.isfinite(holes[rows])]
        expected = sm.OLS(y[rows], sm.add_constant(X[rows])).fit(cov_type="HC0").bse
        found = np.append(rolling.standard_errors_["level"][i], rolling.standard_errors_["slopes"][i])
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    parts = clone(rolling).partial_fit(X[:100], holes[:100]).partial_fit(X[100:], holes[100:])
    for name in ("level", "slopes"):
        np.testing.assert_allclose(parts.standard_errors_[name], rolling.standard_errors_[name], rtol=1e-6)


def test_windows_that_do_not_determine_the_parameters_have_no_errors():
    X, y, _ = line_data()
    X[:, 1] = X[:, 0]
    with pytest.warns(ConvergenceWarning, match="of 4 windows did not converge"):
        rolling = RollingJaxEstimator(models.LeastSquares(line, START), inference="HC0", **WINDOW).fit(X, y)
    assert not rolling.determined_.any()
    assert all(np.isnan(leaf).all() for leaf in jax.tree_util.tree_leaves(rolling.standard_errors_))


def test_columns_that_are_the_same_are_told_from_those_that_are_nearly_so():
    measured = jax.jit(condition)
    with jax.enable_x64(True):
        for seed in range(100):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(60, 3)) * rng.uniform(0.1, 10, size=3)
            X[:, 2] = X[:, seed % 2] * 3
            assert np.isinf(measured(X.T @ X / 60))
            X[:, 2] += 1e-5 * rng.normal(size=60)
            assert 1e4 < measured(X.T @ X / 60) < 1e7
