"""Data and plain references for the tests of model families: a loop over windows, one trusted fit each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris

__all__ = ["DATA", "each_window", "walk_forward"]


def _shuffled(X: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(len(X))


def _simulated() -> tuple[np.ndarray, np.ndarray]:
    """Features of different scales and offsets, and a score that they explain."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(400, 3)) * [1.0, 10.0, 0.1] + [0.0, 1000.0, -3.0]
    return X, (X - [0.0, 1000.0, -3.0]) @ [0.6, 0.05, -4.0]


def _medical() -> tuple[np.ndarray, np.ndarray]:
    X = load_breast_cancer().data[:, [1, 4, 8]]
    X = X[_shuffled(X, 1)][:400]
    return X, (X - X.mean(axis=0)) / X.std(axis=0) @ [1.0, -0.5, 0.3]


def _diabetes() -> tuple[np.ndarray, np.ndarray]:
    data = load_diabetes()
    order = _shuffled(data.data, 2)[:400]
    return data.data[order][:, [2, 3, 8]] * 20, (data.target[order] - 150) / 80


DATA = {"simulated": _simulated, "medical": _medical, "diabetes": _diabetes}


def classes(name: str, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and labels; iris for three classes."""
    if n_classes == 3 and name == "iris":
        data = load_iris()
        order = _shuffled(data.data, 3)
        return data.data[order][:, :3], data.target_names[data.target[order]]
    X, score = DATA[name]()
    noisy = score + np.random.default_rng(7).logistic(size=len(score))
    cuts = [0.0] if n_classes == 2 else [-1.0, 1.0]
    return X, np.array(["a", "b", "c"])[np.digitize(noisy, cuts)]


def each_window(rolling: Any, make: Callable[[], Any], X: Any, y: Any, weight: Any = None) -> list[Any]:
    """Return a clean fit of each window of a fitted RollingJaxEstimator."""
    fits = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for start, stop in zip(rolling.window_starts_, rolling.window_stops_, strict=True):
            own = None if weight is None else weight[start:stop]
            fits.append(make().fit(X[start:stop], y[start:stop], sample_weight=own))
    return fits


def walk_forward(rolling: Any, fits: list[Any], X: np.ndarray, method: str) -> np.ndarray:
    """Predict each row by the newest of these fits that ended before it; rows without one are left out."""
    stops = np.asarray(rolling.window_stops_)
    rows = []
    for i in range(stops[0], len(X)):
        newest = int(np.searchsorted(stops, i, side="right")) - 1
        rows.append(getattr(fits[newest], method)(X[i : i + 1])[0])
    return np.array(rows)
