"""The unbiased method: the levels of another one, with a random tail; see `estimator.randomised`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

from tallbayes.errors import MethodError, explain
from tallbayes.estimator.estimands import Estimands
from tallbayes.estimator.randomised import pilot_evaluations, prepare_randomised, require_smooth, run_randomised
from tallbayes.estimator.run import Run
from tallbayes.methods.anchored import Anchored, with_gaussian
from tallbayes.methods.attempts import tune_once
from tallbayes.methods.method import Finished, Notes
from tallbayes.model.model import Target
from tallbayes.model.observables import Observables
from tallbayes.sampler.levels import Problem
from tallbayes.sampler.paths import Plan
from tallbayes.sampler.roles import GradientEstimator
from tallbayes.setup.preparation import Placed, Prepared
from tallbayes.workers.executors import Executor


@dataclass(frozen=True)
class Randomised:
    """Unbiased: low levels in fixed numbers, the levels above drawn at random, over the levels of `method`.

    No bias is left that sampling could see: the interval has no bias term.

    >>> method = Randomised(Anchored())
    """

    method: Anchored = field(default_factory=Anchored)
    fixed_levels: int = 3

    def __post_init__(self) -> None:
        if not isinstance(self.method, Anchored):
            raise MethodError(explain("tb.Anchored(...) inside", repr(self.method), "tb.Randomised(tb.Anchored())"))
        if self.method.coupling.variance_rate <= 1:
            raise MethodError(
                explain(
                    "a coupling whose variance falls faster than its cost grows (beta > gamma = 1)",
                    f"{self.method.coupling!r}, with beta = {self.method.coupling.variance_rate:g}",
                    "tb.Antithetic()",
                )
            )
        whole = isinstance(self.fixed_levels, int) and not isinstance(self.fixed_levels, bool)
        if not whole or not 1 <= self.fixed_levels <= 8:
            raise MethodError(explain("fixed_levels 1..8", repr(self.fixed_levels), "3"))

    @property
    def precision(self) -> str | None:
        return self.method.precision

    @property
    def anchored(self) -> bool:
        return True

    @property
    def anchor(self) -> str | None:
        return self.method.anchor

    @property
    def keeps_posterior(self) -> bool:
        """With a random tail the weights of its paths are not kept."""
        return False

    def gradient_for(self, num_rows: int) -> GradientEstimator:
        return self.method.gradient_for(num_rows)

    def plan(self, target: Target, observables: Observables, precision: str, num_rows: int, diagonal: bool) -> Plan:
        return self.method.plan(target, observables, precision, num_rows, diagonal)

    def compile_ahead(self, executor: Executor, placed: Placed, observables: Observables, tolerance: float) -> None:
        self.method.compile_ahead(executor, placed, observables, tolerance)

    def prepare(self, prepared: Prepared, executor: Executor, folder: Path | None, one_mode: bool) -> Prepared:
        return self.method.prepare(prepared, executor, folder, one_mode)

    def guided(self, prepared: Prepared, estimands: Estimands, seed: int, tolerance: float) -> Prepared:
        return prepared

    def problem(self, prepared: Prepared, estimands: Estimands, seed: int) -> Problem:
        return self.method.problem(prepared, estimands, seed)

    def least_evaluations(self, problem: Problem) -> int:
        return 2 * self.method.least_evaluations(problem) + pilot_evaluations(problem, self.fixed_levels)

    def solve(self, run: Run, prepared: Prepared, notes: Notes) -> Finished:
        with_gaussian(run, prepared, notes)
        require_smooth(run.estimands)
        tuned, tuning = tune_once(run, self.method.choices(run.problem.largest_batch))
        notes.evaluations = tuned.evaluations
        randomised = prepare_randomised(tuned, self.fixed_levels)
        return Finished(tuned, *run_randomised(randomised), tuning, randomised)

    def further(self, before: Finished, run: Run) -> Finished:
        """Where not every level has been sampled yet, the pilots still say how often."""
        assert before.randomised is not None
        whole = before.randomised.tail.drawn is not None
        pilots = None if whole else before.randomised.pilot_variance
        randomised = replace(before.randomised, run=run, pilot_variance=pilots)
        status, final = run_randomised(randomised)
        return replace(before, run=run, status=status, final=final, randomised=randomised)


Randomized = Randomised
