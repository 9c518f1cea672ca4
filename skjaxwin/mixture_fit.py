"""Fit a mixture: starts by scikit-learn's own clustering, and the best of the fits from them."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn import config_context
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from skjaxwin.kernels.em import EMResult, Mixture, fit_mixture
from skjaxwin.kernels.mixture_start import mixture_of

__all__ = ["DistinctRows", "best_fit", "distinct_rows", "start_mixture"]


class DistinctRows(NamedTuple):
    """Rows of positive weight, each once.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_features)
    weight : ndarray of shape (n_rows,)
        One on average.
    weighted : bool
        Whether weights differ.
    """

    X: np.ndarray
    weight: np.ndarray
    weighted: bool


def distinct_rows(X: np.ndarray, weight: np.ndarray) -> DistinctRows:
    """Leave rows of weight zero out and add up the weights of equal rows.

    A row of weight two and that row twice are then the same to everything that follows, clustering
    and random numbers included. Rows without weights or repetitions keep their order.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    weight : ndarray of shape (n_rows,)
        Non-negative, not all zero.
    """
    X, weight = X[weight > 0], weight[weight > 0]
    if (weight == weight[0]).all() and not _may_repeat(X):
        return DistinctRows(X, np.ones(len(X)), False)
    unique, inverse = np.unique(X, axis=0, return_inverse=True)
    if len(unique) == len(X) and (weight == weight[0]).all():
        return DistinctRows(X, np.ones(len(X)), False)
    summed = np.bincount(inverse.reshape(-1), weight, minlength=len(unique))
    return DistinctRows(unique, summed * (len(unique) / summed.sum()), True)


def _may_repeat(X: np.ndarray) -> bool:
    """Say whether a combination of the columns repeats: sorting one number a row is much faster than rows."""
    combined = np.zeros(len(X))
    for j, factor in enumerate(np.random.default_rng(0).uniform(1, 2, size=(X.shape[1],))):
        combined += factor * X[:, j]  # not by a product of matrices, which may round equal rows differently
    combined.sort()
    return bool((combined[1:] == combined[:-1]).any())


def start_mixture(
    rows: DistinctRows, *, n_components: int, covariance_type: str, reg_covar: float, init_params: str, rng: Any
) -> Mixture:
    """Return the mixture that scikit-learn's ``GaussianMixture`` starts from, with weights if there are any.

    Parameters
    ----------
    rows : DistinctRows
        At least as many as components.
    n_components : int
    covariance_type : {"full", "tied", "diag", "spherical"}
    reg_covar : float
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}
    rng : RandomState
    """
    X, weight = rows.X, rows.weight
    sample_weight = weight if rows.weighted else None
    if init_params == "random":
        resp = rng.uniform(size=(len(X), n_components))
        resp /= resp.sum(axis=1, keepdims=True)
    else:
        resp = np.zeros((len(X), n_components))
        with config_context(array_api_dispatch=False):  # clustering does not take part in it
            if init_params == "kmeans":
                clusters = KMeans(n_components, n_init=1, random_state=rng).fit(X, sample_weight=sample_weight)
                resp[np.arange(len(X)), clusters.labels_] = 1
            elif init_params == "k-means++":
                _, chosen = kmeans_plusplus(X, n_components, sample_weight=sample_weight, random_state=rng)
                resp[chosen, np.arange(n_components)] = 1
            else:
                share = weight / weight.sum() if rows.weighted else None
                chosen = rng.choice(len(X), size=n_components, replace=False, p=share)
                resp[chosen, np.arange(n_components)] = 1
    return mixture_of(X, weight, resp, covariance_type, reg_covar)


def best_fit(estimator: Any, X: np.ndarray, weight: np.ndarray) -> EMResult:
    """Return the likeliest of the fits from ``n_init`` starts.

    Parameters
    ----------
    estimator : GaussianMixtureEntropy
        Whose parameters say what to fit, and how.
    X : ndarray of shape (n_rows, n_features)
    weight : ndarray of shape (n_rows,)
        Non-negative.
    """
    if not (weight > 0).any():
        raise ValueError("Sample weights must contain at least one non-zero value: all weights are zero.")
    rows = distinct_rows(X, weight)
    if len(rows.X) < estimator.n_components:
        raise ValueError(
            f"n_components={estimator.n_components} needs as many distinct rows of positive weight, but there are "
            f"only {len(rows.X)} among {len(X)} rows; use fewer components."
        )
    rng = check_random_state(estimator.random_state)
    best = _fit_once(estimator, rows, rng)
    for _ in range(estimator.n_init - 1):
        result = _fit_once(estimator, rows, rng)
        if result.log_likelihood > best.log_likelihood:
            best = result
    if not best.converged and estimator.max_iter > 0:
        warnings.warn(
            f"The best of n_init={estimator.n_init} starts did not converge in max_iter={estimator.max_iter} "
            "iterations; raise max_iter or tol, or try other init_params.",
            ConvergenceWarning,
            stacklevel=3,
        )
    return best


def _fit_once(estimator: Any, rows: DistinctRows, rng: Any) -> EMResult:
    """Start anew and fit."""
    kind = estimator.covariance_type
    start = start_mixture(
        rows,
        n_components=estimator.n_components,
        covariance_type=kind,
        reg_covar=estimator.reg_covar,
        init_params=estimator.init_params,
        rng=rng,
    )
    result = fit_mixture(
        rows.X,
        rows.weight,
        start,
        covariance_type=kind,
        tol=float(estimator.tol),
        reg_covar=float(estimator.reg_covar),
        max_iter=int(estimator.max_iter),
    )
    if result.singular.any():
        what = "The tied covariance"
        if kind != "tied":
            what = f"The covariance of component {int(np.argmax(result.singular))}"
        raise ValueError(
            f"{what} is not positive definite after {int(result.n_iter)} iterations: too few rows, or rows that "
            f"depend on each other, belong to it. Increase reg_covar (now {estimator.reg_covar}), decrease "
            f"n_components (now {estimator.n_components}), or scale the data."
        )
    return result
