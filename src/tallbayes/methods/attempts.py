"""Attempts: tune, sample, and answer what the pilots could not foresee.

A ladder whose paths diverge, stay apart or are ruled by a few of them is given up as a whole, never path by path, and
tuned again from a smaller step and a larger batch, and with the calmer gradient that its levels can go over to (Blend
in place of Taylor, whose noise grows more slowly far out). A run that turns out several times dearer than its pilots
promised (their tails were too heavy to be seen in 64 paths) is reconsidered with larger pilots, and gone on with where
nothing is better. A control that leaves more than half of the variance, or paths that are not finite, is left out. What
helps nowhere ends in the status of the last attempt.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

import numpy as np

from tallbayes.estimator.adaptive import heavy_draws, run_multilevel, run_patiently
from tallbayes.estimator.decisions import Decision, Trial, Tuning
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.ladder import Choices
from tallbayes.estimator.levels import Levels
from tallbayes.estimator.rates import Contraction
from tallbayes.estimator.run import Assessment, Run
from tallbayes.estimator.tuning import (
    SURE_BLOCKS,
    Tuner,
    first_look,
    pilots_of,
    trial_price,
    tune,
)
from tallbayes.watch import OutOfTime

log = logging.getLogger("tallbayes")

UNSETTLED = (
    Status.diverged,
    Status.no_contraction,
    Status.paths_too_short,
    Status.heavy_tails,
    Status.slow_decay,
)
MAX_ATTEMPTS = 4
PATIENCE = 4.0
BETTER = 0.5
REPAYS = 8.0
# Of the variance of level 0: it takes twice the gradients.
PAYS = 0.5
# Row gradients times parameters: about a second of sampling, where a second pair of programs takes several to compile.
WORTH_COMPILING = 1e8
SURE_LEVELS = 4


def tune_once(run: Run, choices: Choices) -> tuple[Run, Tuning]:
    """The run with its ladder, batch size and contraction found."""
    return _settled(run, run.problem) if run.decisions.settled else _tuned(run, choices)


def run_attempts(first: Run, choices: Choices) -> tuple[Run, Status, Assessment, Tuning]:
    """Attempt after attempt, until one settles or nothing is left to change; all of them are paid for."""
    if first.decisions.settled:
        run, tuning = _settled(first, _blended_if(first.decisions.settled[-1].blended, first.problem))
        return run, *run_multilevel(run), tuning
    run, tuning = _tuned(first, choices)
    before: tuple[Run, Status, Assessment, Tuning] | None = None
    for attempt in range(MAX_ATTEMPTS):
        try:
            status, final = run_patiently(run, _patience(run, tuning))
        except (OutOfTime, KeyboardInterrupt):
            # What was tried before is there, with the status that it had.
            if before is None:
                raise
            return before
        if status is None:
            try:
                further, other = _reconsidered(run, tuning, choices)
                status, final = run_multilevel(further)
            except (OutOfTime, KeyboardInterrupt) as end:
                return run, _cut_short(end), final, tuning
            run, tuning = further, other
        calmer, blended = _calmer(choices, tuning), run.problem.alternative() if attempt else None
        stuck = calmer is None and blended is None
        if status not in UNSETTLED or stuck or attempt == MAX_ATTEMPTS - 1 or np.any(heavy_draws(run)):
            return run, status, final, tuning
        log.info("%s; again with %s", status, calmer)
        choices = calmer or choices
        fresh = replace(run, problem=blended or run.problem, levels=[], contraction=None)
        tuner = _tuner(fresh, choices)
        if not tuner.affords(first_look(tuner)):
            return run, status, final, tuning
        try:
            found = _tuned(fresh, choices)
        except (OutOfTime, KeyboardInterrupt):
            return run, status, final, tuning
        before, (run, tuning) = (run, status, final, tuning), found
    raise AssertionError("unreachable")


def _cut_short(end: BaseException) -> Status:
    return Status.max_seconds if isinstance(end, OutOfTime) else Status.interrupted


def _tuned(run: Run, choices: Choices) -> tuple[Run, Tuning]:
    """The run with its ladder, batch size and contraction found, and the pilots paid for."""

    def find() -> Decision:
        problem, contraction, tuning = tune(_tuner(run, choices))
        spent, plain = tuning.evaluations, run.problem.uncontrolled()
        if plain is not None and not (np.isfinite(tuning.chosen.price) and tuning.chosen.left < PAYS):
            problem, contraction, tuning = tune(_tuner(replace(run, problem=plain), choices))
            tuning = replace(tuning, reason=f"{tuning.reason}; without a control, which did not pay")
            spent += tuning.evaluations
        return _decision(problem, contraction, tuning, spent)

    decision = run.decisions.settle(find)
    return _following(run, run.problem, decision, run.evaluations + decision.evaluations), decision.tuning


def _settled(run: Run, problem: Levels) -> tuple[Run, Tuning]:
    """Where an earlier run with another tolerance was in the end."""
    decisions = run.decisions.settled
    spent = sum(decision.evaluations for decision in decisions)
    return _following(run, problem, decisions[-1], run.evaluations + spent), decisions[-1].tuning


def _blended_if(blended: bool, problem: Levels) -> Levels:
    return (problem.alternative() or problem) if blended else problem


def _decision(
    problem: Levels, contraction: Contraction, tuning: Tuning, evaluations: int, kept: bool = False
) -> Decision:
    parts = problem.ladder, problem.batch_size, problem.is_alternative
    return Decision(*parts, contraction, tuning, evaluations, kept, not problem.controlled)


def _following(run: Run, problem: Levels, decision: Decision, evaluations: int) -> Run:
    """The run as decided, before its first level."""
    problem = ((problem.uncontrolled() if decision.uncontrolled else None) or problem).with_choice(
        decision.ladder, decision.batch_size
    )
    return replace(run, problem=problem, contraction=decision.contraction, evaluations=evaluations, levels=[])


def _tuner(run: Run, choices: Choices) -> Tuner:
    assert run.laplace is not None
    left = run.budget.max_evaluations - run.evaluations
    parts = run.problem, run.estimands, run.laplace, run.tolerances, run.executor, choices
    return Tuner(*parts, limit=left / 2, tails=run.tails)


def _patience(run: Run, tuning: Tuning) -> float:
    """In row gradients; the tuner's prices also count what a step costs beside its rows."""
    rows = run.problem.rows_per_gradient
    return PATIENCE * tuning.chosen.price * rows / (rows + run.problem.step_overhead)


def _reconsidered(run: Run, tuning: Tuning, choices: Choices) -> tuple[Run, Tuning]:
    """Larger pilots around the pair that was taken, by either gradient; the run itself where none is better."""
    decision = run.decisions.settle(partial(_reconsider, run, tuning, choices))
    if decision.kept:
        # The run itself, not a copy: its dispatcher holds what has arrived.
        run.evaluations += decision.evaluations
        return run, tuning
    spent = run.evaluations + decision.evaluations
    return _following(run, _blended_if(decision.blended, run.problem), decision, spent), decision.tuning


def _reconsider(run: Run, tuning: Tuning, choices: Choices) -> Decision:
    assert run.contraction is not None
    stay = _decision(run.problem, run.contraction, tuning, 0, kept=True)
    tuner = replace(_tuner(run, choices), blocks=SURE_BLOCKS)
    taken, deltas = tuning.chosen, [level.delta for level in run.levels]
    strained = max(level.strained for level in run.levels[:2])
    so_far = Trial(taken.first_step, taken.batch_size, float("inf"), strained, 0, taken.window)
    known = pilots_of(tuner, deltas, so_far, tuning.time, run.levels[0].fine)
    least = trial_price(tuner, taken.first_step, taken.batch_size, tuning.time, taken.window)
    if known.trial.price < REPAYS * least or not tuner.affords(2 * SURE_LEVELS * least):
        return stay
    options = [tune(tuner, known, tuning.time)]
    # A pair that turned out to be strained has no price: what counts is what is left to be saved.
    price = min(known.trial.price, options[0][2].chosen.price)
    worth_compiling = price * run.problem.dimension > WORTH_COMPILING
    blended = run.problem.alternative() if worth_compiling else None
    if blended is not None:
        narrowed = _around(choices, options[0][2].chosen)
        options.append(tune(replace(tuner, problem=blended, choices=narrowed), None, tuning.time))
    spent = sum(option[2].evaluations for option in options)
    problem, contraction, best = min(options, key=lambda option: option[2].chosen.price)
    log.info("reconsidered at price %.3g: best elsewhere %.3g", known.trial.price, best.chosen.price)
    if not best.chosen.price < BETTER * known.trial.price:
        return replace(stay, evaluations=spent)
    best = replace(best, reason=f"{best.reason}; a first choice cost more than its pilots foresaw")
    return _decision(problem, contraction, best, spent)


def _around(choices: Choices, chosen: Trial) -> Choices:
    """From the chosen pair on towards smaller steps and larger batches."""
    steps = tuple(h for h in choices.first_steps if h <= chosen.first_step)
    return replace(
        choices, first_steps=steps, batch_sizes=tuple(n for n in choices.batch_sizes if n >= chosen.batch_size)
    )


def _calmer(choices: Choices, tuning: Tuning) -> Choices | None:
    """Smaller steps and larger batches than the last ones; None where there are none."""
    if choices.ladder is not None:
        return None
    steps = tuple(h for h in choices.first_steps if h < tuning.chosen.first_step) or choices.first_steps[-1:]
    sizes = tuple(n for n in choices.batch_sizes if n > tuning.chosen.batch_size) or choices.batch_sizes[-1:]
    calmer = replace(choices, first_steps=steps, batch_sizes=sizes)
    return None if calmer == choices else calmer
