"""The rows of X that lie in a range of one of its columns; shared by the estimators that isolate rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from skjaxwin._sklearn_private import safe_indexing
from skjaxwin.bounds import coordinate_values, refuse_masked
from skjaxwin.ranges import parse_ranges, position_masks, refuse_empty, value_masks

__all__ = [
    "RangeRows",
    "column_position",
    "drop_column",
    "is_frame",
    "refuse_equal_names",
    "row_coordinates",
    "rows_in_range",
    "take_rows",
]


class RangeRows:
    """Rows of a table and which of them lie in the range.

    Attributes
    ----------
    X : ndarray or dataframe of shape (n_rows, n_columns)
        Of any dtype, not checked for missing values except in the coordinate column.
    coordinates : ndarray of shape (n_rows,) or None
        None where bounds are positions.
    masks : ndarray of bool of shape (n_ranges, n_rows)
    mask : ndarray of bool of shape (n_rows,)
        Their union.
    """

    def __init__(self, X: Any, coordinates: np.ndarray | None, masks: np.ndarray) -> None:
        self.X = X
        self.coordinates = coordinates
        self.masks = masks
        self.mask: np.ndarray = np.logical_or.reduce(masks)


def rows_in_range(
    estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool, by: str = "value", empty: str = "allow"
) -> RangeRows:
    """Find the rows in the range of an estimator with parameters `start`, `stop` and `column`.

    Parameters
    ----------
    estimator : estimator
        Gets ``n_features_in_`` and ``feature_names_in_`` when `reset`, and is checked against them otherwise.
    X : array-like or dataframe of shape (n_rows, n_columns)
    y : array-like or None, optional
        Only looked at to say that a target is needed.
    reset : bool
        Whether this is a fit.
    by : {"value", "position"}
    empty : {"allow", "raise"}
        What to do if no row lies in the range.

    Raises
    ------
    ValueError, TypeError
        For bad bounds or columns, and missing coordinates, naming them.
    """
    ranges = parse_ranges(estimator.start, estimator.stop)
    X = _table(estimator, X, y, reset)
    coordinates = row_coordinates(X, estimator.column) if by == "value" else None
    masks = (
        position_masks(len(X), ranges)
        if coordinates is None
        else value_masks(coordinates, ranges, refuse_reversed=reset)
    )
    if empty == "raise":
        refuse_empty(masks, ranges, "row", coordinates=coordinates, each=False)
    return RangeRows(X, coordinates, masks)


def _table(estimator: Any, X: Any, y: Any, reset: bool) -> Any:
    """Return X as an array or dataframe of at least one row and column, and record or check its columns."""
    refuse_masked(X, "X")
    if not is_frame(X):
        # dtype=None: integers and dates must not pass through floats.
        X = check_array(X, dtype=None, ensure_all_finite=False, estimator=estimator, input_name="X")
    elif not len(X):
        raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
    refuse_equal_names(X)
    validate_data(estimator, X, y, reset=reset, skip_check_array=True)
    return X


def is_frame(X: Any) -> bool:
    """Say whether X is a dataframe."""
    return hasattr(X, "columns") and not isinstance(X, np.ndarray)


def refuse_equal_names(X: Any) -> None:
    """Raise if two columns of a dataframe have the same name; which one is meant would be a guess."""
    if is_frame(X) and len(names := list(X.columns)) != len(set(names)):
        equal = sorted({str(name) for name in names if names.count(name) > 1})
        raise ValueError(f"X has columns of equal names, {equal}; rename them, or pass an array.")


def row_coordinates(X: Any, column: int | str) -> np.ndarray:
    """Return the coordinate column of a table in its own dtype."""
    position = column_position(X, column)
    if is_frame(X):
        name = list(X.columns)[position]
        return coordinate_values(X[name], f"coordinate ({name!r})")
    return coordinate_values(X[:, position], f"coordinate ({position})")


def column_position(X: Any, column: int | str) -> int:
    """Return where the coordinate column is.

    Raises
    ------
    ValueError
        If there is no such column.
    """
    n_columns = X.shape[1]
    if isinstance(column, str):
        if not is_frame(X):
            raise ValueError(
                f"column={column!r} names a column, but X has no column names; pass a dataframe, or its position."
            )
        names = list(X.columns)
        if column not in names:
            raise ValueError(f"column={column!r} is not a column of X; its columns are {names}.")
        return names.index(column)
    if not -n_columns <= column < n_columns:
        raise ValueError(f"column={column} is not a column of X, which has {n_columns} column(s).")
    return int(column) % n_columns


def drop_column(X: Any, column: int | str) -> Any:
    """Return a table without a column, in its container."""
    position = column_position(X, column)
    if is_frame(X):
        return X[[name for i, name in enumerate(X.columns) if i != position]]
    return np.delete(X, position, axis=1)


def take_rows(table: Any, rows: np.ndarray) -> Any:
    """Return marked rows, or those at positions, of an array, dataframe, series or list; None stays None."""
    if table is None:
        return None
    if not hasattr(table, "shape") and not isinstance(table, (list, tuple)):
        table = np.asarray(table)
    return safe_indexing(table, np.flatnonzero(rows) if rows.dtype == bool else rows)
