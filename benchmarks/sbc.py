"""Are the families right? Simulation-based calibration: parameters from the prior, rows given them, ranks of the truth.

    python benchmarks/sbc.py [--datasets 100] [--case NAME ...] [--out FOLDER]

    theta* ~ prior,   rows ~ p(. | theta*),   u_j = P(theta_j < theta*_j | rows),   u_j uniform on [0, 1]

That holds for the right posterior and says something of every part of it: prior, likelihood, constraints, sampler.
Every u_j is known to an RMSE of 0.02, which widens its distribution by half a percent. The tests:

    a parameter     Kolmogorov and Smirnov's, over its data sets, which are independent
    a family        Hotelling's T^2 of shift and spread, E P_1(u) = E P_2(u) = 0 (Legendre), both averaged over the
                    parameters of a data set first, since these depend on one another

All tests of all families together give a false alarm in 1% (Bonferroni). The controls have a wrong prior or a wrong
likelihood, and must be found out. All runs that say how accurate they are count, converged or not.
Every run is a line of benchmarks/results/sbc.jsonl, and what is there is not run again: delete the file after the
sampler has changed. The summary is printed and written to benchmarks/results/sbc.json, the figure to sbc.svg.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import lines
import numpy as np
from scipy.special import eval_legendre
from scipy.stats import f, kstest, kstwo
from simulations import SIMULATIONS

import tallbayes as tb
from tallbayes.experiments import style
from tallbayes.views.text import table

RESULTS = Path(__file__).parent / "results"
NUM_ROWS, DIMENSION, SEED = 200, 3, 2
TOLERANCE = 0.02
FALSE_ALARM = 0.01
NARROW, LIGHT = "control: logistic, prior half as wide", "control: student_t, 8 degrees of freedom for 4"
CONTROLS = {NARROW: "logistic", LIGHT: "student_t"}
CASES = (*SIMULATIONS, *CONTROLS)


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
        return self.case in CONTROLS

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


@cache
def worker_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


def run(max_seconds: float, key: Key) -> dict[str, Any]:
    """One data set. The truth is an array of the model's units, so that the next one compiles nothing."""
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
    parser.add_argument("--case", choices=CASES, nargs="+", default=CASES)
    parser.add_argument("--max-seconds", type=float, default=120.0, help="for one run, whose status then says so")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    path = given.out / "sbc.jsonl"
    keys = [Key(case, number) for case in given.case for number in range(given.datasets)]
    lines.complete(keys, path, partial(run, given.max_seconds))
    stored = lines.read(path, Key)
    runs = {case: {key.number: each for key, each in sorted(stored.items()) if key.case == case} for case in CASES}
    runs = {case: each for case, each in runs.items() if each}
    summaries = [summarise(case, each) for case, each in runs.items()]
    print(show(summaries))
    document = {
        "settings": {
            "num_rows": NUM_ROWS, "dimension": DIMENSION, "seed": SEED, "absolute_tolerance": TOLERANCE,
            "max_seconds": given.max_seconds, "false_alarm": FALSE_ALARM, "red_below": threshold(summaries),
            "commits": sorted({each["commit"] for each in stored.values()}),
        },
        "versions": {name: version(name) for name in ("tallbayes", "jax", "jaxlib", "numpy", "scipy")},
        "rows": [asdict(each) | {"red": each.least_p < threshold(summaries)} for each in summaries],
    }  # fmt: skip
    (given.out / "sbc.json").write_text(json.dumps(document, indent=1) + "\n")
    style.save_svg(
        draw(summaries, {case: ranks_of(each.values()) for case, each in runs.items()}), given.out / "sbc.svg"
    )


if __name__ == "__main__":
    main()
