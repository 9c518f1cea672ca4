"""The one backend of compiled kernels; knows nothing of scikit-learn or of time."""

from skjaxwin.kernels.compile import CompileCount, count_compiles
from skjaxwin.kernels.engine import fit_windows, join_candidates
from skjaxwin.kernels.predict import all_finite, map_params, predict_rows
from skjaxwin.kernels.running import Running
from skjaxwin.kernels.scan import Rows
from skjaxwin.kernels.shapes import bucket

__all__ = [
    "CompileCount",
    "Rows",
    "Running",
    "all_finite",
    "bucket",
    "count_compiles",
    "fit_windows",
    "join_candidates",
    "map_params",
    "predict_rows",
]
