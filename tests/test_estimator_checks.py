"""scikit-learn's own checks on every interesting instance, and those that check_estimator leaves out."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn import config_context
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils.estimator_checks import (
    check_dataframe_column_names_consistency,
    check_inplace_ensure_writeable,
    check_param_validation,
)

from skjaxwin import RollingJaxEstimator, models
from tests.instances import EXPECTED_FAILURES, INSTANCES
from tests.sklearn_checks import scikit_learn_checks

QUICK = {"default", "time column", "moments"}
each_instance = pytest.mark.parametrize(
    "estimator",
    [pytest.param(one, id=name, marks=[] if name in QUICK else pytest.mark.slow) for name, one in INSTANCES.items()],
)


@scikit_learn_checks(INSTANCES, EXPECTED_FAILURES, quick={"default"})
def test_scikit_learn(estimator, check):
    check(estimator)


@each_instance
@pytest.mark.parametrize(
    "check",
    [check_dataframe_column_names_consistency, check_inplace_ensure_writeable, check_param_validation],
    ids=lambda check: check.__name__,
)
def test_checks_outside_check_estimator(estimator, check):
    with warnings.catch_warnings():
        # The checks themselves may warn about the estimators of other packages they know.
        warnings.simplefilter("ignore", FutureWarning)
        check("RollingJaxEstimator", clone(estimator))


@each_instance
def test_array_api_dispatch_changes_nothing(estimator, data):
    X, y, _ = data
    plain = clone(estimator).fit(X, y)
    with config_context(array_api_dispatch=True):
        dispatched = clone(estimator).fit(X, y)
        predictions = dispatched.predict(X)
        assert type(predictions) is np.ndarray
        if is_regressor(estimator):
            assert type(dispatched.score(X, y)) is float
    np.testing.assert_array_equal(predictions, plain.predict(X))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    n = 60
    X = rng.normal(size=(n, 4))
    X[:, 0] = rng.permutation(n) // 2  # two rows for each time
    X[:, 3] = rng.permutation(n) // 3
    y = X[:, 1] - 0.5 * X[:, 2] + 0.1 * rng.normal(size=n)
    weight = rng.integers(0, 3, size=n).astype(float)
    return X, y, weight


@each_instance
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_dataframes_give_the_arrays_result_without_any_warning(estimator, frame, data):
    X, y, weight = data
    named = frame(dict(zip("abcd", X.T, strict=True)))
    expected = clone(estimator).fit(X, y, sample_weight=weight).predict(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = clone(estimator).fit(named, y, sample_weight=weight)
        np.testing.assert_array_equal(fitted.predict(named), expected)
    assert fitted.feature_names_in_.tolist() == list("abcd")


@each_instance
def test_wrong_column_names_are_refused(estimator, data):
    X, y, _ = data
    fitted = clone(estimator).fit(pd.DataFrame(X, columns=list("abcd")), y)
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(pd.DataFrame(X, columns=list("abce")))


@each_instance
def test_inputs_are_never_written_to(estimator, data):
    copies = [a.copy() for a in data]
    for a in copies:
        a.setflags(write=False)
    X, y, weight = copies
    clone(estimator).fit(X, y, sample_weight=weight).predict(X)
    for before, after in zip(data, copies, strict=True):
        np.testing.assert_array_equal(before, after)


@each_instance
def test_float32_in_float32_out_within_its_precision(estimator, data):
    X, y, weight = data
    wide = clone(estimator).fit(X, y, sample_weight=weight).predict(X)
    narrow = clone(estimator).fit(X.astype(np.float32), y, sample_weight=weight).predict(X.astype(np.float32))
    assert narrow.dtype == np.float32
    assert wide.dtype == np.float64
    np.testing.assert_allclose(narrow, wide, rtol=2e-3, atol=2e-3 * np.abs(wide).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@each_instance
def test_weights_equal_repeated_rows_and_zero_weight_equals_absence(estimator, dtype, data):
    if estimator.window == 8 and estimator.time is None:
        pytest.skip("repeated rows are further time stamps of a window counted in rows")
    X, y, weight = data
    X = X.astype(dtype)
    rows = np.repeat(np.arange(len(X)), weight.astype(int))
    weighted = clone(estimator).fit(X, y, sample_weight=weight)
    repeated = clone(estimator).fit(X[rows], y[rows])
    tolerance = 2e-4 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=tolerance, atol=tolerance)


@each_instance
def test_kind_follows_the_model(estimator):
    supervised = not isinstance(estimator.model, models.Moments)
    assert is_regressor(estimator) == supervised
    assert hasattr(estimator, "score") == supervised
    assert not is_classifier(estimator)


@each_instance
def test_shown_in_a_notebook_before_and_after_fit(estimator, data):
    X, y, _ = data
    estimator = clone(estimator)
    assert "RollingJaxEstimator" in estimator._repr_html_()
    estimator.fit(X, y)
    assert "RollingJaxEstimator" in estimator._repr_html_()
    assert "RollingJaxEstimator" in repr(estimator)


def test_every_parameter_appears_in_get_params():
    parameters = RollingJaxEstimator(models.Custom(fit=len, predict=len, power=2.0)).get_params()
    assert parameters["model__power"] == 2.0
    assert set(RollingJaxEstimator._parameter_constraints) <= set(parameters)
