"""Foresight: how many blocks of every level a run is likely to take, so that idle workers can begin with them.

    N_l from what is known of V_l,   V_l+1 = 2^-beta V_l beyond it,   levels until the means to come fit in the share

A guess costs nothing but idle time: which blocks count is decided by the samples alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.estimator.allocation import bias_terms, optimal_samples
from tallbayes.moments import Floats
from tallbayes.workers.dispatch import doubt

PILOT_PATHS = 64
WEAK_ORDER = 1.0
# A density without a bound has a neck, and a step h reaches to a depth of h^(1/2) of it.
NECK_ORDER = 0.5
# Blocks a worker that idle ones may begin before anything is known.
UNKNOWN_BLOCKS = 64
MOST_DOUBT = 0.1


@dataclass(frozen=True, eq=False)
class Seen:
    """What the levels so far say: variances and means (levels, components), samples, and the share of each error."""

    variance: Floats
    mean: Floats
    samples: Floats
    share: Floats
    rho: float


@dataclass(frozen=True, eq=False)
class Prospect:
    """Where a run can go: what a sample costs by level, up to the last one allowed, how many samples a block has there,
    and how fast variances fall."""

    costs: Floats
    paths: np.ndarray
    variance_rate: float
    max_evaluations: float

    def likely_blocks(self, seen: Seen, num_levels: int) -> Floats:
        """Blocks by level of the whole run, for levels that are yet to come too."""
        levels = self._levels_to_come(seen, num_levels)
        blocks = self._demand(seen.variance, seen.share, levels)[1] / self.paths[:levels]
        known = len(seen.samples)
        have = np.append(seen.samples // self.paths[:known], np.zeros(levels - known))
        return self._affordable(blocks * [1 + min(doubt(int(number)), MOST_DOUBT) for number in have])

    def first_blocks(self, workers: int, num_levels: int) -> Floats:
        """Before the first pilots are known, something to do for all workers, in the usual proportions."""
        blocks = self._demand(np.ones((1, 1)), np.full(1, 1e-3), num_levels)[1] / self.paths[:num_levels]
        return self._affordable(blocks * (1 + MOST_DOUBT) * UNKNOWN_BLOCKS * workers / blocks[0])

    def _affordable(self, blocks: Floats) -> Floats:
        """As much of it as the budget allows; of one level more the pilots alone are likely, which is a zero here."""
        price = float(np.sum(blocks * self.paths[: len(blocks)] * self.costs[: len(blocks)]))
        blocks = blocks * min(1.0, self.max_evaluations / max(price, 1.0))
        return np.nan_to_num(np.append(blocks, [0.0] * (len(blocks) < len(self.costs))))

    def _demand(self, variance: Floats, share: Floats, num_levels: int) -> tuple[Floats, Floats]:
        """Variances of so many levels, those unseen at the rate of the coupling, and the samples they ask for."""
        above = np.arange(1, num_levels - len(variance) + 1)[:, None]
        known = np.vstack([variance, variance[-1] * 2.0 ** (-self.variance_rate * above)])
        return known, optimal_samples(known, self.costs[:num_levels], share)

    def _levels_to_come(self, seen: Seen, num_levels: int) -> int:
        """How many levels there will be: until what is sure of the means, and the errors of enough samples, fit in."""
        error = np.sqrt(seen.variance / seen.samples[:, None])
        sure = np.maximum(np.abs(seen.mean) - 2 * error, 0.0)
        for levels in range(max(num_levels, len(sure)), len(self.costs)):
            above = np.arange(1, levels - len(sure) + 1)[:, None]
            mean = np.vstack([sure, sure[-1] * 2.0 ** (-WEAK_ORDER * above)])
            variance, demand = self._demand(seen.variance, seen.share, levels)
            left = np.sqrt(variance / np.maximum(demand, PILOT_PATHS)[:, None])
            if np.all(bias_terms(mean + 2 * left, seen.rho) <= seen.share):
                return levels
        return max(num_levels, len(sure), len(self.costs))
