"""Rows of a model of one's own, as its functions read them: those of the fit, or given ones, in parts.

With groups each comes with the column of the group, and the place of its own among those that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.groups.known import KnownGroups
from tallbayes.groups.units import rows_that_count
from tallbayes.model.groups.bundles import is_bundle
from tallbayes.programs.later import jax
from tallbayes.results.fitted import fitted_of
from tallbayes.results.groups.predictions import own_groups_like
from tallbayes.results.result import Result
from tallbayes.rows.columns import BATCH_ROWS
from tallbayes.rows.table import Table, shuffled_order

Rows = dict[str, Any]
# Rows, the places of their groups, and their numbers.
RowsPart = tuple[Rows, np.ndarray | None, np.ndarray]
RowsInParts = Callable[[], Iterator[RowsPart]]


def rows_in_parts(result: Result, rows: Any, known: KnownGroups | None) -> RowsInParts:
    """Those of the fit, or given ones."""
    if rows is not None:
        return lambda: _given(rows, known)
    if known is not None:
        return lambda: _of_units(known)
    return lambda: _of_table(result)


def _require_dict(rows: Any) -> Rows:
    if not isinstance(rows, Mapping):
        hint = 'rows={"x": x, "y": y}, whose functions then read row["x"]'
        raise InputError(explain("rows that are a dict of arrays, to change one by its name", "others", hint))
    return dict(rows)


def _given(rows: Any, known: KnownGroups | None) -> Iterator[RowsPart]:
    own = {name: np.asarray(each) for name, each in _require_dict(rows).items()}
    places = None
    if known is not None:
        by = known.integral.groups.by
        if by not in own:
            raise InputError(explain(f"rows with the column {by!r}", f"{sorted(map(str, own))}", "add it"))
        column = own_groups_like(own.pop(by), known.levels)
        places = known.places(column)
        require_known(by, places)
        own[by] = column
    count = len(jax.tree.leaves(own)[0])
    for start in range(0, count, BATCH_ROWS):
        part = slice(start, start + BATCH_ROWS)
        numbers = np.arange(start, min(start + BATCH_ROWS, count))
        yield {name: each[part] for name, each in own.items()}, None if places is None else places[part], numbers


def _of_table(result: Result) -> Iterator[RowsPart]:
    table = fitted_of(result).table
    rows, order = _require_dict(table.rows), source_order(table)
    for start in range(0, table.num_rows, BATCH_ROWS):
        numbers = np.arange(start, min(start + BATCH_ROWS, table.num_rows))
        part: Any = slice(start, start + len(numbers)) if order is None else order[numbers]
        yield jax.tree.map(lambda leaf, part=part: np.asarray(leaf[part]), rows), None, numbers


def _of_units(known: KnownGroups) -> Iterator[RowsPart]:
    units, first = known.units, 0
    if "rows" not in units:
        raise InputError(explain("rows of groups", "sums over them alone", "rows=, those that were fitted"))
    count, length = jax.tree.leaves(units["rows"])[0].shape[:2]
    size = max(1, BATCH_ROWS // length)
    names = np.empty(known.units["group"].size, known.levels.dtype)
    names[known.order] = known.levels
    for start in range(0, count, size):
        part = slice(start, min(start + size, count))
        inside = rows_that_count(units, part)
        own = {name: np.asarray(leaf[part])[inside] for name, leaf in _require_dict(units["rows"]).items()}
        at = np.arange(part.start, part.stop)[:, None]
        if is_bundle(units):
            strips = np.asarray(units["strip"])[part]
            at = at * units["group"].shape[1] + np.repeat(strips, length // strips.shape[1], axis=1)
        places = np.broadcast_to(at, inside.shape)[inside]
        yield own | {known.integral.groups.by: names[places]}, places, np.arange(first, first + len(places))
        first += len(places)


def require_known(by: str, codes: np.ndarray) -> None:
    """Refuse rows of groups that the fit has not seen: they share effects of which nothing is known."""
    if np.any(codes < 0):
        got = f"{int(np.sum(np.any(codes.reshape(len(codes), -1) < 0, axis=1))):,} rows of others in a batch"
        hint = "groups='new' for the average over new groups, or those rows left out"
        raise InputError(explain(f"rows of groups of {by!r} that were fitted", got, hint))


def source_order(table: Table) -> np.ndarray | None:
    """Where each row of the source lies; None where it is in its place."""
    return np.argsort(shuffled_order(table.num_rows)) if table.shuffled and table.stored is None else None
