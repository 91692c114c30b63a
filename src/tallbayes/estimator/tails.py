"""Tails: a variance that no sample can hide.

Level 0 samples g(z) - g(u), z a path of the posterior and u the Gaussian path on the same noise. Whatever couples them,

    Var [g(z) - g(u)] >= W_2^2 - (E_F g - E_G g)^2,   W_2^2 = integral_0^1 [F^-1(p) - G^-1(p)]^2 dp

with F and G the laws of g under the posterior and under the Gaussian, which a probe's weights know far beyond what a
few dozen paths can see. What batches of rows add to it comes from a probe too: noise of covariance S / n a step leaves

    (1 - e^-h) / (1 + e^-h) S / n

in z. An estimate of V_0 is never taken to be less than the sum of both. A probe is made in `probes`, and read for the
quantities of a run in `tail_variances`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.estimator.allocation import Least
from tallbayes.moments import Floats

# Where a single point holds so much of the posterior's weight, the weights say nothing.
HEAVIEST_POINT = 0.25


@dataclass(frozen=True, eq=False)
class Probe:
    """Whitened points with rho and r there, and the log of q / phi; points on rays beside them, (rays, radii, d).

    `noise` is S; rows_read counts what all of it took.
    """

    points: Floats
    log_ratio: Floats
    remainder: Floats
    log_proposal: Floats
    rays: Floats
    ray_log_ratio: Floats
    noise: Floats
    rows_read: int

    def weights(self) -> tuple[Floats, Floats]:
        """Of every point, for the posterior and for the Gaussian; each adds up to 1."""
        return _normalised(self.log_ratio - self.log_proposal), _normalised(-self.log_proposal)

    def narrowed(self, wide: Anchor, places: np.ndarray, narrow: Anchor) -> Probe:
        """The same of some parameters alone, whitened by their own Gaussian."""
        turn = narrow.factor.T @ wide.whitening[places]
        points, remainder, rays = (each @ turn.T for each in (self.points, self.remainder, self.rays))
        return replace(self, points=points, remainder=remainder, rays=rays, noise=turn @ self.noise @ turn.T)


def _normalised(log_weights: Floats) -> Floats:
    finite = np.where(np.isfinite(log_weights), log_weights, -np.inf)
    weights = np.exp(finite - finite.max())
    return weights / weights.sum()


@dataclass(frozen=True, eq=False)
class Tails:
    """By component: how far posterior and Gaussian are apart, the variance by rows for S itself, and whether the
    variance has no end."""

    apart: Least
    noise: Floats
    endless: np.ndarray

    def least(self, first_step: float, batch_size: int, length: int, averaged: float) -> Least:
        """The least that V_0 can be; `averaged` is what a window leaves of a variance."""
        decay = np.exp(-first_step)
        missing = max(0.0, 1.0 / batch_size - 1.0 / length) if batch_size else 0.0
        by_rows = (1 - decay) / (1 + decay) * missing * self.noise
        return Least(averaged * (self.apart.variance + by_rows), self.apart.kurtosis)


@dataclass(frozen=True, eq=False)
class Probed:
    """Quiet ends of level 0 as a probe knows them: of the posterior and of the Gaussian, with weights for each.

    `share` is what is left of a variance in a mean over a path's stops.
    """

    points: tuple[Floats, Floats]
    weights: tuple[Floats, Floats]
    share: float = 1.0

    def least(self, there: Floats, here: Floats) -> Least:
        """The least variance of what level 0 samples, by column of a function's values at both."""
        columns = zip(there.T, here.T, strict=True)
        first, second = self.weights
        found = _by_column([coupled(one, first, two, second) for one, two in columns])
        return found._replace(variance=self.share * found.variance)


def quiet_ends(probe: Probe, anchor: Anchor, spread: float, stops: int) -> Probed | None:
    """One step on from the probe's points, e^-h u + (1 - e^-h) r(u), as displacements; its noise has sd `spread`."""
    weights = probe.weights()
    if weights[0].max() > HEAVIEST_POINT:
        return None
    decay = np.sqrt(max(1 - spread**2, 0.0))
    pushed = np.where(weights[0][:, None] > 0, probe.remainder, 0.0)
    ends = decay * probe.points + (1 - decay) * pushed, decay * probe.points
    return Probed((anchor.displacements(ends[0]), anchor.displacements(ends[1])), weights, 1 / stops)


def transport(values: Floats, first: Floats, second: Floats) -> Least:
    """The least variance of a difference between two laws on the same rows, by column."""
    return _by_column([coupled(column, first, column, second) for column in values.T])


def _by_column(found: list[tuple[float, float]]) -> Least:
    variance, kurtosis = np.array(found, float).reshape(-1, 2).T
    return Least(variance, kurtosis)


def coupled(one: Floats, one_weights: Floats, two: Floats, two_weights: Floats) -> tuple[float, float]:
    """Variance and kurtosis of the difference of two samples with weights, quantile by quantile.

    Each half is coupled from its own end inwards, so that the weights of a tail lose no digits.
    """
    sides = [_sorted(one, one_weights), _sorted(two, two_weights)]
    halves = [_half(*sides[0], *sides[1]), _half(*(part[::-1] for side in sides for part in side))]
    widths, apart = (np.concatenate(each) for each in zip(*halves, strict=True))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        square = (apart - widths @ apart) ** 2
        variance = widths @ square
        kurtosis = widths @ square**2 / variance**2
    known = np.isfinite(variance) and np.isfinite(kurtosis)
    return (float(variance), float(kurtosis)) if known else (0.0, 3.0)


def _sorted(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Without points that no weight falls on, where a function may be anything."""
    counts = (weights > 0) & np.isfinite(values)
    order = np.flatnonzero(counts)[np.argsort(values[counts], kind="stable")]
    return values[order], weights[order]


def _half(one: Floats, one_weights: Floats, two: Floats, two_weights: Floats) -> tuple[Floats, Floats]:
    """Over the half of the mass that comes first: parts of it, and how far apart the two are there."""
    upto = [np.minimum(np.cumsum(weights), 0.5) for weights in (one_weights, two_weights)]
    ends = np.sort(np.concatenate([*upto, [0.5]]))
    widths = np.diff(ends, prepend=0.0)
    middle = ends - widths / 2
    first, second = (np.minimum(np.searchsorted(each, middle), len(each) - 1) for each in upto)
    return widths, one[first] - two[second]
