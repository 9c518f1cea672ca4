"""Groups of consecutive windows that can share work: NumPy only.

All windows of a group overlap in a range of rows. Row sums that grow backwards from one end
of that range and forwards from its other end, together with the sum over what lies between,
give every window of the group without a subtraction: the scheme of van Herk (1992) and of
Gil and Werman (1993), for windows of any bounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["BLOCK", "LONG", "SHORT", "Groups", "advancing", "make_groups"]

# Rows of one block between the two ends.
BLOCK = 128
# Rows or windows by which a group may grow; and the most rows on one side of the middle.
SHORT = 256
LONG = SHORT + BLOCK
# Windows that are looked at in one go.
_AT_ONCE = 2**14


@dataclass(frozen=True)
class Groups:
    """Which windows go together, and where their shared rows lie.

    Attributes
    ----------
    first, count : ndarray of shape (n_groups,)
        The first window of each group and how many there are.
    middle_start, middle_stop : ndarray of shape (n_groups,)
        Rows that all windows of the group hold: whole blocks of `BLOCK` rows, or none (never
        any if no window is longer than `SHORT`). A window ``[start, stop)`` is
        ``[start, middle_start)``, these, and ``[middle_stop, stop)``.
    back, front : ndarray of shape (n_groups,)
        The most rows before and after the middle that a window of the group holds.
    """

    first: np.ndarray
    count: np.ndarray
    middle_start: np.ndarray
    middle_stop: np.ndarray
    back: np.ndarray
    front: np.ndarray


def make_groups(starts: np.ndarray, stops: np.ndarray) -> Groups:
    """Group windows.

    Parameters
    ----------
    starts, stops : ndarray of shape (n_windows,)
        Half-open row bounds, both ascending; no window is empty.

    Returns
    -------
    groups : Groups
        Every window is in one group, in order.
    """
    n_windows = len(starts)
    if n_windows > 1 and advancing(starts, stops):
        # Each window that begins no later than the first one ends can join, up to the reach.
        size = min(int((stops - starts).max()) + 1, SHORT)
        begin = np.arange(0, n_windows, size)
        return _between(starts, stops, begin)
    window = np.arange(n_windows)
    # The window after the last one that can join the group which begins at each window.
    after = np.minimum(np.searchsorted(starts, np.minimum(stops, starts + SHORT), side="right"), window + SHORT)
    after = np.minimum(after, np.searchsorted(stops, stops + SHORT, side="right"))
    hops, first = after.tolist(), [0]
    while hops[first[-1]] < n_windows:
        first.append(hops[first[-1]])
    return _between(starts, stops, np.array(first))


def advancing(starts: np.ndarray, stops: np.ndarray) -> bool:
    """Say whether every window ends one row later than the one before, and begins there too once it is full."""
    longest, n_windows = (stops - starts).max(), len(stops)
    for low in range(0, n_windows, _AT_ONCE):  # in a cache: memory touched for the first time takes longer
        part = slice(low, low + _AT_ONCE)
        ends = stops[part]
        if (ends != stops[0] + np.arange(low, low + len(ends))).any():
            return False
        if (starts[part] != np.maximum(ends - longest, starts[0])).any():
            return False
    return True


def _between(starts: np.ndarray, stops: np.ndarray, begin: np.ndarray) -> Groups:
    """Find the rows that the windows of each group share, given the first window of each."""
    n_windows = len(starts)
    last = np.append(begin[1:], n_windows) - 1
    low, high = starts[last], stops[begin]  # rows [low, high) are in all windows
    middle_start, middle_stop = -(-low // BLOCK) * BLOCK, high // BLOCK * BLOCK
    none = (middle_start >= middle_stop) | ((stops - starts).max() <= SHORT)
    meeting = (low + high) // 2
    middle_start, middle_stop = np.where(none, meeting, middle_start), np.where(none, meeting, middle_stop)
    return Groups(
        begin,
        last - begin + 1,
        middle_start,
        middle_stop,
        middle_start - starts[begin],
        stops[last] - middle_stop,
    )
