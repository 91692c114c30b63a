"""Balance: the Gaussian that is right about a posterior on average, by climbing its bound.

    E grad log pi(theta + W z) = 0,   P = -E grad^2 log pi(theta + W z),   W W^T = P^-1,   z standard normal
    B(theta, P) = E log pi(theta + W z) + log det W  <=  log of the posterior's constant

B is finite for every proper posterior, also where the density itself has no bound, as that of centred effects has none
when their scale goes to nothing. A move is theta + W E[W^T grad] and (P - E grad^2) / 2, halved again until B rises.
Expectations are means over fixed draws in opposite pairs, on a sample of the rows beside what all
rows say at the centre itself.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tallbayes.anchor.expansion import Expansion, Ranges, Survey
from tallbayes.anchor.screening import log_densities
from tallbayes.anchor.sums import Curvature
from tallbayes.moments import Floats
from tallbayes.rows.table import Table

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

    def __init__(self, survey: Survey, dimension: int) -> None:
        self.survey, self.sample = survey, _sample(survey.table, dimension)
        self.z = np.random.default_rng(0).standard_normal((PAIRS, dimension))
        self.curvature_pairs = int(np.clip(CURVATURE_NUMBERS / dimension**3, 1, 8))

    def gradients(self, at: Gaussian, gradient: Floats) -> Floats:
        """W^T grad log pi, mean of each pair; `gradient` is that of all rows at theta."""

        def look(point: Floats) -> Floats:
            return self.survey(point, self.sample, Curvature.NONE).gradient

        mean = np.array([(look(at.theta + move) + look(at.theta - move)) / 2 for move in self.z @ at.whitening.T])
        return (mean - look(at.theta) + gradient) @ at.whitening

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


def _sample(table: Table, dimension: int) -> Ranges | None:
    """The head of a shuffled table; all rows where they are few or in their owner's order."""
    size = max(SAMPLE_ROWS, ROWS_PER_PARAMETER * dimension)
    return table.chunks(size) if table.shuffled and table.num_rows > 2 * size else None
