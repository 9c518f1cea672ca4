"""The entropy of a Gaussian mixture by each method, for arrays and for traced values alike."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels import polynomials
from skjaxwin.kernels.compositions import chunk_size, composition_slabs, composition_table, n_compositions
from skjaxwin.kernels.double import in_double
from skjaxwin.kernels.gaussians import Components, standardise
from skjaxwin.kernels.mixture_bounds import pair_bounds
from skjaxwin.kernels.mixture_moments import power_moments
from skjaxwin.kernels.mixture_points import N_REPLICATES, doubt_shares, quadrature_points, sobol_points
from skjaxwin.kernels.shapes import bucket

__all__ = ["EntropyInfo", "Settings", "approximate", "bracket", "entropy_path", "is_traced"]

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
    max_terms: int = 2_000_000


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EntropyInfo:
    """An entropy and what is known of its error; a pytree, whose leaves are the numbers.

    Attributes
    ----------
    entropy : float
        In nats.
    lower, upper : float
        Certified bounds: the entropy lies between them. A series may lie outside of them.
    rounding_error : float
        An estimate of the rounding error of `entropy`.
    standard_error : float
        Of `entropy`, for methods that sample; 0 for the others. It counts what so many points may not have met.
    error : float
        A bound on the error of `entropy`: its distance from the further of the two bounds, or four standard errors
        if that is less.
    n_terms : int
        Products of components in the series; 0 if none was used.
    method : str
        What `entropy` was computed by: the method asked for, or ``"bracket"`` (the middle of the
        bounds) or ``"sobol"`` for ``"auto"``.
    """

    entropy: Any
    lower: Any
    upper: Any
    rounding_error: Any
    standard_error: Any
    error: Any
    n_terms: int = field(metadata={"static": True})
    method: str = field(metadata={"static": True})


@dataclass(frozen=True)
class _Mixture:
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

    @functools.cached_property
    def components(self) -> Components:
        """The mixture in standard coordinates."""
        covariance_type = self.settings.covariance_type

        def components_of(weights: Any, means: Any, covariances: Any) -> Components:
            return standardise(weights, means, covariances, covariance_type)

        return self._call(("mixture_standard", covariance_type), components_of, *self.arrays)

    def run(self, name: str, function: Callable[..., Any], *tables: Any) -> Any:
        """Call a function of (kind, components, *tables) as a kernel."""
        kind = "spherical" if self.settings.covariance_type == "tied" else self.settings.covariance_type
        key = (name, kind, self.log_bound is not None)
        return self._call(key, functools.partial(function, kind), self.components, *tables)

    def _call(self, key: tuple[Any, ...], function: Callable[..., Any], *args: Any) -> Any:
        # A kernel with compiler options cannot be part of the caller's own.
        kernel = compiling.cached(
            (*key, self.traced),
            lambda: compiling.kernel(lambda *args: function(*args), key[0], quick_compile=not self.traced),
        )
        if not self.traced:
            return compiling.run(kernel, *args, dtype=np.float64)
        return kernel(*jax.tree_util.tree_map(lambda leaf: leaf.view() if isinstance(leaf, np.ndarray) else leaf, args))


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
    with_pairs: bool = True,
) -> EntropyInfo:
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
    with_pairs : bool
        Whether these are to be as close as pairs of components make them; for a series only.

    Returns
    -------
    info : EntropyInfo
        Without what was not asked for. Floats for arrays; otherwise traced values of the arrays' dtype, computed in
        double precision.
    """
    arrays = (weights, means, covariances) + (() if density_bound is None else (density_bound,))
    order, n_terms = _terms(settings, len(weights))

    def numbers(mixture: _Mixture) -> _Numbers:
        return (
            _auto(mixture, order) if settings.method == "auto" else _by_method(mixture, order, with_bracket, with_pairs)
        )

    if not is_traced(*arrays):
        with np.errstate(invalid="ignore", over="ignore"):  # the caller refuses what is not a number
            result = numbers(_padded(arrays, settings))
        narrow = settings.method == "auto" and result.standard_error == 0
        method = settings.method if settings.method != "auto" else "bracket" if narrow else "sobol"
        return _info([None if number is None else float(number) for number in result], n_terms, method)

    def wanted(*arrays: Any) -> Any:
        result = numbers(_traced(arrays, settings))
        return jnp.stack(result if with_bracket else [result.entropy])

    values = in_double(wanted, *arrays)
    return _info([*values, *[None] * (6 - len(values))], n_terms, settings.method)


def _info(numbers: list[Any], n_terms: int, method: str) -> EntropyInfo:
    entropy, lower, upper, rounding_error, standard_error, error = numbers
    return EntropyInfo(entropy, lower, upper, rounding_error, standard_error, error, n_terms, method)


def bracket(weights: Any, means: Any, covariances: Any, settings: Settings) -> tuple[Any, Any]:
    """Return certified bounds on a mixture's entropy; those of series up to the order of the settings."""
    arrays = (weights, means, covariances)

    def bounds(mixture: _Mixture) -> tuple[Any, Any]:
        series = _series(mixture, settings.order) if settings.order else None
        return _bracket(mixture, series, settings.order)

    if not is_traced(*arrays):
        with np.errstate(invalid="ignore", over="ignore"):
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
    seed: int = 0,
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
    seed : int
        Of points, for methods that sample.

    Returns
    -------
    path : dict of ndarray of shape (n_mixtures,)
        ``"entropy"``, ``"lower"`` and ``"upper"``; NaN for mixtures with NaN.
    """
    settings = Settings(covariance_type, order, method, seed=seed)
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
        most = min(_AUTO_TERMS, settings.max_terms)
        order = max(n for n in range(_AUTO_ORDER + 1) if n == 0 or n_compositions(n, n_components) <= most)
    return order, n_compositions(order, n_components) if order else 0


class _Numbers(NamedTuple):
    """The numeric part of an `EntropyInfo`."""

    entropy: Any
    lower: Any
    upper: Any
    rounding_error: Any
    standard_error: Any
    error: Any


def _by_method(mixture: _Mixture, order: int, with_bracket: bool, with_pairs: bool) -> _Numbers:
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
    lower, upper = _bracket(mixture, series, order, with_pairs)
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
    n_components, traced = mixture.n_components, mixture.traced
    padded = max(len(mixture.arrays[0]), 2)
    size = chunk_size(padded, mixture.n_features, mixture.settings.covariance_type == "full")
    bound = () if mixture.log_bound is None else (mixture.log_bound,)

    def moments(kind: str, components: Any, chunks: Any, log_bound: Any = None) -> Any:
        return power_moments(kind, components, log_bound, chunks, traced)

    def of(chunks: Any) -> Any:
        return mixture.run("mixture_moments", moments, chunks, *bound)

    if traced:
        size = min(size, bucket(n_compositions(order, n_components), minimum=8))
        result = of(composition_table(order, n_components, padded, size))
    else:
        slabs = map(of, composition_slabs(order, n_components, padded, size))
        result = next(slabs)
        for more in slabs:
            magnitude = np.maximum(result.magnitude, more.magnitude)
            result = result._replace(mixed=result.mixed + more.mixed, magnitude=magnitude)
    # Relative rounding of a term: that of its exponent, and of determinants of nearly singular matrices.
    noise = _EPSILON * (4 + result.magnitude + mixture.n_features * mixture.components.inflation)
    return _Series(result, mixture.components.log_scale, noise)


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


def _bracket(mixture: _Mixture, series: _Series | None, order: int, with_pairs: bool = True) -> tuple[Any, Any]:
    """Return the best lower and upper bound, moved outwards by their rounding errors."""
    xp, d, components = mixture.xp, mixture.n_features, mixture.components
    average = components.weights @ (d / 2 - components.log_peaks)
    log_scale = components.log_scale
    slack = _EPSILON * (16 + d * (4 + components.inflation) + 4 * (xp.abs(average) + xp.abs(log_scale)))
    # What has no digits is infinite or not a number, and bounds nothing; but nothing does without the average.
    lower, upper = average + log_scale - slack, xp.asarray(np.inf)
    if with_pairs:
        pairs = mixture.run("mixture_bounds", pair_bounds)
        upper = pairs.apart + log_scale + slack
        for bound in (pairs.bhattacharyya, pairs.jensen):
            lower = xp.maximum(lower, xp.where(xp.isfinite(bound), bound, -np.inf) + log_scale - slack)
        widened = _EPSILON * (xp.abs(pairs.gaussian) + d * pairs.gaussian_inflation)
        for bound in (pairs.kullback_leibler, pairs.gaussian + widened):
            upper = xp.minimum(upper, xp.where(xp.isfinite(bound), bound, np.inf) + log_scale + slack)
    if series is None:
        return lower, upper
    value, rounding = _by_series(mixture, series, "taylor_offdiagonal", order)
    upper = xp.minimum(xp.minimum(upper, series.moments.apart + log_scale + slack), value + rounding)
    if mixture.log_bound is None:
        value, rounding = _by_series(mixture, series, "taylor", order)
        lower = xp.maximum(lower, value - rounding)
    return lower, upper


def _by_points(mixture: _Mixture) -> tuple[Any, Any, Any]:
    """Return the entropy, its standard error and the size of its rounding error."""
    xp, settings = mixture.xp, mixture.settings
    if settings.method == "quadrature":
        tables, n_replicates = quadrature_points(mixture.n_features), 1
    else:
        tables, n_replicates = sobol_points(mixture.n_features, settings.n_samples, settings.seed), N_REPLICATES
    apart, shares = mixture.run("mixture_points", doubt_shares, *tables)
    log_scale, inflation = mixture.components.log_scale, mixture.components.inflation
    values = apart + log_scale - xp.sum(shares.reshape(n_replicates, -1), axis=1)
    value = xp.mean(values)
    rounding = _EPSILON * (16 + xp.abs(value) + mixture.n_features * (4 + inflation))
    if n_replicates == 1:
        return value, xp.zeros_like(value), rounding
    # `mean` and not n - 1 of `var`: the derivative of a root at zero would not be finite.
    spread = xp.sum((values - value) ** 2) / (n_replicates * (n_replicates - 1))
    # What happens once in as many points as there are may have been missed by all of them.
    n_points, weights = tables[0].shape[0] * tables[0].shape[2], mixture.arrays[0]
    unmet = math.log(mixture.n_components) / n_points / xp.sum(weights)
    spread = spread + unmet**2 * xp.sum(weights**2)
    return value, xp.sqrt(spread + np.finfo(np.float64).tiny), rounding
