"""Rows with missing values are skipped, and their time stamps still count."""

from __future__ import annotations

import numpy as np
import pytest

from skjaxwin import RollingJaxEstimator, models
from tests import precise, reference

NAN = np.nan


def rolling(alpha=0.0, **parameters):
    return RollingJaxEstimator(models.Linear(alpha), missing="skip", **parameters)


def lstsq_of(X, y, rows):
    """Return slopes and intercept of some rows; they must determine them."""
    design = np.column_stack([X[rows], np.ones(len(rows))])
    solution, _, rank, _ = np.linalg.lstsq(design, y[rows], rcond=None)
    assert rank == design.shape[1]
    return solution[:-1], solution[-1]


def valid_rows(X, y):
    return ~(np.isnan(X).any(axis=1) | np.isnan(y.reshape(len(y), -1)).any(axis=1))


def windows_of(valid, window, min_periods=1, times=None):
    """Return (newest time, valid rows) of each window that has enough of them."""
    every = reference.window_rows(times, np.ones(len(valid)), window=window)
    found = [(newest, [r for r in rows if valid[r]]) for newest, rows in every]
    return [(newest, rows) for newest, rows in found if len(rows) >= min_periods]


def check(fitted, X, y, expected, least=None, rtol=1e-9):
    """Every window with `least` rows equals lstsq on its valid rows."""
    least = X.shape[1] + 1 if least is None else least
    assert fitted.window_times_.tolist() == [newest for newest, _ in expected]
    checked = 0
    for i, (_, rows) in enumerate(expected):
        if len(rows) < least:
            continue
        slopes, constant = lstsq_of(X, y, rows)
        np.testing.assert_allclose(fitted.params_["coef"][i], slopes, rtol=rtol, atol=1e-11)
        np.testing.assert_allclose(fitted.params_["intercept"][i], constant, rtol=rtol, atol=1e-11)
        checked += 1
    assert checked


def simple(n=40, k=1, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, k))
    return X, 1 + 2 * X[:, 0] + rng.normal(size=n)


@pytest.mark.slow(all_but=["auto"])
@pytest.mark.parametrize("algorithm", ["auto", "exact", "refit"])
def test_a_missing_target_is_forgotten(algorithm):
    X, y = simple()
    y[10] = NAN
    fitted = rolling(window=5, algorithm=algorithm).fit(X, y)
    assert fitted.window_times_.tolist() == list(range(40))
    expected = windows_of(valid_rows(X, y), 5)
    for i in range(10, 15):  # its stamp counts: these windows have four rows
        assert len(expected[i][1]) == 4
    check(fitted, X, y, expected)
    # Once the row has left, a fit that never saw it gives the same.
    later = RollingJaxEstimator(window=5).fit(X[11:], y[11:])
    np.testing.assert_allclose(fitted.params_["coef"][15:], later.params_["coef"][4:], rtol=1e-12)


@pytest.mark.parametrize("algorithm", ["auto", "exact", "refit"])
def test_windows_without_enough_rows_are_left_out_and_nothing_is_repeated(algorithm):
    X = np.arange(1.0, 11.0)[:, None]
    y = np.array([1.0, 3.0, 2.0, 7.0, 0, 0, 0, 0, 5.0, 4.0])
    y[4:8] = NAN
    fitted = rolling(window=3, min_periods=2, algorithm=algorithm).fit(X, y)
    # Rows 3-5 hold one target, 4-6 and 5-7 none, 6-8 one.
    assert fitted.window_times_.tolist() == [1, 2, 3, 4, 9]
    np.testing.assert_allclose(fitted.params_["coef"][:, 0], [2.0, 0.5, 2.0, 5.0, -1.0], rtol=1e-12)
    np.testing.assert_allclose(fitted.params_["intercept"], [-1.0, 1.0, -2.0, -13.0, 14.0], rtol=1e-11)


@pytest.mark.parametrize("algorithm", ["auto", "exact", "refit"])
def test_a_short_window_over_a_hole(algorithm):
    X = np.arange(1.0, 11.0)[:, None]
    y = np.array([2.0, 4.0, 5.0, 9.0, 8.0, 13.0, NAN, 15.0, 19.0, 18.0])
    fitted = rolling(window=3, algorithm=algorithm).fit(X, y)
    assert fitted.window_times_.tolist() == list(range(10))
    check(fitted, X, y, windows_of(valid_rows(X, y), 3))
    # Rows 5, 6, 7 without row 6: the line through the two others.
    assert fitted.params_["coef"][7, 0] == pytest.approx((15 - 13) / 2, rel=1e-12)


@pytest.mark.slow(all_but=["auto"])
@pytest.mark.parametrize("algorithm", ["auto", "exact", "refit"])
def test_missing_features(algorithm):
    X, y = simple(60, k=3)
    X[20, 1], X[21, 2], X[40], y[41] = NAN, NAN, NAN, NAN
    fitted = rolling(window=15, algorithm=algorithm, min_periods=5).fit(X, y)
    check(fitted, X, y, windows_of(valid_rows(X, y), 15, min_periods=5))


def test_a_row_that_lacks_one_output_is_skipped_for_all():
    X, y = simple(50, k=2)
    y = np.column_stack([y, y**2])
    y[30, 1], y[33, 0] = NAN, NAN
    fitted = rolling(window=12).fit(X, y)
    for i, (_, rows) in enumerate(windows_of(valid_rows(X, y), 12)):
        if len(rows) > 3:
            slopes, constant = lstsq_of(X, y, rows)
            np.testing.assert_allclose(fitted.params_["coef"][i], slopes.T, rtol=1e-9)
            np.testing.assert_allclose(fitted.params_["intercept"][i], constant, rtol=1e-9)


def test_expanding_windows_and_steps_count_missing_rows():
    X, y = simple(50, k=2)
    y[[3, 8, 9, 10, 30]] = NAN
    fitted = rolling(step=5).fit(X, y)
    # Every fifth stamp; those that end at rows 9, 29 and 34 lack rows.
    assert fitted.window_times_.tolist() == list(range(4, 50, 5))
    wanted = [(newest, rows) for newest, rows in windows_of(valid_rows(X, y), "expanding") if newest % 5 == 4]
    check(fitted, X, y, wanted)


@pytest.mark.parametrize(("window", "count"), [(4, True), (3.5, False)])
def test_windows_in_time(window, count):
    rng = np.random.default_rng(4)
    X, y = simple(90, k=2)
    stamps = np.repeat(np.delete(np.arange(40.0), rng.choice(40, 10, replace=False)), 3)
    y[12:15] = NAN  # a whole stamp
    X[rng.choice(90, 12, replace=False), 0] = NAN
    fitted = rolling(window=window, time=0, min_periods=4).fit(np.column_stack([stamps, X]), y)
    expected = windows_of(valid_rows(X, y), window, min_periods=4, times=stamps.tolist())
    assert isinstance(window, int) == count
    check(fitted, X, y, expected, least=5)


@pytest.mark.slow(all_but=["exact"])
@pytest.mark.parametrize("algorithm", ["exact", "refit"])
def test_half_lives_are_measured_from_the_newest_row_that_counts(algorithm):
    X, y = simple(30, k=2)
    y[[12, 13, 20]] = NAN
    # With a penalty the size of the weights matters, not their ratios alone.
    fitted = rolling(alpha=1.0, window=10, halflife=2.0, algorithm=algorithm).fit(X, y)
    for i, (_, rows) in enumerate(windows_of(valid_rows(X, y), 10)):
        weight = reference.halflife_weights(rows, rows[-1], 2.0)
        slopes, constant, _ = reference.least_squares(X[rows], y[rows], weight, alpha=1.0)
        np.testing.assert_allclose(fitted.params_["coef"][i], slopes, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(fitted.params_["intercept"][i], constant, rtol=1e-9, atol=1e-12)


@pytest.mark.slow(all_but=["auto-120"])
@pytest.mark.parametrize("window", [120, "expanding"])
@pytest.mark.parametrize("algorithm", ["auto", "exact"])
def test_long_series(algorithm, window):
    n = 8_000
    rng = np.random.default_rng(6)
    X, y = simple(n, k=3)
    X[rng.random(n) < 0.02, 1] = NAN
    y[rng.random(n) < 0.01] = NAN
    y[4_000:4_110] = NAN  # windows with ten rows left
    valid = valid_rows(X, y)
    fitted = rolling(window=window, min_periods=30, algorithm=algorithm).fit(X, y)
    # A row that is missing has weight 0 for the reference.
    weight = valid.astype(float)
    bounds = precise.rolling_bounds(n, 120 if window == 120 else n, 1)
    counts = np.concatenate([[0], np.cumsum(valid)])
    bounds = bounds[counts[bounds[:, 1]] - counts[bounds[:, 0]] >= 30]
    assert fitted.window_times_.tolist() == (bounds[:, 1] - 1).tolist()
    chosen = np.union1d(np.arange(0, len(bounds), 97), np.flatnonzero(np.abs(bounds[:, 1] - 4_110) < 90)[::7])
    slopes, intercepts, _ = precise.least_squares(
        np.where(valid[:, None], X, 0), np.where(valid, y, 0), bounds[chosen], weight
    )
    assert precise.slope_errors(fitted.params_["coef"][chosen], slopes).max() <= 1e-10
    np.testing.assert_allclose(fitted.params_["intercept"][chosen], intercepts.astype(float), rtol=1e-9)
    assert np.isfinite(fitted.params_["coef"]).all()


def test_walk_forward_predicts_rows_whose_target_is_missing():
    X, y = simple(60, k=2)
    y[[20, 21, 59]] = NAN
    X[30, 0] = NAN
    predicted = rolling(window=15, min_periods=6).walk_forward_predict(X, y)
    windows = windows_of(valid_rows(X, y), 15, min_periods=6)
    wanted = np.full(60, NAN)
    for row in range(60):
        past = [rows for newest, rows in windows if newest < row]
        if past and row != 30:
            slopes, constant = lstsq_of(X, y, past[-1])
            wanted[row] = X[row] @ slopes + constant
    np.testing.assert_allclose(predicted, wanted, rtol=1e-9)
    assert np.isnan(predicted[30]) and np.isfinite(predicted[[20, 21, 59]]).all()


def test_predict_answers_nan_where_a_feature_is_missing():
    X, y = simple(40, k=2)
    fitted = rolling(window=15).fit(X, y)
    new = X[:5].copy()
    new[2, 1] = NAN
    slopes, constant = lstsq_of(X, y, list(range(25, 40)))
    np.testing.assert_allclose(fitted.predict(new), new @ slopes + constant, rtol=1e-9)
    assert np.isnan(fitted.predict(new)).tolist() == [False, False, True, False, False]


def test_complete_data_are_fitted_as_ever():
    X, y = simple(60, k=2)
    skipping, plain = rolling(window=15).fit(X, y), RollingJaxEstimator(window=15).fit(X, y)
    np.testing.assert_array_equal(skipping.params_["coef"], plain.params_["coef"])
    np.testing.assert_array_equal(skipping.window_stops_, plain.window_stops_)


def test_nothing_to_fit_is_an_error():
    X, y = simple()
    with pytest.raises(ValueError, match=r"NaN|missing|min_periods"):
        rolling().fit(X, np.full(40, NAN))
    with pytest.raises(ValueError, match=r"NaN|missing|min_periods"):
        rolling().fit(np.full((40, 1), NAN), y)
    y[3:] = NAN
    with pytest.raises(ValueError, match="min_periods"):
        rolling(min_periods=4).fit(X, y)


def with_value(array, value):
    """Return a copy with another value in row 7."""
    changed = array.copy()
    changed[7] = value
    return changed


@pytest.mark.parametrize("missing", ["raise", "skip"])
def test_infinity_is_not_missing(missing):
    X, y = simple()
    for bad_X, bad_y in ((with_value(X, np.inf), y), (X, with_value(y, np.inf))):
        with pytest.raises(ValueError, match="infinity"):
            RollingJaxEstimator(missing=missing).fit(bad_X, bad_y)


def test_by_default_missing_values_are_refused():
    X, y = simple()
    for bad_X, bad_y in ((with_value(X, NAN), y), (X, with_value(y, NAN))):
        with pytest.raises(ValueError, match="contains NaN"):
            RollingJaxEstimator().fit(bad_X, bad_y)
        with pytest.raises(ValueError, match="contains NaN"):
            RollingJaxEstimator(missing="raise").fit(bad_X, bad_y)
        RollingJaxEstimator(missing="skip").fit(bad_X, bad_y)
    with pytest.raises(ValueError, match="missing"):
        RollingJaxEstimator(missing="drop").fit(X, y)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["exact", "refit"])
def test_standard_errors_count_valid_rows(algorithm):
    X, y = simple(60, k=2)
    y[[10, 11, 25, 40]] = NAN
    fitted = rolling(window=20, inference="HC1", min_periods=6, algorithm=algorithm).fit(X, y)
    for i, (_, rows) in enumerate(windows_of(valid_rows(X, y), 20, min_periods=6)):
        design = np.column_stack([X[rows], np.ones(len(rows))])
        residual = y[rows] - design @ np.linalg.lstsq(design, y[rows], rcond=None)[0]
        inverse = np.linalg.inv(design.T @ design)
        middle = (design * residual[:, None] ** 2).T @ design
        variance = inverse @ middle @ inverse * len(rows) / (len(rows) - 3)
        np.testing.assert_allclose(fitted.standard_errors_["coef"][i], np.sqrt(np.diag(variance))[:2], rtol=1e-8)
