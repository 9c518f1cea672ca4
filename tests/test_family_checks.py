"""scikit-learn's own checks on a classifier and on regressors of the families that are fitted by steps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_classifier, is_regressor

from skjaxwin import RollingJaxEstimator, models
from tests.sklearn_checks import scikit_learn_checks

FAMILIES = {
    "logistic": RollingJaxEstimator(models.Logistic()),
    "poisson": RollingJaxEstimator(models.Poisson()),
}


@scikit_learn_checks(FAMILIES, {}, quick=())
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", FAMILIES)
def test_dataframes_and_kinds(name):
    estimator = FAMILIES[name]
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = rng.integers(0, 2, 60)
    assert is_classifier(estimator) == (name == "logistic") and is_regressor(estimator) == (name != "logistic")
    expected = estimator.fit(X, y).predict(X)
    named = pd.DataFrame(X, columns=list("abc"))
    np.testing.assert_array_equal(estimator.fit(named, pd.Series(y)).predict(named), expected)
    assert estimator.feature_names_in_.tolist() == list("abc")
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(named.rename(columns={"c": "d"}))
