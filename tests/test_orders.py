"""Measured rates on the paper's problem: N = 1000, n = 10, m = 15, 4,096 paths a level, fitted over levels 3-7.

The relative sd of a variance from 4,096 samples of kurtosis 8 is 4%, so a fitted beta has a standard error of 0.02 and
the bands below are many of those wide. Kurtosis, seeds and blocks are fixed; nothing here can flicker.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import paper
import pytest

import tallbayes as tb
from tallbayes.estimation import _check_data, _prepare
from tallbayes.executors import default_executor, in_order
from tallbayes.levels import BLOCK_PATHS, make_problem, sample_level
from tallbayes.moments import merge_all
from tallbayes.paths import Plan
from tallbayes.quantities import make_estimands

PATHS = 4096
NUM_ROWS = 1000


@dataclass(frozen=True)
class LiteralLadder(tb.Ladder):
    """The window as the paper's text has it, half of every path: p_l = s_l / 2."""

    def window(self, level):
        return self.steps(level) // 2


@cache
def prepared():
    model = paper.MODEL
    return _prepare(model, _check_data(model, paper.rows(NUM_ROWS)), "float32", shuffle=False, anchor=None)


def variances(gradient, coupling, ladder, levels):
    """Var Delta_l of g = |theta - theta_0|^2."""
    this = prepared()
    estimands = make_estimands({"g": paper.distance(this.anchor.mode)}, this.target, this.anchor)
    plan = Plan(this.target, gradient, tb.Euler(), coupling, estimands.observables, "float32")
    problem = make_problem(plan, this.table, this.anchor, ladder, seed=0, pairs=())
    with default_executor() as executor:
        return np.array(
            [
                merge_all(
                    block.delta
                    for block in in_order(
                        executor,
                        sample_level,
                        ((problem, level, k) for k in range(PATHS // BLOCK_PATHS)),
                        ahead=8,
                    )
                ).variance[0]
                for level in levels
            ]
        )


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
    values = variances(tb.Taylor(10), tb.Antithetic(), ladder(kind=LiteralLadder), range(3, 6))
    assert pairwise(values)[-1] < 1.0
