"""Tables of compositions: which products of components make up the powers of a mixture.

Made once on the host, kept as small integers, and handed to kernels as arguments in chunks of
one size: neither compile time nor memory of a kernel depends on how many there are.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np

__all__ = ["Chunks", "chunk_size", "composition_chunks", "n_compositions"]

_CHUNK_FLOATS = 2**18
_MAX_CHUNK = 1024
_CHUNKS_GROW = 32


class Chunks(NamedTuple):
    """Terms of the powers 2 to N + 1 of a mixture in which at least two components meet.

    Attributes
    ----------
    counts : ndarray of shape (n_chunks, n_components, size), int8
        How often each component occurs.
    power : ndarray of shape (n_chunks, size), int8
        k for a term of ``p^(k+1)``.
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


@functools.lru_cache(maxsize=32)
def composition_chunks(order: int, n_components: int, padded_components: int, size: int, exact: bool) -> Chunks:
    """Return the table for so many components, padded to more that never occur.

    Parameters
    ----------
    order : int
    n_components, padded_components : int
        At least two after padding.
    size : int
        Terms in a chunk.
    exact : bool
        As few chunks as hold the terms. Otherwise their number is a power of 32, so that few
        shapes serve all orders; chunks without terms have ``power`` 0 throughout.
    """
    counts = _counts(order + 1, n_components)
    total = counts.sum(axis=1, dtype=np.int64)
    counts = counts[(total >= 2) & (counts.max(axis=1) < total)]
    total = counts.sum(axis=1, dtype=np.int64)
    factorial = np.asarray([float(math.factorial(n)) for n in range(order + 2)])
    n_terms = len(counts)
    n_chunks = max(-(-n_terms // size), 1)
    if not exact:
        n_chunks = _CHUNKS_GROW ** math.ceil(round(math.log(n_chunks, _CHUNKS_GROW), 9))

    shape = (n_chunks * size,)
    padded = np.zeros((*shape, padded_components), np.int8)
    padded[n_terms:, :2] = 1  # a product that exists, so that nothing of it is infinite
    padded[:n_terms, :n_components] = counts
    power = np.zeros(shape, np.int8)
    power[:n_terms] = total - 1
    multinomial = np.zeros(shape)
    multinomial[:n_terms] = np.rint(factorial[total] / factorial[counts].prod(axis=1))
    return Chunks(
        np.ascontiguousarray(padded.reshape(n_chunks, size, -1).swapaxes(1, 2)),
        power.reshape(n_chunks, size),
        multinomial.reshape(n_chunks, size),
    )


def _counts(total: int, n_components: int) -> np.ndarray:
    """Return all rows of non-negative integers with a sum of at most `total`."""
    counts = np.zeros((1, 0), np.int8)
    left = np.asarray([total])
    for _ in range(n_components):
        repeats = left + 1
        first = np.cumsum(repeats) - repeats
        value = np.arange(repeats.sum()) - np.repeat(first, repeats)
        counts = np.column_stack([np.repeat(counts, repeats, axis=0), value.astype(np.int8)])
        left = np.repeat(left, repeats) - value
    return counts
