"""The loop over growing slices: ridge regression on 25 windows x 5 penalties, compile time included."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Case
from skjaxwin import RollingJaxEstimator, models

N_ROWS, STEP = 2000, 80
ALPHAS = (0.01, 0.1, 1.0, 10.0, 100.0)


def ridge(X, y, weight, alpha):
    weighted = X.T * weight
    return jnp.linalg.solve(weighted @ X + alpha * jnp.eye(X.shape[1]), weighted @ y)


def cases() -> Iterator[Case]:
    """Yield the one case."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(N_ROWS, 6))
    y = features @ rng.normal(size=6) + rng.normal(size=N_ROWS)
    X = np.column_stack([np.arange(N_ROWS, dtype=float), features])
    times = X[STEP - 1 :: STEP, 0]

    runs = itertools.count()

    def package():
        # A capacity of its own makes each run trace and compile anew.
        rolling = RollingJaxEstimator(models.Custom(ridge, alpha=1.0), time=0, step=STEP, capacity=N_ROWS + next(runs))
        return np.stack([rolling.set_params(model__alpha=a).fit(X, y).params_ for a in ALPHAS], axis=1)

    def naive():
        jax.clear_caches()
        compiled, results = jax.jit(ridge), []
        with jax.enable_x64(True):
            for t in times:
                known = X[:, 0] <= t
                sliced = X[known, 1:], y[known], np.ones(known.sum())
                results.append([np.asarray(compiled(*sliced, a)) for a in ALPHAS])
        return np.array(results)

    def plain():
        results = []
        for t in times:
            known = X[:, 0] <= t
            A, b = X[known, 1:], y[known]
            results.append([np.linalg.solve(A.T @ A + a * np.eye(6), A.T @ b) for a in ALPHAS])
        return np.array(results)

    package()  # start JAX and its LAPACK bindings before the clock runs
    yield Case(
        f"growing slices, {len(times)} windows x {len(ALPHAS)} penalties, n = {N_ROWS}, k = 6",
        {"skjaxwin, Custom": package, "jax.jit on each slice": naive, "NumPy loop": plain},
        warm=False,
        runs=3,
    )
