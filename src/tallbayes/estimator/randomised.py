"""The unbiased estimator: low levels in fixed numbers, all higher ones through a level drawn at random.

    E g = E_Laplace g + sum_{l < K} E Delta_l + E[ Delta_L / p_L ],   P(L = l) = p_l for l = K, ..., K + 12

Step bias and memory of the start (T_l grows with l) are removed together, and no error is left but that of sampling.
Levels above K + 12 have no chance: what they would add is 2^-12 of the mean at level K, which is lost in rounding, and
one path of theirs would take longer than all else. Where levels differ by rounding alone, none above K has. Variance
and cost are finite where beta > gamma = 1. p_l follows the measured second moments, sqrt(E Delta_l^2 / C_l), and falls
like 2^(-r l) above them: r = 5/4 for beta = 2, since with the textbook 3/2 the fourth moment is infinite and the error
bar itself unreliable. Numbers of samples come from pilots that no estimate uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from tallbayes.errors import MethodError, explain
from tallbayes.estimator.adaptive import (
    GROWTH,
    NORMAL_QUANTILE,
    fill,
    heavy_draws,
    tell,
    whole_blocks,
    without_error,
)
from tallbayes.estimator.allocation import TRUSTED_SAMPLES, degrees_of_freedom, floored_variance, optimal_samples
from tallbayes.estimator.estimands import Estimands, Summary, summarise
from tallbayes.estimator.estimates import Status, t_quantile
from tallbayes.estimator.levels import BLOCK_PATHS, Levels, Stream, sample_differences, sample_level
from tallbayes.estimator.rates import Rate, variance_decay
from tallbayes.estimator.run import Assessment, LevelState, Run, gaussian_summary, least_variance, trouble
from tallbayes.moments import Floats, Moments, merge_all
from tallbayes.progress import SAMPLING
from tallbayes.watch import OutOfTime, aside, begin, look
from tallbayes.workers.executors import capacity_of, in_order

PILOT_SAMPLES, FIRST_PILOT = 128, 1 << 21
PILOT_SEED = 0
RANDOM_LEVELS = 13
SLOWEST = 1.0
TAIL_EXPONENT = 1.25
LEAST_DRAWS = 128
MARGIN = 0.9
# In posterior sds: levels that differ by less differ by rounding alone, as where the posterior is Gaussian.
ROUNDING = 1e-5


@dataclass(frozen=True, eq=False)
class Tail:
    """Levels K, K + 1, ... with their probabilities, and the draws so far: Delta_L / p_L, one by one."""

    first_level: int
    probabilities: Floats
    counts: np.ndarray
    drawn: Moments | None = None

    @property
    def samples(self) -> int:
        return int(self.counts.sum())

    def cost(self, problem: Levels) -> float:
        """Row gradients that one draw takes on average."""
        levels = self.first_level + np.arange(len(self.probabilities))
        return float(self.probabilities @ [problem.evaluations(int(level)) for level in levels])

    def spent(self, problem: Levels) -> int:
        return sum(int(n) * problem.evaluations(self.first_level + k) for k, n in enumerate(self.counts))


@dataclass(eq=False)
class RandomisedRun:
    """A run whose levels are the fixed ones, and its tail."""

    run: Run
    tail: Tail
    beta: dict[str, float] = field(default_factory=dict)
    pilot_variance: Floats | None = None
    speculative: int = 0


def pilot_evaluations(problem: Levels, fixed_levels: int) -> int:
    """Row gradients of the pilots."""
    costs = [problem.evaluations(level) for level in range(fixed_levels + 2)]
    return PILOT_SAMPLES * sum(costs)


def prepare_randomised(run: Run, fixed_levels: int) -> RandomisedRun:
    """Pilots on two levels more than the fixed ones; refuse what has no finite variance at a finite cost."""
    # What is refused must not depend on the seed, so the pilots do not.
    problem = run.problem.for_tuning().reseeded(PILOT_SEED)
    begin("pilots", "of the levels that are drawn at random")
    pilots = []
    for level in range(fixed_levels + 2):
        paths = problem.block_paths(level)
        first, count = FIRST_PILOT // paths, PILOT_SAMPLES // paths
        tasks = ((problem, level, first + block) for block in range(count))
        blocks = list(in_order(run.executor, sample_level, tasks, 2 * capacity_of(run.executor)))
        run.evaluations += sum(block.evaluations for block in blocks)
        pilots.append(merge_all(block.delta for block in blocks))
    summary = summarise(run.estimands, pilots, run.laplace)
    samples = np.full(len(pilots), PILOT_SAMPLES, float)
    square = summary.variance + summary.mean**2
    exact = bool(np.all(square[1:] <= (ROUNDING * summary.scale) ** 2))
    beta = _decay(run, summary, samples)
    if not exact:
        _require_decay(beta)
    # What the pilots do not exclude: they are few, and a smooth quantity has beta = 2.
    slowest = min([2.0, *(rate.value + 2 * rate.standard_error for rate in beta.values())])
    cost = np.array([problem.evaluations(level) for level in range(len(pilots))], float)
    moment = square / run.tolerances(summary) ** 2
    law = _tail_law(moment[fixed_levels:].max(axis=1), cost[fixed_levels:], slowest)
    # Rounding has no rate, and 1 / p would make it large.
    tail = Tail(fixed_levels, np.ones(1), np.zeros(1, np.int64)) if exact else Tail(fixed_levels, *law)
    doubt = 1 + np.sqrt((np.maximum(summary.kurtosis, 3) - 1) / samples[:, None])
    variance = np.vstack([summary.variance[:fixed_levels], _tail_variance(tail, summary, slowest)[None]])
    doubts = np.vstack([doubt[:fixed_levels], doubt[fixed_levels:].max(axis=0)[None]])
    return RandomisedRun(run, tail, {name: rate.value for name, rate in beta.items()}, variance * doubts)


def require_smooth(estimands: Estimands) -> None:
    """Refuse a quantity that varies although its derivative is zero wherever it is taken: it jumps."""
    for quantity in estimands.quantities:
        if np.any(estimands.jump[quantity.columns] > 0):
            raise MethodError(
                explain(
                    "quantities whose levels' variance falls faster than their cost grows",
                    f"{quantity.name!r}, which jumps or is constant (beta = 1/2)",
                    "method=tb.Anchored(), which needs no such rate",
                )
            )


def _decay(run: Run, summary: Summary, samples: Floats) -> dict[str, Rate]:
    split, unit = run.estimands.split, run.tolerances(summary)
    variance, kurtosis, units = split(summary.variance), split(summary.kurtosis), split(unit)
    return {name: variance_decay(variance[name], kurtosis[name], samples, units[name]) for name in variance}


def _require_decay(beta: dict[str, Rate]) -> None:
    for name, rate in beta.items():
        if rate.value + 2 * rate.standard_error <= SLOWEST:
            raise MethodError(
                explain(
                    "levels whose variance falls faster than their cost grows (beta > gamma = 1)",
                    f"beta = {rate.value:.2f} +- {rate.standard_error:.2f} for {name!r}",
                    "method=tb.Anchored(), which has no such need; the quantity may jump or have a kink",
                )
            )


def _tail_law(moment: Floats, cost: Floats, beta: float) -> tuple[Floats, np.ndarray]:
    """p_l from the two levels measured, then geometric; and no draws yet."""
    exponent = TAIL_EXPONENT if beta >= 1.9 else (1 + min(beta, 1.5)) / 2
    weights = list(np.sqrt(np.maximum(moment, 1e-300) / cost))
    weights[1] = min(weights[1], weights[0] * 2**-1.0)
    weights[1] = max(weights[1], weights[0] * 2**-2.0)
    while len(weights) < RANDOM_LEVELS:
        weights.append(weights[-1] * 2.0**-exponent)
    return np.array(weights) / np.sum(weights), np.zeros(len(weights), np.int64)


def _tail_variance(tail: Tail, summary: Summary, beta: float) -> Floats:
    """sum_l E Delta_l^2 / p_l, by the last level measured for all above it."""
    moment = summary.variance[tail.first_level :] + summary.mean[tail.first_level :] ** 2
    total = moment[0] / tail.probabilities[0]
    for k, chance in enumerate(tail.probabilities[1:]):
        total = total + moment[1] * 2.0 ** (-beta * k) / chance
    return total


def run_randomised(this: RandomisedRun) -> tuple[Status, Assessment]:
    """Sample the numbers that the pilots ask for; more only where the error they lead to is still too large."""
    run = this.run
    status: Status | None = None
    variance = this.pilot_variance
    begin(SAMPLING)
    try:
        if this.tail.drawn is not None and _met(this, assess_randomised(this)):
            status = Status.converged
        while status is None:
            if variance is None:
                variance = assess_randomised(this).variance
            status = _sample(this, variance)
            if not run.levels:
                break
            now = assess_randomised(this)
            tell(run, now)
            if status is None and _met(this, now):
                status = Status.converged
            variance = None
    except (OutOfTime, KeyboardInterrupt) as end:
        if not run.levels:
            raise
        status = Status.max_seconds if isinstance(end, OutOfTime) else Status.interrupted
    if status is None or not run.levels:
        raise OutOfTime
    status, final = without_error(run, status, assess_randomised(this))
    assert status is not None
    return status, final


def _met(this: RandomisedRun, now: Assessment) -> bool:
    """Whether every error is small enough, and known well enough; what has no variance is not waited for."""
    tails = this.run.tails
    small = now.standard_error <= now.tolerance
    known = t_quantile(now.freedom, 0.975) * now.standard_error <= NORMAL_QUANTILE * now.tolerance
    return bool(np.all((small & known) | (False if tails is None else tails.endless)))


def _sample(this: RandomisedRun, variance: Floats) -> Status | None:
    run, fixed = this.run, this.tail.first_level
    tolerance = run.tolerances(_summary(this) if this.tail.drawn is not None else _first_summary(this))
    heavy = run.laplace is not None and _settle_laplace(this, tolerance)
    cost = np.array([*(run.problem.evaluations(level) for level in range(fixed)), this.tail.cost(run.problem)], float)
    demand = optimal_samples(variance, cost, MARGIN * tolerance)
    have = np.array([level.samples for level in run.levels] + [0] * (fixed - len(run.levels)), float)
    more = np.maximum(demand[:-1], have)
    if this.tail.drawn is not None and np.all(more <= have) and demand[-1] <= this.tail.samples:
        more, demand = 2 * have, 2 * demand
    # No number of paths makes up for a level whose error does not fall: a first look at them is enough.
    more = have if heavy else more
    status = fill(run, whole_blocks(run, np.maximum(more, 2 * BLOCK_PATHS))) or trouble(run)
    if status is None and heavy:
        return Status.heavy_tails
    return status or _draw_tail(this, int(max(demand[-1], LEAST_DRAWS)))


def _draw_tail(this: RandomisedRun, target: int) -> Status | None:
    """Draw levels, sample each as often as it was drawn, and weigh with 1 / p; in rounds, for the budget's sake."""
    run, tail = this.run, this.tail
    while tail.samples < target:
        look()
        number = min(target - tail.samples, max(LEAST_DRAWS, tail.samples))
        left = run.budget.max_evaluations - run.evaluations
        if number * tail.cost(run.problem) > left:
            return Status.max_evaluations
        key = np.random.SeedSequence([run.problem.seed, int(Stream.TAIL), tail.samples])
        levels = np.random.default_rng(key).choice(len(tail.probabilities), size=number, p=tail.probabilities)
        values = np.concatenate(list(_differences(run, tail, levels)))
        drawn = Moments.of(values, run.problem.pairs)
        counts = tail.counts + np.bincount(levels, minlength=len(tail.counts))
        paths = np.array([run.problem.block_paths(tail.first_level + k) for k in range(len(counts))])
        before, after = (-(-each // paths) * paths for each in (tail.counts, counts))
        costs = [run.problem.evaluations(tail.first_level + k) for k in range(len(counts))]
        run.evaluations += int((counts - tail.counts) @ costs)
        this.speculative += int((after - before - (counts - tail.counts)) @ costs)
        tail = replace(tail, counts=counts, drawn=drawn if tail.drawn is None else tail.drawn.merge(drawn))
        this.tail = tail
        if not np.all(np.isfinite(drawn.mean)):
            return Status.diverged
    return None


def _differences(run: Run, tail: Tail, levels: np.ndarray) -> Iterator[np.ndarray]:
    """Delta_L / p_L of the new draws, level by level; a level's paths are used in their order."""
    for k in np.unique(levels):
        first = int(tail.counts[k])
        last = first + int(np.sum(levels == k))
        paths = run.problem.block_paths(tail.first_level + int(k))
        blocks = range(first // paths, -(-last // paths))
        tasks = ((run.problem, tail.first_level + int(k), block) for block in blocks)
        values = np.concatenate(list(in_order(run.executor, sample_differences, tasks, 2 * capacity_of(run.executor))))
        begin = blocks.start * paths
        yield values[first - begin : last - begin] / tail.probabilities[k]


def _settle_laplace(this: RandomisedRun, tolerance: Floats) -> bool:
    """Draw until the Laplace level's error is small; whether single draws dominate it, so that it will never be."""
    run = this.run
    while True:
        assert run.laplace is not None
        level = run.laplace
        error = (_summary(this) if this.tail.drawn is not None else _first_summary(this)).laplace_error
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = np.nan_to_num(error / (0.1 * tolerance**2))
        if not np.any(excess > 1):
            return False
        if np.any((excess > 1) & heavy_draws(run)):
            return True
        run.laplace = aside(level.extended, min(float(excess.max()), GROWTH) * level.draws)


def _first_summary(this: RandomisedRun) -> Summary:
    """By the Laplace level alone, before anything is sampled."""
    return gaussian_summary(this.run.estimands, this.run.laplace)


def _summary(this: RandomisedRun) -> Summary:
    """Of the fixed levels alone where the budget ended before the tail was drawn."""
    if this.tail.drawn is None:
        return summarise(this.run.estimands, [level.delta for level in this.run.levels], this.run.laplace)
    return summarise(
        this.run.estimands, [*(level.delta for level in this.run.levels), this.tail.drawn], this.run.laplace
    )


@np.errstate(invalid="ignore", over="ignore")
def assess_randomised(this: RandomisedRun) -> Assessment:
    """Values and errors; the bias bound is zero."""
    summary = _summary(this)
    drawn = this.tail.drawn is not None
    samples = np.array([*(level.samples for level in this.run.levels), *([this.tail.samples] if drawn else [])], float)
    variance = summary.variance
    if this.run.tails is not None and this.run.levels:
        least, fixed = least_variance(this.run, variance[0], summary.scale), len(this.run.levels)
        rate = this.run.problem.variance_rate
        floored = floored_variance(variance[:fixed], samples[:fixed], rate, TRUSTED_SAMPLES, least)
        variance = np.vstack([floored, variance[fixed:]])
    error = np.sqrt(variance / samples[:, None]) if drawn else np.full_like(variance, np.inf)
    return Assessment(
        summary=summary,
        variance=variance,
        tolerance=this.run.tolerances(summary),
        standard_error=np.sqrt(np.sum(error**2, axis=0) + summary.laplace_error),
        freedom=degrees_of_freedom(variance, summary.kurtosis, samples),
        bias_bound=np.zeros_like(summary.value),
    )


def tail_states(tail: Tail) -> list[LevelState]:
    """The tail as one more level of the result, where it was drawn."""
    return [] if tail.drawn is None else [LevelState(tail.drawn, tail.drawn, tail.drawn, 0, 0.0, 0.0)]
