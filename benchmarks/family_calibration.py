"""Are errors of later families and of stated priors true? Seeds of one small posterior each, the stopping rule on.

    python benchmarks/family_calibration.py [--seeds 100] [--only NAME ...] [--out FOLDER]

Each class is one table, whose means and sds are known by weighted Sobol points of SciPy's densities
(`family_references`) or by quadrature (`exact_shrinkage`), and is asked for both to 0.02 posterior sds. `judging` is
the judge: coverage of the 95% interval and RMSE / tolerance, quantity by quantity; all tests together give a false
alarm in 1%. As a control, intervals half as long must be red. A class whose reference is not five times better than
its tolerance is not judged.

Every run is a line of family_calibration.jsonl in FOLDER and is not run again; the summary and the references are
family_calibration.json, which keeps classes that were not asked for.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import ages
import exact_shrinkage
import lines
import numpy as np
from family_references import EXTRAS, Written, intercept_prior, normal, solve
from judging import CONVERGED, bonferroni, judge, number_of_tests, runs_of
from priors_sbc import INTERCEPT, PRIORS, scales
from priors_sbc import simulate as simulate_prior
from sbc import DIMENSION, RESULTS, right, simulate_later, weights_alone
from scipy.stats import cauchy, laplace, norm, t
from simulations import LATER

import tallbayes as tb
from tallbayes.records.fingerprint import METHOD_VERSION
from tallbayes.views.text import table

TOLERANCE, FALSE_ALARM, MARGIN = 0.02, 0.01, 5.0
MOST_SECONDS = 900.0
STRAIGHT_ROWS, SLOPES = 200, (0.3, 0.1, -0.05)


class Key(NamedTuple):
    """What a stored run is found by."""

    case: str
    seed: int
    method_version: int


@dataclass(frozen=True, eq=False)
class Problem:
    """A model, its rows, and how its means and sds are found, flat, with their largest error in sds."""

    model: tb.Model
    rows: dict[str, np.ndarray]
    exact: Callable[[], tuple[np.ndarray, np.ndarray, float]]


def by_points(written: Written) -> tuple[np.ndarray, np.ndarray, float]:
    found = solve(written)
    mean, sd = (np.concatenate([each[name] for name in sorted(each)]) for each in (found.mean, found.sd))
    return mean, sd, found.worst_error


def family(name: str, number: int = 0) -> Problem:
    """A data set of `sbc`."""
    simulation = LATER[name]
    _, rows = simulate_later(name, number)
    intercept = intercept_prior if simulation.intercept else None
    written = Written(name.partition(",")[0], rows, normal(simulation.scales(DIMENSION)), intercept)
    return Problem(right(simulation), rows, partial(by_points, written))


LAWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "normal, its own mean": norm(0.3).logpdf,
    "student_t": t(4).logpdf,
    "laplace": laplace().logpdf,
    "cauchy": cauchy().logpdf,
}
MADE = PRIORS | {"cauchy": lambda scale: tb.priors.cauchy(0, scale)}


def prior(name: str) -> Problem:
    """A logistic regression of 60 rows."""
    _, rows = simulate_prior("student_t", 0)
    wide = scales()

    def log_prior(coefficients: np.ndarray) -> np.ndarray:
        z = coefficients / wide[:, None]
        if name == "laplace":
            # As `tb.priors.laplace` says that it rounds the corner.
            return -np.sqrt(z**2 + 0.05**2).sum(axis=0)
        if name.startswith("normal"):
            return norm.logpdf(coefficients, 0.3, wide[:, None]).sum(axis=0)
        return np.asarray(LAWS[name](z).sum(axis=0))

    stated = {"coefficients": [MADE[name](scale) for scale in wide], "intercept": INTERCEPT}
    model = tb.families.logistic(intercept_scale=1.0, priors=stated)
    written = Written("logistic", rows, log_prior, lambda value: -0.5 * ((value - 0.5) / 0.5) ** 2)
    return Problem(model, rows, partial(by_points, written))


SHRINKAGE: dict[str, tuple[int, Any, Callable[[np.ndarray, np.ndarray], exact_shrinkage.Moments]]] = {
    "horseshoe": (6, tb.priors.horseshoe(0.5), lambda b, s: exact_shrinkage.horseshoe(b, s, 0.5)),
    "regularised horseshoe": (
        6,
        tb.priors.regularised_horseshoe(0.5, 4.0, scale=0.2),
        lambda b, s: exact_shrinkage.horseshoe(b, s, 0.2, (0.5, 4.0)),
    ),
    "R2D2": (2, tb.priors.r2d2(0.5, 6.0), lambda b, s: exact_shrinkage.r2d2_of_two(b, s, 3.0, 3.0, 0.5, 1.0)),
}


def shrinkage(name: str) -> Problem:
    """Noise of sd 1, and columns at right angles, so that the likelihood is a product."""
    columns, law, exact = SHRINKAGE[name]
    rng = np.random.default_rng(columns)
    x = np.linalg.qr(rng.normal(size=(STRAIGHT_ROWS, columns)))[0] * STRAIGHT_ROWS**0.5
    slopes = np.array(SLOPES)[: columns // 2]
    y = x[:, : len(slopes)] @ slopes + rng.normal(size=STRAIGHT_ROWS)
    model = tb.families.linear(noise_scale=1.0, priors={"coefficients": law})

    def moments() -> tuple[np.ndarray, np.ndarray, float]:
        found = exact(x.T @ y / STRAIGHT_ROWS, np.full(columns, STRAIGHT_ROWS**-0.5))
        return found.mean, found.sd, 0.0

    return Problem(model, {"x": x, "y": y}, moments)


def logistic_horseshoe() -> Problem:
    """Thirty rows, whose likelihood is far from a Gaussian."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((30, 2))
    y = (rng.random(30) < 1 / (1 + np.exp(-2.5 * x[:, 0]))).astype(float)
    model = tb.families.logistic(priors={"coefficients": tb.priors.horseshoe()})
    return Problem(model, {"x": x, "y": y}, lambda: (*exact_shrinkage.logistic_horseshoe(x, y, 1.0), 0.0))


# Data sets of `sbc` whose weights have a heavy tail, which their first 512 draws do not show.
SKEWED = {"zero_inflated_poisson": 3, "zero_inflated_negative_binomial": 5, "hurdle_negative_binomial": 2}
PROBLEMS: dict[str, Callable[[], Problem]] = {
    **{name: partial(family, name) for name in LATER},
    **{f"{name}, skewed": partial(family, name, number) for name, number in SKEWED.items()},
    **{f"prior: {name}": partial(prior, name) for name in LAWS},
    **{f"linear, {name}": partial(shrinkage, name) for name in SHRINKAGE},
    "logistic, horseshoe": logistic_horseshoe,
}
assert set(EXTRAS) <= set(LATER)


@cache
def problem_of(case: str) -> Problem:
    return PROBLEMS[case]()


def run(key: Key) -> dict[str, Any]:
    """One fit as a line of the store."""
    problem, started = problem_of(key.case), time.process_time()
    try:
        with weights_alone(problem.model.family or ""):
            result = tb.estimate(
                problem.model, problem.rows, tolerance=TOLERANCE, seed=key.seed, max_seconds=MOST_SECONDS
            )
    except Exception as error:
        return {"status": type(error).__name__, "message": str(error), "seconds": time.process_time() - started}
    both = result["mean"], result["sd"]

    def joined(read: Callable[[Any], np.ndarray]) -> list[float | None]:
        numbers = np.concatenate([read(each) for each in both])
        return [float(number) if np.isfinite(number) else None for number in numbers]

    return {
        "status": result.status.name,
        "method": result.method.partition("(")[0],
        "notes": list(result.notes),
        "names": [label for each in both for label in each.structure.labels(each.name)],
        "value": joined(lambda each: each.flat_value),
        "lower": joined(lambda each: each.flat_interval[0]),
        "upper": joined(lambda each: each.flat_interval[1]),
        "standard_error": joined(lambda each: each.flat_standard_error),
        "allowed": joined(lambda each: each.flat_tolerance),
        "seconds": round(time.process_time() - started, 3),
    }


def summarise(cases: dict[str, list[dict[str, Any]]], references: dict[str, Any]) -> list[dict[str, Any]]:
    """By class: the verdict, and that of intervals half as long."""
    runs = {}
    for case, stored in cases.items():
        mean, sd, _ = references[case]
        truth = np.concatenate([mean, sd]).tolist()
        runs[case] = runs_of([each | {"truth": truth} for each in stored])
    bound = bonferroni([number_of_tests(each) for each in runs.values()], FALSE_ALARM)
    rows = []
    for case, each in runs.items():
        verdict, halved = judge(each, bound), judge(each.halved(), bound)
        methods: dict[str, int] = {}
        for one in cases[case]:
            methods[one.get("method", "none")] = methods.get(one.get("method", "none"), 0) + 1
        error = references[case][2] / TOLERANCE
        rows.append(
            {
                "case": case,
                "methods": methods,
                "reference_error": error,
                "is_judged": error * MARGIN < 1,
                "bound": bound,
            }
            | verdict.record()
            | {"halved_coverage": halved.pooled_coverage, "halved_is_red": halved.is_red}
        )
    return rows


def show(rows: list[dict[str, Any]]) -> str:
    header = (
        "class", "runs", "converged", "RMSE / tolerance", "coverage", "worst", "half", "half is", "largest z",
        "seconds", "reference", "",
    )  # fmt: skip

    def number(value: float | None, form: str) -> str:
        return "" if value is None else format(value, form)

    cells = [
        [
            row["case"], str(row["runs"]), str(row["statuses"].get(CONVERGED, 0)), number(row["rmse"], ".2f"),
            number(row["pooled_coverage"], ".1%"), number(row["worst_coverage"], ".1%"),
            number(row["halved_coverage"], ".1%"), "red" if row["halved_is_red"] else "GREEN",
            number(row["largest_z"], ".1f"), f"{row['seconds']:.2f}", f"{row['reference_error']:.3f}",
            ("red" if row["is_red"] else "green") if row["is_judged"] else "not judged",
        ]
        for row in rows
    ]  # fmt: skip
    return table(header, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description="coverage of later families and stated priors")
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--only", choices=PROBLEMS, nargs="+", default=list(PROBLEMS))
    parser.add_argument("--workers", type=int, default=lines.WORKERS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    path, document = given.out / "family_calibration.jsonl", given.out / "family_calibration.json"
    told = json.loads(document.read_text()) if document.exists() else {"rows": [], "references": {}}
    references = told["references"]
    for case in given.only:
        if case not in references:
            *parts, error = problem_of(case).exact()
            references[case] = [*(np.asarray(each).tolist() for each in parts), error]
    keys = [Key(case, seed, METHOD_VERSION) for case in given.only for seed in range(given.seeds)]
    lines.complete(keys, path, run, given.workers)
    found: dict[str, list[dict[str, Any]]] = {}
    for key, each in sorted(lines.read(path, Key).items()):
        if key.method_version == METHOD_VERSION and key.case in references:
            found.setdefault(key.case, []).append(each)
    new = {row["case"]: row for row in summarise(found, references)}
    rows = [*(row for row in told["rows"] if row["case"] not in new), *new.values()]
    rows.sort(key=lambda row: list(PROBLEMS).index(row["case"]))
    print(show(rows))
    settings = {"tolerance": TOLERANCE, "false_alarm": FALSE_ALARM, "commit": lines.describe_commit()}
    document.write_text(json.dumps({"settings": settings, "rows": rows, "references": references}, indent=1) + "\n")
    methods = {row["case"]: ages.of_lines(found[row["case"]]) if row["case"] in new else None for row in rows}
    ages.record(document, methods)


if __name__ == "__main__":
    main()
