"""Where the time goes where the Gaussian is a poor control: logistic regression, N = 200, d = 20, large coefficients.

    make bench-far      prints a table, writes results/far_from_gaussian.json (1 minute)

The default beside paths whose end points alone are read, and beside all rows in every step, to 1% of a posterior sd for
means and sds, warm: a first call compiles, and eight seeds follow. `around` is the processor time of the threads that
run blocks, which is Python and NumPy before and after compiled paths; the paths themselves run on XLA's threads. `ends`
is the largest stated error of the ends of a 95% interval, in posterior sds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ages
import numpy as np
from lines import describe_commit
from peers import posteriors

import tallbayes as tb
from tallbayes.threads import num_cores
from tallbayes.views.text import table

RESULTS = Path(__file__).parent / "results" / "far_from_gaussian.json"
PROBLEM, TOLERANCE, SEEDS = "non-gaussian", 0.01, range(1, 9)
METHODS = {
    "default": tb.Anchored(),
    "end points": tb.Anchored(window=0),
    "all rows": tb.Anchored(gradient=tb.Full()),
}


class Around(ThreadPoolExecutor):
    """Threads that add up the processor time of their blocks."""

    seconds = 0.0

    def submit(self, task: Callable[..., Any], /, *arguments: Any) -> Future:
        return super().submit(self._timed, task, arguments)

    def _timed(self, task: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        started = time.thread_time()
        block = task(*arguments)
        self.seconds += time.thread_time() - started
        return block


def call(model: tb.Model, rows: Any, method: Any, seed: int) -> dict[str, Any]:
    with Around(num_cores()) as around:
        started, processor = time.perf_counter(), time.process_time()
        result = tb.estimate(model, rows, tolerance=TOLERANCE, seed=seed, method=method, executor=around)
        seconds, spent = time.perf_counter() - started, time.process_time() - processor
    ends = result.posterior.quantile([0.025, 0.975]).flat_error / np.tile(result["sd"].flat_value, 2)
    return {
        "seed": seed,
        "status": result.status.name,
        "seconds": seconds,
        "processor": spent,
        "ends": float(ends.max()),
        "around": around.seconds,
        "items": result.cost.evaluations,
        "samples": [level.samples for level in result.levels],
        "method": result.method,
    }


def main() -> None:
    model, rows = posteriors.load(PROBLEM).model()
    found = {}
    for name, method in METHODS.items():
        call(model, rows, method, 0)
        found[name] = [call(model, rows, method, seed) for seed in SEEDS]
    cells = [
        [
            name, str(run["seed"]), run["status"], f"{run['seconds']:.2f}", f"{run['processor']:.2f}",
            f"{run['around'] / run['processor']:.0%}", f"{run['ends']:.3f}", f"{run['items']:.2e}",
            f"{run['items'] / run['processor']:.1e}", f"{run['samples']}",
        ]
        for name, runs in found.items()
        for run in runs
    ]  # fmt: skip
    header = (
        "method",
        "seed",
        "status",
        "s",
        "processor s",
        "around",
        "ends",
        "items",
        "items / processor s",
        "samples",
    )
    print(table(header, cells))
    for name, runs in found.items():
        print(f"{name}: median {np.median([run['seconds'] for run in runs]):.2f} s")
    versions = {name: version(name) for name in ("tallbayes", "jax", "numpy")}
    document = {"tolerance": TOLERANCE, "commit": describe_commit(), "versions": versions, "runs": found}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")
    ages.record(RESULTS)


if __name__ == "__main__":
    main()
