"""Statistics that merge: weighted means, cross products and higher powers of deviations.

Two sets of rows are merged by the formulas of Chan, Golub and LeVeque ("Updating formulae
and a pairwise algorithm for computing sample variances", 1979) and Pebay ("Formulas for
robust, one-pass parallel computation of covariances and arbitrary-order statistical
moments", 2008): nothing is ever subtracted again, so a window's statistics owe nothing to
rows outside it. Means are kept as an origin, which is a row of the set itself, and the
small rest: an offset of 1e8 costs no digits.

All arrays carry any axes after the first one; a row is a set of one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

__all__ = [
    "Powers",
    "Products",
    "merge_powers",
    "merge_products",
    "row_powers",
    "row_products",
    "scale_powers",
    "scale_products",
    "triangle",
]


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["weight", "origin", "mean", "products"],
    meta_fields=["n_targets"],
)
@dataclass(frozen=True)
class Products:
    """Weighted means and centred cross products of c columns.

    Attributes
    ----------
    weight : array of shape (...)
        Sum of the weights.
    origin, mean : array of shape (c, ...)
        The mean is their sum.
    products : array of shape (c (c + 1) / 2, ...)
        Sums of weight times product of deviations, upper triangle row by row.
    n_targets : int
        How many of the columns, the last ones, are targets.
    """

    weight: Any
    origin: Any
    mean: Any
    products: Any
    n_targets: int = 0


def triangle(c: int) -> np.ndarray:
    """Return the (c, c) positions of the upper triangle's entries in `Products.products`."""
    rows, columns = np.triu_indices(c)
    position = np.zeros((c, c), np.int32)
    position[rows, columns] = position[columns, rows] = np.arange(len(rows))
    return position


def row_products(columns: Any, weight: Any, n_targets: int = 0) -> Products:
    """Return the statistics of one row: `columns` of shape (c, ...), `weight` of shape (...)."""
    c = columns.shape[0]
    zeros = jnp.zeros((c * (c + 1) // 2, *columns.shape[1:]), columns.dtype)
    return Products(weight, columns, jnp.zeros_like(columns), zeros, n_targets)


def merge_products(left: Products, right: Products, keep_origin: bool = False) -> Products:
    """Merge two sets, both of positive weight; see `_merge_means` for `keep_origin`."""
    rows, columns = np.triu_indices(left.mean.shape[0])
    weight, share, difference, origin, mean = _merge_means(left, right, keep_origin)
    outer = difference[rows] * (difference * (left.weight * share))[columns]
    return Products(weight, origin, mean, left.products + right.products + outer, left.n_targets)


def scale_products(statistics: Products, factor: Any) -> Products:
    """Multiply all weights by a factor."""
    return replace(statistics, weight=statistics.weight * factor, products=statistics.products * factor)


class Powers(NamedTuple):
    """Weighted means and sums of powers of deviations, column by column.

    Attributes
    ----------
    weight : array of shape (...)
    origin, mean : array of shape (c, ...)
        The mean is their sum.
    sums : tuple of arrays of shape (c, ...)
        Sums of weight times deviation to the powers 2, 3, ..., as many as asked for.
    """

    weight: Any
    origin: Any
    mean: Any
    sums: tuple[Any, ...]


def row_powers(columns: Any, weight: Any, order: int) -> Powers:
    """Return the statistics of one row, up to the power `order` (1 to 4)."""
    zeros = jnp.zeros_like(columns)
    return Powers(weight, columns, zeros, (zeros,) * (order - 1))


def merge_powers(left: Powers, right: Powers, keep_origin: bool = False) -> Powers:
    """Merge two sets, both of positive weight; see `_merge_means` for `keep_origin`."""
    weight, share, d, origin, mean = _merge_means(left, right, keep_origin)
    a, rest = left.weight, left.weight / weight
    sums = [x + y for x, y in zip(left.sums, right.sums, strict=True)]
    order = len(sums) + 1
    if order >= 4:
        square = rest * rest - rest * share + share * share
        sums[2] += d * (
            d * (d * d * (a * share * square) + 6 * (rest * rest * right.sums[0] + share * share * left.sums[0]))
            + 4 * (rest * right.sums[1] - share * left.sums[1])
        )
    if order >= 3:
        sums[1] += d * (d * d * (a * share * (rest - share)) + 3 * (rest * right.sums[0] - share * left.sums[0]))
    if order >= 2:
        sums[0] += d * d * (a * share)
    return Powers(weight, origin, mean, tuple(sums))


def scale_powers(statistics: Powers, factor: Any) -> Powers:
    """Multiply all weights by a factor."""
    return statistics._replace(weight=statistics.weight * factor, sums=tuple(s * factor for s in statistics.sums))


def _merge_means(left: Any, right: Any, keep_origin: bool) -> tuple[Any, Any, Any, Any, Any]:
    """Return the weight, the right side's share of it, the difference of means, and the mean in two parts.

    With `keep_origin` means stay relative to the left side's origin.
    """
    weight = left.weight + right.weight
    share = right.weight / weight
    difference = (right.origin - left.origin) + (right.mean - left.mean)
    if keep_origin:
        return weight, share, difference, left.origin, left.mean + difference * share
    # The origin of the heavier side: a faded outlier must not be what all else is measured from.
    from_left, from_right = left.mean + difference * share, right.mean - difference * (left.weight / weight)
    heavier = share > 0.5
    origin = jnp.where(heavier, right.origin, left.origin)
    return weight, share, difference, origin, jnp.where(heavier, from_right, from_left)
