"""Read a CSV file into times, features and a target, with messages that say what to do."""

from __future__ import annotations

import csv
import datetime
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Table", "TableError", "macro_table", "read_table", "write_predictions"]

_COMPACT_DATE = re.compile(r"(1[6-9]|2[0-2])\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_MISSING = frozenset({"", "na", "nan", "null", "none", "n/a", "."})


class TableError(Exception):
    """Input that cannot be used; the message is one line and says what to do."""


@dataclass(frozen=True)
class Table:
    """A series ready to be fitted.

    Attributes
    ----------
    title, target_name : str
    names : list of str
        The features.
    features : ndarray of shape (n_rows, n_features)
    target : ndarray of shape (n_rows,)
    time : ndarray of shape (n_rows,) or None
        Numbers or datetime64.
    time_text : list of str
        The times as they stand in the file, or row numbers.
    """

    title: str
    target_name: str
    names: list[str]
    features: np.ndarray
    target: np.ndarray
    time: np.ndarray | None
    time_text: list[str]

    def last_known_target(self, gap: int) -> np.ndarray:
        """Return for each row the mean target of the newest time stamp before it, with `gap` stamps between."""
        times = np.arange(len(self.target)) if self.time is None else self.time
        codes = np.unique(times, return_inverse=True)[1]
        means = np.bincount(codes, weights=self.target) / np.bincount(codes)
        before = codes - 1 - gap
        return np.where(before >= 0, means[np.maximum(before, 0)], np.nan)


def macro_table() -> Table:
    """Return the built-in example: US inflation and what was known a quarter before."""
    from skjaxwin.datasets import load_us_macro

    macro = load_us_macro()
    return Table(
        "US macro series, 1959-2009, quarterly",
        macro.target_name,
        macro.feature_names,
        macro.data,
        macro.target,
        macro.time,
        [str(t) for t in macro.time],
    )


def read_table(path: str, time: str | None, target: str, features: list[str] | None) -> Table:
    """Read a CSV file with a header line.

    Parameters
    ----------
    path : str
    time : str or None
        The time column; None takes the rows in their order.
    target : str
        The column to predict.
    features : list of str or None
        None takes all other columns.

    Returns
    -------
    table : Table

    Raises
    ------
    TableError
        For anything that cannot be read, naming the column and the line.
    """
    header, rows, lines = _read_rows(path)
    if time == target:
        raise TableError("--time and --target name the same column")
    if features is not None and len(set(features)) < len(features):
        raise TableError("--features names a column twice")
    for name in [time, target, *(features or [])]:
        if name is not None and name not in header:
            raise TableError(
                f"{path} has no column {name!r}; its columns are {', '.join(filter(None, header))}" + _separator(header)
            )
    if features is None:
        features = [name for name in header if name and name not in (time, target)]  # "" is an index column
    elif target in features or (time is not None and time in features):
        raise TableError("--features must not name the target or the time column")
    if not features:
        raise TableError(f"{path} has no column left to be a feature; name some with --features")
    cells = {name: [row[header.index(name)].strip() for row in rows] for name in [*features, target]}
    _refuse_missing(path, cells, lines)
    numbers = {name: _numbers(path, name, column, lines) for name, column in cells.items()}
    times, time_text = None, [str(i) for i in range(len(rows))]
    if time is not None:
        time_text = [row[header.index(time)].strip() for row in rows]
        times = _times(path, time, time_text, lines)
    return Table(
        path,
        target,
        features,
        np.column_stack([numbers[name] for name in features]),
        numbers[target],
        times,
        time_text,
    )


def _read_rows(path: str) -> tuple[list[str], list[list[str]], list[int]]:
    """Return the header, the rows that are not blank, and their line numbers."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = [name.strip() for name in next(reader, [])]
            rows, lines = [], []
            for row in reader:
                if any(cell.strip() for cell in row):
                    rows.append(row)
                    lines.append(reader.line_num)
    except OSError as error:
        raise TableError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TableError(f"{path} is not a CSV text file in UTF-8 ({error})") from error
    if not header:
        raise TableError(f"{path} is empty; the first line must name the columns")
    doubled = sorted({name for name in header if name and header.count(name) > 1})
    if doubled:
        raise TableError(f"{path} has several columns called {doubled[0]!r}; rename them")
    if not rows:
        raise TableError(f"{path} has a header but no rows")
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(header):
            raise TableError(f"{path}, line {line}: {len(row)} cells, but the header has {len(header)}")
    return header, rows, lines


def _separator(header: list[str]) -> str:
    """Add a hint where the file does not seem to be separated by commas."""
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(header) == 1 and separator in header[0]:
            return f" (the file is separated by {name}; write it with commas)"
    return ""


def _refuse_missing(path: str, cells: dict[str, list[str]], lines: list[int]) -> None:
    for name, column in cells.items():
        missing = [line for cell, line in zip(column, lines, strict=True) if cell.lower() in _MISSING]
        if missing:
            raise TableError(
                f"{path}: column {name!r} has {len(missing)} missing value(s), the first in line {missing[0]}; "
                "remove or fill these rows, or leave the column out with --features"
            )


def _numbers(path: str, name: str, column: list[str], lines: list[int]) -> np.ndarray:
    values = np.empty(len(column))
    for i, (cell, line) in enumerate(zip(column, lines, strict=True)):
        try:
            values[i] = float(cell)
        except ValueError:
            raise TableError(
                f"{path}, line {line}: {cell!r} in column {name!r} is not a number; "
                "choose numeric columns with --features, and name the time column with --time"
            ) from None
        if not np.isfinite(values[i]):
            raise TableError(f"{path}, line {line}: {cell!r} in column {name!r} is not finite")
    return values


def _times(path: str, name: str, column: list[str], lines: list[int]) -> np.ndarray:
    """Read dates (20240131, 2024-01-31, 2024-01-31 12:00) or numbers."""
    blank = [line for cell, line in zip(column, lines, strict=True) if cell.lower() in _MISSING]
    if blank:
        raise TableError(f"{path}, line {blank[0]}: the time column {name!r} is empty; every row needs a time")
    if all(_COMPACT_DATE.fullmatch(cell) for cell in column):
        column = [f"{cell[:4]}-{cell[4:6]}-{cell[6:]}" for cell in column]
    elif all(re.fullmatch(r"[+-]?\d+", cell) for cell in column):
        whole = [int(cell) for cell in column]
        if max(map(abs, whole)) >= 2**63:
            raise TableError(f"{path}: the time column {name!r} holds integers beyond 64 bits")
        return np.array(whole)
    else:
        try:
            return _numbers(path, name, column, lines)
        except TableError:
            pass
    times = []
    for cell, line in zip(column, lines, strict=True):
        try:
            times.append(_date(cell))
        except ValueError:
            raise TableError(
                f"{path}, line {line}: {cell!r} in the time column {name!r} is neither a number nor a date "
                "like 2024-01-31 or 2024-01-31 12:00"
            ) from None
    return np.array(times)  # in the finest unit among them


def _date(text: str) -> np.datetime64:
    """Read an ISO date or time; an offset from UTC is taken off."""
    if re.search(r":\d\d(\.\d+)?\s*(Z|[+-]\d\d:?\d\d)$", text):
        moment = datetime.datetime.fromisoformat(text).astimezone(datetime.timezone.utc)
        return np.datetime64(moment.replace(tzinfo=None), "us")
    if not text[:4].isdigit():  # NumPy would take "today" and "NaT"
        raise ValueError(text)
    unit: Any = "ns" if re.search(r"\.\d{7,}$", text) else "us"
    return np.datetime64(text.replace(" ", "T", 1), unit)


def write_predictions(
    path: str, table: Table, name: str, values: np.ndarray, predictions: np.ndarray, best: int
) -> None:
    """Write time, target, the best candidate's prediction and one column for each candidate.

    Rows keep their order; a row that no window precedes has empty predictions.
    """
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            labels = [f"{name}={value:.6g}" for value in values]
            writer.writerow(["time", table.target_name, "prediction", *labels])
            for i, time in enumerate(table.time_text):
                row = ["" if np.isnan(p) else repr(float(p)) for p in predictions[:, i]]
                writer.writerow([time, repr(float(table.target[i])), row[best], *row])
    except OSError as error:
        raise TableError(f"cannot write {path}: {error.strerror}") from error
