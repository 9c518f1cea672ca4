"""What is shown of the windows of a fit, and what is said and done about those whose fit failed."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skjaxwin.problem import Problem

__all__ = ["OF_WINDOWS", "nan_where", "show_newest", "warn_of_failures", "windows_found"]

# Fitted attributes with an entry for each window.
OF_WINDOWS = (
    "params_",
    "converged_",
    "determined_",
    "condition_",
    "n_iter_",
    "gradient_norm_",
    "window_starts_",
    "window_stops_",
    "window_times_",
    "_last_stamps",
    "standard_errors_",
    "t_values_",
    "r2_",
)


def windows_found(problem: Problem, params: Any, info: Any) -> dict[str, Any]:
    """Return the attributes of `OF_WINDOWS` that a fit gives, standard errors apart; None for what it does not."""
    starts, stops = problem.windows.starts, problem.windows.stops
    n_windows = len(stops)
    return {
        "params_": params,
        "converged_": info.converged,
        "determined_": np.ones(n_windows, bool) if info.determined is None else info.determined,
        "condition_": info.condition,
        "n_iter_": np.ones(n_windows, np.int32) if info.n_iter is None else info.n_iter,
        "gradient_norm_": info.gradient_norm,
        "window_starts_": starts.copy() if problem.kept is None else problem.kept[starts],
        "window_stops_": stops.copy() if problem.kept is None else problem.kept[stops - 1] + 1,
        "window_times_": problem.windows.times.copy(),
        "_last_stamps": problem.windows.last_stamps,
    }


def show_newest(estimator: Any) -> None:
    """Set ``coef_`` and ``intercept_`` to those of the newest window, if there are any."""
    params = estimator.params_
    for name in ("coef", "intercept"):
        if isinstance(params, dict) and name in params:
            newest = params[name][-1]
            setattr(estimator, f"{name}_", float(newest) if np.ndim(newest) == 0 else newest.copy())
        elif hasattr(estimator, f"{name}_"):
            delattr(estimator, f"{name}_")


def warn_of_failures(problem: Problem, converged: np.ndarray) -> None:
    """Count the windows that did not converge for some candidate, in one warning."""
    failed = problem.windows.times[~converged.all(axis=1)]
    if len(failed):
        first = f"the first of them ends at {failed[0]}"
        if len(failed) > 1:
            first += f" (then {', '.join(map(str, failed[1:3]))})"
        warnings.warn(
            f"{len(failed)} of {len(converged)} windows did not converge; {first}. "
            f"See converged_. {getattr(problem.model, 'advice', '')}".rstrip(),
            ConvergenceWarning,
            stacklevel=5,
        )


def nan_where(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Blank the parameters of some windows; integers become floats to hold NaN."""
    if array.dtype.kind not in "fc":
        array = array.astype(np.float64)
    array[rows] = np.nan
    return array
