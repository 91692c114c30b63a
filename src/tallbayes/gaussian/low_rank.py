"""Low rank plus diagonal: what a few products with a matrix show of it, where it is too large to be written out.

    H ~ S (I + Q (diag(s) - I) Q^T) S,   S^2 the diagonal,   Q (d, k) orthonormal,   s > 0
    W = S^-1 (I + Q (diag(s)^-1/2 - I) Q^T),   log det H = 2 sum log S + sum log s

Q and s are the eigenvectors of S^-1 H S^-1 that are farthest from 1, on either side, as a sketch of its products with
k random vectors and with what they become has them. What a sketch misses stays in the drift.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tallbayes.gaussian.extremes import curvatures_between
from tallbayes.moments import Floats

# Beyond the rank asked for; and an eigenvalue below is none that a Gaussian has.
SPARE, LEAST = 8, 1e-3


@dataclass(frozen=True, eq=False)
class LowRank:
    """H by S, Q and s."""

    scale: Any
    lines: Any
    sizes: Any

    __array_ufunc__ = None

    @property
    def size(self) -> int:
        return len(self.scale)

    def times(self, vector: Any) -> Any:
        return self.scale * self._stretched(self.scale * vector, self.sizes - 1)

    def __matmul__(self, vector: Any) -> Any:
        return self.times(vector)

    __rmatmul__ = __matmul__

    def _stretched(self, vector: Any, by: Any) -> Any:
        return vector + ((vector @ self.lines) * by) @ self.lines.T

    @property
    def diagonals(self) -> Any:
        """Of the whole matrix."""
        return self.scale**2 * (1 + (self.lines**2) @ (self.sizes - 1))


@dataclass(frozen=True, eq=False)
class LowRankWhitening:
    """W of such an H."""

    precision: LowRank

    @property
    def _less(self) -> Any:
        return self.precision.sizes**-0.5 - 1

    def move(self, z: Any) -> Any:
        return self.precision._stretched(z, self._less) / self.precision.scale

    def pull_back(self, gradient: Any) -> Any:
        return self.precision._stretched(gradient / self.precision.scale, self._less)

    def times(self, displacement: Any) -> Any:
        return self.precision.times(displacement)

    @property
    def variances(self) -> Any:
        own = 1 + (self.precision.lines**2) @ (1 / self.precision.sizes - 1)
        return own / self.precision.scale**2

    @property
    def log_det(self) -> float:
        return float(2 * np.sum(np.log(self.precision.scale)) + np.sum(np.log(self.precision.sizes)))

    @cached_property
    def curvatures(self) -> Floats:
        return curvatures_between(self, self.precision.diagonals)


def sketched(times: Callable[[Floats], Floats], diagonal: Floats, rank: int, rounds: int = 2, seed: int = 0) -> LowRank:
    """From products H v of vectors along the last axis, `rounds` and one times rank + 8 of them."""
    scale, count = np.sqrt(diagonal), min(rank + SPARE, len(diagonal))

    def beyond(lines: Floats) -> Floats:
        """(S^-1 H S^-1 - I) Q."""
        return (times(lines.T / scale) / scale).T - lines

    lines = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(diagonal), count)))[0]
    for _ in range(rounds):
        lines = np.linalg.qr(beyond(lines))[0]
    inner = lines.T @ beyond(lines)
    values, turns = np.linalg.eigh((inner + inner.T) / 2)
    kept = np.argsort(-np.abs(np.log(np.maximum(1 + values, LEAST))))[: min(rank, count)]
    return LowRank(scale, lines @ turns[:, kept], np.maximum(1 + values[kept], LEAST))
