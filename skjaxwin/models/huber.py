"""Regression that is robust to outliers, with a scale of its own."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from skjaxwin._sklearn_private import Interval
from skjaxwin.kernels.definite import definite_solver
from skjaxwin.kernels.exact_fit import least_exact_fit
from skjaxwin.kernels.interior_point import Problem, least_residuals
from skjaxwin.kernels.linalg import row_of
from skjaxwin.kernels.linear_predictor import Design, standardised
from skjaxwin.kernels.moments import triangle
from skjaxwin.kernels.newton import Local, Solution, newton
from skjaxwin.models._base import FitInfo, WindowModel
from skjaxwin.models._linear_predictor import combined, information
from skjaxwin.models.linear import Linear

__all__ = ["Huber"]

# The least scale, in roundings of the typical target.
_LEAST_SCALE = 10
_MOST_SCALES = 60
# So many steps of a run, at most.
_RUN = 25
# Deviations from the median are no unit if the median of them is such a share of the largest.
_SMALL = 1e-30
# The scale may take up so much of a step, at most, to be taken along in it.
_FOLLOWS = 0.99
# Residuals of such a share of their parts may be none.
_NEAR = 1e-9
# Residuals of least squares that are below it, in deviations of the target, are none.
_EDGE = 1e-9
# The least penalty on slopes, next to pulls of about one, that chooses among fits without residuals.
_FAINT = 1e-8


class Huber(WindowModel):
    r"""Huber regression with a ridge penalty in every window.

    Minimises, over the slopes :math:`b`, the intercept :math:`a` and the scale :math:`\sigma > 0` of each window, the
    objective of scikit-learn's ``HuberRegressor``

    .. math:: \sum_i w_i \, \bigl[\sigma + H_\epsilon\bigl(\tfrac{y_i - a - x_i' b}{\sigma}\bigr) \, \sigma\bigr]
       + \alpha \lVert b \rVert^2 ,
       \qquad H_\epsilon(z) = \begin{cases} z^2 & |z| < \epsilon \\ 2 \epsilon |z| - \epsilon^2 & \text{else.}
       \end{cases}

    Parameters
    ----------
    epsilon : float, default=1.35
        From how many scales on a residual counts by its size instead of its square; at least 1. Traced: changing it
        never recompiles.
    alpha : float, default=0.0001
        Penalty. Traced.
    fit_intercept : bool, default=True
    tol : float, default=1e-8
        A window's fit ends with a Newton step of at most this share of the largest coefficient, each measured in
        units of its curvature; the error that is left is far smaller. Traced.
    max_iter : int, default=100
        Most Newton steps for a window. Traced.

    Notes
    -----
    The parameters are a dict: ``coef``, ``intercept`` and ``scale``, the last two scalars; several targets are fitted
    one by one and give each a leading axis.

    Newton's method goes over the slopes and the intercept. The best scale for these solves an equation of one
    unknown, in a few cheap steps that are exact; it follows the coefficients in each Newton step.

    Where more than a share of :math:`1 - 1 / \epsilon^2` of the rows can be fitted exactly, the best scale can be zero,
    as it often is in windows of hardly more rows than coefficients; with :math:`\epsilon = 1` it always is, and the
    fit is that of the least absolute residuals. Newton's method only comes close to such an optimum. It is found as a
    corner and proven by the pulls of the rows on the fit; the scale is then a rounding, and the window counts as
    under-determined (``determined_``). Where several fits have no residuals, the slopes are the smallest of them,
    which is where the penalty leads however small it is.

    Examples
    --------
    >>> import numpy as np
    >>> from skjaxwin import RollingJaxEstimator, models
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 1))
    >>> y = 1 + 2 * X[:, 0] + rng.normal(size=500) / 10
    >>> y[::10] = 1000
    >>> rolling = RollingJaxEstimator(models.Huber(), min_periods=20).fit(X, y)
    >>> rolling.coef_.round(1).tolist(), round(rolling.intercept_, 1)
    ([2.0], 1.0)
    """

    checked = True
    double = True
    in_turn = True
    convex = True
    _parameter_constraints: ClassVar[dict[str, list]] = {
        "epsilon": [Interval(Real, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "fit_intercept": ["boolean"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        epsilon: float = 1.35,
        alpha: float = 0.0001,
        *,
        fit_intercept: bool = True,
        tol: float = 1e-8,
        max_iter: int = 100,
    ) -> None:
        self.epsilon = epsilon
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_iter = max_iter

    predict, predict_each = Linear.predict, Linear.predict_each

    def initial(self, n_features: int, n_outputs: int | None) -> dict[str, np.ndarray]:
        """Return zeros, which stand for no fit to start from."""
        lead = () if n_outputs is None else (n_outputs,)
        return {"coef": np.zeros((*lead, n_features)), "intercept": np.zeros(lead), "scale": np.zeros(lead)}

    def fit(self, X: Any, y: Any, weight: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        """Fit one window; see `WindowModel.fit`."""
        design = standardised(X, y, weight, self.fit_intercept)
        if y.ndim == 1:
            return self._fit_one(design, design.target, hyper, start)
        targets = jnp.moveaxis(design.target, 1, 0)
        fitted, info = jax.vmap(lambda y, start: self._fit_one(design, y, hyper, start))(targets, start)
        return fitted, combined(info)

    def _fit_one(self, design: Design, target: Any, hyper: dict[str, Any], start: Any) -> tuple[Any, FitInfo]:
        target, share = target.reshape(-1), design.weight.reshape(-1) / design.total
        p = design.columns.shape[1]
        # Measured from the median in units of deviations from it, of which outliers do not spoil the digits.
        middle = _median(target, share) if self.fit_intercept else jnp.zeros_like(design.total)
        target = jnp.where(share > 0, target - middle, 0)
        size, largest = _median(jnp.abs(target), share), jnp.max(jnp.abs(target))
        size = jnp.where(size > _SMALL * largest, size, jnp.where(largest > 0, largest, 1))
        rows = _Rows(
            jnp.moveaxis(design.columns, 1, 0).reshape(p, -1),
            jnp.moveaxis(design.products, 1, 0).reshape(-1, len(target)),
            target / size,
            share,
        )
        penalty = 2 * hyper["alpha"] * (size / design.total)
        ridge = penalty / design.scale**2
        coef = start["coef"] * design.scale * design.varies / size
        if self.fit_intercept:
            ridge = jnp.concatenate([jnp.zeros(1, ridge.dtype), ridge])
            at_centre = (start["intercept"] + start["coef"] @ design.centre - middle) / size
            coef = jnp.concatenate([at_centre[None], coef])
        least_squares = _least_squares(rows)
        # Where there need be no residuals, the scale is at its edge, and steps from there are too short to leave it.
        perfect = rows.share @ (rows.target - least_squares @ rows.columns) ** 2 <= _EDGE**2
        coef = jnp.where(perfect, 0, jnp.where(start["scale"] > 0, coef, least_squares))
        fit = _from(coef, rows, ridge, hyper)
        end, solution = fit.end, fit.solution
        coef, at_zero = lax.cond(
            end.least | ~(solution.converged & end.follows),
            lambda: _at_zero_scale(fit, perfect, rows, penalty, jnp.where(design.varies, design.scale, 0), hyper),
            lambda: (fit.coef, jnp.zeros((), bool)),
        )
        coef = jnp.where(at_zero, coef, fit.coef)
        slopes = coef[self.fit_intercept :] * size / design.scale * design.varies
        intercept = jnp.zeros_like(size)
        if self.fit_intercept:
            intercept = coef[0] * size + middle - slopes @ design.centre
        info = information(solution, 1.0)._replace(n_iter=fit.n_iter)
        # What is at the least scale without a proof has failed, and is not to pass for a window of too few rows.
        edge = at_zero | (perfect & end.least)
        scale = jnp.where(at_zero, _LEAST_SCALE * jnp.finfo(size.dtype).eps, end.scale)
        params = {"coef": slopes, "intercept": intercept, "scale": scale * size}
        return params, info._replace(
            converged=info.converged & end.follows & ~end.least | at_zero,
            determined=(info.determined | end.least) & ~edge,
        )


class _Rows(NamedTuple):
    columns: Any
    products: Any
    target: Any
    share: Any


class _Profile(NamedTuple):
    """The objective of the coefficients, at the best scale for them.

    Attributes
    ----------
    local : Local
    scale : scalar
    least : bool
        Whether the scale is the least there can be.
    follows : bool
        Whether the Hessian lets the scale follow the coefficients.
    """

    local: Local
    scale: Any
    least: Any
    follows: Any


class _Fit(NamedTuple):
    coef: Any
    solution: Solution
    end: _Profile
    n_iter: Any


def _from(coef: Any, rows: _Rows, ridge: Any, hyper: dict[str, Any]) -> _Fit:
    """Minimise from a start on.

    Where residuals are small next to the targets, these leave rounding in the objective that hides its last
    decreases. Another run is then about the residuals of the one before it.
    """

    def run(coef: Any, n_iter: Any) -> _Fit:
        left = rows._replace(target=rows.target - coef @ rows.columns)

        def profile(more: Any) -> _Profile:
            return _profile(left, hyper["epsilon"], ridge, coef, more)

        most = jnp.minimum(hyper["max_iter"] - n_iter, _RUN)
        solution = newton(lambda more: profile(more).local, jnp.zeros_like(coef), tol=hyper["tol"], max_iter=most)
        return _Fit(coef + solution.point, solution, profile(solution.point), n_iter + jnp.maximum(solution.n_iter, 0))

    def unfinished(fit: _Fit) -> Any:
        return ~fit.solution.converged & (fit.n_iter < hyper["max_iter"]) & (fit.solution.n_iter > 0)

    shapes = jax.eval_shape(run, coef, jnp.int32(0))
    begin = jax.tree_util.tree_map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)
    # As if a run had made a step, and not come to an end.
    begin = begin._replace(coef=coef, solution=begin.solution._replace(n_iter=jnp.int32(1)))
    return lax.while_loop(unfinished, lambda fit: run(fit.coef, fit.n_iter), begin)


def _at_zero_scale(
    fit: _Fit, perfect: Any, rows: _Rows, penalty: Any, scale: Any, hyper: dict[str, Any]
) -> tuple[Any, Any]:
    """Return the fit through the rows of the least residuals, and whether it is the optimum, with a scale of zero.

    If a fit can be `perfect`, these are all rows.

    Newton's steps only come close to such an optimum, and where several fits have no residuals they end at any of
    them, as a scale of rounding hides the penalty. Here each other row pulls with its sign alone. The proof is in
    what the rows on the fit must pull to hold it: none more than a row that is far off, and the mean square of all
    pulls at most one, beyond which a scale above zero would be lower.
    """
    columns, _, target, share = rows
    epsilon = hyper["epsilon"]
    largest = jnp.max(scale)
    size = jnp.where(scale > 0, largest / jnp.where(scale > 0, scale, 1), 1) ** 2
    # Without a penalty it is the smallest fit, too.
    faint = jnp.maximum(penalty / jnp.where(largest > 0, largest, 1) ** 2 / 2, _FAINT)
    ridge = jnp.pad(faint * size, (len(columns) - len(size), 0))

    def held_by(coef: Any, width: Any) -> tuple[Any, Any]:
        residuals = target - coef @ columns
        near = _NEAR * (jnp.abs(target) + jnp.abs(coef) @ jnp.abs(columns))
        on_fit = perfect | (jnp.abs(residuals) <= jnp.maximum(width, near))
        far = jnp.where(on_fit, 0, epsilon * jnp.sign(residuals))
        on_fit_share = jnp.where(on_fit, share, 0)
        found = least_exact_fit(*rows._replace(share=on_fit_share), ridge, columns @ (share * far))
        pull = jnp.where(on_fit, found.pull, far)
        same = on_fit | ((target - found.point @ columns) * far > 0)
        held = jnp.all((jnp.abs(pull) <= epsilon) & same | (share == 0))
        return found.point, found.exact & held & (share @ jnp.where(share > 0, pull, 0) ** 2 <= 1)

    # Which rows are on the fit is plain where absolute residuals are least, but there the penalty does not count.
    corner = _least_absolute(rows, hyper)
    starts = jnp.stack([corner, fit.coef]), jnp.stack([jnp.zeros_like(fit.end.scale), epsilon * fit.end.scale])
    points, proven = jax.vmap(held_by)(*starts)
    return jnp.where(proven[0], points[0], points[1]), jnp.any(proven)


def _least_absolute(rows: _Rows, hyper: dict[str, Any]) -> Any:
    """Return the coefficients of the least absolute residuals, at a corner."""
    columns, _, target, share = rows
    p = len(columns)
    cost = jnp.concatenate([share, jnp.zeros(p, share.dtype)])
    problem = Problem(
        jnp.concatenate([columns, jnp.eye(p, dtype=columns.dtype)], axis=1),
        jnp.concatenate([target, jnp.zeros(p, target.dtype)]),
        cost,
        cost,
    )
    return least_residuals(problem, tol=hyper["tol"], max_iter=hyper["max_iter"]).point


def _median(values: Any, share: Any) -> Any:
    """Return the median of the rows that count, all alike."""
    there = share > 0
    order = jnp.sort(jnp.where(there, values, jnp.inf))
    return row_of(order, jnp.sum(there, dtype=jnp.int32) // 2)


def _least_squares(rows: _Rows) -> Any:
    gram = (rows.products @ rows.share)[triangle(len(rows.columns))]
    return definite_solver(gram)(rows.columns @ (rows.share * rows.target))


def _profile(rows: _Rows, epsilon: Any, ridge: Any, base: Any, point: Any) -> _Profile:
    """Return the objective of coefficients `base` and `point` more, given the residuals of `base`."""
    columns, products, target, share = rows
    residuals = target - point @ columns
    lowest = _LEAST_SCALE * jnp.finfo(point.dtype).eps
    scale = jnp.maximum(_best_scale(residuals, share, epsilon), lowest)
    least = scale <= lowest
    z = residuals / scale
    near = jnp.abs(z) <= epsilon
    weight = jnp.where(near, share, 0)
    pull = jnp.clip(z, -epsilon, epsilon)
    # For z in the middle it is z squared, and 2 epsilon |z| - epsilon squared beyond.
    value = scale * (1 + share @ (pull * (2 * z - pull)))
    gradient = -2 * (columns @ (share * pull)) + ridge * (base + point)
    curvature = (2 / scale) * (products @ weight)[triangle(len(columns))] + jnp.diag(ridge)
    # How the slope along the coefficients, and that along the scale, change with the scale.
    mixed = (2 / scale) * (columns @ (weight * z))
    own = (2 / scale) * (weight @ (z * z))
    moves = (own > 0) & ~least
    own = jnp.where(moves, own, 1)
    explained = mixed @ definite_solver(curvature)(mixed) / own
    follows = moves & (explained < _FOLLOWS)
    hessian = curvature - jnp.where(follows, 1 / own, 0) * mixed[:, None] * mixed[None]
    return _Profile(Local(value + ridge @ (base + point) ** 2 / 2, gradient, hessian), scale, least, follows)


def _best_scale(residuals: Any, share: Any, epsilon: Any) -> Any:
    """Return the scale for which the mean of ``min(z**2, epsilon**2)`` is one, or zero.

    As a function of the inverse square of the scale, this mean rises along a concave line of pieces: Newton's method
    from below climbs to the solution, and is there after finitely many steps.
    """
    squares = residuals * residuals
    eps = jnp.finfo(squares.dtype).eps

    def climb(state: Any) -> Any:
        square, n, _ = state
        far = squares > epsilon**2 * square
        rest = 1 - epsilon**2 * jnp.sum(jnp.where(far, share, 0))
        inner = jnp.sum(jnp.where(far, 0, share * squares))
        lower = jnp.where(rest > 0, inner / jnp.where(rest > 0, rest, 1), square)
        return jnp.minimum(lower, square), n + 1, lower < square * (1 - 4 * eps)

    def going_on(state: Any) -> Any:
        _, n, moved = state
        return moved & (n < _MOST_SCALES)

    start = share @ squares, jnp.int32(0), jnp.ones((), bool)
    return jnp.sqrt(lax.while_loop(going_on, climb, start)[0])
