"""Centring: the Gaussian that draws are made about, where the fit's own makes weights that are worth little.

It moves to the mean and covariance that weighted draws tell, as that of an evidence does, a few times at the most.
Effects of crossed factors are narrow or wide as their scales are, which no Gaussian is: where draws that bend with the
scales are worth more, they are taken. Of hundreds of parameters no draws tell a covariance, and weights are worth
nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.errors import InputError, explain
from tallbayes.estimator.levels import Stream
from tallbayes.evidence.gaussians import DrawCentre
from tallbayes.leave_one_out.weighing import AllRows
from tallbayes.moments import Floats
from tallbayes.weighing.proposal import BLOCK_DRAWS, Proposal
from tallbayes.weighing.scales import bent_by_scales
from tallbayes.weighing.weights import Weights

# Of what draws about a posterior that is the Gaussian would be worth.
WORTH_MOVING, MOST_MOVES = 0.8, 5
DRAWS_A_PARAMETER, LEAST_DRAWS = 32, 512
MOST_MOVED = 128
# Passes with all second derivatives, which climbs take for a proposal that bends: no dearer than the draws may be.
CLIMB_PASSES = 64
# Of the seed's blocks, where those begin that are made for this alone.
FIRST_BLOCK = 2**20


class CentringDraws(NamedTuple):
    """Draws z, log pi / phi there with that of the proposal taken off, and their weights."""

    z: Floats
    log_weights: Floats
    weights: Weights


def centred(source: AllRows, seed: int) -> AllRows:
    """The same about a Gaussian whose draws are worth something; an error where there is none."""
    d, start = len(source.anchor.mode), source
    for move in range(MOST_MOVES):
        found = _looked(source, seed, move)
        worth = found.weights.efficiency * float(np.mean(found.weights.gaussian**2))
        if worth > WORTH_MOVING or not np.isfinite(found.log_weights).any():
            return source
        if d > MOST_MOVED:
            if found.weights.trouble:
                raise _too_many(d, found.weights.trouble)
            return source
        source = replace(source, anchor=_moved(source.anchor, found.z, np.nan_to_num(found.log_weights, nan=-np.inf)))
    return _bent(start, source, seed)


def _looked(source: AllRows, seed: int, number: int) -> CentringDraws:
    """The draws of this number about a source."""
    d = len(source.anchor.mode)
    blocks = -(-max(LEAST_DRAWS, DRAWS_A_PARAMETER * min(d, MOST_MOVED)) // BLOCK_DRAWS)
    proposal, first = source.bent or Proposal.about(d, seed), FIRST_BLOCK + number * blocks
    z = np.concatenate([proposal.block(first + k, Stream.LEFT_OUT) for k in range(blocks)])
    log_gaussian = proposal.log_gaussian(z)
    log_weights = source.log_posteriors(source.anchor.displacements(z))[0] + log_gaussian + np.sum(z**2, axis=1) / 2
    return CentringDraws(z, log_weights, Weights.of(log_weights, log_gaussian))


def _bent(start: AllRows, moved: AllRows, seed: int) -> AllRows:
    """About where it started, by draws that bend with the scales; where it has moved to, if those are worth less."""
    precision = start.anchor.precision
    dear = CLIMB_PASSES * len(start.anchor.mode) * start.rows_read > start.most
    if dear or not isinstance(precision, np.ndarray) or precision.ndim < 2:
        return moved
    proposal = bent_by_scales(start.target, start.table, start.anchor, seed).proposal
    if proposal is None:
        return moved
    bent = replace(start, bent=proposal)
    own, others = (_looked(each, seed, MOST_MOVES).weights.efficiency for each in (bent, moved))
    return bent if own > others else moved


def _moved(anchor: Anchor, z: Floats, log_weights: Floats) -> Anchor:
    there = DrawCentre.of(anchor).moved(z, log_weights)
    inverse = np.linalg.inv(there.root)
    return replace(anchor, mode=there.mean, precision=inverse.T @ inverse, derived=None)


def _too_many(d: int, trouble: str) -> InputError:
    got = f"{d:,} parameters, most of them effects of crossed factors, and weights of which {trouble}"
    hint = (
        "a fit without the crossed factors of many levels; or ArviZ's loo of result.draws(4_000), with log p of every "
        "row at each of them"
    )
    return InputError(explain(f"up to {MOST_MOVED} parameters, whose draws weights can make right", got, hint))
