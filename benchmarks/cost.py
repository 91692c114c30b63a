"""Cost against the number of rows at tolerance 0.01, means and sds: logistic regression, d = 20.

    python benchmarks/cost.py [--sizes 1000 10000 ...] [--out FOLDER]      prints a table, writes cost.json and cost.svg

Three methods share the axis: the default, the same with n = N^(1/3) rows a step, and the paper's ladder (h_0 = 1/N,
m = 5, n = N^(1/3)). The paper's ladder is run at the finest tolerance that a budget of seconds allows, and its items
are scaled to 0.01 by eps^-2. Sampling items are data items along paths, pilots and all; the set-up passes (mode and
Hessian) are shown apart. Every finished piece is stored at once and not run again: delete cost.json after the sampler
has changed.
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

import tallbayes as tb
from tallbayes.experiments import style
from tallbayes.experiments.scaling import exponent
from tallbayes.experiments.store import Measurement, Store
from tallbayes.views.text import table

RESULTS = Path(__file__).parent / "results"
NAME = "cost"
TOLERANCE = 0.01
SEEDS = (0, 1, 2)
DEFAULT, CUBE, PAPER = "default", "n = N^(1/3)", "paper's ladder"
LADDER_TOLERANCES = (0.8, 0.4, 0.2, 0.1, 0.05, 0.02, 0.01)
LADDER_SECONDS = 60.0
MAX_SECONDS = 300.0
FLOOR, STEEPEST = 1.2, -0.2


@cache
def make_rows(num_rows: int) -> tuple[Any, Any]:
    return problems.make(problems.tall_name(num_rows))


def cube_root(num_rows: int) -> int:
    return int(np.ceil(num_rows ** (1 / 3) - 1e-9))


def make_method(name: str, num_rows: int) -> Any:
    if name == DEFAULT:
        return None
    gradient = tb.Taylor(batch_size=cube_root(num_rows))
    if name == CUBE:
        return tb.Anchored(gradient=gradient)
    return tb.Multilevel(gradient=gradient, ladder=tb.Ladder(first_step=1 / num_rows, start_steps=5, added_steps=5))


def outcome(result: tb.Result, num_rows: int) -> dict[str, Any]:
    """One run; the error is the worst of all means and sds against the reference, in tolerances."""
    reference = references.get(problems.tall_name(num_rows))
    error = {"mean": result["mean"].flat_value - reference.mean, "sd": result["sd"].flat_value - reference.sd}
    return {
        "status": result.status.name,
        "items": result.cost.evaluations,
        "setup_items": result.cost.setup_evaluations,
        "seconds": round(result.cost.seconds, 3),
        "error": float(max(np.max(np.abs(error[name]) / result[name].flat_tolerance) for name in error)),
        "method": result.method,
    }


def run_seeds(name: str, num_rows: int) -> dict[str, Any]:
    """The median over the seeds at the tolerance itself."""
    method, (model, rows) = make_method(name, num_rows), make_rows(num_rows)
    runs = [
        outcome(
            tb.estimate(model, rows, tolerance=TOLERANCE, seed=seed, method=method, max_seconds=MAX_SECONDS), num_rows
        )
        for seed in SEEDS
    ]
    return {"tolerance": TOLERANCE, "runs": runs}


def run_ladder(num_rows: int) -> dict[str, Any]:
    """Ever finer tolerances until the next, four times as dear, would not fit the budget."""
    method, (model, rows) = make_method(PAPER, num_rows), make_rows(num_rows)
    best: dict[str, Any] = {"tolerance": None, "runs": []}
    for tolerance in LADDER_TOLERANCES:
        result = tb.estimate(model, rows, tolerance=tolerance, seed=0, method=method, max_seconds=LADDER_SECONDS)
        if result.converged or not best["runs"]:
            best = {"tolerance": tolerance, "runs": [outcome(result, num_rows)]}
        if not result.converged or 4 * result.cost.seconds > LADDER_SECONDS:
            break
    return best


def pieces(sizes: list[int]) -> dict[str, Measurement]:
    made = {}
    for num_rows in sizes:
        common = {"num_rows": num_rows, "dimension": 20, "n": cube_root(num_rows)}
        ours = {"num_rows": num_rows, "dimension": 20, "tolerance": TOLERANCE, "seeds": list(SEEDS)}
        ladder = common | {"tolerances": list(LADDER_TOLERANCES), "max_seconds": LADDER_SECONDS, "seed": 0}
        made[f"{DEFAULT}, N = {num_rows}"] = Measurement(ours, partial(run_seeds, DEFAULT, num_rows))
        made[f"{CUBE}, N = {num_rows}"] = Measurement(ours | common, partial(run_seeds, CUBE, num_rows))
        made[f"{PAPER}, N = {num_rows}"] = Measurement(ladder, partial(run_ladder, num_rows))
    return made


def series(results: dict[str, Any], name: str) -> dict[int, dict[str, Any]]:
    """By number of rows: items at 0.01 (scaled where need be), set-up items, and whether every run converged."""
    found = {}
    for key, piece in results.items():
        method, num_rows = key.rsplit(", N = ", 1)
        if method != name:
            continue
        median = {
            field: float(np.median([run[field] for run in piece["runs"]]))
            for field in ("items", "setup_items", "seconds")
        }
        found[int(num_rows)] = median | {
            "tolerance": piece["tolerance"],
            "scaled": median["items"] * (piece["tolerance"] / TOLERANCE) ** 2,
            "converged": all(run["status"] == "converged" for run in piece["runs"]),
            "statuses": sorted({run["status"] for run in piece["runs"]}),
            "error": max(run["error"] for run in piece["runs"]),
        }
    return dict(sorted(found.items()))


def whole(found: dict[int, dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Sizes whose runs converged, and their items."""
    kept = {size: each["scaled"] for size, each in found.items() if each["converged"]}
    return np.array(list(kept)), np.array(list(kept.values()))


def falling(found: dict[int, dict[str, Any]]) -> tuple[np.ndarray, np.ndarray]:
    """Converged sizes and items up to the floor: the first that is within 20% of the least."""
    sizes, items = whole(found)
    last = int(np.argmax(items <= FLOOR * items.min())) if len(items) else 0
    return sizes[: last + 1], items[: last + 1]


def fit(found: dict[int, dict[str, Any]], to_floor: bool) -> tuple[float, float]:
    """The exponent of sampling items against N and its standard error; NaN where there are too few sizes."""
    sizes, items = falling(found) if to_floor else whole(found)
    return exponent(sizes, items) if len(sizes) >= 2 else (np.nan, np.nan)


def show(results: dict[str, Any]) -> str:
    header = (
        "N", "method", "tolerance run", "items", "items at 0.01", "epochs at 0.01", "set-up passes", "seconds",
        "worst error/tol", "status",
    )  # fmt: skip
    cells = []
    for name in (DEFAULT, CUBE, PAPER):
        for num_rows, each in series(results, name).items():
            mark = "" if each["tolerance"] == TOLERANCE else " (scaled)"
            cells.append(
                [
                    f"{num_rows:,}", name, f"{each['tolerance']:g}", f"{each['items']:.3g}",
                    f"{each['scaled']:.3g}{mark}", f"{each['scaled'] / num_rows:.3g}",
                    f"{each['setup_items'] / num_rows:.1f}", f"{each['seconds']:.2f}", f"{each['error']:.2f}",
                    ", ".join(each["statuses"]),
                ]
            )  # fmt: skip
    slopes = {name: fit(series(results, name), name != PAPER) for name in (DEFAULT, CUBE, PAPER)}
    fits = [f"{name}: sampling items ~ N^({slope:.2f} ± {error:.2f})" for name, (slope, error) in slopes.items()]
    kept = "kept" if slopes[DEFAULT][0] <= STEEPEST else "NOT KEPT"
    return "\n".join([table(header, cells), *fits, f"{kept}: exponent down to the floor at most {STEEPEST}"])


def draw(results: dict[str, Any]) -> Any:
    figure, (ax,) = style.new_figure(1, height=5.2)
    figure.set_figwidth(6.4)
    labels = {DEFAULT: "default", CUBE: "default with n = N^(1/3)", PAPER: "paper's ladder, scaled to 0.01"}
    for number, (name, label) in enumerate(labels.items()):
        found = series(results, name)
        slope, error = fit(found, name != PAPER)
        dashes = {"linestyle": ":"} if name == PAPER else {}
        ax.loglog(*whole(found), label=f"{label}: N^({slope:.2f} ± {error:.2f})", **style.mark(number), **dashes)
    found = series(results, DEFAULT)
    ax.loglog(list(found), [each["setup_items"] for each in found.values()], label="set-up passes", **style.mark(4))
    style.guide(ax, list(found), list(found), "one epoch, N items")
    ax.set(title="logistic, d = 20, tolerance 0.01 (means and sds)", xlabel="N", ylabel="data items")
    figure.legend(loc="outside lower center", ncols=1, frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="cost against the number of rows")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(references.TALL_SIZES))
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    store = Store(given.out)
    sizes = {int(name.rsplit(" ", 1)[1]) for name in store.read(NAME)} | set(given.sizes)
    ages.complete(store, NAME, pieces(sorted(sizes)))
    results = store.results(NAME)
    print(show(results))
    style.save_svg(draw(results), given.out / f"{NAME}.svg")


if __name__ == "__main__":
    main()
