"""What models of a user's differentiable function share: names, bounds, and a fit given step by step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator
from numbers import Integral, Real
from typing import Any, ClassVar

import jax
import numpy as np
from jax import lax

from skjaxwin.kernels.compile import is_jitted
from skjaxwin.models._base import FitInfo, WindowModel, source_place
from skjaxwin.models._steps import NewtonSteps, Steps
from skjaxwin.models._unknowns import Unknowns, starting_values

__all__ = ["UserFunction", "function_name", "refuse_jitted"]


class UserFunction(WindowModel):
    """A model that minimises what a user's function of some parameters says, from `initial`.

    A subclass sets `named_first`, the names of its own parameters, of which the first is the function, and writes
    `objective`. The fit is given step by step, so that lanes of windows go side by side, each at its own pace; see
    `kernels.own_pace`.
    """

    double = True
    multi_output = False
    structural: tuple[str, ...] = ("initial", "lower", "upper")
    named_first: ClassVar[tuple[str, ...]] = ()
    reserved: ClassVar[frozenset[str]] = frozenset({"params", "X", "y", "weight"})

    def __init__(self, settings: dict[str, Any], hyperparameters: dict[str, Any]) -> None:
        self.settings = settings
        self.named = hyperparameters

    # BaseEstimator reads parameters from the signature, which cannot list the user's names.
    @classmethod
    def _get_param_names(cls) -> list[str]:
        return list(cls.named_first)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the model's own parameters and every hyperparameter by name."""
        del deep
        return {**self.settings, **self.named}

    def set_params(self, **params: Any) -> UserFunction:
        """Set the model's own parameters and hyperparameters by name.

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
        self.settings = {name: known.pop(name) for name in self.named_first}
        self.named = known
        return self

    def static_copy(self) -> UserFunction:
        """Return a copy that later changes of this object do not reach."""
        return type(self)(**self.get_params())

    def static_key(self) -> Hashable:
        """Return what identifies the computation: of starting values the shapes alone."""
        initial = self.settings["initial"]
        if callable(initial):
            return super().static_key()
        leaves, tree = jax.tree_util.tree_flatten(initial)
        other = self.static_copy().set_params(initial=None)
        return WindowModel.static_key(other), tree, tuple(np.shape(leaf) for leaf in leaves)

    @property
    def function(self) -> Callable[..., Any]:
        """The user's function that is fitted."""
        return self.settings[self.named_first[0]]

    def _validate_params(self) -> None:
        name = type(self).__name__
        if not callable(self.function):
            raise TypeError(f"{name}({self.named_first[0]}={self.function!r}) must be a function.")
        clash = self.reserved & set(self.named)
        if clash:
            raise ValueError(f"{name} cannot take a hyperparameter called {sorted(clash)[0]!r}; rename it.")
        refuse_jitted(name, self.get_params())
        tol, max_iter = self.settings["tol"], self.settings["max_iter"]
        if not isinstance(tol, Real) or float(tol) < 0:
            raise ValueError(f"{name}(tol={tol!r}) must be a number of at least 0.")
        if not isinstance(max_iter, Integral) or int(max_iter) < 1:
            raise ValueError(f"{name}(max_iter={max_iter!r}) must be an integer of at least 1.")
        if not callable(self.settings["initial"]):
            self.initial(0, None)

    def initial(self, n_features: int, n_outputs: int | None) -> Any:
        """Return the parameters to start from."""
        del n_outputs
        start = starting_values(self.settings["initial"], n_features)
        Unknowns.of(start, self.settings["lower"], self.settings["upper"]).check(start)
        return start

    def unknowns(self, n_features: int) -> Unknowns:
        """Return the structure of the parameters."""
        return Unknowns.of(self.initial(n_features, None), self.settings["lower"], self.settings["upper"])

    def objective(self, unknowns: Unknowns, X: Any, y: Any, weight: Any, hyper: dict[str, Any]) -> Any:
        """Return the mean loss of a vector of unknowns, with the derivatives that `steps` needs."""
        raise NotImplementedError

    def information(
        self, unknowns: Unknowns, point: Any, X: Any, y: Any, weight: Any, hyper: dict[str, Any]
    ) -> tuple[Any, Any, Any]:
        """Return what standard errors are made of.

        Returns
        -------
        scores : array of shape (n_rows, p)
            The gradient of each row's weighted loss, zero for rows without weight.
        hessian : array of shape (p, p)
            Of the weighted sum of losses.
        squares : scalar or None
            The weighted sum of squared residuals; None if the loss is a negative log-likelihood.
        """
        raise NotImplementedError

    def steps(self, n_features: int) -> Steps:
        """Return the way to fit a window step by step."""
        return NewtonSteps(self.objective, self.unknowns(n_features))

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Fit one window; see `WindowModel.fit`."""
        steps = self.steps(X.shape[1])
        state = lax.while_loop(
            lambda state: steps.going_on(hyper, state),
            lambda state: steps.advance(X, y, weight, hyper, state),
            steps.begin(start, start),
        )
        return steps.result(steps.finished_as(state))

    def weighed(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> Any:
        """Return the objective and its gradient at the start, which must not change with rows of weight 0.

        The end of a fit would say less: where a window does not determine the parameters, it changes with rounding.
        """
        unknowns = self.unknowns(X.shape[1])
        return self.objective(unknowns, X, y, weight, hyper)(unknowns.pack(start))[:2]

    def of_function(self, hyper: dict[str, Any]) -> dict[str, Any]:
        """Return the user's hyperparameters, the static ones included."""
        return {name: hyper.get(name, value) for name, value in self.named.items()}

    def traced_of_function(self) -> dict[str, Any]:
        """Return the user's hyperparameters that are traced."""
        return {name: value for name, value in self.hyperparameters().items() if name in self.named}

    def described(self) -> str:
        """Name the user's function and its place."""
        given = f"given as {type(self).__name__}({self.named_first[0]}=...),"
        return f"{function_name(self.function)}{source_place(self.function)}, {given}"


def function_name(function: Any) -> str:
    """Return what a user called a function."""
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", repr(function))


def refuse_jitted(owner: str, params: dict[str, Any]) -> None:
    """Raise a TypeError for jitted functions among a model's parameters."""
    for name, value in params.items():
        for jitted in filter(is_jitted, _inside(value)):
            raise TypeError(
                f"{owner}({name}=...) got the jitted function {getattr(jitted, '__name__', jitted)!r}, which can "
                "neither be pickled nor hashed; pass the plain function (without jax.jit; for jnp.tanh write "
                "def tanh(x): return jnp.tanh(x)). The package compiles it."
            )


def _inside(value: Any) -> Iterator[Any]:
    """Yield a parameter and what its partials and containers hold."""
    yield value
    parts: Any = ()
    if isinstance(value, functools.partial):
        parts = (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = value
    elif isinstance(value, dict):
        parts = value.values()
    for part in parts:
        yield from _inside(part)
