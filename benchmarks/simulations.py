"""Data sets drawn from the families' own priors, in NumPy alone: what the families are judged by.

    coefficients_j ~ N(0, scale_j^2),   intercept ~ N(0, 0.5^2),   noise scale and overdispersion ~ |N(0, 1)|
    x ~ N(0, I),   eta = x . coefficients + intercept + offset,   y ~ p(. | eta)

The scales of the columns rise from a tenth of the widest one: where the prior is narrow it decides the posterior, where
it is wide the rows do, so both have to be right. Counts have an offset, the log of an exposure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit

import tallbayes as tb

Rows = dict[str, np.ndarray]
Truth = dict[str, np.ndarray]
INTERCEPT_SCALE, EXTRA_SCALE = 0.5, 1.0
KNOWN_NOISE, FREEDOM, CLASSES = 0.8, 4.0, 3


@dataclass(frozen=True)
class Simulation:
    """A family, the widest prior scale of its coefficients, and how y is drawn given eta and the extra parameter."""

    family: Callable[..., tb.Model]
    respond: Callable[[np.random.Generator, np.ndarray, Any], np.ndarray]
    widest: float = 1.0
    options: dict[str, Any] = field(default_factory=dict)
    extra: str | None = None
    offset: bool = False
    heads: tuple[int, ...] = ()

    def scales(self, dimension: int) -> np.ndarray:
        return self.widest * np.geomspace(0.1, 1.0, dimension)

    def model(self, dimension: int, narrowing: float = 1.0) -> tb.Model:
        """The right model; `narrowing` below 1 makes the prior of the coefficients too narrow."""
        scales = narrowing * self.scales(dimension)
        return self.family(prior_scale=scales, intercept_scale=INTERCEPT_SCALE, **self.options)

    def draw(self, rng: np.random.Generator, num_rows: int, dimension: int) -> tuple[Truth, Rows]:
        """Parameters from the prior, and rows given them."""
        truth = {
            "coefficients": self.scales(dimension) * rng.normal(size=(*self.heads, dimension)),
            "intercept": INTERCEPT_SCALE * np.asarray(rng.normal(size=self.heads)),
        }
        if self.extra is not None:
            truth[self.extra] = EXTRA_SCALE * np.abs(np.asarray(rng.normal()))
        rows = {"x": rng.normal(size=(num_rows, dimension))}
        eta = rows["x"] @ truth["coefficients"].T + truth["intercept"]
        if self.offset:
            rows["offset"] = rng.normal(1.0, 0.5, size=num_rows)
            eta = eta + rows["offset"]
        rows["y"] = self.respond(rng, eta, truth.get(self.extra or "")).astype(float)
        return truth, rows


def binary(rng: np.random.Generator, eta: np.ndarray, _: Any) -> np.ndarray:
    return rng.random(len(eta)) < expit(eta)


def thresholded(rng: np.random.Generator, eta: np.ndarray, _: Any) -> np.ndarray:
    return eta + rng.normal(size=len(eta)) > 0


def known_gaussian(rng: np.random.Generator, eta: np.ndarray, _: Any) -> np.ndarray:
    return eta + KNOWN_NOISE * rng.normal(size=len(eta))


def gaussian(rng: np.random.Generator, eta: np.ndarray, noise_scale: Any) -> np.ndarray:
    return eta + noise_scale * rng.normal(size=len(eta))


def student(rng: np.random.Generator, eta: np.ndarray, noise_scale: Any) -> np.ndarray:
    return eta + noise_scale * rng.standard_t(FREEDOM, size=len(eta))


def counts(rng: np.random.Generator, eta: np.ndarray, _: Any) -> np.ndarray:
    return rng.poisson(np.exp(eta))


def excess_counts(rng: np.random.Generator, eta: np.ndarray, overdispersion: Any) -> np.ndarray:
    """Poisson counts whose rates are gamma variables of mean exp eta."""
    return rng.poisson(np.exp(eta) * rng.gamma(1 / overdispersion, overdispersion, size=len(eta)))


def classes(rng: np.random.Generator, eta: np.ndarray, _: Any) -> np.ndarray:
    """The largest of eta_k plus Gumbel noise, eta_0 = 0."""
    utility = np.column_stack([np.zeros(len(eta)), eta])
    return np.argmax(utility + rng.gumbel(size=utility.shape), axis=1)


SIMULATIONS = {
    "logistic": Simulation(tb.families.logistic, binary),
    "probit": Simulation(tb.families.probit, thresholded),
    "linear, noise known": Simulation(tb.families.linear, known_gaussian, options={"noise_scale": KNOWN_NOISE}),
    "linear": Simulation(tb.families.linear, gaussian, extra="noise_scale"),
    "student_t": Simulation(
        tb.families.student_t, student, options={"degrees_of_freedom": FREEDOM}, extra="noise_scale"
    ),
    "poisson": Simulation(tb.families.poisson, counts, widest=0.5, offset=True),
    "negative_binomial": Simulation(
        tb.families.negative_binomial, excess_counts, widest=0.5, extra="overdispersion", offset=True
    ),
    "multinomial": Simulation(tb.families.multinomial, classes, options={"num_classes": CLASSES}, heads=(CLASSES - 1,)),
}
