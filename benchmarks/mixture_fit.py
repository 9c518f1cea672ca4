"""Gaussian mixtures: one fit, a grid search over the number of components, and a mixture for every window."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV

from benchmarks.case import Case
from skjaxwin import GaussianMixtureEntropy, RollingJaxEstimator, models

# Entropies of many components would be most of the time, and scikit-learn has none: an order that costs nothing.
CHEAP = {"order": 1}


def clusters(n: int, d: int, k: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, d)) + 3 * rng.normal(size=(k, d))[rng.integers(k, size=n)]


def cases() -> Iterator[Case]:
    """Yield fits of growing size, a search, and windows."""
    for n, d, k in ((1000, 2, 3), (20_000, 8, 5), (200_000, 8, 5)):
        yield fit_case(n, d, k)
    yield search_case()
    yield windows_case()


def fit_case(n: int, d: int, k: int) -> Case:
    X = clusters(n, d, k)
    # Random responsibilities: no time goes to clustering, and there is a way to go.
    options = {"init_params": "random", "random_state": 0, "tol": 1e-4, "max_iter": 50}

    def fit(estimator):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return estimator.fit(X).means_

    return Case(
        f"one mixture, n = {n}, d = {d}, {k} components, from random responsibilities",
        {
            "skjaxwin, entropy included": lambda: fit(GaussianMixtureEntropy(k, **CHEAP, **options)),
            "scikit-learn": lambda: fit(GaussianMixture(k, **options)),
        },
        runs=3,
    )


def search_case() -> Case:
    X = clusters(5000, 4, 4)
    grid = {"n_components": [1, 2, 3, 4, 5, 6]}

    def search(estimator):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return GridSearchCV(estimator, grid, cv=5).fit(X).cv_results_["mean_test_score"]

    return Case(
        "GridSearchCV over 1 to 6 components, n = 5000, d = 4, 5 folds, started by k-means",
        {
            "skjaxwin, entropy included": lambda: search(GaussianMixtureEntropy(random_state=0, **CHEAP)),
            "scikit-learn": lambda: search(GaussianMixture(random_state=0)),
        },
        runs=3,
    )


def windows_case() -> Case:
    X = clusters(2000, 2, 2)
    X[:, 0] += 8.0 * (np.arange(len(X)) % 2)  # apart: one maximum, which every start leads to
    window = 250
    rolling = RollingJaxEstimator(models.GaussianMixture(2), window=window, min_periods=window)
    first = rolling.fit(X[:window]).params_

    def ours():
        return rolling.fit(X).params_["means"][1:]

    def theirs():
        start = {name: a[0] for name, a in first.items()}
        means = []
        for stop in range(window + 1, len(X) + 1):
            mixture = GaussianMixture(
                2,
                weights_init=start["weights"],
                means_init=start["means"],
                precisions_init=np.linalg.inv(start["covariances"]),
                init_params="random_from_data",  # a clustering whose result is not used would cost more
            ).fit(X[stop - window : stop])
            start = {"weights": mixture.weights_, "means": mixture.means_, "covariances": mixture.covariances_}
            means.append(mixture.means_)
        return np.stack(means)

    return Case(
        f"a mixture of 2 for each of {len(X) - window} rolling windows of {window}, each from the one before",
        {"skjaxwin, models.GaussianMixture": ours, "scikit-learn, warm-started loop": theirs},
        runs=3,
        tolerance=1e-5,
    )
