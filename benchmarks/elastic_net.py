"""Elastic nets on rolling windows for a path of penalties, against scikit-learn window by window."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, enet_path

from benchmarks.case import Case
from benchmarks.goals import Speedup
from skjaxwin import RollingJaxEstimator, models, walk_forward_grid

N_WINDOWS, WINDOW, K = 1000, 252, 20
ALPHAS = np.logspace(0, -3, 20)
# What scikit-learn's duality gap has to fall to for slopes within the tolerance of the comparison.
PEERS_TOL = 1e-12


def cases() -> Iterator[Case]:
    """Yield a case of mildly and one of strongly correlated features."""
    for title, common in (("features of correlation 0.2", 0.5), ("features of correlation 0.9", 3.0)):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(N_WINDOWS + WINDOW - 1, K))
        X = (X + common * rng.normal(size=(len(X), 1))) / np.hypot(1, common)
        y = X[:, :8] @ rng.normal(size=8) + 2 * rng.normal(size=len(X))
        name = f"elastic net, {len(ALPHAS)} alphas on {N_WINDOWS} rolling windows of {WINDOW}, k = {K}, {title}"
        rolling = RollingJaxEstimator(models.ElasticNet(), window=WINDOW, min_periods=WINDOW)
        ours = "skjaxwin, walk_forward_grid"
        fits, path = "sklearn ElasticNet, warm start", "sklearn enet_path, Gram matrix"

        def grid(X=X, y=y, rolling=rolling):
            found = walk_forward_grid(rolling, X, y, param_grid={"model__alpha": ALPHAS})
            return np.stack([params["coef"] for params in found.params], axis=1)

        yield Case(
            name,
            {ours: grid, fits: lambda X=X, y=y: warm_fits(X, y), path: lambda X=X, y=y: paths(X, y)},
            runs=3,
            tolerance=1e-5,
            once=(fits,),
            speedups=(Speedup(f"times a warm-started loop, {title}", (fits,), 20),),
        )


def windows() -> Iterator[slice]:
    """Yield the rows of each window."""
    for first in range(N_WINDOWS):
        yield slice(first, first + WINDOW)


def warm_fits(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Fit scikit-learn's estimator, each alpha from where the one before it ended."""
    coef = np.empty((N_WINDOWS, len(ALPHAS), K))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for i, rows in enumerate(windows()):
            model = ElasticNet(warm_start=True, tol=PEERS_TOL, max_iter=100_000)
            for j, alpha in enumerate(ALPHAS):
                coef[i, j] = model.set_params(alpha=alpha).fit(X[rows], y[rows]).coef_
    return coef


def paths(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Call scikit-learn's path function with each window's Gram matrix."""
    coef = np.empty((N_WINDOWS, len(ALPHAS), K))
    options = {"l1_ratio": 0.5, "alphas": ALPHAS, "tol": PEERS_TOL, "max_iter": 100_000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for i, rows in enumerate(windows()):
            A, b = X[rows] - X[rows].mean(axis=0), y[rows] - y[rows].mean()
            coef[i] = enet_path(A, b, precompute=A.T @ A, Xy=A.T @ b, **options)[1].T
    return coef
