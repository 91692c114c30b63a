"""The waist: below it JAX, pure and compiled, that knows no tolerance; above it NumPy that knows no gradient.

    sample_level(problem, level, block) -> LevelBlock        moments of 32 samples of one level
    sample_contraction(problem, block) -> distances          of 32 pairs of paths on common noise

A block is a fixed shape and a pure function of (problem, seed, level, block): its bits do not depend on the
order of blocks, on threads, or on a user's global JAX settings. Everything is traced with 64-bit types allowed
and written with explicit ones: one function traced under both settings trips over its own constants.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.estimator.ladder import Ladder
from tallbayes.moments import Floats, Moments
from tallbayes.programs.compilation import compiled
from tallbayes.rows.listing import Listing
from tallbayes.rows.table import Table
from tallbayes.sampler.gradients import Inputs, evaluations_per_step
from tallbayes.sampler.paths import MOST_STOPS, PathEnd, Plan, Schedule, make_inputs, sample_pair, sample_path
from tallbayes.sampler.randomness import path_key, seed_words

BLOCK_PATHS = 32
LEVEL_STREAM, CONTRACTION_STREAM, TUNING_STREAM = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Ground:
    """What all blocks of a run stand on: the program, the rows, the point of expansion. Heavy, so it travels once."""

    plan: Plan
    table: Table
    anchor: Anchor
    listing: Listing | None
    pairs: tuple[tuple[int, int], ...]

    @cached_property
    def inputs(self) -> Inputs:
        """On the device, beside the rows."""
        return make_inputs(self.table, self.anchor, self.plan.dtype, 0, self.listing)


@dataclass(frozen=True, eq=False)
class Problem:
    """All that a block of paths needs."""

    ground: Ground
    ladder: Ladder
    batch_size: int
    rows_per_gradient: int
    seed: int
    stream: int = LEVEL_STREAM

    @property
    def plan(self) -> Plan:
        return self.ground.plan

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        return self.ground.pairs

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

    @property
    def largest_batch(self) -> int:
        """A batch that is all rows."""
        return self.num_rows if self.ground.listing is None else self.ground.listing.length

    def with_ladder(self, ladder: Ladder) -> Problem:
        return replace(self, ladder=ladder)

    def with_batch_size(self, batch_size: int) -> Problem:
        """The same with another number of rows a step; for batches read in slabs only, and without compiling."""
        return replace(self, batch_size=batch_size, rows_per_gradient=batch_size)

    def for_tuning(self) -> Problem:
        """The same on random numbers of their own, which no estimate uses."""
        return replace(self, stream=TUNING_STREAM)


@dataclass(frozen=True)
class LevelBlock:
    """Moments of one block's samples, of the fine side, and of the coarse side; and where the paths were at their
    stops, (paths, stops, 1 + coarse paths, d)."""

    delta: Moments
    fine: Moments
    coarse: Moments
    nonfinite: int
    farthest: float
    strained: float
    evaluations: int
    points: Floats | None = None


def make_problem(
    plan: Plan,
    table: Table,
    anchor: Anchor,
    ladder: Ladder,
    seed: int,
    pairs: tuple[tuple[int, int], ...],
    batch_size: int = 0,
    listing: Listing | None = None,
) -> Problem:
    """The last two are for batches read in slabs."""
    rows = batch_size if plan.slabs else evaluations_per_step(plan.gradient, table.num_rows)
    return Problem(Ground(plan, table, anchor, listing, pairs), ladder, batch_size, rows, seed)


def compile_ahead(plan: Plan, table: Table, diagonal: bool) -> list[Callable[[], Any]]:
    """Tasks that compile the two programs of a plan, for any anchor: they run paths of no steps at all."""
    d = plan.target.dimension
    shape = (d,) if diagonal else (d, d)
    nowhere = Anchor(
        mode=np.zeros(d),
        likelihood_gradient=np.zeros(d),
        likelihood_hessian=None if diagonal else np.zeros(shape),
        precision=np.ones(d) if diagonal else np.eye(d),
        log_density=0.0,
        passes=0.0,
        num_rows=table.num_rows,
        gradient=np.zeros(d),
    )
    problem = make_problem(plan, table, nowhere, Ladder(1.0), seed=0, pairs=(), batch_size=1)
    return [partial(_no_steps_level, problem), partial(_no_steps_contraction, problem)]


def _no_steps_level(problem: Problem) -> None:
    nothing = _schedule(problem, 0)._replace(solo_steps=np.int32(0), joint_steps=np.int32(0))
    _run_level(problem, nothing, 0, 0)


def _no_steps_contraction(problem: Problem) -> None:
    _run_contraction(problem, 0, 0, 1.0)


def sample_level(problem: Problem, level: int, block: int) -> LevelBlock:
    """Samples block * 32 .. block * 32 + 31 of a level."""
    delta, fine, coarse, distance, strained, points = _sample(problem, level, block)
    finite = np.isfinite(delta).all(axis=1) & np.isfinite(fine).all(axis=1) & np.isfinite(distance)
    with np.errstate(invalid="ignore", over="ignore"):
        return LevelBlock(
            delta=Moments.of(delta, problem.pairs),
            fine=Moments.of(fine),
            coarse=Moments.of(coarse),
            nonfinite=int(BLOCK_PATHS - finite.sum()),
            farthest=float(np.sqrt(np.max(distance, initial=0.0))) if finite.all() else np.inf,
            strained=float(strained.mean()),
            evaluations=BLOCK_PATHS * problem.evaluations(level),
            points=points.astype(np.float32),
        )


def sample_differences(problem: Problem, level: int, block: int) -> Floats:
    """Delta_l of the same samples one by one, (32, observables)."""
    return _sample(problem, level, block)[0]


def sample_contraction(problem: Problem, block: int, spread: float = 1.0) -> Floats:
    """Squared distances (32, 4) of pairs at times 0, dT, 2 dT, 3 dT with the first step size."""
    return _run_contraction(problem, problem.ladder.added_steps, block, spread)


def _run_contraction(problem: Problem, stride: int, block: int, spread: float) -> Floats:
    with jax.enable_x64(True):
        coefficients = _coefficients(problem, problem.ladder.first_step)
        width, first = np.asarray(spread, problem.plan.dtype), np.uint32(block * BLOCK_PATHS)
        arguments = np.int32(stride), coefficients, width, seed_words(problem.seed), first
        return np.asarray(compiled(_contraction_block)(problem.plan, problem.inputs, *arguments), np.float64)


def _sample(problem: Problem, level: int, block: int) -> list[Floats]:
    return _run_level(problem, _schedule(problem, level), level, block)


def _run_level(problem: Problem, schedule: Schedule, level: int, block: int) -> list[Floats]:
    with jax.enable_x64(True):
        seed, first = seed_words(problem.seed), np.uint32(block * BLOCK_PATHS)
        labels = np.array([problem.stream, level], np.uint32)
        ends = compiled(_level_block)(problem.plan, problem.inputs, schedule, seed, labels, first)
        stops = int(schedule.joint_stops or schedule.solo_stops)
        ends = ends._replace(points=np.asarray(ends.points)[:, :stops])
        return [np.asarray(part, np.float64) for part in ends]


def _schedule(problem: Problem, level: int) -> Schedule:
    ladder = problem.ladder
    stops, stride = ladder.stops(MOST_STOPS)
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


def _level_block(plan: Plan, inputs: Inputs, schedule: Schedule, seed: Any, labels: Any, first: Any) -> PathEnd:
    def one(path: jax.Array) -> PathEnd:
        return sample_path(plan, inputs, schedule, path_key(seed, labels[0], labels[1], path))

    return jax.vmap(one)(first + jnp.arange(BLOCK_PATHS, dtype=jnp.uint32))


def _contraction_block(
    plan: Plan, inputs: Inputs, stride: Any, coefficients: Any, spread: Any, seed: Any, first: Any
) -> jax.Array:
    def one(path: jax.Array) -> jax.Array:
        key = path_key(seed, CONTRACTION_STREAM, path)
        return sample_pair(plan, inputs, stride, coefficients, spread, key)

    return jax.vmap(one)(first + jnp.arange(BLOCK_PATHS, dtype=jnp.uint32))
