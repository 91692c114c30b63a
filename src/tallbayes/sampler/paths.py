"""Paths: one sample of level l, for every gradient, minibatch law, dynamics, coupling and window.

    solo   the fine path alone, for its shift T_l - T_{l-1} (at level 0: for all of T_0)
    joint  two fine steps to one coarse step of each coarse path, for T_{l-1}, on common noise and batches

    Delta_l = mean of g over the fine window - mean of g over the coarse window(s)
    stops   where the paths are kept: at their end and, where there is a window, at equal distances within it

The coarse path of level l has exactly the law of the fine path of level l - 1: same start law, same number of steps,
same step map, same minibatch law, same window. The paper's paths start at the mode. Paths with a Laplace level start
from N(0, I) in whitened units and carry u, the same path with its remainder left out, which stays N(0, I): level 0
is g(fine) - g(u), and the coarse paths of level l begin where u is when the joint phase begins, which has the start
law and is independent of all later noise. With a control they carry y beside u as well (`control`).

The state is what the dynamics moves: the displacement v = theta - theta_0, or z with v = W z, or z and a velocity (see
`dynamics`). The step counts and sizes are arguments: one program serves all levels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tallbayes.model.model import Target
from tallbayes.model.observables import Observables
from tallbayes.programs.later import jax, jnp
from tallbayes.sampler.control import make_paired_step, second_order
from tallbayes.sampler.draws import Drawer, Draws, gather, pick, run_steps
from tallbayes.sampler.dynamics import approach, last_noise, noises_of, position, vectors_of
from tallbayes.sampler.gradients import centre_rows, posterior_gradient, whitened_remainder
from tallbayes.sampler.inputs import Inputs
from tallbayes.sampler.randomness import normals, phase_key, words_per_normal
from tallbayes.sampler.roles import Coupling, Dynamics, GradientEstimator
from tallbayes.sampler.windows import PathEnd, Totals, control_end, path_end, plus

# Places where a path is kept: so many, or as many as have no more numbers in all.
MOST_STOPS, MOST_KEPT = 8, 2**17
# Solo, joint, and where the path starts.
PHASES = 3


@dataclass(frozen=True)
class Plan:
    """Everything that shapes the compiled program; static and hashable."""

    target: Target
    gradient: GradientEstimator
    dynamics: Dynamics
    coupling: Coupling
    observables: Observables
    dtype: str
    laplace: bool = False
    slabs: bool = False
    control: bool = False


class Schedule(NamedTuple):
    """One level in whole steps, with the dynamics' coefficients for its two step sizes."""

    solo_steps: Any
    joint_steps: Any
    solo_window: Any
    fine_window: Any
    coarse_window: Any
    solo_stops: Any
    joint_stops: Any
    stride: Any
    fine: Any
    coarse: Any


class Move(NamedTuple):
    """Where a step leads, and whether the dynamics had to hold it back."""

    state: jax.Array
    strained: jax.Array


Step = Callable[[Any, Any, Any, Any], Move]


def make_step(plan: Plan, inputs: Inputs) -> Step:
    """The step map S(coefficients, state, noise, batch): nothing random inside.

    Jitted, so that it is traced once for all places that take a step.
    """
    gradient_at = whitened_remainder if plan.dynamics.whitened else posterior_gradient

    def step(coefficients: jax.Array, state: jax.Array, noise: jax.Array, batch: Any) -> Move:
        begun = approach(plan.dynamics, coefficients, state, noise)
        gradient = gradient_at(plan.target, plan.gradient, inputs, position(plan.dynamics, begun), batch)
        strained = plan.dynamics.strain(coefficients, gradient) > 1
        return Move(plan.dynamics.step(coefficients, begun, gradient, noise), strained.astype(state.dtype))

    return jax.jit(step)


def make_drawer(plan: Plan, inputs: Inputs) -> Drawer:
    """What the plan draws at every step."""
    capacity = jax.tree.leaves(inputs.rows if inputs.runs.rows is None else inputs.runs.rows)[0].shape[0]
    length = inputs.runs.length if plan.slabs else inputs.num_rows
    dimension = noises_of(plan.dynamics) * plan.target.dimension
    return Drawer(dimension, plan.gradient, np.dtype(plan.dtype).type, capacity, length)


def make_gather(plan: Plan, inputs: Inputs) -> Callable[[Any], Any]:
    """Stacked raw batches from stacked row indices; of batches read in slabs, their first rows."""
    if plan.slabs:
        return lambda index: index[..., 0]
    return partial(gather, inputs.rows)


def make_expand(plan: Plan, inputs: Inputs) -> Callable[[Any], Any]:
    """Expand stacked raw batches at the centre."""
    if plan.gradient.batch_size is None or plan.slabs:
        return lambda batches: batches
    return jax.vmap(lambda rows: centre_rows(plan.target, inputs.centre, rows))


def displacement_of(plan: Plan, inputs: Inputs, state: jax.Array) -> jax.Array:
    """theta - theta_0."""
    return displaced(plan, inputs, position(plan.dynamics, state))


def displaced(plan: Plan, inputs: Inputs, vector: jax.Array) -> jax.Array:
    """A position, or another vector of a state, in the units of theta."""
    return inputs.centre.move(vector) if plan.dynamics.whitened else vector


def square_distance(plan: Plan, inputs: Inputs, vector: jax.Array) -> jax.Array:
    """v^T H v of a position or another vector; in whitened units, where that is all there is."""
    if plan.dynamics.whitened and inputs.centre.whitening.precision is None:
        return jnp.sum(vector**2)
    return inputs.centre.square_length(displaced(plan, inputs, vector))


class Walk:
    """The two phases of a sample, a step at a time: what `solo` and `joint` carry is the state of all its paths.

    Both end with the noise of the last fine step, which is what a stop is noted without.
    """

    def __init__(self, plan: Plan, inputs: Inputs, schedule: Schedule) -> None:
        self.plan, self.inputs, self.schedule = plan, inputs, schedule
        self.step, self.drawer = make_step(plan, inputs), make_drawer(plan, inputs)
        self.gather, self.expand = make_gather(plan, inputs), make_expand(plan, inputs)
        self.size = plan.gradient.batch_size or 0
        if plan.control:
            self.paired_step = make_paired_step(plan.target, plan.gradient, plan.dynamics, inputs)

    def advance(self, coefficients: Any, path: Move, u: Any, y: Any, noise: Any, batch: Any) -> tuple[Move, Any]:
        """A step of a path, and of its y where there is a control."""
        if not self.plan.control:
            return _moved(path, self.step(coefficients, path.state, noise, batch)), y
        state, strained, y = self.paired_step(coefficients, path.state, u, y, noise, batch)
        return Move(state, path.strained + strained), y

    def read_control(self, u: Any, y: Any) -> Any:
        """C(u, y) of every observable, where there is a control."""
        if not self.plan.control:
            return ()
        plan, inputs = self.plan, self.inputs
        values = partial(plan.observables.values, plan.target, inputs.centre.mode, units=inputs.units)
        found = sum(second_order(values, *(displacement_of(plan, inputs, each) for each in (u, y))))
        return jnp.where(inputs.controlled, found, 0)

    def read(self, state: jax.Array) -> jax.Array:
        """All observables at a state."""
        plan, inputs = self.plan, self.inputs
        displacement = displacement_of(plan, inputs, state)
        return plan.observables.values(plan.target, inputs.centre.mode, displacement, inputs.units)

    def read_coarse(self, states: jax.Array) -> jax.Array:
        return jnp.mean(jax.vmap(self.read)(states), axis=0)

    def read_laplace(self, u: Any) -> Any:
        return self.read(u) if self.plan.laplace else np.dtype(self.plan.dtype).type(0)

    def move_laplace(self, coefficients: jax.Array, u: Any, noise: jax.Array) -> Any:
        if not self.plan.laplace:
            return u
        dynamics = self.plan.dynamics
        begun = approach(dynamics, coefficients, u, noise)
        return dynamics.step(coefficients, begun, jnp.zeros_like(position(dynamics, begun)), noise)

    def draw_solo(self, key: jax.Array, length: int) -> Draws:
        return self.drawer.draw(key, length, number=1)

    def draw_joint(self, key: jax.Array, length: int) -> Draws:
        extra = self.plan.coupling.num_indices(self.size) if self.size else 0
        return self.drawer.draw(key, length, number=2, extra_indices=extra)

    def solo(self, index: jax.Array, draws: Draws, carry: Any) -> Any:
        schedule = self.schedule
        fine, u, y, total, _ = carry
        batches = self.expand(self.gather(draws.index))
        fine, y = self.advance(schedule.fine, fine, u, y, draws.noise[0], pick(batches, 0))
        u = self.move_laplace(schedule.fine, u, draws.noise[0])
        inside = index >= schedule.solo_steps - schedule.solo_window

        def add(total: Totals) -> Totals:
            beyond = total.fine + (self.read(fine.state) - self.read_laplace(u))
            return total._replace(fine=beyond, control=plus(total.control, self.read_control(u, y)))

        return fine, u, y, jax.lax.cond(inside, add, lambda total: total, total), draws.noise[0]

    def joint(self, index: jax.Array, draws: Draws, carry: Any) -> Any:
        schedule, plan, coupling = self.schedule, self.plan, self.plan.coupling
        fine, coarse, u, (y, coarse_y), totals, _ = carry
        noise, batches = draws.noise, self.gather(draws.index)
        expanded = self.expand(batches)

        def onward(paths: Any, drawn: tuple[jax.Array, Any]) -> tuple[Any, Any]:
            fine, u, y = paths
            fine, y = self.advance(schedule.fine, fine, u, y, *drawn)
            u = self.move_laplace(schedule.fine, u, drawn[0]) if plan.control else u
            return (fine, u, y), (fine.state, y)

        # A loop of two: a step is most of the program, and each time it is written out it is compiled again.
        (fine, _, y), (states, ys) = jax.lax.scan(onward, (fine, u, y), (noise, expanded))
        middle = states[0]
        merged = self.plan.dynamics.merge_noise(schedule.fine, noise[0], noise[1])
        seen = self.expand(coupling.coarse_batches(self.drawer.source(draws.spare).integers, self.size, batches))
        own = jax.vmap(self._coarse_step, (0, None, 0, None, 0))
        coarse, coarse_y = own(coarse, u, coarse_y, merged, seen)
        before, u = u, self.move_laplace(schedule.coarse, u, merged)
        in_fine = index >= schedule.joint_steps - schedule.fine_window
        in_coarse = index >= schedule.joint_steps - schedule.coarse_window

        def add(totals: Totals) -> Totals:
            half_way = self.move_laplace(schedule.fine, before, noise[0])
            there, reference = self.read_coarse(coarse), (self.read_laplace(half_way) + self.read_laplace(u)) / 2
            pair = (self.read(middle) + self.read(fine.state)) / 2
            control = coarse_control = ()
            if plan.control:
                both = (self.read_control(half_way, ys[0]) + self.read_control(u, y)) / 2
                control = totals.control + jnp.where(in_fine, both, 0)
                apart = self.read_control(u, jnp.mean(coarse_y, axis=0))
                coarse_control = totals.coarse_control + jnp.where(in_coarse, apart, 0)
            return Totals(
                totals.fine + jnp.where(in_fine, pair - reference, 0),
                totals.matched + jnp.where(in_coarse, pair - reference, 0),
                totals.difference + jnp.where(in_coarse, pair - there, 0),
                control,
                coarse_control,
            )

        totals = jax.lax.cond(in_fine | in_coarse, add, lambda totals: totals, totals)
        return fine, coarse, u, (y, coarse_y), totals, noise[1]

    def _coarse_step(self, state: jax.Array, u: Any, y: Any, noise: jax.Array, batch: Any) -> tuple[jax.Array, Any]:
        move, y = self.advance(self.schedule.coarse, Move(state, jnp.zeros((), state.dtype)), u, y, noise, batch)
        return move.state, y

    def note_solo(self, carry: Any) -> jax.Array:
        """The fine path, and u in as many places as there are coarse paths."""
        fine, u, _, _, last = carry
        return self._quiet(fine, jnp.stack([u] * self.plan.coupling.num_coarse), last)

    def note_joint(self, carry: Any) -> jax.Array:
        fine, coarse, _, _, _, last = carry
        return self._quiet(fine, coarse, last)

    def _quiet(self, fine: Move, taken_off: jax.Array, last: jax.Array) -> jax.Array:
        dynamics = self.plan.dynamics
        ends = position(dynamics, jnp.concatenate([fine.state[None], taken_off]))
        return ends - dynamics.spread(self.schedule.fine) * last_noise(dynamics, last)


def most_stops(dimension: int) -> int:
    """How often a path is kept at the most; every program has room for as many.

    >>> most_stops(10_000), most_stops(50_000)
    (8, 2)
    """
    return int(np.clip(MOST_KEPT // dimension, 1, MOST_STOPS))


def sample_path(plan: Plan, inputs: Inputs, schedule: Schedule, words: jax.Array) -> PathEnd:
    """One sample of the level that the schedule describes; `words` are those of its phases."""
    walk, coupling = Walk(plan, inputs, schedule), plan.coupling
    d, dtype = plan.target.dimension, np.dtype(plan.dtype)
    solo_key, joint_key, start_key = (phase_key(words, phase) for phase in range(PHASES))
    size = vectors_of(plan.dynamics) * d
    start = path_normals(start_key, size, dtype) if plan.laplace else jnp.zeros(size, dtype)
    nought = own_zero(words, dtype)
    zero = jnp.full(jax.eval_shape(walk.read, start).shape, nought)
    notes = jnp.full((most_stops(d), 1 + coupling.num_coarse, d), nought)

    still = jnp.full(noises_of(plan.dynamics) * d, nought)
    y = jnp.full(size, nought) if plan.control else ()
    none = zero if plan.control else ()
    nothing = Totals(zero, zero, zero, none, none)

    bits = walk.drawer.stretch_bits
    run = partial(run_steps, solo_key, draw=walk.draw_solo, body=walk.solo, bits=bits)
    legs = schedule.solo_steps, schedule.solo_stops, schedule.stride
    begin = Move(start, nought), start, y, nothing, still
    (fine, u, y, totals, last), notes = _run_with_stops(run, *legs, walk.note_solo, begin, notes)

    coarse = start_coarse(u if plan.laplace else start, coupling.num_coarse, fine.state)
    coarse_y = start_coarse_control(coupling.num_coarse, y) if plan.control else ()
    run = partial(run_steps, joint_key, draw=walk.draw_joint, body=walk.joint, bits=bits)
    legs = schedule.joint_steps, schedule.joint_stops, schedule.stride
    together = fine, coarse, u, (y, coarse_y), totals, last
    (fine, coarse, u, ys, totals, _), notes = _run_with_stops(run, *legs, walk.note_joint, together, notes)

    displace = jax.vmap(partial(displaced, plan, inputs))
    stops = jnp.maximum(schedule.solo_stops, schedule.joint_stops)
    points = jax.lax.fori_loop(jnp.int32(0), stops, lambda k, all: all.at[k].set(displace(all[k])), notes)
    distance = square_distance(plan, inputs, position(plan.dynamics, fine.state))
    steps = schedule.solo_steps + 2 * schedule.joint_steps
    reference = walk.read_laplace(u)
    ends = walk.read(fine.state) - reference, walk.read_coarse(coarse) - reference
    end = path_end(schedule, totals, *ends, distance, fine.strained / steps.astype(dtype), points)
    if not plan.control:
        return end
    controls = walk.read_control(u, ys[0]), walk.read_control(u, jnp.mean(ys[1], axis=0))
    return end._replace(control=control_end(schedule, totals, *controls))


def _run_with_stops(
    run: Callable[..., Any], num_steps: Any, stops: Any, stride: Any, note: Callable[[Any], Any], carry: Any, notes: Any
) -> tuple[Any, Any]:
    """All steps of a phase; notes[k] is what `note` says of the carry at the k-th of its stops, the last at its end."""

    def leg(k: jax.Array, state: Any) -> Any:
        begin, carry, notes = state
        end = num_steps - (stops - 1 - k) * stride
        carry = run(begin, end, carry=carry)
        return end, carry, notes.at[k].set(note(carry))

    _, carry, notes = jax.lax.fori_loop(jnp.int32(0), stops, leg, (jnp.int32(0), carry, notes))
    return carry, notes


def _moved(before: Move, step: Move) -> Move:
    return Move(step.state, before.strained + step.strained)


def own_zero(words: jax.Array, dtype: Any) -> jax.Array:
    """Zero, as a number of the path's own: a loop over many paths whose carry begins with what they share is traced
    again for whatever turns out to differ between them."""
    return (words[0, 0] & 0).astype(dtype)


def path_normals(key: jax.Array, count: int, dtype: Any) -> jax.Array:
    words = jax.random.bits(key, (count * words_per_normal(dtype),), jnp.uint32)
    return normals(words, np.dtype(dtype).type)


def start_coarse_control(num_coarse: int, fine: jax.Array) -> jax.Array:
    """Where the coarse paths' y begin: at nothing, as that of the fine path did when it began."""
    return jnp.zeros((num_coarse, *fine.shape), fine.dtype)


def start_coarse(start: jax.Array, num_coarse: int, fine: jax.Array) -> jax.Array:
    """Where the coarse paths begin: at a point with the fine path's start law, never where its shift has led it."""
    return jnp.stack([start] * num_coarse)
