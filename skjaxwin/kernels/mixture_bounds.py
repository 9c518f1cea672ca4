"""Closed-form bounds on the entropy of a Gaussian mixture, from pairs of its components."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from skjaxwin.kernels.gaussians import (
    LOG_TWO_PI,
    TINY,
    Components,
    differences_from,
    log_mixture,
    precision_factor,
    squared_distances,
    variance_inflation,
)

__all__ = ["PairBounds", "pair_bounds"]

_MOST_INFLATION = 1e10


class PairBounds(NamedTuple):
    """Bounds in standard coordinates.

    Attributes
    ----------
    bhattacharyya : scalar
        Lower: Kolchinsky and Tracey, "Estimating mixture entropy with pairwise distances", Entropy 19 (2017), 361.
    jensen : scalar
        Lower: Huber et al., "On entropy approximation for Gaussian mixture random variables", MFI 2008.
    apart : scalar
        Upper: Huber et al., components that do not overlap.
    kullback_leibler : scalar
        Upper: Kolchinsky and Tracey.
    gaussian : scalar
        Upper: the Gaussian of the same mean and covariance; infinity where that has no digits.
    gaussian_inflation : scalar
        By how much rounding of `gaussian` grows.
    """

    bhattacharyya: Any
    jensen: Any
    apart: Any
    kullback_leibler: Any
    gaussian: Any
    gaussian_inflation: Any


def pair_bounds(kind: str, g: Components) -> PairBounds:
    """Return the bounds of a mixture in standard coordinates."""
    n_features = g.means.shape[1]
    entropies = n_features / 2 - g.log_peaks
    log_determinants = -2 * g.log_peaks - n_features * LOG_TWO_PI  # of the covariances

    def against_all(one: tuple[Any, ...]) -> tuple[Any, ...]:
        mean, covariance, factor, log_determinant = one
        # Variances are added relative to the larger ones' coordinates by `precision_factor` itself.
        differences = differences_from(g, mean)[:, :, None]
        quadratic = squared_distances(kind, g.factors, differences)[:, 0]
        total = g.covariances + covariance
        if kind == "full":
            factors = precision_factor(total)
            log_total = -2 * jnp.sum(jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)), axis=1)
            # tr(P_j S_i) as a sum of squares of F_j times a root of S_i.
            root = covariance @ factor.T
            trace = jnp.sum(jnp.einsum("mef,fg->meg", g.factors, root) ** 2, axis=(1, 2))
        elif kind == "diag":
            factors = lax.rsqrt(total)
            log_total = jnp.sum(jnp.log(total), axis=1)
            trace = jnp.sum(covariance / g.covariances, axis=1)
        else:
            factors = lax.rsqrt(total)
            log_total = n_features * jnp.log(total)
            trace = n_features * covariance / g.covariances
        joint = squared_distances(kind, factors, differences)[:, 0]
        average = (log_determinants + log_determinant) / 2
        bhattacharyya = joint / 4 + (log_total - n_features * math.log(2) - average) / 2
        divergence = (trace + quadratic - n_features + log_determinants - log_determinant) / 2
        log_density = -(n_features * LOG_TWO_PI + log_total + joint) / 2
        return tuple(log_mixture(g.weights, exponent) for exponent in (-bhattacharyya, log_density, -divergence))

    # One row of pairs at a time: memory grows with the components, not with their square.
    rows = (g.means, g.covariances, g.factors, log_determinants)
    overlap, joint, divergence = lax.map(jax.checkpoint(against_all), rows)
    own = g.weights @ entropies
    return PairBounds(
        own - g.weights @ overlap,
        -(g.weights @ joint),
        own - g.weights @ jnp.log(g.weights + TINY),
        own - g.weights @ divergence,
        *_gaussian_entropy(kind, g),
    )


def _gaussian_entropy(kind: str, g: Components) -> tuple[jax.Array, jax.Array]:
    """Return the bound and its inflation of rounding errors."""
    n_components, n_features = g.means.shape
    within = jnp.tensordot(g.weights, g.covariances, 1)
    centre = g.weights @ g.means
    centre = centre + g.weights @ (g.means - centre)
    away = differences_from(g, centre)
    log_scale = jnp.zeros((), away.dtype)
    if kind != "full" and n_components < n_features:
        # Sylvester's identity: the smaller of two determinants.
        within = jnp.broadcast_to(within, (n_features,))
        log_scale = jnp.sum(jnp.log(within)) / 2
        away = jnp.sqrt(g.weights + TINY)[:, None] * away / jnp.sqrt(within)
        covariance = jnp.eye(n_components, dtype=away.dtype) + away @ away.T
    else:
        covariance = within if kind == "full" else jnp.diag(jnp.broadcast_to(within, (n_features,)))
        covariance = covariance + (g.weights[:, None] * away).T @ away
    # Far components make it as good as singular; derivatives must not see that.
    covariance = covariance[None]
    known = lax.stop_gradient(covariance)
    inflation = variance_inflation(precision_factor(known), known)
    useful = inflation < _MOST_INFLATION
    covariance = jnp.where(useful, covariance, jnp.eye(covariance.shape[-1], dtype=away.dtype))
    log_determinant = -2 * jnp.sum(jnp.log(jnp.diagonal(precision_factor(covariance)[0])))
    bound = n_features / 2 * (1 + LOG_TWO_PI) + log_scale + log_determinant / 2
    return jnp.where(useful, bound, jnp.inf), jnp.where(useful, inflation, 1.0)
