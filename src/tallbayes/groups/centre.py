"""The centre: the mode of the marginal posterior of theta, with nodes that follow.

    log pi(u) + sum_g log p_g(u),   the nodes of every group at the mode of its effect given u

is expanded anew at every point of the climb: never the joint mode of theta and all effects, which is many sds away. It
is climbed on a sample of the groups first. From a few other points of the sample's Gaussian, three times as wide, it is
climbed again: where that ends elsewhere, there is another mode.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.ascent import climb, distance
from tallbayes.anchor.expansion import Expansion, expand, require_finite
from tallbayes.anchor.mode import anchor_at
from tallbayes.errors import PosteriorError
from tallbayes.groups.nodes import find_nodes, require_nodes, with_nodes
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.later import jax
from tallbayes.rows.table import Table
from tallbayes.workers.executors import Executor

log = logging.getLogger("tallbayes")

SAMPLE_ROWS = 2**14
UNITS_PER_PARAMETER = 16
# In posterior sds of the sample, and of all groups: there the nodes need only be near.
CLOSE_FOR_SAMPLE, CLOSE = 0.1, 0.02
# Few nodes are moved with the point, which their gradient does not see: so near to the mode it may not lead up.
NEAR = 0.5
WIDE, MORE_CLIMBS = 3.0, 3
MOST_STEPS = 40
# As far as a height may fall and be the same.
ROUNDING = 1e-9


@dataclass
class Following:
    """The marginal log posterior as a function of u, with nodes that follow; counts the units it reads.

    Nodes are looked for from those of the highest point so far: a step too far, from whose nodes there is no way back,
    leaves none behind.
    """

    target: Target
    table: Table
    executor: Executor | None = None
    units_read: int = 0
    highest: float = -np.inf
    of: int | None = None

    def __call__(self, vector: Floats, count: int | None = None) -> Expansion:
        read = self.table.num_rows if count is None else count
        self.units_read += read
        if "root" in self.table.rows:
            nodes = find_nodes(self.target, self.table, vector, count)
            if not nodes.are_finite:
                # A step too far: whoever climbs takes a shorter one.
                nothing = np.full(len(vector), np.nan)
                return Expansion(vector, -np.inf, nothing, np.diag(nothing), nothing, np.diag(nothing))
            table = replace(self.table, rows=with_nodes(self.table, nodes))
            self.units_read += read
        else:
            table = self.table
        here = expand(self.target, table, vector, self.executor, None if count is None else [(0, count)])
        # Of other units, other heights.
        highest = self.highest if count == self.of else -np.inf
        if here.value >= highest - ROUNDING * abs(highest) or not np.isfinite(highest):
            self.table, self.highest, self.of = table, max(here.value, highest), count
        return here


@dataclass(frozen=True, eq=False)
class MarginalCentre:
    """The anchor at the mode, the units with their nodes there, and what was read and tried on the way."""

    anchor: Anchor
    table: Table
    units_read: int
    modes: str


def find_marginal_mode(target: Target, table: Table, start: Floats, executor: Executor | None = None) -> MarginalCentre:
    """Climb on a sample, then on all groups."""
    following = Following(target, table, executor)
    count = _sample(target, table)
    if count is not None:
        try:
            start = _climb(following, start, CLOSE_FOR_SAMPLE, count).theta
        except PosteriorError as error:
            log.debug("no way to the mode through a sample of the groups (%s): starting on all of them", error)
    here = _climb(following, start, CLOSE, None)
    anchor = anchor_at(here, following.units_read / table.num_rows, table.num_rows)
    settled = following.table
    modes = _other_modes(following, anchor, count)
    return MarginalCentre(
        replace(anchor, passes=following.units_read / table.num_rows), settled, following.units_read, modes
    )


def follow_marginal_mode(
    target: Target, table: Table, start: Floats, executor: Executor | None = None
) -> MarginalCentre:
    """The same from a start that is known to be near: on all groups, and no other modes are looked for."""
    following = Following(target, table, executor)
    here = _climb(following, start, CLOSE, None)
    anchor = anchor_at(here, following.units_read / table.num_rows, table.num_rows)
    return MarginalCentre(anchor, following.table, following.units_read, "")


def _climb(following: Following, start: Floats, close: float, count: int | None) -> Expansion:
    def evaluate(vector: Floats) -> Expansion:
        return following(vector, count)

    first = evaluate(start)
    if "root" in following.table.rows and not first.is_finite:
        require_nodes(find_nodes(following.target, following.table, start, count))
    require_finite(first, "at the start values")
    return climb(evaluate, first, close, following.table.num_rows, max_iterations=MOST_STEPS, near=NEAR)


def _sample(target: Target, table: Table) -> int | None:
    """How many units, in whole parts, are looked at first; None for all."""
    length = jax.tree.leaves(table.rows["rows"])[0].shape[1] if "rows" in table.rows else 1
    wanted = max(UNITS_PER_PARAMETER * target.dimension, SAMPLE_ROWS // length)
    return wanted if table.shuffled and 2 * wanted < table.num_rows else None


def _other_modes(following: Following, anchor: Anchor, count: int | None) -> str:
    """Climbs from farther out, on the sample where there is one; in words."""
    draws = WIDE * np.random.default_rng(0).standard_normal((MORE_CLIMBS, len(anchor.mode)))
    ends = []
    for move in anchor.displacements(draws):
        try:
            ends.append(_climb(following, anchor.mode + move, CLOSE_FOR_SAMPLE, count))
        except PosteriorError:
            continue
    # The mode of a sample is some of its own sds away from that of all groups.
    apart = [distance(end.theta - ends[0].theta, end.hessian) for end in ends]
    if count is None:
        apart = [distance(end.theta - anchor.mode, end.hessian) for end in ends]
    elsewhere = sum(each > 1 for each in apart)
    if elsewhere:
        return (
            f"{elsewhere} of {MORE_CLIMBS} climbs of the marginal posterior ended elsewhere: it may have another mode"
        )
    return f"no second mode found from {len(ends)} climbs of the marginal posterior"
