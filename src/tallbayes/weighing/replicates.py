"""Unbiased replicates: pairs of chains that are offered the same draws, and meet for good.

    X_t = p_t if u_t < w(p_t) / w(X_{t-1}), else X_{t-1};   Y_{t-1} likewise from Y_{t-2}, by the same p_t and u_t
    H = mean_{k<=t<=m} h(X_t) + sum_{k<t<tau} min(1, (t - k) / (m - k + 1)) (h(X_t) - h(Y_{t-1}))

X starts one draw ahead, and tau is the first t with X_t = Y_{t-1}: the first that both accept. H has the expectation of
h under the posterior itself, whatever k and m. So has H less mean_t w_0(p_t) (h(p_t) - E_phi h) over the first m draws
offered, which takes off what the Gaussian explains; of that E_phi h has to be known exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tallbayes.estimator.levels import Stream
from tallbayes.moments import Floats
from tallbayes.weighing.proposal import Proposal

# By then most pairs have met, and a mean over so many steps costs little beside the meeting.
FIRST, LAST = 4, 20
MOST_STEPS = 10_000
REPLICATES = 64

# log pi, up to a constant, and the observables at draws z.
Look = Callable[[Floats], tuple[Floats, Floats]]
Offer = Callable[[int], tuple[Floats, Floats, Floats]]


class Replicated(NamedTuple):
    """H of every pair of a block, and how many draws that took."""

    values: Floats
    draws: int


def replicate_block(look: Look, proposal: Proposal, number: int, base: Floats, exact: np.ndarray) -> Replicated:
    """A pure function of the posterior, the seed and the number; `base` is E_phi of the observables, where `exact`."""
    rng = np.random.default_rng(np.random.SeedSequence([proposal.seed, int(Stream.REPLICATES), number]))

    def offer(step: int) -> tuple[Floats, Floats, Floats]:
        z = proposal.draws(rng, REPLICATES)
        log_density, values = look(z)
        control = proposal.log_gaussian(z)
        return log_density + 0.5 * np.sum(z**2, axis=1) + control, control, values

    uniforms = np.random.default_rng(np.random.SeedSequence([proposal.seed, int(Stream.REPLICATES), number, 1]))
    found, asked = replicates(offer, uniforms, base, exact)
    return Replicated(found, asked * REPLICATES)


@dataclass(frozen=True, eq=False)
class ChainPair:
    """Where both chains of every replicate are: log w there, and the values."""

    log_weight: Floats
    values: Floats

    def offered(self, log_weight: Floats, values: Floats, log_uniform: Floats) -> tuple[ChainPair, np.ndarray]:
        """After a draw for each; which of them took it."""
        # From where the posterior is nothing any draw is taken that is something.
        with np.errstate(invalid="ignore"):
            takes = log_uniform < log_weight - self.log_weight
        where = np.where(takes, log_weight, self.log_weight)
        return ChainPair(where, np.where(takes[:, None], values, self.values)), takes


def replicates(offer: Offer, uniforms: np.random.Generator, base: Floats, exact: np.ndarray) -> tuple[Floats, int]:
    """H of as many pairs as `offer` has draws for at a time, and how many times it was asked.

    `offer(t)` gives log pi / q, log phi / q and the values of one draw for every pair; `base` is E_phi of the values,
    as far as it is `exact`.
    """
    log_weight, _, values = offer(0)
    lead = ChainPair(log_weight, values)
    log_weight, _, values = offer(1)
    behind = ChainPair(log_weight, values)
    count = len(values)
    total, control = np.zeros_like(values), np.zeros_like(values)
    met = np.zeros(count, bool)
    for t in range(1, MOST_STEPS):
        log_weight, log_gaussian, values = offer(t + 1)
        log_uniform = np.log(uniforms.random(count))
        lead, took = lead.offered(log_weight, values, log_uniform)
        if t > 1:
            behind, followed = behind.offered(log_weight, values, log_uniform)
            met |= took & followed
        if FIRST <= t <= LAST:
            total += lead.values / (LAST - FIRST + 1)
        if t <= LAST:
            control += np.exp(log_gaussian)[:, None] * (values - base) / LAST
        if t > FIRST:
            # Y is one behind: after its own step it stands for t - 1.
            apart = np.where(met[:, None], 0.0, lead.values - behind.values)
            total += min(1.0, (t - FIRST) / (LAST - FIRST + 1)) * apart
        if t >= LAST and np.all(met):
            return total - np.where(exact, control, 0.0), t + 2
    return np.full_like(total, np.nan), MOST_STEPS
