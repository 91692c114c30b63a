"""The centre of all paths: the mode, other modes, and the Gaussian where the mass is."""

from __future__ import annotations

from dataclasses import replace

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.other_modes import search_modes
from tallbayes.anchor.recentring import NO_MODE, Recentred, recentre
from tallbayes.setup.balancing import Wish, balance, may_move
from tallbayes.setup.known import Known
from tallbayes.setup.preparation import Placed, Prepared, find_centre
from tallbayes.setup.record import Search
from tallbayes.watch import aside, begin, current
from tallbayes.workers.executors import Executor


def set_up(
    known: Known, placed: Placed, anchor: Anchor | None, wish: Wish | None, executor: Executor
) -> tuple[Prepared, Search]:
    """The centre of all paths, and what was found on the way to it; what is known already is not done again.

    Without a wish it stays where the mode is.
    """
    watch = current()
    assert watch is not None
    if known.prepared is None:
        begin("mode")
        watch.found = known.saw
        start = placed if known.point is None else replace(placed, start=known.point.theta)
        rough = wish is not None and may_move(placed.target, placed.table.num_rows, wish)
        known.prepared = aside(find_centre, start, anchor, executor, rough)
        watch.found = None
    prepared = known.prepared = replace(known.prepared, table=placed.table)
    if known.search is None:
        begin("second mode")
        if placed.modes:
            known.search = (), (f"modes: {placed.modes}",)
        else:
            prepared, known.search = aside(_searched, prepared, anchor is not None, executor)
        known.prepared = prepared
    if wish is not None and anchor is None and prepared.anchor.has_mode and not known.centred:
        begin("recentring")
        return aside(_recentred, prepared, known.search, wish, executor)
    return prepared, known.search


def _searched(prepared: Prepared, anchored_before: bool, executor: Executor) -> tuple[Prepared, Search]:
    """Look for a second mode, unless an earlier run has; whether there is one, and what to say of it."""
    notes = (prepared.anchor.note,) if prepared.anchor.note else ()
    if anchored_before:
        return prepared, ((), (*notes, "modes: not searched, since an anchor was given"))
    if not prepared.anchor.has_mode:
        return prepared, ((), (*notes, f"centre: {NO_MODE}", "modes: not searched, since no climb ends"))
    search = search_modes(prepared.target, prepared.table, prepared.anchor, executor)
    spent = prepared.setup_evaluations + search.evaluations
    return replace(prepared, anchor=search.anchor, setup_evaluations=spent), (
        search.others,
        (*notes, f"modes: {search.note}"),
    )


def _recentred(prepared: Prepared, search: Search, wish: Wish, executor: Executor) -> tuple[Prepared, Search]:
    """Anchor to the posterior's mean where its mass is far from the mode, and say so; in balance where that pays."""
    target, table = prepared.target, prepared.table
    found = recentre(target, table, prepared.anchor, executor)
    others = [recentre(target, table, peak.anchor, executor) for peak in search[0]]
    notes = (*search[1], found.note) if found.note else search[1]
    if not found.anchor.recentred:
        balanced = balance(target, table, found.anchor, wish, executor, bool(others))
        found = Recentred(balanced.anchor, found.shift, found.evaluations + balanced.evaluations)
    spent = prepared.setup_evaluations + sum(each.evaluations for each in (found, *others))
    moved = tuple(replace(peak, anchor=each.anchor) for peak, each in zip(search[0], others, strict=True))
    return replace(prepared, anchor=found.anchor, setup_evaluations=spent), (moved, notes)
