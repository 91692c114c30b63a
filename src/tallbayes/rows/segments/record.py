"""A segment: rows of a table on disk that came together, and stand in random order among themselves.

    places   start .. stop - 1             segments lie one after the other: the files of a table are written behind
    numbers  first .. first + arrived - 1   of the rows in all their sources, which no other row ever has
    left     arrived, less those withdrawn since

Rows are not moved when segments become many: only their records are merged, two neighbours to one, the smallest pair
first, so that their sizes stay geometric and a row's digest is made anew log(segments) times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from tallbayes.rows.table import CHUNK_ROWS, capacity_for

MOST_SEGMENTS = 64
# A table that is longer than a chunk has so much more room than it needs when it grows: programs are of one shape.
GROWTH = 1.25

Stamp = tuple[str, int, int]


@dataclass(frozen=True)
class FilePart:
    """The rows of one file, or of arrays, which have no path: how many came, and how many have not been withdrawn."""

    path: str
    size: int
    modified: int
    rows: int
    left: int

    @property
    def stamp(self) -> Stamp:
        return self.path, self.size, self.modified

    @classmethod
    def all_of(cls, source: Mapping[str, Any] | None, num_rows: int) -> tuple[FilePart, ...]:
        """Those that a source tells of, or so many rows of arrays."""
        known = source or {}
        files = zip(known.get("files", ()), known.get("rows", ()), strict=False)
        found = tuple(cls(path, size, modified, rows, rows) for (path, size, modified), rows in files)
        return found or (cls("", 0, 0, num_rows, num_rows),)


@dataclass(frozen=True)
class RowSegment:
    """Rows that came together.

    The last of its digests is of `padded` - `stop` copies of the table's first row too. `room` is the capacity that the
    table had with it, and `columns` what was known of each by then: levels, missing, least and largest. Where a table
    keeps no numbers, rows that moved into the place of withdrawn ones count where they stand.
    """

    start: int
    stop: int
    padded: int
    first: int
    room: int
    shuffled: bool = True
    when: str = ""
    parts: tuple[FilePart, ...] = ()
    columns: tuple[tuple[int, int, float, float], ...] = ()

    @property
    def arrived(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def left(self) -> int:
        return sum(part.left for part in self.parts)

    def pieces(self) -> Iterator[tuple[int, int, int]]:
        """Stretches of rows that have a digest each: start, stop, and up to where the first row is digested again."""
        for start in range(self.start, self.stop, CHUNK_ROWS):
            stop = min(start + CHUNK_ROWS, self.stop)
            yield start, stop, stop if stop < self.stop else max(self.padded, stop)

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> RowSegment:
        parts = tuple(FilePart(**part) for part in plain["parts"])
        return cls(**{**plain, "parts": parts, "columns": tuple(tuple(each) for each in plain["columns"])})


def pieces(segments: tuple[RowSegment, ...]) -> list[tuple[int, int, int]]:
    return [piece for segment in segments for piece in segment.pieces()]


def next_number(segments: tuple[RowSegment, ...]) -> int:
    """That of the next row to come."""
    return max(segment.first + segment.arrived for segment in segments)


def room_for(num_rows: int, capacity: int) -> int:
    """The capacity of a table that grows to so many rows."""
    if num_rows <= capacity:
        return capacity
    return capacity_for(num_rows if num_rows <= CHUNK_ROWS else int(GROWTH * num_rows))


def pair_to_merge(segments: tuple[RowSegment, ...]) -> int | None:
    """The place of the first of the two neighbours that are smallest together; None where segments are few."""
    if len(segments) <= MOST_SEGMENTS:
        return None
    sizes = [second.stop - first.start for first, second in pairwise(segments)]
    return int(np.argmin(sizes))


def merged_pair(first: RowSegment, second: RowSegment) -> RowSegment:
    """Two neighbours as one, known as the later one was."""
    return replace(second, start=first.start, first=first.first, parts=(*first.parts, *second.parts), shuffled=False)


def after_withdrawal(segments: tuple[RowSegment, ...], num_rows: int, gone: np.ndarray) -> tuple[RowSegment, ...]:
    """Records of a table that has so many rows left, given the sorted numbers of those that are gone."""
    found = []
    for segment in segments:
        first, parts = segment.first, []
        for part in segment.parts:
            lost = int(np.searchsorted(gone, first + part.rows) - np.searchsorted(gone, first))
            parts.append(replace(part, left=max(part.left - lost, 0)))
            first += part.rows
        start, stop = min(segment.start, num_rows), min(segment.stop, num_rows)
        found.append(replace(segment, start=start, stop=stop, padded=stop, parts=tuple(parts)))
    return tuple(found)
