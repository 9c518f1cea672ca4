"""GaussianMixtureEntropy: a Gaussian mixture with its entropy, and a scorer of mixtures by entropy."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from skjaxwin._sklearn_private import Interval, StrOptions, check_sample_weight
from skjaxwin.counts import refuse_flags
from skjaxwin.entropy import (
    COVARIANCE_TYPES,
    MAX_TERMS,
    METHODS,
    SERIES,
    EntropyInfo,
    check_order,
    gaussian_mixture_entropy,
)
from skjaxwin.fitted_mixture import find_mixture, parameters_of
from skjaxwin.kernels.em import EMResult, Mixture
from skjaxwin.kernels.mixture_density import draw, log_density, log_parts, n_parameters
from skjaxwin.kernels.mixture_entropy import is_traced
from skjaxwin.mixture_fit import best_fit

__all__ = ["GaussianMixtureEntropy"]

_CRITERIA = ("entropy", "neg_entropy", "neg_entropy_gap")


class GaussianMixtureEntropy(DensityMixin, BaseEstimator):
    r"""Gaussian mixture with its differential entropy; also a scorer of other mixtures.

    Fits :math:`p = \sum_k w_k N(\mu_k, S_k)` by expectation maximisation, or takes a fitted mixture over, and
    computes the entropy :math:`H = -\int p \log p` with certified bounds. An instance is also *callable* as a
    scorer, ``scorer(estimator, X, y=None)``, of any fitted mixture: pass it as ``scoring=`` to ``cross_val_score``,
    ``cross_validate`` or a search.

    Parameters
    ----------
    n_components : int, default=1
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
    order : int, default=8
        Order of the entropy's series; see `gaussian_mixture_entropy`.
    method : str, default="legendre"
        How to compute the entropy; see `gaussian_mixture_entropy`.
    mixture : estimator, default=None
        A fitted ``GaussianMixture``, ``BayesianGaussianMixture`` or anything with ``weights_``, ``means_``,
        ``covariances_`` and ``covariance_type``; or a fitted Pipeline whose last step is one, or a search over either.
        `fit` then takes its parameters over and only validates X. It is never changed. A Pipeline transforms the
        rows: methods take X as it does, and entropy, densities and `sample` are those of the transformed rows.
        ``clone``, and so every search, makes estimators among the parameters unfitted: pass
        ``sklearn.frozen.FrozenEstimator(mixture)`` there.
    tol : float, default=1e-3
        Fitting ends when the mean log likelihood changes by less.
    reg_covar : float, default=1e-6
        Added to the diagonals of covariances, in squared units of the data.
    max_iter : int, default=100
    n_init : int, default=1
        Starts, of which the one with the largest likelihood is kept.
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}, default="kmeans"
        How to start, as in scikit-learn's ``GaussianMixture``.
    random_state : int, RandomState or None, default=None
        For starts and `sample`; an int also for ``method="sobol"``, which otherwise uses 0.
    criterion : {"entropy", "neg_entropy", "neg_entropy_gap"}, default="entropy"
        What the scorer returns: the entropy H of the mixture; -H; or minus the absolute difference between the
        held-out cross entropy :math:`-\overline{\log p(x)}` and H, which is 0 for a mixture that is as sure of itself
        as it is right.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
    covariances_ : ndarray
        (n_components, n_features, n_features) for ``"full"``, (n_features, n_features) for ``"tied"``,
        (n_components, n_features) for ``"diag"``, (n_components,) for ``"spherical"``.
    covariance_type_ : str
        Type of `covariances_`: that of `mixture` if one was given.
    entropy_ : float
        In nats.
    lower_bound_, upper_bound_ : float
        Certified bounds on the entropy. (What scikit-learn's mixtures call ``lower_bound_`` is `log_likelihood_`.)
    rounding_error_ : float
        Estimated rounding error of `entropy_`.
    n_terms_ : int
        Products of components in the series.
    log_likelihood_ : float
        Mean over the rows, in the last iteration before its update; NaN if `mixture` was given.
    converged_ : bool
    n_iter_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)
        If X had column names.

    See Also
    --------
    gaussian_mixture_entropy : The entropy of given parameters; differentiable.
    models.GaussianMixture : The same fit on every window.

    Notes
    -----
    Densities and entropies are those of the mixture with exactly the parameters `weights_`, `means_` and
    `covariances_`. For a ``BayesianGaussianMixture`` that is its density at the posterior means; its own ``score`` and
    ``score_samples`` are expectations of the log density under the posterior of the parameters, and lower.

    Computation is in float64. From the same `random_state`, data without repeated rows and weights give the result
    of scikit-learn's ``GaussianMixture``. Repeated rows, like rows of different weights, are clustered once, with
    their weights added up, so that a row of weight two and that row twice are the same. For
    ``covariance_type="tied"`` with ``init_params`` ``"k-means++"`` or ``"random_from_data"`` the start depends on
    the origin of the data, as in scikit-learn: centre data whose mean is large.

    Fitting compiles once for each number of features and components, type of covariance and power of two of the
    number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.mixture import GaussianMixture
    >>> from sklearn.model_selection import cross_val_score
    >>> from skjaxwin import GaussianMixtureEntropy
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-4, 1, size=(200, 2)), rng.normal(4, 1, size=(200, 2))])
    >>> mixture = GaussianMixtureEntropy(n_components=2, random_state=0).fit(X)
    >>> bool(mixture.lower_bound_ <= mixture.entropy_ + 0.01), bool(mixture.entropy_ <= mixture.upper_bound_ + 0.01)
    (True, True)
    >>> X_new, components = mixture.sample(3)
    >>> X_new.shape, components.shape
    ((3, 2), (3,))

    As a scorer of scikit-learn's mixtures: how far the held-out cross entropy is from the entropy.

    >>> scorer = GaussianMixtureEntropy(order=8, criterion="neg_entropy_gap")
    >>> scores = cross_val_score(GaussianMixture(2, random_state=0), rng.permutation(X), scoring=scorer)
    >>> bool((scores > -0.3).all())
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "n_components": [Interval(Integral, 1, None, closed="left")],
        "covariance_type": [StrOptions(set(COVARIANCE_TYPES))],
        "order": [Interval(Integral, 0, None, closed="left")],
        "method": [StrOptions(set(METHODS))],
        "mixture": "no_validation",
        "tol": [Interval(Real, 0, None, closed="left")],
        "reg_covar": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "init_params": [StrOptions({"kmeans", "k-means++", "random", "random_from_data"})],
        "random_state": ["random_state"],
        "criterion": [StrOptions(set(_CRITERIA))],
    }

    def __init__(
        self,
        n_components: int = 1,
        *,
        covariance_type: str = "full",
        order: int = 8,
        method: str = "legendre",
        mixture: Any = None,
        tol: float = 1e-3,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        n_init: int = 1,
        init_params: str = "kmeans",
        random_state: Any = None,
        criterion: str = "entropy",
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.order = order
        self.method = method
        self.mixture = mixture
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.random_state = random_state
        self.criterion = criterion

    def _validate_params(self) -> None:
        refuse_flags(self, "n_components", "order", "max_iter", "n_init")
        super()._validate_params()

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> GaussianMixtureEntropy:
        """Fit the mixture, or take `mixture` over, and compute the entropy.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_features)
        y : ignored
        sample_weight : array-like of shape (n_rows,), default=None
            Non-negative. A row of weight two counts as that row twice, one of weight 0 is as good as absent.

        Returns
        -------
        self : GaussianMixtureEntropy

        Raises
        ------
        ValueError
            For bad data or parameters, fewer distinct rows than components, or a covariance that is not positive
            definite, naming its component.
        TypeError
            If `mixture` is no mixture.
        NotFittedError
            If `mixture` is not fitted.

        Warns
        -----
        ConvergenceWarning
            If the best start did not converge within `max_iter` iterations, or the entropy's series lies far outside
            of the certified bounds; see `gaussian_mixture_entropy`.
        """
        del y
        self._validate_params()
        if is_traced(X, sample_weight):
            raise TypeError(
                "GaussianMixtureEntropy.fit cannot be traced by jax.jit, grad or vmap; inside of these call "
                "gaussian_mixture_entropy(weights, means, covariances)."
            )
        given, X = X, validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        weight = check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if self.mixture is None:
            if self.method in SERIES:  # before the work, not after it
                check_order(self.order, self.n_components, MAX_TERMS)
            result, kind = best_fit(self, X, weight), self.covariance_type
        else:
            result, kind = self._taken_over(given)
        info = self._entropy(result.mixture, kind)
        self.weights_, self.means_, self.covariances_ = result.mixture
        self.covariance_type_ = kind
        self.entropy_ = float(info.entropy)
        self.lower_bound_, self.upper_bound_ = float(info.lower), float(info.upper)
        self.rounding_error_ = float(info.rounding_error)
        self.n_terms_ = int(info.n_terms)
        self.log_likelihood_ = float(result.log_likelihood)
        self.converged_ = bool(result.converged)
        self.n_iter_ = int(result.n_iter)
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None) -> np.ndarray:
        """Fit, and return the most probable component of each row.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.

        Returns
        -------
        labels : ndarray of int of shape (n_rows,)
        """
        return self.fit(X, y, sample_weight).predict(X)

    def score_samples(self, X: Any) -> np.ndarray:
        """Return the log density at each row.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_features)

        Returns
        -------
        log_density : ndarray of shape (n_rows,)
        """
        return log_density(self._checked(X), self._fitted(), self.covariance_type_)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the mean log density of the rows.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_features)
        y : ignored
        sample_weight : array-like of shape (n_rows,), default=None

        Returns
        -------
        log_likelihood : float
        """
        del y
        return _mean(self.score_samples(X), sample_weight)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable component of each row.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_features)

        Returns
        -------
        labels : ndarray of int of shape (n_rows,)
        """
        return log_parts(self._checked(X), self._fitted(), self.covariance_type_).argmax(axis=1)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each component for each row.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_features)

        Returns
        -------
        probabilities : ndarray of shape (n_rows, n_components)
        """
        parts = log_parts(self._checked(X), self._fitted(), self.covariance_type_)
        share = np.exp(parts - parts.max(axis=1, keepdims=True))
        return share / share.sum(axis=1, keepdims=True)

    def sample(self, n_samples: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Draw rows from the mixture: those that scikit-learn draws from the same parameters and `random_state`.

        Parameters
        ----------
        n_samples : int, default=1

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        labels : ndarray of int of shape (n_samples,)
            Their components, in ascending order.
        """
        mixture = self._fitted()
        if not isinstance(n_samples, Integral) or n_samples < 1:
            raise ValueError(f"n_samples must be a positive integer, got {n_samples!r}.")
        return draw(mixture, self.covariance_type_, int(n_samples), check_random_state(self.random_state))

    def bic(self, X: Any) -> float:
        """Return the Bayesian information criterion on X; the lower the better.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_features)

        Returns
        -------
        bic : float
        """
        return self._criterion(X, lambda n_rows: math.log(n_rows))

    def aic(self, X: Any) -> float:
        """Return Akaike's information criterion on X; the lower the better.

        Parameters
        ----------
        X : array-like or dataframe of shape (n_rows, n_features)

        Returns
        -------
        aic : float
        """
        return self._criterion(X, lambda n_rows: 2)

    def __call__(self, estimator: Any, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Score a fitted mixture by `criterion`.

        Parameters
        ----------
        estimator : estimator
            A fitted mixture, a Pipeline whose last step is one, or a fitted search over either.
        X : array-like or dataframe of shape (n_rows, n_features)
            Held-out rows, as the estimator takes them; only ``"neg_entropy_gap"`` looks at them.
        y : ignored
        sample_weight : array-like of shape (n_rows,), default=None
            Weights of the rows in the cross entropy.

        Returns
        -------
        score : float

        Raises
        ------
        TypeError
            If the estimator is no mixture.
        NotFittedError
            If it is not fitted.
        """
        del y
        self._validate_params()
        gap = self.criterion == "neg_entropy_gap"
        found, X = find_mixture(estimator, X if gap else None)
        mixture, kind = parameters_of(found)
        entropy = float(self._entropy(mixture, kind).entropy)
        if not gap:
            return entropy if self.criterion == "entropy" else -entropy
        X = check_array(X, dtype=np.float64, input_name="X")
        _check_width(X.shape[1], mixture, "the scored mixture")
        return -abs(-_mean(log_density(X, mixture, kind), sample_weight) - entropy)

    def _accept_sample_weight(self) -> bool:
        # What scikit-learn asks a scorer before it hands the search's weights on.
        return True

    def _taken_over(self, X: Any) -> tuple[EMResult, str]:
        try:
            found, X = find_mixture(self.mixture, X)
            mixture, kind = parameters_of(found)
        except NotFittedError as error:
            raise NotFittedError(
                f"{error} (clone() makes an estimator among the parameters unfitted; pass "
                "sklearn.frozen.FrozenEstimator(mixture) to keep it.)"
            ) from error
        _check_width(np.shape(X)[1], mixture, "mixture")
        n_iter, converged = getattr(found, "n_iter_", 0), getattr(found, "converged_", True)
        return EMResult(mixture, math.nan, n_iter, converged, None), kind

    def _entropy(self, mixture: Mixture, kind: str) -> EntropyInfo:
        seed = int(self.random_state) if isinstance(self.random_state, Integral) else 0
        return gaussian_mixture_entropy(
            *mixture, covariance_type=kind, order=self.order, method=self.method, random_state=seed, return_info=True
        )

    def _fitted(self) -> Mixture:
        check_is_fitted(self, "means_")
        return Mixture(self.weights_, self.means_, self.covariances_)

    def _checked(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "means_")
        given, X = X, validate_data(self, X, dtype=np.float64, reset=False)
        if self.mixture is None:
            return X
        _, transformed = find_mixture(self.mixture, given)
        return X if transformed is given else check_array(transformed, dtype=np.float64)

    def _criterion(self, X: Any, price: Any) -> float:
        values = self.score_samples(X)
        n_components, n_features = self.means_.shape
        count = n_parameters(n_components, n_features, self.covariance_type_)
        return float(-2 * values.sum() + price(len(values)) * count)


def _mean(values: np.ndarray, sample_weight: Any) -> float:
    """Return the weighted mean over rows."""
    weight = check_sample_weight(sample_weight, values, dtype=np.float64, ensure_non_negative=True)
    return float(np.average(values, weights=weight))


def _check_width(n_features: int, mixture: Mixture, what: str) -> None:
    if n_features != mixture.means.shape[1]:
        raise ValueError(f"X has {n_features} features, but {what} has {mixture.means.shape[1]}.")
