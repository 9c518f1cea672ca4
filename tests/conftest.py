"""Shared by all tests: the hypothesis profile, a random generator, a compile counter of our own."""

from __future__ import annotations

import os

os.environ.setdefault("SCIPY_ARRAY_API", "1")  # before SciPy is imported; without it a check is skipped

import jax.monitoring
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# Compiling makes single examples slow, so there is no deadline; derandomised, because a test
# that fails for one run in a hundred tells nobody anything. Raise the number of examples with
# `pytest --hypothesis-profile=thorough`.
settings.register_profile(
    "default", deadline=None, derandomize=True, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", deadline=None, max_examples=500, suppress_health_check=list(HealthCheck))
settings.load_profile("default")


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``slow(all_but=[...])`` spares the cases of these names."""
    for item in items:
        marker = item.get_closest_marker("slow")
        if marker is not None and item.name.partition("[")[2].removesuffix("]") in marker.kwargs.get("all_but", ()):
            item.own_markers = [own for own in item.own_markers if own.name != "slow"]


_compiled: list[str] = []
_listening = False


def _on_duration(event: str, duration_secs: float, **details: object) -> None:
    del duration_secs
    if event == "/jax/core/compile/backend_compile_duration":
        _compiled.append(str(details.get("fun_name", "")))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20240229)


@pytest.fixture
def compiled() -> list[str]:
    """A growing list of what JAX compiles, counted without the package's help.

    Take ``len(compiled)`` before and after.
    """
    global _listening
    if not _listening:  # listeners cannot be removed one by one
        jax.monitoring.register_event_duration_secs_listener(_on_duration)
        _listening = True
    return _compiled
