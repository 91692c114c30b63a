"""The paper's problem: logistic regression, three coefficients, prior N(0, I), g = |theta - theta_0|^2.

The reference for E g is Gauss-Hermite quadrature about the mode, found here by its own Newton in NumPy; it shares
no code with the library.
"""

from __future__ import annotations

from functools import cache

import numpy as np

import tallbayes as tb

MODEL = tb.families.logistic(prior_scale=1.0)


@cache
def rows(num_rows: int = 1000, seed: int = 1) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=(num_rows, 2)), np.ones(num_rows)])
    chance = 1 / (1 + np.exp(-x @ np.array([0.7, 0.9, -0.1])))
    return {"x": x, "y": (rng.random(num_rows) < chance).astype(float)}


@cache
def mode_and_hessian(num_rows: int = 1000, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """theta_0 and H by Newton."""
    data = rows(num_rows, seed)
    x, y = data["x"], data["y"]
    theta = np.zeros(3)
    for _ in range(30):
        chance = 1 / (1 + np.exp(-x @ theta))
        hessian = x.T @ ((chance * (1 - chance))[:, None] * x) + np.eye(3)
        theta = theta + np.linalg.solve(hessian, x.T @ (y - chance) - theta)
    return theta, hessian


def distance(mode: np.ndarray):
    """g, with the mode as a constant of its own."""
    import jax.numpy as jnp

    return lambda theta: jnp.sum((theta - mode) ** 2)


def expected_distance(num_rows: int = 1000, seed: int = 1, nodes: int = 24) -> float:
    """E g by product quadrature in whitened coordinates."""
    data = rows(num_rows, seed)
    mode, hessian = mode_and_hessian(num_rows, seed)
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    points = np.stack(np.meshgrid(z, z, z, indexing="ij"), axis=-1).reshape(-1, 3)
    weights = (w[:, None, None] * w[None, :, None] * w[None, None, :]).ravel()
    moves = np.linalg.solve(np.linalg.cholesky(hessian).T, points.T).T
    log_density = np.empty(len(points))
    for part in np.array_split(np.arange(len(points)), 16):
        theta = mode + moves[part]
        eta = theta @ data["x"].T
        log_density[part] = eta @ data["y"] - np.logaddexp(0, eta).sum(axis=1) - 0.5 * np.sum(theta**2, axis=1)
    ratio = weights * np.exp(log_density - log_density.max() + 0.5 * np.sum(points**2, axis=1))
    return float(np.sum(ratio * np.sum(moves**2, axis=1)) / np.sum(ratio))
