"""Where the passes of set-up go: row evaluations of each stage in units of N, counted and not timed.

    mode        the climb, its looks at samples among it
    modes       the search for a second mode: a screen and climbs on a sample, and what is verified on all rows
    centre      where the mass is; the Gaussian in balance
    listing     what each row can do
    tails       the probe, 312 points on 1,024 rows whatever N: nothing beside 10^8 rows, 32 passes of 10^4

Usage: python benchmarks/setup_passes.py [--only NAME ...] [--as before|after] [--out FILE]

Counts are the same on any machine. With --out they are written beside those of the other tree.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import ages
import jax.numpy as jnp
import numpy as np
from problems import Rows, covariates, generator, make

import tallbayes as tb
from tallbayes.methods import anchored
from tallbayes.setup import centre
from tallbayes.setup.balancing import Wish
from tallbayes.setup.known import Known
from tallbayes.setup.preparation import Prepared, check_data, place
from tallbayes.watch import watching
from tallbayes.workers.executors import default_executor

Problem = tuple[tb.Model, Rows]
STAGES = {
    "mode": (centre, "find_centre"),
    "modes": (centre, "_searched"),
    "centre": (centre, "_recentred"),
    "listing": (anchored, "with_listing"),
    "tails": (anchored, "with_probe"),
}
TOLERANCE, FLIGHTS = 0.05, "flights"


def poisson_rates(num_rows: int, dimension: int) -> Problem:
    """A Poisson family whose rates spread over five orders of magnitude."""
    rng = generator(num_rows)
    x = covariates(rng, num_rows, dimension)
    theta = np.append(0.6 * np.random.default_rng(2).normal(size=dimension - 1), 1.0)
    return tb.families.poisson(prior_scale=1.0), {"x": x, "y": rng.poisson(np.exp(x @ theta)).astype(float)}


def robust(num_rows: int) -> Problem:
    """The README's own model: Student's t with a location and a scale."""

    def log_prior(theta: Any) -> Any:
        return -0.5 * (theta["location"] / 10) ** 2 - 0.5 * theta["log_scale"] ** 2

    def log_likelihood(theta: Any, row: Any) -> Any:
        z = (row["y"] - theta["location"]) * jnp.exp(-theta["log_scale"])
        return -2.5 * jnp.log1p(z**2 / 4) - theta["log_scale"]

    model = tb.Model(log_prior, log_likelihood, initial={"location": 0.0, "log_scale": 0.0})
    return model, {"y": np.random.default_rng(0).standard_t(4, size=num_rows)}


def located(num_rows: int) -> Problem:
    """A mean and a positive scale."""

    def log_prior(theta: Any) -> Any:
        return -0.5 * (theta["mean"] ** 2 + theta["scale"] ** 2) / 100

    def log_likelihood(theta: Any, row: Any) -> Any:
        return -jnp.log(theta["scale"]) - 0.5 * ((row["y"] - theta["mean"]) / theta["scale"]) ** 2

    positive = {"scale": tb.constraints.positive}
    model = tb.Model(log_prior, log_likelihood, {"mean": 0.0, "scale": 1.0}, constraints=positive)
    return model, {"y": 2 + 3 * np.random.default_rng(5).standard_normal(num_rows)}


PROBLEMS: dict[str, tuple[Callable[[], Problem], str | None]] = {
    **{f"logistic-{n}-20": (lambda n=n: make(f"logistic-{n}-20"), None) for n in (10**4, 10**5, 10**6)},
    **{f"logistic-{n}-20 balanced": (lambda n=n: make(f"logistic-{n}-20"), "balanced") for n in (10**4, 10**5, 10**6)},
    "poisson-10000-10": (lambda: poisson_rates(10**4, 10), None),
    "poisson-10000-10 balanced": (lambda: poisson_rates(10**4, 10), "balanced"),
    "poisson-100000-10": (lambda: poisson_rates(10**5, 10), None),
    "poisson-100000-10 balanced": (lambda: poisson_rates(10**5, 10), "balanced"),
    "own: README, 10000": (lambda: robust(10**4), None),
    "own: README, 100000": (lambda: robust(10**5), None),
    "own: student-1000-5": (lambda: make("student-1000-5"), None),
    "own: poisson-2000-4": (lambda: make("poisson-2000-4"), None),
    "own: scale, 50000": (lambda: located(50_000), None),
}


@contextmanager
def counting() -> Iterator[dict[str, int]]:
    """Row evaluations of each stage of a set-up that is made meanwhile."""
    spent: dict[str, int] = {}

    def counted(stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any) -> Any:
            found = function(*arguments)
            prepared: Prepared = found[0] if isinstance(found, tuple) else found
            spent[stage] = prepared.setup_evaluations - sum(spent.values())
            return found

        return count

    with ExitStack() as stack:
        for stage, (at, name) in STAGES.items():
            stack.enter_context(patch.object(at, name, counted(stage, getattr(at, name))))
        yield spent


def passes(model: tb.Model, rows: Rows, anchor: str | None = None) -> dict[str, float]:
    """Row evaluations of each stage in units of N, and nothing sampled."""
    placed = place(model, check_data(model, rows), None, True, None)
    with watching(), default_executor() as executor, counting() as spent:
        prepared, search = centre.set_up(Known(), placed, None, Wish(anchor, TOLERANCE), executor)
        tb.Anchored(anchor=anchor).prepare(prepared, executor, None, not search[0])
    return in_passes(spent, placed.table.num_rows)


def passes_of_flights() -> dict[str, float]:
    """The demo's own call: 327,346 rows by 38."""
    sys.path.append(str(Path(__file__).parents[1] / "examples"))
    from nycflights import FORMULA, read_flights

    with counting() as spent:
        result = tb.fit(FORMULA, read_flights(), family="logistic", tolerance=0.02, intercept_scale=1.0)
    return in_passes(spent, result.cost.num_data)


def in_passes(spent: dict[str, int], num_rows: int) -> dict[str, float]:
    return {**{stage: rows / num_rows for stage, rows in spent.items()}, "all": sum(spent.values()) / num_rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[*PROBLEMS, FLIGHTS])
    parser.add_argument("--as", dest="tree", choices=("before", "after"), default="after")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    print(f"{'':30}" + "".join(f"{stage:>10}" for stage in (*STAGES, "all")))
    for name in arguments.only:
        found = passes_of_flights() if name == FLIGHTS else passes(*PROBLEMS[name][0](), PROBLEMS[name][1])
        print(f"{name:30}" + "".join(f"{found.get(stage, 0.0):10.2f}" for stage in (*STAGES, "all")), flush=True)
        if arguments.out is not None:
            record(arguments.out, name, arguments.tree, found)


def record(out: Path, name: str, tree: str, found: dict[str, float]) -> None:
    kept = json.loads(out.read_text()) if out.exists() else {}
    kept.setdefault(name, {})[tree] = {stage: round(count, 4) for stage, count in found.items()}
    out.write_text(json.dumps(kept, indent=1) + "\n")
    ages.record(out, ages.renewed(out.name, kept, [name]))


if __name__ == "__main__":
    main()
