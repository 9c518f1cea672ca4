"""Who is in a union: logistic regression on a panel of workers, expanding by year, with errors clustered by worker.

545 young men were asked every year from 1980 to 1987 (Vella and Verbeek, 1998). Rows of a year enter together; each
year is predicted by the fit on all years before it. A worker's answers are far from independent, so standard errors
add up his scores first; the table shows what ignoring that would have claimed.

The data come with the package linearmodels (pip install linearmodels). python examples/union_panel.py [FIGURE]
"""

import importlib.util
import sys

import numpy as np
from sklearn.metrics import log_loss, roc_auc_score

from skjaxwin import RollingJaxEstimator, models

FEATURES = ["educ", "exper", "black", "hisp", "married"]


def load():
    """Return the panel, or None if the package with the data is not installed."""
    if importlib.util.find_spec("linearmodels") is None:
        print("nothing to show: the data come with the package linearmodels (pip install linearmodels)")
        return None
    from linearmodels.datasets import wage_panel

    return wage_panel.load()


def plot(rolling, clustered, path):
    """Draw the coefficients by year, with two clustered standard errors to each side."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    years = rolling.window_times_
    for i, name in enumerate(FEATURES):
        coef, error = clustered.params_["coef"][:, i], clustered.standard_errors_["coef"][:, i]
        axis.errorbar(years + 0.08 * (i - 2), coef, yerr=2 * error, capsize=2, label=name)
    axis.axhline(0, color="black", linewidth=0.5)
    axis.set_xlabel("last year of the window")
    axis.set_ylabel("log odds of membership, +- 2 errors clustered by worker")
    axis.legend()
    figure.savefig(path, dpi=120)


def main():
    """Fit, print, and draw if a path is given."""
    panel = load()
    if panel is None:
        return
    X, union = panel[[*FEATURES, "year", "nr"]], panel["union"].to_numpy()
    common = {"time": "year", "cluster": "nr"}
    rolling = RollingJaxEstimator(models.Logistic(C=1.0), **common)
    probability = rolling.walk_forward_predict(X, union, method="predict_proba")[:, 1]
    print("year  rows  members  AUC out of sample  log loss  that of the share so far")
    year = panel["year"].to_numpy()
    for this in np.unique(year)[1:]:
        rows, past = year == this, year < this
        base = np.full(rows.sum(), union[past].mean())
        area, loss = roc_auc_score(union[rows], probability[rows]), log_loss(union[rows], probability[rows])
        known = log_loss(union[rows], base)
        print(f"{this}  {rows.sum():4}  {union[rows].mean():7.2f}  {area:17.2f}  {loss:8.3f}  {known:23.3f}")
    unpenalised = models.Logistic(C=np.inf)
    clustered = RollingJaxEstimator(unpenalised, inference="cluster", **common).fit(X, union)
    naive = RollingJaxEstimator(unpenalised, inference="nonrobust", **common).fit(X, union)
    ratio = clustered.standard_errors_["coef"][-1] / naive.standard_errors_["coef"][-1]
    print("\nall years   coefficient  clustered error  times the naive one")
    for i, name in enumerate(FEATURES):
        error = clustered.standard_errors_["coef"][-1, i]
        print(f"{name:10}  {clustered.coef_[i]:11.3f}  {error:15.3f}  {ratio[i]:19.1f}")
    print(
        "Membership is hardly predictable from these features; and naive errors pretend to more workers than there are."
    )
    if len(sys.argv) > 1:
        plot(rolling, clustered, sys.argv[1])


if __name__ == "__main__":
    main()
