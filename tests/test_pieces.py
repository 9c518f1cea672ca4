"""pieces and map_pieces against NumPy on whole arrays and on slices."""

from __future__ import annotations

import itertools
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skjaxwin import map_pieces, pieces, piecewise
from skjaxwin.kernels import compile as compiling


def total(x, y, mask):
    return {"rows": jnp.sum(mask), "sum": jnp.sum(jnp.where(mask, x * y, 0))}


def smooth(y, mask):
    """Mean of each row and its two neighbours on either side, of which there are fewer at the ends."""
    weight, kernel = mask.astype(y.dtype), jnp.ones(5, y.dtype)
    return jnp.convolve(jnp.where(mask, y, 0), kernel, "same") / jnp.maximum(jnp.convolve(weight, kernel, "same"), 1)


def smooth_in_numpy(y):
    kernel = np.ones(5)
    return np.convolve(y, kernel, "same") / np.convolve(np.ones(len(y)), kernel, "same")


@given(st.integers(1, 200), st.integers(1, 60))
def test_pieces_cover_every_row_once(n, size):
    bounds = pieces(n, size)
    np.testing.assert_array_equal(np.concatenate([np.arange(i, j) for i, j in bounds]), np.arange(n))
    assert (np.diff(bounds, axis=1)[:-1] == size).all() and 0 < bounds[-1, 1] - bounds[-1, 0] <= size


@given(st.integers(1, 300), st.sampled_from([1, 3]))
def test_stacked_results_are_those_of_slices(n, batch_size):
    x, y = np.arange(1.0, n + 1), np.cos(np.arange(n))
    result = map_pieces(total, x, y, size=32, batch_size=batch_size)
    bounds = pieces(n, 32)
    assert result["rows"].tolist() == (bounds[:, 1] - bounds[:, 0]).tolist()
    np.testing.assert_allclose(result["sum"], [x[i:j] @ y[i:j] for i, j in bounds], rtol=1e-12, atol=1e-12)


@given(st.integers(1, 300), st.sampled_from([2, 5]), st.sampled_from([1, 3]))
def test_stitched_results_are_those_of_the_whole_signal(n, halo, batch_size):
    y = np.random.default_rng(n).normal(size=n)
    result = map_pieces(smooth, y, size=16, halo=halo, output="stitch", batch_size=batch_size)
    expected = smooth_in_numpy(y) if n >= 5 else [y[max(i - 2, 0) : i + 3].mean() for i in range(n)]
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


@given(st.lists(st.integers(0, 40), min_size=2, max_size=6), st.integers(0, 2**20), st.sampled_from([1, -1]))
def test_edges_cut_by_value(edges, seed, direction):
    x = np.sort(np.random.default_rng(seed).integers(0, 40, 64))[::direction] / 4  # with ties, some on the edges
    edges = np.sort(edges) / 4
    inside = [(x >= a) & (x < b) for a, b in itertools.pairwise(edges)]
    if not np.any(inside):
        with pytest.raises(ValueError, match="No row of x lies between the edges"):
            map_pieces(total, x, x, edges=edges)
        return
    result = map_pieces(total, x, x, edges=edges, batch_size=4)
    assert result["rows"].tolist() == [rows.sum() for rows in inside]
    np.testing.assert_allclose(result["sum"], [(x[rows] ** 2).sum() for rows in inside], rtol=1e-12)


@pytest.mark.parametrize("direction", [1, -1])
def test_edges_stitch_to_the_whole_signal_with_a_halo(direction, rng):
    x, y = np.sort(rng.uniform(0, 10, 200))[::direction], rng.normal(size=200)
    edges = [-np.inf, 0.5, 4.0, 4.0, 7.25, np.inf]  # one of them without rows
    for batch_size in ("auto", 2):
        keywords = {"edges": edges, "halo": 2, "output": "stitch", "batch_size": batch_size}
        result = map_pieces(lambda x, y, mask: smooth(y, mask), x, y, **keywords)
        np.testing.assert_allclose(result, smooth_in_numpy(y), rtol=1e-12)
    for part in ([-np.inf, x.max()], [x[100], np.inf]):
        with pytest.raises(ValueError, match="edges cover rows"):
            map_pieces(lambda x, y, mask: smooth(y, mask), x, y, edges=part, halo=2, output="stitch")


def test_an_order_that_breaks_between_two_parts_that_are_checked(monkeypatch):
    monkeypatch.setattr(piecewise, "_CHECKED_AT_ONCE", 4)
    x = np.arange(8.0)
    for good in (x, x[::-1]):
        assert map_pieces(total, good, good, edges=[0, 4, 8])["rows"].tolist() == [4, 4]
    for bad in ([0, 1, 4, 5, 2, 3, 6, 7], [7, 6, 3, 2, 5, 4, 1, 0]):
        with pytest.raises(ValueError, match="not sorted"):
            map_pieces(total, x[bad], x, edges=[0, 4, 8])


def test_rows_that_the_mask_does_not_mark_are_zero(rng):
    """Those of a piece without rows, too, which has no halo."""

    def unmarked(x, y, mask):
        return jnp.sum(jnp.where(mask, 0, jnp.abs(y))), jnp.sum(mask)

    x, y = np.sort(rng.uniform(0, 10, 100)), rng.uniform(1, 2, 100)
    edges = [0, 2, 2, 5, 5.5, 5.5, 9]
    rows = np.searchsorted(x, edges)
    seen = [j - i + min(i, 3) + min(100 - j, 3) if j > i else 0 for i, j in itertools.pairwise(rows)]
    values, marked = map_pieces(unmarked, x, y, edges=edges, halo=3)
    assert not values.any() and marked.tolist() == seen
    values, marked = map_pieces(unmarked, x, y, size=30, halo=50)
    assert not values.any() and marked.tolist() == [80, 100, 90, 60]


@pytest.mark.parametrize("dtype", [">f8", "<f4", ">i4", "u1", "<i8"])
@pytest.mark.parametrize("direction", [1, -1])
def test_edges_are_found_by_looking_at_a_few_values(dtype, direction, tmp_path, monkeypatch):
    """``np.searchsorted`` copies all of a memory map that is not of the machine's byte order, for each edge."""
    values = np.sort(np.random.default_rng(0).integers(0, 200, 4000))[::direction].astype(dtype)
    values.tofile(tmp_path / "x")
    x = np.memmap(tmp_path / "x", dtype=dtype, mode="r")

    def whole(*_, **__):
        raise AssertionError("searchsorted was called")

    edges = [-np.inf, 0, 3, 3.5, 50, 50, 199, 1000, np.inf]
    expected = [int(np.sum((values >= a) & (values < b))) for a, b in itertools.pairwise(edges)]
    monkeypatch.setattr(np, "searchsorted", whole)
    assert map_pieces(lambda x, mask: jnp.sum(mask), x, edges=edges).tolist() == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int16, bool, np.dtype(">f8"), np.complex64])
def test_dtypes_and_trailing_axes_are_kept(dtype):
    y = (np.arange(60).reshape(20, 3) % 7).astype(dtype)
    result = map_pieces(lambda y, mask: y, y, size=8, halo=1, output="stitch", batch_size=2)
    np.testing.assert_array_equal(result, y)
    assert result.dtype == np.dtype(dtype).newbyteorder("=")


def test_further_signals_compile_nothing(compiled):
    y = np.arange(1000.0)

    def double(y, mask):
        return jnp.where(mask, 2 * y, 0)

    before = len(compiled)
    map_pieces(double, y, size=10, output="stitch")
    assert len(compiled) - before == 1
    for other in (y[:999], y[::-1], y[:777] + 1):
        np.testing.assert_array_equal(map_pieces(double, other, size=10, output="stitch"), 2 * other)
    assert len(compiled) - before == 1
    map_pieces(double, y[:30], size=10)  # a batch of its own
    assert len(compiled) - before == 2


def test_a_function_that_makes_constants_is_compiled_once(compiled):
    """Each of them, a filter's window say, would else be a program of its own."""

    def weighted(y, mask):
        window = jnp.hanning(y.shape[0] + 2)[1:-1]
        return jnp.sum(y * window / window.sum()) + jnp.trace(jnp.eye(len(y)) * jnp.linspace(0, 1, len(y)))

    y = np.random.default_rng(0).normal(size=2100)
    window = np.hanning(23)[1:-1]
    expected = y.reshape(100, 21) @ window / window.sum() + np.linspace(0, 1, 21).sum()
    before = len(compiled)
    np.testing.assert_allclose(map_pieces(weighted, y, size=21), expected, rtol=1e-12)
    assert len(compiled) - before == 1


def test_a_function_that_solves_runs_one_piece_at_a_time():
    def slope(x, y, mask):
        A = jnp.column_stack([x, jnp.ones_like(x)]) * mask[:, None]
        return jnp.linalg.solve(A.T @ A, A.T @ (y * mask))

    x = np.linspace(0, 1, 70)
    np.testing.assert_allclose(map_pieces(slope, x, 3 * x + 1, size=32)[:2], [[3, 1]] * 2, rtol=1e-9)


def test_a_jitted_function_and_one_of_numpy():
    y = np.arange(10.0)
    np.testing.assert_array_equal(map_pieces(jax.jit(lambda y, mask: jnp.sum(y)), y, size=5), [10, 35])
    with pytest.raises(TypeError, match="hands a traced array to NumPy"):
        map_pieces(lambda y, mask: np.linalg.norm(y), y, size=5)


def test_memory_map_is_read_piece_by_piece(tmp_path, monkeypatch):
    y = np.memmap(tmp_path / "signal", dtype=np.float64, mode="w+", shape=5000)
    y[:] = np.arange(5000)
    y.flush()
    mapped = np.memmap(tmp_path / "signal", dtype=np.float64, mode="r")
    taken = []
    plain = compiling.run

    def run(kernel, batch, *args, **keys):
        taken.append(batch[0].nbytes)
        return plain(kernel, batch, *args, **keys)

    monkeypatch.setattr(compiling, "run", run)
    result = map_pieces(lambda y, mask: jnp.sum(y), mapped, size=100, batch_size=4)
    np.testing.assert_array_equal(result, y.reshape(50, 100).sum(axis=1))
    assert max(taken) == 4 * 100 * 8


MEMORY = """
import sys, numpy as np, jax.numpy as jnp
from skjaxwin import map_pieces
path, n = sys.argv[1], int(sys.argv[2])
from skjaxwin.kernels import compile as compiling
used, plain = [], compiling.run
def run(*args, **keys):
    line = next(l for l in open("/proc/self/status") if l.startswith("RssAnon:"))
    used.append(int(line.split()[1]) * 1024)
    return plain(*args, **keys)
y = np.memmap(path, dtype=np.float32, mode="r", shape=n)
total = lambda y, mask: jnp.sum(y)
map_pieces(total, y[:5_000_000], size=10_000)
compiling.run = run
result = map_pieces(total, y, size=10_000)
assert result.shape == (n // 10_000,) and (result == 0).all()
print(max(used) - used[0], len(used))
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow_with_the_signal(tmp_path):
    n = 50_000_000  # 200 MB, of which a sparse file holds nothing
    with open(tmp_path / "signal", "wb") as file:
        file.truncate(4 * n)
    command = [sys.executable, "-c", MEMORY, str(tmp_path / "signal"), str(n)]
    grown, batches = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert batches > 20
    assert grown < 50e6


def test_inside_compiled_functions():
    y = np.arange(10.0)

    def sums(y, mask):
        return jnp.sum(y)

    for batch_size in ("auto", 1):
        known = jax.jit(lambda a, batch_size=batch_size: a * map_pieces(sums, y, size=5, batch_size=batch_size))
        np.testing.assert_array_equal(known(2.0), [20, 70])

    def scale(a):
        made = map_pieces(sums, y, size=5)
        assert type(made) is np.ndarray
        return jnp.sum(a**2 * made)

    assert jax.grad(scale)(3.0) == jax.jit(jax.grad(scale))(3.0) == 6 * 45
    np.testing.assert_array_equal(jax.vmap(scale)(np.array([1.0, 2.0])), [45, 180])
    for transform in (jax.jit, jax.grad):
        with pytest.raises(TypeError, match="isolate_rows under jax.lax.map"):
            transform(lambda y: map_pieces(sums, y, size=5).sum())(y)
    with pytest.raises(TypeError, match="isolate_rows under jax.lax.map"):
        jax.jit(lambda edges: map_pieces(sums, y, edges=edges))(np.array([0.0, 5.0]))

    def scaled(scale):
        return lambda y, mask: sums(y, mask) * scale["by"]

    with pytest.raises(TypeError, match="isolate_rows under jax.lax.map"):
        jax.jit(lambda scale: map_pieces(scaled({"by": scale}), y, size=5))(2.0)


def test_edges_of_any_library_and_dtype():
    x = np.arange(10, dtype=np.float32) / 10
    exact = map_pieces(total, x, x, edges=[0.2, 0.5, 0.9])["rows"]
    assert exact.tolist() == [3, 4]
    for edges in (jnp.array([0.2, 0.5, 0.9]), [jnp.float32(0.2), np.float32(0.5), 0.9], (0.2, 0.5, 0.9)):
        assert map_pieces(total, x, x, edges=edges)["rows"].tolist() == [3, 4]
    assert map_pieces(total, x, x, edges=[x[2], 0.2, x[5]])["rows"].tolist() == [0, 3]  # 0.2 is the point, too
    whole = np.arange(10)
    assert map_pieces(total, whole, whole, edges=[2.5, 2.5, 5])["rows"].tolist() == [0, 2]
    with pytest.raises(ValueError, match=r"edges\[1\]=2.1 is below edges\[0\]=2.9"):
        map_pieces(total, whole, whole, edges=[2.9, 2.1, 5])


def test_sizes_halos_and_batches_beyond_the_signal_take_no_room():
    """Each of these would ask for terabytes."""
    y, widths = np.arange(1500.0), []

    def double(y, mask):
        widths.append(y.shape)
        return jnp.where(mask, 2 * y, 0)

    for keywords in ({"size": 10**12}, {"size": 700, "halo": 10**12}, {"size": 700, "batch_size": 10**12}):
        np.testing.assert_array_equal(map_pieces(double, y, output="stitch", **keywords), 2 * y)
    assert max(widths) == (700 + 2 * 2048,)


class Slotted:
    """Keeps its state in slots, one of them private."""

    __slots__ = ("__offset", "scale")

    def __init__(self, scale, offset):
        self.scale = scale
        self.__offset = offset

    def apply(self, y, mask):
        return self.scale * y + self.__offset

    def move(self, offset):
        self.__offset = offset


class Level(int):
    """A number that may have attributes."""


def test_changes_of_objects_that_a_function_reads_are_seen(compiled):
    y = np.arange(4.0)
    slotted = Slotted(2.0, 0.0)
    np.testing.assert_array_equal(map_pieces(slotted.apply, y, size=4, output="stitch"), 2 * y)
    slotted.scale = 3.0
    np.testing.assert_array_equal(map_pieces(slotted.apply, y, size=4, output="stitch"), 3 * y)
    slotted.move(1.0)
    np.testing.assert_array_equal(map_pieces(slotted.apply, y, size=4, output="stitch"), 3 * y + 1)
    before = len(compiled)
    np.testing.assert_array_equal(map_pieces(Slotted(3.0, 1.0).apply, y, size=4, output="stitch"), 3 * y + 1)
    assert len(compiled) == before
    for level in (Level(1), Level(2)):
        np.testing.assert_array_equal(
            map_pieces(lambda y, mask, level=level: y + level, y, size=4, output="stitch"), y + int(level)
        )


def test_bad_arguments():
    x = np.arange(10.0)
    wrong = [
        ({}, ValueError, "either size"),
        ({"size": 3, "edges": [0, 1]}, ValueError, "either size"),
        ({"size": 0}, ValueError, "size=0"),
        ({"size": 2.5}, TypeError, "size=2.5 must be an integer"),
        ({"size": 3, "halo": -1}, ValueError, "halo=-1"),
        ({"size": 3, "batch_size": 0}, ValueError, "batch_size=0"),
        ({"size": 3, "output": "join"}, ValueError, "output='join'"),
        ({"size": 3, "output": "stitch"}, ValueError, "shape .* for a piece of 3 rows"),
        ({"edges": [0]}, ValueError, "at least two"),
        ({"edges": [0, 5, 3]}, ValueError, r"edges\[2\]=3 is below edges\[1\]=5"),
        ({"edges": [0, 5.7, 5.3]}, ValueError, r"edges\[2\]=5.3 is below edges\[1\]=5.7"),
        ({"edges": 5}, TypeError, "edges must be a flat sequence of ascending values, got 5"),
        ({"edges": [[0, 5]]}, TypeError, "edges must be a flat sequence"),
        ({"edges": [None, 5]}, TypeError, "write -numpy.inf or numpy.inf for no bound"),
        ({"edges": [0, np.nan]}, ValueError, r"edges\[1\] is NaN"),
        ({"edges": [20, 30]}, ValueError, "No row of x"),
    ]
    for keywords, error, message in wrong:
        with pytest.raises(error, match=message):
            map_pieces(lambda x, mask: jnp.sum(x), x, **keywords)
    for bad in (np.array([0, 2, 1]), np.array([2, 0, 1]), np.array([1, 0, 2]), np.array([0, np.nan, 2])):
        with pytest.raises(ValueError, match="not sorted|NaN"):
            map_pieces(lambda x, mask: jnp.sum(x), bad, edges=[0, 1])
    for dtype, instead in ((np.longdouble, "float64"), (np.clongdouble, "complex128"), (jnp.bfloat16, "float32")):
        if np.dtype(dtype).name not in ("float64", "complex128"):  # as long doubles are on some machines
            with pytest.raises(TypeError, match=rf"pass array.astype\('{instead}'\)"):
                map_pieces(lambda x, mask: jnp.sum(x), x.astype(dtype), size=3)
    masked = np.ma.masked_greater(x, 7)
    for signal in ((masked,), (x, masked)):
        with pytest.raises(ValueError, match="masked entries"):
            map_pieces(lambda *parts: jnp.sum(parts[-2]), *signal, size=3)
    np.testing.assert_array_equal(map_pieces(lambda x, mask: jnp.sum(x), np.ma.array(x), size=5), [10, 35])
    with pytest.raises(ValueError, match="same number of rows"):
        map_pieces(total, x, x[:5], size=3)
    with pytest.raises(ValueError, match="no rows"):
        map_pieces(total, x[:0], size=3)
    with pytest.raises(TypeError, match="got an array of dtype datetime64.*turn dates into numbers"):
        map_pieces(total, x.astype("datetime64[s]"), size=3)
    with pytest.raises(TypeError, match="must be a function"):
        map_pieces(3, x, size=3)
    with pytest.raises(TypeError, match="selects with a boolean mask"):
        map_pieces(lambda x, mask: jnp.sum(x[mask]), x, size=3)
    with pytest.raises(TypeError, match="it gets one piece of each array and the mask"):
        map_pieces(lambda x: jnp.sum(x), x, size=3)
    with pytest.raises(ValueError, match="returned no array"):
        map_pieces(lambda x, mask: None, x, size=3)
