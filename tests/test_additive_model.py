"""A user's model of statistics that merge, on every kind of window, against plain NumPy."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from skjaxwin import RollingJaxEstimator, models, walk_forward_grid
from skjaxwin.models import FitInfo, WindowModel
from tests import reference

ALGORITHMS = ["exact", "refit"]  # "auto" is one of the two; the long series below take it


class Ratio(WindowModel):
    """Sum of y over the sum of the first feature, shrunk: two sums, and nothing else to write."""

    additive = True

    def __init__(self, shrink=0.0):
        self.shrink = shrink

    def statistics(self, x, y, weight):
        return {"x": weight * x[0], "y": weight * y}

    def solve(self, statistics, hyper):
        return {"ratio": statistics["y"] / (statistics["x"] + hyper["shrink"])}, FitInfo()

    def predict(self, params, X):
        return params["ratio"] * X[:, 0] if params["ratio"].ndim == 0 else X[:, :1] * params["ratio"]


class Maximum(WindowModel):
    """The largest value of each feature: a merge that is no sum, and that weights do not touch."""

    additive = True
    target = "ignored"
    estimator_type = None

    def statistics(self, x, y, weight):
        return x

    def merge(self, left, right):
        return jnp.maximum(left, right)

    def scale(self, statistics, factor):
        return statistics

    def solve(self, statistics, hyper):
        return {"maximum": statistics}, FitInfo()


class Bar(WindowModel):
    """First and last value of a feature: a merge that depends on the order."""

    additive = True
    target = "ignored"
    estimator_type = None

    def statistics(self, x, y, weight):
        return {"open": x[0], "close": x[0]}

    def merge(self, left, right):
        return {"open": left["open"], "close": right["close"]}

    def scale(self, statistics, factor):
        return statistics

    def solve(self, statistics, hyper):
        return statistics, FitInfo()


def make_data(n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0.5, 2.0, size=(n, 2))
    return X, X[:, 0] * rng.uniform(1, 3, size=n), rng.choice([0.0, 0.5, 1.0, 2.0], size=n)


def panel_times(n):
    """Three rows a stamp, and holes between the stamps."""
    stamp = np.arange(n) // 3
    return (stamp + 3.0 * (stamp // 7)).tolist()


# (window, whether there is a time column)
WINDOWS = [(12, False), (1, False), ("expanding", False), (7, True), (9.5, True), (2, True), ("expanding", True)]


def fit(model, X, y, weight, window, timed, **parameters):
    """Fit, and return the estimator with the rows of its windows."""
    times = panel_times(len(X)) if timed else None
    table = X if times is None else np.column_stack([times, X])
    fitted = RollingJaxEstimator(model, window=window, time=0 if timed else None, **parameters).fit(table, y, weight)
    windows = reference.window_rows(times, weight, window=window, step=parameters.get("step", 1))
    assert fitted.window_times_.tolist() == [newest for newest, _ in windows]
    return fitted, windows, times


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("window", "timed"), WINDOWS)
def test_a_ratio_of_sums(window, timed, algorithm):
    X, y, weight = make_data(150)
    for shrink, step in ((0.0, 1), (2.5, 3)):
        model = Ratio(shrink)
        fitted, windows, _ = fit(model, X, y, weight, window, timed, algorithm=algorithm, capacity=160, step=step)
        expected = [weight[r] @ y[r] / (weight[r] @ X[r, 0] + shrink) for _, r in windows]
        np.testing.assert_allclose(fitted.params_["ratio"], expected, rtol=1e-12)
        np.testing.assert_array_equal(fitted.converged_, True)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("window", "timed"), WINDOWS)
def test_a_ratio_of_sums_that_fade(window, timed, algorithm):
    X, y, weight = make_data(150)
    parameters = {"halflife": 4.0, "algorithm": algorithm, "capacity": 160}
    fitted, windows, times = fit(Ratio(0.5), X, y, weight, window, timed, **parameters)
    expected = []
    for newest, rows in windows:
        w = weight[rows] * reference.halflife_weights(rows if times is None else [times[r] for r in rows], newest, 4.0)
        expected.append(w @ y[rows] / (w @ X[rows, 0] + 0.5))
    np.testing.assert_allclose(fitted.params_["ratio"], expected, rtol=1e-11)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("window", "timed"), WINDOWS)
def test_a_maximum(window, timed, algorithm):
    X, _, weight = make_data(150, seed=1)
    X = X - 5  # nothing may be filled up with zeros
    fitted, windows, _ = fit(Maximum(), X, None, weight, window, timed, algorithm=algorithm, capacity=160)
    np.testing.assert_array_equal(fitted.params_["maximum"], [X[r].max(axis=0) for _, r in windows])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("window", "timed"), WINDOWS)
def test_first_and_last(window, timed, algorithm):
    X, _, weight = make_data(150, seed=2)
    fitted, windows, _ = fit(Bar(), X, None, weight, window, timed, algorithm=algorithm, capacity=160)
    np.testing.assert_array_equal(fitted.params_["open"], [X[r[0], 0] for _, r in windows])
    np.testing.assert_array_equal(fitted.params_["close"], [X[r[-1], 0] for _, r in windows])


@pytest.mark.slow(all_but=["1300-auto"])
@pytest.mark.parametrize("algorithm", ["auto", "exact"])
@pytest.mark.parametrize("window", [250, 1_300, "expanding"])
def test_long_series(window, algorithm):
    n = 6_000
    X, y, _ = make_data(n, seed=3)
    ratio = RollingJaxEstimator(Ratio(), window=window, algorithm=algorithm).fit(X, y).params_["ratio"]
    maximum = RollingJaxEstimator(Maximum(), window=window, algorithm=algorithm).fit(X - 5).params_["maximum"]
    assert len(ratio) == len(maximum) == n
    starts = np.zeros(n, int) if window == "expanding" else np.maximum(np.arange(n) - window + 1, 0)
    for i in range(0, n, 61):
        rows = slice(starts[i], i + 1)
        assert ratio[i] == pytest.approx(y[rows].sum() / X[rows, 0].sum(), rel=1e-12)
        np.testing.assert_array_equal(maximum[i], (X[rows] - 5).max(axis=0))


@pytest.mark.slow(all_but=["1300-auto"])
@pytest.mark.parametrize("algorithm", ["auto", "exact"])
@pytest.mark.parametrize("window", [250, 1_300, "expanding"])
def test_first_and_last_of_long_series(window, algorithm):
    X, _, _ = make_data(6_000, seed=3)
    bar = RollingJaxEstimator(Bar(), window=window, algorithm=algorithm).fit(X).params_
    starts = np.zeros(6_000, int) if window == "expanding" else np.maximum(np.arange(6_000) - window + 1, 0)
    np.testing.assert_array_equal(bar["open"], X[starts, 0])
    np.testing.assert_array_equal(bar["close"], X[:, 0])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_left_leaves_no_trace(algorithm):
    X, y, _ = make_data(150)
    y[30] = 1e16
    fitted = RollingJaxEstimator(Ratio(), window=10, algorithm=algorithm, capacity=160).fit(X, y)
    expected = [y[i - 9 : i + 1].sum() / X[i - 9 : i + 1, 0].sum() for i in range(40, 150)]
    np.testing.assert_allclose(fitted.params_["ratio"][40:], expected, rtol=1e-12)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_several_outputs(algorithm):
    X, y, weight = make_data(120)
    y = np.column_stack([y, 2 + y**2, -y])
    fitted, windows, _ = fit(Ratio(), X, y, weight, 15, False, algorithm=algorithm)
    assert fitted.params_["ratio"].shape == (len(windows), 3)
    expected = [weight[r] @ y[r] / (weight[r] @ X[r, 0]) for _, r in windows]
    np.testing.assert_allclose(fitted.params_["ratio"], expected, rtol=1e-12)
    np.testing.assert_allclose(fitted.predict(X[:4]), X[:4, :1] * expected[-1], rtol=1e-12)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_single_precision(algorithm):
    X, y, weight = make_data(150)
    X, y = X.astype(np.float32), y.astype(np.float32)
    fitted, windows, _ = fit(Ratio(), X, y, weight, 12, False, algorithm=algorithm, capacity=160)
    assert fitted.params_["ratio"].dtype == np.float32
    expected = [weight[r] @ y[r].astype(float) / (weight[r] @ X[r, 0].astype(float)) for _, r in windows]
    np.testing.assert_allclose(fitted.params_["ratio"], expected, rtol=1e-5)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_missing_rows_are_skipped(algorithm):
    X, y, _ = make_data(80)
    y[[20, 21, 50]], X[33, 1] = np.nan, np.nan
    valid = np.isfinite(y) & np.isfinite(X[:, 1])
    fitted = RollingJaxEstimator(Ratio(), window=8, missing="skip", algorithm=algorithm).fit(X, y)
    rows = [[r for r in range(max(0, i - 7), i + 1) if valid[r]] for i in range(80)]
    np.testing.assert_allclose(fitted.params_["ratio"], [y[r].sum() / X[r, 0].sum() for r in rows], rtol=1e-12)


def test_predictions_are_out_of_sample():
    X, y, _ = make_data(90)
    predicted = RollingJaxEstimator(Ratio(), window=20).walk_forward_predict(X, y)
    assert np.isnan(predicted[0])
    for row in range(1, 90):
        past = slice(max(0, row - 20), row)
        assert predicted[row] == pytest.approx(X[row, 0] * y[past].sum() / X[past, 0].sum(), rel=1e-12)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_grid_of_its_parameter(algorithm):
    X, y, _ = make_data(90)
    shrinks = [0.0, 1.0, 30.0]
    estimator = RollingJaxEstimator(Ratio(), window=20, algorithm=algorithm)
    grid = walk_forward_grid(estimator, X, y, param_grid={"model__shrink": shrinks})
    for candidate, params in zip(grid.candidates, grid.params, strict=True):
        starts = [max(0, i - 19) for i in range(90)]
        sums = [(y[s : i + 1].sum(), X[s : i + 1, 0].sum()) for i, s in enumerate(starts)]
        expected = [a / (b + candidate["model__shrink"]) for a, b in sums]
        np.testing.assert_allclose(params["ratio"], expected, rtol=1e-12)


def test_a_new_value_or_data_set_compiles_nothing(compiled):
    X, y, _ = make_data(150)
    RollingJaxEstimator(Ratio(1.0), window=12, algorithm="exact", capacity=170).fit(X, y)
    before = len(compiled)
    RollingJaxEstimator(Ratio(3.0), window=12, algorithm="exact", capacity=170).fit(X[:100], 2 * y[:100])
    assert len(compiled) == before


@pytest.mark.parametrize("algorithm", ["auto", "refit"])
def test_models_that_do_not_merge_are_refitted(algorithm):
    X, y, _ = make_data(40)
    model = models.Custom(fit=lambda X, y, weight: jnp.sum(weight * y) / jnp.sum(weight))
    fitted = RollingJaxEstimator(model, window=5, algorithm=algorithm).fit(X, y)
    np.testing.assert_allclose(fitted.params_, [y[max(0, i - 4) : i + 1].mean() for i in range(40)], rtol=1e-12)
