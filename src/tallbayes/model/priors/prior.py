"""A prior of one number: a standard law of z, with a centre and a scale.

    theta = centre + scale z,     log p(theta) = log f(z; shape) - log scale - log normaliser

So a prior that is stated for b = shift + unit theta is one of theta again, of the same law.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np

from tallbayes.model.priors.laws import LAWS, StandardLaw
from tallbayes.moments import Floats


@dataclass(frozen=True)
class Prior:
    """A law by its name, where it stands and how wide it is, as the functions of `tb.priors` make it.

    It is a law of the number that a result reports; where it is `standardised`, of that per standard deviation of its
    column, in standard deviations of the response.
    """

    law: str
    centre: float = 0.0
    scale: float = 1.0
    shape: tuple[float, ...] = ()
    standardised: bool = False
    # As its owner wrote it, in the units it was stated in.
    text: str = ""

    @property
    def facts(self) -> StandardLaw:
        return LAWS[self.law]

    @property
    def positive(self) -> bool:
        return self.facts.positive

    @property
    def proper(self) -> bool:
        return self.facts.proper and np.isfinite(self.scale)

    @property
    def moments(self) -> float:
        """The order up to which it has any."""
        return self.facts.moments(*self.shape)

    @property
    def spread(self) -> float:
        """About how far from its centre it reaches; infinite where it has no end."""
        return self.scale * self.facts.typical(*self.shape) if self.proper else float("inf")

    def moved(self, shift: float, unit: float) -> Prior:
        """Of theta, where this is of shift + unit theta."""
        return replace(self, centre=(self.centre - shift) / unit, scale=self.scale / unit)

    def within(self, shift: float, unit: float) -> Prior:
        """The same, but as it is where it was stated for theta itself, which is standardised."""
        return replace(self, standardised=False) if self.standardised else self.moved(shift, unit)

    def log_density(self, value: Floats) -> Floats:
        """With its constant, in NumPy."""
        z = (np.asarray(value, np.float64) - self.centre) / self.scale
        with np.errstate(divide="ignore", invalid="ignore"):
            found = self.facts.log_density(z, *self.shape) - log(self.scale) - self.facts.log_normaliser(*self.shape)
        return np.where(z >= 0, found, -np.inf) if self.positive else np.asarray(found)

    def draws(self, rng: np.random.Generator, size: Any) -> Floats:
        """Independent draws."""
        return self.centre + self.scale * self.facts.draw(rng, size, *self.shape)

    def __str__(self) -> str:
        return self.text
