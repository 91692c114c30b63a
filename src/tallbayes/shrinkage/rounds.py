"""Rounds: chains on a site, weights that say whether it serves, and more of either until every answer is met.

    a Gaussian at the mode -> chains -> log weights of where they are -> the same about the chains' own moments, where
    weights vary -> segments of sweeps and draws that are weighed, whichever has the larger part of the error

Of all segments since the last site the first quarter is not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil

import numpy as np

from tallbayes.estimator.estimates import Status
from tallbayes.moments import Floats
from tallbayes.shrinkage.assessment import Findings, Readings, WeighedSweeps, assess
from tallbayes.shrinkage.chains import CHAINS, ENDS, Segment, State, begin_chains, run_segment
from tallbayes.shrinkage.scales import ScaleLaw
from tallbayes.shrinkage.site import LikelihoodSite, mended
from tallbayes.watch import OutOfTime
from tallbayes.weighing.regression import PlainRegression

FIRST_SEGMENTS, FIRST_WEIGHED, MOST_GROWTH = 24, 4, 2.0
# Of a segment; and for what is asked afterwards, segments at the least, and rows read.
DRAWS, LEAST_KEPT, MOST_READ = ENDS * CHAINS, 8, 5e8
# Segments whose draws wait to be weighed.
MOST_DRAWN = 128
FORGOTTEN = 0.25
# With fewer there is no answer.
FEWEST_SEGMENTS = 4
# A site whose log weights vary no more is as good as one in balance; sites beyond so many are not tried.
SMALL_VARIANCE, MOST_SITES, SETTLING = 0.02, 5, 6
# Where chains do not mix, or weights do not behave, by then, they will not.
MOST_UNMIXED, MOST_DOUBTED = 512, 64
# Of a squared tolerance, so that it is met at the first try.
SHARE = 0.9


@dataclass(eq=False)
class Shrinking:
    """A regression under a shrinkage prior, and all that was done about it; it can go on from wherever it was left.

    `read` is a `Reader` once it knows what the rows tell of every coefficient, `answers` what is made of that. Segments
    are counted from the first of the present site, their random numbers from the first of all.
    """

    regression: PlainRegression
    law: ScaleLaw
    read: Callable[..., Floats]
    answers: Readings
    seed: int
    site: LikelihoodSite
    state: State
    number: int = 0
    settled: bool = False
    segments: list[Segment] = field(default_factory=list)
    log_weights: dict[int, Floats] = field(default_factory=dict)
    evaluations: int = 0

    @classmethod
    def begun(
        cls,
        regression: PlainRegression,
        law: ScaleLaw,
        read: Callable[..., Floats],
        answers: Readings,
        seed: int,
        site: LikelihoodSite,
    ) -> Shrinking:
        return cls(regression, law, read, answers, seed, site, begin_chains(site, law))

    @property
    def kept(self) -> range:
        """The segments that count."""
        return range(ceil(FORGOTTEN * len(self.segments)), len(self.segments))

    @property
    def means(self) -> Floats:
        """Of every chain, (chains, numbers)."""
        return np.mean([self.segments[each].means for each in self.kept], axis=0)

    @property
    def weighed(self) -> WeighedSweeps | None:
        chosen = self.weighed_segments
        if not chosen:
            return None
        values = np.concatenate([self.segments[each].values for each in chosen])
        return WeighedSweeps(np.concatenate([self.log_weights[each] for each in chosen]), values)

    @property
    def weighed_segments(self) -> list[int]:
        return [each for each in self.kept if each in self.log_weights]

    @property
    def spread(self) -> Floats:
        """Variance of a draw, by number that is read."""
        draws = np.concatenate([self.segments[each].values for each in self.drawn])
        return np.asarray(draws.reshape(-1, draws.shape[-1]).var(axis=0))

    def copy(self) -> Shrinking:
        """That goes on by itself."""
        return replace(self, segments=list(self.segments), log_weights=dict(self.log_weights))

    def sweep(self, segments: int) -> None:
        """Until there are so many."""
        read = partial(self.read, self.site.data_precision)
        while len(self.segments) < segments:
            self.state, segment = run_segment(self.site, self.law, self.state, read, self.seed, self.number)
            self.number += 1
            self.segments.append(segment)
            self._thin()

    def _thin(self) -> None:
        """Give up draws that are not weighed, every other one, where there are many: their means stay."""
        free = [each for each in self.drawn if each not in self.log_weights]
        if len(free) > MOST_DRAWN:
            for each in free[::2]:
                self.segments[each] = self.segments[each].without_draws

    @property
    def drawn(self) -> list[int]:
        """The segments that count and have their draws."""
        return [each for each in self.kept if len(self.segments[each].points)]

    def weigh(self, count: int) -> None:
        """So many of the segments that count, evenly spaced among those that are not weighed yet."""
        left = [each for each in self.drawn if each not in self.log_weights]
        more = min(count - len(self.weighed_segments), len(left))
        for place in range(max(more, 0)):
            each = left[place * len(left) // more]
            self.log_weights[each] = self.log_weights_of(self.segments[each].points)

    def weigh_for_draws(self, most_evaluations: float) -> None:
        """As many as are affordable, for what is asked afterwards, if there is the time."""
        rows, room = self.regression.num_rows, most_evaluations - self.evaluations
        segments = max(int(MOST_READ / (rows * DRAWS)), LEAST_KEPT)
        with suppress(OutOfTime):
            self.weigh(min(segments, int(min(room / (rows * DRAWS), 2**20))))

    def log_weights_of(self, draws: Floats) -> Floats:
        """Of draws (draws, chains, d)."""
        points = draws.reshape(-1, draws.shape[-1])
        found = self.regression.log_density(points) - self.site.log_density(points)
        self.evaluations += len(points) * self.regression.num_rows
        return np.asarray(found.reshape(draws.shape[:-1]))

    def settle(self) -> None:
        """The site, in balance over the mass of the posterior where that at the mode is not good enough."""
        best: tuple[float, LikelihoodSite] | None = None
        for tried in range(MOST_SITES):
            self.segments.clear()
            self.sweep(SETTLING)
            late = self.segments[SETTLING // 3 :]
            log_weights = self.log_weights_of(late[-1].points[-1:])
            variance = float(np.var(log_weights)) if np.all(np.isfinite(log_weights)) else np.inf
            if best is None or variance < best[0]:
                best = variance, self.site
            if variance < SMALL_VARIANCE or tried == MOST_SITES - 1:
                break
            points = np.concatenate([each.points for each in late]).reshape(-1, len(self.site.centre))
            site = LikelihoodSite.about(self.regression, points.mean(axis=0), mended(np.cov(points.T)))
            self.evaluations += self.regression.num_rows
            self.site = site
        assert best is not None
        self.site, self.settled = best[1], True
        self.segments.clear()

    def widen(self) -> None:
        """Begin again on a site of heavier tails, from where the chains are."""
        self.site = self.site.widened
        self.segments.clear()
        self.log_weights.clear()

    def findings(self) -> Findings:
        return assess(self.means, self.spread, self.weighed, self.answers)


Tolerance = Callable[[Findings], Floats]


def shrink_up(
    run: Shrinking, tolerance: Tolerance, most_evaluations: float, keep: bool, tell: Callable[..., None]
) -> Status:
    """Round after round, until every answer is met, or something stands in the way; with draws to `keep`."""
    try:
        if not run.settled:
            run.settle()
        segments = max(FIRST_SEGMENTS, len(run.segments))
        weighed = FIRST_WEIGHED
        while True:
            run.sweep(segments)
            run.weigh(weighed)
            now = run.findings()
            allowed = tolerance(now)
            tell(now, allowed)
            status, segments, weighed = _next(run, now, allowed)
            if status is Status.converged and keep:
                run.weigh_for_draws(most_evaluations)
                # More weights know more of their tail.
                status, segments, weighed = _next(run, run.findings(), allowed)
            if status is not None:
                return status
            if (
                run.evaluations + (weighed - len(run.weighed_segments)) * DRAWS * run.regression.num_rows
                > most_evaluations
            ):
                return Status.max_evaluations
    except (OutOfTime, KeyboardInterrupt) as end:
        if not run.settled or len(run.segments) < FEWEST_SEGMENTS:
            raise
        return Status.max_seconds if isinstance(end, OutOfTime) else Status.interrupted


def _next(run: Shrinking, now: Findings, allowed: Floats) -> tuple[Status | None, int, int]:
    """Why to stop, or how many segments and how many that are weighed come next."""
    have = len(run.segments)
    there = run.weighed
    assert there is not None
    weighed = len(run.weighed_segments)
    if not now.is_mixed:
        stop = Status.chains_apart if have >= MOST_UNMIXED else None
        return stop, 2 * have, weighed
    if there.trouble and np.isinf(run.site.freedom):
        run.widen()
        return None, FIRST_SEGMENTS, FIRST_WEIGHED
    if there.trouble:
        if weighed >= min(MOST_DOUBTED, len(run.drawn)) and have >= MOST_DOUBTED:
            return Status.heavy_tails, have, weighed
        return None, 2 * have if weighed >= len(run.drawn) else have, 2 * weighed
    with np.errstate(divide="ignore", invalid="ignore"):
        square = now.standard_error**2 + now.bias**2
        over = np.nan_to_num(np.where(square == 0, 0.0, square / allowed**2), nan=np.inf, posinf=1e6)
        by_weights = float(np.max(over * now.weight_share, initial=0.0))
        by_sweeps = float(np.max(over * np.maximum(1 - now.weight_share, 0.0), initial=0.0))
    if over.max(initial=0.0) <= 1:
        return Status.converged, have, weighed
    half = SHARE / 2
    more_weighed = weighed * min(max(by_weights / half, 1.0), 4.0)
    # What sweeps take is what weights leave; both where neither is enough by itself.
    left = SHARE - min(by_weights, half)
    more = have * min(max(by_sweeps / left, 1.0 if more_weighed > weighed else 1.05), MOST_GROWTH)
    # Draws that are weighed have to be there first.
    more = max(more, have + more_weighed - len(run.drawn) if more_weighed > len(run.drawn) else 0)
    return None, ceil(more), ceil(more_weighed)
