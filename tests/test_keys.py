"""Static parameters find their kernel again by what they compute, not by which object they are."""

from __future__ import annotations

import functools
import types

import cloudpickle
import jax.numpy as jnp
import numpy as np
import pytest

from skjaxwin import RollingJaxEstimator, count_compiles, models
from skjaxwin.models._keys import freeze

SCALE = 2.0


def scaled_mean(X, y, weight):
    return SCALE * jnp.sum(weight * y) / jnp.sum(weight)


def make(power, table=(1.0,)):
    def fit(X, y, weight):
        return table[0] * jnp.sum(weight * y**power) / jnp.sum(weight)

    return fit


@pytest.fixture
def data():
    rng = np.random.default_rng(5)
    return rng.normal(size=(40, 2)), rng.normal(size=40)


def fitted(function, data, **parameters):
    X, y = data
    with count_compiles() as compiles:
        params = RollingJaxEstimator(models.Custom(fit=function, **parameters)).fit(X, y).params_
    return params[-1], compiles.count


def test_a_function_defined_again_does_not_compile_again(data):
    first, _ = fitted(make(1), data)
    again, compiles = fitted(make(1), data)
    assert (again, compiles) == (first, 0)


def test_another_closure_is_another_function(data):
    _, y = data
    fitted(make(1), data)
    squares, _ = fitted(make(2), data)
    assert squares == pytest.approx(np.mean(y**2), rel=1e-12)
    doubled, _ = fitted(make(2, table=(2.0,)), data)
    assert doubled == pytest.approx(2 * np.mean(y**2), rel=1e-12)


def test_a_changed_global_is_seen(data, monkeypatch):
    _, y = data
    assert fitted(scaled_mean, data)[0] == pytest.approx(2 * np.mean(y), rel=1e-12)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    assert fitted(scaled_mean, data)[0] == pytest.approx(3 * np.mean(y), rel=1e-12)


def test_a_function_sent_by_value_to_a_worker_does_not_compile_again(data):
    function = make(3)
    first, _ = fitted(function, data)
    for _ in range(2):
        received = cloudpickle.loads(cloudpickle.dumps(function))
        assert received is not function
        again, compiles = fitted(received, data)
        assert (again, compiles) == (first, 0)


def test_copied_partials_and_methods_do_not_compile_again(data):
    def powered(X, y, weight, power):
        return jnp.sum(weight * y**power) / jnp.sum(weight)

    first, _ = fitted(functools.partial(powered, power=4), data)
    again, compiles = fitted(functools.partial(powered, power=4), data)
    assert (again, compiles) == (first, 0)
    other, compiles = fitted(functools.partial(powered, power=5), data)
    assert compiles >= 1
    assert other == pytest.approx(np.mean(data[1] ** 5), rel=1e-9)


def test_equal_numbers_of_another_type_are_other_parameters():
    assert freeze(True, "flag") != freeze(1, "flag")
    assert freeze(1, "flag") != freeze(1.0, "flag")
    assert freeze([1, (2, 3)], "x") == freeze([1, (2, 3)], "x")
    assert freeze((1,), "x") != freeze([1], "x")
    assert freeze(float("nan"), "x") == freeze(float("nan"), "x")
    assert freeze(np.arange(3), "x") != freeze(np.arange(3.0), "x")
    assert freeze({"a": [1]}, "x") == freeze({"a": [1]}, "x")


def test_inner_functions_and_recursion():
    def outer(X):
        return (lambda x: x + SCALE)(X)

    def again(X):
        return again(X)

    assert hash(freeze(outer, "f")) == hash(freeze(types.FunctionType(outer.__code__, globals()), "f"))
    assert isinstance(hash(freeze(again, "f")), int)


def test_what_has_no_key_is_refused(data):
    class Odd:
        __hash__ = None

    with pytest.raises(TypeError, match=r"'kind' has the unhashable type Odd"):
        fitted(make(1), data, kind=Odd())


class Scale:
    def __init__(self, value):
        self.value = value

    def mean(self, X, y, weight):
        return self.value * jnp.sum(weight * y) / jnp.sum(weight)


def test_methods_see_their_object_change_and_do_not_compile_again_for_clones(data):
    scale = Scale(1.0)
    once, _ = fitted(scale.mean, data)
    again, compiles = fitted(scale.mean, data)
    assert (again, compiles) == (once, 0)
    scale.value = 2.0
    assert fitted(scale.mean, data)[0] == pytest.approx(2 * once, rel=1e-12)


def test_constants_of_a_users_module_are_seen(data, monkeypatch):
    module = types.ModuleType("settings_of_a_user")
    module.FACTOR = 1.0
    monkeypatch.setitem(globals(), "settings", module)
    once, _ = fitted(scaled_by_module, data)
    module.FACTOR = 5.0
    assert fitted(scaled_by_module, data)[0] == pytest.approx(5 * once, rel=1e-12)


def scaled_by_module(X, y, weight):
    return settings.FACTOR * jnp.sum(weight * y) / jnp.sum(weight)  # noqa: F821


def test_the_sign_of_zero_is_part_of_a_number():
    assert freeze(0.0, "x") != freeze(-0.0, "x")


def test_functions_of_libraries_are_not_looked_into():
    assert freeze(np.mean, "f") == freeze(np.mean, "f")
    assert freeze(np.mean, "f") != freeze(np.median, "f")
