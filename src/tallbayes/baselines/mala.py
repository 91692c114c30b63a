"""MALA: the Metropolis-adjusted Langevin algorithm, exact and paying all N rows a step.

    theta' = theta + h grad log pi(theta | X) + sqrt(2h) xi,   q(b | a) ~ exp(-|b - a - h grad(a)|^2 / 4h)

is accepted with probability min(1, pi(theta') q(theta | theta') / pi(theta) q(theta' | theta)). In burn-in h moves
by Robbins and Monro's rule towards the acceptance a* that is best for long chains,

    log h_{k+1} = log h_k + (k + 1)^-0.6 (a_k - a*)

and is then frozen at its geometric mean over the second half. All chains share it. Everything is float64.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.anchor.sums import likelihood_sums
from tallbayes.baselines.chains import (
    ChainResult,
    Chains,
    ChainSums,
    accumulate,
    batch_edges,
    check_counts,
    make_reader,
    require_positive,
)
from tallbayes.errors import InputError, explain
from tallbayes.model.model import Model
from tallbayes.sampler.gradients import Full
from tallbayes.sampler.inputs import Inputs
from tallbayes.sampler.paths import Plan, make_drawer
from tallbayes.sampler.randomness import path_key
from tallbayes.setup.preparation import check_data, prepare
from tallbayes.setup.quantities import make_estimands

MALA_STREAM = 2
GAIN_POWER = 0.6
GAUSSIAN_STEP = 1.36


def mala(
    model: Model,
    data: Any,
    quantities: Mapping[str, Callable[[Any], Any]] | Sequence[str] | None = None,
    *,
    steps: int = 10_000,
    burn_in: int = 1_000,
    target_acceptance: float = 0.574,
    chains: int = 1,
    seed: int = 0,
    step: float | None = None,
    anchor: Anchor | None = None,
) -> ChainResult:
    """Posterior expectations by MALA, started at the mode; `steps` counts the burn-in.

    Tuning starts from `step`, or from what suits a Gaussian with the mode's curvatures; with burn_in=0 that step
    is kept. A step costs N evaluations a chain, the start N for all chains together.

    >>> import numpy as np, tallbayes as tb
    >>> y = np.random.default_rng(0).normal(1.0, 1.0, 50)
    >>> rows = {"x": np.ones((50, 1)), "y": y}
    >>> result = tb.baselines.mala(tb.families.linear(noise_scale=1.0), rows, steps=2_000)
    >>> abs(result["mean"].value[0] - y.sum() / 51) < 5 * result["mean"].standard_error[0]
    np.True_
    """
    started = time.monotonic()
    counts = check_counts(steps, burn_in, chains, seed)
    if not require_positive("target_acceptance", target_acceptance, "0.574") < 1:
        raise InputError(explain("target_acceptance < 1", repr(target_acceptance), "0.574"))
    if step is not None:
        require_positive("step", step, "step=None to start from the curvature at the mode")
    arrays = check_data(model, data)
    prepared = prepare(model, arrays, _lossless(arrays), False, anchor)
    first_step = _gaussian_step(prepared.anchor) if step is None else float(step)
    estimands = make_estimands(quantities, prepared.target, prepared.anchor, prepared.table.units)
    ready = Chains(prepared, estimands, counts, started)
    settings = batch_edges(counts.burn_in, counts.steps), np.log(first_step), np.float64(target_acceptance)
    sums, accepted, origin, log_step = ready.run(_run, Full(), "float64", *settings)
    return ready.result(
        sums,
        origin,
        bias=0.0,
        method=f"mala(target_acceptance={target_acceptance})",
        step=float(np.exp(log_step)),
        acceptance=float(accepted[1:].sum() / counts.points),
        evaluations=prepared.table.num_rows * (counts.chains * counts.steps + 1),
    )


def _gaussian_step(anchor: Anchor) -> float:
    """The h that accepts 0.574 of the proposals in a Gaussian of many dimensions and the mode's curvatures."""
    return float(GAUSSIAN_STEP * np.sum(anchor.curvatures**3) ** (-1 / 3))


def _lossless(arrays: Any) -> str:
    """The narrowest type that holds the rows as they came: tiles are promoted to float64 one at a time."""
    wide = any(array.dtype == np.float64 for array in jax.tree.leaves(arrays))
    return "float64" if wide else "float32"


class Point(NamedTuple):
    """A displacement v = theta - theta_0 with log pi(theta | X) and its gradient there."""

    state: jax.Array
    value: jax.Array
    gradient: jax.Array


class RobbinsMonro(NamedTuple):
    """log h of Robbins and Monro's rule, and its mean over the second half of the burn-in so far."""

    current: jax.Array
    average: jax.Array


@partial(jax.jit, static_argnums=(0, 1))
def _run(
    plan: Plan, chains: int, inputs: Inputs, seed: Any, edges: Any, log_step: Any, target_acceptance: Any
) -> tuple[ChainSums, jax.Array, jax.Array, jax.Array]:
    """Sums and acceptances by stretch, the values at the mode, and the frozen log h."""
    read, origin = make_reader(plan.target, plan.observables, inputs)
    keys = jax.vmap(lambda chain: path_key(seed, MALA_STREAM, chain))(jnp.arange(chains, dtype=jnp.uint32))
    burn_in, one = edges[1], jnp.ones((), jnp.float64)
    move = _make_move(plan, inputs)

    def advance(k: jax.Array, carry: tuple[Point, RobbinsMonro]) -> Any:
        points, tuning = carry
        log_step = jnp.where(k < burn_in, tuning.current, tuning.average)
        points, probability, accepted = jax.vmap(partial(move, k, log_step))(keys, points)
        tuning = _tune(tuning, k, burn_in, jnp.mean(probability) - target_acceptance)
        return (points, tuning), (read(points.state, one), jnp.sum(accepted, dtype=jnp.int64))

    start = _evaluate(plan, inputs, jnp.zeros_like(inputs.centre.mode))
    points = jax.tree.map(lambda part: jnp.broadcast_to(part, (chains, *part.shape)), start)
    (_, tuning), (sums, accepted) = accumulate(advance, (points, RobbinsMonro(log_step, log_step)), edges)
    return sums, accepted, origin, tuning.average


def _make_move(plan: Plan, inputs: Inputs) -> Callable[..., tuple[Point, jax.Array, jax.Array]]:
    """One proposal and its acceptance: the next point, the acceptance probability, whether it was taken."""
    drawer = make_drawer(plan, inputs)

    def move(k: jax.Array, log_step: jax.Array, key: jax.Array, here: Point) -> tuple[Point, jax.Array, jax.Array]:
        h = jnp.exp(log_step)
        noise_key, uniform_key = (jax.random.fold_in(jax.random.fold_in(key, k), part) for part in (0, 1))
        xi = drawer.draw(noise_key, length=1, number=1).noise[0, 0]
        there = _evaluate(plan, inputs, plan.dynamics.step((h, jnp.sqrt(2 * h)), here.state, here.gradient, xi))
        back = here.state - there.state - h * there.gradient
        log_ratio = there.value - here.value - back @ back / (4 * h) + xi @ xi / 2
        # A proposal where the density is not a number is refused.
        probability = jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))
        accepted = jax.random.uniform(uniform_key, (), jnp.float64) < probability
        return jax.tree.map(partial(jnp.where, accepted), there, here), probability, accepted

    return move


def _evaluate(plan: Plan, inputs: Inputs, state: jax.Array) -> Point:
    """The exact log posterior and its gradient in one pass over the rows."""
    theta = inputs.centre.mode + state
    value, gradient, _ = likelihood_sums(plan.target, inputs.rows, jnp.int32(0), inputs.num_rows, theta)
    prior_value, prior_gradient = jax.value_and_grad(plan.target.log_prior.call)(theta)
    return Point(state, prior_value + value, prior_gradient + gradient)


def _tune(tuning: RobbinsMonro, k: jax.Array, burn_in: jax.Array, excess: jax.Array) -> RobbinsMonro:
    """One step of Robbins and Monro's rule while k < burn_in, nothing afterwards."""
    current = tuning.current + (k + 1).astype(jnp.float64) ** -GAIN_POWER * excess
    count = jnp.maximum(k - burn_in // 2 + 1, 1)
    average = tuning.average + (current - tuning.average) / count
    return jax.tree.map(partial(jnp.where, k < burn_in), RobbinsMonro(current, average), tuning)
