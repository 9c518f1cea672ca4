"""The few private parts of scikit-learn that this package uses, imported nowhere else."""

from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
from sklearn.utils.validation import _check_sample_weight as check_sample_weight

__all__ = ["Interval", "RealNotInt", "StrOptions", "check_sample_weight"]
