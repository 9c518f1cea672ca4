"""Ranges of a long signal: a thousand of them in compiled code, and a filter over all pieces of a signal."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.case import Table
from benchmarks.goals import Verdict
from benchmarks.memory import peak
from benchmarks.runner import compare
from skjaxwin import isolate, map_pieces

N_POINTS, N_RANGES, LENGTH = 1_000_000, 1000, 1000
N_SIGNAL, PIECE, TAPS = 10_000_000, 10_000, 33
MILLISECONDS_PER_RANGE, TIMES_FASTER = 0.1, 20
RUNS = 5

Ways = dict[str, Callable[[list], np.ndarray]]


def power(y, mask):
    """Something to compute on a range that costs little itself."""
    return jnp.sum(jnp.where(mask, y * y, 0)) / jnp.sum(mask)


def power_in_numpy(y):
    return np.sum(y * y) / len(y)


@jax.jit
def on_the_window(x, y, start, stop):
    _, window, mask = isolate(x, y, start=start, stop=stop, size=1024)
    return power(window, mask)


@jax.jit
def on_each_window(x, y, starts, stops):
    return jax.lax.map(lambda pair: on_the_window(x, y, *pair), (starts, stops))


@jax.jit
def on_all_points(x, y, start, stop):
    return power(y, (x >= start) & (x < stop))


def ways_to_cut(x: np.ndarray, y: np.ndarray) -> Ways:
    """Return functions of a list of (start, stop), the package's first."""
    with jax.enable_x64(True):
        on_device = jax.device_put((x.copy(), y.copy()))

    def call_by_call(function):
        def run(bounds):
            with jax.enable_x64(True):
                return np.array([float(function(*on_device, start, stop)) for start, stop in bounds])

        return run

    def at_once(bounds):
        with jax.enable_x64(True):
            return np.asarray(on_each_window(*on_device, *np.array(bounds).T))

    def isclose(bounds):
        results = []
        for pair in bounds:
            i, j = (np.flatnonzero(np.isclose(x, bound, rtol=0, atol=1e-9))[0] for bound in pair)
            results.append(power_in_numpy(y[i:j]))
        return np.array(results)

    def where(bounds):
        return np.array([power_in_numpy(y[np.where((x >= start) & (x < stop))[0]]) for start, stop in bounds])

    def compiled_for_each(bounds):
        results = []
        with jax.enable_x64(True):
            for start, stop in bounds:
                i, j = (int(row) for row in np.searchsorted(x, [start, stop]))
                cut = jax.jit(lambda y, i, j: power(y[i:j], jnp.ones(j - i, bool)), static_argnums=(1, 2))
                results.append(float(cut(on_device[1], i, j)))
        return np.array(results)

    def sliced(bounds):
        rows = (np.searchsorted(x, pair) for pair in bounds)
        return np.array([power_in_numpy(y[i:j]) for i, j in rows])

    return {
        "isolate, a call for each range": call_by_call(on_the_window),
        "isolate, all ranges in one call": at_once,
        "mask over all points, jitted": call_by_call(on_all_points),
        "isclose over the whole array": isclose,
        "where over the whole array": where,
        "jit for each range": compiled_for_each,
        "searchsorted and slices, NumPy": sliced,
    }


def cuts() -> Table:
    """Time a thousand ranges; ways that take long do fewer of them."""
    rng = np.random.default_rng(0)
    x, y = np.linspace(0, 10, N_POINTS), rng.normal(size=N_POINTS)
    first = rng.integers(0, N_POINTS - LENGTH, N_RANGES)
    bounds = list(zip(x[first].tolist(), x[first + LENGTH].tolist(), strict=True))
    ways = ways_to_cut(x, y)
    few = {"isclose over the whole array": 5, "where over the whole array": 20, "jit for each range": 5}
    few["mask over all points, jitted"] = 100
    compare({name: way(bounds[:5]) for name, way in ways.items()}, 1e-9)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(RUNS + 1):
        for name, way in ways.items():
            some = bounds[: few.get(name, N_RANGES)]
            if name == "jit for each range":
                some = bounds[turn * few[name] : (turn + 1) * few[name]]
            start = time.perf_counter()
            way(some)
            if turn:  # the first run warms up
                seconds[name].append((time.perf_counter() - start) / len(some))
    medians = {name: 1e3 * statistics.median(times) for name, times in seconds.items()}
    ours = next(iter(medians.values()))
    lines = [f"{'':34} {'ms a range':>11} {'ratio':>8}"]
    lines += [f"{name:34} {median:11.4f} {median / ours:8.1f}" for name, median in medians.items()]
    peers = ("isclose over the whole array", "where over the whole array", "jit for each range")
    verdicts = []
    for name, median in list(medians.items())[:2]:
        verdicts.append(Verdict(f"ms a range: {name}", median, MILLISECONDS_PER_RANGE, "at most"))
        verdicts += [Verdict(f"  times faster than {p}", medians[p] / median, TIMES_FASTER, "at least") for p in peers]
    return Table(f"{N_RANGES} ranges of {LENGTH} rows in {N_POINTS} points", lines, tuple(verdicts))


WEIGHTS = np.hanning(TAPS + 2)[1:-1] / np.hanning(TAPS + 2).sum()


def smooth(y, mask):
    """A finite impulse response, written as a sum of shifted signals, which XLA fuses into one pass."""
    del mask
    half = TAPS // 2
    room = jnp.pad(y, half)
    return sum(float(weight) * room[i : i + len(y)] for i, weight in enumerate(WEIGHTS))


def in_pieces(y):
    return map_pieces(smooth, y, size=PIECE, halo=TAPS // 2, output="stitch")


smooth_at_once = jax.jit(smooth)


def in_one_call(y):
    with jax.enable_x64(True):
        return np.asarray(smooth_at_once(y, True))


def numpy_slices(y):
    half, out = TAPS // 2, np.empty_like(y)
    for start in range(0, len(y), PIECE):
        low, stop = max(start - half, 0), min(start + PIECE, len(y))
        piece = np.convolve(y[low : stop + half], WEIGHTS, "same")
        out[start:stop] = piece[start - low : stop - low]
    return out


FILTERS = {
    "map_pieces": in_pieces,
    "one jitted call on the whole array": in_one_call,
    "loop of NumPy slices": numpy_slices,
}


def filter_alone(name: str) -> dict[str, float]:
    """Filter a signal, in this process; seconds, and bytes beyond input and output."""
    y = np.random.default_rng(0).normal(size=N_SIGNAL)
    way = FILTERS[name]
    before = peak()
    first = time.perf_counter()
    result = way(y)
    first = time.perf_counter() - first
    used = peak() - before - result.nbytes
    times = []
    for _ in range(RUNS):
        del result
        start = time.perf_counter()
        result = way(y)
        times.append(time.perf_counter() - start)
    return {"first": first, "median": statistics.median(times), "bytes": used, "sum": float(np.abs(result).sum())}


def filters() -> Table:
    """Run each filter in a process of its own, so that its peak memory is its own."""
    found = {}
    for name in FILTERS:
        command = [sys.executable, "-m", "benchmarks.subset", name]
        found[name] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    compare({name: np.array(one["sum"]) for name, one in found.items()}, 1e-9)
    lines = [f"{'':34} {'median s':>9} {'first run s':>12} {'MB beyond input and output':>27}"]
    for name, one in found.items():
        megabytes = one["bytes"] / 1e6
        lines.append(
            f"{name:34} {one['median']:9.3f} {one['first']:12.3f} "
            + (f"{'?':>27}" if math.isnan(megabytes) else f"{megabytes:27.0f}")
        )
    return Table(f"filter of {TAPS} taps over {N_SIGNAL} points, in pieces of {PIECE}", lines)


def cases() -> Iterator[Table]:
    """Yield two tables."""
    yield cuts()
    yield filters()


if __name__ == "__main__":
    print(json.dumps(filter_alone(*sys.argv[1:])))
