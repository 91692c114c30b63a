"""Ingest goes on after any interruption, to the same bytes, and in memory that does not grow with the rows."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ingest_files import SMALL, Stop, make_small, run_python, stop_at, write_files

import tallbayes as tb
from tallbayes.errors import TableError
from tallbayes.rows import shuffling, unfinished
from tallbayes.rows.segments import checksums


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path / "in")


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir() if each.name != checksums.SEEN}


@pytest.mark.usefixtures("small")
def test_a_table_has_the_same_bytes_wherever_its_making_was_stopped(folder: Path, tmp_path: Path) -> None:
    files = [folder / "a.csv", folder / "c.csv.gz", folder / "d.parquet"]
    with pytest.MonkeyPatch.context() as patch:
        calls = stop_at(patch, 0)
        whole = contents(tb.ingest(files, tmp_path / "whole").path)
    stages, resumed = set(), []
    for count in np.linspace(1, calls[0], 15).astype(int).tolist():
        out = tmp_path / str(count)
        with pytest.MonkeyPatch.context() as patch:
            stop_at(patch, count)
            with pytest.raises(Stop):
                tb.ingest(files, out)
        names = {path.stem for path in Path(f"{out}.partial").glob("*.json")}
        stages.add("ordered" if "ordered" in names else "dealt" if names else "begun")
        looks: list[unfinished.Making] = []
        assert contents(tb.ingest(files, out, progress=looks.append).path) == whole
        resumed.append(looks[0].resumed)
    assert stages == {"begun", "dealt", "ordered"}
    assert sum(resumed) == 14


KILLS = """
import json, os, random, signal, sys, time
from pathlib import Path
import numpy as np, pyarrow.parquet, pyarrow.csv
from tallbayes.rows import shuffling
from tallbayes.rows import unfinished
from tallbayes.rows import formats
from tallbayes.rows.ingest import ingest

source, out, small = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
formats.BATCH_ROWS, formats.CSV_BLOCK_BYTES = 100, 2**12
unfinished.JOURNAL_SECONDS, unfinished.JOURNAL_SHARE = 0.0, np.inf
for name, size in small.items():
    setattr(shuffling, name, size)
draw = random.Random(5)
partial = Path(f"{out}.partial")
kills = {"begun": 0, "dealt": 0, "ordered": 0}

def stage():
    return next((each for each in ("ordered", "dealt") if (partial / f"{each}.json").exists()), "begun")

for wanted, longest in [("begun", 0.05)] + 6 * [("dealt", 0.08)] + 6 * [("ordered", 0.02)]:
    child = os.fork()
    if not child:
        ingest(source, out)
        os._exit(0)
    while wanted != "begun" and stage() not in (wanted, "ordered") and not out.exists():
        time.sleep(0.001)
    time.sleep(draw.uniform(0.0, longest))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if out.exists():
        break
    kills[stage()] += 1
if not out.exists():
    ingest(source, out)
print(json.dumps(kills))
"""


@pytest.mark.usefixtures("small")
def test_a_table_has_the_same_bytes_after_any_number_of_kills(folder: Path, tmp_path: Path) -> None:
    kills = run_python(KILLS, str(folder), str(tmp_path / "killed"), json.dumps(SMALL))
    assert kills["dealt"] >= 2, kills
    assert kills["ordered"] >= 1, kills
    whole = tb.ingest(folder, tmp_path / "whole")
    assert contents(tmp_path / "killed") == contents(whole.path)
    assert not (tmp_path / "killed.partial").exists()


@pytest.fixture
def interrupted(folder: Path, tmp_path: Path, small: None) -> Path:
    """The place of a table whose making was stopped in the midst of the first pass."""
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, 150)
        with pytest.raises(Stop):
            tb.ingest(folder, tmp_path / "out")
    assert (tmp_path / "out.partial" / "dealt.json").exists()
    return tmp_path / "out"


@pytest.mark.parametrize("change", ["size", "time"])
def test_a_file_that_changed_meanwhile_is_refused_by_name(interrupted: Path, folder: Path, change: str) -> None:
    file = folder / "b.tsv"
    if change == "size":
        with open(file, "a") as opened:
            opened.write("0.5\t7\ta\ttrue\n")
    else:
        os.utime(file, ns=(1, 1))
    with pytest.raises(TableError, match=r"b\.tsv' as it was when this ingest began"):
        tb.ingest(folder, interrupted)
    assert len(tb.ingest(folder, interrupted, overwrite=True)) == 3000 + (change == "size")


def test_a_file_that_changes_while_it_is_read_is_refused(folder: Path, tmp_path: Path) -> None:
    def touch(_: unfinished.Making) -> None:
        os.utime(folder / "a.csv", ns=(1, 1))

    with pytest.raises(TableError, match=r"a\.csv' as it was"):
        tb.ingest(folder, tmp_path / "out", progress=touch)


def test_other_files_or_columns_do_not_go_on(interrupted: Path, folder: Path) -> None:
    for paths, names in ((folder / "a.csv", None), (folder, ["id"])):
        with pytest.raises(TableError, match="the ingest that was begun; got one of other files or columns"):
            tb.ingest(paths, interrupted, names)
    with pytest.raises(TableError, match="unfinished"):
        tb.open_table(interrupted)
    with pytest.raises(TableError, match="an ingest that is unfinished"):
        tb.write_table(interrupted, {"x": [1.0]})


def test_work_that_was_damaged_begins_anew(interrupted: Path, folder: Path) -> None:
    (interrupted.with_name("out.partial") / "buckets" / "1.bucket").unlink()
    looks: list[unfinished.Making] = []
    assert len(tb.ingest(folder, interrupted, progress=looks.append)) == 3000
    assert not looks[0].resumed


def test_a_maker_that_was_stopped_at_the_very_end_has_finished(interrupted: Path, folder: Path) -> None:
    partial = interrupted.with_name("out.partial")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unfinished.Unfinished, "discard", lambda self: None)
        first = tb.ingest(folder, interrupted)
    assert partial.is_dir()
    assert tb.ingest(folder, interrupted).digest == first.digest
    assert not partial.exists()
    with pytest.raises(TableError, match="which exists"):
        tb.ingest(folder, interrupted)


def test_a_full_disk_is_told_and_gone_on_from(folder: Path, tmp_path: Path, small: None) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, 150)
        original, calls = shuffling.write_whole, [0]

        def write_some(*arguments: Any) -> None:
            calls[0] += 1
            full() if calls[0] > 100 else original(*arguments)

        patch.setattr(shuffling, "write_whole", write_some)
        with pytest.raises(TableError, match=r"with space.*No space left on device.*free some space"):
            tb.ingest(folder, tmp_path / "out")
    looks: list[unfinished.Making] = []
    assert len(tb.ingest(folder, tmp_path / "out", progress=looks.append)) == 3000
    assert looks[0].resumed


PEAKS = """
import json, os, sys, threading, time
import numpy as np, pyarrow as pa, pyarrow.parquet as parquet
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

folder, num_rows, peaks = sys.argv[1], 200_000, {}
for times in (1, 8):
    path = f"{folder}/{times}.parquet"
    with parquet.ParquetWriter(path, pa.schema([(f"x{k}", pa.float64()) for k in range(6)])) as writer:
        for part in range(times):
            rows = np.random.default_rng(part).standard_normal((6, num_rows))
            writer.write_table(pa.table({f"x{k}": rows[k] for k in range(6)}))
    peaks[f"ingest {times}"] = peak_of(lambda: ingest(path, f"{folder}/{times}.table"))
    peaks[f"read {times}"] = peak_of(lambda: len(np.stack([c.to_numpy() for c in parquet.read_table(path).columns])))
print(json.dumps(peaks))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="RssAnon is Linux's")
def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """And that the measure would see it if it did: reading all rows takes far more for eight times as many."""
    peaks = run_python(PEAKS, str(tmp_path))
    assert peaks["ingest 8"] < 1.2 * peaks["ingest 1"], peaks
    assert peaks["read 8"] > 1.4 * peaks["read 1"], peaks
