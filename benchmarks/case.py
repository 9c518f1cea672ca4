"""What a benchmark yields: a `Case`, ways of doing the same thing to be timed, or a `Table` of other figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.goals import Speedup, Verdict


@dataclass(frozen=True)
class Case:
    """Ways of doing the same thing, the first being the package's.

    Attributes
    ----------
    title : str
    ways : dict of callable
        Each returns an array, or None if there is nothing to compare; anything, if there is `error`.
    warm : bool
        Whether a first run of each way, which pays for compiling, is timed apart.
        If not, every run compiles anew and its compile time counts.
    runs : int
    tolerance : float
        Largest relative difference between the ways' results, or largest error of the package's.
    error : callable, default=None
        Called outside the clock with the name of a way and its result, it returns the result's distance from the
        truth. It is printed, and the package's must be within the tolerance; the ways are then not compared.
    once : tuple of str
        Slow ways that need no warming up: one run is their time.
    speedups : tuple of Speedup
    compile_seconds : float, default=None
        Most seconds that the compiler may take in the package's first run.
    """

    title: str
    ways: dict[str, Callable[[], Any]]
    warm: bool = True
    runs: int = 5
    tolerance: float = 1e-6
    error: Callable[[str, Any], float] | None = None
    once: tuple[str, ...] = ()
    speedups: tuple[Speedup, ...] = ()
    compile_seconds: float | None = None


@dataclass(frozen=True)
class Table:
    """Figures that are not ratios of times, as lines to print, and which of them have a bound."""

    title: str
    lines: list[str]
    verdicts: tuple[Verdict, ...] = ()
