"""Quantile regression."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from skjaxwin._sklearn_private import Interval
from skjaxwin.kernels.interior_point import Problem, least_residuals
from skjaxwin.kernels.linear_predictor import standardised
from skjaxwin.kernels.moments import triangle
from skjaxwin.kernels.newton import condition
from skjaxwin.models._base import FitInfo, WindowModel
from skjaxwin.models.elastic_net import shrinks_much
from skjaxwin.models.linear import Linear

__all__ = ["Quantile"]

# Cross products cannot tell dependent features from those of a larger condition than this.
_DETERMINED = 1e7
_NEAR_MIDDLE = 0.25


class Quantile(WindowModel):
    r"""Quantile regression in every window.

    Minimises, over the slopes :math:`b` and the intercept :math:`a` of each window, the objective of scikit-learn's
    ``QuantileRegressor``

    .. math:: \frac{1}{\sum_i w_i} \sum_i w_i \, \rho_q(y_i - a - x_i' b) + \alpha \lVert b \rVert_1 ,
       \qquad \rho_q(r) = \max(q r, (q - 1) r) .

    Parameters
    ----------
    quantile : float, default=0.5
        Between 0 and 1; 0.5 is the median. Traced: changing it never recompiles.
    alpha : float, default=1.0
        Penalty, in units of a feature. It sets slopes to zero: with scikit-learn's default, all slopes of features
        with a deviation of one. 0 for plain quantile regression. Traced.
    fit_intercept : bool, default=True
    tol : float, default=1e-9
        A window's fit counts as converged if no other can be better by this share of the objective. Steps go on to
        the last digits anyway. Traced.
    max_iter : int, default=100
        Most steps for a window. Traced.

    Notes
    -----
    The optimum is found by an interior point method and then exactly, as a fit through as many rows as it has
    coefficients that are not zero (``kernels.interior_point``). Where several fits are equally good, as with a median
    of an even number of rows, it is one of them, and not always the one that another solver finds.

    Where features depend on each other and there is no penalty, the window counts as under-determined
    (``determined_``).

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(500, 1))
    >>> y = 1 + 2 * X[:, 0] + rng.exponential(size=500)
    >>> rolling = RollingJaxEstimator(models.Quantile(0.9, alpha=0.0), window=400).fit(X, y)
    >>> round(float(np.mean(y[100:] <= rolling.predict(X[100:]))), 1)
    0.9
    """

    checked = True
    double = True
    in_turn = True
    multi_output = False
    _parameter_constraints: ClassVar[dict[str, list]] = {
        "quantile": [Interval(Real, 0, 1, closed="neither")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        quantile: float = 0.5,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-9,
        max_iter: int = 100,
    ) -> None:
        self.quantile = quantile
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    @property
    def poor_score(self) -> bool:
        """Whether the penalty is large, or the quantile far from the middle, which the score asks for."""
        return shrinks_much(self.alpha) or abs(self.quantile - 0.5) > _NEAR_MIDDLE

    predict, predict_each = Linear.predict, Linear.predict_each

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Fit one window; see `WindowModel.fit`."""
        del start
        design = standardised(X, y, weight, self.fit_intercept)
        p = design.columns.shape[1]
        columns = jnp.moveaxis(design.columns, 1, 0).reshape(p, -1)
        share = design.weight.reshape(-1) / design.total
        target = design.target.reshape(-1)
        middle = share @ target if self.fit_intercept else jnp.zeros_like(design.total)
        target = jnp.where(share > 0, target - middle, 0)
        size = jnp.max(jnp.abs(target))
        size = jnp.where(size > 0, size, 1)
        penalty = hyper["alpha"] / design.scale
        if self.fit_intercept:
            penalty = jnp.concatenate([jnp.zeros(1, penalty.dtype), penalty])
        # An absolute coefficient is the residual of a row of its own.
        problem = Problem(
            jnp.concatenate([jnp.where(share > 0, columns, 0), jnp.eye(p, dtype=columns.dtype)], axis=1),
            jnp.concatenate([target / size, jnp.zeros(p, target.dtype)]),
            jnp.concatenate([share * hyper["quantile"], penalty]),
            jnp.concatenate([share * (1 - hyper["quantile"]), penalty]),
        )
        found = least_residuals(problem, tol=hyper["tol"], max_iter=hyper["max_iter"])
        slopes = found.point[self.fit_intercept :] * size / design.scale * design.varies
        intercept = jnp.zeros_like(size)
        if self.fit_intercept:
            intercept = found.point[0] * size + middle - slopes @ design.centre
        rows, others = np.triu_indices(p)
        gram = ((columns[rows] * columns[others]) @ share)[triangle(p)]
        bad = condition(gram)
        info = FitInfo(
            converged=found.converged,
            n_iter=found.n_iter,
            determined=(hyper["alpha"] > 0) | (bad < _DETERMINED),
            condition=bad,
        )
        return {"coef": slopes, "intercept": intercept}, info
