"""Betas of industries on four factors, month by month, with standard errors robust to autocorrelation.

Twelve US industry portfolios (Kenneth French's library, 1949-2017) are regressed on the market, size, value and
momentum over the last 60 months, in one fit with twelve targets. A beta that was estimated at the end of one month is
then held against the return of the next: hedging with it is out of sample.

The data come with the package linearmodels (pip install linearmodels). python examples/factor_betas.py [FIGURE]
"""

import importlib.util
import sys

import numpy as np

from skjaxwin import RollingJaxEstimator, count_compiles, models

FACTORS = ["MktRF", "SMB", "HML", "Mom"]
INDUSTRIES = [
    "NoDur", "Durbl", "Manuf", "Enrgy", "Chems", "BusEq", "Telcm", "Utils", "Shops", "Hlth", "Money", "Other",
]  # fmt: skip
WINDOW, LAGS = 60, 3


def load():
    """Return months, factors and excess returns in per cent, or None if the package with the data is not installed."""
    if importlib.util.find_spec("linearmodels") is None:
        print("nothing to show: the data come with the package linearmodels (pip install linearmodels)")
        return None
    from linearmodels.datasets import french

    table = french.load()
    excess = table[INDUSTRIES].sub(table["RF"], axis=0)
    return table["dates"].to_numpy(), 100 * table[FACTORS].to_numpy(), 100 * excess.to_numpy()


def hedged(factors, returns, rolling):
    """Return what is left of each month's returns after hedging with the betas of the month before; NaN at first."""
    left = np.full_like(returns, np.nan)
    known = rolling.window_stops_[:-1]  # the betas known at the end of row stop - 1 hedge row `stop`
    left[known] = returns[known] - np.einsum("wmk,wk->wm", rolling.params_["coef"][:-1], factors[known])
    return left


def plot(dates, rolling, path):
    """Draw the market beta of three industries with two standard errors to each side."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 1, sharex=True, figsize=(8, 7), layout="constrained")
    days = dates[rolling.window_stops_ - 1]
    for axis, name in zip(axes, ("Utils", "BusEq", "Money"), strict=True):
        i = INDUSTRIES.index(name)
        beta, error = rolling.params_["coef"][:, i, 0], rolling.standard_errors_["coef"][:, i, 0]
        axis.fill_between(days, beta - 2 * error, beta + 2 * error, alpha=0.25)
        axis.plot(days, beta, label=f"{name}: market beta, 60 months, +- 2 HAC errors")
        axis.axhline(1, color="black", linewidth=0.5)
        axis.legend(loc="upper left")
    figure.savefig(path, dpi=120)


def main():
    """Fit, print, and draw if a path is given."""
    data = load()
    if data is None:
        return
    dates, factors, returns = data
    rolling = RollingJaxEstimator(models.Linear(), window=WINDOW, min_periods=WINDOW, inference="HAC", hac_maxlags=LAGS)
    with count_compiles() as compiles:
        rolling.fit(factors, returns)
    n_windows, n_industries, _ = rolling.params_["coef"].shape
    print(f"{n_windows} windows x {n_industries} industries, {compiles.count} compiles")
    left = hedged(factors, returns, rolling)
    rows = ~np.isnan(left[:, 0])
    share = 1 - left[rows].var(axis=0) / returns[rows].var(axis=0)
    within = np.mean(rolling.r2_, axis=0)
    differs = np.mean(np.abs(rolling.t_values_["coef"][:, :, 1:]) > 2, axis=0)
    print("industry  R2 within  variance hedged out of sample  share of windows with |t| > 2: size value momentum")
    for name, inside, outside, each in zip(INDUSTRIES, within, share, differs, strict=True):
        print(f"{name:8}  {inside:9.2f}  {outside:29.2f}  " + " ".join(f"{value:5.2f}" for value in each))
    print(
        f"What the betas of last month remove is less than what they explain in their own window, in "
        f"{np.sum(share < within)} of {n_industries} industries: R2 within a window flatters."
    )
    if len(sys.argv) > 1:
        plot(dates, rolling, sys.argv[1])


if __name__ == "__main__":
    main()
