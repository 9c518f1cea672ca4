"""Generalised linear models with a log link: Poisson, Gamma, Tweedie."""

from __future__ import annotations

from collections.abc import Hashable
from numbers import Integral, Real
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from skjaxwin._sklearn_private import Interval
from skjaxwin.models._linear_predictor import LinearPredictor

__all__ = ["Gamma", "Poisson", "Tweedie"]


class _LogLink(LinearPredictor):
    """Half the unit deviance of a Tweedie distribution, with the mean ``exp(eta)``."""

    positive = True
    multi_output = False
    _parameter_constraints: ClassVar[dict[str, list]] = {
        "alpha": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def power_of(self, hyper: dict[str, Any]) -> Any:
        """Return the power of the mean to which the variance is proportional."""
        raise NotImplementedError

    def loss(self, hyper: dict[str, Any], eta: Any, y: Any) -> tuple[Any, Any, Any]:
        """Return half the deviance, up to what depends on y alone, and its derivatives."""
        power = self.power_of(hyper)
        # Antiderivatives of exp((2 - p) eta) and exp((1 - p) eta) that are zero at eta = 0, also where p is 1 or 2. One
        # more makes the value as large as what it is the difference of, which tells the solver of its rounding.
        value = 1 + _grown(2 - power, eta) - y * _grown(1 - power, eta)
        up, down = jnp.exp((2 - power) * eta), y * jnp.exp((1 - power) * eta)
        return value[0], up - down, (2 - power) * up - (1 - power) * down

    def expected_curvature(self, hyper: dict[str, Any], eta: Any) -> Any:
        """Return the squared mean over the variance."""
        return jnp.exp((2 - self.power_of(hyper)) * eta)

    def dispersion(self, hyper: dict[str, Any], eta: Any, y: Any, weight: Any, degrees: Any) -> Any:
        """Return Pearson's estimate."""
        squares = (y - jnp.exp(eta)) ** 2 * jnp.exp(-self.power_of(hyper) * eta)
        return jnp.sum(jnp.where(weight > 0, weight * squares, 0)) / degrees

    def penalised(self) -> bool:
        """Say whether alpha is positive."""
        return bool(self.alpha > 0)

    def penalty(self, hyper: dict[str, Any], total: Any) -> Any:
        """Return alpha for the mean of the losses, times their number."""
        return hyper["alpha"] * total

    def first_intercept(self, mean: Any) -> Any:
        """Return the logarithm of the mean."""
        return jnp.log(mean)

    def units(self, hyper: dict[str, Any], mean: Any) -> tuple[Any, Any, Any]:
        """Return those in which the mean of the targets is one: their size then costs no digits."""
        mean = jnp.where(mean[0] > 0, mean[0], 1)
        level = jnp.log(mean)
        return level, mean, jnp.exp((2 - self.power_of(hyper)) * level)

    def flat(self, mean: Any, total: Any) -> tuple[Any, Any]:
        """Return the level as if half an event had been seen, where all targets are zero."""
        nothing = mean <= 0
        return nothing[0], jnp.log(jnp.where(nothing, 0.5 / total, mean))

    def check_target(self, y: np.ndarray) -> None:
        """Refuse targets that the distribution cannot take."""
        low, closed = self.range_of_target()
        bad = y < low if closed else y <= low
        if bad.any():
            raise ValueError(
                f"Some value(s) of y are out of the valid range of {type(self).__name__}: {y[bad].flat[0]!s}, for "
                f"example, is {'negative' if closed else 'not positive'}; y must be {'at least' if closed else 'above'}"
                f" {low:g}."
            )

    def target_key(self) -> Hashable:
        """Return the range of targets."""
        return self.range_of_target()

    def range_of_target(self) -> tuple[float, bool]:
        """Return the least target, and whether that itself is allowed."""
        raise NotImplementedError

    def predict_each(self, params: Any, X: np.ndarray) -> np.ndarray:
        """Return the expected target, in NumPy."""
        with np.errstate(over="ignore"):
            return np.exp(self.linear(params, X))


def _grown(rate: Any, eta: Any) -> Any:
    """Return ``(exp(rate eta) - 1) / rate``, which is eta for a rate of zero."""
    small = jnp.abs(rate) < 1e-9
    safe = jnp.where(small, 1, rate)
    return jnp.where(small, eta, jnp.expm1(safe * eta) / safe)


class Poisson(_LogLink):
    r"""Poisson regression with a ridge penalty in every window.

    Minimises, over the slopes :math:`b` and the intercept :math:`a` of each window, scikit-learn's objective

    .. math:: \frac{1}{\sum_i w_i} \sum_i w_i (\mu_i - y_i \log \mu_i) + \tfrac{\alpha}{2} \lVert b \rVert^2 ,
       \qquad \mu_i = \exp(a + x_i' b) .

    Parameters
    ----------
    alpha : float, default=1.0
        Penalty. Traced: changing it never recompiles.
    fit_intercept : bool, default=True
    tol : float, default=1e-5
        A window's fit ends with a Newton step of at most this share of the largest coefficient, each measured in
        units of its curvature; the error that is left is about the square. Traced.
    max_iter : int, default=100
        Most Newton steps for a window. Traced.

    Notes
    -----
    For counts over exposures of different size name the column that holds these, ``RollingJaxEstimator(model,
    exposure=...)``: the mean of a row is then its exposure times :math:`\mu_i`.

    In a window without any event the rate is that of half an event, all slopes are zero, and the window counts as
    under-determined (``determined_``); without an intercept there may be no optimum, and it does not converge.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1))
    >>> y = rng.poisson(np.exp(0.5 + 0.3 * X[:, 0]))
    >>> rolling = RollingJaxEstimator(models.Poisson(alpha=0.0)).fit(X, y)
    >>> bool(abs(rolling.coef_[0] - 0.3) < 0.1 and abs(rolling.intercept_ - 0.5) < 0.1)
    True
    """

    takes_exposure = True

    def __init__(
        self, alpha: float = 1.0, *, fit_intercept: bool = True, tol: float = 1e-5, max_iter: int = 100
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def power_of(self, hyper: dict[str, Any]) -> Any:
        """Return 1."""
        del hyper
        return 1.0

    def dispersion(self, hyper: dict[str, Any], eta: Any, y: Any, weight: Any, degrees: Any) -> Any:
        """Return 1: the variance of a count is its mean."""
        del hyper, eta, y, weight, degrees
        return 1.0

    def range_of_target(self) -> tuple[float, bool]:
        """Return that counts are not negative."""
        return 0.0, True


class Gamma(_LogLink):
    r"""Gamma regression with a log link and a ridge penalty in every window.

    Minimises, over the slopes :math:`b` and the intercept :math:`a` of each window, scikit-learn's objective

    .. math:: \frac{1}{\sum_i w_i} \sum_i w_i (y_i / \mu_i + \log \mu_i) + \tfrac{\alpha}{2} \lVert b \rVert^2 ,
       \qquad \mu_i = \exp(a + x_i' b) .

    Parameters
    ----------
    alpha : float, default=1.0
        Penalty. Traced: changing it never recompiles.
    fit_intercept : bool, default=True
    tol : float, default=1e-5
        As in `Poisson`. Traced.
    max_iter : int, default=100
        Most Newton steps for a window. Traced.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1))
    >>> y = rng.gamma(20.0, np.exp(0.5 + 0.3 * X[:, 0]) / 20)
    >>> RollingJaxEstimator(models.Gamma(alpha=0.0)).fit(X, y).coef_.round(1).tolist()
    [0.3]
    """

    def __init__(
        self, alpha: float = 1.0, *, fit_intercept: bool = True, tol: float = 1e-5, max_iter: int = 100
    ) -> None:
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def power_of(self, hyper: dict[str, Any]) -> Any:
        """Return 2."""
        del hyper
        return 2.0

    def range_of_target(self) -> tuple[float, bool]:
        """Return that targets are positive."""
        return 0.0, False


class Tweedie(_LogLink):
    r"""Tweedie regression with a log link and a ridge penalty in every window.

    The variance of the target is proportional to its mean to the power p. Minimises, over the slopes :math:`b` and
    the intercept :math:`a` of each window, scikit-learn's objective: half the mean unit deviance and the penalty,

    .. math:: \frac{1}{\sum_i w_i} \sum_i w_i \left( \frac{\mu_i^{2-p}}{2-p} - \frac{y_i \mu_i^{1-p}}{1-p} \right)
       + \tfrac{\alpha}{2} \lVert b \rVert^2 , \qquad \mu_i = \exp(a + x_i' b) .

    Parameters
    ----------
    power : float, default=1.5
        1 is Poisson, between 1 and 2 compound Poisson and Gamma (amounts with many zeros), 2 Gamma, 3 inverse
        Gaussian. At least 1. Traced: changing it never recompiles.
    alpha : float, default=1.0
        Penalty. Traced.
    fit_intercept : bool, default=True
    tol : float, default=1e-5
        As in `Poisson`. Traced.
    max_iter : int, default=100
        Most Newton steps for a window. Traced.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1))
    >>> y = rng.poisson(np.exp(0.5 + 0.3 * X[:, 0])) * rng.gamma(4.0, 0.25, size=500)
    >>> rolling = RollingJaxEstimator(models.Tweedie(power=1.5, alpha=0.0)).fit(X, y)
    >>> bool(abs(rolling.coef_[0] - 0.3) < 0.2)
    True
    """

    _parameter_constraints: ClassVar[dict[str, list]] = {
        **_LogLink._parameter_constraints,
        "power": [Interval(Real, 1, None, closed="left")],
    }

    def __init__(
        self,
        power: float = 1.5,
        alpha: float = 1.0,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-5,
        max_iter: int = 100,
    ) -> None:
        self.power = power
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def power_of(self, hyper: dict[str, Any]) -> Any:
        """Return the hyperparameter."""
        return hyper["power"]

    def range_of_target(self) -> tuple[float, bool]:
        """Return that targets are not negative, or positive for powers from 2 on."""
        return 0.0, self.power < 2
