"""Ranges to search: intervals of an axis as a grid for GridSearchCV."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from skjaxwin.bounds import coordinate_values
from skjaxwin.interval_widths import intervals_of_width
from skjaxwin.range_columns import numbers_from_names

__all__ = ["interval_grid"]


def interval_grid(
    coordinates: Any, n: int | None = None, *, widths: Any = None, step: Any = None, prefix: str = ""
) -> list[dict[str, list[Any]]]:
    """Cut an axis into intervals, none of them empty.

    For the selection of intervals by cross-validation, as in interval PLS: the result is a ``param_grid``.

    Parameters
    ----------
    coordinates : array-like of shape (n_points,)
        Numbers or dates, in any order; or the names of a dataframe's columns, of which ``SubsetTransformer(axis=1,
        coordinates="feature_names")`` makes the same numbers.
    n : int, default=None
        That many adjacent intervals of equally many distinct coordinates (or one more).
    widths : scalar or sequence, default=None
        Widths in the unit of the coordinates (timedeltas for dates), instead of `n`. For each width, intervals
        begin at the smallest coordinate and then every `step`, up to the first that reaches the last coordinate. A
        bound that misses a float coordinate by rounding alone is that coordinate.
    step : scalar, default=None
        Distance between the beginnings of intervals of a width; None is the width itself.
    prefix : str, default=""
        Put before the names, for a step of a pipeline: ``"subset__"``.

    Returns
    -------
    grid : list of dict
        Dicts like ``{"start": [1.0], "stop": [2.0]}``, none of them twice. Intervals are half-open; those
        that reach the last coordinate have ``stop=None``.

    Raises
    ------
    ValueError
        If not one of `n` and `widths` is given, or they make no interval.

    References
    ----------
    L. Norgaard, A. Saudland, J. Wagner, J. P. Nielsen, L. Munck, S. B. Engelsen: Interval partial least-squares
    regression (iPLS). Applied Spectroscopy 54 (2000), 413-419.

    Examples
    --------
    >>> from skjaxwin import interval_grid
    >>> interval_grid([400, 500, 600, 700, 800], 2)
    [{'start': [400], 'stop': [700]}, {'start': [700], 'stop': [None]}]
    >>> [(c["start"][0], c["stop"][0]) for c in interval_grid([0, 1, 2, 9], widths=[3, 8])]
    [(0, 3), (9, None), (0, 8), (8, None)]
    """
    if _are_names(coordinates):
        coordinates = numbers_from_names(list(coordinates))
    points = np.unique(coordinate_values(coordinates, "coordinate"))
    if not len(points):
        raise ValueError("coordinates are empty; give at least one.")
    if (n is None) == (widths is None):
        raise ValueError("Give either n, the number of intervals, or widths.")
    if n is not None:
        if step is not None:
            raise ValueError("step goes with widths, not with n.")
        bounds = _equal_counts(points, n)
    else:
        if np.ndim(widths) > 1 or not len(np.atleast_1d(widths)):
            raise ValueError(f"widths must be a number or timedelta, or a list of at least one, got {widths!r}.")
        pairs = [pair for width in np.atleast_1d(widths) for pair in intervals_of_width(points, width, step)]
        bounds = list(dict.fromkeys(pairs))  # the last interval may be one of several widths
    return [{f"{prefix}start": [_scalar(a)], f"{prefix}stop": [_scalar(b)]} for a, b in bounds]


def _are_names(coordinates: Any) -> bool:
    """Say whether all coordinates are text."""
    values = np.asarray(coordinates)
    return values.ndim == 1 and values.dtype.kind in "OUT" and all(isinstance(value, str) for value in values)


def _equal_counts(points: np.ndarray, n: Any) -> list[tuple[Any, Any]]:
    if not isinstance(n, Integral) or isinstance(n, bool) or not 1 <= int(n) <= len(points):
        raise ValueError(
            f"n={n!r} must be an integer from 1 to {len(points)}, the number of distinct coordinates: each interval "
            "holds at least one."
        )
    starts = [part[0] for part in np.array_split(points, int(n))]
    return list(zip(starts, [*starts[1:], None], strict=True))


def _scalar(value: Any) -> Any:
    """Turn a NumPy number into Python's; dates stay NumPy's, which keep their unit."""
    return value.item() if isinstance(value, np.generic) and value.dtype.kind in "iuf" else value
