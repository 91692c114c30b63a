"""The adaptive multilevel estimator: pilots, allocation, remaining bias, and when to stop.

Every decision is a pure function of the samples 0..N_l - 1 of each level, merged in their order, so that neither
threads nor progress nor the clock can change a number; only `max_seconds` and Ctrl-C can change where it ends.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from tallbayes.estimator.allocation import bias_terms, optimal_samples, samples_to_resolve
from tallbayes.estimator.estimates import Status, t_quantile
from tallbayes.estimator.foresight import PILOT_PATHS, Arrived
from tallbayes.estimator.levels import BLOCK_PATHS, LevelBlock, sample_contraction, sample_level
from tallbayes.estimator.rates import contraction_of, variance_decay
from tallbayes.estimator.run import Assessment, LevelState, Run, assess, consistent, trouble
from tallbayes.moments import Floats
from tallbayes.progress import SAMPLING, Progress
from tallbayes.watch import OutOfTime, aside, begin, current, look, passed
from tallbayes.workers.dispatch import Dispatcher
from tallbayes.workers.executors import in_order, runs_elsewhere

GROWTH = 4
LEAST_FREEDOM = 10.0
NORMAL_QUANTILE = 1.96
LAPLACE_SHARE = 0.1
HEAVY_DRAWS, HEAVY_PART = 2**16, 8
MOST_DRAWS, LIGHT = 2**22, 64.0
LONGEST_MEMORY = 0.8
SLOWEST_DECAY = 0.4
SECONDS_BETWEEN_REPORTS = 0.5
OUT_OF_BUDGET = (Status.max_evaluations, Status.max_seconds, Status.interrupted)


def run_multilevel(run: Run) -> tuple[Status, Assessment]:
    """Sample until every quantity meets its tolerance, or until something else ends the run."""
    status, final = run_patiently(run, np.inf)
    assert status is not None
    return status, final


def run_patiently(run: Run, patience: float) -> tuple[Status | None, Assessment]:
    """The same; but where the samples so far foresee more row gradients than that, the status is None.

    Such a run can go on from there. One that ends before its first block raises OutOfTime or KeyboardInterrupt.
    """
    begin(SAMPLING)
    try:
        if run.contraction is None:
            _measure_contraction(run)
        with _dispatching(run) as dispatcher:
            status = _rounds(run, dispatcher, patience)
    except (OutOfTime, KeyboardInterrupt) as end:
        if not run.levels:
            raise
        status = Status.max_seconds if isinstance(end, OutOfTime) else Status.interrupted
    if not run.levels and passed():
        raise OutOfTime
    final = assess(run)
    if status in OUT_OF_BUDGET and _met(run, final):
        status = Status.converged
    return without_error(run, status, final)


def without_error(run: Run, status: Status | None, final: Assessment) -> tuple[Status | None, Assessment]:
    """The same, but that nothing is claimed of components that may have no variance, or that are given up."""
    endless = run.tails.endless if run.tails is not None else np.zeros(len(final.tolerance), bool)
    given_up = run.given_up
    if not np.any(endless | given_up):
        return status, final
    if status is Status.converged:
        status = Status.infinite_variance if np.any(endless & ~given_up) else Status.converged_in_part
    return status, replace(final, standard_error=np.where(endless | given_up, np.inf, final.standard_error))


def _rounds(run: Run, dispatcher: Dispatcher, patience: float) -> Status | None:
    """Pilots, then round after round; blocks that arrive before they are wanted stay with the dispatcher."""
    status = _judge_contraction(run)
    have = [level.samples for level in run.levels] + [0] * (3 - len(run.levels))
    targets = [max(PILOT_PATHS, samples) for samples in have]
    outlook = Arrived(run, len(targets)) if status is None and runs_elsewhere(run.executor) else None
    filled = _fill(run, targets, dispatcher, outlook)
    status = status or filled or trouble(run)
    while status is None:
        status, targets = _decide(run)
        if status is None and _foreseen(run, targets) > patience:
            break
        if status is None:
            status = _fill(run, targets, dispatcher, outlook) or trouble(run)
    return status


def _met(run: Run, now: Assessment) -> bool:
    """Whether every tolerance is met, though not by the margin that a run looks for."""
    met = np.all(np.hypot(now.standard_error, now.bias_bound) <= now.tolerance)
    known = t_quantile(now.freedom, 0.975) * now.standard_error <= NORMAL_QUANTILE * now.tolerance
    return bool(met and np.all(known) and trouble(run) is None and consistent(run))


def _decide(run: Run) -> tuple[Status | None, list[int]]:
    """The next number of samples by level, or the end."""
    now = assess(run)
    look()
    if run.laplace is not None and np.any(excess := _excess(now) > 1):
        if np.any(excess & heavy_draws(run)):
            return Status.heavy_tails, []
        before = run.laplace
        run.laplace = aside(before.extended, GROWTH * before.draws)
        if run.laplace is not before:
            return None, whole_blocks(run, run.samples)
    tell(run, now)
    share = now.tolerance / np.sqrt(2)
    demand = optimal_samples(now.variance, run.costs, np.sqrt(share**2 - now.summary.laplace_error))
    short = demand > run.samples
    if np.any(short):
        grown = np.minimum(demand, GROWTH * run.samples)
        return None, whole_blocks(run, np.where(short, grown, run.samples))
    return _decide_bias(run, now, share)


def heavy_draws(run: Run) -> np.ndarray:
    """Of which components single draws dominate the error of the Gaussian's own expectation, by component.

    Under a Gaussian -a / b has no variance, and its error would not fall with any number of draws: their kurtosis is
    then a part of that number itself.
    """
    if run.laplace is None:
        return np.zeros(run.estimands.size, bool)
    kurtosis, draws = run.estimands.observed(run.laplace.kurtosis), run.laplace.draws
    # Not a number where draws were not finite.
    single = ~(kurtosis <= draws / HEAVY_PART) if draws >= HEAVY_DRAWS else np.zeros(kurtosis.shape, bool)
    return single | (~(kurtosis <= LIGHT) if draws >= MOST_DRAWS else False)


def _foreseen(run: Run, targets: list[int]) -> float:
    """Row gradients that the whole run would take by what is known now; targets alone grow step by step."""
    now = assess(run)
    demand = optimal_samples(now.variance, run.costs, now.tolerance / np.sqrt(2))
    demand = np.maximum(demand, targets[: len(demand)])
    return float(np.sum(demand * run.costs))


def _excess(now: Assessment) -> Floats:
    """The Laplace level's share of the statistical error, which costs no data, against what it may take."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.nan_to_num(now.summary.laplace_error / (LAPLACE_SHARE * now.tolerance**2 / 2))


def _decide_bias(run: Run, now: Assessment, share: Floats) -> tuple[Status | None, list[int]]:
    """Enough samples for the variance: judge the ladder, the remaining bias, then the error bar itself."""
    if not consistent(run):
        return Status.inconsistent, []
    samples = run.samples
    error = np.sqrt(now.variance / samples[:, None])
    by_mean = bias_terms(np.abs(now.summary.mean), run.rho)
    by_both = bias_terms(np.abs(now.summary.mean) + 2 * error, run.rho)
    if np.any(by_both > share):
        if np.all(by_mean <= share):
            resolved = samples_to_resolve(samples, by_mean, by_both, share)
            price = np.sum((resolved - samples) * run.costs)
            if price <= _pilot_cost(run) or len(run.levels) >= run.budget.max_levels:
                return None, whole_blocks(run, np.minimum(resolved, GROWTH * samples))
        return _add_level(run, now)
    quantile = t_quantile(now.freedom, 0.975)
    weak = (now.freedom < LEAST_FREEDOM) & (quantile * now.standard_error > NORMAL_QUANTILE * share)
    if np.any(weak):
        level = _heaviest(now, samples, weak)
        if samples[level] >= 4096 and now.summary.kurtosis[level].max() > samples[level] / 4:
            return Status.heavy_tails, []
        samples[level] *= 2
        return None, whole_blocks(run, samples)
    return Status.converged, []


def _add_level(run: Run, now: Assessment) -> tuple[Status | None, list[int]]:
    if _slow_decay(run, now):
        return Status.slow_decay, []
    if len(run.levels) >= run.budget.max_levels:
        met = np.all(np.hypot(now.standard_error, now.bias_bound) <= now.tolerance)
        return (Status.converged if met else Status.max_levels), []
    return None, [*whole_blocks(run, run.samples), PILOT_PATHS]


def _pilot_cost(run: Run) -> float:
    """What the first look at one more level costs."""
    return float(PILOT_PATHS * run.problem.evaluations(len(run.levels)))


def _judge_contraction(run: Run) -> Status | None:
    assert run.contraction is not None
    if run.contraction.upper == np.inf:
        return Status.diverged
    if run.contraction.upper >= 1:
        return Status.no_contraction
    return Status.paths_too_short if run.rho > LONGEST_MEMORY else None


def _measure_contraction(run: Run) -> None:
    blocks = PILOT_PATHS // BLOCK_PATHS
    tasks = ((run.problem, block) for block in range(blocks))
    squares = np.concatenate(list(in_order(run.executor, sample_contraction, tasks, blocks)))
    run.evaluations += PILOT_PATHS * run.problem.contraction_evaluations()
    run.contraction = contraction_of(squares, run.problem.ladder.added_steps * run.problem.ladder.step(0))


def fill(run: Run, targets: list[int]) -> Status | None:
    """Bring every level to its target, block by block; stop at a completed prefix where the budget ends."""
    with _dispatching(run) as dispatcher:
        return _fill(run, targets, dispatcher, None)


@contextmanager
def _dispatching(run: Run) -> Iterator[Dispatcher]:
    """The dispatcher of the run's blocks; at the end nothing is under way that could be stopped.

    What has arrived before it was wanted waits for the next time.
    """
    if run.dispatcher is None:
        cost, first = partial(_block_cost, run), partial(_pilot_blocks, run)
        run.dispatcher = run.dispatch(run.executor, sample_level, run.problem, cost, first_look=first)
    before = run.dispatcher.rest()
    try:
        yield run.dispatcher
    finally:
        run.speculative += run.dispatcher.rest() - before


def _fill(run: Run, targets: list[int], dispatcher: Dispatcher, outlook: Arrived | None) -> Status | None:
    """The same; where the run goes on afterwards, idle workers elsewhere begin with what it is likely to want."""
    wanted, short = _affordable(run, targets)
    if outlook is not None:
        outlook.num_levels = len(targets)
    watch = current()
    for level, block in dispatcher.collect(wanted, None if short else outlook, np.inf if watch is None else watch.end):
        _take(run, level, block)
        if len(run.levels) >= 3 and time.monotonic() - run.told > SECONDS_BETWEEN_REPORTS:
            tell(run, assess(run))
        if passed():
            return Status.max_seconds
    return short if all(_filled(run, level, blocks) for level, blocks in wanted) else Status.max_seconds


def _filled(run: Run, level: int, blocks: range) -> bool:
    """Whether the last of these blocks is there; a level that was to come may have none."""
    have = run.levels[level].samples if level < len(run.levels) else 0
    return len(blocks) == 0 or have >= blocks.stop * run.problem.block_paths(level)


def _affordable(run: Run, targets: list[int]) -> tuple[list[tuple[int, range]], Status | None]:
    """The blocks that are missing, level by level as far as the budget goes, and whether it ends before they do."""
    spent, wanted = run.evaluations, []
    for level, target in enumerate(targets):
        have = run.levels[level].samples if level < len(run.levels) else 0
        cost, paths = _block_cost(run, level), run.problem.block_paths(level)
        first, missing = have // paths, max(target - have, 0) // paths
        number = int(min(max(0.0, run.budget.max_evaluations - spent) / cost, missing))
        wanted.append((level, range(first, first + number)))
        spent += number * cost
        if number < missing:
            return wanted, Status.max_evaluations
    return wanted, None


def _pilot_blocks(run: Run, level: int) -> int:
    return PILOT_PATHS // run.problem.block_paths(level)


def _block_cost(run: Run, level: int) -> int:
    return run.problem.block_paths(level) * run.problem.evaluations(level)


def _take(run: Run, level: int, block: LevelBlock) -> None:
    run.evaluations += block.evaluations
    if run.kept_bytes == 0:
        block = replace(block, points=None)
    if level == len(run.levels):
        run.levels.append(LevelState.of(block))
    else:
        run.levels[level] = run.levels[level].add(block, run.kept_bytes)


def _slow_decay(run: Run, now: Assessment) -> bool:
    if len(run.levels) < 5:
        return False
    beta = variance_decay(now.summary.variance, now.summary.kurtosis, run.samples, now.tolerance)
    return beta.value + 2 * beta.standard_error < SLOWEST_DECAY


def _heaviest(now: Assessment, samples: Floats, weak: np.ndarray) -> int:
    part = (now.variance / samples[:, None]) ** 2 * (now.summary.kurtosis - 1) / samples[:, None]
    return int(np.argmax(part[:, weak].max(axis=1)))


def whole_blocks(run: Run, samples: Floats) -> list[int]:
    paths = run.block_paths(len(samples))
    return [int(each) for each in -(-np.asarray(samples) // paths) * paths]


def tell(run: Run, now: Assessment) -> None:
    run.told, watch = time.monotonic(), current()
    error = np.hypot(now.standard_error, now.bias_bound)
    with np.errstate(divide="ignore", invalid="ignore"):
        worst = int(np.argmax(np.nan_to_num(error / now.tolerance)))
    run.report(
        Progress(
            quantity=run.estimands.labels()[worst],
            error=float(error[worst]),
            target=float(now.tolerance[worst]),
            levels=len(run.levels),
            samples=tuple(level.samples for level in run.levels),
            evaluations=run.evaluations,
            seconds=time.monotonic() - run.started,
            evaluations_left=_left(run, now),
            budget_left=np.inf if watch is None else max(0.0, watch.end - time.monotonic()),
        )
    )


def _left(run: Run, now: Assessment) -> float | None:
    """Row gradients that the run would still take by what is known now: for the variance, and for levels to come."""
    if len(now.variance) != len(run.levels):
        return None
    demand = optimal_samples(now.variance, run.costs, now.tolerance / np.sqrt(2))
    left = float(np.sum(np.maximum(demand - run.samples, 0) * run.costs))
    over = np.sqrt(2) * float(np.max(np.nan_to_num(now.bias_bound / now.tolerance, posinf=1.0)))
    if over > 1:
        left += float(np.ceil(np.log2(over)) * demand[-1] * run.costs[-1])
    return left
