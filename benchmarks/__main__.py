"""Print the tables of the benchmarks.

python -m benchmarks [NAME ...]     all, or those whose name contains NAME

Those whose peers are NumPy and scikit-learn run with one BLAS thread and with the default; those with compiled peers,
which have threads of their own, with the default alone.
"""

import os
import subprocess
import sys

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
AGAINST_BLAS = (
    "growing_window",
    "grid_search",
    "walk_forward",
    "mixture_fit",
    "logistic_windows",
    "elastic_net",
    "window_search",
)
AGAINST_COMPILED = (
    "linear_windows",
    "window_moments",
    "window_exactness",
    "ridge_grid",
    "memory",
    "mixture_entropy",
    "subset",
    "curves",
)
PASSES = (
    ("BLAS threads: 1", "1", AGAINST_BLAS),
    ("BLAS threads: default", None, AGAINST_BLAS),
    ("all threads: default", None, AGAINST_COMPILED),
)


def main():
    """Run the benchmarks in a new process for each thread setting: BLAS reads it at import."""
    wanted = sys.argv[1:] or [""]
    everything = AGAINST_BLAS + AGAINST_COMPILED
    for word in wanted:
        if not any(word in name for name in everything):
            print(f"no benchmark has {word!r} in its name; there are {', '.join(everything)}", file=sys.stderr)
            return 2
    status = 0
    for label, threads, names in PASSES:
        chosen = [name for name in names if any(word in name for word in wanted)]
        if not chosen:
            continue
        environment = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
        if threads is not None:
            environment.update(dict.fromkeys(THREAD_VARIABLES, threads))
        command = [sys.executable, "-m", "benchmarks.runner", label, *chosen]
        status |= subprocess.run(command, env=environment).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
