"""The telescoping law with a control, about an anchor that is beside its balance: no mean of the control is nothing.

As in test_telescoping_anchored, at 5 standard errors: a false alarm in 6e-7 for one check and below 3e-4 for all of
them together; the seeds are fixed. A control leaves a tenth of the variance, so that the sums are three times sharper.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from anchored_levels import LADDER, SIZE, law_score, listing, problem, sampled, sum_score

import tallbayes as tb
from tallbayes.sampler import paths
from tallbayes.sampler.control import Control

TAYLOR = tb.Taylor(1, tb.Blocks())
COMBINATIONS = [
    (TAYLOR, tb.Antithetic(), False),
    (tb.Blend(1, tb.Blocks()), tb.Antithetic(), True),
    pytest.param(tb.ControlVariate(1, tb.Blocks()), tb.Synchronous("coin"), False, marks=pytest.mark.slow),
    pytest.param(tb.Full(), tb.Antithetic(), False, marks=pytest.mark.slow),
    (tb.Taylor(SIZE, tb.WithReplacement()), tb.Synchronous("union"), False),
    pytest.param(
        tb.Blend(SIZE, tb.WithoutReplacement(), partner=tb.Plain, radius=2.0),
        tb.Antithetic(),
        False,
        marks=pytest.mark.slow,
    ),
]


@pytest.mark.parametrize(("gradient", "coupling", "listed"), COMBINATIONS, ids=str)
def test_controlled_levels_telescope_to_the_posterior(gradient, coupling, listed):
    this = problem(gradient, coupling, listing() if listed else None, control=True)
    levels = sampled(this)
    assert law_score(levels) < 5
    assert sum_score(levels, control=True) < 5
    # A window that is as long as the coarse paths' first one can be.
    window = sampled(replace(this, ladder=replace(LADDER, window_steps=2)))
    assert law_score(window) < 5
    assert sum_score(window, control=True) < 5


@pytest.mark.parametrize("size", [1.0, 1.5], ids=["as it is", "control: half as much again"])
def test_levels_about_third_derivatives_telescope(size):
    """Without a row for the control; derivatives that are not those of the rows are a bias that no level sees."""
    this = problem(TAYLOR, control=True, third=True)
    wrong = replace(this.ground.anchor, third=size * this.ground.anchor.third)
    this = replace(this, ground=replace(this.ground, anchor=wrong))
    levels = sampled(this)
    assert law_score(levels) < 5
    assert bool(sum_score(levels, third=True) < 5) is (size == 1.0)


def test_a_control_leaves_a_fraction_of_the_variance_and_its_decay():
    """512 paths; the variances are 10 and more times apart, and tell 0.35 from 0.6 with certainty."""
    this = problem(TAYLOR, control=True)
    levels = sampled(this, num_levels=5, blocks=(16,) * 5)
    plain = sampled(this.uncontrolled(), num_levels=1, blocks=(16,))
    variance = np.array([delta.variance.sum() for delta, *_ in levels])
    assert variance[0] < 0.25 * plain[0][0].variance.sum()
    assert np.all(variance[2:] < 0.6 * variance[1:-1])


# Negative controls: each must turn the sum red, by far more than 5 standard errors.


def test_control_a_mean_that_is_left_out(monkeypatch):
    monkeypatch.setattr(Control, "mean", lambda self, ladder, level: np.zeros_like(self.shift))
    assert sum_score(sampled(problem(TAYLOR, control=True)), control=True) > 8


def test_control_coarse_paths_that_share_the_fine_y(monkeypatch):
    """Both begin where the shift has led the fine one's."""
    monkeypatch.setattr(paths, "start_coarse_control", lambda number, fine: jnp.stack([fine] * number))
    short = replace(LADDER, start_steps=1)
    this = problem(TAYLOR, control=True, dynamics=tb.Exponential(bound=2.2), ladder=short)
    assert sum_score(sampled(this), control=True) > 8
