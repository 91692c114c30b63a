"""Rows in uniformly random order, in bounded memory, however many there are.

    deal     row i goes to bucket b_i, uniform and independent: a function of the seed and of i alone
    shuffle  bucket after bucket is read back and permuted; one that is too large is dealt once more

Independent buckets, each in random order, one after the other: every order of all rows is equally likely. A bucket is
a file of packed rows; rows are told apart by nothing but their number of bytes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tallbayes.rows.atomic import sync_file
from tallbayes.rows.table import SHUFFLE_SEED

# What is held at a time: a buffer and its sorted copy while dealing, a bucket and its order afterwards.
BUFFER_BYTES = 2**25
BUCKET_BYTES = 2**25
LARGEST_BUCKET_BYTES = 2**26
BLOCK_BYTES = 2**20
WRITE_BYTES = 2**17
MOST_BUCKETS = 2048


def buckets_for(num_bytes: float) -> int:
    """How many buckets rows of so many bytes want; a guess is enough."""
    return int(np.clip(-(-num_bytes // BUCKET_BYTES), 1, MOST_BUCKETS))


class Deal:
    """Rows on their way to the buckets of a folder: `counts` are in the files, the others wait in a buffer.

    A deal that was interrupted goes on from the counts that it had when it was last flushed.
    """

    def __init__(
        self,
        folder: Path,
        row_bytes: int,
        num_buckets: int,
        counts: Sequence[int] | None = None,
        above: tuple[int, ...] = (),
    ) -> None:
        self.folder, self.row_bytes, self.num_buckets, self.above = folder, row_bytes, num_buckets, above
        self.counts = np.zeros(num_buckets, np.int64) if counts is None else np.array(counts, np.int64)
        self._dealt = int(self.counts.sum())
        # Few buckets make do with a buffer that fits into the cache.
        size = int(np.clip(num_buckets * WRITE_BYTES, BLOCK_BYTES, BUFFER_BYTES))
        self._buffer = np.empty(max(size // row_bytes, 1), f"V{row_bytes}")
        self._waiting = 0
        self._unsynced: set[int] = set()

    @property
    def num_rows(self) -> int:
        return self._dealt + self._waiting

    def file(self, bucket: int) -> Path:
        return self.folder / f"{bucket}.bucket"

    def add(self, rows: np.ndarray) -> None:
        """Packed rows: an array whose first axis counts them, of `row_bytes` bytes a row."""
        packed = np.ascontiguousarray(rows).reshape(-1).view(self._buffer.dtype)
        while len(packed):
            part = packed[: len(self._buffer) - self._waiting]
            packed = packed[len(part) :]
            if len(part) == len(self._buffer):
                self._append(part)
                continue
            self._buffer[self._waiting : self._waiting + len(part)] = part
            self._waiting += len(part)
            if self._waiting == len(self._buffer):
                self.flush()

    def flush(self) -> None:
        """Deal what waits."""
        if self._waiting:
            self._append(self._buffer[: self._waiting])
            self._waiting = 0

    def _append(self, rows: np.ndarray) -> None:
        """Append rows to the files of their buckets."""
        buckets = _buckets(self.above, self._dealt, len(rows), self.num_buckets)
        counts = np.bincount(buckets, minlength=self.num_buckets)
        sorted_rows = np.take(rows, np.argsort(buckets, kind="stable"))
        ends = np.cumsum(counts)
        for bucket in np.flatnonzero(counts).tolist():
            with open(self.file(bucket), "ab", buffering=0) as file:
                write_whole(file.fileno(), sorted_rows[ends[bucket] - counts[bucket] : ends[bucket]])
            self._unsynced.add(bucket)
        self.counts += counts
        self._dealt += len(rows)

    def sync(self) -> None:
        """Have the disk hold what the files do."""
        for bucket in sorted(self._unsynced):
            sync_file(self.file(bucket))
        self._unsynced.clear()

    def fits(self, first: int = 0) -> bool:
        """Whether all files from a bucket on hold their counts; what they hold beyond is cut off."""
        for bucket in range(first, self.num_buckets):
            file, size = self.file(bucket), int(self.counts[bucket]) * self.row_bytes
            found = file.stat().st_size if file.exists() else 0
            if found < size:
                return False
            if found > size:
                os.truncate(file, size)
        return True

    def release(self) -> None:
        """Let go of the buffer: no rows are added any more."""
        self._buffer = self._buffer[:0].copy()

    def shuffled(self, bucket: int) -> Iterator[np.ndarray]:
        """The rows of a bucket in random order, as blocks of packed rows that fit into the cache."""
        if int(self.counts[bucket]) * self.row_bytes > LARGEST_BUCKET_BYTES:
            yield from self._shuffled_in_parts(bucket)
            return
        if not self.counts[bucket]:
            return
        rows = np.fromfile(self.file(bucket), self._buffer.dtype)
        order = np.arange(len(rows), dtype=np.int32)
        np.random.Generator(_bits(1, (*self.above, bucket))).shuffle(order)
        size = max(BLOCK_BYTES // self.row_bytes, 1)
        for start in range(0, len(order), size):
            yield np.take(rows, order[start : start + size])

    def _shuffled_in_parts(self, bucket: int) -> Iterator[np.ndarray]:
        folder = self.folder / f"{bucket}.parts"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        # Two at least, so that parts are smaller than what they are parts of.
        wanted = max(buckets_for(int(self.counts[bucket]) * self.row_bytes), 2)
        parts = Deal(folder, self.row_bytes, wanted, above=(*self.above, bucket))
        with open(self.file(bucket), "rb") as file:
            while len(rows := np.fromfile(file, self._buffer.dtype, max(BLOCK_BYTES // self.row_bytes, 1))):
                parts.add(rows)
        parts.flush()
        parts.release()
        for part in range(wanted):
            yield from parts.shuffled(part)
        shutil.rmtree(folder)


def _bits(purpose: int, place: tuple[int, ...]) -> np.random.Philox:
    # A seed sequence does not tell a trailing zero from nothing, hence the length.
    return np.random.Philox(np.random.SeedSequence([SHUFFLE_SEED, purpose, len(place), *place]))


def _buckets(above: tuple[int, ...], start: int, count: int, num_buckets: int) -> np.ndarray:
    """The buckets of rows start, start + 1, ...: word i of the stream, scaled by its upper half."""
    bits = _bits(0, above)
    bits.advance(start // 4)
    words = bits.random_raw(start % 4 + count)[start % 4 :]
    return ((words >> np.uint64(32)) * np.uint64(num_buckets) >> np.uint64(32)).astype(np.uint16)


def write_whole(descriptor: int, rows: np.ndarray) -> None:
    """All the bytes of an array: a full disk may take some before it refuses."""
    left = np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data
    while left:
        left = left[os.write(descriptor, left) :]
