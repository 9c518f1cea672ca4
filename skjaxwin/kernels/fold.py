"""Fit an additive model on given rows: one merge after the other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["fold"]


def fold(model: Any, X: Any, y: Any, weight: Any, hyper: Any) -> Any:
    """Merge the statistics of all rows of positive weight, and solve.

    Parameters
    ----------
    model : WindowModel
        An additive one.
    X : array of shape (n_rows, n_features)
    y : array of shape (n_rows,) or (n_rows, n_outputs), or None
    weight : array of shape (n_rows,)
    hyper : dict

    Returns
    -------
    params, info : as the model's ``solve`` returns them
    """

    def statistics(row: Any) -> Any:
        x, y, weight = (None if part is None else part[..., None] for part in row)
        return model.statistics(x, y, weight)

    def merge(state: Any, row: Any) -> Any:
        total, filled = state
        one, counts = statistics(row), row[2] > 0
        merged = model.merge(total, one)

        def choose(merged: Any, one: Any, total: Any) -> Any:
            return jnp.where(counts, jnp.where(filled, merged, one), total)

        return (jax.tree_util.tree_map(choose, merged, one, total), filled | counts), None

    rows = X, y, weight
    first = statistics(jax.tree_util.tree_map(lambda a: a[0], rows))
    (total, _), _ = lax.scan(merge, (first, jnp.zeros((), bool)), rows)
    return jax.tree_util.tree_map(lambda a: a[..., 0], model.solve(total, hyper))
