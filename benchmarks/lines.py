"""Runs as lines of a file: each a JSON object, written as soon as it is done, and not run again while it stands there.

Two processes, each on one core, share what is missing; of 0 workers this one runs all. A run is found by its key, a
NamedTuple whose fields are among
those of the line.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import ages
from ages import describe_commit

WORKERS = 2
TELL_EVERY = 20


def read(path: Path, key: Any) -> dict[Any, dict[str, Any]]:
    """Stored runs by their `key`, a type of NamedTuple; a line cut short by a kill is run again."""
    stored = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            each = json.loads(line)
        except json.JSONDecodeError:
            continue
        stored[key(*(each[field] for field in key._fields))] = each
    return stored


def complete(keys: list[Any], path: Path, run: Callable[[Any], dict[str, Any]], workers: int = WORKERS) -> None:
    """Run what is missing; `run` makes a line from a key."""
    stored = read(path, type(keys[0]))
    missing = [key for key in keys if key not in stored]
    if not missing:
        return
    os.environ["NPROC"] = "1"  # read by XLA when a worker starts: one core each
    about = {"commit": describe_commit()} | ages.stamp(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.read_bytes().endswith(b"\n"):
        path.write_bytes(path.read_bytes() + b"\n")
    with path.open("a") as store:
        for number, (key, each) in enumerate(_results(missing, run, workers), 1):
            store.write(json.dumps(key._asdict() | each | about) + "\n")
            store.flush()
            if number % TELL_EVERY == 0 or number == len(missing):
                told = " ".join(map(str, key))
                print(f"{number}/{len(missing)}: {told} {each['status']}", file=sys.stderr, flush=True)


def _results(
    missing: list[Any], run: Callable[[Any], dict[str, Any]], workers: int
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Keys and their lines, as they come."""
    if workers == 0:
        yield from ((key, run(key)) for key in missing)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as executor:
        futures = {executor.submit(run, key): key for key in missing}
        try:
            yield from ((futures[future], future.result()) for future in as_completed(futures))
        except BaseException:
            executor.shutdown(wait=False, cancel_futures=True)
            raise
