"""Walk-forward scores of candidates, and the choice that was best at each time, from what was known then."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import metrics

from skjaxwin import windows as win
from skjaxwin.fold_scores import Loss, Predicted, checked, loss_of, parts_of
from skjaxwin.rolling import RollingJaxEstimator
from skjaxwin.search import Walked, group_key, walk_group

__all__ = ["OutOfSample", "Path", "choose_path", "common_rows", "loss_by_row", "walk_candidates"]


class OutOfSample(RollingJaxEstimator):
    """A fitted estimator whose predictions, of any rows of the right number, are those it made out of sample."""

    _raw: np.ndarray

    @classmethod
    def of(cls, walked: Walked, raw: np.ndarray) -> OutOfSample:
        """Return the estimator with certain predictions."""
        fitted = cls(**walked.estimator.get_params(deep=False))
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(walked.estimator, name):
                setattr(fitted, name, getattr(walked.estimator, name))
        fitted._store(walked.problem, walked.params, walked.info)
        fitted._raw = raw
        return fitted

    def _raw_predict(self, X: Any) -> np.ndarray:
        del X
        return self._raw


def walk_candidates(
    estimators: list[RollingJaxEstimator],
    candidates: list[dict[str, Any]],
    X: Any,
    y: Any,
    sample_weight: Any,
    *,
    error_score: Any,
) -> list[Walked | str]:
    """Fit every window for every candidate and predict every row out of sample.

    Parameters
    ----------
    estimators : list of RollingJaxEstimator
        One for each candidate.
    candidates : list of dict
        What was set in each.
    X, y, sample_weight
        All rows.
    error_score : "raise" or float
        Whether the first error is raised.

    Returns
    -------
    outcomes : list of Walked or str
        A traceback where a fit is impossible.
    """
    outcomes: list[Walked | str] = [""] * len(estimators)
    groups: dict[Any, list[int]] = {}
    for i, estimator in enumerate(estimators):
        try:
            estimator._model()._validate_params()
            groups.setdefault(group_key(estimator, candidates[i]), []).append(i)
        except Exception:
            if error_score == "raise":
                raise
            outcomes[i] = traceback.format_exc()
    for members in groups.values():
        found: list[Any]
        try:
            found = walk_group([estimators[i] for i in members], X, y, sample_weight)
            if not np.isfinite(found[0].raw).any() and len(estimators) > len(members):
                raise ValueError(
                    "cv=None: no row is predicted from earlier rows; pass more rows, lower min_periods or gap, or "
                    "pass cv."
                )
            for one in found[1:]:  # only the first has seen the columns of X
                one.estimator.__dict__.update(
                    {name: value for name, value in found[0].estimator.__dict__.items() if name.endswith("_in_")}
                )
        except Exception:
            if error_score == "raise":
                raise
            found = [traceback.format_exc()] * len(members)
        for i, one in zip(members, found, strict=True):
            outcomes[i] = one
    return outcomes


def common_rows(walked: list[Walked], y: np.ndarray) -> np.ndarray:
    """Return the rows that every candidate predicts and whose target is known, so that all are scored on the same.

    Raises
    ------
    ValueError
        If there is no such row.
    """
    known = np.ones(len(y), bool)
    for one in walked:
        known &= np.isfinite(one.raw.reshape(len(y), -1)).all(axis=1)
    if y.dtype.kind == "f":
        known &= np.isfinite(y.reshape(len(y), -1)).all(axis=1)
    elif y.dtype.kind == "O":
        known &= np.array([not win.is_missing(value) for value in y])
    if not known.any():
        raise ValueError(
            "cv=None: no row is predicted by every candidate from earlier rows; pass more rows, lower min_periods or "
            "gap, or pass cv."
        )
    return np.flatnonzero(known)


@dataclass(frozen=True)
class Path:
    """Which candidate was best at each time.

    Attributes
    ----------
    choice : ndarray of int of shape (n_windows,)
        Candidates, one for each time at which any candidate has a window that ends.
    times : ndarray of shape (n_windows,)
        These times.
    candidate_of_row : ndarray of int of shape (n_rows,)
        Who predicts each row; -1 where nobody does.
    """

    choice: np.ndarray
    times: np.ndarray
    candidate_of_row: np.ndarray


def choose_path(
    walked: list[Walked | str], y: np.ndarray, rows: np.ndarray, weight: np.ndarray | None, scorer: Any, lookback: Any
) -> Path:
    """Choose, at the end of every window, the candidate whose predictions up to then were best.

    Parameters
    ----------
    walked : list of Walked or str
        One for each candidate; those that failed are never chosen.
    y : ndarray of shape (n_rows,) or (n_rows, n_outputs)
    rows : ndarray of int
        Which rows count: see `common_rows`.
    weight : ndarray of shape (n_rows,) or None
        Of the rows in the scores.
    scorer : scorer of scikit-learn
    lookback : None, int, float, timedelta or str
        How far scores reach back, as a `window` does; None for all of the past.

    Raises
    ------
    ValueError
        If the scorer is no mean over rows, or cannot be had for these targets; if candidates have other times.
    """
    able = [i for i, one in enumerate(walked) if isinstance(one, Walked)]
    fitted = [one for one in walked if isinstance(one, Walked)]
    first = fitted[0]
    kind = str(first.estimator._model().estimator_type)
    loss, sign, options = loss_by_row(scorer, kind)
    score_of = parts_of(scorer, kind)[0]
    raw = np.stack([one.raw[rows] for one in fitted])
    given = checked(loss, y[rows], Predicted(raw, first.problem.classes, first.estimator._model()))
    if given is None:
        raise ValueError(f"selection='per_window': {scorer!r} is not defined for these targets and predictions.")
    losses = loss(*given, **options)
    losses = losses.reshape(*losses.shape[:2], -1)  # (n_candidates, n_rows, n_outputs)

    stamps, times = first.problem.timeline.stamps, first.problem.times
    if not all(np.array_equal(one.problem.timeline.stamps, stamps) for one in fitted):
        raise ValueError("selection='per_window': candidates must have the same time stamps; leave `time` as it is.")
    code = np.searchsorted(stamps, times[rows])
    counted = (code < len(stamps)) & (stamps[np.minimum(code, len(stamps) - 1)] == times[rows])  # else of weight 0
    own = np.where(counted, 1.0 if weight is None else np.asarray(weight, float)[rows], 0.0)
    code = np.where(counted, code, 0)

    def by_stamp(values: np.ndarray) -> np.ndarray:
        return np.stack([np.bincount(code, own * one, len(stamps)) for one in values])

    ends = np.unique(np.concatenate([one.problem.windows.last_stamps for one in fitted]))
    every_stamp = win.Timeline(np.arange(len(stamps)), stamps, np.arange(len(stamps)))
    past = win.make_windows(every_stamp, window="expanding" if lookback is None else lookback)
    reach = past.starts[ends], past.stops[ends]
    total = _sums_over(by_stamp(np.ones((1, len(rows)))), *reach)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = [_sums_over(by_stamp(one.T), *reach) / total for one in losses]  # each (n_outputs, n_windows)
        if losses.shape[2] > 1 and score_of is metrics.r2_score:
            # Measured from the oldest row, which keeps digits and knows nothing of later ones.
            target = given[0] - given[0][np.argmin(np.where(counted, code, len(stamps)))]
            moments = [_sums_over(by_stamp(one), *reach) / total for one in (target.T, (target**2).T)]
            mean = [_of_spread(one, *moments) for one in mean]
        if score_of is metrics.root_mean_squared_error:
            mean = [np.sqrt(one) for one in mean]
        score = np.where(total > 0, [sign * one.mean(axis=0) for one in mean], 0)
    choice = np.asarray(able)[np.argmax(score, axis=0)]
    gap = max(int(one.estimator.gap) for one in fitted)
    end = win.newest_window_before(times, stamps, ends, gap)
    return Path(choice, stamps[ends], np.where(end >= 0, choice[end], -1))


def loss_by_row(scorer: Any, kind: str) -> tuple[Loss, float, dict[str, Any]]:
    """Return what `loss_of` does; scores of any number of rows can be had from it.

    Raises
    ------
    ValueError
        For other scorers.
    """
    found = loss_of(scorer, kind)
    if found is None:
        raise ValueError(
            "selection='per_window' needs scoring to be a mean over rows (squared, absolute or pinball errors, Poisson "
            f"deviance, log loss, accuracy) or R2, got {scorer!r}."
        )
    return found


def _of_spread(errors: np.ndarray, mean: np.ndarray, square: np.ndarray) -> np.ndarray:
    """Divide mean squared errors by the target's variance; where it does not vary, wrong is 1 and right is 0."""
    spread = square - mean**2
    return np.where(spread > 8 * np.finfo(float).eps * square, errors / spread, errors > 0)


def _sums_over(values: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Sum ranges along the second axis, without subtracting: what has left a range leaves no trace.

    Parameters
    ----------
    values : ndarray of shape (m, n)
    starts, stops : ndarray of shape (n_ranges,)
        None empty.
    """
    if not starts.any():
        return np.cumsum(values, axis=1)[:, stops - 1]
    padded = np.concatenate([values, np.zeros((len(values), 1))], axis=1)  # a stop may be the end
    return np.add.reduceat(padded, np.column_stack([starts, stops]).ravel(), axis=1)[:, ::2]
