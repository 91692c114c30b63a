"""The paper's problem: logistic regression with three coefficients, prior N(0, I), g = |theta - theta_0|^2.

    covariates N(0, 1), N(0, 1), 1;   theta_true = (0.7, 0.9, -0.1);   n = ceil(N^(1/3));   T_l = m (l + 1) h_0

The reference for E g is Gauss-Hermite quadrature about the mode. It is NumPy alone and shares no code with the
sampler: its Newton is its own, and its error is the change from 16 to 24 nodes a dimension.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from tallbayes.moments import Floats

TRUTH = (0.7, 0.9, -0.1)
DATA_SEED = 1


@dataclass(frozen=True, eq=False)
class PaperRows:
    """A data set with its mode and Hessian."""

    x: Floats
    y: Floats
    mode: Floats
    hessian: Floats

    @property
    def data(self) -> dict[str, Floats]:
        return {"x": self.x, "y": self.y}

    @property
    def num_rows(self) -> int:
        return len(self.y)

    @property
    def slowest(self) -> float:
        """lambda_min(H) / N."""
        return float(np.linalg.eigvalsh(self.hessian)[0] / len(self.y))


@cache
def make_rows(num_rows: int, seed: int = DATA_SEED, spread: float = 1.0) -> PaperRows:
    """A simulated data set; `spread` < 1 narrows the second covariate, which slows contraction down."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([rng.normal(size=(num_rows, 2)), np.ones(num_rows)])
    x[:, 1] *= spread
    y = (rng.random(num_rows) < _sigmoid(x @ np.array(TRUTH))).astype(float)
    mode, hessian = _newton(x, y)
    return PaperRows(x, y, mode, hessian)


def batch_size(num_rows: int) -> int:
    """n = ceil(N^(1/3)), safe from the rounding of perfect cubes."""
    return int(np.ceil(num_rows ** (1 / 3) - 1e-9))


@dataclass(frozen=True)
class Reference:
    """E g and a bound on its error."""

    value: float
    error: float


@cache
def reference(num_rows: int, seed: int = DATA_SEED, spread: float = 1.0) -> Reference:
    """E g by quadrature with 24 nodes a dimension."""
    rows = make_rows(num_rows, seed, spread)
    fine, coarse = expected_distance(rows, 24), expected_distance(rows, 16)
    return Reference(fine, abs(fine - coarse) + 1e-12 * fine)


def expected_distance(rows: PaperRows, nodes: int) -> float:
    """E |theta - theta_0|^2 by product quadrature in whitened coordinates."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    points = np.stack(np.meshgrid(z, z, z, indexing="ij"), axis=-1).reshape(-1, 3)
    weights = np.einsum("i,j,k->ijk", w, w, w).ravel()
    moves = np.linalg.solve(np.linalg.cholesky(rows.hessian).T, points.T).T
    log_density = np.concatenate([_log_density(rows, part) for part in np.array_split(rows.mode + moves, 64)])
    ratio = weights * np.exp(log_density - log_density.max() + 0.5 * np.sum(points**2, axis=1))
    return float(np.sum(ratio * np.sum(moves**2, axis=1)) / np.sum(ratio))


def _log_density(rows: PaperRows, theta: Floats) -> Floats:
    eta = theta @ rows.x.T
    return eta @ rows.y - np.logaddexp(0, eta).sum(axis=1) - 0.5 * np.sum(theta**2, axis=1)


def _newton(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    theta = np.zeros(x.shape[1])
    for _ in range(50):
        chance = _sigmoid(x @ theta)
        hessian = x.T @ ((chance * (1 - chance))[:, None] * x) + np.eye(len(theta))
        theta = theta + np.linalg.solve(hessian, x.T @ (y - chance) - theta)
    return theta, hessian


def _sigmoid(eta: Floats) -> Floats:
    return 1 / (1 + np.exp(-eta))
