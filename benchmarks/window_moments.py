"""Mean, standard deviation, skewness, kurtosis and covariances of every window, against pandas, numbagg, bottleneck.

Each result is held against two passes of NumPy over some windows. Standard deviations divide by one less than the
number of rows, skewness and kurtosis are the unbiased ones of pandas.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.case import Case
from benchmarks.peers import Peer, window_statistic
from skjaxwin import RollingJaxEstimator, models

N_ROWS, N_FEATURES, WINDOW = 1_000_000, 8, 252
N_COVARIANCE_ROWS = 50_000  # pandas takes seconds for these
N_CHECKED = 5
TOLERANCE = 1e-8


def package(name: str, X: np.ndarray) -> Peer:
    """The package's way."""
    model = models.Covariance() if name == "covariance" else models.Moments(statistic=(name,))
    estimator = RollingJaxEstimator(model, window=WINDOW)
    # Windows of too few rows are left out at the start: counted from the end, each is in its place.
    return Peer(lambda: estimator.fit(X), lambda fitted, stop: fitted.params_[name][stop - 1 - len(X)])


def two_passes(name: str, rows: np.ndarray) -> np.ndarray:
    """The statistic of one window."""
    n = len(rows)
    mean = rows.mean(axis=0)
    away = rows - mean
    second, third, fourth = (np.sum(away**power, axis=0) for power in (2, 3, 4))
    variance = second / (n - 1)
    if name == "covariance":
        return away.T @ away / (n - 1)
    if name == "skewness":
        return n * third / ((n - 1) * (n - 2) * variance**1.5)
    if name == "kurtosis":
        excess = n * (n + 1) * fourth / ((n - 1) * variance**2) - 3 * (n - 1) ** 2
        return excess / ((n - 2) * (n - 3))
    return {"mean": mean, "std": np.sqrt(variance)}[name]


def case(name: str, X: np.ndarray) -> Case:
    """Make the case of one statistic."""
    ways = {"skjaxwin": package(name, X), **window_statistic(name, X, WINDOW)}
    stops = np.random.default_rng(1).integers(WINDOW, len(X), N_CHECKED, endpoint=True)
    truth = {int(stop): two_passes(name, X[stop - WINDOW : stop]) for stop in stops}

    def error(way, result):
        found = {stop: ways[way].read(result, stop) for stop in truth}
        return max(np.max(np.abs(found[stop] - truth[stop])) / np.max(np.abs(truth[stop])) for stop in truth)

    return Case(
        f"{name} of rolling({WINDOW}), n = {len(X)}, {X.shape[1]} columns",
        {way: peer.run for way, peer in ways.items()},
        error=error,
        tolerance=TOLERANCE,
        runs=3,
    )


def cases() -> Iterator[Case]:
    """Yield a case for each statistic."""
    X = np.random.default_rng(0).normal(size=(N_ROWS, N_FEATURES))
    for name in ("mean", "std", "skewness", "kurtosis"):
        yield case(name, X)
    yield case("covariance", X[:N_COVARIANCE_ROWS])
