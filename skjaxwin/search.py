"""Every window x every hyperparameter in one call, strictly out of sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from skjaxwin import windows as win
from skjaxwin.classification import labels
from skjaxwin.kernels import map_params, predict_rows
from skjaxwin.problem import Problem
from skjaxwin.rolling import RollingJaxEstimator

__all__ = ["WalkForwardGrid", "Walked", "group_key", "walk_forward_grid", "walk_group"]


@dataclass(frozen=True)
class WalkForwardGrid:
    """Out-of-sample predictions of a grid of hyperparameters.

    Attributes
    ----------
    candidates : list of dict
        The parameters of each candidate.
    predictions : ndarray of shape (n_candidates, n_rows) or (n_candidates, n_rows, n_outputs)
        For each row, in the caller's order, the prediction of the newest window that
        ended strictly before it; NaN where there is none.
    params : list of pytree of ndarray
        The fitted parameters of each candidate; leading axis windows.
    window_times : list of ndarray of shape (n_windows,)
        The newest time in each window of each candidate.
    """

    candidates: list[dict[str, Any]]
    predictions: np.ndarray
    params: list[Any]
    window_times: list[np.ndarray]


def walk_forward_grid(
    estimator: RollingJaxEstimator, X: Any, y: Any = None, *, param_grid: Any, sample_weight: Any = None
) -> WalkForwardGrid:
    """Fit every window for every hyperparameter and predict every row out of sample.

    Candidates that differ only in traced hyperparameters (numbers of the model,
    such as ``model__alpha``) are fitted by the same compiled call. Candidates that differ in
    other parameters (the window, a flag) each need a call of their own.

    Parameters
    ----------
    estimator : RollingJaxEstimator
        Not changed.
    X : array-like or dataframe of shape (n_rows, n_columns)
    y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None
    param_grid : dict or list of dict
        As for ``sklearn.model_selection.ParameterGrid``.
    sample_weight : array-like of shape (n_rows,), default=None

    Returns
    -------
    grid : WalkForwardGrid

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models, walk_forward_grid
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 2))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=60)
    >>> rolling = RollingJaxEstimator(models.Linear(), min_periods=10)
    >>> grid = walk_forward_grid(rolling, X, y, param_grid={"model__alpha": [0.1, 1.0, 100.0]})
    >>> errors = np.nanmean((grid.predictions - y) ** 2, axis=1)
    >>> grid.candidates[int(np.argmin(errors))]
    {'model__alpha': 0.1}
    """
    if not isinstance(estimator, RollingJaxEstimator):
        raise TypeError(
            f"walk_forward_grid needs a RollingJaxEstimator, got {type(estimator).__name__}; transform X first, "
            "or search a Pipeline with GridSearchCV."
        )
    candidates = [dict(candidate) for candidate in ParameterGrid(param_grid)]
    outcomes: dict[int, Walked] = {}
    for members in _groups(estimator, candidates).values():
        fitted = [clone(estimator).set_params(**candidates[i]) for i in members]
        outcomes.update(zip(members, walk_group(fitted, X, y, sample_weight), strict=True))
    ordered = [outcomes[i] for i in range(len(candidates))]
    classes = ordered[0].problem.classes
    return WalkForwardGrid(
        candidates,
        np.stack([one.raw if classes is None else labels(classes, one.raw) for one in ordered]),
        [one.params for one in ordered],
        [one.problem.windows.times for one in ordered],
    )


def _groups(estimator: RollingJaxEstimator, candidates: list[dict[str, Any]]) -> dict[Any, list[int]]:
    """Gather the candidates that one compiled call can serve."""
    groups: dict[Any, list[int]] = {}
    for i, candidate in enumerate(candidates):
        groups.setdefault(group_key(clone(estimator).set_params(**candidate), candidate), []).append(i)
    return groups


def group_key(estimator: RollingJaxEstimator, candidate: dict[str, Any]) -> Any:
    """Return what candidates have in common that one compiled call can serve: all but numbers of the model.

    Of these only what a target may be is part of it: targets are checked once for all.

    Parameters
    ----------
    estimator : RollingJaxEstimator
        With the candidate's parameters.
    candidate : dict
        What was set.
    """
    model = estimator._model()
    shapes = tuple((name, np.shape(value)) for name, value in sorted(model.hyperparameters().items()))
    others = tuple((name, repr(value)) for name, value in sorted(candidate.items()) if not name.startswith("model"))
    return model.static_key(), model.target_key(), shapes, others


@dataclass(frozen=True)
class Walked:
    """One candidate, fitted on every window.

    Attributes
    ----------
    estimator : RollingJaxEstimator
        With the candidate's parameters; not fitted.
    problem : Problem
    params, info : pytree of ndarray
        Leading axis windows.
    raw : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        For each row what its window predicts, decisions for classifiers; NaN where no window came before.
    """

    estimator: RollingJaxEstimator
    problem: Problem
    params: Any
    info: Any
    raw: np.ndarray


def walk_group(estimators: list[RollingJaxEstimator], X: Any, y: Any, sample_weight: Any) -> list[Walked]:
    """Fit the candidates of one group together, and predict every row out of sample.

    Parameters
    ----------
    estimators : list of RollingJaxEstimator
        With a candidate's parameters each, which differ in numbers of the model alone.
    X, y, sample_weight
        All rows.
    """
    for other in estimators[1:]:
        other._model()._validate_params()
    first = estimators[0].set_params(inference=None)  # nothing here would show standard errors
    problem = first._prepare(X, y, sample_weight)
    each = [other._model().hyperparameters() for other in estimators]
    hyper = {name: np.stack([np.asarray(one[name]) for one in each]) for name in each[0]}
    params, info, _ = first._solve(problem, hyper)
    window = win.newest_window_before(
        problem.times, problem.timeline.stamps, problem.windows.last_stamps, int(first.gap)
    )
    outcomes = []
    for i, other in enumerate(estimators):
        own, its_info = map_params(lambda a, i=i: np.ascontiguousarray(a[:, min(i, a.shape[1] - 1)]), (params, info))
        raw = predict_rows(other._model(), own, window, problem.X)
        unknown = np.isnan(problem.X).any(axis=1)  # only with missing="skip"
        if unknown.any():
            raw[unknown] = np.nan
        if problem.exposures is not None:
            raw = raw * problem.exposures
        if problem.target_is_column and raw.ndim == 1:
            raw = raw[:, None]
        outcomes.append(Walked(other, problem, own, its_info, raw))
    return outcomes
