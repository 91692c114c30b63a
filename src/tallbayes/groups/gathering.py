"""Gathering: rows on disk put together by their group, in memory that does not grow with the rows.

    count    which groups there are, and how many rows each has        a pass over the column of the groups
    deal     every row, checked, to the bucket of its group            one pass
    write    bucket after bucket, the rows of each group side by side and padded to one length

Groups are put in random order, as the rows of a table are; the rows of one stay in theirs. Units are the rows of a
table on disk, in a folder that is removed with the last who holds it; what is known of a group beside its rows is a few
numbers, in memory.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tallbayes.groups.units import (
    Grouping,
    Information,
    Units,
    group_values,
    make_units,
    padded_length,
    too_uneven,
    unit_index,
)
from tallbayes.model.groups.integral import Groups
from tallbayes.model.space import Space
from tallbayes.rows.on_disk import Field, Stored, seal
from tallbayes.rows.shuffling import buckets_for, write_whole
from tallbayes.rows.table import CHUNK_ROWS, shuffled_order
from tallbayes.watch import begin_pass, count_rows

# Among the fields of a row that is dealt: the place of its unit.
UNIT = "@unit"
SAMPLE_ROWS = 4_096


class Scratch:
    """A folder that is removed with this."""

    def __init__(self, beside: Path | None) -> None:
        try:
            made = tempfile.mkdtemp(prefix=".tallbayes-units-", dir=beside)
        except OSError:
            made = tempfile.mkdtemp(prefix="tallbayes-units-")
        self.path = Path(made)
        weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)


class UnitsOnDisk(NamedTuple):
    """The table of the units' rows, and the folder that it is in."""

    stored: Stored
    folder: Scratch


@dataclass(frozen=True, eq=False)
class RowsOnDisk:
    """Mapped arrays by name, the column of their groups, and the check of some of the rows."""

    arrays: dict[str, np.ndarray]
    column: np.ndarray
    by: str
    check: Callable[[dict[str, Any]], dict[str, Any]]

    @property
    def num_rows(self) -> int:
        return len(self.column)

    @property
    def head(self) -> dict[str, Any]:
        return self._checked(slice(0, 1))

    @cached_property
    def grouping(self) -> Grouping:
        begin_pass(self.num_rows)
        levels, counts = np.empty(0, group_values(self.by, self.column[:1]).dtype), np.empty(0, np.int64)
        for part in self._parts():
            found, times = np.unique(group_values(self.by, self.column[part]), return_counts=True)
            levels, places = np.unique(np.concatenate([levels, found]), return_inverse=True)
            counts = np.bincount(places, np.concatenate([counts, times]), len(levels)).astype(np.int64)
            count_rows(len(self.column[part]))
        return Grouping(self.by, levels, counts)

    def chunks(self) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
        """Codes and checked rows, a part at a time: one pass."""
        levels = self.grouping.levels
        are_numbers = levels.dtype.kind in "iu" and levels[0] == 0 and levels[-1] == len(levels) - 1
        begin_pass(self.num_rows)
        for part in self._parts():
            values = group_values(self.by, self.column[part])
            yield values if are_numbers else np.searchsorted(levels, values), self._checked(part)
            count_rows(len(values))

    def units(self, groups: Groups, space: Space) -> tuple[Units, UnitsOnDisk]:
        """Without nodes yet, in random order, and where their rows lie."""
        grouping, scratch = self.grouping, Scratch(_folder_of(self.arrays))
        information = Information(groups, self._sample(), grouping.count)
        order = shuffled_order(grouping.count)
        stored = _Dealing(scratch.path, grouping, order, self.num_rows).write(self.chunks(), information)
        rows = {name: array[: len(order)] for name, array in stored.arrays().items()}
        known = {"rows": rows, **{name: each[order] for name, each in information.found.items()}}
        return make_units(known, grouping.counts, order, groups, space.dimension), UnitsOnDisk(stored, scratch)

    def _parts(self) -> Iterator[slice]:
        return (slice(start, start + CHUNK_ROWS) for start in range(0, self.num_rows, CHUNK_ROWS))

    def _sample(self) -> dict[str, Any]:
        some = np.unique(np.linspace(0, self.num_rows - 1, min(self.num_rows, SAMPLE_ROWS)).astype(int))
        return self._checked(some)

    def _checked(self, part: Any) -> dict[str, Any]:
        return self.check({name: np.asarray(array[part]) for name, array in self.arrays.items()})


class _Dealing:
    """Rows on their way to units: `order` says which group is at each place."""

    def __init__(self, folder: Path, grouping: Grouping, order: np.ndarray, num_rows: int) -> None:
        self.folder, self.num_rows = folder, num_rows
        self.counts, self.length = grouping.counts[order], padded_length(grouping.counts)
        self.place = np.empty(len(order), np.int32)
        self.place[order] = np.arange(len(order), dtype=np.int32)

    def write(self, chunks: Iterator[tuple[np.ndarray, dict[str, Any]]], information: Information) -> Stored:
        """The table of units."""
        first = next(chunks)
        fields = [(name, array.dtype, array.shape[1:]) for name, array in first[1].items()]
        record, total = np.dtype([(UNIT, np.int32), *fields]), len(self.counts)
        row_bytes = record.itemsize - np.dtype(np.int32).itemsize
        self._require_room(row_bytes)
        buckets = buckets_for(total * self.length * row_bytes)
        each = -(-total // buckets)
        for codes, rows in chain([first], chunks):
            information.add(codes, rows)
            self._deal(record, self.place[codes], rows, each)
        partial = self.folder / "units.partial"
        partial.mkdir()
        made = tuple(Field(name, str(dtype), (self.length, *shape)) for name, dtype, shape in fields)
        with ExitStack() as stack:
            files = {field.name: stack.enter_context(open(partial / field.file, "wb", 0)) for field in made}
            for start in range(0, total, each):
                self._write(record, start, self.counts[start : start + each], files)
        return seal(Stored(partial, total, True, made, {}), self.folder / "units")

    def _bucket(self, start: int) -> Path:
        return self.folder / f"{start}.bucket"

    def _deal(self, record: np.dtype, places: np.ndarray, arrays: dict[str, Any], each: int) -> None:
        """Append rows to the files of their buckets, each of so many units."""
        rows = np.empty(len(places), record)
        rows[UNIT] = places
        for name, array in arrays.items():
            rows[name] = array
        bucket = (places // each).astype(np.uint16)
        rows = rows[np.argsort(bucket, kind="stable")]
        ends = np.cumsum(np.bincount(bucket))
        for number, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if end > begin:
                with open(self._bucket(number * each), "ab", 0) as file:
                    write_whole(file.fileno(), rows[begin:end])

    def _write(self, record: np.dtype, start: int, counts: np.ndarray, files: dict[str, Any]) -> None:
        """The units of a bucket."""
        rows = np.fromfile(self._bucket(start), record)
        index = unit_index(rows[UNIT] - start, counts, self.length)
        for name, file in files.items():
            write_whole(file.fileno(), np.take(np.ascontiguousarray(rows[name]), index, axis=0))
        self._bucket(start).unlink()

    def _require_room(self, row_bytes: int) -> None:
        padded, free = len(self.counts) * self.length, shutil.disk_usage(self.folder).free
        if (padded + self.num_rows) * row_bytes > free:
            expected = f"groups that fill {free / 2**30:.0f} GB at the most when padded, which are free"
            raise too_uneven(expected, len(self.counts), self.length, self.num_rows)


def are_mapped(arrays: Any) -> bool:
    """Whether these are arrays by name of which some are files."""
    flat = isinstance(arrays, dict) and all(isinstance(array, np.ndarray) for array in arrays.values())
    return flat and any(isinstance(array, np.memmap) for array in arrays.values())


def _folder_of(arrays: dict[str, np.ndarray]) -> Path | None:
    """Beside the table that the files are of."""
    for array in arrays.values():
        file = getattr(array, "filename", None)
        if file is not None:
            return Path(file).parent.parent
    return None
