"""The rows that arrive at lanes and those that leave them, laid out in NumPy step by step.

A gather in the kernel took ten times as long. Besides, the compiler shares it out among threads,
and two calls that run at a time then wait for each other's loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skjaxwin.kernels.shapes import aligned_empty

__all__ = ["Moves", "lay_out"]


class Moves(NamedTuple):
    """Which row the bound of each window moves over, against the window before.

    Attributes
    ----------
    n_windows : int
    regular : int
        From this window on every one moves.
    before : int
        Window w moves over row ``before + w`` if it is one of those.
    rows : ndarray of shape (n_windows + 1,) or None
        The row of each window, -1 where there is none and at the end; None if all of them move.
    """

    n_windows: int
    regular: int
    before: int
    rows: np.ndarray | None

    @classmethod
    def of(cls, bounds: np.ndarray) -> Moves:
        """Compare the bounds of consecutive windows, which move by one row at most."""
        n = len(bounds)
        before = int(bounds[-1]) - n
        if int(bounds[0]) - 1 == before:
            return cls(n, 1, before, None)
        still = np.flatnonzero(bounds[1:] == bounds[:-1])
        rows = np.full(n + 1, -1, np.int32)
        np.subtract(bounds[1:], 1, out=rows[1:-1], where=bounds[1:] > bounds[:-1], casting="unsafe")
        return cls(n, int(still[-1]) + 2, before, rows)

    def of_windows(self, window: np.ndarray) -> np.ndarray:
        """Return the rows of some windows; those beyond the last one have none."""
        if self.rows is None:
            return np.where(window < self.n_windows, window + self.before, -1)
        return self.rows[np.minimum(window, self.n_windows)]


def lay_out(
    X: np.ndarray,
    y: np.ndarray,
    root: np.ndarray | None,
    moves: Moves,
    lane: np.ndarray,
    steps: int,
    capacity: int,
    origin: np.ndarray,
    unit: np.ndarray,
    empty: Callable[[tuple[int, ...], np.dtype], np.ndarray] = aligned_empty,
) -> tuple[np.ndarray, np.ndarray]:
    """Return each step's rows, lanes last.

    Parameters
    ----------
    X, y : ndarray of shape (n_rows, k) and (n_rows, m)
        Together the c columns.
    root : ndarray of shape (n_rows,) or None
        Roots of the weights; None for ones.
    moves : Moves
    lane : ndarray of shape (side,)
        Consecutive lanes; only the last one may be repeated.
    steps : int
        Lane l holds windows l * steps to (l + 1) * steps, and has done the first of them.
    capacity : int
        Steps to make room for, at least one more than `steps`.
    origin, unit : ndarray of shape (c, side)
    empty : callable
        Where the memory comes from.

    Returns
    -------
    own : ndarray of shape (capacity, side)
        The roots of the rows' weights, 0 where there is no row. Only steps 0 to `steps` are filled.
    columns : ndarray of shape (capacity, c, side)
        The rows less `origin`, in units, times these roots.
    """
    k, c, side = X.shape[1], len(origin), len(lane)
    own, columns = empty((capacity, side), X.dtype), empty((capacity, c, side), X.dtype)
    own[0], columns[0] = 0, 0
    used_own, used = own[1 : steps + 1], columns[1 : steps + 1]
    # Lanes of consecutive rows are views of the data, and are copied as such: ten times as fast as a gather. In
    # rolling windows all lanes are but the one of the first windows, which lose no rows, and the last one.
    regular = np.flatnonzero((lane * steps + 1 >= moves.regular) & ((lane + 1) * steps < moves.n_windows))
    a, b = (int(regular[0]), int(regular[-1]) + 1) if len(regular) else (0, 0)
    parts = (X, slice(k)), (y, slice(k, c))
    if a < b:
        low = moves.before + int(lane[a]) * steps + 1
        used_own[:, a:b] = 1 if root is None else _side_by_side(root[low:, None], steps, b - a)[:, 0]
        for part, of in parts:
            np.subtract(_side_by_side(part[low:], steps, b - a), origin[of, a:b], out=used[:, of, a:b])
    others = np.r_[:a, b:side]
    if len(others):
        row = moves.of_windows(np.arange(1, steps + 1)[:, None] + lane[others] * steps)
        at = np.maximum(row, 0)
        used_own[:, others] = there = (row >= 0) * (1.0 if root is None else root[at])
        for part, of in parts:
            rows = part[at].transpose(0, 2, 1) - origin[of][:, others]
            used[:, of, others] = rows if root is not None else rows * there[:, None]
    used *= 1 / unit
    if root is not None:
        used *= used_own[:, None]
    return own, columns


def _side_by_side(array: np.ndarray, steps: int, lanes: int) -> np.ndarray:
    """View consecutive rows as (steps, columns, lanes), each lane after the one before."""
    row, column = array.strides
    shape, strides = (steps, array.shape[1], lanes), (row, column, row * steps)
    return np.lib.stride_tricks.as_strided(array, shape, strides, writeable=False)
