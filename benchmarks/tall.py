"""Two promises more: the paper's problem in two epochs, and ten million rows in twice the set-up.

    python benchmarks/tall.py [--rows 10000000] [--out FOLDER]    prints tables, writes benchmarks/results/tall.json

The paper's: N = 10^4, E |theta - theta_0|^2 to relative tolerance 2^-5, at most 2 epochs of sampling.
Tall: d = 20, tolerance 0.01 for every mean and sd; the whole call takes at most 2 times its own set-up (checking the
rows, mode and Hessian, measured alone on the same rows), and the set-up at most 4 passes. Set-up and whole call are
measured in processes of their own, first with compiling and then, in the same process, without. Results are stored;
delete tall.json to measure again. Ten million rows take 4 GB of memory and 1 GB in the temporary folder.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import ages
import numpy as np
import problems
import references
from processes import measured

import tallbayes as tb
from tallbayes.experiments import problem as paper
from tallbayes.experiments.store import Measurement, Store
from tallbayes.setup.preparation import check_data, prepare
from tallbayes.views.text import table
from tallbayes.workers.executors import default_executor

RESULTS = Path(__file__).parent / "results"
NAME = "tall"
TOLERANCE, RELATIVE = 0.01, 2.0**-5
PAPER_ROWS, PAPER_SEEDS = 10_000, 20
REPEATS = 3


def run_paper() -> dict[str, Any]:
    """Epochs and errors over seeds; an error of 1 is the tolerance."""
    import jax.numpy as jnp

    rows, truth = paper.make_rows(PAPER_ROWS), paper.reference(PAPER_ROWS)
    quantity = {"g": lambda theta: jnp.sum((theta - rows.mode) ** 2)}
    runs = []
    for seed in range(PAPER_SEEDS):
        result = tb.estimate(
            tb.families.logistic(prior_scale=1.0), rows.data, quantity, relative_tolerance=RELATIVE, seed=seed
        )
        error = (float(result["g"].flat_value[0]) / truth.value - 1) / RELATIVE
        runs.append(
            {
                "epochs": result.cost.epochs,
                "setup_passes": result.cost.setup_evaluations / PAPER_ROWS,
                "seconds": round(result.cost.seconds, 4),
                "error": error,
                "status": result.status.name,
            }
        )
    return {"runs": runs, "method": result.method}


def child(role: str, folder: Path) -> None:
    """The process that is measured: seconds of each repeat, the first with compiling, from rows that are in memory."""
    model = tb.families.logistic(prior_scale=1.0)
    rows = {name: np.load(folder / f"{name}.npy") for name in ("x", "y")}
    for seed in range(REPEATS):
        started = time.perf_counter()
        if role == "setup":
            with default_executor() as executor:
                prepared = prepare(model, check_data(model, rows), None, False, None, executor=executor)
            found: dict[str, Any] = {"setup_passes": prepared.setup_evaluations / len(rows["y"])}
            seconds = time.perf_counter() - started
            del prepared
        else:
            result = tb.estimate(model, rows, tolerance=TOLERANCE, seed=seed)
            seconds = time.perf_counter() - started
            found = {
                "setup_passes": result.cost.setup_evaluations / result.cost.num_data,
                "epochs": result.cost.epochs,
                "status": result.status.name,
                "mean": result["mean"].flat_value.tolist(),
                "sd": result["sd"].flat_value.tolist(),
            }
            del result
        print(json.dumps(found | {"seconds": seconds}), flush=True)


def run_tall(num_rows: int) -> dict[str, Any]:
    """Set-up and whole call on the same rows, by turns in processes of their own."""
    name = problems.tall_name(num_rows)
    with tempfile.TemporaryDirectory() as folder:
        for part, array in problems.make(name)[1].items():
            np.save(Path(folder) / f"{part}.npy", array)
        runs = {
            role: [line for _, line in measured(__file__, ["--role", role, "--folder", folder], {})]
            for role in ("setup", "whole")
        }
    reference = references.get(name)
    for run in runs["whole"]:
        errors = [np.abs(np.array(run.pop(part)) - getattr(reference, part)) / reference.sd for part in ("mean", "sd")]
        run["error"] = float(np.max(errors) / TOLERANCE)
    return runs


def pieces(num_rows: int) -> dict[str, Measurement]:
    quadrature = {"num_rows": PAPER_ROWS, "relative_tolerance": RELATIVE, "seeds": PAPER_SEEDS}
    tall = {"num_rows": num_rows, "dimension": 20, "tolerance": TOLERANCE, "repeats": REPEATS}
    return {"paper": Measurement(quadrature, run_paper), "tall": Measurement(tall, partial(run_tall, num_rows))}


def show(results: dict[str, Any]) -> str:
    runs = results["paper"]["runs"]
    epochs = np.array([run["epochs"] for run in runs])
    rmse = float(np.sqrt(np.mean([run["error"] ** 2 for run in runs])))
    converged = sum(run["status"] == "converged" for run in runs)
    first = [
        f"paper, N = {PAPER_ROWS:,}", f"{np.median(epochs):.2f}", f"{epochs.max():.2f}", f"{rmse:.2f}",
        f"{converged} of {len(runs)}", f"{np.median([run['seconds'] for run in runs]):.2f}",
    ]  # fmt: skip
    header = ("", "median epochs", "largest", "RMSE/tolerance", "converged", "median seconds")
    setup, whole = results["tall"]["setup"], results["tall"]["whole"]
    least = {
        "with compiling": (setup[0]["seconds"], whole[0]["seconds"]),
        "without": tuple(float(np.median([run["seconds"] for run in role[1:]])) for role in (setup, whole)),
    }
    cells = [[name, f"{pair[0]:.2f}", f"{pair[1]:.2f}", f"{pair[1] / pair[0]:.2f}"] for name, pair in least.items()]
    passes, errors = whole[0]["setup_passes"], [run["error"] for run in whole]
    promises = {
        f"the paper's problem in at most 2 epochs (largest {epochs.max():.2f})": epochs.max() <= 2,
        "whole call at most 2 set-ups": all(pair[1] <= 2 * pair[0] for pair in least.values()),
        f"set-up at most 4 passes ({passes:.2f})": passes <= 4,
    }
    return "\n".join(
        [
            table(header, [first]),
            "",
            table(("tall", "set-up alone (s)", "whole call (s)", "ratio"), cells),
            f"sampling epochs {whole[0]['epochs']:.3g}; worst error/tolerance {max(errors):.2f}; "
            + ", ".join(sorted({run["status"] for run in whole})),
            "",
            *(f"{'kept' if kept else 'NOT KEPT'}: {promise}" for promise, kept in promises.items()),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="the paper's problem, and the whole call at ten million rows")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--role", choices=("setup", "whole"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role:
        child(given.role, given.folder)
        return
    store = Store(given.out)
    ages.complete(store, NAME, pieces(given.rows))
    print(show(store.results(NAME)))


if __name__ == "__main__":
    main()
