"""Objectives of a linear predictor: rows in blocks, features standardised within the window.

The rows of a window go through in blocks that stay in the caches, up to the last block that has a row in the window.
Gradient and Hessian are matrix products with the features and with their pairwise products, which all steps and all
hyperparameters of a window share.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels.linalg import row_of
from skjaxwin.kernels.moments import triangle
from skjaxwin.kernels.newton import Local

__all__ = ["Design", "objective", "standardised"]

_BLOCK = 512


class Design(NamedTuple):
    """One window's rows.

    Attributes
    ----------
    columns : array of shape (n_blocks, p, block)
        The constant, if there is one, and the features less `centre`, over `scale`.
    products : array of shape (n_blocks, p (p + 1) / 2, block)
        Products of each two of them.
    target : array of shape (n_blocks, m, block)
    weight : array of shape (n_blocks, block)
    n_blocks : int scalar
        Blocks up to the last one with a weight.
    total : scalar
        Sum of the weights.
    centre, scale : array of shape (k,)
    varies : array of bool of shape (k,)
        Whether a feature is no constant in the window.
    """

    columns: Any
    products: Any
    target: Any
    weight: Any
    n_blocks: Any
    total: Any
    centre: Any
    scale: Any
    varies: Any


def standardised(X: Any, y: Any, weight: Any, fit_intercept: bool) -> Design:
    """Centre (if a constant takes that up) and scale a window's features, and cut its rows into blocks.

    Parameters
    ----------
    X : array of shape (n, k)
    y : array of shape (n,) or (n, m)
    weight : array of shape (n,)
    fit_intercept : bool
    """
    n = X.shape[0]
    columns = X.T
    total = jnp.sum(weight)
    share = weight / total
    centre = jnp.zeros(columns.shape[0], X.dtype)
    if fit_intercept:
        # Measured from a row of the window first: an offset of 1e8 then costs no digits.
        first = columns[:, jnp.argmax(weight > 0)]
        centre = first + (columns - first[:, None]) @ share
        centre = centre + (columns - centre[:, None]) @ share
    columns = columns - centre[:, None]
    # Sizes first, so that no square leaves the range.
    largest = jnp.max(jnp.where(weight > 0, jnp.abs(columns), 0), axis=1)
    largest = jnp.where(largest > 0, largest, 1)
    columns = columns / largest[:, None]
    spread = jnp.sqrt((columns * columns) @ share)
    # What centring leaves of a constant column is rounding, not information.
    varies = spread * largest > 8 * jnp.finfo(X.dtype).eps * jnp.abs(centre)
    columns = jnp.where(varies, 1 / jnp.where(varies, spread, 1), 0)[:, None] * columns
    scale = jnp.where(varies, spread * largest, 1)
    if fit_intercept:
        columns = jnp.concatenate([jnp.ones((1, n), X.dtype), columns])
    size = min(_BLOCK, n)
    n_blocks = -(-n // size)
    blocks = _blocks(columns, n_blocks, size)
    rows, others = np.triu_indices(columns.shape[0])
    weights = _blocks(weight[None], n_blocks, size)[:, 0]
    used = jnp.any(weights > 0, axis=1) * np.arange(1, n_blocks + 1, dtype=np.int32)
    return Design(
        blocks,
        blocks[:, rows] * blocks[:, others],
        _blocks(y[None] if y.ndim == 1 else y.T, n_blocks, size),
        weights,
        jnp.max(used).astype(jnp.int32),
        total,
        centre,
        scale,
        varies,
    )


def _blocks(rows_last: Any, n_blocks: int, size: int) -> Any:
    missing = n_blocks * size - rows_last.shape[1]
    if missing:
        rows_last = jnp.pad(rows_last, ((0, 0), (0, missing)))
    return jnp.swapaxes(rows_last.reshape(rows_last.shape[0], n_blocks, size), 0, 1)


def objective(design: Design, loss: Callable[[Any, Any], tuple[Any, Any, Any]], n_predictors: int = 1) -> Any:
    """Return the sum over the rows of a loss of q linear predictors, as `newton` needs it.

    Parameters
    ----------
    design : Design
    loss : callable
        ``loss(eta, y)`` of arrays (q, rows) and (m, rows) to a value (rows,), first derivatives (q, rows) and second
        ones (q (q + 1) / 2, rows), the upper triangle row by row.
    n_predictors : int
        q.

    Returns
    -------
    evaluate : callable
        From a point of shape (q p,), predictor after predictor, to `Local`.
    """
    p, q = design.columns.shape[1], n_predictors
    inner, outer = triangle(p), triangle(q)

    def evaluate(point: Any) -> Local:
        coef = point.reshape(q, p)

        def add(i: Any, sums: Any) -> Any:
            columns, weight = row_of(design.columns, i), row_of(design.weight, i)
            value, first, second = loss(coef @ columns, row_of(design.target, i))
            there = weight > 0
            value = jnp.sum(jnp.where(there, weight * value, 0))
            first, second = (jnp.where(there, weight * part, 0) for part in (first, second))
            own = value, first @ columns.T, second @ row_of(design.products, i).T
            return jax.tree_util.tree_map(jnp.add, sums, own)

        dtype = point.dtype
        packed = jnp.zeros((outer.max() + 1, inner.max() + 1), dtype)
        nothing = jnp.zeros((), dtype), jnp.zeros((q, p), dtype), packed
        value, gradient, packed = lax.fori_loop(jnp.int32(0), design.n_blocks, add, nothing)
        hessian = packed[outer][:, :, inner]  # (q, q, p, p)
        return Local(value, gradient.reshape(q * p), jnp.swapaxes(hessian, 1, 2).reshape(q * p, q * p))

    return evaluate
