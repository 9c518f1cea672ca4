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
import numpy as np
from jax import lax

__all__ = ["gram_schmidt", "inverse_factor", "lapack_can_block", "minimum_norm", "row_of"]


def row_of(array: jax.Array, index: Any) -> jax.Array:
    """Return ``array[index]`` for a traced index that is known to be in bounds.

    Spares the kernel the code for negative indices, which `jnp` indexing brings along.
    """
    start = (index,) + (jnp.int32(0),) * (array.ndim - 1)
    size = (1, *array.shape[1:])
    return lax.dynamic_slice(array, start, size, allow_negative_indices=False).reshape(array.shape[1:])


def gram_schmidt(columns: jax.Array, k: int, threshold: jax.Array, max_rank: Any = None) -> jax.Array:
    """Triangularise a least-squares problem by modified Gram-Schmidt.

    Turns ``min |A b - y|``, with the k columns of A and then those of y as the rows
    of `columns`, into ``R b = c``. Taking the targets along as further columns
    makes this as accurate as Householder's QR (Bjorck, "Solving linear least
    squares problems by Gram-Schmidt orthogonalization", BIT 7, 1967), with an
    error that grows with the condition number and not, as the normal equations',
    with its square.

    Parameters
    ----------
    columns : array of shape (k + m, n)
        The k columns of the problem and its m right-hand sides.
    k : int
        How many columns to eliminate.
    threshold : array of shape (k,)
        A column whose remaining squared length is at most this depends on the columns
        before it; its row of R becomes zero.
    max_rank : scalar, optional
        How many columns can be independent at most, where that is known: rounding may say otherwise.

    Returns
    -------
    R_and_c : array of shape (k, k + m)
        ``[R, c]``, with R upper triangular.
    """
    position = np.arange(columns.shape[0])
    dtype = columns.dtype

    def eliminate(state: Any, step: Any) -> tuple[Any, jax.Array]:
        columns, lengths = state
        j, limit = step
        pivot = row_of(columns, j)
        products = columns @ pivot
        square = jnp.sum(jnp.where(position == j, products, 0))
        # Rounding leaves a column something along those before it; that is no information.
        outside = square - jnp.sum(jnp.where(position < j, products * products * lengths, 0))
        independent = outside > limit
        if max_rank is not None:
            independent &= jnp.sum(lengths > 0, dtype=dtype) < max_rank
        inverse = jnp.where(independent, 1 / square, jnp.zeros((), dtype))
        share = jnp.where(position > j, products * inverse, jnp.zeros((), dtype))
        columns = columns - share[:, None] * pivot
        lengths = jnp.where(position == j, inverse, lengths)
        return (columns, lengths), jnp.where(position >= j, products * jnp.sqrt(inverse), jnp.zeros((), dtype))

    start = columns, jnp.zeros(columns.shape[0], dtype)
    return lax.scan(eliminate, start, (np.arange(k, dtype=np.int32), threshold))[1]


def minimum_norm(R_and_c: jax.Array) -> jax.Array:
    """Solve ``R b = c`` by the shortest b, where zero rows of R are no equations.

    Orthogonalising the rows of R, from the last one upwards, writes b as a
    combination of them. For a regular R this is back substitution, in which each
    row is left with its diagonal alone: what rounding leaves beside it would be
    multiplied by large unknowns.

    Parameters
    ----------
    R_and_c : array of shape (k, k + m)
        ``[R, c]``, with R upper triangular.

    Returns
    -------
    b : array of shape (m, k)
    """
    k, m = R_and_c.shape[0], R_and_c.shape[1] - R_and_c.shape[0]
    dtype = R_and_c.dtype
    position = np.arange(k)
    regular = jnp.all(jnp.sum(R_and_c[:, :k] * np.eye(k), axis=1) != 0)

    def use_equation(state: Any, j: Any) -> tuple[Any, None]:
        equations, b = state
        pivot = row_of(equations, j)
        pivot = jnp.where(regular & (np.arange(k + m) < k) & (np.arange(k + m) != j), 0, pivot)
        products = equations[:, :k] @ pivot[:k]
        square = jnp.sum(jnp.where(position == j, products, 0))
        inverse = jnp.where(square > 0, 1 / square, jnp.zeros((), dtype))
        share = jnp.where(position < j, products * inverse, jnp.zeros((), dtype))
        equations = equations - share[:, None] * pivot
        return (equations, b + (pivot[k:] * inverse)[:, None] * pivot[:k]), None

    start = R_and_c, jnp.zeros((m, k), dtype)
    return lax.scan(use_equation, start, np.arange(k, dtype=np.int32)[::-1].copy())[0][1]


# Up to so many unknowns the factorisation is written out.
_WRITTEN_OUT = 16


def inverse_factor(matrix: jax.Array, written_out: int = _WRITTEN_OUT, mend: Any = None) -> jax.Array:
    """Return F with ``F' F`` the inverse of each symmetric positive definite matrix.

    Cholesky's factorisation with the batch axis last spares a call for each little matrix. Up
    to 16 unknowns it is written out, above it is a loop. LAPACK is twice as fast there where the
    cores are idle, and ten times slower where they are busy: its threads wait for each other.

    Parameters
    ----------
    matrix : array of shape (k, k, n)
        Scaled to a unit diagonal for the sake of the pivots.
    written_out : int
        Up to so many unknowns it is written out. A loop compiles in a fraction of the time and
        is as fast where n is small.
    mend : callable, optional
        Returns what to take for the pivots that it is given. A pivot is what is left of a diagonal entry after the
        rows before it.

    Returns
    -------
    factor : array of shape (k, k, n)
        Lower triangular; without `mend` not finite where a matrix is not positive definite.
    """
    if matrix.shape[0] <= written_out:
        return _bordered_factor(matrix, mend or _as_it_is)
    return _looped_factor(matrix, mend or _as_it_is)


def _as_it_is(pivot: jax.Array) -> jax.Array:
    return pivot


def _bordered_factor(matrix: jax.Array, mend: Any) -> jax.Array:
    """Invert Cholesky's factor row by row, each a border of those before it."""
    k = matrix.shape[0]
    factor = lax.rsqrt(mend(matrix[:1, :1]))
    for i in range(1, k):
        border = jnp.sum(factor * matrix[i, :i][None], axis=1)  # row i of Cholesky's factor
        inverse = lax.rsqrt(mend(matrix[i, i] - jnp.sum(border * border, axis=0)))
        row = jnp.sum(factor * border[:, None], axis=0) * -inverse
        above = jnp.concatenate([factor, jnp.zeros_like(factor[:, :1])], axis=1)
        factor = jnp.concatenate([above, jnp.concatenate([row, inverse[None]])[None]])
    return factor


def _looped_factor(matrix: jax.Array, mend: Any) -> jax.Array:
    """Do the same in a loop, with zeros where rows are not there yet."""
    k = matrix.shape[0]
    position = np.arange(k)[:, None]

    def add_row(i: Any, factor: jax.Array) -> jax.Array:
        row = row_of(matrix, i)
        border = jnp.sum(factor * row[None], axis=1)
        corner = jnp.sum(jnp.where(position == i, row, 0), axis=0)
        inverse = lax.rsqrt(mend(corner - jnp.sum(border * border, axis=0)))
        new = jnp.sum(factor * border[:, None], axis=0) * -inverse
        new = jnp.where(position == i, inverse, new)
        return lax.dynamic_update_slice(
            factor, new[None], (i, jnp.int32(0), jnp.int32(0)), allow_negative_indices=False
        )

    return lax.fori_loop(jnp.int32(0), jnp.int32(k), add_row, jnp.zeros_like(matrix))


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
