"""Searches like scikit-learn's, of windows: folds in one call, walks forward, and a choice for each window."""

from __future__ import annotations

import datetime
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.model_selection import GridSearchCV, ParameterGrid, ParameterSampler, RandomizedSearchCV

from skjaxwin._sklearn_private import Interval, RealNotInt, StrOptions
from skjaxwin.batched_search import FitsTogether

__all__ = ["WindowRandomizedSearchCV", "WindowSearchCV"]

# What the searches have beyond scikit-learn's.
_CONSTRAINTS: dict[str, list] = {
    "max_memory": [Interval(Real, 0, None, closed="neither")],
    "selection": [StrOptions({"global", "per_window"})],
    "lookback": [
        np.timedelta64,
        str,
        Interval(Integral, 1, None, closed="left"),
        Interval(RealNotInt, 0, None, closed="neither"),
        datetime.timedelta,
        None,
    ],
}


class WindowSearchCV(FitsTogether, GridSearchCV):
    """Grid search over the parameters of a RollingJaxEstimator, all fits in one compiled call.

    Results are those of ``sklearn.model_selection.GridSearchCV`` on the same folds. A fold's training rows are
    fitted only on the windows that predict its test rows: without a time column the newest one, else those
    that end strictly before a test row. These windows, of all folds, are fitted for all candidates together.
    Candidates that differ in numbers of the model share one call; each other combination, such as another `window`,
    has a call of its own.

    Parameters
    ----------
    estimator : RollingJaxEstimator or Pipeline
        A Pipeline that ends in one, after steps that take each row for itself and learn nothing: ``Normalizer``,
        ``Binarizer``, ``PolynomialFeatures``, or ``FunctionTransformer`` of a NumPy ufunc. Other estimators are
        searched as GridSearchCV does; `fallback_reason_` then says why.
    param_grid : dict or list of dict
        As for GridSearchCV: ``{"model__alpha": [0.1, 1.0], "window": [60, 250]}``.
    cv : None, int, splitter or iterable, default=None
        None: no folds, but the estimator's own windows (of other estimators: as for GridSearchCV). Each row is
        predicted by the newest window that ended strictly before it, and scored once: a single split. Rows that some
        candidate cannot predict are scored for none.
    scoring, refit, verbose, error_score, return_train_score
        As for GridSearchCV. R2, squared, absolute and pinball errors, Poisson deviance, log loss and accuracy are
        computed for all candidates at once; other scorers of scikit-learn are given each candidate's predictions. A
        function of the fitted estimator needs the ordinary path.
    n_jobs, pre_dispatch
        Of the ordinary path; fits in one call go side by side by themselves.
    max_memory : float, default=256e6
        Bytes of training rows that are laid out at a time.
    selection : {"global", "per_window"}, default="global"
        "per_window", with ``cv=None``: at the end of each window, the candidate whose predictions out of sample were
        best up to then makes the predictions until the next window ends. Until there is a score that is the first
        candidate. For R2, squared errors are compared; of several outputs each relative to its variance.
    lookback : int, float, timedelta or str, default=None
        With "per_window", how far back scores count: time stamps or a duration, as a `window`; None for all of the
        past.

    Attributes
    ----------
    batched_ : bool
        Whether all fits went together.
    fallback_reason_ : str or None
        Why they did not.
    cv_results_, best_estimator_, best_score_, best_params_, best_index_, scorer_, n_splits_, refit_time_, multimetric_
        As GridSearchCV's. Times are shares of the one call. Per window, the best candidate is the newest choice.
    selection_path_ : ndarray of int of shape (n_windows,)
        Per window: the candidates chosen, one at each time at which a window of some candidate ends.
    selection_times_ : ndarray of shape (n_windows,)
        Per window: these times.
    best_params_path_ : list of dict
        Per window: the parameters chosen.
    walk_forward_predictions_ : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        Per window: each row, in the order of X, predicted by the choice that was known before it; NaN (None for
        classes that are no numbers) where there was none.
    walk_forward_score_ : float
        Per window: their score, on the rows that all candidates predict.

    See Also
    --------
    walk_forward_grid : Predictions of every window of every candidate.

    Notes
    -----
    Fits go one by one, as in GridSearchCV, for other estimators, candidates of different kinds, and on folds with
    standard errors, an `exposure`, ``underdetermined="nan"`` or a `capacity`. So do models with several optima
    (mixtures, ``LeastSquares``, ``Loss``, and those of your own with an `initial`), where a window's fit depends on the
    one before it.

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

    _parameter_constraints: ClassVar[dict[str, list]] = {**GridSearchCV._parameter_constraints, **_CONSTRAINTS}

    def __init__(
        self,
        estimator: Any,
        param_grid: Any,
        *,
        cv: Any = None,
        scoring: Any = None,
        refit: Any = True,
        n_jobs: int | None = None,
        max_memory: float = 256e6,
        error_score: Any = np.nan,
        return_train_score: bool = False,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        selection: str = "global",
        lookback: Any = None,
    ) -> None:
        super().__init__(
            estimator,
            param_grid,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.max_memory = max_memory
        self.selection = selection
        self.lookback = lookback

    def _candidates(self) -> Any:
        return ParameterGrid(self.param_grid)


class WindowRandomizedSearchCV(FitsTogether, RandomizedSearchCV):
    """Randomized search over the parameters of a RollingJaxEstimator, all fits in one compiled call.

    Candidates are drawn as by ``sklearn.model_selection.RandomizedSearchCV``; all else is as for `WindowSearchCV`.

    Parameters
    ----------
    estimator : RollingJaxEstimator or Pipeline
    param_distributions : dict or list of dict
        Lists, or distributions with ``rvs``.
    n_iter : int, default=10
        How many candidates are drawn.
    random_state : int, RandomState instance or None, default=None
        Of the drawing.
    cv, scoring, refit, verbose, error_score, return_train_score, n_jobs, pre_dispatch, max_memory, selection, lookback
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

    _parameter_constraints: ClassVar[dict[str, list]] = {**RandomizedSearchCV._parameter_constraints, **_CONSTRAINTS}

    def __init__(
        self,
        estimator: Any,
        param_distributions: Any,
        *,
        n_iter: int = 10,
        random_state: Any = None,
        cv: Any = None,
        scoring: Any = None,
        refit: Any = True,
        n_jobs: int | None = None,
        max_memory: float = 256e6,
        error_score: Any = np.nan,
        return_train_score: bool = False,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        selection: str = "global",
        lookback: Any = None,
    ) -> None:
        super().__init__(
            estimator,
            param_distributions,
            n_iter=n_iter,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            random_state=random_state,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.max_memory = max_memory
        self.selection = selection
        self.lookback = lookback

    def _candidates(self) -> Any:
        return ParameterSampler(self.param_distributions, self.n_iter, random_state=self.random_state)
