"""Components of a Gaussian mixture in coordinates in which nothing is large.

Entropy moves by ``log |det A|`` under ``x -> A x + b``, and so does each approximation of it. Mixtures are
therefore scaled first, and a tied covariance is made the unit matrix. Means enter by their differences only.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels.linalg import inverse_factor

__all__ = [
    "LOG_TWO_PI",
    "TINY",
    "Components",
    "differences_from",
    "log_mixture",
    "precision_factor",
    "squared_distances",
    "standardise",
    "variance_inflation",
]

LOG_TWO_PI = math.log(2 * math.pi)
# Added to weights before their logarithm: far below rounding, but keeps two derivatives at zero finite.
TINY = 1e-120
_WRITTEN_OUT = 8
# Of exponents relative to the largest that counts: the square of its exponential is finite, too.
_LARGEST_EXPONENT = 300.0


class Components(NamedTuple):
    """A mixture in standard coordinates; `kind` is "full", "diag" or "spherical".

    Attributes
    ----------
    weights : array of shape (n_components,)
    means : array of shape (n_components, n_features)
        As given, but for a power of two, and not centred: near components lose nothing where others are far away.
    frame : array of shape (n_features, n_features) or None
        What differences of means are to be multiplied by; see `differences_from`.
    covariances : array of shape (n_components, ...)
    factors : array of shape (n_components, ...)
        F with ``F' F`` the inverse of a covariance; inverse standard deviations if not full.
    log_peaks : array of shape (n_components,)
        Logarithm of each component's density at its mean.
    log_scale : scalar
        To be added to the entropy.
    inflation : scalar
        Largest variance inflation factor, by which rounding grows where features are nearly dependent.
    """

    weights: Any
    means: Any
    frame: Any
    covariances: Any
    factors: Any
    log_peaks: Any
    log_scale: Any
    inflation: Any


def standardise(weights: Any, means: Any, covariances: Any, covariance_type: str) -> Components:
    """Return the components of a mixture whose weights need not add up to one; if tied, they are spherical."""
    n_features = means.shape[1]
    weights = weights / jnp.sum(weights)
    if covariance_type in ("full", "tied"):
        # Factorisations read one triangle; derivatives belong to both.
        covariances = (covariances + jnp.swapaxes(covariances, -1, -2)) / 2
    kind, inflation, frame = covariance_type, jnp.ones((), means.dtype), None
    if kind == "tied":
        frame = precision_factor(covariances[None])[0]
        inflation = variance_inflation(frame[None], covariances[None])
        log_scale = -jnp.sum(jnp.log(jnp.diagonal(frame)))
        kind, covariances = "spherical", jnp.ones(means.shape[0], means.dtype)
    else:
        means, covariances, log_scale = _scale(weights, means, covariances, kind)

    if kind == "full":
        factors = precision_factor(covariances)
        log_determinant = 2 * jnp.sum(jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)), axis=1)
        inflation = variance_inflation(factors, covariances)
    else:
        factors = lax.rsqrt(covariances)
        log_determinant = -(
            jnp.sum(jnp.log(covariances), axis=1) if kind == "diag" else jnp.log(covariances) * n_features
        )
    log_peaks = (log_determinant - n_features * LOG_TWO_PI) / 2
    return Components(weights, means, frame, covariances, factors, log_peaks, log_scale, inflation)


def differences_from(g: Components, point: Any) -> jax.Array:
    """Return ``point - mean`` for each component, in standard coordinates, of shape (n_components, n_features)."""
    away = point - g.means
    return away if g.frame is None else away @ g.frame.T


def log_mixture(weights: Any, exponents: Any) -> jax.Array:
    """Return ``log sum_i w_i exp(e_i)`` over the leading axis; all derivatives are right at weights of zero, too."""
    weights = weights.reshape(weights.shape + (1,) * (exponents.ndim - 1))
    shift = lax.stop_gradient(jnp.max(jnp.where(weights > 0, exponents, -jnp.inf), axis=0))
    return shift + jnp.log(jnp.sum(weights * jnp.exp(jnp.minimum(exponents - shift, _LARGEST_EXPONENT)), axis=0))


def variance_inflation(factors: Any, covariances: Any) -> Any:
    """Return the largest diagonal entry of the inverse of a correlation matrix."""
    inverse = jnp.sum(factors * factors, axis=1)
    return lax.stop_gradient(jnp.max(inverse * jnp.diagonal(covariances, axis1=1, axis2=2)))


def _scale(weights: Any, means: Any, covariances: Any, kind: str) -> tuple[Any, Any, Any]:
    """Divide features by a power of two near their standard deviation within components, which rounds nothing."""
    if kind == "spherical":
        variance = weights @ covariances
    else:
        variance = weights @ (covariances if kind == "diag" else jnp.diagonal(covariances, axis1=1, axis2=2))
    # A constant: the result does not depend on it.
    exponent = jnp.round(jnp.log2(lax.stop_gradient(variance)) / 2)
    scale = _power_of_two(exponent)
    square = scale[:, None] * scale if kind == "full" else scale**2
    log_scale = jnp.log(jnp.asarray(2.0, means.dtype)) * exponent
    log_scale = log_scale * means.shape[1] if kind == "spherical" else jnp.sum(log_scale)
    return means / scale, covariances / square, log_scale


def _power_of_two(exponent: Any) -> jax.Array:
    """Return ``2^exponent`` for integers, exactly: by binary digits, as `exp2` is not exact."""
    digits = jnp.abs(exponent).astype(jnp.int32)
    power = jnp.ones_like(exponent)
    for digit in range(10):
        power = power * jnp.where((digits >> digit) & 1 == 1, 2.0 ** (2**digit), 1.0)
    return jnp.where(exponent < 0, 1 / power, power)


@jax.custom_jvp
def precision_factor(covariances: Any) -> Any:
    """Return lower triangular F with ``F' F`` the inverse, of shape (n, d, d); NaN if not positive definite."""
    root = jnp.sqrt(jnp.diagonal(covariances, axis1=1, axis2=2))
    unit = covariances / (root[:, :, None] * root[:, None, :])
    # Written out up to so many features only: above, that would double the time to compile.
    factor = inverse_factor(jnp.moveaxis(unit, 0, -1), written_out=_WRITTEN_OUT)
    return jnp.moveaxis(factor, -1, 0) / root[:, None, :]


@precision_factor.defjvp
def _(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """Use ``dF = -phi(F dS F') F``, where phi keeps the lower triangle and half of the diagonal.

    That spares memory and compile time which the derivative of each step of the factorisation would take.
    """
    factor = precision_factor(*primals)
    change = jnp.einsum("nij,njk,nlk->nil", factor, tangents[0], factor)
    d = change.shape[-1]
    share = jnp.asarray(np.tri(d) - np.eye(d) / 2, change.dtype)
    return factor, -jnp.einsum("nij,njk->nik", change * share, factor)


def squared_distances(kind: str, factors: Any, differences: Any) -> jax.Array:
    """Return ``|F (x - mean)|^2`` for each component.

    Parameters
    ----------
    kind : str
    factors : array of shape (n_components, ...)
    differences : array of shape (n_components, n_features, n)

    Returns
    -------
    squares : array of shape (n_components, n)
    """
    if kind == "full":
        white = jnp.einsum("mef,mfn->men", factors, differences)
    else:
        white = differences * (factors[:, :, None] if kind == "diag" else factors[:, None, None])
    return jnp.sum(white * white, axis=1)
