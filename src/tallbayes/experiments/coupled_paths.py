"""Coupled paths: fine and coarse paths of one level approach one another, then keep a distance that falls with h.

    E |theta^f_t - theta^c_t|^2   over time, level by level

The fine path has run alone for dT when the coarse ones start. A second data set with a narrow covariate has a small
lambda_min: there the paths of the same ladder are still apart when they end.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tallbayes.estimator.ladder import Ladder
from tallbayes.estimator.levels import Stream
from tallbayes.experiments import style
from tallbayes.experiments.claims import Claim
from tallbayes.experiments.problem import make_rows
from tallbayes.experiments.runs import subject
from tallbayes.experiments.store import Measurement, numbers
from tallbayes.sampler.draws import STRETCH, gather, pick
from tallbayes.sampler.inputs import Inputs
from tallbayes.sampler.levels import Problem, schedule_of
from tallbayes.sampler.paths import Plan, Schedule, make_drawer, make_expand, make_step
from tallbayes.sampler.randomness import path_key, seed_words

NAME = "coupled-paths"
TITLE = "Coupled paths contract onto one another (the paper's figures 1 and 2a)"
NUM_ROWS, STEPS = 1000, 15
DATA_SETS = {"the paper's data": 1.0, "a narrow covariate": 0.25}


def pieces(quick: bool) -> dict[str, Measurement]:
    levels, paths = ([1, 2, 3], 256) if quick else ([1, 2, 3, 4, 5], 2048)
    return {
        f"{name}, level {level}": Measurement(
            {"num_rows": NUM_ROWS, "m": STEPS, "spread": spread, "level": level, "paths": paths, "seed": 0},
            partial(_compute, spread, level, paths),
        )
        for name, spread in DATA_SETS.items()
        for level in levels
    }


def _compute(spread: float, level: int, paths: int) -> dict[str, Any]:
    rows = make_rows(NUM_ROWS, spread=spread)
    ladder = Ladder(1 / NUM_ROWS, start_steps=STEPS, added_steps=STEPS)
    this = subject(rows, ladder)
    fine, coarse = trajectories(this.problem, level, paths)
    gap = np.sum((fine[:, :, None] - coarse) ** 2, axis=-1).mean(axis=(1, 2))
    keep = np.unique(np.linspace(0, len(gap) - 1, min(len(gap), 120)).astype(int))
    return {
        "slowest": rows.slowest,
        "time": ((keep + 1) * ladder.step(level - 1)).tolist(),
        "distance": gap[keep].tolist(),
        "posterior_variance": float(np.trace(np.linalg.inv(rows.hessian))),
        "fine": fine[keep, 0, 0].tolist(),
        "coarse": coarse[keep, 0, :, 0].tolist(),
    }


def trajectories(problem: Problem, level: int, paths: int) -> tuple[np.ndarray, np.ndarray]:
    """Fine (time, path, d) and coarse (time, path, 2, d) displacements after every coarse step of the joint phase."""
    ladder = problem.ladder
    steps = (ladder.shift_steps(level), ladder.joint_steps(level))
    with jax.enable_x64(True):
        keys = jax.vmap(lambda path: path_key(jnp.asarray(seed_words(problem.seed)), int(Stream.LEVEL), level, path))(
            jnp.arange(paths, dtype=jnp.uint32)
        )
        out = _record(problem.plan, steps, problem.inputs, schedule_of(problem, level), keys)
        fine, coarse = (np.asarray(part, np.float64) for part in out)
    return fine.swapaxes(0, 1), coarse.swapaxes(0, 1)


@partial(jax.jit, static_argnums=(0, 1))
def _record(plan: Plan, steps: tuple[int, int], inputs: Inputs, schedule: Schedule, keys: jax.Array) -> Any:
    step, drawer, expand = make_step(plan, inputs), make_drawer(plan, inputs), make_expand(plan, inputs)

    def draws(key: jax.Array, k: jax.Array, number: int) -> Any:
        return pick(drawer.draw(jax.random.fold_in(key, k // STRETCH), STRETCH, number), k % STRETCH)

    def one(key: jax.Array) -> Any:
        solo_key, joint_key = (jax.random.fold_in(key, phase) for phase in (0, 1))

        def solo(state: jax.Array, k: jax.Array) -> Any:
            noise, index, _ = draws(solo_key, k, 1)
            return step(schedule.fine, state, noise[0], pick(expand(gather(inputs.rows, index)), 0)).state, None

        def joint(states: Any, k: jax.Array) -> Any:
            fine, coarse = states
            noise, index, _ = draws(joint_key, k, 2)
            batches = expand(gather(inputs.rows, index))
            for j in (0, 1):
                fine = step(schedule.fine, fine, noise[j], pick(batches, j)).state
            merged = plan.dynamics.merge_noise(schedule.fine, noise[0], noise[1])
            coarse = jax.vmap(lambda state, batch: step(schedule.coarse, state, merged, batch).state)(coarse, batches)
            return (fine, coarse), (fine, coarse)

        mode = jnp.zeros(plan.target.dimension, plan.dtype)
        fine, _ = jax.lax.scan(solo, mode, jnp.arange(steps[0], dtype=jnp.int32))
        return jax.lax.scan(joint, (fine, jnp.stack([mode, mode])), jnp.arange(steps[1], dtype=jnp.int32))[1]

    return jax.vmap(one)(keys)


def draw(results: dict[str, Any]) -> Any:
    figure, axes = style.new_figure(3)
    levels = numbers(results)
    first = next(iter(DATA_SETS))
    shown = results[f"{first}, level {levels[1]}"]
    axes[0].plot(shown["time"], shown["fine"], color=style.COLOURS[0], label="fine")
    for k, label in enumerate(("coarse +", "coarse -")):
        values = np.array(shown["coarse"])[:, k]
        axes[0].plot(shown["time"], values, color=style.COLOURS[k + 1], linewidth=1.0, label=label)
    axes[0].set(
        title=f"one sample of level {levels[1]}", xlabel="time since the coarse start", ylabel="theta_1 - mode_1"
    )
    axes[0].legend(frameon=False)
    for ax, name in zip(axes[1:], DATA_SETS, strict=True):
        for number, level in enumerate(levels):
            piece = results[f"{name}, level {level}"]
            relative = np.array(piece["distance"]) / piece["posterior_variance"]
            ax.semilogy(piece["time"], relative, color=style.COLOURS[number], label=f"level {level}")
        ax.set(title=f"{name}: lambda_min/N = {piece['slowest']:.3f}", xlabel="time since the coarse start")
        ax.set_ylim(1e-6, 3)
    axes[1].set_ylabel("mean squared distance / posterior variance")
    axes[2].legend(frameon=False)
    return figure


def claims(results: dict[str, Any]) -> list[Claim]:
    levels = numbers(results)
    first, second = DATA_SETS

    def end(name: str, level: int) -> float:
        piece = results[f"{name}, level {level}"]
        return float(np.mean(piece["distance"][-10:]) / piece["posterior_variance"])

    slow = results[f"{second}, level {levels[-1]}"]["slowest"]
    factors = [end(first, low) / end(first, low + 1) for low in levels[1:-1]]
    return [
        Claim(
            "4.1",
            "Coupled paths come closer exponentially and then keep a distance that falls with the step size.",
            f"distance at the end falls by {min(factors):.1f} to {max(factors):.1f} times a level (m = {STEPS}); "
            f"with lambda_min/N = {slow:.3f} the paths of level {levels[0]} are still "
            f"{end(second, levels[0]):.2g} posterior variances apart, against {end(first, levels[0]):.2g}",
            "holds, where contraction is fast enough for the path's length",
            NAME,
        )
    ]
