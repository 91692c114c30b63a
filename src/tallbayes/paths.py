"""Paths: one sample of level l, for every gradient, minibatch law, dynamics, coupling and window.

    solo   the fine path alone, for its shift T_l - T_{l-1} (at level 0: for all of T_0)
    joint  two fine steps to one coarse step of each coarse path, for T_{l-1}, on common noise and batches

    Delta_l = mean of g over the fine window - mean of g over the coarse window(s)

All paths start at the mode, so that the coarse path of level l has exactly the law of the fine path of level
l - 1: same start, same number of steps, same step map, same minibatch law, same window. The state is the
displacement v = theta - theta_0. The step counts and sizes are arguments: one program serves all levels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.gradients import Centre, centre_rows, posterior_gradient
from tallbayes.identity import Function
from tallbayes.model import Target
from tallbayes.randomness import Words, words_per_index, words_per_normal
from tallbayes.roles import Coupling, Dynamics, GradientEstimator


@dataclass(frozen=True)
class Observables:
    """What is read off a path: the first two moments of theta - theta_0 if asked, then functions of theta."""

    moments: bool
    functions: tuple[Function, ...]

    def values(self, target: Target, centre: Centre, displacement: jax.Array) -> jax.Array:
        parts = [displacement, displacement**2] if self.moments else []
        theta = target.unravel(centre.mode + displacement)
        for function in self.functions:
            leaves = jax.tree.leaves(function(theta))
            parts += [jnp.ravel(leaf).astype(displacement.dtype) for leaf in leaves]
        return jnp.concatenate(parts)


@dataclass(frozen=True)
class Plan:
    """Everything that shapes the compiled program; static and hashable."""

    target: Target
    gradient: GradientEstimator
    dynamics: Dynamics
    coupling: Coupling
    observables: Observables
    dtype: str


class Inputs(NamedTuple):
    """What all paths share: the rows, how many of them count, and the point of expansion."""

    rows: Any
    num_rows: jax.Array
    centre: Centre


class Schedule(NamedTuple):
    """One level in whole steps, with the dynamics' coefficients for its two step sizes."""

    solo_steps: Any
    joint_steps: Any
    solo_window: Any
    joint_window: Any
    fine: Any
    coarse: Any


class PathEnd(NamedTuple):
    """One sample: Delta_l, what the fine and the coarse side read, and how far out the fine path ended."""

    delta: jax.Array
    fine: jax.Array
    coarse: jax.Array
    distance: jax.Array


Step = Callable[[jax.Array, jax.Array, jax.Array, Any], jax.Array]


def make_step(plan: Plan, inputs: Inputs) -> Step:
    """The step map S(coefficients, state, noise, batch): nothing random inside."""

    def step(coefficients: jax.Array, state: jax.Array, noise: jax.Array, batch: Any) -> jax.Array:
        gradient = posterior_gradient(
            plan.target, plan.gradient, inputs.rows, inputs.num_rows, inputs.centre, state, batch
        )
        return plan.dynamics.step(coefficients, state, gradient, noise)

    return step


def make_draw(plan: Plan, inputs: Inputs) -> Callable[..., Any]:
    """draw(key, number, extra): noise and raw batches of that many fine steps, stacked, and spare words."""
    d, size = plan.target.dimension, plan.gradient.batch_size
    dtype = np.dtype(plan.dtype).type
    capacity = jax.tree.leaves(inputs.rows)[0].shape[0]
    per_index, per_normal = words_per_index(capacity), words_per_normal(dtype)
    sampling = plan.gradient.sampling

    def draw(key: jax.Array, number: int, extra_indices: int = 0) -> tuple[Any, Any, Words]:
        indices = extra_indices + (number * sampling.num_indices(size) if size else 0)
        count = number * d * per_normal + indices * per_index
        words = Words(jax.random.bits(key, (count,), jnp.uint32), dtype, wide=per_index == 2)
        noise = words.normals(number * d).reshape(number, d)
        if not size:
            return noise, (), words
        index = [sampling.draw(words.integers, size, inputs.num_rows) for _ in range(number)]
        return noise, _gather(inputs.rows, jnp.stack(index)), words

    return draw


def make_expand(plan: Plan, inputs: Inputs) -> Callable[[Any], Any]:
    """Expand stacked raw batches at the centre."""
    if plan.gradient.batch_size is None:
        return lambda batches: batches
    return jax.vmap(lambda rows: centre_rows(plan.target, inputs.centre, rows))


def _gather(rows: Any, index: jax.Array) -> Any:
    return jax.tree.map(lambda leaf: leaf.at[index].get(mode="promise_in_bounds"), rows)


def _pick(batches: Any, number: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[number], batches)


def sample_path(plan: Plan, inputs: Inputs, schedule: Schedule, key: jax.Array) -> PathEnd:
    """One sample of the level that the schedule describes."""
    d, size = plan.target.dimension, plan.gradient.batch_size or 0
    dtype = np.dtype(plan.dtype)
    step, draw, expand = make_step(plan, inputs), make_draw(plan, inputs), make_expand(plan, inputs)
    coupling, dynamics = plan.coupling, plan.dynamics
    extra = coupling.num_indices(size) if size else 0

    def read(state: jax.Array) -> jax.Array:
        return plan.observables.values(plan.target, inputs.centre, state)

    def read_coarse(states: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(read)(states), axis=0)

    def solo(index: jax.Array, carry: Any) -> Any:
        state, total = carry
        noise, batches, _ = draw(jax.random.fold_in(solo_key, index), 1)
        state = step(schedule.fine, state, noise[0], _pick(expand(batches), 0))
        inside = index >= schedule.solo_steps - schedule.solo_window
        return state, jax.lax.cond(inside, lambda s: total + read(s), lambda s: total, state)

    def joint(index: jax.Array, carry: Any) -> Any:
        fine, coarse, totals = carry
        noise, batches, words = draw(jax.random.fold_in(joint_key, index), 2, extra)
        expanded = expand(batches)
        middle = step(schedule.fine, fine, noise[0], _pick(expanded, 0))
        fine = step(schedule.fine, middle, noise[1], _pick(expanded, 1))
        merged = dynamics.merge_noise(schedule.fine, noise[0], noise[1])
        seen = expand(coupling.coarse_batches(words.integers, size, batches))
        coarse = jax.vmap(lambda state, batch: step(schedule.coarse, state, merged, batch))(coarse, seen)

        def add(totals: Any) -> Any:
            fine_mean = (read(middle) + read(fine)) / 2
            coarse_mean = read_coarse(coarse)
            return totals[0] + (fine_mean - coarse_mean), totals[1] + fine_mean

        inside = index >= schedule.joint_steps - schedule.joint_window
        return fine, coarse, jax.lax.cond(inside, add, lambda totals: totals, totals)

    solo_key, joint_key = (jax.random.fold_in(key, phase) for phase in (0, 1))
    mode = jnp.zeros(d, dtype)
    zero = jnp.zeros(jax.eval_shape(read, mode).shape, dtype)
    fine, solo_total = jax.lax.fori_loop(0, schedule.solo_steps, solo, (mode, zero))
    coarse = jnp.zeros((coupling.num_coarse, d), dtype)
    fine, coarse, totals = jax.lax.fori_loop(0, schedule.joint_steps, joint, (fine, coarse, (zero, zero)))
    distance = fine @ (inputs.centre.precision @ fine)
    return _path_end(schedule, solo_total, totals, read(fine), read_coarse(coarse), distance)


def _path_end(schedule: Schedule, solo: Any, joint: Any, fine_end: Any, coarse_end: Any, distance: Any) -> PathEnd:
    """Window means where there is a window, end points where there is none."""
    dtype = fine_end.dtype
    points = jnp.maximum(schedule.solo_window + schedule.joint_window, 1).astype(dtype)
    windowed = schedule.solo_window + schedule.joint_window > 0
    coupled = schedule.joint_steps > 0
    fine = jnp.where(windowed, (solo + joint[1]) / points, fine_end)
    difference = jnp.where(windowed, joint[0] / points, fine_end - coarse_end)
    delta = jnp.where(coupled, difference, fine)
    return PathEnd(delta, fine, jnp.where(coupled, fine - difference, 0), distance)


def sample_pair(
    plan: Plan, inputs: Inputs, stride: Any, coefficients: Any, spread: jax.Array, key: jax.Array
) -> jax.Array:
    """Squared whitened distances of two paths on common noise and batches, at 0, 1, 2 and 3 strides.

    The two start independently from Laplace's approximation, spread^T spread = H^-1.
    """
    d, dtype = plan.target.dimension, np.dtype(plan.dtype)
    step, draw, expand = make_step(plan, inputs), make_draw(plan, inputs), make_expand(plan, inputs)
    start_key, run_key = (jax.random.fold_in(key, phase) for phase in (0, 1))
    words = jax.random.bits(start_key, (2 * d * words_per_normal(dtype),), jnp.uint32)
    starts = Words(words, dtype.type, wide=False).normals(2 * d).reshape(2, d) @ spread

    def advance(index: jax.Array, states: jax.Array) -> jax.Array:
        noise, batches, _ = draw(jax.random.fold_in(run_key, index), 1)
        batch = _pick(expand(batches), 0)
        return jax.vmap(lambda state: step(coefficients, state, noise[0], batch))(states)

    def stretch(states: jax.Array, number: jax.Array) -> Any:
        begin = number * stride
        states = jax.lax.fori_loop(begin, begin + stride, advance, states)
        return states, _distance(inputs.centre, states)

    _, distances = jax.lax.scan(stretch, starts, jnp.arange(3, dtype=jnp.int32))
    return jnp.concatenate([_distance(inputs.centre, starts)[None], distances])


def _distance(centre: Centre, states: jax.Array) -> jax.Array:
    apart = states[0] - states[1]
    return apart @ (centre.precision @ apart)
