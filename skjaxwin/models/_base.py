"""The contract between a model and the engine that fits it in every window."""

from __future__ import annotations

import copy
import functools
import inspect
import numbers
from collections.abc import Hashable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from skjaxwin._sklearn_private import Interval
from skjaxwin.models._keys import freeze

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
    """

    converged: Any = None
    n_iter: Any = None
    determined: Any = None


class TracedParameter:
    """Stands for a traced hyperparameter on the copy of a model that kernels use: no operation knows it."""

    def __init__(self, name: str) -> None:
        self.name = name


class WindowModel(BaseEstimator):
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

    Attributes
    ----------
    estimator_type : "regressor" or None
        What scikit-learn shall take the estimator for.
    target : "required", "optional" or "ignored"
        Whether `fit` needs y.
    structural : tuple of str
        Numeric parameters that shape the computation and must be static.
    checked : bool
        True for the package's own models, whose weight rule is covered by tests.
    """

    estimator_type: str | None = "regressor"
    target: str = "required"
    structural: tuple[str, ...] = ()
    checked: bool = False
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
        raise NotImplementedError(f"{type(self).__name__} must define fit(X, y, weight, hyper, start).")

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

    def min_rows(self, n_features: int) -> int:
        """Return the fewest rows a window needs; used where ``min_periods`` is None."""
        del n_features
        return 1

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
            if name not in self.structural and (_is_numeric(value) or self._takes_numbers(name))
        }

    def _takes_numbers(self, name: str) -> bool:
        """Say whether a parameter is declared to be a number: then True counts as 1, as in scikit-learn."""
        return any(isinstance(c, Interval) for c in self._parameter_constraints.get(name, ()))

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

    def described_predict(self) -> str:
        """Name the model's prediction for error messages, with its place in the source."""
        return f"{type(self).__name__}.predict" + source_place(type(self).predict)


def source_place(function: Any) -> str:
    """Return " (file, line n)" of a function, "" where it has none."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f" ({code.co_filename}, line {code.co_firstlineno})" if code else ""


def _is_numeric(value: Any) -> bool:
    """Say whether a parameter is a number or an array of numbers (booleans are flags)."""
    if isinstance(value, (bool, np.bool_)):
        return False
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iuf"
    return isinstance(value, numbers.Real)
