"""Gathering: rows on disk put together by their group, in memory that does not grow with the rows.

    count    which groups there are, and how many rows each has        a pass over the column of the groups
    deal     every row, checked, to the bucket of its group            one pass
    write    bucket after bucket, the rows of each group side by side, as `bundling` plans it

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

from tallbayes.groups.bundling import Bundling, plan_units
from tallbayes.groups.units import (
    Grouping,
    Information,
    Units,
    group_values,
    make_units,
    too_uneven,
)
from tallbayes.model.groups.integral import Groups
from tallbayes.model.space import Space
from tallbayes.rows.on_disk import Field, Stored, seal
from tallbayes.rows.shuffling import buckets_for, write_whole
from tallbayes.rows.table import CHUNK_ROWS, shuffled_order
from tallbayes.watch import begin_pass, count_rows

# Among the fields of a row that is dealt: the number of its group.
GROUP = "@group"
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

    @property
    def codes(self) -> np.ndarray:
        """Of every row the number of its group: a pass over the column."""
        return np.concatenate([self._codes(part).astype(np.int32) for part in self._parts()])

    def beside(self, units: Units) -> RowsOnDisk:
        """They take no memory."""
        return self

    def chunks(self) -> Iterator[tuple[np.ndarray, dict[str, Any]]]:
        """Codes and checked rows, a part at a time: one pass."""
        begin_pass(self.num_rows)
        for part in self._parts():
            codes = self._codes(part)
            yield codes, self._checked(part)
            count_rows(len(codes))

    def _codes(self, part: slice) -> np.ndarray:
        levels, values = self.grouping.levels, group_values(self.by, self.column[part])
        are_numbers = levels.dtype.kind in "iu" and levels[0] == 0 and levels[-1] == len(levels) - 1
        return values if are_numbers else np.searchsorted(levels, values)

    def units(self, groups: Groups, space: Space) -> tuple[Units, UnitsOnDisk]:
        """Without nodes yet, in random order, and where their rows lie."""
        grouping, scratch = self.grouping, Scratch(_folder_of(self.arrays))
        information = Information(groups, self._sample(), grouping.count)
        plan = plan_units(grouping.counts, shuffled_order(grouping.count))
        stored = _Dealing(scratch.path, plan, self.num_rows).write(self.chunks(), information)
        rows = {name: array[: plan.units] for name, array in stored.arrays().items()}
        known = {"rows": rows, **{name: plan.at_places(each) for name, each in information.found.items()}}
        return make_units(known, plan, groups, space.dimension), UnitsOnDisk(stored, scratch)

    def _parts(self) -> Iterator[slice]:
        return (slice(start, start + CHUNK_ROWS) for start in range(0, self.num_rows, CHUNK_ROWS))

    def _sample(self) -> dict[str, Any]:
        some = np.unique(np.linspace(0, self.num_rows - 1, min(self.num_rows, SAMPLE_ROWS)).astype(int))
        return self._checked(some)

    def _checked(self, part: Any) -> dict[str, Any]:
        return self.check({name: np.asarray(array[part]) for name, array in self.arrays.items()})


@dataclass(frozen=True, eq=False)
class _Dealing:
    """Rows on their way to the units of a plan."""

    folder: Path
    plan: Bundling
    num_rows: int

    def write(self, chunks: Iterator[tuple[np.ndarray, dict[str, Any]]], information: Information) -> Stored:
        """The table of units."""
        first = next(chunks)
        fields = [(name, array.dtype, array.shape[1:]) for name, array in first[1].items()]
        record, total, length = np.dtype([(GROUP, np.int32), *fields]), self.plan.units, self.plan.length
        row_bytes = record.itemsize - np.dtype(np.int32).itemsize
        self._require_room(row_bytes)
        buckets = buckets_for(total * length * row_bytes)
        each = -(-total // buckets)
        for codes, rows in chain([first], chunks):
            information.add(codes, rows)
            self._deal(record, codes, rows, each)
        partial = self.folder / "units.partial"
        partial.mkdir()
        made = tuple(Field(name, str(dtype), (length, *shape)) for name, dtype, shape in fields)
        with ExitStack() as stack:
            files = {field.name: stack.enter_context(open(partial / field.file, "wb", 0)) for field in made}
            for start in range(0, total, each):
                self._write(record, start, min(start + each, total), files)
        return seal(Stored(partial, total, True, made, {}, least=1), self.folder / "units")

    def _bucket(self, start: int) -> Path:
        return self.folder / f"{start}.bucket"

    def _deal(self, record: np.dtype, codes: np.ndarray, arrays: dict[str, Any], each: int) -> None:
        """Append rows to the files of their buckets, each of so many units."""
        rows = np.empty(len(codes), record)
        rows[GROUP] = codes
        for name, array in arrays.items():
            rows[name] = array
        bucket = (self.plan.unit[codes] // each).astype(np.uint16)
        rows = rows[np.argsort(bucket, kind="stable")]
        ends = np.cumsum(np.bincount(bucket))
        for number, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if end > begin:
                with open(self._bucket(number * each), "ab", 0) as file:
                    write_whole(file.fileno(), rows[begin:end])

    def _write(self, record: np.dtype, start: int, stop: int, files: dict[str, Any]) -> None:
        """The units of a bucket."""
        rows = np.fromfile(self._bucket(start), record)
        index = self.plan.index(rows[GROUP], start, stop)
        for name, file in files.items():
            write_whole(file.fileno(), np.take(np.ascontiguousarray(rows[name]), index, axis=0))
        self._bucket(start).unlink()

    def _require_room(self, row_bytes: int) -> None:
        padded, free = self.plan.units * self.plan.length, shutil.disk_usage(self.folder).free
        if (padded + self.num_rows) * row_bytes > free:
            expected = f"groups that fill {free / 2**30:.0f} GB at the most when padded, which are free"
            raise too_uneven(expected, self.plan)


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
