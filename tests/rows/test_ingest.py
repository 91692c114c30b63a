"""Ingest: files of every format in, one shuffled table out; refusals by file, column and row."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from ingest_files import NAMES, as_columns, columns, make_small, write, write_files

import tallbayes as tb
from tallbayes.errors import DataError
from tallbayes.rows import packing
from tallbayes.rows.formats import format_of


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "in")


@pytest.mark.usefixtures("small")
def test_files_of_every_format_become_one_table(folder: Path, tmp_path: Path) -> None:
    table = tb.ingest(folder, tmp_path / "out")
    given = [columns(200 * (seed + 1), seed) for seed in range(len(NAMES))]
    found = as_columns(table)
    for name in given[0]:
        want = np.concatenate([each[name] for each in given])
        np.testing.assert_array_equal(found[name], want.astype(found[name].dtype))
    assert table.shuffled
    assert [field.name for field in table.fields] == ["numbers", "codes"]
    by_name = {column.name: column for column in table.columns}
    assert {name: column.kind for name, column in by_name.items()} == {
        "x": "number",
        "id": "whole",
        "carrier": "text",
        "late": "bool",
    }
    assert by_name["carrier"].levels == ("B", "a", "b", "ü")
    assert (by_name["id"].least, by_name["id"].largest) == (0, 40_999)
    assert table.source is not None
    assert table.source["rows"] == [200, 400, 600, 800, 1000]
    assert [Path(path).name for path, _, _ in table.source["files"]] == NAMES
    assert tb.open_table(tmp_path / "out").digest == table.digest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


@pytest.mark.parametrize("size", ["small", None])
def test_rows_keep_their_numbers_in_the_source(size: str | None, folder: Path, tmp_path: Path, request: Any) -> None:
    """Through files of every format, in their order; and a table without them reads as before, and says so."""
    if size:
        request.getfixturevalue(size)
    table = tb.ingest(folder, tmp_path / "out")
    given = np.concatenate([columns(200 * (seed + 1), seed)["id"] for seed in range(len(NAMES))])
    place = next(column.place for column in table.columns if column.name == "id")
    found, numbers, order = table.rows()["codes"][:, place], table.row_numbers(), table.source_order()
    assert numbers is not None
    assert sorted(numbers) == list(range(3000))
    np.testing.assert_array_equal(found, given[numbers])
    np.testing.assert_array_equal(found[order], given)
    assert not np.array_equal(found, given)
    batches = list(packing.packed_batches(table, ["id"], 700, order))
    np.testing.assert_array_equal(np.concatenate([np.asarray(each["id"]) for each in batches]), given)
    older = replace(table, numbered=False)
    assert older.row_numbers() is None
    assert older.source_order() is None
    assert older.num_bytes < table.num_bytes


def test_one_bucket_or_many_hold_the_same_rows(folder: Path, tmp_path: Path, request: Any) -> None:
    once = as_columns(tb.ingest(folder, tmp_path / "once"))
    request.getfixturevalue("small")
    many = as_columns(tb.ingest(str(folder / "*"), tmp_path / "many"))
    for name, values in once.items():
        np.testing.assert_array_equal(values, many[name])


def test_columns_can_be_chosen_and_files_named_singly(folder: Path, tmp_path: Path) -> None:
    table = tb.ingest([folder / "d.parquet", str(folder / "a.csv")], tmp_path / "out", columns=["late", "carrier"])
    assert [(column.name, column.place) for column in table.columns] == [("late", 0), ("carrier", 1)]
    assert [field.name for field in table.fields] == ["codes"]
    assert len(table) == 1000


def test_missing_values_of_every_kind(tmp_path: Path) -> None:
    values = {
        "id": pa.array([0, 1, 2]),
        "x": pa.array([0.5, None, float("nan")]),
        "count": pa.array([7, None, 9]),
        "carrier": pa.array([None, "b", "a"]),
        "late": pa.array([True, False, None]),
    }
    table = tb.ingest(write(tmp_path / "a.parquet", values), tmp_path / "out")
    found = as_columns(table)
    np.testing.assert_array_equal(found["x"], np.float32([0.5, np.nan, np.nan]))
    np.testing.assert_array_equal(found["count"], np.float32([7, np.nan, 9]))
    assert list(found["carrier"]) == ["missing", "b", "a"]
    assert list(found["late"]) == [1, 0, -1]
    by_name = {column.name: column for column in table.columns}
    assert [by_name[name].missing for name in values] == [0, 2, 1, 1, 1]
    assert (by_name["count"].kind, by_name["count"].field) == ("whole", "numbers")


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_column_may_be_empty_for_long(name: str, tmp_path: Path) -> None:
    text = pa.array([None] * 1500 + ["b", "a"])
    numbers = pa.array([None] * 1501 + [2.5])
    path = write(tmp_path / name, {"id": np.arange(1502), "text": text, "x": numbers})
    table = tb.ingest(path, tmp_path / "out")
    found = as_columns(table)
    assert list(found["text"][-3:]) == ["missing", "b", "a"]
    assert (found["text"][:1500] == "missing").all()
    assert np.isnan(found["x"][:1501]).all()
    assert found["x"][-1] == 2.5
    assert [column.missing for column in table.columns] == [0, 1500, 1501]


DTYPES = {
    "plain numbers": (np.linspace(-1, 1, 50), "float32", "number"),
    "far from zero": (1e6 + np.linspace(-1, 1, 50), "float64", "number"),
    "single already": (np.float32(1e6) + np.linspace(-1, 1, 50, dtype=np.float32), "float32", "number"),
    "large": (np.linspace(-1, 1, 50) * 1e13, "float64", "number"),
    "whole": (np.arange(50), "int32", "whole"),
    "whole beyond 32 bits": (np.arange(50) + 2**31, "float64", "whole"),
    "least of 32 bits": (np.arange(50) - 2**31, "int32", "whole"),
    "unsigned": (np.arange(50, dtype=np.uint64), "int32", "whole"),
    "decimals": (pa.array(range(50), pa.decimal128(12, 3)), "float32", "number"),
    "half": (np.linspace(-1, 1, 50, dtype=np.float16), "float32", "number"),
    "categories": (pa.array(["b", "a"] * 25).dictionary_encode(), "int32", "text"),
    "categories of numbers": (pa.array([4, 2] * 25).dictionary_encode(), "int32", "whole"),
    "large text": (pa.array(["b", "a"] * 25, pa.large_string()), "int32", "text"),
}


@pytest.mark.parametrize("name", DTYPES)
def test_types_are_as_wide_as_they_need_to_be(name: str, tmp_path: Path) -> None:
    values, dtype, kind = DTYPES[name]
    table = tb.ingest(write(tmp_path / "a.parquet", {"v": values}), tmp_path / "out")
    assert [field.dtype for field in table.fields] == [dtype]
    assert table.columns[0].kind == kind
    if kind != "text":
        want = np.asarray(pa.array(values).to_pylist(), np.float64)
        found = next(iter(table.rows().values()))[:, 0]
        np.testing.assert_allclose(np.sort(found), np.sort(want), rtol=1e-6)


@pytest.mark.usefixtures("small")
def test_whole_numbers_widen_within_a_csv_file_and_between_files(tmp_path: Path) -> None:
    lines = [f"{row},{row}" for row in range(3000)]
    lines[2000] = "2000,2000.5"
    (tmp_path / "a.csv").write_text("\n".join(["id,v", *lines]) + "\n")
    late = as_columns(tb.ingest(tmp_path / "a.csv", tmp_path / "late"))
    assert (late["v"][1999], late["v"][2000], late["v"][2999]) == (1999, 2000.5, 2999)
    write(tmp_path / "b.parquet", {"id": [5000], "v": [7]})
    both = tb.ingest([tmp_path / "b.parquet", tmp_path / "a.csv"], tmp_path / "both")
    assert both.columns[1].kind == "number"
    assert as_columns(both)["v"][-1] == 7


def csv_of(text: str) -> Callable[[Path], list[Path]]:
    return files_of({"a.csv": text})


def files_of(contents: dict[str, Any]) -> Callable[[Path], list[Path]]:
    def make(place: Path) -> list[Path]:
        for name, content in contents.items():
            if isinstance(content, dict):
                write(place / name, content)
            else:
                (place / name).write_text(content)
        return [place / name for name in contents]

    return make


def truncated_parquet(place: Path) -> list[Path]:
    path = write(place / "a.parquet", columns(500))
    os.truncate(path, path.stat().st_size // 2)
    return [path]


def torn_parquet(place: Path) -> list[Path]:
    """The footer is whole, the pages before are not."""
    path = write(place / "a.parquet", columns(500))
    data = bytearray(path.read_bytes())
    data[4:3000] = bytes(2996)
    path.write_bytes(data)
    return [path]


def truncated_gzip(place: Path) -> list[Path]:
    path = write(place / "a.csv.gz", columns(5000))
    os.truncate(path, path.stat().st_size // 2)
    return [path]


LATE_TEXT = "\n".join(["id,v", *(f"{row},{row}" for row in range(2000)), "2000,abc"]) + "\n"
REFUSALS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "infinite": (csv_of("x\n1\n2\ninf\n"), "finite numbers in column 'x'; got inf in row 3 of 'a.csv'"),
    "lists": (files_of({"a.parquet": {"d": [[1], [2]]}}), "numbers or text in column 'd' of 'a.parquet'; got list"),
    "dates and text": (
        files_of({"a.csv": "d\n2020-01-01\n", "b.csv": "d\nMay\n"}),
        "column 'd' of kind 'time' in 'b.csv' too; got 'text'",
    ),
    "another column": (csv_of("a,b\n1,2\n"), "a column 'hour'; got no such column in 'a.csv'"),
    "a column less": (files_of({"a.csv": "a,b\n1,2\n", "b.csv": "a\n1\n"}), "a column 'b'; got no such.*'b.csv'"),
    "a column more": (files_of({"a.csv": "a\n1\n", "b.csv": "a,b\n1,2\n"}), "got 'b' in 'b.csv', which 'a.csv' does"),
    "text and numbers": (
        files_of({"a.csv": "a\n1\n", "b.parquet": {"a": ["x"]}}),
        "column 'a' of kind 'whole' in 'b.parquet' too; got 'text'",
    ),
    "bools and numbers": (files_of({"a.csv": "a\ntrue\n", "b.csv": "a\n1\n"}), "kind 'bool' in 'b.csv' too; got 'wh"),
    "text late": (csv_of(LATE_TEXT), "one kind of value in column 'v' of 'a.csv'; got 'abc' on line 2002"),
    "a field too many": (csv_of(f"{LATE_TEXT[:-9]}\n1,2,3\n"), "readable file 'a.csv'.*look at line"),
    "empty file": (csv_of(""), "rows in 'a.csv'; got an empty file"),
    "no rows": (csv_of("a,b\n"), "at least one row in 'a.csv'; got 0 rows"),
    "no rows in Parquet": (files_of({"a.parquet": {"a": pa.array([], pa.int64())}}), "at least one row"),
    "all missing": (csv_of("a,b\n1,\n2,\n"), "values in column 'b'; got all of them missing"),
    "all NaN": (files_of({"a.parquet": {"a": [np.nan, np.nan]}}), "values in column 'a'; got all of them missing"),
    "truncated Parquet": (truncated_parquet, "a readable file 'a.parquet'"),
    "torn Parquet": (torn_parquet, "a readable file 'a.parquet'"),
    "truncated gzip": (truncated_gzip, "a readable file 'a.csv.gz'"),
    "nothing there": (lambda place: place / "flights.csv", "nothing at '.*flights.csv'"),
    "no files": (lambda place: [], "at least one file"),
    "an empty folder": (lambda place: place, r"files ending in \.csv"),
    "a pattern of nothing": (lambda place: str(place / "*.csv"), "nothing at"),
    "another format": (files_of({"a.xlsx": "a"}), "a file ending in"),
    "a file twice": (lambda place: csv_of("a\n1\n")(place) * 2, "every file once"),
    "a name twice": (csv_of("a,a\n1,2\n"), "one column 'a'"),
    "too many levels": (
        csv_of("\n".join(["t", *(f"n{n}" for n in range(50))])),
        "at most 40 levels in text column 't'",
    ),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", REFUSALS)
def test_refusals_name_file_and_column_and_leave_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MOST_LEVELS", 40)
    make, message = REFUSALS[name]
    place = tmp_path / "in"
    place.mkdir()
    wanted = ["hour"] if name == "another column" else None
    paths = make(place)
    with pytest.raises(DataError, match=message):
        tb.ingest(paths, tmp_path / "out", wanted)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("small")
def test_pieces_can_start_at_any_row(name: str, folder: Path) -> None:
    def ids(start: int) -> list[int]:
        pieces = format_of(folder / name).pieces(folder / name, ["id"], start, {})
        return [each for piece in pieces for each in piece.rows.column(0).to_pylist()]

    whole = ids(0)
    for start in (1, 70, 100, 130, len(whole) - 1, len(whole)):
        assert ids(start) == whole[start:]
