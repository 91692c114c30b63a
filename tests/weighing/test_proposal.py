"""Draws of Student's t about a Gaussian, and the ratio of the two densities."""

from __future__ import annotations

from math import gamma, pi

import numpy as np
import pytest

from tallbayes.weighing.proposal import BLOCK_DRAWS, Proposal


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_the_ratio_is_that_of_the_two_densities(dimension: int) -> None:
    nu, z = 7.0, np.random.default_rng(0).standard_normal((6, dimension)) * 2
    square = np.sum(z**2, axis=1)
    t = gamma((nu + dimension) / 2) / (gamma(nu / 2) * (nu * pi) ** (dimension / 2))
    t = t * (1 + square / nu) ** (-(nu + dimension) / 2)
    normal = np.exp(-0.5 * square) / (2 * pi) ** (dimension / 2)
    np.testing.assert_allclose(np.exp(Proposal(dimension, nu, 0).log_gaussian(z)), normal / t, rtol=1e-12)


def test_draws_have_the_law_that_they_are_weighted_for() -> None:
    """The mean of phi / q is 1, and so is that of phi / q z^2: both within 4.9 standard errors (one in a million)."""
    proposal = Proposal(3, 12.0, seed=4)
    z = np.concatenate([proposal.block(number) for number in range(200)])
    weights = np.exp(proposal.log_gaussian(z))
    for values in (weights, weights * z[:, 0] ** 2, weights * z[:, 1] ** 2):
        assert abs(values.mean() - 1) < 4.9 * values.std() / np.sqrt(len(values))
    # The negative control: with another nu they are not.
    wrong = np.exp(Proposal(3, 4.0, seed=4).log_gaussian(z))
    assert abs(wrong.mean() - 1) > 4.9 * wrong.std() / np.sqrt(len(wrong))


def test_a_block_is_a_function_of_the_seed_and_its_number() -> None:
    one = Proposal(2, 20.0, seed=1)
    assert one.block(0).shape == (BLOCK_DRAWS, 2)
    np.testing.assert_array_equal(one.block(3), Proposal(2, 20.0, seed=1).block(3))
    assert not np.any(one.block(0) == one.block(1))
    assert not np.any(one.block(0) == Proposal(2, 20.0, seed=2).block(0))
