"""Rates, consistency and contraction: recovered from numbers whose law is known."""

import numpy as np
import pytest

from tallbayes.estimator.rates import consistency, contraction_of, cost_growth, fit_decay, mean_decay, variance_decay
from tallbayes.moments import Moments

LEVELS = np.arange(6)


def test_exact_powers_are_recovered():
    samples, ones = np.full(6, 100.0), np.ones((6, 1))
    assert variance_decay(4.0 ** -LEVELS[:, None], 3 * ones, samples, np.ones(1)).value == pytest.approx(2)
    assert mean_decay(2.0 ** -LEVELS[:, None], 1e-9 * ones, np.ones(1)).value == pytest.approx(1)
    assert cost_growth(3 * 2.0**LEVELS) == pytest.approx(1)


def test_the_standard_error_of_a_rate_is_its_scatter():
    """Over 2,000 noisy ladders the fitted exponent scatters as its own error says (within 10%)."""
    rng = np.random.default_rng(0)
    error = np.full(5, 0.1)
    fits = [fit_decay(4.0 ** -LEVELS[1:] * np.exp(0.1 * rng.normal(size=5)), error) for _ in range(2000)]
    scatter = np.std([fit.value for fit in fits])
    assert scatter == pytest.approx(fits[0].standard_error, rel=0.1)


def test_too_few_levels_give_no_rate():
    assert np.isnan(fit_decay(np.array([1.0]), np.array([0.1])).value)
    assert np.isnan(variance_decay(np.ones((2, 1)), np.ones((2, 1)), np.ones(2), np.ones(1)).value)


def test_consistency_is_a_z_score():
    """Equal laws give standard normal scores; an offset of 0.2 sd among 10,000 shows as about 14. False alarm 1e-6."""
    rng = np.random.default_rng(1)
    scores = [
        consistency([Moments.of(rng.normal(size=(200, 1)))], [Moments.of(rng.normal(size=(300, 1)))])[0, 0]
        for _ in range(2000)
    ]
    assert abs(np.mean(scores)) < 4.9 / np.sqrt(2000)
    assert abs(np.std(scores) - 1) < 4.9 / np.sqrt(4000)
    offset = consistency([Moments.of(rng.normal(size=(10_000, 1)))], [Moments.of(0.2 + rng.normal(size=(10_000, 1)))])
    assert offset[0, 0] < -10


def test_contraction_of_exact_decay():
    start = np.random.default_rng(0).chisquare(3, size=(64, 1))
    squares = start * np.exp(-2 * 0.7 * np.arange(4))
    contraction = contraction_of(squares, interval=0.5)
    assert contraction.factor == pytest.approx(np.exp(-0.7))
    assert contraction.upper == pytest.approx(contraction.factor)
    assert contraction.rate == pytest.approx(0.7 / 0.5)


def test_contraction_is_bounded_from_above():
    """With noisy pairs the upper end lies above the truth in at least 96% of 2,000 studies (97.5% by design)."""
    rng = np.random.default_rng(0)
    above = []
    for _ in range(2000):
        before = rng.chisquare(3, 64)
        after = before * np.exp(-2 + 0.5 * rng.normal(size=64) - 0.125)
        squares = np.stack([before, before, after, after], axis=1)
        above.append(contraction_of(squares, 1.0).upper >= np.exp(-1))
    assert np.mean(above) > 0.95


def test_divergence_and_coincidence():
    assert contraction_of(np.array([[1.0, 2.0, np.nan, 1.0]] * 4), 1.0).upper == np.inf
    assert contraction_of(np.array([[1.0, 0.0, 0.0, 0.0]] * 4), 1.0).factor == 0
