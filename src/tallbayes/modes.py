"""A second mode: climbs from draws of the prior, on a few rows first and on all rows where they end elsewhere.

Paths that start at one mode stay there and agree with each other, so nothing downstream would notice. What is
promised is what was tried: a second mode is named where a climb ends at one, and otherwise the report says how
many starts found none. Only a model that declares itself log-concave is known to have one mode.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.ascent import climb, distance
from tallbayes.errors import PosteriorError
from tallbayes.expansion import Expansion, Ranges, Survey, prior_expansion, require_finite
from tallbayes.lbfgs import climb_diagonal
from tallbayes.model import Target
from tallbayes.moments import Floats
from tallbayes.roles import Executor
from tallbayes.sums import Curvature
from tallbayes.table import Table

SAMPLE_ROWS = 1_024
SAMPLE_RANGES = 16
MAX_ITERATIONS = 50
MAX_ITERATIONS_ON_ALL_ROWS = 20
MAX_HALVINGS = 30
# A climb on few rows need only tell modes apart.
CLOSE = 0.1
APART = 5.0
NEGLIGIBLE = 1e-6


@dataclass(frozen=True, eq=False)
class ModeSearch:
    """What was tried, and a second mode where one was found.

    `share` is Laplace's estimate of the second mode's part of the posterior mass; a mode that holds less than a
    millionth is left out. `evaluations` are rows read.
    """

    starts: int
    second: Floats | None
    share: float
    evaluations: int
    log_concave: bool = False

    @property
    def note(self) -> str:
        """One line for the report."""
        if self.log_concave:
            return "log-concave: one mode"
        if self.second is None:
            return f"no second mode found from {self.starts} starts"
        near = np.array2string(self.second, precision=4, threshold=6, edgeitems=3, max_line_width=10_000)
        return f"second mode near {near}, with {self.share:.2g} of the posterior's mass"


def search_second_mode(
    target: Target, table: Table, anchor: Anchor, executor: Executor | None = None, starts: int = 4, seed: int = 0
) -> ModeSearch:
    """Climb from `starts` draws of the prior; the heaviest mode other than the anchor's, or none."""
    if target.log_concave:
        return ModeSearch(starts=0, second=None, share=0.0, evaluations=0, log_concave=True)
    survey = Survey(target, table, executor, Curvature.NONE if anchor.is_diagonal else Curvature.DENSE)
    sample = _sample(table)
    # Where a climb on the sample ends if it starts at the anchor: the same mode, as the sample sees it.
    same = _climb(survey, anchor.mode, anchor, sample, MAX_ITERATIONS)
    known = [anchor.mode if same is None else same.theta]
    heaviest, share = None, 0.0
    for start in _starts(target, anchor, starts, np.random.default_rng(seed)):
        end = _climb(survey, start, anchor, sample, MAX_ITERATIONS)
        if end is None or any(distance(end.theta - theta, end.hessian) < 1 for theta in known):
            continue
        known.append(end.theta)
        mode = _climb(survey, end.theta, anchor, None, MAX_ITERATIONS_ON_ALL_ROWS)
        if mode is not None and _is_apart(mode, anchor) and _share(mode, anchor) > max(share, NEGLIGIBLE):
            heaviest, share = mode.theta, _share(mode, anchor)
    return ModeSearch(starts, heaviest, share, survey.rows_read)


def _sample(table: Table) -> Ranges | None:
    """The head of a shuffled table; of any other, stretches that are spread evenly over it."""
    if table.num_rows <= SAMPLE_ROWS:
        return None
    if table.shuffled:
        return table.chunks(SAMPLE_ROWS)
    length = SAMPLE_ROWS // SAMPLE_RANGES
    firsts = np.linspace(0, table.num_rows - length, SAMPLE_RANGES).astype(int)
    return [(int(first), int(first) + length) for first in firsts]


def _climb(
    survey: Survey, start: Floats, anchor: Anchor, ranges: Ranges | None, max_iterations: int
) -> Expansion | None:
    """The mode that a climb from `start` on these rows ends at; none where it fails, which counts as tried.

    A start where the log posterior is not finite is moved half-way to the anchor until it is.
    """

    def evaluate(theta: Floats) -> Expansion:
        return survey(theta, ranges)

    def expand_diagonal(theta: Floats) -> Expansion:
        return survey(theta, ranges, Curvature.DIAGONAL)

    expand_start = expand_diagonal if anchor.is_diagonal else evaluate
    first = expand_start(start)
    for _ in range(MAX_HALVINGS):
        if first.is_finite:
            break
        first = expand_start((first.theta + anchor.mode) / 2)
    try:
        require_finite(first, "on the way to the anchor")
        if anchor.is_diagonal:
            return climb_diagonal(evaluate, expand_diagonal, first, CLOSE, max_iterations)
        return climb(evaluate, first, CLOSE, survey.table.num_rows, max_iterations=max_iterations)
    except PosteriorError:
        return None


def _starts(target: Target, anchor: Anchor, count: int, rng: np.random.Generator) -> Floats:
    """Draws from the prior's Gaussian approximation at its own mode, exact for a Gaussian prior.

    Where the prior has none (flat, say), points 5 to 10 of Laplace's sds from the anchor in random directions.
    """
    z = rng.standard_normal((count, target.dimension))
    try:
        prior = _prior_at_its_mode(target, anchor)
    except PosteriorError:
        radius = rng.uniform(APART, 2 * APART, (count, 1))
        return anchor.mode + anchor.displacements(radius * z / np.linalg.norm(z, axis=1, keepdims=True))
    if anchor.is_diagonal:
        return prior.theta + z / np.sqrt(prior.hessian)
    return prior.theta + np.linalg.solve(np.linalg.cholesky(prior.hessian).T, z.T).T


def _prior_at_its_mode(target: Target, anchor: Anchor) -> Expansion:
    curvature = Curvature.DIAGONAL if anchor.is_diagonal else Curvature.DENSE

    def evaluate(theta: Floats) -> Expansion:
        return prior_expansion(target, theta, curvature)

    first = evaluate(anchor.mode)
    if anchor.is_diagonal:
        return climb_diagonal(evaluate, evaluate, first, CLOSE, MAX_ITERATIONS)
    return climb(evaluate, first, CLOSE, num_rows=1, max_iterations=MAX_ITERATIONS)


def _is_apart(mode: Expansion, anchor: Anchor) -> bool:
    """Whether the two modes are far from each other in the metric of both."""
    apart = mode.theta - anchor.mode
    return min(distance(apart, mode.hessian), distance(apart, anchor.precision)) > APART


def _share(mode: Expansion, anchor: Anchor) -> float:
    """The mode's part of the mass of both, by Laplace: each holds exp(log density) det(H)^(-1/2)."""
    log_ratio = mode.value - anchor.log_density - (_log_det(mode.hessian) - _log_det(anchor.precision)) / 2
    return float(1 / (1 + np.exp(-np.clip(log_ratio, -700, 700))))


def _log_det(hessian: Floats) -> float:
    return float(np.sum(np.log(hessian)) if hessian.ndim == 1 else np.linalg.slogdet(hessian)[1])
