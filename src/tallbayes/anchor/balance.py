"""Balance: the Gaussian that is right about a posterior on average, by climbing its bound.

    E grad log pi(theta + W z) = 0,   P = -E grad^2 log pi(theta + W z),   W W^T = P^-1,   z standard normal
    B(theta, P) = E log pi(theta + W z) + log det W  <=  log of the posterior's constant

B is finite for every proper posterior, also where the density itself has no bound, as that of centred effects has none
when their scale goes to nothing. A move is theta + W E[W^T grad] and (P - E grad^2) / 2, halved again until B rises.
Expectations are means over fixed draws in opposite pairs, on a sample of the rows beside what all
rows say at the centre itself.

With few linear predictors a row they are known by quadrature (`expansion.average`), one pass over all rows a move:

    P' = -E grad^2 log pi,   theta' = theta + P'^-1 E grad log pi

From the mode one move is enough where rows are many, three where the posterior is far from Gaussian. It need not end in
balance: what is left of it stays in every drift, and is known.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.expansion import Averages, Expansion, Ranges, Survey, average
from tallbayes.anchor.screening import log_densities
from tallbayes.anchor.sums import Curvature
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.rows.table import Table
from tallbayes.workers.executors import Executor

PAIRS = 32
CURVATURE_NUMBERS = 2e6
SAMPLE_ROWS = 8_192
ROWS_PER_PARAMETER = 16
NEAR = 0.3
MAX_ITERATIONS = 80
MAX_HALVINGS = 8
# How far P and the Hessian's mean may differ along any direction.
AGREED = (0.7, 2.0)
# What a first Gaussian is given of its own diagonal along any direction, whatever the curvature there.
LEAST_CURVATURE = 1e-2
# By quadrature, in posterior sds: beyond, another pass is worth its rows.
BALANCED, MATCHED = 0.03, 0.06
MOST_PASSES = 7
# Before a pass is made they are foreseen from so many rows, to within a part of that.
AVERAGED_ROWS, FEWEST_ROWS, MOST_MOVES, FORESEEN = 4_096, 2**13, 3, 0.25

log = logging.getLogger("tallbayes")


@dataclass(frozen=True, eq=False)
class Gaussian:
    """N(theta, P^-1)."""

    theta: Floats
    precision: Floats

    @cached_property
    def whitening(self) -> Floats:
        return np.linalg.inv(np.linalg.cholesky((self.precision + self.precision.T) / 2)).T

    @property
    def sd(self) -> Floats:
        return np.sqrt(np.sum(self.whitening**2, axis=1))

    @property
    def log_volume(self) -> float:
        """log det W: the entropy, but for a constant."""
        return float(np.linalg.slogdet(self.whitening)[1])


class Balance:
    """E over N(theta, W W^T) of value, gradient and curvature, by draws that stay the same."""

    def __init__(self, survey: Survey, dimension: int, pairs: int = PAIRS, sample_rows: int = SAMPLE_ROWS) -> None:
        self.survey, self.sample = survey, _sample(survey.table, max(sample_rows, ROWS_PER_PARAMETER * dimension))
        self.z = np.random.default_rng(0).standard_normal((pairs, dimension))
        self.curvature_pairs = int(np.clip(CURVATURE_NUMBERS / dimension**3, 1, 8))

    def gradients(self, at: Gaussian, gradient: Floats) -> Floats:
        """W^T grad log pi, mean of each pair; `gradient` is that of all rows at theta."""

        def look(point: Floats) -> Floats:
            return self.survey(point, self.sample, Curvature.NONE).gradient

        mean = np.array([(look(at.theta + move) + look(at.theta - move)) / 2 for move in self.z @ at.whitening.T])
        beside = 0.0 if self.sample is None else gradient - look(at.theta)
        return (mean + beside) @ at.whitening

    def bound(self, at: Gaussian) -> float:
        """B on the sample; minus infinity where it is no number."""
        moves = self.z @ at.whitening.T
        points = np.concatenate([at.theta + moves, at.theta - moves])
        table = self.survey.table
        rows = table.num_rows if self.sample is None else sum(stop - start for start, stop in self.sample)
        self.survey.rows_read += len(points) * rows
        value = float(np.mean(log_densities(self.survey.target, table, points, self.sample)))
        return value + at.log_volume if np.isfinite(value) else -np.inf

    def curvature(self, at: Gaussian, everywhere: Expansion) -> Floats:
        """-E grad^2 log pi, on the sample beside what all rows say at theta."""
        moves = self.z[: self.curvature_pairs] @ at.whitening.T
        away = [self.survey(at.theta + sign * move, self.sample).hessian for move in moves for sign in (1, -1)]
        here = self.survey(at.theta, self.sample).hessian
        mean = np.mean([here, *away], axis=0) - here + everywhere.hessian
        return (mean + mean.T) / 2


def ascend(balance: Balance, here: Gaussian) -> tuple[Gaussian, Expansion | None]:
    """Where a climb of the bound ends, and the log posterior there over all rows; None where that is no balance."""
    height, fraction = balance.bound(here), 1.0
    for iteration in range(MAX_ITERATIONS):
        everywhere = balance.survey(here.theta)
        curvature = balance.curvature(here, everywhere)
        gradients = balance.gradients(here, everywhere.gradient)
        if not (np.all(np.isfinite(curvature)) and np.all(np.isfinite(gradients))):
            return here, None
        shift, mean = shift_of(gradients), gradients.mean(axis=0)
        ratios = np.linalg.eigvalsh(here.whitening.T @ curvature @ here.whitening)
        size = float(np.linalg.norm(mean))
        log.debug("balance %d: bound %.6g, shift %.3g, size %.3g", iteration, height, shift, size)
        if AGREED[0] < ratios[0] and ratios[-1] < AGREED[1] and min(shift, size) < NEAR:
            return here, everywhere
        raised = _raised(balance, here, height, mean, curvature, fraction)
        if raised is None:
            return here, None
        here, height, fraction = raised
    return here, None


def _raised(
    balance: Balance, here: Gaussian, height: float, mean: Floats, curvature: Floats, fraction: float
) -> tuple[Gaussian, float, float] | None:
    """The move, from `fraction` of it on halved until the bound rises; what to begin with next time."""
    farthest = max(2.0, 0.4 * np.sqrt(len(mean))) / float(np.linalg.norm(mean))
    for _ in range(MAX_HALVINGS):
        precision = (1 - fraction / 2) * here.precision + fraction / 2 * curvature
        if np.linalg.eigvalsh(precision)[0] > 0:
            there = Gaussian(here.theta + min(fraction, farthest) * (here.whitening @ mean), precision)
            raised = balance.bound(there)
            if raised > height:
                return there, raised, min(1.0, 2 * fraction)
        fraction /= 2
    return None


def ascend_by_quadrature(
    target: Target, table: Table, anchor: Anchor, executor: Executor | None = None
) -> tuple[Averages | None, Floats, int]:
    """Where moves from the anchor end: the averages there and the precision, and rows read; None if none is better."""
    start = Gaussian(anchor.mode, np.asarray(anchor.precision))
    foreseen, promised, sampled = foresee_balance(target, table, anchor, start)
    found = average(target, table, foreseen.theta, foreseen.whitening, executor)
    here, passes, fraction, moved = foreseen, 1, 1.0, foreseen is not start
    if moved and not (found.is_finite and sum(imbalance(here, found)) < promised):
        here, passes, moved = start, 2, False
        found = average(target, table, here.theta, here.whitening, executor)
    while found.is_finite and not in_balance(here, found) and passes < MOST_PASSES:
        there = _moved(here, found, fraction)
        if there is not None:
            further, passes = average(target, table, there.theta, there.whitening, executor), passes + 1
            slack = 1e-12 * abs(found.value)
            if further.is_finite and further.value + there.log_volume > found.value + here.log_volume - slack:
                here, found, fraction, moved = there, further, 1.0, True
                log.debug("balance by quadrature, pass %d: %s", passes, imbalance(here, found))
                continue
        fraction /= 2
        if fraction < 2.0**-MAX_HALVINGS:
            break
    return (found if moved or found.is_finite else None), here.precision, sampled + passes * table.num_rows


def foresee_balance(target: Target, table: Table, anchor: Anchor, start: Gaussian) -> tuple[Gaussian, float, int]:
    """Where moves on a sample end, which agrees with all rows to second order at the anchor; how far the start is from
    balance by it, and rows read. It is the start itself where rows are few."""
    here = start
    size = max(min(AVERAGED_ROWS, table.num_rows // 12), ROWS_PER_PARAMETER * len(anchor.mode))
    if not table.shuffled or anchor.recentred or size > table.num_rows // 4 or table.num_rows < FEWEST_ROWS:
        return start, np.inf, 0
    ranges, near, off, rows_read = table.chunks(size), None, np.inf, 0
    while True:
        sampled = average(target, table, here.theta, here.whitening, ranges=ranges)
        rows_read += size
        near = near or sampled.here
        found = _matched(sampled, near, anchor, here)
        if not found.is_finite:
            return start, np.inf, rows_read
        left = imbalance(here, found)
        off = sum(left) if here is start else off
        there = _moved(here, found, 1.0)
        near_enough = left[0] < FORESEEN * BALANCED and left[1] < FORESEEN * MATCHED
        if there is None or near_enough or rows_read > MOST_MOVES * size:
            return here, off, rows_read
        here = there


def _matched(sampled: Averages, near: Expansion, anchor: Anchor, at: Gaussian) -> Averages:
    """A sample's averages plus those of the quadratic that makes its expansion at the anchor, `near`, that of all
    rows."""
    v = at.theta - anchor.mode
    slope, curvature = anchor.gradient - near.gradient, np.asarray(anchor.precision) - near.hessian
    bend = v @ curvature @ v + np.sum((at.whitening.T @ curvature) * at.whitening.T)
    return replace(
        sampled,
        value=sampled.value + anchor.log_density - near.value + float(slope @ v - bend / 2),
        gradient=sampled.gradient + slope - curvature @ v,
        hessian=sampled.hessian + curvature,
    )


def in_balance(at: Gaussian, found: Averages) -> bool:
    shift, mismatch = imbalance(at, found)
    return shift < BALANCED and mismatch < MATCHED


def imbalance(at: Gaussian, found: Averages) -> tuple[float, float]:
    """|E W^T grad log pi|, and by how much P and minus the mean Hessian differ along any direction, against P."""
    w = at.whitening
    mismatch = np.eye(len(at.theta)) - w.T @ found.hessian @ w
    return float(np.linalg.norm(found.gradient @ w)), float(np.abs(np.linalg.eigvalsh(mismatch)).max())


def _moved(here: Gaussian, found: Averages, fraction: float) -> Gaussian | None:
    """So much of the way to what the averages say; None where that is no Gaussian."""
    mean = (found.hessian + found.hessian.T) / 2
    precision = (1 - fraction) * here.precision + fraction * mean
    if np.linalg.eigvalsh(here.whitening.T @ precision @ here.whitening)[0] < LEAST_CURVATURE:
        return None
    return Gaussian(here.theta + fraction * np.linalg.solve(precision, found.gradient), precision)


def first_gaussian(here: Expansion) -> Gaussian:
    """A Gaussian about a point that need be no mode: with the size of the curvature, whatever its sign."""
    diagonal = np.abs(np.diag(here.hessian))
    scale = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(here.hessian / np.outer(scale, scale))
    curved = (vectors * np.maximum(np.abs(values), LEAST_CURVATURE)) @ vectors.T
    return Gaussian(here.theta, curved * np.outer(scale, scale))


def shift_of(gradients: Floats) -> float:
    """|E W^T grad| without the noise of its draws: from the product of two halves."""
    half = len(gradients) // 2
    square = float(gradients[:half].mean(axis=0) @ gradients[half:].mean(axis=0))
    return float(np.sqrt(max(square, 0.0))) if np.isfinite(square) else np.inf


def _sample(table: Table, size: int) -> Ranges | None:
    """The head of a shuffled table; all rows where they are few or in their owner's order."""
    return table.chunks(size) if table.shuffled and table.num_rows > 2 * size else None
