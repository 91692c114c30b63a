"""Are errors true day after day? Streams of rows that come and are withdrawn, many seeds each, the stopping rule on.

    python benchmarks/arrivals_calibration.py [--seeds 100] [--only NAME ...] [--out FOLDER]

A stream is a table of which half is fitted; ten days bring a twentieth each, and after the sixth the rows of the third
are withdrawn. Means and sds of all parameters are asked for to 0.01 posterior sds every day, and judged on the fifth
day, on that of the withdrawal and on the last, against importance sampling of the rows there are then (`references`).
Columns are -1, 0 or 1, so that rows are few patterns, each so many times, and references take seconds.
`judging` is the judge, quantity by quantity; all tests together give a false alarm in 1%. Two controls must be red:
intervals half as long, and answers of the last day beside the posterior of the day before it.

"rare" has a column that is 1 in 25 rows alone, spread over all days: they must be seen.

Every run is a line of arrivals_calibration.jsonl in FOLDER and is not run again; the summary is
arrivals_calibration.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import ages
import lines
import numpy as np
import problems
import references
from judging import CONVERGED, Runs, bonferroni, judge, number_of_tests, runs_of

import tallbayes as tb
from tallbayes.records.fingerprint import METHOD_VERSION
from tallbayes.views.text import table

RESULTS = Path(__file__).parent / "results"
TOLERANCE, FALSE_ALARM, GOAL = 0.01, 0.01, 1e-3
DAYS, WITHDRAWN, LEAVES = 10, 3, 6
JUDGED = (5, LEAVES, DAYS)
RARE = 25


class Key(NamedTuple):
    """What a stored run is found by."""

    stream: str
    seed: int
    method_version: int


@dataclass(frozen=True, eq=False)
class Stream:
    """A model and its rows in the order in which they come."""

    model: tb.Model
    rows: problems.Rows
    kind: str

    def part(self, chosen: np.ndarray) -> problems.Rows:
        return {name: each[chosen] for name, each in self.rows.items()}

    @property
    def days(self) -> list[np.ndarray]:
        """Which rows are fitted first, and which come day by day."""
        count = len(self.rows["y"])
        return np.split(np.arange(count), (count // 2 + np.arange(DAYS) * (count // 2) // DAYS).tolist())

    def standing(self, day: int) -> np.ndarray:
        """Rows there are at the end of a day."""
        gone = {WITHDRAWN} if day >= LEAVES else set()
        return np.concatenate([rows for place, rows in enumerate(self.days[: day + 1]) if place not in gone])

    def truth(self, day: int) -> list[float]:
        """Means and sds of all parameters, given the rows of that day."""
        rows = self.part(self.standing(day))
        x, pattern = np.unique(rows["x"], axis=0, return_inverse=True)
        parts = np.bincount(pattern).astype(float), np.bincount(pattern, rows["y"])
        posterior: Any = CountedPosterior(x, *parts, CUMULANTS[self.kind])
        found = references.solve(posterior, GOAL, references.FREEDOM)
        return [*found.mean, *found.sd]


@dataclass(frozen=True, eq=False)
class CountedPosterior:
    """Patterns x, rows of each, and the sums of their responses, with the prior N(0, I), as `references.solve` wants
    them: log density s.eta - n.A(eta), A' and so on being the cumulants of a response."""

    x: np.ndarray
    n: np.ndarray
    s: np.ndarray
    cumulants: Callable[[np.ndarray], tuple[np.ndarray, ...]]

    @property
    def y(self) -> np.ndarray:
        return self.s

    def log_density(self, theta: np.ndarray) -> np.ndarray:
        eta = self.x @ theta.T
        return -0.5 * np.sum(theta**2, axis=1) + self.s @ eta - self.n @ self.cumulants(eta)[0]

    @cached_property
    def mode(self) -> tuple[np.ndarray, np.ndarray]:
        theta = np.zeros(self.x.shape[1])
        for _ in range(60):
            _, mean, variance, _ = self.cumulants(self.x @ theta)
            hessian = self.x.T @ ((self.n * variance)[:, None] * self.x) + np.eye(len(theta))
            step = np.linalg.solve(hessian, self.x.T @ (self.s - self.n * mean) - theta)
            theta = theta + step
            if step @ hessian @ step < 1e-18:
                return theta, hessian
        raise RuntimeError("expected Newton to reach the mode in 60 steps")

    def cubic(self, root: np.ndarray) -> np.ndarray:
        third = -self.n * self.cumulants(self.x @ self.mode[0])[3]
        moved = self.x @ root
        return np.asarray(np.einsum("i,ij,ik,il->jkl", third, moved, moved, moved))


def binary(eta: np.ndarray) -> tuple[np.ndarray, ...]:
    chance = 1 / (1 + np.exp(-eta))
    variance = chance * (1 - chance)
    return np.logaddexp(0, eta), chance, variance, variance * (1 - 2 * chance)


def counts(eta: np.ndarray) -> tuple[np.ndarray, ...]:
    return (np.exp(eta),) * 4


CUMULANTS = {"logistic": binary, "poisson": counts}
MODELS = {
    "logistic": tb.families.logistic(prior_scale=1.0),
    "poisson": tb.families.poisson(prior_scale=1.0),
    "poisson, a user's own": tb.Model(problems.log_prior, problems.poisson_likelihood, np.zeros(5)),
}


def stream(name: str, num_rows: int, rare: bool) -> Stream:
    """Four columns and a one; where a column is rare, it is 1 in a few rows spread over all days, and 0 else."""
    kind = name.partition(",")[0]
    rng = np.random.default_rng([5, num_rows])
    x = np.column_stack([rng.integers(-1, 2, (num_rows, 4)), np.ones(num_rows)]).astype(float)
    if rare:
        x[:, 0] = 0.0
        x[np.linspace(0, num_rows - 1, RARE).astype(int), 0] = 1.0
    eta = x @ [1.0, 0.5, -0.5, 0.3, -1.0]
    y = rng.poisson(np.exp(eta)) if kind == "poisson" else rng.random(num_rows) < 1 / (1 + np.exp(-eta))
    return Stream(MODELS[name], {"x": x, "y": y.astype(float)}, kind)


STREAMS: dict[str, Callable[[], Stream]] = {
    **{name: partial(stream, name, 10_000, rare=False) for name in MODELS},
    "logistic, rare": partial(stream, "logistic", 10_000, rare=True),
}


@cache
def stream_of(name: str) -> Stream:
    return STREAMS[name]()


def answers(stream: Stream, seed: int) -> Iterator[tuple[int, tb.Result]]:
    """Day by day."""
    first, *days = stream.days
    result = tb.estimate(stream.model, stream.part(first), tolerance=TOLERANCE, seed=seed)
    for day, rows in enumerate(days, 1):
        result = result.update(stream.part(rows))
        if day == LEAVES:
            result = result.without(stream.part(days[WITHDRAWN - 1]))
        yield day, result


def run(key: Key) -> dict[str, Any]:
    """One stream, from its first day to its last, as a line of the store."""
    started, found = time.process_time(), {}
    for day, result in answers(stream_of(key.stream), key.seed):
        if day in JUDGED:
            found[str(day)] = numbers(result)
    return {
        "status": result.status.name,
        "days": found,
        "seconds": round((time.process_time() - started) / (DAYS + 1), 3),
    }


def numbers(result: tb.Result) -> dict[str, Any]:
    both = result["mean"], result["sd"]

    def joined(read: Callable[[Any], np.ndarray]) -> list[float | None]:
        every = np.concatenate([read(each) for each in both])
        return [float(number) if np.isfinite(number) else None for number in every]

    return {
        "status": result.status.name,
        "names": [label for each in both for label in each.structure.labels(each.name)],
        "value": joined(lambda each: each.flat_value),
        "lower": joined(lambda each: each.flat_interval[0]),
        "upper": joined(lambda each: each.flat_interval[1]),
        "standard_error": joined(lambda each: each.flat_standard_error),
        "allowed": joined(lambda each: each.flat_tolerance),
        "rows": result.cost.evaluations + result.cost.setup_evaluations,
    }


def judged_runs(stored: list[dict[str, Any]], day: int, truth: list[float]) -> Runs:
    parts = [each["days"][str(day)] | {"seconds": each["seconds"], "truth": truth} for each in stored]
    return runs_of(parts)


def summarise(
    streams: dict[str, list[dict[str, Any]]], truths: dict[str, dict[str, list[float]]]
) -> list[dict[str, Any]]:
    """By stream and day: the verdict, that of intervals half as long, and of the last day that of the day before's
    posterior."""
    classes = {
        (name, day): judged_runs(stored, day, truths[name][str(day)])
        for name, stored in streams.items()
        for day in JUDGED
    }
    bound = bonferroni([number_of_tests(runs) for runs in classes.values()], FALSE_ALARM)
    found = []
    for (name, day), runs in classes.items():
        row = {"stream": name, "day": day, **judge(runs, bound).record()}
        row["halved is red"] = judge(runs.halved(), bound).is_red
        row["rows a day"] = int(np.median([each["days"][str(day)]["rows"] for each in streams[name]]))
        if day == DAYS:
            forgotten = judged_runs(streams[name], day, truths[name][str(DAYS - 1)])
            row["a day forgotten is red"] = judge(forgotten, bound).is_red
        found.append(row)
    return found


def line_of(row: dict[str, Any]) -> list[str]:
    converged = f"{row['statuses'].get(CONVERGED, 0)} of {row['runs']}"
    numbers = [f"{row['rmse']:.2f}", f"{row['pooled_coverage']:.1%}", f"{row['worst_coverage']:.1%}"]
    controls = [
        "red" if row["halved is red"] else "green",
        {True: "red", False: "green", None: ""}[row.get("a day forgotten is red")],
    ]
    outcome = "RED" if row["is_red"] else "green"
    return [
        row["stream"],
        str(row["day"]),
        converged,
        *numbers,
        outcome,
        *controls,
        f"{row['rows a day']:,}",
        f"{row['seconds']:.2f}",
    ]


HEADER = (
    "stream",
    "day",
    "converged",
    "rmse",
    "coverage",
    "worst",
    "verdict",
    "halved",
    "forgotten",
    "rows",
    "seconds a day",
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Are errors true day after day?")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--workers", type=int, default=lines.WORKERS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    chosen = [name for name in STREAMS if not options.only or any(part in name for part in options.only)]
    summary = options.out / "arrivals_calibration.json"
    known = json.loads(summary.read_text()) if summary.exists() else {"truths": {}, "classes": []}
    for name in chosen:
        if name not in known["truths"]:
            known["truths"][name] = {str(day): stream_of(name).truth(day) for day in (*JUDGED, DAYS - 1)}
    store = options.out / "arrivals_calibration.jsonl"
    keys = [Key(name, seed, METHOD_VERSION) for seed in range(options.seeds) for name in chosen]
    lines.complete(keys, store, run, options.workers)
    stored = lines.read(store, Key)
    streams = {name: [stored[key] for key in keys if key.stream == name] for name in chosen}
    kept = [row for row in known["classes"] if row["stream"] not in streams]
    rows = summarise(streams, known["truths"])
    document = {"seeds": options.seeds, "tolerance": TOLERANCE, "commit": lines.describe_commit(), **known}
    summary.write_text(json.dumps(document | {"classes": kept + rows}, indent=1) + "\n")
    ages.record(summary)
    print(table(HEADER, [line_of(row) for row in rows]))


if __name__ == "__main__":
    main()
