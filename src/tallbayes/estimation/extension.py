"""Extension: a run that has ended, as a result, and how it goes on to another tolerance or budget."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tallbayes.errors import InputError, explain
from tallbayes.estimation.conclusion import conclude
from tallbayes.estimation.interval_ends import MOST_BYTES, refine_ends
from tallbayes.estimation.question import Accuracy, Changes, Question, read_changes
from tallbayes.estimation.weighed import HandedOver
from tallbayes.estimator.estimands import KINDS, resolve_tolerances
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.run import Goal, Run
from tallbayes.methods.method import Finished
from tallbayes.progress import reporter, teller
from tallbayes.results.result import Result
from tallbayes.setup.preparation import Prepared, refine_precision
from tallbayes.setup.record import Search
from tallbayes.watch import OutOfTime, watching
from tallbayes.workers.sharing import hire


@dataclass(frozen=True, eq=False)
class Answered:
    """A question whose run has ended: what was set up for it, and what is said of it."""

    question: Question
    prepared: Prepared
    settings: dict[str, Any]
    search: Search
    finished: Finished
    handed_over: HandedOver = HandedOver()


def conclude_run(this: Answered) -> Result:
    run = this.finished.run
    kept = replace(run, seconds_before=run.seconds_before + time.monotonic() - run.started)
    continuation = partial(extend, replace(this, finished=replace(this.finished, run=kept)))
    parts = this.finished, this.prepared, this.question.method, this.settings, this.search
    return conclude(*parts, continuation)


def extend(before: Answered, **asked: Any) -> Result:
    """Continue with another tolerance or budget on a copy of the levels; the old result stays as it was."""
    changes = read_changes(before.question, **asked)
    goal = _goal(before, changes)
    run = before.finished.run
    kept = run.kept_bytes if changes.interval is None else MOST_BYTES
    further = replace(run, tolerances=goal, budget=changes.budget, levels=list(run.levels), kept_bytes=kept)
    with reporter(changes.progress) as report, watching(changes.budget.max_seconds, teller(report)) as watch:
        further.report, further.started = report, watch.started
        try:
            finished = _further(before, further, changes)
        except (OutOfTime, KeyboardInterrupt) as end:
            # Before it could go on.
            watch.stop()
            status = Status.max_seconds if isinstance(end, OutOfTime) else Status.interrupted
            finished = replace(before.finished, run=further, status=status)
    return conclude_run(replace(before, settings=_settings(before, changes), finished=finished))


def _further(before: Answered, run: Run, changes: Changes) -> Finished:
    with hire(changes.executor, before.prepared.table) as hired:
        run.problem, run.executor = run.problem.on(hired.table), hired.executor
        finished = before.question.method.further(before.finished, run)
        return finished if changes.interval is None else refine_ends(finished, before.prepared, changes.interval)


def _goal(before: Answered, changes: Changes) -> Goal:
    """Refused where the paths so far are too coarse for it."""
    run, prepared = before.finished.run, before.prepared
    if changes.tolerance is None:
        return run.tolerances
    kind, size = changes.tolerance
    goal = resolve_tolerances(kind, size, run.estimands)
    if refine_precision(prepared, run.estimands, goal).precision != prepared.precision:
        raise InputError(
            explain(
                "a tolerance that the paths so far resolve",
                f"{kind}={size}, too fine for their float32",
                "tb.estimate(..., method=tb.Multilevel(precision='float64')) with this tolerance",
            )
        )
    finest, guide = Accuracy(kind, size).finest, prepared.guide
    if guide is not None and max(float(each.max()) for each in guide.errors(prepared.anchor)) ** 2 > finest**2 / 4:
        raise InputError(
            explain(
                "a tolerance that the means of the control allow, which were drawn for that of the run",
                f"{kind}={size}, too fine for them",
                "tb.estimate(..., anchor=result.anchor) with this tolerance",
            )
        )
    return goal


def _settings(before: Answered, changes: Changes) -> dict[str, Any]:
    settings = dict(before.settings)
    if changes.interval is not None:
        settings["interval_tolerance"] = float(changes.interval)
    if changes.tolerance is None:
        return settings
    others = {name: value for name, value in settings.items() if name not in KINDS}
    return others | Accuracy(*changes.tolerance).recorded
