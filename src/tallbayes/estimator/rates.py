"""Rates and checks read off the levels.

    |E Delta_l| ~ 2^(-alpha l),   Var Delta_l ~ 2^(-beta l),   cost_l ~ 2^(gamma l)

Fits use levels l >= 1: level 0 is not a difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tallbayes.moments import Floats, Moments

FARTHEST = 1e4
# A parameter is slow where it contracts by no more than twice what is enough; more than a tenth are no few.
SLOW, MOST_SLOW, MANY, STRAY = 2.0, 0.1, 1_000, 0.05


@dataclass(frozen=True)
class Rate:
    """A fitted exponent and its standard error; NaN with fewer than two usable levels."""

    value: float
    standard_error: float


def fit_decay(sizes: Floats, relative_errors: Floats, first_level: int = 1) -> Rate:
    """Exponent r of size_l ~ 2^(-r l), weighted by the sizes' relative errors."""
    usable = np.isfinite(sizes) & (sizes > 0) & np.isfinite(relative_errors)
    if usable.sum() < 2:
        return Rate(float("nan"), float("nan"))
    level = first_level + np.flatnonzero(usable)
    height = -np.log2(sizes[usable])
    sd = np.maximum(relative_errors[usable], 1e-6) / np.log(2)
    weight = 1 / sd**2
    centre = np.sum(weight * level) / weight.sum()
    spread = np.sum(weight * (level - centre) ** 2)
    slope = np.sum(weight * (level - centre) * height) / spread
    return Rate(float(slope), float(spread**-0.5))


def variance_decay(variance: Floats, kurtosis: Floats, samples: Floats, scale: Floats) -> Rate:
    """Beta of a quantity: all its components together, each in units of its scale."""
    if len(variance) < 3:
        return Rate(float("nan"), float("nan"))
    unit = np.where(scale > 0, scale, 1.0)
    total = np.mean(variance[1:] / unit**2, axis=1)
    tails = np.max(kurtosis[1:], axis=1)
    return fit_decay(total, np.sqrt((np.maximum(tails, 3) - 1) / samples[1:]))


def mean_decay(mean: Floats, standard_error: Floats, scale: Floats) -> Rate:
    """Alpha of a quantity, from the root mean square of its components' level means."""
    if len(mean) < 3:
        return Rate(float("nan"), float("nan"))
    unit = np.where(scale > 0, scale, 1.0)
    size = np.sqrt(np.mean((mean[1:] / unit) ** 2, axis=1))
    error = np.sqrt(np.mean((standard_error[1:] / unit) ** 2, axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return fit_decay(size, error / size)


def cost_growth(cost: Floats) -> float:
    """Gamma: the exponent of the cost of one sample."""
    if len(cost) < 3:
        return float("nan")
    return -fit_decay(cost[1:], np.full(len(cost) - 1, 1e-6)).value


def consistency(fine_below: Sequence[Moments], coarse: Sequence[Moments]) -> Floats:
    """z-scores of mean fine_{l-1} against mean coarse_l, l >= 1: the same law, independent samples."""
    scores = []
    for below, above in zip(fine_below, coarse, strict=True):
        difference = below.mean - above.mean
        error = np.sqrt(below.variance / below.count + above.variance / above.count)
        scores.append(np.where(error > 0, difference / np.where(error > 0, error, 1.0), 0.0))
    return np.stack(scores)


def consistency_freedom(below: Moments, above: Moments) -> Floats:
    """Degrees of freedom of such a z-score's error, from the kurtosis on both sides."""
    parts = [side.variance / side.count for side in (below, above)]
    tails = [(np.maximum(side.kurtosis, 3.0) - 1) / side.count for side in (below, above)]
    spread = sum(part**2 * tail for part, tail in zip(parts, tails, strict=True))
    return np.where(spread > 0, 2 * sum(parts) ** 2 / np.where(spread > 0, spread, 1.0), 1e9)


def contraction_of(squares: Floats, interval: float) -> Contraction:
    """Of all parameters together."""
    return _contraction(squares[:, :4], interval)


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def contraction_but_for_few(
    squares: Floats, interval: float, enough: float, most_left: float = 0.0
) -> Contraction | None:
    """Of all parameters but a few that do not contract; None where these are many, or the others do not either.

    Each counts in units of how far apart pairs began. What is left of the others' distances at 3 dT bounds what paths
    that have settled nowhere along the few can do to them. A parameter along which hardly a pair is farther apart after
    2 dT than `most_left` of where pairs began is not slow, whatever it did on the way.
    """
    by_parameter = squares[:, 4:].reshape(len(squares), 4, -1)
    if not by_parameter.size or not np.all(np.isfinite(by_parameter)):
        return None
    mean = by_parameter.mean(axis=0)
    settled = np.mean(by_parameter[:, 2] > most_left**2 * mean[0], axis=0) <= STRAY
    slow = ~((np.sqrt(mean[2] / mean[1]) <= SLOW * enough) | settled)
    if not np.any(slow) or np.all(slow) or slow.sum() > max(1, MOST_SLOW * len(slow)):
        return None
    relative = by_parameter[:, :, ~slow] / mean[0, ~slow]
    rest = _contraction(relative.sum(axis=2), interval)
    if not rest.upper <= enough:
        return None
    left = float(np.sqrt(2 * relative[:, 3].mean(axis=0).max()))
    return replace(rest, slow=tuple(np.flatnonzero(slow).tolist()), left=left)


def hidden_among_many(squares: Floats, interval: float, enough: float) -> Contraction | None:
    """The same where all together contract, for what thousands of parameters would hide: one that does not is no more
    than its share of their distance. None where there are not so many, or none is slow. How many pairs are left apart
    decides: of thousands of ratios between small distances some are large by chance."""
    return contraction_but_for_few(squares, interval, enough, enough) if squares.shape[1] > 4 * MANY else None


@np.errstate(divide="ignore", invalid="ignore", over="ignore")
def _contraction(squares: Floats, interval: float) -> Contraction:
    """Root of the ratio of mean squared distances between dT and 2 dT, with its upper 97.5% end."""
    before, after = squares[:, 1], squares[:, 2]
    if not np.all(np.isfinite(squares)) or np.any(squares.max(axis=1) > FARTHEST**2):
        return Contraction(np.inf, np.inf, -np.inf)
    if after.mean() == 0:
        return Contraction(0.0, 0.0, np.inf)
    ratio = after.mean() / before.mean()
    influence = after / after.mean() - before / before.mean()
    error = influence.std(ddof=1) / np.sqrt(len(squares))
    factor = float(np.sqrt(ratio))
    upper = float(np.sqrt(ratio * np.exp(2 * error)))
    return Contraction(factor, upper, float(-np.log(upper) / interval))


@dataclass(frozen=True)
class Contraction:
    """How much closer two paths on common noise come during dT: measured, and its upper 97.5% end.

    Where a few parameters are `slow` it is that of the others, and `left` how far apart these still are after 3 dT, in
    sds, when paths began a few sds apart along all.
    """

    factor: float
    upper: float
    rate: float
    slow: tuple[int, ...] = ()
    left: float = 0.0
