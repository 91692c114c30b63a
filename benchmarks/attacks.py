"""What we tried to break: every case in which tallbayes was once caught, over many seeds, against exact answers.

    python benchmarks/attacks.py [--seeds 15] [--quick] [--only CLASS ...] [--workers 2] [--stored] [--before] [--page]

A class is a question with a known answer (`attack_rows`, `attack_units`, `attack_tails`, `attack_modes`), asked with
the stopping rule on. It is red if a published 95% interval of runs that converged holds the truth too seldom, if their
RMSE is above the tolerance, or if an expectation that does not exist is given a value (`judging`); all tests together
give a false alarm in 1% of such studies. The control, the same runs with intervals half as long, is printed, too.

Every run is a line of attacks.jsonl, found by its method version too, and what is there is not run again; the summary
goes to attacks.json. `--before` writes attacks-before.json instead: what the classes were like before they were cured.
`--quick` is five seeds of the classes that take a second a run. `--page` writes both into
docs/what-we-tried-to-break.md, between its marks, and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import ages
import attack_modes as modes
import attack_rows as rows
import attack_tails as tails
import attack_units as units
import judging
import lines
from attack_page import rewrite
from judging import Verdict
from questions import Question, put

from tallbayes.records.fingerprint import METHOD_VERSION
from tallbayes.views.text import table

RESULTS = Path(__file__).parent / "results"
FALSE_ALARM = 0.01
QUICK_SEEDS = 5


class Key(NamedTuple):
    """What a stored run is found by."""

    attack: str
    seed: int
    method_version: int


@dataclass(frozen=True)
class Attack:
    """A class: which item of the list it belongs to, the case in words, and the question by number.

    `stated` is what was found when it was first tried. Of `variants` questions seed s asks number s modulo so many.
    `exists` is False where the expectation does not; `counts_all` counts answers of every status.
    """

    name: str
    item: int
    case: str
    stated: str
    make: Callable[..., Question]
    variants: int = 1
    exists: bool = True
    counts_all: bool = False
    slow: bool = False

    def question(self, seed: int) -> Question:
        return self.make() if self.variants == 1 else self.make(seed % self.variants)


def direction(number: int) -> Question:
    return modes.mode_in_direction(number, 0.05)


ATTACKS = (
    Attack("logistic-58-of-1e6", 1, "logistic, 10^6 rows, 58 positives, slope 2, to 0.02", "20-30%, RMSE 1.5-2.3",
           partial(rows.rare_logistic, 1_000_000, 58, 2.0, 0.02), slow=True),
    Attack("logistic-55-of-5e4", 1, "logistic, 50,000 rows, 55 positives, slope 2, to 0.02", "60%",
           partial(rows.rare_logistic, 50_000, 55, 2.0, 0.02)),
    Attack("poisson-16-of-5e4", 1, "Poisson without offset, 50,000 rows, 16 events, slope 3", "5%",
           partial(rows.rare_poisson, 50_000, 16, 3.0, 0.05)),
    Attack("poisson-exponential-x", 1, "Poisson, exponential x, 50,000 rows, 10 events", "12%, and crashes",
           partial(rows.rare_poisson, 50_000, 10, 1.0, 0.05, True)),
    Attack("poisson-pareto-exposures", 1, "Poisson, Pareto exposures, 50,000 rows, 20 events", "53%",
           partial(rows.pareto_exposures, 50_000, 20, 0.05)),
    Attack("poisson-one-exposure", 1, "Poisson, all exposure in one of 10^5 rows", "0%, z of 57",
           partial(rows.one_exposure, 100_000, 5, 0.05)),
    Attack("own-level-of-1-in-1e4", 1, "own Poisson model, a category of 1 row in 10^4", "0%, RMSE 7.6, z above 10^4",
           partial(rows.own_counts, 10_000, (1,), 3, 0.05)),
    Attack("own-level-of-1-in-1e5", 1, "own Poisson model, a category of 1 row in 10^5", "0%, RMSE 7.6, z above 10^4",
           partial(rows.own_counts, 100_000, (1,), 3, 0.05)),
    Attack("own-level-of-3", 1, "own Poisson model, a category of 3 rows with equal counts", "0%",
           partial(rows.own_counts, 10_000, (3,), 2, 0.05)),
    Attack("own-survival-group-of-3", 1, "own exponential survival model, a group of 3", "0%",
           partial(rows.own_survival, 10_000, 3, 0.05)),
    Attack("numpyro-levels-of-1-and-2", 1, "NumPyro Poisson model, categories of 1 and 2 rows", "0%",
           partial(rows.own_counts, 10_000, (1, 2), 3, 0.05, True)),
    Attack("scale-of-1e-4", 2, "a positive parameter of size 10^-4: its sd", "0%",
           partial(units.small_scale, 1e-4, 0.01)),
    Attack("overdispersion-0.05", 2, "negative binomial, overdispersion 0.05", "50%",
           partial(units.overdispersed, 0.05, 0.01)),
    Attack("earnings-in-dollars", 2, "linear, noise of 19,000 dollars", "16 s every call",
           partial(units.earnings, 1.0, 0.02)),
    Attack("earnings-in-19,000-dollars", 2, "the same in units of 19,000 dollars", "1 s",
           partial(units.earnings, 19_000.0, 0.02)),
    Attack("five-events-hinge", 3, "log rate of five events: a hinge at 99%", "35-80%",
           partial(tails.tail, "hinge", 0.05)),
    Attack("five-events-soft", 3, "log rate of five events: a soft tail probability", "35-80%",
           partial(tails.tail, "soft", 0.05)),
    Attack("five-events-hard", 3, "log rate of five events: a hard tail probability", "35-80%",
           partial(tails.tail, "hard", 0.05)),
    Attack("five-events-steep", 3, "log rate of five events: exp(-2 theta)", "35-80%",
           partial(tails.tail, "steep", 0.05)),
    Attack("t3-sd", 3, "sd of a t3 posterior", "25%", partial(tails.student, 3.0, 0.05)),
    Attack("t5-sd", 3, "sd of a t5 posterior", "79%", partial(tails.student, 5.0, 0.05)),
    Attack("linear-5-rows", 3, "linear with unknown noise, five rows: sds", "40-53%", partial(tails.five_rows, 0.1)),
    Attack("quantiles-skewed", 3, "0.1%, 2.5%, 97.5%, 99.9% quantiles of the log rate of five events",
           "70-85%; 2.5% ends 90-92%", partial(tails.skewed_quantiles, 0.05)),
    Attack("quantiles-curved", 3, "the same quantiles of a curved posterior", "35-48%",
           partial(tails.curved_quantiles, 0.05)),
    Attack("density-in-the-tail", 3, "density of the log rate of five events at its 0.1%, 1%, 99%, 99.9% quantiles",
           "62-75%", partial(tails.tail_density, 0.05)),
    Attack("t2-sd", 3, "sd of a t2 posterior: it does not exist", "converges in most runs",
           partial(tails.student, 2.0, 0.1), exists=False),
    Attack("cauchy-mean", 3, "mean of a Cauchy posterior: it does not exist", "converges in most runs",
           partial(tails.student, 1.0, 0.1, None, ("mean",)), exists=False),
    Attack("pole", 3, "E 1 / (theta - 0.9): it does not exist", "converges in most runs",
           partial(tails.pole, 0.1), exists=False),
    Attack("t5-randomised", 3, "the randomised method on a t5 posterior", "refused in 10 of 30 runs, by the seed",
           partial(tails.randomised_student, 5.0, 0.1)),
    Attack("minor-mode", 4, "a mixture 0.9 / 0.1, six sds apart", "10 of 10 converge without it",
           partial(modes.minor_mode, 0.05)),
    Attack("heavy-mode", 4, "all mass but a millionth at the mode where the search does not start",
           "600 tolerances off", partial(modes.heavy_mode, 0.02), counts_all=True),
    Attack("mode-in-12-directions", 4, "in two dimensions, a mode of weight 0.4 in twelve directions",
           "missed in 4 of 12", direction, variants=12),
    Attack("predictions-far-out", 5, "predictions where the sd of the linear predictor is 8 and 20, and their sds",
           "30%", partial(modes.far_rows, 0.05)),
    Attack("nearly-constant", 6, "the quantity 1 + 10^-9 theta", "standard error 0, 4.75 tolerances off",
           partial(units.nearly_constant, 0.05)),
)  # fmt: skip
BY_NAME = {each.name: each for each in ATTACKS}


@cache
def question(name: str, number: int) -> Question:
    """Made once in every process."""
    return BY_NAME[name].question(number)


def run(key: Key) -> dict[str, Any]:
    return put(question(key.attack, key.seed % BY_NAME[key.attack].variants), key.seed)


def verdicts(stored: dict[str, list[dict[str, Any]]], halved: bool = False) -> dict[str, Verdict]:
    """Of every class that has runs."""
    found = {name: judging.runs_of(each, BY_NAME[name].counts_all) for name, each in stored.items() if each}
    counts = [judging.number_of_tests(runs, BY_NAME[name].exists) for name, runs in found.items()]
    bound = judging.bonferroni(counts, FALSE_ALARM)
    return {
        name: judging.judge(runs.halved() if halved else runs, bound, BY_NAME[name].exists)
        for name, runs in found.items()
    }


def show(judged: dict[str, Verdict]) -> str:
    header = ("class", "runs", "converged", "worst 95%", "pooled 95%", "RMSE/tol", "largest z", "cpu s", "verdict")
    return table(header, [[name, *cells(each), "RED" if each.is_red else "green"] for name, each in judged.items()])


def cells(verdict: Verdict) -> list[str]:
    """Runs, converged, worst and pooled coverage, RMSE in tolerances, largest z, seconds."""
    ends = str(verdict.runs), str(verdict.statuses.get("converged", 0))
    if verdict.worst_coverage is None:
        return [*ends, "-", "-", "-", "-", f"{verdict.seconds:.2g}"]
    z = "infinite" if verdict.largest_z is None else f"{verdict.largest_z:.3g}"
    shares = f"{verdict.worst_coverage:.0%}", f"{verdict.pooled_coverage:.0%}"
    return [*ends, *shares, f"{verdict.rmse:.2f}", z, f"{verdict.seconds:.2g}"]


def document(stored: dict[str, list[dict[str, Any]]], judged: dict[str, Verdict]) -> dict[str, Any]:
    every = [line for each in stored.values() for line in each]
    return {
        "settings": {"false_alarm": FALSE_ALARM, "method_version": METHOD_VERSION},
        "commits": sorted({line["commit"] for line in every}),
        "versions": {name: version(name) for name in ("tallbayes", "jax", "jaxlib", "numpy", "scipy")},
        "attacks": {
            name: {"item": BY_NAME[name].item, "case": BY_NAME[name].case, "stated": BY_NAME[name].stated}
            | verdict.record()
            for name, verdict in judged.items()
        },
    }


def read(path: Path, chosen: list[Attack]) -> dict[str, list[dict[str, Any]]]:
    """Stored runs of this version of the method, by class."""
    found: dict[str, list[dict[str, Any]]] = {each.name: [] for each in chosen}
    for key, line in sorted(lines.read(path, Key).items()):
        if key.method_version == METHOD_VERSION and key.attack in found:
            found[key.attack].append(line)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="every case in which tallbayes was once caught")
    parser.add_argument("--seeds", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SEEDS} seeds, and no class that takes long")
    parser.add_argument("--only", nargs="+", metavar="CLASS", default=[""], help="any part of a class's name")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--workers", type=int, default=lines.WORKERS)
    parser.add_argument("--stored", action="store_true", help="judge what is stored, run nothing")
    parser.add_argument("--before", action="store_true", help="write attacks-before.json, not attacks.json")
    parser.add_argument("--page", action="store_true", help="write what is stored into the public page, run nothing")
    given = parser.parse_args()
    if given.page:
        rewrite()
        return
    chosen = [each for each in ATTACKS if any(part in each.name for part in given.only)]
    chosen = [each for each in chosen if not (given.quick and each.slow)]
    if not chosen:
        parser.error(f"expected parts of {', '.join(BY_NAME)}; got {' '.join(given.only)}")
    path, seeds = given.out / "attacks.jsonl", QUICK_SEEDS if given.quick else given.seeds
    if not given.stored:
        keys = [Key(each.name, seed, METHOD_VERSION) for each in chosen for seed in range(seeds)]
        lines.complete(keys, path, run, given.workers)
    stored = read(path, chosen)
    judged, halved = verdicts(stored), verdicts(stored, halved=True)
    print(show(judged))
    print(f"control, intervals half as long: {sum(each.is_red for each in halved.values())} of {len(halved)} red")
    if not given.quick and given.only == [""]:
        summary = given.out / ("attacks-before.json" if given.before else "attacks.json")
        summary.write_text(json.dumps(document(stored, judged), indent=1, allow_nan=False) + "\n")
        ages.record(summary, {name: ages.of_lines(runs) for name, runs in stored.items()})
    red = [name for name, each in judged.items() if each.is_red]
    if red and not given.before:
        sys.exit(f"red: {', '.join(red)}")


if __name__ == "__main__":
    main()
