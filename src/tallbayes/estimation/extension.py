"""Extension: a run that has ended, as a result, and how it goes on to another tolerance or budget."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.anchor.other_modes import Peak
from tallbayes.errors import InputError, explain
from tallbayes.estimation.conclusion import Finished, conclude
from tallbayes.estimation.interval_ends import MOST_BYTES, refine_ends
from tallbayes.estimator.adaptive import run_multilevel
from tallbayes.estimator.estimands import Estimands
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.randomised import run_randomised
from tallbayes.estimator.run import Run, budget_within
from tallbayes.estimator.tolerances import KINDS, Tolerances, check_tolerances, resolve_tolerances
from tallbayes.methods.parts import Method, Randomised
from tallbayes.progress import Report, reporter, teller
from tallbayes.results.result import Result
from tallbayes.setup.preparation import Prepared, refine_precision
from tallbayes.watch import OutOfTime, watching
from tallbayes.workers.executors import Executor
from tallbayes.workers.sharing import hire


@dataclass(frozen=True, eq=False)
class Question:
    """What was asked, which an extension asks again."""

    method: Method
    prepared: Prepared
    settings: dict[str, Any]
    others: tuple[Peak, ...]
    notes: tuple[str, ...]


def conclude_run(question: Question, finished: Finished) -> Result:
    q = question
    kept = replace(finished.run, seconds_before=finished.run.seconds_before + time.monotonic() - finished.run.started)
    continuation = partial(_extend, question, replace(finished, run=kept))
    return conclude(finished, q.prepared, q.method, q.settings, bool(q.others), q.notes, continuation)


def _extend(
    question: Question,
    before: Finished,
    *,
    max_evaluations: float | None = None,
    max_levels: int | None = None,
    max_seconds: float | None = None,
    executor: Executor | None = None,
    progress: bool | Report | None = None,
    interval_tolerance: float | None = None,
    **tolerances: Any,
) -> Result:
    """Continue with another tolerance or budget on a copy of the levels; the old result stays as it was."""
    run, prepared, settings = before.run, question.prepared, dict(question.settings)
    check_intervals(interval_tolerance, run.kept_bytes > 0, question.method)
    if interval_tolerance is not None:
        settings["interval_tolerance"] = float(interval_tolerance)
    goal = run.tolerances
    if tolerances:
        kind, size = check_tolerances(known_kinds(tolerances))
        goal = resolve_tolerances(kind, size, run.estimands)
        _require_resolved(prepared, run.estimands, goal, f"{kind}={size}")
        recorded = dict(size) if isinstance(size, Mapping) else float(size)
        settings = {k: v for k, v in settings.items() if k not in KINDS} | {kind: recorded}
    budget = budget_within(max_evaluations, max_levels, max_seconds)
    further = replace(
        run,
        tolerances=goal,
        budget=budget,
        levels=list(run.levels),
        kept_bytes=run.kept_bytes if interval_tolerance is None else MOST_BYTES,
    )
    with reporter(progress) as report, watching(budget.max_seconds, teller(report)) as watch:
        further.report, further.started = report, watch.started
        try:
            finished = _further(before, further, prepared, executor, interval_tolerance)
        except (OutOfTime, KeyboardInterrupt) as end:
            # Before it could go on.
            watch.stop()
            status = Status.max_seconds if isinstance(end, OutOfTime) else Status.interrupted
            finished = replace(before, run=further, status=status)
    return conclude_run(replace(question, settings=settings), finished)


def _further(
    before: Finished, run: Run, prepared: Prepared, executor: Executor | None, interval_tolerance: float | None
) -> Finished:
    with hire(executor, prepared.table) as hired:
        run.problem = replace(run.problem, ground=replace(run.problem.ground, table=hired.table))
        run.executor = hired.executor
        if before.randomised is not None:
            # Where not every level has been sampled yet, the pilots still say how often.
            whole = before.randomised.tail.drawn is not None
            pilots = None if whole else before.randomised.pilot_variance
            randomised = replace(before.randomised, run=run, pilot_variance=pilots)
            status, final = run_randomised(randomised)
            return replace(before, run=run, status=status, final=final, randomised=randomised)
        status, final = run_multilevel(run)
        finished = replace(before, run=run, status=status, final=final)
        return finished if interval_tolerance is None else refine_ends(finished, prepared, interval_tolerance)


def check_intervals(tolerance: Any, keep_posterior: bool, method: Method) -> None:
    if tolerance is None:
        return
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float | np.number) or not tolerance > 0:
        raise InputError(explain("interval_tolerance > 0", repr(tolerance), "0.02, in posterior sds"))
    if not keep_posterior or isinstance(method, Randomised):
        got = "method=Randomised()" if keep_posterior else "keep_posterior=False"
        raise InputError(explain("a posterior that is kept, for its intervals", got, "interval_tolerance=None"))


def known_kinds(tolerances: dict[str, Any]) -> dict[str, Any]:
    unknown = set(tolerances) - set(KINDS)
    if unknown:
        raise InputError(explain(f"one of {KINDS} or a budget", f"{sorted(unknown)}", "tolerance=0.005"))
    return tolerances


def _require_resolved(prepared: Prepared, estimands: Estimands, goal: Tolerances, asked: str) -> None:
    if refine_precision(prepared, estimands, goal).precision != prepared.precision:
        raise InputError(
            explain(
                "a tolerance that the paths so far resolve",
                f"{asked}, too fine for their float32",
                "tb.estimate(..., method=tb.Multilevel(precision='float64')) with this tolerance",
            )
        )
