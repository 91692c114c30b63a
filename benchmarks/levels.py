"""Categories of many levels: seconds of a fresh process beside scikit-learn and statsmodels; memory at 10,000 levels.

    python benchmarks/levels.py --folder DIR

Every contestant is a process of its own, from its first import to its answer. The flights are npm's vega-datasets,
flights-3m.parquet, which the folder must hold (npm pack vega-datasets@3.2.1, without the six rows of July); late is a
delay of more than 15 minutes. scikit-learn finds the mode alone; statsmodels the maximum and its standard errors;
tallbayes posterior means and sds to 5% of an sd. Nothing is asserted; the figures go to results/levels.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ages

LONGEST = 150
RESULTS = Path(__file__).parent / "results" / "levels.json"

SKLEARN = """
import sys, pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
rows = pd.read_parquet(sys.argv[1])
category = sys.argv[2]
columns = make_column_transformer((StandardScaler(), ["distance"]), (OneHotEncoder(drop="first"), [category]))
model = make_pipeline(columns, LogisticRegression(max_iter=1000)).fit(rows[["distance", category]], rows["late"])
print(len(model[-1].coef_[0]))
"""
STATSMODELS = """
import sys, pandas as pd, statsmodels.formula.api as smf
rows = pd.read_parquet(sys.argv[1])
print(len(smf.logit(f"late ~ distance + C({sys.argv[2]})", rows).fit(disp=False).params))
"""
OURS = """
import sys, json, tallbayes as tb
result = tb.fit(f"late ~ distance + C({sys.argv[2]})", sys.argv[1], progress=False, tolerance=0.05, max_seconds=300)
mean = result["mean"]
known = int((mean.flat_error <= mean.flat_tolerance).sum())
print(json.dumps({"status": result.status.name, "met": known, "of": len(mean.flat_value)}))
"""
MANY = """
import sys, json, resource, numpy as np, tallbayes as tb
rng = np.random.default_rng(0)
levels, rows = int(sys.argv[1]), int(sys.argv[2])
group = rng.integers(0, levels, rows)
effect = rng.normal(0, 0.5, levels)
x = rng.normal(size=rows)
y = (rng.random(rows) < 1 / (1 + np.exp(1 - 0.5 * x - effect[group]))).astype(int)
table = {"y": y, "x": x, "g": group}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = tb.fit("y ~ x + C(g)", table, progress=False, tolerance=0.1, max_seconds=float(sys.argv[3]))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
mean = result["mean"]
known = int((mean.flat_error <= mean.flat_tolerance).sum())
told = {"status": result.status.name, "met": known, "of": len(mean.flat_value), "seconds": result.cost.seconds}
print(json.dumps(told | {"peak_mb": peak / 1024, "before_mb": before / 1024}))
"""


def run(program: str, *arguments: Any) -> dict[str, Any]:
    """Seconds of a fresh process, and what it says; or how it failed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("XLA", "JAX"))}
    started = time.monotonic()
    command = [sys.executable, "-c", program, *map(str, arguments)]
    try:
        found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return {"failed": f"no answer in {LONGEST} s"}
    seconds = round(time.monotonic() - started, 2)
    if found.returncode:
        return {"seconds": seconds, "failed": found.stderr.strip().splitlines()[-1][:200]}
    said = json.loads(found.stdout.strip().splitlines()[-1])
    return {"process_seconds": seconds, **(said if isinstance(said, dict) else {"coefficients": said})}


def flights(folder: Path) -> dict[str, Path]:
    """All flights and 20,000 of them, with the hour and whether they are late."""
    import pandas

    whole, sample = folder / "flights3m.parquet", folder / "flights20k.parquet"
    if not (whole.is_file() and sample.is_file()):
        rows = pandas.read_parquet(folder / "flights-3m.parquet")
        rows = rows[rows["date"].dt.month != 7]
        rows = rows.assign(late=(rows["delay"] > 15).astype(int), hour=rows["date"].dt.hour)
        rows = rows[["late", "hour", "distance", "origin"]]
        rows.to_parquet(whole, index=False)
        rows.sample(20_000, random_state=0).to_parquet(sample, index=False)
    return {"3,000,000 flights": whole, "20,000 flights": sample}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    questions = [("3,000,000 flights", "origin"), ("20,000 flights", "origin"), ("20,000 flights", "hour")]
    for table, category in questions:
        path = flights(options.folder)[table]
        contestants = {"tallbayes": OURS, "scikit-learn": SKLEARN, "statsmodels": STATSMODELS}
        found[f"{table}, {category}"] = {name: run(program, path, category) for name, program in contestants.items()}
        print(table, category, found[f"{table}, {category}"], flush=True)
    for levels, rows in ((1_000, 10**6), (10_000, 10**6)):
        found[f"{rows:,} rows, {levels:,} levels"] = {"tallbayes": run(MANY, levels, rows, 120)}
        print(levels, found[f"{rows:,} rows, {levels:,} levels"], flush=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    ages.record(options.out)


if __name__ == "__main__":
    main()
