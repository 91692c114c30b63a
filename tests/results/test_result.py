"""A result says what was found, how sure it is and what it cost."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from equal_results import assert_identical
from scipy import stats
from small_runs import nested_run, papers_run, run, small_run

import tallbayes as tb


@pytest.fixture(scope="module")
def result() -> tb.Result:
    return small_run()


@pytest.fixture(scope="module")
def papers() -> tb.Result:
    return papers_run()


@pytest.fixture(scope="module")
def nested() -> tb.Result:
    return nested_run()


def test_values_and_errors_have_the_shape_of_the_quantity(result: tb.Result) -> None:
    assert list(result) == ["mean", "sd"]
    assert len(result) == 2
    for name in result:
        estimate = result[name]
        for part in ("value", "standard_error", "bias_bound", "degrees_of_freedom", "tolerance"):
            assert getattr(estimate, part).shape == (2,)
            assert np.all(np.isfinite(getattr(estimate, part)))
        assert [end.shape for end in estimate.interval] == [(2,), (2,)]


def test_values_and_errors_have_the_users_structure(nested: tb.Result) -> None:
    mean, odds = nested["mean"], nested["odds"]
    for part in (mean.value, mean.standard_error, mean.bias_bound, *mean.interval):
        assert list(part) == ["intercept", "slopes"]
        assert type(part["intercept"]) is float
        assert part["slopes"].shape == (1, 1)
    for part in (odds.value, odds.standard_error, odds.bias_bound, *odds.interval):
        assert part["x"].shape == (1, 1)
        assert type(part["both"][0]) is float
        assert part["both"][1] is None


def test_both_ways_to_write_the_model_agree(result: tb.Result, nested: tb.Result) -> None:
    """Two independent runs, 5.1 joint errors apart at most: one false alarm in a million for two components."""
    one, two = result["mean"], nested["mean"]
    slope_first = two.flat_value[::-1], two.flat_error[::-1]
    assert np.all(np.abs(one.flat_value - slope_first[0]) < 5.1 * np.hypot(one.flat_error, slope_first[1]))


def test_a_constant_is_what_it_is(nested: tb.Result) -> None:
    """Its derivative is zero wherever it is taken, as that of a jump is which no draw has shown: hence an error."""
    assert nested["one"].value == 1.0
    assert nested["one"].interval[0] <= 1.0 <= nested["one"].interval[1]
    assert nested["one"].met


def test_a_probability_is_between_zero_and_one(nested: tb.Result) -> None:
    assert type(nested["positive"].value) is float
    assert -1e-6 <= nested["positive"].value <= 1 + nested["positive"].flat_error[0]


@pytest.mark.parametrize("name", ["mean", "sd"])
def test_the_interval_is_value_plus_minus_t_se_plus_bias(result: tb.Result, name: str) -> None:
    estimate = result[name]
    quantile = stats.t.ppf(0.975, estimate.degrees_of_freedom)
    half = quantile * estimate.standard_error + estimate.bias_bound
    lower, upper = estimate.interval
    np.testing.assert_allclose(lower, estimate.value - half, rtol=1e-10)
    np.testing.assert_allclose(upper, estimate.value + half, rtol=1e-10)
    wider = estimate.half_width(0.99)
    np.testing.assert_allclose(
        wider,
        stats.t.ppf(0.995, estimate.degrees_of_freedom) * estimate.standard_error + estimate.bias_bound,
        rtol=1e-10,
    )


def test_met_holds_the_error_against_the_tolerance(result: tb.Result) -> None:
    estimate = result["mean"]
    error = np.sqrt(estimate.standard_error**2 + estimate.bias_bound**2)
    np.testing.assert_allclose(estimate.flat_error, error)
    assert np.all(error <= estimate.tolerance)
    assert estimate.met
    assert estimate.met is True
    np.testing.assert_allclose(estimate.tolerance, 0.2 * result["sd"].value)
    strict = dataclasses.replace(estimate, flat_tolerance=np.array([1.0, 0.99 * error[1]]))
    assert strict.met is False


def test_a_value_that_is_not_a_number_is_never_met(result: tb.Result) -> None:
    broken = dataclasses.replace(result["mean"], flat_standard_error=np.array([np.nan, 0.0]))
    assert not broken.met
    assert len(broken.interval) == 2


def test_infinite_errors_give_infinite_intervals_without_warnings(result: tb.Result) -> None:
    nowhere = dataclasses.replace(
        result["mean"], flat_value=np.array([np.inf, 1.0]), flat_bias_bound=np.array([np.inf, np.inf])
    )
    assert len(nowhere.interval) == 2
    assert str(dataclasses.replace(result, estimates={"mean": nowhere}))


def test_status_and_convergence(result: tb.Result) -> None:
    assert result.status is tb.Status.converged
    assert result.converged
    assert all(result[name].met for name in result)
    assert str(result.status) == result.status.value


@pytest.mark.parametrize("which", ["result", "papers"])
def test_costs_add_up(which: str, request: pytest.FixtureRequest) -> None:
    """In set-up: what found the mode, a pass for rows that matter where they may be listed, and a probe."""
    this = request.getfixturevalue(which)
    cost, batch = this.cost, rows_a_step(this)
    # 64 pairs of paths of 3 dT each measure the contraction.
    pairs = 64 * 2 * 3 * round((this.levels[1].time - this.levels[0].time) / this.levels[0].step) * batch
    if this.tuning is not None:
        assert this.tuning.evaluations == pairs + sum(trial.evaluations for trial in this.tuning.trials)
        pairs = this.tuning.evaluations
    assert cost.evaluations == sum(level.evaluations for level in this.levels) + pairs
    assert cost.num_data == 200
    assert cost.epochs == cost.evaluations / 200
    looks = 200 + this.posterior.probe.rows_read if which == "result" else 0
    assert cost.setup_evaluations == this.anchor.passes * 200 + looks
    assert cost.speculative_evaluations == 0
    assert cost.seconds > 0


def rows_a_step(result: tb.Result) -> int:
    return int(re.search(r"batch_size=(\d+)", result.method)[1])


@pytest.mark.parametrize("which", ["result", "papers"])
def test_levels_say_what_was_done(which: str, request: pytest.FixtureRequest) -> None:
    this = request.getfixturevalue(which)
    assert len(this.levels) >= 3
    for number, level in enumerate(this.levels):
        assert level.step == this.levels[0].step * 2.0**-number
        assert level.time == pytest.approx(this.levels[0].time * (number + 1))
        assert level.samples >= 64
        assert level.samples % 32 == 0
        fine = round(level.time / level.step)
        coarse = round(this.levels[number - 1].time / this.levels[number - 1].step) if number else 0
        assert level.evaluations == level.samples * rows_a_step(this) * (fine + 2 * coarse)
        for part in ("mean", "variance", "kurtosis", "consistency"):
            by_quantity = getattr(level, part)
            assert list(by_quantity) == ["mean", "sd"]
            assert all(values.shape == (2,) for values in by_quantity.values())
            finite = [np.all(np.isfinite(values)) for values in by_quantity.values()]
            assert all(finite) != (part == "consistency" and number == 0)


def test_the_value_is_the_sum_of_the_level_means(result: tb.Result) -> None:
    total = sum(level.mean["mean"] for level in result.levels)
    np.testing.assert_allclose(result["mean"].value, result.anchor.mode + total, rtol=1e-12)


def test_rates_and_contraction_are_given_by_quantity(result: tb.Result) -> None:
    for rates in (result.rates.alpha, result.rates.beta, result.rates.gamma):
        assert list(rates) == ["mean", "sd"]
        assert all(np.isfinite(rate) for rate in rates.values())
    assert 0 < result.contraction.factor < result.contraction.upper < 1
    assert result.contraction.rate > 0


def test_settings_say_how_to_repeat_it(result: tb.Result, papers: tb.Result) -> None:
    assert result.settings["seed"] == 1
    assert result.settings["tolerance"] == 0.2
    assert set(result.settings["versions"]) >= {"tallbayes", "jax", "jaxlib", "numpy"}
    assert result.method.startswith(f"Anchored(Taylor(batch_size={result.tuning.chosen.batch_size}, sampling=Blocks())")
    assert f"first_step={result.tuning.chosen.first_step}" in result.method
    assert papers.method.startswith("Multilevel(Taylor(batch_size=6")
    assert papers.tuning is None


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(result: tb.Result) -> None:
    assert_identical(run().estimates, result.estimates)
    assert run(seed=2)["mean"].value[0] != result["mean"].value[0]
