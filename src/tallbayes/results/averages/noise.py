"""Noise: what of an average is unknown even given theta, which is the effects of the groups that its rows belong to.

    T = m(theta) + s(theta) xi,     E T = E m,     Var T = Var m + E s^2

A sum over groups that are independent given theta, so that xi is about normal. Of draws with weights ends are quantiles
of m + s xi, some xi a draw, one from every part of the normal law alike. Of paths they are those of the Gaussian's own
m + s xi, moved and stretched to the mean and sd of the posterior, and skewed as much as the line of T is:

    q_T ~ mean + sd (q_G - mean_G) / sd_G + (q_line - mean_line - z sd_line) (sd_line / sd)^2

That xi is not quite normal moves both ends by what its third and fourth cumulants at the centre, over powers of sd, say
(Cornish and Fisher), by an error as large as the last correction. What is beyond that falls with the number of groups
that count, n = (sum of variances)^2 / sum of their squares: of one group, whose effect may have any law, ends are off
by half an sd of it at the most that was seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import ndtri

from tallbayes.estimator.estimates import Estimate
from tallbayes.moments import Floats
from tallbayes.posterior.signed_draws import signed_quantiles
from tallbayes.posterior.telescoping import Rungs, cautious
from tallbayes.structure import Structure

if TYPE_CHECKING:
    from tallbayes.posterior.coordinates import ReportedLine
    from tallbayes.posterior.posterior import Posterior
    from tallbayes.weighing.weights import Weights

ENDS = np.array([0.025, 0.975])
Z = ndtri(ENDS)
# Of an sd: what the law of a single group's effect may do to an end.
ALONE = 0.5
# xi a draw, from as many equal parts of the normal law.
STRATA, BATCHES, SEED = 16, 16, 20240229


class NoiseAt(NamedTuple):
    """s^2 at all points of one group of the sample of rows, as T is there; `centre` is that at the centre."""

    gaussian: Floats
    levels: list[Floats]
    probed: tuple[Floats, Floats] | None
    centre: float


@dataclass(frozen=True, eq=False)
class EffectNoise:
    """Covariances of several T given theta, (..., 1 + groups, T, T), of which `along` picks one or a difference.

    `third` and `fourth` are cumulants at the centre, `square` sums of squared variances by group, `off` what nodes
    leave open of the covariances there, and `curved` what T is off by on average for being no straight line in its
    averages.
    """

    along: Floats
    gaussian: Floats
    levels: tuple[Floats, ...]
    probed: tuple[Floats, Floats] | None
    centre: Floats
    third: Floats
    fourth: Floats
    square: Floats
    off: Floats
    curved: Floats

    def minus(self, other: EffectNoise) -> EffectNoise:
        return replace(self, along=self.along - other.along)

    def at(self, place: int) -> NoiseAt:
        def variance(each: Floats, which: int) -> Floats:
            found = np.einsum("...st,s,t->...", each[..., which, :, :], self.along, self.along)
            return np.maximum(found, 0.0)

        levels = [variance(each, place)[..., None] for each in self.levels]
        probed = None
        if self.probed is not None:
            probed = variance(self.probed[0], 0)[..., None], variance(self.probed[1], 0)[..., None]
        centre = float(self.along @ self.centre @ self.along)
        return NoiseAt(variance(self.gaussian, place), levels, probed, max(centre, 0.0))

    def shifted(self, values: Floats, bounds: Floats) -> tuple[Floats, Floats]:
        """With what is beyond a normal xi, and what nodes leave open; of a difference of two the former is a bias."""
        sd, size = values[1], np.abs(self.along)
        # What is no straight line may widen T by as much as it moves it.
        curved = float(size @ self.curved)
        off = curved + float(size @ self.off @ size) / (2 * sd)
        is_one = np.count_nonzero(self.along) == 1
        third, fourth = (each if is_one else np.abs(each) for each in (self.third, self.fourth))
        skew, excess = float(size @ third) / sd**3, float(size @ fourth) / sd**4
        first = (Z**2 - 1) / 6 * skew
        second = (Z**3 - 3 * Z) / 24 * excess - (2 * Z**3 - 5 * Z) / 36 * skew**2
        last = np.abs((Z**3 - 3 * Z) / 24 * excess) + np.abs((2 * Z**3 - 5 * Z) / 36) * skew**2
        rest = sd * (last + np.abs(first) / 4)
        ends = values[2:] + sd * (first + second) if is_one else values[2:]
        if not is_one:
            rest = sd * (last + np.abs(first))
        # Beyond four cumulants, by how many groups there are.
        variance = float(self.along @ self.centre @ self.along)
        alone = float(size @ np.sqrt(self.square)) ** 2 / max(variance**2, np.finfo(float).tiny)
        rest = rest + ALONE * sd * min(variance / sd**2, 1.0) * min(alone, 1.0)
        open_ends = curved + np.abs(Z) * off + rest
        return np.concatenate([values[:2], ends]), bounds + np.concatenate([[curved, off], open_ends])


def _replicated(values: Floats, variances: Floats, seed: int) -> Floats:
    """m + s xi for m and s^2 (draws, ...), with a middle axis of xi: (draws, STRATA, ...)."""
    start = np.random.default_rng([SEED, seed]).random((len(values), 1))
    xi = ndtri((np.arange(STRATA) + start) / STRATA)
    xi = xi.reshape(*xi.shape, *[1] * (values.ndim - 1))
    return np.asarray(values[:, None] + np.sqrt(variances)[:, None] * xi)


def _of_gaussian(gaussian: Floats, noise: NoiseAt) -> tuple[Floats, Floats]:
    """Draws of T under the Gaussian, pair by pair, and how far quantiles of them scatter."""
    draws = _replicated(gaussian, noise.gaussian, 0)
    parts = [np.quantile(each, ENDS) for each in np.array_split(draws, BATCHES)]
    return draws, np.std(parts, axis=0, ddof=1) / np.sqrt(BATCHES)


def ends_of_draws(
    gaussian: Floats, levels: list[Floats], noise: NoiseAt, rungs: Rungs, weighted: Weights | None
) -> Estimate:
    """Of draws with weights, (draws, 1, 1, 1), or of paths that stand alone."""
    base: Floats = np.zeros(0)
    scatter: Floats = np.zeros(2)
    if len(gaussian):
        draws, scatter = _of_gaussian(gaussian, noise)
        base = draws.ravel()
    values = []
    for number, (each, own) in enumerate(zip(levels, noise.levels, strict=True)):
        paths, stops, sides = each.shape[:3]
        made = _replicated(each[..., 0], own[..., 0], 1 + number)
        values.append(made.reshape(paths, STRATA * stops, sides))
    found = cautious(signed_quantiles(base, values, ENDS, rungs, "ends", Structure.leaf((2,)), None, weighted))
    return replace(found, flat_standard_error=np.hypot(found.flat_standard_error, scatter))


def _standardised(draws: Floats) -> Floats:
    return np.asarray((np.quantile(draws, ENDS) - draws.mean()) / draws.std())


def _shape(gaussian: Floats, normal: Floats, noise: NoiseAt) -> tuple[Floats, Floats]:
    """Quantiles of T under the Gaussian in its sds, by how far they are from those of a `normal` T at the same draws;
    and the error of that."""
    draws = _replicated(gaussian, noise.gaussian, 0)
    others = _replicated(normal, np.full_like(normal, noise.centre), 0)
    pairs = zip(np.array_split(draws, BATCHES), np.array_split(others, BATCHES), strict=True)
    parts = [_standardised(a) - _standardised(b) for a, b in pairs]
    scatter = np.std(parts, axis=0, ddof=1) / np.sqrt(BATCHES)
    return Z + _standardised(draws) - _standardised(others), scatter


def ends_of_paths(
    posterior: Posterior,
    line: ReportedLine,
    noise: NoiseAt,
    gaussian: tuple[Floats, Floats],
    mean: Estimate,
    sd: Estimate,
) -> Estimate:
    """Of a ladder's paths, whose line is known sharply; `gaussian` are T and its line at the Gaussian's draws."""
    straight, (centre, spread) = posterior.line_quantiles(line, ENDS, "ends"), posterior.line_moments(line)
    shape, scatter = _shape(*gaussian, noise)
    width, own = float(sd.flat_value[0]), float(spread.flat_value[0])
    skew = (straight.flat_value - float(centre.flat_value[0]) - Z * own) * (own / width) ** 2
    error = (straight.flat_standard_error + np.abs(Z) * spread.flat_standard_error) * (own / width) ** 2
    parts = mean.flat_standard_error, shape * sd.flat_standard_error, width * scatter, error
    bias = mean.flat_bias_bound + np.abs(shape) * sd.flat_bias_bound
    return replace(
        straight,
        flat_value=mean.flat_value + width * shape + skew,
        flat_standard_error=np.sqrt(sum(each**2 for each in parts)),
        flat_bias_bound=bias + np.abs(skew) / 4 + width * np.abs(shape - Z) / 4,
    )
