"""A user's own functions as a window model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skjaxwin.models._base import FitInfo, WindowModel, source_place
from skjaxwin.models._user_function import function_name, refuse_jitted

__all__ = ["Custom"]

_RESERVED = frozenset({"X", "y", "weight", "params"})


class Custom(WindowModel):
    """Fit your own functions in every window.

    Parameters
    ----------
    fit : callable
        ``fit(X, y, weight, **hyperparameters) -> params``. A plain function of
        arrays that JAX can trace; `y` is None without a target; `params` is any
        pytree (array, tuple, dict) of arrays. Rows outside the window have weight 0
        and must not count: see the weight rule in `WindowModel`.
    predict : callable, optional
        ``predict(params, X) -> predictions`` of shape (n_rows,) or
        (n_rows, n_outputs), each row from its own features. Without it the
        estimator has parameters but no predictions.
    **hyperparameters
        Passed to `fit` by name, and reachable as ``model__name`` in
        ``set_params`` and ``GridSearchCV``. Numbers and numeric arrays are traced as
        floats (a new value never recompiles); everything else is static. To fix an
        integer that shapes the computation, pass ``functools.partial(fit, degree=3)``.

    Notes
    -----
    Define the functions in an importable module: then the estimator can be pickled.
    Jitted functions (``jax.jit(f)``, also
    ``jnp.tanh``) are refused when fitting; the package compiles plain ones.

    Examples
    --------
    An exponentially tilted mean, with the tilt as a hyperparameter:

    >>> import jax.numpy as jnp, numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> def fit(X, y, weight, tilt):
    ...     w = weight * jnp.exp(tilt * X[:, 0])
    ...     return jnp.sum(w * y) / jnp.sum(w)
    >>> def predict(params, X):
    ...     return params + 0 * X[:, 0]
    >>> model = models.Custom(fit=fit, predict=predict, tilt=0.0)
    >>> X, y = np.array([[0.0], [0.0], [1.0]]), np.array([1.0, 3.0, 5.0])
    >>> RollingJaxEstimator(model).fit(X, y).params_.tolist()
    [1.0, 2.0, 3.0]
    """

    target = "optional"

    def __init__(
        self,
        fit: Callable[..., Any],
        predict: Callable[..., Any] | None = None,
        **hyperparameters: Any,
    ) -> None:
        self.functions = (fit, predict)
        self.named = hyperparameters

    # BaseEstimator reads parameters from the signature, which cannot list these names.
    @classmethod
    def _get_param_names(cls) -> list[str]:
        return ["fit", "predict"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the functions and every hyperparameter by name."""
        del deep
        fit, predict = self.functions
        return {"fit": fit, "predict": predict, **self.named}

    def set_params(self, **params: Any) -> Custom:
        """Set functions and hyperparameters by name.

        Raises
        ------
        ValueError
            For a name that was not given to the constructor.
        """
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {sorted(known)!r}."
                )
        known.update(params)
        self.functions = (known.pop("fit"), known.pop("predict"))
        self.named = known
        return self

    def _validate_params(self) -> None:
        fit, predict = self.functions
        if not callable(fit):
            raise TypeError(f"Custom(fit={fit!r}) must be a function fit(X, y, weight, **hyperparameters).")
        if predict is not None and not callable(predict):
            raise TypeError(f"Custom(predict={predict!r}) must be a function predict(params, X), or None.")
        clash = _RESERVED & set(self.named)
        if clash:
            raise ValueError(f"Custom cannot take a hyperparameter called {sorted(clash)[0]!r}; rename it.")
        refuse_jitted("Custom", self.get_params())

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Call the user's function on one window; see `WindowModel.fit`."""
        del start
        static = {name: value for name, value in self.named.items() if name not in hyper}
        params = self.functions[0](X, y, weight, **hyper, **static)
        return params, FitInfo()

    def predict(self, params: Any, X: Any) -> Any:
        """Call the user's prediction function."""
        if self.functions[1] is None:
            raise ValueError("models.Custom was given no function to predict with; pass predict=.")
        return self.functions[1](params, X)

    def static_copy(self) -> Custom:
        """Return a copy that later changes of this object do not reach."""
        return Custom(*self.functions, **self.named)

    def described(self) -> str:
        """Name the user's function and its place."""
        return f"{function_name(self.functions[0])}{source_place(self.functions[0])}, given as Custom(fit=...),"

    def described_predict(self) -> str:
        """Name the user's prediction function and its place."""
        return f"{function_name(self.functions[1])}{source_place(self.functions[1])}, given as Custom(predict=...),"
