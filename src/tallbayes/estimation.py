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
from tallbayes.anchored import anchored_gradient, reads_slabs, run_anchored, tune_anchored
from tallbayes.conclusion import Finished, conclude
from tallbayes.decisions import Unrecorded
from tallbayes.errors import DataError, InputError, MethodError, explain
from tallbayes.executors import default_executor
from tallbayes.fingerprint import fingerprint
from tallbayes.foresight import NECK_ORDER, WEAK_ORDER
from tallbayes.hiring import hire
from tallbayes.interval_ends import MOST_BYTES, refine_ends
from tallbayes.laplace import laplace_level
from tallbayes.ledger import open_ledger
from tallbayes.levels import BLOCK_PATHS, Problem, compile_ahead, make_problem
from tallbayes.method import (
    Anchored,
    Method,
    Multilevel,
    Randomised,
    ladder_whitened,
    require_known_hessian,
    resolve,
    resolve_gradient,
)
from tallbayes.mode import DENSE_LIMIT
from tallbayes.mode_answers import Asked, answer_modes
from tallbayes.model import Model, Target
from tallbayes.modes import Peak, search_modes
from tallbayes.multilevel import run_multilevel
from tallbayes.paths import Observables, Plan
from tallbayes.preparation import (
    Placed,
    Prepared,
    check_data,
    check_stored,
    find_centre,
    place,
    refine_precision,
    with_listing,
)
from tallbayes.progress import Report, reporter
from tallbayes.quantities import Estimands, make_estimands, read_quantities
from tallbayes.randomised import pilot_evaluations, prepare_randomised, require_smooth, run_randomised
from tallbayes.recall import Search, recalled
from tallbayes.recentring import NO_MODE, recentre
from tallbayes.records import Kept, Recorded
from tallbayes.result import Result
from tallbayes.roles import Executor, GradientEstimator
from tallbayes.run import KEPT_BYTES, Budget, Run, budget_within
from tallbayes.stored import Stored
from tallbayes.tolerances import KINDS, check_tolerances, resolve_tolerances
from tallbayes.weights import weigh


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
    same.

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
    given = {name: value for name, value in locals().items() if name not in ("anchor", "ledger")}
    started = time.monotonic()
    kind, size = check_tolerances(dict(zip(KINDS, (tolerance, relative_tolerance, absolute_tolerance), strict=True)))
    method = _check_method(method)
    budget = budget_within(max_evaluations, max_levels, max_seconds)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise InputError(explain("seed a whole number in 0..2^64-1", repr(seed), "seed=0"))
    _check_intervals(interval_tolerance, keep_posterior, method)
    model, arrays = _check_rows(model, data, weights)
    stored = data if isinstance(data, Stored) else None
    ladder_method = method.method if isinstance(method, Randomised) else method
    gradient = resolve_gradient(ladder_method, len(jax.tree.leaves(arrays)[0]))
    shuffle = gradient.batch_size is not None and gradient.sampling.reads_neighbours
    _require_shuffled(stored, shuffle)
    asking = Asked(partial(estimate, **given), budget, ledger)
    kept = 0.0 if not keep_posterior else KEPT_BYTES if interval_tolerance is None else MOST_BYTES
    with ExitStack() as stack:
        report = stack.enter_context(reporter(progress))
        placed = place(model, arrays, method.precision, shuffle, stored)
        hired = stack.enter_context(hire(executor, placed.table))
        placed = replace(placed, table=hired.table)
        book = None
        if ledger is not None:
            book = stack.enter_context(open_ledger(ledger))
            known = placed.target, placed.table, placed.start, quantities, method, placed.precision, anchor
            book.of(fingerprint(*known))
        workers = hired.executor if book is None else Recorded(hired.executor, book, kept)
        if isinstance(ladder_method, Anchored) and not hired.elsewhere:
            compilers = default_executor()
            stack.callback(compilers.shutdown, wait=False, cancel_futures=True)
            _compile_ahead(compilers, ladder_method, quantities, placed)
        recentres = isinstance(ladder_method, Anchored)
        prepared, search = recalled(book, placed, partial(_set_up, placed, anchor, recentres, workers))
        estimands = make_estimands(quantities, prepared.target, prepared.anchor, prepared.table.units)
        prepared = refine_precision(prepared, estimands, _fraction(kind, size))
        if isinstance(ladder_method, Anchored) and reads_slabs(gradient):
            prepared = with_listing(prepared, workers, hired.folder if stored is not None else None)
        problem = _first_problem(ladder_method, prepared, estimands, gradient, int(seed))
        _require_affordable(problem, budget, method)
        goal = resolve_tolerances(kind, size, estimands)
        run = Run(problem, estimands, workers, report, goal, budget, started=started, kept_bytes=kept)
        run.weak_order = WEAK_ORDER if prepared.anchor.has_mode else NECK_ORDER
        if book is not None:
            asked = {kind: dict(size) if isinstance(size, Mapping) else size, "interval": interval_tolerance}
            run.decisions = Kept(book, int(seed), json.dumps(asked, default=float))
        finished = _solve(method, run, prepared)
        if interval_tolerance is not None:
            finished = refine_ends(finished, prepared, interval_tolerance)
        finished.run.executor, finished.run.decisions = hired.executor, Unrecorded()
    settings = {
        "seed": int(seed),
        kind: dict(size) if isinstance(size, Mapping) else float(size),
        "precision": prepared.precision,
        "block_paths": BLOCK_PATHS,
        "versions": {name: version(name) for name in ("tallbayes", "jax", "jaxlib", "numpy")},
    }
    if interval_tolerance is not None:
        settings["interval_tolerance"] = float(interval_tolerance)
    result = _conclude(Question(method, prepared, settings, *search), finished)
    return answer_modes(result, search[0], prepared, asking)


def _check_intervals(tolerance: Any, keep_posterior: bool, method: Method) -> None:
    if tolerance is None:
        return
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float | np.number) or not tolerance > 0:
        raise InputError(explain("interval_tolerance > 0", repr(tolerance), "0.02, in posterior sds"))
    if not keep_posterior or isinstance(method, Randomised):
        got = "method=Randomised()" if keep_posterior else "keep_posterior=False"
        raise InputError(explain("a posterior that is kept, for its intervals", got, "interval_tolerance=None"))


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


def _compile_ahead(executor: Executor, method: Anchored, quantities: Any, placed: Placed) -> None:
    """Begin to compile the paths while the mode is being searched; what does not fit in the end is compiled anew."""
    target, table = placed.target, placed.table
    diagonal = target.dimension > DENSE_LIMIT
    observables = read_quantities(quantities, target, placed.start, table.units)[1]
    plan = _anchored_plan(method, target, observables, placed.precision, anchored_gradient(method, diagonal))
    for task in compile_ahead(plan, table, diagonal):
        executor.submit(task)


def _set_up(placed: Placed, anchor: Anchor | None, recentres: bool, executor: Executor) -> tuple[Prepared, Search]:
    """The centre of all paths, and what was found on the way to it."""
    prepared = find_centre(placed, anchor, executor)
    prepared, search = _searched(prepared, anchor is not None, executor)
    if recentres and anchor is None and prepared.anchor.has_mode:
        return _recentred(prepared, search, executor)
    return prepared, search


@dataclass(frozen=True, eq=False)
class Question:
    """What was asked, which an extension asks again."""

    method: Method
    prepared: Prepared
    settings: dict[str, Any]
    others: tuple[Peak, ...]
    notes: tuple[str, ...]


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


def _solve(method: Method, run: Run, prepared: Prepared) -> Finished:
    """Run the method to its end."""
    if isinstance(method, Multilevel):
        return Finished(run, *run_multilevel(run))
    seed, ladder_method = run.problem.seed, method.method if isinstance(method, Randomised) else method
    estimands = run.estimands
    units = prepared.table.units
    run.laplace = laplace_level(prepared.target, estimands.observables, prepared.anchor, estimands.jump, seed, units)
    rebuild = partial(_anchored_problem, ladder_method, prepared, run.estimands, seed)
    if isinstance(method, Anchored):
        return Finished(*run_anchored(ladder_method, run, rebuild))
    require_smooth(estimands)
    tuned, tuning = tune_anchored(ladder_method, run)
    randomised = prepare_randomised(tuned, method.fixed_levels)
    return Finished(tuned, *run_randomised(randomised), tuning, randomised)


def _conclude(question: Question, finished: Finished) -> Result:
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
    _check_intervals(interval_tolerance, run.kept_bytes > 0, question.method)
    if interval_tolerance is not None:
        settings["interval_tolerance"] = float(interval_tolerance)
    unknown = set(tolerances) - set(KINDS)
    if unknown:
        raise InputError(explain(f"one of {KINDS} or a budget", f"{sorted(unknown)}", "tolerance=0.005"))
    goal = run.tolerances
    if tolerances:
        kind, size = check_tolerances(tolerances)
        goal = resolve_tolerances(kind, size, run.estimands)
        _require_resolved(prepared, run.estimands, kind, size)
        recorded = dict(size) if isinstance(size, Mapping) else float(size)
        settings = {k: v for k, v in settings.items() if k not in KINDS} | {kind: recorded}
    with hire(executor, prepared.table) as hired, reporter(progress) as report:
        further = replace(
            run,
            problem=replace(run.problem, ground=replace(run.problem.ground, table=hired.table)),
            executor=hired.executor,
            report=report,
            tolerances=goal,
            budget=budget_within(max_evaluations, max_levels, max_seconds),
            levels=list(run.levels),
            started=time.monotonic(),
            kept_bytes=run.kept_bytes if interval_tolerance is None else MOST_BYTES,
        )
        if before.randomised is None:
            status, final = run_multilevel(further)
            finished = replace(before, run=further, status=status, final=final)
            if interval_tolerance is not None:
                finished = refine_ends(finished, prepared, interval_tolerance)
        else:
            randomised = replace(before.randomised, run=further, pilot_variance=None)
            status, final = run_randomised(randomised)
            finished = replace(before, run=further, status=status, final=final, randomised=randomised)
    return _conclude(replace(question, settings=settings), finished)


def _fraction(kind: str, size: Any) -> float:
    """The finest fraction of a posterior sd that is asked for; 1% where it is stated in other units."""
    if kind != "tolerance":
        return 0.01
    return float(min(size.values()) if isinstance(size, Mapping) else size)


def _require_resolved(prepared: Prepared, estimands: Estimands, kind: str, size: Any) -> None:
    if refine_precision(prepared, estimands, _fraction(kind, size)).precision != prepared.precision:
        raise InputError(
            explain(
                "a tolerance that the paths so far resolve",
                f"{kind}={size}, too fine for their float32",
                "tb.estimate(..., method=tb.Multilevel(precision='float64')) with this tolerance",
            )
        )


def _check_method(method: Any) -> Method:
    if method is None:
        return Anchored()
    if not isinstance(method, Multilevel | Anchored | Randomised):
        raise MethodError(explain("a method such as tb.Anchored() or tb.Multilevel(...)", repr(method), "method=None"))
    return method


def _first_problem(
    method: Multilevel | Anchored, prepared: Prepared, estimands: Estimands, gradient: GradientEstimator, seed: int
) -> Problem:
    if isinstance(method, Multilevel):
        resolved = resolve(method, gradient, prepared.anchor)
        parts = resolved.gradient, resolved.dynamics, resolved.coupling
        plan = Plan(prepared.target, *parts, estimands.observables, prepared.precision)
        return make_problem(plan, prepared.table, prepared.anchor, resolved.ladder, seed, estimands.pairs)
    chosen = anchored_gradient(method, prepared.anchor.likelihood_hessian is None)
    return _anchored_problem(method, prepared, estimands, seed, chosen)


def _anchored_plan(
    method: Anchored, target: Target, observables: Observables, precision: str, gradient: GradientEstimator
) -> Plan:
    """A batch that is read in slabs has its size as an argument, so the plan knows it as 1."""
    slabs = reads_slabs(gradient)
    known = replace(gradient, batch_size=1) if slabs else gradient  # type: ignore[type-var]
    parts = known, method.dynamics, method.coupling, observables, precision
    return Plan(target, *parts, laplace=True, slabs=slabs)


def _anchored_problem(
    method: Anchored, prepared: Prepared, estimands: Estimands, seed: int, gradient: GradientEstimator
) -> Problem:
    """Before tuning."""
    require_known_hessian(gradient, prepared.anchor)
    plan = _anchored_plan(method, prepared.target, estimands.observables, prepared.precision, gradient)
    slabs, batch_size = plan.slabs, gradient.batch_size or 0
    ladder = method.ladder or ladder_whitened()
    return make_problem(
        plan,
        prepared.table,
        prepared.anchor,
        ladder,
        seed,
        estimands.pairs,
        batch_size,
        prepared.listing if slabs else None,
    )


def _require_affordable(problem: Problem, budget: Budget, method: Method) -> None:
    least = 64 * problem.contraction_evaluations() + BLOCK_PATHS * problem.evaluations(0)
    if not isinstance(method, Multilevel):
        least += 64 * (problem.evaluations(0) + problem.evaluations(1))
    if isinstance(method, Randomised):
        least = 2 * least + pilot_evaluations(problem, method.fixed_levels)
    if budget.max_evaluations < least:
        raise InputError(
            explain(
                f"max_evaluations >= {least:,}, what the first look at this problem costs",
                f"{budget.max_evaluations:,}",
                "a larger budget, a smaller batch_size or a shorter ladder",
            )
        )
