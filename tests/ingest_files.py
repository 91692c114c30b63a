"""Files to ingest, and small sizes of batches, buckets and buffers, so that small files go through all of it."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from tallbayes.rows import formats, ingest, shuffling, unfinished
from tallbayes.rows import on_disk as stored

LEVELS = ["b", "ü", "a", "B"]


def columns(num_rows: int, seed: int = 0) -> dict[str, Any]:
    """A number, a whole number, text and a bool; `id` tells rows apart."""
    generator = np.random.default_rng(seed)
    return {
        "x": generator.standard_normal(num_rows),
        "id": np.arange(num_rows) + 10_000 * seed,
        "carrier": np.array(LEVELS)[generator.integers(0, len(LEVELS), num_rows)],
        "late": generator.random(num_rows) < 0.3,
    }


def write(path: Path, values: dict[str, Any], **options: Any) -> Path:
    table = pa.table(values)
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path, **options)
    elif path.suffix == ".arrow":
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table, max_chunksize=70)
    else:
        plain = path.with_suffix("") if path.suffix == ".gz" else path
        delimiter = "\t" if plain.suffix == ".tsv" else ","
        pa.csv.write_csv(table, plain, pa.csv.WriteOptions(delimiter=delimiter))
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
    return path


def as_columns(table: stored.Stored) -> dict[str, np.ndarray]:
    """The rows of a table as they were in the files, sorted by id."""
    rows = table.rows()
    found = {column.name: rows[column.field][:, column.place] for column in table.columns}
    for column in table.columns:
        if column.levels:
            found[column.name] = np.array([*column.levels, "missing"])[found[column.name]]
    order = np.argsort(found["id"])
    return {name: values[order] for name, values in found.items()}


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 100 rows, several buckets, a journal after every batch and bucket, and no waiting for the disk."""
    for module in (shuffling, unfinished, ingest):
        monkeypatch.setattr(module, "sync_file", lambda _: None)
    monkeypatch.setattr(formats, "BATCH_ROWS", 100)
    monkeypatch.setattr(formats, "CSV_BLOCK_BYTES", 2**12)
    for name, size in SMALL.items():
        monkeypatch.setattr(shuffling, name, size)
    monkeypatch.setattr(unfinished, "JOURNAL_SECONDS", 0.0)
    monkeypatch.setattr(unfinished, "JOURNAL_SHARE", np.inf)


SMALL = {"BUFFER_BYTES": 2**12, "BUCKET_BYTES": 2**12, "LARGEST_BUCKET_BYTES": 2**13, "BLOCK_BYTES": 2**11}
NAMES = ["a.csv", "b.tsv", "c.csv.gz", "d.parquet", "e.arrow"]


def write_files(place: Path) -> Path:
    """A folder with a file of each format, of 200 to 1000 rows."""
    place.mkdir()
    for seed, name in enumerate(NAMES):
        options = {"row_group_size": 30} if name.endswith("parquet") else {}
        write(place / name, columns(200 * (seed + 1), seed), **options)
    return place


class Stop(BaseException):
    """As a kill, at an instant of our choice."""


def stop_at(monkeypatch: pytest.MonkeyPatch, count: int) -> list[int]:
    """Half of the count-th write is done, and nothing after; how many there have been."""
    write_whole, calls = shuffling.write_whole, [0]

    def torn(descriptor: int, rows: np.ndarray) -> None:
        calls[0] += 1
        if calls[0] == count:
            write_whole(descriptor, rows.reshape(-1).view(np.uint8)[: rows.nbytes // 2])
            raise Stop
        write_whole(descriptor, rows)

    monkeypatch.setattr(shuffling, "write_whole", torn)
    monkeypatch.setattr(ingest, "write_whole", torn)
    return calls


def run_python(program: str, *arguments: str, timeout: float = 120) -> Any:
    """What a fresh process prints last, as JSON."""
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
