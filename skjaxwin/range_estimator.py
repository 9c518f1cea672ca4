"""RangeEstimator: fit and score an estimator on the rows in a range, so that the range can be searched."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import check_consistent_length, get_tags
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from skjaxwin._sklearn_private import HasMethods, StrOptions, check_sample_weight
from skjaxwin.range_rows import RangeRows, drop_column, rows_in_range, take_rows
from skjaxwin.ranges import BOUND

__all__ = ["RangeEstimator"]


def _estimator_has(name: str) -> Callable[[Any], bool]:
    def check(outer: Any) -> bool:
        getattr(getattr(outer, "estimator_", outer.estimator), name)
        return True

    return check


class RangeEstimator(MetaEstimatorMixin, BaseEstimator):
    """Fit and score an estimator on the rows whose coordinate lies in a range.

    Rows out of range count neither in `fit` nor in `score`. So a grid search over `start` and `stop` asks each range
    how well the estimator does *there*. It is a regressor or a classifier as its estimator is.

    Parameters
    ----------
    estimator : estimator
        Cloned and fitted on the rows in range.
    start, stop : number, date, list of these, or None, default=None
        The range is half-open, ``[start, stop)``; None is no bound. Two lists of equal length are a
        union of ranges.
    column : int or str, default=0
        Position or name of the column that holds the coordinate.
    keep_column : bool, default=True
        Whether the estimator sees the coordinate, too. With False the other columns are its features: for dates,
        which most estimators do not take.
    rows : {"drop", "weight"}, default="drop"
        How `fit` leaves rows out. "drop" passes on the rows in range, which is right for every estimator.
        "weight" passes on all rows, with ``sample_weight`` 0 (and a target from the range) for those out of range: the
        shape of the data is then the same for every range, so that an estimator which compiles for a shape does so
        once. It must treat rows of weight 0 as absent, which many do not; see Notes. `score` drops rows in either case.

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

    ``rows="weight"`` suits estimators of which scikit-learn's checks ask that weight 0 equals absence, such as linear
    models. It does not suit those that look at all rows apart from their weights: ``SVR(gamma="scale")``, histogram
    boosting, nearest neighbours, anything after a scaler. `RollingJaxEstimator` gives the same results either way,
    since rows of weight 0 make no time stamps, and it pads the rows that are left: give it a ``capacity``, and all
    ranges share one compile without weights.

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
        "keep_column": ["boolean"],
        "rows": [StrOptions({"drop", "weight"})],
    }

    def __init__(
        self,
        estimator: Any,
        start: Any = None,
        stop: Any = None,
        *,
        column: int | str = 0,
        keep_column: bool = True,
        rows: str = "drop",
    ) -> None:
        self.estimator = estimator
        self.start = start
        self.stop = stop
        self.column = column
        self.keep_column = keep_column
        self.rows = rows

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.target_tags = deepcopy(inner.target_tags)
        tags.classifier_tags = deepcopy(inner.classifier_tags)
        tags.regressor_tags = deepcopy(inner.regressor_tags)
        # The coordinate must be known, so X as a whole may not hold NaN; other columns may, if the estimator's may.
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_")

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, **fit_params: Any) -> RangeEstimator:
        """Fit the estimator on the rows in range.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)
            Passed on in its container.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None
            May be missing out of range.
        sample_weight : array-like of shape (n_rows,), default=None
            Passed on for rows in range.
        **fit_params : dict
            Passed on; of anything that has one entry for each row, the entries in range. A pipeline takes the weights
            of its last step so: ``ridge__sample_weight``.

        Returns
        -------
        self : RangeEstimator

        Raises
        ------
        ValueError
            If no row of positive weight lies in the range, or for bad bounds or columns.
        TypeError
            If the estimator takes no ``sample_weight`` and is to get one.
        """
        if hasattr(self, "estimator_"):
            del self.estimator_  # a fit that fails must not leave the model of another range
        self._validate_params()
        if isinstance(self.estimator, type):
            raise TypeError(f"estimator={self.estimator!r} is a class; pass an instance.")
        in_range = rows_in_range(
            self, X, y if get_tags(self).target_tags.required else "no_validation", reset=True, empty="raise"
        )
        mask = in_range.mask
        if y is not None:
            check_consistent_length(in_range.X, y)
        estimator = clone(self.estimator)
        if sample_weight is not None:
            sample_weight = _checked_weight(sample_weight, mask)
        X = self._features(in_range)
        if self.rows == "weight":
            weight = np.ones(len(mask)) if sample_weight is None else sample_weight
            sample_weight = None if sample_weight is None and mask.all() else np.where(mask, weight, 0)
            # The targets of the others are from the range: they may be missing, or of classes that it does not hold.
            counted = mask if sample_weight is None else sample_weight != 0
            y = take_rows(y, np.where(mask, np.arange(len(mask)), np.argmax(counted)))
        elif not mask.all():
            X, y, sample_weight = (take_rows(table, mask) for table in (X, y, sample_weight))
            fit_params = {name: _of_rows(value, mask) for name, value in fit_params.items()}
        if sample_weight is not None or self.rows == "weight":
            self._refuse_unweighted(estimator)
        if sample_weight is not None:
            fit_params["sample_weight"] = sample_weight
        try:
            self.estimator_: Any = estimator.fit(X, *(() if y is None else (y,)), **fit_params)
        except Exception as error:
            if self.keep_column and in_range.coordinates is not None and in_range.coordinates.dtype.kind in "mM":
                error.add_note(
                    f"The coordinate column ({self.column!r}) holds dates, and {type(estimator).__name__} saw it; "
                    "RangeEstimator(..., keep_column=False) leaves it out."
                )
            raise
        return self

    def _features(self, in_range: RangeRows) -> Any:
        """Return the columns that the estimator sees."""
        if self.keep_column:
            return in_range.X
        if in_range.X.shape[1] == 1:
            raise ValueError("keep_column=False leaves no feature: X has 1 feature(s), the coordinate column only.")
        return drop_column(in_range.X, self.column)

    def _refuse_unweighted(self, estimator: Any) -> None:
        takes = has_fit_parameter(estimator, "sample_weight")
        if not takes and get_config()["enable_metadata_routing"]:
            # A pipeline or search that hands weights on.
            takes = bool(get_routing_for_object(estimator).consumes("fit", ["sample_weight"]))
        if takes:
            return
        name = type(estimator).__name__
        if self.rows == "weight":
            raise TypeError(
                f'rows="weight" needs an estimator whose fit takes sample_weight, and {name}.fit takes none; use '
                'rows="drop".'
            )
        raise TypeError(
            f"sample_weight was passed, but {name}.fit takes none; leave it out, or choose an estimator that weights "
            "rows; a pipeline takes the weights of a step under its name, ridge__sample_weight, or by metadata routing."
        )

    def mask(self, X: Any) -> np.ndarray:
        """Say which rows lie in the range.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)

        Returns
        -------
        mask : ndarray of bool of shape (n_rows,)
        """
        check_is_fitted(self)
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
        check_is_fitted(self)
        in_range = rows_in_range(self, X, reset=False, empty="raise")
        mask = in_range.mask
        keywords = {}
        if sample_weight is not None:
            keywords["sample_weight"] = _checked_weight(sample_weight, mask)[mask]
        X = take_rows(self._features(in_range), mask)
        if y is None:
            return self.estimator_.score(X, **keywords)
        check_consistent_length(mask, y)
        return self.estimator_.score(X, take_rows(y, mask), **keywords)

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
        check_is_fitted(self)
        return getattr(self.estimator_, method)(self._features(rows_in_range(self, X, reset=False)))


def _checked_weight(sample_weight: Any, mask: np.ndarray) -> np.ndarray:
    """Return one weight for each row; refuse weights that are zero throughout the range."""
    weight = check_sample_weight(sample_weight, np.empty((len(mask), 1)), ensure_non_negative=False)
    if not (weight[mask] != 0).any():
        raise ValueError("Sample weights are all zero in the range; every row that counts is weighted by zero.")
    return weight


def _of_rows(value: Any, mask: np.ndarray) -> Any:
    """Return the entries in range of what has one for each row."""
    has_rows = isinstance(value, (list, tuple)) or getattr(value, "shape", ()) != ()
    return take_rows(value, mask) if has_rows and len(value) == len(mask) else value
