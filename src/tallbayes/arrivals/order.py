"""The order: rows in a random order that hangs on what they say, not on when they came.

Batches are runs of a shuffled list. To shuffle it anew whenever rows arrive would cost what all rows cost, and to put
the new ones at its end would let a run see one day alone. So every row has keys,

    key(row, k) = h(row) + k phi  modulo 2^64,   h a hash of its numbers, phi odd, 2^64 over the golden ratio

and the list is sorted by them. A row stands c times in the list (see `anchor.importance`); equal rows take the keys k =
0, 1, 2, ... one after the other, which phi spreads as evenly as can be. Keys are as good as drawn at random, whatever
came first: the list is a function of the set of rows, and a row that is taken out and comes back finds its place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tallbayes.arrivals.memory import roomy
from tallbayes.errors import DataError, explain
from tallbayes.moments import Floats
from tallbayes.rows.listing import Listing
from tallbayes.rows.segments.alike import PHI
from tallbayes.rows.table import aligned

Whole = np.ndarray


@dataclass(frozen=True, eq=False)
class Order:
    """The list, sorted by key: which row stands at each place, and how much a place counts, one over its copies.

    `listed` is the same as paths read it, where rows and weights were written with room to grow.
    """

    keys: Whole
    rows: Whole
    weights: Floats
    listed: Listing | None = field(default=None, repr=False, metadata={"kept": False})

    @classmethod
    def empty(cls) -> Order:
        return cls(np.empty(0, np.uint64), np.empty(0, np.int32), np.empty(0, np.float32))

    def __len__(self) -> int:
        return len(self.keys)

    def with_rows(self, hashes: Whole, rows: Whole, copies: Whole) -> Order:
        """With more rows, each so many times."""
        if not len(rows):
            return self
        hashes, rows, copies = _by_hash(hashes, rows, copies)
        firsts = np.flatnonzero(np.concatenate([[True], hashes[1:] != hashes[:-1]]))
        before = np.cumsum(copies) - copies
        group = np.repeat(np.arange(len(firsts)), np.diff([*firsts, len(hashes)]))
        start = self.occupied(hashes[firsts])[group] + before - before[firsts][group]
        rank = np.arange(int(copies.sum())) - np.repeat(before, copies)
        keys = keys_of(np.repeat(hashes, copies), np.repeat(start, copies) + rank)
        order = np.argsort(keys, kind="stable")
        owners = np.repeat(rows, copies).astype(np.int32)[order]
        weights = np.repeat(1 / copies, copies).astype(np.float32)[order]
        return self._merged(keys[order], owners, weights)

    def _merged(self, keys: Whole, rows: Whole, weights: Floats) -> Order:
        """With more places, which are sorted as well: what there is moves once, to where paths can read it."""
        places = np.searchsorted(self.keys, keys) + np.arange(len(keys))
        length = len(self) + len(keys)
        kept = np.ones(length, bool)
        kept[places] = False

        def merged(mine: Whole, others: Whole, room: int) -> Whole:
            out = aligned((room,), mine.dtype)
            out[:length][places] = others
            out[:length][kept] = mine
            out[length:] = out[0]
            return out

        room = roomy(length)
        listed = Listing(merged(self.rows, rows, room), merged(self.weights, weights, room), length)
        return Order(merged(self.keys, keys, length), listed.rows[:length], listed.weights[:length], listed)

    def occupied(self, hashes: Whole) -> Whole:
        """How many keys of each hash are taken: they are the first ones."""
        least, most = np.zeros(len(hashes), np.int64), np.ones(len(hashes), np.int64)
        while np.any(growing := self._has(hashes, most - 1)):
            least, most = np.where(growing, most, least), np.where(growing, 2 * most, most)
        # least are taken, most are not.
        while np.any(most - least > 1):
            middle = (least + most) // 2
            taken = self._has(hashes, middle - 1)
            least, most = np.where(taken, middle, least), np.where(taken, most, middle)
        return least

    def _has(self, hashes: Whole, ranks: Whole) -> Whole:
        return self._place(hashes, ranks)[1]

    def _place(self, hashes: Whole, ranks: Whole) -> tuple[Whole, Whole]:
        keys = keys_of(hashes, ranks)
        places = np.searchsorted(self.keys, keys)
        inside = np.minimum(places, max(len(self) - 1, 0))
        return inside, (self.keys[inside] == keys if len(self) else np.zeros(len(keys), bool))

    def without(self, hashes: Whole) -> tuple[Order, Whole]:
        """Without rows of these hashes, one for each, and which rows these were; refused where some are not there.

        Of equal rows the last goes first, with all of its places.
        """
        unique, left = np.unique(hashes, return_counts=True)
        taken, gone = self.occupied(unique), [np.empty(0, np.int64)]
        while len(open_ := np.flatnonzero((left > 0) & (taken > 0))):
            last, _ = self._place(unique[open_], taken[open_] - 1)
            copies = np.round(1 / self.weights[last]).astype(np.int64)
            rank = (
                np.repeat(taken[open_] - copies, copies) + np.arange(copies.sum()) - np.repeat(_before(copies), copies)
            )
            gone.append(self._place(np.repeat(unique[open_], copies), rank)[0])
            taken[open_] -= copies
            left[open_] -= 1
        if left.sum():
            raise never_there(int(left.sum()), len(hashes))
        places = np.concatenate(gone)
        rows = np.unique(self.rows[places])
        keys, numbers, weights = (np.delete(each, places) for each in (self.keys, self.rows, self.weights))
        return Order(keys, numbers, weights), rows

    def renumbered(self, old: Whole, new: Whole) -> Order:
        """With rows that have moved, from which number to which."""
        if not len(old):
            return self
        numbers = np.arange(int(self.rows.max()) + 1, dtype=np.int32)
        numbers[old] = new
        return Order(self.keys, numbers[self.rows], self.weights)

    def listing(self) -> Listing:
        """As paths read it, padded so that it can grow for a while before its programs are compiled anew."""
        if self.listed is not None:
            return self.listed
        spare = roomy(len(self)) - len(self)
        return Listing(
            np.concatenate([self.rows, np.full(spare, self.rows[0])]),
            np.concatenate([self.weights, np.full(spare, self.weights[0])]),
            len(self),
        )


def keys_of(hashes: Whole, ranks: Whole) -> Whole:
    with np.errstate(over="ignore"):
        return hashes + ranks.astype(np.uint64) * PHI


def _before(counts: Whole) -> Whole:
    return np.cumsum(counts) - counts


def _by_hash(hashes: Whole, *others: Whole) -> tuple[Whole, ...]:
    order = np.argsort(hashes, kind="stable")
    return hashes[order], *(each[order] for each in others)


def never_there(missing: int, asked: int) -> DataError:
    got = f"{missing:,} of {asked:,} that are not among them, to the last digit"
    hint = "the rows as they came, with every column that the model reads; nothing was taken out"
    return DataError(explain("rows of this fit, to withdraw", got, hint))
