"""The mixture that given responsibilities ask for, in NumPy: where expectation maximisation starts."""

from __future__ import annotations

import numpy as np

from skjaxwin.kernels.em import NOBODY, Mixture

__all__ = ["mixture_of"]


def mixture_of(X: np.ndarray, weight: np.ndarray, resp: np.ndarray, covariance_type: str, reg_covar: float) -> Mixture:
    """Return the mixture with these responsibilities.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    weight : ndarray of shape (n_rows,)
        Positive, one on average.
    resp : ndarray of shape (n_rows, n_components)
        Rows add up to one, or to zero where a row belongs to nobody yet.
    covariance_type : {"full", "tied", "diag", "spherical"}
    reg_covar : float
        Added to the diagonals.
    """
    owned = resp * weight[:, None]
    n = owned.sum(axis=0) + NOBODY
    centre = weight @ X / weight.sum()
    centred = X - centre
    means = owned.T @ centred / n[:, None]
    if covariance_type == "tied":
        covariances = _tied(X, centre, weight, resp, n, means)
    else:
        covariances = np.empty((len(n), *((X.shape[1],) * (2 if covariance_type == "full" else 1))))
        for k, mean in enumerate(means):
            away = centred - mean
            if covariance_type == "full":
                covariances[k] = (owned[:, k] * away.T) @ away / n[k]
            else:
                covariances[k] = owned[:, k] @ away**2 / n[k]
    if covariance_type == "spherical":
        covariances = covariances.mean(axis=1)
    if covariance_type in ("full", "tied"):
        diagonal = np.arange(X.shape[1])
        covariances[..., diagonal, diagonal] += reg_covar
    else:
        covariances += reg_covar
    return Mixture(n / n.sum(), means + centre, covariances)


def _tied(
    X: np.ndarray, centre: np.ndarray, weight: np.ndarray, resp: np.ndarray, n: np.ndarray, means: np.ndarray
) -> np.ndarray:
    """Return the products of all rows less those of the means, over the rows that belong to someone.

    Where each row belongs to someone this is the mean square distance from the means. Elsewhere it
    depends on where the origin is, which is kept for the sake of the same start as scikit-learn's.
    """
    if not np.allclose(resp.sum(axis=1), 1):
        raw = means + centre
        return ((weight * X.T) @ X - (n * raw.T) @ raw) / n.sum()
    products = np.zeros((X.shape[1],) * 2)
    for k, mean in enumerate(means):
        away = X - centre - mean
        products += (weight * resp[:, k] * away.T) @ away
    return products / n.sum()
