"""Are mixed models right where scales are near zero and groups have one row? Simulation-based calibration by formula.

    make bench-mixed-sbc                                                                     (resumable, an hour or two)
    python benchmarks/mixed_sbc.py [--datasets 100] [--case NAME ...] [--stored]

    tau* ~ |N(0, S^2)|,   beta* ~ N(0, s^2),   sigma* ~ |N(0, 1)|,   b*_g ~ N(0, tau*^2),   rows ~ p(. | beta*, b*)
    u_j = P(theta_j < theta*_j | rows),  u_g = P(b_g < b*_g | rows) = E F_g(b*_g | theta),  all uniform on [0, 1]

S is 0.1, so that scales are hardly ever far from 0, or 1. "uneven" is 30 groups of 1 to 6 rows, twelve of them of
one; "single" is 20 groups of one row. Ranks of parameters are what `posterior.probability` says; F_g, of a group of one
row, one of three and one of six, is by a grid of this file's own over the posterior's draws. What `effects` says is
judged by the truths of all groups in its 95% intervals, whose ends have errors of their own:

    a number        Kolmogorov and Smirnov's test of its ranks over the data sets, which are independent
    a class         Hotelling's T^2 of the ranks' shift and spread, averaged over the numbers of a data set (sbc.py)
    intervals       t of the share that holds the truth less 0.95 over data sets, too low with ends as far out as their
                    errors allow, or too high with ends as far in

All tests of all classes together give a false alarm in 1% (Bonferroni). Controls are fitted with a prior scale three
times too large or too small and must be red. "Half" is the share that is held by intervals half as long, whose errors
are not allowed for: where these are half an sd, intervals half as long are within them. All runs that know their errors
count.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import ages
import lines
import numpy as np
from sbc import hotelling_p, shift_and_spread
from scipy.special import expit, gammaln
from scipy.stats import kstest, ttest_1samp

import tallbayes as tb
from tallbayes.views.text import table

RESULTS = Path(__file__).parent / "results"
SEED, TOLERANCE, MOST_SECONDS, FALSE_ALARM, PROBABILITY = 3, 0.05, 120.0, 0.01, 0.95
LAYOUTS = {"uneven": np.repeat([1, 2, 3, 4, 5, 6], [12, 6, 4, 3, 3, 2]), "single": np.ones(20, int)}
RANKED = {"uneven": (0, 18, 29), "single": (0, 1, 2)}
WIDTHS = {"logistic": 1.0, "poisson": 0.5, "linear": 1.0}
FAMILIES = tuple(WIDTHS)
SCALES = (0.1, 1.0)
NUMBERS = ("mean", "sd", "lower", "upper", "end_error")
DRAWS, GRID, REACH = 512, 321, 9.0
BLOCK = 50


class Case(NamedTuple):
    """Family, layout of the groups, prior scale of the truth and that of the fit."""

    family: str
    layout: str
    scale: float
    fitted: float

    @property
    def name(self) -> str:
        plain = f"{self.family}-{self.layout}-{self.scale:g}"
        return f"control: {plain}, fitted with {self.fitted:.2g}" if self.is_control else plain

    @property
    def is_control(self) -> bool:
        return self.scale != self.fitted


RIGHT = [Case(family, layout, scale, scale) for scale in SCALES for layout in LAYOUTS for family in FAMILIES]
CONTROLS = [Case("logistic", "uneven", 0.1, 0.3), Case("poisson", "single", 1.0, 1 / 3)]
CASES = {case.name: case for case in (*RIGHT, *CONTROLS)}


class Key(NamedTuple):
    """What a stored run is found by."""

    case: str
    number: int


@dataclass(frozen=True, eq=False)
class DataSet:
    """Truths and the table; groups in order of size."""

    truth: dict[str, float]
    effects: np.ndarray
    group: np.ndarray
    x: np.ndarray
    y: np.ndarray

    @property
    def table(self) -> dict[str, np.ndarray]:
        names = np.array([f"g{number:02d}" for number in range(len(self.effects))])
        return {"x": self.x, "g": names[self.group], "y": self.y}


def simulate(case: Case, number: int) -> DataSet:
    """A control has the rows of the class that it is a control of."""
    place = RIGHT.index(case._replace(fitted=case.scale))
    rng = np.random.default_rng([SEED, place, number])
    sizes, width = LAYOUTS[case.layout], WIDTHS[case.family]
    group = np.repeat(np.arange(len(sizes)), sizes)
    truth = {"Intercept": width * rng.normal(), "x": width * rng.normal()}
    truth["sd(Intercept|g)"] = case.scale * abs(rng.normal())
    effects = truth["sd(Intercept|g)"] * rng.normal(size=len(sizes))
    x = rng.normal(size=len(group))
    eta = truth["Intercept"] + truth["x"] * x + effects[group]
    if case.family == "logistic":
        y = (rng.random(len(eta)) < expit(eta)).astype(np.int64)
    elif case.family == "poisson":
        y = rng.poisson(np.exp(eta))
    else:
        truth["noise_scale"] = abs(rng.normal())
        y = eta + truth["noise_scale"] * rng.normal(size=len(eta))
    return DataSet(truth, effects, group, x, y)


def run(key: Key) -> dict[str, Any]:
    """One data set: ranks of parameters and of three effects, all intervals of effects, and a comparison."""
    case = CASES[key.case]
    data, width = simulate(case, key.number), WIDTHS[case.family]
    priors = {"prior_scale": width, "intercept_scale": width, "group_scale": case.fitted, "standardise": False}
    options = {"tolerance": TOLERANCE, "seed": key.number, "max_seconds": MOST_SECONDS, "progress": False}
    started = time.perf_counter()
    try:
        result = tb.fit("y ~ x + (1 | g)", data.table, case.family, **priors, **options)
        found = _ranks(result, data, case) | _effects(result)
    except Exception as error:
        seconds = time.perf_counter() - started
        return {"status": type(error).__name__, "message": str(error), "seconds": round(seconds, 3)}
    seconds = round(time.perf_counter() - started, 3)
    method = result.method.partition("(")[0]
    return {
        "status": result.status.name,
        "method": method,
        "seconds": seconds,
        "truth": data.truth,
        "true_effects": data.effects.tolist(),
        **found,
    }


def _ranks(result: tb.Result, data: DataSet, case: Case) -> dict[str, Any]:
    posterior, labels = result.posterior, list(result["mean"].value)
    chances = [posterior.probability(label, below=data.truth[label]) for label in labels]
    draws, _ = posterior.draws(DRAWS)
    named = dict(zip(labels, draws.T, strict=True))
    effects = {f"effect {place}": rank_of_effect(named, data, place, case) for place in RANKED[case.layout]}
    return {
        "ranks": {label: float(each.flat_value[0]) for label, each in zip(labels, chances, strict=True)} | effects,
        "errors": [float(each.flat_error[0]) for each in chances],
    }


def rank_of_effect(draws: dict[str, np.ndarray], data: DataSet, place: int, case: Case) -> float:
    """E F_g(b*_g | theta), F_g by a grid of a = b / tau over the rows of the group, made by hand."""
    own, grid = data.group == place, np.linspace(-REACH, REACH, GRID)
    tau = draws["sd(Intercept|g)"]
    eta = draws["Intercept"][:, None] + draws["x"][:, None] * data.x[own]
    total = -0.5 * np.tile(grid**2, (len(tau), 1))
    for base, y in zip(eta.T, data.y[own], strict=True):
        total += _log_density(base[:, None] + tau[:, None] * grid, y, draws, case.family)
    weights = np.exp(total - total.max(axis=1, keepdims=True))
    below = np.cumsum(weights, axis=1) - weights / 2
    shares = below / weights.sum(axis=1, keepdims=True)
    at = data.effects[place] / tau
    chances = [np.interp(point, grid, share, left=0.0, right=1.0) for point, share in zip(at, shares, strict=True)]
    return float(np.mean(chances))


def _log_density(eta: np.ndarray, y: float, draws: dict[str, np.ndarray], family: str) -> np.ndarray:
    if family == "logistic":
        return -np.logaddexp(0.0, -eta if y else eta)
    if family == "poisson":
        return y * eta - np.exp(eta) - gammaln(y + 1)
    return -0.5 * ((y - eta) / draws["noise_scale"][:, None]) ** 2


def _effects(result: tb.Result) -> dict[str, Any]:
    found = result.effects("g")
    order = np.argsort([str(each) for each in found.levels])
    kept = {name: getattr(found, name)[order, 0] for name in NUMBERS}
    return {"effects": {name: [float(f"{each:.6g}") for each in values] for name, values in kept.items()}}


def held(runs: list[dict[str, Any]], stretch: float = 1.0, allowed: float = 0.0) -> np.ndarray:
    """By data set, the share of effects in their intervals, so many times as long, and as many errors longer."""
    shares = []
    for each in runs:
        truth = np.array(each["true_effects"])
        lower, upper, error = (np.array(each["effects"][name]) for name in ("lower", "upper", "end_error"))
        middle, half = (lower + upper) / 2, stretch * (upper - lower) / 2 + allowed * error
        shares.append(np.mean(np.abs(truth - middle) <= half))
    return np.array(shares)


def share_p(shares: np.ndarray) -> float:
    """That no fewer are held than should be."""
    if not np.ptp(shares):
        return float(shares[0] >= PROBABILITY)
    return float(ttest_1samp(shares, PROBABILITY, alternative="less").pvalue)


def interval_p(runs: list[dict[str, Any]]) -> float:
    """Of too low a share where ends may be farther out, and too high a one where they may be farther in."""
    low, high = share_p(held(runs, 1.0, 1.0)), 1 - share_p(held(runs, 1.0, -1.0))
    return float(min(1.0, 2 * min(low, high)))


@dataclass(frozen=True)
class Summary:
    """All runs of one class."""

    case: str
    is_control: bool
    runs: int
    judged: int
    converged: int
    methods: dict[str, int]
    p_values: dict[str, float]
    pooled_p: float
    shift: float
    spread: float
    held: float
    held_p: float
    halved: float
    halved_p: float
    z_squared: float
    z_squared_error: float
    end_error: float
    seconds: float
    failures: list[str]

    @property
    def tests(self) -> dict[str, float]:
        return self.p_values | {"ranks": self.pooled_p, "intervals": self.held_p}


def z_of(run: dict[str, Any]) -> np.ndarray:
    """(truth - mean) / sd of every effect, whose squares have mean 1."""
    mean, sd = (np.array(run["effects"][name]) for name in ("mean", "sd"))
    return (np.array(run["true_effects"]) - mean) / sd


def summarise(case: str, runs: list[dict[str, Any]]) -> Summary:
    known = [each for each in runs if "ranks" in each and np.all(np.isfinite(each["errors"]))]
    names = list(known[0]["ranks"])
    ranks = np.clip([[each["ranks"][name] for name in names] for each in known], 0.0, 1.0)
    moments = shift_and_spread(ranks).mean(axis=1)
    squares = np.array([np.mean(z_of(each) ** 2) for each in known])
    methods = [each["method"] for each in known]
    return Summary(
        case=case,
        is_control=CASES[case].is_control,
        runs=len(runs),
        judged=len(known),
        converged=sum(each["status"] == "converged" for each in runs),
        methods={name: methods.count(name) for name in sorted(set(methods))},
        p_values={name: float(kstest(each, "uniform").pvalue) for name, each in zip(names, ranks.T, strict=True)},
        pooled_p=hotelling_p(moments),
        shift=float(moments[:, 0].mean()),
        spread=float(moments[:, 1].mean()),
        held=float(held(known).mean()),
        held_p=interval_p(known),
        halved=float(held(known, 0.5).mean()),
        halved_p=share_p(held(known, 0.5)),
        z_squared=float(squares.mean()),
        z_squared_error=float(squares.std(ddof=1) / np.sqrt(len(known))),
        end_error=float(np.median([np.divide(each["effects"]["end_error"], each["effects"]["sd"]) for each in known])),
        seconds=float(np.median([each["seconds"] for each in known])),
        failures=[each.get("message", each["status"]) for each in runs if each["status"] != "converged"],
    )


def threshold(summaries: list[Summary]) -> float:
    """The p-value below which a test is red."""
    return FALSE_ALARM / max(1, sum(len(each.tests) for each in summaries if not each.is_control))


def show(summaries: list[Summary]) -> str:
    header = (
        "class", "data sets", "judged", "numbers", "smallest p", "pooled p", "shift", "spread", "held", "p", "half",
        "p", "z^2", "seconds", "",
    )  # fmt: skip
    bound = threshold(summaries)
    cells = [
        [
            each.case, str(each.runs), str(each.judged), str(len(each.p_values)), f"{min(each.p_values.values()):.2g}",
            f"{each.pooled_p:.2g}", f"{each.shift:+.2f}", f"{each.spread:+.2f}", f"{each.held:.1%}",
            f"{each.held_p:.2g}", f"{each.halved:.1%}", f"{each.halved_p:.1g}",
            f"{each.z_squared:.2f} ± {each.z_squared_error:.2f}", f"{each.seconds:.2g}",
            ", ".join(name for name, p in each.tests.items() if not p >= bound) or "green",
        ]
        for each in summaries
    ]  # fmt: skip
    return f"{table(header, cells)}\nred: a p-value below {bound:.2g}, which gives a false alarm in {FALSE_ALARM:.0%}"


def main() -> None:
    parser = argparse.ArgumentParser(description="simulation-based calibration of mixed models")
    parser.add_argument("--datasets", type=int, default=100)
    parser.add_argument("--case", choices=CASES, nargs="+", default=list(CASES), metavar="NAME")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--stored", action="store_true", help="judge what is stored, run nothing")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    path = given.out / "mixed_sbc.jsonl"
    keys = [Key(case, number) for number in range(given.datasets) for case in given.case]
    keys.sort(key=lambda key: (key.number // BLOCK, given.case.index(key.case), key.number))
    if not given.stored:
        lines.complete(keys, path, run, given.workers)
    stored = lines.read(path, Key)
    runs = {case: [each for key, each in sorted(stored.items()) if key.case == case] for case in CASES}
    summaries = [summarise(case, each) for case, each in runs.items() if each]
    print(show(summaries))
    document = {
        "settings": {
            "seed": SEED, "tolerance": TOLERANCE, "false_alarm": FALSE_ALARM, "red_below": threshold(summaries),
            "commits": sorted({each["commit"] for each in stored.values()}),
        },
        "versions": {name: version(name) for name in ("tallbayes", "jax", "jaxlib", "numpy", "scipy")},
        "rows": [
            asdict(each) | {"red": [name for name, p in each.tests.items() if not p >= threshold(summaries)]}
            for each in summaries
        ],
    }  # fmt: skip
    summary = given.out / "mixed_sbc.json"
    summary.write_text(json.dumps(document, indent=1) + "\n")
    ages.record(summary, {case: ages.of_lines(each) for case, each in runs.items() if each})


if __name__ == "__main__":
    main()
