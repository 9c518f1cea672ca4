"""Moments of a mixture's density under itself, term by term of its powers.

With r_i = w_i peak_i / a, where a is the sum of all w_i peak_i or another bound on the density, and a
composition j of k + 1, a term of ``m_k = E[(p(X) / a)^k]`` is
``multinomial(j) a prod_i r_i^j_i (2 pi)^(d/2) |L|^(-1/2) exp(-q / 2)``: L is the sum of ``j_i P_i`` over the
precisions, c the product's centre and q the sum of ``j_i (c - mu_i)' P_i (c - mu_i)``, in which nothing cancels.

With another point in place of c the sum is larger by ``|G v|^2``, with ``G' G`` the inverse of L and v the sum of
``j_i P_i (c - mu_i)``. This corrects the rounding of c, which is large where some components are far away.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels.compositions import Chunks
from skjaxwin.kernels.gaussians import LOG_TWO_PI, TINY, Components, differences_from, log_mixture, precision_factor
from skjaxwin.kernels.mixture_maximum import log_largest_density
from skjaxwin.kernels.polynomials import MAX_ORDER

__all__ = ["PowerMoments", "power_moments"]

# Its power of the largest order, and the inverse of that, are numbers.
_SMALL_WEIGHT = 1e-10
_POWERS = np.arange(1, MAX_ORDER + 1, dtype=np.int32)


class PowerMoments(NamedTuple):
    """What all series need.

    Attributes
    ----------
    log_bound : scalar
        Logarithm of a, in standard coordinates.
    apart : scalar
        Entropy of components that do not overlap, an upper bound on the entropy.
    single, mixed : array of shape (MAX_ORDER,)
        The terms of ``m_1, m_2, ...`` with one component and with several; `mixed` ends at
        the table's order.
    magnitude : scalar
        Size of the largest exponent in a term that counts: its rounding is the terms' relative error.
    """

    log_bound: Any
    apart: Any
    single: Any
    mixed: Any
    magnitude: Any


def power_moments(kind: str, g: Components, log_bound: Any, chunks: Chunks, traced: bool) -> PowerMoments:
    """Return the moments of a mixture's density.

    Parameters
    ----------
    kind : {"full", "diag", "spherical"}
    g : Components
    log_bound : scalar or None
        Logarithm of a density bound in the original coordinates; None for the sum of the peaks.
    chunks : Chunks
    traced : bool
        Whether nothing is known of the values, but of the chunks that all have terms.
    """
    n_features = g.means.shape[1]
    if log_bound is None:
        log_a = log_mixture(g.weights, g.log_peaks)
    else:
        log_a = log_bound + g.log_scale
        if traced:  # too small a bound is refused where it is known
            log_a = jnp.where(log_a < log_largest_density(kind, g) - 1e-9, jnp.nan, log_a)
    log_ratios = g.log_peaks - log_a
    # Powers of weights are products and no part of exponents: they round less, and their derivatives at zero are
    # right. Small weights are taken relative to themselves, as what they multiply may be too large for a number.
    tiny = lax.stop_gradient(jnp.where(g.weights > TINY, g.weights, jnp.exp(-jnp.maximum(log_ratios, 0.0))))
    unit = jnp.where(g.weights > _SMALL_WEIGHT, 1.0, tiny)
    shares = g.weights / unit
    log_r = jnp.log(unit) + log_ratios
    terms = _TERMS[kind](g)

    def moments_of(chunk: Chunks) -> tuple[Any, Any]:
        counts = chunk.counts.astype(g.means.dtype)
        log_determinant, square, uncorrected = terms(counts)
        exponents = (log_r @ counts, log_a + n_features / 2 * LOG_TWO_PI - log_determinant / 2)
        term = chunk.multinomial * jnp.exp(sum(exponents) - square / 2)
        term = term * jnp.prod(_powers(shares[:, None], chunk.counts), axis=0)
        power = chunk.power.astype(jnp.int32)[None] == jnp.arange(1, MAX_ORDER + 1, dtype=jnp.int32)[:, None]
        size = sum(jnp.abs(part) for part in exponents) + uncorrected / 2
        # A term far below the others does not count, however large its exponents.
        magnitude = jnp.max(jnp.where(chunk.power > 0, size * jnp.minimum(term, 1.0), 0.0))
        return jnp.sum(jnp.where(power, term, 0.0), axis=1), lax.stop_gradient(magnitude)

    # Derivatives recompute a chunk: memory does not grow with their number.
    moments_of = jax.checkpoint(moments_of)

    def step(state: Any, chunk: Chunks) -> tuple[Any, None]:
        sums, magnitude = state

        def add(_: None) -> Any:
            more, size = moments_of(chunk)
            return sums + more, jnp.maximum(magnitude, size)

        if traced:
            return add(None), None
        return lax.cond(jnp.any(chunk.power > 0), add, lambda _: state, None), None

    dtype = g.means.dtype
    start = jnp.zeros(MAX_ORDER, dtype), jnp.zeros((), dtype)
    mixed, magnitude = lax.scan(step, start, chunks)[0] if len(g.means) > 1 else start
    decay = jnp.asarray((_POWERS + 1.0) ** (-n_features / 2), dtype)
    powers = _powers(shares, _POWERS[:, None]) * jnp.exp(_POWERS[:, None] * log_r)
    apart = g.weights @ (n_features / 2 - g.log_peaks - jnp.log(g.weights + TINY))
    return PowerMoments(log_a, apart, decay * (powers @ g.weights), mixed, magnitude)


def _powers(base: Any, exponents: Any) -> jax.Array:
    """Return ``base_i^exponents_i`` for integers, by their binary digits: all derivatives are right at zero, too."""
    powers = jnp.ones(jnp.broadcast_shapes(base.shape, exponents.shape), base.dtype)
    for digit in range((MAX_ORDER + 1).bit_length()):
        powers = powers * jnp.where((exponents >> digit) & 1 == 1, base, 1.0)
        base = base * base
    return powers


def _coarse_centre(g: Components, weighted: Any) -> tuple[Any, Any]:
    """Return a point among the means, and each mean's offset from it times its precision."""
    centre = lax.stop_gradient(g.weights @ g.means)
    return centre[:, None], lax.stop_gradient(weighted(g.means - centre))


def _full_terms(g: Components) -> Any:
    n_components, n_features = g.means.shape
    precisions = jnp.einsum("mef,meg->mfg", g.factors, g.factors)
    centre, shifts = _coarse_centre(g, lambda offsets: jnp.einsum("mfg,mg->mf", precisions, offsets))
    flat = precisions.reshape(n_components, -1).T
    stacked = g.factors.reshape(-1, n_features).T

    def terms(counts: Any) -> tuple[Any, Any, Any]:
        total = jnp.moveaxis((flat @ counts).reshape(n_features, n_features, -1), -1, 0)
        factor = jnp.moveaxis(precision_factor(total), 0, -1)
        white = jnp.sum(factor * (shifts.T @ counts)[None], axis=1)
        point = lax.stop_gradient(centre + jnp.sum(factor * white[:, None], axis=0))
        diagonal = jnp.moveaxis(jnp.diagonal(factor, axis1=0, axis2=1), -1, 0)
        white = jnp.einsum("mef,mfn->men", g.factors, point[None] - g.means[:, :, None])
        weighted = counts[:, None] * white
        slope = stacked @ weighted.reshape(n_components * n_features, -1)
        uncorrected = jnp.sum(weighted * white, axis=(0, 1))
        correction = jnp.sum(jnp.sum(factor * slope[None], axis=1) ** 2, axis=0)
        return -2 * jnp.sum(jnp.log(diagonal), axis=0), uncorrected - correction, uncorrected

    return terms


def _diagonal_terms(g: Components) -> Any:
    precisions = 1 / g.covariances
    centre, shifts = _coarse_centre(g, lambda offsets: precisions * offsets)

    def terms(counts: Any) -> tuple[Any, Any, Any]:
        total = precisions.T @ counts
        point = lax.stop_gradient(centre + (shifts.T @ counts) / total)
        away = point[None] - g.means[:, :, None]
        weighted = counts[:, None] * precisions[:, :, None] * away
        uncorrected = jnp.sum(weighted * away, axis=(0, 1))
        correction = jnp.sum(jnp.sum(weighted, axis=0) ** 2 / total, axis=0)
        return jnp.sum(jnp.log(total), axis=0), uncorrected - correction, uncorrected

    return terms


def _spherical_terms(g: Components) -> Any:
    """Use ``sum_i a_i |c - mu_i|^2 = sum_ij a_i a_j |mu_i - mu_j|^2 / (2 sum_i a_i)``: no centre is needed."""
    n_features = g.means.shape[1]
    distances = lax.map(jax.checkpoint(lambda mean: jnp.sum(differences_from(g, mean) ** 2, axis=1)), g.means)

    def terms(counts: Any) -> tuple[Any, Any, Any]:
        shares = counts / g.covariances[:, None]
        total = jnp.sum(shares, axis=0)
        square = jnp.sum(shares * (distances @ shares), axis=0) / (2 * total)
        return n_features * jnp.log(total), square, square

    return terms


_TERMS = {"full": _full_terms, "diag": _diagonal_terms, "spherical": _spherical_terms}
