"""The loop over growing windows, `X[X[:, 0] <= t]` for every t, in three ways.

A statistic with one hyperparameter is computed on the rows known at each of 100 times, for five
values of the hyperparameter:

1. naive JAX: a jitted function called on each slice. Every slice has a new shape, so JAX compiles
   once per window.
2. skjaxwin: the same statistic as a window model, with the time column named. One compile in all.
   (A function of your own, in `models.Custom`, is compiled once more, on a few rows, to check that
   rows of weight zero do not count.)
3. NumPy, which compiles nothing.

The three agree to 1e-10. The script prints compiles and seconds, compile time included.
For a statistic this cheap NumPy needs no help; the comparison is between the two ways to use JAX.

    python examples/growing_window.py          moments of two features, about 15 s on 2 cores
    python examples/growing_window.py tilted   an exponentially tilted mean, as a function of one's own
    python examples/growing_window.py ridge    ridge regression, likewise; 25 to 45 s on jax 0.10
"""

import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from skjaxwin import RollingJaxEstimator, count_compiles, models

N_ROWS, N_FEATURES, N_WINDOWS = 2000, 2, 100


def moment(X, y, weight, value):
    """Mean of each feature's power."""
    return weight @ X**value / jnp.sum(weight)


def tilted_mean(X, y, weight, value):
    """Mean of y with the weights exp(value * x)."""
    share = weight * jnp.exp(value * X[:, 0])
    return jnp.sum(share * y) / jnp.sum(share)


def ridge(X, y, weight, value):
    """Slopes of ridge regression through the origin."""
    weighted = X.T * weight
    return jnp.linalg.solve(weighted @ X + value * jnp.eye(X.shape[1]), weighted @ y)


def numpy_moment(X, y, value):
    return np.mean(X**value, axis=0)


def numpy_tilted_mean(X, y, value):
    share = np.exp(value * X[:, 0])
    return np.sum(share * y) / np.sum(share)


def numpy_ridge(X, y, value):
    return np.linalg.solve(X.T @ X + value * np.eye(X.shape[1]), X.T @ y)


def naive_jax(function, X, y, times, values):
    """Call a jitted function on each growing slice."""
    compiled = jax.jit(function)
    results = []
    with jax.enable_x64(True):
        for t in times:
            known = X[:, 0] <= t
            features, target, weight = X[known, 1:], y[known], np.ones(known.sum())
            results.append([np.asarray(compiled(features, target, weight, value)) for value in values])
    return np.array(results)


def one_compile(model, name, X, y, values):
    """Fit every window through the package; column 0 is the time."""
    rolling = RollingJaxEstimator(model, time=0, step=N_ROWS // N_WINDOWS)
    results = [rolling.set_params(**{f"model__{name}": value}).fit(X, y).params_ for value in values]
    return np.stack([params["mean"] if name == "power" else params for params in results], axis=1)


def plain_numpy(function, X, y, times, values):
    results = []
    for t in times:
        known = X[:, 0] <= t
        results.append([function(X[known, 1:], y[known], value) for value in values])
    return np.array(results)


def timed(function, *arguments):
    """Return the result, the number of compiles and the seconds."""
    with count_compiles() as compiles:
        start = time.perf_counter()
        result = function(*arguments)
        seconds = time.perf_counter() - start
    return result, compiles.count, seconds


WAYS = {  # the statistic in JAX, in NumPy, as a window model, and its hyperparameter there
    "moments": (moment, numpy_moment, models.Moments(), "power"),
    "tilted": (tilted_mean, numpy_tilted_mean, models.Custom(fit=tilted_mean, value=1.0), "value"),
    "ridge": (ridge, numpy_ridge, models.Custom(fit=ridge, value=1.0), "value"),
}


def main(way="moments"):
    in_jax, in_numpy, model, name = WAYS[way]
    rng = np.random.default_rng(0)
    features = rng.uniform(0.5, 2.0, size=(N_ROWS, N_FEATURES))
    X = np.column_stack([np.arange(N_ROWS) / 20, features])
    y = features @ rng.normal(size=N_FEATURES) + rng.normal(size=N_ROWS)
    times = X[N_ROWS // N_WINDOWS - 1 :: N_ROWS // N_WINDOWS, 0]
    values = [0.01, 0.1, 0.5, 1.0, 2.0]

    with jax.enable_x64(True):  # start JAX before the clock runs, for both ways that use it
        jax.jit(in_jax)(X[:7, 1:], y[:7], np.ones(7), 1.0).block_until_ready()
    ours, our_compiles, our_seconds = timed(one_compile, model, name, X, y, values)
    theirs, their_compiles, their_seconds = timed(naive_jax, in_jax, X, y, times, values)
    plain, _, plain_seconds = timed(plain_numpy, in_numpy, X, y, times, values)

    for result in (ours, theirs):
        np.testing.assert_allclose(result, plain, rtol=1e-10, atol=1e-10)
    assert our_compiles == (1 if way == "moments" else 2), our_compiles
    assert their_compiles == len(times), their_compiles
    print(f"{len(times)} windows x {len(values)} values, n = {N_ROWS}; the same numbers to 1e-10")
    print(f"{'':18}  compiles   seconds")
    print(f"{'naive jax.jit':18}  {their_compiles:8}  {their_seconds:8.2f}")
    print(f"{'skjaxwin':18}  {our_compiles:8}  {our_seconds:8.2f}")
    print(f"{'NumPy':18}  {0:8}  {plain_seconds:8.2f}")
    print(f"skjaxwin is {their_seconds / our_seconds:.0f} times faster than the naive loop, compile time included")


if __name__ == "__main__":
    main(*sys.argv[1:])
