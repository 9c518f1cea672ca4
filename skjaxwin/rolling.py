"""RollingJaxEstimator: any model, fitted on every window."""

from __future__ import annotations

import datetime
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, RegressorTags

from skjaxwin._sklearn_private import Interval, NamesOnce, RealNotInt, StrOptions
from skjaxwin.classification import PredictsClasses
from skjaxwin.entropy_path import HasEntropyPath
from skjaxwin.inference import check_inference, store_errors
from skjaxwin.kernels import all_finite, bucket, fit_windows, map_params
from skjaxwin.later_rows import FitsLaterRows
from skjaxwin.models import Linear, WindowModel
from skjaxwin.problem import Problem, prepare
from skjaxwin.window_predictions import PredictsByWindows
from skjaxwin.window_results import OF_WINDOWS, nan_where, show_newest, warn_of_failures, windows_found

__all__ = ["RollingJaxEstimator"]


class RollingJaxEstimator(PredictsClasses, HasEntropyPath, FitsLaterRows, PredictsByWindows, NamesOnce, BaseEstimator):
    r"""Fit a model on every expanding or rolling window of time-ordered rows.

    All windows are fitted by one compiled kernel of fixed shape. Nothing is
    recompiled when the window grows, when a hyperparameter changes, or when the
    estimator is cloned; `count_compiles` shows it.

    Parameters
    ----------
    model : models.WindowModel, default=None
        What is fitted in each window; None is ``models.Linear()``. Its parameters
        are reachable as ``model__alpha`` and so on.
    window : "expanding", int, float, timedelta or str, default="expanding"
        Which rows a fit at time t uses: all up to t; those of the given number of
        most recent time stamps; or those of a duration, the half-open span
        ``(t - window, t]``: a float in the time column's unit (in row numbers without
        a time column), a timedelta, or text such as ``"90D"`` for dates.
    time : int or str, default=None
        Position or name of the column of X that holds the time; it is then no
        feature. Numbers or dates, in any order; rows of equal time enter windows
        together. None: every row is a time stamp of its own, in row order.
    min_periods : int, default=None
        Fewest rows of positive weight for a window to be fitted. None: what the
        model needs (for the package's models one row, see `underdetermined`).
    step : int, default=1
        Fit at every `step`-th time stamp; the last stamp always has a fit.
    gap : int, default=0
        Time stamps between a window's end and the first row it may predict. Without
        a time column `predict` cannot know when its rows happened, uses the newest
        window for all of them, and ignores `gap`; `walk_forward_predict` heeds it.
    halflife : float, timedelta or str, default=None
        Rows are weighted by ``0.5 ** (age / halflife)``, with the age measured
        from the time of the window's newest row, in the time column's unit (in row
        numbers without one).
    underdetermined : {"minimum_norm", "nan"}, default="minimum_norm"
        What to do where data do not determine the parameters: in windows of too
        few rows or dependent columns, take the solution of smallest norm or NaN;
        in `predict` with a time column, for rows that no fit precedes, use the
        first fit or NaN (and `score`, which takes no NaN, then raises).
    missing : {"raise", "skip"}, default="raise"
        What to do with rows that have NaN in a feature or the target. "skip" leaves them out of every window; their
        time stamps still count for its length. Rows to predict may then hold NaN, too, and are predicted as NaN.
    inference : {"nonrobust", "HC0", "HC1", "HAC", "cluster"}, default=None
        Standard errors to compute, for ``models.Linear``, ``Logistic`` (two classes), ``Poisson``, ``Gamma`` and
        ``Tweedie`` without a penalty, ``LeastSquares`` and ``Loss``: as the model says, or robust to heteroscedasticity
        (White), or also to autocorrelation (Newey and West) or to correlation within clusters. n counts rows, whatever
        their weights.
    hac_maxlags : int, default=None
        Lags of "HAC", weighted by Bartlett's kernel; None: the whole part of
        :math:`4 (n / 100)^{2/9}` in a window of n rows.
    cluster : int or str, default=None
        Position or name of the column of X whose equal entries (firms, stations) mark rows that belong together, for
        "cluster"; it is then no feature.
    exposure : int or str, default=None
        Position or name of the column of X that says how much each row was exposed (person-years, policies, seconds),
        for ``models.Poisson``; it is then no feature. A row's expected count is its exposure times the rate that the
        model fits: an offset of ``log(exposure)``. A penalty is weighed against the sum of the exposures.
    algorithm : {"auto", "exact", "refit"}, default="auto"
        "refit" goes over the rows of every window; "exact" merges statistics, for models
        that have any. "auto" chooses by size, and advances windows row by row where it
        can, checked against exact statistics. The results agree to rounding.
    capacity : int, default=None
        Pad the data to this many rows: one compile for every data size up to it.
        None pads to the next power of two, at least 64.
    max_memory : float, default=256e6
        Bytes of temporary memory that kernels aim to stay below, however many
        windows there are.

    Attributes
    ----------
    params_ : pytree of ndarray
        The model's parameters; the leading axis is windows, oldest first. For
        ``models.Linear`` a dict with ``coef`` and ``intercept``.
    coef_ : ndarray of shape (n_features,) or (n_outputs, n_features)
        Slopes of the newest window, if the model has any.
    intercept_ : float or ndarray of shape (n_outputs,)
        Intercept of the newest window, if the model has one.
    window_starts_, window_stops_ : ndarray of shape (n_windows,)
        Half-open bounds of each window's rows, sorted by time.
    window_times_ : ndarray of shape (n_windows,)
        The newest time in each window (row numbers without a time column).
    converged_ : ndarray of bool of shape (n_windows,)
        Whether each fit reached its tolerance, with finite parameters; a warning counts those that did not.
    determined_ : ndarray of bool of shape (n_windows,)
        Whether the rows of each window determine its parameters.
    n_iter_ : ndarray of int of shape (n_windows,)
        Iterations of each fit.
    gradient_norm_ : ndarray of shape (n_windows,)
        For models fitted by steps: the gradient's length at the end, of the mean loss of standardised features.
    classes_ : ndarray of shape (n_classes,)
        For classifiers: the sorted labels.
    condition_ : ndarray of shape (n_windows,)
        For ``models.Linear``, the root of the largest variance inflation factor: 1 where
        features are uncorrelated in the window, infinite where they are dependent.
    standard_errors_, t_values_ : dict of ndarray
        With `inference`: ``coef`` and, if there is one, ``intercept``, shaped as in ``params_``. NaN in windows with
        no more rows than coefficients.
    r2_ : ndarray of shape (n_windows,) or (n_windows, n_outputs)
        With `inference`, for ``models.Linear``: the share of the target's variation that is explained; about zero and
        not the mean without an intercept.
    entropy_path_ : EntropyPath
        For ``models.GaussianMixture``: arrays ``entropy``, ``lower`` and ``upper`` of shape (n_windows,): the entropy
        of each window's mixture in nats and certified bounds.
    n_features_in_ : int
        Columns of X, the time column included.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, if X had any.

    Notes
    -----
    Rows of weight zero are as good as absent: they neither enter a window nor make a
    time stamp. Windows counted in time stamps depend on which stamps there are, so
    with ``time=None`` they depend on the order of the rows.

    Computation is in float64, or in float32 if X is float32, unless the model says otherwise.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 2))
    >>> y = X @ [1.0, -2.0] + 3.0
    >>> rolling = RollingJaxEstimator(models.Linear(), window=20).fit(X, y)
    >>> rolling.params_["coef"].shape
    (100, 2)
    >>> rolling.coef_.round(6).tolist()
    [1.0, -2.0]
    >>> out_of_sample = rolling.walk_forward_predict(X, y)
    >>> bool(np.isnan(out_of_sample[0])), bool(np.allclose(out_of_sample[4:], y[4:]))
    (True, True)
    """

    _parameter_constraints: ClassVar[dict[str, list]] = {
        "model": [WindowModel, None],
        # numpy.timedelta64 first: it registers as an integer, but intervals cannot be compared with it.
        "window": [
            np.timedelta64,
            str,
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0, None, closed="neither"),
            datetime.timedelta,
        ],
        "time": [Integral, str, None],
        "min_periods": [Interval(Integral, 1, None, closed="left"), None],
        "step": [Interval(Integral, 1, None, closed="left")],
        "gap": [Interval(Integral, 0, None, closed="left")],
        "halflife": [
            np.timedelta64,
            Interval(Real, 0, None, closed="neither"),
            str,
            datetime.timedelta,
            None,
        ],
        "underdetermined": [StrOptions({"minimum_norm", "nan"})],
        "missing": [StrOptions({"raise", "skip"})],
        "inference": [StrOptions({"nonrobust", "HC0", "HC1", "HAC", "cluster"}), None],
        "hac_maxlags": [Interval(Integral, 0, None, closed="left"), None],
        "cluster": [Integral, str, None],
        "exposure": [Integral, str, None],
        "algorithm": [StrOptions({"auto", "exact", "refit"})],
        "capacity": [Interval(Integral, 1, None, closed="left"), None],
        "max_memory": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        model: WindowModel | None = None,
        *,
        window: Any = "expanding",
        time: int | str | None = None,
        min_periods: int | None = None,
        step: int = 1,
        gap: int = 0,
        halflife: Any = None,
        underdetermined: str = "minimum_norm",
        missing: str = "raise",
        inference: str | None = None,
        hac_maxlags: int | None = None,
        cluster: int | str | None = None,
        exposure: int | str | None = None,
        algorithm: str = "auto",
        capacity: int | None = None,
        max_memory: float = 256e6,
    ) -> None:
        self.model = model
        self.window = window
        self.time = time
        self.min_periods = min_periods
        self.step = step
        self.gap = gap
        self.halflife = halflife
        self.underdetermined = underdetermined
        self.missing = missing
        self.inference = inference
        self.hac_maxlags = hac_maxlags
        self.cluster = cluster
        self.exposure = exposure
        self.algorithm = algorithm
        self.capacity = capacity
        self.max_memory = max_memory

    def set_params(self, **params: Any) -> RollingJaxEstimator:
        """Set parameters; ``model__alpha`` and the like also reach the default model."""
        if self.model is None and "model" not in params and any(p.startswith("model__") for p in params):
            self.model = Linear()
        return super().set_params(**params)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        model = self._model()
        tags.estimator_type = model.estimator_type
        tags.target_tags.required = model.target == "required"
        tags.target_tags.multi_output = model.multi_output
        tags.target_tags.positive_only = model.positive
        tags.input_tags.allow_nan = self.missing == "skip"
        # With a time column each row is predicted by the past alone, or by a first fit of few rows.
        poor = self.time is not None or model.poor_score
        if model.estimator_type == "regressor":
            tags.regressor_tags = RegressorTags(poor_score=poor)
        if model.estimator_type == "classifier":
            tags.classifier_tags = ClassifierTags(poor_score=poor)
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> RollingJaxEstimator:
        """Fit the model on every window.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)
            Features, and the time column if `time` names one.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None
            Target; ignored by unsupervised models.
        sample_weight : array-like of shape (n_rows,), default=None
            Non-negative weights. A row of weight 0 is as good as absent.

        Returns
        -------
        self : RollingJaxEstimator

        Raises
        ------
        ValueError
            For bad data or parameters, naming them.
        TypeError
            If a function of the model cannot be compiled, with its line.
        """
        self._fit(X, y, sample_weight)
        return self

    def _model(self) -> WindowModel:
        return Linear() if self.model is None else self.model

    def _fit(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Problem:
        problem = self._prepare(X, y, sample_weight, classes)
        hyper = problem.model.hyperparameters()
        params, info, parts = self._solve(problem, {name: np.asarray(value)[None] for name, value in hyper.items()})
        self._store(problem, map_params(lambda a: a[:, 0], params), map_params(lambda a: a[:, 0], info))
        store_errors(self, problem, parts, self._capacity(problem))
        self._remember(problem)
        return problem

    def _prepare(self, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Problem:
        """Validate everything and lay rows and windows out in time order."""
        problem = prepare(self, self._model(), X, y, sample_weight, classes)
        check_inference(problem.model, self.inference, self.cluster)
        return problem

    def _capacity(self, problem: Problem) -> int:
        return bucket(len(problem.rows.X)) if self.capacity is None else int(self.capacity)

    def _solve(
        self, problem: Problem, hyper: dict[str, np.ndarray], *, fit: Any = fit_windows, capacity: int | None = None
    ) -> tuple[Any, Any, Any]:
        """Fit every window for every candidate; leading axes (n_windows, n_candidates)."""
        try:
            params, info, parts = fit(
                problem.model,
                hyper,
                problem.rows,
                problem.windows.starts,
                problem.windows.stops,
                max_rows=problem.windows.max_rows,
                capacity=capacity or self._capacity(problem),
                max_memory=self.max_memory,
                algorithm=self.algorithm,
                errors=self.inference == "nonrobust",
            )
        except (TypeError, AttributeError) as error:
            if problem.rows.y is None and problem.model.target == "optional":
                raise ValueError(
                    f"{problem.model.described()} requires y to be passed, but the target y is None."
                ) from error
            raise
        shape = (len(problem.windows.stops), len(next(iter(hyper.values()))) if hyper else 1)
        finite = np.ones(shape, bool) if problem.model.may_be_nan else all_finite(params, shape)
        info = info._replace(converged=finite if info.converged is None else info.converged & finite)
        blanked = self.underdetermined == "nan" and info.determined is not None
        warn_of_failures(problem, info.converged | ~info.determined if blanked else info.converged)
        if blanked:
            params = map_params(lambda a: nan_where(a, ~info.determined), params)
            info = info._replace(converged=info.converged & info.determined)
        return params, info, parts

    def _store(self, problem: Problem, params: Any, info: Any) -> None:
        """Set the fitted attributes."""
        found = windows_found(problem, params, info) | {"classes_": problem.classes}
        for name in (*OF_WINDOWS, "classes_"):
            if found.get(name) is not None:
                setattr(self, name, found[name])
            elif hasattr(self, name):
                delattr(self, name)
        self._stamps = problem.timeline.stamps
        self._gap = int(self.gap)
        self._dtype = problem.rows.X.dtype
        self._fitted_model = problem.model
        self._target_is_column = problem.target_is_column
        show_newest(self)
