"""Out-of-sample predictions of every 20th expanding window x 25 penalties, against loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.linear_model import Ridge

from benchmarks.case import Case
from skjaxwin import RollingJaxEstimator, models, walk_forward_grid

N_ROWS, N_FEATURES, STEP = 2000, 6, 20
ALPHAS = np.logspace(-3, 3, 25)


def lstsq_ridge(X, y, alpha):
    """Ridge as least squares on centred columns with rows sqrt(alpha) appended."""
    mean, middle = X.mean(axis=0), y.mean()
    k = X.shape[1]
    stacked = np.vstack([X - mean, np.sqrt(alpha) * np.eye(k)])
    coef = np.linalg.lstsq(stacked, np.concatenate([y - middle, np.zeros(k)]), rcond=None)[0]
    return coef, middle - mean @ coef


def sklearn_ridge(X, y, alpha):
    """Ridge by scikit-learn."""
    fitted = Ridge(alpha=alpha).fit(X, y)
    return fitted.coef_, fitted.intercept_


def cases() -> Iterator[Case]:
    """Yield the one case."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_ROWS, N_FEATURES))
    y = X @ rng.normal(size=N_FEATURES) + rng.normal(size=N_ROWS)

    def package():
        rolling = RollingJaxEstimator(models.Linear(), step=STEP)
        grid = walk_forward_grid(rolling, X, y, param_grid={"model__alpha": ALPHAS})
        return grid.predictions[:, STEP:]

    def loop(fit):
        predictions = np.empty((len(ALPHAS), N_ROWS))
        for stop in range(STEP, N_ROWS, STEP):
            ahead = slice(stop, stop + STEP)
            for i, alpha in enumerate(ALPHAS):
                coef, intercept = fit(X[:stop], y[:stop], alpha)
                predictions[i, ahead] = X[ahead] @ coef + intercept
        return predictions[:, STEP:]

    yield Case(
        f"walk forward, {N_ROWS // STEP} windows x {len(ALPHAS)} alphas, n = {N_ROWS}, k = {N_FEATURES}",
        {
            "skjaxwin, walk_forward_grid": package,
            "NumPy lstsq loop": lambda: loop(lstsq_ridge),
            "sklearn Ridge loop": lambda: loop(sklearn_ridge),
        },
        runs=3,
    )
