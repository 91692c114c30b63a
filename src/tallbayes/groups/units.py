"""Units: the rows of every group side by side, padded to one length; or of several groups, where they are of very
different size (`bundling`).

A unit of one group is {"rows": a pytree of (length, ...), "count": how many of them are the group's, "group": its
number, the "centre", "slope" and "root" of its nodes if it has any, and what it "reads" of u where that is little}.
Padding repeats a row of the group and counts for nothing.

Rows that are in memory are put together at once; those on disk in `gathering`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.groups.bundling import Bundling, plan_units
from tallbayes.model.groups.bundles import groups_in, is_bundle
from tallbayes.model.groups.integral import Groups
from tallbayes.model.groups.reads import Reads, find_reads
from tallbayes.model.space import Space
from tallbayes.moments import Floats
from tallbayes.programs.later import jax
from tallbayes.rows.on_disk import Stored
from tallbayes.rows.table import CHUNK_ROWS

# Of memory: padded rows of groups of very different size are mostly padding.
MOST_BYTES = 2**32
# Of groups taken out of bundles.
LENGTHS = tuple(4**k for k in range(1, 17))

Units = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Grouping:
    """The groups by number: what they are called, and how many rows each has.

    Where their units are on disk, `folder` holds them; it goes with the last who has it. `rows` know the group of every
    row in the order of the source, and its numbers where units do not hold them.
    """

    by: str
    levels: np.ndarray
    counts: np.ndarray
    folder: Any = None
    rows: Any = field(default=None, repr=False)

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

    def beside(self, units: Units) -> RowsInMemory:
        """Without what these units hold of them."""
        return replace(self, arrays=None) if "rows" in units else self

    def chunks(self) -> Iterator[tuple[np.ndarray, Any]]:
        """Codes and rows, a part at a time."""
        for start in range(0, len(self.codes), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            yield self.codes[part], jax.tree.map(lambda array, part=part: array[part], self.arrays)

    def units(self, groups: Groups, space: Space) -> tuple[Units, None]:
        """Without nodes yet, in the order of the groups."""
        counts, arrays, dimension = self.grouping.counts, self.arrays, space.dimension
        # What a unit reads of other factors' effects is found for one group.
        alone = bool(groups.reads)
        plan = plan_units(counts, alone=alone, finely=alone)
        _require_memory(arrays, plan)
        index = plan.index(self.codes)
        information = Information(groups, arrays, len(counts))
        for codes, part in self.chunks():
            information.add(codes, part)
        known: Units = {name: plan.at_places(each) for name, each in information.found.items()}
        if groups.reads:
            known["reads"], places = find_reads(groups.reads, arrays, self.codes, len(counts))
            arrays = {**arrays, **places}
            one = {"reads": {name: own[0] for name, own in known["reads"].items()}}
            dimension = Reads(space, groups.reads).count(one)
        known["rows"] = jax.tree.map(lambda array: array[index], arrays)
        return make_units(known, plan, groups, dimension), None


class Information:
    """What units need to know of their rows, summed over rows that come in parts: `found` is empty where it is nothing.

    The weight of a row is that of all `rows`, or of a sample of them, unless it is given.
    """

    def __init__(self, groups: Groups, rows: Any, count: int, weight: float | None = None) -> None:
        self.found: dict[str, Floats] = {}
        if groups.weigh_rows is not None and groups.closed is None:
            self.weight = groups.weigh_rows(rows) if weight is None else weight
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


def make_units(known: Units, plan: Bundling, groups: Groups, dimension: int) -> Units:
    """Those of a plan, which have no nodes yet, and none at all where there is a closed form; `known` is what they have
    already."""
    numbers = {
        "count": plan.at_places(plan.counts.astype(np.int32)),
        "group": plan.at_places(np.arange(len(plan.counts), dtype=np.int32), empty=-1),
    }
    nodes = {}
    if groups.closed is None:
        nodes = no_nodes(plan.units * max(plan.slots, 1), groups.size, dimension)
        if not plan.is_plain:
            nodes = {name: each.reshape(plan.units, plan.slots, *each.shape[1:]) for name, each in nodes.items()}
    return {**known, **numbers, **nodes, **plan.in_strips()}


def places_of_groups(units: Units) -> np.ndarray:
    """Of every group by its number, where it stands among all places for groups, those of bundles one after another."""
    groups = np.ravel(units["group"])
    found = np.flatnonzero(groups >= 0)
    return found[np.argsort(groups[found], kind="stable")]


def by_place(units: Units, values: np.ndarray) -> np.ndarray:
    """What is known of each group, (units, ...), or (units, slots, ...) of bundles, one place after another."""
    return values.reshape(-1, *values.shape[2:]) if is_bundle(units) else values


def rows_that_count(units: Units, part: slice) -> np.ndarray:
    """Of some of the units which of their places hold a row, (units, length)."""
    length = jax.tree.leaves(units["rows"])[0].shape[1]
    if is_bundle(units):
        filled = np.asarray(units["filled"])[part]
        return (np.arange(length // filled.shape[1]) < filled[..., None]).reshape(len(filled), length)
    return np.arange(length) < np.asarray(units["count"])[part, None]


def one_group_each(units: Units, places: np.ndarray, length: int) -> Units:
    """The groups at these places as units of their own, padded to this length; units of one group are as they are."""
    if not is_bundle(units):
        return jax.tree.map(lambda leaf: np.asarray(leaf)[places], units)
    which, slot = np.divmod(places, units["group"].shape[1])
    found = {name: np.asarray(leaf)[which, slot] for name, leaf in groups_in(units).items()}
    strip_rows = jax.tree.leaves(units["rows"])[0].shape[1] // units["strip"].shape[1]
    is_own = (units["strip"][which] == slot[:, None]) & (units["filled"][which] > 0)
    at = np.minimum(np.arange(length), np.maximum(found["count"][:, None] - 1, 0))
    at = np.argmax(is_own, axis=1)[:, None] * strip_rows + at
    return {**found, "rows": jax.tree.map(lambda leaf: np.asarray(leaf)[which[:, None], at], units["rows"])}


def lengths_of_groups(units: Units, places: np.ndarray) -> np.ndarray:
    """To how many rows the groups at these places are padded as units of their own: one of a few lengths."""
    if not is_bundle(units):
        return np.zeros(len(places), np.int64)
    counts = np.ravel(units["count"])[places]
    return np.asarray(LENGTHS)[np.searchsorted(LENGTHS, counts)]


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


def _require_memory(arrays: Any, plan: Bundling) -> None:
    row = sum(array[:1].nbytes for array in jax.tree.leaves(arrays))
    if plan.is_plain and plan.units * plan.length * row > MOST_BYTES:
        expected = f"groups that fill {MOST_BYTES / 2**30:g} GB at the most when padded"
        raise too_uneven(expected, plan)


def too_uneven(expected: str, plan: Bundling) -> DataError:
    counts, most = plan.counts, plan.counts.max()
    times = plan.units * plan.length / counts.sum()
    got = f"{len(counts):,} groups of up to {most:,} rows, {times:.0f} times as many places as rows"
    hint = "the few largest groups as levels of a category of their own (a fixed effect), the others as groups"
    return DataError(explain(expected, got, hint))
