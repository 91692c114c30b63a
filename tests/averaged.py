"""Averages by brute force: draws with weights in NumPy, and how far an answer is from what they say."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tallbayes.moments import Floats
from tallbayes.results.averages.answers import AverageEffect

DRAWS = 200_000
FREEDOM = 7


def weighted_draws(
    log_density: Callable[[Floats], Floats], mode: Floats, covariance: Floats, seed: int = 9, count: int = DRAWS
) -> tuple[Floats, Floats]:
    """Draws of Student's t about a mode, and their weights, which add up to one."""
    rng, d = np.random.default_rng(seed), len(mode)
    z = rng.standard_normal((count, d)) * np.sqrt(FREEDOM / rng.chisquare(FREEDOM, count))[:, None]
    theta = mode + 1.1 * z @ np.linalg.cholesky(covariance).T
    log = log_density(theta) + 0.5 * (FREEDOM + d) * np.log1p(np.sum(z**2, axis=1) / FREEDOM)
    weights = np.exp(log - log.max())
    return theta, weights / weights.sum()


def departure(found: AverageEffect, values: Floats, weights: Floats) -> float:
    """The largest error over mean, sd and both ends, in stated errors; the reference has some of its own."""
    mean = float(weights @ values)
    sd = float(np.sqrt(weights @ (values - mean) ** 2))
    order = np.argsort(values)
    ends = np.interp([0.025, 0.975], np.cumsum(weights[order]), values[order])
    size = 1 / np.sum(weights**2)
    # Of an end: sqrt(p (1 - p) / n) over the normal density there.
    own = sd * np.array([1.0, 0.8, 2.7, 2.7]) / np.sqrt(size)
    return float(np.max(np.abs(found.values - [mean, sd, *ends]) / np.hypot(found.errors, own)))
