"""Budgets: ten problems, each told to end at twenty instants; how long it took, and how far it came.

    python benchmarks/budgets.py [problem ...]      into benchmarks/results/budgets.json

Every problem runs in a process of its own, from the shortest budget to the longest, so that the first ones end while
programs are being compiled. `late` is what was taken beyond what was asked for.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ages
import jax
import jax.numpy as jnp
import numpy as np

import tallbayes as tb
from tallbayes.errors import require_extra

RESULTS = Path(__file__).parent / "results" / "budgets.json"
INSTANTS = tuple(float(f"{each:.2g}") for each in np.geomspace(0.05, 15.0, 20))
MOST_LATE = 5.0

Call = Callable[..., tb.Result]


def regression(num_rows: int, num_columns: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((num_rows, num_columns)).astype(np.float32)
    eta = x @ (0.3 * rng.standard_normal(num_columns))
    return {"x": x, "y": (rng.random(num_rows) < 1 / (1 + np.exp(-eta))).astype(float)}


def logistic() -> Call:
    rows = regression(100_000, 20)
    return lambda **options: tb.estimate(tb.families.logistic(), rows, tolerance=0.002, **options)


def poisson() -> Call:
    rows = regression(50_000, 8)
    rows["y"] = np.random.default_rng(1).poisson(np.exp(0.3 * rows["x"][:, 0])).astype(float)
    return lambda **options: tb.estimate(tb.families.poisson(), rows, tolerance=0.002, **options)


def own_model() -> Call:
    rows = regression(20_000, 10)

    def log_likelihood(theta: Any, row: Any) -> Any:
        eta = row["x"] @ theta["slope"] + theta["level"]
        return row["y"] * eta - jax.nn.softplus(eta)

    def log_prior(theta: Any) -> Any:
        return -0.5 * (jnp.sum(theta["slope"] ** 2) + theta["level"] ** 2)

    model = tb.Model(log_prior, log_likelihood, {"slope": np.zeros(10), "level": 0.0})
    asked = {"size": lambda theta: jnp.sum(theta["slope"] ** 2), "chance": lambda theta: theta["level"] > 0}
    return lambda **options: tb.estimate(model, rows, asked, tolerance=0.01, **options)


def numpyro_model() -> Call:
    numpyro = require_extra("numpyro", "bench", "models written in it")
    dist = require_extra("numpyro.distributions", "bench", "models written in it")

    rows = regression(30_000, 6)

    def written(x: Any, y: Any) -> None:
        scale = numpyro.sample("scale", dist.HalfNormal(1.0))
        slope = numpyro.sample("slope", dist.Normal(0.0, scale).expand([6]).to_event(1))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Bernoulli(logits=x @ slope), obs=y)

    model, data = tb.from_numpyro(written, rows["x"], rows["y"].astype(int))
    return lambda **options: tb.estimate(model, data, tolerance=0.01, **options)


def grouped(num_groups: int, num_rows: int) -> tuple[tb.Model, dict[str, np.ndarray]]:
    rng = np.random.default_rng(2)
    group = rng.integers(0, num_groups, num_rows)
    y = 0.5 * rng.standard_normal(num_groups)[group] + rng.standard_normal(num_rows)

    def log_prior(theta: Any) -> Any:
        return -0.5 * (jnp.sum(theta["effect"] ** 2) + theta["log_scale"] ** 2 + theta["level"] ** 2)

    def log_likelihood(theta: Any, row: Any) -> Any:
        mean = theta["level"] + jnp.exp(theta["log_scale"]) * theta["effect"][row["group"]]
        return -0.5 * (row["y"] - mean) ** 2

    initial = {"effect": np.zeros(num_groups), "log_scale": 0.0, "level": 0.0}
    return tb.Model(log_prior, log_likelihood, initial), {"group": group, "y": y}


def hierarchical() -> Call:
    model, rows = grouped(20, 5_000)
    return lambda **options: tb.estimate(model, rows, tolerance=0.02, **options)


def many_parameters() -> Call:
    model, rows = grouped(1_128, 73_000)
    return lambda **options: tb.estimate(model, rows, tolerance=0.05, **options)


def on_disk() -> Call:
    folder = Path(tempfile.mkdtemp()) / "table"
    table = tb.write_table(folder, regression(1_000_000, 10))
    return lambda **options: tb.estimate(tb.families.logistic(), table, tolerance=0.002, **options)


def formula() -> Call:
    rows = regression(300_000, 4)
    columns = {f"x{k}": rows["x"][:, k] for k in range(4)}
    columns |= {"y": rows["y"], "kind": np.array(["a", "b", "c"])[np.arange(300_000) % 3]}
    return lambda **options: tb.fit("y ~ x0 + x1 + x2 * C(kind)", columns, tolerance=0.002, **options)


def randomised() -> Call:
    rows = regression(20_000, 10)
    method = tb.Randomised()
    return lambda **options: tb.estimate(tb.families.logistic(), rows, tolerance=0.005, method=method, **options)


def papers() -> Call:
    rows = regression(20_000, 5)
    method = tb.Multilevel()
    return lambda **options: tb.estimate(tb.families.logistic(), rows, tolerance=0.01, method=method, **options)


def large_batches() -> Call:
    rows = regression(20_000, 60)
    method = tb.Anchored(batch_size=4096, first_step=1 / 32)
    return lambda **options: tb.estimate(tb.families.logistic(), rows, tolerance=0.02, method=method, **options)


PROBLEMS = {
    each.__name__: each
    for each in (
        logistic,
        poisson,
        own_model,
        numpyro_model,
        hierarchical,
        many_parameters,
        on_disk,
        formula,
        randomised,
        papers,
        large_batches,
    )
}


def measure(name: str) -> None:
    """One problem at all instants, a line of JSON each."""
    call = PROBLEMS[name]()
    for asked in INSTANTS:
        begun = time.monotonic()
        result = call(max_seconds=asked)
        taken = time.monotonic() - begun
        text = f"{result}{result.summary()}"
        ended = next((note for note in result.notes if note.startswith("setup: ")), "setup: sampling")
        row = {"problem": name, "asked": asked, "taken": round(taken, 2), "late": round(max(0.0, taken - asked), 2)}
        known = result.anchor is not None
        row |= {"status": result.status.name, "levels": len(result.levels), "gaussian": known, "prints": bool(text)}
        print(json.dumps(row | {"ended": ended.removeprefix("setup: ").removeprefix("it ended at: ")}), flush=True)


def main(names: list[str]) -> None:
    rows: list[dict[str, Any]] = []
    print(f"{'problem':16} {'asked':>6} {'taken':>6} {'late':>5}  status, levels, where it ended")
    for name in names or list(PROBLEMS):
        with subprocess.Popen([sys.executable, __file__, "--measure", name], stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            for line in run.stdout:
                row = json.loads(line)
                rows.append(row)
                said = f"{row['status']}, {row['levels']}, {row['ended']}"
                print(f"{name:16} {row['asked']:6.2f} {row['taken']:6.2f} {row['late']:5.2f}  {said}", flush=True)
        rows.append({"problem": name, "exit_code": run.wait()})
    measured = [row for row in rows if "asked" in row]
    worst = max(measured, key=lambda row: row["late"])
    summary = {"runs": len(measured), "worst": worst, "beyond": sum(row["late"] > MOST_LATE for row in measured)}
    RESULTS.write_text(json.dumps({"summary": summary, "runs": rows}, indent=1) + "\n")
    if not names:
        ages.record(RESULTS)
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(sys.argv[2])
    else:
        main(sys.argv[1:])
