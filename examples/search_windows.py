"""Search the penalty and the window length with GridSearchCV, in a Pipeline, on ordered folds.

The data have slopes that drift, so a window that is too long averages over the past and one that is
too short is noisy. `capacity` pads every fold to the same number of rows: the compiles that are left
are those of the different window kinds, and a second search compiles nothing.
"""

import time

import numpy as np
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from skjaxwin import RollingJaxEstimator, count_compiles, models


def drifting_data(n_rows=800, n_features=4):
    """Return features and a target whose slopes follow a random walk."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n_rows, n_features))
    slopes = np.cumsum(0.08 * rng.normal(size=X.shape), axis=0) + 1
    return X, (X * slopes).sum(axis=1) + rng.normal(size=n_rows)


def main():
    X, y = drifting_data()
    rolling = RollingJaxEstimator(models.Linear(), capacity=1024, step=50)
    pipeline = Pipeline([("scale", StandardScaler()), ("rolling", rolling)])
    grid = {
        "rolling__model__alpha": [0.01, 1.0, 10.0, 100.0],
        "rolling__window": ["expanding", 20, 50, 120, 300],
    }
    # Short test folds: without a time column every row of a fold is predicted by the newest window.
    folds = TimeSeriesSplit(n_splits=8, test_size=15)
    for attempt in ("first search", "second search"):
        search = GridSearchCV(pipeline, grid, cv=folds, scoring="neg_mean_squared_error")
        start = time.perf_counter()
        with count_compiles() as compiles:
            search.fit(X, y)
        seconds = time.perf_counter() - start
        print(f"{attempt}: {compiles.count} compiles, {seconds:.2f} s, of which compiling {compiles.seconds:.2f} s")
    assert compiles.count == 0

    results = search.cv_results_
    print("mean squared error by window (rows) at the best alpha")
    for window in grid["rolling__window"]:
        chosen = [p["rolling__window"] == window for p in results["params"]]
        print(f"{window!s:>12}  {-results['mean_test_score'][chosen].max():.3f}")
    print(f"best: {search.best_params_}")


if __name__ == "__main__":
    main()
