"""Pairs: two paths on common noise and batches, started apart, and how fast they come together."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tallbayes.programs.later import jax, jnp
from tallbayes.sampler.draws import Draws, pick, run_steps
from tallbayes.sampler.dynamics import vectors_of
from tallbayes.sampler.gradients import whitened_remainder
from tallbayes.sampler.inputs import Inputs
from tallbayes.sampler.paths import (
    Plan,
    displaced,
    make_drawer,
    make_expand,
    make_gather,
    make_step,
    path_normals,
    square_distance,
)
from tallbayes.sampler.randomness import phase_key

# Where the two start, and how they go on.
PHASES_OF_A_PAIR = 2
# Where, and on which rows.
PHASES_OF_A_REMAINDER = 2


def sample_pair(
    plan: Plan, inputs: Inputs, stride: Any, coefficients: Any, spread: jax.Array, words: jax.Array
) -> jax.Array:
    """Squared whitened distances of two paths on common noise and batches, at 0, 1, 2 and 3 strides, and then the same
    of every parameter at each of these times, where there is a dense Hessian. Where paths have a velocity both count.

    The two start independently from Laplace's approximation, `spread` times as wide.
    """
    d, dtype = plan.target.dimension, np.dtype(plan.dtype)
    step, drawer = make_step(plan, inputs), make_drawer(plan, inputs)
    gather_batches, expand = make_gather(plan, inputs), make_expand(plan, inputs)
    start_key, run_key = (phase_key(words, phase) for phase in range(PHASES_OF_A_PAIR))
    vectors = vectors_of(plan.dynamics)
    starts = spread * path_normals(start_key, 2 * vectors * d, dtype).reshape(2, vectors * d)
    if not plan.dynamics.whitened:
        starts = jax.vmap(inputs.centre.move)(starts)

    def advance(index: jax.Array, draws: Draws, states: jax.Array) -> jax.Array:
        batch = pick(expand(gather_batches(draws.index)), 0)
        return jax.vmap(lambda state: step(coefficients, state, draws.noise[0], batch).state)(states)

    def apart(states: jax.Array) -> jax.Array:
        return jnp.sum(jax.vmap(far)((states[0] - states[1]).reshape(vectors, d)), axis=0)

    def far(between: jax.Array) -> jax.Array:
        move = displaced(plan, inputs, between)
        whole = square_distance(plan, inputs, between)[None]
        return whole if not inputs.centre.is_whole else jnp.concatenate([whole, move**2])

    def stretch(states: jax.Array, number: jax.Array) -> Any:
        here = jax.random.fold_in(run_key, number)
        draw, bits = partial(drawer.draw, number=1), drawer.stretch_bits
        states = run_steps(here, jnp.int32(0), stride, draw, advance, states, bits)
        return states, apart(states)

    _, distances = jax.lax.scan(stretch, starts, jnp.arange(3, dtype=jnp.int32))
    found = jnp.concatenate([apart(starts)[None], distances])
    return jnp.concatenate([found[:, 0], found[:, 1:].ravel()])


def sample_remainder(plan: Plan, inputs: Inputs, words: jax.Array) -> jax.Array:
    """u, r(u) and r(-u) by one batch, (3, d): what a control is made of where the Gaussian's averages are not known."""
    d, dtype = plan.target.dimension, np.dtype(plan.dtype)
    drawer, expand, gather_batches = make_drawer(plan, inputs), make_expand(plan, inputs), make_gather(plan, inputs)
    start_key, batch_key = (phase_key(words, phase) for phase in range(PHASES_OF_A_REMAINDER))
    u = path_normals(start_key, d, dtype)
    draws = pick(drawer.draw(batch_key, 1, number=1), 0)
    batch = pick(expand(gather_batches(draws.index)), 0)
    both = jax.vmap(lambda z: whitened_remainder(plan.target, plan.gradient, inputs, z, batch))(jnp.stack([u, -u]))
    return jnp.concatenate([u[None], both])
