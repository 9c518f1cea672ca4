"""Time several ways of doing the same thing in one process, and print their ratios.

A benchmark is a module with a function ``cases()`` that yields `Case` objects. The ways of a case take
turns, so that a busy machine slows all of them; each time is the median of the runs.
The ways return arrays that must agree.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from skjaxwin import count_compiles


@dataclass(frozen=True)
class Case:
    """Ways of doing the same thing, the first being the package's.

    Attributes
    ----------
    title : str
    ways : dict of callable
        Each returns an array, or None if there is nothing to compare.
    warm : bool
        Whether a first run of each way, which pays for compiling, is timed apart.
        If not, every run compiles anew and its compile time counts.
    runs : int
    tolerance : float
        Largest relative difference between the ways' results.
    """

    title: str
    ways: dict[str, Callable[[], Any]]
    warm: bool = True
    runs: int = 5
    tolerance: float = 1e-6


def measure(case: Case) -> None:
    """Run a case and print a line for each way."""
    first: dict[str, tuple[float, int, float]] = {}
    seconds: dict[str, list[float]] = {name: [] for name in case.ways}
    results: dict[str, Any] = {}
    for turn in range(case.runs + case.warm):
        for name, way in case.ways.items():
            with count_compiles() as compiles:
                start = time.perf_counter()
                results[name] = way()
                elapsed = time.perf_counter() - start
            if name not in first:
                first[name] = (elapsed, compiles.count, compiles.seconds)
            if turn or not case.warm:
                seconds[name].append(elapsed)
    compare(results, case.tolerance)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    ours = medians[next(iter(medians))]
    print(f"\n{case.title}" + ("" if case.warm else "; every run compiles anew"))
    print(f"  {'':34} {'median s':>9} {'ratio':>7} {'first run s':>12} {'compiles':>9} {'compile s':>10}")
    for name, median in medians.items():
        run, count, compiling = first[name]
        print(f"  {name:34} {median:9.3f} {median / ours:7.2f} {run:12.3f} {count:9d} {compiling:10.2f}")


def compare(results: dict[str, Any], tolerance: float) -> None:
    """Raise if two ways disagree."""
    (name, reference), *others = ((n, r) for n, r in results.items() if r is not None)
    for other, result in others:
        np.testing.assert_allclose(
            result, reference, rtol=tolerance, atol=tolerance, err_msg=f"{other} disagrees with {name}"
        )


def main(arguments: list[str]) -> int:
    """Run the benchmarks whose module name contains one of the given words."""
    from benchmarks import grid_search, growing_window, walk_forward

    label, *wanted = arguments or ["BLAS threads: as set"]
    import jax

    print(
        f"\n=== {label}; {os.cpu_count()} cores; Python {platform.python_version()}, jax {jax.__version__}, "
        f"NumPy {np.__version__}; XLA CPU threads: default; n_jobs=1; float64"
    )
    print("ratio: a way's median over the package's; above 1 the package is faster")
    for module in (growing_window, grid_search, walk_forward):
        if not wanted or any(word in module.__name__ for word in wanted):
            for case in module.cases():
                measure(case)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
