"""Moments of a mixture's density under itself, term by term of its powers.

With r_i = w_i peak_i / a, where a is the sum of all w_i peak_i or another bound on the density, and a
composition j of k + 1, a term of ``m_k = E[(p(X) / a)^k]`` is
``multinomial(j) a prod_i r_i^j_i (2 pi)^(d/2) |L|^(-1/2) exp(-q / 2)``: L is the sum of ``j_i P_i`` over the
precisions, c the product's centre and q the sum of ``j_i (c - mu_i)' P_i (c - mu_i)``, in which nothing cancels.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels.compositions import Chunks
from skjaxwin.kernels.gaussians import LOG_TWO_PI, Components, precision_factor, squared_distances
from skjaxwin.kernels.polynomials import MAX_ORDER

__all__ = ["PowerMoments", "power_moments"]

_POWERS = np.arange(1.0, MAX_ORDER + 1)


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


def power_moments(kind: str, g: Components, log_bound: Any, chunks: Chunks, skip_empty: bool) -> PowerMoments:
    """Return the moments of a mixture's density.

    Parameters
    ----------
    kind : {"full", "diag", "spherical"}
    g : Components
    log_bound : scalar or None
        Logarithm of a density bound in the original coordinates; None for the sum of the peaks.
    chunks : Chunks
    skip_empty : bool
        Whether chunks without terms may be many.
    """
    n_features = g.means.shape[1]
    log_parts = g.log_weights + g.log_peaks
    log_a = jax.nn.logsumexp(log_parts) if log_bound is None else log_bound + g.log_scale
    log_r = log_parts - log_a
    terms = _TERMS[kind](g)

    def moments_of(chunk: Chunks) -> tuple[Any, Any]:
        counts = chunk.counts.astype(g.means.dtype)
        log_determinant, square = terms(counts)
        exponents = (log_r @ counts, log_a + n_features / 2 * LOG_TWO_PI - log_determinant / 2)
        term = chunk.multinomial * jnp.exp(sum(exponents) - square / 2)
        power = chunk.power.astype(jnp.int32)[None] == jnp.arange(1, MAX_ORDER + 1, dtype=jnp.int32)[:, None]
        size = sum(jnp.abs(part) for part in exponents) + square / 2
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

        if not skip_empty:
            return add(None), None
        return lax.cond(jnp.any(chunk.power > 0), add, lambda _: state, None), None

    dtype = g.means.dtype
    start = jnp.zeros(MAX_ORDER, dtype), jnp.zeros((), dtype)
    mixed, magnitude = lax.scan(step, start, chunks)[0] if len(g.means) > 1 else start
    decay = jnp.asarray((_POWERS + 1) ** (-n_features / 2), dtype)
    single = decay * (jnp.exp(_POWERS.astype(dtype)[:, None] * log_r) @ g.weights)
    apart = g.weights @ (n_features / 2 - g.log_peaks - g.log_weights)
    return PowerMoments(log_a, apart, single, mixed, magnitude)


def _full_terms(g: Components) -> Any:
    n_components, n_features = g.means.shape
    precisions = jnp.einsum("mef,meg->mfg", g.factors, g.factors)
    shifts = jnp.einsum("mfg,mg->mf", precisions, g.means)
    flat = precisions.reshape(n_components, -1).T

    def terms(counts: Any) -> tuple[Any, Any]:
        total = jnp.moveaxis((flat @ counts).reshape(n_features, n_features, -1), -1, 0)
        factor = jnp.moveaxis(precision_factor(total), 0, -1)
        white = jnp.sum(factor * (shifts.T @ counts)[None], axis=1)
        centre = jnp.sum(factor * white[:, None], axis=0)
        diagonal = jnp.moveaxis(jnp.diagonal(factor, axis1=0, axis2=1), -1, 0)
        squares = squared_distances("full", g.factors, centre[None] - g.means[:, :, None])
        return -2 * jnp.sum(jnp.log(diagonal), axis=0), jnp.sum(counts * squares, axis=0)

    return terms


def _diagonal_terms(g: Components) -> Any:
    precisions = 1 / g.covariances
    shifts = precisions * g.means

    def terms(counts: Any) -> tuple[Any, Any]:
        total = precisions.T @ counts
        centre = (shifts.T @ counts) / total
        squares = squared_distances("diag", g.factors, centre[None] - g.means[:, :, None])
        return jnp.sum(jnp.log(total), axis=0), jnp.sum(counts * squares, axis=0)

    return terms


def _spherical_terms(g: Components) -> Any:
    """Use ``sum_i a_i |c - mu_i|^2 = sum_ij a_i a_j |mu_i - mu_j|^2 / (2 sum_i a_i)``: no centre is needed."""
    n_features = g.means.shape[1]
    distances = jnp.sum((g.means[:, None] - g.means[None]) ** 2, axis=-1)

    def terms(counts: Any) -> tuple[Any, Any]:
        shares = counts / g.covariances[:, None]
        total = jnp.sum(shares, axis=0)
        square = jnp.sum(shares * (distances @ shares), axis=0) / (2 * total)
        return n_features * jnp.log(total), square

    return terms


_TERMS = {"full": _full_terms, "diag": _diagonal_terms, "spherical": _spherical_terms}
