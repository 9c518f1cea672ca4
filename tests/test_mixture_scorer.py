"""GaussianMixtureEntropy as a scorer: of mixtures, pipelines and searches, with weights, in several processes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn import config_context
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

from skjaxwin import GaussianMixtureEntropy, gaussian_mixture_entropy

each_type = pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical"])

_rng = np.random.default_rng(0)
_centres = np.array([[0.0, 0.0], [6.0, 1.0], [-2.0, 7.0]])
X = _centres[_rng.integers(3, size=120)] + _rng.normal(size=(120, 2)) * [1.0, 1.7]
LATER = _centres[_rng.integers(3, size=40)] + _rng.normal(size=(40, 2)) * [1.0, 1.7]


def entropy_of(fitted):
    parameters = fitted.weights_, fitted.means_, fitted.covariances_
    return gaussian_mixture_entropy(*parameters, covariance_type=fitted.covariance_type)


@pytest.mark.slow(all_but=["full"])
@each_type
def test_criteria(covariance_type):
    sklearns = GaussianMixture(3, covariance_type=covariance_type, random_state=0).fit(X)
    entropy = entropy_of(sklearns)
    weight = np.random.default_rng(0).uniform(size=len(LATER))
    assert GaussianMixtureEntropy()(sklearns, LATER) == entropy
    assert GaussianMixtureEntropy(criterion="neg_entropy")(sklearns, LATER, np.ones(len(LATER))) == -entropy
    gap = GaussianMixtureEntropy(criterion="neg_entropy_gap")
    assert gap(sklearns, LATER) == pytest.approx(-abs(-sklearns.score(LATER) - entropy), abs=1e-12)
    weighted = -np.average(sklearns.score_samples(LATER), weights=weight)
    assert gap(sklearns, LATER, sample_weight=weight) == pytest.approx(-abs(weighted - entropy), abs=1e-12)
    # A mixture is calibrated on rows of its own.
    assert gap(sklearns, sklearns.sample(20_000)[0]) > -0.05
    assert type(gap(sklearns, LATER)) is float


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_mixtures_of_single_precision(covariance_type):
    sklearns = GaussianMixture(3, covariance_type=covariance_type, random_state=0).fit(X.astype(np.float32))
    assert sklearns.covariances_.dtype == np.float32
    sklearns.covariances_[..., 0, 1] += 1e-6  # as sums in another order may
    symmetric = (sklearns.covariances_ + sklearns.covariances_.swapaxes(-1, -2)).astype(np.float64) / 2
    weights = sklearns.weights_ / sklearns.weights_.astype(np.float64).sum()
    entropy = gaussian_mixture_entropy(weights, sklearns.means_, symmetric, covariance_type=covariance_type)
    assert GaussianMixtureEntropy()(sklearns, X) == pytest.approx(entropy, abs=1e-9)
    taken = GaussianMixtureEntropy(mixture=sklearns).fit(X)
    assert taken.entropy_ == pytest.approx(entropy, abs=1e-9)
    np.testing.assert_allclose(taken.covariances_, symmetric, rtol=1e-7)
    assert taken.covariances_.dtype == np.float64
    sklearns.covariances_[..., 0, 1] += 0.3
    with pytest.raises(ValueError, match="not symmetric"):
        GaussianMixtureEntropy()(sklearns, X)


def test_order_and_method_are_the_scorers():
    sklearns = GaussianMixture(3, random_state=0).fit(X)
    arrays = sklearns.weights_, sklearns.means_, sklearns.covariances_
    for options in ({"order": 3}, {"order": 5, "method": "taylor"}):
        assert GaussianMixtureEntropy(**options)(sklearns, X) == gaussian_mixture_entropy(*arrays, **options)


@pytest.mark.slow
def test_cross_validation_with_the_scorer_in_two_processes():
    scores = cross_val_score(GaussianMixture(3, random_state=0), X, scoring=GaussianMixtureEntropy(), cv=2, n_jobs=2)
    folds = np.array_split(np.arange(len(X)), 2)
    fits = (GaussianMixture(3, random_state=0).fit(np.delete(X, fold, axis=0)) for fold in folds)
    np.testing.assert_allclose(scores, [entropy_of(fitted) for fitted in fits], rtol=1e-12)


def test_several_metrics_at_once():
    scoring = {
        "entropy": GaussianMixtureEntropy(),
        "gap": GaussianMixtureEntropy(criterion="neg_entropy_gap"),
        "likelihood": lambda estimator, data, y=None: estimator.score(data),
    }
    found = cross_validate(GaussianMixture(2, random_state=0), X, scoring=scoring, cv=3)
    gap = -abs(-found["test_likelihood"] - found["test_entropy"])
    np.testing.assert_allclose(found["test_gap"], gap, rtol=1e-9)
    del scoring["likelihood"]
    search = GridSearchCV(
        GaussianMixtureEntropy(random_state=0), {"n_components": [1, 3]}, scoring=scoring, refit="gap"
    )
    search.fit(X, sample_weight=np.ones(len(X)))
    assert set(search.cv_results_) >= {"mean_test_entropy", "mean_test_gap"}


def test_pipelines_transform_what_the_mixture_is_scored_on():
    gap = GaussianMixtureEntropy(criterion="neg_entropy_gap")
    pipeline = make_pipeline(StandardScaler(), GaussianMixture(3, random_state=0)).fit(X)
    scaled = pipeline[0].transform(LATER)
    expected = -abs(-pipeline[-1].score(scaled) - entropy_of(pipeline[-1]))
    assert gap(pipeline, LATER) == pytest.approx(expected, abs=1e-12)
    assert gap(FrozenEstimator(pipeline), LATER) == pytest.approx(expected, abs=1e-12)
    nested = make_pipeline("passthrough", pipeline)
    assert gap(nested.fit(X), LATER) == pytest.approx(expected, abs=1e-12)
    grid = {"gaussianmixture__n_components": [1, 3]}
    search = GridSearchCV(pipeline, grid, scoring=gap, cv=3, error_score="raise").fit(X)
    best = search.best_estimator_
    expected = -abs(-best[-1].score(best[0].transform(LATER)) - entropy_of(best[-1]))
    assert search.score(LATER) == gap(search, LATER) == pytest.approx(expected, abs=1e-12)
    wider = make_pipeline(PolynomialFeatures(2, include_bias=False), GaussianMixture(2, random_state=0)).fit(X)
    with pytest.warns(ConvergenceWarning, match="has not converged"):  # five features are too many for the order
        assert np.isfinite(gap(wider, LATER))


def test_what_is_scored_can_be_taken_over():
    pipeline = make_pipeline(StandardScaler(), GaussianMixture(3, random_state=0)).fit(X)
    search = GridSearchCV(pipeline, {"gaussianmixture__n_components": [3]}, cv=2).fit(X)
    for source in (pipeline, search, FrozenEstimator(search)):
        taken = GaussianMixtureEntropy(mixture=source).fit(X)
        assert taken.entropy_ == GaussianMixtureEntropy()(source, X)
        np.testing.assert_array_equal(taken.means_, pipeline[-1].means_)
        assert taken.score(LATER) == pytest.approx(pipeline.score(LATER), abs=1e-10)
        np.testing.assert_array_equal(taken.predict(LATER), pipeline.predict(LATER))
        assert taken.n_features_in_ == 2 and taken.n_iter_ == pipeline[-1].n_iter_
    wider = make_pipeline(PolynomialFeatures(2, include_bias=False), GaussianMixture(2, random_state=0)).fit(X)
    assert GaussianMixtureEntropy(mixture=wider, method="sobol").fit(X).score(LATER) == pytest.approx(
        wider.score(LATER), abs=1e-9
    )
    with pytest.raises(NotFittedError, match="FrozenEstimator"):
        GaussianMixtureEntropy(mixture=make_pipeline(StandardScaler(), GaussianMixture())).fit(X)
    with pytest.raises(TypeError, match="KMeans is no Gaussian mixture"):
        GaussianMixtureEntropy(mixture=make_pipeline(StandardScaler(), KMeans(2)).fit(X)).fit(X)


def test_a_bayesian_mixture_has_the_density_of_its_parameters():
    bayesian = BayesianGaussianMixture(n_components=2, random_state=0, max_iter=500).fit(X)
    taken = GaussianMixtureEntropy(mixture=bayesian).fit(X)
    parts = zip(bayesian.weights_, bayesian.means_, bayesian.covariances_, strict=True)
    density = sum(w * multivariate_normal(mean, covariance).pdf(LATER) for w, mean, covariance in parts)
    np.testing.assert_allclose(taken.score_samples(LATER), np.log(density), rtol=1e-9)
    assert bayesian.score(LATER) < taken.score(LATER)  # an expectation over the posterior of the parameters
    gap = GaussianMixtureEntropy(criterion="neg_entropy_gap")(bayesian, LATER)
    assert gap == pytest.approx(-abs(-np.log(density).mean() - entropy_of(bayesian)), abs=1e-12)


def test_routed_weights_reach_fit_and_scorer():
    weight = np.where(np.arange(len(X)) % 3 == 0, 5.0, 1.0)
    with config_context(enable_metadata_routing=True):
        gap = GaussianMixtureEntropy(criterion="neg_entropy_gap").set_score_request(sample_weight=True)
        mixture = GaussianMixtureEntropy(2, random_state=0).set_fit_request(sample_weight=True)
        found = cross_validate(
            mixture, X, scoring=gap, params={"sample_weight": weight}, cv=2, return_estimator=True, error_score="raise"
        )
    for score, fitted, test in zip(found["test_score"], found["estimator"], np.split(np.arange(120), 2), strict=True):
        cross_entropy = -np.average(fitted.score_samples(X[test]), weights=weight[test])
        assert score == pytest.approx(-abs(cross_entropy - fitted.entropy_), abs=1e-12)
        train = np.setdiff1d(np.arange(120), test)
        again = GaussianMixtureEntropy(2, random_state=0).fit(X[train], sample_weight=weight[train])
        np.testing.assert_array_equal(fitted.means_, again.means_)


def test_the_scorer_refuses_what_is_no_fitted_mixture():
    scorer = GaussianMixtureEntropy(criterion="neg_entropy_gap")
    with pytest.raises(TypeError, match="KMeans is no Gaussian mixture"):
        scorer(KMeans(2, n_init=1).fit(X), X)
    with pytest.raises(NotFittedError, match="GaussianMixture is not fitted"):
        scorer(GaussianMixture(2), X)
    with pytest.raises(ValueError, match="X has 3 features, but the scored mixture has 2"):
        scorer(GaussianMixture(2, random_state=0).fit(X), np.ones((5, 3)))
    with pytest.raises(ValueError, match="criterion"):
        GaussianMixtureEntropy(criterion="gap")(GaussianMixture(2, random_state=0).fit(X), X)
    search = GridSearchCV(GaussianMixture(), {"n_components": [1]}, refit=False).fit(X)
    with pytest.raises(TypeError, match="refit=True"):
        scorer(search, X)
