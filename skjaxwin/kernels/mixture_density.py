"""Log densities and draws of a given Gaussian mixture: NumPy on the host, nothing to compile."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.special import logsumexp

__all__ = ["draw", "log_density", "log_density_each", "log_parts", "most_likely", "n_parameters"]

_LOG_TWO_PI = math.log(2 * math.pi)


def log_parts(X: np.ndarray, mixture: Any, covariance_type: str) -> np.ndarray:
    r"""Return :math:`\log w_k + \log N(x; \mu_k, S_k)` for every row and component.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    mixture : Mixture of ndarray
    covariance_type : {"full", "tied", "diag", "spherical"}

    Returns
    -------
    log_parts : ndarray of shape (n_rows, n_components)

    Raises
    ------
    ValueError
        If a covariance is not positive definite, naming its component.
    """
    weights, means, covariances = mixture
    n_features = X.shape[1]
    parts = np.empty((len(X), len(weights)))
    factor = _factor(covariances, "the tied covariance") if covariance_type == "tied" else None
    for k, mean in enumerate(means):
        away = X - mean
        if covariance_type in ("full", "tied"):
            own = factor if factor is not None else _factor(covariances[k], f"the covariance of component {k}")
            away = solve_triangular(own, away.T, lower=True, check_finite=False).T
            log_scale = np.log(np.diagonal(own)).sum()
        else:
            deviation = np.sqrt(_positive(covariances[k], k))
            away = away / deviation
            log_scale = np.log(np.broadcast_to(deviation, (n_features,))).sum()
        parts[:, k] = -0.5 * (away * away).sum(axis=1) - log_scale
    with np.errstate(divide="ignore"):  # a component of weight zero has no density
        return parts + (np.log(weights) - n_features / 2 * _LOG_TWO_PI)


def log_density(X: np.ndarray, mixture: Any, covariance_type: str) -> np.ndarray:
    """Return the mixture's log density at every row."""
    return logsumexp(log_parts(X, mixture, covariance_type), axis=1)


def _factor(covariance: np.ndarray, what: str) -> np.ndarray:
    try:
        return cholesky(covariance, lower=True)
    except (LinAlgError, ValueError) as error:
        raise ValueError(f"{what} is not positive definite.") from error


def _positive(variance: np.ndarray, k: int) -> np.ndarray:
    if not (np.isfinite(variance) & (variance > 0)).all():
        raise ValueError(f"the variance of component {k} is not positive.")
    return variance


def n_parameters(n_components: int, n_features: int, covariance_type: str) -> int:
    """Return how many numbers a mixture is free to choose."""
    one_matrix = n_features * (n_features + 1) // 2
    of_covariances = {
        "full": n_components * one_matrix,
        "tied": one_matrix,
        "diag": n_components * n_features,
        "spherical": n_components,
    }[covariance_type]
    return of_covariances + n_components * n_features + n_components - 1


def draw(mixture: Any, covariance_type: str, n_samples: int, rng: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return rows from the mixture and their components, component after component.

    The generator is asked for the same numbers, in the same order, as scikit-learn's mixtures ask for.
    """
    weights, means, covariances = mixture
    counts = rng.multinomial(n_samples, weights)
    n_features = means.shape[1]
    rows = []
    for k, count in enumerate(counts):
        if covariance_type in ("full", "tied"):
            covariance = covariances if covariance_type == "tied" else covariances[k]
            rows.append(rng.multivariate_normal(means[k], covariance, int(count)))
        else:
            rows.append(means[k] + rng.standard_normal(size=(count, n_features)) * np.sqrt(covariances[k]))
    return np.concatenate(rows), np.repeat(np.arange(len(weights)), counts)


def most_likely(
    X: np.ndarray, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, kind: str
) -> np.ndarray:
    """Return each row's most probable component under a mixture of its own, as floats; NaN where that has NaN.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    weights, means, covariances : ndarray
        As a `Mixture`'s, with one more leading axis: a mixture for each row, or a single one for all.
    kind : {"full", "tied", "diag", "spherical"}
        Type of covariances.
    """
    parts, known = _log_parts_each(X, weights, means, covariances, kind)
    return np.where(known, parts.argmax(axis=1), np.nan)


def log_density_each(
    X: np.ndarray, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, kind: str
) -> np.ndarray:
    """Return each row's log density under a mixture of its own; parameters and NaN as in `most_likely`."""
    parts, known = _log_parts_each(X, weights, means, covariances, kind)
    return np.where(known, logsumexp(parts, axis=1), np.nan)


def _log_parts_each(
    X: np.ndarray, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, kind: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return log densities of components for rows, and whether each row's mixture (or the one for all) is known."""
    known = np.isfinite(weights).all(axis=1)
    safe = np.where(known[:, None], weights, 1.0)
    away = X[:, None] - np.where(known[:, None, None], means, 0.0)
    n_features = X.shape[1]
    if kind in ("full", "tied"):
        matrices = covariances if kind == "full" else covariances[:, None]
        matrices = np.where(known[:, None, None, None], matrices, np.eye(n_features))
        factor = np.linalg.cholesky(matrices)
        white = (np.linalg.inv(factor) @ away[..., None])[..., 0]
        log_scale = np.log(np.diagonal(factor, axis1=-2, axis2=-1)).sum(axis=-1)
    else:
        variances = covariances if kind == "diag" else covariances[:, :, None]
        deviations = np.sqrt(np.where(known[:, None, None], variances, 1.0))
        white = away / deviations
        log_scale = np.log(deviations).sum(axis=-1) * (n_features // deviations.shape[-1])
    with np.errstate(divide="ignore"):
        parts = np.log(safe) - log_scale - (white * white).sum(axis=-1) / 2
    return parts - n_features / 2 * _LOG_TWO_PI, known
