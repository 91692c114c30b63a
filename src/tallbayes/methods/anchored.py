"""The default method: the ladder anchored to a Gaussian, tuned by pilots; see `estimator.tuning` and `attempts`."""

from __future__ import annotations

from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.gaussian_level import laplace_level
from tallbayes.anchor.mode import curvature_of
from tallbayes.anchor.sums import Curvature
from tallbayes.errors import MethodError, explain
from tallbayes.estimator.adaptive import run_multilevel
from tallbayes.estimator.estimands import Estimands
from tallbayes.estimator.foresight import PILOT_PATHS
from tallbayes.estimator.ladder import BATCH_FACTOR, FIRST_STEPS, WINDOWS, Choices, Ladder, batch_sizes_up_to
from tallbayes.estimator.levels import BLOCK_PATHS
from tallbayes.estimator.run import Run
from tallbayes.methods.attempts import run_attempts
from tallbayes.methods.ladders import ladder_whitened, require_known_hessian
from tallbayes.methods.method import Finished, Notes, check_parts, checked_gradient
from tallbayes.model.model import Target
from tallbayes.model.observables import Observables
from tallbayes.sampler.control import follows
from tallbayes.sampler.couplings import Antithetic
from tallbayes.sampler.dynamics import Exponential
from tallbayes.sampler.gradients import ControlVariate, Taylor
from tallbayes.sampler.levels import Problem, compile_ahead, make_problem
from tallbayes.sampler.minibatch import Blocks
from tallbayes.sampler.paths import Plan
from tallbayes.sampler.roles import Coupling, Dynamics, GradientEstimator
from tallbayes.setup.balancing import BALANCED, MODE, Wish, likely_controlled
from tallbayes.setup.guide import Guide, MeanGuide, guided_level
from tallbayes.setup.preparation import Placed, Prepared, with_listing, with_probe
from tallbayes.setup.quantities import touched_by
from tallbayes.setup.tail_variances import tails_of
from tallbayes.watch import aside, begin, look
from tallbayes.workers.executors import Executor

MOST_WINDOW = 256
# Pairs of a guide: rows of each, the first and the most of them, and the share of the variance that a tolerance allows.
GUIDE_ROWS, FIRST_PAIRS, MOST_PAIRS, GUIDE_SHARE = 4, 2**10, 2**13, 0.3
# Of thousands of parameters a pair reads as many rows as its products with W take time.
FIRST_LONG_PAIRS = 2**8


@dataclass(frozen=True)
class Anchored:
    """The ladder anchored to Laplace's approximation: whitened, exponential steps, a Laplace level.

    What is None is tuned by pilots, piece by piece: the gradient (Taylor, and Blend where that does not settle), its
    `batch_size` n, the `first_step` h_0, the `time` dT, and the `window`, for how many times dT paths go on and are
    averaged (0: their end points are read); or the whole `ladder`. Steps and times are in units of the contraction at
    the mode. `anchor` is the Gaussian that they run about: that at the "mode" (Laplace's), or the "balanced" one, which
    is right on average; None takes whichever is foreseen to be cheaper. Neither biases anything. With a `control`
    what the paths do in first order is taken off, with its exact mean; None does so about an anchor where that is
    known, and where it pays. With Kinetic() as `dynamics` paths have a velocity, and take fewer steps where the
    posterior is far from Gaussian.

    >>> method = Anchored(first_step=0.25)
    """

    gradient: GradientEstimator | None = None
    ladder: Ladder | None = None
    batch_size: int | None = None
    first_step: float | None = None
    time: float | None = None
    window: int | None = None
    dynamics: Dynamics = field(default_factory=Exponential)
    coupling: Coupling = field(default_factory=Antithetic)
    precision: str | None = None
    anchor: str | None = None
    control: bool | None = None

    def __post_init__(self) -> None:
        check_parts(self)
        if self.anchor not in (None, MODE, BALANCED):
            hint = "None to have it decided"
            raise MethodError(explain(f'anchor "{MODE}" or "{BALANCED}"', repr(self.anchor), hint))
        if self.control not in (None, True, False):
            raise MethodError(explain("control True or False", repr(self.control), "None to have it decided"))
        if not self.dynamics.whitened:
            raise MethodError(explain("whitened dynamics", repr(self.dynamics), "tb.Exponential(), or tb.Multilevel"))
        if self.gradient is not None and self.batch_size is not None:
            raise MethodError(
                explain(
                    "batch_size or a gradient that has one", "both", "tb.Anchored(gradient=tb.Taylor(8, tb.Blocks()))"
                )
            )
        if self.ladder is not None and any(each is not None for each in (self.first_step, self.time, self.window)):
            hint = "tb.Anchored(first_step=0.25)"
            raise MethodError(explain("a ladder, or first_step, time and window", "both", hint))
        if self.batch_size is not None:
            Taylor(self.batch_size)
        for name in ("first_step", "time"):
            value = getattr(self, name)
            if value is not None and not 0 < value < np.inf:
                raise MethodError(explain(f"{name} > 0", repr(value), "None to have it tuned"))
        if self.window is not None:
            _require_window(self.window)

    @property
    def anchored(self) -> bool:
        return True

    @property
    def keeps_posterior(self) -> bool:
        return True

    def gradient_for(self, num_rows: int) -> GradientEstimator:
        return checked_gradient(self._gradient(False), self.coupling, num_rows)

    def _gradient(self, diagonal: bool) -> GradientEstimator:
        """Taylor, or ControlVariate where the Hessian is too large to be kept."""
        if self.gradient is not None:
            return self.gradient
        size = self.batch_size or 1
        return ControlVariate(size, Blocks()) if diagonal else Taylor(size, Blocks())

    def plan(self, target: Target, observables: Observables, precision: str, num_rows: int, diagonal: bool) -> Plan:
        """A batch that is read in slabs has its size as an argument, so the plan knows it as 1."""
        gradient = self._gradient(diagonal)
        slabs = reads_slabs(gradient)
        known = replace(gradient, batch_size=1) if slabs else gradient  # type: ignore[type-var]
        return Plan(target, known, self.dynamics, self.coupling, observables, precision, laplace=True, slabs=slabs)

    def compile_ahead(self, executor: Executor, placed: Placed, observables: Observables, tolerance: float) -> None:
        """What does not fit in the end is compiled anew."""
        table, curvature = placed.table, curvature_of(placed.target, placed.start)
        if curvature is Curvature.WIDE:
            # Its arguments alone take hundreds of megabytes, and its compiler no part worth speaking of.
            return
        plan = self.plan(placed.target, observables, placed.precision, table.num_rows, curvature is Curvature.NONE)
        likely = likely_controlled(placed.target, table.num_rows, Wish(self.anchor, tolerance))
        if likely and curvature is Curvature.DENSE and follows(self.dynamics) and self.control is not False:
            plan = replace(plan, control=True)
        for task in compile_ahead(plan, table, curvature):
            # Under no watch: nobody waits for it before it is needed.
            Context().run(executor.submit, task)

    def prepare(self, prepared: Prepared, executor: Executor, folder: Path | None, one_mode: bool) -> Prepared:
        """Rows that matter more listed, and the tails probed, where that is not done; what a probe saw of another mode
        would be no tail."""
        if prepared.listing is None and reads_slabs(self._gradient(False)):
            begin("rows that matter")
            prepared = aside(with_listing, prepared, executor, folder)
        if one_mode and prepared.probe is None:
            begin("tails")
            prepared = aside(with_probe, prepared, executor)
        return prepared

    def guided(self, prepared: Prepared, estimands: Estimands, seed: int, tolerance: float) -> Prepared:
        """With a control whose means are estimated, where they are not known and can be well enough: all of them, or
        of thousands of parameters those of the means."""
        anchor, target = prepared.anchor, prepared.target
        means = anchor.is_wide and estimands.observables.moments and target.reports_itself
        neither = not means and anchor.likelihood_hessian is None
        if neither or anchor.knows_control or not follows(self.dynamics) or self.control is False:
            return prepared
        problem = replace(self, control=None).problem(prepared, estimands, seed)
        if not problem.plan.slabs:
            return prepared
        begin("control")
        rows = GUIDE_ROWS
        if means:
            rows = min(
                BATCH_FACTOR ** round(np.log(problem.step_overhead) / np.log(BATCH_FACTOR)), problem.largest_batch
            )
        found, enough = aside(_guide_of, problem.with_choice(problem.ladder, rows), anchor, tolerance)
        prepared = replace(prepared, setup_evaluations=prepared.setup_evaluations + found.rows_read)
        return replace(prepared, anchor=found.known_by(anchor), guide=found) if enough else prepared

    def problem(self, prepared: Prepared, estimands: Estimands, seed: int) -> Problem:
        table, anchor = prepared.table, prepared.anchor
        diagonal = anchor.is_partial
        gradient = self._gradient(diagonal)
        require_known_hessian(gradient, anchor)
        plan = self.plan(prepared.target, estimands.observables, prepared.precision, table.num_rows, diagonal)
        plan = replace(plan, control=self._controls(anchor))
        return make_problem(
            plan,
            table,
            anchor,
            self.ladder or ladder_whitened(),
            seed,
            estimands.pairs,
            gradient.batch_size or 0,
            prepared.listing if plan.slabs else None,
            may_blend=self.gradient is None,
        )

    def _controls(self, anchor: Anchor) -> bool:
        """Whether the first order is taken off: asked for, or known exactly."""
        known = anchor.knows_control and follows(self.dynamics)
        if self.control and not known:
            got = f"{anchor!r} and {type(self.dynamics).__name__}"
            expected = "an anchor whose averages are known exactly, and exponential or kinetic steps, for control=True"
            raise MethodError(explain(expected, got, "anchor='balanced' for a regression, or control=None"))
        return known and self.control is not False

    def least_evaluations(self, problem: Problem) -> int:
        pilots = PILOT_PATHS * (problem.evaluations(0) + problem.evaluations(1))
        return PILOT_PATHS * problem.contraction_evaluations() + BLOCK_PATHS * problem.evaluations(0) + pilots

    def choices(self, largest_batch: int) -> Choices:
        """What the user has left open."""
        if self.gradient is not None:
            sizes: tuple[int, ...] = (self.gradient.batch_size or largest_batch,)
        else:
            sizes = (self.batch_size,) if self.batch_size is not None else batch_sizes_up_to(largest_batch)
        if self.ladder is not None:
            return Choices((self.ladder.first_step,), sizes, ladder=self.ladder)
        steps = (self.first_step,) if self.first_step is not None else FIRST_STEPS
        windows = WINDOWS if self.window is None else (self.window,)
        return Choices(steps, sizes, time=self.time, windows=windows)

    def solve(self, run: Run, prepared: Prepared, notes: Notes) -> Finished:
        with_gaussian(run, prepared, notes)
        return Finished(*run_attempts(run, self.choices(run.problem.largest_batch)))

    def further(self, before: Finished, run: Run) -> Finished:
        status, final = run_multilevel(run)
        return replace(before, run=run, status=status, final=final)


def with_gaussian(run: Run, prepared: Prepared, notes: Notes) -> None:
    """Give a run its data-free level, and what a probe says of its tails."""
    begin("Gaussian level")
    target, anchor, units, estimands = prepared.target, prepared.anchor, prepared.table.units, run.estimands
    level = aside(laplace_level, target, estimands.observables, anchor, estimands.jump, run.problem.seed, units)
    if prepared.guide is not None:
        level = aside(guided_level, level, prepared.guide, target, estimands, anchor, units)
    notes.laplace = run.laplace = level
    run.touched = partial(touched_by, target, estimands, anchor.mode, units)
    if prepared.probe is not None:
        run.tails = aside(tails_of, target, estimands, anchor, units, prepared.probe)


def _guide_of(problem: Problem, anchor: Anchor, tolerance: float) -> tuple[Guide | MeanGuide, bool]:
    """Pairs until the means of the control are known to a part of the tolerance, and whether they are: or else that
    takes too many."""

    def of(block: int) -> Any:
        found, read = problem.remainders(block), BLOCK_PATHS * problem.batch_size
        return MeanGuide.of(anchor, found, read) if anchor.is_wide else Guide.of(found, read)

    def drawn(first: int, stop: int) -> Any:
        look()
        return reduce(lambda whole, part: whole.plus(part), map(of, range(first // BLOCK_PATHS, stop // BLOCK_PATHS)))

    count = FIRST_LONG_PAIRS if anchor.is_wide else FIRST_PAIRS
    found = drawn(0, count)
    while found.is_finite:
        worst = max(float(each.max()) for each in found.errors(anchor))
        wanted = worst**2 / (GUIDE_SHARE * tolerance**2 / 2)
        if wanted <= 1:
            return found, True
        if count >= MOST_PAIRS or (anchor.is_wide and wanted * count > MOST_PAIRS):
            break
        further = 2 * count
        if anchor.is_wide:
            further = min(further, BLOCK_PATHS * int(np.ceil(1.05 * wanted * count / BLOCK_PATHS)))
        found, count = found.plus(drawn(count, further)), further
    return found, False


def reads_slabs(gradient: GradientEstimator) -> bool:
    """Whether the batch size can be an argument of the compiled program."""
    return gradient.batch_size is not None and isinstance(gradient.sampling, Blocks)


def _require_window(window: Any) -> None:
    whole = isinstance(window, int) and not isinstance(window, bool)
    if not whole or not 0 <= window <= MOST_WINDOW:
        raise MethodError(explain(f"window a whole number 0..{MOST_WINDOW}", repr(window), "None to have it tuned"))
