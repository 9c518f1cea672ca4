"""Look at a function before compiling it: result shapes, memory, LAPACK use, readable errors."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend import core

from skjaxwin.kernels import compile as compiling

__all__ = ["Traced", "run", "trace"]

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")})

_INTEGER = (
    "it uses a traced number as a Python integer (range, list index, shape); numbers among the "
    "hyperparameters are traced as floats: use lax.fori_loop, or fix the integer with "
    "functools.partial(function, name=value)"
)

_CALLED_WITH = (
    "fit gets X of shape (n_rows, n_features), y of shape (n_rows,) or (n_rows, n_outputs), weight of shape "
    "(n_rows,), padding included, and the hyperparameters by name; predict gets params and X, row by row"
)

# What the user wrote, as JAX names it, and what to write instead.
_ADVICE: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...] = (
    (
        jax.errors.TracerBoolConversionError,
        "",
        "it branches (if, while, and, or) on array values; write jnp.where(condition, a, b), "
        "or lax.cond / lax.while_loop",
    ),
    (
        jax.errors.NonConcreteBooleanIndexError,
        "",
        "it selects with a boolean mask, whose length is unknown when compiling; keep all rows and "
        "multiply by weight (zero outside the window), or use jnp.where(mask, value, 0)",
    ),
    (jax.errors.TracerIntegerConversionError, "", _INTEGER),
    (TypeError, "integer scalar arrays", _INTEGER),
    (TypeError, "cannot be interpreted as an integer", _INTEGER),
    (TypeError, "Shapes must be 1D sequences of concrete values", _INTEGER),
    (
        jax.errors.TracerArrayConversionError,
        "",
        "it hands a traced array to NumPy, SciPy or scikit-learn; use the jax.numpy (jnp) or "
        "jax.scipy function of the same name",
    ),
    (
        jax.errors.ConcretizationTypeError,
        "",
        "it needs the value of a traced array (float(), int(), .item(), jnp.unique, one-argument "
        "jnp.where); keep arrays as arrays, and use jnp.where(condition, a, b) with all three arguments",
    ),
    (
        jax.errors.UnexpectedTracerError,
        "",
        "it keeps a traced array after returning (in a global or an attribute); return it instead",
    ),
    (
        TypeError,
        "TracedParameter",
        "it reads a numeric hyperparameter from self, where compiled code would never see it change; read it from "
        "hyper in fit, and let fit put what predict needs into params",
    ),
    (
        TypeError,
        "immutable",
        "it assigns into an array; write x = x.at[index].set(value)",
    ),
    (
        (TypeError, IndexError),
        "static",
        "it cuts a slice whose bounds are computed; multiply by weight instead of slicing, or use "
        "lax.dynamic_slice with a fixed size",
    ),
    (
        TypeError,
        "not a valid JAX type",
        "it returns something that is no array; return arrays, or tuples and dicts of arrays",
    ),
)


@dataclass(frozen=True)
class Traced:
    """What is known of a function without running it.

    Attributes
    ----------
    result : pytree of ShapeDtypeStruct
        Shapes and dtypes of the result.
    bytes : int
        An upper bound on temporary memory: every intermediate result added up.
    primitives : set of str
        Names of the operations it uses.
    """

    result: Any
    bytes: int
    primitives: set[str]


def trace(function: Callable[..., Any], *args: Any, dtype: Any, what: str, called_with: str | None = None) -> Traced:
    """Trace a function on abstract arguments.

    Parameters
    ----------
    function : callable
        Pure function of arrays.
    *args : pytrees of ShapeDtypeStruct
        Its arguments.
    dtype : dtype
        The working dtype.
    what : str
        How to call the function in messages.
    called_with : str, optional
        What the function's arguments are, for messages; None for those of a model's `fit` and `predict`.

    Raises
    ------
    TypeError
        If the function cannot be traced: names the function, the line and what
        to write instead.
    """
    with compiling.scope(dtype):
        try:
            jaxpr, result = jax.make_jaxpr(function, return_shape=True)(*args)
        except Exception as error:
            _explain(error, what, called_with or _CALLED_WITH)
            raise
    equations = list(_equations(jaxpr.jaxpr))
    return Traced(
        result,
        sum(_bytes(var.aval) for equation in equations for var in equation.outvars),
        {equation.primitive.name for equation in equations},
    )


def run(compiled: Any, *args: Any, dtype: Any, exclusive: bool, what: str) -> Any:
    """Call a kernel as `kernels.compile.run` does, and explain what tracing alone cannot see."""
    try:
        return compiling.run(compiled, *args, dtype=dtype, exclusive=exclusive)
    except jax.errors.UnexpectedTracerError as error:  # the function kept a tracer of an earlier trace
        _explain(error, what)
        raise


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of a jaxpr and of all it calls."""
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if isinstance(inner, core.ClosedJaxpr):
                    yield from _equations(inner.jaxpr)
                elif isinstance(inner, core.Jaxpr):
                    yield from _equations(inner)


def _bytes(aval: Any) -> int:
    shape, dtype = getattr(aval, "shape", ()), getattr(aval, "dtype", None)
    return int(np.prod(shape)) * (dtype.itemsize if dtype is not None else 0)


def _explain(error: Exception, what: str, called_with: str = _CALLED_WITH) -> None:
    """Raise a TypeError that says what to change, or add the place to the user's own error."""
    where = _user_line(error)
    for kinds, text, advice in _ADVICE:
        if isinstance(error, kinds) and text in str(error):
            raise TypeError(f"{what} cannot be compiled: {where}{advice}.") from error
    if type(error) in (TypeError, ValueError):  # subclasses may not be made from a message
        raise type(error)(f"{what} failed: {where}{error} ({called_with})") from error
    error.add_note(f"Raised while skjaxwin traced {what}{', ' + where[:-2] if where else ''}.")


def _user_line(error: Exception) -> str:
    """Name the last line of the traceback that is the user's own."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = os.path.abspath(frame.filename)
        inside = path.startswith(_HERE) or path.startswith(_LIBRARIES) or frame.filename.startswith("<frozen")
        if not inside:
            code = f" ({frame.line})" if frame.line else ""
            return f"in {frame.name}, {frame.filename}, line {frame.lineno}{code}: "
    return ""
