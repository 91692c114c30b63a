"""RMSE and coverage over many seeds, with the stopping rule on.

Thirty runs on the paper's problem, N = 1000, lambda dT = 2, antithetic + Taylor, relative tolerance 2^-5. If the
RMSE were exactly the tolerance, the ratio would pass 1.25 in 3% of studies; an interval that covers 95% has fewer than
23 of 30 hits in 1e-4 of them. Seeds are fixed.
"""

import numpy as np
import paper
import pytest
from scipy.special import stdtrit

import tallbayes as tb

pytestmark = pytest.mark.usefixtures("optimised")

SEEDS = range(30)
TOLERANCE = 2**-5


def method(decay=2.0):
    num_rows = 1000
    _, hessian = paper.mode_and_hessian()
    slowest = np.linalg.eigvalsh(hessian)[0]
    steps = int(np.ceil(decay * num_rows / slowest))
    return tb.Multilevel(
        gradient=tb.Taylor(batch_size=10),
        coupling=tb.Antithetic(),
        ladder=tb.Ladder(first_step=1 / num_rows, start_steps=steps, added_steps=steps),
    )


def run(seed, **changes):
    mode, _ = paper.mode_and_hessian()
    settings = {"relative_tolerance": TOLERANCE, "method": method(), "seed": seed} | changes
    return tb.estimate(paper.MODEL, paper.rows(), {"g": paper.distance(mode)}, **settings)


@pytest.fixture(scope="module")
def truth():
    value = paper.expected_distance()
    assert abs(paper.expected_distance(nodes=16) - value) < 1e-6 * value
    return value


@pytest.fixture(scope="module")
def results():
    return [run(seed)["g"] for seed in SEEDS]


def within_error(estimates, truth):
    """How many truths lie within value +- t_nu se, without the help of the bias bound."""
    return sum(abs(e.value - truth) <= stdtrit(e.degrees_of_freedom, 0.975) * e.standard_error for e in estimates)


def test_rmse_is_within_the_tolerance(results, truth):
    errors = np.array([estimate.value - truth for estimate in results])
    assert all(estimate.met for estimate in results)
    assert np.sqrt(np.mean(errors**2)) <= 1.25 * TOLERANCE * truth


def test_intervals_cover(results, truth):
    assert within_error(results, truth) >= 23
    inside = [e.interval[0] <= truth <= e.interval[1] for e in results]
    assert sum(inside) >= 26


def test_control_a_wrong_truth_is_noticed(results, truth):
    """The checks have power: a truth off by one and a half tolerances would fail both."""
    wrong = truth * (1 + 1.5 * TOLERANCE)
    errors = np.array([estimate.value - wrong for estimate in results])
    assert np.sqrt(np.mean(errors**2)) > 1.25 * TOLERANCE * truth
    assert within_error(results, wrong) < 23
