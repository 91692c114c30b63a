"""Terms: which parts of a PyMC model are of its rows, and which of its parameters alone.

rows       observed variables whose log density has an entry for each, and potentials that have one
the rest   free variables, potentials of them, and what was observed of anything else
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from tallbayes.doors.plates.steps import NotApartError
from tallbayes.doors.pymc.graphs import ModelGraph
from tallbayes.doors.pymc.rows import RowTerms, rows_of
from tallbayes.errors import ModelError, explain

BEFORE = "centre, scale, sort or shift the data before, and return one number for each row"


@dataclass(frozen=True, eq=False)
class ModelTerms:
    """All terms of a model: those of rows, as they are of one row, and the others."""

    rows: RowTerms
    observed: dict[str, Any]
    rest: dict[str, Any]

    @property
    def length(self) -> int:
        return self.rows.length


def read_terms(graph: ModelGraph, theta: dict[str, np.ndarray], rows: Collection[str] | None) -> ModelTerms:
    """The terms of a model, told apart; refused with the reason where rows hang together."""
    densities = graph.log_densities()
    observed = {rv.name: densities[rv.name] for rv in graph.observed}
    rest = {rv.name: densities[rv.name] for rv in graph.free}
    shapes = {name: _shape(graph, term, theta) for name, term in observed.items()}
    sizes = {rv.name: data.shape for rv, data in graph.observed.items()}
    own, length = _of_rows(shapes, sizes, rows)
    rest |= {name: term for name, term in observed.items() if name not in own}
    of_rows = {name: observed[name] for name in own}
    for potential in graph.model.potentials:
        (term,) = graph.of_values([potential])
        each = _one_by_one(graph, term, theta, length)
        if each is not None:
            of_rows[potential.name] = each
            continue
        found = graph.compiled([term])
        if any(length in np.shape(array) for array in found.constants) and length > 1:
            got = f"{potential.name!r}, one number of data of all {length}"
            raise ModelError(explain("potentials of parameters alone, or with an entry for each row", got, BEFORE))
        rest[potential.name] = term
    return ModelTerms(_in_rows(graph, of_rows, theta, length), of_rows, rest)


def _shape(graph: ModelGraph, term: Any, theta: dict[str, np.ndarray]) -> tuple[int, ...]:
    compiled = graph.compiled([term])
    if not compiled.free:
        raise ModelError(explain("observed variables that hang on parameters", str(term.name), "leave them out"))
    return tuple(jax.eval_shape(compiled, {name: theta[name] for name in compiled.free})[0].shape)


def _of_rows(
    shapes: dict[str, tuple[int, ...]], sizes: dict[str, tuple[int, ...]], rows: Collection[str] | None
) -> tuple[list[str], int]:
    """The observed variables whose entries are rows, and how many rows there are."""
    if rows is not None and (isinstance(rows, str) or not rows or not set(rows) <= set(shapes)):
        hint = f"rows={sorted(shapes)[:1]}"
        raise ModelError(explain(f"rows= to name some of the observed {sorted(shapes)}", repr(rows), hint))
    together = [name for name in shapes if sizes[name] and shapes[name][:1] != sizes[name][:1]]
    named = [name for name in shapes if (name in rows if rows is not None else sizes[name] and name not in together)]
    for name in together:
        if name in named or not named or sizes[name][0] in {shapes[each][0] for each in named}:
            got = f"{name!r} of shape {sizes[name]}, whose log density has shape {shapes[name]}"
            hint = "observations that are independent given the parameters; a walk or a process over rows has none"
            raise ModelError(explain("observed variables with a log density for each row", got, hint))
    if not named:
        got = f"{sorted(shapes)}, of one number each"
        raise ModelError(explain("observed variables with rows", got, "observed= with an array"))
    lengths = {shapes[name][0] if shapes[name] else 0 for name in named}
    if len(lengths) > 1 and rows is None:
        named = [name for name in named if shapes[name][0] > 1]
        lengths = {shapes[name][0] for name in named}
    if len(lengths) > 1:
        got = ", ".join(f"{name!r} of {shapes[name][0]}" for name in sorted(named))
        hint = f"rows=[{sorted(named, key=lambda each: -shapes[each][0])[0]!r}], if the others belong to the prior"
        raise ModelError(explain("observed variables with as many rows each", got, hint))
    return named, lengths.pop()


def _one_by_one(graph: ModelGraph, term: Any, theta: dict[str, np.ndarray], length: int) -> Any:
    """A potential as the terms of rows that it is the sum of; nothing where it is none."""
    from pytensor.tensor.math import Sum

    while term.owner is not None and isinstance(term.owner.op, Sum) and not term.ndim:
        term = term.owner.inputs[0]
    try:
        compiled = graph.compiled([term])
        shape = _shape(graph, term, theta)
        if shape[:1] != (length,):
            return None
        rows_of(compiled, ("potential",), theta, length)
    except (NotApartError, ModelError):
        return None
    return term


def _in_rows(graph: ModelGraph, terms: dict[str, Any], theta: dict[str, np.ndarray], length: int) -> RowTerms:
    try:
        return rows_of(graph.compiled(list(terms.values())), tuple(terms), theta, length)
    except NotApartError as reason:
        got = f"{', '.join(map(repr, terms))}, where {reason}"
        raise ModelError(explain("a log prior plus a sum of terms of single rows", got, BEFORE)) from reason
