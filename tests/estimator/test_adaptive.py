"""The adaptive loop on made-up levels whose law is known: no paths, thousands of runs a minute.

Delta_l ~ mean_l + sd_l xi with the means and sds chosen by the test, so the truth is the sum of the means.
"""

from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest

from tallbayes.estimator.adaptive import run_multilevel
from tallbayes.estimator.estimands import Tolerances
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.levels import BLOCK_PATHS
from tallbayes.estimator.made_up import MadeUp, made_up_estimands
from tallbayes.estimator.rates import Contraction
from tallbayes.estimator.run import Budget, Run, consistency_scores
from tallbayes.moments import Moments


class Altered:
    """Made-up levels whose blocks are changed afterwards."""

    def __init__(self, levels, alter):
        self.levels, self.alter = levels, alter

    def __getattr__(self, name):
        return getattr(self.levels, name)

    def sample(self, level, block):
        return self.alter(self.levels.sample(level, block), level, block)


class AtOnce:
    """An executor without threads, which would take more time than the blocks."""

    def submit(self, task, /, *arguments):
        future = Future()
        future.set_result(task(*arguments))
        return future


def run(levels, tolerance=0.05, contraction=0.1, **budget):
    goal = Tolerances("absolute_tolerance", (tolerance,), (1,))
    this = Run(levels, made_up_estimands(), AtOnce(), lambda _: None, goal, Budget(**budget))
    this.contraction = Contraction(contraction, contraction, 1.0)
    status, final = run_multilevel(this)
    return status, final, this


@pytest.fixture(scope="module")
def sound():
    """300 runs at a tolerance of 0.1 around the truth 2: status and end of each."""
    return [run(MadeUp(seed), tolerance=0.1)[:2] for seed in range(300)]


def test_rmse_and_coverage_with_the_stopping_rule_on(sound):
    """RMSE / tolerance beyond 1.2 has a false-alarm rate of 1e-6 if the RMSE were the tolerance itself, and so have
    fewer than 265 hits of 300 for a 95% interval.
    """
    error = np.array([final.summary.value[0] - 2 for _, final in sound])
    half = np.array([1.97 * final.standard_error[0] + final.bias_bound[0] for _, final in sound])
    assert np.sqrt(np.mean(error**2)) < 0.1 * 1.2
    assert np.sum(np.abs(error) <= half) >= 265
    # The control: had the truth been larger by a tolerance, both would have failed.
    off = error - 0.1
    assert np.sqrt(np.mean(off**2)) > 0.1 * 1.2
    assert np.sum(np.abs(off) <= half) < 265


def test_control_without_the_bias_term_the_answer_would_be_wrong():
    """If the loop stopped at three levels the bias alone would break the tolerance."""
    _, final, this = run(MadeUp(), tolerance=0.05)
    assert len(this.levels) > 4
    assert abs(final.summary.mean[:3].sum() - 2) > 2 * 0.05


def test_a_slow_memory_takes_more_levels():
    _, _, quick = run(MadeUp(), contraction=0.1)
    _, _, slow = run(MadeUp(), contraction=0.75)
    assert len(slow.levels) > len(quick.levels)


@pytest.mark.parametrize(("contraction", "status"), [(0.9, Status.paths_too_short), (1.2, Status.no_contraction)])
def test_too_little_contraction_is_told(contraction, status):
    assert run(MadeUp(), contraction=contraction)[0] is status


def test_levels_that_do_not_decay_are_told():
    sample = MadeUp(mean=lambda l: 0.9**l, sd=lambda l: 1.0)
    assert run(sample, tolerance=0.2, max_levels=20)[0] is Status.slow_decay


def test_tails_that_no_sample_size_tames_are_told():
    """One path is most of the variance, and the more paths, the larger it is: blocks 1, 2, 4, ... hold a spike of that
    height. Then se stays at height / sqrt(3 * 32^2) and nu at 2 / 0.6, however many samples there are."""
    small = MadeUp(mean=lambda l: 1e-6, sd=lambda l: 1e-6)

    def spiked(plain, level, block):
        spike = np.zeros((BLOCK_PATHS, 1))
        spike[0] = block if level == 0 and block & (block - 1) == 0 else 0
        return replace(plain, delta=Moments.of(spike + 1e-6 * np.arange(BLOCK_PATHS)[:, None]))

    share = 3**-0.5 / BLOCK_PATHS / 0.8
    sample = Altered(small, spiked)
    status, final, this = run(sample, tolerance=share * np.sqrt(2))
    assert status is Status.heavy_tails
    assert final.freedom[0] < 10
    assert this.levels[0].samples == 4096
    # Where the tolerance leaves room for the wider quantile, the same tails do no harm.
    assert run(sample, tolerance=4 * share)[0] is Status.converged


def test_levels_that_do_not_telescope_are_told():
    status, _, this = run(MadeUp(offset=0.5))
    assert status is Status.inconsistent
    assert np.abs(consistency_scores(this)).max() > 5


def test_rounding_is_no_inconsistency():
    """Two sides that differ by a thousandth of the tolerance, whatever their error bars; a tenth of it is told."""

    def sides(apart):
        def alter(plain, level, block):
            still = 1e-9 * np.arange(BLOCK_PATHS)[:, None]
            return replace(plain, fine=Moments.of(still), coarse=Moments.of(still + apart))

        return Altered(MadeUp(), alter)

    assert run(sides(5e-5))[0] is Status.converged
    assert run(sides(5e-3))[0] is Status.inconsistent


def test_consistency_raises_no_false_alarm(sound):
    """300 sound runs, none called inconsistent."""
    assert {status for status, _ in sound} == {Status.converged}


def test_a_constant_is_exact_at_once():
    sample = MadeUp(mean=lambda l: 3.0 if l == 0 else 0.0, sd=lambda l: 0.0)
    status, final, this = run(sample)
    assert status is Status.converged
    assert final.summary.value[0] == 3
    assert [level.samples for level in this.levels] == [64, 64, 64]


def cut(level):
    return BLOCK_PATHS if level < 2 else 4


def test_narrow_blocks_of_deep_levels_are_counted_by_their_paths():
    """The truth within 5 standard errors and its bias, whole blocks on every level, no path counted that was not."""
    status, final, this = run(MadeUp(3, paths=cut), tolerance=0.02)
    assert status is Status.converged
    assert len(this.levels) > 3
    assert all(level.samples % cut(number) == 0 for number, level in enumerate(this.levels))
    assert any(level.samples % BLOCK_PATHS for level in this.levels)
    assert this.evaluations == sum(level.samples * 2**number for number, level in enumerate(this.levels))
    assert abs(final.summary.value[0] - 2) < 5 * final.standard_error[0] + final.bias_bound[0]
