"""Tables on disk that grow and shrink: the rows are those of all days, old places stay, and nothing else is read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ingest_files import as_columns, columns, make_small, run_python, write

import tallbayes as tb
from tallbayes.errors import DataError, TableError, WorkerError
from tallbayes.results.new_rows import _files
from tallbayes.rows import on_disk, table
from tallbayes.rows.on_disk import Stored
from tallbayes.rows.segments import behind, checksums, record
from tallbayes.rows.sources import open_source
from tallbayes.workers.shipping import _open

SMALL_CHUNK = 256


def day(place: Path, number: int, num_rows: int = 150) -> Path:
    """A file of rows with ids of their own, and every other day with a level of its own; written once."""
    path = place / f"day{number}{('.csv', '.parquet', '.arrow')[number % 3]}"
    if path.exists():
        return path
    values = columns(num_rows, number)
    if number % 2:
        values["carrier"] = np.where(np.arange(num_rows) % 3, values["carrier"], f"A{number}")
    return write(path, values)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (table, on_disk, record, behind):
        monkeypatch.setattr(module, "CHUNK_ROWS", SMALL_CHUNK)


def grown(place: Path, num_days: int) -> Stored:
    for number in range(num_days):
        found = tb.ingest(day(place, number), place / "grown", append=(place / "grown").exists())
    return found


def verified(stored: Stored) -> Stored:
    """The table as it is read through by somebody who has never seen it."""
    (stored.path / checksums.SEEN).unlink()
    opened = tb.open_table(stored.path)
    assert opened == stored
    assert opened.digest == stored.digest
    return opened


@pytest.mark.parametrize("size", ["small", "as it is"])
def test_days_one_after_the_other_are_the_rows_of_all_files(size: str, tmp_path: Path, request: Any) -> None:
    if size == "small":
        request.getfixturevalue("small_chunks")
        make_small(request.getfixturevalue("monkeypatch"))
    found = verified(grown(tmp_path, 6))
    whole = tb.ingest([day(tmp_path, number) for number in range(6)], tmp_path / "whole")
    for name, values in as_columns(whole).items():
        np.testing.assert_array_equal(as_columns(found)[name], values)
    numbers = found.row_numbers()
    assert numbers is not None
    assert sorted(numbers) == list(range(900))
    ids = np.concatenate([columns(150, number)["id"] for number in range(6)])
    place = next(column.place for column in found.columns if column.name == "id")
    np.testing.assert_array_equal(found.rows()["codes"][:, place], ids[numbers])
    assert [Path(part.path).name for part in found.parts][:2] == ["day0.csv", "day1.parquet"]
    assert not found.shuffled
    # A reader of columns sees levels in order, wherever the table has them.
    levels = [open_source(each).read(["carrier"]).column("carrier").chunk(0) for each in (found, whole)]
    assert levels[0].dictionary.to_pylist() == levels[1].dictionary.to_pylist() == sorted(whole.columns[2].levels)
    assert found.columns[2].levels[:4] == ("B", "a", "b", "ü")


@pytest.mark.usefixtures("small_chunks")
def test_a_table_that_was_opened_before_stays_what_it_was(tmp_path: Path) -> None:
    first = tb.ingest(day(tmp_path, 0), tmp_path / "grown")
    before, mapped = {name: np.array(array) for name, array in first.rows().items()}, first.arrays()
    later = grown(tmp_path, 5)
    for name, values in before.items():
        np.testing.assert_array_equal(first.rows()[name], values)
        np.testing.assert_array_equal(mapped[name][: len(first)], values)
    assert later.as_of(1).digest == first.digest
    assert later.as_of(1) == first
    assert [len(later.as_of(count)) for count in (1, 3, 5)] == [150, 450, 750]
    with pytest.raises(TableError, match="1 to 5 segments"):
        later.as_of(0)


@pytest.mark.usefixtures("small_chunks")
def test_room_grows_seldom_and_takes_no_place(tmp_path: Path) -> None:
    """By a quarter beyond a chunk; padding are copies of the first row, up to the end of the last chunk with rows."""
    found = tb.write_table(tmp_path / "t", {"x": np.arange(1000.0)})
    capacities = {found.capacity}
    for number in range(12):
        found = tb.write_table(tmp_path / "t", {"x": 1000.0 + 50 * number + np.arange(50)}, append=True)
        capacities.add(found.capacity)
        array = found.arrays()["x"]
        held = behind.filled(found)
        assert held - len(found) < SMALL_CHUNK
        assert np.all(array[len(found) : held] == array[0])
        assert not array[held:].any()
    assert sorted(found.rows()["x"]) == list(range(1600))
    assert capacities == {1024, 1536, 2048}
    assert found.num_bytes == behind.filled(found) * 8
    verified(found)


def test_only_new_rows_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = grown(tmp_path, 3)
    seen: list[tuple[int, int]] = []
    digest = checksums._digest

    def listed(file: Path, row_bytes: int, start: int, stop: int, padded: int) -> str:
        seen.append((start, stop))
        return digest(file, row_bytes, start, stop, padded)

    monkeypatch.setattr(checksums, "_digest", listed)
    more = tb.ingest(day(tmp_path, 3), found.path, append=True)
    tb.open_table(found.path)
    assert set(seen) == {(450, 600)}
    assert more.digest != found.digest


def test_many_segments_are_merged_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MOST_SEGMENTS", 4)
    found = grown(tmp_path, 12)
    assert len(found.segments) == 4
    assert [segment.stop for segment in found.segments][-1] == len(found) == 1800
    assert [segment.start for segment in found.segments][1:] == [segment.stop for segment in found.segments][:-1]
    assert [Path(part.path).stem for part in found.parts] == [f"day{number}" for number in range(12)]
    assert sorted(verified(found).row_numbers()) == list(range(1800))  # type: ignore[arg-type]
    assert len(found.places_from(tmp_path / "day7.parquet")) == 150


@pytest.mark.parametrize("segment", [0, 2])
def test_other_bytes_are_found_by_name(segment: int, tmp_path: Path) -> None:
    found = grown(tmp_path, 3)
    numbers = next(field for field in found.fields if field.name == "numbers")
    with open(found.path / "numbers.bin", "r+b") as opened:
        opened.seek((found.segments[segment].start + 3) * numbers.row_bytes)
        opened.write(b"\x01\x02")
    came = f", which came on {found.segments[2].when}" if segment else ""
    start = 150 * segment
    with pytest.raises(TableError, match=f"'numbers.bin'.*in rows {start} to {start + 149}{re.escape(came)}"):
        tb.open_table(found.path)


def changed(place: Path, **other: Any) -> Path:
    values = {name: each for name, each in (columns(150, 1) | other).items() if each is not None}
    return write(place / "day.parquet", values)


def touched(place: Path) -> Path:
    os.utime(place / "day0.csv", ns=(1, 1))
    return place / "day0.csv"


REFUSALS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a column less": (lambda place: changed(place, x=None), "a column 'x'; got no such column in 'day.parquet'"),
    "a column more": (lambda place: changed(place, z=np.zeros(150)), "got 'z' in 'day.parquet', which.*does not have"),
    "text for numbers": (
        lambda place: changed(place, x=["a"] * 150),
        "column 'x' of kind 'number' in 'day.parquet' too",
    ),
    "fractions": (lambda place: changed(place, id=np.arange(150) + 0.5), "'id' of kind 'whole' in .*got 'number'"),
    "missing in whole numbers": (
        lambda place: changed(place, id=[None, *range(149)]),
        "no missing values in column 'id'",
    ),
    "beyond 32 bits": (lambda place: changed(place, id=np.arange(150) + 2**31), "32 bits in column 'id'"),
    "blurred by float32": (lambda place: changed(place, x=1e7 + np.arange(150)), "'x' that float32 tells apart"),
    "no rows": (lambda place: write(place / "day.parquet", columns(0)), "at least one row"),
    "touched": (touched, "does not hold; got 'day0.csv' of the same size as when it came, changed since"),
    "held already": (lambda place: [day(place, 0), day(place, 1)], "does not hold; got 'day0.csv', which it holds"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_a_table_does_not_hold_is_refused_by_name(name: str, tmp_path: Path) -> None:
    make, message = REFUSALS[name]
    first = tb.ingest(day(tmp_path, 0), tmp_path / "grown")
    with pytest.raises((DataError, TableError), match=message):
        tb.ingest(make(tmp_path), first.path, append=True)
    assert verified(first) == first
    more = tb.ingest(day(tmp_path, 2), first.path, append=True)
    assert len(verified(more)) == 300
    assert not first.path.with_name("grown.append").exists()


def test_text_that_looks_like_numbers_is_text_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("c,v\nx,1.5\n2,2.5\n")
    (tmp_path / "b.csv").write_text("c,v\n1,1\n2,\n")
    tb.ingest(tmp_path / "a.csv", tmp_path / "t")
    found = tb.ingest(tmp_path / "b.csv", tmp_path / "t", append=True)
    assert found.columns[0].levels == ("2", "x", "1")
    assert found.columns[1].missing == 1


def test_the_same_files_again_change_nothing(tmp_path: Path) -> None:
    found = grown(tmp_path, 2)
    assert tb.ingest(tmp_path / "day1.parquet", found.path, append=True).digest == found.digest
    with pytest.raises(TableError, match="nothing at"):
        tb.ingest(tmp_path / "day1.parquet", tmp_path / "other", append=True)
    with pytest.raises(TableError, match="append or overwrite"):
        tb.ingest(tmp_path / "day1.parquet", found.path, append=True, overwrite=True)


ARRAYS: dict[str, tuple[Any, str]] = {
    "other fields": ({"x": np.zeros((2, 2))}, "fields of the table, x, y; got x"),
    "other shape": ({"x": np.zeros((2, 3)), "y": [1, 2]}, r"shape \(2,\) in 'x'"),
    "fractions": ({"x": np.zeros((2, 2)), "y": [1.5, 2]}, "whole numbers in 'y'"),
    "blurred": ({"x": 1e7 + np.eye(2), "y": [1, 2]}, "'x' that float32 tells apart"),
    "not finite": ({"x": np.array([[1, np.nan]]), "y": [1]}, "finite numbers in 'x'"),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_that_do_not_fit_are_refused(name: str, tmp_path: Path) -> None:
    chunks, message = ARRAYS[name]
    rows = {"x": np.random.default_rng(0).standard_normal((100, 2)), "y": np.arange(100)}
    first = tb.write_table(tmp_path / "t", rows)
    with pytest.raises(DataError, match=message):
        tb.write_table(first.path, chunks, append=True)
    assert verified(first) == first
    single = {"x": rows["x"].astype(np.float32), "y": 100 + rows["y"]}
    more = tb.write_table(first.path, [single, single], append=True)
    assert sorted(more.row_numbers()) == list(range(300))  # type: ignore[arg-type]
    assert sorted(more.rows()["y"][100:]) == sorted(2 * list(range(100, 200)))


def test_arrays_and_files_do_not_go_together(tmp_path: Path) -> None:
    arrays, files = tb.write_table(tmp_path / "a", {"x": [0.5, 1.5]}), grown(tmp_path, 1)
    with pytest.raises(DataError, match=r"made of files.*one of the arrays x"):
        tb.ingest(tmp_path / "day0.csv", arrays.path, append=True)
    with pytest.raises(DataError, match=r"a table of arrays.*columns x, id"):
        tb.write_table(files.path, files.rows(), append=True)
    with pytest.raises(DataError, match="the columns of the table, x, id, carrier, late"):
        tb.ingest(day(tmp_path, 1), files.path, ["x", "id"], append=True)


def test_rows_tell_their_file_through_all_segments(tmp_path: Path) -> None:
    found = grown(tmp_path, 3).without(np.arange(0, 450, 2))
    numbers = found.row_numbers()
    assert numbers is not None
    known = _files(found, numbers)
    for row in (0, 100, 224):
        name, row_there = known["file"][row].as_py(), int(known["file_row"][row])
        day_of = int(name[3])
        place = next(column.place for column in found.columns if column.name == "id")
        assert columns(150, day_of)["id"][row_there] == found.rows()["codes"][row, place]


def test_workers_find_the_table_that_they_were_sent(tmp_path: Path) -> None:
    """Though it has grown since."""
    first, now = grown(tmp_path, 1), grown(tmp_path, 3)
    assert _open(str(first.path), first.digest) == first
    assert _open(str(now.path), now.digest) == now
    with pytest.raises(WorkerError, match="one copy for all"):
        _open(str(now.path), "0" * 64)


def test_rows_that_keep_their_order_go_on_in_it(tmp_path: Path) -> None:
    tb.write_table(tmp_path / "t", {"y": np.arange(5)}, shuffled=True)
    more = tb.write_table(tmp_path / "t", {"y": np.arange(5, 9)}, shuffled=True, append=True)
    assert list(more.rows()["y"]) == list(more.row_numbers()) == list(range(9))  # type: ignore[arg-type]
    mixed = tb.write_table(tmp_path / "t", {"y": np.arange(9, 99)}, append=True)
    assert mixed.row_numbers() is None


def test_one_at_a_time_changes_a_table(tmp_path: Path) -> None:
    found = grown(tmp_path, 1)
    with behind.changing(found.path), pytest.raises(TableError, match="to be alone with the table"):
        tb.ingest(day(tmp_path, 1), found.path, append=True)
    assert tb.open_table(found.path) == found
    os.rename(found.path, tmp_path / "moved")
    assert len(tb.ingest(day(tmp_path, 1), tmp_path / "moved", append=True)) == 300


PEAKS = """
import json, os, sys, threading
import numpy as np, pyarrow as pa, pyarrow.parquet as parquet
import tallbayes as tb
from tallbayes.rows import shuffling
from tallbayes.rows.ingest import ingest

for name in ("BUFFER_BYTES", "BUCKET_BYTES"):
    setattr(shuffling, name, 2**22)
shuffling.LARGEST_BUCKET_BYTES = 2**23

def anonymous():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssAnon"))

def peak_of(work):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        peak, stop = [0], threading.Event()
        def watch():
            while not stop.wait(0.002):
                peak[0] = max(peak[0], anonymous())
        threading.Thread(target=watch, daemon=True).start()
        work()
        os.write(write, str(peak[0]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return int(os.read(read, 100))

def written(path, times):
    with parquet.ParquetWriter(path, pa.schema([(f"x{k}", pa.float64()) for k in range(6)])) as writer:
        for part in range(times):
            rows = np.random.default_rng(part).standard_normal((6, 200_000))
            writer.write_table(pa.table({f"x{k}": rows[k] for k in range(6)}))
    return path

def withdraw(table):
    found = tb.open_table(table)
    found.without(np.arange(0, len(found), len(found) // 100))

folder, peaks = sys.argv[1], {}
for times in (1, 8):
    table = f"{folder}/{times}.table"
    first = written(f"{folder}/first{times}.parquet", times)
    peak_of(lambda: ingest(first, table))
    day = written(f"{folder}/day{times}.parquet", 1)
    peaks[f"a day to {times}"] = peak_of(lambda: ingest(day, table, append=True))
    peaks[f"withdraw from {times}"] = peak_of(lambda: withdraw(table))
    more = written(f"{folder}/more{times}.parquet", times)
    peaks[f"{times} to it"] = peak_of(lambda: ingest(more, table, append=True))
    peaks[f"read {times}"] = peak_of(lambda: len(np.stack([c.to_numpy() for c in parquet.read_table(more).columns])))
print(json.dumps(peaks))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is Linux's")
def test_memory_grows_neither_with_the_rows_there_nor_with_those_to_come(tmp_path: Path) -> None:
    """And the measure would see it if it did: reading all rows takes far more for eight times as many."""
    peaks = run_python(PEAKS, str(tmp_path))
    for what in ("a day to {}", "withdraw from {}", "{} to it"):
        assert peaks[what.format(8)] < 1.2 * peaks[what.format(1)], peaks
    assert peaks["read 8"] > 1.4 * peaks["read 1"], peaks
