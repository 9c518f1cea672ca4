"""Predictions of rows, each by the window that is its own."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from skjaxwin import windows as win
from skjaxwin.columns import split_columns
from skjaxwin.entropy_path import is_mixture, mean_log_density
from skjaxwin.kernels import predict_rows

__all__ = ["PredictsByWindows"]


def _supervised(estimator: Any) -> bool:
    return estimator._model().estimator_type is not None


def _scored(estimator: Any) -> bool:
    return _supervised(estimator) or is_mixture(estimator)


class PredictsByWindows:
    """What a fitted RollingJaxEstimator does with rows."""

    def predict(self, X: Any) -> np.ndarray:
        """Predict rows.

        Without a time column every row is predicted by the newest window. With
        one, each row is predicted by the newest window that ended strictly before its
        time, with `gap` known time stamps in between; rows that no such window
        precedes follow `underdetermined`. Neither the order nor the number of
        rows matters.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)

        Returns
        -------
        predictions : ndarray of shape (n_rows,) or (n_rows, n_outputs)
        """
        estimator: Any = self
        return estimator._answer(self._raw_predict(X))

    def walk_forward_predict(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, method: str = "predict"
    ) -> np.ndarray:
        """Fit, and predict every row out of sample.

        Each row is predicted by the newest window that ended strictly before it,
        with `gap` time stamps in between.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        method : {"predict", "predict_proba", "decision_function"}, default="predict"
            What to return; the latter two for classifiers.

        Returns
        -------
        predictions : ndarray of shape (n_rows,), (n_rows, n_outputs) or (n_rows, n_classes)
            In the order of the rows of X; NaN where no window came before (None for classes that are no numbers).
        """
        if method not in ("predict", "predict_proba", "decision_function") or not hasattr(self, method):
            raise ValueError(f"method={method!r} is not what {type(self).__name__} with this model can return.")
        estimator: Any = self
        problem = estimator._fit(X, y, sample_weight)
        window = win.newest_window_before(problem.times, estimator._stamps, estimator._last_stamps, estimator._gap)
        return estimator._answer(self._predict(window, problem.X, problem.exposures), method)

    @available_if(_scored)
    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the coefficient of determination :math:`R^2` of ``predict(X)``, or a classifier's accuracy.

        For ``models.GaussianMixture`` the mean of ``score_samples(X)``, the log densities under the windows that
        predict the rows.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_columns)
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None
            Ignored for mixtures.
        sample_weight : array-like of shape (n_rows,), default=None

        Returns
        -------
        score : float
        """
        if is_mixture(self):
            return mean_log_density(self, X, sample_weight)
        estimator: Any = self
        score = accuracy_score if estimator._model().estimator_type == "classifier" else r2_score
        return float(score(y, self.predict(X), sample_weight=sample_weight))

    def _raw_predict(self, X: Any) -> np.ndarray:
        """Return what the model predicts for rows, each by its window."""
        check_is_fitted(self, "params_")
        estimator: Any = self
        rows = split_columns(self, X, reset=False, supervised=False, missing=estimator.missing == "skip")
        if rows.times is None:
            newest = np.full(len(rows.features), len(estimator.window_stops_) - 1)
            return self._predict(newest, rows.features, rows.exposures, shared=True)
        window = win.newest_window_before(rows.times, estimator._stamps, estimator._last_stamps, estimator._gap)
        if estimator.underdetermined == "minimum_norm":
            window = np.maximum(window, 0)
        return self._predict(window, rows.features, rows.exposures)

    def _predict(
        self, window: np.ndarray, features: np.ndarray, exposures: np.ndarray | None, shared: bool = False
    ) -> np.ndarray:
        estimator: Any = self
        features = features.astype(estimator._dtype, copy=False)
        predictions = predict_rows(estimator._fitted_model, estimator.params_, window, features, shared=shared)
        if estimator.missing == "skip":
            predictions[np.isnan(features).any(axis=1)] = np.nan
        if exposures is not None:
            predictions = predictions * exposures
        return predictions[:, None] if estimator._target_is_column and predictions.ndim == 1 else predictions
