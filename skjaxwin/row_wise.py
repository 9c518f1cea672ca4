"""Pipelines whose first steps take each row for itself: one transformation of all rows serves all folds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Binarizer, FunctionTransformer, Normalizer, PolynomialFeatures

from skjaxwin.rolling import RollingJaxEstimator

__all__ = ["WindowStep", "find_window_step"]

# Learn nothing from the rows but their width.
_FIXED = (Binarizer, Normalizer, PolynomialFeatures)


@dataclass(frozen=True)
class WindowStep:
    """The RollingJaxEstimator in an estimator, and what rows go through before it.

    Attributes
    ----------
    estimator : RollingJaxEstimator
    prefix : str
        Before the names of its parameters: empty, or the name of the step and two underscores.
    before : Pipeline or None
        Not fitted.
    """

    estimator: RollingJaxEstimator
    prefix: str = ""
    before: Pipeline | None = None

    def transformed(self, X: Any) -> tuple[Any, Pipeline | None]:
        """Return X as the step gets it, and the fitted pipeline before it."""
        if self.before is None:
            return X, None
        fitted = clone(self.before)
        return fitted.fit_transform(X), fitted

    def own(self, candidate: dict[str, Any]) -> dict[str, Any]:
        """Return a candidate's parameters as the step names them."""
        return {name.removeprefix(self.prefix): value for name, value in candidate.items()}


def find_window_step(estimator: Any, searched: Iterable[str]) -> WindowStep | str:
    """Find the RollingJaxEstimator, or say why its fits cannot go together.

    Parameters
    ----------
    estimator : estimator
    searched : iterable of str
        Names of the parameters that vary.
    """
    if type(estimator) is RollingJaxEstimator:
        return WindowStep(estimator)
    if type(estimator) is not Pipeline:
        return f"the estimator is a {type(estimator).__name__}, not a RollingJaxEstimator"
    *steps, (name, last) = estimator.steps
    if type(last) is not RollingJaxEstimator:
        return f"the Pipeline ends in a {type(last).__name__}, not a RollingJaxEstimator"
    for _, step in steps:
        if not _is_row_wise(step):
            return f"the Pipeline has a {type(step).__name__}, which may learn from the rows of a fold"
    others = sorted(one for one in searched if not one.startswith(f"{name}__"))
    if others:
        return f"the search varies {others[0]!r}, which the Pipeline's last step does not have"
    return WindowStep(last, f"{name}__", Pipeline(steps) if steps else None)


def _is_row_wise(step: Any) -> bool:
    """Say whether a step is known to give each row the same result, whatever the others are."""
    if step is None or (isinstance(step, str) and step == "passthrough") or type(step) in _FIXED:
        return True
    # Any other function might look at several rows.
    return type(step) is FunctionTransformer and (step.func is None or isinstance(step.func, np.ufunc))
