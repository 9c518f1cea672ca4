"""What all models of a linear predictor share: the fit of a window by Newton's method."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from skjaxwin.kernels.linear_predictor import Design, objective, standardised
from skjaxwin.kernels.newton import Local, condition, newton
from skjaxwin.models._base import FitInfo, WindowModel

__all__ = ["LinearPredictor", "combined", "information", "penalised"]

# Cross products cannot tell dependent features from those of a larger condition than this.
_DETERMINED = 1e7


class LinearPredictor(WindowModel):
    """A model with ``eta = X coef + intercept``, a smooth loss of eta and y, and a ridge penalty on the slopes.

    Subclasses say what the loss is; see `loss`, `penalty`, `first_intercept` and `flat`. Hyperparameters ``tol`` and
    ``max_iter`` are the solver's.
    """

    checked = True
    double = True
    in_turn = True
    convex = True
    fit_intercept: bool

    def loss(self, hyper: dict[str, Any], eta: Any, y: Any) -> tuple[Any, Any, Any]:
        """Return a row's loss and its first and second derivatives; see `kernels.linear_predictor.objective`."""
        raise NotImplementedError

    def penalty(self, hyper: dict[str, Any], total: Any) -> Any:
        """Return what half the squared slopes are multiplied with, next to the weighted sum of losses."""
        raise NotImplementedError

    def first_intercept(self, mean: Any) -> Any:
        """Return the intercept to start from, given the mean of the targets (m,)."""
        raise NotImplementedError

    def units(self, hyper: dict[str, Any], mean: Any) -> tuple[Any, Any, Any]:
        """Return an eta, a target and a loss to measure a window's in, given the mean of the targets (m,).

        The loss of ``eta - level`` and ``y / target`` must be that of eta and y over the unit, up to a constant.
        """
        del hyper
        return jnp.zeros_like(mean[0]), 1.0, jnp.ones_like(mean[0])

    def flat(self, mean: Any, total: Any) -> tuple[Any, Any]:
        """Say whether the loss has no minimum in a window, and which intercept to give it then, without slopes."""
        del total
        return jnp.zeros((), bool), self.first_intercept(mean)

    def expected_curvature(self, hyper: dict[str, Any], eta: Any) -> Any:
        """Return the second derivative of the loss that is expected if the model holds."""
        raise NotImplementedError

    def dispersion(self, hyper: dict[str, Any], eta: Any, y: Any, weight: Any, degrees: Any) -> Any:
        """Return the estimated ratio of the target's variance to the one that the model says."""
        del hyper, eta, y, weight, degrees
        return 1.0

    def penalised(self) -> bool:
        """Say whether there is a penalty, which biases the coefficients."""
        raise NotImplementedError

    def initial(self, n_features: int, n_outputs: int | None) -> dict[str, np.ndarray]:
        """Return zeros, which stand for no fit to start from."""
        lead = () if n_outputs is None else (n_outputs,)
        return {"coef": np.zeros((*lead, n_features)), "intercept": np.zeros(lead)}

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Fit one window; see `WindowModel.fit`."""
        design = standardised(X, y, weight, self.fit_intercept)
        if y.ndim == 1:
            return self._fit_one(design, hyper, start)
        targets = jnp.moveaxis(design.target, 1, 0)[:, :, None]
        fitted, info = jax.vmap(lambda y, start: self._fit_one(design._replace(target=y), hyper, start))(targets, start)
        return fitted, combined(info)

    def _fit_one(self, design: Design, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        mean = jnp.einsum("ib,imb->m", design.weight, design.target) / design.total
        flat, level = self.flat(mean, design.total)
        middle, typical, unit = self.units(hyper, mean)
        coef = start["coef"] * design.scale * design.varies
        at_centre = start["intercept"] + start["coef"] @ design.centre
        anew = ~(jnp.any(start["coef"] != 0) | (start["intercept"] != 0))
        constant = jnp.where(anew, self.first_intercept(mean)[0], at_centre) - middle
        ridge = self.penalty(hyper, design.total) / unit / design.scale**2
        begin = jnp.concatenate([constant[None], coef]) if self.fit_intercept else coef
        if self.fit_intercept:
            ridge = jnp.concatenate([jnp.zeros(1, ridge.dtype), ridge])
        left = 0 if self.fit_intercept else middle  # what an intercept does not take up
        evaluate = penalised(objective(design, lambda eta, y: self.loss(hyper, eta - left, y / typical)), ridge)
        max_iter = jnp.where(flat & self.fit_intercept, 0, hyper["max_iter"])
        solution = newton(evaluate, begin, tol=hyper["tol"], max_iter=max_iter)
        slopes = solution.point[self.fit_intercept :] / design.scale
        intercept = jnp.zeros_like(design.total)
        info = information(solution, design.total / unit)
        if self.fit_intercept:
            slopes = jnp.where(flat, 0, slopes)
            intercept = jnp.where(flat, level[0], solution.point[0] + middle - slopes @ design.centre)
            info = info._replace(converged=info.converged | flat, determined=info.determined & ~flat)
        return {"coef": slopes, "intercept": intercept}, info

    def linear(self, params: Any, X: np.ndarray) -> np.ndarray:
        """Return each row's predictor from its own parameters, in NumPy."""
        coef, intercept = params["coef"], params["intercept"]
        rows = X[:, None, :] if coef.ndim == 3 else X
        return (rows * coef).sum(-1) + intercept

    def predict(self, params: Any, X: Any) -> Any:
        """Predict rows from one window's parameters."""
        return self.predict_each({name: np.asarray(a)[None] for name, a in params.items()}, np.asarray(X))


def penalised(evaluate: Any, ridge: Any) -> Any:
    """Add half the sum of squares, weighted, to an objective."""

    def with_ridge(point: Any) -> Local:
        value, gradient, hessian = evaluate(point)
        pull = ridge * point
        return Local(value + pull @ point / 2, gradient + pull, hessian + jnp.diag(ridge))

    return with_ridge


def information(solution: Any, total: Any) -> FitInfo:
    """Describe how a fit went; the gradient is that of the mean loss, in the units of standardised features."""
    bad = condition(solution.local.hessian)
    return FitInfo(
        converged=solution.converged,
        n_iter=solution.n_iter,
        determined=bad < _DETERMINED,
        condition=bad,
        gradient_norm=jnp.sqrt(jnp.sum(solution.local.gradient**2)) / total,
    )


def combined(info: FitInfo) -> FitInfo:
    """Describe the fits of all outputs as one."""
    return FitInfo(
        converged=jnp.all(info.converged),
        n_iter=jnp.max(info.n_iter),
        determined=jnp.all(info.determined),
        condition=jnp.max(info.condition),
        gradient_norm=jnp.max(info.gradient_norm),
    )
