"""Predictions use fits of the past alone: strictly before, gap included, in the caller's order."""

from __future__ import annotations

import datetime as dt
from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone

from skjaxwin import RollingJaxEstimator, models, walk_forward_grid
from tests import reference

CAPACITY = 64  # one compile for all sizes of data below


def ridge(alpha=0.5, capacity=CAPACITY, **parameters):
    return RollingJaxEstimator(models.Linear(alpha), capacity=capacity, **parameters)


def fit_mean(X, y, weight, power):
    """A weighted mean with a floating-point hyperparameter."""
    w = weight**power
    return {"mean": jnp.sum(w * y) / jnp.sum(w), "slope": jnp.sum(w * X[:, 0]) / jnp.sum(w)}


def predict_mean(params, X):
    return params["mean"] + params["slope"] * X[:, 1]


def custom(power=1.0, **parameters):
    model = models.Custom(fit=fit_mean, predict=predict_mean, power=power)
    return RollingJaxEstimator(model, capacity=CAPACITY, **parameters)


def panel(seed, n=40, k=3, span=25):
    """Several rows per date, dates in no order, a hole in the middle, some rows without weight."""
    rng = np.random.default_rng(seed)
    times = rng.integers(0, span, size=n).astype(float)
    times[times >= span // 2] += 50
    X, y = rng.normal(size=(n, k)), rng.normal(size=n)
    weight = rng.choice([0.0, 1.0, 2.5], size=n)
    weight[0] = 1.0
    return np.column_stack([times, X]), y, weight


cuts = st.fixed_dictionaries(
    {
        "window": st.one_of(st.just("expanding"), st.integers(1, 12), st.sampled_from([2.0, 7.0, 55.0])),
        "step": st.integers(1, 5),
        "gap": st.integers(0, 3),
    }
)


@settings(max_examples=40)
@given(st.integers(0, 2**32), cuts, st.booleans())
def test_every_kind_of_window_against_loops(seed, cut, timed):
    data, y, weight = panel(seed)
    X, times = data[:, 1:], data[:, 0].tolist() if timed else None
    exact = {**cut, "window": Fraction(cut["window"]) if isinstance(cut["window"], float) else cut["window"]}
    expected = reference.walk_forward(X, y, times, weight, alpha=0.5, **exact)

    estimator = ridge(time=0 if timed else None, underdetermined="nan", **cut)
    found = estimator.walk_forward_predict(data if timed else X, y, weight)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    if timed:  # the rows' own times say which fit is theirs
        np.testing.assert_allclose(estimator.predict(data), expected, rtol=1e-9, atol=1e-9)
        early = clone(estimator).set_params(underdetermined="minimum_norm").fit(data, y, weight).predict(data)
        first, _, _ = first_fit(data, y, weight, exact)
        filled = np.where(np.isnan(expected), data[:, 1:] @ first["coef"] + first["intercept"], expected)
        np.testing.assert_allclose(early, filled, rtol=1e-9, atol=1e-9)
    else:  # no times: everything is predicted by the newest window
        _, rows = reference.window_rows(None, weight, window=exact["window"], step=exact["step"])[-1]
        coef, constant, _ = reference.least_squares(X[rows], y[rows], weight[rows], alpha=0.5)
        np.testing.assert_allclose(estimator.predict(X), X @ coef + constant, rtol=1e-9, atol=1e-9)


def first_fit(data, y, weight, cut):
    newest, rows = reference.window_rows(data[:, 0].tolist(), weight, window=cut["window"], step=cut["step"])[0]
    coef, constant, _ = reference.least_squares(data[rows, 1:], y[rows], weight[rows], alpha=0.5)
    return {"coef": coef, "intercept": constant}, newest, rows


def test_rows_of_a_date_are_predicted_by_the_date_before():
    data = np.array([[1, 0.0], [1, 0.0], [2, 0.0], [2, 0.0], [3, 0.0], [3, 0.0]])
    y = np.array([1.0, 3.0, 10.0, 20.0, 5.0, 5.0])
    rolling = ridge(time=0, window=1)
    # On date 2 the mean of date 1, on date 3 the mean of date 2; nothing came before date 1.
    np.testing.assert_allclose(rolling.walk_forward_predict(data, y), [np.nan, np.nan, 2.0, 2.0, 15.0, 15.0])
    np.testing.assert_allclose(rolling.predict(data), [2.0, 2.0, 2.0, 2.0, 15.0, 15.0])
    np.testing.assert_allclose(rolling.predict([[2.5, 0.0], [99.0, 0.0], [-5.0, 0.0]]), [15.0, 5.0, 2.0])


def test_a_gap_leaves_that_many_dates_between():
    data = np.column_stack([np.arange(6.0), np.zeros(6)])
    y = np.arange(6.0) * 10
    for gap in range(4):
        expected = [np.nan] * (1 + gap) + (10.0 * np.arange(5 - gap)).tolist()
        np.testing.assert_allclose(ridge(time=0, window=1, gap=gap).walk_forward_predict(data, y), expected)
        np.testing.assert_allclose(ridge(window=1, gap=gap).walk_forward_predict(data[:, 1:], y), expected)


def test_noise_cannot_be_predicted():
    # Four rows a date, a target of pure noise: fits that saw their own rows correlate, honest ones do not.
    rng = np.random.default_rng(7)
    times = np.repeat(np.arange(250.0), 4)
    data, y = np.column_stack([times, rng.normal(size=(1000, 3))]), rng.normal(size=1000)
    rolling = ridge(time=0, window=3, capacity=1024)
    honest = rolling.walk_forward_predict(data, y)
    known = ~np.isnan(honest)
    assert known.sum() == 996
    assert abs(np.corrcoef(honest[known], y[known])[0, 1]) < 0.1
    own = rolling.params_["coef"][times.astype(int)]
    peeking = np.sum(own * data[:, 1:], axis=1) + rolling.params_["intercept"][times.astype(int)]
    assert np.corrcoef(peeking, y)[0, 1] > 0.4


@given(st.integers(0, 2**32), cuts, st.sampled_from([0, 1, 2]), st.booleans())
def test_what_happens_at_or_after_a_time_changes_no_prediction_up_to_it(seed, cut, which, timed):
    data, y, weight = panel(seed)
    rng = np.random.default_rng(seed)
    make = (ridge, custom)[which % 2]
    inputs = data if timed else data[:, 1:]
    times = data[:, 0] if timed else np.arange(40.0)
    before = make(time=0 if timed else None, **cut).walk_forward_predict(inputs, y, weight)
    t = rng.choice(times)
    later = times >= t
    y2, X2, w2 = y.copy(), inputs.copy(), weight.copy()
    y2[later] = 1e6 * rng.normal(size=later.sum())
    w2[later & (w2 > 0)] *= 3.0
    X2[np.ix_(times > t, range(int(timed), X2.shape[1]))] *= -100.0
    after = make(time=0 if timed else None, **cut).walk_forward_predict(X2, y2, w2)
    np.testing.assert_array_equal(after[times <= t], before[times <= t])


@given(st.integers(0, 2**32), cuts)
def test_the_order_of_rows_never_matters_and_results_keep_it(seed, cut):
    data, y, weight = panel(seed)
    order = np.random.default_rng(seed).permutation(len(y))
    for make in (ridge, custom):
        plain = make(time=0, **cut).walk_forward_predict(data, y, weight)
        mixed = make(time=0, **cut).walk_forward_predict(data[order], y[order], weight[order])
        np.testing.assert_allclose(mixed, plain[order], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("make", [ridge, custom])
@pytest.mark.parametrize("time", [0, None])
def test_a_prediction_does_not_depend_on_the_batch(make, time):
    data, y, _ = panel(3)
    rolling = make(time=time, window=9).fit(data, y)
    whole = rolling.predict(data)
    many = np.tile(data, (30, 1))  # more rows than one call of the kernel takes
    np.testing.assert_allclose(rolling.predict(many), np.tile(whole, 30), rtol=1e-13)
    alone = np.concatenate([rolling.predict(data[i : i + 1]) for i in range(len(data))])
    np.testing.assert_allclose(alone, whole, rtol=1e-13)
    np.testing.assert_allclose(rolling.predict(data[::-3]), whole[::-3], rtol=1e-13)


def test_several_outputs_and_columns_keep_their_shape():
    data, _, weight = panel(5)
    Y = np.random.default_rng(5).normal(size=(40, 2))
    together = ridge(time=0, window=6).walk_forward_predict(data, Y, weight)
    for j in range(2):
        single = ridge(time=0, window=6).walk_forward_predict(data, Y[:, j], weight)
        np.testing.assert_allclose(together[:, j], single, rtol=1e-10, atol=1e-12)
        column = ridge(time=0, window=6).walk_forward_predict(data, Y[:, [j]], weight)
        np.testing.assert_array_equal(column, single[:, None])


@pytest.mark.parametrize("model", ["linear", "custom", "moments"])
def test_a_grid_equals_one_estimator_for_each_candidate(model):
    data, y, weight = panel(11)
    if model == "linear":
        # Traced, static and window parameters in one grid; more candidates than a small batch.
        base, grid = ridge(time=0), {"model__alpha": [0, 0.1, 1.0, 10, 100.0], "window": [5, "expanding"]}
    elif model == "custom":
        base, grid = custom(time=0, window=7.0), [{"model__power": [0.5, 1, 2.0]}, {"gap": [0, 2]}]
    else:
        base = RollingJaxEstimator(models.Moments(), time=0, window=4, capacity=CAPACITY)
        grid, y = {"model__power": [1.0, 2, 4.0]}, None
    data[:, 1:] = np.abs(data[:, 1:])
    found = walk_forward_grid(base, data, y, param_grid=grid, sample_weight=weight)
    assert len(found.candidates) == len(found.predictions) == len(found.params)
    for i, candidate in enumerate(found.candidates):
        alone = clone(base).set_params(**candidate)
        np.testing.assert_allclose(
            found.predictions[i], alone.walk_forward_predict(data, y, weight), rtol=1e-10, atol=1e-10
        )
        np.testing.assert_array_equal(found.window_times[i], alone.window_times_)
        for name, values in alone.params_.items():
            np.testing.assert_allclose(found.params[i][name], values, rtol=1e-10, atol=1e-10)


def test_a_grid_follows_the_nan_rule_of_its_estimator():
    data, y, _ = panel(13)
    base = ridge(time=0, window=1, underdetermined="nan")
    found = walk_forward_grid(base, data, y, param_grid={"model__alpha": [0.0, 1.0]})
    for i, alpha in enumerate([0.0, 1.0]):
        alone = clone(base).set_params(model__alpha=alpha).walk_forward_predict(data, y)
        np.testing.assert_allclose(found.predictions[i], alone, rtol=1e-10, atol=1e-10)
    assert np.isnan(found.predictions[0]).sum() > np.isnan(found.predictions[1]).sum()


def test_moments_are_weighted_means_of_powers():
    data, _, weight = panel(17)
    rolling = RollingJaxEstimator(models.Moments(power=2), time=0, window=9.0, capacity=CAPACITY)
    predicted = rolling.walk_forward_predict(data, sample_weight=weight)
    windows = reference.window_rows(data[:, 0].tolist(), weight, window=9.0)
    expected = np.array([weight[r] @ data[r, 1:] ** 2 / weight[r].sum() for _, r in windows])
    np.testing.assert_allclose(rolling.params_["mean"], expected, rtol=1e-12)
    stamps = [newest for newest, _ in windows]
    for row, t in enumerate(data[:, 0]):
        i = reference.window_before(t, stamps, stamps)
        np.testing.assert_allclose(predicted[row], np.full(3, np.nan) if i is None else expected[i], rtol=1e-12)


def test_a_users_model_is_fitted_on_exactly_the_windows_rows():
    data, y, weight = panel(19)
    rolling = custom(power=2.0, time=0, window=3, step=2)
    rolling.walk_forward_predict(data, y, weight)
    windows = reference.window_rows(data[:, 0].tolist(), weight, window=3, step=2)
    squared = weight**2
    np.testing.assert_allclose(
        rolling.params_["mean"], [squared[r] @ y[r] / squared[r].sum() for _, r in windows], rtol=1e-12
    )


@pytest.mark.parametrize("parameter", ["window", "halflife"])
def test_every_way_to_write_a_duration_fits_the_same(parameter):
    # Through the estimator and its parameter validation, not only through skjaxwin.windows.
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"day": pd.date_range("2024-01-01", periods=30), "x": rng.normal(size=30)})
    y = rng.normal(size=30)
    ways = ["4D", "96h", dt.timedelta(days=4), np.timedelta64(4, "D"), np.timedelta64(96, "h"), pd.Timedelta("4D")]
    fits = [RollingJaxEstimator(time="day", **{parameter: way}).fit(frame, y) for way in ways]
    for other in fits[1:]:
        np.testing.assert_array_equal(other.params_["coef"], fits[0].params_["coef"])
    by_number = RollingJaxEstimator(time="day", **{parameter: 4.0}).fit(frame.assign(day=np.arange(30)), y)
    np.testing.assert_array_equal(by_number.params_["coef"], fits[0].params_["coef"])


def test_a_grid_keeps_the_shape_of_y():
    rng = np.random.default_rng(8)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=(40, 1))
    grid = walk_forward_grid(RollingJaxEstimator(), X, y, param_grid={"model__alpha": [1.0, 2.0]})
    assert grid.predictions.shape == (2, 40, 1)
    assert RollingJaxEstimator().walk_forward_predict(X, y).shape == (40, 1)


def test_a_halflife_too_short_for_the_times_is_refused():
    with pytest.raises(ValueError, match="halflife.*too short"):
        RollingJaxEstimator(halflife=1e-308).fit(np.ones((40, 2)), np.arange(40.0))
