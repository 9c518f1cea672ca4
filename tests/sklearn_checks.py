"""scikit-learn's checks of many instances, under names that are the same in every process."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator


def scikit_learn_checks(
    instances: Mapping[str, Any],
    expected_failures: Mapping[str, Mapping[str, str]],
    quick: Collection[str] | None = None,
) -> Any:
    """Parametrise a test by (estimator, check), as `parametrize_with_checks` does; all but the `quick` ones are slow.

    That one names tests after ``repr(estimator)``, which holds addresses of functions: workers that share the
    tests would not agree on them.
    """
    return pytest.mark.parametrize("estimator, check", list(_cases(instances, expected_failures, quick)))


def _cases(
    instances: Mapping[str, Any], expected_failures: Mapping[str, Mapping[str, str]], quick: Collection[str] | None
) -> Iterator[Any]:
    for name, instance in instances.items():
        expected = expected_failures.get(name, {})
        for estimator, check in estimator_checks_generator(instance):
            called = _name(check)
            marks = [pytest.mark.xfail(reason=expected[called], strict=True)] if called in expected else []
            if quick is not None and name not in quick:
                marks.append(pytest.mark.slow)
            yield pytest.param(estimator, check, id=f"{name}-{_described(check)}", marks=marks)


def _name(check: Any) -> str:
    return (check.func if isinstance(check, partial) else check).__name__


def _described(check: Any) -> str:
    keywords = check.keywords if isinstance(check, partial) else {}
    return _name(check) + "".join(f", {key}={value}" for key, value in keywords.items())
