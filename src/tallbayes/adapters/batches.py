"""Batches: the rows of a file or a frame a piece at a time, so that a table never has to fit into memory.

for batch in batches("new.parquet", ["hour", "carrier"]): ...     Arrow tables of at most BATCH_ROWS rows, in order
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tallbayes.adapters.columns import require
from tallbayes.adapters.tables import Source, broken, file_kind, normalised_table, open_source

BATCH_ROWS = 2**17


def batches(source: Any, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Arrow tables of these columns in this order; missing columns and unreadable files are DataErrors."""
    opened = open_source(source)
    wanted = list(dict.fromkeys(opened.names if columns is None else columns))
    opened.require(wanted)
    if not isinstance(source, str | os.PathLike):
        return _slices(opened, wanted)
    path = Path(source)
    kind = file_kind(path)
    if kind == "parquet":
        return _of_parquet(path, wanted)
    return _of_csv(path, wanted, kind) if kind in ("csv", "tsv") else _of_arrow(path, wanted)


def _slices(source: Source, wanted: list[str]) -> Iterator[Any]:
    table = source.read(wanted)
    for start in range(0, table.num_rows, BATCH_ROWS):
        yield table.slice(start, BATCH_ROWS)


def _of_parquet(path: Path, wanted: list[str]) -> Iterator[Any]:
    arrow, parquet = require("pyarrow"), require("pyarrow.parquet")
    try:
        # Neither read ahead nor kept: the pool would otherwise grow with the file.
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=wanted):
                yield normalised_table(arrow.Table.from_batches([batch]).select(wanted))
    except (arrow.ArrowException, OSError) as error:
        raise broken(path, error) from error


def _of_csv(path: Path, wanted: list[str], kind: str) -> Iterator[Any]:
    arrow, csv = require("pyarrow"), require("pyarrow.csv")
    parse = csv.ParseOptions(delimiter="\t" if kind == "tsv" else ",")
    convert = csv.ConvertOptions(include_columns=wanted, strings_can_be_null=True, quoted_strings_can_be_null=False)
    try:
        with csv.open_csv(str(path), parse_options=parse, convert_options=convert) as reader:
            for batch in reader:
                if batch.num_rows:
                    yield normalised_table(arrow.Table.from_batches([batch]))
    except (arrow.ArrowException, OSError) as error:
        raise broken(path, error) from error


def _of_arrow(path: Path, wanted: list[str]) -> Iterator[Any]:
    arrow = require("pyarrow")
    try:
        with arrow.memory_map(str(path)) as file:
            reader = arrow.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                table = arrow.Table.from_batches([reader.get_batch(number)]).select(wanted)
                for start in range(0, table.num_rows, BATCH_ROWS):
                    yield normalised_table(table.slice(start, BATCH_ROWS))
    except (arrow.ArrowException, OSError) as error:
        raise broken(path, error) from error
