"""Are the errors of mixed models true? Seeds of every reference problem, the stopping rule on.

    python benchmarks/mixed_calibration.py [--seeds 50] [--only NAME ...] [--tolerance 0.02] [--stored]

Each run is a fit by formula, as a user writes it; its fixed effects, scales, correlation and noise, mean and sd of
each, and mean and sd of every group's effect are held against the exact references of mixed_references.py. Reported by
problem: RMSE / tolerance of the worst quantity, the share of 95% intervals that hold the truth, for parameters and for
effects, and the largest z. The tolerance of an effect is that share of its own sd. Half as wide an interval is the
control. Runs are lines of results/mixed_calibration.jsonl and are not run again; the summary is
results/mixed_calibration.json, which keeps the problems that were not asked for.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import ages
import lines
import numpy as np
from mixed_problems import make
from mixed_references import truth

import tallbayes as tb
from tallbayes.groups import bundling
from tallbayes.records.fingerprint import METHOD_VERSION

RESULTS = Path(__file__).parent / "results"
NAMES = (
    "logistic-30-20", "logistic-slope-40-25", "poisson-30-10", "linear-40-8", "linear-slope-30-12", "logistic-50-1",
    "logistic-30-20-null", "logistic-uneven", "logistic-uneven-together", "logistic-2000-5",
)  # fmt: skip
# Several groups to a unit, which so few rows are not worth by themselves.
TOGETHER, FEW_PLACES = "-together", bundling.FEW_PLACES
TOLERANCE = 0.02
MOST_SECONDS = 600.0
KINDS = ("mean", "sd")


class Key(NamedTuple):
    """What a stored run is found by."""

    problem: str
    tolerance: float
    seed: int
    method_version: int


def run(key: Key) -> dict[str, Any]:
    """One fit as a line of the store."""
    problem = make(key.problem.removesuffix(TOGETHER))
    bundling.FEW_PLACES = 0 if key.problem.endswith(TOGETHER) else FEW_PLACES
    started = time.process_time()
    scales = {"prior_scale": problem.priors.coefficients, "intercept_scale": problem.priors.coefficients}
    options = scales | {"seed": key.seed, "tolerance": key.tolerance, "max_seconds": MOST_SECONDS}
    try:
        result = tb.fit(problem.formula, problem.table, problem.family, **options)
        seconds = time.process_time() - started
        found = {
            "parameters": {name: _of_parameter(result, label) for name, label in _labels(result).items()},
            "effects": _of_effects(result),
        }
    except Exception as error:
        return {"status": type(error).__name__, "message": str(error), "seconds": time.process_time() - started}
    return {
        "status": result.status.name,
        "method": result.method.partition("(")[0],
        "evaluations": result.cost.evaluations,
        "seconds": seconds,
        "effect_seconds": time.process_time() - started - seconds,
        **found,
    }


def _labels(result: tb.Result) -> dict[str, str]:
    """The reference's names of what is reported."""
    known = {}
    for label in result["mean"].value:
        if label.startswith("sd("):
            known[f"tau[{label[3:].partition('|')[0]}]"] = label
        elif label.startswith("cor("):
            known["rho"] = label
        else:
            known["sigma" if label == "noise_scale" else label] = label
    return known


def _of_parameter(result: tb.Result, label: str) -> dict[str, list[float]]:
    """Value, half width of the 95% interval, and tolerance of mean and sd."""
    place = list(result["mean"].value).index(label)
    parts = [(each.flat_value, each.half_width(), each.flat_tolerance) for each in (result[kind] for kind in KINDS)]
    return {kind: [float(part[place]) for part in own] for kind, own in zip(KINDS, parts, strict=True)}


def _of_effects(result: tb.Result) -> dict[str, Any]:
    found = result.effects()
    order = np.argsort([str(each) for each in found.levels])
    return {
        name: {
            "mean": found.mean[order, place].tolist(),
            "mean_error": found.mean_error[order, place].tolist(),
            "sd": found.sd[order, place].tolist(),
            "sd_error": found.sd_error[order, place].tolist(),
        }
        for place, name in enumerate(found.names)
    }


def summarise(name: str, stored: list[dict[str, Any]], tolerance: float) -> dict[str, Any]:
    """RMSE in tolerances, coverage and the largest z, parameters and effects apart."""
    exact, known = truth(name.removesuffix(TOGETHER)), [each for each in stored if each["status"] == "converged"]
    quantities = exact["quantities"]
    off, half, blur, allowed = [], [], [], []
    for each in known:
        rows = [
            (found[kind], quantities[label][kind], quantities[label][f"{kind}_error"])
            for label, found in each["parameters"].items()
            for kind in KINDS
        ]
        off.append([value - there for (value, _, _), there, _ in rows])
        half.append([width for (_, width, _), _, _ in rows])
        allowed.append([tol for (_, _, tol), _, _ in rows])
        blur.append([error for _, _, error in rows])
    misses, widths, units, errors = map(np.array, (off, half, allowed, blur))
    effects, effect_halves = [], []
    for each in known:
        for effect, found in each["effects"].items():
            there = exact["effects"][effect]
            for kind in KINDS:
                unit = np.array(there["sd"])
                effects.append((np.array(found[kind]) - np.array(there[kind])) / unit)
                effect_halves.append(1.96 * np.array(found[f"{kind}_error"]) / unit)
    misses_of_effects, halves = np.array(effects), np.array(effect_halves)
    return {
        "problem": name,
        "runs": len(stored),
        "converged": len(known),
        "methods": sorted({each["method"] for each in known}),
        "rmse": float(np.sqrt(np.mean(misses**2, axis=0) / np.mean(units**2, axis=0)).max()),
        "coverage": float(np.mean(np.abs(misses) <= widths)),
        "coverage_halved": float(np.mean(np.abs(misses) <= widths / 2)),
        "z": float(np.max(np.abs(misses) / np.hypot(widths / 1.96, errors))),
        "effect_rmse": float(np.sqrt(np.mean(misses_of_effects**2)) / tolerance),
        "effect_coverage": float(np.mean(np.abs(misses_of_effects) <= halves)),
        "effect_coverage_halved": float(np.mean(np.abs(misses_of_effects) <= halves / 2)),
        "seconds": float(np.median([each["seconds"] for each in known])),
        "effect_seconds": float(np.median([each["effect_seconds"] for each in known])),
        "failures": [each.get("message", each["status"]) for each in stored if each["status"] != "converged"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="calibration of mixed models, the stopping rule on")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--only", nargs="+", default=list(NAMES))
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    parser.add_argument("--workers", type=int, default=lines.WORKERS)
    parser.add_argument("--stored", action="store_true", help="judge what is stored, run nothing")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    path = given.out / "mixed_calibration.jsonl"
    keys = [Key(name, given.tolerance, seed, METHOD_VERSION) for name in given.only for seed in range(given.seeds)]
    if not given.stored:
        lines.complete(keys, path, run, given.workers)
    stored = lines.read(path, Key)
    judge = partial(summarise, tolerance=given.tolerance)
    runs = {name: [stored[key] for key in keys if key.problem == name and key in stored] for name in given.only}
    found = [judge(name, own) for name, own in runs.items() if own]
    for each in found:
        print({key: round(value, 3) if isinstance(value, float) else value for key, value in each.items()})
    summary = given.out / "mixed_calibration.json"
    before = json.loads(summary.read_text()) if summary.exists() else []
    known = {each["problem"]: each for each in (*before, *found)}
    summary.write_text(json.dumps([known[name] for name in NAMES if name in known], indent=1) + "\n")
    ages.record(summary, {name: ages.of_lines(runs[name]) if runs.get(name) else None for name in known})


if __name__ == "__main__":
    main()
