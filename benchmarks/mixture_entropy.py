"""Entropies of Gaussian mixtures: against a loop over compositions under jit, and error against time for each way."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import logsumexp

from benchmarks.case import Case, Table
from benchmarks.goals import Speedup, Verdict
from benchmarks.peers import optional
from skjaxwin import count_compiles, gaussian_mixture_entropy, gaussian_mixture_entropy_bounds


def mixture(seed: int, n_components: int, n_features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n_components, n_features, n_features))
    covariances = root @ root.swapaxes(1, 2) + 0.3 * np.eye(n_features)
    return rng.dirichlet(np.ones(n_components)), 2 * rng.normal(size=(n_components, n_features)), covariances


def partitions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in partitions(total - first, parts - 1):
            yield first, *rest


def looped_legendre(weights, means, covariances, order):
    """Write the series as a Python loop over compositions, each traced by itself."""
    m, d = means.shape
    bound = sum(weights[i] / jnp.sqrt(jnp.linalg.det(2 * jnp.pi * covariances[i])) for i in range(m))
    precisions = [jnp.linalg.inv(covariances[i]) for i in range(m)]
    entropy = -jnp.log(bound) + sum(1 / i for i in range(1, order + 1)) + sum(1 / i for i in range(1, order + 2))
    for k in range(1, order + 1):
        moment = 0.0
        for counts in partitions(k + 1, m):
            factor = math.factorial(k + 1) / math.prod(math.factorial(j) for j in counts)
            total = sum(counts[i] * precisions[i] for i in range(m))
            centre = jnp.linalg.solve(total, sum(counts[i] * precisions[i] @ means[i] for i in range(m)))
            exponent = (d * jnp.log(2 * jnp.pi) - jnp.linalg.slogdet(total)[1]) / 2
            for i in range(m):
                away = centre - means[i]
                peak = jnp.log(weights[i]) - jnp.linalg.slogdet(2 * jnp.pi * covariances[i])[1] / 2
                exponent += counts[i] * (peak - away @ precisions[i] @ away / 2)
            moment += factor * jnp.exp(exponent)
        entropy += (-1) ** k / k * math.comb(order, k) * math.comb(order + k + 1, k) * moment / bound**k
    return entropy


def first_result() -> Case:
    """Time the first result of a new process's worth of compiling."""
    parameters = mixture(0, 3, 3)

    def package():
        jax.clear_caches()
        return gaussian_mixture_entropy(*parameters, order=6)

    def loop():
        jax.clear_caches()
        with jax.enable_x64(True):
            return float(jax.jit(lambda *arrays: looped_legendre(*arrays, order=6))(*parameters))

    gaussian_mixture_entropy([1.0], [[0.0]], [[[1.0]]])  # start JAX before the clock runs
    return Case(
        "first result, order 6, M = 3, d = 3 (116 terms)",
        {"skjaxwin": package, "Python loop over compositions, jit": loop},
        warm=False,
        runs=1,
        tolerance=1e-8,
        speedups=(Speedup("first result, order 6, M = 3, d = 3", ("Python loop over compositions, jit",), 20),),
    )


def seconds_of(function: Callable[[], float], runs: int = 15) -> float:
    function()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def speed_table() -> Table:
    """State the time of a call after compiling, for each number of terms, and the number of compiles."""
    jax.clear_caches()
    lines, verdicts = [f"{'':24} {'terms':>8} {'ms':>8}"], []
    with count_compiles() as compiles:
        for n_components, d, order in ((2, 1, 10), (3, 3, 6), (5, 2, 10), (6, 1, 10), (8, 2, 10), (8, 2, 16)):
            parameters = mixture(1, n_components, d)
            n_terms = math.comb(order + 1 + n_components, n_components) - 1 - n_components
            runs = 15 if n_terms < 10**5 else 3
            seconds = seconds_of(lambda p=parameters, o=order: gaussian_mixture_entropy(*p, order=o), runs)
            name = f"M = {n_components}, d = {d}, N = {order}"
            lines.append(f"{name:24} {n_terms:8d} {seconds * 1e3:8.2f}")
            if (n_components, d, order) == (5, 2, 10):
                verdicts.append(Verdict("milliseconds, M = 5, d = 2, order 10", seconds * 1e3, 5.0, "at most"))
    lines.append(f"compiles for all: {compiles.count} (d = 1, 2, 3), {compiles.seconds:.1f} s")
    jax.clear_caches()
    with count_compiles() as compiles:
        start = time.perf_counter()
        gaussian_mixture_entropy(*mixture(1, 2, 2))
        first = time.perf_counter() - start
        for n_components, order in itertools.product(range(2, 9), range(1, 17)):
            gaussian_mixture_entropy(*mixture(1, n_components, 2), order=order)
    verdicts.append(Verdict("compiles, orders 1..16, 2..8 components", compiles.count, 4, "at most"))
    verdicts.append(Verdict("seconds of the first call, d = 2", first, 2.0, "at most"))
    return Table("a call after compiling", lines, tuple(verdicts))


def sampled(weights, means, covariances, n_samples, seed=0) -> float:
    """Average the log density over plain Monte Carlo samples, with NumPy and SciPy."""
    rng = np.random.default_rng(seed)
    component = rng.choice(len(weights), size=n_samples, p=weights)
    roots = np.linalg.cholesky(covariances)
    x = means[component] + np.einsum("nij,nj->ni", roots[component], rng.normal(size=(n_samples, means.shape[1])))
    inverse = np.linalg.inv(roots)
    log_peaks = np.log(weights) - np.linalg.slogdet(2 * np.pi * covariances)[1] / 2
    parts = [
        peak - (((x - mean) @ root.T) ** 2).sum(axis=1) / 2
        for peak, mean, root in zip(log_peaks, means, inverse, strict=True)
    ]
    return float(-logsumexp(parts, axis=0).mean())


def error_table(name: str, parameters: tuple) -> Table:
    """Compare error and time of each way, the truth being a long quasi-Monte Carlo run."""
    info = gaussian_mixture_entropy(*parameters, method="sobol", n_samples=2**20, return_info=True)
    truth = info.entropy
    ways: dict[str, Callable[[], float]] = {
        f"{method}, N = {order}": lambda m=method, o=order: gaussian_mixture_entropy(*parameters, method=m, order=o)
        for order in (5, 10, 14)
        for method in ("legendre", "dimension_matched", "legendre_offdiagonal", "taylor")
    }
    ways["sobol, 2^15 points"] = lambda: gaussian_mixture_entropy(*parameters, method="sobol")
    ways["auto"] = lambda: gaussian_mixture_entropy(*parameters, method="auto")
    if parameters[1].shape[1] <= 3:
        ways["quadrature"] = lambda: gaussian_mixture_entropy(*parameters, method="quadrature")
    ways["lower bound, N = 8"] = lambda: gaussian_mixture_entropy_bounds(*parameters)[0]
    ways["upper bound, N = 8"] = lambda: gaussian_mixture_entropy_bounds(*parameters)[1]
    for n in (10**3, 10**4, 10**5, 10**6):
        ways[f"NumPy Monte Carlo, {n:.0e}"] = lambda n=n: sampled(*parameters, n)
    for name_, title in (("elk", "ELK (lower)"), ("kde", "KDE")):
        if (peer := optional(f"mixentropy.np.{name_}_estimator")) is not None:
            ways[f"mixentropy {title}"] = lambda peer=peer: peer.estimate(*parameters)
    lines = [f"{'':28} {'error':>9} {'ms':>8}"]
    for way, function in ways.items():
        # Of Monte Carlo, a root mean square over seeds: a single error may be small by chance.
        if way.startswith("NumPy"):
            n = int(float(way.split(", ")[1]))
            errors = [sampled(*parameters, n, seed) - truth for seed in range(8 if n < 10**6 else 2)]
            error = math.sqrt(statistics.fmean(e * e for e in errors))
        else:
            error = abs(function() - truth)
        lines.append(f"{way:28} {error:9.1e} {seconds_of(function, 5) * 1e3:8.2f}")
    return Table(f"{name}: error against {truth:.5f} +- {info.standard_error:.0e}, and time of a later call", lines)


def cases() -> Iterator[Case | Table]:
    """Yield the cases."""
    yield first_result()
    yield speed_table()
    overlap = (np.array([0.5, 0.5]), np.array([[-1.0], [1.0]]), np.ones((2, 1, 1)))
    yield error_table("two overlapping, d = 1", overlap)
    yield error_table("five random, d = 2", mixture(3, 5, 2))
    yield error_table("three random, d = 5", mixture(4, 3, 5))
