"""Logistic regression on 100 expanding windows for 5 penalties, against scikit-learn's searches and loops."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

from benchmarks.case import Case
from benchmarks.goals import Speedup
from skjaxwin import RollingJaxEstimator, models, walk_forward_grid

N_ROWS, N_FEATURES, N_WINDOWS, EVERY = 2_000, 5, 100, 10
CS = np.array([0.01, 0.1, 1.0, 10.0, 100.0])
STOPS = np.arange(N_ROWS - N_WINDOWS * EVERY, N_ROWS, EVERY)


def cases() -> Iterator[Case]:
    """Yield the case."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_FEATURES))
    y = (X @ rng.normal(size=N_FEATURES) + rng.logistic(size=N_ROWS) > 0).astype(int)
    rolling = RollingJaxEstimator(models.Logistic(), min_periods=int(STOPS[0]), step=EVERY)
    last = STOPS[-1]

    def package():
        grid = walk_forward_grid(rolling, X[:last], y[:last], param_grid={"model__C": CS})
        return np.stack([params["coef"] for params in grid.params])

    def search():
        split = TimeSeriesSplit(N_WINDOWS, test_size=EVERY)
        GridSearchCV(LogisticRegression(), {"C": CS}, cv=split, refit=False).fit(X, y)

    def loop(**parameters):
        def run():
            coef = np.empty((len(CS), len(STOPS), N_FEATURES))
            for i, C in enumerate(CS):
                model = LogisticRegression(C=C, warm_start=True, **parameters)
                for j, stop in enumerate(STOPS):
                    coef[i, j] = model.fit(X[:stop], y[:stop]).coef_[0]
            return coef

        return run

    exact = np.stack([_exact(X[:stop], y[:stop], C) for C in CS for stop in STOPS[::20]])

    def error(way, coef):
        return np.nan if coef is None else float(np.abs(coef[:, ::20].reshape(exact.shape) / exact - 1).max())

    yield Case(
        f"logistic regression, {N_WINDOWS} expanding windows x {len(CS)} penalties, n = {N_ROWS}, k = {N_FEATURES}",
        {
            "skjaxwin, walk_forward_grid": package,
            "GridSearchCV": search,
            "loop, newton-cholesky, warm": loop(solver="newton-cholesky"),
            "loop, lbfgs, warm": loop(),
        },
        error=error,
        speedups=(
            Speedup("logistic grid against GridSearchCV", ("GridSearchCV",), 25),
            Speedup("logistic grid against warm loops", ("loop, newton-cholesky, warm", "loop, lbfgs, warm"), 8),
        ),
    )


def _exact(X: np.ndarray, y: np.ndarray, C: float) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LogisticRegression(C=C, solver="newton-cholesky", tol=1e-13, max_iter=1000).fit(X, y).coef_[0]
