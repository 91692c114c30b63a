"""Exact leave-one-out of few parameters, by the trapezoidal rule and SciPy's own densities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp

REACH, POINTS = 8.0, 41
# Of a group's effect in its own sds.
EFFECT = np.linspace(-9, 9, 721)


def exact_loo(
    log_prior: Callable[[Any], Any],
    log_p: Callable[[Any], Any],
    start: np.ndarray,
    total: Callable[[Any], Any] | None = None,
) -> np.ndarray:
    """log p(y_i | y_-i) of every row, of functions of points (points, d); log p is (points, rows), that of a row given
    theta and all other rows, and `total` log p of all rows, where that is not its sum."""

    def likelihood(theta: np.ndarray) -> Any:
        return log_p(theta).sum(axis=1) if total is None else total(theta)

    def cost(theta: np.ndarray) -> float:
        return -float(log_prior(theta[None])[0] + likelihood(theta[None])[0])

    found = minimize(cost, start, method="BFGS")
    centre, root = found.x, np.linalg.cholesky((found.hess_inv + found.hess_inv.T) / 2)
    axis = np.linspace(-REACH, REACH, POINTS)
    z = np.stack(np.meshgrid(*[axis] * len(start), indexing="ij"), axis=-1).reshape(-1, len(start))
    # Each grid goes by the moments that the one before has found.
    for _ in range(3):
        theta = centre + z @ root.T
        whole = log_prior(theta) + likelihood(theta)
        weights = np.exp(whole - whole.max())
        centre, root = weights @ theta / weights.sum(), np.linalg.cholesky(np.cov(theta.T, aweights=weights))
    return np.asarray(logsumexp(whole) - logsumexp(whole[:, None] - log_p(theta), axis=0))


class PoissonByGroup:
    """Counts with an intercept by group, b and log tau: integrals over effects by an even grid of their sds."""

    def __init__(self, y: np.ndarray, group: np.ndarray) -> None:
        self.y, self.group = y, group

    def _one(self, theta: Any) -> tuple[Any, Any]:
        """log p of every group, and of each row given the others of its group."""
        eta = theta[0] + np.exp(theta[1]) * EFFECT
        rows = self.y[:, None] * eta - np.exp(eta) - gammaln(self.y + 1)[:, None]
        joint = np.zeros((self.group.max() + 1, len(EFFECT))) + self._law
        np.add.at(joint, self.group, rows)
        groups = logsumexp(joint, axis=1)
        return groups, groups[self.group] - logsumexp(joint[self.group] - rows, axis=1)

    @property
    def _law(self) -> Any:
        return -0.5 * EFFECT**2 - 0.5 * np.log(2 * np.pi) + np.log(EFFECT[1] - EFFECT[0])

    def total(self, theta: Any) -> Any:
        return self.groups(theta).sum(axis=1)

    def groups(self, theta: Any) -> Any:
        return np.array([self._one(each)[0] for each in theta])

    def rows(self, theta: Any) -> Any:
        return np.array([self._one(each)[1] for each in theta])


def log_prior_by_group(theta: Any) -> Any:
    """b ~ N(0, 10^2), tau half-normal, and its Jacobian."""
    return -0.5 * (theta[:, 0] / 10) ** 2 - 0.5 * np.exp(2 * theta[:, 1]) + theta[:, 1]
