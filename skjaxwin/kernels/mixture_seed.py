"""First mixtures for rows that nothing is known of yet: deterministic, weighted, and free where they are not wanted.

Every loop here takes no step unless a start is wanted: ``lax.cond`` would compute both sides under ``vmap``.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels.em import Mixture
from skjaxwin.kernels.linalg import row_of

__all__ = ["nested_start", "spread_start"]

_CANDIDATES = 32
_LLOYD_STEPS = 10
_SCALE_STEP = 4.0


def spread_start(
    X: Any, weight: Any, *, n_components: int, covariance_type: str, reg_covar: Any, wanted: Any
) -> Mixture:
    """Return a mixture of equal weights around centres that few steps of k-means have moved.

    Centres are chosen as greedy k-means++ does (Arthur and Vassilvitskii, "k-means++: the advantages of careful
    seeding", SODA 2007), each the candidate that lowers the sum of squared distances most. The candidates are no
    random rows but 32 or more that are spread evenly over the weight, so that the same rows give the same start.

    Parameters
    ----------
    X : array of shape (n_features, n_rows)
        Centred; finite where weights are zero.
    weight : array of shape (n_rows,)
    n_components : int
    covariance_type : {"full", "tied", "diag", "spherical"}
    reg_covar : scalar
    wanted : bool
        If not, the result is of no use.
    """
    n_features, n_candidates = X.shape[0], max(_CANDIDATES, 4 * n_components)
    total = jnp.sum(weight)
    variance = X**2 @ weight / total
    scale = jnp.where(variance > 0, jnp.sqrt(variance), 1)
    Z = X / scale[:, None]

    def distances(centres: Any) -> Any:
        return jnp.sum(Z**2, axis=0) - 2 * centres @ Z + jnp.sum(centres**2, axis=1)[:, None]

    def choose(k: Any, state: Any) -> Any:
        centres, nearest = state
        # A plain loop: jnp.cumsum takes half a second to compile.
        before, reached = lax.scan(lambda sum_, w: (sum_ + w, (sum_, sum_ + w)), jnp.zeros_like(total), weight)[1]
        at = (np.arange(n_candidates) + 0.5)[:, None] / n_candidates * total
        candidates = jnp.where((before < at) & (at <= reached), 1.0, 0.0) @ Z.T
        then = jnp.minimum(nearest, distances(candidates))
        best = lax.argmin(then @ weight, 0, np.int32)
        here = np.arange(n_components)[:, None] == k
        return jnp.where(here, row_of(candidates, best), centres), row_of(then, best)

    def improve(i: Any, state: Any) -> Any:
        del i
        centres, _ = state
        own = jnp.argmin(distances(centres), axis=0) == np.arange(n_components)[:, None]
        owned = jnp.where(own, weight, 0)
        counts = jnp.sum(owned, axis=1)[:, None]
        new = jnp.where(counts > 0, owned @ Z.T / jnp.where(counts > 0, counts, 1), centres)
        away = jnp.where(own[:, None], Z[None] - new[:, :, None], 0)
        return new, jnp.sum(away**2, axis=0) @ weight / total

    def steps(n: int) -> Any:
        return jnp.where(wanted, jnp.int32(n), 0)

    none = jnp.zeros((n_components, n_features), X.dtype)
    far = jnp.full(weight.shape, jnp.inf, X.dtype)
    centres, within = none, jnp.ones(n_features, X.dtype)
    if n_components > 1:  # a single one is found from anywhere
        centres, _ = lax.fori_loop(jnp.int32(0), steps(n_components), choose, (none, far))
        centres, within = lax.fori_loop(jnp.int32(0), steps(_LLOYD_STEPS), improve, (centres, within))
    variances = jnp.broadcast_to(within * scale**2 + reg_covar, (n_components, n_features))
    weights = jnp.full(n_components, 1 / n_components, X.dtype)
    return Mixture(weights, centres * scale, _diagonal(variances, covariance_type))


def nested_start(X: Any, weight: Any, *, n_components: int, covariance_type: str, reg_covar: Any) -> Mixture:
    """Return a mixture of equal weights and means whose variances differ fourfold from one component to the next.

    It finds calm and turbulent regimes around one centre, which clusters of rows do not.

    Parameters
    ----------
    X : array of shape (n_features, n_rows)
        Centred; finite where weights are zero.
    weight : array of shape (n_rows,)
    n_components : int
    covariance_type : {"full", "diag", "spherical"}
    reg_covar : scalar
    """
    factors = _SCALE_STEP ** np.arange(n_components)
    variances = X**2 @ weight / jnp.sum(weight) * (factors / factors.mean())[:, None] + reg_covar
    weights = jnp.full(n_components, 1 / n_components, X.dtype)
    return Mixture(weights, jnp.zeros_like(variances), _diagonal(variances, covariance_type))


def _diagonal(variances: Any, covariance_type: str) -> Any:
    """Lay variances of shape (n_components, n_features) out as covariances of a type."""
    if covariance_type == "spherical":
        return jnp.mean(variances, axis=1)
    if covariance_type == "diag":
        return variances
    matrices = jnp.eye(variances.shape[1], dtype=variances.dtype) * variances[:, None]
    return matrices if covariance_type == "full" else matrices[0]
