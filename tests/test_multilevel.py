"""The adaptive loop on made-up levels whose law is known: no paths, thousands of runs a minute.

Delta_l ~ mean_l + sd_l xi with the means and sds chosen by the test, so the truth is the sum of the means.
"""

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tallbayes.estimator import adaptive as multilevel
from tallbayes.estimator.adaptive import run_multilevel
from tallbayes.estimator.estimands import Estimands, Quantity
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.levels import BLOCK_PATHS, LevelBlock
from tallbayes.estimator.rates import Contraction
from tallbayes.estimator.run import Budget, Run, consistency_scores
from tallbayes.estimator.tolerances import Tolerances
from tallbayes.model.observables import Observables
from tallbayes.moments import Moments
from tallbayes.structure import Structure

ESTIMANDS = Estimands(
    (Quantity("g", "expectation", 0, Structure.leaf(())),), Observables(False, ()), np.zeros(1), np.ones(1), np.zeros(1)
)


def made_up(mean=lambda l: 2.0**-l, sd=lambda l: 2.0**-l, noise=None, offset=0.0):
    """A problem whose blocks are drawn from a known law."""
    noise = noise or (lambda rng, size: rng.normal(size=size))

    def sample(problem, level, block):
        rng = np.random.default_rng([problem.seed, level, block])
        fine = rng.normal(size=(BLOCK_PATHS, 1)) + sum(mean(l) for l in range(level + 1))
        delta = mean(level) + sd(level) * noise(rng, (BLOCK_PATHS, 1))
        # The coarse side of a level has the law of the fine side below it, unless the test moves it.
        coarse = rng.normal(size=fine.shape) + sum(mean(l) for l in range(level)) + offset
        return LevelBlock(Moments.of(delta), Moments.of(fine), Moments.of(coarse), 0, 1.0, 0.0, BLOCK_PATHS * 2**level)

    return sample


class AtOnce:
    """An executor without threads, which would take more time than the blocks."""

    def submit(self, task, /, *arguments):
        future = Future()
        future.set_result(task(*arguments))
        return future


def run(monkeypatch, sample, tolerance=0.05, seed=0, contraction=0.1, **budget):
    problem = SimpleNamespace(
        seed=seed,
        evaluations=lambda level: 2**level,
        contraction_evaluations=lambda: 1,
        plan=SimpleNamespace(coupling=SimpleNamespace(variance_rate=2.0)),
        ladder=SimpleNamespace(added_steps=5, step=lambda level: 1.0),
    )
    monkeypatch.setattr(multilevel, "sample_level", sample)
    goal = Tolerances("absolute_tolerance", (tolerance,), (1,))
    this = Run(problem, ESTIMANDS, AtOnce(), lambda _: None, goal, Budget(**budget))
    this.contraction = Contraction(contraction, contraction, 1.0)
    status, final = run_multilevel(this)
    return status, final, this


@pytest.fixture(scope="module")
def sound():
    """300 runs at a tolerance of 0.1 around the truth 2: status and end of each."""
    with pytest.MonkeyPatch.context() as patch:
        return [run(patch, made_up(), tolerance=0.1, seed=seed)[:2] for seed in range(300)]


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


def test_control_without_the_bias_term_the_answer_would_be_wrong(monkeypatch):
    """If the loop stopped at three levels the bias alone would break the tolerance."""
    _, final, this = run(monkeypatch, made_up(), tolerance=0.05)
    assert len(this.levels) > 4
    assert abs(final.summary.mean[:3].sum() - 2) > 2 * 0.05


def test_a_slow_memory_takes_more_levels(monkeypatch):
    _, _, quick = run(monkeypatch, made_up(), contraction=0.1)
    _, _, slow = run(monkeypatch, made_up(), contraction=0.75)
    assert len(slow.levels) > len(quick.levels)


@pytest.mark.parametrize(("contraction", "status"), [(0.9, Status.paths_too_short), (1.2, Status.no_contraction)])
def test_too_little_contraction_is_told(monkeypatch, contraction, status):
    assert run(monkeypatch, made_up(), contraction=contraction)[0] is status


def test_levels_that_do_not_decay_are_told(monkeypatch):
    sample = made_up(mean=lambda l: 0.9**l, sd=lambda l: 1.0)
    assert run(monkeypatch, sample, tolerance=0.2, max_levels=20)[0] is Status.slow_decay


def test_tails_that_no_sample_size_tames_are_told(monkeypatch):
    """One path is most of the variance, and the more paths, the larger it is: blocks 1, 2, 4, ... hold a spike of that
    height. Then se stays at height / sqrt(3 * 32^2) and nu at 2 / 0.6, however many samples there are."""
    small = made_up(mean=lambda l: 1e-6, sd=lambda l: 1e-6)

    def sample(problem, level, block):
        plain = small(problem, level, block)
        spike = np.zeros((BLOCK_PATHS, 1))
        spike[0] = block if level == 0 and block & (block - 1) == 0 else 0
        return replace(plain, delta=Moments.of(spike + 1e-6 * np.arange(BLOCK_PATHS)[:, None]))

    share = 3**-0.5 / BLOCK_PATHS / 0.8
    status, final, this = run(monkeypatch, sample, tolerance=share * np.sqrt(2))
    assert status is Status.heavy_tails
    assert final.freedom[0] < 10
    assert this.levels[0].samples == 4096
    # Where the tolerance leaves room for the wider quantile, the same tails do no harm.
    assert run(monkeypatch, sample, tolerance=4 * share)[0] is Status.converged


def test_levels_that_do_not_telescope_are_told(monkeypatch):
    status, _, this = run(monkeypatch, made_up(offset=0.5))
    assert status is Status.inconsistent
    assert np.abs(consistency_scores(this)).max() > 5


def test_rounding_is_no_inconsistency(monkeypatch):
    """Two sides that differ by a thousandth of the tolerance, whatever their error bars; a tenth of it is told."""

    def sides(apart):
        def sample(problem, level, block):
            plain = made_up()(problem, level, block)
            still = 1e-9 * np.arange(BLOCK_PATHS)[:, None]
            return replace(plain, fine=Moments.of(still), coarse=Moments.of(still + apart))

        return sample

    assert run(monkeypatch, sides(5e-5))[0] is Status.converged
    assert run(monkeypatch, sides(5e-3))[0] is Status.inconsistent


def test_consistency_raises_no_false_alarm(sound):
    """300 sound runs, none called inconsistent."""
    assert {status for status, _ in sound} == {Status.converged}


def test_a_constant_is_exact_at_once(monkeypatch):
    sample = made_up(mean=lambda l: 3.0 if l == 0 else 0.0, sd=lambda l: 0.0)
    status, final, this = run(monkeypatch, sample)
    assert status is Status.converged
    assert final.summary.value[0] == 3
    assert [level.samples for level in this.levels] == [64, 64, 64]
