"""Values and bounds of mixture entropies against closed forms, quadrature and long reference computations."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import legendre
from scipy.stats import norm

from skjaxwin import gaussian_mixture_entropy, gaussian_mixture_entropy_bounds, models
from skjaxwin.entropy_path import EntropyPath
from skjaxwin.kernels import table_cache
from skjaxwin.kernels.compositions import composition_slabs, composition_table, n_compositions
from tests.mixtures import REFERENCE, integral_1d, mixtures, parameters, random_mixture

SERIES = {
    "legendre": "legendre",
    "taylor": "taylor_lower",
    "dimension_matched": "dimension_matched",
    "legendre_offdiagonal": "cv_legendre",
}
each_case = pytest.mark.parametrize("case", REFERENCE.values(), ids=REFERENCE.keys())


def tolerance(order):
    return 1e-9 if order <= 8 else 1e-7 if order <= 14 else 1e-5


@pytest.mark.slow(all_but=["legendre-g2_full", "taylor-g2_full"])
@each_case
@pytest.mark.parametrize("method", SERIES)
@pytest.mark.filterwarnings("ignore:.*has not converged")
def test_series_of_each_order(case, method):
    mixture = parameters(case)
    orders = [int(order) for order in case[SERIES[method]] if int(order) <= 16]
    assert len(orders) > 10
    for order in orders:
        expected = case[SERIES[method]][str(order)]
        info = gaussian_mixture_entropy(*mixture, order=order, method=method, return_info=True)
        assert abs(info.entropy - expected) <= tolerance(order), order
        assert abs(info.entropy - expected) <= 3 * info.rounding_error, order


@each_case
def test_bounds_hold_and_tighten_with_the_order(case):
    mixture = parameters(case)
    slack = 5 * case["entropy_stderr"]
    previous = (-np.inf, np.inf)
    for order in (0, 1, 2, 4, 8, 12, 16):
        lower, upper = gaussian_mixture_entropy_bounds(*mixture, order=order)
        assert lower - slack <= case["entropy"] <= upper + slack
        assert lower >= previous[0] - 1e-12
        assert upper <= previous[1] + 1e-12
        previous = lower, upper
    # At least as good as every closed form of the reference.
    for name, value in case["bounds"].items():
        if name.startswith("lower"):
            assert lower >= value - 1e-9, name
        elif name.startswith("upper"):
            assert upper <= value + 1e-9, name


@each_case
def test_auto_is_close_and_knows_how_close(case):
    info = gaussian_mixture_entropy(*parameters(case), method="auto", return_info=True)
    error = abs(info.entropy - case["entropy"])
    assert error <= 2e-3
    assert error <= info.error + 5 * case["entropy_stderr"]
    assert info.lower <= info.entropy <= info.upper
    assert info.method in ("bracket", "sobol")


@each_case
def test_sampling_states_its_error(case):
    mixture = parameters(case)
    info = gaussian_mixture_entropy(*mixture, method="sobol", random_state=3, return_info=True)
    assert abs(info.entropy - case["entropy"]) <= 5 * info.standard_error + 5 * case["entropy_stderr"] + 1e-12
    assert info.entropy == gaussian_mixture_entropy(*mixture, method="sobol", random_state=3)
    if info.standard_error > 1e-9:
        assert info.entropy != gaussian_mixture_entropy(*mixture, method="sobol", random_state=4)


@pytest.mark.parametrize("name", ["g1_tiny_scale", "g2_full", "m2_1d_overlap", "m5_2d_huber_c1", "m3_3d_full"])
def test_quadrature_where_scales_are_alike(name):
    case = REFERENCE[name]
    assert abs(gaussian_mixture_entropy(*parameters(case), method="quadrature") - case["entropy"]) < 1e-6


@pytest.mark.parametrize("order", [1, 3, 6])
@pytest.mark.parametrize("seed", [0, 1])
def test_legendre_is_the_truncated_series_of_the_logarithm(order, seed):
    weights, means, covariances = random_mixture(seed, 3, 1)
    bound = float(weights @ norm.pdf(0, 0, np.sqrt(covariances[:, 0, 0])))
    # Coefficients of log(y) on (0, 1), by quadrature in t with y = t^6, which tames the singularity.
    nodes, node_weights = legendre.leggauss(200)
    t = (nodes + 1) / 2
    y, step = t**6, node_weights / 2 * 6 * t**5
    coefficients = [
        (2 * n + 1) * step @ (np.log(y) * legendre.legval(2 * y - 1, np.eye(order + 1)[n])) for n in range(order + 1)
    ]
    assert abs(coefficients[0] + 1) < 1e-12

    def approximation(p):
        return -p * (np.log(bound) + legendre.legval(2 * p / bound - 1, coefficients))

    expected = integral_1d(approximation, weights, means, covariances)
    assert abs(gaussian_mixture_entropy(weights, means, covariances, order=order) - expected) < 1e-9


@pytest.mark.parametrize("order", range(0, 17, 4))
def test_one_gaussian_of_two_features_is_exact_at_every_order(order):
    covariance = np.array([[2.0, 0.3], [0.3, 0.5]])
    expected = np.log(2 * np.pi * np.e) + np.linalg.slogdet(covariance)[1] / 2
    value = gaussian_mixture_entropy([1.0], [[3.0, -1.0]], covariance[None], order=order)
    assert abs(value - expected) < tolerance(order)


@given(mixtures, st.integers(0, 10**6))
def test_affine_invariance(mixture, seed):
    weights, means, covariances = mixture
    rng = np.random.default_rng(seed)
    d = means.shape[1]
    A = rng.normal(size=(d, d)) + 2 * np.eye(d)
    shift = 1e3 * rng.normal(size=d)
    if abs(np.linalg.det(A)) < 0.05:
        return
    moved = means @ A.T + shift, A @ covariances @ A.T
    symmetric = (moved[1] + moved[1].swapaxes(1, 2)) / 2
    for method in ("legendre", "legendre_offdiagonal", "dimension_matched"):
        value = gaussian_mixture_entropy(*mixture, method=method)
        transformed = gaussian_mixture_entropy(weights, moved[0], symmetric, method=method)
        assert abs(transformed - value - np.linalg.slogdet(A)[1]) < 1e-8


@given(mixtures, st.randoms(use_true_random=False))
def test_neither_order_nor_splitting_of_components_counts(mixture, random):
    weights, means, covariances = mixture
    order = list(range(len(weights)))
    random.shuffle(order)
    value = gaussian_mixture_entropy(*mixture)
    assert abs(gaussian_mixture_entropy(weights[order], means[order], covariances[order]) - value) < 1e-9
    twice = np.r_[order, order[0]]
    halved = weights[twice].copy()
    halved[[0, -1]] /= 2
    assert abs(gaussian_mixture_entropy(halved, means[twice], covariances[twice]) - value) < 1e-9


@pytest.mark.slow
@settings(max_examples=5)
@given(st.integers(0, 10**6), st.integers(1, 5), st.just(2))  # each number of features compiles twelve kernels
def test_covariance_types_agree_where_they_describe_the_same(seed, n_components, n_features):
    weights, means, covariances = random_mixture(seed, n_components, n_features)
    eye = np.eye(n_features)
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    for method in ("legendre", "legendre_offdiagonal"):
        pairs = [
            (("diag", variances), variances[:, :, None] * eye),
            (("spherical", variances[:, 0]), variances[:, 0, None, None] * eye),
            (("tied", covariances[0]), np.broadcast_to(covariances[0], covariances.shape)),
        ]
        for (kind, compact), full in pairs:
            value = gaussian_mixture_entropy(weights, means, compact, covariance_type=kind, method=method)
            assert abs(value - gaussian_mixture_entropy(weights, means, full, method=method)) < 1e-9
    for (kind, compact), full in pairs:
        bounds = gaussian_mixture_entropy_bounds(weights, means, compact, covariance_type=kind)
        np.testing.assert_allclose(bounds, gaussian_mixture_entropy_bounds(weights, means, full), atol=1e-9)


@pytest.mark.parametrize("kind", ["tied", "diag", "spherical"])
def test_points_of_compact_covariances(kind):
    weights, means, covariances = random_mixture(5, 3, 2)
    compact = {"tied": covariances[0], "diag": covariances[:, [0, 1], [0, 1]], "spherical": covariances[:, 0, 0]}[kind]
    full = {
        "tied": np.broadcast_to(covariances[0], covariances.shape),
        "diag": covariances * np.eye(2),
        "spherical": covariances[:, :1, :1] * np.eye(2),
    }[kind]
    for method in ("quadrature", "sobol"):
        value = gaussian_mixture_entropy(weights, means, compact, covariance_type=kind, method=method)
        assert abs(value - gaussian_mixture_entropy(weights, means, full, method=method)) < 2e-3


@pytest.mark.parametrize(("order", "n_components"), [(0, 3), (1, 1), (4, 3), (9, 2), (5, 8)])
@pytest.mark.parametrize(("size", "whole"), [(8, True), (8, False), (64, False)])
def test_compositions_are_all_there_once(order, n_components, size, whole):
    padded = max(n_components, 2) + 1
    slabs = list(composition_slabs(order, n_components, padded, size))
    if whole:
        slabs = [composition_table(order, n_components, padded, size)]
    assert len({tuple(array.shape for array in slab) for slab in slabs}) == 1
    chunks = [np.concatenate(arrays) for arrays in zip(*slabs, strict=True)]
    chunks = type(slabs[0])(*chunks)
    counts = np.moveaxis(chunks.counts, 1, 2).reshape(-1, padded)[chunks.power.ravel() > 0]
    assert len({tuple(row) for row in counts.tolist()}) == len(counts)
    assert (counts[:, n_components:] == 0).all()
    # All terms with one component only are summed in closed form.
    assert len(counts) == n_compositions(order, n_components) - n_components * order
    # The multinomial theorem: all terms of a power add up to n_components^power, with those of one component.
    power = chunks.power.ravel()
    for k in range(1, order + 1):
        assert chunks.multinomial.ravel()[power == k].sum() == n_components ** (k + 1) - n_components


def test_slabs_stay_small_and_tables_are_kept_up_to_a_limit():
    sizes = set()
    for order, n_components, padded, size in ((16, 8, 8, 1024), (2, 150, 256, 256)):
        for slab in itertools.islice(composition_slabs(order, n_components, padded, size), 3):
            sizes.add(sum(array.nbytes for array in slab))
    assert max(sizes) < 8 * 2**20  # of 20 and 150 megabytes in all
    assert 0 < table_cache._tables.n_bytes <= 64 * 2**20
    kept = sum(n_bytes for _, n_bytes in table_cache._tables._tables.values())
    assert kept == table_cache._tables.n_bytes


def test_number_of_terms():
    info = gaussian_mixture_entropy(*random_mixture(0, 5, 2), order=10, return_info=True)
    assert info.n_terms == 4362


@pytest.mark.slow
def test_many_mixtures_at_once():
    each = [random_mixture(seed, 3, 2) for seed in range(5)]
    stacked = dict(zip(("weights", "means", "covariances"), map(np.stack, zip(*each, strict=True)), strict=True))
    path = EntropyPath(stacked, models.GaussianMixture(3, method="sobol"))  # tests of windows compare a series
    for i, mixture in enumerate(each):
        info = gaussian_mixture_entropy(*mixture, method="sobol", return_info=True)
        assert abs(path.entropy[i] - info.entropy) < 1e-9  # of the same points
        np.testing.assert_allclose((path.lower[i], path.upper[i]), (info.lower, info.upper), atol=1e-9)


def test_a_larger_bound_is_used():
    mixture = parameters(REFERENCE["m2_1d_overlap"])
    default = gaussian_mixture_entropy(*mixture)
    bound = REFERENCE["m2_1d_overlap"]["a"]
    assert abs(gaussian_mixture_entropy(*mixture, density_bound=bound) - default) < 1e-10
    assert abs(gaussian_mixture_entropy(*mixture, density_bound=2 * bound) - default) > 1e-4
    # The Taylor series remains a lower bound.
    assert (
        gaussian_mixture_entropy(*mixture, density_bound=2 * bound, method="taylor")
        < REFERENCE["m2_1d_overlap"]["entropy"]
    )
