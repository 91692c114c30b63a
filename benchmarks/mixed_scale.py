"""Mixed models beyond memory: what does not grow with the rows, where they are on disk.

    make bench-mixed-scale                                                            (resumable; half an hour)
    python benchmarks/mixed_scale.py [--only FAMILY ...] [--rows COUNT ...] [--folder FOLDER] [--again]

y ~ x1 + x2 + (1 | g) with 10^5 groups of 10^6 and of 10^7 rows, from a table that `tb.ingest` made of a Parquet file,
to 0.02 posterior sds, each in a fresh process. Of that are told the largest anonymous memory (RssAnon, looked at every
10 ms), the largest of all with mapped pages (VmHWM), and processor seconds by phase of the fit and of the effects of
all groups. The design and the units of groups are files beside the table; 10^7 rows take about 2 GB in --folder, or in
the temporary folder, and are removed. Every run is stored at once in results/mixed_scale.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import ages
import numpy as np
from lines import describe_commit
from processes import HIDDEN

import tallbayes as tb

RESULTS = Path(__file__).parent / "results" / "mixed_scale.json"
FAMILIES = "linear", "logistic"
ROWS, GROUPS = (1_000_000, 10_000_000), 100_000
TOLERANCE = 0.02
PART = 1_000_000
COEFFICIENTS, SCALE = (0.3, 0.5, -0.4), 0.7

FIT = """
import json, sys, threading, time
import tallbayes as tb

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024

largest, at, phase, running = 0.0, "", "start", True
seconds, last = {}, 0.0

def watch():
    global largest, at
    while running:
        now = status("RssAnon")
        if now > largest:
            largest, at = now, phase
        time.sleep(0.01)

def report(progress):
    global phase, last
    now = time.process_time()
    seconds[phase] = seconds.get(phase, 0.0) + now - last
    phase, last = progress.phase, now

watcher = threading.Thread(target=watch)
watcher.start()
begun = time.perf_counter()
result = tb.fit("y ~ x1 + x2 + (1 | g)", tb.open_table(sys.argv[1]), sys.argv[2], tolerance=float(sys.argv[3]),
                progress=report)
report(type("Look", (), {"phase": "effects"}))
fitted, of_fit = time.perf_counter() - begun, largest
effects = result.effects()
report(type("Look", (), {"phase": "end"}))
running = False
watcher.join()
(factor,) = result.factors
print(json.dumps({
    "status": result.status.name, "anonymous": largest, "anonymous_of_fit": of_fit, "largest_in": at,
    "resident": status("VmHWM"), "fit_seconds": fitted, "seconds": time.perf_counter() - begun,
    "processor_seconds": {name: round(each, 2) for name, each in seconds.items() if each >= 0.05},
    "nodes": factor.nodes, "integral_error": factor.integral_error, "groups": len(effects),
    "passes": result.cost.setup_evaluations / len(effects), "evaluations": result.cost.evaluations,
    "mean": dict(result["mean"].value), "sd": dict(result["sd"].value),
}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=FAMILIES, choices=FAMILIES)
    parser.add_argument("--rows", nargs="*", type=int, default=ROWS)
    parser.add_argument("--folder", type=Path, help="for tables; default the temporary folder")
    parser.add_argument("--again", action="store_true", help="also what is stored already")
    options = parser.parse_args()
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": {}}
    for family in options.only:
        for count in options.rows:
            if f"{family} {count}" in found["runs"] and not options.again:
                continue
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                run = measure(Path(folder), family, count)
            found["runs"][f"{family} {count}"] = {**run, "commit": describe_commit()}
            found["summary"] = summary(found["runs"])
            RESULTS.write_text(json.dumps(found, indent=1) + "\n")
            ages.record(RESULTS, ages.renewed(RESULTS.name, found["runs"], [f"{family} {count}"]))
            print(family, count, json.dumps(run), flush=True)
    print(json.dumps(found["summary"]))


def measure(folder: Path, family: str, count: int) -> dict[str, Any]:
    """One fit in a fresh process, and the bytes of the files that it took."""
    table = write_rows(folder, family, count)
    command = [sys.executable, "-c", FIT, str(table), family, str(TOLERANCE)]
    # Compiling takes memory too, and so is part of every run.
    environment = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=environment)
    kept = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return {**json.loads(done.stdout.splitlines()[-1]), "megabytes_kept": kept / 2**20}


def write_rows(folder: Path, family: str, count: int) -> Path:
    """A table on disk, by way of a Parquet file that is written a part at a time."""
    import pyarrow as arrow
    from pyarrow import parquet

    rng, writer = np.random.default_rng(0), None
    effects, file = SCALE * rng.standard_normal(GROUPS), folder / "rows.parquet"
    for start in range(0, count, PART):
        size = min(PART, count - start)
        g, (x1, x2) = rng.integers(0, GROUPS, size), rng.standard_normal((2, size))
        # Every group is there, however few rows.
        g[: max(0, min(size, GROUPS - start))] = np.arange(start, min(start + size, max(start, GROUPS)))
        eta = COEFFICIENTS[0] + COEFFICIENTS[1] * x1 + COEFFICIENTS[2] * x2 + effects[g]
        chance = rng.random(size) < 1 / (1 + np.exp(-eta))
        y = chance.astype(np.int8) if family == "logistic" else eta + rng.standard_normal(size)
        part = arrow.table({"y": y, "x1": x1.astype(np.float32), "x2": x2.astype(np.float32), "g": g.astype(np.int32)})
        writer = writer or parquet.ParquetWriter(file, part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()
    table = tb.ingest(file, folder / "rows.table")
    file.unlink()
    return table.path


def summary(runs: dict[str, Any]) -> dict[str, Any]:
    """By family: megabytes of anonymous memory by rows, and how much more the most rows take than the fewest."""
    found = {}
    for family in FAMILIES:
        sizes = {int(key.split()[1]): run["anonymous"] for key, run in runs.items() if key.startswith(f"{family} ")}
        if sizes:
            few, many = sizes[min(sizes)], sizes[max(sizes)]
            found[family] = {"megabytes": {str(rows): sizes[rows] for rows in sorted(sizes)}, "more": many - few}
    return found


if __name__ == "__main__":
    main()
