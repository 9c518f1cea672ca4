"""Arrays with room to grow: appending copies what is new, and everything only when the room is used up. NumPy only."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Column", "Room"]

_LEAST = 64


class _Store:
    """Memory that several columns may share, and how much of it has been written."""

    __slots__ = ("array", "filled")

    def __init__(self, array: np.ndarray, filled: int) -> None:
        self.array = array
        self.filled = filled


class Column:
    """Entries along the first axis of an array, with room for more after them.

    A column never changes: `extended` and `without_first` return others, which share its memory. What lies in a
    column is written once, so arrays taken from one keep their values.

    Parameters
    ----------
    values : ndarray
        Not copied, and not written to.

    Attributes
    ----------
    values : ndarray
    """

    __slots__ = ("_begin", "_store", "values")

    def __init__(self, values: np.ndarray) -> None:
        self._set(_Store(values, len(values)), 0, len(values))

    def _set(self, store: _Store, begin: int, end: int) -> Column:
        self._store, self._begin = store, begin
        self.values = store.array[begin:end]
        return self

    def __len__(self) -> int:
        return len(self.values)

    def __reduce__(self) -> Any:
        return Column, (self.values,)  # without the room

    def extended(self, new: np.ndarray) -> Column:
        """Return the column with more entries at its end, in a type that holds all."""
        store, begin, end = self._store, self._begin, self._begin + len(self)
        dtype = np.result_type(self.values.dtype, new.dtype)
        n = len(self) + len(new)
        # Another column that shares the memory may have gone on from here already.
        if store.filled != end or begin + n > len(store.array) or dtype != store.array.dtype:
            store = _Store(np.empty((max(2 * n, _LEAST), *self.values.shape[1:]), dtype), 0)
            store.array[: len(self)] = self.values
            begin, end = 0, len(self)
        store.array[end : end + len(new)] = new
        store.filled = end + len(new)
        return Column.__new__(Column)._set(store, begin, store.filled)

    def without_first(self, n: int) -> Column:
        """Return the column without its first entries; their memory is given up when the room is used up."""
        return Column.__new__(Column)._set(self._store, self._begin + n, self._begin + len(self))


class Room:
    """Columns behind arrays that are shown to others, who may put other arrays in their place."""

    def __init__(self) -> None:
        self._columns: dict[Any, Column] = {}

    def __reduce__(self) -> Any:
        return Room, ()  # copies begin without room

    def extended(self, name: Any, array: np.ndarray, n_kept: int, new: np.ndarray) -> np.ndarray:
        """Return the first entries of an array, followed by new ones.

        Parameters
        ----------
        name : hashable
            By which the array is found again.
        array : ndarray
            Not written to. Copied if it is not what the last call returned, or if not all of it is kept: whoever has
            taken it before finds it unchanged.
        n_kept : int
        new : ndarray
        """
        column = self._columns.get(name)
        if column is None or column.values is not array or n_kept < len(array):
            column = Column(array[:n_kept])
        column = self._columns[name] = column.extended(new)
        return column.values
