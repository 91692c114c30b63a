"""Recentring: where the posterior's mass is far from its mode, the Gaussian that is right on average.

    N(theta, P^-1)  with  E grad log pi(theta + W z) = 0,   P = -E grad^2 log pi(theta + W z),   W W^T = P^-1

The joint mode of a hierarchical model prefers a large common scale with small effects: the density is higher there, but
there is no volume. Paths are right about any centre, yet about that one nothing contracts. The shift, |E W^T grad log
pi| at the mode, tells; where it is small the mode stays. Expectations are means over fixed draws in opposite pairs, on
a sample of the rows beside what all rows say at the centre itself, and every move must raise E log pi(theta + W z).
The new Gaussian is taken only if it is closer to the posterior than the old one, by Kullback and Leibler.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.expansion import Expansion, Ranges, Survey
from tallbayes.mode import anchor_at
from tallbayes.model import Target
from tallbayes.moments import Floats
from tallbayes.roles import Executor
from tallbayes.sums import Curvature
from tallbayes.table import Table

PAIRS = 32
CURVATURE_NUMBERS = 2e6
SAMPLE_ROWS = 8_192
ROWS_PER_PARAMETER = 16
FAR = 3.0
NEAR = 0.3
# A Gaussian at the mode that is so far off says nothing of where to go.
LOST = 1e4
MAX_ITERATIONS = 40
MAX_HALVINGS = 6

log = logging.getLogger("tallbayes")


@dataclass(frozen=True, eq=False)
class Recentred:
    """The anchor, moved or not; how far the mean of the Gaussian was from its own balance; rows read."""

    anchor: Anchor
    shift: float
    evaluations: int

    @property
    def note(self) -> str:
        """One line for the report; empty where the mode was good enough."""
        if not self.anchor.recentred:
            return ""
        return f"centre: the posterior's mass is {self.shift:.2g} sds from its mode, so paths are anchored to its mean"


def recentre(target: Target, table: Table, anchor: Anchor, executor: Executor | None = None) -> Recentred:
    """The anchor at the mode, or where the Gaussian is in balance if that is far from it."""
    if target.log_concave or anchor.is_diagonal:
        return Recentred(anchor, 0.0, 0)
    survey = Survey(target, table, executor)
    here = _Balance(survey, _sample(table, target.dimension), len(anchor.mode))
    gradients = here.gradients(anchor.mode, anchor.whitening, anchor.gradient)
    shift = _shift(gradients)
    moved = _climb(here, anchor) if FAR < shift < LOST else None
    if moved is not None and not here.bound(moved) > here.bound(anchor):
        moved = None
    return Recentred(moved or anchor, shift, survey.rows_read)


class _Balance:
    """E over N(theta, W W^T) of value, gradient and curvature, by draws that stay the same."""

    def __init__(self, survey: Survey, sample: Ranges | None, dimension: int) -> None:
        self.survey, self.sample = survey, sample
        self.z = np.random.default_rng(0).standard_normal((PAIRS, dimension))
        self.curvature_pairs = int(np.clip(CURVATURE_NUMBERS / dimension**3, 1, 8))

    def gradients(self, theta: Floats, whitening: Floats, gradient: Floats) -> Floats:
        """W^T grad log pi, mean of each pair; `gradient` is that of all rows at theta."""
        away = self._pairs(theta, whitening)
        here = self.survey(theta, self.sample, Curvature.NONE).gradient
        mean = np.array([(plus.gradient + minus.gradient) / 2 for plus, minus in away])
        return (mean - here + gradient) @ whitening

    def value(self, theta: Floats, whitening: Floats) -> float:
        """E log pi(theta + W z), on the sample."""
        return float(np.mean([(plus.value + minus.value) / 2 for plus, minus in self._pairs(theta, whitening)]))

    def bound(self, anchor: Anchor) -> float:
        """E log pi plus the Gaussian's entropy: below log of the posterior's constant, the nearer the better."""
        return self.value(anchor.mode, anchor.whitening) - float(np.sum(np.log(np.diag(anchor.factor))))

    def curvature(self, theta: Floats, whitening: Floats, everywhere: Expansion) -> Floats:
        """-E grad^2 log pi, on the sample beside what all rows say at theta."""
        moves = self.z[: self.curvature_pairs] @ whitening.T
        away = [self.survey(theta + sign * move, self.sample).hessian for move in moves for sign in (1, -1)]
        here = self.survey(theta, self.sample).hessian
        return np.mean([here, *away], axis=0) - here + everywhere.hessian

    def _pairs(self, theta: Floats, whitening: Floats) -> list[tuple[Expansion, Expansion]]:
        def look(point: Floats) -> Expansion:
            return self.survey(point, self.sample, Curvature.NONE)

        return [(look(theta + move), look(theta - move)) for move in self.z @ whitening.T]


def _climb(balance: _Balance, anchor: Anchor) -> Anchor | None:
    """Natural gradient steps, the precision half renewed at each; None where they lead nowhere."""
    theta, precision = anchor.mode, anchor.precision
    radius = max(2.0, 0.4 * np.sqrt(len(theta)))
    everywhere: Expansion | None = None
    for iteration in range(MAX_ITERATIONS):
        everywhere = balance.survey(theta)
        whitening = _whitening(precision)
        renewed = (precision + balance.curvature(theta, whitening, everywhere)) / 2
        if np.all(np.isfinite(renewed)) and np.linalg.eigvalsh(renewed)[0] > 0:
            precision, whitening = renewed, _whitening(renewed)
        gradients = balance.gradients(theta, whitening, everywhere.gradient)
        if not np.all(np.isfinite(gradients)):
            return None
        shift, mean = _shift(gradients), gradients.mean(axis=0)
        size = float(np.linalg.norm(mean))
        log.debug("recentring %d: shift %.3g, size %.3g", iteration, shift, size)
        if size < NEAR or (shift < NEAR and iteration):
            found = anchor_at(everywhere, anchor.passes, anchor.num_rows)
            return replace(found, precision=precision, hessian=found.precision)
        step = _raised(balance, theta, whitening, min(1.0, radius / size) * (whitening @ mean))
        if step is None:
            break
        theta = theta + step
    return None


def _raised(balance: _Balance, theta: Floats, whitening: Floats, step: Floats) -> Floats | None:
    """The step, halved until E log pi rises with it."""
    before = balance.value(theta, whitening)
    for _ in range(MAX_HALVINGS):
        if balance.value(theta + step, whitening) > before:
            return step
        step = step / 2
    return None


def _shift(gradients: Floats) -> float:
    """|E W^T grad| without the noise of its draws: from the product of two halves."""
    half = len(gradients) // 2
    square = float(gradients[:half].mean(axis=0) @ gradients[half:].mean(axis=0))
    return float(np.sqrt(max(square, 0.0))) if np.isfinite(square) else np.inf


def _whitening(precision: Floats) -> Floats:
    return np.linalg.inv(np.linalg.cholesky((precision + precision.T) / 2)).T


def _sample(table: Table, dimension: int) -> Ranges | None:
    """The head of a shuffled table; all rows where they are few or in their owner's order."""
    size = max(SAMPLE_ROWS, ROWS_PER_PARAMETER * dimension)
    return table.chunks(size) if table.shuffled and table.num_rows > 2 * size else None
