"""The coordinates of the columns of X."""

from __future__ import annotations

from typing import Any

import numpy as np

from skjaxwin.bounds import coordinate_values
from skjaxwin.range_rows import is_frame

__all__ = ["column_coordinates", "numbers_from_names"]


def column_coordinates(X: Any, coordinates: Any, n_columns: int) -> np.ndarray:
    """Return the coordinate of each column.

    Parameters
    ----------
    X : array-like or dataframe of shape (n_rows, n_columns)
    coordinates : array-like of shape (n_columns,), "feature_names" or None
        None numbers the columns.
    n_columns : int

    Returns
    -------
    coordinates : ndarray of shape (n_columns,)
        Integers, floats, datetime64 or timedelta64.

    Raises
    ------
    ValueError
        If there is not one coordinate for each column, or one is missing or no number.
    TypeError
        If coordinates are neither numbers nor dates.
    """
    if coordinates is None:
        return np.arange(n_columns)
    if isinstance(coordinates, str):
        if not is_frame(X):
            raise ValueError(
                'coordinates="feature_names" needs a dataframe with columns named by numbers, got '
                f"{type(X).__name__}; pass a dataframe, or the coordinates themselves."
            )
        return coordinate_values(numbers_from_names(list(X.columns)), "coordinate")
    # A copy: the array belongs to the user.
    values = np.array(coordinate_values(coordinates, "coordinate"))
    if len(values) != n_columns:
        raise ValueError(f"coordinates hold {len(values)} values, but X has {n_columns} column(s); give one for each.")
    return values


def numbers_from_names(names: list[Any]) -> Any:
    """Read names as numbers, as integers if all of them are; names that are no text are taken as they are."""
    if not all(isinstance(name, str) for name in names):
        return np.array(names)
    for kind in (int, float):
        try:
            return np.array([kind(name) for name in names])
        except ValueError:
            continue
    wrong = next(name for name in names if not _is_number(name))
    raise ValueError(
        f"The column name {wrong!r} is no number, so that names cannot serve as coordinates; rename it, or pass the "
        "coordinates themselves."
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
