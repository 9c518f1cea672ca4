"""Checks of models that are not the package's own: rows of weight zero must not count."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from skjaxwin.kernels.tracing import Traced, trace

__all__ = ["MIN_ROWS_TO_CHECK", "check_masked_rows", "check_padding", "check_result_shapes", "trace_model"]

MIN_ROWS_TO_CHECK = 4

_ADVICE = (
    "let each row count `weight` times, for example jnp.sum(weight * x) / jnp.sum(weight) instead of "
    "jnp.mean(x), and jnp.sum(weight) instead of the number of rows"
)


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
    )


def check_result_shapes(model: Any, traced: Traced, longer: Traced) -> None:
    """Refuse parameters whose shape follows the number of rows."""
    for shape, other in zip(*([a.shape for a in _leaves(t.result[0])] for t in (traced, longer)), strict=True):
        if shape != other:
            raise ValueError(
                f"{model.described()} returns an array of shape {shape}, which grows with the number of rows and "
                "so with padding; return parameters of a fixed shape, reduced over the rows by weight."
            )
    if not _leaves(traced.result[0]):
        raise ValueError(f"{model.described()} returns no array; return the fitted parameters.")


def check_masked_rows(model: Any, params: list[Any]) -> None:
    """Refuse a model whose result changes with the content of rows of weight zero.

    Parameters
    ----------
    model : WindowModel
    params : list of two pytrees
        Fits of the same window, whose masked rows were filled with different rows.
    """
    if not _same(*params):
        raise ValueError(
            f"The result of {model.described()} changes with rows of weight 0, which stand for rows outside the "
            f"window and for padding; {_ADVICE}."
        )


def check_padding(model: Any, params: list[Any]) -> None:
    """Refuse a model whose result changes with the number of rows of weight zero.

    Parameters
    ----------
    model : WindowModel
    params : list of two pytrees
        Fits of the same rows at two capacities.
    """
    if not _same(*params):
        raise ValueError(
            f"The result of {model.described()} changes with the number of rows of weight 0, so with padding: "
            f"it counts rows, as x.shape[0], len(x) and jnp.mean do; {_ADVICE}."
        )


def _leaves(tree: Any) -> list[Any]:
    return jax.tree_util.tree_leaves(tree)


def _same(first: Any, second: Any) -> bool:
    for a, b in zip(_leaves(first), _leaves(second), strict=True):
        tolerance = 1e-6 if a.dtype.itemsize == 8 else 1e-2
        size = np.max(np.abs(np.where(np.isfinite(a), a, 0)), initial=1e-300)
        if not np.allclose(a, b, rtol=tolerance, atol=tolerance * size, equal_nan=True):
            return False
    return True
