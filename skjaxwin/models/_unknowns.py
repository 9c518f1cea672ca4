"""A user's parameters as one vector of unknowns, with bounds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__ = ["Unknowns", "starting_values"]


@dataclass(frozen=True)
class Unknowns:
    """The structure of the parameters.

    Attributes
    ----------
    tree : PyTreeDef
    shapes : tuple of tuple of int
        Of its leaves.
    lower, upper : ndarray of shape (p,)
        Infinite where there is no bound.
    """

    tree: Any
    shapes: tuple[tuple[int, ...], ...]
    lower: np.ndarray
    upper: np.ndarray

    @classmethod
    def of(cls, initial: Any, lower: Any, upper: Any) -> Unknowns:
        """Lay bounds out along parameters as `starting_values` returns them."""
        leaves, tree = jax.tree_util.tree_flatten(initial)
        below = _flat(_spread(lower, initial, -np.inf, "lower"))
        above = _flat(_spread(upper, initial, np.inf, "upper"))
        if np.isnan(below).any() or np.isnan(above).any():
            raise ValueError("lower and upper must not hold NaN; None stands for no bound.")
        if (below >= above).any():
            raise ValueError(f"Every lower bound must be below its upper one; got lower={lower!r}, upper={upper!r}.")
        return cls(tree, tuple(leaf.shape for leaf in leaves), below, above)

    def __len__(self) -> int:
        return len(self.lower)

    def check(self, initial: Any) -> None:
        """Raise a ValueError for starting values outside of the bounds."""
        start = _flat(initial)
        outside = (start < self.lower) | (start > self.upper)
        if outside.any():
            raise ValueError(
                f"initial must lie within the bounds; got {float(start[outside][0])} where they are "
                f"{float(self.lower[outside][0])} and {float(self.upper[outside][0])}."
            )

    def pack(self, params: Any) -> Any:
        """Return the vector of parameters, which may be traced."""
        return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree_util.tree_leaves(params)])

    def unpack(self, point: Any) -> Any:
        """Return the parameters of a vector."""
        edges = np.cumsum([0, *(int(np.prod(shape)) for shape in self.shapes)])
        parts = [point[a:b].reshape(s) for a, b, s in zip(edges[:-1], edges[1:], self.shapes, strict=True)]
        return jax.tree_util.tree_unflatten(self.tree, parts)


def starting_values(initial: Any, n_features: int) -> Any:
    """Return a user's `initial` as a pytree of float arrays, calling it if it is a function."""
    if callable(initial):
        initial = initial(n_features) if _takes_an_argument(initial) else initial()
    try:
        start = jax.tree_util.tree_map(lambda leaf: np.array(leaf, np.float64), initial)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"initial={initial!r} must be a number, an array, or a dict or tuple of them, or a function that returns "
            "such: where the parameters start."
        ) from error
    leaves = jax.tree_util.tree_leaves(start)
    if not sum(leaf.size for leaf in leaves):
        raise ValueError(f"initial={initial!r} holds no parameter.")
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        raise ValueError(f"initial={initial!r} must be finite.")
    return start


def _takes_an_argument(function: Callable[..., Any]) -> bool:
    needed = inspect.signature(function).parameters.values()
    return any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in needed)


def _flat(tree: Any) -> np.ndarray:
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree_util.tree_leaves(tree)])


def _spread(bound: Any, params: Any, none: float, name: str) -> Any:
    """Give every parameter a bound: a bound of a whole dict or tuple holds for all of it, `none` where it is None."""
    if isinstance(params, Mapping):
        if isinstance(bound, Mapping):
            unknown = set(bound) - set(params)
            if unknown:
                raise ValueError(f"{name} names {sorted(unknown)[0]!r}; the parameters are {sorted(params)!r}.")
            return {key: _spread(bound.get(key), part, none, name) for key, part in params.items()}
        return {key: _spread(bound, part, none, name) for key, part in params.items()}
    if isinstance(params, (list, tuple)):
        if isinstance(bound, (list, tuple)):
            if len(bound) != len(params):
                raise ValueError(f"{name} has {len(bound)} entries for {len(params)} parameters.")
            return [_spread(one, part, none, name) for one, part in zip(bound, params, strict=True)]
        return [_spread(bound, part, none, name) for part in params]
    if isinstance(params, np.ndarray):
        try:
            value = np.asarray(none if bound is None else bound, np.float64)
            return np.broadcast_to(value, params.shape)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{name}={bound!r} must be None, a number, or have the structure and the shapes of initial."
            ) from error
    return jax.tree_util.tree_map(lambda leaf: _spread(bound, leaf, none, name), params)
