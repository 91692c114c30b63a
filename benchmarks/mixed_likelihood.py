"""The marginal likelihood of grouped rows, for many parameters at once, with the moments of every effect.

    log p_g = log integral N(u; 0, I) exp(sum_{i in g} l(y_i; x_i' beta + z_i' L u)) du,     b_g = L u

Logistic and Poisson rows: u_hat by Newton, damped, for every group and every parameter, with the curvature there,
S S' = (I + sum_i w_i a_i a_i')^-1, a_i = L' z_i, w_i = -l''; then nodes u_k = u_hat + S x_k of the Gauss-Hermite rule
with weights v_k,

    p_g = |S| sum_k v_k exp(|x_k|^2 / 2 - |u_k|^2 / 2 + sum_i l(y_i; x_i' beta + a_i' u_k)).

Linear rows: y_g is Gaussian, and sums over the rows of a group are all that is read of them. An array over
(parameters, rows) is the largest there is; parameters come in tiles of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import expit, gammaln

TILE_ENTRIES = 1 << 16
CLOSE = 1e-3
MOST_STEPS = 100
Triple = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Logistic:
    """l = -log(1 + exp(-s eta)), s = 1 for y = 1 and -1 for y = 0."""

    def value(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        signed = (2 * y - 1) * eta
        return np.minimum(signed, 0) - np.log(1 + np.exp(-np.abs(signed)))

    def derivatives(self, eta: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        p = expit(eta)
        return y - p, p * (1 - p)

    def constant(self, y: np.ndarray) -> float:
        return 0.0


@dataclass(frozen=True)
class Poisson:
    """l = y eta - exp(eta) - log y!, the last kept apart."""

    def value(self, eta: np.ndarray, y: np.ndarray) -> np.ndarray:
        return y * eta - np.exp(eta)

    def derivatives(self, eta: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rate = np.exp(eta)
        return y - rate, rate

    def constant(self, y: np.ndarray) -> float:
        return -float(np.sum(gammaln(y + 1)))


FAMILIES = {"logistic": Logistic(), "poisson": Poisson()}


@cache
def hermite(nodes: int, q: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Points of a product rule for N(0, I) in q dimensions, and log(v_k) + |x_k|^2 / 2."""
    points, weights = hermegauss(nodes)
    logs = np.log(weights / np.sqrt(2 * np.pi)) + points**2 / 2
    places = list(product(range(nodes), repeat=q))
    return [points[list(place)] for place in places], np.array([logs[list(place)].sum() for place in places])


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Rows sorted by group: x (rows, p), z (rows, q), y, and where each group starts."""

    family: str
    coefficients: tuple[str, ...]
    effects: tuple[str, ...]
    levels: tuple[str, ...]
    x: np.ndarray
    z: np.ndarray
    y: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    sums: dict[str, np.ndarray] = field(default_factory=dict)

    @staticmethod
    def of_rows(
        family: str, columns: Mapping[str, np.ndarray], effects: Sequence[str], group: np.ndarray, y: np.ndarray
    ) -> Likelihood:
        """From the columns of the fixed effects; those of `effects` vary by group."""
        levels, codes, sizes = np.unique(group, return_inverse=True, return_counts=True)
        order = np.argsort(codes, kind="stable")
        x = np.column_stack(list(columns.values())).astype(float)[order]
        z = np.column_stack([columns[name] for name in effects]).astype(float)[order]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        made = Likelihood(
            family, tuple(columns), tuple(effects), tuple(map(str, levels)), x, z, y.astype(float)[order], starts, sizes
        )
        if family == "linear":
            made.sums.update(made._products())
        return made

    @property
    def noisy(self) -> bool:
        return self.family == "linear"

    def evaluate(self, beta: np.ndarray, root: np.ndarray, sigma: np.ndarray, nodes: int) -> Triple:
        """log likelihood (parameters,), E[b | phi] and E[b^2 | phi] (parameters, groups, q)."""
        entries = len(self.levels) * 8 if self.noisy else len(self.y)
        tile = max(1, TILE_ENTRIES // entries)
        found = [
            self._linear(beta[cut], root[cut], sigma[cut]) if self.noisy else self._nodes(beta[cut], root[cut], nodes)
            for cut in tiles(len(beta), tile)
        ]
        value, first, second = (np.concatenate(each) for each in zip(*found, strict=True))
        return value, first, second

    def _by_group(self, rows: np.ndarray) -> np.ndarray:
        return np.add.reduceat(rows, self.starts, axis=1)

    def _by_row(self, groups: np.ndarray) -> np.ndarray:
        return np.repeat(groups, self.sizes, axis=1)

    def _predictor(self, base: np.ndarray, a: list[np.ndarray], u: np.ndarray) -> np.ndarray:
        eta = base.copy()
        for column, each in enumerate(a):
            eta += each * self._by_row(u[..., column])
        return eta

    def _nodes(self, beta: np.ndarray, root: np.ndarray, nodes: int) -> Triple:
        """By quadrature about u_hat."""
        family, q = FAMILIES[self.family], len(self.effects)
        base = beta @ self.x.T
        loadings = np.einsum("ij,mjk->kmi", self.z, root)
        a = list(loadings)
        centre, curvature = self._modes(family, base, a)
        spread = np.swapaxes(np.linalg.inv(np.linalg.cholesky(curvature)), -1, -2)
        points, logs = hermite(nodes, q)
        terms = np.empty((len(points), *centre.shape[:2]))
        at = np.empty((len(points), *centre.shape))
        for k, point in enumerate(points):
            u = at[k] = centre + spread @ point
            rows = family.value(self._predictor(base, a, u), self.y)
            terms[k] = logs[k] - 0.5 * np.sum(u**2, axis=-1) + self._by_group(rows)
        top = terms.max(axis=0)
        weights = np.exp(terms - top)
        whole = weights.sum(axis=0)
        determinant = np.log(np.abs(np.linalg.det(spread)))
        value = np.sum(top + np.log(whole) + determinant, axis=1) + family.constant(self.y)
        b = np.einsum("mjk,nmgk->nmgj", root, at)
        share = (weights / whole)[..., None]
        return value, np.sum(share * b, axis=0), np.sum(share * b**2, axis=0)

    def _modes(self, family: Any, base: np.ndarray, a: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """u_hat and I + sum_i w_i a_i a_i' of every group; a step that lowers the density is halved."""
        q = len(a)
        settled = np.zeros((len(base), len(self.levels), q))
        trial, best = settled, np.full(settled.shape[:2], -np.inf)
        for _ in range(MOST_STEPS):
            eta = self._predictor(base, a, trial)
            value = self._by_group(family.value(eta, self.y)) - 0.5 * np.sum(trial**2, axis=-1)
            slope, weight = family.derivatives(eta, self.y)
            gradient = np.stack([self._by_group(each * slope) for each in a], axis=-1) - trial
            curvature = np.empty((*value.shape, q, q))
            for i, j in product(range(q), repeat=2):
                curvature[..., i, j] = (i == j) + self._by_group(a[i] * a[j] * weight)
            step = np.linalg.solve(curvature, gradient[..., None])[..., 0]
            better = value >= best - 1e-9 * (1 + np.abs(value))
            if np.all(better) and np.max(np.abs(step)) < CLOSE:
                return trial, curvature
            settled = np.where(better[..., None], trial, settled)
            best = np.where(better, value, best)
            trial = np.where(better[..., None], trial + step, (trial + settled) / 2)
        raise ArithmeticError(f"expected the modes of effects within {MOST_STEPS} steps of Newton's method")

    def _products(self) -> dict[str, np.ndarray]:
        """Sums of z z', z x', z y, x x', x y and y y over the rows of every group."""
        columns = {"x": self.x, "z": self.z, "y": self.y[:, None]}
        return {
            a + b: np.add.reduceat(columns[a][:, :, None] * columns[b][:, None, :], self.starts, axis=0)
            for a, b in ("zz", "zx", "zy", "xx", "xy", "yy")
        }

    def _linear(self, beta: np.ndarray, root: np.ndarray, sigma: np.ndarray) -> Triple:
        """In closed form: u given y_g is Gaussian with precision I + L' Z'Z L / sigma^2."""
        sums, q = self.sums, len(self.effects)
        precision = (1 / sigma**2)[:, None]
        xx, xy, yy = (sums[each].sum(axis=0) for each in ("xx", "xy", "yy"))
        residual = yy[0, 0] - 2 * beta @ xy[:, 0] + np.einsum("mi,ij,mj->m", beta, xx, beta)
        score = sums["zy"][None, :, :, 0] - np.einsum("gip,mp->mgi", sums["zx"], beta)
        pulled = np.einsum("mij,mgi->mgj", root, score) * precision[..., None]
        inner = np.einsum("mij,gik,mkl->mgjl", root, sums["zz"], root, optimize=True)
        curvature = np.eye(q) + inner * precision[..., None, None]
        u = np.linalg.solve(curvature, pulled[..., None])[..., 0]
        value = 0.5 * np.sum(np.sum(u * pulled, axis=-1) - np.log(np.linalg.det(curvature)), axis=1)
        value -= 0.5 * residual / sigma**2 + 0.5 * len(self.y) * np.log(2 * np.pi * sigma**2)
        b = np.einsum("mij,mgj->mgi", root, u)
        spread = np.einsum("mij,mgjk,mik->mgi", root, np.linalg.inv(curvature), root, optimize=True)
        return value, b, b**2 + spread


def tiles(count: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, count, size))
