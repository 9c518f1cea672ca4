"""Time several ways of doing the same thing in one process, and print their ratios.

A benchmark is a module with a function ``cases()`` that yields `Case` and `Table` objects. The ways of a
case take turns, so that a busy machine slows all of them; each time is the median of the runs.
The ways return arrays that must agree, or the case says how far a result is from the truth.
"""

from __future__ import annotations

import importlib
import os
import platform
import statistics
import sys
import time
from typing import Any

import numpy as np

from benchmarks.case import Case, Table
from benchmarks.goals import Verdict, print_verdicts
from skjaxwin import count_compiles


def measure(case: Case) -> list[Verdict]:
    """Run a case, print a line for each way, and return what became of its targets."""
    first: dict[str, tuple[float, int, float]] = {}
    seconds: dict[str, list[float]] = {name: [] for name in case.ways}
    results: dict[str, Any] = {}
    for turn in range(case.runs + case.warm):
        for name, way in case.ways.items():
            if turn and name in case.once:
                continue
            with count_compiles() as compiles:
                start = time.perf_counter()
                results[name] = way()
                elapsed = time.perf_counter() - start
            if name not in first:
                first[name] = (elapsed, compiles.count, compiles.seconds)
            if turn or not case.warm or name in case.once:
                seconds[name].append(elapsed)
    errors = check(case, results)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    ours = next(iter(medians))
    print(f"\n{case.title}" + ("" if case.warm else "; every run compiles anew"))
    last = f" {'error':>9}" if errors else ""
    print(f"  {'':34} {'median s':>9} {'ratio':>7} {'first run s':>12} {'compiles':>9} {'compile s':>10}{last}")
    for name, median in medians.items():
        run, count, compiling = first[name]
        last = f" {errors[name]:9.1e}" if errors else ""
        ratio = median / medians[ours]
        print(f"  {name:34} {median:9.3f} {ratio:7.2f} {run:12.3f} {count:9d} {compiling:10.2f}{last}", flush=True)
    verdicts = [speedup.verdict(medians) for speedup in case.speedups]
    if case.compile_seconds is not None:
        verdicts.append(Verdict(f"seconds of compiling: {case.title}", first[ours][2], case.compile_seconds, "at most"))
    return verdicts


def check(case: Case, results: dict[str, Any]) -> dict[str, float]:
    """Raise if the ways disagree or the package is wrong; return the errors of a case that measures them."""
    if case.error is None:
        compare(results, case.tolerance)
        return {}
    errors = {name: case.error(name, result) for name, result in results.items()}
    ours = next(iter(errors))
    if not errors[ours] <= case.tolerance:
        raise AssertionError(f"{case.title}: the error of {ours} is {errors[ours]:.1e}, above {case.tolerance:.1e}")
    return errors


def compare(results: dict[str, Any], tolerance: float) -> None:
    """Raise if two ways disagree."""
    (name, reference), *others = ((n, r) for n, r in results.items() if r is not None)
    for other, result in others:
        np.testing.assert_allclose(
            result, reference, rtol=tolerance, atol=tolerance, err_msg=f"{other} disagrees with {name}"
        )


def show(table: Table) -> list[Verdict]:
    """Print a table."""
    print(f"\n{table.title}", *(f"  {line}" for line in table.lines), sep="\n", flush=True)
    return list(table.verdicts)


def main(arguments: list[str]) -> int:
    """Run the benchmarks of the given names, after a line about the machine."""
    import jax

    label, *names = arguments
    print(
        f"\n=== {label}; {os.cpu_count()} cores; Python {platform.python_version()}, jax {jax.__version__}, "
        f"NumPy {np.__version__}; XLA CPU threads: default; n_jobs=1; float64"
    )
    print("ratio: a way's median over the package's; above 1 the package is faster")
    verdicts: list[Verdict] = []
    for name in names:
        for part in importlib.import_module(f"benchmarks.{name}").cases():
            verdicts += measure(part) if isinstance(part, Case) else show(part)
    if verdicts:
        print_verdicts(verdicts)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
