"""The best of several starts for a window's mixture, with components in the order of the window before.

A warm start alone is a trap: the likelihood has many maxima, and a component that has lost its rows never gets any
back. Every window is therefore fitted from the mixture before it *and* anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin.kernels.em import EMResult, Mixture, maximise, overlap
from skjaxwin.kernels.mixture_seed import nested_start, spread_start

__all__ = ["best_of_starts", "greedy_order"]

# How sound a fit is: the soundest wins, and the likeliest of equally sound ones.
_SINGULAR, _DEAD, _THIN, _SOUND = range(4)


class _Search(NamedTuple):
    """The best fit so far; `start` counts through the warm start, the spread one and the nested one."""

    start: Any
    best: EMResult
    soundness: Any
    origin: Any


def best_of_starts(
    X: Any,
    weight: Any,
    known: Mixture,
    anew: Any,
    blocks: tuple[Any, Any, Any],
    *,
    covariance_type: str,
    tol: Any,
    reg_covar: Any,
    max_iter: Any,
) -> tuple[EMResult, Any]:
    """Fit from the mixture before, from spread centres and from nested scales, and keep the best.

    A start from scratch replaces the warm one if its mean log likelihood is larger by more than `tol`, or if the
    warm one has a component of too few rows: less than one, or than determine a covariance of its own. That
    matters more than the likelihood, which a component around a single row would make as large as `reg_covar` lets it.

    Parameters
    ----------
    X : array of shape (n_features, n_rows)
        Centred; finite where weights are zero.
    weight : array of shape (n_rows,)
    known : Mixture
        Of the window before, about the same centre.
    anew : bool
        Whether there is none.
    blocks : tuple
        X, weight and the number of blocks, as `maximise` takes them.
    covariance_type : {"full", "tied", "diag", "spherical"}
    tol, reg_covar, max_iter : scalar

    Returns
    -------
    result : EMResult
        With components in the order of `known`, by the rows that they share.
    soundness : int
        0 if a covariance is singular, 1 if a component has less than one row.
    """
    n_features, n_components = len(X), len(known.weights)
    kind: dict[str, Any] = {"covariance_type": covariance_type}
    own_rows = {"full": n_features + 1, "tied": 1}.get(covariance_type, 2)
    # Kish's effective number: weights that fall off with age leave fewer rows than they have.
    n_effective = jnp.sum(weight) ** 2 / jnp.sum(weight**2)
    # One component is found from anywhere, and scales that differ are nothing to a tied covariance.
    n_starts = 1 if n_components == 1 else 2 if covariance_type == "tied" else 3

    def fit(search: _Search) -> _Search:
        spread = search.start == 1
        begin = _choose(
            spread,
            spread_start(X, weight, n_components=n_components, reg_covar=reg_covar, wanted=spread, **kind),
            known,
        )
        if n_starts == 3:
            nested = nested_start(X, weight, n_components=n_components, reg_covar=reg_covar, **kind)
            begin = _choose(search.start == 2, nested, begin)
        data, weights, n_blocks = blocks
        result = maximise(
            data, weights, begin, tol=tol, reg_covar=reg_covar, max_iter=max_iter, n_blocks=n_blocks, **kind
        )
        good = ~jnp.any(result.singular) & jnp.isfinite(result.log_likelihood)
        fewest = jnp.min(result.mixture.weights) * n_effective
        soundness = jnp.where(good, _DEAD + (fewest >= 1) + (fewest >= own_rows), _SINGULAR).astype(jnp.int32)
        likelier = result.log_likelihood > search.best.log_likelihood + tol
        better = (soundness > search.soundness) | ((soundness == search.soundness) & likelier)
        return _Search(
            search.start + 1,
            _choose(better, result, search.best),
            jnp.where(better, soundness, search.soundness),
            jnp.where(better, search.start, search.origin),
        )

    zero = jnp.zeros_like(weight[0])
    singular = jnp.ones(1 if covariance_type == "tied" else n_components, bool)
    nothing = EMResult(known, zero - jnp.inf, jnp.int32(0), jnp.zeros((), bool), singular)
    first = jnp.where(anew, 1, 0).astype(jnp.int32)
    last = first + 1 if n_starts == 1 else jnp.int32(n_starts)
    search = _Search(first, nothing, jnp.int32(-1), first)
    search = lax.while_loop(lambda search: search.start < last, fit, search)
    mixture = search.best.mixture
    if n_components == 1:
        return search.best, search.soundness

    def realign(_: Any, order: Any) -> Any:
        del order
        shared = overlap(*blocks[:2], known, mixture, n_blocks=blocks[2], **kind)
        return greedy_order(shared)

    # A loop of one step or none: lax.cond would compute both sides under vmap.
    renewed = jnp.where(anew | (search.origin == 0) | (search.soundness == _SINGULAR), 0, 1).astype(jnp.int32)
    order = lax.fori_loop(jnp.int32(0), renewed, realign, jnp.arange(n_components, dtype=jnp.int32))
    places = order[:, None] == np.arange(n_components)
    covariances = mixture.covariances if covariance_type == "tied" else _permuted(places, mixture.covariances)
    ordered = Mixture(_permuted(places, mixture.weights), _permuted(places, mixture.means), covariances)
    singular = search.best.singular if covariance_type == "tied" else jnp.any(places & search.best.singular, axis=1)
    return search.best._replace(mixture=ordered, singular=singular), search.soundness


def greedy_order(shared: Any) -> Any:
    """Return which new component takes the place of each old one: pairs that share the most rows come first.

    Parameters
    ----------
    shared : array of shape (n_components, n_components)
        Non-negative; old components along the first axis.

    Returns
    -------
    order : array of int32 of shape (n_components,)
    """
    k = shared.shape[0]

    def pair(_: Any, state: Any) -> Any:
        left, order = state
        at = lax.argmax(left.reshape(-1), 0, np.int32)
        old, new = np.arange(k) == at // k, np.arange(k) == at % k
        return jnp.where(old[:, None] | new, -1.0, left), jnp.where(old, at % k, order)

    return lax.fori_loop(0, k, pair, (shared, jnp.zeros(k, jnp.int32)))[1]


def _choose(condition: Any, one: Any, other: Any) -> Any:
    return jax.tree_util.tree_map(lambda a, b: jnp.where(condition, a, b), one, other)


def _permuted(places: Any, array: Any) -> Any:
    """Return ``array[order]`` for the matrix of a permutation; NaN stays where it belongs."""
    wide = places.reshape(places.shape + (1,) * (array.ndim - 1))
    return jnp.sum(jnp.where(wide, array[None], 0), axis=1)
