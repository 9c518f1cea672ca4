"""The other packages that fit windows, each called as its documentation says.

A peer is a function to time, and another that reads what it returned. Data are laid out beforehand as the
peer likes them best. A package that is not installed is left out.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Peer(NamedTuple):
    """One way of computing something for every window.

    Attributes
    ----------
    run : callable
        Timed.
    read : callable
        Called with what `run` returned and the row at which a window ends (exclusive), returns that window's numbers.
    """

    run: Callable[[], Any]
    read: Callable[[Any, int], np.ndarray]


@functools.cache
def optional(module: str) -> Any:
    """Import a package, or say that it is missing and return None."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        print(f"{module} is left out: {error}")
        return None


def polars_regressions(X: np.ndarray, y: np.ndarray, window: int | None) -> dict[str, Peer]:
    """Least squares with intercept by the two polars plugins; `window` None is expanding."""
    polars = optional("polars")
    if polars is None:
        return {}
    names = [f"x{i}" for i in range(X.shape[1])]
    frame = polars.DataFrame({name: X[:, i] for i, name in enumerate(names)} | {"y": y})
    peers = {}
    if optional("polars_ols") is not None:
        target = polars.col("y").least_squares
        columns = [polars.col(name) for name in names]
        if window is not None:
            ols = target.rolling_ols(*columns, window_size=window, add_intercept=True, mode="coefficients")
        else:
            # Its prior is as good as flat at this variance; the default of 10 shrinks the slopes.
            flat = {"initial_state_covariance": 1e9}
            ols = target.expanding_ols(*columns, add_intercept=True, mode="coefficients", **flat)
        peers["polars-ols"] = Peer(
            lambda: frame.select(ols).to_series().struct.unnest(), lambda out, stop: np.array(out.row(stop - 1))
        )
    polars_ds = optional("polars_ds")
    if polars_ds is not None:
        if window is not None:
            ds = polars_ds.rolling_lin_reg(*names, target="y", window_size=window, add_bias=True)
        else:
            ds = polars_ds.recursive_lin_reg(*names, target="y", start_with=X.shape[1] + 2, add_bias=True)
        peers["polars-ds"] = Peer(
            lambda: frame.select(ds).to_series(), lambda out, stop: np.array(out[stop - 1]["coeffs"])
        )
    return peers


def statsmodels_regression(X: np.ndarray, y: np.ndarray, window: int, *, inference: bool) -> dict[str, Peer]:
    """Rolling least squares with intercept; with `inference` also standard errors, t-values and R2."""
    rolling = optional("statsmodels.regression.rolling")
    if rolling is None:
        return {}
    columns = np.column_stack([X, np.ones(len(X))])

    def fit():
        fitted = rolling.RollingOLS(y, columns, window=window).fit(params_only=not inference)
        if not inference:
            return (fitted.params,)
        return fitted.params, fitted.bse, fitted.tvalues, fitted.rsquared[:, None]

    def read(out, stop):
        return np.concatenate([part[stop - 1] for part in out])

    return {"statsmodels RollingOLS": Peer(fit, read)}


def window_statistic(name: str, X: np.ndarray, window: int, min_rows: int | None = None) -> dict[str, Peer]:
    """A statistic of each column: "mean", "std", "skewness", "kurtosis", or the "covariance" matrices."""
    pandas, numbagg, bottleneck = optional("pandas"), optional("numbagg"), optional("bottleneck")
    columns = np.ascontiguousarray(X.T)
    peers = {}
    if pandas is not None:
        rolling = pandas.DataFrame(np.asfortranarray(X)).rolling(window, min_periods=min_rows)
        method = getattr(rolling, {"skewness": "skew", "kurtosis": "kurt", "covariance": "cov"}.get(name, name))
        # pandas stacks the covariance matrices below each other.
        n_lines = X.shape[1] if name == "covariance" else 1
        peers["pandas"] = Peer(
            method, lambda out, stop: out.to_numpy()[(stop - 1) * n_lines : stop * n_lines].reshape(n_lines, -1)
        )
    if numbagg is not None and name == "covariance":
        peers["numbagg"] = Peer(
            lambda: numbagg.move_covmatrix(X, window=window, min_count=min_rows), lambda out, stop: out[stop - 1]
        )
    if numbagg is not None and name in ("mean", "std"):
        numba_move = getattr(numbagg, f"move_{name}")
        peers["numbagg"] = Peer(
            lambda: numba_move(columns, window=window, min_count=min_rows), lambda out, stop: out[:, stop - 1]
        )
    if bottleneck is not None and name in ("mean", "std"):
        c_move = getattr(bottleneck, f"move_{name}")
        options = {"ddof": 1} if name == "std" else {}
        peers["bottleneck"] = Peer(
            lambda: c_move(columns, window, min_count=min_rows, axis=1, **options), lambda out, stop: out[:, stop - 1]
        )
    return peers
