"""Least squares on every window of a long series, against the packages made for it.

Each result is held against ``numpy.linalg.lstsq`` on some windows.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from benchmarks.case import Case
from benchmarks.goals import Speedup
from benchmarks.peers import Peer, polars_regressions, statsmodels_regression
from skjaxwin import RollingJaxEstimator, models

N_ROWS, WINDOW = 100_000, 252
N_CHECKED = 5
POLARS, STATSMODELS = ("polars-ols", "polars-ds"), "statsmodels RollingOLS"
# Number of features: how many times faster than the faster polars plugin, rolling and expanding.
WANTED = {2: (8.0, 5.0), 8: (5.0, 5.0), 32: (1.5, 1.5)}
WANTED_OF_STATSMODELS = 50.0
COMPILE_SECONDS = 3.0
TOLERANCE = 1e-8


def package(X: np.ndarray, y: np.ndarray, window: int | str, inference: str | None = None) -> Peer:
    """The package's way."""
    options = {} if inference is None else {"inference": inference}
    estimator = RollingJaxEstimator(models.Linear(), window=window, **options)

    def read(fitted, stop):
        parts = [fitted.params_]
        if inference is not None:
            parts += [fitted.standard_errors_, fitted.t_values_]
        numbers = [np.append(part["coef"][stop - 1], part["intercept"][stop - 1]) for part in parts]
        return np.concatenate(numbers if inference is None else [*numbers, fitted.r2_[stop - 1 : stop]])

    return Peer(lambda: estimator.fit(X, y), read)


def least_squares(X: np.ndarray, y: np.ndarray, inference: bool) -> np.ndarray:
    """Slopes and intercept of one window; with `inference` also standard errors, t-values and R2."""
    columns = np.column_stack([X, np.ones(len(X))])
    coef = np.linalg.lstsq(columns, y, rcond=None)[0]
    if not inference:
        return coef
    squares = np.sum((y - columns @ coef) ** 2)
    inverse = np.linalg.inv(np.linalg.qr(columns, mode="r"))
    errors = np.sqrt(squares / (len(y) - len(coef)) * np.sum(inverse**2, axis=1))
    return np.concatenate([coef, errors, coef / errors, [1 - squares / np.sum((y - y.mean()) ** 2)]])


def case(title: str, ways: dict[str, Peer], X: np.ndarray, y: np.ndarray, window: int | None, **options) -> Case:
    """Make a case of several ways whose error is measured on some windows."""
    inference = options.pop("inference", False)
    stops = np.random.default_rng(1).integers(WINDOW, len(X), N_CHECKED, endpoint=True)

    @functools.cache
    def truth():
        starts = [0 if window is None else stop - window for stop in stops]
        return [least_squares(X[a:b], y[a:b], inference) for a, b in zip(starts, stops, strict=True)]

    def error(name, result):
        found = (ways[name].read(result, int(stop)) for stop in stops)
        return max(np.max(np.abs(f / t - 1)) for f, t in zip(found, truth(), strict=True))

    return Case(
        title,
        {name: way.run for name, way in ways.items()},
        error=error,
        tolerance=TOLERANCE,
        once=(STATSMODELS,),
        compile_seconds=COMPILE_SECONDS,
        **options,
    )


def cases() -> Iterator[Case]:
    """Yield three cases for each number of features: rolling, rolling with t-values, expanding."""
    for k, (wanted_rolling, wanted_expanding) in WANTED.items():
        rng = np.random.default_rng(0)
        X = rng.normal(size=(N_ROWS, k))
        y = 1 + X.sum(axis=1) + rng.normal(size=N_ROWS)  # no number is near 0, so that errors can be relative

        title = f"rolling({WINDOW}), n = {N_ROWS}, k = {k}"
        ways = {"skjaxwin": package(X, y, WINDOW), **polars_regressions(X, y, WINDOW)}
        ways |= statsmodels_regression(X, y, WINDOW, inference=False)
        speedups = (
            Speedup(f"times faster than polars: rolling, k = {k}", POLARS, wanted_rolling),
            Speedup(f"times faster than RollingOLS: k = {k}", (STATSMODELS,), WANTED_OF_STATSMODELS),
        )
        yield case(title, ways, X, y, WINDOW, speedups=speedups)

        title = f"rolling({WINDOW}) with t-values, n = {N_ROWS}, k = {k}"
        ways = {"skjaxwin": package(X, y, WINDOW, inference="nonrobust")}
        ways |= statsmodels_regression(X, y, WINDOW, inference=True)
        speedups = (Speedup(f"times faster than RollingOLS: t-values, k = {k}", (STATSMODELS,), WANTED_OF_STATSMODELS),)
        yield case(title, ways, X, y, WINDOW, speedups=speedups, inference=True)

        title = f"expanding, n = {N_ROWS}, k = {k}"
        ways = {"skjaxwin": package(X, y, "expanding"), **polars_regressions(X, y, None)}
        speedups = (Speedup(f"times faster than polars: expanding, k = {k}", POLARS, wanted_expanding),)
        yield case(title, ways, X, y, None, speedups=speedups)
