"""Series on which running sums lose every digit: each window's slopes equal a refit in extended precision."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from skjaxwin import RollingJaxEstimator, models
from tests import precise

N, WINDOW, LEAST = 20_000, 250, 20
STAMPS, PER_STAMP = 50, 5
HALFLIFE = 60.0
ALGORITHMS = ["auto", "exact"]


def random_walk(rng):
    return 1000.0 + np.cumsum(rng.normal(size=N))


def level(rng, first, last=N):
    """N(0, 1) that is a million higher in rows `first` to `last`."""
    x = rng.normal(size=N)
    x[first:last] += 1e6
    return x


def outlier(rng):
    x = rng.normal(size=N)
    x[5] = 1e8
    return x


SERIES = {
    "plain": lambda rng: rng.normal(size=N),
    "offset 1e4": lambda rng: 1e4 + rng.normal(size=N),
    "offset 1e6": lambda rng: 1e6 + rng.normal(size=N),
    "outlier": outlier,
    "decay": lambda rng: np.exp(np.linspace(0, -30, N)) * rng.normal(size=N),
    "unix seconds": lambda rng: 1.6e9 + 60.0 * np.arange(N),
    "random walk": random_walk,
    "jump at 10000": lambda rng: level(rng, 10_000),
    "jump at 10123": lambda rng: level(rng, 10_123),
    "up at 7001, down at 13456": lambda rng: level(rng, 7_001, 13_456),
}

# Rows after which something happens: there every window is checked, elsewhere some.
EVENTS = {
    "outlier": [5],
    "jump at 10000": [10_000],
    "jump at 10123": [10_123],
    "up at 7001, down at 13456": [7_001, 13_456],
}


def tolerance_of(name):
    return 1e-9 if name in ("decay", "unix seconds") else 1e-10


@functools.cache
def series(name):
    rng = np.random.default_rng([2024, list(SERIES).index(name)])
    x = SERIES[name](rng)
    noise = rng.normal(size=N)
    if name == "decay":
        # Noise that decays with x, so that it leaves the slope determined.
        noise *= 0.1 * np.exp(np.linspace(0, -30, N))
    return x[:, None], 1 + 2 * x + noise


@functools.cache
def weights():
    return np.random.default_rng(7).uniform(0.5, 2.0, size=N)


def chosen_windows(name, bounds, every):
    """Return every so many windows (a prime number), the last, and most of those around an event."""
    chosen = set(range(0, len(bounds), every)) | {len(bounds) - 1}
    for row in EVENTS.get(name, []):
        near = (bounds[:, 1] > row - 3) & (bounds[:, 0] < row + 30)
        chosen |= set(np.flatnonzero(near)[::3])
    return np.array(sorted(chosen))


def rolling(algorithm, **parameters):
    return RollingJaxEstimator(models.Linear(), algorithm=algorithm, capacity=N, **parameters)


def check(fitted, expected, chosen, tolerance):
    slopes, intercepts, means = expected
    assert np.isfinite(fitted.params_["coef"]).all()
    error = precise.slope_errors(fitted.params_["coef"][chosen], slopes)
    worst = int(error.argmax())
    assert error[worst] <= tolerance, f"window {chosen[worst]}: slope error {error[worst]:.1e}"
    # An intercept is what is left of the offset: its error is relative to that.
    size = np.abs(intercepts) + np.abs(slopes * means).sum(axis=1)
    error = (np.abs(fitted.params_["intercept"][chosen] - intercepts) / size).astype(float)
    worst = int(error.argmax())
    assert error[worst] <= tolerance, f"window {chosen[worst]}: intercept error {error[worst]:.1e}"


@functools.cache
def expected_rolling(name, weighted=False, halflife=None):
    bounds = precise.rolling_bounds(N, WINDOW, LEAST)
    chosen = chosen_windows(name, bounds, 11)
    weight = weights() if weighted else None
    return chosen, precise.least_squares(*series(name), bounds[chosen], weight, halflife)


@functools.cache
def expected_expanding(name):
    bounds = precise.rolling_bounds(N, N, LEAST)
    chosen = np.arange(0, len(bounds), 97)
    return chosen, precise.least_squares(*series(name), bounds[chosen])


@functools.cache
def expected_fading(name):
    bounds = precise.rolling_bounds(N, N, LEAST)
    chosen = np.union1d(np.arange(0, len(bounds), 509), np.arange(13_400, 18_000, 307))
    return chosen, precise.least_squares(*series(name), bounds[chosen], halflife=HALFLIFE)


@functools.cache
def expected_panel(name):
    bounds = precise.panel_bounds(N // PER_STAMP, PER_STAMP, STAMPS)[LEAST // PER_STAMP - 1 :]
    chosen = chosen_windows(name, bounds, 7)
    return chosen, precise.least_squares(*series(name), bounds[chosen])


@pytest.mark.parametrize("name", SERIES)
def test_extended_precision_is_enough(name):
    X, y = series(name)
    stops = [LEAST, 250, 251, 10_050, 10_124, 10_300, 13_500, N]
    bounds = np.array([(max(0, stop - WINDOW), stop) for stop in stops])
    for weight in (None, weights()):
        slopes, _, _ = precise.least_squares(X, y, bounds, weight)
        for (start, stop), found in zip(bounds, slopes, strict=True):
            part = None if weight is None else weight[start:stop]
            exact = precise.exact_slopes(X[start:stop], y[start:stop], part)
            assert abs(float(found[0]) / float(exact[0]) - 1) <= 1e-13


@pytest.mark.slow(all_but=["plain-auto", "outlier-auto", "outlier-exact"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", SERIES)
def test_rolling(name, algorithm):
    fitted = rolling(algorithm, window=WINDOW, min_periods=LEAST).fit(*series(name))
    assert fitted.window_stops_.tolist() == list(range(LEAST, N + 1))
    chosen, expected = expected_rolling(name)
    check(fitted, expected, chosen, tolerance_of(name))
    assert fitted.determined_.all()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", SERIES)
def test_rolling_with_weights(name, algorithm):
    fitted = rolling(algorithm, window=WINDOW, min_periods=LEAST).fit(*series(name), weights())
    chosen, expected = expected_rolling(name, weighted=True)
    check(fitted, expected, chosen, tolerance_of(name))


@pytest.mark.slow(all_but=["plain-auto"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", SERIES)
def test_rolling_with_a_half_life(name, algorithm):
    fitted = rolling(algorithm, window=WINDOW, min_periods=LEAST, halflife=HALFLIFE).fit(*series(name))
    chosen, expected = expected_rolling(name, halflife=HALFLIFE)
    check(fitted, expected, chosen, tolerance_of(name))


@pytest.mark.slow(all_but=["plain-auto", "outlier-auto"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", SERIES)
def test_expanding(name, algorithm):
    fitted = rolling(algorithm, min_periods=LEAST).fit(*series(name))
    assert len(fitted.window_stops_) == N - LEAST + 1
    chosen, expected = expected_expanding(name)
    check(fitted, expected, chosen, tolerance_of(name))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", SERIES)
def test_panel(name, algorithm):
    X, y = series(name)
    timed = np.column_stack([np.arange(N) // PER_STAMP, X])
    fitted = rolling(algorithm, window=STAMPS, min_periods=LEAST, time=0).fit(timed, y)
    assert fitted.window_stops_.tolist() == list(range(LEAST, N + 1, PER_STAMP))
    chosen, expected = expected_panel(name)
    check(fitted, expected, chosen, tolerance_of(name))


@pytest.mark.slow(all_but=["outlier-auto"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("name", ["outlier", "up at 7001, down at 13456"])
def test_expanding_with_a_half_life(name, algorithm):
    # What decays is never dropped: the outlier fades, and the old level with it.
    fitted = rolling(algorithm, min_periods=LEAST, halflife=HALFLIFE).fit(*series(name))
    chosen, expected = expected_fading(name)
    check(fitted, expected, chosen, tolerance_of(name))


def several(kind, k):
    """Several regressors; the collinear ones differ by a thousandth of their size."""
    rng = np.random.default_rng([2025, k])
    X = rng.normal(size=(N, k))
    if kind == "offset 1e4":
        X = X + 1e4
    if kind == "collinear":
        X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    noise = (1e-3 if kind == "collinear" else 0.3) * rng.normal(size=N)
    return X, 1 + X @ np.array([2.0, -1.0, 0.5, 3.0])[:k] + noise


@functools.cache
def expected_several(kind, k):
    bounds = precise.rolling_bounds(N, WINDOW, LEAST)
    chosen = np.arange(0, len(bounds), 37)
    X, y = several(kind, k)
    return chosen, precise.least_squares(X, y, bounds[chosen])


@pytest.mark.parametrize("kind", ["plain", "offset 1e4", "collinear"])
@pytest.mark.parametrize("k", [2, 4])
def test_extended_precision_is_enough_for_several_regressors(k, kind):
    X, y = several(kind, k)
    chosen, (slopes, _, _) = expected_several(kind, k)
    bounds = precise.rolling_bounds(N, WINDOW, LEAST)
    for i in (0, 100, 500):
        rows = slice(*bounds[chosen[i]])
        exact = np.array([float(v) for v in precise.exact_slopes(X[rows], y[rows])])
        assert precise.slope_errors(slopes[i], exact) <= 1e-13


@pytest.mark.slow(all_but=["2-collinear-auto", "2-plain-auto"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("kind", ["plain", "offset 1e4", "collinear"])
@pytest.mark.parametrize("k", [2, 4])
def test_several_regressors(k, kind, algorithm):
    fitted = rolling(algorithm, window=WINDOW, min_periods=LEAST).fit(*several(kind, k))
    chosen, expected = expected_several(kind, k)
    check(fitted, expected, chosen, 1e-8 if kind == "collinear" else 1e-10)
    assert fitted.determined_.all()


@pytest.mark.slow(all_but=["0.0-auto"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_single_precision(offset, algorithm):
    rng = np.random.default_rng(11)
    X = (offset + rng.normal(size=(N, 3))).astype(np.float32)
    y = (1 + X.astype(float) @ [2.0, -1.0, 0.5] + 0.3 * rng.normal(size=N)).astype(np.float32)
    fitted = rolling(algorithm, window=WINDOW, min_periods=50).fit(X, y)
    assert fitted.params_["coef"].dtype == fitted.params_["intercept"].dtype == fitted.coef_.dtype == np.float32
    bounds = precise.rolling_bounds(N, WINDOW, 50)
    chosen = np.arange(0, len(bounds), 37)
    # The same single-precision numbers, refitted with more digits.
    slopes, _, _ = precise.least_squares(X.astype(float), y.astype(float), bounds[chosen])
    error = precise.slope_errors(fitted.params_["coef"][chosen], slopes)
    assert error.max() <= 1e-5


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (0, 2, 1)])
def test_a_nearly_dependent_pair_costs_other_slopes_no_digits(order):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    difference = 1e-6 * rng.normal(size=200)
    X[:, 1] = X[:, 0] + difference
    y = X[:, 2] + 1 + rng.normal(size=200)
    rolling = RollingJaxEstimator(models.Linear(), window=60, min_periods=60, step=20).fit(X[:, order], y)
    for i, stop in enumerate(rolling.window_stops_):
        rows = slice(stop - 60, stop)
        # The same fit in well-conditioned columns: a difference of close numbers is exact.
        columns = np.column_stack([np.ones(60), X[rows, 0], (X[rows, 1] - X[rows, 0]) * 1e6, X[rows, 2]])
        expected = np.linalg.lstsq(columns, y[rows], rcond=None)[0]
        np.testing.assert_allclose(rolling.params_["coef"][i, order.index(2)], expected[3], rtol=1e-10)
        fitted = X[rows][:, order] @ rolling.params_["coef"][i] + rolling.params_["intercept"][i]
        np.testing.assert_allclose(fitted, columns @ expected, rtol=1e-8, atol=1e-8)
