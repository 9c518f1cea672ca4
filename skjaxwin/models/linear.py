"""Least squares and ridge."""

from __future__ import annotations

from numbers import Real
from typing import Any

import jax.numpy as jnp
import numpy as np

from skjaxwin._sklearn_private import Interval
from skjaxwin.kernels.linalg import gram_schmidt, minimum_norm
from skjaxwin.models._base import FitInfo, WindowModel

__all__ = ["Linear"]


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
    _parameter_constraints = {
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
        columns, targets = X.T, y[None, :] if y.ndim == 1 else y.T
        raw_length = jnp.sqrt(jnp.sum(weight * columns**2, axis=1))
        if self.fit_intercept:
            x_mean, y_mean = _weighted_mean(columns, weight), _weighted_mean(targets, weight)
            columns, targets = columns - x_mean[:, None], targets - y_mean[:, None]
        root = jnp.sqrt(weight)
        columns, targets = columns * root, targets * root
        length = jnp.sqrt(jnp.sum(columns**2, axis=1))
        # What centring leaves of a constant column is rounding, not information.
        varies = length > 8 * eps * raw_length
        scale = jnp.where(varies, length, 1)
        columns = jnp.where(varies[:, None], columns / scale[:, None], 0)
        rows = jnp.sum(weight > 0).astype(dtype)
        threshold = eps * (jnp.maximum(rows, k) + 4 * raw_length / scale)
        R, c, independent = gram_schmidt(columns, targets, threshold)

        alpha = hyper["alpha"]
        penalty = jnp.diag(jnp.sqrt(alpha) / scale)
        stacked = jnp.concatenate([R, penalty]).T
        padded = jnp.concatenate([c, jnp.zeros_like(c)]).T
        drop = jnp.where(independent | (alpha > 0), jnp.zeros((), dtype), jnp.inf)
        R, c, _ = gram_schmidt(stacked, padded, drop)
        determined = jnp.all(independent) | (alpha > 0)
        # Slopes of the scaled columns are the better conditioned unknowns; only the
        # shortest solution has to be found among the slopes themselves.
        unit = jnp.where(determined, jnp.ones(k, dtype), scale)
        coef = minimum_norm(R * unit, c) * unit / scale
        if self.fit_intercept:
            intercept = y_mean - coef @ x_mean
        else:
            intercept = jnp.zeros(coef.shape[0], dtype)
        if y.ndim == 1:
            coef, intercept = coef[0], intercept[0]
        finite = jnp.all(jnp.isfinite(coef)) & jnp.all(jnp.isfinite(intercept))
        return {"coef": coef, "intercept": intercept}, FitInfo(finite, jnp.ones((), jnp.int32), determined)

    def predict(self, params: Any, X: Any) -> Any:
        """Return ``X coef' + intercept``."""
        return X @ params["coef"].T + params["intercept"]

    def predict_each(self, params: Any, X: np.ndarray) -> np.ndarray:
        """Return each row's product with its own coefficients, in NumPy."""
        coef, intercept = params["coef"], params["intercept"]
        rows = X[:, None, :] if coef.ndim == 3 else X
        return (rows * coef).sum(-1) + intercept


def _weighted_mean(rows: Any, weight: Any) -> Any:
    """Mean of each row, corrected once so that an offset of 1e6 costs no digits."""
    total = jnp.sum(weight)
    mean = rows @ weight / total
    return mean + (rows - mean[:, None]) @ weight / total
