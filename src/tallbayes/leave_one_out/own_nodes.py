"""Nodes of their own for rows that decide their group's effect; and what nodes leave of the number.

    uneven_i = sum_k omega_k / p_ik^2 / (sum_k omega_k / p_ik)^2,     omega_k the shares of the group's nodes

is the mean square of the density of the effect without row i over that with it. Where it is more than a little above 1,
at the centre or at points about it, nodes are put down anew for the group without the row (`groups.nodes`): about the
prior, where it is alone. What K nodes leave is told by 2K+1: sum_i of how far both are apart, at draws of the Gaussian.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.groups.nodes import find_nodes, require_nodes
from tallbayes.groups.units import Units
from tallbayes.leave_one_out.within import BLOCK, OwnNodes, RowsOfGroups, block_size, without_rows
from tallbayes.model.groups.integral import MOST_NODES
from tallbayes.moments import Floats
from tallbayes.rows.table import Table

UNEVEN = 1.1
# By the number of directions.
MOST = {1: MOST_NODES, 2: 31, 3: 15}
# Of the tolerance.
SHARE = 0.2


class NodesPlaced(NamedTuple):
    """Rows with as many nodes as it takes, and by how much their sum may be off for want of more."""

    rows: RowsOfGroups
    bias: float


def place_nodes(rows: RowsOfGroups, anchor: Anchor, response_scale: float, tolerance: float) -> NodesPlaced:
    """To a part of `tolerance` sampling errors, where so many nodes allow it."""
    if rows.is_closed:
        return NodesPlaced(rows, 0.0)
    half = anchor.draws(BLOCK // 2, 0)
    points = anchor.mode + np.concatenate([half, -half])
    rows = _with_own(rows, anchor, points)
    constants, whole = rows.constants(rows.target, response_scale), 0.0
    assert rows.target.integrated is not None
    most = MOST[rows.target.integrated.size]
    first = rows.nodes
    while True:
        left, apart, groups = _apart(rows, points)
        # The posterior itself is by the first nodes: an expectation moves by no more than the product of two sds.
        whole = float(np.std(groups) * np.std(left.sum)) if rows.nodes == first else whole
        sampling = float(np.sqrt(len(rows.places) * np.var(left.mean + constants)))
        bias = abs(float(np.mean(apart))) + 2 * float(np.std(apart)) / np.sqrt(BLOCK / 2)
        if bias <= SHARE * tolerance * sampling or 2 * rows.nodes + 1 > most:
            return NodesPlaced(rows, bias + whole)
        rows = rows.with_nodes(2 * rows.nodes + 1)


class _Left(NamedTuple):
    """Of rows left out: the mean over points by row, and the sum over rows by point."""

    mean: Floats
    sum: Floats


def _apart(rows: RowsOfGroups, points: Floats) -> tuple[_Left, Floats, Floats]:
    """By K nodes; and by how much 2K+1 say more, summed over rows, and of all log p_g, at every point."""
    finer = rows.with_nodes(2 * rows.nodes + 1)
    mean = np.empty(len(rows.places))
    sums, apart, groups = np.zeros((3, len(points)))
    for block, (part, _, _) in enumerate(rows.blocks):
        here, there = (each.densities(block, points) for each in (rows, finer))
        mean[part] = here.left.mean(axis=1)
        sums += here.left.sum(axis=0)
        apart += (there.left - here.left).sum(axis=0)
        groups += (there.whole - here.whole).sum(axis=0)
    return _Left(mean, sums), apart, groups


def _with_own(rows: RowsOfGroups, anchor: Anchor, points: Floats) -> RowsOfGroups:
    """Rows that move their group's effect by so much, with nodes of the group without them."""
    found: list[dict[str, Any]] = []
    which, total = np.full(len(rows.places), -1), 0
    for block, (part, groups, length) in enumerate(rows.blocks):
        uneven = rows.unevenness(block, np.concatenate([anchor.mode[None], points])[:BLOCK])
        moved = np.flatnonzero(~(uneven <= np.log(UNEVEN)))
        if not len(moved):
            continue
        which[part.start + moved] = total + np.arange(len(moved))
        total += len(moved)
        units = rows.taken(groups, length)
        at, within, size = rows.in_block(part, groups)[moved], rows.within[part][moved], block_size(length)
        for start in range(0, len(moved), size):
            some = np.minimum(np.arange(start, start + size), len(moved) - 1)
            found.append(_placed(rows, units, at[some], within[some], anchor, min(size, len(moved) - start)))
    if not found:
        return rows
    merged: dict[str, Any] = {
        name: None if found[0][name] is None else np.concatenate([each[name] for each in found])
        for name in OwnNodes._fields
    }
    return replace(rows, which=which, own=OwnNodes(**merged))


def _placed(
    rows: RowsOfGroups, units: Units, at: np.ndarray, within: np.ndarray, anchor: Anchor, count: int
) -> dict[str, Any]:
    """Nodes of groups without one of their rows."""
    without = without_rows(units, at, within)
    information = None
    if "information" in without:
        # Each row says as much of the effect as any other, by its z.
        every, others = _squares(units, at), _squares(without, slice(None))
        size = np.trace(every, axis1=1, axis2=2)
        share = np.trace(units["information"][at], axis1=1, axis2=2) / np.where(size > 0, size, 1.0)
        without["information"] = information = share[:, None, None] * others
    found = find_nodes(rows.target, Table(without, len(at)), anchor.mode)
    require_nodes(found)
    return {
        "centre": found.centre[:count],
        "slope": found.slope[:count],
        "root": found.root[:count],
        "information": None if information is None else information[:count],
    }


def _squares(units: Units, at: Any) -> Floats:
    """The sums of z z^T over the rows of units."""
    z = np.asarray(units["rows"]["z0"], np.float64)[at]
    inside = np.arange(z.shape[1]) < units["count"][at][:, None]
    return np.einsum("ni,nia,nib->nab", inside, z, z)
