"""Formats: the kinds of files that rows are read from and written to, one record each.

    format_of(path).schema(path)                         names and Arrow types of the columns, before any row is read
    format_of(path).read(path, ["hour"])                 the rows, as one Arrow table
    format_of(path).pieces(path, ["hour"], 10**6, {})    those from a row on, at most BATCH_ROWS or a block at a time
    WRITERS[".parquet"](path, schema)                    a file that Arrow tables are appended to

Values are as Arrow reads them. What stands in the way of reading is an exception of Arrow's or the system's, which
`reading` tells in words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tallbayes.errors import DataError, explain
from tallbayes.rows.columns import BATCH_ROWS, is_number, is_text, one_line, require

CSV_BLOCK_BYTES = 2**22
READ_BYTES = 2**20
_CONVERSION = re.compile(r"In CSV column #(\d+): (?:Row #(\d+): )?CSV conversion error to (\w+).*?: invalid value (.*)")

Types = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Batch:
    """An Arrow record batch, and the share of the file that has been read with it."""

    rows: Any
    share: float


@dataclass(frozen=True, eq=False)
class Format:
    """A kind of file: how its name ends, and how it is read and written.

    `pieces` takes the types of columns that are known already, which matter where a file does not tell them; `num_rows`
    is for files that tell before they are read.
    """

    suffixes: tuple[str, ...]
    schema: Callable[[Path], Any]
    read: Callable[[Path, list[str]], Any]
    pieces: Callable[[Path, list[str], int, Types], Iterator[Batch]]
    num_rows: Callable[[Path], int] | None = None
    open_writer: Callable[[Path, Any], Any] | None = None


def format_of(path: Path) -> Format:
    """The format that a file's name tells."""
    suffixes = [each.lower() for each in path.suffixes]
    if is_compressed(path):
        suffixes.pop()
    for each in FORMATS:
        if suffixes and suffixes[-1] in each.suffixes:
            return each
    got = f"{path.name!r}"
    raise DataError(explain(f"a file ending in {', '.join(SUFFIXES)} or .csv.gz", got, "rename or convert it"))


def is_compressed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Trouble with a file, as a DataError."""
    try:
        yield
    except (require("pyarrow").ArrowException, OSError) as error:
        raise _broken(path, error) from error


def _broken(path: Path, error: Exception) -> DataError:
    message = one_line(error)
    hint = "write the file again; it may be truncated or of another format"
    if "Row #" in message:
        line = message.split("Row #")[1].split(":")[0]
        hint = f"look at line {line}: its fields, quotes and delimiter"
    return DataError(explain(f"a readable file {path.name!r}", message, hint))


def _csv_options(delimiter: str, threads: bool, start: int = 0, **columns: Any) -> dict[str, Any]:
    csv = require("pyarrow.csv")
    return {
        "read_options": csv.ReadOptions(block_size=CSV_BLOCK_BYTES, skip_rows_after_names=start, use_threads=threads),
        "parse_options": csv.ParseOptions(delimiter=delimiter),
        "convert_options": csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False, **columns),
    }


def _csv_schema(delimiter: str, path: Path) -> Any:
    """Types are inferred from the first block, with one thread, which cannot outlive the file."""
    with require("pyarrow.csv").open_csv(str(path), **_csv_options(delimiter, threads=False)) as reader:
        return reader.schema


def _read_csv(delimiter: str, path: Path, wanted: list[str]) -> Any:
    csv = require("pyarrow.csv")
    try:
        return csv.read_csv(str(path), **_csv_options(delimiter, threads=True, include_columns=wanted))
    except require("pyarrow").ArrowInvalid:
        # Only a single thread counts the lines.
        return csv.read_csv(str(path), **_csv_options(delimiter, threads=False, include_columns=wanted))


def _csv_pieces(delimiter: str, path: Path, wanted: list[str], start: int, types: Types) -> Iterator[Batch]:
    """The blocks of a file.

    Where whole numbers turn out to be fractions later on, or an empty column not to be empty, those from there on have
    the wider type.
    """
    arrow = require("pyarrow")
    while True:
        try:
            for piece in _csv_blocks(delimiter, path, wanted, start, types):
                start += piece.rows.num_rows
                types = {field.name: field.type for field in piece.rows.schema}
                yield piece
            return
        except (arrow.ArrowException, OSError) as error:
            types = _widened(delimiter, path, wanted, start, types, error)


def _csv_blocks(
    delimiter: str, path: Path, wanted: list[str], start: int, types: Types, threads: bool = True
) -> Iterator[Batch]:
    arrow, csv = require("pyarrow"), require("pyarrow.csv")
    known = {name: kind for name, kind in types.items() if not arrow.types.is_null(kind)}
    options = _csv_options(delimiter, threads, start, include_columns=wanted, column_types=known)
    size = path.stat().st_size
    with arrow.OSFile(str(path)) as raw:
        stream = arrow.CompressedInputStream(raw, "gzip") if is_compressed(path) else raw
        with csv.open_csv(stream, **options) as reader:
            for batch in reader:
                if batch.num_rows:
                    yield Batch(batch, raw.tell() / size)


def _widened(delimiter: str, path: Path, wanted: list[str], start: int, types: Types, error: Exception) -> Types:
    """The types to go on with after a value that its column's type does not hold, or a DataError."""

    def name_of(place: str) -> str:
        with reading(path):
            return str(_csv_schema(delimiter, path).names[int(place)])

    found = _CONVERSION.match(str(error))
    if found:
        name, kind, value = name_of(found[1]), found[3], found[4]
        if kind == "int64" and is_number(value.strip("'")):
            return {**types, name: require("pyarrow").float64()}
        if kind == "null":
            return {each: type_ for each, type_ in types.items() if each != name}
    error = _with_line(delimiter, path, wanted, start, types, error)
    found = _CONVERSION.match(str(error))
    if not found:
        raise _broken(path, error) from error
    name, line, kind, value = name_of(found[1]), found[2], found[3], found[4]
    got = f"{value} {f'on line {line}' if line else f'after row {start:,}'}, where {kind} was read before"
    hint = "all of it as numbers or all as text; what is missing may be empty or NA"
    raise DataError(explain(f"one kind of value in column {name!r} of {path.name!r}", got, hint)) from error


def _with_line(delimiter: str, path: Path, wanted: list[str], start: int, types: Types, error: Exception) -> Exception:
    """The same trouble with the line it is on: only a single thread counts them."""
    try:
        for _ in _csv_blocks(delimiter, path, wanted, start, types, threads=False):
            pass
    except (require("pyarrow").ArrowException, OSError) as located:
        return located
    return error


def _open_csv_writer(path: Path, schema: Any) -> Any:
    return require("pyarrow.csv").CSVWriter(str(path), schema)


def _parquet_schema(path: Path) -> Any:
    return require("pyarrow.parquet").read_schema(path)


def _open_parquet(path: Path, wanted: list[str], **options: Any) -> Any:
    """Text comes as codes of its levels."""
    parquet = require("pyarrow.parquet")
    schema = parquet.read_schema(path)
    text = [name for name in wanted if is_text(schema.field(name).type)]
    return parquet.ParquetFile(path, read_dictionary=text, **options)


def _read_parquet(path: Path, wanted: list[str]) -> Any:
    with _open_parquet(path, wanted) as file:
        return file.read(columns=wanted).select(wanted)


def _parquet_pieces(path: Path, wanted: list[str], start: int, _: Types) -> Iterator[Batch]:
    # Neither read ahead nor kept: the pool would otherwise grow with the file.
    with reading(path), _open_parquet(path, wanted, pre_buffer=False, buffer_size=READ_BYTES) as file:
        total = file.metadata.num_rows
        for groups, position in _row_groups(file.metadata, start):
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=wanted):
                rows = batch.slice(max(start - position, 0))
                position += batch.num_rows
                if rows.num_rows:
                    yield Batch(rows.select(wanted), position / total)


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


def _count_parquet(path: Path) -> int:
    return int(require("pyarrow.parquet").read_metadata(path).num_rows)


def _open_parquet_writer(path: Path, schema: Any) -> Any:
    return require("pyarrow.parquet").ParquetWriter(str(path), schema)


def _arrow_schema(path: Path) -> Any:
    arrow = require("pyarrow")
    with arrow.memory_map(str(path)) as file:
        return arrow.ipc.open_file(file).schema


def _read_arrow(path: Path, wanted: list[str]) -> Any:
    arrow = require("pyarrow")
    names = _arrow_schema(path).names
    options = arrow.ipc.IpcReadOptions(included_fields=[names.index(name) for name in wanted])
    with arrow.memory_map(str(path)) as file:
        return arrow.ipc.open_file(file, options=options).read_all().select(wanted)


def _arrow_pieces(path: Path, wanted: list[str], start: int, _: Types) -> Iterator[Batch]:
    arrow = require("pyarrow")
    with reading(path), arrow.memory_map(str(path)) as file:
        reader = arrow.ipc.open_file(file)
        position = 0
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number).select(wanted)
            skipped = min(max(start - position, 0), batch.num_rows)
            position += batch.num_rows
            for first in range(skipped, batch.num_rows, BATCH_ROWS):
                yield Batch(batch.slice(first, BATCH_ROWS), (number + 1) / reader.num_record_batches)


def _open_arrow_writer(path: Path, schema: Any) -> Any:
    return require("pyarrow").ipc.new_file(str(path), schema)


def _delimited(suffix: str, delimiter: str, open_writer: Callable[[Path, Any], Any] | None = None) -> Format:
    schema, read, pieces = (partial(each, delimiter) for each in (_csv_schema, _read_csv, _csv_pieces))
    return Format((suffix,), schema, read, pieces, open_writer=open_writer)


FORMATS = (
    _delimited(".csv", ",", _open_csv_writer),
    _delimited(".tsv", "\t"),
    Format((".parquet", ".pq"), _parquet_schema, _read_parquet, _parquet_pieces, _count_parquet, _open_parquet_writer),
    Format((".arrow", ".feather", ".ipc"), _arrow_schema, _read_arrow, _arrow_pieces, open_writer=_open_arrow_writer),
)
SUFFIXES = tuple(suffix for each in FORMATS for suffix in each.suffixes)
WRITERS = {each.suffixes[0]: each.open_writer for each in FORMATS if each.open_writer is not None}
