"""The units of paths, of which some are made anew.

A day's units are put in their places in a copy of the table, since yesterday's is what yesterday's result reads. There
is room for a quarter more units than there are, so that programs serve for many days.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallbayes.arrivals.groups.rows import GroupedRows
from tallbayes.arrivals.groups.shelves import ROOM, Rearranged, part_of
from tallbayes.groups.bundling import Bundling
from tallbayes.groups.nodes import find_nodes, with_nodes
from tallbayes.groups.units import Information, Units, make_units
from tallbayes.model.groups.integral import Groups
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.later import jax
from tallbayes.rows.table import Table, aligned, capacity_for, make_table

# Programs for a day's units are compiled for so many, and twice as many wherever that is too few.
DAY_UNITS = 32
LEAST_UNITS = 64
NODES = "centre", "slope", "root"


@dataclass(frozen=True, eq=False)
class UnitMaker:
    """What makes units of rows: `weight` is that of a row in what units know of theirs, as of the first rows; None
    where they know nothing of that kind."""

    groups: Groups
    dimension: int
    weight: float | None

    def units(self, rows: GroupedRows, plan: Bundling, units: np.ndarray) -> Units:
        """Some units of a plan, without nodes yet."""
        part, groups = part_of(plan, units)
        places = rows.of_groups(groups)
        codes = np.searchsorted(groups, rows.numbers[places]).astype(np.int32)
        arrays = rows.taken(places)
        if self.groups.closed is not None:
            made: Units | None = self.groups.closed(self.groups).units(arrays, [(codes, arrays)], len(groups))
            if made is not None:
                # A unit is one group then.
                return {name: each[np.argsort(part.unit)] for name, each in made.items()}
        information = Information(self.groups, arrays, len(groups), self.weight)
        information.add(codes, arrays)
        known: Units = {name: part.at_places(each) for name, each in information.found.items()}
        index = part.index(codes)
        # A unit that has lost all of its groups holds some row, which counts for nothing.
        whole = arrays if len(places) else rows.taken(np.zeros(1, np.int64))
        known["rows"] = jax.tree.map(lambda array: array[index], whole)
        return make_units(known, part, self.groups, self.dimension)


def in_table(units: Units, precision: str, beside: Any = None) -> Table:
    """On the device; `beside` is what the model's report reads."""
    return make_table(units, precision, False, beside, DAY_UNITS)


def without_nodes(table: Table) -> Table:
    """As of groups of which nothing is known."""
    rows = dict(table.rows)
    root = np.zeros(rows["root"].shape, rows["root"].dtype) + np.eye(rows["root"].shape[-1], dtype=rows["root"].dtype)
    with jax.enable_x64(True):
        rows |= {name: jax.device_put(np.zeros(rows[name].shape, rows[name].dtype)) for name in ("centre", "slope")}
        return replace(table, rows={**rows, "root": jax.device_put(root)})


def settled_nodes(target: Target, table: Table, theta: Floats, precision: str) -> Table | None:
    """With nodes at theta, looked for from those that it has: where it has none, what a group's are hangs on its rows
    alone. None where they are not found."""
    if "root" not in table.rows:
        return table
    nodes = find_nodes(target, table, theta)
    if not nodes.are_finite:
        return None
    rows = with_nodes(table, nodes)
    with jax.enable_x64(True):
        kept = {name: jax.device_put(np.asarray(rows[name], precision)) for name in NODES}
    return replace(table, rows={**rows, **kept})


def roomy(units: int) -> int:
    """Places for so many units."""
    return capacity_for(int(ROOM * units) + 1, LEAST_UNITS)


def with_room(table: Table) -> Table:
    """The same units in memory of their own, with places for more."""
    return _placed(jax.tree.map(lambda leaf: _copy(leaf, table.num_rows, roomy(table.num_rows)), table.rows), table)


def replaced(table: Table, made: Table, how: Rearranged) -> Table:
    """With the units that were made in their places, and others where they stand now."""
    capacity = table.capacity if how.plan.units <= table.capacity else roomy(how.plan.units)
    kept = min(table.num_rows, how.plan.units)

    def put(leaf: Any, new: Any) -> np.ndarray:
        before, out = np.asarray(leaf), _copy(leaf, kept, capacity)
        out[how.moved_to] = before[how.moved_from]
        out[how.made] = np.asarray(new)[: len(how.made)]
        return out

    return _placed(jax.tree.map(put, table.rows, made.rows), replace(table, num_rows=how.plan.units, shuffled=False))


def places_in(plan: Bundling, groups: np.ndarray) -> np.ndarray:
    """Of these groups, among all places for groups."""
    return plan.unit[groups] * max(plan.slots, 1) + (0 if plan.is_plain else plan.slot[groups])


def numbered(table: Table, plan: Bundling, ranks: np.ndarray) -> Table:
    """With groups numbered in the order of their names."""
    present = np.flatnonzero(plan.unit >= 0)
    places = places_in(plan, present)
    group = np.array(table.rows["group"])
    flat = group.reshape(-1)
    if not plan.is_plain:
        flat[:] = -1
    flat[places] = ranks[present]
    group[table.num_rows :] = group[0]
    with jax.enable_x64(True):
        return replace(table, rows={**table.rows, "group": jax.device_put(group)})


def kept_nodes(before: Table, after: Table, old: np.ndarray, new: np.ndarray) -> Table:
    """With the nodes that groups at these places for groups had before."""
    if "root" not in after.rows or not len(old):
        return after
    rows = dict(after.rows)
    inner = 2 if "strip" in rows else 1
    with jax.enable_x64(True):
        for name in NODES:
            known, found = np.asarray(before.rows[name]), np.array(rows[name])
            found.reshape(-1, *found.shape[inner:])[new] = known.reshape(-1, *known.shape[inner:])[old]
            rows[name] = jax.device_put(found)
    return replace(after, rows=rows)


def taken(table: Table, units: np.ndarray) -> Table:
    """Some units in a table of their own."""
    count = len(units)
    index = np.zeros(capacity_for(max(count, 1), DAY_UNITS), np.int64)
    index[:count] = units
    index[count:] = units[0] if count else 0
    with jax.enable_x64(True):
        rows = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[index]), table.rows)
    return Table(rows, count, units=table.units)


def _copy(leaf: Any, count: int, capacity: int) -> np.ndarray:
    leaf = np.asarray(leaf)
    out = aligned((capacity, *leaf.shape[1:]), leaf.dtype)
    out[:count] = leaf[:count]
    out[count:] = leaf[0]
    return out


def _placed(rows: Any, before: Table) -> Table:
    with jax.enable_x64(True):
        rows = jax.tree.map(lambda leaf: jax.device_put(leaf, may_alias=True), rows)
    return replace(before, rows=rows)
