"""The exact state of a lane, where it starts and where it ends."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from skjaxwin.kernels.ranges import RangeProducts

__all__ = ["LaneState", "deviation", "exact_state"]


class LaneState(NamedTuple):
    """The exact state of some windows, as lanes hold it; trailing axis lanes.

    Unknowns are the constant (if any) and the slopes of columns measured from `origin` in
    units of `unit`, a power of two.
    """

    origin: np.ndarray  # (c, lanes)
    unit: np.ndarray  # (c, lanes)
    inverse: np.ndarray  # (p, p, lanes)
    beta: np.ndarray  # (p, m, lanes)
    rss: np.ndarray  # (m, lanes)
    weight: np.ndarray  # (lanes,)
    first: np.ndarray  # (c, lanes): sums of the columns
    second: np.ndarray  # (c, lanes): and of their squares
    gram: np.ndarray  # (p, p, lanes): what `inverse` is the inverse of


def exact_state(
    exact: RangeProducts, k: int, alpha: float, fit_intercept: bool, basis: tuple[Any, Any] | None = None
) -> LaneState:
    """Solve exact cross products in a lane's unknowns.

    Parameters
    ----------
    exact : RangeProducts
    k : int
        How many of the columns are features.
    alpha : float
    fit_intercept : bool
    basis : tuple of ndarray of shape (c, n), default=None
        Origin and unit; None for the mean and the spread of each range itself.
    """
    c = exact.mean.shape[1]
    with np.errstate(all="ignore"):
        origin, unit = _own_basis(exact, fit_intercept) if basis is None else (part.T for part in basis)
        # What rounding took from the mean, at least: 1e-10 at an offset of a million.
        centre = ((exact.origin - origin) + exact.mean) / unit
        products = exact.products / (unit[:, :, None] * unit[:, None])
        first = exact.weight[:, None] * centre
        raw = products[:, np.arange(c), np.arange(c)] + first * centre
        if not fit_intercept:
            products = products + first[:, :, None] * centre[:, None]
        gram = products[:, :k, :k].copy()
        gram[:, np.arange(k), np.arange(k)] += alpha / unit[:, :k] ** 2
        inverse = _inverse(gram)
        shift = first[:, :k]
        beta = inverse @ products[:, :k, k:]
        rss = products[:, np.arange(k, c), np.arange(k, c)] - (beta * products[:, :k, k:]).sum(axis=1)
        if fit_intercept:
            lever = (inverse @ centre[:, :k, None])[:, :, 0]
            corner = 1 / exact.weight + (lever * centre[:, :k]).sum(axis=1)
            constant = centre[:, k:] - (beta * centre[:, :k, None]).sum(axis=1)
            beta = np.concatenate([constant[:, None], beta], axis=1)
            top = np.concatenate([corner[:, None], -lever], axis=1)
            inverse = np.concatenate([top[:, None], np.concatenate([-lever[:, :, None], inverse], axis=2)], axis=1)
            top = np.concatenate([exact.weight[:, None], shift], axis=1)
            gram = gram + shift[:, :, None] * centre[:, None, :k]
            gram = np.concatenate([top[:, None], np.concatenate([shift[:, :, None], gram], axis=2)], axis=1)
    parts = origin, unit, inverse, beta, np.maximum(rss, 0), exact.weight, first, raw, gram
    return LaneState(*(np.ascontiguousarray(np.moveaxis(part, 0, -1)) for part in parts))


def _own_basis(exact: RangeProducts, fit_intercept: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return an origin amid the data, if there is an intercept to take it up, and the spread as a power of two."""
    mean = exact.origin + exact.mean
    c = mean.shape[1]
    square = exact.products[:, np.arange(c), np.arange(c)] / exact.weight[:, None]
    if not fit_intercept:
        square = square + mean * mean
    spread = np.sqrt(square)
    unit = np.where((spread > 0) & np.isfinite(spread), np.exp2(np.round(np.log2(spread))), 1.0)
    return mean if fit_intercept else np.zeros_like(mean), unit


def _inverse(gram: np.ndarray) -> np.ndarray:
    """Invert symmetric matrices; NaN where one is singular."""
    finite = np.isfinite(gram).all(axis=(1, 2))
    gram = np.where(finite[:, None, None], gram, np.eye(gram.shape[1]))
    try:
        inverse = np.linalg.inv(gram)
    except np.linalg.LinAlgError:
        inverse = np.full_like(gram, np.nan)
        for i, one in enumerate(gram):
            if np.linalg.matrix_rank(one) == len(one):
                inverse[i] = np.linalg.inv(one)
    inverse = (inverse + inverse.transpose(0, 2, 1)) / 2
    return np.where(finite[:, None, None], inverse, np.nan)


def deviation(truth: LaneState, end: Any) -> np.ndarray:
    """Return how far each lane's end is from the exact solution there, relative to what coefficients can be.

    An error dG of the cross products G stays in a lane. What it does to a window with the inverse P
    is P dG, which is largest where P is: in the metric of the end it is seen as P_end dG, and in the
    window as that times, at most, the largest eigenvalue of P G_end.

    Parameters
    ----------
    truth : LaneState
        The exact state at the end, in the lanes' unknowns.
    end : tuple of ndarray
        Inverse, coefficients and residual sums of squares at the end; on the way, the largest trace
        of P G_end, the least variation of the targets, and the largest factor by which one step
        changed the inverse.
    """
    inverse, beta, rss, trace, least, jump = end
    p = len(inverse)
    # Between the largest eigenvalue if all others are one, and if all are equal.
    growth = np.maximum(np.sqrt(np.maximum(trace - (p - 1), 0) * trace / p), 1)
    gram = truth.gram
    off = np.einsum("ijn,jkn->ikn", inverse - truth.inverse, gram)
    # The root mean square of all p x p entries: rounding alone fills them all. An error along one direction
    # may so be p times larger; what it does to coefficients is held to the tolerance in `by_beta`.
    by_inverse = np.sqrt(np.maximum(np.einsum("ijn,jin->n", off, off), 0)) / p
    off_beta = beta - truth.beta
    squared = np.einsum("imn,ijn,jmn->mn", off_beta, gram, off_beta)
    by_beta = np.sqrt(np.where(squared > 0, squared / least, 0)).max(axis=0)
    off_rss = np.abs(rss - truth.rss)
    by_rss = np.where(off_rss > 0, off_rss / least, 0).max(axis=0)
    # A row that outweighs all others leaves rounding of its own size behind, squared.
    by_jump = np.finfo(np.float64).eps * jump**2
    return np.maximum(by_jump, growth * np.maximum(np.maximum(by_inverse, by_beta), by_rss))
