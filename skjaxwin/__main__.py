"""The command line: every window x every hyperparameter of a real series, out of sample."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Any

import numpy as np

from skjaxwin import RollingJaxEstimator, count_compiles, models, walk_forward_grid
from skjaxwin.durations import parse_duration
from skjaxwin.table import Table, TableError, macro_table, read_table, write_predictions

__all__ = ["main"]

_GRID = np.logspace(-3, 5, 25)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : list of str, default=None
        Without the program's name; None takes them from the command line.

    Returns
    -------
    status : int
        0, or 2 if the input cannot be used (the reason is printed).
    """
    options = _parser().parse_args(arguments)
    try:
        name, values = _grid(options.grid)
        table = _read(options)
        _report(table, name, values, options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (TableError, ValueError, TypeError) as error:
        message = " ".join(str(error).split())
        print(f"skjaxwin: {message}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m skjaxwin",
        description="Fit ridge regression on every window of a time series for a grid of penalties, with one "
        "compile, and report the strictly out-of-sample errors. Without a file: US inflation, 1959-2009.",
    )
    parser.add_argument("file", nargs="?", help="CSV file with a header")
    parser.add_argument("--time", metavar="COLUMN", help="time column: dates (2024-01-31 or 20240131) or numbers")
    parser.add_argument("--target", metavar="COLUMN", help="column to predict")
    parser.add_argument("--features", metavar="A,B", help="feature columns (default: all others)")
    parser.add_argument("--window", default="expanding", help="expanding, a number of time stamps, or e.g. 90D")
    parser.add_argument("--step", type=int, default=1, help="refit at every STEP-th time stamp")
    parser.add_argument("--gap", type=int, default=0, help="time stamps between a window and what it predicts")
    parser.add_argument("--min-periods", type=int, help="fewest rows of a window (default: 2 per coefficient)")
    parser.add_argument("--grid", metavar="alpha=A,B", help="penalties to try (default: 25 from 0.001 to 100000)")
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="write out-of-sample predictions as CSV: those of the best value, then one column for each value",
    )
    return parser


def _grid(text: str | None) -> tuple[str, np.ndarray]:
    """Read --grid alpha=0.01,0.1,1."""
    if text is None:
        return "alpha", _GRID
    name, _, numbers = text.partition("=")
    try:
        values = np.array([float(number) for number in numbers.split(",")])
    except ValueError:
        values = np.empty(0)
    if name.strip() != "alpha" or not len(values) or not np.isfinite(values).all() or (values < 0).any():
        raise TableError(f"--grid {text!r} cannot be read; write --grid alpha=0.01,0.1,1 with penalties >= 0")
    return "alpha", values


def _read(options: argparse.Namespace) -> Table:
    if options.file is None:
        if options.time or options.target or options.features:
            raise TableError("--time, --target and --features describe a file; name it first: data.csv --target ...")
        return macro_table()
    if options.output and os.path.realpath(options.output) == os.path.realpath(options.file):
        raise TableError("--output names the input file; choose another, so that your data stay as they are")
    if options.target is None:
        raise TableError("name the column to predict with --target COLUMN")
    features = None if options.features is None else [f.strip() for f in options.features.split(",") if f.strip()]
    return read_table(options.file, options.time, options.target, features)


def _window(text: str, times: np.ndarray | None) -> Any:
    """Turn the option into what the estimator takes: a count, or a duration in the times' unit."""
    if text == "expanding":
        return text
    for kind in (int, float):
        try:
            window = kind(text)
        except ValueError:
            continue
        if kind is float and times is not None and times.dtype.kind == "M":
            raise TableError(f"--window {text} has no unit; write a whole number of time stamps, or for example 90D")
        return window
    if times is None:
        raise TableError(f"--window {text!r} is a duration; name the time column with --time")
    duration = parse_duration(text, times, "--window")
    return float(duration / np.timedelta64(1, "us"))


def _numeric(times: np.ndarray) -> np.ndarray:
    """Return times as floats that tell all of them apart: dates in microseconds since the first."""
    stamps = np.unique(times)
    numbers = (times - stamps[0]) / np.timedelta64(1, "us") if times.dtype.kind == "M" else times.astype(np.float64)
    if len(np.unique(numbers)) < len(stamps):
        raise TableError("some times are too close to each other for a span so long; give times in a larger unit")
    return numbers


def _report(table: Table, name: str, values: np.ndarray, options: argparse.Namespace) -> None:
    """Fit, and print the table of errors."""
    X, timed = table.features, table.time is not None
    min_periods = 2 * (X.shape[1] + 1) if options.min_periods is None else options.min_periods
    estimator = RollingJaxEstimator(
        models.Linear(),
        window=_window(options.window, table.time),
        time=0 if timed else None,
        step=options.step,
        gap=options.gap,
        min_periods=min_periods,
    )
    columns = np.column_stack([_numeric(table.time), X]) if table.time is not None else X
    started = time.perf_counter()
    with count_compiles() as compiles:
        grid = walk_forward_grid(estimator, columns, table.target, param_grid={f"model__{name}": values})
    elapsed = time.perf_counter() - started

    naive = table.last_known_target(options.gap)
    known = np.isfinite(grid.predictions).all(axis=0) & np.isfinite(naive)
    if not known.any():
        raise TableError("no row is preceded by a complete window; lower --min-periods, --gap or widen --window")
    actual = table.target[known]
    errors = np.sqrt(np.mean((grid.predictions[:, known] - actual) ** 2, axis=1))
    naive_error = float(np.sqrt(np.mean((naive[known] - actual) ** 2)))
    best = int(np.argmin(errors))
    n_windows = len(grid.window_times[best])

    print(f"{table.title}: {len(X)} rows, target {table.target_name}, features {', '.join(table.names)}")
    print(f"windows x grid   {n_windows} x {len(values)} = {n_windows * len(values)} fits ({options.window})")
    print(f"compiles         {compiles.count}")
    print(f"compile time     {compiles.seconds:.2f} s")
    print(f"run time         {max(elapsed - compiles.seconds, 0):.2f} s (with validation and tracing)")
    print(f"out of sample    {int(known.sum())} rows, each predicted by the newest window that ended before it")
    print()
    print(f"{name:>12}  {'RMSE':>10}  against naive")
    for i, (value, error) in enumerate(zip(values, errors, strict=True)):
        mark = "  <- best" if i == best else ""
        print(f"{value:>12.4g}  {error:>10.4f}  {_ratio(error, naive_error)}{mark}")
    print(
        f"{'naive':>12}  {naive_error:>10.4f}  {_ratio(naive_error, naive_error)}  (the last known target; of several"
        " rows of one time, their mean)"
    )
    print()
    verdict = "beats" if errors[best] < naive_error else "does not beat"
    print(f"The best value, {name} = {values[best]:.4g}, {verdict} the naive forecast. It was picked in hindsight.")
    if options.output:
        write_predictions(options.output, table, name, values, grid.predictions, best)
        print(f"Predictions written to {options.output}")


def _ratio(error: float, naive_error: float) -> str:
    return f"{error / naive_error:>9.3f}" if naive_error > 0 else f"{'n/a':>9}"


if __name__ == "__main__":
    sys.exit(main())
