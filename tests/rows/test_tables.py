"""Tables: the same columns whatever they come from, and one line for everything that is wrong with a file."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tallbayes.errors import DataError, InputError, TallbayesError
from tallbayes.rows.columns import count_missing, drop_missing, levels_of
from tallbayes.rows.sources import open_source

NUM_ROWS = 200
GENERATOR = np.random.default_rng(0)
COLUMNS: dict[str, np.ndarray] = {
    "hour": GENERATOR.integers(0, 24, NUM_ROWS),
    "distance": np.round(GENERATOR.gamma(2.0, 500.0, NUM_ROWS), 3),
    "carrier": np.array(["UA", "AA", "DL"])[GENERATOR.integers(0, 3, NUM_ROWS)],
    "late": GENERATOR.random(NUM_ROWS) < 0.3,
}


def write_csv(folder: Path, name: str = "rows.csv", separator: str = ",") -> Path:
    pd.DataFrame(COLUMNS).to_csv(folder / name, sep=separator, index=False)
    return folder / name


def write_parquet(folder: Path) -> Path:
    # Several groups of rows, each with its own dictionary of the text.
    pq.write_table(pa.table(COLUMNS), folder / "rows.parquet", row_group_size=70)
    return folder / "rows.parquet"


def write_feather(folder: Path) -> Path:
    pa.feather.write_feather(pa.table(COLUMNS), str(folder / "rows.feather"))
    return folder / "rows.feather"


def write_arrow(folder: Path) -> Path:
    pl.DataFrame(COLUMNS).write_ipc(folder / "rows.arrow")
    return folder / "rows.arrow"


SOURCES: dict[str, Callable[[Path], Any]] = {
    "csv": write_csv,
    "csv.gz": lambda folder: write_csv(folder, "rows.csv.gz"),
    "tsv": lambda folder: write_csv(folder, "rows.tsv", "\t"),
    "path as text": lambda folder: str(write_csv(folder)),
    "parquet": write_parquet,
    "feather": write_feather,
    "arrow": write_arrow,
    "pandas": lambda _: pd.DataFrame(COLUMNS),
    "pandas category": lambda _: pd.DataFrame(COLUMNS).astype({"carrier": "category"}),
    "polars": lambda _: pl.DataFrame(COLUMNS),
    "polars category": lambda _: pl.DataFrame(COLUMNS).with_columns(pl.col("carrier").cast(pl.Categorical)),
    "arrow table": lambda _: pa.table(COLUMNS),
    "dict": lambda _: COLUMNS,
    "dict of lists": lambda _: {name: column.tolist() for name, column in COLUMNS.items()},
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_same_columns_from_every_source(name: str, tmp_path: Path) -> None:
    table = open_source(SOURCES[name](tmp_path)).read(["carrier", "late", "distance"])
    assert table.column_names == ["carrier", "late", "distance"]
    assert levels_of(table.column("carrier")) == ("AA", "DL", "UA")
    for column in table.column_names:
        assert table.column(column).to_pylist() == COLUMNS[column].tolist()


@pytest.mark.parametrize("name", SOURCES)
def test_the_names_of_columns_before_reading(name: str, tmp_path: Path) -> None:
    assert open_source(SOURCES[name](tmp_path)).names == tuple(COLUMNS)


def test_only_the_columns_needed_are_read(tmp_path: Path) -> None:
    """A column of lists, which is refused where it is read, does no harm where it is not."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"hour": [1, 2], "route": [[1, 2], [3]]}), path)
    assert open_source(path).read(["hour"]).column("hour").to_pylist() == [1, 2]
    assert "'route'" in refuse(path, ["route"])


def test_levels_are_sorted_unless_they_have_an_order_and_unused_ones_are_gone() -> None:
    values = ["low", "high", "low"]
    ordered = pd.Categorical(values, categories=["low", "none", "high"])
    enum = pl.DataFrame({"level": pl.Series(values, dtype=pl.Enum(["low", "none", "high"]))})
    assert levels_of(open_source({"level": values}).read().column("level")) == ("high", "low")
    for source in ({"level": ordered}, pd.DataFrame({"level": ordered}), enum):
        column = open_source(source).read().column("level")
        assert levels_of(column) == ("low", "high")
        assert column.to_pylist() == values


def test_missing_values_are_counted_and_dropped() -> None:
    rows = {"a": [1.0, np.nan, 3.0, 4.0], "b": ["x", "y", None, "x"], "c": [1, 2, 3, 4]}
    sources = (rows, pd.DataFrame(rows), pa.table(rows), pl.DataFrame(rows, strict=False))
    for source in sources:
        table = open_source(source).read()
        assert count_missing(table) == {"a": 1, "b": 1}
        kept = drop_missing(table)
        assert kept.column("c").to_pylist() == [1, 4]
        assert levels_of(kept.column("b")) == ("x",)


def refuse(source: Any, columns: list[str] | None = None) -> str:
    """The message of the DataError that reading must raise, on one line."""
    with pytest.raises(TallbayesError) as caught:
        open_source(source).read(columns)
    message = str(caught.value)
    assert type(caught.value) is DataError, message
    assert "\n" not in message
    for part in ("expected ", "; got ", "Try: "):
        assert part in message
    return message


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_missing_file_is_told_the_nearest_name(tmp_path: Path) -> None:
    write_parquet(tmp_path)
    message = refuse(tmp_path / "row.parquet")
    assert "'rows.parquet'" in message
    assert "check the path" in refuse(tmp_path / "nowhere" / "rows.csv")


def test_a_folder(tmp_path: Path) -> None:
    assert "the folder" in refuse(tmp_path)


def test_an_unknown_ending(tmp_path: Path) -> None:
    message = refuse(written(tmp_path / "rows.xlsx", "x"))
    assert "'rows.xlsx'" in message
    assert ".parquet" in message


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "rows.arrow"])
def test_an_empty_file(name: str, tmp_path: Path) -> None:
    assert "an empty file" in refuse(written(tmp_path / name, ""))


def test_a_csv_of_blank_lines(tmp_path: Path) -> None:
    assert "'rows.csv'" in refuse(written(tmp_path / "rows.csv", "\n\n"))


def test_a_header_without_rows(tmp_path: Path) -> None:
    assert "0 rows" in refuse(written(tmp_path / "rows.csv", "a,b\n"), ["a"])
    pq.write_table(pa.table({"a": pa.array([], pa.float64())}), tmp_path / "rows.parquet")
    assert "0 rows" in refuse(tmp_path / "rows.parquet", ["a"])


@pytest.mark.parametrize("broken", ["3", "3,4,5"])
@pytest.mark.parametrize("before", [1, 300_000])
def test_a_broken_row_of_a_csv_is_named(broken: str, before: int, tmp_path: Path) -> None:
    """Also where it comes after the first block, which threads read without counting."""
    path = written(tmp_path / "rows.csv", "a,b\n" + "1,2\n" * before + f"{broken}\n1,2\n")
    assert f"line {before + 2}" in refuse(path, ["a"])


@pytest.mark.parametrize("name", ["parquet", "feather", "csv.gz"])
@pytest.mark.parametrize("part", [0.5, 0.98])
def test_a_truncated_file(name: str, part: float, tmp_path: Path) -> None:
    path = SOURCES[name](tmp_path)
    content = path.read_bytes()
    assert "truncated" in refuse(written(path, content[: int(part * len(content))]), ["hour"])


def test_a_parquet_file_damaged_within(tmp_path: Path) -> None:
    path = write_parquet(tmp_path)
    content = bytearray(path.read_bytes())
    content[4 : len(content) // 2] = bytes(len(content) // 2 - 4)
    assert "'rows.parquet'" in refuse(written(path, bytes(content)))


def test_a_missing_column_is_told_the_nearest_name() -> None:
    message = refuse(COLUMNS, ["Distanse"])
    assert "'distance'" in message
    assert "the columns are hour, distance, carrier, late" in message
    wide = {f"column_{number}": [1.0] for number in range(50)}
    assert len(refuse(wide, ["colum_7"])) < 150


def test_a_name_that_two_columns_have(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "a,a,b\n1,2,3\n")
    assert "one column 'a'" in refuse(path, ["a"])
    assert open_source(path).read(["b"]).column("b").to_pylist() == [3]
    assert "one column 'a'" in refuse(pd.DataFrame([[1, 2]], columns=["a", "a"]))


@pytest.mark.parametrize("values", [[None, None], [np.nan, np.nan], np.array([np.nan, np.nan])])
def test_a_column_that_is_all_missing(values: Any) -> None:
    for source in ({"a": values}, pa.table({"a": values})):
        assert "all of them missing" in refuse(source)


def test_a_csv_column_that_is_all_missing(tmp_path: Path) -> None:
    assert "'b'" in refuse(written(tmp_path / "rows.csv", "a,b\n1,\n2,\n"))


BAD_COLUMNS: dict[str, tuple[Any, str]] = {
    "numbers and text": ([1, "two"], "one type"),
    "two dimensions": (np.zeros((2, 2)), "shape (2, 2)"),
    "a single number": (1.0, "shape ()"),
    "times": (np.array(["2020-01-01", "2020-01-02"], "datetime64[ns]"), "timestamp"),
    "lists": (pa.array([[1], [2]]), "list"),
    "bytes": ([b"a", b"\xff"], "binary"),
}


@pytest.mark.parametrize("name", BAD_COLUMNS)
def test_columns_that_are_neither_numbers_nor_text(name: str) -> None:
    values, part = BAD_COLUMNS[name]
    message = refuse({"odd": values})
    assert "'odd'" in message
    assert part in message


def test_columns_of_different_length() -> None:
    assert "'b': 3" in refuse({"a": [1, 2], "b": [1, 2, 3]})


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    assert "UTF-8" in refuse(written(tmp_path / "rows.csv", b"a\n\xe9\n\xe8\n"))


def test_something_that_is_no_table() -> None:
    assert "DataFrame" in refuse(np.zeros((3, 3)))


def test_what_is_installed_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r'pip install "tallbayes\[data\]"'):
        open_source(COLUMNS)


def test_importing_the_doors_imports_no_optional_package() -> None:
    program = (
        "import sys, tallbayes.formula.fit\n"
        "found = {'pandas', 'pyarrow', 'formulaic', 'polars'} & set(sys.modules)\n"
        "assert not found, found"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True)
