"""Shelves: whatever comes and goes, every group is in one unit that holds it, and units that nobody named stay."""

import numpy as np
import pytest

from tallbayes.arrivals.groups.shelves import part_of, rearranged, shelved


def uneven(rng, groups):
    return (1 + 60 * rng.random(groups) ** 6 * 10).astype(np.int64)


def of_units(plan):
    """By unit, the groups it is of, with where each begins and how many rows it has."""
    found = {}
    for group in np.flatnonzero(plan.unit >= 0):
        found.setdefault(int(plan.unit[group]), set()).add((int(group), int(plan.first[group]), int(plan.slot[group])))
    return found


def check(plan, counts):
    assert np.array_equal(plan.unit >= 0, counts > 0)
    assert plan.unit.max() < plan.units
    if plan.is_plain:
        assert len(np.unique(plan.unit[counts > 0])) == np.sum(counts > 0) == plan.units
        return
    needed = -(-counts // plan.strip) * plan.strip
    for groups in of_units(plan).values():
        ordered = sorted(groups, key=lambda each: each[1])
        ends = [first + needed[group] for group, first, _ in ordered]
        assert all(start >= end for (_, start, _), end in zip(ordered[1:], ends, strict=False))
        assert ends[-1] <= plan.length
        assert sorted(slot for *_, slot in ordered) == list(range(len(ordered)))
        assert len(ordered) <= plan.slots


@pytest.mark.parametrize("several", [False, True])
def test_every_group_has_room_on_every_day(several):
    rng = np.random.default_rng(several)
    counts = uneven(rng, 600) if several else rng.integers(1, 40, 90)
    plan = shelved(counts)
    assert plan.is_plain is not several
    check(plan, counts)
    for _ in range(60):
        before, counts = plan, np.append(counts, np.zeros(rng.integers(0, 3), np.int64))
        changed = np.unique(np.append(rng.integers(0, len(counts), 12), np.arange(len(plan.unit), len(counts))))
        counts = counts.copy()
        counts[changed] = np.where(rng.random(len(changed)) < 0.3, 0, np.minimum(counts[changed] + 1, counts.max()))
        how = rearranged(plan, counts, changed)
        plan = how.plan
        check(plan, counts)
        kept = of_units(plan)
        moved = dict(zip(how.moved_to.tolist(), how.moved_from.tolist(), strict=True))
        for unit, groups in of_units(before).items():
            if unit not in how.left and unit not in how.moved_from:
                assert kept[unit] == groups
        for unit in kept:
            if unit not in how.made:
                there = of_units(before)[moved.get(unit, unit)]
                assert {group for group, *_ in there} == {group for group, *_ in kept[unit]}
        if len(how.made):
            part, groups = part_of(plan, how.made)
            assert np.array_equal(part.counts, counts[groups])
            assert np.array_equal(how.made[part.unit], plan.unit[groups])


def test_what_outgrows_its_unit_is_told():
    counts = np.full(30, 10)
    plan = shelved(counts)
    counts[3] = plan.length + 1
    assert rearranged(plan, counts, np.array([3])) is None
    by_sums = shelved(counts, by_sums=True)
    assert by_sums.is_plain
    counts[3] = 10**9
    assert rearranged(by_sums, counts, np.array([3])) is not None
