"""Doors: what `Result.update` and `Result.without` do, for rows as they were given."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tallbayes.arrivals.days import answered, arrays_of, begun
from tallbayes.arrivals.standing import Standing
from tallbayes.errors import InputError, explain
from tallbayes.estimation.question import read_changes

if TYPE_CHECKING:
    from tallbayes.results.result import Result


def updated(result: Result, rows: Any, weights: Any = None, **asked: Any) -> Result:
    """All rows so far and these, as `Result.update` has it."""
    standing, changes = standing_of(result), read_changes(_question(result), **_given(asked))
    arrays = arrays_of(standing.question, rows, weights)
    after = standing.with_rows(arrays)
    came, total = after.num_rows - standing.num_rows, after.num_rows
    said = f"rows: {came:,} came on day {after.day}, {total:,} in all"
    after = replace(after, question=changes.kept(standing.question), told=(*after.told, said))
    return answered(after, changes)


def withdrawn(result: Result, rows: Any, weights: Any = None, **asked: Any) -> Result:
    """All rows so far but these, as `Result.without` has it."""
    standing, changes = standing_of(result), read_changes(_question(result), **_given(asked))
    arrays = arrays_of(standing.question, rows, weights)
    after = standing.without(arrays)
    gone, total = standing.num_rows - after.num_rows, after.num_rows
    said = f"rows: {gone:,} withdrawn on day {after.day}, {total:,} left; nothing of them is in this fit or a later one"
    after = replace(after, question=changes.kept(standing.question), told=(*after.told, said))
    return answered(after, changes)


def standing_of(result: Result) -> Standing:
    """What a result stands on: carried since its last update, or made of its fit."""
    if isinstance(result.standing, Standing):
        return result.standing
    return begun(_question(result), result)


def _question(result: Result) -> Any:
    known = result.question if result.standing is None else result.standing.question
    if known is None:
        got = "one loaded from a file, or made otherwise"
        hint = "the fit in the process that has its rows: tb.fit or tb.estimate, and update from there"
        raise InputError(explain("a result of this process, which still has its rows", got, hint))
    return known


def _given(asked: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in asked.items() if value is not None}
