"""The beginning: rows of a mixed model as they were given, and the standing of a fit before anything came."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.arrivals.groups.rows import ArrivedRows, GroupedRows
from tallbayes.arrivals.groups.standing import CarriedGroups
from tallbayes.errors import DataError, InputError, explain
from tallbayes.estimation.question import Question
from tallbayes.groups.placing import gather
from tallbayes.groups.units import take_out
from tallbayes.model.model import Model
from tallbayes.model.weights import WEIGHT, weigh
from tallbayes.programs.later import jax
from tallbayes.setup.preparation import check_data

if TYPE_CHECKING:
    from tallbayes.results.result import Result


def begun_of_groups(question: Question, result: Result) -> CarriedGroups:
    """The rows of a fit by their groups; units are laid out when a day is answered."""
    arrived = arrived_of(question.model, question.data, question.weights)
    model, head = begun_model(question.model, arrived)
    groups = model.groups
    assert groups is not None
    target, start = gather(model, head).bound
    if result.anchor is not None and result.anchor.mode.shape == start.shape and result.anchor.is_proper:
        start = result.anchor.mode
    modes = tuple(note for note in result.notes if note.startswith("modes: ")) or ("modes: as first searched",)
    search: Any = tuple(result.modes), modes
    rows = GroupedRows.of(arrived, groups.by)
    return CarriedGroups(replace(question, model=model), target, start, "", rows, weight_of(model, arrived), search)


def begun_model(model: Model, arrived: ArrivedRows) -> tuple[Model, Any]:
    """With start values that no later row decides; and the first row, as data."""
    assert model.groups is not None
    arrays = {name: each[:1] for name, each in arrived.arrays.items() if name != WEIGHT}
    first = jax.tree.map(lambda array: array[0], arrays)
    initial = model.initial(first) if callable(model.initial) else model.initial
    return replace(model, initial=initial), {**arrays, model.groups.by: np.asarray(arrived.column)[:1]}


def weight_of(model: Model, arrived: ArrivedRows) -> float | None:
    """Of a row in what units know of theirs."""
    groups = model.groups
    assert groups is not None
    if groups.weigh_rows is None or groups.closed is not None:
        return None
    return groups.weigh_rows(arrived.arrays)


def arrived_of(model: Model, data: Any, weights: Any) -> ArrivedRows:
    """Rows checked as those of a fit are, and the column of their groups."""
    groups = model.groups
    assert groups is not None
    column, rest = take_out(data, groups)
    if isinstance(weights, str):
        if weights not in rest:
            names = f"{sorted(map(str, rest))}"
            raise InputError(explain("weights by the name of an array", repr(weights), names))
        weights = rest.pop(weights)
    arrays = check_data(model, rest)
    count = len(jax.tree.leaves(arrays)[0])
    if len(column) != count:
        got = f"{len(column):,} of them, {count:,} rows"
        raise DataError(explain(f"one group a row in {groups.by!r}", got, "check how they were cut"))
    if weights is not None:
        arrays = weigh(model, arrays, weights)[1]
    return ArrivedRows(arrays, column)
