"""What the benchmarks extrapolate: made-up answers whose costs and biases are known."""

from __future__ import annotations

import doctest
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from peers import laws

DIMENSION, ESS = 20, 4e4
TRIALS = 1_000
# At the stated rate of 1e-3, an honest sampler is accused in more trials than this with a probability of 1.1e-7.
MOST_ALARMS = 9


def truth(dimension: int = DIMENSION) -> Any:
    return SimpleNamespace(mean=[2.0] * dimension, sd=[0.5] * dimension, worst_error=1e-4)


def answer(errors: Any, law: str = "sampling", **others: Any) -> Any:
    """Means off by `errors` posterior sds, for 100 items and 1 s of set-up, 1,000 and 20 s of sampling."""
    errors = np.asarray(errors)
    made = {"ess": None, "tolerance": None, "error": None} | others
    return SimpleNamespace(
        mean=2.0 + 0.5 * errors,
        sd=np.full(len(errors), 0.5),
        law=law,
        setup=SimpleNamespace(items=100.0, seconds=1.0),
        sampling=SimpleNamespace(items=1000.0, seconds=20.0),
        compiling=3.0,
        **made,
    )


def errors_by_chance(rng: np.random.Generator, correlation: float, ess: float) -> np.ndarray:
    """(trials, d), every one of variance 1 / ess, all pairs correlated alike."""
    common, own = rng.normal(size=(TRIALS, 1)), rng.normal(size=(TRIALS, DIMENSION))
    return (np.sqrt(correlation) * common + np.sqrt(1 - correlation) * own) / np.sqrt(ess)


def test_the_examples_hold() -> None:
    assert doctest.testmod(laws, optionflags=doctest.ELLIPSIS).failed == 0


def test_draws_are_scaled_to_the_effective_sample_size_that_the_goal_needs() -> None:
    price = laws.cost_to(answer(np.zeros(DIMENSION), ess=1e3), truth(), goal=0.01, starting=2.0)
    assert price.reached
    assert price.factor == pytest.approx(10)
    assert (price.sampling_items, price.items) == pytest.approx((10_000, 10_100))
    assert (price.warm, price.cold) == pytest.approx((201, 206))


def test_draws_in_excess_of_the_goal_are_not_charged() -> None:
    price = laws.cost_to(answer(np.zeros(DIMENSION), ess=1e5), truth(), goal=0.01)
    assert price.sampling_items == pytest.approx(100)


@pytest.mark.parametrize(("stated", "factor"), [(0.04, 16), (0.01, 1), (0.002, 1)])
def test_a_tolerance_costs_its_inverse_square_and_nothing_less_than_was_paid(stated: float, factor: float) -> None:
    given = answer(np.zeros(DIMENSION), "tolerance", tolerance=0.05, error=stated)
    price = laws.cost_to(given, truth(), goal=0.01)
    assert price.factor == pytest.approx(factor)
    assert price.items == pytest.approx(100 + factor * 1000)


def test_a_tolerance_alone_is_taken_at_its_word() -> None:
    price = laws.cost_to(answer(np.zeros(DIMENSION), "tolerance", tolerance=0.1), truth(), goal=0.01)
    assert price.factor == pytest.approx(100)


def test_what_is_fixed_is_as_good_as_it_is() -> None:
    near, far = (answer(np.full(DIMENSION, error), "fixed") for error in (0.004, -0.3))
    assert laws.cost_to(near, truth()).factor == 1
    price = laws.cost_to(far, truth())
    assert not price.reached
    assert price.floor.bias == pytest.approx(0.3)
    assert price.warm == price.cold == price.items == np.inf


def test_a_bias_of_a_twentieth_is_found_out() -> None:
    chance = errors_by_chance(np.random.default_rng(0), 0.3, ESS)
    floors = [laws.find_floor(answer(0.05 + errors, ess=ESS), truth()) for errors in chance]
    assert all(floor.seen for floor in floors)
    assert np.median([floor.bias for floor in floors]) == pytest.approx(0.05, abs=0.015)
    assert not any(laws.cost_to(answer(0.05 + errors, ess=ESS), truth()).reached for errors in chance)


def test_a_bias_of_one_mean_alone_is_found_out() -> None:
    chance = errors_by_chance(np.random.default_rng(1), 0.0, ESS)
    alone = 0.05 * (np.arange(DIMENSION) == 3)
    assert all(laws.find_floor(answer(alone + errors, ess=ESS), truth()).seen for errors in chance)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("ess", [200.0, ESS])
def test_a_sampler_without_bias_is_not_accused(correlation: float, ess: float) -> None:
    chance = errors_by_chance(np.random.default_rng(2), correlation, ess)
    assert sum(laws.find_floor(answer(errors, ess=ess), truth()).seen for errors in chance) <= MOST_ALARMS


def test_what_would_have_been_seen_is_seen_nineteen_times_in_twenty() -> None:
    """One mean off by the stated size: missed 1 time in 20 at most, with 5 standard errors to spare."""
    chance = errors_by_chance(np.random.default_rng(3), 0.0, ESS)
    visible = laws.find_floor(answer(np.zeros(DIMENSION), ess=ESS), truth()).visible
    alone = visible * (np.arange(DIMENSION) == 0)
    missed = np.mean([not laws.find_floor(answer(alone + errors, ess=ESS), truth()).seen for errors in chance])
    assert missed <= laws.MISSED + 5 * np.sqrt(laws.MISSED / TRIALS)
    assert missed >= laws.MISSED / 3


def test_a_bias_below_the_goal_leaves_less_for_chance() -> None:
    floor = laws.Floor(True, 0.006, 0.1)
    assert laws.scaling(answer(np.zeros(2), ess=1e4), floor, 0.01) == pytest.approx(1 / 0.64)


def test_an_error_bar_that_is_too_small_is_found_out() -> None:
    price = laws.cost_to(answer(np.full(DIMENSION, 0.05), "tolerance", tolerance=0.01, error=0.008), truth())
    assert price.floor.seen
    assert not price.reached


@pytest.mark.parametrize("given", [{"ess": 0.0}, {"ess": None}])
def test_no_effective_draws_reach_nothing_and_prove_nothing(given: dict[str, Any]) -> None:
    price = laws.cost_to(answer(np.full(3, 0.4), **given), truth(3))
    assert not price.reached
    assert not price.floor.seen


def test_an_answer_that_is_not_a_number_is_infinitely_far_off() -> None:
    lost = answer([0.0, np.nan], ess=100.0)
    assert laws.actual_errors(lost, truth(2)).mean_worst == np.inf
    assert not laws.cost_to(lost, truth(2)).reached


def test_actual_errors_are_in_posterior_sds() -> None:
    given = answer([0.1, -0.3], ess=100.0)
    given.sd = np.array([0.5, 0.6])
    found = laws.actual_errors(given, truth(2))
    assert (found.mean_worst, found.mean_rms) == pytest.approx((0.3, np.sqrt(0.05)))
    assert (found.sd_worst, found.sd_rms) == pytest.approx((0.2, np.sqrt(0.02)))
    assert found.reference == 1e-4
