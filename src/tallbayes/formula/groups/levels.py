"""Levels of groups: which there are in some columns, and which one a row is of.

    census = LevelCensus(("school", "year"))      rows are added a table at a time, in memory that grows with the groups
    levels = census.levels()                      the combinations that are there, in order, numbered from 0
    levels.codes(table)                           (N,) int32: the number of every row's group, -1 for a new one

A column of groups is text or whole numbers. Text is in the order of its levels, which is sorted unless the table gives
it another; combinations are ordered by their first column, then by the second. With n_j values in column j a
combination of values v_j is found by the number ((v_1) n_2 + v_2) n_3 + v_3, which rises with its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.rows.columns import kind_of, levels_of, require

# Whole numbers below are exact in float64.
EXACT_IN_FLOAT64 = 2.0**53
PENDING = 2**18


@dataclass(frozen=True, eq=False)
class GroupLevels:
    """The groups that columns make: distinct `values` of each, and of every group (G, columns) which it has of each."""

    by: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    members: np.ndarray

    def __len__(self) -> int:
        return len(self.members)

    @property
    def names(self) -> tuple[Any, ...]:
        """Of every group: its text or number, or those of a combination with colons between them."""
        if len(self.by) == 1:
            return self.values[0]
        parts = [
            np.array(values, object)[place].tolist() for values, place in zip(self.values, self.members.T, strict=True)
        ]
        return tuple(":".join(map(str, name)) for name in zip(*parts, strict=True))

    def codes(self, table: Any) -> np.ndarray:
        """The group of every row of a table without missing values; -1 where it is not among these."""
        places = [_places(name, table.column(name), known) for name, known in zip(self.by, self._known, strict=True)]
        if len(self.by) == 1:
            return places[0]
        found = _among(self._sorted, _numbers(np.stack(places), self._counts))
        return np.where(np.all([place >= 0 for place in places], axis=0), found, np.int32(-1))

    def joined(self, more: GroupLevels) -> tuple[GroupLevels, np.ndarray]:
        """With groups that are new, and the place of each of these among all. Text that was in order stays so."""
        values, places = [], []
        for known, new in zip(self.values, more.values, strict=True):
            together, own, theirs = _together(known, new)
            values.append(together)
            places.append((own, theirs))
        counts = tuple(len(each) for each in values)
        members = [
            np.stack([place[side][column] for place, column in zip(places, part.members.T, strict=True)])
            for side, part in enumerate((self, more))
        ]
        mine, others = (_numbers(each.astype(np.int64), counts) for each in members)
        numbers, where = np.unique(np.concatenate([mine, others]), return_inverse=True)
        parts = []
        for count in counts[::-1]:
            numbers, part = np.divmod(numbers, count)
            parts.append(part)
        found = np.stack(parts[::-1], axis=1).astype(np.int32)
        return GroupLevels(self.by, tuple(values), found), where[: len(self)]

    @property
    def _counts(self) -> tuple[int, ...]:
        return tuple(len(values) for values in self.values)

    @cached_property
    def _known(self) -> list[Any]:
        """The values of every column as they are looked for."""
        arrow = require("pyarrow")
        return [
            arrow.array(each, arrow.string()) if isinstance(each[0], str) else np.asarray(each).astype(np.int64)
            for each in self.values
        ]

    @cached_property
    def _sorted(self) -> np.ndarray:
        return _numbers(self.members.T, self._counts)

    def to_plain(self) -> dict[str, Any]:
        """Text, numbers and lists; a single column's groups are its values."""
        members = self.members.tolist() if len(self.by) > 1 else None
        return {"by": list(self.by), "values": [list(values) for values in self.values], "members": members}

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> GroupLevels:
        values = tuple(tuple(each) for each in plain["values"])
        members = np.arange(len(values[0]))[:, None] if plain["members"] is None else plain["members"]
        return cls(tuple(plain["by"]), values, np.asarray(members, np.int32))


class LevelCensus:
    """The groups among the rows so far; those of a text share one order of levels in all tables that are added."""

    def __init__(self, by: tuple[str, ...]) -> None:
        self.by = by
        self._texts: dict[str, tuple[Any, ...]] = {}
        self._flags: set[str] = set()
        self._found: list[np.ndarray] = []

    def add(self, table: Any) -> None:
        """Rows without missing values."""
        if not self._found:
            columns = {name: table.column(name) for name in self.by}
            self._texts = {name: levels_of(each) for name, each in columns.items() if kind_of(each) == "categories"}
            self._flags = {name for name, each in columns.items() if require("pyarrow").types.is_boolean(each.type)}
        parts = [_indices(table.column(name)) if name in self._texts else _whole(name, table) for name in self.by]
        self._found.append(_distinct(np.stack(parts)))
        if sum(each.shape[1] for each in self._found[1:]) > max(self._found[0].shape[1], PENDING):
            self._found = [_distinct(np.concatenate(self._found, axis=1))]

    def levels(self, fewest: int = 2) -> GroupLevels:
        found = _distinct(np.concatenate(self._found, axis=1))
        values, members = [], []
        for name, column in zip(self.by, found, strict=True):
            distinct, places = np.unique(column, return_inverse=True)
            values.append(self._names(name, distinct))
            members.append(places.astype(np.int32))
        if found.shape[1] < fewest:
            got = f"{values[0][0]!r} in all rows"
            hint = "leave the term out: one group is no other than all rows"
            raise DataError(explain(f"at least two groups in {':'.join(self.by)!r}", got, hint))
        if prod(len(each) for each in values) >= 2**63:
            got = " x ".join(f"{len(each):,}" for each in values)
            raise DataError(explain(f"fewer combinations in {':'.join(self.by)!r}", got, "one column that names them"))
        return GroupLevels(self.by, tuple(values), np.stack(members, axis=1))

    def _names(self, name: str, distinct: np.ndarray) -> tuple[Any, ...]:
        if name in self._texts:
            return tuple(np.array(self._texts[name], object)[distinct].tolist())
        return tuple((distinct.astype(bool) if name in self._flags else distinct).tolist())


def levels_of_rows(by: tuple[str, ...], table: Any) -> GroupLevels:
    """The groups of some rows, be it one."""
    census = LevelCensus(by)
    census.add(table)
    return census.levels(fewest=1)


def _together(known: tuple[Any, ...], new: tuple[Any, ...]) -> tuple[tuple[Any, ...], np.ndarray, np.ndarray]:
    """All values, in order where the known ones are, and where those of both stand among them."""
    if isinstance(known[0], str) != isinstance(new[0], str):
        was, got = ("text", "numbers") if isinstance(known[0], str) else ("whole numbers", "text")
        raise DataError(explain(f"{was} as before", got, "convert the column"))
    seen = set(known)
    whole = [*known, *(each for each in new if each not in seen)]
    if list(known) == sorted(known):
        whole.sort()
    place = {value: at for at, value in enumerate(whole)}
    mine, theirs = (np.array([place[value] for value in values], np.int64) for values in (known, new))
    return tuple(whole), mine, theirs


def _numbers(places: np.ndarray, counts: Sequence[int]) -> np.ndarray:
    """The number of every combination of places (columns, rows)."""
    total = np.zeros(places.shape[1], np.int64)
    for place, count in zip(places, counts, strict=True):
        total = total * count + place
    return total


def _distinct(rows: np.ndarray) -> np.ndarray:
    """The different columns of (columns, rows), in order."""
    least = rows.min(axis=1, keepdims=True)
    counts = [int(largest) - int(low) + 1 for low, largest in zip(least[:, 0], rows.max(axis=1), strict=True)]
    if prod(counts) >= 2**63:
        rows = rows[:, np.lexsort(rows[::-1])]
        return rows[:, np.append([True], np.any(rows[:, 1:] != rows[:, :-1], axis=0))]
    # By Arrow's table of hashes, which is several times as fast as sorting all rows.
    numbers = np.sort(np.asarray(require("pyarrow").array(_numbers(rows - least, counts)).unique()))
    parts = []
    for count in counts[::-1]:
        numbers, part = np.divmod(numbers, count)
        parts.append(part)
    return np.stack(parts[::-1]) + least


def _among(known: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where each of some numbers stands among sorted ones, -1 for one that is not there."""
    if len(wanted) > len(known):
        # A table of hashes is worth its while for many.
        arrow, compute = require("pyarrow"), require("pyarrow.compute")
        return np.asarray(compute.index_in(arrow.array(wanted), value_set=arrow.array(known)).fill_null(-1))
    place = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[place] == wanted, place, -1).astype(np.int32)


def _places(name: str, column: Any, known: Any) -> np.ndarray:
    """Where each value stands among those that are known, numbers or Arrow's text; -1 for one that is not there."""
    is_text = not isinstance(known, np.ndarray)
    if is_text != (kind_of(column) == "categories"):
        was, got = ("text", "numbers") if is_text else ("whole numbers", "text")
        raise DataError(explain(f"{was} in column {name!r}, as before", got, "convert the column"))
    if not is_text:
        return _among(known, _as_whole(name, column))
    compute, found = require("pyarrow.compute"), []
    for chunk in column.chunks:
        codes, levels = np.asarray(chunk.indices), chunk.dictionary.cast(known.type)
        if not levels.equals(known):
            codes = np.asarray(compute.index_in(levels, value_set=known).fill_null(-1))[codes]
        found.append(codes.astype(np.int32, copy=False))
    return np.concatenate(found)


def _indices(column: Any) -> np.ndarray:
    return np.concatenate([np.asarray(chunk.indices, np.int64) for chunk in column.chunks])


def _whole(name: str, table: Any) -> np.ndarray:
    return _as_whole(name, table.column(name))


def _as_whole(name: str, column: Any) -> np.ndarray:
    """A column of numbers as whole ones, or a DataError."""
    numbers = np.asarray(column)
    if numbers.dtype.kind in "bi":
        return numbers.astype(np.int64)
    wrong = numbers > np.iinfo(np.int64).max
    if numbers.dtype.kind == "f":
        wrong = ~((numbers == np.floor(numbers)) & (np.abs(numbers) <= EXACT_IN_FLOAT64))
    if np.any(wrong):
        got = f"{numbers[np.argmax(wrong)]} in row {int(np.argmax(wrong))}"
        hint = f"{name} as a term or as an effect, if it is a number; or a column with a name for every group"
        raise DataError(explain(f"names or whole numbers of groups in column {name!r}", got, hint))
    return numbers.astype(np.int64)
