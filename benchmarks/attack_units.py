"""Attacks by units: answers must not depend on the unit of y, however small or large, nor on rounding."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import quadrature
from attack_tails import five_events
from questions import Question
from scipy.special import gammaln

import tallbayes as tb
from tallbayes.model.constraints import positive


def small_scale(size: float, tolerance: float, num_rows: int = 8) -> Question:
    """log y ~ N(log s, 1), s > 0 with the prior 1 / s: log s is Gaussian, and s lognormal, in closed form."""
    y = np.log(size) + np.random.default_rng(23).normal(size=num_rows)
    model = tb.Model(
        lambda s: -jnp.log(s), lambda s, row: -0.5 * (row["y"] - jnp.log(s)) ** 2, size, constraints=positive
    )
    mean = np.exp(y.mean() + 0.5 / num_rows)
    return Question(model, {"y": y}, {"mean": [mean], "sd": [mean * np.sqrt(np.expm1(1 / num_rows))]}, tolerance)


def overdispersed(overdispersion: float, tolerance: float, num_rows: int = 400) -> Question:
    """Counts of mean 5: a negative binomial with an intercept alone."""
    rng = np.random.default_rng(24)
    y = rng.poisson(5.0 * rng.gamma(1 / overdispersion, overdispersion, num_rows)).astype(float)
    one = np.linspace(-1, 1, 401)
    eta, log_a = np.meshgrid(np.log(y.mean()) + 0.4 * one, np.log(overdispersion) + 8.0 * one - 5.0, indexing="ij")
    points = np.column_stack([eta.ravel(), log_a.ravel()])
    # The priors are N(0, 1) and half-normal; the grid is even in log a.
    a = np.exp(points[:, 1])
    height = count_likelihood(points[:, 0], a, y) - 0.5 * points[:, 0] ** 2 - 0.5 * a**2 + points[:, 1]
    weights = np.exp(height - height.max())
    grid = quadrature.Grid(np.column_stack([points[:, 0], a]), weights / weights.sum())
    rows = {"x": np.ones((num_rows, 1)), "y": y}
    return Question(tb.families.negative_binomial(), rows, {"mean": grid.mean, "sd": grid.sd}, tolerance)


def count_likelihood(eta: np.ndarray, overdispersion: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of negative binomial counts with mean exp(eta), up to a constant; r = 1 / overdispersion."""
    r, total = 1 / overdispersion, 0.0
    for count, number in zip(*np.unique(y, return_counts=True), strict=True):
        chance = gammaln(count + r) - gammaln(r) + count * (eta - np.log(r + np.exp(eta)))
        total = total + number * (chance + r * (np.log(r) - np.log(r + np.exp(eta))))
    return np.asarray(total)


def earnings(unit: float, tolerance: float, num_rows: int = 1192) -> Question:
    """Earnings by height, in dollars of which `unit` are one: noise of 19,000 dollars, as of posteriordb's earnings."""
    rng = np.random.default_rng(25)
    height = rng.normal(size=num_rows)
    y = (23_000 + 4_800 * height + 19_000 * rng.standard_normal(num_rows)) / unit
    x = np.column_stack([height, np.ones(num_rows)])
    scale = 100_000 / unit
    sigma = np.log(y.std())
    truth = quadrature.UnknownNoise(x, y, scale, scale).moments(sigma - 0.6, sigma + 0.6)
    return Question(tb.families.linear(prior_scale=scale, noise_prior_scale=scale), {"x": x, "y": y}, truth, tolerance)


def nearly_constant(tolerance: float) -> Question:
    """1 + 1e-9 theta of a skewed posterior: in float32 it is 1 wherever theta is."""
    model, rows, marginal = five_events()
    asked = {"tilted": lambda theta: 1 + 1e-9 * theta[0]}
    return Question(model, rows, {"tilted": [1 + 1e-9 * marginal.mean()]}, tolerance, {"quantities": asked})
