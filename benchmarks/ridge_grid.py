"""Fifty ridge penalties on every rolling window: one call, against a call for each penalty."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.base import clone

from benchmarks.case import Case
from skjaxwin import RollingJaxEstimator, models, walk_forward_grid

N_ROWS, WINDOW = 20_000, 252
ALPHAS = np.logspace(-3, 3, 50)


def cases() -> Iterator[Case]:
    """Yield a case for each number of features."""
    for k in (2, 8):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(N_ROWS, k))
        y = X @ rng.normal(size=k) + rng.normal(size=N_ROWS)
        rolling = RollingJaxEstimator(models.Linear(), window=WINDOW)

        def grid(X=X, y=y, rolling=rolling):
            found = walk_forward_grid(rolling, X, y, param_grid={"model__alpha": ALPHAS})
            return np.stack([params["coef"] for params in found.params])

        def separate(X=X, y=y, rolling=rolling):
            fits = (clone(rolling).set_params(model__alpha=alpha).fit(X, y) for alpha in ALPHAS)
            return np.stack([fitted.params_["coef"] for fitted in fits])

        yield Case(
            f"ridge, {len(ALPHAS)} alphas on rolling({WINDOW}), n = {N_ROWS}, k = {k}",
            {"skjaxwin, walk_forward_grid": grid, "skjaxwin, a fit for each alpha": separate},
            runs=3,
        )
