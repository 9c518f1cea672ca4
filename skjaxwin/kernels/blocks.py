"""The statistics of long ranges of rows: whole blocks, merged by doubling."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels.groups import BLOCK, Groups
from skjaxwin.kernels.merging import ages_of, faded, join, row_statistics
from skjaxwin.kernels.scan import Layout
from skjaxwin.kernels.shapes import bucket, pad_rows

__all__ = ["middles"]


def middles(
    model: Any, key: Any, layout: Layout, table: Any, groups: Groups, capacity: int, dtype: Any, exclusive: bool
) -> Any:
    """Return the statistics of the rows that the windows of each group share: trailing axis groups."""
    size = bucket(len(groups.first), minimum=bucket(capacity // BLOCK))
    first, stop = (
        pad_rows(bound // BLOCK, size).astype(np.int32) for bound in (groups.middle_start, groups.middle_stop)
    )
    # A meeting point of two halves is no multiple of the block: no blocks then.
    stop[: len(groups.first)] = np.where(groups.middle_stop > groups.middle_start, stop[: len(groups.first)], 0)
    compiled = compiling.cached(
        ("middles", *key, size),
        lambda: compiling.kernel(
            _make_middles(model.static_copy(), layout, capacity), "sum_blocks", quick_compile=False
        ),
    )
    return compiling.run(compiled, table, first, np.maximum(stop - first, 0), dtype=dtype, exclusive=exclusive)


def _make_middles(model: Any, layout: Layout, capacity: int) -> Any:
    """Return the function that merges ranges of whole blocks, by doubling."""
    n_blocks = max(capacity // BLOCK, 1)
    levels = n_blocks.bit_length()

    def sum_blocks(table: Any, first: Any, length: Any) -> Any:
        block = jnp.arange(n_blocks, dtype=jnp.int32)
        top = table.shape[0] - 1

        def row(t: Any) -> tuple[Any, Any]:
            return row_statistics(model, layout, table[jnp.minimum(block * BLOCK + t, top)].T)

        def merge_row(t: Any, state: Any) -> Any:
            statistics, age = state
            one, its_age = row(t)
            return model.merge(faded(model, statistics, age, its_age), one), its_age

        runs, _ = lax.fori_loop(jnp.int32(1), jnp.int32(BLOCK), merge_row, row(jnp.int32(0)))
        ages = ages_of(layout, table[jnp.minimum((block + 1) * BLOCK - 1, top)])

        def age_of(last: Any) -> Any:
            return None if ages is None else ages[jnp.clip(last, 0, n_blocks - 1)]

        def double(level: Any, state: Any) -> Any:
            """From runs of 2**level blocks to runs twice as long; ranges take those of their binary digits."""
            runs, total, filled, position = state
            span = jnp.left_shift(jnp.int32(1), level)
            wanted = (jnp.right_shift(length, level) & 1) == 1
            at = jnp.minimum(position, n_blocks - 1)
            taken = jax.tree_util.tree_map(lambda a: a[..., at], runs)
            end = jnp.where(wanted, position + span, position) - 1
            total = join(model, faded(model, total, age_of(position - 1), age_of(end)), filled, taken, wanted)
            later = jnp.minimum(block + span, n_blocks - 1)
            right = jax.tree_util.tree_map(lambda a: a[..., later], runs)
            left = faded(model, runs, age_of(block + span - 1), age_of(block + 2 * span - 1))
            position = jnp.where(wanted, position + span, position)
            return model.merge(left, right), total, filled | wanted, position

        nothing = jax.tree_util.tree_map(lambda a: a[..., jnp.zeros_like(first)], runs)
        state = runs, nothing, jnp.zeros(first.shape, bool), first
        return lax.fori_loop(jnp.int32(0), jnp.int32(levels), double, state)[1]

    return sum_blocks
