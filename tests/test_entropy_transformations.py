"""Entropies inside the caller's jit, grad and vmap, in both precisions; derivatives against the truth."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from skjaxwin import gaussian_mixture_entropy, gaussian_mixture_entropy_bounds
from tests.mixtures import REFERENCE, parameters, random_mixture


def true_gradients(weights, means, covariances):
    """Differentiate the entropy of a mixture of few features under the integral sign.

    With respect to a component's parameters it is ``-int dp (log p + 1)``, by a fine product rule around each
    component; weights as on the simplex.
    """
    m, d = means.shape
    steps = {1: 4001, 2: 401}[d]
    line = np.linspace(-9, 9, steps)
    z = np.stack(np.meshgrid(*[line] * d, indexing="ij"), axis=-1).reshape(-1, d)
    mass = np.exp(-(z**2).sum(axis=1) / 2) / (2 * np.pi) ** (d / 2) * (line[1] - line[0]) ** d
    by_weight, by_mean, by_covariance = np.empty(m), np.empty((m, d)), np.empty((m, d, d))
    precisions = np.linalg.inv(covariances)
    log_peaks = np.log(weights) - np.linalg.slogdet(2 * np.pi * covariances)[1] / 2
    for i in range(m):
        x = means[i] + z @ np.linalg.cholesky(covariances[i]).T
        away = x[:, None] - means
        surprise = -logsumexp(log_peaks - np.einsum("nmf,mfg,nmg->nm", away, precisions, away) / 2, axis=1)
        score = away[:, i] @ precisions[i]
        by_weight[i] = mass @ surprise
        by_mean[i] = weights[i] * (mass * surprise) @ score
        squares = np.einsum("n,nf,ng->fg", mass * surprise, score, score)
        by_covariance[i] = weights[i] * (squares - mass @ surprise * precisions[i]) / 2
    return by_weight - weights @ by_weight, by_mean, by_covariance


def gradients(mixture, **options):
    def entropy(*arrays):
        return gaussian_mixture_entropy(*arrays, **options)

    with jax.enable_x64(True):
        return [np.asarray(g) for g in jax.jit(jax.grad(entropy, (0, 1, 2)))(*map(jnp.asarray, mixture))]


def relative_error(found, expected):
    flat = [np.concatenate([g.ravel() for g in each]) for each in (found, expected)]
    return np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1])


@pytest.mark.slow(all_but=["m2_1d_overlap-quadrature-8-1e-08"])
@pytest.mark.parametrize(
    ("name", "method", "order", "error"),
    [
        ("m2_1d_overlap", "quadrature", 8, 1e-8),
        ("m2_1d_overlap", "sobol", 8, 5e-3),
        ("m2_2d_rotated", "quadrature", 8, 2e-2),
        ("m2_2d_rotated", "legendre", 14, 1e-2),
        ("m2_1d_unequal_scale", "legendre_offdiagonal", 8, 2e-2),
    ],
)
def test_gradients_against_the_truth(name, method, order, error):
    mixture = parameters(REFERENCE[name])
    assert relative_error(gradients(mixture, method=method, order=order), true_gradients(*mixture)) < error


@pytest.mark.slow(all_but=["full-legendre"])
@pytest.mark.parametrize(
    ("kind", "method"),
    [("full", "legendre"), ("full", "sobol"), ("tied", "legendre"), ("diag", "taylor"), ("spherical", "legendre")],
)
def test_gradients_against_differences(kind, method):
    weights, means, covariances = random_mixture(2, 3, 2)
    compact = {
        "full": covariances,
        "tied": covariances[0],
        "diag": covariances[:, [0, 1], [0, 1]],
        "spherical": covariances[:, 0, 0],
    }[kind]
    options = {"covariance_type": kind, "method": method, "order": 5, "n_samples": 128}
    found = gradients((weights, means, compact), **options)
    rng = np.random.default_rng(0)
    direction = [rng.normal(size=a.shape) for a in (weights, means, compact)]
    direction[0] -= direction[0].mean()
    if kind in ("full", "tied"):
        direction[2] = direction[2] + direction[2].swapaxes(-1, -2)
    step = 1e-5
    ends = [
        gaussian_mixture_entropy(
            *(a + sign * step * b for a, b in zip((weights, means, compact), direction, strict=True)), **options
        )
        for sign in (-1, 1)
    ]
    slope = sum(np.sum(g * b) for g, b in zip(found, direction, strict=True))
    np.testing.assert_allclose(slope, (ends[1] - ends[0]) / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.slow
def test_every_transformation_in_single_precision_computes_in_double():
    weights = np.array([0.3, 0.7])
    means = np.array([[[0.0], [1.0]], [[0.0], [2.0]]], np.float32)
    covariances = np.ones((2, 1, 1))

    def entropy(means):
        return gaussian_mixture_entropy(weights, means, covariances, order=14)

    expected = np.float32([entropy(each.astype(float)) for each in means])
    before = jax.config.jax_enable_x64
    slopes = np.stack([gradients((weights, each.astype(float), covariances), order=14)[1] for each in means])
    for found in (
        jax.jit(jax.vmap(entropy))(means),
        jax.vmap(jax.vmap(jax.jit(entropy)))(means[None])[0],
    ):
        assert found.dtype == jnp.float32
        np.testing.assert_allclose(found, expected, rtol=2e-7)  # in single precision order 14 would have no digit
    np.testing.assert_allclose(jax.vmap(jax.jit(jax.grad(entropy)))(means), slopes, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.jacfwd(entropy)))(means), slopes, rtol=1e-6)
    assert jax.config.jax_enable_x64 == before


def test_second_derivatives():
    weights, covariances = np.array([0.3, 0.7]), np.ones((2, 1, 1))
    means = np.array([[0.0], [1.5]])

    def entropy(means):
        return gaussian_mixture_entropy(weights, means, covariances, order=5)

    hessian = jax.jit(jax.hessian(entropy))(jnp.asarray(means, jnp.float32))[:, 0, :, 0]
    step = 1e-3
    ahead, behind = np.array([[step], [0.0]]), np.array([[0.0], [step]])
    mixed = sum(a * b * entropy(means + a * ahead + b * behind) for a, b in [(1, 1), (1, -1), (-1, 1), (-1, -1)]) / (
        4 * step**2
    )
    pure = (entropy(means + ahead) - 2 * entropy(means) + entropy(means - ahead)) / step**2
    np.testing.assert_allclose(hessian[0], [pure, mixed], rtol=1e-4)


@pytest.mark.slow
def test_what_is_not_traced_keeps_its_precision():
    # In single precision the two means would be one.
    means = np.array([[1e9], [1e9 + 2.0]])
    slope = jax.grad(lambda w: gaussian_mixture_entropy(w, means, np.ones((2, 1, 1))))(jnp.array([0.4, 0.6]))
    near = jax.grad(lambda w: gaussian_mixture_entropy(w, means - 1e9, np.ones((2, 1, 1))))(jnp.array([0.4, 0.6]))
    np.testing.assert_allclose(slope, near, rtol=1e-5)
    assert abs(slope[0]) > 0.01


@pytest.mark.slow
def test_bounds_and_info_inside_jit():
    mixture = random_mixture(1, 3, 2)

    @jax.jit
    def both(weights, means, covariances):
        info = gaussian_mixture_entropy(weights, means, covariances, method="auto", return_info=True, n_samples=1024)
        return info.entropy, info.error, gaussian_mixture_entropy_bounds(weights, means, covariances)

    entropy, error, (lower, upper) = both(*mixture)
    info = gaussian_mixture_entropy(*mixture, method="auto", return_info=True, n_samples=1024)
    np.testing.assert_allclose((entropy, error), (info.entropy, info.error), rtol=1e-5)
    np.testing.assert_allclose((lower, upper), gaussian_mixture_entropy_bounds(*mixture), rtol=1e-6)


_TWO = np.stack([np.eye(2)] * 2)
EDGES = {  # most of one shape, for which kernels are compiled once
    "zero weight": ([0.0, 1.0], [[0.0, 0.0], [1.0, 0.0]], _TWO, "full"),
    "one component": ([1.0], [[1.0, 2.0]], np.eye(2)[None], "full"),
    "far from the origin": ([0.3, 0.7], [[1e6, 0.0], [1e6 + 1, 0.0]], _TWO, "full"),
    "far apart": ([0.3, 0.7], [[1e6, 0.0], [-1e6, 0.0]], _TWO, "full"),
    "small scale": ([0.3, 0.7], [[1e-6, 0.0], [-1e-6, 0.0]], 1e-12 * _TWO, "full"),
    "equal components": ([0.3, 0.7], [[0.0, 0.0], [0.0, 0.0]], _TWO, "full"),
    "nearly equal": ([0.3, 0.7], [[0.0, 0.0], [1e-9, 0.0]], np.stack([np.eye(2), np.eye(2) * (1 + 1e-9)]), "full"),
    "many features": ([0.3, 0.7], np.stack([np.zeros(400), np.ones(400)]), [1.0, 100.0], "spherical"),
}


@pytest.mark.slow(all_but=["one component"])
@pytest.mark.parametrize("name", EDGES)
def test_finite_values_and_gradients(name):
    *arrays, kind = EDGES[name]
    mixture = [np.asarray(array, float) for array in arrays]
    info = gaussian_mixture_entropy(*mixture, covariance_type=kind, method="legendre_offdiagonal", return_info=True)
    assert all(np.isfinite(number) for number in jax.tree_util.tree_leaves(info))
    assert info.lower <= info.upper
    for method in ("legendre", "legendre_offdiagonal"):
        # Without jit: the kernels of equal shapes are compiled once.
        with jax.enable_x64(True):
            found = jax.grad(
                lambda *arrays, method=method: gaussian_mixture_entropy(*arrays, covariance_type=kind, method=method),
                (0, 1, 2),
            )(*map(jnp.asarray, mixture))
        assert all(np.isfinite(g).all() for g in found)


@pytest.mark.slow
def test_gradient_at_zero_weight_is_the_one_from_the_right():
    means, covariances = np.array([[0.0], [1.0], [2.0]]), np.ones((3, 1, 1))
    at_zero = gradients((np.array([0.0, 0.5, 0.5]), means, covariances), order=8)[0]
    nearby = gradients((np.array([1e-7, 0.5, 0.5]) / (1 + 1e-7), means, covariances), order=8)[0]
    np.testing.assert_allclose(at_zero, nearby, atol=1e-6)
