"""Find the band of a spectrum that knows the target, and the range of a signal in which a law holds.

Two searches with GridSearchCV:

1. Interval selection, as in interval PLS. Each candidate keeps one band of the spectrum's channels. With
   output="mask" the width stays the same, so a compiled estimator downstream is compiled once for all bands.
2. A range of rows. RangeEstimator fits *and scores* on the rows in range; a sampler that only filters training rows
   is scored on all of them, and a wrong range wins.
"""

import numpy as np
from sklearn.cross_decomposition import PLSRegression
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import Pipeline

from skjaxwin import (
    RangeEstimator,
    RollingJaxEstimator,
    SubsetTransformer,
    count_compiles,
    interval_grid,
    models,
)


def search_band():
    """Spectra of 64 channels from 400 to 715 nm; those from 500 to 595 nm know the target."""
    rng = np.random.default_rng(0)
    wavelengths = 400 + 5 * np.arange(64)
    y = rng.normal(size=150)
    spectra = rng.normal(size=(150, 64))
    spectra[:, 20:40] += np.outer(y, np.hanning(22)[1:-1])
    bands = interval_grid(wavelengths, widths=[25, 50, 100, 160], prefix="subset__")
    band = SubsetTransformer(axis=1, coordinates=wavelengths)
    for name, model in {
        "PLSRegression": PLSRegression(2),
        "RollingJaxEstimator": RollingJaxEstimator(models.Linear(alpha=1.0), step=150, capacity=256),
    }.items():
        pipeline = Pipeline([("subset", band), ("model", model)])
        pipeline.fit(spectra, y).predict(spectra)
        with count_compiles() as compiles:
            search = GridSearchCV(pipeline, bands, cv=3).fit(spectra, y)
        best = search.best_params_
        print(
            f"{name}: the best of {len(bands)} bands is [{best['subset__start']}, {best['subset__stop']}) nm, "
            f"R2 = {search.best_score_:.2f}; {compiles.count} compiles after the first fit"
        )
        assert compiles.count == 0
        assert 480 <= best["subset__start"] < best["subset__stop"] <= 620


def search_rows():
    """Follow y = 2 x - 50 in [30, 60), and something else outside."""
    rng = np.random.default_rng(1)
    x = rng.uniform(0, 100, 2000)
    y = np.where((x >= 30) & (x < 60), 2 * x - 50, 20 * np.sin(x) + 5) + rng.normal(size=2000)
    ranges = interval_grid(np.arange(100), widths=[10, 20, 30, 40], step=10)
    folds = KFold(5, shuffle=True, random_state=0)
    search = GridSearchCV(RangeEstimator(LinearRegression()), ranges, cv=folds).fit(x[:, None], y)
    best = search.best_params_
    found = f"[{best['start']}, {best['stop']}), R2 = {search.best_score_:.3f}"
    print(f"{len(ranges)} ranges of rows: the law holds in {found}")
    assert (best["start"], best["stop"]) == (30, 60)


if __name__ == "__main__":
    search_band()
    search_rows()
