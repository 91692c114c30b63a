"""The door: the question is checked once, walked through, and ends in a result, whatever time there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.mode import dense_limit_of
from tallbayes.errors import InputError, NoConvergenceError, TallbayesError, explain
from tallbayes.estimation.extension import conclude_run
from tallbayes.estimation.mode_answers import Repeat, answer_modes
from tallbayes.estimation.outline import blank, copy_of, outline
from tallbayes.estimation.question import Accuracy, Question, check_intervals, check_seed, read_changes
from tallbayes.estimation.shrunk import answer_shrunk, is_shrunk, require_shrinkable
from tallbayes.estimation.small import answer_small
from tallbayes.estimation.walk import walk
from tallbayes.estimation.weighed import HandedOver
from tallbayes.estimator.estimands import KINDS, check_tolerances
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.run import budget_within
from tallbayes.methods.anchored import Anchored
from tallbayes.methods.method import Method, check_method
from tallbayes.methods.weighted import Weighted, weighted_first
from tallbayes.model.model import Model
from tallbayes.model.parts.making import settled
from tallbayes.programs.later import jax
from tallbayes.progress import Report, in_phase, reporter, teller
from tallbayes.results.parts import Cost
from tallbayes.results.result import Result
from tallbayes.rows.on_disk import Stored
from tallbayes.setup.known import Known
from tallbayes.setup.preparation import bind_rows, check_data
from tallbayes.setup.quantities import read_quantities
from tallbayes.watch import OutOfTime, Watch, watching
from tallbayes.workers.executors import Executor


def estimate(
    model: Model,
    data: Any,
    quantities: Mapping[str, Callable[[Any], Any]] | Sequence[str] | None = None,
    *,
    tolerance: float | Mapping[str, float] | None = None,
    relative_tolerance: float | Mapping[str, float] | None = None,
    absolute_tolerance: float | Mapping[str, float] | None = None,
    method: Method | Weighted | None = None,
    seed: int = 0,
    anchor: Anchor | None = None,
    executor: Executor | None = None,
    weights: Any = None,
    max_evaluations: float | None = None,
    max_levels: int | None = None,
    max_seconds: float | None = None,
    progress: bool | Report | None = None,
    keep_posterior: bool = True,
    interval_tolerance: float | None = None,
    ledger: str | Path | None = None,
) -> Result:
    """Posterior expectations of `quantities`, each to the prescribed RMSE.

    `data` is a pytree of arrays that share a leading axis, or a table on disk (`tb.open_table`); `quantities` maps
    names to functions of theta ("mean" and "sd" of every parameter by default). One tolerance is given, for all
    quantities or by name; where none is, it is 0.01 posterior sds. `weights` are numbers >= 0, one a row: how many
    equal rows it stands for; of a table on disk, the name of a field. Bad input raises; trouble at run time is told by
    `result.status`. `result.posterior` answers what is asked afterwards, unless `keep_posterior=False`; with
    `interval_tolerance` the run goes on until the ends of all 95% intervals err by no more than so many posterior sds,
    which can cost many times as much as a mean to the same. `max_seconds` holds from the call on, and what is there by
    then is the result: at the least the answer of the Gaussian at the mode, with its error unknown.

    `executor` is any `concurrent.futures.Executor`: threads of this process if None, spawned processes, or dask's
    `client.get_executor()`. With a `ledger` every finished block is on disk: the same call goes on after a crash and
    ends in the same bits, and one with a tighter tolerance pays only the difference.

    >>> import numpy as np, tallbayes as tb
    >>> y = np.random.default_rng(0).normal(1.0, 1.0, 50)
    >>> rows = {"x": np.ones((50, 1)), "y": y}
    >>> result = tb.estimate(tb.families.linear(noise_scale=1.0), rows, tolerance=0.2)
    >>> result.converged
    True
    """
    given = check_tolerances(dict(zip(KINDS, (tolerance, relative_tolerance, absolute_tolerance), strict=True)))
    given_method, (weighted, otherwise) = method is not None, weighted_first(method)
    method = check_method(otherwise, Anchored)
    budget = budget_within(max_evaluations, max_levels, max_seconds)
    seed = check_seed(seed)
    if weighted is not None and weighted.unbiased and interval_tolerance is not None:
        hint = "interval_tolerance=None, or tb.Weighted()"
        raise InputError(explain("a posterior that is kept, for its intervals", "replicates, which keep none", hint))
    check_intervals(interval_tolerance, keep_posterior, method)
    known = data.rows() if isinstance(data, Stored) else data
    model = settled(model, known) if isinstance(model, Model) else model
    accuracy, rows = Accuracy(*given, interval_tolerance), (model, data, weights)
    question = Question(*rows, quantities, accuracy, method, seed, anchor, executor, budget, keep_posterior, ledger)
    require_shrinkable(question, method_given=given_method)
    question = replace(question, weighted=weighted)
    found = noted(question, answer(question, Known(), progress))
    if question.stored is not None:
        # Of rows that were withdrawn meanwhile it would be an answer to no question.
        question.stored.require_same_rows()
    return found


def answer(asked: Question, known: Known, progress: bool | Report | None) -> Result:
    """The result from where `known` stands on, whatever time there is: of paths, or of what is known before any."""
    with reporter(progress) as report, watching(asked.budget.max_seconds, teller(report)) as watch:
        handed_over = HandedOver()
        try:
            if is_shrunk(asked):
                return answer_shrunk(asked, report, watch.started)
            if asked.weighted is not None:
                small = answer_small(asked, asked.weighted, report, watch.started)
                if isinstance(small, Result):
                    return small
                handed_over = small
            with ExitStack() as stack:
                answered = walk(asked, known, watch, report, stack)
            if isinstance(answered, Result):
                return answered
            result = _told(conclude_run(answered), handed_over if handed_over.reason else answered.handed_over)
        except (OutOfTime, KeyboardInterrupt) as end:
            watch.stop()
            watch.found = None
            if isinstance(end, KeyboardInterrupt) and known.anchor is None:
                raise
            status = Status.max_seconds if isinstance(end, OutOfTime) else Status.interrupted
            return _told(_outlined(asked, known, status, watch), handed_over)
        except NoConvergenceError as end:
            if known.target is None or known.target.dimension <= dense_limit_of(known.target):
                raise
            # Where a climb was that ran off says nothing.
            known.point = None
            found = _outlined(asked, known, Status.no_mode, watch)
            return replace(found, notes=(f"mode: {end}", *found.notes))
    others, repeat = answered.search[0], Repeat(partial(_elsewhere, asked), asked.budget, asked.ledger)
    return answer_modes(result, others, answered.prepared, repeat)


def answer_otherwise(asked: Question, handed_over: HandedOver) -> Result:
    """By the other method, with a word of why."""
    return _told(answer(replace(asked, weighted=None), Known(), False), handed_over)


def noted(question: Question, result: Result) -> Result:
    """The result with its question and what is to be told of the model, and so every extension of it."""

    def further(continuation: Callable[..., Result], **changes: Any) -> Result:
        return noted(read_changes(question, **changes).applied(question), continuation(**changes))

    notes = question.model.notes
    continuation = None if result.continuation is None else partial(further, result.continuation)
    modes = tuple(
        each if each.result is None else replace(each, result=noted(question, each.result)) for each in result.modes
    )
    own: dict[str, Any] = {"notes": (*notes, *result.notes), "question": question}
    return replace(result, modes=modes, continuation=continuation, **own)


def _told(result: Result, handed_over: HandedOver) -> Result:
    """With a word of why it is this method's answer."""
    if not handed_over.reason:
        return result
    return replace(result, notes=(*result.notes, f"{handed_over.reason}; so the ladder went on"))


def _elsewhere(asked: Question, *, anchor: Anchor, ledger: Path | None, **left: Any) -> Result:
    """The same question about another anchor, with what is left of the budget."""
    budget = replace(asked.budget, **left)
    elsewhere = replace(asked, anchor=anchor, ledger=ledger, budget=budget, one_of_several=True, weighted=None)
    return answer(elsewhere, Known(), False)


def _outlined(asked: Question, known: Known, status: Status, watch: Watch) -> Result:
    looks: list[Any] = []
    teller(looks.append)(watch)
    seconds = known.seconds + time.monotonic() - watch.started
    if known.target is None:
        _bind_head(asked, known)
    settings = asked.settings("" if known.placed is None else known.placed.precision)
    again = partial(_again, asked, replace(known, seconds=seconds))
    if known.target is None:
        names = [str(name) for name in asked.quantities or ("mean", "sd")]
        return blank(status, names, settings, in_phase(looks[0]), seconds, again)
    spent = watch.rows_read if known.prepared is None else known.prepared.setup_evaluations
    cost = Cost(known.evaluations, spent, 0, known.num_rows, seconds)
    return outline(known, status, asked, settings, in_phase(looks[0]), cost, again)


def _bind_head(asked: Question, known: Known) -> None:
    """Parameters and quantities by the first row alone, where there was no time to check them all."""
    try:
        rows = asked.data.rows() if asked.stored is not None else asked.data
        head = jax.tree.map(lambda leaf: np.asarray(leaf[:1]), rows)
        known.target, known.start = bind_rows(asked.model, check_data(asked.model, head))
        known.quantities = read_quantities(asked.quantities, known.target, known.start, asked.model.units)[0]
    except (TallbayesError, TypeError, LookupError):
        known.target = None


def _again(asked: Question, known: Known, **changes: Any) -> Result:
    """Go on from what is known, with another tolerance or budget."""
    changed = read_changes(asked, **changes)
    return answer(changed.applied(asked), copy_of(known), changed.progress)
