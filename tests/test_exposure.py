"""Counts over exposures of different size, against statsmodels' offsets on single windows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.base import clone
from sklearn.linear_model import PoissonRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import TimeSeriesSplit, cross_val_score

from skjaxwin import RollingJaxEstimator, WindowSearchCV, models, walk_forward_grid

WINDOW = {"window": 100, "min_periods": 100, "step": 50}


@pytest.fixture(scope="module")
def claims():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(250, 2)), columns=["age", "power"])
    frame.insert(1, "years", rng.uniform(0.1, 5, size=250))
    events = rng.poisson(frame["years"] * np.exp(0.5 * frame["age"] - 0.2 * frame["power"] - 0.3))
    return frame, events.astype(float)


def rates(**parameters):
    return RollingJaxEstimator(models.Poisson(alpha=0.0), **{"exposure": "years", **WINDOW, **parameters})


def of_statsmodels(frame, events, rows, weight=None):
    design = sm.add_constant(frame[["age", "power"]].to_numpy()[rows])
    options = {} if weight is None else {"var_weights": weight[rows]}
    return sm.GLM(
        events[rows], design, family=sm.families.Poisson(), exposure=frame["years"].to_numpy()[rows], **options
    )


@pytest.mark.parametrize("inference", ["nonrobust", pytest.param("HC0", marks=pytest.mark.slow)])
def test_windows_equal_those_of_statsmodels(claims, inference):
    frame, events = claims
    rolling = rates(inference=inference).fit(frame, events)
    assert rolling.n_features_in_ == 3 and rolling.params_["coef"].shape == (4, 2)
    for i, (first, last) in enumerate(zip(rolling.window_starts_, rolling.window_stops_, strict=True)):
        peer = of_statsmodels(frame, events, slice(first, last)).fit(cov_type=inference, tol=1e-13)
        params, errors = rolling.params_, rolling.standard_errors_
        np.testing.assert_allclose([params["intercept"][i], *params["coef"][i]], peer.params, rtol=1e-7)
        np.testing.assert_allclose([errors["intercept"][i], *errors["coef"][i]], peer.bse, rtol=1e-6)
    expected = frame["years"] * np.exp(frame[["age", "power"]] @ rolling.coef_ + rolling.intercept_)
    np.testing.assert_allclose(rolling.predict(frame), expected, rtol=1e-12)
    by_position = clone(rolling).set_params(exposure=1).fit(frame.to_numpy(), events)
    np.testing.assert_array_equal(by_position.predict(frame.to_numpy()), rolling.predict(frame))


@pytest.mark.filterwarnings("ignore:.*var_weights")
def test_with_weights_times_and_rows_that_lack_an_exposure(claims):
    frame, events = claims
    day = np.arange(250) // 2
    order = np.random.default_rng(1).permutation(250)
    weight = np.random.default_rng(2).uniform(0.5, 2, size=250)
    holes = frame.assign(day=day)
    holes.loc[[7, 180], "years"] = np.nan
    rolling = rates(time="day", window=40, min_periods=20, step=1, missing="skip")
    found = np.empty(250)
    found[order] = rolling.walk_forward_predict(holes.iloc[order], events[order], weight[order])
    rows = (day >= 80) & (day < 120) & (np.arange(250) != 180)
    peer = of_statsmodels(frame, events, rows, weight).fit(tol=1e-13)
    test = day == 120
    design = sm.add_constant(frame[["age", "power"]].to_numpy()[test])
    np.testing.assert_allclose(found[test], peer.predict(design, exposure=frame["years"][test]), rtol=1e-7)
    assert np.isnan(found[[7, 180]]).all() and np.isfinite(found[[179, 181]]).all()
    later = clone(rolling)
    later.fit(holes.iloc[:200], events[:200], weight[:200]).partial_fit(holes.iloc[200:], events[200:], weight[200:])
    whole = clone(rolling).fit(holes, events, weight)
    np.testing.assert_allclose(later.params_["coef"], whole.params_["coef"], rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_grids_and_searches(claims):
    frame, events = claims
    alphas = [0.1, 10.0]
    grid = walk_forward_grid(rates(step=1), frame, events, param_grid={"model__alpha": alphas})
    for alpha, found in zip(alphas, grid.predictions, strict=True):
        expected = rates(step=1).set_params(model__alpha=alpha).walk_forward_predict(frame, events)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    known = np.isfinite(grid.predictions[0])
    walk = WindowSearchCV(rates(step=1), {"model__alpha": alphas}, refit=False).fit(frame, events)
    scores = [r2_score(events[known], one[known]) for one in grid.predictions]
    np.testing.assert_allclose(walk.cv_results_["mean_test_score"], scores, rtol=1e-6)
    folds = TimeSeriesSplit(2, max_train_size=120)
    search = WindowSearchCV(rates(min_periods=50), {"model__alpha": [0.1]}, cv=folds, refit=False).fit(frame, events)
    assert "exposure" in search.fallback_reason_
    plain = cross_val_score(rates(min_periods=50).set_params(model__alpha=0.1), frame, events, cv=folds)
    np.testing.assert_allclose([search.cv_results_[f"split{i}_test_score"][0] for i in range(2)], plain, rtol=1e-9)


def test_a_penalty_is_weighed_against_the_sum_of_exposures(claims):
    """As scikit-learn weighs it for rates with exposures as weights."""
    frame, events = claims
    rolling = rates(window="expanding", min_periods=250).set_params(model__alpha=0.3).fit(frame, events)
    twin = PoissonRegressor(alpha=0.3, solver="newton-cholesky", tol=1e-13)
    twin.fit(frame[["age", "power"]], events / frame["years"], sample_weight=frame["years"])
    np.testing.assert_allclose(rolling.coef_, twin.coef_, rtol=1e-7)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.0], r"exposure \('years'\) column must be positive; row 3 holds 0.0"),
        ([-1.0], "row 3 holds -1.0"),
        ([np.nan], "contains NaN"),
        ([np.inf], "infinity"),
    ],
)
def test_bad_exposures_are_named(claims, values, message):
    frame, events = claims
    bad = frame.copy()
    bad.loc[3, "years"] = values[0]
    with pytest.raises(ValueError, match=message):
        rates().fit(bad, events)


def test_what_does_not_go_with_exposures(claims):
    frame, events = claims
    with pytest.raises(ValueError, match=r"exposure='years' is for models.Poisson; Linear takes none"):
        RollingJaxEstimator(exposure="years").fit(frame, events)
    with pytest.raises(ValueError, match="exposure='year' is not a column"):
        rates(exposure="year").fit(frame, events)
    with pytest.raises(ValueError, match="time and exposure name the same column"):
        rates(time="years").fit(frame, events)
    fitted = rates().fit(frame, events)
    with pytest.raises(ValueError, match="exposure changed"):
        fitted.set_params(exposure="power").partial_fit(frame, events)
