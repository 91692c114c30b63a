"""Chunks: sums over a chunk of rows as tasks, which run wherever an executor puts them and may be kept on record.

A chunk is summed in pieces that take a fraction of a second each, and the watch is looked at between them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from tallbayes.anchor.sums import Curvature, averaged_sums, likelihood_sums, shapes_of_sums, sums_to_third
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax
from tallbayes.rows.table import TILE_ROWS, Table
from tallbayes.watch import count_rows
from tallbayes.workers.tasks import Book

Sums = tuple[Floats, ...]

FIRST_PIECE = 16 * TILE_ROWS
PIECE_SECONDS, MOST_GROWTH = 0.2, 16.0
# Larger sums over a chunk of rows are not kept where there are many chunks; of a pass, no more than so many bytes.
MOST_SUMS, MOST_OF_A_PASS = 2**15, 2**24

SUMS = {curvature: partial(likelihood_sums, curvature=curvature) for curvature in Curvature}


@dataclass(frozen=True, eq=False)
class Bound:
    """A target and the rows it is about: what a sum over some of them needs."""

    target: Target
    table: Table


@dataclass(frozen=True)
class RowSums:
    """The task of value, gradient and curvature of the log likelihood of rows start..stop-1."""

    def __call__(self, bound: Bound, theta: Floats, start: int, stop: int, curvature: Curvature) -> Sums:
        shapes = shapes_of_sums(bound.target, curvature)
        return _in_pieces(SUMS[curvature], bound, (theta,), start, stop, shapes)

    def rows_of(self, arguments: tuple[Any, ...]) -> tuple[int, int]:
        _, _, start, stop, _ = arguments
        return start, stop

    def record(
        self, kept_bytes: float, bound: Bound, theta: Floats, start: int, stop: int, curvature: Curvature
    ) -> SumsRecord | None:
        """By the point and the rows, until set-up is on record as a whole; None where there would be too much of it."""
        largest = max(int(np.prod(shape)) for shape in shapes_of_sums(bound.target, curvature)[2:])
        return _record_of(bound, largest, (theta,), f"{start} {stop} {curvature.name}")


@dataclass(frozen=True)
class AverageSums:
    """The task of the same and of their averages over N(theta, W W^T), of rows start..stop-1."""

    def __call__(self, bound: Bound, theta: Floats, whitening: Floats, start: int, stop: int) -> Sums:
        shapes = (*2 * shapes_of_sums(bound.target, Curvature.DENSE), ())
        return _in_pieces(averaged_sums, bound, (theta, whitening), start, stop, shapes)

    def rows_of(self, arguments: tuple[Any, ...]) -> tuple[int, int]:
        _, _, _, start, stop = arguments
        return start, stop

    def record(
        self, kept_bytes: float, bound: Bound, theta: Floats, whitening: Floats, start: int, stop: int
    ) -> SumsRecord | None:
        """By the point, W and the rows."""
        return _record_of(bound, 2 * theta.size**2, (theta, whitening), f"{start} {stop} averages")


@dataclass(frozen=True)
class ThirdSums:
    """The task of value, gradient, Hessian and third derivatives of the log likelihood of rows start..stop-1."""

    def __call__(self, bound: Bound, theta: Floats, start: int, stop: int) -> Sums:
        shapes = *shapes_of_sums(bound.target, Curvature.DENSE), (theta.size,) * 3
        return _in_pieces(sums_to_third, bound, (theta,), start, stop, shapes)

    def rows_of(self, arguments: tuple[Any, ...]) -> tuple[int, int]:
        _, _, start, stop = arguments
        return start, stop

    def record(self, kept_bytes: float, bound: Bound, theta: Floats, start: int, stop: int) -> SumsRecord | None:
        """By the point and the rows."""
        return _record_of(bound, theta.size**3, (theta,), f"{start} {stop} to third")


row_sums, average_sums, sums_to_third_of_rows = RowSums(), AverageSums(), ThirdSums()


def _in_pieces(
    program: Any, bound: Bound, point: tuple[Floats, ...], start: int, stop: int, shapes: tuple[tuple[int, ...], ...]
) -> Sums:
    """A chunk in pieces that take a fraction of a second each."""
    # The setting belongs to a thread, so it is entered inside the task.
    with jax.enable_x64(True):
        at = tuple(jax.device_put(np.asarray(each, np.float64)) for each in point)
        sums: Any = tuple(np.zeros(shape) for shape in shapes)
        first, size = start, FIRST_PIECE
        while first < stop:
            last, begun = min(first + size, stop), time.monotonic()
            ends = np.int32(first), np.int32(last)
            sums = compiled(program)(bound.target, bound.table.rows, *ends, *at, sums)
            sums = tuple(part.block_until_ready() for part in sums)
            count_rows(last - first)
            first, size = last, _next_piece(last - first, time.monotonic() - begun)
        return tuple(np.asarray(part) for part in sums)


def _record_of(bound: Bound, numbers: int, point: tuple[Floats, ...], name: str) -> SumsRecord | None:
    if 8 * numbers > max(MOST_SUMS, MOST_OF_A_PASS // len(bound.table.chunks())):
        return None
    total = sha256()
    for each in point:
        total.update(np.ascontiguousarray(each, np.float64).tobytes())
    return SumsRecord(f"{total.hexdigest()} {name}")


@dataclass(frozen=True)
class SumsRecord:
    """Sums over a chunk of rows, among the entries of a book."""

    name: str

    def find(self, book: Book) -> Sums | None:
        return book.entry(None, "sums", self.name)

    def write(self, book: Book, sums: Sums) -> None:
        book.enter(None, "sums", self.name, sums)


def _next_piece(rows: int, seconds: float) -> int:
    """Rows that should take a fraction of a second, in whole tiles, if so many took so long."""
    growth = min(PIECE_SECONDS / max(seconds, 1e-9), MOST_GROWTH)
    return TILE_ROWS * max(1, int(growth * rows / TILE_ROWS))
