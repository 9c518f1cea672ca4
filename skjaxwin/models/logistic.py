"""Logistic regression: two classes, or several with a softmax."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import expit, softmax

from skjaxwin._sklearn_private import Interval
from skjaxwin.kernels.linear_predictor import Design, objective, standardised
from skjaxwin.kernels.newton import Local, newton
from skjaxwin.models._base import FitInfo
from skjaxwin.models._linear_predictor import LinearPredictor, information, penalised

__all__ = ["Logistic"]


class Logistic(LinearPredictor):
    r"""Logistic regression with a ridge penalty in every window.

    Minimises, over the slopes :math:`b` and the intercept :math:`a` of each window, scikit-learn's objective

    .. math:: \tfrac12 \lVert b \rVert^2 + C \sum_i w_i \, [\log(1 + e^{\eta_i}) - y_i \eta_i],
       \qquad \eta_i = a + x_i' b ,

    and with more than two classes the cross entropy of the softmax, whose intercepts (and, without a penalty, slopes)
    sum to zero over the classes.

    Parameters
    ----------
    C : float, default=1.0
        Inverse strength of the penalty; ``numpy.inf`` for none. Traced: changing it never recompiles.
    fit_intercept : bool, default=True
    tol : float, default=1e-5
        A window's fit ends with a Newton step of at most this share of the largest coefficient, each measured in
        units of its curvature; the error that is left is about the square. Traced.
    max_iter : int, default=100
        Most Newton steps for a window. Traced.

    Notes
    -----
    The parameters are a dict: ``coef`` of shape (n_features,) and ``intercept``, a scalar, for two classes: those of
    the second one; for several (n_classes, n_features) and (n_classes,).

    The classes are those of the whole data. A class that a window lacks gets slopes of zero and, as if half a row had
    been of that class, an intercept that makes it improbable; such a window is fitted on the classes it has, and
    counts as under-determined (``determined_``). Where classes can be separated and there is no penalty, no finite
    optimum exists: the window stops at `max_iter`, counts as not converged, and its slopes are large but finite.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(400, 2))
    >>> y = np.where(X[:, 0] + rng.logistic(size=400) > 0, "up", "down")
    >>> rolling = RollingJaxEstimator(models.Logistic(C=10.0), window=200).fit(X, y)
    >>> rolling.classes_.tolist(), rolling.params_["coef"].shape
    (['down', 'up'], (400, 2))
    >>> rolling.predict(np.array([[3.0, 0.0]])).tolist()
    ['up']
    """

    estimator_type = "classifier"
    multi_output = False
    _parameter_constraints: ClassVar[dict[str, list]] = {
        "C": [Interval(Real, 0, None, closed="right")],
        "fit_intercept": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(self, C: float = 1.0, *, fit_intercept: bool = True, tol: float = 1e-5, max_iter: int = 100) -> None:
        self.C = C
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    def loss(self, hyper: dict[str, Any], eta: Any, y: Any) -> tuple[Any, Any, Any]:
        """Return the cross entropy of two classes and its derivatives."""
        del hyper
        rarer = jnp.exp(-jnp.abs(eta))  # the odds of the less probable class
        probability = jnp.where(eta >= 0, 1, rarer) / (1 + rarer)
        value = jnp.maximum(eta, 0) - y * eta + jnp.log1p(rarer)
        return value[0], probability - y, probability * (1 - probability)

    def expected_curvature(self, hyper: dict[str, Any], eta: Any) -> Any:
        """Return the variance of the class."""
        del hyper
        return jax.nn.sigmoid(eta) * jax.nn.sigmoid(-eta)

    def penalised(self) -> bool:
        """Say whether C is finite."""
        return bool(np.isfinite(self.C))

    def penalty(self, hyper: dict[str, Any], total: Any) -> Any:
        """Return the inverse of C."""
        del total
        return 1 / hyper["C"]

    def first_intercept(self, mean: Any) -> Any:
        """Return the log odds."""
        return jnp.log(mean) - jnp.log1p(-mean)

    def flat(self, mean: Any, total: Any) -> tuple[Any, Any]:
        """Return log odds as if half a row were of each class, where all rows are of one."""
        counts = mean * total
        level = jnp.log(counts + 0.5) - jnp.log(total - counts + 0.5)
        return (mean[0] <= 0) | (mean[0] >= 1), level

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Fit one window; see `WindowModel.fit`."""
        design = standardised(X, y, weight, self.fit_intercept)
        return self._fit_one(design, hyper, start) if y.ndim == 1 else self._fit_classes(design, hyper, start)

    def _fit_classes(self, design: Design, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        n_classes = design.target.shape[1]
        count = jnp.einsum("ib,imb->m", design.weight, design.target)
        present = count > 0
        ridge = self.penalty(hyper, design.total) / design.scale**2
        coef = start["coef"] * design.scale * (design.varies & present[:, None])
        if self.fit_intercept:
            ridge = jnp.concatenate([jnp.zeros(1, ridge.dtype), ridge])
            at_centre = start["intercept"] + start["coef"] @ design.centre
            anew = ~(jnp.any(start["coef"] != 0) | jnp.any(start["intercept"] != 0))
            share = jnp.log(jnp.where(present, count, design.total))
            constant = jnp.where(present, jnp.where(anew, share, at_centre), 0)
            # What all classes have in common does not matter, and is best small.
            constant = jnp.where(present, constant - jnp.sum(constant) / jnp.sum(present), 0)
            coef = jnp.concatenate([constant[:, None], coef], axis=1)
        evaluate = objective(design, lambda eta, y: _softmax_loss(eta, y, present), n_classes)
        evaluate = _balanced(penalised(evaluate, jnp.tile(ridge, n_classes)), present, design.total, coef.shape[1])
        solution = newton(evaluate, coef.reshape(-1), tol=hyper["tol"], max_iter=hyper["max_iter"])
        coef = solution.point.reshape(coef.shape)
        slopes = coef[:, self.fit_intercept :] / design.scale
        intercept = jnp.zeros(n_classes, slopes.dtype)
        if self.fit_intercept:
            level = jax.nn.logsumexp(jnp.where(present, coef[:, 0], -jnp.inf)) - jnp.log(2 * design.total)
            intercept = jnp.where(present, coef[:, 0], level) - slopes @ design.centre
        info = information(solution, design.total)
        return {"coef": slopes, "intercept": intercept}, info._replace(determined=info.determined & jnp.all(present))

    def predict_each(self, params: Any, X: np.ndarray) -> np.ndarray:
        """Return the log odds, or the score of each class, in NumPy."""
        return self.linear(params, X)

    def probabilities(self, decision: np.ndarray) -> np.ndarray:
        """Return the probability of each class, given what `predict_each` returns."""
        if decision.ndim == 2:
            return softmax(decision, axis=1)
        up = expit(decision)
        return np.column_stack([expit(-decision), up])


def _softmax_loss(eta: Any, y: Any, present: Any) -> tuple[Any, Any, Any]:
    """Return the cross entropy of the classes that are there, and its derivatives."""
    eta = jnp.where(present[:, None], eta, -jnp.inf)
    level = jnp.max(eta, axis=0)
    odds = jnp.exp(eta - level)
    total = jnp.sum(odds, axis=0)
    probability = odds / total
    value = jnp.log(total) + level - jnp.sum(jnp.where(y > 0, y * eta, 0), axis=0)
    rows, others = np.triu_indices(len(eta))
    same = (rows == others)[:, None]
    second = probability[rows] * (jnp.where(same, 1, 0) - probability[others])
    return value, probability - y, second


def _balanced(evaluate: Any, present: Any, total: Any, p: int) -> Any:
    """Make each unknown sum to zero over the classes, to which the cross entropy is indifferent."""
    share = present / jnp.sum(present)
    pull = total * share[:, None] * share[None]

    def with_balance(point: Any) -> Local:
        value, gradient, hessian = evaluate(point)
        sums = pull @ point.reshape(-1, p)
        return Local(
            value + jnp.sum(point.reshape(-1, p) * sums) / 2,
            gradient + sums.reshape(-1),
            hessian + jnp.kron(pull, jnp.eye(p, dtype=point.dtype)),
        )

    return with_balance
