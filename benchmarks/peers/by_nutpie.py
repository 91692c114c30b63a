"""nutpie's NUTS with a log density in JAX, through `from_pyfunc`, so without PyMC.

    theta = mode + A u,   A A' = precision^-1

nutpie adapts a diagonal mass matrix by its own rule and takes no dense one, so it is given the whitened u. It cannot go
on from where it stopped: chains run in the background, one a core, until there is enough, and are then ended. Every
draw is noted where nutpie expands it, with the time and the gradients so far, which tells warm-up from drawing. It
refuses to start where the gradient is 0, so not at the mode: each chain starts at a draw of the Laplace Gaussian.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .contract import Answer, Contestant, Cost, Effort, Posterior, Stopwatch
from .drawing import ENOUGH_ESS, answer_from_draws, worst_ess

MOST_CHAINS, WARM_UP, MOST_DRAWS, TARGET, PAUSE = 4, 200, 1_000_000, 0.8, 0.02

Diaries = dict[int, "Diary"]


@dataclass
class Diary:
    """What one chain did: its draws u, warm-up included, and the time and the gradients so far at each."""

    gradients: int = 0
    draws: list[np.ndarray] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)

    def note(self, draw: np.ndarray) -> None:
        self.counts.append(self.gradients)
        self.times.append(time.perf_counter())
        self.draws.append(np.array(draw))


def _library() -> Any:
    try:
        import nutpie
        from nutpie.compiled_pyfunc import from_pyfunc
    except ImportError as error:
        raise RuntimeError(f"nutpie cannot be imported: {error}") from error
    return nutpie, from_pyfunc


def _density(posterior: Posterior, scale: np.ndarray) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """log pi(mode + A u) - log pi(mode) and its gradient in u, compiled; the differences are taken row by row."""
    x, y = jnp.asarray(posterior.x, jnp.float32), jnp.asarray(posterior.y, jnp.float32)
    mode, matrix = jnp.asarray(posterior.mode, jnp.float32), jnp.asarray(scale, jnp.float32)
    rows = (x, y, jax.jit(posterior.log_likelihood)(mode, x, y))

    @jax.jit
    @jax.value_and_grad
    def density(u: Any, rows: tuple[Any, Any, Any]) -> Any:
        x, y, at_mode = rows
        theta = mode + matrix @ u
        return posterior.log_prior(theta) + jnp.sum(posterior.log_likelihood(theta, x, y) - at_mode)

    def evaluate(u: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = density(u.astype(np.float32), rows)
        return float(value), np.asarray(gradient, np.float64)

    evaluate(np.zeros(posterior.dimension))
    return evaluate


def _model(from_pyfunc: Callable, dimension: int, evaluate: Callable, diaries: Diaries) -> Any:
    """A chain runs in a thread of its own, by which its diary is found."""

    def log_density(u: np.ndarray) -> tuple[float, np.ndarray]:
        diaries[threading.get_ident()].gradients += 1
        return evaluate(u)

    def expand(u: np.ndarray) -> dict[str, np.ndarray]:
        diaries[threading.get_ident()].note(u)
        return {"u": u}

    return from_pyfunc(
        dimension,
        lambda: log_density,
        lambda *_: expand,
        [np.dtype(np.float64)],
        [(dimension,)],
        ["u"],
        make_initial_point_fn=lambda seed: np.random.default_rng(seed).standard_normal(dimension),
    )


@dataclass(frozen=True)
class Drawn:
    """The draws u (chains, n, d) after the warm-up, as many of each chain as the slowest has, and both costs.

    Chains work at the same time, so seconds are those of the slowest; gradients are those of all.
    """

    draws: np.ndarray
    warm_up: tuple[int, float]
    drawing: tuple[int, float]


def _read(diaries: Diaries, started: float) -> Drawn:
    chains = list(diaries.values())
    last = min(len(diary.draws) for diary in chains) - 1
    first = WARM_UP - 1
    return Drawn(
        np.stack([diary.draws[WARM_UP : last + 1] for diary in chains]),
        (sum(diary.counts[first] for diary in chains), max(diary.times[first] for diary in chains) - started),
        (
            sum(diary.counts[last] - diary.counts[first] for diary in chains),
            max(diary.times[last] - diary.times[first] for diary in chains),
        ),
    )


def _ended(sampler: Any) -> bool:
    """Wait a moment. An error of the sampler is raised here."""
    try:
        sampler.wait(timeout=PAUSE)
    except TimeoutError:
        return False
    return True


def _wait(sampler: Any, diaries: Diaries, chains: int, effort: Effort, started: float) -> Drawn:
    """Look at the diaries until the effort is spent, or the worst mean has the effective sample size `ENOUGH_ESS`."""
    next_look = ENOUGH_ESS / 4
    while not _ended(sampler):
        shortest = min((len(diary.draws) for diary in list(diaries.values())), default=0)
        drawn = chains * (shortest - WARM_UP)
        if len(diaries) < chains or drawn < max(effort.least_draws, 1):
            continue
        if _read(diaries, started).drawing[1] >= effort.seconds:
            sampler.cancel()
            return _read(diaries, started)
        if drawn >= next_look:
            next_look = 1.25 * drawn
            if worst_ess(_read(diaries, started).draws) >= ENOUGH_ESS:
                sampler.cancel()
                return _read(diaries, started)
    raise RuntimeError(f"nutpie ended after {MOST_DRAWS} draws a chain, before there was enough")


def nuts(posterior: Posterior, effort: Effort) -> Answer:
    """All rows in every gradient; a draw costs as many as it noted times N."""
    nutpie, from_pyfunc = _library()
    stopwatch, chains = Stopwatch(), min(MOST_CHAINS, os.cpu_count() or 1)
    scale = np.linalg.cholesky(np.linalg.inv(np.asarray(posterior.precision, np.float64)))
    with stopwatch.timed() as preparing:
        evaluate = _density(posterior, scale)
    diaries: Diaries = defaultdict(Diary)
    started = time.perf_counter()
    sampler = nutpie.sample(
        _model(from_pyfunc, posterior.dimension, evaluate, diaries),
        draws=MOST_DRAWS,
        tune=WARM_UP,
        chains=chains,
        cores=chains,
        seed=effort.seed,
        target_accept=TARGET,
        progress_bar=False,
        blocking=False,
    )
    drawn = _wait(sampler, diaries, chains, effort, started)
    num_rows = float(posterior.num_rows)
    gradients, warming = drawn.warm_up
    setup = Cost((posterior.newton_passes + 2 + gradients) * num_rows, posterior.newton_seconds + preparing() + warming)
    settings = {
        "chains": f"{chains} in threads",
        "start": "draws of the Laplace Gaussian",
        "coordinates": "whitened by the Laplace covariance (a gift)",
        "mass matrix": "diagonal, adapted by nutpie",
        "warm-up": f"{WARM_UP} a chain",
        "target acceptance": TARGET,
        "float": "float32 density, float64 sampler",
        "nutpie": nutpie.__version__,
    }
    theta = np.asarray(posterior.mode, np.float64) + drawn.draws @ scale.T
    sampling = Cost(drawn.drawing[0] * num_rows, drawn.drawing[1])
    return answer_from_draws(theta, setup, sampling, stopwatch, settings)


CONTESTANTS: dict[str, Contestant] = {"nutpie": nuts}
