"""What the benchmarks are meant to show: figures with a bound, and whether they were reached."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Speedup:
    """The ratio wanted between the fastest of some peers and the package.

    Attributes
    ----------
    what : str
    peers : tuple of str
        Names of ways of the case; those that did not run are passed over.
    at_least : float
    """

    what: str
    peers: tuple[str, ...]
    at_least: float

    def verdict(self, medians: dict[str, float]) -> Verdict:
        """Compare the medians of a case, of which the first is the package's."""
        ours = next(iter(medians.values()))
        fastest = min((medians[peer] for peer in self.peers if peer in medians), default=math.nan)
        return Verdict(self.what, fastest / ours, self.at_least, "at least")


@dataclass(frozen=True)
class Verdict:
    """A measured figure against its bound; NaN stands for a figure that was not measured."""

    what: str
    measured: float
    bound: float
    side: str  # "at least" or "at most"

    def outcome(self) -> str:
        """Say whether the bound holds."""
        if math.isnan(self.measured):
            return "not measured"
        holds = self.measured >= self.bound if self.side == "at least" else self.measured <= self.bound
        return "reached" if holds else "missed"


def print_verdicts(verdicts: list[Verdict]) -> None:
    """Print a line for each verdict."""
    width = max(len(verdict.what) for verdict in verdicts)
    print(f"\n{'targets':{width + 2}} {'measured':>10}   wanted")
    for verdict in verdicts:
        wanted = f"{verdict.side} {verdict.bound:g}"
        print(f"  {verdict.what:{width}} {verdict.measured:10.3g}   {wanted:14} {verdict.outcome()}")
