"""Any metric on the rows in the range of a RangeEstimator."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator
from sklearn.metrics import get_scorer
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length

from skjaxwin._sklearn_private import check_sample_weight
from skjaxwin.range_estimator import RangeEstimator
from skjaxwin.range_rows import take_rows

__all__ = ["range_scorer"]


def range_scorer(scoring: Any) -> RangeScorer:
    """Make a scorer that counts only the rows in the range of a `RangeEstimator`.

    Parameters
    ----------
    scoring : str or callable
        A scorer's name (``"neg_mean_absolute_error"``), or a scorer ``scoring(estimator, X, y)``.

    Returns
    -------
    scorer : callable
        ``scorer(estimator, X, y, sample_weight=None)`` for a `RangeEstimator`, or a ``Pipeline`` that ends in one.
        Goes into searches and cross-validation as ``scoring=``; for several metrics, into a dict of scorers. For
        metadata routing it has ``set_score_request``.

    Raises
    ------
    ValueError
        When called on a fold without rows in range.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import LinearRegression
    >>> from skjaxwin import RangeEstimator, range_scorer
    >>> x = np.arange(10.0)
    >>> y = np.where(x < 5, 2 * x, 0)
    >>> fitted = RangeEstimator(LinearRegression(), stop=5).fit(x[:, None], y)
    >>> range_scorer("neg_mean_absolute_error")(fitted, x[:, None], y) > -1e-9
    True
    """
    return RangeScorer(scoring)


class RangeScorer(BaseEstimator):
    """What `range_scorer` returns; an estimator so that ``set_score_request`` reaches `score`."""

    def __init__(self, scoring: Any) -> None:
        self.scoring = scoring

    def __call__(self, estimator: Any, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Score a fitted estimator on the rows in range."""
        return self.score(estimator, X, y, sample_weight=sample_weight)

    def score(self, estimator: Any, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Score a fitted estimator on the rows in range."""
        if not isinstance(self.scoring, str) and not callable(self.scoring):
            raise TypeError(
                f"scoring={self.scoring!r} must be the name of a scorer, or a scorer; for several pass a dict."
            )
        scorer = get_scorer(self.scoring)
        mask = _mask(estimator, X)
        if not mask.any():
            raise ValueError(
                "No row to score lies in the range; in cross-validation every fold needs rows in range: shuffle the "
                "rows, take fewer folds, or a wider range."
            )
        arguments = [take_rows(X, mask)]
        if y is not None:
            check_consistent_length(mask, y)
            arguments.append(take_rows(y, mask))
        if sample_weight is None:
            return scorer(estimator, *arguments)
        weight = check_sample_weight(sample_weight, mask[:, None])[mask]
        return scorer(estimator, *arguments, sample_weight=weight)


def _mask(estimator: Any, X: Any) -> Any:
    """Return which rows lie in range; earlier steps of a pipeline come first."""
    if isinstance(estimator, RangeEstimator):
        return estimator.mask(X)
    if isinstance(estimator, Pipeline) and isinstance(estimator[-1], RangeEstimator):
        return estimator[-1].mask(estimator[:-1].transform(X) if len(estimator) > 1 else X)
    raise TypeError(
        f"range_scorer scores a RangeEstimator, or a Pipeline that ends in one, got {type(estimator).__name__}."
    )
