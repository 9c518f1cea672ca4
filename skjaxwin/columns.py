"""Take the columns of times and clusters out of X and validate the rest as scikit-learn does."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array, check_consistent_length, check_X_y
from sklearn.utils.validation import validate_data

from skjaxwin.windows import time_values

__all__ = ["split_time", "take_column"]

_FLOATS = [np.float64, np.float32]
_MISSING_TARGET: dict[str, Any] = {"dtype": _FLOATS, "ensure_2d": False, "ensure_all_finite": "allow-nan"}


def split_time(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    time: Any,
    cluster: Any = None,
    reset: bool,
    supervised: bool,
    missing: bool = False,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, np.ndarray | None]:
    """Validate X and y, and separate the columns of times and of clusters from the features.

    Parameters
    ----------
    estimator : estimator
        Gets ``n_features_in_`` and ``feature_names_in_`` when `reset`, and is
        checked against them otherwise.
    X : array-like or dataframe of shape (n_rows, n_columns)
    y : array-like of shape (n_rows,) or (n_rows, n_outputs), or None
    time, cluster : None, int or str
        Position or name of the time column, and of that which says which rows belong together.
    reset : bool
        Whether this is a first fit.
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
    clusters : ndarray of shape (n_rows,) or None
        What is in that column.

    Raises
    ------
    ValueError
        For bad data or an unknown column, naming it.
    """
    finite: Any = "allow-nan" if missing else True
    if time is None and cluster is None:
        _refuse_dates(X)
        if supervised:
            if missing:
                separately = {"dtype": _FLOATS, "ensure_all_finite": finite}, _MISSING_TARGET
                features, target = validate_data(estimator, X, y, reset=reset, validate_separately=separately)
                check_consistent_length(features, target)
            else:
                features, target = validate_data(
                    estimator, X, y, reset=reset, dtype=_FLOATS, multi_output=True, y_numeric=True
                )
            return features, target.astype(features.dtype, copy=False), None, None
        return validate_data(estimator, X, reset=reset, dtype=_FLOATS, ensure_all_finite=finite), None, None, None

    frame = hasattr(X, "columns") and not isinstance(X, np.ndarray)
    if not frame:
        # dtype=None: integer times must not pass through floats.
        X = check_array(X, dtype=None, ensure_all_finite=False, estimator=estimator, input_name="X")
    # Record names and the number of columns; raises scikit-learn's message if y is missing.
    validate_data(estimator, X, y if supervised else "no_validation", reset=reset, skip_check_array=True)
    wanted = {name: column for name, column in (("time", time), ("cluster", cluster)) if column is not None}
    features, aside = _split(X, wanted, frame)
    times = None
    if time is None:
        _refuse_dates(features)
    else:
        at = _position(X, "time", time)
        times = time_values(aside["time"], f"time ({list(X.columns)[at]!r})" if frame else f"time ({at})")
    clusters = None
    if cluster is not None:
        clusters = np.asarray(aside["cluster"])
    if features.shape[1] == 0:
        n_rows, n_columns = X.shape
        raise ValueError(
            f"Found array with {n_columns} feature(s) (shape={(n_rows, n_columns)}) while a minimum of "
            f"{len(wanted) + 1} is required: the {' and the '.join(wanted)} column and at least one feature."
        )
    if not supervised:
        return (
            check_array(features, dtype=_FLOATS, ensure_all_finite=finite, estimator=estimator, input_name="X"),
            None,
            times,
            clusters,
        )
    if missing:
        features = check_array(features, dtype=_FLOATS, ensure_all_finite=finite, estimator=estimator, input_name="X")
        target = check_array(y, input_name="y", estimator=estimator, **_MISSING_TARGET)
        check_consistent_length(features, target)
    else:
        features, target = check_X_y(features, y, dtype=_FLOATS, multi_output=True, y_numeric=True, estimator=estimator)
    return features, target.astype(features.dtype, copy=False), times, clusters


def take_column(X: Any, name: str, column: Any) -> Any:
    """Return a column of X that a parameter gives by name or position.

    Parameters
    ----------
    X : array-like or dataframe of shape (n_rows, n_columns)
    name : str
        The parameter, for messages.
    column : int or str

    Returns
    -------
    values : ndarray or column of a dataframe, of shape (n_rows,)
    """
    if hasattr(X, "columns") and not isinstance(X, np.ndarray):
        return X[list(X.columns)[_position(X, name, column)]]
    X = check_array(X, dtype=None, ensure_all_finite=False, input_name="X")
    return X[:, _position(X, name, column)]


def _refuse_dates(X: Any) -> None:
    """Say which column of a dataframe holds dates where no time column was named."""
    if isinstance(X, np.ndarray) or not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return
    for name, dtype in zip(X.columns, X.dtypes, strict=True):
        if getattr(dtype, "kind", None) == "M" or getattr(dtype, "is_temporal", bool)():
            raise ValueError(f"The column {name!r} holds dates; pass time={name!r}, or leave the column out of X.")


def _split(X: Any, wanted: dict[str, Any], frame: bool) -> tuple[Any, dict[str, Any]]:
    """Return the features, a dataframe if X is one, and the columns that are wanted."""
    position = {name: _position(X, name, column) for name, column in wanted.items()}
    if len(set(position.values())) < len(position):
        raise ValueError(f"{' and '.join(wanted)} name the same column of X; each needs a column of its own.")
    if not frame:
        return np.delete(X, list(position.values()), axis=1), {name: X[:, at] for name, at in position.items()}
    names = list(X.columns)
    rest = [name for i, name in enumerate(names) if i not in position.values()]
    return (X[rest] if rest else np.empty((len(X), 0))), {name: X[names[at]] for name, at in position.items()}


def _position(X: Any, name: str, column: Any) -> int:
    """Return the position of a column that is given by name or position."""
    if isinstance(column, str):
        if not hasattr(X, "columns"):
            raise ValueError(
                f"{name}={column!r} names a column, but X has no column names; pass a dataframe, or the column's "
                "position."
            )
        names = list(X.columns)
        if column not in names:
            raise ValueError(f"{name}={column!r} is not a column of X; its columns are {names}.")
        return names.index(column)
    n_columns = X.shape[1]
    if not -n_columns <= column < n_columns:
        raise ValueError(f"{name}={column} is not a column of X, which has {n_columns} column(s).")
    return int(column) % n_columns
