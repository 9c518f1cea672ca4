"""Take the columns of times, clusters and exposures out of X and validate the rest as scikit-learn does."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.utils import check_array, check_consistent_length, check_X_y
from sklearn.utils.validation import validate_data

from skjaxwin.windows import is_missing, time_values

__all__ = ["Columns", "known_clusters", "split_columns", "take_column"]

_FLOATS = [np.float64, np.float32]
_MISSING_TARGET: dict[str, Any] = {"dtype": _FLOATS, "ensure_2d": False, "ensure_all_finite": "allow-nan"}


class Columns(NamedTuple):
    """What X and y hold.

    Attributes
    ----------
    features : ndarray of shape (n_rows, n_features)
        float32 if X was float32, else float64.
    target : ndarray or None
        Of the features' dtype.
    times : ndarray of shape (n_rows,) or None
    clusters : ndarray of shape (n_rows,) or None
        What is in that column.
    exposures : ndarray of shape (n_rows,) or None
        Of the features' dtype; positive, or NaN where these are let through.
    """

    features: np.ndarray
    target: np.ndarray | None = None
    times: np.ndarray | None = None
    clusters: np.ndarray | None = None
    exposures: np.ndarray | None = None


def split_columns(
    estimator: Any, X: Any, y: Any = None, *, reset: bool, supervised: bool, missing: bool = False
) -> Columns:
    """Validate X and y, and separate the columns that an estimator's parameters name from the features.

    Parameters
    ----------
    estimator : estimator
        `time`, `cluster` and `exposure`, where it has them, give columns by position or name. Gets
        ``n_features_in_`` and ``feature_names_in_`` when `reset`, and is checked against them otherwise.
    X : array-like or dataframe of shape (n_rows, n_columns)
    y : array-like of shape (n_rows,) or (n_rows, n_outputs), or None
    reset : bool
        Whether this is a first fit.
    supervised : bool
        Whether a target is expected.
    missing : bool
        Whether NaN is let through, in features and target.

    Raises
    ------
    ValueError
        For bad data or an unknown column, naming it.
    """
    finite: Any = "allow-nan" if missing else True
    wanted = {name: getattr(estimator, name, None) for name in ("time", "cluster", "exposure")}
    wanted = {name: column for name, column in wanted.items() if column is not None}
    if not wanted:
        _refuse_dates(X)
        if not supervised:
            return Columns(validate_data(estimator, X, reset=reset, dtype=_FLOATS, ensure_all_finite=finite))
        if missing:
            separately = {"dtype": _FLOATS, "ensure_all_finite": finite}, _MISSING_TARGET
            features, target = validate_data(estimator, X, y, reset=reset, validate_separately=separately)
            check_consistent_length(features, target)
        else:
            features, target = validate_data(
                estimator, X, y, reset=reset, dtype=_FLOATS, multi_output=True, y_numeric=True
            )
        return Columns(features, target.astype(features.dtype, copy=False))

    frame = hasattr(X, "columns") and not isinstance(X, np.ndarray)
    if not frame:
        # dtype=None: integer times must not pass through floats.
        X = check_array(X, dtype=None, ensure_all_finite=False, estimator=estimator, input_name="X")
    # Record names and the number of columns; raises scikit-learn's message if y is missing.
    validate_data(estimator, X, y if supervised else "no_validation", reset=reset, skip_check_array=True)
    rest, aside = _split(X, wanted, frame)
    times = None
    if "time" in wanted:
        times = time_values(aside["time"], _described(X, "time", wanted["time"]))
    else:
        _refuse_dates(rest)
    clusters = np.asarray(aside["cluster"]) if "cluster" in wanted else None
    if rest.shape[1] == 0:
        n_rows, n_columns = X.shape
        raise ValueError(
            f"Found array with {n_columns} feature(s) (shape={(n_rows, n_columns)}) while a minimum of "
            f"{len(wanted) + 1} is required: the {' and the '.join(wanted)} column and at least one feature."
        )
    target = None
    if supervised and not missing:
        features, target = check_X_y(rest, y, dtype=_FLOATS, multi_output=True, y_numeric=True, estimator=estimator)
    else:
        features = check_array(rest, dtype=_FLOATS, ensure_all_finite=finite, estimator=estimator, input_name="X")
        if supervised:
            target = check_array(y, input_name="y", estimator=estimator, **_MISSING_TARGET)
            check_consistent_length(features, target)
    exposures = None
    if "exposure" in wanted:
        exposures = _positive(aside["exposure"], _described(X, "exposure", wanted["exposure"]), missing)
        exposures = exposures.astype(features.dtype, copy=False)
    target = None if target is None else target.astype(features.dtype, copy=False)
    return Columns(features, target, times, clusters, exposures)


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


def _described(X: Any, name: str, column: Any) -> str:
    """Return what messages call a column."""
    at = _position(X, name, column)
    return f"{name} ({list(X.columns)[at]!r})" if hasattr(X, "columns") else f"{name} ({at})"


def _positive(column: Any, name: str, missing: bool) -> np.ndarray:
    """Return a column of positive numbers."""
    finite: Any = "allow-nan" if missing else True
    values = check_array(column, dtype=_FLOATS, ensure_2d=False, ensure_all_finite=finite, input_name=name)
    if (values <= 0).any():
        row = int(np.argmax(values <= 0))
        raise ValueError(f"The {name} column must be positive; row {row} holds {values[row]}.")
    return values


def known_clusters(clusters: np.ndarray, column: Any, skip: bool) -> tuple[np.ndarray, np.ndarray]:
    """Say which rows have a cluster; in others put that of a row that has one, so that all can be sorted.

    Parameters
    ----------
    clusters : ndarray of shape (n_rows,)
    column : int or str
        What ``cluster`` names it by, for messages.
    skip : bool
        Whether values may be missing.

    Returns
    -------
    clusters : ndarray of shape (n_rows,)
    known : ndarray of bool of shape (n_rows,)
    """
    if clusters.dtype.kind in "iubUS":
        return clusters, np.ones(len(clusters), bool)
    known = np.array([not is_missing(value) for value in clusters], bool)
    if known.all():
        return clusters, known
    if not skip:
        raise ValueError(
            f'cluster={column!r}: row {int(np.argmin(known))} has no cluster. Set missing="skip" to leave such rows '
            "out, or give them clusters of their own."
        )
    clusters = clusters.copy()
    clusters[~known] = clusters[known][0] if known.any() else 0
    return clusters, known


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
