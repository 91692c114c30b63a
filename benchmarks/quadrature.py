"""Exact posterior expectations by quadrature, without any code of the sampler.

    E h = sum_k w_k h(theta_k),   w_k proportional to pi(theta_k | X)

`line` lays a fine grid over one number, `box` an even one over theta = mode + H^-1/2 z in a few dimensions: of what is
smooth and falls off on both sides, an even sum converges faster than any power of its step. `Regression` is a family
with offsets and weights, whose equal rows are one row with their number; `UnknownNoise` a linear regression whose
coefficients are integrated in closed form, so that its noise is the only number left.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import expit

Function = Callable[[np.ndarray], np.ndarray]
TILE_ENTRIES = 1 << 18
POINTS = 200_001


@dataclass(frozen=True, eq=False)
class Marginal:
    """The density of one number, normalised, on an even grid wide enough to hold it."""

    at: np.ndarray
    density: np.ndarray

    def mean(self, h: Function = np.asarray) -> float:
        """E h by Simpson's rule, which a kink of h on a grid as fine as this does not hurt."""
        return float(simpson(h(self.at) * self.density, self.at))

    def sd(self, h: Function = np.asarray) -> float:
        centre = self.mean(h)
        return float(np.sqrt(self.mean(lambda at: (h(at) - centre) ** 2)))

    @cached_property
    def _below(self) -> CubicSpline:
        return CubicSpline(self.at, self.density).antiderivative()

    def above(self, edge: float) -> float:
        return float(1 - self._below(edge) / self._below(self.at[-1]))

    def quantile(self, p: float) -> float:
        """By bisection on the integral of a spline, from whichever end is nearer."""
        low, high, whole = self.at[0], self.at[-1], self._below(self.at[-1])
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if self._below(middle) < p * whole else (low, middle)
        return float((low + high) / 2)

    def density_at(self, points: Any) -> np.ndarray:
        return np.asarray(CubicSpline(self.at, self.density)(points))


def line(log_density: Function, low: float, high: float, points: int = POINTS) -> Marginal:
    """Of a log density up to a constant, which must be negligible outside low..high."""
    at = np.linspace(low, high, points)
    height = log_density(at)
    weight = np.exp(height - height.max())
    return Marginal(at, weight / simpson(weight, at))


def simpson(values: np.ndarray, at: np.ndarray) -> float:
    """Of an odd number of even steps."""
    weights = np.ones(len(at))
    weights[1:-1:2], weights[2:-1:2] = 4.0, 2.0
    return float(weights @ values * (at[1] - at[0]) / 3)


@dataclass(frozen=True, eq=False)
class Grid:
    """Points, (points, d), and their normalised weights."""

    points: np.ndarray
    weights: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        return self.weights @ self.points

    @property
    def sd(self) -> np.ndarray:
        return np.sqrt(self.weights @ (self.points - self.mean) ** 2)

    def expectation(self, h: Function) -> np.ndarray:
        return self.weights @ h(self.points)


def box(log_density: Function, centre: np.ndarray, root: np.ndarray, reach: float = 9.0, step: float = 0.4) -> Grid:
    """An even grid of |z_j| <= reach, theta = centre + root z."""
    one = step * np.arange(-round(reach / step), round(reach / step) + 1)
    z = np.stack(np.meshgrid(*(len(centre) * [one]), indexing="ij"), axis=-1).reshape(-1, len(centre))
    points = centre + z @ root.T
    height = log_density(points)
    weights = np.exp(height - height.max())
    return Grid(points, weights / weights.sum())


@dataclass(frozen=True)
class Response:
    """What a row adds to the log likelihood, and minus its second derivative in eta."""

    fit: Callable[[np.ndarray], np.ndarray]
    mean: Callable[[np.ndarray], np.ndarray]
    curvature: Callable[[np.ndarray], np.ndarray]


# l(eta, y) = y eta - fit(eta), up to a constant: the slope is y - mean(eta).
LOGISTIC = Response(lambda eta: np.logaddexp(0.0, eta), expit, lambda eta: expit(eta) * expit(-eta))
RARE_LOGISTIC = Response(lambda eta: np.log1p(np.exp(np.minimum(eta, 500.0))), expit, LOGISTIC.curvature)
POISSON = Response(np.exp, np.exp, np.exp)


@dataclass(frozen=True, eq=False)
class Regression:
    """A family with log likelihood y eta - fit(eta), eta = x theta + offset, weights and the prior N(0, scale^2)."""

    response: Response
    x: np.ndarray
    y: np.ndarray
    offset: np.ndarray
    weight: np.ndarray
    scale: float

    @classmethod
    def of(
        cls, response: Response, x: Any, y: Any, offset: Any = 0.0, weight: Any = 1.0, scale: float = 1.0
    ) -> Regression:
        """Equal rows are taken together, where the first thousand show that there are any."""
        x = np.asarray(x, np.float64)
        sides = [np.broadcast_to(np.asarray(each, np.float64), len(x)) for each in (y, offset)]
        weights, rows = np.broadcast_to(np.asarray(weight, np.float64), len(x)), np.column_stack([x, *sides])
        if len(np.unique(rows[:1000], axis=0)) < len(rows[:1000]) / 2:
            rows, where = np.unique(rows, axis=0, return_inverse=True)
            weights = np.bincount(where.ravel(), weights)
        return cls(response, rows[:, :-2], rows[:, -2], rows[:, -1], weights, scale)

    def log_density(self, theta: np.ndarray) -> np.ndarray:
        """Of every row of theta, up to a constant."""
        moment = self.x.T @ (self.weight * self.y)
        total = theta @ moment - 0.5 * np.sum((theta / self.scale) ** 2, axis=1)
        size = max(1, TILE_ENTRIES // len(theta))
        for start in range(0, len(self.y), size):
            part = slice(start, start + size)
            eta = self.x[part] @ theta.T + self.offset[part, None]
            total -= self.weight[part] @ self.response.fit(eta)
        return total

    @cached_property
    def mode(self) -> tuple[np.ndarray, np.ndarray]:
        """Newton's method with halved steps from zero; the mode and the negative Hessian there."""
        theta = np.zeros(self.x.shape[1])
        for _ in range(200):
            eta = self.x @ theta + self.offset
            gradient = self.x.T @ (self.weight * (self.y - self.response.mean(eta))) - theta / self.scale**2
            curvature = self.weight * self.response.curvature(eta)
            hessian = self.x.T @ (curvature[:, None] * self.x) + np.eye(len(theta)) / self.scale**2
            step = np.linalg.solve(hessian, gradient)
            rise = step @ hessian @ step
            if rise < 1e-16:
                return theta + step, hessian
            # So close the whole step is right, and the rise is lost in rounding.
            theta = theta + (1.0 if rise < 1e-6 else self._shortened(theta, step)) * step
        raise RuntimeError("expected Newton to reach the mode in 200 steps")

    def _shortened(self, theta: np.ndarray, step: np.ndarray) -> float:
        sizes = 0.5 ** np.arange(40)
        with np.errstate(over="ignore"):
            heights = self.log_density(np.vstack([theta, theta + sizes[:, None] * step]))
        higher = np.flatnonzero(heights[1:] >= heights[0])
        return float(sizes[higher[0]]) if len(higher) else 0.0

    def grid(self, reach: float = 9.0, step: float = 0.4) -> Grid:
        mode, hessian = self.mode
        return box(self.log_density, mode, np.linalg.inv(np.linalg.cholesky(hessian)).T, reach, step)

    def moments(self, reach: float = 9.0, step: float = 0.4) -> dict[str, np.ndarray]:
        found = self.grid(reach, step)
        return {"mean": found.mean, "sd": found.sd}


@dataclass(frozen=True, eq=False)
class UnknownNoise:
    """y ~ N(x theta, sigma^2), theta_j ~ N(0, scale^2), sigma half-normal: theta given sigma is Gaussian.

    log p(y | sigma) = -1/2 (log |C| + y' C^-1 y),   C = sigma^2 I + scale^2 x x', by the eigenvectors of x' x
    """

    x: np.ndarray
    y: np.ndarray
    scale: float
    noise_scale: float

    def moments(self, low: float, high: float, points: int = 20_001) -> dict[str, np.ndarray]:
        """Means and sds of the coefficients, then of sigma; low..high are the ends of log sigma."""
        log_sigma = np.linspace(low, high, points)
        variance = np.exp(2 * log_sigma)
        values, vectors = np.linalg.eigh(self.x.T @ self.x)
        shrunk = (vectors.T @ (self.x.T @ self.y)) ** 2 / (values + variance[:, None] / self.scale**2)
        spread = np.log1p(self.scale**2 * values / variance[:, None])
        evidence = -0.5 * (spread.sum(axis=1) + (self.y @ self.y - shrunk.sum(axis=1)) / variance)
        height = evidence - (len(self.y) - 1) * log_sigma - 0.5 * variance / self.noise_scale**2
        weight = np.exp(height - height.max())
        weight /= weight.sum()
        inverse = 1 / (values + variance[:, None] / self.scale**2)
        means = (inverse * (vectors.T @ (self.x.T @ self.y))) @ vectors.T
        covariances = (variance[:, None] * inverse) @ (vectors.T**2)
        theta = weight @ means
        sigma = weight @ np.exp(log_sigma)
        sd = np.sqrt(weight @ (covariances + (means - theta) ** 2))
        noise_sd = np.sqrt(weight @ (np.exp(log_sigma) - sigma) ** 2)
        return {"mean": np.append(theta, sigma), "sd": np.append(sd, noise_sd)}


def levels(events: Any, exposures: Any, scale: float) -> dict[str, np.ndarray]:
    """Log rates of independent groups: events_k theta_k - exposure_k exp(theta_k) - theta_k^2 / (2 scale^2)."""
    marginals = [log_rate(float(y), float(t), scale) for y, t in zip(events, exposures, strict=True)]
    return {"mean": np.array([each.mean() for each in marginals]), "sd": np.array([each.sd() for each in marginals])}


def log_rate(events: float, exposure: float, scale: float) -> Marginal:
    """The posterior of one log rate."""
    regression = Regression.of(POISSON, np.ones((1, 1)), [events / exposure], weight=exposure, scale=scale)
    (mode,), ((precision,),) = regression.mode
    reach = 12 / np.sqrt(precision)
    # Below the mode it falls off like the prior and exp(events theta), slower than above it.
    low = mode - min(3 * reach, reach + 40 / max(events, 1.0), 12 * scale + abs(mode))
    return line(
        lambda at: events * at - exposure * np.exp(at) - 0.5 * (at / scale) ** 2, low, min(mode + reach, mode + 8.0)
    )
