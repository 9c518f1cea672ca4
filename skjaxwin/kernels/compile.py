"""The only place that calls ``jax.jit``: kernel cache, dtype scope, thread rule, compile counting.

* A kernel is cached under a key of plain hashable data, so clones, refits and new
  hyperparameter values find it again.
* 64-bit arithmetic is switched on for the duration of one call, by dtype, and never
  globally: users keep their own JAX configuration.
* JAX caches an array's dtype by the *identity* of the ndarray and not by the 64-bit mode;
  two threads in different modes that share an array corrupt each other. Every array is
  therefore handed over as a fresh view, and results come back as NumPy.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.monitoring
import jax.numpy
import jaxlib
import numpy as np

from skjaxwin.kernels.mapped_regions import are_scarce

__all__ = ["CompileCount", "cached", "count_compiles", "is_jitted", "place", "run", "run_many", "scope"]

_BACKEND_COMPILE = "/jax/core/compile/backend_compile_duration"
_CACHE_HIT = "/jax/compilation_cache/cache_hits"
_MIN_KERNELS, _MAX_KERNELS = 8, 512

_kernels: OrderedDict[Hashable, Any] = OrderedDict()
_kernels_lock = threading.Lock()
_exclusive = threading.Lock()


def cached(key: Hashable, make: Callable[[], Any]) -> Any:
    """Return what `make` returned for this key, making it on first use.

    The entries used longest ago are dropped above 512, so that a session that keeps
    inventing functions does not keep all their executables. So is half of them when memory
    regions are scarce: the next compilation could end the process.
    """
    with _kernels_lock:
        if key in _kernels:
            _kernels.move_to_end(key)
            return _kernels[key]
    made = make()
    scarce = are_scarce()
    with _kernels_lock:
        most = max(len(_kernels) // 2, _MIN_KERNELS) if scarce else _MAX_KERNELS
        made = _kernels.setdefault(key, made)
        dropped = [_kernels.popitem(last=False) for _ in range(max(len(_kernels) - most, 0))]
    if dropped and scarce:
        dropped.clear()
        gc.collect()
    return made


def kernel(function: Callable[..., Any], name: str, *, quick_compile: bool = True) -> Any:
    """Return the compiled form of a pure function, called `name` in compile reports.

    Parameters
    ----------
    function : callable
    name : str
    quick_compile : bool
        Prefer a compiler that is done sooner. Loops of many small steps over lanes run several
        times slower then.
    """

    @functools.wraps(function)
    def named(*args: Any) -> Any:
        return function(*args)

    named.__name__ = named.__qualname__ = name
    return jax.jit(named, compiler_options=_compiler_options() if quick_compile else None)


@functools.cache
def _compiler_options() -> dict[str, bool] | None:
    """Compiler options under which kernels compile in half the time.

    On jaxlib 0.10 the older code generator of XLA's CPU backend takes 0.5 s instead of 0.9 s for
    `models.Linear`, and kernels that go over the rows of windows run as fast or faster. Other
    versions lack the option or were not measured.
    """
    if jaxlib.__version__.startswith("0.10.") and jax.default_backend() == "cpu":
        return {"xla_cpu_use_fusion_emitters": False}
    return None


def scope(dtype: Any) -> Any:
    """Return the context in which arrays of `dtype` keep their width."""
    return jax.enable_x64(np.dtype(dtype).itemsize == 8)


def run(compiled: Any, *args: Any, dtype: Any, exclusive: bool = False) -> Any:
    """Call a kernel on NumPy pytrees and return NumPy pytrees.

    Parameters
    ----------
    compiled : callable
        From `kernel`.
    *args : pytrees of ndarray
        Arguments.
    dtype : dtype
        float64 runs with 64-bit types enabled, float32 without.
    exclusive : bool
        Hold a process-wide lock until the result is there: needed where two
        LAPACK calls at a time can block each other (see `kernels.linalg`).
    """
    with scope(dtype), _exclusive if exclusive else contextlib.nullcontext():
        views = jax.tree_util.tree_map(_fresh, args)
        return jax.device_get(compiled(*views))


def _fresh(leaf: Any) -> Any:
    return leaf if isinstance(leaf, jax.Array) else np.asarray(leaf).view()


def place(array: np.ndarray, dtype: Any) -> jax.Array:
    """Put an array where kernels run, once for many calls; it must not be changed afterwards."""
    with scope(dtype):
        return jax.device_put(array.view())


def run_many(call: Callable[[Any], Any], items: Iterable[Any], *, exclusive: bool = False) -> Iterator[Any]:
    """Yield ``call(item)`` in order, on as many threads as there are cores.

    A loop of small steps keeps a single core busy, so independent calls go side by
    side. At most one more than is being computed waits: memory does not grow with the items.

    Parameters
    ----------
    call : callable
        Runs a kernel.
    items : iterable
    exclusive : bool
        One at a time, in this thread.
    """
    items = list(items)
    n_threads = min(os.cpu_count() or 1, len(items))
    if exclusive or n_threads < 2:
        yield from map(call, items)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        waiting: deque[Any] = deque()
        for item in items:
            waiting.append(pool.submit(call, item))
            if len(waiting) > n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def is_jitted(function: Any) -> bool:
    """Say whether an object is the result of ``jax.jit`` (as ``jnp.tanh`` is) or a `jnp.ufunc`.

    A deep copy of a jitted function has lost ``__wrapped__``, so that is no sign.
    """
    if isinstance(function, jax.numpy.ufunc):
        return True
    return callable(function) and hasattr(function, "lower") and hasattr(function, "eval_shape")


@dataclass
class CompileCount:
    """What was compiled inside a `count_compiles` block.

    Attributes
    ----------
    count : int
        Executables compiled in this process, loads from a persistent compilation
        cache not counted.
    seconds : float
        Time the compiler took.
    names : list of str
        What was compiled, in order, for example ``"jit(fit_windows)"``.
    """

    count: int = 0
    seconds: float = 0.0
    names: list[str] = field(default_factory=list)


_counters: list[CompileCount] = []
_counters_lock = threading.Lock()
_listening = False


def _on_duration(event: str, duration_secs: float, **details: Any) -> None:
    if event == _BACKEND_COMPILE:
        with _counters_lock:
            for counter in _counters:
                counter.count += 1
                counter.seconds += duration_secs
                counter.names.append(str(details.get("fun_name", "")))


def _on_event(event: str, **details: Any) -> None:
    del details
    if event == _CACHE_HIT:
        with _counters_lock:
            for counter in _counters:
                counter.count -= 1


@contextlib.contextmanager
def count_compiles() -> Iterator[CompileCount]:
    """Count what JAX compiles while the block runs.

    The figures come from ``jax.monitoring`` events and hold for the whole
    process: compiles of other threads and of the caller's own functions count too, those
    of worker processes (``n_jobs=2``) do not.

    Yields
    ------
    compiles : CompileCount
        Filled while the block runs.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, count_compiles, models
    >>> X = np.arange(20.0).reshape(10, 2) ** 2
    >>> first = RollingJaxEstimator(models.Linear(alpha=1.0)).fit(X, X[:, 0])
    >>> with count_compiles() as compiles:
    ...     second = RollingJaxEstimator(models.Linear(alpha=9.0)).fit(X[:7], X[:7, 0])
    >>> compiles.count
    0
    """
    global _listening
    counter = CompileCount()
    with _counters_lock:
        if not _listening:
            jax.monitoring.register_event_duration_secs_listener(_on_duration)
            jax.monitoring.register_event_listener(_on_event)
            _listening = True
        _counters.append(counter)
    try:
        yield counter
    finally:
        with _counters_lock:
            # By identity: counters compare equal when their figures do.
            _counters[:] = [other for other in _counters if other is not counter]
