"""Levels of coupled paths: what the estimator samples, compiled.

A block is a fixed shape and a pure function of (problem, seed, level, block): its bits do not depend on the
order of blocks, on threads, or on a user's global JAX settings. Everything is traced with 64-bit types allowed
and written with explicit ones: one function traced under both settings trips over its own constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from typing import Any

import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.sums import Curvature
from tallbayes.estimator.ladder import Ladder, Motion
from tallbayes.estimator.levels import BLOCK_PATHS, LevelBlock, Pairs, Stream, paths_of_blocks
from tallbayes.gaussian.arrowhead import Arrowhead
from tallbayes.moments import Floats, Moments
from tallbayes.programs.compilation import compiled
from tallbayes.programs.later import jax
from tallbayes.rows.listing import Listing
from tallbayes.rows.table import Table, capacity_for
from tallbayes.sampler.control import Control, make_control
from tallbayes.sampler.gradients import Blend, Taylor, evaluations_per_step
from tallbayes.sampler.inputs import Inputs, make_inputs, overhead_of
from tallbayes.sampler.minibatch import Blocks
from tallbayes.sampler.pairs import PHASES_OF_A_PAIR, PHASES_OF_A_REMAINDER, sample_pair, sample_remainder
from tallbayes.sampler.paths import PHASES, Plan, Schedule, most_stops, sample_path
from tallbayes.sampler.randomness import phase_words
from tallbayes.sampler.windows import PathEnd

MOST_LISTED = 2**22
# Numbers that a block reads; the fewest steps that decide, so that what is compiled ahead is what is run.
LIGHT_WORK, FEW_STEPS = 2**20, 8


@dataclass(frozen=True, eq=False)
class Ground:
    """What all blocks of a run stand on: the program, the rows, the point of expansion. Heavy, so it travels once."""

    plan: Plan
    table: Table
    anchor: Anchor
    listing: Listing | None
    pairs: Pairs
    control: Control | None = None

    @cached_property
    def inputs(self) -> Inputs:
        """On the device, beside the rows."""
        used = None if self.control is None else self.control.used
        own = self.plan.target.predictor is None
        lean = self.anchor.is_wide and self.plan.dynamics.whitened and isinstance(self.plan.gradient, Taylor)
        return make_inputs(self.table, self.anchor, self.plan.dtype, 0, self.listing, self._places, used, own, lean)

    @property
    def _places(self) -> int | None:
        """Room for any list that a table with levels of categories may need; most do, and then nothing is compiled
        for another shape."""
        indexed = self.plan.slabs and self.plan.target.layout.indexed is not None
        rows, listed = self.table.num_rows, 0 if self.listing is None else self.listing.length
        fits = indexed and rows <= MOST_LISTED and self.table.stored is None
        return capacity_for(max(2 * rows, listed)) if fits else None

    @cached_property
    def content(self) -> str:
        """Of parts that are not ours, whose name says nothing of their code: a digest of the program."""
        parts = self.plan.gradient, self.plan.gradient.sampling, self.plan.dynamics, self.plan.coupling
        if all(part is None or _is_ours(part) for part in parts):
            return ""
        return f", program {program_digest(Problem(self, Ladder(1.0), 1, 1, 0))}"


def _is_ours(part: Any) -> bool:
    return type(part).__module__.partition(".")[0] == "tallbayes"


@dataclass(frozen=True, eq=False)
class Problem:
    """All that a block of paths needs, as `estimator.levels.Levels`; `may_blend` where nobody has chosen a gradient."""

    ground: Ground
    ladder: Ladder
    batch_size: int
    rows_per_gradient: int
    seed: int
    stream: Stream = Stream.LEVEL
    may_blend: bool = False

    @property
    def plan(self) -> Plan:
        return self.ground.plan

    @property
    def pairs(self) -> Pairs:
        return self.ground.pairs

    @property
    def dimension(self) -> int:
        return self.plan.target.dimension

    @property
    def num_coarse(self) -> int:
        return self.plan.coupling.num_coarse

    @property
    def step_overhead(self) -> int:
        return overhead_of(self.ground.anchor, self.plan.target.layout)

    @property
    def controlled(self) -> bool:
        return self.plan.control

    @property
    def variance_rate(self) -> float:
        return self.motion.variance_rate

    @property
    def motion(self) -> Motion:
        """Of estimates of the gradient the noise decides, and how the coupling deals with it."""
        rate, own = self.plan.coupling.variance_rate, getattr(self.plan.dynamics, "motion", None)
        if own is None:
            return Motion(variance_rate=rate)
        exact = self.plan.gradient.batch_size is None or self.rows_per_gradient >= self.largest_batch
        return own if exact else replace(own, weak_order=1.0, variance_rate=rate)

    @property
    def num_rows(self) -> int:
        return self.ground.table.num_rows

    @property
    def inputs(self) -> Inputs:
        return self.ground.inputs._replace(batch_size=np.int32(self.batch_size))

    def evaluations(self, level: int) -> int:
        """Data items of one sample of a level: shift, joint phase, all coarse paths."""
        return self.ladder.path_steps(level, self.plan.coupling.num_coarse) * self.rows_per_gradient

    def contraction_evaluations(self) -> int:
        """Data items of one pair of paths in `sample_contraction`."""
        return 2 * 3 * self.ladder.added_steps * self.rows_per_gradient

    def block_paths(self, level: int) -> int:
        coarse, rows = self.plan.coupling.num_coarse, self.rows_per_gradient + self.step_overhead
        return paths_of_blocks(level, float(self.ladder.path_steps(level, coarse)) * rows * self.dimension)

    @property
    def largest_batch(self) -> int:
        """A batch that is all rows."""
        return self.num_rows if self.ground.listing is None else self.ground.listing.length

    def with_choice(self, ladder: Ladder, batch_size: int) -> Problem:
        """Without compiling: a batch that is read in slabs has its size as an argument, and no other can be changed."""
        if not self.plan.slabs:
            return replace(self, ladder=ladder)
        return replace(self, ladder=ladder, batch_size=batch_size, rows_per_gradient=batch_size)

    def reseeded(self, seed: int) -> Problem:
        return replace(self, seed=seed)

    def on(self, table: Table) -> Problem:
        return replace(self, ground=replace(self.ground, table=table))

    def for_tuning(self) -> Problem:
        """The same on random numbers of their own, which no estimate uses."""
        return replace(self, stream=Stream.TUNING)

    @property
    def is_alternative(self) -> bool:
        return isinstance(self.plan.gradient, Blend)

    def alternative(self) -> Problem | None:
        """Blend in place of Taylor, whose noise grows faster far out."""
        if not self.may_blend or not isinstance(self.plan.gradient, Taylor):
            return None
        plan = replace(self.plan, gradient=Blend(1, Blocks()))
        return replace(self, ground=replace(self.ground, plan=plan), batch_size=1, rows_per_gradient=1)

    @property
    def identity(self) -> str:
        """In words; Blend's partner by the name under which ledgers know it."""
        plan, listing = self.plan, self.ground.listing
        gradient = repr(plan.gradient).replace("tallbayes.sampler.gradients.", "tallbayes.gradients.")
        listed = "" if listing is None else f", {listing.length} listed"
        listed += ", controlled" if plan.control else ""
        return (
            f"{gradient} of {self.batch_size}, {plan.dynamics!r}, {plan.coupling!r}, {self.ladder!r}, {plan.dtype}, "
            f"{'from Laplace' if plan.laplace else 'from the mode'}, stream {int(self.stream)}{listed}"
        ) + self.ground.content

    def sample(self, level: int, block: int) -> LevelBlock:
        delta, fine, coarse, distance, strained, points, control = _sample(self, level, block)
        delta = self._less_control(delta, control, level)
        finite = np.isfinite(delta).all(axis=1) & np.isfinite(fine).all(axis=1) & np.isfinite(distance)
        with np.errstate(invalid="ignore", over="ignore"):
            return LevelBlock(
                delta=Moments.of(delta, self.pairs),
                fine=Moments.of(fine),
                coarse=Moments.of(coarse),
                nonfinite=int(len(finite) - finite.sum()),
                farthest=float(np.sqrt(np.max(distance, initial=0.0))) if finite.all() else np.inf,
                strained=float(strained.mean()),
                evaluations=len(finite) * self.evaluations(level),
                points=points,
            )

    def fine_ends(self, level: int, block: int) -> Floats:
        """Where fine paths of a level, run by themselves, would have ended without their last noise, (paths, d)."""
        schedule = schedule_of(self, level)._replace(
            solo_steps=np.int32(self.ladder.steps(level)),
            joint_steps=np.int32(0),
            solo_window=np.int32(0),
            fine_window=np.int32(0),
            coarse_window=np.int32(0),
            solo_stops=np.int32(1),
            joint_stops=np.int32(0),
        )
        points = _run_level(self, schedule, level, _paths(block, BLOCK_PATHS))[5]
        return points[:, 0, 0]

    def differences(self, level: int, block: int) -> Floats:
        delta, *_, control = _sample(self, level, block)
        return self._less_control(delta, control, level)

    def _less_control(self, delta: Floats, control: Floats, level: int) -> Floats:
        known = self.ground.control
        return delta if known is None else delta - (control - known.mean(self.ladder, level))

    def uncontrolled(self) -> Problem | None:
        """The same without its control; None where there is none, or where it takes no gradients."""
        if not self.controlled or self.ground.anchor.third is not None:
            return None
        return replace(self, ground=replace(self.ground, plan=replace(self.plan, control=False), control=None))

    def remainders(self, block: int) -> Floats:
        """u, r(u) and r(-u) on the rows of one batch, (paths, 3, d)."""
        with jax.enable_x64(True):
            words = phase_words(
                self.seed, int(Stream.REMAINDERS), 0, _paths(block, BLOCK_PATHS), phases=PHASES_OF_A_REMAINDER
            )
            plan, inputs = replace(self.plan, control=False), self.inputs._replace(controlled=None)
            return np.asarray(compiled(_remainder_block)(plan, inputs, words), np.float64)

    def contract(self, block: int, spread: float = 1.0) -> Floats:
        return _run_contraction(self, self.ladder.added_steps, block, spread)


def make_problem(
    plan: Plan,
    table: Table,
    anchor: Anchor,
    ladder: Ladder,
    seed: int,
    pairs: Pairs,
    batch_size: int = 0,
    listing: Listing | None = None,
    may_blend: bool = False,
) -> Problem:
    """`batch_size` and `listing` are for batches read in slabs."""
    rows = batch_size if plan.slabs else evaluations_per_step(plan.gradient, table.num_rows)
    control = None
    if plan.control:
        control = make_control(plan.target, plan.observables, anchor, table.units, plan.dynamics)
    ground = Ground(plan, table, anchor, listing, pairs, control)
    return Problem(ground, ladder, batch_size, rows, seed, may_blend=may_blend)


def problem_nowhere(plan: Plan, table: Table, curvature: Curvature) -> Problem:
    """A problem of the same shapes as any with this plan, before there is an anchor."""
    d, arms = plan.target.dimension, plan.target.layout.arms
    flat: Any = np.zeros((d, d)) if curvature is Curvature.DENSE else None
    precision: Any = np.eye(d) if curvature is Curvature.DENSE else np.ones(d)
    if curvature is Curvature.ARROW:
        assert arms is not None
        m = d - arms.count
        flat = Arrowhead(arms.first, np.zeros(arms.count), np.zeros((arms.count, m)), np.zeros((m, m)))
        precision = Arrowhead(arms.first, np.ones(arms.count), flat.limbs, np.eye(m))
    nowhere = Anchor(
        mode=np.zeros(d),
        likelihood_gradient=np.zeros(d),
        likelihood_hessian=flat,
        precision=precision,
        log_density=0.0,
        passes=0.0,
        num_rows=table.num_rows,
        gradient=np.zeros(d),
    )
    if plan.control:
        nowhere = replace(nowhere, hessian=np.eye(d), mean_gradient=np.zeros(d), mean_hessian=np.eye(d))
    return make_problem(plan, table, nowhere, Ladder(1.0), seed=0, pairs=(), batch_size=1)


def compile_ahead(plan: Plan, table: Table, curvature: Curvature) -> list[Callable[[], Any]]:
    """Tasks that compile the two programs of a plan, for any anchor: they run paths of no steps at all."""
    problem = problem_nowhere(plan, table, curvature)
    nothing = schedule_of(problem, 0)._replace(solo_steps=np.int32(0), joint_steps=np.int32(0))
    level = partial(_run_level, problem, nothing, 0, _paths(0, BLOCK_PATHS))
    return [level, partial(_run_contraction, problem, 0, 0, 1.0)]


def _run_contraction(problem: Problem, stride: int, block: int, spread: float) -> Floats:
    with jax.enable_x64(True):
        coefficients = _coefficients(problem, problem.ladder.first_step)
        width, labels = np.asarray(spread, problem.plan.dtype), (int(Stream.CONTRACTION), _paths(block, BLOCK_PATHS))
        words = phase_words(problem.seed, *labels, phases=PHASES_OF_A_PAIR)
        arguments = np.int32(stride), coefficients, width, words
        # Pairs need no control: one program for both.
        plan, inputs = replace(problem.plan, control=False), problem.inputs._replace(controlled=None)
        program = compiled(_contraction_block, quickly=_is_light(problem, stride))
        return np.asarray(program(plan, inputs, *arguments), np.float64)


def _is_light(problem: Problem, stride: int) -> bool:
    """Whether a block of pairs takes some hundredths of a second at most, even by a program that was compiled quickly.

    Blocks of levels are worth a better program, even if they are few: with a quick one the second call in a process
    takes half as long again.
    """
    steps, rows = 2 * 3 * max(stride, FEW_STEPS), problem.rows_per_gradient + problem.step_overhead
    return BLOCK_PATHS * steps * rows * problem.dimension <= LIGHT_WORK


def _sample(problem: Problem, level: int, block: int) -> list[Floats]:
    return _run_level(problem, schedule_of(problem, level), level, _paths(block, problem.block_paths(level)))


def _run_level(problem: Problem, schedule: Schedule, level: int, paths: np.ndarray) -> list[Floats]:
    with jax.enable_x64(True):
        words = phase_words(problem.seed, int(problem.stream), level, paths, phases=PHASES)
        ends = compiled(_level_block)(problem.plan, problem.inputs, schedule, words)
        stops = int(schedule.joint_stops or schedule.solo_stops)
        kept = np.asarray(ends.points)[:, :stops].astype(np.float32)
        return [kept if part is ends.points else np.asarray(part, np.float64) for part in ends]


def program_digest(problem: Problem) -> str:
    """Of the lowered text of the program of a level: what its parts compute, whatever they are called."""
    with jax.enable_x64(True):
        words = phase_words(0, int(Stream.LEVEL), 0, _paths(0, BLOCK_PATHS), phases=PHASES)
        arguments = problem.plan, problem.inputs, schedule_of(problem, 0), words
        return sha256(compiled(_level_block).jitted.lower(*arguments).as_text().encode()).hexdigest()[:16]


def schedule_of(problem: Problem, level: int) -> Schedule:
    ladder = problem.ladder
    stops, stride = ladder.stops(most_stops(problem.dimension))
    return Schedule(
        solo_steps=np.int32(ladder.shift_steps(level)),
        joint_steps=np.int32(ladder.joint_steps(level)),
        solo_window=np.int32(0 if level else ladder.window(0)),
        fine_window=np.int32(ladder.window(level) // 2 if level else 0),
        coarse_window=np.int32(ladder.window(level - 1) if level else 0),
        solo_stops=np.int32(1 if level else stops),
        joint_stops=np.int32(stops if level else 0),
        stride=np.int32(stride << max(level - 1, 0)),
        fine=_coefficients(problem, ladder.step(level)),
        coarse=_coefficients(problem, ladder.step(level - 1)),
    )


def _coefficients(problem: Problem, step: float) -> np.ndarray:
    return problem.plan.dynamics.coefficients(step).astype(problem.plan.dtype)


def _paths(block: int, count: int) -> np.ndarray:
    """The numbers of its paths."""
    return np.uint32(block * count) + np.arange(count, dtype=np.uint32)


def _level_block(plan: Plan, inputs: Inputs, schedule: Schedule, words: Any) -> PathEnd:
    return jax.vmap(partial(sample_path, plan, inputs, schedule))(words)


def _remainder_block(plan: Plan, inputs: Inputs, words: Any) -> jax.Array:
    return jax.vmap(partial(sample_remainder, plan, inputs))(words)


def _contraction_block(
    plan: Plan, inputs: Inputs, stride: Any, coefficients: Any, spread: Any, words: Any
) -> jax.Array:
    return jax.vmap(partial(sample_pair, plan, inputs, stride, coefficients, spread))(words)
