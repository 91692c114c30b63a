"""The anchor: the posterior's mode and the Gaussian there (Laplace's approximation), as plain numbers.

    theta_0 = argmax log pi(theta | X),   H = -Hessian of log pi(. | X) at theta_0,   N(theta_0, H^-1)

The mode need not be exact to the last digit: its likelihood gradient G(theta_0) stays in every drift.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallbayes.moments import Floats


@dataclass(frozen=True, eq=False)
class Anchor:
    """What every path is expanded about; plain float64 arrays, reusable for the same model and data."""

    mode: Floats
    likelihood_gradient: Floats
    likelihood_hessian: Floats
    precision: Floats
    log_density: float
    passes: int
    num_rows: int

    @cached_property
    def factor(self) -> Floats:
        """Lower Cholesky factor of H."""
        return np.linalg.cholesky(self.precision)

    @cached_property
    def covariance(self) -> Floats:
        """H^-1."""
        inverse = np.linalg.inv(self.factor)
        return inverse.T @ inverse

    @cached_property
    def sd(self) -> Floats:
        """Laplace's standard deviation of every parameter."""
        return np.sqrt(np.diag(self.covariance))

    @cached_property
    def curvatures(self) -> Floats:
        """Eigenvalues of H, ascending: the contraction rates of the Langevin equation near the mode."""
        return np.linalg.eigvalsh(self.precision)

    def draws(self, count: int, seed: int = 0) -> Floats:
        """Displacements theta - theta_0 drawn from N(0, H^-1)."""
        z = np.random.default_rng(seed).standard_normal((count, len(self.mode)))
        return np.linalg.solve(self.factor.T, z.T).T
