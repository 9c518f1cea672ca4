"""Entropies of the mixtures of all windows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skjaxwin.entropy import MAX_TERMS, SERIES, check_order, warn_of_rounding
from skjaxwin.kernels import mixture_entropy
from skjaxwin.models import GaussianMixture

__all__ = ["EntropyPath", "HasEntropyPath"]


class EntropyPath:
    """Entropy of each window's mixture, in nats, with certified bounds; NaN where a window has no finite fit.

    Computed for all windows together when one of the attributes is first asked for.

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
            )
            for name, whole in values.items():
                whole[known] = found[name]
        return values


class HasEntropyPath:
    """What `RollingJaxEstimator` offers for mixtures only."""

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
