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
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.gradients import evaluations_per_step
from tallbayes.ladder import Ladder
from tallbayes.moments import Floats, Moments
from tallbayes.paths import Inputs, PathEnd, Plan, Schedule, make_inputs, sample_pair, sample_path
from tallbayes.randomness import path_key, seed_words
from tallbayes.table import Table

BLOCK_PATHS = 32
LEVEL_STREAM, CONTRACTION_STREAM = 0, 1


@dataclass(frozen=True, eq=False)
class Problem:
    """All that a block of paths needs."""

    plan: Plan
    inputs: Inputs
    ladder: Ladder
    spread: np.ndarray
    num_rows: int
    seed: int
    pairs: tuple[tuple[int, int], ...]

    def evaluations(self, level: int) -> int:
        """Data items of one sample of a level: shift, joint phase, all coarse paths."""
        steps = self.ladder.path_steps(level, self.plan.coupling.num_coarse)
        return steps * evaluations_per_step(self.plan.gradient, self.num_rows)

    def contraction_evaluations(self) -> int:
        """Data items of one pair of paths in `sample_contraction`."""
        steps = 2 * 3 * self.ladder.added_steps
        return steps * evaluations_per_step(self.plan.gradient, self.num_rows)

    def with_ladder(self, ladder: Ladder) -> Problem:
        return replace(self, ladder=ladder)


@dataclass(frozen=True)
class LevelBlock:
    """Moments of one block's samples, of the fine side, and of the coarse side."""

    delta: Moments
    fine: Moments
    coarse: Moments
    nonfinite: int
    farthest: float
    evaluations: int


def make_problem(
    plan: Plan,
    table: Table,
    anchor: Anchor,
    ladder: Ladder,
    seed: int,
    pairs: tuple[tuple[int, int], ...],
) -> Problem:
    """Put the point of expansion on the device, beside the rows, in the paths' precision."""
    inputs = make_inputs(table, anchor, plan.dtype)
    spread = np.linalg.inv(anchor.factor).astype(plan.dtype)
    return Problem(plan, inputs, ladder, spread, table.num_rows, seed, pairs)


def sample_level(problem: Problem, level: int, block: int) -> LevelBlock:
    """Samples block * 32 .. block * 32 + 31 of a level."""
    schedule = _schedule(problem, level)
    with jax.enable_x64(True):
        seed = seed_words(problem.seed)
        first = np.uint32(block * BLOCK_PATHS)
        ends = _compiled(_level_block)(problem.plan, problem.inputs, schedule, seed, np.uint32(level), first)
        delta, fine, coarse, distance = (np.asarray(part, np.float64) for part in ends)
    finite = np.isfinite(delta).all(axis=1) & np.isfinite(fine).all(axis=1) & np.isfinite(distance)
    with np.errstate(invalid="ignore", over="ignore"):
        return LevelBlock(
            delta=Moments.of(delta, problem.pairs),
            fine=Moments.of(fine),
            coarse=Moments.of(coarse),
            nonfinite=int(BLOCK_PATHS - finite.sum()),
            farthest=float(np.sqrt(np.max(distance, initial=0.0))) if finite.all() else np.inf,
            evaluations=BLOCK_PATHS * problem.evaluations(level),
        )


def sample_contraction(problem: Problem, block: int) -> Floats:
    """Squared distances (32, 4) of pairs at times 0, dT, 2 dT, 3 dT with the first step size."""
    with jax.enable_x64(True):
        coefficients = _coefficients(problem, problem.ladder.first_step)
        stride, first = np.int32(problem.ladder.added_steps), np.uint32(block * BLOCK_PATHS)
        seed = seed_words(problem.seed)
        out = _compiled(_contraction_block)(
            problem.plan, problem.inputs, stride, coefficients, problem.spread, seed, first
        )
        return np.asarray(out, np.float64)


def _schedule(problem: Problem, level: int) -> Schedule:
    ladder = problem.ladder
    return Schedule(
        solo_steps=np.int32(ladder.shift_steps(level)),
        joint_steps=np.int32(ladder.joint_steps(level)),
        solo_window=np.int32(0 if level else ladder.window(0)),
        fine_window=np.int32(ladder.window(level) // 2 if level else 0),
        coarse_window=np.int32(ladder.window(level - 1) if level else 0),
        fine=_coefficients(problem, ladder.step(level)),
        coarse=_coefficients(problem, ladder.step(level - 1)),
    )


def _coefficients(problem: Problem, step: float) -> np.ndarray:
    return problem.plan.dynamics.coefficients(step).astype(problem.plan.dtype)


def _compiled(function: Callable[..., Any]) -> Any:
    """Jit with a static first argument; on CPU with LLVM's first level of optimisation.

    Measured on a coupled level: compiling takes half as long as at the default level, running the same.
    """
    return _jitted(function, jax.default_backend())


@cache
def _jitted(function: Callable[..., Any], backend: str) -> Any:
    options = {"xla_backend_optimization_level": 1} if backend == "cpu" else None
    return jax.jit(function, static_argnums=0, compiler_options=options)


def _level_block(plan: Plan, inputs: Inputs, schedule: Schedule, seed: Any, level: Any, first: Any) -> PathEnd:
    def one(path: jax.Array) -> PathEnd:
        return sample_path(plan, inputs, schedule, path_key(seed, LEVEL_STREAM, level, path))

    return jax.vmap(one)(first + jnp.arange(BLOCK_PATHS, dtype=jnp.uint32))


def _contraction_block(
    plan: Plan, inputs: Inputs, stride: Any, coefficients: Any, spread: Any, seed: Any, first: Any
) -> jax.Array:
    def one(path: jax.Array) -> jax.Array:
        key = path_key(seed, CONTRACTION_STREAM, path)
        return sample_pair(plan, inputs, stride, coefficients, spread, key)

    return jax.vmap(one)(first + jnp.arange(BLOCK_PATHS, dtype=jnp.uint32))
