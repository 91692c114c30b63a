"""SGLD: stochastic-gradient Langevin dynamics on one level, with any gradient estimator and minibatch law.

    theta_{k+1} = theta_k + h_k grad^(theta_k, tau_k) + sqrt(2 h_k) xi_k

The estimate weights theta_k by the step that leaves it, sum_k h_k g(theta_k) / sum_k h_k. A fixed step leaves a
bias of order h; steps that decrease like k^-1/3 balance bias and variance (Teh, Thiéry and Vollmer).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.anchor.anchor import Anchor
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
from tallbayes.errors import InputError, MethodError, explain
from tallbayes.estimator.estimands import resolve_tolerances
from tallbayes.model.model import Model
from tallbayes.sampler.draws import gather, pick
from tallbayes.sampler.gradients import evaluations_per_step
from tallbayes.sampler.inputs import Inputs
from tallbayes.sampler.paths import Plan, make_drawer, make_expand, make_step
from tallbayes.sampler.randomness import path_key
from tallbayes.sampler.roles import GradientEstimator
from tallbayes.setup.preparation import check_data, prepare, refine_precision
from tallbayes.setup.quantities import make_estimands

SGLD_STREAM = 3
# The finest error, in posterior sds, that decides on the chains' precision as in `tallbayes.estimate`.
RESOLUTION = 0.01


@dataclass(frozen=True)
class Decreasing:
    """Step sizes h_k = scale (offset + k)^-power, k = 0, 1, ...; the power 1/3 balances bias and variance.

    >>> Decreasing(scale=0.01, offset=10.0, power=0.5)
    Decreasing(scale=0.01, offset=10.0, power=0.5)
    """

    scale: float
    offset: float = 1.0
    power: float = 1 / 3

    def __post_init__(self) -> None:
        require_positive("scale", self.scale, "the step size times offset ** power")
        require_positive("offset", self.offset, "offset=1.0")
        if not 0 < require_positive("power", self.power, "power=1/3") <= 1:
            raise InputError(explain("power in (0, 1]", repr(self.power), "power=1/3"))


def sgld(
    model: Model,
    data: Any,
    quantities: Mapping[str, Callable[[Any], Any]] | Sequence[str] | None = None,
    *,
    gradient: GradientEstimator,
    step: float | Decreasing,
    steps: int,
    burn_in: int = 0,
    chains: int = 1,
    seed: int = 0,
    anchor: Anchor | None = None,
) -> ChainResult:
    """Posterior expectations by SGLD, started at the mode; `steps` counts the burn-in.

    Standard errors are statistical: the bias of the step size and of the gradient's noise is not in them. A step
    costs the gradient's batch size, or N for Full, a chain.

    >>> import numpy as np, tallbayes as tb
    >>> y = np.random.default_rng(0).normal(1.0, 1.0, 50)
    >>> rows = {"x": np.ones((50, 1)), "y": y}
    >>> model, gradient = tb.families.linear(noise_scale=1.0), tb.ControlVariate(batch_size=5)
    >>> result = tb.baselines.sgld(model, rows, gradient=gradient, step=0.002, steps=5_000)
    >>> result.evaluations, result.epochs
    (25000, 500.0)
    """
    started = time.monotonic()
    counts = check_counts(steps, burn_in, chains, seed)
    schedule = schedule_of(step)
    arrays = check_data(model, data)
    _require_gradient(gradient, len(jax.tree.leaves(arrays)[0]))
    shuffle = gradient.batch_size is not None and gradient.sampling.reads_neighbours
    prepared = prepare(model, arrays, None, shuffle, anchor)
    estimands = make_estimands(quantities, prepared.target, prepared.anchor, prepared.table.units)
    prepared = refine_precision(prepared, estimands, resolve_tolerances("tolerance", RESOLUTION, estimands))
    ready = Chains(prepared, estimands, counts, started)
    edges = batch_edges(counts.burn_in, counts.steps, offset=schedule[1], power=schedule[2])
    sums, origin = ready.run(_run, gradient, prepared.precision, edges, schedule)
    return ready.result(
        sums,
        origin,
        bias=np.inf,
        method=f"sgld({gradient!r})",
        step=step if isinstance(step, Decreasing) else float(step),
        acceptance=None,
        evaluations=counts.chains * counts.steps * evaluations_per_step(gradient, prepared.table.num_rows),
    )


def schedule_of(step: Any) -> np.ndarray:
    """Scale, offset and power of h_k; a fixed step is the power 0."""
    if isinstance(step, Decreasing):
        return np.array([step.scale, step.offset, step.power])
    return np.array([require_positive("step", step, "0.1 / (largest curvature at the mode)"), 1.0, 0.0])


@partial(jax.jit, static_argnums=(0, 1))
def _run(
    plan: Plan, chains: int, inputs: Inputs, seed: Any, edges: Any, schedule: jax.Array
) -> tuple[ChainSums, jax.Array]:
    """Sums by stretch, and the values at the mode."""
    step, drawer, expand = make_step(plan, inputs), make_drawer(plan, inputs), make_expand(plan, inputs)
    read, origin = make_reader(plan.target, plan.observables, inputs)
    keys = jax.vmap(lambda chain: path_key(seed, SGLD_STREAM, chain))(jnp.arange(chains, dtype=jnp.uint32))
    scale, offset, power = schedule

    def advance(k: jax.Array, states: jax.Array) -> tuple[jax.Array, ChainSums]:
        h = scale * (offset + k) ** -power
        coefficients = jnp.stack([h, jnp.sqrt(2 * h)]).astype(plan.dtype)

        def move(key: jax.Array, state: jax.Array) -> jax.Array:
            noise, index, _ = pick(drawer.draw(jax.random.fold_in(key, k), length=1, number=1), 0)
            batches = expand(gather(inputs.rows, index))
            return step(coefficients, state, noise[0], pick(batches, 0)).state

        return jax.vmap(move)(keys, states), read(states, h)

    start = jnp.zeros((chains, plan.target.dimension), plan.dtype)
    _, sums = accumulate(advance, start, edges)
    return sums, origin


def _require_gradient(gradient: Any, num_rows: int) -> None:
    members = ("batch_size", "sampling", "controls")
    if isinstance(gradient, type) or not all(hasattr(gradient, member) for member in members):
        raise MethodError(
            explain(
                "a gradient estimator: Full, Plain, ControlVariate, Taylor or Blend",
                repr(gradient),
                "tb.ControlVariate(batch_size=10)",
            )
        )
    if gradient.batch_size is not None:
        gradient.sampling.check(gradient.batch_size, num_rows)
