"""Rows that have left a window leave no trace, however large they were; nor does padding."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from skjaxwin import RollingJaxEstimator, models
from tests import precise
from tests.test_stress import WINDOW, N, series

ALGORITHMS = ["auto", "exact"]


def rolling(algorithm, capacity=N, **parameters):
    return RollingJaxEstimator(models.Linear(), algorithm=algorithm, capacity=capacity, **parameters)


@pytest.mark.slow(all_but=["35-160-auto"])
@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "refit"])
@pytest.mark.parametrize(("repeats", "capacity"), [(35, 160), (5000, N)])  # 140 rows, and 20000
def test_an_outlier_in_x_is_forgotten(repeats, capacity, algorithm):
    clean = np.tile([-1.0, 0.0, 1.0, 2.0], repeats)
    x = clean.copy()
    x[0] = 1e8
    fitted = rolling(algorithm, capacity, window=20).fit(x[:, None], 2 * clean + 3)
    assert fitted.window_stops_[20] == 21
    np.testing.assert_allclose(fitted.params_["coef"][20:, 0], 2, rtol=1e-9)
    np.testing.assert_allclose(fitted.params_["intercept"][20:], 3, rtol=1e-9)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "refit"])
@pytest.mark.parametrize(("repeats", "capacity"), [(35, 160), (5000, N)])
@pytest.mark.parametrize("row", [0, 67])
def test_an_outlier_in_y_is_forgotten(row, repeats, capacity, algorithm):
    x = np.tile([-1.0, 0.0, 1.0, 2.0], repeats)
    y = 2 * x + 3
    y[row] = 1e8
    fitted = rolling(algorithm, capacity, window=20).fit(x[:, None], y)
    coef, constant = fitted.params_["coef"][:, 0], fitted.params_["intercept"]
    last = np.arange(len(x))
    free = (last >= 1) & ((last < row) | (last >= row + 20))  # two rows at least, the outlier not among them
    np.testing.assert_allclose(coef[free], 2, rtol=1e-9)
    np.testing.assert_allclose(constant[free], 3, rtol=1e-9)
    # And while it is there it counts: it sets slope and level.
    held = row + 19
    slopes, intercepts, _ = precise.least_squares(x[:, None], y, np.array([[row, row + 20]]))
    assert coef[held] == pytest.approx(float(slopes[0, 0]), rel=1e-9)
    assert constant[held] == pytest.approx(float(intercepts[0]), rel=1e-9)


@functools.cache
def four_regressors():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N, 4))
    return X, 1 + X @ [2.0, -1.0, 0.5, 3.0] + 0.3 * rng.normal(size=N)


def data(name):
    return four_regressors() if name == "four regressors" else series(name)


@functools.cache
def whole(name, algorithm):
    return rolling(algorithm, window=WINDOW, min_periods=WINDOW).fit(*data(name)).params_["coef"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("first", [6, 4_097, 10_124])
@pytest.mark.parametrize("name", ["plain", "outlier", "random walk", "jump at 10123", "four regressors"])
def test_dropping_older_rows_changes_nothing(name, first, algorithm):
    X, y = data(name)
    fitted = rolling(algorithm, window=WINDOW, min_periods=WINDOW).fit(X[first:], y[first:])
    # Window i of all rows starts at row i: the first window of the newer rows is window `first`.
    expected = whole(name, algorithm)[first:]
    found = fitted.params_["coef"]
    assert found.shape == expected.shape
    assert precise.slope_errors(found, expected).max() <= 1e-12
    # One of them, at least, against a computation of our own.
    slopes, _, _ = precise.least_squares(X, y, np.array([[first, first + WINDOW]]))
    assert precise.slope_errors(found[:1], slopes).max() <= 1e-10


@pytest.mark.slow(all_but=["random walk-exact"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", ["random walk", "jump at 10123"])
def test_padding_changes_nothing(name, algorithm):
    X, y = series(name)
    for capacity in (23_457, 2 * N):
        padded = rolling(algorithm, capacity, window=WINDOW, min_periods=WINDOW).fit(X, y)
        assert precise.slope_errors(padded.params_["coef"], whole(name, algorithm)).max() <= 1e-13
