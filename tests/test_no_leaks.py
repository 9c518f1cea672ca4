"""What comes later changes no prediction, and noise is not predicted, for every model, window and gap."""

from __future__ import annotations

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score

from skjaxwin import RollingJaxEstimator, models, walk_forward_grid

N = 120


def bend(params, X):
    return params["level"] + params["slope"] * jnp.tanh(X[:, 0])


def weighted_mean(X, y, weight):
    return jnp.sum(weight * y) / jnp.sum(weight)


FAMILIES = {
    "ridge": models.Linear(1.0),
    "lasso": models.ElasticNet(0.01),
    "logistic": models.Logistic(),
    "poisson": models.Poisson(0.1),
    "gamma": models.Gamma(0.1),
    "tweedie": models.Tweedie(1.5, alpha=0.1),
    "huber": models.Huber(),
    "quantile": models.Quantile(0.5, alpha=0.01),
    "curve": models.LeastSquares(bend, {"level": 0.0, "slope": 0.0}),
    "loss": models.Loss(lambda p, X, y: (y - X @ p) ** 2, np.zeros(2), predict=lambda p, X: X @ p),
    "mean of one's own": models.Custom(weighted_mean, lambda p, X: p + 0 * X[:, 0]),
}
WINDOWS = {"expanding": {"window": "expanding"}, "30 stamps": {"window": 30}, "a duration": {"window": 31.0, "time": 0}}
families = pytest.mark.parametrize(
    ("name", "window"),
    [
        pytest.param(name, window, marks=[] if name == "ridge" else pytest.mark.slow)
        for name in FAMILIES
        for window in WINDOWS
    ],
)


def noise(name, seed):
    """Return features and a target that have nothing to do with each other."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(N, 2)), rng.normal(size=N)
    if name == "logistic":
        return X, np.where(y > 0, "up", "down")
    if name in ("poisson", "gamma", "tweedie"):
        return X, rng.poisson(2.0, size=N) if name == "poisson" else rng.gamma(3.0, size=N)
    return X, y


def walk(name, window, gap, X, y):
    """Predict out of sample; the newest of several rows of a time is the last."""
    rolling = RollingJaxEstimator(FAMILIES[name], min_periods=20, gap=gap, **WINDOWS[window])
    if "time" in WINDOWS[window]:
        X = np.column_stack([np.arange(N), X])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return rolling.walk_forward_predict(X, y, method="predict_proba" if name == "logistic" else "predict")


@families
@pytest.mark.parametrize("gap", [0, 3])
def test_what_comes_later_changes_no_prediction(name, window, gap):
    X, y = noise(name, 0)
    before = walk(name, window, gap, X, y)
    changed, cut = y.copy(), 80
    changed[cut:] = y[cut:][::-1]
    assert (changed[cut:] != y[cut:]).mean() > 0.2
    after = walk(name, window, gap, X, changed)
    last = cut + gap  # whose windows end before the cut
    np.testing.assert_allclose(after[: last + 1], before[: last + 1], rtol=1e-6, atol=1e-8)
    assert not np.allclose(after[last + 1 :], before[last + 1 :], rtol=1e-3)
    assert np.isfinite(before[20 + gap :]).all() and np.isnan(before[: 20 + gap]).all()


@families
@pytest.mark.parametrize("gap", [0, 3])
def test_noise_is_not_predicted(name, window, gap):
    """The mean score of 12 series is not above that of a guess by 3 standard errors."""
    scores = []
    for seed in range(12):
        X, y = noise(name, 100 + seed)
        found = walk(name, window, gap, X, y)
        known = np.isfinite(found if found.ndim == 1 else found[:, 0])
        if name == "logistic":
            share = max(np.mean(y[known] == "up"), np.mean(y[known] == "down"))
            labels = np.array(["down", "up"])[found[known].argmax(axis=1)]
            scores.append(accuracy_score(y[known], labels) - share)
        else:
            scores.append(r2_score(y[known], found[known]))
    assert np.mean(scores) < 3 * np.std(scores) / np.sqrt(len(scores))


def test_a_prediction_that_has_seen_its_row_would_be_found_out():
    """The same comparison of predictions by windows that end with the row itself."""
    scores = []
    for seed in range(12):
        X, y = noise("ridge", 100 + seed)
        params = RollingJaxEstimator(models.Linear(1.0), window=30, min_periods=20).fit(X, y).params_
        same_row = (X[19:] * params["coef"]).sum(axis=1) + params["intercept"]
        scores.append(r2_score(y[19:], same_row))
    assert np.mean(scores) > 3 * np.std(scores) / np.sqrt(len(scores))


@pytest.mark.slow
def test_the_whole_grid_predicts_no_noise():
    grid = {"model__alpha": [0.1, 10.0], "window": [30, "expanding"], "gap": [0, 3], "halflife": [None, 20.0]}
    scores = []
    for seed in range(12):
        X, y = noise("ridge", 200 + seed)
        walked = walk_forward_grid(RollingJaxEstimator(models.Linear(), min_periods=20), X, y, param_grid=grid)
        known = np.isfinite(walked.predictions).all(axis=0)
        scores.append([r2_score(y[known], one[known]) for one in walked.predictions])
    scores = np.array(scores)
    assert (scores.mean(axis=0) < 3 * scores.std(axis=0) / np.sqrt(len(scores))).all()
