"""Batches: the rows of a file or a frame a piece at a time, so that a table never has to fit into memory.

for batch in batches("new.parquet", ["hour", "carrier"]): ...     Arrow tables of at most BATCH_ROWS rows, in order
for piece in pieces(path, ["hour"], start=10**6): ...             as they lie in the file, from a row on
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallbayes.errors import DataError, explain
from tallbayes.rows.columns import is_text, require
from tallbayes.rows.frames import DELIMITERS, Source, broken, file_kind, normalised_table, open_source
from tallbayes.rows.packed import BATCH_ROWS, packed_batches

CSV_BLOCK_BYTES = 2**22
READ_BYTES = 2**20
_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+).*?: invalid value (.*)")


@dataclass(frozen=True, eq=False)
class Piece:
    """An Arrow record batch, and the share of the file that has been read with it."""

    rows: Any
    share: float


def batches(source: Any, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Arrow tables of these columns in this order; missing columns and unreadable files are DataErrors."""
    opened = open_source(source)
    wanted = list(dict.fromkeys(opened.names if columns is None else columns))
    opened.require(wanted)
    if opened.stored is not None:
        return packed_batches(opened.stored, wanted)
    if not isinstance(source, str | os.PathLike):
        return _slices(opened, wanted)
    return _normalised(pieces(Path(source), wanted))


def pieces(path: Path, wanted: list[str], start: int = 0, types: Mapping[str, Any] | None = None) -> Iterator[Piece]:
    """The rows of a file from row `start` on, whose values are as Arrow reads them.

    `types` are those of columns of a CSV file which are known already. Where whole numbers turn out to be fractions
    later in such a file, or an empty column not to be empty, the pieces from there on have the wider type.
    """
    kind = file_kind(path)
    if kind == "parquet":
        return _of_parquet(path, wanted, start)
    return _of_csv(path, wanted, start, dict(types or {})) if kind in DELIMITERS else _of_arrow(path, wanted, start)


def _slices(source: Source, wanted: list[str]) -> Iterator[Any]:
    table = source.read(wanted)
    for start in range(0, table.num_rows, BATCH_ROWS):
        yield table.slice(start, BATCH_ROWS)


def _normalised(parts: Iterator[Piece]) -> Iterator[Any]:
    arrow = require("pyarrow")
    for piece in parts:
        yield normalised_table(arrow.Table.from_batches([piece.rows]))


def _of_parquet(path: Path, wanted: list[str], start: int) -> Iterator[Piece]:
    arrow, parquet = require("pyarrow"), require("pyarrow.parquet")
    try:
        schema = parquet.read_schema(path)
        text = [name for name in wanted if is_text(schema.field(name).type)]
        # Neither read ahead nor kept: the pool would otherwise grow with the file.
        with parquet.ParquetFile(path, read_dictionary=text, pre_buffer=False, buffer_size=READ_BYTES) as file:
            total = file.metadata.num_rows
            for groups, position in _row_groups(file.metadata, start):
                for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=wanted):
                    rows = batch.slice(max(start - position, 0))
                    position += batch.num_rows
                    if rows.num_rows:
                        yield Piece(rows.select(wanted), position / total)
    except (arrow.ArrowException, OSError) as error:
        raise broken(path, error) from error


def _row_groups(metadata: Any, start: int) -> Iterator[tuple[list[int], int]]:
    """Row groups with rows from `start` on, small ones together, and the first row of each lot."""
    groups: list[int] = []
    first = position = 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        position += metadata.row_group(group).num_rows
        if position - first >= BATCH_ROWS or group == metadata.num_row_groups - 1:
            if position > start:
                yield groups, first
            groups, first = [], position


def _of_csv(path: Path, wanted: list[str], start: int, types: dict[str, Any]) -> Iterator[Piece]:
    arrow = require("pyarrow")
    while True:
        try:
            for piece in _read_csv(path, wanted, start, types):
                start += piece.rows.num_rows
                types = {field.name: field.type for field in piece.rows.schema}
                yield piece
            return
        except (arrow.ArrowException, OSError) as error:
            types = _widened(path, wanted, start, types, error)


def _read_csv(
    path: Path, wanted: list[str], start: int, types: dict[str, Any], threads: bool = True
) -> Iterator[Piece]:
    arrow, csv = require("pyarrow"), require("pyarrow.csv")
    known = {name: kind for name, kind in types.items() if not arrow.types.is_null(kind)}
    parse = csv.ParseOptions(delimiter=DELIMITERS[file_kind(path)])
    read = csv.ReadOptions(block_size=CSV_BLOCK_BYTES, skip_rows_after_names=start, use_threads=threads)
    convert = csv.ConvertOptions(
        include_columns=wanted, column_types=known, strings_can_be_null=True, quoted_strings_can_be_null=False
    )
    size = path.stat().st_size
    with arrow.OSFile(str(path)) as raw:
        stream = arrow.CompressedInputStream(raw, "gzip") if path.suffix.lower() == ".gz" else raw
        with csv.open_csv(stream, read_options=read, parse_options=parse, convert_options=convert) as reader:
            for batch in reader:
                if batch.num_rows:
                    yield Piece(batch, raw.tell() / size)


def _widened(path: Path, wanted: list[str], start: int, types: dict[str, Any], error: Exception) -> dict[str, Any]:
    """The types to go on with after a value that its column's type does not hold, or a DataError."""
    arrow = require("pyarrow")
    found = _CONVERSION.match(str(error))
    if found:
        name, kind, value = open_source(path).names[int(found[1])], found[3], found[4]
        if kind == "int64" and _is_number(value):
            return {**types, name: arrow.float64()}
        if kind == "null":
            return {each: type_ for each, type_ in types.items() if each != name}
    error = _with_line(path, wanted, start, types, error)
    found = _CONVERSION.match(str(error))
    if not found:
        raise broken(path, error) from error
    name, line, kind, value = open_source(path).names[int(found[1])], found[2], found[3], found[4]
    got = f"{value} {f'on line {line}' if line else f'after row {start:,}'}, where {kind} was read before"
    hint = "all of it as numbers or all as text; what is missing may be empty or NA"
    raise DataError(explain(f"one kind of value in column {name!r} of {path.name!r}", got, hint)) from error


def _is_number(value: str) -> bool:
    try:
        float(value.strip("'"))
    except ValueError:
        return False
    return True


def _with_line(path: Path, wanted: list[str], start: int, types: dict[str, Any], error: Exception) -> Exception:
    """The same trouble with the line it is on: only a single thread counts them."""
    try:
        for _ in _read_csv(path, wanted, start, types, threads=False):
            pass
    except (require("pyarrow").ArrowException, OSError) as located:
        return located
    return error


def _of_arrow(path: Path, wanted: list[str], start: int) -> Iterator[Piece]:
    arrow = require("pyarrow")
    try:
        with arrow.memory_map(str(path)) as file:
            reader = arrow.ipc.open_file(file)
            position = 0
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number).select(wanted)
                skipped = min(max(start - position, 0), batch.num_rows)
                position += batch.num_rows
                for first in range(skipped, batch.num_rows, BATCH_ROWS):
                    yield Piece(batch.slice(first, BATCH_ROWS), (number + 1) / reader.num_record_batches)
    except (arrow.ArrowException, OSError) as error:
        raise broken(path, error) from error
