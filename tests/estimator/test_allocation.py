"""Allocation, error and bias: each formula against numbers worked out by hand."""

import numpy as np
import pytest

from tallbayes.estimator.allocation import bias_terms, degrees_of_freedom, floored_variance, optimal_samples, sum_errors


def column(*values):
    return np.array(values, float)[:, None]


def test_samples_follow_the_formula():
    """V = (4, 1), C = (1, 4), eps = 0.1: sum sqrt(V C) = 4, so N = 100 * (2, 0.5) * 4."""
    need = optimal_samples(column(4, 1), np.array([1.0, 4.0]), np.array([0.1]))
    np.testing.assert_array_equal(need, [800, 200])
    assert np.sum(np.array([4, 1]) / need) == pytest.approx(0.1**2)


def test_no_cheaper_split_reaches_the_same_error():
    """Moving samples between levels at the same variance costs more."""
    variance, cost, tolerance = np.array([3.0, 0.5, 0.1]), np.array([1.0, 3.0, 8.0]), 0.02
    best = optimal_samples(variance[:, None], cost, np.array([tolerance]))
    for level in range(3):
        other = best * np.where(np.arange(3) == level, 1.3, 1.0)
        other *= np.sum(variance / other) / tolerance**2
        assert other @ cost > best @ cost


def test_the_largest_demand_wins():
    variance = np.array([[1.0, 0.0], [0.1, 4.0]])
    both = optimal_samples(variance, np.array([1.0, 2.0]), np.array([0.1, 0.1]))
    alone = [optimal_samples(variance[:, [k]], np.array([1.0, 2.0]), np.array([0.1])) for k in (0, 1)]
    np.testing.assert_array_equal(both, np.maximum(*alone))


def test_nothing_varies_nothing_is_needed():
    np.testing.assert_array_equal(optimal_samples(column(0, 0), np.ones(2), np.array([0.0])), [0, 0])


def test_freedom_of_one_gaussian_level_is_its_sample_size():
    assert degrees_of_freedom(column(2.0), column(3.0), np.array([50.0]))[0] == pytest.approx(50)


def test_freedom_falls_with_kurtosis_and_is_infinite_without_variance():
    assert degrees_of_freedom(column(2.0), column(9.0), np.array([64.0]))[0] == 2 * 64 / 8
    assert degrees_of_freedom(column(0.0), column(3.0), np.array([64.0]))[0] == np.inf


def test_bias_is_a_geometric_tail():
    """Means 2^-l with rho = 1/2: every level speaks for the same remainder, 2^-L."""
    size = column(*(2.0**-level for level in range(6)))
    np.testing.assert_allclose(bias_terms(size, 0.5), np.full((3, 1), 2.0**-5))
    assert np.all(bias_terms(size, 1.0) == np.inf)


def test_errors_of_a_sum_of_levels():
    """V / N = (4, 1, 1/4) / 4 and a base of variance 15/16: se^2 = 9/4. Sizes (., 2, 3/2), rho = 1/2: bias 3/2."""
    mean, variance, samples = column(5.0, -1.0, 1.0), column(4.0, 1.0, 0.25), np.full(3, 4.0)
    found = sum_errors(mean, variance, samples, 0.5, base_variance=15 / 16)
    np.testing.assert_allclose(found.standard_error, [1.5])
    np.testing.assert_allclose(found.bias_bound, [1.5])
    assert sum_errors(mean[:2], variance[:2], samples[:2], 0.5).bias_bound == [np.inf]


def test_level_zero_never_speaks_for_the_bias():
    size = column(100.0, 1.0, 0.5)
    assert bias_terms(size, 0.5).shape == (2, 1)
    assert bias_terms(size, 0.5).max() == 0.5


def test_small_samples_are_held_above_the_level_below():
    floored = floored_variance(column(1, 0.4, 1e-9), np.array([64.0, 64, 64]), rate=2, trusted=512)
    assert floored[2, 0] == pytest.approx(0.4 / 8)
    trusted = floored_variance(column(1, 0.4, 1e-9), np.array([64.0, 64, 512]), rate=2, trusted=512)
    assert trusted[2, 0] == 1e-9


def test_no_variation_seen_is_not_believed():
    """An indicator that never differed in M samples may still differ once in M / 3."""
    floored = floored_variance(column(0.25, 0.0), np.array([600.0, 600]), rate=2, trusted=512)
    assert floored[1, 0] == pytest.approx(3 * 0.25 / 600)
    assert floored_variance(column(0.0, 0.0), np.array([64.0, 64]), rate=2, trusted=512).max() == 0
