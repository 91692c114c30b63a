"""BlackJAX's MALA, NUTS and SGLD, the last with plain minibatches and with control variates.

    theta = mode + A u,   A A' = precision^-1

All but NUTS, which takes precision^-1 as its mass matrix, run in the whitened u. There is one chain a core, up to
`MOST_CHAINS`, each on a host device of its own where JAX has not started yet, and each starts at the mode. Log
densities are sums over rows of differences from the mode, which float32 can hold however many rows there are.

SGLD has no acceptance to tune its step by. With gradient noise of variance v in u, the chain of a Gaussian posterior

    u' = (1 - h) u + h v^(1/2) noise + (2 h)^(1/2) noise   has the variance   (2 + h v) / (2 - h)

and h is chosen for it to be too large by a share: 2% with control variates, which makes sds 1% too wide, the accuracy
that is judged; 10% with plain minibatches, whose chains would otherwise not leave the mode in the time there is. Of
SGLD, `VECTORISED` chains run on each device: a single one spends its time between operations.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import jax

MOST_CHAINS = 4
# Importing blackjax starts JAX, which has to be told of its devices before that; elsewhere there is one chain.
with suppress(RuntimeError):
    jax.config.update("jax_num_cpu_devices", min(MOST_CHAINS, os.cpu_count() or 1))

import blackjax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from blackjax.adaptation.step_size import dual_averaging_adaptation  # noqa: E402
from blackjax.sgmcmc import gradients  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402

from .contract import Answer, Contestant, Cost, Effort, Posterior, Stopwatch  # noqa: E402
from .drawing import answer_from_draws, chunk_size, draw_until  # noqa: E402

MALA_TARGET, MALA_WARM_UP = 0.574, 500
NUTS_TARGET, NUTS_WARM_UP = 0.8, 150
STRIDE_ITEMS, SHORTEST, LONGEST = 2e7, 10, 500
LEAST_BATCH, MOST_BATCH, BATCH_SHARE = 100, 1_000, 100
PLAIN_EXCESS, CONTROLLED_EXCESS, PILOT_POINTS = 0.1, 0.02, 64
VECTORISED, KEPT_TIME, SGLD_STRIDE, BURN_IN = 4, 0.1, 20, 2

Density = Callable[[Any, Any], Any]
Step = Callable[[Any, Any, Any, Any], tuple[Any, tuple[Any, Any]]]


def whitening(posterior: Posterior) -> np.ndarray:
    """A, lower triangular, in float64."""
    return np.linalg.cholesky(np.linalg.inv(np.asarray(posterior.precision, np.float64)))


def data_of(posterior: Posterior) -> tuple[Any, Any]:
    return jnp.asarray(posterior.x, jnp.float32), jnp.asarray(posterior.y, jnp.float32)


def chain_count() -> int:
    return min(MOST_CHAINS, jax.local_device_count())


def centred_density(posterior: Posterior, data: tuple[Any, Any]) -> tuple[Density, tuple[Any, Any, Any]]:
    """log pi(theta) - log pi(mode), row by row, as a function of theta and of the rows with their value at the mode."""
    mode = jnp.asarray(posterior.mode, jnp.float32)
    rows = (*data, jax.jit(posterior.log_likelihood)(mode, *data))

    def log_density(theta: Any, rows: tuple[Any, Any, Any]) -> Any:
        x, y, at_mode = rows
        return posterior.log_prior(theta) + jnp.sum(posterior.log_likelihood(theta, x, y) - at_mode)

    return log_density, rows


class Chains:
    """Chains that run in parallel with keys of their own; rows are arguments, one copy for all of them.

    `step(key, state, parameter, rows)` gives a state and what is kept of it; the parameter is one number a chain.
    """

    def __init__(self, step: Step, states: list[Any], rows: Any, stride: int, seed: int) -> None:
        number, self.stride = len(states), stride
        mesh = Mesh(np.array(jax.local_devices()[:number]), ("chain",))
        each, everywhere = PartitionSpec("chain"), PartitionSpec()
        self._rows = jax.device_put(rows, NamedSharding(mesh, everywhere))
        self._keys = jax.random.split(jax.random.PRNGKey(seed), number)
        self.states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)

        def advance(keys: Any, states: Any, parameters: Any, rows: Any) -> Any:
            state, parameter = jax.tree.map(lambda leaf: leaf[0], (states, parameters))
            key, using = jax.random.split(keys[0])
            state, kept = jax.lax.scan(
                lambda state, key: step(key, state, parameter, rows), state, jax.random.split(using, stride)
            )
            return jax.tree.map(lambda leaf: leaf[None], (key, state, kept))

        self._advance = jax.jit(
            jax.shard_map(advance, mesh=mesh, in_specs=(each, each, each, everywhere), out_specs=each, check_vma=False)
        )

    def draw(self, parameters: Any, strides: int = 1) -> Any:
        """What is kept of so many strides: arrays (chains, strides * stride, ...)."""
        parts = []
        for _ in range(strides):
            self._keys, self.states, kept = self._advance(self._keys, self.states, parameters, self._rows)
            parts.append(jax.device_get(kept))
        return jax.tree.map(lambda *arrays: np.concatenate(arrays, axis=1), *parts)


def tuned_chains(
    kernel: Callable[[Any, Any, Any, Any], tuple[Any, Any, Any]],
    start: Any,
    rows: Any,
    target: float,
    first: float,
    number: int,
    stride: int,
    seed: int,
) -> tuple[Chains, Callable[[], Any]]:
    """Chains of `kernel(key, state, step_size, rows)`, which gives a state, its acceptance and what is kept.

    Their parameter is 1 while the step size of each is tuned by dual averaging and 0 once it stays at the average; the
    second value tells the step sizes.
    """
    init, update, final = dual_averaging_adaptation(target)

    def step(key: Any, state: Any, tuning: Any, rows: Any) -> tuple[Any, Any]:
        inner, averaging = state
        size = jnp.where(tuning > 0, jnp.exp(averaging.log_step_size), final(averaging))
        inner, acceptance, kept = kernel(key, inner, size, rows)
        moved = update(averaging, acceptance)
        averaging = jax.tree.map(lambda new, old: jnp.where(tuning > 0, new, old), moved, averaging)
        return (inner, averaging), kept

    states = [(start, jax.tree.map(jnp.float32, init(first)))] * number
    chains = Chains(step, states, rows, stride, seed)
    return chains, lambda: np.asarray(jax.vmap(final)(chains.states[1]))


def stride_of(items: float) -> int:
    """Draws in one call of the compiled program, by the data items that a draw takes."""
    return int(np.clip(STRIDE_ITEMS / items, SHORTEST, LONGEST))


def adjusted(
    posterior: Posterior,
    effort: Effort,
    stopwatch: Stopwatch,
    make: Callable[[], tuple[Chains, Callable[[], Any]]],
    read: Callable[[Any], tuple[np.ndarray, float]],
    warm_up: int,
    settings: dict[str, Any],
) -> Answer:
    """Tune the step, then draw; `read` makes draws of theta and their data items of what was kept."""
    with stopwatch.timed() as starting:
        chains, step_sizes = make()
        number = len(chains.states[1].log_step_size)
        _, items = read(chains.draw(jnp.ones(number)))
    further = max(1, -(-warm_up // chains.stride) - 1)
    with stopwatch.timed() as tuning:
        _, more = read(chains.draw(jnp.ones(number), further))
    gifts = Cost((posterior.newton_passes + 2) * posterior.num_rows, posterior.newton_seconds)
    setup = Cost(gifts.items + items + more, gifts.seconds + starting() + tuning())
    strides = max(1, chunk_size(tuning() / (further * chains.stride), effort) // chains.stride)
    draws, items, seconds = draw_until(lambda _: read(chains.draw(jnp.zeros(number), strides)), effort, stopwatch)
    settings |= {
        "chains": f"{number} in parallel",
        "start": "mode",
        "warm-up": f"{(1 + further) * chains.stride} a chain, step size only, by dual averaging",
        "step sizes": np.round(step_sizes(), 4).tolist(),
        "float": "float32",
        "blackjax": blackjax.__version__,
    }
    return answer_from_draws(draws, setup, Cost(items, seconds), stopwatch, settings)


def mala(posterior: Posterior, effort: Effort) -> Answer:
    """Whitened, the step tuned to the acceptance that is best in many dimensions: a draw costs N."""
    number, stopwatch, scale = chain_count(), Stopwatch(), whitening(posterior)
    mode, matrix = jnp.asarray(posterior.mode, jnp.float32), jnp.asarray(scale, jnp.float32)
    kernel = blackjax.mala.build_kernel()

    def make() -> tuple[Chains, Callable[[], Any]]:
        log_density, rows = centred_density(posterior, data_of(posterior))

        def whitened(rows: Any, u: Any) -> Any:
            return log_density(mode + matrix @ u, rows)

        def move(key: Any, state: Any, size: Any, rows: Any) -> Any:
            state, info = kernel(key, state, partial(whitened, rows), size)
            return state, info.acceptance_rate, state.position

        start = jax.jit(lambda rows: blackjax.mala.init(jnp.zeros_like(mode), partial(whitened, rows)))(rows)
        first = 0.1 * posterior.dimension ** (-1 / 3)
        stride = stride_of(posterior.num_rows)
        return tuned_chains(move, start, rows, MALA_TARGET, first, number, stride, effort.seed)

    def read(u: np.ndarray) -> tuple[np.ndarray, float]:
        draws = posterior.mode + u.astype(np.float64) @ scale.T
        return draws.astype(np.float32), float(u[..., 0].size * posterior.num_rows)

    settings = {"whitened": "by the precision at the mode (a gift)", "target acceptance": MALA_TARGET}
    return adjusted(posterior, effort, stopwatch, make, read, MALA_WARM_UP, settings)


def nuts(posterior: Posterior, effort: Effort) -> Answer:
    """A draw costs N for every leapfrog step."""
    number, stopwatch = chain_count(), Stopwatch()
    mode = jnp.asarray(posterior.mode, jnp.float32)
    covariance = jnp.asarray(np.linalg.inv(np.asarray(posterior.precision, np.float64)), jnp.float32)
    kernel = blackjax.nuts.build_kernel()

    def make() -> tuple[Chains, Callable[[], Any]]:
        log_density, rows = centred_density(posterior, data_of(posterior))

        def centred(rows: Any, shift: Any) -> Any:
            return log_density(mode + shift, rows)

        def move(key: Any, state: Any, size: Any, rows: Any) -> Any:
            state, info = kernel(key, state, partial(centred, rows), size, covariance)
            return state, info.acceptance_rate, (state.position, info.num_integration_steps)

        start = jax.jit(lambda rows: blackjax.nuts.init(jnp.zeros_like(mode), partial(centred, rows)))(rows)
        stride = stride_of(10 * posterior.num_rows)
        return tuned_chains(move, start, rows, NUTS_TARGET, 0.1, number, stride, effort.seed)

    def read(kept: Any) -> tuple[np.ndarray, float]:
        shift, steps = kept
        draws = posterior.mode + shift.astype(np.float64)
        return draws, float(steps.sum(dtype=np.float64)) * posterior.num_rows

    settings = {
        "mass matrix": "dense, inverse = inverse of the precision at the mode (a gift), not adapted",
        "target acceptance": NUTS_TARGET,
    }
    return adjusted(posterior, effort, stopwatch, make, read, NUTS_WARM_UP, settings)


def batch_size(num_rows: int) -> int:
    return min(num_rows, int(np.clip(num_rows / BATCH_SHARE, LEAST_BATCH, MOST_BATCH)))


def choose_batch(key: Any, data: tuple[Any, Any], size: int) -> tuple[Any, Any]:
    """Rows with replacement."""
    chosen = jax.random.randint(key, (size,), 0, len(data[1]))
    return data[0][chosen], data[1][chosen]


def gradient_noise(estimator: Callable, data: tuple[Any, Any], dimension: int, size: int, seed: int) -> float:
    """The variance of a gradient's worst component, from two batches at each of some points of the Gaussian."""

    @jax.jit
    def differences(data: tuple[Any, Any]) -> Any:
        def difference(key: Any) -> Any:
            point, one, other = jax.random.split(key, 3)
            u = jax.random.normal(point, (dimension,))
            return estimator(u, choose_batch(one, data, size)) - estimator(u, choose_batch(other, data, size))

        return jax.lax.map(difference, jax.random.split(jax.random.PRNGKey(seed), PILOT_POINTS))

    return float(np.max(np.mean(np.asarray(differences(data), np.float64) ** 2, axis=0)) / 2)


def stochastic(posterior: Posterior, effort: Effort, controlled: bool) -> Answer:
    """SGLD in u at a constant step; a step costs its batch, of which control variates compute two gradients."""
    number, stopwatch, scale = chain_count(), Stopwatch(), whitening(posterior)
    mode, matrix = jnp.asarray(posterior.mode, jnp.float32), jnp.asarray(scale, jnp.float32)
    num_rows, dimension, size = posterior.num_rows, posterior.dimension, batch_size(posterior.num_rows)

    def log_prior(u: Any) -> Any:
        return posterior.log_prior(mode + matrix @ u)

    def log_likelihood(u: Any, row: tuple[Any, Any]) -> Any:
        return posterior.log_likelihood(mode + matrix @ u, row[0][None], row[1][None])[0]

    estimator = gradients.grad_estimator(log_prior, log_likelihood, num_rows)
    with stopwatch.timed() as piloting:
        data = data_of(posterior)
        if controlled:
            estimator = gradients.control_variates(jax.jit(estimator), jnp.zeros(dimension), data)
        variance = gradient_noise(estimator, data, dimension, size, effort.seed)
    excess = CONTROLLED_EXCESS if controlled else PLAIN_EXCESS
    step_size = 2 * excess / (variance + 1 + excess)
    every = max(1, int(KEPT_TIME / step_size))
    sgld = blackjax.sgld(estimator)

    def move(key: Any, u: Any, step_size: Any, data: tuple[Any, Any]) -> tuple[Any, Any]:
        def one(key: Any, u: Any) -> Any:
            batch, noise = jax.random.split(key)
            return sgld.step(noise, u, choose_batch(batch, data, size), step_size)

        def all_of_device(number: Any, u: Any) -> Any:
            return jax.vmap(one)(jax.random.split(jax.random.fold_in(key, number), VECTORISED), u)

        u = jax.lax.fori_loop(0, every, all_of_device, u)
        return u, u

    step_sizes = jnp.full(number, step_size, jnp.float32)
    with stopwatch.timed() as starting:
        chains = Chains(move, [jnp.zeros((VECTORISED, dimension))] * number, data, SGLD_STRIDE, effort.seed)
        chains.draw(step_sizes)
    with stopwatch.timed() as settling:
        chains.draw(step_sizes, BURN_IN - 1)
    stride_items = float(number * VECTORISED * SGLD_STRIDE * every * size)
    setup = Cost(
        (posterior.newton_passes + controlled) * num_rows + 2 * PILOT_POINTS * size + BURN_IN * stride_items,
        posterior.newton_seconds + piloting() + starting() + settling(),
    )
    strides = max(1, chunk_size(settling() / ((BURN_IN - 1) * SGLD_STRIDE), effort) // SGLD_STRIDE)

    def chunk(_: int) -> tuple[np.ndarray, float]:
        u = np.moveaxis(chains.draw(step_sizes, strides), 1, 2).reshape(number * VECTORISED, -1, dimension)
        draws = posterior.mode + u.astype(np.float64) @ scale.T
        return draws.astype(np.float32), strides * stride_items

    draws, items, seconds = draw_until(chunk, effort, stopwatch)
    settings = {
        "whitened": "by the precision at the mode (a gift)",
        "gradient": "control variates at the mode" if controlled else "plain minibatch",
        "batch": f"{size} rows with replacement",
        "step": f"{step_size:.2e}, for sds {excess / 2:.0%} too wide by the measured noise {variance:.3g}",
        "burn-in": f"{BURN_IN * SGLD_STRIDE * every} steps a chain",
        "kept": f"every {every} steps",
        "chains": f"{number} in parallel of {VECTORISED} vectorised ones",
        "start": "mode",
        "float": "float32",
        "blackjax": blackjax.__version__,
    }
    return answer_from_draws(draws, setup, Cost(items, seconds), stopwatch, settings)


CONTESTANTS: dict[str, Contestant] = {
    "BlackJAX MALA": mala,
    "BlackJAX NUTS": nuts,
    "BlackJAX SGLD": partial(stochastic, controlled=False),
    "BlackJAX SGLD with control variates": partial(stochastic, controlled=True),
}
