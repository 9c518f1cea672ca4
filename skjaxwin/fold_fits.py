"""Fit the windows that predict each fold's rows, for all folds and candidates in one compiled call."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from skjaxwin.fold_problems import Fold, join_folds, lay_out_fold
from skjaxwin.kernels import join_candidates, map_params, predict_rows
from skjaxwin.problem import Problem
from skjaxwin.rolling import RollingJaxEstimator
from skjaxwin.search import group_key

__all__ = ["FoldFits", "fit_folds", "fit_with_the_kernel_of"]

# Windows of as many rows are fitted for one candidate after the other: side by side they leave the cache.
_MANY_ROWS = 1024
# From so many rows in a fold on, a compiled prediction of all of them by one window costs less than of all folds' rows.
_ROWS_OF_A_CALL = 128


@dataclass(frozen=True)
class FoldFits:
    """Some folds, fitted for some candidates together.

    Attributes
    ----------
    candidates : list of int
        Which ones.
    estimators : list of RollingJaxEstimator
        One for each candidate; not fitted.
    folds : list of Fold
    first_window : ndarray of shape (n_folds + 1,)
        Where each fold's windows begin among those of all.
    params, info : pytree of ndarray
        Leading axes (n_windows of all folds, n_candidates).
    """

    candidates: list[int]
    estimators: list[RollingJaxEstimator]
    folds: list[Fold]
    first_window: np.ndarray
    params: Any
    info: Any

    def estimator(self, fold: int, candidate: int) -> RollingJaxEstimator:
        """Return the fitted estimator of a fold and a candidate, both by position here."""
        fitted = clone(self.estimators[candidate])
        validated = self.estimators[0]  # the one that has seen the rows
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(validated, name):
                setattr(fitted, name, getattr(validated, name))
        low, high = self.first_window[fold : fold + 2]
        own, info = map_params(
            lambda a: np.ascontiguousarray(a[low:high, min(candidate, a.shape[1] - 1)]), (self.params, self.info)
        )
        fitted._store(self.folds[fold].problem, own, info)
        fitted._fitted_model = fitted._model()
        return fitted

    def predict(self, fold: int, part: int, features: np.ndarray) -> np.ndarray:
        """Return what each candidate's model predicts for a fold's rows; a classifier's are decisions.

        Parameters
        ----------
        fold : int
            Position here.
        part : int
            0 for the test rows, 1 for the training rows.
        features : ndarray of shape (n_rows, n_features)
            Of these rows.

        Returns
        -------
        predictions : ndarray of shape (n_candidates, n_rows) or (n_candidates, n_rows, n_outputs)
        """
        problem = self.folds[fold].problem
        features = features.astype(problem.rows.X.dtype, copy=False)
        window, n_candidates = self.folds[fold].window[part], len(self.candidates)
        low, high = self.first_window[fold : fold + 2]
        params = map_params(lambda a: a[low:high], self.params)
        if problem.model.checked and not problem.model.compiles_predict:
            # All candidates at a time: each row once for each of them.
            flat = map_params(
                lambda a: np.broadcast_to(a, (high - low, n_candidates, *a.shape[2:])).reshape(-1, *a.shape[2:]), params
            )
            whose = (window * n_candidates + np.arange(n_candidates)[:, None]).ravel()
            found = predict_rows(problem.model, flat, whose, np.tile(features, (n_candidates, 1)))
            found = found.reshape(n_candidates, len(features), *found.shape[1:])
        else:
            shared = high - low == 1 and len(features) >= _ROWS_OF_A_CALL
            each = [
                predict_rows(
                    estimator._model(),
                    map_params(lambda a, i=i: np.ascontiguousarray(a[:, min(i, a.shape[1] - 1)]), params),
                    window,
                    features,
                    shared=shared,
                )
                for i, estimator in enumerate(self.estimators)
            ]
            found = np.stack(each)
        unknown = np.isnan(features).any(axis=1)  # only with missing="skip"
        if unknown.any():
            found[:, unknown] = np.nan
        return found[..., None] if problem.target_is_column and found.ndim == 2 else found


def fit_folds(
    estimators: list[RollingJaxEstimator],
    candidates: list[dict[str, Any]],
    X: Any,
    y: Any,
    sample_weight: np.ndarray | None,
    splits: list[tuple[np.ndarray, np.ndarray]],
    *,
    error_score: Any,
    train_scores: bool = False,
    max_memory: float = 256e6,
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
    train_scores : bool
        Whether training rows are to be predicted, too.
    max_memory : float
        About how many bytes of rows are laid out at a time.

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
        own = [estimators[i] for i in members]
        waiting: list[Fold] = []
        n_bytes = 0
        for number, split in enumerate(splits):
            try:
                fold = lay_out_fold(own[0], X, y, sample_weight, number, split, train_scores=train_scores)
            except Exception:
                if error_score == "raise":
                    raise
                yield members, [number], traceback.format_exc()
                continue
            waiting.append(fold)
            n_bytes += sum(part.nbytes for part in fold.problem.rows if part is not None)
            if n_bytes > max_memory:
                yield from _fit_waiting(members, own, waiting, error_score)
                waiting, n_bytes = [], 0
        yield from _fit_waiting(members, own, waiting, error_score)


def _fit_waiting(
    members: list[int], estimators: list[RollingJaxEstimator], waiting: list[Fold], error_score: Any
) -> Iterator[FoldFits | tuple[list[int], list[int], str]]:
    """Fit the folds that have been laid out, those with the same classes together."""
    by_classes: dict[Any, list[Fold]] = {}
    for fold in waiting:
        classes = fold.problem.classes
        by_classes.setdefault(None if classes is None else tuple(classes.tolist()), []).append(fold)
    for batch in (part for folds in by_classes.values() for part in _by_size(folds)):
        try:
            yield _fit_together(members, estimators, batch)
        except Exception:
            if error_score == "raise":
                raise
            yield members, [fold.number for fold in batch], traceback.format_exc()


def _by_size(batch: list[Fold]) -> list[list[Fold]]:
    """Keep folds of few rows from those of many, where a kernel goes over as many rows as the longest window has.

    Two parts and no more: each is a compile.
    """
    sizes = [fold.problem.windows.max_rows or 0 for fold in batch]
    model = batch[0].problem.model
    # What is solved in turn skips blocks of rows that are in no window.
    if model.merges or model.in_turn or max(sizes) < _MANY_ROWS:
        return [batch]
    half = 1 << (max(sizes) - 1).bit_length() - 1
    parts = (
        [fold for fold, size in zip(batch, sizes, strict=True) if size <= half],
        [fold for fold, size in zip(batch, sizes, strict=True) if size > half],
    )
    return [part for part in parts if part]


def _fit_together(members: list[int], estimators: list[RollingJaxEstimator], batch: list[Fold]) -> FoldFits:
    each = [estimator._model().hyperparameters() for estimator in estimators]
    hyper = {name: np.stack([np.asarray(one[name]) for one in each]) for name in each[0]}
    params, info = _solved(clone(estimators[0]), join_folds(batch), hyper)
    first_window = np.append(0, np.cumsum([len(fold.problem.windows.stops) for fold in batch]))
    return FoldFits(members, estimators, batch, first_window, params, info)


def _solved(solver: RollingJaxEstimator, problem: Problem, hyper: dict[str, np.ndarray]) -> tuple[Any, Any]:
    """Fit all windows for all candidates: in one call, or one after the other where a candidate fills the cache."""
    n_candidates = len(next(iter(hyper.values()))) if hyper else 1
    if n_candidates == 1 or not _one_by_one(problem):
        return solver._solve(problem, hyper)[:2]
    singles = [{name: values[i : i + 1] for name, values in hyper.items()} for i in range(n_candidates)]
    return join_candidates([solver._solve(problem, single)[:2] for single in singles])


def _one_by_one(problem: Problem) -> bool:
    model = problem.model
    longest = problem.windows.max_rows or len(problem.rows.X)
    return not (model.merges or model.in_turn or longest < _MANY_ROWS)


def fit_with_the_kernel_of(
    estimator: RollingJaxEstimator, n_candidates: int, n_windows: int, X: Any, y: Any, sample_weight: Any = None
) -> RollingJaxEstimator:
    """Fit an estimator, with the kernel of a search where another would have to be compiled.

    A kernel serves a number of candidates; that of a single one is another. So the one candidate fills all places, if
    there is not more to do than the search did.

    Parameters
    ----------
    estimator : RollingJaxEstimator
        Is fitted.
    n_candidates, n_windows : int
        How many candidates, and windows for each, the search has fitted together.
    X, y, sample_weight
        As for its ``fit``.
    """
    problem = estimator._prepare(X, y, sample_weight)
    hyper = problem.model.hyperparameters()
    if n_candidates == 1 or not hyper or len(problem.windows.stops) > n_windows or _one_by_one(problem):
        return estimator.fit(X, y, sample_weight)
    repeated = {name: np.stack([np.asarray(value)] * n_candidates) for name, value in hyper.items()}
    params, info, _ = estimator._solve(problem, repeated)
    params, info = map_params(lambda a: a[:, 0].copy(), (params, info))
    estimator._store(problem, params, info)
    estimator._remember(problem)
    return estimator
