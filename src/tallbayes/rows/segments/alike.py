"""Alike: rows told by what they say, wherever they stand.

h(row)     a hash of its numbers: equal for equal rows, and as good as random
places     of some rows among those of a table on disk: a pass over it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.rows.on_disk import Stored
from tallbayes.rows.table import CHUNK_ROWS, by_blocks

# Odd, 2^64 over the golden ratio.
PHI = np.uint64(0x9E3779B97F4A7C15)
# Two odd numbers of full width that mix bits (splitmix64).
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def contents(leaves: Sequence[np.ndarray]) -> np.ndarray:
    """h of every row, given the arrays that hold them."""
    parts = by_blocks(lambda start, stop: _hash([leaf[start:stop] for leaf in leaves]), leaves[0])
    return np.concatenate(parts)


def _hash(leaves: Sequence[np.ndarray]) -> np.ndarray:
    found = np.full(len(leaves[0]), PHI)
    for leaf in leaves:
        for column in leaf.reshape(len(leaf), -1).T:
            found = _mixed(found ^ _bits(column))
    return found


def _bits(column: np.ndarray) -> np.ndarray:
    """The numbers' own bits; zero has one sign."""
    if column.dtype.kind != "f":
        return column.astype(np.int64).view(np.uint64)
    return (column.astype(np.float64) + 0.0).view(np.uint64)


def _mixed(words: np.ndarray) -> np.ndarray:
    words = words + PHI
    words = (words ^ (words >> np.uint64(30))) * FIRST
    words = (words ^ (words >> np.uint64(27))) * SECOND
    return words ^ (words >> np.uint64(31))


def places_alike(stored: Stored, rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Where rows stand that say the same in all fields, one for each; refused where some are not there."""
    names, table = [field.name for field in stored.fields], stored.rows()
    wanted = contents([rows[name] for name in names])
    places, hashes = [], []
    for start in range(0, stored.num_rows, CHUNK_ROWS):
        here = contents([table[name][start : start + CHUNK_ROWS] for name in names])
        hit = np.flatnonzero(np.isin(here, wanted))
        places.append(start + hit)
        hashes.append(here[hit])
    place, found = np.concatenate(places), np.concatenate(hashes)
    order, asked = np.argsort(found, kind="stable"), np.argsort(wanted, kind="stable")
    unique, counts = np.unique(wanted, return_counts=True)
    first, stop = (np.searchsorted(found[order], unique, side=side) for side in ("left", "right"))
    missing = int(np.sum(np.maximum(counts - (stop - first), 0)))
    if not missing:
        chosen = place[order][np.repeat(stop - counts, counts) + _ranks(counts)]
        same = np.ones(len(chosen), bool)
        for name in names:
            there, given = table[name][chosen], rows[name][asked]
            same &= np.all((there == given) | ((there != there) & (given != given)), axis=tuple(range(1, there.ndim)))
        missing = int(np.sum(~same))
    if missing:
        got = f"{missing:,} of {len(wanted):,} that are not among them, to the last digit"
        hint = "the rows as they came, with every column of the table; nothing was taken out"
        raise DataError(explain(f"rows of {str(stored.path)!r}, to withdraw", got, hint))
    return np.sort(chosen)


def _ranks(counts: np.ndarray) -> np.ndarray:
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
