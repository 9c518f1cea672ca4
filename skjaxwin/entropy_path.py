"""What mixtures in windows offer beyond other models: entropies of all windows, and log densities of rows."""

from __future__ import annotations

import copy
import functools
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skjaxwin._sklearn_private import check_sample_weight
from skjaxwin.entropy import MAX_TERMS, SERIES, check_order, seed_of, warn_of_rounding
from skjaxwin.kernels import mixture_entropy
from skjaxwin.models import GaussianMixture
from skjaxwin.models.gaussian_mixture import LogDensities

__all__ = ["EntropyPath", "HasEntropyPath", "is_mixture", "mean_log_density"]


def is_mixture(estimator: Any) -> bool:
    """Say whether a `RollingJaxEstimator` fits mixtures."""
    return isinstance(estimator._model(), GaussianMixture)


def mean_log_density(estimator: Any, X: Any, sample_weight: Any) -> float:
    """Return the weighted mean of ``estimator.score_samples(X)``; see there."""
    values = estimator.score_samples(X)
    weight = check_sample_weight(sample_weight, values, dtype=np.float64, ensure_non_negative=True)
    unknown = np.isnan(values) & (weight > 0)
    if unknown.any():
        raise ValueError(
            f"{unknown.sum()} of {len(values)} rows have no log density to score: they have missing values, no window "
            "precedes them, or theirs has no finite fit. Leave them out, or give them weight 0."
        )
    return float(np.average(values[weight > 0], weights=weight[weight > 0]))


class EntropyPath:
    """Entropy of each window's mixture, in nats, with certified bounds; NaN where a window has no finite fit.

    Computed for all windows together when one of the attributes is first asked for. A series can lie outside of the
    bounds, which are certified whatever the method; a ``ConvergenceWarning`` counts windows where it does by more than
    ``1 / (order + 1)``.

    Parameters
    ----------
    params : dict of ndarray
        ``weights``, ``means`` and ``covariances``, with windows along the leading axis.
    model : models.GaussianMixture
        Whose `covariance_type`, `order` and `method` are used.

    Attributes
    ----------
    entropy : ndarray of shape (n_windows,)
    lower, upper : ndarray of shape (n_windows,)
    """

    def __init__(self, params: dict[str, np.ndarray], model: GaussianMixture) -> None:
        self._params = params
        self._model = model

    def __repr__(self) -> str:
        return f"EntropyPath({len(self)} windows, order={self._model.order}, method={self._model.method!r})"

    def __len__(self) -> int:
        return len(self._params["weights"])

    @property
    def entropy(self) -> np.ndarray:
        """Entropy of each window's mixture."""
        return self._values["entropy"]

    @property
    def lower(self) -> np.ndarray:
        """Certified lower bound of each."""
        return self._values["lower"]

    @property
    def upper(self) -> np.ndarray:
        """Certified upper bound of each."""
        return self._values["upper"]

    @functools.cached_property
    def _values(self) -> dict[str, np.ndarray]:
        model, params = self._model, self._params
        if model.method in SERIES:
            check_order(model.order, model.n_components, MAX_TERMS)
            warn_of_rounding(model.order)
        known = np.isfinite(params["weights"]).all(axis=1)
        values = {name: np.full(len(self), np.nan) for name in ("entropy", "lower", "upper")}
        if known.any():
            found = mixture_entropy.entropy_path(
                *(params[name][known] for name in ("weights", "means", "covariances")),
                covariance_type=model.covariance_type,
                order=model.order,
                method=model.method,
                seed=seed_of(0),  # the points of `gaussian_mixture_entropy`
            )
            for name, whole in values.items():
                whole[known] = found[name]
            if model.method in SERIES and model.method != "taylor":  # which is below the entropy by intention
                _warn_of_bounds(values, model)
        return values


def _warn_of_bounds(values: dict[str, np.ndarray], model: GaussianMixture) -> None:
    """Count the windows whose series is off by more than `gaussian_mixture_entropy` lets pass."""
    outside = np.maximum(values["lower"] - values["entropy"], values["entropy"] - values["upper"])
    n_bad = int((outside > 1 / (model.order + 1)).sum())
    if n_bad:
        warnings.warn(
            f"The {model.method} series of order={model.order} puts the entropy of {n_bad} of {len(outside)} windows "
            f"outside of the certified bounds, by up to {np.nanmax(outside):.2g} nats: it has not converged there. Use "
            "method='auto' or 'sobol', or another series.",
            ConvergenceWarning,
            stacklevel=5,
        )


class HasEntropyPath:
    """What `RollingJaxEstimator` offers for mixtures only."""

    @available_if(is_mixture)
    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log density of rows; for ``models.GaussianMixture`` only.

        Each row's is that of the window `predict` would use for it: out of sample with a time column.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)

        Returns
        -------
        log_density : ndarray of shape (n_rows,)
        """
        check_is_fitted(self, "params_")
        other: Any = copy.copy(self)
        other._fitted_model = LogDensities(covariance_type=other._fitted_model.covariance_type)
        return other.predict(X)

    @property
    def entropy_path_(self) -> EntropyPath:
        """Entropy of each window's mixture, with bounds; for ``models.GaussianMixture`` only."""
        fitted = getattr(self, "_fitted_model", None)
        model: Any = self._model() if fitted is None else fitted  # type: ignore[attr-defined]
        if not isinstance(model, GaussianMixture):
            raise AttributeError(
                f"entropy_path_ is there for models.GaussianMixture only; this model is {type(model).__name__}."
            )
        check_is_fitted(self, "params_")
        path = self.__dict__.get("_entropy_path")
        if path is None or path._params is not self.params_:  # type: ignore[attr-defined]
            path = self._entropy_path = EntropyPath(self.params_, model)  # type: ignore[attr-defined]
        return path
