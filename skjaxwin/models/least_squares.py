"""A user's curve, fitted by nonlinear least squares."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from skjaxwin.kernels.predict import predict_rows
from skjaxwin.kernels.row_objective import mean_squares
from skjaxwin.models._base import WindowModel
from skjaxwin.models._unknowns import Unknowns
from skjaxwin.models._user_function import UserFunction

__all__ = ["LeastSquares"]


class LeastSquares(UserFunction):
    r"""Fit your own curve by least squares in every window.

    Minimises, over the parameters :math:`\theta` of each window,

    .. math:: \sum_i w_i \, [y_i - f(\theta, x_i)]^2

    by Levenberg and Marquardt's method, as ``scipy.optimize.curve_fit`` does, with exact derivatives.

    Parameters
    ----------
    function : callable
        ``function(params, X, **hyperparameters) -> predictions`` of shape (n_rows,), each row from its own features.
        A plain function of arrays that JAX can trace and differentiate.
    initial : pytree of floats, or callable
        Where the parameters start: a number, an array, or a dict or tuple of them; `params_` has the same structure. A
        function of no argument, or of the number of features, may return it.
    lower, upper : float or pytree of floats, default=None
        Bounds: one for all parameters, or with the structure of `initial`, where None, and a name that is left out,
        stands for none. A parameter may end on its bound; see the notes. Each new bound compiles once.
    tol : float, default=1e-8
        A window's fit ends with a step of at most this share of the largest parameter, each measured in units of its
        curvature. Traced.
    max_iter : int, default=200
        Most steps for a window, those included that were tried and refused. Traced.
    **hyperparameters
        Passed to `function` by name, and reachable as ``model__name`` in ``set_params`` and ``GridSearchCV``. Numbers
        and numeric arrays are traced as floats (a new value never recompiles); everything else is static.

    Notes
    -----
    Windows go side by side in lanes; in each the fit of a window starts where the one before it ended, if that
    converged. Windows that did not converge are fitted once more from `initial`. Where the curve has several local
    minima, the one found depends on this, as it does for every such method.

    A parameter that the sum of squares pulls beyond its bound ends exactly there, and the window counts as converged:
    the other parameters are optimal given the bound. `condition_` and `gradient_norm_` are those of the others.

    ``condition_`` is the root of the largest variance inflation factor of the parameters, ``gradient_norm_`` the
    length of the gradient of half the weighted mean square. Where the data do not determine the parameters, a window
    counts as under-determined (``determined_``) and as not converged: so do windows with fewer rows than parameters,
    which ``min_periods`` leaves out.

    `inference` gives standard errors, "nonrobust" those of ``curve_fit``: NaN for a parameter at its bound, and for the
    others as if it were known.

    Define the functions in an importable module: then the estimator can be pickled. Jitted functions are refused.
    Computation is in float64 also where X is float32.

    Examples
    --------
    Exponential decay towards a level, in windows of 40 rows:

    >>> import jax.numpy as jnp, numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> def decay(params, X):
    ...     return params["size"] * jnp.exp(-params["rate"] * X[:, 0]) + params["level"]
    >>> t = np.tile(np.linspace(0, 4, 20), 5)
    >>> rng = np.random.default_rng(0)
    >>> y = 3 * np.exp(-1.5 * t) + 1 + 0.01 * rng.normal(size=100)
    >>> model = models.LeastSquares(decay, {"size": 1.0, "rate": 1.0, "level": 0.0}, lower={"rate": 0})
    >>> rolling = RollingJaxEstimator(model, window=40, min_periods=10).fit(t[:, None], y)
    >>> rolling.params_["rate"][-3:].round(1).tolist()
    [1.5, 1.5, 1.5]
    """

    called_with = (
        "function gets params, of the structure of initial, X of shape (n_rows, n_features), padding included, and the "
        "hyperparameters by name"
    )
    named_first = ("function", "initial", "lower", "upper", "tol", "max_iter")

    def __init__(
        self,
        function: Callable[..., Any],
        initial: Any,
        *,
        lower: Any = None,
        upper: Any = None,
        tol: float = 1e-8,
        max_iter: int = 200,
        **hyperparameters: Any,
    ) -> None:
        own = {"function": function, "initial": initial, "lower": lower, "upper": upper}
        super().__init__({**own, "tol": tol, "max_iter": max_iter}, hyperparameters)

    def objective(self, unknowns: Unknowns, X: Any, y: Any, weight: Any, hyper: dict[str, Any]) -> Any:
        """Return half the mean square, with Gauss and Newton's Hessian."""
        return mean_squares(self._curve(unknowns, hyper), X, y, weight)

    def information(
        self, unknowns: Unknowns, point: Any, X: Any, y: Any, weight: Any, hyper: dict[str, Any]
    ) -> tuple[Any, Any, Any]:
        """Return scores, Gauss and Newton's Hessian, and the sum of squares; see `UserFunction.information`."""
        curve = self._curve(unknowns, hyper)
        inside = weight > 0
        slopes = jnp.where(inside[:, None], jax.jacfwd(lambda at: curve(at, X))(point), 0)
        residual = jnp.where(inside, y - curve(point, X), 0)
        scores = -(weight * residual)[:, None] * slopes
        return scores, (slopes.T * weight) @ slopes, jnp.sum(weight * residual**2)

    def _curve(self, unknowns: Unknowns, hyper: dict[str, Any]) -> Callable[[Any, Any], Any]:
        """Return the user's function of the unknowns and rows."""
        given = self.of_function(hyper)

        def curve(point: Any, X: Any) -> Any:
            predicted = jnp.asarray(self.function(unknowns.unpack(point), X, **given))
            if predicted.shape != (len(X),):
                raise ValueError(
                    f"it returned an array of shape {predicted.shape} for {len(X)} rows; return a prediction for each "
                    "row, of shape (n_rows,) (for a constant write level + 0 * X[:, 0])."
                )
            return predicted

        return curve

    @property
    def compiles_predict(self) -> bool:
        """Whether predictions go through the engine's kernel, which knows no hyperparameters."""
        return not self.traced_of_function()

    def predict(self, params: Any, X: Any) -> Any:
        """Evaluate the user's curve."""
        return self.function(params, X, **self.named)

    def predict_each(self, params: Any, X: np.ndarray) -> np.ndarray | None:
        """Evaluate the curve with its hyperparameters, if it has any."""
        traced = self.traced_of_function()
        if not traced:
            return None
        n_rows, shared = len(X), len(jax.tree_util.tree_leaves(params)[0]) == 1
        hyper = {name: np.broadcast_to(np.asarray(a, X.dtype), (1, *np.shape(a))) for name, a in traced.items()}
        rows = np.zeros(n_rows, np.int64)
        if not shared:
            hyper = {name: np.broadcast_to(a, (n_rows, *a.shape[1:])) for name, a in hyper.items()}
            rows = np.arange(n_rows)
        return predict_rows(_WithHyper(self), {"params": params, "hyper": hyper}, rows, X, shared=shared)

    def described_predict(self) -> str:
        """Name the user's curve and its place."""
        return self.described()


class _WithHyper(WindowModel):
    """A curve whose parameters bring its hyperparameters along, so that a kernel for predictions holds no value."""

    def __init__(self, curve: LeastSquares) -> None:
        self.curve = curve

    def static_key(self) -> Hashable:
        return ("with hyperparameters", self.curve.static_key())

    def static_copy(self) -> WindowModel:
        return _WithHyper(self.curve.static_copy())

    def predict(self, params: Any, X: Any) -> Any:
        return self.curve.function(params["params"], X, **self.curve.of_function(params["hyper"]))

    def described_predict(self) -> str:
        return self.curve.described()
