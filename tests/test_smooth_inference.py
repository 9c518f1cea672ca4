"""Standard errors of logistic, Poisson, Gamma and Tweedie regression, against statsmodels on single windows."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm

from skjaxwin import RollingJaxEstimator, models

FAMILIES = {
    "logistic": (models.Logistic(C=np.inf), sm.families.Binomial()),
    "poisson": (models.Poisson(alpha=0.0), sm.families.Poisson()),
    "gamma": (models.Gamma(alpha=0.0), sm.families.Gamma(sm.families.links.Log())),
    "tweedie": (models.Tweedie(1.5, alpha=0.0), sm.families.Tweedie(var_power=1.5, link=sm.families.links.Log())),
}
WINDOW = {"window": 100, "min_periods": 100, "step": 50}


def data(family):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) * [1.0, 20.0] + [0.0, 100.0]
    eta = (X - [0.0, 100.0]) @ [0.5, 0.02]
    draw = {
        "logistic": lambda: (eta + rng.logistic(size=300) > 0).astype(int),
        "poisson": lambda: rng.poisson(np.exp(eta)),
    }
    return X, draw.get(family, lambda: rng.gamma(3.0, np.exp(eta)))()


@pytest.mark.slow(all_but=["logistic-nonrobust-False"])
@pytest.mark.filterwarnings("ignore")  # statsmodels warns of weights
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("inference", ["nonrobust", "HC0", "HC1", "HAC"])
@pytest.mark.parametrize("family", list(FAMILIES))
def test_errors_equal_those_of_statsmodels(family, inference, weighted):
    X, y = data(family)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 300) if weighted else None
    model, peer = FAMILIES[family]
    rolling = RollingJaxEstimator(model, inference=inference, hac_maxlags=3, **WINDOW).fit(X, y, sample_weight=weight)
    assert not hasattr(rolling, "r2_")
    for i, (first, last) in enumerate(zip(rolling.window_starts_, rolling.window_stops_, strict=True)):
        own = None if weight is None else weight[first:last]
        expected = sm.GLM(y[first:last], sm.add_constant(X[first:last]), family=peer, var_weights=own).fit(
            # statsmodels' GLM leaves HC1 uncorrected.
            cov_type="HC0" if inference == "HC1" else inference,
            cov_kwds={"maxlags": 3} if inference == "HAC" else None,
            tol=1e-13,
            maxiter=200,
        )
        found = np.append(rolling.standard_errors_["intercept"][i], rolling.standard_errors_["coef"][i])
        factor = np.sqrt(100 / 97) if inference == "HC1" else 1
        np.testing.assert_allclose(found, expected.bse * factor, rtol=1e-6)
        slopes = rolling.params_["coef"][i] / rolling.standard_errors_["coef"][i]
        np.testing.assert_allclose(rolling.t_values_["coef"][i], slopes)


@pytest.mark.slow
def test_no_intercept_and_default_lags():
    X, y = data("poisson")
    model = models.Poisson(alpha=0.0, fit_intercept=False)
    rolling = RollingJaxEstimator(model, inference="HAC", **WINDOW).fit(X / 20, y)
    assert set(rolling.standard_errors_) == {"coef"}
    expected = sm.GLM(y[-100:], X[-100:] / 20, family=sm.families.Poisson()).fit(
        cov_type="HAC", cov_kwds={"maxlags": 4}, tol=1e-13
    )
    np.testing.assert_allclose(rolling.standard_errors_["coef"][-1], expected.bse, rtol=1e-6)


@pytest.mark.slow
def test_a_new_kind_of_errors_compiles_nothing(compiled):
    X, y = data("gamma")
    RollingJaxEstimator(models.Gamma(alpha=0.0), inference="HC0", **WINDOW).fit(X, y)
    before = len(compiled)
    for inference in ("nonrobust", "HC1", "HAC"):
        RollingJaxEstimator(models.Gamma(alpha=0.0, tol=1e-6), inference=inference, **WINDOW).fit(X, y)
    assert len(compiled) == before


@pytest.mark.slow
def test_windows_without_errors():
    X, y = data("poisson")
    y[:150] = 0
    rolling = RollingJaxEstimator(models.Poisson(alpha=0.0), inference="HC0", **WINDOW).fit(X, y)
    empty = ~rolling.determined_
    assert empty.any() and not empty.all()
    assert np.isnan(rolling.standard_errors_["coef"][empty]).all()
    assert np.isfinite(rolling.standard_errors_["coef"][~empty]).all()


@pytest.mark.slow
def test_what_has_no_errors():
    X, y = data("logistic")
    with pytest.raises(ValueError, match=r"needs C=numpy.inf"):
        RollingJaxEstimator(models.Logistic(), inference="HC0").fit(X, y)
    with pytest.raises(ValueError, match=r"needs alpha=0"):
        RollingJaxEstimator(models.Poisson(), inference="HC0").fit(X, y)
    with pytest.raises(ValueError, match="two classes"):
        RollingJaxEstimator(models.Logistic(C=np.inf), inference="HC0", min_periods=50).fit(X, np.arange(300) % 3)
