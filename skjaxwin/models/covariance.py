"""Covariance and correlation of the features."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import jax.numpy as jnp

from skjaxwin._sklearn_private import Interval
from skjaxwin.kernels.moments import Products, merge_products, row_products, scale_products, triangle
from skjaxwin.models._base import FitInfo, WindowModel

__all__ = ["Covariance"]


class Covariance(WindowModel):
    r"""Covariance matrix of the features, and their correlations.

    .. math:: S = \frac{1}{W - d} \sum_i w_i (x_i - \bar x)(x_i - \bar x)' , \quad W = \sum_i w_i .

    An unsupervised model without predictions: it needs no target.

    Parameters
    ----------
    ddof : float, default=1.0
        The d of the formula. Traced: changing it never recompiles.
    correlation : bool, default=False
        Whether to return the correlation matrix, too; it is NaN where a feature does not vary.

    Notes
    -----
    The parameters are a dict: ``mean`` of shape (n_features,), ``covariance`` and, if asked
    for, ``correlation`` of shape (n_features, n_features). Windows of too few rows are left
    out, unless ``min_periods`` says otherwise; then covariances are NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> X = np.array([[1.0, 2.0], [3.0, 1.0], [8.0, 6.0]])
    >>> RollingJaxEstimator(models.Covariance(), window=2).fit(X).params_["covariance"].tolist()
    [[[2.0, -1.0], [-1.0, 0.5]], [[12.5, 12.5], [12.5, 12.5]]]
    """

    estimator_type = None
    target = "ignored"
    checked = True
    additive = True
    may_be_nan = True
    _parameter_constraints: ClassVar[dict[str, list]] = {
        "ddof": [Interval(Real, 0, None, closed="left")],
        "correlation": ["boolean"],
    }

    def __init__(self, ddof: float = 1.0, correlation: bool = False) -> None:
        self.ddof = ddof
        self.correlation = correlation

    def min_rows(self, n_features: int) -> int:
        """Return the fewest rows for which the covariance is defined."""
        del n_features
        return int(self.ddof) + 1

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Fit one window; see `WindowModel.fit`."""
        del y, start
        total = jnp.sum(weight)
        share = weight / total
        mean = share @ X
        mean = mean + share @ (X - mean)
        deviation = X - mean
        deviation = deviation - share @ deviation  # what rounding took from the mean
        return self._finish(total, mean, deviation.T @ (weight[:, None] * deviation), hyper["ddof"])

    def statistics(self, x: Any, y: Any, weight: Any) -> Products:
        """Return the statistics of one row; see `WindowModel.statistics`."""
        del y
        return row_products(x, weight)

    def merge(self, left: Products, right: Products) -> Products:
        """Merge two sets of rows."""
        return merge_products(left, right)

    def append(self, statistics: Products, row: Products) -> Products:
        """Merge one more row, measured from the first one."""
        return merge_products(statistics, row, keep_origin=True)

    def scale(self, statistics: Products, factor: Any) -> Products:
        """Multiply all weights by a factor."""
        return scale_products(statistics, factor)

    def solve(self, statistics: Products, hyper: dict[str, Any]) -> tuple[Any, FitInfo]:
        """Return the matrices; see `WindowModel.solve`."""
        mean = statistics.origin + statistics.mean
        products = statistics.products[triangle(mean.shape[0])]
        return self._finish(statistics.weight, mean, products, hyper["ddof"])

    def predict(self, params: Any, X: Any) -> Any:
        """Refuse: there is nothing to predict."""
        raise ValueError("models.Covariance predicts nothing; read params_ of the fitted estimator.")

    def _finish(self, weight: Any, mean: Any, products: Any, ddof: Any) -> tuple[Any, FitInfo]:
        """Turn centred cross products into matrices."""
        enough = weight > ddof
        params = {"mean": mean, "covariance": products / jnp.where(enough, weight - ddof, jnp.nan)}
        if self.correlation:
            square = jnp.stack([products[j, j] for j in range(mean.shape[0])])
            inverse = 1 / jnp.sqrt(jnp.where(square > 0, square, jnp.nan))
            params["correlation"] = jnp.clip(products * (inverse[:, None] * inverse[None]), -1, 1)
        return params, FitInfo(determined=enough)
