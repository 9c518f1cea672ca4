"""Elastic nets in every window against scikit-learn's, and their optimality conditions."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet

from skjaxwin import RollingJaxEstimator, count_compiles, models, walk_forward_grid
from skjaxwin.datasets import load_us_macro
from skjaxwin.kernels.coordinate_descent import Penalties, conditions, elastic_nets
from tests import reference


def twin(X, y, weight=None, **parameters):
    """Fit scikit-learn's to rounding, whatever it thinks of its tolerance."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return ElasticNet(tol=1e-15, max_iter=100_000, **parameters).fit(X, y, sample_weight=weight)


def correlated(rng, n=220):
    """Five features, four of which are close to each other."""
    X = rng.normal(size=(n, 5))
    X[:, 1:4] = X[:, :1] + 0.1 * X[:, 1:4]
    return X * [1, 10, 1, 0.1, 3] + 5, X @ [1, 1, 0, -1, 0.5] + rng.normal(size=n)


def rolling(alpha=1.0, l1_ratio=0.5, fit_intercept=True, **parameters):
    model = models.ElasticNet(alpha, l1_ratio=l1_ratio, fit_intercept=fit_intercept)
    return RollingJaxEstimator(model, **{"capacity": 256, "window": 60, **parameters})


def violation(X, y, weight, coef, intercept, alpha, l1_ratio):
    """Return by how much the optimality conditions are missed, in units of the gradient's terms."""
    share = weight / weight.sum()
    residual = y - intercept - X @ coef
    gradient = X.T @ (share * residual) - alpha * (1 - l1_ratio) * coef
    limit = alpha * l1_ratio
    missed = np.where(coef != 0, np.abs(gradient - limit * np.sign(coef)), np.maximum(np.abs(gradient) - limit, 0))
    return np.append(missed, np.abs(share @ residual)).max() / (np.abs(X).max() * np.abs(y).max())


@pytest.mark.parametrize("data", ["us_macro", "correlated"])
def test_every_window_is_scikit_learns(rng, data):
    macro = load_us_macro()
    X, y = (macro.data, macro.target) if data == "us_macro" else correlated(rng)
    for alpha, l1_ratio in ((1.0, 0.5), (0.02, 0.5), (0.3, 1.0), (0.05, 0.0)):
        fitted = rolling(alpha, l1_ratio).fit(X, y)
        assert fitted.converged_.all()
        assert fitted.determined_.all()
        for i in range(0, len(X), 7):
            rows = slice(fitted.window_starts_[i], fitted.window_stops_[i])
            coef, intercept = fitted.params_["coef"][i], fitted.params_["intercept"][i]
            assert violation(X[rows], y[rows], np.ones(len(y[rows])), coef, intercept, alpha, l1_ratio) < 1e-10
            if l1_ratio > 0:  # scikit-learn descends slowly without
                expected = twin(X[rows], y[rows], alpha=alpha, l1_ratio=l1_ratio)
                scale = np.abs(expected.coef_).max() + 1e-12
                np.testing.assert_allclose(coef, expected.coef_, atol=1e-7 * scale)
                np.testing.assert_allclose(intercept, expected.intercept_, rtol=1e-7)
                np.testing.assert_array_equal(coef[np.abs(expected.coef_) < 1e-9 * scale], 0)
    single = rolling(0.02).fit(X.astype(np.float32), y.astype(np.float32))
    double = rolling(0.02).fit(X.astype(np.float32).astype(float), y.astype(np.float32).astype(float))
    assert single.params_["coef"].dtype == np.float32
    np.testing.assert_allclose(single.params_["coef"], double.params_["coef"], rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_weights_half_life_time_and_gap(rng):
    X, y = correlated(rng, 150)
    times = (np.arange(150) // 3 + 3.0 * (np.arange(150) // 21)).tolist()
    weight = rng.choice([0.0, 0.5, 1.0, 2.0], size=150)
    estimator = rolling(0.1, time=0, window=12.5, halflife=6.0, gap=1)
    table = np.column_stack([times, X])
    predictions = estimator.walk_forward_predict(table, y, weight)
    windows = reference.window_rows(times, weight, window=12.5)
    newest = [t for t, _ in windows]
    assert estimator.window_times_.tolist() == newest
    fits = []
    for (time, rows), coef in zip(windows, estimator.params_["coef"], strict=True):
        w = weight[rows] * reference.halflife_weights([times[r] for r in rows], time, 6.0)
        fits.append(twin(X[rows], y[rows], w, alpha=0.1))
        np.testing.assert_allclose(coef, fits[-1].coef_, atol=1e-7)
    stamps = reference.stamps_of(times, weight)
    for row, time in enumerate(times):
        i = reference.window_before(time, stamps, newest, gap=1)
        expected = np.nan if i is None else fits[i].predict(X[row : row + 1])[0]
        np.testing.assert_allclose(predictions[row], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_weight_two_is_the_row_twice(rng):
    X, y = correlated(rng, 100)
    times, weight = np.arange(100.0), rng.integers(1, 4, size=100)
    counted = np.repeat(np.arange(100), weight)
    parameters = {"time": 0, "window": 20.0, "halflife": 30.0}
    table = np.column_stack([times, X])
    once = rolling(0.05, **parameters).fit(table, y, weight.astype(float))
    often = rolling(0.05, **parameters).fit(table[counted], y[counted])
    np.testing.assert_allclose(once.params_["coef"], often.params_["coef"], rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_two_targets_and_no_intercept_from_statistics_and_from_rows(rng):
    X, y = correlated(rng, 80)
    Y = np.column_stack([y, 3 * X[:, 4] + rng.normal(size=80)])
    ways = [rolling(0.2, 0.7, False, window=30, algorithm=how).fit(X, Y) for how in ("exact", "refit")]
    assert ways[0].params_["coef"].shape == (80, 2, 5)
    assert ways[0].predict(X).shape == Y.shape
    np.testing.assert_allclose(ways[0].params_["coef"], ways[1].params_["coef"], rtol=1e-8, atol=1e-10)
    for i in range(2, 80, 6):
        rows = slice(max(0, i - 29), i + 1)
        expected = twin(X[rows], Y[rows], alpha=0.2, l1_ratio=0.7, fit_intercept=False)
        np.testing.assert_allclose(ways[0].params_["coef"][i], expected.coef_, atol=1e-7)
    np.testing.assert_array_equal(ways[0].params_["intercept"], 0)


def test_a_grid_compiles_once_and_is_what_single_fits_are(rng):
    X, y = correlated(rng)
    parameters = {"model__alpha": [1.0, 0.1, 0.01], "model__l1_ratio": [0.2, 0.9]}
    walk_forward_grid(rolling(), X[:100], y[:100], param_grid={"model__alpha": [1.0, 2.0, 3.0, 4.0, 5.0]})
    rolling().fit(X[:90], y[:90])
    with count_compiles() as compiles:
        grid = walk_forward_grid(rolling(), X, y, param_grid=parameters)
        for candidate, params in zip(grid.candidates, grid.params, strict=True):
            single = rolling().set_params(**candidate, model__max_iter=500).fit(X, y)
            np.testing.assert_allclose(params["coef"], single.params_["coef"], rtol=1e-12, atol=1e-13)
    assert compiles.count == 0


def test_hard_windows_are_finite_and_leave_others_alone(rng):
    X, y = correlated(rng)
    easy = rolling(0.1).fit(X, y)
    X, y = X.copy(), y.copy()
    y[20] = 1e8
    X[30, 2] = 1e8
    X[100:, 3] = 7.1  # constant from here on
    hard = rolling(0.1).fit(X, y)
    assert hard.converged_.all()
    untouched = slice(91, 100)
    for name in ("coef", "intercept"):
        assert np.isfinite(hard.params_[name]).all()
        np.testing.assert_allclose(hard.params_[name][untouched], easy.params_[name][untouched], rtol=1e-10)
    np.testing.assert_array_equal(hard.params_["coef"][160:, 3], 0)
    assert np.isinf(hard.condition_[160:]).all()
    assert np.isinf(easy.condition_[:5]).all()  # of fewer rows than features
    np.testing.assert_allclose(hard.params_["intercept"][0], y[0])
    for i in (25, 50, 70):
        rows = slice(max(0, i - 59), i + 1)
        coef, intercept = hard.params_["coef"][i], hard.params_["intercept"][i]
        assert violation(X[rows], y[rows], np.ones(len(y[rows])), coef, intercept, 0.1, 0.5) < 1e-13
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        stopped = rolling(0.1).set_params(model__max_iter=2).fit(X, y)
    assert (stopped.n_iter_ <= 2).all()
    assert not stopped.converged_.all()


def test_without_a_penalty_it_is_least_squares(rng):
    X, y = correlated(rng)
    X[:100, 4] = X[:100, 0]
    fitted = rolling(0.0).fit(X, y)
    assert fitted.converged_.all()
    np.testing.assert_array_equal(fitted.determined_[:100], False)
    assert fitted.determined_[102:].all()
    condition = []
    for i in range(6, 220, 9):
        rows = slice(max(0, i - 59), i + 1)
        coef, intercept, _ = reference.least_squares(X[rows], y[rows], np.ones(len(y[rows])))
        found = X[rows] @ fitted.params_["coef"][i] + fitted.params_["intercept"][i]
        np.testing.assert_allclose(found, X[rows] @ coef + intercept, rtol=1e-7, atol=1e-7)
        if i >= 102:
            np.testing.assert_allclose(fitted.params_["coef"][i], coef, rtol=1e-8, atol=1e-10)
            inflation = np.diag(np.linalg.inv(np.corrcoef(X[rows].T)))
            condition.append(fitted.condition_[i] / np.sqrt(inflation.max()))
    np.testing.assert_allclose(condition, 1, rtol=1e-8)
    as_nan = rolling(0.0, underdetermined="nan").fit(X, y)
    np.testing.assert_array_equal(np.isnan(as_nan.params_["coef"]).all(axis=1), ~as_nan.determined_)


def problems(rng, n, k=12, spread=1.0):
    """Gram matrices of features with a common factor `spread` times as large as their own parts."""
    A = rng.normal(size=(n, 40, k)) + spread * rng.normal(size=(n, 40, 1))
    y = A @ rng.normal(size=k) + rng.normal(size=(n, 40))
    gram, cross = np.einsum("nij,nik->jkn", A, A) / 40, np.einsum("nij,ni->jn", A, y)[None] / 40
    return gram, cross, (y**2).mean(axis=1)[None]


def penalties(n, alphas, max_iter=1000):
    absolute, square, tol = np.outer(alphas, np.ones(n)), np.outer(alphas, np.ones(n)) * 0.01, 1e-10
    return Penalties(absolute, square, np.full_like(square, tol), np.full_like(square, float(max_iter)))


def solve(*arguments):
    with jax.enable_x64(True):
        return jax.tree_util.tree_map(np.asarray, jax.jit(elastic_nets)(*arguments))


def test_slow_problems_take_few_sweeps_and_change_nothing_for_others(rng):
    n, alphas = 300, [1.0, 0.1, 0.001]
    gram, cross, square = problems(rng, n)
    hard = problems(rng, 10, spread=1e3)
    alone = solve(gram, cross, square, penalties(n, alphas))
    for whole, part in zip((gram, cross, square), hard, strict=True):
        whole[..., 5::30] = part
    mixed = solve(gram, cross, square, penalties(n, alphas))
    others = np.arange(n) % 30 != 5
    np.testing.assert_array_equal(mixed.coef[..., others], alone.coef[..., others])
    assert mixed.converged.all()
    # A million times their own variance in common: sweeps alone would take more than a hundred thousand.
    assert mixed.n_iter.max() < 60
    assert np.median(mixed.n_iter) < 24
    for c, alpha in enumerate(alphas):
        b = mixed.coef[c, 0]
        gradient = cross[0] - np.einsum("jkn,kn->jn", gram, b) - 0.01 * alpha * b
        missed = np.where(b != 0, np.abs(gradient - alpha * np.sign(b)), np.maximum(np.abs(gradient) - alpha, 0))
        assert (missed / np.sqrt(np.einsum("jjn->jn", gram) * square)).max() < 1e-9


@pytest.mark.slow
def test_batches_of_windows_and_of_penalties_are_all_problems_at_once(rng):
    n, alphas = 40, np.array([1.0, 0.1, 0.001])
    gram, cross, square = problems(rng, n)
    whole = solve(gram, cross, square, penalties(n, alphas))
    one = penalties(n, [1.0])
    over = Penalties(0, 0, None, None)
    batch = Penalties(alphas[:, None, None] * one.absolute, alphas[:, None, None] * one.square, one.tol, one.max_iter)
    with jax.enable_x64(True):
        by_candidate = jax.jit(jax.vmap(elastic_nets, (None, None, None, over)))(gram, cross, square, batch)
        halves = [np.moveaxis(a.reshape(*a.shape[:-1], 2, -1), -2, 0) for a in (gram, cross, square)]
        some = penalties(n // 2, alphas)
        by_window = jax.jit(jax.vmap(elastic_nets, (0, 0, 0, None)))(*halves, some)
        condition = np.asarray(jax.jit(conditions)(gram))
    inflation = [np.diag(np.linalg.inv(gram[..., i])) * np.diag(gram[..., i]) for i in range(n)]
    np.testing.assert_allclose(condition, np.sqrt(np.max(inflation, axis=1)), rtol=1e-9)
    for name in ("coef", "n_iter", "converged"):
        np.testing.assert_array_equal(np.asarray(getattr(by_candidate, name))[:, 0], getattr(whole, name))
        parts = np.concatenate(list(np.asarray(getattr(by_window, name))), axis=-1)
        np.testing.assert_array_equal(parts, getattr(whole, name))


@pytest.mark.parametrize(
    "wrong", [{"alpha": -1.0}, {"l1_ratio": 1.5}, {"l1_ratio": "half"}, {"tol": -1.0}, {"max_iter": 0}]
)
def test_bad_parameters_are_named(rng, wrong):
    X, y = correlated(rng, 20)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        RollingJaxEstimator(models.ElasticNet(**wrong)).fit(X, y)


def test_a_window_without_a_solution_to_be_found_does_not_hold_up_the_others(rng):
    """Rounding hides what tells the features of one window apart: slopes would be taken in and out for ever."""
    X = rng.normal(size=(200, 10))
    y = X @ np.arange(10.0) + rng.normal(size=200)
    rolling = RollingJaxEstimator(models.ElasticNet(0.1), window=100, min_periods=100)
    clean = clone(rolling).fit(X, y).params_["coef"]
    X[-1] = 1e8
    with pytest.warns(ConvergenceWarning, match="1 of 101"):
        rolling.fit(X, y)
    assert np.flatnonzero(~rolling.converged_).tolist() == [100]
    assert rolling.n_iter_[-1] < 100 <= rolling.model.max_iter
    np.testing.assert_allclose(rolling.params_["coef"][:-1], clean[:-1], rtol=1e-9, atol=1e-12)
