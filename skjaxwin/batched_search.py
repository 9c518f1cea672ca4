"""The `fit` of searches whose fits, all candidates on all folds, are one compiled call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils import check_consistent_length, indexable

from skjaxwin._sklearn_private import (
    BaseScorer,
    MultimetricScorer,
    check_method_params,
    insert_error_scores,
    warn_or_raise_about_fit_failures,
)
from skjaxwin.fold_fits import fit_with_the_kernel_of
from skjaxwin.models import WindowModel
from skjaxwin.rolling import RollingJaxEstimator
from skjaxwin.row_wise import WindowStep, find_window_step
from skjaxwin.search_scores import Search, score_folds, score_walk
from skjaxwin.window_selection import loss_by_row

__all__ = ["FitsTogether"]

# Set where each window has its own choice, and by no other search.
_PATH_ATTRIBUTES = (
    "selection_path_",
    "selection_times_",
    "best_params_path_",
    "walk_forward_predictions_",
    "walk_forward_score_",
)


class FitsTogether:
    """The `fit` of a scikit-learn search, with all fits of a RollingJaxEstimator in one call.

    Mixed in left of a search of scikit-learn, whose own `fit` serves what cannot go together.
    """

    batched_: bool
    fallback_reason_: str | None
    # Parameters and methods of the search that it is mixed into.
    estimator: Any
    cv: Any
    scoring: Any
    refit: Any
    verbose: Any
    error_score: Any
    return_train_score: bool
    max_memory: float
    selection: str
    lookback: Any
    _validate_params: Callable[[], None]
    _get_scorers: Callable[[], Any]
    _get_routed_params_for_fit: Callable[[Any], Any]
    _format_results: Callable[..., dict[str, Any]]
    _select_best_index: Callable[..., int]
    _check_refit_for_multimetric: Callable[[Any], None]

    def fit(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Evaluate all candidates, and refit the best.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None
        **params
            ``sample_weight`` for the fits (and scores), ``groups`` for the splitter; as in scikit-learn.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            For bad parameters or data; where ``cv=None`` or ``selection="per_window"`` ask for predictions of windows
            that the estimator does not make.
        """
        self._validate_params()
        for name in [name for name in vars(self) if name in _PATH_ATTRIBUTES]:
            delattr(self, name)
        step, reason = self._step_to_search(params)
        self.fallback_reason_, self.batched_ = reason, reason is None
        if step is None:
            return super().fit(X, y, **params)  # type: ignore[misc]
        scorers, refit_metric = self._get_scorers()
        X, y = indexable(X, y)
        params = check_method_params(X, params=params)
        routed = self._get_routed_params_for_fit(params)
        candidates = list(self._candidates())
        weight = routed.estimator.fit.get(f"{step.prefix}sample_weight", routed.estimator.fit.get("sample_weight"))
        if weight is not None:
            check_consistent_length(X, weight)
        try:
            search = Search(step, candidates, X, y, weight, scorers, routed.scorer.score, self.error_score)
        except ValueError as error:
            if step.before is None or self.cv is None:
                raise
            # A row that a step refuses is not in every fold.
            self.fallback_reason_, self.batched_ = f"the Pipeline refuses a row: {error}", False
            return super().fit(X, y, **params)  # type: ignore[misc]
        if self.selection == "per_window":
            loss_by_row(scorers, search.kind)
        if self.cv is None:
            self.n_splits_ = 1
            self._say(1, len(candidates))
            out = score_walk(search)
        else:
            cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
            self.n_splits_ = cv.get_n_splits(X, y, **routed.splitter.split)
            splits = list(cv.split(X, y, **routed.splitter.split))
            if len(splits) != self.n_splits_:
                raise ValueError(
                    "cv.split and cv.get_n_splits return inconsistent results. "
                    f"Expected {self.n_splits_} splits, got {len(splits)}"
                )
            self._say(len(splits), len(candidates))
            out = score_folds(search, splits, train_scores=self.return_train_score, max_memory=self.max_memory)
        if not out:
            raise ValueError("No fits were performed. Was the CV iterator empty? Were there no candidates?")
        warn_or_raise_about_fit_failures(out, self.error_score)
        if callable(self.scoring) or isinstance(scorers, MultimetricScorer):
            insert_error_scores(out, self.error_score)
        results = self._format_results(candidates, self.n_splits_, out, {})
        self.multimetric_ = isinstance(out[0]["test_scores"], dict)
        if callable(self.scoring) and self.multimetric_:
            self._check_refit_for_multimetric(out[0]["test_scores"])
            refit_metric = self.refit
        if self.selection == "per_window":
            self._store_path(search)
        self._choose(results, refit_metric, search, routed.estimator.fit)
        self.scorer_ = scorers._scorers if isinstance(scorers, MultimetricScorer) else scorers
        self.cv_results_ = results
        return self

    def _say(self, n_splits: int, n_candidates: int) -> None:
        if self.verbose:
            n_fits = n_splits * n_candidates
            print(f"Fitting {n_splits} folds for each of {n_candidates} candidates, totalling {n_fits} fits")

    def _candidates(self) -> Any:
        raise NotImplementedError

    def _step_to_search(self, params: dict[str, Any]) -> tuple[WindowStep | None, str | None]:
        """Return what is fitted in windows, or None and why the ordinary path is taken."""
        grid: Any = getattr(self, "param_grid", None) or getattr(self, "param_distributions", None)
        searched = {name for part in ([grid] if isinstance(grid, dict) else grid or []) for name in part}
        found = find_window_step(self.estimator, searched)
        step = found if isinstance(found, WindowStep) else None
        reason = found if isinstance(found, str) else self._why_one_by_one(found, searched, params)
        if self.selection == "per_window":
            self._check_per_window(reason)
        elif self.lookback is not None:
            raise ValueError(f'lookback={self.lookback!r} needs selection="per_window".')
        last = getattr(self.estimator, "steps", [[self.estimator]])[-1][-1]
        walks = self.cv is None and isinstance(last, RollingJaxEstimator)
        if walks and reason is not None:
            raise ValueError(
                f"cv=None scores predictions of all windows, which is not possible here: {reason}; pass cv."
            )
        return (step, None) if reason is None else (None, reason)

    def _why_one_by_one(self, step: WindowStep, searched: set[str], params: dict[str, Any]) -> str | None:
        estimator = step.estimator
        own = {name.removeprefix(step.prefix) for name in searched}
        models = self._models(step)
        routing = get_config()["enable_metadata_routing"]
        if len({model.estimator_type for model in models}) > 1:
            return "candidates are of different kinds, such as regressors and classifiers"
        if self.cv is None:
            if models and models[0].estimator_type is None:
                return f"{type(models[0]).__name__} predicts nothing"
            if self.return_train_score:
                return "return_train_score asks for folds"
        elif estimator.inference is not None or "inference" in own:
            return "inference computes standard errors, which searches do not show"
        elif estimator.underdetermined == "nan" or "underdetermined" in own:
            return "underdetermined='nan' leaves rows without predictions"
        elif estimator.exposure is not None or "exposure" in own:
            return "exposure multiplies predictions"
        elif estimator.capacity is not None or "capacity" in own:
            return "capacity is set"
        elif not all(model.convex for model in models):
            return "fits depend on what they start from, which is the window before"
        elif not all(_reads_predictions(scorer) for scorer in _each(self.scoring)):
            return "scoring is a function of the fitted estimator"
        if getattr(self, "_skl_callbacks", None):
            return "callbacks are called for each fit"
        if routing and params and step.before is not None:
            return "metadata are routed through a Pipeline"
        allowed = {"sample_weight" if routing else f"{step.prefix}sample_weight", "groups"}
        if set(params) - allowed:
            return f"fit was passed {sorted(set(params) - allowed)}"
        return None

    def _models(self, step: WindowStep) -> list[Any]:
        """Return the models that candidates may have, as far as they are listed."""
        grid: Any = getattr(self, "param_grid", None) or getattr(self, "param_distributions", None)
        listed = [part.get(f"{step.prefix}model") for part in ([grid] if isinstance(grid, dict) else grid or [])]
        models = [] if listed and all(one is not None for one in listed) else [step.estimator._model()]
        for one in listed:
            if isinstance(one, Sequence | np.ndarray):
                models += [model for model in one if isinstance(model, WindowModel)]
        return models

    def _check_per_window(self, reason: str | None) -> None:
        if self.cv is not None:
            raise ValueError(
                f'selection="per_window" chooses from predictions of all windows; pass cv=None, not {self.cv}.'
            )
        if reason is not None:
            raise ValueError(f'selection="per_window" is not possible here: {reason}.')
        if callable(self.refit) or isinstance(self.refit, str):
            raise ValueError(
                f'selection="per_window" chooses by itself: refit must be True or False, got {self.refit!r}.'
            )

    def _store_path(self, search: Search) -> None:
        """Set what was best at each time."""
        path = search.path(self.lookback)
        self.selection_path_, self.selection_times_ = path.choice, path.times
        self.best_params_path_ = [search.candidates[i] for i in path.choice]
        self.walk_forward_predictions_, self.walk_forward_score_ = search.along(path)

    def _choose(self, results: dict[str, Any], metric: str, search: Search, fit_params: dict[str, Any]) -> None:
        """Set what is best, and refit it."""
        refit: Any = self.refit
        if refit or not self.multimetric_:
            if self.selection == "per_window":
                self.best_index_ = int(self.selection_path_[-1])
            else:
                self.best_index_ = self._select_best_index(refit, metric, results)
            if not callable(refit):
                self.best_score_ = results[f"mean_test_{metric}"][self.best_index_]
            self.best_params_ = results["params"][self.best_index_]
        if not refit:
            return
        begin = time.perf_counter()
        best = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))
        if search.step.before is None and self.cv is not None and best.inference is None:
            fit_with_the_kernel_of(best, search.together, search.n_windows, search.X, search.y, search.weight)
        else:
            best.fit(search.X, search.y, **fit_params)
        self.best_estimator_ = best
        self.refit_time_ = time.perf_counter() - begin
        if hasattr(best, "feature_names_in_"):
            self.feature_names_in_ = best.feature_names_in_


def _each(scoring: Any) -> list[Any]:
    """Return what the scores are computed by: names, scorers, functions."""
    if isinstance(scoring, dict):
        return list(scoring.values())
    return list(scoring) if isinstance(scoring, list | tuple | set) else [scoring]


def _reads_predictions(scorer: Any) -> bool:
    """Say whether a scorer is known to look at nothing but predictions."""
    return scorer is None or isinstance(scorer, str | BaseScorer)
