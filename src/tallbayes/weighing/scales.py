"""Scales: the bent proposal of a model, whose scales are known by their names and whose curvature is a pass each.

look(z) = W^T grad log pi(m + W z),   W^T H(m + W z) W
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import expand
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.rows.table import Table
from tallbayes.weighing.bending import BentProposal, bent_proposal
from tallbayes.workers.executors import Executor

# Of labels, how those begin that others are narrow or wide by.
SCALES = ("scales", "correlations", "smooth")


class BentByScales(NamedTuple):
    """A proposal, if there is one, and the passes over all rows that it took."""

    proposal: BentProposal | None
    passes: int


def bent_by_scales(
    target: Target, table: Table, anchor: Anchor, seed: int, executor: Executor | None = None
) -> BentByScales:
    """About an anchor whose precision is a matrix."""
    passes = 0

    def look(z: Floats) -> tuple[Floats, Floats]:
        nonlocal passes
        passes += 1
        here = expand(target, table, anchor.mode + anchor.displacements(z[None])[0], executor)
        return here.gradient @ anchor.whitening, anchor.whitening.T @ here.hessian @ anchor.whitening

    places = [place for place, name in enumerate(target.space.labels()) if name.startswith(SCALES)]
    found = bent_proposal(look, np.asarray(anchor.whitening), places, seed)
    return BentByScales(found, passes)
