"""Rounds: draws until every quantity meets its tolerance, or until the weights or the price speak against it.

What a round sees decides how many draws the next has, and nothing else does: a decision is a pure function of the first
n draws. Nothing is left out, so that there is no bias but that of the ratio, of order 1 / n.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import Protocol

import numpy as np

from tallbayes.estimator.allocation import degrees_of_freedom, unseen_jumps
from tallbayes.estimator.estimands import Estimands, GaussianLevel, Summary, summarise
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.run import Assessment, Budget, Goal
from tallbayes.moments import Floats, Moments
from tallbayes.progress import Progress, Report
from tallbayes.watch import OutOfTime, current, look
from tallbayes.weighing.proposal import BLOCK_DRAWS, Proposal
from tallbayes.weighing.replicates import REPLICATES, Replicated
from tallbayes.weighing.weights import Weights

FIRST_DRAWS, FIRST_REPLICATES, MOST_GROWTH = 512, 256, 4
# Of the tolerance: what the standard error may take.
SHARE = 0.8
# An error is known with so many degrees of freedom; one that is so small a part of the tolerance, stated larger by what
# is missing, with fewer.
LEAST_FREEDOM, FEWEST_FREEDOM, SMALL_PART = 15.0, 4.0, 0.5
QUANTILE = 1.96
LAPLACE_SHARE = 0.1
# Of the Gaussian itself, which read no row.
MOST_LEVEL_DRAWS = 2**18
# Where so many draws do not know their own variance, nobody does.
MOST_DOUBTED = 2**15


class DrawSource(Protocol):
    """A posterior about which draws are made: log pi at a block of them, and what is read off them."""

    @property
    def num_rows(self) -> int: ...

    def blocks(self, numbers: range) -> Iterator[tuple[Floats, Floats, Floats]]:
        """By block: z, log pi up to a constant, and the observables, (draws, components)."""
        ...

    def replicates(self, numbers: range, base: Floats, exact: np.ndarray) -> Iterator[Replicated]:
        """Blocks of unbiased replicates; see `replicates`."""
        ...


@dataclass(frozen=True, eq=False)
class Drawn:
    """All draws so far."""

    z: Floats
    log_posterior: Floats
    log_gaussian: Floats
    values: Floats

    def __len__(self) -> int:
        return len(self.z)

    @classmethod
    def joined(cls, parts: list[Drawn]) -> Drawn:
        return cls(*(np.concatenate(each) for each in zip(*map(_fields, parts), strict=True)))

    @cached_property
    def weights(self) -> Weights:
        return Weights.of(self.log_posterior, self.log_gaussian)


def _fields(drawn: Drawn) -> tuple[Floats, ...]:
    return drawn.z, drawn.log_posterior, drawn.log_gaussian, drawn.values


@dataclass(frozen=True, eq=False)
class Weighing:
    """A run of draws: where they come from, what is wanted of them, and what there is so far.

    `most_rows` is the number of rows that may be read in all: beyond it another method is cheaper.
    """

    source: DrawSource
    proposal: Proposal
    estimands: Estimands
    level: GaussianLevel
    goal: Goal
    budget: Budget
    report: Report
    most_rows: float = np.inf
    drawn: Drawn | None = None
    replicated: Replicated | None = None
    seconds_before: float = 0.0
    # That no draws remove, in posterior sds.
    standing_bias: float = 0.0

    @property
    def evaluations(self) -> int:
        spent = 0 if self.replicated is None else self.replicated.draws
        return (self.count + spent) * self.source.num_rows

    @property
    def count(self) -> int:
        return 0 if self.drawn is None else len(self.drawn)

    @property
    def weights(self) -> Weights:
        assert self.drawn is not None
        return self.drawn.weights


@dataclass(frozen=True, eq=False)
class Weighed:
    """How a run of draws ended; `trouble` says in words why it should not be believed, or gone on with."""

    weighing: Weighing
    status: Status | None
    final: Assessment
    trouble: str = ""


def weigh_up(weighing: Weighing, least: int = FIRST_DRAWS) -> Weighed:
    """Round after round, from so many draws on."""
    draws = max(least, weighing.count)
    while True:
        try:
            weighing = _extended(weighing, draws)
            now, trouble = assess_weights(weighing), weighing.weights.trouble
            if trouble:
                return Weighed(weighing, None, now, f"weights: {trouble}")
            _tell(weighing, now)
        except (OutOfTime, KeyboardInterrupt) as end:
            if weighing.drawn is None:
                raise
            return Weighed(weighing, _cut_short(end), assess_weights(weighing))
        if _slow_level(weighing, now):
            if weighing.level.draws >= MOST_LEVEL_DRAWS:
                return Weighed(weighing, None, now, "weights: a quantity has no mean under the Gaussian")
            weighing = replace(weighing, level=weighing.level.extended(4 * weighing.level.draws))
            continue
        have = weighing.count
        need = _needed(weighing, now, have)
        ended = _ended(weighing, now, have, need, "draws")
        if ended is not None:
            return ended
        # A part of a draw is one more: no round is without any.
        draws = ceil(min(need, MOST_GROWTH * have))


def replicate_up(weighing: Weighing) -> Weighed:
    """The same by unbiased replicates, where a few hundred draws say that weights behave."""
    trial = weigh_up(replace(weighing, goal=_anything, report=_nobody)) if weighing.drawn is None else None
    if trial is not None and trial.trouble:
        return trial
    weighing = weighing if trial is None else replace(weighing, drawn=trial.weighing.drawn)
    blocks = FIRST_REPLICATES // REPLICATES
    while True:
        try:
            weighing = _replicated(weighing, blocks)
            now = assess_replicates(weighing)
            _tell(weighing, now)
        except (OutOfTime, KeyboardInterrupt) as end:
            if weighing.replicated is None:
                raise
            return Weighed(weighing, _cut_short(end), assess_replicates(weighing))
        if not np.all(np.isfinite(now.standard_error)):
            return Weighed(weighing, None, now, "weights: chains that did not meet")
        have = len(weighing.replicated.values) if weighing.replicated is not None else 0
        need = _needed(weighing, now, have)
        ended = _ended(weighing, now, have, need, "replicates")
        if ended is not None:
            return ended
        blocks = ceil(min(need, MOST_GROWTH * have) / REPLICATES)


def _ended(weighing: Weighing, now: Assessment, have: int, need: float, what: str) -> Weighed | None:
    """The end, where so many samples are there, and so many are needed."""
    if need <= have:
        return Weighed(weighing, Status.converged, now)
    if not need < np.inf:
        return Weighed(weighing, None, now, "weights: single draws rule the error")
    rows = weighing.source.num_rows
    if weighing.evaluations * need / have > weighing.most_rows:
        return Weighed(weighing, None, now, f"weights: {need:,.0f} {what} of {rows:,} rows would be needed")
    if weighing.evaluations * min(need / have, MOST_GROWTH) > weighing.budget.max_evaluations:
        met = np.all(np.hypot(now.standard_error, now.bias_bound) <= now.tolerance)
        return Weighed(weighing, Status.converged if met else Status.max_evaluations, now)
    return None


def _cut_short(end: BaseException) -> Status:
    return Status.max_seconds if isinstance(end, OutOfTime) else Status.interrupted


def _anything(summary: Summary) -> Floats:
    return np.full_like(summary.value, np.inf)


def _nobody(progress: Progress) -> None:
    """Is told."""


def _replicated(weighing: Weighing, blocks: int) -> Weighing:
    done = weighing.replicated
    first = 0 if done is None else len(done.values) // REPLICATES
    exact = weighing.level.variance == 0
    parts = [] if done is None else [done]
    parts += weighing.source.replicates(range(first, blocks), weighing.level.mean, exact)
    values = np.concatenate([part.values for part in parts])
    return replace(weighing, replicated=Replicated(values, sum(part.draws for part in parts)))


@np.errstate(invalid="ignore", over="ignore")
def assess_replicates(weighing: Weighing) -> Assessment:
    """Values and errors of all components from the replicates so far; nothing of the Gaussian's own error is left."""
    assert weighing.replicated is not None
    estimands, values = weighing.estimands, weighing.replicated.values
    delta = Moments.of(values - weighing.level.mean, estimands.pairs)
    summary = summarise(estimands, [delta], weighing.level)
    count = np.array([float(len(values))])
    variance = unseen_jumps(summary.variance[0], estimands.observed(estimands.jump), count[0])[None]
    return Assessment(
        summary=replace(summary, laplace_error=np.zeros_like(summary.value)),
        variance=variance,
        tolerance=weighing.goal(summary),
        standard_error=np.sqrt(variance[0] / count[0]),
        freedom=degrees_of_freedom(variance, summary.kurtosis, count),
        bias_bound=weighing.standing_bias * summary.scale,
    )


def _extended(weighing: Weighing, draws: int) -> Weighing:
    numbers = range(weighing.count // BLOCK_DRAWS, -(-draws // BLOCK_DRAWS))
    parts = [] if weighing.drawn is None else [weighing.drawn]
    for z, log_density, values in weighing.source.blocks(numbers):
        look()
        control = weighing.proposal.log_gaussian(z)
        log_proposal = -0.5 * np.sum(z**2, axis=1) - control
        parts.append(Drawn(z, log_density - log_proposal, control, values))
    return replace(weighing, drawn=Drawn.joined(parts))


@np.errstate(invalid="ignore", over="ignore")
def assess_weights(weighing: Weighing) -> Assessment:
    """Values and errors of all components from the draws so far."""
    estimands, drawn = weighing.estimands, weighing.drawn
    assert drawn is not None
    weights = drawn.weights
    delta = Moments.of(weights.differences(drawn.values), estimands.pairs)
    summary = summarise(estimands, [delta], weighing.level)
    count = np.array([float(len(drawn))])
    jump = estimands.observed(estimands.jump)
    variance = unseen_jumps(summary.variance[0], jump, count[0])[None]
    # Few draws know their variance roughly, and heavy ones mostly too low: half a standard error of it is added.
    variance = variance * (1 + 0.5 * np.sqrt((summary.kurtosis - 1) / count[0]))
    freedom = degrees_of_freedom(variance, summary.kurtosis, count)
    variance = variance * np.maximum(LEAST_FREEDOM / freedom, 1.0)
    error = np.sqrt(variance[0] / count[0])
    ratio = np.abs(estimands.observed(weights.ratio_bias(drawn.values)))
    bias = estimands.of_observables(ratio, summary.scale) + _lopsided(estimands, delta) * error
    bias = bias + weighing.standing_bias * summary.scale
    return Assessment(
        summary=summary,
        variance=variance,
        tolerance=weighing.goal(summary),
        standard_error=np.sqrt(error**2 + summary.laplace_error),
        freedom=freedom,
        bias_bound=bias,
    )


def _lopsided(estimands: Estimands, delta: Moments) -> Floats:
    """By how many standard errors an end of a t interval is off where samples are skewed, by component, to first order:
    |gamma| (2 q^2 + 1) / (6 sqrt n)."""
    skewness = np.abs(delta.skewness)
    d = len(estimands.mode) if estimands.observables.moments else 0
    # The linear part of an sd is made of both moments.
    skewness[d : 2 * d] = np.maximum(skewness[:d], skewness[d : 2 * d])
    return estimands.observed(skewness) * (2 * QUANTILE**2 + 1) / (6 * np.sqrt(delta.count))


def _needed(weighing: Weighing, now: Assessment, count: float) -> float:
    """Samples that should do; infinite where their fourth moments are those of a few."""
    allowed = SHARE * now.tolerance
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.nan_to_num(now.variance[0] / (allowed**2 - np.minimum(now.summary.laplace_error, allowed**2 / 2)))
        falling = now.bias_bound - weighing.standing_bias * now.summary.scale
        by_bias = np.nan_to_num(count * falling / (now.tolerance * np.sqrt(1 - SHARE**2)))
    need = max(float(spread.max()), float(by_bias.max()))
    if need > count:
        return need
    # Whatever the tolerance, so that the error itself is known.
    is_small = np.hypot(now.standard_error, now.bias_bound) <= SMALL_PART * now.tolerance
    if np.all(now.freedom >= np.where(is_small, FEWEST_FREEDOM, LEAST_FREEDOM)):
        return count
    return np.inf if count >= MOST_DOUBTED else 2 * count


def _slow_level(weighing: Weighing, now: Assessment) -> bool:
    """Whether the Gaussian's own expectations, which cost no data, take too large a part of the error."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return bool(np.any(np.nan_to_num(now.summary.laplace_error / (LAPLACE_SHARE * now.tolerance**2 / 2)) > 1))


def _tell(weighing: Weighing, now: Assessment) -> None:
    watch, error = current(), np.hypot(now.standard_error, now.bias_bound)
    with np.errstate(divide="ignore", invalid="ignore"):
        worst = int(np.argmax(np.nan_to_num(error / now.tolerance)))
    seconds = 0.0 if watch is None else time.monotonic() - watch.started
    weighing.report(
        Progress(
            quantity=weighing.estimands.labels()[worst],
            error=float(error[worst]),
            target=float(now.tolerance[worst]),
            levels=1,
            samples=(weighing.count,),
            evaluations=weighing.evaluations,
            seconds=seconds,
            evaluations_left=None,
            budget_left=np.inf if watch is None else max(0.0, watch.end - time.monotonic()),
        )
    )
