"""Scores of many candidates' predictions at a time, equal to scikit-learn's one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import xlogy
from sklearn import metrics

from skjaxwin._sklearn_private import MultimetricScorer
from skjaxwin.classification import labels

__all__ = ["Loss", "Predicted", "loss_of", "parts_of", "score_together"]


class Predicted:
    """What many candidates predict for the same rows.

    Parameters
    ----------
    raw : ndarray of shape (n_candidates, n_rows) or (n_candidates, n_rows, n_outputs)
        Predictions, or a classifier's decisions.
    classes : ndarray of shape (n_classes,) or None
    model : WindowModel
        Turns decisions into probabilities.
    """

    def __init__(self, raw: np.ndarray, classes: np.ndarray | None, model: Any) -> None:
        self.raw = raw
        self.classes = classes
        self._model = model

    def answers(self) -> np.ndarray:
        """Return what `predict` would."""
        if self.classes is None:
            return self.raw
        return np.stack([labels(self.classes, one) for one in self.raw])

    def probabilities(self) -> np.ndarray:
        """Return what `predict_proba` would."""
        return np.stack([self._model.probabilities(one) for one in self.raw])


# From targets (n_rows, ...), predictions (n_candidates, n_rows, ...) and options to losses, shaped as predictions.
Loss = Callable[..., np.ndarray]


def loss_of(scorer: Any, kind: str) -> tuple[Loss, float, dict[str, Any]] | None:
    """Return the loss of each row, the sign that makes its mean better the higher, and options; None for other scorers.

    Parameters
    ----------
    scorer : scorer of scikit-learn
    kind : {"regressor", "classifier"}
        What the estimator's own ``score`` is for: R2, whose losses are squares, or the accuracy.
    """
    function, sign, options = parts_of(scorer, kind)
    known = {**_LOSSES, metrics.r2_score: (_square, ()), metrics.root_mean_squared_error: (_square, ())}
    loss, allowed = known.get(function, (None, ()))
    if loss is None or not set(options) <= set(allowed):
        return None
    return loss, -sign if function is metrics.r2_score else sign, options


def score_together(scorer: Any, kind: str, y: np.ndarray, predicted: Predicted, weight: Any = None) -> list[Any] | None:
    """Score predictions, where there is a formula here for the scorer.

    Parameters
    ----------
    scorer : scorer of scikit-learn
    kind : {"regressor", "classifier"}
        What the estimator's own ``score`` is for.
    y : ndarray of shape (n_rows,) or (n_rows, n_outputs)
    predicted : Predicted
    weight : ndarray of shape (n_rows,), default=None

    Returns
    -------
    scores : list of float, or of dict for several scorers
        None where scikit-learn has to score: other scorers, and data that it refuses or warns of.
    """
    if isinstance(scorer, MultimetricScorer):
        if weight is not None:
            return None  # each scorer has a say in whether it gets weights
        each = {name: score_together(one, kind, y, predicted) for name, one in scorer._scorers.items()}
        if any(scores is None for scores in each.values()):
            return None
        return [dict(zip(each, scores, strict=True)) for scores in zip(*each.values(), strict=True)]
    function, sign, options = parts_of(scorer, kind)
    loss, allowed = _LOSSES.get(function, (_square, ()))
    special = {metrics.r2_score: _r2, metrics.root_mean_squared_error: _root}.get(function)
    if (special is None and function not in _LOSSES) or not set(options) <= set(allowed) or len(y) < 2:
        return None
    weight = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    if not (np.isfinite(weight).all() and weight.min() >= 0 and weight.sum() > 0):
        return None
    given = checked(loss, y, predicted)
    if given is None:
        return None
    if special is not None:
        scores = sign * special(*given, weight)
    else:
        scores = sign * _over_outputs(_mean(loss(*given, **options), weight))
    return scores.tolist() if np.isfinite(scores).all() else None


def checked(loss: Loss, y: np.ndarray, predicted: Predicted) -> tuple[np.ndarray, np.ndarray] | None:
    """Return targets and predictions as a loss takes them, None where scikit-learn would refuse them or warn."""
    if loss is _log_loss:
        if predicted.classes is None or not np.array_equal(np.unique(y), predicted.classes):
            return None  # with fewer classes than columns it wants to be told which ones there are
        probabilities = predicted.probabilities()
        return (y[:, None] == predicted.classes, probabilities) if np.isfinite(probabilities).all() else None
    answers = predicted.answers()
    if answers.shape[1:] != y.shape:
        return None
    if loss is _right:
        numbers = {answers.dtype.kind, y.dtype.kind} <= set("iufb")
        return (y, answers) if numbers or answers.dtype.kind == y.dtype.kind else None
    if y.dtype.kind not in "iuf" or not (np.isfinite(answers).all() and np.isfinite(y).all()):
        return None
    if loss is _poisson and (y.ndim > 1 or y.min() < 0 or answers.min() <= 0):
        return None
    return y.astype(np.float64), answers.astype(np.float64)


def parts_of(scorer: Any, kind: str) -> tuple[Any, float, dict[str, Any]]:
    """Return a scorer's function, sign and options; no function where it is of a kind of its own."""
    if type(scorer).__name__ == "_PassthroughScorer":
        return {"regressor": metrics.r2_score, "classifier": metrics.accuracy_score}.get(kind), 1.0, {}
    function = getattr(scorer, "_score_func", None)
    wanted = "predict_proba" if function is metrics.log_loss else "predict"
    if type(scorer) is not _SCORER or scorer._response_method != wanted:
        return None, 1.0, {}
    return function, float(scorer._sign), dict(scorer._kwargs)


_SCORER = type(metrics.get_scorer("r2"))


def _over_outputs(per_output: np.ndarray) -> np.ndarray:
    return per_output.reshape(len(per_output), -1).mean(axis=1)


def _mean(values: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Average over the rows, the second axis."""
    return np.average(values, axis=1, weights=weight)


def _square(y: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    return (y - predictions) ** 2


def _absolute(y: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    return np.abs(y - predictions)


def _pinball(y: np.ndarray, predictions: np.ndarray, alpha: float = 0.5) -> np.ndarray:
    excess = y - predictions
    return np.maximum(alpha * excess, (alpha - 1) * excess)


def _poisson(y: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    return 2 * (xlogy(y, y / predictions) - y + predictions)


def _log_loss(y: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    eps = np.finfo(probabilities.dtype).eps
    return -xlogy(y, np.clip(probabilities, eps, 1 - eps)).sum(axis=-1)


def _right(y: np.ndarray, answers: np.ndarray) -> np.ndarray:
    return (y == answers).astype(np.float64)


def _r2(y: np.ndarray, predictions: np.ndarray, weight: np.ndarray) -> np.ndarray:
    rows = weight.reshape(-1, *[1] * (y.ndim - 1))
    residual = (rows * (y - predictions) ** 2).sum(axis=1)
    total = (rows * (y - np.average(y, axis=0, weights=weight)) ** 2).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        score = 1 - residual / total
    # Of a constant target: right is 1, wrong is 0, as scikit-learn has it.
    return _over_outputs(np.where(total == 0, np.where(residual == 0, 1.0, 0.0), score))


def _root(y: np.ndarray, predictions: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return _over_outputs(np.sqrt(_mean(_square(y, predictions), weight)))


# Scores that are the mean of a loss of each row, and the options they take here.
_LOSSES: dict[Any, tuple[Loss, tuple[str, ...]]] = {
    metrics.mean_squared_error: (_square, ()),
    metrics.mean_absolute_error: (_absolute, ()),
    metrics.mean_pinball_loss: (_pinball, ("alpha",)),
    metrics.mean_poisson_deviance: (_poisson, ()),
    metrics.log_loss: (_log_loss, ()),
    metrics.accuracy_score: (_right, ()),
}
