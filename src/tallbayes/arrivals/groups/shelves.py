"""Shelves: which unit a group is in, as groups come, grow and go.

Units are of one length, with room: a quarter more rows than there are, and in units of several groups (`bundling`) a
quarter more groups. So a day changes the units of its groups alone, and no program is compiled for it.

    of one group     a new group takes a unit behind the others; where one has gone, the last one fills its place
    of several       a group stays while its unit holds it, else it moves to that with the most room, or to a new one

A group that no unit would hold is a matter of other units altogether.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tallbayes.groups.bundling import Bundling, plan_units
from tallbayes.rows.table import shuffled_order

ROOM = 1.25
BOUNDLESS = 2**62


class Rearranged(NamedTuple):
    """Where groups are now; which units of before are no more what they were, and which of now are new or others. Of
    units that only stand elsewhere, from where to where."""

    plan: Bundling
    left: np.ndarray
    made: np.ndarray
    moved_from: np.ndarray
    moved_to: np.ndarray


def shelved(counts: np.ndarray, by_sums: bool = False) -> Bundling:
    """Groups of so many rows in units with room, in random order; a group without rows is in none. Units that know sums
    over their rows alone hold any number of these."""
    present = np.flatnonzero(counts)
    roomy = np.ceil(ROOM * counts[present]).astype(np.int64)
    plan = plan_units(roomy, shuffled_order(len(present)), alone=by_sums, finely=True)
    plan = replace(plan, length=BOUNDLESS) if by_sums else plan
    slots = plan.slots if plan.is_plain else plan.slots + max(1, int((ROOM - 1) * plan.slots))
    unit, slot, first = (np.full(len(counts), -1, each.dtype) for each in (plan.unit, plan.slot, plan.first))
    unit[present], slot[present], first[present] = plan.unit, plan.slot, plan.first
    plan = replace(plan, counts=counts, unit=unit, slot=slot, first=first, slots=slots)
    return plan if plan.is_plain else _packed(plan, np.arange(plan.units))


def rearranged(plan: Bundling, counts: np.ndarray, changed: np.ndarray) -> Rearranged | None:
    """With other numbers of rows in the groups that changed, some of which may be new; None where units cannot hold
    them."""
    new = len(counts) - len(plan.unit)
    unit, slot, first = (np.append(each, np.full(new, -1, each.dtype)) for each in (plan.unit, plan.slot, plan.first))
    wider = replace(plan, counts=counts, unit=unit, slot=slot, first=first)
    if _needed(plan, counts).max() > plan.length:
        return None
    return _one_by_one(wider, changed) if plan.is_plain else _among_several(wider, changed)


def part_of(plan: Bundling, units: np.ndarray) -> tuple[Bundling, np.ndarray]:
    """Some units as a plan of their own, and which groups they are of."""
    place = np.full(plan.units + 1, -1)
    place[units] = np.arange(len(units))
    groups = np.flatnonzero(place[plan.unit] >= 0)
    parts = place[plan.unit[groups]].astype(np.int32), plan.slot[groups], plan.first[groups]
    return Bundling(plan.counts[groups], *parts, len(units), plan.slots, plan.strip, plan.length), groups


def _one_by_one(plan: Bundling, changed: np.ndarray) -> Rearranged:
    before, unit = plan.unit, plan.unit.copy()
    gone = changed[(before[changed] >= 0) & (plan.counts[changed] == 0)]
    come = changed[(before[changed] < 0) & (plan.counts[changed] > 0)]
    slot, first = plan.slot.copy(), plan.first.copy()
    unit[gone], slot[come], first[come] = -1, 0, 0
    free = np.concatenate([np.sort(before[gone]), plan.units + np.arange(len(come))])[: max(len(come), len(gone))]
    unit[come] = free[: len(come)]
    holes = free[len(come) :]
    units = plan.units + len(come) - len(gone)
    movers = np.flatnonzero(unit >= units)
    moved_from, moved_to = unit[movers], holes[holes < units]
    unit[movers] = moved_to
    made = np.unique(unit[changed[plan.counts[changed] > 0]])
    left = np.unique(before[changed[before[changed] >= 0]])
    is_elsewhere = ~np.isin(movers, changed)
    after = replace(plan, unit=unit, slot=slot, first=first, units=units)
    return Rearranged(after, left, made, moved_from[is_elsewhere], moved_to[is_elsewhere])


def _among_several(plan: Bundling, changed: np.ndarray) -> Rearranged:
    unit, units, needed = plan.unit.copy(), plan.units, _needed(plan, plan.counts)
    touched = set(unit[changed[unit[changed] >= 0]].tolist())
    unit[changed[plan.counts[changed] == 0]] = -1
    inside = unit >= 0
    loads = np.bincount(unit[inside], needed[inside], units).astype(np.int64)
    taken = np.bincount(unit[inside], minlength=units)
    waiting = []
    for group in changed[np.argsort(-needed[changed], kind="stable")].tolist():
        own = unit[group]
        if needed[group] and (own < 0 or loads[own] > plan.length):
            waiting.append(group)
            if own >= 0:
                loads[own] -= needed[group]
                taken[own] -= 1
                unit[group] = -1
    for group in waiting:
        fits = np.flatnonzero((loads + needed[group] <= plan.length) & (taken < plan.slots))
        if not len(fits):
            loads, taken, fits = np.append(loads, 0), np.append(taken, 0), np.array([units])
            units += 1
        own = int(fits[np.argmin(loads[fits])])
        unit[group], loads[own], taken[own] = own, loads[own] + needed[group], taken[own] + 1
        touched.add(own)
    made = np.array(sorted(touched), np.int64)
    nothing = np.empty(0, np.int64)
    after = _packed(replace(plan, unit=unit, units=units), made)
    return Rearranged(after, made[made < plan.units], made, nothing, nothing)


def _needed(plan: Bundling, counts: np.ndarray) -> np.ndarray:
    """Places of groups of so many rows, in whole strips where units are of several."""
    return counts if plan.is_plain else -(-counts // plan.strip) * plan.strip


def _packed(plan: Bundling, units: np.ndarray) -> Bundling:
    """With the groups of these units one behind the other."""
    chosen = np.zeros(plan.units + 1, bool)
    chosen[units] = True
    groups = np.flatnonzero(chosen[plan.unit] & (plan.unit >= 0))
    groups = groups[np.argsort(plan.unit[groups], kind="stable")]
    _, begins, counts = np.unique(plan.unit[groups], return_index=True, return_counts=True)
    needed = _needed(plan, plan.counts)[groups]
    ends = np.cumsum(needed)
    slot, first = plan.slot.copy(), plan.first.copy()
    slot[groups] = np.arange(len(groups)) - np.repeat(begins, counts)
    first[groups] = ends - needed - np.repeat(ends[begins] - needed[begins], counts)
    gone = plan.unit < 0
    slot[gone], first[gone] = -1, -1
    return replace(plan, slot=slot, first=first)
