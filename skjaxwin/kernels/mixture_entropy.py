"""The entropy of a Gaussian mixture by each method, for arrays and for traced values alike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels import polynomials
from skjaxwin.kernels.compositions import chunk_size, composition_chunks, n_compositions
from skjaxwin.kernels.double import in_double
from skjaxwin.kernels.gaussians import standardise
from skjaxwin.kernels.mixture_bounds import pair_bounds
from skjaxwin.kernels.mixture_moments import power_moments
from skjaxwin.kernels.mixture_points import N_REPLICATES, overlap_shares, quadrature_points, sobol_points
from skjaxwin.kernels.shapes import bucket

__all__ = ["Approximation", "Settings", "approximate", "bracket", "entropy_path", "is_traced"]

_EPSILON = float(np.finfo(np.float64).eps)
_MIN_COMPONENTS = 8
_MIXTURES_AT_ONCE = 16
# A bracket with half this width needs no sampling.
_NARROW = 2e-4
_AUTO_TERMS = 20_000
_AUTO_ORDER = 14
# Of standard errors from 16 replicates; fewer would miss the truth more than once in a thousand times.
_STANDARD_ERRORS = 4.0


class Settings(NamedTuple):
    """What shapes the computation; all of it static."""

    covariance_type: str = "full"
    order: int = 8
    method: str = "legendre"
    n_samples: int = 2**15
    seed: int = 0


class Approximation(NamedTuple):
    """An entropy in nats and what is known of its error; `lower` and `upper` are None if not asked for."""

    entropy: Any
    lower: Any
    upper: Any
    rounding_error: Any
    standard_error: Any
    error: Any
    n_terms: int
    method: str


class _Mixture(NamedTuple):
    """Parameters ready for kernels, and how to call these."""

    arrays: tuple[Any, Any, Any]
    log_bound: Any
    n_components: int
    traced: bool
    settings: Settings

    @property
    def xp(self) -> Any:
        return jnp if self.traced else np

    @property
    def n_features(self) -> int:
        return self.arrays[1].shape[1]

    def run(self, name: str, function: Callable[..., Any], *tables: Any) -> Any:
        """Call a function of (kind, components, *tables) as a kernel, after standardising the mixture."""
        kind = self.settings.covariance_type

        def standardised(weights: Any, means: Any, covariances: Any, *tables: Any) -> Any:
            kind_, components = standardise(weights, means, covariances, kind)
            return function(kind_, components, *tables), components.log_scale, components.inflation

        # A kernel with compiler options cannot be part of the caller's own.
        key = (name, kind, self.log_bound is not None, self.traced)
        kernel = compiling.cached(key, lambda: compiling.kernel(standardised, name, quick_compile=not self.traced))
        if not self.traced:
            return compiling.run(kernel, *self.arrays, *tables, dtype=np.float64)
        views = jax.tree_util.tree_map(lambda leaf: leaf.view() if isinstance(leaf, np.ndarray) else leaf, tables)
        return kernel(*self.arrays, *views)


def is_traced(*arrays: Any) -> bool:
    """Say whether any of these is a value of the caller's own jit, grad or vmap."""
    return any(isinstance(array, jax.core.Tracer) for array in arrays)


def approximate(
    weights: Any,
    means: Any,
    covariances: Any,
    settings: Settings,
    density_bound: Any = None,
    with_bracket: bool = True,
) -> Approximation:
    """Return a mixture's entropy by the method of the settings.

    Parameters
    ----------
    weights : array of shape (n_components,)
    means : array of shape (n_components, n_features)
    covariances : array
        As scikit-learn lays them out for the covariance type.
    settings : Settings
    density_bound : scalar, optional
        At least the density's maximum.
    with_bracket : bool
        Whether to compute bounds, too; "auto" always does.

    Returns
    -------
    approximation : Approximation
        Floats for arrays; otherwise traced values of the arrays' dtype, computed in double precision.
    """
    arrays = (weights, means, covariances) + (() if density_bound is None else (density_bound,))
    order, n_terms = _terms(settings, len(weights))

    def numbers(mixture: _Mixture) -> _Numbers:
        return _auto(mixture, order) if settings.method == "auto" else _by_method(mixture, order, with_bracket)

    if not is_traced(*arrays):
        result = numbers(_padded(arrays, settings))
        narrow = settings.method == "auto" and result.standard_error == 0
        method = settings.method if settings.method != "auto" else "bracket" if narrow else "sobol"
        return _approximation([None if number is None else float(number) for number in result], n_terms, method)

    def wanted(*arrays: Any) -> Any:
        result = numbers(_traced(arrays, settings))
        return jnp.stack(result if with_bracket else [result.entropy])

    values = in_double(wanted, *arrays)
    return _approximation([*values, *[None] * (6 - len(values))], n_terms, settings.method)


def _approximation(numbers: list[Any], n_terms: int, method: str) -> Approximation:
    return Approximation(*numbers, n_terms, method)  # type: ignore[call-arg]


def bracket(weights: Any, means: Any, covariances: Any, settings: Settings) -> tuple[Any, Any]:
    """Return certified bounds on a mixture's entropy; those of series up to the order of the settings."""
    arrays = (weights, means, covariances)

    def bounds(mixture: _Mixture) -> tuple[Any, Any]:
        series = _series(mixture, settings.order) if settings.order else None
        return _bracket(mixture, series, settings.order)

    if not is_traced(*arrays):
        lower, upper = bounds(_padded(arrays, settings))
        return float(lower), float(upper)
    lower, upper = in_double(lambda *arrays: jnp.stack(bounds(_traced(arrays, settings))), *arrays)
    return lower, upper


def entropy_path(
    weights: np.ndarray,
    means: np.ndarray,
    covariances: np.ndarray,
    *,
    covariance_type: str = "full",
    order: int = 8,
    method: str = "legendre",
) -> dict[str, np.ndarray]:
    """Return each mixture's entropy and its certified bounds.

    Parameters
    ----------
    weights : ndarray of shape (n_mixtures, n_components)
    means : ndarray of shape (n_mixtures, n_components, n_features)
    covariances : ndarray of shape (n_mixtures, ...)
        The rest as scikit-learn lays it out for the covariance type.
    covariance_type, order, method
        As for `gaussian_mixture_entropy`.

    Returns
    -------
    path : dict of ndarray of shape (n_mixtures,)
        ``"entropy"``, ``"lower"`` and ``"upper"``; NaN for mixtures with NaN.
    """
    settings = Settings(covariance_type, order, method)
    n_mixtures = len(weights)
    # The last one fills up; few shapes serve all numbers of windows.
    pick = np.minimum(np.arange(bucket(n_mixtures)), n_mixtures - 1)
    arrays = tuple(np.asarray(array, np.float64)[pick] for array in (weights, means, covariances))

    def entropies(*arrays: Any) -> Any:
        def one(mixture: Any) -> Any:
            weights, means, covariances = mixture
            result = approximate(weights, means, covariances, settings)
            return result.entropy, result.lower, result.upper

        return lax.map(one, arrays, batch_size=_MIXTURES_AT_ONCE)

    key = ("entropy path", settings, tuple(array.shape for array in arrays))
    kernel = compiling.cached(key, lambda: compiling.kernel(entropies, "entropy_path", quick_compile=False))
    results = compiling.run(kernel, *arrays, dtype=np.float64)
    return {
        name: np.array(result[:n_mixtures]) for name, result in zip(("entropy", "lower", "upper"), results, strict=True)
    }


def _padded(arrays: tuple[Any, ...], settings: Settings) -> _Mixture:
    """Add copies of a component, with weight zero, so that few shapes serve all numbers of them."""
    weights, means, covariances, *bound = (np.asarray(array, np.float64) for array in arrays)
    n_components = len(weights)
    pick = np.arange(bucket(n_components, _MIN_COMPONENTS))
    pick[n_components:] = 0
    weights = np.where(np.arange(len(pick)) < n_components, weights[pick], 0.0)
    if settings.covariance_type != "tied":
        covariances = covariances[pick]
    log_bound = np.log(bound[0]) if bound else None
    return _Mixture((weights, means[pick], covariances), log_bound, n_components, False, settings)


def _traced(arrays: tuple[Any, ...], settings: Settings) -> _Mixture:
    weights, means, covariances, *bound = arrays
    log_bound = jnp.log(bound[0]) if bound else None
    return _Mixture((weights, means, covariances), log_bound, len(weights), True, settings)


def _terms(settings: Settings, n_components: int) -> tuple[int, int]:
    """Return the order of the series to use, and its number of terms."""
    if settings.method in ("sobol", "quadrature"):
        return 0, 0
    order = settings.order
    if settings.method == "auto":
        orders = range(_AUTO_ORDER + 1)
        order = max(n for n in orders if n == 0 or n_compositions(n, n_components) <= _AUTO_TERMS)
    return order, n_compositions(order, n_components) if order else 0


class _Numbers(NamedTuple):
    """The numeric part of an `Approximation`."""

    entropy: Any
    lower: Any
    upper: Any
    rounding_error: Any
    standard_error: Any
    error: Any


def _by_method(mixture: _Mixture, order: int, with_bracket: bool) -> _Numbers:
    xp, method = mixture.xp, mixture.settings.method
    series = None
    if method in ("sobol", "quadrature"):
        value, deviation, rounding = _by_points(mixture)
    else:
        series = _series(mixture, order)
        value, rounding = _by_series(mixture, series, method, order)
        deviation = xp.zeros_like(value)
    if not with_bracket:
        return _Numbers(value, None, None, rounding, deviation, None)
    lower, upper = _bracket(mixture, series, order)
    error = xp.maximum(upper - value, value - lower)
    if method == "sobol":
        error = xp.minimum(error, _STANDARD_ERRORS * deviation + rounding)
    return _Numbers(value, lower, upper, rounding, deviation, error)


def _auto(mixture: _Mixture, order: int) -> _Numbers:
    """Take the middle of the certified bracket where it is narrow, and sampling within the bracket elsewhere."""
    xp = mixture.xp
    lower, upper = _bracket(mixture, _series(mixture, order) if order else None, order)
    middle, half = (lower + upper) / 2, (upper - lower) / 2
    narrow = half <= _NARROW
    if not mixture.traced and narrow:
        return _Numbers(middle, lower, upper, _EPSILON * (16 + xp.abs(middle)), np.float64(0), half)
    sampled, deviation, rounding = _by_points(mixture)
    value = xp.clip(sampled, lower, upper)
    # A sample outside of the bounds has missed something: a narrow component within a wide one, say.
    missed = xp.abs(sampled - value) > rounding
    furthest = xp.maximum(upper - value, value - lower)
    error = xp.where(missed, furthest, xp.minimum(_STANDARD_ERRORS * deviation + rounding, furthest))
    if mixture.traced:
        value, deviation, error = (
            jnp.where(narrow, a, b) for a, b in ((middle, value), (0.0, deviation), (half, error))
        )
    return _Numbers(value, lower, upper, rounding, deviation, error)


class _Series(NamedTuple):
    """Everything that the polynomials of one order need."""

    moments: Any
    log_scale: Any
    noise: Any


def _series(mixture: _Mixture, order: int) -> _Series:
    padded = len(mixture.arrays[0])
    full = mixture.settings.covariance_type == "full"
    size = chunk_size(padded, mixture.n_features, full)
    exact = mixture.traced
    if exact:
        size = min(size, bucket(n_compositions(order, mixture.n_components), minimum=8))
    chunks = composition_chunks(order, mixture.n_components, max(padded, 2), size, exact)
    bound = () if mixture.log_bound is None else (mixture.log_bound,)

    def moments(kind: str, components: Any, chunks: Any, log_bound: Any = None) -> Any:
        return power_moments(kind, components, log_bound, chunks, skip_empty=not exact)

    result, log_scale, inflation = mixture.run("mixture_moments", moments, chunks, *bound)
    # Relative rounding of a term: that of its exponent, and of determinants of nearly singular matrices.
    noise = _EPSILON * (4 + result.magnitude + mixture.n_features * inflation)
    return _Series(result, log_scale, noise)


def _by_series(mixture: _Mixture, series: _Series, method: str, order: int) -> tuple[Any, Any]:
    """Return the entropy and the size of its rounding error."""
    xp, m = mixture.xp, series.moments
    if method == "dimension_matched":
        polynomial = polynomials.dimension_matched(order, mixture.n_features)
    else:
        polynomial = (polynomials.taylor if method.startswith("taylor") else polynomials.legendre)(order)
    coefficients = xp.asarray(polynomial.coefficients)
    if method.endswith("offdiagonal"):
        first, moments = m.apart, m.mixed
    else:
        first, moments = polynomial.constant - m.log_bound, m.single + m.mixed
    value = first + coefficients @ moments + series.log_scale
    size = xp.abs(first) + xp.abs(coefficients) @ moments
    return value, series.noise * size + _EPSILON * xp.abs(series.log_scale)


def _bracket(mixture: _Mixture, series: _Series | None, order: int) -> tuple[Any, Any]:
    """Return the best lower and upper bound, moved outwards by their rounding errors."""
    xp = mixture.xp
    pairs, log_scale, inflation = mixture.run("mixture_bounds", pair_bounds)
    lowers = [pairs.average, pairs.bhattacharyya, pairs.jensen]
    uppers = [pairs.kullback_leibler, pairs.gaussian]
    d = mixture.n_features
    slack = _EPSILON * (16 + d * (4 + inflation) + 4 * xp.abs(pairs.gaussian) + xp.abs(log_scale))
    lower = functools.reduce(xp.maximum, lowers) + log_scale - slack
    upper = functools.reduce(xp.minimum, uppers) + log_scale + slack
    if series is None:
        return lower, upper
    value, rounding = _by_series(mixture, series, "taylor_offdiagonal", order)
    upper = xp.minimum(upper, value + rounding)
    # Huber's bound, for components that do not overlap, is the series of order 0.
    upper = xp.minimum(upper, series.moments.apart + series.log_scale + slack)
    if mixture.log_bound is None:
        value, rounding = _by_series(mixture, series, "taylor", order)
        lower = xp.maximum(lower, value - rounding)
    return lower, upper


def _by_points(mixture: _Mixture) -> tuple[Any, Any, Any]:
    """Return the entropy, its standard error and the size of its rounding error."""
    xp, (_, _, method, n_samples, seed) = mixture.xp, mixture.settings
    if method == "quadrature":
        tables, n_replicates = quadrature_points(mixture.n_features), 1
    else:
        tables, n_replicates = sobol_points(mixture.n_features, n_samples, seed), N_REPLICATES
    (own, shares), log_scale, inflation = mixture.run("mixture_points", overlap_shares, *tables)
    values = own + log_scale - xp.sum(shares.reshape(n_replicates, -1), axis=1)
    value = xp.mean(values)
    rounding = _EPSILON * (16 + xp.abs(value) + mixture.n_features * (4 + inflation))
    if n_replicates == 1:
        return value, xp.zeros_like(value), rounding
    # `mean` and not n - 1 of `var`: the derivative of a root at zero would not be finite.
    spread = xp.sum((values - value) ** 2) / (n_replicates * (n_replicates - 1))
    return value, xp.sqrt(spread + np.finfo(np.float64).tiny), rounding
