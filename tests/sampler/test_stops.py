"""Stops: where paths are kept along a window, at every level at the same times before their end.

The posterior and its paths are those of test_telescoping_anchored. Laws are compared at 5 standard errors, a false
alarm in 6e-7 a check, 2e-5 in all; the seeds are fixed.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from anchored_levels import law_score, problem, sampled, sum_score

import tallbayes as tb
from tallbayes.estimator.levels import sample_level
from tallbayes.sampler.paths import MOST_STOPS

TAYLOR = tb.Taylor(3, tb.Blocks())
# T_0 is the window: the first stops are so early that their law is far from the last ones'.
SHORT = tb.Ladder(first_step=0.5, start_steps=4, added_steps=2, window_steps=4)
LONG = tb.Ladder(first_step=0.5, start_steps=23, added_steps=3, window_steps=20)


def stops_of(this, level, blocks):
    """Points (paths, stops, 1 + coarse paths, d) of many blocks, each with the noise that was left out drawn anew."""
    with ThreadPoolExecutor(2) as pool:
        quiet = np.concatenate([b.points for b in pool.map(lambda b: sample_level(this, level, b), range(blocks))])
    dynamics, anchor = this.plan.dynamics, this.ground.anchor
    normals = np.random.default_rng(level).normal(size=(*quiet.shape[:2], 1, quiet.shape[3]))
    return quiet + dynamics.spread(dynamics.coefficients(this.ladder.step(level))) * anchor.displacements(normals)


def score(one, other):
    """The largest distance of first and second moments, in standard errors."""
    both = [np.concatenate([each, each**2], axis=-1).astype(float) for each in (one, other)]
    variance = sum(each.var(axis=0, ddof=1) / len(each) for each in both)
    return np.abs((both[0].mean(axis=0) - both[1].mean(axis=0)) / np.sqrt(variance)).max()


@pytest.fixture(scope="module")
def fine_and_coarse():
    this = problem(TAYLOR, ladder=SHORT)
    return stops_of(this, 0, 512)[:, :, 0], stops_of(this, 1, 384)[:, :, 1:]


def test_stops_are_spread_over_the_window():
    assert SHORT.stops(MOST_STOPS) == (4, 1)
    assert LONG.stops(MOST_STOPS) == (8, 2)
    assert sample_level(problem(TAYLOR, ladder=LONG), 2, 0).points.shape == (32, 8, 3, 2)


def test_coarse_stops_have_the_law_of_fine_ones_a_level_below(fine_and_coarse):
    fine, coarse = fine_and_coarse
    for stop in range(4):
        for path in range(2):
            assert score(fine[:, stop], coarse[:, stop, path]) < 5


def test_control_stops_at_other_times_have_other_laws(fine_and_coarse):
    fine, coarse = fine_and_coarse
    assert score(fine[:, 0], coarse[:, 3, 0]) > 5
    assert score(fine[:, 3], coarse[:, 0, 1]) > 5


@pytest.mark.parametrize("level", [0, 1, 3])
def test_a_window_moves_no_path(level):
    """The last stop is where the path without a window ends, to the bit: steps may be run in parts."""
    alone = tb.Ladder(LONG.first_step, LONG.start_steps, LONG.added_steps)
    ends = sample_level(problem(TAYLOR, ladder=alone), level, 0).points
    stops = sample_level(problem(TAYLOR, ladder=LONG), level, 0).points
    assert ends.shape[1] == 1
    np.testing.assert_array_equal(stops[:, -1:], ends)
    assert np.abs(stops[:, 0] - stops[:, -1]).min() > 0


def test_windowed_levels_telescope_to_the_posterior():
    levels = sampled(problem(TAYLOR, ladder=LONG))
    assert law_score(levels) < 5
    assert sum_score(levels) < 5
