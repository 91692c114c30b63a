"""The door: checks the input once, finds the mode, runs the method, and wraps up the result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.anchored import reads_slabs, run_anchored, tune_anchored
from tallbayes.conclusion import Finished
from tallbayes.decisions import Unrecorded
from tallbayes.errors import DataError, InputError, MethodError, NoConvergenceError, TallbayesError, explain
from tallbayes.executors import default_executor
from tallbayes.extension import Question, check_intervals, conclude_run, known_kinds
from tallbayes.fingerprint import fingerprint
from tallbayes.foresight import NECK_ORDER, WEAK_ORDER
from tallbayes.hiring import Hired, hire
from tallbayes.interval_ends import MOST_BYTES, refine_ends
from tallbayes.laplace import laplace_level
from tallbayes.ledger import Ledger, open_ledger
from tallbayes.levels import BLOCK_PATHS
from tallbayes.method import Anchored, Method, Multilevel, Randomised, resolve_gradient
from tallbayes.mode import DENSE_LIMIT
from tallbayes.mode_answers import Repeat, answer_modes
from tallbayes.model import Model
from tallbayes.modes import search_modes
from tallbayes.multilevel import run_multilevel
from tallbayes.outline import Known, blank, copy_of, outline
from tallbayes.plans import anchored_problem, compile_programs, first_problem, require_affordable
from tallbayes.preparation import (
    Placed,
    Prepared,
    bind_rows,
    check_data,
    check_stored,
    find_centre,
    place,
    refine_precision,
    with_listing,
    with_probe,
)
from tallbayes.progress import Report, in_phase, reporter, teller
from tallbayes.quantities import make_estimands, read_quantities
from tallbayes.randomised import prepare_randomised, require_smooth, run_randomised
from tallbayes.recall import Search, recalled
from tallbayes.recentring import NO_MODE, recentre
from tallbayes.records import Kept, Recorded
from tallbayes.result import Cost, Result, Status
from tallbayes.roles import Executor
from tallbayes.run import KEPT_BYTES, Budget, Run, budget_within
from tallbayes.stored import Stored
from tallbayes.tail_variances import tails_of
from tallbayes.tolerances import KINDS, check_tolerances, resolve_tolerances
from tallbayes.watch import OutOfTime, Watch, aside, begin, current, watching
from tallbayes.weights import weigh

# Bad input is told even where hardly any time is given.
LEAST_SECONDS_FOR_CHECKS = 2.0


def estimate(
    model: Model,
    data: Any,
    quantities: Mapping[str, Callable[[Any], Any]] | Sequence[str] | None = None,
    *,
    tolerance: float | Mapping[str, float] | None = None,
    relative_tolerance: float | Mapping[str, float] | None = None,
    absolute_tolerance: float | Mapping[str, float] | None = None,
    method: Method | None = None,
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
    names to functions of theta ("mean" and "sd" of every parameter by default). Exactly one tolerance is given, for all
    quantities or by name. `weights` are numbers >= 0, one a row: how many equal rows it stands for; of a table on disk,
    the name of a field. Bad input raises; trouble at run time is told by `result.status`. `result.posterior` answers
    what is asked afterwards, unless `keep_posterior=False`; with `interval_tolerance` the run goes on until the ends of
    all 95% intervals err by no more than so many posterior sds, which can cost many times as much as a mean to the
    same. `max_seconds` holds from the call on, and what is there by then is the result: at the least the answer of the
    Gaussian at the mode, with its error unknown.

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
    kind, size = check_tolerances(dict(zip(KINDS, (tolerance, relative_tolerance, absolute_tolerance), strict=True)))
    method = _check_method(method)
    budget = budget_within(max_evaluations, max_levels, max_seconds)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise InputError(explain("seed a whole number in 0..2^64-1", repr(seed), "seed=0"))
    check_intervals(interval_tolerance, keep_posterior, method)
    rows = model, data, weights
    accuracy = kind, size, interval_tolerance
    asked = Asked(*rows, quantities, *accuracy, method, int(seed), anchor, executor, budget, keep_posterior, ledger)
    return _answer(asked, Known(), progress)


@dataclass(frozen=True, eq=False)
class Asked:
    """What was asked, as it was checked at the door; where a run ended before its first paths, it is asked again."""

    model: Model
    data: Any
    weights: Any
    quantities: Any
    kind: str
    size: Any
    interval_tolerance: float | None
    method: Method
    seed: int
    anchor: Anchor | None
    executor: Executor | None
    budget: Budget
    keep_posterior: bool
    ledger: str | Path | None
    # Of one mode among several: what a probe would see of the others is no tail.
    one_of_several: bool = False

    @property
    def stored(self) -> Stored | None:
        return self.data if isinstance(self.data, Stored) else None

    @property
    def ladder_method(self) -> Multilevel | Anchored:
        return self.method.method if isinstance(self.method, Randomised) else self.method

    @property
    def kept_bytes(self) -> float:
        return 0.0 if not self.keep_posterior else KEPT_BYTES if self.interval_tolerance is None else MOST_BYTES

    @property
    def plain_size(self) -> Any:
        return dict(self.size) if isinstance(self.size, Mapping) else float(self.size)

    def settings(self, precision: str) -> dict[str, Any]:
        """For the record."""
        versions = {name: version(name) for name in ("tallbayes", "jax", "jaxlib", "numpy")}
        found = {"seed": self.seed, self.kind: self.plain_size, "precision": precision, "block_paths": BLOCK_PATHS}
        interval = {} if self.interval_tolerance is None else {"interval_tolerance": float(self.interval_tolerance)}
        return {**found, "versions": versions, **interval}


def _answer(asked: Asked, known: Known, progress: bool | Report | None) -> Result:
    """The result, whatever time there is: of the paths, or of what is known before there are any."""
    with reporter(progress) as report, watching(asked.budget.max_seconds, teller(report)) as watch:
        try:
            with ExitStack() as stack:
                question, finished = _found(asked, known, watch, report, stack)
            result = conclude_run(question, finished)
        except (OutOfTime, KeyboardInterrupt) as end:
            watch.stop()
            watch.found = None
            if isinstance(end, KeyboardInterrupt) and known.anchor is None:
                raise
            status = Status.max_seconds if isinstance(end, OutOfTime) else Status.interrupted
            return _outlined(asked, known, status, watch)
        except NoConvergenceError as end:
            if known.target is None or known.target.dimension <= DENSE_LIMIT:
                raise
            # Where a climb was that ran off says nothing.
            known.point = None
            found = _outlined(asked, known, Status.no_mode, watch)
            return replace(found, notes=(f"mode: {end}", *found.notes))
    return answer_modes(
        result, question.others, question.prepared, Repeat(partial(_elsewhere, asked), asked.budget, asked.ledger)
    )


def _elsewhere(asked: Asked, *, anchor: Anchor, ledger: Path | None, **left: Any) -> Result:
    """The same question about another anchor, with what is left of the budget."""
    budget = replace(asked.budget, **left)
    elsewhere = replace(asked, anchor=anchor, ledger=ledger, budget=budget, one_of_several=True)
    return _answer(elsewhere, Known(), False)


def _outlined(asked: Asked, known: Known, status: Status, watch: Watch) -> Result:
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


def _bind_head(asked: Asked, known: Known) -> None:
    """Parameters and quantities by the first row alone, where there was no time to check them all."""
    try:
        rows = asked.data.rows() if asked.stored is not None else asked.data
        head = jax.tree.map(lambda leaf: np.asarray(leaf[:1]), rows)
        known.target, known.start = bind_rows(asked.model, check_data(asked.model, head))
        known.quantities = read_quantities(asked.quantities, known.target, known.start, asked.model.units)[0]
    except (TallbayesError, TypeError, LookupError):
        known.target = None


def _again(
    asked: Asked,
    known: Known,
    *,
    max_evaluations: float | None = None,
    max_levels: int | None = None,
    max_seconds: float | None = None,
    executor: Executor | None = None,
    progress: bool | Report | None = None,
    interval_tolerance: float | None = None,
    **tolerances: Any,
) -> Result:
    """Go on from what is known, with another tolerance or budget."""
    check_intervals(interval_tolerance, asked.keep_posterior, asked.method)
    if interval_tolerance is not None:
        asked = replace(asked, interval_tolerance=interval_tolerance)
    if tolerances:
        kind, size = check_tolerances(known_kinds(tolerances))
        asked = replace(asked, kind=kind, size=size)
    budget = budget_within(max_evaluations, max_levels, max_seconds)
    return _answer(replace(asked, budget=budget, executor=executor), copy_of(known), progress)


def _found(asked: Asked, known: Known, watch: Watch, report: Report, stack: ExitStack) -> tuple[Question, Finished]:
    """From the rows to a run that has ended; what is found on the way is put down in `known`."""
    method, ladder_method = asked.method, asked.ladder_method
    if known.placed is None:
        known.placed = _placed(asked, known, watch)
    hired = stack.enter_context(hire(asked.executor, known.placed.table))
    placed = replace(known.placed, table=hired.table)
    book, workers = _workers(asked, placed, hired, stack)
    gradient = resolve_gradient(ladder_method, placed.table.num_rows)
    if isinstance(ladder_method, Anchored) and not hired.elsewhere:
        compilers = default_executor()
        stack.callback(compilers.shutdown, wait=False, cancel_futures=True)
        observables = read_quantities(asked.quantities, placed.target, placed.start, placed.table.units)[1]
        compile_programs(compilers, ladder_method, observables, placed)
    recentres = isinstance(ladder_method, Anchored)
    prepared, search = recalled(book, placed, partial(_set_up, known, placed, asked.anchor, recentres, workers))
    known.prepared, known.search, known.centred = prepared, search, True
    begin("quantities")
    estimands = aside(make_estimands, asked.quantities, prepared.target, prepared.anchor, prepared.table.units)
    known.estimands = estimands
    goal = resolve_tolerances(asked.kind, asked.size, estimands)
    prepared = refine_precision(prepared, estimands, goal)
    if isinstance(ladder_method, Anchored) and reads_slabs(gradient):
        begin("rows that matter")
        prepared = aside(with_listing, prepared, workers, hired.folder if asked.stored is not None else None)
    if isinstance(ladder_method, Anchored) and not (search[0] or asked.one_of_several):
        begin("tails")
        prepared = aside(with_probe, prepared)
    problem = first_problem(ladder_method, prepared, estimands, gradient, asked.seed)
    require_affordable(problem, asked.budget, method)
    run = Run(problem, estimands, workers, report, goal, asked.budget, started=watch.started)
    run.kept_bytes, run.seconds_before = asked.kept_bytes, known.seconds
    run.weak_order = WEAK_ORDER if prepared.anchor.has_mode else NECK_ORDER
    if book is not None:
        wanted = {asked.kind: asked.plain_size, "interval": asked.interval_tolerance}
        run.decisions = Kept(book, asked.seed, json.dumps(wanted, default=float))
    finished = _solve(method, run, prepared, known)
    if asked.interval_tolerance is not None:
        finished = refine_ends(finished, prepared, asked.interval_tolerance)
    finished.run.executor, finished.run.decisions = hired.executor, Unrecorded()
    return Question(method, prepared, asked.settings(prepared.precision), *search), finished


def _placed(asked: Asked, known: Known, watch: Watch) -> Placed:
    """The rows checked, the model bound to them, and both where paths can read them."""
    begin("checking rows")
    end, watch.end = watch.end, max(watch.end, time.monotonic() + LEAST_SECONDS_FOR_CHECKS)
    try:
        model, arrays = aside(_check_rows, asked.model, asked.data, asked.weights)
    finally:
        watch.end = end
    known.num_rows = len(jax.tree.leaves(arrays)[0])
    gradient = resolve_gradient(asked.ladder_method, known.num_rows)
    shuffle = gradient.batch_size is not None and gradient.sampling.reads_neighbours
    _require_shuffled(asked.stored, shuffle)
    known.target, known.start = bound = bind_rows(model, arrays)
    known.quantities = read_quantities(asked.quantities, *bound, model.units)[0]
    begin("placing rows")
    return aside(place, model, arrays, asked.method.precision, shuffle, asked.stored, bound)


def _workers(asked: Asked, placed: Placed, hired: Hired, stack: ExitStack) -> tuple[Ledger | None, Executor]:
    """The ledger, if one is kept, and whoever runs the tasks and puts them on record."""
    if asked.ledger is None:
        return None, hired.executor
    book = stack.enter_context(open_ledger(asked.ledger))
    parts = placed.target, placed.table, placed.start, asked.quantities, asked.method, placed.precision, asked.anchor
    book.of(fingerprint(*parts))
    return book, Recorded(hired.executor, book, asked.kept_bytes)


def _set_up(
    known: Known, placed: Placed, anchor: Anchor | None, recentres: bool, executor: Executor
) -> tuple[Prepared, Search]:
    """The centre of all paths, and what was found on the way to it; what is known already is not done again."""
    watch = current()
    assert watch is not None
    if known.prepared is None:
        begin("mode")
        watch.found = known.saw
        start = placed if known.point is None else replace(placed, start=known.point.theta)
        known.prepared = aside(find_centre, start, anchor, executor)
        watch.found = None
    prepared = known.prepared = replace(known.prepared, table=placed.table)
    if known.search is None:
        begin("second mode")
        prepared, known.search = aside(_searched, prepared, anchor is not None, executor)
        known.prepared = prepared
    if recentres and anchor is None and prepared.anchor.has_mode and not known.centred:
        begin("recentring")
        return aside(_recentred, prepared, known.search, executor)
    return prepared, known.search


def _check_rows(model: Model, data: Any, weights: Any) -> tuple[Model, Any]:
    """The model as it sees the rows, and the rows."""
    if isinstance(data, Stored):
        return check_stored(model, data, weights)
    arrays = check_data(model, data)
    return (model, arrays) if weights is None else weigh(model, arrays, weights)


def _require_shuffled(stored: Stored | None, shuffle: bool) -> None:
    if stored is not None and shuffle and not stored.shuffled:
        hint = "make it again with tallbayes ingest or tb.write_table, which shuffle"
        raise DataError(explain("a shuffled table, of which runs of rows look like the whole", "one in order", hint))


def _searched(prepared: Prepared, anchored_before: bool, executor: Executor) -> tuple[Prepared, Search]:
    """Look for a second mode, unless an earlier run has; whether there is one, and what to say of it."""
    notes = (prepared.anchor.note,) if prepared.anchor.note else ()
    if anchored_before:
        return prepared, ((), (*notes, "modes: not searched, since an anchor was given"))
    if not prepared.anchor.has_mode:
        return prepared, ((), (*notes, f"centre: {NO_MODE}", "modes: not searched, since no climb ends"))
    search = search_modes(prepared.target, prepared.table, prepared.anchor, executor)
    spent = prepared.setup_evaluations + search.evaluations
    return replace(prepared, anchor=search.anchor, setup_evaluations=spent), (
        search.others,
        (*notes, f"modes: {search.note}"),
    )


def _recentred(prepared: Prepared, search: Search, executor: Executor) -> tuple[Prepared, Search]:
    """Anchor to the posterior's mean where its mass is far from the mode, and say so."""
    found = recentre(prepared.target, prepared.table, prepared.anchor, executor)
    others = [recentre(prepared.target, prepared.table, peak.anchor, executor) for peak in search[0]]
    spent = prepared.setup_evaluations + sum(each.evaluations for each in (found, *others))
    moved = tuple(replace(peak, anchor=each.anchor) for peak, each in zip(search[0], others, strict=True))
    notes = (*search[1], found.note) if found.note else search[1]
    return replace(prepared, anchor=found.anchor, setup_evaluations=spent), (moved, notes)


def _solve(method: Method, run: Run, prepared: Prepared, known: Known) -> Finished:
    """Run the method to its end."""
    if isinstance(method, Multilevel):
        return Finished(run, *run_multilevel(run))
    seed, ladder_method = run.problem.seed, method.method if isinstance(method, Randomised) else method
    estimands = run.estimands
    begin("Gaussian level")
    parts = prepared.target, estimands.observables, prepared.anchor, estimands.jump, seed, prepared.table.units
    known.laplace = run.laplace = aside(laplace_level, *parts)
    if prepared.probe is not None:
        probed = prepared.target, estimands, prepared.anchor, prepared.table.units, prepared.probe
        run.tails = aside(tails_of, *probed)
    rebuild = partial(anchored_problem, ladder_method, prepared, run.estimands, seed)
    if isinstance(method, Anchored):
        return Finished(*run_anchored(ladder_method, run, rebuild))
    require_smooth(estimands)
    tuned, tuning = tune_anchored(ladder_method, run)
    known.evaluations = tuned.evaluations
    randomised = prepare_randomised(tuned, method.fixed_levels)
    return Finished(tuned, *run_randomised(randomised), tuning, randomised)


def _check_method(method: Any) -> Method:
    if method is None:
        return Anchored()
    if not isinstance(method, Multilevel | Anchored | Randomised):
        raise MethodError(explain("a method such as tb.Anchored() or tb.Multilevel(...)", repr(method), "method=None"))
    return method
