"""range_scorer: any metric on the rows in range, through pipelines and searches, with weights."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from imblearn.pipeline import make_pipeline as imbalanced_pipeline
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Ridge
from sklearn.metrics import get_scorer, make_scorer, mean_pinball_loss, r2_score
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skjaxwin import RangeEstimator, SubsetSampler, SubsetTransformer, range_scorer

FOLDS = KFold(4, shuffle=True, random_state=0)
METRIC = "neg_mean_absolute_error"


@pytest.fixture(scope="module")
def signal():
    """600 points in no order, of which those in [30, 60) follow one law."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 100, 600)
    inside = (x >= 30) & (x < 60)
    y = np.where(inside, 2 * x - 50, 20 * np.sin(x) + 5) + rng.normal(size=600)
    weight = rng.integers(1, 4, 600).astype(float)
    return np.column_stack([x, rng.normal(size=600)]), y, inside, weight


def folds_in_range(X, inside):
    """Return the folds of the rows in range alone, as positions among these rows."""
    number = np.cumsum(inside) - 1
    return [(number[train[inside[train]]], number[test[inside[test]]]) for train, test in FOLDS.split(X)]


def alphas(model, name, **keywords):
    return GridSearchCV(model, {name: [1.0, 1e4]}, cv=FOLDS, error_score="raise", **keywords)


def unchanged():
    return StandardScaler(with_mean=False, with_std=False)


def ranged():
    return RangeEstimator(Ridge(), 30, 60)


@pytest.mark.parametrize(
    "model",
    [
        ranged(),
        make_pipeline(unchanged(), "passthrough", ranged()),
        alphas(ranged(), "estimator__alpha"),
        alphas(make_pipeline(unchanged(), ranged()), "rangeestimator__estimator__alpha"),
        make_pipeline(unchanged(), alphas(ranged(), "estimator__alpha")),
        TransformedTargetRegressor(ranged()),
        imbalanced_pipeline(unchanged(), SubsetSampler(10), ranged()),
        RangeEstimator(alphas(Ridge(), "alpha"), 30, 60),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_range_is_found_wherever_it_is(model, signal):
    X, y, inside, _ = signal
    model = clone(model).fit(X, y)
    expected = get_scorer(METRIC)(model, X[inside], y[inside])
    scorer = pickle.loads(pickle.dumps(range_scorer(METRIC)))
    assert scorer(model, X, y) == scorer(FrozenEstimator(model), X, y) == expected
    assert -1.1 < expected < -0.7  # the noise


def test_nested_cross_validation(signal):
    X, y, inside, _ = signal
    inner = alphas(ranged(), "estimator__alpha", scoring=range_scorer(METRIC))
    scores = cross_val_score(inner, X, y, cv=FOLDS, scoring=range_scorer(METRIC), error_score="raise")
    plain = Ridge()  # the other alpha is too large to be chosen
    expected = cross_val_score(plain, X[inside], y[inside], cv=folds_in_range(X, inside), scoring=METRIC)
    np.testing.assert_allclose(scores, expected)


def test_own_scorers_and_several(signal):
    X, y, inside, _ = signal
    rows = range_scorer(lambda estimator, X, y: float(len(X)))
    assert rows(ranged().fit(X, y), X, y) == inside.sum()
    for short in (y[:-1], np.append(y, 0)):
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            range_scorer("r2")(ranged().fit(X, y), X, short)
    several = {"pinball": range_scorer(make_scorer(mean_pinball_loss, alpha=0.1)), "rows": rows}
    scores = cross_validate(ranged(), X, y, scoring=several, cv=FOLDS, error_score="raise")
    folds = folds_in_range(X, inside)
    assert scores["test_rows"].tolist() == [len(test) for _, test in folds]
    for score, (train, test) in zip(scores["test_pinball"], folds, strict=True):
        alone = Ridge().fit(X[inside][train], y[inside][train])
        assert score == pytest.approx(
            mean_pinball_loss(y[inside][test], alone.predict(X[inside][test]), alpha=0.1), rel=1e-10
        )
    assert METRIC in repr(range_scorer(METRIC)) and clone(range_scorer(METRIC)).scoring == METRIC


def test_what_is_no_scorer_is_refused_at_once(signal):
    X, y, _, _ = signal

    def own_metric(y_true, y_pred):
        return 0.0

    with pytest.raises(ValueError, match="'mae' is not a valid scoring value"):
        range_scorer("mae")
    for metric in (r2_score, own_metric):
        with pytest.raises(TypeError, match=r"a metric of targets and predictions.*range_scorer\(make_scorer"):
            range_scorer(metric)
    for wrong in (None, 5, ["r2"], {"r2": "r2"}, Ridge):
        with pytest.raises(TypeError, match="must be the name of a scorer"):
            range_scorer(wrong)
    with pytest.raises(TypeError, match="a pipeline or search that ends in one, got Ridge"):
        range_scorer("r2")(Ridge().fit(X, y), X, y)
    with pytest.raises(TypeError, match="got GridSearchCV"):  # there is no estimator to score
        range_scorer("r2")(alphas(ranged(), "estimator__alpha", refit=False).fit(X, y), X, y)
    rows = range_scorer(lambda estimator, X, y: float(len(X)))
    with pytest.raises(TypeError, match="takes none"):
        rows(ranged().fit(X, y), X, y, sample_weight=np.ones(len(y)))


def test_weights_without_routing(signal):
    X, y, inside, weight = signal
    folds = folds_in_range(X, inside)
    for scoring in ("r2", METRIC):
        search = alphas(ranged(), "estimator__alpha", scoring=range_scorer(scoring)).fit(X, y, sample_weight=weight)
        plain = GridSearchCV(Ridge(), {"alpha": [1.0, 1e4]}, cv=folds, scoring=scoring)
        plain.fit(X[inside], y[inside], sample_weight=weight[inside])
        for key in ("mean_test_score", "split2_test_score"):
            np.testing.assert_allclose(search.cv_results_[key], plain.cv_results_[key])
    several = {"r2": range_scorer("r2"), "mae": range_scorer(METRIC)}
    both = alphas(ranged(), "estimator__alpha", scoring=several, refit="mae").fit(X, y, sample_weight=weight)
    np.testing.assert_allclose(both.cv_results_["mean_test_mae"], search.cv_results_["mean_test_score"])
    # A pipeline outside, and one inside, take the weights of their steps.
    alone = make_pipeline(StandardScaler(), Ridge()).fit(X[inside], y[inside], ridge__sample_weight=weight[inside])
    inner = RangeEstimator(make_pipeline(StandardScaler(), Ridge()), 30, 60)
    inner.fit(X, y, ridge__sample_weight=weight)
    np.testing.assert_allclose(inner.predict(X), alone.predict(X))
    outer = make_pipeline(SubsetTransformer(), inner).fit(X, y, rangeestimator__ridge__sample_weight=weight)
    np.testing.assert_allclose(outer.predict(X), alone.predict(X))
    with pytest.raises(TypeError, match=r"Pipeline.fit takes none.*ridge__sample_weight"):
        inner.fit(X, y, sample_weight=weight)


def test_weights_with_metadata_routing(signal):
    X, y, inside, weight = signal
    params = {"sample_weight": weight}
    with config_context(enable_metadata_routing=True):
        plain = ranged().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        scorer = range_scorer("r2").set_score_request(sample_weight=True)
        assert scorer.get_metadata_routing().score.requests == {"sample_weight": True}
        ridge = Ridge().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        pipeline = make_pipeline(unchanged().set_fit_request(sample_weight=False), ridge)
        inside_it = clone(plain).set_params(estimator=pipeline)
        around_it = make_pipeline(SubsetTransformer(), plain)
        scores = [
            cross_validate(model, X, y, params=params, cv=FOLDS, scoring=scoring, error_score="raise")["test_score"]
            for model in (plain, inside_it, around_it)
            for scoring in (None, scorer)
        ]
    expected = []
    for train, test in folds_in_range(X, inside):
        alone = Ridge().fit(X[inside][train], y[inside][train], sample_weight=weight[inside][train])
        expected.append(alone.score(X[inside][test], y[inside][test], sample_weight=weight[inside][test]))
    for score in scores:
        np.testing.assert_allclose(score, expected)
