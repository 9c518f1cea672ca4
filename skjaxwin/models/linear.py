"""Least squares and ridge."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from skjaxwin._sklearn_private import Interval
from skjaxwin.kernels.linalg import gram_schmidt, minimum_norm
from skjaxwin.kernels.moments import merge_products, row_products, scale_products
from skjaxwin.models._base import FitInfo, WindowModel
from skjaxwin.models._normal_equations import solve_products

__all__ = ["Linear"]

# A column whose part outside the columns before it is shorter than this many roundings
# of its length counts as dependent.
_RANK_MARGIN = 256


class Linear(WindowModel):
    r"""Least squares, or ridge regression, in every window.

    Minimises, over the slopes :math:`b` and the intercept :math:`a` of each window,

    .. math:: \sum_i w_i (y_i - a - x_i' b)^2 + \alpha \lVert b \rVert^2 ,

    the objective of scikit-learn's ``Ridge``: the intercept is not penalised.

    Parameters
    ----------
    alpha : float, default=0.0
        Penalty, in the squared units of y over the squared units of a slope.
        Traced: changing it never recompiles.
    fit_intercept : bool, default=True
        Whether to fit :math:`a`.

    Notes
    -----
    Columns are centred at the window's weighted mean and scaled, then
    triangularised by modified Gram-Schmidt [1]_, whose error grows with the
    condition number and not with its square. Where the columns of a window are
    linearly dependent and `alpha` is 0, the slopes are those of smallest norm, as
    in ``numpy.linalg.lstsq`` on centred columns, and the window counts as
    under-determined.

    The parameters are a dict: ``coef`` of shape (n_features,) or
    (n_outputs, n_features), and ``intercept``, a scalar or (n_outputs,).

    References
    ----------
    .. [1] A. Bjorck, "Solving linear least squares problems by Gram-Schmidt
       orthogonalization", BIT 7, 1-21, 1967.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> y = np.array([1.0, 3.0, 5.0, 4.0])
    >>> rolling = RollingJaxEstimator(models.Linear(), window=2).fit(X, y)
    >>> rolling.params_["coef"].round(6).tolist()
    [[0.0], [2.0], [2.0], [-1.0]]
    """

    checked = True
    additive = True
    least_squares = True
    # The square of it times the rounding is what normal equations lose.
    max_condition = 150.0
    _parameter_constraints: ClassVar[dict[str, list]] = {
        "alpha": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
    }

    def __init__(self, alpha: float = 0.0, fit_intercept: bool = True) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Fit one window; see `WindowModel.fit`."""
        del start
        k, dtype = X.shape[1], X.dtype
        eps = jnp.finfo(dtype).eps
        columns = jnp.concatenate([X.T, y[None, :] if y.ndim == 1 else y.T])
        # Sizes are divided out first: squares of 1e155, or of 1e-160, are no longer numbers.
        heaviest = jnp.max(weight)
        weight = weight / heaviest
        largest = jnp.max(jnp.where(weight > 0, jnp.abs(columns), 0), axis=1)
        size = jnp.where(largest > 0, largest, 1)
        columns = columns / size[:, None]
        raw = columns[:k] ** 2 @ weight
        mean = jnp.zeros(len(columns), dtype)
        if self.fit_intercept:
            # Corrected once, so that an offset of 1e4 in float32 costs no digits.
            share = weight / jnp.sum(weight)
            mean = columns @ share
            mean = mean + (columns - mean[:, None]) @ share
        columns = (columns - mean[:, None]) * jnp.sqrt(weight)
        square = jnp.sum(columns[:k] ** 2, axis=1)
        # What centring leaves of a constant column is rounding, not information.
        varies = square > (8 * eps) ** 2 * raw
        length = jnp.where(varies, jnp.sqrt(square), 1)
        inverse = jnp.concatenate([jnp.where(varies, 1 / length, 0), jnp.ones(len(columns) - k, dtype)])
        rounding = eps * (_RANK_MARGIN + 4 * jnp.sqrt(raw) / length)
        rank = jnp.sum(weight > 0, dtype=dtype) - self.fit_intercept
        R = gram_schmidt(columns * inverse[:, None], k, rounding**2, rank)
        independent = jnp.sum(R[:, :k] * np.eye(k), axis=1) > 0

        # Unknowns from here on: slopes times `scale`, those of columns of unit length.
        scale = length * size[:k]
        penalty = jnp.sqrt(hyper["alpha"] / heaviest) / scale
        # A penalty below the rounding of dependent columns cannot tell their slopes apart.
        dependent = ~jnp.all(independent) & jnp.any(penalty <= rounding)
        penalty = jnp.where(dependent, 0, penalty)
        determined = jnp.all(independent | (penalty > 0))
        drop = jnp.where(independent | (penalty > 0), jnp.zeros((), dtype), jnp.inf)
        R = gram_schmidt(jnp.concatenate([R, jnp.eye(k, R.shape[1], dtype=dtype) * penalty[:, None]]).T, k, drop)
        # They are the better conditioned ones; only a shortest solution has to be sought
        # among the slopes themselves.
        unit = jnp.where(determined, jnp.ones(k, dtype), scale / jnp.max(scale))
        coef = minimum_norm(R * jnp.concatenate([unit, jnp.ones(R.shape[1] - k, dtype)])) * unit
        coef = coef * size[k:, None] / scale
        intercept = mean[k:] * size[k:] - coef @ (mean[:k] * size[:k])
        if y.ndim == 1:
            coef, intercept = coef[0], intercept[0]
        info = FitInfo(determined=determined, condition=_condition(R[:, :k], jnp.all(independent | (penalty > 0))))
        return {"coef": coef, "intercept": intercept}, info

    def statistics(self, x: Any, y: Any, weight: Any) -> Any:
        """Return the cross products of one row's features and targets; see `WindowModel.statistics`."""
        targets = y[None] if y.ndim == weight.ndim else y
        return row_products(jnp.concatenate([x, targets]), weight, n_targets=len(targets))

    def merge(self, left: Any, right: Any) -> Any:
        """Merge two sets of rows."""
        return merge_products(left, right)

    def append(self, statistics: Any, row: Any) -> Any:
        """Merge one more row, measured from the first one."""
        return merge_products(statistics, row, keep_origin=True)

    def scale(self, statistics: Any, factor: Any) -> Any:
        """Multiply all weights by a factor."""
        return scale_products(statistics, factor)

    def solve(self, statistics: Any, hyper: dict[str, Any]) -> tuple[Any, FitInfo]:
        """Solve a window's normal equations, centred and scaled; see `WindowModel.solve`."""
        return solve_products(statistics, hyper["alpha"], self.fit_intercept)[:2]

    def error_parts(self, statistics: Any, hyper: dict[str, Any]) -> Any:
        """Return what standard errors are made of, besides the number of rows."""
        return solve_products(statistics, hyper["alpha"], self.fit_intercept)[2]

    def solved(self, condition: Any) -> FitInfo:
        """Describe fits by normal equations."""
        return FitInfo(condition=condition)

    def predict(self, params: Any, X: Any) -> Any:
        """Return ``X coef' + intercept``."""
        return X @ params["coef"].T + params["intercept"]

    def predict_each(self, params: Any, X: np.ndarray) -> np.ndarray:
        """Return each row's product with its own coefficients, in NumPy."""
        coef, intercept = params["coef"], params["intercept"]
        rows = X[:, None, :] if coef.ndim == 3 else X
        return (rows * coef).sum(-1) + intercept


def _condition(R: Any, regular: Any) -> Any:
    """Return the root of the largest variance inflation factor, from the triangular factor."""
    k, dtype = R.shape[0], R.dtype
    inverse = minimum_norm(jnp.concatenate([R, jnp.eye(k, dtype=dtype)], axis=1)).T
    inflation = jnp.sum(R * R, axis=0) * jnp.sum(inverse * inverse, axis=1)
    return jnp.where(regular, jnp.sqrt(jnp.maximum(jnp.max(inflation), 1)), jnp.inf)
