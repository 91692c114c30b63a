"""Is the promise kept with the stopping rule on? Many seeds of four problems against exact references.

    python benchmarks/calibration.py [--seeds 200] [--problem NAME] [--tolerance 0.1] [--method anchored|randomised]

    RMSE / tolerance <= 1.3 for the worst quantity; t_nu se alone covers 93% to 97% pooled, no quantity below 87.5%;
    an exactly Gaussian model is right to 1e-5 sd; Randomised: mean z-scores within 5 standard errors of 0

Every run is a line of benchmarks/results/calibration.jsonl, and what is there is not run again: delete the file after
the sampler has changed. Two processes, each on one core, share the seeds. The summary, of all runs that are stored, is
printed and written to benchmarks/results/calibration.json. A run that does not converge counts like any other.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import problems
import references
from scipy.special import stdtrit

import tallbayes as tb
from tallbayes.display import table

RESULTS = Path(__file__).parent / "results"
PROBLEMS = (problems.GAUSSIAN, *problems.CALIBRATION)
TOLERANCES = (0.1, 0.01)
METHODS = ("anchored", "randomised", "multilevel")
WORKERS = 2
QUANTITIES = ("mean", "sd")


class Key(NamedTuple):
    """What a stored run is found by."""

    problem: str
    tolerance: float
    method: str
    seed: int


@dataclass(frozen=True)
class Summary:
    """All runs of one problem, tolerance and method; coverages and z-scores over its means and sds."""

    problem: str
    tolerance: float
    method: str
    runs: int
    converged: int
    others: dict[str, int]
    rmse: float
    worst_error: float
    pooled_coverage: float
    worst_coverage: float
    pooled_interval: float
    worst_interval: float
    worst_mean_z: float
    epochs: float
    seconds: float


def make_method(name: str) -> Any:
    if name == "multilevel":
        return tb.Multilevel()
    return tb.Anchored() if name == "anchored" else tb.Randomised(tb.Anchored())


@cache
def worker_problem(name: str) -> tuple[Any, Any, ThreadPoolExecutor]:
    """Made once in every process, with a single thread to run it on."""
    return *problems.make(name), ThreadPoolExecutor(1)


def run(key: Key, max_seconds: float) -> dict[str, Any]:
    """One estimate as a line of the store; an exception is an outcome, too."""
    model, rows, executor = worker_problem(key.problem)
    started = time.monotonic()
    try:
        result = tb.estimate(
            model, rows, tolerance=key.tolerance, seed=key.seed, method=make_method(key.method), executor=executor,
            max_seconds=max_seconds,
        )  # fmt: skip
    except tb.TallbayesError as error:
        return key._asdict() | {"status": type(error).__name__, "seconds": time.monotonic() - started}

    def joined(field: str) -> list[float | None]:
        numbers = np.concatenate([getattr(result[name], field) for name in QUANTITIES])
        return [float(each) if np.isfinite(each) else None for each in numbers]

    return key._asdict() | {
        "status": result.status.name,
        "value": joined("flat_value"),
        "standard_error": joined("flat_standard_error"),
        "bias_bound": joined("flat_bias_bound"),
        "freedom": joined("flat_freedom"),
        "allowed": joined("flat_tolerance"),
        "evaluations": result.cost.evaluations,
        "setup_evaluations": result.cost.setup_evaluations,
        "num_data": result.cost.num_data,
        "seconds": round(result.cost.seconds, 4),
    }


def read(path: Path) -> dict[Key, dict[str, Any]]:
    """Stored runs; a line cut short by a kill is run again."""
    stored = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            each = json.loads(line)
        except json.JSONDecodeError:
            continue
        stored[Key(*(each[field] for field in Key._fields))] = each
    return stored


def complete(keys: list[Key], path: Path, max_seconds: float) -> None:
    """Run what is missing, a line as soon as each is done."""
    stored = read(path)
    missing = [key for key in keys if key not in stored]
    if not missing:
        return
    os.environ["NPROC"] = "1"  # read by XLA when a worker starts: one core each
    commit = describe_commit()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        path.write_bytes(path.read_bytes() + b"\n")
    context = multiprocessing.get_context("spawn")
    with path.open("a") as store, ProcessPoolExecutor(WORKERS, mp_context=context) as executor:
        futures = [executor.submit(run, key, max_seconds) for key in missing]
        try:
            for number, future in enumerate(as_completed(futures), 1):
                each = future.result()
                store.write(json.dumps(each | {"commit": commit}) + "\n")
                store.flush()
                if number % 20 == 0 or number == len(missing):
                    told = " ".join(str(each[field]) for field in Key._fields)
                    print(f"{number}/{len(missing)}: {told} {each['status']}", file=sys.stderr, flush=True)
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise


def describe_commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def summarise(group: tuple[str, float, str], runs: list[dict[str, Any]]) -> Summary:
    """Errors, coverages and z-scores by quantity, then the worst and the pooled of them."""
    reference = references.get(group[0])
    truth, sd = np.array(reference.mean + reference.sd), np.array(reference.sd * 2)
    blur = np.array(reference.mean_error + reference.sd_error)
    answered = [each for each in runs if "value" in each]
    columns = {
        field: np.array([each[field] for each in answered], dtype=float).reshape(len(answered), len(truth))
        for field in ("value", "standard_error", "bias_bound", "freedom", "allowed")
    }
    error, se = columns["value"] - truth, columns["standard_error"]
    freedom = np.where(np.isfinite(columns["freedom"]), np.minimum(columns["freedom"], 1e9), 1e9)
    half = stdtrit(freedom, 0.975) * se
    known = np.isfinite(half + columns["bias_bound"])  # an unknown error is an interval that is the whole line
    covered = (np.abs(error) <= half) | ~np.isfinite(half)
    within = (np.abs(error) <= half + columns["bias_bound"]) | ~known
    with np.errstate(invalid="ignore", divide="ignore"):
        scores = error / se
        spread = np.sqrt(scores.var(axis=0, ddof=1) / len(scores) + (blur / np.nanmean(se, axis=0)) ** 2)
        worst_z = np.max(np.abs(scores.mean(axis=0)) / spread)
    statuses = Counter(each["status"] for each in runs)
    return Summary(
        *group,
        runs=len(runs),
        converged=statuses.pop("converged", 0),
        others=dict(statuses),
        rmse=float(np.max(np.sqrt(np.mean((error / columns["allowed"]) ** 2, axis=0)))),
        worst_error=float(np.max(np.abs(error) / sd)),
        pooled_coverage=float(covered.mean()),
        worst_coverage=float(covered.mean(axis=0).min()),
        pooled_interval=float(within.mean()),
        worst_interval=float(within.mean(axis=0).min()),
        worst_mean_z=float(worst_z),
        epochs=float(np.median([each["evaluations"] / each["num_data"] for each in answered])),
        seconds=float(np.median([each["seconds"] for each in answered])),
    )


def verdicts(summary: Summary) -> dict[str, bool]:
    """What the promise says of this row, each kept or not."""
    if summary.problem == problems.GAUSSIAN:
        return {"1e-5 sd": summary.worst_error <= 1e-5}
    kept = {"converged": summary.converged == summary.runs}
    if summary.method == "randomised":
        return kept | {"mean z": summary.worst_mean_z <= 5}
    return kept | {
        "RMSE": summary.rmse <= 1.3,
        "pooled": 0.93 <= summary.pooled_coverage <= 0.97,
        "worst": summary.worst_coverage >= 0.875,
    }


def show(summaries: list[Summary]) -> str:
    header = (
        "problem", "tolerance", "method", "runs", "converged", "RMSE/tol", "worst error (sd)", "t se", "worst",
        "interval", "worst", "mean z (se)", "epochs", "seconds", "falls short in",
    )  # fmt: skip
    cells = []
    for each in summaries:
        covers = (each.pooled_coverage, each.worst_coverage, each.pooled_interval, each.worst_interval)
        missed = [name for name, kept in verdicts(each).items() if not kept]
        cells.append(
            [
                each.problem, f"{each.tolerance:g}", each.method, str(each.runs), str(each.converged),
                f"{each.rmse:.2f}", f"{each.worst_error:.1e}", *(f"{100 * share:.1f}%" for share in covers),
                f"{each.worst_mean_z:.1f}", f"{each.epochs:.3g}", f"{each.seconds:.2g}", ", ".join(missed) or "-",
            ]
        )  # fmt: skip
    lines = [table(header, cells)]
    lines += [f"{each.problem} {each.tolerance:g} {each.method}: {each.others}" for each in summaries if each.others]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="calibration with the stopping rule on")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--problem", choices=PROBLEMS, nargs="+", default=PROBLEMS)
    parser.add_argument("--tolerance", type=float, nargs="+", default=TOLERANCES)
    parser.add_argument("--method", choices=METHODS, nargs="+", default=METHODS[:2])
    parser.add_argument("--max-seconds", type=float, default=300.0, help="for one run, whose status then says so")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of calibration.jsonl and calibration.json")
    given = parser.parse_args()
    path = given.out / "calibration.jsonl"
    keys = [
        Key(problem, tolerance, method, seed)
        for method in given.method
        for tolerance in given.tolerance
        for problem in given.problem
        for seed in range(given.seeds)
    ]
    complete(keys, path, given.max_seconds)
    stored = read(path)
    groups: dict[tuple[str, float, str], list[dict[str, Any]]] = {}
    for key in sorted(stored):
        groups.setdefault((key.problem, key.tolerance, key.method), []).append(stored[key])
    summaries = [summarise(group, runs) for group, runs in groups.items() if any("value" in each for each in runs)]
    summaries.sort(key=lambda each: (each.method, each.tolerance, each.problem))
    print(show(summaries))
    commits = sorted({each["commit"] for each in stored.values()})
    if len(commits) > 1:
        print(f"runs of several commits: {', '.join(commits)}")
    document = {
        "settings": {"max_seconds": given.max_seconds, "workers": WORKERS, "commits": commits},
        "versions": {name: version(name) for name in ("tallbayes", "jax", "jaxlib", "numpy")},
        "rows": [plain(asdict(each) | {"kept": verdicts(each)}) for each in summaries],
    }
    (given.out / "calibration.json").write_text(json.dumps(document, indent=1) + "\n")


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN."""
    return {name: None if isinstance(each, float) and not math.isfinite(each) else each for name, each in row.items()}


if __name__ == "__main__":
    main()
