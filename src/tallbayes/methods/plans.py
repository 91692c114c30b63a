"""Plans: a method and a set-up, to the problem that blocks of paths are samples of; before tuning.

Checks what it costs at the least, and has its programs compiled while the mode is still being searched.
"""

from __future__ import annotations

from contextvars import Context
from dataclasses import replace

from tallbayes.anchor.mode import DENSE_LIMIT
from tallbayes.errors import InputError, explain
from tallbayes.estimator.estimands import Estimands
from tallbayes.estimator.randomised import pilot_evaluations
from tallbayes.estimator.run import Budget
from tallbayes.methods.attempts import anchored_gradient, reads_slabs
from tallbayes.methods.parts import (
    Anchored,
    Method,
    Multilevel,
    Randomised,
    ladder_whitened,
    require_known_hessian,
    resolve,
)
from tallbayes.model.model import Target
from tallbayes.model.observables import Observables
from tallbayes.sampler.levels import BLOCK_PATHS, Problem, compile_ahead, make_problem
from tallbayes.sampler.paths import Plan
from tallbayes.sampler.roles import GradientEstimator
from tallbayes.setup.preparation import Placed, Prepared
from tallbayes.workers.executors import Executor


def compile_programs(executor: Executor, method: Anchored, observables: Observables, placed: Placed) -> None:
    """Begin to compile the paths while the mode is being searched; what does not fit in the end is compiled anew."""
    target, table = placed.target, placed.table
    diagonal = target.dimension > DENSE_LIMIT
    plan = _anchored_plan(method, target, observables, placed.precision, anchored_gradient(method, diagonal))
    for task in compile_ahead(plan, table, diagonal):
        # Under no watch: nobody waits for it before it is needed.
        Context().run(executor.submit, task)


def first_problem(
    method: Multilevel | Anchored, prepared: Prepared, estimands: Estimands, gradient: GradientEstimator, seed: int
) -> Problem:
    if isinstance(method, Multilevel):
        resolved = resolve(method, gradient, prepared.anchor)
        parts = resolved.gradient, resolved.dynamics, resolved.coupling
        plan = Plan(prepared.target, *parts, estimands.observables, prepared.precision)
        return make_problem(plan, prepared.table, prepared.anchor, resolved.ladder, seed, estimands.pairs)
    chosen = anchored_gradient(method, prepared.anchor.likelihood_hessian is None)
    return anchored_problem(method, prepared, estimands, seed, chosen)


def _anchored_plan(
    method: Anchored, target: Target, observables: Observables, precision: str, gradient: GradientEstimator
) -> Plan:
    """A batch that is read in slabs has its size as an argument, so the plan knows it as 1."""
    slabs = reads_slabs(gradient)
    known = replace(gradient, batch_size=1) if slabs else gradient  # type: ignore[type-var]
    parts = known, method.dynamics, method.coupling, observables, precision
    return Plan(target, *parts, laplace=True, slabs=slabs)


def anchored_problem(
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


def require_affordable(problem: Problem, budget: Budget, method: Method) -> None:
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
