"""Threads that share arrays and kernels, and kernels that stay below their memory limit."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from skjaxwin import RollingJaxEstimator, models, walk_forward_grid
from skjaxwin.kernels import compile as compiling


def weighted_ridge(X, y, weight, alpha):
    gram = (weight * X.T) @ X + alpha * jnp.eye(X.shape[1], dtype=X.dtype)
    return jnp.linalg.solve(gram, (weight * X.T) @ y)


def apply(params, X):
    return X @ params


# X, y and sample weights in either precision: the *same* arrays for all threads, because JAX
# remembers dtypes by the identity of an array.
RNG = np.random.default_rng(0)
WIDE = RNG.normal(size=(80, 3)), RNG.normal(size=80), RNG.uniform(0.5, 2.0, size=80)
NARROW = tuple(a.astype(np.float32) for a in WIDE)


def in_threads(jobs, n_threads=4, rounds=10):
    """Run all jobs `rounds` times on `n_threads` threads that start together."""
    barrier = threading.Barrier(n_threads)

    def work(thread):
        barrier.wait()
        return [(i, jobs[i]()) for r in range(rounds) for i in [(thread + r) % len(jobs)]]

    with ThreadPoolExecutor(n_threads) as pool:
        return [outcome for part in pool.map(work, range(n_threads)) for outcome in part]


@pytest.mark.slow(all_but=["True"])
@pytest.mark.timeout(180)
@pytest.mark.parametrize("warm", [True, False])
def test_threads_in_both_precisions_do_not_disturb_each_other(warm):
    # `warm`: kernels exist already. Otherwise the first call of each happens in four threads at once.
    capacity = 128 if warm else 200
    makers = [
        lambda: RollingJaxEstimator(models.Linear(alpha=0.1), window=20, capacity=capacity),
        lambda: RollingJaxEstimator(models.Custom(weighted_ridge, apply, alpha=0.5), capacity=capacity),
    ]

    def job(make, data):
        X, y, weight = data
        rolling = make().fit(X, y, weight)
        return jax.tree_util.tree_leaves(rolling.params_) + [rolling.predict(X)]

    jobs = [lambda m=make, d=data: job(m, d) for make in makers for data in (WIDE, NARROW)]
    serial = [run() for run in jobs] if warm else None
    outcomes = in_threads(jobs)
    serial = serial or [run() for run in jobs]
    for i, found in outcomes:
        for a, b in zip(found, serial[i], strict=True):
            assert a.dtype == (np.float64, np.float32)[i % 2]
            np.testing.assert_array_equal(a, b)
    for wide, narrow in ((0, 1), (2, 3)):
        for a, b in zip(serial[wide], serial[narrow], strict=True):
            late = slice(10, None) if len(a) == 80 else slice(None)
            np.testing.assert_allclose(b[late], a[late], rtol=1e-2, atol=1e-3)


@pytest.mark.timeout(180)
def test_threads_leave_each_others_jax_settings_alone():
    def job(data):
        RollingJaxEstimator(models.Linear(), capacity=128).fit(*data)
        return jnp.asarray(data[0]).dtype

    # jnp.asarray of a shared array outside the package: what a user's thread sees.
    for _, dtype in in_threads([lambda: job(WIDE), lambda: job(NARROW)]):
        assert dtype == np.float32  # jax's default, whatever another thread is doing


SOLVERS = """
import threading
import jax.numpy as jnp, numpy as np
from skjaxwin import RollingJaxEstimator, models, walk_forward_grid

def two_solves(X, y, weight, alpha):
    # Two solves that do not wait for each other.
    eye = jnp.eye(X.shape[1])
    gram = (weight * X.T) @ X
    right = (weight * X.T) @ y
    single, double = jnp.linalg.solve(gram + alpha * eye, right), jnp.linalg.solve(gram + 2 * alpha * eye, right)
    return {"ridge": single, "double": double}

def apply(params, X):
    a = jnp.linalg.solve(jnp.diag(2 + params["ridge"] ** 2), params["ridge"])
    b = jnp.linalg.solve(jnp.diag(4 + params["double"] ** 2), params["double"])
    return X @ (a - b)

rng = np.random.default_rng(0)
X, y = rng.normal(size=(600, 12)), rng.normal(size=600)
alphas = np.logspace(-1, 2, 16)
rolling = RollingJaxEstimator(models.Custom(two_solves, apply, alpha=1.0), window=40)
results = [None] * 2

def work(i):
    for _ in range(3):
        results[i] = walk_forward_grid(rolling, X, y, param_grid={"model__alpha": alphas})

threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
[t.start() for t in threads]
[t.join() for t in threads]
for result in results:
    for j, alpha in enumerate(alphas):
        for name, factor in (("ridge", 1), ("double", 2)):
            for i in (0, 77, 599):
                rows = slice(max(0, i - 39), i + 1)
                gram = X[rows].T @ X[rows] + factor * alpha * np.eye(12)
                expected = np.linalg.solve(gram, X[rows].T @ y[rows])
                np.testing.assert_allclose(result.params[j][name][i], expected, rtol=1e-9, atol=1e-12)
        a, b = result.params[j]["ridge"][-2], result.params[j]["double"][-2]
        expected = X[-1] @ (a / (2 + a**2) - b / (4 + b**2))
        np.testing.assert_allclose(result.predictions[j][-1], expected, rtol=1e-9, atol=1e-12)
print("done")
"""


@pytest.mark.timeout(200)
def test_solves_side_by_side_do_not_block_each_other():
    # Some versions of jaxlib hang for ever where two batches of at least 200 000 operations meet, here
    # 16 values x 16 windows of 12 unknowns. In a process of its own, a hang fails this test alone.
    done = subprocess.run([sys.executable, "-c", SOLVERS], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"


@pytest.fixture
def calls(monkeypatch):
    """Record (kernel, arguments, dtype) of everything that is run."""
    recorded = []
    original = compiling.run

    def run(compiled, *args, dtype, **keywords):
        recorded.append((compiled, args, dtype))
        return original(compiled, *args, dtype=dtype, **keywords)

    monkeypatch.setattr(compiling, "run", run)
    return recorded


def memory_of(call):
    """Ask XLA what a kernel takes: temporary memory, and memory of its results."""
    compiled, args, dtype = call
    with compiling.scope(dtype):
        analysis = compiled.lower(*jax.tree_util.tree_map(np.array, args)).compile().memory_analysis()
    return analysis.temp_size_in_bytes, analysis.output_size_in_bytes


@pytest.mark.slow(all_but=["2000-60-1000000.0"])
@pytest.mark.parametrize(
    ("n", "window", "max_memory"),
    [(2000, "expanding", 256e6), (2000, "expanding", 8e6), (2000, 60, 1e6), (2000, 60, 256e6)],
)
def test_temporary_memory_stays_below_the_limit_however_many_windows(n, window, max_memory, calls, rng):
    X, y = rng.normal(size=(n, 4)), rng.normal(size=n)
    grid = {"model__alpha": np.logspace(-3, 3, 20)}
    rolling = RollingJaxEstimator(
        models.Linear(), window=window, max_memory=max_memory, capacity=2048, algorithm="refit"
    )
    few = walk_forward_grid(rolling.set_params(step=200), X, y, param_grid=grid)
    kernel = calls[0][0]
    many = walk_forward_grid(rolling.set_params(step=1), X, y, param_grid=grid)
    assert all(call[0] is kernel for call in calls)  # the same kernel, so the same memory
    shapes = {tuple(np.shape(leaf) for leaf in jax.tree_util.tree_leaves(call[1])) for call in calls}
    assert len(shapes) == 1
    temporary, results = memory_of(calls[0])
    assert 0 < temporary + results <= max_memory
    for i in range(20):
        np.testing.assert_allclose(many.params[i]["coef"][199::200], few.params[i]["coef"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("max_memory", [1e5, 1e6, 256e6])
def test_the_limit_changes_no_result(max_memory, rng):
    X, y = rng.normal(size=(150, 2)), rng.normal(size=150)
    usual = RollingJaxEstimator(models.Linear(alpha=0.3), window=30).fit(X, y)
    fitted = RollingJaxEstimator(models.Linear(alpha=0.3), window=30, max_memory=max_memory).fit(X, y)
    np.testing.assert_allclose(fitted.params_["coef"], usual.params_["coef"], rtol=1e-11, atol=1e-13)
    assert fitted.window_stops_.tolist() == list(range(1, 151))


def test_a_users_model_stays_below_the_limit_too(calls, rng):
    # An outer product for each row: 100 x 100 numbers times 512 rows is 41 MB for a single window.
    def outer(X, y, weight):
        products = X[:, :, None] * X[:, None, :]
        spread = jnp.sort(products, axis=1)  # keeps XLA from fusing the products away
        return {"gram": jnp.einsum("n,nij->ij", weight, spread) / jnp.sum(weight)}

    X = rng.normal(size=(500, 100))
    rolling = RollingJaxEstimator(models.Custom(fit=outer), step=100, max_memory=256e6).fit(X)
    assert rolling.params_["gram"].shape == (5, 100, 100)
    temporary, results = memory_of(calls[-1])
    assert temporary + results <= 256e6


@pytest.mark.slow(all_but=["8000000.0-exact"])
@pytest.mark.parametrize("algorithm", ["exact", "auto"])
@pytest.mark.parametrize("max_memory", [8e6, 256e6])
def test_merged_statistics_and_lanes_stay_below_the_limit(algorithm, max_memory, calls, rng):
    X, y = rng.normal(size=(12_000, 4)), rng.normal(size=(12_000, 30))
    fitted = RollingJaxEstimator(models.Linear(), window=100, algorithm=algorithm, max_memory=max_memory).fit(X, y)
    assert {call[0].__name__ for call in calls} <= {"fit_groups", "fit_lanes", "fit_windows"}
    large = [call for call in calls if call[0].__name__ in ("fit_groups", "fit_lanes")]
    assert large
    temporary, results = memory_of(large[0])
    assert 0 < temporary + results <= max_memory
    design = np.column_stack([np.ones(100), X[-100:]])
    expected = np.linalg.lstsq(design, y[-100:], rcond=None)[0]
    np.testing.assert_allclose(fitted.coef_, expected[1:].T, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_fits_in_four_threads_give_what_one_gives():
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(12_000, 3)), rng.normal(size=12_000)
    jobs = {
        "lanes": (X, {"window": 120}),
        "merges": (X, {"window": 120, "algorithm": "exact"}),
        "single precision": (X.astype(np.float32), {"window": 120}),
        "errors": (X, {"window": 120, "inference": "nonrobust"}),
    }

    def fit(name):
        data, parameters = jobs[name]
        return RollingJaxEstimator(models.Linear(), **parameters).fit(data, y).params_["coef"]

    alone = {name: fit(name) for name in jobs}
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(fit, list(jobs) * 6))
    for name, coef in zip(list(jobs) * 6, together, strict=True):
        np.testing.assert_array_equal(coef, alone[name], err_msg=name)
