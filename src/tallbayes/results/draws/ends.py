"""Draws of tall tables: where fine paths of the finest level end, each run by itself, with its last noise drawn anew.

    theta = theta_0 + (z without its last noise) + s_h W xi,   xi ~ N(0, I)

They are independent, and what their law is off by is what is left of the levels that were not taken: the bias that
bounds the answers too. A path reads n T_L / h_L rows, however many there are.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from tallbayes.errors import PosteriorError, explain
from tallbayes.estimator.levels import BLOCK_PATHS, Stream
from tallbayes.moments import Floats
from tallbayes.posterior.posterior import Posterior
from tallbayes.sampler.levels import Problem
from tallbayes.threads import num_cores


def draw_ends(posterior: Posterior, problem: Problem, count: int, seed: int) -> tuple[Floats, int]:
    """Displacements from the centre, and the rows that each of them read."""
    finest = len(posterior.points) - 1
    levels = replace(problem.reseeded(seed), stream=Stream.DRAWS)
    # On the device once, before threads ask for it.
    _ = levels.ground.inputs
    with ThreadPoolExecutor(num_cores()) as threads:
        blocks = threads.map(partial(levels.fine_ends, finest), range(-(-count // BLOCK_PATHS)))
        quiet = np.concatenate(list(blocks))[:count]
    if not np.all(np.isfinite(quiet)):
        hint = "a finer tolerance, which leads to smaller steps"
        raise PosteriorError(explain("paths that stay finite", "one that does not", hint))
    return quiet + _last_noise(posterior, quiet.shape, seed), levels.ladder.steps(finest) * levels.rows_per_gradient


def kept_ends(posterior: Posterior, seed: int) -> Floats:
    """Those of the finest level that the run itself has kept: one a path, at its end."""
    quiet = posterior.points[-1][:, -1, 0].astype(np.float64)
    return quiet + _last_noise(posterior, quiet.shape, seed)


def _last_noise(posterior: Posterior, shape: tuple[int, ...], seed: int) -> Floats:
    rng = np.random.default_rng(np.random.SeedSequence([seed, int(Stream.DRAWS), 1]))
    return posterior.noise(len(posterior.points) - 1, rng.standard_normal(shape))
