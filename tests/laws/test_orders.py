"""Measured rates on the paper's problem: N = 1000, n = 10, m = 15, 512 paths a level (4,096 if slow), levels 3-7.

The relative sd of a variance from 512 samples of kurtosis 8 is 12%, so a fitted beta has a standard error of 0.053 and
the bands below are five of those wide to both sides, a false alarm in 6e-7; with 4,096 paths it is 0.019. One step of
log2 has a standard error of 0.24, or 0.085: only the latter tells how a rate changes with the level. Kurtosis, seeds
and blocks are fixed; nothing here can flicker.

Every path is read twice, at its end and over its window, and several blocks go through one call: these are the same
paths as `sample_level` takes, for less than half the time.
"""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.estimator.levels import BLOCK_PATHS, Stream, sample_level
from tallbayes.experiments import problem, runs
from tallbayes.programs.compilation import compiled
from tallbayes.sampler import paths
from tallbayes.sampler.levels import _level_block, schedule_of
from tallbayes.sampler.randomness import phase_words
from tallbayes.workers.executors import default_executor

pytestmark = pytest.mark.usefixtures("optimised")

FEW, MANY = 512, 4096
# Five standard errors; ten of those of many paths.
BAND = {FEW: 0.26, MANY: 0.2}
EITHER = pytest.mark.parametrize("num_paths", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
BLOCKS_A_CALL = 4
NUM_ROWS = 1000
WINDOW = 5


def end_and_window(schedule, totals, *ends, path_end=paths.path_end):
    """Delta_l at the end of the paths, then over their windows."""
    end = path_end(schedule._replace(solo_window=0, fine_window=0, coarse_window=0), totals, *ends)
    window = path_end(schedule, totals, *ends)
    return window._replace(delta=jnp.concatenate([end.delta, window.delta]))


def blocks(plan, inputs, schedule, words):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "path_end", end_and_window)
        return jax.vmap(lambda each: _level_block(plan, inputs, schedule, each).delta)(words)


def differences(this, level, call):
    """Delta_l of BLOCKS_A_CALL blocks, (paths, 2)."""
    with jax.enable_x64(True):
        numbers = np.arange(BLOCKS_A_CALL * BLOCK_PATHS, dtype=np.uint32).reshape(BLOCKS_A_CALL, BLOCK_PATHS)
        paths_of = np.uint32(BLOCKS_A_CALL * BLOCK_PATHS * call) + numbers
        words = phase_words(this.seed, int(Stream.LEVEL), level, paths_of, phases=paths.PHASES)
        found = compiled(blocks)(this.plan, this.inputs, schedule_of(this, level), words)
        return np.asarray(found, np.float64).reshape(-1, 2)


@cache
def subject(gradient, coupling, ladder):
    return runs.subject(problem.make_rows(NUM_ROWS), ladder, gradient, coupling).problem


@cache
def variances(gradient, coupling, ladder, levels, num_paths=FEW):
    """Var Delta_l of g = |theta - theta_0|^2, (levels, 2): end points and windows."""
    this, calls = subject(gradient, coupling, ladder), range(num_paths // (BLOCK_PATHS * BLOCKS_A_CALL))
    with default_executor() as executor:
        sampled = [list(executor.map(lambda call, l=l: differences(this, l, call), calls)) for l in levels]
    return np.array([np.concatenate(level).var(axis=0, ddof=1) for level in sampled])


def ladder(kind=tb.Ladder, window_steps=WINDOW):
    return kind(1 / NUM_ROWS, start_steps=15, added_steps=15, window_steps=window_steps)


def fitted(values):
    return -np.polyfit(np.arange(len(values)), np.log2(values), 1)[0]


def pairwise(values):
    return -np.diff(np.log2(values))


def test_these_are_the_paths_that_sample_level_takes():
    """To float32 rounding of differences of numbers of size 1e-2."""
    for window_steps, column in ((0, 0), (WINDOW, 1)):
        this = subject(tb.Taylor(10), tb.Antithetic(), ladder())
        for level in (0, 2):
            alone = sample_level(replace(this, ladder=ladder(window_steps=window_steps)), level, 1)
            mine = differences(this, level, 0)[BLOCK_PATHS : 2 * BLOCK_PATHS, column]
            assert alone.delta.mean[0] == pytest.approx(mine.mean(), rel=1e-3, abs=1e-8)
            assert alone.delta.variance[0] == pytest.approx(mine.var(ddof=1), rel=1e-3)


@EITHER
def test_plain_synchronous_falls_towards_one(num_paths):
    values = variances(tb.Plain(10), tb.Synchronous(), ladder(), range(3, 8), num_paths)[:, 0]
    assert abs(fitted(values) - 1.3) < BAND[num_paths]
    if num_paths == MANY:
        assert pairwise(values)[-1] < 1.4
        assert pairwise(values)[-1] < pairwise(values)[0]


@EITHER
@pytest.mark.parametrize(
    "gradient", [pytest.param(tb.Plain(10), marks=pytest.mark.slow), tb.Taylor(10)], ids=["plain", "taylor"]
)
def test_antithetic_is_of_order_two(gradient, num_paths):
    """At end points and over windows."""
    end, window = variances(gradient, tb.Antithetic(), ladder(), range(3, 8), num_paths).T
    assert abs(fitted(end) - 2) < BAND[num_paths]
    assert abs(fitted(window) - 2) < BAND[num_paths]


def test_control_the_literal_window_loses_the_rate():
    """Windows of different length at neighbouring levels leave a difference that does not shrink with h."""
    literal = ladder(runs.LiteralLadder, window_steps=0)
    window = variances(tb.Taylor(10), tb.Antithetic(), literal, range(3, 6))[:, 1]
    assert pairwise(window)[-1] < 1.0
