"""What is refused and how; compile counts; cases that users reported of other software."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture

from skjaxwin import gaussian_mixture_entropy, gaussian_mixture_entropy_bounds
from tests.mixtures import REFERENCE, parameters, random_mixture

GOOD = ([0.5, 0.5], [[0.0, 0.0], [1.0, 2.0]], np.stack([np.eye(2), 2 * np.eye(2)]))


def changed(place, value, where=None):
    arrays = [np.array(array, float) for array in GOOD]
    if where is None:
        arrays[place] = np.asarray(value)
    else:
        arrays[place][where] = value
    return arrays


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (changed(0, [0.5, 0.6]), "weights must add up to 1"),
        (changed(0, [1.5, -0.5]), "weight of component 1 is negative"),
        (changed(0, [[0.5], [0.5]]), r"weights must have shape \(n_components,\)"),
        (changed(0, []), "with at least one component, got none"),
        (changed(0, np.array([0.5, 0.6])), "they add up to 1.1;"),
        (changed(0, np.array([1.5, -0.5])), "component 1 is negative: -0.5"),
        (changed(0, ["a", "b"]), "weights must be an array of real numbers"),
        (changed(1, np.nan, (1, 0)), "means of component 1 contain NaN"),
        (changed(1, [0.0, 1.0]), "means must have shape"),
        (changed(1, np.zeros((2, 3))), r"covariances must have shape \(2, 3, 3\)"),
        (changed(2, np.inf, (0, 1, 1)), "covariances of component 0 contain NaN or infinity"),
        (changed(2, 3.0, (1, 0, 1)), "covariance of component 1 is not symmetric"),
        (changed(2, -1.0, (1, 1, 1)), "covariance of component 1 is not positive definite"),
        (changed(2, np.ones((2, 2, 2))), "covariance of component 0 is not positive definite"),
        (changed(2, np.ones((2, 2))), r"covariances must have shape \(2, 2, 2\)"),
    ],
)
def test_bad_mixtures(arrays, message):
    for function in (gaussian_mixture_entropy, gaussian_mixture_entropy_bounds):
        with pytest.raises(ValueError, match=message):
            function(*arrays)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 21}, "order must be an integer from 0 to 20"),
        ({"order": -1}, "order must be"),
        ({"order": 2.5}, "order must be"),
        ({"order": True}, "order must be"),
        ({"method": "exact"}, "method must be one of 'legendre'"),
        ({"covariance_type": "round"}, "covariance_type must be one of"),
        ({"max_terms": 0}, "max_terms must be a positive integer, got 0"),
        ({"max_terms": -1, "method": "auto"}, "max_terms must be a positive integer"),
        ({"order": "8", "method": "sobol"}, "order must be an integer"),
        ({"density_bound": "x"}, "density_bound must be a positive number, got 'x'"),
        ({"density_bound": [1.0, 2.0]}, "density_bound must be a positive number"),
        ({"random_state": "x", "method": "sobol"}, "random_state must be an integer, a RandomState or None, got 'x'"),
        ({"n_samples": True}, "n_samples must be a positive integer"),
        ({"max_terms": 10}, r"has 52 terms, more than max_terms=10.*method='sobol'"),
        ({"n_samples": 0}, "n_samples must be a positive integer"),
        ({"density_bound": -1.0}, "density_bound must be a positive number"),
        ({"density_bound": np.nan}, "density_bound must be a positive number"),
        ({"density_bound": 0.07}, "below the mixture's largest density"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        gaussian_mixture_entropy(*GOOD, **options)


@pytest.mark.parametrize("place", range(3))
def test_complex_numbers_are_refused(place):
    arrays = [np.asarray(array, complex if i == place else float) for i, array in enumerate(GOOD)]
    name = ("weights", "means", "covariances")[place]
    for function in (gaussian_mixture_entropy, gaussian_mixture_entropy_bounds, jax.jit(gaussian_mixture_entropy)):
        with pytest.raises(ValueError, match=f"{name} must be an array of real numbers: they are complex"):
            function(*arrays)


def test_too_many_terms_for_bounds_names_what_bounds_have():
    with pytest.raises(ValueError, match=r"lower the order \(0 leaves the closed forms\)") as raised:
        gaussian_mixture_entropy_bounds(*GOOD, max_terms=10)
    assert "method" not in str(raised.value)


@pytest.mark.slow
def test_auto_keeps_to_max_terms():
    few = gaussian_mixture_entropy(*GOOD, method="auto", max_terms=20, return_info=True)
    assert 0 < few.n_terms <= 20 < gaussian_mixture_entropy(*GOOD, method="auto", return_info=True).n_terms
    assert few.lower <= gaussian_mixture_entropy(*GOOD, method="quadrature") <= few.upper


def test_series_do_not_touch_the_random_state():
    state = np.random.RandomState(0)
    gaussian_mixture_entropy(*GOOD, random_state=state)
    assert state.randint(1000) == np.random.RandomState(0).randint(1000)


def test_quadrature_refuses_many_features():
    with pytest.raises(ValueError, match="at most 3 features, got 4"):
        gaussian_mixture_entropy([1.0], np.zeros((1, 4)), np.eye(4)[None], method="quadrature")


def test_too_many_features_for_a_method_are_refused():
    """Coefficients beyond the largest float gave NaN."""
    with pytest.raises(ValueError, match="coefficients of method='dimension_matched' .* order=1 for 5000 features"):
        gaussian_mixture_entropy(
            [1.0], np.zeros((1, 5000)), [1.0], covariance_type="spherical", method="dimension_matched", order=1
        )
    with pytest.raises(ValueError, match="at most 21201 features, got 21202"):
        gaussian_mixture_entropy([1.0], np.zeros((1, 21202)), [1.0], covariance_type="spherical", method="sobol")


@pytest.mark.parametrize(
    ("means", "variances"), [([[0.0, 0.0], [1e-160, 0.0]], [1e-320, 1e-320]), ([[-1e308, 0.0], [1e308, 0.0]], [1, 1])]
)
def test_what_double_precision_cannot_hold_is_refused(means, variances):
    for function in (gaussian_mixture_entropy, gaussian_mixture_entropy_bounds):
        with pytest.raises(ValueError, match="no number in double precision"):
            function([0.5, 0.5], means, variances, covariance_type="spherical")


def test_covariances_are_symmetric_in_the_precision_they_were_computed_in():
    """Scikit-learn fits single precision in single precision, which rounds the triangles differently."""
    covariance = np.array([[2.0, 0.3], [0.3 * (1 + 1e-6), 0.5]])
    options = {"method": "legendre_offdiagonal"}
    expected = np.log(2 * np.pi * np.e) + np.log(2.0 * 0.5 - 0.3**2) / 2
    single = covariance[None].astype(np.float32)
    assert single[0, 0, 1] != single[0, 1, 0]
    value = gaussian_mixture_entropy([1.0], [[0.0, 0.0]], single, **options)
    assert abs(value - expected) < 1e-6
    with pytest.raises(ValueError, match="component 0 is not symmetric"):
        gaussian_mixture_entropy([1.0], [[0.0, 0.0]], covariance[None], **options)
    single[0, 0, 1] *= 1.01
    with pytest.raises(ValueError, match="component 0 is not symmetric"):
        gaussian_mixture_entropy([1.0], [[0.0, 0.0]], single, **options)


def test_order_above_16_warns_and_shows_why():
    mixture = parameters(REFERENCE["m2_2d_rotated"])
    with pytest.warns(UserWarning, match="order=20: above 16 the rounding error"):
        info = gaussian_mixture_entropy(*mixture, order=20, return_info=True)
    assert abs(info.entropy - REFERENCE["m2_2d_rotated"]["legendre"]["20"]) <= info.rounding_error
    assert info.rounding_error > 1e-6


def test_shapes_are_checked_inside_jit():
    with pytest.raises(ValueError, match="means must have shape"):
        jax.jit(gaussian_mixture_entropy)(jnp.ones(2) / 2, jnp.ones((3, 1)), jnp.ones((2, 1, 1)))
    # Values cannot be: then the result says so.
    assert np.isnan(jax.jit(gaussian_mixture_entropy)(jnp.ones(1), jnp.ones((1, 2)), jnp.ones((1, 2, 2))))


def test_orders_and_numbers_of_components_share_kernels(compiled):
    start = len(compiled)
    for n_components in range(2, 9):
        mixture = random_mixture(n_components, n_components, 2)
        for order in range(1, 17):
            if order > 9 and n_components > 5 and order < 16:
                continue  # slow, and of the same shapes as the 16th
            gaussian_mixture_entropy(*mixture, order=order)
    assert len(compiled) - start <= 4


def test_the_program_does_not_grow_with_the_order():
    def equations(order):
        jaxpr = jax.make_jaxpr(lambda m: gaussian_mixture_entropy(GOOD[0], m, GOOD[2], order=order))(jnp.zeros((2, 2)))
        return len(re.findall(r" = ", str(jaxpr)))

    assert equations(2) == equations(16)


# Reports about other software, each with the right value.


@pytest.mark.slow(all_but=["GaussianMixture-full"])
@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("estimator", [GaussianMixture, BayesianGaussianMixture])
def test_entropy_of_a_fitted_mixture(estimator, kind):
    """Scikit-learn issue 19030 asks for this."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(200, 2)), rng.normal(size=(100, 2)) * [0.3, 2] + [5, 0]])
    fitted = estimator(n_components=3, covariance_type=kind, random_state=0, max_iter=500).fit(X)
    entropy = gaussian_mixture_entropy(
        fitted.weights_, fitted.means_, fitted.covariances_, covariance_type=kind, method="auto"
    )
    sample = -fitted.score_samples(fitted.sample(20000)[0])
    assert abs(entropy - sample.mean()) < 5 * sample.std() / np.sqrt(20000)
    lower, upper = gaussian_mixture_entropy_bounds(
        fitted.weights_, fitted.means_, fitted.covariances_, covariance_type=kind
    )
    assert lower <= entropy <= upper


@pytest.mark.slow
def test_ill_conditioned_covariances():
    """Scikit-learn issue 29989: log densities of seven features of very different scale."""
    rng = np.random.default_rng(42)
    Q = np.linalg.qr(rng.normal(size=(7, 7)))[0]
    covariance = (Q * np.logspace(0, -8, 7)) @ Q.T
    covariance = (covariance + covariance.T) / 2
    expected = 3.5 * np.log(2 * np.pi * np.e) + np.linalg.slogdet(covariance)[1] / 2
    value = gaussian_mixture_entropy([1.0], np.zeros((1, 7)), covariance[None], method="legendre_offdiagonal")
    assert abs(value - expected) < 1e-6


def test_singular_kernel_matrix_is_refused():
    """JAX issue 14345: a covariance whose smallest eigenvalue is negative by rounding gave NaN."""
    t = np.arange(100) / 100
    covariance = np.exp(-100 * (t[:, None] - t) ** 2 - 10)
    with pytest.raises(ValueError, match="component 0 is not positive definite"):
        gaussian_mixture_entropy([1.0], np.zeros((1, 100)), covariance[None])


@pytest.mark.slow
def test_random_triangular_factor_of_many_features():
    """JAX issue 11763: a log density was NaN from 15 features on."""
    factor = np.tril(np.random.default_rng(42).normal(size=(15, 15))) + 3 * np.eye(15)
    expected = 7.5 * np.log(2 * np.pi * np.e) + np.log(np.abs(np.diag(factor))).sum()
    value = gaussian_mixture_entropy([1.0], np.zeros((1, 15)), (factor @ factor.T)[None], method="auto")
    assert abs(value - expected) < 1e-9


def test_negative_entropies_are_right():
    """Scikit-learn issue 8453: densities above one look like a fault, and some software clips them."""
    assert abs(gaussian_mixture_entropy([1.0], [[3.0]], [[[1e-12]]], method="auto") + 12.3965720248) < 1e-9


@pytest.mark.slow
def test_many_features_decline_by_their_bracket():
    """Stats.SE 362479: equal diagonal components of up to 20 features, where plain series fail."""
    rng = np.random.default_rng(0)
    mixture = np.full(4, 0.25), rng.normal(size=(4, 20)), rng.uniform(0.5, 2, size=(4, 20))
    with pytest.warns(ConvergenceWarning, match="legendre series of order=10 .* has not converged"):
        plain = gaussian_mixture_entropy(*mixture, covariance_type="diag", order=10, return_info=True)
    assert plain.n_terms == 1360
    sampled = gaussian_mixture_entropy(*mixture, covariance_type="diag", method="sobol", return_info=True)
    assert sampled.lower <= sampled.entropy <= sampled.upper
    assert sampled.standard_error < 2e-3
    # Far off, and it says so: the error it states covers the true one.
    assert abs(plain.entropy - sampled.entropy) > 1
    assert plain.error >= abs(plain.entropy - sampled.entropy) - 5 * sampled.standard_error
    auto = gaussian_mixture_entropy(*mixture, covariance_type="diag", method="auto")
    assert abs(auto - sampled.entropy) < 5e-3


def test_translation_changes_nothing():
    """A public implementation takes nodes of the density for points, and N(5, 1) came out as 13.7."""
    for mean in (0.0, 5.0, 1e6):
        assert abs(gaussian_mixture_entropy([1.0], [[mean]], [[[1.0]]], order=10) - 1.4237106044118204) < 1e-9
