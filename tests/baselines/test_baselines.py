"""MALA and SGLD against closed forms: exact posteriors, exact stationary laws of the discretised chains, exact costs.

"Within 5 standard errors" is false-alarmed by a right program with probability at most 1.2e-6 a component (batch
means of 8 chains or more: Student's t with at least 255 degrees of freedom).
"""

from __future__ import annotations

from itertools import combinations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tallbayes as tb
from tallbayes.baselines import Decreasing, mala, sgld
from tallbayes.baselines.chains import BATCHES, batch_edges
from tallbayes.errors import DataError, InputError, MethodError
from tallbayes.rows.table import SHUFFLE_SEED

MODEL = tb.families.linear(noise_scale=1.0, prior_scale=1.0)


class OneCoefficient:
    """y_i ~ N(x_i theta, 1), theta ~ N(0, 1), few enough rows to enumerate every minibatch.

    With a_i = x_i^2, c_i = x_i y_i - a_i theta_0 and v = theta - theta_0 an SGLD step is
    v' = (1 - h lambda) v + h (eps_c - eps_a v) + sqrt(2h) xi, where eps is the error of a scaled batch sum.
    Unbiased gradients keep E v = 0 from v = 0.
    """

    num_rows, batch_size = 8, 2

    def __init__(self) -> None:
        rng = np.random.default_rng(5)
        x = rng.normal(size=self.num_rows) * np.tile([0.3, 2.0], self.num_rows // 2)
        y = 0.8 * x + rng.normal(size=self.num_rows)
        self.data = {"x": x[:, None], "y": y}
        self.precision = 1 + np.sum(x**2)
        self.mode = float(np.sum(x * y) / self.precision)
        self.a, self.c = x**2, x * y - x**2 * self.mode

    def error_squares(self, law) -> tuple[float, float]:
        """E eps_a^2 and E eps_c^2 over every batch of the law."""
        n, size = self.num_rows, self.batch_size
        order = np.random.default_rng(SHUFFLE_SEED).permutation(n)
        batches = {
            tb.WithReplacement: lambda: list(product(range(n), repeat=size)),
            tb.WithoutReplacement: lambda: list(combinations(range(n), size)),
            tb.Blocks: lambda: [[order[(first + k) % n] for k in range(size)] for first in range(n)],
        }[type(law)]()
        errors = (n / size * values[np.array(batches)].sum(axis=1) - values.sum() for values in (self.a, self.c))
        slope, level = (float(np.mean(error**2)) for error in errors)
        return slope, level

    def noise(self, gradient) -> tuple[float, float]:
        """What the gradient estimator leaves of E eps_a^2 and E eps_c^2."""
        if isinstance(gradient, tb.Full | tb.Taylor):
            return 0.0, 0.0
        slope, level = self.error_squares(gradient.sampling)
        return (slope, level) if isinstance(gradient, tb.Plain) else (slope, 0.0)

    def next_square(self, gradient, h: float, square: float) -> float:
        slope, level = self.noise(gradient)
        return (1 - h * self.precision) ** 2 * square + h**2 * (level + slope * square) + 2 * h

    def stationary_sd(self, gradient, h: float) -> float:
        """The fixed point of `next_square`, which is affine."""
        added = self.next_square(gradient, h, 0.0)
        return float(np.sqrt(added / (1 - (self.next_square(gradient, h, 1.0) - added))))


CASE = OneCoefficient()
STEP = 0.3 / CASE.precision


def within(found, exact, errors: float = 5.0) -> bool:
    """Whether every component lies within that many standard errors of the exact value."""
    estimate = found.estimate
    return bool(np.all(np.abs(estimate.flat_value - exact) <= errors * estimate.flat_standard_error))


def same_bits(one, other) -> bool:
    return all(np.array_equal(one[name].estimate.flat_value, other[name].estimate.flat_value) for name in one)


@pytest.fixture(scope="module")
def regression():
    """Three correlated coefficients of different scales: rows, posterior mean and precision."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 3)) @ np.array([[1.0, 0.4, 0.0], [0.0, 1.0, 0.5], [0.0, 0.0, 1.5]])
    y = x @ np.array([0.5, -1.0, 0.2]) + rng.normal(size=200)
    precision = np.eye(3) + x.T @ x
    return {"x": x, "y": y}, np.linalg.solve(precision, x.T @ y), precision


@pytest.fixture(scope="module")
def adjusted(regression):
    return mala(MODEL, regression[0], steps=8_000, burn_in=2_000, chains=8, seed=1)


def test_mala_samples_the_exact_posterior(regression, adjusted):
    """Six components: false alarm 7e-6. The acceptance varied by 0.0045 (sd) over 30 seeds: 0.03 is 6 sd, 1e-8."""
    _, mean, precision = regression
    assert within(adjusted["mean"], mean)
    assert within(adjusted["sd"], np.sqrt(np.diag(np.linalg.inv(precision))))
    assert abs(adjusted.acceptance - 0.574) < 0.03


def test_mala_without_its_correction_is_caught(regression, adjusted):
    """Negative control: the same proposals all accepted are Euler's chain, whose sd the check above refuses."""
    data, _, precision = regression
    raw = sgld(MODEL, data, gradient=tb.Full(), step=adjusted.step, steps=8_000, burn_in=2_000, chains=8, seed=1)
    assert not within(raw["sd"], np.sqrt(np.diag(np.linalg.inv(precision))))


def test_mala_on_a_skewed_posterior_of_a_general_model():
    """Exponential waiting times, theta = log rate in a dict: against quadrature, three numbers, 4e-6."""
    waits = np.array([0.3, 1.1, 2.9])
    model = tb.Model(
        log_prior=lambda theta: -0.5 * theta["log_rate"] ** 2,
        log_likelihood=lambda theta, wait: theta["log_rate"] - wait * jnp.exp(theta["log_rate"]),
        initial={"log_rate": 0.0},
    )
    quantities = {"mean": "mean", "sd": "sd", "rate": lambda theta: jnp.exp(theta["log_rate"])}
    result = mala(model, waits, quantities, steps=20_000, burn_in=1_000, chains=8, seed=2)
    grid = np.linspace(-8, 6, 20_001)
    weight = np.exp(-0.5 * grid**2 + 3 * grid - waits.sum() * np.exp(grid))
    mean = np.average(grid, weights=weight)
    assert within(result["mean"], mean)
    assert within(result["sd"], np.sqrt(np.average((grid - mean) ** 2, weights=weight)))
    assert within(result["rate"], np.average(np.exp(grid), weights=weight))
    assert isinstance(result["mean"].value["log_rate"], float)
    assert isinstance(result["rate"].effective_sample_size, float)


def test_mala_keeps_a_given_step_without_burn_in():
    result = run_mala(0, burn_in=0, step=0.0012)
    assert result.step == pytest.approx(0.0012, rel=1e-12)


def test_full_gradient_has_eulers_stationary_covariance(regression):
    """P^-1 (I - h P / 2)^-1; its sd is up to 1.4 times the posterior's here. Six components: 7e-6."""
    data, mean, precision = regression
    step = 1 / np.linalg.eigvalsh(precision)[-1]
    covariance = np.linalg.inv(precision @ (np.eye(3) - step / 2 * precision))
    result = sgld(MODEL, data, gradient=tb.Full(), step=step, steps=30_000, burn_in=500, chains=8, seed=4)
    assert within(result["mean"], mean)
    assert within(result["sd"], np.sqrt(np.diag(covariance)))


LAWS = (tb.WithReplacement(), tb.WithoutReplacement(), tb.Blocks())
EXACT = [
    tb.Full(),
    *(tb.Plain(CASE.batch_size, law) for law in LAWS),
    tb.ControlVariate(CASE.batch_size),
    tb.ControlVariate(CASE.batch_size, tb.Blocks()),
    tb.Taylor(CASE.batch_size, tb.WithoutReplacement()),
]


def run_long(gradient):
    return sgld(MODEL, CASE.data, gradient=gradient, step=STEP, steps=4_000, burn_in=200, chains=64, seed=5)


@pytest.mark.parametrize("gradient", EXACT, ids=repr)
def test_every_gradient_has_its_exact_stationary_law(gradient):
    """Mean and sd of the chain's own recursion, gradient noise included. 14 numbers in all: 1e-5."""
    result = run_long(gradient)
    assert within(result["mean"], CASE.mode)
    assert within(result["sd"], CASE.stationary_sd(gradient, STEP))


@pytest.mark.parametrize("partner", [tb.ControlVariate, tb.Plain])
def test_blend_keeps_the_mean_and_is_quieter_than_its_partner(partner):
    """The mean is exact; the variance lies between that of no noise and its partner's. Two means: 2e-6."""
    law = tb.Blocks()
    result = run_long(tb.Blend(CASE.batch_size, law, partner=partner, radius=1.0))
    assert within(result["mean"], CASE.mode)
    quiet = CASE.stationary_sd(tb.Full(), STEP)
    loud = CASE.stationary_sd(partner(CASE.batch_size, law), STEP)
    assert quiet < result["sd"].value[0] < loud


def test_wrong_gradient_noise_is_caught():
    """Negative control: the law without gradient noise, with half of it, and of another batch law are refused."""
    sd = run_long(tb.Plain(CASE.batch_size))["sd"]
    quiet, loud = (CASE.stationary_sd(g, STEP) for g in (tb.Full(), tb.Plain(CASE.batch_size)))
    assert not within(sd, quiet)
    assert not within(sd, np.sqrt((quiet**2 + loud**2) / 2))
    assert not within(sd, CASE.stationary_sd(tb.Plain(CASE.batch_size, tb.WithoutReplacement()), STEP))


def test_standard_error_and_effective_size_of_an_autoregression():
    """With Full, v is an AR(1) of coefficient r = 1 - h lambda: ESS is n (1 - r)/(1 + r), for the sd with r^2.

    Its relative sd from 2048 batches is sqrt(2 / 2047) = 3.1%: 18% is 5 sd and 2% for batches of finite length.
    """
    result = sgld(MODEL, CASE.data, gradient=tb.Full(), step=STEP, steps=4_100, burn_in=100, chains=64, seed=6)
    points, r = 64 * 4_000, 0.7
    assert result["mean"].effective_sample_size[0] == pytest.approx(points * (1 - r) / (1 + r), rel=0.18)
    assert result["sd"].effective_sample_size[0] == pytest.approx(points * (1 - r**2) / (1 + r**2), rel=0.18)


def test_decreasing_steps_weight_each_point_by_its_step():
    """The variance is sum h_k E v_k^2 / sum h_k by the exact recursion. Two numbers, 2e-6; unweighted, it fails."""
    schedule = Decreasing(scale=0.5 / CASE.precision * 20**0.5, offset=20.0, power=0.5)
    gradient, steps = tb.Plain(CASE.batch_size), 6_000
    h = schedule.scale * (schedule.offset + np.arange(steps)) ** -schedule.power
    square = np.zeros(steps)
    for k in range(steps - 1):
        square[k + 1] = CASE.next_square(gradient, h[k], square[k])
    result = sgld(MODEL, CASE.data, gradient=gradient, step=schedule, steps=steps, chains=64, seed=7)
    assert within(result["mean"], CASE.mode)
    assert within(result["sd"], np.sqrt(np.average(square, weights=h)))
    assert not within(result["sd"], np.sqrt(np.mean(square)))
    assert result["mean"].standard_error[0] < 0.02 / np.sqrt(CASE.precision)


@pytest.mark.parametrize(("burn_in", "steps"), [(0, 32), (0, 45), (10, 64), (1_000, 100_000)])
@pytest.mark.parametrize("power", [0.0, 1 / 3, 0.9, 1.0])
def test_batches_have_equal_time_and_none_is_empty(burn_in, steps, power):
    edges = batch_edges(burn_in, steps, offset=3.0, power=power)
    assert (len(edges), edges[0], edges[1], edges[-1]) == (BATCHES + 2, 0, burn_in, steps)
    assert np.all(np.diff(edges[1:]) > 0)
    if steps > 1_000:
        h = (3.0 + np.arange(steps)) ** -power
        times = np.add.reduceat(h, edges[1:-1])
        np.testing.assert_allclose(times, times.mean(), rtol=0.05)


def test_costs_are_exact(regression, adjusted):
    data, rows = regression[0], 200
    assert adjusted.evaluations == rows * (8 * 8_000 + 1)
    assert adjusted.num_data == rows
    assert adjusted.epochs == 8 * 8_000 + 1
    assert adjusted.setup_evaluations == adjusted.anchor.passes * rows > 0
    full = sgld(MODEL, data, gradient=tb.Full(), step=1e-3, steps=100, burn_in=10, chains=8, anchor=adjusted.anchor)
    assert (full.evaluations, full.setup_evaluations, full.epochs) == (rows * 100 * 8, rows, 800.0)
    assert (full.acceptance, full.step) == (None, 1e-3)
    batch = run_sgld(0)
    assert batch.evaluations == CASE.batch_size * 400 * 64
    assert batch.epochs == batch.evaluations / CASE.num_rows
    assert batch.setup_evaluations == batch.anchor.passes * CASE.num_rows


def run_mala(seed, **changes):
    return mala(MODEL, CASE.data, **{"steps": 400, "burn_in": 100, "chains": 2, "seed": seed, **changes})


def run_sgld(seed, **changes):
    settings = {"gradient": tb.ControlVariate(2), "step": STEP, "steps": 400, "chains": 64, "seed": seed}
    return sgld(MODEL, CASE.data, **{**settings, **changes})


@pytest.mark.parametrize("run", [run_mala, run_sgld])
def test_a_seed_fixes_every_bit(run):
    first = run(11)
    assert same_bits(first, run(11))
    assert not same_bits(first, run(12))
    assert not same_bits(first, run(11 + 2**32))
    with jax.enable_x64(True):
        assert same_bits(first, run(11))


@pytest.mark.parametrize(
    ("run", "changes"),
    [
        (run_mala, {"steps": 900, "burn_in": 50, "step": 0.01, "target_acceptance": 0.7}),
        (run_sgld, {"steps": 900, "burn_in": 50, "step": Decreasing(0.01)}),
    ],
)
def test_a_second_call_compiles_nothing(run, changes, compilations):
    """Other seeds, step sizes and step counts share one program, so its memory cannot depend on the latter."""
    run(21)
    compilations.clear()
    run(22, **changes)
    assert compilations == []


def test_divergence_is_told_not_raised():
    result = run_sgld(0, step=3 / CASE.precision, steps=2_000)
    assert result.diverged
    assert "diverged" in str(result)


def test_text_shows_values_errors_and_costs(adjusted):
    text = str(adjusted)
    assert "diverged" not in text
    assert "mean[2]" in text
    assert "acceptance 0.5" in text
    assert "12,800,200 row gradients (6.4e+04 epochs of 200 rows)" in text


@pytest.mark.parametrize(
    ("run", "changes", "error", "message"),
    [
        (run_mala, {"steps": 100, "burn_in": 100}, InputError, "at least 32 steps after burn-in"),
        (run_mala, {"steps": 100, "burn_in": -1}, InputError, "burn_in a whole number"),
        (run_mala, {"steps": 1e4}, InputError, "steps a whole number"),
        (run_mala, {"chains": 0}, InputError, "chains a whole number"),
        (run_mala, {"seed": -1}, InputError, "seed a whole number"),
        (run_mala, {"step": 0.0}, InputError, "step > 0"),
        (run_mala, {"target_acceptance": 1.0}, InputError, "target_acceptance < 1"),
        (run_sgld, {"steps": 50, "burn_in": 60}, InputError, "at least 32 steps after burn-in"),
        (run_sgld, {"step": -0.1}, InputError, "step > 0"),
        (run_sgld, {"step": float("nan")}, InputError, "step > 0"),
        (run_sgld, {"step": "small"}, InputError, "step > 0"),
        (run_sgld, {"gradient": "taylor"}, MethodError, "a gradient estimator"),
        (run_sgld, {"gradient": tb.Full}, MethodError, "a gradient estimator"),
        (run_sgld, {"gradient": tb.Plain(9, tb.WithoutReplacement())}, MethodError, "batch_size <= 8"),
        (run_sgld, {"quantities": ("median",)}, InputError, "quantities by name"),
    ],
)
def test_bad_input_is_refused(run, changes, error, message):
    with pytest.raises(error, match=message) as caught:
        run(changes.pop("seed", 0), **changes)
    assert "; got " in str(caught.value)
    assert " Try: " in str(caught.value)


@pytest.mark.parametrize(
    "settings", [{"scale": 0.0}, {"scale": 1.0, "offset": 0.0}, {"scale": 1.0, "power": 0.0}, {"scale": 1, "power": 2}]
)
def test_a_schedule_that_cannot_converge_is_refused(settings):
    with pytest.raises(InputError, match="expected"):
        Decreasing(**settings)


def test_an_anchor_of_other_rows_is_refused(adjusted):
    with pytest.raises(DataError, match="an anchor of 1 parameters"):
        run_sgld(0, anchor=adjusted.anchor)
