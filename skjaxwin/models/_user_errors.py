"""Standard errors of a user's curve or loss, from the scores and the Hessian of a window's rows."""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import Any

import jax.numpy as jnp

from skjaxwin.kernels.bounded_newton import free_hessian, held
from skjaxwin.models._base import FitInfo, WindowModel
from skjaxwin.models._inference import cluster_products, inverse_definite, score_products
from skjaxwin.models._user_function import UserFunction

__all__ = ["UserErrors"]


class UserErrors(WindowModel):
    r"""Standard errors of a `UserFunction` in one window, at parameters that are known.

    With :math:`H` the Hessian of the weighted sum of losses and :math:`s_t` the gradient of the weighted loss of row t,
    the covariance of the parameters is

    * nonrobust: :math:`\phi H^{-1}`, with :math:`\phi = \sum_t w_t e_t^2 / (n - p)` for least squares, and 1 for a
      loss, which is taken for a negative log-likelihood;
    * HC0: :math:`H^{-1} (\sum_t s_t s_t') H^{-1}`; HC1: times :math:`n / (n - p)`;
    * HAC, cluster: as for `SmoothErrors`.

    For least squares :math:`H` is Gauss and Newton's. A parameter that is held at a bound has no error, and those of
    the others are as if it were known; n counts the rows, whatever their weights, and p the other parameters.

    The columns of X are the features, the number of the row's cluster if there are clusters, the number of the row,
    and the parameters of the window that ends with the row.

    Parameters
    ----------
    model : UserFunction
    n_features : int
    robust : float
        0 for nonrobust, else 1. Traced, as are the next two: all kinds share a kernel.
    corrected : float
        1 for HC1.
    max_lags : float
        Of HAC; negative for :math:`\lfloor 4 (n / 100)^{2/9} \rfloor`.
    max_clusters : int
        If positive, there are clusters, and their numbers are below this.
    """

    checked = True
    double = True
    structural = ("n_features", "max_clusters")

    def __init__(
        self,
        model: UserFunction,
        n_features: int,
        robust: float = 0.0,
        corrected: float = 0.0,
        max_lags: float = 0.0,
        max_clusters: int = 0,
    ) -> None:
        self.model = model
        self.n_features = n_features
        self.robust = robust
        self.corrected = corrected
        self.max_lags = max_lags
        self.max_clusters = max_clusters

    def hyperparameters(self) -> dict[str, Any]:
        """Return those of the model and its own."""
        own = {"robust": self.robust, "corrected": self.corrected, "max_lags": self.max_lags}
        return {**self.model.hyperparameters(), **{f"errors__{name}": value for name, value in own.items()}}

    def static_key(self) -> Hashable:
        """Return what identifies the computation."""
        return type(self), self.model.static_key(), self.n_features, self.max_clusters

    def static_copy(self) -> UserErrors:
        """Return a copy that later changes of this object do not reach."""
        static = copy.copy(self)
        static.model = self.model.static_copy()
        return static

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Return the errors of one window, as a vector."""
        del start
        k = self.n_features
        features, others = X[:, :k], X[:, k:]
        cluster = None
        if self.max_clusters:
            cluster, others = others[:, 0].astype(jnp.int32), others[:, 1:]
        unknowns = self.model.unknowns(k)
        # Rows that stand for those outside of the window repeat one of it: the newest has the largest number.
        point = others[jnp.argmax(others[:, 0]), 1:]
        inside = weight > 0
        scores, hessian, squares = self.model.information(unknowns, point, features, y, weight, hyper)
        fixed = held(point, jnp.sum(scores, axis=0), unknowns.lower, unknowns.upper)
        scores = jnp.where(fixed, 0, scores)
        n = jnp.sum(inside, dtype=X.dtype)
        degrees = n - jnp.sum(~fixed, dtype=X.dtype)
        inverse = inverse_definite(free_hessian(hessian, fixed))
        if cluster is None:
            meat = score_products(scores, n, hyper["errors__max_lags"])
        else:
            meat = cluster_products(scores, inside, cluster, self.max_clusters)
        robust = inverse @ meat @ inverse * jnp.where(hyper["errors__corrected"] > 0, n / degrees, 1)
        nonrobust = inverse if squares is None else inverse * squares / degrees
        errors = jnp.sqrt(jnp.diagonal(jnp.where(hyper["errors__robust"] > 0, robust, nonrobust)))
        return jnp.where((degrees > 0) & ~fixed, errors, jnp.nan), FitInfo(converged=jnp.ones((), bool))

    def predict(self, params: Any, X: Any) -> Any:
        """Errors predict nothing."""
        raise NotImplementedError
