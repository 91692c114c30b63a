"""Withdrawal: rows taken out of a table on disk, whose places the last rows fill.

    gone     m places;  left = N - m
    holes    those among the first `left` places, in their order
    movers   the places from `left` on that are not gone, in theirs: as many as there are holes

Of rows in random order those that are left are in random order too. Stretches of rows that have a hole are digested
anew, as they are going to be, before anything is written down and done (see `redo`); so it costs what these and the
movers are long. What a table knew of its columns stays, but for how many values are missing: bounds are no less true,
and a level may have lost its last row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tallbayes.errors import DataError, TableError, explain
from tallbayes.rows.atomic import writing
from tallbayes.rows.on_disk import IN_ORDER, MADE_OF, Column, Field, Stored, header_of
from tallbayes.rows.segments.behind import changing, filled
from tallbayes.rows.segments.checksums import READ_BYTES, remember
from tallbayes.rows.segments.record import Stamp, after_withdrawal, pieces
from tallbayes.rows.segments.redo import Redo, carry_out


def withdraw(stored: Stored, places: Sequence[int] | np.ndarray, made_of: Stamp | None = None) -> Stored:
    """The table without the rows at these places, whose bytes are in its files no more; it has to be the table that is
    there. Whoever has the older one open is refused its rows from now on. What it is `made_of` from now on is kept."""
    gone = _require_places(stored, places)
    with changing(stored.path) as now:
        if now.digest != stored.digest:
            got = "one that has grown or shrunk since"
            raise TableError(explain(f"{str(stored.path)!r} as it was opened", got, "tb.open_table again"))
        left = now.num_rows - len(gone)
        holes, movers = gone[gone < left], np.setdiff1d(np.arange(left, now.num_rows), gone)
        # Where the first row goes, so do all copies of it.
        end = now.capacity if gone[0] == 0 else filled(now)
        less = replace(
            now,
            num_rows=left,
            segments=after_withdrawal(now.segments, left, _numbers(now, gone)),
            withdrawals=now.withdrawals + 1,
            columns=tuple(_less(now, column, gone) for column in now.columns),
            source=_source(now, made_of),
        )
        rows = {field.file: np.ascontiguousarray(_bytes(now, field)[movers]) for field in now.all_fields}
        digests = {field.name: _digests(now, less, field, holes, rows[field.file]) for field in now.all_fields}
        less = replace(less, digests=digests)
        with writing(now.path):
            carry_out(now.path, Redo(left, end, holes, rows, header_of(less)))
        remember(less)
        return less


def places_from(stored: Stored, path: str) -> np.ndarray:
    """Where the rows stand that came from a file; refused where it is none of the table's, or rows have no numbers."""
    numbers = stored.row_numbers()
    first = [0, *np.cumsum([part.rows for part in stored.parts]).tolist()]
    found = [place for place, part in enumerate(stored.parts) if part.path == path and part.left]
    if not found or numbers is None:
        got = "no numbers of rows" if numbers is None else f"{path!r}, none of whose rows it holds"
        raise DataError(explain(f"a file whose rows {str(stored.path)!r} holds", got, "the file that was appended"))
    inside = [(numbers >= first[place]) & (numbers < first[place + 1]) for place in found]
    return np.flatnonzero(np.any(inside, axis=0))


def _source(stored: Stored, made_of: Stamp | None) -> dict[str, Any] | None:
    known = dict(stored.source or {})
    known |= {IN_ORDER: False} if known.get(IN_ORDER) else {}
    known |= {} if made_of is None else {MADE_OF: made_of}
    return known or None


def _require_places(stored: Stored, places: Any) -> np.ndarray:
    given = np.asarray(places)
    gone = np.unique(given).astype(np.int64)
    hint = "places in the table, counted from 0"
    if given.dtype.kind not in "iu" or given.ndim != 1 or len(gone) < given.size:
        raise DataError(explain("whole numbers, each once", f"{given.dtype} of shape {given.shape}", hint))
    if not len(gone) or gone[0] < 0 or gone[-1] >= stored.num_rows:
        got = f"{gone[0]} to {gone[-1]}" if len(gone) else "none"
        raise DataError(explain(f"places from 0 to {stored.num_rows - 1:,}", got, hint))
    if len(gone) == stored.num_rows:
        raise DataError(explain("rows that are left", "all of them withdrawn", "remove the folder of the table"))
    return gone


def _numbers(stored: Stored, gone: np.ndarray) -> np.ndarray:
    """The sorted numbers of rows; where none are kept, as if every segment were in the order of its places."""
    if stored.numbered:
        numbers = stored.row_numbers()
        assert numbers is not None
        return np.sort(np.asarray(numbers[gone]))
    starts = np.array([segment.start for segment in stored.segments])
    firsts = np.array([segment.first for segment in stored.segments])
    which = np.searchsorted(starts, gone, side="right") - 1
    return np.sort(gone - starts[which] + firsts[which])


def _less(stored: Stored, column: Column, gone: np.ndarray) -> Column:
    """With fewer missing values."""
    if not column.missing:
        return column
    values = stored.rows()[column.field][gone, column.place]
    missing = np.isnan(values) if values.dtype.kind == "f" else values < 0
    return replace(column, missing=column.missing - int(missing.sum()))


def _bytes(stored: Stored, field: Field, mode: Any = "r") -> np.memmap:
    return np.memmap(stored.path / field.file, np.uint8, mode, shape=(stored.num_rows, field.row_bytes))


def _digests(now: Stored, less: Stored, field: Field, holes: np.ndarray, rows: np.ndarray) -> tuple[str, ...]:
    known = dict(zip(pieces(now.segments), now.digests[field.name], strict=True))
    # Changes to such a map stay in this memory.
    coming = _bytes(now, field, "c")
    coming[holes] = rows
    found = []
    for piece in pieces(less.segments):
        start, stop, _ = piece
        touched = np.searchsorted(holes, start) < np.searchsorted(holes, stop)
        found.append(known[piece] if piece in known and not touched else _digest(coming[start:stop]))
    return tuple(found)


def _digest(rows: np.ndarray) -> str:
    total, size = hashlib.sha256(), max(READ_BYTES // rows.shape[1], 1)
    for start in range(0, len(rows), size):
        total.update(np.ascontiguousarray(rows[start : start + size]).data)
    return total.hexdigest()
