"""Predictions far from the data, where eta is hundreds wide: over seeds, against the posterior on a grid.

Statistical tests with fixed seeds. An honest error is exceeded threefold in 3 of 1,000 numbers, and these bound a bias
on top: that more than 3% of the hundreds of numbers in a test do so has a chance below 1e-6, were they independent.
Rows of one run are not, so that the worst is held to eight errors too.
"""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import norm
from still import still_posterior

import tallbayes as tb
from tallbayes.model.linear import Layout
from tallbayes.model.links import Wanted
from tallbayes.posterior.predictor import FamilyResponse, OwnResponse, make_predictor

SEEDS = range(12)
DIRECTIONS = np.array([[1, 0.5], [1, -0.3], [0.0, 1], [1, 0.2]])
FAR = np.concatenate([scale * DIRECTIONS for scale in (1, 5, 30, 150, 600)])


def sample_rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = np.column_stack([np.ones(120), rng.normal(size=120)])
    return {"x": x, "y": (rng.random(120) < expit(x @ [-0.5, 1.0])).astype(float)}


def on_a_grid(rows: dict[str, np.ndarray], new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior mean and sd of the probability."""
    first, second = np.meshgrid(np.linspace(-2.2, 1.2, 500), np.linspace(-0.6, 3.0, 500), indexing="ij")
    theta = np.column_stack([first.ravel(), second.ravel()])
    log = -0.5 * np.sum(theta**2, axis=1)
    for x, y in zip(rows["x"], rows["y"], strict=True):
        log += y * (theta @ x) - np.logaddexp(0, theta @ x)
    weight = np.exp(log - log.max())
    keep = weight > 1e-13
    theta, weight = theta[keep], weight[keep] / weight[keep].sum()
    chance = expit(theta @ new.T)
    mean = weight @ chance
    return mean, np.sqrt(weight @ (chance - mean) ** 2)


@pytest.fixture(scope="module")
def study() -> dict[str, np.ndarray]:
    """Errors of every seed and row, and what each run says of them."""
    rows = sample_rows()
    mean, sd = on_a_grid(rows, FAR)
    runs = [tb.estimate(tb.families.logistic(), rows, tolerance=0.05, seed=seed).predict(FAR) for seed in SEEDS]
    return {
        "mean": np.array([run.mean - mean for run in runs]),
        "error": np.array([run.error for run in runs]),
        "sd": np.array([run.sd - sd for run in runs]),
        "sd_error": np.array([run.sd_error for run in runs]),
        "scale": sd,
    }


def exceeded(off: np.ndarray, error: np.ndarray) -> float:
    return float(np.mean(np.abs(off) > 3 * error))


def test_far_rows_lie_within_their_errors(study: dict[str, np.ndarray]) -> None:
    """Before, Hermite's nodes left two thirds of the far rows outside of two errors."""
    assert exceeded(study["mean"], study["error"]) <= 0.03
    assert np.abs(study["mean"] / study["error"]).max() < 8


def test_the_sd_of_a_prediction_errs_by_what_it_says(study: dict[str, np.ndarray]) -> None:
    assert exceeded(study["sd"], study["sd_error"]) <= 0.03
    assert np.abs(study["sd"] / study["sd_error"]).max() < 8


def test_errors_are_of_use_where_the_answer_is_not_rare(study: dict[str, np.ndarray]) -> None:
    """They cover because they are right, not because they are endless."""
    common = study["scale"] > 0.1
    assert np.median(study["error"][:, common] / study["scale"][common]) < 0.1
    assert np.median(study["sd_error"][:, common] / study["scale"][common]) < 0.1


def test_control_a_tenth_of_the_error_would_be_too_small(study: dict[str, np.ndarray]) -> None:
    assert exceeded(study["mean"], study["error"] / 10) > 0.1
    assert exceeded(study["sd"], study["sd_error"] / 10) > 0.1


def test_a_gaussian_is_exact_however_far() -> None:
    """E Phi(eta) = Phi(m / sqrt(1 + s^2)) and Var eta = s^2 at s = 0.5 to 500,000."""
    mode, precision = np.array([0.5, -0.3]), np.diag([4.0, 9.0])
    x = np.outer(10.0 ** np.arange(7), [1.0, 1.0])
    sd = np.sqrt(np.sum(x**2 / np.diag(precision), axis=1))
    posterior, rows = still_posterior(mode, precision), (x, np.zeros(len(x)))
    found = make_predictor(posterior, FamilyResponse(Wanted("probit"), Layout()), rows).all(rows)
    np.testing.assert_allclose(found.mean[:, 0], norm.cdf(x @ mode / np.sqrt(1 + sd**2)), atol=1e-10)
    line = make_predictor(posterior, FamilyResponse(Wanted("linear"), Layout()), rows).all(rows)
    np.testing.assert_allclose(line.sd[:, 0], sd, rtol=1e-6)


@pytest.mark.parametrize("heads", [2, 4])
def test_draws_of_several_classes_know_what_they_miss(heads: int) -> None:
    """256 pairs, at sds of eta up to hundreds, against 400,000 draws."""
    rng = np.random.default_rng(1)
    mode, root = 0.7 * rng.normal(size=2 * heads), 0.3 * rng.normal(size=(2 * heads, 2 * heads))
    root += 0.6 * np.eye(2 * heads)
    posterior = still_posterior(mode, 20 * root @ root.T)
    x = np.concatenate([scale * rng.normal(size=(6, 2)) for scale in (1, 20, 200)])
    draws = mode + posterior.anchor.displacements(np.random.default_rng(9).normal(size=(400_000, 2 * heads)))
    chances = np.empty((len(x), heads + 1, 2))
    for place, row in enumerate(x):
        eta = draws.reshape(-1, heads, 2) @ row
        p = softmax(np.pad(eta, ((0, 0), (1, 0))), axis=1)
        chances[place] = np.column_stack([p.mean(axis=0), p.std(axis=0)])
    kind, rows = FamilyResponse(Wanted("multinomial"), Layout(heads)), (x, np.zeros(len(x)))
    scores, sd_scores = [], []
    for seed in range(20):
        found = make_predictor(replace(posterior, seed=seed), kind, rows).all(rows)
        own = chances[..., 1] / np.sqrt(len(draws))
        error = np.hypot(found.standard_error, found.bias_bound) + own
        sd_error = np.hypot(found.sd_standard_error, found.sd_bias_bound) + own
        scores.append((found.mean - chances[..., 0]) / error)
        sd_scores.append((found.sd - chances[..., 1]) / sd_error)
    for each in (np.array(scores), np.array(sd_scores)):
        assert np.mean(np.abs(each) > 3) < 0.03
        assert np.abs(each).max() < 10


def test_an_own_function_is_looked_at_along_its_line() -> None:
    """P = sigmoid(x theta) of one's own, next to 0 at almost all draws: what 256 pairs did not see is in the error."""
    posterior = still_posterior(np.array([-3.5]), np.eye(1))

    kind = OwnResponse(lambda theta, row: jnp.reciprocal(1 + jnp.exp(-theta[0] * row["z"])))
    rows = {"z": np.array([1.0, 30.0, 100.0])}
    normal = np.random.default_rng(3).normal(-3.5, 1.0, (400_000, 1))
    exact = expit(normal * rows["z"]).mean(axis=0)
    scores = []
    for seed in range(20):
        found = make_predictor(replace(posterior, seed=seed), kind, rows).all(rows)
        error = np.hypot(found.standard_error, found.bias_bound)[:, 0]
        scores.append((found.mean[:, 0] - exact) / error)
        assert np.all(error < 0.02)
    assert np.abs(scores).max() < 6


def test_rates_beyond_all_numbers_are_infinite_and_say_so() -> None:
    """E exp(eta) at s = 1,000 has no double: its answer and its error are infinite, and other rows are as they were."""
    posterior, x = still_posterior(np.array([0.1]), np.eye(1)), np.array([[0.1], [1000.0]])
    rows = x, np.zeros(2)
    found = make_predictor(posterior, FamilyResponse(Wanted("poisson"), Layout()), rows).all(rows)
    assert found.mean[0, 0] == pytest.approx(np.exp(0.01 + 0.005), rel=1e-3)
    assert np.isinf(found.mean[1, 0])
    assert np.isinf(found.standard_error[1, 0])
    assert not np.any(np.isnan([found.sd, found.bias_bound, found.sd_standard_error, found.sd_bias_bound]))


def test_many_rows_in_float32_keep_small_differences() -> None:
    """5,000 rows are read in float32, where 10^6 + 0.01 has no digits left: differences are formed without it."""
    rng = np.random.default_rng(3)
    x = np.column_stack([np.ones(400), rng.normal(size=400)])
    rows = {"x": x, "y": x @ [0.3, 0.2] + rng.normal(0, 0.1, 400)}
    result = tb.estimate(tb.families.linear(noise_scale=0.1), rows, tolerance=0.05)
    new = np.column_stack([np.ones(5000), rng.normal(size=5000)])
    near, far = result.predict(new), result.predict(new, offset=1e6)
    np.testing.assert_allclose(far.mean - 1e6, near.mean, atol=1e-9)
    np.testing.assert_allclose(far.sd, near.sd, rtol=1e-6)
