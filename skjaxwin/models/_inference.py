"""Standard errors of least squares: from the rows of a window, or from what statistics left."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels.linalg import gram_schmidt, inverse_factor, minimum_norm
from skjaxwin.models._base import FitInfo, WindowModel
from skjaxwin.models.linear import Linear

__all__ = [
    "LinearErrors",
    "cluster_products",
    "errors_from_parts",
    "inverse_definite",
    "score_products",
    "split_clusters",
]

# Rows of a factor that are written out; more are too much to compile.
_WRITTEN_OUT = 3


class LinearErrors(WindowModel):
    r"""Standard errors and R² of `Linear` in one window, from its rows.

    With :math:`Z` the design, :math:`W` the weights, :math:`e` the residuals and
    :math:`P = (Z' W Z)^{-1}`, the covariance of the coefficients is

    * nonrobust: :math:`P \, e' W e / (n - p)`;
    * HC0: :math:`P (\sum_t s_t s_t') P` with the scores :math:`s_t = w_t e_t z_t` (White, 1980);
    * HAC: with the sum of lagged products of scores, weighted :math:`1 - l / (L + 1)`, added
      (Newey and West, 1987). HC0 is HAC without lags, and HC1 is HC0 times :math:`n / (n - p)`;
    * cluster: with the scores of a cluster added up before they are multiplied, times
      :math:`G / (G - 1) \cdot (n - 1) / (n - p)` for G clusters in the window (Liang and Zeger, 1986).

    n counts the rows, whatever their weights, and p the coefficients, as in statsmodels.

    Parameters
    ----------
    robust : float
        0 for nonrobust, else 1. Traced, as is `max_lags`: all kinds share a kernel.
    fit_intercept : bool
    max_lags : float
        The L above; negative for :math:`\lfloor 4 (n / 100)^{2/9} \rfloor`.
    max_clusters : int
        If positive, the last column of X holds the number of each row's cluster, below this.
    """

    checked = True
    structural = ("max_clusters",)

    def __init__(
        self, robust: float = 0.0, fit_intercept: bool = True, max_lags: float = 0.0, max_clusters: int = 0
    ) -> None:
        self.robust = robust
        self.fit_intercept = fit_intercept
        self.max_lags = max_lags
        self.max_clusters = max_clusters

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Fit one window; see `WindowModel.fit`. The parameters are coef, intercept (errors) and r2."""
        dtype = X.dtype
        zero = jnp.zeros((), dtype)
        X, cluster = split_clusters(X, self.max_clusters)
        # Sizes are divided out first, so that no square leaves the range.
        inside = weight > 0
        X, size = _unit_size(X, inside)
        y, level_size = _unit_size(y, inside)
        params, info = Linear(fit_intercept=self.fit_intercept).fit(X, y, weight, {"alpha": zero}, start)
        targets = y[:, None] if y.ndim == 1 else y
        coef = params["coef"][None] if y.ndim == 1 else params["coef"]
        intercept = params["intercept"][None] if y.ndim == 1 else params["intercept"]
        n = jnp.sum(inside, dtype=dtype)
        residuals = jnp.where(inside[:, None], targets - X @ coef.T - intercept, 0)

        share = weight / jnp.sum(weight)
        centre, level = jnp.zeros(X.shape[1], dtype), jnp.zeros(targets.shape[1], dtype)
        if self.fit_intercept:
            centre, level = share @ X, share @ targets
            centre, level = centre + share @ (X - centre), level + share @ (targets - level)
        Z = jnp.where(inside[:, None], X - centre, 0)
        P = _inverse_products(Z, weight)
        if self.fit_intercept:
            ones = inside.astype(dtype)[:, None]
            Z = jnp.concatenate([Z, ones], axis=1)
            corner = (1 / jnp.sum(weight)).reshape(1, 1)
            P = jnp.block([[P, jnp.zeros((len(P), 1), dtype)], [jnp.zeros((1, len(P)), dtype), corner]])
        # Rows of `pick` make the caller's coefficients out of those of centred columns.
        k = X.shape[1]
        pick = jnp.eye(k, Z.shape[1], dtype=dtype)
        if self.fit_intercept:
            pick = jnp.concatenate([pick, jnp.concatenate([-centre, jnp.ones(1, dtype)])[None]])
        degrees = n - Z.shape[1]
        bread = pick @ P
        rss = jnp.sum(weight[:, None] * residuals**2, axis=0)

        def variance(residual: Any, square: Any) -> Any:
            scores = Z * (weight * residual)[:, None]
            if cluster is None:
                meat = score_products(scores, n, hyper["max_lags"])
            else:
                meat = cluster_products(scores, inside, cluster, self.max_clusters)
            robust = jnp.sum((bread @ meat) * bread, axis=1)
            return jnp.where(hyper["robust"] > 0, robust, jnp.sum(bread * pick, axis=1) * square / degrees)

        errors = jnp.sqrt(jax.vmap(variance)(residuals.T, rss))
        errors = jnp.where((degrees > 0) & info.determined, errors, jnp.nan)
        total = jnp.sum(weight[:, None] * jnp.where(inside[:, None], targets - level, 0) ** 2, axis=0)
        level_size = jnp.atleast_1d(level_size)
        # What centring leaves of a constant target is rounding: nothing is explained, and nothing is not.
        raw = jnp.sum(weight[:, None] * jnp.where(inside[:, None], targets, 0) ** 2, axis=0)
        varies = total > (8 * jnp.finfo(dtype).eps) ** 2 * raw
        errors = jnp.where(varies[:, None], errors, jnp.nan)
        r2 = jnp.where(varies, 1 - rss / total, jnp.nan)
        found = {"coef": errors[:, :k] / size * level_size[:, None], "r2": r2}
        if self.fit_intercept:
            found["intercept"] = errors[:, k] * level_size
        if y.ndim == 1:
            found = {name: a[0] for name, a in found.items()}
        return found, FitInfo(converged=jnp.ones((), bool))


def _unit_size(values: Any, inside: Any) -> tuple[Any, Any]:
    """Divide columns by their largest entry in the window; return that, too."""
    counts = inside.reshape(-1, *[1] * (values.ndim - 1))
    largest = jnp.max(jnp.where(counts, jnp.abs(values), 0), axis=0)
    size = jnp.where(largest > 0, largest, 1)
    return values / size, size


def score_products(scores: Any, n: Any, max_lags: Any) -> Any:
    """Return the sum of products of the scores, and of lagged ones."""
    rule = jnp.floor(4 * (n / 100) ** (2 / 9))
    lags = jnp.where(max_lags < 0, rule, max_lags).astype(jnp.int32)
    row = jnp.arange(len(scores), dtype=jnp.int32)

    def add(lag: Any, meat: Any) -> Any:
        later = jnp.where((row >= lag)[:, None], jnp.roll(scores, lag, axis=0), 0)
        products = scores.T @ later
        return meat + (1 - lag.astype(meat.dtype) / (lags + 1)) * (products + products.T)

    return lax.fori_loop(jnp.int32(1), jnp.minimum(lags, len(scores) - 1) + 1, add, scores.T @ scores)


def split_clusters(X: Any, max_clusters: int) -> tuple[Any, Any]:
    """Return the features and, if there are any, the numbers of the clusters."""
    return (X[:, :-1], X[:, -1].astype(jnp.int32)) if max_clusters else (X, None)


def cluster_products(scores: Any, inside: Any, cluster: Any, max_clusters: int) -> Any:
    """Return the sum of products of each cluster's sum of scores, corrected for few clusters.

    Parameters
    ----------
    scores : array of shape (n_rows, p)
        Zero for rows that are not in the window.
    inside : array of bool of shape (n_rows,)
    cluster : array of int of shape (n_rows,)
    max_clusters : int
    """
    dtype = scores.dtype
    sums = jax.ops.segment_sum(scores, cluster, max_clusters)
    n_clusters = jnp.sum(jax.ops.segment_sum(inside.astype(dtype), cluster, max_clusters) > 0, dtype=dtype)
    n = jnp.sum(inside, dtype=dtype)
    # A single cluster says nothing of how they spread.
    factor = jnp.where(n_clusters > 1, n_clusters / (n_clusters - 1), jnp.nan) * (n - 1) / (n - scores.shape[1])
    return factor * (sums.T @ sums)


def inverse_definite(products: Any) -> Any:
    """Return the inverse of a positive definite matrix, and NaN for others."""
    size = jnp.sqrt(jnp.diagonal(products))
    factor = inverse_factor((products / (size[:, None] * size[None]))[:, :, None], _WRITTEN_OUT)[:, :, 0]
    return factor.T @ factor / (size[:, None] * size[None])


def _inverse_products(Z: Any, weight: Any) -> Any:
    """Return ``(Z' W Z)^-1`` by way of a triangular factor of Z, not of its cross products."""
    k = Z.shape[1]
    columns = Z.T * jnp.sqrt(weight)
    length = jnp.sqrt(jnp.sum(columns**2, axis=1))
    scale = jnp.where(length > 0, 1 / length, 0)
    R = gram_schmidt(columns * scale[:, None], k, jnp.zeros(k, Z.dtype))
    inverse = minimum_norm(jnp.concatenate([R, jnp.eye(k, dtype=Z.dtype)], axis=1)).T * scale[:, None]
    return inverse @ inverse.T


def errors_from_parts(parts: dict[str, np.ndarray], n_rows: np.ndarray, fit_intercept: bool) -> dict[str, np.ndarray]:
    """Return nonrobust standard errors and R² from merged statistics.

    Parameters
    ----------
    parts : dict of ndarray
        As `models._normal_equations.solve_products` returns them, windows first.
    n_rows : ndarray of shape (n_windows,)
    fit_intercept : bool

    Returns
    -------
    found : dict of ndarray
        ``coef`` (n_windows, m, k), ``intercept`` (n_windows, m) and ``r2`` (n_windows, m).
    """
    degrees = n_rows - parts["slopes"].shape[1] - fit_intercept
    with np.errstate(divide="ignore", invalid="ignore"):
        deviation = parts["rss"] / np.sqrt(np.where(degrees > 0, degrees, np.nan))[:, None]
        deviation = np.where(parts["tss"] > 0, deviation, np.nan)  # of a constant target there is no t-value
        found = {
            "coef": deviation[:, :, None] * parts["slopes"][:, None],
            "r2": 1 - (parts["rss"] / parts["tss"]) ** 2,
        }
        if fit_intercept:
            found["intercept"] = deviation * np.sqrt(parts["constant"])[:, None]
    return found
