"""Predict rows, each from the parameters of its own window."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels.linalg import lapack_can_block
from skjaxwin.kernels.shapes import pad_rows
from skjaxwin.kernels.tracing import trace

__all__ = ["all_finite", "map_params", "predict_rows"]

# A fixed number of rows a call: any number of rows to predict is served by one compile. Fewer
# where every row brings large parameters along.
_ROWS_PER_CALL = 512
_ROWS_IN_NUMPY = 2**15
_PARAMS_BYTES = 64 * 2**20


def map_params(function: Any, params: Any, *others: Any) -> Any:
    """Apply a function to every array of a pytree of parameters, and to those in its place in others."""
    return jax.tree_util.tree_map(function, params, *others)


def all_finite(params: Any, shape: tuple[int, int]) -> np.ndarray:
    """Say for each window and candidate whether all parameters are finite numbers."""
    finite = np.ones(shape, dtype=bool)
    for leaf in jax.tree_util.tree_leaves(params):
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(leaf.sum()):  # then so is every term, at a tenth of the price
                continue
        finite &= np.isfinite(leaf).reshape(*shape, -1).all(axis=-1)
    return finite


def predict_rows(model: Any, params: Any, window: np.ndarray, X: np.ndarray, *, shared: bool = False) -> np.ndarray:
    """Predict every row from its window's parameters.

    Rows are predicted one by one under ``vmap``, so a prediction can depend neither
    on the other rows nor on their order or number.

    Parameters
    ----------
    model : WindowModel
    params : pytree of ndarray
        Leading axis (n_windows,).
    window : ndarray of shape (n_rows,)
        Which window predicts each row; -1 for none, which gives NaN.
    X : ndarray of shape (n_rows, n_features)
    shared : bool
        Whether all rows are predicted by the same window.

    Returns
    -------
    predictions : ndarray of shape (n_rows,) or (n_rows, n_outputs)
    """
    known = np.flatnonzero(window >= 0)
    n_windows = len(jax.tree_util.tree_leaves(params)[0])
    own_bytes = sum(leaf.nbytes for leaf in jax.tree_util.tree_leaves(params)) // n_windows
    size = _ROWS_PER_CALL if model.compiles_predict else _ROWS_IN_NUMPY
    while not shared and size > 1 and size * own_bytes > _PARAMS_BYTES:
        size //= 2
    if len(known) == len(X) <= size:
        return _predict(model, params, window, X, shared, size)
    parts = [
        _predict(model, params, window[rows], X[rows], shared, size)
        for rows in (known[i : i + size] for i in range(0, max(len(known), 1), size))
    ]
    values = np.concatenate(parts)
    if len(known) == len(X):
        return values
    predictions = np.full((len(X), *values.shape[1:]), np.nan, values.dtype)
    predictions[known] = values
    return predictions


def _predict(model: Any, params: Any, window: np.ndarray, X: np.ndarray, shared: bool, size: int) -> np.ndarray:
    """Predict up to `size` rows, in NumPy where the model can."""
    n_rows = len(X)
    pick = window[:1] if shared else window
    own = map_params(lambda a: np.take(a, pick, axis=0), params)
    direct = model.predict_each(own, X)
    if direct is not None:
        return np.asarray(direct)
    dtype = X.dtype
    own = map_params(lambda a: a[0] if shared else pad_rows(a, size), own)
    compiled, exclusive = compiling.cached(
        (
            "predict",
            model.static_key(),
            jax.tree_util.tree_structure(own),
            tuple((a.shape, a.dtype.str) for a in jax.tree_util.tree_leaves(own)),
            X.shape[1],
            dtype.str,
            shared,
            size,
        ),
        lambda: _make(model.static_copy(), own, X, shared),
    )
    out = compiling.run(compiled, own, pad_rows(X, size), dtype=dtype, exclusive=exclusive)
    return np.array(out[:n_rows])


def _make(model: Any, own: Any, X: np.ndarray, shared: bool) -> tuple[Any, bool]:
    """Trace the prediction of a single row, check its shape and define the kernel."""
    one = map_params(lambda a: jax.ShapeDtypeStruct(a.shape if shared else a.shape[1:], a.dtype), own)
    row = jax.ShapeDtypeStruct((1, X.shape[1]), X.dtype)
    traced = trace(model.predict, one, row, dtype=X.dtype, what=model.described_predict())
    shape = getattr(traced.result, "shape", None)
    if shape is None or len(shape) not in (1, 2) or shape[0] != 1:
        raise ValueError(
            f"{model.described_predict()} returned {shape or traced.result} for one row; it must return an array "
            "of shape (n_rows,) or (n_rows, n_outputs)."
        )
    exclusive = lapack_can_block(traced.primitives)

    def predict_rows(params: Any, X: Any) -> Any:
        def predict_one(params: Any, row: Any) -> Any:
            return model.predict(params, row[None])[0]

        if exclusive:
            if shared:
                return jax.lax.map(lambda row: predict_one(params, row), X)
            return jax.lax.map(lambda args: predict_one(*args), (params, X))
        return jax.vmap(predict_one, in_axes=(None if shared else 0, 0))(params, X)

    return compiling.kernel(predict_rows, "predict_rows"), exclusive
