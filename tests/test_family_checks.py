"""scikit-learn's own checks on a classifier and on regressors of every family."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.estimator_checks import check_regressors_train, check_sample_weight_equivalence_on_dense_data

from skjaxwin import RollingJaxEstimator, models
from tests.sklearn_checks import scikit_learn_checks


def line(params, X):
    return params["level"] + X @ params["slopes"]


def line_at_zero(n_features):
    return {"level": 0.0, "slopes": np.zeros(n_features)}


def log_cosh(params, X, y):
    return jnp.log(jnp.cosh(jnp.clip(y - line(params, X), -300, 300))) + 0.01 * params["slopes"] @ params["slopes"]


FAMILIES = {
    "linear": RollingJaxEstimator(models.Linear()),
    "elastic net": RollingJaxEstimator(models.ElasticNet()),
    "elastic net, small penalty": RollingJaxEstimator(models.ElasticNet(0.01)),
    "quantile": RollingJaxEstimator(models.Quantile()),
    "quantile, small penalty": RollingJaxEstimator(models.Quantile(alpha=0.01)),
    "huber": RollingJaxEstimator(models.Huber()),
    "logistic": RollingJaxEstimator(models.Logistic()),
    "poisson": RollingJaxEstimator(models.Poisson()),
    "gamma": RollingJaxEstimator(models.Gamma()),
    "tweedie": RollingJaxEstimator(models.Tweedie()),
    "least squares": RollingJaxEstimator(models.LeastSquares(line, line_at_zero)),
    "loss": RollingJaxEstimator(models.Loss(log_cosh, line_at_zero, predict=line)),
}


# Small windows of the checks' data have more unknowns than they can tell, which warnings rightly say.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@scikit_learn_checks(FAMILIES, {}, quick=())
def test_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "name, check",
    [
        ("huber", check_sample_weight_equivalence_on_dense_data),
        ("quantile, small penalty", check_sample_weight_equivalence_on_dense_data),
        ("quantile, small penalty", check_regressors_train),
    ],
)
def test_checks_that_are_most_easily_failed(name, check):
    check("RollingJaxEstimator", FAMILIES[name])


@pytest.mark.parametrize("name", ["logistic", "poisson"])
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
