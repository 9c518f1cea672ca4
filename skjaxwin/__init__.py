"""Fit any model on every window of a time series, for every hyperparameter, with one compile."""

from importlib.metadata import PackageNotFoundError, version

from skjaxwin import models
from skjaxwin.entropy import EntropyInfo, gaussian_mixture_entropy, gaussian_mixture_entropy_bounds
from skjaxwin.intervals import interval_grid
from skjaxwin.kernels import CompileCount, count_compiles
from skjaxwin.kernels.subset import isolate, isolate_rows
from skjaxwin.mixture_entropy import GaussianMixtureEntropy
from skjaxwin.out_of_fold import walk_forward_predict
from skjaxwin.piecewise import map_pieces, pieces
from skjaxwin.range_estimator import RangeEstimator
from skjaxwin.range_scorer import range_scorer
from skjaxwin.rolling import RollingJaxEstimator
from skjaxwin.sampler import SubsetSampler
from skjaxwin.search import WalkForwardGrid, walk_forward_grid
from skjaxwin.splits import TimeWindowSplit
from skjaxwin.subset import SubsetTransformer
from skjaxwin.window_search import WindowRandomizedSearchCV, WindowSearchCV

try:
    __version__ = version("skjaxwin")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "CompileCount",
    "EntropyInfo",
    "GaussianMixtureEntropy",
    "RangeEstimator",
    "RollingJaxEstimator",
    "SubsetSampler",
    "SubsetTransformer",
    "TimeWindowSplit",
    "WalkForwardGrid",
    "WindowRandomizedSearchCV",
    "WindowSearchCV",
    "count_compiles",
    "gaussian_mixture_entropy",
    "gaussian_mixture_entropy_bounds",
    "interval_grid",
    "isolate",
    "isolate_rows",
    "map_pieces",
    "models",
    "pieces",
    "range_scorer",
    "walk_forward_grid",
    "walk_forward_predict",
]
