"""Predictions out of fold, for any estimator and splits that do not test every row."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.utils import indexable
from sklearn.utils.parallel import Parallel, delayed

from skjaxwin._sklearn_private import check_sample_weight, safe_indexing
from skjaxwin.splits import TimeWindowSplit

__all__ = ["walk_forward_predict"]


def walk_forward_predict(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    cv: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
    method: str = "predict",
    n_jobs: int | None = None,
) -> np.ndarray:
    """Predict each row by a fit on the training rows of the split that tests it.

    What ``sklearn.model_selection.cross_val_predict`` does, for splits that do not test each row exactly
    once, as none that goes forward in time does: it refuses them.

    Parameters
    ----------
    estimator : estimator
        Any of scikit-learn's kind; cloned for each split.
    X : array-like or dataframe of shape (n_rows, n_columns)
    y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None
    cv : splitter, iterable or int, default=None
        None: ``TimeWindowSplit()``, a fit for each time stamp; other values as in scikit-learn.
    groups : array-like of shape (n_rows,), default=None
        Passed to the splitter; for `TimeWindowSplit` the time of each row.
    sample_weight : array-like of shape (n_rows,), default=None
        Passed to ``fit``, the training rows' part.
    method : str, default="predict"
        The estimator's method: "predict", "predict_proba", "decision_function" ...
    n_jobs : int, default=None
        Splits at a time, as in scikit-learn.

    Returns
    -------
    predictions : ndarray of shape (n_rows,) or (n_rows, n_outputs or n_classes)
        In the order of the rows of X. Rows that no split tests have NaN, or None where predictions are no numbers; rows
        that several test have the last one's, which of splits that go forward in time trains on the newest rows.

    Raises
    ------
    ValueError
        If there is no split; if the splits' predictions differ in shape, as probabilities do where a training set
        lacks a class.

    See Also
    --------
    RollingJaxEstimator.walk_forward_predict : Every window of one fit, far faster.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from skjaxwin import TimeWindowSplit, walk_forward_predict
    >>> time = np.array([2, 0, 1, 3])
    >>> y = 10.0 * time
    >>> cv = TimeWindowSplit(min_train=2)
    >>> walk_forward_predict(LinearRegression(), time[:, None], y, cv=cv, groups=time).round(6).tolist()
    [20.0, nan, nan, 30.0]
    """
    X, y, groups = indexable(X, y, groups)
    if not hasattr(estimator, method):
        raise ValueError(f"method={method!r} is not one that {type(estimator).__name__} has.")
    n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
    weight = None if sample_weight is None else check_sample_weight(sample_weight, np.empty((n_rows, 1)))
    splits = list(
        (TimeWindowSplit() if cv is None else check_cv(cv, y, classifier=is_classifier(estimator))).split(X, y, groups)
    )
    if not splits:
        raise ValueError(f"cv={cv!r} gives no split; pass one that tests rows.")
    parts = Parallel(n_jobs=n_jobs)(
        delayed(_predict_fold)(clone(estimator), X, y, weight, train, test, method) for train, test in splits
    )
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) > 1:
        raise ValueError(
            f"The splits' predictions have rows of different shapes {sorted(shapes)}; a training set may lack a class. "
            "Raise min_train, or take method='predict'."
        )
    numbers = all(part.dtype.kind in "iufb" for part in parts)
    dtype = np.result_type(np.float32, *(part.dtype for part in parts)) if numbers else np.dtype(object)
    predictions = np.full((n_rows, *shapes.pop()), np.nan if numbers else None, dtype)
    for (_, test), part in zip(splits, parts, strict=True):
        predictions[test] = part
    return predictions


def _predict_fold(
    estimator: Any, X: Any, y: Any, weight: Any, train: np.ndarray, test: np.ndarray, method: str
) -> np.ndarray:
    """Fit on the training rows and return what `method` says of the tested ones."""
    target = () if y is None else (safe_indexing(y, train),)
    parameters = {} if weight is None else {"sample_weight": weight[train]}
    estimator.fit(safe_indexing(X, train), *target, **parameters)
    predictions = getattr(estimator, method)(safe_indexing(X, test))
    if isinstance(predictions, list) and np.ndim(predictions[0]) == 2:
        raise ValueError(
            f"{type(estimator).__name__}.{method} returns a list with an entry for each target, which have classes of "
            "their own; call walk_forward_predict for each target."
        )
    return np.asarray(predictions)
