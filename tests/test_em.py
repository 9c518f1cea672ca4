"""Expectation maximisation against a plain loop over rows, and what must not change its result."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from skjaxwin.kernels import em
from skjaxwin.kernels.em import Mixture, fit_mixture
from skjaxwin.kernels.mixture_start import mixture_of

TYPES = ("full", "tied", "diag", "spherical")
each_type = pytest.mark.parametrize("covariance_type", TYPES)
OPTIONS = {"tol": 1e-3, "reg_covar": 1e-6, "max_iter": 100}
FULL = OPTIONS | {"covariance_type": "full"}


def matrices(mixture, covariance_type):
    """The covariances as a matrix for each component."""
    k, d = mixture.means.shape
    return {
        "full": lambda c: c,
        "tied": lambda c: np.repeat(c[None], k, axis=0),
        "diag": lambda c: np.stack([np.diag(v) for v in c]),
        "spherical": lambda c: np.stack([v * np.eye(d) for v in c]),
    }[covariance_type](mixture.covariances)


def plain_em(X, weight, start, covariance_type, *, tol, reg_covar, max_iter):
    """Row by row, component by component, densities by SciPy."""
    mixture, before, n_iter, converged = start, -np.inf, 0, False
    d = X.shape[1]
    while n_iter < max_iter and not converged:
        n_iter += 1
        parts = zip(mixture.weights, mixture.means, matrices(mixture, covariance_type), strict=True)
        density = np.stack([w * multivariate_normal(m, S).pdf(X) for w, m, S in parts], axis=1)
        log_likelihood = np.average(np.log(density.sum(axis=1)), weights=weight)
        resp = density / density.sum(axis=1, keepdims=True) * weight[:, None]
        means, own, n = [], [], resp.sum(axis=0)
        for k in range(len(n)):
            mean = sum(r * x for r, x in zip(resp[:, k], X, strict=True)) / n[k]
            own.append(sum(r * np.outer(x - mean, x - mean) for r, x in zip(resp[:, k], X, strict=True)) / n[k])
            means.append(mean)
        own = np.stack(own)
        covariances = {
            "full": own + reg_covar * np.eye(d),
            "tied": np.average(own, axis=0, weights=n) + reg_covar * np.eye(d),
            "diag": np.diagonal(own, axis1=1, axis2=2) + reg_covar,
            "spherical": np.trace(own, axis1=1, axis2=2) / d + reg_covar,
        }[covariance_type]
        mixture = Mixture(n / n.sum(), np.stack(means), covariances)
        converged, before = abs(log_likelihood - before) < tol, log_likelihood
    return mixture, before, n_iter, converged


def data_and_start(seed, n, k=2, covariance_type="full"):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2)) @ rng.normal(size=(2, 2)) + 3 * rng.normal(size=(k, 2))[rng.integers(k, size=n)]
    resp = np.eye(k)[rng.integers(k, size=n)]
    resp[:k] = np.eye(k)
    weight = rng.uniform(0.2, 3, size=n)
    return X, weight, mixture_of(X, weight / weight.mean(), resp, covariance_type, 1e-2)


def assert_same(result, expected, rtol=1e-8):
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * max(np.abs(b).max(), 1e-3))


@each_type
@given(seed=st.integers(0, 10**6), n=st.integers(8, 64), tol=st.sampled_from([1e-2, 1e-4]))
def test_equals_a_plain_loop(covariance_type, seed, n, tol):
    X, weight, start = data_and_start(seed, n, covariance_type=covariance_type)
    options = {"tol": tol, "reg_covar": 1e-2, "max_iter": 40}
    result = fit_mixture(X, weight, start, covariance_type=covariance_type, **options)
    mixture, log_likelihood, n_iter, converged = plain_em(X, weight, start, covariance_type, **options)
    assert (result.n_iter, bool(result.converged)) == (n_iter, converged)
    assert result.log_likelihood == pytest.approx(log_likelihood, abs=1e-9)
    assert_same(result.mixture, mixture)


@each_type
@given(seed=st.integers(0, 10**6))
def test_every_iteration_raises_the_likelihood(covariance_type, seed):
    X, weight, start = data_and_start(seed, 50, covariance_type=covariance_type)
    options = {"tol": 0.0, "reg_covar": 0.0, "covariance_type": covariance_type}
    values = [fit_mixture(X, weight, start, max_iter=i, **options).log_likelihood for i in range(1, 8)]
    assert (np.diff(values) > -1e-10).all()


@pytest.mark.slow(all_but=["full"])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_blocks_of_rows_change_nothing(covariance_type, monkeypatch):
    X, weight, start = data_and_start(5, 200, k=3, covariance_type=covariance_type)
    assert em.rows_per_block(3, 2, 256) == 256
    whole = fit_mixture(X, weight, start, covariance_type=covariance_type, **OPTIONS)
    monkeypatch.setattr(em, "_BLOCK_FLOATS", 384)
    monkeypatch.setattr(em.compiling, "cached", lambda key, make: make())
    assert em.rows_per_block(3, 2, 256) == 64
    in_blocks = fit_mixture(X, weight, start, covariance_type=covariance_type, **OPTIONS)
    assert in_blocks.n_iter == whole.n_iter
    assert_same(in_blocks.mixture, whole.mixture, rtol=1e-11)


@each_type
def test_an_offset_costs_nothing(covariance_type):
    X, weight, start = data_and_start(3, 60, covariance_type=covariance_type)
    X = np.round(X * 1024) / 1024  # so that the offset does not round the data
    near = fit_mixture(X, weight, start, covariance_type=covariance_type, **OPTIONS)
    moved = start._replace(means=start.means + 2.0**20)
    far = fit_mixture(X + 2.0**20, weight, moved, covariance_type=covariance_type, **OPTIONS)
    assert far.n_iter == near.n_iter
    assert_same(far.mixture._replace(means=far.mixture.means - 2.0**20), near.mixture, rtol=1e-7)


@pytest.mark.parametrize("scale", [1e-5, 1e5])
def test_scaling_the_data_scales_the_result(scale):
    X, weight, start = data_and_start(3, 60)
    result = fit_mixture(X, weight, start, **FULL)
    start = Mixture(start.weights, start.means * scale, start.covariances * scale**2)
    scaled = fit_mixture(X * scale, weight * 7, start, **(FULL | {"reg_covar": 1e-6 * scale**2}))
    weights, means, covariances = scaled.mixture
    assert_same((weights, means / scale, covariances / scale**2), result.mixture, rtol=1e-10)


def test_rows_of_weight_zero_may_hold_anything():
    X, weight, start = data_and_start(7, 40)

    def run(X, weight):
        numbers = {"tol": 1e-3, "reg_covar": 1e-6, "max_iter": 50, "n_blocks": 1}
        return em.maximise(X.T[None], weight[None], start, covariance_type="full", **numbers)

    kernel = em.compiling.kernel(run, "run")
    weight[10:20] = 0
    bad = X.copy()
    bad[10:15], bad[15:20] = np.nan, np.inf
    expected, result = (em.compiling.run(kernel, data, weight, dtype=np.float64) for data in (X, bad))
    assert np.isfinite(expected.mixture.means).all()
    assert_same(result.mixture, expected.mixture, rtol=1e-15)
    without = fit_mixture(np.delete(X, range(10, 20), axis=0), np.delete(weight, range(10, 20)), start, **FULL)
    assert_same(result.mixture, without.mixture, rtol=1e-12)


def test_no_iteration_returns_the_start():
    X, weight, start = data_and_start(1, 30)
    result = fit_mixture(X, weight, start, covariance_type="full", tol=1e-3, reg_covar=0.0, max_iter=0)
    assert_same(result.mixture, start, rtol=1e-14)
    assert result.n_iter == 0 and not result.converged


@pytest.mark.parametrize(
    ("covariance_type", "singular"),
    [("full", [False, True]), ("tied", [True]), ("diag", [False, True]), ("spherical", [False, True])],
)
def test_singular_covariances_are_named(covariance_type, singular):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(20, 2)), np.full((5, 2), 50.0)])
    if covariance_type == "tied":
        X[:, 1] = 3 * X[:, 0]
    resp = np.repeat(np.eye(2), [20, 5], axis=0)
    start = mixture_of(X, np.ones(25), resp, covariance_type, 1e-2)
    options = {"tol": 1e-3, "max_iter": 100, "covariance_type": covariance_type}
    result = fit_mixture(X, np.ones(25), start, reg_covar=0.0, **options)
    assert result.singular.tolist() == singular
    assert not fit_mixture(X, np.ones(25), start, reg_covar=1e-3, **options).singular.any()


@pytest.mark.slow
def test_many_features():
    rng, n_features = np.random.default_rng(1), 17
    X = rng.normal(size=(200, n_features)) @ rng.normal(size=(n_features, n_features))
    start = mixture_of(X, np.ones(200), np.ones((200, 1)), "full", 0.0)
    result = fit_mixture(X, np.ones(200), start, covariance_type="full", tol=1e-3, reg_covar=0.0, max_iter=5)
    np.testing.assert_allclose(result.mixture.covariances[0], np.cov(X.T, ddof=0), rtol=1e-10, atol=1e-10)
    log_density = multivariate_normal(X.mean(axis=0), np.cov(X.T, ddof=0)).logpdf(X)
    assert result.log_likelihood == pytest.approx(log_density.mean(), abs=1e-9)


_features = itertools.count(5)  # which nothing else has compiled for


def test_one_compile_for_all_numbers_and_sizes_of_a_bucket(compiled):
    d = next(_features)
    rng = np.random.default_rng(2)
    before = len(compiled)
    for n, tol, reg_covar, max_iter in ((65, 1e-3, 1e-6, 100), (100, 1e-2, 1e-3, 7), (128, 0.0, 0.0, 3)):
        X = rng.normal(size=(n, d))
        start = mixture_of(X, np.ones(n), np.eye(2)[np.arange(n) % 2], "diag", reg_covar)
        fit_mixture(X, np.ones(n), start, covariance_type="diag", tol=tol, reg_covar=reg_covar, max_iter=max_iter)
    assert compiled[before:] == ["jit(fit_mixture)"]


@pytest.mark.parametrize("covariance_type", ["full", "tied", "spherical"])
def test_overlap_counts_the_rows_that_components_share(covariance_type):
    X, weight, first = data_and_start(1, 30, covariance_type=covariance_type)
    _, _, second = data_and_start(2, 30, covariance_type=covariance_type)

    def run(X, weight, first, second):
        return em.overlap(X.T[None], weight[None], first, second, covariance_type=covariance_type, n_blocks=1)

    found = em.compiling.run(em.compiling.kernel(run, "run"), X, weight, first, second, dtype=np.float64)
    shares = []
    for mixture in (first, second):
        matrix = {"full": lambda k, c: c[k], "tied": lambda k, c: c}.get(covariance_type, lambda k, c: np.eye(2) * c[k])
        parts = [
            w * multivariate_normal(mean, matrix(k, mixture.covariances)).pdf(X)
            for k, (w, mean) in enumerate(zip(mixture.weights, mixture.means, strict=True))
        ]
        shares.append(np.stack(parts) / np.sum(parts, axis=0))
    np.testing.assert_allclose(found, (shares[0] * weight) @ shares[1].T, rtol=1e-9, atol=1e-12)
