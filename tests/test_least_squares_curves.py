"""models.LeastSquares: scipy's curve_fit on every window, bounds, hard windows, hyperparameters, messages."""

from __future__ import annotations

import pickle
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import curve_fit
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skjaxwin import RollingJaxEstimator, count_compiles, models, walk_forward_grid

N, WINDOW = 90, 40


def growth(params, X):
    return params["most"] / (1 + jnp.exp(-params["rate"] * (X[:, 0] - params["middle"])))


def decay(params, X):
    size, rate, level = params
    return size * jnp.exp(-rate * X[:, 0]) + level


def season(params, X):
    return params[0] * jnp.sin(2 * jnp.pi * X[:, 0] / 12 + params[1]) + params[2] + params[3] * X[:, 1]


# Each with what curve_fit needs: the same in NumPy, and the parameters one by one.
CURVES = {
    "growth": (
        growth,
        {"most": 80.0, "rate": 0.5, "middle": 8.0},
        lambda X, most, rate, middle: most / (1 + np.exp(-rate * (X[:, 0] - middle))),
        ("most", "rate", "middle"),
        (100.0, 0.6, 9.0),
        1.0,
    ),
    "decay": (
        decay,
        (1.0, 1.0, 0.0),
        lambda X, size, rate, level: size * np.exp(-rate * X[:, 0]) + level,
        (0, 1, 2),
        (3.0, 0.3, 1.0),
        0.05,
    ),
    "season": (
        season,
        np.array([1.0, 0.0, 0.0, 0.0]),
        lambda X, a, b, c, d: a * np.sin(2 * np.pi * X[:, 0] / 12 + b) + c + d * X[:, 1],
        None,
        (2.0, 0.7, 5.0, -1.5),
        0.3,
    ),
}


def data(name, seed=0):
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.arange(N) % 30 / 1.5, rng.normal(size=N)])
    _, _, plain, _, truth, noise = CURVES[name]
    drift = 1 + 0.1 * np.sin(np.arange(N) / 20)
    return X, plain(X, *truth) * drift + noise * rng.normal(size=N)


def rolling(name, **options):
    function, initial = CURVES[name][:2]
    options = {"window": WINDOW, "min_periods": 20} | options
    return RollingJaxEstimator(models.LeastSquares(function, initial), **options)


def vector(params, names):
    return params if names is None else np.stack([params[name] for name in names], axis=-1)


def scipy_fit(name, X, y, weight, start=None):
    _, _, plain, _, truth, _ = CURVES[name]
    exact = {"xtol": 1e-14, "ftol": 1e-14, "gtol": 1e-14, "maxfev": 10000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return curve_fit(plain, X, y, p0=truth if start is None else start, sigma=1 / np.sqrt(weight), **exact)[0]


@pytest.mark.slow(all_but=["growth"])
@pytest.mark.parametrize("name", CURVES)
def test_every_window_is_that_of_curve_fit(name):
    X, y = data(name)
    weight = np.random.default_rng(1).uniform(0.5, 2, size=N)
    fitted = rolling(name)
    predicted = fitted.walk_forward_predict(X, y, weight)
    found = vector(fitted.params_, CURVES[name][3])
    assert fitted.converged_.all() and (fitted.n_iter_ < 60).all()
    plain = CURVES[name][2]
    for i, (a, b) in enumerate(zip(fitted.window_starts_, fitted.window_stops_, strict=True)):
        expected = scipy_fit(name, X[a:b], y[a:b], weight[a:b])
        # Rounding of scipy's finite differences is what is allowed for.
        np.testing.assert_allclose(found[i], expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max())
        if b < N:
            np.testing.assert_allclose(predicted[b], plain(X[b : b + 1], *found[i])[0], rtol=1e-12)
    residual = y[a:b] - plain(X[a:b], *found[-1])
    assert fitted.gradient_norm_.max() < 1e-7 * np.mean(residual**2) ** 0.5 * np.abs(y).max()
    assert np.isfinite(fitted.condition_).all() and fitted.determined_.all()


@pytest.mark.slow
def test_weights_repeat_rows_and_zero_leaves_them_out():
    X, y = data("growth")
    weight = np.random.default_rng(2).integers(0, 3, size=N).astype(float)
    weight[-1] = 1
    repeat = np.repeat(np.arange(N), weight.astype(int))
    once = rolling("growth", window="expanding", step=10).fit(X, y, weight)
    twice = rolling("growth", window="expanding", step=10).fit(X[repeat], y[repeat])
    for name in once.params_:
        np.testing.assert_allclose(once.params_[name][-1], twice.params_[name][-1], rtol=1e-8)


@pytest.mark.slow
def test_time_column_gap_and_half_life():
    X, y = data("growth")
    time = np.repeat(np.arange(N // 2, dtype=float), 2)
    order = np.random.default_rng(3).permutation(N)
    fitted = rolling("growth", time=0, window=20.0, gap=2, halflife=5.0, min_periods=15)
    predicted = fitted.walk_forward_predict(np.column_stack([time, X])[order], y[order])
    for i in (0, 15, len(fitted.window_times_) - 4):
        end = fitted.window_times_[i]
        inside = (time > end - 20) & (time <= end)
        expected = scipy_fit("growth", X[inside], y[inside], 0.5 ** ((end - time[inside]) / 5))
        np.testing.assert_allclose(vector(fitted.params_, CURVES["growth"][3])[i], expected, rtol=1e-6)
        later = time[order] == end + 3
        np.testing.assert_allclose(predicted[later], CURVES["growth"][2](X[order][later], *expected), rtol=1e-6)


def test_single_precision_is_computed_in_double():
    X, y = (part.astype(np.float32) for part in data("growth"))
    single = rolling("growth").fit(X, y)
    double = rolling("growth").fit(X.astype(float), y.astype(float))
    np.testing.assert_allclose(single.params_["rate"], double.params_["rate"], rtol=1e-9)


def test_bounds_hold_and_the_others_are_optimal_given_them():
    X, y = data("decay")
    bounded = models.LeastSquares(decay, (1.0, 0.2, 2.0), lower=(None, 0.0, 1.5), upper=(2.5, None, None))
    fitted = RollingJaxEstimator(bounded, window=WINDOW, min_periods=20).fit(X, y)
    found = vector(fitted.params_, (0, 1, 2))
    assert fitted.converged_.all()
    assert (found >= [-np.inf, 0, 1.5]).all() and (found[:, 0] <= 2.5).all()
    held = 0
    for i, (a, b) in enumerate(zip(fitted.window_starts_, fitted.window_stops_, strict=True)):
        if i % 5:
            continue
        bounds = ([-np.inf, 0, 1.5], [2.5, np.inf, np.inf])
        exact = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "max_nfev": 5000}
        expected, _ = curve_fit(CURVES["decay"][2], X[a:b], y[a:b], p0=(1.0, 0.2, 2.0), bounds=bounds, **exact)
        squares = [np.sum((y[a:b] - CURVES["decay"][2](X[a:b], *p)) ** 2) for p in (found[i], expected)]
        assert squares[0] <= squares[1] * (1 + 1e-10)
        np.testing.assert_allclose(found[i], expected, rtol=1e-4)  # trf stays off the bounds
        held += (found[i] == [2.5, np.nan, 1.5]).sum()
    assert held > 5  # exactly there


def test_hard_windows_are_flagged_and_harm_no_other():
    X, y = data("growth")
    usual = rolling("growth", window=20).fit(X, y)
    wild = y.copy()
    wild[21] = 1e8
    wild[65:] = 7.0  # a constant is no growth
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = rolling("growth", window=20).fit(X, wild)
    found, expected = (vector(r.params_, CURVES["growth"][3]) for r in (fitted, usual))
    assert np.isfinite(found).all()
    starts, stops = fitted.window_starts_, fitted.window_stops_
    clean = ((stops <= 21) | (starts > 21)) & (stops <= 65)
    assert clean.sum() > 20
    np.testing.assert_allclose(found[clean], expected[clean], rtol=1e-6)
    flat = starts >= 65
    # Either the fit says that it failed, or it is the constant.
    right = np.abs([growth_of(p, X[a:b]) - 7 for p, a, b in zip(found, starts, stops, strict=True)]).max(axis=1) < 1e-4
    assert (right | ~fitted.converged_ | ~fitted.determined_)[flat].all()


def growth_of(params, X):
    return CURVES["growth"][2](X, *params)


def test_a_start_far_away_is_flagged_or_right():
    X, y = data("growth")
    far = models.LeastSquares(growth, {"most": 1e6, "rate": 50.0, "middle": -1e3})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = RollingJaxEstimator(far, window=WINDOW, min_periods=20).fit(X, y)
    good = fitted.converged_ & fitted.determined_
    assert all(np.isfinite(part).all() for part in fitted.params_.values())
    near = rolling("growth").fit(X, y)
    assert not good.any() or np.allclose(fitted.params_["most"][good], near.params_["most"][good], rtol=1e-6)


def powered(params, X, power):
    return params * X[:, 0] ** power


@pytest.mark.slow
def test_hyperparameters_are_traced_and_predictions_use_their_own():
    X = np.random.default_rng(0).uniform(1, 2, size=(N, 1))
    y = 3 * X[:, 0] ** 2
    estimator = RollingJaxEstimator(models.LeastSquares(powered, 1.0, power=2.0), window=WINDOW, min_periods=20)
    assert estimator.fit(X, y).params_[-1] == pytest.approx(3, rel=1e-12)
    estimator.predict(X)
    with count_compiles() as compiles:
        other = clone(estimator).set_params(model__power=1.0, model__tol=1e-9).fit(X, y)
        predicted = other.predict(X)
    assert compiles.count == 0
    rows = slice(N - WINDOW, N)
    slope = X[rows, 0] @ y[rows] / (X[rows, 0] @ X[rows, 0])
    np.testing.assert_allclose(predicted, slope * X[:, 0], rtol=1e-9)
    grid = walk_forward_grid(estimator, X, y, param_grid={"model__power": [2.0, 1.0]})
    np.testing.assert_allclose(grid.predictions[0][20:], y[20:], rtol=1e-9)
    assert np.abs(grid.predictions[1][20:] - y[20:]).max() > 0.1
    np.testing.assert_allclose(grid.predictions[1][-1], grid.params[1][-2] * X[-1, 0], rtol=1e-12)


def test_pickle_clone_and_another_start_without_compiling():
    X, y = data("growth")
    fitted = rolling("growth").fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    start = {"most": 90.0, "rate": 0.6, "middle": 9.0}
    with count_compiles() as compiles:
        other = clone(fitted).set_params(model__initial=start).fit(X, y)
    assert compiles.count == 0
    np.testing.assert_allclose(other.params_["rate"], fitted.params_["rate"], rtol=1e-7)


def line(params, X):
    return params["constant"] + X @ params["slopes"]


@pytest.mark.slow
def test_the_start_may_follow_the_number_of_features():
    def initial(n_features):
        return {"constant": 0.0, "slopes": np.zeros(n_features)}

    X = np.random.default_rng(0).normal(size=(N, 3))
    y = X @ [1.0, 2.0, 3.0] + np.random.default_rng(1).normal(size=N)
    fitted = RollingJaxEstimator(models.LeastSquares(line, initial), step=20).fit(X, y)
    expected = np.linalg.lstsq(np.column_stack([np.ones(N), X]), y)[0]
    np.testing.assert_allclose(fitted.params_["slopes"][-1], expected[1:], rtol=1e-9)


def branches(params, X):
    return params * X[:, 0] if params > 0 else X[:, 0]  # here


def totals(params, X):
    return params * jnp.sum(X, axis=0)


def centred(params, X):
    return params * (X[:, 0] - jnp.mean(X[:, 0]))


@pytest.mark.parametrize(
    ("function", "options", "error", "message"),
    [
        (branches, {}, TypeError, r"branches \(.*jnp\.where"),
        (totals, {}, ValueError, r"totals.*shape \(2,\).*\(n_rows,\)"),
        (centred, {}, ValueError, "centred.*weight 0"),
        (jax.jit(powered), {"power": 1.0}, TypeError, "jitted"),
        ("text", {}, TypeError, "must be a function"),
        (powered, {"power": 1.0, "y": 2.0}, ValueError, "called 'y'"),
        (powered, {"power": 1.0, "initial": "text"}, TypeError, "initial='text'"),
        (powered, {"power": 1.0, "initial": np.nan}, ValueError, "finite"),
        (powered, {"power": 1.0, "lower": 2.0}, ValueError, "within the bounds"),
        (powered, {"power": 1.0, "lower": 1.0, "upper": 0.0}, ValueError, "below its upper"),
        (growth, {"initial": CURVES["growth"][1], "lower": {"speed": 0.0}}, ValueError, "'speed'"),
        (powered, {"power": 1.0, "tol": -1.0}, ValueError, "tol=-1.0"),
        (powered, {"power": 1.0, "max_iter": 0}, ValueError, "max_iter=0"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_mistakes_are_named(function, options, error, message):
    X, y = data("growth")
    model = models.LeastSquares(function, options.pop("initial", 1.0), **options)
    with pytest.raises(error, match=re.compile(message, re.DOTALL)):
        RollingJaxEstimator(model, window=WINDOW, step=N).fit(X, y)
