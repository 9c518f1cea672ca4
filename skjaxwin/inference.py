"""Standard errors of every window's coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np

from skjaxwin.kernels import fit_windows
from skjaxwin.models import Linear, WindowModel
from skjaxwin.models._inference import LinearErrors, errors_from_parts
from skjaxwin.problem import Problem

__all__ = ["check_inference", "window_errors"]


def check_inference(model: WindowModel, inference: str | None) -> None:
    """Refuse models whose standard errors are not known."""
    if inference is None:
        return
    if not isinstance(model, Linear):
        raise ValueError(
            f"inference={inference!r} needs model=models.Linear(); the standard errors of "
            f"{type(model).__name__} are not known. Set inference=None."
        )
    if model.alpha != 0:
        raise ValueError(
            f"inference={inference!r} needs alpha=0, got alpha={model.alpha}: a penalty biases the coefficients. "
            "Set inference=None or alpha=0."
        )


def window_errors(
    problem: Problem,
    parts: dict[str, np.ndarray] | None,
    *,
    inference: str,
    hac_maxlags: int | None,
    capacity: int,
    max_memory: float,
) -> dict[str, np.ndarray]:
    """Return standard errors ``coef`` and ``intercept``, and ``r2``; the leading axis is windows.

    Parameters
    ----------
    problem : Problem
    parts : dict of ndarray or None
        What merged statistics left; NaN for windows that must be gone over row by row.
    inference, hac_maxlags, capacity, max_memory
        The estimator's parameters.
    """
    fit_intercept = bool(problem.model.get_params()["fit_intercept"])
    starts, stops = problem.windows.starts, problem.windows.stops
    found: dict[str, np.ndarray] = {}
    left = np.arange(len(starts))
    if parts is not None and inference == "nonrobust":
        own = {name: part[:, 0] for name, part in parts.items()}
        found = errors_from_parts(own, stops - starts, fit_intercept)
        if problem.rows.y.ndim == 1:
            found = {name: array[:, 0] for name, array in found.items()}
        left = np.flatnonzero(np.isnan(own["rss"]).any(axis=1))
    if len(left):
        max_lags = -1.0 if hac_maxlags is None else float(hac_maxlags)
        rest: Any = fit_windows(
            LinearErrors(inference, fit_intercept, max_lags),
            {"max_lags": np.array([max_lags])},
            problem.rows,
            starts[left],
            stops[left],
            max_rows=problem.windows.max_rows if len(left) == len(starts) else int((stops[left] - starts[left]).max()),
            capacity=capacity,
            max_memory=max_memory,
        )[0]
        rest = {name: array[:, 0] for name, array in rest.items()}
        if not found:
            return rest
        for name, array in rest.items():
            found[name][left] = array
    return found
