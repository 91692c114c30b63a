"""The exponential step in closed forms: exact on Gaussians at any step size, tamed where the remainder explodes.

What holds of any dynamics that has the Gaussian part exactly is asked of kinetic steps too.
"""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import by_ladder, gaussian_posterior, gaussian_rows

import tallbayes as tb
from tallbayes.anchor.mode import find_anchor
from tallbayes.errors import MethodError
from tallbayes.estimator.levels import sample_level
from tallbayes.model.model import bind
from tallbayes.model.observables import Observables
from tallbayes.rows.table import check_rows, make_table
from tallbayes.sampler.gradients import whitened_remainder
from tallbayes.sampler.inputs import make_inputs
from tallbayes.sampler.levels import _sample, make_problem
from tallbayes.sampler.paths import Plan

STEPS = (2.0, 1.0, 0.25)
NOISE_SCALE, PRIOR_SCALE = 0.7, 1.5
# Rows of about equal leverage, so that `tb.estimate` makes no list of them and runs the program of this file.
ROWS = gaussian_rows(60, 2, NOISE_SCALE, seed=5)
MODEL = tb.families.linear(noise_scale=NOISE_SCALE, prior_scale=PRIOR_SCALE)
STEP = tb.Exponential()
EITHER = pytest.mark.parametrize("dynamics", [STEP, tb.Kinetic()], ids=["exponential", "kinetic"])


@cache
def prepared(precision="float32"):
    data = MODEL.check(check_rows(ROWS))
    target, start = bind(MODEL, jax.tree.map(lambda leaf: leaf[0], data))
    table = make_table(data, precision, shuffle=True)
    return target, table, find_anchor(target, table, start)


def problem(first_step, anchor=None, dynamics=STEP):
    """The plan that `tb.estimate` makes of the defaults; one program of each dynamics serves this file."""
    target, table, found = prepared()
    parts = tb.Taylor(1, tb.Blocks()), dynamics, tb.Antithetic(), Observables(True, ())
    plan = Plan(target, *parts, "float32", laplace=True, slabs=True)
    ladder = tb.Ladder(first_step, start_steps=3, added_steps=2)
    return make_problem(plan, table, anchor or found, ladder, 7, ((0, 2), (1, 3)), batch_size=1)


def in_sds(moments, sd):
    """The largest of |mean| + sd of a difference, in posterior sds (of v) and variances (of v^2)."""
    unit = np.concatenate([sd, sd**2])
    return np.max((np.abs(moments.mean) + np.sqrt(moments.variance)) / unit)


@EITHER
@pytest.mark.parametrize("step", STEPS)
def test_a_gaussian_posterior_is_exact_at_any_step(step, dynamics):
    """No path differs from its Laplace path, and no fine path from its coarse ones."""
    sd = prepared()[2].sd
    for level in (0, 1, 2):
        block = sample_level(problem(step, dynamics=dynamics), level, 0)
        assert in_sds(block.delta, sd) < 1e-5
        assert in_sds(block.fine, sd) < 1e-5
        assert block.strained == 0


def test_its_remainder_is_zero():
    target, table, anchor = prepared("float64")
    inputs = make_inputs(table, anchor, "float64", 3)
    remainder = jax.jit(lambda z, first: whitened_remainder(target, tb.Taylor(1, tb.Blocks()), inputs, z, first))
    with jax.enable_x64(True):
        for first in (0, 58):
            assert np.abs(remainder(np.array([2.0, -3.0]), np.int32(first))).max() < 1e-10


def test_mean_and_sd_are_right_at_once():
    """Both to 1e-5 posterior sds, whatever the tolerance and from the fewest paths there can be."""
    mean, precision = gaussian_posterior(ROWS, NOISE_SCALE, PRIOR_SCALE)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    result = by_ladder(MODEL, ROWS, tolerance=0.01, seed=5)
    assert result.converged
    assert [level.samples for level in result.levels] == [64, 64, 64]
    assert np.abs((result["mean"].value - mean) / sd).max() < 1e-5
    assert np.abs(result["sd"].value / sd - 1).max() < 1e-5
    assert result.tuning.chosen.first_step == 1.0
    assert result.tuning.chosen.batch_size == 1


@pytest.mark.parametrize("step", STEPS)
def test_control_a_point_that_is_not_the_mode(step):
    """A gradient c left at the centre drives every path to c (1 - e^-T) beyond u, in whitened units, at any step."""
    found = prepared()[2]
    wanted = np.array([0.03, -0.02])
    moved = replace(found, gradient=found.gradient + np.linalg.solve(found.whitening.T, wanted))
    this = problem(step, moved)
    block = sample_level(this, 0, 0)
    expected = found.whitening @ wanted * -np.expm1(-this.ladder.time(0))
    np.testing.assert_allclose(block.delta.mean[:2], expected, rtol=1e-3)
    assert in_sds(block.delta, found.sd) > 1e-3


@EITHER
def test_paths_stay_in_the_gaussian_they_start_from(dynamics):
    """|z|^2 of the fine path's end is chi-squared with d degrees of freedom at every level, whatever the step.

    3 steps x 2 levels x 2 moments of two dynamics at 5 standard errors: a false alarm in 1.4e-5.
    """
    blocks, d = 64, 2
    for step in STEPS:
        for level in (0, 2):
            square = np.concatenate(
                [_sample(problem(step, dynamics=dynamics), level, block)[3] for block in range(blocks)]
            )
            assert abs(square.mean() - d) < 5 * np.sqrt(2 * d / square.size)
            spread = (square - d) ** 2
            assert abs(spread.mean() - 2 * d) < 5 * spread.std() / np.sqrt(square.size)


def moved(step, state, remainder, noise, dynamics=STEP, dtype=np.float64):
    arrays = (jnp.asarray(np.asarray(part, dtype)) for part in (dynamics.coefficients(step), state, remainder, noise))
    return dynamics.step(*arrays)


def test_the_ornstein_uhlenbeck_step_has_its_law():
    """From N(0, I) back to N(0, I): mean, variance and lag-one correlation e^-h of 2^16 draws, at 5 standard errors.

    3 steps x 3 moments: a false alarm in 5e-6.
    """
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        for step in STEPS:
            before, noise = rng.standard_normal((2, 2**16))
            after = np.asarray(moved(step, before, 0 * before, noise))
            error = before.size**-0.5
            assert abs(after.mean()) < 5 * error
            assert abs(np.mean(after**2) - 1) < 5 * np.sqrt(2) * error
            assert abs(np.mean(after * before) - np.exp(-step)) < 5 * np.sqrt(2) * error


@pytest.mark.parametrize("step", [*STEPS, 1e-3, 1e-9])
def test_two_steps_are_one_step_of_twice_the_size(step):
    """With the merged noise, to float64 rounding; and the merged noise is standard."""
    rng = np.random.default_rng(1)
    state, first, second = rng.standard_normal((3, 8))
    with jax.enable_x64(True):
        fine = STEP.coefficients(step)
        twice = moved(step, moved(step, state, 0 * state, first), 0 * state, second)
        merged = STEP.merge_noise(fine, first, second)
        once = moved(2 * step, state, 0 * state, merged)
        np.testing.assert_allclose(once, twice, rtol=0, atol=2e-15)
        # The same with Euler's share is off by what a coupled path could never make good.
        wrong = moved(2 * step, state, 0 * state, tb.Euler().merge_noise(fine, first, second))
    assert fine[4] ** 2 + fine[5] ** 2 == pytest.approx(1, abs=1e-15)
    assert step < 0.1 or np.abs(np.asarray(wrong) - np.asarray(twice)).max() > 0.05


@pytest.mark.parametrize("step", [1e-4, 1e-9, 1e-15])
def test_small_steps_lose_no_digits(step):
    """Against the first terms of the series; 1 - e^-h formed by subtraction would have none left."""
    decay, gain, spread, kept, first, second = STEP.coefficients(step)
    assert decay == pytest.approx(1 - step + step**2 / 2, rel=1e-15)
    assert gain / step == pytest.approx(1 - step / 2 + step**2 / 6, rel=1e-12)
    assert spread**2 / (2 * step) == pytest.approx(1 - step + 2 / 3 * step**2, rel=1e-11)
    assert kept == step
    assert second**2 == pytest.approx((1 + step / 1) / 2, rel=1e-7)
    assert first / second == pytest.approx(decay, rel=1e-15)
    if step < 1e-8:
        assert (1 - np.exp(-step)) / step != pytest.approx(1 - step / 2, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_taming_bounds_the_remainder(dtype):
    """|tamed| < B / h for any size, in the direction it had; and finite where its square would overflow."""
    direction = np.array([3.0, -4.0, 0.0]) / 5
    bound = 2 * np.sqrt(3)

    def tamed(step, size):
        after = moved(step, np.zeros(3), size * direction, np.zeros(3), dtype=dtype)
        return np.asarray(after, np.float64) / -np.expm1(-step)

    with jax.enable_x64(True):
        for step in STEPS:
            for size in (1.0, 1e3, 1e18):
                there = tamed(step, size)
                assert np.linalg.norm(there) <= bound / step * (1 + 1e-6)
                np.testing.assert_allclose(there / np.linalg.norm(there), direction, rtol=1e-5, atol=1e-6)
            assert np.linalg.norm(there) == pytest.approx(bound / step, rel=1e-5)
            far = tamed(step, 1e30)
            assert np.all(np.isfinite(far))
            assert np.linalg.norm(far) <= bound / step * (1 + 1e-6)
        # The control: without a bound nothing is held back.
        free = moved(1.0, np.zeros(3), 1e30 * direction, np.zeros(3), tb.Exponential(bound=float("inf")), dtype)
        assert np.abs(free).max() > 1e29


def test_small_remainders_pass_and_so_do_all_in_the_limit():
    """The relative change is (h |r| / B)^2 / 2: nothing for small r, and of second order in h for any."""
    r, bound = np.array([0.8, -0.3]), 2 * np.sqrt(2)
    with jax.enable_x64(True):

        def change(step, scale=1.0):
            tamed = np.asarray(moved(step, np.zeros(2), scale * r, np.zeros(2))) / -np.expm1(-step)
            return 1 - np.linalg.norm(tamed) / np.linalg.norm(scale * r)

        assert abs(change(1.0, scale=1e-9)) < 1e-15
        for step in (0.1, 0.01):
            assert change(step) == pytest.approx((step * np.linalg.norm(r) / bound) ** 2 / 2, rel=0.01)
        np.testing.assert_array_equal(moved(1.0, np.ones(2), 0 * r, np.zeros(2)), np.exp(-1.0) * np.ones(2))
        # Without a bound the step is the plain one.
        free = moved(1.0, np.zeros(2), 1e6 * r, np.zeros(2), tb.Exponential(bound=float("inf")))
        np.testing.assert_allclose(free, -np.expm1(-1.0) * 1e6 * r, rtol=1e-15)


def test_strain_is_what_is_tamed():
    with jax.enable_x64(True):
        coefficients = jnp.asarray(STEP.coefficients(0.5))
        strain = STEP.strain(coefficients, jnp.array([30.0, 40.0]))
    assert strain == pytest.approx(0.5 * 50 / (2 * np.sqrt(2)))


@pytest.mark.parametrize("bound", [0, -1.0, float("nan")])
def test_a_bound_that_bounds_nothing_is_refused(bound):
    with pytest.raises(MethodError, match="bound > 0"):
        tb.Exponential(bound=bound)


def test_anchored_wants_whitened_dynamics():
    with pytest.raises(MethodError, match="whitened"):
        tb.Anchored(dynamics=tb.Euler())
