"""From weights to a log mean: draws whose law is known, in one dimension, where a quadrature says what they should."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.stats import t as student

from tallbayes.evidence.estimate import log_mean, mean_over_gaussian
from tallbayes.weighing.proposal import Proposal

DRAWS, SEEDS = 512, 400


def height(z: np.ndarray) -> np.ndarray:
    """A skewed posterior, known up to a constant."""
    return -0.5 * z**2 - 0.12 * z**3 / (1 + 0.1 * z**2) - 900.0


@cache
def truth() -> float:
    grid = np.linspace(-14, 14, 200_001)
    return float(np.log(np.sum(np.exp(height(grid) + 900.0)) * (grid[1] - grid[0])) - 900.0)


@cache
def many(known: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Errors, ends of intervals and standard errors over seeds; with E g taken for another number if asked."""
    proposal, errors, halves, stated = Proposal.about(1, 0), [], [], []
    for seed in range(SEEDS):
        z = proposal.draws(np.random.default_rng(seed), DRAWS)
        log_g = proposal.log_gaussian(z)
        log_q = -0.5 * z[:, 0] ** 2 - 0.5 * np.log(2 * np.pi) - log_g
        found = log_mean(height(z[:, 0]) - log_q, log_g + np.log(known))
        errors.append(found.value - truth())
        halves.append(student.ppf(0.975, found.freedom) * found.standard_error + found.bias_bound)
        stated.append(found.error)
    return np.array(errors), np.array(halves), np.array(stated)


def test_intervals_cover() -> None:
    errors, halves, stated = many()
    # Of 400 intervals that cover 95% fewer than 356 cover once in 2 million.
    assert np.sum(np.abs(errors) <= halves) >= 356
    # The mean of 400 errors is within 5 of its standard errors, and a bias bound: 6e-7.
    assert abs(errors.mean()) < 5 * errors.std() / np.sqrt(SEEDS) + 1e-3
    assert np.sqrt(np.mean(errors**2)) < 1.15 * np.sqrt(np.mean(stated**2))


def test_control_a_wrong_mean_of_the_gaussian_is_seen() -> None:
    errors, halves, _ = many(known=1.05)
    assert np.sum(np.abs(errors) <= halves) < 300


def test_the_gaussian_itself_leaves_nothing() -> None:
    proposal = Proposal.about(4, 0)
    z = proposal.draws(np.random.default_rng(0), 64)
    log_g = proposal.log_gaussian(z)
    found = log_mean(log_g + 3.25, log_g)
    assert np.isclose(found.value, 3.25, rtol=1e-13)
    assert found.error < 1e-12


def test_a_mean_over_the_gaussian() -> None:
    proposal = Proposal.about(2, 0)
    z = proposal.draws(np.random.default_rng(1), 20_000)
    found = mean_over_gaussian(z[:, 0] ** 2 + z[:, 1], proposal.log_gaussian(z))
    # Five standard errors: 6e-7.
    assert abs(found.value - 1.0) < 5 * found.standard_error


def test_a_density_that_is_no_number_says_so() -> None:
    found = log_mean(np.array([0.0, np.nan]), np.zeros(2))
    assert np.isnan(found.value)
    assert found.error == np.inf
