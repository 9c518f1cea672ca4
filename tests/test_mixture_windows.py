"""models.GaussianMixture: a mixture in every window, labels aligned, nothing from the future, and entropies."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
from sklearn.utils import estimator_checks
from threadpoolctl import threadpool_limits

from skjaxwin import GaussianMixtureEntropy, RollingJaxEstimator, gaussian_mixture_entropy, models, walk_forward_grid
from skjaxwin.entropy_path import EntropyPath
from skjaxwin.kernels.mixture_restart import greedy_order

TYPES = ("full", "tied", "diag", "spherical")
each_type = pytest.mark.parametrize("covariance_type", TYPES)
NAMES = ("weights", "means", "covariances")


def drifting(n=700, seed=0):
    """Three regimes whose centres wander further than they are apart, and their labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    drift = 12 * np.arange(n) / n
    centres = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])
    return centres[labels] + drift[:, None] + rng.normal(size=(n, 2)), labels


X, LABELS = drifting()


def rolling(n_components=3, window=100, min_periods=100, step=1, time=None, **model):
    model = models.GaussianMixture(n_components, **model)
    return RollingJaxEstimator(model, window=window, min_periods=min_periods, step=step, time=time)


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    """Threads that wait for each other slow scikit-learn's small products down tenfold."""
    with threadpool_limits(1):
        yield


def parameters(fitted, i):
    return tuple(fitted.params_[name][i] for name in NAMES)


def sklearn_from(start, data, covariance_type, **options):
    """Return scikit-learn's fit from the given parameters."""
    weights, means, covariances = start
    precisions = np.linalg.inv(covariances) if covariance_type in ("full", "tied") else 1 / covariances
    mixture = GaussianMixture(
        len(weights),
        covariance_type=covariance_type,
        weights_init=weights,
        means_init=means,
        precisions_init=precisions,
        **options,
    )
    return mixture.fit(data)


@pytest.mark.slow
@each_type
def test_every_window_continues_the_one_before_as_scikit_learn_would(covariance_type):
    fitted = rolling(covariance_type=covariance_type).fit(X[:160])
    assert fitted.converged_.all()
    for i in range(1, 61, 6):
        rows = X[i : i + 100]
        sklearns = sklearn_from(parameters(fitted, i - 1), rows, covariance_type)
        for ours, name in zip(parameters(fitted, i), NAMES, strict=True):
            np.testing.assert_allclose(ours, getattr(sklearns, f"{name}_"), rtol=1e-6, atol=1e-6)
        assert fitted.n_iter_[i] == sklearns.n_iter_


@each_type
def test_the_first_window_is_a_good_start(covariance_type):
    fitted = rolling(covariance_type=covariance_type, tol=1e-8, max_iter=1000).fit(X[:160])
    best = GaussianMixture(3, covariance_type=covariance_type, n_init=5, random_state=0, tol=1e-8, max_iter=1000)
    best.fit(X[:100])
    ours, theirs = fitted.params_["means"][0], best.means_
    np.testing.assert_allclose(ours[ours[:, 0].argsort()], theirs[theirs[:, 0].argsort()], atol=1e-3)


@pytest.mark.slow
def test_labels_stay_aligned_over_more_windows_than_a_call_takes():
    data, labels = np.tile(X, (2, 1)), np.tile(LABELS, 2)
    data[700:] += 12.0  # the drift goes on
    fitted = rolling()
    predicted = fitted.walk_forward_predict(data)
    assert len(fitted.params_["means"]) == 1301
    moves = np.abs(np.diff(fitted.params_["means"], axis=0))
    assert moves.max() < 1.0  # centres are 6 apart
    assert np.isnan(predicted[:100]).all()
    agreement = [np.bincount(predicted[100:][labels[100:] == j].astype(int), minlength=3) for j in range(3)]
    shares = np.stack(agreement) / np.sum(agreement, axis=1, keepdims=True)
    assert sorted(shares.argmax(axis=1)) == [0, 1, 2]
    assert (shares.max(axis=1) > 0.97).all()
    # Nor does it matter how windows are put into calls: this one takes few at a time.
    few = rolling().set_params(max_memory=2e4).fit(data[:400])
    for name in NAMES:
        np.testing.assert_allclose(few.params_[name], fitted.params_[name][:301], rtol=1e-9, atol=1e-9)


def test_no_row_after_a_window_matters():
    known, changed = X[:200], X[:200].copy()
    changed[150:] = 1e3 * np.random.default_rng(0).normal(size=(50, 2))
    before, after = rolling().fit(known), rolling().fit(changed)
    for name in NAMES:
        np.testing.assert_array_equal(before.params_[name][:51], after.params_[name][:51])
        assert not np.allclose(before.params_[name][51], after.params_[name][51])


@pytest.mark.parametrize("window", [80, "expanding"])
def test_one_component_is_mean_and_covariance(window):
    fitted = rolling(1, window=window, min_periods=60, reg_covar=0.0).fit(X[:200])
    for start, stop, mean, covariance in zip(
        fitted.window_starts_, fitted.window_stops_, fitted.params_["means"], fitted.params_["covariances"], strict=True
    ):
        rows = X[start:stop]
        np.testing.assert_allclose(mean[0], rows.mean(axis=0), rtol=1e-10)
        np.testing.assert_allclose(covariance[0], np.cov(rows.T, ddof=0), rtol=1e-9)


@pytest.mark.slow
def test_blocks_of_long_windows():
    data = np.random.default_rng(3).normal(size=(2500, 6)) + 8 * (np.arange(2500) % 2)[:, None]
    fitted = rolling(2, window="expanding", min_periods=2498, tol=1e-9).fit(data)
    _, means, covariances = parameters(fitted, -1)
    for k, own in zip(means[:, 0].argsort(), (data[::2], data[1::2]), strict=True):
        np.testing.assert_allclose(means[k], own.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(covariances[k], np.cov(own.T, ddof=0), atol=1e-5)


@pytest.mark.slow
def test_weights_and_half_lives_count_rows():
    weight = np.random.default_rng(4).integers(0, 3, size=200).astype(float)
    times = np.arange(200.0)
    rows = np.repeat(np.arange(200), weight.astype(int))
    options = {"time": 0, "window": 120.0, "min_periods": 50, "step": 25, "halflife": 60.0}
    estimator = RollingJaxEstimator(models.GaussianMixture(2, tol=1e-10, max_iter=2000), **options)
    data = np.column_stack([times, X[:200]])
    weighted = estimator.fit(data, sample_weight=weight).params_
    repeated = estimator.fit(data[rows]).params_
    for name in NAMES:
        np.testing.assert_allclose(weighted[name][-3:], repeated[name][-3:], rtol=1e-5, atol=1e-5)


def test_offset_and_single_precision():
    near = rolling(2).fit(X[:150]).params_
    far = rolling(2).fit(X[:150] + 2.0**20).params_
    np.testing.assert_allclose(far["means"] - 2.0**20, near["means"], atol=1e-6)
    np.testing.assert_allclose(far["covariances"], near["covariances"], rtol=1e-6)
    narrow = X[:150].astype(np.float32)
    single, double = rolling(2).fit(narrow), rolling(2).fit(narrow.astype(np.float64))
    np.testing.assert_array_equal(single.params_["means"], double.params_["means"])
    assert single.predict(narrow).dtype == np.float32


@each_type
def test_predictions_are_the_most_probable_components(covariance_type):
    fitted = rolling(covariance_type=covariance_type).fit(X[:130])
    sklearns = GaussianMixture(3, covariance_type=covariance_type).fit(X[:50])
    sklearns.weights_, sklearns.means_, sklearns.covariances_ = parameters(fitted, -1)
    covariances = sklearns.covariances_
    sklearns.precisions_cholesky_ = {
        "full": lambda c: np.linalg.inv(np.linalg.cholesky(c)).swapaxes(1, 2),
        "tied": lambda c: np.linalg.inv(np.linalg.cholesky(c)).T,
    }.get(covariance_type, lambda c: 1 / np.sqrt(c))(covariances)
    np.testing.assert_array_equal(fitted.predict(X), sklearns.predict(X))


def test_a_window_without_a_fit_is_nan_and_the_next_one_starts_anew():
    data = X[:300].copy()
    data[120:180] = data[120]  # a window full of one row has no covariance
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        fitted = rolling(2, window=40, min_periods=40, reg_covar=0.0).fit(data)
    bad = np.isnan(fitted.params_["weights"]).all(axis=1)
    assert bad[120:141].all() and not bad[:60].any() and not bad[200:].any()
    assert np.array_equal(bad, ~fitted.converged_)
    with pytest.warns(ConvergenceWarning):
        predicted = fitted.walk_forward_predict(data)
    np.testing.assert_array_equal(np.isnan(predicted[40:]), bad[:-1])


@pytest.mark.slow
def test_a_grid_of_numbers_is_one_fit(compiled):
    before = len(compiled)
    grid = {"model__tol": [1e-2, 1e-6], "model__reg_covar": [1e-6, 0.5]}
    found = walk_forward_grid(rolling(2), X[:200], param_grid=grid)
    assert compiled[before:] == ["jit(fit_windows)"]
    for candidate, params in zip(found.candidates, found.params, strict=True):
        alone = rolling(2).set_params(**candidate).fit(X[:200])
        np.testing.assert_allclose(params["means"], alone.params_["means"], rtol=1e-9, atol=1e-9)


_features = itertools.count(7)


def test_compiles(compiled):
    data = np.random.default_rng(0).normal(size=(120, next(_features)))
    before = len(compiled)
    for n, options in ((80, {}), (120, {"tol": 1e-2, "reg_covar": 0.1, "max_iter": 7}), (99, {"order": 3})):
        RollingJaxEstimator(models.GaussianMixture(**options), window=60, capacity=128).fit(data[:n]).predict(data)
    assert compiled[before:] == ["jit(fit_windows)"]


# Starts.


def regimes(n, seed):
    """Calm and turbulent returns of two assets around one centre, in spells."""
    rng = np.random.default_rng(seed)
    turbulent = np.cumsum(rng.random(n) < 0.05) % 2
    return rng.normal(size=(n, 2)) * np.where(turbulent, 2.2, 0.8)[:, None] + [0.06, -0.02]


def far_clusters(n, seed):
    rng = np.random.default_rng(seed)
    return np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])[rng.integers(3, size=n)] + rng.normal(size=(n, 2))


def mean_log_density(mixture, rows):
    weights, means, covariances = mixture
    parts = zip(weights, means, covariances, strict=True)
    return np.log(sum(w * multivariate_normal(m, S).pdf(rows) for w, m, S in parts)).mean()


@pytest.mark.slow
@pytest.mark.parametrize(("make", "n_components", "window"), [(regimes, 2, 100), (far_clusters, 3, "expanding")])
def test_windows_are_as_likely_as_scikit_learns_from_several_starts(make, n_components, window):
    gaps = []
    for seed in (0, 1):
        data = make(300, seed)
        fitted = rolling(n_components, window=window, min_periods=None, step=20).fit(data)
        assert fitted.converged_.all()
        for i, (start, stop) in enumerate(zip(fitted.window_starts_, fitted.window_stops_, strict=True)):
            rows, mixture = data[start:stop], parameters(fitted, i)
            assert mixture[0].min() * len(rows) > 3
            starts = (GaussianMixture(n_components, random_state=0, init_params=p) for p in ("kmeans", "k-means++"))
            gaps.append(mean_log_density(mixture, rows) - max(theirs.fit(rows).score(rows) for theirs in starts))
    assert min(gaps) > -0.05
    assert np.median(gaps) > -1e-3


def test_a_component_without_rows_gets_rows_again():
    rng = np.random.default_rng(0)
    data = np.concatenate([rng.normal(size=(60, 2)), far_clusters(200, 1)])
    fitted = rolling(3, window="expanding", min_periods=3).fit(data)
    last = parameters(fitted, -1)
    assert fitted.converged_[-100:].all()
    assert last[0].min() > 0.1
    best = GaussianMixture(3, n_init=3, random_state=0).fit(data)
    assert mean_log_density(last, data) > best.score(data) - 0.01


@pytest.mark.slow
def test_a_component_that_stays_without_a_row_counts_as_not_converged():
    with pytest.warns(ConvergenceWarning, match=r"61 of 61 .* ends at 1 \(then 2, 3\).* less than one row"):
        fitted = rolling(3, window=2, min_periods=2).fit(X[:62])
    assert np.isfinite(fitted.params_["means"]).all() and not fitted.converged_.any()


def test_components_are_paired_by_the_rows_they_share():
    shared = np.array([[1.0, 5.0, 2.0], [9.0, 8.0, 0.0], [0.0, 7.0, 3.0]])
    np.testing.assert_array_equal(greedy_order(shared), [2, 0, 1])


def test_labels_survive_new_starts():
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 3
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    data = centres[labels] + rng.normal(size=(400, 2))
    data[:150] = centres[0] + rng.normal(size=(150, 2))  # nobody lives in the other two yet
    fitted = rolling(window=100).fit(data)
    found = fitted.params_["means"][150:]  # windows from row 150 on
    near = np.abs(found[:, :, None] - centres).sum(axis=-1).argmin(axis=2)
    assert (near == near[0]).all() and sorted(near[0]) == [0, 1, 2]


# Log densities.


@each_type
def test_score_is_the_mean_log_density_of_the_newest_window(covariance_type):
    fitted = rolling(covariance_type=covariance_type).fit(X[:130])
    weights, means, covariances = parameters(fitted, -1)
    shape = {"full": lambda k: covariances[k], "tied": lambda k: covariances}
    matrix = shape.get(covariance_type, lambda k: np.eye(2) * covariances[k])
    later, w = X[130:180], np.arange(50) % 3
    density = sum(weights[k] * multivariate_normal(means[k], matrix(k)).pdf(later) for k in range(3))
    np.testing.assert_allclose(fitted.score_samples(later), np.log(density), rtol=1e-9)
    assert fitted.score(later) == pytest.approx(np.log(density).mean())
    assert fitted.score(later, None, w) == pytest.approx(np.average(np.log(density), weights=w))


def test_with_a_time_column_rows_are_scored_by_windows_before_them():
    data = np.column_stack([np.arange(160.0), X[:160]])
    fitted = rolling(time=0).fit(data)
    expected = [mean_log_density(parameters(fitted, i - 100), X[[i]]) for i in range(100, 160)]
    np.testing.assert_allclose(fitted.score_samples(data)[100:], expected, rtol=1e-9)
    assert fitted.score(data[100:]) == pytest.approx(np.mean(expected))
    fitted.set_params(underdetermined="nan")
    with pytest.raises(ValueError, match="100 of 160 rows have no log density"):
        fitted.score(data)


def test_a_search_over_the_number_of_components():
    data = far_clusters(190, 0)
    cv = TimeSeriesSplit(2, test_size=30)
    grid = {"model__n_components": [1, 3]}
    search = GridSearchCV(rolling(1), grid, cv=cv, error_score="raise").fit(data)
    for j, k in enumerate(grid["model__n_components"]):
        for split, (train, test) in enumerate(cv.split(data)):
            mixture = parameters(rolling(k).fit(data[train]), -1)
            expected = mean_log_density(mixture, data[test])
            assert search.cv_results_[f"split{split}_test_score"][j] == pytest.approx(expected)
    assert search.best_params_ == {"model__n_components": 3}


# Entropies.


@pytest.mark.slow
def test_entropy_path(compiled):
    fitted = rolling(2, order=6).fit(X[:150])
    before = len(compiled)
    path = fitted.entropy_path_
    assert path.entropy.shape == path.lower.shape == path.upper.shape == (51,)
    assert len(compiled) - before == 1
    assert len(path) == 51 and "order=6" in repr(path)
    for i in (0, 20, 50):
        info = gaussian_mixture_entropy(*parameters(fitted, i), order=6, return_info=True)
        expected = info.entropy, info.lower, info.upper
        np.testing.assert_allclose([path.entropy[i], path.lower[i], path.upper[i]], expected, atol=1e-9)
    assert fitted.entropy_path_ is path
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.entropy_path_.entropy, path.entropy)
    assert fitted.fit(X[:140]).entropy_path_.entropy.shape == (41,)


@pytest.mark.slow
def test_entropy_path_of_windows_without_a_fit():
    data = X[:200].copy()
    data[50:110] = data[50]
    with pytest.warns(ConvergenceWarning):
        fitted = rolling(2, window=40, min_periods=40, reg_covar=0.0, order=6).fit(data)
    bad = np.isnan(fitted.params_["weights"]).any(axis=1)
    assert 0 < bad.sum() < len(bad)
    path = fitted.entropy_path_
    with pytest.warns(ConvergenceWarning, match=r"the entropy of \d+ of 161 windows outside") as caught:
        np.testing.assert_array_equal(np.isnan(path.entropy), bad)
    # Nearly equal rows make narrow components, which a series of low order misses.
    away = np.maximum(path.lower - path.entropy, path.entropy - path.upper)
    assert f"of {(away > 1 / 7).sum()} of 161" in str(caught[0].message)
    assert f"up to {np.nanmax(away):.2g} nats" in str(caught[0].message)


@pytest.mark.slow
def test_a_lower_bound_below_the_others_is_no_fault():
    fitted = rolling(2, order=2, method="taylor", step=25).fit(X[:150])
    path = fitted.entropy_path_
    assert (path.entropy < path.lower - 1 / 3).any()  # and no warning


def test_entropy_path_is_there_for_mixtures_only():
    linear = RollingJaxEstimator().fit(X[:50], X[:50, 0])
    assert not hasattr(linear, "entropy_path_")
    with pytest.raises(AttributeError, match=r"for models.GaussianMixture only; this model is Linear"):
        _ = linear.entropy_path_
    with pytest.raises(NotFittedError):
        _ = rolling().entropy_path_
    with pytest.raises(ValueError, match="terms"):
        _ = EntropyPath({"weights": np.full((1, 20), 0.05)}, models.GaussianMixture(20, order=12)).entropy


# As an estimator.


@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_estimators_pickle,
        estimator_checks.check_dict_unchanged,
        estimator_checks.check_sample_weight_equivalence_on_dense_data,
        estimator_checks.check_methods_subset_invariance,
    ],
    ids=lambda check: check.__name__,
)
def test_scikit_learn(check):
    check("RollingJaxEstimator", RollingJaxEstimator(models.GaussianMixture()))


@pytest.mark.parametrize("name", ["n_components", "order", "max_iter"])
def test_flags_are_no_counts(name):
    message = f"The '{name}' parameter of .* must be an int, got True"
    for estimator in (
        RollingJaxEstimator(models.GaussianMixture(**{name: True})),
        GaussianMixtureEntropy(**{name: True}),
    ):
        with pytest.raises(ValueError, match=message):
            estimator.fit(X)


@pytest.mark.parametrize("bad", [{"n_components": 0}, {"covariance_type": "round"}, {"order": 21}, {"method": "best"}])
def test_bad_parameters_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        RollingJaxEstimator(models.GaussianMixture(**bad)).fit(X)


def test_too_few_rows_for_the_components():
    with pytest.raises(ValueError, match=r"min_periods=45 \(what GaussianMixture needs\)"):
        RollingJaxEstimator(models.GaussianMixture(3)).fit(X[:44])
