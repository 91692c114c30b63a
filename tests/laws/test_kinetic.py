"""Kinetic dynamics: closed forms of its flow and noise, the telescoping law, and its orders.

The posterior is that of `anchored_levels`, far from Gaussian and known by quadrature. Every statistical check is at 5
standard errors, a false alarm in 6e-7 for one check and below 1e-4 for all of them together; the seeds are fixed. The
negative controls have dynamics of their own, so that no program compiled without the fault is reused.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from anchored_levels import law_score, problem, sampled, sum_score
from scipy.linalg import expm, solve_continuous_lyapunov

import tallbayes as tb
from tallbayes.errors import MethodError
from tallbayes.sampler import dynamics as dynamics_of

FRICTIONS = (0.7, 2.0, 3.0)
TIMES = (1e-6, 1e-2, 0.5, 3.0)
STEP = tb.Kinetic()
TAYLOR = tb.Taylor(1, tb.Blocks())
# The critical flow forgets by 0.14 in 2.5, and most of what is left of the start is small by then.
LADDER = tb.Ladder(first_step=0.5, start_steps=8, added_steps=6)
BLOCKS = (96, 32, 16, 8)


def drift(friction):
    return np.array([[0.0, 1.0], [-1.0, -friction]])


def moved(step, state, remainder, noise, dynamics=STEP):
    """A whole step, and half-way of it."""
    coefficients = jnp.asarray(dynamics.coefficients(step))
    half_way = dynamics.approach(coefficients, jnp.asarray(state), jnp.asarray(noise))
    end = dynamics.step(coefficients, half_way, jnp.asarray(remainder), jnp.asarray(noise))
    return np.asarray(half_way), np.asarray(end)


@pytest.mark.parametrize("friction", FRICTIONS)
def test_flow_and_noise_are_those_of_the_linear_equation(friction):
    """E(t) is the exponential of a matrix, and L L^T what the equation dC = A C + C A^T + 2 gamma makes of no noise."""
    dynamics, matrix = tb.Kinetic(friction=friction), drift(friction)
    stationary = solve_continuous_lyapunov(matrix, -np.diag([0.0, 2 * friction]))
    np.testing.assert_allclose(stationary, np.eye(2), atol=1e-14)
    for time in TIMES:
        flow, root = dynamics.flow(time), dynamics.noise_root(time)
        np.testing.assert_allclose(flow, expm(time * matrix), rtol=0, atol=1e-14)
        np.testing.assert_allclose(root @ root.T, np.eye(2) - flow @ flow.T, rtol=0, atol=1e-13)
        assert root[0, 1] == 0


@pytest.mark.parametrize("friction", FRICTIONS)
def test_short_times_lose_no_digits(friction):
    """Var z = 2 gamma t^3 (1/3 - gamma t / 4 + ...), which I - E E^T would have to find among ones."""
    for time in (1e-9, 1e-6, 1e-4):
        root = tb.Kinetic(friction=friction).noise_root(time)
        expected = 2 * friction * time**3 * (1 / 3 - friction * time / 4)
        assert root[0, 0] ** 2 == pytest.approx(expected, rel=1e-9 + 10 * time**2)
        assert root[1, 0] / root[0, 0] == pytest.approx(1.5 / time, rel=10 * time)


@pytest.mark.parametrize("friction", FRICTIONS)
@pytest.mark.parametrize("step", [2.0, 0.5, 1e-3, 1e-6])
def test_two_steps_are_one_step_of_twice_the_size(friction, step):
    """Without a remainder, and half-way of the large step is the end of the first small one; the noise is standard."""
    dynamics, rng = tb.Kinetic(friction=friction), np.random.default_rng(1)
    state, (first, second) = rng.standard_normal(10), rng.standard_normal((2, 20))
    with jax.enable_x64(True):
        _, middle = moved(step, state, np.zeros(5), first, dynamics)
        _, end = moved(step, middle, np.zeros(5), second, dynamics)
        merged = np.asarray(dynamics.merge_noise(jnp.asarray(dynamics.coefficients(step)), first, second))
        half_way, once = moved(2 * step, state, np.zeros(5), merged, dynamics)
        np.testing.assert_allclose(half_way, middle, rtol=0, atol=1e-14)
        np.testing.assert_allclose(once, end, rtol=0, atol=1e-14)
        # The same with halves exchanged, which is as standard, ends elsewhere.
        wrong = np.concatenate([merged[10:], merged[:10]])
        assert step < 0.1 or np.abs(moved(2 * step, state, np.zeros(5), wrong, dynamics)[1] - end).max() > 0.05
    shares = merging(dynamics, step)
    np.testing.assert_allclose(shares @ shares.T, np.eye(4), rtol=0, atol=1e-13)


def merging(dynamics, step):
    """What the four merged noises are made of, (4, 8)."""
    units, coefficients = np.eye(8), dynamics.coefficients(step)
    return np.stack([dynamics.merge_noise(coefficients, unit[:4], unit[4:]) for unit in units], axis=1)


def test_the_last_noise_moves_coarse_and_fine_positions_alike():
    for step in (1.0, 0.25, 1e-3):
        fine, coarse = STEP.coefficients(step), STEP.coefficients(2 * step)
        assert dynamics_of.merged_last(STEP, fine) * STEP.spread(coarse) == pytest.approx(STEP.spread(fine), rel=1e-12)
        noise = np.zeros((4, 1))
        noise[STEP.last] = 1.0
        with jax.enable_x64(True):
            half_way, end = moved(step, np.zeros(2), np.zeros(1), noise.ravel())
        assert not half_way.any()
        assert end[0] == pytest.approx(STEP.spread(fine), rel=1e-15)


def test_a_kick_is_half_way_and_follows_the_remainder():
    """h r at h/2, all of it without a bound; y takes all of it with one."""
    with jax.enable_x64(True):
        for dynamics in (STEP, tb.Kinetic(bound=float("inf"))):
            remainder, step = np.array([30.0, 40.0]), 0.5
            strain = step * 50 / (dynamics.bound * np.sqrt(2))
            held = remainder / (1 + strain**4) ** 0.25
            flow = expm(step / 2 * drift(2.0))
            _, end = moved(step, np.zeros(4), remainder, np.zeros(8), dynamics)
            np.testing.assert_allclose(end.reshape(2, 2), np.outer(flow[:, 1], step * held), rtol=1e-14)
            y = dynamics.follow(jnp.asarray(dynamics.coefficients(step)), jnp.zeros(4), jnp.asarray(remainder))
            np.testing.assert_allclose(y.reshape(2, 2), np.outer(flow[:, 1], step * remainder), rtol=1e-14)
            assert dynamics.strain(dynamics.coefficients(step), jnp.asarray(remainder)) == pytest.approx(strain)
        far = moved(1.0, np.zeros(4), np.array([1e30, 0.0]), np.zeros(8))[1]
        assert np.all(np.isfinite(far))
        assert np.linalg.norm(far) < 2 * STEP.bound * np.sqrt(2)


def test_noise_of_batches_is_what_the_floor_says():
    """By the recursion of its covariance; for small steps h / (2 gamma), half of exponential steps' at gamma = 2."""
    for friction, step in ((0.7, 0.5), (2.0, 1.0), (3.0, 0.1)):
        dynamics = tb.Kinetic(friction=friction)
        flow, kick = dynamics.flow(step), step * dynamics.flow(step / 2)[:, 1]
        covariance = np.zeros((2, 2))
        for _ in range(int(80 / step)):
            covariance = flow @ covariance @ flow.T + np.outer(kick, kick)
        assert dynamics.kicked(step) == pytest.approx(covariance[0, 0], rel=1e-9)
    assert STEP.kicked(0.01) == pytest.approx(0.01 / 4, rel=1e-3)


@pytest.mark.parametrize("settings", [{"friction": 0.0}, {"friction": float("nan")}, {"bound": 0.0}])
def test_settings_that_make_no_sense_are_refused(settings):
    with pytest.raises(MethodError, match="> 0"):
        tb.Kinetic(**settings)


COMBINATIONS = [
    (tb.Full(), tb.Antithetic()),
    (TAYLOR, tb.Antithetic()),
    pytest.param(tb.Plain(3, tb.WithReplacement()), tb.Synchronous("union"), marks=pytest.mark.slow),
    pytest.param(tb.Full(), tb.Synchronous("union"), marks=pytest.mark.slow),
    pytest.param(tb.ControlVariate(1, tb.Blocks()), tb.Synchronous("coin"), marks=pytest.mark.slow),
    pytest.param(tb.Blend(3, tb.WithoutReplacement()), tb.Antithetic(), marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("gradient", "coupling"), COMBINATIONS, ids=str)
def test_levels_telescope_to_the_posterior(gradient, coupling):
    this = problem(gradient, coupling, dynamics=STEP, ladder=LADDER)
    levels = sampled(this, len(BLOCKS), BLOCKS)
    assert law_score(levels) < 5
    assert sum_score(levels) < 5
    window = sampled(replace(this, ladder=replace(LADDER, window_steps=4)), 3, BLOCKS)
    assert law_score(window) < 5


def test_controlled_levels_telescope_to_the_posterior():
    this = problem(TAYLOR, dynamics=STEP, ladder=LADDER, control=True)
    levels = sampled(this, len(BLOCKS), BLOCKS)
    assert sum_score(levels, control=True) < 5
    plain = sampled(this.uncontrolled(), 1, BLOCKS)
    # The same paths: the means of the control are right, and it leaves a part of the variance.
    assert np.all(levels[0][0].variance < plain[0][0].variance)


@dataclass(frozen=True)
class Faulty(tb.Kinetic):
    """Noises that are merged wrongly, or a u that another noise moves; one program for all."""

    def coefficients(self, step):
        right = tb.Kinetic.coefficients(self, step)
        if FAULT[0] == "earlier left out":
            right[7:11] = 0.0
        elif FAULT[0] == "as they are":
            right[7:15] = np.sqrt([0.5, 0, 0, 0.5, 0.5, 0, 0, 0.5])
        return np.append(right, 1.1 if FAULT[0] == "louder" else 1.0)

    def step(self, coefficients, state, remainder, noise):
        return tb.Kinetic.step(self, coefficients, state, remainder, self._louder(coefficients, remainder) * noise)

    def _louder(self, coefficients, remainder):
        return jnp.where(jnp.all(remainder == 0), coefficients[16], 1)


FAULT = ["none"]


def with_fault(fault, num_levels=2, blocks=BLOCKS):
    FAULT[0] = fault
    return sampled(problem(TAYLOR, dynamics=Faulty(), ladder=LADDER), num_levels, blocks)


def test_control_no_fault():
    assert law_score(with_fault("none")) < 5


def test_control_merged_noise_that_is_not_standard():
    assert law_score(with_fault("earlier left out", 2, (128, 128))) > 8


def test_control_noise_merged_without_its_correlations_keeps_the_law():
    """It is standard; what is lost is closeness, and with it all that levels are for."""
    wrong, right = (with_fault(fault, len(BLOCKS)) for fault in ("as they are", "none"))
    assert law_score(wrong) < 5
    assert np.max(wrong[3][0].variance / right[3][0].variance) > 10


def test_control_laplace_path_with_another_noise():
    assert sum_score(with_fault("louder", len(BLOCKS))) > 8


@dataclass(frozen=True)
class KickedLate(tb.Kinetic):
    """The gradient of where a step begins, as a kick half-way: the levels telescope, and the order is lost.

    The kick at the beginning too would be the same as UBU in other words, but for the ends of a path.
    """

    def approach(self, coefficients, state, noise):
        return state

    def step(self, coefficients, state, remainder, noise):
        half_way = tb.Kinetic.approach(self, coefficients, state, noise)
        return tb.Kinetic.step(self, coefficients, half_way, remainder, noise)


# So long that what is left of the start is below what steps of 1/32 leave.
LONG = tb.Ladder(first_step=0.25, start_steps=72, added_steps=16)


def rates(gradient, dynamics, coupling=None, blocks=8):
    """Fitted alpha and beta of levels 1 to 4, the variance of v and v^2 together."""
    levels = sampled(problem(gradient, coupling, dynamics=dynamics, ladder=LONG), 5, (1, *(blocks,) * 4))[1:]
    variance = [float(np.sum(delta.variance)) for delta, *_ in levels]
    mean = [float(np.linalg.norm(delta.mean)) for delta, *_ in levels]
    return tuple(-float(np.polyfit(np.arange(4), np.log2(each), 1)[0]) for each in (mean, variance))


@pytest.mark.usefixtures("optimised")
def test_beta_is_four_with_exact_gradients_and_alpha_is_two():
    """256 paths a level of kurtosis 40: a relative sd of 0.4 of a variance, of beta 0.18 over four levels."""
    alpha, beta = rates(tb.Full(), STEP)
    assert abs(beta - 4) < 0.9
    assert alpha > 1.6


@pytest.mark.usefixtures("optimised")
def test_control_a_kick_at_the_wrong_place_loses_the_order():
    assert rates(tb.Full(), KickedLate())[1] < 2.6


@pytest.mark.slow
@pytest.mark.usefixtures("optimised")
def test_noise_of_batches_takes_the_order_away():
    """Antithetic coarse paths keep 2; with one coarse path it is 1."""
    assert 1.5 < rates(tb.Plain(1, tb.Blocks()), STEP, blocks=32)[1] < 3
    assert rates(tb.Plain(1, tb.Blocks()), STEP, tb.Synchronous("coin"), 32)[1] < 1.5


def test_pairs_contract_as_the_flow_does():
    """Begun about the mode, where the remainder is of second order: |z|^2 + |v|^2 falls like |E(t)|^2, in mean."""
    this = problem(tb.Full(), dynamics=STEP, ladder=tb.Ladder(0.5, start_steps=3, added_steps=3))
    still = replace(this, ground=replace(this.ground, plan=replace(this.plan, dynamics=Still())))
    with ThreadPoolExecutor(2) as pool:
        found = np.concatenate(list(pool.map(lambda block: still.contract(block, 0.02), range(4)))).mean(axis=0)[:4]
    expected = [np.sum(STEP.flow(1.5 * k) ** 2) for k in range(4)]
    np.testing.assert_allclose(found[1:] / found[0], np.array(expected[1:]) / expected[0], rtol=0.3)


@dataclass(frozen=True)
class Still(tb.Kinetic):
    """Without noise, so that paths stay where they began."""

    def coefficients(self, step):
        right = tb.Kinetic.coefficients(self, step)
        right[4:7] = 0.0
        return right


def test_kept_points_are_one_noise_away_from_the_law():
    """Of u, which is N(0, I): |u|^2 has its mean 2 with the noise that was left out, and without it 2 L_11^2 less."""
    this = problem(TAYLOR, dynamics=STEP, ladder=tb.Ladder(1.0, start_steps=3, added_steps=3))
    quiet = np.concatenate([this.sample(0, block).points[:, 0, 1] for block in range(256)])
    z = np.linalg.solve(this.ground.anchor.whitening, quiet.T.astype(float)).T
    spread, normals = STEP.spread(STEP.coefficients(1.0)), np.random.default_rng(0).standard_normal(z.shape)
    ends = np.sum((z + spread * normals) ** 2, axis=1)
    assert abs(ends.mean() - 2) < 5 * np.sqrt(4 / len(ends))
    assert np.sum(z**2, axis=1).mean() < 2 - spread**2
