"""The contract between a model and the engine that fits it in every window."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Hashable
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
from sklearn.base import BaseEstimator

from skjaxwin._sklearn_private import Interval, NamesOnce
from skjaxwin.kernels.fold import fold
from skjaxwin.models._keys import freeze, is_numeric

__all__ = ["FitInfo", "WindowModel", "source_place"]


class FitInfo(NamedTuple):
    """How one fit went: scalars, or None where there is nothing to tell.

    Attributes
    ----------
    converged : bool, default=None
        Whether the fit reached its tolerance; None where there is no tolerance.
    n_iter : int, default=None
        Iterations used; None for a closed form, which counts as one.
    determined : bool, default=None
        Whether the data determine the parameters; None where they always do. Under
        ``underdetermined="nan"`` the parameters of other windows become NaN.
    condition : float, default=None
        How ill-conditioned the window is; None where there is no such figure.
    gradient_norm : float, default=None
        Size of the objective's gradient at the end; None where there is no gradient.
    """

    converged: Any = None
    n_iter: Any = None
    determined: Any = None
    condition: Any = None
    gradient_norm: Any = None


class TracedParameter:
    """Stands for a traced hyperparameter on the copy of a model that kernels use: no operation knows it."""

    def __init__(self, name: str) -> None:
        self.name = name


class WindowModel(NamesOnce, BaseEstimator):
    """What is fitted in one window. Subclass it to write a model.

    A model is a scikit-learn-style object: ``__init__`` stores its parameters
    and does nothing else. Its computation is two *pure* functions of arrays that
    JAX can trace. The engine runs them for every window and every
    hyperparameter in one compiled call, so they must not read numbers from
    ``self``:

    * Parameters that are real numbers, or arrays of them, are *traced*: `fit`
      gets them in ``hyper``, and a new value never recompiles.
    * All others (flags, strings, functions), and those named in the class
      attribute `structural`, are *static*: they may be read from ``self``, and
      each new value compiles once.

    **The weight rule.** `fit` always sees a fixed number of rows. Rows outside
    the window, and padding, have weight 0 and repeat a row of the window, so
    that logarithms and the like stay finite. A correct model lets each row count
    ``weight`` times, in every sum, mean and loss, and never counts rows itself:
    ``jnp.sum(weight * x) / jnp.sum(weight)`` and not ``jnp.mean(x)``. The engine
    checks this on the first fit of a model that is not its own.

    Methods to write are `fit` and `predict`; `predict_each`, `min_rows` and `initial`
    are optional.

    **Additive models.** A model with ``additive = True`` writes `statistics` of one row and
    `solve` instead of `fit`, with `merge` and `scale` where its statistics are no
    plain sums. Then every window costs a merge and a solve instead of a pass over its rows.

    Attributes
    ----------
    estimator_type : "regressor", "classifier" or None
        What scikit-learn shall take the estimator for. A classifier gets the number of the class as y, 0 or 1, or with
        more than two classes a column for each with 1 in its rows; `predict` returns the log odds of the second class,
        or a score for each, and ``probabilities`` turns these into probabilities.
    target : "required", "optional" or "ignored"
        Whether `fit` needs y.
    structural : tuple of str
        Numeric parameters that shape the computation and must be static.
    checked : bool
        True for the package's own models, whose weight rule is covered by tests.
    additive : bool
        Whether the parameters follow from statistics that merge.
    windows_at_once : int
        For so many windows of a group an additive model's `solve` is called together: a power of two, more than one
        where many windows at a time cost little more than a few.
    max_condition : float or None
        Windows of an additive model with a larger ``FitInfo.condition`` are fitted from their
        rows instead; None if statistics always do.
    least_squares : bool
        Whether it is linear least squares with the hyperparameter ``alpha``, for which windows
        that advance row by row have a way of their own.
    highest_power : int
        For models whose statistics are `kernels.moments.Powers`: up to which power they go; 0 for others. Rolling
        windows of means and variances have a way of their own, for which the model writes `from_sums` and `names`.
    may_be_nan : bool
        Whether parameters can be NaN by definition, which is then no failure to converge.
    sequential : bool
        Whether a model that is warm-started goes through all windows in turn, so that each starts where the
        one before it ended; otherwise runs of consecutive windows go side by side, each from `initial`.
    in_turn : bool
        Whether windows are best fitted one after the other, each from the one before, since they take different
        numbers of steps; some runs of them go side by side in threads. Windows that did not converge are then fitted
        once more, from `initial`.
    convex : bool
        Whether what a fit finds does not depend on where it starts. Models without `initial` start from nowhere.
    positive : bool
        Whether no target may be negative.
    takes_exposure : bool
        Whether targets are counts that grow with a row's exposure.
    multi_output : bool
        Whether there may be several targets.
    double : bool
        Whether to compute in float64 whatever the data.
    called_with : str or None
        What a user's functions get, for messages; None for functions like `fit` and `predict`.
    """

    estimator_type: str | None = "regressor"
    target: str = "required"
    structural: tuple[str, ...] = ()
    checked: bool = False
    additive: bool = False
    windows_at_once: int = 1
    max_condition: float | None = None
    least_squares: bool = False
    highest_power: int = 0
    may_be_nan: bool = False
    sequential: bool = False
    in_turn: bool = False
    positive: bool = False
    takes_exposure: bool = False
    multi_output: bool = True
    double: bool = False
    called_with: str | None = None
    _parameter_constraints: ClassVar[dict[str, list]] = {}

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Fit one window.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
        y : array of shape (n_rows,) or (n_rows, n_outputs), or None
        weight : array of shape (n_rows,)
            Non-negative, 0 for rows that are not in the window.
        hyper : dict of scalars or arrays
            The traced hyperparameters, by name.
        start : pytree or None
            Where to start: the previous window's parameters, or what `initial`
            returned; None if `initial` returns None.

        Returns
        -------
        params : pytree of arrays
            Of shapes that do not depend on the number of rows.
        info : FitInfo
        """
        if not self.additive:
            raise NotImplementedError(f"{type(self).__name__} must define fit(X, y, weight, hyper, start).")
        del start
        return fold(self, X, y, weight, hyper)

    def steps(self, n_features: int) -> Any:
        """Return how to fit a window step by step (`models._steps.Steps`), or None.

        Then lanes of windows are fitted side by side, each at its own pace, wherever `fit` is not asked to.
        """
        del n_features

    def weighed(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> Any:
        """Return what must not change with rows of weight 0, which the engine checks: the parameters."""
        return self.fit(X, y, weight, hyper, start)[0]

    def prepare(self, X: np.ndarray, hyper: dict[str, np.ndarray]) -> np.ndarray:
        """Return the features that an additive model's `statistics` get, in NumPy.

        For models whose statistics depend on a hyperparameter: if a model overrides this,
        each candidate's statistics are computed for themselves, else all share them.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)
        hyper : dict of scalars or ndarray
            One candidate's traced hyperparameters.
        """
        del hyper
        return X

    def statistics(self, x: Any, y: Any, weight: Any) -> Any:
        """Return the statistics of one row; many rows at a time lie along further axes.

        Parameters
        ----------
        x : array of shape (n_features, ...)
        y : array of shape (...) or (n_outputs, ...), or None
        weight : array of shape (...)
            Positive.

        Returns
        -------
        statistics : pytree of arrays
            With the further axes last: compute along the first axis only.
        """
        raise NotImplementedError(f"{type(self).__name__} must define statistics(x, y, weight).")

    def merge(self, left: Any, right: Any) -> Any:
        """Merge the statistics of two sets of rows, both of positive weight; `left` is older.

        The default adds them. A merge must be associative.
        """
        return jax.tree_util.tree_map(lambda a, b: a + b, left, right)

    def append(self, statistics: Any, row: Any) -> Any:
        """Merge the statistics of one more row; optional, where that is cheaper than `merge`.

        Used where all weights are one, for older rows as for newer ones: only where the order is nothing to a model.
        """
        return self.merge(statistics, row)

    def scale(self, statistics: Any, factor: Any) -> Any:
        """Return the statistics for all weights times `factor`, as ages need it.

        The default multiplies them, which is right for sums with weights.
        """
        return jax.tree_util.tree_map(lambda a: a * factor, statistics)

    def solve(self, statistics: Any, hyper: dict[str, Any]) -> tuple[Any, FitInfo]:
        """Return a window's parameters from its statistics.

        Parameters
        ----------
        statistics : pytree of arrays
            As `statistics` returns them, with many windows along the further axes.
        hyper : dict of scalars or arrays
            The traced hyperparameters, by name.

        Returns
        -------
        params : pytree of arrays
            With the further axes last.
        info : FitInfo
        """
        raise NotImplementedError(f"{type(self).__name__} must define solve(statistics, hyper).")

    def from_sums(
        self, n_rows: Any, origin: Any, mean: Any, squares: Any, hyper: dict[str, Any], out: dict[str, np.ndarray]
    ) -> Any:
        """Do in NumPy what `solve` does, given means less an origin, and sums of squared deviations, and fill `out`."""
        raise NotImplementedError(f"{type(self).__name__} must define from_sums.")

    def predict(self, params: Any, X: Any) -> Any:
        """Predict rows from one window's parameters.

        Parameters
        ----------
        params : pytree of arrays
            As returned by `fit`.
        X : array of shape (n_rows, n_features)

        Returns
        -------
        predictions : array of shape (n_rows,) or (n_rows, n_outputs)
            Each row from its own features alone.
        """
        raise NotImplementedError(f"{type(self).__name__} must define predict(params, X).")

    def predict_each(self, params: Any, X: np.ndarray) -> np.ndarray | None:
        """Predict in NumPy with parameters of its own for each row, or return None.

        A model whose predictions are a line of array algebra spares its users a
        compile. The default, None, lets the engine compile `predict`.

        Parameters
        ----------
        params : pytree of ndarray
            As `predict` gets them, with one more leading axis: a set of
            parameters for each row, or a single set for all.
        X : ndarray of shape (n_rows, n_features)
        """
        del params, X
        return None

    def check_target(self, y: np.ndarray) -> None:
        """Raise a ValueError for targets, which may hold NaN, that the model is not defined for."""

    def target_key(self) -> Hashable:
        """Return what `check_target` depends on, apart from the model's class."""
        return None

    def min_rows(self, n_features: int) -> int:
        """Return the fewest rows a window needs; used where ``min_periods`` is None."""
        del n_features
        return 1

    @property
    def convex(self) -> bool:
        """Whether what a fit finds does not depend on where it starts, as far as is known."""
        return type(self).initial is WindowModel.initial

    def initial(self, n_features: int, n_outputs: int | None) -> Any:
        """Return parameters to start from, as NumPy arrays, or None.

        A model that returns parameters is warm-started: within a run of
        consecutive windows each starts where the one before it ended.
        """
        del n_features, n_outputs
        return None

    def hyperparameters(self) -> dict[str, Any]:
        """Return the traced parameters by name."""
        return {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name not in self.structural and (is_numeric(value) or self._takes_numbers(name))
        }

    def _takes_numbers(self, name: str) -> bool:
        """Say whether a parameter is declared to be a number: then True counts as 1, as in scikit-learn."""
        return any(isinstance(c, Interval) for c in self._parameter_constraints.get(name, ()))

    @property
    def poor_score(self) -> bool:
        """Whether predictions of standardised data need not be better than a constant, for scikit-learn's tag."""
        return False

    @property
    def has_fit(self) -> bool:
        """Whether the model has a way to go over a window's rows that is its own."""
        return type(self).fit is not WindowModel.fit

    @property
    def compiles_predict(self) -> bool:
        """Whether predictions go through a compiled kernel."""
        return type(self).predict_each is WindowModel.predict_each

    @property
    def has_append(self) -> bool:
        """Whether the model has a way of its own to merge a single row."""
        return type(self).append is not WindowModel.append

    @property
    def merges(self) -> bool:
        """Whether windows may be fitted from statistics: a subclass that overrides `fit` alone means that fit."""
        return self.additive and max(self._defined(n) for n in ("statistics", "solve")) <= self._defined("fit")

    @property
    def is_least_squares(self) -> bool:
        """Whether the model does what the class that says so, `least_squares`, does."""
        names = ("fit", "statistics", "merge", "append", "scale", "solve", "error_parts", "least_squares")
        return self.least_squares and self.shares_statistics and len({self._defined(name) for name in names}) == 1

    def _defined(self, name: str) -> int:
        """Return how far up the line of classes an attribute is defined: 0 in the class itself."""
        return next(i for i, kind in enumerate(type(self).__mro__) if name in vars(kind))

    @property
    def shares_statistics(self) -> bool:
        """Whether all candidates have the same statistics."""
        return type(self).prepare is WindowModel.prepare

    def static_key(self) -> Hashable:
        """Return what identifies the computation: the class and the static parameters."""
        traced = self.hyperparameters()
        parameters = self.get_params(deep=False)
        return (
            type(self),
            tuple((name, None if name in traced else freeze(v, name)) for name, v in sorted(parameters.items())),
        )

    def static_copy(self) -> WindowModel:
        """Return a copy that later changes of this object do not reach.

        Its traced parameters are out of reach: a kernel that read them from ``self`` would
        keep the first value for ever.
        """
        static = copy.copy(self)
        for name in self.hyperparameters():
            setattr(static, name, TracedParameter(name))
        return static

    def described(self) -> str:
        """Name the model's fit for error messages, with its place in the source."""
        return f"{type(self).__name__}.fit" + source_place(type(self).fit)

    def described_solve(self) -> str:
        """Name an additive model's functions for error messages, with their place in the source."""
        kind = type(self)
        return f"{kind.__name__}.statistics{source_place(kind.statistics)} or solve{source_place(kind.solve)}"

    def described_predict(self) -> str:
        """Name the model's prediction for error messages, with its place in the source."""
        return f"{type(self).__name__}.predict" + source_place(type(self).predict)


def source_place(function: Any) -> str:
    """Return " (file, line n)" of a function, "" where it has none."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""
