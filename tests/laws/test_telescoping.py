"""The telescoping law, for every gradient x minibatch law x coupling x window, against closed forms.

The coarse path of level l must have exactly the law of the fine path of level l - 1. On the Gaussian model that
law is known, so both are held against it: mean and second moment of fine and coarse paths, end points and windows.
Every check is at 5 standard errors, a false alarm in 6e-7 for one check and below 1e-3 for all of them together;
the seeds are fixed. The negative controls break the law in the ways that are easy to write by mistake.
"""

from dataclasses import dataclass, replace
from functools import cache

import gaussian
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.anchor.mode import find_anchor
from tallbayes.errors import MethodError
from tallbayes.estimator.levels import sample_level
from tallbayes.model.model import bind
from tallbayes.model.observables import Observables
from tallbayes.moments import merge_all
from tallbayes.rows.table import check_rows, make_table
from tallbayes.sampler import paths
from tallbayes.sampler.levels import make_problem
from tallbayes.sampler.minibatch import distinct
from tallbayes.sampler.paths import Plan

N = 2
BLOCKS = 64
LEVELS = 3
SAMPLINGS = (tb.WithReplacement(), tb.WithoutReplacement(), tb.Blocks())
COUPLINGS = (tb.Synchronous("union"), tb.Synchronous("coin"), tb.Antithetic())
NOISY = [
    make(N, sampling)
    for make in (
        tb.Plain,
        tb.ControlVariate,
        tb.Taylor,
        tb.Blend,
        lambda n, s: tb.Blend(n, s, partner=tb.Plain, radius=0.5),
    )
    for sampling in SAMPLINGS
]
GRADIENTS = [tb.Full(), *NOISY]


def allowed(gradient, coupling):
    if gradient.batch_size is None:
        return coupling != tb.Synchronous("coin")
    return gradient.sampling.independent_entries or coupling != tb.Synchronous("union")


COMBINATIONS = [(g, c) for g in GRADIENTS for c in COUPLINGS if allowed(g, c)]
# Every gradient, one of them with every minibatch law, and every coupling.
QUICK = [
    tb.Full(),
    *(tb.Plain(N, sampling) for sampling in SAMPLINGS),
    tb.ControlVariate(N, tb.Blocks()),
    tb.Taylor(N, tb.WithReplacement()),
    tb.Blend(N, tb.Blocks()),
    tb.Blend(N, tb.WithoutReplacement(), partner=tb.Plain, radius=0.5),
]
COUPLED = tb.Plain(N, SAMPLINGS[0])


def is_quick(gradient, coupling):
    return gradient in QUICK and (coupling == tb.Antithetic() or gradient == COUPLED)


COMBINATIONS = [(g, c) if is_quick(g, c) else pytest.param(g, c, marks=pytest.mark.slow) for g, c in COMBINATIONS]


def ladder(window_steps=0):
    precision = gaussian.exact().precision
    return tb.Ladder(0.5 / precision, start_steps=4, added_steps=3, window_steps=window_steps)


@cache
def prepared(shuffle):
    data = gaussian.MODEL.check(check_rows(gaussian.rows()))
    target, start = bind(gaussian.MODEL, jax.tree.map(lambda leaf: leaf[0], data))
    table = make_table(data, "float32", shuffle)
    return target, table, find_anchor(target, table, start)


def problem(gradient, coupling, window_steps=0):
    shuffle = gradient.batch_size is not None and gradient.sampling.reads_neighbours
    target, table, anchor = prepared(shuffle)
    plan = Plan(target, gradient, tb.Euler(), coupling, Observables(True, ()), "float32")
    return make_problem(plan, table, anchor, ladder(window_steps), seed=3, pairs=())


def sampled(this, blocks=BLOCKS, num_levels=LEVELS):
    """Fine and coarse moments of (v, v^2) by level."""
    levels = [[sample_level(this, level, block) for block in range(blocks)] for level in range(num_levels)]
    fine = [merge_all(block.fine for block in blocks) for blocks in levels]
    coarse = [merge_all(block.coarse for block in blocks) for blocks in levels]
    return fine, coarse


def scores(moments, second_moment):
    """Distance from the closed form in standard errors: of the mean, and of the second moment."""
    error = np.sqrt(moments.variance / moments.count)
    return (moments.mean - np.array([0.0, second_moment])) / error


def worst_score(this, gradient, blocks=BLOCKS):
    truth = gaussian.exact()
    fine, coarse = sampled(this, blocks)
    worst = 0.0
    for level in range(LEVELS):
        moments = gaussian.second_moments(truth, gradient, this.ladder.step(level), this.ladder.steps(level))
        window = max(this.ladder.window(level), 1)
        exact = moments[-window:].mean()
        worst = max(worst, np.abs(scores(fine[level], exact)).max())
        if level + 1 < LEVELS:
            worst = max(worst, np.abs(scores(coarse[level + 1], exact)).max())
    return worst


@pytest.mark.parametrize(("gradient", "coupling"), COMBINATIONS, ids=str)
def test_fine_and_coarse_paths_have_the_exact_law(gradient, coupling):
    for window_steps in (0, 4):
        assert worst_score(problem(gradient, coupling, window_steps), gradient) < 5


@pytest.mark.parametrize("sampling", SAMPLINGS[1:], ids=str)
def test_the_union_of_dependent_entries_is_refused(sampling):
    with pytest.raises(MethodError, match="telescope"):
        tb.Synchronous("union").check(sampling)
    tb.Synchronous("union").check(tb.WithReplacement())


def test_every_combination_is_allowed_or_refused():
    for gradient in NOISY:
        for coupling in COUPLINGS:
            if allowed(gradient, coupling):
                coupling.check(gradient.sampling)
            else:
                with pytest.raises(MethodError):
                    coupling.check(gradient.sampling)


# Negative controls: each must turn the check above red, by far more than 5 standard errors.


@dataclass(frozen=True)
class UncheckedUnion(tb.Synchronous):
    """Draws the coarse batch from the union whatever the fine batches' law."""

    def check(self, sampling):
        pass


def test_control_union_of_without_replacement_batches():
    gradient = tb.Plain(7, tb.WithoutReplacement())
    assert worst_score(problem(gradient, UncheckedUnion()), gradient, blocks=256) > 8


@dataclass(frozen=True)
class SplitDraw:
    """One without-replacement draw of 2n, cut into the batches of two consecutive steps."""

    independent_entries = False
    reads_neighbours = False

    def num_indices(self, batch_size):
        return 2 * batch_size

    def draw(self, draws, batch_size, num_rows):
        words = draws.__self__
        if not hasattr(words, "both"):
            words.both = distinct(draws, 2 * batch_size, num_rows).reshape(2, batch_size)
            return words.both[0]
        return words.both[1]


def test_control_one_draw_split_over_two_steps():
    gradient = tb.Plain(4, SplitDraw())
    truth_law = tb.Plain(4, tb.WithoutReplacement())
    assert worst_score(problem(gradient, tb.Antithetic()), truth_law) > 8


def test_control_coarse_path_that_starts_where_the_shift_has_led(monkeypatch):
    def start_at_fine(mode, num_coarse, fine):
        return jnp.stack([fine] * num_coarse)

    monkeypatch.setattr(paths, "start_coarse", start_at_fine)
    # A batch size of its own, so that no program compiled without the fault is reused; short paths remember.
    gradient = tb.Taylor(3)
    short = tb.Ladder(0.1 / gaussian.exact().precision, start_steps=2, added_steps=2)
    assert worst_score(replace(problem(gradient, tb.Antithetic()), ladder=short), gradient) > 8


def test_control_window_off_by_one():
    this = problem(tb.Full(), tb.Antithetic(), 4)
    fine, _ = sampled(replace(this, ladder=replace(this.ladder, window_steps=3)), blocks=768, num_levels=1)
    truth = gaussian.exact()
    moments = gaussian.second_moments(truth, tb.Full(), this.ladder.step(0), this.ladder.steps(0))
    assert np.abs(scores(fine[0], moments[-3:].mean())).max() < 5
    assert np.abs(scores(fine[0], moments[-4:].mean())).max() > 7
