"""What is said and done about windows whose fit failed."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skjaxwin.problem import Problem

__all__ = ["nan_where", "warn_of_failures"]


def warn_of_failures(problem: Problem, converged: np.ndarray) -> None:
    """Count the windows that did not converge for some candidate, in one warning."""
    failed = problem.windows.times[~converged.all(axis=1)]
    if len(failed):
        first = f"the first of them ends at {failed[0]}"
        if len(failed) > 1:
            first += f" (then {', '.join(map(str, failed[1:3]))})"
        warnings.warn(
            f"{len(failed)} of {len(converged)} windows did not converge to finite parameters; {first}. "
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
