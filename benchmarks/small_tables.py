"""Small tables: draws with weights beside the ladder, in a fresh process and warm, and whether errors are true.

    python benchmarks/small_tables.py --out benchmarks/results/small_tables.json --seeds 200

A fresh process is timed from its start to its end, imports included, the best of three. Warm seconds are medians of
five calls. RMSE / tolerance and the coverage of 95% intervals are over seeds, of all means and all sds together, beside
a run to a sixth of the tolerance, of another seed and other tails: where errors are a quarter of the tolerance, as at
300 x 5 and 10,000 x 20, its own error takes two or three percent off the coverage.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import problems

import tallbayes as tb
from tallbayes.estimation import small
from tallbayes.estimator.estimates import t_quantile

TOLERANCE = 0.01
PROBLEMS = ("paper-100-3", "logistic-300-5", "logistic-1000-20", "logistic-10000-20", "steep-200-20")
COLD = """
import numpy as np, tallbayes as tb
rng = np.random.default_rng(0)
x = rng.standard_normal(({rows}, 20))
y = (rng.random({rows}) < 1 / (1 + np.exp(-x @ np.full(20, 0.4)))).astype(float)
result = tb.estimate(tb.families.logistic(), {{"x": x, "y": y}}, tolerance=0.01, method={method})
assert result.converged
"""


def cold(rows: int, method: str) -> float:
    command = [sys.executable, "-c", COLD.format(rows=rows, method=method)]
    found = []
    for _ in range(3):
        begun = time.perf_counter()
        subprocess.run(command, check=True)
        found.append(time.perf_counter() - begun)
    return min(found)


def warm(name: str, method: Any) -> dict[str, float]:
    model, rows = problems.make(name)
    seconds, read = [], []
    for seed in range(6):
        begun = time.perf_counter()
        result = tb.estimate(model, rows, tolerance=TOLERANCE, method=method, seed=seed)
        seconds.append(time.perf_counter() - begun)
        read.append(result.cost.evaluations + result.cost.setup_evaluations)
    # The first call compiles.
    return {"seconds": median(seconds[1:]), "rows": median(read)}


def calibrated(name: str, seeds: int) -> dict[str, float]:
    model, rows = problems.make(name)
    most, small.MOST_ROWS_READ = small.MOST_ROWS_READ, np.inf
    truth = tb.estimate(model, rows, tolerance=TOLERANCE / 6, seed=2**32, method=tb.Weighted(degrees_of_freedom=8.0))
    small.MOST_ROWS_READ = most
    runs = [tb.estimate(model, rows, tolerance=TOLERANCE, seed=seed) for seed in range(seeds)]
    weighed = [run for run in runs if run.weighing is not None]
    found: dict[str, float] = {"seeds": seeds, "weighed": len(weighed)}
    off, half, alone, allowed = (
        np.array([np.concatenate([read(run[kind], truth[kind]) for kind in ("mean", "sd")]) for run in weighed])
        for read in (
            lambda each, exact: each.flat_value - exact.flat_value,
            lambda each, exact: each.half_width(),
            lambda each, exact: t_quantile(each.flat_freedom, 0.975) * each.flat_standard_error,
            lambda each, exact: each.flat_tolerance,
        )
    )
    found["rmse / tolerance, worst"] = float(np.sqrt(np.mean(off**2, axis=0) / np.mean(allowed**2, axis=0)).max())
    found["95% interval"] = float(np.mean(np.abs(off) <= half))
    found["t se alone"] = float(np.mean(np.abs(off) <= alone))
    found["draws"] = float(np.mean([run.weighing.draws for run in weighed if run.weighing]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=200)
    options = parser.parse_args()
    report: dict[str, Any] = {"fresh process": {}, "warm": {}, "calibration": {}}
    for rows in (100, 1_000, 10_000):
        weights, ladder = cold(rows, "None"), cold(rows, "tb.Anchored()")
        report["fresh process"][f"{rows} x 20"] = {"weights": weights, "ladder": ladder, "ratio": ladder / weights}
        print(f"fresh process, {rows:,} x 20: {weights:.2f} s, by the ladder {ladder:.2f} s", flush=True)
    for name in PROBLEMS:
        both = {"weights": warm(name, None), "ladder": warm(name, tb.Anchored())}
        report["warm"][name] = both
        seconds = both["ladder"]["seconds"] / both["weights"]["seconds"]
        print(f"{name}: {both['weights']['seconds']:.4f} s, {seconds:.1f} times faster than the ladder", flush=True)
    for name in PROBLEMS:
        report["calibration"][name] = found = calibrated(name, options.seeds)
        print(name, {key: round(value, 3) for key, value in found.items()}, flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
