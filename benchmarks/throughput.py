"""Throughput of a coupled antithetic Taylor level beside BlackJAX's SGLD, medians of alternated runs.

Both sides run logistic regression with the same rows, chains and batch size, on all cores of the machine. BlackJAX runs
its own stochastic-gradient Langevin step, vmapped over the chains, each chain drawing its own minibatch with
replacement. tallbayes runs one level (shift, joint phase, one fine and two coarse paths) in blocks of 32 paths on
threads; its data items are the rows whose gradient enters a step, as everywhere. What is compared is nanoseconds per
data item, and beside it per path-step.

    make bench-throughput            prints a table, writes benchmarks/results/throughput.json
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ages
import jax
import jax.numpy as jnp
import numpy as np

import tallbayes as tb
from tallbayes.errors import require_extra
from tallbayes.estimator.levels import BLOCK_PATHS, sample_level
from tallbayes.sampler.levels import make_problem
from tallbayes.sampler.paths import Plan
from tallbayes.setup.preparation import check_data, prepare
from tallbayes.setup.quantities import make_estimands
from tallbayes.threads import num_cores
from tallbayes.views.text import table
from tallbayes.workers.executors import default_executor, in_order

blackjax = require_extra("blackjax", "bench", "the samplers beside tallbayes")

NUM_ROWS = 10_000
DIMENSIONS = (3, 20)
BATCH_SIZES = (1, 4, 22)
CHAINS = (32, 128, 1024)
ROUNDS = 7
LEVEL = 3
RESULTS = Path(__file__).parent / "results" / "throughput.json"


@dataclass(frozen=True)
class Row:
    """Medians over the rounds, in nanoseconds; ratios are medians of the rounds' own ratios."""

    dimension: int
    batch_size: int
    chains: int
    blackjax_item: float
    family_item: float
    own_item: float
    family_ratio: float
    own_ratio: float
    blackjax_step: float
    family_step: float
    own_step: float


def make_rows(dimension: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(NUM_ROWS, dimension))
    x[:, -1] = 1.0
    theta = rng.normal(size=dimension) * np.sqrt(3 / dimension)
    return {"x": x, "y": (rng.random(NUM_ROWS) < 1 / (1 + np.exp(-x @ theta))).astype(float)}


def log_prior(theta: Any) -> Any:
    return -0.5 * jnp.sum(theta**2)


def log_likelihood(theta: Any, row: Any) -> Any:
    eta = row["x"] @ theta
    return row["y"] * eta - jax.nn.softplus(eta)


def level_runner(model: tb.Model, rows: Any, batch_size: int, chains: int) -> tuple[Callable[[], None], int, int]:
    """A function that runs all chains through one level, with its data items and path-steps."""
    this = prepare(model, check_data(model, rows), "float32", shuffle=False, anchor=None)
    estimands = make_estimands(("mean",), this.target, this.anchor)
    gradient = tb.Taylor(batch_size)
    plan = Plan(this.target, gradient, tb.Euler(), tb.Antithetic(), estimands.observables, "float32")
    ladder = tb.Ladder(0.5 / this.anchor.curvatures[-1], start_steps=16, added_steps=16)
    problem = make_problem(plan, this.table, this.anchor, ladder, seed=0, pairs=())
    blocks = chains // BLOCK_PATHS

    def run() -> None:
        with default_executor() as executor:
            tasks = ((problem, LEVEL, block) for block in range(blocks))
            for _ in in_order(executor, sample_level, tasks, ahead=4 * num_cores()):
                pass

    items = chains * problem.evaluations(LEVEL)
    return run, items, items // batch_size


def blackjax_runner(rows: Any, batch_size: int, chains: int, steps: int) -> Callable[[], None]:
    x, y = jnp.asarray(rows["x"], jnp.float32), jnp.asarray(rows["y"], jnp.float32)
    gradient = blackjax.sgmcmc.gradients.grad_estimator(log_prior, log_likelihood, NUM_ROWS)
    kernel = blackjax.sgld(gradient)

    def chain(key: Any, theta: Any) -> Any:
        def step(theta: Any, key: Any) -> Any:
            draw, move = jax.random.split(key)
            index = jax.random.randint(draw, (batch_size,), 0, NUM_ROWS)
            return kernel.step(move, theta, {"x": x[index], "y": y[index]}, 0.5 / NUM_ROWS), None

        return jax.lax.scan(step, theta, jax.random.split(key, steps))[0]

    run_all = jax.jit(jax.vmap(chain))
    keys = jax.random.split(jax.random.key(0), chains)
    start = jnp.zeros((chains, x.shape[1]), jnp.float32)
    return lambda: run_all(keys, start).block_until_ready()


def seconds(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


def measure(dimension: int, batch_size: int, chains: int) -> Row:
    """Alternate the three contestants, after one call of each to compile."""
    rows = make_rows(dimension)
    family, items, steps = level_runner(tb.families.logistic(), rows, batch_size, chains)
    own, *_ = level_runner(tb.Model(log_prior, log_likelihood, np.zeros(dimension)), rows, batch_size, chains)
    sgld_steps = max(64, steps // chains)
    sgld = blackjax_runner(rows, batch_size, chains, sgld_steps)
    sgld_items = chains * sgld_steps * batch_size
    contestants = [(sgld, sgld_items), (family, items), (own, items)]
    for run, _ in contestants:
        run()
    times = np.array([[seconds(run) / size * 1e9 for run, size in contestants] for _ in range(ROUNDS)])
    item = np.median(times, axis=0)
    ratio = np.median(times[:, 1:] / times[:, :1], axis=0)
    return Row(dimension, batch_size, chains, *item, *ratio, *(item * batch_size))


def show(rows: list[Row]) -> str:
    header = (
        "d", "n", "chains", "BlackJAX", "family", "own model", "family/BlackJAX", "own/BlackJAX",
        "BlackJAX step", "family step", "own step",
    )  # fmt: skip
    cells = [
        [
            str(row.dimension),
            str(row.batch_size),
            str(row.chains),
            *(f"{value:.0f}" for value in (row.blackjax_item, row.family_item, row.own_item)),
            *(f"{value:.2f}" for value in (row.family_ratio, row.own_ratio)),
            *(f"{value:.0f}" for value in (row.blackjax_step, row.family_step, row.own_step)),
        ]
        for row in rows
    ]
    return table(header, cells)


def main() -> None:
    rows = []
    for dimension in DIMENSIONS:
        for batch_size in BATCH_SIZES:
            for chains in CHAINS:
                rows.append(measure(dimension, batch_size, chains))
                print(f"d={dimension} n={batch_size} chains={chains} done", file=sys.stderr)
    print("nanoseconds per data item (and per path-step, last three columns)\n")
    print(show(rows))
    versions = {name: version(name) for name in ("tallbayes", "jax", "jaxlib", "blackjax")}
    settings = {"num_rows": NUM_ROWS, "level": LEVEL, "rounds": ROUNDS, "cores": num_cores()}
    document = {
        "settings": settings,
        "versions": versions,
        "machine": platform.machine(),
        "rows": [asdict(row) for row in rows],
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    ages.record(RESULTS)
    family, own = max(row.family_ratio for row in rows), max(row.own_ratio for row in rows)
    print(f"\nlargest ratio: family {family:.2f}, own model {own:.2f}")


if __name__ == "__main__":
    main()
