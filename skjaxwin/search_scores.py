"""What scikit-learn's `_fit_and_score` would return for each candidate, on folds or walking forward."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline

from skjaxwin._sklearn_private import MultimetricScorer, check_method_params, safe_indexing, score_estimator
from skjaxwin.fold_fits import FoldFits, fit_folds
from skjaxwin.fold_problems import features_and_times
from skjaxwin.fold_scores import Predicted, score_together
from skjaxwin.rolling import RollingJaxEstimator
from skjaxwin.row_wise import WindowStep
from skjaxwin.search import Walked
from skjaxwin.window_selection import OutOfSample, Path, choose_path, common_rows, walk_candidates

__all__ = ["Search", "score_folds", "score_walk"]


def _with_each(estimator: RollingJaxEstimator, candidates: list[dict[str, Any]]) -> list[RollingJaxEstimator]:
    """Return an estimator for each candidate; those that change what it and its model have at hand share the rest."""
    base = clone(estimator)
    if base.model is None and any(name.startswith("model__") for own in candidates for name in own):
        base.model = base._model()
    quick = {*base.get_params(deep=False), *(f"model__{name}" for name in base._model().get_params(deep=False))}
    if base.model is None:
        quick = set(base.get_params(deep=False))
    # A model of a user's functions keeps its numbers elsewhere.
    kind = type(base._model())
    plain = kind.get_params is BaseEstimator.get_params and kind.set_params is BaseEstimator.set_params
    made = []
    for own in candidates:
        if "model" in own or not plain or not set(own) <= quick:
            made.append(clone(base).set_params(**clone(own, safe=False)))
            continue
        one = copy.copy(base)
        one.model = copy.copy(base.model)
        for name, value in own.items():
            target = one.model if name.startswith("model__") else one
            setattr(target, name.removeprefix("model__"), value)
        made.append(one)
    return made


@dataclass
class Search:
    """A search and what it has found so far.

    Attributes
    ----------
    step : WindowStep
    candidates : list of dict
    X, y, weight
        All rows, and the weights of the fits.
    scorers : scorer of scikit-learn, or function
    score_params : dict
        What scorers are passed.
    error_score : "raise" or float
    together, n_windows : int
        How many candidates were fitted in one call, and windows for each: the most there were.
    walked : list of Walked or str
        For walks forward, one for each candidate: see `walk_candidates`.
    """

    step: WindowStep
    candidates: list[dict[str, Any]]
    X: Any
    y: Any
    weight: Any
    scorers: Any
    score_params: dict[str, Any]
    error_score: Any
    together: int = 1
    n_windows: int = 0
    walked: list[Walked | str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kind = str(self.step.estimator._model().estimator_type)
        self.own = [self.step.own(candidate) for candidate in self.candidates]
        self.estimators = _with_each(self.step.estimator, self.own)
        self.rows, self.before = self.step.transformed(self.X)
        self.weights = None if self.weight is None else np.asarray(self.weight)
        self._features: dict[Any, np.ndarray] = {}

    def together_scored(self, predicted: Predicted, rows: np.ndarray) -> list[Any] | None:
        """Score predictions of some rows of X by a formula; None where there is none."""
        params = self.params_of(rows)
        if self.y is None or not set(params) <= {"sample_weight"}:
            return None
        return score_together(
            self.scorers, self.kind, np.asarray(safe_indexing(self.y, rows)), predicted, params.get("sample_weight")
        )

    def features(self, estimator: RollingJaxEstimator, rows: np.ndarray) -> np.ndarray | None:
        """Return some rows' features as an estimator that has seen X takes them; None where it refuses a row."""
        key = estimator.time, estimator.cluster, estimator.missing
        try:
            if key not in self._features:
                self._features[key] = features_and_times(estimator, self.rows)[0]
            return self._features[key][rows]
        except ValueError:
            pass  # of a row that may be one of other folds
        try:
            return features_and_times(estimator, safe_indexing(self.rows, rows))[0]
        except ValueError:
            return None  # scikit-learn reports it when it scores these rows

    def scored(self, fitted: Any, rows: np.ndarray) -> Any:
        """Let scikit-learn score a fitted estimator on some rows of X."""
        if self.before is not None:
            fitted = Pipeline([*self.before.steps, (self.step.prefix.removesuffix("__"), fitted)])
        X, y = safe_indexing(self.X, rows), None if self.y is None else safe_indexing(self.y, rows)
        return score_estimator(fitted, X, y, self.scorers, self.params_of(rows), self.error_score)

    def params_of(self, rows: np.ndarray) -> dict[str, Any]:
        """Return what scorers are passed for some rows."""
        return check_method_params(self.X, params=self.score_params, indices=rows)

    def failed(self, error: str) -> dict[str, Any]:
        """Return the result of a fit that failed."""
        score = self.error_score
        if isinstance(self.scorers, MultimetricScorer):
            score = dict.fromkeys(self.scorers._scorers, score)
        return {"test_scores": score, "fit_error": error}

    def path(self, lookback: Any) -> Path:
        """Choose a candidate at each time."""
        y = np.asarray(self.y)
        rows = common_rows([one for one in self.walked if isinstance(one, Walked)], y)
        weight = self.score_params.get("sample_weight")
        return choose_path(self.walked, y, rows, weight, self.scorers, lookback)

    def along(self, path: Path) -> tuple[np.ndarray, float]:
        """Return the predictions of the candidates on a path, and their score."""
        fitted = {i: one for i, one in enumerate(self.walked) if isinstance(one, Walked)}
        first = next(iter(fitted.values()))
        raw = np.full(first.raw.shape, np.nan, first.raw.dtype)
        for i, one in fitted.items():
            own = path.candidate_of_row == i
            raw[own] = one.raw[own]
        model, classes = first.estimator._model(), first.problem.classes
        rows = common_rows(list(fitted.values()), np.asarray(self.y))
        rows = rows[path.candidate_of_row[rows] >= 0]
        scores = self.together_scored(Predicted(raw[None][:, rows], classes, model), rows)
        if scores is None and len(rows):
            scores = [self.scored(OutOfSample.of(first, raw[rows]), rows)]
        return Predicted(raw[None], classes, model).answers()[0], scores[0] if scores else float("nan")


def score_folds(
    search: Search, splits: list[tuple[np.ndarray, np.ndarray]], *, train_scores: bool, max_memory: float
) -> list[dict[str, Any]]:
    """Return the results of all fits, candidate by candidate."""
    begin, scoring = time.perf_counter(), 0.0
    n_tests = [len(safe_indexing(search.X, test)) for _, test in splits]
    out: list[list[dict[str, Any]]] = [[{} for _ in splits] for _ in search.candidates]
    for fits in fit_folds(
        search.estimators,
        search.own,
        search.rows,
        search.y,
        search.weights,
        splits,
        error_score=search.error_score,
        train_scores=train_scores,
        max_memory=max_memory,
    ):
        if isinstance(fits, tuple):
            members, folds, error = fits
            for i in members:
                for number in folds:
                    out[i][number] = search.failed(error)
                    if train_scores:
                        out[i][number]["train_scores"] = out[i][number]["test_scores"]
            continue
        since = time.perf_counter()
        search.together = max(search.together, len(fits.candidates))
        search.n_windows = max(search.n_windows, int(fits.first_window[-1]))
        for at, fold in enumerate(fits.folds):
            for part, name in enumerate(["test_scores", "train_scores"][: len(fold.parts)]):
                for i, score in zip(fits.candidates, _scores(search, fits, at, part), strict=True):
                    out[i][fold.number] |= {name: score, "fit_error": None}
        scoring += time.perf_counter() - since
    fitting = time.perf_counter() - begin - scoring
    n_fits = max(len(search.candidates) * len(splits), 1)
    times = {"fit_time": fitting / n_fits, "score_time": scoring / n_fits}
    return [result | times | {"n_test_samples": n} for row in out for result, n in zip(row, n_tests, strict=True)]


def _scores(search: Search, fits: FoldFits, at: int, part: int) -> list[Any]:
    """Score a fold's test or training rows for all candidates that were fitted together."""
    fold = fits.folds[at]
    rows = fold.parts[part]
    features = None if search.kind == "None" else search.features(fits.estimators[0], rows)
    if features is not None:
        predicted = Predicted(fits.predict(at, part, features), fold.problem.classes, fold.problem.model)
        together = search.together_scored(predicted, rows)
        if together is not None:
            return together
    return [search.scored(fits.estimator(at, i), rows) for i in range(len(fits.candidates))]


def score_walk(search: Search) -> list[dict[str, Any]]:
    """Return the results of all candidates whose windows predict all rows out of sample."""
    begin = time.perf_counter()
    search.walked = walk_candidates(
        search.estimators, search.own, search.rows, search.y, search.weights, error_score=search.error_score
    )
    since = time.perf_counter()
    fitted = {i: one for i, one in enumerate(search.walked) if isinstance(one, Walked)}
    rows, scores = np.empty(0, int), {}
    if fitted:
        rows = common_rows(list(fitted.values()), np.asarray(search.y))
        first = next(iter(fitted.values()))
        raw = np.stack([one.raw[rows] for one in fitted.values()])
        together = search.together_scored(Predicted(raw, first.problem.classes, first.estimator._model()), rows)
        if together is None:
            together = [search.scored(OutOfSample.of(one, one.raw[rows]), rows) for one in fitted.values()]
        scores = dict(zip(fitted, together, strict=True))
    end = time.perf_counter()
    n = max(len(search.candidates), 1)
    shared = {"fit_time": (since - begin) / n, "score_time": (end - since) / n, "n_test_samples": len(rows)}
    return [
        ({"test_scores": scores[i], "fit_error": None} if i in scores else search.failed(str(search.walked[i])))
        | shared
        for i in range(len(search.candidates))
    ]
