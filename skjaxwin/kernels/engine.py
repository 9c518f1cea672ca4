"""Which way each window is fitted: from its rows, from merged statistics, or in lanes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from skjaxwin.kernels.additive import fit_additive
from skjaxwin.kernels.lanes import LaneFit, fit_lanes, lanes_at_once
from skjaxwin.kernels.rolling_sums import fit_rolling_sums
from skjaxwin.kernels.running import Running
from skjaxwin.kernels.scan import Rows, refit_windows
from skjaxwin.kernels.shapes import bucket

__all__ = ["fit_windows", "join_candidates"]

# Below so many rows in all windows together, passes over them cost less than another compile.
_FEW_ROWS = 2**20
# A lane must not start where hardly more rows than unknowns make the inverse large.
_ROWS_PER_UNKNOWN = 2.5
_FIRST_ROWS = 48
_MAX_FEATURES = 128
_MIN_WINDOWS = 256
_FEW_FEATURES = 4
_MANY_CANDIDATES = 8
_FEW_REFIT = 4096
# A pass over so many rows costs less than the compile that statistics which go on would need.
_FEW_RUNNING = 1024
# Of the roots of the residual and the total sum of squares.
_CLOSE_FIT = 3e-3


def fit_windows(
    model: Any,
    hyper: dict[str, np.ndarray],
    rows: Rows,
    starts: np.ndarray,
    stops: np.ndarray,
    *,
    max_rows: int | None,
    capacity: int,
    max_memory: float,
    algorithm: str = "auto",
    errors: bool = False,
    start: Any = None,
    running: Running | None = None,
) -> tuple[Any, Any, Any]:
    """Fit a model on every window for every hyperparameter.

    Parameters
    ----------
    model : WindowModel
        What to fit.
    hyper : dict of ndarray of shape (n_candidates, ...)
        The traced hyperparameters.
    rows : Rows
        The data in time order, all floats of one dtype.
    starts, stops : ndarray of shape (n_windows,)
        Half-open row bounds, both ascending; every window has a row.
    max_rows : int or None
        A bound on the rows of one window; None for expanding windows.
    capacity : int
        Rows are padded to this many.
    max_memory : float
        Bytes of temporary memory.
    algorithm : {"auto", "exact", "refit"}
        "refit" goes over the rows of each window, "exact" merges statistics, "auto"
        chooses, and takes lanes where windows advance row by row.
    errors : bool
        Whether to return what standard errors are made of, where the model has it.
    start : pytree of ndarray, default=None
        The parameters from which the first window starts; None for the model's `initial` ones.
    running : Running, default=None
        Statistics of all rows before the first window ends, if windows are expanding and there is one candidate: what
        would be merged anew is taken from there, and `running` goes on to the end of the rows.

    Returns
    -------
    params : pytree of ndarray
        Leading axes (n_windows, n_candidates).
    info : FitInfo of ndarray of shape (n_windows, n_candidates)
    parts : dict of ndarray or None
        What the model's ``error_parts`` returns; NaN for windows that were fitted from their rows.
    """
    if model.double:
        rows = _double(rows)
    can_refit = model.has_fit or model.shares_statistics
    width = capacity if max_rows is None else min(max_rows, capacity)
    few = len(starts) * min(width, len(rows.X)) <= _FEW_ROWS and model.has_fit
    if running is not None:
        few &= capacity <= _FEW_RUNNING
    if not model.merges or (can_refit and (algorithm == "refit" or (algorithm == "auto" and few))):
        return *_refit(model, hyper, rows, starts, stops, max_rows, capacity, max_memory, start), None

    dtype = rows.X.dtype
    double = _double(rows)
    if running is not None:
        result = _go_on(model, hyper, double, stops, running, errors)
    else:
        result = _from_statistics(model, hyper, double, starts, stops, capacity, max_memory, algorithm, errors)
    params, info, parts = result
    bad = _untrusted(model, info, parts)
    if can_refit and bad.any():
        pick = np.flatnonzero(bad)
        longest = int((stops[pick] - starts[pick]).max())
        # From double precision, too: these are the windows that need it.
        again, its_info = _refit(model, hyper, double, starts[pick], stops[pick], longest, capacity, max_memory)
        params = _overwrite(params, again, pick)
        info = _overwrite(_like(info, its_info), its_info, pick)
        if parts is not None:
            for part in parts.values():
                part[pick] = np.nan
    params, info = _in_dtype((params, info), dtype)
    return params, info, parts


def _double(rows: Rows) -> Rows:
    return Rows(*(None if part is None else part.astype(np.float64, copy=False) for part in rows))


def _refit(
    model: Any,
    hyper: dict[str, np.ndarray],
    rows: Rows,
    starts: np.ndarray,
    stops: np.ndarray,
    max_rows: int | None,
    capacity: int,
    max_memory: float,
    start: Any = None,
) -> Any:
    """Fit windows from their rows; a few of them, most often the first ones, without padding all others."""
    low, high = int(starts[0]), int(stops[-1])
    if high - low <= min(_FEW_REFIT, len(rows.X) // 2):
        capacity = bucket(high - low)
        rows = Rows(*(None if part is None else part[low:high] for part in rows))
        starts, stops = starts - low, stops - low
    return refit_windows(
        model, hyper, rows, starts, stops, max_rows=max_rows, capacity=capacity, max_memory=max_memory, start=start
    )


def _go_on(
    model: Any, hyper: dict[str, np.ndarray], rows: Rows, stops: np.ndarray, running: Running, errors: bool
) -> Any:
    """Fit expanding windows from statistics that go on."""
    if not model.shares_statistics:
        rows = rows._replace(X=model.prepare(rows.X, {name: values[0] for name, values in hyper.items()}))
    return running.fit(model, hyper, rows, stops, errors=errors)


def _from_statistics(
    model: Any,
    hyper: dict[str, np.ndarray],
    rows: Rows,
    starts: np.ndarray,
    stops: np.ndarray,
    capacity: int,
    max_memory: float,
    algorithm: str,
    errors: bool,
) -> Any:
    """Fit by merged statistics, in lanes where that can be done."""
    options: dict[str, Any] = {"capacity": capacity, "max_memory": max_memory, "errors": errors}
    if not model.shares_statistics:
        return _one_by_one(model, hyper, rows, starts, stops, algorithm, options)
    # A grid for few features is solved faster from shared statistics than it goes through lanes.
    shared = rows.X.shape[1] <= _FEW_FEATURES and len(next(iter(hyper.values()), [None])) >= _MANY_CANDIDATES
    lanes = algorithm == "auto" and not shared
    first = _first_lane_window(model, rows, starts, stops, max_memory) if lanes else None
    if first is None:
        return fit_additive(model, hyper, rows, starts, stops, **options)
    weight = None if bool((rows.weight == 1).all()) else rows.weight
    target = rows.y if rows.y.ndim == 2 else rows.y[:, None]
    fit = fit_lanes(
        rows.X,
        target,
        weight,
        starts,
        stops,
        first=first,
        alphas=hyper["alpha"],
        fit_intercept=bool(model.fit_intercept),
        errors=errors,
        max_memory=max_memory,
    )
    return _with_the_rest(model, hyper, rows, starts, stops, first, fit, options)


def _one_by_one(
    model: Any,
    hyper: dict[str, np.ndarray],
    rows: Rows,
    starts: np.ndarray,
    stops: np.ndarray,
    algorithm: str,
    options: dict[str, Any],
) -> Any:
    """Fit each candidate with statistics of its own."""
    results = []
    sums = algorithm == "auto" and rows.age is None and bool((rows.weight == 1).all())
    for i in range(len(next(iter(hyper.values())))):
        one = {name: values[i : i + 1] for name, values in hyper.items()}
        numbers = {name: values[0] for name, values in one.items()}
        X = model.prepare(rows.X, numbers)
        found = fit_rolling_sums(model, numbers, X, starts, stops, max_memory=options["max_memory"]) if sums else None
        params, info, bad = found or (None, None, np.ones(len(stops), bool))
        if bad.any():
            exact = fit_additive(model, one, rows._replace(X=X), starts[bad], stops[bad], **options)
            params, info = exact[:2] if found is None else _overwrite((params, info), exact[:2], bad)
        results.append((params, info, None))
    return join_candidates(results)


def join_candidates(results: list[Any]) -> Any:
    """Put pytrees of arrays together along the second axis, that of candidates."""
    if len(results) == 1:
        return results[0]
    return jax.tree_util.tree_map(lambda *parts: np.concatenate(parts, axis=1), *results)


def _first_lane_window(model: Any, rows: Rows, starts: np.ndarray, stops: np.ndarray, max_memory: float) -> int | None:
    """Return the first window from which on lanes can go, None if they cannot."""
    if not model.is_least_squares or rows.age is not None or rows.X.shape[1] > _MAX_FEATURES:
        return None
    if len(starts) > 1 and (np.diff(starts).max() > 1 or np.diff(stops).max() > 1):
        return None
    if not lanes_at_once(rows.X.shape[1], 1 if rows.y.ndim == 1 else rows.y.shape[1], max_memory):
        return None
    enough = stops - starts >= max(_ROWS_PER_UNKNOWN * (rows.X.shape[1] + 1), _FIRST_ROWS)
    first = int(np.argmax(enough))
    return first if enough[first] and len(starts) - first > _MIN_WINDOWS else None


def _with_the_rest(
    model: Any,
    hyper: dict[str, np.ndarray],
    rows: Rows,
    starts: np.ndarray,
    stops: np.ndarray,
    first: int,
    fit: LaneFit,
    options: dict[str, Any],
) -> Any:
    """Complete what lanes could fit: other lanes by merges, and the first windows from their rows."""
    coef, intercept = fit.coef, fit.intercept
    if rows.y.ndim == 1:
        coef, intercept = coef[:, :, 0], intercept[:, :, 0]
    params = {"coef": coef, "intercept": intercept}
    info, parts = model.solved(fit.condition), fit.parts
    missed = first + np.flatnonzero(~fit.good[first:].all(axis=1))
    if len(missed):
        exact = fit_additive(model, hyper, rows, starts[missed], stops[missed], **options)
        params, info, parts = _overwrite((params, info, parts), exact, missed)
    return params, info, parts


def _untrusted(model: Any, info: Any, parts: Any) -> np.ndarray:
    """Say of which windows some candidate's statistics have lost too many digits."""
    if model.max_condition is None or info.condition is None:
        return np.zeros(0, bool)
    bad = ~(info.condition <= model.max_condition)
    if parts is not None:
        # Residuals as the small difference of large sums.
        close = parts["rss"] < _CLOSE_FIT * parts["tss"]
        bad |= close.reshape(*bad.shape, -1).any(axis=-1)
    return bad.any(axis=1)


def _in_dtype(tree: Any, dtype: np.dtype) -> Any:
    with np.errstate(over="ignore"):  # a result that does not fit is infinite, as in any arithmetic
        return jax.tree_util.tree_map(lambda a: a.astype(dtype, copy=False) if a.dtype.kind == "f" else a, tree)


def _overwrite(whole: Any, part: Any, pick: np.ndarray) -> Any:
    """Put the results of some windows among those of all."""

    def put(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a[pick] = b
        return a

    return jax.tree_util.tree_map(put, whole, part)


def _like(info: Any, other: Any) -> Any:
    """Give an info the fields that another has: a fit from statistics is determined, and takes one step."""
    known = {}
    for name in info._fields:
        mine, its = getattr(info, name), getattr(other, name)
        if mine is None and its is not None:
            shape = info.condition.shape
            mine = np.ones(shape, its.dtype)
        known[name] = mine
    return info._replace(**known)
