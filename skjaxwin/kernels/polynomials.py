"""Polynomials in place of the logarithm, with coefficients from exact arithmetic.

With p the density of a mixture, a at least its maximum and Y = p(X) / a, the entropy is
``-log a - E[log Y]``. A polynomial in place of the logarithm leaves the moments
``m_k = E[Y^k]``, so each approximation is ``-log a + constant + sum_k coefficient_k m_k``.
"""

from __future__ import annotations

import decimal
import functools
import math
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np

__all__ = ["MAX_ORDER", "Polynomial", "dimension_matched", "legendre", "taylor"]

MAX_ORDER = 20


class Polynomial(NamedTuple):
    """A polynomial in Y that stands for ``-log Y``.

    Attributes
    ----------
    constant : float
    coefficients : ndarray of shape (MAX_ORDER,)
        Of ``Y, Y^2, ...``; zero above the order.
    """

    constant: float
    coefficients: np.ndarray


def _harmonic(n: int) -> Fraction:
    return sum((Fraction(1, i) for i in range(1, n + 1)), Fraction(0))


def _polynomial(constant: Fraction | Decimal, coefficients: list) -> Polynomial:
    padded = [float(c) for c in coefficients] + [0.0] * (MAX_ORDER - len(coefficients))
    return Polynomial(float(constant), np.asarray(padded))


@functools.cache
def taylor(order: int) -> Polynomial:
    """Return the series about Y = 1, ``sum_k (1 - Y)^k / k``: never above ``-log Y``."""
    coefficients = [Fraction((-1) ** k * math.comb(order, k), k) for k in range(1, order + 1)]
    return _polynomial(_harmonic(order), coefficients)


@functools.cache
def legendre(order: int) -> Polynomial:
    """Return the best approximation in the mean square over (0, 1).

    The shifted Legendre series of the logarithm, ``log y = -1 + sum_n (-1)^(n+1) (2n+1) / (n(n+1)) P_n(2y - 1)``,
    telescopes: the coefficient of ``Y^k`` is ``(-1)^k / k * C(N, k) C(N + k + 1, k)``. As a
    double sum in floating point it would lose up to three digits more.
    """
    coefficients = [
        Fraction((-1) ** k * math.comb(order, k) * math.comb(order + k + 1, k), k) for k in range(1, order + 1)
    ]
    return _polynomial(_harmonic(order) + _harmonic(order + 1), coefficients)


@functools.cache
def dimension_matched(order: int, n_features: int) -> Polynomial:
    """Return the best approximation in the mean square under the law of Y for one Gaussian.

    There ``E[Y^k] = (k + 1)^(-d/2)`` and ``E[-Y^k log Y] = d/2 (k + 1)^(-d/2 - 1)``. The normal equations are as
    ill-conditioned as Hilbert's matrix, hence the long decimals. It equals `legendre` for d = 2.

    Raises
    ------
    ValueError
        If a coefficient is too large for a float: from some hundred features on, the earlier the higher the order.
    """
    with decimal.localcontext(prec=120 + 2 * n_features):
        half = Decimal(n_features) / 2
        power = [(Decimal(n) ** -half) for n in range(1, 2 * order + 2)]
        rows = [[power[i + j] for j in range(order + 1)] + [half * power[i] / (i + 1)] for i in range(order + 1)]
        solution = _solve(rows)
    polynomial = _polynomial(solution[0], solution[1:])
    if not np.isfinite(polynomial.coefficients).all():
        raise ValueError(
            f"The coefficients of method='dimension_matched' are too large for floating point at order={order} for "
            f"{n_features} features; lower the order, or use method='legendre_offdiagonal', 'sobol' or 'auto'."
        )
    return polynomial


def _solve(rows: list[list[Decimal]]) -> list[Decimal]:
    """Solve a positive definite system, given with its right side as last column, by elimination."""
    n = len(rows)
    for i in range(n):
        rows[i] = [value / rows[i][i] for value in rows[i]]
        for other in range(n):
            if other != i:
                factor = rows[other][i]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[i], strict=True)]
    return [row[-1] for row in rows]
