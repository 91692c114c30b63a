"""Are the families right? Simulation-based calibration: parameters from the prior, rows given them, ranks of the truth.

    python benchmarks/sbc.py [--datasets 100] [--case NAME ...] [--out FOLDER]

    theta* ~ prior,   rows ~ p(. | theta*),   u_j = P(theta_j < theta*_j | rows),   u_j uniform on [0, 1]

That holds for the right posterior and says something of every part of it: prior, likelihood, constraints, sampler.
Every u_j is known to an RMSE of 0.02, which widens its distribution by half a percent. Families of `LATER` are fitted
to 100 rows to 0.05 sds by weights, and ranks are read off the posterior. Where weights hand over to the ladder, which
is a question of rows and draws, the run ends there and is not judged, unless --ladder is given. The tests:

    a parameter     Kolmogorov and Smirnov's, over its data sets, which are independent
    a family        Hotelling's T^2 of shift and spread, E P_1(u) = E P_2(u) = 0 (Legendre), both averaged over the
                    parameters of a data set first, since these depend on one another

All tests of all families together give a false alarm in 1% (Bonferroni). The controls have a wrong prior or a wrong
likelihood, and must be found out. All runs that say how accurate they are count, converged or not.
Every run is a line of benchmarks/results/sbc.jsonl, and what is there is not run again: delete the file after the
sampler has changed. The summary is printed and written to benchmarks/results/sbc.json, where cases without such a line
stay as they are, and those are not run that are there with as many data sets. The figure, sbc.svg, has those with
lines.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import ages
import jax
import lines
import numpy as np
from scipy.special import eval_legendre
from scipy.stats import f, kstest, kstwo
from simulations import LATER, SIMULATIONS, Simulation

import tallbayes as tb
from tallbayes.experiments import style
from tallbayes.views.text import table

RESULTS = Path(__file__).parent / "results"
NUM_ROWS, DIMENSION, SEED = 200, 3, 2
TOLERANCE = 0.02
FALSE_ALARM = 0.01
NARROW, LIGHT = "control: logistic, prior half as wide", "control: student_t, 8 degrees of freedom for 4"
CONTROLS = {NARROW: "logistic", LIGHT: "student_t"}
LATER_ROWS, LATER_TOLERANCE, LATER_SEED, FEW_DRAWS = 100, 0.05, 3, 4_096


def _without(name: str, rows: dict[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in rows.items() if key not in (name, "upper")}


class Wrong(NamedTuple):
    """A control: what it is a control of, and the wrong model or rows that it is fitted with."""

    of: str
    model: Callable[[Simulation], tb.Model]
    rows: Callable[[dict[str, Any]], dict[str, Any]] = dict


def right(simulation: Simulation) -> tb.Model:
    return simulation.model(DIMENSION)


def other_family(name: str) -> Callable[[Simulation], tb.Model]:
    return lambda simulation: replace(simulation, family=getattr(tb.families, name)).model(DIMENSION)


def other_options(**options: Any) -> Callable[[Simulation], tb.Model]:
    return lambda simulation: replace(simulation, options=simulation.options | options).model(DIMENSION)


WRONG = {
    "control: ordinal, probit for logit": Wrong("ordinal", other_family("ordinal_probit")),
    "control: beta, prior half as wide": Wrong("beta", lambda simulation: simulation.model(DIMENSION, 0.5)),
    "control: weibull, censoring left out": Wrong("weibull", right, partial(_without, "censored")),
    "control: zero_inflated_poisson, no inflation": Wrong("zero_inflated_poisson", other_family("poisson")),
    "control: hurdle_negative_binomial, not truncated": Wrong(
        "hurdle_negative_binomial", other_family("zero_inflated_negative_binomial")
    ),
    "control: quantile, level 0.7 for 0.8": Wrong("quantile", other_options(level=0.7)),
}
CASES = (*SIMULATIONS, *CONTROLS, *LATER, *WRONG)


class Key(NamedTuple):
    """What a stored run is found by."""

    case: str
    number: int


@dataclass(frozen=True)
class Summary:
    """All runs of one case: how they ended, and how well their ranks pass for uniform ones."""

    case: str
    runs: int
    judged: int
    converged: int
    others: dict[str, list[int]]
    p_values: dict[str, float]
    pooled_p: float
    shift: float
    spread: float
    seconds: float
    most_seconds: float

    @property
    def is_control(self) -> bool:
        return self.case.startswith("control")

    @property
    def least_p(self) -> float:
        return min(self.pooled_p, *self.p_values.values())


def fitted_model(case: str) -> tb.Model:
    simulation = SIMULATIONS[CONTROLS.get(case, case)]
    if case == LIGHT:
        simulation = replace(simulation, options={"degrees_of_freedom": 8.0})
    return simulation.model(DIMENSION, narrowing=0.5 if case == NARROW else 1.0)


def simulate(case: str, number: int) -> tuple[Any, Any]:
    """The truth and the rows of a data set; a control has those of the family it is a control of."""
    name = CONTROLS.get(case, case)
    rng = np.random.default_rng([SEED, list(SIMULATIONS).index(name), number])
    return SIMULATIONS[name].draw(rng, NUM_ROWS, DIMENSION)


def beyond_truth(theta: Any, truth: Any) -> Any:
    return jax.tree.map(lambda each, true: each - true, theta, truth)


def below(beyond: Any) -> Any:
    return jax.tree.map(lambda each: (each < 0) * 1.0, beyond)


def simulate_later(case: str, number: int) -> tuple[Any, Any]:
    """The same of a family of `LATER`."""
    name = WRONG[case].of if case in WRONG else case
    rng = np.random.default_rng([LATER_SEED, list(LATER).index(name), number])
    return LATER[name].draw(rng, LATER_ROWS, DIMENSION)


def rank_of(posterior: Any, place: int, name: str, truth: float) -> tuple[float, float]:
    """P(theta < truth) and its error; by weighted draws where it is no line in R^d, so that nothing is compiled."""
    reading = posterior.reading
    if posterior.weighted is None or (reading is not None and reading.line(place) is not None):
        found = posterior.probability({name: 1.0}, below=truth)
        return float(found.flat_value[0]), float(found.flat_error[0])
    share = float(np.mean(posterior.draws(FEW_DRAWS)[0][:, place] < truth))
    weights = posterior.weighted.posterior
    effective = np.sum(weights) ** 2 / np.sum(weights**2)
    return share, float(np.sqrt(share * (1 - share) / effective))


def ranked(model: tb.Model, rows: Any, truth: dict[str, Any], tolerance: float, **given: Any) -> dict[str, Any]:
    """Ranks as the posterior says them, of all parameters that `truth`, by name, knows of."""
    try:
        result = tb.estimate(model, rows, tolerance=tolerance, **given)
    except tb.TallbayesError as error:
        return {"status": type(error).__name__, "message": str(error)}
    told = {
        "status": result.status.name,
        "method": type(result.method).__name__,
        "seconds": round(result.cost.seconds, 3),
        "notes": list(result.notes),
    }
    if result.posterior is None:
        return told
    known = {
        f"{name}[{i}]" if np.ndim(value) else name: float(each)
        for name, value in truth.items()
        for i, each in enumerate(np.ravel(value))
    }
    names = {name: place for place, name in enumerate(result.posterior.labels) if name in known}
    found = [rank_of(result.posterior, place, name, known[name]) for name, place in names.items()]
    ranks, errors = zip(*found, strict=True)
    return told | {"names": list(names), "ranks": ranks, "errors": errors, "truth": [known[name] for name in names]}


class HandedOverError(tb.TallbayesError):
    """Weights did not do."""


@contextmanager
def weights_alone(family: str) -> Iterator[None]:
    """Nothing is compiled for a ladder, which takes longer than a hundred data sets by weights."""

    def refuse(*_: Any) -> Any:
        raise HandedOverError("the ladder was to go on")

    # Weights of cut points are made by compiled programs, on the way to the ladder.
    is_compiled = family.startswith("ordinal")
    place = (tb.Anchored, "prepare") if is_compiled else (import_module("tallbayes.estimation.estimate"), "walk")
    with patch.object(*place, refuse):
        yield


@cache
def worker_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


def run(max_seconds: float, ladder: bool, key: Key) -> dict[str, Any]:
    """One data set. The truth is an array of the model's units, so that the next one compiles nothing."""
    if key.case not in (*SIMULATIONS, *CONTROLS):
        with nullcontext() if ladder else weights_alone(WRONG.get(key.case, Wrong(key.case, right)).of):
            return run_later(max_seconds, key)
    truth, rows = simulate(*key)
    model = replace(fitted_model(key.case), report=beyond_truth, units=truth)
    try:
        result = tb.estimate(
            model, rows, {"below": below}, absolute_tolerance=TOLERANCE, seed=key.number, executor=worker_thread(),
            max_seconds=max_seconds,
        )  # fmt: skip
    except tb.TallbayesError as error:
        return {"status": type(error).__name__, "message": str(error)}
    ranks = result["below"]
    known = bool(np.all(np.isfinite(ranks.flat_error)))
    return {
        "status": result.status.name,
        "names": [label.strip(".") for label in ranks.structure.labels("")],
        "ranks": ranks.flat_value.tolist() if known else None,
        "errors": ranks.flat_error.tolist() if known else None,
        "truth": np.concatenate([np.ravel(truth[name]) for name in sorted(truth)]).tolist(),
        "notes": list(result.notes),
        "evaluations": result.cost.evaluations,
        "seconds": round(result.cost.seconds, 3),
    }


def run_later(max_seconds: float, key: Key) -> dict[str, Any]:
    """One data set of `LATER`, or of a control of one."""
    truth, rows = simulate_later(*key)
    wrong = WRONG.get(key.case, Wrong(key.case, right))
    return ranked(
        wrong.model(LATER[wrong.of]), wrong.rows(rows), truth, LATER_TOLERANCE, seed=key.number, max_seconds=max_seconds
    )


def ranks_of(runs: Iterable[dict[str, Any]]) -> np.ndarray:
    """(data sets, parameters), of the runs that know their error."""
    return np.clip([each["ranks"] for each in runs if each.get("ranks")], 0.0, 1.0)


def shift_and_spread(ranks: np.ndarray) -> np.ndarray:
    """The first two Legendre polynomials of every rank, mean 0 and variance 1 if it is uniform."""
    return np.stack([np.sqrt(2 * n + 1) * eval_legendre(n, 2 * ranks - 1) for n in (1, 2)], axis=-1)


def hotelling_p(samples: np.ndarray) -> float:
    """That independent vectors (n, k) have mean zero: T^2 (n - k) / (k (n - 1)) is then F of k and n - k."""
    n, k = samples.shape
    mean = samples.mean(axis=0)
    square = n * mean @ np.linalg.solve(np.cov(samples.T), mean)
    return float(f.sf(square * (n - k) / (k * (n - 1)), k, n - k))


def summarise(case: str, runs: dict[int, dict[str, Any]]) -> Summary:
    ranks = ranks_of(runs.values())
    names = next(each["names"] for each in runs.values() if each.get("ranks"))
    moments = shift_and_spread(ranks).mean(axis=1)
    others: dict[str, list[int]] = {}
    for number, each in runs.items():
        if each["status"] != "converged":
            others.setdefault(each["status"], []).append(number)
    seconds = [each["seconds"] for each in runs.values() if "seconds" in each]
    return Summary(
        case=case,
        runs=len(runs),
        judged=len(ranks),
        converged=len(runs) - sum(map(len, others.values())),
        others=others,
        p_values={name: float(kstest(column, "uniform").pvalue) for name, column in zip(names, ranks.T, strict=True)},
        pooled_p=hotelling_p(moments),
        shift=float(moments[:, 0].mean()),
        spread=float(moments[:, 1].mean()),
        seconds=float(np.median(seconds)),
        most_seconds=float(np.max(seconds)),
    )


def with_stored(
    runs: dict[str, dict[int, dict[str, Any]]], before: dict[str, dict[str, Any]], cases: Iterable[str]
) -> list[Summary]:
    """Of runs, and of what was stored `before` where there are none."""
    fields = Summary.__dataclass_fields__
    return [
        summarise(case, runs[case])
        if case in runs
        else Summary(**{name: value for name, value in before[case].items() if name in fields})
        for case in cases
        if case in runs or case in before
    ]


def threshold(summaries: list[Summary]) -> float:
    """The p-value below which a test is red: Bonferroni over all tests of all families."""
    return FALSE_ALARM / max(1, sum(len(each.p_values) + 1 for each in summaries if not each.is_control))


def show(summaries: list[Summary]) -> str:
    header = (
        "case", "data sets", "judged", "converged", "parameters", "smallest p", "pooled p", "shift", "spread",
        "seconds", "longest", "",
    )  # fmt: skip
    bound, cells = threshold(summaries), []
    for each in summaries:
        cells.append(
            [
                each.case, str(each.runs), str(each.judged), str(each.converged), str(len(each.p_values)),
                f"{min(each.p_values.values()):.2g}", f"{each.pooled_p:.2g}", f"{each.shift:+.2f}",
                f"{each.spread:+.2f}", f"{each.seconds:.2g}", f"{each.most_seconds:.3g}",
                "red" if each.least_p < bound else "green",
            ]
        )  # fmt: skip
    text = [table(header, cells), f"red: a p-value below {bound:.2g}, which gives a false alarm in {FALSE_ALARM:.0%}"]
    text += [f"{each.case}: {each.others}" for each in summaries if each.others]
    return "\n".join(text)


def excess(ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the ranks are, and how much larger the share below is than it should be, before and after each."""
    u, shares = np.sort(ranks), np.arange(len(ranks) + 1) / len(ranks)
    there = np.repeat(u, 2)
    return np.concatenate([[0], there, [1]]), np.concatenate([[0], np.repeat(shares, 2)[1:-1] - there, [0]])


def draw(summaries: list[Summary], ranks: dict[str, np.ndarray]) -> Any:
    """A line for every parameter, and the bounds of its test."""
    figure, axes = style.new_figure(2, height=4.6)
    groups = [each for each in summaries if not each.is_control], [each for each in summaries if each.is_control]
    reach = kstwo.isf(threshold(summaries), min(each.judged for each in summaries))
    for ax, group, title in zip(axes, groups, ("the families", "wrong models, for comparison"), strict=True):
        for number, each in enumerate(group):
            round_trip, colour = divmod(number, len(style.COLOURS))
            look = {"color": style.COLOURS[colour], "linestyle": ("-", ":")[round_trip], "linewidth": 0.9}
            for order, column in enumerate(ranks[each.case].T):
                ax.plot(*excess(column), label=None if order else each.case.removeprefix("control: "), **look)
        for side in (-reach, reach):
            ax.axhline(side, color="#525252", linestyle="--", linewidth=1.0)
        ax.set(title=title, xlabel="u", ylabel="share of ranks below u, less u", xlim=(0, 1), ylim=(-0.5, 0.5))
        ax.legend(frameon=False, fontsize=8, ncols=2 if len(group) > 2 else 1, loc="upper right")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description="simulation-based calibration of the families")
    parser.add_argument("--datasets", type=int, default=100)
    parser.add_argument("--case", choices=CASES, nargs="+", help="all that are missing by default")
    parser.add_argument("--workers", type=int, default=lines.WORKERS)
    parser.add_argument("--max-seconds", type=float, default=120.0, help="for one run, whose status then says so")
    parser.add_argument("--ladder", action="store_true", help="where weights of later families do not do")
    parser.add_argument("--stored", action="store_true", help="sum up what there is")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    path, document_path = given.out / "sbc.jsonl", given.out / "sbc.json"
    told = json.loads(document_path.read_text()) if document_path.exists() else {"rows": []}
    before = {row["case"]: row for row in told["rows"]}
    done = [case for case in CASES if before.get(case, {}).get("runs", 0) >= given.datasets]
    asked = given.case or [case for case in CASES if case not in done]
    keys = [Key(case, number) for case in asked for number in range(given.datasets)]
    if keys and not given.stored:
        lines.complete(keys, path, partial(run, given.max_seconds, given.ladder), given.workers)
    stored = lines.read(path, Key)
    runs = {case: {key.number: each for key, each in sorted(stored.items()) if key.case == case} for case in CASES}
    runs = {case: each for case, each in runs.items() if any(one.get("ranks") for one in each.values())}
    summaries = with_stored(runs, before, CASES)
    print(show(summaries))
    commits = {each["commit"] for each in stored.values()} | set(told.get("settings", {}).get("commits", ()))
    document = {
        "settings": {
            "num_rows": NUM_ROWS, "dimension": DIMENSION, "seed": SEED, "absolute_tolerance": TOLERANCE,
            "num_rows_later": LATER_ROWS, "tolerance_later": LATER_TOLERANCE, "seed_later": LATER_SEED,
            "max_seconds": given.max_seconds, "false_alarm": FALSE_ALARM, "red_below": threshold(summaries),
            "commits": sorted(commits),
        },
        "versions": {name: version(name) for name in ("tallbayes", "jax", "jaxlib", "numpy", "scipy")},
        "rows": [asdict(each) | {"red": each.least_p < threshold(summaries)} for each in summaries],
    }  # fmt: skip
    document_path.write_text(json.dumps(document, indent=1) + "\n")
    own = {each.case: runs.get(each.case, {}).values() for each in summaries}
    ages.record(document_path, {case: ages.of_lines(each) if each else None for case, each in own.items()})
    drawn = [each for each in summaries if each.case in runs]
    style.save_svg(draw(drawn, {case: ranks_of(each.values()) for case, each in runs.items()}), given.out / "sbc.svg")


if __name__ == "__main__":
    main()
