"""RangeEstimator: fit and score an estimator on the rows in a range, so that the range can be searched."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import check_consistent_length, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from skjaxwin._sklearn_private import HasMethods, check_sample_weight
from skjaxwin.range_rows import rows_in_range, take_rows
from skjaxwin.ranges import BOUND

__all__ = ["RangeEstimator"]


def _estimator_has(name: str) -> Callable[[Any], bool]:
    def check(outer: Any) -> bool:
        getattr(getattr(outer, "estimator_", outer.estimator), name)
        return True

    return check


class RangeEstimator(MetaEstimatorMixin, BaseEstimator):
    """Fit and score an estimator on the rows whose coordinate lies in a range.

    Rows out of range get weight 0 in `fit`, and do not count in `score`. So a grid search over `start` and `stop`
    asks each range how well the estimator does *there*. It is a regressor or a classifier as its estimator is.

    Parameters
    ----------
    estimator : estimator
        Cloned and fitted with ``sample_weight``, 0 for rows out of range: the shape of the data stays the same for
        every range, which saves compiled estimators from compiling again. An estimator whose `fit` takes no
        ``sample_weight`` gets just the rows in range.
    start, stop : number, date, list of these, or None, default=None
        The range is half-open, ``[start, stop)``; None is no bound. Two lists of equal length are a
        union of ranges.
    column : int or str, default=0
        Position or name of the column that holds the coordinate. It stays a feature.

    Attributes
    ----------
    estimator_ : estimator
        The fitted clone.
    classes_ : ndarray of shape (n_classes,)
        If the estimator is a classifier.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        If X had names.

    See Also
    --------
    range_scorer : Any metric on the rows in range.
    interval_grid : Ranges to search.
    SubsetSampler : Filters training rows only.

    Notes
    -----
    `predict` and the like work for every row, in range or not. ``scoring="r2"`` in a search would count every row;
    use ``scoring=None``, or `range_scorer`.

    Scores of different ranges are measured on different rows: a metric in the units of the target, such as the mean
    squared error, prefers ranges in which the target varies little. :math:`R^2` does not.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from skjaxwin import RangeEstimator
    >>> x = np.arange(10.0)
    >>> y = np.where(x < 5, 2 * x, -x)
    >>> left = RangeEstimator(LinearRegression(), stop=5).fit(x[:, None], y)
    >>> left.estimator_.coef_.round(6).tolist(), round(left.score(x[:, None], y), 6)
    ([2.0], 1.0)
    """

    _parameter_constraints: ClassVar[dict[str, list]] = {
        "estimator": [HasMethods("fit")],
        "start": BOUND,
        "stop": BOUND,
        "column": [Integral, str],
    }

    def __init__(self, estimator: Any, start: Any = None, stop: Any = None, *, column: int | str = 0) -> None:
        self.estimator = estimator
        self.start = start
        self.stop = stop
        self.column = column

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.target_tags = deepcopy(inner.target_tags)
        tags.classifier_tags = deepcopy(inner.classifier_tags)
        tags.regressor_tags = deepcopy(inner.regressor_tags)
        # The coordinate must be known, so X as a whole may not hold NaN; other columns may, if the estimator's may.
        return tags

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> RangeEstimator:
        """Fit the estimator on the rows in range.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)
            Passed on as it is.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None
        sample_weight : array-like of shape (n_rows,), default=None
            Multiplied by 0 for rows out of range.

        Returns
        -------
        self : RangeEstimator

        Raises
        ------
        ValueError
            If no row of positive weight lies in the range, or for bad bounds or columns.
        """
        self._validate_params()
        if isinstance(self.estimator, type):
            raise TypeError(f"estimator={self.estimator!r} is a class; pass an instance.")
        rows = rows_in_range(
            self, X, y if get_tags(self).target_tags.required else "no_validation", reset=True, empty="raise"
        )
        if y is not None:
            check_consistent_length(rows.X, y)
        estimator = clone(self.estimator)
        weight = None if sample_weight is None else _checked_weight(sample_weight, rows.mask)
        arguments = () if y is None else (y,)
        if has_fit_parameter(estimator, "sample_weight"):
            if weight is not None or not rows.mask.all():
                factor = np.ones(len(rows.mask)) if weight is None else weight
                self.estimator_ = estimator.fit(rows.X, *arguments, sample_weight=np.where(rows.mask, factor, 0))
                return self
        elif weight is not None:
            raise TypeError(
                f"sample_weight was passed, but {type(estimator).__name__}.fit takes none; leave it out, or choose an "
                "estimator that weights rows."
            )
        elif not rows.mask.all():
            rows.X, arguments = take_rows(rows.X, rows.mask), tuple(take_rows(a, rows.mask) for a in arguments)
        self.estimator_ = estimator.fit(rows.X, *arguments)
        return self

    def mask(self, X: Any) -> np.ndarray:
        """Say which rows lie in the range.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)

        Returns
        -------
        mask : ndarray of bool of shape (n_rows,)
        """
        check_is_fitted(self, "estimator_")
        return rows_in_range(self, X, reset=False).mask

    @available_if(_estimator_has("score"))
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the estimator's score on the rows in range.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None
        sample_weight : array-like of shape (n_rows,), default=None
            Of all rows; passed on for those in range.

        Returns
        -------
        score : float

        Raises
        ------
        ValueError
            If no row lies in the range.
        """
        check_is_fitted(self, "estimator_")
        rows = rows_in_range(self, X, reset=False, empty="raise")
        keywords = {}
        if sample_weight is not None:
            keywords["sample_weight"] = _checked_weight(sample_weight, rows.mask)[rows.mask]
        if y is None:
            return self.estimator_.score(take_rows(rows.X, rows.mask), **keywords)
        check_consistent_length(rows.X, y)
        return self.estimator_.score(take_rows(rows.X, rows.mask), take_rows(y, rows.mask), **keywords)

    @available_if(_estimator_has("predict"))
    def predict(self, X: Any) -> np.ndarray:
        """Predict every row, in range or not.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)

        Returns
        -------
        predictions : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        """
        return self._inner("predict", X)

    @available_if(_estimator_has("predict_proba"))
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the estimator's class probabilities of every row."""
        return self._inner("predict_proba", X)

    @available_if(_estimator_has("predict_log_proba"))
    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return the logarithms of the estimator's class probabilities of every row."""
        return self._inner("predict_log_proba", X)

    @available_if(_estimator_has("decision_function"))
    def decision_function(self, X: Any) -> np.ndarray:
        """Return the estimator's decision function of every row."""
        return self._inner("decision_function", X)

    @property
    def classes_(self) -> np.ndarray:
        """The estimator's classes."""
        return self.estimator_.classes_

    def _inner(self, method: str, X: Any) -> Any:
        check_is_fitted(self, "estimator_")
        rows = rows_in_range(self, X, reset=False)
        return getattr(self.estimator_, method)(rows.X)


def _checked_weight(sample_weight: Any, mask: np.ndarray) -> np.ndarray:
    """Return one weight for each row; refuse weights that are zero throughout the range."""
    weight = check_sample_weight(sample_weight, np.empty((len(mask), 1)), ensure_non_negative=False)
    if not (weight[mask] != 0).any():
        raise ValueError("Sample weights are all zero in the range; every row that counts is weighted by zero.")
    return weight
