"""A fresh process on 100,000 rows of 20 columns: its seconds, and those of every program that it traces and compiles.

    python benchmarks/cold_start.py
    python benchmarks/cold_start.py --beside ../another-checkout/src

Seconds are from the start of the process to its answer, of which reading the rows is a part; the best of five by wall
clock, and the least processor seconds, which other work on the machine moves less. `beside` is measured by turns with
this tree. `cached` is the second process within `tb.cache_programs`. `warm` is the next call in a process, on other
rows of the same shape, the median of five. Programs are those of the best process: when a stage
began after its rows were read, on which thread, and for how long; stages on different threads overlap.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import ages
import numpy as np
from processes import measured

ROWS, COLUMNS, TOLERANCE = 100_000, 20, 0.01
QUESTIONS = {"mean": ["mean"], "mean and sd": None}
RESULTS = Path(__file__).parent / "results" / "cold_start.json"
STAGES = {
    "jaxpr_trace_duration": "trace",
    "jaxpr_to_mlir_module_duration": "lower",
    "backend_compile_duration": "compile",
}
# Shorter ones are hundreds of single operations.
LEAST_SECONDS = 0.01


def rows_of(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, COLUMNS))
    return {"x": x, "y": (rng.random(ROWS) < 1 / (1 + np.exp(-x @ np.full(COLUMNS, 0.4)))).astype(float)}


def answer(question: str, file: str, cache: str | None, warm: int) -> dict[str, Any]:
    """One process: its stages and programs."""
    started = time.perf_counter()
    with np.load(file) as stored:
        rows = dict(stored)
    read = time.perf_counter()
    import tallbayes as tb

    family = tb.families.logistic()
    imported = time.perf_counter()
    import jax

    programs: list[dict[str, Any]] = []

    def note(event: str, seconds: float, **named: Any) -> None:
        stage = STAGES.get(event.rpartition("/")[2])
        if stage is not None and seconds >= LEAST_SECONDS:
            began = time.perf_counter() - seconds - read
            where = threading.get_native_id()
            programs.append({"program": named.get("fun_name"), "stage": stage, "thread": where, "began": began,
                             "seconds": seconds})  # fmt: skip

    loaded = time.perf_counter()
    jax.monitoring.register_event_duration_secs_listener(note)
    settings: dict[str, Any] = {"tolerance": TOLERANCE, "quantities": QUESTIONS[question]}
    with nullcontext() if cache is None else tb.cache_programs(cache):
        result = tb.estimate(family, rows, method=tb.Anchored(), **settings)
    ended = time.perf_counter()
    assert result.converged
    stages = {"reading rows": read - started, "import tallbayes": imported - read, "import jax": loaded - imported}
    found = {"stages": stages | {"estimate": ended - loaded}, "processor": time.process_time(), "programs": programs}
    print(json.dumps(_with_threads_named(found)), flush=True)
    for seed in range(1, warm + 1):
        fresh, begun = rows_of(seed), time.perf_counter()
        tb.estimate(family, fresh, method=tb.Anchored(), **settings)
        print(json.dumps(time.perf_counter() - begun), flush=True)
    return found


def _with_threads_named(found: dict[str, Any]) -> dict[str, Any]:
    """Threads by their order of appearance, and seconds by program."""
    threads: list[int] = []
    totals: dict[str, dict[str, float]] = {}
    for each in found["programs"]:
        if each["thread"] not in threads:
            threads.append(each["thread"])
        each["thread"] = threads.index(each["thread"])
        stages = totals.setdefault(str(each["program"]).removeprefix("jit(").removesuffix(")"), {})
        stages[each["stage"]] = stages.get(each["stage"], 0.0) + each["seconds"]
    return found | {"by program": totals}


def asked(question: str, file: Path, tree: str | None, cache: Path | None = None, warm: int = 0) -> dict[str, Any]:
    """A fresh process, from its start to its answer."""
    options = ["--role", question, "--rows", str(file), "--warm", str(warm)]
    options += [] if cache is None else ["--cache", str(cache)]
    # XLA says of every program that it reads what the processor cannot do, where that is a preference of its own.
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3"} | ({} if tree is None else {"PYTHONPATH": tree})
    (seconds, found), *later = measured(__file__, options, variables)
    return found | {"seconds": seconds} | ({"warm": median(line for _, line in later)} if later else {})


def best(runs: list[dict[str, Any]]) -> dict[str, Any]:
    chosen = min(runs, key=lambda run: run["seconds"])
    return chosen | {
        "all seconds": [run["seconds"] for run in runs],
        "all processor": [run["processor"] for run in runs],
        "processor": min(run["processor"] for run in runs),
    }


def compare(runs: int, beside: str | None, out: Path) -> None:
    """Question by question, each stored as soon as it is answered."""
    trees = {"here": os.environ.get("PYTHONPATH")} | ({} if beside is None else {"beside": str(Path(beside).resolve())})
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        file, cache = Path(folder) / "rows.npz", Path(folder) / "cache"
        np.savez(file, **rows_of(0))
        for question in QUESTIONS:
            found: dict[str, list[dict[str, Any]]] = {name: [] for name in trees}
            for _ in range(runs):
                for name, tree in trees.items():
                    found[name].append(asked(question, file, tree))
            report[question] = {name: best(each) for name, each in found.items()}
            asked(question, file, trees["here"], cache)
            report[question]["cached"] = best([asked(question, file, trees["here"], cache) for _ in range(runs)])
            for name, tree in trees.items():
                report[question][name]["warm"] = asked(question, file, tree, warm=5)["warm"]
            show(question, report[question])
            out.write_text(json.dumps(report, indent=1) + "\n")
    ages.record(out)


def show(question: str, found: dict[str, Any]) -> None:
    for name, each in found.items():
        stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in each["stages"].items())
        warm = f"; warm {each['warm']:.2f} s" if "warm" in each else ""
        print(f"{question}, {name}: {each['seconds']:.2f} s, of processors {each['processor']:.2f} s ({stages}){warm}")
        for program, seconds in sorted(each["by program"].items(), key=lambda item: -sum(item[1].values())):
            print(f"    {program:24}", ", ".join(f"{stage} {value:.2f}" for stage, value in seconds.items()))
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--beside", help="src of another checkout")
    parser.add_argument("--out", type=Path, default=RESULTS)
    for name in ("--role", "--rows", "--cache"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    parser.add_argument("--warm", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role is not None:
        answer(options.role, options.rows, options.cache, options.warm)
        return
    compare(options.runs, options.beside, options.out)


if __name__ == "__main__":
    main()
