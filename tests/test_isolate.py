"""isolate and isolate_rows, inside compiled functions and outside, against NumPy's slices and masks."""

from __future__ import annotations

import copy
import itertools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skjaxwin import isolate, isolate_rows

N = 24  # one shape for the tests with many examples: they compile once for each dtype and size
DTYPES = [np.float64, np.float32, np.int32]


def cut(x, y, start, stop, size):
    return isolate(x, y, start=start, stop=stop, size=size)


jitted_cut = jax.jit(cut, static_argnames="size")


def compiled_cut(*args):
    """Fetched at once: every slice of a JAX array would be compiled, too."""
    return jax.device_get(jitted_cut(*args))


def expect(isolated, x, y, inside):
    """The windows hold exactly the marked rows, in order, then zeros."""
    x_window, y_window, mask = isolated
    count = inside.sum()
    assert isolated.count == count
    np.testing.assert_array_equal(mask, np.arange(len(mask)) < count)
    for window, array in ((x_window, x), (y_window, y)):
        np.testing.assert_array_equal(window[:count], array[inside])
        assert not np.any(window[count:])
        assert window.dtype == array.dtype
    if count:
        assert isolated.first == np.flatnonzero(inside)[0]


@st.composite
def grids(draw):
    """A sorted grid with ties and uneven steps, and bounds of which most lie on its points."""
    dtype = draw(st.sampled_from(DTYPES))
    values = draw(st.lists(st.integers(-9, 9), min_size=N, max_size=N))
    scale = 1 if dtype is np.int32 else 0.1
    x = np.sort(np.array(values) * scale).astype(dtype)
    bound = st.one_of(st.sampled_from(list(x)), st.integers(-12, 12).map(lambda i: dtype(i * scale)))
    start, stop = sorted([draw(bound), draw(bound)])
    return x[:: draw(st.sampled_from([1, -1]))].copy(), start, stop


@given(grids())
def test_any_sorted_grid_is_cut_like_a_mask_does(grid):
    x, start, stop = grid
    size = N + 7
    y = np.column_stack([np.arange(1.0, N + 1), -np.arange(1.0, N + 1)]).astype(np.float32)
    inside = (x >= start) & (x < stop)
    expect(cut(x, y, start, stop, size), x, y, inside)
    with jax.enable_x64(x.dtype == np.float64):
        expect(compiled_cut(x, y, start, stop, size), x, y, inside)


@given(st.integers(-30, 30) | st.none(), st.integers(-30, 30) | st.none())
def test_rows_are_cut_like_a_slice(start, stop):
    y = np.arange(1, N + 1, dtype=np.int32)
    expected = y[start:stop]
    # None is not traced, so the compiled function gets what it stands for.
    inside = jax.device_get(compiled_rows(y, 0 if start is None else start, N if stop is None else stop))
    for window, mask in (isolate_rows(y, start=start, stop=stop, size=N), inside):
        np.testing.assert_array_equal(window[: len(expected)], expected)
        assert mask.sum() == len(expected)
        assert not np.any(window[len(expected) :])


@jax.jit
def compiled_rows(y, start, stop):
    return isolate_rows(y, start=start, stop=stop, size=N)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_each_point_of_a_grid_as_a_bound_is_in_as_start_and_out_as_stop(dtype):
    x = (np.arange(N) / 10).astype(dtype)  # 0.1, 0.2, ...: no exact binary numbers
    y = np.zeros((N, 2), np.float32)
    with jax.enable_x64(dtype == np.float64):
        for i in range(N):
            for j in (i, min(i + 5, N - 1)):
                start, stop = i / 10, j / 10  # Python's floats, not those of the grid
                for isolated in (cut(x, y, start, stop, N + 7), compiled_cut(x, y, start, stop, N + 7)):
                    assert isolated.count == j - i
                    np.testing.assert_array_equal(isolated[0][isolated[2]], x[i:j])


@pytest.mark.parametrize("n", [1000, 100_000, 1_000_000])
def test_five_ranges_of_a_sine_in_one_compiled_function(n, compiled):
    x = np.linspace(0, 10, n)
    y = np.sin(2 * np.pi * x)
    size = n // 5 + 1

    @jax.jit
    def master(x, y, edges):
        def one(start, stop):
            isolated = isolate(x, y, start=start, stop=stop, size=size)
            return isolated, isolated.count

        return jax.lax.map(lambda bounds: one(*bounds), (edges[:-1], edges[1:]))

    edges = np.linspace(0, 10, 6)
    edges[-1] = np.inf  # the range is half-open, and the signal ends at 10
    with jax.enable_x64(True):
        before = len(compiled)
        (x_windows, y_windows, masks), counts = jax.device_get(master(x, y, edges))
        other, _ = master(x, y, edges / 2)
        other[0].block_until_ready()
        assert len(compiled) - before == 1
    rows = np.searchsorted(x, edges[:-1]).tolist() + [n]
    for k, (i, j) in enumerate(itertools.pairwise(rows)):
        assert counts[k] == j - i
        np.testing.assert_array_equal(x_windows[k][masks[k]], x[i:j])
        np.testing.assert_array_equal(y_windows[k][masks[k]], y[i:j])
    np.testing.assert_array_equal(np.concatenate([w[m] for w, m in zip(y_windows, masks, strict=True)]), y)


def test_more_rows_than_fit_are_counted_in_compiled_code_and_raise_outside():
    x = np.arange(N, dtype=np.float32)
    with pytest.raises(ValueError, match="holds 10 rows, but size=4"):
        isolate(x, start=5, stop=15, size=4)
    with pytest.raises(ValueError, match="holds 24 rows, but size=4"):
        isolate_rows(x, size=4)
    inside = jax.jit(lambda a: isolate(x, start=a, stop=a + 10, size=4))(5.0)
    assert inside.count == 10
    np.testing.assert_array_equal(inside[0], x[5:9])
    assert jax.jit(lambda a: isolate_rows(x, start=a, size=4))(3).count == N - 3


def test_unsorted_and_missing_coordinates_raise_outside_and_are_never_marked_inside():
    shuffled = np.array([3.0, 1.0, 2.0, 5.0, 4.0, 0.0], np.float32)
    with pytest.raises(ValueError, match="not sorted"):
        isolate(shuffled, start=1, stop=3, size=6)
    holes = np.array([0.0, 1.0, np.nan, 3.0], np.float32)
    with pytest.raises(ValueError, match="NaN"):
        isolate(holes, start=0, stop=5, size=4)
    for x in (shuffled, holes):
        window, mask = jax.jit(lambda x: isolate(x, start=1, stop=3, size=6))(x)
        kept = np.asarray(window)[np.asarray(mask)]
        assert ((kept >= 1) & (kept < 3)).all()
        with pytest.raises(ValueError, match="not sorted|NaN"):  # a known x is looked at when tracing
            jax.jit(lambda start, x=x: isolate(x, start=start, size=6))(1.0)


def test_the_mask_and_count_of_an_unsorted_x_are_of_rows_in_range():
    """Each side of the range by itself, where bisection is led astray."""

    @jax.jit
    def each(x, start, stop):
        cuts = [isolate(x, start=a, stop=b, size=N) for a, b in ((start, None), (None, stop), (start, stop))]
        return [(*cut, cut.count) for cut in cuts]

    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.permutation(N).astype(np.float32)
        start, stop = np.sort(rng.choice(N, 2, replace=False)).astype(np.float32)
        found = jax.device_get(each(x, start, stop))
        for (window, mask, count), (low, high) in zip(found, ((start, N), (0, stop), (start, stop)), strict=True):
            assert ((window[mask] >= low) & (window[mask] < high)).all()
            assert count == mask.sum()


def test_missing_coordinates_in_compiled_code_are_in_no_range():
    """NaN sort to the end; a reversed grid begins with them."""

    @jax.jit
    def each(x):
        ranges = [(1, None), (None, 1.5), (None, None), (-np.inf, np.inf), (0.5, 2), (None, -np.inf)]
        return [(r, r.count) for r in (isolate(x, start=a, stop=b, size=6) for a, b in ranges)]

    rows = np.array([0, 1, 2, np.nan, np.nan], np.float32)
    missing = np.full(5, np.nan, np.float32)
    infinite = np.array([-np.inf, 1, np.inf, np.inf, np.nan], np.float32)
    for x in (rows, rows[::-1], rows[[2, 1, 0, 3, 4]], rows[[3, 4, 0, 1, 2]], missing, infinite):
        expected = [x >= 1, x < 1.5, x == x, x < np.inf, (x >= 0.5) & (x < 2), np.zeros(5, bool)]
        for inside, (isolated, count) in zip(expected, jax.device_get(each(x)), strict=True):
            assert count == isolated[1].sum() == inside.sum()
            np.testing.assert_array_equal(isolated[0][: inside.sum()], x[inside])
    few = jax.jit(lambda x: isolate(x, start=1, size=1))(rows)
    assert few.count == 2 and np.asarray(few[0]).tolist() == [1]


def test_nan_as_a_bound():
    x = np.arange(5.0, dtype=np.float32)
    with pytest.raises(ValueError, match="start is NaN"):
        isolate(x, start=np.nan, size=5)
    for at in ({"start": 1}, {"stop": 1}):
        (name,) = at
        inside = jax.jit(lambda bound, name=name: isolate(x, size=5, **{name: bound}))(np.nan)
        assert inside.count == 0 and not inside[1].any()


@pytest.mark.parametrize("x", [np.arange(6), np.arange(6)[::-1].copy(), np.arange(6, dtype=np.uint8)])
def test_bounds_beyond_integers_and_between_them(x):
    ranges = [(-np.inf, 3), (2, np.inf), (-np.inf, np.inf), (None, None), (None, -np.inf), (np.inf, None), (1.5, 3.5)]
    ranges += [(-(10**30), 10**30), (-5, 300), (2**31, 2**40), (100, 200), (-9, -3)]

    def each(x):
        return [isolate(x, start=start, stop=stop, size=6) for start, stop in ranges]

    for (start, stop), *both in zip(ranges, each(x), jax.device_get(jax.jit(each)(x)), strict=True):
        low, high = -np.inf if start is None else start, np.inf if stop is None else stop
        expected = [v for v in x.tolist() if low <= v < high]
        for isolated in both:
            assert isolated.count == len(expected)
            assert isolated[0][isolated[1]].tolist() == expected


def test_integers_that_floats_cannot_tell_apart():
    x = 2**53 + np.arange(6)
    assert isolate(x, start=2**53 + 1, stop=2**53 + 3, size=6).count == 2
    with jax.enable_x64(True):
        assert jax.jit(lambda a: isolate(x, start=a, stop=a + 2, size=6))(2**53 + 1).count == 2
    days = 20240101 + np.arange(6)  # as 32-bit floats these are two numbers
    assert jax.jit(lambda a: isolate(days, start=a, stop=a + 2, size=6))(20240102).count == 2
    with pytest.raises(ValueError, match="integers beyond int32"):
        jax.jit(lambda a: isolate(x, start=a, size=6))(5)
    with pytest.raises(TypeError, match="round it up first"):
        jax.jit(lambda a: isolate(days, start=a, size=6))(2.5)


def test_known_bounds_in_compiled_code_are_exact_and_raise():
    x = 1 + np.arange(N) * 1e-9  # as 32-bit floats they are all the same
    inside = jax.jit(lambda y: isolate(x, y, start=x[3], stop=x[9], size=8))(np.arange(N, dtype=np.float32))
    assert inside.count == 6
    np.testing.assert_array_equal(inside[1], [3, 4, 5, 6, 7, 8, 0, 0])
    with pytest.raises(ValueError, match="holds 6 rows, but size=4"):
        jax.jit(lambda y: isolate(x, y, start=x[3], stop=x[9], size=4))(x)


def test_dates_outside_of_compiled_code():
    x = np.arange("2024-01-30", "2024-02-05", dtype="datetime64[D]")
    isolated = isolate(x, start="2024-01-31", stop=np.datetime64("2024-02-02T12"), size=4)
    assert isolated[0][isolated[1]].astype(str).tolist() == ["2024-01-31", "2024-02-01", "2024-02-02"]
    with pytest.raises(TypeError, match="Compiled code takes no datetime64"):
        jax.jit(lambda a: isolate(x, start=a, size=4))(5)


def test_a_range_without_rows_is_empty_and_a_reversed_one_raises():
    x = np.array([0.0, 1.0, 5.0, 6.0], np.float32)
    for isolated in (isolate(x, start=2, stop=4, size=3), jax.jit(lambda a: isolate(x, start=a, stop=4, size=3))(2)):
        assert isolated.count == 0 and not np.any(isolated[0]) and not np.any(isolated[1])
    with pytest.raises(ValueError, match="stop=0 is below start=5"):
        isolate(x, start=5, stop=0, size=3)
    days = np.array(["2024-01-01", "2024-01-09"], "datetime64[D]")
    for grid, start, stop in (
        (x, 4, 2),
        (x[::-1], 4, 2),
        (np.array([0, 9]), 2.9, 2.1),  # both of them round up to 3
        (np.array([0, 9]), 2**53 + 1, 2.0**53),
        (days, "2024-01-05T18", "2024-01-05T06"),
        (days - days[0], np.timedelta64(30, "h"), np.timedelta64(26, "h")),
    ):
        with pytest.raises(ValueError, match="stop=.* is below start="):
            isolate(grid, start=start, stop=stop, size=3)
        assert isolate(grid, start=start, stop=start, size=3).count == 0
    with pytest.raises(ValueError, match="stop=2 is below start=4"):
        jax.jit(lambda x: isolate(x, start=4, stop=2, size=3))(x)
    tenth = np.array([0.1], np.float32)  # 0.1 names this point, although it is a smaller number
    assert isolate(tenth, start=tenth[0], stop=0.1, size=1).count == 0
    assert jax.jit(lambda a: isolate(x, start=a, stop=0, size=3))(5).count == 0


def test_under_vmap_and_grad():
    x = np.arange(8.0)
    y = x**2

    def total(y, start):
        _, window, mask = isolate(x, y, start=start, stop=start + 3, size=5)
        return jnp.sum(jnp.where(mask, window, 0))

    totals = jax.jit(jax.vmap(total, (None, 0)))(y, np.array([0.0, 2.0, 6.0]))
    np.testing.assert_allclose(totals, [5, 29, 85])
    np.testing.assert_array_equal(jax.jit(jax.grad(total))(y, 2.0), [0, 0, 1, 1, 1, 0, 0, 0])


def test_containers():
    isolated = isolate(np.arange(4.0), start=1, size=5)
    assert all(type(part) is np.ndarray for part in isolated)
    for same in (
        pickle.loads(pickle.dumps(isolated)),
        copy.deepcopy(isolated),
        jax.tree_util.tree_map(np.copy, isolated),
    ):
        assert (same.count, same.first) == (3, 1)
        np.testing.assert_array_equal(same[0], isolated[0])
    assert all(isinstance(part, jax.Array) for part in isolate(jnp.arange(4.0), start=1, size=5))
    assert isolate(np.arange(4.0), start=jnp.float32(1), size=5).count == 3


@pytest.mark.parametrize(
    "x",
    [
        2**40 + np.arange(4),
        1 + np.arange(4) * 1e-9,
        np.arange("2024-01-01", "2024-01-05", dtype="datetime64[D]"),
        np.arange("2024-01-01", "2024-01-05", dtype="datetime64[D]").astype(">M8[s]"),
        np.arange(4).astype(">m8[h]"),
        np.arange(4, dtype=">i4"),
        np.arange(4, dtype=np.longdouble) * np.longdouble("1e-18") + 1,
        np.arange(4).astype(jnp.bfloat16),
    ],
    ids=lambda x: x.dtype.str,
)
def test_known_arrays_keep_their_kind_and_dtype_beside_those_of_jax(x):
    """Each window is of the kind of its array: JAX would narrow 64-bit numbers, and knows no dates."""
    y = jnp.arange(4.0)

    def check(by_value, by_row):
        for isolated in (by_value, by_row):
            assert type(isolated[0]) is np.ndarray and isolated[0].dtype == x.dtype
            np.testing.assert_array_equal(isolated[0], x[1:3])
            assert isinstance(isolated[1], jax.Array) and isinstance(isolated[2], jax.Array)
        return by_value[1], by_row[1]

    def both(y):
        return check(isolate(x, y, start=x[1], stop=x[3], size=2), isolate_rows(x, y, start=1, stop=-1, size=2))

    for windows in (both(y), jax.jit(both)(y)):
        np.testing.assert_array_equal(windows, [[1, 2], [1, 2]])
    with jax.enable_x64(True):
        wide = jnp.arange(4.0)
    assert isolate(np.arange(4), wide, size=4)[1].dtype == np.float64


def test_bad_arguments():
    x = np.arange(4.0)
    with pytest.raises(ValueError, match=r"same number of rows, got \[4, 3\]"):
        isolate(x, x[:3], size=2)
    with pytest.raises(ValueError, match="no rows"):
        isolate(x[:0], size=2)
    with pytest.raises(ValueError, match="size=0"):
        isolate(x, size=0)
    with pytest.raises(TypeError, match="size must be an integer that is known when compiling"):
        jax.jit(lambda size: isolate(x, size=size))(3)
    months = np.arange(4).astype("m8[M]")
    days = np.arange(4).astype("M8[D]")
    for grid, start, message in (
        (months, 1, "durations of dtype timedelta64.M., which have no fixed length"),
        (days, np.timedelta64(1, "M"), "give a date, such as the first date plus that duration"),
        (days, 5, "give a date, such as start='2024-01-31'"),
        (days - days[0], 5, "give a duration, such as start=numpy.timedelta64"),
        (np.array([1, None, "a"], object), 1, r"coordinate \(x\) column holds text"),
    ):
        with pytest.raises(TypeError, match=message):
            isolate(grid, start=start, size=4)
    with pytest.raises(ValueError, match=r"every row needs a coordinate \(x\)"):
        isolate(np.array([1, None, 3], object), size=4)
    with pytest.raises(TypeError, match="'a' is no number"):
        isolate(x, start="a", size=4)
    with pytest.raises(ValueError, match="must be a scalar"):
        jax.jit(lambda start: isolate(x, start=start, size=4))(x)
    with pytest.raises(TypeError, match="use isolate to cut by value"):
        isolate_rows(x, start=0.5, size=4)
    with pytest.raises(TypeError, match="start must be an integer"):
        jax.jit(lambda start: isolate_rows(x, start=start, size=4))(0.5)
    with pytest.raises(ValueError, match="at least one array"):
        isolate_rows(size=4)
    with pytest.raises(ValueError, match="1-dimensional"):
        jax.jit(lambda start: isolate(x[:, None], start=start, size=4))(1.0)


def test_traced_integer_bounds_neither_wrap_nor_round():
    def count(x, start, stop):
        return int(jax.jit(lambda x, a, b: isolate(x, start=a, stop=b, size=300).count)(x, start, stop))

    small = np.arange(256, dtype=np.uint8)
    assert (count(small, 0, 256), count(small, -1, 10)) == (256, 10)
    signed = np.arange(-100, 100, dtype=np.int16)
    assert (count(signed, 0, 40_000), count(signed, -40_000, 0)) == (100, 100)
    large = np.array([1, 3_000_000_000], np.uint32)
    assert count(large, np.int32(-5), np.int32(5)) == 1
    assert count(np.array([1, 7], np.int32), np.uint32(3_000_000_000), np.uint32(4_000_000_000)) == 0
    with jax.enable_x64(True):
        huge = np.array([2**53, 2**53 + 1, 2**53 + 2], np.uint64)
        assert count(huge, np.int64(2**53 + 1), np.int64(2**53 + 2)) == 1


def test_numbers_that_compiled_code_cannot_tell_apart():
    x = 1 + np.arange(6) * 1e-9
    for bad in (x, np.array([0.0, 1e300]), np.array([0, 1, 1 + 1e-9])[::-1].copy()):
        with pytest.raises(ValueError, match="float32 cannot tell apart"):
            jax.jit(lambda start, bad=bad: isolate(bad, start=start, size=6))(1.0)
    with jax.enable_x64(True):
        assert jax.jit(lambda start: isolate(x, start=start, size=6).count)(x[2]) == 4
    wide = np.arange(6, dtype=np.longdouble)
    with pytest.raises(TypeError, match=r"astype\('float64'\)"):
        jax.jit(lambda start: isolate(wide, start=start, size=6))(1.0)
    swapped = np.arange(6, dtype=">f8")
    assert jax.jit(lambda start: isolate(swapped, start=start, size=6).count)(2.0) == 4


def test_longest_floats_as_bounds():
    x = 2**62 + np.arange(4)
    half = np.longdouble(2**62 + 1) + np.longdouble(0.5)
    if int(half) != 2**62 + 1:
        pytest.skip("long double is not longer than double here")
    assert isolate(x, start=half, size=4).first == 2
    assert isolate(x, start=half - 1, size=4).first == 1
    wide = np.longdouble(2**62) + np.arange(4) * np.longdouble(0.5)
    assert [isolate(wide, start=bound, size=4).first for bound in (2**62 + 1, half)] == [2, 3]


def test_masked_entries_are_refused():
    y = np.ma.masked_greater(np.arange(4.0), 2)
    for call in (lambda: isolate(y, size=4), lambda: isolate(np.arange(4), y, size=4), lambda: isolate_rows(y, size=4)):
        with pytest.raises(ValueError, match="masked entries"):
            call()
    with pytest.raises(ValueError, match="masked entries"):
        jax.jit(lambda a: isolate_rows(y, start=a, size=4))(1)
    assert isolate(np.ma.array(np.arange(4.0)), start=1, size=4).count == 3


def test_small_floats_of_jax_as_coordinates():
    x = (np.arange(N) / 8).astype(jnp.bfloat16)
    for start, stop in ((0.5, 1.25), (jnp.bfloat16(0.5), np.float32(1.25)), (-np.inf, 0.7)):
        inside = (x.astype(float) >= float(start)) & (x.astype(float) < float(jnp.bfloat16(stop)))
        for isolated in (cut(x, x, start, stop, N), compiled_cut(x, x, start, stop, N)):
            assert isolated.count == inside.sum()
            np.testing.assert_array_equal(isolated[1][isolated[2]], x[inside])


def test_traced_row_numbers_and_counts_are_of_one_type():
    def rows(start, stop):
        isolated = isolate_rows(np.arange(300.0), start=start, stop=stop, size=300)
        return isolated.first, isolated.count

    for dtype in (np.uint8, np.uint32, np.int8, np.int32):
        for start, stop in ((100, 3), (3, 100), (100, 100), (np.iinfo(dtype).max, np.iinfo(dtype).min), (0, 120)):
            first, count = jax.jit(rows)(dtype(start), dtype(stop))
            assert first.dtype == count.dtype == np.int32
            expected = range(300)[start:stop]
            assert int(count) == len(expected)
            assert not len(expected) or int(first) == expected[0]
        alone = jax.jit(lambda start: rows(start, 50))(dtype(100))
        assert int(alone[1]) == 0 and alone[1].dtype == np.int32


def test_traced_row_numbers_of_small_types():
    for start, first in ((np.int16(100), 100), (np.int8(-3), 99_997)):
        window, mask = jax.jit(lambda a: isolate_rows(np.arange(1e5), start=a, size=3))(start)
        assert mask.all()
        np.testing.assert_array_equal(window, np.arange(first, first + 3))
