"""Classes: labels to numbers before a fit, and numbers to labels and probabilities after it."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length

from skjaxwin.windows import is_missing

__all__ = ["PredictsClasses", "encode", "labels"]


def encode(X: Any, y: Any, *, missing: bool, classes: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Give each class a number.

    Parameters
    ----------
    X : array-like
        For its length.
    y : array-like of shape (n_rows,)
    missing : bool
        Whether NaN stands for a label that is not known.
    classes : array-like, default=None
        All labels there may be; None for those in y.

    Returns
    -------
    classes : ndarray of shape (n_classes,)
        Sorted.
    target : ndarray of shape (n_rows,) or (n_rows, n_classes)
        0 or 1 for two classes, else a column for each with 1 in its rows; NaN for what is not known.
    """
    y = column_or_1d(y, warn=True)
    check_consistent_length(X, y)
    if len(y) == 0:
        return y, y  # for scikit-learn's message, as it validates X
    known = np.ones(len(y), bool) if y.dtype.kind in "iubUS" else np.array([not is_missing(value) for value in y], bool)
    if not missing and not known.all():
        raise ValueError(f"Input y contains NaN or None, first in row {int(np.argmin(known))}.")
    # Before scikit-learn looks at the kind of target, which casts infinity to an integer.
    assert_all_finite(y[known], input_name="y")
    if classes is None:
        check_classification_targets(y[known])
        classes, code = np.unique(y[known], return_inverse=True)
    else:
        classes = np.unique(column_or_1d(classes))
        code = _codes(classes, y[known])
    if len(classes) < 2:
        raise ValueError(
            f"Classifier can't train when only one class is present: y holds nothing but {classes.tolist()}; "
            "pass rows of at least two classes."
        )
    target = np.full((len(y), len(classes)), np.nan)
    target[known] = code[:, None] == np.arange(len(classes))
    return classes, target[:, 1] if len(classes) == 2 else target


def _codes(classes: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the position of each label among given ones."""
    positions = {label: i for i, label in enumerate(classes.tolist())}
    found = [positions.get(label, -1) for label in y.tolist()]
    if -1 in found:
        raise ValueError(
            f"y holds the label {y.tolist()[found.index(-1)]!r}, which is not one of the classes {classes.tolist()}; "
            "pass all there may be as classes to the first call of partial_fit."
        )
    return np.array(found, np.int64)


def labels(classes: np.ndarray, decision: np.ndarray) -> np.ndarray:
    """Return the class of the largest score; where that is NaN, NaN among numbers, and None among all else."""
    code = (decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(axis=1)
    unknown = np.isnan(decision if decision.ndim == 1 else decision[:, 0])
    found = classes[code]
    if unknown.any():
        numbers = classes.dtype.kind in "iufb"
        found = found.astype(np.float64 if numbers else object)
        found[unknown] = np.nan if numbers else None
    return found


def _is_classifier(estimator: Any) -> bool:
    return estimator._model().estimator_type == "classifier"


class PredictsClasses:
    """What a RollingJaxEstimator can do if its model is a classifier."""

    @available_if(_is_classifier)
    def decision_function(self, X: Any) -> np.ndarray:
        """Return scores of rows; which window predicts a row is as in `predict`.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)

        Returns
        -------
        decision : ndarray of shape (n_rows,) or (n_rows, n_classes)
            The log odds of the second of two classes, or a score of each.
        """
        return self._raw_predict(X)  # type: ignore[attr-defined]

    @available_if(_is_classifier)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class; which window predicts a row is as in `predict`.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)

        Returns
        -------
        probabilities : ndarray of shape (n_rows, n_classes)
            In the order of ``classes_``.
        """
        decision = self._raw_predict(X)  # type: ignore[attr-defined]
        return self._fitted_model.probabilities(decision)  # type: ignore[attr-defined]

    @available_if(_is_classifier)
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of `predict_proba`."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _answer(self, raw: np.ndarray, method: str = "predict") -> np.ndarray:
        """Turn what the model predicts into what `method` returns."""
        if not hasattr(self, "classes_") or method == "decision_function":
            return raw
        if method == "predict":
            return labels(self.classes_, raw)
        return self._fitted_model.probabilities(raw)  # type: ignore[attr-defined]
