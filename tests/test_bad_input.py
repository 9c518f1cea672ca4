"""Bad input gets a clear error that names the parameter, or the right result."""

from __future__ import annotations

import datetime
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

from skjaxwin import RollingJaxEstimator, models, walk_forward_grid


@pytest.fixture
def data():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(30, 2))
    return X, X @ [1.0, 2.0] + 3.0


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"window": 0}, "'window'"),
        ({"window": -3}, "'window'"),
        ({"window": 0.0}, "'window'"),
        ({"window": float("nan")}, "window"),
        ({"window": float("inf")}, "window"),
        ({"window": "growing"}, "window='growing' cannot be read.*or 'expanding'"),
        ({"window": "90D"}, "window='90D'"),
        ({"window": datetime.timedelta(days=3)}, "window"),
        ({"window": None}, "'window'"),
        ({"step": 0}, "'step'"),
        ({"step": 1.5}, "'step'"),
        ({"gap": -1}, "'gap'"),
        ({"min_periods": 0}, "'min_periods'"),
        ({"min_periods": 31}, "min_periods=31.*the largest holds 30"),
        ({"min_periods": 8, "window": 7}, "min_periods=8.*the largest holds 7"),
        ({"halflife": 0.0}, "'halflife'"),
        ({"halflife": "5D"}, "halflife='5D'"),
        ({"underdetermined": "zero"}, "'underdetermined'"),
        ({"capacity": 29}, "capacity=29 is smaller than the data"),
        ({"capacity": 0}, "'capacity'"),
        ({"max_memory": 0}, "'max_memory'"),
        ({"model": "ridge"}, "'model'"),
        ({"model": models.Linear(alpha=-1.0)}, "'alpha'"),
        ({"model": models.Linear(alpha="much")}, "'alpha'"),
        ({"model": models.Linear(fit_intercept="yes")}, "'fit_intercept'"),
        ({"model": models.Moments(power=0.0)}, "'power'"),
        ({"time": 2}, "time=2"),
        ({"time": "date"}, "time='date'"),
    ],
)
def test_parameters_are_named(data, parameters, message):
    X, y = data
    with pytest.raises(ValueError, match=message):
        RollingJaxEstimator(**parameters).fit(X, y)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("time", [None, 1])
def test_not_finite_values_are_refused(data, bad, time):
    X, y = data
    estimator = RollingJaxEstimator(time=time)
    fitted = RollingJaxEstimator(time=time).fit(X, y)
    for column in (0, 1):
        broken = X.copy()
        broken[4, column] = bad
        with pytest.raises(ValueError, match="NaN|infinity|inf"):
            estimator.fit(broken, y)
        with pytest.raises(ValueError, match="NaN|infinity|inf"):
            fitted.predict(broken)
    broken = y.copy()
    broken[4] = bad
    with pytest.raises(ValueError, match="NaN|infinity"):
        estimator.fit(X, broken)


def test_missing_times_are_counted_and_located():
    frame = pd.DataFrame({"when": pd.to_datetime(["2020-01-01", None, "2020-01-03", None]), "x": [1.0, 2, 3, 4]})
    with pytest.raises(ValueError, match=r"'when'.*NaT in 2 row\(s\), the first at row 1"):
        RollingJaxEstimator(time="when").fit(frame, [1.0, 2, 3, 4])


@pytest.mark.parametrize("shape", [(0, 2), (3, 0), (3,), (2, 2, 2)])
def test_empty_or_misshapen_data(shape):
    with pytest.raises(ValueError, match=r"0 sample|0 feature|Expected 2D|dim 3"):
        RollingJaxEstimator().fit(np.zeros(shape), np.zeros(shape[0]))


def test_lengths_must_agree(data):
    X, y = data
    for time in (None, 0):
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            RollingJaxEstimator(time=time).fit(X, y[:-1])
    with pytest.raises(ValueError, match="sample_weight"):
        RollingJaxEstimator().fit(X, y, sample_weight=np.ones(7))


def test_weights_must_be_usable(data):
    X, y = data
    with pytest.raises(ValueError, match="Negative values in data passed to `sample_weight`"):
        RollingJaxEstimator().fit(X, y, sample_weight=np.r_[-1.0, np.ones(29)])
    with pytest.raises(ValueError, match="weights are zero|zero"):
        RollingJaxEstimator().fit(X, y, sample_weight=np.zeros(30))
    with pytest.raises(ValueError, match="NaN|nan"):
        RollingJaxEstimator().fit(X, y, sample_weight=np.r_[np.nan, np.ones(29)])


def test_only_the_time_column_is_not_enough():
    with pytest.raises(ValueError, match=r"1 feature\(s\)"):
        RollingJaxEstimator(time=0).fit(np.arange(5.0)[:, None], np.arange(5.0))


def test_y_must_be_there_and_numeric(data):
    X, _ = data
    with pytest.raises(ValueError, match="requires y"):
        RollingJaxEstimator().fit(X)
    with pytest.raises(ValueError, match="requires y"):
        RollingJaxEstimator(time=0).fit(X)
    with pytest.raises(ValueError, match="could not convert string"):
        RollingJaxEstimator().fit(X, ["a"] * 30)


def test_one_row_predicts_its_target():
    fitted = RollingJaxEstimator().fit([[1.0, 2.0]], [7.0])
    assert fitted.predict([[5.0, 5.0]]).tolist() == [7.0]
    assert not fitted.determined_[0]
    strict = RollingJaxEstimator(underdetermined="nan").fit([[1.0, 2.0]], [7.0])
    assert np.isnan(strict.predict([[5.0, 5.0]])).all()


def test_one_feature_is_a_simple_regression():
    x = np.array([0.0, 1.0, 2.0, 4.0])
    fitted = RollingJaxEstimator(window=3).fit(x[:, None], [1.0, 3.0, 5.0, 9.0])
    np.testing.assert_allclose(fitted.params_["coef"][1:, 0], 2.0, rtol=1e-12)
    np.testing.assert_allclose(fitted.params_["intercept"][1:], 1.0, rtol=1e-12)


def test_a_constant_column_has_no_slope_and_flags_its_windows(data):
    X, y = data
    X = np.column_stack([X, np.full(30, 5.1)])
    fitted = RollingJaxEstimator().fit(X, y)
    np.testing.assert_allclose(fitted.coef_, [1.0, 2.0, 0.0], atol=1e-12)
    assert not fitted.determined_.any()
    strict = RollingJaxEstimator(underdetermined="nan").fit(X, y)
    assert np.isnan(strict.coef_).all()
    assert np.isfinite(RollingJaxEstimator(models.Linear(alpha=0.1), underdetermined="nan").fit(X, y).coef_).all()


def test_dates_need_a_duration_with_a_unit():
    frame = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=6), "x": np.arange(6.0)})
    for parameters in ({"window": 3.0}, {"halflife": 2.0}):
        with pytest.raises(ValueError, match="has no unit.*'90D'"):
            RollingJaxEstimator(time="when", **parameters).fit(frame, np.arange(6.0))


def test_times_of_another_kind_are_refused_when_predicting():
    frame = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=6), "x": np.arange(6.0)})
    fitted = RollingJaxEstimator(time="when").fit(frame, np.arange(6.0))
    with pytest.raises(ValueError, match="use dates in both or numbers in both"):
        fitted.predict(frame.assign(when=np.arange(6)))


def test_text_times_are_refused_with_the_remedy():
    frame = pd.DataFrame({"when": ["a", "b", "c"], "x": np.arange(3.0)})
    with pytest.raises(TypeError, match="holds text; convert it with pandas.to_datetime"):
        RollingJaxEstimator(time="when").fit(frame, np.arange(3.0))


def test_an_unknown_column_lists_the_known_ones():
    frame = pd.DataFrame({"a": np.arange(3.0), "b": np.arange(3.0)})
    with pytest.raises(ValueError, match=r"time='c' is not a column of X; its columns are \['a', 'b'\]"):
        RollingJaxEstimator(time="c").fit(frame, np.arange(3.0))


def test_unknown_hyperparameters_are_refused(data):
    X, y = data
    with pytest.raises(ValueError, match="Invalid parameter 'beta'"):
        RollingJaxEstimator(models.Linear()).set_params(model__beta=1.0)
    with pytest.raises(ValueError, match="Invalid parameter 'beta'"):
        walk_forward_grid(RollingJaxEstimator(), X, y, param_grid={"model__beta": [1.0]})
    with pytest.raises(ValueError, match="'alpha'"):
        walk_forward_grid(RollingJaxEstimator(), X, y, param_grid={"model__alpha": [1.0, -1.0]})


def test_good_data_raises_no_warning(data):
    X, y = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RollingJaxEstimator(window=5).fit(X, y, sample_weight=np.arange(30.0)).predict(X)


def test_dates_without_a_time_column_are_named(data):
    dates = pd.date_range("2024-01-01", periods=3)
    for frame in (pd.DataFrame({"x": [1.0, 2, 3], "when": dates}), pl.DataFrame({"x": [1.0, 2, 3], "when": dates})):
        with pytest.raises(ValueError, match="column 'when' holds dates; pass time='when'"):
            RollingJaxEstimator().fit(frame, [1.0, 2, 3])


def test_true_is_one_where_a_number_is_meant(data):
    X, y = data
    one = RollingJaxEstimator(models.Linear(alpha=1)).fit(X, y)
    true = RollingJaxEstimator(models.Linear(alpha=True)).fit(X, y)
    np.testing.assert_array_equal(true.coef_, one.coef_)


@pytest.mark.parametrize("model", [models.Linear, Ridge()])
def test_a_model_is_an_instance_of_a_window_model(data, model):
    X, y = data
    with pytest.raises(ValueError, match=r"'model' parameter.*skjaxwin\.models\.WindowModel"):
        RollingJaxEstimator(model).fit(X, y)


def test_a_grid_needs_the_estimator_itself(data):
    X, y = data
    with pytest.raises(TypeError, match="needs a RollingJaxEstimator, got Pipeline"):
        walk_forward_grid(make_pipeline(RollingJaxEstimator()), X, y, param_grid={})


def test_windows_without_finite_parameters_are_counted(data):
    X, y = data
    with pytest.warns(ConvergenceWarning, match=r"30 of 30 windows.*the first of them ends at 0"):
        fitted = RollingJaxEstimator(models.Moments(power=0.5)).fit(-np.abs(X), y)
    assert not fitted.converged_.any()
