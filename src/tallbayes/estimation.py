"""The door: checks the input once, finds the mode, runs the method, and wraps up the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from typing import Any

import jax
import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.errors import DataError, InputError, MethodError, ModelError, explain
from tallbayes.executors import default_executor
from tallbayes.levels import BLOCK_PATHS, Problem, make_problem
from tallbayes.method import Multilevel, Resolved, describe, resolve, resolve_gradient
from tallbayes.minibatch import Blocks
from tallbayes.mode import expand, find_anchor
from tallbayes.model import Model, Target, bind, runs_in_float32
from tallbayes.multilevel import (
    Assessment,
    Budget,
    Run,
    consistency_scores,
    run_multilevel,
)
from tallbayes.paths import Plan
from tallbayes.progress import Report, reporter
from tallbayes.quantities import Estimands, make_estimands
from tallbayes.rates import cost_growth, mean_decay, variance_decay
from tallbayes.result import Cost, Estimate, Level, Rates, Result, Status
from tallbayes.roles import Executor
from tallbayes.table import Table, check_rows, make_table, needs_float64
from tallbayes.tolerances import KINDS, check_tolerances, resolve_tolerances

FLOAT32_ROUNDING = 2.0**-24


@dataclass(frozen=True, eq=False)
class Prepared:
    """A model with its rows, its mode and what is wanted of it: the set-up, done once."""

    target: Target
    table: Table
    anchor: Anchor
    setup_evaluations: int
    precision: str


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
    arrays = _check_data(model, data)
    gradient = resolve_gradient(method, len(jax.tree.leaves(arrays)[0]))
    shuffle = isinstance(gradient.sampling, Blocks) and gradient.batch_size is not None
    prepared = _prepare(model, arrays, method.precision, shuffle, anchor)
    estimands = make_estimands(quantities, prepared.target, prepared.anchor)
    fraction = min(size.values()) if isinstance(size, Mapping) else size
    prepared = _refine_precision(prepared, estimands, method.precision, fraction if kind == "tolerance" else 0.01)
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
            seconds=time.monotonic() - run.started,
        ),
        contraction=run.contraction,
        anchor=prepared.anchor,
        method=method,
        settings=settings,
        continuation=partial(_extend, run, prepared, method, settings),
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


def _check_data(model: Model, data: Any) -> Any:
    if not isinstance(model, Model):
        raise ModelError(explain("a tb.Model", type(model).__name__, "tb.Model(log_prior, log_likelihood, initial)"))
    arrays = check_rows(data)
    return model.check(arrays) if model.check is not None else arrays


def _prepare(model: Model, arrays: Any, precision: str | None, shuffle: bool, anchor: Anchor | None) -> Prepared:
    row = jax.tree.map(lambda array: array[0], arrays)
    target, start = bind(model, row)
    if precision is None:
        precision = "float64" if needs_float64(arrays) or not runs_in_float32(target, row) else "float32"
    table = make_table(arrays, precision, shuffle)
    if anchor is None:
        anchor = find_anchor(target, table, start)
        return Prepared(target, table, anchor, anchor.passes * table.num_rows, precision)
    if not isinstance(anchor, Anchor):
        raise InputError(explain("anchor=result.anchor of an earlier run", type(anchor).__name__, "anchor=None"))
    if anchor.mode.shape != start.shape or anchor.num_rows != table.num_rows:
        raise DataError(
            explain(
                f"an anchor of {start.size} parameters and {table.num_rows} rows",
                f"{anchor.mode.size} parameters and {anchor.num_rows} rows",
                "anchor=None to find the mode anew",
            )
        )
    here = expand(target, table, anchor.mode)
    gradient = np.linalg.solve(anchor.factor, here.gradient)
    curvature = np.linalg.solve(anchor.factor, np.linalg.solve(anchor.factor, here.hessian).T) - np.eye(start.size)
    apart = max(np.abs(gradient).max(), np.abs(curvature).max())
    if not apart < 0.01:
        raise DataError(
            explain(
                "an anchor of this model and these rows",
                f"one that is off by {apart:.2g} posterior sds",
                "anchor=None to find the mode anew",
            )
        )
    return Prepared(target, table, anchor, table.num_rows, precision)


def _refine_precision(prepared: Prepared, estimands: Estimands, precision: str | None, fraction: float) -> Prepared:
    """Go to float64 where theta_0 + v in float32 would blur v by a tenth of the tolerance."""
    moves_alone = prepared.target.predictor is not None and not estimands.observables.functions
    if precision is not None or prepared.precision == "float64" or moves_alone:
        return prepared
    blur = FLOAT32_ROUNDING * np.max(np.abs(prepared.anchor.mode) / prepared.anchor.sd)
    if blur <= 0.1 * fraction:
        return prepared
    return replace(prepared, table=prepared.table.widened(), precision="float64")


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
