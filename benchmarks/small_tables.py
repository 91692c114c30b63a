"""Small tables: draws with weights beside the ladder, in a fresh process and warm, and whether errors are true.

    python benchmarks/small_tables.py --out benchmarks/results/small_tables.json --seeds 200

A fresh process is timed from its start to its end, imports included, the best of three. Warm seconds are medians of
five calls. RMSE / tolerance and the coverage of 95% intervals are over seeds, of all means and all sds together, beside
the references of the contest (peers/truths.py, known to 0.0003 posterior sds and better); of data that a line
separates, whose posterior is one long tail, beside quadrature. The quantities of a seed are not independent, so the
standard error of a coverage comes from the seeds. As a control, intervals half as long must cover too seldom.
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

import ages
import lines
import numpy as np
import problems
import quadrature
import references
from peers import posteriors, truths

import tallbayes as tb
from tallbayes.estimator.estimates import t_quantile

TOLERANCE = 0.01
PROBLEMS = (
    "paper-100-3",
    "logistic-300-5",
    "logistic-1000-20",
    "logistic-10000-20",
    "logistic-100000-20",
    problems.STEEP,
)
SEPARATED, SEPARATED_ROWS, SEPARATED_SCALE = "separated-20-2", 20, 10.0
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


def separated() -> tuple[tb.Model, dict[str, np.ndarray]]:
    """y = 1 where x > 0, and nowhere else."""
    x = np.linspace(-2.0, 2.0, SEPARATED_ROWS)
    rows = {"x": np.column_stack([x, np.ones_like(x)]), "y": (x > 0).astype(float)}
    return tb.families.logistic(prior_scale=SEPARATED_SCALE), rows


def posed(name: str) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """Model, rows and the truth."""
    if name == SEPARATED:
        model, rows = separated()
        exact = quadrature.Regression.of(quadrature.LOGISTIC, **rows, scale=SEPARATED_SCALE)
        return model, rows, exact.moments(reach=16.0, step=0.1)
    in_contest = "non-gaussian" if name == problems.STEEP else name
    found = truths.get(in_contest) if in_contest in posteriors.NAMES else references.get(name)
    return *problems.make(name), {kind: np.array(getattr(found, kind)) for kind in ("mean", "sd")}


def calibrated(name: str, seeds: int) -> dict[str, float]:
    model, rows, truth = posed(name)
    runs = [tb.estimate(model, rows, tolerance=TOLERANCE, seed=seed) for seed in range(seeds)]
    weighed = [run for run in runs if run.weighing is not None]
    found: dict[str, float] = {"seeds": seeds, "weighed": len(weighed)}
    off, half, alone, allowed = (
        np.array([np.concatenate([read(run[kind], truth[kind]) for kind in ("mean", "sd")]) for run in weighed])
        for read in (
            lambda each, exact: each.flat_value - exact,
            lambda each, exact: each.half_width(),
            lambda each, exact: t_quantile(each.flat_freedom, 0.975) * each.flat_standard_error,
            lambda each, exact: each.flat_tolerance,
        )
    )
    by_quantity = np.sqrt(np.mean(off**2, axis=0) / np.mean(allowed**2, axis=0))
    found["rmse / tolerance"] = float(np.sqrt(np.mean(by_quantity**2)))
    found["rmse / tolerance, worst"] = float(by_quantity.max())
    by_seed = np.mean(np.abs(off) <= half, axis=1)
    found["95% interval"] = float(by_seed.mean())
    found["its standard error"] = float(by_seed.std(ddof=1) / np.sqrt(len(by_seed)))
    found["worst quantity"] = float(np.mean(np.abs(off) <= half, axis=0).min())
    found["t se alone"] = float(np.mean(np.abs(off) <= alone))
    found["half as long"] = float(np.mean(np.abs(off) <= half / 2))
    found["bias / tolerance, worst"] = float(np.abs(off.mean(axis=0) / allowed.mean(axis=0)).max())
    found["draws"] = float(np.mean([run.weighing.draws for run in weighed if run.weighing]))
    return found


def fresh_processes(seeds: int) -> dict[str, Any]:
    report = {}
    for rows in (100, 1_000, 10_000):
        weights, ladder = cold(rows, "None"), cold(rows, "tb.Anchored()")
        report[f"{rows} x 20"] = {"weights": weights, "ladder": ladder, "ratio": ladder / weights}
        print(f"fresh process, {rows:,} x 20: {weights:.2f} s, by the ladder {ladder:.2f} s", flush=True)
    return report


def warm_calls(seeds: int) -> dict[str, Any]:
    report = {}
    for name in PROBLEMS:
        report[name] = both = {"weights": warm(name, None), "ladder": warm(name, tb.Anchored())}
        seconds = both["ladder"]["seconds"] / both["weights"]["seconds"]
        print(f"{name}: {both['weights']['seconds']:.4f} s, {seconds:.1f} times faster than the ladder", flush=True)
    return report


def calibrations(seeds: int) -> dict[str, Any]:
    report = {}
    for name in (*PROBLEMS, SEPARATED):
        report[name] = found = calibrated(name, seeds)
        print(name, {key: round(value, 3) for key, value in found.items()}, flush=True)
    return report


PARTS = {"fresh process": fresh_processes, "warm": warm_calls, "calibration": calibrations}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="others stay as they are stored")
    options = parser.parse_args()
    stored = options.out is not None and options.out.exists()
    report: dict[str, Any] = json.loads(options.out.read_text()) if stored else {}
    report.setdefault("commits", {})
    # Of what is loaded, whatever is committed meanwhile.
    commit = lines.describe_commit()
    for part in options.only:
        report[part] = PARTS[part](options.seeds)
        report["commits"][part] = commit
        if options.out is not None:
            options.out.write_text(json.dumps(report, indent=1) + "\n")
            ages.record(options.out, ages.renewed(options.out.name, PARTS, [part]))


if __name__ == "__main__":
    main()
