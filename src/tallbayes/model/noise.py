"""Noise: how y scatters about its mean in every family, given eta and what stands beside the coefficients.

    linear               y = eta + sigma e, e ~ N(0, 1)       Var y = sigma^2
    student t            e ~ t_nu                              sigma^2 nu / (nu - 2), infinite for nu <= 2
    poisson              mean mu = exp eta                     mu
    negative binomial                                          mu + a mu^2
    a class              the indicator of it, with chance p    p (1 - p)

In NumPy: it is asked of finished predictions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.model.catalogue import CATALOGUE, Family


class Noise(NamedTuple):
    """That of a family; `scale` where it is known beforehand, and the degrees of freedom of Student's t."""

    family: str
    scale: float | None = None
    freedom: float | None = None

    @property
    def facts(self) -> Family:
        return CATALOGUE[self.family]

    @property
    def is_count(self) -> bool:
        return self.facts.response == "count"

    @property
    def unit_variance(self) -> float:
        """Of a real y about its mean, for a noise scale of 1."""
        if self.freedom is None:
            return 1.0
        return self.freedom / (self.freedom - 2) if self.freedom > 2 else np.inf

    def cdf(self, y: Any, eta: Any, scale: Any = None) -> Any:
        """P(Y <= y | eta), y being whole for a count; `scale` is that of the noise, or the overdispersion."""
        from scipy.special import betainc, pdtr

        if self.family == "poisson":
            return pdtr(y, np.exp(eta))
        if self.family == "negative_binomial":
            # Of r = 1 / a failures, each with the chance 1 / (1 + a mu).
            return betainc(1 / scale, y + 1, 1 / (1 + scale * np.exp(eta)))
        return self.standard_cdf((y - eta) / scale)

    def standard_cdf(self, z: Any) -> Any:
        """P(e <= z) of a real y."""
        from scipy.special import ndtr, stdtr

        return ndtr(z) if self.freedom is None else stdtr(self.freedom, z)

    def standard_quantile(self, p: Any) -> Any:
        """Its inverse."""
        from scipy.special import ndtri, stdtrit

        return ndtri(p) if self.freedom is None else stdtrit(self.freedom, p)
