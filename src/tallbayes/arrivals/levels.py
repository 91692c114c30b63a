"""Levels: room for categories that were not there before.

A new level of a category takes one more coefficient, behind those of its term, with the prior that a level has. In the
rows so far its column is 0, so of their sums its part is 0: nothing is read again. Rows know their coefficients by
their places, which move on behind it; so the codes of all rows are written anew, and with them the list, which goes by
what a row says.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tallbayes.arrivals.memory import Growing
from tallbayes.arrivals.order import Order
from tallbayes.arrivals.standing import Carried, Footing
from tallbayes.errors import DataError, explain
from tallbayes.formula.again.arriving import FormulaDoor
from tallbayes.formula.coding import Coding, IndexedTerm
from tallbayes.formula.encoding import Encoding
from tallbayes.formula.expressions import read_expression
from tallbayes.model.parts.extras import OfExcess
from tallbayes.model.parts.making import with_width
from tallbayes.model.weights import weighted
from tallbayes.programs.later import jax
from tallbayes.rows.segments.alike import contents
from tallbayes.rows.table import make_table
from tallbayes.setup.preparation import bind_rows


def with_levels(standing: Carried, door: FormulaDoor, added: dict[str, list[Any]]) -> tuple[Carried, FormulaDoor]:
    """Room for these levels, by the column that they are of."""
    before = door.encoding
    coding, where = extended(before.coding, added)
    encoding = with_columns(before, coding, where)
    rows = standing.rows
    if not isinstance(rows, Growing):
        shown = ", ".join(f"{column} {', '.join(map(repr, levels[:6]))}" for column, levels in added.items())
        hint = "tb.fit of the whole table, or leave these rows out"
        got = f"{shown}, of a fit of a table on disk; nothing was added"
        raise DataError(explain("categories that the fit knows, or rows in memory", got, hint))
    arrays = jax.tree.map(lambda leaf: leaf[: rows.num_rows], rows.memory.arrays)
    arrays = {**arrays, "codes": moved_codes(arrays, rows.num_rows, where, len(coding.indexed))}
    model = _as_wide(door.remade(encoding, arrays), standing.question.model)
    bound = weighted(model) if standing.question.weights is not None else model
    target, start = bind_rows(bound, arrays)
    places = _places(standing, before.coding, coding, where, target.dimension)
    moved = np.array(start)
    moved[places] = standing.start
    table = make_table(arrays, standing.precision, False, model.units)
    shown = ", ".join(f"{column} {', '.join(map(repr, levels[:6]))}" for column, levels in added.items())
    after = replace(
        standing,
        question=replace(standing.question, model=model, quantities=standing.question.quantities),
        target=target,
        start=moved,
        rows=Growing.of(table),
        centre=None if standing.centre is None else standing.centre.wider(target, places),
        order=_relisted(standing, arrays),
        footing=Footing(least=standing.footing.least),
        told=(f"levels: {shown} came, with the prior of a level",),
    )
    return after, replace(door, encoding=encoding)


def moved_codes(arrays: Any, num_rows: int, where: np.ndarray, terms: int) -> np.ndarray:
    """The codes where coefficients stand now; of terms that had none before, the place of none."""
    known = arrays["codes"] if "codes" in arrays else np.empty((num_rows, 0), np.int32)
    codes = np.full((num_rows, terms), where[-1], np.int32)
    codes[:, : known.shape[1]] = where[known]
    return codes


def extended(coding: Coding, added: dict[str, list[Any]]) -> tuple[Coding, np.ndarray]:
    """The coding with more levels, and where each coefficient of before stands now; the last place is that of none."""
    names, terms, categories = list(coding.names), list(coding.indexed), dict(coding.categories)
    _require_alone(coding, added)
    where = np.arange(len(names) + 1)
    for column, levels in added.items():
        if all(term.column != column for term in terms):
            # Of one level so far: a column that never changed.
            factor = next(factor for factor in categories if column in _columns_of(coding, factor))
            terms.append(IndexedTerm(factor, column, len(names), 0))
        term = next(term for term in terms if term.column == column)
        end, count = term.first + term.count, len(levels)
        names[end:end] = [_named(names, term, categories[term.factor][-1], level) for level in levels]
        categories[term.factor] = (*categories[term.factor], *levels)
        terms = [
            replace(each, count=each.count + count)
            if each is term
            else replace(each, first=each.first + count * (each.first >= end))
            for each in terms
        ]
        where = where + count * (where >= end)
    dense = {int(where[place]) for place in coding.dense}
    of_categories = tuple(place for place in range(len(names)) if place not in dense)
    of_categories = tuple(sorted({*of_categories, *(int(where[each]) for each in coding.of_categories)}))
    parts: dict[str, Any] = {"names": tuple(names), "indexed": tuple(terms), "categories": categories}
    return replace(coding, **parts, of_categories=of_categories), where


def _require_alone(coding: Coding, added: dict[str, list[Any]]) -> None:
    """Refused where a new level would take more than a coefficient of its own."""
    for column, levels in added.items():
        factors = [factor for factor in coding.categories if column in _columns_of(coding, factor)]
        terms: list[IndexedTerm] = [term for term in coding.indexed if term.column == column]
        written = {place for place in coding.dense if place in coding.of_categories}
        constant = len(factors) == 1 and len(coding.categories[factors[0]]) == 1 and coding.intercept
        alone = len(factors) == 1 and (len(terms) == 1 or constant)
        if not alone or written or coding.smooths or not levels:
            got = f"{', '.join(map(repr, levels[:6])) or 'new levels'} beside terms that it has a part in, or smooths"
            hint = "tb.fit of all rows, or leave these rows out"
            raise DataError(explain(f"a category {column!r} that is a term by itself, to add levels to", got, hint))


def _columns_of(coding: Coding, factor: str) -> tuple[str, ...]:
    return tuple(read_expression(factor, tuple(coding.kinds)).columns)


def _named(names: list[str], term: IndexedTerm, before: Any, level: Any) -> str:
    """carrier[T.UA] like carrier[T.AA]."""
    if not term.count:
        return f"{term.factor}[T.{level}]"
    name = names[term.first + term.count - 1]
    head, found, tail = name.rpartition(str(before))
    if not found:
        hint = "tb.fit of all rows"
        raise DataError(explain(f"a column named after the level {before!r}", repr(name), hint))
    return f"{head}{level}{tail}"


def with_columns(before: Encoding, coding: Coding, where: np.ndarray) -> Encoding:
    """Means and scales of levels are 0 and 1."""
    means, scales = np.zeros(len(coding.names)), np.ones(len(coding.names))
    means[where[:-1]], scales[where[:-1]] = before.means, before.scales
    return replace(before, coding=coding, means=tuple(means.tolist()), scales=tuple(scales.tolist()))


def _as_wide(model: Any, before: Any) -> Any:
    """In the coordinates of before, where these were chosen by the rows."""
    density = None if before.parts is None else before.parts.density
    return with_width(model, density.width) if isinstance(density, OfExcess) else model


def _places(standing: Carried, before: Coding, coding: Coding, where: np.ndarray, dimension: int) -> np.ndarray:
    """Where each parameter of before stands among those of now."""
    layout, old, new = standing.target.layout, len(before.names), len(coding.names)
    rest = layout.heads * layout.intercept + layout.extras
    if (standing.target.dimension, dimension) != (layout.heads * old + rest, layout.heads * new + rest):
        got, hint = "a family with others", "tb.fit of all rows"
        raise DataError(explain("coefficients and an intercept, to add levels to", got, hint))
    heads = [head * new + where[:-1] for head in range(layout.heads)]
    return np.concatenate([*heads, layout.heads * new + np.arange(rest)])


def _relisted(standing: Carried, arrays: Any) -> Order | None:
    """The same rows as often as before, by what they say now."""
    if standing.order is None:
        return None
    copies = np.ones(standing.num_rows, np.int64)
    copies[standing.order.rows] = np.round(1 / standing.order.weights)
    numbers = np.arange(standing.num_rows, dtype=np.int32)
    return Order.empty().with_rows(contents(jax.tree.leaves(arrays)), numbers, copies)
