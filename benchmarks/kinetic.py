"""Kinetic steps beside exponential ones: rows to a tolerance, near a Gaussian and far from one.

    python benchmarks/kinetic.py [--calibrate 40]      prints two tables, writes results/kinetic.json

Some seeds of every problem by both dynamics: with everything tuned ("tuned"), with all rows in every step ("all
rows"), and about the mode without a control ("plain"), as a model of one's own runs that has no averages. Gradients are
those of rows along paths, pilots and all; with a control a row that is read is evaluated at two points, and both count.
Then seeds of kinetic steps against an independent reference: the RMSE of the worst of all means and sds in tolerances,
how often the published 95% interval and t_nu se alone hold the truth, and runs that did not converge. Every finished
piece is stored at once and not run again: delete the file after the sampler has changed.
"""

from __future__ import annotations

import argparse
from functools import cache, partial
from pathlib import Path
from typing import Any

import ages
import numpy as np
import problems
import references
from peers import truths

import tallbayes as tb
from tallbayes.estimator.estimates import t_quantile
from tallbayes.experiments.store import Measurement, Store
from tallbayes.views.text import table

RESULTS = Path(__file__).parent / "results"
NAME = "kinetic"
# Tolerance and seeds.
SETTINGS = {
    problems.STEEP: (0.02, 3),
    "logistic-300-5": (0.02, 3),
    "logistic-1000-20": (0.02, 3),
    "logistic-10000-20": (0.02, 3),
    "steep-1000-100": (0.05, 1),
    "logistic-1000-200": (0.05, 1),
}
DYNAMICS = {"exponential": tb.Exponential(), "kinetic": tb.Kinetic()}
WAYS: dict[str, dict[str, Any]] = {
    "tuned": {},
    "all rows": {"gradient": tb.Full()},
    "plain": {"anchor": "mode", "control": False},
}
# A model of one's own of so many parameters takes an hour by either.
DEAR = "steep-1000-100", "logistic-1000-200"
CALIBRATED = ("logistic-300-5", problems.STEEP, "logistic-1000-20")


def ways_of(name: str) -> dict[str, dict[str, Any]]:
    return {way: parts for way, parts in WAYS.items() if way != "plain" or name not in DEAR}


@cache
def made(name: str) -> tuple[Any, Any]:
    return problems.make(name)


@cache
def reference(name: str) -> Any:
    return truths.get("non-gaussian") if name == problems.STEEP else references.get(name)


def call(name: str, method: Any, seed: int, judged: bool) -> dict[str, Any]:
    model, rows = made(name)
    result = tb.estimate(model, rows, tolerance=SETTINGS[name][0], seed=seed, method=method)
    controlled = result.tuning is not None and result.tuning.chosen.left != 1.0
    found = {
        "status": result.status.name,
        "gradients": result.cost.evaluations * (2 if controlled else 1),
        "samples": [level.samples for level in result.levels],
        "method": result.method,
    }
    return found | (judge(result, reference(name)) if judged else {})


def judge(result: Any, truth: Any) -> dict[str, Any]:
    errors, inside, by_error = [], [], []
    for each in ("mean", "sd"):
        found = result[each]
        off = np.abs(found.flat_value - getattr(truth, each))
        reach = t_quantile(found.flat_freedom, 0.975) * found.flat_standard_error
        errors.append(off / found.flat_tolerance)
        inside.append(off <= reach + found.flat_bias_bound)
        by_error.append(off <= reach)
    return {
        "errors": [float(each) for each in np.concatenate(errors)],
        "inside": float(np.mean(np.concatenate(inside))),
        "by_error": float(np.mean(np.concatenate(by_error))),
    }


def calls(name: str, method: Any, seeds: range, judged: bool = False) -> dict[str, Any]:
    return {"runs": [call(name, method, seed, judged) for seed in seeds]}


def pieces(calibrated: int) -> dict[str, Measurement]:
    found = {}
    for name, (tolerance, count) in SETTINGS.items():
        for way, parts in ways_of(name).items():
            for title, dynamics in DYNAMICS.items():
                method = tb.Anchored(dynamics=dynamics, **parts)
                settings = {"problem": name, "method": repr(method), "tolerance": tolerance, "seeds": count}
                found[f"{name}, {way}, {title}"] = Measurement(settings, partial(calls, name, method, range(count)))
    for name in CALIBRATED if calibrated else ():
        method, seeds = tb.Anchored(dynamics=DYNAMICS["kinetic"]), range(100, 100 + calibrated)
        settings = {"problem": name, "method": repr(method), "tolerance": SETTINGS[name][0], "seeds": list(seeds)}
        found[f"calibration, {name}"] = Measurement(settings, partial(calls, name, method, seeds, judged=True))
    return found


def median(piece: dict[str, Any], field: str) -> float:
    return float(np.median([run[field] for run in piece["runs"]]))


def show_costs(results: dict[str, Any]) -> str:
    header = ("problem", "tolerance", "way", "exponential: epochs", "kinetic: epochs", "times fewer", "ended")
    cells = []
    for name, (tolerance, _) in SETTINGS.items():
        for way in ways_of(name):
            both = [results[f"{name}, {way}, {title}"] for title in DYNAMICS]
            size = problems.split(name)[1]
            spent = [median(each, "gradients") for each in both]
            costs = [f"{each / size:.3g}" for each in spent]
            ended = sorted({run["status"] for each in both for run in each["runs"]})
            fewer = f"{spent[0] / spent[1]:.2f}"
            cells.append([name, f"{tolerance:g}", way, *costs, fewer, ", ".join(ended)])
    return table(header, cells)


def show_calibration(results: dict[str, Any]) -> str:
    header = ("problem", "runs", "converged", "worst RMSE/tol", "95% interval", "t se alone")
    cells = []
    for key, piece in results.items():
        if not key.startswith("calibration, "):
            continue
        runs = piece["runs"]
        rmse = np.sqrt(np.mean(np.square([run["errors"] for run in runs]), axis=0)).max()
        converged = sum(run["status"] == "converged" for run in runs)
        inside, by_error = (np.mean([run[each] for run in runs]) for each in ("inside", "by_error"))
        ends = [f"{rmse:.2f}", f"{inside:.1%}", f"{by_error:.1%}"]
        cells.append([key.partition(", ")[2], str(len(runs)), str(converged), *ends])
    return table(header, cells) if cells else ""


def main() -> None:
    parser = argparse.ArgumentParser(description="kinetic steps beside exponential ones")
    parser.add_argument("--calibrate", type=int, default=0, metavar="SEEDS", help="seeds a problem against a reference")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    store = Store(given.out)
    ages.complete(store, NAME, pieces(given.calibrate))
    results = store.results(NAME)
    print(show_costs(results))
    print(show_calibration(results))


if __name__ == "__main__":
    main()
