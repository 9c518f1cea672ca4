"""SubsetTransformer and SubsetSampler against NumPy's own slices and masks."""

from __future__ import annotations

import datetime
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from skjaxwin import RollingJaxEstimator, SubsetSampler, SubsetTransformer

DTYPES = [np.float64, np.float32, np.int64, np.int32, np.uint8, np.float16]


def columns(X, *args, **keywords):
    return SubsetTransformer(*args, axis=1, **keywords).fit_transform(X)


@st.composite
def axes(draw):
    """Coordinates in any order, with ties, and bounds of which most lie on them."""
    dtype = draw(st.sampled_from(DTYPES))
    scale = 1 if np.dtype(dtype).kind in "iu" else 0.1
    x = (np.array(draw(st.lists(st.integers(0, 20), min_size=2, max_size=30))) * scale).astype(dtype)
    bound = st.one_of(st.none(), st.sampled_from(x.tolist()), st.integers(0, 22).map(lambda i: i * scale))
    n = draw(st.integers(1, 3))
    pairs = [(draw(bound), draw(bound)) for _ in range(n)]
    ranges = [(a, b) if a is None or b is None else (min(a, b), max(a, b)) for a, b in pairs]
    return x, ranges


def by_a_plain_loop(x, ranges):
    """Return a mask for each range, with bounds in the dtype of x, and whether one of them is reversed."""
    exact = [tuple(None if bound is None else x.dtype.type(bound).item() for bound in pair) for pair in ranges]
    masks = [[(a is None or v >= a) and (b is None or v < b) for v in x.tolist()] for a, b in exact]
    return np.array(masks), any(a is not None and b is not None and a >= b for a, b in exact)


@given(axes())
def test_rows_and_columns_are_those_of_a_plain_loop(axis):
    x, ranges = axis
    start, stop = ([a for a, _ in ranges], [b for _, b in ranges]) if len(ranges) > 1 else ranges[0]
    masks, reversed_range = by_a_plain_loop(x, ranges)
    inside = np.any(masks, axis=0)
    X = np.column_stack([x, np.arange(len(x))])
    if reversed_range or not inside.any():
        with pytest.raises(ValueError, match="is not below|No row lies"):
            SubsetTransformer(start, stop).fit(X)
    else:
        rows = SubsetTransformer(start, stop).fit(X)
        np.testing.assert_array_equal(rows.mask(X), inside)
        np.testing.assert_array_equal(rows.isolate(X), X[inside])
        np.testing.assert_array_equal(rows.transform(X), X * inside[:, None])
        kept, labels = SubsetSampler(start, stop).fit_resample(X, X[:, 1])
        np.testing.assert_array_equal(kept, X[inside])
        np.testing.assert_array_equal(labels, X[inside, 1])
    if reversed_range or not np.all(np.any(masks, axis=1)):
        with pytest.raises(ValueError, match="is not below|No column lies"):
            columns(X.T, start, stop, coordinates=x)
    else:
        np.testing.assert_array_equal(columns(X.T, start, stop, coordinates=x), X.T * inside)
        cropped = columns(X.T, start, stop, coordinates=x, output="crop")
        np.testing.assert_array_equal(cropped, X.T[:, inside])
        padded = columns(X.T, start, stop, coordinates=x, output="pad", fill_value=7)
        np.testing.assert_array_equal(padded[:, : inside.sum()], cropped)
        assert (padded[:, inside.sum() :] == 7).all()
        assert padded.shape[1] == min(1 << (int(inside.sum()) - 1).bit_length(), len(x))


@given(st.integers(-12, 12) | st.none(), st.integers(-12, 12) | st.none(), st.integers(1, 10))
def test_positions_are_those_of_slices(start, stop, n):
    X = np.arange(3.0 * n).reshape(3, n)
    if len(range(n)[start:stop]) == 0:
        with pytest.raises(ValueError, match="is not below|No column lies"):
            columns(X, start, stop, by="position", output="crop")
        with pytest.raises(ValueError, match="is not below|No row lies"):
            SubsetSampler(start, stop, by="position").fit_resample(X.T, X.T)
        return
    np.testing.assert_array_equal(columns(X, start, stop, by="position", output="crop"), X[:, start:stop])
    kept, _ = SubsetSampler(start, stop, by="position").fit_resample(X.T, X.T)
    np.testing.assert_array_equal(kept, X.T[start:stop])
    rows = SubsetTransformer(start, stop, by="position").fit(X.T)
    np.testing.assert_array_equal(rows.isolate(X.T), X.T[start:stop])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", [1, -1], ids=["ascending", "descending"])
def test_bounds_on_grid_points_are_half_open(dtype, order):
    grid = (np.arange(20) / 10).astype(dtype)[::order].copy()
    X = np.arange(20.0)[None, ::order]
    for i in range(19):
        for j in range(i + 1, 20):
            cropped = columns(X, i / 10, j / 10, coordinates=grid, output="crop")
            assert cropped[0, ::order].tolist() == list(range(i, j))
        assert columns(X, i / 10, None, coordinates=grid, output="crop")[0, ::order].tolist() == list(range(i, 20))


def test_edges_that_range_cutters_get_wrong():
    X, wavelengths = np.arange(5.0)[None], np.array([800, 700, 600, 500, 400])
    assert columns(X, 400, coordinates=wavelengths, output="crop").tolist() == X.tolist()  # the last one is reached
    assert columns(X, 500, 701, coordinates=wavelengths, output="crop").tolist() == [[1, 2, 3]]  # descending
    assert columns(X, 500.5, 600.5, coordinates=wavelengths, output="crop").tolist() == [[2]]
    # Between grid points the nearest one is not taken.
    assert columns(X, 501, 699, coordinates=wavelengths, output="crop").tolist() == [[2]]
    with pytest.raises(ValueError, match=r"No column lies in \[510, 590\); X has 5 feature.* from 400 to 800"):
        columns(X, 510, 590, coordinates=wavelengths, output="crop")
    with pytest.raises(ValueError, match=r"No column lies in \[510, 590\)"):  # one of two ranges
        columns(X, [400, 510], [500, 590], coordinates=wavelengths)
    with pytest.raises(ValueError, match=r"No column lies in \[1000, ...\)"):
        columns(X, 1000, coordinates=wavelengths)
    assert columns(X, -np.inf, np.inf, coordinates=wavelengths).tolist() == X.tolist()
    assert columns(X, np.array(600), coordinates=wavelengths, output="crop").tolist() == [[0, 1, 2]]
    for start, stop in [(5, 5), (6, 5), (np.inf, -np.inf), (500.1, 500.9)]:
        with pytest.raises(ValueError, match="is not below"):
            columns(X, start, stop, coordinates=wavelengths)


def test_integers_that_floats_cannot_tell_apart():
    x = 2**60 + np.arange(6)
    X = np.column_stack([x, np.arange(6)])
    rows = SubsetTransformer(2**60 + 1, 2**60 + 3).fit(X)
    assert rows.isolate(X)[:, 1].tolist() == [1, 2]
    assert rows.transform(X)[1, 0] == 2**60 + 1  # integers stay integers
    assert SubsetTransformer(2.0**60 + 256).fit(X + [[256, 0]]).mask(X).sum() == 0
    large = np.array([2**64 - 2, 2**64 - 1], np.uint64)
    assert columns([[1.0, 2.0]], 2**64 - 1, coordinates=large, output="crop").tolist() == [[2.0]]


@pytest.mark.parametrize(
    "start, stop",
    [
        ("2024-02-01", "2024-02-03"),
        (np.datetime64("2024-02"), np.datetime64("2024-02-02T00:00:00.001")),
        (datetime.date(2024, 2, 1), datetime.datetime(2024, 2, 3)),
        (pd.Timestamp("2024-01-31T23:59"), pd.Timestamp("2024-02-03", tz="UTC")),
        (np.datetime64("2024-02-01", "us"), "9999-01-01"),
    ],
)
@pytest.mark.parametrize("unit", ["D", "ms", "ns"])
def test_dates(start, stop, unit):
    days = np.arange("2024-01-30", "2024-02-03", dtype="datetime64[D]").astype(f"datetime64[{unit}]")
    X = np.arange(4.0)[None]
    assert columns(X, start, stop, coordinates=days, output="crop").tolist() == [[2, 3]]
    frame = pd.DataFrame({"y": X[0], "day": days.astype("datetime64[ms]")})
    rows = SubsetTransformer(start, stop, column="day").fit(frame)
    assert rows.isolate(frame)["y"].tolist() == [2, 3]
    assert rows.isolate(frame, frame["y"])[1].index.tolist() == [2, 3]
    with pytest.raises(ValueError, match=r"\('day'\) holds dates, which transform cannot put"):
        rows.transform(frame)
    objects = frame.astype({"day": object})
    assert SubsetTransformer(start, stop, column="day").fit(objects).isolate(objects)["y"].tolist() == [2, 3]
    array = days[:, None]
    assert SubsetTransformer(start, stop).fit(array).isolate(array)[:, 0].tolist() == days[2:].tolist()
    polars = pl.from_pandas(frame)
    assert SubsetTransformer(start, stop, column="day").fit(polars).mask(polars).tolist() == [False, False, True, True]


def test_dates_and_durations_beyond_the_unit_of_the_coordinates():
    days = np.arange("2024-01-30", "2024-02-03", dtype="datetime64[D]")
    X = np.arange(4.0)[None]
    # A nanosecond after midnight leaves the day out: rounded up, not down.
    assert columns(X, np.datetime64("2024-01-31T00:00:00.000000001"), coordinates=days, output="crop").tolist() == [
        [2, 3]
    ]
    # Year 9999 does not fit into nanoseconds.
    fine = days.astype("datetime64[ns]")
    assert columns(X, None, np.datetime64("9999-01-01"), coordinates=fine).tolist() == X.tolist()
    with pytest.raises(ValueError, match="No column lies"):
        columns(X, np.datetime64("9999-01-01"), coordinates=fine)
    assert columns(X, -np.inf, "2024-02-01", coordinates=days, output="crop").tolist() == [[0, 1]]
    assert columns(X, "2024-02-01", np.inf, coordinates=days, output="crop").tolist() == [[2, 3]]
    spans = np.arange(4) * np.timedelta64(1, "h")
    assert columns(X, datetime.timedelta(minutes=61), coordinates=spans, output="crop").tolist() == [[2, 3]]
    months = np.array(["2024-01", "2024-02"], dtype="datetime64[M]")
    assert columns([[1.0, 2.0]], "2024-01-15", coordinates=months, output="crop").tolist() == [[2.0]]


def test_bounds_of_the_wrong_kind_name_what_to_give():
    days = np.arange("2024-01-30", "2024-02-03", dtype="datetime64[D]")
    X = np.arange(4.0)[None]
    wrong = [
        (5, days, TypeError, "start=5 is a number, but the coordinates are dates"),
        ("yesterday", days, ValueError, "start='yesterday' is no date; write it like"),
        (np.datetime64("NaT", "D"), days, ValueError, "start is NaT"),
        (pd.NaT, days, ValueError, "start is NaT"),
        (np.timedelta64(1, "D"), days, TypeError, "is no date"),
        ("5", np.arange(4), TypeError, "start='5' is no number"),
        (days[0], np.arange(4), TypeError, "is no number, but the coordinates are numbers"),
        (np.nan, np.arange(4), ValueError, "start is NaN"),
        (days[0], days - days[0], TypeError, "is no duration"),
        (np.timedelta64(1, "M"), days - days[0], TypeError, "no fixed length"),
        ([[1]], np.arange(4), ValueError, "flat list"),
        ([1, 2], np.arange(4), ValueError, "two lists of equal length"),
    ]
    for start, coordinates, error, message in wrong:
        with pytest.raises(error, match=message):
            columns(X, start, coordinates=coordinates)
    for start, stop in [([1, 2], [3]), ([1], None), (1, [2])]:
        with pytest.raises(ValueError, match="two lists of equal length"):
            columns(X, start, stop)
    with pytest.raises(ValueError, match="empty lists"):
        columns(X, [], [])
    for position in (0.5, "a", -np.inf, True):
        with pytest.raises(TypeError, match="is no position"):
            columns(X, position, by="position")


def test_missing_coordinates_raise_and_other_missing_values_pass():
    X = np.array([[0.0, np.nan], [1.0, 2.0], [2.0, np.nan]])
    isolated = SubsetTransformer(1).fit_transform(X)
    np.testing.assert_array_equal(isolated, [[0, 0], [1, 2], [2, np.nan]])
    np.testing.assert_array_equal(columns(X, 1, fill_value=np.nan), np.column_stack([[np.nan] * 3, X[:, 1]]))
    with pytest.raises(ValueError, match=r"coordinate \(1\) column contains NaN"):
        SubsetTransformer(1, column=1).fit(X)
    with pytest.raises(ValueError, match=r"coordinate \(1\) column contains NaN"):
        SubsetSampler(1, column=1).fit_resample(X, [0, 1, 2])
    with pytest.raises(ValueError, match="coordinate column contains NaN"):
        columns(X, coordinates=[1, np.nan])
    with pytest.raises(ValueError, match="infinity"):
        columns(X, coordinates=[1, np.inf])


def test_unsorted_rows_keep_their_order(rng):
    X = np.column_stack([rng.permutation(20), np.arange(20)])
    inside = (X[:, 0] >= 5) & (X[:, 0] < 9)
    rows = SubsetTransformer(5, 9).fit(X)
    np.testing.assert_array_equal(rows.isolate(X, X[:, 1])[1], X[inside, 1])
    sampler = SubsetSampler(5, 9)
    sampler.fit_resample(X, X[:, 1])
    np.testing.assert_array_equal(sampler.sample_indices_, np.flatnonzero(inside))


def test_new_rows_may_all_be_out_of_range_but_isolating_none_raises():
    X = np.arange(6.0)[:, None]
    rows = SubsetTransformer(4, add_indicator=True).fit(X)
    assert rows.transform(X[:2]).tolist() == [[0, 0], [0, 0]]
    assert not rows.mask(X[:2]).any()
    with pytest.raises(ValueError, match="No row lies"):
        rows.isolate(X[:2])


def test_a_mask_is_a_sample_weight():
    x = np.linspace(0, 10, 50)
    X, y = np.column_stack([x, np.sin(x)]), np.where(x < 5, 2 * x, -x)
    mask = SubsetTransformer(stop=5).fit(X).mask(X)
    for model in (LinearRegression(), RollingJaxEstimator(step=50)):
        weighted = model.fit(X, y, sample_weight=mask)
        np.testing.assert_allclose(weighted.coef_, [2, 0], atol=1e-9)


def test_names_of_columns():
    frame = pd.DataFrame(np.arange(8.0).reshape(2, 4), columns=["400", "500.5", "600", "7e2"])
    band = SubsetTransformer(500, 700, axis=1, coordinates="feature_names", output="crop").set_output(
        transform="pandas"
    )
    assert band.fit_transform(frame).columns.tolist() == ["500.5", "600"]
    assert band.coordinates_.tolist() == [400, 500.5, 600, 700]
    band.set_params(output="pad", stop=None).fit(frame)
    assert band.transform(frame).columns.tolist() == ["500.5", "600", "7e2", "pad0"]
    band.set_params(output="mask").fit(frame)
    assert band.transform(frame).columns.tolist() == list(frame.columns)
    with pytest.raises(ValueError, match="feature names should match"):
        band.transform(frame.rename(columns={"400": "401"}))
    numbered = frame.set_axis([400, 500, 600, 700], axis=1)  # names that are no text, of which scikit-learn keeps none
    band = SubsetTransformer(500, 700, axis=1, coordinates="feature_names").fit(numbered)
    assert band.support_.tolist() == [False, True, True, False]
    with pytest.raises(ValueError, match="other coordinates"):
        band.transform(frame.set_axis([400, 500, 600, 800], axis=1))
    with pytest.raises(ValueError, match="'600nm' is no number"):
        SubsetTransformer(axis=1, coordinates="feature_names").fit(frame.rename(columns={"600": "600nm"}))
    with pytest.raises(ValueError, match="needs a dataframe"):
        SubsetTransformer(axis=1, coordinates="feature_names").fit(frame.to_numpy())
    rows = SubsetTransformer(1, column="7e2", add_indicator=True).fit(frame)
    assert rows.get_feature_names_out().tolist() == [*frame.columns, "in_range"]
    with pytest.raises(ValueError, match="column='x' is not a column of X"):
        SubsetTransformer(column="x").fit(frame)
    with pytest.raises(ValueError, match="column=4 is not a column"):
        SubsetTransformer(column=4).fit(frame)
    with pytest.raises(ValueError, match="X has no column names"):
        SubsetTransformer(column="x").fit(frame.to_numpy())


@pytest.mark.parametrize("dtype", [*DTYPES, bool])
def test_dtypes_are_kept_where_they_can_hold_the_fill(dtype):
    X = np.ones((2, 4), dtype)
    assert columns(X, 1).dtype == dtype
    assert columns(X, 1, output="crop", fill_value=0.5).dtype == dtype
    for output in ("mask", "pad"):
        wide = columns(X, 1, output=output, fill_value=0.5)
        assert wide.dtype == (dtype if np.dtype(dtype).kind == "f" else np.float64)
        assert (wide == 0.5).sum() == 2
    assert SubsetTransformer(0, fill_value=np.nan).fit_transform(X).dtype == wide.dtype


def test_parameters_that_do_not_go_together():
    X = np.arange(8.0).reshape(2, 4)
    for keywords, message in [
        ({"axis": 2}, "axis=2 must be 0"),
        ({"output": "crop"}, "a transformer keeps every row"),
        ({"output": "pad"}, "a transformer keeps every row"),
        ({"coordinates": [1, 2, 3, 4]}, "set column"),
        ({"axis": 1, "add_indicator": True}, "see support_"),
        ({"axis": 1, "by": "position", "coordinates": [1, 2, 3, 4]}, "no effect"),
        ({"axis": 1, "coordinates": [1, 2, 3]}, "3 values, but X has 4"),
    ]:
        with pytest.raises(ValueError, match=message):
            SubsetTransformer(**keywords).fit(X)
    transformer = SubsetTransformer(axis=1).fit(X)
    assert not hasattr(transformer, "mask") and not hasattr(transformer, "isolate")
    with pytest.raises(TypeError, match="dense data is required"):
        columns(scipy.sparse.csr_array(X), 1)
    with pytest.raises(TypeError, match="dense data is required"):
        SubsetTransformer(1).fit(scipy.sparse.csr_array(X))


@pytest.mark.parametrize("start", [np.float64(1), [1.0], (1.0,), np.array([1.0]), "2024-01-01", None])
@pytest.mark.parametrize("kind", [SubsetTransformer, SubsetSampler])
def test_parameters_are_stored_as_they_are(kind, start):
    made = kind(start, start)
    assert made.start is start
    clone(made)
    again = pickle.loads(pickle.dumps(clone(made)))
    assert np.array_equal(again.start, start) and again.get_params().keys() == made.get_params().keys()


def test_fitted_results_are_plain_and_belong_to_no_one_else():
    X = np.arange(8.0).reshape(2, 4)
    grid = np.arange(4)
    band = SubsetTransformer(1, 3, axis=1, coordinates=grid).fit(X)
    out = band.transform(X)
    assert type(out) is np.ndarray and out.flags.writeable and X[0, 0] == 0
    out[:] = 5
    assert X[0, 1] == 1
    assert make_pipeline(band, MinMaxScaler()).fit_transform(X).shape == (2, 4)
    grid[:] = 9
    assert band.coordinates_.tolist() == [0, 1, 2, 3]
    rows = SubsetTransformer().fit(X)
    rows.transform(X)[:] = 5
    assert X[0, 1] == 1
