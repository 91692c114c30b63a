"""Draws in equal chunks until there are enough, their effective number, and the answer they make.

Draws are arrays (n, d) of one chain or (chains, n, d) of several. The seconds are those of the chunks alone, without
compiling and without what it takes to compute effective sample sizes between them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .contract import Answer, Cost, Effort, Stopwatch

ENOUGH_ESS = 20_000.0
CHUNKS, LARGEST_CHUNK = 10, 2_000

Chunk = Callable[[int], tuple[np.ndarray, float]]


def chunk_size(seconds_per_draw: float, effort: Effort) -> int:
    """A tenth of the effort by the speed so far, between a quarter of the fewest draws and `LARGEST_CHUNK`."""
    smallest = max(1, -(-effort.least_draws // 4))
    return int(np.clip(effort.seconds / CHUNKS / max(seconds_per_draw, 1e-9), smallest, max(smallest, LARGEST_CHUNK)))


def worst_ess(draws: np.ndarray) -> float:
    """The effective sample size of the worst mean, by Geyer's initial monotone sequence over all chains.

    Of n draws it is at most n log10 n, which also stands where short chains give a negative one, as in Stan. It is 0
    where any coordinate did not move or is not finite.
    """
    chains = np.asarray(draws, np.float64)
    chains = chains[None] if chains.ndim == 2 else chains
    if not np.all(np.isfinite(chains)) or np.any(np.ptp(chains, axis=(0, 1)) == 0):
        return 0.0
    return float(np.min(effective_numbers(chains)))


def effective_numbers(chains: np.ndarray) -> np.ndarray:
    """Of every coordinate, bounded as `worst_ess` says."""
    from numpyro.diagnostics import effective_sample_size

    found, number = effective_sample_size(chains), chains.shape[0] * chains.shape[1]
    most = number * np.log10(number)
    return np.where((found > 0) & (found < most), found, most)


def worst_sd_noise(draws: np.ndarray) -> float:
    """The standard error of the worst sd, in units of itself: that of its squared deviations, halved."""
    chains = np.asarray(draws, np.float64)
    chains = chains[None] if chains.ndim == 2 else chains
    squares = (chains - chains.mean(axis=(0, 1))) ** 2
    if not np.all(np.isfinite(squares)) or np.any(np.ptp(squares, axis=(0, 1)) == 0):
        return np.inf
    spread = squares.std(axis=(0, 1)) / np.sqrt(effective_numbers(squares))
    return float(np.max(spread / (2 * squares.mean(axis=(0, 1)))))


def draw_until(
    chunk: Chunk, effort: Effort, stopwatch: Stopwatch, enough: float = ENOUGH_ESS
) -> tuple[np.ndarray, float, float]:
    """All draws, the data items and the seconds of calling `chunk(0), chunk(1), ...`.

    `chunk(k)` returns the draws of the k-th chunk and their data items, and has finished computing when it returns. No
    chunk starts once there are `effort.least_draws` draws over all chains and either `effort.seconds` have gone by or
    the worst mean has the effective sample size `enough`, which is looked at whenever there are a quarter more draws.
    """
    parts: list[np.ndarray] = []
    items, seconds, drawn, next_look = 0.0, 0.0, 0, enough / 4
    while True:
        with stopwatch.timed() as elapsed:
            draws, cost = chunk(len(parts))
        seconds, items, drawn = seconds + elapsed(), items + cost, drawn + draws.size // draws.shape[-1]
        parts.append(draws)
        if drawn < effort.least_draws:
            continue
        if seconds >= effort.seconds:
            break
        if drawn >= next_look:
            next_look = 1.25 * drawn
            if worst_ess(np.concatenate(parts, axis=-2)) >= enough:
                break
    return np.concatenate(parts, axis=-2), items, seconds


def answer_from_draws(
    draws: np.ndarray,
    setup: Cost,
    sampling: Cost,
    stopwatch: Stopwatch,
    settings: dict[str, Any],
    remarks: dict[str, Any] | None = None,
) -> Answer:
    """Means and sds of the draws in float64, with the effective sample size of the worst mean."""
    flat = np.asarray(draws, np.float64).reshape(-1, draws.shape[-1])
    return Answer(
        mean=flat.mean(axis=0),
        sd=flat.std(axis=0, ddof=1),
        law="sampling",
        setup=setup,
        sampling=sampling,
        compiling=stopwatch.compiling,
        settings=settings | {"draws": len(flat)},
        ess=worst_ess(draws),
        sd_noise=worst_sd_noise(draws),
        remarks=remarks or {},
    )
