"""WindowSearchCV against GridSearchCV on the same folds: the same scores, ranks and choices."""

from __future__ import annotations

import inspect
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import uniform
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.metrics import check_scoring, get_scorer, log_loss, make_scorer, mean_pinball_loss, r2_score
from sklearn.model_selection import GridSearchCV, KFold, RandomizedSearchCV, TimeSeriesSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler

from skjaxwin import (
    RollingJaxEstimator,
    TimeWindowSplit,
    WindowRandomizedSearchCV,
    WindowSearchCV,
    _sklearn_private,
    fold_fits,
    models,
)

ALPHAS = {"model__alpha": [0.01, 1.0, 100.0]}
FORWARD = TimeSeriesSplit(4)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    mean = X @ [0.5, -0.4, 0.0]
    return {
        "X": X,
        "y": mean + rng.normal(size=150),
        "counts": rng.poisson(np.exp(mean)),
        "labels": np.where(mean + rng.logistic(size=150) > 0, "up", "down"),
        "weight": rng.uniform(0.2, 2, size=150),
        "time": rng.permutation(np.repeat(np.arange(50), 3)),
    }


def assert_same_search(estimator, grid, X, y, rtol=1e-8, batched=True, fit=(), **options):
    """Search twice, and compare all that does not depend on time."""
    fit = dict(fit)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = GridSearchCV(clone(estimator), grid, **options).fit(X, y, **fit)
        ours = WindowSearchCV(clone(estimator), grid, **options).fit(X, y, **fit)
    assert ours.batched_ == batched, ours.fallback_reason_
    assert ours.cv_results_.keys() == theirs.cv_results_.keys()
    assert ours.cv_results_["params"] == theirs.cv_results_["params"]
    for name, values in theirs.cv_results_.items():
        if "_test_" in name or "_train_" in name:
            np.testing.assert_allclose(ours.cv_results_[name], values, rtol=rtol, atol=rtol, err_msg=name)
    assert (ours.n_splits_, ours.multimetric_) == (theirs.n_splits_, theirs.multimetric_)
    if options.get("refit", True):
        assert ours.best_params_ == theirs.best_params_ and ours.best_index_ == theirs.best_index_
        mine, its = ours.predict(X), theirs.predict(X)
        if mine.dtype.kind == "f":  # another kernel, with roundings of its own
            np.testing.assert_allclose(mine, its, rtol=rtol, atol=rtol)
        else:
            np.testing.assert_array_equal(mine, its)
    return ours


@pytest.mark.parametrize(
    "further", [{"min_periods": [1, 5]}, pytest.param({"halflife": [None, 20.0]}, marks=pytest.mark.slow)], ids=str
)
def test_least_squares_and_its_windows(data, further):
    grid = {"model__alpha": [0.01, 1.0, 100.0], "window": ["expanding", 30]} | further
    search = assert_same_search(RollingJaxEstimator(), grid, data["X"], data["y"], cv=FORWARD)
    assert len(search.cv_results_["params"]) == 12
    assert pickle.loads(pickle.dumps(search)).best_params_ == search.best_params_


def worst_and_mean(estimator, X, y):
    error = abs(y - estimator.predict(X))
    return {"worst": -error.max(), "mean": -error.mean()}


@pytest.mark.parametrize(
    "scoring",
    [
        "neg_mean_squared_error",
        "neg_root_mean_squared_error",
        "neg_max_error",
        make_scorer(mean_pinball_loss, alpha=0.9, greater_is_better=False),
        make_scorer(r2_score, multioutput="variance_weighted"),
        worst_and_mean,
    ],
    ids=["squared", "root", "max", "pinball", "r2 with an option", "function"],
)
def test_shuffled_folds_and_other_scores(data, scoring):
    folds = KFold(4, shuffle=True, random_state=0)
    refit = "mean" if scoring is worst_and_mean else True
    linear = RollingJaxEstimator(models.Linear())
    together = scoring is not worst_and_mean
    assert_same_search(linear, ALPHAS, data["X"], data["y"], cv=folds, scoring=scoring, refit=refit, batched=together)


def test_training_scores(data):
    linear = RollingJaxEstimator(models.Linear())
    options = {"cv": FORWARD, "return_train_score": True}
    assert_same_search(linear, ALPHAS, data["X"], data["y"], **options)
    X = np.column_stack([data["time"], data["X"]])
    cv = TimeWindowSplit(2, test_window=10, time=0)
    assert_same_search(
        linear.set_params(time=0, window=20),
        ALPHAS,
        X,
        data["y"],
        **options | {"cv": cv, "scoring": ["r2", "neg_max_error"], "refit": "r2"},
    )


def test_steps_that_take_each_row_for_itself_go_before_the_folds(data):
    pipeline = make_pipeline(
        FunctionTransformer(np.tanh), PolynomialFeatures(1, include_bias=False), RollingJaxEstimator(models.Linear())
    )
    grid = {"rollingjaxestimator__model__alpha": [0.1, 10.0]}
    search = assert_same_search(pipeline, grid, data["X"], data["y"], cv=FORWARD, scoring="neg_max_error")
    assert search.best_estimator_[:-1].transform(data["X"]).shape == (150, 3)
    weighted = {"fit": {"rollingjaxestimator__sample_weight": data["weight"]}}
    assert_same_search(pipeline, grid, data["X"], data["y"], cv=FORWARD, **weighted)
    degrees = {"polynomialfeatures__degree": [1]}
    search = assert_same_search(pipeline, degrees, data["X"], data["y"], cv=FORWARD, batched=False)
    assert "polynomialfeatures__degree" in search.fallback_reason_
    own = make_pipeline(FunctionTransformer(lambda X: X - X.mean(axis=0)), RollingJaxEstimator(models.Linear()))
    assert not assert_same_search(own, grid, data["X"], data["y"], cv=FORWARD, batched=False).batched_


def test_several_scores_at_once(data):
    scoring = {"r2": "r2", "error": "neg_mean_absolute_error"}
    search = assert_same_search(
        RollingJaxEstimator(models.Linear()), ALPHAS, data["X"], data["y"], cv=FORWARD, scoring=scoring, refit="error"
    )
    assert search.scorer_.keys() == scoring.keys()


@pytest.mark.slow
def test_several_outputs(data):
    y = np.column_stack([data["y"], data["X"][:, 0] ** 2])
    for target in (y, y[:, :1]):
        assert_same_search(RollingJaxEstimator(models.Linear()), ALPHAS, data["X"], target, cv=FORWARD)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "grid", "target"),
    [
        (models.Logistic(), {"model__C": [0.01, 1.0]}, "labels"),
        (models.Poisson(), ALPHAS, "counts"),
        (models.Huber(), ALPHAS, "y"),
        (models.ElasticNet(), ALPHAS, "y"),
    ],
    ids=["logistic", "poisson", "huber", "elastic net"],
)
def test_other_families(data, model, grid, target):
    assert_same_search(RollingJaxEstimator(model, step=40), grid, data["X"], data[target], cv=FORWARD, rtol=1e-7)


@pytest.mark.slow
def test_scores_of_probabilities(data):
    rolling = RollingJaxEstimator(models.Logistic(), step=40)
    scoring = ["neg_log_loss", "accuracy", "neg_brier_score"]
    for names in (scoring[:2], scoring):
        options = {"scoring": names, "refit": "neg_log_loss", "cv": FORWARD}
        assert_same_search(rolling, {"model__C": [0.01, 1.0]}, data["X"], data["labels"], **options)


@pytest.mark.slow
def test_the_deviance_of_counts(data):
    rolling = RollingJaxEstimator(models.Poisson(), step=40)
    for weight in (None, data["weight"]):
        options = {"scoring": "neg_mean_poisson_deviance", "cv": FORWARD, "fit": {"sample_weight": weight}}
        assert_same_search(rolling, ALPHAS, data["X"], data["counts"], **options)


@pytest.mark.slow
def test_a_fold_that_lacks_a_class(data):
    """Three labels, of which the first folds know two."""
    y = data["labels"].astype(object)
    y[100:] = np.where(data["X"][100:, 2] > 0.5, "flat", y[100:])
    assert_same_search(
        RollingJaxEstimator(models.Logistic(), step=40), {"model__C": [0.1, 1.0]}, data["X"], y, cv=FORWARD
    )


@pytest.mark.parametrize("routing", [False, True])
def test_weights_in_fits_and_scores(data, routing):
    with config_context(enable_metadata_routing=routing):
        rolling = RollingJaxEstimator(models.Linear())
        if routing:
            rolling.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        weight = np.where(np.arange(150) % 7 == 0, 0.0, data["weight"])
        fit = {"sample_weight": weight}
        weighted = assert_same_search(rolling, ALPHAS, data["X"], data["y"], cv=FORWARD, fit=fit)
    plain = WindowSearchCV(RollingJaxEstimator(models.Linear()), ALPHAS, cv=FORWARD).fit(data["X"], data["y"])
    assert abs(weighted.best_score_ - plain.best_score_) > 1e-3


@pytest.mark.slow
def test_a_time_column_and_a_panel(data):
    X = np.column_stack([data["time"], data["X"]])
    rolling = RollingJaxEstimator(models.Linear(), time=0, gap=1)
    cv = TimeWindowSplit(4, test_window=5, time=0)
    assert_same_search(rolling, {"model__alpha": [0.1, 10.0], "window": [10, 20]}, X, data["y"], cv=cv)
    # Folds of rows at random: each row is predicted by the windows before it.
    folds = KFold(3, shuffle=True, random_state=0)
    assert_same_search(rolling, {"model__alpha": [0.1, 10.0]}, X, data["y"], cv=folds)
    frame = pd.DataFrame(X, columns=["day", "a", "b", "c"])
    search = assert_same_search(rolling.set_params(time="day"), ALPHAS, frame, data["y"], cv=folds)
    assert search.feature_names_in_.tolist() == ["day", "a", "b", "c"]


def test_missing_values_and_single_precision(data):
    X = data["X"].copy()
    X[10, 1] = np.nan
    skip = RollingJaxEstimator(models.Linear(), missing="skip", window=60)
    assert_same_search(skip, ALPHAS, X, data["y"], cv=FORWARD)
    single = data["X"].astype(np.float32)  # scores of single-precision predictions
    assert_same_search(RollingJaxEstimator(models.Linear()), ALPHAS, single, data["y"], cv=FORWARD, rtol=2e-5)


def test_folds_that_do_not_fit_into_memory_together(data, monkeypatch):
    rolling = RollingJaxEstimator(models.Linear())
    whole = WindowSearchCV(rolling, ALPHAS, cv=FORWARD, refit=False).fit(data["X"], data["y"])
    calls = []
    original = fold_fits._fit_together
    monkeypatch.setattr(fold_fits, "_fit_together", lambda *args: calls.append(args) or original(*args))
    parts = WindowSearchCV(rolling, ALPHAS, cv=FORWARD, refit=False, max_memory=4000).fit(data["X"], data["y"])
    assert len(calls) == 2  # after folds of 1200, 2400 and 3600 bytes of rows, and of 4800
    for i in range(4):
        np.testing.assert_allclose(
            parts.cv_results_[f"split{i}_test_score"], whole.cv_results_[f"split{i}_test_score"], rtol=1e-10
        )


def test_a_function_of_the_users_own(data, compiled):
    def fit(X, y, weight, shrink):
        return {"mean": shrink * (weight @ y) / weight.sum()}

    def predict(params, X):
        return params["mean"] + 0 * X[:, 0]

    rolling = RollingJaxEstimator(models.Custom(fit=fit, predict=predict, shrink=1.0), step=40)
    grid = {"model__shrink": [0.1, 0.9]}
    assert_same_search(rolling, grid, data["X"], data["y"], cv=KFold(3))
    before = len(compiled)
    WindowSearchCV(rolling, {"model__shrink": [0.2, 0.7]}, cv=KFold(3)).fit(data["X"], data["y"])
    assert len(compiled) == before


def test_one_compile_for_all_folds_and_candidates(data, compiled):
    before = len(compiled)
    rolling = RollingJaxEstimator(models.Poisson(alpha=0.0), window=40, step=3)
    search = WindowSearchCV(rolling, {"model__alpha": np.logspace(-3, 1, 7)}, cv=KFold(5), refit=False)
    search.fit(data["X"][:, :2], data["counts"])
    assert [name for name in compiled[before:] if "fit_windows" in name] == ["jit(fit_windows)"]
    assert not hasattr(search, "best_estimator_") and search.best_params_


def test_random_candidates(data):
    drawn = {"model__alpha": uniform(0.1, 10)}
    options = {"n_iter": 5, "random_state": 3, "cv": FORWARD}
    rolling = RollingJaxEstimator(models.Linear())
    ours = WindowRandomizedSearchCV(rolling, drawn, **options).fit(data["X"], data["y"])
    theirs = RandomizedSearchCV(rolling, drawn, **options).fit(data["X"], data["y"])
    assert ours.batched_ and ours.best_params_ == theirs.best_params_
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], rtol=1e-8)


@pytest.mark.slow(all_but=["pipeline"])
@pytest.mark.parametrize(
    ("estimator", "options", "reason"),
    [
        (make_pipeline(StandardScaler(), RollingJaxEstimator(models.Linear())), {}, "StandardScaler"),
        (RollingJaxEstimator(models.Linear(alpha=0.0), inference="nonrobust"), {}, "inference"),
        (RollingJaxEstimator(models.Linear(), capacity=200), {}, "capacity"),
    ],
    ids=["pipeline", "inference", "capacity"],
)
def test_what_cannot_go_together_goes_one_by_one(data, estimator, options, reason):
    name = "rollingjaxestimator__window" if reason == "StandardScaler" else "window"
    search = assert_same_search(estimator, {name: [20, 30]}, data["X"], data["y"], cv=FORWARD, batched=False, **options)
    assert reason in search.fallback_reason_


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_errors_follow_error_score(data):
    rolling = RollingJaxEstimator(models.Linear(), min_periods=40)
    grid = {"model__alpha": [1.0, -1.0]}  # the second is refused, and so is the first fold's 30 rows
    search = WindowSearchCV(rolling, grid, cv=FORWARD)
    with pytest.warns(FitFailedWarning, match="5 fits failed out of a total of 8") as caught:
        search.fit(data["X"], data["y"])
    text = str(caught[0].message)
    assert "min_periods=40" in text and "alpha" in text
    scores = np.stack([search.cv_results_[f"split{i}_test_score"] for i in range(4)])
    np.testing.assert_array_equal(np.isnan(scores), [[True, True], [False, True], [False, True], [False, True]])
    assert search.set_params(error_score=-9.0, refit=False)
    with pytest.warns(FitFailedWarning):
        search.fit(data["X"], data["y"])
    assert search.cv_results_["split0_test_score"].tolist() == [-9.0, -9.0]
    with pytest.raises(ValueError, match="alpha"):
        search.set_params(error_score="raise", cv=TimeSeriesSplit(2)).fit(data["X"], data["y"])
    with pytest.raises(ValueError, match="All the 8 fits failed"):
        search.set_params(error_score=np.nan, cv=FORWARD, estimator=clone(rolling).set_params(min_periods=1000)).fit(
            data["X"], data["y"]
        )


@pytest.mark.parametrize(
    ("grid", "cv", "rows", "message"),
    [
        ({"model__alpa": [1.0]}, FORWARD, slice(None), "Invalid parameter 'alpa'"),
        (ALPHAS, TimeSeriesSplit(10), slice(5), "greater than the number of samples"),
        (ALPHAS, TimeWindowSplit(10), slice(5), "greater than the number of time stamps"),
        ({"model__alpha": []}, FORWARD, slice(None), "need to be a non-empty sequence"),
        ({"model__alpha": 1.0}, FORWARD, slice(None), "needs to be a list or a numpy array"),
        ([], FORWARD, slice(None), "No fits were performed"),
        (ALPHAS, [], slice(None), "No fits were performed"),
    ],
)
def test_mistakes_get_scikit_learns_messages(data, grid, cv, rows, message):
    X, y = data["X"][rows], data["y"][rows]
    told = []
    for search in (WindowSearchCV, GridSearchCV):
        with pytest.raises((ValueError, TypeError), match=message) as caught:
            search(RollingJaxEstimator(models.Linear()), grid, cv=cv).fit(X, y)
        told.append((type(caught.value), str(caught.value)))
    assert told[0] == told[1]


def test_targets_of_another_length_are_refused(data):
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        WindowSearchCV(RollingJaxEstimator(models.Linear()), ALPHAS, cv=FORWARD).fit(data["X"], data["y"][:-1])


def test_the_private_parts_of_scikit_learn_are_as_they_are_called_here():
    def names(function):
        return list(inspect.signature(function).parameters)

    assert names(_sklearn_private.score_estimator)[:6] == [
        "estimator", "X_test", "y_test", "scorer", "score_params", "error_score"
    ]  # fmt: skip
    assert names(_sklearn_private.warn_or_raise_about_fit_failures) == ["results", "error_score"]
    assert names(_sklearn_private.insert_error_scores) == ["results", "error_score"]
    assert names(_sklearn_private.check_method_params) == ["X", "params", "indices"]
    assert names(GridSearchCV._format_results)[1:] == ["candidate_params", "n_splits", "out", "more_results"]
    assert names(GridSearchCV._select_best_index) == ["refit", "refit_metric", "results"]
    assert names(GridSearchCV._get_routed_params_for_fit)[1:] == ["params"]
    assert names(GridSearchCV._get_scorers)[1:] == []
    scorer = get_scorer("neg_log_loss")
    assert scorer._score_func is log_loss and (scorer._sign, scorer._response_method) == (-1, "predict_proba")
    assert make_scorer(mean_pinball_loss, alpha=0.2)._kwargs == {"alpha": 0.2}
    assert type(check_scoring(RollingJaxEstimator())).__name__ == "_PassthroughScorer"


def test_the_best_estimator_goes_on_with_later_rows(data):
    X, y = data["X"], data["y"]
    estimator = RollingJaxEstimator(models.Linear(), window=40, step=1000)
    best = WindowSearchCV(estimator, ALPHAS, cv=FORWARD).fit(X[:120], y[:120]).best_estimator_
    best.partial_fit(X[120:], y[120:])
    whole = clone(best).fit(X, y)
    np.testing.assert_allclose(best.params_["coef"], whole.params_["coef"], rtol=1e-10)
    assert best.window_stops_.tolist() == whole.window_stops_.tolist()


def test_folds_given_as_masks(data):
    masks = []
    for train, test in FORWARD.split(data["X"]):
        rows = np.zeros((2, len(data["X"])), bool)
        rows[0, train], rows[1, test] = True, True
        masks.append(tuple(rows))
    assert_same_search(RollingJaxEstimator(models.Linear()), ALPHAS, data["X"], data["y"], cv=masks)


def coefficient(fitted, X, y):
    """Score by what only a fitted estimator has."""
    return -float(np.std(fitted.params_["coef"][:, 0]))


@pytest.mark.slow(
    all_but=[
        "estimator1-grid1-y-coefficient-function of the fitted estimator",
    ]
)
@pytest.mark.parametrize(
    ("estimator", "grid", "target", "scoring", "reason"),
    [
        (RollingJaxEstimator(), {"model": [models.Linear(1.0), models.Logistic()]}, "labels", None, "different kinds"),
        (RollingJaxEstimator(), {"window": [20, 40]}, "y", coefficient, "function of the fitted estimator"),
        (RollingJaxEstimator(), {"window": [20, 40]}, "y", {"a": coefficient, "b": "r2"}, "function of the fitted"),
        (
            RollingJaxEstimator(models.GaussianMixture(3), min_periods=20, step=10),
            {"window": [25, "expanding"]},
            None,
            None,
            "depend on what they start from",
        ),
    ],
)
def test_what_would_not_be_the_same_goes_one_by_one(data, estimator, grid, target, scoring, reason):
    y = None if target is None else data[target]
    if target == "labels":
        y = (y == "up").astype(int)
    options = {"refit": False} if isinstance(scoring, dict) else {}
    search = assert_same_search(estimator, grid, data["X"], y, cv=FORWARD, scoring=scoring, batched=False, **options)
    assert reason in search.fallback_reason_


@pytest.mark.slow
def test_models_of_one_kind_go_together(data):
    grid = {"model": [models.Linear(1.0), models.ElasticNet(0.1)]}
    assert_same_search(RollingJaxEstimator(min_periods=10), grid, data["X"], data["y"], cv=FORWARD, rtol=1e-7)


@pytest.mark.parametrize("listed", [list, tuple, lambda kinds: np.array(kinds, object)])
def test_models_of_different_kinds_are_not_walked_forward_together(data, listed):
    grid = {"model": listed([models.Linear(), models.Logistic()])}
    with pytest.raises(ValueError, match="cv=None .*different kinds"):
        WindowSearchCV(RollingJaxEstimator(), grid).fit(data["X"], data["y"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*non-finite")
def test_a_row_that_a_pipeline_refuses_fails_its_fold_alone(data):
    X = data["X"].copy()
    X[-1, 0] = np.nan
    pipeline = make_pipeline(PolynomialFeatures(2), RollingJaxEstimator(models.Linear()))
    grid = {"rollingjaxestimator__model__alpha": [0.1, 1.0]}
    search = assert_same_search(pipeline, grid, X, data["y"], cv=FORWARD, batched=False, refit=False)
    assert "refuses a row" in search.fallback_reason_
    assert np.isfinite(search.cv_results_["split0_test_score"]).all()


def test_weights_of_another_length_are_refused(data):
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        WindowSearchCV(RollingJaxEstimator(models.Linear()), ALPHAS, cv=FORWARD).fit(
            data["X"], data["y"], sample_weight=data["weight"][:-1]
        )
