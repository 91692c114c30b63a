"""Tails: a variance that no sample can hide, for every component of the answer.

Level 0 samples g(z) - g(u), z a path of the posterior and u the Gaussian path on the same noise. Whatever couples them,

    Var [g(z) - g(u)] >= W_2^2 - (E_F g - E_G g)^2,   W_2^2 = integral_0^1 [F^-1(p) - G^-1(p)]^2 dp

with F and G the laws of g under the posterior and under the Gaussian, which a probe's weights know far beyond what a
few dozen paths can see. What batches of rows add to it comes from a probe too: noise of covariance S / n a step leaves

    (1 - e^-h) / (1 + e^-h) S / n

in z, and E (grad g . W e)^2 of that in g. An estimate of V_0 is never taken to be less than the sum of both, and the
levels above it not to be less than what a level below predicts. Where the integral of g^2 over the posterior grows as
fast as the logarithm of the radius or faster, out to where no path has been, there is no variance to speak of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.allocation import Least
from tallbayes.anchor import Anchor
from tallbayes.model import Target
from tallbayes.moments import Floats
from tallbayes.probes import RADII, Probe
from tallbayes.quantities import Estimands, observed_values

NOISE_DRAWS = 256
# Where a single point holds so much of the posterior's weight, the weights say nothing.
HEAVIEST_POINT = 0.25
# A shell twice as far out holds so much of what the one before held, where the integral has no end.
ENDLESS = 0.75
WORTH_A_LOOK = 1e-3


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


def tails_of(target: Target, estimands: Estimands, anchor: Anchor, units: object, probe: Probe) -> Tails:
    """What the probe says of every component."""
    components = Components.of(estimands, probe)
    posterior, gaussian = probe.weights()
    read = Reader(target, estimands, anchor, units)
    values = components(read(probe.points)[0])
    trusted = posterior.max() < HEAVIEST_POINT
    nothing = Least(np.zeros(values.shape[1]), np.full(values.shape[1], 3.0))
    apart = transport(values, posterior, gaussian) if trusted else nothing
    far = components(read(probe.rays.reshape(-1, probe.points.shape[1]))[0])
    body = np.maximum(apart.variance, weighted_variance(values, gaussian))
    endless = _endless(probe, far, components(read.origin), body)
    # What has no variance has no least one either: it is told by other means.
    apart = Least(np.where(endless, 0.0, apart.variance), np.where(endless, 3.0, apart.kurtosis))
    return Tails(apart, _noise(read, components, probe), endless)


@dataclass(frozen=True, eq=False)
class Components:
    """Components of the answer as functions of what is read: a parameter, a square about its mean, or a function."""

    estimands: Estimands
    mean: Floats
    sd: Floats

    @classmethod
    def of(cls, estimands: Estimands, probe: Probe) -> Components:
        d = len(estimands.mode) if estimands.observables.moments else 0
        return cls(estimands, np.zeros(d), estimands.laplace_sd[:d])

    def __call__(self, observed: Floats) -> Floats:
        d = len(self.mean)
        parts = [
            (observed[:, :d] - self.mean) ** 2 / (2 * self.sd)
            if quantity.kind == "sd"
            else observed[:, quantity.columns]
            for quantity in self.estimands.quantities
        ]
        return np.concatenate(parts, axis=1)


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


def weighted_variance(values: Floats, weights: Floats) -> Floats:
    mean = weights @ values
    return weights @ (values - mean) ** 2


@dataclass(frozen=True, eq=False)
class Reader:
    """Observables at whitened points."""

    target: Target
    estimands: Estimands
    anchor: Anchor
    units: object

    def __call__(self, points: Floats, directions: Floats | None = None) -> tuple[Floats, Floats]:
        moves = self.anchor.displacements(points)
        along = np.zeros_like(moves) if directions is None else self.anchor.displacements(directions)
        parts = self.target, self.estimands.observables, self.anchor.mode, moves, along, self.units
        with np.errstate(all="ignore"):
            return observed_values(*parts)

    @property
    def origin(self) -> Floats:
        return self(np.zeros((1, len(self.anchor.mode))))[0]


def _noise(read: Reader, components: Components, probe: Probe) -> Floats:
    """E (grad g . W e)^2 over u ~ N(0, I) and e ~ N(0, S)."""
    rng = np.random.default_rng(2)
    values, vectors = np.linalg.eigh((probe.noise + probe.noise.T) / 2)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    half = rng.standard_normal((NOISE_DRAWS // 2, len(values)))
    errors = rng.standard_normal((NOISE_DRAWS, len(values))) @ root.T
    points = np.concatenate([half, -half])
    step = 1e-6
    there, slope = read(points, errors)
    moved = components(there + step * slope) - components(there)
    square = np.mean((moved / step) ** 2, axis=0)
    return np.where(np.isfinite(square), square, 0.0)


def _endless(probe: Probe, far: Floats, origin: Floats, body: Floats) -> np.ndarray:
    """Whether along some ray a shell twice as far out holds about as much of g^2 pi as the one before, or more."""
    rays, radii = probe.ray_log_ratio.shape
    log_density = probe.ray_log_ratio - RADII**2 / 2
    with np.errstate(all="ignore"):
        size = (
            2 * np.log(np.abs(far - origin)).reshape(rays, radii, -1) + log_density[..., None] + np.log(RADII)[:, None]
        )
        held = np.exp(np.minimum(size, 700.0))
        near, beyond = held[:, :2].sum(axis=1) + held[:, 2] / 2, held[:, 2] / 2 + held[:, 3:].sum(axis=1)
        counts = near + beyond > WORTH_A_LOOK * np.sqrt(2 * np.pi) * body
    return np.any(counts & ~(beyond < ENDLESS * near), axis=0)
