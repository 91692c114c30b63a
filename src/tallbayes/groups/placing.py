"""Placing: from rows with a column of groups to units that are ready to be sampled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.errors import DataError, explain
from tallbayes.groups.centre import find_marginal_mode
from tallbayes.groups.integral import Choice, choose_nodes, error_of
from tallbayes.groups.nodes import find_nodes, with_nodes
from tallbayes.groups.units import Grouping, gather_units, make_grouping, take_out
from tallbayes.model.groups.integral import first_nodes
from tallbayes.model.model import Model, bind
from tallbayes.model.space import make_space
from tallbayes.model.weights import weigh
from tallbayes.programs.later import jax
from tallbayes.setup.preparation import Placed, bind_rows, check_data, place
from tallbayes.watch import begin
from tallbayes.workers.executors import Executor


@dataclass(frozen=True, eq=False)
class Gathered:
    """A model of groups bound to its units, which have no nodes yet."""

    model: Model
    units: Any
    grouping: Grouping
    bound: tuple[Any, np.ndarray]


def gather(model: Model, data: Any, weights: Any = None) -> Gathered:
    """Rows checked, and put together by their group."""
    groups = model.groups
    assert groups is not None
    column, rest = take_out(data, groups)
    arrays = check_data(model, rest)
    if weights is not None:
        if groups.of_rows:
            hint = "the rows themselves, as often as each was seen"
            raise DataError(explain("no weights where every row has an effect of its own", "weights", hint))
        arrays = weigh(model, arrays, weights)[1]
    grouping = make_grouping(groups.by, column)
    first = jax.tree.map(lambda array: np.asarray(array[0]), arrays)
    initial = model.initial(first) if callable(model.initial) else model.initial
    space, _ = make_space(initial, model.constraints)
    # Whose start values the shape of a row decides is bound to them.
    model = replace(model, initial=initial)
    units = None
    if groups.closed is not None:
        units = groups.closed(groups).units(arrays, grouping.codes, grouping.count)
    if units is None:
        units = gather_units(arrays, grouping, groups, space)
    # A climb needs integrals that are smooth in theta, however few nodes are asked for.
    unit = jax.tree.map(lambda array: array[0], units)
    few = "root" in units and groups.nodes is not None and groups.nodes < first_nodes(unit)
    climbed = replace(model, groups=replace(groups, nodes=None)) if few else model
    return Gathered(model, units, grouping, bind_rows(climbed, units))


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
    placed = place(model, units, precision, shuffle, None, gathered.bound)
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
    table = replace(centre.table, rows=_narrowed(centre.table.rows, placed.precision))
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
    placed = place(model, units, "float64", False, None, gathered.bound)
    if "root" not in units:
        return replace(placed, grouping=gathered.grouping)
    nodes = find_nodes(placed.target, placed.table, anchor.mode)
    table = replace(placed.table, rows=with_nodes(placed.table, nodes))
    choice = choose_nodes(placed.target, table, anchor, tolerance)
    target = _with_nodes(model, choice, units)
    return replace(placed, target=target, table=table, integral_error=choice.error, grouping=gathered.grouping)


def _with_nodes(model: Model, choice: Choice, units: Any) -> Any:
    assert model.groups is not None
    chosen = replace(model, groups=replace(model.groups, nodes=choice.nodes))
    return bind(chosen, jax.tree.map(lambda array: np.asarray(array[0]), units))[0]


def _narrowed(rows: Any, precision: str) -> Any:
    """Nodes in the type of the rows."""
    with jax.enable_x64(True):
        kept = {name: jax.device_put(np.asarray(rows[name], precision)) for name in ("centre", "slope", "root")}
    return {**rows, **kept}
