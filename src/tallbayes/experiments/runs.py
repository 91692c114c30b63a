"""Many runs of the multilevel estimator on one problem: prepared once, then seed after seed.

`LiteralLadder` is the paper's own averaging window, kept here so that a reader can see what it does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from tallbayes.estimator.adaptive import run_multilevel
from tallbayes.estimator.estimands import Estimands, resolve_tolerances
from tallbayes.estimator.ladder import Ladder
from tallbayes.estimator.levels import sample_level
from tallbayes.estimator.run import Budget, Run
from tallbayes.experiments.problem import PaperRows, batch_size
from tallbayes.model import families
from tallbayes.moments import Moments, merge_all
from tallbayes.sampler.couplings import Antithetic
from tallbayes.sampler.dynamics import Euler
from tallbayes.sampler.gradients import Taylor
from tallbayes.sampler.levels import Problem, make_problem
from tallbayes.sampler.paths import Plan
from tallbayes.sampler.roles import Coupling, GradientEstimator
from tallbayes.setup.preparation import Prepared, check_data, prepare
from tallbayes.setup.quantities import make_estimands
from tallbayes.workers.executors import default_executor, in_order


@dataclass(frozen=True)
class LiteralLadder(Ladder):
    """The window as the paper's text has it, half of every path: p_l = s_l / 2."""

    def window(self, level: int) -> int:
        return self.steps(level) // 2


@dataclass(frozen=True, eq=False)
class Subject:
    """One problem with one method, ready to be sampled."""

    prepared: Prepared
    estimands: Estimands
    problem: Problem


def subject(
    rows: PaperRows, ladder: Ladder, gradient: GradientEstimator | None = None, coupling: Coupling | None = None
) -> Subject:
    """Logistic regression on these rows with g = |theta - theta_0|^2; antithetic Taylor unless told otherwise."""
    model = families.logistic(prior_scale=1.0)
    prepared = prepare(model, check_data(model, rows.data), "float32", shuffle=False, anchor=None)
    mode = prepared.anchor.mode
    estimands = make_estimands({"g": lambda theta: jnp.sum((theta - mode) ** 2)}, prepared.target, prepared.anchor)
    gradient = gradient or Taylor(batch_size(rows.num_rows))
    plan = Plan(prepared.target, gradient, Euler(), coupling or Antithetic(), estimands.observables, "float32")
    problem = make_problem(plan, prepared.table, prepared.anchor, ladder, seed=0, pairs=estimands.pairs)
    return Subject(prepared, estimands, problem)


def sample_levels(this: Subject, levels: list[int], paths: int) -> list[Moments]:
    """Moments of Delta_l for each level."""
    with default_executor() as executor:
        return [
            merge_all(
                block.delta
                for block in in_order(
                    executor,
                    sample_level,
                    ((this.problem, level, k) for k in range(-(-paths // this.problem.block_paths(level)))),
                    ahead=16,
                )
            )
            for level in levels
        ]


def repeat(this: Subject, relative_tolerance: float, seeds: range) -> list[dict[str, Any]]:
    """The adaptive estimator, once for every seed."""
    goal = resolve_tolerances("relative_tolerance", relative_tolerance, this.estimands)
    outcomes = []
    with default_executor() as executor:
        for seed in seeds:
            problem = replace(this.problem, seed=seed)
            run = Run(problem, this.estimands, executor, lambda _: None, goal, Budget(max_evaluations=1e9))
            status, final = run_multilevel(run)
            outcomes.append(
                {
                    "value": float(final.summary.value[0]),
                    "standard_error": float(final.standard_error[0]),
                    "bias_bound": float(final.bias_bound[0]),
                    "evaluations": int(run.evaluations),
                    "levels": len(run.levels),
                    "status": status.name,
                }
            )
    return outcomes
