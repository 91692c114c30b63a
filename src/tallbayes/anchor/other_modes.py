"""Other modes: climbs from where the screening promises one, on a few rows first and then on all.

    share_k = exp(e_k) / sum_j exp(e_j),   e_k = log pi(theta_k) - log det(H_k) / 2   (Laplace's evidence)

Paths that start at one mode stay there and agree with each other, so nothing downstream would notice. So the anchor
moves to the mode with the most mass, and the others are named with their shares. What is promised is what was tried:
otherwise the report says how many points and climbs found none. Only a model that declares itself log-concave is known
to have one mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.ascent import climb, distance
from tallbayes.anchor.expansion import Expansion, Ranges, Survey, prior_expansion, require_finite
from tallbayes.anchor.mode import climb_to_anchor, curvature_kept, expansion_at, matched_to
from tallbayes.anchor.screening import Screen, log_densities, look_around
from tallbayes.anchor.sums import Curvature
from tallbayes.anchor.wide.lbfgs import climb_diagonal
from tallbayes.errors import PosteriorError
from tallbayes.model.model import Target
from tallbayes.moments import Floats
from tallbayes.rows.table import Table
from tallbayes.workers.executors import Executor

SAMPLE_ROWS = 1_024
SAMPLE_RANGES = 16
MAX_ITERATIONS = 50
MAX_ITERATIONS_ON_ALL_ROWS = 20
MAX_HALVINGS = 30
# A climb costs a Hessian of d columns a step.
MOST_CLIMBS, FEWEST_CLIMBS, CLIMBS_TIMES_DIMENSION = 24, 4, 240
HANDFUL = 4
FRUITLESS_CLIMBS = 6
MOST_ON_ALL_ROWS = 4
# A climb on few rows need only tell modes apart.
CLOSE = 0.1
# In sds of a mode that is known, and of the log density there: a climb that is on its slopes.
WITHIN, ALIKE = 4.0, 1.0
BARRIER = 2.5
BARRIER_POINTS = 15
NEGLIGIBLE = 1e-6
# Twins by symmetry have the same evidence but for rounding.
HEAVIER = 0.1


@dataclass(frozen=True, eq=False)
class Peak:
    """A mode other than the anchor's, and Laplace's estimate of its share of the posterior's mass."""

    anchor: Anchor
    share: float


@dataclass(frozen=True, eq=False)
class ModeSearch:
    """What was tried; where the most mass is; and the other modes, heaviest first.

    `points` were looked at, and `climbs` were made from some of them. `anchor` is that of the heaviest mode, which
    `moved` if the first climb had ended at another. A mode that holds less than a millionth is left out.
    `evaluations` are rows read.
    """

    anchor: Anchor
    points: int
    climbs: int
    others: tuple[Peak, ...]
    evaluations: int
    moved: bool = False
    log_concave: bool = False

    @property
    def second(self) -> Floats | None:
        """Where the heaviest of the others is."""
        return self.others[0].anchor.mode if self.others else None

    @property
    def share(self) -> float:
        """The part of the mass that the heaviest of the others holds."""
        return self.others[0].share if self.others else 0.0

    @property
    def note(self) -> str:
        """One line for the report."""
        if self.log_concave:
            return "log-concave: one mode"
        moved = "; the first climb ended at a lighter mode than the one taken" if self.moved else ""
        if not self.others:
            climbs = f"{self.climbs} climb" + ("" if self.climbs == 1 else "s")
            return f"no second mode found from {climbs}, among {self.points} points{moved}"
        near = np.array2string(self.others[0].anchor.mode, precision=4, threshold=6, edgeitems=3, max_line_width=10_000)
        note = f"second mode near {near}, with {self.share:.2g} of the posterior's mass by Laplace's estimate"
        if len(self.others) > 1:
            note += f", and {len(self.others) - 1} more with {sum(peak.share for peak in self.others[1:]):.2g} together"
        return note + moved


def search_modes(
    target: Target, table: Table, anchor: Anchor, executor: Executor | None = None, most_climbs: int | None = None
) -> ModeSearch:
    """Look around, climb where another mode may be, and weigh what is found."""
    if target.log_concave:
        return ModeSearch(anchor, 0, 0, (), 0, log_concave=True)
    if anchor.is_large:
        # A climb takes minutes there, and points at random say nothing in so many dimensions.
        return ModeSearch(anchor, 0, 0, (), 0)
    survey = Survey(target, table, executor, Curvature.NONE if anchor.is_diagonal else curvature_kept(anchor))
    expedition = _Expedition(survey, anchor, _sample(table))
    if most_climbs is None:
        most_climbs = int(np.clip(CLIMBS_TIMES_DIMENSION / target.dimension, FEWEST_CLIMBS, MOST_CLIMBS))
    expedition.go(most_climbs)
    return expedition.weighed()


class _Expedition:
    """The modes that are known: as the sample sees them, as it does when matched to all rows, and on all rows."""

    def __init__(self, survey: Survey, anchor: Anchor, sample: Ranges | None) -> None:
        self.survey, self.anchor, self.sample = survey, anchor, sample
        self.here = expansion_at(anchor)
        self.near = self.here if sample is None else survey(anchor.mode, sample, curvature_kept(anchor))
        self.known: dict[bool, list[Expansion]] = {False: [], True: []}
        # Where a climb on the sample ends if it starts at the anchor: the same mode, as the sample sees it.
        same = self.here if sample is None else self.climb(anchor.mode, False)
        self.known = {False: [self.near if same is None else same], True: [self.here]}
        self.peaks: list[Anchor] = []
        self.climbs = self.on_all_rows = 0
        self.screen: Screen = look_around(
            survey.target, survey.table, anchor, sample, self.near, _prior_at_its_mode(survey.target, anchor)
        )

    def go(self, most_climbs: int) -> None:
        """Climb from the most promising point until nothing promises more, or nothing comes of it any longer."""
        fruitless, handful = 0, min(HANDFUL, most_climbs // 2)
        while self.climbs < most_climbs - handful and fruitless < FRUITLESS_CLIMBS:
            promise = self.screen.promising(self.known[False], self.known[True])
            if promise is None:
                break
            self.climbs += 1
            fruitless = 0 if self.try_from(*promise) else fruitless + 1
        # Whatever the screen says: a narrow mode can hide between its points and still have wide slopes.
        for start in self.screen.scattered(handful):
            self.climbs += 1
            self.try_from(start, matched=False)

    def try_from(self, start: Floats, matched: bool) -> bool:
        """Climb, and climb again on all rows where that ends elsewhere; whether a mode was found."""
        end = self.climb(start, matched)
        known = self.known[matched]
        if end is None or any(distance(end.theta - mode.theta, end.hessian) < 1 for mode in known):
            return False
        known.append(end)
        if self.sample is None:
            self.known[not matched].append(end)
        elif self.on_all_rows == MOST_ON_ALL_ROWS:
            return False
        self.on_all_rows += 1
        try:
            peak = climb_to_anchor(self.survey, end, self.sample, MAX_ITERATIONS_ON_ALL_ROWS)
        except PosteriorError:
            return False
        if not all(self.is_apart(peak, other) for other in (self.anchor, *self.peaks)):
            return False
        self.peaks.append(peak)
        return True

    def climb(self, start: Floats, matched: bool) -> Expansion | None:
        """The mode that a climb from `start` on the sample ends at; none where it fails, which counts as tried.

        A start where the log posterior is not finite is moved half-way to the anchor until it is.
        """
        survey, anchor, ranges = self.survey, self.anchor, self.sample

        def evaluate(theta: Floats) -> Expansion:
            there = survey(theta, ranges)
            return matched_to(there, self.near, self.here) if matched and ranges is not None else there

        def expand_diagonal(theta: Floats) -> Expansion:
            return survey(theta, ranges, Curvature.DIAGONAL)

        expand_start: Callable[[Floats], Expansion] = expand_diagonal if anchor.is_diagonal else evaluate
        first = expand_start(start)
        for _ in range(MAX_HALVINGS):
            if first.is_finite:
                break
            first = expand_start((first.theta + anchor.mode) / 2)
        try:
            require_finite(first, "on the way to the anchor")
            if anchor.is_diagonal:
                return climb_diagonal(evaluate, expand_diagonal, first, CLOSE, MAX_ITERATIONS)
            options: dict[str, Any] = {
                "max_iterations": MAX_ITERATIONS,
                "foresee": partial(_on_slopes, self.known[matched]),
            }
            return climb(evaluate, first, CLOSE, survey.table.num_rows, **options)
        except PosteriorError:
            return None

    def is_apart(self, peak: Anchor, other: Anchor) -> bool:
        """Whether the log density on the way from one to the other falls well below both; a pass a point, until one is
        that low: first where the sample says so, or half-way."""
        if distance(peak.mode - other.mode, peak.precision) < 1:
            return False
        fractions = np.linspace(0, 1, BARRIER_POINTS + 2)[1:-1, None]
        between = other.mode + fractions * (peak.mode - other.mode)
        low = min(peak.log_density, other.log_density) - BARRIER
        depth = np.abs(fractions[:, 0] - 0.5) if self.sample is None else self.values_at(between, self.sample)
        return any(not self.values_at(between[[k]], None)[0] > low for k in np.argsort(depth, kind="stable"))

    def values_at(self, points: Floats, sample: Ranges | None) -> Floats:
        survey = self.survey
        survey.rows_read += len(points) * sum(stop - start for start, stop in sample or survey.table.chunks())
        return log_densities(survey.target, survey.table, points, sample)

    def weighed(self) -> ModeSearch:
        """All that was found, the heaviest as the anchor."""
        all_modes = [self.anchor, *self.peaks]
        evidence = np.array([_log_evidence(each) for each in all_modes])
        evidence[0] += HEAVIER
        order = np.argsort(-evidence, kind="stable")
        evidence[0] -= HEAVIER
        weights = np.exp(evidence - evidence.max())
        shares = weights / weights.sum()
        others = tuple(Peak(all_modes[k], float(shares[k])) for k in order[1:] if shares[k] > NEGLIGIBLE)
        spent = self.survey.rows_read + self.screen.rows_read
        heaviest = all_modes[order[0]]
        return ModeSearch(heaviest, self.screen.size, self.climbs, others, spent, heaviest is not self.anchor)


def _on_slopes(known: Sequence[Expansion], here: Expansion, step: Floats) -> Expansion | None:
    """The known mode within whose Gaussian a climb has arrived, and to which Newton's step leads; None else."""
    for mode in known:
        away = distance(here.theta - mode.theta, mode.hessian)
        fits = abs(mode.value - away**2 / 2 - here.value) < ALIKE
        if away < WITHIN and fits and distance(here.theta + step - mode.theta, mode.hessian) < 1:
            return mode
    return None


def _sample(table: Table) -> Ranges | None:
    """The head of a shuffled table; of any other, stretches that are spread evenly over it."""
    if table.num_rows <= SAMPLE_ROWS:
        return None
    if table.shuffled:
        return table.chunks(SAMPLE_ROWS)
    length = SAMPLE_ROWS // SAMPLE_RANGES
    firsts = np.linspace(0, table.num_rows - length, SAMPLE_RANGES).astype(int)
    return [(int(first), int(first) + length) for first in firsts]


def _prior_at_its_mode(target: Target, anchor: Anchor) -> Expansion | None:
    """The prior's Gaussian approximation at its own mode, exact for a Gaussian prior; None where it has none."""
    curvature = curvature_kept(anchor)

    def evaluate(theta: Floats) -> Expansion:
        return prior_expansion(target, theta, curvature)

    first = evaluate(anchor.mode)
    try:
        if anchor.is_diagonal:
            return climb_diagonal(evaluate, evaluate, first, CLOSE, MAX_ITERATIONS)
        return climb(evaluate, first, CLOSE, num_rows=1, max_iterations=MAX_ITERATIONS)
    except PosteriorError:
        return None


def _log_evidence(anchor: Anchor) -> float:
    """log of the mass about a mode by Laplace, but for a constant: log density - log det(H) / 2."""
    return float(anchor.log_density - anchor.whitener.log_det / 2)
