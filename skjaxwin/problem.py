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
from skjaxwin.columns import split_time
from skjaxwin.kernels import Rows
from skjaxwin.models import WindowModel

__all__ = ["Problem", "prepare"]


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
    clusters : ndarray of int of shape (n_rows,) or None
        Which of the rows belong together, in time order.
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


def prepare(estimator: Any, model: WindowModel, X: Any, y: Any, sample_weight: Any) -> Problem:
    """Validate everything and lay rows and windows out in time order."""
    estimator._validate_params()
    model = clone(model)
    model._validate_params()
    skip = estimator.missing == "skip"
    classes = None
    try:
        if model.estimator_type == "classifier" and y is not None:
            classes, y = encode(X, y, missing=skip)
        elif y is not None and model.target != "ignored" and not model.multi_output:
            y = column_or_1d(y, warn=True)
        features, target, times, clusters = split_time(
            estimator,
            X,
            y,
            time=estimator.time,
            cluster=estimator.cluster,
            reset=True,
            supervised=_uses_target(model, y),
            missing=skip,
        )
    except ValueError as error:
        if not skip and ("Input X contains NaN" in str(error) or "Input y contains NaN" in str(error)):
            raise ValueError(f'missing="raise": {error}\nSet missing="skip" to leave such rows out.') from error
        raise
    n_rows = len(features)
    if target is not None:
        model.check_target(target)
    if sample_weight is None:
        weight, positive = np.ones(n_rows, features.dtype), np.ones(n_rows, bool)
    else:
        weight = check_sample_weight(sample_weight, features, dtype=features.dtype, ensure_non_negative=True)
        positive = weight > 0
        _check_weights(weight, positive)
    if estimator.capacity is not None and estimator.capacity < n_rows:
        raise ValueError(
            f"capacity={estimator.capacity} is smaller than the data, which has {n_rows} rows; "
            "raise it or leave it None."
        )
    complete = win.make_timeline(times, n_rows)
    # Rows without weight are as good as absent; rows that are skipped leave their time stamps.
    timeline = complete if positive.all() else complete.keep(positive)
    counted = positive
    if skip:
        counted = positive & _known(features, target)
        if not counted.any():
            raise ValueError('missing="skip": no row is left, each has a missing value in X or y.')
        if not counted.all():
            timeline = timeline.skip(counted)
    min_periods = estimator.min_periods or model.min_rows(features.shape[1])
    why = "" if estimator.min_periods else f" (what {type(model).__name__} needs)"
    windows = win.make_windows(timeline, window=estimator.window, step=estimator.step, min_periods=min_periods, why=why)
    age = None
    if estimator.halflife is not None:
        exact = win.ages_in_halflives(timeline, estimator.halflife)
        high = exact.astype(features.dtype)
        age = np.column_stack([high, (exact - high).astype(features.dtype)])
    rows = Rows(features, None if target is None else _squeeze(target), weight, None)
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
        target is not None and target.ndim == 2 and target.shape[1] == 1,
        classes,
        clusters,
    )


def _check_weights(weight: np.ndarray, positive: np.ndarray) -> None:
    """Refuse weights that are all zero, or whose products leave the range."""
    if not positive.any():
        raise ValueError("Sample weights must contain at least one non-zero value: all weights are zero.")
    limits = np.finfo(weight.dtype)
    if weight.max() > float(limits.max) ** 0.9 or weight[positive].min() < float(limits.tiny) ** 0.9:
        raise ValueError(
            f"sample_weight holds values from {weight[positive].min()} to {weight.max()}, whose products leave the "
            f"range of {weight.dtype}; rescale the weights."
        )


def _known(features: np.ndarray, target: np.ndarray | None) -> np.ndarray:
    """Say which rows have no missing value."""
    known = ~np.isnan(features).any(axis=1)
    if target is not None:
        known &= ~np.isnan(target.reshape(len(target), -1)).any(axis=1)
    return known


def _uses_target(model: WindowModel, y: Any) -> bool:
    return model.target == "required" or (model.target == "optional" and y is not None)


def _squeeze(target: np.ndarray) -> np.ndarray:
    """One target is (n_rows,) to every model, however it was passed."""
    return target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
