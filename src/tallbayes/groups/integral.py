"""How many nodes: the error of the integrals over effects, as a bias of every answer.

With delta(u) = sum_g [log p_g by 2K+1 nodes - log p_g by K nodes], the posterior by K nodes is that by 2K+1 times
exp(-delta), so to first order an expectation is off by -Cov(h, delta), and

    |E_K h - E_2K+1 h| <= sd(h) sd(delta)

for every h, a mean or the square behind an sd alike: sd(delta), over points of the Gaussian at the mode, is a bias in
posterior sds. It is computed on a sample of the groups, scaled up to all, which can only make it larger, and it takes
two standard errors more. The fewest nodes are taken for which it is a small part of the tolerance, but no fewer than
set-up began with: another number is another program.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.importance import in_float64
from tallbayes.model.groups.integral import GroupIntegral
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax, jnp
from tallbayes.rows.table import Table
from tallbayes.watch import count_rows

PAIRS = 8
SHARE = 0.05
SAMPLE_NUMBERS, FEWEST_UNITS = 2**21, 32
# By the number of directions: what is tried together, each held against the one of twice as many and one.
LADDERS = {
    1: ((3, 5, 7, 11, 15), (11, 15, 23, 31, 47, 63)),
    2: ((3, 5, 7, 11, 15), (11, 23)),
    3: ((3, 5, 7, 11), (7, 15)),
}


@dataclass(frozen=True)
class Choice:
    """Nodes a direction, and the bias that they may leave, in posterior sds."""

    nodes: int
    error: float


def choose_nodes(target: Target, table: Table, anchor: Anchor, tolerance: float) -> Choice:
    """The fewest nodes whose error is a small part of the tolerance; the most there are where none is.

    `table` has its nodes at the anchor's mode.
    """
    assert target.integrated is not None
    best, fewest = None, target.integrated.nodes
    for counts in LADDERS[target.integrated.size]:
        for choice in _errors(target, table, anchor, tuple(each for each in counts if each >= fewest)):
            best = choice if best is None or choice.error < best.error else best
            if choice.error <= SHARE * tolerance:
                return choice
    assert best is not None
    return best


def error_of(target: Target, table: Table, anchor: Anchor, nodes: int) -> Choice:
    """Of nodes that were asked for."""
    return _errors(target, table, anchor, (nodes, 2 * nodes + 1))[0]


def _errors(target: Target, table: Table, anchor: Anchor, counts: tuple[int, ...]) -> list[Choice]:
    assert target.integrated is not None
    rows, units = _sample(target, table, max(counts) ** target.integrated.size)
    half = anchor.draws(PAIRS, 0)
    points = anchor.mode + np.concatenate([half, -half])
    with jax.enable_x64(True):
        found = np.asarray(compiled(_totals)((target, counts), rows, np.int32(units), points))
    count_rows(units * len(points))
    totals = dict(zip(counts, found.T * (table.num_rows / units), strict=True))
    return [
        Choice(count, _with_margin(totals[2 * count + 1] - totals[count]))
        for count in counts
        if 2 * count + 1 in totals
    ]


def deviations(target: Target, table: Table, points: Floats) -> Floats:
    """delta over all units of a table, at every point: a sum, to which those of other units are added."""
    assert target.integrated is not None
    nodes, length = target.integrated.nodes, jax.tree.leaves(table.rows["rows"])[0].shape[1]
    counts = nodes, 2 * nodes + 1
    most = max(FEWEST_UNITS, SAMPLE_NUMBERS // (length * counts[1] ** target.integrated.size))
    size, found = min(table.capacity, 1 << (most.bit_length() - 1)), np.zeros(len(points))
    with jax.enable_x64(True):
        for start in range(0, table.num_rows, size):
            rows = jax.tree.map(lambda leaf, start=start: leaf[start : start + size], table.rows)
            units = min(table.num_rows - start, size)
            total = np.asarray(compiled(_totals)((target, counts), rows, np.int32(units), points))
            found += total[:, 1] - total[:, 0]
            count_rows(units * len(points))
    return found


def error_by(delta: Floats) -> float:
    """What nodes may be off by, in posterior sds, where delta is known at points of the Gaussian."""
    return _with_margin(delta)


def _with_margin(delta: Floats) -> float:
    """sd(delta) and two of its standard errors; not a number where an integral is none."""
    return float(np.std(delta, ddof=1) * (1 + 2 / np.sqrt(2 * (len(delta) - 1))))


def _sample(target: Target, table: Table, nodes: int) -> tuple[object, int]:
    """The first units, a power of two of them, and how many are no padding."""
    length = jax.tree.leaves(table.rows["rows"])[0].shape[1]
    most = max(FEWEST_UNITS, SAMPLE_NUMBERS // (length * nodes))
    size = min(table.capacity, 1 << (most.bit_length() - 1))
    return jax.tree.map(lambda leaf: leaf[:size], table.rows), min(size, table.num_rows)


def _totals(static: tuple[Target, tuple[int, ...]], rows: object, units: jax.Array, points: jax.Array) -> jax.Array:
    """sum_g log p_g at every point, by each number of nodes: (points, counts)."""
    target, counts = static
    assert target.integrated is not None
    rows = in_float64(rows)
    inside = jnp.arange(jax.tree.leaves(rows)[0].shape[0], dtype=jnp.int32) < units

    def total(integral: GroupIntegral, vector: jax.Array) -> jax.Array:
        theta = target.space.theta(vector)
        terms = jax.vmap(lambda unit: integral(theta, vector, unit))(rows)
        return jnp.sum(jnp.where(inside, terms, 0))

    integrals = [replace(target.integrated.integral, nodes=count) for count in counts]
    return jax.lax.map(lambda vector: jnp.stack([total(each, vector) for each in integrals]), points)
