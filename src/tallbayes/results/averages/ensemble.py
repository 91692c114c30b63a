"""Averages at the points of the posterior, and what they say: mean, sd and interval of a contrast, with errors.

    T = A_high - A_low,  or A_high / A_low      at the Gaussian's draws, and at the points of every level

E T and E (T - mu)^2 are the Gaussian's, to second order in closed form and by draws beyond that, and what the signed
ensemble adds. Ends are quantiles of draws with weights; of paths, of which there are few, those of the line of T, which
are known sharply, and what T is beyond its line there under the Gaussian:

    q_T ~ q_line + (q_T - q_line under the Gaussian)

with |E rest - E_Gaussian rest| and a quarter of the difference as bias, the rest being T less its line. Where averages
hang on a sample of rows, all is found anew without each of its groups in turn (the jackknife), and what that scatters
by is added to the standard errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.estimator.allocation import Least
from tallbayes.estimator.estimates import Estimate
from tallbayes.estimator.levels import Stream
from tallbayes.model.links import LINKS
from tallbayes.moments import Floats
from tallbayes.posterior.coordinates import ReportedLine
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.signed_draws import signed_quantiles
from tallbayes.posterior.telescoping import cautious, combine, differences
from tallbayes.results.averages.noise import ENDS, EffectNoise, ends_of_draws, ends_of_paths
from tallbayes.results.averages.sums import GROUPS, Averaged, RowSample, link_terms
from tallbayes.structure import Structure
from tallbayes.weighing.weights import Weights

PAIRS = 4096
BATCHES = 16
PATHS_READ = 2048
POINTS_TOGETHER = 256
# So few groups know the scatter of a sample roughly: t of 15 degrees of freedom over a normal quantile.
ROW_MARGIN = 1.1
NUMBER = Structure.leaf((1,))


class AveragedEnsemble(NamedTuple):
    """Mean, sd, and both ends, with their standard errors and bias bounds, (4,) each."""

    values: Floats
    standard_errors: Floats
    bias_bounds: Floats


@dataclass(frozen=True, eq=False)
class Points:
    """Displacements u - c: of pairs of draws from the Gaussian, and of every level, (paths, stops, sides, D); where a
    probe has been, (points, 2, D) of the posterior and of the Gaussian."""

    posterior: Posterior
    gaussian: Floats
    levels: tuple[Floats, ...]
    probed: tuple[Floats, Floats] | None
    weights: Weights | None = None

    @property
    def count(self) -> int:
        parts = [self.gaussian, *self.levels, *(self.probed or ())]
        return sum(each.size // each.shape[-1] for each in parts)


def points_of(posterior: Posterior, pairs: int = PAIRS, few: tuple[int, int] | None = None) -> Points:
    """Of some paths where there are very many, and of all draws with weights; or of a `few` paths, or such draws."""
    anchor, weights = posterior.anchor, posterior.weighted
    most = len(posterior.points[0]) if weights is not None else PATHS_READ
    if few is not None:
        most = min(most, few[weights is not None])
        weights = None if weights is None else weights.first(most)
    draws = anchor.draws(pairs, posterior.seed)
    gaussian = np.stack([draws, -draws], axis=1) if posterior.laplace else np.zeros((0, 2, len(anchor.mode)))
    levels = []
    for level, points in enumerate(posterior.points):
        quiet = points[:most, :, : 2 if level == 0 else None].astype(np.float64)
        normals = posterior.generator(Stream.PREDICTION, level).standard_normal((*quiet.shape[:2], 1, quiet.shape[3]))
        levels.append(quiet + posterior.noise(level, normals))
    probed = None
    if posterior.probed is not None:
        ends = posterior.probed.points
        noise = posterior.noise(0, posterior.generator(Stream.GAUSSIAN_DRAWS).standard_normal(ends[0].shape))
        probed = tuple(np.stack([each + noise, each - noise], axis=1) for each in ends)
    return Points(posterior, gaussian, tuple(levels), probed, weights)  # type: ignore[arg-type]


class Contrast(NamedTuple):
    """T of averages (..., 2) in the units of the response, and its slopes and bends there."""

    is_ratio: bool
    scale: float
    shift: float

    def __call__(self, averages: Floats) -> Floats:
        low, high = (self.scale * averages[..., side] + self.shift for side in (0, 1))
        return np.asarray(high / low if self.is_ratio else high - low)

    def derivatives(self, averages: Floats) -> tuple[Floats, Floats]:
        """(2,) and (2, 2)."""
        if not self.is_ratio:
            return self.scale * np.array([-1.0, 1.0]), np.zeros((2, 2))
        low, high = (self.scale * averages[side] + self.shift for side in (0, 1))
        slope = np.array([-high / low**2, 1 / low])
        bend = np.array([[2 * high / low**3, -1 / low**2], [-1 / low**2, 0.0]])
        return self.scale * slope, self.scale**2 * bend


@dataclass(frozen=True, eq=False)
class DrawnAverages:
    """T at all points, whole and without each group of the sample of rows: values (..., 1 + groups).

    `value`, `slope` along W's columns and `trace` are of its expansion, `expanded` is that at the Gaussian's draws;
    `weights` are those of draws that have any, and `noise` what is unknown of T given theta, if anything is. Several
    that are `joint` hang on one sample.
    """

    gaussian: Floats
    levels: tuple[Floats, ...]
    probed: tuple[Floats, Floats] | None
    value: float
    slope: Floats
    direction: Floats
    trace: float
    expanded: Floats
    weights: Weights | None = None
    noise: EffectNoise | None = None
    joint: bool = False
    off: float = 0.0

    def minus(self, other: DrawnAverages) -> DrawnAverages:
        """Of the difference of two."""
        pairs = zip(self.levels, other.levels, strict=True)
        probed = None
        apart = np.subtract if self.joint else _apart
        if self.probed is not None and other.probed is not None:
            probed = self.probed[0] - other.probed[0], self.probed[1] - other.probed[1]
        line = self.slope - other.slope, self.direction - other.direction
        parts = self.value - other.value, *line, self.trace - other.trace
        # Groups of two samples are apart, so that one of them is left out at a time.
        return DrawnAverages(
            apart(self.gaussian, other.gaussian),
            tuple(apart(a, b) for a, b in pairs),
            probed,
            *parts,
            self.expanded - other.expanded,
            self.weights,
            None if self.noise is None or other.noise is None else self.noise.minus(other.noise),
            self.joint,
            self.off + other.off,
        )


def _apart(a: Floats, b: Floats) -> Floats:
    whole = a[..., :1] - b[..., :1]
    return np.concatenate([whole, a[..., 1:] - b[..., :1], a[..., :1] - b[..., 1:]], axis=-1)


def contrast_of(points: Points, averaged: Averaged, level: int, contrast: Contrast) -> DrawnAverages:
    """T of one level of rows at all points."""
    sample = averaged.samples[level]
    at = partial(_averages, averaged, level, sample)
    value, slope, bend = averaged.value[level], averaged.slope[level], averaged.bend[level]
    first, second = contrast.derivatives(value)
    columns = points.posterior.anchor.displacements(np.eye(len(points.posterior.anchor.mode)))[:, : slope.shape[1]]
    whole = np.einsum("v,vde->de", first, bend) + slope.T @ second @ slope
    own = first @ slope
    moves = points.gaussian[..., : slope.shape[1]]
    start = float(contrast(value))
    expanded = start + moves @ own + np.sum((moves @ whole) * moves, axis=-1) / 2
    trace = float(np.sum((columns @ whole) * columns))
    probed = None if points.probed is None else tuple(contrast(at(each)) for each in points.probed)
    return DrawnAverages(
        contrast(at(points.gaussian)),
        tuple(contrast(at(each)) for each in points.levels),
        probed,  # type: ignore[arg-type]
        start,
        columns @ own,
        np.concatenate([own, np.zeros(points.gaussian.shape[-1] - len(own))]),
        trace,
        expanded,
        points.weights,
    )


def _averages(averaged: Averaged, level: int, sample: RowSample, points: Floats) -> Floats:
    """A of both sides at displacements (..., D): (..., 1 + groups, 2), whole first."""
    value, slope, bend = averaged.value[level], averaged.slope[level], averaged.bend[level]
    moves = points.reshape(-1, points.shape[-1])[:, : slope.shape[1]]
    second = np.stack([np.sum((moves @ each) * moves, axis=1) / 2 for each in bend], axis=1)
    start = value + moves @ slope.T + second
    by_group = _remainders(averaged.link, sample, moves)
    certain, groups = by_group[:, 0], by_group[:, 1:]
    total = certain + groups.sum(axis=1)
    parts = [total]
    if not sample.is_whole:
        scale = GROUPS / (GROUPS - 1)
        parts += [certain + scale * (groups.sum(axis=1) - groups[:, each]) for each in range(GROUPS)]
    found = start[:, None] + np.stack(parts, axis=1)
    return found.reshape(*points.shape[:-1], *found.shape[1:])


def _remainders(link: str, sample: RowSample, moves: Floats) -> Floats:
    """R of both sides at moves (p, D), by group of the sample: those that are certain, then all others."""
    member = np.zeros((sample.scales.size, GROUPS + 1))
    member[np.arange(len(member)), sample.groups + 1] = sample.scales
    if sample.is_whole:
        member = member[:, :1]
    rows = _padded_rows(sample.a), _padded_rows(sample.eta), _padded_rows(member[None])[0]
    with jax.enable_x64(True):
        placed = tuple(jnp.asarray(each) for each in rows)
        parts = []
        for first in range(0, len(moves), POINTS_TOGETHER):
            some = moves[first : first + POINTS_TOGETHER]
            padded = np.zeros((POINTS_TOGETHER, moves.shape[1]))
            padded[: len(some)] = some
            parts.append(np.asarray(_beyond(link, *placed, jnp.asarray(padded)))[: len(some)])
    found = np.concatenate(parts) if parts else np.zeros((0, member.shape[1], 2))
    return found if not sample.is_whole else np.concatenate([found, np.zeros((len(found), GROUPS, 2))], axis=1)


def _padded_rows(rows: Floats) -> Floats:
    """To a power of two along the second axis, so that few programs serve all."""
    size = 1 << max(rows.shape[1] - 1, 0).bit_length()
    out = np.zeros((rows.shape[0], size, *rows.shape[2:]))
    out[:, : rows.shape[1]] = rows
    return out


@partial(jax.jit, static_argnums=0)
def _beyond(link: str, a: jax.Array, eta: jax.Array, member: jax.Array, moves: jax.Array) -> jax.Array:
    """(p, groups, 2)."""

    def side(rows: jax.Array, centre: jax.Array) -> jax.Array:
        _, slope, bend = link_terms(link, centre)
        move = moves @ rows.T
        rest = LINKS[link].difference(centre[None, None], move[None])[0] - slope * move - bend * move**2 / 2
        return rest @ member

    return jnp.stack([side(a[v], eta[v]) for v in (0, 1)], axis=-1)


def answered(drawn: DrawnAverages, posterior: Posterior) -> AveragedEnsemble:
    """Mean, sd and the ends of a 95% interval."""
    estimates = _estimates(drawn, posterior, 0)
    values: Floats = np.array([each.flat_value[0] for each in estimates[:2]] + estimates[2].flat_value.tolist())
    errors = np.concatenate([each.flat_standard_error for each in estimates])
    bounds: Floats = np.concatenate([each.flat_bias_bound for each in estimates])
    bounds = bounds + drawn.off * np.array([1.0, 0.0, 1.0, 1.0])
    if drawn.noise is not None:
        values, bounds = drawn.noise.shifted(values, np.asarray(bounds))
    others = drawn.gaussian.shape[-1] - 1 if posterior.laplace else drawn.levels[0].shape[-1] - 1
    if others:
        without = np.array([_values_without(drawn, posterior, place) for place in range(1, others + 1)])
        variance = np.zeros(4)
        for own in np.split(without, others // GROUPS):
            variance += (GROUPS - 1) / GROUPS * np.sum((own - own.mean(axis=0)) ** 2, axis=0)
        errors = np.hypot(errors, ROW_MARGIN * np.sqrt(variance))
    return AveragedEnsemble(values, errors, bounds + posterior.rungs.left * values[1])


def _values_without(drawn: DrawnAverages, posterior: Posterior, place: int) -> list[float]:
    mean, sd, ends = _estimates(drawn, posterior, place)
    return [mean.flat_value[0], sd.flat_value[0], *ends.flat_value]


def _estimates(drawn: DrawnAverages, posterior: Posterior, place: int) -> tuple[Estimate, Estimate, Estimate]:
    rungs, weighted = posterior.rungs.along(None), drawn.weights
    gaussian = drawn.gaussian[..., place]
    levels = [each[..., place, None] for each in drawn.levels]
    sides = None if drawn.probed is None else [each[..., 0, None] for each in drawn.probed]
    noise = None if drawn.noise is None else drawn.noise.at(place)

    def least(values: list[Floats] | None) -> Least | None:
        if values is None or posterior.probed is None:
            return None
        return posterior.probed.least(*(each.mean(axis=1) for each in values))

    def found(name: str, values: list[Floats], probed: list[Floats] | None, base: float, rest: Floats) -> Estimate:
        variance = rest.var(ddof=1) / len(rest) if len(rest) > 1 else 0.0
        start = base + (rest.mean() if len(rest) else 0.0)
        alone = not posterior.laplace
        parts = [differences(t, alone and n == 0, weights=weighted) for n, t in enumerate(values)]
        own = cautious(combine(name, NUMBER, parts, rungs, start, variance, least=least(probed)))
        off = 0.0 if weighted is None else np.abs(weighted.ratio_bias(values[0][:, 0, 0]))
        return Estimate(**{**_fields(own), "flat_bias_bound": own.flat_bias_bound + off})

    mean = found(
        "mean",
        levels,
        sides,
        drawn.value + drawn.trace / 2 if posterior.laplace else 0.0,
        (gaussian - drawn.expanded).mean(axis=1) if len(gaussian) else np.zeros(0),
    )
    mu = float(mean.flat_value[0])
    # Of (T - mu)^2 the line of T is taken exactly.
    line = (drawn.value - mu) ** 2 + float(np.sum(drawn.slope**2)) if posterior.laplace else 0.0
    beyond = np.zeros(0)
    if len(gaussian):
        draws = _line_at(drawn, posterior)
        beyond = ((gaussian - mu) ** 2 - (drawn.value + draws - mu) ** 2).mean(axis=1)
    squares = [(each - mu) ** 2 for each in levels]
    probed = None if sides is None else [(each - mu) ** 2 for each in sides]
    if noise is not None:
        # What is unknown given theta adds to the variance.
        squares = [each + own for each, own in zip(squares, noise.levels, strict=True)]
        if probed is not None and noise.probed is not None:
            probed = [each + own for each, own in zip(probed, noise.probed, strict=True)]
        line += noise.centre if posterior.laplace else 0.0
        beyond = beyond + (noise.gaussian - noise.centre).mean(axis=1)
    square = found("sd", squares, probed, line, beyond)
    sd = float(np.sqrt(max(square.flat_value[0], np.finfo(float).tiny)))
    fields = _fields(square)
    for each in ("flat_standard_error", "flat_bias_bound"):
        fields[each] = fields[each] / (2 * sd)
    fields["flat_value"] = np.array([sd])
    spread = Estimate(**fields)
    if weighted is None and len(gaussian):
        if noise is not None:
            both = gaussian, drawn.value + _line_at(drawn, posterior)
            straight = ReportedLine(drawn.direction, drawn.value - float(drawn.direction @ posterior.anchor.mode))
            return mean, spread, ends_of_paths(posterior, straight, noise, both, mean, spread)
        return mean, spread, _ends_by_line(drawn, posterior, gaussian, mean)
    structure = Structure.leaf((2,))
    known = None if sides is None else partial(_least_below, posterior, sides)
    if noise is not None:
        return mean, spread, ends_of_draws(gaussian, levels, noise, rungs, weighted)
    ends = cautious(
        signed_quantiles(
            gaussian.ravel(), [each[..., 0] for each in levels], ENDS, rungs, "ends", structure, known, weighted
        )
    )
    return mean, spread, ends


def _ends_by_line(drawn: DrawnAverages, posterior: Posterior, gaussian: Floats, mean: Estimate) -> Estimate:
    """Of the line of T, and what T is beyond it at the Gaussian's draws."""
    line = ReportedLine(drawn.direction, drawn.value - float(drawn.direction @ posterior.anchor.mode))
    ends, (centre, _) = posterior.line_quantiles(line, ENDS, "ends"), posterior.line_moments(line)
    straight = drawn.value + _line_at(drawn, posterior)
    beyond = np.quantile(gaussian, ENDS) - np.quantile(straight, ENDS)
    parts = zip(np.array_split(gaussian, BATCHES), np.array_split(straight, BATCHES), strict=True)
    scatter = np.std([np.quantile(a, ENDS) - np.quantile(b, ENDS) for a, b in parts], axis=0, ddof=1)
    rest = (float(mean.flat_value[0]) - gaussian.mean()) - (float(centre.flat_value[0]) - straight.mean())
    return replace(
        ends,
        flat_value=ends.flat_value + beyond,
        flat_standard_error=np.hypot(ends.flat_standard_error, scatter / np.sqrt(BATCHES)),
        flat_bias_bound=ends.flat_bias_bound + abs(rest) + np.abs(beyond) / 4,
    )


def _line_at(drawn: DrawnAverages, posterior: Posterior) -> Floats:
    """a . d at the Gaussian's draws, (pairs, 2): a is W^-T of the slopes along W's columns."""
    z = np.random.default_rng(posterior.seed).standard_normal((len(drawn.gaussian), len(drawn.slope)))
    along = z @ drawn.slope
    return np.stack([along, -along], axis=1)


def _least_below(posterior: Posterior, sides: list[Floats], edges: Floats) -> Least:
    assert posterior.probed is not None
    return posterior.probed.least(*((each <= edges).mean(axis=1) for each in sides))


def _fields(estimate: Estimate) -> dict[str, Any]:
    return {name: getattr(estimate, name) for name in Estimate.__dataclass_fields__}
