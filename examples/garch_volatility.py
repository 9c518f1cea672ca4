"""Volatility of the S&P 500 by window: a GARCH(1,1) likelihood of one's own, re-estimated every month.

Every 21 trading days the four parameters are estimated by maximum likelihood on the last 1000 daily returns; the
recursion over the days is a plain ``lax.scan``. Each day's variance is then forecast by the newest estimate
that ended before it, and judged next to an exponentially weighted variance and the variance of the last 250 days.

The data come with the package arch (pip install arch). python examples/garch_volatility.py [FIGURE]
"""

import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np

from skjaxwin import RollingJaxEstimator, count_compiles, models

WINDOW, STEP = 1000, 21
START = {"mu": 0.05, "omega": 0.02, "alpha": 0.1, "beta": 0.88}


def garch(params, X, y, weight):
    """Return minus the log likelihood; days outside the window have weight 0 and leave the state as it is."""
    square = (y - params["mu"]) ** 2

    def day(state, row):
        (variance, loss), (square, w) = state, row
        after = params["omega"] + params["alpha"] * square + params["beta"] * variance
        more = loss + w * (jnp.log(variance) + square / variance) / 2
        return (jnp.where(w > 0, after, variance), jnp.where(w > 0, more, loss)), None

    first = jnp.sum(weight * y**2) / jnp.sum(weight)
    return jax.lax.scan(day, (first, 0.0), (square, weight))[0][1]


def load():
    """Return the days and the returns in per cent, or None if the package with the data is not installed."""
    if importlib.util.find_spec("arch") is None:
        print("nothing to show: the data come with the package arch, which is not installed (pip install arch)")
        return None
    from arch.data import sp500

    prices = sp500.load()["Adj Close"].dropna()
    return prices.index.to_numpy()[1:], 100 * np.diff(np.log(prices.to_numpy()))


def forecasts(returns, rolling):
    """Return each day's variance under the newest parameters that were estimated before it; NaN before."""
    out = np.full(len(returns), np.nan)
    stops = rolling.window_stops_
    for i, (start, stop) in enumerate(zip(rolling.window_starts_, stops, strict=True)):
        mu, omega, alpha, beta = (rolling.params_[name][i] for name in START)
        until = stops[i + 1] if i + 1 < len(stops) else len(returns)
        variance = np.mean(returns[start:stop] ** 2)
        for day in range(start, until):
            if day >= stop:
                out[day] = variance
            variance = omega + alpha * (returns[day] - mu) ** 2 + beta * variance
    return out


def weighted(returns, share=0.94):
    out = np.zeros(len(returns))
    out[0] = np.var(returns[:250])
    for day in range(1, len(returns)):
        out[day] = share * out[day - 1] + (1 - share) * returns[day - 1] ** 2
    return out


def main(path=None):
    loaded = load()
    if loaded is None:
        return
    days, returns = loaded
    bounds = {"lower": {"omega": 0, "alpha": 0, "beta": 0}, "upper": {"alpha": 1, "beta": 1}}
    model = models.Loss(garch, START, per_row=False, **bounds)
    rolling = RollingJaxEstimator(model, window=WINDOW, step=STEP, min_periods=WINDOW)
    with count_compiles() as compiles:
        rolling.fit(np.zeros((len(returns), 1)), returns)
    print(
        f"{len(rolling.window_stops_)} windows of {WINDOW} days up to {str(days[-1])[:10]}, "
        f"{int(rolling.converged_.sum())} converged, {rolling.n_iter_.mean():.1f} Newton steps each: "
        f"{', '.join(compiles.names)}"
    )
    persistence = rolling.params_["alpha"] + rolling.params_["beta"]
    print(f"alpha + beta between {persistence.min():.3f} and {persistence.max():.3f}")

    variances = {
        "GARCH(1,1) by window": forecasts(returns, rolling),
        "exponentially weighted": weighted(returns),
        "last 250 days": np.r_[
            np.full(250, np.nan), np.lib.stride_tricks.sliding_window_view(returns, 250)[:-1].var(axis=1)
        ],
    }
    known = np.isfinite(variances["GARCH(1,1) by window"])
    # The mean of log(variance) + return^2 / variance is least for the true variances (Patton, 2011).
    losses = {name: np.log(v[known]) + returns[known] ** 2 / v[known] for name, v in variances.items()}
    print(f"{known.sum()} days forecast one day ahead; mean of log(variance) + return^2 / variance:")
    for name, loss in losses.items():
        print(f"  {name:24} {loss.mean():.4f}")
    best, second = sorted(losses, key=lambda name: losses[name].mean())[:2]
    gap = losses[second] - losses[best]
    # Losses of neighbouring days go together: blocks of a quarter for the error of their mean.
    blocks = np.array([part.mean() for part in np.array_split(gap, len(gap) // 63)])
    error = blocks.std(ddof=1) / np.sqrt(len(blocks))
    verdict = "more than twice" if gap.mean() > 2 * error else "less than twice"
    print(
        f"Least loss: {best}, before {second} by {gap.mean():.4f}, {verdict} its standard error of {error:.4f}. Four "
        "parameters estimated anew each month say how large the next move may be, and nothing of its direction."
    )
    if path is not None:
        draw(path, days, returns, variances, rolling)


def draw(path, days, returns, variances, rolling):
    """Draw the forecast volatility over the returns, and the parameters by window."""
    if importlib.util.find_spec("matplotlib") is None:
        print("no figure: matplotlib is not installed")
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(days, np.abs(returns), ".", markersize=2, color="0.7", label="absolute return")
    left.plot(days, np.sqrt(variances["GARCH(1,1) by window"]), label="forecast volatility")
    left.set(xlabel="day", ylabel="% a day")
    left.legend()
    ends = days[rolling.window_stops_ - 1]
    for name in ("alpha", "beta"):
        right.plot(ends, rolling.params_[name], label=name)
    right.plot(ends, rolling.params_["alpha"] + rolling.params_["beta"], label="alpha + beta")
    right.set(xlabel=f"last of {WINDOW} days")
    right.legend()
    figure.savefig(path, dpi=120)
    print(f"figure written to {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
