"""The walk from the rows to a run that has ended: check, place, set up, plan, run.

Each stage is entered once. What is found on the way is put down in `known`, so that a run which has to end before its
first paths still has an answer, and can go on.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from tallbayes.errors import DataError, InputError, explain
from tallbayes.estimation.extension import Answered
from tallbayes.estimation.interval_ends import refine_ends
from tallbayes.estimation.question import FINE_SHARE, Question
from tallbayes.estimation.weighed import HandedOver
from tallbayes.estimation.weighed_rows import MOST_ROWS, about_moments, applies, weigh_rows
from tallbayes.estimator.decisions import Followed, Unrecorded
from tallbayes.estimator.estimands import resolve_tolerances
from tallbayes.estimator.foresight import NECK_ORDER
from tallbayes.estimator.run import Run
from tallbayes.groups.placing import Gathered, gather, place_groups
from tallbayes.methods.method import identity_of
from tallbayes.model.model import Model
from tallbayes.model.weights import weigh
from tallbayes.programs.later import jax
from tallbayes.progress import Report
from tallbayes.records.fingerprint import fingerprint
from tallbayes.records.ledger import Ledger, open_ledger
from tallbayes.records.tasks import Kept, Recorded
from tallbayes.results.result import Result
from tallbayes.rows.on_disk import Stored
from tallbayes.setup.balancing import Wish
from tallbayes.setup.centre import set_up
from tallbayes.setup.known import Known
from tallbayes.setup.preparation import (
    Placed,
    bind_rows,
    check_data,
    check_stored,
    place,
    refine_precision,
    require_model,
)
from tallbayes.setup.quantities import make_estimands, read_quantities
from tallbayes.setup.record import recalled
from tallbayes.watch import Watch, aside, begin, count_by
from tallbayes.workers.executors import Executor, default_executor
from tallbayes.workers.sharing import Hired, hire

# Bad input is told even where hardly any time is given.
LEAST_SECONDS_FOR_CHECKS = 2.0


def walk(asked: Question, known: Known, watch: Watch, report: Report, stack: ExitStack) -> Answered | Result:
    """From the rows to a run that has ended, or to a result by weights where that is nearer."""
    method = asked.method
    known.placed = known.placed or _placed(asked, known, watch, stack)
    hired = stack.enter_context(hire(asked.executor, known.placed.table))
    placed = replace(known.placed, table=hired.table)
    book, workers = _workers(asked, placed, hired, stack)
    if not hired.elsewhere and known.prepared is None:
        _compile_ahead(asked, stack, placed)
    wish = Wish.of(method.anchor, asked.accuracy.kind, asked.accuracy.size) if method.anchored else None
    prepared, search = recalled(book, placed, partial(set_up, known, placed, asked.anchor, wish, workers))
    if applies(asked, prepared, search):
        prepared = aside(about_moments, prepared, workers)
    known.prepared, known.search, known.centred = prepared, search, True
    begin("quantities")
    estimands = aside(make_estimands, asked.quantities, prepared.target, prepared.anchor, prepared.table.units)
    known.estimands = estimands
    goal = resolve_tolerances(asked.accuracy.kind, asked.accuracy.size, estimands)
    prepared = refine_precision(prepared, estimands, goal)
    handed_over = HandedOver()
    if applies(asked, prepared, search):
        parts = asked, prepared, search, estimands, goal, workers, report, watch.started - known.seconds
        found = weigh_rows(*parts)
        if isinstance(found, Result):
            return found
        handed_over = found
    folder = hired.folder if asked.stored is not None else None
    prepared = method.prepare(prepared, workers, folder, not (search[0] or asked.one_of_several))
    if known.guide is not None or prepared.anchor.is_wide:
        prepared = (known.guide or method.guided)(prepared, estimands, asked.seed, asked.accuracy.finest)
    problem = method.problem(prepared, estimands, asked.seed)
    _require_affordable(asked, method.least_evaluations(problem))
    run = Run(problem, estimands, workers, report, goal, asked.budget, started=watch.started)
    most = max(known.most, 2 * method.least_evaluations(problem))
    run.budget = replace(run.budget, max_evaluations=min(run.budget.max_evaluations, most))
    run.kept_bytes, run.seconds_before = asked.kept_bytes, known.seconds
    # Where integrals are rough no number of levels helps: that is told at the end, and not sampled for.
    run.standing_bias = (
        prepared.integral_error if prepared.integral_error <= FINE_SHARE * asked.accuracy.finest else 0.0
    )
    run.weak_order = None if prepared.anchor.has_mode else NECK_ORDER
    if known.decision is not None:
        run.decisions = Followed((known.decision,))
    if book is not None:
        run.decisions = Kept(book, asked.seed, _goal_on_record(asked))
    finished = method.solve(run, prepared, known)
    if asked.accuracy.interval is not None:
        finished = refine_ends(finished, prepared, asked.accuracy.interval)
    finished.run.executor, finished.run.decisions = hired.executor, Unrecorded()
    return Answered(asked, prepared, asked.settings(prepared.precision), search, finished, handed_over)


def _placed(asked: Question, known: Known, watch: Watch, stack: ExitStack) -> Placed:
    """The rows checked, the model bound to them, and both where paths can read them."""
    require_model(asked.model)
    begin("checking rows")
    end, watch.end = watch.end, max(watch.end, time.monotonic() + LEAST_SECONDS_FOR_CHECKS)
    try:
        if asked.model.groups is not None:
            gathered = aside(gather, asked.model, asked.data, asked.weights)
        else:
            model, arrays = aside(check_rows, asked.model, asked.data, asked.weights)
    finally:
        watch.end = end
    if asked.model.groups is not None:
        return _placed_groups(asked, known, gathered, stack)
    known.num_rows = len(jax.tree.leaves(arrays)[0])
    gradient = asked.method.gradient_for(known.num_rows)
    shuffle = gradient.batch_size is not None and gradient.sampling.reads_neighbours
    # An anchored method reads runs of a list, and makes one of rows in order.
    _require_shuffled(asked.stored, shuffle and not asked.method.anchored)
    known.target, known.start = bound = bind_rows(model, arrays)
    known.quantities = read_quantities(asked.quantities, *bound, model.units)[0]
    begin("placing rows")
    return aside(place, model, arrays, asked.method.precision, shuffle, asked.stored, bound)


def _placed_groups(asked: Question, known: Known, gathered: Gathered, stack: ExitStack) -> Placed:
    known.num_rows = gathered.grouping.count
    known.target, known.start = gathered.bound
    known.quantities = read_quantities(asked.quantities, *gathered.bound, asked.model.units)[0]
    gradient = asked.method.gradient_for(known.num_rows)
    shuffle = gradient.batch_size is not None and gradient.sampling.reads_neighbours
    begin("placing rows")
    count_by("group")
    # The climb to the mode takes as long as a compiler, which may guess the nodes right.
    meanwhile = partial(_compile_ahead, asked, stack) if asked.executor is None else None
    how = asked.method.precision, shuffle, asked.accuracy.finest
    return aside(place_groups, gathered, *how, default_executor(), meanwhile)


def check_rows(model: Model, data: Any, weights: Any) -> tuple[Model, Any]:
    """The model as it sees the rows, and the rows."""
    if isinstance(data, Stored):
        return check_stored(model, data, weights)
    arrays = check_data(model, data)
    return (model, arrays) if weights is None else weigh(model, arrays, weights)


def _require_shuffled(stored: Stored | None, shuffle: bool) -> None:
    if stored is not None and shuffle and not stored.shuffled:
        hint = "make it again with tallbayes ingest or tb.write_table, which shuffle"
        raise DataError(explain("a shuffled table, of which runs of rows look like the whole", "one in order", hint))


def _workers(asked: Question, placed: Placed, hired: Hired, stack: ExitStack) -> tuple[Ledger | None, Executor]:
    """The ledger, if one is kept, and whoever runs the tasks and puts them on record."""
    if asked.ledger is None:
        return None, hired.executor
    book = stack.enter_context(open_ledger(asked.ledger))
    target, table = placed.target, placed.table
    named, observables = read_quantities(asked.quantities, target, placed.start, table.units)
    identity = identity_of(asked.method, placed, observables)
    book.of(fingerprint(target, table, named, observables.functions, identity, asked.anchor))
    return book, Recorded(hired.executor, book, asked.kept_bytes)


def _compile_ahead(asked: Question, stack: ExitStack, placed: Placed) -> None:
    if asked.weighted and placed.table.num_rows <= MOST_ROWS:
        return
    compilers = default_executor()
    stack.callback(compilers.shutdown, wait=False, cancel_futures=True)
    observables = read_quantities(asked.quantities, placed.target, placed.start, placed.table.units)[1]
    tolerance = Wish.of(None, asked.accuracy.kind, asked.accuracy.size).tolerance
    asked.method.compile_ahead(compilers, placed, observables, tolerance)


def _require_affordable(asked: Question, least: int) -> None:
    if asked.budget.max_evaluations < least:
        raise InputError(
            explain(
                f"max_evaluations >= {least:,}, what the first look at this problem costs",
                f"{asked.budget.max_evaluations:,}",
                "a larger budget, a smaller batch_size or a shorter ladder",
            )
        )


def _goal_on_record(asked: Question) -> str:
    recorded = replace(asked.accuracy, interval=None).recorded
    return json.dumps({**recorded, "interval": asked.accuracy.interval}, default=float)
