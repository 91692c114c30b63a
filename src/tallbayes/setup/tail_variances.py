"""Tail variances: what a probe says of every component of a run's answer.

    W_2^2 between the laws of g, and E (grad g . W e)^2 over u ~ N(0, I) and e ~ N(0, S)

Where the integral of g^2 over the posterior grows as fast as the logarithm of the radius or faster, out to where no
path has been, there is no variance to speak of.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.probe import HEAVIEST_POINT, Probe
from tallbayes.anchor.probing import RADII
from tallbayes.estimator.allocation import Least
from tallbayes.estimator.estimands import Estimands
from tallbayes.estimator.tails import Tails, transport
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.setup.quantities import LAPLACE_DRAWS, observed_values

NOISE_DRAWS = 256
# A shell twice as far out holds so much of what the one before held, where the integral has no end.
ENDLESS = 0.75
WORTH_A_LOOK = 1e-3
# Tails of 2 or less have no variance; estimated from 200 of 65,536 draws, they are known to a tenth.
HEAVY_TAIL = 1.5
FIRST_DRAWS, MANY_DRAWS = 2**12, 2**16
# A value hundreds of times closer to a pole is hundreds of times as large, and next to any other point about the same.
POLES_WITHIN, STEPS_ALONG, GROWS, MOST_LOOKED_AT = 6.0, 1 + LAPLACE_DRAWS, 4.0, 16


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
    endless = np.zeros(values.shape[1], bool)
    if not target.log_concave:
        # A log-concave density falls at least exponentially; what a sample of the rows says far out is noise beside it.
        endless = _endless(probe, far, components(read.origin), body)
    if estimands.observables.functions:
        endless = endless | _heavy_by_itself(read, components) | _has_pole(read, components, probe)
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


@np.errstate(over="ignore", invalid="ignore")
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


def _heavy_by_itself(read: Reader, components: Components) -> np.ndarray:
    """Whether a function's values at Gaussian draws have a tail of 3/2 or less."""
    rng = np.random.default_rng(3)
    for draws, highest in ((FIRST_DRAWS, 2 * HEAVY_TAIL), (MANY_DRAWS, HEAVY_TAIL)):
        heavy = tail_index(components(read(rng.standard_normal((draws, len(read.anchor.mode))))[0])) < highest
        if not np.any(heavy):
            break
    return heavy


def _has_pole(read: Reader, components: Components, probe: Probe) -> np.ndarray:
    """Whether along some line within six sds the largest value grows without bound as one looks closer."""
    lines = probe.rays[: len(probe.rays) // 2, 0] / RADII[0]
    steps = np.linspace(-POLES_WITHIN, POLES_WITHIN, STEPS_ALONG)
    found = np.zeros(read.estimands.size, bool)
    for line in lines:
        size = np.abs(components(read(steps[:, None] * line)[0]))
        for column in np.flatnonzero(~found)[:MOST_LOOKED_AT]:
            place = int(np.argmax(np.nan_to_num(size[:, column], posinf=np.inf)))
            if not 0 < place < STEPS_ALONG - 1:
                continue
            closer = np.linspace(steps[place - 1], steps[place + 1], STEPS_ALONG)
            near = np.abs(components(read(closer[:, None] * line)[0])[:, column])
            found[column] = not np.nanmax(near) <= GROWS * size[place, column]
    return found


def tail_index(values: Floats) -> Floats:
    """alpha of P(|g| > x) ~ x^-alpha, by Hill's estimator from the last of the values; infinite where they do not vary.

    >>> round(float(tail_index(1 / np.random.default_rng(0).uniform(-1, 1, (65_536, 1)))[0]))
    1
    """
    count = max(16, len(values) // 328)
    apart = np.sort(np.abs(values - np.median(values, axis=0)), axis=0)[-count - 1 :]
    with np.errstate(all="ignore"):
        mean = np.mean(np.log(apart[1:] / apart[0]), axis=0)
        return np.where(mean > 0, 1 / mean, np.inf)


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
