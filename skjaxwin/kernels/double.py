"""Double precision inside a caller's transformation that runs without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap
from jax.extend.core import jaxpr_as_fun

from skjaxwin.kernels import compile as compiling

__all__ = ["in_double"]


def in_double(function: Callable[..., Any], *arrays: Any) -> Any:
    """Evaluate a function of float64 arrays on traced values of any float type.

    JAX transposes and batches what it has traced after the function has returned, when 64-bit types are off
    again, and then mixes the two. So both have rules here that do their work inside: the derivative is the
    whole Jacobian, which is for functions of few results, and the rules apply to themselves.

    Parameters
    ----------
    function : callable
        From arrays to arrays.
    *arrays : array
        Traced, or not.

    Returns
    -------
    result : pytree of arrays
        In the arrays' joint float type.
    """
    dtype = jnp.result_type(*arrays, jnp.float32)
    traced = [isinstance(array, jax.core.Tracer) for array in arrays]
    # What is known keeps its precision.
    known = [None if hidden else np.asarray(array, np.float64) for array, hidden in zip(arrays, traced, strict=True)]

    def of_traced(*values: Any) -> Any:
        rest = iter(values)
        return function(*(next(rest) if array is None else jnp.asarray(array.view()) for array in known))

    values = (jnp.asarray(array, dtype) for array, hidden in zip(arrays, traced, strict=True) if hidden)
    return _differentiable(of_traced, dtype)(*values)


def _differentiable(function: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    call = jax.custom_jvp(_batchable(function, dtype))

    @call.defjvp
    def _(values: Any, tangents: Any) -> tuple[Any, Any]:
        jacobian = _differentiable(jax.jacrev(function, tuple(range(len(values)))), dtype)(*values)
        value = call(*values)

        def along(_: Any, by_argument: Any) -> Any:
            pairs = zip(by_argument, tangents, strict=True)
            return sum(jnp.tensordot(part, tangent, tangent.ndim) for part, tangent in pairs)

        # Where `value` has an array, the Jacobian has one for each argument.
        return value, jax.tree_util.tree_map(along, value, jacobian)

    return call


def _batchable(function: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    """Return a function that hands its constants on as arguments.

    A `lax.cond` with a batched predicate batches the constants of its branches, which a batching rule
    refuses where they are hidden in it. As arguments they are 32 bits wide, which nothing rounds.
    """

    def hoisted(*values: Any) -> Any:
        with compiling.scope(np.float64):
            shapes = [jax.ShapeDtypeStruct(value.shape, np.float64) for value in values]
            closed, structure = jax.make_jaxpr(function, return_shape=True)(*shapes)
        tree = jax.tree_util.tree_structure(structure)
        constants = [np.asarray(constant) for constant in closed.consts]
        types = [constant.dtype for constant in constants]

        @custom_vmap
        def call(bits: Any, *values: Any) -> Any:
            with compiling.scope(np.float64):
                whole = closed.replace(consts=[_joined(b, t) for b, t in zip(bits, types, strict=True)])
                leaves = jaxpr_as_fun(whole)(*(value.astype(np.float64) for value in values))
                return jax.tree_util.tree_unflatten(tree, [leaf.astype(dtype) for leaf in leaves])

        @call.def_vmap
        def _(axis_size: int, in_batched: list[Any], _: Any, *values: Any) -> tuple[Any, Any]:
            axes = [0 if batched else None for batched in in_batched[1:]]
            if any(in_batched[1:]):
                result = _batchable(jax.vmap(function, axes, axis_size=axis_size), dtype)(*values)
                return result, jax.tree_util.tree_map(lambda _: True, result)
            # Copies of the constants alone: the function makes its own.
            result = hoisted(*values)
            return result, jax.tree_util.tree_map(lambda _: False, result)

        return call([_split(constant) for constant in constants], *values)

    return hoisted


def _split(constant: np.ndarray) -> np.ndarray:
    if constant.dtype.itemsize < 8:
        return constant
    return np.ascontiguousarray(constant).view(np.uint32).reshape(*constant.shape, 2)


def _joined(bits: Any, dtype: Any) -> Any:
    return lax.bitcast_convert_type(bits, dtype) if dtype.itemsize == 8 else bits
