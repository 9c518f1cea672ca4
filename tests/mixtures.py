"""Mixtures for the tests of entropies, and plain ways to integrate over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm

_FILE = Path(__file__).parent / "data" / "entropy_reference.json"
# Entropies from closed forms, quadrature or long sampling; series from moments of 500 bits.
REFERENCE: dict[str, dict[str, Any]] = {case["name"]: case for case in json.loads(_FILE.read_text())}


def parameters(case: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.asarray(case["weights"]), np.asarray(case["means"]), np.asarray(case["covariances"])


def random_mixture(seed: int, n_components: int, n_features: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n_components, n_features, n_features))
    covariances = root @ root.swapaxes(1, 2) + 0.3 * np.eye(n_features)
    return rng.dirichlet(np.ones(n_components)), 2 * rng.normal(size=(n_components, n_features)), covariances


mixtures = st.builds(random_mixture, st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 3))


def density(weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, x: np.ndarray) -> np.ndarray:
    parts = zip(weights, means, covariances, strict=True)
    return sum(w * multivariate_normal(mean, covariance).pdf(x) for w, mean, covariance in parts)


def integral_1d(function: Any, weights: np.ndarray, means: np.ndarray, covariances: np.ndarray) -> float:
    """Integrate ``function(p(x))`` over the line, piece by piece between the components."""
    deviations = np.sqrt(covariances[:, 0, 0])
    steps = np.concatenate([[-39, -9], np.linspace(-6, 6, 49), [9, 39]])
    edges = np.unique(means + deviations[:, None] * steps)
    nodes, node_weights = np.polynomial.legendre.leggauss(20)
    half = np.diff(edges)[:, None] / 2
    x = edges[:-1, None] + half * (nodes + 1)
    p = sum(w * norm.pdf(x, mean, s) for w, mean, s in zip(weights, means[:, 0], deviations, strict=True))
    return float(np.sum(half * node_weights * function(p)))
