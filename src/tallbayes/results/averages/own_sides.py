"""Rows of a model of one's own with one of its arrays changed in two ways.

An array is told by its name among the rows, or by ("x", 2) where it has columns. With groups rows come group by group
as the fit holds them, or as they are given, with the column of the group among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.groups.known import KnownGroups
from tallbayes.groups.placing import new_unit
from tallbayes.groups.units import rows_that_count
from tallbayes.model.groups.bundles import is_bundle
from tallbayes.model.space import shaped
from tallbayes.moments import Floats
from tallbayes.posterior.group_predictions import OWN_NEW_NODES, OfRows, OwnOutcome
from tallbayes.programs.identity import output_of
from tallbayes.programs.later import jax
from tallbayes.results.averages.asking import NEW, Asked, require_choice, require_known
from tallbayes.results.averages.kinds import NewGroupRow, OwnGroupRows, OwnRow
from tallbayes.results.averages.sides import WEIGHT, Change, ChangedRows, reach_of
from tallbayes.results.fitted import fitted_of, kept_posterior
from tallbayes.results.groups.predictions import known_of, own_groups_like
from tallbayes.results.result import Result
from tallbayes.rows.columns import BATCH_ROWS
from tallbayes.structure import Structure

Rows = dict[str, Any]
Parts = Callable[[], Iterator[tuple[Rows, np.ndarray | None]]]


def of_own_model(result: Result, change: Change, rows: Any, groups: str, response: Any) -> Asked:
    """What is asked of it; a function that is given stands in for `predict`."""
    live = kept_posterior(result).live
    if live is None:
        hint = "ask in the process that made the result: functions are not kept in a file"
        raise InputError(explain("a model of one's own with its functions", "a result read from a file", hint))
    target = live[0]
    function = target.predict if response is None else response
    has_groups = target.integrated is not None
    if not callable(function):
        takes = "theta, b, row" if has_groups else "theta, row"
        hint = f"response=lambda {takes}: ..., or tb.Model(..., predict=lambda {takes}: ...)"
        got = "one without predict=" if response is None else repr(response)
        raise InputError(explain("a model that says what to expect of a row", got, hint))
    require_choice(groups, has_groups)
    known = known_of(result) if has_groups else None
    parts = _parts(result, rows, known)
    integral = None if known is None else known.integral
    batches = partial(_changed, change, parts)
    names = _outputs(function, target, next(batches(), None), integral)
    if integral is None and not has_groups:
        return Asked(OwnRow(target.space, function), batches, names)
    if known is None or integral is None:
        got = "a result that has their rows no longer"
        raise InputError(explain("a result with its groups and their rows", got, "the process that fitted it"))
    outputs = 1 if names is None else len(names)
    if groups == NEW:
        wider = replace(integral, nodes=max(integral.nodes, OWN_NEW_NODES[integral.groups.size]))
        kind = NewGroupRow(OfRows(target.space, OwnOutcome(function, wider), wider), outputs)
        unit = new_unit(target, kept_posterior(result).anchor.mode, known.units["rows"])
        return Asked(kind, batches, names, unit=unit)
    return Asked(OwnGroupRows(target.space, OwnOutcome(function, integral), integral), batches, names, known=known)


def _outputs(function: Any, target: Any, batch: ChangedRows | None, integral: Any) -> tuple[Any, ...] | None:
    """Names of what it says of a row; None of one number."""
    if batch is None:
        raise DataError(explain("rows to average over", "none", "check the table"))
    theta = shaped(jax.eval_shape(target.space.theta, np.zeros(target.dimension)))
    row = jax.tree.map(lambda leaf: np.asarray(leaf)[0, 0], batch.rows)
    given = (theta, row) if integral is None else (theta, integral.groups.vector(np.zeros(integral.groups.size)), row)
    structure = Structure.of(shaped(output_of(function, *given)))
    if structure.size == 1:
        return None
    return tuple(label.removeprefix(".") for label in structure.labels(""))


def _parts(result: Result, rows: Any, known: KnownGroups | None) -> Parts:
    """Rows in parts, with the places of their groups."""
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


def _given(rows: Any, known: KnownGroups | None) -> Iterator[tuple[Rows, np.ndarray | None]]:
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
        yield {name: each[part] for name, each in own.items()}, None if places is None else places[part]


def _of_table(result: Result) -> Iterator[tuple[Rows, np.ndarray | None]]:
    table = fitted_of(result).table
    rows = _require_dict(table.rows)
    for start in range(0, table.num_rows, BATCH_ROWS):
        part = slice(start, min(start + BATCH_ROWS, table.num_rows))
        yield jax.tree.map(lambda leaf, part=part: np.asarray(leaf[part]), rows), None


def _of_units(known: KnownGroups) -> Iterator[tuple[Rows, np.ndarray | None]]:
    units, size = known.units, 1
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
        yield own | {known.integral.groups.by: names[places]}, places


def _changed(change: Change, parts: Parts) -> Iterator[ChangedRows]:
    reach = None
    if change.is_slope:
        reach = reach_of(change.column, (_numbers(rows, change.column) for rows, _ in parts()))
    for rows, places in parts():
        weights = rows.pop(WEIGHT, None)
        count = len(jax.tree.leaves(rows)[0])
        own = _numbers(rows, change.column) if reach is not None else np.zeros(count)
        low, high, divisors = change.sides(own, reach)
        w = np.ones(count) if weights is None else np.asarray(weights, np.float64)
        labels = np.zeros(count, np.int64)
        if change.by is not None:
            labels = np.round(each, 9) if (each := _column(rows, change.by)).dtype.kind == "f" else each
            labels = labels.astype(object)
        both = [_with(rows, change.column, value) for value in (low, high)]
        sided = jax.tree.map(lambda a, b: np.stack([np.asarray(a), np.asarray(b)], axis=1), *both)
        yield ChangedRows(_plain(sided), w, divisors, labels, places)


def _plain(rows: Rows) -> Rows:
    """Without text, which no function of JAX reads."""
    return {name: each for name, each in rows.items() if np.asarray(each).dtype.kind in "biuf"}


def _place(rows: Rows, column: Any) -> tuple[str, tuple[Any, ...]]:
    name, *index = column if isinstance(column, tuple) else (column,)
    if name not in rows:
        names = ", ".join(repr(each) for each in rows if each != WEIGHT)
        raise InputError(explain("an array of the rows by its name", repr(column), f"one of {names}"))
    shape = np.shape(rows[name])[1:]
    if len(index) != len(shape) or any(not 0 <= at < most for at, most in zip(index, shape, strict=True)):
        hint = f"({name!r}, {', '.join('0' * len(shape))})" if shape else repr(name)
        raise InputError(explain(f"one number a row of {name!r}, of shape {shape}", repr(column), hint))
    return name, tuple(index)


def _column(rows: Rows, column: Any) -> np.ndarray:
    name, index = _place(rows, column)
    return np.asarray(np.asarray(rows[name])[(slice(None), *index)])


def _numbers(rows: Rows, column: Any) -> Floats:
    values = _column(rows, column)
    if values.dtype.kind not in "fiu":
        raise DataError(explain("numbers for a slope", f"{values.dtype}", "average_effect of two of its values"))
    return values.astype(np.float64)


def _with(rows: Rows, column: Any, value: Any) -> Rows:
    name, index = _place(rows, column)
    old = np.asarray(rows[name])
    try:
        given = np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(explain(f"a number for {column!r}", repr(value), "1.0")) from error
    whole = old.dtype.kind in "biu" and np.all(given == np.round(given))
    new = old.copy() if whole or old.dtype.kind == "f" else old.astype(np.float64)
    new = new.astype(np.float64) if new.dtype.kind == "f" else new
    new[(slice(None), *index)] = given
    return {**rows, name: new}
