"""A Gaussian mixture in every window."""

from __future__ import annotations

from collections.abc import Hashable
from numbers import Integral, Real
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from skjaxwin._sklearn_private import Interval, StrOptions
from skjaxwin.counts import refuse_flags
from skjaxwin.entropy import COVARIANCE_TYPES, METHODS
from skjaxwin.kernels.em import Mixture, rows_per_block
from skjaxwin.kernels.mixture_density import log_density_each, most_likely
from skjaxwin.kernels.mixture_restart import best_of_starts
from skjaxwin.models._base import FitInfo, WindowModel

__all__ = ["GaussianMixture"]


class GaussianMixture(WindowModel):
    r"""Gaussian mixture, fitted by expectation maximisation on every window.

    .. math:: p(x) = \sum_k w_k N(x; \mu_k, S_k) .

    Each window is fitted from several starts, of which the likeliest fit is kept: where the window before ended, from
    a deterministic clustering of its rows, and from components that differ in scale alone. Component k stays
    component k in all windows. An unsupervised model; it predicts the most probable component.

    Parameters
    ----------
    n_components : int, default=1
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
    tol : float, default=1e-3
        A window's fit ends when the mean log likelihood changes by less. Traced: changing it never recompiles.
    reg_covar : float, default=1e-6
        Added to the diagonals of covariances, in squared units of the data. Traced.
    max_iter : int, default=100
        Most iterations from each start. Traced.
    order : int, default=8
        Order of the series for ``RollingJaxEstimator.entropy_path_``; see `gaussian_mixture_entropy`.
    method : str, default="legendre"
        How to compute these entropies; see `gaussian_mixture_entropy`.

    Notes
    -----
    The parameters are a dict: ``weights`` of shape (n_components,), ``means`` of shape (n_components, n_features)
    and ``covariances`` of the shape that scikit-learn's mixtures have. Computation is in float64, whatever the data.

    A window that continues the one before is kept unless another start gains more than `tol` in mean log likelihood, or
    unless one of its components has too few rows: less than one, or than a covariance of its own needs
    (``n_features + 1`` for ``"full"``, two for ``"diag"`` and ``"spherical"``). Fits are compared by that before their
    likelihoods, which have no bound where a component may shrink onto a row. A new start's components are put in the
    order of the old ones by the rows that they share. Where a component is left with less than one row from every
    start, `converged_` is False, and a ``ConvergenceWarning`` counts such windows.

    With several components a window needs, unless ``min_periods`` says otherwise, ``5 * n_components * (n_features +
    1)`` rows for ``"full"`` and ``10 * n_components`` for the others, and for ``"tied"`` no less than ``5 *
    (n_features + 1)``. A window in which a covariance is not positive definite from any start has NaN for parameters
    and counts as not converged; in the one after it components may be in another order.

    Predictions are component numbers as floats, since rows that no window precedes are NaN.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 1)) + np.where(rng.random(300) < 0.5, -4, 4)[:, None]
    >>> rolling = RollingJaxEstimator(models.GaussianMixture(2), window=100, min_periods=100).fit(X)
    >>> rolling.params_["means"].shape
    (201, 2, 1)
    >>> low = rolling.params_["means"][0, :, 0].argmin()
    >>> bool((np.abs(rolling.params_["means"][:, low] + 4) < 0.6).all())
    True
    """

    estimator_type = None
    target = "ignored"
    structural = ("n_components", "order")
    checked = True
    sequential = True
    double = True
    advice = "A component of less than one row counts as such: take fewer components, or more rows (min_periods)."
    _parameter_constraints: ClassVar[dict[str, list]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions(set(COVARIANCE_TYPES))],
        "tol": [Interval(Real, 0, None, closed="left")],
        "reg_covar": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "order": [Interval(Integral, 0, 20, closed="both")],
        "method": [StrOptions(set(METHODS))],
    }

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        order: int = 8,
        method: str = "legendre",
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.order = order
        self.method = method

    def _validate_params(self) -> None:
        refuse_flags(self, "n_components", "order", "max_iter")
        super()._validate_params()

    def min_rows(self, n_features: int) -> int:
        """Return so many rows that components seldom settle on a handful of them; a single one has no bad start."""
        k = self.n_components
        if k == 1:
            return 1
        if self.covariance_type == "full":
            return 5 * k * (n_features + 1)
        return max(10 * k, 5 * (n_features + 1) if self.covariance_type == "tied" else 0)

    def static_key(self) -> Hashable:
        """Return what identifies the computation: how entropies are computed does not change the fit."""
        key: Any = super().static_key()
        return key[0], tuple((name, value) for name, value in key[1] if name not in ("order", "method"))

    def initial(self, n_features: int, n_outputs: int | None) -> dict[str, np.ndarray]:
        """Return weights of zero, which stand for no mixture to start from."""
        del n_outputs
        k = self.n_components
        shapes = {
            "full": (k, n_features, n_features),
            "tied": (n_features, n_features),
            "diag": (k, n_features),
            "spherical": (k,),
        }
        return {
            "weights": np.zeros(k),
            "means": np.zeros((k, n_features)),
            "covariances": np.zeros(shapes[self.covariance_type]),
        }

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Fit one window; see `WindowModel.fit`."""
        del y
        weight = weight * (jnp.sum(weight > 0, dtype=weight.dtype) / jnp.sum(weight))
        share = weight / jnp.sum(weight)
        centre = share @ X
        centre = centre + share @ (X - centre)
        X = (X - centre).T
        result, soundness = best_of_starts(
            X,
            weight,
            Mixture(start["weights"], start["means"] - centre, start["covariances"]),
            ~(jnp.sum(start["weights"]) > 0),
            _in_blocks(X, weight, self.n_components),
            covariance_type=self.covariance_type,
            tol=hyper["tol"],
            reg_covar=hyper["reg_covar"],
            max_iter=jnp.asarray(hyper["max_iter"]).astype(jnp.int32),
        )
        good = soundness > 0
        fitted = result.mixture._replace(means=result.mixture.means + centre)
        params = {name: jnp.where(good, a, jnp.nan) for name, a in fitted._asdict().items()}
        return params, FitInfo(converged=result.converged & (soundness > 1), n_iter=result.n_iter)

    def predict(self, params: Any, X: Any) -> Any:
        """Return each row's most probable component."""
        return self.predict_each({name: np.asarray(a)[None] for name, a in params.items()}, np.asarray(X))

    def predict_each(self, params: Any, X: np.ndarray) -> np.ndarray:
        """Return each row's most probable component, in NumPy."""
        labels = most_likely(X.astype(np.float64), **params, kind=self.covariance_type)
        return labels.astype(X.dtype)


class LogDensities(GaussianMixture):
    """A fitted mixture whose predictions are log densities."""

    def predict_each(self, params: Any, X: np.ndarray) -> np.ndarray:
        """Return each row's log density, in NumPy."""
        return log_density_each(X.astype(np.float64), **params, kind=self.covariance_type)


def _in_blocks(X: Any, weight: Any, n_components: int) -> tuple[Any, Any, Any]:
    """Return rows and weights in blocks, and the number of blocks up to the last one with a weight."""
    n_features, n_rows = X.shape
    size = rows_per_block(n_components, n_features, n_rows)
    n_blocks = -(-n_rows // size)
    missing = n_blocks * size - n_rows
    if missing:
        X, weight = jnp.pad(X, ((0, 0), (0, missing))), jnp.pad(weight, (0, missing))
    blocks = jnp.swapaxes(X.reshape(n_features, n_blocks, size), 0, 1)
    weights = weight.reshape(n_blocks, size)
    used = jnp.any(weights > 0, axis=1) * np.arange(1, n_blocks + 1, dtype=np.int32)
    return blocks, weights, jnp.max(used).astype(jnp.int32)
