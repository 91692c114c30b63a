"""What a day of rows costs a table on disk, by how many rows it has: appended, coded for a formula, withdrawn.

    append     `tb.ingest(day, table, append=True)`
    design     `appended(design, table)`: the rows of the day in the coding of the formula that was fitted first
    withdraw   `table.without(places)` of the rows of a day in the middle
    update     with --update, `result.update(day)` in place of these: table, design, answer to 5% of an sd; at the end
               a day withdrawn, and what another process takes to stand where the last day has ended

Usage: python benchmarks/arrivals_on_disk.py [--rows 100000 1000000 10000000] [--days 101] [--day 10000] [--update]

Rows beyond a million are copies of those before. Every number of rows is measured in a process of its own, and kept in
benchmarks/results/arrivals_on_disk.json, where it is not measured again. Bytes that were read and written are the same
on any machine; seconds are those of the processor (and of the clock), medians of ten of the first days and of the last
ten. Pages of a file that is mapped are not counted as read: of a withdrawal those are what is digested anew.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import ages
import numpy as np
import pyarrow as pa
from pyarrow import parquet

import tallbayes as tb
from tallbayes.arrivals.disk.again import gone_on, keep
from tallbayes.formula.design import build_design
from tallbayes.formula.design_steps import Design
from tallbayes.formula.streaming import appended
from tallbayes.rows.on_disk import ROW, Stored, seal

RESULTS = Path(__file__).parent / "results" / "arrivals_on_disk.json"
FORMULA = "late ~ hour + distance + wind + C(carrier)"
CARRIERS = np.array(["9E", "AA", "B6", "DL", "EV", "MQ", "UA", "US", "WN"])
PART = 10**6
TOLERANCE = 0.05


def flights(num_rows: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    values = {name: rng.standard_normal(num_rows) for name in ("distance", "wind", "temperature", "pressure")}
    values |= {"hour": rng.integers(0, 24, num_rows), "carrier": CARRIERS[rng.integers(0, len(CARRIERS), num_rows)]}
    return pa.table(values | {"late": rng.random(num_rows) < 0.2})


def first_table(folder: Path, num_rows: int) -> Stored:
    """Made by ingest up to a million rows, and of copies of these beyond."""
    file = folder / "first.parquet"
    parquet.write_table(flights(min(PART, num_rows), 0), file)
    part = tb.ingest(file, folder / "part.table")
    file.unlink()
    whole = folder / "whole"
    whole.mkdir()
    for field in part.fields:
        with open(whole / field.file, "wb") as opened:
            for _ in range(num_rows // len(part)):
                part.rows()[field.name].tofile(opened)
    np.arange(num_rows, dtype=np.int32).tofile(whole / ROW.file)
    made = Stored(whole, num_rows, True, part.fields, {}, part.columns, {"columns": None}, numbered=True)
    return seal(made, folder / "flights.table")


def bytes_so_far() -> tuple[int, int]:
    found = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(found["rchar"]), int(found["wchar"])


def measured(work: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    before, clock, processor = bytes_so_far(), time.perf_counter(), time.process_time()
    made = work()
    seconds, used = time.perf_counter() - clock, time.process_time() - processor
    read, written = (after - then for after, then in zip(bytes_so_far(), before, strict=True))
    return made, {"processor": used, "clock": seconds, "read": read, "written": written}


def medians(days: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(median(day[name] for day in days), 4) for name in days[0]}


def grow(folder: Path, num_rows: int, num_days: int, day: int) -> dict[str, Any]:
    """Every day appended and coded, and one withdrawn at last."""
    table, times = first_table(folder, num_rows), {"append": [], "design": []}  # type: ignore[var-annotated]
    design: Design = build_design(FORMULA, table)
    for number in range(num_days):
        file = folder / f"{number}.parquet"
        parquet.write_table(flights(day, 10**9 + number), file)
        table, cost = measured(lambda file=file: tb.ingest(file, folder / "flights.table", append=True))
        times["append"].append(cost)
        design, cost = measured(lambda design=design, table=table: appended(design, table))
        times["design"].append(cost)
    places = table.places_from(folder / f"{num_days // 2}.parquet")
    _, gone = measured(lambda: table.without(places))
    found = {f"{name}, {which}": medians(part) for name, all_days in times.items() for which, part in halves(all_days)}
    return found | {
        "withdraw": {name: round(value, 4) for name, value in gone.items()},
        "segments": len(table.segments),
        "capacities": len({segment.room for segment in table.segments[1:]}),
    }


def follow(folder: Path, num_rows: int, num_days: int, day: int) -> dict[str, Any]:
    """Every day an update, one withdrawn at last, and another process that goes on."""
    table = first_table(folder, num_rows)
    result, times, passes = tb.fit(FORMULA, table, tolerance=TOLERANCE, method=tb.Anchored()), [], 0
    for number in range(num_days):
        file = folder / f"{number}.parquet"
        parquet.write_table(flights(day, 10**9 + number), file)
        result, cost = measured(lambda file=file, result=result: result.update(file))
        times.append({**cost, "rows": result.cost.evaluations + result.cost.setup_evaluations})
        passes += any("passes over all of them" in note for note in result.notes)
    (folder / "run").mkdir()
    keep(folder / "run", replace(result, standing=replace(result.standing.settled(None), morning=None, came=None)))
    settings = {"formula": FORMULA, "family": "logistic"}
    _, again = measured(lambda: gone_on(folder / "run", settings, num_days))
    _, gone = measured(lambda: result.without(folder / f"{num_days // 2}.parquet"))
    found = {f"update, {which}": medians(part) for which, part in halves(times)}
    found |= {"go on": medians([again]), "without": medians([gone])}
    return found | {"passes": passes, "segments": len(tb.open_table(table.path).segments)}


def halves(days: list[dict[str, float]]) -> list[tuple[str, list[dict[str, float]]]]:
    # The first day of all warms up.
    return [("first days", days[1:11]), ("last days", days[-10:])]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--days", type=int, default=101)
    parser.add_argument("--day", type=int, default=10**4)
    parser.add_argument("--update", action="store_true", help="days as updates of a fit")
    parser.add_argument("--here", action="store_true", help="measure in this process, and print")
    options = parser.parse_args()
    if options.here:
        with tempfile.TemporaryDirectory() as folder:
            run = follow if options.update else grow
            print(json.dumps(run(Path(folder), options.rows[0], options.days, options.day)))
        return
    found = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for num_rows in options.rows:
        key = f"{num_rows:,} rows, {options.days} days of {options.day:,}" + (", updates" if options.update else "")
        if key not in found:
            command = [sys.executable, __file__, "--here", "--rows", str(num_rows)]
            command += ["--days", str(options.days), "--day", str(options.day)]
            command += ["--update"] if options.update else []
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[key] = json.loads(done.stdout.splitlines()[-1])
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
            ages.record(RESULTS, ages.renewed(RESULTS.name, found, [key]))
        print(key, json.dumps(found[key], indent=1))


if __name__ == "__main__":
    main()
