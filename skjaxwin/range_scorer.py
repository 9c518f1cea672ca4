"""Any metric on the rows in the range of a RangeEstimator."""

from __future__ import annotations

from inspect import signature
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer
from sklearn.pipeline import Pipeline
from sklearn.utils import check_consistent_length
from sklearn.utils.metadata_routing import UNUSED

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
        ``scorer(estimator, X, y, sample_weight=None)`` for a `RangeEstimator`, or a ``Pipeline``, search or
        ``TransformedTargetRegressor`` that ends in one. Goes into searches and cross-validation as ``scoring=``; for
        several metrics, into a dict of scorers. For metadata routing it has ``set_score_request``.

    Raises
    ------
    ValueError
        For an unknown name; and when called on a fold without rows in range.
    TypeError
        For anything but a scorer, such as a metric function: ``make_scorer`` makes a scorer of that.

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
    _scorer(scoring)
    return RangeScorer(scoring)


class RangeScorer(BaseEstimator):
    """What `range_scorer` returns; an estimator so that ``set_score_request`` reaches `score`."""

    # The estimator to score is no metadata.
    __metadata_request__score: ClassVar[dict[str, str]] = {"estimator": UNUSED}

    def __init__(self, scoring: Any) -> None:
        self.scoring = scoring

    def __call__(self, estimator: Any, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Score a fitted estimator on the rows in range."""
        return self.score(estimator, X, y, sample_weight=sample_weight)

    def score(self, estimator: Any, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Score a fitted estimator on the rows in range."""
        scorer = _scorer(self.scoring)
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
        if not self._accept_sample_weight():
            raise TypeError(f"sample_weight was passed, but scoring={self.scoring!r} takes none.")
        weight = check_sample_weight(sample_weight, mask[:, None])[mask]
        return scorer(estimator, *arguments, sample_weight=weight)

    def _accept_sample_weight(self) -> bool:
        """Say whether the scorer takes weights, which scikit-learn asks before it hands on those of a search."""
        scorer = _scorer(self.scoring)
        accepts = getattr(scorer, "_accept_sample_weight", None)
        return accepts() if accepts is not None else "sample_weight" in _parameters(scorer)


def _scorer(scoring: Any) -> Any:
    """Return the scorer that is named or passed; refuse anything else, metric functions in particular."""
    if isinstance(scoring, str):
        return get_scorer(scoring)
    if not callable(scoring) or isinstance(scoring, type):
        raise TypeError(f"scoring={scoring!r} must be the name of a scorer, or a scorer; for several pass a dict.")
    if next(iter(_parameters(scoring)), "") in ("y_true", "labels_true", "y"):
        raise TypeError(
            f"scoring={scoring!r} is a metric of targets and predictions; make a scorer of it, "
            "range_scorer(make_scorer(metric))."
        )
    return scoring


def _parameters(function: Any) -> list[str]:
    try:
        return list(signature(function).parameters)
    except ValueError:  # builtins without a signature
        return []


def _mask(estimator: Any, X: Any) -> np.ndarray:
    """Return which rows lie in range; earlier steps of a pipeline come first."""
    if isinstance(estimator, RangeEstimator):
        return estimator.mask(X)
    if isinstance(estimator, Pipeline):
        for _, step in estimator.steps[:-1]:
            if hasattr(step, "transform"):  # neither "passthrough" nor a sampler, which only fits see
                X = step.transform(X)
        return _mask(estimator[-1], X)
    if isinstance(estimator, FrozenEstimator):
        return _mask(estimator.estimator, X)
    for name in ("best_estimator_", "regressor_"):  # of a search, and of a TransformedTargetRegressor
        if hasattr(estimator, name):
            return _mask(getattr(estimator, name), X)
    raise TypeError(
        "range_scorer scores a fitted RangeEstimator, or a pipeline or search that ends in one, got "
        f"{type(estimator).__name__}."
    )
