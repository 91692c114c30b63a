"""Unpacking: a model of rows as their owner names them, on rows as they lie on disk.

A table made of columns holds a row as two vectors, its numbers and its codes; a model sees a dict by column. Whole
numbers that a model wants as floats are made so row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from tallbayes.errors import DataError, explain
from tallbayes.model.model import Model
from tallbayes.programs.later import jax, jnp
from tallbayes.rows.columns import TIME_KINDS
from tallbayes.rows.on_disk import Column


def visible(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Those that a row shows: dates and times are for formulas."""
    return tuple(column for column in columns if column.kind not in TIME_KINDS)


def unpacking(model: Model, columns: tuple[Column, ...]) -> Model:
    """The model of packed rows; refused where a value is missing or a family wants arrays."""
    missing = {column.name: column.missing for column in columns if column.missing}
    if missing:
        counts = ", ".join(f"{count} in {name!r}" for name, count in missing.items())
        hint = "ingest without these rows or columns, or tb.fit with missing='drop'"
        raise DataError(explain("no missing values", counts, hint))
    if model.predictor is not None:
        names = ", ".join(column.name for column in columns[:6])
        hint = "tb.fit with a formula, or tb.write_table with fields x and y"
        raise DataError(explain("fields x and y, which a family is about", f"the columns {names}", hint))
    initial = partial(_start, model.initial, columns) if callable(model.initial) else model.initial
    return replace(model, log_likelihood=partial(_through, model.log_likelihood, columns), initial=initial)


def casting(model: Model, names: frozenset[str]) -> Model:
    """The model of rows in which these are whole numbers."""

    def cast(function: Callable[..., Any]) -> Callable[..., Any]:
        return partial(_with_floats, function, names)

    predictor = None if model.predictor is None else cast(model.predictor)
    return replace(model, log_likelihood=cast(model.log_likelihood), predictor=predictor)


def by_name(columns: tuple[Column, ...], rows: Any) -> dict[str, Any]:
    """The columns of packed rows, one or many."""
    return {column.name: rows[column.field][..., column.place] for column in columns}


def _through(function: Callable[..., Any], columns: tuple[Column, ...], first: Any, row: Any) -> Any:
    return function(first, by_name(columns, row))


def _start(function: Callable[..., Any], columns: tuple[Column, ...], row: Any) -> Any:
    return function(by_name(columns, row))


def _with_floats(function: Callable[..., Any], names: frozenset[str], first: Any, row: Any) -> Any:
    dtype = jnp.result_type(*jax.tree.leaves(first))
    cast = {name: jnp.asarray(value, dtype) if name in names else value for name, value in row.items()}
    return function(first, cast)
