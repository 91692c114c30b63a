"""Relocation: draws about the Gaussian without one row, for rows that alone decide where the posterior is.

    z' = z + B' [(D^-1/2 - 1) B z - b / D],   B = (L U)^-1 A W with orthonormal rows   (see `cavity`)
    log p(y_i | y_-i) = log E_cavity p_i + [log sum w p_i / sum w] - [log sum g p_i / sum g],   w = pi e^-l_i / q'

q' is the law of z', an affine map of z, so that cavity / q' is what G / q was. No weight is divided by a density any
more. Every draw reads all rows, for each of these rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallbayes.gaussian.whitening import Whitening
from tallbayes.leave_one_out.cavity import LEAST_LEFT
from tallbayes.leave_one_out.certificate import Integrals, along
from tallbayes.leave_one_out.rows import ChosenRows
from tallbayes.leave_one_out.weighing import AllRows, SomeRows
from tallbayes.leave_one_out.within import RowsOfGroups
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.weighing.weights import Weights

# Of the mean square of cavity / G, by which a row's weights are more uneven than those of all.
UNEVEN = 1.2


class Relocated(NamedTuple):
    """Of one row: its answer, what every draw adds to it, the bias of the logarithms, and whether to trust it."""

    elpd: float
    by_draw: Floats
    bias: float
    trouble: str


class Directions(NamedTuple):
    """Along B a Gaussian without the row differs from the one with it; b and D."""

    across: Floats
    pull: Floats
    left: Floats


def foreseen(facts: Integrals) -> np.ndarray:
    """Rows to be relocated, the heaviest first, by the Gaussian alone: the mean square of cavity / G is the product
    over u of D / sqrt(2 D - 1) exp(b^2 / (D (2 D - 1))), and infinite for D <= 1/2.

    What draws have shown has no part in it: to relocate where a heavy weight came up, and not where one was missed,
    would be a bias.
    """
    if facts.shape is None:
        return np.empty(0, np.int64)
    left, pull = facts.shape.left, facts.shape.pull
    room = 2 * left - 1
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        each = np.where(room > 0, left / np.sqrt(room) * np.exp(pull**2 / (left * room)), np.inf)
    size = np.prod(each, axis=1)
    rows = np.flatnonzero(~(size < UNEVEN))
    return rows[np.argsort(-size[rows], kind="stable")]


def relocate(
    row: ChosenRows | RowsOfGroups,
    facts: Integrals,
    source: AllRows | SomeRows,
    whitening: Whitening,
    z: Floats,
    log_gaussian: Floats,
) -> Relocated:
    """Of one chosen row."""
    target, mode = source.target, source.anchor.mode
    ways = _directions(target, row, facts, mode, whitening)
    moved = z + (z @ ways.across.T * (ways.left**-0.5 - 1) - ways.pull / ways.left) @ ways.across
    moves = whitening.move(moved)
    own = next(row.in_parts(target, mode, moves))[1][0]
    log_proposal = -0.5 * np.sum(z**2, axis=1) - log_gaussian
    log_weights = source.log_posteriors(moves)[0] - own - log_proposal
    if not np.isfinite(log_weights.max()):
        return Relocated(np.nan, np.zeros(len(z)), np.inf, "the posterior is no number at some draws")
    weights = Weights.of(log_weights, log_gaussian)
    shift = own.max()
    direct = np.exp(own - shift)
    found, shares, second = shift, np.zeros(len(z)), 0.0
    signed = [(weights.posterior, 1.0)] if facts.shape is None else [(weights.posterior, 1.0), (weights.gaussian, -1.0)]
    for each, sign in signed:
        mean = np.mean(each * direct)
        found += sign * np.log(mean)
        shares += sign * (each * direct / mean - each)
        second += sign * float(np.sum(each**2 - (each * direct / mean) ** 2))
    if facts.shape is not None:
        found += float(facts.cavity[0]) - shift
    return Relocated(float(found), row.counts[0] * shares, second / (2 * len(z) ** 2), weights.trouble)


def _directions(
    target: Target, row: ChosenRows | RowsOfGroups, facts: Integrals, mode: Floats, whitening: Whitening
) -> Directions:
    if facts.shape is not None:
        assert isinstance(row, ChosenRows)
        d = len(mode)
        across = np.linalg.solve(facts.shape.root[0], along(target, row.rows, whitening, np.eye(d))[0])
        return Directions(across, facts.shape.pull[0], facts.shape.left[0])
    slope, bend = row.expansion(target, mode, whitening.move(np.eye(len(mode))))
    bends, turn = np.linalg.eigh((bend + bend.T) / 2)
    return Directions(turn.T, turn.T @ slope, np.maximum(1 + bends, LEAST_LEFT))
