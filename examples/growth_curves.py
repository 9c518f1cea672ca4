"""How early does a growth curve tell where it will end? Logistic growth on expanding windows.

Forty simulated months of a product's users follow a logistic curve, counted with an error of 3 %. After each month the
curve is fitted to all counts so far by weighted least squares, one compile for all windows, and its ceiling
is compared with the true one. The newest fit is compared with scipy's curve_fit.

python examples/growth_curves.py [FIGURE]
"""

import importlib.util
import sys

import jax.numpy as jnp
import numpy as np
from scipy.optimize import curve_fit

from skjaxwin import RollingJaxEstimator, count_compiles, models

MONTHS, CEILING, RATE, MIDDLE = 40, 500.0, 0.25, 20.0


def growth(params, X):
    """Users after X[:, 0] months, in thousands."""
    return params["ceiling"] / (1 + jnp.exp(-params["rate"] * (X[:, 0] - params["middle"])))


def growth_in_numpy(t, ceiling, rate, middle):
    return ceiling / (1 + np.exp(-rate * (t - middle)))


def main(path=None):
    rng = np.random.default_rng(1)
    # Four counts a month.
    months = np.repeat(np.arange(1.0, MONTHS + 1), 4)
    level = growth_in_numpy(months, CEILING, RATE, MIDDLE)
    users = level * (1 + 0.03 * rng.normal(size=len(months)))
    weight = 1 / (0.03 * users) ** 2

    start = {"ceiling": 200.0, "rate": 0.3, "middle": 15.0}
    upper = {"ceiling": 1e4, "rate": 5.0, "middle": 100.0}
    model = models.LeastSquares(growth, start, lower=0.0, upper=upper)
    rolling = RollingJaxEstimator(model, time=0, min_periods=40)  # ten months
    X = np.column_stack([months, months])  # the time stamp, and the feature
    with count_compiles() as compiles:
        rolling.fit(X, users, weight)
    ceiling, ends = rolling.params_["ceiling"], rolling.window_times_
    print(f"{len(ends)} windows, {int(rolling.converged_.sum())} converged: {', '.join(compiles.names)}")
    print("month  ceiling  middle  condition")
    for month in (10, 12, 16, 20, 24, 30, 40):
        i = int(np.searchsorted(ends, month))
        at_bound = "  (at its bound)" if ceiling[i] == upper["ceiling"] else ""
        print(
            f"{month:5d} {ceiling[i]:8.1f} {rolling.params_['middle'][i]:7.1f} {rolling.condition_[i]:10.1f}{at_bound}"
        )

    expected, _ = curve_fit(growth_in_numpy, months, users, p0=list(start.values()), sigma=1 / np.sqrt(weight))
    found = np.array([rolling.params_[name][-1] for name in start])
    difference = np.max(np.abs(found / expected - 1))
    print(f"newest window against scipy's curve_fit: parameters differ by at most {difference:.0e}")
    assert difference < 1e-5

    wrong = np.abs(ceiling / CEILING - 1) > 0.1
    since = ends[np.flatnonzero(wrong)[-1] + 1]
    print(
        f"The ceiling of {CEILING:g} is known within 10 % only from month {since:g} on; growth is fastest in month "
        f"{MIDDLE:g}. Before that the counts hardly say where growth will end, however well they are fitted."
    )
    if path is not None:
        draw(path, months, users, rolling)


def draw(path, months, users, rolling):
    """Draw the counts with some of the curves, and the ceiling by month."""
    if importlib.util.find_spec("matplotlib") is None:
        print("no figure: matplotlib is not installed")
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(months, users, ".", color="0.6", label="counts")
    t = np.linspace(1, MONTHS, 200)
    for month in (12, 16, 20, 30):
        i = int(np.searchsorted(rolling.window_times_, month))
        params = {name: values[i] for name, values in rolling.params_.items()}
        left.plot(t, growth_in_numpy(t, **params), label=f"known up to month {month}")
    left.set(xlabel="month", ylabel="users (thousands)", ylim=(0, 1.6 * CEILING))
    left.legend()
    right.semilogy(rolling.window_times_, rolling.params_["ceiling"], label="fitted ceiling")
    right.axhline(CEILING, color="0.6", label="true ceiling")
    right.axvline(MIDDLE, color="0.6", linestyle=":", label="fastest growth")
    right.set(xlabel="last month known", ylabel="ceiling (thousands)")
    right.legend()
    figure.savefig(path, dpi=120)
    print(f"figure written to {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
