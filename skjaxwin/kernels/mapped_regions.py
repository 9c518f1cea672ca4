"""How near this process is to the most memory regions that Linux lets it map.

The compiler gives each kernel some hundred regions, since code and constants are protected differently. When there
are no more, it does not raise: the process ends with a segmentation fault.
"""

from __future__ import annotations

import functools
from pathlib import Path

__all__ = ["are_scarce"]

_MAPPED = Path("/proc/self/maps")  # a line for each
_MOST = Path("/proc/sys/vm/max_map_count")  # 65530 by default


def are_scarce() -> bool:
    """Say whether half of the regions are taken; False where there is no such limit, or none that can be read."""
    most = _limit()
    if most is None:
        return False
    try:
        return 2 * _MAPPED.read_bytes().count(b"\n") > most
    except OSError:
        return False


@functools.cache
def _limit() -> int | None:
    try:
        return int(_MOST.read_text())
    except (OSError, ValueError):
        return None
