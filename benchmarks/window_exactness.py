"""Standard deviations of windows on which running sums are known to fail.

The first two cases come from public bug reports of rolling statistics: a huge value stays in the sums after
it has left the window.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.case import Table
from benchmarks.goals import Verdict
from benchmarks.peers import window_statistic
from skjaxwin import RollingJaxEstimator, models

N_ROWS = 10_000
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Series:
    """One series, and the windows in which its standard deviation is judged."""

    title: str
    values: np.ndarray
    window: int
    min_rows: int
    first: int  # row at which the first window ends that is judged
    bound: float | None  # of the package's error


def series() -> list[Series]:
    """The series, from short to long."""
    noise = np.random.default_rng(0).normal(size=N_ROWS)
    single = np.float32
    return [
        Series("[9.54e8, .6225, nan, 0, 1.14, 0]", np.array([9.54e8, 0.6225, np.nan, 0, 1.14, 0]), 5, 3, 5, TOLERANCE),
        Series("1000 and then zeros", np.append(1000.0, np.zeros(49)), 10, 10, 10, 0.0),
        Series("1e8 + N(0, 1), float64", 1e8 + noise, 20, 20, 19, None),
        Series("1e4 + N(0, 1), float32", (1e4 + noise).astype(single), 20, 20, 19, None),
        # At this offset neighbours in float32 are 8 apart, so the spread is wider to leave some digits.
        Series("1e8 + 100 N(0, 1), float32", (1e8 + 100 * noise).astype(single), 20, 20, 19, None),
    ]


def two_passes(one: Series) -> np.ndarray:
    """The standard deviation of each judged window, in float64."""
    ends = range(one.first + 1, len(one.values) + 1)
    windows = (one.values[stop - one.window : stop].astype(np.float64) for stop in ends)
    return np.array([np.std(window[~np.isnan(window)], ddof=1) for window in windows])


def ways(one: Series) -> dict[str, np.ndarray]:
    """The standard deviation of every window, by the package and by its peers."""
    column = one.values[:, None]
    model = models.Moments(statistic=("std",))
    rolling = RollingJaxEstimator(model, window=one.window, min_periods=one.min_rows, missing="skip")
    found = {"skjaxwin": np.full(len(column), np.nan)}
    rolling.fit(column)
    found["skjaxwin"][rolling.window_times_] = rolling.params_["std"].ravel()
    for name, peer in window_statistic("std", column, one.window, one.min_rows).items():
        out = peer.run()
        found[name] = np.array([peer.read(out, stop).item() for stop in range(1, len(column) + 1)])
    return found


def error(found: np.ndarray, truth: np.ndarray) -> float:
    """The largest error, relative to the truth where that is not zero; infinite for NaN."""
    distance = np.abs(found.astype(np.float64) - truth) / np.where(truth == 0, 1, truth)
    return float(np.max(np.where(np.isnan(distance), np.inf, distance)))


def cases() -> Iterator[Table]:
    """Yield one table: a line for each series, a column for each way."""
    lines, verdicts = [], []
    for one in series():
        truth = two_passes(one)
        errors = {name: error(found[one.first :], truth) for name, found in ways(one).items()}
        if not lines:
            lines.append(f"{'':34}" + "".join(f"{name:>12}" for name in errors))
        lines.append(f"{one.title:34}" + "".join(f"{value:12.1e}" for value in errors.values()))
        if one.bound is not None:
            verdicts.append(Verdict(f"error of std: {one.title}", errors["skjaxwin"], one.bound, "at most"))
    title = "largest relative error of std, against two passes in float64; inf: NaN where there is a number"
    yield Table(title, lines, tuple(verdicts))
