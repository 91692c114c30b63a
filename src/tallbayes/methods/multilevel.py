"""The paper's method: what is left open is chosen from the anchor.

Taylor with n = N^(1/3) rows rounded up, h_0 = 0.5 / lambda_max and T_0 = dT = 2.5 / lambda_min, with lambda the
eigenvalues of the posterior's Hessian at the mode.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from tallbayes.estimator.adaptive import run_multilevel
from tallbayes.estimator.estimands import Estimands
from tallbayes.estimator.foresight import PILOT_PATHS
from tallbayes.estimator.ladder import Ladder
from tallbayes.estimator.levels import BLOCK_PATHS
from tallbayes.estimator.run import Run
from tallbayes.methods.ladders import ladder_at, ladder_whitened, require_known_hessian
from tallbayes.methods.method import Finished, Notes, check_parts, checked_gradient
from tallbayes.model.model import Target
from tallbayes.model.observables import Observables
from tallbayes.sampler.couplings import Antithetic
from tallbayes.sampler.dynamics import Euler
from tallbayes.sampler.gradients import Taylor
from tallbayes.sampler.levels import Problem, make_problem
from tallbayes.sampler.paths import Plan
from tallbayes.sampler.roles import Coupling, Dynamics, GradientEstimator
from tallbayes.setup.balancing import MODE
from tallbayes.setup.preparation import Placed, Prepared
from tallbayes.workers.executors import Executor


@dataclass(frozen=True)
class Multilevel:
    """The paper's multilevel stochastic-gradient Langevin method, in any of its variants.

    `precision` is the type of the paths, "float32" or "float64"; None decides by how finely the parameters
    and columns must be resolved.

    >>> method = Multilevel(gradient=Taylor(batch_size=10), ladder=Ladder(first_step=1e-3))
    """

    gradient: GradientEstimator | None = None
    dynamics: Dynamics = field(default_factory=Euler)
    coupling: Coupling = field(default_factory=Antithetic)
    ladder: Ladder | None = None
    precision: str | None = None

    def __post_init__(self) -> None:
        check_parts(self)

    @property
    def anchored(self) -> bool:
        return False

    @property
    def anchor(self) -> str | None:
        return MODE

    @property
    def keeps_posterior(self) -> bool:
        return True

    def gradient_for(self, num_rows: int) -> GradientEstimator:
        gradient = self.gradient or Taylor(batch_size=int(np.ceil(num_rows ** (1 / 3) - 1e-9)))
        return checked_gradient(gradient, self.coupling, num_rows)

    def plan(self, target: Target, observables: Observables, precision: str, num_rows: int, diagonal: bool) -> Plan:
        return Plan(target, self.gradient_for(num_rows), self.dynamics, self.coupling, observables, precision)

    def compile_ahead(self, executor: Executor, placed: Placed, observables: Observables, tolerance: float) -> None:
        """Nothing: its program is ready when the mode is."""

    def prepare(self, prepared: Prepared, executor: Executor, folder: Path | None, one_mode: bool) -> Prepared:
        return prepared

    def guided(self, prepared: Prepared, estimands: Estimands, seed: int, tolerance: float) -> Prepared:
        return prepared

    def problem(self, prepared: Prepared, estimands: Estimands, seed: int) -> Problem:
        table, anchor = prepared.table, prepared.anchor
        plan = self.plan(prepared.target, estimands.observables, prepared.precision, table.num_rows, False)
        require_known_hessian(plan.gradient, anchor)
        ladder = self.ladder or (ladder_whitened() if self.dynamics.whitened else ladder_at(anchor))
        return make_problem(plan, table, anchor, ladder, seed, estimands.pairs)

    def least_evaluations(self, problem: Problem) -> int:
        return PILOT_PATHS * problem.contraction_evaluations() + BLOCK_PATHS * problem.evaluations(0)

    def solve(self, run: Run, prepared: Prepared, notes: Notes) -> Finished:
        return Finished(run, *run_multilevel(run))

    def further(self, before: Finished, run: Run) -> Finished:
        status, final = run_multilevel(run)
        return replace(before, run=run, status=status, final=final)
