"""Ranks of linear effects have their closed form; of made-up runs right ones are green, wrong ones red."""

from __future__ import annotations

from typing import Any

import mixed_crossed
import mixed_sbc
import numpy as np
from scipy.stats import norm

UNEVEN = mixed_sbc.Case("linear", "uneven", 1.0, 1.0)


def test_ranks_of_linear_effects_have_their_closed_form() -> None:
    data, place = mixed_sbc.simulate(UNEVEN, 3), 29
    rng = np.random.default_rng(1)
    draws = {"Intercept": rng.normal(size=40), "x": rng.normal(size=40)}
    draws |= {"sd(Intercept|g)": 0.2 + rng.random(40), "noise_scale": 0.5 + rng.random(40)}
    own, noise = data.group == place, draws["noise_scale"]
    precision = own.sum() / noise**2 + 1 / draws["sd(Intercept|g)"] ** 2
    rest = data.y[own] - draws["Intercept"][:, None] - draws["x"][:, None] * data.x[own]
    mean = rest.sum(axis=1) / noise**2 / precision
    exact = np.mean(norm.cdf((data.effects[place] - mean) * np.sqrt(precision)))
    assert abs(mixed_sbc.rank_of_effect(draws, data, place, UNEVEN) - exact) < 1e-3


def runs(width: float) -> list[dict[str, Any]]:
    """Of a hundred data sets of twenty effects N(0, 1), whose intervals are so many times as long as is right."""
    rng, found = np.random.default_rng(7), []
    half = width * norm.ppf(0.975) * np.ones(20)
    for _ in range(100):
        effects = {"mean": np.zeros(20), "sd": width * np.ones(20), "lower": -half, "upper": half}
        found.append(
            {
                "status": "converged",
                "method": "Weighted",
                "seconds": 1.0,
                "ranks": {name: norm.cdf(rng.normal() / width) for name in ("x", "y")},
                "errors": [0.0],
                "true_effects": rng.normal(size=20),
                "effects": effects | {"end_error": 0.05 * np.ones(20)},
            }
        )
    return found


def test_right_runs_are_green_and_wrong_ones_red() -> None:
    """By chance right ones are red in one of 10^6 such tests; 0.024 is 4.9 standard errors of what is held."""
    right, narrow = (mixed_sbc.summarise("logistic-uneven-1", runs(width)) for width in (1.0, 0.5))
    assert min(right.tests.values()) > 1e-7
    assert abs(right.held - 0.95) < 0.024
    assert right.halved_p < 1e-6
    assert narrow.tests["ranks"] < 1e-6
    assert narrow.tests["intervals"] < 1e-6


def test_draws_state_their_errors() -> None:
    """Over 200 sets of independent draws z of mean and sd has an RMS of 1, to 4.9 standard errors."""
    rng = np.random.default_rng(3)
    found = np.array([mixed_crossed.of_draws(2 + 3 * rng.normal(size=(4, 500)))[:4] for _ in range(200)])
    for value, error, exact in ((found[:, 0], found[:, 1], 2), (found[:, 2], found[:, 3], 3)):
        square = np.mean(((value - exact) / error) ** 2)
        assert abs(square - 1) < 4.9 * np.sqrt(2 / 200)


def test_a_shift_is_found_beside_the_draws() -> None:
    theirs = {"parameters": {"x": [1.0, 0.01, 0.5, 0.01, 2500.0, 1.0]}, "g": {"0": [0.0, 0.01, 0.5, 0.01, 2500.0, 1.0]}}
    ours = {"parameters": {"x": [1.02, 0.01, 0.5, 0.01]}, "g": {"g00": [0.2, 0.01, 0.5, 0.01]}}
    found = mixed_crossed.compare(ours, theirs)
    assert found["parameters"]["largest_z"] < mixed_crossed.RED < found["g"]["largest_z"]
