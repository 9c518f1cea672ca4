"""A user's differentiable loss."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from skjaxwin.kernels.row_objective import mean_loss, mean_loss_gradient, whole_loss, whole_loss_gradient
from skjaxwin.models._base import source_place
from skjaxwin.models._steps import NewtonSteps, QuasiNewtonSteps, Steps
from skjaxwin.models._unknowns import Unknowns
from skjaxwin.models._user_function import UserFunction, function_name

__all__ = ["Loss"]

# Above so many unknowns a Hessian costs more than the steps that it spares.
_FEW = 12
_SOLVERS = ("auto", "newton", "lbfgs")


class Loss(UserFunction):
    r"""Minimise your own loss in every window: any likelihood, with recursions over time, too.

    Minimises, over the parameters :math:`\theta` of each window,

    .. math:: \sum_i w_i \, \ell(\theta, x_i, y_i)

    or, with ``per_row=False``, a loss of all rows together.

    Parameters
    ----------
    loss : callable
        ``loss(params, X, y, **hyperparameters) -> losses`` of shape (n_rows,), each row's from its own features; the
        package multiplies by the weights and adds up. With ``per_row=False``
        ``loss(params, X, y, weight, **hyperparameters) -> loss``, a scalar for all rows; see the notes. A
        plain function of arrays that JAX can trace and differentiate twice; `y` is None without a target.
    initial : pytree of floats, or callable
        Where the parameters start: a number, an array, or a dict or tuple of them; `params_` has the same structure. A
        function of no argument, or of the number of features, may return it.
    predict : callable, default=None
        ``predict(params, X) -> predictions`` of shape (n_rows,) or (n_rows, n_outputs), each row from its own
        features. Without it the estimator has parameters but no predictions.
    per_row : bool, default=True
        Whether `loss` returns a loss for each row.
    lower, upper : float or pytree of floats, default=None
        Bounds: one for all parameters, or with the structure of `initial`, where None, and a name that is left out,
        stands for none. A parameter that the loss pulls beyond its bound ends exactly there, and the window counts as
        converged. Each new bound compiles once.
    solver : {"auto", "newton", "lbfgs"}, default="auto"
        Newton's method with the exact Hessian, damped where that is not positive definite; or L-BFGS, which needs
        gradients alone. "auto" is Newton's up to 12 parameters.
    tol : float, default=1e-8
        A window's fit ends with a step of at most this share of the largest parameter; with Newton's method each is
        measured in units of its curvature. Traced.
    max_iter : int, default=200
        Most steps for a window, those included that were tried and refused. Traced.
    **hyperparameters
        Passed to `loss` by name, and reachable as ``model__name`` in ``set_params`` and ``GridSearchCV``. Numbers
        and numeric arrays are traced as floats (a new value never recompiles); everything else is static.

    Notes
    -----
    **A loss of all rows.** It sees a fixed number of rows in time order. Those outside the window have weight 0, stand
    before and after it and repeat a row of the window. Sums leave them out as ``jnp.sum(weight * x)``; a recursion
    over time must carry its state over them unchanged: in the step of a ``lax.scan`` write
    ``state = jnp.where(weight > 0, new_state, state)``. The first fit checks this. Derivatives go forward through the
    recursion and need no memory of it: adding the loss up in the state, as below, is faster than returning each row's.

    Windows go side by side in lanes; in each the fit of a window starts where the one before it ended, if that
    converged. Windows that did not converge are fitted once more from `initial`. Where the loss has several local
    minima, the one found depends on this. At a saddle or a maximum the Hessian is not positive definite, and the step
    leaves downhill; only if a fit starts where the gradient is zero does it stay.

    ``gradient_norm_`` is the length of the gradient of the loss over the sum of the weights, without parameters that
    are held at a bound. ``condition_``, the root of the largest variance inflation factor by the Hessian, is there
    with Newton's method alone; where it is infinite the window counts as under-determined (``determined_``).

    `inference` gives standard errors: "nonrobust" from the inverse Hessian, as is right for a negative log-likelihood,
    and the robust kinds from each row's gradient, which a loss of all rows together does not show.

    Define the functions in an importable module: then the estimator can be pickled. Jitted functions are refused.
    Computation is in float64 also where X is float32.

    Examples
    --------
    The variance of a GARCH(1,1) process, by Gaussian likelihood, where each day's variance follows from the day before:

    >>> import jax, jax.numpy as jnp, numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> def garch(params, X, y, weight):
    ...     def day(state, row):
    ...         (variance, loss), (y, w) = state, row
    ...         after = params["omega"] + params["alpha"] * y**2 + params["beta"] * variance
    ...         more = loss + w * (jnp.log(variance) + y**2 / variance) / 2
    ...         return (jnp.where(w > 0, after, variance), jnp.where(w > 0, more, loss)), None
    ...     start = jnp.sum(weight * y**2) / jnp.sum(weight), 0.0
    ...     return jax.lax.scan(day, start, (y, weight))[0][1]
    >>> rng = np.random.default_rng(0)
    >>> returns, variance = np.zeros(600), 1.0
    >>> for i in range(600):
    ...     returns[i] = np.sqrt(variance) * rng.normal()
    ...     variance = 0.1 + 0.2 * returns[i] ** 2 + 0.7 * variance
    >>> start = {"omega": 0.1, "alpha": 0.1, "beta": 0.8}
    >>> model = models.Loss(garch, start, per_row=False, lower=0)
    >>> rolling = RollingJaxEstimator(model, window=500, step=100).fit(np.zeros((600, 1)), returns)
    >>> bool(rolling.converged_[-1]), sorted(rolling.params_)
    (True, ['alpha', 'beta', 'omega'])
    """

    target = "optional"
    structural = (*UserFunction.structural, "per_row")
    called_with = (
        "loss gets params, of the structure of initial, X of shape (n_rows, n_features), y of shape (n_rows,), with "
        "per_row=False weight of shape (n_rows,), padding included, and the hyperparameters by name"
    )
    named_first = ("loss", "initial", "predict", "per_row", "lower", "upper", "solver", "tol", "max_iter")

    def __init__(
        self,
        loss: Callable[..., Any],
        initial: Any,
        *,
        predict: Callable[..., Any] | None = None,
        per_row: bool = True,
        lower: Any = None,
        upper: Any = None,
        solver: str = "auto",
        tol: float = 1e-8,
        max_iter: int = 200,
        **hyperparameters: Any,
    ) -> None:
        own = {"loss": loss, "initial": initial, "predict": predict, "per_row": per_row, "lower": lower}
        own |= {"upper": upper, "solver": solver, "tol": tol, "max_iter": max_iter}
        super().__init__(own, hyperparameters)

    def _validate_params(self) -> None:
        super()._validate_params()
        predict, per_row, solver = (self.settings[name] for name in ("predict", "per_row", "solver"))
        if predict is not None and not callable(predict):
            raise TypeError(f"Loss(predict={predict!r}) must be a function predict(params, X), or None.")
        if not isinstance(per_row, bool):
            raise TypeError(f"Loss(per_row={per_row!r}) must be True or False.")
        if solver not in _SOLVERS:
            raise ValueError(f"Loss(solver={solver!r}) must be one of {', '.join(map(repr, _SOLVERS))}.")
        if per_row and "weight" in inspect.signature(self.function).parameters:
            raise ValueError(
                f"{function_name(self.function)} takes weight, as losses of all rows do; pass per_row=False, or leave "
                "the weights to the package, which multiplies each row's loss."
            )

    def _uses_newton(self, unknowns: Unknowns) -> bool:
        solver = self.settings["solver"]
        return solver == "newton" or (solver == "auto" and len(unknowns) <= _FEW)

    def objective(self, unknowns: Unknowns, X: Any, y: Any, weight: Any, hyper: dict[str, Any]) -> Any:
        """Return the mean loss with its gradient, and for Newton's method the Hessian."""
        newton = self._uses_newton(unknowns)
        if self.settings["per_row"]:
            of_rows = self._of_rows(unknowns, hyper)
            return (mean_loss if newton else mean_loss_gradient)(of_rows, X, y, weight)
        of_all = self._of_all(unknowns, X, y, weight, hyper)
        return (whole_loss if newton else whole_loss_gradient)(of_all, jnp.sum(weight))

    def information(
        self, unknowns: Unknowns, point: Any, X: Any, y: Any, weight: Any, hyper: dict[str, Any]
    ) -> tuple[Any, Any, Any]:
        """Return scores, of a loss of all rows their sum in the first row, and the Hessian."""
        if not self.settings["per_row"]:
            local = whole_loss(self._of_all(unknowns, X, y, weight, hyper), jnp.ones((), X.dtype))(point)
            first = jnp.arange(len(X), dtype=jnp.int32)[:, None] == 0
            return jnp.where(first, local.gradient, 0), local.hessian, None
        of_rows = self._of_rows(unknowns, hyper)
        slopes = jax.jacfwd(lambda at: of_rows(at, X, y))(point)
        scores = jnp.where((weight > 0)[:, None], weight[:, None] * slopes, 0)
        total = jnp.sum(weight)
        local = mean_loss(of_rows, X, y, weight)(point)
        return scores, local.hessian * total, None

    def _of_rows(self, unknowns: Unknowns, hyper: dict[str, Any]) -> Callable[[Any, Any, Any], Any]:
        """Return the user's loss of each row."""
        given = self.of_function(hyper)

        def of_rows(point: Any, X: Any, y: Any) -> Any:
            losses = jnp.asarray(self.function(unknowns.unpack(point), X, y, **given))
            if losses.shape != (len(X),):
                raise ValueError(
                    f"it returned an array of shape {losses.shape} for {len(X)} rows; return a loss for each row, of "
                    "shape (n_rows,), or take weight and pass per_row=False."
                )
            return losses

        return of_rows

    def _of_all(self, unknowns: Unknowns, X: Any, y: Any, weight: Any, hyper: dict[str, Any]) -> Callable[[Any], Any]:
        """Return the user's loss of all rows together."""
        given = self.of_function(hyper)

        def of_all(point: Any) -> Any:
            loss = jnp.asarray(self.function(unknowns.unpack(point), X, y, weight, **given))
            if loss.shape != ():
                raise ValueError(
                    f"it returned an array of shape {loss.shape}; with per_row=False return a scalar, the loss of all "
                    "rows together."
                )
            return loss

        return of_all

    def steps(self, n_features: int) -> Steps:
        """Return the way to fit a window step by step."""
        unknowns = self.unknowns(n_features)
        return (NewtonSteps if self._uses_newton(unknowns) else QuasiNewtonSteps)(self.objective, unknowns)

    def predict(self, params: Any, X: Any) -> Any:
        """Call the user's prediction function."""
        if self.settings["predict"] is None:
            raise ValueError("models.Loss was given no function to predict with; pass predict=.")
        return self.settings["predict"](params, X)

    def described_predict(self) -> str:
        """Name the user's prediction function and its place."""
        predict = self.settings["predict"]
        return f"{function_name(predict)}{source_place(predict)}, given as Loss(predict=...),"
