"""Exact means and sds of small posteriors of every later family and prior, without any code of the package's models.

    log p(u | rows) = sum_i log p(row_i | theta(u)) + log p(theta(u)) + log |d theta / d u|

The densities are SciPy's (`by_hand`), the priors those of `simulations` written out once more. u has the logs of what
is positive, the logits of chances, the first cut point and the logs of the steps to the next. Draws are Sobol's points
as Student's t about a Gaussian of the posterior's own moments, found by rounds of weights from the mode on; errors are
those of eight scrambles. Shrinkage priors have quadratures of their own (`exact_shrinkage`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import by_hand
import numpy as np
from scipy import stats
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import qmc
from simulations import CUT_SCALE, CUTS, EXTRA_SCALE, INTERCEPT_SCALE, LEVEL, SMOOTHING

Floats = np.ndarray
FREEDOM, SCRAMBLES, LOG_POINTS, ADAPTATIONS, STEP = 5.0, 8, 13, 4, 1e-3
# Points at a time.
PART = 2**10


class Extra(NamedTuple):
    """How a parameter beside the coefficients is read off u, and its prior."""

    of: Callable[[Floats], Floats]
    log_slope: Callable[[Floats], Floats]
    log_prior: Callable[[Floats], Floats]
    size: int = 1


def _positive(log_prior: Callable[[Floats], Floats]) -> Extra:
    return Extra(np.exp, lambda u: u, log_prior)


def _cuts(u: Floats) -> Floats:
    return np.cumsum(np.vstack([u[:1], np.exp(u[1:])]), axis=0)


HALF_NORMAL = _positive(stats.halfnorm(scale=EXTRA_SCALE).logpdf)
CHANCE = Extra(expit, lambda u: -np.logaddexp(0, u) - np.logaddexp(0, -u), np.zeros_like)
ORDERED = Extra(_cuts, lambda u: u[1:].sum(axis=0), lambda c: stats.norm(scale=CUT_SCALE).logpdf(c).sum(axis=0), CUTS)


def log_normal(mean: float, scale: float) -> Extra:
    return _positive(stats.lognorm(scale, scale=np.exp(mean)).logpdf)


EXTRAS: dict[str, dict[str, Extra]] = {
    "ordinal": {"cut_points": ORDERED},
    "ordinal_probit": {"cut_points": ORDERED},
    "gamma": {"shape": log_normal(0.0, 1.0)},
    "beta": {"precision": log_normal(2.0, 1.0)},
    "weibull": {"shape": log_normal(0.0, 0.5)},
    "log_normal": {"noise_scale": HALF_NORMAL},
    "zero_inflated_poisson": {"zero_inflation": CHANCE},
    "zero_inflated_negative_binomial": {"overdispersion": HALF_NORMAL, "zero_inflation": CHANCE},
    "hurdle_poisson": {"zero_share": CHANCE},
    "hurdle_negative_binomial": {"overdispersion": HALF_NORMAL, "zero_share": CHANCE},
    "quantile": {"noise_scale": HALF_NORMAL},
}


@dataclass(frozen=True, eq=False)
class Written:
    """A posterior written out: `log_prior` of the coefficients, (columns, points), and an intercept."""

    family: str
    rows: dict[str, Floats]
    log_prior: Callable[[Floats], Floats]
    log_intercept: Callable[[Floats], Floats] | None = None

    @property
    def extras(self) -> dict[str, Extra]:
        return EXTRAS.get(self.family, {})

    @property
    def dimension(self) -> int:
        width = self.rows["x"].shape[1] + (self.log_intercept is not None)
        return width + sum(extra.size for extra in self.extras.values())

    def parameters(self, u: Floats) -> dict[str, Floats]:
        """By name, of (points, dimension), each (points,) or (size, points)."""
        d = self.rows["x"].shape[1]
        found, place = {"coefficients": u[:, :d].T}, d
        if self.log_intercept is not None:
            found["intercept"], place = u[:, d], d + 1
        for name, extra in self.extras.items():
            own = u[:, place : place + extra.size].T
            found[name], place = extra.of(own if extra.size > 1 else own[0]), place + extra.size
        return found

    def log_density(self, u: Floats) -> Floats:
        """Of every point."""
        theta, d = self.parameters(u), self.rows["x"].shape[1]
        total, place = self.log_prior(theta["coefficients"]), d
        eta = theta["coefficients"].T @ self.rows["x"].T
        if self.log_intercept is not None:
            total, place = total + self.log_intercept(theta["intercept"]), d + 1
            eta = eta + theta["intercept"][:, None]
        eta = eta + self.rows.get("offset", 0.0)
        for name, extra in self.extras.items():
            own = u[:, place : place + extra.size].T
            total = total + extra.log_slope(own if extra.size > 1 else own[0]) + extra.log_prior(theta[name])
            place += extra.size
        many = len(self.rows["y"])
        extras = {name: np.repeat(theta[name], many, axis=-1) for name in self.extras}
        rows = {name: np.tile(each, len(u)) for name, each in self.rows.items() if name not in ("x", "offset")}
        total = total + self._of_rows(rows, eta.ravel(), extras).reshape(len(u), many).sum(axis=1)
        return np.nan_to_num(total, nan=-np.inf)

    def _of_rows(self, rows: dict[str, Floats], eta: Floats, extras: dict[str, Floats]) -> Floats:
        if self.family == "quantile":
            return np.asarray(by_hand.smoothed_quantile(rows["y"], eta, extras["noise_scale"], LEVEL, SMOOTHING))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(by_hand.log_density(self.family, rows, eta, extras))


class Reference(NamedTuple):
    """Means and sds by name, flat, and the largest error of either in sds."""

    mean: dict[str, list[float]]
    sd: dict[str, list[float]]
    worst_error: float
    efficiency: float


def normal(scale: Any) -> Callable[[Floats], Floats]:
    return lambda value: -0.5 * np.sum((value.T / scale) ** 2, axis=-1)


def start(written: Written) -> tuple[Floats, Floats]:
    """A mode, and the inverse of minus the Hessian there, by differences."""

    def loss(u: Floats) -> float:
        found = -float(written.log_density(u[None])[0])
        return found if np.isfinite(found) else 1e10

    mode = minimize(loss, np.zeros(written.dimension), method="Nelder-Mead", options={"maxiter": 400}).x
    mode = minimize(loss, mode, method="BFGS", options={"gtol": 1e-4}).x
    unit = STEP * np.eye(len(mode))
    points = np.array([mode + s * a + t * b for a in unit for b in unit for s in (1, -1) for t in (1, -1)])
    values = written.log_density(points).reshape(len(mode), len(mode), 4)
    hessian = -(values @ np.array([1, -1, -1, 1])) / (4 * STEP**2)
    size, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    return mode, (vectors / np.maximum(size, 1e-3)) @ vectors.T


def weighted(written: Written, centre: Floats, covariance: Floats, log_points: int, seed: int) -> tuple[Floats, Floats]:
    """Draws and their weights, up to a factor."""
    d, root = len(centre), np.linalg.cholesky(covariance)
    uniform = np.clip(qmc.Sobol(d + 1, rng=np.random.default_rng(seed)).random_base2(log_points), 1e-12, 1 - 1e-12)
    z = stats.norm.ppf(uniform[:, :d]) * np.sqrt(FREEDOM / stats.chi2.ppf(uniform[:, d:], FREEDOM))
    log_proposal = -0.5 * (FREEDOM + d) * np.log1p(np.sum(z**2, axis=1) / FREEDOM)
    u = centre + z @ root.T
    return u, np.concatenate([written.log_density(u[i : i + PART]) for i in range(0, len(u), PART)]) - log_proposal


def solve(written: Written) -> Reference:
    centre, covariance = start(written)
    for adaptation in range(ADAPTATIONS):
        u, log_weight = weighted(written, centre, covariance, LOG_POINTS - 2, adaptation)
        share = np.exp(log_weight - log_weight.max())
        share /= share.sum()
        centre = share @ u
        covariance = (u - centre).T @ (share[:, None] * (u - centre))
    means, squares, wholes, most = [], [], [], None
    total, efficient = 0.0, 0.0
    for scramble in range(SCRAMBLES):
        u, log_weight = weighted(written, centre, covariance, LOG_POINTS, 100 + scramble)
        most = float(log_weight.max()) if most is None else most
        weight = np.exp(log_weight - most)
        total, efficient = total + weight.sum(), efficient + np.sum(weight**2)
        theta = written.parameters(u)
        values = np.vstack([np.atleast_2d(theta[name]) for name in sorted(theta)])
        wholes.append(weight.sum())
        means.append(values @ weight)
        squares.append(values**2 @ weight)
    whole, first, second = np.array(wholes), np.array(means), np.array(squares)

    def moments(keep: Floats) -> Floats:
        mean = first[keep].sum(axis=0) / whole[keep].sum()
        return np.array([mean, np.sqrt(second[keep].sum(axis=0) / whole[keep].sum() - mean**2)])

    everything = np.arange(SCRAMBLES)
    (mean, sd), left_out = moments(everything), np.array([moments(everything[everything != i]) for i in everything])
    error = np.sqrt((SCRAMBLES - 1) / SCRAMBLES * np.sum((left_out - left_out.mean(axis=0)) ** 2, axis=0))
    sizes = [len(np.atleast_2d(theta[name])) for name in sorted(theta)]
    ends = np.cumsum(sizes)[:-1]
    by_name = [dict(zip(sorted(theta), map(list, np.split(each, ends)), strict=True)) for each in (mean, sd)]
    return Reference(*by_name, float((error / sd).max()), float(total**2 / efficient / (SCRAMBLES * 2**LOG_POINTS)))


def intercept_prior(value: Floats) -> Floats:
    return -0.5 * (value / INTERCEPT_SCALE) ** 2
