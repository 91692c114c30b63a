"""What sums over paths say of a prediction: its mean and its sd, each with a standard error and a bias bound.

    mean = f_0 + s_1,   sd^2 = s_2 - s_1^2,   s_k = E_Laplace D^k + sum_l mean_i Delta_k,   D = f - f_0

The error of a mean is that of its levels (`allocation`) and of its Gaussian part; the error of the variance is that of
Delta_2 - 2 s_1 Delta_1, and that of the sd is 1 / (2 sd) of it, or its root where that is less. A level whose paths
have seen only a part of the variance that f has under Laplace's Gaussian is taken to have missed as much of its own;
at level 0, where the law of what is taken off is that Gaussian, up to twice what was missed of f.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tallbayes.estimator.allocation import TRUSTED_SAMPLES, floored_variance, sum_errors
from tallbayes.gaussian.quadrature import powers
from tallbayes.moments import Floats
from tallbayes.posterior.prediction import Prediction
from tallbayes.posterior.telescoping import Rungs

SEEN_BY_CHANCE = 6.0
TINY = np.finfo(float).tiny


class Base(NamedTuple):
    """E D to E D^4 under Laplace, first axis; variances and covariance of the first two; and a bound on what else the
    first errs by, the second by twice that."""

    moments: Any
    variance: Any
    covariance: Any
    square_variance: Any
    error: Any

    @classmethod
    def exact(cls, moments: Any, error: Any) -> Base:
        nothing = 0 * error
        return cls(moments, nothing, nothing, nothing, error)

    @classmethod
    def of_pairs(cls, values: Any) -> Base:
        """Draws along the last axis, the second half opposite to the first."""
        half = values.shape[-1] // 2
        first, second = ((part[..., :half] + part[..., half:]) / 2 for part in (values, values**2))
        level = LevelMoments.of(first, second, 0.0, 0.0)
        parts = level.variance / half, level.covariance / half, level.square_variance / half
        return cls(powers(values).mean(axis=-1), *parts, 0 * level.mean)

    def with_unseen(self, missed: Any) -> Base:
        """`missed` bounds the expectation, of a number in [0, 1], over what no draw has shown."""
        return self._replace(error=self.error + missed)

    def with_floor(self, first: Any, second: Any, count: int) -> Base:
        """The variances of one pair are no less than these."""
        first, second = first / count, second / count
        return self._replace(
            variance=self.variance + (first - self.variance) * (first > self.variance),
            square_variance=self.square_variance + (second - self.square_variance) * (second > self.square_variance),
        )


class LevelMoments(NamedTuple):
    """Of one path: the means of Delta_1 and Delta_2, their variances and covariance; and the variances of D and D^2
    themselves among the level's paths."""

    mean: Any
    square: Any
    variance: Any
    covariance: Any
    square_variance: Any
    seen: Any
    square_seen: Any

    @classmethod
    def of(cls, first: Any, second: Any, seen: Any, square_seen: Any) -> LevelMoments:
        """Samples along the last axis."""
        count = first.shape[-1]
        one, two = first.mean(axis=-1), second.mean(axis=-1)
        variance = ((first**2).mean(axis=-1) - one**2) * count / (count - 1)
        square_variance = ((second**2).mean(axis=-1) - two**2) * count / (count - 1)
        covariance = ((first * second).mean(axis=-1) - one * two) * count / (count - 1)
        return cls(one, two, variance.clip(0), covariance, square_variance.clip(0), seen, square_seen)


class BlockSums(NamedTuple):
    """Of a block of rows, by (outputs, rows): f at the mode, the Gaussian part, the levels (levels first), rounding."""

    centre: Any
    base: Base
    levels: LevelMoments
    rounding: Any


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def conclude(sums: BlockSums, counts: Floats, rungs: Rungs, laplace: bool) -> Prediction:
    """From the sums of a block, by (outputs, rows), to its predictions, by (rows, outputs)."""
    base, levels = sums.base, sums.levels
    shift, square = base.moments[0] + levels.mean.sum(axis=0), base.moments[1] + levels.square.sum(axis=0)
    variance, square_variance = levels.variance, levels.square_variance
    if laplace:
        one, two, _, four = base.moments
        variance = _with_unseen(variance, two - one**2, levels.seen, counts)
        square_variance = _with_unseen(square_variance, four - two**2, levels.square_seen, counts)
    error, bias = _errors(levels.mean, variance, counts, rungs)
    slack = base.error + len(counts) * sums.rounding
    error, bias = np.sqrt(error**2 + base.variance), bias + slack
    spread = square_variance - 4 * shift * levels.covariance + 4 * shift**2 * variance
    spread_error, spread_bias = _errors(levels.square - 2 * shift * levels.mean, np.maximum(spread, 0), counts, rungs)
    own = base.square_variance - 4 * shift * base.covariance + 4 * shift**2 * base.variance
    spread_error = np.sqrt(spread_error**2 + np.maximum(own, 0))
    # The error of s_1 enters that of the variance by its square too.
    spread_bias = spread_bias + 2 * slack * (1 + np.abs(shift)) + error**2 + bias**2
    sd = np.sqrt(np.maximum(square - shift**2, 0.0))
    found = (sums.centre + shift, sd, error, bias, of_root(spread_error, sd), of_root(spread_bias, sd))
    arrays: list[Any] = [np.ascontiguousarray(part.T) for part in _told(found)]
    return Prediction(*arrays)


def _errors(mean: Floats, variance: Floats, counts: Floats, rungs: Rungs) -> tuple[Floats, ...]:
    """Standard error and bias bound of a sum over levels, the first axis."""
    means, variances = (each.reshape(len(each), -1) for each in (mean, variance))
    floored = floored_variance(variances, counts, rungs.variance_rate, TRUSTED_SAMPLES)
    return tuple(each.reshape(mean.shape[1:]) for each in sum_errors(means, floored, counts, rungs.rho))


def _with_unseen(variance: Floats, whole: Floats, seen: Floats, counts: Floats) -> Floats:
    """Variances by level of what differs between paths, given the variance of the thing itself: `whole` under Laplace's
    Gaussian, of which the paths of a level have seen `seen`.

    Beyond what is chance, a level has missed as much of its own variance as of the whole, though no more than all of
    it; at level 0, where what is taken off has the law of that Gaussian, twice what was missed of the whole.
    """
    whole = np.maximum(whole, 0.0)
    seen = seen * (1 + SEEN_BY_CHANCE / np.sqrt(counts[:, None, None]))
    factor = np.maximum(1.0, whole / np.maximum(seen, TINY))
    larger = np.maximum(variance, np.minimum(variance * factor, 4 * whole))
    larger[0] = np.maximum(larger[0], 2 * (whole - seen[0]))
    return larger


def of_root(error: Floats, sd: Floats) -> Floats:
    """From the error of a variance to that of its root: |a - b| = |a^2 - b^2| / (a + b) <= sqrt|a^2 - b^2|."""
    return np.fmin(error / (2 * sd), np.sqrt(error))


def _told(found: tuple[Floats, ...]) -> list[Floats]:
    """What exceeds all numbers is infinite, and so are its errors."""
    mean, *others = found
    lost = ~np.logical_and.reduce([np.isfinite(part) for part in found[:3]])
    return [np.where(np.isfinite(mean), mean, np.inf), *(np.where(lost, np.inf, part) for part in others)]
