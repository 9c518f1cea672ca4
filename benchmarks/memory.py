"""Peak memory of least squares on a million rolling windows, beyond what goes in and comes out.

The fit has a process of its own, so that nothing else counts; the interpreter and JAX do.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.case import Table
from benchmarks.goals import Verdict
from skjaxwin import RollingJaxEstimator, models

N_ROWS, N_FEATURES, WINDOW = 1_000_000, 32, 252
MOST_BYTES = 1e9
STATUS = Path("/proc/self/status")


def peak() -> float:
    """Return the most bytes this process has held, or NaN where the system does not say.

    ``resource.getrusage`` would count the parent's peak too.
    """
    if not STATUS.exists():
        return math.nan
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return float(line.split()[1]) * 1024


def fit(n_rows: int, n_features: int) -> dict[str, float]:
    """Fit every window and return sizes in bytes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_features))
    y = X[:, 0] + rng.normal(size=n_rows)
    before = peak()
    params = RollingJaxEstimator(models.Linear(), window=WINDOW).fit(X, y).params_
    return {
        "input": X.nbytes + y.nbytes,
        "output": sum(array.nbytes for array in params.values()),
        "peak before the fit": before,
        "peak": peak(),
    }


def cases() -> Iterator[Table]:
    """Yield one table."""
    command = [sys.executable, "-m", "benchmarks.memory", str(N_ROWS), str(N_FEATURES)]
    sizes = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    beyond = sizes["peak"] - sizes["input"] - sizes["output"]
    lines = [f"{name:34} {size / 1e6:9.0f}" for name, size in {**sizes, "peak beyond input and output": beyond}.items()]
    verdict = Verdict(f"bytes beyond input and output, k = {N_FEATURES}", beyond, MOST_BYTES, "at most")
    yield Table(f"memory in MB: rolling({WINDOW}), n = {N_ROWS}, k = {N_FEATURES}", lines, (verdict,))


if __name__ == "__main__":
    print(json.dumps(fit(*map(int, sys.argv[1:]))))
