"""From a prior, as its owner wrote it, to the law of variances that chains move: with the rows' number and noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.model.priors.shrinkage import R2D2, Horseshoe, ShrinkagePrior
from tallbayes.moments import Floats
from tallbayes.shrinkage.scales import HorseshoeLaw, R2D2Law, ScaleLaw

# A share of ones is no nearer to 0 or 1, in rows.
LEAST_ONES = 0.5


class Facts(NamedTuple):
    """Of a family's rows: its name, how many (weights included), mean of y, and its extra at the mode or as known."""

    family: str
    rows: float
    mean: float
    extra: float

    @property
    def noise(self) -> float:
        """sigma where the response has units, and 1 elsewhere."""
        return self.extra if CATALOGUE[self.family].response == "real" else 1.0

    @property
    def pseudo_noise(self) -> float:
        """1 / sqrt(what a row of mean y tells of its linear predictor)."""
        share = float(np.clip(self.mean, LEAST_ONES / self.rows, 1 - LEAST_ONES / self.rows))
        count = max(self.mean, LEAST_ONES / self.rows)
        if self.family == "logistic":
            return (share * (1 - share)) ** -0.5
        if self.family == "probit":
            from scipy.special import ndtri

            density = np.exp(-0.5 * ndtri(share) ** 2) / np.sqrt(2 * np.pi)
            return float(np.sqrt(share * (1 - share)) / density)
        if self.family == "poisson":
            return float(count**-0.5)
        if self.family == "negative_binomial":
            return float(np.sqrt((1 + self.extra * count) / count))
        return self.noise


def facts_of(family: str, y: Floats, weights: Floats | None, extra: float) -> Facts:
    weights = np.ones(len(y)) if weights is None else weights
    total = float(weights.sum())
    return Facts(family, total, float(weights @ y) / total, extra)


def law_of(prior: ShrinkagePrior, columns: int, facts: Facts) -> ScaleLaw:
    if isinstance(prior, R2D2):
        first, second = prior.mean_R2 * prior.precision, (1 - prior.mean_R2) * prior.precision
        return R2D2Law(columns, first, second, prior.concentration, facts.noise)
    if isinstance(prior, Horseshoe):
        return HorseshoeLaw(columns, prior.scale)
    scale, expected = prior.scale, prior.expected_nonzero
    if expected is not None:
        if expected >= columns:
            hint = "expected_nonzero=None with a scale, or fewer"
            raise DataError(explain(f"expected_nonzero below the {columns} columns", f"{expected:g}", hint))
        scale = expected / (columns - expected) * facts.pseudo_noise / facts.rows**0.5
    return HorseshoeLaw(columns, scale, (prior.slab_scale, prior.slab_df))
