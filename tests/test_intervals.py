"""interval_grid where rounding or overflow would move points from one interval to another."""

from __future__ import annotations

import datetime
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skjaxwin import SubsetTransformer, interval_grid
from skjaxwin.bounds import exact_bound


def bounds(*args, **keywords):
    return [(c["start"][0], c["stop"][0]) for c in interval_grid(*args, **keywords)]


def exact(x, width, step):
    """Half-open intervals that hold a point of x, up to the first that reaches the last; all in fractions."""
    x = sorted({Fraction(int(v)) for v in x})
    start, found = x[0], []
    while start <= x[-1]:
        inside = [v for v in x if start <= v < start + width]
        if inside:
            found.append(tuple(int(v) for v in inside))
        if start + width > x[-1]:
            break
        start += step
    return found


def selected(x, pairs):
    """The coordinates in each interval, with bounds compared as the package compares them."""
    inside = []
    for start, stop in pairs:
        low = exact_bound(start, x.dtype, "start")
        high = np.inf if stop is None else exact_bound(stop, x.dtype, "stop")
        inside.append(tuple(int(v) for v in x.tolist() if low <= v < high))
    return inside


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=8, unique=True).map(sorted),
    st.sampled_from([(np.int64, 0), (np.int64, 2**60), (np.int64, -(2**63)), (np.uint64, 2**64 - 13), (np.uint8, 243)]),
    st.sampled_from([0.1, 0.5, 1, 1.5, 2.7, 3, 100]),
    st.sampled_from([None, 0.3, 1, 2.5, 3]),
)
def test_integers_are_cut_exactly(offsets, kind, width, step):
    dtype, origin = kind
    x = np.array([origin + offset for offset in offsets], dtype)
    pairs = bounds(x, widths=width, step=step)
    fraction = Fraction(str(width))
    expected = exact(x, fraction, fraction if step is None else Fraction(str(step)))
    # Equal bounds are listed once, and among small numbers bounds may differ that hold the same points.
    assert list(dict.fromkeys(selected(x, pairs))) == list(dict.fromkeys(expected))


@given(st.sampled_from([np.float64, np.float32, np.float16]), st.sampled_from(["decimal", "added up", "divided"]))
def test_bounds_of_float_grids_are_grid_points(dtype, made):
    grids = {"decimal": np.arange(101) / 10, "added up": np.arange(0, 10.05, 0.1), "divided": np.linspace(0, 10, 101)}
    x = grids[made].astype(dtype)
    pairs = bounds(x, widths=0.3, step=0.1)
    assert [start for start, _ in pairs] == x[: len(pairs)].tolist()
    assert [stop for _, stop in pairs[:-1]] == x[3 : len(pairs) + 2].tolist()
    assert pairs[-1] == (x[98].item(), None)


def test_wavelengths_that_a_sum_has_made():
    x = np.arange(400, 500, 0.1)  # 499.9 is off by 200 units of the last place
    pairs = bounds(x, widths=10)
    assert [start for start, _ in pairs] == x[::100].tolist()
    assert len(pairs) == 10 and pairs[-1][1] is None


def test_small_floats_are_not_cut_finer_than_they_are():
    x = np.arange(2048, 2062, 2).astype(np.float16)  # neighbours differ by 2
    assert bounds(x, widths=0.5) == [*zip(x[:-1].tolist(), x[1:].tolist(), strict=True), (2060.0, None)]
    pairs = bounds(x, widths=3, step=0.5)
    assert len(set(pairs)) == len(pairs)
    for start, stop in pairs:
        assert np.any((x >= start) & (x < (np.inf if stop is None else stop)))
    top = np.array([0, 65504], np.float16)
    assert bounds(top, widths=6e4) == [(0, 60000), (60000, None)]


def test_intervals_of_several_widths_are_listed_once():
    assert bounds([0, 1, 2], widths=[5, 100]) == [(0, None)]
    assert bounds([0, 1, 2], widths=jnp.array([1, 2]), step=jnp.int32(1)) == [
        (0, 1),
        (1, 2),
        (2, None),
        (0, 2),
        (1, None),
    ]
    assert bounds([0, 1, 2], widths=np.float32(0.5), step=1) == [(0, 0.5), (1, 1.5), (2, None)]


def test_durations():
    days = np.arange("2024-01-01", "2024-01-05", dtype="datetime64[D]")
    noon = np.datetime64("2024-01-02T12")
    for dates in (days, days.astype(">M8[s]"), days.astype("M8[ns]")):
        for width in (datetime.timedelta(hours=36), np.timedelta64(36, "h")):
            assert bounds(dates, widths=width) == [(days[0], noon), (noon, days[3]), (days[3], None)]
    spans = days - days[0]
    assert bounds(spans, widths=np.timedelta64(2, "D")) == [(spans[0], spans[2]), (spans[2], None)]
    early = np.array(["0001-01-01", "9999-01-01"], "datetime64[D]")
    assert len(bounds(early, widths=np.timedelta64(365 * 5000, "D"))) == 2
    with pytest.raises(ValueError, match="coarser units"):
        interval_grid(early, widths=np.timedelta64(10**15, "ns"))


def test_bad_widths():
    days = np.arange("2024-01-01", "2024-01-05", dtype="datetime64[D]")
    for coordinates, keywords, message in [
        ([1, 2], {"widths": []}, "at least one"),
        ([1, 2], {"widths": [[1]]}, "list of at least one"),
        ([1, 2], {"widths": np.inf}, "finite"),
        ([1, 2], {"widths": 1, "step": np.inf}, "step must be finite"),
        (days, {"widths": np.timedelta64(1, "M")}, "no fixed length"),
        ([1, 2], {"widths": datetime.timedelta(1)}, "positive numbers"),
        ([-1e308, 1e308], {"widths": 1e-3}, "larger step"),
        ([0, 10**9], {"widths": 1e-3}, "larger step"),
    ]:
        with pytest.raises(ValueError, match=message):
            interval_grid(coordinates, **keywords)


def test_bounds_select_what_they_say_in_a_transformer():
    wavelengths = 2**60 + np.arange(6)
    chosen = []
    for candidate in interval_grid(wavelengths, widths=1.5):
        band = SubsetTransformer(candidate["start"][0], candidate["stop"][0], axis=1, coordinates=wavelengths)
        chosen.append(np.flatnonzero(band.fit(np.zeros((2, 6))).support_).tolist())
    assert chosen == [[0, 1], [2], [3, 4], [5]]


def test_masked_coordinates_are_refused():
    x = np.ma.masked_greater(np.arange(4.0), 2)
    with pytest.raises(ValueError, match="coordinate column has masked entries"):
        interval_grid(x, 2)
    with pytest.raises(ValueError, match="X has masked entries"):
        SubsetTransformer(0, 2).fit(x[:, None])
    with pytest.raises(ValueError, match="coordinate column has masked entries"):
        SubsetTransformer(0, 2, axis=1, coordinates=x).fit(np.zeros((2, 4)))
