"""Behind: new rows written behind the last one of a table.

    the rows      into the files, over what lies behind the last row; and copies of the first row up to the next chunk
    their digest  and those of segments that have become one
    the header    in place of the old one, after the disk holds the rows: until then there is the old table

Nothing else is read or written, so what a segment costs does not know how many rows there are. Files are as long as
the table's capacity, which grows by a quarter: what lies beyond a chunk that has rows takes no place on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tallbayes.errors import TableError, explain
from tallbayes.rows.atomic import alone, sync_file, writing
from tallbayes.rows.on_disk import IN_ORDER, MADE_OF, MOST_ROWS, Field, Stored, open_table, put_on_record
from tallbayes.rows.segments.checksums import digests_of, remember
from tallbayes.rows.segments.record import (
    FilePart,
    RowSegment,
    merged_pair,
    next_number,
    pair_to_merge,
    pieces,
    room_for,
)
from tallbayes.rows.segments.redo import settle
from tallbayes.rows.table import CHUNK_ROWS, capacity_for

COPY_BYTES = 2**20


@contextmanager
def changing(path: str | os.PathLike[str]) -> Iterator[Stored]:
    """A table that nobody else changes meanwhile; those who read it are in nobody's way."""
    folder = open_table(os.fspath(path), verify=False).path
    with alone(folder):
        with writing(folder):
            settle(folder)
        yield open_table(folder)


def put_behind(onto: Stored, made: Stored, refill: bool) -> Stored:
    """The rows of a table in the making behind those of another one of the same fields, as a segment.

    `refill` where a writer who was stopped may have left something behind the last row.
    """
    start, stop = onto.num_rows, onto.num_rows + made.num_rows
    if max(stop, next_number(onto.segments) + made.num_rows) > MOST_ROWS:
        raise TableError(explain(f"at most {MOST_ROWS:,} rows", f"{stop:,}", "several tables"))
    least = onto.least if stop <= onto.capacity else room_for(stop, onto.capacity)
    known = tuple(column.known for column in made.columns)
    segment = RowSegment(
        start=start,
        stop=stop,
        padded=stop,
        first=next_number(onto.segments),
        room=least,
        shuffled=made.shuffled,
        when=datetime.now(UTC).isoformat(timespec="seconds"),
        parts=FilePart.all_of(made.source, made.num_rows),
        columns=known,
    )
    grown = replace(
        onto,
        num_rows=stop,
        shuffled=False,
        columns=made.columns,
        source=_source(onto, made),
        least=least,
        segments=(*onto.segments, segment),
    )
    for field in onto.all_fields:
        _write_behind(onto, grown, made.path / field.file, field, refill)
    digests = {
        field.name: (*onto.digests[field.name], *digests_of(grown, field, list(segment.pieces())))
        for field in onto.all_fields
    }
    grown = put_on_record(*_with_few_segments(grown, digests))
    remember(grown)
    return grown


def filled(stored: Stored) -> int:
    """Up to where the files hold copies of the first row: the end of the chunk of the last row."""
    return min(capacity_for(stored.num_rows, min(stored.least, CHUNK_ROWS)), stored.capacity)


def _write_behind(onto: Stored, grown: Stored, new: Path, field: Field, refill: bool) -> None:
    file, row_bytes = onto.path / field.file, field.row_bytes
    with open(file, "r+b", buffering=0) as opened, open(new, "rb") as rows:
        first = opened.read(row_bytes)
        if os.fstat(opened.fileno()).st_size < grown.capacity * row_bytes:
            opened.truncate(grown.capacity * row_bytes)
        opened.seek(onto.num_rows * row_bytes)
        while block := rows.read(COPY_BYTES):
            _write(opened.fileno(), block)
        start = grown.num_rows if refill else max(grown.num_rows, filled(onto))
        opened.seek(start * row_bytes)
        left, most = filled(grown) - start, max(COPY_BYTES // row_bytes, 1)
        while left > 0:
            _write(opened.fileno(), first * min(left, most))
            left -= most
    sync_file(file)


def _write(descriptor: int, block: bytes) -> None:
    left = memoryview(block)
    while left:
        left = left[os.write(descriptor, left) :]


def _source(onto: Stored, made: Stored) -> dict[str, Any] | None:
    """That of the table; rows of which it is not known which ones they were make all unknown."""
    known, more = dict(onto.source or {}), made.source or {}
    known |= {IN_ORDER: bool(more.get(IN_ORDER))} if known.get(IN_ORDER) else {}
    known |= {MADE_OF: more[MADE_OF]} if MADE_OF in more else {}
    return known or None


def _with_few_segments(
    stored: Stored, digests: dict[str, tuple[str, ...]]
) -> tuple[Stored, dict[str, tuple[str, ...]]]:
    """The same with neighbours as one where segments are many, whose rows are digested anew."""
    while (place := pair_to_merge(stored.segments)) is not None:
        before, (first, second) = stored.segments[:place], stored.segments[place : place + 2]
        one = merged_pair(first, second)
        stored = replace(stored, segments=(*before, one, *stored.segments[place + 2 :]))
        start, old = len(pieces(before)), len(pieces((first, second)))
        for field in stored.all_fields:
            parts = digests[field.name]
            again = digests_of(stored, field, list(one.pieces()))
            digests[field.name] = (*parts[:start], *again, *parts[start + old :])
    return stored, digests
