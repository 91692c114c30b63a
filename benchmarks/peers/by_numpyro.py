"""NumPyro's NUTS, its HMC with energy conserving subsampling, and its variational Gaussians.

The Markov chains are NumPyro's kernels, advanced `STRIDE` draws at a time by one compiled program, of which the warm-up
is the first calls: `MCMC.run` compiles anew for every run of parallel chains. There is one chain a core, up to
`MOST_CHAINS`, each on a host device of its own: in results/nuts.json two parallel chains made 230 effective draws a
second, two vectorised ones 216, and one chain 147. The devices are asked for before JAX starts; where it has started
already there is one chain. All chains are given the Laplace covariance as mass matrix and adapt their step sizes only.

    HMCECS      log pi_m(theta) = log pi(theta) + q(theta) + N mean_{i in u} r_i(theta) - N^2 / (2 m) var_{i in u} r_i
                q the Taylor expansion of the log likelihood at the mode, r_i what it leaves of row i, u the subsample
    VI          theta = mode + A z,   z ~ N(loc, S),   the ELBO by all rows and one draw of z a step
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from numpyro.infer import HMCECS, NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

from .contract import Answer, Contestant, Cost, Effort, Posterior, Stopwatch
from .drawing import answer_from_draws, chunk_size, draw_until

MOST_CHAINS, STRIDE, WARM_UP, TARGET = 4, 50, 150, 0.8
ESTIMATOR_VARIANCE, LEAST_SUBSAMPLE, BLOCKS, PILOT_ROWS, PILOT_DRAWS, LARGEST_PROXY = 0.5, 50, 10, 5_000, 8, 4e9
TRIALS, LEAST_STEPS, MOST_STEPS, SVI_STRIDE, FIRST_RATE, LAST_RATE = 4, 1_000, 20_000, 100, 0.05, 1e-5


def _rows(posterior: Posterior) -> tuple[Any, Any]:
    return jnp.asarray(posterior.x, jnp.float32), jnp.asarray(posterior.y, jnp.float32)


def _covariance(posterior: Posterior) -> np.ndarray:
    return np.linalg.inv(np.asarray(posterior.precision, np.float64))


def _gift(posterior: Posterior) -> Cost:
    """What mode and precision cost when they were found."""
    return Cost(float(posterior.newton_passes * posterior.num_rows), posterior.newton_seconds)


def _chains() -> int:
    numpyro.set_host_device_count(min(MOST_CHAINS, os.cpu_count() or 1))
    return min(MOST_CHAINS, jax.local_device_count())


def _common_settings(chains: int) -> dict[str, Any]:
    return {
        "chains": f"{chains} in parallel",
        "start": "mode",
        "mass matrix": "dense, inverse = Laplace covariance (a gift), not adapted",
        "warm-up": f"{WARM_UP} a chain, step size only",
        "target acceptance": TARGET,
        "float": "float32",
        "numpyro": numpyro.__version__,
    }


def _kernel(model: Callable, posterior: Posterior) -> NUTS:
    covariance = jnp.asarray(_covariance(posterior), jnp.float32)
    return NUTS(
        model,
        dense_mass=True,
        inverse_mass_matrix={("theta",): covariance},
        adapt_mass_matrix=False,
        target_accept_prob=TARGET,
    )


def _prior(posterior: Posterior) -> Any:
    return numpyro.sample("theta", dist.Normal(0.0, 1.0).expand([posterior.dimension]).to_event(1))


class _Chains:
    """Chains of one kernel that run in parallel from one initial state with keys of their own.

    `read(state)` is what is kept of a draw: theta, and the rows whose likelihood or gradient it took.
    """

    def __init__(self, kernel: Any, start: Any, rows: tuple[Any, ...], read: Callable, seed: int, number: int) -> None:
        key, chain_key = jax.random.split(jax.random.PRNGKey(seed))
        init = partial(kernel.init, num_warmup=WARM_UP, model_args=rows, model_kwargs={})
        state = (init if isinstance(kernel, HMCECS) else jax.jit(init))(key, init_params=start)
        self.states = jax.vmap(partial(_with_key, state))(jax.random.split(chain_key, number))

        def stride(states: Any, rows: tuple[Any, ...]) -> Any:
            def step(state: Any, _: None) -> Any:
                state = kernel.sample(state, rows, {})
                return state, read(state)

            found = jax.lax.scan(step, jax.tree.map(lambda leaf: leaf[0], states), None, length=STRIDE)
            return jax.tree.map(lambda leaf: leaf[None], found)

        mesh = Mesh(np.array(jax.local_devices()[:number]), ("chain",))
        each, all_rows = PartitionSpec("chain"), PartitionSpec()
        self.states = jax.device_put(self.states, NamedSharding(mesh, each))
        self._rows = jax.device_put(rows, NamedSharding(mesh, all_rows))
        self._stride = jax.jit(
            jax.shard_map(stride, mesh=mesh, in_specs=(each, all_rows), out_specs=each, check_vma=False)
        )

    def draw(self, strides: int) -> tuple[np.ndarray, np.ndarray]:
        """Draws (chains, strides * STRIDE, d) and the rows of each, (chains, strides * STRIDE)."""
        parts = []
        for _ in range(strides):
            self.states, kept = self._stride(self.states, self._rows)
            parts.append(jax.device_get(kept))
        draws, counts = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
        return draws, counts


def _with_key(state: Any, key: Any) -> Any:
    """The state with random numbers of its own, also in the state of an inner kernel."""
    if hasattr(state, "hmc_state"):
        key, inner = jax.random.split(key)
        state = state._replace(hmc_state=state.hmc_state._replace(rng_key=inner))
    return state._replace(rng_key=key)


def _sampled(
    make_chains: Callable[[], _Chains],
    before: Cost,
    effort: Effort,
    stopwatch: Stopwatch,
    settings: dict[str, Any],
) -> Answer:
    """Warm up, choose the chunk by the speed of the second half of that, and draw."""
    with stopwatch.timed() as starting:
        chains = make_chains()
        _, counts = chains.draw(1)
    with stopwatch.timed() as warming:
        _, more = chains.draw(WARM_UP // STRIDE - 1)
    setup = Cost(before.items + float(counts.sum() + more.sum()), before.seconds + starting() + warming())
    strides = max(1, chunk_size(warming() / more.shape[1], effort) // STRIDE)

    def chunk(_: int) -> tuple[np.ndarray, float]:
        draws, counts = chains.draw(strides)
        return draws, float(counts.sum(dtype=np.float64))

    draws, items, seconds = draw_until(chunk, effort, stopwatch)
    settings |= {"chunk": f"{strides * STRIDE} draws a chain"}
    return answer_from_draws(draws, setup, Cost(items, seconds), stopwatch, settings)


def nuts(posterior: Posterior, effort: Effort) -> Answer:
    """All rows in every leapfrog step: a draw costs its steps times N.

    Log likelihoods are differences from the mode, row by row, which float32 can hold however many rows there are.
    """
    stopwatch, number, (x, y) = Stopwatch(), _chains(), _rows(posterior)
    with stopwatch.timed() as preparing:
        at_mode = jax.jit(posterior.log_likelihood)(jnp.asarray(posterior.mode, jnp.float32), x, y)
        jax.block_until_ready(at_mode)

    def model(x: Any, y: Any, at_mode: Any) -> None:
        theta = _prior(posterior)
        numpyro.factor("rows", jnp.sum(posterior.log_likelihood(theta, x, y) - at_mode))

    def read(state: Any) -> Any:
        return state.z["theta"], state.num_steps * float(posterior.num_rows)

    start = {"theta": jnp.asarray(posterior.mode, jnp.float32)}
    make = partial(_Chains, _kernel(model, posterior), start, (x, y, at_mode), read, effort.seed, number)
    gift = _gift(posterior)
    before = Cost(gift.items + posterior.num_rows, gift.seconds + preparing())
    return _sampled(make, before, effort, stopwatch, _common_settings(number))


def _taylor_variance(posterior: Posterior, rows: tuple[Any, Any], seed: int) -> tuple[float, float]:
    """The variance over rows of what the Taylor expansion leaves, averaged over Laplace draws; and the data items.

    The expansion along theta - mode takes a likelihood, a gradient and a Hessian of each row, and r a likelihood more.
    """
    rng = np.random.default_rng(seed)
    chosen = rng.choice(posterior.num_rows, min(PILOT_ROWS, posterior.num_rows), replace=False)
    x, y = (array[jnp.asarray(chosen)] for array in rows)
    moves = rng.standard_normal((PILOT_DRAWS, posterior.dimension)) @ np.linalg.cholesky(_covariance(posterior)).T
    mode = jnp.asarray(posterior.mode, jnp.float32)

    @jax.jit
    def variance(move: Any) -> Any:
        def along(t: Any) -> Any:
            return posterior.log_likelihood(mode + t * move, x, y)

        def slope(t: Any) -> Any:
            return jax.jvp(along, (t,), (jnp.float32(1),))

        (value, first), (_, second) = jax.jvp(slope, (jnp.float32(0),), (jnp.float32(1),))
        return jnp.var(along(jnp.float32(1)) - value - first - second / 2)

    variances = [float(variance(jnp.asarray(move, jnp.float32))) for move in moves]
    return float(np.mean(variances)), 3.0 * PILOT_DRAWS * len(chosen)


def _subsample_size(variance: float, num_rows: int) -> int:
    """The m whose estimated log likelihood has the variance `ESTIMATOR_VARIANCE`, from `LEAST_SUBSAMPLE` to N / 2."""
    largest = num_rows // 2
    return int(np.clip(np.ceil(num_rows**2 * variance / ESTIMATOR_VARIANCE), min(LEAST_SUBSAMPLE, largest), largest))


def hmcecs(posterior: Posterior, effort: Effort) -> Answer:
    """Subsamples of m rows with the second-order Taylor proxy at the mode, one of `BLOCKS` blocks renewed a draw.

    A draw costs m rows for every leapfrog step, m for the likelihood of the proposed subsample, m for its gradient
    where it is accepted, and the gradient and Hessian at the mode of the rows that are new. Set-up adds a likelihood
    with gradient and a Hessian of all rows, and the pilot that chooses m.
    """
    stopwatch, number, rows, num_rows = Stopwatch(), _chains(), _rows(posterior), posterior.num_rows
    with stopwatch.timed() as piloting:
        variance, pilot_items = _taylor_variance(posterior, rows, effort.seed)
    size = _subsample_size(variance, num_rows)
    _check_proxy(size, posterior.dimension)
    block = -(-size // BLOCKS)

    def model(x: Any, y: Any) -> None:
        theta = _prior(posterior)
        with numpyro.plate("N", num_rows, subsample_size=size) as chosen:
            numpyro.factor("rows", posterior.log_likelihood(theta, x[chosen], y[chosen]))

    def read(state: Any) -> Any:
        evaluations = state.hmc_state.num_steps + 1 + state.accept_prob
        return state.z["theta"], evaluations * size + 2 * block

    start = {"theta": jnp.asarray(posterior.mode, jnp.float32)}
    kernel = HMCECS(_kernel(model, posterior), num_blocks=BLOCKS, proxy=HMCECS.taylor_proxy(start))
    make = partial(_Chains, kernel, start, rows, read, effort.seed, number)
    settings = _common_settings(number) | {
        "inner kernel": "NUTS",
        "proxy": "Taylor, degree 2, at the mode",
        "subsample": f"{size} rows; variance of the estimated log likelihood {num_rows**2 * variance / size:.2g}, "
        f"at most {ESTIMATOR_VARIANCE} where half the rows allow it",
        "blocks": BLOCKS,
    }
    gift = _gift(posterior)
    before = Cost(gift.items + pilot_items + 2.0 * num_rows, gift.seconds + piloting())
    return _sampled(make, before, effort, stopwatch, settings)


def _check_proxy(size: int, dimension: int) -> None:
    """The chain's state holds a Hessian for every row of the subsample, and a proposal copies it."""
    needed = 3 * 4.0 * size * dimension**2
    if needed > LARGEST_PROXY:
        raise RuntimeError(
            f"the second-order proxy of HMCECS needs {needed / 1e9:.1f} GB a chain for {size} Hessians of dimension "
            f"{dimension}, more than {LARGEST_PROXY / 1e9:.0f} GB"
        )


def _variational(posterior: Posterior, effort: Effort, guide_of: Callable, scale: np.ndarray, kind: str) -> Answer:
    """The Gaussian over z by Adam with a falling step, and its law of theta = mode + scale z in closed form."""
    stopwatch, rows, first = Stopwatch(), _rows(posterior), FIRST_RATE / posterior.dimension**0.5
    mode, matrix = jnp.asarray(posterior.mode, jnp.float32), jnp.asarray(scale, jnp.float32)

    def model(x: Any, y: Any) -> None:
        z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real_vector, (), (posterior.dimension,)))
        theta = mode + matrix @ z
        numpyro.factor("posterior", jnp.sum(posterior.log_likelihood(theta, x, y)) + posterior.log_prior(theta))

    with stopwatch.timed() as trying:
        steps = _affordable_steps(posterior, rows, effort)
    guide = guide_of(model, init_loc_fn=numpyro.infer.init_to_value(values={"z": jnp.zeros_like(mode)}), init_scale=1.0)
    svi = SVI(model, guide, numpyro.optim.Adam(partial(_rate, first, steps)), Trace_ELBO())

    @jax.jit
    def stride(state: Any, rows: tuple[Any, Any]) -> Any:
        return jax.lax.scan(lambda state, _: svi.update(state, *rows), state, None, length=SVI_STRIDE)

    losses: list[np.ndarray] = []
    with stopwatch.timed() as optimising:
        state = svi.init(jax.random.PRNGKey(effort.seed), *rows)
        for _ in range(steps // SVI_STRIDE):
            state, loss = stride(state, rows)
            losses.append(np.asarray(loss, np.float64))
    mean, covariance = _law(svi.get_params(state))
    gift = _gift(posterior)
    return Answer(
        mean=np.asarray(posterior.mode, np.float64) + scale @ mean,
        sd=np.sqrt(np.einsum("ij,jk,ik->i", scale, covariance, scale)),
        law="fixed",
        setup=Cost(gift.items + (steps + TRIALS) * posterior.num_rows, gift.seconds + trying() + optimising()),
        sampling=Cost(0.0, 0.0),
        compiling=stopwatch.compiling,
        settings={
            "guide": kind,
            "start": "mode and Laplace scale (gifts)",
            "optimiser": f"Adam, step {first:.2g} = {FIRST_RATE} / sqrt(d) falling to {LAST_RATE:.0e} Laplace sds",
            "steps": steps,
            "gradient": "all rows, one draw of the guide a step",
            "float": "float32",
            "numpyro": numpyro.__version__,
        },
        remarks=_flatness(np.concatenate(losses)),
    )


def _affordable_steps(posterior: Posterior, rows: tuple[Any, Any], effort: Effort) -> int:
    """As many gradients of all rows as the effort allows, by the fastest of `TRIALS`, within the bounds."""
    gradient = jax.jit(jax.grad(lambda theta, x, y: jnp.sum(posterior.log_likelihood(theta, x, y))))
    mode = jnp.asarray(posterior.mode, jnp.float32)
    gradient.lower(mode, *rows).compile()
    fastest = np.inf
    for _ in range(TRIALS):
        started = time.perf_counter()
        jax.block_until_ready(gradient(mode, *rows))
        fastest = min(fastest, time.perf_counter() - started)
    return int(np.clip(effort.seconds / fastest, LEAST_STEPS, MOST_STEPS)) // SVI_STRIDE * SVI_STRIDE


def _rate(first: float, steps: int, step: Any) -> Any:
    return first * (LAST_RATE / first) ** (step / steps)


def _law(params: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of z under either guide."""
    found = {name: np.asarray(value, np.float64) for name, value in params.items()}
    if "auto_scale_tril" in found:
        return found["auto_loc"], found["auto_scale_tril"] @ found["auto_scale_tril"].T
    return found["z_auto_loc"], np.diag(found["z_auto_scale"] ** 2)


def _flatness(losses: np.ndarray) -> dict[str, Any]:
    """What the last tenth of the steps gained in ELBO over the tenth before, and the standard error of that."""
    tenth = len(losses) // 10
    before, last = losses[-2 * tenth : -tenth], losses[-tenth:]
    error = np.sqrt((before.var() + last.var()) / tenth)
    return {"ELBO gained in the last tenth": float(before.mean() - last.mean()), "standard error": float(error)}


def mean_field(posterior: Posterior, effort: Effort) -> Answer:
    """Independent coordinates, each in units of its sd given the others."""
    scale = np.diag(1 / np.sqrt(np.diag(np.asarray(posterior.precision, np.float64))))
    return _variational(posterior, effort, AutoNormal, scale, "AutoNormal")


def full_rank(posterior: Posterior, effort: Effort) -> Answer:
    scale = np.linalg.cholesky(_covariance(posterior))
    return _variational(posterior, effort, AutoMultivariateNormal, scale, "AutoMultivariateNormal")


CONTESTANTS: dict[str, Contestant] = {
    "NumPyro NUTS": nuts,
    "NumPyro HMCECS": hmcecs,
    "NumPyro mean-field VI": mean_field,
    "NumPyro full-rank VI": full_rank,
}
