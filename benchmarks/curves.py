"""Curves and likelihoods of a user's own in windows: growth curves against curve_fit, GARCH(1,1) against arch."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import curve_fit

from benchmarks.case import Case
from benchmarks.goals import Speedup
from benchmarks.peers import optional
from skjaxwin import RollingJaxEstimator, models

N_WINDOWS, POINTS, DAYS = 500, 60, 1000
CURVE_START = {"most": 80.0, "rate": 0.5, "middle": 8.0}
GARCH_START = {"mu": 0.05, "omega": 0.02, "alpha": 0.1, "beta": 0.88}


def growth(params, X):
    return params["most"] / (1 + jnp.exp(-params["rate"] * (X[:, 0] - params["middle"])))


def growth_in_numpy(t, most, rate, middle):
    return most / (1 + np.exp(-rate * (t - middle)))


def garch(params, X, y, weight):
    """Gaussian likelihood with the first variance that arch takes: a mean of the first 75 squares."""
    square = (y - params["mu"]) ** 2
    there = weight > 0
    rank = jnp.cumsum(there) - 1
    decay = jnp.where(there & (rank < 75), 0.94**rank, 0.0)
    before = jnp.sum(decay * (y - jnp.sum(weight * y) / jnp.sum(weight)) ** 2) / jnp.sum(decay)

    def day(state, row):
        (variance, loss), (square, w) = state, row
        after = params["omega"] + params["alpha"] * square + params["beta"] * variance
        more = loss + w * (jnp.log(variance) + square / variance) / 2
        return (jnp.where(w > 0, after, variance), jnp.where(w > 0, more, loss)), None

    first = params["omega"] + (params["alpha"] + params["beta"]) * before
    return jax.lax.scan(day, (first, 0.0), (square, weight))[0][1]


def garch_in_numpy(params, windows):
    """The same of each row of `windows`, with parameters of its own."""
    mu, omega, alpha, beta = params.T
    square = (windows - mu[:, None]) ** 2
    decay = 0.94 ** np.arange(75)
    before = (windows - windows.mean(axis=1, keepdims=True))[:, :75] ** 2 @ decay / decay.sum()
    variance, loss = omega + (alpha + beta) * before, 0.0
    for one in square.T:
        loss = loss + (np.log(variance) + one / variance) / 2
        variance = omega + alpha * one + beta * variance
    return loss / windows.shape[1]


def simulated_returns(n):
    rng = np.random.default_rng(0)
    out, variance = np.zeros(n), 1.0
    for i in range(n):
        out[i] = 0.05 + np.sqrt(variance) * rng.normal()
        variance = 0.02 + 0.1 * (out[i] - 0.05) ** 2 + 0.88 * variance
    return out


def cases() -> Iterator[Case]:
    """Yield the growth curves and the volatilities."""
    n = N_WINDOWS + POINTS - 1
    rng = np.random.default_rng(0)
    t = np.arange(n) % POINTS / 3
    y = growth_in_numpy(t, 100, 0.6, 9) * (1 + 0.1 * np.sin(np.arange(n) / 80)) + rng.normal(size=n)
    curves = RollingJaxEstimator(models.LeastSquares(growth, CURVE_START), window=POINTS, min_periods=POINTS)

    def package():
        params = curves.fit(t[:, None], y).params_
        return np.stack([params[name] for name in CURVE_START], axis=-1)

    def loop(warm):
        found, start = [], list(CURVE_START.values())
        for i in range(N_WINDOWS):
            rows = slice(i, i + POINTS)
            found.append(curve_fit(growth_in_numpy, t[rows], y[rows], p0=start, ftol=1e-10, xtol=1e-10)[0])
            start = found[-1] if warm else start
        return np.array(found)

    yield Case(
        f"growth curves, {N_WINDOWS} windows of {POINTS} rows",
        {
            "skjaxwin, LeastSquares": package,
            "curve_fit loop, warm starts": lambda: loop(True),
            "curve_fit loop": lambda: loop(False),
        },
        tolerance=1e-5,
        speedups=(Speedup("growth curves: a curve_fit loop", ("curve_fit loop", "curve_fit loop, warm starts"), 20),),
    )
    yield volatilities()


def volatilities() -> Case:
    """Return the case of GARCH(1,1); the error is by how much the mean loss exceeds the least found."""
    returns = simulated_returns(N_WINDOWS + DAYS - 1)
    nothing = np.zeros((len(returns), 1))
    bounds = {"lower": {"omega": 0, "alpha": 0, "beta": 0}, "upper": {"alpha": 1, "beta": 1}}
    model = models.Loss(garch, GARCH_START, per_row=False, **bounds)
    rolling = RollingJaxEstimator(model, window=DAYS, min_periods=DAYS)
    losses: dict[str, np.ndarray] = {}

    def package():
        params = rolling.fit(nothing, returns).params_
        return np.stack([params[name] for name in GARCH_START], axis=-1)

    def loop():
        found, start = [], np.array(list(GARCH_START.values()))
        for i in range(N_WINDOWS):
            one = arch.arch_model(returns[i : i + DAYS], vol="GARCH", p=1, q=1, rescale=False)
            start = one.fit(starting_values=start, disp="off", show_warning=False).params.to_numpy()
            found.append(start)
        return np.array(found)

    ways = {"skjaxwin, Loss": package}
    arch = optional("arch")
    if arch is not None:
        ways["arch loop, warm starts"] = loop

    def remembered(name, way):
        params = way()
        losses[name] = params
        return params

    def error(name, params):
        windows = np.lib.stride_tricks.sliding_window_view(returns, DAYS)
        least = np.min([garch_in_numpy(one, windows) for one in losses.values()], axis=0)
        return float(np.max(garch_in_numpy(params, windows) - least))

    return Case(
        f"GARCH(1,1), {N_WINDOWS} windows of {DAYS} days",
        {name: functools.partial(remembered, name, way) for name, way in ways.items()},
        runs=3,
        tolerance=1e-9,
        error=error,
        once=("arch loop, warm starts",),
        speedups=(Speedup("GARCH(1,1): an arch loop", ("arch loop, warm starts",), 10),),
    )
