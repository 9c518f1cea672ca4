"""Host tables that are worth keeping, up to a number of bytes and not of entries."""

from __future__ import annotations

import functools
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, ParamSpec, TypeVar

import jax

__all__ = ["cached_by_bytes"]

_MAX_BYTES = 64 * 2**20

P = ParamSpec("P")
Table = TypeVar("Table")


class _Tables:
    """Tables in the order of their last use."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.n_bytes = 0
        self._tables: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Hashable) -> Any:
        with self._lock:
            if key not in self._tables:
                return None
            self._tables.move_to_end(key)
            return self._tables[key][0]

    def keep(self, key: Hashable, table: Any) -> None:
        n_bytes = sum(array.nbytes for array in jax.tree_util.tree_leaves(table))
        # A large one would drive out all others for the sake of a single use.
        if n_bytes > self.max_bytes // 4:
            return
        with self._lock:
            if key in self._tables:
                return
            self._tables[key] = table, n_bytes
            self.n_bytes += n_bytes
            while self.n_bytes > self.max_bytes:
                self.n_bytes -= self._tables.popitem(last=False)[1][1]


_tables = _Tables(_MAX_BYTES)


def cached_by_bytes(make: Callable[P, Table]) -> Callable[P, Table]:
    """Keep what a function of hashable arguments returned, a pytree of arrays, as long as all together are small."""

    @functools.wraps(make)
    def found(*args: P.args, **kwargs: P.kwargs) -> Table:
        key = (make.__module__, make.__qualname__, args, tuple(sorted(kwargs.items())))
        table = _tables.find(key)
        if table is None:
            table = make(*args, **kwargs)
            _tables.keep(key, table)
        return table

    return found
