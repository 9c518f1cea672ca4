"""Standard errors of every window's coefficients."""

from __future__ import annotations

from typing import Any

import numpy as np

from skjaxwin.kernels import Rows, bucket, fit_windows, map_params
from skjaxwin.models import Linear, WindowModel
from skjaxwin.models._inference import LinearErrors, errors_from_parts
from skjaxwin.models._linear_predictor import LinearPredictor
from skjaxwin.models._smooth_errors import SmoothErrors
from skjaxwin.models._user_errors import UserErrors
from skjaxwin.models._user_function import UserFunction
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
    elif isinstance(model, UserFunction):
        if inference != "nonrobust" and not model.get_params().get("per_row", True):
            raise ValueError(
                f"inference={inference!r} needs the loss of each row, got per_row=False; pass per_row=True or "
                'inference="nonrobust".'
            )
        return
    else:
        raise ValueError(
            f"inference={inference!r} needs models.Linear(), Logistic, Poisson, Gamma, Tweedie, LeastSquares or Loss; "
            f"the standard errors of {type(model).__name__} are not known. Set inference=None."
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
    well = estimator.converged_ & estimator.determined_
    for name, value in found_errors(estimator, problem, estimator.params_, well, parts, capacity).items():
        setattr(estimator, name, value)


def found_errors(
    estimator: Any,
    problem: Problem,
    params: Any,
    well: np.ndarray,
    parts: dict[str, np.ndarray] | None,
    capacity: int,
) -> dict[str, Any]:
    """Return the attributes that an estimator's standard errors give for the windows of a problem.

    Parameters
    ----------
    estimator : RollingJaxEstimator
    problem : Problem
    params : pytree of ndarray
        Of its windows.
    well : ndarray of bool of shape (n_windows,)
        Whether they converged, and are determined.
    parts, capacity
        See `window_errors`.
    """
    options = {
        "inference": estimator.inference,
        "hac_maxlags": estimator.hac_maxlags,
        "capacity": capacity,
        "max_memory": estimator.max_memory,
    }
    if isinstance(problem.model, UserFunction):
        found = user_errors(problem, params, well, **options)
    else:
        found = window_errors(problem, parts, **options)
    shown: dict[str, Any] = {"r2_": found.pop("r2")} if isinstance(found, dict) and "r2" in found else {}
    known = {name: params[name] for name in found} if isinstance(found, dict) else params
    with np.errstate(divide="ignore", invalid="ignore"):
        t_values = map_params(np.divide, known, found)
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
    max_lags = _lags(inference, hac_maxlags)
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


def user_errors(
    problem: Problem,
    params: Any,
    well: np.ndarray,
    *,
    inference: str,
    hac_maxlags: int | None,
    capacity: int,
    max_memory: float,
) -> Any:
    """Return standard errors of a user's function, in the structure of its parameters; see `window_errors`."""
    double = Rows(*(None if a is None else a.astype(np.float64, copy=False) for a in problem.rows))
    n_rows, n_features = double.X.shape
    rows, max_clusters = _with_clusters(problem, double, inference)
    robust, corrected = float(inference != "nonrobust"), float(inference == "HC1")
    model = UserErrors(problem.model, n_features, robust, corrected, _lags(inference, hac_maxlags), max_clusters)
    hyper = {name: np.asarray(value)[None] for name, value in model.hyperparameters().items()}
    leaves: list[np.ndarray] = []
    map_params(leaves.append, params)
    flat = np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
    starts, stops = problem.windows.starts, problem.windows.stops
    errors = np.full(flat.shape, np.nan)
    waiting = np.flatnonzero(well)
    while len(waiting):
        # A window's parameters are in columns of its newest row. Windows that end in a hole share that row with others.
        first = np.append(True, np.diff(stops[waiting]) > 0)
        now, waiting = waiting[first], waiting[~first]
        given = np.zeros((n_rows, 1 + flat.shape[1]))
        given[:, 0] = np.arange(n_rows)
        given[stops[now] - 1, 1:] = flat[now]
        errors[now] = fit_windows(
            model,
            hyper,
            rows._replace(X=np.column_stack([rows.X, given])),
            starts[now],
            stops[now],
            max_rows=problem.windows.max_rows,
            capacity=capacity,
            max_memory=max_memory,
        )[0][:, 0]
    edges = np.cumsum([leaf[0].size for leaf in leaves])
    columns = iter(np.split(errors, edges[:-1], axis=1))
    return map_params(lambda leaf: next(columns).reshape(leaf.shape).astype(leaf.dtype), params)


def _lags(inference: str, hac_maxlags: int | None) -> float:
    """Return the lags of score products, negative for the default of HAC."""
    if inference != "HAC":
        return 0.0
    return -1.0 if hac_maxlags is None else float(hac_maxlags)


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
