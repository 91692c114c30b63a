"""Ends of intervals of effects that are parameters: many numbers that are no lines, each normal given a few others.

    b = c . L K_j^-T v_j = a_j(s) . v_j,       s the scales, correlations and noise that L and K_j are made of
    P(b <= q) = E Phi((q - a_j(s) . m_j(s)) / |a_j(s)|_S)

Under the Gaussian v_j is normal given s, with a mean m_j that is linear in s and a covariance S; so is the last noise
of a path, and what is given to draws with weights (`projections`). So the probability is an expectation over s alone,
of something smooth: of the signed ensemble as for a line, with s drawn where that one has its noise. All effects are
read off the same points, some effects at a time, in NumPy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from tallbayes.estimator.levels import Stream
from tallbayes.moments import Floats
from tallbayes.posterior.coordinates import STRETCHED, Reading, ReportedLine
from tallbayes.posterior.posterior import GIVEN_NOISE, Posterior
from tallbayes.posterior.projections import INDICATOR_RATE, LEAST_ERROR
from tallbayes.posterior.telescoping import combine, differences
from tallbayes.structure import Structure
from tallbayes.weighing.weights import Weights

# Draws of s under the Gaussian, in opposite pairs; numbers of all points and effects, but paths by level.
BASE_PAIRS, MOST_NUMBERS, FEWEST_PATHS = 1_024, 2**25, 64
TOGETHER = 32
STEPS, EXACT, WIDEST = 24, 1e-7, 12.0


class EffectEnds(NamedTuple):
    """Quantiles, (probabilities, effects), and their Monte Carlo errors."""

    value: Floats
    error: Floats


@dataclass(frozen=True, eq=False)
class _Effects:
    """Numbers c . b of some levels: c (n, q), where v stands in u (n, q), and C of the levels (n, q, q); and of s its
    lines in u: scales, correlations, noise."""

    weights: Floats
    places: np.ndarray
    information: Floats
    reading: Reading
    scales: tuple[int, ...]
    correlations: tuple[int, ...]
    noise: tuple[int, ...]

    def some(self, part: slice) -> _Effects:
        own = self.weights[part], self.places[part], self.information[part]
        return replace(self, weights=own[0], places=own[1], information=own[2])

    @property
    def given(self) -> list[int]:
        """Where s stands in u."""
        return [int(np.argmax(self._line(column).direction)) for column in self._columns]

    @property
    def _columns(self) -> tuple[int, ...]:
        return (*self.scales, *self.correlations, *self.noise)

    def _line(self, column: int) -> ReportedLine:
        line = self.reading.line(column)
        assert line is not None
        return line

    def coefficients(self, s: Floats) -> Floats:
        """a(s), (points, n, q)."""
        counts = np.cumsum([0, len(self.scales), len(self.correlations)])
        values = [self._line(column).at(s[:, k]) for k, column in enumerate(self._columns)]
        scales, partials = values[: counts[1]], values[counts[1] : counts[2]]
        per_noise = 1 / values[-1] ** 2 if self.noise else np.ones(len(s))
        information = self.information * per_noise[:, None, None, None]
        root = _root(np.stack(scales, axis=1), partials)[:, None]
        if len(scales) == 1:
            inner = np.sqrt(1 + root[..., 0] ** 2 * information[..., 0])
            return np.asarray(self.weights * root[..., 0] / inner)
        inner = np.eye(len(scales)) + np.swapaxes(root, -1, -2) @ information @ root
        lower = np.linalg.cholesky(inner)
        along = np.einsum("nq,mnqr->mnr", self.weights, np.broadcast_to(root, lower.shape))
        # a = (c . L) K^-T
        return np.asarray(np.linalg.solve(lower, along[..., None])[..., 0])


def _root(scales: Floats, partials: list[Floats]) -> Floats:
    """L (points, q, q), as `model.groups.terms` has it."""
    size = scales.shape[1]
    root, used = np.zeros((len(scales), size, size)), 0
    for j in range(size):
        left = np.ones(len(scales))
        for k in range(j if partials else 0):
            partial = partials[used + k]
            root[:, j, k], left = partial * left, left * np.sqrt(1 - partial**2)
        used += j
        root[:, j, j] = left
    return scales[:, :, None] * root


@dataclass(frozen=True, eq=False)
class _Cloud:
    """Points (paths, stops and draws of the noise, sides): what is quiet of them, (m, d), and the noise of s, (m, k);
    by how much noise spreads, and whether it has the Gaussian's own correlations."""

    shape: tuple[int, int, int]
    quiet: Floats
    noise: Floats
    spread: float
    whitened: bool


@dataclass(frozen=True, eq=False)
class _Clouds:
    """Of the Gaussian, if it is taken, and of every level."""

    base: _Cloud | None
    levels: list[_Cloud]
    weights: Weights | None

    @property
    def every(self) -> list[_Cloud]:
        return self.levels if self.base is None else [self.base, *self.levels]

    @property
    def signs(self) -> Floats:
        """What each point counts."""
        parts = [] if self.base is None else [np.full(self.base.shape, 1 / self.base.shape[0])]
        for number, level in enumerate(self.levels):
            paths, draws, sides = level.shape
            sign = np.full(level.shape, 1 / (paths * draws))
            if self.weights is not None:
                sign *= (self.weights.posterior - self.weights.gaussian)[:, None, None]
            else:
                sign[..., 1:] = 0.0 if number == 0 and self.base is None else -sign[..., 1:] / max(sides - 1, 1)
            parts.append(sign)
        return np.concatenate([part.ravel() for part in parts])


def effect_ends(posterior: Posterior, places: range, p: Floats, mean: Floats, sd: Floats) -> EffectEnds | None:
    """Quantiles of the effects that are reported at these places, near a normal law's; None where they are something
    else, or where the Gaussian does not know their correlations."""
    anchor, effects = posterior.anchor, _effects_at(posterior.reading, places)
    if effects is None or not isinstance(anchor.precision, np.ndarray) or anchor.is_diagonal:
        return None
    clouds = _clouds(posterior, effects.given, MOST_NUMBERS // len(places))
    found = []
    for start in range(0, len(places), TOGETHER):
        part = slice(start, start + TOGETHER)
        found.append(_some_ends(posterior, effects.some(part), clouds, p, mean[part], sd[part]))
    return EffectEnds(*(np.concatenate(each, axis=1) for each in zip(*found, strict=True)))


def _clouds(posterior: Posterior, given: list[int], most: int) -> _Clouds:
    """With as many paths of each level as can be afforded."""
    anchor, weights = posterior.anchor, posterior.weighted
    root = np.linalg.cholesky(anchor.covariance[np.ix_(given, given)])
    sizes = [points.shape[:3] for points in posterior.points]
    share = min(1.0, most / sum(2 * paths * stops * sides for paths, stops, sides in sizes))
    levels = []
    for level, points in enumerate(posterior.points):
        count = min(len(points), max(FEWEST_PATHS, int(share * len(points))))
        # Of level 0 what is taken off is one path.
        quiet = points[:count, :, : 2 if level == 0 else None].astype(np.float64)
        _, stops, sides, d = quiet.shape
        if weights is not None:
            weights = weights.first(count)
            nothing = np.zeros((count, len(given)))
            levels.append(_Cloud((count, 1, 1), quiet.reshape(-1, d), nothing, GIVEN_NOISE, True))
            continue
        normals = posterior.generator(Stream.EXPECTATION, level).standard_normal((count, stops, len(given)))
        noise = posterior.spreads[level] * (normals @ root.T if posterior.whitened else normals)
        pairs = np.repeat(np.concatenate([noise, -noise], axis=1), sides, axis=1).reshape(-1, len(given))
        twice = np.concatenate([quiet, quiet], axis=1).reshape(-1, d)
        levels.append(_Cloud((count, 2 * stops, sides), twice, pairs, posterior.spreads[level], posterior.whitened))
    base = None
    if posterior.laplace:
        normals = posterior.generator(Stream.GAUSSIAN_DRAWS).standard_normal((BASE_PAIRS, 1, len(given))) @ root.T
        both = np.concatenate([normals, -normals], axis=1).reshape(-1, len(given))
        base = _Cloud((BASE_PAIRS, 2, 1), np.zeros((1, len(anchor.mode))), both, 1.0, True)
        base = replace(base, shape=(2 * BASE_PAIRS, 1, 1))
    return _Clouds(base, levels, weights)


def _laws(posterior: Posterior, effects: _Effects, cloud: _Cloud) -> tuple[Floats, Floats]:
    """Centre and spread of every effect at every point, (m, n), given s and all that is quiet."""
    anchor, given, places = posterior.anchor, effects.given, effects.places
    coefficients = effects.coefficients(anchor.mode[given] + cloud.quiet[:, given] + cloud.noise)
    own = np.broadcast_to(np.eye(places.shape[1]), (len(places), *[places.shape[1]] * 2))
    v = anchor.mode[places] + cloud.quiet[:, places]
    if cloud.whitened:
        covariance = anchor.covariance
        own = covariance[places[:, :, None], places[:, None, :]]
        if np.any(cloud.noise):
            across = covariance[places[:, :, None], given]
            slope = across @ np.linalg.inv(covariance[np.ix_(given, given)])
            v = v + np.einsum("mk,nqk->mnq", cloud.noise, slope)
            own = own - slope @ np.swapaxes(across, 1, 2)
    spread = np.einsum("mnq,nqr,mnr->mn", coefficients, own, coefficients)
    return np.sum(coefficients * v, axis=2), cloud.spread * np.sqrt(spread)


def _some_ends(
    posterior: Posterior, effects: _Effects, clouds: _Clouds, p: Floats, mean: Floats, sd: Floats
) -> EffectEnds:
    laws = [_laws(posterior, effects, cloud) for cloud in clouds.every]
    centre, spread, signs = np.concatenate([c for c, _ in laws]), np.concatenate([s for _, s in laws]), clouds.signs
    q = mean + sd * ndtri(p)[:, None]
    low, high = q - WIDEST * sd, q + WIDEST * sd
    for _ in range(STEPS):
        chance, density = _chance_and_density(q, centre, spread, signs)
        gap = chance - p[:, None]
        if np.all(np.abs(gap) < EXACT):
            break
        low, high = np.where(gap < 0, q, low), np.where(gap < 0, high, q)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            step = q - gap / density
        q = np.where((step > low) & (step < high), step, (low + high) / 2)
    found = _error_of_chance(posterior, clouds, laws, q, p)
    # To the side where the probability changes more slowly.
    beside = [_chance_and_density(q + sign * found / density, centre, spread, signs)[1] for sign in (-1, 1)]
    least = np.minimum(np.minimum(*beside), density)
    inside = (p[:, None] > found) & (1 - p[:, None] > found) & (least > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.where(inside, found / least, np.inf)
    return EffectEnds(q, error + posterior.rungs.left * sd)


def _chance_and_density(q: Floats, centre: Floats, spread: Floats, signs: Floats) -> tuple[Floats, Floats]:
    """P(b <= q) and the density at q (probabilities, effects)."""
    t = (q[:, None] - centre) / spread
    density = np.exp(-0.5 * t**2) / (spread * np.sqrt(2 * np.pi))
    return np.einsum("m,kmn->kn", signs, ndtr(t)), np.einsum("m,kmn->kn", signs, density)


def _error_of_chance(
    posterior: Posterior, clouds: _Clouds, laws: list[tuple[Floats, Floats]], q: Floats, p: Floats
) -> Floats:
    """Of P(b <= q): Monte Carlo errors of all parts, what the noise given to weighted draws may do, and how far it is
    from p."""

    def values(law: tuple[Floats, Floats], wider: float = 1.0) -> Floats:
        """(points, probabilities and effects)"""
        centre, spread = law
        return np.moveaxis(ndtr((q[:, None] - centre) / (wider * spread)), 0, 1).reshape(len(centre), -1)

    alone = clouds.base is None
    start, variance = np.zeros(q.size), np.zeros(q.size)
    if not alone:
        pairs = values(laws[0]).reshape(-1, 2, q.size).mean(axis=1)
        start, variance = pairs.mean(axis=0), pairs.var(axis=0, ddof=1) / len(pairs)
    own = laws if alone else laws[1:]

    def samples(wider: float = 1.0) -> list[Floats]:
        parts = [values(law, wider).reshape(*cloud.shape, -1) for law, cloud in zip(own, clouds.levels, strict=True)]
        return [differences(each, number == 0 and alone, weights=clouds.weights) for number, each in enumerate(parts)]

    rungs = posterior.rungs.along(None)
    rate = min(INDICATOR_RATE, rungs.variance_rate)
    parts = samples()
    found = combine("ends", Structure.leaf((q.size,)), parts, rungs, start, variance, rate=rate)
    blur: Floats | float = 0.0
    if clouds.weights is not None:
        blur = np.abs(samples(2**0.5)[0].mean(axis=0) - parts[0].mean(axis=0))
    error = np.hypot(found.flat_standard_error, found.flat_bias_bound + blur).reshape(q.shape)
    return np.maximum(error, LEAST_ERROR * (p * (1 - p))[:, None]) + np.abs(
        found.flat_value.reshape(q.shape) - p[:, None]
    )


def _effects_at(reading: Reading | None, places: range) -> _Effects | None:
    if reading is None:
        return None
    first, start = 0, 0
    for part in reading.parts:
        columns = range(first, first + part.theta_size)
        found = _columns(reading, places)
        if part.kind == STRETCHED and found is not None and np.all(np.isin(found[0], columns)):
            break
        first, start = first + part.theta_size, start + part.size
    else:
        return None
    levels, size = part.shape
    row, column, value = found[1], found[0] - first, found[2]
    level = np.full(len(places), -1)
    level[row] = column // size
    if np.any(level < 0) or np.any(level[row] != column // size):
        return None
    weights = np.zeros((len(places), size))
    np.add.at(weights, (row, column % size), value)
    known = (
        np.reshape(part.numbers[3:], (levels, size, size)) if len(part.numbers) > 3 else np.zeros((levels, size, size))
    )
    scales, correlations, noise = (int(each) for each in part.numbers[:3])
    pairs = size * (size - 1) // 2
    return _Effects(
        weights,
        start + size * level[:, None] + np.arange(size),
        known[level],
        Reading(reading.structure, reading.parts),
        tuple(range(scales, scales + size)),
        tuple(range(correlations, correlations + pairs)) if correlations >= 0 else (),
        (noise,) if noise >= 0 else (),
    )


def _columns(reading: Reading, places: range) -> tuple[np.ndarray, np.ndarray, Floats] | None:
    """Columns of theta, places among these, and values, of the numbers that are reported there."""
    if reading.entries is None:
        return np.arange(places.start, places.stop), np.arange(len(places)), np.ones(len(places))
    if reading.offset is not None and np.any(reading.offset[places.start : places.stop]):
        return None
    entries = reading.entries
    mine = (entries.row >= places.start) & (entries.row < places.stop)
    return entries.column[mine], entries.row[mine] - places.start, entries.value[mine]
