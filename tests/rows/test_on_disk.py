"""Tables on disk: what is written is what is opened, and whatever is not whole is refused by name."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.errors import DataError, TableError
from tallbayes.rows import on_disk as stored
from tallbayes.rows import table
from tallbayes.rows.segments import checksums
from tallbayes.rows.statistics import ColumnStatistics, needs_float64

NUM_ROWS = 1000


def rows(num_rows: int = NUM_ROWS) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    return {"x": generator.standard_normal((num_rows, 3)), "y": np.arange(num_rows)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tb.write_table(tmp_path / "rows.table", rows())
    return tmp_path / "rows.table"


def test_a_table_holds_the_rows_it_was_given(path: Path) -> None:
    opened, given = tb.open_table(path), rows()
    assert len(opened) == NUM_ROWS
    found = opened.rows()
    order = found["y"]
    assert sorted(order) == list(range(NUM_ROWS))
    assert list(order) != list(range(NUM_ROWS))
    np.testing.assert_array_equal(found["x"], given["x"][order].astype(np.float32))


def test_padding_are_copies_of_the_first_row_and_maps_are_aligned(path: Path) -> None:
    opened = tb.open_table(path)
    for array in opened.arrays().values():
        assert len(array) == opened.capacity == table.capacity_for(NUM_ROWS)
        assert (array[NUM_ROWS:] == array[0]).all()
        assert array.ctypes.data % table.ALIGNMENT == 0


def test_the_digest_is_of_the_contents_alone(path: Path, tmp_path: Path) -> None:
    elsewhere = tb.write_table(tmp_path / "again", rows())
    assert elsewhere.digest == tb.open_table(path).digest
    other = rows()
    other["y"][7] += 1
    assert tb.write_table(tmp_path / "other", other).digest != elsewhere.digest


def flip_byte(path: Path) -> None:
    with open(path / "x.bin", "r+b") as file:
        file.seek(5)
        byte = file.read(1)[0]
        file.seek(5)
        file.write(bytes([byte ^ 1]))


def edit_header(path: Path, **changes: Any) -> None:
    header = path / stored.HEADER
    header.write_text(json.dumps({**json.loads(header.read_text()), **changes}))


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "torn header": (lambda path: os.truncate(path / "table.json", 100), "a whole 'table.json'"),
    "no header": (lambda path: (path / "table.json").unlink(), "without table.json"),
    "header of a list": (lambda path: (path / "table.json").write_text("[]"), "a whole 'table.json'"),
    "other version": (lambda path: edit_header(path, format="tallbayes table 9"), "tallbayes table 9"),
    "other number of rows": (lambda path: edit_header(path, num_rows=999), "do not fit its own digest"),
    "missing file": (lambda path: (path / "y.bin").unlink(), "a whole 'y.bin'"),
    "cut file": (lambda path: os.truncate(path / "y.bin", 40), "40 bytes where there should be 4,096"),
    "flipped byte": (flip_byte, "a whole 'x.bin'.*other bytes than were written in rows 0 to 999"),
    "nothing": (shutil.rmtree, "nothing at"),
    "unfinished": (lambda path: path.rename(f"{path}.partial"), "unfinished.*goes on from where it was"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_table_that_is_not_whole_is_refused_by_name(path: Path, name: str) -> None:
    damage, message = DAMAGES[name]
    tb.open_table(path)
    damage(path)
    with pytest.raises(TableError, match=message):
        tb.open_table(path)


@pytest.fixture
def digested(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """A list that grows with every chunk that is read through."""
    seen: list[Path] = []
    digest = checksums._digest

    def listed(file: Path, *rest: Any) -> str:
        seen.append(file)
        return digest(file, *rest)

    monkeypatch.setattr(checksums, "_digest", listed)
    return seen  # type: ignore[return-value]


def test_an_unchanged_table_is_not_read_through_again(path: Path, digested: list[Path]) -> None:
    tb.open_table(path)
    assert not digested
    os.utime(path / "x.bin", ns=(0, 0))
    tb.open_table(path)
    assert {file.name for file in digested} == {"x.bin", "y.bin", "@row.bin"}
    tb.open_table(path)
    assert len(digested) == 3


def test_without_a_place_to_remember_it_is_read_each_time(path: Path, digested: list[Path], monkeypatch: Any) -> None:
    (path / checksums.SEEN).unlink()

    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "replace", refuse)
    for count in (3, 6):
        tb.open_table(path)
        assert len(digested) == count


def test_verification_can_be_left_out(path: Path) -> None:
    flip_byte(path)
    assert len(tb.open_table(path, verify=False)) == NUM_ROWS


CHUNKS: dict[str, tuple[Any, str]] = {
    "text": ({"x": ["a", "b"]}, "numbers in 'x'"),
    "nan": ([{"x": [1.0, 2.0]}, {"x": [3.0, np.nan]}], "finite numbers in 'x'; got nan at row 3"),
    "inf": ({"x": [[0.0, 1.0], [np.inf, 1.0]]}, "got inf at row 1"),
    "other keys": ([{"x": [1.0]}, {"z": [1.0]}], "fields.*got.*'z'.*from row 1 on"),
    "other shape": ([{"x": np.ones((2, 3))}, {"x": np.ones((2, 2))}], r"shape \(3,\) in 'x'; got \(2,\) from row 2"),
    "other lengths": ({"x": [1.0], "y": [1, 2]}, "same number of rows"),
    "wider later": ([{"x": np.ones(2, np.float32)}, {"x": np.ones(2)}], "float32 in 'x' as in the first chunk"),
    "floats in whole numbers": ([{"x": [1]}, {"x": [1.5]}], "int32 in 'x' as in the first chunk; got float64"),
    "beyond 32 bits": ({"x": [1, 2**31]}, "below 2.31 in 'x'; got 2147483648 at row 1"),
    "a single number": ({"x": 1.0}, "at least one entry a row"),
    "rows of nothing": ({"x": np.ones((2, 0))}, "at least one entry a row"),
    "unsafe name": ({"../x": [1.0]}, "names of files"),
    "names that differ in case": ({"x": [1.0], "X": [1.0]}, "more than case"),
    "nothing": ([], "at least one chunk"),
    "no rows": ({"x": np.zeros(0)}, "at least one row"),
    "an array": ([np.ones(3)], "a dict of arrays; got a ndarray"),
    "an empty dict": ({}, "a dict of arrays"),
    "a number": (5, "a dict of arrays, or several; got int"),
}


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("name", CHUNKS)
def test_rows_that_cannot_be_written_are_refused_and_leave_nothing(name: str, shuffled: bool, tmp_path: Path) -> None:
    chunks, message = CHUNKS[name]
    with pytest.raises(DataError, match=message):
        tb.write_table(tmp_path / "out", chunks, shuffled=shuffled)
    assert not list(tmp_path.iterdir())


def test_the_path_comes_first(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="the path comes first"):
        tb.write_table({"x": np.ones(3)}, tmp_path / "out")  # type: ignore[arg-type]


@pytest.mark.parametrize("shuffled", [False, True])
def test_floats_are_as_wide_as_they_need_to_be(shuffled: bool, tmp_path: Path) -> None:
    def chunks() -> Iterator[dict[str, np.ndarray]]:
        generator = np.random.default_rng(2)
        for _ in range(3):
            noise = generator.standard_normal(50)
            yield {
                "plain": noise,
                "far": 1e6 + noise,
                "huge": 1e13 * noise,
                "flag": noise > 0,
                "single": noise.astype("f4"),
            }

    written = tb.write_table(tmp_path / "out", chunks(), shuffled=shuffled)
    found = {field.name: field.dtype for field in written.fields}
    assert found == {"plain": "float32", "far": "float64", "huge": "float64", "flag": "int32", "single": "float32"}
    given = np.concatenate([chunk["far"] for chunk in chunks()])
    have = written.rows()["far"]
    assert sorted(have) == sorted(given)
    assert (list(have) == list(given)) == shuffled
    assert sorted(path.name for path in written.path.iterdir()) == sorted(
        [*(f"{name}.bin" for name in found), *([] if shuffled else ["@row.bin"]), "table.json", "verified.json"]
    )
    # Rows that are declared to be shuffled stay where they are, and are numbered by their places.
    assert written.numbered != shuffled
    np.testing.assert_array_equal(have, given[tb.open_table(tmp_path / "out").row_numbers()])
    np.testing.assert_array_equal(have[written.source_order()], given)


def test_the_rule_is_that_of_tables_in_memory() -> None:
    generator = np.random.default_rng(4)
    outcomes = []
    for _ in range(300):
        centre, scale = 10.0 ** generator.uniform(-14, 14), 10.0 ** generator.uniform(-14, 14)
        array = centre + scale * generator.standard_normal((40, 2))
        statistics = ColumnStatistics()
        for block in np.split(array, [13, 14, 14, 30]):
            statistics.add(block)
        outcomes.append(statistics.needs_float64())
        assert outcomes[-1] == needs_float64(array)
    assert 50 < sum(outcomes) < 250
    constant = ColumnStatistics()
    constant.add(np.full((5, 1), 0.1))
    assert not constant.needs_float64()


def test_a_place_that_is_taken_is_refused_unless_it_is_a_table_to_replace(path: Path, tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"which exists.*overwrite=True"):
        tb.write_table(path, rows(10))
    assert len(tb.write_table(path, rows(10), overwrite=True)) == 10
    assert [each.name for each in tmp_path.iterdir()] == ["rows.table"]
    (tmp_path / "dear").mkdir()
    with pytest.raises(TableError, match="which is none"):
        tb.write_table(tmp_path / "dear", rows(10), overwrite=True)
    with pytest.raises(TableError, match="mkdir -p"):
        tb.write_table(tmp_path / "no" / "such", rows(10))


def test_a_failed_replacement_leaves_the_older_table(path: Path) -> None:
    before = tb.open_table(path).digest
    with pytest.raises(DataError):
        tb.write_table(path, {"x": [np.nan]}, overwrite=True)
    assert tb.open_table(path).digest == before


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(TableError, match=r"can be written.*Permission denied"):
        tb.write_table(tmp_path / "out", rows(10))


def test_two_processes_do_not_make_one_table(tmp_path: Path) -> None:
    def chunks() -> Iterator[dict[str, Any]]:
        yield {"x": [1.0]}
        tb.write_table(tmp_path / "out", {"x": [1.0]})

    with pytest.raises(TableError, match="alone with the table"):
        tb.write_table(tmp_path / "out", chunks())


def test_writing_and_opening_need_no_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    written = tb.write_table(tmp_path / "out", rows(10))
    assert tb.open_table(tmp_path / "out").digest == written.digest


def test_a_table_of_before_there_were_row_numbers_still_opens(path: Path) -> None:
    """Its header says nothing of them, and its digest is the one it had."""
    header = json.loads((path / stored.HEADER).read_text())
    whole = tb.open_table(path)
    older = replace(whole, numbered=False, digests={name: whole.digests[name] for name in ("x", "y")})
    del header["numbered"], header["digests"][stored.ROW.name]
    (path / stored.HEADER).write_text(json.dumps(header | {"digest": older.digest}))
    (path / stored.ROW.file).unlink()
    opened = tb.open_table(path)
    assert not opened.numbered
    assert opened.row_numbers() is None
    np.testing.assert_array_equal(opened.rows()["x"], older.rows()["x"])
