"""Do contiguous blocks pay? Nanoseconds per data item of the three minibatch laws, tables in and beyond the cache.

    make bench-minibatch      prints a table, writes benchmarks/results/minibatch.json

Blocks draw one random integer a step and read memory in order; the other laws draw one integer a row and jump. The
same coupled antithetic Taylor level runs under each law on the same shuffled rows, alternated; medians are shown.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import ages
import numpy as np
import throughput

import tallbayes as tb
from tallbayes.estimator.levels import BLOCK_PATHS, sample_level
from tallbayes.sampler.levels import make_problem
from tallbayes.sampler.paths import Plan
from tallbayes.setup.preparation import check_data, prepare
from tallbayes.setup.quantities import make_estimands
from tallbayes.threads import num_cores
from tallbayes.views.text import table
from tallbayes.workers.executors import default_executor, in_order

LAWS = (tb.WithReplacement(), tb.WithoutReplacement(), tb.Blocks())
SIZES = (10_000, 2_000_000)
BATCH_SIZES = (4, 22)
DIMENSION = 20
PATHS, LEVEL, ROUNDS = 256, 2, 5
RESULTS = Path(__file__).parent / "results" / "minibatch.json"


@dataclass(frozen=True)
class Row:
    num_rows: int
    batch_size: int
    law: str
    item: float
    ratio: float


def make_rows(num_rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, DIMENSION)).astype(np.float32)
    x[:, -1] = 1.0
    theta = rng.normal(size=DIMENSION) * np.sqrt(3 / DIMENSION)
    return {"x": x, "y": (rng.random(num_rows) < 1 / (1 + np.exp(-x @ theta))).astype(np.float32)}


def runner(this: Any, law: Any, batch_size: int) -> tuple[Any, int]:
    estimands = make_estimands(("mean",), this.target, this.anchor)
    plan = Plan(this.target, tb.Taylor(batch_size, law), tb.Euler(), tb.Antithetic(), estimands.observables, "float32")
    ladder = tb.Ladder(0.5 / this.anchor.curvatures[-1], start_steps=16, added_steps=16)
    problem = make_problem(plan, this.table, this.anchor, ladder, seed=0, pairs=())

    def run() -> None:
        with default_executor() as executor:
            tasks = ((problem, LEVEL, block) for block in range(PATHS // BLOCK_PATHS))
            for _ in in_order(executor, sample_level, tasks, ahead=4 * num_cores()):
                pass

    return run, PATHS * problem.evaluations(LEVEL)


def main() -> None:
    rows = []
    for num_rows in SIZES:
        model = tb.families.logistic()
        this = prepare(model, check_data(model, make_rows(num_rows)), "float32", shuffle=True, anchor=None)
        for batch_size in BATCH_SIZES:
            runs = [runner(this, law, batch_size) for law in LAWS]
            for run, _ in runs:
                run()
            times = np.array([[throughput.seconds(run) / items * 1e9 for run, items in runs] for _ in range(ROUNDS)])
            item, ratio = np.median(times, axis=0), np.median(times / times[:, :1], axis=0)
            rows += [Row(num_rows, batch_size, str(law), *pair) for law, *pair in zip(LAWS, item, ratio, strict=True)]
    header = ("rows", "n", "law", "ns per item", "ratio to with replacement")
    print(
        table(header, [[f"{r.num_rows:,}", str(r.batch_size), r.law, f"{r.item:.1f}", f"{r.ratio:.2f}"] for r in rows])
    )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    ages.record(RESULTS)


if __name__ == "__main__":
    main()
