"""Arrowheads: a symmetric matrix that is diagonal but for a few rows and columns, and its whitening.

    H = [[D, B], [B^T, A]],   D (k) a diagonal,   B (k, m) the limbs,   A (m, m) the corner,   S = A - B^T D^-1 B

The levels of a category never meet in a row, so their block is D; the intercept, columns and other categories are the
corner. Eliminating D first costs O(k m) in place of O((k + m)^2), and nothing of H is lost. With R R^T = S^-1,

    W z = (D^-1/2 z_1 - D^-1 B v_2, v_2),  v_2 = R z_2,   W^T g = (D^-1/2 g_1, R^T (g_2 - B^T D^-1 g_1))
    H^-1 = [[D^-1 + P S^-1 P^T, -P S^-1], [-S^-1 P^T, S^-1]],  P = D^-1 B,   log det H = log det D + log det S

The k places are a run of theta that begins at `first`; the m others keep their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tallbayes.moments import Floats

LARGEST_WHOLE = 4_000


@dataclass(frozen=True, eq=False)
class Arrowhead:
    """[[D, B], [B^T, A]] by its parts; sums, differences and multiples are of the parts."""

    first: int
    diagonal: Any
    limbs: Any
    corner: Any

    # NumPy's arrays on the left leave the product to this class.
    __array_ufunc__ = None

    @property
    def size(self) -> int:
        return sum(self.limbs.shape)

    def split(self, vector: Any) -> tuple[Any, Any]:
        """What belongs to the diagonal and what to the corner, along the last axis."""
        last = self.first + len(self.diagonal)
        rest = vector.__array_namespace__().concat([vector[..., : self.first], vector[..., last:]], axis=-1)
        return vector[..., self.first : last], rest

    def joined(self, arms: Any, rest: Any) -> Any:
        parts = [rest[..., : self.first], arms, rest[..., self.first :]]
        return arms.__array_namespace__().concat(parts, axis=-1)

    def times(self, vector: Any) -> Any:
        """The product with vectors along the last axis."""
        arms, rest = self.split(vector)
        across = self.limbs @ rest if rest.ndim == 1 else rest @ self.limbs.T
        return self.joined(self.diagonal * arms + across, arms @ self.limbs + rest @ self.corner)

    def __matmul__(self, vector: Any) -> Any:
        return self.times(vector)

    __rmatmul__ = __matmul__

    def __add__(self, other: Arrowhead) -> Arrowhead:
        parts = zip(self.parts, other.parts, strict=True)
        return Arrowhead(self.first, *(one + another for one, another in parts))

    def __sub__(self, other: Arrowhead) -> Arrowhead:
        return self + -other

    def __neg__(self) -> Arrowhead:
        return self * -1.0

    def __mul__(self, factor: Any) -> Arrowhead:
        return Arrowhead(self.first, *(factor * part for part in self.parts))

    __rmul__ = __mul__

    @property
    def parts(self) -> tuple[Any, Any, Any]:
        return self.diagonal, self.limbs, self.corner

    @property
    def symmetric(self) -> Arrowhead:
        """With a corner that is so to the bit."""
        return Arrowhead(self.first, self.diagonal, self.limbs, (self.corner + self.corner.T) / 2)

    @property
    def diagonals(self) -> Any:
        """Of the whole matrix."""
        return self.joined(self.diagonal, self.corner.__array_namespace__().diagonal(self.corner))

    @property
    def schur(self) -> Any:
        """S, what is left of the corner."""
        return self.corner - self.limbs.T @ (self.limbs / self.diagonal[:, None])

    def whole(self) -> Floats:
        """Every number of a small one."""
        if self.size > LARGEST_WHOLE:
            raise MemoryError(f"an arrowhead of {self.size:,} rows is not written out")
        return np.asarray(self.times(np.eye(self.size)))


def product(hessian: Any, vectors: Floats) -> Floats:
    """H v of vectors along the last axis; H is a matrix, an arrowhead, or a diagonal."""
    if isinstance(hessian, Arrowhead):
        return np.asarray(hessian.times(vectors))
    if hessian.ndim == 1:
        return np.asarray(hessian * vectors)
    return np.asarray(hessian @ vectors if vectors.ndim == 1 else vectors @ hessian)


@dataclass(frozen=True, eq=False)
class ArrowWhitening:
    """W of an arrowhead H: D^-1/2, P, and R."""

    precision: Arrowhead
    narrow: Any
    pulls: Any
    root: Any

    @classmethod
    def of(cls, precision: Arrowhead, root: Floats) -> ArrowWhitening:
        """With R given, since another number of threads may round it otherwise."""
        diagonal = precision.diagonal
        return cls(precision, 1 / np.sqrt(diagonal), precision.limbs / diagonal[:, None], root)

    def move(self, z: Any) -> Any:
        arms, rest = self.precision.split(z)
        rest = self.root @ rest if rest.ndim == 1 else rest @ self.root.T
        across = self.pulls @ rest if rest.ndim == 1 else rest @ self.pulls.T
        return self.precision.joined(self.narrow * arms - across, rest)

    def pull_back(self, gradient: Any) -> Any:
        arms, rest = self.precision.split(gradient)
        return self.precision.joined(self.narrow * arms, (rest - arms @ self.pulls) @ self.root)

    def times(self, displacement: Any) -> Any:
        return self.precision.times(displacement)

    @property
    def variances(self) -> Any:
        arms = self.narrow**2 + ((self.pulls @ self.root) ** 2).sum(axis=1)
        return self.precision.joined(arms, (self.root**2).sum(axis=1))

    @property
    def log_det(self) -> float:
        corner = np.log(np.diag(self.root))
        return float(-2 * (np.sum(np.log(self.narrow)) + np.sum(corner)))

    @cached_property
    def curvatures(self) -> Floats:
        """The ends are eigenvalues; what lies between them is that of the diagonals, which they interlace."""
        if self.precision.size <= LARGEST_WHOLE:
            return np.linalg.eigvalsh(self.precision.whole())
        from scipy.sparse.linalg import LinearOperator, eigsh

        size, start = self.precision.size, np.random.default_rng(0).standard_normal(self.precision.size)
        largest, smallest = (
            eigsh(LinearOperator((size, size), matvec=product), 1, v0=start, tol=1e-6)[0][0]
            for product in (self.times, lambda g: self.move(self.pull_back(g)))
        )
        between = np.sort(self.precision.diagonals)[1:-1]
        return np.concatenate([[1 / smallest], np.clip(between, 1 / smallest, largest), [largest]])
