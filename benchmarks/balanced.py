"""The balanced anchor and the control of second order beside the ladder about the mode, to 1% of all means and sds.

    python benchmarks/balanced.py [--calibrate 40]      prints two tables, writes results/balanced.json

Six seeds of every problem, with what is chosen by default and with `tb.Anchored(anchor="mode", control=False)`, the
ladder as it was before there was either. Rows are row reads along paths, pilots and all, as `result.cost` counts them;
with a control every row that is read is evaluated at two points, and the table says so: `gradients` counts both. Passes
are those of set-up. Then seeds of the default alone against an independent reference: the RMSE of the worst of all
means and sds in tolerances, how often the published 95% interval and t_nu se alone hold the truth, and runs that did
not converge. Every finished piece is stored at once and not run again: delete the file after the sampler has changed.
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
NAME, TOLERANCE, SEEDS = "balanced", 0.01, range(6)
FAR = problems.STEEP
# By how many times fewer rows are read than about the mode, at the least.
WANTED = {
    "logistic-300-5": 5.0,
    "logistic-1000-20": 5.0,
    "logistic-10000-20": 5.0,
    FAR: 4.0,
    "logistic-100000-20": 1.0,
    "logistic-1000000-20": 1.0,
}
CALIBRATED = ("logistic-300-5", "logistic-1000-20", "logistic-10000-20", FAR)
METHODS = {"default": tb.Anchored(), "about the mode": tb.Anchored(anchor="mode", control=False)}


@cache
def made(name: str) -> tuple[Any, Any]:
    return problems.make(name)


@cache
def reference(name: str) -> Any:
    return truths.get("non-gaussian") if name == FAR else references.get(name)


def call(name: str, method: Any, seed: int) -> dict[str, Any]:
    model, rows = made(name)
    result = tb.estimate(model, rows, tolerance=TOLERANCE, seed=seed, method=method)
    truth, errors, inside, by_error = reference(name), [], [], []
    for each in ("mean", "sd"):
        found = result[each]
        off = np.abs(found.flat_value - getattr(truth, each))
        reach = t_quantile(found.flat_freedom, 0.975) * found.flat_standard_error
        errors.append(off / found.flat_tolerance)
        inside.append(off <= reach + found.flat_bias_bound)
        by_error.append(off <= reach)
    controlled = result.tuning is not None and result.tuning.chosen.left != 1.0
    return {
        "status": result.status.name,
        "rows": result.cost.evaluations,
        "gradients": result.cost.evaluations * (2 if controlled else 1),
        "setup": result.cost.setup_evaluations,
        "seconds": round(result.cost.seconds, 3),
        "errors": [float(each) for each in np.concatenate(errors)],
        "inside": float(np.mean(np.concatenate(inside))),
        "by_error": float(np.mean(np.concatenate(by_error))),
        "method": result.method,
        "anchor": result.anchor.reason,
    }


def calls(name: str, method: Any, seeds: range) -> dict[str, Any]:
    """After one that compiles."""
    call(name, method, 10**6)
    return {"runs": [call(name, method, seed) for seed in seeds]}


def pieces(calibrated: int) -> dict[str, Measurement]:
    found = {}
    for name in WANTED:
        for title, method in METHODS.items():
            settings = {"problem": name, "method": repr(method), "tolerance": TOLERANCE, "seeds": list(SEEDS)}
            found[f"{title}, {name}"] = Measurement(settings, partial(calls, name, method, SEEDS))
    for name in CALIBRATED if calibrated else ():
        seeds = range(100, 100 + calibrated)
        settings = {"problem": name, "tolerance": TOLERANCE, "seeds": list(seeds)}
        found[f"calibration, {name}"] = Measurement(settings, partial(calls, name, METHODS["default"], seeds))
    return found


def median(piece: dict[str, Any], field: str) -> float:
    return float(np.median([run[field] for run in piece["runs"]]))


def show_costs(results: dict[str, Any]) -> str:
    header = (
        "problem", "method", "rows", "gradients", "epochs", "set-up passes", "s", "worst error/tol", "times fewer rows",
        "gradients", "",
    )  # fmt: skip
    cells = []
    for name, wanted in WANTED.items():
        before = results[f"about the mode, {name}"]
        for title in METHODS:
            piece, size = results[f"{title}, {name}"], problems.split(name)[1]
            fewer, gradients = (median(before, each) / median(piece, each) for each in ("rows", "gradients"))
            kept = "kept" if fewer >= wanted else "NOT KEPT"
            verdict = f"{kept}: at least {wanted:g}" if title == "default" else ""
            worst = max(max(run["errors"]) for run in piece["runs"])
            cells.append(
                [
                    name, title, f"{median(piece, 'rows'):.3g}", f"{median(piece, 'gradients'):.3g}",
                    f"{median(piece, 'rows') / size:.3g}", f"{median(piece, 'setup') / size:.1f}",
                    f"{median(piece, 'seconds'):.2f}", f"{worst:.2f}", f"{fewer:.1f}", f"{gradients:.1f}", verdict,
                ]
            )  # fmt: skip
    return table(header, cells)


def show_calibration(results: dict[str, Any]) -> str:
    header = ("problem", "runs", "converged", "worst RMSE/tol", "95% interval", "t se alone", "rows")
    cells = []
    for key, piece in results.items():
        if not key.startswith("calibration, "):
            continue
        runs = piece["runs"]
        rmse = np.sqrt(np.mean(np.square([run["errors"] for run in runs]), axis=0)).max()
        converged = sum(run["status"] == "converged" for run in runs)
        inside, by_error = (np.mean([run[each] for run in runs]) for each in ("inside", "by_error"))
        cells.append(
            [
                key.partition(", ")[2], str(len(runs)), str(converged), f"{rmse:.2f}", f"{inside:.1%}",
                f"{by_error:.1%}", f"{median(piece, 'rows'):.3g}",
            ]
        )  # fmt: skip
    return table(header, cells) if cells else ""


def main() -> None:
    parser = argparse.ArgumentParser(description="the balanced anchor and the control beside the ladder about the mode")
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
