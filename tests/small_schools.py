"""Fourteen schools of ten pupils: a mixed logistic regression so small that its posterior is a sum over a grid.

y ~ Bernoulli(logit^-1(a + s x + tau z_g)),   a ~ N(0, 10^2), s ~ N(0, 1), tau half-normal(1), z_g ~ N(0, 1)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import tallbayes as tb

SCHOOLS, PUPILS = 14, 10
FORMULA = "y ~ x + (1 | school)"
NEW = -1


def rows() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(SCHOOLS), PUPILS)
    x = rng.normal(size=len(group))
    chance = 1 / (1 + np.exp(-(0.3 + 0.7 * x + rng.normal(size=SCHOOLS)[group])))
    return {"x": x, "y": rng.random(len(group)) < chance, "school": [f"s{each}" for each in group]}


def fitted(**options: Any) -> tb.Result:
    return tb.fit(FORMULA, rows(), "logistic", tolerance=0.05, standardise=False, **options)


class Grid(NamedTuple):
    """Points of theta (P, 3) with their weights, of z (Z,), and the weight of each z of a school given theta."""

    theta: np.ndarray
    weight: np.ndarray
    z: np.ndarray
    shares: np.ndarray

    def share(self, school: int) -> np.ndarray:
        """(P, Z); of a new school that of a standard normal."""
        if school != NEW:
            return self.shares[school]
        plain = np.exp(-0.5 * self.z**2)
        return np.broadcast_to(plain / plain.sum(), self.shares[0].shape)

    def eta(self, x: float) -> np.ndarray:
        """Of a row at every z, (P, Z)."""
        level, slope, tau = self.theta.T[:, :, None]
        return np.asarray(level + slope * x + tau * self.z)

    def moments(self, values: np.ndarray, school: int) -> tuple[float, float]:
        """Mean and sd over theta and z of (P, Z) numbers."""
        joint = self.weight[:, None] * self.share(school)
        mean = np.sum(joint * values)
        return float(mean), float(np.sqrt(np.sum(joint * (values - mean) ** 2)))

    def difference(self, one: int, other: int) -> tuple[float, float, float]:
        """Mean, sd and P(> 0) of tau (z_one - z_other)."""
        gap = self.z[:, None] - self.z
        tau = self.theta[:, 2]
        pair = [np.einsum("pi,pj->pij", self.share(one)[some], self.share(other)[some]) for some in _blocks(len(tau))]
        found = np.zeros(3)
        for some, law in zip(_blocks(len(tau)), pair, strict=True):
            weight = self.weight[some]
            found[0] += weight @ (tau[some] * np.sum(law * gap, axis=(1, 2)))
            found[1] += weight @ (tau[some] ** 2 * np.sum(law * gap**2, axis=(1, 2)))
            found[2] += weight @ np.sum(law * ((gap > 0) + 0.5 * (gap == 0)), axis=(1, 2))
        return float(found[0]), float(np.sqrt(found[1] - found[0] ** 2)), float(found[2])


def _blocks(count: int) -> list[slice]:
    return [slice(start, start + 500) for start in range(0, count, 500)]


def grid() -> Grid:
    """Written out: a grid of theta within seven posterior sds, and one of z."""
    table = rows()
    x, y = table["x"].reshape(SCHOOLS, PUPILS), np.asarray(table["y"], float).reshape(SCHOOLS, PUPILS)
    axes = np.linspace(-1.9, 3.7, 19), np.linspace(-0.9, 2.2, 17), np.linspace(0.02, 4.4, 27)
    theta = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    level, slope, tau = theta.T
    z = np.linspace(-6, 6, 49)
    prior = -0.5 * (level / 10) ** 2 - 0.5 * slope**2 - 0.5 * tau**2
    log_total, shares = prior, []
    for own_x, own_y in zip(x, y, strict=True):
        terms = np.broadcast_to(-0.5 * z**2, (len(theta), len(z))).copy()
        for each_x, each_y in zip(own_x, own_y, strict=True):
            eta = level[:, None] + slope[:, None] * each_x + tau[:, None] * z
            terms += each_y * eta - np.logaddexp(0, eta)
        most = terms.max(axis=1, keepdims=True)
        sums = np.exp(terms - most).sum(axis=1, keepdims=True)
        log_total = log_total + (most + np.log(sums))[:, 0]
        shares.append(np.exp(terms - most) / sums)
    weight = np.exp(log_total - log_total.max())
    return Grid(theta, weight / weight.sum(), z, np.stack(shares))


class Drawn(NamedTuple):
    """Draws of theta (K, 3) and of all z (K, schools), with weights that add up to one."""

    theta: np.ndarray
    z: np.ndarray
    weight: np.ndarray

    def eta(self, x: float, schools: np.ndarray) -> np.ndarray:
        """Of rows of some schools, (K, rows)."""
        level, slope, tau = self.theta.T[:, :, None]
        return np.asarray(level + slope * x + tau * self.z[:, schools])


def drawn(count: int = 30_000, seed: int = 1) -> Drawn:
    """By their definition, z on a grid: the proposal is about what the grid of theta has as mean and covariance."""
    from averaged import weighted_draws

    table, z = rows(), np.linspace(-5.5, 5.5, 56)
    x, y = table["x"].reshape(SCHOOLS, PUPILS), np.asarray(table["y"], float).reshape(SCHOOLS, PUPILS)
    rng = np.random.default_rng(seed)
    found: dict[int, np.ndarray] = {}

    def log_density(points: np.ndarray) -> np.ndarray:
        level, slope, log_tau = points.T
        tau = np.exp(log_tau)
        total = -0.5 * (level / 10) ** 2 - 0.5 * slope**2 - 0.5 * tau**2 + log_tau
        for school in range(SCHOOLS):
            terms = np.broadcast_to(-0.5 * z**2, (len(points), len(z))).copy()
            for each_x, each_y in zip(x[school], y[school], strict=True):
                eta = (level + slope * each_x)[:, None] + tau[:, None] * z
                terms += each_y * eta - np.logaddexp(0, eta)
            share = np.exp(terms - terms.max(axis=1, keepdims=True))
            total = total + terms.max(axis=1) + np.log(share.sum(axis=1))
            ranks = np.cumsum(share, axis=1) / share.sum(axis=1, keepdims=True)
            at = np.minimum(np.sum(ranks < rng.random((len(points), 1)), axis=1), len(z) - 1)
            # Within its cell a draw is uniform.
            found[school] = z[at] + (rng.random(len(points)) - 0.5) * (z[1] - z[0])
        return np.asarray(total)

    covariance = np.diag([0.45, 0.26, 0.33]) ** 2
    points, weight = weighted_draws(log_density, np.array([0.85, 0.65, 0.22]), covariance, seed, count)
    points[:, 2] = np.exp(points[:, 2])
    return Drawn(points, np.stack([found[each] for each in range(SCHOOLS)], axis=1), weight)
