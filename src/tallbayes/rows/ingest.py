"""Ingest: any number of CSV, Parquet and Arrow files into one table on disk, shuffled, that is mapped into memory.

    deal    batches are packed into rows of float64, and dealt to buckets; columns are learnt
    order   bucket after bucket is shuffled, and its rows converted and appended to the fields of the table
    seal    padded, digested, renamed

The journal "dealt" tells which rows of which file are in, and all that has been learnt; "ordered" how many buckets
are. What was written after a journal is cut off and done again, so that a table has the same bytes however often its
making was interrupted. More files are put behind the rows of a table in the same way, as a segment of it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tallbayes.errors import DataError, TableError, explain
from tallbayes.rows.atomic import sync_file, writing
from tallbayes.rows.files import File, changed, list_files, packed_bytes, shared_columns
from tallbayes.rows.formats import format_of
from tallbayes.rows.on_disk import MOST_ROWS, Stored
from tallbayes.rows.packing import LearntColumn, pack, packed_size
from tallbayes.rows.segments.conversion import FieldLayout, known_columns, layout, layout_like, types_of
from tallbayes.rows.segments.record import next_number
from tallbayes.rows.shuffling import Deal, buckets_for, write_whole
from tallbayes.rows.unfinished import (
    Look,
    Making,
    Unfinished,
    finished_before,
    unfinished_segment,
    unfinished_table,
)

FORMAT = "tallbayes ingest 2"


def ingest(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    columns: Sequence[str] | None = None,
    progress: Look | None = None,
    overwrite: bool = False,
    append: bool = False,
) -> Stored:
    """Make a table at `out` of the rows of files, in random order, in memory that does not grow with them.

    The number of each row is kept, counted from 0 through all files in their order, and predictions tell it.

    `paths` are .csv, .tsv (also .gz), .parquet and .arrow files with the same columns, folders of them, or patterns;
    `columns` the ones to keep. The same call goes on from where an interrupted one was. With `overwrite` a table at
    `out` is replaced, and an unfinished one of other files is thrown away. `progress` is called with looks: stage,
    share of it, rows, bytes, seconds.

    With `append` the rows are put behind those of the table at `out`, at a cost that does not know how many these are:
    in its columns and types, new levels behind the old ones, and until the last step the table is what it was. Files
    that it holds already are not read again.

    >>> text = "late,hour\\n" + "".join(f"{k % 3},{k % 24}\\n" for k in range(100))
    >>> _ = (folder / "flights.csv").write_text(text)
    >>> table = ingest(folder / "flights.csv", folder / "flights.table")
    >>> table.num_rows  # for tb.fit("late ~ hour", table)
    100
    """
    files = list_files(paths)
    if append and overwrite:
        raise TableError(explain("append or overwrite", "both", "append=True to keep the rows that are there"))
    if append:
        return _append(files, out, columns, progress)
    asked = _asked(files, columns)
    finished = finished_before(out, asked)
    if finished is not None:
        return finished
    with unfinished_table(out, overwrite) as work:
        try:
            run = _begin(files, asked, work, overwrite)
            run.look = progress
            run.deal_files()
            run.put_in_order()
            return run.seal()
        except TableError:
            raise
        except DataError:
            # Files that have to be changed cannot be gone on with.
            work.discard()
            raise


def _append(
    files: list[File], table: str | os.PathLike[str], columns: Sequence[str] | None, progress: Look | None
) -> Stored:
    with unfinished_segment(table) as work:
        onto = work.onto
        assert onto is not None
        try:
            if _are_in(files, onto):
                work.discard()
                return onto
            run = _begin(files, {**_asked(files, columns), "onto": onto.digest}, work, overwrite=True)
            run.look = progress
            run.deal_files()
            run.put_in_order()
            return run.seal()
        except TableError:
            raise
        except DataError:
            work.discard()
            raise


def _are_in(files: list[File], onto: Stored) -> bool:
    """Whether a table holds all rows of these files; one that holds those of some is refused."""
    held = {part.stamp[:2]: part for part in onto.parts if part.left}
    found = [(file, held.get((str(file.path), file.size))) for file in files]
    there = [(file, part) for file, part in found if part is not None]
    if len(there) == len(files) and all(
        (part.modified, part.left) == (file.modified, part.rows) for file, part in there
    ):
        return True
    for file, part in there:
        got = f"{file.label}, which it holds"
        if part.left < part.rows:
            got += f", of which {part.left:,} rows have not been withdrawn"
        if part.modified != file.modified:
            got = f"{file.label} of the same size as when it came, changed since"
        hint = "the other files alone; a copy of another name if its rows are to count twice"
        raise TableError(explain("files that the table does not hold", got, hint))
    return False


@dataclass
class Ingestion:
    """One table in the making from files."""

    work: Unfinished
    files: list[File]
    learnt: list[LearntColumn]
    deal: Deal
    asked: dict[str, Any]
    rows_of: list[int] = field(default_factory=list)
    complete: bool = False
    told_complete: bool = False
    ordered: int = 0
    resumed: bool = False
    look: Look | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def row_bytes(self) -> int:
        return packed_size(len(self.learnt))

    @cached_property
    def layout(self) -> FieldLayout:
        """Settled once, after all rows are in."""
        return _layout(self.learnt, self.files, self.work)

    @property
    def first_number(self) -> int:
        """That of the first row."""
        return 0 if self.work.onto is None else next_number(self.work.onto.segments)

    def deal_files(self) -> None:
        """Read what is not in yet, and deal it to the buckets."""
        begun = self.deal.num_rows
        while not self.complete:
            number = max(len(self.rows_of) - 1, 0)
            self._deal_file(number, begun)
            self.complete = number == len(self.files) - 1
            self.rows_of += [] if self.complete else [0]
        with writing(self.work.folder):
            self.deal.flush()
        self.deal.release()
        if not self.deal.num_rows:
            names = ", ".join(file.label for file in self.files[:3])
            raise DataError(explain(f"at least one row in {names}", "0 rows", "check how the files were written"))

    def _deal_file(self, number: int, begun: int) -> None:
        file = self.files[number]
        file.require_unchanged()
        self.rows_of = self.rows_of or [0]
        wanted = [column.name for column in self.learnt]
        pieces = format_of(file.path).pieces
        for piece in _ahead(pieces(file.path, wanted, self.rows_of[-1], types_of(self.learnt))):
            rows = pack(piece.rows, self.learnt, file.label, self.rows_of[-1], self.first_number + sum(self.rows_of))
            with writing(self.work.folder):
                self.deal.add(rows)
                self.rows_of[-1] += len(rows)
                if self.work.due():
                    self._keep_dealt()
            if self.deal.num_rows > MOST_ROWS:
                hint = "several tables: row numbers are 32 bits wide"
                raise TableError(explain(f"at most {MOST_ROWS:,} rows", f"more by {file.label}", hint))
            self._tell("reading", self._share_read(number, piece.share), self.deal.num_rows, begun)
        file.require_unchanged()

    def _keep_dealt(self) -> None:
        """The first journal: after the disk holds the buckets it tells of."""
        started = time.monotonic()
        self.deal.flush()
        self.deal.sync()
        document = {
            "asked": self.asked,
            "rows": self.rows_of,
            "complete": self.complete,
            "counts": self.deal.counts.tolist(),
            "columns": [column.to_json() for column in self.learnt],
        }
        self.work.write("dealt", document, started)
        self.told_complete = self.complete

    def put_in_order(self) -> None:
        """Append the rows of every bucket, shuffled and converted, to the files of the fields."""
        ends = np.cumsum(self.deal.counts)
        begun = done = int(ends[self.ordered - 1]) if self.ordered else 0
        kept = self.ordered
        with writing(self.work.folder), ExitStack() as stack:
            descriptors = []
            for each in self.layout.files:
                opened = stack.enter_context(open(self.work.table / each.file, "ab", buffering=0))
                opened.truncate(done * each.row_bytes)
                descriptors.append(opened.fileno())
            for bucket in range(self.ordered, self.deal.num_buckets):
                for packed in _ahead(self.deal.shuffled(bucket)):
                    rows = packed.view(np.float64).reshape(len(packed), -1)
                    for descriptor, values in zip(descriptors, self.layout.convert(rows), strict=True):
                        write_whole(descriptor, values)
                done = int(ends[bucket])
                self.ordered = bucket + 1
                if self.work.due():
                    kept = self._keep_ordered(kept)
                self._tell("shuffling", done / self.deal.num_rows, done, begun)

    def _keep_ordered(self, kept: int) -> int:
        """The second journal; buckets that it tells to be in order are no longer needed."""
        if not self.told_complete:
            self._keep_dealt()
        started = time.monotonic()
        for each in self.layout.files:
            sync_file(self.work.table / each.file)
        self.work.write("ordered", {"buckets": self.ordered}, started)
        for bucket in range(kept, self.ordered):
            self.deal.file(bucket).unlink(missing_ok=True)
        return self.ordered

    def seal(self) -> Stored:
        """The table in its place."""
        num_rows = self.deal.num_rows
        self._tell("sealing", 0.0, num_rows, num_rows)
        source = {**self.asked, "rows": self.rows_of}
        with writing(self.work.folder):
            settled = self.layout
            made = Stored(
                self.work.table, num_rows, True, settled.fields, {}, settled.columns, source, settled.numbered
            )
            return self.work.seal(made)

    def _share_read(self, number: int, share: float) -> float:
        before = sum(file.size for file in self.files[:number])
        return (before + share * self.files[number].size) / sum(file.size for file in self.files)

    def _tell(self, stage: str, share: float, rows: int, begun: int) -> None:
        if self.look is not None:
            seconds = time.monotonic() - self.started
            self.look(Making(stage, share, rows, (rows - begun) * self.row_bytes, seconds, self.resumed))


def _asked(files: list[File], columns: Sequence[str] | None) -> dict[str, Any]:
    """What tells one ingest from another; a table keeps it as its source."""
    names = None if columns is None else list(columns)
    return {"format": FORMAT, "columns": names, "files": [file.stamp() for file in files]}


def _begin(files: list[File], asked: dict[str, Any], work: Unfinished, overwrite: bool) -> Ingestion:
    """The run that was interrupted, if there is one; else a new one."""
    found = work.read("dealt")
    if found is not None and (found.get("asked") or {}).get("format") != FORMAT:
        # What another version began is packed otherwise.
        found = None
    if found is not None and found.get("asked") != asked and not overwrite:
        _refuse_other(found.get("asked"), asked, files, work)
    if found is not None and found.get("asked") == asked:
        run = _resumed(found, files, work, asked)
        if run is not None:
            return run
    if work.onto is None:
        kinds = shared_columns(files, asked["columns"])
        learnt = [LearntColumn(name, kind) for name, kind in kinds.items()]
    else:
        learnt = known_columns(work.onto, files, asked["columns"])
    with writing(work.folder):
        work.clear()
    # Rows without their numbers, so that the same files come in the same order as they did before these were kept.
    num_buckets = buckets_for(sum(packed_bytes(file, 8 * len(learnt)) for file in files))
    deal = Deal(work.buckets, packed_size(len(learnt)), num_buckets, above=_above(work))
    return Ingestion(work, files, learnt, deal, asked)


def _above(work: Unfinished) -> tuple[int, ...]:
    """Rows of another day come in another order."""
    return () if work.onto is None else (next_number(work.onto.segments),)


def _resumed(found: dict[str, Any], files: list[File], work: Unfinished, asked: dict[str, Any]) -> Ingestion | None:
    """The run as its journals tell it; None where the files of the work are not there to go on with."""
    learnt = [LearntColumn.from_json(each) for each in found["columns"]]
    deal = Deal(work.buckets, packed_size(len(learnt)), len(found["counts"]), found["counts"], _above(work))
    complete = found["complete"]
    ordered = int((work.read("ordered") or {"buckets": 0})["buckets"]) if complete else 0
    if not deal.fits(ordered):
        return None
    if ordered and not _fields_hold(int(deal.counts[:ordered].sum()), _layout(learnt, files, work), work):
        return None
    return Ingestion(work, files, learnt, deal, asked, found["rows"], complete, complete, ordered, resumed=True)


def _layout(learnt: list[LearntColumn], files: list[File], work: Unfinished) -> FieldLayout:
    if work.onto is None:
        return layout(learnt)
    return layout_like(work.onto, learnt, files[0].label if len(files) == 1 else f"{len(files)} files")


def _fields_hold(num_rows: int, settled: FieldLayout, work: Unfinished) -> bool:
    files = [(work.table / each.file, num_rows * each.row_bytes) for each in settled.files]
    return all(file.is_file() and file.stat().st_size >= size for file, size in files)


def _refuse_other(before: Any, asked: dict[str, Any], files: list[File], work: Unfinished) -> None:
    stamps = {path: stamp for path, *stamp in before["files"]} if isinstance(before, dict) else {}
    for file in files:
        path, *stamp = file.stamp()
        if path in stamps and stamps[path] != stamp:
            raise changed(file)
    got = f"one of other files or columns, unfinished in {str(work.folder)!r}"
    raise TableError(explain("the ingest that was begun", got, "that one again, or overwrite=True to start anew"))


def _ahead(parts: Iterator[Any]) -> Iterator[Any]:
    """The same, the next of them made on a thread while one is used."""
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, parts, None)
        while (part := coming.result()) is not None:
            coming = thread.submit(next, parts, None)
            yield part
