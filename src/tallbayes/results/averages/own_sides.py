"""Rows of a model of one's own with one of its arrays changed in two ways.

An array is told by its name among the rows, or by ("x", 2) where it has columns. With groups rows come group by group
as the fit holds them, or as they are given, with the column of the group among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain
from tallbayes.groups.placing import new_unit
from tallbayes.model.space import shaped
from tallbayes.moments import Floats
from tallbayes.posterior.group_predictions import OWN_NEW_NODES, OfRows, OwnOutcome
from tallbayes.programs.identity import output_of
from tallbayes.programs.later import jax
from tallbayes.results.averages.asking import NEW, AskedAverage, require_choice
from tallbayes.results.averages.kinds import NewGroupRow, OwnGroupRows, OwnRow
from tallbayes.results.averages.sides import WEIGHT, Change, ChangedRows, reach_of
from tallbayes.results.checks.own_rows import Rows, RowsInParts, rows_in_parts
from tallbayes.results.fitted import kept_posterior
from tallbayes.results.groups.predictions import known_of
from tallbayes.results.result import Result
from tallbayes.structure import Structure


def of_own_model(result: Result, change: Change, rows: Any, groups: str, response: Any) -> AskedAverage:
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
    parts = rows_in_parts(result, rows, known)
    integral = None if known is None else known.integral
    batches = partial(_changed, change, parts)
    names = _outputs(function, target, next(batches(), None), integral)
    if integral is None and not has_groups:
        return AskedAverage(OwnRow(target.space, function), batches, names)
    if known is None or integral is None:
        got = "a result that has their rows no longer"
        raise InputError(explain("a result with its groups and their rows", got, "the process that fitted it"))
    outputs = 1 if names is None else len(names)
    if groups == NEW:
        wider = replace(integral, nodes=max(integral.nodes, OWN_NEW_NODES[integral.groups.size]))
        kind = NewGroupRow(OfRows(target.space, OwnOutcome(function, wider), wider), outputs)
        unit = new_unit(target, kept_posterior(result).anchor.mode, known.units["rows"])
        return AskedAverage(kind, batches, names, unit=unit)
    return AskedAverage(
        OwnGroupRows(target.space, OwnOutcome(function, integral), integral), batches, names, known=known
    )


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


def _changed(change: Change, parts: RowsInParts) -> Iterator[ChangedRows]:
    reach = None
    if change.is_slope:
        reach = reach_of(change.column, (_numbers(rows, change.column) for rows, *_ in parts()))
    for rows, places, _ in parts():
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
