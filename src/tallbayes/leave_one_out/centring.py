"""Centring: the Gaussian that draws are made about, where the fit's own makes weights that are worth little.

It moves to the mean and covariance that weighted draws tell, as that of an evidence does, a few times at the most. Of
hundreds of parameters, as effects of crossed factors are, no draws tell a covariance, and weights are worth nothing.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.errors import InputError, explain
from tallbayes.estimator.levels import Stream
from tallbayes.evidence.gaussians import DrawCentre
from tallbayes.leave_one_out.weighing import AllRows
from tallbayes.weighing.proposal import BLOCK_DRAWS, Proposal
from tallbayes.weighing.weights import Weights

# Of what draws about a posterior that is the Gaussian would be worth.
WORTH_MOVING, MOST_MOVES = 0.8, 5
DRAWS_A_PARAMETER, LEAST_DRAWS = 32, 512
MOST_MOVED = 128
# Of the seed's blocks, where those begin that are made for this alone.
FIRST_BLOCK = 2**20


def centred(source: AllRows, seed: int) -> AllRows:
    """The same about a Gaussian whose draws are worth something; an error where there is none."""
    d = len(source.anchor.mode)
    blocks = -(-max(LEAST_DRAWS, DRAWS_A_PARAMETER * min(d, MOST_MOVED)) // BLOCK_DRAWS)
    proposal = Proposal.about(d, seed)
    for move in range(MOST_MOVES):
        first = FIRST_BLOCK + move * blocks
        z = np.concatenate([proposal.block(first + k, Stream.LEFT_OUT) for k in range(blocks)])
        log_gaussian = proposal.log_gaussian(z)
        log_weights = source.log_posteriors(source.anchor.displacements(z))[0] + log_gaussian + np.sum(z**2, axis=1) / 2
        weights = Weights.of(log_weights, log_gaussian)
        worth = weights.efficiency * float(np.mean(weights.gaussian**2))
        if worth > WORTH_MOVING or not np.isfinite(log_weights).any():
            return source
        if d > MOST_MOVED:
            if weights.trouble:
                raise _too_many(d, weights.trouble)
            return source
        source = replace(source, anchor=_moved(source.anchor, z, np.nan_to_num(log_weights, nan=-np.inf)))
    return source


def _moved(anchor: Anchor, z: np.ndarray, log_weights: np.ndarray) -> Anchor:
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
