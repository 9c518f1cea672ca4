"""The entropy of a mixture as a mean of its log density over points: quasi-Monte Carlo or quadrature."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from scipy.special import ndtri
from scipy.stats import qmc

from skjaxwin.kernels.gaussians import Components, differences_from, log_mixture, squared_distances
from skjaxwin.kernels.table_cache import cached_by_bytes

__all__ = ["N_REPLICATES", "doubt_shares", "quadrature_points", "sobol_points"]

N_REPLICATES = 16
_CHUNK = 512
_NODES = {1: 256, 2: 64, 3: 24}
# Of weights, in the logarithm whose mean is known: its derivative at zero is finite, and no less right.
_SMALL_WEIGHT = 1e-6
_LARGEST_EXPONENT = 300.0


@cached_by_bytes
def sobol_points(n_features: int, n_samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return standard normal points in chunks, and their weights, from replicates of a scrambled Sobol sequence.

    Returns
    -------
    points : ndarray of shape (n_chunks, n_features, size)
    weights : ndarray of shape (n_chunks, size)
        Adding up to one in each of the `N_REPLICATES` equal groups of chunks.
    """
    if n_features > qmc.Sobol.MAXDIM:
        raise ValueError(
            f"method='sobol' has points for at most {qmc.Sobol.MAXDIM} features, got {n_features}; use "
            "method='legendre_offdiagonal', or the bounds alone."
        )
    log_size = max(int(np.ceil(np.log2(max(n_samples / N_REPLICATES, 1)))), 3)
    seeds = np.random.SeedSequence(seed).spawn(N_REPLICATES)
    uniform = np.stack([qmc.Sobol(n_features, rng=np.random.default_rng(s)).random_base2(log_size) for s in seeds])
    # A scrambled point can be zero exactly, and the normal quantile of that is infinite.
    normal = ndtri(uniform * (1 - 2.0**-31) + 2.0**-32)
    size = min(_CHUNK, normal.shape[1])
    chunks = normal.reshape(-1, size, n_features).swapaxes(1, 2)
    return np.ascontiguousarray(chunks), np.full((len(chunks), size), 1 / normal.shape[1])


@functools.cache
def quadrature_points(n_features: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a Gauss-Hermite product rule, in the same layout, as one replicate."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES[n_features])
    weights = weights / weights.sum()
    grid = np.stack(np.meshgrid(*[nodes] * n_features, indexing="ij"), axis=-1).reshape(-1, n_features)
    product = functools.reduce(np.multiply.outer, [weights] * n_features).ravel()
    size = min(_CHUNK, len(grid))
    padding = -len(grid) % size
    grid = np.concatenate([grid, np.zeros((padding, n_features))])
    product = np.concatenate([product, np.zeros(padding)])
    return np.ascontiguousarray(grid.reshape(-1, size, n_features).swapaxes(1, 2)), product.reshape(-1, size)


def doubt_shares(kind: str, g: Components, points: Any, point_weights: Any) -> tuple[Any, jax.Array]:
    """Return what the entropy is without overlap, and each chunk's share of what overlap takes from it.

    The entropy of a point and of its component is ``sum_i w_i (h_i - log w_i)``, with h_i a component's own
    entropy. The mixture's is less by the mean doubt of the component that a point is from: ``-sum_i r_i log r_i``
    with ``r_i = w_i N_i / p``. That lies between 0 and the logarithm of the number of components, so that what no
    point has met is not worth more than its probability; ``log p`` has no such limits where one component is narrow.

    Parameters
    ----------
    kind : {"full", "diag", "spherical"}
    g : Components
    points : array of shape (n_chunks, n_features, size)
        Standard normal.
    point_weights : array of shape (n_chunks, size)

    Returns
    -------
    apart : scalar
        The entropy without overlap.
    shares : array of shape (n_chunks,)
    """
    # A root times its transpose is the covariance.
    roots = jnp.einsum("mef,mgf->meg", g.covariances, g.factors) if kind == "full" else jnp.sqrt(g.covariances)
    log_weights = jnp.log(jnp.maximum(g.weights, _SMALL_WEIGHT))

    def share(chunk: tuple[Any, Any]) -> Any:
        normal, weight = chunk
        own = jnp.sum(normal * normal, axis=0) / 2

        def from_component(one: tuple[Any, ...]) -> Any:
            mean, root, log_peak = one
            away = root @ normal if kind == "full" else (root[:, None] if kind == "diag" else root) * normal
            squares = squared_distances(kind, g.factors, away[None] + differences_from(g, mean)[:, :, None])
            # Relative to the component's own: what is alike does not round.
            exponents = (g.log_peaks - log_peak)[:, None] - squares / 2 + own
            log_density = log_mixture(g.weights, exponents)
            parts = g.weights[:, None] * jnp.exp(jnp.minimum(exponents - log_density, _LARGEST_EXPONENT))
            doubt = log_density - jnp.sum(parts * (exponents + log_weights[:, None]), axis=0)
            return doubt @ weight

        return g.weights @ lax.map(jax.checkpoint(from_component), (g.means, roots, g.log_peaks))

    apart = g.weights @ (g.means.shape[1] / 2 - g.log_peaks - log_weights)
    return apart, lax.map(share, (points, point_weights))
