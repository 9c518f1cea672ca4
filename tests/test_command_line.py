"""python -m skjaxwin: the built-in job, files of one's own, and messages instead of tracebacks."""

from __future__ import annotations

import csv
import re
import subprocess
import sys

import numpy as np
import pytest

from skjaxwin.__main__ import main
from skjaxwin.datasets import load_us_macro


def ridge(X, y, alpha):
    """Ridge with a free intercept, by lstsq on centred and augmented rows."""
    k = X.shape[1]
    x_mean, y_mean = X.mean(axis=0), y.mean()
    rows = np.vstack([X - x_mean, np.sqrt(alpha) * np.eye(k)])
    slope = np.linalg.lstsq(rows, np.r_[y - y_mean, np.zeros(k)], rcond=None)[0]
    return slope, y_mean - x_mean @ slope


def test_the_main_job_in_a_fresh_process_is_one_compile_and_right():
    shown = subprocess.run([sys.executable, "-m", "skjaxwin"], capture_output=True, text=True, timeout=200, check=True)
    text = shown.stdout
    assert re.search(r"windows x grid +190 x 25 = 4750 fits", text)
    assert re.search(r"compiles +1\n", text)
    macro = load_us_macro()
    X, y = macro.data, macro.target
    rows = np.arange(12, len(y))  # the first window that is fitted holds 12 rows
    naive = np.sqrt(np.mean((y[rows] - y[rows - 1]) ** 2))
    for alpha in (0.001, 100.0):
        fits = [ridge(X[:t], y[:t], alpha) for t in rows]
        errors = [y[t] - X[t] @ slope - intercept for t, (slope, intercept) in zip(rows, fits, strict=True)]
        rmse = np.sqrt(np.mean(np.square(errors)))
        assert f"{alpha:>12.4g}  {rmse:>10.4f}  {rmse / naive:>9.3f}" in text
    assert f"{'naive':>12}  {naive:>10.4f}" in text


@pytest.fixture
def series(tmp_path):
    """A panel of two rows a day, unsorted, that follows one law exactly."""
    rng = np.random.default_rng(3)
    days = np.repeat(np.arange("2024-01-01", "2024-02-10", dtype="datetime64[D]"), 2)
    a, b = rng.normal(size=(2, len(days)))
    y = 2 * a - b + 0.5
    order = rng.permutation(len(days))
    path = tmp_path / "series.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["date", "a", "y", "b", "note"])
        writer.writerows([str(days[i]), a[i], y[i], b[i], "text"] for i in order)
    return path


def run(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.parametrize("window", ["expanding", "15", "15D", "360h"])
def test_a_file_of_ones_own(series, tmp_path, capsys, window):
    output = tmp_path / "predictions.csv"
    status, out, err = run(
        capsys, series, "--time", "date", "--target", "y", "--features", "a,b",
        "--window", window, "--grid", "alpha=0,1", "--output", output,
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert "<- best" in next(line for line in out.splitlines() if line.split()[:1] == ["0"])
    with output.open() as file:
        rows = list(csv.DictReader(file))
    with series.open() as file:
        source = list(csv.DictReader(file))
    assert [row["time"] for row in rows] == [row["date"] for row in source]
    # Two rows a day and at least 6 rows in a window: predictions start on the fourth day.
    for row in rows:
        if row["time"] < "2024-01-04":
            assert row["prediction"] == ""
        else:
            assert float(row["prediction"]) == pytest.approx(float(row["y"]), abs=1e-9)


def test_gap_and_step_and_compact_dates(tmp_path, capsys):
    path = tmp_path / "daily.csv"
    lines = [f"202401{day:02d},{day},{day * day}" for day in range(1, 31)]
    path.write_text("day,x,y\n" + "\n".join(lines) + "\n")
    status, out, _ = run(
        capsys, path, "--time", "day", "--target", "y", "--gap", 3, "--step", 7, "--min-periods", 7, "--grid", "alpha=0"
    )
    assert status == 0
    assert "windows x grid   5 x 1 = 5 fits" in out
    # The window of 7 days may predict from day 7 + 3 + 1 on.
    assert "out of sample    20 rows" in out


@pytest.mark.parametrize(
    ("content", "arguments", "message"),
    [
        (None, ["--target", "y"], "cannot read"),
        ("", ["--target", "y"], "is empty"),
        ("a,y\n", ["--target", "y"], "no rows"),
        ("a,y\n1,2\n", [], "--target"),
        ("a,y\n1,2\n", ["--target", "z"], "no column 'z'; its columns are a, y"),
        ("a,y\n1,2\n", ["--target", "y", "--time", "t"], "no column 't'"),
        ("a,y\n1,2\n", ["--target", "y", "--features", "b"], "no column 'b'"),
        ("a,y\n1,2\n", ["--target", "y", "--features", "y"], "must not name the target"),
        ("y\n2\n", ["--target", "y"], "no column left"),
        ("a,y\n1,2\nred,3\n", ["--target", "y"], "line 3: 'red' in column 'a' is not a number"),
        ("a,y\n1,2\ninf,3\n", ["--target", "y"], "line 3: 'inf' in column 'a' is not finite"),
        ("a,y\n1,2\n,3\n,4\n", ["--target", "y"], "'a' has 2 missing value(s), the first in line 3"),
        ("a,y\n1,2\n1\n", ["--target", "y"], "line 3: 1 cells, but the header has 2"),
        ("a,a,y\n1,2,3\n", ["--target", "y"], "several columns called 'a'"),
        ("t,a,y\nx,1,2\n", ["--target", "y", "--time", "t"], "neither a number nor a date"),
        ("t,a,y\n,1,2\n", ["--target", "y", "--time", "t"], "the time column 't' is empty"),
        ("a,y\n1,2\n2,4\n", ["--target", "y"], "min_periods=4"),
        ("a,y\n1,2\n2,4\n", ["--target", "y", "--window", "90D"], "name the time column with --time"),
        ("t,a,y\n1,1,2\n2,2,4\n", ["--target", "y", "--time", "t", "--window", "90D"], "plain numbers"),
        ("a,y\n1,2\n2,4\n", ["--target", "y", "--window", "3M"], "--window"),
        ("a,y\n1,2\n2,4\n", ["--target", "y", "--grid", "alpha=a"], "--grid"),
        ("a,y\n1,2\n2,4\n", ["--target", "y", "--grid", "beta=1"], "--grid"),
        ("a,y\n1,2\n2,4\n", ["--target", "y", "--grid", "alpha=-1"], "--grid"),
        ("a,y\n1,2\n2,4\n", ["--target", "y", "--step", "0"], "'step'"),
        ("a,y\n1,2\n2,4\n", ["--target", "y", "--min-periods", "0"], "'min_periods'"),
        ("a,y\n1,2\n2,4\n", ["--target", "y", "--features", "a,a"], "twice"),
        ("a;y\n1;2\n2;4\n", ["--target", "y"], "separated by semicolons"),
        ("t,a,y\n2024-01-01,1,2\n", ["--target", "y"], "name the time column with --time"),
        ("t,a,y\n2024-01-01,1,2\n", ["--target", "t", "--time", "t"], "the same column"),
        ("t,a,y\n2024-01-01,1,2\n", ["--target", "y", "--time", "t", "--window", "2.5"], "has no unit"),
        ("a,y\n1,2\n2,4\n", ["--target", "y", "--gap", "-1"], "'gap'"),
        ("a,y\n1,2\n2,4\n", ["--target", "y", "--min-periods", "2", "--gap", "9"], "no row is preceded"),
    ],
)
def test_one_line_says_what_to_do(tmp_path, capsys, content, arguments, message):
    path = tmp_path / "input.csv"
    if content is not None:
        path.write_text(content)
    status, _, err = run(capsys, path, *arguments)
    assert status == 2
    assert message in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_the_input_file_is_never_written_over(series, capsys):
    before = series.read_bytes()
    status, _, err = run(capsys, series, "--target", "y", "--features", "a,b", "--output", series)
    assert status == 2
    assert "--output names the input file" in err
    assert series.read_bytes() == before


def test_options_that_describe_a_file_need_one(capsys):
    status, _, err = run(capsys, "--target", "y")
    assert status == 2
    assert "name it first" in err


def test_offsets_from_utc_a_constant_target_and_an_index_column(tmp_path, capsys):
    path = tmp_path / "constant.csv"
    rows = [f"{i},2024-01-{i:02d} 00:00:00+02:00,{i % 5},7" for i in range(1, 29)]
    path.write_text(",when,x,y\n" + "\n".join(rows) + "\n")
    status, out, err = run(capsys, path, "--time", "when", "--target", "y", "--window", "10D", "--grid", "alpha=1")
    assert (status, err) == (0, "")
    assert "features x\n" in out
    assert "n/a" in out


def test_an_output_that_cannot_be_written(tmp_path, capsys):
    status, _, err = run(capsys, "--output", tmp_path / "no" / "such.csv", "--grid", "alpha=1")
    assert status == 2
    assert "cannot write" in err
