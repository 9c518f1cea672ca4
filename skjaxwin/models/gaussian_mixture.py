"""A Gaussian mixture in every window."""

from __future__ import annotations

from collections.abc import Hashable
from numbers import Integral, Real
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from skjaxwin._sklearn_private import Interval, StrOptions
from skjaxwin.entropy import COVARIANCE_TYPES, METHODS
from skjaxwin.kernels.em import Mixture, maximise, rows_per_block
from skjaxwin.kernels.mixture_density import most_likely
from skjaxwin.kernels.mixture_seed import spread_start
from skjaxwin.models._base import FitInfo, WindowModel

__all__ = ["GaussianMixture"]


class GaussianMixture(WindowModel):
    r"""Gaussian mixture, fitted by expectation maximisation on every window.

    .. math:: p(x) = \sum_k w_k N(x; \mu_k, S_k) .

    The first window starts from a deterministic clustering of its rows, every later one where the window before it
    ended: component k stays component k in all windows. An unsupervised model; it predicts the most probable
    component.

    Parameters
    ----------
    n_components : int, default=1
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
    tol : float, default=1e-3
        A window's fit ends when the mean log likelihood changes by less. Traced: changing it never recompiles.
    reg_covar : float, default=1e-6
        Added to the diagonals of covariances, in squared units of the data. Traced.
    max_iter : int, default=100
        Most iterations for a window. Traced.
    order : int, default=8
        Order of the series for ``RollingJaxEstimator.entropy_path_``; see `gaussian_mixture_entropy`.
    method : str, default="legendre"
        How to compute these entropies; see `gaussian_mixture_entropy`.

    Notes
    -----
    The parameters are a dict: ``weights`` of shape (n_components,), ``means`` of shape (n_components, n_features)
    and ``covariances`` of the shape that scikit-learn's mixtures have. Computation is in float64, whatever the data.

    With several components a window needs as many rows as let covariances be regular, for ``"full"`` ``n_components *
    (n_features + 1)``, unless ``min_periods`` says otherwise; ask for more where windows grow from nothing, as a poor
    first fit is where all others start. A window in which a covariance is not positive definite has NaN for
    parameters and counts as not converged; the one after it starts anew, and its components may be in another order.

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
    _parameter_constraints: ClassVar[dict[str, list]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions(set(COVARIANCE_TYPES))],
        "tol": [Interval(Real, 0, None, closed="left")],
        "reg_covar": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "order": [Interval(Integral, 1, 20, closed="both")],
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

    def min_rows(self, n_features: int) -> int:
        """Return as many rows as let each component have a covariance of its own; a single one has no bad start."""
        k = self.n_components
        return {1: 1}.get(k, {"full": k * (n_features + 1), "tied": k + n_features}.get(self.covariance_type, 2 * k))

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
        anew = ~(jnp.sum(start["weights"]) > 0)
        seed = spread_start(
            X,
            weight,
            n_components=self.n_components,
            covariance_type=self.covariance_type,
            reg_covar=hyper["reg_covar"],
            wanted=anew,
        )
        known = Mixture(start["weights"], start["means"] - centre, start["covariances"])
        begin = jax.tree_util.tree_map(lambda a, b: jnp.where(anew, a, b), seed, known)
        blocks, weights, n_blocks = _in_blocks(X, weight, self.n_components)
        result = maximise(
            blocks,
            weights,
            begin,
            covariance_type=self.covariance_type,
            tol=hyper["tol"],
            reg_covar=hyper["reg_covar"],
            max_iter=jnp.asarray(hyper["max_iter"]).astype(jnp.int32),
            n_blocks=n_blocks,
        )
        good = ~jnp.any(result.singular) & jnp.isfinite(result.log_likelihood)
        fitted = result.mixture._replace(means=result.mixture.means + centre)
        params = {name: jnp.where(good, a, jnp.nan) for name, a in fitted._asdict().items()}
        return params, FitInfo(converged=result.converged & good, n_iter=result.n_iter)

    def predict(self, params: Any, X: Any) -> Any:
        """Return each row's most probable component."""
        return self.predict_each({name: np.asarray(a)[None] for name, a in params.items()}, np.asarray(X))

    def predict_each(self, params: Any, X: np.ndarray) -> np.ndarray:
        """Return each row's most probable component, in NumPy."""
        labels = most_likely(X.astype(np.float64), **params, kind=self.covariance_type)
        return labels.astype(X.dtype)


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
