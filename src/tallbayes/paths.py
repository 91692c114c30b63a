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
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.anchor import Anchor
from tallbayes.draws import Drawer, Draws, gather, pick, run_steps
from tallbayes.gradients import Centre, centre_rows, posterior_gradient
from tallbayes.identity import Function
from tallbayes.model import Target
from tallbayes.randomness import normals, words_per_normal
from tallbayes.roles import Coupling, Dynamics, GradientEstimator
from tallbayes.table import Table


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


def make_inputs(table: Table, anchor: Anchor, dtype: str) -> Inputs:
    """The rows and, beside them on the device, the point of expansion in the paths' precision."""
    parts = (anchor.mode, anchor.likelihood_gradient, anchor.likelihood_hessian, anchor.precision)
    with jax.enable_x64(True):
        centre = Centre(*(jax.device_put(np.asarray(part, dtype)) for part in parts))
        return Inputs(table.rows, jnp.asarray(table.num_rows, jnp.int32), centre)


class Schedule(NamedTuple):
    """One level in whole steps, with the dynamics' coefficients for its two step sizes."""

    solo_steps: Any
    joint_steps: Any
    solo_window: Any
    fine_window: Any
    coarse_window: Any
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


def make_drawer(plan: Plan, inputs: Inputs) -> Drawer:
    """What the plan draws at every step."""
    capacity = jax.tree.leaves(inputs.rows)[0].shape[0]
    return Drawer(plan.target.dimension, plan.gradient, np.dtype(plan.dtype).type, capacity, inputs.num_rows)


def make_expand(plan: Plan, inputs: Inputs) -> Callable[[Any], Any]:
    """Expand stacked raw batches at the centre."""
    if plan.gradient.batch_size is None:
        return lambda batches: batches
    return jax.vmap(lambda rows: centre_rows(plan.target, inputs.centre, rows))


def sample_path(plan: Plan, inputs: Inputs, schedule: Schedule, key: jax.Array) -> PathEnd:
    """One sample of the level that the schedule describes."""
    d, size = plan.target.dimension, plan.gradient.batch_size or 0
    dtype = np.dtype(plan.dtype)
    step, drawer, expand = make_step(plan, inputs), make_drawer(plan, inputs), make_expand(plan, inputs)
    coupling, dynamics = plan.coupling, plan.dynamics
    extra = coupling.num_indices(size) if size else 0

    def read(state: jax.Array) -> jax.Array:
        return plan.observables.values(plan.target, inputs.centre, state)

    def read_coarse(states: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(read)(states), axis=0)

    def solo(index: jax.Array, draws: Draws, carry: Any) -> Any:
        state, total = carry
        batches = expand(gather(inputs.rows, draws.index))
        state = step(schedule.fine, state, draws.noise[0], pick(batches, 0))
        inside = index >= schedule.solo_steps - schedule.solo_window
        return state, jax.lax.cond(inside, lambda s: total + read(s), lambda s: total, state)

    def joint(index: jax.Array, draws: Draws, carry: Any) -> Any:
        fine, coarse, totals = carry
        noise, batches = draws.noise, gather(inputs.rows, draws.index)
        expanded = expand(batches)
        middle = step(schedule.fine, fine, noise[0], pick(expanded, 0))
        fine = step(schedule.fine, middle, noise[1], pick(expanded, 1))
        merged = dynamics.merge_noise(schedule.fine, noise[0], noise[1])
        seen = expand(coupling.coarse_batches(drawer.source(draws.spare).integers, size, batches))
        coarse = jax.vmap(lambda state, batch: step(schedule.coarse, state, merged, batch))(coarse, seen)

        in_fine = index >= schedule.joint_steps - schedule.fine_window
        in_coarse = index >= schedule.joint_steps - schedule.coarse_window

        def add(totals: Totals) -> Totals:
            pair = (read(middle) + read(fine)) / 2
            return Totals(
                totals.fine + jnp.where(in_fine, pair, 0),
                totals.matched + jnp.where(in_coarse, pair, 0),
                totals.difference + jnp.where(in_coarse, pair - read_coarse(coarse), 0),
            )

        return fine, coarse, jax.lax.cond(in_fine | in_coarse, add, lambda totals: totals, totals)

    solo_key, joint_key = (jax.random.fold_in(key, phase) for phase in (0, 1))
    mode = jnp.zeros(d, dtype)
    zero = jnp.zeros(jax.eval_shape(read, mode).shape, dtype)
    draw_one, draw_two = partial(drawer.draw, number=1), partial(drawer.draw, number=2, extra_indices=extra)
    fine, solo_total = run_steps(solo_key, schedule.solo_steps, draw_one, solo, (mode, zero))
    begin = (fine, start_coarse(mode, coupling.num_coarse, fine), Totals(solo_total, zero, zero))
    fine, coarse, totals = run_steps(joint_key, schedule.joint_steps, draw_two, joint, begin)
    distance = fine @ (inputs.centre.precision @ fine)
    return _path_end(schedule, totals, read(fine), read_coarse(coarse), distance)


def start_coarse(mode: jax.Array, num_coarse: int, fine: jax.Array) -> jax.Array:
    """Where the coarse paths begin: at the fine path's own start, never at where its shift has led it."""
    return jnp.stack([mode] * num_coarse)


class Totals(NamedTuple):
    """Sums over the windows: of the fine path, of the fine path where the coarse window is, of differences.

    Small differences are summed as such: with windows of equal length the first two cancel to the bit.
    """

    fine: jax.Array
    matched: jax.Array
    difference: jax.Array


def _path_end(schedule: Schedule, totals: Totals, fine_end: Any, coarse_end: Any, distance: Any) -> PathEnd:
    """Window means where there is a window, end points where there is none."""
    fine_points = jnp.maximum(schedule.solo_window + schedule.fine_window, 1).astype(fine_end.dtype)
    coarse_points = jnp.maximum(schedule.coarse_window, 1).astype(fine_end.dtype)
    windowed = schedule.solo_window + schedule.fine_window > 0
    coupled = schedule.joint_steps > 0
    fine = jnp.where(windowed, totals.fine / fine_points, fine_end)
    longer = totals.fine / fine_points - totals.matched / coarse_points
    difference = jnp.where(windowed, longer + totals.difference / coarse_points, fine_end - coarse_end)
    delta = jnp.where(coupled, difference, fine)
    return PathEnd(delta, fine, jnp.where(coupled, fine - difference, 0), distance)


def sample_pair(
    plan: Plan, inputs: Inputs, stride: Any, coefficients: Any, spread: jax.Array, key: jax.Array
) -> jax.Array:
    """Squared whitened distances of two paths on common noise and batches, at 0, 1, 2 and 3 strides.

    The two start independently from Laplace's approximation, spread^T spread = H^-1.
    """
    d, dtype = plan.target.dimension, np.dtype(plan.dtype)
    step, drawer, expand = make_step(plan, inputs), make_drawer(plan, inputs), make_expand(plan, inputs)
    start_key, run_key = (jax.random.fold_in(key, phase) for phase in (0, 1))
    words = jax.random.bits(start_key, (2 * d * words_per_normal(dtype),), jnp.uint32)
    starts = normals(words, dtype.type).reshape(2, d) @ spread

    def advance(index: jax.Array, draws: Draws, states: jax.Array) -> jax.Array:
        batch = pick(expand(gather(inputs.rows, draws.index)), 0)
        return jax.vmap(lambda state: step(coefficients, state, draws.noise[0], batch))(states)

    def stretch(states: jax.Array, number: jax.Array) -> Any:
        here = jax.random.fold_in(run_key, number)
        states = run_steps(here, stride, partial(drawer.draw, number=1), advance, states)
        return states, _distance(inputs.centre, states)

    _, distances = jax.lax.scan(stretch, starts, jnp.arange(3, dtype=jnp.int32))
    return jnp.concatenate([_distance(inputs.centre, starts)[None], distances])


def _distance(centre: Centre, states: jax.Array) -> jax.Array:
    apart = states[0] - states[1]
    return apart @ (centre.precision @ apart)
