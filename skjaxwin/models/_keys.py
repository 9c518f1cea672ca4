"""Hashable keys for static parameters, so that a compiled kernel can be found again.

A function is keyed by what it computes and not by its identity: its code, defaults, closure and
the globals that it reads, also through modules and objects of the user's own. A function that was sent
to another process, or defined again by running a notebook cell a second time, finds its kernel; a
function that reads a constant which has changed since does not. An object of a class of the user's own counts by
its attributes. Functions and objects of installed libraries count by identity: what changes inside them is not seen.
"""

from __future__ import annotations

import functools
import hashlib
import numbers
import sys
import sysconfig
import types
from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

__all__ = ["freeze", "held", "is_numeric"]

_LIBRARIES = tuple({sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")})


class _Same:
    """An object that equals itself alone; holds it, so that its identity is not given to another."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def freeze(value: Any, name: str) -> Hashable:
    """Turn a static parameter into a hashable key.

    Parameters
    ----------
    value : object
        The parameter.
    name : str
        What it is called, for messages.

    Returns
    -------
    key : hashable
        Equal for values that make the same computation.

    Raises
    ------
    TypeError
        If the value is neither hashable nor one of the known containers.
    """
    if _hashable(value) or isinstance(value, (list, tuple, dict, set, np.ndarray, types.MethodType)):
        return _freeze(value, frozenset())
    raise TypeError(
        f"The parameter {name!r} has the unhashable type {type(value).__name__}; use numbers, strings, "
        "tuples, NumPy arrays or functions, so that a compiled kernel can be found again."
    )


def held(key: Hashable) -> Iterator[Any]:
    """Yield the objects that a key from `freeze` knows by their identity."""
    if isinstance(key, _Same):
        yield key.value
    elif isinstance(key, (tuple, frozenset)):
        for part in key:
            yield from held(part)


def _freeze(value: Any, inside: frozenset[int]) -> Hashable:
    """Key a value; `inside` are the functions being keyed, which may call themselves."""
    if isinstance(value, functools.partial):
        # Unwrapped, because sklearn.base.clone copies partial objects.
        return ("partial", *(_freeze(part, inside) for part in (value.func, value.args, value.keywords)))
    if isinstance(value, types.FunctionType):
        return "recursive" if id(value) in inside else _freeze_function(value, inside | {id(value)})
    if isinstance(value, types.MethodType):
        return ("method", _freeze(value.__func__, inside), _freeze(value.__self__, inside))
    if isinstance(value, (list, tuple)):
        return (type(value), *(_freeze(item, inside) for item in value))
    if isinstance(value, (set, frozenset)):
        return ("set", frozenset(_freeze(item, inside) for item in value))
    if isinstance(value, dict):
        return ("dict", frozenset((_freeze(k, inside), _freeze(v, inside)) for k, v in value.items()))
    if isinstance(value, np.ndarray) and value.dtype != object:
        return ("array", value.shape, value.dtype.str, hashlib.sha256(value.tobytes()).digest())
    if isinstance(value, float):
        return (type(value), float(value).hex())  # tells -0.0 from 0.0, and finds NaN again
    if _is_users(type(value)) and not isinstance(value, type) and (state := _state(value)) is not None:
        if id(value) in inside:
            return "recursive"
        content = value if isinstance(value, (int, str, bytes, complex)) else None  # a number with attributes, say
        return ("object", type(value), content, _freeze(state, inside | {id(value)}))
    by_value = type(value).__hash__ not in (None, object.__hash__) and _hashable(value)
    # 1, 1.0 and True are equal as keys, but not as static parameters.
    return (type(value), value) if by_value else _Same(value)


def _freeze_function(function: types.FunctionType, inside: frozenset[int]) -> Hashable:
    if function.__code__.co_filename.startswith(_LIBRARIES):
        return _Same(function)
    names = set(_names(function.__code__))
    closure = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    read = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for module in [m for m in read.values() if isinstance(m, types.ModuleType) and not _in_library(m)]:
        read |= {f"{module.__name__}.{name}": vars(module)[name] for name in names if name in vars(module)}
    parts = (function.__defaults__, function.__kwdefaults__, closure, read)
    return ("function", function.__code__, *(_freeze(part, inside) for part in parts))


def _state(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object, those in slots included; None if it has no place for any."""
    state = dict(getattr(value, "__dict__", {}))
    place = hasattr(value, "__dict__")
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            private = name.startswith("__") and not name.endswith("__")
            name = f"_{kind.__name__.lstrip('_')}{name}" if private else name
            if name not in ("__dict__", "__weakref__"):
                place = True
                if hasattr(value, name):
                    state[name] = getattr(value, name)
    return state if place else None


def _is_users(kind: type) -> bool:
    """Say whether a class is neither built in nor from an installed library."""
    module = sys.modules.get(kind.__module__)
    return module is not None and kind.__module__ != "builtins" and not _in_library(module)


def _in_library(module: types.ModuleType) -> bool:
    path = getattr(module, "__file__", None)
    return path.startswith(_LIBRARIES) if path else module.__name__ in sys.builtin_module_names


def _names(code: types.CodeType) -> Iterator[str]:
    """Yield the global names that a function and those defined in it may read."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - raises for a cell that is not assigned yet
    except ValueError:
        return False
    return True


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def is_numeric(value: Any) -> bool:
    """Say whether a parameter is a number or an array of numbers (booleans are flags)."""
    if isinstance(value, (bool, np.bool_)):
        return False
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "iuf"
    return isinstance(value, numbers.Real)
