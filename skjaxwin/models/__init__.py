"""What is fitted in one window; one file per family. The contract is `WindowModel`."""

from skjaxwin.models._base import FitInfo, WindowModel
from skjaxwin.models.covariance import Covariance
from skjaxwin.models.custom import Custom
from skjaxwin.models.elastic_net import ElasticNet
from skjaxwin.models.gaussian_mixture import GaussianMixture
from skjaxwin.models.generalized_linear import Gamma, Poisson, Tweedie
from skjaxwin.models.huber import Huber
from skjaxwin.models.least_squares import LeastSquares
from skjaxwin.models.linear import Linear
from skjaxwin.models.logistic import Logistic
from skjaxwin.models.loss import Loss
from skjaxwin.models.moments import Moments
from skjaxwin.models.quantile import Quantile

WindowModel.__module__ = __name__  # what messages and pickles call it

__all__ = [
    "Covariance",
    "Custom",
    "ElasticNet",
    "FitInfo",
    "Gamma",
    "GaussianMixture",
    "Huber",
    "LeastSquares",
    "Linear",
    "Logistic",
    "Loss",
    "Moments",
    "Poisson",
    "Quantile",
    "Tweedie",
    "WindowModel",
]
