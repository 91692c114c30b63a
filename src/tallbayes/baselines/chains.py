"""Chains: what MALA and SGLD share, from checked counts to batch means and the result.

A chain theta_0, theta_1, ... with weights w_k (1 for MALA, the step size h_k for SGLD) estimates

    m = sum_k w_k g(theta_k) / sum_k w_k

Each chain is cut into 32 batches of equal weight, which must be longer than its memory for the error to be
right. With r_b = sum_{k in b} w_k (g(theta_k) - m) over all n batches of all chains,

    se^2 = n / (n - 1) sum_b r_b^2 / (sum_k w_k)^2,   effective sample size = Var g / se^2

Only sums leave the loop: memory does not grow with the number of steps, which is an argument of the program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.anchor.anchor import Anchor
from tallbayes.errors import InputError, explain
from tallbayes.estimator.estimands import Estimands, summarise
from tallbayes.estimator.estimates import Estimate
from tallbayes.model.model import Target
from tallbayes.model.observables import Observables
from tallbayes.moments import Floats, Moments
from tallbayes.sampler.couplings import Antithetic
from tallbayes.sampler.dynamics import Euler
from tallbayes.sampler.inputs import Inputs, make_inputs
from tallbayes.sampler.paths import Plan
from tallbayes.sampler.randomness import seed_words
from tallbayes.sampler.roles import GradientEstimator
from tallbayes.setup.preparation import Prepared
from tallbayes.views.text import table as align

BATCHES = 32
MOST_STEPS = 2**31 - 1
MOST_CHAINS = 2**20
MOST_LINES = 24


@dataclass(frozen=True, eq=False)
class ChainEstimate:
    """One quantity: its estimate, and the effective sample size in the shape of the quantity itself.

    The bias of MALA is 0; that of SGLD is not known, so that its interval is the whole line.
    """

    estimate: Estimate
    flat_effective_sample_size: Floats

    @property
    def value(self) -> Any:
        return self.estimate.value

    @property
    def standard_error(self) -> Any:
        """The statistical error alone: SGLD's bias is not in it."""
        return self.estimate.standard_error

    @property
    def effective_sample_size(self) -> Any:
        return self.estimate.structure.build(self.flat_effective_sample_size)


@dataclass(frozen=True, eq=False)
class ChainResult:
    """What a baseline returns; one evaluation is one row's gradient, the set-up passes stand apart.

    `step` is the step size that was used (MALA: after tuning), `acceptance` the accepted fraction after burn-in,
    None where every proposal is taken.
    """

    estimates: dict[str, ChainEstimate]
    method: str
    step: Any
    acceptance: float | None
    chains: int
    steps: int
    burn_in: int
    evaluations: int
    setup_evaluations: int
    num_data: int
    seconds: float
    anchor: Anchor = field(repr=False)

    def __getitem__(self, name: str) -> ChainEstimate:
        return self.estimates[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.estimates)

    def __len__(self) -> int:
        return len(self.estimates)

    @property
    def epochs(self) -> float:
        """Evaluations in passes over the data, set-up apart."""
        return self.evaluations / self.num_data

    @property
    def diverged(self) -> bool:
        """Whether a chain left for infinity, so that some value is not a number."""
        return not all(np.all(np.isfinite(each.estimate.flat_value)) for each in self.estimates.values())

    def __str__(self) -> str:
        acceptance = "" if self.acceptance is None else f", acceptance {self.acceptance:.3f}"
        step = f"{self.step:.4g}" if isinstance(self.step, float) else repr(self.step)
        lines = [
            _quantities(self.estimates),
            "",
            f"chains: {self.chains} of {self.steps:,} steps, {self.burn_in:,} of them burn-in; step {step}{acceptance}",
            f"cost: {self.evaluations:,} row gradients ({self.epochs:.3g} epochs of {self.num_data:,} rows)"
            f" and {self.setup_evaluations:,} in set-up; {self.seconds:.2f} s",
            f"method: {self.method}",
        ]
        return "\n".join(lines + (["diverged: take a smaller step"] if self.diverged else []))


def _quantities(estimates: dict[str, ChainEstimate]) -> str:
    rows, hidden = [], 0
    for each in estimates.values():
        estimate = each.estimate
        columns = (estimate.flat_value, estimate.flat_standard_error, each.flat_effective_sample_size)
        lines = list(zip(estimate.structure.labels(estimate.name), *columns, strict=True))
        hidden += max(0, len(lines) - MOST_LINES)
        rows += [[label, f"{v:.6g}", f"{e:.2g}", f"{n:.3g}"] for label, v, e, n in lines[:MOST_LINES]]
    text = align(("quantity", "value", "std error", "effective samples"), rows)
    return text + (f"\n... and {hidden} more components" if hidden else "")


class Counts(NamedTuple):
    """How many steps, of which burn-in, of how many chains, from which seed."""

    steps: int
    burn_in: int
    chains: int
    seed: int

    @property
    def points(self) -> int:
        """Points that enter the estimate."""
        return self.chains * (self.steps - self.burn_in)


class ChainSums(NamedTuple):
    """Weighted sums over a stretch of all chains: of 1, of what is read, and of its squares and paired products."""

    weight: Any
    first: Any
    second: Any


def make_reader(target: Target, observables: Observables, inputs: Inputs) -> tuple[Callable[..., ChainSums], jax.Array]:
    """read(states, weight) of all chains at one time, and the values at the mode that it takes off.

    Differences from the mode are squared and summed in float64: raw second moments of a quantity that is large
    beside its own spread would cancel.
    """
    d = target.structure.size if observables.moments else 0
    mode, units = inputs.centre.mode, inputs.units
    origin = observables.values(target, mode, jnp.zeros_like(mode), units)

    def read(states: jax.Array, weight: jax.Array) -> ChainSums:
        values = jax.vmap(lambda state: observables.values(target, mode, state, units))(states)
        first = (values - origin).astype(jnp.float64)
        second = jnp.concatenate([first**2, first[:, :d] * first[:, d : 2 * d]], axis=1)
        return ChainSums(weight, weight * first, weight * second)

    return read, origin


def accumulate(advance: Callable[[Any, Any], tuple[Any, Any]], begin: Any, edges: jax.Array) -> tuple[Any, Any]:
    """Take steps edges[0] .. edges[-1] - 1 and add up, between edges, what each step gives beside the next state.

    The first stretch is the burn-in; its sums come out like the others.
    """

    def stretch(state: Any, bounds: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
        def take(k: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
            state, given = advance(k, carry[0])
            return state, jax.tree.map(jnp.add, carry[1], given)

        given = jax.eval_shape(advance, bounds[0], state)[1]
        zero = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), given)
        return jax.lax.fori_loop(*bounds, take, (state, zero))

    return jax.lax.scan(stretch, begin, (edges[:-1], edges[1:]))


def batch_edges(burn_in: int, steps: int, offset: float = 1.0, power: float = 0.0) -> np.ndarray:
    """The burn-in and 32 batches of equal sum of weights (offset + k)^-power, one step at least, as 34 ends.

    Batches of equally many steps would leave the last ones, where the weights decrease, shorter than the memory
    of the chain.
    """
    first, last = offset + burn_in, offset + steps
    parts = np.arange(BATCHES + 1) / BATCHES
    if power == 1:
        ends = first * (last / first) ** parts
    else:
        rest = 1 - power
        ends = (first**rest + parts * (last**rest - first**rest)) ** (1 / rest)
    inner = np.maximum(np.floor(ends[:-1] - offset + 0.5), burn_in + np.arange(BATCHES))
    return np.r_[0, inner, steps].astype(np.int32)


@dataclass(frozen=True, eq=False)
class Chains:
    """Chains that are ready to run, and when they began to be."""

    prepared: Prepared
    estimands: Estimands
    counts: Counts
    started: float

    def run(self, program: Callable[..., Any], gradient: GradientEstimator, precision: str, *settings: Any) -> Any:
        """What a compiled program of chains returns, as NumPy arrays."""
        prepared, counts = self.prepared, self.counts
        # One chain is one path: there is no coarse path, so the coupling is never asked.
        plan = Plan(prepared.target, gradient, Euler(), Antithetic(), self.estimands.observables, precision)
        with jax.enable_x64(True):
            inputs = make_inputs(prepared.table, prepared.anchor, plan.dtype)
            return jax.tree.map(np.asarray, program(plan, counts.chains, inputs, seed_words(counts.seed), *settings))

    def result(self, sums: ChainSums, origin: Floats, bias: float, **facts: Any) -> ChainResult:
        """Of sums by stretch, the burn-in's left out; `facts` are the fields that a sampler knows itself."""
        kept = ChainSums(*(np.asarray(part[1:], np.float64) for part in sums))
        return ChainResult(
            estimates=_batch_estimates(self.estimands, kept, np.asarray(origin, np.float64), self.counts.points, bias),
            chains=self.counts.chains,
            steps=self.counts.steps,
            burn_in=self.counts.burn_in,
            setup_evaluations=self.prepared.setup_evaluations,
            num_data=self.prepared.table.num_rows,
            seconds=time.monotonic() - self.started,
            anchor=self.prepared.anchor,
            **facts,
        )


@np.errstate(invalid="ignore", over="ignore", divide="ignore")
def _batch_estimates(
    estimands: Estimands, sums: ChainSums, origin: Floats, num_points: int, bias: float
) -> dict[str, ChainEstimate]:
    """Values, errors and effective sizes from the sums by batch (32), chain and observable."""
    weight, first, second = sums
    mean = first.sum(axis=(0, 1)) / (weight.sum() * first.shape[1])
    deviations = (first - mean * weight[:, None, None]) * (len(weight) / weight.sum())
    batches = Moments.of((origin + mean + deviations).reshape(-1, len(mean)), estimands.pairs)
    raw = second.sum(axis=(0, 1)) / (weight.sum() * first.shape[1])
    by_batch = summarise(estimands, [batches])
    by_point = summarise(estimands, [_point_moments(estimands, mean, raw, origin, num_points)])
    square = by_batch.variance[0] / batches.count
    size = np.where(square > 0, by_point.variance[0] / square, float(num_points))
    # Standard error, bias bound, degrees of freedom and a tolerance that nobody asked for.
    errors = np.sqrt(square), *(np.full_like(square, each) for each in (bias, batches.count - 1, np.nan))
    parts = zip(*(estimands.split(part).values() for part in (by_batch.value, *errors, size)), strict=True)
    return {
        q.name: ChainEstimate(Estimate(q.name, q.structure, *arrays), own_size)
        for q, (*arrays, own_size) in zip(estimands.quantities, parts, strict=True)
    }


def _point_moments(estimands: Estimands, mean: Floats, raw: Floats, origin: Floats, count: int) -> Moments:
    """Moments of single points from raw ones about the mode; the third and fourth are not asked for."""
    one, two = np.array(estimands.pairs, np.intp).reshape(-1, 2).T
    variance = np.maximum(raw[: len(mean)] - mean**2, 0.0)
    covariance = raw[len(mean) :] - mean[one] * mean[two]
    nothing = np.zeros_like(mean)
    sums = ((count - 1) * variance, nothing, nothing)
    return Moments(count, origin + mean, *sums, estimands.pairs, (count - 1) * covariance)


def check_counts(steps: Any, burn_in: Any, chains: Any, seed: Any) -> Counts:
    """Refuse counts that are no whole numbers or that leave less than one step a batch."""
    bounds = {"steps": (1, MOST_STEPS), "burn_in": (0, MOST_STEPS), "chains": (1, MOST_CHAINS), "seed": (0, 2**64 - 1)}
    given = {"steps": steps, "burn_in": burn_in, "chains": chains, "seed": seed}
    for name, value in given.items():
        least, most = bounds[name]
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not least <= value <= most:
            raise InputError(explain(f"{name} a whole number in {least}..{most}", repr(value), f"{name}={least}"))
    if steps - burn_in < BATCHES:
        raise InputError(
            explain(
                f"at least {BATCHES} steps after burn-in, one a batch (`steps` counts the burn-in)",
                f"steps={steps}, burn_in={burn_in}",
                f"steps={burn_in + 10_000}",
            )
        )
    return Counts(*map(int, given.values()))


def require_positive(name: str, value: Any, hint: str) -> float:
    """A positive finite number as a float, or an InputError."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < np.inf:
        raise InputError(explain(f"{name} > 0", repr(value), hint))
    return float(value)
