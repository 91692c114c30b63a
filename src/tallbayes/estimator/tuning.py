"""Tuning: path lengths, first step, batch size and averaging window of the anchored ladder, by short pilots.

In whitened units the Gaussian part of the drift contracts at rate 1, so lengths and steps are numbers, whatever the
data. A trial of (h_0, n) samples levels 0 and 1, and predicts the price of the whole run,

    sum_l max(pilot, N_l) steps_l (n + overhead),   V_l = V_1 4^(1-l),   |mean_l| = |mean_1| 2^(1-l)

The cheapest pair comes first, and another is tried only where, at best, it would save more than the trial costs. A pair
whose steps are strained (h |r| > B more than rarely) or whose pairs of paths do not contract is no choice at any price:
then h_0 is halved and n taken four times as large, up to n = N. Last come windows: a path that has forgotten its start
goes on for some times dT and is averaged, where that saves paths enough. The step counts, h_0 and n are arguments of
one compiled program. Trials have random numbers of their own; no estimate uses them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tallbayes.estimator.allocation import Least, floored_variance, optimal_samples
from tallbayes.estimator.decisions import Trial, Tuning
from tallbayes.estimator.estimands import Estimands, GaussianLevel, Summary, plain_variance, summarise
from tallbayes.estimator.ladder import BATCH_FACTOR, CONTROLLED, PLAIN, Choices, Ladder, Pace
from tallbayes.estimator.levels import BLOCK_PATHS, LevelBlock, Levels, sample_contraction, sample_level
from tallbayes.estimator.rates import Contraction, contraction_but_for_few, contraction_of, hidden_among_many
from tallbayes.estimator.tails import Tails, averaged, eased
from tallbayes.moments import Floats, Moments, merge_all
from tallbayes.watch import begin, passed
from tallbayes.workers.executors import Executor, in_order

log = logging.getLogger("tallbayes")

TUNING = "tuning"
PILOT_BLOCKS, SURE_BLOCKS = 2, 16
LONGEST_TIME = 40.0
SPREAD = 3.0
RARE = 0.005
# Where so many pairs leave the same few parameters behind, smaller steps and larger batches are no cure.
REFUSED_PAIRS = 4
WORTHWHILE = 0.75
LEAST_CONTROLLED, NOISE_ROWS = 4, 30


@dataclass(frozen=True, eq=False)
class Pilots:
    """A trial with what its two levels showed."""

    trial: Trial
    variance: Floats
    mean: Floats
    share: Floats


@dataclass(frozen=True, eq=False)
class Tuner:
    """What all trials of one run share."""

    problem: Levels
    estimands: Estimands
    laplace: GaussianLevel
    tolerances: Callable[[Summary], Floats]
    executor: Executor
    choices: Choices
    blocks: int = PILOT_BLOCKS
    limit: float = np.inf
    tails: Tails | None = None

    @property
    def pace(self) -> Pace:
        return CONTROLLED if self.problem.controlled else PLAIN

    def ladder(self, first_step: float, time: float, window: int) -> Ladder:
        return self.choices.ladder_of(first_step, time, window, self.pace.start)

    def affords(self, evaluations: float) -> bool:
        """Whether so many row gradients in all are within the budget, and there is time."""
        return evaluations <= self.limit and not passed()


def tune(tuner: Tuner, known: Pilots | None = None, time: float | None = None) -> tuple[Levels, Contraction, Tuning]:
    """The problem with its ladder and batch size chosen, how it contracts, and the record of how that was found.

    `known` is a pair that a run has gone through already.
    """
    window = known.trial.window if known else tuner.choices.windows[0]
    search = Search(tuner, [known] if known else [], window, time or tuner.pace.begin(tuner.problem.motion))
    best, contraction = search.find_pair()
    while contracts(contraction, tuner.pace) and not contraction.slow and (wider := search.widen(best)) is not None:
        search.seen, search.window = [wider], wider.trial.window
        best, contraction = search.find_pair()
    problem = search.configured(best.trial)
    trials = tuple(pilots.trial for pilots in search.everything)
    reason = _reason(tuner, search.everything, best, search.refused)
    return problem, contraction, Tuning(trials, best.trial, search.time, reason, search.spent)


@dataclass(eq=False)
class Search:
    """Trials of pairs (h_0, n) with one window, then with a longer one, until none would repay itself."""

    tuner: Tuner
    seen: list[Pilots]
    window: int
    time: float
    refused: set[tuple[float, int]] = field(default_factory=set)
    measured: int = 0
    everything: list[Pilots] = field(default_factory=list)
    # The cheapest pair on which all parameters but a few contract, and how.
    partial: tuple[Pilots, Levels, Contraction] | None = None

    def __post_init__(self) -> None:
        self.everything += self.seen

    @property
    def spent(self) -> int:
        """Row gradients of all trials and pairs of paths."""
        return sum(pilots.trial.evaluations for pilots in self.everything) + self.measured

    def find_pair(self) -> tuple[Pilots, Contraction]:
        """The cheapest pair whose paths contract, over longer and longer times, and how they do."""
        tuner, choices = self.tuner, self.tuner.choices
        here = self._proposed() if self.seen else (choices.first_steps[0], _first_batch(tuner))
        while True:
            while here is not None and (not self.everything or self._affords(here)):
                self._try(tuner, here, self.window)
                here = self._proposed()
            best = _best(self.seen, self.refused)
            begin(TUNING, "how fast paths forget their start")
            problem, contraction, partial, measured = _lengthen(tuner, best.trial, self.time, self.spent)
            self.measured += measured
            if partial is not None and (self.partial is None or best.trial.price < self.partial[0].trial.price):
                self.partial = best, *partial
            if contracts(contraction, tuner.pace) or choices.times_are_given or not np.isfinite(best.trial.price):
                break
            self.refused.add(_pair(best))
            if self.partial is not None and len(self.refused) >= REFUSED_PAIRS:
                best, problem, contraction = self.partial
                break
            here = self._proposed()
            if here is None and all(_pair(pilots) in self.refused for pilots in self.seen):
                break
            if here is not None and not self._affords(here):
                break
        self.time = problem.ladder.added_steps * problem.ladder.first_step
        return best, contraction

    def widen(self, best: Pilots) -> Pilots | None:
        """The same pair with the next longer window; None where it is not cheaper, or not worth a trial."""
        tuner = replace(self.tuner, blocks=PILOT_BLOCKS)
        pair, before = _pair(best), best.trial.window
        window = _shifted(tuner.choices.windows, before, 1)
        if window is None or tuner.choices.ladder is not None or not np.isfinite(best.trial.price):
            return None
        price = _price(tuner, best, *pair, self.time, window=before)
        memory = tuner.problem.motion.memory
        gain = averaged(window * self.time, memory) / averaged(before * self.time, memory)
        hope = _price(tuner, best, *pair, self.time, (gain, gain), np.sqrt(gain), window)
        cost = trial_price(tuner, *pair, self.time, window)
        if hope + 2 * cost > WORTHWHILE * price or not self._affords(pair, window):
            return None
        wider = self._try(tuner, pair, window)
        return wider if wider.trial.price < price else None

    def configured(self, trial: Trial) -> Levels:
        return _configured(self.tuner, trial.first_step, trial.batch_size, self.time, trial.window)

    def _try(self, tuner: Tuner, pair: tuple[float, int], window: int) -> Pilots:
        begin(TUNING, f"trial {len(self.everything) + 1}")
        pilots = _attempt(tuner, *pair, self.time, window)
        self.everything.append(pilots)
        if window == self.window:
            self.seen.append(pilots)
        return pilots

    def _proposed(self) -> tuple[float, int] | None:
        return _propose(self.tuner, self.seen, self.refused, self.time)

    def _affords(self, pair: tuple[float, int], window: int | None = None) -> bool:
        rows = _rows(self.tuner, *pair, self.time, self.window if window is None else window)
        return self.tuner.affords(self.spent + rows)


def contracts(contraction: Contraction, pace: Pace) -> bool:
    """Whether paths forget enough of where they began a level."""
    return contraction.upper <= np.exp(-pace.least)


def _pair(pilots: Pilots) -> tuple[float, int]:
    return pilots.trial.first_step, pilots.trial.batch_size


def variance_floor(tails: Tails, problem: Levels) -> Least:
    """The least that V_0 can be on the problem's ladder, whatever its samples say."""
    ladder = problem.ladder
    left = averaged(ladder.window_steps * ladder.first_step, problem.motion.memory)
    return tails.least(ladder.first_step, problem.rows_per_gradient, problem.largest_batch, left, problem.motion)


def first_look(tuner: Tuner) -> float:
    """Row gradients that tuning takes at the least: one trial and one set of pairs."""
    return _look_at(tuner, _first_batch(tuner))


def _look_at(tuner: Tuner, batch_size: int) -> float:
    pair, time = (tuner.choices.first_steps[0], batch_size), tuner.pace.begin(tuner.problem.motion)
    pairs = PILOT_BLOCKS * BLOCK_PATHS * _configured(tuner, *pair, time, 0).contraction_evaluations()
    return _rows(tuner, *pair, time, tuner.choices.windows[0]) + pairs


def _first_batch(tuner: Tuner) -> int:
    """The smallest that takes a part worth speaking of in what a step costs.

    With a control also the smallest whose noise is a thirtieth of a posterior variance: beyond, few paths hold most.
    """
    sizes, least = tuner.choices.batch_sizes, tuner.problem.step_overhead / 4
    if tuner.problem.controlled:
        noise = np.zeros(1) if tuner.tails is None else tuner.tails.noise / tuner.estimands.gaussian_scale**2
        least = max(least, LEAST_CONTROLLED, NOISE_ROWS * float(np.nanmax(noise)))
        # All rows are dearer than any noise that a few of them leave; and what a budget does not hold is no beginning.
        sizes = tuple(size for size in sizes[:-1] if 2 * _look_at(tuner, size) <= tuner.limit) or sizes[:1]
    return next((size for size in sizes if size >= least), sizes[-1])


def pilots_of(tuner: Tuner, levels: Sequence[Moments], trial: Trial, time: float, side: Moments) -> Pilots:
    """A trial's variances and means in units of what is wanted, and its price; `side` is level 0 without a control."""
    summary = summarise(tuner.estimands, levels, tuner.laplace)
    share = tuner.tolerances(summary) / np.sqrt(2)
    variance = summary.variance[:2]
    plain = variance[0]
    if tuner.problem.controlled:
        plain = plain_variance(tuner.estimands, side, summary.scale)
        trial = replace(trial, left=_left_by_control(variance[0], plain, share))
    if tuner.tails is not None:
        least = variance_floor(tuner.tails, _configured(tuner, trial.first_step, trial.batch_size, time, trial.window))
        if tuner.problem.controlled:
            least = eased(least, plain, variance[0])
        counts = np.array([level.count for level in levels[:2]], float)
        rate = tuner.problem.variance_rate
        variance = floored_variance(variance, counts, rate, SURE_BLOCKS * BLOCK_PATHS, least)
    error = np.sqrt(variance[1] / levels[1].count)
    pilots = Pilots(trial, variance, np.maximum(np.abs(summary.mean[1]) - error, 0.0), share)
    if trial.strained > RARE:
        return pilots
    price = _price(tuner, pilots, trial.first_step, trial.batch_size, time, window=trial.window)
    return replace(pilots, trial=replace(trial, price=price))


def _left_by_control(controlled: Floats, plain: Floats, share: Floats) -> float:
    """Of the variance, each in units of what is allowed and of the component that asks for most."""
    with np.errstate(divide="ignore", invalid="ignore"):
        left = np.nanmax(controlled / share**2) / np.nanmax(plain / share**2)
    return float(left) if np.isfinite(left) else 1.0


def _attempt(tuner: Tuner, first_step: float, batch_size: int, time: float, window: int) -> Pilots:
    """Sample levels 0 and 1 at (h_0, n), and predict what the whole run would cost."""
    problem = _configured(tuner, first_step, batch_size, time, window).for_tuning()
    tasks = ((problem, level, block) for level in (0, 1) for block in range(tuner.blocks))
    blocks: list[LevelBlock] = list(in_order(tuner.executor, sample_level, tasks, 2 * tuner.blocks))
    strained = float(np.mean([block.strained for block in blocks]))
    trial = Trial(first_step, batch_size, np.inf, strained, sum(block.evaluations for block in blocks), window)
    if any(block.nonfinite for block in blocks):
        return Pilots(trial, *(np.full(1, np.nan),) * 3)
    levels = [merge_all(b.delta for b in blocks[: tuner.blocks]), merge_all(b.delta for b in blocks[tuner.blocks :])]
    pilots = pilots_of(tuner, levels, trial, time, merge_all(b.fine for b in blocks[: tuner.blocks]))
    log.info("trial %s", pilots.trial)
    return pilots


def _price(
    tuner: Tuner,
    pilots: Pilots,
    first_step: float,
    batch_size: int,
    time: float,
    variance_factors: tuple[float, float] = (1.0, 1.0),
    mean_factor: float = 1.0,
    window: int = 0,
) -> float:
    """Steps of the whole run, each weighed with the rows it reads and with what it costs beside them."""
    ladder = tuner.ladder(first_step, time, window)
    with np.errstate(divide="ignore", invalid="ignore"):
        halvings = np.log2(np.nanmax(mean_factor * pilots.mean / pilots.share, initial=1e-9))
    motion = tuner.problem.with_choice(ladder, batch_size).motion
    last = int(np.clip(1 + np.ceil(halvings / motion.weak_order), 2, 20))
    upper = motion.later(pilots.variance[1] * variance_factors[1], last)
    variance = np.stack([pilots.variance[0] * variance_factors[0], *upper])
    coarse = tuner.problem.num_coarse
    steps = np.array([ladder.path_steps(l, coarse) for l in range(last + 1)], float)
    samples = np.maximum(optimal_samples(variance, steps, pilots.share), PILOT_BLOCKS * BLOCK_PATHS)
    return float(np.sum(samples * steps) * (batch_size + tuner.problem.step_overhead))


def _propose(
    tuner: Tuner, seen: Sequence[Pilots], refused: set[tuple[float, int]], time: float
) -> tuple[float, int] | None:
    """The pair to try next, or None where no trial would repay itself."""
    best = _best(seen, refused)
    if not np.isfinite(best.trial.price) or (best.trial.first_step, best.trial.batch_size) in refused:
        return _escalated(tuner, seen, refused)
    h, n, window = best.trial.first_step, best.trial.batch_size, best.trial.window
    hopes = {
        (h, _shifted(tuner.choices.batch_sizes, n, 1)): ((1 / BATCH_FACTOR, 1 / BATCH_FACTOR), 0.5),
        (h, _shifted(tuner.choices.batch_sizes, n, -1)): ((1.0, 1.0), 1.0),
        (_shifted(tuner.choices.first_steps, h, 1), n): ((0.75, 0.25), 0.5),
        (_shifted(tuner.choices.first_steps, h, -1), n): ((1.0, 2.0), 1.0),
    }
    tried = {(p.trial.first_step, p.trial.batch_size) for p in seen} | refused
    best_hope, chosen = WORTHWHILE * best.trial.price, None
    for (step, size), (factors, mean_factor) in hopes.items():
        if step is None or size is None or (step, size) in tried:
            continue
        hope = _price(tuner, best, step, size, time, factors, mean_factor, window)
        cost = trial_price(tuner, step, size, time, window)
        if hope + 2 * cost < best_hope:
            best_hope, chosen = hope, (step, size)
    return chosen


def _escalated(tuner: Tuner, seen: Sequence[Pilots], refused: set[tuple[float, int]]) -> tuple[float, int] | None:
    """A smaller step and a larger batch than anything tried; None where there is none left."""
    tried = {(p.trial.first_step, p.trial.batch_size) for p in seen} | refused
    smallest, largest = min(h for h, _ in tried), max(n for _, n in tried)
    step, size = _shifted(tuner.choices.first_steps, smallest, 1), _shifted(tuner.choices.batch_sizes, largest, 1)
    pair = step or smallest, size or largest
    return None if pair in tried else pair


def _lengthen(
    tuner: Tuner, trial: Trial, time: float, before: int
) -> tuple[Levels, Contraction, tuple[Levels, Contraction] | None, int]:
    """Pairs of paths started apart, over longer and longer times until they forget enough a level; and the first time
    at which all parameters but a few do so."""
    spent, partial = 0, None
    while True:
        problem = _configured(tuner, trial.first_step, trial.batch_size, time, trial.window)
        tasks = ((problem, block, SPREAD) for block in range(PILOT_BLOCKS))
        squares = np.concatenate(list(in_order(tuner.executor, sample_contraction, tasks, PILOT_BLOCKS)))
        spent += len(squares) * problem.contraction_evaluations()
        interval = problem.ladder.added_steps * problem.ladder.first_step
        contraction = contraction_of(squares, interval)
        enough = contracts(contraction, tuner.pace)
        few = None if enough or partial else contraction_but_for_few(squares, interval, np.exp(-tuner.pace.least))
        partial = partial if few is None else (problem, few)
        longer = tuner.pace.relaxations / contraction.rate if contraction.rate > 0 else np.inf
        further = len(squares) * problem.contraction_evaluations() * longer / interval
        if (
            enough
            or tuner.choices.times_are_given
            or longer > LONGEST_TIME
            or not tuner.affords(before + spent + further)
        ):
            hidden = hidden_among_many(squares, interval, np.exp(-tuner.pace.least)) if enough else None
            return problem, hidden or contraction, None if enough else partial, spent
        time = max(longer, 1.25 * interval)


def _configured(tuner: Tuner, first_step: float, batch_size: int, time: float, window: int) -> Levels:
    return tuner.problem.with_choice(tuner.ladder(first_step, time, window), batch_size)


def trial_price(tuner: Tuner, first_step: float, batch_size: int, time: float, window: int) -> float:
    """What a trial costs, in the unit of `_price`."""
    return _rows(tuner, first_step, batch_size, time, window) * (1 + tuner.problem.step_overhead / batch_size)


def _rows(tuner: Tuner, first_step: float, batch_size: int, time: float, window: int) -> int:
    """Row gradients of a trial."""
    problem = _configured(tuner, first_step, batch_size, time, window)
    return tuner.blocks * BLOCK_PATHS * sum(problem.evaluations(level) for level in (0, 1))


def _best(seen: Sequence[Pilots], refused: set[tuple[float, int]]) -> Pilots:
    """The cheapest trial that contracts, as far as that is known; the calmest of all where none is left."""
    allowed = [p for p in seen if (p.trial.first_step, p.trial.batch_size) not in refused]
    return min(allowed or seen, key=lambda pilots: (pilots.trial.price, pilots.trial.strained))


def _shifted(values: tuple[Any, ...], value: Any, by: int) -> Any:
    place = values.index(value) + by
    return values[place] if 0 <= place < len(values) else None


def _reason(tuner: Tuner, seen: Sequence[Pilots], best: Pilots, refused: set[tuple[float, int]]) -> str:
    if len(tuner.choices.first_steps) == len(tuner.choices.batch_sizes) == 1:
        return "given"
    if not np.isfinite(best.trial.price):
        return f"the calmest of {len(seen)} trials, all of them strained"
    alone = "the first choice suffices" if tuner.problem.controlled else "the cheapest choice there is, and it suffices"
    parts = [f"cheapest of {len(seen)} trials" if len(seen) > 1 else alone]
    strained = sum(not np.isfinite(pilots.trial.price) for pilots in seen)
    if strained:
        parts.append(f"{strained} strained")
    if refused:
        parts.append(f"{len(refused)} without contraction")
    return ", ".join(parts)
