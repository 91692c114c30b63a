"""Shrinkage priors: all coefficients of a regression near zero, but for those of which the rows say otherwise.

    beta_j ~ N(0, v_j)

    horseshoe              sqrt(v_j) = tau lambda_j,   lambda_j ~ C+(0, 1),   tau ~ C+(0, tau_0)
    regularised horseshoe  1 / v_j = 1 / c^2 + 1 / (tau lambda_j)^2,   c^2 ~ InvGamma(nu / 2, nu s^2 / 2)
    R2D2                   v_j = sigma^2 phi_j R^2 / (1 - R^2),   R^2 ~ Beta,   phi ~ Dirichlet(alpha, ..., alpha)

One scale serves all coefficients, so that columns should be of one scale too. sigma is the sd of the noise where the
response has units, as it is at the mode where it is not known. Elsewhere it is 1 for R2D2; and for the number of
coefficients that a horseshoe expects, tau_0 = p_0 / (p - p_0) sigma / sqrt(N), it is 1 / sqrt(what a row of mean y
tells of its linear predictor) (Piironen and Vehtari, 2017): 2 for a logistic regression of as many ones as zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import ModelError, explain


@dataclass(frozen=True)
class Horseshoe:
    """tau ~ C+(0, scale)."""

    scale: float

    @property
    def words(self) -> str:
        return f"horseshoe, global scale half-Cauchy({self.scale:g})"

    def __str__(self) -> str:
        return f"horseshoe({self.scale:.12g})"


@dataclass(frozen=True)
class RegularisedHorseshoe:
    """A horseshoe whose largest coefficients are held by a slab; tau_0 from `expected_nonzero` where that is given."""

    slab_scale: float
    slab_df: float
    expected_nonzero: float | None
    scale: float

    @property
    def words(self) -> str:
        slab = f"slab t_{self.slab_df:g}(0, {self.slab_scale:g})"
        if self.expected_nonzero is None:
            return f"regularised horseshoe, global scale half-Cauchy({self.scale:g}), {slab}"
        return f"regularised horseshoe, about {self.expected_nonzero:g} coefficients expected not to be near 0, {slab}"

    def __str__(self) -> str:
        expected = self.expected_nonzero
        last = f"scale={self.scale:.12g}" if expected is None else f"expected_nonzero={expected:.12g}"
        return f"regularised_horseshoe({self.slab_scale:.12g}, {self.slab_df:.12g}, {last})"


@dataclass(frozen=True)
class R2D2:
    """R^2 ~ Beta(mean_R2 precision, (1 - mean_R2) precision)."""

    mean_R2: float  # noqa: N815
    precision: float
    concentration: float

    @property
    def words(self) -> str:
        first, second = self.mean_R2 * self.precision, (1 - self.mean_R2) * self.precision
        return f"R2D2, R2 ~ Beta({first:g}, {second:g}), shares ~ Dirichlet({self.concentration:g})"

    def __str__(self) -> str:
        return f"r2d2({self.mean_R2:.12g}, {self.precision:.12g}, {self.concentration:.12g})"


ShrinkagePrior = Horseshoe | RegularisedHorseshoe | R2D2


def horseshoe(scale: float = 1.0) -> Horseshoe:
    """The horseshoe of Carvalho, Polson and Scott: coefficients are shrunk to nearly nothing or hardly at all.

    `scale` is that of the half-Cauchy prior of the global scale.

    >>> prior = horseshoe(scale=0.1)
    """
    return Horseshoe(_positive("scale", scale, "1.0"))


def regularised_horseshoe(
    slab_scale: float = 2.0, slab_df: float = 4.0, expected_nonzero: float | None = None, scale: float = 1.0
) -> RegularisedHorseshoe:
    """The horseshoe of Piironen and Vehtari, whose large coefficients are as under Student's t: `slab_df` degrees of
    freedom and `slab_scale`.

    With `expected_nonzero`, p_0 of p coefficients, the scale of the global scale's half-Cauchy prior is
    p_0 / (p - p_0) sigma / sqrt(N); without, it is `scale`.

    >>> prior = regularised_horseshoe(slab_scale=2.0, slab_df=4.0, expected_nonzero=5)
    """
    expected = None if expected_nonzero is None else _positive("expected_nonzero", expected_nonzero, "5")
    numbers = _positive("slab_scale", slab_scale, "2.0"), _positive("slab_df", slab_df, "4.0")
    return RegularisedHorseshoe(*numbers, expected, _positive("scale", scale, "1.0"))


def r2d2(mean_R2: float = 0.5, precision: float = 2.0, concentration: float = 0.5) -> R2D2:
    """A prior of the share of variance that all coefficients explain together, of this mean and precision, which is
    then shared out among them: the smaller `concentration`, the fewer get most of it.

    >>> prior = r2d2(mean_R2=0.3, precision=10.0)
    """
    if isinstance(mean_R2, bool) or not isinstance(mean_R2, int | float | np.number) or not 0 < mean_R2 < 1:
        raise ModelError(explain("mean_R2 between 0 and 1", repr(mean_R2), "0.5"))
    rest = _positive("precision", precision, "2.0"), _positive("concentration", concentration, "0.5")
    return R2D2(float(mean_R2), *rest)


def _positive(name: str, value: Any, example: str) -> float:
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not np.isfinite(value) or not value > 0:
        raise ModelError(explain(f"{name} > 0", repr(value), example))
    return float(value)
