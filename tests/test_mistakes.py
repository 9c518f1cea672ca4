"""Mistakes in a user's own function: the message names the function, its place and what is wrong."""

from __future__ import annotations

import functools
import re

import jax.numpy as jnp
import numpy as np
import pytest

from skjaxwin import RollingJaxEstimator, models

X = np.random.default_rng(0).normal(size=(20, 3))
Y = X[:, 0]


def no_weight(X, y):
    return jnp.sum(y)


def swapped(y, X, weight):
    return jnp.sum(weight * y)  # here


def wrong_shapes(X, y, weight):
    return X @ y  # here


def adds_a_list(X, y, weight, shift):
    return jnp.sum(weight * y) * shift  # here


def random(X, y, weight):
    return jnp.sum(weight * y) * np.random.default_rng().normal()


def right(X, y, weight):
    return jnp.sum(weight * y) / jnp.sum(weight)


def fit(function, **hyperparameters):
    return RollingJaxEstimator(models.Custom(fit=function, **hyperparameters)).fit(X, Y)


@pytest.mark.parametrize(
    ("function", "hyperparameters", "what"),
    [
        (no_weight, {}, "positional arguments"),
        (swapped, {}, "shapes"),
        (wrong_shapes, {}, "shape"),
        (right, {"strength": 1.0}, "unexpected keyword argument 'strength'"),
        (adds_a_list, {}, "missing 1 required positional argument: 'shift'"),
        (adds_a_list, {"shift": [1.0, 2.0]}, "list"),
    ],
)
def test_the_function_and_its_place_are_named(function, hyperparameters, what):
    with pytest.raises((TypeError, ValueError)) as caught:
        fit(function, **hyperparameters)
    message = str(caught.value)
    first = function.__code__.co_firstlineno
    assert message.startswith(f"{function.__name__} ({__file__}, line {first}), given as Custom(fit=...),")
    assert what in message
    assert "fit gets X of shape (n_rows, n_features)" in message


def test_an_error_of_another_kind_stays_what_it_is_and_gains_a_note():
    def divides(X, y, weight):
        return jnp.sum(weight) * (1 / 0)

    with pytest.raises(ZeroDivisionError) as caught:
        fit(divides)
    note = caught.value.__notes__[-1]  # after JAX's own
    assert "divides" in note and __file__ in note


def test_random_numbers_are_called_by_their_name():
    with pytest.raises(ValueError, match="random.*draws random numbers"):
        fit(random)


class Forgetful(models.WindowModel):
    def fit(self, X, y, weight, hyper, start):
        return {"mean": jnp.sum(weight * y) / jnp.sum(weight)}


class Improvised(Forgetful):
    def fit(self, X, y, weight, hyper, start):
        return {"mean": jnp.sum(weight * y) / jnp.sum(weight)}, {}


@pytest.mark.parametrize("model", [Forgetful(), Improvised()])
def test_a_model_must_say_how_the_fit_went(model):
    with pytest.raises(TypeError, match=r"must return a pair \(params, models.FitInfo"):
        RollingJaxEstimator(model).fit(X, Y)


def test_a_prediction_of_the_wrong_size_is_refused():
    def all_rows(params, X):
        return jnp.zeros(7)

    fitted = RollingJaxEstimator(models.Custom(right, all_rows)).fit(X, Y)
    with pytest.raises(ValueError, match=re.escape("of shape (n_rows,) or (n_rows, n_outputs)")):
        fitted.predict(X)


def test_a_missing_prediction_function_is_named():
    fitted = RollingJaxEstimator(models.Custom(right)).fit(X, Y)
    with pytest.raises(ValueError, match="pass predict="):
        fitted.predict(X)


def counts_ones(X, y, weight):
    return jnp.sum(weight * y) / jnp.sum(jnp.ones_like(y))


def counts_by_comparison(X, y, weight):
    return jnp.sum(weight * y) / jnp.sum(weight >= 0)


def middle_of_the_rows(X, y, weight):
    return jnp.sort(jnp.where(weight > 0, y, jnp.inf))[len(y) // 2]


def plain_mean(X, y, weight):
    return jnp.mean(y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_check_that_tells_nothing_is_made_again():
    few = RollingJaxEstimator(models.Custom(fit=middle_of_the_rows)).fit(X[:2], Y[:2])
    assert not few.converged_.any()  # the middle of 64 rows of padding is infinite
    with pytest.raises(ValueError, match="changes with rows of weight 0"):
        RollingJaxEstimator(models.Custom(fit=middle_of_the_rows)).fit(X, Y)


@pytest.mark.parametrize("n_rows", [2, 3, 20])
@pytest.mark.parametrize("function", [counts_ones, counts_by_comparison, plain_mean])
def test_every_way_to_count_rows_is_refused(function, n_rows):
    with pytest.raises(ValueError, match=rf"{function.__name__} .*changes with rows of weight 0"):
        RollingJaxEstimator(models.Custom(fit=function)).fit(X[:n_rows], Y[:n_rows])


def median_and_slopes(X, y, weight):
    order = jnp.argsort(y)
    share = jnp.cumsum(weight[order])
    middle = y[order][jnp.searchsorted(share, share[-1] / 2)]
    return middle, jnp.linalg.solve((weight * X.T) @ X, (weight * X.T) @ (y - middle))


def test_a_correct_function_that_needs_many_rows_is_no_false_alarm():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(40, 6)), rng.normal(size=40)
    middle, slopes = RollingJaxEstimator(models.Custom(fit=median_and_slopes), min_periods=10).fit(X, y).params_
    assert middle[-1] == np.sort(y)[19]
    np.testing.assert_allclose(slopes[-1], np.linalg.lstsq(X, y - middle[-1], rcond=None)[0], rtol=1e-9)


class ReadsItself(models.WindowModel):
    def __init__(self, scale=1.0):
        self.scale = scale

    def fit(self, X, y, weight, hyper, start):
        return {"mean": jnp.sum(weight * y) / jnp.sum(weight)}, models.FitInfo()

    def predict(self, params, X):
        return self.scale * params["mean"] + 0 * X[:, 0]


def test_a_number_read_from_self_is_refused_where_it_would_go_stale():
    fitted = RollingJaxEstimator(ReadsItself(scale=3.0)).fit(X, Y)
    with pytest.raises(TypeError, match="numeric hyperparameter from self"):
        fitted.predict(X)


@pytest.mark.parametrize("hidden", [functools.partial(right, y=jnp.tanh), (jnp.tanh,), {"f": [jnp.tanh]}])
def test_jitted_functions_are_found_inside_other_parameters(hidden):
    with pytest.raises(TypeError, match="jitted function"):
        RollingJaxEstimator(models.Custom(fit=right, option=hidden)).fit(X, Y)
