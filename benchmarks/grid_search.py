"""GridSearchCV over 20 penalties x TimeSeriesSplit(5): the newest window against scikit-learn's Ridge.

Ridge fits each training fold once. The package, with ``step`` above the number of rows, does the same;
with ``step=50`` it also fits the windows inside each fold, which Ridge does not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

from benchmarks.case import Case
from skjaxwin import RollingJaxEstimator, models

ALPHAS = np.logspace(-3, 3, 20)


def cases() -> Iterator[Case]:
    """Yield a case for each number of rows."""
    for n_rows in (1000, 5000):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n_rows, 6))
        y = X @ rng.normal(size=6) + rng.normal(size=n_rows)

        def search(estimator, name, X=X, y=y):
            found = GridSearchCV(estimator, {name: ALPHAS}, cv=TimeSeriesSplit(5), n_jobs=1).fit(X, y)
            return found.cv_results_["mean_test_score"]

        def rolling(step, search=search, n_rows=n_rows):
            estimator = RollingJaxEstimator(models.Linear(), step=step, capacity=n_rows)
            return search(estimator, "model__alpha")

        yield Case(
            f"GridSearchCV, 20 alphas x TimeSeriesSplit(5), n = {n_rows}, k = 6",
            {
                "skjaxwin, newest window": lambda rolling=rolling, n_rows=n_rows: rolling(n_rows),
                "sklearn Ridge": lambda search=search: search(Ridge(), "alpha"),
                "skjaxwin, every 50th window": lambda rolling=rolling: rolling(50),
            },
            runs=3,
        )
