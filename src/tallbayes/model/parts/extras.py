"""Extras: what a family has beside its coefficients, where it lives, and its prior.

    positive   theta = exp u               half-normal   -(theta / s)^2 / 2
                                           log-normal    -((log theta - m) / s)^2 / 2 - log theta
    chance     theta = 1 / (1 + exp -u)    uniform       0
    ordered    `constraints.ordered`       normal        -sum_k ((theta_k - m) / s)^2 / 2, of all in their order

A density reads an extra by its place u in R^d.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import lgamma, log, pi
from typing import Any

import numpy as np

from tallbayes.model import constraints
from tallbayes.model.catalogue import Prior
from tallbayes.model.constraints import Constraint
from tallbayes.moments import Floats
from tallbayes.programs.functions import functions_of
from tallbayes.programs.later import jnp

SPACES: dict[str, Constraint] = {
    "positive": constraints.positive,
    "chance": constraints.unit_interval,
    "ordered": constraints.ordered,
}
# For derivatives of a smooth function of one number.
STEP = 1e-4


@dataclass(frozen=True)
class ExtraPart:
    """An extra of one model: `size` numbers."""

    name: str
    space: str
    prior: Prior
    size: int = 1

    @property
    def constraint(self) -> Constraint:
        return SPACES[self.space]

    @property
    def reading(self) -> tuple[str, tuple[float, ...]]:
        """The name of the constraint, and its numbers."""
        return ("interval", (0.0, 1.0)) if self.space == "chance" else (self.space, ())

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,) if self.space == "ordered" else ()

    @property
    def start(self) -> Any:
        if self.space == "ordered":
            return np.linspace(-1.0, 1.0, self.size) if self.size > 1 else np.zeros(1)
        return np.asarray(0.5) if self.space == "chance" else np.ones(())

    def log_prior(self, value: Any) -> Any:
        """Of theta, up to a constant."""
        f = functions_of(value)
        if self.prior.law == "uniform":
            return 0.0 * f.sum(value)
        if self.prior.law == "log-normal":
            logarithm = f.log(value)
            return f.sum(-0.5 * ((logarithm - self.prior.mean) / self.prior.scale) ** 2 - logarithm)
        return f.sum(-0.5 * ((value - self.prior.mean) / self.prior.scale) ** 2)

    @property
    def log_constant(self) -> float:
        """What that leaves out."""
        law, scale = self.prior.law, self.prior.scale
        if law == "uniform":
            return 0.0
        ways = {"half-normal": log(2.0), "normal": lgamma(self.size + 1)}.get(law, 0.0)
        return ways - self.size * (log(2 * pi) / 2 + log(scale))

    @property
    def is_scalar(self) -> bool:
        """Whether it is one number, known by `curve`."""
        return self.space != "ordered"

    def curve(self, u: Floats) -> tuple[Floats, Floats]:
        """theta(u) and its slope, in NumPy."""
        if self.space == "positive":
            value = np.exp(u)
            return value, value
        value, rest = 0.5 * (1 + np.tanh(0.5 * u)), 0.5 * (1 - np.tanh(0.5 * u))
        return value, value * rest

    def log_density(self, u: Floats) -> Floats:
        """The log prior of u, in NumPy, element by element."""
        value, slope = self.curve(u)
        jacobian = np.log(slope)
        if self.prior.law == "uniform":
            return np.asarray(jacobian)
        if self.prior.law == "log-normal":
            return np.asarray(
                -0.5 * ((np.log(value) - self.prior.mean) / self.prior.scale) ** 2 - np.log(value) + jacobian
            )
        return np.asarray(-0.5 * ((value - self.prior.mean) / self.prior.scale) ** 2 + jacobian)

    def derivatives(self, u: float) -> tuple[float, float]:
        """Of that."""
        below, here, above = self.log_density(u + STEP * np.array([-1.0, 0.0, 1.0]))
        return float(above - below) / (2 * STEP), float(above - 2 * here + below) / STEP**2


def coordinates(extras: tuple[ExtraPart, ...], theta: Any) -> list[Any]:
    """The places in R^d of a theta's extras, (size,) each."""
    return [jnp.ravel(extra.constraint.unconstrain(jnp.asarray(theta[extra.name]))) for extra in extras]


def with_extras(eta: Any, extras: tuple[ExtraPart, ...], theta: Any) -> Any:
    """The linear predictor, or those of all heads, and after them where the extras are."""
    return jnp.concatenate([jnp.ravel(eta), *coordinates(extras, theta)]) if extras else eta
