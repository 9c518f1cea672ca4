"""Run every example in a process of its own; fail if one fails or takes longer than 30 seconds.

python examples/run_all.py
"""

import os
import subprocess
import sys
import time
from pathlib import Path

LIMIT_SECONDS = 30


def run(script):
    """Run one script; return None, or why it counts as failed."""
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    start = time.perf_counter()
    try:
        done = subprocess.run(
            [sys.executable, str(script)], capture_output=True, text=True, timeout=LIMIT_SECONDS, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"took longer than {LIMIT_SECONDS} s"
    print(f"== {script.name}: {time.perf_counter() - start:.1f} s")
    print(done.stdout, end="")
    return None if done.returncode == 0 else f"exit status {done.returncode}\n{done.stderr}"


def main():
    scripts = sorted(p for p in Path(__file__).parent.glob("*.py") if p.name != Path(__file__).name)
    reasons = {script.name: reason for script in scripts if (reason := run(script)) is not None}
    for name, reason in reasons.items():
        print(f"FAILED {name}: {reason}", file=sys.stderr)
    print(f"{len(scripts) - len(reasons)} of {len(scripts)} examples ran")
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
