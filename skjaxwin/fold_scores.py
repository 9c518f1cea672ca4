"""Scores of many candidates' predictions at a time, equal to scikit-learn's one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer

__all__ = ["score_together"]


def score_together(scorer: Any, kind: str, y: np.ndarray, predictions: np.ndarray, weight: Any) -> np.ndarray | None:
    """Score predictions, where there is a formula here for the scorer.

    Parameters
    ----------
    scorer : scorer of scikit-learn
    kind : {"regressor", "classifier"}
        What the estimator's own ``score`` is for.
    y : ndarray of shape (n_tests,) or (n_tests, n_outputs)
    predictions : ndarray of shape (n_candidates, *y.shape)
    weight : ndarray of shape (n_tests,) or None

    Returns
    -------
    scores : ndarray of shape (n_candidates,) or None
        None where scikit-learn has to score: other scorers, and data that it refuses or warns of.
    """
    formula = _formula(scorer, kind)
    if formula is None or predictions.shape[1:] != y.shape or len(y) < 2:
        return None
    if formula is not _accuracy:
        if y.dtype.kind not in "iuf" or not (np.isfinite(predictions).all() and np.isfinite(y).all()):
            return None
        y, predictions = y.astype(np.float64), predictions.astype(np.float64)
    elif predictions.dtype.kind != y.dtype.kind and not {predictions.dtype.kind, y.dtype.kind} <= set("iufb"):
        return None
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    if not weight.sum() > 0:
        return None
    scores = formula(y, predictions, weight)
    return scores if np.isfinite(scores).all() else None


def _formula(scorer: Any, kind: str) -> Callable[..., np.ndarray] | None:
    if type(scorer).__name__ == "_PassthroughScorer":
        return {"regressor": _r2, "classifier": _accuracy}.get(kind)
    for name, formula in _FORMULAS.items():
        known = get_scorer(name)
        mine = (type(scorer), getattr(scorer, "_score_func", None), getattr(scorer, "_sign", 0))
        if mine == (type(known), known._score_func, known._sign) and scorer._kwargs == known._kwargs:
            return formula
    return None


def _over_outputs(per_output: np.ndarray) -> np.ndarray:
    return per_output.reshape(len(per_output), -1).mean(axis=1)


def _mean(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Average over the rows, the second axis."""
    return np.average(values, axis=1, weights=weight)


def _r2(y: np.ndarray, predictions: np.ndarray, weight: np.ndarray) -> np.ndarray:
    rows = weight.reshape(-1, *[1] * (y.ndim - 1))
    residual = (rows * (y - predictions) ** 2).sum(axis=1)
    total = (rows * (y - np.average(y, axis=0, weights=weight)) ** 2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = 1 - residual / total
    # Of a constant target: right is 1, wrong is 0, as scikit-learn has it.
    score = np.where(total == 0, np.where(residual == 0, 1.0, 0.0), score)
    return _over_outputs(score)


def _squared(y: np.ndarray, predictions: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return -_over_outputs(_mean((y - predictions) ** 2, weight))


def _root(y: np.ndarray, predictions: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return -_over_outputs(np.sqrt(_mean((y - predictions) ** 2, weight)))


def _absolute(y: np.ndarray, predictions: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return -_over_outputs(_mean(np.abs(y - predictions), weight))


def _accuracy(y: np.ndarray, predictions: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return _mean((y == predictions).astype(np.float64), weight)


_FORMULAS = {
    "r2": _r2,
    "neg_mean_squared_error": _squared,
    "neg_root_mean_squared_error": _root,
    "neg_mean_absolute_error": _absolute,
    "accuracy": _accuracy,
}
