"""Windows that advance row by row: taken where the data allow it, refused where a lane has lost digits."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from skjaxwin import RollingJaxEstimator, count_compiles, models
from skjaxwin.kernels import lanes
from tests import precise

N, WINDOW = 20_000, 60


def fitted(X, y, window=WINDOW, **parameters):
    return RollingJaxEstimator(models.Linear(), window=window, **parameters).fit(X, y)


def kernels_of(X, y, window):
    """Fit with a number of columns that nobody else uses, and return the kernels that this compiled."""
    with count_compiles() as compiles:
        fitted(X, y, window)
    return set(compiles.names)


def worst(found, X, y, window, windows):
    """The largest error of a slope, relative to what a slope can be."""
    bounds = np.array([[max(i + 1 - window, 0), i + 1] for i in windows])
    slopes, _, _ = precise.least_squares(X, y, bounds)
    spread = np.array([y[a:b].std() / X[a:b].std(axis=0) for a, b in bounds])
    size = np.maximum(np.abs(np.asarray(slopes, float)).max(axis=1, keepdims=True), spread)
    return (np.abs(found.params_["coef"][windows] - np.asarray(slopes, float)) / size).max()


@pytest.mark.slow
def test_plain_data_go_in_lanes_and_nothing_is_done_twice():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, 7)), rng.normal(size=N)
    assert kernels_of(X, y, 100) == {"jit(fit_lanes)", "jit(fit_windows)"}  # the first windows from their rows
    X[9_000] = 1e7
    assert "jit(fit_groups)" in kernels_of(X, y, 100)


def test_every_lane_is_refused_if_its_end_does_not_agree(monkeypatch):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(3_000, 2)), rng.normal(size=(3_000, 1))
    stops = np.arange(100, 3_001)
    options = {"first": 0, "alphas": np.zeros(1), "fit_intercept": True, "errors": False, "max_memory": 256e6}
    assert lanes.fit_lanes(X, y, None, stops - 100, stops, **options).good.all()
    exact = lanes.range_products

    def perturbed(*arguments):
        right = exact(*arguments)
        wrong = right.products * (1 + 1e-10 * rng.normal(size=right.products.shape))
        return right._replace(products=(wrong + wrong.transpose(0, 2, 1)) / 2)

    monkeypatch.setattr(lanes, "range_products", perturbed)
    assert not lanes.fit_lanes(X, y, None, stops - 100, stops, **options).good.any()


@pytest.mark.slow(all_but=["30.0"])
@pytest.mark.parametrize("size", [30.0, 400.0, 1000.0, 1e5])
def test_large_rows_along_one_direction_do_not_hide_each_other(size):
    # A large row at the end of a lane makes what an earlier one left behind look small.
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N, 2))
    place = (np.arange(N) - 47) % 312
    X[(place == 10) | (place == 150)] += [size, -size]
    y = X.sum(axis=1) + rng.normal(size=N)
    calm = np.flatnonzero((place > 80) & (place < 140))[::37]
    assert worst(fitted(X, y), X, y, WINDOW, calm) < 1e-11


def burst(rng):
    """The scale along (1, -1) rises a thousandfold over ten rows and falls again, every 300 rows."""
    X = rng.normal(size=(N, 2))
    place = np.arange(N) % 300
    scale = np.where(place < 20, 2.0 ** (10 - np.abs(10 - place)), 1.0)
    along = (X[:, 0] - X[:, 1]) / 2
    return X + (along * (scale - 1))[:, None] * [1.0, -1.0]


HARD = {
    "bursts": burst,
    "heavy tails": lambda rng: rng.standard_t(1.2, size=(N, 2)),
    "a common heavy tail": lambda rng: rng.normal(size=(N, 2)) + rng.standard_t(1.2, size=(N, 1)),
    "a walk": lambda rng: np.cumsum(rng.normal(size=(N, 2)), axis=0),
    "a trend": lambda rng: np.column_stack([np.arange(N) * 1.0, rng.normal(size=N)]),
    "a rare flag": lambda rng: np.column_stack([np.arange(N) % 59 == 7, rng.normal(size=N)]).astype(float),
}


@pytest.mark.slow(all_but=["bursts-60"])
@pytest.mark.parametrize(("name", "window"), [*((name, WINDOW) for name in HARD), ("bursts", "expanding")])
def test_lanes_and_what_replaces_them_are_exact(name, window):
    X = HARD[name](np.random.default_rng(3))
    y = X @ [1.0, 2.0] + np.random.default_rng(4).normal(size=N)
    windows = np.arange(70, N, 211)
    assert worst(fitted(X, y, window), X, y, WINDOW if window == WINDOW else N, windows) < 1e-10


class LogLinear(models.Linear):
    """A subclass whose fit is its own: its statistics are still those of the plain features."""

    def fit(self, X, y, weight, hyper, start):
        return super().fit(jnp.log(X), y, weight, hyper, start)


@pytest.mark.parametrize("algorithm", ["auto", "exact"])
def test_a_subclass_with_a_fit_of_its_own_is_fitted_by_it(algorithm):
    rng = np.random.default_rng(5)
    X = np.exp(rng.normal(size=(N, 2)))
    y = np.log(X) @ [1.0, 2.0] + rng.normal(size=N)
    own = RollingJaxEstimator(LogLinear(), window=WINDOW, step=500, algorithm=algorithm).fit(X, y)
    rows = slice(N - WINDOW, N)
    design = np.column_stack([np.ones(WINDOW), np.log(X[rows])])
    np.testing.assert_allclose(own.coef_, np.linalg.lstsq(design, y[rows], rcond=None)[0][1:], rtol=1e-9)
    with pytest.raises(ValueError, match="LogLinear"):
        RollingJaxEstimator(LogLinear(), inference="HC0").fit(X[:50], y[:50])


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.1, 1e6 + 0.1])
@pytest.mark.parametrize(("n", "kind"), [(200, "nonrobust"), (200, "HC1"), (N, "nonrobust")])
def test_of_a_constant_target_nothing_is_explained(level, n, kind):
    X = np.random.default_rng(6).normal(size=(n, 2))
    found = fitted(X, np.full(n, level), inference=kind)
    assert np.isnan(found.r2_).all()
    assert all(np.isnan(array).all() for array in found.t_values_.values())
    np.testing.assert_allclose(found.params_["coef"], 0, atol=1e-9)
    np.testing.assert_allclose(found.params_["intercept"], level, rtol=1e-12)


def test_a_grid_of_penalties_shares_the_exact_starts():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(N, 2))
    y = X @ [1.0, 2.0] + rng.normal(size=N)
    rolling = RollingJaxEstimator(models.Linear(), window=WINDOW)
    problem = rolling._prepare(X, y, None)
    alphas = np.array([0.0, 1.0, 30.0])
    params, _, _ = rolling._solve(problem, {"alpha": alphas})
    for i, alpha in enumerate(alphas):
        own = RollingJaxEstimator(models.Linear(alpha=alpha), window=WINDOW, algorithm="exact").fit(X, y)
        np.testing.assert_allclose(params["coef"][:, i], own.params_["coef"], rtol=1e-10, atol=1e-11)
