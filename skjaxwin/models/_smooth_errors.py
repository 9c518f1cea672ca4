"""Standard errors of models of a linear predictor, from the scores and the Hessian of a window's rows."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import Any

import jax.numpy as jnp

from skjaxwin.kernels.linear_predictor import standardised
from skjaxwin.models._base import FitInfo, WindowModel
from skjaxwin.models._inference import cluster_products, inverse_definite, score_products, split_clusters
from skjaxwin.models._linear_predictor import LinearPredictor

__all__ = ["SmoothErrors"]


class SmoothErrors(WindowModel):
    r"""Standard errors of a `LinearPredictor` in one window.

    With :math:`H` the Hessian of the weighted sum of losses and :math:`s_t` the gradient of the weighted loss of row t,
    the covariance of the coefficients is

    * nonrobust: :math:`\phi \, E[H]^{-1}` with the expected Hessian and the dispersion :math:`\phi`: 1 for counts and
      classes, else Pearson's :math:`\sum_t w_t (y_t - \mu_t)^2 / V(\mu_t) / (n - p)`;
    * HC0: :math:`H^{-1} (\sum_t s_t s_t') H^{-1}`; HC1: times :math:`n / (n - p)`;
    * HAC: with the sum of lagged products of scores, weighted :math:`1 - l / (L + 1)`, added;
    * cluster: with the scores of a cluster added up before they are multiplied, times
      :math:`G / (G - 1) \cdot (n - 1) / (n - p)` for G clusters in the window.

    n counts the rows, whatever their weights, and p the coefficients, as in statsmodels.

    Parameters
    ----------
    model : LinearPredictor
    robust : float
        0 for nonrobust, else 1. Traced, as is `max_lags`: all kinds share a kernel.
    max_lags : float
        The L above; negative for :math:`\lfloor 4 (n / 100)^{2/9} \rfloor`.
    max_clusters : int
        If positive, the last column of X holds the number of each row's cluster, below this.
    """

    checked = True
    double = True
    in_turn = True

    def __init__(
        self, model: LinearPredictor, robust: float = 0.0, max_lags: float = 0.0, max_clusters: int = 0
    ) -> None:
        self.model = model
        self.robust = robust
        self.max_lags = max_lags
        self.max_clusters = max_clusters

    def hyperparameters(self) -> dict[str, Any]:
        """Return those of the model and its own."""
        return {**self.model.hyperparameters(), "robust": self.robust, "max_lags": self.max_lags}

    def static_key(self) -> Hashable:
        """Return what identifies the computation."""
        return type(self), self.model.static_key(), self.max_clusters

    def static_copy(self) -> SmoothErrors:
        """Return a copy that later changes of this object do not reach."""
        static = copy.copy(self)
        static.model = self.model.static_copy()
        return static

    def initial(self, n_features: int, n_outputs: int | None) -> Any:
        """Return what the model starts from, and room for errors."""
        start = self.model.initial(n_features - (self.max_clusters > 0), n_outputs)
        return {"params": start, "errors": start}

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Fit one window; see `WindowModel.fit`. The parameters are those of the model and their errors."""
        model = self.model
        X, cluster = split_clusters(X, self.max_clusters)
        params, info = model.fit(X, y, weight, hyper, start["params"])
        design = standardised(X, y, weight, model.fit_intercept)
        n_rows, p = len(X), design.columns.shape[1]
        Z = jnp.swapaxes(design.columns, 1, 2).reshape(-1, p)[:n_rows]
        inside = weight > 0
        eta = X @ params["coef"] + params["intercept"]
        _, first, second = model.loss(hyper, eta[None], y[None])
        expected = model.expected_curvature(hyper, eta)
        first, second, expected = (jnp.where(inside, weight * part, 0) for part in (first[0], second[0], expected))
        n = jnp.sum(inside, dtype=X.dtype)
        degrees = n - p
        nonrobust = _inverse(Z, expected) * model.dispersion(hyper, eta, y, weight, degrees)
        P = _inverse(Z, second)
        scores = Z * first[:, None]
        if cluster is None:
            meat = score_products(scores, n, hyper["max_lags"])
        else:
            meat = cluster_products(scores, inside, cluster, self.max_clusters)
        covariance = jnp.where(hyper["robust"] > 0, P @ meat @ P, nonrobust)
        # Rows of `pick` make the caller's coefficients out of those of standardised features.
        k = X.shape[1]
        pick = jnp.eye(k, p, k=p - k, dtype=X.dtype) / design.scale[:, None]
        if model.fit_intercept:
            level = jnp.concatenate([jnp.ones(1, X.dtype), -design.centre / design.scale])
            pick = jnp.concatenate([pick, level[None]])
        errors = jnp.sqrt(jnp.sum((pick @ covariance) * pick, axis=1))
        errors = jnp.where((degrees > 0) & info.determined & info.converged, errors, jnp.nan)
        intercept = errors[k] if model.fit_intercept else jnp.zeros((), X.dtype)
        return {"params": params, "errors": {"coef": errors[:k], "intercept": intercept}}, info


def _inverse(Z: Any, weight: Any) -> Any:
    """Return ``(Z' W Z)^-1``."""
    return inverse_definite((Z.T * weight) @ Z)
