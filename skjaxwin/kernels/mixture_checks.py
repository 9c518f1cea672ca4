"""Whether parameters describe a Gaussian mixture: plain NumPy, before anything is compiled."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

__all__ = ["expanded", "is_positive_definite", "is_symmetric", "log_density_maximum"]

_MEAN_SHIFTS = 50


def is_symmetric(covariance: np.ndarray, given: np.dtype | type = np.float64) -> bool:
    """Say whether a matrix is its own transpose, but for the rounding of sums over rows in the given type.

    Products of matrices round the two triangles differently. In single precision, in which scikit-learn fits mixtures
    to such data, that is far more than a mistake in double precision may be.

    Parameters
    ----------
    covariance : ndarray of shape (n_features, n_features)
        In double precision.
    given : dtype
        The type that it was computed in; integers count as double precision.
    """
    single = np.issubdtype(given, np.floating) and np.dtype(given).itemsize < 8
    tolerance = 1e4 * float(np.finfo(given).eps) if single else 1e-8
    root = np.sqrt(np.abs(np.diagonal(covariance)))
    return bool((np.abs(covariance - covariance.T) <= tolerance * root * root[:, None]).all())


def is_positive_definite(covariance: np.ndarray) -> bool:
    """Say whether a covariance of any layout is positive definite in working precision.

    Judged on correlations, so that features may have very different scales.
    """
    if covariance.ndim < 2:
        return bool((covariance > 0).all())
    variances = np.diagonal(covariance)
    if not (variances > 0).all():
        return False
    root = np.sqrt(variances)
    correlation = covariance / root / root[:, None]
    limit = 4 * len(root) * np.finfo(np.float64).eps
    return bool(np.linalg.eigvalsh(correlation)[0] > limit)


def expanded(covariances: np.ndarray, covariance_type: str, n_components: int, n_features: int) -> np.ndarray:
    """Return covariances of any layout as matrices, of shape (n_components, n_features, n_features)."""
    if covariance_type == "full":
        return covariances
    if covariance_type == "tied":
        return np.broadcast_to(covariances, (n_components, n_features, n_features))
    diagonal = covariances if covariance_type == "diag" else np.repeat(covariances[:, None], n_features, axis=1)
    return diagonal[:, :, None] * np.eye(n_features)


def log_density_maximum(weights: np.ndarray, means: np.ndarray, covariances: np.ndarray) -> float:
    """Return the logarithm of the largest density that mean shifts from the components' means find.

    Parameters
    ----------
    weights : ndarray of shape (n_components,)
    means : ndarray of shape (n_components, n_features)
    covariances : ndarray of shape (n_components, n_features, n_features)
    """
    precisions = np.linalg.inv(covariances)
    with np.errstate(divide="ignore"):
        log_peaks = np.log(weights) - np.linalg.slogdet(2 * np.pi * covariances)[1] / 2
    points = means.copy()
    best = -np.inf
    for _ in range(_MEAN_SHIFTS):
        away = points[:, None] - means
        log_parts = log_peaks - np.einsum("nmf,mfg,nmg->nm", away, precisions, away) / 2
        log_density = logsumexp(log_parts, axis=1)
        best = max(best, float(log_density.max()))
        shares = np.exp(log_parts - log_density[:, None])
        total = np.einsum("nm,mfg->nfg", shares, precisions)
        # A step from the point itself: a mean far from the origin loses nothing.
        step = np.einsum("nm,mfg,nmg->nf", shares, precisions, -away)
        points = points + np.linalg.solve(total, step[:, :, None])[:, :, 0]
    return best
