"""Chains: independent ones, side by side, over coefficients and their scales, given a Gaussian site.

    u | v ~ N,   v | u by the moves of a `ScaleLaw`

Half of them start with all coefficients shrunk far below what the rows can tell, half far above, so that what they have
not forgotten shows as a difference between the halves. Every segment has random numbers of its own, by the seed and its
number, and leaves sums over its sweeps, by chain, and a few of the draws themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.estimator.levels import Stream
from tallbayes.moments import Floats
from tallbayes.shrinkage.scales import ScaleLaw
from tallbayes.shrinkage.site import LikelihoodSite

CHAINS, SEGMENT, ENDS = 64, 16, 4
# How far below and above what the rows tell of a coefficient chains start.
BELOW, ABOVE = 0.02, 20.0


@dataclass(frozen=True, eq=False)
class State:
    """Of all chains: where coefficients and all else are, (chains, d), and the scales."""

    points: Floats
    scales: Any


@dataclass(frozen=True, eq=False)
class Segment:
    """Means over its sweeps of what is read, (chains, numbers), and some draws at equal distances, the last one among
    them: points (draws, chains, d) and what is read of them, (draws, chains, numbers)."""

    means: Floats
    points: Floats
    values: Floats

    @property
    def without_draws(self) -> Segment:
        """Its means alone."""
        return Segment(self.means, self.points[:0], self.values[:0])


# What is read of points and log variances and shared scales: (chains, numbers).
Reader = Callable[[Floats, Floats, dict[str, Floats]], Floats]


def begin_chains(site: LikelihoodSite, law: ScaleLaw, number: int = CHAINS) -> State:
    """Every other one from below."""
    sd = np.median(1 / np.sqrt(site.data_precision))
    largest = max(sd, float(np.abs(np.linalg.lstsq(site.precision, site.shift)[0][: site.columns]).max()))
    log_sd = np.tile(np.log([BELOW * sd, ABOVE * largest]), number // 2)
    return State(np.zeros((number, len(site.centre))), law.start(log_sd))


def run_segment(
    site: LikelihoodSite, law: ScaleLaw, state: State, read: Reader, seed: int, number: int
) -> tuple[State, Segment]:
    """So many sweeps from here."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, int(Stream.SHRINKAGE), number]))
    total: Floats | float = 0.0
    kept = []
    for sweep in range(SEGMENT):
        widths = site.widths(state.points, rng)
        points = site.draw(law.log_variance(state.scales), widths, rng)
        scales, beta = law.moved(state.scales, points[:, : site.columns], site.pull(points, widths), rng)
        points[:, : site.columns] = beta
        state = State(points, scales)
        values = read(points, law.log_variance(scales), law.shared(scales))
        total = total + values
        if (sweep + 1) % (SEGMENT // ENDS) == 0:
            kept.append((points, values))
    every, told = (np.array(each) for each in zip(*kept, strict=True))
    return state, Segment(np.asarray(total) / SEGMENT, every, told)
