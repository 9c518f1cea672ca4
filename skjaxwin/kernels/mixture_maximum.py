"""The largest density of a mixture, for values that nothing is known of."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from skjaxwin.kernels.gaussians import (
    Components,
    differences_from,
    log_mixture,
    precision_factor,
    squared_distances,
)

__all__ = ["log_largest_density"]

_MEAN_SHIFTS = 30


def log_largest_density(kind: str, g: Components) -> jax.Array:
    """Return the logarithm of the largest density that mean shifts from the components' means find.

    In standard coordinates, and without derivatives.
    """
    g = lax.stop_gradient(g)

    def climb(mean: Any) -> Any:
        start = differences_from(g, mean)

        def shift(_: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
            offset, best = state
            away = start + offset
            exponents = g.log_peaks - squared_distances(kind, g.factors, away[:, :, None])[:, 0] / 2
            log_density = log_mixture(g.weights, exponents)
            shares = g.weights * jnp.exp(exponents - log_density)
            return offset - _shift(kind, g, shares, away), jnp.maximum(best, log_density)

        nowhere = jnp.asarray(-jnp.inf, g.means.dtype)
        return lax.fori_loop(0, _MEAN_SHIFTS, shift, (jnp.zeros_like(mean), nowhere))[1]

    return jnp.max(lax.map(climb, g.means))


def _shift(kind: str, g: Components, shares: Any, away: Any) -> Any:
    """Return the mean of what is away from each component, by precisions times shares."""
    if kind == "full":
        white = jnp.einsum("mef,mf->me", g.factors, away)
        slope = jnp.einsum("mef,me->f", g.factors, shares[:, None] * white)
        total = jnp.einsum("m,mef,meg->fg", shares, g.factors, g.factors)
        factor = precision_factor(total[None])[0]
        return factor.T @ (factor @ slope)
    precisions = shares[:, None] / (g.covariances if kind == "diag" else g.covariances[:, None])
    return jnp.sum(precisions * away, axis=0) / jnp.sum(precisions, axis=0)
