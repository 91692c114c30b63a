"""Units: the rows of every group side by side, padded to one length.

A unit is {"rows": a pytree of (length, ...), "count": how many of them are the group's, "group": its number, the
"centre", "slope" and "root" of its nodes if it has any, and what it "reads" of u where that is little}. Padding repeats
a row of the group and counts for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.model.groups.integral import TOGETHER, Groups
from tallbayes.model.groups.reads import Reads, find_reads
from tallbayes.model.space import Space
from tallbayes.moments import Floats
from tallbayes.programs.later import jax

# Of memory: padded rows of groups of very different size are mostly padding.
MOST_BYTES = 2**32
STEP = 16


@dataclass(frozen=True, eq=False)
class Grouping:
    """The groups by number: what they are called, how many rows each has, and which group a row is of."""

    by: str
    levels: np.ndarray
    counts: np.ndarray
    codes: np.ndarray

    @property
    def count(self) -> int:
        return len(self.levels)


def take_out(data: Any, groups: Groups) -> tuple[Any, Any]:
    """The column of the group, and the rows without it."""
    if not isinstance(data, dict) or groups.by not in data:
        got = f"{sorted(map(str, data))}" if isinstance(data, dict) else type(data).__name__
        raise DataError(
            explain(f"a dict of arrays with the column {groups.by!r}", got, 'data={"school": names, "y": y}')
        )
    return data[groups.by], {name: array for name, array in data.items() if name != groups.by}


def make_grouping(by: str, column: Any) -> Grouping:
    """Groups in the order of their names: text, or whole numbers."""
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
    levels, codes = np.unique(values, return_inverse=True)
    return Grouping(by, levels, np.bincount(codes, minlength=len(levels)), codes.astype(np.int32))


def gather_units(arrays: Any, grouping: Grouping, groups: Groups, space: Space) -> dict[str, Any]:
    """Checked rows as units without nodes yet, in the order of the groups."""
    size = groups.size
    counts, codes = grouping.counts, grouping.codes
    length = _length(int(counts.max()), bool(groups.reads))
    _require_memory(arrays, len(counts), length)
    order = np.argsort(codes, kind="stable")
    firsts = np.cumsum(counts) - counts
    # Padding repeats the group's first row.
    index = np.repeat(order[firsts][:, None], length, axis=1)
    sorted_codes = codes[order]
    index[sorted_codes, np.arange(len(codes)) - firsts[sorted_codes]] = order
    known: dict[str, Any] = {}
    dimension = space.dimension
    if groups.reads:
        known["reads"], places = find_reads(groups.reads, arrays, codes, len(counts))
        arrays = {**arrays, **places}
        dimension = Reads(space, groups.reads).count({"reads": {name: own[0] for name, own in known["reads"].items()}})
    if groups.closed is None:
        known |= no_nodes(len(counts), size, dimension)
    if groups.weigh_rows is not None and groups.closed is None:
        each = groups.weigh_rows(arrays).reshape(len(codes), -1)
        sums = [np.bincount(codes, column, len(counts)) for column in each.T]
        known["information"] = np.stack(sums, axis=-1).reshape(len(counts), size, size)
    return {
        "rows": jax.tree.map(lambda array: array[index], arrays),
        "count": counts.astype(np.int32),
        "group": np.arange(len(counts), dtype=np.int32),
        **known,
    }


def no_nodes(count: int, size: int, dimension: int) -> dict[str, Floats]:
    """Nodes about nothing, as a new group has them."""
    root = np.broadcast_to(np.eye(size), (count, size, size)).copy()
    return {"centre": np.zeros((count, size)), "slope": np.zeros((count, size, dimension)), "root": root}


def _length(most: int, finely: bool) -> int:
    """A power of two, or a whole number of parts; for units that take longer by far than a program, more finely."""
    if finely and STEP < most <= TOGETHER:
        return -(-most // STEP) * STEP
    if most <= TOGETHER:
        return 1 << max(most - 1, 0).bit_length()
    return -(-most // TOGETHER) * TOGETHER


def _require_memory(arrays: Any, count: int, length: int) -> None:
    row = sum(array[:1].nbytes for array in jax.tree.leaves(arrays))
    if count * length * row > MOST_BYTES:
        rows = len(jax.tree.leaves(arrays)[0])
        got = f"{count:,} groups of up to {length:,} rows, {count * length / rows:.0f} times as many places as rows"
        hint = "the few largest groups as levels of a category of their own (a fixed effect), the others as groups"
        raise DataError(explain(f"groups that fill {MOST_BYTES / 2**30:g} GB at the most when padded", got, hint))
