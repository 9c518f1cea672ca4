"""Systems of equations whose matrix is a cross product, which may be singular."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from skjaxwin.kernels.linalg import inverse_factor

__all__ = ["definite_solver"]

# So many roundings are added to the diagonal, which keep a singular matrix from stopping it all.
_FLOOR = 64
# A factorisation of a single matrix gains little from being written out, and takes long to compile.
_WRITTEN_OUT = 3


def definite_solver(matrix: Any) -> Callable[[Any], Any]:
    """Return the function that solves ``matrix x = right``; unknowns with a zero on the diagonal are zero.

    Parameters
    ----------
    matrix : array of shape (p, p)
        Symmetric and positive semi-definite.
    """
    diagonal = jnp.diagonal(matrix)
    size = jnp.where(diagonal > 0, 1 / jnp.sqrt(jnp.where(diagonal > 0, diagonal, 1)), 0)
    correlation = matrix * size[:, None] * size[None]
    one = 1 + _FLOOR * jnp.finfo(matrix.dtype).eps
    correlation = jnp.where(jnp.eye(len(matrix), dtype=bool), one, correlation)
    factor = inverse_factor(correlation[:, :, None], _WRITTEN_OUT)[:, :, 0] * size[None]
    return lambda right: factor.T @ (factor @ right)
