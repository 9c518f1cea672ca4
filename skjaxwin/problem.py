"""Rows and windows in time order: all that one call to fit has to solve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import column_or_1d

from skjaxwin import windows as win
from skjaxwin._sklearn_private import check_sample_weight
from skjaxwin.classification import encode
from skjaxwin.columns import known_clusters, split_columns
from skjaxwin.kernels import Rows
from skjaxwin.models import WindowModel

__all__ = ["Given", "Problem", "fewest_rows", "in_two_parts", "prepare", "validate_rows"]


@dataclass(frozen=True)
class Problem:
    """What one call to fit has to solve, in time order.

    Attributes
    ----------
    model : WindowModel
    rows : Rows
        The rows that count.
    windows : Windows
        Their bounds among these rows.
    timeline : Timeline
    kept : ndarray or None
        Positions, among all rows in time order, of those that count; None if all do.
    X : ndarray of shape (n_rows, n_features)
        Features in the caller's order.
    times : ndarray of shape (n_rows,)
        Times in the caller's order.
    target_is_column : bool
        Whether y had the shape (n_rows, 1).
    classes : ndarray of shape (n_classes,) or None
        What the numbers of the target stand for.
    clusters : ndarray of shape (n_rows,) or None
        Equal for rows that belong together, in time order.
    exposures : ndarray of shape (n_rows,) or None
        By which predictions of a row are multiplied, in the caller's order.
    """

    model: WindowModel
    rows: Rows
    windows: win.Windows
    timeline: win.Timeline
    kept: np.ndarray | None
    X: np.ndarray
    times: np.ndarray
    target_is_column: bool
    classes: np.ndarray | None
    clusters: np.ndarray | None
    exposures: np.ndarray | None


@dataclass(frozen=True)
class Given:
    """Rows as they were passed, validated, in the caller's order.

    Attributes
    ----------
    features : ndarray of shape (n_rows, n_features)
    target : ndarray of shape (n_rows,) or (n_rows, n_outputs), or None
    target_is_column : bool
        Whether it had the shape (n_rows, 1).
    weight : ndarray of shape (n_rows,)
    positive, counted : ndarray of bool of shape (n_rows,)
        Which rows have a weight, and which of these are not skipped.
    times, clusters : ndarray of shape (n_rows,) or None
    classes : ndarray of shape (n_classes,) or None
    exposures : ndarray of shape (n_rows,) or None
        By which the target has been divided, and the weight multiplied.
    """

    features: np.ndarray
    target: np.ndarray | None
    target_is_column: bool
    weight: np.ndarray
    positive: np.ndarray
    counted: np.ndarray
    times: np.ndarray | None
    clusters: np.ndarray | None
    classes: np.ndarray | None
    exposures: np.ndarray | None


def validate_rows(
    estimator: Any, model: WindowModel, X: Any, y: Any, sample_weight: Any, *, classes: Any = None, reset: bool = True
) -> Given:
    """Validate rows to fit.

    Parameters
    ----------
    estimator : RollingJaxEstimator
        Whose parameters say what the columns are; gets ``n_features_in_`` if `reset`, else it is checked.
    model : WindowModel
    X, y, sample_weight
        As in `RollingJaxEstimator.fit`.
    classes : array-like or None
        All labels there may be; None for those in y.
    reset : bool
        Whether these are the first rows.
    """
    skip = estimator.missing == "skip"
    try:
        if model.estimator_type == "classifier" and y is not None:
            classes, y = encode(X, y, missing=skip, classes=classes)
        elif y is not None and model.target != "ignored" and not model.multi_output:
            y = column_or_1d(y, warn=True)
        columns = split_columns(estimator, X, y, reset=reset, supervised=_uses_target(model, y), missing=skip)
    except ValueError as error:
        if not skip and ("Input X contains NaN" in str(error) or "Input y contains NaN" in str(error)):
            raise ValueError(f'missing="raise": {error}\nSet missing="skip" to leave such rows out.') from error
        raise
    features, target, times, clusters, exposures = columns
    n_rows = len(features)
    if target is not None:
        model.check_target(target)
    if sample_weight is None:
        weight, positive = np.ones(n_rows, features.dtype), np.ones(n_rows, bool)
    else:
        # Later rows may be without weight.
        weight = check_sample_weight(
            sample_weight, features, dtype=features.dtype, ensure_non_negative=True, allow_all_zero_weights=True
        )
        positive = weight > 0
        _check_weights(weight, positive)
    counted = positive & _known(features, target, exposures) if skip else positive
    if clusters is not None:
        clusters, known = known_clusters(clusters, estimator.cluster, skip)
        counted = counted & known
    if exposures is not None:
        if not model.takes_exposure:
            raise ValueError(
                f"exposure={estimator.exposure!r} is for models.Poisson; {type(model).__name__} takes none. Set "
                "exposure=None."
            )
        # The likelihood of counts with an offset of log(exposure) is that of rates with these weights.
        with np.errstate(invalid="ignore"):
            target, weight = target / exposures, np.where(counted, weight * exposures, weight)
        _check_weights(weight, counted)
    is_column = target is not None and target.ndim == 2 and target.shape[1] == 1
    squeezed = None if target is None else _squeeze(target)
    return Given(features, squeezed, is_column, weight, positive, counted, times, clusters, classes, exposures)


def prepare(estimator: Any, model: WindowModel, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> Problem:
    """Validate everything and lay rows and windows out in time order; `classes` as in `validate_rows`."""
    estimator._validate_params()
    model = clone(model)
    model._validate_params()
    given = validate_rows(estimator, model, X, y, sample_weight, classes=classes)
    features, times, clusters = given.features, given.times, given.clusters
    n_rows = len(features)
    if not given.positive.any():
        raise ValueError("Sample weights must contain at least one non-zero number: all weights are zero.")
    if estimator.capacity is not None and estimator.capacity < n_rows:
        raise ValueError(
            f"capacity={estimator.capacity} is smaller than the data, which has {n_rows} rows; "
            "raise it or leave it None."
        )
    complete = win.make_timeline(times, n_rows)
    # Rows without weight are as good as absent; rows that are skipped leave their time stamps.
    timeline = complete if given.positive.all() else complete.keep(given.positive)
    counted = given.counted
    if estimator.missing == "skip":
        if not counted.any():
            raise ValueError('missing="skip": no row is left, each has a missing value in X or y.')
        if not counted.all():
            timeline = timeline.skip(counted)
    min_periods, why = fewest_rows(estimator, model, features.shape[1])
    windows = win.make_windows(timeline, window=estimator.window, step=estimator.step, min_periods=min_periods, why=why)
    age = None
    if estimator.halflife is not None:
        age = in_two_parts(win.ages_in_halflives(timeline, estimator.halflife), features.dtype)
    rows = Rows(features, given.target, given.weight, None)
    if times is not None or len(timeline.order) < n_rows:  # else rows are in order already
        rows = Rows(*(None if part is None else part[timeline.order] for part in rows))
        clusters = None if clusters is None else clusters[timeline.order]
    kept = None if counted.all() else np.flatnonzero(counted[complete.order])
    return Problem(
        model,
        rows._replace(age=age),
        windows,
        timeline,
        kept,
        features,
        complete.stamps if times is None else times,
        given.target_is_column,
        given.classes,
        clusters,
        given.exposures,
    )


def fewest_rows(estimator: Any, model: WindowModel, n_features: int) -> tuple[int, str]:
    """Return how many rows a window needs, and who says so, for messages."""
    if estimator.min_periods:
        return int(estimator.min_periods), ""
    return model.min_rows(n_features), f" (what {type(model).__name__} needs)"


def in_two_parts(exact: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return numbers in the working precision, and the rest that this leaves, side by side."""
    high = exact.astype(dtype)
    return np.column_stack([high, (exact - high).astype(dtype)])


def _check_weights(weight: np.ndarray, positive: np.ndarray) -> None:
    """Refuse weights whose products leave the range."""
    if not positive.any():
        return
    limits = np.finfo(weight.dtype)
    if weight.max() > float(limits.max) ** 0.9 or weight[positive].min() < float(limits.tiny) ** 0.9:
        raise ValueError(
            f"sample_weight holds values from {weight[positive].min()} to {weight.max()}, whose products leave the "
            f"range of {weight.dtype}; rescale the weights."
        )


def _known(features: np.ndarray, *others: np.ndarray | None) -> np.ndarray:
    """Say which rows have no missing value."""
    known = ~np.isnan(features).any(axis=1)
    for other in others:
        if other is not None:
            known &= ~np.isnan(other.reshape(len(other), -1)).any(axis=1)
    return known


def _uses_target(model: WindowModel, y: Any) -> bool:
    return model.target == "required" or (model.target == "optional" and y is not None)


def _squeeze(target: np.ndarray) -> np.ndarray:
    """One target is (n_rows,) to every model, however it was passed."""
    return target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
