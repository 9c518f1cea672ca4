"""Tables of compositions: which products of components make up the powers of a mixture.

Made on the host, as small integers, and handed to kernels in slabs of one shape: neither compile time nor
memory depends on how many there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from skjaxwin.kernels.table_cache import cached_by_bytes

__all__ = ["Chunks", "chunk_size", "composition_slabs", "composition_table", "n_compositions"]

_CHUNK_FLOATS = 2**18
_MAX_CHUNK = 1024
_SLAB_CHUNKS = 32
_SLAB_BYTES = 2**22


class Chunks(NamedTuple):
    """Terms of the powers 2 to N + 1 of a mixture in which at least two components meet.

    Attributes
    ----------
    counts : ndarray of shape (n_chunks, n_components, size), int8
        How often each component occurs.
    power : ndarray of shape (n_chunks, size), int8
        k for a term of ``p^(k+1)``; zero for padding.
    multinomial : ndarray of shape (n_chunks, size)
        How often the term occurs; zero for padding.
    """

    counts: np.ndarray
    power: np.ndarray
    multinomial: np.ndarray


def n_compositions(order: int, n_components: int) -> int:
    """Return the number of terms of all powers 2 to ``order + 1``."""
    return math.comb(order + 1 + n_components, n_components) - 1 - n_components


def chunk_size(n_components: int, n_features: int, full: bool) -> int:
    """Return how many terms go at a time: a power of two, so that they take a few megabytes."""
    floats = n_components * n_features + (2 * n_features**2 if full else n_features)
    size = max(_CHUNK_FLOATS // max(floats, 1), 4)
    return min(1 << (size.bit_length() - 1), _MAX_CHUNK)


def composition_slabs(order: int, n_components: int, padded_components: int, size: int) -> Iterator[Chunks]:
    """Yield all terms, in slabs of a shape that depends on the last two parameters only.

    Parameters
    ----------
    order : int
    n_components, padded_components : int
        Padded to some that never occur, at least two in all.
    size : int
        Terms in a chunk.
    """
    n_chunks = min(max(_SLAB_BYTES // (size * padded_components), 1), _SLAB_CHUNKS)
    # The compositions of one component alone are among those that are counted off.
    n_slabs = max(-(-(n_compositions(order, n_components) + n_components) // (n_chunks * size)), 1)
    for slab in range(n_slabs):
        yield composition_table(order, n_components, padded_components, size, slab * n_chunks * size, n_chunks)


@cached_by_bytes
def composition_table(
    order: int, n_components: int, padded_components: int, size: int, first: int = 0, n_chunks: int | None = None
) -> Chunks:
    """Return some chunks of the terms, counted off from `first`; by default as few as hold all of them."""
    n_all = math.comb(order + 1 + n_components, n_components)
    if n_chunks is None:
        n_chunks = max(-(-(n_all - 1) // size), 1)
    # The last one of all is the empty product.
    ranks = np.arange(first, min(first + n_chunks * size, n_all - 1))
    found = _unranked(ranks, order + 1, n_components)
    total = found.sum(axis=1, dtype=np.int64)
    mixed = found.max(axis=1, initial=0) < total
    factorial = np.asarray([float(math.factorial(n)) for n in range(order + 2)])

    n_rows = n_chunks * size
    counts = np.zeros((n_rows, padded_components), np.int8)
    counts[:, :2] = 1  # a product that exists, so that nothing of it is infinite
    power = np.zeros(n_rows, np.int8)
    multinomial = np.zeros(n_rows)
    used = np.flatnonzero(mixed)
    found, total = found[used], total[used]
    counts[used, :2] = 0
    counts[used, :n_components] = found
    power[used] = total - 1
    multinomial[used] = np.rint(factorial[total] / factorial[found].prod(axis=1))
    return Chunks(
        np.ascontiguousarray(counts.reshape(n_chunks, size, -1).swapaxes(1, 2)),
        power.reshape(n_chunks, size),
        multinomial.reshape(n_chunks, size),
    )


def _unranked(ranks: np.ndarray, most: int, n_components: int) -> np.ndarray:
    """Return rows of `n_components` non-negative integers with a sum of at most `most`, by their numbers.

    Such a row is a multiset of `most` elements out of the components and one more, which stands for nothing; and
    multisets are numbered as the combinations ``c_1 < c_2 < ...`` are, by ``sum_i C(c_i, i)``.
    """
    left = ranks.astype(np.int64)
    each = np.empty((most, len(ranks)), np.int64)
    for i in range(most, 0, -1):
        binomial = np.asarray([min(math.comb(c, i), 2**62) for c in range(n_components + i)])
        chosen = np.searchsorted(binomial, left, side="right") - 1
        left = left - binomial[chosen]
        each[i - 1] = chosen - (i - 1)
    counts = np.zeros((len(ranks), n_components + 1), np.int8)
    row = np.arange(len(ranks))
    for element in each:
        counts[row, element] += 1
    # Numbers grow with the largest element: with that for nothing, the empty product is the last of all.
    return counts[:, :n_components]
