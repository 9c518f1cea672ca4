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
        beta = inverse @ products[:, :k, k:]
        rss = products[:, np.arange(k, c), np.arange(k, c)] - (beta * products[:, :k, k:]).sum(axis=1)
        if fit_intercept:
            lever = (inverse @ centre[:, :k, None])[:, :, 0]
            corner = 1 / exact.weight + (lever * centre[:, :k]).sum(axis=1)
            constant = centre[:, k:] - (beta * centre[:, :k, None]).sum(axis=1)
            beta = np.concatenate([constant[:, None], beta], axis=1)
            top = np.concatenate([corner[:, None], -lever], axis=1)
            inverse = np.concatenate([top[:, None], np.concatenate([-lever[:, :, None], inverse], axis=2)], axis=1)
    parts = origin, unit, inverse, beta, np.maximum(rss, 0), exact.weight, first, raw
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


def deviation(
    state: LaneState, end: Any, exact: RangeProducts, k: int, alpha: float, fit_intercept: bool
) -> np.ndarray:
    """Return how far each lane's end is from the exact solution there, relative to what coefficients can be.

    The same error of the cross products shows more in a window with a larger inverse, or with
    less variation of the target: the worst of the whole lane counts, not the last.

    Parameters
    ----------
    state : LaneState
        Where the lanes started.
    end : tuple of ndarray
        Inverse, coefficients and residual sums of squares at the end; the largest diagonal of
        the inverse and the least variation of the targets on the way.
    exact : RangeProducts
        Of the windows where the lanes ended.
    k, alpha, fit_intercept
        As in `exact_state`.
    """
    truth = exact_state(exact, k, alpha, fit_intercept, basis=(state.origin, state.unit))
    inverse, beta, rss, largest, least = end
    diagonal = np.einsum("jjn->jn", truth.inverse)
    growth = np.maximum((largest / diagonal).max(axis=0), 1)
    off, off_beta, off_rss = np.abs(inverse - truth.inverse), np.abs(beta - truth.beta), np.abs(rss - truth.rss)
    by_inverse = (off / np.sqrt(diagonal[:, None] * diagonal[None])).max(axis=(0, 1))
    by_beta = np.where(off_beta > 0, off_beta / np.sqrt(diagonal[:, None] * least[None]), 0).max(axis=(0, 1))
    by_rss = np.where(off_rss > 0, off_rss / least, 0).max(axis=0)
    return growth * np.maximum(np.maximum(by_inverse, by_beta), by_rss)
