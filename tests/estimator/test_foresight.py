"""What idle workers begin with: numbers that follow from the variances, within the budget."""

from __future__ import annotations

import numpy as np
import pytest

from tallbayes.estimator.estimands import Tolerances
from tallbayes.estimator.foresight import DOUBT_UNSEEN, MOST_DOUBT, UNKNOWN_BLOCKS, Arrived, Prospect, Seen, doubt
from tallbayes.estimator.levels import BLOCK_PATHS
from tallbayes.estimator.made_up import MadeUp, made_up_estimands
from tallbayes.estimator.rates import Contraction
from tallbayes.estimator.run import Budget, Run

COSTS = 10.0 * 2.0 ** np.arange(8)
PATHS = np.full(8, BLOCK_PATHS)
PROSPECT = Prospect(COSTS, PATHS, 2.0, np.inf)


def seen(mean: float, blocks: float = 100, share: float = 1e-2, levels: int = 3) -> Seen:
    """Levels of variances 4^-l and means `mean` 2^-l."""
    level = np.arange(levels)[:, None]
    samples = np.full(levels, float(blocks * BLOCK_PATHS))
    return Seen(4.0**-level, mean * 2.0**-level, samples, np.full(1, share), 0.5)


def test_blocks_are_those_of_the_optimal_allocation():
    """N_l = share^-2 sqrt(V_l / C_l) sum sqrt(V C), over the levels there will be; less what may be too much where
    they are sure, more where they are likely."""
    for blocks, sign in zip(PROSPECT.ahead(seen(0.0), 3), (-1, 4), strict=True):
        variance, costs = 4.0 ** -np.arange(len(blocks)), COSTS[: len(blocks)]
        samples = np.sqrt(variance / costs) * np.sum(np.sqrt(variance * costs)) / 1e-4
        part = np.where(np.arange(len(blocks)) < 3, doubt(np.array(3_200.0)), DOUBT_UNSEEN)
        part = -part if sign < 0 else np.minimum(sign * part, MOST_DOUBT)
        np.testing.assert_allclose(blocks, np.ceil(samples) / BLOCK_PATHS * (1 + part), rtol=0.01)


def test_means_that_do_not_fit_in_the_share_bring_more_levels():
    few, many = (len(PROSPECT.ahead(seen(mean), 3).likely) for mean in (0.0, 0.3))
    assert few < many <= len(COSTS)
    # Not even the last level that is allowed brings means of this size down.
    assert len(PROSPECT.ahead(seen(100.0), 3).likely) == len(COSTS)


def test_the_chance_of_one_level_more_is_how_often_its_samples_ask_for_it():
    """Of three levels the third has half of its samples: the other half is drawn 4,000 times, and what the rule says of
    the sum counted. The share is within 5 standard errors, of which one in a million is beyond; with all of its mean
    known it would be 0 or 1."""
    share, rho = 1e-2, 0.5
    demand = PROSPECT.ahead(seen(0.0, 1e9, share), 3).likely[2] * BLOCK_PATHS
    some, have = seen(0.004, 1e9, share), demand / 2
    now = Seen(some.variance, some.mean, np.array([1e12, 1e12, have]), some.share, rho)
    mean, error = float(now.mean[2, 0]), np.sqrt(float(now.variance[2, 0]) / demand)
    rng = np.random.default_rng(0)
    # The mean is known to what its half says, and to a half of itself by the level below, whose own is known exactly.
    prior, noise = (mean / 2) ** 2, now.variance[2, 0] / have
    truth = rng.normal(mean, np.sqrt(prior * noise / (prior + noise)), 4_000)
    later = 0.5 * mean + 0.5 * truth + rng.normal(0, error / np.sqrt(2), 4_000)
    more = 1 + 64 * COSTS[3] / (demand * COSTS[2])
    counted = np.mean(np.abs(later) + 2 * error / np.sqrt(more) > share)
    chance = float(PROSPECT.chances(now, 3)[3])
    assert 0.1 < counted < 0.9
    assert abs(counted - chance) < 5 * np.sqrt(0.25 / 4_000)


@pytest.mark.parametrize("part", [0.5, 0.01])
def test_no_more_is_begun_than_the_budget_pays_for(part: float):
    free = np.array(PROSPECT.ahead(seen(0.0), 3).likely)
    price = float(np.sum(free * COSTS[: len(free)])) * BLOCK_PATHS
    held = Prospect(COSTS, PATHS, 2.0, part * price).ahead(seen(0.0), 3).likely
    np.testing.assert_allclose(held, part * free)


def test_before_anything_is_known_every_worker_has_something_to_do():
    found = PROSPECT.first_blocks(10, 3).likely
    assert found[0] == pytest.approx((1 + MOST_DOUBT) * UNKNOWN_BLOCKS * 10)
    assert found[0] > found[1] > found[2] > found[3] == 0


def test_all_that_has_arrived_counts_in_whatever_order():
    """Blocks of deep levels come before they are wanted, and before those below: they are read all the same."""
    problem = MadeUp(mean=lambda level: 0.03 * 2.0**-level)
    run = Run(
        problem, made_up_estimands(), None, lambda _: None, Tolerances("absolute_tolerance", (0.01,), (1,)), Budget()
    )
    run.contraction = Contraction(0.1, 0.1, 1.0)
    blocks = [(level, block) for level in range(5) for block in range(40)]
    found = []
    for order in (blocks, blocks[::-1]):
        outlook = Arrived(run, 3)
        for level, block in order:
            outlook.saw(level, problem.sample(level, block))
        found.append(outlook.ahead())
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other)
    # The control: without the last two levels there is another guess.
    fewer = Arrived(run, 3)
    for level, block in blocks[:120]:
        fewer.saw(level, problem.sample(level, block))
    assert fewer.ahead() != found[0]
    assert not run.levels
