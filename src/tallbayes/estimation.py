"""The door: checks the input once, finds the mode, runs the method, and wraps up the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.errors import InputError, MethodError, explain
from tallbayes.executors import default_executor
from tallbayes.levels import BLOCK_PATHS, Problem, make_problem
from tallbayes.method import Multilevel, Resolved, describe, resolve, resolve_gradient
from tallbayes.model import Model
from tallbayes.multilevel import (
    Assessment,
    Budget,
    Run,
    consistency_scores,
    run_multilevel,
)
from tallbayes.paths import Plan
from tallbayes.preparation import Prepared, check_data, prepare, refine_precision
from tallbayes.progress import Report, reporter
from tallbayes.quantities import Estimands, make_estimands
from tallbayes.rates import cost_growth, mean_decay, variance_decay
from tallbayes.result import Cost, Estimate, Level, Rates, Result, Status
from tallbayes.roles import Executor
from tallbayes.tolerances import KINDS, check_tolerances, resolve_tolerances


def estimate(
    model: Model,
    data: Any,
    quantities: Mapping[str, Callable[[Any], Any]] | Sequence[str] | None = None,
    *,
    tolerance: float | Mapping[str, float] | None = None,
    relative_tolerance: float | Mapping[str, float] | None = None,
    absolute_tolerance: float | Mapping[str, float] | None = None,
    method: Multilevel | None = None,
    seed: int = 0,
    anchor: Anchor | None = None,
    executor: Executor | None = None,
    max_evaluations: float | None = None,
    max_levels: int | None = None,
    max_seconds: float | None = None,
    progress: bool | Report | None = None,
) -> Result:
    """Posterior expectations of `quantities`, each to the prescribed RMSE.

    `data` is a pytree of arrays that share a leading axis; `quantities` maps names to functions of theta
    ("mean" and "sd" of every parameter by default). Exactly one tolerance is given, for all quantities or by
    name. Bad input raises; trouble at run time is told by `result.status`.

    >>> import numpy as np, tallbayes as tb
    >>> y = np.random.default_rng(0).normal(1.0, 1.0, 50)
    >>> rows = {"x": np.ones((50, 1)), "y": y}
    >>> result = tb.estimate(tb.families.linear(noise_scale=1.0), rows, tolerance=0.2)
    >>> result.converged
    True
    """
    started = time.monotonic()
    kind, size = check_tolerances(dict(zip(KINDS, (tolerance, relative_tolerance, absolute_tolerance), strict=True)))
    method = _check_method(method)
    budget = _budget(Budget(), max_evaluations, max_levels, max_seconds)
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or not 0 <= seed < 2**64:
        raise InputError(explain("seed a whole number in 0..2^64-1", repr(seed), "seed=0"))
    arrays = check_data(model, data)
    gradient = resolve_gradient(method, len(jax.tree.leaves(arrays)[0]))
    shuffle = gradient.batch_size is not None and gradient.sampling.reads_neighbours
    prepared = prepare(model, arrays, method.precision, shuffle, anchor)
    estimands = make_estimands(quantities, prepared.target, prepared.anchor)
    prepared = refine_precision(prepared, estimands, _fraction(kind, size))
    resolved = resolve(method, gradient, prepared.anchor)
    problem = _problem(prepared, estimands, resolved, int(seed))
    _require_affordable(problem, budget)
    settings = {
        "seed": int(seed),
        kind: dict(size) if isinstance(size, Mapping) else float(size),
        "precision": prepared.precision,
        "block_paths": BLOCK_PATHS,
        "versions": {name: version(name) for name in ("tallbayes", "jax", "jaxlib", "numpy")},
    }
    context = default_executor() if executor is None else nullcontext(executor)
    with context as workers, reporter(progress) as report:
        run = Run(
            problem,
            estimands,
            workers,
            report,
            resolve_tolerances(kind, size, estimands),
            budget,
            started=started,
        )
        status, final = run_multilevel(run)
    return _wrap_up(run, status, final, prepared, describe(resolved), settings)


def _wrap_up(
    run: Run,
    status: Status,
    final: Assessment,
    prepared: Prepared,
    method: str,
    settings: dict[str, Any],
) -> Result:
    estimands = run.estimands
    columns = estimands.split
    parts = zip(
        estimands.quantities,
        columns(final.summary.value).values(),
        columns(final.standard_error).values(),
        columns(final.bias_bound).values(),
        columns(final.freedom).values(),
        columns(final.tolerance).values(),
        strict=True,
    )
    assert run.contraction is not None
    seconds = run.seconds_before + time.monotonic() - run.started
    return Result(
        estimates={q.name: Estimate(q.name, q.structure, *arrays) for q, *arrays in parts},
        status=status,
        levels=_levels(run, final),
        rates=_rates(run, final),
        cost=Cost(
            evaluations=run.evaluations,
            setup_evaluations=prepared.setup_evaluations,
            speculative_evaluations=0,
            num_data=prepared.table.num_rows,
            seconds=seconds,
        ),
        contraction=run.contraction,
        anchor=prepared.anchor,
        method=method,
        settings=settings,
        continuation=partial(_extend, replace(run, seconds_before=seconds), prepared, method, settings),
    )


def _extend(
    run: Run,
    prepared: Prepared,
    method: str,
    settings: dict[str, Any],
    *,
    max_evaluations: float | None = None,
    max_levels: int | None = None,
    max_seconds: float | None = None,
    executor: Executor | None = None,
    progress: bool | Report | None = None,
    **tolerances: Any,
) -> Result:
    """Continue with another tolerance or budget on a copy of the levels; the old result stays as it was."""
    unknown = set(tolerances) - set(KINDS)
    if unknown:
        raise InputError(explain(f"one of {KINDS} or a budget", f"{sorted(unknown)}", "tolerance=0.005"))
    goal = run.tolerances
    settings = dict(settings)
    if tolerances:
        kind, size = check_tolerances(tolerances)
        goal = resolve_tolerances(kind, size, run.estimands)
        _require_resolved(prepared, run.estimands, kind, size)
        recorded = dict(size) if isinstance(size, Mapping) else float(size)
        settings = {k: v for k, v in settings.items() if k not in KINDS} | {kind: recorded}
    context = default_executor() if executor is None else nullcontext(executor)
    with context as workers, reporter(progress) as report:
        further = replace(
            run,
            executor=workers,
            report=report,
            tolerances=goal,
            budget=_budget(Budget(), max_evaluations, max_levels, max_seconds),
            levels=list(run.levels),
            started=time.monotonic(),
        )
        status, final = run_multilevel(further)
    return _wrap_up(further, status, final, prepared, method, settings)


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


def _levels(run: Run, final: Assessment) -> tuple[Level, ...]:
    split, summary = run.estimands.split, final.summary
    nothing = np.full_like(summary.value, np.nan)
    with np.errstate(invalid="ignore"):
        scores = consistency_scores(run) if len(run.levels) > 1 else nothing[None]
    return tuple(
        Level(
            step=run.problem.ladder.step(l),
            time=run.problem.ladder.time(l),
            samples=level.samples,
            evaluations=level.samples * run.problem.evaluations(l),
            mean=split(summary.mean[l]),
            variance=split(summary.variance[l]),
            kurtosis=split(summary.kurtosis[l]),
            consistency=split(scores[l - 1] if l else nothing),
        )
        for l, level in enumerate(run.levels)
    )


@np.errstate(invalid="ignore", over="ignore")
def _rates(run: Run, final: Assessment) -> Rates:
    split, summary = run.estimands.split, final.summary
    error = np.sqrt(final.variance / run.samples[:, None])
    mean, variance, kurtosis = split(summary.mean), split(summary.variance), split(summary.kurtosis)
    unit, errors = split(final.tolerance), split(error)
    names = [quantity.name for quantity in run.estimands.quantities]
    gamma = cost_growth(run.costs)
    return Rates(
        alpha={n: mean_decay(mean[n], errors[n], unit[n]).value for n in names},
        beta={n: variance_decay(variance[n], kurtosis[n], run.samples, unit[n]).value for n in names},
        gamma=dict.fromkeys(names, gamma),
    )


def _check_method(method: Any) -> Multilevel:
    if method is None:
        return Multilevel()
    if not isinstance(method, Multilevel):
        raise MethodError(explain("a method such as tb.Multilevel(...)", repr(method), "method=None"))
    return method


def _problem(prepared: Prepared, estimands: Estimands, resolved: Resolved, seed: int) -> Problem:
    plan = Plan(
        prepared.target,
        resolved.gradient,
        resolved.dynamics,
        resolved.coupling,
        estimands.observables,
        prepared.precision,
    )
    return make_problem(plan, prepared.table, prepared.anchor, resolved.ladder, seed, estimands.pairs)


def _budget(
    default: Budget, max_evaluations: float | None, max_levels: int | None, max_seconds: float | None
) -> Budget:
    given = {
        "max_evaluations": max_evaluations,
        "max_levels": max_levels,
        "max_seconds": max_seconds,
    }
    present = {name: value for name, value in given.items() if value is not None}
    for name, value in present.items():
        whole = name == "max_levels"
        number = isinstance(value, int | np.integer if whole else int | float | np.number)
        if isinstance(value, bool) or not number or not value > (2 if whole else 0):
            what = f"{name} a whole number > 2" if whole else f"{name} > 0"
            raise InputError(explain(what, repr(value), "None for the default"))
    return replace(default, **present)  # type: ignore[arg-type]


def _require_affordable(problem: Problem, budget: Budget) -> None:
    least = 64 * problem.contraction_evaluations() + BLOCK_PATHS * problem.evaluations(0)
    if budget.max_evaluations < least:
        raise InputError(
            explain(
                f"max_evaluations >= {least:,}, what the first look at this problem costs",
                f"{budget.max_evaluations:,}",
                "a larger budget, a smaller batch_size or a shorter ladder",
            )
        )
