"""Bundling: which groups a unit is of, and where the rows of each of them stand in it.

Groups of about one size are a unit each, padded to the largest. Where that would mostly be padding, units take several
groups each (`model.groups.bundles`): from the largest on they are dealt in rounds, one to every unit that has room, the
next largest to the unit with the fewest rows so far. So units have nearly as many groups, and rows, each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallbayes.model.groups.integral import TOGETHER

# Places in units to one row, beyond which groups are put together; and what strips may add to rows.
PADDED, STRIPPED = 2.0, 1.25
# Padding that nobody would notice.
FEW_PLACES = 2**14
# How full units are to be before another is taken, in shares of the mean.
FULL = 1.03
STRIPS = (16, 8, 4, 2, 1)
FEWEST_UNITS, MOST_UNITS = 2, 2**18
STEP = 16
# Rows that a processor takes at a time.
LANES = 8


@dataclass(frozen=True, eq=False)
class Bundling:
    """Of every group its unit, which of the unit's groups it is, and the place of its first row there; `strip` rows of
    a group stand together, and units have `length` of them and `slots` groups: none, where each is of one group."""

    counts: np.ndarray
    unit: np.ndarray
    slot: np.ndarray
    first: np.ndarray
    units: int
    slots: int
    strip: int
    length: int

    @property
    def is_plain(self) -> bool:
        """Whether every group is a unit of its own."""
        return self.slots == 0

    @property
    def strips(self) -> int:
        return self.length // self.strip

    @cached_property
    def place(self) -> np.ndarray:
        """Of every group, among all places for groups."""
        return self.unit * max(self.slots, 1) + self.slot

    def at_places(self, values: np.ndarray, empty: int = 0) -> np.ndarray:
        """Values by group as units have them: (units, slots, ...), or (units, ...) where units are of one group."""
        found = np.full((self.units * max(self.slots, 1), *values.shape[1:]), empty, values.dtype)
        found[self.place] = values
        return found if self.is_plain else found.reshape(self.units, self.slots, *values.shape[1:])

    def in_strips(self) -> dict[str, np.ndarray]:
        """Of every strip of every unit whose it is, and how many of its rows count: nothing where units are of one
        group."""
        if self.is_plain:
            return {}
        needed = -(-self.counts // self.strip)
        which = np.repeat(np.arange(len(self.counts)), needed)
        at = np.arange(len(which)) - np.repeat(np.cumsum(needed) - needed, needed)
        where = self.unit[which], self.first[which] // self.strip + at
        strip, filled = np.zeros((2, self.units, self.strips), np.int32)
        strip[where] = self.slot[which]
        filled[where] = np.minimum(self.counts[which] - at * self.strip, self.strip)
        return {"strip": strip, "filled": filled}

    def index(self, codes: np.ndarray, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Which of these rows stands at each place of the units from `start` on, (units, length), given the group of
        every row; what pads repeats the first row of its group, or of the unit's first."""
        stop = self.units if stop is None else stop
        order = np.argsort(codes, kind="stable").astype(np.int32 if len(codes) < 2**31 else np.int64)
        groups, firsts, times = np.unique(codes[order], return_index=True, return_counts=True)
        heads = order[firsts]
        unit, first = self.unit[groups] - start, self.first[groups]
        index = np.zeros((stop - start, self.length), order.dtype)
        begins = first == 0
        index[unit[begins]] = heads[begins, None]
        if not self.is_plain:
            needed = -(-times // self.strip)
            whose = np.repeat(np.arange(len(groups)), needed)
            at = np.arange(len(whose)) - np.repeat(np.cumsum(needed) - needed, needed)
            strips = index.reshape(stop - start, self.strips, self.strip)
            strips[unit[whose], first[whose] // self.strip + at] = heads[whose, None]
        which = np.repeat(np.arange(len(groups)), times)
        index[unit[which], first[which] + np.arange(len(order)) - firsts[which]] = order
        return index


def plan_units(
    counts: np.ndarray, order: np.ndarray | None = None, alone: bool = False, finely: bool = False
) -> Bundling:
    """How groups of so many rows are put into units; `order` says which group is at each place where units are of one
    group, which with `alone` they are in any case."""
    total, length = len(counts), padded_length(counts, finely)
    if alone or total * length <= max(FEW_PLACES, PADDED * int(counts.sum())):
        unit = np.arange(total, dtype=np.int32)
        if order is not None:
            unit[order] = np.arange(total, dtype=np.int32)
        nothing = np.zeros(total, np.int32)
        return Bundling(counts, unit, nothing, nothing, total, 0, length, length)
    strip = next(each for each in STRIPS if each == 1 or _stripped(counts, each).sum() <= STRIPPED * counts.sum())
    rows = _stripped(counts, strip)
    most = int(np.clip(rows.sum() // rows.max(), FEWEST_UNITS, min(MOST_UNITS, total)))
    units = 1 << (most.bit_length() - 1)
    unit, slot, first, loads = _deal(rows, units)
    most = int(loads.max())
    parts = -(-most // TOGETHER)
    length = -(-most // (parts * strip)) * parts * strip
    if order is not None:
        unit = np.random.default_rng(0).permutation(units).astype(np.int32)[unit]
    return Bundling(counts, unit, slot, first, units, int(slot.max()) + 1, strip, length)


def _stripped(counts: np.ndarray, strip: int) -> np.ndarray:
    return -(-counts // strip) * strip


def _deal(rows: np.ndarray, units: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Of every group its unit, its number there and where it begins; and the rows of every unit."""
    descending = np.argsort(-rows, kind="stable")
    unit, slot = np.zeros((2, len(rows)), np.int32)
    first, loads, taken = np.zeros(len(rows), np.int64), np.zeros(units, np.int64), np.zeros(units, np.int32)
    enough = max(int(rows.max()), int(np.ceil(FULL * rows.sum() / units)))
    start = 0
    while start < len(rows):
        left = rows[descending[start]]
        order = np.argsort(loads, kind="stable")
        fits = max(int(np.searchsorted(loads[order], enough - left, side="right")), 1)
        some = descending[start : start + fits]
        emptiest = order[: len(some)]
        unit[some], slot[some], first[some] = emptiest, taken[emptiest], loads[emptiest]
        loads[emptiest] += rows[some]
        taken[emptiest] += 1
        start += len(some)
    return unit, slot, first, loads


def padded_length(counts: np.ndarray, finely: bool = False) -> int:
    """Of units of one group: a power of two, or as many equal parts as it takes; for units that take longer by far than
    a program, more finely."""
    most = int(counts.max())
    if finely and STEP < most <= TOGETHER:
        return -(-most // STEP) * STEP
    if most <= TOGETHER:
        return 1 << max(most - 1, 0).bit_length()
    parts = -(-most // TOGETHER)
    return -(-most // (parts * LANES)) * parts * LANES
