"""Problems that the tests share: small, fixed by their seeds, with known answers where there are any."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tallbayes as tb

PAPER_THETA = (0.7, 0.9, -0.1)


def by_ladder(*question: Any, **options: Any) -> tb.Result:
    """`tb.estimate` by the ladder, also of tables so small that draws with weights would answer."""
    return tb.estimate(*question, **{"method": tb.Anchored(), **options})


def fit_by_ladder(*question: Any, **options: Any) -> tb.Result:
    return tb.fit(*question, **{"method": tb.Anchored(), **options})


def paper_rows(num_rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    """The paper's logistic problem: covariates N(0, 1), N(0, 1), 1."""
    return logistic_rows(num_rows, PAPER_THETA, seed)


def logistic_rows(num_rows: int, theta: tuple[float, ...], seed: int = 0) -> dict[str, np.ndarray]:
    """Gaussian covariates and a last column of ones, y ~ Bernoulli(1 / (1 + exp(-x . theta)))."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.standard_normal((num_rows, len(theta) - 1)), np.ones(num_rows)])
    y = rng.random(num_rows) < 1 / (1 + np.exp(-x @ np.array(theta)))
    return {"x": x, "y": y.astype(float)}


def gaussian_rows(num_rows: int, num_columns: int, noise_scale: float, seed: int = 0) -> dict[str, np.ndarray]:
    """Linear regression on correlated covariates."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_rows, num_columns)) @ (np.eye(num_columns) + 0.3)
    theta = rng.standard_normal(num_columns)
    return {"x": x, "y": x @ theta + noise_scale * rng.standard_normal(num_rows)}


def gaussian_posterior(
    rows: dict[str, np.ndarray], noise_scale: float, prior_scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and precision of the exact posterior of `gaussian_rows`."""
    x, y = (rows[name].astype(np.float64) for name in ("x", "y"))
    precision = x.T @ x / noise_scale**2 + np.eye(x.shape[1]) / prior_scale**2
    return np.linalg.solve(precision, x.T @ y / noise_scale**2), precision


def logistic_by_hand(num_columns: int, prior_scale: float = 1.0) -> tb.Model:
    """`families.logistic` as its owner would write it, without the cheap form by linear predictor."""

    def log_likelihood(theta: Any, row: Any) -> Any:
        eta = row["x"] @ theta
        return row["y"] * eta - jax.nn.softplus(eta)

    return tb.Model(
        log_prior=lambda theta: -0.5 * jnp.sum((theta / prior_scale) ** 2),
        log_likelihood=log_likelihood,
        initial=np.zeros(num_columns),
    )
