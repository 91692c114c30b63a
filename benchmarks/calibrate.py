"""Is the error bar true? Hundreds of seeds of every problem class against exact references, the stopping rule on.

    python benchmarks/calibrate.py [--seeds 200] [--only CLASS ...] [--out FOLDER] [--stored] [--no-sbc]

A class is a problem, a method and a tolerance, such as "logistic-300-5 anchored 0.1"; CLASS is any part of that. What
is judged, and by which tests, stands in `calibration`; all tests of all classes together give a false alarm in 1% of
such studies (Bonferroni). The controls are the same runs with error bars half as long, and with one value off by one
tolerance: the same tests must find them out. Simulation-based calibration of the families is `sbc`, summed up below.

Every run is a line of calibrate.jsonl in FOLDER, found by its method version too, and what is there is not run again.
A run's budget is in row gradients, and its time is that of the processor, so that it may be stopped and continued at
any moment. Runs that did not converge are listed. Out of budget, they are judged like any other, if they know their
error; one that ended because its error cannot be trusted is not. The summary is printed and written to calibrate.json,
the figure to calibrate.svg.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import ages
import calibration
import lines
import numpy as np
import problems
import sbc
from calibration import KINDS, LEVELS, Class, Runs, Verdict
from calibration_figure import draw
from calibration_questions import QUESTIONS, ask
from calibration_references import truth
from questions import Question, allowed

import tallbayes as tb
from tallbayes.experiments import style
from tallbayes.records.fingerprint import METHOD_VERSION
from tallbayes.views.text import table

RESULTS = Path(__file__).parent / "results"
FALSE_ALARM = 0.01
MAX_EVALUATIONS = 500_000_000
FIELDS = {
    "value": "value",
    "standard_error": "standard_error",
    "bias_bound": "bias_bound",
    "freedom": "freedom",
    "allowed": "tolerance",
}
JUDGED = ("converged", "max_evaluations", "max_levels")
SHOWN = 10
# A control that is found out by a fifth of the data sets.
FEW_SUFFICE, FEW = sbc.LIGHT, 20


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
# The quickest first. The steep one, at 5 s a run, is left out.
UNBIASED = (
    "logistic-10000-10", "student-1000-5", problems.PAPER, problems.MULTINOMIAL, "logistic-300-5", problems.GAUSSIAN,
    "poisson-2000-4",
)  # fmt: skip
# Where the tuner itself would seldom take a window.
WINDOWED = ("student-1000-5", problems.MULTINOMIAL, "poisson-2000-4")
# Draws with weights: in NumPy for families, compiled for models of one's own.
WEIGHED = (
    "logistic-300-5",
    "logistic-10000-10",
    "poisson-2000-4",
    "student-1000-5",
    problems.MULTINOMIAL,
    problems.STEEP,
)
# A regression about the Gaussian that is right on average, with its control; by itself the tuner may leave either out.
BALANCED = ("logistic-300-5", "logistic-10000-10", problems.PAPER, problems.STEEP)
CLASSES = (
    *(Class(problem, "anchored", 0.1) for problem in PROBLEMS),
    *(Class(problem, "anchored", 0.05 if problem == problems.STEEP else 0.01) for problem in PROBLEMS),
    Class(problems.STEEP, "anchored", 0.01),
    *(Class(problem, "windowed", 0.01) for problem in WINDOWED),
    *(Class(problem, "weighted", 0.1) for problem in WEIGHED),
    *(Class(problem, "weighted", 0.01) for problem in WEIGHED),
    *(Class(problem, "replicates", 0.05) for problem in ("logistic-300-5", problems.MULTINOMIAL)),
    *(Class(problem, "balanced", 0.01) for problem in BALANCED),
    Class(LADDER_PROBLEM, "ladder", 0.1),
    *(Class(problem, "randomised", 0.1) for problem in UNBIASED),
    *(Class(problem, "anchored", tolerance) for problem, (_, tolerance) in QUESTIONS.items()),
)
METHODS: dict[str, Any] = {
    "anchored": tb.Anchored(),
    "windowed": tb.Anchored(window=4),
    "balanced": tb.Anchored(anchor="balanced", control=True),
    "weighted": tb.Weighted(),
    "replicates": tb.Weighted(unbiased=True),
    "randomised": tb.Randomised(tb.Anchored()),
    "ladder": tb.Multilevel(),
}


@cache
def worker_question(name: str) -> tuple[Question, ThreadPoolExecutor]:
    """Made once in every process, with a single thread to run it on."""
    return ask(name), ThreadPoolExecutor(1)


def run(key: Key) -> dict[str, Any]:
    """One estimate as a line of the store; an exception is an outcome, too."""
    question, executor = worker_question(key.problem)
    started = time.process_time()
    try:
        result = tb.estimate(
            question.model, question.rows, tolerance=key.tolerance, seed=key.seed, method=METHODS[key.method],
            executor=executor, max_evaluations=MAX_EVALUATIONS, **question.arguments,
        )  # fmt: skip
        estimates = list(question.read(result).values())
    except Exception as error:
        return {"status": type(error).__name__, "message": str(error), "seconds": time.process_time() - started}

    def joined(field: str) -> list[float | None]:
        parts = [allowed(each) if field == "tolerance" else getattr(each, f"flat_{field}") for each in estimates]
        numbers = np.concatenate(parts)
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
    known, blur = truth(name.problem)
    runs = Runs(
        seeds=np.array(list(kept)),
        names=tuple(next(iter(kept.values()))["names"]),
        **columns,
        truth=known,
        blur=blur,
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
    return line["status"] in JUDGED and all(None not in line[field] for field in FIELDS if field != "freedom")


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
    """Simulation-based calibration by its stored runs, completed if asked for."""
    path = RESULTS / "sbc.jsonl"
    if completes:
        numbers = {case: range(FEW if case == FEW_SUFFICE else 100) for case in sbc.CASES}
        keys = [sbc.Key(case, number) for case in sbc.CASES for number in numbers[case]]
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
            truth(name)
        lines.complete([Key(*each, seed, METHOD_VERSION) for each in classes for seed in range(given.seeds)], path, run)
    found = read(path, classes)
    judged = {
        name: group(name, stored) if len(stored) >= given.seeds else f"only {len(stored)} seeds so far"
        for name, stored in found.items()
    }
    groups = [each for each in judged.values() if isinstance(each, Group)]
    bound = calibration.bonferroni([each.judged for each in groups], FALSE_ALARM)
    summaries = [summarise(each, bound) for each in groups]
    print(show(summaries), show_worst(found, groups), sep="\n\n")
    unjudged = {str(name): why for name, why in judged.items() if isinstance(why, str)}
    print(*(f"not judged: {name}, {why}" for name, why in unjudged.items()), sep="\n")
    print(f"red or stated: a p-value below {bound:.2g}, {FALSE_ALARM:.0%} over all {FALSE_ALARM / bound:.0f} tests")
    style.save_svg(draw({each.name: each.judged for each in groups}), given.out / "calibrate.svg")
    families, summary = summarise_sbc(not (given.no_sbc or given.stored)), given.out / "calibrate.json"
    if families:
        print("\nsimulation-based calibration", sbc.show(families), sep="\n")
    known = list(map(asdict, families)) or (json.loads(summary.read_text())["sbc"] if summary.exists() else [])
    results = document(found, groups, summaries, bound) | {"not judged": unjudged, "sbc": known}
    summary.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
    methods = {str(each.name): ages.of_lines(found[each.name].values()) for each in groups}
    ages.record(summary, methods | {"sbc": ages.of_lines(lines.read(RESULTS / "sbc.jsonl", sbc.Key).values()) or None})
    red = [str(each.name) for each in summaries if each.verdict.is_red]
    if red:
        sys.exit(f"red: {', '.join(red)}")


if __name__ == "__main__":
    main()
