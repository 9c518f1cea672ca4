"""scikit-learn's checks of everything that isolates ranges, and those that check_estimator leaves out."""

from __future__ import annotations

import warnings

import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks as checks

from skjaxwin import RangeEstimator, SubsetSampler, SubsetTransformer
from tests.sklearn_checks import scikit_learn_checks

# Ranges that leave some rows or columns out of the checks' data, which lie about 0, in [0, 20) or about 100: open
# ranges would pass without doing anything.
GAPS = [None, -1.0, 6.0], [-1.1, 5.0, 101.0]
ROWS = {
    "rows": SubsetTransformer(0.3),
    "rows, indicator": SubsetTransformer(stop=99.5, fill_value=-1.0, add_indicator=True),
    "rows, several ranges": SubsetTransformer(*GAPS),
}
COLUMNS = {
    "columns, mask": SubsetTransformer(1, axis=1),
    "columns, crop": SubsetTransformer(1, axis=1, output="crop"),
    "columns, pad": SubsetTransformer(1, axis=1, output="pad"),
    "columns, several ranges": SubsetTransformer([None, -1], [1, None], axis=1, by="position", output="crop"),
}
SAMPLERS = {"sampler": SubsetSampler(0.3), "sampler, several ranges": SubsetSampler(*GAPS)}
RANGES = {
    "regressor": RangeEstimator(Ridge(), -1.5),
    "regressor, several ranges": RangeEstimator(Ridge(), *GAPS),
    "regressor, weights": RangeEstimator(Ridge(), *GAPS, rows="weight"),
    "regressor, without the coordinate": RangeEstimator(Ridge(), *GAPS, keep_column=False),
    "classifier": RangeEstimator(LogisticRegression(tol=1e-8), *GAPS),
    "classifier, weights": RangeEstimator(LogisticRegression(tol=1e-8), *GAPS, rows="weight"),
    "without a target": RangeEstimator(StandardScaler(), *GAPS),
}
INSTANCES = ROWS | COLUMNS | SAMPLERS | RANGES
BY_POSITION = "positions of rows are those in the table that is passed: its order and subsets change them by definition"
EXPECTED_FAILURES = {
    "rows by position": {
        "check_methods_sample_order_invariance": BY_POSITION,
        "check_methods_subset_invariance": BY_POSITION,
    }
}

each_instance = pytest.mark.parametrize("estimator", INSTANCES.values(), ids=INSTANCES.keys())
each_transformer = pytest.mark.parametrize("transformer", (ROWS | COLUMNS).values(), ids=(ROWS | COLUMNS).keys())


@scikit_learn_checks(INSTANCES | {"rows by position": SubsetTransformer(0, -1, by="position")}, EXPECTED_FAILURES)
def test_scikit_learn(estimator, check):
    check(estimator)


def call(check, estimator):
    with warnings.catch_warnings():
        # The checks themselves may warn about the estimators of other packages they know.
        warnings.simplefilter("ignore", FutureWarning)
        # They pass arrays to what was fitted on dataframes, and the other way round.
        warnings.filterwarnings("ignore", "X (has|does not have valid) feature names")
        check(type(estimator).__name__, clone(estimator))


@each_instance
@pytest.mark.parametrize(
    "check",
    [
        checks.check_dataframe_column_names_consistency,
        checks.check_inplace_ensure_writeable,
        checks.check_param_validation,
    ],
    ids=lambda check: check.__name__,
)
def test_checks_outside_check_estimator(estimator, check):
    call(check, estimator)


@each_transformer
@pytest.mark.parametrize(
    "check",
    [
        checks.check_set_output_transform,
        checks.check_set_output_transform_pandas,
        checks.check_set_output_transform_polars,
        checks.check_global_output_transform_pandas,
        checks.check_global_set_output_transform_polars,
        checks.check_transformer_get_feature_names_out,
        checks.check_transformer_get_feature_names_out_pandas,
        checks.check_get_feature_names_out_error,
    ],
    ids=lambda check: check.__name__,
)
def test_checks_of_output_outside_check_estimator(transformer, check):
    call(check, transformer)
