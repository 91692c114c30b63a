"""Rows as they came, each with its group.

A group has a number, given when its first row comes, and keeps it: so rows that are there already never change, and
yesterday's standing may share their memory. In what others read, groups are in the order of their names, as of a fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from tallbayes.arrivals.memory import Growing
from tallbayes.arrivals.order import never_there
from tallbayes.errors import DataError, explain
from tallbayes.groups.units import Grouping, RowsInMemory, group_values
from tallbayes.model.weights import WEIGHT
from tallbayes.programs.later import jax
from tallbayes.rows.segments.alike import contents
from tallbayes.rows.table import Table

# Among the columns of a row: the number of its group.
GROUP = "@group"


class ArrivedRows(NamedTuple):
    """Checked rows, weights among them, and the column of their groups."""

    arrays: dict[str, np.ndarray]
    column: Any


@dataclass(frozen=True, eq=False)
class GroupedRows:
    """All rows, and of every group by its number what the column holds (`levels`) and how many rows it has: 0 where all
    of them were withdrawn."""

    rows: Growing
    by: str
    levels: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, arrived: ArrivedRows, by: str) -> GroupedRows:
        levels, codes = np.unique(group_values(by, arrived.column), return_inverse=True)
        rows = {**arrived.arrays, GROUP: codes.astype(np.int32)}
        return cls(Growing.of(Table(rows, len(codes))), by, levels, np.bincount(codes, minlength=len(levels)))

    @property
    def num_rows(self) -> int:
        return self.rows.num_rows

    @property
    def numbers(self) -> np.ndarray:
        """Of every row, its group's."""
        return self.rows.memory.arrays[GROUP][: self.num_rows]

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """Without the groups."""
        return {name: each[: self.num_rows] for name, each in self.rows.memory.arrays.items() if name != GROUP}

    @property
    def present(self) -> np.ndarray:
        """The numbers of the groups that have rows."""
        return np.flatnonzero(self.counts)

    def ranks(self) -> np.ndarray:
        """Of every group by its number its place in the order of their names; -1 of one without rows."""
        found, present = np.full(len(self.counts), -1, np.int32), self.present
        found[present[np.argsort(self.levels[present], kind="stable")]] = np.arange(len(present), dtype=np.int32)
        return found

    def of_groups(self, groups: np.ndarray) -> np.ndarray:
        """Where their rows are, in an order that hangs on what the rows say alone."""
        wanted = np.zeros(len(self.counts), bool)
        wanted[groups] = True
        places = np.flatnonzero(wanted[self.numbers])
        return places[np.argsort(contents(self._leaves(places)), kind="stable")]

    def taken(self, places: np.ndarray) -> dict[str, np.ndarray]:
        """The rows at these places."""
        return {name: each[places] for name, each in self.arrays.items()}

    def with_rows(self, arrived: ArrivedRows) -> tuple[GroupedRows, np.ndarray]:
        """More rows, and which groups they are of."""
        values = self._values(arrived.column)
        new = np.setdiff1d(values, self.levels)
        levels = np.concatenate([self.levels, new])
        numbers = _places(levels, values)
        rows = self.rows.grown({**arrived.arrays, GROUP: numbers})
        counts = np.bincount(numbers, minlength=len(levels))
        counts[: len(self.counts)] += self.counts
        return GroupedRows(rows, self.by, levels, counts), np.unique(numbers)

    def without(self, arrived: ArrivedRows) -> tuple[GroupedRows, np.ndarray]:
        """Without these rows, one for each, and which groups they were of; refused where any was never there."""
        values = self._values(arrived.column)
        numbers = _places(self.levels, values)
        if np.any(numbers < 0):
            raise never_there(int(np.sum(numbers < 0)), len(values))
        given = jax.tree.leaves(self.rows.converted({**arrived.arrays, GROUP: numbers}))
        places = self.of_groups(np.unique(numbers))
        gone = _matched(contents(given), contents(self._leaves(places)), places)
        _require_equal(given, self._leaves(gone))
        if len(gone) == self.num_rows:
            raise DataError(explain("rows that stay", f"all {len(gone):,} withdrawn", "no fit, which needs rows"))
        rows, *_ = self.rows.without(gone)
        counts = self.counts - np.bincount(numbers, minlength=len(self.counts))
        return replace(self, rows=rows, counts=counts), np.unique(numbers)

    def renamed(self, levels: np.ndarray, changed: dict[str, np.ndarray] | None = None) -> GroupedRows:
        """With other names of the same groups, and columns that say the same in other numbers."""
        if not changed:
            return replace(self, levels=levels)
        arrays = {**self.arrays, GROUP: self.numbers, **changed}
        return replace(self, rows=Growing.of(Table(arrays, self.num_rows)), levels=levels)

    def grouping(self, holds_rows: bool) -> Grouping:
        """As a fit knows its groups; units that hold the rows need them no second time."""
        ranks, present = self.ranks(), self.present
        order = present[np.argsort(ranks[present])]
        found = Grouping(self.by, self.levels[order], self.counts[order])
        arrays = None if holds_rows else self.arrays
        return replace(found, rows=RowsInMemory(arrays, ranks[self.numbers], found))

    def asked(self, weighs: Any) -> dict[str, Any]:
        """Data and weights as `estimate` takes them."""
        arrays = self.arrays
        weights = arrays.pop(WEIGHT, None)
        return {"data": {**arrays, self.by: self.levels[self.numbers]}, "weights": weights}

    def _values(self, column: Any) -> np.ndarray:
        values = group_values(self.by, column)
        if (values.dtype.kind in "USM") != (self.levels.dtype.kind in "USM"):
            was, got = ("text", "numbers") if self.levels.dtype.kind in "USM" else ("whole numbers", "text")
            raise DataError(explain(f"{was} in {self.by!r}, as before", got, "convert the column"))
        return values

    def _leaves(self, places: np.ndarray) -> list[np.ndarray]:
        return jax.tree.leaves(self.rows.at(places))


def _places(levels: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The number of every value's group, -1 of one that is none of them."""
    order = np.argsort(levels, kind="stable")
    place = np.minimum(np.searchsorted(levels, values, sorter=order), len(levels) - 1)
    found = order[place]
    return np.where(levels[found] == values, found, -1).astype(np.int32)


def _matched(wanted: np.ndarray, known: np.ndarray, places: np.ndarray) -> np.ndarray:
    """For each hash that is wanted a place of that hash, the last ones first; `known` are in order."""
    unique, counts = np.unique(wanted, return_counts=True)
    first, last = np.searchsorted(known, unique), np.searchsorted(known, unique, side="right")
    if missing := int(np.sum(np.maximum(counts - (last - first), 0))):
        raise never_there(missing, len(wanted))
    back = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return places[np.repeat(last, counts) - 1 - back]


def _require_equal(given: list[np.ndarray], found: list[np.ndarray]) -> None:
    """Hashes tell rows apart with near certainty; their numbers do with certainty."""
    theirs, ours = (np.argsort(contents(each), kind="stable") for each in (given, found))
    differ = np.zeros(len(theirs), bool)
    for mine, given_leaf in zip(found, given, strict=True):
        differ |= np.any((mine[ours] != given_leaf[theirs]).reshape(len(theirs), -1), axis=1)
    if differ.any():
        raise never_there(int(differ.sum()), len(theirs))
