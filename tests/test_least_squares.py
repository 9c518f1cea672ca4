"""Every window's least squares and ridge equal NumPy's lstsq on exactly its rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from skjaxwin import RollingJaxEstimator, models
from tests import reference

# (features, intercept, outputs): each is one compile, so there are few; all tests share them.
SHAPES = [(1, True, None), (2, False, 2), (3, True, None), (5, True, 2)]
CAPACITY = 64


def rolling(alpha=0.0, intercept=True, capacity=CAPACITY, **parameters):
    return RollingJaxEstimator(models.Linear(alpha, intercept), capacity=capacity, **parameters)


def with_time(X, times):
    return X if times is None else np.column_stack([np.asarray(times, dtype=X.dtype), X])


@st.composite
def problems(draw):
    """Rows with ties and holes in time, weights with zeros, every kind of window."""
    k, intercept, outputs = draw(st.sampled_from(SHAPES))
    n = draw(st.integers(1, 60))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    X = rng.normal(size=(n, k)) * 10.0 ** rng.integers(-3, 4, size=k)
    if draw(st.booleans()):
        X = np.round(2 * X)  # constant and dependent columns in short windows
    y = rng.normal(size=n if outputs is None else (n, outputs)) + (3 * X[:, 0] if outputs is None else 3 * X[:, :1])
    weight = rng.choice([0.0, 0.5, 1.0, 2.0], size=n) if draw(st.booleans()) else np.ones(n)
    weight[rng.integers(n)] = 1.0
    times = None
    if draw(st.booleans()):
        # Integers from a few values make ties, the jump makes a hole, no order.
        times = [float(t if t < 12 else t + 100) for t in rng.integers(0, 25, size=n)]
    window = draw(st.one_of(st.just("expanding"), st.integers(1, 40), st.sampled_from([0.5, 2.0, 9.0, 30.0, 150.0])))
    alpha = draw(st.sampled_from([0.0, 0.0, 1e-3, 10.0]))
    return X, y, weight, times, window, alpha, intercept, draw(st.integers(1, 4))


def check_window(X, y, w, alpha, intercept, coef, constant, determined, tolerance=1e-9):
    expected, expected_constant, condition = reference.least_squares(X, y, w, alpha, intercept)
    # Which side of "dependent" such a window falls on is a matter of rounding.
    if 1e4 < condition < np.inf:
        return
    assert bool(determined) == (condition < np.inf)
    np.testing.assert_allclose(
        coef * np.abs(X).max(axis=0), expected * np.abs(X).max(axis=0), rtol=tolerance,
        atol=tolerance * max(np.abs(expected * np.abs(X).max(axis=0)).max(), np.abs(y).max()),
    )  # fmt: skip
    size = np.abs(expected @ np.abs(X).max(axis=0)).max() + np.abs(y).max()
    np.testing.assert_allclose(constant, expected_constant, rtol=tolerance, atol=tolerance * size)


@pytest.mark.slow
@settings(max_examples=60)
@given(problems())
def test_each_window_equals_lstsq_on_exactly_its_rows(problem):
    X, y, weight, times, window, alpha, intercept, step = problem
    expected = reference.window_rows(times, weight, window=window, step=step)
    time = None if times is None else 0
    fitted = rolling(alpha, intercept, window=window, step=step, time=time).fit(with_time(X, times), y, weight)
    assert fitted.window_times_.tolist() == [newest for newest, _ in expected]
    for i, (_, rows) in enumerate(expected):
        coef, constant = fitted.params_["coef"][i], fitted.params_["intercept"][i]
        check_window(X[rows], y[rows], weight[rows], alpha, intercept, coef, constant, fitted.determined_[i])
    np.testing.assert_array_equal(fitted.coef_, fitted.params_["coef"][-1])


@settings(max_examples=15)
@given(problems())
def test_the_nan_rule_blanks_exactly_the_undetermined_windows(problem):
    X, y, weight, times, window, alpha, intercept, step = problem
    time = None if times is None else 0
    parameters = {"window": window, "step": step, "time": time}
    shortest = rolling(alpha, intercept, **parameters).fit(with_time(X, times), y, weight)
    blank = rolling(alpha, intercept, underdetermined="nan", **parameters).fit(with_time(X, times), y, weight)
    for name in ("coef", "intercept"):
        kept = np.where(
            shortest.determined_.reshape(-1, *[1] * (shortest.params_[name].ndim - 1)), shortest.params_[name], np.nan
        )
        np.testing.assert_array_equal(blank.params_[name], kept)
    np.testing.assert_array_equal(blank.converged_, blank.determined_)
    if alpha > 0:
        assert blank.determined_.all()


@given(st.integers(0, 2**32), st.sampled_from([2.0, 7.5]), st.booleans())
def test_half_lives_weight_rows_by_their_age(seed, halflife, timed):
    rng = np.random.default_rng(seed)
    X, y, weight = rng.normal(size=(40, 3)), rng.normal(size=40), rng.choice([0.0, 1.0, 2.0], size=40)
    assume((weight > 0).any())
    times = [float(t) for t in rng.integers(0, 60, size=40)] if timed else None
    fitted = rolling(window=25, halflife=halflife, time=0 if timed else None).fit(with_time(X, times), y, weight)
    for i, (newest, rows) in enumerate(reference.window_rows(times, weight, window=25)):
        when = list(rows) if times is None else [times[r] for r in rows]
        w = weight[rows] * reference.halflife_weights(when, newest, halflife)
        coef, constant = fitted.params_["coef"][i], fitted.params_["intercept"][i]
        check_window(X[rows], y[rows], w, 0.0, True, coef, constant, fitted.determined_[i])


@pytest.mark.parametrize("n", [63, 64, 120, 128])
def test_narrow_windows_are_cut_right_up_to_the_capacity(n, rng):
    # width 64 < capacity 128: rows come from a slice whose start must never be clamped.
    X, y = rng.normal(size=(n, 3)), rng.normal(size=n)
    for window in (5, 64):
        fitted = rolling(window=window, capacity=128).fit(X, y)
        for i in range(n):
            rows = slice(max(0, i - window + 1), i + 1)
            check_window(
                X[rows], y[rows], np.ones(min(i + 1, window)), 0.0, True,
                fitted.params_["coef"][i], fitted.params_["intercept"][i], fitted.determined_[i],
            )  # fmt: skip


def test_an_outlier_that_left_leaves_no_trace(rng):
    # Updating and downdating sums would keep 1e8**2 * eps of it for ever.
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    X[10], y[10] = 1e8, -1e8
    clean = rolling(window=10).fit(np.delete(X, 10, axis=0), np.delete(y, 10))
    dirty = rolling(window=10).fit(X, y)
    np.testing.assert_allclose(dirty.params_["coef"][20:], clean.params_["coef"][19:], rtol=1e-12, atol=1e-13)
    for i in range(20, 60):
        rows = slice(i - 9, i + 1)
        expected, _, _ = reference.least_squares(X[rows], y[rows], np.ones(10))
        np.testing.assert_allclose(dirty.params_["coef"][i], expected, rtol=1e-9, atol=1e-11)


def test_an_offset_of_a_million_costs_few_digits(rng):
    # Rounded to multiples of 2**-20, so that moving the data is exact: the slopes must not notice.
    X, y = np.round(rng.normal(size=(60, 3)) * 2**20) / 2**20, np.round(rng.normal(size=60) * 2**20) / 2**20
    shifted = rolling(window=30, min_periods=10).fit(X + 1e6, y - 1e6)
    assert shifted.determined_.all()
    for i, (_, rows) in enumerate(reference.window_rows(None, np.ones(60), window=30, min_periods=10)):
        expected, constant, _ = reference.least_squares(X[rows], y[rows], np.ones(len(rows)))
        np.testing.assert_allclose(shifted.params_["coef"][i], expected, rtol=1e-9, atol=1e-10)
        level = constant - 1e6 - 1e6 * expected.sum()
        np.testing.assert_allclose(shifted.params_["intercept"][i], level, rtol=1e-9)


def test_unix_seconds_as_a_regressor():
    # A daily trend in seconds since 1970: a column of 1.7e9 that varies by 1e-3 of itself.
    seconds = 1.7e9 + 86400.0 * np.arange(60)
    X = np.column_stack([seconds, np.cos(np.arange(60.0)), np.arange(60) % 7])
    y = X @ [3e-7, 2.0, -1.0] + 5.0
    fitted = rolling(window=20).fit(X, y)
    # Within the first seven rows the last column is itself a trend; from then on nothing is.
    assert fitted.determined_[8:].all()
    np.testing.assert_allclose(fitted.params_["coef"][8:], np.tile([3e-7, 2.0, -1.0], (52, 1)), rtol=1e-6)
    predicted = np.sum(X[8:] * fitted.params_["coef"][8:], axis=1) + fitted.params_["intercept"][8:]
    np.testing.assert_allclose(predicted, y[8:], rtol=1e-10)


def test_duplicate_columns_share_their_slope_and_constant_ones_get_none(rng):
    x, y = rng.normal(size=60), rng.normal(size=60)
    X = np.column_stack([x, x, np.full(60, 0.1)])
    fitted = rolling(window=20, min_periods=5).fit(X, y)
    assert not fitted.determined_.any()
    alone, constant, _ = reference.least_squares(x[40:, None], y[40:], np.ones(20))
    np.testing.assert_allclose(fitted.coef_, [alone[0] / 2, alone[0] / 2, 0.0], rtol=1e-9, atol=1e-12)
    assert fitted.intercept_ == pytest.approx(constant, rel=1e-9)
    # Ridge determines even these: the penalty shares the slope the same way.
    ridge = rolling(1.0, window=20, min_periods=5).fit(X, y)
    expected, _, _ = reference.least_squares(X[40:], y[40:], np.ones(20), alpha=1.0)
    assert ridge.determined_.all()
    np.testing.assert_allclose(ridge.coef_, expected, rtol=1e-9, atol=1e-12)


def test_more_features_than_rows_interpolate_with_the_shortest_slopes(rng):
    X, y = rng.normal(size=(60, 5)) * [1, 10, 1, 0.1, 1], rng.normal(size=(60, 2))
    fitted = rolling(window=4).fit(X, y)
    for i in range(3, 60):
        rows = slice(i - 3, i + 1)
        coef = fitted.params_["coef"][i]
        np.testing.assert_allclose(X[rows] @ coef.T + fitted.params_["intercept"][i], y[rows], atol=1e-9)
        centred = X[rows] - X[rows].mean(axis=0)
        expected = (np.linalg.pinv(centred, rcond=1e-10) @ (y[rows] - y[rows].mean(axis=0))).T
        np.testing.assert_allclose(coef, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())
    assert not fitted.determined_.any()


def test_a_single_row_predicts_its_own_target():
    fitted = rolling().fit(np.array([[3.0, 1.0, 2.0]]), np.array([7.0]))
    assert fitted.coef_.tolist() == [0.0, 0.0, 0.0]
    assert fitted.intercept_ == 7.0


def test_ill_conditioned_problems_lose_digits_with_the_condition_not_its_square(rng):
    # Condition 1e6: the normal equations would be left with 4 digits, Householder QR with 10.
    base = rng.normal(size=(60, 1))
    X = np.hstack([base, base + 1e-6 * rng.normal(size=(60, 1)), rng.normal(size=(60, 1))])
    y = X @ [1.0, 2.0, -1.0] + 0.5
    fitted = rolling(min_periods=10).fit(X, y)
    np.testing.assert_allclose(fitted.params_["coef"], np.tile([1.0, 2.0, -1.0], (51, 1)), rtol=1e-8)


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_single_precision_has_single_precision_errors(alpha, rng):
    X, y = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(size=60).astype(np.float32)
    fitted = rolling(alpha, window=20, min_periods=10).fit(X + np.float32(100), y)
    assert fitted.coef_.dtype == fitted.params_["intercept"].dtype == np.float32
    for i, (_, rows) in enumerate(reference.window_rows(None, np.ones(60), window=20, min_periods=10)):
        expected, _, _ = reference.least_squares((X + np.float32(100))[rows], y[rows], np.ones(len(rows)), alpha)
        np.testing.assert_allclose(fitted.params_["coef"][i], expected, rtol=1e-3, atol=1e-3)
    assert np.abs(fitted.coef_ - expected).max() < 1e-4


def test_weights_may_have_any_scale(rng):
    X, y, weight = rng.normal(size=(50, 3)), rng.normal(size=50), rng.uniform(0.5, 2, size=50)
    for scale in (1e-12, 1e12):
        fitted = rolling(window=20).fit(X, y, scale * weight)
        plain = rolling(window=20).fit(X, y, weight)
        np.testing.assert_array_equal(fitted.determined_, plain.determined_)
        np.testing.assert_allclose(fitted.params_["coef"], plain.params_["coef"], rtol=1e-9, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "size", "alpha", "tolerance"),
    [(np.float32, 1e4, 1e-5, 1e-5), (np.float32, 1.0, 1e-12, 1e-5), (np.float64, 1.0, 1e-30, 1e-10)],
)
def test_a_penalty_lost_in_rounding_gives_the_smallest_norm(dtype, size, alpha, tolerance):
    # More columns than rows: slopes that only the penalty tells apart, and it is too small to.
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(20, 40)), rng.normal(size=20)
    fitted = RollingJaxEstimator(models.Linear(alpha=alpha), min_periods=20).fit((size * X).astype(dtype), y)
    shortest = np.linalg.lstsq(size * (X - X.mean(axis=0)), y - y.mean(), rcond=1e-10)[0]
    np.testing.assert_allclose(fitted.coef_, shortest, atol=tolerance * np.abs(shortest).max())
    assert not fitted.determined_[0]


@pytest.mark.parametrize(("dtype", "size"), [(np.float64, 1e155), (np.float64, 1e-160), (np.float32, 1e20)])
def test_columns_whose_squares_are_no_numbers(dtype, size):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(30, 3))
    y = (X @ [1.0, 2.0, 3.0] + 1.0).astype(dtype)
    fitted = RollingJaxEstimator(models.Linear(), window=10).fit((X * size).astype(dtype), y)
    np.testing.assert_allclose(fitted.coef_.astype(float) * size, [1.0, 2.0, 3.0], rtol=1e-5)
    assert fitted.determined_[-1]


def test_weights_of_any_size():
    rng = np.random.default_rng(9)
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    weight = rng.uniform(0.5, 1.0, size=30)
    plain = RollingJaxEstimator(window=10).fit(X, y, sample_weight=weight)
    for size in (1e-200, 1e200):
        scaled = RollingJaxEstimator(window=10).fit(X, y, sample_weight=size * weight)
        np.testing.assert_allclose(scaled.params_["coef"][3:], plain.params_["coef"][3:], rtol=1e-9)
    with pytest.raises(ValueError, match="rescale the weights"):
        RollingJaxEstimator(window=10).fit(X, y, sample_weight=1e300 * weight)
