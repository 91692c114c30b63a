"""The telescoping law of the anchored ladder, on a posterior that is not Gaussian.

The coarse path of level l must have exactly the law of the fine path of level l - 1, and the Laplace path u must stay
N(0, I). Read beyond u, as E[g(fine) - g(u)] and E[g(coarse) - g(u)], both are sharp; and Laplace's own moments plus the
sum of the levels must be the posterior's, which are known by quadrature in NumPy. Every check is at 5 standard errors:
a false alarm in 6e-7 for one check and below 3e-4 for all of them together; the seeds are fixed. The negative controls
have dynamics of their own, so that no program compiled without the fault is reused.
"""

from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
import pytest
from anchored_levels import BLOCKS, LADDER, SIZE, exact, law_score, listing, problem, sampled, sum_score

import tallbayes as tb
from tallbayes.sampler import paths


def test_laplace_alone_is_far_off():
    """Otherwise the rest of this file would show little."""
    truth, laplace = exact()
    sd = np.sqrt(truth[2:] - truth[:2] ** 2)
    assert np.all(np.abs((truth - laplace)[:2] / sd) > 0.2)
    assert np.abs((truth - laplace)[2:] / sd**2).max() > 0.2


SLABS = [
    (tb.Taylor(1, tb.Blocks()), tb.Antithetic(), False),
    pytest.param(tb.Blend(1, tb.Blocks()), tb.Antithetic(), True, marks=pytest.mark.slow),
    (tb.ControlVariate(1, tb.Blocks()), tb.Synchronous("coin"), False),
    (tb.Plain(1, tb.Blocks()), tb.Antithetic(), True),
]
STATIC = [
    pytest.param(tb.Full(), tb.Antithetic(), False, marks=pytest.mark.slow),
    (tb.Taylor(SIZE, tb.WithReplacement()), tb.Synchronous("union"), False),
    (tb.Blend(SIZE, tb.WithoutReplacement(), partner=tb.Plain, radius=2.0), tb.Antithetic(), False),
]


@pytest.mark.parametrize(("gradient", "coupling", "listed"), SLABS + STATIC, ids=str)
def test_levels_telescope_to_the_posterior(gradient, coupling, listed):
    this = problem(gradient, coupling, listing() if listed else None)
    levels = sampled(this)
    assert law_score(levels) < 5
    assert sum_score(levels) < 5
    window = sampled(replace(this, ladder=replace(LADDER, window_steps=2)), num_levels=3)
    assert law_score(window) < 5


def test_differences_vary_less_and_less():
    """At end points and in windows; 512 paths tell 0.35 from 1 with certainty."""
    this = problem(tb.Taylor(1, tb.Blocks()))
    for ladder in (LADDER, replace(LADDER, window_steps=2)):
        levels = sampled(replace(this, ladder=ladder), num_levels=5, blocks=(16,) * 5)
        variance = np.array([delta.variance.sum() for delta, *_ in levels])
        assert np.all(variance[2:] < 0.6 * variance[1:-1])


# Negative controls: each must turn a check above red, by far more than 5 standard errors.


def test_control_a_list_with_wrong_weights():
    """Every level agrees with the next, and all of them with another posterior. Compiled above: weights are data."""
    right = listing()
    wrong = replace(right, weights=np.ones_like(right.weights))
    levels = sampled(problem(tb.Plain(1, tb.Blocks()), listed=wrong))
    assert sum_score(levels) > 8


def test_control_coarse_path_that_starts_where_the_shift_has_led(monkeypatch):
    def start_at_fine(start, num_coarse, fine):
        return jnp.stack([fine] * num_coarse)

    monkeypatch.setattr(paths, "start_coarse", start_at_fine)
    this = problem(tb.Taylor(1, tb.Blocks()), dynamics=tb.Exponential(bound=2.2))
    short = tb.Ladder(first_step=0.25, start_steps=1, added_steps=2)
    assert law_score(sampled(replace(this, ladder=short), num_levels=3)) > 8


@dataclass(frozen=True)
class Faulty(tb.Exponential):
    """A step whose noises are merged in other shares, or whose Laplace path takes other noise; one program for all."""

    def coefficients(self, step):
        right = tb.Exponential.coefficients(self, step)
        shares = {"equal": right[[5, 5]], "Euler's": np.sqrt([0.5, 0.5])}.get(FAULT[0], right[[4, 5]])
        return np.concatenate([right, shares, [1.1 if FAULT[0] == "louder" else 1.0]])

    def merge_noise(self, coefficients, first, second):
        return coefficients[6] * first + coefficients[7] * second

    def step(self, coefficients, state, remainder, noise):
        factor = jnp.where(jnp.all(remainder == 0), coefficients[8], 1)
        return tb.Exponential.step(self, coefficients, state, remainder, factor * noise)


FAULT = ["none"]


def with_fault(fault, num_levels=len(BLOCKS), blocks=BLOCKS):
    FAULT[0] = fault
    return sampled(problem(tb.Taylor(1, tb.Blocks()), dynamics=Faulty()), num_levels, blocks)


def test_control_no_fault():
    levels = with_fault("none")
    assert law_score(levels) < 5
    assert sum_score(levels) < 5


def test_control_merged_noise_that_is_not_standard():
    """Both fine noises with the share of the second: the merged noise has a variance above 1."""
    assert law_score(with_fault("equal", num_levels=3, blocks=(256, 256, 64))) > 8


def test_control_merged_noise_of_another_dynamics_keeps_the_law():
    """Euler's is standard, so every path keeps its law; what is lost is closeness, as test_exponential shows."""
    levels = with_fault("Euler's")
    assert law_score(levels) < 5
    assert sum_score(levels) < 5


def test_control_laplace_path_with_another_noise():
    assert sum_score(with_fault("louder")) > 8
