"""Small real data sets that ship with the package."""

from __future__ import annotations

import csv
from importlib.resources import files

import numpy as np
from sklearn.utils import Bunch

__all__ = ["load_us_macro"]


def load_us_macro() -> Bunch:
    """Load quarterly US inflation and what was known a quarter before.

    The target of quarter t is its inflation, ``400 * log(cpi[t] / cpi[t - 1])`` in % a
    year. All features are lagged by one quarter: inflation, unemployment rate (%), the
    3-month Treasury bill rate (%), real GDP growth and M1 growth (% a year).

    Returns
    -------
    bunch : Bunch
        ``data``, ndarray of shape (201, 5); ``target``, ndarray of shape (201,);
        ``time``, ndarray of datetime64[D] of shape (201,), the first day of each
        quarter from 1959Q3 to 2009Q3; ``feature_names``; ``target_name``; ``DESCR``.

    Examples
    --------
    >>> from skjaxwin.datasets import load_us_macro
    >>> macro = load_us_macro()
    >>> macro.data.shape, str(macro.time[0]), round(float(macro.target[0]), 2)
    ((201, 5), '1959-07-01', 2.74)
    """
    folder = files("skjaxwin") / "data"
    with (folder / "us_macro.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    column = {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}

    def growth(name: str) -> np.ndarray:
        return 400 * np.diff(np.log(column[name]))

    months = 12 * (column["year"].astype(int) - 1970) + 3 * (column["quarter"].astype(int) - 1)
    features = {
        "inflation_lag1": growth("cpi")[:-1],
        "unemployment_lag1": column["unemp"][1:-1],
        "tbill_rate_lag1": column["tbilrate"][1:-1],
        "gdp_growth_lag1": growth("realgdp")[:-1],
        "m1_growth_lag1": growth("m1")[:-1],
    }
    return Bunch(
        data=np.column_stack(list(features.values())),
        target=growth("cpi")[1:],
        time=months[2:].astype("datetime64[M]").astype("datetime64[D]"),
        feature_names=list(features),
        target_name="inflation",
        DESCR=(folder / "README.md").read_text(encoding="utf-8"),
    )
