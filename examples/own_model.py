"""A nonlinear model of one's own on every window: logistic regression by Newton steps.

The question asked of the US macro series: will inflation be higher next quarter than this one?
The model is written as two plain functions. Every expanding window is fitted for five penalties
with one compile, every forecast is strictly out of sample, and the newest fit is compared
with scikit-learn's LogisticRegression on the same rows.
"""

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skjaxwin import RollingJaxEstimator, count_compiles, models, walk_forward_grid
from skjaxwin.datasets import load_us_macro

NEWTON_STEPS = 12


def fit_logistic(X, y, weight, alpha):
    """Minimise the weighted log loss plus alpha / 2 times the squared slopes of standardised columns."""
    total = jnp.sum(weight)
    mean = weight @ X / total
    scale = jnp.sqrt(weight @ (X - mean) ** 2 / total)
    scale = jnp.where(scale > 0, scale, 1.0)
    Z = jnp.column_stack([jnp.ones(len(X)), (X - mean) / scale])
    penalty = jnp.full(Z.shape[1], alpha).at[0].set(0.0)

    def newton_step(_, beta):
        probability = jax.nn.sigmoid(Z @ beta)
        gradient = Z.T @ (weight * (probability - y)) + penalty * beta
        curvature = weight * probability * (1 - probability)
        hessian = (Z.T * curvature) @ Z + jnp.diag(penalty + 1e-9)
        return beta - jnp.linalg.solve(hessian, gradient)

    beta = jax.lax.fori_loop(0, NEWTON_STEPS, newton_step, jnp.zeros(Z.shape[1]))
    return {"beta": beta, "mean": mean, "scale": scale}


def predict_logistic(params, X):
    """Return the probability of a rise."""
    Z = (X - params["mean"]) / params["scale"]
    return jax.nn.sigmoid(params["beta"][0] + Z @ params["beta"][1:])


def main():
    macro = load_us_macro()
    X = macro.data
    rises = (macro.target > X[:, 0]).astype(float)  # column 0 is the inflation of the quarter before
    alphas = [0.1, 1.0, 10.0, 100.0, 1000.0]

    rolling = RollingJaxEstimator(models.Custom(fit_logistic, predict_logistic, alpha=1.0), min_periods=40)
    with count_compiles() as compiles:
        grid = walk_forward_grid(rolling, X, rises, param_grid={"model__alpha": alphas})

    known = np.isfinite(grid.predictions[0])
    count = np.arange(len(rises))
    frequency = (np.cumsum(rises) - rises)[known] / count[known]
    print(f"{len(grid.window_times[0])} windows x {len(alphas)} penalties: {', '.join(compiles.names)}")
    print(f"{known.sum()} quarters predicted, of which {rises[known].mean():.0%} saw a rise")
    print(f"{'':12}  log loss  hits")
    for alpha, probability in zip(alphas, grid.predictions[:, known], strict=True):
        hits = np.mean((probability > 0.5) == (rises[known] > 0.5))
        print(f"alpha {alpha:6g}  {log_loss(rises[known], probability):8.4f}  {hits:4.0%}")
    hits = np.mean((frequency > 0.5) == (rises[known] > 0.5))
    print(f"{'frequency':12}  {log_loss(rises[known], frequency):8.4f}  {hits:4.0%}  (share of rises so far)")

    position = alphas.index(10.0)
    peer = make_pipeline(StandardScaler(), LogisticRegression(C=1 / 10.0, tol=1e-10, max_iter=1000)).fit(X, rises)
    difference = np.abs(grid.params[position]["beta"][-1, 1:] - peer[-1].coef_[0]).max()
    print(f"newest window against scikit-learn's LogisticRegression: slopes differ by at most {difference:.0e}")
    assert difference < 1e-5


if __name__ == "__main__":
    main()
