"""WindowSearchCV against GridSearchCV, and how many searches pay back the compile.

The estimators fit one window a fold, as scikit-learn's do: ``step`` is above the number of rows. First runs are timed
in new processes: without a compilation cache on disk, and with one that another process has filled.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold, TimeSeriesSplit

from benchmarks.case import Table
from benchmarks.goals import Verdict
from skjaxwin import RollingJaxEstimator, WindowSearchCV, models

ROWS, FEATURES, ALL = 5000, 8, 10**6
RUNS, LONG = 5, 4.0  # searches that take longer are run less often


@dataclass(frozen=True)
class Job:
    """The same search by both, and the ratios wanted, if any: of later runs, and of first ones."""

    title: str
    ours: Callable[[], Any]
    peer: Callable[[], Any]
    later: float = 0
    first: float = 0
    peer_compiles: bool = False


def data():
    """Return features, a target and classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, FEATURES))
    y = X @ rng.normal(size=FEATURES) + rng.normal(size=ROWS)
    return X, y, (y > 0).astype(int)


def network():
    """Return a network of 16 hidden units, trained by 100 steps of gradient descent."""

    def fit(X, y, weight, rate):
        share = weight / jnp.sum(weight)
        keys = jax.random.split(jax.random.key(0))
        first = 0.3 * jax.random.normal(keys[0], (X.shape[1], 16)), 0.3 * jax.random.normal(keys[1], (16,))

        def loss(params):
            return jnp.sum(share * (jnp.tanh(X @ params[0]) @ params[1] - y) ** 2)

        def step(params, _):
            slopes = jax.grad(loss)(params)
            return tuple(one - rate * slope for one, slope in zip(params, slopes, strict=True)), None

        return jax.lax.scan(step, first, None, length=100)[0]

    return models.Custom(fit, lambda params, X: jnp.tanh(X @ params[0]) @ params[1], rate=0.1)


def jobs() -> dict[str, Job]:
    """Return what is searched."""
    X, y, classes = data()
    alphas, Cs, rates = np.logspace(-3, 3, 50), np.logspace(-3, 3, 20), np.linspace(0.01, 0.2, 20)
    ridge = RollingJaxEstimator(models.Linear(), step=ALL)
    logistic = RollingJaxEstimator(models.Logistic(), step=ALL)
    own = RollingJaxEstimator(network(), step=ALL)
    few, many, five = TimeSeriesSplit(20), TimeSeriesSplit(100), KFold(5)
    rows, target = X[:4000], y[:4000]
    few_rows, few_targets, few_classes = X[:500], y[:500], classes[:500]
    return {
        "ridge": Job(
            "50 alphas x TimeSeriesSplit(20), n = 5000, k = 8; peer: Ridge",
            lambda: WindowSearchCV(ridge, {"model__alpha": alphas}, cv=few).fit(X, y),
            lambda: GridSearchCV(Ridge(), {"alpha": alphas}, cv=few).fit(X, y),
            30,
            1,
        ),
        "logistic": Job(
            "20 C x TimeSeriesSplit(100), n = 5000, k = 8; peer: LogisticRegression",
            lambda: WindowSearchCV(logistic, {"model__C": Cs}, cv=many).fit(X, classes),
            lambda: GridSearchCV(LogisticRegression(), {"C": Cs}, cv=many).fit(X, classes),
            10,
            2,
        ),
        "network": Job(
            "16 hidden units, 100 steps, 20 rates x 5 folds, n = 4000; peer: the same model in GridSearchCV",
            lambda: WindowSearchCV(own, {"model__rate": rates}, cv=five).fit(rows, target),
            lambda: GridSearchCV(own, {"model__rate": rates}, cv=five).fit(rows, target),
            1,
            1,
            peer_compiles=True,
        ),
        "ridge, small": Job(
            "10 alphas x 5 folds, n = 500, k = 8; peer: Ridge",
            lambda: WindowSearchCV(ridge, {"model__alpha": alphas[::5]}, cv=five).fit(few_rows, few_targets),
            lambda: GridSearchCV(Ridge(), {"alpha": alphas[::5]}, cv=five).fit(few_rows, few_targets),
        ),
        "logistic, small": Job(
            "10 C x 5 folds, n = 500, k = 8; peer: LogisticRegression",
            lambda: WindowSearchCV(logistic, {"model__C": Cs[::2]}, cv=five).fit(few_rows, few_classes),
            lambda: GridSearchCV(LogisticRegression(), {"C": Cs[::2]}, cv=five).fit(few_rows, few_classes),
        ),
    }


def first_run(name: str, which: str, cache: str | None = None) -> float:
    """Time the first run in a new process."""
    environment = dict(os.environ)
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    if cache is not None:
        environment |= {"JAX_COMPILATION_CACHE_DIR": cache, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    command = [sys.executable, "-m", "benchmarks.window_search", name, which]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def seconds(call: Callable[[], Any]) -> float:
    """Time one call."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def cases() -> Iterator[Table]:
    """Yield one table for all searches."""
    lines = [
        f"{'':16}{'later':>8}{'peer':>8}{'ratio':>7}{'first':>8}{'ratio':>7}{'cached':>8}{'break-even':>12}{'cached':>8}"
    ]
    verdicts = []
    for name, job in jobs().items():
        ours, peer = job.ours(), job.peer()
        differ = np.abs(ours.cv_results_["mean_test_score"] - peer.cv_results_["mean_test_score"]).max()
        if not differ < 5e-3:  # peers stop earlier, which turns a label or two
            raise AssertionError(f"{job.title}: scores differ by {differ:.1e}")
        mine, its = [], []
        while len(its) < RUNS and sum(its) < LONG:
            mine.append(seconds(job.ours))
            its.append(seconds(job.peer))
        later, peers = statistics.median(mine), statistics.median(its)
        first = first_run(name, "ours")
        peers_first = first_run(name, "peer") if job.peer_compiles else peers
        with tempfile.TemporaryDirectory() as cache:
            first_run(name, "ours", cache)
            cached = first_run(name, "ours", cache)
        even, even_cached = (break_even(one, later, peers_first, peers) for one in (first, cached))
        lines.append(
            f"{name:16}{later:8.3f}{peers:8.2f}{peers / later:7.1f}{first:8.2f}{peers_first / first:7.1f}{cached:8.2f}"
            f"{even:>12}{even_cached:>8}"
        )
        lines.append(f"{'':16}{job.title}")
        if not job.later:
            continue
        verdicts += [
            Verdict(f"{name}: GridSearchCV over WindowSearchCV, later runs", peers / later, job.later, "at least"),
            Verdict(f"{name}: GridSearchCV over WindowSearchCV, first run", peers_first / first, job.first, "at least"),
        ]
    yield Table(
        "Whole searches with refit, seconds; break-even: searches in one process until the compile is paid back",
        lines,
        tuple(verdicts),
    )


def break_even(first: float, later: float, peers_first: float, peers: float) -> str:
    """Return after how many searches the sum of all times is below the peer's."""
    ahead = peers_first - first
    if ahead >= 0:
        return "1"
    return "never" if later >= peers else str(1 + math.ceil(-ahead / (peers - later)))


if __name__ == "__main__":
    job = jobs()[sys.argv[1]]
    print(seconds(job.ours if sys.argv[2] == "ours" else job.peer))
