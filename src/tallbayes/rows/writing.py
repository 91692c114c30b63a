"""`write_table`: rows that come from anywhere, chunk by chunk, into a table on disk.

    tb.write_table("rows.table", {"x": X, "y": y})
    tb.write_table("rows.table", chunks())            a generator of such dicts: nothing else of their size is held
    tb.write_table("rows.table", today, append=True)  more rows, behind those that are there

A generator cannot be asked again, so what was interrupted starts anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from tallbayes.errors import DataError, TableError, explain
from tallbayes.rows.atomic import replacing, writing
from tallbayes.rows.on_disk import IN_ORDER, MADE_OF, ROW, Field, Stored
from tallbayes.rows.segments.conversion import LOOKED_AT
from tallbayes.rows.segments.record import Stamp, next_number
from tallbayes.rows.shuffling import BLOCK_BYTES, Deal, write_whole
from tallbayes.rows.statistics import ColumnStatistics, blurred
from tallbayes.rows.unfinished import Unfinished, unfinished_segment, unfinished_table

# A bucket that grows too large is dealt once more: 4 GiB of rows are not, 256 GiB are once.
NUM_BUCKETS = 64
_SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")

Chunk = Mapping[str, Any]


def write_table(
    path: str | os.PathLike[str],
    chunks: Chunk | Iterable[Chunk],
    *,
    shuffled: bool = False,
    overwrite: bool = False,
    append: bool = False,
) -> Stored:
    """Write a dict of arrays sharing a leading axis, or any number of such dicts one after the other, as a table.

    Floats are stored as float32 where that is enough, whole numbers and bools as int32. Rows are put in random order
    in bounded memory, and their numbers kept, unless they are declared to be `shuffled` already. With `append` they are
    put behind the rows of a table of the same fields that is there, in its types, as a segment of it.

    >>> x = np.arange(100.0)[:, None]
    >>> table = write_table(folder / "rows.table", {"x": x, "y": x[:, 0] > 50})
    >>> table.num_rows, [field.name for field in table.fields]  # for tb.estimate(..., table)
    (100, ['x', 'y'])
    """
    if not isinstance(path, str | os.PathLike):
        hint = 'tb.write_table("rows.table", {"x": X, "y": y}): the path comes first'
        raise TableError(explain("a path to write the table to", type(path).__name__, hint))
    if not isinstance(chunks, Iterable):
        hint = '{"x": X, "y": y}, or a generator of such dicts'
        raise DataError(explain("a dict of arrays, or several", type(chunks).__name__, hint))
    parts = iter([chunks]) if isinstance(chunks, Mapping) else iter(chunks)
    if append and overwrite:
        raise TableError(explain("append or overwrite", "both", "append=True to keep the rows that are there"))
    with unfinished_segment(path) if append else unfinished_table(path, overwrite) as work:
        if not append and work.read("dealt") is not None and not overwrite:
            got = f"an ingest that is unfinished in {str(work.folder)!r}"
            raise TableError(explain("a new place for the table", got, "another place, or overwrite=True"))
        try:
            return _write(work, parts, shuffled)
        except BaseException:
            work.discard()
            raise


def write_behind(stored: Stored, chunks: Iterable[Chunk], made_of: Stamp, shuffled: bool = True) -> Stored:
    """More rows of a table, in the order they come in where this is random, and what they were made of, which it keeps
    as if it were a file."""
    with unfinished_segment(stored.path) as work:
        try:
            return _write(work, iter(chunks), shuffled, made_of)
        except BaseException:
            work.discard()
            raise


def _write(work: Unfinished, parts: Iterator[Any], shuffled: bool, made_of: Stamp | None = None) -> Stored:
    with writing(work.folder):
        work.clear()
    first = next(parts, None)
    if first is None:
        raise DataError(explain("at least one chunk of rows", "none", "check what makes them"))
    form = _Form(first, numbered=not shuffled) if work.onto is None else _LikeBefore(first, work.onto)
    write = _write_as_they_come if shuffled else _write_in_random_order
    num_rows = write(work, form, form.packed(first, parts))
    if not num_rows:
        raise DataError(explain("at least one row", "0 rows", "check what makes the chunks"))
    form.require_held()
    with writing(work.folder):
        source: dict[str, Any] | None = {IN_ORDER: True} if shuffled else None
        if made_of is not None:
            source = {**(source or {}), MADE_OF: made_of, "files": [made_of], "rows": [num_rows]}
        made = Stored(work.table, num_rows, True, form.fields(), {}, source=source, numbered=form.numbered)
        return work.seal(made)


class _Form:
    """The fields that the first chunk has and all others must have, and their statistics so far.

    Where it is `numbered`, a record has the number of its row too.
    """

    first_number = 0

    def __init__(self, first: Any, numbered: bool) -> None:
        arrays, self.numbered = _arrays(first), numbered
        self.dtypes = {name: _stored_dtype(name, array) for name, array in arrays.items()}
        self.shapes = {name: array.shape[1:] for name, array in arrays.items()}
        self.statistics = {name: ColumnStatistics() for name, dtype in self.dtypes.items() if dtype == np.float64}
        self.num_rows = 0

    def require_held(self) -> None:
        """Refuse what the types that are stored do not hold: here they are made for it."""

    @property
    def record(self) -> np.dtype:
        number = [(ROW.name, np.dtype(ROW.dtype), ROW.shape)] if self.numbered else []
        return np.dtype([(name, dtype, self.shapes[name]) for name, dtype in self.dtypes.items()] + number)

    def packed(self, first: Any, rest: Iterator[Any]) -> Iterator[np.ndarray]:
        """Chunks as arrays of records, checked."""
        chunk: Any = first
        while chunk is not None:
            yield self._packed(_arrays(chunk))
            chunk = next(rest, None)

    def _packed(self, arrays: dict[str, np.ndarray]) -> np.ndarray:
        if set(arrays) != set(self.dtypes):
            got = f"{sorted(arrays)} from row {self.num_rows:,} on"
            raise DataError(explain(f"the fields {sorted(self.dtypes)} in every chunk", got, "the same keys"))
        rows = np.empty(len(next(iter(arrays.values()))), self.record)
        for name, array in arrays.items():
            rows[name] = self._checked(name, array)
        if self.numbered:
            start = self.first_number + self.num_rows
            rows[ROW.name] = np.arange(start, start + len(rows))
        self.num_rows += len(rows)
        return rows

    def _checked(self, name: str, array: np.ndarray) -> np.ndarray:
        dtype, where = self.dtypes[name], f"from row {self.num_rows:,} on"
        if array.shape[1:] != self.shapes[name]:
            got = f"{array.shape[1:]} {where}"
            raise DataError(explain(f"rows of shape {self.shapes[name]} in {name!r}", got, "one shape in all chunks"))
        if not np.can_cast(_stored_dtype(name, array), dtype, "same_kind") or (array.dtype, dtype) == _NARROWS:
            got = f"{array.dtype} {where}"
            raise DataError(explain(f"{dtype} in {name!r} as in the first chunk", got, "astype, in all chunks alike"))
        if not len(array):
            return array
        flat = array.reshape(len(array), -1)
        bad = ~np.isfinite(flat) if dtype.kind == "f" else _beyond_int32(array, flat)
        if bad.any():
            row, entry = np.argwhere(bad)[0]
            expected = "finite numbers" if dtype.kind == "f" else "whole numbers below 2^31"
            hint = "drop or impute that row" if dtype.kind == "f" else "astype(float), or codes 0, 1, 2, ..."
            got = f"{flat[row, entry]} at row {self.num_rows + row:,}"
            raise DataError(explain(f"{expected} in {name!r}", got, hint))
        if name in self.statistics:
            self.statistics[name].add(flat)
        return array

    def fields(self) -> tuple[Field, ...]:
        """As they are stored, once all rows have been seen."""
        return tuple(Field(name, str(self.final_dtype(name)), self.shapes[name]) for name in self.dtypes)

    def final_dtype(self, name: str) -> np.dtype:
        wide = self.dtypes.get(name, np.dtype(ROW.dtype))
        return np.dtype(np.float32) if name in self.statistics and not self.statistics[name].needs_float64() else wide


class _LikeBefore(_Form):
    """The fields that a table has: what is float32 there may come as float64, and is held against its rows."""

    def __init__(self, first: Any, onto: Stored) -> None:
        arrays = _arrays(first)
        own = {field.name: field for field in onto.fields}
        if onto.columns:
            got = f"one of the columns {', '.join(column.name for column in onto.columns[:12])}"
            raise DataError(explain(f"a table of arrays at {str(onto.path)!r}", got, "tb.ingest(files, append=True)"))
        if set(arrays) != set(own):
            got = ", ".join(sorted(arrays))
            raise DataError(explain(f"the fields of the table, {', '.join(sorted(own))}", got, "the same keys"))
        for name, field in own.items():
            if arrays[name].shape[1:] != field.shape:
                expected = f"rows of shape {field.shape} in {name!r}, as in the table"
                raise DataError(explain(expected, f"{arrays[name].shape[1:]}", "the same columns"))
            if field.dtype == "int32" and _stored_dtype(name, arrays[name]).kind == "f":
                got = f"{arrays[name].dtype}"
                raise DataError(
                    explain(f"whole numbers in {name!r}, as in the table", got, "astype(int), or a new one")
                )
        super().__init__({name: arrays[name] for name in own}, onto.numbered)
        self.onto, self.first_number = onto, next_number(onto.segments)
        for name, field in own.items():
            if field.dtype != "int32":
                is_single = self.dtypes[name] == np.float32
                self.dtypes[name] = np.dtype(field.dtype if is_single else np.float64)
                self.statistics |= {} if is_single else {name: ColumnStatistics()}

    def require_held(self) -> None:
        before = {name: rows[:LOOKED_AT] for name, rows in self.onto.rows().items()}
        for name, found in self.statistics.items():
            rows = before[name].reshape(len(before[name]), -1)
            if self.final_dtype(name) == np.float32 and found.count and blurred(found, rows):
                got = f"numbers up to {found.size.max():.6g}"
                hint = "write all rows again into a new table"
                raise DataError(explain(f"numbers in {name!r} that float32 tells apart, as before", got, hint))

    def fields(self) -> tuple[Field, ...]:
        return self.onto.fields

    def final_dtype(self, name: str) -> np.dtype:
        return np.dtype(next((field.dtype for field in self.onto.fields if field.name == name), ROW.dtype))


_NARROWS = (np.dtype(np.float64), np.dtype(np.float32))


def _arrays(chunk: Any) -> dict[str, np.ndarray]:
    if not isinstance(chunk, Mapping) or not chunk:
        got = "an empty dict" if isinstance(chunk, Mapping) else f"a {type(chunk).__name__}"
        raise DataError(explain("a dict of arrays", got, '{"x": X, "y": y} with a row per entry'))
    arrays = {}
    for name, values in chunk.items():
        if not isinstance(name, str) or not _SAFE.fullmatch(name):
            hint = "letters, digits and _, such as 'x'"
            raise DataError(explain("field names that can be names of files", repr(name), hint))
        arrays[name] = np.asarray(values)
        if arrays[name].ndim == 0 or 0 in arrays[name].shape[1:]:
            got = "a single number" if arrays[name].ndim == 0 else f"shape {arrays[name].shape}"
            raise DataError(explain(f"{name!r} with at least one entry a row", got, "pass an array with rows"))
    if len({name.lower() for name in arrays}) < len(arrays):
        got = ", ".join(sorted(arrays))
        raise DataError(explain("field names that differ in more than case", got, "other names"))
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(explain("arrays with the same number of rows", f"{lengths}", "check how they were cut"))
    return arrays


def _stored_dtype(name: str, array: np.ndarray) -> np.dtype:
    if array.dtype.kind not in "biuf":
        hint = "encode categories as whole numbers or dummy columns"
        raise DataError(explain(f"numbers in {name!r}", f"dtype {array.dtype}", hint))
    if array.dtype.kind != "f":
        return np.dtype(np.int32)
    return np.dtype(np.float64 if array.dtype.itemsize >= 8 else np.float32)


def _beyond_int32(array: np.ndarray, flat: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "b" or np.can_cast(array.dtype, np.int32):
        return np.zeros(0, bool)
    return (flat >= 2**31) | (flat < -(2**31) if array.dtype.kind == "i" else False)


def _write_in_random_order(work: Unfinished, form: _Form, chunks: Iterator[np.ndarray]) -> int:
    # Rows of another day come in another order.
    above = () if work.onto is None else (form.first_number,)
    deal = Deal(work.buckets, form.record.itemsize, NUM_BUCKETS, above=above)
    for rows in chunks:
        with writing(work.folder):
            deal.add(rows)
    with writing(work.folder), ExitStack() as stack:
        deal.flush()
        deal.release()
        names = form.record.names or ()
        files = {name: stack.enter_context(open(work.table / f"{name}.bin", "wb", 0)) for name in names}
        for bucket in range(NUM_BUCKETS):
            for packed in deal.shuffled(bucket):
                rows = packed.view(form.record)
                for name, file in files.items():
                    write_whole(file.fileno(), np.ascontiguousarray(rows[name], form.final_dtype(name)))
            deal.file(bucket).unlink(missing_ok=True)
    return deal.num_rows


def _write_as_they_come(work: Unfinished, form: _Form, chunks: Iterator[np.ndarray]) -> int:
    with ExitStack() as stack:
        with writing(work.folder):
            names = form.record.names or ()
            files = {name: stack.enter_context(open(work.table / f"{name}.bin", "wb", 0)) for name in names}
        for rows in chunks:
            with writing(work.folder):
                for name, file in files.items():
                    write_whole(file.fileno(), np.ascontiguousarray(rows[name]))
    with writing(work.folder):
        for name in form.statistics:
            if form.final_dtype(name) == np.float32:
                _narrow(work, name)
    return form.num_rows


def _narrow(work: Unfinished, name: str) -> None:
    """Rewrite a field of float64 in float32, a block at a time."""
    wide = work.table / f"{name}.bin"
    with replacing(wide) as narrow, open(wide, "rb") as old, open(narrow, "wb", 0) as new:
        while len(block := np.fromfile(old, np.float64, BLOCK_BYTES // 8)):
            write_whole(new.fileno(), block.astype(np.float32))
