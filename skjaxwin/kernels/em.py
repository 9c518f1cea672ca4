"""Expectation maximisation for Gaussian mixtures: one pure function, rows last, rows of weight zero neutral.

The updates and the stopping rule are scikit-learn's, so that the same start leads to the same result. Rows go
through in blocks that stay in a core's cache, and responsibilities are all that is kept of a pass.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels.linalg import inverse_factor, row_of
from skjaxwin.kernels.shapes import aligned_empty, bucket

__all__ = ["NOBODY", "EMResult", "Mixture", "fit_mixture", "maximise", "overlap", "rows_per_block"]

_LOG_TWO_PI = math.log(2 * math.pi)
# What scikit-learn adds to the number of rows of a component, against division by zero.
NOBODY = 10 * float(np.finfo(np.float64).eps)
# A component's differences from its mean, for a block of rows, should stay in a second-level cache.
_BLOCK_FLOATS = 2**14
_MAX_BLOCK = 4096
# There are few components, so that a written-out factorisation would gain little, and cost seconds of compiling.
_WRITTEN_OUT = 3


class Mixture(NamedTuple):
    """Parameters of a Gaussian mixture, laid out as scikit-learn does.

    Attributes
    ----------
    weights : array of shape (n_components,)
    means : array of shape (n_components, n_features)
    covariances : array
        (n_components, n_features, n_features) for "full", (n_features, n_features) for "tied",
        (n_components, n_features) for "diag", (n_components,) for "spherical".
    """

    weights: Any
    means: Any
    covariances: Any


class EMResult(NamedTuple):
    """A fitted mixture and how its fit went.

    Attributes
    ----------
    mixture : Mixture
    log_likelihood : scalar
        Mean over the rows, of the parameters before the last update.
    n_iter : int
    converged : bool
    singular : array of bool of shape (n_components,)
        Which covariances are not positive definite; one for all if tied. The iteration ends there.
    """

    mixture: Mixture
    log_likelihood: Any
    n_iter: Any
    converged: Any
    singular: Any


class _State(NamedTuple):
    """What goes from one iteration to the next; `factors` are those of the covariances' inverses."""

    mixture: Mixture
    factors: Any
    singular: Any
    log_likelihood: Any
    n_iter: Any
    converged: Any


def maximise(
    X: Any, weight: Any, start: Mixture, *, covariance_type: str, tol: Any, reg_covar: Any, max_iter: Any, n_blocks: Any
) -> EMResult:
    r"""Fit a Gaussian mixture by expectation maximisation.

    With the responsibilities :math:`r_{ik}` of component k for row i, and :math:`n_k = \sum_i w_i r_{ik} + 10
    \epsilon`, an iteration sets the weights to :math:`n_k / \sum_l n_l`, the means to :math:`\sum_i w_i r_{ik} x_i /
    n_k`, and covariances to the mean products of deviations from the *new* means, plus `reg_covar` on the diagonal
    (Dempster, Laird and Rubin, "Maximum likelihood from incomplete data via the EM algorithm", JRSS B 39, 1977). It
    ends when the mean log likelihood changes by less than `tol`.

    Parameters
    ----------
    X : array of shape (n_blocks, n_features, n_rows)
        Centred, in blocks of rows.
    weight : array of shape (n_blocks, n_rows)
        Non-negative; about one on average. Rows of weight zero may hold anything.
    start : Mixture
    covariance_type : {"full", "tied", "diag", "spherical"}
    tol, reg_covar : scalar
    max_iter : scalar
    n_blocks : int
        How many of the blocks have a row of positive weight; those after them are not read.
    """
    X = jnp.where(weight[:, None] > 0, X, 0)
    total = jnp.sum(weight)
    rows = _Rows(X, weight, n_blocks, total)

    def improve(state: _State) -> _State:
        log_likelihood, resp = _expect(rows, state.mixture, state.factors, covariance_type)
        mixture = _update(rows, resp, state.mixture.means, covariance_type, reg_covar)
        factors, singular = _factorise(mixture.covariances, covariance_type)
        change = log_likelihood - state.log_likelihood
        return _State(mixture, factors, singular, log_likelihood, state.n_iter + 1, jnp.abs(change) < tol)

    def unfinished(state: _State) -> Any:
        return ~state.converged & ~jnp.any(state.singular) & (state.n_iter < max_iter)

    factors, singular = _factorise(start.covariances, covariance_type)
    first = _State(start, factors, singular, jnp.full_like(total, -jnp.inf), jnp.int32(0), jnp.zeros((), bool))
    last = lax.while_loop(unfinished, improve, first)
    return EMResult(last.mixture, last.log_likelihood, last.n_iter, last.converged, last.singular)


class _Rows(NamedTuple):
    """The data in blocks."""

    X: Any
    weight: Any
    n_blocks: Any
    total: Any


def _over_blocks(rows: _Rows, state: Any, step: Any) -> Any:
    """Apply ``step(state, i)`` to the blocks in turn; a single one needs no loop."""
    if rows.X.shape[0] == 1:
        return step(state, 0)
    return lax.fori_loop(jnp.int32(0), rows.n_blocks, lambda i, state: step(state, i), state)


def _block(array: Any, i: Any) -> Any:
    if array.shape[0] == 1:
        return array[0]
    return row_of(array, i)


def _expect(rows: _Rows, mixture: Mixture, factors: Any, covariance_type: str) -> tuple[Any, Any]:
    """Return the mean log likelihood, and each row's responsibilities times its weight."""
    n_blocks, _, size = rows.X.shape
    n_components = len(mixture.weights)
    log_peaks = _log_peaks(mixture, factors)

    def step(state: Any, i: Any) -> Any:
        log_likelihood, resp = state
        log_prob = log_peaks[:, None] - _squares(_block(rows.X, i)[None] - mixture.means[:, :, None], factors) / 2
        top = jnp.max(log_prob, axis=0)
        share = jnp.exp(log_prob - top)
        total = jnp.sum(share, axis=0)
        weight = _block(rows.weight, i)
        one = share * (weight / total)
        log_likelihood = log_likelihood + weight @ (jnp.log(total) + top)
        if n_blocks == 1:
            return log_likelihood, one[None]
        at = (i, jnp.int32(0), jnp.int32(0))
        return log_likelihood, lax.dynamic_update_slice(resp, one[None], at, allow_negative_indices=False)

    start = jnp.zeros_like(rows.total), jnp.zeros((n_blocks, n_components, size), rows.X.dtype)
    log_likelihood, resp = _over_blocks(rows, start, step)
    return log_likelihood / rows.total, resp


def overlap(X: Any, weight: Any, first: Mixture, second: Mixture, *, covariance_type: str, n_blocks: Any) -> Any:
    """Return how many rows component i of the first mixture and component j of the second share.

    Parameters
    ----------
    X, weight, covariance_type, n_blocks
        As for `maximise`.
    first, second : Mixture
        Of positive definite covariances.

    Returns
    -------
    overlap : array of shape (n_components, n_components)
    """
    k = len(first.weights)
    if covariance_type == "tied":
        first, second = (
            m._replace(covariances=jnp.broadcast_to(m.covariances, (k, *m.covariances.shape))) for m in (first, second)
        )
    # As one mixture of twice as many components, which takes half as long to compile.
    both = jax.tree_util.tree_map(lambda a, b: jnp.concatenate([a, b]), first, second)
    factors, _ = _factorise(both.covariances, "full" if covariance_type == "tied" else covariance_type)
    log_peaks = _log_peaks(both, factors)
    rows = _Rows(jnp.where(weight[:, None] > 0, X, 0), weight, n_blocks, jnp.sum(weight))

    def step(state: Any, i: Any) -> Any:
        differences = _block(rows.X, i)[None] - both.means[:, :, None]
        log_prob = (log_peaks[:, None] - _squares(differences, factors) / 2).reshape(2, k, -1)
        share = jnp.exp(log_prob - jnp.max(log_prob, axis=1, keepdims=True))
        share = share / jnp.sum(share, axis=1, keepdims=True)
        return state + (share[0] * _block(rows.weight, i)) @ share[1].T

    return _over_blocks(rows, jnp.zeros((k, k), X.dtype), step)


def _update(rows: _Rows, resp: Any, means: Any, covariance_type: str, reg_covar: Any) -> Mixture:
    """Return the parameters that the responsibilities ask for."""

    def shift(state: Any, i: Any) -> Any:
        counts, moved = state
        r = _block(resp, i)
        # Measured from the old mean: a component that nobody belongs to stays where it is.
        return counts + jnp.sum(r, axis=1), moved + r @ _block(rows.X, i).T

    counts, sums = _over_blocks(rows, (jnp.zeros_like(means[:, 0]), jnp.zeros_like(means)), shift)
    n = counts + NOBODY
    means = means + (sums - counts[:, None] * means) / n[:, None]

    def products(state: Any, i: Any) -> Any:
        differences = _block(rows.X, i)[None] - means[:, :, None]
        r = _block(resp, i)
        if covariance_type in ("diag", "spherical"):
            return state + jnp.sum(r[:, None] * differences * differences, axis=-1)
        weighted = r[:, None] * differences
        axes = ((2,), (2,)), ((0,), (0,))
        if covariance_type == "full":
            return state + lax.dot_general(weighted, differences, axes)
        return state + jnp.sum(lax.dot_general(weighted, differences, axes), axis=0)

    shape = {"full": (*means.shape, means.shape[1]), "tied": (means.shape[1],) * 2}.get(covariance_type, means.shape)
    sums = _over_blocks(rows, jnp.zeros(shape, means.dtype), products)
    if covariance_type == "full":
        covariances = sums / n[:, None, None]
    else:
        covariances = sums / (jnp.sum(n) if covariance_type == "tied" else n[:, None])
    if covariance_type == "spherical":
        covariances = jnp.mean(covariances, axis=1)
    if covariance_type in ("full", "tied"):
        covariances = (covariances + jnp.swapaxes(covariances, -1, -2)) / 2
        covariances = covariances + reg_covar * jnp.eye(means.shape[1], dtype=means.dtype)
    else:
        covariances = covariances + reg_covar
    return Mixture(n / jnp.sum(n), means, covariances)


def _factorise(covariances: Any, covariance_type: str) -> tuple[Any, Any]:
    """Return factors F with ``F' F`` the inverse, and which covariances have none in working precision.

    The factors have the shape (n or 1, n_features, n_features), or (n, n_features or 1) if diagonal.
    """
    if covariance_type in ("diag", "spherical"):
        variances = covariances if covariance_type == "diag" else covariances[:, None]
        return lax.rsqrt(variances), ~jnp.all((variances > 0) & jnp.isfinite(variances), axis=1)
    matrices = covariances if covariance_type == "full" else covariances[None]
    n_features = matrices.shape[-1]
    root = jnp.sqrt(jnp.diagonal(matrices, axis1=1, axis2=2))
    unit = matrices / root[:, :, None] / root[:, None, :]
    factors = jnp.moveaxis(inverse_factor(jnp.moveaxis(unit, 0, -1), written_out=_WRITTEN_OUT), -1, 0)
    # The largest entry of the diagonal is one over the root of the smallest pivot.
    pivots = jnp.diagonal(factors, axis1=1, axis2=2)
    limit = 1 / math.sqrt(4 * n_features * float(np.finfo(np.float64).eps))
    return factors / root[:, None, :], ~jnp.all(pivots < limit, axis=1)


def _log_peaks(mixture: Mixture, factors: Any) -> Any:
    """Return the logarithms of weights times densities at the means."""
    n_features = mixture.means.shape[1]
    return jnp.log(mixture.weights) + _log_determinant(factors, n_features) - n_features / 2 * _LOG_TWO_PI


def _log_determinant(factors: Any, n_features: int) -> Any:
    """Return ``log |F|``, of shape (n,) or (1,)."""
    if factors.ndim == 3:
        return jnp.sum(jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)), axis=1)
    return jnp.sum(jnp.log(factors), axis=1) * (n_features // factors.shape[1])


def _squares(differences: Any, factors: Any) -> Any:
    """Return ``|F (x - mean)|^2``, of shape (n_components, n_rows)."""
    if factors.ndim == 2:
        white = differences * factors[:, :, None]
    elif factors.shape[0] == 1:
        white = jnp.einsum("ef,kfn->ken", factors[0], differences)
    else:
        white = lax.dot_general(factors, differences, (((2,), (1,)), ((0,), (0,))))
    return jnp.sum(white * white, axis=1)


def rows_per_block(n_components: int, n_features: int, capacity: int) -> int:
    """Return a power of two."""
    size = max(_BLOCK_FLOATS // (n_components * n_features), 64)
    return min(1 << (size.bit_length() - 1), _MAX_BLOCK, capacity)


def fit_mixture(
    X: np.ndarray,
    weight: np.ndarray,
    start: Mixture,
    *,
    covariance_type: str,
    tol: float,
    reg_covar: float,
    max_iter: int,
) -> EMResult:
    """Fit one mixture; compiled once for each capacity, number of features and components, and covariance type.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    weight : ndarray of shape (n_rows,)
        Positive.
    start : Mixture of ndarray
    covariance_type : str
    tol, reg_covar : float
    max_iter : int

    Returns
    -------
    result : EMResult of ndarray
    """
    n_rows, n_features = X.shape
    n_components = len(start.weights)
    weight = weight * (n_rows / weight.sum())
    # An offset would cost the digits that differences from means are made of.
    centre = weight @ X / n_rows
    centre = centre + weight @ (X - centre) / n_rows
    capacity = bucket(n_rows)
    size = rows_per_block(n_components, n_features, capacity)
    blocks = aligned_empty((capacity // size, n_features, size), np.dtype(np.float64))
    weights = aligned_empty((capacity // size, size), np.dtype(np.float64))
    blocks[:], weights[:] = 0, 0
    weights.reshape(-1)[:n_rows] = weight
    rows = np.zeros((-(-n_rows // size) * size, n_features))
    rows[:n_rows] = X - centre
    used = len(rows) // size
    blocks[:used] = rows.reshape(used, size, n_features).swapaxes(1, 2)

    def run_em(X: Any, weight: Any, start: Mixture, numbers: Any, counts: Any) -> EMResult:
        return maximise(
            X,
            weight,
            start,
            covariance_type=covariance_type,
            tol=numbers[0],
            reg_covar=numbers[1],
            max_iter=counts[0],
            n_blocks=counts[1],
        )

    compiled = compiling.cached(
        ("em", capacity, n_features, n_components, covariance_type), lambda: compiling.kernel(run_em, "fit_mixture")
    )
    start = Mixture(start.weights, start.means - centre, start.covariances)
    numbers = np.asarray([tol, reg_covar], np.float64)
    counts = np.asarray([min(max_iter, 2**31 - 1), used], np.int32)
    result = compiling.run(compiled, blocks, weights, start, numbers, counts, dtype=np.float64)
    mixture = jax.tree_util.tree_map(np.array, result.mixture)
    return result._replace(mixture=mixture._replace(means=mixture.means + centre))
