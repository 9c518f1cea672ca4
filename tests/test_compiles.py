"""How often anything is compiled, counted by the package and by a listener of our own."""

from __future__ import annotations

import functools
import itertools
import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit

from skjaxwin import RollingJaxEstimator, count_compiles, models, walk_forward_grid

# Each test takes a number of features that nothing in this process has compiled for.
_features = itertools.count(11)


@pytest.fixture
def data(rng):
    X = rng.normal(size=(400, next(_features)))
    return X, X[:, 0] + rng.normal(size=400)


@pytest.fixture
def compiles_of(compiled):
    """Run something and return how many compiles it took; the two counts must agree."""

    def count(function, *args, **keywords):
        before = len(compiled)
        with count_compiles() as counter:
            function(*args, **keywords)
        assert counter.count == len(compiled) - before == len(counter.names)
        assert (counter.seconds > 0) == (counter.count > 0)
        return counter.count

    return count


def weighted_mean(X, y, weight, tilt):
    w = weight * jnp.exp(tilt * X[:, 0])
    return jnp.sum(w * y) / jnp.sum(w)


def constant(params, X):
    return params + 0 * X[:, 0]


def power_mean(X, y, weight, degree, shift):
    return jnp.sum(weight * (y + shift) ** degree) / jnp.sum(weight)


def test_clones_refits_and_new_hyperparameters_share_a_kernel(data, compiles_of):
    X, y = data
    rolling = RollingJaxEstimator(models.Linear(alpha=1.0))
    assert compiles_of(rolling.fit, X, y) == 1
    assert compiles_of(rolling.fit, X, y) == 0
    assert compiles_of(clone(rolling).fit, X, y) == 0
    assert compiles_of(rolling.predict, X) == 0
    assert compiles_of(rolling.walk_forward_predict, X, y, np.arange(400.0)) == 0
    for alpha in (1, 0, 2.5, np.float32(3), np.int64(4)):
        assert compiles_of(rolling.set_params(model__alpha=alpha).fit, X, y) == 0, alpha
    for change in ({"step": 3}, {"gap": 2}, {"min_periods": 20}, {"underdetermined": "nan"}):
        assert compiles_of(clone(rolling).set_params(**change).fit, X, y) == 0, change
    # A time column that leaves the same features, with ties.
    timed = np.column_stack([np.arange(400) // 3, X])
    assert compiles_of(RollingJaxEstimator(models.Linear(), time=0).fit, timed, y) == 0


@pytest.mark.slow
def test_growing_data_compiles_once_for_each_power_of_two(data, compiles_of):
    X, y = data
    total = sum(compiles_of(RollingJaxEstimator(step=50).fit, X[:n], y[:n]) for n in range(1, 257, 5))
    assert total == 3  # 64, 128, 256


def test_growing_data_within_a_capacity_compiles_once(data, compiles_of):
    X, y = data
    sizes = [1, 2, 63, 64, 65, 200, 256, 257, 400]
    total = sum(compiles_of(RollingJaxEstimator(capacity=400, step=50).fit, X[:n], y[:n]) for n in sizes)
    assert total == 1


@pytest.mark.slow
def test_windows_within_a_power_of_two_share_a_kernel(data, compiles_of):
    X, y = data
    assert sum(compiles_of(RollingJaxEstimator(window=w, step=9).fit, X, y) for w in (65, 80, 100.0, 128, 97)) == 1
    # Narrow windows are all padded to the same least width.
    assert sum(compiles_of(RollingJaxEstimator(window=w, step=9).fit, X, y) for w in (1, 2, 30, 31.5, 64)) == 1


@pytest.mark.slow(all_but=["90-expanding"])
@pytest.mark.parametrize(("n", "window"), [(90, "expanding"), (384, "expanding"), (400, 40)])
def test_grid_search_over_growing_folds(n, window, data, compiles_of):
    X, y = data[0][:n], data[1][:n]
    grid = {"model__alpha": np.logspace(-3, 3, 20)}
    folds = TimeSeriesSplit(5)
    sizes = {len(train) for train, _ in folds.split(X)} | {n}
    assert len(sizes) == 6  # so that an engine without padding would compile six times

    def search(**parameters):
        rolling = RollingJaxEstimator(models.Linear(), window=window, step=10, **parameters)
        return GridSearchCV(rolling, grid, cv=folds, scoring="neg_mean_squared_error", error_score="raise").fit(X, y)

    assert 1 <= compiles_of(search, capacity=n) <= 2
    assert compiles_of(search, capacity=n) == 0
    assert 1 <= compiles_of(search) <= 5
    assert compiles_of(search) == 0


def test_grid_search_over_a_users_model(data, compiles_of):
    X, y = data

    def search(**parameters):
        model = models.Custom(fit=weighted_mean, predict=constant, tilt=0.0)
        rolling = RollingJaxEstimator(model, step=20, **parameters)
        grid = {"model__tilt": np.linspace(-1, 1, 20)}
        return GridSearchCV(rolling, grid, cv=TimeSeriesSplit(5), error_score="raise").fit(X, y)

    assert 1 <= compiles_of(search, capacity=400) <= 3  # fit, predict, and a check of the function
    assert compiles_of(search, capacity=400) == 0
    assert 1 <= compiles_of(search) <= 5
    assert compiles_of(search) == 0


def test_partials_and_lambdas_are_found_again_by_their_clones(data, compiles_of):
    X, y = data
    partial = models.Custom(fit=functools.partial(power_mean, degree=2), predict=constant, shift=0.5)
    nameless = models.Custom(fit=lambda X, y, weight: jnp.sum(weight * y) / jnp.sum(weight))
    for model in (partial, nameless):
        rolling = RollingJaxEstimator(model, capacity=512)
        assert compiles_of(rolling.fit, X, y) >= 1
        assert compiles_of(clone(rolling).fit, X[:300], y[:300]) == 0
        assert compiles_of(clone(clone(rolling)).fit, X, 2 * y) == 0
    # An equal partial made anew is the same computation; another fixed argument is not.
    again = models.Custom(fit=functools.partial(power_mean, degree=2), predict=constant, shift=-1)
    other = models.Custom(fit=functools.partial(power_mean, degree=3), predict=constant, shift=0.5)
    assert compiles_of(RollingJaxEstimator(again, capacity=512).fit, X, y) == 0
    rolling = RollingJaxEstimator(other, capacity=512)
    assert compiles_of(rolling.fit, X, y) >= 1
    np.testing.assert_allclose(rolling.params_[-1], np.mean((y + 0.5) ** 3), rtol=1e-12)


def test_integer_and_float_hyperparameters_are_one_kernel_and_floats_inside(data, compiles_of):
    X, y = data

    def compiles(**hyper):
        model = models.Custom(fit=power_mean, predict=constant, **hyper)
        return compiles_of(RollingJaxEstimator(model, capacity=512, step=10).fit, X, y)

    assert compiles(degree=2, shift=0) >= 1
    for degree in (2.0, 3, np.float64(1), np.int32(2)):
        assert compiles(degree=degree, shift=1.5) == 0


@pytest.mark.slow
def test_a_whole_grid_is_one_compile(data, compiles_of):
    X, y = data
    rolling = RollingJaxEstimator(models.Linear(), step=20)
    for size in (20, 25, 32):
        grid = {"model__alpha": np.logspace(-3, 3, size)}
        expected = 1 if size == 20 else 0
        assert compiles_of(walk_forward_grid, rolling, X, y, param_grid=grid) == expected


@pytest.mark.slow
def test_many_windows_need_no_further_compile(data, compiles_of, rng):
    X, y = data
    assert compiles_of(RollingJaxEstimator(capacity=1024, window=5, step=100).fit, X, y) == 1
    more = rng.normal(size=(1024, X.shape[1]))
    assert compiles_of(RollingJaxEstimator(capacity=1024, window=5).fit, more, more[:, 0]) == 0


@pytest.mark.slow
def test_float32_is_a_kernel_of_its_own(data, compiles_of):
    X, y = data
    assert compiles_of(RollingJaxEstimator().fit, X, y) == 1
    assert compiles_of(RollingJaxEstimator().fit, X.astype(np.float32), y) == 1
    assert compiles_of(RollingJaxEstimator().fit, X, y.astype(np.float32)) == 0


@pytest.mark.slow
def test_counters_nest_and_stop_at_the_end_of_their_block(data):
    X, y = data
    with count_compiles() as outer:
        RollingJaxEstimator(step=50).fit(X[:60], y[:60])
        with count_compiles() as inner, count_compiles() as twin:
            RollingJaxEstimator(step=50).fit(X[:100], y[:100])
        RollingJaxEstimator(step=50).fit(X[:61], y[:61])
    with pytest.raises(ZeroDivisionError), count_compiles() as failed:
        raise ZeroDivisionError
    RollingJaxEstimator(step=50).fit(X[:200], y[:200])  # compiles, and no counter is running
    assert (outer.count, inner.count, twin.count, failed.count) == (2, 1, 1, 0)
    assert outer.seconds > inner.seconds > 0
    assert all("fit_windows" in name for name in outer.names)


def settings_of_jax():
    return {name: repr(value) for name, value in jax.config.values.items()}


@pytest.mark.parametrize("wide", [False, True])
def test_fitting_leaves_the_users_jax_configuration_alone(wide, data):
    X, y = data
    with jax.enable_x64(wide):
        before = settings_of_jax()
        for dtype in (np.float32, np.float64):
            rolling = RollingJaxEstimator(models.Custom(fit=weighted_mean, predict=constant, tilt=0.1), step=50)
            found = rolling.fit(X.astype(dtype), y).predict(X.astype(dtype))
            assert found.dtype == dtype
            with pytest.raises(TypeError):
                RollingJaxEstimator(models.Custom(fit=lambda X, y, weight: float(y[0]))).fit(X.astype(dtype), y)
            assert jnp.zeros(1).dtype == (np.float64 if wide else np.float32)
        assert settings_of_jax() == before


def test_importing_starts_no_backend_and_changes_no_setting():
    script = """
import json, jax
from jax._src import xla_bridge
before = {name: repr(value) for name, value in jax.config.values.items()}
import skjaxwin, skjaxwin.models, skjaxwin.kernels, skjaxwin.search
estimator = skjaxwin.RollingJaxEstimator(skjaxwin.models.Linear(alpha=2.0), window=5)
repr(estimator), estimator.get_params()
after = {name: repr(value) for name, value in jax.config.values.items()}
started = xla_bridge.backends_are_initialized()
print(json.dumps([started, before == after, len(before), bool(jax.config.jax_enable_x64)]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    started, unchanged, n_settings, wide = json.loads(done.stdout)
    assert not started
    assert unchanged and n_settings > 10
    assert not wide
