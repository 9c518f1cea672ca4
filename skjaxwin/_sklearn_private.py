"""The few private parts of scikit-learn that this package uses, imported nowhere else."""

import inspect
from typing import Any, ClassVar

import numpy as np
from sklearn.metrics._scorer import _BaseScorer as BaseScorer
from sklearn.metrics._scorer import _MultimetricScorer as MultimetricScorer
from sklearn.model_selection._validation import _insert_error_scores as insert_error_scores
from sklearn.model_selection._validation import _score as score_estimator
from sklearn.model_selection._validation import _warn_or_raise_about_fit_failures as warn_or_raise_about_fit_failures
from sklearn.utils import _safe_indexing
from sklearn.utils._param_validation import HasMethods, Interval, RealNotInt, StrOptions
from sklearn.utils.validation import _check_feature_names_in as check_feature_names_in
from sklearn.utils.validation import _check_method_params as check_method_params
from sklearn.utils.validation import _check_sample_weight

__all__ = [
    "BaseScorer",
    "HasMethods",
    "Interval",
    "MultimetricScorer",
    "NamesOnce",
    "RealNotInt",
    "StrOptions",
    "check_feature_names_in",
    "check_method_params",
    "check_sample_weight",
    "insert_error_scores",
    "safe_indexing",
    "score_estimator",
    "warn_or_raise_about_fit_failures",
]


def safe_indexing(X: Any, rows: Any) -> Any:
    """Return some rows of an array or dataframe; of an array without asking what else it could be."""
    plain = type(X) is np.ndarray and isinstance(rows, np.ndarray)
    return X[rows] if plain else _safe_indexing(X, rows)


# From version 1.8 on; before, such weights always passed.
_REFUSES_ZEROS = "allow_all_zero_weights" in inspect.signature(_check_sample_weight).parameters


def check_sample_weight(sample_weight: Any, X: Any, *, allow_all_zero_weights: bool = False, **options: Any) -> Any:
    """Validate weights; see scikit-learn."""
    if allow_all_zero_weights and _REFUSES_ZEROS:
        options["allow_all_zero_weights"] = True
    return _check_sample_weight(sample_weight, X, **options)


class NamesOnce:
    """Reads the names of an estimator's parameters from its signature once: searches ask thousands of times.

    Mixed in left of scikit-learn's `BaseEstimator`.
    """

    _parameter_names: ClassVar[list[str]]

    @classmethod
    def _get_param_names(cls) -> list[str]:
        if "_parameter_names" not in vars(cls):
            cls._parameter_names = super()._get_param_names()  # type: ignore[misc]
        return cls._parameter_names
