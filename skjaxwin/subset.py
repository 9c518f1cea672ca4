"""SubsetTransformer: isolate a range of rows or of columns."""

from __future__ import annotations

import datetime
import math
import reprlib
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from skjaxwin._sklearn_private import StrOptions, check_feature_names_in
from skjaxwin.kernels import bucket
from skjaxwin.range_columns import column_coordinates
from skjaxwin.range_rows import RangeRows, is_frame, refuse_equal_names, rows_in_range, take_rows
from skjaxwin.ranges import BOUND, parse_ranges, position_masks, refuse_empty, value_masks

__all__ = ["SubsetTransformer"]


def _of_rows(transformer: SubsetTransformer) -> bool:
    if transformer.axis != 0:
        raise AttributeError(f"axis={transformer.axis!r} isolates columns; isolate and mask are for rows, axis=0.")
    return True


class SubsetTransformer(TransformerMixin, BaseEstimator):
    """Isolate the rows or columns whose coordinate lies in a range.

    With ``axis=0`` the rows of X are points of a signal and one column holds their coordinate;
    `transform` keeps every row, as scikit-learn asks, and fills those out of range. With ``axis=1`` the columns are
    points of a grid that all rows share, such as the wavelengths of spectra.

    Parameters
    ----------
    start, stop : number, date, list of these, or None, default=None
        The range is half-open, ``[start, stop)``, whatever the order of the coordinates; None is no bound. Two
        lists of equal length are a union of ranges.
    axis : {0, 1}, default=0
        Isolate rows (0) or columns (1).
    by : {"value", "position"}, default="value"
        Whether bounds are values of the coordinate, or positions of rows or columns as in a slice. Positions of
        rows are those in the table that is passed at the time.
    column : int or str, default=0
        For ``axis=0``: position or name of the column that holds the coordinate.
    coordinates : array-like of shape (n_columns,) or "feature_names", default=None
        For ``axis=1``: the coordinate of each column, in any order; "feature_names" takes the names of a
        dataframe's columns, which must be numbers. None: 0, 1, 2, ...
    output : {"mask", "crop", "pad"}, default="mask"
        For ``axis=1``: "mask" keeps all columns and fills those out of range, so that compiled code downstream
        sees a single shape for all ranges; "crop" drops them; "pad" drops them and appends filled columns up to the
        next power of two (not beyond the width of X).
    fill_value : float, default=0.0
        What is put in place of values out of range.
    add_indicator : bool, default=False
        For ``axis=0``: append a column that is 1 for rows in range and 0 for others.

    Attributes
    ----------
    support_ : ndarray of bool of shape (n_columns,)
        For ``axis=1``: the columns in range.
    coordinates_ : ndarray of shape (n_columns,)
        For ``axis=1``: the coordinate of each column.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        If X had names.

    See Also
    --------
    RangeEstimator : Fits and scores an estimator on the rows in a range.
    SubsetSampler : Drops rows, in imbalanced-learn's Pipeline.
    isolate : The same inside a function of your own that JAX compiles.

    Notes
    -----
    Coordinates are compared in their own dtype: integers and dates exactly, floats with bounds rounded
    to their dtype. `fit` raises if there is nothing in the range (with ``axis=1``: in each of the ranges).

    The dtype of X is kept; integers become float64 where they cannot hold `fill_value`. NaN passes through,
    except in coordinates. `isolate` and `mask` take any columns beside the coordinate, `transform` only numbers.

    scikit-learn takes notice of the names of columns only if all of them are text: the columns of a dataframe with
    names such as 400 and 500 are called "x0" and "x1" in the output. With ``coordinates="feature_names"`` such
    names serve as coordinates all the same; names like "400" do and are kept, too.

    Examples
    --------
    Columns of spectra, and rows of a signal:

    >>> import numpy as np
    >>> from skjaxwin import SubsetTransformer
    >>> spectra = np.arange(8.0).reshape(2, 4)
    >>> band = SubsetTransformer(500, 700, axis=1, coordinates=[400, 500, 600, 700])
    >>> band.fit_transform(spectra).tolist()
    [[0.0, 1.0, 2.0, 0.0], [0.0, 5.0, 6.0, 0.0]]
    >>> band.set_params(output="crop").fit_transform(spectra).tolist()
    [[1.0, 2.0], [5.0, 6.0]]
    >>> signal = np.array([[0.0, 5.0], [1.0, 6.0], [2.0, 7.0]])
    >>> SubsetTransformer(1, 2, add_indicator=True).fit_transform(signal).tolist()
    [[0.0, 0.0, 0.0], [1.0, 6.0, 1.0], [0.0, 0.0, 0.0]]
    >>> SubsetTransformer(1, 2).fit(signal).isolate(signal).tolist()
    [[1.0, 6.0]]
    """

    _parameter_constraints: ClassVar[dict[str, list]] = {
        "start": BOUND,
        "stop": BOUND,
        "axis": [Integral],
        "by": [StrOptions({"value", "position"})],
        "column": [Integral, str],
        "coordinates": ["array-like", StrOptions({"feature_names"}), None],
        "output": [StrOptions({"mask", "crop", "pad"})],
        "fill_value": [Real],
        "add_indicator": ["boolean"],
    }

    def __init__(
        self,
        start: Any = None,
        stop: Any = None,
        *,
        axis: int = 0,
        by: str = "value",
        column: int | str = 0,
        coordinates: Any = None,
        output: str = "mask",
        fill_value: float = 0.0,
        add_indicator: bool = False,
    ) -> None:
        self.start = start
        self.stop = stop
        self.axis = axis
        self.by = by
        self.column = column
        self.coordinates = coordinates
        self.output = output
        self.fill_value = fill_value
        self.add_indicator = add_indicator

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Of rows the coordinate must be known, so X as a whole may not hold NaN; other columns may.
        tags.input_tags.allow_nan = self.axis == 1 or self.by == "position"
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "_fitted_axis", None) == self.axis

    def fit(self, X: Any, y: Any = None) -> SubsetTransformer:
        """Find the range.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)
        y : ignored

        Returns
        -------
        self : SubsetTransformer

        Raises
        ------
        ValueError
            For an empty range, bad data or parameters, naming them.
        TypeError
            If bounds and coordinates are of different kinds.
        """
        del y
        for name in ("support_", "coordinates_", "_fitted_axis"):
            if hasattr(self, name):
                delattr(self, name)  # a fit that fails must not leave what another one has found
        self._check_parameters()
        if self.axis == 0:
            _refuse_no_scalars(self._rows(X, reset=True, empty="raise").X)
        else:
            self._find_columns(X)
        self._fitted_axis = self.axis
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Fill or drop what is out of range.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)

        Returns
        -------
        X_isolated : ndarray or dataframe of shape (n_rows, n_columns_out)
        """
        check_is_fitted(self)
        if self.axis == 0:
            rows = self._rows(X, reset=False)
            values = self._numbers(rows)
            filled = np.where(rows.mask[:, None], values, self._fill(values.dtype))
            return np.column_stack([filled, rows.mask.astype(filled.dtype)]) if self.add_indicator else filled
        values = validate_data(self, X, reset=False, dtype="numeric", ensure_all_finite="allow-nan")
        self._check_column_names(X)
        fill = self._fill(values.dtype)
        if self.output == "mask":
            return np.where(self.support_, values, fill)
        kept = values[:, self.support_]
        if not self._n_padding():
            return kept
        return np.hstack([kept.astype(fill.dtype, copy=False), np.full((len(values), self._n_padding()), fill)])

    @available_if(_of_rows)
    def mask(self, X: Any) -> np.ndarray:
        """Say which rows lie in the range.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)

        Returns
        -------
        mask : ndarray of bool of shape (n_rows,)
            Serves as ``sample_weight``.
        """
        check_is_fitted(self)
        return self._rows(X, reset=False).mask

    @available_if(_of_rows)
    def isolate(self, X: Any, y: Any = None) -> Any:
        """Return just the rows in range.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None

        Returns
        -------
        X_isolated : ndarray or dataframe of shape (n_rows_in_range, n_columns)
            In the container that was passed.
        y_isolated : ndarray, series or dataframe
            Only if `y` was passed.

        Raises
        ------
        ValueError
            If no row lies in the range.
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False, empty="raise")
        if y is None:
            return take_rows(rows.X, rows.mask)
        check_consistent_length(rows.X, y)
        return take_rows(rows.X, rows.mask), take_rows(y, rows.mask)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """Return the names of the columns that `transform` gives.

        Parameters
        ----------
        input_features : array-like of str of shape (n_columns,), default=None
            Must equal the names seen in `fit`, if there were any.

        Returns
        -------
        names : ndarray of str
            Those of the columns kept; "in_range" for the indicator, "pad0", "pad1", ... for padding ("in_range_" or
            "pad_0", "pad_1", ... where X has columns of these names).
        """
        check_is_fitted(self)
        names = check_feature_names_in(self, input_features)
        if self.axis == 0:
            return np.append(names, _unused(names, "in_range", [""])) if self.add_indicator else names
        if self.output == "mask":
            return names
        numbers = [str(i) for i in range(self._n_padding())]
        return np.concatenate([names[self.support_], _unused(names, "pad", numbers)])

    def _check_parameters(self) -> None:
        self._validate_params()
        if self.axis not in (0, 1):
            raise ValueError(f"axis={self.axis} must be 0 (isolate rows) or 1 (isolate columns).")
        if self.axis == 0 and self.output != "mask":
            raise ValueError(
                f"output={self.output!r} is for axis=1; a transformer keeps every row. To drop rows use "
                "isolate(X, y), SubsetSampler or RangeEstimator."
            )
        if self.axis == 0 and self.coordinates is not None:
            raise ValueError("coordinates are for axis=1; with axis=0 they are in a column of X: set column.")
        if self.axis == 1 and self.add_indicator:
            raise ValueError("add_indicator=True is for axis=0; with axis=1 see support_.")
        if self.by == "position" and self.coordinates is not None:
            raise ValueError('coordinates have no effect with by="position"; leave them None, or set by="value".')

    def _rows(self, X: Any, *, reset: bool, empty: str = "allow") -> RangeRows:
        return rows_in_range(self, X, reset=reset, by=self.by, empty=empty)

    def _numbers(self, rows: RangeRows) -> np.ndarray:
        """Return a table as numbers, which only `transform` needs it to be."""
        instead = "use isolate(X, y) or mask(X), which take any columns, or turn them into numbers."
        if rows.coordinates is not None and rows.coordinates.dtype.kind in "mM":
            raise ValueError(
                f"The coordinate column ({self.column!r}) holds dates, which transform cannot put into an array of "
                f"numbers; {instead}"
            )
        try:
            X = check_array(rows.X, dtype="numeric", ensure_all_finite="allow-nan", estimator=self, input_name="X")
            return X.astype(np.float64) if X.dtype == object else X
        except (TypeError, ValueError) as error:
            raise ValueError(f"transform cannot put X into an array of numbers ({error}); {instead}") from error

    def _find_columns(self, X: Any) -> None:
        ranges = parse_ranges(self.start, self.stop)
        refuse_equal_names(X)
        validate_data(self, X, reset=True, dtype="numeric", ensure_all_finite="allow-nan")
        coordinates = column_coordinates(X, self.coordinates, self.n_features_in_)
        by_value = self.by == "value"
        masks = value_masks(coordinates, ranges) if by_value else position_masks(self.n_features_in_, ranges)
        refuse_empty(masks, ranges, "column", coordinates=coordinates if by_value else None, each=True)
        self.coordinates_: np.ndarray = coordinates
        self.support_: np.ndarray = np.logical_or.reduce(masks)

    def _check_column_names(self, X: Any) -> None:
        """Refuse other coordinates than in `fit`; scikit-learn looks at names that are text, not at numbers."""
        if isinstance(self.coordinates, str) and is_frame(X):
            given = column_coordinates(X, self.coordinates, self.n_features_in_)
            if not np.array_equal(given, self.coordinates_):
                raise ValueError("The feature names are other coordinates than those that fit has seen.")

    def _n_padding(self) -> int:
        if self.output != "pad":
            return 0
        n_kept = int(self.support_.sum())
        return min(bucket(n_kept, minimum=1), self.n_features_in_) - n_kept

    def _fill(self, dtype: np.dtype) -> np.ndarray:
        """Return the fill value in the dtype, or as float64 where an integer cannot hold it."""
        value: Any = self.fill_value
        if dtype.kind not in "fiub":
            raise TypeError(f"X has dtype {dtype}; only numbers can be filled. Convert X first.")
        if dtype.kind != "f":
            low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            if value == value and low <= value <= high and int(value) == value:
                return np.asarray(int(value), dtype)
            dtype = np.dtype(np.float64)
        try:
            with np.errstate(over="ignore"):
                fill = np.asarray(float(value)).astype(dtype)
        except OverflowError:
            fill = np.asarray(np.inf)
        if np.isinf(fill) and abs(value) < math.inf:
            raise ValueError(
                f"fill_value={reprlib.repr(value)} is beyond {dtype}, which ends at {np.finfo(dtype).max:.3g}; take a "
                "smaller one, or data of a wider dtype."
            )
        return fill


def _refuse_no_scalars(X: Any) -> None:
    """Refuse objects that are neither numbers, text nor dates, as scikit-learn does."""
    if is_frame(X) or X.dtype != object:
        return
    for value in X.ravel():
        if value is not None and not isinstance(value, (str, Real, np.generic, datetime.date, datetime.timedelta)):
            raise TypeError(f"X holds {value!r}; an argument must be a string, a number or a date.")


def _unused(names: np.ndarray, stem: str, endings: list[str]) -> np.ndarray:
    """Name columns that are appended, with underscores if X has columns of these names."""
    taken = set(names)
    while any(stem + ending in taken for ending in endings):
        stem += "_"
    return np.array([stem + ending for ending in endings], dtype=object)
