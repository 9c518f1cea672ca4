"""Which penalty and which window forecast US inflation best, out of sample?

Every expanding and rolling window of the quarterly series is fitted for 13 penalties and four kinds
of window; each quarter is forecast by the newest fit that ended before it.
All candidates are compared on the quarters that every one of them can forecast.

    python examples/macro_inflation.py               prints the table
    python examples/macro_inflation.py figure.png    also draws it (needs matplotlib)
"""

import importlib.util
import sys

import numpy as np

from skjaxwin import RollingJaxEstimator, count_compiles, models, walk_forward_grid
from skjaxwin.datasets import load_us_macro

WINDOWS = ["expanding", 120, 80, 40]
ALPHAS = np.logspace(-1, 5, 13)


def main(path=None):
    macro = load_us_macro()
    rolling = RollingJaxEstimator(models.Linear(), min_periods=40)
    with count_compiles() as compiles:
        grid = walk_forward_grid(
            rolling, macro.data, macro.target, param_grid={"window": WINDOWS, "model__alpha": ALPHAS}
        )
    known = np.isfinite(grid.predictions).all(axis=0)
    # Compare each forecast with the inflation of the quarter before, the first feature.
    naive = np.sqrt(np.mean((macro.data[known, 0] - macro.target[known]) ** 2))
    squares = np.mean((grid.predictions[:, known] - macro.target[known]) ** 2, axis=1)
    error = {
        (candidate["window"], candidate["model__alpha"]): np.sqrt(square)
        for candidate, square in zip(grid.candidates, squares, strict=True)
    }

    fits = sum(len(times) for times in grid.window_times)
    print(f"{fits} fits, {compiles.count} compiles ({', '.join(compiles.names)}), {known.sum()} quarters forecast")
    print("RMSE, % a year " + "".join(f"{window!s:>12}" for window in WINDOWS))
    for alpha in ALPHAS:
        print(f"alpha {alpha:9.4g}" + "".join(f"{error[window, alpha]:12.4f}" for window in WINDOWS))
    best_window, best_alpha = min(error, key=error.get)
    print(f"inflation of the quarter before: {naive:.4f}")
    print(f"best in hindsight: window={best_window!r}, alpha={best_alpha:.4g}")

    if path is not None:
        draw(path, macro, grid, error, (best_window, best_alpha))


def draw(path, macro, grid, error, best):
    """Draw errors by penalty and window, and the best candidate's forecasts."""
    if importlib.util.find_spec("matplotlib") is None:
        print("no figure: matplotlib is not installed")
        return
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for window in WINDOWS:
        left.semilogx(ALPHAS, [error[window, alpha] for alpha in ALPHAS], marker=".", label=f"window={window}")
    left.set(xlabel="alpha", ylabel="out-of-sample RMSE (% a year)")
    left.legend()
    position = [(c["window"], c["model__alpha"]) for c in grid.candidates].index(best)
    right.plot(macro.time, macro.target, color="0.6", label="inflation")
    right.plot(macro.time, grid.predictions[position], label="forecast")
    right.set(xlabel="quarter", ylabel="% a year")
    right.legend()
    figure.savefig(path, dpi=120)
    print(f"figure written to {path}")


if __name__ == "__main__":
    main(*sys.argv[1:])
