"""Weighted moments of each feature."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from skjaxwin._sklearn_private import Interval
from skjaxwin.models._base import FitInfo, WindowModel

__all__ = ["Moments"]


class Moments(WindowModel):
    r"""The weighted mean of each feature's power, :math:`\sum_i w_i x_i^p / \sum_i w_i`.

    An unsupervised model: it needs no target, and predicts the moment itself.

    Parameters
    ----------
    power : float, default=1.0
        The exponent p, positive. Traced: changing it never recompiles. A
        fractional power of a negative feature is NaN.

    Notes
    -----
    The parameters are a dict: ``moment`` of shape (n_features,).

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> X = np.array([[1.0], [3.0], [8.0]])
    >>> RollingJaxEstimator(models.Moments(), window=2).fit(X).params_["moment"].tolist()
    [[1.0], [2.0], [5.5]]
    """

    estimator_type = None
    target = "ignored"
    checked = True
    _parameter_constraints: ClassVar[dict[str, list]] = {"power": [Interval(Real, 0, None, closed="neither")]}

    def __init__(self, power: float = 1.0) -> None:
        self.power = power

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Fit one window; see `WindowModel.fit`."""
        del y, start
        value = jnp.power(X, hyper["power"])
        share = weight / jnp.sum(weight)
        mean = share @ value
        mean = mean + share @ (value - mean)
        return {"moment": mean}, FitInfo()

    def predict(self, params: Any, X: Any) -> Any:
        """Return the moment for every row."""
        return jnp.broadcast_to(params["moment"], X.shape)

    def predict_each(self, params: Any, X: np.ndarray) -> np.ndarray:
        """Return each row's own moment, in NumPy."""
        return np.broadcast_to(params["moment"], X.shape).copy()
