"""Which rows belong to which window, against loops that compare times row by row."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skjaxwin import RollingJaxEstimator, models
from skjaxwin import windows as win
from skjaxwin.durations import parse_duration
from tests import reference

DAYS = [dt.datetime(2024, 1, d) for d in (1, 2, 2, 5)]


def cut(times, n=None, weight=None, **parameters):
    """Return (newest time, sorted caller's row numbers) of each window, as the reference does."""
    times = None if times is None else win.time_values(times)
    n = len(times) if n is None else n
    timeline = win.make_timeline(times, n)
    if weight is not None:
        timeline = timeline.keep(np.asarray(weight) > 0)
    windows = win.make_windows(timeline, **parameters)
    rows = [sorted(timeline.order[a:b].tolist()) for a, b in zip(windows.starts, windows.stops, strict=True)]
    return list(zip(windows.times.tolist(), rows, strict=True))


def rows_of(times, **parameters):
    return [rows for _, rows in cut(times, **parameters)]


def test_step_fits_every_seventh_stamp_and_the_last_always():
    assert [t for t, _ in cut(None, n=28, step=7)] == [6, 13, 20, 27]
    assert [t for t, _ in cut(None, n=30, step=7)] == [6, 13, 20, 27, 29]
    assert [t for t, _ in cut(None, n=3, step=7)] == [2]


def test_rows_of_a_date_share_a_fit_and_are_predicted_by_the_date_before():
    times = np.array([1, 1, 2, 2, 3, 3])
    assert cut(times) == [(1, [0, 1]), (2, [0, 1, 2, 3]), (3, [0, 1, 2, 3, 4, 5])]
    timeline = win.make_timeline(times, 6)
    windows = win.make_windows(timeline)
    before = win.newest_window_before(times, timeline.stamps, windows.last_stamps, 0)
    assert before.tolist() == [-1, -1, 0, 0, 1, 1]


def test_a_duration_does_not_reach_across_a_hole_and_a_count_does():
    times = np.array([0, 1, 2, 3, 100, 101, 102, 103])
    assert rows_of(times, window=4.0)[4:6] == [[4], [4, 5]]
    assert rows_of(times, window=4)[4:6] == [[1, 2, 3, 4], [2, 3, 4, 5]]


def test_spans_are_half_open_and_exact():
    # (t - 2, t]: the row exactly 2 older is out, the row a hair younger is in.
    assert rows_of(np.array([0.0, 2.0]), window=2.0) == [[0], [1]]
    assert rows_of(np.array([np.nextafter(0.0, 1.0), 2.0]), window=1.9999999999999998)[1] == [1]
    assert rows_of(np.array([0, 2]), window=np.nextafter(2.0, 3.0)) == [[0], [0, 1]]
    days = np.array(["2024-02-28", "2024-02-29", "2024-03-01"], dtype="datetime64[D]")
    assert rows_of(days, window="2D") == [[0], [0, 1], [1, 2]]
    # One nanosecond more, and the day two days ago belongs.
    assert rows_of(days, window=np.timedelta64(2 * 86400 * 10**9, "ns"))[2] == [1, 2]
    assert rows_of(days, window=np.timedelta64(2 * 86400 * 10**9 + 1, "ns"))[2] == [0, 1, 2]


def test_unsorted_rows_and_ties_keep_the_callers_row_numbers():
    assert cut(np.array([3, 1, 2, 1]), window=2) == [(1, [1, 3]), (2, [1, 2, 3]), (3, [0, 2])]
    assert win.make_timeline(np.array([2, 1, 2, 1]), 4).order.tolist() == [1, 3, 0, 2]  # ties stay in order


def test_rows_without_weight_make_no_stamp():
    times = np.array([1, 2, 3, 4])
    assert cut(times, weight=[1, 0, 1, 1], window=2) == [(1, [0]), (3, [0, 2]), (4, [2, 3])]


def test_min_periods_counts_rows_of_positive_weight():
    assert [t for t, _ in cut(np.array([1, 1, 2, 3]), window=1, min_periods=2)] == [1]
    with pytest.raises(ValueError, match="min_periods=3.*largest holds 2"):
        cut(np.array([1, 1, 2]), window=1, min_periods=3)


@pytest.mark.parametrize(
    "times",
    [
        np.array([2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3]),
        np.array([20240101, 20240102, 20240103, 20240104]),
        np.array([2**62, 2**62 + 1, 2**62 + 2, 2**62 + 3]),
        np.array([2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3], dtype=np.uint64),
    ],
    ids=["2**53", "YYYYMMDD", "2**62", "uint64"],
)
@pytest.mark.parametrize("window", ["expanding", 2, 2.0, 1.5])
def test_neighbouring_large_integers_stay_distinct(times, window):
    exact = Fraction(window) if isinstance(window, float) else window
    assert cut(times, window=window) == reference.window_rows(times.tolist(), np.ones(4), window=exact)
    timeline = win.make_timeline(times, 4)
    assert win.newest_window_before(times, timeline.stamps, np.arange(4), 0).tolist() == [-1, 0, 1, 2]


@pytest.mark.parametrize(
    "column",
    [
        np.array(DAYS, dtype="datetime64[D]"),
        np.array(DAYS, dtype="datetime64[us]"),
        np.array(DAYS, dtype="datetime64[ns]"),
        pd.Series(DAYS),
        pd.Series(DAYS).astype("datetime64[ns]"),
        pd.Series(DAYS).dt.tz_localize("Europe/Paris"),
        pd.Series(DAYS).astype("timestamp[us][pyarrow]"),
        pd.DatetimeIndex(DAYS),
        pl.Series(DAYS),
        pl.Series(DAYS).dt.cast_time_unit("ns"),
        pl.Series(DAYS).dt.replace_time_zone("Europe/Paris"),
        pl.Series(DAYS).dt.date(),
        DAYS,
        [d.date() for d in DAYS],
        [pd.Timestamp(d) for d in DAYS],
        [d.replace(tzinfo=dt.timezone(dt.timedelta(hours=5))) for d in DAYS],
        [np.datetime64(d) for d in DAYS],
        np.array(DAYS, dtype="datetime64[ns]") - np.datetime64("2020-01-01"),
    ],
    ids=lambda column: f"{type(column).__name__} {getattr(column, 'dtype', type(column[0]).__name__)}",
)
@pytest.mark.parametrize("window", ["4D", "96h", dt.timedelta(days=4), np.timedelta64(4, "D"), pd.Timedelta("4D")])
def test_every_container_of_dates_gives_the_same_windows(column, window):
    assert rows_of(column, window=window) == [[0], [0, 1, 2], [1, 2, 3]]
    assert rows_of(column, window=1) == [[0], [1, 2], [3]]


def test_months_are_dates_of_their_first_day():
    months = np.array(["2024-01", "2024-02", "2024-03"], dtype="datetime64[M]")
    assert rows_of(months, window="31D") == [[0], [1], [1, 2]]  # February had 29 days


def test_time_zones_are_compared_as_instants():
    # Clocks went back in Paris on 27 October 2024: 02:30 happened twice, an hour apart.
    utc = pd.Series(pd.to_datetime(["2024-10-27 00:30", "2024-10-27 01:30"], utc=True))
    paris = utc.dt.tz_convert("Europe/Paris")
    assert rows_of(paris, window=1) == [[0], [1]]
    assert rows_of(paris, window="1h") == [[0], [1]]
    mixed = [ts.to_pydatetime() for ts in (utc[1], paris[0])]
    assert rows_of(mixed, window=1) == [[1], [0]]


def test_fitted_and_predicted_dates_may_have_different_units():
    days = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]")
    asked = np.array(["2024-01-02T00:00", "2024-01-02T00:01"], dtype="datetime64[ns]")
    assert win.newest_window_before(asked, days, np.arange(2), 0).tolist() == [0, 1]
    with pytest.raises(ValueError, match="dates in both"):
        win.newest_window_before(np.array([1.0]), days, np.arange(2), 0)


def test_nanosecond_timestamps_in_a_list_stay_distinct():
    first = pd.Timestamp("2024-01-01").as_unit("ns")
    assert rows_of([first, first + pd.Timedelta(1, "ns")], window=1) == [[0], [1]]


def test_dates_beyond_the_range_of_nanoseconds():
    # datetime64[ns] ends on 11 April 2262; a duration in nanoseconds must not drag dates there.
    stamps = np.arange("2262-04-10", "2262-04-14", dtype="datetime64[D]").astype("datetime64[us]")
    for window in ("1.5D", "36h", np.timedelta64(36 * 3600 * 10**9, "ns"), pd.Timedelta("36h")):
        assert rows_of(stamps, window=window) == [[0], [0, 1], [1, 2], [2, 3]], window


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90D", 90 * 86400), ("1W", 7 * 86400), ("36h", 36 * 3600), ("15min", 900), ("10s", 10), ("1.5h", 5400)],
)
def test_durations_in_words(text, seconds):
    stamps = np.array(["2024-01-01"], dtype="datetime64[s]")
    assert parse_duration(text, stamps, "window") / np.timedelta64(1, "ns") == seconds * 10**9


@pytest.mark.parametrize("text", ["3M", "1Y", "abc", "", "D", "0D", "-1D", "1e3D", "90 D 3h", "nanD"])
def test_bad_durations_are_refused_by_name(text):
    with pytest.raises(ValueError, match=r"window='.*'"):
        rows_of(np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]"), window=text)


def test_a_duration_must_fit_the_times():
    days = np.array(["2024-01-01"], dtype="datetime64[D]")
    with pytest.raises(ValueError, match="has no unit"):
        rows_of(days, window=90.0)
    for window in ("90D", dt.timedelta(days=1), np.timedelta64(1, "D")):
        with pytest.raises(ValueError, match="plain numbers"):
            rows_of(np.array([1, 2]), window=window)
    for window in (dt.timedelta(0), np.timedelta64(-1, "D"), np.timedelta64("NaT", "D")):
        with pytest.raises(ValueError, match="positive"):
            rows_of(days, window=window)


@pytest.mark.parametrize(
    "column",
    [
        np.array([1.0, np.nan]),
        np.array(["2024-01-01", "NaT"], dtype="datetime64[D]"),
        pd.Series([pd.Timestamp("2024"), pd.NaT]),
        pd.Series([1, None], dtype="Int64"),
        pl.Series([1, None]),
        pl.Series([dt.date(2024, 1, 1), None]),
        [dt.datetime(2024, 1, 1), None],
        [1, None],
    ],
)
def test_missing_times_name_the_row(column):
    with pytest.raises(ValueError, match=r"NaN or NaT in 1 row.*row 1"):
        win.time_values(column)


def test_other_unusable_times():
    with pytest.raises(ValueError, match="infinity"):
        win.time_values([1.0, np.inf])
    for text in (["2024-01-01"], np.array(["a", "b"]), pd.Series(["a"]), [b"a"]):
        with pytest.raises(TypeError, match="text|numbers or dates"):
            win.time_values(text)


def test_a_gap_is_counted_in_known_stamps_between():
    stamps = np.array([10, 20, 30, 40])
    for time, gap, expected in [(25, 0, 1), (25, 1, 0), (25, 2, -1), (41, 1, 2), (40, 1, 1), (10, 0, -1), (999, 0, 3)]:
        assert win.newest_window_before(np.array([time]), stamps, np.arange(4), gap)[0] == expected, (time, gap)


def test_ages_are_differences_before_they_become_floats():
    late = 2**60 + np.array([0, 1, 3])
    assert win.ages_in_halflives(win.make_timeline(late, 3), 2.0).tolist() == [0.0, 0.5, 1.5]
    days = np.array(["2024-02-28", "2024-03-01", "2024-03-01"], dtype="datetime64[D]")
    assert win.ages_in_halflives(win.make_timeline(days, 3), "12h").tolist() == [0.0, 4.0, 4.0]
    assert win.ages_in_halflives(win.make_timeline(None, 3), 4.0).tolist() == [0.0, 0.25, 0.5]


@st.composite
def problems(draw):
    """Times with ties and holes in any order, weights with zeros, every kind of window."""
    moments = [0, 1, 2, 3, 4, 5, 9, 10, 30, 31, 2**53, 2**53 + 1]
    times = draw(st.lists(st.sampled_from(moments), min_size=1, max_size=25))
    weight = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=len(times), max_size=len(times)))
    weight[draw(st.integers(0, len(times) - 1))] = 1.0
    window = draw(st.one_of(st.just("expanding"), st.integers(1, 6), st.integers(1, 40).map(lambda q: Fraction(q, 2))))
    if draw(st.booleans()):
        times = None
    return times, np.array(weight), window, draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(0, 3))


@given(problems())
@example((None, np.ones(28), "expanding", 7, 1, 0))
@example(([0, 2**53, 2**53 + 1], np.ones(3), Fraction(1, 2), 1, 1, 0))
def test_against_loops(problem):
    times, weight, window, step, min_periods, gap = problem
    ours = float(window) if isinstance(window, Fraction) else window
    expected = reference.window_rows(times, weight, window=window, step=step, min_periods=min_periods)
    column = None if times is None else np.array(times)
    if not expected:
        with pytest.raises(ValueError, match="min_periods"):
            cut(column, n=len(weight), weight=weight, window=ours, step=step, min_periods=min_periods)
        return
    assert cut(column, n=len(weight), weight=weight, window=ours, step=step, min_periods=min_periods) == expected

    # The newest window strictly before each row, and before times that were never seen.
    known = list(range(len(weight))) if times is None else times
    asked = [*known, -1, 7, 2**53 + 2]
    timeline = win.make_timeline(column, len(weight)).keep(weight > 0)
    windows = win.make_windows(timeline, window=ours, step=step, min_periods=min_periods)
    found = win.newest_window_before(np.array(asked), timeline.stamps, windows.last_stamps, gap)
    newest = [t for t, _ in expected]
    best = [reference.window_before(t, reference.stamps_of(known, weight), newest, gap) for t in asked]
    assert found.tolist() == [-1 if b is None else b for b in best]


# Binary fractions, of which differences are exact; others count as equal where rounding hides that they are.
fractions = st.integers(-(10**9), 10**9).map(lambda i: i / 1024)


@given(st.lists(fractions, min_size=1, max_size=20), fractions.filter(lambda f: f > 0), st.randoms())
def test_float_times_against_loops_in_any_order(times, window, random):
    expected = reference.window_rows(times, np.ones(len(times)), window=window)
    assert cut(np.array(times), window=window) == expected
    shuffled = random.sample(range(len(times)), len(times))
    again = cut(np.array([times[i] for i in shuffled]), window=window)
    assert [(t, sorted(shuffled[i] for i in rows)) for t, rows in again] == expected


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8, np.int32, np.float32])
def test_times_of_few_bits_do_not_overflow(dtype):
    step = {np.int8: 1, np.uint8: 1}.get(dtype, 600)
    low = {np.int8: -100, np.uint8: 0}.get(dtype, -30000)
    times = low + step * np.arange(100)
    X = np.column_stack([np.arange(100.0)])
    expected = RollingJaxEstimator(time="t", window=5.0 * step, halflife=7.0 * step, capacity=128)
    wide = expected.fit(pd.DataFrame({"t": times, "x": X[:, 0] ** 2}), X[:, 0]).params_["coef"]
    narrow = expected.fit(pd.DataFrame({"t": times.astype(dtype), "x": X[:, 0] ** 2}), X[:, 0])
    np.testing.assert_array_equal(narrow.params_["coef"], wide)
    assert (np.diff(np.column_stack([narrow.window_starts_, narrow.window_stops_]), axis=1)[5:] == 5).all()


def test_a_duration_of_decimal_times_holds_as_many_stamps_everywhere():
    times = np.arange(300) / 10
    rolling = RollingJaxEstimator(models.Moments(), time=0, window=0.3, capacity=512)
    rolling.fit(np.column_stack([times, times]))
    assert (rolling.window_stops_ - rolling.window_starts_)[2:].tolist() == [3] * 298
