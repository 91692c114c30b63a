"""Weights against a posterior that is known: a normal of another mean and sd, and one that is skewed."""

from __future__ import annotations

import numpy as np
import pytest

from tallbayes.weighing.proposal import Proposal
from tallbayes.weighing.weights import Weights

SEEDS = 400
SHAPE = 30.0


def gamma_weights(z: np.ndarray) -> tuple[Weights, np.ndarray]:
    """x = a + sqrt(a) z as a Gamma(a) number, with the mean and the mean square of the Gaussian."""
    x = SHAPE + np.sqrt(SHAPE) * z[:, 0]
    log_density = np.where(x > 0, (SHAPE - 1) * np.log(np.maximum(x, 1e-300)) - x, -np.inf)
    control = Proposal.about(1, 0).log_gaussian(z)
    return Weights.of(log_density + 0.5 * z[:, 0] ** 2 + control, control), np.stack([x, x**2], axis=1)


TRUTH = np.array([SHAPE, SHAPE**2 + SHAPE])


def draws_of(seed: int) -> np.ndarray:
    return np.concatenate([Proposal.about(1, seed).block(number) for number in (0, 1)])


def estimates(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    weights, values = gamma_weights(draws_of(seed))
    delta = weights.differences(values)
    return TRUTH + delta.mean(axis=0), delta.std(axis=0, ddof=1) / np.sqrt(len(delta)), weights.ratio_bias(values)


def test_where_the_posterior_is_the_gaussian_nothing_is_left() -> None:
    proposal = Proposal(3, 20.0, 0)
    z = proposal.block(0)
    control = proposal.log_gaussian(z)
    weights = Weights.of(control - 123.4, control)
    np.testing.assert_allclose(weights.differences(z**2), 0.0, atol=1e-12)
    np.testing.assert_allclose(weights.ratio_bias(z**2), 0.0, atol=1e-15)


def test_errors_are_what_they_say() -> None:
    """Over 400 runs of 512 draws the z-scores have mean square 1 within 5 standard errors (one in two million), and
    the mean error is that of the ratio within 5. Without what the Gaussian explains the same test is red."""
    values, errors, bias = (np.array(each) for each in zip(*map(estimates, range(SEEDS)), strict=True))
    off = values - TRUTH
    z = off / errors
    assert np.all(np.abs(np.mean(z**2, axis=0) - 1) < 5 * (z**2).std(axis=0) / np.sqrt(SEEDS))
    unbiased = off - bias
    assert np.all(np.abs(unbiased.mean(axis=0)) < 5 * unbiased.std(axis=0) / np.sqrt(SEEDS))

    def without(seed: int) -> np.ndarray:
        weights, values = gamma_weights(draws_of(seed))
        return weights.posterior @ values / len(values)

    bare = (np.array([without(seed) for seed in range(SEEDS)]) - TRUTH) / errors
    assert np.all(np.mean(bare**2, axis=0) - 1 > 5 * (bare**2).std(axis=0) / np.sqrt(SEEDS))


def test_the_bias_of_the_ratio_is_the_one_foreseen() -> None:
    """With 12 draws it is large enough to be seen: the mean over 200,000 runs, within 5 standard errors of it and a
    fifth of its size; and it is not zero by 10."""
    runs, few = 200_000, 12
    proposal = Proposal.about(1, 0)
    z = proposal.draws(np.random.default_rng(0), runs * few)
    x, control = z[:, 0].reshape(runs, few), proposal.log_gaussian(z).reshape(runs, few)
    w = np.exp(control + 0.5 * x)
    mean = np.sum(w * x, axis=1) / w.sum(axis=1)
    shares = w / w.mean(axis=1, keepdims=True)
    foreseen = -np.mean(shares**2 * (x - mean[:, None]), axis=1).mean() / few
    error = mean.std() / np.sqrt(runs)
    assert abs(mean.mean() - 0.5) > 10 * error
    assert abs(mean.mean() - 0.5 - foreseen) < 5 * error + 0.2 * abs(foreseen)


@pytest.mark.parametrize(("index", "low", "high"), [(0.1, -0.1, 0.3), (0.7, 0.5, 0.9)])
def test_the_tail_index_is_found(index: float, low: float, high: float) -> None:
    uniform = np.random.default_rng(1).random(20_000)
    draws = 1 + ((1 - uniform) ** -index - 1) / index
    assert low < Weights(draws / draws.mean(), np.ones(len(draws))).tail < high


def test_equal_weights_have_no_tail() -> None:
    assert Weights(np.ones(600), np.ones(600)).tail == -np.inf
    assert Weights(np.ones(600), np.ones(600)).trouble == ""


@pytest.mark.parametrize(
    ("posterior", "words"),
    [
        (np.where(np.arange(600) < 60, 10.0, 0.0), "worth 10%"),
        (np.append(np.ones(599), 40.0), "holds"),
        (np.append(np.ones(599), np.nan), "no number"),
        (1 + ((np.arange(600) + 0.5) / 600) ** -0.45, "tail is heavy"),
    ],
)
def test_weights_that_do_not_behave_are_told(posterior: np.ndarray, words: str) -> None:
    assert words in Weights(posterior / posterior.mean(), np.ones(len(posterior))).trouble


def pareto(index: float, count: int) -> Weights:
    """Its quantiles."""
    drawn = ((np.arange(count) + 0.5) / count) ** -index
    return Weights(drawn / drawn.mean(), np.ones(count))


def shoulder(count: int) -> Weights:
    """As of a scale of effects that may be 0: bounded by five times their mean, and by 1.6 times but for a few."""
    drawn = 1.6 * np.sqrt((np.arange(count) + 0.5) / count)
    drawn[: count // 200] = np.linspace(1.6, 5.0, count // 200)
    return Weights(drawn / drawn.mean(), np.ones(count))


def test_a_shoulder_is_no_trouble_to_a_mean() -> None:
    """Where draws are enough to say so."""
    many, few = shoulder(16_384), shoulder(2_048)
    assert "tail is heavy" in many.trouble
    assert many.trouble_of_mean == ""
    assert "tail is heavy" in few.trouble_of_mean


@pytest.mark.parametrize("index", [0.4, 0.6, 0.9])
@pytest.mark.parametrize("count", [2_048, 16_384])
def test_control_a_heavy_tail_is_trouble_to_a_mean(index: float, count: int) -> None:
    assert pareto(index, count).trouble_of_mean
    assert pareto(index, count).largest_of_variance > 0.02


def test_the_first_few_weigh_as_if_there_were_no_others() -> None:
    weights, values = gamma_weights(draws_of(3))
    alone, _ = gamma_weights(draws_of(3)[:100])
    np.testing.assert_allclose(weights.first(100).posterior, alone.posterior, rtol=1e-12)
    np.testing.assert_allclose(weights.first(100).differences(values[:100]), alone.differences(values[:100]))
