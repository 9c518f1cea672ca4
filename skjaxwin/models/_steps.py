"""Fits that are given step by step: what `kernels.own_pace` asks of a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from skjaxwin.kernels.bounded_newton import begin_newton, free_hessian, held, newton_step
from skjaxwin.kernels.newton import condition
from skjaxwin.kernels.quasi_newton import begin_quasi_newton, quasi_newton_step
from skjaxwin.models._base import FitInfo
from skjaxwin.models._unknowns import Unknowns

__all__ = ["NewtonSteps", "QuasiNewtonSteps", "Steps"]

# Next to a window that hardly determines its parameters the next one starts anew.
_GOOD_CONDITION = 1e5


class Steps:
    """The fit of one window: `begin`, then `advance` while `going_on`.

    `finished_as` is what is kept of the last state, and `result` makes parameters of it. States have the attributes
    ``point``, ``gradient`` (of the mean loss), ``n_iter``, ``converged`` and ``stuck``.

    Parameters
    ----------
    objective : callable
        ``objective(unknowns, X, y, weight, hyper)`` gives what the solver evaluates.
    unknowns : Unknowns
    """

    def __init__(self, objective: Callable[..., Any], unknowns: Unknowns) -> None:
        self.objective = objective
        self.unknowns = unknowns

    def begin(self, start: Any, fallback: Any) -> Any:
        """Return the state before the first step, given parameters, and others should those be far off."""
        raise NotImplementedError

    def step(self, evaluate: Any, state: Any, **options: Any) -> Any:
        """Return the state after one more step of the solver."""
        raise NotImplementedError

    def finished_as(self, state: Any) -> dict[str, Any]:
        """Return what is kept of the last state."""
        raise NotImplementedError

    def result(self, finished: dict[str, Any]) -> tuple[Any, FitInfo]:
        """Return the parameters, and how the fit went."""
        raise NotImplementedError

    def advance(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], state: Any) -> Any:
        """Return the state after one more step."""
        evaluate = self.objective(self.unknowns, X, y, weight, hyper)
        return self.step(evaluate, state, lower=self.unknowns.lower, upper=self.unknowns.upper, tol=hyper["tol"])

    def going_on(self, hyper: dict[str, Any], state: Any) -> Any:
        """Say whether the fit is not over yet."""
        return ~state.converged & ~state.stuck & (state.n_iter < hyper["max_iter"])

    def next_start(self, state: Any) -> tuple[Any, Any]:
        """Return the parameters, and whether the next window may start from them."""
        return self.unknowns.unpack(state.point), state.converged

    def _free(self, finished: dict[str, Any]) -> tuple[Any, Any]:
        """Say which unknowns are held at a bound, and return the gradient along the others."""
        point, gradient = finished["point"], finished["gradient"]
        fixed = held(point, gradient, self.unknowns.lower, self.unknowns.upper)
        return fixed, jnp.where(fixed, 0, gradient)


class NewtonSteps(Steps):
    """Damped Newton steps, or Gauss and Newton's: with a Hessian."""

    def begin(self, start: Any, fallback: Any) -> Any:
        return begin_newton(self.unknowns.pack(start), self.unknowns.pack(fallback))

    def step(self, evaluate: Any, state: Any, **options: Any) -> Any:
        return newton_step(evaluate, state, **options)

    def finished_as(self, state: Any) -> dict[str, Any]:
        local = state.local
        return {
            "point": state.point,
            "gradient": local.gradient,
            "hessian": local.hessian,
            "n_iter": state.n_iter,
            "converged": state.converged,
        }

    def next_start(self, state: Any) -> tuple[Any, Any]:
        fixed = held(state.point, state.local.gradient, self.unknowns.lower, self.unknowns.upper)
        good = condition(free_hessian(state.local.hessian, fixed)) < _GOOD_CONDITION
        return self.unknowns.unpack(state.point), state.converged & good

    def result(self, finished: dict[str, Any]) -> tuple[Any, FitInfo]:
        fixed, gradient = self._free(finished)
        bad = condition(free_hessian(finished["hessian"], fixed))
        return self.unknowns.unpack(finished["point"]), FitInfo(
            # Where nothing depends on some parameter, another start may find better.
            converged=finished["converged"] & jnp.isfinite(bad),
            n_iter=jnp.maximum(finished["n_iter"], 0),
            determined=jnp.isfinite(bad),
            condition=bad,
            gradient_norm=jnp.sqrt(jnp.sum(gradient**2)),
        )


class QuasiNewtonSteps(Steps):
    """Steps of L-BFGS: with a gradient alone."""

    def begin(self, start: Any, fallback: Any) -> Any:
        return begin_quasi_newton(self.unknowns.pack(start), self.unknowns.pack(fallback))

    def step(self, evaluate: Any, state: Any, **options: Any) -> Any:
        return quasi_newton_step(evaluate, state, **options)

    def finished_as(self, state: Any) -> dict[str, Any]:
        names = ("point", "gradient", "n_iter", "converged")
        return {name: getattr(state, name) for name in names}

    def result(self, finished: dict[str, Any]) -> tuple[Any, FitInfo]:
        _, gradient = self._free(finished)
        return self.unknowns.unpack(finished["point"]), FitInfo(
            converged=finished["converged"],
            n_iter=jnp.maximum(finished["n_iter"], 0),
            gradient_norm=jnp.sqrt(jnp.sum(gradient**2)),
        )
