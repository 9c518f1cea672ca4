"""The differential entropy of a Gaussian mixture, and bounds on it."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from skjaxwin.kernels.compositions import n_compositions
from skjaxwin.kernels.mixture_checks import expanded, is_positive_definite, is_symmetric, log_density_maximum
from skjaxwin.kernels.mixture_entropy import EntropyInfo, Settings, approximate, bracket, is_traced
from skjaxwin.kernels.polynomials import dimension_matched

__all__ = ["EntropyInfo", "gaussian_mixture_entropy", "gaussian_mixture_entropy_bounds"]

COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")
SERIES = ("legendre", "taylor", "dimension_matched", "legendre_offdiagonal")
METHODS = (*SERIES, "sobol", "quadrature", "auto")
_MAX_ORDER = 20
_SAFE_ORDER = 16
_MAX_QUADRATURE_FEATURES = 3
MAX_TERMS = 2_000_000


def gaussian_mixture_entropy(
    weights: Any,
    means: Any,
    covariances: Any,
    *,
    covariance_type: str = "full",
    order: int = 8,
    method: str = "legendre",
    density_bound: Any = None,
    max_terms: int = MAX_TERMS,
    n_samples: int = 2**15,
    random_state: Any = 0,
    return_info: bool = False,
) -> Any:
    r"""Differential entropy of a Gaussian mixture, in nats.

    The entropy :math:`H = -\int p \log p` of :math:`p = \sum_i w_i N(\mu_i, S_i)` has no closed form. With
    :math:`a \ge \max p` and a polynomial in place of the logarithm of :math:`p / a`, only integrals of powers of p
    remain, which are sums over products of Gaussians. The Legendre series is

    .. math:: H_N = -\log a + h_N + h_{N+1} + \sum_{k=1}^N \frac{(-1)^k}{k} \binom{N}{k} \binom{N+k+1}{k} E[(p / a)^k]

    with the harmonic numbers :math:`h_N`, and :math:`a = \sum_i w_i |2 \pi S_i|^{-1/2}` [1]_.

    Parameters
    ----------
    weights : array of shape (n_components,)
        Non-negative; they must add up to one within 1e-6, and are then divided by their sum.
    means : array of shape (n_components, n_features)
    covariances : array
        As scikit-learn's mixtures keep them: (n_components, n_features, n_features) for ``"full"``, (n_features,
        n_features) for ``"tied"``, (n_components, n_features) for ``"diag"``, (n_components,) for ``"spherical"``.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
    order : int, default=8
        N, from 0, a constant in place of the logarithm, to 20. Above 16, rounding is larger than what a further
        term gains.
    method : str, default="legendre"
        - ``"legendre"``: the series above. No bound; its error falls as 1 / N^2 for few features.
        - ``"taylor"``: the series of the logarithm about the bound a; a certified lower bound, slow.
        - ``"dimension_matched"``: the polynomial that is exact for one Gaussian of so many
          features; equal to ``"legendre"`` for two.
        - ``"legendre_offdiagonal"``: the Legendre series for the overlap of components only. Exact for one
          component and for components far apart, and the best of the series where their scales differ.
        - ``"sobol"``: the entropy without overlap less the mean doubt of the component that a point is from, over
          randomised quasi-random points of each component.
        - ``"quadrature"``: the same over Gauss-Hermite nodes, for at most 3 features. Without an
          error estimate; wrong by 0.005 where scales differ a hundredfold.
        - ``"auto"``: the middle of certified bounds (of as high an order as 20,000 terms and rounding
          allow) where these are closer than 4e-4, else ``"sobol"``, kept within the bounds.
    density_bound : float, optional
        a, at least the density's maximum; a smaller one makes series diverge and is refused, or gives NaN where
        values are traced.
    max_terms : int, default=2_000_000
        Most products of components that a series may have; ``"auto"`` lowers its order for it.
    n_samples : int, default=32768
        Points for each component, for ``"sobol"`` and ``"auto"``; rounded up to 16 times a power of two.
    random_state : int, RandomState or None, default=0
        Seed of these points.
    return_info : bool, default=False
        Return an `EntropyInfo` instead of the entropy alone.

    Returns
    -------
    entropy : float
        Computed in double precision. Inside ``jax.jit``, ``grad`` or ``vmap`` a traced scalar of
        the arguments' dtype, which is computed in double precision, too.
    info : EntropyInfo
        If `return_info`.

    Raises
    ------
    ValueError
        If the parameters are no mixture (the message names the component), the series has more
        than `max_terms` terms, an argument is out of range, or numbers are so large or small that the result would be
        NaN. Traced values can't be looked at:
        there only shapes are checked, and a covariance that is not positive definite gives NaN.

    Warns
    -----
    UserWarning
        If `order` is above 16.
    ConvergenceWarning
        If a series lies outside of the certified bounds by more than 1 / (order + 1), its error in place of the
        logarithm in the mean square. Not within a transformation.

    See Also
    --------
    gaussian_mixture_entropy_bounds : Certified bounds alone.
    GaussianMixtureEntropy : Fits a mixture first; a scorer for mixtures.

    Notes
    -----
    Only ``"taylor"``, ``"auto"`` and the bounds are certain. The other series have no bound on their error, and their
    values can lie outside of the certified bounds, by nats where the order is too low for the mixture: where many
    components lie on one another, scales differ much or features are many. An `EntropyInfo` has both.

    ``"legendre_offdiagonal"`` depends on how a mixture is written: with a component split in two, the product of
    the halves belongs to the overlap, whose series is truncated, and no longer to what is known exactly. The other
    series do not change. All series change with an affine transformation of the data as the entropy does; points
    of ``"sobol"`` (and ``"auto"``) follow the covariances' triangular factors, so that it does so within its error.

    Values converge faster than derivatives: see the user guide for measured errors of both.

    References
    ----------
    .. [1] Dahlke and Pacheco, "On Convergence of Polynomial Approximations to the Gaussian Mixture Entropy",
       NeurIPS 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import gaussian_mixture_entropy
    >>> weights, means = [0.3, 0.7], [[0.0, 0.0], [3.0, 1.0]]
    >>> covariances = [np.eye(2), [[1.0, 0.5], [0.5, 2.0]]]
    >>> round(gaussian_mixture_entropy(weights, means, covariances, order=12), 3)
    3.502
    >>> info = gaussian_mixture_entropy(weights, means, covariances, method="auto", return_info=True)
    >>> bool(info.lower <= info.entropy <= info.upper), bool(info.error < 2e-3)
    (True, True)

    Inside the caller's own functions:

    >>> import jax
    >>> gradient = jax.jit(jax.grad(lambda means: gaussian_mixture_entropy(np.ones(2) / 2, means, np.ones((2, 2, 1)))))
    """
    _check_choice("covariance_type", covariance_type, COVARIANCE_TYPES)
    _check_choice("method", method, METHODS)
    weights, means, covariances = _checked_mixture(weights, means, covariances, covariance_type)
    n_components, n_features = np.shape(means)
    series = method in SERIES
    check_order(order, n_components if series else 1, max_terms)
    if series:
        warn_of_rounding(order)
    if method == "quadrature" and n_features > _MAX_QUADRATURE_FEATURES:
        raise ValueError(
            f"method='quadrature' takes at most {_MAX_QUADRATURE_FEATURES} features, got {n_features}; "
            "use method='sobol'."
        )
    if method == "dimension_matched":
        dimension_matched(int(order), n_features)  # refuses too many features
    _check_count("n_samples", n_samples)
    _check_density_bound(density_bound, weights, means, covariances, covariance_type)
    seed = seed_of(random_state) if method in ("sobol", "auto") else 0
    settings = Settings(covariance_type, int(order), method, int(n_samples), seed, int(max_terms))
    traced = is_traced(weights, means, covariances, density_bound)
    # A lower bound is below the entropy by intention.
    checked = series and method != "taylor" and not traced
    # Bounds from pairs of components take longer than the series, and a kernel of their own.
    result = approximate(
        weights,
        means,
        covariances,
        settings,
        density_bound,
        with_bracket=return_info or checked,
        with_pairs=return_info,
    )
    if not traced:
        _check_result(result.entropy, result.lower, result.upper)
    if checked:
        _warn_of_bounds(result, int(order))
    return result if return_info else result.entropy


def gaussian_mixture_entropy_bounds(
    weights: Any,
    means: Any,
    covariances: Any,
    *,
    covariance_type: str = "full",
    order: int = 8,
    max_terms: int = MAX_TERMS,
) -> tuple[Any, Any]:
    """Certified lower and upper bound on the differential entropy of a Gaussian mixture, in nats.

    The best of these, moved outwards by an estimate of their rounding errors:

    - below: the mean of the components' entropies; Jensen's inequality [1]_; pairwise Bhattacharyya
      distances [2]_; the Taylor series of the logarithm, which grows with the order;
    - above: components taken as if apart [1]_; pairwise Kullback-Leibler divergences [2]_; the Gaussian of the
      same mean and covariance; the Taylor series applied to the overlap of components, which falls with the order.

    Parameters
    ----------
    weights, means, covariances, covariance_type
        As for `gaussian_mixture_entropy`.
    order : int, default=8
        Order of the series, at most 20; 0 for the closed forms alone.
    max_terms : int, default=2_000_000
        Most products of components that a series may have.

    Returns
    -------
    lower, upper : float

    Raises
    ------
    ValueError
        As `gaussian_mixture_entropy` does.

    References
    ----------
    .. [1] Huber, Bailey, Durrant-Whyte and Hanebeck, "On entropy approximation for Gaussian mixture random variables",
       MFI 2008.
    .. [2] Kolchinsky and Tracey, "Estimating mixture entropy with pairwise distances", Entropy 19 (2017), 361.

    Examples
    --------
    >>> from skjaxwin import gaussian_mixture_entropy_bounds
    >>> lower, upper = gaussian_mixture_entropy_bounds([0.5, 0.5], [[0.0], [50.0]], [[[1.0]], [[1.0]]])
    >>> round(lower, 12) == round(upper, 12)  # far apart: both are exact
    True
    """
    _check_choice("covariance_type", covariance_type, COVARIANCE_TYPES)
    weights, means, covariances = _checked_mixture(weights, means, covariances, covariance_type)
    check_order(order, len(weights), max_terms, "lower the order (0 leaves the closed forms)")
    lower, upper = bracket(weights, means, covariances, Settings(covariance_type, int(order)))
    if not is_traced(lower, upper):
        _check_result(lower, upper)
    return lower, upper


def check_order(
    order: Any,
    n_components: int,
    max_terms: Any,
    instead: str = "lower the order, or use method='sobol' or 'auto'",
) -> None:
    """Refuse an order that cannot be computed; 0, a constant in place of the logarithm, can."""
    if not isinstance(order, int | np.integer) or isinstance(order, bool) or not 0 <= order <= _MAX_ORDER:
        raise ValueError(
            f"order must be an integer from 0 to {_MAX_ORDER}, got {order!r}; above, rounding errors exceed any gain."
        )
    _check_count("max_terms", max_terms)
    n_terms = n_compositions(int(order), n_components)
    if n_terms > max_terms:
        raise ValueError(
            f"A series of order={order} for {n_components} components has {n_terms:,} terms, more than "
            f"max_terms={max_terms:,}; {instead}, or raise max_terms where that is a parameter."
        )


def warn_of_rounding(order: int) -> None:
    """Warn of an order whose rounding error outweighs what it gains."""
    if order > _SAFE_ORDER:
        warnings.warn(
            f"order={order}: above {_SAFE_ORDER} the rounding error of a series (up to 1e-3 at 20) exceeds the gain; "
            "see rounding_error, or use method='auto'.",
            UserWarning,
            stacklevel=3,
        )


def _warn_of_bounds(info: EntropyInfo, order: int) -> None:
    """Warn of a series that is off by more than the mean square of its error in place of the logarithm."""
    outside = max(info.lower - info.entropy, info.entropy - info.upper)
    if outside > 1 / (order + 1) + info.rounding_error:
        warnings.warn(
            f"The {info.method} series of order={order} gives {info.entropy:.6g}, but the entropy lies between "
            f"{info.lower:.6g} and {info.upper:.6g}: it has not converged for this mixture. Use method='auto' "
            "or 'sobol', or another series.",
            ConvergenceWarning,
            stacklevel=3,
        )


def _check_result(*numbers: float | None) -> None:
    """Refuse to return NaN for what looks like a mixture."""
    if any(number is not None and math.isnan(number) for number in numbers):
        raise ValueError(
            "The entropy of this mixture is no number in double precision: distances between means in units of the "
            "covariances' deviations, or these themselves, are too large or too small for it. Choose units in which "
            "deviations are near one, and add a small number to the diagonals of nearly singular covariances."
        )


def _check_count(name: str, value: Any) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a positive integer, got {value!r}.")


def seed_of(random_state: Any) -> int:
    """Return a seed of points for what scikit-learn takes as `random_state`."""
    try:
        return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    except ValueError as error:
        raise ValueError(f"random_state must be an integer, a RandomState or None, got {random_state!r}.") from error


def _check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}; got {value!r}.")


def _checked_mixture(weights: Any, means: Any, covariances: Any, covariance_type: str) -> tuple[Any, Any, Any]:
    """Return the parameters of a mixture, as float64 arrays unless they are traced."""
    given = covariances
    weights, means, covariances = (
        _as_array(name, array) for name, array in (("weights", weights), ("means", means), ("covariances", covariances))
    )
    _check_shapes(weights, means, covariances, covariance_type)
    if not is_traced(weights, means, covariances):
        _check_values(weights, means, covariances, covariance_type, np.asarray(given).dtype)
    return weights, means, covariances


def _as_array(name: str, array: Any) -> Any:
    try:
        array = array if is_traced(array) else np.asarray(array)
        if array.dtype.kind == "c":
            raise ValueError("they are complex; take their real parts if that is what they are.")
        return array if is_traced(array) else array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers: {error}") from error


def _check_shapes(weights: Any, means: Any, covariances: Any, covariance_type: str) -> None:
    if weights.ndim != 1:
        raise ValueError(f"weights must have shape (n_components,), got {weights.shape}.")
    if not len(weights):
        raise ValueError("weights must have shape (n_components,) with at least one component, got none.")
    if means.ndim != 2 or len(means) != len(weights) or not means.shape[1]:
        raise ValueError(
            f"means must have shape (n_components, n_features) with n_components = {len(weights)}, got {means.shape}."
        )
    m, d = means.shape
    expected = {"full": (m, d, d), "tied": (d, d), "diag": (m, d), "spherical": (m,)}[covariance_type]
    if covariances.shape != expected:
        raise ValueError(
            f"covariances must have shape {expected} for covariance_type={covariance_type!r} with {m} components and "
            f"{d} features, got {covariances.shape}."
        )


def _check_values(
    weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, covariance_type: str, given: Any
) -> None:
    tied = covariance_type == "tied"
    for name, array in (("weights", weights), ("means", means), ("covariances", covariances)):
        if not np.isfinite(array).all():
            place = "" if tied and name == "covariances" else f" of component {_first_bad(array)}"
            raise ValueError(f"The {name}{place} contain NaN or infinity.")
    if (weights < 0).any():
        i = int(np.flatnonzero(weights < 0)[0])
        raise ValueError(f"The weight of component {i} is negative: {float(weights[i])}.")
    if abs(weights.sum() - 1) > 1e-6:
        raise ValueError(
            f"weights must add up to 1 within 1e-6, they add up to {float(weights.sum())}; divide by their sum."
        )
    for i, covariance in enumerate(covariances[None] if tied else covariances):
        which = "The tied covariance" if tied else f"The covariance of component {i}"
        if covariance.ndim == 2 and not is_symmetric(covariance, given):
            raise ValueError(f"{which} is not symmetric.")
        if not is_positive_definite(covariance):
            raise ValueError(
                f"{which} is not positive definite in double precision; add a small number to its diagonal "
                "(reg_covar when fitting), or leave out features that depend on others."
            )


def _first_bad(array: np.ndarray) -> int:
    return int(np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))[0])


def _check_density_bound(density_bound: Any, weights: Any, means: Any, covariances: Any, covariance_type: str) -> None:
    if density_bound is None or is_traced(density_bound):
        return
    try:
        bound = float(density_bound)
    except (TypeError, ValueError):
        bound = math.nan
    if isinstance(density_bound, str) or not 0 < bound < math.inf:
        raise ValueError(f"density_bound must be a positive number, got {density_bound!r}.")
    if is_traced(weights, means, covariances):
        return
    log_maximum = log_density_maximum(weights, means, expanded(covariances, covariance_type, *means.shape))
    if math.log(bound) < log_maximum - 1e-9:
        raise ValueError(
            f"density_bound={bound} is below the mixture's largest density, {math.exp(log_maximum)}: the "
            "series would diverge; leave it None for the sum of the components' peaks."
        )
