"""The role of a method: how levels are planned, tuned, run, extended and recorded.

    plan        the compiled program, before there is an anchor
    prepare     what set-up it wants beyond the mode
    problem     the levels that are sampled, before tuning
    solve       from a run without samples to one that has ended
    further     from one that has ended to another tolerance or budget

A method is a frozen value. `estimation` walks through these in their order and knows no method by name: a new one is a
file here, and a line in `tallbayes.__init__`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from tallbayes.anchor.mode import curvature_of
from tallbayes.anchor.sums import Curvature
from tallbayes.errors import MethodError, explain
from tallbayes.estimator.decisions import Tuning
from tallbayes.estimator.estimands import Estimands, GaussianLevel
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.randomised import RandomisedRun, tail_states
from tallbayes.estimator.run import Assessment, LevelState, Run
from tallbayes.model.model import Target
from tallbayes.model.observables import Observables
from tallbayes.sampler.levels import Problem, problem_nowhere
from tallbayes.sampler.paths import Plan
from tallbayes.sampler.roles import GradientEstimator
from tallbayes.setup.preparation import Placed, Prepared
from tallbayes.workers.executors import Executor

_PARTS = {
    "gradient": (("batch_size", "sampling", "controls"), "tb.Taylor(batch_size=10)"),
    "dynamics": (("whitened", "coefficients", "step", "merge_noise", "strain"), "tb.Euler()"),
    "coupling": (("num_coarse", "variance_rate", "num_indices", "coarse_batches", "check"), "tb.Antithetic()"),
    "ladder": (("first_step", "start_steps", "added_steps", "window_steps"), "tb.Ladder(first_step=1e-3)"),
}


@dataclass(frozen=True, eq=False)
class Finished:
    """A run that has ended; `randomised` holds the tail of an unbiased one."""

    run: Run
    status: Status
    final: Assessment
    tuning: Tuning | None = None
    randomised: RandomisedRun | None = None

    @property
    def levels(self) -> list[LevelState]:
        return [*self.run.levels, *(tail_states(self.randomised.tail) if self.randomised is not None else [])]


class Notes(Protocol):
    """Where a method puts down what it has found, in case that it has to end before its first paths."""

    laplace: GaussianLevel | None
    evaluations: int


class Method(Protocol):
    """Anything with these members can take the part."""

    @property
    def precision(self) -> str | None:
        """The type of the paths, or None to have it chosen."""
        ...

    @property
    def anchored(self) -> bool:
        """Whether its paths begin in the anchor's Gaussian, which is then put where the mass is."""
        ...

    @property
    def anchor(self) -> str | None:
        """Which anchor they begin in: "mode", "balanced", or None to have it decided."""
        ...

    @property
    def keeps_posterior(self) -> bool:
        """Whether its paths are a signed ensemble that can be asked afterwards."""
        ...

    def gradient_for(self, num_rows: int) -> GradientEstimator:
        """The gradient, checked against the number of rows and against the coupling."""
        ...

    def plan(self, target: Target, observables: Observables, precision: str, num_rows: int, diagonal: bool) -> Plan:
        """The program of its levels; `diagonal` where the Hessian is too large to be kept."""
        ...

    def compile_ahead(self, executor: Executor, placed: Placed, observables: Observables, tolerance: float) -> None:
        """Begin to compile its programs while the mode is being searched; the tolerance is the finest, in posterior
        sds."""
        ...

    def prepare(self, prepared: Prepared, executor: Executor, folder: Path | None, one_mode: bool) -> Prepared:
        """The set-up with what it wants beyond the mode; `one_mode` where nothing is known of others."""
        ...

    def guided(self, prepared: Prepared, estimands: Estimands, seed: int, tolerance: float) -> Prepared:
        """With a control whose means are drawn, where it has one."""
        ...

    def problem(self, prepared: Prepared, estimands: Estimands, seed: int) -> Problem:
        """Its levels, before tuning."""
        ...

    def least_evaluations(self, problem: Problem) -> int:
        """Row gradients that a first look takes."""
        ...

    def solve(self, run: Run, prepared: Prepared, notes: Notes) -> Finished:
        """To the end."""
        ...

    def further(self, before: Finished, run: Run) -> Finished:
        """From there to the end of another question: `run` has the levels so far."""
        ...


_MEMBERS = ("precision", "anchored", "anchor", "keeps_posterior", "gradient_for", "plan", "problem", "solve", "further")


def check_method(method: Any, default: type) -> Method:
    if method is None:
        return default()
    if isinstance(method, type) or not all(hasattr(method, name) for name in _MEMBERS):
        raise MethodError(explain("a method such as tb.Anchored() or tb.Multilevel(...)", repr(method), "method=None"))
    return method


def check_parts(method: Any) -> None:
    """What a method is composed of, at its making."""
    for role, (members, example) in _PARTS.items():
        part = getattr(method, role)
        if part is not None and (isinstance(part, type) or not all(hasattr(part, name) for name in members)):
            raise MethodError(explain(f"a {role} with {', '.join(members)}", repr(part), f"{role}={example}"))
    if method.precision not in (None, "float32", "float64"):
        raise MethodError(explain('precision "float32" or "float64"', repr(method.precision), "None to decide"))


def checked_gradient(gradient: GradientEstimator, coupling: Any, num_rows: int) -> GradientEstimator:
    if gradient.batch_size is not None:
        gradient.sampling.check(gradient.batch_size, num_rows)
        coupling.check(gradient.sampling)
    return gradient


def identity_of(method: Method, placed: Placed, observables: Observables) -> str:
    """What a ledger knows a method by: its words, and the program where parts of it are not ours."""
    named = repr(method).replace("tallbayes.sampler.gradients.", "tallbayes.gradients.")
    curvature = curvature_of(placed.target, placed.start)
    diagonal, arrow = curvature is Curvature.NONE, ", arrow" if curvature is Curvature.ARROW else ""
    plan = method.plan(placed.target, observables, placed.precision, placed.table.num_rows, diagonal)
    content = problem_nowhere(plan, placed.table, curvature).ground.content
    return f"{named}, {placed.precision}{arrow}{content}"


def describe(method: Method, problem: Problem) -> str:
    """The method with nothing left open."""
    plan, gradient = problem.plan, problem.plan.gradient
    if plan.slabs:
        gradient = replace(gradient, batch_size=problem.rows_per_gradient)  # type: ignore[type-var]
    parts = gradient, plan.dynamics, plan.coupling, problem.ladder
    return f"{type(method).__name__}(" + ", ".join(map(repr, parts)) + ")"
