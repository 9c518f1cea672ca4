"""models.Loss: likelihoods against scipy, recursions over time, solvers, indefinite Hessians, bounds, messages."""

from __future__ import annotations

import pickle
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import fsolve, minimize, nnls
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skjaxwin import RollingJaxEstimator, count_compiles, models
from skjaxwin.kernels.row_objective import mean_loss, mean_squares

START = {"mu": 0.0, "omega": 0.1, "alpha": 0.1, "beta": 0.8}


def garch(params, X, y, weight):
    square = (y - params["mu"]) ** 2

    def day(state, row):
        (variance, loss), (square, w) = state, row
        after = params["omega"] + params["alpha"] * square + params["beta"] * variance
        more = loss + w * (jnp.log(variance) + square / variance) / 2
        return (jnp.where(w > 0, after, variance), jnp.where(w > 0, more, loss)), None

    first = jnp.sum(weight * y**2) / jnp.sum(weight)
    return jax.lax.scan(day, (first, 0.0), (square, weight))[0][1]


def garch_slopes(point, y, weight):
    """The gradient of the same likelihood, written out in NumPy."""
    mu, omega, alpha, beta = point
    variance, slope = weight @ y**2 / weight.sum(), np.zeros(4)
    total = np.zeros(4)
    for value, w in zip(y - mu, weight, strict=True):
        own = np.array([-2 * value, 0, 0, 0])
        total += w * (slope / variance + own / variance - value**2 * slope / variance**2) / 2
        slope = np.array([0, 1, value**2, variance]) + alpha * own + beta * slope
        variance = omega + alpha * value**2 + beta * variance
    return total


def returns(n=700, seed=0):
    rng = np.random.default_rng(seed)
    out, variance = np.zeros(n), 1.0
    for i in range(n):
        out[i] = 0.05 + np.sqrt(variance) * rng.normal()
        variance = 0.1 + 0.15 * (out[i] - 0.05) ** 2 + 0.75 * variance
    return out


@pytest.mark.slow
def test_garch_is_the_root_of_its_likelihoods_slopes_in_every_window():
    y = returns()
    weight = np.random.default_rng(1).integers(0, 3, size=len(y)).astype(float)
    model = models.Loss(garch, START, per_row=False, lower={"omega": 0, "alpha": 0, "beta": 0})
    fitted = RollingJaxEstimator(model, window=400, step=50, min_periods=300).fit(np.zeros((len(y), 1)), y, weight)
    assert fitted.converged_.all() and np.isfinite(fitted.condition_).all()
    found = np.stack([fitted.params_[name] for name in START], axis=-1)
    for point, a, b in zip(found, fitted.window_starts_, fitted.window_stops_, strict=True):
        rows = np.arange(a, b)[weight[a:b] > 0]
        expected, info, flag, _ = fsolve(garch_slopes, point, (y[rows], weight[rows]), xtol=1e-13, full_output=True)
        assert flag == 1 or np.abs(info["fvec"]).max() < 1e-9
        np.testing.assert_allclose(point, expected, rtol=1e-6, atol=1e-9)
    assert (fitted.gradient_norm_ < 1e-8).all()
    # Few windows, and a clone: nothing is compiled again.
    with count_compiles() as compiles:
        again = clone(fitted).set_params(step=100, model__max_iter=150).fit(np.zeros((len(y), 1)), y, weight)
    assert compiles.count == 0
    np.testing.assert_allclose(again.params_["beta"][-1], fitted.params_["beta"][-1], rtol=1e-6)


def cauchy(params, X, y, width):
    return jnp.log1p(((y - params["level"] - X @ params["slopes"]) / width) ** 2)


def predict_line(params, X):
    return params["level"] + X @ params["slopes"]


def heavy_tails(n=150):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 2))
    return X, 1 + X @ [2.0, -1.0] + 0.3 * rng.standard_t(1.5, size=n)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
def test_a_robust_loss_is_minimised_as_scipy_does(solver):
    X, y = heavy_tails()
    weight = np.random.default_rng(3).uniform(0.5, 2, size=len(y))
    start = {"level": 0.5, "slopes": np.array([1.5, -0.5])}
    model = models.Loss(cauchy, start, predict=predict_line, solver=solver, width=1.0)
    rolling = RollingJaxEstimator(model, window=60, step=10, min_periods=50)
    predicted = rolling.walk_forward_predict(X, y, weight)
    assert rolling.converged_.all()
    assert hasattr(rolling, "condition_") == (solver == "newton")
    for i, (a, b) in enumerate(zip(rolling.window_starts_, rolling.window_stops_, strict=True)):
        Z = np.column_stack([np.ones(b - a), X[a:b]])

        def value_and_slopes(point, rows=slice(a, b), Z=Z):
            residual = y[rows] - Z @ point
            slopes = -Z.T @ (weight[rows] * 2 * residual / (1 + residual**2))
            return weight[rows] @ np.log1p(residual**2), slopes

        found = np.r_[rolling.params_["level"][i], rolling.params_["slopes"][i]]
        expected = minimize(value_and_slopes, [0.5, 1.5, -0.5], jac=True, method="BFGS", options={"gtol": 1e-10}).x
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
        if b < len(y):
            np.testing.assert_allclose(predicted[b], found[0] + X[b] @ found[1:], rtol=1e-12)
    with count_compiles() as compiles:
        wide = clone(rolling).set_params(model__width=1e4).fit(X, y, weight)
    assert compiles.count == 0
    Z, root = np.column_stack([np.ones(60), X[-60:]]), np.sqrt(weight[-60:])
    squares = np.linalg.lstsq(root[:, None] * Z, root * y[-60:])[0]  # what a wide one becomes
    np.testing.assert_allclose(wide.params_["slopes"][-1], squares[1:], rtol=1e-4)
    assert pickle.loads(pickle.dumps(rolling)).predict(X[:2]).shape == (2,)


def squares(params, X, y):
    return (y - X @ params) ** 2


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["newton", "auto"])  # 14 unknowns: "auto" is L-BFGS
def test_many_unknowns_and_bounds_are_those_of_least_squares(solver):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(120, 14))
    y = X @ rng.normal(size=14) + rng.normal(size=120)
    free = models.Loss(squares, lambda k: np.ones(k), solver=solver)
    fitted = RollingJaxEstimator(free, step=40).fit(X, y)
    np.testing.assert_allclose(fitted.params_[-1], np.linalg.lstsq(X, y)[0], rtol=1e-6)
    bounded = models.Loss(squares, lambda k: np.ones(k), solver=solver, lower=0)
    fitted = RollingJaxEstimator(bounded, step=40).fit(X, y)
    assert fitted.converged_.all()
    for params, b in zip(fitted.params_, fitted.window_stops_, strict=True):
        expected = nnls(X[:b], y[:b])[0]
        np.testing.assert_array_equal(params == 0, expected == 0)
        np.testing.assert_allclose(params, expected, rtol=1e-6, atol=1e-9)


def wells(params, X, y):
    """A saddle at the origin, and minima where u = 1 or -1 and v = u times the mean."""
    u, v = params
    return (u * u - 1) ** 2 + (v - u * y) ** 2


@pytest.mark.slow(all_but=["newton"])
@pytest.mark.parametrize("solver", ["newton", "lbfgs"])
def test_an_indefinite_hessian_is_left_downhill(solver):
    y = np.random.default_rng(5).normal(size=40)
    model = models.Loss(wells, (0.05, 0.01), solver=solver)
    fitted = RollingJaxEstimator(model, window=20, min_periods=20).fit(np.zeros((40, 1)), y)
    u, v = fitted.params_
    assert fitted.converged_.all()
    spread = np.array([y[a:b].var() for a, b in zip(fitted.window_starts_, fitted.window_stops_, strict=True)])
    mean = np.array([y[a:b].mean() for a, b in zip(fitted.window_starts_, fitted.window_stops_, strict=True)])
    # With the best v, what is left is (u^2 - 1)^2 + u^2 spread.
    np.testing.assert_allclose(u**2, 1 - spread / 2, rtol=1e-6)
    np.testing.assert_allclose(v, u * mean, rtol=1e-6, atol=1e-8)


def own_density(params, X, y):
    assert y is None
    return jnp.log(params["scale"]) + (X[:, 0] - params["mean"]) ** 2 / (2 * params["scale"] ** 2)


@pytest.mark.slow
def test_densities_need_no_target_and_hard_windows_are_flagged():
    X = np.random.default_rng(6).normal(size=(80, 1))
    X[20] = 1e8
    X[40:60] = 3.0  # the likelihood has no maximum where all are equal
    model = models.Loss(own_density, {"mean": 0.0, "scale": 1.0}, lower={"scale": 0.0})
    rolling = RollingJaxEstimator(model, window=10, min_periods=10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rolling.fit(X)
    starts, stops = rolling.window_starts_, rolling.window_stops_
    constant = (starts >= 40) & (stops <= 60)
    assert not (rolling.converged_ & rolling.determined_)[constant].any()
    assert all(np.isfinite(part).all() for part in rolling.params_.values())
    usual = ((stops <= 20) | (starts > 20)) & ((stops <= 40) | (starts >= 60))
    assert rolling.converged_[usual].all()
    for i in np.flatnonzero(usual):
        rows = X[starts[i] : stops[i], 0]
        assert rolling.params_["mean"][i] == pytest.approx(rows.mean(), rel=1e-7, abs=1e-8)
        assert rolling.params_["scale"][i] == pytest.approx(rows.std(), rel=1e-7)


def counts_padding(params, X, y, weight):
    return jax.lax.scan(lambda level, y: (0.9 * level + 0.1 * (y - params) ** 2, None), 0.0, y)[0]


def a_scalar(params, X, y):
    return jnp.sum((y - params) ** 2)


def not_a_scalar(params, X, y, weight):
    return weight * (y - params) ** 2


def takes_a_float(params, X, y):
    return y * float(params)  # here


@pytest.mark.parametrize(
    ("loss", "options", "error", "message"),
    [
        (counts_padding, {"per_row": False}, ValueError, "counts_padding.*weight 0"),
        (a_scalar, {}, ValueError, r"a_scalar.*shape \(\).*per_row=False"),
        (not_a_scalar, {"per_row": False}, ValueError, "not_a_scalar.*a scalar"),
        (not_a_scalar, {}, ValueError, "pass per_row=False"),
        (takes_a_float, {}, TypeError, r"takes_a_float \(.*float\(\)"),
        (squares, {"solver": "bfgs"}, ValueError, "solver='bfgs'"),
        (squares, {"per_row": "no"}, TypeError, "per_row='no'"),
        (squares, {"predict": 3}, TypeError, "predict=3"),
        (squares, {"power": jnp.tanh}, TypeError, "jitted"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_mistakes_are_named(loss, options, error, message):
    model = models.Loss(loss, 1.0, **options)
    with pytest.raises(error, match=re.compile(message, re.DOTALL)):
        RollingJaxEstimator(model, window=20, step=40).fit(np.ones((40, 1)), np.arange(40.0))


@pytest.mark.slow
def test_predictions_need_a_function():
    X, y = heavy_tails(60)
    start = {"level": 0.5, "slopes": np.array([1.5, -0.5])}
    fitted = RollingJaxEstimator(models.Loss(cauchy, start, width=1.0), window=60, step=10, min_periods=50).fit(X, y)
    with pytest.raises(ValueError, match="pass predict="):
        fitted.predict(X)


def test_the_mean_over_no_weight_at_all_is_zero():
    X, y = np.ones((1500, 2)), np.arange(1500.0)
    for rows in (4, 1500):
        given = jnp.asarray(X[:rows]), jnp.asarray(y[:rows]), jnp.zeros(rows)
        curve = mean_squares(lambda point, X: X @ point, *given)
        loss = mean_loss(lambda point, X, y: (y - X @ point) ** 2, *given)
        for evaluate in (curve, loss):
            assert all(np.array_equal(part, np.zeros(part.shape)) for part in evaluate(jnp.ones(2)))


def test_a_window_that_does_not_determine_its_parameters_ends_early():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(121, 2))
    X[-100:, 1] = 7.0  # a second constant
    y = X[:, 0] + rng.normal(size=121)

    def loss(params, X, y):
        rest = y - params[0] - X @ params[1:]
        return jnp.logaddexp(0, 2 * rest) - rest

    with pytest.warns(ConvergenceWarning, match="1 of 22 windows"):
        rolling = RollingJaxEstimator(models.Loss(loss, np.zeros(3)), window=100, min_periods=100).fit(X, y)
    assert rolling.converged_.tolist() == rolling.determined_.tolist() == [True] * 21 + [False]
    assert rolling.n_iter_.max() < 30 and rolling.gradient_norm_.max() < 1e-7


@pytest.mark.parametrize("start", [{"a": 50.0, "b": -50.0}, {"a": -100.0, "b": 300.0}, {"a": -20.0, "b": 5.0}])
def test_a_start_far_away_ends_at_the_optimum_or_is_counted_as_a_failure(start):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(200, 1))
    y = rng.poisson(np.exp(0.3 * X[:, 0])).astype(float)

    def counts(p, X, y):
        eta = p["a"] + p["b"] * X[:, 0]
        return jnp.exp(eta) - y * eta

    options = {"window": 50, "min_periods": 50}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        rolling = RollingJaxEstimator(models.Loss(counts, start), **options).fit(X, y)
    told = [int(str(one.message).split()[0]) for one in caught if one.category is ConvergenceWarning]
    found = rolling.converged_
    assert sum(told) == (~found).sum()
    truth = RollingJaxEstimator(models.Poisson(alpha=0.0), **options).fit(X, y)
    np.testing.assert_allclose(rolling.params_["a"][found], truth.params_["intercept"][found], rtol=1e-6)
    np.testing.assert_allclose(rolling.params_["b"][found], truth.params_["coef"][found][:, 0], rtol=1e-6)
    assert found.all() or start["b"] == 300.0


def test_a_loss_without_a_minimum_is_counted_as_a_failure():
    X, y = np.random.default_rng(0).normal(size=(60, 1)), np.zeros(60)
    for loss in (lambda p, X, y: -(p**2) + 0 * X[:, 0], lambda p, X, y: -p * X[:, 0] ** 2):
        with pytest.warns(ConvergenceWarning, match="11 of 11 windows did not converge"):
            rolling = RollingJaxEstimator(models.Loss(loss, 1.0), window=50, min_periods=50).fit(X, y)
        assert not rolling.converged_.any()
