"""Find the fitted mixture inside what scorers are handed, and read its parameters."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from skjaxwin.entropy import COVARIANCE_TYPES
from skjaxwin.kernels.em import Mixture
from skjaxwin.kernels.mixture_checks import is_symmetric

__all__ = ["find_mixture", "parameters_of"]

_ATTRIBUTES = ("weights_", "means_", "covariances_")


def find_mixture(estimator: Any, X: Any = None) -> tuple[Any, Any]:
    """Return the last step of nested searches and pipelines, and X as that step gets it.

    Parameters
    ----------
    estimator : estimator
    X : array-like, default=None
        None if it is of no interest; nothing is transformed then.
    """
    while True:
        if isinstance(estimator, Pipeline):
            steps, last = estimator[:-1], estimator.steps[-1][1]
            if X is not None and len(steps):
                X = steps.transform(X)
            estimator = last
        elif isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "cv_results_"):
            raise TypeError(f"{type(estimator).__name__} has no best_estimator_ to score; fit it with refit=True.")
        else:
            return estimator, X


def parameters_of(estimator: Any) -> tuple[Mixture, str]:
    """Return a fitted mixture's parameters, as arrays of our own, and its type of covariances.

    Raises
    ------
    TypeError
        If it is no mixture.
    NotFittedError
        If it is one, but not fitted.
    """
    kind = getattr(estimator, "covariance_type_", getattr(estimator, "covariance_type", None))
    missing = [name for name in _ATTRIBUTES if not hasattr(estimator, name)]
    name = type(estimator).__name__
    if kind is None or (missing and not hasattr(estimator, "fit")):
        lacking = ", ".join((["covariance_type"] if kind is None else []) + missing)
        raise TypeError(
            f"{name} is no Gaussian mixture: it lacks {lacking}. A fitted mixture has weights_, means_, covariances_ "
            "and covariance_type, as sklearn.mixture.GaussianMixture does."
        )
    if missing:
        raise NotFittedError(f"This {name} is not fitted yet: it lacks {', '.join(missing)}. Call its fit first.")
    if kind not in COVARIANCE_TYPES:
        raise TypeError(f"covariance_type={kind!r} of {name} is none of {', '.join(COVARIANCE_TYPES)}.")
    arrays = (np.array(getattr(estimator, attribute), dtype=np.float64) for attribute in _ATTRIBUTES)
    mixture = Mixture(*arrays)
    if kind in ("full", "tied"):
        given = np.asarray(estimator.covariances_).dtype
        mixture = mixture._replace(covariances=_symmetric(mixture.covariances, given))
    return mixture, kind


def _symmetric(covariances: np.ndarray, given: np.dtype) -> np.ndarray:
    """Return matrices without the asymmetry that rounding in a narrower type than double precision leaves."""
    mean = (covariances + np.swapaxes(covariances, -1, -2)) / 2
    if covariances.ndim == 2:
        return mean if is_symmetric(covariances, given) else covariances
    return np.stack([m if is_symmetric(c, given) else c for c, m in zip(covariances, mean, strict=True)])
