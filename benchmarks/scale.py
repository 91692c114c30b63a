"""Beyond memory and beyond one machine: what does not grow with N, how fast a pass is, what a second worker is worth.

    python benchmarks/scale.py [--only memory,pass,workers] [--folder FOLDER]    writes benchmarks/results/scale.json

memory    the whole call on 10^6 and on 10^8 rows of a table on disk (logistic, d = 10, synthetic): the largest
          anonymous memory of the process (RssAnon, looked at every 10 ms; mapped pages do not count), and seconds
pass      value, gradient and Hessian over 10^7 mapped rows beside NumPy's BLAS on the same rows and sums, with as many
          threads, chunk by chunk; the better of NumPy with threads over chunks and with threads inside BLAS
workers   a sampling-bound problem (logistic, N = 20,000, d = 20, all rows in every step, no control, with which there
          is nothing to share) on one dask worker and on two, each pinned to a core and with one thread, five alternated
          pairs; efficiency = seconds of one / (2 x of two)

10^8 rows take 4.5 GB in --folder, or in the temporary folder, and are removed. An idle machine is needed for the last.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ages
import numpy as np

import tallbayes as tb

RESULTS = Path(__file__).parent / "results" / "scale.json"
COLUMNS = 10
CHUNK = 2**18
MEMORY_ROWS = (1_000_000, 100_000_000)
PASS_ROWS, PASS_REPEATS = 10_000_000, 5
PAIRS = 5
WORKER_ROWS, WORKER_COLUMNS, WORKER_TOLERANCE = 20_000, 20, 0.0006

WHOLE_CALL = """
import json, sys, threading, time
import tallbayes as tb

def anonymous():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1024

largest, running = 0.0, True
def watch():
    global largest
    while running:
        largest = max(largest, anonymous())
        time.sleep(0.01)

watcher = threading.Thread(target=watch)
watcher.start()
table = tb.open_table(sys.argv[1])
started = time.perf_counter()
result = tb.estimate(tb.families.logistic(), table, tolerance=0.01)
seconds = time.perf_counter() - started
running = False
watcher.join()
print(json.dumps({
    "rows": len(table), "megabytes": largest, "seconds": seconds, "status": result.status.name,
    "passes": result.cost.setup_evaluations / len(table), "evaluations": result.cost.evaluations,
}))
"""

PASSES = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
import numpy as np
import tallbayes as tb
from tallbayes.workers.executors import default_executor
from tallbayes.anchor.expansion import expand
from tallbayes.setup.preparation import check_stored, place

stored = tb.open_table(sys.argv[1])
threads, repeats, inside = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "inside"
rows, theta = stored.rows(), np.linspace(-0.3, 0.3, 10)
starts = range(0, len(stored), 2**18)

def sums(start):
    x, y = (rows[name][start : start + 2**18].astype(np.float64) for name in ("x", "y"))
    eta = x @ theta
    chance = 1 / (1 + np.exp(-eta))
    value = y @ eta - np.logaddexp(0.0, eta).sum()
    return value, x.T @ (y - chance), -(x.T * (chance * (1 - chance))) @ x

def by_numpy():
    if inside:
        parts = [sums(start) for start in starts]
    else:
        with ThreadPoolExecutor(threads) as executor:
            parts = list(executor.map(sums, starts))
    return [sum(part) for part in zip(*parts)]

model, arrays = check_stored(tb.families.logistic(), stored)
placed = place(model, arrays, None, True, stored)
def by_tallbayes():
    with default_executor() as executor:
        there = expand(placed.target, placed.table, theta, executor)
    return [None, there.likelihood_gradient, there.likelihood_hessian]

times = {"numpy": [], "tallbayes": []}
by_tallbayes(), by_numpy()
for _ in range(repeats):
    for name, run in (("numpy", by_numpy), ("tallbayes", by_tallbayes)):
        started = time.perf_counter()
        out = run()
        times[name].append(time.perf_counter() - started)
here, there = by_numpy(), by_tallbayes()
apart = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(here[1:], there[1:]))
print(json.dumps({"seconds": times, "apart": apart}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="memory,pass,workers")
    parser.add_argument("--folder", type=Path, help="for tables; default the temporary folder")
    options = parser.parse_args()
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    parts: dict[str, Callable[[Path], dict[str, Any]]] = {"memory": memory, "pass": one_pass, "workers": workers}
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found[name] = parts[name](Path(folder))
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        ages.record(RESULTS, ages.renewed(RESULTS.name, found, [name]))
        print(json.dumps({name: found[name]["summary"]}), flush=True)


def memory(folder: Path) -> dict[str, Any]:
    runs = []
    for count in MEMORY_ROWS:
        started = time.perf_counter()
        path = write_rows(folder / f"{count}.table", count)
        written = time.perf_counter() - started
        for _ in range(3 if count <= 10**7 else 2):
            runs.append({**child(WHOLE_CALL, str(path)), "seconds_to_write": written})
            print(runs[-1], file=sys.stderr, flush=True)
    largest = {count: max(run["megabytes"] for run in runs if run["rows"] == count) for count in MEMORY_ROWS}
    few, many = (largest[count] for count in MEMORY_ROWS)
    return {"runs": runs, "summary": {"megabytes": largest, "difference": many / few - 1}}


def one_pass(folder: Path) -> dict[str, Any]:
    path, cores = write_rows(folder / "rows.table", PASS_ROWS), os.cpu_count() or 1
    runs = {}
    for where, blas in (("over chunks", 1), ("inside", cores)):
        limits = {name: str(blas) for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        place = "inside" if where == "inside" else "outside"
        runs[where] = child(PASSES, str(path), str(cores), str(PASS_REPEATS), place, environment=limits)
        print(where, runs[where], file=sys.stderr, flush=True)
    numpy = min(statistics.median(run["seconds"]["numpy"]) for run in runs.values())
    own = statistics.median(runs["over chunks"]["seconds"]["tallbayes"])
    summary = {"threads": cores, "numpy": numpy, "tallbayes": own, "ratio": own / numpy}
    return {"rows": PASS_ROWS, "columns": COLUMNS, "runs": runs, "summary": summary}


def workers(folder: Path) -> dict[str, Any]:
    """One and two workers by turns; the client and the scheduler take what is left over of the same cores."""
    from distributed import Client

    rng = np.random.default_rng(0)
    x = rng.standard_normal((WORKER_ROWS, WORKER_COLUMNS)) / np.sqrt(WORKER_COLUMNS)
    rows = {"x": x, "y": (rng.random(WORKER_ROWS) < 1 / (1 + np.exp(-2 * x.sum(axis=1)))).astype(float)}
    model, method = tb.families.logistic(prior_scale=2.0), tb.Anchored(gradient=tb.Full(), control=False)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with cluster(folder, 1) as one, cluster(folder, 2) as two:
        clients = {1: Client(one, set_as_default=False), 2: Client(two, set_as_default=False)}
        for number in range(PAIRS + 1):
            for count in (1, 2):
                started = time.perf_counter()
                executor = clients[count].get_executor()
                result = tb.estimate(model, rows, tolerance=WORKER_TOLERANCE, method=method, executor=executor)
                taken = time.perf_counter() - started
                print(count, taken, result.cost.evaluations, file=sys.stderr, flush=True)
                # The first pair compiles.
                if number:
                    seconds[count].append(taken)
        for client in clients.values():
            client.close()
    efficiency = [one / (2 * two) for one, two in zip(seconds[1], seconds[2], strict=True)]
    summary = {"efficiency": statistics.median(efficiency), "worst": min(efficiency), "best": max(efficiency)}
    return {"seconds": seconds, "blocks": sum(level.samples for level in result.levels) // 32, "summary": summary}


@contextmanager
def cluster(folder: Path, count: int) -> Iterator[str]:
    """The address of a scheduler with so many workers, worker k on core k."""
    environment = os.environ | {"NPROC": "1", "OMP_NUM_THREADS": "1"}
    place = folder / f"cluster{count}"
    place.mkdir()
    log = place / "scheduler.log"
    processes = []
    try:
        with log.open("w") as output:
            command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
            processes.append(subprocess.Popen([*command, "--no-dashboard"], stdout=output, stderr=output, cwd=place))
        while "Scheduler at:" not in log.read_text():
            time.sleep(0.05)
        address = next(part for part in log.read_text().split() if part.startswith("tcp://127.0.0.1"))
        for core in range(count):
            command = ["taskset", "-c", str(core), sys.executable, "-m", "distributed.cli.dask_worker", address]
            options = ["--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(place)]
            with (place / f"worker{core}.log").open("w") as output:
                processes.append(
                    subprocess.Popen([*command, *options], stdout=output, stderr=output, cwd=place, env=environment)
                )
        yield address
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


def write_rows(path: Path, count: int) -> Path:
    """A logistic regression's rows, made a chunk at a time; they are independent, and so in random order."""
    theta = np.linspace(-0.5, 0.5, COLUMNS)

    def chunk(number: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng([7, number])
        x = rng.standard_normal((min(CHUNK, count - number * CHUNK), COLUMNS), np.float32)
        return {"x": x, "y": (rng.random(len(x), np.float32) < 1 / (1 + np.exp(-x @ theta))).astype(np.float32)}

    def chunks() -> Iterator[dict[str, np.ndarray]]:
        # Two ahead: as many as there are cores to make them on.
        with ThreadPoolExecutor(2) as threads:
            under_way = [threads.submit(chunk, 0)]
            for number in range(-(-count // CHUNK)):
                if (number + 1) * CHUNK < count:
                    under_way.append(threads.submit(chunk, number + 1))
                yield under_way.pop(0).result()

    tb.write_table(path, chunks(), shuffled=True)
    return path


def child(code: str, *arguments: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """What a process of its own prints, as JSON."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=os.environ | (environment or {}), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
