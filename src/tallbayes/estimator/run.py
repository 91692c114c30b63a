"""The run: levels that only grow, what they have cost, and what their samples say at one moment.

value and variance by level, tolerance, standard error, degrees of freedom, bias bound   `assess`
the coarse paths of a level have the law of the fine paths below it                      `consistent`
all paths finite, none out of bounds                                                     `trouble`
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.estimator.allocation import (
    TRUSTED_SAMPLES,
    Least,
    degrees_of_freedom,
    floored_variance,
    sum_errors,
    unseen_jumps,
)
from tallbayes.estimator.decisions import Decisions, Unrecorded
from tallbayes.estimator.estimands import Estimands, GaussianLevel, Summary, plain_variance, summarise
from tallbayes.estimator.estimates import Status, t_quantile
from tallbayes.estimator.levels import LevelBlock, Levels
from tallbayes.estimator.rates import FARTHEST, Contraction, consistency, consistency_freedom
from tallbayes.estimator.tails import Tails, eased
from tallbayes.estimator.tuning import variance_floor
from tallbayes.moments import Floats, Moments
from tallbayes.progress import Report
from tallbayes.workers.dispatch import Dispatcher
from tallbayes.workers.executors import Executor

FALSE_ALARM = 1e-7
KEPT_BYTES = 2**24
Goal = Callable[[Summary], Floats]
NEGLIGIBLE = 0.01


@dataclass(frozen=True)
class Budget:
    """Where to stop at the latest."""

    max_evaluations: float = np.inf
    max_levels: int = 12
    max_seconds: float = np.inf


def budget_within(max_evaluations: float | None, max_levels: int | None, max_seconds: float | None) -> Budget:
    """The usual one but for what is given, which is checked."""
    given = {
        "max_evaluations": max_evaluations,
        "max_levels": max_levels,
        "max_seconds": max_seconds,
    }
    present = {name: value for name, value in given.items() if value is not None}
    for name, value in present.items():
        whole = name == "max_levels"
        number = isinstance(value, int | np.integer if whole else int | float | np.number)
        if isinstance(value, bool) or not number or not value > (2 if whole else 0):
            what = f"{name} a whole number > 2" if whole else f"{name} > 0"
            raise InputError(explain(what, repr(value), "None for the default"))
    return Budget(**present)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class LevelState:
    """All samples of one level so far, merged; of where their paths ended, the first blocks."""

    delta: Moments
    fine: Moments
    coarse: Moments
    nonfinite: int
    farthest: float
    strained: float
    points: tuple[Floats, ...] = ()

    @property
    def samples(self) -> int:
        return self.delta.count

    @classmethod
    def of(cls, block: LevelBlock) -> LevelState:
        points = () if block.points is None else (block.points,)
        return cls(block.delta, block.fine, block.coarse, block.nonfinite, block.farthest, block.strained, points)

    def add(self, block: LevelBlock, kept_bytes: float) -> LevelState:
        with np.errstate(invalid="ignore", over="ignore"):
            return LevelState(
                self.delta.merge(block.delta),
                self.fine.merge(block.fine),
                self.coarse.merge(block.coarse),
                self.nonfinite + block.nonfinite,
                max(self.farthest, block.farthest),
                self.strained
                + (block.strained - self.strained) * block.delta.count / (self.samples + block.delta.count),
                self._points_with(block, kept_bytes),
            )

    def _points_with(self, block: LevelBlock, kept_bytes: float) -> tuple[Floats, ...]:
        if block.points is None or len(self.points) * block.delta.count < self.samples:
            return self.points
        return (*self.points, block.points) if len(self.points) * block.points.nbytes < kept_bytes else self.points


@dataclass(frozen=True, eq=False)
class Assessment:
    """What the samples say at one moment, component by component."""

    summary: Summary
    variance: Floats
    tolerance: Floats
    standard_error: Floats
    freedom: Floats
    bias_bound: Floats


@dataclass(eq=False)
class Run:
    """The state of one run: levels that only grow, and what they have cost."""

    problem: Levels
    estimands: Estimands
    executor: Executor
    report: Report
    tolerances: Goal
    budget: Budget
    laplace: GaussianLevel | None = None
    tails: Tails | None = None
    levels: list[LevelState] = field(default_factory=list)
    contraction: Contraction | None = None
    evaluations: int = 0
    started: float = field(default_factory=time.monotonic)
    told: float = 0.0
    seconds_before: float = 0.0
    kept_bytes: float = KEPT_BYTES
    decisions: Decisions = field(default_factory=Unrecorded)
    speculative: int = 0
    dispatch: Callable[..., Dispatcher] = Dispatcher
    # None: that of the paths' motion.
    weak_order: float | None = None
    # A bias that no level removes, in posterior sds.
    standing_bias: float = 0.0
    # Which components hang on any of some parameters.
    touched: Callable[[tuple[int, ...]], np.ndarray] | None = None
    # Not copied: another run has another problem, executor or number of samples.
    dispatcher: Dispatcher | None = field(default=None, init=False, repr=False)

    @property
    def samples(self) -> Floats:
        return np.array([level.samples for level in self.levels], float)

    @property
    def costs(self) -> Floats:
        return np.array([self.problem.evaluations(l) for l in range(len(self.levels))], float)

    def block_paths(self, num_levels: int) -> np.ndarray:
        """Samples in a block of each of the first levels."""
        return np.array([self.problem.block_paths(level) for level in range(num_levels)])

    @property
    def rho(self) -> float:
        """The factor by which the levels' means fall: step bias or memory of the start, the slower."""
        assert self.contraction is not None
        order = self.problem.motion.weak_order if self.weak_order is None else self.weak_order
        return max(2.0**-order, self.contraction.upper)

    @property
    def given_up(self) -> np.ndarray:
        """Components of parameters along which paths do not settle: nothing is asked of them, and nothing claimed."""
        slow = () if self.contraction is None else self.contraction.slow
        if not slow or self.touched is None:
            return np.full(self.estimands.size, bool(slow))
        return self.touched(slow)


@np.errstate(invalid="ignore", over="ignore")
def assess(run: Run) -> Assessment:
    """Values and errors of all components from the samples so far; not a number where paths diverged.

    Of what is given up the errors are 0 here, so that nothing is sampled for it; see `without_error`.
    """
    summary = summarise(run.estimands, [level.delta for level in run.levels], run.laplace)
    given_up = run.given_up
    if np.any(given_up):
        kept = {name: np.where(given_up, 0.0, getattr(summary, name)) for name in ("mean", "variance", "laplace_error")}
        summary = replace(summary, **kept, kurtosis=np.where(given_up, 3.0, summary.kurtosis))
    samples = run.samples
    rate = run.problem.variance_rate
    variance = summary.variance.copy()
    variance[0] = unseen_jumps(variance[0], run.estimands.observed(run.estimands.jump), samples[0])
    variance = floored_variance(
        variance, samples, rate, TRUSTED_SAMPLES, least_variance(run, variance[0], summary.scale)
    )
    rho = run.rho if len(run.levels) >= 3 else np.inf
    if np.any(given_up):
        variance[:, given_up] = 0.0
    errors = sum_errors(summary.mean, variance, samples, rho, summary.laplace_error)
    left = run.standing_bias + (0.0 if run.contraction is None else run.contraction.left)
    return Assessment(
        summary=summary,
        variance=variance,
        tolerance=run.tolerances(summary),
        standard_error=errors.standard_error,
        freedom=degrees_of_freedom(variance, summary.kurtosis, samples),
        bias_bound=errors.bias_bound + np.where(given_up, 0.0, left * summary.scale),
    )


def least_variance(run: Run, variance: Floats, scale: Floats) -> Least | None:
    """The least that V_0 can be, whatever its samples say; None where no probe was made."""
    if run.tails is None:
        return None
    least = variance_floor(run.tails, run.problem)
    if not run.problem.controlled:
        return least
    return eased(least, plain_variance(run.estimands, run.levels[0].fine, scale), variance)


def gaussian_summary(estimands: Estimands, laplace: GaussianLevel | None) -> Summary:
    """What the Laplace level alone says, before anything is sampled."""
    nothing = Moments.of(np.zeros((2, len(estimands.laplace_sd))), estimands.pairs)
    return summarise(estimands, [nothing], laplace)


def consistency_scores(run: Run) -> Floats:
    """z-scores (levels - 1, components)."""
    fine = [level.fine for level in run.levels[:-1]]
    return run.estimands.observed(consistency(fine, [level.coarse for level in run.levels[1:]]))


def consistent(run: Run) -> bool:
    """Whether all z-scores are within what one look in ten million would show by chance.

    Levels of what is exactly Gaussian differ by rounding alone, whose error bar is no smaller: a difference of a
    hundredth of the tolerance is none.
    """
    scores = consistency_scores(run)
    pairs = zip(run.levels[:-1], run.levels[1:], strict=True)
    freedom = [consistency_freedom(below.fine, above.coarse) for below, above in pairs]
    allowed = -t_quantile(run.estimands.observed(np.stack(freedom)), FALSE_ALARM / (2 * scores.size))
    fine = np.stack([level.fine.mean for level in run.levels[:-1]])
    apart = run.estimands.observed(fine - np.stack([level.coarse.mean for level in run.levels[1:]]))
    now = assess(run)
    unit = run.estimands.in_observables(now.tolerance, now.summary.scale)
    agree = (np.abs(scores) <= allowed) | (np.abs(apart) <= NEGLIGIBLE * unit)
    return bool(np.all(agree | run.given_up))


def trouble(run: Run) -> Status | None:
    if any(level.nonfinite or level.farthest > FARTHEST for level in run.levels):
        return Status.diverged
    return None
