"""Windows in lanes side by side, each at its own pace.

Under ``vmap`` an iteration over all lanes lasts until the slowest has converged. Here a lane whose window has
converged goes on to its next window at once, starting from the solution: a window that takes long holds up no other
lane. Arithmetic of all lanes is done together, which is what makes small windows and recursions over rows fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = ["make_own_pace_kernel"]


def make_own_pace_kernel(solver: Any, cut: Callable[[Any, Any, Any], Any], n_steps: int) -> Callable[..., Any]:
    """Return the function of a chunk for a fit that is given step by step.

    Parameters
    ----------
    solver : Steps
        See `models._steps`.
    cut : callable
        ``cut(table, begin, end)`` gives a window's X, y and weight.
    n_steps : int
        Windows of a lane at most.

    Returns
    -------
    fit_windows : callable
        As `kernels.scan` calls it.
    """
    advance = jax.vmap(jax.vmap(solver.advance, in_axes=(None, None, None, 0, 0)), in_axes=(0, 0, 0, None, 0))
    going_on = jax.vmap(jax.vmap(solver.going_on), in_axes=(None, 0))
    begin_all = jax.vmap(jax.vmap(solver.begin))
    finished_as = jax.vmap(jax.vmap(solver.finished_as))
    results = jax.vmap(jax.vmap(jax.vmap(solver.result)))
    next_start = jax.vmap(jax.vmap(solver.next_start))

    def fit_windows(table: Any, bounds: Any, steps: Any, candidates: Any, initial: Any, carried: Any) -> Any:
        n_lanes = bounds.shape[2]
        leaves = jax.tree_util.tree_leaves(candidates)
        grid = len(leaves[0])
        first = jax.tree_util.tree_map(lambda a: jnp.broadcast_to(a, (n_lanes, grid, *a.shape)), initial)
        lanes = np.arange(n_lanes, dtype=np.int32)

        def place(at: Any) -> Any:
            return jnp.minimum(at, steps - 1)

        def rows_of(at: Any) -> Any:
            begin, end, _ = jnp.moveaxis(bounds[place(at), :, lanes], 1, 0)
            return jax.vmap(cut, in_axes=(None, 0, 0))(table, begin, end)

        def go_on(state: Any) -> Any:
            at, fits, rows, kept = state
            fits = advance(*rows, candidates, fits)
            over = ~jnp.any(going_on(candidates, fits), axis=1) & (at < steps)

            def next_windows(state: Any) -> Any:
                at, fits, rows, kept = state
                finished = finished_as(fits)
                where_to = place(at), lanes
                kept = jax.tree_util.tree_map(
                    lambda whole, one: whole.at[where_to].set(jnp.where(_along(over, one), one, whole[where_to])),
                    kept,
                    finished,
                )
                at = at + over
                params, good = next_start(fits)
                good = good & (bounds[place(at), 2, lanes] == 0)[:, None]
                start = jax.tree_util.tree_map(lambda new, old: jnp.where(_along(good, new), new, old), params, first)
                fits = jax.tree_util.tree_map(
                    lambda new, old: jnp.where(_along(over, new), new, old), begin_all(start, first), fits
                )
                rows = jax.tree_util.tree_map(
                    lambda new, old: jnp.where(_along(over, new), new, old), rows_of(at), rows
                )
                return at, fits, rows, kept

            return lax.cond(jnp.any(over), next_windows, lambda state: state, (at, fits, rows, kept))

        at = jnp.zeros(n_lanes, jnp.int32)
        fits = begin_all(first, first)
        kept = jax.tree_util.tree_map(
            lambda a: jnp.zeros((n_steps, *a.shape), a.dtype), jax.eval_shape(finished_as, fits)
        )
        state = at, fits, rows_of(at), kept
        *_, kept = lax.while_loop(lambda state: jnp.any(state[0] < steps), go_on, state)
        return results(kept), carried

    return fit_windows


def _along(flag: Any, array: Any) -> Any:
    """Give a flag of the leading axes the other axes of an array."""
    return flag.reshape(flag.shape + (1,) * (array.ndim - flag.ndim))
