"""Memory that is used again: the first touch of fresh pages takes longer than what is done with them.

A call that lays out megabytes for a kernel, once per fit, spends up to half of its time on pages that the operating
system hands out, zeroed, one by one. Buffers are kept after use, up to a limit, and given to the next call.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import numpy as np

from skjaxwin.kernels.shapes import aligned_empty

__all__ = ["Scratch", "scratch"]

_KEPT_BYTES = 64 * 2**20
_BYTE = np.dtype(np.uint8)

_free: list[np.ndarray] = []
_lock = threading.Lock()


class Scratch:
    """Buffers of one call."""

    def __init__(self) -> None:
        self._taken: list[np.ndarray] = []

    def empty(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """Return an uninitialised array that begins at a multiple of 64 bytes, valid until the call is over."""
        size = int(np.prod(shape)) * dtype.itemsize
        with _lock:
            fitting = [buffer for buffer in _free if size <= buffer.nbytes <= 2 * size]
            found = min(fitting, key=lambda buffer: buffer.nbytes, default=None)
            if found is not None:
                _free[:] = [buffer for buffer in _free if buffer is not found]
        if found is None:
            found = aligned_empty((size,), _BYTE)
        self._taken.append(found)
        return found[:size].view(dtype).reshape(shape)

    def give_back(self) -> None:
        """Keep the buffers for later calls; beyond the limit the oldest are dropped."""
        with _lock:
            _free.extend(self._taken)
            while sum(buffer.nbytes for buffer in _free) > _KEPT_BYTES:
                del _free[0]
        self._taken = []


@contextlib.contextmanager
def scratch() -> Iterator[Scratch]:
    """Lend buffers for the length of a block; nothing may refer to them after it.

    Yields
    ------
    buffers : Scratch
    """
    buffers = Scratch()
    try:
        yield buffers
    finally:
        buffers.give_back()
