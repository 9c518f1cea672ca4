"""RangeEstimator, range_scorer and interval_grid, and searches for a range."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from imblearn.pipeline import make_pipeline as imbalanced_pipeline
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.cluster import KMeans
from sklearn.cross_decomposition import PLSRegression
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import FitFailedWarning
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, KFold, TimeSeriesSplit, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from skjaxwin import (
    RangeEstimator,
    RollingJaxEstimator,
    SubsetSampler,
    SubsetTransformer,
    count_compiles,
    interval_grid,
    models,
    range_scorer,
)

FOLDS = KFold(5, shuffle=True, random_state=0)
RANGES = interval_grid(range(100), widths=[2, 10, 30, 45, 70], step=15)


@pytest.fixture(scope="module")
def signal():
    """One law in [30, 60), another outside; 2000 points in no order."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 100, 2000)
    inside = (x >= 30) & (x < 60)
    y = np.where(inside, 2 * x - 50, 20 * np.sin(x) + 5) + rng.normal(size=2000)
    return np.column_stack([x, rng.normal(size=2000)]), y, inside


@pytest.fixture(scope="module")
def spectra():
    """120 spectra of 160 channels, of which channels 60 to 79 know the target."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 160))
    y = rng.normal(size=120)
    X[:, 60:80] += np.outer(y, np.hanning(22)[1:-1])
    return X, y


MODELS = [
    Ridge(),
    LinearRegression(),
    KNeighborsRegressor(),
    PLSRegression(1),
    make_pipeline(StandardScaler(), Ridge()),  # takes no sample_weight: the scaler, too, must see the range alone
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_fits_and_scores_what_the_estimator_does_on_the_rows_alone(model, signal):
    X, y, inside = signal
    ranged = RangeEstimator(model, 30, 60).fit(X, y)
    alone = clone(model).fit(X[inside], y[inside])
    np.testing.assert_allclose(ranged.predict(X), alone.predict(X), rtol=1e-8, atol=1e-8)
    assert ranged.score(X, y) == pytest.approx(alone.score(X[inside], y[inside]), rel=1e-10)
    assert ranged.mask(X).tolist() == inside.tolist()
    assert is_regressor(ranged) and not is_classifier(ranged)


def test_weights_are_multiplied_and_reach_the_score(signal):
    X, y, inside = signal
    weight = np.random.default_rng(2).integers(0, 3, len(y)).astype(float)
    ranged = RangeEstimator(Ridge(), [30, 50], [40, 60]).fit(X, y, sample_weight=weight)
    rows = inside & ~((X[:, 0] >= 40) & (X[:, 0] < 50))
    alone = Ridge().fit(X[rows], y[rows], sample_weight=weight[rows])
    np.testing.assert_allclose(ranged.predict(X), alone.predict(X))
    expected = alone.score(X[rows], y[rows], sample_weight=weight[rows])
    assert ranged.score(X, y, sample_weight=weight) == pytest.approx(expected)
    scorer = range_scorer("neg_median_absolute_error")
    expected = get_scorer("neg_median_absolute_error")(alone, X[rows], y[rows], sample_weight=weight[rows])
    assert scorer(ranged, X, y, sample_weight=weight) == pytest.approx(expected)
    with pytest.raises(ValueError, match="weights are all zero in the range"):
        RangeEstimator(Ridge(), 30, 60).fit(X, y, sample_weight=~inside)
    with pytest.raises(TypeError, match=r"KNeighborsRegressor.fit takes none"):
        RangeEstimator(KNeighborsRegressor(), 30).fit(X, y, sample_weight=weight)


def test_weights_of_rows_in_range_are_kept_beside_those_of_none(signal):
    X, y, inside = signal
    weight = np.random.default_rng(3).uniform(0.1, 3, len(y))
    first = np.argmax(inside)
    weight[first] = 0  # in range and of no weight: its target is nobody's, either
    ranged = RangeEstimator(Ridge(), 30, 60, rows="weight").fit(X, y, sample_weight=weight)
    alone = Ridge().fit(X[inside], y[inside], sample_weight=weight[inside])
    np.testing.assert_allclose(ranged.predict(X), alone.predict(X))
    assert not np.allclose(alone.predict(X), Ridge().fit(X[inside], y[inside]).predict(X), rtol=1e-5)
    passed = []

    class Spy(Ridge):
        def fit(self, X, y, sample_weight=None):
            passed.append((y, sample_weight))
            return super().fit(X, y, sample_weight)

    RangeEstimator(Spy(), 30, 60, rows="weight").fit(X, y, sample_weight=weight)
    ((targets, weights),) = passed
    np.testing.assert_array_equal(weights, np.where(inside, weight, 0))
    counting = np.flatnonzero(inside & (weight != 0))[0]
    np.testing.assert_array_equal(targets, np.where(inside, y, y[counting]))


def test_weights_keep_the_shape_of_the_data(signal):
    """What is compiled for a shape is compiled once for all ranges."""
    seen = []

    class Spy(Ridge):
        def fit(self, X, y, sample_weight=None):
            seen.append((X.shape, None if sample_weight is None else int(np.sum(sample_weight))))
            return super().fit(X, y, sample_weight)

    X, y, inside = signal
    for start, stop in [(30, 60), (None, None)]:
        RangeEstimator(Spy(), start, stop, rows="weight").fit(X, y)
    assert seen == [(X.shape, inside.sum()), (X.shape, None)]
    # Targets of rows that do not count may be missing, or of classes that the range does not hold.
    holes = np.where(inside, y, np.nan)
    weighted = RangeEstimator(Ridge(), 30, 60, rows="weight").fit(X, holes)
    np.testing.assert_allclose(weighted.predict(X), Ridge().fit(X[inside], y[inside]).predict(X))
    labels = np.where(inside, np.where(X[:, 1] > 0, "a", "b"), "c")
    assert RangeEstimator(LogisticRegression(), 30, 60, rows="weight").fit(X, labels).classes_.tolist() == ["a", "b"]
    with pytest.raises(TypeError, match='rows="weight" needs an estimator whose fit takes sample_weight'):
        RangeEstimator(KNeighborsRegressor(), rows="weight").fit(X, y)


@pytest.mark.parametrize(
    "model",
    [
        SVR(gamma="scale"),
        HistGradientBoostingRegressor(max_iter=3, max_bins=15, early_stopping=True, random_state=0),
        RollingJaxEstimator(models.Linear(), window=100, step=2000, capacity=2000),
    ],
    ids=lambda model: type(model).__name__,
)
def test_estimators_that_look_at_all_rows_see_those_in_range_alone(model, signal):
    X, y, inside = signal
    ranged = RangeEstimator(model, 30, 60).fit(X, np.where(inside, y, np.nan))
    alone = clone(model).fit(X[inside], y[inside])
    np.testing.assert_array_equal(ranged.predict(X), alone.predict(X))


def test_classes_are_those_in_range(signal):
    X, _, inside = signal
    labels = np.where(inside, np.where(X[:, 1] > 0.7, "a", "b"), "c")
    model = LogisticRegression(class_weight="balanced")
    ranged, alone = RangeEstimator(model, 30, 60).fit(X, labels), clone(model).fit(X[inside], labels[inside])
    assert ranged.classes_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(ranged.predict_proba(X), alone.predict_proba(X))
    for scoring in ("neg_log_loss", "roc_auc", "f1_macro"):
        expected = get_scorer(scoring)(alone, X[inside], labels[inside])
        assert range_scorer(scoring)(ranged, X, labels) == expected
        scores = cross_val_score(RangeEstimator(model, 30, 60), X, labels, cv=FOLDS, scoring=range_scorer(scoring))
        assert np.isfinite(scores).all()


def test_classifier_and_unsupervised(signal):
    X, _, inside = signal
    labels = np.where(inside, X[:, 1] > 0, X[:, 1] < 0).astype(int)
    ranged = RangeEstimator(LogisticRegression(tol=1e-10), 30, 60).fit(X, labels)
    alone = LogisticRegression(tol=1e-10).fit(X[inside], labels[inside])
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        np.testing.assert_allclose(getattr(ranged, method)(X), getattr(alone, method)(X), atol=1e-4)
    assert is_classifier(ranged) and ranged.classes_.tolist() == [0, 1]
    assert ranged.score(X, labels) == alone.score(X[inside], labels[inside]) > 0.95
    assert not hasattr(RangeEstimator(Ridge()), "predict_proba") and not hasattr(RangeEstimator(Ridge()), "classes_")
    clusters = RangeEstimator(KMeans(2, n_init=1, random_state=0), 30, 60).fit(X)
    assert clusters.estimator_.cluster_centers_[:, 0].min() > 30
    assert clusters.score(X) == pytest.approx(clusters.estimator_.score(X[inside]))


@pytest.mark.slow(all_but=["own-drop", "scikit-learn-drop"])
@pytest.mark.parametrize("rows", ["drop", "weight"])
@pytest.mark.parametrize(
    "model",
    [LinearRegression(), RollingJaxEstimator(models.Linear(), step=2000, capacity=2000)],
    ids=["scikit-learn", "own"],
)
def test_search_finds_the_range_in_which_the_law_holds(model, rows, signal):
    X, y, _ = signal
    ranged = RangeEstimator(model, rows=rows)
    ranged.fit(X, y).score(X, y)
    with count_compiles() as compiles:  # of ranges that hold 30 to 1400 rows
        search = GridSearchCV(ranged, RANGES, cv=FOLDS, error_score="raise").fit(X, y)
    assert compiles.count == 0
    assert (search.best_params_["start"], search.best_params_["stop"]) == (30, 60)
    assert search.best_score_ > 0.98
    np.testing.assert_allclose(search.predict([[40.0, 0.0]]), [30], atol=0.5)
    again = GridSearchCV(ranged, RANGES, cv=FOLDS, scoring=range_scorer("r2")).fit(X, y)
    np.testing.assert_allclose(again.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"])


def test_a_sampler_filters_training_rows_only_and_search_is_misled(signal):
    X, y, inside = signal
    pipeline = imbalanced_pipeline(SubsetSampler(30, 60), LinearRegression()).fit(X, y)
    alone = LinearRegression().fit(X[inside], y[inside])
    np.testing.assert_allclose(pipeline.predict(X), alone.predict(X))
    assert pipeline.score(X, y) == pytest.approx(alone.score(X, y))  # of every row
    np.testing.assert_array_equal(pipeline[0].sample_indices_, np.flatnonzero(inside))
    prefixed = interval_grid([0.0, 30.0, 60.0, 99.9], widths=[30.0], prefix="subsetsampler__")
    search = GridSearchCV(pipeline, prefixed, cv=FOLDS).fit(X, y)
    assert search.best_params_["subsetsampler__start"] != 30


@pytest.mark.parametrize("container", [pd.DataFrame, pl.DataFrame])
def test_dataframes_go_through(container, signal):
    X, y, inside = signal
    frame = container({"x": X[:, 0], "z": X[:, 1]})
    kind = pd.Series if container is pd.DataFrame else pl.Series
    ranged = RangeEstimator(Ridge(), 30, 60, column="x").fit(frame, kind(y))
    assert ranged.feature_names_in_.tolist() == ranged.estimator_.feature_names_in_.tolist() == ["x", "z"]
    alone = Ridge().fit(X[inside], y[inside])
    np.testing.assert_allclose(ranged.predict(frame), alone.predict(X))
    assert ranged.score(frame, kind(y)) == pytest.approx(alone.score(X[inside], y[inside]))
    kept, labels = SubsetSampler(30, 60, column="x").fit_resample(frame, kind(y))
    assert type(kept) is container and type(labels) is kind and len(kept) == len(labels) == inside.sum()


def test_dates_reach_an_estimator_that_takes_them():
    day = pd.date_range("2024-01-01", periods=200)
    z = np.random.default_rng(0).normal(size=200)
    y = np.where(day < "2024-04-01", z, -3 * z)
    frame = pd.DataFrame({"day": day, "z": z})
    rolling = RollingJaxEstimator(models.Linear(), time="day", step=200)
    ranged = RangeEstimator(rolling, "2024-04-01", column="day").fit(frame, y)
    assert ranged.estimator_.coef_ == pytest.approx([-3])


@pytest.mark.parametrize("container", [pd.DataFrame, pl.DataFrame])
def test_a_coordinate_that_is_no_feature(container):
    day = pd.date_range("2024-01-01", periods=200)
    z = np.random.default_rng(0).normal(size=200)
    y = np.where(day < "2024-04-01", z, -3 * z)
    frame = container({"z": z, "day": day})
    ranged = RangeEstimator(LinearRegression(), "2024-04-01", column="day", keep_column=False).fit(frame, y)
    assert ranged.estimator_.coef_ == pytest.approx([-3])
    assert ranged.n_features_in_ == 2 and ranged.estimator_.feature_names_in_.tolist() == ["z"]
    np.testing.assert_allclose(ranged.predict(frame), -3 * z, atol=1e-12)
    assert ranged.score(frame, y) == range_scorer("r2")(ranged, frame, y) == 1
    with pytest.raises(TypeError, match="DateTime64") as seen:
        RangeEstimator(LinearRegression(), "2024-04-01", column="day").fit(pd.DataFrame({"z": z, "day": day}), y)
    assert "keep_column=False" in seen.value.__notes__[0]
    numbers = RangeEstimator(LinearRegression(), 91, column=1, keep_column=False)
    assert numbers.fit(np.column_stack([z, np.arange(200)]), y).estimator_.coef_ == pytest.approx([-3])
    with pytest.raises(ValueError, match="the coordinate column only"):
        RangeEstimator(LinearRegression(), keep_column=False).fit(z[:, None], y)


def test_folds_without_rows_in_range():
    X, y = np.arange(100.0)[:, None], np.arange(100.0)
    ranged = RangeEstimator(LinearRegression(), 90)
    with pytest.raises(ValueError, match=r"No row lies in \[90, ...\); X has 20 sample.* from 0.0 to 19.0"):
        cross_val_score(ranged, X, y, cv=TimeSeriesSplit(4), error_score="raise")
    fitted = ranged.fit(X, y)
    with pytest.raises(ValueError, match="No row lies in"):
        fitted.score(X[:50], y[:50])
    with pytest.raises(ValueError, match="every fold needs rows in range"):
        range_scorer("r2")(fitted, X[:50], y[:50])


def test_bad_combinations_are_reported_by_the_search(spectra):
    X, y = spectra
    for search in (
        GridSearchCV(RangeEstimator(Ridge()), {"start": [-1, 0.5, 900], "stop": [0.0, 900]}, cv=2),
        GridSearchCV(
            make_pipeline(SubsetTransformer(axis=1), Ridge()),
            {"subsettransformer__start": [0, 80, 200], "subsettransformer__stop": [40, 160]},
            cv=2,
        ),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            search.fit(X, y)
        scores = search.cv_results_["mean_test_score"]
        assert np.isnan(scores).sum() == 3 and np.isfinite(search.best_score_)
        (failed,) = [str(w.message) for w in caught if w.category is FitFailedWarning]
        assert "is not below stop=" in failed


@pytest.mark.parametrize("output", ["mask", "crop", "pad"])
def test_search_finds_the_band_of_a_spectrum(output, spectra):
    X, y = spectra
    pipeline = make_pipeline(SubsetTransformer(axis=1, output=output), PLSRegression(1))
    bounds = range(0, 161, 20)  # ranges of eight widths
    pairs = [(start, stop) for start in bounds for stop in bounds if start < stop]
    candidates = [{"subsettransformer__start": [start], "subsettransformer__stop": [stop]} for start, stop in pairs]
    candidates += interval_grid(range(160), widths=[10, 25], prefix="subsettransformer__")
    assert len(candidates) >= 40
    search = GridSearchCV(pipeline, candidates, cv=3, error_score="raise").fit(X, y)
    best = search.best_params_
    assert (best["subsettransformer__start"], best["subsettransformer__stop"]) == (60, 80)
    assert search.best_score_ > 0.8


def test_search_over_a_masked_spectrum_compiles_nothing_after_the_first_fit(spectra):
    X, y = spectra
    rolling = RollingJaxEstimator(models.Linear(alpha=1.0), step=120, capacity=128)
    pipeline = make_pipeline(SubsetTransformer(axis=1), rolling)
    X = X[:, 40:100]
    candidates = interval_grid(range(60), widths=[20, 15, 7, 3], prefix="subsettransformer__")
    candidates += interval_grid(range(60), widths=[20], step=4, prefix="subsettransformer__")
    assert len(candidates) >= 40
    clone(pipeline).fit(X, y).predict(X)
    with count_compiles() as compiles:
        search = GridSearchCV(pipeline, candidates, cv=3, error_score="raise").fit(X, y)
    assert compiles.count == 0
    best = search.best_params_
    # The band's outermost channels hardly know the target.
    assert 15 <= best["subsettransformer__start"] <= 24 and 35 <= best["subsettransformer__stop"] <= 45


def test_parameters_and_errors(signal):
    X, y, _ = signal
    for bounds in (np.float64(30), [30.0], np.array([30.0])):
        made = RangeEstimator(Ridge(), bounds, None if np.ndim(bounds) == 0 else [None])
        assert made.start is bounds
        again = pickle.loads(pickle.dumps(clone(made).fit(X, y)))
        np.testing.assert_array_equal(again.predict(X), clone(made).fit(X, y).predict(X))
        assert made.set_params(estimator__alpha=5.0).estimator.alpha == 5
    assert RangeEstimator(Ridge()).get_params()["estimator__alpha"] == 1.0
    with pytest.raises(ValueError, match="'estimator' parameter"):
        RangeEstimator(5).fit(X, y)
    with pytest.raises(TypeError, match="is a class; pass an instance"):
        RangeEstimator(Ridge).fit(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        RangeEstimator(Ridge()).fit(X, y[:5])
    holes = X.copy()
    holes[3, 0] = np.nan
    with pytest.raises(ValueError, match=r"coordinate \(0\) column contains NaN"):
        RangeEstimator(Ridge(), 30).fit(holes, y)
    assert "RangeEstimator" in RangeEstimator(Ridge())._repr_html_()


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30), st.data())
def test_intervals_cover_each_coordinate_once(values, data):
    x = np.array(values) / data.draw(st.sampled_from([1, 10]))
    distinct = len(np.unique(x))
    n = data.draw(st.integers(1, distinct))
    width = data.draw(st.sampled_from([0.1, 0.3, 1.0, 7.0, 200.0]))
    by_count, by_width = interval_grid(x, n), interval_grid(x, widths=width)
    assert len(by_count) == n
    for grid in (by_count, by_width):
        masks = []
        for candidate in grid:
            (start,), (stop,) = candidate["start"], candidate["stop"]
            masks.append((x >= start) & (stop is None or x < stop))
        assert np.sum(masks, axis=0).tolist() == [1] * len(x)
        assert np.any(masks, axis=1).all()
    sizes = [len(np.unique(x[(x >= c["start"][0]) & (c["stop"][0] is None or x < c["stop"][0])])) for c in by_count]
    assert max(sizes) - min(sizes) <= 1


def test_intervals_of_several_widths_steps_and_dates():
    def bounds(*args, **keywords):
        return [(c["start"][0], c["stop"][0]) for c in interval_grid(*args, **keywords)]

    assert bounds(range(6), widths=[4, 3]) == [(0, 4), (4, None), (0, 3), (3, None)]
    assert bounds(range(6), widths=3, step=2) == [(0, 3), (2, 5), (4, None)]
    assert bounds([5, 1, 1, 3], 2) == [(1, 5), (5, None)]
    days = np.arange("2024-01-01", "2024-01-05", dtype="datetime64[D]")
    assert bounds(days, widths=np.timedelta64(2, "D")) == [(days[0], days[2]), (days[2], None)]
    assert bounds(days, 2) == [(days[0], days[2]), (days[2], None)]
    assert interval_grid([1.0], 1, prefix="a__") == [{"a__start": [1.0], "a__stop": [None]}]
    for arguments, keywords, message in [
        (([1, 2],), {}, "either n"),
        (([1, 2], 1), {"widths": 1}, "either n"),
        (([1, 2], 3), {}, "n=3 must be an integer from 1 to 2"),
        (([1, 2], 1.5), {}, "n=1.5"),
        (([1, 2], 1), {"step": 1}, "step goes with widths"),
        (([1, 2],), {"widths": 0}, "positive"),
        (([1, 2],), {"widths": np.nan}, "positive"),
        (([1, 2],), {"widths": 1, "step": -1}, "step must be positive"),
        ((days,), {"widths": 1}, "timedeltas"),
        (([1, 2],), {"widths": np.timedelta64(1, "D")}, "positive numbers"),
        (([0.0, 1e9],), {"widths": 1e-3}, "larger step"),
        (([],), {"n": 1}, "empty"),
        (([1, np.nan], 1), {}, "NaN"),
    ]:
        with pytest.raises(ValueError, match=message):
            interval_grid(*arguments, **keywords)
