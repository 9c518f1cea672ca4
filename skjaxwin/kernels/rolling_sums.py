"""Means and variances of rolling windows, from sums of runs of 1, 2, 4, ... rows.

The sums of runs of twice the length are the sums of two runs, for all beginnings at once; a window is one run for each
binary digit of its length. No row is ever subtracted, so rows that a window does not hold leave no trace in it. Each
sum is one of pairs of pairs, which rounds little, and each addition passes over arrays in the order in which they lie.

For variances, deviations are measured from an origin that serves a piece of time: the median of three of its rows. With
n rows of variance v, and a mean that is z standard deviations from the origin, the sum of squares from it is
:math:`n v (1 + z^2)`, so what is left after taking off the mean has lost a factor :math:`1 + z^2` of its digits. That
is the one thing to check, whatever the origin. Windows that have lost too many, as after a jump, are named for a path
that merges.

All is done in NumPy, on pieces that fit into a core's cache; there is nothing to compile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels.groups import advancing

__all__ = ["Room", "fit_rolling_sums", "rolling_sums"]

# The largest z squared, where z is that of the module's text.
_FARTHEST = 1e4
# Rows from which the same row is taken at a time.
_TOGETHER = 64
# Windows of a piece: so many lengths of a window, as far as its arrays have no more entries; never fewer than the last.
_LENGTHS = 16
_ENTRIES = 2**15
_FEWEST = 2048
# Windows that one thread goes through in turn.
_RUN = 2**15


def fit_rolling_sums(
    model: Any, hyper: dict[str, Any], X: np.ndarray, starts: np.ndarray, stops: np.ndarray, *, max_memory: float
) -> Any:
    """Fit a model of means and variances on windows that advance row by row, all rows of weight one.

    Parameters
    ----------
    model : WindowModel
        With ``from_sums`` and ``names``, and with a ``highest_power`` of 1 or 2.
    hyper : dict of scalars
        One candidate's traced hyperparameters.
    X : ndarray of shape (n_rows, k), float64
        What ``prepare`` returned.
    starts, stops : ndarray of shape (n_windows,)
        Half-open row bounds.
    max_memory : float
        Bytes of temporary memory.

    Returns
    -------
    params, info, bad : dict of ndarray, FitInfo, ndarray of bool of shape (n_windows,)
        With leading axes (n_windows, 1), and which windows are to be fitted otherwise; None for all of this where
        windows are of another kind, or memory is too short.
    """
    k, width, order = X.shape[1], int((stops - starts).max()), model.highest_power
    piece = max(min(_LENGTHS * width, _ENTRIES // k), width, _FEWEST)
    if not 1 <= order <= 2 or not advancing(starts, stops):
        return None
    if 2 * Room.n_bytes(k, piece, width) > max_memory:
        return None
    X, stops = X[starts[0] : stops[-1]], stops - starts[0]
    n_windows, run = len(stops), piece * max(1, _RUN // piece)
    params = {name: np.empty((n_windows, 1, k)) for name in model.names()}
    determined, bad = np.empty((n_windows, 1), bool), np.empty(n_windows, bool)

    def one_run(first: int) -> Any:
        room = Room(k, piece, width)
        for low in range(first, min(first + run, n_windows), piece):
            part = slice(low, min(low + piece, n_windows))
            with np.errstate(all="ignore"):
                *sums, lost = rolling_sums(X, stops[part], width, order, room)
                info = model.from_sums(*sums, hyper, {name: values[part, 0] for name, values in params.items()})
            determined[part], bad[part] = info.determined, lost
        return info

    infos = list(compiling.run_many(one_run, range(0, n_windows, run)))
    return params, infos[0]._replace(determined=determined), bad


class Room:
    """Arrays for a piece of time, used again and again: memory that is touched for the first time costs more than sums.

    Attributes
    ----------
    away : ndarray of shape (n_windows + width - 1, k)
    runs : list of two ndarray of this shape
    mean, squares, spare : ndarray of shape (n_windows, k)
    """

    def __init__(self, k: int, n_windows: int, width: int) -> None:
        self.away, *self.runs = (np.empty((n_windows + width - 1, k)) for _ in range(3))
        self.mean, self.squares, self.spare = (np.empty((n_windows, k)) for _ in range(3))

    @staticmethod
    def n_bytes(k: int, n_windows: int, width: int) -> int:
        """Return how much memory it takes."""
        return 8 * k * (6 * n_windows + 3 * width)


def rolling_sums(
    X: np.ndarray, stops: np.ndarray, width: int, order: int, room: Room
) -> tuple[Any, Any, np.ndarray, np.ndarray | None, Any]:
    """Return the sums of consecutive windows.

    Parameters
    ----------
    X : ndarray of shape (n_rows, k), float64
    stops : ndarray of shape (n_windows,)
        Where the windows end, row after row; positive.
    width : int
        Rows of a window; those that would begin before the first row begin there.
    order : int
        The highest power of deviations to sum, 1 or 2.
    room : Room
        For as many windows or more.

    Returns
    -------
    n_rows : float, or ndarray of shape (n_windows, 1) where not all windows are full
    origin : float or ndarray of shape (k,)
    mean : ndarray of shape (n_windows, k)
        Measured from the origin; in the room.
    squares : ndarray of shape (n_windows, k), or None
        Sums of squared deviations from the mean, in the room; None for ``order=1``.
    lost : ndarray of bool of shape (n_windows,), or False
        Which windows have lost too many digits in some column, or hold numbers whose squares are out of range.
    """
    n_windows, before = len(stops), max(width - int(stops[0]), 0)
    mean, squares, spare = (a[:n_windows] for a in (room.mean, room.squares, room.spare))
    away = room.away[: n_windows + width - 1]
    away[:before] = 0  # rows before the first one there is add nothing
    n_rows = np.minimum(stops, width)[:, None] if before else float(width)
    rows = X[int(stops[0]) - width + before : stops[-1]]
    if order == 1:
        np.copyto(away[before:], rows)
        _add_up(away, width, room.runs, mean)
        mean /= n_rows
        return n_rows, 0.0, mean, None, _not_finite(mean)

    origin = np.sort(rows[[0, len(rows) // 2, -1]], axis=0)[1]
    _less(rows, origin, away[before:])
    _add_up(away, width, room.runs, mean)
    np.square(away, out=away)
    _add_up(away, width, room.runs, squares)
    np.copyto(spare, mean)
    mean /= n_rows
    spare *= mean
    squares -= spare
    spare /= _FARTHEST
    kept = spare <= squares
    lost = _not_finite(squares)
    return n_rows, origin, mean, squares, lost if kept.all() else lost | ~kept.all(axis=1)


def _less(rows: np.ndarray, one: np.ndarray, out: np.ndarray) -> None:
    """Take one row off each, many at a time: loops over a few columns cost more than the arithmetic."""
    whole = len(rows) // _TOGETHER * _TOGETHER
    wide = -1, _TOGETHER * rows.shape[1]
    np.subtract(rows[:whole].reshape(wide), np.tile(one, _TOGETHER), out=out[:whole].reshape(wide))
    np.subtract(rows[whole:], one, out=out[whole:])


def _not_finite(values: np.ndarray) -> Any:
    """Say which rows hold NaN or infinity; False if none does."""
    return False if np.isfinite(values.sum()) else ~np.isfinite(values).all(axis=1)


def _add_up(values: np.ndarray, width: int, runs: list[np.ndarray], out: np.ndarray) -> None:
    """Put the sum of `width` rows, beginning at each row, into `out`; `runs` is memory for two arrays like `values`."""
    n, length, done = len(out), 1, 0
    while True:
        if width & length:
            part = values[done : done + n]
            if done:
                np.add(out, part, out=out)
            else:
                np.copyto(out, part)
            done += length
        if done == width:
            return
        longer = runs[0][: len(values) - length]
        np.add(values[:-length], values[length:], out=longer)
        values, length, runs = longer, 2 * length, runs[::-1]
