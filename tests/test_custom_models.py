"""Users' own models: right results, and errors that say where and what to write instead."""

from __future__ import annotations

import functools
import inspect
import re
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
from jax import lax
from sklearn.preprocessing import scale

from skjaxwin import RollingJaxEstimator, models
from tests import reference

X = np.random.default_rng(1).normal(size=(30, 2))
Y = np.random.default_rng(2).normal(size=30)


def fit(function, data=X, y=Y, *, predict=None, rolling=(), **hyper):
    model = models.Custom(fit=function, predict=predict, **hyper)
    return RollingJaxEstimator(model, **dict(rolling)).fit(data, y)


# What a user may write that cannot be compiled; the offending line ends in "# here".


def branches(X, y, weight):
    if X.sum() > 0:  # here
        return jnp.sum(weight * y)
    return -jnp.sum(weight * y)


def makes_a_float(X, y, weight):
    return jnp.sum(weight) * float(y[0])  # here


def loops_over_a_range(X, y, weight, lags):
    total = 0.0
    for _ in range(lags):  # here
        total = total + jnp.sum(weight)
    return total


def masks(X, y, weight):
    return jnp.mean(y[weight > 0])  # here


def finds_where(X, y, weight):
    return jnp.sum(y[jnp.where(weight > 0)[0]])  # here


def calls_numpy(X, y, weight):
    return np.linalg.lstsq(X, y)[0]  # here


def calls_scipy(X, y, weight):
    return scipy.linalg.solve(X.T @ X, X.T @ y)  # here


def calls_sklearn(X, y, weight):
    return scale(X).T @ weight  # here


def assigns(X, y, weight):
    X[0] = 1  # here
    return X.T @ weight


def slices(X, y, weight, lags):
    return jnp.sum(y[lags : 2 * lags])  # here


def reshapes(X, y, weight, lags):
    return jnp.sum(weight) + jnp.zeros(lags)  # here


def returns_text(X, y, weight):
    return {"mean": jnp.sum(weight * y), "name": "mean"}


_kept: list = []


def leaks(X, y, weight):
    if _kept:
        return jnp.sum(weight * y) / _kept[0]
    _kept.append(jnp.sum(weight))
    return jnp.sum(weight * y)


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (branches, "jnp.where"),
        (makes_a_float, "float()"),
        (loops_over_a_range, "functools.partial"),
        (masks, "multiply by weight"),
        (finds_where, "jnp.where"),
        (calls_numpy, "jax.numpy"),
        (calls_scipy, "jax.scipy"),
        (calls_sklearn, "jax.numpy"),
        (assigns, ".at[index].set(value)"),
        (slices, "lax.dynamic_slice"),
        (reshapes, "functools.partial"),
        (returns_text, "return arrays"),
        (leaks, "return it instead"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_cannot_be_compiled_is_explained(function, advice):
    _kept.clear()
    hyper = {"lags": 2} if "lags" in inspect.signature(function).parameters else {}
    with pytest.raises(TypeError) as caught:
        fit(function, **hyper)
    message = str(caught.value)
    lines, first = inspect.getsourcelines(function)
    assert function.__name__ in message
    assert __file__ in message and f"line {first}" in message  # where the function begins
    assert advice in message
    offending = [first + i for i, line in enumerate(lines) if line.rstrip().endswith("# here")]
    if offending:
        assert re.search(rf"{re.escape(__file__)}, line {offending[0]}\b", message), message
    # Nothing was compiled or kept: the same message again, not a broken cache.
    if function is not leaks:  # whose second call is another function
        with pytest.raises(TypeError, match=re.escape(advice)):
            fit(function, **hyper)


def test_a_users_own_error_stays_what_it_was_and_tells_where_it_came_from():
    def fails(X, y, weight):
        raise KeyError("my own mistake")

    with pytest.raises(KeyError, match="my own mistake") as caught:
        fit(fails)
    assert any("fails" in note and __file__ in note for note in caught.value.__notes__)


def test_errors_when_predicting_are_explained_too():
    def branchy(params, X):
        return params if X.sum() > 0 else -params

    def total(X, y, weight):
        return jnp.sum(weight * y)

    with pytest.raises(TypeError, match="branchy.*test_custom_models.py.*jnp.where"):
        fit(total, predict=branchy).predict(X)
    with pytest.raises(ValueError, match="returned .* for one row.*n_rows"):
        fit(total, predict=lambda params, X: params).predict(X)


@pytest.mark.parametrize(
    "function", [jax.jit(lambda X, y, weight: jnp.sum(weight)), functools.partial(jax.jit(jnp.dot)), jnp.tanh]
)
def test_jitted_functions_are_refused_in_favour_of_plain_ones(function):
    with pytest.raises(TypeError, match=r"jitted.*plain function"):
        fit(function)
    with pytest.raises(TypeError, match=r"Custom\(predict=...\).*jitted.*plain function"):
        fit(lambda X, y, weight: jnp.sum(weight), predict=function)


def plain_mean(X, y, weight):
    return jnp.mean(y)


def counts_shape(X, y, weight):
    return jnp.sum(weight * y) / X.shape[0]


def counts_len(X, y, weight):
    return {"m": jnp.sum(weight[:, None] * X, axis=0) / jnp.sum(weight), "spread": weight @ y**2 / len(y)}


def takes_the_median(X, y, weight):
    return jnp.median(y)


def ignores_weight_in_lstsq(X, y, weight):
    return jnp.linalg.solve(X.T @ X, X.T @ y)


@pytest.mark.parametrize(
    "function",
    [plain_mean, counts_shape, counts_len, takes_the_median, ignores_weight_in_lstsq],
)
@pytest.mark.parametrize("parameters", [{}, {"capacity": 30}, {"window": 5}, {"capacity": 512, "window": 80}])
def test_models_that_count_rows_of_weight_zero_are_refused(function, parameters):
    with pytest.raises(ValueError, match=rf"{function.__name__} .*test_custom_models.py.*weight 0.*jnp.sum\(weight"):
        fit(function, rolling=parameters)


def test_parameters_for_each_row_are_refused():
    with pytest.raises(ValueError, match="residuals.*grows with the number of rows.*fixed shape"):

        def residuals(X, y, weight):
            return weight * (y - jnp.sum(weight * y) / jnp.sum(weight))

        fit(residuals)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("bad", [[0], [3, 4], [0, 15, 29], [29], [14, 15, 16]])
@pytest.mark.parametrize("parameters", [{}, {"capacity": 100}, {"capacity": 30}], ids=str)
def test_nan_and_infinity_outside_a_window_never_reach_it(bad, parameters):
    # log(0) = -inf and 1/0 = inf: zero weight times either is NaN. Windows of good rows know nothing of it.
    def log_mean(X, y, weight, case):  # `case` makes it a new model, which passes through the checks of new models
        total = jnp.sum(weight)
        return {"log": jnp.sum(weight * jnp.log(X[:, 0])) / total, "inverse": weight @ (1 / X) / total}

    positive = np.abs(X) + 0.1
    positive[bad] = 0.0
    fitted = fit(log_mean, positive, rolling={"window": 4, **parameters}, case=str(bad))
    for i, (_, rows) in enumerate(reference.window_rows(None, np.ones(30), window=4)):
        touched = bool(set(rows) & set(bad))
        assert fitted.converged_[i] == (not touched)
        if not touched:
            np.testing.assert_allclose(fitted.params_["log"][i], np.log(positive[rows, 0]).mean(), rtol=1e-12)
            np.testing.assert_allclose(fitted.params_["inverse"][i], (1 / positive[rows]).mean(axis=0), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_that_overflow_outside_a_window_never_reach_it():
    data, y = X.copy(), Y.copy()
    data[10], y[10] = 1e200, 1e300  # finite, but their squares are not
    for model in (models.Linear(), models.Linear(alpha=1.0), models.Moments(power=2.0)):
        fitted = RollingJaxEstimator(model, window=5, capacity=64).fit(data, y)
        clean = RollingJaxEstimator(model, window=5, capacity=64).fit(X, Y)
        far = np.r_[0:10, 15:30]
        for name, values in clean.params_.items():
            np.testing.assert_allclose(fitted.params_[name][far], values[far], rtol=1e-12, atol=1e-12)


def ridge(X, y, weight, strength, shape):
    # Array hyperparameters, nested results.
    total = jnp.sum(weight)
    centre = weight @ X / total
    X = X - centre
    slope = jnp.linalg.solve((weight * X.T) @ X + strength * jnp.diag(shape), (weight * X.T) @ y)
    return (slope, {"centre": centre, "level": weight @ y / total})


@pytest.mark.slow(all_but=["7"])
@pytest.mark.parametrize("window", ["expanding", 7])
def test_padding_never_changes_a_result(window):
    runs = []
    for capacity in (30, 33, 64, 100, 500):
        model = models.Custom(fit=ridge, strength=0.5, shape=np.array([1.0, 2.0]))
        runs.append(RollingJaxEstimator(model, window=window, capacity=capacity, halflife=6.0).fit(X, Y).params_)
    for params in runs[1:]:
        jax.tree_util.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14), params, runs[0])
    # And it is the right one.
    for i, (newest, rows) in enumerate(reference.window_rows(None, np.ones(30), window=window)):
        w = reference.halflife_weights(rows, newest, 6.0)
        centred = X[rows] - w @ X[rows] / w.sum()
        slope = np.linalg.solve((w * centred.T) @ centred + 0.5 * np.diag([1.0, 2.0]), (w * centred.T) @ Y[rows])
        np.testing.assert_allclose(runs[0][0][i], slope, rtol=1e-9, atol=1e-12)


class Location(models.WindowModel):
    """An M-estimate of location by Newton's method, in a subclass of one's own."""

    target = "required"

    def __init__(self, width=1.0, warm=True):
        self.width = width
        self.warm = warm

    def initial(self, n_features, n_outputs):
        return {"location": np.zeros(())} if self.warm else None

    def fit(self, X, y, weight, hyper, start):
        def gradient(m):
            return jnp.sum(weight * jnp.tanh((y - m) / hyper["width"]))

        def step(state):
            m, n, _ = state
            slope = jnp.sum(weight / jnp.cosh((y - m) / hyper["width"]) ** 2) / hyper["width"]
            change = gradient(m) / slope
            change = jnp.clip(change, -hyper["width"], hyper["width"])
            return m + change, n + 1, jnp.abs(change)

        begin = jnp.zeros((), y.dtype) if start is None else start["location"]
        m, n, change = lax.while_loop(
            lambda s: (s[2] > 1e-10) & (s[1] < 200), step, (begin, jnp.int32(0), jnp.full((), jnp.inf, y.dtype))
        )
        return {"location": m}, models.FitInfo(converged=change <= 1e-10, n_iter=n)

    def predict(self, params, X):
        return params["location"] + 0 * X[:, 0]


@pytest.mark.slow
def test_a_warm_started_subclass_gets_there_sooner_and_to_the_same_place():
    rng = np.random.default_rng(4)
    data, y = rng.normal(size=(600, 1)), 10 + rng.standard_t(2, size=600)
    cold = RollingJaxEstimator(Location(warm=False), min_periods=20).fit(data, y)
    warm = RollingJaxEstimator(Location(), min_periods=20).fit(data, y)
    assert cold.converged_.all() and warm.converged_.all()
    np.testing.assert_allclose(warm.params_["location"], cold.params_["location"], rtol=1e-8)
    assert warm.n_iter_.dtype.kind == "i" and warm.n_iter_.shape == (581,)
    # From 0 it takes at least ten clipped steps to 10; from the window before, two or three.
    assert cold.n_iter_.min() >= 10
    assert np.median(warm.n_iter_) <= 4
    assert warm.n_iter_.sum() < 0.5 * cold.n_iter_.sum()
    # The estimate solves its equation.
    for i in (0, 300, -1):
        rows = slice(0, warm.window_stops_[i])
        assert abs(np.tanh(y[rows] - warm.params_["location"][i]).sum()) < 1e-6
    np.testing.assert_allclose(warm.predict(data[:3]), warm.params_["location"][-1])


def test_a_class_that_cannot_be_compiled_is_named_with_its_method():
    class Broken(Location):
        def fit(self, X, y, weight, hyper, start):
            return {"location": jnp.sum(weight) if y[0] > 0 else jnp.sum(y)}, models.FitInfo()

    with pytest.raises(TypeError, match=r"Broken\.fit.*test_custom_models.py.*jnp.where"):
        RollingJaxEstimator(Broken()).fit(X, Y)


def test_models_without_a_target_or_a_prediction():
    fitted = RollingJaxEstimator(models.Custom(fit=lambda X, y, weight: weight @ X / jnp.sum(weight))).fit(X)
    np.testing.assert_allclose(fitted.params_, np.cumsum(X, axis=0) / np.arange(1, 31)[:, None], rtol=1e-12, atol=1e-14)
    with pytest.raises(ValueError, match="predict="):
        fitted.predict(X)


class LogMean(models.WindowModel):
    """Moves half of the way from where it starts to the mean logarithm: a NaN would stay for ever."""

    def initial(self, n_features, n_outputs):
        return {"mean": np.zeros(())}

    def fit(self, X, y, weight, hyper, start):
        target = jnp.sum(weight * jnp.log(y)) / jnp.sum(weight)
        return {"mean": start["mean"] + (target - start["mean"]) / 2}, models.FitInfo()


@pytest.mark.filterwarnings("ignore:invalid value", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_warm_start_is_made_anew_after_a_window_without_a_result():
    n, bad = 400, 200
    y = np.full(n, np.e)
    y[bad] = -1.0
    fitted = RollingJaxEstimator(LogMean(), window=5).fit(np.ones((n, 1)), y)
    assert np.flatnonzero(~fitted.converged_).tolist() == list(range(bad, bad + 5))
    assert fitted.params_["mean"][bad + 5] == pytest.approx(0.5)  # anew, from zero


def test_predictions_with_large_parameters_stay_small_in_memory():
    def fit_wide(X, y, weight):
        return jnp.full((400, 400), jnp.sum(weight * y) / jnp.sum(weight))

    def first_entry(params, X):
        return params[0, 0] + 0 * X[:, 0]

    timed = np.column_stack([np.arange(30.0), X])
    fitted = RollingJaxEstimator(models.Custom(fit_wide, first_entry), time=0, step=10).fit(timed, Y)
    tracemalloc.start()
    predictions = fitted.predict(timed[12:])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(predictions[[0, -1]], [Y[:10].mean(), Y[:20].mean()], rtol=1e-12)
    assert peak < 256e6  # 512 rows of their own 400 x 400 parameters would be 655 MB
