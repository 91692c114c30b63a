"""Units: the rows of every group side by side, padded to one length.

A unit is {"rows": a pytree of (length, ...), "count": how many of them are the group's, "group": its number, the
"centre", "slope" and "root" of its nodes if it has any, and what it "reads" of u where that is little}. Padding repeats
a row of the group and counts for nothing.

Rows that are in memory are put together at once; those on disk in `gathering`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.model.groups.integral import TOGETHER, Groups
from tallbayes.model.groups.reads import Reads, find_reads
from tallbayes.model.space import Space
from tallbayes.moments import Floats
from tallbayes.programs.later import jax
from tallbayes.rows.on_disk import Stored
from tallbayes.rows.table import CHUNK_ROWS

# Of memory: padded rows of groups of very different size are mostly padding.
MOST_BYTES = 2**32
STEP = 16
# Rows that a processor takes at a time.
LANES = 8

Units = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Grouping:
    """The groups by number: what they are called, and how many rows each has.

    Where their units are on disk, `folder` holds them; it goes with the last who has it.
    """

    by: str
    levels: np.ndarray
    counts: np.ndarray
    folder: Any = None

    @property
    def count(self) -> int:
        return len(self.levels)


@dataclass(frozen=True, eq=False)
class RowsInMemory:
    """Checked rows, and of each the number of its group."""

    arrays: Any
    codes: np.ndarray
    grouping: Grouping

    @property
    def head(self) -> Any:
        return jax.tree.map(lambda array: array[:1], self.arrays)

    def chunks(self) -> Iterator[tuple[np.ndarray, Any]]:
        """Codes and rows, a part at a time."""
        for start in range(0, len(self.codes), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            yield self.codes[part], jax.tree.map(lambda array, part=part: array[part], self.arrays)

    def units(self, groups: Groups, space: Space) -> tuple[Units, None]:
        """Without nodes yet, in the order of the groups."""
        counts, arrays, dimension = self.grouping.counts, self.arrays, space.dimension
        length = padded_length(counts, bool(groups.reads))
        _require_memory(arrays, len(counts), length)
        index = unit_index(self.codes, counts, length)
        information = Information(groups, arrays, len(counts))
        for codes, part in self.chunks():
            information.add(codes, part)
        known: Units = dict(information.found)
        if groups.reads:
            known["reads"], places = find_reads(groups.reads, arrays, self.codes, len(counts))
            arrays = {**arrays, **places}
            one = {"reads": {name: own[0] for name, own in known["reads"].items()}}
            dimension = Reads(space, groups.reads).count(one)
        known["rows"] = jax.tree.map(lambda array: array[index], arrays)
        return make_units(known, counts, np.arange(len(counts), dtype=np.int32), groups, dimension), None


class Information:
    """What units need to know of their rows, summed over rows that come in parts: `found` is empty where it is nothing.

    The weight of a row is that of all `rows`, or of a sample of them.
    """

    def __init__(self, groups: Groups, rows: Any, count: int) -> None:
        self.found: dict[str, Floats] = {}
        if groups.weigh_rows is not None and groups.closed is None:
            self.weight = groups.weigh_rows(rows)
            self.sums = np.zeros((groups.size, groups.size, count))
            self.found["information"] = self.sums.transpose(2, 0, 1)

    def add(self, codes: np.ndarray, rows: Any) -> None:
        if not self.found:
            return
        z = np.asarray(rows["z0"], np.float64).T
        for j, left in enumerate(z):
            for k, right in enumerate(z):
                # In the order of the rows, however they come.
                np.add.at(self.sums[j, k], codes, self.weight * left * right)


def make_units(known: Units, counts: np.ndarray, order: np.ndarray, groups: Groups, dimension: int) -> Units:
    """Those of the groups in this order, which have no nodes yet, and none at all where there is a closed form; `known`
    is what is in it already."""
    numbers = {"count": counts[order].astype(np.int32), "group": order.astype(np.int32)}
    nodes = no_nodes(len(order), groups.size, dimension) if groups.closed is None else {}
    return {**known, **numbers, **nodes}


def unit_index(codes: np.ndarray, counts: np.ndarray, length: int) -> np.ndarray:
    """Which row stands at each place of each unit, (units, length); what pads repeats a group's first row."""
    order = np.argsort(codes, kind="stable").astype(np.int32 if len(codes) < 2**31 else np.int64)
    firsts = np.cumsum(counts) - counts
    index = np.repeat(order[firsts][:, None], length, axis=1)
    sorted_codes = codes[order]
    index[sorted_codes, np.arange(len(codes)) - firsts[sorted_codes]] = order
    return index


def take_out(data: Any, groups: Groups) -> tuple[Any, Any]:
    """The column of the group, and the rows without it."""
    if isinstance(data, Stored) and not data.columns:
        data = data.rows()
    if not isinstance(data, dict) or groups.by not in data:
        got = f"{sorted(map(str, data))}" if isinstance(data, dict) else type(data).__name__
        raise DataError(
            explain(f"a dict of arrays with the column {groups.by!r}", got, 'data={"school": names, "y": y}')
        )
    return data[groups.by], {name: array for name, array in data.items() if name != groups.by}


def make_grouping(by: str, column: Any) -> tuple[Grouping, np.ndarray]:
    """Groups in the order of their names, text or whole numbers; and the number of every row's."""
    levels, codes = np.unique(group_values(by, column), return_inverse=True)
    return Grouping(by, levels, np.bincount(codes, minlength=len(levels))), codes.astype(np.int32)


def group_values(by: str, column: Any) -> np.ndarray:
    """A column of groups as text or whole numbers."""
    values = np.asarray(column)
    if values.ndim != 1 or not len(values):
        raise DataError(explain(f"one group a row in {by!r}", f"shape {values.shape}", "an array of names"))
    if values.dtype.kind == "f":
        if not np.all(np.isfinite(values)) or np.any(values != np.round(values)):
            hint = "text or whole numbers; a group for what is missing, or those rows left out"
            raise DataError(explain(f"groups in {by!r}", "numbers that are not whole", hint))
        values = values.astype(np.int64)
    if values.dtype.kind == "O":
        values = values.astype(str)
    if values.dtype.kind not in "biuUSMT":
        raise DataError(explain(f"text or whole numbers in {by!r}", f"dtype {values.dtype}", "astype(str)"))
    return values


def no_nodes(count: int, size: int, dimension: int) -> dict[str, Floats]:
    """Nodes about nothing, as a new group has them."""
    root = np.broadcast_to(np.eye(size), (count, size, size)).copy()
    return {"centre": np.zeros((count, size)), "slope": np.zeros((count, size, dimension)), "root": root}


def padded_length(counts: np.ndarray, finely: bool = False) -> int:
    """Of units: a power of two, or as many equal parts as it takes; for units that take longer by far than a program,
    more finely."""
    most = int(counts.max())
    if finely and STEP < most <= TOGETHER:
        return -(-most // STEP) * STEP
    if most <= TOGETHER:
        return 1 << max(most - 1, 0).bit_length()
    parts = -(-most // TOGETHER)
    return -(-most // (parts * LANES)) * parts * LANES


def _require_memory(arrays: Any, count: int, length: int) -> None:
    row = sum(array[:1].nbytes for array in jax.tree.leaves(arrays))
    if count * length * row > MOST_BYTES:
        rows = len(jax.tree.leaves(arrays)[0])
        expected = f"groups that fill {MOST_BYTES / 2**30:g} GB at the most when padded"
        raise too_uneven(expected, count, length, rows)


def too_uneven(expected: str, count: int, length: int, rows: int) -> DataError:
    got = f"{count:,} groups of up to {length:,} rows, {count * length / rows:.0f} times as many places as rows"
    hint = "the few largest groups as levels of a category of their own (a fixed effect), the others as groups"
    return DataError(explain(expected, got, hint))
