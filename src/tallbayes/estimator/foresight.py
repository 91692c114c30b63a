"""Foresight: how many blocks of every level a run is likely to take, so that idle workers can begin with them.

    N_l from what is known of V_l,   V_l+1 = 2^-beta V_l beyond it
    chance of level L + 1 = chance of level L  x  P(a mean that level L leaves does not fit in the share)

A guess costs nothing but idle time: which blocks count is decided by the samples alone. The answer knows a level's
blocks up to the first that is missing, and a level once all below it have their samples; who is idle need not wait for
either: all that has arrived counts here, in whatever order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr

from tallbayes.estimator.allocation import bias_terms, optimal_samples, samples_to_resolve
from tallbayes.estimator.levels import LevelBlock
from tallbayes.estimator.run import LevelState, Run, assess
from tallbayes.moments import Floats
from tallbayes.workers.executors import capacity_of
from tallbayes.workers.outlook import Ahead

PILOT_PATHS = 64
WEAK_ORDER = 1.0
# A density without a bound has a neck, and a step h reaches to a depth of h^(1/2) of it.
NECK_ORDER = 0.5
# Blocks a worker that idle ones may begin before anything is known.
UNKNOWN_BLOCKS = 64
MOST_DOUBT, DOUBT_UNSEEN = 0.2, 0.3
# A level is counted on, or begun with, from such a chance on that there will be one.
SURE, LIKELY = 0.7, 0.2
TINY = np.finfo(float).tiny
# Samples of a level that tell something new: so many times those of the last time.
NEWS = 1.25


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

    def ahead(self, seen: Seen, num_levels: int) -> Ahead:
        """Of levels that are yet to come too."""
        doubts = np.full(len(self.costs), DOUBT_UNSEEN)
        doubts[: len(seen.samples)] = doubt(seen.samples)
        sure = self._blocks(seen, int(np.sum(self.chances(seen, num_levels, surely=True) >= SURE)))
        likely = self._blocks(seen, int(np.sum(self.chances(seen, num_levels) >= LIKELY)))
        sure = self._affordable(sure * (1 - np.minimum(doubts[: len(sure)], 1)))
        likely = self._affordable(likely * (1 + np.minimum(4 * doubts[: len(likely)], MOST_DOUBT)))
        return Ahead(tuple(sure.tolist()), tuple(likely.tolist()))

    def first_blocks(self, workers: int, num_levels: int) -> Ahead:
        """Before the first pilots are known, something to do for all workers, in the usual proportions; and pilots of
        one level more, which is a zero here."""
        blocks = self._demand(np.ones((1, 1)), np.full(1, 1e-3), num_levels)[1] / self.paths[:num_levels]
        likely = self._affordable(blocks * (1 + MOST_DOUBT) * UNKNOWN_BLOCKS * workers / blocks[0])
        return Ahead((), (*likely.tolist(), *[0.0] * (num_levels < len(self.costs))))

    def chances(self, seen: Seen, num_levels: int, surely: bool = False) -> Floats:
        """That there will be so many levels, by level; 1 for those that there are. `surely` is by what is sure of the
        means alone: while these are vague there may be any number of levels."""
        found, means = np.ones(len(self.costs)), self._means(seen)
        if surely:
            mean, spread = means
            means = np.sign(mean) * np.maximum(np.abs(mean) - spread, 0.0), np.zeros_like(spread)
        for level in range(num_levels, len(self.costs)):
            found[level] = found[level - 1] * self._chance_of_more(seen, means, level)
        return found

    def _chance_of_more(self, seen: Seen, means: tuple[Floats, Floats], levels: int) -> float:
        """That one of the last three of so many levels speaks for a bias beyond the share, of any component.

        What a level will say in the end is what it says now, a part of it, and a mean with its own noise for the rest.
        """
        variance, demand = self._demand(seen.variance, seen.share, levels)
        known = min(levels, len(seen.samples))
        have, now = np.zeros((levels, 1)), np.zeros_like(variance)
        have[:known, 0], now[:known] = seen.samples[:known], seen.mean[:known]
        samples = np.maximum(np.maximum(demand, PILOT_PATHS)[:, None], have)
        error, part = np.sqrt(variance / samples), have / samples
        mean, unsure = (each[:levels] for each in means)
        centre = np.abs(part * now + (1 - part) * mean)[1:][-3:]
        spread = np.hypot(error * np.sqrt(1 - part), (1 - part) * unsure)[1:][-3:]
        with np.errstate(divide="ignore", invalid="ignore"):
            # Rather than a level, more samples where they cost no more than its pilots.
            more = 1 + PILOT_PATHS * self.costs[levels] / (samples * self.costs[:levels, None])
            most = seen.share / bias_terms(np.ones((levels, 1)), seen.rho) - 2 * (error / np.sqrt(more))[1:][-3:]
            beyond = ndtr((centre - most) / spread) + ndtr((-centre - most) / spread)
        beyond = np.where(spread > 0, np.where(most > 0, beyond, 1.0), centre > most).max(axis=0)
        return float(1 - np.prod(1 - np.clip(beyond, 0, 1)))

    def _means(self, seen: Seen) -> tuple[Floats, Floats]:
        """Of every level, (levels, components), and how far off: half of the one below, give or take half of that, and
        what the level itself says."""
        means, spreads = np.zeros((2, len(self.costs), len(seen.share)))
        mean, spread = means[0], spreads[0]
        for level in range(1, len(self.costs)):
            mean, spread = mean * 2.0**-WEAK_ORDER, np.hypot(spread, mean / 2) * 2.0**-WEAK_ORDER
            if level < len(seen.samples):
                noise = seen.variance[level] / seen.samples[level]
                # Of level 1 nothing is known but by itself.
                weight = np.ones_like(noise) if level == 1 else spread**2 / np.maximum(spread**2 + noise, TINY)
                mean, spread = mean + weight * (seen.mean[level] - mean), np.sqrt(weight * noise)
            means[level], spreads[level] = mean, spread
        return means, spreads

    def _blocks(self, seen: Seen, levels: int) -> Floats:
        """For the variance; and for the bias where more samples of the last levels say enough of it."""
        variance, demand = self._demand(seen.variance, seen.share, levels)
        if levels <= len(seen.samples):
            error, mean = np.sqrt(variance / np.maximum(demand, PILOT_PATHS)[:, None]), np.abs(seen.mean[:levels])
            by_mean, by_both = (bias_terms(mean + part * error, seen.rho) for part in (0, 2))
            if np.any(by_both > seen.share) and np.all(by_mean <= seen.share):
                resolved = samples_to_resolve(demand, by_mean, by_both, seen.share)
                price = np.sum((resolved - demand) * self.costs[:levels])
                if levels == len(self.costs) or price <= PILOT_PATHS * self.costs[levels]:
                    demand = resolved
        return demand / self.paths[:levels]

    def _affordable(self, blocks: Floats) -> Floats:
        """As much of it as the budget allows."""
        price = float(np.sum(blocks * self.paths[: len(blocks)] * self.costs[: len(blocks)]))
        blocks = blocks * min(1.0, self.max_evaluations / max(price, 1.0))
        return np.nan_to_num(blocks)

    def _demand(self, variance: Floats, share: Floats, num_levels: int) -> tuple[Floats, Floats]:
        """Variances of so many levels, those unseen at the rate of the coupling, and the samples they ask for."""
        above = np.arange(1, num_levels - len(variance) + 1)[:, None]
        known = np.vstack([variance, variance[-1] * 2.0 ** (-self.variance_rate * above)])[:num_levels]
        return known, optimal_samples(known, self.costs[:num_levels], share)


class Arrived:
    """Of one run: moments by level of all blocks that have come, and what they foretell for `num_levels` and more."""

    def __init__(self, run: Run, num_levels: int) -> None:
        self.num_levels = num_levels
        self._run, self._levels = run, dict(enumerate(run.levels))
        costs: Floats = np.array([run.problem.evaluations(level) for level in range(run.budget.max_levels)], float)
        paths = run.block_paths(run.budget.max_levels)
        self._prospect = Prospect(costs, paths, run.problem.variance_rate, run.budget.max_evaluations)
        self._news = np.zeros(run.budget.max_levels)
        self._found: Ahead | None = None
        self._of = 0

    def saw(self, level: int, result: LevelBlock) -> None:
        block, state = replace(result, points=None), self._levels.get(level)
        # A control is judged by the fine side of level 0; of the others no side is read.
        if state is None:
            state = LevelState.of(block)
        elif level == 0:
            state = state.add(block, 0)
        else:
            state = replace(state, delta=state.delta.merge(block.delta))
        self._levels[level] = state
        if state.samples >= self._news[level]:
            self._news[level], self._found = NEWS * state.samples, None

    def ahead(self) -> Ahead:
        """As of the last news."""
        if self._found is None or self._of != self.num_levels:
            self._found, self._of = self._foretell(), self.num_levels
        return self._found

    def _known(self) -> range:
        """Levels that have a block, up to the first that has none."""
        return range(next(level for level in range(len(self._levels) + 1) if level not in self._levels))

    def _foretell(self) -> Ahead:
        known = self._known()
        if len(known) < 3:
            return self._prospect.first_blocks(capacity_of(self._run.executor), self.num_levels)
        so_far = replace(self._run, levels=[self._levels[level] for level in known])
        now = assess(so_far)
        share = now.tolerance / np.sqrt(2)
        seen = Seen(now.variance, now.summary.mean, so_far.samples, share, so_far.rho)
        return self._prospect.ahead(seen, self.num_levels)


def doubt(samples: Floats) -> Floats:
    """How far off, as a part of it, a number may be that was foreseen from so many samples.

    >>> doubt(np.array([64.0, 10_000.0])).tolist()
    [0.125, 0.01]
    """
    return 1 / np.sqrt(np.maximum(samples, 1.0))
