"""Standard errors of every window's coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np

from skjaxwin.kernels import Rows, bucket, fit_windows
from skjaxwin.models import Linear, WindowModel
from skjaxwin.models._inference import LinearErrors, errors_from_parts
from skjaxwin.models._linear_predictor import LinearPredictor
from skjaxwin.models._smooth_errors import SmoothErrors
from skjaxwin.problem import Problem

__all__ = ["check_inference", "found_errors", "store_errors", "window_errors"]


def check_inference(model: WindowModel, inference: str | None, cluster: Any = None) -> None:
    """Refuse models whose standard errors are not known, and clusters that are not there."""
    if inference is None:
        return
    if inference == "cluster" and cluster is None:
        raise ValueError('inference="cluster" needs cluster=, the column of X that says which rows belong together.')
    if isinstance(model, LinearPredictor):
        none = "C=numpy.inf" if hasattr(model, "C") else "alpha=0"
        penalty = model.penalised()
    elif isinstance(model, Linear) and model.is_least_squares:
        none, penalty = "alpha=0", model.alpha != 0
    else:
        raise ValueError(
            f"inference={inference!r} needs a model like models.Linear(), Logistic or Poisson; the standard errors of "
            f"{type(model).__name__} are not known. Set inference=None."
        )
    if penalty:
        raise ValueError(
            f"inference={inference!r} needs {none}, got {model}: a penalty biases the coefficients. "
            f"Set inference=None or {none}."
        )


def store_errors(estimator: Any, problem: Problem, parts: dict[str, np.ndarray] | None, capacity: int) -> None:
    """Set an estimator's standard errors, and what follows from them."""
    if estimator.inference is None:
        return
    for name, value in found_errors(estimator, problem, estimator.params_, parts, capacity).items():
        setattr(estimator, name, value)


def found_errors(
    estimator: Any, problem: Problem, params: Any, parts: dict[str, np.ndarray] | None, capacity: int
) -> dict[str, Any]:
    """Return the attributes that an estimator's standard errors give for the windows of a problem."""
    found = window_errors(
        problem,
        parts,
        inference=estimator.inference,
        hac_maxlags=estimator.hac_maxlags,
        capacity=capacity,
        max_memory=estimator.max_memory,
    )
    shown: dict[str, Any] = {"r2_": found.pop("r2")} if "r2" in found else {}
    with np.errstate(divide="ignore", invalid="ignore"):
        t_values = {name: params[name] / error for name, error in found.items()}
    return shown | {"standard_errors_": found, "t_values_": t_values}


def window_errors(
    problem: Problem,
    parts: dict[str, np.ndarray] | None,
    *,
    inference: str,
    hac_maxlags: int | None,
    capacity: int,
    max_memory: float,
) -> dict[str, np.ndarray]:
    """Return standard errors ``coef`` and ``intercept``, and for `models.Linear` ``r2``; the leading axis is windows.

    Parameters
    ----------
    problem : Problem
    parts : dict of ndarray or None
        What merged statistics left; NaN for windows that must be gone over row by row.
    inference, hac_maxlags, capacity, max_memory
        The estimator's parameters.
    """
    max_lags = {"HAC": -1.0 if hac_maxlags is None else float(hac_maxlags)}.get(inference, 0.0)
    if isinstance(problem.model, LinearPredictor):
        return _smooth_errors(problem, problem.model, inference, max_lags, capacity, max_memory)
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
        # In double precision, as merged statistics are.
        double = Rows(*(None if a is None else a.astype(np.float64, copy=False) for a in problem.rows))
        double, max_clusters = _with_clusters(problem, double, inference)
        robust = float(inference != "nonrobust")
        rest: Any = fit_windows(
            LinearErrors(robust, fit_intercept, max_lags, max_clusters),
            {"robust": np.array([robust]), "max_lags": np.array([max_lags])},
            double,
            starts[left],
            stops[left],
            max_rows=problem.windows.max_rows if len(left) == len(starts) else int((stops[left] - starts[left]).max()),
            capacity=capacity,
            max_memory=max_memory,
        )[0]
        rest = {name: array[:, 0] for name, array in rest.items()}
        if inference == "HC1":
            _correct(rest, (stops - starts)[left], problem.rows.X.shape[1] + fit_intercept)
        if not found:
            found = rest
        else:
            for name, array in rest.items():
                found[name][left] = array
    return {name: array.astype(problem.rows.X.dtype, copy=False) for name, array in found.items()}


def _smooth_errors(
    problem: Problem, model: LinearPredictor, inference: str, max_lags: float, capacity: int, max_memory: float
) -> dict[str, np.ndarray]:
    """Return standard errors from scores and Hessians."""
    if problem.rows.y.ndim > 1:
        raise ValueError(
            f"inference={inference!r} needs two classes or a single target, got {problem.rows.y.shape[1]}; "
            "set inference=None."
        )
    double = Rows(*(None if a is None else a.astype(np.float64, copy=False) for a in problem.rows))
    rows, max_clusters = _with_clusters(problem, double, inference)
    errors = SmoothErrors(model, float(inference != "nonrobust"), max_lags, max_clusters)
    windows = problem.windows
    params = fit_windows(
        errors,
        {name: np.asarray(value)[None] for name, value in errors.hyperparameters().items()},
        rows,
        windows.starts,
        windows.stops,
        max_rows=windows.max_rows,
        capacity=capacity,
        max_memory=max_memory,
    )[0]
    found = {name: array[:, 0] for name, array in params["errors"].items()}
    if not model.fit_intercept:
        del found["intercept"]
    if inference == "HC1":
        _correct(found, windows.stops - windows.starts, problem.rows.X.shape[1] + model.fit_intercept)
    return {name: array.astype(problem.rows.X.dtype, copy=False) for name, array in found.items()}


def _with_clusters(problem: Problem, rows: Rows, inference: str) -> tuple[Rows, int]:
    """Put the numbers of the clusters into the last column, if they are needed; return how many there may be."""
    if inference != "cluster" or problem.clusters is None:
        return rows, 0
    clusters, number = np.unique(problem.clusters, return_inverse=True)
    return rows._replace(X=np.column_stack([rows.X, number])), bucket(len(clusters))


def _correct(errors: dict[str, np.ndarray], n_rows: np.ndarray, n_coefficients: int) -> None:
    """Multiply variances by n / (n - p); they are NaN already where that is not positive."""
    factor = np.sqrt(n_rows / np.maximum(n_rows - n_coefficients, 1))
    for name in ("coef", "intercept"):
        if name in errors:
            errors[name] *= factor.reshape(-1, *[1] * (errors[name].ndim - 1))
