"""Standard errors robust to correlation within clusters, against statsmodels on single windows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

from skjaxwin import RollingJaxEstimator, models

WINDOW = {"window": 100, "min_periods": 100, "step": 50, "inference": "cluster"}
PEERS = {
    "linear": (models.Linear(), lambda y, X, w: sm.WLS(y, X, weights=w)),
    "poisson": (models.Poisson(alpha=0.0), lambda y, X, w: sm.GLM(y, X, family=sm.families.Poisson(), var_weights=w)),
}


def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 2))
    firm = rng.integers(0, 13, 250)
    y = rng.poisson(np.exp(X @ [0.5, -0.2] + 0.5 * rng.normal(size=13)[firm])).astype(float)
    return X, y, firm, rng.uniform(0.5, 2.0, 250)


@pytest.mark.slow(all_but=["linear"])
@pytest.mark.filterwarnings("ignore:.*var_weights")
@pytest.mark.parametrize("name", list(PEERS))
def test_errors_equal_those_of_statsmodels(name):
    X, y, firm, weight = data()
    model, peer = PEERS[name]
    names = np.array([f"firm {i}" for i in range(13)], object)
    frame = pd.DataFrame(X, columns=["x", "z"])
    frame.insert(1, "firm", names[firm])
    rolling = RollingJaxEstimator(model, cluster="firm", **WINDOW).fit(frame, y, sample_weight=weight)
    assert rolling.n_features_in_ == 3 and rolling.params_["coef"].shape[1] == 2
    by_position = RollingJaxEstimator(model, cluster=-1, **WINDOW).fit(
        np.column_stack([X, firm]), y, sample_weight=weight
    )
    for i, (first, last) in enumerate(zip(rolling.window_starts_, rolling.window_stops_, strict=True)):
        rows = slice(first, last)
        expected = peer(y[rows], sm.add_constant(X[rows]), weight[rows]).fit(
            cov_type="cluster", cov_kwds={"groups": firm[rows]}, **({} if name == "linear" else {"tol": 1e-13})
        )
        found = np.append(rolling.standard_errors_["intercept"][i], rolling.standard_errors_["coef"][i])
        np.testing.assert_allclose(found, expected.bse, rtol=1e-6)
    np.testing.assert_allclose(by_position.standard_errors_["coef"], rolling.standard_errors_["coef"], rtol=1e-12)
    np.testing.assert_array_equal(by_position.predict(np.column_stack([X, firm])), rolling.predict(frame))


def test_with_a_time_column_in_any_order():
    X, y, firm, _ = data()
    day = np.arange(250) // 5
    table = np.column_stack([day, X, firm])
    order = np.random.default_rng(1).permutation(250)
    options = {"time": 0, "cluster": 3, "window": 20, "min_periods": 60, "inference": "cluster"}
    rolling = RollingJaxEstimator(models.Linear(), **options).fit(table[order], y[order])
    rows = day > day[-1] - 20
    expected = sm.OLS(y[rows], sm.add_constant(X[rows])).fit(cov_type="cluster", cov_kwds={"groups": firm[rows]})
    np.testing.assert_allclose(rolling.standard_errors_["coef"][-1], expected.bse[1:], rtol=1e-7)


def test_one_cluster_has_no_spread():
    X, y, _, _ = data()
    rolling = RollingJaxEstimator(models.Linear(), cluster=2, **WINDOW).fit(np.column_stack([X, np.ones(250)]), y)
    assert np.isnan(rolling.standard_errors_["coef"]).all()


@pytest.mark.parametrize("kind", ["numbers", "names", "dates"])
def test_rows_without_a_cluster(kind):
    X, y, firm, _ = data()
    gone = np.arange(250) % 5 == 0
    column = {
        "numbers": firm.astype(float),
        "names": np.array([f"firm {i}" for i in range(13)], object)[firm],
        "dates": np.datetime64("2020-01-01", "ns") + firm * np.timedelta64(1, "D"),
    }[kind]
    column[gone] = {"numbers": np.nan, "names": None, "dates": np.datetime64("NaT", "ns")}[kind]
    frame = pd.DataFrame(X, columns=["x", "z"]).assign(firm=column)
    options = {"cluster": "firm", "min_periods": 100, "inference": "cluster"}
    with pytest.raises(ValueError, match="cluster='firm': row 0 has no cluster.*skip"):
        RollingJaxEstimator(models.Linear(), **options).fit(frame, y)
    rolling = RollingJaxEstimator(models.Linear(), missing="skip", **options).fit(frame, y)
    expected = sm.OLS(y[~gone], sm.add_constant(X[~gone])).fit(cov_type="cluster", cov_kwds={"groups": firm[~gone]})
    np.testing.assert_allclose(rolling.coef_, expected.params[1:], rtol=1e-9)
    np.testing.assert_allclose(rolling.standard_errors_["coef"][-1], expected.bse[1:], rtol=1e-9)


def test_mistakes():
    X, y, firm, _ = data()
    table = np.column_stack([X, firm])
    with pytest.raises(ValueError, match="needs cluster="):
        RollingJaxEstimator(inference="cluster").fit(table, y)
    with pytest.raises(ValueError, match="cluster=7 is not a column"):
        RollingJaxEstimator(cluster=7).fit(table, y)
    with pytest.raises(ValueError, match="cluster='firm' names a column, but X has no column names"):
        RollingJaxEstimator(cluster="firm").fit(table, y)
    with pytest.raises(ValueError, match="time and cluster name the same column"):
        RollingJaxEstimator(cluster=2, time=-1).fit(table, y)
    with pytest.raises(ValueError, match="minimum of 2 is required: the cluster column and at least one feature"):
        RollingJaxEstimator(cluster=0).fit(table[:, :1], y)
