"""Rows of formulas with bars, encoded as those of the fit.

A group that was not there before is what the law of effects is for: it is added without a word. A new level of a
category outside the bars is another coefficient, so it is added when asked for, as it is without groups.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tallbayes.arrivals.groups.beginning import arrived_of, begun_model, weight_of
from tallbayes.arrivals.groups.rows import ArrivedRows
from tallbayes.arrivals.groups.standing import CarriedGroups
from tallbayes.arrivals.levels import extended, moved_codes, with_columns
from tallbayes.formula.again.arriving import FormulaDoor, encode_arriving, require_known, unknown_levels
from tallbayes.formula.design_steps import Request
from tallbayes.formula.encoding import Encoding
from tallbayes.formula.expressions import Parsed
from tallbayes.formula.groups.design import GroupDesign
from tallbayes.formula.groups.factors import Factors, spread_of, with_factors
from tallbayes.formula.groups.fit import factors_beside, mixed_model
from tallbayes.formula.groups.levels import levels_of_rows
from tallbayes.groups.placing import gather
from tallbayes.model.weights import WEIGHT
from tallbayes.results.result import Result


def encode_grouped(
    standing: CarriedGroups, door: FormulaDoor, read: tuple[Parsed, Request, Any], add: bool
) -> tuple[CarriedGroups, FormulaDoor, ArrivedRows]:
    """Rows as the model reads them, with the standing and the door that know their levels."""
    parsed, request, rows = read
    unknown = unknown_levels(door.encoding.coding, rows)
    added = {name: levels for name, (levels, _) in unknown.items()} if add else {}
    if not added:
        require_known(door.encoding.coding, rows)
    encoding, places = _with_groups_of(door.encoding, rows)
    columns: dict[str, np.ndarray] = {}
    told: tuple[str, ...] = ()
    if added:
        coding, where = extended(encoding.coding, added)
        columns["codes"] = moved_codes(standing.rows.arrays, standing.num_rows, where, len(coding.indexed))
        encoding = with_columns(encoding, coding, where)
        shown = ", ".join(f"{column} {', '.join(map(repr, levels[:6]))}" for column, levels in added.items())
        told = (f"levels: {shown} came, with the prior of a level",)
    standing, door = _relevelled(standing, replace(door, encoding=encoding), places, columns)
    arrays, weights = encode_arriving(encoding, parsed, request, rows)
    designs = [encoding.groups[place].encode(rows) for place in door.group_order]
    for place, design in enumerate(designs):
        arrays[f"z{place}"] = design.z
        arrays[f"level{place}" if place else standing.rows.by] = design.codes
    return replace(standing, told=told), door, arrived_of(standing.question.model, arrays, weights)


def with_effects_of(standing: CarriedGroups, door: FormulaDoor, result: Result) -> Result:
    """The result with all of its factors, in the units of the table."""
    designs = _designs(standing, door)
    encoding = door.encoding
    if len(designs) == 1:
        factors = Factors((), spread_of(designs[0]), encoding.response_mean, encoding.response_scale)
        return with_factors(factors, result)
    assert door.grouped is not None
    arrays = standing.rows.arrays
    return with_factors(
        factors_beside(door.grouped(encoding, _own(arrays), _as_written(door, designs)), arrays["y"]), result
    )


def _with_groups_of(encoding: Encoding, rows: Any) -> tuple[Encoding, list[np.ndarray]]:
    """With the groups of these rows among those of every term, and where each of before stands now."""
    groups, places = [], []
    for each in encoding.groups:
        levels, where = each.levels.joined(levels_of_rows(each.levels.by, rows))
        groups.append(replace(each, levels=levels))
        places.append(where)
    return replace(encoding, groups=tuple(groups)), places


def _relevelled(
    standing: CarriedGroups, door: FormulaDoor, places: list[np.ndarray], columns: dict[str, np.ndarray]
) -> tuple[CarriedGroups, FormulaDoor]:
    """With rows that go by these levels. Where there are other parameters the model is made anew, of all rows."""
    others = door.group_order[1:]
    for place, term in enumerate(others, 1):
        if len(door.encoding.groups[term].levels) != len(places[term]):
            columns[f"level{place}"] = places[term][standing.rows.arrays[f"level{place}"]]
    first = door.group_order[0]
    rows = standing.rows.renamed(places[first][standing.rows.levels], columns)
    names, model = tuple(door.encoding.groups[first].levels.names), standing.question.model
    assert model.groups is not None
    if not columns:
        return replace(standing, rows=rows).named(names), door
    standing = replace(standing, rows=rows, laid=None)
    assert door.grouped is not None
    arrays = rows.arrays
    asked = door.grouped(door.encoding, _own(arrays), _as_written(door, _designs(standing, door)))
    weights = arrays.get(WEIGHT)
    made, _ = mixed_model(replace(asked.design, weights=weights), asked.model, asked.scales, asked.stated, asked.order)
    whole = ArrivedRows(arrays, rows.levels[rows.numbers])
    made, head = begun_model(made, whole)
    target, start = gather(made, head).bound
    question = replace(standing.question, model=made)
    return replace(standing, question=question, target=target, start=start, weight=weight_of(made, whole)), door


def _designs(standing: CarriedGroups, door: FormulaDoor) -> list[GroupDesign]:
    """Every term over all rows, that which is integrated first."""
    arrays, rows = standing.rows.arrays, standing.rows
    found = []
    for place, term in enumerate(door.group_order):
        codes = arrays[f"level{place}"] if place else rows.levels[rows.numbers]
        found.append(door.encoding.groups[term].design(codes, arrays[f"z{place}"]))
    return found


def _as_written(door: FormulaDoor, designs: list[GroupDesign]) -> tuple[GroupDesign, ...]:
    """In the order of the formula."""
    return tuple(designs[door.group_order.index(term)] for term in range(len(designs)))


def _own(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the family reads of a row."""
    beside = (WEIGHT, *(f"{name}{place}" for name in ("z", "level") for place in range(len(arrays))))
    return {name: each for name, each in arrays.items() if name not in beside}
