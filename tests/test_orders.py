"""Measured rates on the paper's problem: N = 1000, n = 10, m = 15, 4,096 paths a level, fitted over levels 3-7.

The relative sd of a variance from 4,096 samples of kurtosis 8 is 4%, so a fitted beta has a standard error of 0.02 and
the bands below are many of those wide. Kurtosis, seeds and blocks are fixed; nothing here can flicker.
"""

import numpy as np
import pytest

import tallbayes as tb
from tallbayes.experiments import problem, runs

PATHS = 4096
NUM_ROWS = 1000


def variances(gradient, coupling, ladder, levels):
    """Var Delta_l of g = |theta - theta_0|^2."""
    this = runs.subject(problem.make_rows(NUM_ROWS), ladder, gradient, coupling)
    return np.array([moments.variance[0] for moments in runs.sample_levels(this, list(levels), PATHS)])


def ladder(window_steps=0, kind=tb.Ladder):
    return kind(1 / NUM_ROWS, start_steps=15, added_steps=15, window_steps=window_steps)


def fitted(values):
    return -np.polyfit(np.arange(len(values)), np.log2(values), 1)[0]


def pairwise(values):
    return -np.diff(np.log2(values))


def test_plain_synchronous_falls_towards_one():
    values = variances(tb.Plain(10), tb.Synchronous(), ladder(), range(3, 8))
    assert 1.1 <= fitted(values) <= 1.6
    assert pairwise(values)[-1] < 1.4
    assert pairwise(values)[-1] < pairwise(values)[0]


@pytest.mark.parametrize(
    ("gradient", "window_steps"),
    [(tb.Plain(10), 0), (tb.Taylor(10), 0), (tb.Taylor(10), 5)],
    ids=["plain", "taylor", "taylor, window"],
)
def test_antithetic_is_of_order_two(gradient, window_steps):
    values = variances(gradient, tb.Antithetic(), ladder(window_steps), range(3, 8))
    assert 1.8 <= fitted(values) <= 2.2


def test_control_the_literal_window_loses_the_rate():
    """Windows of different length at neighbouring levels leave a difference that does not shrink with h."""
    values = variances(tb.Taylor(10), tb.Antithetic(), ladder(kind=runs.LiteralLadder), range(3, 6))
    assert pairwise(values)[-1] < 1.0
