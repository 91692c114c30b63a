"""Landing: rows as they were given, put behind those of the table that was given; once, however often it is begun.

    a file                 as `tb.ingest(..., append=True)` does, and known by its path, size and time of change
    a frame, a dict        of a table of columns as a file beside it, named by what it says, which is gone afterwards
    a dict of arrays       of a table of arrays as `tb.write_table(..., append=True)` does, known by what they say
    the table itself       its rows are there: those that somebody has put behind the ones that are known

A table that has grown by these rows alone is one whose update was stopped: it goes on from there. One that has grown by
others is refused, and left as it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.errors import DataError, TableError, explain
from tallbayes.rows.columns import require
from tallbayes.rows.files import look_at
from tallbayes.rows.formats import SUFFIXES
from tallbayes.rows.ingest import ingest
from tallbayes.rows.on_disk import Stored, open_table
from tallbayes.rows.packing import packed_batches
from tallbayes.rows.segments.past import other_than
from tallbayes.rows.segments.record import next_number
from tallbayes.rows.segments.redo import HEADER
from tallbayes.rows.sources import open_source
from tallbayes.rows.writing import write_behind


def is_table(given: Any, table: Stored) -> bool:
    """Whether what was given is the table itself."""
    if isinstance(given, Stored):
        return given.path == table.path
    is_path = isinstance(given, str | os.PathLike) and (Path(given) / HEADER).is_file()
    return is_path and Path(given).absolute() == table.path


def rows_behind(table: Stored) -> Any:
    """The rows that have been put behind those of a table since, as they came."""
    now = now_of(table)
    if now.num_rows == table.num_rows:
        got = f"{table.num_rows:,} rows, all of which are in the fit"
        raise DataError(explain(f"rows in {str(table.path)!r} that the fit has not", got, "tallbayes ingest --append"))
    if not now.columns:
        return {name: rows[table.num_rows :] for name, rows in now.rows().items()}
    names = [column.name for column in now.columns]
    batches = packed_batches(now, names, as_they_came=True, first=table.num_rows)
    return require("pyarrow").concat_tables(batches, promote_options="permissive")


def now_of(table: Stored) -> Stored:
    """The table as it is now; refused where its rows are not the first ones any more."""
    now = open_table(table.path)
    wrong = other_than(table, now)
    if wrong:
        hint = "the last result of these rows; or tb.fit or tb.estimate of the table as it is now"
        raise TableError(explain(f"the rows of {str(table.path)!r} that this fit stands on", wrong, hint))
    return now


def land(table: Stored, given: Any) -> Stored:
    """The table with the rows that were given behind those it had."""
    now = now_of(table)
    if is_table(given, table):
        return now
    first = next_number(table.segments)
    if not table.columns:
        return _land_arrays(table, now, given, first)
    with suppress(TypeError):
        if _is_file(given):
            file = look_at(Path(os.path.abspath(given)))
            return _land_file(table, now, file.path, (str(file.path), file.size))
    path = written_beside(table, given, first)
    try:
        return _land_file(table, now, path, (str(path), path.stat().st_size))
    finally:
        path.unlink(missing_ok=True)


def written_beside(table: Stored, given: Any, first: int) -> Path:
    """Rows of anything that holds columns, as a file named by what they say."""
    arrow, source = require("pyarrow"), open_source(given)
    parquet = __import__("pyarrow.parquet", fromlist=["parquet"])
    rows = arrow.concat_tables(source.pieces(source.names), promote_options="permissive")
    partial = table.path.with_name(f".{table.path.name}.{os.getpid()}.arrived")
    parquet.write_table(rows, partial)
    digest = sha256(partial.read_bytes()).hexdigest()[:32]
    path = table.path.with_name(f".{table.path.name}.{digest}-{first}.parquet")
    os.replace(partial, path)
    return path


def file_of(table: Stored, given: Any) -> tuple[Path, bool]:
    """A file that holds these rows, and whether it was made for that."""
    if _is_file(given):
        return Path(os.path.abspath(given)), False
    return written_beside(table, given, next_number(table.segments)), True


def _is_file(given: Any) -> bool:
    if not isinstance(given, str | os.PathLike) or not Path(given).is_file():
        return False
    return any(os.fspath(given).endswith(each) for each in SUFFIXES)


def _land_file(table: Stored, now: Stored, path: Path, stamp: tuple[str, int]) -> Stored:
    if now.num_rows > table.num_rows:
        _require_last(table, now, stamp)
        return now
    grown = ingest(path, table.path, append=True)
    if grown.num_rows == table.num_rows:
        got = f"{path.name!r}, which it holds"
        hint = "other rows; a copy of another name if these are to count twice"
        raise DataError(explain(f"rows that {str(table.path)!r} does not hold", got, hint))
    return grown


def _land_arrays(table: Stored, now: Stored, given: Any, first: int) -> Stored:
    if not isinstance(given, Mapping):
        got, hint = type(given).__name__, '{"x": X, "y": y}'
        raise DataError(explain("a dict of arrays, as the table is made of", got, hint))
    arrays = {name: np.ascontiguousarray(given[name]) for name in sorted(given)}
    found = sha256()
    for name, array in arrays.items():
        found.update(f"{name} {array.dtype} {array.shape} ".encode())
        found.update(array.data)
    count = len(next(iter(arrays.values())))
    stamp = f"rows {found.hexdigest()[:32]}-{first}", count, 0
    if now.num_rows > table.num_rows:
        _require_last(table, now, stamp[:2])
        return now
    return write_behind(now, [arrays], stamp, shuffled=not now.numbered)


def _require_last(table: Stored, now: Stored, stamp: tuple[str, int]) -> None:
    """Refuse a table that has grown by other rows than these."""
    last = now.parts[-1]
    if last.stamp[:2] != stamp or last.rows != now.num_rows - table.num_rows:
        got = f"{now.num_rows - table.num_rows:,} rows behind them that are not these"
        hint = f"update({str(table.path)!r}) first, for the rows that are there"
        raise TableError(explain(f"{str(table.path)!r} with the {table.num_rows:,} rows of this fit", got, hint))
