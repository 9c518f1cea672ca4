"""Checks of models that are not the package's own: rows of weight zero must not count."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels.tracing import Traced, run, trace

__all__ = ["check_result", "check_weight_rule", "trace_model"]

_ROWS = 64


def trace_model(
    model: Any, hyper: dict[str, np.ndarray], layout: Any, n_rows: int, initial: Any, dtype: np.dtype
) -> Traced:
    """Trace a model's fit by itself on `n_rows` rows, so that errors point to the user's lines."""
    target = None
    if layout.has_target:
        shape = (n_rows,) if layout.n_outputs is None else (n_rows, layout.n_outputs)
        target = jax.ShapeDtypeStruct(shape, dtype)
    return trace(
        lambda X, y, weight, one: model.fit(X, y, weight, one, initial),
        jax.ShapeDtypeStruct((n_rows, layout.n_features), dtype),
        target,
        jax.ShapeDtypeStruct((n_rows,), dtype),
        {name: jax.ShapeDtypeStruct(np.shape(values)[1:], dtype) for name, values in hyper.items()},
        dtype=dtype,
        what=model.described(),
        called_with=model.called_with,
    )


def check_result(model: Any, traced: Traced, longer: Traced) -> None:
    """Refuse results that are not (params, FitInfo), or parameters whose shape follows the number of rows."""
    if not (isinstance(traced.result, tuple) and len(traced.result) == 2 and hasattr(traced.result[1], "converged")):
        raise TypeError(f"{model.described()} must return a pair (params, models.FitInfo(...)).")
    if not _leaves(traced.result[0]):
        raise ValueError(f"{model.described()} returns no array; return the fitted parameters.")
    for shape, other in zip(*([a.shape for a in _leaves(t.result[0])] for t in (traced, longer)), strict=True):
        if shape != other:
            raise ValueError(
                f"{model.described()} returns an array of shape {shape}, which grows with the number of rows and "
                "so with padding; return parameters of a fixed shape, reduced over the rows by weight."
            )


def check_weight_rule(
    model: Any, hyper: dict[str, np.ndarray], layout: Any, table: np.ndarray, exclusive: bool
) -> bool:
    """Refuse a model whose result changes with rows of weight zero: their number, place or content.

    Fits the same rows with two paddings, by one small kernel for each model.

    Parameters
    ----------
    model : WindowModel
    hyper : dict of ndarray of shape (n_candidates, ...)
    layout : Layout
        Which columns of the table hold what.
    table : ndarray of shape (n_rows, n_columns)
        The rows of one window, at least two.
    exclusive : bool
        Whether the model calls LAPACK that may block (see `kernels.linalg`).

    Returns
    -------
    conclusive : bool
        False if some parameter was not finite: these rows tell nothing of it.
    """
    dtype = table.dtype
    key = ("check kernel", model.static_key(), layout, dtype.str, len(table))
    rows = table[-max(_ROWS, 4 * layout.n_features) :]
    one = {name: np.asarray(values[0], dtype) for name, values in hyper.items()}
    model = model.static_copy()
    initial = model.initial(layout.n_features, layout.n_outputs)
    padded = [_pad(rows, layout, 0, 3, rows[0]), _pad(rows, layout, 4, 7, rows[-1])]

    def fit_padded(tables: Any, one: Any) -> Any:
        parts = [layout.split(table) for table in tables]
        return [model.weighed(part.X, part.y, part.weight, one, initial) for part in parts]

    compiled = compiling.cached(key, lambda: compiling.kernel(fit_padded, "check_weight_rule"))
    first, second = run(compiled, padded, one, dtype=dtype, exclusive=exclusive, what=model.described())
    for a, b in zip(_leaves(first), _leaves(second), strict=True):
        if not _same(a, b):
            raise ValueError(
                f"The result of {model.described()} changes with rows of weight 0, which stand for rows outside the "
                "window and for padding; let each row count `weight` times, for example jnp.sum(weight * x) / "
                "jnp.sum(weight) instead of jnp.mean(x), and jnp.sum(weight) instead of the number of rows. (A "
                "function that draws random numbers changes, too: pass a seed or the numbers as a hyperparameter.)"
            )
    return all(np.isfinite(a).all() for a in _leaves(first))


def _pad(rows: np.ndarray, layout: Any, before: int, after: int, fill: np.ndarray) -> np.ndarray:
    """Put copies of a row, with weight 0, around the rows."""
    padding = np.tile(fill, (before + after, 1))
    padding[:, layout.weight_column] = 0
    return np.concatenate([padding[:before], rows, padding[before:]])


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    """Compare up to rounding; rows without a finite result may be infinite in one place and NaN in another."""
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)):
        return False
    tolerance = 1e-6 if a.dtype.itemsize == 8 else 1e-2
    size = np.max(np.abs(a[finite]), initial=0)
    return np.allclose(a[finite], b[finite], rtol=tolerance, atol=tolerance * size)


def _leaves(tree: Any) -> list[Any]:
    return jax.tree_util.tree_leaves(tree)
