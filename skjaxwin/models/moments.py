"""Weighted moments of each feature."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from skjaxwin._sklearn_private import Interval, StrOptions
from skjaxwin.kernels.moments import Powers, merge_powers, row_powers, scale_powers
from skjaxwin.models._base import FitInfo, WindowModel

__all__ = ["Moments"]

# The highest power of deviations that each statistic is made of.
_ORDERS = {"mean": 1, "variance": 2, "std": 2, "skewness": 3, "kurtosis": 4}


class Moments(WindowModel):
    r"""Mean, variance, standard deviation, skewness or kurtosis of each feature's power.

    An unsupervised model: it needs no target, and predicts the (first) statistic itself.

    Parameters
    ----------
    power : float, default=1.0
        The statistics are those of :math:`x^p`; p is positive. Traced: changing it never
        recompiles. A fractional power of a negative feature is NaN.
    statistic : str or tuple of str, default="mean"
        What to compute: "mean", "variance", "std", "skewness", "kurtosis".
    ddof : float, default=1.0
        The variance divides by the sum of the weights less `ddof`. Traced.

    Notes
    -----
    The parameters are a dict with an array of shape (n_features,) for each statistic.
    A weight counts as that many rows. With :math:`W` their sum and :math:`m_r` the
    weighted mean of the deviations to the power r, skewness and kurtosis are the
    bias-corrected ones [1]_,

    .. math::
        G_1 = \frac{\sqrt{W (W - 1)}}{W - 2} \frac{m_3}{m_2^{3/2}}, \quad
        G_2 = \frac{W - 1}{(W - 2)(W - 3)} \left( (W + 1) \frac{m_4}{m_2^2} - 3 (W - 1) \right),

    and NaN where all values are equal. Windows of fewer rows than a statistic needs
    are left out, unless ``min_periods`` says otherwise; then it is NaN.

    References
    ----------
    .. [1] D. N. Joanes and C. A. Gill, "Comparing measures of sample skewness and kurtosis",
       The Statistician 47, 183-189, 1998.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> X = np.array([[1.0], [3.0], [8.0]])
    >>> RollingJaxEstimator(models.Moments(), window=2).fit(X).params_["mean"].tolist()
    [[1.0], [2.0], [5.5]]
    >>> spread = models.Moments(statistic="variance")
    >>> RollingJaxEstimator(spread, window=2).fit(X).params_["variance"].tolist()
    [[2.0], [12.5]]
    """

    estimator_type = None
    target = "ignored"
    checked = True
    additive = True
    _parameter_constraints: ClassVar[dict[str, list]] = {
        "power": [Interval(Real, 0, None, closed="neither")],
        "statistic": [StrOptions(set(_ORDERS)), tuple, list],
        "ddof": [Interval(Real, 0, None, closed="left")],
    }

    def __init__(self, power: float = 1.0, statistic: Any = "mean", ddof: float = 1.0) -> None:
        self.power = power
        self.statistic = statistic
        self.ddof = ddof

    def _validate_params(self) -> None:
        super()._validate_params()
        unknown = [name for name in self.names() if name not in _ORDERS]
        if unknown or not self.names():
            raise ValueError(
                f"statistic={self.statistic!r} must be one of {sorted(_ORDERS)}, or a tuple of one or more of them."
            )

    def names(self) -> tuple[str, ...]:
        """Return the statistics as a tuple, which are the names in `params_`."""
        return (self.statistic,) if isinstance(self.statistic, str) else tuple(self.statistic)

    def _order(self) -> int:
        return max(_ORDERS[name] for name in self.names())

    @property
    def may_be_nan(self) -> bool:  # type: ignore[override]
        """Whether some statistic is undefined where values are equal; a mean never is."""
        return self.names() != ("mean",)

    @property
    def highest_power(self) -> int:  # type: ignore[override]
        """The highest power that is summed, as long as statistics and `solve` are those of this class."""
        own = ("statistics", "merge", "append", "scale", "solve")
        return self._order() if all(getattr(type(self), n) is getattr(Moments, n) for n in own) else 0

    def min_rows(self, n_features: int) -> int:
        """Return the fewest rows for which all statistics are defined."""
        del n_features
        needed = {"mean": 1, "variance": int(self.ddof) + 1, "std": int(self.ddof) + 1, "skewness": 3, "kurtosis": 4}
        return max(needed[name] for name in self.names())

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Fit one window; see `WindowModel.fit`."""
        del y, start
        value = jnp.power(X, hyper["power"])
        total = jnp.sum(weight)
        share = weight / total
        mean = share @ value
        mean = mean + share @ (value - mean)
        deviation = value - mean
        deviation = deviation - share @ deviation  # what rounding took from the mean
        sums = tuple(weight @ deviation**power for power in range(2, self._order() + 1))
        return self._finish(total, mean, sums, hyper["ddof"])

    def prepare(self, X: np.ndarray, hyper: dict[str, np.ndarray]) -> np.ndarray:
        """Return the features to the power, in NumPy."""
        return X if hyper["power"] == 1 else X ** hyper["power"]

    def statistics(self, x: Any, y: Any, weight: Any) -> Powers:
        """Return the statistics of one row, already to its power; see `WindowModel.statistics`."""
        del y
        return row_powers(x, weight, self._order())

    def merge(self, left: Powers, right: Powers) -> Powers:
        """Merge two sets of rows."""
        return merge_powers(left, right)

    def append(self, statistics: Powers, row: Powers) -> Powers:
        """Merge one more row, measured from the first one."""
        return merge_powers(statistics, row, keep_origin=True)

    def scale(self, statistics: Powers, factor: Any) -> Powers:
        """Multiply all weights by a factor."""
        return scale_powers(statistics, factor)

    def solve(self, statistics: Powers, hyper: dict[str, Any]) -> tuple[Any, FitInfo]:
        """Return the moments; see `WindowModel.solve`."""
        mean = statistics.origin + statistics.mean
        return self._finish(statistics.weight, mean, statistics.sums, hyper["ddof"])

    def from_sums(
        self, n_rows: Any, origin: Any, mean: Any, squares: Any, hyper: dict[str, Any], out: dict[str, np.ndarray]
    ) -> FitInfo:
        """Put means, variances and standard deviations into arrays by their names; see `WindowModel.from_sums`."""
        more = np.asarray(n_rows - hyper["ddof"])
        if "mean" in out:
            np.add(mean, origin, out=out["mean"])
        if squares is None:
            return FitInfo(determined=np.ones_like(more, bool))
        variance = np.divide(squares, np.where(more > 0, more, np.nan), out=out.get("variance", squares))
        if "std" in out:
            np.sqrt(variance, out=out["std"])
        return FitInfo(determined=more > 0)

    def _finish(self, weight: Any, mean: Any, sums: tuple[Any, ...], ddof: Any) -> tuple[Any, FitInfo]:
        """Turn sums of powers of deviations into what was asked for."""
        found = {"mean": mean}
        enough = jnp.ones(weight.shape, bool)
        if len(sums) >= 1:
            found["variance"] = _ratio(sums[0], weight - ddof)
            found["std"] = jnp.sqrt(found["variance"])
            enough &= weight > ddof if {"variance", "std"} & set(self.names()) else True
        if len(sums) >= 2:
            second = sums[0] / weight
            skewness = _ratio(sums[1] / weight, second * jnp.sqrt(second))
            found["skewness"] = skewness * jnp.sqrt(weight * jnp.maximum(weight - 1, 0)) / _positive(weight - 2)
            enough &= weight > 2
        if len(sums) >= 3:
            fourth = _ratio(sums[2] / weight, second * second)
            bracket = (weight + 1) * fourth - 3 * (weight - 1)
            found["kurtosis"] = (weight - 1) * bracket / _positive((weight - 2) * (weight - 3))
            enough &= weight > 3
        return {name: found[name] for name in self.names()}, FitInfo(determined=enough)

    def predict(self, params: Any, X: Any) -> Any:
        """Return the first statistic for every row."""
        return jnp.broadcast_to(params[self.names()[0]], X.shape)

    def predict_each(self, params: Any, X: np.ndarray) -> np.ndarray:
        """Return each row's own statistic, in NumPy."""
        return np.broadcast_to(params[self.names()[0]], X.shape).copy()


def _positive(value: Any) -> Any:
    return jnp.where(value > 0, value, jnp.nan)


def _ratio(numerator: Any, denominator: Any) -> Any:
    """Return NaN, and no infinity, where the denominator is not positive."""
    return numerator / _positive(denominator)
