"""Linear models with a penalty that sets slopes to zero."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import jax.numpy as jnp

from skjaxwin._sklearn_private import Interval
from skjaxwin.kernels.coordinate_descent import Penalties, conditions, elastic_nets
from skjaxwin.kernels.moments import Products, triangle
from skjaxwin.models._base import FitInfo, WindowModel
from skjaxwin.models.linear import Linear

__all__ = ["ElasticNet", "shrinks_much"]

# A penalty on absolute values of one sets every slope to zero where features and target have a deviation of one.
_MUCH = 0.1


def shrinks_much(alpha: Any) -> bool:
    """Say whether a penalty is large where features and target have a deviation of one."""
    return isinstance(alpha, Real) and float(alpha) >= _MUCH


class ElasticNet(WindowModel):
    r"""Least squares with penalties on the slopes' absolute values and squares, in every window.

    Minimises, over the slopes :math:`b` and the intercept :math:`a` of each window,

    .. math:: \frac{1}{2 \sum_i w_i} \sum_i w_i (y_i - a - x_i' b)^2 + \alpha \rho \lVert b \rVert_1
        + \frac{\alpha (1 - \rho)}{2} \lVert b \rVert_2^2 ,

    with :math:`\rho` for `l1_ratio`: the objective of scikit-learn's ``ElasticNet``, and of its ``Lasso`` for
    ``l1_ratio=1``. Several targets are fitted independently of each other.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of both penalties, in units of the target times those of a feature: the default sets most slopes of
        standardised data to zero. Traced, like all other numbers: changing it never recompiles.
    l1_ratio : float, default=0.5
        Share of the penalty on absolute values, between 0 and 1.
    fit_intercept : bool, default=True
        Whether to fit :math:`a`, which is not penalised.
    tol : float, default=1e-10
        A fit has converged when no optimality condition is violated by more than this, measured as a correlation of a
        feature with what the fit leaves of the target, in units of the target's deviation, apart from rounding.
    max_iter : int, default=1000
        Most sweeps over the slopes.

    Notes
    -----
    The model is additive: windows are put together from merged cross products, so that the cost of a window does not
    depend on its rows, and a grid of penalties shares them. Slopes are found by coordinate descent [1]_, and the
    equations of those that are not zero are solved in between, which makes fits exact to rounding however slow the
    descent is. Where features are dependent but for a share :math:`1 / c^2` of their variance, cross products know
    slopes to about :math:`10^{-16} c^2`; ``condition_`` is this :math:`c` for all features together, the root of the
    largest variance inflation factor, without any penalty.

    Features that do not vary in a window get slopes of zero. With ``alpha=0`` the fit is one of least squares: where
    features are dependent it is one of many with the same predictions, and not the shortest one; ``determined_``
    is then False, and ``underdetermined="nan"`` makes the window's parameters NaN. `Linear` is made for that case.

    The parameters are a dict: ``coef`` of shape (n_features,) or (n_outputs, n_features), and ``intercept``, a
    scalar or (n_outputs,).

    References
    ----------
    .. [1] J. Friedman, T. Hastie and R. Tibshirani, "Regularization paths for generalized linear models via coordinate
       descent", Journal of Statistical Software 33(1), 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 4))
    >>> y = 2 * X[:, 0] - X[:, 1] + rng.normal(size=300)
    >>> rolling = RollingJaxEstimator(models.ElasticNet(alpha=0.3, l1_ratio=0.9), window=100).fit(X, y)
    >>> (rolling.coef_ != 0).tolist()
    [True, True, False, False]
    """

    checked = True
    additive = True
    windows_at_once = 32
    _parameter_constraints: ClassVar[dict[str, list]] = {
        "alpha": [Interval(Real, 0, None, closed="left")],
        "l1_ratio": [Interval(Real, 0, 1, closed="both")],
        "fit_intercept": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        tol: float = 1e-10,
        max_iter: int = 1000,
    ) -> None:
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    @property
    def poor_score(self) -> bool:
        """Whether the penalty is large."""
        return shrinks_much(self.alpha)

    # What merges, and what predicts, is that of least squares.
    statistics, merge, append, scale = Linear.statistics, Linear.merge, Linear.append, Linear.scale
    predict, predict_each = Linear.predict, Linear.predict_each

    def solve(self, statistics: Products, hyper: dict[str, Any]) -> tuple[Any, FitInfo]:
        """Descend along the coordinates; see `WindowModel.solve`."""
        mean = statistics.origin + statistics.mean
        n_features = len(mean) - statistics.n_targets
        square = (statistics.products / statistics.weight)[triangle(len(mean))]
        if not self.fit_intercept:
            square = square + mean[:, None] * mean[None]
        gram, cross = square[:n_features, :n_features], square[n_features:, :n_features]
        of_targets = jnp.stack([square[j, j] for j in range(n_features, len(mean))])
        settings = (
            hyper["alpha"] * hyper["l1_ratio"],
            hyper["alpha"] * (1 - hyper["l1_ratio"]),
            hyper["tol"],
            hyper["max_iter"],
        )
        penalties = Penalties(*(jnp.broadcast_to(value, (1, mean.shape[1])) for value in settings))
        found = elastic_nets(gram, cross, of_targets, penalties)
        coef = found.coef[0]
        intercept = jnp.zeros_like(of_targets)
        if self.fit_intercept:
            intercept = mean[n_features:] - jnp.sum(coef * mean[:n_features], axis=1)
        condition = conditions(gram)
        info = FitInfo(
            converged=jnp.all(found.converged[0], axis=0),
            n_iter=jnp.max(found.n_iter[0], axis=0),
            determined=(hyper["alpha"] > 0) | jnp.isfinite(condition),
            condition=condition,
        )
        if statistics.n_targets == 1:
            coef, intercept = coef[0], intercept[0]
        return {"coef": coef, "intercept": intercept}, info
