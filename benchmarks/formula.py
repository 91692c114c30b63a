"""The formula door's promise: from Parquet, at most twice reading the file plus the estimate itself.

    python benchmarks/formula.py [--rows 1000000] [--out FOLDER]    a table, and benchmarks/results/formula.json

A table of flights is simulated and written once: ten columns of numbers and a carrier of eleven levels, 20 columns and
an intercept in the model. `fit` from the file is held against its two parts on their own, the plain reading of the
same columns by pyarrow and `estimate` on the arrays that the formula makes, in two ways: warm, by turns in one
process, after both have been compiled; and cold, the first calls of fresh processes, imports and compiling included.
Results are stored; delete formula.json to measure again. A million rows take 1 GB of memory and 90 MB of disk.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ages
import numpy as np
from processes import measured

from tallbayes.experiments.store import Measurement, Store
from tallbayes.views.text import table

RESULTS = Path(__file__).parent / "results"
NAME = "formula"
TOLERANCE = 0.01
REPEATS, COLD_REPEATS = 5, 2
LIMIT = 2.0
CARRIERS = ("9E", "AA", "AS", "B6", "DL", "EV", "F9", "HA", "MQ", "UA", "US")
NUMBERS = ("hour", "distance", "air_time", "seats", "age", "wind", "rain", "pressure", "visibility", "humidity")
FORMULA = f"late ~ {' + '.join(NUMBERS)} + carrier"
SEED = 20170617


def write(path: Path, num_rows: int) -> None:
    """Flights whose lateness depends a little on everything."""
    import pyarrow
    import pyarrow.parquet

    generator = np.random.default_rng(SEED)
    numbers = {name: generator.normal(10.0 * place, 1.0 + place, num_rows) for place, name in enumerate(NUMBERS)}
    numbers["hour"] = generator.integers(0, 24, num_rows)
    carrier = generator.integers(0, len(CARRIERS), num_rows)
    eta = 0.3 * generator.normal(size=len(CARRIERS))[carrier] - 1.0
    for column in numbers.values():
        eta += 0.2 * generator.normal() * (column - column.mean()) / column.std()
    late = generator.random(num_rows) < 1 / (1 + np.exp(-eta))
    columns = {"late": late, **numbers, "carrier": np.array(CARRIERS)[carrier]}
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def read(path: Path) -> None:
    import pyarrow.parquet

    pyarrow.parquet.read_table(path, columns=["late", *NUMBERS, "carrier"])


def make_arrays(path: Path) -> dict[str, np.ndarray]:
    from tallbayes.formula.design import build_design

    design = build_design(FORMULA, path, standardise="all")
    return {"x": design.rows["x"], "y": design.rows["y"]}


def estimate(arrays: dict[str, np.ndarray], seed: int) -> Any:
    import tallbayes as tb

    model = tb.families.logistic(prior_scale=1.0, intercept_scale=10.0)
    return tb.estimate(model, arrays, tolerance=TOLERANCE, seed=seed)


def fit(path: Path, seed: int) -> Any:
    import tallbayes as tb

    return tb.fit(FORMULA, path, tolerance=TOLERANCE, seed=seed, standardise="all")


def timed(name: str, task: Callable[[], Any]) -> dict[str, float]:
    """Seconds by the clock, and of the processor, which neighbours on the machine disturb less."""
    clock, processor = time.perf_counter(), time.process_time()
    task()
    return {name: time.perf_counter() - clock, f"{name}, processor": time.process_time() - processor}


def child(role: str, folder: Path) -> None:
    """The process that is measured; prints one line a repeat."""
    path = folder / "flights.parquet"
    if role == "cold fit":
        print(json.dumps(timed("fit", partial(fit, path, 0))), flush=True)
        return
    if role == "cold parts":
        first = timed("read", partial(read, path))
        arrays = {part: np.load(folder / f"{part}.npy") for part in ("x", "y")}
        print(json.dumps(first | timed("estimate", partial(estimate, arrays, 0))), flush=True)
        return
    arrays = make_arrays(path)
    for part, array in arrays.items():
        np.save(folder / f"{part}.npy", array)
    estimate(arrays, 0), fit(path, 0)
    for seed in range(1, REPEATS + 1):
        line = timed("read", partial(read, path)) | timed("estimate", partial(estimate, arrays, seed))
        line |= timed("fit", partial(fit, path, seed)) | timed("design", partial(make_arrays, path))
        print(json.dumps(line), flush=True)


def run(num_rows: int) -> dict[str, Any]:
    """Warm by turns in one process; cold in processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "flights.parquet", num_rows)
        megabytes = (Path(folder) / "flights.parquet").stat().st_size / 1e6

        def lines(role: str) -> list[Any]:
            return [line for _, line in measured(__file__, ["--role", role, "--folder", folder], {})]

        warm = lines("warm")
        cold = [lines("cold parts")[0] | lines("cold fit")[0] for _ in range(COLD_REPEATS)]
    return {"warm": warm, "cold": cold, "megabytes": round(megabytes, 1)}


def pieces(num_rows: int) -> dict[str, Measurement]:
    settings = {"num_rows": num_rows, "formula": FORMULA, "tolerance": TOLERANCE, "repeats": [REPEATS, COLD_REPEATS]}
    return {"fit": Measurement(settings, partial(run, num_rows))}


def show(results: dict[str, Any]) -> str:
    cells, promises = [], {}
    for kind in ("warm", "cold"):
        runs = results["fit"][kind]
        for clock in ("", ", processor"):
            parts = {name: [line[name + clock] for line in runs] for name in ("read", "estimate", "fit")}
            ratios = np.array(parts["fit"]) / (np.array(parts["read"]) + np.array(parts["estimate"]))
            medians = [f"{np.median(part):.2f}" for part in parts.values()]
            cells.append([kind + clock, *medians, f"{np.median(ratios):.2f}", f"{max(ratios):.2f}"])
            if not clock:
                promise = f"{kind}: fit at most {LIMIT:g} times reading plus estimate ({np.median(ratios):.2f})"
                promises[promise] = np.median(ratios) <= LIMIT
    design = np.median([line["design"] for line in results["fit"]["warm"]])
    header = ("", "read (s)", "estimate (s)", "fit (s)", "median ratio", "largest")
    return "\n".join(
        [
            table(header, cells),
            f"file {results['fit']['megabytes']} MB; from the file to arrays {design:.2f} s (reading included)",
            "",
            *(f"{'kept' if kept else 'NOT KEPT'}: {promise}" for promise, kept in promises.items()),
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="a fit by formula from Parquet, beside reading and the estimate alone")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--role", choices=("warm", "cold fit", "cold parts"), help=argparse.SUPPRESS)
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
