"""Fit the windows that predict each fold's test rows, for all folds and candidates in one compiled call."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from skjaxwin import windows as win
from skjaxwin._sklearn_private import safe_indexing
from skjaxwin.classification import labels
from skjaxwin.columns import split_time
from skjaxwin.kernels import Rows, join_candidates, map_params, predict_rows
from skjaxwin.problem import Problem
from skjaxwin.rolling import RollingJaxEstimator
from skjaxwin.search import group_key

__all__ = ["FoldFits", "fit_folds"]

# A fold's number, its problem, and which window predicts each of its test rows.
_Fold = tuple[int, Problem, np.ndarray]
# Rows of several folds are laid out one after another: about so many bytes of them at a time.
_BYTES_AT_ONCE = 2**28
# Windows of as many rows are fitted for one candidate after the other: side by side they leave the cache.
_MANY_ROWS = 1024


@dataclass(frozen=True)
class FoldFits:
    """Some folds, fitted for some candidates together.

    Attributes
    ----------
    candidates, folds : list of int
        Which ones.
    estimators : list of RollingJaxEstimator
        One for each candidate; not fitted.
    problems : list of Problem
        One for each fold, with no windows but those that predict its test rows.
    first_window : ndarray of shape (n_folds + 1,)
        Where each fold's windows begin among those of all.
    params, info : pytree of ndarray
        Leading axes (n_windows of all folds, n_candidates).
    predictions : list of ndarray of shape (n_candidates, n_tests) or (n_candidates, n_tests, n_outputs)
        What each candidate's `predict` returns for each fold's test rows; None where the model predicts nothing.
    """

    candidates: list[int]
    folds: list[int]
    estimators: list[RollingJaxEstimator]
    problems: list[Problem]
    first_window: np.ndarray
    params: Any
    info: Any
    predictions: list[np.ndarray] | None

    def estimator(self, fold: int, candidate: int) -> RollingJaxEstimator:
        """Return the fitted estimator of a fold and a candidate, both by position here."""
        low, high = self.first_window[fold : fold + 2]
        fitted = clone(self.estimators[candidate])
        validated = self.estimators[0]  # the one that has seen the rows
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(validated, name):
                setattr(fitted, name, getattr(validated, name))
        own, info = map_params(
            lambda a: np.ascontiguousarray(a[low:high, min(candidate, a.shape[1] - 1)]), (self.params, self.info)
        )
        fitted._store(self.problems[fold], own, info)
        fitted._fitted_model = fitted._model()
        return fitted


def fit_folds(
    estimators: list[RollingJaxEstimator],
    candidates: list[dict[str, Any]],
    X: Any,
    y: Any,
    sample_weight: np.ndarray | None,
    splits: list[tuple[np.ndarray, np.ndarray]],
    error_score: Any,
) -> Iterator[FoldFits | tuple[list[int], list[int], str]]:
    """Fit each candidate on each fold's training rows.

    Parameters
    ----------
    estimators : list of RollingJaxEstimator
        One for each candidate, not fitted.
    candidates : list of dict
        What was set in each.
    X, y, sample_weight
        All rows.
    splits : list of (train, test)
        Row numbers.
    error_score : "raise" or float
        Whether the first error is raised.

    Yields
    ------
    fits : FoldFits
    failure : (candidates, folds, traceback)
        Instead, where a fit is impossible.
    """
    groups: dict[Any, list[int]] = {}
    for i, estimator in enumerate(estimators):
        try:
            estimator._model()._validate_params()  # those of the estimator itself when rows are laid out
        except Exception:
            if error_score == "raise":
                raise
            yield [i], list(range(len(splits))), traceback.format_exc()
            continue
        groups.setdefault(group_key(estimator, candidates[i]), []).append(i)
    for members in groups.values():
        yield from _fit_group(members, [estimators[i] for i in members], X, y, sample_weight, splits, error_score)


def _fit_group(
    members: list[int],
    estimators: list[RollingJaxEstimator],
    X: Any,
    y: Any,
    sample_weight: np.ndarray | None,
    splits: list[tuple[np.ndarray, np.ndarray]],
    error_score: Any,
) -> Iterator[FoldFits | tuple[list[int], list[int], str]]:
    """Fit candidates that share a kernel, in batches of folds that fit into memory and have the same classes."""
    waiting: dict[Any, list[_Fold]] = {}
    n_bytes = 0
    for fold, (train, test) in enumerate(splits):
        try:
            problem, window = _lay_out(estimators[0], X, y, sample_weight, train, test)
        except Exception:
            if error_score == "raise":
                raise
            yield members, [fold], traceback.format_exc()
            continue
        classes = None if problem.classes is None else tuple(problem.classes.tolist())
        waiting.setdefault(classes, []).append((fold, problem, window))
        n_bytes += sum(part.nbytes for part in problem.rows if part is not None)
        if n_bytes > _BYTES_AT_ONCE:
            yield from _fit_waiting(members, estimators, X, splits, waiting, error_score)
            waiting, n_bytes = {}, 0
    yield from _fit_waiting(members, estimators, X, splits, waiting, error_score)


def _fit_waiting(
    members: list[int],
    estimators: list[RollingJaxEstimator],
    X: Any,
    splits: list[tuple[np.ndarray, np.ndarray]],
    waiting: dict[Any, list[_Fold]],
    error_score: Any,
) -> Iterator[FoldFits | tuple[list[int], list[int], str]]:
    """Fit the folds that have been laid out."""
    for batch in (part for folds in waiting.values() for part in _by_size(folds)):
        try:
            yield _fit_together(members, estimators, X, splits, batch)
        except Exception:
            if error_score == "raise":
                raise
            yield members, [fold for fold, _, _ in batch], traceback.format_exc()


def _by_size(batch: list[_Fold]) -> list[list[_Fold]]:
    """Keep folds of few rows from those of many, where a kernel goes over as many rows as the longest window has.

    Two parts and no more: each is a compile.
    """
    sizes = [fold[1].windows.max_rows or 0 for fold in batch]
    if batch[0][1].model.merges or max(sizes) < _MANY_ROWS:
        return [batch]
    half = 1 << (max(sizes) - 1).bit_length() - 1
    parts = (
        [fold for fold, size in zip(batch, sizes, strict=True) if size <= half],
        [fold for fold, size in zip(batch, sizes, strict=True) if size > half],
    )
    return [part for part in parts if part]


def _lay_out(
    estimator: RollingJaxEstimator,
    X: Any,
    y: Any,
    sample_weight: np.ndarray | None,
    train: np.ndarray,
    test: np.ndarray,
) -> tuple[Problem, np.ndarray]:
    """Return a fold's problem with the windows that its test rows need, and which of them predicts each row."""
    problem = estimator._prepare(
        safe_indexing(X, train),
        None if y is None else safe_indexing(y, train),
        None if sample_weight is None else sample_weight[train],
    )
    windows = problem.windows
    if estimator.time is None:
        needed, window = np.array([len(windows.stops) - 1]), np.zeros(len(test), int)
    else:
        _, _, times, _ = split_time(
            estimator,
            safe_indexing(X, test),
            time=estimator.time,
            cluster=estimator.cluster,
            reset=False,
            supervised=False,
            missing=estimator.missing == "skip",
        )
        assert times is not None
        before = win.newest_window_before(times, problem.timeline.stamps, windows.last_stamps, int(estimator.gap))
        needed, window = np.unique(np.maximum(before, 0), return_inverse=True)
    kept = win.Windows(
        windows.starts[needed],
        windows.stops[needed],
        windows.last_stamps[needed],
        windows.times[needed],
        int((windows.stops[needed] - windows.starts[needed]).max()),
    )
    return replace(problem, windows=kept), window


def _fit_together(
    members: list[int],
    estimators: list[RollingJaxEstimator],
    X: Any,
    splits: list[tuple[np.ndarray, np.ndarray]],
    batch: list[_Fold],
) -> FoldFits:
    folds, problems = [fold for fold, _, _ in batch], [problem for _, problem, _ in batch]
    first = estimators[0]
    models = [estimator._model() for estimator in estimators]
    each = [model.hyperparameters() for model in models]
    hyper = {name: np.stack([np.asarray(one[name]) for one in each]) for name in each[0]}
    solver = clone(first)
    if solver.algorithm == "auto" and problems[0].model.shares_statistics:
        solver.algorithm = "exact"  # one pass over the rows for all candidates
    params, info = _solved(solver, _joined(problems), hyper)
    first_window = np.append(0, np.cumsum([len(problem.windows.stops) for problem in problems]))
    predictions = None
    if first._model().estimator_type is not None:
        tests = [splits[fold][1] for fold in folds]
        features, _, _, _ = split_time(
            first,
            safe_indexing(X, np.concatenate(tests)),
            time=first.time,
            cluster=first.cluster,
            reset=False,
            supervised=False,
            missing=first.missing == "skip",
        )
        features = features.astype(problems[0].rows.X.dtype, copy=False)
        window = np.concatenate([low + own for low, (_, _, own) in zip(first_window, batch, strict=False)])
        whole = np.stack(
            [_predictions(model, i, params, window, features, problems[0]) for i, model in enumerate(models)]
        )
        predictions = np.split(whole, np.cumsum([len(test) for test in tests])[:-1], axis=1)
    return FoldFits(members, folds, estimators, problems, first_window, params, info, predictions)


def _solved(solver: RollingJaxEstimator, problem: Problem, hyper: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """Fit all windows for all candidates: in one call, or one after the other where a candidate fills the cache."""
    n_candidates = len(next(iter(hyper.values()))) if hyper else 1
    model = problem.model
    if model.merges or model.in_turn or (problem.windows.max_rows or 0) < _MANY_ROWS or n_candidates == 1:
        return solver._solve(problem, hyper)[:2]
    singles = [{name: values[i : i + 1] for name, values in hyper.items()} for i in range(n_candidates)]
    return join_candidates([solver._solve(problem, single)[:2] for single in singles])


def _predictions(
    model: Any, i: int, params: Any, window: np.ndarray, features: np.ndarray, problem: Problem
) -> np.ndarray:
    """Return what the estimator's `predict` would for one candidate."""
    own = map_params(lambda a: np.ascontiguousarray(a[:, min(i, a.shape[1] - 1)]), params)
    found = predict_rows(model, own, window, features)
    unknown = np.isnan(features).any(axis=1)  # only with missing="skip"
    if unknown.any():
        found[unknown] = np.nan
    if problem.classes is not None:
        return labels(problem.classes, found)
    return found[:, None] if problem.target_is_column and found.ndim == 1 else found


def _joined(problems: list[Problem]) -> Problem:
    """Return one problem whose rows are those of all, one after another, and whose windows stay within their own."""
    if len(problems) == 1:
        return problems[0]
    offsets = np.append(0, np.cumsum([len(problem.rows.X) for problem in problems]))
    parts = zip(*(problem.rows for problem in problems), strict=True)
    rows = Rows(*(None if part[0] is None else np.concatenate(part) for part in parts))
    windows = [problem.windows for problem in problems]
    joined = win.Windows(
        np.concatenate([one.starts + offset for one, offset in zip(windows, offsets, strict=False)]),
        np.concatenate([one.stops + offset for one, offset in zip(windows, offsets, strict=False)]),
        np.concatenate([one.last_stamps for one in windows]),
        np.concatenate([one.times for one in windows]),
        max(one.max_rows or 0 for one in windows),
    )
    return replace(problems[0], rows=rows, windows=joined)
