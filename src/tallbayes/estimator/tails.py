"""Tails: a variance that no sample can hide.

Level 0 samples g(z) - g(u), z a path of the posterior and u the Gaussian path on the same noise. Whatever couples them,

    Var [g(z) - g(u)] >= W_2^2 - (E_F g - E_G g)^2,   W_2^2 = integral_0^1 [F^-1(p) - G^-1(p)]^2 dp

with F and G the laws of g under the posterior and under the Gaussian, which a probe's weights know far beyond what a
few dozen paths can see. What batches of rows add to it comes from a probe too: noise of covariance S / n a step leaves

    (1 - e^-h) / (1 + e^-h) S / n

in z by exponential steps, and by others what `Motion.kicked` says. An estimate of V_0 is never taken to be less than
the sum of both; less a control, than its share of that (`eased`). A probe is `anchor.probe`, read for the quantities of
a run in `setup.tail_variances`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.estimator.allocation import Least
from tallbayes.estimator.ladder import HOPED_MEMORY, Motion
from tallbayes.moments import Floats


def averaged(window: float, memory: float = HOPED_MEMORY) -> float:
    """The variance of a mean over a window, against that of one point, where correlations fall like exp(-t / memory).

    >>> averaged(0.0), round(averaged(10.0), 3)
    (1.0, 0.095)
    """
    x = window / memory
    return float(2 / x * (1 + np.expm1(-x) / x)) if x > 0 else 1.0


@dataclass(frozen=True, eq=False)
class Tails:
    """By component: how far posterior and Gaussian are apart, the variance by rows for S itself, and whether the
    variance has no end."""

    apart: Least
    noise: Floats
    endless: np.ndarray

    def least(
        self, first_step: float, batch_size: int, length: int, averaged: float, motion: Motion = Motion()
    ) -> Least:
        """The least that V_0 can be; `averaged` is what a window leaves of a variance."""
        missing = max(0.0, 1.0 / batch_size - 1.0 / length) if batch_size else 0.0
        by_rows = motion.kicked(first_step) * missing * self.noise
        return Least(averaged * (self.apart.variance + by_rows), self.apart.kurtosis)


def eased(least: Least, plain: Floats, controlled: Floats) -> Least:
    """The least variance of level 0 less a control, from that without one and from what samples say of both.

    The bound is on g(z) - g(u). Where the samples show all of that, they have seen its tails, with the control and
    without; where they show a part of it alone, so do they of what the control leaves.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        missing = np.where(plain > 0, np.maximum(least.variance / plain, 1.0), 1.0)
    return least._replace(variance=np.where(plain > 0, missing * controlled, least.variance))


def transport(values: Floats, first: Floats, second: Floats) -> Least:
    """The least variance of a difference between two laws on the same rows, by column."""
    return coupled_columns(values, first, values, second)


def coupled_columns(one: Floats, one_weights: Floats, two: Floats, two_weights: Floats) -> Least:
    """Column by column of two samples with weights."""
    found = [coupled(first, one_weights, second, two_weights) for first, second in zip(one.T, two.T, strict=True)]
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
