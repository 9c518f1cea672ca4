"""Means and variances of rolling windows from sums of runs equal two passes over the rows, or are named as lost."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skjaxwin import RollingJaxEstimator, models
from skjaxwin.kernels.rolling_sums import Room, fit_rolling_sums, rolling_sums

ALL = ("mean", "variance", "std")


def fit(X, width, statistic=ALL, first=1, ddof=1.0, max_memory=256e6):
    """Return what each window that ends at row `first` or later gets, and which are lost."""
    stops = np.arange(first, len(X) + 1)
    starts = np.maximum(stops - width, 0)
    model = models.Moments(statistic=statistic, ddof=ddof)
    return fit_rolling_sums(model, {"ddof": ddof, "power": 1.0}, X, starts, stops, max_memory=max_memory)


def two_passes(X, width, first=1, ddof=1):
    """Return means and variances in extended precision."""
    means, variances = [], []
    for stop in range(first, len(X) + 1):
        rows = X[max(stop - width, 0) : stop].astype(np.longdouble)
        mean = rows.mean(axis=0)
        means.append(mean)
        with np.errstate(invalid="ignore", divide="ignore"):
            variances.append(((rows - mean) ** 2).sum(axis=0) / max(len(rows) - ddof, 0))
    return np.array(means, float), np.array(variances, float)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(st.integers(1, 60), st.integers(-9, 9), st.sampled_from([0.0, 1.0, -1e6])), min_size=1, max_size=4
    ),
    st.integers(1, 70),
    st.integers(1, 3),
    st.integers(1, 80),
    st.integers(0, 2**32),
)
def test_windows_are_right_or_named_as_lost(runs, width, k, first, seed):
    rng = np.random.default_rng(seed)
    X = np.concatenate([offset + 10.0**size * rng.normal(size=(n, k)) for n, size, offset in runs])
    first = min(first, len(X))
    params, info, lost = fit(X, width, first=first)
    means, variances = two_passes(X, width, first)
    size = np.array([np.abs(X[max(stop - width, 0) : stop]).mean(axis=0) for stop in range(first, len(X) + 1)])
    kept = ~lost
    # A window of a single row has no variance.
    n_rows = np.minimum(np.arange(first, len(X) + 1), width)
    assert (info.determined[:, 0] == (n_rows > 1)).all()
    assert (
        np.abs(params["mean"][:, 0] - means)[kept] <= 1e-13 * (size + np.sqrt(np.nan_to_num(variances)))[kept]
    ).all()
    found = params["variance"][:, 0]
    np.testing.assert_allclose(found[kept & (n_rows > 1)], variances[kept & (n_rows > 1)], rtol=2e-11)
    assert np.isnan(found[n_rows == 1]).all()
    np.testing.assert_array_equal(params["std"], np.sqrt(params["variance"]))


def test_jumps_are_lost_and_offsets_are_not():
    X = 1e6 + np.random.default_rng(0).normal(size=(4000, 2))
    assert not fit(X, 50, first=2)[2].any()
    X[:1500] -= 1e6  # a piece of 2048 rows is then measured from one side
    lost = fit(X, 50, first=2)[2]
    assert lost.any() and not lost[2100:].any() and not lost[:1400].any()


def test_means_need_no_origin_and_lose_nothing():
    X = np.random.default_rng(1).normal(size=(3000, 2))
    X[700], X[1500:] = 1e12, X[1500:] + 1e9
    params, _, lost = fit(X, 60, "mean")
    means, _ = two_passes(X, 60)
    assert not lost.any()
    size = np.array([np.abs(X[max(stop - 60, 0) : stop]).mean(axis=0) for stop in range(1, 3001)])
    assert (np.abs(params["mean"][:, 0] - means) <= 1e-15 * size).all()


@pytest.mark.parametrize("bad", [np.nan, 1e200])
def test_what_is_out_of_range_stays_in_its_windows(bad):
    X = np.random.default_rng(2).normal(size=(400, 2))
    clean = fit(X, 30, first=2)
    X[100, 0] = bad
    params, _, lost = fit(X, 30, first=2)
    assert np.flatnonzero(lost).tolist() == list(range(99, 129))  # the window at i ends with row i + 1
    for name in ALL:
        np.testing.assert_allclose(params[name][~lost], clean[0][name][~lost], rtol=1e-12)


def test_a_window_owes_nothing_to_where_the_series_begins():
    X = np.random.default_rng(3).normal(size=(5000, 3))
    X[:1000] *= 1e9
    whole, later = fit(X, 100, first=100)[0], fit(X[1234:], 100, first=100)[0]
    np.testing.assert_array_equal(
        fit(X, 100, "mean", 100)[0]["mean"][1234:], fit(X[1234:], 100, "mean", 100)[0]["mean"]
    )
    for name in ALL:
        np.testing.assert_allclose(later[name], whole[name][1234:], rtol=1e-12, atol=1e-15)


def test_the_layout_of_the_rows_does_not_matter():
    X = np.random.default_rng(4).normal(size=(700, 5))
    for name, values in fit(np.asfortranarray(X), 33)[0].items():
        np.testing.assert_array_equal(values, fit(X, 33)[0][name])


def test_room_takes_as_much_memory_as_it_says():
    room = Room(3, 40, 7)
    arrays = [room.away, *room.runs, room.mean, room.squares, room.spare]
    assert sum(array.nbytes for array in arrays) <= Room.n_bytes(3, 40, 7) <= 1.1 * sum(a.nbytes for a in arrays)
    X = np.arange(60.0).reshape(20, 3)
    n_rows, origin, mean, squares, lost = rolling_sums(X, np.arange(7, 15), 7, 2, room)
    assert (n_rows, lost) == (7.0, False)
    np.testing.assert_allclose(origin + mean, X[3:11])
    np.testing.assert_allclose(squares, 9 * 28)


def test_windows_of_another_kind_are_left_to_others():
    X = np.random.default_rng(5).normal(size=(300, 2))
    assert fit(X, 20, "skewness") is None
    assert fit(X, 20, max_memory=1e4) is None
    model = models.Moments()
    for starts, stops in (([0, 1, 4], [5, 6, 7]), ([0, 1, 2], [5, 7, 9])):
        hyper = {"ddof": 1.0, "power": 1.0}
        assert fit_rolling_sums(model, hyper, X, np.array(starts), np.array(stops), max_memory=1e9) is None


class Halved(models.Moments):
    """Statistics of its own: what is said of `Moments` does not hold for it."""

    def solve(self, statistics, hyper):
        params, info = super().solve(statistics, hyper)
        return {name: values / 2 for name, values in params.items()}, info


@pytest.mark.parametrize("statistic", [ALL, pytest.param("mean", marks=pytest.mark.slow)])
def test_the_estimator_puts_lost_windows_right(statistic):
    # Jumps, constants, and an outlier, in a series that is long enough for merged statistics.
    x = np.random.default_rng(6).normal(size=12_000)
    x[3000:5000] += 1e7
    x[5000:6000] = 0.1
    x[9000] = 1e12
    parameters = {"window": 100, "min_periods": 2}
    model = models.Moments(statistic=statistic)
    auto = RollingJaxEstimator(model, **parameters).fit(x[:, None])
    exact = RollingJaxEstimator(model, algorithm="exact", **parameters).fit(x[:, None])
    for name in model.names():
        np.testing.assert_allclose(auto.params_[name], exact.params_[name], rtol=1e-10, atol=1e-14)
    if statistic == ALL:
        assert (auto.params_["std"][5100 - 2 : 6000 - 1] <= 1e-16).all()


def test_a_subclass_with_a_solution_of_its_own_keeps_it():
    x = np.random.default_rng(7).normal(size=(12_000, 1))
    own = RollingJaxEstimator(Halved(), window=100).fit(x).params_["mean"]
    np.testing.assert_allclose(2 * own, RollingJaxEstimator(models.Moments(), window=100).fit(x).params_["mean"])
