"""Counts are no flags: True is an integer to scikit-learn's validation, and fails later in words that help nobody."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["refuse_flags"]


def refuse_flags(estimator: Any, *names: str) -> None:
    """Raise a ValueError if one of the named parameters is a boolean."""
    for name in names:
        value = getattr(estimator, name)
        if isinstance(value, bool | np.bool_):
            raise ValueError(
                f"The {name!r} parameter of {type(estimator).__name__} must be an int, got {value!r}, which is a flag."
            )
