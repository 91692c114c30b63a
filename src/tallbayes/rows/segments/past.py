"""The past: whether the rows that a table had are still the first ones of it.

A table that has grown since has the same digests of the same stretches, but where records have been merged: there the
old stretches are digested once more. After a withdrawal other rows stand in the places of some.
"""

from __future__ import annotations

from tallbayes.rows.on_disk import Stored
from tallbayes.rows.segments.checksums import digests_of
from tallbayes.rows.segments.record import pieces


def other_than(then: Stored, now: Stored) -> str:
    """In words, what is not as it was; empty where all rows of then are the first ones now."""
    if now.withdrawals != then.withdrawals:
        return f"{now.withdrawals} withdrawals, where there were {then.withdrawals}"
    if now.num_rows < then.num_rows:
        return f"{now.num_rows:,} rows, where there were {then.num_rows:,}"
    if [(each.name, each.dtype, each.shape) for each in now.fields] != [
        (each.name, each.dtype, each.shape) for each in then.fields
    ]:
        return "other fields"
    places = pieces(then.segments)
    for field in then.fields:
        known = dict(zip(pieces(now.segments), now.digests[field.name], strict=True))
        merged = [piece for piece in places if piece not in known]
        known |= dict(zip(merged, digests_of(now, field, merged), strict=True))
        for piece, digest in zip(places, then.digests[field.name], strict=True):
            if known[piece] != digest:
                return f"others in rows {piece[0]:,} to {piece[1] - 1:,} of {field.name!r}"
    return ""
