"""Chains: a symmetric matrix of blocks beside each other in time, of which each has links to the next one alone.

    H = [[D_1, C_1^T], [C_1, D_2, C_2^T], ...],   D_t (b, b),   C_t (b, b) from block t to block t + 1

as strengths have that walk at random from week to week, whatever else they share within a week. With H = L L^T,

    L_tt L_tt^T = D_t - F_{t-1} F_{t-1}^T,   F_t = C_t L_tt^-T,   M_t = L_tt^-1,   W = L^-T
    W z:   v_t = M_t^T (z_t - F_t^T v_{t+1}),   W^T g:   w_t = M_t (g_t - F_{t-1} w_{t-1})
    diag H^-1 from S_t = M_t^T (I + F_t^T S_{t+1} F_t) M_t,   log det H = -2 sum_t log det M_t

in O(T b^3) once and O(T b^2) a vector. `order` says where in theta the places of the chain
are, block by block, and `places` where in the chain those of theta are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tallbayes.gaussian.extremes import curvatures_between
from tallbayes.moments import Floats
from tallbayes.programs.later import jax

LARGEST_WHOLE = 4_000


@dataclass(frozen=True, eq=False)
class Chain:
    """D (T, b, b) and C (T - 1, b, b); sums, differences and multiples are of the parts."""

    order: Any
    places: Any
    diagonals_of_blocks: Any
    links: Any

    @classmethod
    def of(cls, order: Any, diagonals: Any, links: Any) -> Chain:
        return cls(order, np.argsort(order), diagonals, links)

    # NumPy's arrays on the left leave the product to this class.
    __array_ufunc__ = None

    @property
    def size(self) -> int:
        return len(self.order)

    def split(self, vector: Any) -> Any:
        """By block and place: (..., T, b)."""
        return vector[..., self.order].reshape(*vector.shape[:-1], *self.diagonals_of_blocks.shape[:2])

    def joined(self, blocks: Any) -> Any:
        return blocks.reshape(*blocks.shape[:-2], self.size)[..., self.places]

    def times(self, vector: Any) -> Any:
        """The product with vectors along the last axis."""
        xp, x = vector.__array_namespace__(), self.split(vector)
        own = xp.einsum("tij,...tj->...ti", self.diagonals_of_blocks, x)
        onward = xp.einsum("tij,...tj->...ti", self.links, x[..., :-1, :])
        back = xp.einsum("tji,...tj->...ti", self.links, x[..., 1:, :])
        none = xp.zeros_like(x[..., :1, :])
        return self.joined(own + xp.concat([none, onward], axis=-2) + xp.concat([back, none], axis=-2))

    def __matmul__(self, vector: Any) -> Any:
        return self.times(vector)

    __rmatmul__ = __matmul__

    def __add__(self, other: Chain) -> Chain:
        own, links = self.diagonals_of_blocks + other.diagonals_of_blocks, self.links + other.links
        return replace(self, diagonals_of_blocks=own, links=links)

    def __sub__(self, other: Chain) -> Chain:
        return self + -other

    def __neg__(self) -> Chain:
        return self * -1.0

    def __mul__(self, factor: Any) -> Chain:
        return replace(self, diagonals_of_blocks=factor * self.diagonals_of_blocks, links=factor * self.links)

    __rmul__ = __mul__

    @property
    def diagonals(self) -> Any:
        """Of the whole matrix."""
        xp = self.diagonals_of_blocks.__array_namespace__()
        return self.joined(xp.einsum("tii->ti", self.diagonals_of_blocks))

    def whole(self) -> Floats:
        """Every number of a small one."""
        if self.size > LARGEST_WHOLE:
            raise MemoryError(f"a chain of {self.size:,} rows is not written out")
        return np.asarray(self.times(np.eye(self.size)))


@dataclass(frozen=True, eq=False)
class ChainWhitening:
    """W of a chain H: M and F."""

    precision: Chain
    inverses: Any
    onward: Any

    @classmethod
    def of(cls, precision: Chain, inverses: Floats | None = None) -> ChainWhitening:
        """With M given, since another number of threads may round it otherwise; a LinAlgError where H is not positive
        definite."""
        if inverses is not None:
            onward = [link @ inverse.T for link, inverse in zip(precision.links, inverses, strict=False)]
            return cls(precision, inverses, np.stack(onward) if onward else np.zeros_like(precision.links))
        found: list[Floats] = []
        links: list[Floats] = []
        one = np.eye(len(precision.diagonals_of_blocks[0]))
        for t, own in enumerate(precision.diagonals_of_blocks):
            taken = links[-1] @ links[-1].T if links else 0.0
            found.append(np.linalg.solve(np.linalg.cholesky(own - taken), one))
            if t < len(precision.links):
                links.append(precision.links[t] @ found[-1].T)
        return cls(precision, np.stack(found), np.stack(links) if links else np.zeros_like(precision.links))

    def move(self, z: Any) -> Any:
        def step(after: Any, here: Any) -> Any:
            own, inverse, link = here
            return (own - after @ link) @ inverse

        return self.precision.joined(_sweep(step, self.precision.split(z), self.inverses, self._links(last=True), True))

    def pull_back(self, gradient: Any) -> Any:
        def step(before: Any, here: Any) -> Any:
            own, inverse, link = here
            return (own - before @ link.T) @ inverse.T

        blocks = self.precision.split(gradient)
        return self.precision.joined(_sweep(step, blocks, self.inverses, self._links(last=False), False))

    def _links(self, last: bool) -> Any:
        """F by block, none at the end that has none."""
        xp = self.onward.__array_namespace__()
        none = xp.zeros_like(self.inverses[:1])
        return xp.concat([self.onward, none] if last else [none, self.onward], axis=0)

    def times(self, displacement: Any) -> Any:
        return self.precision.times(displacement)

    @cached_property
    def variances(self) -> Any:
        found, after = [], None
        one = np.eye(self.inverses.shape[-1])
        for t in range(len(self.inverses) - 1, -1, -1):
            inverse = np.asarray(self.inverses[t], np.float64)
            beyond = 0.0 if after is None else self.onward[t].T @ after @ self.onward[t]
            after = inverse.T @ (one + beyond) @ inverse
            found.append(np.diag(after))
        return self.precision.joined(np.stack(found[::-1]))

    @property
    def log_det(self) -> float:
        return float(-2 * np.sum(np.log(np.einsum("tii->ti", self.inverses))))

    @cached_property
    def curvatures(self) -> Floats:
        return curvatures_between(self, self.precision.diagonals)


def _sweep(step: Callable[[Any, Any], Any], blocks: Any, inverses: Any, links: Any, reverse: bool) -> Any:
    """From block to block: by a loop of NumPy's, or by one that is compiled."""
    first = 0 * blocks[..., 0, :]
    if isinstance(blocks, np.ndarray):
        found, length = np.empty_like(blocks), blocks.shape[-2]
        for t in range(length)[:: -1 if reverse else 1]:
            first = found[..., t, :] = step(first, (blocks[..., t, :], inverses[t], links[t]))
        return found
    xp = blocks.__array_namespace__()

    def body(carry: Any, here: Any) -> Any:
        carry = step(carry, here)
        return carry, carry

    along = xp.moveaxis(blocks, -2, 0), inverses, links
    return xp.moveaxis(jax.lax.scan(body, first, along, reverse=reverse)[1], 0, -2)
