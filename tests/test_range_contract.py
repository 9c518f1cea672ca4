"""What estimators that isolate ranges owe: states after failed fits, data of other dtypes, names, any columns."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.utils.validation import check_is_fitted

from skjaxwin import RangeEstimator, SubsetSampler, SubsetTransformer, interval_grid

X = np.column_stack([np.arange(20.0), np.arange(20.0) ** 2])
KINDS = [
    SubsetTransformer(2, 9),
    SubsetTransformer(0, 1, axis=1),
    SubsetSampler(2, 9),
    RangeEstimator(Ridge(), 2, 9),
]


@pytest.mark.parametrize("estimator", KINDS, ids=["rows", "columns", "sampler", "estimator"])
@pytest.mark.parametrize(
    "wrong",
    [{"start": 1000, "stop": 2000}, {"start": "a"}, {"start": [1]}, {"start": object()}],
    ids=["outside", "text", "list", "object"],
)
def test_a_failed_fit_leaves_nothing_behind(estimator, wrong):
    estimator = clone(estimator)
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)
    check_is_fitted(pickle.loads(pickle.dumps(estimator.fit(X, X[:, 1]))))
    before = estimator.get_params()
    with pytest.raises((ValueError, TypeError)):
        estimator.set_params(**wrong).fit(X, X[:, 1])
    for method in ("transform", "mask", "isolate", "predict", "score", "get_feature_names_out"):
        if hasattr(estimator, method):
            with pytest.raises(NotFittedError):
                getattr(estimator, method)(X)
    for attribute in ("support_", "coordinates_", "sample_indices_", "estimator_", "classes_"):
        assert not hasattr(estimator, attribute)
    check_is_fitted(estimator.set_params(**{k: v for k, v in before.items() if k in wrong}).fit(X, X[:, 1]))


def test_an_axis_that_was_not_fitted():
    rows = SubsetTransformer(0, 1).fit(X)
    with pytest.raises(NotFittedError):
        rows.set_params(axis=1).transform(X)


def test_new_data_may_be_of_another_dtype():
    """No integer lies in [5.1, 5.9), though the fit has seen points there; 16 bits do not tell bounds apart."""
    y = X[:, 1]
    for dtype in (np.int64, np.int32, np.uint8):
        whole = np.arange(20).astype(dtype)[:, None]
        rows = SubsetTransformer([5.1, 7], [5.9, 8]).fit(X + 0.5)
        assert rows.mask(whole.repeat(2, axis=1)).nonzero()[0].tolist() == [7]
        rows = SubsetTransformer(5.1, 5.9).fit(X[:, :1] + 0.5)
        assert rows.transform(whole).tolist() == [[0]] * 20 and not rows.mask(whole).any()
        with pytest.raises(ValueError, match=r"No row lies in \[5.1, 5.9\)"):
            rows.isolate(whole)
        ranged = RangeEstimator(Ridge(), 5.1, 5.9).fit(X[:, :1] + 0.5, y)
        assert ranged.predict(whole).shape == (20,) and not ranged.mask(whole).any()
        with pytest.raises(ValueError, match=r"No row lies in \[5.1, 5.9\)"):
            ranged.score(whole, y)
        with pytest.raises(ValueError, match="is not below"):
            SubsetTransformer(5.1, 5.9).fit(whole)
    fine = SubsetTransformer(0.9999, 1.0).fit([[0.99995]])
    assert not fine.mask(np.array([[1.0]], np.float16)).any()


@pytest.mark.parametrize("output", ["default", "pandas", "polars"])
def test_names_that_columns_of_the_input_have_already(output):
    names = ["in_range", "pad0", "pad_0", "d", "in_range_"]
    frame = pd.DataFrame(np.ones((3, 5)), columns=names)
    for made, expected in [
        (SubsetTransformer(0, add_indicator=True), [*names, "in_range__"]),
        (SubsetTransformer(1, 4, axis=1, output="pad"), ["pad0", "pad_0", "d", "pad__0"]),
        (SubsetTransformer(2, axis=1, output="pad"), ["pad_0", "d", "in_range_", "pad__0"]),
    ]:
        made = made.set_output(transform=output).fit(frame)
        out = made.transform(frame)
        assert made.get_feature_names_out().tolist() == expected
        assert out.shape == (3, len(expected)) and (output == "default" or list(out.columns) == expected)


def test_columns_of_equal_names_are_refused():
    frame = pd.DataFrame(X, columns=["a", "a"])
    for made in (*KINDS, SubsetTransformer(axis=1, coordinates=[1, 2])):
        with pytest.raises(ValueError, match=r"columns of equal names, \['a'\]"):
            clone(made).fit(frame, X[:, 1])


@pytest.mark.parametrize("container", [pd.DataFrame, pl.DataFrame])
def test_rows_are_isolated_with_text_and_dates_beside_them(container):
    days = pd.date_range("2024-01-01", periods=6)
    frame = container({"x": np.arange(6), "day": days, "name": list("abcdef")})
    for column, start, stop in [("x", 2, 4), ("day", "2024-01-03", "2024-01-05")]:
        rows = SubsetTransformer(start, stop, column=column).fit(frame)
        kept, names = rows.isolate(frame, frame["name"])
        assert type(kept) is container and kept["x"].to_list() == [2, 3] and names.to_list() == ["c", "d"]
        assert rows.mask(frame).nonzero()[0].tolist() == [2, 3]
        with pytest.raises(ValueError, match=r"isolate\(X, y\) or mask\(X\)"):
            rows.transform(frame)
    objects = np.array([[0, "a", days[0]], [1, "b", days[1]], [2, None, days[2]]], dtype=object)
    assert SubsetTransformer(1, 2).fit(objects).isolate(objects).tolist() == [[1, "b", days[1]]]
    with pytest.raises(ValueError, match=r"transform cannot put X .*could not convert"):
        SubsetTransformer(1).fit(objects[:, :2]).transform(objects[:, :2])
    with pytest.raises(TypeError, match="argument must be a string, a number or a date"):
        SubsetTransformer(1).fit(np.array([[1, {}]], dtype=object))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_fill_value_beyond_the_dtype_is_refused(axis):
    """It would become infinite without a word."""
    for dtype, fill, limit in [
        (np.float32, 1e39, "3.4e"),
        (np.float32, -1e300, "3.4e"),
        (np.float16, 70000, "6.55e"),
        (np.float64, 10**400, "1.8e"),
        (np.int64, -(10**400), "1.8e"),
    ]:
        made = SubsetTransformer(0, 1, axis=axis, fill_value=fill)
        with pytest.raises(ValueError, match=rf"fill_value=.* is beyond float.*{limit}"):
            made.fit(np.arange(4).reshape(2, 2)).transform(np.arange(4).reshape(2, 2).astype(dtype))
    small = np.arange(4).reshape(2, 2).astype(np.float32)
    for fill in (math.inf, -math.inf, 3.4028235e38, 1e-300, Fraction(1, 3), np.float64(2)):
        filled = SubsetTransformer(0, 1, axis=axis, fill_value=fill).fit_transform(small)
        assert filled.dtype == np.float32 and filled[1, 1] == np.float32(fill)


def test_names_of_columns_as_numbers():
    names = ["400", "500.5", "600", "7e2"]
    frame = pd.DataFrame(np.ones((2, 4)), columns=names)
    numbers = np.array([400, 500.5, 600, 700])
    for columns in (names, frame.columns, pl.from_pandas(frame).columns, np.array(names)):
        assert interval_grid(columns, 2) == interval_grid(numbers, 2)
        assert interval_grid(columns, widths=[100, 250], step=50) == interval_grid(numbers, widths=[100, 250], step=50)
    assert interval_grid(["1", "2"], 2)[0] == {"start": [1], "stop": [2]}
    band = SubsetTransformer(axis=1, coordinates="feature_names", output="crop")
    widths = [band.set_params(start=c["start"][0], stop=c["stop"][0]).fit(frame) for c in interval_grid(names, 2)]
    assert len(widths) == 2 and band.get_feature_names_out().tolist() == ["600", "7e2"]
    with pytest.raises(ValueError, match="'600 nm' is no number"):
        interval_grid(["400", "600 nm"], 2)
