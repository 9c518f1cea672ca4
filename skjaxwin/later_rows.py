"""partial_fit: windows of later rows, added to those of a fit."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
from sklearn.base import clone

from skjaxwin.history import Extension, History
from skjaxwin.inference import found_errors
from skjaxwin.kernels import all_finite, fit_windows, map_params
from skjaxwin.problem import Problem, validate_rows
from skjaxwin.spare_room import Room
from skjaxwin.window_results import OF_WINDOWS, show_newest, windows_found

__all__ = ["FitsLaterRows"]


class FitsLaterRows:
    """What a RollingJaxEstimator does with rows that come later."""

    _history: History
    _room: Room

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, classes: Any = None) -> Any:
        """Append later rows, and fit the windows that end with them.

        The result is that of a new fit to all rows so far. Windows that were there already are not fitted again,
        except those that are another now: the one that ends at the newest time, if rows of the same time come, and
        with ``step > 1`` the newest one, where it was there for being the newest only. The first call is a `fit`.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)
            With the columns of the rows so far. No row may be earlier than the newest of those; without a time column
            rows are later by definition.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None
            Target; ignored by unsupervised models.
        sample_weight : array-like of shape (n_rows,), default=None
            Non-negative weights.
        classes : array-like of shape (n_classes,), default=None
            For classifiers, in the first call: all labels there may be; None for those of the first rows. May be
            left out, or repeated, in later calls.

        Returns
        -------
        self : RollingJaxEstimator

        Raises
        ------
        ValueError
            If rows are earlier than known ones, labels are not known, or parameters have changed; for bad data,
            naming them. Nothing has changed then.

        Notes
        -----
        Rows are padded to a capacity that doubles when it is full, so a stream of n rows compiles some ``log2(n)``
        kernels. A new window costs a pass over its rows, or over as many as the capacity if windows expand. Additive
        models spare that pass in expanding windows: statistics of all rows go on from row to row (unless
        ``algorithm="refit"``, and under "auto" from a capacity of more than 1024 rows on).

        Fitted attributes grow within memory that doubles when it is full. Arrays taken from them before are never
        written to, so where windows are fitted again their arrays are copied.

        Examples
        --------
        >>> import numpy as np
        >>> from skjaxwin import RollingJaxEstimator, count_compiles
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(120, 2))
        >>> y = X @ [1.0, -2.0] + rng.normal(size=120)
        >>> rolling = RollingJaxEstimator(window=50).fit(X[:100], y[:100])
        >>> with count_compiles() as compiles:
        ...     for row in range(100, 120):
        ...         rolling = rolling.partial_fit(X[[row]], y[[row]])
        >>> whole = RollingJaxEstimator(window=50).fit(X, y)
        >>> compiles.count, bool(np.allclose(rolling.params_["coef"], whole.params_["coef"], rtol=1e-10))
        (0, True)
        """
        estimator: Any = self
        if classes is not None and estimator._model().estimator_type != "classifier":
            raise ValueError(f"classes={classes!r} is for classifiers, and {estimator._model()} is none; leave it out.")
        if not hasattr(self, "_history"):
            estimator._fit(X, y, sample_weight, classes)
            return self
        extension = self._extended(X, y, sample_weight, classes)
        # All that can fail comes first: then nothing has changed.
        new = self._fit_later(extension) if len(extension.problem.windows.stops) else {}
        self._put(extension.n_kept, new)
        estimator._stamps = extension.problem.timeline.stamps
        estimator._gap = int(estimator.gap)
        self._history = extension.history
        return self

    def _remember(self, problem: Problem) -> None:
        """Keep what later windows need of a fit."""
        estimator: Any = self
        self._history = History.of(self, problem, estimator._capacity(problem))

    def _extended(self, X: Any, y: Any, sample_weight: Any, classes: Any) -> Extension:
        """Validate later rows and lay them out behind those so far."""
        estimator: Any = self
        estimator._validate_params()
        model = clone(estimator._model())
        model._validate_params()
        self._history.check(self, model)
        known: Any = getattr(self, "classes_", None)
        if classes is not None and not np.array_equal(np.unique(classes), known):
            raise ValueError(f"classes={classes!r} are not those of the first call, {known.tolist()}; leave them out.")
        given = validate_rows(self, model, X, y, sample_weight, classes=known, reset=False)
        return self._history.extended(self, given)

    def _fit_later(self, extension: Extension) -> dict[str, Any]:
        """Fit the new windows, and return what goes behind the attributes of those that remain."""
        estimator: Any = self
        history, problem = extension.history, extension.problem
        running = history.running if history.max_rows is None else None
        fit = functools.partial(fit_windows, start=self._start(extension.n_kept), running=running)
        hyper = {name: np.asarray(value)[None] for name, value in problem.model.hyperparameters().items()}
        params, info, parts = estimator._solve(problem, hyper, fit=fit, capacity=history.capacity)
        params, info = map_params(lambda a: a[:, 0], (params, info))
        found = windows_found(problem, params, info)
        if estimator.inference is not None:
            well = found["converged_"] & found["determined_"]
            found |= found_errors(estimator, problem, params, well, parts, history.capacity)
        return found

    def _put(self, n_kept: int, new: dict[str, Any]) -> None:
        """Keep the first windows, and put new ones behind them."""
        room = self.__dict__.setdefault("_room", Room())
        for name in OF_WINDOWS:
            if not hasattr(self, name):
                continue
            if not new:
                setattr(self, name, map_params(lambda a: a[:n_kept], getattr(self, name)))
            elif new.get(name) is None:
                delattr(self, name)
            else:
                leaf = itertools.count()
                grown = map_params(
                    lambda a, b, name=name, leaf=leaf: room.extended((name, next(leaf)), a, n_kept, b),
                    getattr(self, name),
                    new[name],
                )
                setattr(self, name, grown)
        show_newest(self)

    def _start(self, n_kept: int) -> Any:
        """Return the parameters of the last window that remains, None if a fit of all would not start from them."""
        estimator: Any = self
        if n_kept == 0 or (self._history.model.in_turn and not estimator.converged_[n_kept - 1]):
            return None
        start = map_params(lambda a: a[n_kept - 1], estimator.params_)
        finite = all_finite(map_params(lambda a: a[None, None], start), (1, 1))
        return start if finite.all() else None
