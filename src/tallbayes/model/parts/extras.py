"""Extras: what a family has beside its coefficients, where it lives, and its prior.

    positive   theta = exp u               half-normal   -(theta / s)^2 / 2
                                           log-normal    -((log theta - m) / s)^2 / 2 - log theta
    excess     `constraints.half_normal`, of a width that the rows tell
    chance     theta = 1 / (1 + exp -u)    uniform       0
    ordered    `constraints.ordered`       normal        -sum_k ((theta_k - m) / s)^2 / 2, of all in their order
    real       theta = u                   normal        -((theta - m) / s)^2 / 2

A density reads an extra by its place u in R^d, an excess by its logarithm.

Of counts without overdispersion a is next to nothing: given N rows of mean m its posterior is about N(., 2 / (N m^2)),
cut at 0. In log a that is a long tail on which no path comes back; with a = c(u), c that of a half-normal of about
that width, u is nearly normal, and where a is many widths from 0, c is a line. At u = -infinity counts are Poisson.
Of few rows that speak for an excess far from 0 a is skewed, and less so in c of its own width (`weighing.balance`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, lgamma, log, pi
from typing import Any

import numpy as np

from tallbayes.model import constraints
from tallbayes.model.catalogue import ExtraLaw
from tallbayes.model.constraints import Constraint
from tallbayes.model.priors.prior import Prior
from tallbayes.moments import Floats
from tallbayes.programs.functions import functions_of
from tallbayes.programs.later import jnp

SPACES: dict[str, Constraint] = {
    "positive": constraints.positive,
    "chance": constraints.unit_interval,
    "ordered": constraints.ordered,
    "real": constraints.real,
}
# Rows of which the mean of a count is taken, and the least log a that is no 0.
SAMPLE_ROWS, LEAST_LOG = 2**18, -27.0
# For derivatives of a smooth function of one number.
STEP = 1e-4


@dataclass(frozen=True)
class ExtraPart:
    """An extra of one model: `size` numbers. A prior that was `stated` stands in place of its usual one."""

    name: str
    space: str
    prior: ExtraLaw
    size: int = 1
    width: float = 1.0
    stated: Prior | None = None

    @property
    def constraint(self) -> Constraint:
        return constraints.half_normal(self.width) if self.space == "excess" else SPACES[self.space]

    @property
    def reading(self) -> tuple[str, tuple[float, ...]]:
        """The name of the constraint, and its numbers."""
        known = {"chance": ("interval", (0.0, 1.0)), "excess": ("half_normal", (self.width,))}
        return known.get(self.space, (self.space, ()))

    @property
    def is_statable(self) -> bool:
        """Whether it is a scale or any number, of which a prior can be stated."""
        return self.space in ("positive", "excess", "real")

    @property
    def moments(self) -> float:
        """The order up to which its prior has any."""
        return inf if self.stated is None else self.stated.moments

    @property
    def spread(self) -> float:
        """About how wide its prior is."""
        return self.prior.scale if self.stated is None else self.stated.spread

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,) if self.space == "ordered" else ()

    @property
    def start(self) -> Any:
        if self.space == "ordered":
            return np.linspace(-1.0, 1.0, self.size) if self.size > 1 else np.zeros(1)
        known = {"chance": np.asarray(0.5), "excess": np.asarray(self.width), "real": np.zeros(())}
        return known.get(self.space, np.ones(()))

    def log_prior(self, value: Any) -> Any:
        """Of theta, up to a constant."""
        f = functions_of(value)
        if self.stated is not None:
            return f.sum(self._standard(value))
        if self.prior.law == "uniform":
            return 0.0 * f.sum(value)
        if self.prior.law == "log-normal":
            logarithm = f.log(value)
            return f.sum(-0.5 * ((logarithm - self.prior.mean) / self.prior.scale) ** 2 - logarithm)
        return f.sum(-0.5 * ((value - self.prior.mean) / self.prior.scale) ** 2)

    @property
    def log_constant(self) -> float:
        """What that leaves out."""
        if self.stated is not None:
            rest = self.stated.facts.log_normaliser(*self.stated.shape) + log(self.stated.scale)
            return -rest if self.stated.proper else 0.0
        law, scale = self.prior.law, self.prior.scale
        if law == "uniform":
            return 0.0
        ways = {"half-normal": log(2.0), "ordered normal": lgamma(self.size + 1)}.get(law, 0.0)
        return ways - self.size * (log(2 * pi) / 2 + log(scale))

    @property
    def loose(self) -> float:
        """Which way, in its logarithm, no row is far off: to a large scale, to a small shape or precision."""
        return -1.0 if self.prior.law == "log-normal" else 1.0

    @property
    def is_scalar(self) -> bool:
        """Whether it is one number, known by `curve`."""
        return self.space != "ordered"

    def curve(self, u: Floats) -> tuple[Floats, Floats]:
        """theta(u) and its slope, in NumPy."""
        if self.space == "positive":
            value = np.exp(u)
            return value, value
        if self.space == "real":
            return u, np.ones_like(u)
        if self.space == "excess":
            return constraints.half_normal(self.width).curve(u)
        value, rest = 0.5 * (1 + np.tanh(0.5 * u)), 0.5 * (1 - np.tanh(0.5 * u))
        return value, value * rest

    def from_log(self, logarithm: float) -> float:
        """The place of what is positive, by its logarithm; of anything else the same number."""
        if self.space != "excess":
            return logarithm
        return float(constraints.half_normal(self.width).unconstrain(np.exp(logarithm)))

    def log_density(self, u: Floats) -> Floats:
        """The log prior of u, in NumPy, element by element."""
        value, slope = self.curve(u)
        with np.errstate(divide="ignore"):
            jacobian = log_slope(self.width, u) if self.space == "excess" else np.log(slope)
        if self.stated is not None:
            with np.errstate(all="ignore"):
                return np.asarray(self._standard(value) + jacobian)
        if self.prior.law == "uniform":
            return np.asarray(jacobian)
        if self.prior.law == "log-normal":
            return np.asarray(
                -0.5 * ((np.log(value) - self.prior.mean) / self.prior.scale) ** 2 - np.log(value) + jacobian
            )
        return np.asarray(-0.5 * ((value - self.prior.mean) / self.prior.scale) ** 2 + jacobian)

    def draws(self, rng: np.random.Generator, count: int) -> Floats:
        """Independent draws of theta, along the first axis."""
        if self.stated is not None:
            return self.stated.draws(rng, count)
        law, mean, scale = self.prior
        if law == "uniform":
            return rng.random(count)
        own = mean + scale * rng.standard_normal((count, *self.shape))
        if law == "ordered normal":
            return np.sort(own, axis=-1)
        if law == "normal":
            return own
        return np.exp(own) if law == "log-normal" else np.abs(own)

    def _standard(self, value: Any) -> Any:
        """The stated law's log density."""
        assert self.stated is not None
        return self.stated.facts.log_density((value - self.stated.centre) / self.stated.scale, *self.stated.shape)

    def derivatives(self, u: float) -> tuple[float, float]:
        """Of that."""
        below, here, above = self.log_density(u + STEP * np.array([-1.0, 0.0, 1.0]))
        return float(above - below) / (2 * STEP), float(above - 2 * here + below) / STEP**2


def log_excess(width: float, u: Any) -> Any:
    """log a = log width + log p - 1 / (2 p^2), p - 1/p = u; by NumPy or JAX."""
    f, inverse = functions_of(u), constraints.inverse_of_p(u)
    found = log(width) - f.log(inverse) - inverse**2 / 2
    return f.where(found > LEAST_LOG, found, LEAST_LOG)


def log_slope(width: float, u: Any) -> Any:
    """log c'(u)."""
    return log(width) - constraints.inverse_of_p(u) ** 2 / 2


def with_logs(width: float | None, eta: Any) -> Any:
    """Linear predictor and extras, the excess that comes first of these by its logarithm."""
    if width is None or len(eta) < 2:
        return eta
    f = functions_of(eta)
    return f.concatenate([eta[:1], log_excess(width, eta[1:2]), eta[2:]], axis=0)


@dataclass(frozen=True)
class OfExcess:
    """A density that reads the logarithm of an excess, as one of its place in R^d."""

    density: Any
    width: float

    def __call__(self, eta: Any, row: Any) -> Any:
        return self.density(with_logs(self.width, eta), row)


def width_for(y: Any, most: float) -> float:
    """For an excess of these counts."""
    some = np.asarray(y[:SAMPLE_ROWS], np.float64)
    mean = float(some.mean()) if len(some) and np.all(np.isfinite(some)) else 0.0
    if not mean > 0:
        return most
    return min(most, rounded_width(float(np.sqrt(2 / len(y)) / mean)))


def rounded_width(width: float) -> float:
    """To a quarter of a power of two, so that tables alike share programs."""
    return float(2.0 ** (np.round(4 * np.log2(width)) / 4))


def coordinates(extras: tuple[ExtraPart, ...], theta: Any) -> list[Any]:
    """The places in R^d of a theta's extras, (size,) each."""
    return [jnp.ravel(extra.constraint.unconstrain(jnp.asarray(theta[extra.name]))) for extra in extras]


def with_extras(eta: Any, extras: tuple[ExtraPart, ...], theta: Any) -> Any:
    """The linear predictor, or those of all heads, and after them where the extras are."""
    return jnp.concatenate([jnp.ravel(eta), *coordinates(extras, theta)]) if extras else eta


def first_of(extras: tuple[ExtraPart, ...]) -> str | None:
    """The name of the first."""
    return extras[0].name if extras else None
