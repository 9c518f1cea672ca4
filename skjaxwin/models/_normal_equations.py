"""Least squares from merged cross products, for many windows at a time."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from skjaxwin.kernels.linalg import inverse_factor
from skjaxwin.kernels.moments import Products, triangle
from skjaxwin.models._base import FitInfo

__all__ = ["solve_products"]


def solve_products(statistics: Products, alpha: Any, fit_intercept: bool) -> tuple[Any, FitInfo, Any]:
    """Solve the centred normal equations in correlation form.

    Parameters
    ----------
    statistics : Products
        Of k features and then m targets, many windows along the last axis.
    alpha : scalar
        Penalty on the slopes.
    fit_intercept : bool
        Whether to centre.

    Returns
    -------
    params : dict
        ``coef`` and ``intercept``, with a leading axis of targets only if there are several.
    info : FitInfo
        With the root of the largest variance inflation factor; infinite where cross products
        cannot tell what it is.
    parts : dict
        Roots of the residual and total sums of squares, ``rss`` and ``tss`` of shape (m, n), and of
        the diagonal of the inverse cross products, ``slopes`` (k, n); ``constant`` (n,) is that of
        the intercept, and no root.
    """
    weight, mean, products = statistics.weight, statistics.origin + statistics.mean, statistics.products
    limits = jnp.finfo(mean.dtype)
    c = mean.shape[0]
    square = products[triangle(c)]
    raw = weight * mean * mean
    if not fit_intercept:
        square = square + weight * mean[:, None] * mean[None]
    k = c - statistics.n_targets
    diagonal = jnp.stack([square[j, j] for j in range(c)])
    penalised = diagonal[:k] + alpha
    scale = jnp.where(penalised > 0, 1 / jnp.sqrt(penalised), 0)
    correlation = square[:k, :k] * (scale[:, None] * scale[None])
    eye = jnp.eye(k, dtype=mean.dtype)[:, :, None]
    # The penalty stands on the diagonal alone; a column without variation makes it zero.
    correlation = jnp.where(eye > 0, jnp.where(penalised > 0, 1, 0)[:, None], correlation)
    factor = inverse_factor(correlation)
    slopes = jnp.sqrt(jnp.sum(factor * factor, axis=0))
    condition = jnp.maximum(jnp.max(slopes, axis=0), 1)
    factor = factor * scale[None]
    half = jnp.sum(factor[:, :, None] * square[:k, k:][None], axis=1)  # (k, m, n)
    coef = jnp.sum(factor[:, :, None] * half[:, None], axis=0)  # (k, m, n)
    intercept = jnp.zeros_like(mean[k:])
    constant = jnp.zeros_like(weight)
    if fit_intercept:
        intercept = mean[k:] - jnp.sum(coef * mean[:k, None], axis=0)
        lever = jnp.sum(factor * mean[:k][None], axis=1)
        constant = 1 / weight + jnp.sum(lever * lever, axis=0)
    # Squares near the ends of the range, and columns that centring leaves only rounding of,
    # have lost digits that the rows still hold.
    inside = (diagonal == 0) | ((diagonal > limits.tiny / limits.eps**2) & (diagonal < limits.max * limits.eps**2))
    varies = (diagonal[:k] > (1024 * limits.eps) ** 2 * raw[:k]) | (alpha > 0)
    trusted = jnp.all(inside, axis=0) & jnp.all(varies, axis=0) & jnp.isfinite(condition)
    condition = jnp.where(trusted, condition, jnp.inf)
    rss = jnp.sqrt(jnp.maximum(diagonal[k:] - jnp.sum(half * half, axis=0), 0))
    parts = {"rss": rss, "tss": jnp.sqrt(diagonal[k:]), "slopes": slopes * scale, "constant": constant}
    if statistics.n_targets == 1:
        coef, intercept = coef[:, 0], intercept[0]
    else:
        coef = jnp.moveaxis(coef, 1, 0)
    return {"coef": coef, "intercept": intercept}, FitInfo(condition=condition), parts
