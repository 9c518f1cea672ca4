"""Fit any model on every window of a time series, for every hyperparameter, with one compile."""

from importlib.metadata import PackageNotFoundError, version

from skjaxwin import models
from skjaxwin.entropy import EntropyInfo, gaussian_mixture_entropy, gaussian_mixture_entropy_bounds
from skjaxwin.kernels import CompileCount, count_compiles
from skjaxwin.mixture_entropy import GaussianMixtureEntropy
from skjaxwin.rolling import RollingJaxEstimator
from skjaxwin.search import WalkForwardGrid, walk_forward_grid

try:
    __version__ = version("skjaxwin")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "CompileCount",
    "EntropyInfo",
    "GaussianMixtureEntropy",
    "RollingJaxEstimator",
    "WalkForwardGrid",
    "count_compiles",
    "gaussian_mixture_entropy",
    "gaussian_mixture_entropy_bounds",
    "models",
    "walk_forward_grid",
]
