"""Searches like scikit-learn's whose fits, all candidates on all folds, are one compiled call."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, ParameterGrid, ParameterSampler, RandomizedSearchCV, check_cv
from sklearn.utils import indexable

from skjaxwin._sklearn_private import (
    MultimetricScorer,
    check_method_params,
    insert_error_scores,
    safe_indexing,
    score_estimator,
    warn_or_raise_about_fit_failures,
)
from skjaxwin.fold_fits import FoldFits, fit_folds
from skjaxwin.fold_scores import score_together
from skjaxwin.rolling import RollingJaxEstimator

__all__ = ["WindowRandomizedSearchCV", "WindowSearchCV"]


class _FitsTogether:
    """The `fit` of a scikit-learn search, with all fits of a RollingJaxEstimator in one call.

    Mixed in left of a search of scikit-learn, whose own `fit` serves what cannot go together.
    """

    batched_: bool
    fallback_reason_: str | None

    def fit(self, X: Any, y: Any = None, **params: Any) -> Any:
        """Evaluate all candidates on all folds, and refit the best.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None
        **params
            ``sample_weight`` for the fits (and scores), ``groups`` for the splitter; as in scikit-learn.

        Returns
        -------
        self : object
        """
        self.fallback_reason_ = self._why_one_by_one(params)
        self.batched_ = self.fallback_reason_ is None
        if not self.batched_:
            return super().fit(X, y, **params)  # type: ignore[misc]
        self._validate_params()  # type: ignore[attr-defined]
        scorers, refit_metric = self._get_scorers()  # type: ignore[attr-defined]
        X, y = indexable(X, y)
        params = check_method_params(X, params=params)
        routed = self._get_routed_params_for_fit(params)  # type: ignore[attr-defined]
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))  # type: ignore[attr-defined]
        self.n_splits_ = cv.get_n_splits(X, y, **routed.splitter.split)
        splits = list(cv.split(X, y, **routed.splitter.split))
        candidates = list(self._candidates())
        if self.verbose:  # type: ignore[attr-defined]
            print(f"Fitting {len(splits)} folds for each of {len(candidates)} candidates, in one call where possible")
        out = self._evaluate(candidates, X, y, splits, scorers, routed)
        warn_or_raise_about_fit_failures(out, self.error_score)  # type: ignore[attr-defined]
        results = self._format_results(candidates, len(splits), out, {})  # type: ignore[attr-defined]
        self.multimetric_ = isinstance(scorers, MultimetricScorer)
        self._choose(results, refit_metric, X, y, routed.estimator.fit)
        self.scorer_ = scorers._scorers if self.multimetric_ else scorers
        self.cv_results_ = results
        return self

    def _candidates(self) -> Any:
        raise NotImplementedError

    def _why_one_by_one(self, params: dict[str, Any]) -> str | None:
        """Return why the ordinary path is taken, None if fits can go together."""
        estimator: Any = self.estimator  # type: ignore[attr-defined]
        grid: Any = getattr(self, "param_grid", None) or getattr(self, "param_distributions", None)
        searched = {name for part in ([grid] if isinstance(grid, dict) else grid or []) for name in part}
        if type(estimator) is not RollingJaxEstimator:
            return f"the estimator is a {type(estimator).__name__}, not a RollingJaxEstimator"
        if estimator.inference is not None or "inference" in searched:
            return "inference computes standard errors, which searches do not show"
        if estimator.underdetermined == "nan" or "underdetermined" in searched:
            return "underdetermined='nan' leaves rows without predictions"
        if estimator.capacity is not None or "capacity" in searched:
            return "capacity is set"
        if self.return_train_score:  # type: ignore[attr-defined]
            return "return_train_score asks for predictions of training rows, which need all windows"
        if callable(self.scoring):  # type: ignore[attr-defined]
            return "scoring is a function"
        if getattr(self, "_skl_callbacks", None):
            return "callbacks are called for each fit"
        if set(params) - {"sample_weight", "groups"}:
            return f"fit was passed {sorted(set(params) - {'sample_weight', 'groups'})}"
        return None

    def _evaluate(
        self, candidates: list[dict[str, Any]], X: Any, y: Any, splits: list[Any], scorers: Any, routed: Any
    ) -> list[dict[str, Any]]:
        """Return what scikit-learn's `_fit_and_score` would for each candidate and fold, candidate by candidate."""
        begin = time.perf_counter()
        estimator: Any = self.estimator  # type: ignore[attr-defined]
        estimators = [clone(estimator).set_params(**clone(candidate, safe=False)) for candidate in candidates]
        error_score = self.error_score  # type: ignore[attr-defined]
        failed = {"test_scores": error_score, "fit_error": None}
        out = [[dict(failed, n_test_samples=len(test)) for _, test in splits] for _ in candidates]
        weight = routed.estimator.fit.get("sample_weight")
        weight = None if weight is None else np.asarray(weight)
        scoring = 0.0
        for fits in fit_folds(estimators, candidates, X, y, weight, splits, error_score):
            if isinstance(fits, tuple):
                members, folds, error = fits
                for i in members:
                    for fold in folds:
                        out[i][fold]["fit_error"] = error
                continue
            since = time.perf_counter()
            for at, fold in enumerate(fits.folds):
                scores = self._scores(fits, at, splits[fold][1], X, y, scorers, routed.scorer.score)
                for i, score in zip(fits.candidates, scores, strict=True):
                    out[i][fold]["test_scores"] = score
            scoring += time.perf_counter() - since
        fitting = time.perf_counter() - begin - scoring
        n_fits = max(len(candidates) * len(splits), 1)
        flat = [
            result | {"fit_time": fitting / n_fits, "score_time": scoring / n_fits} for row in out for result in row
        ]
        if isinstance(scorers, MultimetricScorer) and any(result["fit_error"] is not None for result in flat):
            insert_error_scores(flat, error_score)
        return flat

    def _scores(
        self, fits: FoldFits, at: int, test: np.ndarray, X: Any, y: Any, scorers: Any, score_params: dict[str, Any]
    ) -> list[Any]:
        """Score one fold for all candidates that were fitted together."""
        parameters = check_method_params(X, params=score_params, indices=test)
        if fits.predictions is not None and y is not None and set(parameters) <= {"sample_weight"}:
            kind = str(fits.estimators[0]._model().estimator_type)
            target = np.asarray(safe_indexing(y, test))
            together = score_together(scorers, kind, target, fits.predictions[at], parameters.get("sample_weight"))
            if together is not None:
                return together.tolist()
        rows, answers = safe_indexing(X, test), None if y is None else safe_indexing(y, test)
        error_score = self.error_score  # type: ignore[attr-defined]
        return [
            score_estimator(fits.estimator(at, i), rows, answers, scorers, parameters, error_score)
            for i in range(len(fits.candidates))
        ]

    def _choose(self, results: dict[str, Any], metric: str, X: Any, y: Any, fit_params: dict[str, Any]) -> None:
        """Set what is best, and refit it."""
        refit: Any = self.refit  # type: ignore[attr-defined]
        if refit or not self.multimetric_:
            self.best_index_ = self._select_best_index(refit, metric, results)  # type: ignore[attr-defined]
            if not callable(refit):
                self.best_score_ = results[f"mean_test_{metric}"][self.best_index_]
            self.best_params_ = results["params"][self.best_index_]
        if not refit:
            return
        begin = time.perf_counter()
        best = clone(self.estimator).set_params(**clone(self.best_params_, safe=False))  # type: ignore[attr-defined]
        self.best_estimator_ = best.fit(X, y, **fit_params)
        self.refit_time_ = time.perf_counter() - begin
        if hasattr(best, "feature_names_in_"):
            self.feature_names_in_ = best.feature_names_in_


class WindowSearchCV(_FitsTogether, GridSearchCV):
    """Grid search over the parameters of a RollingJaxEstimator, all fits in one compiled call.

    Parameters, attributes and results are those of ``sklearn.model_selection.GridSearchCV``. A fold's training rows are
    fitted only on the windows that predict its test rows: without a time column the newest one, else those
    that end strictly before a test row. These windows, of all folds, are fitted for all candidates together.
    Candidates that differ in numbers of the model share one call; each other combination, such as another `window`,
    has a call of its own.

    Parameters
    ----------
    estimator : RollingJaxEstimator
        Other estimators, pipelines for one, are searched as GridSearchCV does; `fallback_reason_` then says why.
    param_grid : dict or list of dict
        As for GridSearchCV: ``{"model__alpha": [0.1, 1.0], "window": [60, 250]}``.
    scoring, refit, cv, verbose, error_score, return_train_score
        As for GridSearchCV. R2, squared and absolute errors and the accuracy are computed for all candidates at once;
        other scorers are given each fitted estimator.
    n_jobs, pre_dispatch
        Of the ordinary path; fits in one call go side by side by themselves.

    Attributes
    ----------
    batched_ : bool
        Whether all fits went together.
    fallback_reason_ : str or None
        Why they did not.
    cv_results_, best_estimator_, best_score_, best_params_, best_index_, scorer_, n_splits_, refit_time_, multimetric_
        As GridSearchCV's. Times are shares of the one call.

    See Also
    --------
    walk_forward_grid : Predictions of every window of every candidate.

    Notes
    -----
    Fits go one by one, as in GridSearchCV, for other estimators, with standard errors, ``underdetermined="nan"``,
    a `capacity`, training scores or a function for `scoring`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.model_selection import TimeSeriesSplit
    >>> from skjaxwin import RollingJaxEstimator, WindowSearchCV, models
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> y = X @ [1.0, -2.0, 0.5] + rng.normal(size=300)
    >>> grid = {"model__alpha": [0.1, 1.0, 10.0, 1000.0]}
    >>> search = WindowSearchCV(RollingJaxEstimator(models.Linear()), grid, cv=TimeSeriesSplit(10)).fit(X, y)
    >>> search.batched_, search.best_params_
    (True, {'model__alpha': 1.0})
    """

    def _candidates(self) -> Any:
        return ParameterGrid(self.param_grid)


class WindowRandomizedSearchCV(_FitsTogether, RandomizedSearchCV):
    """Randomized search over the parameters of a RollingJaxEstimator, all fits in one compiled call.

    Parameters, attributes and results are those of ``sklearn.model_selection.RandomizedSearchCV``; how fits go
    together, and when they do not, is as for `WindowSearchCV`.

    Parameters
    ----------
    estimator : RollingJaxEstimator
    param_distributions : dict or list of dict
        Lists, or distributions with ``rvs``.
    n_iter : int, default=10
        How many candidates are drawn.
    random_state : int, RandomState instance or None, default=None
        Of the drawing.
    scoring, refit, cv, verbose, error_score, return_train_score, n_jobs, pre_dispatch
        As for `WindowSearchCV`.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.stats import loguniform
    >>> from skjaxwin import RollingJaxEstimator, WindowRandomizedSearchCV, models
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = X[:, 0] + 0.1 * rng.normal(size=200)
    >>> drawn = {"model__alpha": loguniform(1e-3, 1e3)}
    >>> search = WindowRandomizedSearchCV(RollingJaxEstimator(models.Linear()), drawn, n_iter=20, random_state=0, cv=3)
    >>> bool(search.fit(X, y).best_params_["model__alpha"] < 1)
    True
    """

    def _candidates(self) -> Any:
        return ParameterSampler(self.param_distributions, self.n_iter, random_state=self.random_state)
