"""Predictions of many rows: seconds for a million, and memory for a million and for ten.

    python benchmarks/predict.py

A logistic regression of ten columns (two of them categories) is fitted once; new rows are Parquet files. Seconds are of
`tallbayes predict RUN NEW --out OUT` as a whole process and of the call alone; memory is the process's largest.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ages
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tallbayes as tb

RESULTS = Path(__file__).parent / "results" / "predict.json"
SIZES = (1_000_000, 10_000_000)
FORMULA = "late ~ " + " + ".join(f"x{i}" for i in range(8)) + " + carrier + origin"
CHILD = """
import json, resource, sys, time
import tallbayes as tb
result = tb.load(sys.argv[1])
started = time.perf_counter()
count = result.predict(sys.argv[2], out=sys.argv[3])
print(json.dumps({
    "rows": count,
    "seconds": time.perf_counter() - started,
    "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
}))
"""


def make_rows(count: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows: dict[str, Any] = {f"x{i}": rng.normal(size=count).astype(np.float32) for i in range(8)}
    rows["carrier"] = np.array(["AA", "B6", "DL", "EV", "UA"])[rng.integers(0, 5, count)]
    rows["origin"] = np.array(["EWR", "JFK", "LGA"])[rng.integers(0, 3, count)]
    return rows


def write_rows(path: Path, count: int) -> None:
    """A million at a time."""
    writer = None
    for start in range(0, count, 1_000_000):
        table = pa.table(make_rows(min(1_000_000, count - start), seed=1 + start))
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=2**17)
    assert writer is not None
    writer.close()


def main() -> None:
    rows = make_rows(100_000, seed=0)
    eta = rows["x0"] - 0.5 * rows["x1"] + 0.3 * (rows["carrier"] == "EV") - 1
    rows["late"] = np.random.default_rng(9).random(100_000) < 1 / (1 + np.exp(-eta))
    result = tb.fit(FORMULA, rows, tolerance=0.01)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        result.save(Path(folder) / "result")
        for size in SIZES:
            new = Path(folder) / "new.parquet"
            write_rows(new, size)
            started = time.perf_counter()
            command = [sys.executable, "-c", CHILD, str(Path(folder) / "result"), str(new), f"{folder}/out.parquet"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            row = json.loads(done.stdout) | {"process_seconds": time.perf_counter() - started}
            found.append({name: round(value, 2) for name, value in row.items()})
            print(
                f"{size:,} rows: {row['seconds']:.1f} s (process {row['process_seconds']:.1f} s), "
                f"{row['megabytes']:.0f} MB at most",
                flush=True,
            )
    RESULTS.write_text(json.dumps({"columns": 10, "parameters": 15, "runs": found}, indent=1) + "\n")
    ages.record(RESULTS)


if __name__ == "__main__":
    main()
