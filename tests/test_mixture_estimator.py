"""GaussianMixtureEntropy: scikit-learn's results, its checks, and the scorer."""

from __future__ import annotations

import math
import pickle
import warnings

import jax
import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.utils import estimator_checks
from threadpoolctl import threadpool_limits

from skjaxwin import EntropyInfo, GaussianMixtureEntropy
from tests.sklearn_checks import scikit_learn_checks

TYPES = ("full", "tied", "diag", "spherical")
STARTS = ("kmeans", "k-means++", "random", "random_from_data")
each_type = pytest.mark.parametrize("covariance_type", TYPES)

INSTANCES = {
    "default": GaussianMixtureEntropy(),
    "tied": GaussianMixtureEntropy(covariance_type="tied"),
    "diag": GaussianMixtureEntropy(covariance_type="diag"),
    "spherical": GaussianMixtureEntropy(covariance_type="spherical"),
    "3 components": GaussianMixtureEntropy(3),
}


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """Threads that wait for each other slow scikit-learn's small products down tenfold."""
    with threadpool_limits(1):
        yield


@pytest.fixture
def fits_only(monkeypatch):
    """Leave entropies out: each number of features would compile two more kernels."""
    info = EntropyInfo(0.0, -1.0, 1.0, 0.0, 0.0, 1.0, 0, "none")
    monkeypatch.setattr("skjaxwin.mixture_entropy.gaussian_mixture_entropy", lambda *_, **__: info)


@pytest.mark.filterwarnings("ignore:The legendre series:sklearn.exceptions.ConvergenceWarning")  # of a few rows
@scikit_learn_checks(INSTANCES, {}, quick={"default"})
def test_scikit_learn(estimator, check, request):
    if estimator.covariance_type != "full":
        request.getfixturevalue("fits_only")
    check(estimator)


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_dataframe_column_names_consistency,
        estimator_checks.check_inplace_ensure_writeable,
        estimator_checks.check_param_validation,
    ],
    ids=lambda check: check.__name__,
)
def test_checks_outside_check_estimator(check, fits_only):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        check("GaussianMixtureEntropy", GaussianMixtureEntropy())


def clusters(seed=0, n=120, k=3, d=2, spread=4.0):
    rng = np.random.default_rng(seed)
    centres = spread * rng.normal(size=(k, d))
    return rng.normal(size=(n, d)) * rng.uniform(0.5, 2, size=d) + centres[rng.integers(k, size=n)] + 1.0


X = clusters()
LATER = clusters(1, n=40)


def both(data=X, n_components=3, **parameters):
    """The package's and scikit-learn's, fitted to the same data."""
    mine = GaussianMixtureEntropy(n_components, **parameters)
    sklearns = GaussianMixture(n_components, **parameters)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return mine.fit(data), sklearns.fit(data)


def assert_same_fit(mine, sklearns, rtol=1e-6):
    assert (mine.n_iter_, mine.converged_) == (sklearns.n_iter_, sklearns.converged_)
    for name in ("weights_", "means_", "covariances_"):
        ours, theirs = getattr(mine, name), getattr(sklearns, name)
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol, err_msg=name)


# Fits.


@each_type
@pytest.mark.parametrize("init_params", STARTS)
def test_same_start_same_result_as_scikit_learn(covariance_type, init_params, fits_only):
    options = {"covariance_type": covariance_type, "init_params": init_params, "random_state": 4}
    mine, sklearns = both(**options)
    assert_same_fit(mine, sklearns)
    assert mine.log_likelihood_ == pytest.approx(sklearns.lower_bound_, abs=1e-9)
    # Several starts may end in one optimum: which of them is the best, and with it the order, is rounding's choice.
    mine, sklearns = both(n_init=3, tol=1e-6, **options)
    assert mine.log_likelihood_ == pytest.approx(sklearns.lower_bound_, abs=1e-9)
    ours, theirs = np.argsort(mine.weights_), np.argsort(sklearns.weights_)
    np.testing.assert_allclose(mine.weights_[ours], sklearns.weights_[theirs], rtol=1e-3)
    np.testing.assert_allclose(mine.means_[ours], sklearns.means_[theirs], rtol=1e-2, atol=1e-2)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(65, 128),
    covariance_type=st.sampled_from(TYPES),
    init_params=st.sampled_from(["kmeans", "random"]),
)
def test_same_result_as_scikit_learn_on_any_data(seed, n, covariance_type, init_params, fits_only):
    options = {"covariance_type": covariance_type, "init_params": init_params, "max_iter": 50}
    assert_same_fit(*both(clusters(seed, n, spread=1.5), random_state=seed, **options))


@each_type
def test_methods_equal_scikit_learns(covariance_type, fits_only):
    mine, sklearns = both(random_state=0, covariance_type=covariance_type, tol=1e-5, max_iter=500)
    np.testing.assert_allclose(mine.score_samples(LATER), sklearns.score_samples(LATER), rtol=1e-9)
    np.testing.assert_allclose(mine.predict_proba(LATER), sklearns.predict_proba(LATER), atol=1e-9)
    np.testing.assert_array_equal(mine.predict(LATER), sklearns.predict(LATER))
    for name in ("score", "bic", "aic"):
        assert getattr(mine, name)(LATER) == pytest.approx(getattr(sklearns, name)(LATER), rel=1e-9), name
        assert type(getattr(mine, name)(LATER)) is float
    for ours, theirs in zip(mine.sample(50), sklearns.sample(50), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(mine.fit_predict(X), sklearns.fit_predict(X))


def test_a_fit_that_does_not_converge_warns():
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        fitted = GaussianMixtureEntropy(3, max_iter=2, tol=0.0, random_state=0).fit(X)
    assert not fitted.converged_ and fitted.n_iter_ == 2
    assert_same_fit(*both(max_iter=0, random_state=0))  # the start itself, and no warning


@each_type
@pytest.mark.parametrize("init_params", STARTS)
def test_weights_equal_repeated_rows_and_zero_weight_equals_absence(covariance_type, init_params, fits_only):
    weight = np.random.default_rng(2).integers(0, 4, size=len(X)).astype(float)
    rows = np.random.default_rng(3).permutation(np.repeat(np.arange(len(X)), weight.astype(int)))
    mixture = GaussianMixtureEntropy(3, covariance_type=covariance_type, init_params=init_params, random_state=0)
    weighted = clone(mixture).fit(X, sample_weight=weight)
    repeated = clone(mixture).fit(X[rows])
    assert_same_fit(weighted, repeated, rtol=1e-10)
    assert weighted.score(X, sample_weight=weight) == pytest.approx(repeated.score(X[rows]), rel=1e-12)


def test_equal_weights_are_no_weights():
    mixture = GaussianMixtureEntropy(3, random_state=0)
    weight = np.where(np.arange(len(X)) < 100, 0.25, 0.0)
    assert_same_fit(clone(mixture).fit(X, sample_weight=weight), clone(mixture).fit(X[:100]), rtol=1e-14)


def test_weights_are_compared_with_the_likelihood_itself(fits_only):
    weight = np.random.default_rng(5).uniform(0, 3, size=len(X))
    fitted = GaussianMixtureEntropy(2, random_state=0, tol=1e-10, max_iter=1000, reg_covar=0.0).fit(X, None, weight)
    best = fitted.score(X, sample_weight=weight)
    rng = np.random.default_rng(6)
    for _ in range(20):  # no small step is better
        moved = clone(fitted).fit(X, None, weight)
        moved.means_ = moved.means_ + 1e-2 * rng.normal(size=moved.means_.shape)
        assert moved.score(X, sample_weight=weight) < best


def test_single_precision_is_computed_in_double(fits_only):
    narrow = X.astype(np.float32)
    fitted = GaussianMixtureEntropy(3, random_state=0).fit(narrow)
    wide = GaussianMixtureEntropy(3, random_state=0).fit(narrow.astype(np.float64))
    assert fitted.means_.dtype == fitted.score_samples(narrow).dtype == np.float64
    assert_same_fit(fitted, wide, rtol=1e-15)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_dataframes(frame):
    named = frame({"a": X[:, 0], "b": X[:, 1]})
    fitted = GaussianMixtureEntropy(3, random_state=0).fit(named)
    plain = GaussianMixtureEntropy(3, random_state=0).fit(X)
    assert fitted.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(fitted.score_samples(named), plain.score_samples(X))


def test_pickles_and_clones():
    fitted = GaussianMixtureEntropy(3, random_state=0).fit(X)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.score_samples(X), fitted.score_samples(X))
    assert again.entropy_ == fitted.entropy_
    assert not hasattr(clone(fitted), "entropy_")
    assert "GaussianMixtureEntropy" in fitted._repr_html_()


@pytest.mark.parametrize("n_rows", [2, 6])
def test_fewer_rows_than_components(n_rows):
    data = X[np.arange(n_rows) % 2]
    with pytest.raises(ValueError, match=r"n_components=3 .* only 2 among \d rows; use fewer components"):
        GaussianMixtureEntropy(3).fit(data)


@each_type
def test_reg_covar_is_named_where_it_would_help(covariance_type, fits_only):
    line = np.stack([np.arange(20.0), 3 * np.arange(20.0)], axis=1)
    if covariance_type in ("diag", "spherical"):
        line = np.repeat([[0.0, 1.0], [5.0, 3.0], [9.0, 2.0]], [1, 1, 18], axis=0)
    mixture = GaussianMixtureEntropy(2, covariance_type=covariance_type, reg_covar=0.0, random_state=0)
    with pytest.raises(ValueError, match=r"covariance( of component \d)? is not positive definite .* reg_covar"):
        mixture.fit(line)
    assert np.isfinite(mixture.set_params(reg_covar=1e-3).fit(line).score(line))


def test_fit_cannot_be_traced():
    with pytest.raises(TypeError, match="cannot be traced .* gaussian_mixture_entropy"):
        jax.jit(lambda data: GaussianMixtureEntropy().fit(data).means_)(X)


# Entropies.


def pairwise_bounds(fitted):
    """The bounds of Kolchinsky and Tracey, by formulas of their own."""
    d = fitted.means_.shape[1]
    S = {
        "full": lambda c: c,
        "tied": lambda c: np.repeat(c[None], 3, axis=0),
        "diag": lambda c: np.stack([np.diag(v) for v in c]),
        "spherical": lambda c: np.stack([v * np.eye(d) for v in c]),
    }[fitted.covariance_type](fitted.covariances_)
    mu, w = fitted.means_, fitted.weights_
    lower = upper = 0.0
    for i in range(3):
        own = 0.5 * np.linalg.slogdet(2 * np.pi * np.e * S[i])[1]
        bhattacharyya, divergence = [], []
        for j in range(3):
            middle, away = (S[i] + S[j]) / 2, mu[j] - mu[i]
            half = np.linalg.slogdet(S[i])[1] / 2 + np.linalg.slogdet(S[j])[1] / 2
            log_det = np.linalg.slogdet(middle)[1] - half
            bhattacharyya.append(away @ np.linalg.solve(middle, away) / 8 + log_det / 2)
            trace = np.trace(np.linalg.solve(S[j], S[i])) - d
            logs = np.linalg.slogdet(S[j])[1] - np.linalg.slogdet(S[i])[1]
            divergence.append((trace + away @ np.linalg.solve(S[j], away) + logs) / 2)
        lower += w[i] * (own - logsumexp(-np.asarray(bhattacharyya), b=w))
        upper += w[i] * (own - logsumexp(-np.asarray(divergence), b=w))
    return lower, upper


@pytest.mark.slow(all_but=["fitted-full"])
@each_type
@pytest.mark.parametrize("taken_over", [False, True], ids=["fitted", "taken over"])
def test_entropy_lies_within_its_bounds_and_pairwise_bounds(covariance_type, taken_over):
    sklearns = GaussianMixture(3, covariance_type=covariance_type, random_state=0).fit(X)
    if taken_over:
        fitted = GaussianMixtureEntropy(mixture=sklearns, order=12).fit(X)
        assert fitted.covariance_type_ == covariance_type
    else:
        fitted = GaussianMixtureEntropy(3, covariance_type=covariance_type, order=12, random_state=0).fit(X)
    lower, upper = pairwise_bounds(sklearns)
    assert lower < fitted.entropy_ < upper
    assert lower - 1e-6 <= fitted.lower_bound_ < fitted.upper_bound_ <= upper + 1e-6
    sampled = -sklearns.score_samples(sklearns.sample(40_000)[0])
    assert abs(fitted.entropy_ - sampled.mean()) < 5 * sampled.std() / 200 + 0.01
    assert type(fitted.entropy_) is type(fitted.lower_bound_) is type(fitted.rounding_error_) is float
    assert fitted.n_terms_ == math.comb(16, 3) - 4


def test_negative_entropy_is_no_error():
    data = 3 + 1e-6 * np.random.default_rng(0).normal(size=(400, 1))
    fitted = GaussianMixtureEntropy(reg_covar=0.0, method="legendre_offdiagonal").fit(data)
    assert fitted.entropy_ == pytest.approx(0.5 * np.log(2 * np.pi * np.e * data.var()), abs=1e-9)
    assert fitted.entropy_ == pytest.approx(-12.3965720248, abs=0.1)
    assert fitted.score(data) > 0


def test_repeated_rows_do_not_make_the_entropy_infinite():
    data = np.repeat([[0.0, 1.0]], 30, axis=0)
    fitted = GaussianMixtureEntropy(reg_covar=1e-4).fit(data)
    np.testing.assert_allclose(fitted.covariances_[0], 1e-4 * np.eye(2), rtol=1e-10, atol=1e-18)
    assert fitted.entropy_ == pytest.approx(np.log(2 * np.pi * np.e * 1e-4), abs=1e-9)


@pytest.mark.slow
def test_sixty_features():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(200, 60)) + 20 * (np.arange(200) % 2)[:, None]
    fitted = GaussianMixtureEntropy(2, covariance_type="diag", method="auto", random_state=0).fit(data)
    parts = np.log(2 * np.pi * np.e * fitted.covariances_).sum(axis=1) / 2  # which do not overlap
    exact = fitted.weights_ @ parts - fitted.weights_ @ np.log(fitted.weights_)
    assert fitted.entropy_ == pytest.approx(exact, abs=1e-6)
    assert fitted.lower_bound_ - 1e-9 <= exact <= fitted.upper_bound_ + 1e-9


# Fitted mixtures.


def test_a_fitted_mixture_is_taken_over_and_not_changed():
    bayesian = BayesianGaussianMixture(n_components=3, random_state=0, max_iter=500).fit(X)
    before = joblib.hash(bayesian)
    fitted = GaussianMixtureEntropy(mixture=bayesian).fit(X[:7])
    np.testing.assert_array_equal(fitted.means_, bayesian.means_)
    np.testing.assert_allclose(fitted.score_samples(X), multivariate_mixture(bayesian, X), rtol=1e-9)
    assert (fitted.n_iter_, fitted.converged_) == (bayesian.n_iter_, bayesian.converged_)
    fitted.means_ += 1
    assert joblib.hash(bayesian) == before


def multivariate_mixture(mixture, rows):
    parts = zip(mixture.weights_, mixture.means_, mixture.covariances_, strict=True)
    return np.log(sum(w * multivariate_normal(m, S).pdf(rows) for w, m, S in parts))


def test_clone_needs_a_frozen_mixture():
    sklearns = GaussianMixture(2, random_state=0).fit(X)
    estimator = GaussianMixtureEntropy(mixture=sklearns)
    with pytest.raises(NotFittedError, match="GaussianMixture is not fitted yet.*FrozenEstimator"):
        clone(estimator).fit(X)
    frozen = clone(GaussianMixtureEntropy(mixture=FrozenEstimator(sklearns))).fit(X)
    assert frozen.entropy_ == estimator.fit(X).entropy_


def test_what_is_no_mixture_is_refused():
    with pytest.raises(TypeError, match="KMeans is no Gaussian mixture: it lacks covariance_type, weights_"):
        GaussianMixtureEntropy(mixture=KMeans(2)).fit(X)
    with pytest.raises(TypeError, match="str is no Gaussian mixture"):
        GaussianMixtureEntropy(mixture="full").fit(X)
    sklearns = GaussianMixture(2, random_state=0).fit(X)
    with pytest.raises(ValueError, match="X has 3 features, but mixture has 2"):
        GaussianMixtureEntropy(mixture=sklearns).fit(np.ones((4, 3)))
    sklearns.covariances_[1] = [[1.0, 2.0], [2.0, 1.0]]
    with pytest.raises(ValueError, match=r"component 1|covariances\[1\]"):
        GaussianMixtureEntropy(mixture=sklearns).fit(X)


# Searches.


def test_searches_by_likelihood_agree_with_scikit_learn(fits_only):
    grid = {"n_components": [1, 3]}
    ours = GridSearchCV(GaussianMixtureEntropy(random_state=0), grid, cv=3).fit(X)
    theirs = GridSearchCV(GaussianMixture(random_state=0), grid, cv=3).fit(X)
    assert ours.best_params_ == theirs.best_params_
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], rtol=1e-7)


def test_a_search_compiles_one_fit(compiled, fits_only):
    data = clusters(n=130, d=4)
    grid = {"tol": [1e-2, 1e-5], "reg_covar": [1e-6, 1e-2], "max_iter": [100, 200]}
    before = len(compiled)
    for cv in (3, 5):  # folds of 86, 87, 104 rows
        GridSearchCV(GaussianMixtureEntropy(2, random_state=0), grid, cv=cv, refit=False).fit(data)
    assert compiled[before:].count("jit(fit_mixture)") == 1
