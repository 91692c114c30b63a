"""Closed forms on the Gaussian model: the exact law of every path, for every gradient and minibatch law.

One coefficient, y_i ~ N(x_i theta, 1), theta ~ N(0, 1). With a_i = x_i^2, b_i = x_i y_i, lambda = 1 + sum a_i and
v = theta - theta_0, one Euler step with minibatch error is

    v' = (1 - h lambda) v + h (eps_0 - (1 - c(v)) eps_a v) + sqrt(2h) xi

eps_a, eps_0 the errors of the scaled batch sums of a_i and of b_i - a_i theta_0; eps_0 enters for Plain alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations, product

import numpy as np

import tallbayes as tb

NUM_ROWS = 8


def rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    x = rng.normal(size=(NUM_ROWS, 1)) * np.array([[0.3], [2.0]] * (NUM_ROWS // 2))
    return {"x": x, "y": x[:, 0] * 0.8 + rng.normal(size=NUM_ROWS)}


MODEL = tb.families.linear(noise_scale=1.0, prior_scale=1.0)


@dataclass(frozen=True, eq=False)
class Exact:
    """The posterior's own numbers: lambda, theta_0, and the row sums that minibatches estimate."""

    precision: float
    mode: float
    a: np.ndarray
    residual: np.ndarray


@cache
def exact() -> Exact:
    data = rows()
    x, y = (np.float64(np.float32(data[name])) for name in ("x", "y"))
    a, b = x[:, 0] ** 2, x[:, 0] * y
    precision = 1 + a.sum()
    mode = b.sum() / precision
    return Exact(precision, mode, a, b - a * mode)


def batches(sampling: object, size: int) -> np.ndarray:
    """Every batch of the law, each equally likely."""
    if isinstance(sampling, tb.WithReplacement):
        return np.array(list(product(range(NUM_ROWS), repeat=size)))
    if isinstance(sampling, tb.WithoutReplacement):
        return np.array(list(combinations(range(NUM_ROWS), size)))
    # Blocks run over the table as `make_table` shuffles it.
    from tallbayes.rows.table import SHUFFLE_SEED

    order = np.random.default_rng(SHUFFLE_SEED).permutation(NUM_ROWS)
    return np.array([[order[(s + k) % NUM_ROWS] for k in range(size)] for s in range(NUM_ROWS)])


def batch_errors(truth: Exact, gradient: tb.Plain) -> tuple[np.ndarray, np.ndarray]:
    """eps_a and eps_0 for every batch of the gradient's law."""
    index = batches(gradient.sampling, gradient.batch_size)
    scale = NUM_ROWS / gradient.batch_size
    return (scale * values[index].sum(axis=1) - values.sum() for values in (truth.a, truth.residual))


@cache
def second_moments(truth: Exact, gradient: object, step: float, num_steps: int) -> np.ndarray:
    """E v_k^2 for k = 0..num_steps from v_0 = 0; E v_k = 0, since batch errors have mean 0 given v."""
    if isinstance(gradient, tb.Blend):
        return _by_quadrature(truth, gradient, step, num_steps)
    contraction, added = (1 - step * truth.precision) ** 2, 2 * step
    if isinstance(gradient, tb.ControlVariate | tb.Plain):
        slope_error, level_error = batch_errors(truth, gradient)
        contraction += step**2 * np.mean(slope_error**2)
        if isinstance(gradient, tb.Plain):
            added += step**2 * np.mean(level_error**2)
    moments = [0.0]
    for _ in range(num_steps):
        moments.append(contraction * moments[-1] + added)
    return np.array(moments)


def _by_quadrature(truth: Exact, gradient: tb.Blend, step: float, num_steps: int) -> np.ndarray:
    """Push the density of v through the step on a grid; the batch is summed over, the noise integrated."""
    grid = np.linspace(-1, 1, 401) * 12 / np.sqrt(truth.precision)
    width = grid[1] - grid[0]
    square = truth.precision * grid**2 / (2.0 if gradient.radius is None else gradient.radius) ** 2
    weight = 1 / (1 + square**2)
    # The order within a batch does not matter: equal errors are pushed forward once, with their weight.
    errors, chance = np.unique(np.round(np.stack(list(batch_errors(truth, gradient))), 9), axis=1, return_counts=True)
    slope_error, level_error = errors
    offset = level_error[:, None] * (1 - weight) if gradient.partner is tb.Plain else 0.0
    drift = -truth.precision * grid + offset - slope_error[:, None] * (1 - weight) * grid
    centres = grid + step * drift
    kernel = np.zeros((grid.size, grid.size))
    for centre, weight_of in zip(centres, chance / chance.sum(), strict=True):
        kernel += weight_of * np.exp(-((grid[:, None] - centre) ** 2) / (4 * step))
    kernel *= width / np.sqrt(4 * np.pi * step)
    density = np.exp(-(grid**2) / (4 * step)) / np.sqrt(4 * np.pi * step)
    moments = [0.0, np.sum(grid**2 * density) * width]
    for _ in range(num_steps - 1):
        density = kernel @ density
        moments.append(np.sum(grid**2 * density) * width)
    return np.array(moments)
