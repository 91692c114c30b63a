"""What idle workers begin with: numbers that follow from the variances, within the budget."""

from __future__ import annotations

import numpy as np
import pytest

from tallbayes.estimator.foresight import MOST_DOUBT, UNKNOWN_BLOCKS, Prospect, Seen
from tallbayes.estimator.levels import BLOCK_PATHS
from tallbayes.workers.dispatch import doubt

COSTS = 10.0 * 2.0 ** np.arange(8)
PATHS = np.full(8, BLOCK_PATHS)
PROSPECT = Prospect(COSTS, PATHS, 2.0, np.inf)


def seen(mean: float, blocks: int = 100, share: float = 1e-2) -> Seen:
    """Three levels of variances 4^-l and means `mean` 2^-l."""
    levels = np.arange(3)[:, None]
    return Seen(4.0**-levels, mean * 2.0**-levels, np.full(3, float(blocks * BLOCK_PATHS)), np.full(1, share), 0.5)


def test_blocks_are_those_of_the_optimal_allocation():
    """N_l = share^-2 sqrt(V_l / C_l) sum sqrt(V C), over the levels there will be."""
    found = PROSPECT.likely_blocks(seen(0.0), 3)
    variance = 4.0 ** -np.arange(len(found) - 1)
    costs = COSTS[: len(variance)]
    samples = np.sqrt(variance / costs) * np.sum(np.sqrt(variance * costs)) / 1e-4
    has_samples = np.arange(len(variance)) < 3
    more = np.where(has_samples, 1 + min(doubt(100), MOST_DOUBT), 1 + MOST_DOUBT)
    np.testing.assert_allclose(found[:-1], np.ceil(samples) / BLOCK_PATHS * more, rtol=0.01)
    # One level more than is likely has its pilots alone.
    assert found[-1] == 0


def test_means_that_do_not_fit_in_the_share_bring_more_levels():
    few, many = (len(PROSPECT.likely_blocks(seen(mean), 3)) for mean in (0.0, 0.3))
    assert few < many <= len(COSTS)
    # Not even the last level that is allowed brings means of this size down.
    assert len(PROSPECT.likely_blocks(seen(100.0), 3)) == len(COSTS)


@pytest.mark.parametrize("part", [0.5, 0.01])
def test_no_more_is_begun_than_the_budget_pays_for(part: float):
    free = PROSPECT.likely_blocks(seen(0.0), 3)
    price = float(np.sum(free[:-1] * COSTS[: len(free) - 1])) * BLOCK_PATHS
    held = Prospect(COSTS, PATHS, 2.0, part * price).likely_blocks(seen(0.0), 3)
    np.testing.assert_allclose(held, part * free)


def test_before_anything_is_known_every_worker_has_something_to_do():
    found = PROSPECT.first_blocks(10, 3)
    assert found[0] == pytest.approx((1 + MOST_DOUBT) * UNKNOWN_BLOCKS * 10)
    assert found[0] > found[1] > found[2] > found[3] == 0
