"""The rows that arrive at lanes and those that leave them, laid out in NumPy step by step.

A gather in the kernel took ten times as long. Besides, the compiler shares it out among threads,
and two calls that run at a time then wait for each other's loops.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skjaxwin.kernels.shapes import aligned_empty

__all__ = ["Moves", "lay_out"]


class Moves(NamedTuple):
    """Which row the bound of each window moves over, against the window before.

    Attributes
    ----------
    n_windows : int
    before : int
        Window w moves over row ``before + w``, if all of them move.
    rows : ndarray of shape (n_windows + 1,) or None
        The row of each window, -1 where there is none and at the end; None if all of them move.
    """

    n_windows: int
    before: int
    rows: np.ndarray | None

    @classmethod
    def of(cls, bounds: np.ndarray) -> Moves:
        """Compare the bounds of consecutive windows, which move by one row at most."""
        n = len(bounds)
        if int(bounds[-1]) - int(bounds[0]) == n - 1:
            return cls(n, int(bounds[0]) - 1, None)
        rows = np.full(n + 1, -1, np.int32)
        np.subtract(bounds[1:], 1, out=rows[1:-1], where=bounds[1:] > bounds[:-1], casting="unsafe")
        return cls(n, 0, rows)

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

    Returns
    -------
    own : ndarray of shape (capacity, side)
        The roots of the rows' weights, 0 where there is no row. Only steps 0 to `steps` are filled.
    columns : ndarray of shape (capacity, c, side)
        The rows less `origin`, in units, times these roots.
    """
    k, c, side = X.shape[1], len(origin), len(lane)
    own, columns = aligned_empty((capacity, side), X.dtype), aligned_empty((capacity, c, side), X.dtype)
    own[0], columns[0] = 0, 0
    # Lanes of consecutive rows are views of the data, and are copied as such.
    plain = int(((lane + 1) * steps < moves.n_windows).sum()) if moves.rows is None else 0
    some_own, some = own[1 : steps + 1, :plain], columns[1 : steps + 1, :, :plain]
    if plain:
        low = moves.before + int(lane[0]) * steps + 1
        some_own[:] = 1 if root is None else _side_by_side(root[low:, None], steps, plain)[:, 0]
        for part, of in ((X, slice(k)), (y, slice(k, c))):
            np.subtract(_side_by_side(part[low:], steps, plain), origin[of, :plain], out=some[:, of])
    rest_own, rest = own[1 : steps + 1, plain:], columns[1 : steps + 1, :, plain:]
    if plain < side:
        row = moves.of_windows(np.arange(1, steps + 1)[:, None] + lane[plain:] * steps)
        at = np.maximum(row, 0)
        rest_own[:] = (row >= 0) if root is None else np.where(row >= 0, root[at], 0)
        for part, of in ((X, slice(k)), (y, slice(k, c))):
            np.subtract(part[at].transpose(0, 2, 1), origin[of, plain:], out=rest[:, of])
    used = columns[1 : steps + 1]
    used *= 1 / unit
    if root is not None:
        used *= own[1 : steps + 1, None]
    elif plain < side:
        rest *= rest_own[:, None]
    return own, columns


def _side_by_side(array: np.ndarray, steps: int, lanes: int) -> np.ndarray:
    """View consecutive rows as (steps, columns, lanes), each lane after the one before."""
    row, column = array.strides
    shape, strides = (steps, array.shape[1], lanes), (row, column, row * steps)
    return np.lib.stride_tricks.as_strided(array, shape, strides, writeable=False)
