"""Rows that decide a coordinate are read: exposures, events, rare categories, in families and in models of one's own.

Every case once said "converged" with an interval that held the truth in none to half of the runs. The truth is a sum on
a grid. Published intervals hold at least 95% of it; a run that missed more than the tests here allow would do so by
chance once in a million: 4 or more of 6, if 98% of the intervals hold it as measured, and an error of 4 tolerances.
"""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from scenarios import by_ladder

import tallbayes as tb
from tallbayes.setup import preparation

SEEDS = range(6)


def on_a_grid(log_density, low, high):
    """Mean and sd of one parameter."""
    t = np.linspace(low, high, 40_001)
    density = np.exp(log_density(t) - log_density(t).max())
    mean = np.sum(t * density) / density.sum()
    return mean, np.sqrt(np.sum((t - mean) ** 2 * density) / density.sum())


def categories(counts, sums):
    """Log rates of categories with given numbers of rows and events, N(0, 5^2) a priori: each on a grid of its own."""
    found = []
    for count, total in zip(counts, sums, strict=True):
        centre, width = np.log(total / count), 1 / np.sqrt(total)
        low, high = centre - 12 * width, centre + 8 * width
        found.append(on_a_grid(lambda t, n=count, s=total: s * t - n * np.exp(t) - t**2 / 50, low, high))
    return np.array(found).T


def own_model(log_likelihood, size):
    return tb.Model(lambda theta: -0.5 * jnp.sum((theta / 5) ** 2), log_likelihood, np.zeros(size))


def exposure_in_one_row():
    exposure = np.full(20_000, 1e-9)
    exposure[7] = 1.0
    y = np.zeros(20_000)
    y[7] = 6
    truth = on_a_grid(lambda t: 6 * t - exposure.sum() * np.exp(t) - t**2 / 200, -6, 6)
    rows = {"x": np.ones((20_000, 1)), "y": y, "offset": np.log(exposure)}
    return tb.families.poisson(prior_scale=10.0), rows, truth


def exposures_of_all_sizes():
    exposure = np.random.default_rng(0).pareto(1.0, 20_000) + 1
    y = np.random.default_rng(1).poisson(20 / exposure.sum() * exposure).astype(float)
    truth = on_a_grid(lambda t: y.sum() * t - exposure.sum() * np.exp(t) - t**2 / 800, -16, -5)
    rows = {"x": np.ones((20_000, 1)), "y": y, "offset": np.log(exposure)}
    return tb.families.poisson(prior_scale=20.0), rows, truth


def category_of_one_row():
    category, y = np.zeros(10_000, int), np.random.default_rng(0).poisson(2.0, 10_000).astype(float)
    category[5], y[5] = 1, 4
    category[6:9], y[6:9] = 2, 3
    model = own_model(lambda theta, row: row["y"] * theta[row["c"]] - jnp.exp(theta[row["c"]]), 3)
    return model, {"c": category, "y": y}, categories(np.bincount(category), np.bincount(category, y))


def group_of_three():
    group, time = np.zeros(10_000, int), np.random.default_rng(0).exponential(1.0, 10_000)
    group[10:13], time[10:13] = 1, 1.0
    model = own_model(lambda theta, row: theta[row["g"]] - jnp.exp(theta[row["g"]]) * row["t"], 2)
    return model, {"g": group, "t": time}, categories(np.bincount(group, time), np.bincount(group))


SLOW = [pytest.param(case, marks=pytest.mark.slow) for case in (exposures_of_all_sizes, group_of_three)]
CASES = [pytest.param(exposure_in_one_row, marks=pytest.mark.slow), category_of_one_row, *SLOW]


@cache
def misses(case, listed=True):
    """Of six runs: how many say "converged" beside an interval without the truth, and the largest error."""
    model, rows, (mean, sd) = case()
    outside, errors = 0, []
    with pytest.MonkeyPatch.context() as patch:
        if not listed:
            patch.setattr(preparation, "list_rows", lambda *arguments: None)
            patch.setattr(preparation, "make_probe", lambda *arguments: None)
        for seed in SEEDS:
            result = by_ladder(model, rows, ("mean",), tolerance=0.05, seed=seed, max_evaluations=2e8)
            found = result["mean"]
            error = np.abs(found.flat_value - mean)
            outside += result.converged and bool(np.any(error > found.half_width()))
            errors.append(np.max(error / (0.05 * sd)))
    return outside, max(errors)


@pytest.mark.parametrize("case", CASES)
def test_rows_that_decide_are_read(case):
    outside, worst = misses(case)
    assert outside <= 3
    assert worst < 4


@pytest.mark.parametrize("case", [exposure_in_one_row, category_of_one_row])
def test_control_without_a_list_they_are_not(case):
    outside, worst = misses(case, listed=False)
    assert outside >= 4
    assert worst > 4
