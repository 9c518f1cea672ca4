"""Print the table of benchmarks, with one BLAS thread and with the default.

python -m benchmarks [NAME ...]     all, or those whose name contains NAME
"""

import os
import subprocess
import sys

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def main():
    """Run the benchmarks in a new process for each thread setting: BLAS reads it at import."""
    status = 0
    for label, threads in (("BLAS threads: 1", "1"), ("BLAS threads: default", None)):
        environment = {name: value for name, value in os.environ.items() if name not in THREAD_VARIABLES}
        if threads is not None:
            environment.update(dict.fromkeys(THREAD_VARIABLES, threads))
        command = [sys.executable, "-m", "benchmarks.runner", label, *sys.argv[1:]]
        status |= subprocess.run(command, env=environment).returncode
    return status


if __name__ == "__main__":
    sys.exit(main())
