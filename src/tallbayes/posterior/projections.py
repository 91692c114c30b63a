"""Projections: the law of one direction, x = c . u, from the signed ensemble, without a bias of smoothing.

    F(q) = Phi((q - m) / sigma) + sum_l mean_i [ Phi((q - x_il) / s_l) - mean_c Phi((q - x_ilc) / s_l) ]

x_il is where the fine path would have ended without the noise of its last step, x_ilc the same of the coarse paths (at
level 0 of the Gaussian path): that noise moves all of them alike, by a Gaussian of standard deviation s_l, so that the
probability of ending below q given all else is Phi. It is an expectation of the indicator itself, not of a smoothed
one in its place; its variance falls like 2^(-3l/2), that of the bare indicator like 2^-l.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tallbayes.anchor.probe import Probed
from tallbayes.estimator.allocation import Least
from tallbayes.estimator.estimates import Estimate
from tallbayes.moments import Floats
from tallbayes.posterior.coordinates import ReportedLine
from tallbayes.posterior.telescoping import Rungs, combine, differences, scaled
from tallbayes.structure import Structure
from tallbayes.weighing.weights import Weights

INDICATOR_RATE = 1.5
NEWTON_STEPS = 40
EXACT = 1e-8
LEAST_ERROR = 1e-4


@dataclass(frozen=True, eq=False)
class Projection:
    """Laplace's mean and sd of x, and by level x of the quiet ends (paths, 1 + coarse paths) and their spread.

    Without `laplace` level 0 stands for itself. `probed` is x at the quiet ends of level 0 as a probe knows them. Draws
    with `weights` have no last noise, and are given a little: what that does is of second order in the spread, and
    known by that of a spread of sqrt 2 as much.
    """

    mean: float
    sd: float
    points: tuple[Floats, ...]
    spreads: tuple[float, ...]
    laplace: bool
    probed: Probed | None = None
    weights: Weights | None = None

    def cdf(self, q: Floats) -> tuple[Floats, list[Floats]]:
        """P(x <= q) under Laplace, and the samples (paths, len(q)) of what each level adds."""
        from scipy.special import ndtr

        base = ndtr((q - self.mean) / self.sd) if self.laplace else np.zeros_like(q)
        return base, self._levels(lambda t, spread: ndtr(t), q)

    def least(self, q: Floats, density: bool = False, weights: Floats | None = None) -> Least | None:
        """The least variance of level 0, of the probability or of the density, at every q; or of a sum over all q."""
        from scipy.special import ndtr

        if self.probed is None:
            return None
        spread = self.spreads[0]
        there, here = ((q - self.mean - each[:, None]) / spread for each in self.probed.points)
        values = [_normal_density(t) / spread if density else ndtr(t) for t in (there, here)]
        if weights is not None:
            values = [each @ weights[:, None] for each in values]
        return self.probed.least(*values)

    def density(self, q: Floats) -> tuple[Floats, list[Floats]]:
        """The same of the density at q."""
        base = _normal_density((q - self.mean) / self.sd) / self.sd if self.laplace else np.zeros_like(q)
        return base, self._levels(lambda t, spread: _normal_density(t) / spread, q)

    def moments(self) -> tuple[list[Floats], ...]:
        """Samples of what each level adds to the mean and to the mean square of x - mean."""
        start = 0.0 if self.laplace else self.spreads[0] ** 2
        squares = (points**2 + (0.0 if level else start) for level, points in enumerate(self.points))
        return tuple(self._added(each[..., None] for each in readings) for readings in (self.points, squares))

    def _levels(self, function: Callable[[Floats, float], Floats], q: Floats) -> list[Floats]:
        levels = zip(self.points, self.spreads, strict=True)
        return self._added(function((q - self.mean - points[..., None]) / spread, spread) for points, spread in levels)

    def _added(self, readings: Iterable[Floats]) -> list[Floats]:
        alone = not self.laplace
        return [differences(each, level == 0 and alone, weights=self.weights) for level, each in enumerate(readings)]

    def blurred(self, read: Callable[[Projection], tuple[Floats, list[Floats]]]) -> Floats | float:
        """What the noise given to weighted draws may have done to what is read."""
        if self.weights is None:
            return 0.0
        wider = replace(self, spreads=tuple(2**0.5 * spread for spread in self.spreads))
        return np.abs(_total(read(wider)) - _total(read(self)))


def probabilities(projection: Projection, q: Floats, rungs: Rungs, name: str, structure: Structure) -> Estimate:
    """P(x <= q) for every q."""
    q = np.asarray(q, np.float64)
    base, samples = projection.cdf(q)
    rate = min(INDICATOR_RATE, rungs.variance_rate)
    found = combine(name, structure, samples, rungs, base, rate=rate, least=projection.least(q))
    return _allowing(found, projection.blurred(lambda each: each.cdf(q)))


def densities(projection: Projection, q: Floats, rungs: Rungs, name: str, structure: Structure) -> Estimate:
    """The density of x at every q."""
    q = np.asarray(q, np.float64)
    base, samples = projection.density(q)
    rate = min(INDICATOR_RATE - 1, rungs.variance_rate)
    found = combine(name, structure, samples, rungs, base, rate=rate, least=projection.least(q, density=True))
    return _allowing(found, projection.blurred(lambda each: each.density(q)))


def _allowing(found: Estimate, bias: Floats | float) -> Estimate:
    return replace(found, flat_bias_bound=found.flat_bias_bound + bias)


def quantiles(projection: Projection, p: Floats, rungs: Rungs, name: str, structure: Structure) -> Estimate:
    """x with P(x <= q) = p for every p; its errors are as far as those of the probability reach."""
    p = np.asarray(p, np.float64)
    q = _solve(projection, p)
    found = probabilities(projection, q, rungs, name, structure)
    missed = replace(found, flat_bias_bound=found.flat_bias_bound + np.abs(found.flat_value - p))
    stretch = stretches(
        q, p, missed.flat_standard_error + missed.flat_bias_bound, lambda each: _solve(projection, each)
    )
    return replace(scaled(missed, stretch), flat_value=q)


def stretches(q: Floats, p: Floats, error: Floats, quantile: Callable[[Floats], Floats]) -> Floats:
    """How far a quantile moves for an error of its probability, to the side where that is farther.

    Without an end where 0 or 1 lies within the error.
    """
    error = np.maximum(error, LEAST_ERROR * p * (1 - p))
    inside = (p - error > 0) & (p + error < 1)
    held = np.where(inside, error, 0.0)
    farther = np.maximum(quantile(p + held) - q, q - quantile(p - held))
    return np.where(inside, farther / error, np.inf)


def _solve(projection: Projection, p: Floats) -> Floats:
    """Newton's steps between ends that close in."""
    from scipy.special import ndtri

    reach = 1.0 + max((float(np.abs(points).max()) for points in projection.points), default=0.0) / projection.sd
    reach = 12 * projection.sd * max(reach, 1.0)
    lower, upper = np.full(p.shape, projection.mean - reach), np.full(p.shape, projection.mean + reach)
    q = projection.mean + projection.sd * ndtri(p)
    for _ in range(NEWTON_STEPS):
        gap = _total(projection.cdf(q)) - p
        found = np.abs(gap) < EXACT * p * (1 - p)
        if np.all(found):
            break
        lower, upper = np.where(gap < 0, q, lower), np.where(gap < 0, upper, q)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = q - gap / _total(projection.density(q))
        further = np.where((step > lower) & (step < upper), step, (lower + upper) / 2)
        q = np.where(found, q, further)
    return q


def _total(parts: tuple[Floats, Sequence[Floats]]) -> Floats:
    base, samples = parts
    return base + sum(each.mean(axis=0) for each in samples)


def _normal_density(t: Floats) -> Floats:
    return np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)


def on_line(line: ReportedLine, estimate: Estimate) -> Estimate:
    """Quantiles of x as those of the number that the line reports."""
    slope = np.abs(line.slope(estimate.flat_value))
    return replace(scaled(estimate, slope), flat_value=line.at(estimate.flat_value))
