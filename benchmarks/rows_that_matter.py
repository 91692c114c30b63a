"""Rows that matter: one to ten deciding rows of 10^3 to 10^6, in five shapes, in families and in models of one's own.

    python benchmarks/rows_that_matter.py [--seeds 50] [--only CLASS ...] [--workers 2] [--stored] [--control]

    exposure    Poisson: the deciding rows have all exposure but a part in a million a row, and all events
    rare        logistic: as many positives as there are deciding rows
    weights     Poisson: the deciding rows stand for 5 to 15 rows each, all others for a part in a million
    leverage    logistic: a column that is 0 but in the deciding rows, whose coefficient they alone decide
    level       Poisson: a category that only the deciding rows have

A class is shape, "family" or "own", deciding rows and rows, such as "exposure own 3 of 1e4". Its rows change with the
seed, five sets in turn. Few rows of a set differ, so that the truth is a sum over these (`quadrature`). A class is red
if the published 95% interval of runs that converged covers too seldom (`judging`); all tests together give a false
alarm in 1% of such studies.

`--control` is the deliberate bug "listing switched off": the same classes, where no row is read more often than any
other. It must be found out: by intervals that miss, or by runs that say they did not converge.
Lines go to rows_that_matter.jsonl, the summary to rows_that_matter.json, a control's under names of their own.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import ages
import jax.numpy as jnp
import judging
import lines
import numpy as np
import quadrature
from attacks import show
from judging import Verdict
from questions import Question, put

import tallbayes as tb
from tallbayes.records.fingerprint import METHOD_VERSION
from tallbayes.setup import preparation

RESULTS = Path(__file__).parent / "results"
FALSE_ALARM = 0.01
SETS = 5
TOLERANCE = 0.1
SCALE = 3.0
DECIDING = (1, 3, 10)
SIZES = (1_000, 10_000, 100_000, 1_000_000)
DOORS = ("family", "own")
LITTLE = 1e-6


class Design(NamedTuple):
    """Rows of a family, with their weights if they have any."""

    response: str
    x: np.ndarray
    y: np.ndarray
    offset: np.ndarray | None = None
    weight: np.ndarray | None = None


def places(rng: np.random.Generator, num_rows: int, deciding: int) -> np.ndarray:
    return rng.choice(num_rows, deciding, replace=False)


def signs(rng: np.random.Generator, num_rows: int) -> np.ndarray:
    """A covariate of few values, and a column of ones."""
    return np.column_stack([rng.choice([-1.0, 0.0, 1.0], num_rows), np.ones(num_rows)])


def exposure(rng: np.random.Generator, num_rows: int, deciding: int) -> Design:
    time, y, where = np.full(num_rows, LITTLE), np.zeros(num_rows), places(rng, num_rows, deciding)
    time[where], y[where] = 1.0, 3 + rng.poisson(3.0, deciding)
    return Design("poisson", signs(rng, num_rows), y, np.log(time))


def rare(rng: np.random.Generator, num_rows: int, deciding: int) -> Design:
    """Positives fall where x is large: x is normal, rounded to quarters."""
    column = np.round(4 * rng.normal(size=num_rows)) / 4
    chance = np.exp(2 * column)
    where = rng.choice(num_rows, deciding, replace=False, p=chance / chance.sum())
    y = np.zeros(num_rows)
    y[where] = 1.0
    return Design("logistic", np.column_stack([column, np.ones(num_rows)]), y)


def weights(rng: np.random.Generator, num_rows: int, deciding: int) -> Design:
    weight, y = np.full(num_rows, LITTLE), 1.0 + rng.poisson(1.0, num_rows)
    weight[places(rng, num_rows, deciding)] = rng.integers(5, 16, deciding)
    return Design("poisson", signs(rng, num_rows), y, weight=weight)


def leverage(rng: np.random.Generator, num_rows: int, deciding: int) -> Design:
    x, where = signs(rng, num_rows), places(rng, num_rows, deciding)
    x[:, 0] = 0.0
    x[where, 0] = rng.choice([1.0, 2.0], deciding)
    return Design("logistic", x, (rng.random(num_rows) < 0.4).astype(float))


def level(rng: np.random.Generator, num_rows: int, deciding: int) -> Design:
    """Columns are those of the categories; the counts of the rare one are alike."""
    x, where = np.zeros((num_rows, 2)), places(rng, num_rows, deciding)
    x[:, 1], y = 1.0, rng.poisson(1.0, num_rows).astype(float)
    x[where], y[where] = (1.0, 0.0), 1.0 + rng.integers(0, 2)
    return Design("poisson", x, y)


SHAPES: dict[str, Callable[[np.random.Generator, int, int], Design]] = {
    "exposure": exposure, "rare": rare, "weights": weights, "leverage": leverage, "level": level,
}  # fmt: skip


class Class(NamedTuple):
    """What is judged together."""

    shape: str
    door: str
    deciding: int
    num_rows: int

    def __str__(self) -> str:
        return f"{self.shape} {self.door} {self.deciding} of 1e{len(str(self.num_rows)) - 1}"


class Key(NamedTuple):
    """What a stored run is found by."""

    shape: str
    door: str
    deciding: int
    num_rows: int
    listed: bool
    seed: int
    method_version: int


CLASSES = tuple(
    Class(shape, door, deciding, num_rows)
    for num_rows in SIZES for deciding in DECIDING for shape in SHAPES for door in DOORS
    if num_rows < 1_000_000 or deciding != 3
)  # fmt: skip
# Where rows were never read before they were listed: enough to find the bug out.
CONTROLS = tuple(each for each in CLASSES if each.num_rows in (10_000, 100_000) and each.deciding < 10)
CONTROL_SEEDS = 10


def own_prior(theta: Any) -> Any:
    return -0.5 * jnp.sum((theta / SCALE) ** 2)


def own_poisson(theta: Any, row: Any) -> Any:
    eta = row["x"] @ theta + row["offset"]
    return row["y"] * eta - jnp.exp(eta)


def own_logistic(theta: Any, row: Any) -> Any:
    eta = row["x"] @ theta
    return row["y"] * eta - jnp.logaddexp(0.0, eta)


OWN = {"poisson": own_poisson, "logistic": own_logistic}
RESPONSES = {"poisson": quadrature.POISSON, "logistic": quadrature.LOGISTIC}


@lru_cache(SETS)
def question(name: Class, number: int) -> Question:
    """Set `number` of a class, made once in every process; the last few are kept."""
    this = SHAPES[name.shape](np.random.default_rng([29, number, name.num_rows]), name.num_rows, name.deciding)
    rows = {"x": this.x, "y": this.y}
    if this.response == "poisson" and (name.door == "own" or this.offset is not None):
        rows["offset"] = np.zeros(len(this.y)) if this.offset is None else this.offset
    model = tb.families.FAMILIES[this.response](prior_scale=SCALE)
    if name.door == "own":
        model = tb.Model(own_prior, OWN[this.response], np.zeros(this.x.shape[1]))
    sides = 0.0 if this.offset is None else this.offset, 1.0 if this.weight is None else this.weight
    truth = quadrature.Regression.of(RESPONSES[this.response], this.x, this.y, *sides, scale=SCALE).moments()
    return Question(model, rows, truth, TOLERANCE, {} if this.weight is None else {"weights": this.weight})


@contextmanager
def listing(switched_on: bool) -> Iterator[None]:
    """The deliberate bug, if switched off: no row is read more often than any other."""
    kept = preparation.list_rows
    if not switched_on:
        preparation.list_rows = lambda *_, **__: None
    try:
        yield
    finally:
        preparation.list_rows = kept


def run(key: Key) -> dict[str, Any]:
    name = Class(key.shape, key.door, key.deciding, key.num_rows)
    with listing(key.listed):
        return put(question(name, key.seed % SETS), key.seed)


def read(path: Path, chosen: list[Class], listed: bool) -> dict[str, list[dict[str, Any]]]:
    """Stored runs of this version of the method, by class."""
    found: dict[str, list[dict[str, Any]]] = {str(each): [] for each in chosen}
    for key, line in sorted(lines.read(path, Key).items()):
        name = str(Class(key.shape, key.door, key.deciding, key.num_rows))
        if key.method_version == METHOD_VERSION and key.listed == listed and name in found:
            found[name].append(line)
    return found


def verdicts(stored: dict[str, list[dict[str, Any]]]) -> dict[str, Verdict]:
    found = {name: judging.runs_of(each) for name, each in stored.items() if each}
    bound = judging.bonferroni([judging.number_of_tests(runs) for runs in found.values()], FALSE_ALARM)
    return {name: judging.judge(runs, bound) for name, runs in found.items()}


def found_out(judged: dict[str, Verdict]) -> list[str]:
    """Classes that show a bug: red, or without an answer in most of their runs."""
    silent = [name for name, each in judged.items() if 2 * each.statuses.get("converged", 0) < each.runs]
    return sorted({*silent, *(name for name, each in judged.items() if each.is_red)})


def main() -> None:
    parser = argparse.ArgumentParser(description="deciding rows of many: are they read, or missed?")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--only", nargs="+", metavar="CLASS", default=[""], help='any part of "exposure own 3 of 1e4"')
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--workers", type=int, default=lines.WORKERS)
    parser.add_argument("--stored", action="store_true", help="judge what is stored, run nothing")
    parser.add_argument("--control", action="store_true", help="with the listing switched off: must be found out")
    given = parser.parse_args()
    seeds = given.seeds or (CONTROL_SEEDS if given.control else 50)
    every = CONTROLS if given.control else CLASSES
    chosen = [each for each in every if any(part in str(each) for part in given.only)]
    if not chosen:
        parser.error(f"expected parts of {', '.join(map(str, every))}; got {' '.join(given.only)}")
    path, listed = given.out / "rows_that_matter.jsonl", not given.control
    if not given.stored:
        keys = [Key(*each, listed, seed, METHOD_VERSION) for each in chosen for seed in range(seeds)]
        lines.complete(keys, path, run, given.workers)
    stored = read(path, chosen, listed)
    judged = verdicts(stored)
    print(show(judged))
    if given.only == [""]:
        summary = given.out / ("rows_that_matter-control.json" if given.control else "rows_that_matter.json")
        settings = {"false_alarm": FALSE_ALARM, "tolerance": TOLERANCE, "method_version": METHOD_VERSION}
        classes = {name: each.record() for name, each in judged.items()}
        summary.write_text(json.dumps({"settings": settings, "classes": classes}, indent=1, allow_nan=False) + "\n")
        ages.record(summary, {name: ages.of_lines(runs) for name, runs in stored.items()})
    red = [name for name, each in judged.items() if each.is_red]
    if given.control:
        shown = found_out(judged)
        print(f"control, listing switched off: {len(red)} of {len(judged)} classes red, {len(shown)} found out")
        sys.exit(None if shown else "the deliberate bug was not found out")
    if red:
        sys.exit(f"red: {', '.join(red)}")


if __name__ == "__main__":
    main()
