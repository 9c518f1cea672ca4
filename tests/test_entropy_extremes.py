"""Where entropies are hard to compute: components far apart, narrow within wide, weights of zero; inside conditions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial.legendre import leggauss
from sklearn.exceptions import ConvergenceWarning

from skjaxwin import gaussian_mixture_entropy, gaussian_mixture_entropy_bounds
from tests.mixtures import random_mixture

KINDS = ("full", "tied", "diag", "spherical")


def compact_and_full(kind, covariances):
    d = covariances.shape[1]
    compact = {
        "full": covariances,
        "tied": covariances[0],
        "diag": covariances[:, range(d), range(d)],
        "spherical": covariances[:, 0, 0],
    }[kind]
    full = {
        "full": covariances,
        "tied": np.broadcast_to(covariances[0], covariances.shape),
        "diag": covariances * np.eye(d),
        "spherical": covariances[:, :1, :1] * np.eye(d),
    }[kind]
    return compact, full


@pytest.mark.slow
@settings(max_examples=16)
@given(
    st.floats(0, 16), st.integers(0, 10**6), st.sampled_from([("full", 3), ("tied", 2), ("diag", 2), ("spherical", 1)])
)
def test_components_apart_at_any_distance(log_distance, seed, kind_and_width):
    kind, d = kind_and_width
    weights, _, covariances = random_mixture(seed, 3, d)
    compact, full = compact_and_full(kind, covariances)
    widest = np.sqrt(np.linalg.eigvalsh(full).max())
    means = 50 * widest * 10**log_distance * np.arange(3)[:, None] * np.random.default_rng(seed).choice([-1, 1], d)
    own = d / 2 * np.log(2 * np.pi * np.e) + np.linalg.slogdet(full)[1] / 2
    entropy = weights @ (own - np.log(weights))  # nothing overlaps
    for order in (0, 8):
        lower, upper = gaussian_mixture_entropy_bounds(weights, means, compact, covariance_type=kind, order=order)
        assert lower <= entropy <= upper
        assert upper - lower < 1e-10
    for method in ("legendre_offdiagonal", "auto"):
        info = gaussian_mixture_entropy(weights, means, compact, covariance_type=kind, method=method, return_info=True)
        assert abs(info.entropy - entropy) <= max(info.rounding_error, info.error)
        assert info.rounding_error < 1e-10


@pytest.mark.parametrize("kind", KINDS)
def test_near_components_lose_nothing_where_others_are_far(kind):
    values = []
    for distance in (2.0**6, 2.0**20, 2.0**33, 2.0**47):  # all exact
        means = np.array([[0.0, 0.0], [1.0, 0.5], [distance, -distance], [distance + 1, 0.5 - distance]])
        near = np.array([[2.0, 0.9], [0.9, 1.0]])
        compact, _ = compact_and_full(kind, np.stack([near, np.eye(2)] * 2))
        info = gaussian_mixture_entropy(np.full(4, 0.25), means, compact, covariance_type=kind, return_info=True)
        values.append(info.entropy)
        assert info.rounding_error < 1e-10
        assert info.lower <= info.upper
    np.testing.assert_allclose(values, values[0], rtol=0, atol=1e-12)


@pytest.mark.slow
def test_derivatives_of_bounds_far_apart_are_finite():
    def width(means):
        lower, upper = gaussian_mixture_entropy_bounds([0.5, 0.5], means, np.eye(2), covariance_type="tied")
        return upper - lower

    with jax.enable_x64(True):
        assert np.isfinite(jax.jit(jax.grad(width))(jnp.array([[0.0, 0.0], [1e15, 1e15]]))).all()


def narrow_within_wide(width, weight):
    """Return a mixture in one dimension, and its entropy by quadrature from piece to piece."""
    nodes, node_weights = leggauss(30)
    steps = 10 ** np.linspace(1, -np.log10(width), 60)
    edges = np.concatenate([np.linspace(-12, 12, 200), 0.3 + width * np.r_[-steps, np.linspace(-10, 10, 200), steps]])
    edges = np.unique(edges)
    half = np.diff(edges)[:, None] / 2
    x = edges[:-1, None] + half * (nodes + 1)
    wide = np.log(1 - weight) - x**2 / 2
    narrow = np.log(weight / width) - ((x - 0.3) / width) ** 2 / 2
    log_density = np.logaddexp(wide, narrow) - np.log(2 * np.pi) / 2
    entropy = -np.sum(half * node_weights * np.exp(log_density) * log_density)
    return ([1 - weight, weight], [[0.0], [0.3]], [[[1.0]], [[width**2]]]), entropy


@pytest.mark.parametrize("width", [1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("weight", [0.5, 0.01])
def test_sampling_knows_its_error_where_few_points_meet_a_narrow_component(width, weight):
    mixture, entropy = narrow_within_wide(width, weight)
    found = [
        gaussian_mixture_entropy(*mixture, method="sobol", n_samples=2**11, random_state=seed, return_info=True)
        for seed in range(40)
    ]
    scores = np.array([abs(info.entropy - entropy) / info.standard_error for info in found])
    assert (scores < 2).mean() >= 0.9
    assert (scores < 4).all()
    assert all(abs(info.entropy - entropy) <= info.error for info in found)
    # The error is not stated large either: below the worth of what as many points can miss.
    assert max(info.standard_error for info in found) < 2e-3


@pytest.mark.slow
@pytest.mark.parametrize("method", ["legendre", "quadrature"])
def test_second_derivatives_at_weights_of_zero(method):
    means, covariances = np.array([[0.0], [1.0], [2.0]]), np.ones(3)

    def entropy(weights):
        return gaussian_mixture_entropy(
            weights, means, covariances, covariance_type="spherical", method=method, order=5
        )

    def known(*changes):
        weights = np.array([0.0, 0.5, 0.5]) + changes
        return entropy(weights / weights.sum())

    with jax.enable_x64(True):
        hessian = np.asarray(jax.jit(jax.hessian(entropy))(jnp.array([0.0, 0.5, 0.5])))
    step = 3e-4
    ahead = [known(i * step, 0, 0) for i in range(5)]  # from the right
    second = np.dot([35, -104, 114, -56, 11], ahead) / (12 * step**2)
    np.testing.assert_allclose(hessian[0, 0], second, rtol=1e-4)
    slopes = []
    for j in (-1, 1):
        ahead = [known(i * step, j * step, 0) for i in range(4)]
        slopes.append(np.dot([-11, 18, -9, 2], ahead) / (6 * step))
    np.testing.assert_allclose(hessian[0, 1], (slopes[1] - slopes[0]) / (2 * step), rtol=1e-4)
    np.testing.assert_allclose(hessian, np.transpose(hessian), rtol=1e-8)


@pytest.mark.slow
def test_second_derivatives_at_weights_of_zero_are_finite():
    def entropy(weights):
        return gaussian_mixture_entropy(
            weights,
            np.zeros((2, 1)),
            np.array([1.0, 4.0]),
            covariance_type="spherical",
            method="legendre_offdiagonal",
        )

    with jax.enable_x64(True):
        assert np.isfinite(jax.jit(jax.hessian(entropy))(jnp.array([0.0, 1.0]))).all()


@pytest.mark.slow
def test_conditions_with_a_batch_of_predicates():
    weights, covariances = np.array([0.3, 0.7]), np.ones((2, 1, 1))
    means = np.array([[[0.0], [1.0]], [[0.0], [2.0]]], np.float32)
    wanted = np.array([True, False])

    def entropy(means):
        return gaussian_mixture_entropy(weights, means, covariances, order=6)

    def either(wanted, means):
        return jax.lax.cond(wanted, entropy, lambda means: 2 * means[1, 0], means)

    value, slope = entropy(means[0].astype(float)), jax.jit(jax.grad(entropy))(means[0])
    np.testing.assert_allclose(jax.jit(jax.vmap(either))(wanted, means), [value, 4.0], rtol=1e-6)
    slopes = jax.jit(jax.vmap(jax.grad(either, 1)))(wanted, means)
    np.testing.assert_allclose(slopes, [slope, [[0.0], [2.0]]], rtol=1e-5)
    # The mixture is not batched, the predicate is.
    np.testing.assert_allclose(jax.vmap(either, (0, None))(wanted, means[0]), [value, 2.0], rtol=1e-6)

    branches = [
        entropy,
        lambda means: gaussian_mixture_entropy(weights, means, covariances, method="sobol", n_samples=64),
    ]
    expected = [float(branches[i](means[1].astype(float))) for i in (1, 0)]
    found = jax.vmap(lambda i: jax.lax.switch(i, branches, means[1]))(np.array([1, 0]))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.slow
def test_a_traced_bound_below_the_density_gives_nan():
    # The largest density is at 0, where no component's mean is.
    mixture = [0.5, 0.5], np.array([[-0.9], [0.9]]), np.ones((2, 1, 1))
    largest = np.exp(-0.405) / np.sqrt(2 * np.pi)
    at_means = (1 + np.exp(-1.62)) / 2 / np.sqrt(2 * np.pi)
    assert at_means < 0.999 * largest

    @jax.jit
    def entropy(bound):
        return gaussian_mixture_entropy(*mixture, density_bound=bound)

    assert np.isnan(entropy(0.999 * largest))
    known = gaussian_mixture_entropy(*mixture, density_bound=1.001 * largest)
    np.testing.assert_allclose(entropy(1.001 * largest), known, rtol=1e-5)
    with pytest.raises(ValueError, match="below the mixture's largest density"):
        gaussian_mixture_entropy(*mixture, density_bound=0.999 * largest)


def test_info_is_a_pytree():
    mixture = random_mixture(1, 3, 2)

    @jax.jit
    def info(weights, means, covariances):
        return gaussian_mixture_entropy(weights, means, covariances, method="taylor", return_info=True)

    found, known = info(*mixture), gaussian_mixture_entropy(*mixture, method="taylor", return_info=True)
    assert (found.method, found.n_terms) == (known.method, known.n_terms) == ("taylor", known.n_terms)
    np.testing.assert_allclose(found.entropy, known.entropy, rtol=1e-6)
    assert len(jax.tree_util.tree_leaves(known)) == 6
    doubled = jax.tree_util.tree_map(lambda number: 2 * number, known)
    assert doubled.upper == 2 * known.upper


@pytest.mark.slow
def test_a_series_outside_of_its_bounds_warns():
    rng = np.random.default_rng(0)
    mixture = np.full(4, 0.25), rng.normal(size=(4, 12)), rng.uniform(0.5, 2, size=(4, 12))
    with pytest.warns(ConvergenceWarning, match="legendre series of order=4 .* but the entropy lies between"):
        info = gaussian_mixture_entropy(*mixture, covariance_type="diag", order=4, return_info=True)
    assert not info.lower - 0.2 <= info.entropy <= info.upper + 0.2
    # Its value alone warns as well; a lower bound, and what is within a transformation, does not.
    with pytest.warns(ConvergenceWarning, match="has not converged"):
        gaussian_mixture_entropy(*mixture, covariance_type="diag", order=4)
    gaussian_mixture_entropy(*mixture, covariance_type="diag", order=4, method="taylor")
    jax.jit(lambda *arrays: gaussian_mixture_entropy(*arrays, covariance_type="diag", order=4))(*mixture)
