"""Small dense algebra without LAPACK, and the guard for users' functions that call it.

On jaxlib 0.10.0 to 0.11.0 a batched LAPACK call runs on a worker of the CPU thread pool
and waits for chunks that it schedules into the same pool: two independent calls at a time
block each other for ever. The package's own models use the plain array algebra below; for
users' functions the engine asks `lapack_can_block` and then runs one window at a time
under a lock.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
from jax import lax

__all__ = ["gram_schmidt", "lapack_can_block", "minimum_norm"]


def gram_schmidt(
    vectors: jax.Array, targets: jax.Array, threshold: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Triangularise a least-squares problem by modified Gram-Schmidt.

    Solving ``min |vectors' b - target|`` becomes solving ``R b = c``. Taking the
    targets along as further columns makes this as accurate as Householder's QR
    (Bjorck, "Solving linear least squares problems by Gram-Schmidt
    orthogonalization", BIT 7, 1967), with an error that grows with the condition
    number and not, as the normal equations', with its square.

    Parameters
    ----------
    vectors : array of shape (k, n)
        The columns of the problem, as rows.
    targets : array of shape (m, n)
        The right-hand sides, as rows.
    threshold : array of shape (k,)
        A column whose remaining length is at most this depends on the columns
        before it; its row of `R` becomes zero.

    Returns
    -------
    R : array of shape (k, k)
        Upper triangular, with zero rows for dependent columns.
    c : array of shape (k, m)
    independent : array of bool of shape (k,)
    """
    k, m = vectors.shape[0], targets.shape[0]
    position = jnp.arange(k, dtype=jnp.int32)
    dtype = vectors.dtype

    def eliminate(j: Any, state: Any) -> Any:
        vectors, targets, R, c, independent = state
        v = lax.dynamic_index_in_dim(vectors, j, keepdims=False)
        length = jnp.sqrt(jnp.sum(v * v))
        keep = length > lax.dynamic_index_in_dim(threshold, j, keepdims=False)
        q = jnp.where(keep, v / jnp.where(keep, length, jnp.ones((), dtype)), jnp.zeros((), dtype))
        later = position > j
        r = jnp.where(later, vectors @ q, jnp.zeros((), dtype))
        p = targets @ q
        vectors = vectors - r[:, None] * q
        targets = targets - p[:, None] * q
        diagonal = jnp.where(keep, length, jnp.zeros((), dtype))
        R = lax.dynamic_update_index_in_dim(R, jnp.where(position == j, diagonal, r), j, 0)
        c = lax.dynamic_update_index_in_dim(c, p, j, 0)
        independent = lax.dynamic_update_index_in_dim(independent, keep, j, 0)
        return vectors, targets, R, c, independent

    start = (
        vectors,
        targets,
        jnp.zeros((k, k), dtype),
        jnp.zeros((k, m), dtype),
        jnp.zeros(k, bool),
    )
    _, _, R, c, independent = lax.fori_loop(jnp.int32(0), jnp.int32(k), eliminate, start)
    return R, c, independent


def minimum_norm(R: jax.Array, c: jax.Array) -> jax.Array:
    """Solve ``R b = c`` by the shortest b, where zero rows of R are no equations.

    Orthogonalising the rows of R writes b as a combination of them: the unique
    solution for a regular R, the one of smallest norm otherwise.

    Parameters
    ----------
    R : array of shape (k, k)
    c : array of shape (k, m)

    Returns
    -------
    b : array of shape (m, k)
    """
    k, m = c.shape
    dtype = R.dtype
    position = jnp.arange(k, dtype=jnp.int32)

    def use_equation(i: Any, state: Any) -> Any:
        # Upwards from the last row: for a regular R this is back substitution.
        rows, rhs, b = state
        j = k - 1 - i
        v = lax.dynamic_index_in_dim(rows, j, keepdims=False)
        length = jnp.sqrt(jnp.sum(v * v))
        keep = length > 0
        scale = jnp.where(keep, length, jnp.ones((), dtype))
        q = jnp.where(keep, v / scale, jnp.zeros((), dtype))
        along = jnp.where(keep, lax.dynamic_index_in_dim(rhs, j, keepdims=False) / scale, jnp.zeros((), dtype))
        earlier = position < j
        r = jnp.where(earlier, rows @ q, jnp.zeros((), dtype))
        rows = rows - r[:, None] * q
        rhs = rhs - r[:, None] * along
        return rows, rhs, b + along[:, None] * q

    start = (R, c, jnp.zeros((m, k), dtype))
    return lax.fori_loop(jnp.int32(0), jnp.int32(k), use_equation, start)[2]


_LAPACK_PRIMITIVES = re.compile(
    "cholesky|lu|triangular_solve|eigh?|svd|qr|geqrf|geqp3|householder_product|schur|hessenberg|tridiagonal.*"
)


@functools.cache
def _blocking_jaxlib() -> bool:
    version = tuple(int(part) for part in re.findall(r"\d+", jaxlib.__version__)[:3])
    return (0, 10, 0) <= version <= (0, 11, 0)


def lapack_can_block(primitives: set[str]) -> bool:
    """Say whether a function made of these primitives may hang this jaxlib when batched."""
    return _blocking_jaxlib() and any(_LAPACK_PRIMITIVES.fullmatch(name) for name in primitives)
