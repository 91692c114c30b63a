"""What would it cost to have interval ends to a tolerance by default? Runs without one beside runs with several.

    make bench-ends      prints a table, writes results/interval_ends.json (half an hour)

Every model at the command line's default, means and sds to 1% of a posterior sd, and at 5%; alone, and with the ends of
all 95% intervals to 0.2, 0.1 or 0.05 of one. Warm: a first call of each compiles, and seeds 1, 2 and 3 follow; medians
over them are shown. `worst` is the largest stated error of an end of any seed, in posterior sds, and `rough` the share
of ends whose error is above a tenth of one.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ages
import jax.numpy as jnp
import numpy as np
from lines import describe_commit
from peers import posteriors

import tallbayes as tb
from tallbayes.views.text import table

RESULTS = Path(__file__).parent / "results" / "interval_ends.json"
# Of means and sds, and of ends.
ASKED = ((0.01, None), (0.01, 0.2), (0.01, 0.1), (0.01, 0.05), (0.05, None), (0.05, 0.1))
SEEDS = (1, 2, 3)
ROUGH = 0.1
MAX_SECONDS = 100.0
Answer = Callable[..., tb.Result]


def logistic(num_rows: int, dimension: int) -> Answer:
    rng = np.random.default_rng(num_rows + dimension)
    x = rng.normal(size=(num_rows, dimension))
    y = rng.random(num_rows) < 1 / (1 + np.exp(-x @ rng.normal(0.0, 0.5, dimension)))
    model, rows = tb.families.logistic(intercept_scale=10.0), {"x": x, "y": y.astype(float)}
    return lambda **asked: tb.estimate(model, rows, **asked)


def categories(num_rows: int, levels: int, rarest: int) -> Answer:
    """One category of many levels, the last of them with few rows, and priors on the scale of log odds."""
    rng = np.random.default_rng(levels)
    code = rng.integers(0, levels - 1, num_rows)
    code[:rarest] = levels - 1
    hour = rng.uniform(6, 23, num_rows)
    effect = rng.normal(0.0, 0.5, levels)
    late = rng.random(num_rows) < 1 / (1 + np.exp(3 - 0.12 * hour - effect[code]))
    columns = {"late": late, "hour": hour, "carrier": np.array([f"c{each:04d}" for each in code])}
    return lambda **asked: tb.fit("late ~ hour + carrier", columns, standardise=False, **asked)


def counts(num_rows: int) -> Answer:
    rng = np.random.default_rng(num_rows)
    x = rng.normal(size=num_rows)
    columns = {"x": x, "y": rng.poisson(np.exp(0.5 + 0.4 * x - 0.1 * x**2))}
    return lambda **asked: tb.fit("y ~ x + I(x**2)", columns, family="poisson", **asked)


def far_from_gaussian() -> Answer:
    model, rows = posteriors.load("non-gaussian").model()
    return lambda **asked: tb.estimate(model, rows, **asked)


def groups(num_groups: int, each: int) -> Answer:
    """Effects of groups about a common scale."""
    rng = np.random.default_rng(num_groups)
    code = np.repeat(np.arange(num_groups), each)
    y = rng.normal(rng.normal(0.0, 0.7, num_groups)[code], 1.0)

    def log_prior(theta: Any) -> Any:
        return -0.5 * jnp.sum(theta["effect"] ** 2) - 0.5 * theta["scale"] ** 2

    def log_likelihood(theta: Any, row: Any) -> Any:
        return -0.5 * (row["y"] - theta["scale"] * theta["effect"][row["group"]]) ** 2

    start = {"effect": np.zeros(num_groups), "scale": 1.0}
    model = tb.Model(log_prior, log_likelihood, start, constraints={"scale": tb.constraints.positive})
    return lambda **asked: tb.estimate(model, {"y": y, "group": code}, **asked)


MODELS: dict[str, Callable[[], Answer]] = {
    "logistic, 10^4 rows, d = 10": lambda: logistic(10**4, 10),
    "logistic, 10^6 rows, d = 10": lambda: logistic(10**6, 10),
    "logistic, 10^5 rows, d = 60": lambda: logistic(10**5, 60),
    "far from Gaussian, 200 rows, d = 20": far_from_gaussian,
    "25 levels, one with 12 of 20,000 rows": lambda: categories(20_000, 25, 12),
    "25 levels, one with 2 of 20,000 rows": lambda: categories(20_000, 25, 2),
    "Poisson with a square, 10^4 rows": lambda: counts(10**4),
    "8 groups of 20 rows, scale x effect": lambda: groups(8, 20),
}


def call(answer: Answer, tolerance: float, ends: float | None, seed: int) -> dict[str, Any]:
    started, processor = time.perf_counter(), time.process_time()
    result = answer(tolerance=tolerance, interval_tolerance=ends, seed=seed, max_seconds=MAX_SECONDS)
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    lower, upper = result.posterior.interval()
    errors = np.stack([lower.flat_error, upper.flat_error]) / result["sd"].flat_value
    return {
        "seed": seed,
        "status": result.status.name,
        "seconds": seconds,
        "processor": processor,
        "items": result.cost.evaluations,
        "epochs": result.cost.epochs,
        "samples": [level.samples for level in result.levels],
        "worst": float(np.max(errors)),
        "rough": float(np.mean(~(errors <= ROUGH))),
    }


def main() -> None:
    found = json.loads(RESULTS.read_text())["models"] if RESULTS.exists() else {}
    versions = {name: version(name) for name in ("tallbayes", "jax", "numpy")}
    for name, make in MODELS.items():
        if name in found:
            continue
        answer, found[name] = make(), {}
        for asked in ASKED:
            call(answer, *asked, 0)
            found[name]["{} {}".format(*asked)] = runs = [call(answer, *asked, seed) for seed in SEEDS]
            print(name, asked, [(each["status"], f"{each['seconds']:.2f} s") for each in runs], file=sys.stderr)
        document = {"commit": describe_commit(), "versions": versions, "models": found}
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")
        ages.record(RESULTS, ages.renewed(RESULTS.name, found, [name]))
    print(
        table(
            ("model", "tolerance", "of ends", "status", "processor s", "row gradients", "worst", "rough"),
            list(cells(found)),
        )
    )


def cells(found: dict[str, Any]) -> Any:
    for name, by_tolerance in found.items():
        for asked, runs in by_tolerance.items():
            middle = {key: float(np.median([run[key] for run in runs])) for key in ("processor", "items", "rough")}
            statuses = ", ".join(sorted({run["status"] for run in runs}))
            worst = max(run["worst"] for run in runs)
            numbers = f"{middle['processor']:.2f}", f"{middle['items']:.2e}", f"{worst:.2g}", f"{middle['rough']:.0%}"
            yield [name, *asked.split(), statuses, *numbers]


if __name__ == "__main__":
    main()
