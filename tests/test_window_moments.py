"""Means, variances, shapes and covariances of each window equal two passes over exactly its rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from skjaxwin import RollingJaxEstimator, models
from tests import reference

ALL = ("mean", "variance", "std", "skewness", "kurtosis")
SPREAD = ("mean", "variance", "std")
ALGORITHMS = ["exact", "refit"]  # "auto" is one of the two; the long series below take it
LONG = np.longdouble


def moments(statistics="mean", power=1.0, ddof=1, **parameters):
    return RollingJaxEstimator(models.Moments(power, statistic=statistics, ddof=ddof), **parameters)


def two_pass(x, weight=None, ddof=1, axis=0):
    """Return the statistics along an axis, a weight counting as that many rows; NaN where rows are too few."""
    x = np.asarray(x).astype(LONG)
    w = np.ones_like(x) if weight is None else np.broadcast_to(np.asarray(weight, LONG), x.shape)
    total = w.sum(axis)
    mean = (w * x).sum(axis) / total
    rest = x - np.expand_dims(mean, axis)
    mean = mean + (w * rest).sum(axis) / total
    rest = x - np.expand_dims(mean, axis)
    square = rest * rest
    m2, m3, m4 = ((w * power).sum(axis) / total for power in (square, square * rest, square * square))
    with np.errstate(all="ignore"):
        variance = m2 * total / (total - ddof)
        found = {"mean": mean, "variance": variance, "std": np.sqrt(variance)}
        found["skewness"] = np.sqrt(total * (total - 1)) / (total - 2) * m3 / m2**1.5
        excess = (total + 1) * m4 / m2**2 - 3 * (total - 1)
        found["kurtosis"] = (total - 1) / ((total - 2) * (total - 3)) * excess
    return {name: value.astype(float) for name, value in found.items()}


def check(params, i, expected, rtol=1e-9):
    for name in ALL:
        np.testing.assert_allclose(params[name][i], expected[name], rtol=rtol, atol=1e-11, err_msg=name)


def test_a_huge_value_before_small_ones():
    # The textbook window: 9.54e8 has left, and one of the five rows is missing.
    x = np.array([9.54e8, 0.6225, np.nan, 0.0, 1.14, 0.0])
    fitted = moments("std", window=5, min_periods=3, missing="skip").fit(x[:, None])
    assert fitted.window_times_.tolist() == [3, 4, 5]
    assert fitted.params_["std"][-1, 0] == pytest.approx(0.55091, abs=5e-6)
    np.testing.assert_allclose(fitted.params_["std"][:, 0], [np.nanstd(x[i - 4 if i > 4 else 0 : i + 1], ddof=1)
                                                             for i in (3, 4, 5)], rtol=1e-12)  # fmt: skip


@settings(max_examples=8)
@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(-12, 12)), min_size=1, max_size=4),
    st.sampled_from(["exact", "refit"]),
    st.integers(0, 2**32),
)
def test_variances_are_never_negative(runs, algorithm, seed):
    # Runs of very different sizes, one after the other; some are constant.
    rng = np.random.default_rng(seed)
    x = np.concatenate([10.0**size * (rng.normal(size=n) if n % 3 else np.ones(n)) for n, size in runs])
    assume(len(x) >= 2)
    fitted = moments(SPREAD, window=10, algorithm=algorithm, capacity=160).fit(x[:, None])
    assert (fitted.params_["variance"] >= 0).all() and (fitted.params_["std"] >= 0).all()
    for i, variance in enumerate(fitted.params_["variance"][:, 0]):
        rows = x[max(0, i - 8) : i + 2]
        np.testing.assert_allclose(variance, two_pass(rows)["variance"], rtol=1e-9, atol=(1e-15 * rows.max()) ** 2)


@pytest.mark.slow(all_but=["auto"])
@pytest.mark.parametrize("algorithm", ["auto", "exact"])
def test_tiny_numbers_after_huge_ones_in_a_long_series(algorithm):
    rng = np.random.default_rng(17)
    x = 1e-8 * rng.normal(size=20_000)
    x[:5_000] *= 1e20
    x[9_001:9_003] = [1e9, -1e9]
    fitted = moments(SPREAD, window=50, min_periods=50, algorithm=algorithm).fit(x[:, None])
    assert (fitted.params_["variance"] > 0).all()
    expected = two_pass(np.lib.stride_tricks.sliding_window_view(x, 50), axis=1)
    np.testing.assert_allclose(fitted.params_["variance"][:, 0], expected["variance"], rtol=1e-10)
    np.testing.assert_allclose(fitted.params_["std"][:, 0], expected["std"], rtol=1e-10)


@pytest.mark.parametrize("step", [1, 7, 1000, 5000])
def test_series_longer_than_the_table_of_a_call(step):
    x = np.random.default_rng(23).normal(size=150_000)
    x[70_000:70_010] = 1e6
    fitted = moments(SPREAD, window=200, step=step, algorithm="exact").fit(x[:, None])
    found = fitted.params_["std"][:, 0]
    edges = list(zip(fitted.window_starts_, fitted.window_stops_, strict=True))
    assert len(found) == len(edges) >= 150_000 // step - 1
    chosen = np.unique(np.r_[np.linspace(0, len(edges) - 1, 40).astype(int), np.flatnonzero(found > 1e3)[:20]])
    expected = [np.std(x[edges[i][0] : edges[i][1]], ddof=1) for i in chosen]
    np.testing.assert_allclose(found[chosen], expected, rtol=1e-10)


@pytest.mark.slow(all_but=["64-exact"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("n", [64, 20_000])
def test_constants_have_no_spread(n, algorithm):
    x = np.zeros((n, 2))
    x[0, 0] = 1000.0
    x[:, 1] = 0.1
    fitted = moments(SPREAD, window=10, min_periods=10, algorithm=algorithm).fit(x)
    assert fitted.params_["std"][0, 0] == pytest.approx(1000 / np.sqrt(10), rel=1e-12)
    assert (fitted.params_["std"][1:, 0] == 0).all() and (fitted.params_["mean"][1:, 0] == 0).all()
    assert (fitted.params_["variance"][1:, 0] == 0).all()
    np.testing.assert_allclose(fitted.params_["mean"][:, 1], 0.1, rtol=1e-15)
    assert fitted.params_["std"][:, 1].max() <= 1e-16


@pytest.mark.slow(all_but=["1-auto"])
@pytest.mark.parametrize("algorithm", ["auto", "exact"])
@pytest.mark.parametrize("first", [1, 777, 8_192])
def test_dropping_older_rows_changes_nothing(first, algorithm):
    x = np.random.default_rng(19).normal(size=(20_000, 2))
    x[0] = 1e8
    x[500:700, 1] += 1e6
    parameters = {"window": 100, "min_periods": 100, "algorithm": algorithm, "capacity": 20_000}
    whole, newer = moments(ALL, **parameters).fit(x), moments(ALL, **parameters).fit(x[first:])
    for name in ALL:
        np.testing.assert_allclose(newer.params_[name], whole.params_[name][first:], rtol=1e-12, atol=1e-12)


@pytest.mark.slow(all_but=["float64-100000000.0-1e-07-auto"])
@pytest.mark.parametrize("algorithm", ["auto", "exact"])
@pytest.mark.parametrize(
    ("dtype", "offset", "tolerance"), [(np.float64, 1e8, 1e-7), (np.float64, 1e4, 1e-11), (np.float32, 1e4, 1e-3)]
)
def test_offsets(dtype, offset, tolerance, algorithm):
    x = (offset + np.random.default_rng(20).normal(size=20_000)).astype(dtype)
    for window in (60, "expanding"):
        fitted = moments(SPREAD, window=window, min_periods=20, algorithm=algorithm).fit(x[:, None])
        for i in range(0, 19_981, 397):
            rows = slice(0 if window == "expanding" else max(0, i + 20 - window), i + 20)
            expected = two_pass(x[rows])
            for name in ("variance", "std"):
                assert fitted.params_[name].dtype == dtype
                np.testing.assert_allclose(fitted.params_[name][i, 0], expected[name], rtol=tolerance)
            assert fitted.params_["mean"][i, 0] == pytest.approx(expected["mean"], rel=float(np.finfo(dtype).eps) * 2)


@pytest.mark.slow(all_but=["20000-250-auto", "300-30-exact"])
@pytest.mark.parametrize(
    ("n", "window", "algorithm"),
    [
        (300, 30, "exact"),
        (300, 30, "refit"),
        (300, "expanding", "exact"),
        (20_000, 250, "auto"),
        (20_000, 250, "exact"),
        (20_000, "expanding", "auto"),
    ],
)
def test_pandas_agrees(n, window, algorithm):
    X = np.random.default_rng(21).gamma(2.0, size=(n, 2)) + [0, 5]
    fitted = moments(ALL, window=window, algorithm=algorithm).fit(X)
    frame = pd.DataFrame(X)
    cut = frame.expanding(4) if window == "expanding" else frame.rolling(window, min_periods=4)
    # By default a window needs the four rows of the kurtosis.
    assert fitted.window_times_.tolist() == list(range(3, n))
    for name, function in zip(ALL, ("mean", "var", "std", "skew", "kurt"), strict=True):
        expected = getattr(cut, function)().to_numpy()[3:]
        np.testing.assert_allclose(fitted.params_[name], expected, rtol=1e-7, atol=1e-8, err_msg=name)
    for i in range(0, n - 3, 1 + n // 40):
        rows = X[0 if window == "expanding" else max(0, i + 4 - window) : i + 4]
        check(fitted.params_, i, two_pass(rows))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_weight_counts_as_that_many_rows(algorithm):
    rng = np.random.default_rng(22)
    X, weight = rng.normal(size=(80, 2)), rng.integers(1, 4, size=80)
    times = np.arange(80.0)[:, None]
    parameters = {"window": 12, "time": 0, "min_periods": 12, "algorithm": algorithm, "capacity": 240}
    weighted = moments(ALL, **parameters).fit(np.hstack([times, X]), sample_weight=weight)
    repeated = moments(ALL, **parameters).fit(np.repeat(np.hstack([times, X]), weight, axis=0))
    same = np.isin(repeated.window_times_, weighted.window_times_)
    assert same.sum() == len(weighted.window_times_) == 69
    for name in ALL:
        np.testing.assert_allclose(weighted.params_[name], repeated.params_[name][same], rtol=1e-10, atol=1e-12)
    for i in range(69):
        rows = slice(i, i + 12)
        check(weighted.params_, i, two_pass(X[rows], weight[rows, None]))


@pytest.mark.slow
@settings(max_examples=8)
@given(
    st.integers(1, 60),
    st.one_of(st.just("expanding"), st.integers(1, 30), st.sampled_from([2.5, 9.0, 40.0])),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from(["exact", "refit"]),
    st.integers(0, 2**32),
)
def test_every_kind_of_window(n, window, step, timed, algorithm, seed):
    rng = np.random.default_rng(seed)
    X, weight = rng.normal(size=(n, 2)) * [1, 100], rng.choice([0.0, 1.0, 1.5, 3.0], size=n)
    times = [float(t) for t in rng.integers(0, 40, size=n)] if timed else None
    assume((weight > 0).any())
    expected = reference.window_rows(times, weight, window=window, step=step, min_periods=4)
    assume(expected)
    table = X if times is None else np.column_stack([times, X])
    parameters = {"window": window, "step": step, "time": 0 if timed else None, "algorithm": algorithm, "capacity": 64}
    fitted = moments(ALL, **parameters).fit(table, sample_weight=weight)
    assert fitted.window_times_.tolist() == [newest for newest, _ in expected]
    for i, (_, rows) in enumerate(expected):
        check(fitted.params_, i, two_pass(X[rows], weight[rows, None]), rtol=1e-8)


@pytest.mark.parametrize(
    ("statistics", "ddof", "rows"),
    [("mean", 1, 1), ("variance", 0, 1), ("variance", 1, 2), ("std", 2, 3), (("skewness",), 1, 3), (ALL, 1, 4)],
)
def test_windows_with_too_few_rows_are_left_out(statistics, ddof, rows):
    x = np.random.default_rng(23).normal(size=12)
    fitted = moments(statistics, ddof=ddof, window=6).fit(x[:, None])
    names = (statistics,) if isinstance(statistics, str) else statistics
    assert set(fitted.params_) == set(names)
    assert fitted.window_times_.tolist() == list(range(rows - 1, 12))
    for name in names:
        assert fitted.params_[name].shape == (13 - rows, 1)
        for i, stop in enumerate(range(rows, 13)):
            expected = two_pass(x[max(0, stop - 6) : stop], ddof=ddof)[name]
            np.testing.assert_allclose(fitted.params_[name][i, 0], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("power", [2.0, 0.5])
def test_statistics_of_powers(power, algorithm):
    X = np.random.default_rng(24).uniform(0.5, 3.0, size=(50, 2))
    fitted = moments(ALL, power, window=15, algorithm=algorithm).fit(X)
    for i, stop in enumerate(range(4, 51)):
        check(fitted.params_, i, two_pass(X[max(0, stop - 15) : stop] ** power))


def covariance(**parameters):
    model = {name: parameters.pop(name) for name in ("ddof", "correlation") if name in parameters}
    return RollingJaxEstimator(models.Covariance(**model), **parameters)


def check_covariance(params, i, rows, weight, ddof, rtol=1e-9):
    mean = weight @ rows / weight.sum()
    rest = rows - mean
    expected = (weight * rest.T) @ rest / (weight.sum() - ddof)
    np.testing.assert_allclose(params["mean"][i], mean, rtol=rtol, atol=1e-12)
    np.testing.assert_allclose(params["covariance"][i], expected, rtol=rtol, atol=rtol * np.abs(expected).max())


@pytest.mark.slow(all_but=["60-20-exact", "20000-250-auto"])
@pytest.mark.parametrize(
    ("n", "window", "algorithm"),
    [
        (60, 20, "exact"),
        (60, 20, "refit"),
        (60, "expanding", "exact"),
        (60, "expanding", "refit"),
        (20_000, 250, "auto"),
        (20_000, "expanding", "auto"),
    ],
)
def test_covariances(n, window, algorithm):
    rng = np.random.default_rng(25)
    X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 3)) + [0, 10, -1e4]
    fitted = covariance(correlation=True, window=window, algorithm=algorithm).fit(X)
    assert set(fitted.params_) == {"mean", "covariance", "correlation"}
    stops = fitted.window_stops_
    assert stops.tolist() == list(range(2, n + 1))
    for i in range(0, len(stops), 1 + len(stops) // 60):
        rows = X[0 if window == "expanding" else max(0, stops[i] - window) : stops[i]]
        np.testing.assert_allclose(fitted.params_["covariance"][i], np.cov(rows.T), rtol=1e-8)
        np.testing.assert_allclose(fitted.params_["correlation"][i], np.corrcoef(rows.T), rtol=1e-8)
        np.testing.assert_allclose(fitted.params_["mean"][i], rows.mean(axis=0), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("window", [6, 4.5])
@pytest.mark.parametrize("ddof", [0, 1])
def test_weighted_covariances_of_panels(ddof, window, algorithm):
    rng = np.random.default_rng(26)
    X, weight = rng.normal(size=(90, 3)), rng.choice([0.0, 1.0, 2.5], size=90)
    times = np.repeat(np.delete(np.arange(40.0), [3, 4, 5, 11, 20, 21, 30, 31, 32, 37]), 3)
    timed = np.column_stack([times, X])
    fitted = covariance(ddof=ddof, window=window, time=0, min_periods=3, algorithm=algorithm).fit(
        timed, sample_weight=weight
    )
    assert set(fitted.params_) == {"mean", "covariance"}
    expected = reference.window_rows(times.tolist(), weight, window=window, min_periods=3)
    assert fitted.window_times_.tolist() == [newest for newest, _ in expected]
    for i, (_, rows) in enumerate(expected):
        check_covariance(fitted.params_, i, X[rows], weight[rows], ddof)
