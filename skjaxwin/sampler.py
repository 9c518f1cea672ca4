"""SubsetSampler: keep the training rows of a range, for imbalanced-learn's Pipeline."""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length

from skjaxwin._sklearn_private import StrOptions
from skjaxwin.range_rows import rows_in_range, take_rows
from skjaxwin.ranges import BOUND

__all__ = ["SubsetSampler"]


class SubsetSampler(BaseEstimator):
    """Keep only the rows in a range, when fitting.

    A sampler of imbalanced-learn's ``Pipeline``; scikit-learn's own takes none.

    Parameters
    ----------
    start, stop : number, date, list of these, or None, default=None
        The range is half-open, ``[start, stop)``; None is no bound. Two lists of equal length
        are a union of ranges.
    column : int or str, default=0
        Position or name of the column that holds the coordinate.
    by : {"value", "position"}, default="value"
        Whether bounds are values of the coordinate, or row numbers (negative ones count from the end).

    Attributes
    ----------
    sample_indices_ : ndarray of int of shape (n_rows_in_range,)
        The rows that were kept.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        If X had names.

    See Also
    --------
    RangeEstimator : Counts the range's rows in the score, too; searches need that.

    Notes
    -----
    A sampler filters training rows only. What follows it in the pipeline is fitted on the rows in
    range and still predicts, and is scored on, every row. A grid search over `start` and `stop` would therefore
    prefer a range that serves the rows outside it: search with `RangeEstimator`.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import SubsetSampler
    >>> X, y = np.arange(10.0)[:, None], np.arange(10)
    >>> sampler = SubsetSampler(start=[1, 7], stop=[3, None])
    >>> X_kept, y_kept = sampler.fit_resample(X, y)
    >>> y_kept.tolist(), sampler.sample_indices_.tolist()
    ([1, 2, 7, 8, 9], [1, 2, 7, 8, 9])
    """

    _parameter_constraints: ClassVar[dict[str, list]] = {
        "start": BOUND,
        "stop": BOUND,
        "column": [Integral, str],
        "by": [StrOptions({"value", "position"})],
    }

    def __init__(self, start: Any = None, stop: Any = None, *, column: int | str = 0, by: str = "value") -> None:
        self.start = start
        self.stop = stop
        self.column = column
        self.by = by

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # The coordinate must be known, so X as a whole may not hold NaN; other columns may.
        tags.input_tags.allow_nan = self.by == "position"
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "sample_indices_")

    def fit(self, X: Any, y: Any = None) -> SubsetSampler:
        """Find the rows in range; `fit_resample` does so itself.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None

        Returns
        -------
        self : SubsetSampler
        """
        self._find(X, y)
        return self

    def fit_resample(self, X: Any, y: Any = None) -> tuple[Any, Any]:
        """Return the rows in range.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)
            Missing values are let through, except in the coordinate column.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None

        Returns
        -------
        X_kept, y_kept : ndarray, dataframe or series
            The rows in range, in their order and in the containers that were passed; None if `y` is None.

        Raises
        ------
        ValueError
            If no row lies in the range, or for bad bounds or columns.
        """
        kept, mask = self._find(X, y)
        return take_rows(kept, mask), take_rows(y, mask)

    def _find(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        if hasattr(self, "sample_indices_"):
            del self.sample_indices_  # a fit that fails must not leave those of another range
        self._validate_params()
        rows = rows_in_range(self, X, reset=True, by=self.by, empty="raise")
        if y is not None:
            check_consistent_length(rows.X, y)
        self.sample_indices_: np.ndarray = np.flatnonzero(rows.mask)
        return rows.X, rows.mask
