"""Whitening: theta - theta_0 = W z with W W^T = H^-1, as a role.

    move z -> W z,   pull back g -> W^T g,   times v -> H v

Any W does, since what it misses of the posterior stays in the drift; how much a step costs and how fast paths contract
hangs on it. Vectors lie along the last axis. The arrays are NumPy's or JAX's, and nothing here imports either's
compiler: a saved result is read without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tallbayes.moments import Floats


class Whitening(Protocol):
    """A precision H with a root W of its inverse."""

    @property
    def precision(self) -> Any: ...

    def move(self, z: Any) -> Any:
        """W z."""

    def pull_back(self, gradient: Any) -> Any:
        """W^T grad."""

    def times(self, displacement: Any) -> Any:
        """H v."""

    @property
    def variances(self) -> Any:
        """The diagonal of H^-1."""

    @property
    def log_det(self) -> float:
        """log det H."""

    @property
    def curvatures(self) -> Floats:
        """Eigenvalues of H, ascending."""


@dataclass(frozen=True, eq=False)
class DenseWhitening:
    """A matrix H, and W as a matrix."""

    precision: Any
    root: Any

    def move(self, z: Any) -> Any:
        return self.root @ z if z.ndim == 1 else z @ self.root.T

    def pull_back(self, gradient: Any) -> Any:
        return gradient @ self.root

    def times(self, displacement: Any) -> Any:
        return self.precision @ displacement if displacement.ndim == 1 else displacement @ self.precision

    @property
    def covariance(self) -> Any:
        """H^-1."""
        return self.root @ self.root.T

    @property
    def variances(self) -> Any:
        return (self.root**2).sum(axis=1)

    @property
    def log_det(self) -> float:
        return float(np.linalg.slogdet(self.precision)[1])

    @property
    def curvatures(self) -> Floats:
        return np.linalg.eigvalsh(self.precision)


@dataclass(frozen=True, eq=False)
class Sketch:
    """A few draws v of N(0, H^-1), (k, d), where H^-1 itself would be too large to be multiplied with every row:
    a^T H^-1 b is the mean of (a . v)(b . v), to a part sqrt(2 / k) of itself. `moves` are given displacements,
    `variances` the diagonal of H^-1."""

    draws: Any
    moves: Any
    variances: Any


@dataclass(frozen=True, eq=False)
class DiagonalWhitening:
    """The diagonals of H and of W."""

    precision: Any
    root: Any

    def move(self, z: Any) -> Any:
        return self.root * z

    def pull_back(self, gradient: Any) -> Any:
        return gradient * self.root

    def times(self, displacement: Any) -> Any:
        return self.precision * displacement

    @property
    def variances(self) -> Any:
        return self.root**2

    @property
    def log_det(self) -> float:
        return float(np.sum(np.log(self.precision)))

    @property
    def curvatures(self) -> Floats:
        return np.sort(self.precision)
