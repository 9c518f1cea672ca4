"""Later rows: the result is that of a fit to all rows, nothing recompiles, and what fails changes nothing."""

from __future__ import annotations

import copy
import pickle
import warnings

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from skjaxwin import RollingJaxEstimator, models
from skjaxwin.window_results import OF_WINDOWS

SHOWN = [name for name in OF_WINDOWS if not name.startswith("_")] + ["coef_", "intercept_", "classes_"]
CAPACITY = 64


def leaves(value):
    if isinstance(value, dict):
        return [leaf for name in sorted(value) for leaf in leaves(value[name])]
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [np.asarray(value)]


def same(one, other, rtol=1e-10, but=()):
    """Hold all fitted attributes of two estimators together, and what they predict."""
    for name in SHOWN:
        if name in but:
            continue
        assert hasattr(one, name) == hasattr(other, name), name
        if not hasattr(one, name):
            continue
        for found, expected in zip(leaves(getattr(one, name)), leaves(getattr(other, name)), strict=True):
            assert found.dtype == expected.dtype, name
            assert found.shape == expected.shape, name
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol, err_msg=name)
            else:
                np.testing.assert_array_equal(found, expected, err_msg=name)


def streamed(estimator, cuts, X, y=None, weight=None, **first):
    """Fit to the rows up to the first cut, then go on from cut to cut."""
    estimator = clone(estimator)
    parts = [slice(a, b) for a, b in zip([0, *cuts], [*cuts, len(X)], strict=True) if a < b]
    for part in parts:
        of = [None if one is None else one[part] for one in (X, y, weight)]
        estimator.partial_fit(*of, **(first if part is parts[0] else {}))
    return estimator


def panel(seed, n=60, k=2, span=30):
    """Rows in the order of their times, several of some, a hole in the middle, some rows without weight."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(0, span, size=n)).astype(float)
    times[times >= span // 2] += 40
    X = rng.normal(size=(n, k))
    y = X @ np.arange(1, k + 1) + rng.normal(size=n)
    weight = rng.choice([0.0, 1.0, 2.5], p=[0.2, 0.4, 0.4], size=n)
    weight[:8] = 1.0
    return np.column_stack([times, X]), y, weight


settings_of_windows = st.fixed_dictionaries(
    {
        "window": st.one_of(st.just("expanding"), st.integers(8, 16), st.sampled_from([9.0, 55.0])),
        "step": st.integers(1, 4),
        "halflife": st.sampled_from([None, 5.0]),
        "algorithm": st.sampled_from(["auto", "exact"]),
    }
)


@settings(max_examples=20)
@given(
    st.integers(0, 2**32),
    settings_of_windows,
    st.booleans(),
    st.booleans(),
    st.lists(st.integers(10, 59), max_size=6, unique=True).map(sorted),
)
def test_rows_in_parts_are_as_good_as_at_once(seed, cut, timed, weighted, cuts):
    data, y, weight = panel(seed)
    X = data if timed else data[:, 1:]
    weight = weight if weighted else None
    rolling = RollingJaxEstimator(
        models.Linear(0.5), time=0 if timed else None, min_periods=4, capacity=CAPACITY, gap=1, **cut
    )
    whole = clone(rolling).fit(X, y, weight)
    parts = streamed(rolling, cuts, X, y, weight)
    same(parts, whole, rtol=1e-9 if cut["halflife"] else 1e-10)
    np.testing.assert_allclose(parts.predict(X), whole.predict(X), rtol=1e-9, atol=1e-9)


def test_rows_of_one_time_may_come_one_by_one_and_shuffled(rng):
    data, y, weight = panel(3)
    rolling = RollingJaxEstimator(time=0, window=6, min_periods=4, capacity=CAPACITY)
    whole = clone(rolling).fit(data, y, weight)
    one_by_one = streamed(rolling, range(12, 60), data, y, weight)
    same(one_by_one, whole)
    # Within one call, rows may come in any order.
    first, later = rng.permutation(20), 20 + rng.permutation(40)
    later = later[data[later, 0] > data[19, 0]]
    kept = np.sort(np.concatenate([first, later]))
    shuffled = clone(rolling).partial_fit(data[first], y[first], weight[first])
    shuffled.partial_fit(data[later], y[later], weight[later])
    # Where a window begins depends on the order of rows of one time, of which some are without weight.
    of_rows = "window_starts_", "window_stops_"
    same(shuffled, clone(rolling).fit(data[kept], y[kept], weight[kept]), but=of_rows)


def curve(params, X):
    return params["a"] + params["b"] * X[:, 0]


def weighted_mean(X, y, weight, power):
    return {"mean": jnp.sum(weight**power * y) / jnp.sum(weight**power)}


FAMILIES = {
    "ridge": models.Linear(1.0),
    "no intercept": models.Linear(fit_intercept=False),
    "lasso": models.ElasticNet(0.05),
    "logistic": models.Logistic(),
    "poisson": models.Poisson(0.1),
    "huber": models.Huber(),
    "quantile": models.Quantile(0.3, alpha=0.01),
    "curve": models.LeastSquares(curve, {"a": 0.0, "b": 0.0}),
    "loss": models.Loss(lambda p, X, y: (y - X @ p) ** 2, np.zeros(2), predict=lambda p, X: X @ p),
    "mean of one's own": models.Custom(weighted_mean, lambda p, X: p["mean"] + 0 * X[:, 0], power=1.0),
    "moments": models.Moments(),
    "covariance": models.Covariance(),
}


def family_data(name):
    data, y, _ = panel(11)
    X = data[:, 1:]
    if name == "logistic":
        return X, np.where(y + np.random.default_rng(0).logistic(size=len(y)) > 0, "up", "down")
    if name == "poisson":
        return X, np.random.default_rng(0).poisson(np.exp(X @ [0.3, -0.2]))
    return X, None if name in ("moments", "covariance") else y


@pytest.mark.parametrize(
    ("name", "window"),
    [
        pytest.param(name, window, marks=[] if window == 25 and name in quick else pytest.mark.slow)
        for quick in [("logistic", "curve", "moments")]
        for name in FAMILIES
        for window in ("expanding", 25)
    ],
)
def test_every_family(name, window):
    X, y = family_data(name)
    rolling = RollingJaxEstimator(FAMILIES[name], window=window, min_periods=12, capacity=CAPACITY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = clone(rolling).fit(X, y)
        parts = streamed(rolling, [30, 31, 40], X, y)
    # Solvers stop by tolerances: how often they stepped may depend on the start.
    same(parts, whole, rtol=1e-7, but=() if whole._fitted_model.merges else ("n_iter_", "gradient_norm_"))


@pytest.mark.parametrize("missing", ["raise", "skip"])
@pytest.mark.parametrize("inference", ["nonrobust", "HC1", pytest.param("HAC", marks=pytest.mark.slow), "cluster"])
def test_standard_errors_and_skipped_rows(inference, missing):
    data, y, _ = panel(5)
    firms = np.arange(len(data)) % 7
    X = np.column_stack([data, firms])
    if missing == "skip":
        X[[3, 25, 41], 1] = np.nan
        y = np.where(np.arange(len(y)) == 44, np.nan, y)
    rolling = RollingJaxEstimator(
        window="expanding",
        time=0,
        cluster=3 if inference == "cluster" else None,
        inference=inference,
        hac_maxlags=2 if inference == "HAC" else None,
        missing=missing,
        min_periods=10,
        capacity=CAPACITY,
    )
    same(streamed(rolling, [25, 26, 41, 45], X, y), clone(rolling).fit(X, y), rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_several_targets_and_precisions(dtype):
    data, y, weight = panel(7)
    X, y = data[:, 1:].astype(dtype), np.column_stack([y, -2 * y + data[:, 1]]).astype(dtype)
    rolling = RollingJaxEstimator(models.Linear(0.1), window=20, min_periods=6, capacity=CAPACITY)
    tolerance = 1e-5 if dtype is np.float32 else 1e-10
    parts = streamed(rolling, [30, 37], X, y, weight)
    same(parts, clone(rolling).fit(X, y, weight), rtol=tolerance)
    # The precision is that of the first rows.
    other = clone(rolling).partial_fit(X[:30], y[:30]).partial_fit(X[30:].astype(np.float64), y[30:])
    assert other.params_["coef"].dtype == dtype


def test_dates_and_dataframes():
    days = pd.date_range("2020-01-01", periods=60, freq="D")
    data, y, _ = panel(9)
    frame = pd.DataFrame({"day": days, "a": data[:, 1], "b": data[:, 2]})
    rolling = RollingJaxEstimator(time="day", window="20D", halflife="5D", min_periods=6, capacity=CAPACITY)
    parts = streamed(rolling, [30, 31, 45], frame, y)
    whole = clone(rolling).fit(frame, y)
    same(parts, whole, rtol=1e-9)
    assert parts.window_times_[-1] == np.datetime64("2020-02-29")
    assert parts.feature_names_in_.tolist() == ["day", "a", "b"]


def test_a_stream_of_single_rows_compiles_a_few_kernels(compiled, rng):
    n = 300
    X = rng.normal(size=(n, 3))
    y = X @ [1.0, 2.0, 3.0] + rng.normal(size=n)
    stream(X, y, compiled)


@pytest.mark.slow
def test_a_long_stream_of_single_rows_compiles_a_few_kernels(compiled, rng):
    n = 5000
    X = rng.normal(size=(n, 5))
    y = X @ np.arange(5.0) + rng.normal(size=n)
    stream(X, y, compiled)


def stream(X, y, compiled):
    for window in ("expanding", 100):
        rolling, before = RollingJaxEstimator(window=window, min_periods=20), len(compiled)
        rolling.partial_fit(X[:20], y[:20])
        for row in range(20, len(X)):
            rolling.partial_fit(X[row : row + 1], y[row : row + 1])
        assert len(compiled) - before <= np.log2(len(X))
        same(rolling, RollingJaxEstimator(window=window, min_periods=20).fit(X, y))


def test_the_oldest_rows_of_a_rolling_window_are_forgotten(rng):
    X, y = rng.normal(size=(3000, 2)), rng.normal(size=3000)
    rolling = RollingJaxEstimator(window=50).fit(X[:100], y[:100])
    size = len(pickle.dumps(rolling._history))
    for start in range(100, 3000, 100):
        rolling.partial_fit(X[start : start + 100], y[start : start + 100])
    # All that grows is a time for each row.
    assert len(pickle.dumps(rolling._history)) < size + 8 * 3000 + 1000


@pytest.mark.slow
def test_an_offset_costs_no_digits_in_a_long_stream(rng):
    x = 1e6 + rng.normal(size=1500)
    y = 3 * (x - 1e6) + rng.normal(size=1500)
    rolling = RollingJaxEstimator(capacity=2048, min_periods=10).fit(x[:100, None], y[:100])
    for row in range(100, 1500):
        rolling.partial_fit(x[row : row + 1, None], y[row : row + 1])
    centred = x - x.mean()
    np.testing.assert_allclose(rolling.coef_, [centred @ y / (centred @ centred)], rtol=1e-9)


def snapshot(estimator):
    return copy.deepcopy({name: getattr(estimator, name) for name in SHOWN if hasattr(estimator, name)})


DAYS = np.arange(40.0)
TARGET = np.sin(DAYS)


def dated(days=DAYS):
    days = np.asarray(days)
    return np.column_stack([days, np.cos(3 * days)])


@pytest.mark.parametrize(
    ("rows", "target", "message"),
    [
        (dated(DAYS[:3] + 38), TARGET[:3], "1 row.s. earlier than 39.0"),
        (dated(DAYS[:3] + 50)[:, :1], TARGET[:3], "X has 1 features, but RollingJaxEstimator is expecting 2"),
        (dated(DAYS[:3] + 50), TARGET[:2], "inconsistent numbers of samples"),
        (dated(DAYS[:3] + 50), np.ones((3, 2)), "y holds 2 target.s., but the rows so far had 1"),
        (dated(DAYS[:3] + 50), None, "requires y to be passed"),
        (dated(DAYS[:3] + 50), [1.0, np.nan, 1.0], "y contains NaN"),
        (dated([50, np.nan, 52]), TARGET[:3], "column contains NaN or NaT in 1 row"),
        (pd.DataFrame({0: pd.date_range("2020", periods=3), 1: 1.0}), TARGET[:3], "dates in both or numbers in both"),
    ],
)
def test_bad_rows_are_refused_and_change_nothing(rows, target, message):
    rolling = RollingJaxEstimator(time=0, window=10, min_periods=3, capacity=CAPACITY).fit(dated(), TARGET)
    before = snapshot(rolling)
    with pytest.raises(ValueError, match=message):
        rolling.partial_fit(rows, target)
    for name, value in before.items():
        for found, expected in zip(leaves(getattr(rolling, name)), leaves(value), strict=True):
            np.testing.assert_array_equal(found, expected)
    more = dated(DAYS[:5] + 50)
    rolling.partial_fit(more, TARGET[:5])
    whole = clone(rolling).fit(np.vstack([dated(), more]), np.append(TARGET, TARGET[:5]))
    same(rolling, whole)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"window": 11}, "window"),
        ({"model__alpha": 2.0}, "model"),
        ({"model": models.ElasticNet()}, "model"),
        ({"halflife": 3.0, "step": 2}, "step, halflife"),
        ({"time": None}, "time"),
        ({"min_periods": 4}, "min_periods"),
    ],
)
def test_changed_parameters_are_named(change, named):
    rolling = RollingJaxEstimator(models.Linear(1.0), time=0, window=10, min_periods=3, capacity=CAPACITY)
    rolling.fit(dated(), TARGET).set_params(**change)
    with pytest.raises(ValueError, match=f"{named} changed since the windows so far were fitted"):
        rolling.partial_fit(dated(DAYS[:3] + 50), TARGET[:3])


@pytest.mark.parametrize("kinds", [(np.int64, np.float64), (np.float64, np.int64)])
def test_integer_times_never_become_floats_that_are_the_same(kinds):
    x, y = np.arange(12.0) % 5, np.arange(12.0) % 7
    rolling = RollingJaxEstimator(models.Linear(1.0), time="day", window=4, min_periods=3, capacity=CAPACITY)

    def frame(days, part, kind):
        return pd.DataFrame({"day": days[part].astype(kind), "x": x[part]})

    early, late = slice(0, 8), slice(8, 12)
    small, large = np.arange(12), 2**53 + 1 + np.arange(12)
    for days in (large, -large[::-1]):
        fitted = clone(rolling).fit(frame(days, early, kinds[0]), y[early])
        with pytest.raises(ValueError, match="floats do not tell integers above"):
            fitted.partial_fit(frame(days, late, kinds[1]), y[late])
    parts = (
        clone(rolling).fit(frame(small, early, kinds[0]), y[early]).partial_fit(frame(small, late, kinds[1]), y[late])
    )
    whole = clone(rolling).fit(frame(small, slice(12), float), y)
    np.testing.assert_array_equal(parts.window_times_, whole.window_times_)
    np.testing.assert_allclose(parts.params_["coef"], whole.params_["coef"], rtol=1e-10, atol=1e-12)


def test_numbers_of_numpy_are_as_those_of_python():
    rolling = RollingJaxEstimator(models.Linear(1.0), time=0, window=10, min_periods=3, capacity=CAPACITY)
    rolling.fit(dated(), TARGET).set_params(window=np.int64(10), min_periods=np.int32(3), model__alpha=np.float64(1.0))
    n = len(rolling.window_times_)
    assert len(rolling.partial_fit(dated(DAYS[:3] + 50), TARGET[:3]).window_times_) > n
    # Three days are not three rows, however they are written.
    with pytest.raises(ValueError, match="window changed"):
        rolling.set_params(window=np.timedelta64(10, "ns")).partial_fit(dated(DAYS[:3] + 99), TARGET[:3])


def test_classes_of_the_future():
    x = np.linspace(-2, 2, 40)[:, None]
    y = np.where(np.sin(9 * x[:, 0]) > 0, "b", "a")
    rolling = RollingJaxEstimator(models.Logistic(), min_periods=5, capacity=CAPACITY)
    parts = streamed(rolling, [20, 21], x, y, classes=["a", "b", "c"])
    assert parts.classes_.tolist() == ["a", "b", "c"]
    parts.partial_fit([[2.1]], ["c"], classes=["c", "b", "a"])
    whole = clone(rolling).fit(np.append(x, [[2.1]], axis=0), np.append(y, "c"))
    np.testing.assert_allclose(parts.params_["coef"][-1], whole.params_["coef"][-1], rtol=1e-6, atol=1e-8)
    with pytest.raises(ValueError, match="the label 'd', which is not one of the classes"):
        parts.partial_fit([[2.2]], ["d"])
    with pytest.raises(ValueError, match="not those of the first call"):
        parts.partial_fit([[2.2]], ["a"], classes=["a", "b"])
    with pytest.raises(ValueError, match="is for classifiers"):
        RollingJaxEstimator().partial_fit(x, x[:, 0], classes=[0, 1])


def test_arrays_taken_before_keep_their_values(rng):
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    rolling = RollingJaxEstimator(window=20, step=3, capacity=CAPACITY)
    taken = []
    for stop in range(30, 61):
        rolling.partial_fit(X[0 if stop == 30 else stop - 1 : stop], y[0 if stop == 30 else stop - 1 : stop])
        taken.append((rolling.params_["coef"], rolling.params_["coef"].copy(), rolling.window_stops_.copy()))
        assert rolling.window_stops_[-1] == stop
    for array, values, _ in taken:
        np.testing.assert_array_equal(array, values)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_go_their_own_ways(copied, rng):
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    rolling = RollingJaxEstimator(capacity=CAPACITY, algorithm="exact").fit(X[:40], y[:40])
    rolling.partial_fit(X[40:45], y[40:45])
    other = copied(rolling)
    other.partial_fit(X[45:], -y[45:])
    rolling.partial_fit(X[45:], y[45:])
    same(rolling, clone(rolling).fit(X, y))
    same(other, clone(rolling).fit(X, np.append(y[:45], -y[45:])))


def test_fit_begins_anew(rng):
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    rolling = RollingJaxEstimator(window=20, capacity=CAPACITY).fit(X, y).partial_fit(X[:5] + 1, y[:5])
    same(rolling.fit(X[:50], y[:50]), clone(rolling).fit(X[:50], y[:50]))
    same(rolling.partial_fit(X[50:], y[50:]), clone(rolling).fit(X, y))
    with pytest.raises(NotFittedError):
        clone(rolling).predict(X)


def test_the_caller_may_write_to_their_rows(rng):
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    mine, targets = X[:40].copy(), y[:40].copy()
    rolling = RollingJaxEstimator(window=20, capacity=CAPACITY).fit(mine, targets)
    mine[:], targets[:] = np.nan, np.nan
    same(rolling.partial_fit(X[40:], y[40:]), clone(rolling).fit(X, y))


def test_rows_without_weight_only_move_time(rng):
    data, y, weight = panel(13)
    weight[30:40] = 0
    rolling = RollingJaxEstimator(time=0, window=8, min_periods=4, capacity=CAPACITY)
    parts = streamed(rolling, [30, 40], data, y, weight)
    same(parts, clone(rolling).fit(data, y, weight))
    with pytest.raises(ValueError, match="all weights are zero"):
        clone(rolling).partial_fit(data, y, np.zeros(60))
