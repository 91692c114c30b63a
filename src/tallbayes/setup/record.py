"""Recall: set-up from a ledger, where it is on record as a whole; else it is done, and put on record."""

from __future__ import annotations

from collections.abc import Callable

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.other_modes import Peak
from tallbayes.records.ledger import Ledger
from tallbayes.setup.preparation import Placed, Prepared

# The other modes, and what to say of the search.
Search = tuple[tuple[Peak, ...], tuple[str, ...]]
# Roots and inverses of matrices, which another number of threads may round otherwise.
DERIVED = ("factor", "whitening", "mismatch", "covariance")


def recalled(
    ledger: Ledger | None, placed: Placed, set_up: Callable[[], tuple[Prepared, Search]]
) -> tuple[Prepared, Search]:
    """The set-up on record, or that which is done now."""
    if ledger is None:
        return set_up()
    known = ledger.entry(None, "set-up", "")
    if known is not None:
        parts = placed.target, placed.table, _restored(known["anchor"], known["derived"]), known["evaluations"]
        prepared = Prepared(*parts, placed.precision, placed.asked_precision)
        return prepared, (tuple(Peak(*peak) for peak in known["modes"]), tuple(known["notes"]))
    prepared, search = set_up()
    derived = {name: getattr(prepared.anchor, name) for name in DERIVED}
    spent = prepared.setup_evaluations
    value = {"anchor": prepared.anchor, "derived": derived, "evaluations": spent}
    modes = [(peak.anchor, peak.share) for peak in search[0]]
    ledger.enter(None, "set-up", "", {**value, "modes": modes, "notes": search[1]})
    ledger.forget("sums")
    return prepared, search


def _restored(anchor: Anchor, derived: dict[str, object]) -> Anchor:
    vars(anchor).update(derived)
    return anchor
