"""Side by side with the peers: every contestant on every posterior, one after the other, each in a fresh process.

    python benchmarks/bench.py [--quick] [--only PROBLEM ...] [--contestants NAME ...] [--parts PART ...]
                               [--seconds S] [--minutes M] [--out FOLDER]
    python benchmarks/bench.py --page [FILE ...]       writes the tables of docs/benchmarks.md, without running anything

A child process without a compile cache imports its contestant, loads the posterior and prints the answer (see
peers/contract.py). Its start-up is the time until it is ready, without loading the rows; its peak memory is what the
system says of it. A child that fails or is stopped at the hard limit is a row too, with the last line of its error.
Every row is stored at once in results/bench.jsonl (bench-quick.jsonl) and not run again: a run that was killed goes
on where it was, and `--retry` runs again what failed. At the end peers/show.py writes the tables and the plots.

The parts are these posteriors, the mixed ones (mixed.py) and those of the wide ones that take minutes (wide.py), each
with rows of its own and a limit each; `--only` and `--contestants` choose among the first and leave the others out. No
run begins after `--minutes`: what is left then is told, and done by the next call.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import ages
import lines
import numpy as np
from processes import Child, watch

from tallbayes.errors import require_extra

RESULTS = Path(__file__).parent / "results"
NAME, QUICK_NAME = "bench", "bench-quick"
SECONDS, QUICK_SECONDS = 6.0, 2.0
LIMIT, LONG_LIMIT = 120.0, 180.0
MIXED_LIMIT, QUICK_MIXED_LIMIT = 180.0, 90.0
WIDE_LIMIT, QUICK_WIDE_LIMIT = 400.0, 100.0
MINUTES, QUICK_MINUTES = 80.0, 7.5
PARTS = ("posteriors", "mixed", "wide")
QUICK_MIXED = ("logistic-2000-5",)
WIDE, QUICK_WIDE = ("components-50", "components-200", "logistic-1000"), ("components-50",)
SLOW = ("statsmodels", "NumPyro NUTS")
LONG = ("logistic-1000000-20", "multinomial")
PREPARE_LIMIT = 900.0
PACKAGES = ("tallbayes", "jax", "jaxlib", "numpy", "scipy", "numpyro", "blackjax", "nutpie")
PEERS = PACKAGES[5:]
MODULES = {
    "by_tallbayes": (
        "tallbayes",
        "tallbayes, the ladder",
        "tallbayes, the balanced ladder",
        "tallbayes draws",
        "tallbayes randomised",
        "tallbayes, the paper's ladder",
    ),
    "by_numpyro": ("NumPyro NUTS", "NumPyro HMCECS", "NumPyro mean-field VI", "NumPyro full-rank VI"),
    "by_blackjax": (
        "BlackJAX MALA",
        "BlackJAX NUTS",
        "BlackJAX SGLD",
        "BlackJAX SGLD with control variates",
    ),
    "by_nutpie": ("nutpie",),
    "importance": ("importance sampling (NumPy)",),
    "gaussians": ("Laplace",),
}
CONTESTANTS = {name: module for module, names in MODULES.items() for name in names}


class Run(NamedTuple):
    """What a row is found by."""

    problem: str
    contestant: str
    effort: float
    seed: int


def start(arguments: list[str], limit: float) -> Child:
    """Run this script in a fresh process without a compile cache, and stop it at the limit."""
    return watch([sys.executable, __file__, *arguments, "--limit", str(limit)], limit)


def run(key: Run) -> dict[str, Any]:
    """The row of one contestant on one problem."""
    effort = ["--seconds", str(key.effort), "--seed", str(key.seed)]
    limit = LONG_LIMIT if key.problem.startswith(LONG) else LIMIT
    child = start(["--child", key.contestant, key.problem, *effort], limit)
    ready = child.lines[0] if child.lines else (np.nan, {"loading": np.nan, "bytes": 0})
    return {
        "failure": child.failure,
        "starting": ready[0] - ready[1]["loading"],
        "loading": ready[1]["loading"],
        "process_seconds": child.seconds,
        "bytes_before": ready[1]["bytes"],
        "peak_bytes": child.peak_bytes,
        "answer": child.lines[1][1] if len(child.lines) > 1 else None,
    }


def child(contestant: str, problem: str, seconds: float, seed: int, limit: float) -> None:
    """In the fresh process: import, load, say so, answer. Whatever else is printed goes to the errors."""
    signal.alarm(int(limit) + 10)
    with os.fdopen(os.dup(1), "w") as channel:
        os.dup2(2, 1)
        compete = import_module(f"peers.{CONTESTANTS[contestant]}").CONTESTANTS[contestant]
        started = time.perf_counter()
        posterior = load(problem)
        ready = {"loading": time.perf_counter() - started, "bytes": own_peak()}
        print(json.dumps(ready), file=channel, flush=True)
        from peers.contract import Effort

        answer = compete(posterior, Effort(seconds, seed=seed))
        print(json.dumps(asdict(answer), default=plain), file=channel, flush=True)


def load(problem: str) -> Any:
    """The posterior with its mode and precision at hand."""
    from peers import posteriors

    posterior = posteriors.load(problem)
    assert np.all(np.isfinite(posterior.mode))
    assert np.all(np.isfinite(posterior.precision))
    return posterior


def prepare(problem: str) -> None:
    """In a fresh process: find and store mode, precision and reference where they are not there yet."""
    from peers import truths

    load(problem)
    truths.get(problem)


def own_peak() -> int:
    """The peak memory of this process so far, where the system tells it."""
    status = Path("/proc/self/status")
    sizes = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else []
    return 1024 * int(sizes[0]) if sizes else 0


def plain(value: Any) -> Any:
    """Arrays and NumPy's numbers as JSON has them."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return str(value)


def found_versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def complete(keys: list[Run], path: Path, retry: bool, until: float) -> None:
    """Run what is missing, problem by problem, and store every row as soon as it is there; begin none after `until`."""
    stored = lines.read(path, Run)
    missing = [key for key in keys if key not in stored or (retry and stored[key]["failure"] is not None)]
    common = {"commit": lines.describe_commit(), "versions": found_versions(), "cores": os.cpu_count()}
    common |= ages.stamp(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.read_bytes() and not path.read_bytes().endswith(b"\n"):
        path.write_bytes(path.read_bytes() + b"\n")
    began, prepared = time.perf_counter(), set()
    for number, key in enumerate(missing):
        if time.perf_counter() > until:
            return tell(f"{len(missing) - number} runs are left: call it again")
        if key.problem not in prepared:
            prepared.add(key.problem)
            found = start(["--prepare", key.problem], PREPARE_LIMIT)
            tell(f"{key.problem}: {told(found.failure, 'prepared')} in {found.seconds:.0f} s")
        row = key._asdict() | run(key) | common
        with path.open("a") as store:
            store.write(json.dumps(row) + "\n")
        spent = time.perf_counter() - began
        left = spent / (number + 1) * (len(missing) - number - 1)
        outcome = f"{told(row['failure'], 'done')} in {row['process_seconds']:.0f} s"
        progress = f"{number + 1}/{len(missing)}, about {left / 60:.0f} minutes left"
        tell(f"{progress}: {key.problem}, {key.contestant}: {outcome}")
    return None


def beside(given: argparse.Namespace, parts: Sequence[str], until: float) -> None:
    """Mixed and wide posteriors by their own benchmarks; without the peers that take longest where it must be quick."""
    import mixed
    import wide
    from peers.beyond import place

    name, quick = (QUICK_NAME, True) if given.quick else (NAME, False)
    if "mixed" in parts:
        left_out = SLOW if quick else ("statsmodels",)
        problems = QUICK_MIXED if quick else mixed.FIELDS
        keys = [mixed.Run(each, peer) for each in problems for peer in mixed.FIELDS[each] if peer not in left_out]
        path = place(given.out, name, "mixed")
        mixed.complete(keys, path, QUICK_MIXED_LIMIT if quick else MIXED_LIMIT, given.retry, until)
    if "wide" in parts:
        path = place(given.out, name, "wide")
        limit = QUICK_WIDE_LIMIT if quick else WIDE_LIMIT
        wide.complete(QUICK_WIDE if quick else WIDE, path, limit, until=until)


def told(failure: str | None, otherwise: str) -> str:
    return otherwise if failure is None else f"FAILED ({failure})"


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def chosen(given: argparse.Namespace) -> list[Run]:
    """All runs that were asked for, contestant after contestant within a problem."""
    from peers import posteriors

    problems = given.only or (posteriors.QUICK if given.quick else posteriors.NAMES)
    seconds = given.seconds or (QUICK_SECONDS if given.quick else SECONDS)
    return [
        Run(problem, name, seconds, given.seed) for problem in problems for name in given.contestants or CONTESTANTS
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="side by side with the peers")
    parser.add_argument("--quick", action="store_true", help="few problems and little effort, in a file of its own")
    parser.add_argument("--only", nargs="+", metavar="PROBLEM")
    parser.add_argument("--contestants", nargs="+", metavar="NAME", choices=CONTESTANTS)
    parser.add_argument("--seconds", type=float, help="of drawing, for every contestant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="default: all, or with a choice the first alone")
    parser.add_argument("--minutes", type=float, help="after which no run begins")
    parser.add_argument("--page", nargs="*", metavar="FILE", help="write the page from these files of results")
    parser.add_argument("--retry", action="store_true", help="run again what failed")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--prepare", help=argparse.SUPPRESS)
    parser.add_argument("--limit", type=float, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        return child(*given.child, given.seconds, given.seed, given.limit)
    if given.prepare:
        return prepare(given.prepare)
    if given.page is not None:
        return import_module("bench_page").rewrite(given.page)
    parts = given.parts or (PARTS[:1] if given.only or given.contestants else PARTS)
    named = given.contestants or CONTESTANTS
    for peer in sorted({CONTESTANTS[each].removeprefix("by_") for each in named} & set(PEERS)):
        require_extra(peer, "bench", "the peers that are compared")
    name, minutes = (QUICK_NAME, QUICK_MINUTES) if given.quick else (NAME, MINUTES)
    until = time.perf_counter() + 60 * (given.minutes or minutes)
    given.out.mkdir(parents=True, exist_ok=True)
    if "posteriors" in parts:
        complete(chosen(given), given.out / f"{name}.jsonl", given.retry, until)
    beside(given, parts, until)
    show = import_module("peers.show")
    print(show.write(given.out, name))
    return None


if __name__ == "__main__":
    main()
