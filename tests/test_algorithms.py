"""Merged statistics and refits of every window are two ways to one answer."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from skjaxwin import RollingJaxEstimator, models
from tests import precise, reference

# (features, intercept, outputs, half-life): each is a compile or two, so there are few.
SHAPES = [(1, True, None, None), (3, False, None, 8.0), (4, True, 2, None), (5, True, None, None)]
CAPACITY = 200


def rolling(algorithm, alpha=0.0, intercept=True, **parameters):
    return RollingJaxEstimator(models.Linear(alpha, intercept), algorithm=algorithm, **parameters)


@st.composite
def problems(draw):
    """Rows with ties and holes in time, weights with zeros, every kind of window."""
    k, intercept, outputs, halflife = draw(st.sampled_from(SHAPES))
    n = draw(st.integers(1, CAPACITY))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    X = rng.normal(size=(n, k)) * 10.0 ** rng.integers(-2, 3, size=k) + rng.integers(-2, 3, size=k)
    if draw(st.sampled_from([False, False, True])):
        X = np.round(X)  # constant and dependent columns in short windows
    y = rng.normal(size=n if outputs is None else (n, outputs)) + (3 * X[:, 0] if outputs is None else 3 * X[:, :1])
    weight = rng.choice([0.0, 0.5, 1.0, 2.0], size=n) if draw(st.booleans()) else np.ones(n)
    weight[rng.integers(n)] = 1.0
    times = None
    if draw(st.booleans()):
        times = [float(t if t < 60 else t + 50) for t in rng.integers(0, max(3, n // 2), size=n)]
    # No more than 64 rows, unless it holds all of them: wider ones would be more kernels.
    window = draw(st.one_of(st.just("expanding"), st.integers(1, 20), st.sampled_from([0.5, 2.0, 9.0, 20.0])))
    if times is None and draw(st.booleans()):
        window = draw(st.integers(20, 64))
    cut = {"window": window, "step": draw(st.integers(1, 4)), "min_periods": draw(st.sampled_from([1, 1, k + 3]))}
    return X, y, weight, times, cut, draw(st.sampled_from([0.0, 0.0, 0.1, 10.0])), intercept, halflife


def weights_of(rows, newest, weight, times, halflife):
    if halflife is None:
        return weight[rows]
    return weight[rows] * reference.halflife_weights(list(rows) if times is None else [times[r] for r in rows],
                                                     newest, halflife)  # fmt: skip


def close(found, expected, X, y, tolerance):
    """Compare fits of a window in the units of its columns and of y."""
    size = np.abs(X).max(axis=0)
    (coef, constant), (wanted, level) = found, expected
    largest = max(np.abs(wanted * size).max(), np.abs(y).max())
    np.testing.assert_allclose(coef * size, wanted * size, rtol=tolerance, atol=tolerance * largest)
    np.testing.assert_allclose(constant, level, rtol=tolerance, atol=tolerance * X.shape[1] * largest)


@pytest.mark.slow
@settings(max_examples=10)
@given(problems())
def test_merging_and_refitting_agree_with_each_other_and_with_lstsq(problem):
    X, y, weight, times, cut, alpha, intercept, halflife = problem
    windows = reference.window_rows(times, weight, **cut)
    assume(windows)
    table = X if times is None else np.column_stack([times, X])
    exact, refit = (
        rolling(algorithm, alpha, intercept, capacity=CAPACITY, time=None if times is None else 0,
                halflife=halflife, **cut).fit(table, y, weight)
        for algorithm in ("exact", "refit")
    )  # fmt: skip
    wanted_times = [newest for newest, _ in windows]
    assert exact.window_times_.tolist() == refit.window_times_.tolist() == wanted_times
    for i, (newest, rows) in enumerate(windows):
        w = weights_of(rows, newest, weight, times, halflife)
        slopes, constant, condition = reference.least_squares(X[rows], y[rows], w, alpha, intercept)
        if 1e4 < condition < np.inf:
            continue  # which side of "dependent" such a window falls on is a matter of rounding
        assert bool(exact.determined_[i]) == bool(refit.determined_[i]) == (condition < np.inf)
        tolerance = 1e-9 if condition < 1e2 else 1e-7
        one, other = ((f.params_["coef"][i], f.params_["intercept"][i]) for f in (exact, refit))
        close(one, other, X[rows], y[rows], tolerance)
        close(one, (slopes, constant), X[rows], y[rows], tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["exact", "refit"])
@pytest.mark.parametrize("k", [1, 5])
def test_as_many_rows_as_slopes_never_determine_a_level_too(k, algorithm):
    # Rounding leaves something of the last column nearly always, and now and then a lot of it.
    rng = np.random.default_rng(35)
    X = rng.normal(size=(CAPACITY, k)) + rng.integers(-2, 3, size=k)
    y = rng.normal(size=CAPACITY)
    fitted = rolling(algorithm, window=k, capacity=CAPACITY).fit(X, y)
    assert not fitted.determined_.any()
    assert np.isinf(fitted.condition_).all()
    for i in range(k - 1, CAPACITY):
        rows = slice(i - k + 1, i + 1)
        shortest = np.linalg.pinv(X[rows] - X[rows].mean(axis=0), rcond=1e-9) @ (y[rows] - y[rows].mean())
        np.testing.assert_allclose(fitted.params_["coef"][i], shortest, rtol=1e-6, atol=1e-6 * np.abs(shortest).max())


@pytest.mark.slow
@settings(max_examples=3)
@given(
    st.integers(5_000, 9_000),
    st.sampled_from([100, "expanding"]),
    st.sampled_from([0.0, 0.1, 10.0]),
    st.integers(0, 2**32),
)
def test_the_default_agrees_on_long_series(n, window, alpha, seed):
    k = 3
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, k)) + 100 * rng.integers(-1, 2, size=k)
    y = X @ np.arange(1.0, k + 1) + rng.normal(size=n) + 7
    weight = rng.choice([0.0, 0.5, 1.0, 2.0], size=n)
    auto, exact = (
        rolling(algorithm, alpha, window=window, min_periods=20, capacity=9_000).fit(X, y, weight)
        for algorithm in ("auto", "exact")
    )
    np.testing.assert_array_equal(auto.window_stops_, exact.window_stops_)
    assert auto.determined_.all() and exact.determined_.all()
    np.testing.assert_allclose(auto.params_["coef"], exact.params_["coef"], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(auto.params_["intercept"], exact.params_["intercept"], rtol=1e-9, atol=1e-8)
    kept = np.flatnonzero(weight)
    for i in range(0, len(auto.window_stops_), 1_009):
        stop = i + 20
        rows = kept[0 if window == "expanding" else max(0, stop - window) : stop]
        slopes, constant, _ = reference.least_squares(X[rows], y[rows], weight[rows], alpha)
        np.testing.assert_allclose(auto.params_["coef"][i], slopes, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(auto.params_["intercept"][i], constant, rtol=1e-9, atol=1e-8)


@pytest.mark.slow(all_but=["auto"])
@pytest.mark.parametrize("algorithm", ["auto", "exact"])
def test_several_outputs_of_a_long_series(algorithm):
    outputs = 3
    rng = np.random.default_rng(31)
    X = rng.normal(size=(6_000, 2))
    y = X @ rng.normal(size=(2, outputs)) + rng.normal(size=(6_000, outputs)) + np.arange(outputs)
    fitted = rolling(algorithm, window=100, min_periods=10).fit(X, y)
    assert fitted.params_["coef"].shape == (5_991, outputs, 2)
    for i in range(0, 5_991, 173):
        rows = slice(max(0, i + 10 - 100), i + 10)
        slopes, constant, _ = reference.least_squares(X[rows], y[rows], np.ones(rows.stop - rows.start))
        np.testing.assert_allclose(fitted.params_["coef"][i], slopes, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(fitted.params_["intercept"][i], constant, rtol=1e-9, atol=1e-10)


def inflation(X, weight, intercept):
    """Return the square root of the largest variance inflation factor, each by a regression on the others."""
    X = X - (weight @ X / weight.sum() if intercept else 0)
    X = X * np.sqrt(weight)[:, None]
    factors = []
    for j in range(X.shape[1]):
        others = np.delete(X, j, axis=1)
        residual = X[:, j] - others @ np.linalg.lstsq(others, X[:, j], rcond=None)[0]
        factors.append(X[:, j] @ X[:, j] / (residual @ residual))
    return np.sqrt(max(factors))


@pytest.mark.slow(all_but=["60-40-exact-False"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(
    ("n", "window", "algorithm"), [(60, 40, "exact"), (60, 40, "refit"), (6_000, 120, "auto"), (6_000, 120, "exact")]
)
def test_the_condition_is_the_root_of_the_largest_inflation_factor(n, window, algorithm, intercept):
    rng = np.random.default_rng(32)
    X = rng.normal(size=(n, 3)) * [1, 1e3, 1e-2] + [1, 0, 0.05]
    X[:, 2] += 3e-2 * X[:, 0]
    weight = rng.uniform(0.5, 2, size=n)
    fitted = rolling(
        algorithm, intercept=intercept, window=window, min_periods=8, capacity=9_000 if n == 6_000 else 64
    ).fit(X, X.sum(axis=1), weight)
    assert fitted.condition_.shape == (n - 7,)
    for i in range(0, n - 7, 1 + n // 60):
        rows = slice(max(0, i + 8 - window), i + 8)
        assert fitted.condition_[i] == pytest.approx(inflation(X[rows], weight[rows], intercept), rel=1e-6)
    assert np.median(fitted.condition_) > 2


@pytest.mark.slow(all_but=["6000-auto"])
@pytest.mark.parametrize(("n", "algorithm"), [(50, "exact"), (50, "refit"), (6_000, "auto")])
def test_the_condition_of_one_regressor_is_one_and_of_dependent_ones_infinite(n, algorithm):
    rng = np.random.default_rng(33)
    x = rng.normal(size=n)
    x[20:30] = 4.0
    alone = rolling(algorithm, window=10).fit(x[:, None], x)
    # A single row, and a constant, tell nothing about a slope.
    free = ~np.isin(np.arange(n), [0, 29])
    np.testing.assert_allclose(alone.condition_[free], 1.0, rtol=1e-6)
    assert np.isinf(alone.condition_[~free]).all()
    np.testing.assert_array_equal(alone.determined_, free)
    twice = rolling(algorithm, window=10).fit(np.column_stack([x, 3 * x]), x)
    assert np.isinf(twice.condition_).all() and not twice.determined_.any()
    # Rows are too few for two slopes and a level until there are three.
    pair = rolling(algorithm, window=10).fit(np.column_stack([x, rng.normal(size=n)]), x)
    assert np.isinf(pair.condition_[:2]).all() and np.isfinite(pair.condition_[2:15]).all()


@pytest.mark.slow(all_but=["auto"])
@pytest.mark.parametrize("algorithm", ["auto", "exact", "refit"])
def test_twenty_regressors(algorithm):
    # So many are factorised by LAPACK where the platform has it.
    rng = np.random.default_rng(34)
    X = rng.normal(size=(1_500, 20)) + rng.normal(size=20)
    y = X @ rng.normal(size=20) + rng.normal(size=1_500)
    fitted = rolling(algorithm, window=100, min_periods=60).fit(X, y)
    bounds = precise.rolling_bounds(1_500, 100, 60)
    for i in range(0, len(bounds), 37):
        rows = slice(*bounds[i])
        design = np.column_stack([X[rows], np.ones(rows.stop - rows.start)])
        solution = np.linalg.lstsq(design, y[rows], rcond=None)[0]
        np.testing.assert_allclose(fitted.params_["coef"][i], solution[:-1], rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(fitted.params_["intercept"][i], solution[-1], rtol=1e-9, atol=1e-10)
    assert fitted.determined_.all()


@pytest.fixture
def compiles_of(compiled):
    def count(function, *args):
        before = len(compiled)
        function(*args)
        return len(compiled) - before

    return count


def data(n, seed=0):
    rng = np.random.default_rng([n, seed])
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + rng.normal(size=n)


@pytest.mark.slow
# All are padded to 4096 rows, as no other test of merging is.
@pytest.mark.parametrize("window", [100, "expanding"])
def test_merging_compiles_once_for_all_data_of_a_size(window, compiles_of):
    X, y = data(3_000)
    rolling("exact", window=window).fit(X, y)
    for n, seed in ((3_000, 1), (2_500, 2), (4_000, 3)):
        assert compiles_of(rolling("exact", window=window).fit, *data(n, seed)) == 0, n
    # Weights other than one are another kernel, once.
    weight = np.where(np.arange(3_000) % 7 == 0, 0.0, 2.0)
    rolling("exact", window=window).fit(X, y, weight)
    assert compiles_of(rolling("exact", window=window).fit, X, y, 2 * weight) == 0
    # And a new value of anything that is a number.
    for alpha in (0.1, 10, np.float32(2)):
        assert compiles_of(rolling("exact", alpha, window=window).fit, X, y) == 0, alpha
    for step in (2, 7, 50):
        assert compiles_of(rolling("exact", window=window, step=step).fit, X, y) == 0, step
    assert compiles_of(rolling("exact", window=window, min_periods=30).fit, X, y) == 0


@pytest.mark.parametrize("window", [20, 65, 128, 129, 250])
def test_merging_compiles_once_for_windows_of_any_length_up_to_256_rows(window, compiles_of):
    X, y = data(3_000)
    rolling("exact", window=100).fit(X, y)
    assert compiles_of(rolling("exact", window=window).fit, X, y) == 0


def test_the_default_compiles_once_for_long_series(compiles_of):
    X, y = data(6_000)
    rolling("auto", window=100).fit(X, y)
    for n, seed in ((6_000, 1), (5_500, 2), (8_000, 3)):
        assert compiles_of(rolling("auto", window=100).fit, *data(n, seed)) == 0, n
    for alpha in (0.1, 10):
        assert compiles_of(rolling("auto", alpha, window=100).fit, X, y) == 0, alpha
    for window in (70, 128):
        assert compiles_of(rolling("auto", window=window).fit, X, y) == 0, window


def test_an_unknown_algorithm_is_named():
    X, y = data(30)
    with pytest.raises(ValueError, match="algorithm"):
        rolling("fast").fit(X, y)
