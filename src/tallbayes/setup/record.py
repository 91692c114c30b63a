"""Recall: set-up from a ledger, where it is on record as a whole; else it is done, and put on record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tallbayes.anchor.anchor import Derived
from tallbayes.anchor.other_modes import Peak
from tallbayes.records.ledger import Ledger
from tallbayes.records.values import all_fields
from tallbayes.setup.preparation import Placed, Prepared

# The other modes, and what to say of the search.
Search = tuple[tuple[Peak, ...], tuple[str, ...]]


def recalled(
    ledger: Ledger | None, placed: Placed, set_up: Callable[[], tuple[Prepared, Search]]
) -> tuple[Prepared, Search]:
    """The set-up on record, or that which is done now."""
    if ledger is None:
        return set_up()
    known = ledger.entry(None, "set-up", "")
    if known is not None:
        parts = (
            placed.target,
            placed.table,
            replace(known["anchor"], derived=Derived(**known["derived"])),
            known["evaluations"],
        )
        precision, groups = (placed.precision, placed.asked_precision), (placed.integral_error, placed.grouping)
        prepared = Prepared(*parts, *precision, None, None, *groups)
        return prepared, (tuple(Peak(*peak) for peak in known["modes"]), tuple(known["notes"]))
    prepared, search = set_up()
    derived = all_fields(prepared.anchor.with_derived().derived)
    spent = prepared.setup_evaluations
    value = {"anchor": prepared.anchor, "derived": derived, "evaluations": spent}
    modes = [(peak.anchor, peak.share) for peak in search[0]]
    ledger.enter(None, "set-up", "", {**value, "modes": modes, "notes": search[1]})
    ledger.forget("sums")
    return prepared, search
