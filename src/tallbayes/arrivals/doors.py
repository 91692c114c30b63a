"""Doors: what `Result.update` and `Result.without` do, for rows as they were given.

A fit by a formula encodes them as its own; where a category is new and asked for, room is made for it first (`levels`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.arrivals.days import Standing, answered, arrays_of, begun, require_same_weights
from tallbayes.arrivals.disk.tables import OnDisk
from tallbayes.arrivals.foretold import Foretold, foretell
from tallbayes.arrivals.groups.encoded import encode_grouped, with_effects_of
from tallbayes.arrivals.groups.standing import CarriedGroups
from tallbayes.arrivals.levels import with_levels
from tallbayes.arrivals.role import HeldRows
from tallbayes.arrivals.standing import Carried
from tallbayes.errors import InputError, explain
from tallbayes.estimation.question import Question, read_changes
from tallbayes.formula.again.arriving import (
    FormulaDoor,
    encode_arriving,
    read_arriving,
    require_known,
    unknown_levels,
)
from tallbayes.formula.fit import described
from tallbayes.results.fitted import FitTable
from tallbayes.rows.sources import Joined

if TYPE_CHECKING:
    from tallbayes.results.result import Result

NEW_LEVELS = ("refuse", "add")


@dataclass(frozen=True, eq=False)
class GivenRows:
    """Rows as they were given, and how they are to be read; of a model or a family all but the weights is empty."""

    rows: Any
    weights: Any = None
    offset: Any = None
    missing: str = "error"
    new_levels: str = "refuse"
    foretell: bool = False


def updated(result: Result, given: GivenRows, **asked: Any) -> Result:
    """All rows so far and these, as `Result.update` has it."""
    standing, door = standing_of(result), _door_of(result)
    changes = read_changes(standing.question, **_chosen(asked))
    new = _new(standing, given)
    standing, door, arrays = read_given(standing, door, new)
    told = foretell(result, standing.target, new.rows, arrays) if given.foretell else None
    after = replace(standing.with_rows(_held(standing).landed(given.rows, arrays)), foretold=told)
    came, total = after.num_rows - standing.num_rows, after.num_rows
    said = f"rows: {came:,} came on day {after.day}, {total:,} in all"
    after = replace(after, question=changes.kept(standing.question), told=(*standing.told, *after.told, said))
    return _described(answered(after, changes), after, door, given)


def withdrawn(result: Result, given: GivenRows, **asked: Any) -> Result:
    """All rows so far but these, as `Result.without` has it."""
    standing, door = standing_of(result), _door_of(result)
    changes = read_changes(standing.question, **_chosen(asked))
    standing, door, arrays = read_given(standing, door, replace(_new(standing, given), new_levels="refuse"))
    after = standing.without(arrays, _held(standing).places_of(given.rows))
    gone, total = standing.num_rows - after.num_rows, after.num_rows
    said = f"rows: {gone:,} withdrawn on day {after.day}, {total:,} left; nothing of them is in this fit or a later one"
    after = replace(after, question=changes.kept(standing.question), told=(*after.told, said))
    return _described(answered(after, changes), after, door, None)


def foretold(result: Result, given: GivenRows) -> Foretold:
    """What the result says of these rows, as `Result.foretell` has it."""
    standing = standing_of(result)
    given = _new(standing, given)
    _, _, arrays = read_given(standing, _door_of(result), given)
    return foretell(result, standing.target, given.rows, arrays)


def standing_on(result: Result, days: Sequence[tuple[GivenRows, bool]]) -> Result:
    """The result, carried over days whose answers are not wanted any more: rows that came, or were withdrawn."""
    standing, door = standing_of(result), _door_of(result)
    for given, gone in days:
        standing, door, arrays = read_given(standing, door, given)
        standing = standing.without(arrays) if gone else standing.with_rows(arrays)
        door = None if door is None else replace(door, table=None) if gone else _with_table(door, given)
    return replace(result, standing=replace(standing, told=()), door=door)


def standing_of(result: Result) -> Standing:
    """What a result stands on: carried since its last update, or made of its fit; it has nothing to say yet."""
    if not isinstance(result.question, Question):
        got = "one loaded from a file, or made otherwise"
        hint = "the fit in the process that has its rows: tb.fit or tb.estimate, and update from there"
        raise InputError(explain("a result of this process, which still has its rows", got, hint))
    if isinstance(result.standing, Standing):
        return replace(result.standing, told=())
    return begun(result.question, result)


def _door_of(result: Result) -> FormulaDoor | None:
    return result.door if isinstance(result.door, FormulaDoor) else None


def read_given(standing: Standing, door: FormulaDoor | None, given: GivenRows) -> tuple[Standing, Any, Any]:
    """The rows as arrays, with the standing and the door that have room for them."""
    if given.new_levels not in NEW_LEVELS:
        raise InputError(explain(f"new_levels one of {NEW_LEVELS}", repr(given.new_levels), "new_levels='add'"))
    if door is None:
        if given.offset is not None or given.missing != "error":
            hint = "the offset in row['offset'], and rows that are complete"
            raise InputError(explain("offset and missing for a fit by a formula", "a model or a family", hint))
        return standing, None, arrays_of(standing.question, given.rows, given.weights)
    kept = door.table
    weights = given.weights
    if weights is None and kept is not None and isinstance(kept.weights, str):
        weights = kept.weights
    encoding, parsed, request, rows = read_arriving(
        door.encoding, door.family, given.rows, weights, given.offset, given.missing
    )
    if isinstance(standing, CarriedGroups):
        require_same_weights(standing.question, weights)
        return encode_grouped(standing, door, (parsed, request, rows), given.new_levels == "add")
    unknown = unknown_levels(encoding.coding, rows)
    if unknown and given.new_levels == "add":
        standing, door = with_levels(standing, door, {name: levels for name, (levels, _) in unknown.items()})
    require_known(door.encoding.coding, rows)
    arrays, found = encode_arriving(door.encoding, parsed, request, rows)
    return standing, door, arrays_of(standing.question, arrays, found)


def _described(found: Result, morning: Standing, door: FormulaDoor | None, given: GivenRows | None) -> Result:
    """An answer with what it was asked of, and in the words of its formula if there is one."""
    if isinstance(found.standing, Carried) and isinstance(morning, Carried):
        found = replace(found, standing=replace(found.standing, morning=replace(morning, morning=None)))
    if door is None:
        return found
    if isinstance(morning, CarriedGroups):
        found = with_effects_of(morning, door, found)
    if isinstance(morning.rows, OnDisk):
        # It has all rows, and these alone.
        kept = FitTable(None) if door.table is None else door.table
        door = replace(door, table=replace(kept, data=morning.rows.source))
    else:
        # Tables in memory that were given still have rows that were withdrawn.
        door = replace(door, table=None) if given is None else _with_table(door, given)
    return described(door, found)


def _new(standing: Standing, given: GivenRows) -> GivenRows:
    """What is new of the rows that were given, and how they are to be read."""
    held = _held(standing)
    return replace(given, rows=held.new_of(given.rows), missing=held.missing_of(given.missing))


def _held(standing: Standing) -> HeldRows:
    """What holds its rows."""
    return standing.rows.rows if isinstance(standing, CarriedGroups) else standing.rows


def _with_table(door: FormulaDoor, given: GivenRows) -> FormulaDoor:
    """With the table that came behind those of before."""
    kept = door.table
    if kept is None:
        return door
    weights, offset = kept.weights, kept.offset
    if weights is not None and not isinstance(weights, str):
        weights = np.concatenate([np.asarray(weights), np.asarray(given.weights)])
    if offset is not None:
        offset = np.concatenate([np.asarray(offset), np.asarray(given.offset)])
    joined = replace(kept, data=Joined.of(kept.data, given.rows), weights=weights, offset=offset)
    return replace(door, table=joined)


def _chosen(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if value is not None}
