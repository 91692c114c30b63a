"""Where the time of a coupled level goes: the same level with one part after another taken out.

    make bench-profile      prints nanoseconds per path-step

A part's share is the drop when it is replaced by something that costs nothing (words by a counter, normals by a
scaling, rows by the first rows of the table, the gradient by -v). Each variant is a program of its own, run on one
thread; the least of several runs is shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import throughput

import tallbayes as tb
from tallbayes.estimator.levels import BLOCK_PATHS, sample_level
from tallbayes.sampler import draws, paths
from tallbayes.sampler.levels import make_problem
from tallbayes.sampler.paths import Plan
from tallbayes.setup.preparation import check_data, prepare
from tallbayes.setup.quantities import make_estimands
from tallbayes.views.text import table

LEVEL, REPEATS = 3, 12


def counter(key: Any, shape: Any, dtype: Any) -> Any:
    return jnp.arange(shape[0], dtype=dtype) * jnp.uint32(2654435761) + jax.random.key_data(key)[0]


def scaled(words: Any, dtype: Any) -> Any:
    return words.astype(dtype) * dtype(2.0**-32)


def first_rows(rows: Any, index: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[: index.shape[1]], (*index.shape, *leaf.shape[1:])), rows)


def linear(target: Any, estimator: Any, rows: Any, num_rows: Any, centre: Any, state: Any, batch: Any) -> Any:
    return -1e3 * state


REMOVED = {
    "nothing": [],
    "random words": [(jax.random, "bits", counter)],
    "words and normals": [(jax.random, "bits", counter), (draws, "normals", scaled)],
    "words, normals and gathering rows": [
        (jax.random, "bits", counter),
        (draws, "normals", scaled),
        (paths, "gather", first_rows),
    ],
    "words, normals, gathering and the gradient": [
        (jax.random, "bits", counter),
        (draws, "normals", scaled),
        (paths, "gather", first_rows),
        (paths, "posterior_gradient", linear),
    ],
}


@contextmanager
def without(parts: list[tuple[Any, str, Any]]) -> Iterator[None]:
    with ExitStack() as stack:
        for module, name, stand_in in parts:
            stack.enter_context(mock.patch.object(module, name, stand_in))
        yield


def nanoseconds(rows: Any, batch_size: int, prior_scale: float) -> float:
    model = tb.families.logistic(prior_scale)
    this = prepare(model, check_data(model, rows), "float32", shuffle=False, anchor=None)
    estimands = make_estimands(("mean",), this.target, this.anchor)
    plan = Plan(this.target, tb.Taylor(batch_size), tb.Euler(), tb.Antithetic(), estimands.observables, "float32")
    ladder = tb.Ladder(0.5 / this.anchor.curvatures[-1], start_steps=16, added_steps=16)
    problem = make_problem(plan, this.table, this.anchor, ladder, seed=0, pairs=())
    sample_level(problem, LEVEL, 0)
    times = []
    for block in range(REPEATS):
        started = time.perf_counter()
        sample_level(problem, LEVEL, block)
        times.append(time.perf_counter() - started)
    return min(times) / (BLOCK_PATHS * ladder.path_steps(LEVEL, 2)) * 1e9


def main() -> None:
    cells, header = [], ["taken out"]
    settings = [(3, 1), (3, 22), (20, 1), (20, 22)]
    header += [f"d={d} n={n}" for d, n in settings]
    for number, (name, parts) in enumerate(REMOVED.items()):
        with without(parts):
            # A prior of its own gives every variant a program of its own.
            values = [
                nanoseconds(throughput.make_rows(d), n, 1.0 + number / 100 + d / 1e4 + n / 1e6) for d, n in settings
            ]
        cells.append([name, *(f"{value:.0f}" for value in values)])
    print("nanoseconds per path-step, one thread\n")
    print(table(header, cells))


if __name__ == "__main__":
    main()
