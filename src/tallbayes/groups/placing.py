"""Placing: from rows with a column of groups to units that are ready to be sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.errors import DataError, InputError, explain
from tallbayes.groups.centre import find_marginal_mode
from tallbayes.groups.gathering import RowsOnDisk, are_mapped
from tallbayes.groups.integral import Choice, choose_nodes, error_of
from tallbayes.groups.nodes import find_nodes, with_nodes
from tallbayes.groups.units import Grouping, RowsInMemory, make_grouping, no_nodes, take_out
from tallbayes.model.groups.integral import first_nodes
from tallbayes.model.model import Model, Target, bind, runs_in_float32
from tallbayes.model.space import make_space
from tallbayes.model.weights import WEIGHT, require_weights, weigh
from tallbayes.moments import Floats
from tallbayes.programs.canary import require_sound
from tallbayes.programs.later import jax
from tallbayes.rows.on_disk import Stored, map_table
from tallbayes.rows.table import Table, make_table
from tallbayes.setup.preparation import Placed, bind_rows, check_data, place
from tallbayes.watch import begin
from tallbayes.workers.executors import Executor


@dataclass(frozen=True, eq=False)
class Gathered:
    """A model of groups bound to its units, which have no nodes yet; their rows may be `stored`."""

    model: Model
    units: Any
    grouping: Grouping
    bound: tuple[Any, np.ndarray]
    stored: Stored | None = None


def gather(model: Model, data: Any, weights: Any = None) -> Gathered:
    """Rows checked, and put together by their group."""
    groups = model.groups
    assert groups is not None
    if weights is not None and groups.of_rows:
        hint = "the rows themselves, as often as each was seen"
        raise DataError(explain("no weights where every row has an effect of its own", "weights", hint))
    rows = _rows(model, data, weights)
    head = rows.head
    first = jax.tree.map(lambda array: np.asarray(array[0]), head)
    initial = model.initial(first) if callable(model.initial) else model.initial
    space, _ = make_space(initial, model.constraints)
    # Whose start values the shape of a row decides is bound to them.
    model, grouping = replace(model, initial=initial), rows.grouping
    units, on_disk = None, None
    if groups.closed is not None:
        units = groups.closed(groups).units(head, rows.chunks(), grouping.count)
    if units is None:
        units, on_disk = rows.units(groups, space)
    grouping = replace(grouping, rows=rows.beside(units))
    # A climb needs integrals that are smooth in theta, however few nodes are asked for.
    unit = jax.tree.map(lambda array: array[0], units)
    few = "root" in units and groups.nodes is not None and groups.nodes < first_nodes(unit)
    climbed = replace(model, groups=replace(groups, nodes=None)) if few else model
    bound = bind_rows(climbed, units)
    if on_disk is None:
        return Gathered(model, units, grouping, bound)
    return Gathered(model, units, replace(grouping, folder=on_disk.folder), bound, on_disk.stored)


def _rows(model: Model, data: Any, weights: Any) -> RowsInMemory | RowsOnDisk:
    assert model.groups is not None
    column, rest = take_out(data, model.groups)
    if isinstance(weights, str):
        if weights not in rest:
            raise InputError(explain("weights by the name of an array", repr(weights), f"{sorted(map(str, rest))}"))
        weights = rest.pop(weights)
    # Where rows read effects of other factors, which levels a unit reads is found in memory.
    if are_mapped(rest) and not model.groups.reads:
        return RowsOnDisk(
            rest if weights is None else {**rest, WEIGHT: weights},
            column,
            model.groups.by,
            partial(_checked, model),
        )
    arrays = check_data(model, rest)
    if weights is not None:
        arrays = weigh(model, arrays, weights)[1]
    grouping, codes = make_grouping(model.groups.by, column)
    return RowsInMemory(arrays, codes, grouping)


def _checked(model: Model, rows: dict[str, Any]) -> dict[str, Any]:
    """Some of the rows, with their weights."""
    weights = rows.pop(WEIGHT, None)
    arrays: dict[str, Any] = check_data(model, rows)
    if weights is None:
        return arrays
    require_weights(weights)
    return {**arrays, WEIGHT: weights}


def place_groups(
    gathered: Gathered,
    asked_precision: str | None,
    shuffle: bool,
    tolerance: float,
    executor: Executor | None = None,
    meanwhile: Callable[[Placed], None] | None = None,
) -> Placed:
    """Units on the device, with nodes at the mode of the marginal posterior, as many as the tolerance takes.

    `meanwhile` is begun as soon as units are placed.
    """
    model, units = gathered.model, gathered.units
    # Sums cancel in part.
    precision = "float64" if "sums" in units and asked_precision is None else asked_precision
    placed = _on_device(gathered, precision, shuffle)
    if meanwhile is not None:
        meanwhile(placed)
    begin("groups")
    centre = find_marginal_mode(placed.target, placed.table, placed.start, executor)
    assert model.groups is not None
    found: dict[str, Any] = {"spent": centre.units_read, "modes": centre.modes, "grouping": gathered.grouping}
    if "root" not in units:
        return replace(placed, start=centre.anchor.mode, **found)
    if model.groups.nodes is None:
        choice = choose_nodes(placed.target, centre.table, centre.anchor, tolerance)
    else:
        choice = error_of(placed.target, centre.table, centre.anchor, model.groups.nodes)
    target = _with_nodes(model, choice, units)
    table = _with_names(replace(centre.table, rows=_narrowed(centre.table.rows, placed.precision)))
    return replace(
        placed,
        target=target,
        table=table,
        start=centre.anchor.mode,
        integral_error=choice.error,
        **found,
    )


def place_again(gathered: Gathered, anchor: Anchor, tolerance: float) -> Placed:
    """The same for a posterior that is known, with nodes at its centre."""
    model, units = gathered.model, gathered.units
    placed = _on_device(gathered, "float64", False)
    if "root" not in units:
        return replace(placed, grouping=gathered.grouping)
    nodes = find_nodes(placed.target, placed.table, anchor.mode)
    table = replace(placed.table, rows=with_nodes(placed.table, nodes))
    choice = choose_nodes(placed.target, table, anchor, tolerance)
    target = _with_nodes(model, choice, units)
    return replace(placed, target=target, table=table, integral_error=choice.error, grouping=gathered.grouping)


def _on_device(gathered: Gathered, asked_precision: str | None, shuffle: bool) -> Placed:
    """Units where paths can read them: those on disk are mapped, with what is known beside their rows in memory."""
    model, stored, (target, start) = gathered.model, gathered.stored, gathered.bound
    if stored is None:
        return place(model, gathered.units, asked_precision, shuffle, None, gathered.bound)
    require_sound()
    precision = asked_precision
    if precision is None:
        unit = jax.tree.map(lambda array: np.asarray(array[0]), gathered.units)
        precise = any(field.dtype == "float64" for field in stored.fields)
        precision = "float64" if precise or not runs_in_float32(target, unit) else "float32"
    known = {name: each for name, each in gathered.units.items() if name != "rows"}
    beside = make_table(known, precision, least=1).rows
    table = map_table(stored, units=model.units)
    return Placed(target, replace(table, rows={**beside, "rows": table.rows}), start, precision, asked_precision)


def _with_names(table: Table) -> Table:
    """As other processes can open it: the rows of units by their names, and what is beside them as it is."""
    if table.stored is None:
        return table
    beside = {name: np.asarray(each) for name, each in table.rows.items() if name != "rows"}
    return replace(table, names={**beside, "rows": {name: name for name in table.rows["rows"]}})


def _with_nodes(model: Model, choice: Choice, units: Any) -> Any:
    assert model.groups is not None
    chosen = replace(model, groups=replace(model.groups, nodes=choice.nodes))
    return bind(chosen, jax.tree.map(lambda array: np.asarray(array[0]), units))[0]


def _narrowed(rows: Any, precision: str) -> Any:
    """Nodes in the type of the rows."""
    with jax.enable_x64(True):
        kept = {name: jax.device_put(np.asarray(rows[name], precision)) for name in ("centre", "slope", "root")}
    return {**rows, **kept}


def new_unit(target: Target, mode: Floats, rows: Any) -> Any:
    """A group without rows, of a model of its owner's whose units have such rows, with nodes where the law of an effect
    is at the mode."""
    assert target.integrated is not None
    unit = {
        "rows": jax.tree.map(lambda leaf: leaf[:1, :1], rows),
        "count": np.zeros(1, np.int32),
        "group": np.full(1, -1, np.int32),
        **no_nodes(1, target.integrated.size, target.dimension),
    }
    found = find_nodes(target, Table(unit, 1), mode)
    return {**unit, "centre": found.centre, "slope": found.slope, "root": found.root}
