"""Fixed shapes: capacity buckets, padding in NumPy, the size of a chunk.

Padding happens in NumPy because ``jnp.pad`` would compile once for every size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["ChunkShape", "aligned_empty", "bucket", "chunk_shape", "pad_rows"]

# Chunks the size of a core's second-level cache ran fastest on CPU, far below any memory limit.
_CACHE_BYTES = 4 * 2**20
_MAX_LANES = 64
_MAX_STEPS = 256


def bucket(n: int, minimum: int = 64) -> int:
    """Return the smallest power of two that is at least `n` and `minimum`."""
    return max(minimum, 1 << max(int(n) - 1, 0).bit_length())


def pad_rows(array: np.ndarray, capacity: int) -> np.ndarray:
    """Append zero rows up to `capacity` rows."""
    padded = aligned_empty((capacity, *array.shape[1:]), array.dtype)
    padded[: len(array)] = array
    padded[len(array) :] = 0
    return padded


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an uninitialised array that begins at a multiple of 64 bytes: JAX takes it without a copy."""
    size = int(np.prod(shape)) * dtype.itemsize
    buffer = np.empty(size + 64, np.uint8)
    offset = -buffer.ctypes.data % 64
    return buffer[offset : offset + size].view(dtype).reshape(shape)


@dataclass(frozen=True)
class ChunkShape:
    """How many windows one kernel call takes: ``steps`` in turn, ``lanes`` side by side."""

    steps: int
    lanes: int


def chunk_shape(lane_bytes: int, result_bytes: int, max_memory: float) -> ChunkShape:
    """Choose the windows of one kernel call.

    Parameters
    ----------
    lane_bytes : int
        Temporary memory that one window needs.
    result_bytes : int
        Memory of one window's result.
    max_memory : float
        Upper limit of temporary memory and of the call's results, in bytes.

    Returns
    -------
    shape : ChunkShape
        A function of the arguments alone and not of the number of windows, so
        that more windows never mean another compile.
    """
    lanes = int(min(_CACHE_BYTES, max_memory / 2) // max(lane_bytes, 1))
    lanes = min(max(lanes, 1), _MAX_LANES)
    lanes = 1 << (lanes.bit_length() - 1)
    steps = int((max_memory / 4) // max(lanes * result_bytes, 1))
    steps = int(min(max(steps, 1), _MAX_STEPS, max(_CACHE_BYTES // max(lanes * result_bytes, 1), 16)))
    return ChunkShape(steps, lanes)
