"""Tables on disk: rows that are mapped into memory as they lie, and known by their digest.

    TABLE/table.json   how many rows, which fields of which type and shape, digests, and where the rows came from
    TABLE/x.bin        one file a field, row after row, padded with copies of the first row as a table in memory is
    TABLE/@row.bin     which row of the source stands at each place, counted from 0, where rows were put in random order

A mapped file starts at a page, so on a CPU it is the device array itself: nothing of its size is ever held. A folder
without table.json is not a table yet; one whose files are not what their digests say is refused by name. Files are
read through once for that, and not again until they change. Rows that come later are a segment behind the last one; a
table that was opened before stays what it was, since what lies beyond its rows is nothing to it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.errors import TableError, explain
from tallbayes.programs.later import jax
from tallbayes.rows.atomic import take_place
from tallbayes.rows.segments.checksums import digests_of, first_wrong, remember, require_sizes
from tallbayes.rows.segments.record import FilePart, RowSegment
from tallbayes.rows.segments.redo import HEADER, broken, finish_withdrawal, require_same_rows, write_header
from tallbayes.rows.table import CHUNK_ROWS, TILE_ROWS, Table, capacity_for

# The second is of tables that have grown or shrunk: what reads the first alone would take them for broken.
FORMAT, GROWN_FORMAT = "tallbayes table 1", "tallbayes table 2"
MOST_ROWS = 2**31 - 2**18


@dataclass(frozen=True)
class Field:
    """One array of a table: its name, type, and shape of one row."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()

    @property
    def row_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize

    @property
    def file(self) -> str:
        return f"{self.name}.bin"


# Beside the fields and not one of them: no name of a field begins so.
ROW = Field("@row", "int32")
# Said of the source of rows that were written as they came.
IN_ORDER = "in order"
# Of rows that were made of others: the stamp of what they were made of last.
MADE_OF = "made of"


@dataclass(frozen=True)
class Column:
    """A column of the files a table was made of: the place of its numbers in a row, and what they stand for.

    `kind` is "number", "whole", "bool" or "text"; of text the codes are places among the `levels`, which are sorted but
    for those that came later. Those of
    dates ("time"), times of day ("clock") and durations lie among "times", in seconds, and the levels of dates are the
    weekdays they fall on. What is missing (`missing` counts it) is NaN among "numbers", and -1 for text and bools,
    which lie among "codes". Whole numbers lie among "codes" unless some are missing or beyond 32 bits: then they too
    are "numbers".
    """

    name: str
    field: str
    place: int
    kind: str
    levels: tuple[str, ...] = ()
    missing: int = 0
    least: float = 0.0
    largest: float = 0.0

    @property
    def known(self) -> tuple[int, int, float, float]:
        """What more rows change: the number of levels, which only become more, and the last three."""
        return len(self.levels), self.missing, self.least, self.largest

    def as_of(self, levels: int, missing: int, least: float, largest: float) -> Column:
        return replace(self, levels=self.levels[:levels], missing=missing, least=least, largest=largest)


@dataclass(frozen=True)
class Stored:
    """A table on disk; `digest` tells it from any other. What it holds is read when it is asked for.

    `numbered` says whether the numbers that its rows had in their source are kept; tables of older versions have none.
    There is room for `least` rows at the least. `segments` are the rows that came together; after so many `withdrawals`
    others stand in the places of those that are gone.
    """

    path: Path
    num_rows: int
    shuffled: bool
    fields: tuple[Field, ...]
    digests: Mapping[str, tuple[str, ...]]
    columns: tuple[Column, ...] = ()
    source: Mapping[str, Any] | None = None
    numbered: bool = False
    least: int = TILE_ROWS
    segments: tuple[RowSegment, ...] = ()
    withdrawals: int = 0

    def __len__(self) -> int:
        return self.num_rows

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.displays import shown

        return shown(self)

    @property
    def capacity(self) -> int:
        return capacity_for(self.num_rows, self.least)

    @property
    def num_bytes(self) -> int:
        """Of its files, without the room to grow, which takes none."""
        held = min(self.capacity, capacity_for(self.num_rows, min(self.least, CHUNK_ROWS)))
        return sum(held * field.row_bytes for field in self.all_fields)

    @property
    def all_fields(self) -> tuple[Field, ...]:
        """The fields, and the numbers of the rows where they are kept."""
        return (*self.fields, ROW) if self.numbered else self.fields

    @cached_property
    def digest(self) -> str:
        """Of the contents alone: not of where they lie, nor of where they came from."""
        return hashlib.sha256(json.dumps(_contents(self), sort_keys=True).encode()).hexdigest()

    def arrays(self) -> dict[str, np.memmap]:
        """The fields as mapped files of `capacity` rows, the padding included."""
        return {field.name: self._map(field) for field in self.fields}

    def rows(self) -> dict[str, np.ndarray]:
        """The fields without the padding."""
        return {name: array[: self.num_rows] for name, array in self.arrays().items()}

    @property
    def knows_rows(self) -> bool:
        """Whether it is known of every row which one of its source it was: kept, or in the same order."""
        return self.numbered or bool((self.source or {}).get(IN_ORDER))

    def row_numbers(self) -> np.ndarray | None:
        """By place in the table, which row of its source stands there, counted from 0; None where that is not known."""
        if self.numbered:
            return self._map(ROW)[: self.num_rows]
        return np.arange(self.num_rows, dtype=np.int32) if self.knows_rows else None

    def source_order(self) -> np.ndarray | None:
        """By number in the source, the place of a row in the table: 4 bytes a row; None where that is not known."""
        numbers = self.row_numbers()
        if numbers is None or not self.numbered:
            return numbers
        if self.withdrawals:
            # Numbers have gaps.
            return np.argsort(numbers).astype(np.int32)
        places = np.empty(self.num_rows, np.int32)
        places[numbers] = np.arange(self.num_rows, dtype=np.int32)
        return places

    @property
    def parts(self) -> tuple[FilePart, ...]:
        """The files that its rows came from, in the order of their numbers."""
        return tuple(part for segment in self.segments for part in segment.parts)

    def as_of(self, count: int) -> Stored:
        """The table as it was when it had so many segments, digest and all unless their records have been merged;
        refused once rows have been withdrawn."""
        if not 0 < count <= len(self.segments) or self.withdrawals:
            got = f"{self.withdrawals} withdrawals" if self.withdrawals else f"{count} segments"
            hint = "as_of of a table that has only grown"
            raise TableError(explain(f"1 to {len(self.segments)} segments, none of whose rows are gone", got, hint))
        return self.upto(self.segments[count - 1].stop)

    def upto(self, num_rows: int) -> Stored:
        """The first rows of the table, as many as it had when some segment had come; refused where the records of that
        have been merged with later ones."""
        count = sum(segment.stop <= num_rows for segment in self.segments)
        kept = self.segments[:count]
        if not kept or kept[-1].stop != num_rows:
            stops = ", ".join(f"{segment.stop:,}" for segment in self.segments[-8:])
            got, hint = f"{num_rows:,}", "the whole table"
            raise TableError(explain(f"as many rows as there were after a segment, ... {stops}", got, hint))
        if count == len(self.segments):
            return self
        last, parts = kept[-1], sum(len(list(segment.pieces())) for segment in kept)
        return replace(
            self,
            num_rows=last.stop,
            shuffled=len(kept) == 1 and last.shuffled,
            digests={name: digests[:parts] for name, digests in self.digests.items()},
            columns=tuple(column.as_of(*known) for column, known in zip(self.columns, last.columns, strict=True)),
            least=last.room,
            segments=kept,
        )

    def without(self, places: Any) -> Stored:
        """The table without the rows at these places; crash-safe. See `segments.withdrawal`."""
        from tallbayes.rows.segments.withdrawal import withdraw

        return withdraw(self, places)

    def places_from(self, path: str | os.PathLike[str]) -> np.ndarray:
        """Where the rows stand that came from this file."""
        from tallbayes.rows.segments.withdrawal import places_from

        return places_from(self, os.path.abspath(path))

    def require_same_rows(self) -> None:
        """Refuse a table of which rows have been withdrawn since it was opened: others stand in their places."""
        require_same_rows(self.path, self.withdrawals)

    def _map(self, field: Field) -> np.memmap:
        self.require_same_rows()
        try:
            return np.memmap(self.path / field.file, field.dtype, "r", shape=(self.capacity, *field.shape))
        except (OSError, ValueError) as error:
            raise broken(self.path / field.file, f"{type(error).__name__}: {error}") from error


def open_table(path: str | Path, verify: bool = True) -> Stored:
    """A table that `tallbayes ingest` or `tb.write_table` made; `tb.estimate` and `tb.fit` take it as their data.

    A header that is torn, a file that is missing, cut or changed is a TableError that names it. With `verify=False`
    only sizes are looked at.

    >>> table = tb.write_table(folder / "some.table", {"x": np.ones((10, 2)), "y": np.arange(10.0)})
    >>> open_table(folder / "some.table").num_rows
    10
    """
    path = Path(path).absolute()
    header = path / HEADER
    finish_withdrawal(path)
    if not header.is_file():
        unfinished = path.with_name(f"{path.name}.partial").is_dir()
        hint = "the ingest command again, which goes on from where it was" if unfinished else "tallbayes ingest"
        got = f"nothing at {str(path)!r}" if not path.exists() else f"{str(path)!r} without {HEADER}"
        raise TableError(explain("a table on disk", f"{got}, unfinished" if unfinished else got, hint))
    try:
        document = json.loads(header.read_text())
        if document.get("format") not in (FORMAT, GROWN_FORMAT):
            hint = "ingest the files again with this version"
            raise TableError(explain(f"{FORMAT!r} in {str(header)!r}", repr(document.get("format")), hint))
        stored = read_header(path, document)
        whole = stored.digest == document["digest"]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise broken(header, f"{type(error).__name__}: {error}") from error
    if not whole:
        raise broken(header, "entries that do not fit its own digest")
    require_sizes(stored)
    if verify:
        _verify(stored)
    return stored


def map_table(stored: Stored, names: Any = None, units: Any = None) -> Table:
    """The rows on the device without a copy: on a CPU the mapped files themselves.

    They are a dict by field, or a pytree like `names`, whose leaves are names of fields, or arrays that no file holds.
    """
    with jax.enable_x64(True):
        fields = {name: jax.device_put(array, may_alias=True) for name, array in stored.arrays().items()}

        def placed(leaf: Any) -> Any:
            return fields[leaf] if isinstance(leaf, str) else jax.device_put(leaf)

        rows = fields if names is None else jax.tree.map(placed, names)
        units = jax.tree.map(lambda array: jax.device_put(np.asarray(array, np.float64)), units)
    return Table(rows, stored.num_rows, stored.shuffled, units, stored, names)


def spill(table: Table, folder: Path) -> Table:
    """The same table with a copy of its rows on disk, for those who cannot see this memory."""
    partial = folder / "rows.partial"
    partial.mkdir(parents=True)
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(table.rows)]
    fields = tuple(Field(f"leaf{k}", leaf.dtype.name, leaf.shape[1:]) for k, leaf in enumerate(leaves))
    for field, leaf in zip(fields, leaves, strict=True):
        leaf.tofile(partial / field.file)
    names = jax.tree.unflatten(jax.tree.structure(table.rows), [field.name for field in fields])
    made = Stored(partial, table.num_rows, table.shuffled, fields, {}, least=min(table.capacity, TILE_ROWS))
    stored = seal(made, folder / "rows")
    return replace(table, stored=stored, names=names)


def seal(made: Stored, final: Path) -> Stored:
    """Make a table of a folder whose files hold the rows and no digests yet: pad, digest, write the header, and rename.

    Until the last step there is no table at `final`, or an older one; after it there is a whole one.
    """
    folder, num_rows = made.path, made.num_rows
    if not 0 < num_rows <= MOST_ROWS:
        hint = "several tables: row numbers are 32 bits wide" if num_rows else "check how the files were written"
        raise TableError(explain(f"1 to {MOST_ROWS:,} rows", f"{num_rows:,}", hint))
    for field in made.all_fields:
        _pad(folder / field.file, field, num_rows, made.capacity)
    stored = put_on_record(replace(made, segments=(_only_segment(made),)), {})
    remember(stored)
    take_place(folder, final, final.with_name(f"{final.name}.older"), replaces=(final / HEADER).is_file())
    return replace(stored, path=final.absolute())


def put_on_record(made: Stored, digests: Mapping[str, tuple[str, ...]]) -> Stored:
    """Write the header of a table whose files are whole, with these digests or those of all its rows."""
    digests = digests or {field.name: digests_of(made, field) for field in made.all_fields}
    stored = replace(made, digests=digests)
    write_header(stored.path, header_of(stored))
    return stored


def header_of(stored: Stored) -> str:
    document: dict[str, Any] = {"format": FORMAT}
    if not _is_as_sealed(stored):
        grown = {"withdrawals": stored.withdrawals, "segments": [each.to_plain() for each in stored.segments]}
        document = {"format": GROWN_FORMAT, **grown}
    document |= {name: value for name, value in _contents(stored).items() if name not in document}
    return json.dumps({**document, "source": stored.source, "digest": stored.digest}, indent=1)


def _only_segment(stored: Stored) -> RowSegment:
    """The record of a table that has neither grown nor shrunk."""
    parts, num_rows = FilePart.all_of(stored.source, stored.num_rows), stored.num_rows
    known = tuple(column.known for column in stored.columns)
    return RowSegment(0, num_rows, stored.capacity, 0, stored.least, stored.shuffled, parts=parts, columns=known)


def _is_as_sealed(stored: Stored) -> bool:
    return len(stored.segments) == 1 and not stored.withdrawals


def _contents(stored: Stored) -> dict[str, Any]:
    # Tables without numbers have the digest that they had before there were any.
    more: dict[str, Any] = {"numbered": True} if stored.numbered else {}
    more |= {"least": stored.least} if stored.least != TILE_ROWS else {}
    if not _is_as_sealed(stored):
        more["withdrawals"] = stored.withdrawals
        more["segments"] = [[each.start, each.stop, each.padded, each.first] for each in stored.segments]
    return more | {
        "num_rows": stored.num_rows,
        "shuffled": stored.shuffled,
        "fields": [[field.name, field.dtype, list(field.shape)] for field in stored.fields],
        "columns": [list(asdict(column).values()) for column in stored.columns],
        "digests": {name: list(parts) for name, parts in stored.digests.items()},
    }


def read_header(path: Path, document: dict[str, Any]) -> Stored:
    """A table as it was when it had this header; its rows may have gone since."""
    stored = Stored(
        path=path,
        num_rows=int(document["num_rows"]),
        shuffled=bool(document["shuffled"]),
        fields=tuple(Field(name, dtype, tuple(shape)) for name, dtype, shape in document["fields"]),
        digests={name: tuple(parts) for name, parts in document["digests"].items()},
        columns=tuple(
            Column(name, field, place, kind, tuple(levels), *rest)
            for name, field, place, kind, levels, *rest in document["columns"]
        ),
        source=document["source"],
        numbered=bool(document.get("numbered", False)),
        least=int(document.get("least", TILE_ROWS)),
        segments=tuple(RowSegment.from_plain(each) for each in document.get("segments", ())),
        withdrawals=int(document.get("withdrawals", 0)),
    )
    return stored if stored.segments else replace(stored, segments=(_only_segment(stored),))


def _pad(file: Path, field: Field, num_rows: int, capacity: int) -> None:
    """Cut or fill up the file to `capacity` rows, the spare ones copies of the first."""
    with open(file, "r+b") as opened:
        if os.fstat(opened.fileno()).st_size < num_rows * field.row_bytes:
            raise broken(file, f"fewer than {num_rows:,} rows")
        first = opened.read(field.row_bytes)
        opened.truncate(num_rows * field.row_bytes)
        opened.seek(0, os.SEEK_END)
        opened.write(first * (capacity - num_rows))
        opened.flush()
        os.fsync(opened.fileno())


def _verify(stored: Stored) -> None:
    wrong = first_wrong(stored)
    if wrong is not None:
        field, start, stop = wrong
        got = f"other bytes than were written in rows {start:,} to {stop - 1:,}"
        came = [segment for segment in stored.segments if segment.start <= start < segment.stop and segment.when]
        raise broken(stored.path / field.file, f"{got}, which came on {came[0].when}" if came else got)
