"""What kernels do with the statistics of additive models: of a row, faded, merged."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from skjaxwin.kernels.scan import Layout

__all__ = ["ages_of", "faded", "join", "row_statistics"]


def row_statistics(model: Any, layout: Layout, columns: Any) -> tuple[Any, Any]:
    """Return the statistics of one row in each lane, and its age; `columns` has the lanes last."""
    k, y = layout.n_features, None
    if layout.has_target:
        y = columns[k] if layout.n_outputs is None else columns[k : layout.weight_column]
    return model.statistics(columns[:k], y, columns[layout.weight_column]), ages_of(layout, columns.T)


def ages_of(layout: Layout, rows: Any) -> Any:
    return rows[:, -2:] if layout.has_age else None


def faded(model: Any, statistics: Any, age: Any, newer: Any) -> Any:
    """Make weights relative to a newer row's time."""
    if age is None:
        return statistics
    high, low = (age - newer).T
    return model.scale(statistics, jnp.exp2(high + low))


def join(model: Any, left: Any, left_filled: Any, right: Any, right_filled: Any) -> Any:
    """Merge two statistics of which either may stand for no rows."""
    both = model.merge(left, right)

    def choose(merged: Any, a: Any, b: Any) -> Any:
        return jnp.where(left_filled & right_filled, merged, jnp.where(left_filled, a, b))

    return jax.tree_util.tree_map(choose, both, left, right)
