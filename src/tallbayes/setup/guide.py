"""Guides: the control of paths about a Gaussian whose averages nobody knows, by draws of its remainder.

The control of second order (`sampler.control`) needs E r(u) and K = E grad r(u) over the Gaussian. Where they are not
known exactly, as on a day on which the Gaussian has moved without a pass, they are estimated from opposite pairs u, -u,
each on a batch of its own,

    E r = E (r(u) + r(-u)) / 2,      K = E r u' = E (r(u) - r(-u)) u' / 2      (Stein)

without a single step of a path. The control's mean is linear in both, so it stays without bias; what it errs by is that
of the mean of C(u, r) over the pairs, the control's value where y is r itself,

    C = D g [W (r(u) + r(-u)) / 2] + D^2 g [W u, W (r(u) - r(-u)) / 2] / 2

which a run adds to its standard error as it does that of draws of the Gaussian. Of thousands of parameters K would be a
matrix that no pairs tell: there E r alone is drawn, for the control of the means, and no pair is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.estimator.estimands import Estimands, GaussianLevel
from tallbayes.model.model import Target
from tallbayes.moments import Floats, Moments
from tallbayes.programs.later import jax
from tallbayes.sampler.control import bends_along, slopes_along


@dataclass(frozen=True, eq=False)
class Guide:
    """Pairs of points, by u, and the even and the odd part of r there, all (pairs, d); and the rows that were read."""

    points: Floats
    even: Floats
    odd: Floats
    rows_read: int

    @classmethod
    def of(cls, found: Floats, rows_read: int) -> Guide:
        """From u, r(u) and r(-u), (pairs, 3, d)."""
        points, there, opposite = np.moveaxis(found, 1, 0)
        return cls(points, (there + opposite) / 2, (there - opposite) / 2, rows_read)

    def plus(self, other: Guide) -> Guide:
        return Guide(
            np.concatenate([self.points, other.points]),
            np.concatenate([self.even, other.even]),
            np.concatenate([self.odd, other.odd]),
            self.rows_read + other.rows_read,
        )

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.even).all() and np.isfinite(self.odd).all())

    def known_by(self, anchor: Anchor) -> Anchor:
        """The anchor with the averages as they were estimated."""
        mean, bend = self.even.mean(axis=0), self.odd.T @ self.points / len(self.points)
        bend = (bend + bend.T) / 2
        narrowed = anchor.factor @ (np.eye(len(mean)) - bend) @ anchor.factor.T
        return replace(anchor, mean_gradient=anchor.factor @ mean, mean_hessian=narrowed)

    def errors(self, anchor: Anchor) -> tuple[Floats, Floats]:
        """Standard errors of the control's means, for the mean and for the sd of every parameter in R^d, in its sds."""
        sd, count = anchor.sd, np.sqrt(len(self.points))
        moved, apart = anchor.displacements(self.even) / sd, anchor.displacements(self.points) / sd
        squared = anchor.displacements(self.odd) / sd * apart
        return moved.std(axis=0) / count, squared.std(axis=0) / (2 * count)


@dataclass(frozen=True, eq=False)
class MeanGuide:
    """Of the even part of r over pairs the sum, whitened, and moments of its moves W r; and the rows that were read."""

    total: Floats
    moved: Moments
    rows_read: int

    @classmethod
    def of(cls, anchor: Anchor, found: Floats, rows_read: int) -> MeanGuide:
        """From u, r(u) and r(-u), (pairs, 3, d)."""
        even = (found[:, 1] + found[:, 2]) / 2
        return cls(even.sum(axis=0), Moments.of(anchor.displacements(even)), rows_read)

    def plus(self, other: MeanGuide) -> MeanGuide:
        return MeanGuide(self.total + other.total, self.moved.merge(other.moved), self.rows_read + other.rows_read)

    @property
    def is_finite(self) -> bool:
        return bool(np.isfinite(self.total).all() and np.isfinite(self.moved.sum2).all())

    def known_by(self, anchor: Anchor) -> Anchor:
        """The anchor with the average as it was estimated."""
        mean = self.total / self.moved.count
        return replace(anchor, mean_gradient=anchor.whitener.times(anchor.displacements(mean)))

    def errors(self, anchor: Anchor) -> tuple[Floats, ...]:
        """Standard errors of the control's means for the mean of every parameter, in its sds."""
        return (np.sqrt(self.moved.variance / self.moved.count) / anchor.sd,)

    def values(self, size: int, pairs: tuple[tuple[int, int], ...]) -> Moments:
        """C(u, r) of so many observables, of which the parameters themselves come first and no other is controlled."""
        beyond, known = (0, size - len(self.moved.mean)), self.moved
        mean, *sums = (np.pad(part, beyond) for part in (known.mean, known.sum2, known.sum3, known.sum4))
        return Moments(known.count, mean, sums[0], sums[1], sums[2], pairs, np.zeros(len(pairs)))


@dataclass(frozen=True, eq=False)
class GuidedLevel:
    """The Gaussian's own expectations, with the error of a guide beside theirs: a `GaussianLevel`."""

    level: GaussianLevel
    guide: Moments

    @property
    def draws(self) -> int:
        return self.guide.count

    @property
    def mean(self) -> Floats:
        return self.level.mean

    @property
    def _scale(self) -> float:
        """Of a draw of the Gaussian's, as if there were as many as pairs."""
        return self.draws / max(self.level.draws, 1) if self.level.draws else 0.0

    @property
    def variance(self) -> Floats:
        return self.guide.variance + self._scale * self.level.variance

    @property
    def covariance(self) -> Floats:
        return self.guide.covariance + self._scale * self.level.covariance

    @property
    def kurtosis(self) -> Floats:
        return self.level.kurtosis

    def extended(self, draws: float) -> Any:
        """More draws of the Gaussian, where it has any; pairs stay what they are."""
        if not self.level.draws:
            return self
        further = self.level.extended(self.level.draws * max(draws / self.draws, 1.0))
        return self if further is self.level else replace(self, level=further)


def guided_level(
    level: GaussianLevel, guide: Guide | MeanGuide, target: Target, estimands: Estimands, anchor: Anchor, units: Any
) -> GuidedLevel:
    """C(u, r) of every observable at every pair, as moments."""
    if isinstance(guide, MeanGuide):
        return GuidedLevel(level, guide.values(len(level.mean), estimands.pairs))
    nowhere = np.zeros_like(guide.points)
    with jax.enable_x64(True), np.errstate(all="ignore"):
        parts = target, estimands.observables, anchor.mode, units
        straight = np.asarray(slopes_along(*parts, nowhere, anchor.displacements(guide.even)))
        bent = np.asarray(bends_along(*parts, anchor.displacements(guide.points), anchor.displacements(guide.odd)))
    found = np.nan_to_num(straight + bent / 2)
    return GuidedLevel(level, Moments.of(found, estimands.pairs))
