"""Take the time column out of X and validate the rest as scikit-learn does."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array, check_consistent_length, check_X_y
from sklearn.utils.validation import validate_data

from skjaxwin.windows import time_values

__all__ = ["split_time"]

_FLOATS = [np.float64, np.float32]
_MISSING_TARGET: dict[str, Any] = {"dtype": _FLOATS, "ensure_2d": False, "ensure_all_finite": "allow-nan"}


def split_time(
    estimator: Any, X: Any, y: Any = None, *, time: Any, reset: bool, supervised: bool, missing: bool = False
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Validate X and y, and separate the time column from the features.

    Parameters
    ----------
    estimator : estimator
        Gets ``n_features_in_`` and ``feature_names_in_`` when `reset`, and is
        checked against them otherwise.
    X : array-like or dataframe of shape (n_rows, n_columns)
    y : array-like of shape (n_rows,) or (n_rows, n_outputs), or None
    time : None, int or str
        Position or name of the time column.
    reset : bool
        Whether this is a fit.
    supervised : bool
        Whether a target is expected.
    missing : bool
        Whether NaN is let through, in features and target.

    Returns
    -------
    features : ndarray of shape (n_rows, n_features)
        float32 if X was float32, else float64.
    target : ndarray or None
        Of the features' dtype.
    times : ndarray of shape (n_rows,) or None

    Raises
    ------
    ValueError
        For bad data or an unknown column, naming it.
    """
    with_target = reset and supervised
    finite: Any = "allow-nan" if missing else True
    if time is None:
        _refuse_dates(X)
        if with_target:
            if missing:
                separately = {"dtype": _FLOATS, "ensure_all_finite": finite}, _MISSING_TARGET
                features, target = validate_data(estimator, X, y, reset=reset, validate_separately=separately)
                check_consistent_length(features, target)
            else:
                features, target = validate_data(
                    estimator, X, y, reset=reset, dtype=_FLOATS, multi_output=True, y_numeric=True
                )
            return features, target.astype(features.dtype, copy=False), None
        return validate_data(estimator, X, reset=reset, dtype=_FLOATS, ensure_all_finite=finite), None, None

    frame = hasattr(X, "columns") and not isinstance(X, np.ndarray)
    if not frame:
        # dtype=None: integer times must not pass through floats.
        X = check_array(X, dtype=None, ensure_all_finite=False, estimator=estimator, input_name="X")
    # Record names and the number of columns; raises scikit-learn's message if y is missing.
    validate_data(estimator, X, y if with_target else "no_validation", reset=reset, skip_check_array=True)
    features, times = _split_frame(X, time) if frame else _split_array(X, time)
    if features.shape[1] == 0:
        raise ValueError(
            f"Found array with 1 feature(s) (shape={(len(times), 1)}) while a minimum of 2 is required: "
            "the time column and at least one feature."
        )
    if not with_target:
        return (
            check_array(features, dtype=_FLOATS, ensure_all_finite=finite, estimator=estimator, input_name="X"),
            None,
            times,
        )
    if missing:
        features = check_array(features, dtype=_FLOATS, ensure_all_finite=finite, estimator=estimator, input_name="X")
        target = check_array(y, input_name="y", estimator=estimator, **_MISSING_TARGET)
        check_consistent_length(features, target)
    else:
        features, target = check_X_y(features, y, dtype=_FLOATS, multi_output=True, y_numeric=True, estimator=estimator)
    return features, target.astype(features.dtype, copy=False), times


def _refuse_dates(X: Any) -> None:
    """Say which column of a dataframe holds dates where no time column was named."""
    if isinstance(X, np.ndarray) or not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return
    for name, dtype in zip(X.columns, X.dtypes, strict=True):
        if getattr(dtype, "kind", None) == "M" or getattr(dtype, "is_temporal", bool)():
            raise ValueError(f"The column {name!r} holds dates; pass time={name!r}, or leave the column out of X.")


def _split_array(X: np.ndarray, time: Any) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(time, str):
        raise ValueError(
            f"time={time!r} names a column, but X has no column names; pass a dataframe, or the column's position."
        )
    position = _position(time, X.shape[1])
    return np.delete(X, position, axis=1), time_values(X[:, position], f"time ({position})")


def _split_frame(X: Any, time: Any) -> tuple[Any, np.ndarray]:
    """Split a pandas or polars dataframe; the features stay a dataframe."""
    names = list(X.columns)
    if isinstance(time, str):
        if time not in names:
            raise ValueError(f"time={time!r} is not a column of X; its columns are {names}.")
        position = names.index(time)
    else:
        position = _position(time, len(names))
    column = X[names[position]]
    times = time_values(column, f"time ({names[position]!r})")
    rest = [name for i, name in enumerate(names) if i != position]
    return (X[rest] if rest else np.empty((len(times), 0))), times


def _position(time: int, n_columns: int) -> int:
    if not -n_columns <= time < n_columns:
        raise ValueError(f"time={time} is not a column of X, which has {n_columns} column(s).")
    return time % n_columns
