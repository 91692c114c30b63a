"""Is the error bar true? Hundreds of seeds of every problem class against exact references, the stopping rule on.

    python benchmarks/calibrate.py [--seeds 200] [--only CLASS ...] [--out FOLDER] [--stored] [--no-sbc]

A class is a problem, a method and a tolerance, such as "logistic-300-5 anchored 0.1"; CLASS is any part of that. What
is judged, and by which tests, stands in `calibration`; all tests of all classes together give a false alarm in 1% of
such studies (Bonferroni). The controls are the same runs with error bars half as long, and with one value off by one
tolerance: the same tests must find them out. Simulation-based calibration of the families is `sbc`, summed up below.

Every run is a line of calibrate.jsonl in FOLDER, found by its method version too, and what is there is not run again.
A run's budget is in row gradients, and its time is that of the processor, so that it may be stopped and continued at
any moment. Runs that did not converge are judged like any other, if they know their error, and listed. The summary is
printed and written to calibrate.json, the figure to calibrate.svg.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import calibration
import lines
import numpy as np
import problems
import references
import sbc
from calibration import KINDS, LEVELS, Runs, Verdict
from scipy.stats import kstwo

import tallbayes as tb
from tallbayes.display import table
from tallbayes.experiments import style
from tallbayes.experiments.store import Piece, Store
from tallbayes.fingerprint import METHOD_VERSION

RESULTS = Path(__file__).parent / "results"
REFERENCES = "calibrate_references"
FALSE_ALARM = 0.01
MAX_EVALUATIONS = 500_000_000
QUANTITIES = ("mean", "sd")
FIELDS = {
    "value": "value",
    "standard_error": "standard_error",
    "bias_bound": "bias_bound",
    "freedom": "freedom",
    "allowed": "tolerance",
}
SHOWN = 10
STEEP_GOAL, STEEP_FREEDOM = 7e-4, 15.0
# A data set of these takes half a minute; as many as are stored are judged.
SLOW_CASES = ("negative_binomial", sbc.LIGHT)


class Class(NamedTuple):
    """What is judged together."""

    problem: str
    method: str
    tolerance: float

    def __str__(self) -> str:
        return f"{self.problem} {self.method} {self.tolerance:g}"


Found = dict[Class, dict[int, dict[str, Any]]]


class Key(NamedTuple):
    """What a stored run is found by."""

    problem: str
    method: str
    tolerance: float
    seed: int
    method_version: int


PROBLEMS = (problems.GAUSSIAN, *problems.CALIBRATION, problems.PAPER, problems.MULTINOMIAL, problems.STEEP)
LADDER_PROBLEM = "paper-1000-3"
CLASSES = (
    *(Class(problem, "anchored", 0.1) for problem in PROBLEMS),
    *(Class(problem, "anchored", 0.05 if problem == problems.STEEP else 0.01) for problem in PROBLEMS),
    Class(LADDER_PROBLEM, "ladder", 0.1),
    *(Class(problem, "randomised", 0.1) for problem in PROBLEMS),
)
METHODS: dict[str, Any] = {
    "anchored": tb.Anchored(),
    "randomised": tb.Randomised(tb.Anchored()),
    "ladder": tb.Multilevel(),
}


@dataclass(frozen=True, eq=False)
class MultinomialPosterior:
    """Rows of classes 0, 1, ... with the prior N(0, I), as `references.solve` wants them.

    w_c is the gradient of eta_c, zero for class 0; the log likelihood's second and third derivatives are minus the
    central moments of w under the classes' probabilities.
    """

    x: np.ndarray
    y: np.ndarray
    heads: int

    def log_density(self, theta: np.ndarray) -> np.ndarray:
        """Of every row of theta, up to a constant."""
        total, size = -0.5 * np.sum(theta**2, axis=1), max(1, references.TILE_ENTRIES // len(theta))
        coefficients = np.split(theta, self.heads, axis=1)
        for start in range(0, len(self.y), size):
            x, y = self.x[start : start + size], self.y[start : start + size]
            etas = [x @ each.T for each in coefficients]
            total += sum((y == head).astype(float) @ eta for head, eta in enumerate(etas, 1))
            total -= np.log(1 + sum(map(np.exp, etas))).sum(axis=0)
        return total

    @cached_property
    def mode(self) -> tuple[np.ndarray, np.ndarray]:
        """Newton's method from zero; the mode and the negative Hessian there."""
        theta, rows = np.zeros(self.directions.shape[2]), np.arange(len(self.y))
        for _ in range(60):
            share, centred = self._centred(theta, self.directions)
            gradient = centred[rows, self.y.astype(int)].sum(axis=0) - theta
            hessian = np.einsum("nc,ncj,nck->jk", share, centred, centred) + np.eye(len(theta))
            step = np.linalg.solve(hessian, gradient)
            theta = theta + step
            if step @ hessian @ step < 1e-18:
                return theta, hessian
        raise RuntimeError("expected Newton to reach the mode in 60 steps")

    def cubic(self, root: np.ndarray) -> np.ndarray:
        """The third derivatives at the mode in the coordinates theta = mode + root z, (d, d, d)."""
        share, centred = self._centred(self.mode[0], self.directions)
        moved = centred @ root
        return -np.einsum("nc,ncj,nck,ncl->jkl", share, moved, moved, moved, optimize=True)

    @cached_property
    def directions(self) -> np.ndarray:
        """w, (rows, classes, parameters)."""
        unit = np.eye(self.heads + 1)[:, 1:]
        return np.einsum("ch,nj->nchj", unit, self.x).reshape(len(self.x), self.heads + 1, -1)

    def _centred(self, theta: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weight = np.exp(directions @ theta)
        share = weight / weight.sum(axis=1, keepdims=True)
        return share, directions - np.einsum("nc,ncj->nj", share, directions)[:, None]


def solve_reference(name: str) -> dict[str, Any]:
    """By importance sampling, as in `references`."""
    kind, _, _ = problems.split(name)
    _, rows = problems.make(name)
    if kind == "multinomial":
        posterior: Any = MultinomialPosterior(rows["x"], rows["y"], problems.CLASSES - 1)
    else:
        posterior = references.Posterior(references.LOGISTIC, rows["x"], rows["y"])
    goal, freedom = (STEEP_GOAL, STEEP_FREEDOM) if kind == "steep" else (references.CALIBRATION_GOAL, 10.0)
    return asdict(references.solve(posterior, goal, freedom))


@cache
def reference(name: str, folder: Path = RESULTS) -> references.Reference:
    """From the benchmarks' common store, or from this study's own, computed if it is not there."""
    common = references.load()
    if name in common:
        return common[name]
    store = Store(folder)
    others = {each: Piece(piece["settings"], lambda: {}) for each, piece in store.read(REFERENCES).items()}
    this = {name: Piece({"seed": references.SEED}, partial(solve_reference, name))}
    store.complete(REFERENCES, others | this, tell)
    return references.Reference(**store.results(REFERENCES)[name])


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@cache
def worker_problem(name: str) -> tuple[Any, Any, ThreadPoolExecutor]:
    """Made once in every process, with a single thread to run it on."""
    return *problems.make(name), ThreadPoolExecutor(1)


def run(key: Key) -> dict[str, Any]:
    """One estimate as a line of the store; an exception is an outcome, too."""
    model, rows, executor = worker_problem(key.problem)
    started = time.process_time()
    try:
        result = tb.estimate(
            model, rows, tolerance=key.tolerance, seed=key.seed, method=METHODS[key.method], executor=executor,
            max_evaluations=MAX_EVALUATIONS,
        )  # fmt: skip
    except Exception as error:
        return {"status": type(error).__name__, "message": str(error), "seconds": time.process_time() - started}
    estimates = [result[name] for name in QUANTITIES]

    def joined(field: str) -> list[float | None]:
        numbers = np.concatenate([getattr(each, f"flat_{field}") for each in estimates])
        return [float(number) if np.isfinite(number) else None for number in numbers]

    return {
        "status": result.status.name,
        "message": str(result.status),
        "names": [label for each in estimates for label in each.structure.labels(each.name)],
        **{column: joined(field) for column, field in FIELDS.items()},
        "evaluations": result.cost.evaluations,
        "setup_evaluations": result.cost.setup_evaluations,
        "num_data": result.cost.num_data,
        "seconds": round(time.process_time() - started, 3),
    }


@dataclass(frozen=True, eq=False)
class Group:
    """All stored runs of a class; `judged` are those that know their error."""

    name: Class
    stored: dict[int, dict[str, Any]]
    judged: Runs


def group(name: Class, stored: dict[int, dict[str, Any]]) -> Group | str:
    """Or why it is not judged: too few runs that know their error, or too coarse a reference."""
    kept = {seed: each for seed, each in stored.items() if knows_error(each)}
    if len(kept) < calibration.FEWEST:
        return f"{len(stored)} runs are stored, {len(kept)} know their error"
    columns = {
        field: np.array([each[column] for each in kept.values()], dtype=float) for column, field in FIELDS.items()
    }
    columns["freedom"] = np.where(np.isnan(columns["freedom"]), np.inf, columns["freedom"])
    known = reference(name.problem)
    runs = Runs(
        seeds=np.array(list(kept)),
        names=tuple(next(iter(kept.values()))["names"]),
        **columns,
        truth=np.array(known.mean + known.sd),
        blur=np.array(known.mean_error + known.sd_error),
        allowed_bias=0.0 if name.method == "randomised" else calibration.BIAS_SHARE,
    )
    if runs.reference_margin < calibration.REFERENCE_MARGIN:
        return f"the reference is only {runs.reference_margin:.1f} times better than the tolerance"
    return Group(name, stored, runs)


def read(path: Path, classes: list[Class]) -> Found:
    """Stored runs of this version of the method, by class and seed."""
    found: Found = {each: {} for each in classes}
    for key, line in sorted(lines.read(path, Key).items()):
        name = Class(key.problem, key.method, key.tolerance)
        if key.method_version == METHOD_VERSION and name in found:
            found[name][key.seed] = line
    return found


def knows_error(line: dict[str, Any]) -> bool:
    return "value" in line and all(None not in line[field] for field in FIELDS if field != "freedom")


@dataclass(frozen=True)
class Summary:
    """What is said of a class; RMSEs and mean errors are in tolerances, by quantity."""

    name: Class
    runs: int
    judged: int
    statuses: dict[str, int]
    quantities: tuple[str, ...]
    rmse: tuple[float, ...]
    mean_error: tuple[float, ...]
    mean_error_error: tuple[float, ...]
    coverages: tuple[calibration.Coverage, ...]
    scores: calibration.Scores
    p_values: dict[str, dict[str, float]]
    verdict: Verdict
    halved: Verdict | None
    shifted: Verdict
    reference_margin: float | None
    epochs: float
    seconds: float

    @property
    def worst_bias(self) -> int:
        return int(np.argmax(np.abs(self.mean_error)))


def summarise(this: Group, bound: float) -> Summary:
    """The numbers, the verdict, and those of the two controls; an exact class has no bar that could be halved."""
    runs = this.judged
    mean, error = calibration.mean_error(runs)
    answered = [each for each in this.stored.values() if "evaluations" in each]
    return Summary(
        name=this.name,
        runs=len(this.stored),
        judged=len(runs.seeds),
        statuses=dict(Counter(each["status"] for each in this.stored.values())),
        quantities=runs.names,
        rmse=tuple(map(float, np.sqrt(np.mean(runs.relative_error**2, axis=0)))),
        mean_error=tuple(map(float, mean)),
        mean_error_error=tuple(map(float, error)),
        coverages=tuple(calibration.coverage(runs, level, kind) for kind in KINDS for level in LEVELS),
        scores=calibration.scores(runs),
        p_values=calibration.p_values(runs),
        verdict=calibration.judge(runs, bound),
        halved=None if runs.is_exact else calibration.judge(runs.halved(), bound),
        shifted=calibration.judge(runs.shifted(), bound),
        reference_margin=runs.reference_margin if np.isfinite(runs.reference_margin) else None,
        epochs=float(np.median([each["evaluations"] / each["num_data"] for each in answered])),
        seconds=float(np.median([each["seconds"] for each in answered])),
    )


def show(summaries: list[Summary]) -> str:
    """Three tables: errors and verdicts, coverages, and how the controls fared."""
    errors = [
        [
            str(each.name), str(each.runs), str(each.statuses.get("converged", 0)), f"{max(each.rmse):.3f}",
            f"{each.mean_error[each.worst_bias]:+.3f} ± {each.mean_error_error[each.worst_bias]:.3f}",
            f"{each.scores.mean:+.2f} ± {each.scores.mean_error:.2f}",
            f"{each.scores.sd:.2f} ± {each.scores.sd_error:.2f}",
            least(each, "uniform"), least(each, "moments"), f"{each.epochs:.3g}", f"{each.seconds:.2g}",
            str(each.verdict),
        ]
        for each in summaries
    ]  # fmt: skip
    header = (
        "class", "runs", "converged", "RMSE/tol", "bias/tol", "z mean", "z sd", "KS p", "T² p", "epochs", "cpu s",
        "verdict",
    )  # fmt: skip
    covers = [
        [
            str(each.name),
            *(f"{100 * part.pooled:.1f} ± {100 * part.error:.1f} ({100 * part.worst:.1f})" for part in each.coverages),
        ]
        for each in summaries
    ]
    wanted = [f"{kind} {level:.0%}" for kind in KINDS for level in LEVELS]
    return "\n\n".join(
        [
            "RMSE and bias of the worst quantity; the least p-value of all quantities\n" + table(header, errors),
            "coverage in %: pooled ± clustered error (worst quantity)\n" + table(("class", *wanted), covers),
            show_controls(summaries),
        ]
    )


def least(summary: Summary, test: str) -> str:
    values = summary.p_values.get(test)
    return f"{min(values.values()):.2g}" if values else "exact"


def show_controls(summaries: list[Summary]) -> str:
    """How many are found out, and which are not."""
    text = []
    halved = {str(each.name): each.halved for each in summaries if each.halved is not None}
    shifted = {str(each.name): each.shifted for each in summaries}
    for title, verdicts in {"error bars halved": halved, "one value off by one tolerance": shifted}.items():
        missed = [name for name, verdict in verdicts.items() if not verdict.is_red]
        text.append(f"control, {title}: {len(verdicts) - len(missed)} of {len(verdicts)} classes red")
        text += [f"  not found out: {name}" for name in missed]
    return "\n".join(text)


def failures(found: Found) -> list[dict[str, Any]]:
    """All runs that did not converge, judged or not."""
    return [
        {"class": str(name), "seed": seed, "status": line["status"], "message": line["message"]}
        for name, stored in found.items()
        for seed, line in stored.items()
        if line["status"] != "converged"
    ]


def worst(groups: list[Group]) -> list[tuple[Class, calibration.Outlier]]:
    """All that are far off, or the worst ten if these are fewer."""
    pairs = [(each.name, outlier) for each in groups for outlier in calibration.outliers(each.judged)]
    pairs.sort(key=lambda pair: (not pair[1].is_far, -abs(pair[1].error)))
    return [pair for number, pair in enumerate(pairs) if number < SHOWN or pair[1].is_far]


def show_worst(found: Found, groups: list[Group]) -> str:
    """Runs that failed, then those that are far off and the worst ten."""
    failed, far_off = failures(found), worst(groups)
    far = sum(each.is_far for _, each in far_off)
    header = ("class", "seed", "quantity", "error/tol", "se outside its 95%")
    rows = [
        [str(name), str(each.seed), each.quantity, f"{each.error:+.2f}", f"{each.outside:.2f}"]
        for name, each in far_off
    ]
    return "\n".join(
        [
            f"runs that did not converge: {len(failed)}",
            *(f"  {each['class']} seed {each['seed']}: {each['status']}, {each['message']}" for each in failed),
            f"more than 3 tolerances off, or 4.5 se outside the published 95% interval: {far}; the worst are",
            table(header, rows),
        ]
    )


def summarise_sbc(completes: bool) -> list[sbc.Summary]:
    """Simulation-based calibration by its stored runs; its slowest cases are judged as far as they go."""
    path = RESULTS / "sbc.jsonl"
    if completes:
        keys = [sbc.Key(case, number) for case in sbc.CASES if case not in SLOW_CASES for number in range(100)]
        lines.complete(keys, path, partial(sbc.run, 120.0))
    stored = lines.read(path, sbc.Key)
    cases = {case: {key.number: each for key, each in sorted(stored.items()) if key.case == case} for case in sbc.CASES}
    return [sbc.summarise(case, each) for case, each in cases.items() if each]


def document(found: Found, groups: list[Group], summaries: list[Summary], bound: float) -> dict[str, Any]:
    stored = [line for runs in found.values() for line in runs.values()]
    return {
        "settings": {
            "max_evaluations": MAX_EVALUATIONS, "false_alarm": FALSE_ALARM, "tests": round(FALSE_ALARM / bound),
            "red_below": bound, "method_version": METHOD_VERSION, "workers": lines.WORKERS,
            "methods": {name: repr(method) for name, method in METHODS.items()},
            "commits": sorted({line["commit"] for line in stored}),
        },
        "versions": {name: version(name) for name in ("tallbayes", "jax", "jaxlib", "numpy", "scipy")},
        "classes": [asdict(each) | {"name": str(each.name)} for each in summaries],
        "failures": failures(found),
        "worst": [{"class": str(name), "far": each.is_far} | asdict(each) for name, each in worst(groups)],
    }  # fmt: skip


COLUMNS = ("anchored, tolerance 0.1", "anchored, a finer tolerance", "randomised, tolerance 0.1")
MEANS, SDS = style.COLOURS[0], style.COLOURS[1]
QUIET = "#737373"
LEAST_SHOWN = 0.011
GRID = np.linspace(0, 1, 101)


def draw(groups: dict[Class, Runs]) -> Any:
    """A row a problem: u of every quantity, coverages, errors; the last row shows what the controls look like."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(each.problem for each in groups))
    figure = Figure(figsize=(15.5, 1.75 * (len(names) + 1) + 1.4), layout="constrained")
    axes = figure.subplots(len(names) + 1, 5, squeeze=False, width_ratios=(1, 1, 1, 1.35, 1.1))
    for row, name in zip(axes, names, strict=False):
        here = {each: runs for each, runs in groups.items() if each.problem == name}
        draw_row(row, here)
        row[0].set_ylabel(name, fontsize=10, fontweight="bold")
    controls = [(each, runs) for each, runs in groups.items() if not runs.is_exact]
    if controls:
        draw_controls(axes[-1], *controls[0])
    for ax in () if controls else axes[-1]:
        ax.set_axis_off()
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize=8)
    for ax, title in zip(axes[0], (*COLUMNS, "coverage, %", "RMSE / tolerance"), strict=True):
        ax.set_title(title, fontsize=11)
    add_legend(figure)
    return figure


def draw_row(row: Any, here: dict[Class, Runs]) -> None:
    """A column a method and tolerance; the paper's ladder, which has none of its own, stands in the first."""
    shown: dict[int, Class] = {}
    for each in here:
        column = 2 if each.method == "randomised" else int(each.tolerance < 0.1)
        shown[column] = each
    for number, ax in enumerate(row[:3]):
        if number not in shown:
            ax.set_axis_off()
            continue
        each = shown[number]
        draw_ranks(ax, here[each])
        if f"{each.method}, tolerance {each.tolerance:g}" != COLUMNS[number]:
            ax.text(0.98, 0.96, told(each), fontsize=8, ha="right", va="top", transform=ax.transAxes)
    named = {told(each): runs for each, runs in here.items()}
    draw_coverages(row[3], named)
    draw_errors(row[4], named)


def told(name: Class) -> str:
    return f"{'paper' if name.method == 'ladder' else name.method} {name.tolerance:g}"


def draw_controls(row: Any, name: Class, runs: Runs) -> None:
    """What the same figure looks like where something is wrong."""
    shown = {"error bars halved": runs.halved(), "one value off by a tolerance": runs.shifted()}
    for ax, (title, each) in zip(row, shown.items(), strict=False):
        draw_ranks(ax, each, reach=0.95)
        ax.text(0.02, 0.96, title, fontsize=8, va="top", transform=ax.transAxes)
        ax.set_xlabel("u", fontsize=9)
    row[0].set_ylabel("controls", fontsize=10, fontweight="bold", color=style.COLOURS[3])
    row[2].set_axis_off()
    text = f"Wrong on purpose:\n{name}\nwith bars of half the length,\nand with its first mean off by\none tolerance."
    row[2].text(0.0, 0.9, text, fontsize=9, va="top")
    named = {"bars halved": shown["error bars halved"], "one value off": shown["one value off by a tolerance"]}
    draw_coverages(row[3], named)
    draw_errors(row[4], named)


def draw_ranks(ax: Any, runs: Runs, reach: float = 0.24) -> None:
    """A line a quantity: the share of seeds below u, less u, within the bounds of its test."""
    ax.axhline(0, color=QUIET, linewidth=0.8)
    ax.set(xlim=(0, 1), ylim=(-reach, reach), xticks=(0, 0.5, 1))
    if runs.is_exact:
        largest = np.max(np.abs(runs.relative_error))
        text = f"exact: every error below\n{largest:.0e} tolerances"
        ax.text(0.5, 0.72, text, fontsize=9, ha="center", va="center", transform=ax.transAxes)
        return
    seeds, quantities = runs.pit.shape
    all_of_them, one = kstwo.isf(0.01 / quantities, seeds), kstwo.isf(0.05, seeds)
    ax.axhspan(-all_of_them, all_of_them, color="#ededed", linewidth=0)
    for side in (-one, one):
        ax.axhline(side, color=QUIET, linewidth=0.7, linestyle=(0, (4, 3)))
    for number, column in enumerate(runs.pit.T):
        colour = MEANS if number < quantities // 2 else SDS
        below = np.searchsorted(np.sort(column), GRID, side="right") / seeds
        ax.plot(GRID, below - GRID, color=colour, linewidth=0.8, alpha=0.75)


def draw_coverages(ax: Any, named: dict[str, Runs]) -> None:
    """Pooled with 95% bars by seeds; the worst quantity as a tick; published above, t se below."""
    for colour, level in zip(style.COLOURS[2:5], LEVELS, strict=True):
        ax.axvline(100 * level, color=colour, linewidth=0.9, linestyle="--")
        for height, runs in enumerate(named.values()):
            if runs.is_exact:
                continue
            for kind, lift, face in zip(KINDS, (-0.17, 0.17), (colour, "white"), strict=True):
                this = calibration.coverage(runs, level, kind)
                ax.errorbar(
                    100 * this.pooled, height + lift, xerr=196 * this.error, fmt="o", color=colour, markersize=4.5,
                    markerfacecolor=face, linewidth=1.2,
                )  # fmt: skip
                ax.plot(100 * this.worst, height + lift, "|", color=colour, markersize=6)
    ax.set(xlim=(20, 101), xticks=(50, 80, 95))
    name_rows(ax, list(named))


def draw_errors(ax: Any, named: dict[str, Runs]) -> None:
    """A dot a quantity; beyond the line the promise is broken."""
    ax.axvline(1, color="black", linewidth=1.0)
    for height, runs in enumerate(named.values()):
        rmse = np.sqrt(np.mean(runs.relative_error**2, axis=0))
        half = len(rmse) // 2
        for part, colour, lift in ((rmse[:half], MEANS, -0.12), (rmse[half:], SDS, 0.12)):
            marker = "o" if part.max() > LEAST_SHOWN else "<"
            places_of = np.maximum(part, LEAST_SHOWN), np.full(len(part), height + lift)
            ax.plot(*places_of, marker, color=colour, markersize=4, alpha=0.7)
    ax.set(xscale="log", xlim=(0.01, 3), xticks=(0.01, 0.1, 1), xticklabels=("0.01", "0.1", "1"))
    ax.minorticks_off()
    name_rows(ax, list(named))


def name_rows(ax: Any, labels: list[str]) -> None:
    ax.set(yticks=range(len(labels)), yticklabels=labels, ylim=(len(labels) - 0.4, -0.6))
    ax.grid(True, axis="x", color="#e5e5e5", linewidth=0.6)
    ax.set_axisbelow(True)


def add_legend(figure: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    look = {"color": style.COLOURS[4], "linewidth": 0, "marker": "o", "markersize": 5}
    handles = [
        Line2D([], [], color=MEANS, label="a posterior mean"),
        Line2D([], [], color=SDS, label="a posterior sd"),
        Line2D([], [], color=QUIET, linestyle="--", linewidth=0.8, label="95% for one quantity"),
        Patch(color="#ededed", label="99% for all of a panel"),
        Line2D([], [], **look, label="published interval, ± 95% by seeds"),
        Line2D([], [], **look, markerfacecolor="white", label="t se alone"),
        Line2D([], [], color=style.COLOURS[4], marker="|", linewidth=0, label="its worst quantity"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=7, frameon=False, fontsize=9)
    title = (
        "Left: the share of seeds whose F(error / se) is below u, less u, stays in the band if the error bar is true"
    )
    figure.suptitle(title, fontsize=12)


def main() -> None:
    parser = argparse.ArgumentParser(description="calibration of every problem class, the stopping rule on")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--only", nargs="+", metavar="CLASS", default=[""], help="any part of a class's name")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--stored", action="store_true", help="judge what is stored, run nothing")
    parser.add_argument("--no-sbc", action="store_true", help="leave simulation-based calibration as it is stored")
    given = parser.parse_args()
    path = given.out / "calibrate.jsonl"
    classes = [each for each in CLASSES if any(part in str(each) for part in given.only)]
    if not classes:
        parser.error(f"expected parts of {', '.join(map(str, CLASSES))}; got {' '.join(given.only)}")
    if not given.stored:
        for name in dict.fromkeys(each.problem for each in classes):
            reference(name)
        lines.complete([Key(*each, seed, METHOD_VERSION) for each in classes for seed in range(given.seeds)], path, run)
    found = read(path, classes)
    judged = {name: group(name, stored) for name, stored in found.items()}
    groups = [each for each in judged.values() if isinstance(each, Group)]
    bound = calibration.bonferroni([each.judged for each in groups], FALSE_ALARM)
    summaries = [summarise(each, bound) for each in groups]
    print(show(summaries), show_worst(found, groups), sep="\n\n")
    unjudged = {str(name): why for name, why in judged.items() if isinstance(why, str)}
    print(*(f"not judged: {name}, {why}" for name, why in unjudged.items()), sep="\n")
    print(f"red or stated: a p-value below {bound:.2g}, {FALSE_ALARM:.0%} over all {FALSE_ALARM / bound:.0f} tests")
    style.save_svg(draw({each.name: each.judged for each in groups}), given.out / "calibrate.svg")
    families = summarise_sbc(not (given.no_sbc or given.stored))
    print("\nsimulation-based calibration", sbc.show(families), sep="\n")
    results = document(found, groups, summaries, bound) | {"not judged": unjudged, "sbc": list(map(asdict, families))}
    (given.out / "calibrate.json").write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
    red = [str(each.name) for each in summaries if each.verdict.is_red]
    if red:
        sys.exit(f"red: {', '.join(red)}")


if __name__ == "__main__":
    main()
