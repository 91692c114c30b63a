"""Rows taken out of tables on disk: the others are left, the bytes are gone, and a kill at any line loses nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ingest_files import columns, run_python, write

import tallbayes as tb
from tallbayes.errors import DataError, TableError
from tallbayes.rows import on_disk, table
from tallbayes.rows.on_disk import Stored
from tallbayes.rows.segments import behind, checksums, record, redo


@pytest.fixture
def days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    """Three days in chunks of 256 rows."""
    for module in (table, on_disk, record, behind):
        monkeypatch.setattr(module, "CHUNK_ROWS", 256)
    for number, num_rows in enumerate((700, 90, 210)):
        file = write(tmp_path / f"{number}.parquet", columns(num_rows, number))
        found = tb.ingest(file, tmp_path / "days", append=number > 0)
    return found


def ids(stored: Stored) -> np.ndarray:
    column = next(each for each in stored.columns if each.name == "id")
    return np.array(stored.rows()[column.field][:, column.place])


def reopened(stored: Stored) -> Stored:
    (stored.path / checksums.SEEN).unlink(missing_ok=True)
    return tb.open_table(stored.path)


GONE = {
    "a few": [3, 17, 300, 710, 999],
    "the first row": [0],
    "the last ones": list(range(960, 1000)),
    "nearly all": list(range(1, 1000)),
    "a third": list(range(0, 1000, 3)),
}


@pytest.mark.parametrize("name", GONE)
def test_the_other_rows_are_left(name: str, days: Stored, tmp_path: Path) -> None:
    gone = np.array(GONE[name])
    before, numbers = ids(days), days.row_numbers()
    assert numbers is not None
    was, lost = {int(each) for each in before}, before[gone]
    bytes_gone = days.rows()["numbers"][gone].tobytes()
    less = days.without(gone)
    assert {int(each) for each in ids(less)} == was - {int(each) for each in lost}
    assert len(less) == 1000 - len(gone)
    left = [sum(int(each) // 10_000 == segment for each in ids(less)) for segment in range(3)]
    assert [segment.left for segment in less.segments] == left
    assert reopened(less) == less
    # Nothing of what is gone is in the files, spare places included; what is left is, so it would be seen.
    held = (less.path / "numbers.bin").read_bytes()
    assert not any(bytes_gone[4 * k : 4 * k + 4] in held for k in range(len(gone)))
    assert np.float32(less.rows()["numbers"][-1, 0]).tobytes() in held
    # Numbers stay with their rows, and the next ones are new.
    order = less.source_order()
    assert list(ids(less)[order]) == np.sort(ids(less)).tolist()
    more = tb.ingest(write(tmp_path / "3.parquet", columns(50, 3)), less.path, append=True)
    assert reopened(more) == more
    assert sorted(more.row_numbers()[-50:]) == list(range(1000, 1050))  # type: ignore[index]


def test_whoever_opened_the_table_before_is_told(days: Stored) -> None:
    less = days.without([5])
    for use in (days.rows, lambda: days.without([6]), lambda: days.as_of(1).rows()):
        with pytest.raises(TableError, match=r"others in the places of rows|has grown or shrunk"):
            use()
    with pytest.raises(TableError, match="none of whose rows are gone"):
        less.as_of(1)


def test_a_file_can_be_withdrawn_and_come_back(days: Stored, tmp_path: Path) -> None:
    file = tmp_path / "1.parquet"
    less = days.without(days.places_from(file))
    assert sorted(ids(less)) == sorted(each for each in ids(less) if each // 10_000 != 1)
    assert [part.left for part in less.parts] == [700, 0, 210]
    back = tb.ingest(file, less.path, append=True)
    assert len(ids(back)) == 1000
    assert len(set(ids(back).tolist())) == 1000
    with pytest.raises(DataError, match=r"holds; got .*4.parquet"):
        back.places_from(tmp_path / "4.parquet")


def test_missing_values_are_counted_anew(tmp_path: Path) -> None:
    first = tb.ingest(write(tmp_path / "a.parquet", {"x": [0.5, None, 1.5, None], "n": [1, 2, 3, 4]}), tmp_path / "t")
    assert first.columns[0].missing == 2
    place = int(np.flatnonzero(np.isnan(first.rows()["numbers"][:, 0]))[0])
    assert first.without([place]).columns[0].missing == 1


BAD: dict[str, tuple[Any, str]] = {
    "none": ([], "whole numbers, each once"),
    "twice": ([3, 3], "each once"),
    "beyond": ([1000], "places from 0 to 999"),
    "before": ([-1], "places from 0 to 999"),
    "fractions": ([0.5], "whole numbers"),
    "all": (range(1000), "rows that are left"),
}


@pytest.mark.parametrize("name", BAD)
def test_places_that_are_none_are_refused(name: str, days: Stored) -> None:
    places, message = BAD[name]
    with pytest.raises(DataError, match=message):
        days.without(np.array(places))
    assert reopened(days) == days


def test_what_was_written_down_and_torn_is_refused(days: Stored) -> None:
    (days.path / redo.REDO).write_bytes(b'{"digest": "0"}\nrest')
    with pytest.raises(TableError, match=r"a whole 'withdrawal\.redo'"):
        tb.open_table(days.path)


KILLS = """
import json, os, shutil, signal, sys, traceback
from pathlib import Path
import numpy as np, pyarrow.parquet
import tallbayes as tb
from tallbayes.rows import ingest, shuffling, unfinished, writing
from tallbayes.rows.segments import behind, conversion, redo, withdrawal

place, kills = Path(sys.argv[1]), int(sys.argv[2])
SEEN = ("behind.py", "redo.py", "withdrawal.py", "unfinished.py", "atomic.py", "ingest.py", "shuffling.py")
draw = np.random.default_rng(int(sys.argv[3]))
for module in (behind, redo, ingest, unfinished, shuffling):
    # A kill does not wait for the disk.
    module.sync_file = lambda _: None

def child(work, last=None):
    # Kill at the line, or tell how many lines there are.
    read, write = os.pipe()
    process = os.fork()
    if process:
        os.waitpid(process, 0)
        os.close(write)
        return os.fdopen(read).read()
    lines = [0]
    def step(frame, event, argument):
        if event == "line":
            lines[0] += 1
            if lines[0] == last:
                os.kill(os.getpid(), signal.SIGKILL)
        return step
    def tracer(frame, event, argument):
        return step if os.path.basename(frame.f_code.co_filename) in SEEN else None
    sys.settrace(tracer)
    try:
        found = work()
        sys.settrace(None)
        os.write(write, json.dumps([lines[0], found]).encode())
    except BaseException:
        traceback.print_exc()
    os._exit(0)

def append(folder):
    table = tb.ingest(place / "1.parquet", folder, append=True)
    return table.digest

def withdraw(folder):
    table = tb.open_table(folder)
    return (table.without(gone) if len(table) == 1400 else table).digest

def content(folder):
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.suffix == ".bin"}

gone, told = np.arange(0, 1400, 7), {}
tb_1400 = place / "both"
shutil.copytree(place / "base", tb_1400)
child(lambda: append(tb_1400))
for name, work, base in (("append", append, place / "base"), ("withdraw", withdraw, tb_1400)):
    whole = place / f"{name}-whole"
    shutil.copytree(base, whole)
    lines, digest = json.loads(child(lambda: work(whole)))
    states = []
    for k, last in enumerate(np.sort(draw.choice(np.arange(1, lines), kills, replace=False)).tolist()):
        folder = place / f"{name}-{k}"
        shutil.copytree(base, folder)
        assert child(lambda: work(folder), last) == "", last
        # A whole table whatever has happened, with the old rows or the new; and the same again ends in the same bytes,
        # padding and all.
        _, (state, made, found) = json.loads(
            child(lambda: (len(tb.open_table(folder)), work(folder), tb.open_table(folder).digest))
        )
        states.append(state)
        assert made == found == digest, last
        assert content(folder) == content(whole), last
        left = {each.name for each in folder.iterdir()} | {each.name for each in place.iterdir()}
        assert not any(each.endswith((".redo", ".partial", f"{folder.name}.append")) for each in left), left
        shutil.rmtree(folder)
    told[name] = states
print(json.dumps(told))
"""


@pytest.mark.parametrize(
    ("kills", "seed"), [(4, 3), *(pytest.param(15, seed, marks=pytest.mark.slow) for seed in range(4, 7))]
)
def test_a_kill_at_any_line_loses_nothing_and_ends_in_the_same_bytes(kills: int, seed: int, tmp_path: Path) -> None:
    """Lines of the making of a segment, of a withdrawal and of the opening after it, drawn at random."""
    tb.ingest(write(tmp_path / "0.parquet", columns(1000, 0)), tmp_path / "base")
    write(tmp_path / "1.parquet", columns(400, 1))
    told = run_python(KILLS, str(tmp_path), json.dumps(kills), json.dumps(seed), timeout=600)
    assert set(told["append"]) <= {1000, 1400}
    assert set(told["withdraw"]) <= {1400, 1200}
    assert len(set(told["append"] + told["withdraw"])) >= 2
    assert os.path.isdir(tmp_path / "append-whole")
