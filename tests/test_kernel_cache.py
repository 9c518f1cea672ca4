"""How many kernels are kept: Linux ends a process that maps too many memory regions."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from skjaxwin import RollingJaxEstimator, models
from skjaxwin.kernels import compile as compiling
from skjaxwin.kernels import mapped_regions

MAPPED = Path("/proc/self/maps")


def fit_and_predict(power: int, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Fit a function of its own for each power, which therefore compiles."""
    model = models.LeastSquares(lambda p, X: p["a"] * jnp.sin(X[:, 0]) ** power, {"a": 1.0})
    return RollingJaxEstimator(model, window=20).fit(X, y).predict(X)


def slope(power: int, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the prediction for the last row, by least squares on the last window."""
    curve = np.sin(X[:, 0]) ** power
    window = slice(len(X) - 20, len(X))
    return curve[-1] * (curve[window] @ y[window]) / (curve[window] @ curve[window])


@pytest.mark.skipif(not MAPPED.exists(), reason="counts the regions of a process as Linux lists them")
def test_a_process_that_keeps_inventing_functions_does_not_run_out_of_regions(monkeypatch, rng):
    X, y = rng.uniform(1, 2, size=(60, 1)), rng.normal(size=60)
    fit_and_predict(1, X, y)

    def regions():
        return MAPPED.read_bytes().count(b"\n")

    monkeypatch.setattr(mapped_regions, "_limit", lambda: 2 * before + 1600)
    before, seen = regions(), []
    for power in range(2, 15):
        np.testing.assert_allclose(fit_and_predict(power, X, y)[-1], slope(power, X, y), rtol=1e-6)
        seen.append(regions() - before)
    assert 400 < max(seen) < 1400  # they grow until they are let go: without that to some 2500


def test_what_was_let_go_compiles_again_and_gives_the_same(monkeypatch, compiled, rng):
    X, y = rng.uniform(1, 2, size=(60, 1)), rng.normal(size=60)
    estimator = RollingJaxEstimator(
        models.Custom(fit=lambda X, y, w: w @ y / jnp.sum(w), predict=lambda p, X: jnp.full(len(X), p)), window=9
    )
    expected = estimator.fit(X, y).predict(X)
    before = len(compiled)
    np.testing.assert_array_equal(estimator.fit(X, y).predict(X), expected)
    assert len(compiled) == before
    monkeypatch.setattr(compiling, "are_scarce", lambda: True)
    for power in range(30, 34):
        fit_and_predict(power, X, y)
    before = len(compiled)
    np.testing.assert_array_equal(estimator.fit(X, y).predict(X), expected)
    assert len(compiled) > before


def test_regions_are_scarce_from_half_of_the_limit_on(monkeypatch, tmp_path):
    listed = tmp_path / "maps"
    monkeypatch.setattr(mapped_regions, "_MAPPED", listed)
    monkeypatch.setattr(mapped_regions, "_limit", lambda: 20)
    assert not mapped_regions.are_scarce()  # nothing that can be read
    listed.write_text("a region\n" * 10)
    assert not mapped_regions.are_scarce()
    listed.write_text("a region\n" * 11)
    assert mapped_regions.are_scarce()
    monkeypatch.setattr(mapped_regions, "_limit", lambda: None)
    assert not mapped_regions.are_scarce()
