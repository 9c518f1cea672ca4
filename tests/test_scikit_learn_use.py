"""The ways people use an estimator: pipelines, searches, splits, processes, pickles."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import joblib
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skjaxwin
from skjaxwin import RollingJaxEstimator, models
from tests.instances import INSTANCES, custom


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(240, 4))
    return X, X @ [1.0, -2.0, 0.0, 0.5] + 0.5 * rng.normal(size=240)


def test_an_expanding_window_without_time_is_scikit_learns_ridge(data):
    X, y = data
    ours = RollingJaxEstimator(models.Linear(alpha=3.0)).fit(X, y)
    theirs = Ridge(alpha=3.0).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-10)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=1e-10)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), rel=1e-12)


def test_grid_search_scores_are_those_of_scikit_learns_ridge(data):
    X, y = data
    alphas = np.logspace(-2, 3, 6)
    ours = GridSearchCV(
        RollingJaxEstimator(models.Linear()), {"model__alpha": alphas}, cv=TimeSeriesSplit(4), return_train_score=True
    ).fit(X, y)
    theirs = GridSearchCV(Ridge(), {"alpha": alphas}, cv=TimeSeriesSplit(4), return_train_score=True).fit(X, y)
    for key in ("mean_test_score", "mean_train_score", "split2_test_score"):
        np.testing.assert_allclose(ours.cv_results_[key], theirs.cv_results_[key], rtol=1e-9)
    assert ours.best_params_["model__alpha"] == theirs.best_params_["alpha"]


def test_a_searched_window_is_a_fit_of_the_last_rows(data):
    X, y = data
    search = GridSearchCV(
        RollingJaxEstimator(models.Linear()), {"window": [20, 50.0, "expanding"]}, cv=TimeSeriesSplit(3)
    ).fit(X, y)
    for i, rows in enumerate([20, 50, 240]):
        expected = []
        for train, test in TimeSeriesSplit(3).split(X):
            fitted = LinearRegression().fit(X[train][-rows:], y[train][-rows:])
            expected.append(fitted.score(X[test], y[test]))
        got = [search.cv_results_[f"split{s}_test_score"][i] for s in range(3)]
        np.testing.assert_allclose(got, expected, rtol=1e-9)


@pytest.mark.parametrize("container", ["default", "pandas", "polars"])
def test_pipeline_after_a_scaler(data, container):
    X, y = data
    pipeline = make_pipeline(
        StandardScaler().set_output(transform=container), RollingJaxEstimator(models.Linear(alpha=1.0))
    )
    expected = make_pipeline(StandardScaler(), Ridge(alpha=1.0)).fit(X, y).predict(X)
    np.testing.assert_allclose(pipeline.fit(X, y).predict(X), expected, rtol=1e-9)


def test_weights_reach_the_fit_through_a_pipeline(data):
    X, y = data
    weight = np.r_[np.zeros(120), np.ones(120)]
    pipeline = make_pipeline(StandardScaler(), RollingJaxEstimator(models.Linear()))
    pipeline.fit(X, y, rollingjaxestimator__sample_weight=weight)
    expected = LinearRegression().fit(X[120:], y[120:]).predict(X)
    np.testing.assert_allclose(pipeline.predict(X), expected, rtol=1e-8)


@pytest.mark.slow
def test_models_can_be_searched_and_the_grid_stays_as_it_was(data):
    X, y = data
    candidates = [models.Linear(alpha=0.5), models.Linear(fit_intercept=False), custom().model]
    before = [m.get_params() for m in candidates]
    search = GridSearchCV(RollingJaxEstimator(), {"model": candidates}, cv=TimeSeriesSplit(3)).fit(X, y)
    assert [m.get_params() for m in candidates] == before
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_parallel_scores_equal_serial_ones(data, backend):
    X, y = data
    X, y = np.tile(X, (200, 1)), np.tile(y, 200)  # above 1 MB joblib hands out read-only memory maps
    search = GridSearchCV(
        RollingJaxEstimator(models.Linear(), step=50_000, capacity=50_000),
        {"model__alpha": [0.1, 1.0, 10.0]},
        cv=TimeSeriesSplit(2),
    )
    serial = clone(search).fit(X, y)
    with joblib.parallel_config(backend=backend, n_jobs=2):
        parallel = clone(search).set_params(n_jobs=2).fit(X, y)
    np.testing.assert_allclose(
        parallel.cv_results_["mean_test_score"], serial.cv_results_["mean_test_score"], rtol=1e-12
    )


def test_cross_val_score_with_a_time_column(data):
    X, y = data
    timed = np.column_stack([np.arange(240), X])
    score = cross_val_score(RollingJaxEstimator(models.Linear(), time=0), timed, y, cv=TimeSeriesSplit(4))
    plain = cross_val_score(LinearRegression(), X, y, cv=TimeSeriesSplit(4))
    np.testing.assert_allclose(score, plain, rtol=1e-9)


@pytest.mark.parametrize("name", list(INSTANCES))
def test_pickle_and_clone_predict_the_same(name, data):
    X, y = data
    fitted = clone(INSTANCES[name]).fit(X, y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert joblib.hash(fitted.get_params()["model"]) is not None
    for key, value in clone(fitted).get_params(deep=False).items():
        assert repr(value) == repr(fitted.get_params(deep=False)[key])


def test_parameters_are_stored_as_given_and_fit_changes_none(data):
    X, y = data
    given = {"window": np.int64(30), "time": None, "min_periods": np.int32(3), "model": models.Linear(np.float64(2.0))}
    estimator = RollingJaxEstimator(**given)
    for name, value in given.items():
        assert getattr(estimator, name) is value
    estimator.fit(X, y)
    for name, value in given.items():
        assert getattr(estimator, name) is value
    estimator.set_params(window=40, model__alpha=0.0).fit(X, y)
    np.testing.assert_allclose(estimator.coef_, LinearRegression().fit(X[-40:], y[-40:]).coef_, rtol=1e-9)


def test_the_default_model_can_be_configured(data):
    X, y = data
    estimator = RollingJaxEstimator().set_params(model__alpha=5.0).fit(X, y)
    np.testing.assert_allclose(estimator.coef_, Ridge(alpha=5.0).fit(X, y).coef_, rtol=1e-10)
    search = GridSearchCV(RollingJaxEstimator(), {"model__alpha": [1.0, 1e6]}, cv=TimeSeriesSplit(3)).fit(X, y)
    assert search.best_params_ == {"model__alpha": 1.0}


def test_array_hyperparameters_clone_and_stay_traced(data):
    X, y = data
    prior = np.array([1.0, -2.0, 0.0, 0.5])
    model = models.Custom(fit=fit_towards, predict=predict_linear, prior=prior, strength=1e12)
    assert clone(model).get_params()["prior"] is not None
    assert model.get_params()["prior"] is prior
    fitted = RollingJaxEstimator(model).fit(X, y)
    np.testing.assert_allclose(fitted.params_[-1], prior, atol=1e-6)


def fit_towards(X, y, weight, prior, strength):
    import jax.numpy as jnp

    gram = (weight * X.T) @ X + strength * jnp.eye(X.shape[1], dtype=X.dtype)
    return jnp.linalg.solve(gram, (weight * X.T) @ y + strength * prior)


def predict_linear(params, X):
    return X @ params


def test_results_are_plain_numpy(data):
    X, y = data
    fitted = RollingJaxEstimator(models.Linear(), window=50).fit(X, y)
    assert type(fitted.score(X, y)) is float
    assert type(fitted.intercept_) is float
    arrays = [fitted.predict(X), fitted.walk_forward_predict(X, y), *fitted.params_.values()]
    arrays += [fitted.converged_, fitted.determined_, fitted.n_iter_, fitted.window_times_, fitted.window_starts_]
    for array in arrays:
        assert type(array) is np.ndarray
        assert array.flags.writeable


def test_private_scikit_learn_is_imported_in_one_place_only():
    for path in Path(skjaxwin.__file__).parent.rglob("*.py"):
        if path.name == "_sklearn_private.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sklearn"):
                names = [*node.module.split("."), *(alias.name for alias in node.names)]
                assert not any(name.startswith("_") for name in names), f"{path}: {names}"
