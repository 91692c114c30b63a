"""The unbiased estimator: on made-up levels whose law is known, and on a small logistic regression by quadrature.

Nothing is cut off, so the mean over many runs must be the truth itself, however coarse the levels that are sampled in
fixed numbers; what is left of the estimate without its random tail is the negative control.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from scenarios import gaussian_posterior, gaussian_rows, logistic_rows

import tallbayes as tb
from tallbayes.errors import MethodError
from tallbayes.estimator import randomised
from tallbayes.estimator.estimands import Tolerances
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.levels import BLOCK_PATHS
from tallbayes.estimator.made_up import MadeUp, made_up_estimands
from tallbayes.estimator.randomised import _tail_law, assess_randomised, prepare_randomised, run_randomised
from tallbayes.estimator.rates import Contraction
from tallbayes.estimator.run import Budget, Run
from tallbayes.setup import centre
from tallbayes.setup.preparation import check_data, prepare

# The law by which levels above the fixed ones are drawn.


@pytest.mark.parametrize("beta", [2.0, 1.6, 1.2])
def test_tail_probabilities(beta):
    """They sum to 1 and fall like 2^-1.25 where beta = 2, always slower than the variance and faster than the cost."""
    chance, counts = _tail_law(np.array([1.0, 0.3]), np.array([1.0, 2.2]), beta)
    assert len(chance) == len(counts) == randomised.RANDOM_LEVELS
    assert chance.sum() == pytest.approx(1, abs=1e-14)
    assert np.all(chance > 0)
    ratios = chance[2:] / chance[1:-1]
    exponent = -np.log2(ratios)
    np.testing.assert_allclose(exponent, exponent[0])
    assert 1 < exponent[0] < beta
    if beta == 2:
        assert exponent[0] == pytest.approx(1.25)


def test_tail_probabilities_follow_the_pilots():
    """p_l ~ sqrt(E Delta_l^2 / C_l), within the ratios 1/4 and 1/2 whatever a few paths have shown."""
    chance, _ = _tail_law(np.array([1.0, 0.25]), np.array([1.0, 2.0]), 2.0)
    assert chance[1] / chance[0] == pytest.approx(np.sqrt(0.25 / 2))
    for lucky, ratio in ((1e-30, 0.25), (100.0, 0.5)):
        chance, _ = _tail_law(np.array([1.0, lucky]), np.array([1.0, 2.0]), 2.0)
        assert chance[1] / chance[0] == pytest.approx(ratio)


# Made-up levels: Delta_l = 2^-l + 2^-l xi, so that the truth is 2.


def made_up_run(levels, tolerance=0.1, fixed_levels=1, **budget):
    goal = Tolerances("absolute_tolerance", (tolerance,), (1,))
    with ThreadPoolExecutor(1) as executor:
        run = Run(levels, made_up_estimands(), executor, lambda _: None, goal, Budget(**budget))
        run.contraction = Contraction(0.1, 0.1, 1.0)
        this = prepare_randomised(run, fixed_levels)
        status, final = run_randomised(this)
    return status, final, this


def test_unbiased_and_covered_on_known_levels():
    """100 seeds: the mean z-score within 5 / sqrt(100) of 0 (a false alarm in 6e-7), RMSE at most the tolerance (beyond
    1.35 of it: 1e-6), and at least 83 of 100 intervals of 95% hold the truth (1e-5)."""
    runs = [made_up_run(MadeUp(seed), tolerance=0.15) for seed in range(100)]
    assert {status for status, *_ in runs} == {Status.converged}
    error = np.array([final.summary.value[0] - 2 for _, final, _ in runs])
    scale = np.array([final.standard_error[0] for _, final, _ in runs])
    assert abs(np.mean(error / scale)) < 5 / np.sqrt(100)
    assert np.sqrt(np.mean(error**2)) < 1.35 * 0.15
    assert np.sum(np.abs(error) < 1.98 * scale) >= 83
    assert all(final.bias_bound[0] == 0 for _, final, _ in runs)
    # The control: without the tail, one level of 2 is left.
    alone = np.array([final.summary.mean[0, 0] - 2 for _, final, _ in runs])
    assert abs(np.mean(alone / scale)) > 5


def test_every_evaluation_is_counted():
    """Pilots of 128 paths on two levels more than the fixed ones, whole blocks below, single draws in the tail."""
    _, _, this = made_up_run(MadeUp(3), fixed_levels=2)
    pilots = 128 * (1 + 2 + 4 + 8)
    fixed = sum(state.samples * 2**level for level, state in enumerate(this.run.levels))
    tail = sum(int(count) * 2 ** (2 + k) for k, count in enumerate(this.tail.counts))
    assert this.run.evaluations == pilots + fixed + tail
    assert this.tail.spent(this.run.problem) == tail
    assert this.tail.samples == this.tail.drawn.count
    # What a block's last paths were sampled for and nobody drew.
    blocks = -(-this.tail.counts // BLOCK_PATHS)
    assert this.speculative == sum(int(n) * 2 ** (2 + k) for k, n in enumerate(blocks * BLOCK_PATHS - this.tail.counts))


def test_narrow_blocks_of_the_tail_are_counted_by_their_paths():
    """As above, in blocks of four paths from level 3 on."""
    _, final, this = made_up_run(MadeUp(3, paths=lambda level: 32 if level < 3 else 4), fixed_levels=2)
    fixed = sum(state.samples * 2**level for level, state in enumerate(this.run.levels))
    assert this.run.evaluations == 128 * 15 + fixed + this.tail.spent(this.run.problem)
    blocks = np.array([32] + [4] * (len(this.tail.counts) - 1))
    spare = -(-this.tail.counts // blocks) * blocks - this.tail.counts
    assert this.speculative == sum(int(n) * 2 ** (2 + k) for k, n in enumerate(spare))
    assert abs(final.summary.value[0] - 2) < 5 * final.standard_error[0]


def test_levels_that_do_not_fall_fast_enough_are_refused():
    """beta = 0.6 is refused, beta = 2 never."""
    for seed in range(20):
        with pytest.raises(MethodError, match=r"beta > gamma(.|\n)*tb\.Anchored"):
            made_up_run(MadeUp(seed, sd=lambda l: 2 ** (-0.3 * l)), fixed_levels=3)
        assert made_up_run(MadeUp(seed), tolerance=0.5, fixed_levels=3)[0] is Status.converged


@pytest.mark.parametrize("evaluations", [1200, 2000, 5000])
def test_a_budget_ends_in_a_status(evaluations):
    """Within the fixed levels, before the tail is drawn, or in the middle of it."""
    status, final, this = made_up_run(MadeUp(1), tolerance=0.03, max_evaluations=evaluations)
    assert status is Status.max_evaluations
    assert this.run.evaluations <= evaluations * 1.1
    assert not final.standard_error[0] <= 0.03


# A small logistic regression, N = 12 and d = 2.

ROWS = logistic_rows(12, (1.5, 1.0), seed=2)
MODEL = tb.families.logistic(prior_scale=1.5)
# Paths of time 1 keep e^-1 of where they started: without its tail the estimate would be off by a tenth of an sd.
METHOD = tb.Randomised(tb.Anchored(batch_size=4, first_step=0.5, time=1.0), fixed_levels=1)


@cache
def estimate(seed=0, tolerance=0.15, threads=None, **options):
    """Without levels beyond the sixth: they would take most of the time here, and their means are below 1% of an sd."""
    with ThreadPoolExecutor(threads or 2) as executor, pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomised, "RANDOM_LEVELS", 6)
        executor = executor if threads else None
        arguments = {"tolerance": tolerance, "seed": seed, "executor": executor, "method": METHOD, **options}
        return tb.estimate(MODEL, ROWS, ["mean"], **arguments)


@cache
def prepared():
    return prepare(MODEL, check_data(MODEL, ROWS), None, shuffle=True, anchor=None)


@cache
def exact_mean():
    x, y = ROWS["x"], ROWS["y"]
    axis = np.linspace(-12, 12, 601)
    theta = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    eta = theta @ x.T
    log_density = eta @ y - np.logaddexp(0, eta).sum(axis=1) - 0.5 * np.sum((theta / 1.5) ** 2, axis=1)
    weight = np.exp(log_density - log_density.max())
    return weight @ theta / weight.sum()


@pytest.mark.slow
def test_unbiased_on_a_posterior_known_by_quadrature(monkeypatch):
    """40 seeds, two components: mean z-scores within 5 / sqrt(40) of 0, a false alarm in 1e-6; fewer than 30 of 40
    hits of a 95% interval come once in 1e5 for one component."""
    # The set-up has nothing to do with the seed, and takes longer than all paths of a run.
    monkeypatch.setattr(centre, "find_centre", lambda *_: prepared())
    results = [estimate(seed) for seed in range(40)]
    assert all(result.converged for result in results)
    error = np.array([result["mean"].value for result in results]) - exact_mean()
    scale = np.array([result["mean"].standard_error for result in results])
    assert np.all(np.abs(np.mean(error / scale, axis=0)) < 5 / np.sqrt(40))
    inside = [np.abs(e) <= result["mean"].half_width() for e, result in zip(error, results, strict=True)]
    assert np.all(np.sum(inside, axis=0) >= 30)
    assert np.all(np.sqrt(np.mean(error**2, axis=0)) < 1.6 * np.mean([r["mean"].tolerance for r in results], axis=0))
    # The control: level 0 and Laplace alone are biased, beyond doubt.
    tails = np.array([result.levels[-1].mean["mean"] for result in results])
    assert np.abs(np.mean((error - tails) / scale, axis=0)).max() > 5 / np.sqrt(40)


def test_there_is_no_bias_bound_and_the_text_says_so():
    result = estimate()
    assert np.all(result["mean"].bias_bound == 0)
    assert len(result.levels) == 2
    lines = next(part for part in str(result).split("\n\n") if part.lstrip().startswith("level")).split("\n")
    assert [line.split()[0] for line in lines[1:3]] == ["0", "1+"]
    assert result.method.startswith("Randomised(Taylor(batch_size=4, sampling=Blocks())")
    assert result.unbiased
    assert result.rates.beta["mean"] > 1
    assert result.cost.speculative_evaluations >= 0


@pytest.mark.parametrize("seed", range(4))
def test_levels_that_differ_by_rounding_alone_need_no_tail(seed):
    """A Gaussian posterior is its own Laplace approximation: exact to float32, and no rate is asked for."""
    rows = gaussian_rows(500, 3, noise_scale=0.5, seed=1)
    model = tb.families.linear(noise_scale=0.5)
    result = tb.estimate(model, rows, tolerance=0.1, seed=seed, method=tb.Randomised(tb.Anchored()))
    mean, precision = gaussian_posterior(rows, 0.5, 1.0)
    assert result.converged
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    np.testing.assert_allclose(result["mean"].flat_value, mean, atol=1e-5 * sd.min())
    np.testing.assert_allclose(result["sd"].flat_value, sd, rtol=1e-5)


def test_control_levels_of_a_logistic_regression_differ_by_more():
    assert len(estimate().levels) == 2
    assert np.sqrt(estimate().levels[0].variance["mean"]).max() > 1e3 * randomised.ROUNDING


def test_the_number_of_threads_does_not_matter():
    one, three = estimate(seed=2, threads=1), estimate(seed=2, threads=3)
    np.testing.assert_array_equal(one["mean"].value, three["mean"].value)
    np.testing.assert_array_equal(one["mean"].standard_error, three["mean"].standard_error)
    assert one.cost.evaluations == three.cost.evaluations
    assert np.any(one["mean"].value != estimate(seed=3)["mean"].value)


def test_extending_pays_the_difference():
    result = estimate(seed=1)
    finer = result.extend(tolerance=0.003)
    assert finer.converged
    assert finer["mean"].met
    assert result.cost.evaluations < finer.cost.evaluations
    pilots = result.cost.evaluations - sum(level.evaluations for level in result.levels)
    assert finer.cost.evaluations == pilots + sum(level.evaluations for level in finer.levels)
    assert all(after.samples >= before.samples for before, after in zip(result.levels, finer.levels, strict=True))
    # Five joint errors apart at most: a false alarm in 1e-6 for two components.
    apart = np.abs(finer["mean"].value - exact_mean()) / finer["mean"].standard_error
    assert np.all(apart < 5)


def test_extending_to_what_is_met_costs_nothing():
    result = estimate(seed=1)
    again = result.extend(tolerance=0.3)
    assert again.converged
    assert again.cost.evaluations == result.cost.evaluations
    np.testing.assert_array_equal(again["mean"].value, result["mean"].value)


@pytest.mark.parametrize(
    ("budget", "status"),
    [({"max_evaluations": 110_000}, Status.max_evaluations), ({"max_seconds": 1e-9}, Status.max_seconds)],
    ids=["max_evaluations", "max_seconds"],
)
def test_a_real_run_stops_at_its_budget(budget, status):
    stopped = estimate(tolerance=0.003, **budget)
    assert stopped.status is status
    assert not stopped.converged
    assert not stopped["mean"].met
    assert np.all(np.isfinite(stopped["mean"].value) == bool(stopped.levels))
    assert str(stopped)


def test_indicators_are_refused():
    with pytest.raises(MethodError, match=r"'chance', which jumps(.|\n)*tb\.Anchored"):
        tb.estimate(MODEL, ROWS, {"chance": lambda theta: theta[0] > 1}, tolerance=0.2, method=METHOD)


def test_what_it_is_made_of_is_checked():
    for method in (tb.Multilevel(), None, "anchored"):
        with pytest.raises(MethodError, match=r"tb\.Anchored"):
            tb.Randomised(method)
    for levels in (0, 9, 2.0, True):
        with pytest.raises(MethodError, match="fixed_levels"):
            tb.Randomised(fixed_levels=levels)
    with pytest.raises(MethodError, match="beta > gamma"):
        tb.Randomised(tb.Anchored(coupling=tb.Synchronous("coin")))
    assert tb.Randomized is tb.Randomised


def test_assessment_adds_the_errors_of_fixed_levels_and_tail():
    _, final, this = made_up_run(MadeUp(5))
    again = assess_randomised(this)
    parts = [state.delta for state in this.run.levels] + [this.tail.drawn]
    error = np.sqrt(sum(part.variance / part.count for part in parts))
    np.testing.assert_allclose(again.standard_error, error)
    np.testing.assert_allclose(final.summary.value, sum(part.mean for part in parts))
