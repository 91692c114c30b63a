"""The standing of a mixed model: all that is carried from one day to the next, and what a day makes of it.

    rows      every row with its group                                `rows`
    plan      which unit a group is in                                `shelves`
    units     a table of them, with nodes at theta_0                  `units`
    centre    sums over units at theta_0                              `arrivals.centre`
    sizes     what every unit can do, by which paths list it
    rough     delta, the error of the integrals, at points about theta_0: a sum over units as well

With nodes fixed at theta_0, log p_g is a function of a group's rows and of nothing else. So a day takes the units of
its groups out of all sums as they were, and adds them as they are; no other unit is looked at. Nodes follow theta to
first order, so they serve as far as theta_0 does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.importance import row_sizes
from tallbayes.anchor.mode import curvature_of
from tallbayes.anchor.sums import Curvature
from tallbayes.arrivals.centre import Expanded
from tallbayes.arrivals.groups.rows import ArrivedRows, GroupedRows
from tallbayes.arrivals.groups.shelves import Rearranged, part_of, rearranged, shelved
from tallbayes.arrivals.groups.units import (
    UnitMaker,
    in_table,
    kept_nodes,
    numbered,
    places_in,
    replaced,
    settled_nodes,
    taken,
    with_room,
    without_nodes,
)
from tallbayes.arrivals.order import Order
from tallbayes.arrivals.sizes import Sizes
from tallbayes.arrivals.standing import PASSES, PROBED, Footing
from tallbayes.errors import InputError, PosteriorError, explain
from tallbayes.estimation.question import FINE_SHARE, Question
from tallbayes.groups.bundling import Bundling
from tallbayes.groups.centre import follow_marginal_mode
from tallbayes.groups.integral import PAIRS, choose_nodes, deviations, error_by, error_of
from tallbayes.model.model import Model, Target, bind, runs_in_float32
from tallbayes.moments import Floats
from tallbayes.programs.later import jax
from tallbayes.rows.segments.alike import contents
from tallbayes.rows.statistics import needs_float64
from tallbayes.rows.table import Table
from tallbayes.setup.preparation import Placed, Prepared
from tallbayes.setup.record import Search
from tallbayes.workers.executors import Executor

# So few are answered by weights, about the centre of the day.
FEW_GROUPS = 64
# Units whose integrals are held against finer ones.
MOST_LOOKED = 2**11


@dataclass(frozen=True, eq=False)
class Rough:
    """delta at fixed points of the Gaussian about theta_0, whose spread is the error of the integrals; what that was at
    `first`, and how many units were looked at for it."""

    points: Floats
    delta: Floats
    first: float
    looked: int

    @classmethod
    def about(cls, target: Target, table: Table, anchor: Anchor) -> Rough:
        """Over all units, or a sample of them, scaled up."""
        half = anchor.draws(PAIRS, 0)
        points = anchor.mode + np.concatenate([half, -half])
        some = np.random.default_rng(0).permutation(table.num_rows)[:MOST_LOOKED]
        delta = deviations(target, taken(table, some), points) * (table.num_rows / len(some))
        return cls(points, delta, error_by(delta), len(points) * len(some))

    def over(self, target: Target, table: Table) -> Floats:
        return deviations(target, table, self.points) if table.num_rows else np.zeros(len(self.points))

    def error(self, anchor: Anchor) -> float:
        """In posterior sds, at a posterior that is a step s away: where delta is quadratic its slope there is at the
        most 1 + sqrt(2) |s| times its spread about theta_0."""
        assert anchor.step is not None
        return error_by(self.delta) * (1 + np.sqrt(2) * float(np.linalg.norm(anchor.step @ anchor.factor)))


@dataclass(frozen=True, eq=False)
class Laid:
    """Units, laid out about theta_0; `sizes` are those of every unit, and `rough` is None where integrals are exact."""

    plan: Bundling
    units: Table
    centre: Expanded
    sizes: Floats
    rough: Rough | None


@dataclass(frozen=True, eq=False)
class CarriedGroups:
    """All rows so far by their groups, and what was learnt of them; as `Carried` has it for rows without groups.

    There is nothing `laid` out before the first day, and where a group has outgrown its unit.
    """

    question: Question
    target: Target
    start: Floats
    precision: str
    rows: GroupedRows
    weight: float | None
    search: Search
    laid: Laid | None = None
    day: int = 0
    footing: Footing = Footing()
    read: int = 0
    told: tuple[str, ...] = ()
    foretold: Any = None

    @property
    def num_rows(self) -> int:
        return self.rows.num_rows

    @property
    def num_units(self) -> int:
        return 0 if self.laid is None else self.laid.units.num_rows

    @property
    def are_few(self) -> bool:
        """So few groups that draws with weights read all of them sooner than paths are tuned."""
        return len(self.rows.present) <= FEW_GROUPS

    @property
    def centre(self) -> Expanded | None:
        return None if self.laid is None else self.laid.centre

    @property
    def looked(self) -> Sizes:
        return Sizes().plus(np.zeros(0) if self.laid is None else self.laid.sizes)

    @cached_property
    def _anchor(self) -> Anchor | None:
        return None if self.laid is None else self.laid.centre.anchor(self.target)

    def anchor(self) -> Anchor | None:
        """The Gaussian about theta_0, as its sums have it now."""
        return self._anchor

    def reads_anew(self) -> str:
        """Why all rows are read anew every day; nothing where sums at a centre say all that is needed."""
        groups, reads = self.question.model.groups, "rows: all of them read anew, since "
        assert groups is not None
        if groups.reads:
            return reads + "they have effects of several factors"
        if self.search[0]:
            return reads + "sums about one centre do not tell this posterior"
        if not self.question.method.anchored or curvature_of(self.target, self.start) is not Curvature.DENSE:
            return reads + "a Hessian at a centre is not kept"
        return ""

    def placed(self) -> Placed:
        assert self.laid is not None
        found = Placed(self.target, self.laid.units, self.start, self.precision, self.question.method.precision)
        return replace(found, integral_error=self._integral_error(), grouping=self.grouping())

    def prepared(self) -> Prepared | None:
        """As the walk has it when set-up is done; None where there is no centre."""
        anchor = self.anchor()
        if anchor is None or self.laid is None:
            return None
        anchor = replace(anchor, passes=self.read / self.num_units, reason="carried on as rows came")
        precision = self.precision, self.question.method.precision
        parts = self.target, self.laid.units, anchor, self.read, *precision
        listing = order_of(self.looked.copies(self.laid.sizes)).listing()
        return Prepared(*parts, listing, self.footing.probe, self._integral_error(), self.grouping())

    def grouping(self) -> Any:
        assert self.laid is not None
        return self.rows.grouping("rows" in self.laid.units.rows)

    def named(self, levels: tuple[Any, ...]) -> CarriedGroups:
        """With other names for what the column of groups holds; programs know nothing of them."""
        model, integrated = self.question.model, self.target.integrated
        assert model.groups is not None
        assert integrated is not None
        groups = replace(model.groups, levels=levels)
        integral = replace(integrated.integral, groups=replace(integrated.integral.groups, levels=levels))
        target = replace(self.target, integrated=replace(integrated, integral=integral))
        return replace(self, question=replace(self.question, model=replace(model, groups=groups)), target=target)

    def with_rows(self, arrived: ArrivedRows) -> CarriedGroups:
        """A day on which rows came, of groups that there were or of new ones."""
        rows, changed = self.rows.with_rows(arrived)
        if self.question.model.groups.of_rows and np.any(changed < len(self.rows.counts)):  # type: ignore[union-attr]
            got = f"{int(np.sum(changed < len(self.rows.counts))):,} rows under names that there were already"
            raise InputError(explain(f"a new name in {rows.by!r} for every new row", got, "numbers that go on"))
        return self._changed(rows, changed)

    def without(self, arrived: ArrivedRows, places: None = None) -> CarriedGroups:
        """A day on which rows were withdrawn; refused where any of them was never there, or none would be left."""
        rows, changed = self.rows.without(arrived)
        return self._changed(rows, changed)

    def _changed(self, rows: GroupedRows, changed: np.ndarray) -> CarriedGroups:
        here = replace(self, rows=rows, day=self.day + 1, read=0, told=(), foretold=None)
        if self.laid is None:
            return here
        how = rearranged(self.laid.plan, rows.counts, changed)
        if how is None:
            length = self.laid.plan.length
            why = f"units: laid out anew, since a group has outgrown those of {length:,} rows"
            return replace(here, laid=None, start=self.laid.centre.theta, told=(why,))
        old, made = taken(self.laid.units, how.left), here._made(how, changed, self.laid)
        if made is None:
            why = "units: laid out anew, since the nodes of a group were not found from nowhere"
            return replace(here, laid=None, start=self.laid.centre.theta, told=(why,))
        return here._with(how, old, made, self.laid)

    @property
    def _maker(self) -> UnitMaker:
        groups = self.question.model.groups
        assert groups is not None
        return UnitMaker(groups, self.target.dimension, self.weight)

    def _made(self, how: Rearranged, changed: np.ndarray, before: Laid) -> Table | None:
        """The units that are new or others, with nodes at theta_0; a group that did not change keeps its own. None
        where nodes are not found."""
        if not len(how.made):
            return taken(before.units, how.made)
        part, groups = part_of(how.plan, how.made)
        units = self._maker.units(self.rows, how.plan, how.made)
        found = settled_nodes(self.target, in_table(units, self.precision), before.centre.theta, self.precision)
        if found is None:
            return None
        same = np.flatnonzero(~np.isin(groups, changed))
        return kept_nodes(before.units, found, places_in(before.plan, groups[same]), places_in(part, same))

    def _with(self, how: Rearranged, old: Table, made: Table, before: Laid) -> CarriedGroups:
        """With the units that were made in all sums, and without those of before."""
        centre = before.centre
        if old.num_rows:
            centre = centre.minus(centre.over(self.target, old))
        if made.num_rows:
            centre = centre.plus(centre.over(self.target, made))
        units = numbered(replaced(before.units, made, how), how.plan, self.rows.ranks())
        here = replace(self, laid=replace(before, plan=how.plan, units=units, centre=centre))
        anchor = here.anchor()
        if anchor is None:
            return replace(self, laid=None, start=centre.theta)
        sizes = np.append(before.sizes, np.zeros(max(how.plan.units - len(before.sizes), 0)))
        sizes[how.moved_to] = before.sizes[how.moved_from]
        if len(how.made):
            sizes[how.made] = row_sizes(self.target, made, anchor)
        rough, read = before.rough, 3 * made.num_rows + old.num_rows
        if rough is not None:
            delta = rough.over(self.target, made) - rough.over(self.target, old)
            rough = replace(rough, delta=rough.delta + delta)
            read += len(rough.points) * (made.num_rows + old.num_rows)
        laid = replace(here.laid, sizes=sizes[: how.plan.units], rough=rough)  # type: ignore[type-var]
        return replace(here, laid=laid, read=read)

    def settled(self, executor: Executor | None) -> CarriedGroups:
        """With units expanded anew where passes find the mode, if that is far or has been paid for, or if there is no
        centre; as it is otherwise."""
        anchor, laid = self.anchor(), self.laid
        paid = self.footing.extra > PASSES * self.num_units + PROBED
        stays = anchor is not None and laid is not None and not paid and not laid.centre.is_far(anchor)
        if stays and not self._is_rough():
            return self
        try:
            return self._about(self.start if anchor is None else anchor.mode, executor)
        except (PosteriorError, np.linalg.LinAlgError):
            return replace(self, laid=None)

    def _is_rough(self) -> bool:
        """Whether integrals have become rougher than they were, and matter."""
        if self.laid is None or self.laid.rough is None:
            return False
        least = max(2 * self.laid.rough.first, FINE_SHARE / 2 * self.question.accuracy.finest)
        return self._integral_error() > least

    def _about(self, start: Floats, executor: Executor | None) -> CarriedGroups:
        """About another centre, with all units looked at once more, and nothing carried over of pilots and probes."""
        plan, table, precision, bound = self._units()
        model, given = self.question.model, self.question.model.groups.nodes  # type: ignore[union-attr]
        found = follow_marginal_mode(bound, table, start, executor)
        theta, target, table = found.anchor.mode, bound, found.table
        if "root" in table.rows:
            finest = self.question.accuracy.finest
            parts = bound, table, found.anchor
            choice = choose_nodes(*parts, finest) if given is None else error_of(*parts, given)
            target = _bound(model, table.rows, choice.nodes)
            table = settled_nodes(target, without_nodes(table), theta, precision) or table
        centre = Expanded.nowhere(theta).over(target, table)
        anchor = centre.anchor(target)
        read = found.units_read + 3 * table.num_rows
        if anchor is None:
            return replace(self, laid=None, start=theta, read=self.read + read)
        rough = Rough.about(target, table, anchor) if "root" in table.rows else None
        read += 0 if rough is None else rough.looked
        laid = Laid(plan, table, centre, row_sizes(target, table, anchor), rough)
        told = (*self.told, f"centre: moved to the mode of {self.num_rows:,} rows, by passes over all of them")
        known: dict[str, Any] = {"target": target, "start": theta, "precision": precision, "laid": laid}
        return replace(self, footing=Footing(), read=self.read + read, told=told, **known)

    def _units(self) -> tuple[Bundling, Table, str, Target]:
        """The plan, all units, their precision, and the target for a climb."""
        model, asked = self.question.model, self.question.method.precision
        if self.laid is not None:
            return self.laid.plan, self.laid.units, self.precision, _bound(model, self.laid.units.rows, None)
        assert model.groups is not None
        closed = model.groups.closed
        head = self.rows.taken(np.arange(1))
        groups = len(self.rows.present)
        by_sums = closed is not None and closed(model.groups).units(head, [], groups) is not None
        plan = shelved(self.rows.counts, by_sums)
        units = self._maker.units(self.rows, plan, np.arange(plan.units))
        target = _bound(model, units, None)
        precision = asked
        if precision is None:
            unit = jax.tree.map(lambda array: np.asarray(array[0]), units)
            precise = "sums" in units or needs_float64(units) or not runs_in_float32(target, unit)
            precision = "float64" if precise else "float32"
        table = with_room(replace(in_table(units, precision, model.units), shuffled=True))
        return plan, numbered(table, plan, self.rows.ranks()), precision, target

    def _integral_error(self) -> float:
        anchor = self.anchor()
        if self.laid is None or self.laid.rough is None or anchor is None:
            return 0.0
        return self.laid.rough.error(anchor)


def order_of(copies: np.ndarray) -> Order:
    """The list of units, each so many times: in an order that hangs on how many there are."""
    places = np.arange(len(copies), dtype=np.int32)
    return Order.empty().with_rows(contents([places]), places, copies)


def _bound(model: Model, units: Any, nodes: int | None) -> Target:
    """Of so many nodes a direction, or of as many as a climb begins with."""
    assert model.groups is not None
    chosen = replace(model, groups=replace(model.groups, nodes=nodes))
    return bind(chosen, jax.tree.map(lambda array: np.asarray(array[0]), units))[0]
