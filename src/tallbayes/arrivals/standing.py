"""The standing: all that is carried from one day to the next, as one value, and what a day makes of it.

    rows       a table that grows, in memory or on disk           `memory`, `disk`
    order      the list that paths read runs of                   `order`
    centre     sums over rows at theta_0                          `centre`
    looked     sums of what single rows can do                    `sizes`
    footing    what pilots and a probe have found: the ladder, how paths contract on it, the tails

Nothing of an answer is carried: every day is sampled afresh, from sums that are exact, on random numbers of its own. So
errors do not add up, and those of different days are independent. A standing of few rows has no centre yet: they are
answered by weights, which read all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import expand
from tallbayes.anchor.mode import anchor_at, curvature_of, find_anchor, settle
from tallbayes.anchor.probe import Probe
from tallbayes.anchor.sums import Curvature
from tallbayes.arrivals.centre import Expanded, has_third, moved_along
from tallbayes.arrivals.foretold import Foretold
from tallbayes.arrivals.order import Order, never_there
from tallbayes.arrivals.role import HeldRows
from tallbayes.arrivals.sizes import Sizes, sizes_of
from tallbayes.errors import PosteriorError
from tallbayes.estimation.question import Question
from tallbayes.estimator.decisions import Decision
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.later import jax
from tallbayes.rows.segments.alike import contents
from tallbayes.rows.table import Table, make_table
from tallbayes.setup.preparation import Placed, Prepared
from tallbayes.setup.record import Search
from tallbayes.workers.executors import Executor

# Programs for a day's rows are compiled for so many places, and twice as many wherever that is too few.
DAY_ROOM = 1024
# What another centre takes: passes over all rows, of which third derivatives spare one, and a probe.
PASSES, PROBED = 3, 400_000
# A probe serves another centre until there are so many times the rows that it was of.
SERVES = 2


@dataclass(frozen=True, eq=False)
class Footing:
    """What was found by pilots and a probe about the centre; pilots with a drawn control or without.

    Pilots hold until the centre moves. The probe is that of `probed` rows: tails grow lighter as rows come, so of fewer
    it asks for too much rather than for too little.

    Of the gradients of all days, the `least`, and what was `extra` on the `days` about this centre: it has bought
    another one when that would have been as dear.
    """

    decision: Decision | None = None
    probe: Probe | None = None
    guided: bool = False
    least: float = np.inf
    extra: float = 0.0
    probed: int = 0
    days: int = 0

    def about_another(self, num_rows: int) -> Footing:
        """What is left of it about another centre: what a day takes at least, so that a first one that was dear has to
        pay, and the probe."""
        serves = self.probe is not None and num_rows <= SERVES * self.probed
        return Footing(probe=self.probe, least=self.least, probed=self.probed) if serves else Footing(least=self.least)

    def after(self, gradients: int) -> Footing:
        """A day on, of so many gradients."""
        least = min(self.least, gradients)
        return replace(self, least=least, extra=self.extra + gradients - least, days=self.days + 1)


@dataclass(frozen=True, eq=False)
class Came:
    """Rows that were put into the list: what they say, and how often each stands there."""

    hashes: np.ndarray
    copies: np.ndarray


@dataclass(frozen=True, eq=False)
class Carried:
    """All rows so far, and what was learnt of them; `day` counts what came and went since the first fit.

    `start` is where a climb begins if nothing better is known. `read` are the rows that the last day has read before
    its first path, `told` what it has to say, `foretold` how its rows stood beside the posterior of the day before.
    `came` is what was put into the list, where it is that of the day before but for this; `morning` the standing that
    was asked for the day's answer.
    """

    question: Question
    target: Target
    start: Floats
    precision: str
    rows: HeldRows
    day: int = 0
    order: Order | None = None
    centre: Expanded | None = None
    looked: Sizes = Sizes()
    footing: Footing = Footing()
    search: Search = ((), ())
    read: int = 0
    told: tuple[str, ...] = ()
    foretold: Foretold | None = None
    came: Came | None = None
    morning: Carried | None = None

    @property
    def table(self) -> Table:
        return self.rows.table

    @property
    def num_rows(self) -> int:
        return self.rows.num_rows

    def anchor(self) -> Anchor | None:
        """The Gaussian about theta_0, as its sums have it now."""
        return None if self.centre is None else self.centre.anchor(self.target)

    def placed(self) -> Placed:
        """As the walk has it when rows are where paths can read them."""
        return Placed(self.target, self.table, self.start, self.precision, self.question.method.precision)

    def prepared(self) -> Prepared | None:
        """As the walk has it when set-up is done; None where there is no centre."""
        anchor = self.anchor()
        if anchor is None or self.order is None:
            return None
        anchor = replace(anchor, passes=self.read / self.num_rows, reason="carried on as rows came")
        precision = self.precision, self.question.method.precision
        parts = self.target, self.table, anchor, self.read, *precision
        return Prepared(*parts, self.order.listing(), self.footing.probe)

    def with_rows(self, landed: Any) -> Carried:
        """A day on which rows came, as they have landed."""
        here = replace(self._next_day(), rows=self.rows.grown(landed))
        table = self._of_a_day(here.rows.part(self.num_rows, here.num_rows))
        if self.centre is None or self.order is None:
            return here
        centre = self.centre.plus(self.centre.over(self.target, table))
        here = replace(here, centre=centre, read=table.num_rows)
        anchor = here.anchor()
        if anchor is None:
            return here._lost()
        found = sizes_of(self.target, table, anchor)
        looked = self.looked.plus(found)
        numbers = np.arange(self.num_rows, here.num_rows, dtype=np.int32)
        came = Came(contents(_leaves(table)), looked.copies(found))
        order = self.order.with_rows(came.hashes, numbers, came.copies)
        return replace(here, order=order, looked=looked, read=here.read + table.num_rows, came=came)

    def without(self, arrays: Any, places: Any = None) -> Carried:
        """A day on which rows were withdrawn; refused where any of them was never there.

        `places` are those in the table that was given, where rows are read from another one.
        """
        table = self._of_a_day(self.rows.converted(arrays))
        hashes = contents(_leaves(table))
        order = self.order or self._order_of_all(np.ones(self.num_rows, np.int64))
        order, gone = order.without(hashes)
        self._require_equal(hashes, _leaves(table), gone)
        rows, moved, holes = self.rows.without(gone, places)
        here = replace(self._next_day(), rows=rows, read=table.num_rows)
        if self.centre is None:
            return here
        centre = self.centre.minus(self.centre.over(self.target, table))
        here = replace(here, centre=centre, order=order.renumbered(moved, holes))
        anchor = here.anchor()
        if anchor is None:
            return here._lost()
        looked = self.looked.minus(sizes_of(self.target, table, anchor))
        return replace(here, looked=looked, read=here.read + table.num_rows)

    @property
    def price(self) -> int:
        """Of another centre, in rows read."""
        passes = PASSES - has_third(self.target, self.num_rows)
        return passes * self.num_rows + PROBED * (self.footing.about_another(self.num_rows).probe is None)

    @property
    def most(self) -> float:
        """The gradients by which a day has paid for another centre."""
        least = self.footing.least
        return self.price - self.footing.extra + (least if np.isfinite(least) else self.price)

    def settled(self, executor: Executor | None) -> Carried:
        """With rows expanded anew where a pass finds the mode, if that is far or has been paid for, or if there is no
        centre; as it is otherwise."""
        anchor, read = self.anchor(), 0
        paid = self.footing.extra > self.price
        if anchor is not None and self.centre is not None and not paid and not self.centre.is_far(anchor):
            return self
        if anchor is not None and has_third(self.target, self.num_rows):
            led = Expanded.to_third(self.target, self.table, anchor.mode, executor)
            if led is not None:
                return self._about(led, self.num_rows)
            read = self.num_rows
        anchor = self._found(executor) if anchor is None else moved_along(self.target, self.table, anchor, executor)
        centre = Expanded.of(self.target, anchor).with_third(self.target, self.table, executor)
        read += round(anchor.passes * self.num_rows) + self.num_rows * (centre.third is not None)
        return self._about(centre, read)

    def _found(self, executor: Executor | None) -> Anchor:
        """The mode, from where a centre was lost or from the start."""
        try:
            first = anchor_at(expand(self.target, self.table, self.start, executor), 1.0, self.num_rows)
            if first.is_proper:
                return settle(self.target, self.table, first, executor)
        except (PosteriorError, np.linalg.LinAlgError):
            pass
        return find_anchor(self.target, self.table, self.start, executor)

    def _about(self, centre: Expanded, read: int) -> Carried:
        """About another centre, with all rows looked at once more, and nothing carried over of pilots."""
        footing = self.footing.about_another(self.num_rows)
        here = replace(self, centre=centre, start=centre.theta, footing=footing)
        anchor = here.anchor()
        assert anchor is not None
        found = sizes_of(self.target, self.table, anchor)
        looked = Sizes().plus(found)
        order = self._order_of_all(looked.copies(found))
        told = (*self.told, f"centre: moved to the mode of {self.num_rows:,} rows, by passes over all of them")
        read = self.read + read + self.num_rows
        return replace(here, order=order, looked=looked, read=read, told=told, came=None)

    def _order_of_all(self, copies: np.ndarray) -> Order:
        hashes = contents(jax.tree.leaves(self.rows.part(0, self.num_rows)))
        return Order.empty().with_rows(hashes, np.arange(self.num_rows, dtype=np.int32), copies)

    def _next_day(self) -> Carried:
        return replace(self, day=self.day + 1, read=0, told=(), foretold=None, came=None, morning=None)

    def _lost(self) -> Carried:
        """Where the log posterior is not curved downwards any more, a centre is looked for anew."""
        start = self.start if self.centre is None else self.centre.theta
        return replace(self, centre=None, order=None, start=start, came=None)

    def _of_a_day(self, arrays: Any) -> Table:
        """Some rows in a table of their own, as precise as all are held."""
        kinds = [leaf.dtype for leaf in jax.tree.leaves(arrays) if leaf.dtype.kind == "f"]
        precision = np.result_type(*kinds).name if kinds else self.precision
        return make_table(arrays, precision, False, self.rows.units, DAY_ROOM)

    def _require_equal(self, hashes: np.ndarray, leaves: list[np.ndarray], gone: np.ndarray) -> None:
        """Hashes tell rows apart with near certainty; their numbers do with certainty."""
        there = self.rows.at(gone)
        if there is None:
            return
        own = jax.tree.leaves(there)
        theirs, ours = np.argsort(hashes, kind="stable"), np.argsort(contents(own), kind="stable")
        differ = np.zeros(len(gone), bool)
        for mine, given in zip(own, leaves, strict=True):
            differ |= np.any((mine[ours] != given[theirs]).reshape(len(gone), -1), axis=1)
        if differ.any():
            raise never_there(int(differ.sum()), len(hashes))


def _leaves(table: Table) -> list[np.ndarray]:
    return [np.asarray(leaf)[: table.num_rows] for leaf in jax.tree.leaves(table.rows)]


def carries_on(question: Question, target: Target, start: Floats, search: Search) -> bool:
    """Whether sums at a centre say all that is needed: one mode, a Hessian that is a matrix, the usual method."""
    is_plain = target.integrated is None and target.shrinkage is None and not search[0]
    return bool(is_plain and question.method.anchored and curvature_of(target, start) is Curvature.DENSE)
