"""Coverage of the errors of sensitivities and of average effects, over many seeds, against exact answers.

    python benchmarks/workflow_answers.py                    all problems, by weights and by paths
    python benchmarks/workflow_answers.py --seeds 20
    python benchmarks/workflow_answers.py --memory           of average effects of a mixed model, 10^6 and 10^7 rows

Logistic, 300 x 5, Poisson, 300 x 4 with an offset, and a mixed logistic regression of 14 groups of ten rows, whose
effects are those of each row's own group, of new ones, and by halves of the groups; exact answers are those of a
million draws with weights. `coverage` is the share of numbers within value +- 1.96 error, `rms` the root mean square of
errors in stated ones, by kind of number, and `half` the share within half of that, the control. Of the mixed model
every seed is kept, and not run again; another control has forgotten what is unknown of effects given theta.

Memory is the largest that is anonymous (RssAnon, looked at every 10 ms) before and during each answer, and VmHWM, in
MB, in a fresh process each, of tables on disk as in mixed_scale.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ages
import numpy as np

import tallbayes as tb

RESULTS = Path(__file__).parent / "results" / "workflow_answers.json"
DRAWS, BATCHES = 200_000, 5
KINDS = ("mean", "sd", "lower", "upper")


def logistic_rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 5))
    x[:, 4] = x[:, 0] * (x[:, 1] > 0)
    y = rng.random(300) < 1 / (1 + np.exp(-x @ [1.0, 0.5, -0.7, 0.3, 1.0]))
    return {"x": x, "y": y.astype(float)}


def poisson_rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    x, offset = rng.normal(size=(300, 4)), rng.normal(size=300)
    return {"x": x, "y": rng.poisson(np.exp(x @ [0.3, -0.2, 0.4, 0.0] + offset - 1)).astype(float), "offset": offset}


PROBLEMS: dict[str, tuple[Any, dict[str, np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "logistic": (tb.families.logistic(), logistic_rows(), lambda eta: np.logaddexp(0, eta)),
    "poisson": (tb.families.poisson(), poisson_rows(), np.exp),
}
MEANS = {"logistic": lambda eta: 1 / (1 + np.exp(-eta)), "poisson": np.exp}


def exact(name: str) -> dict[str, np.ndarray]:
    """Sensitivities by (density, parameter, mean or sd); mean, sd and ends of an effect, of its ratio, of a slope."""
    _, rows, cumulant = PROBLEMS[name]
    x, y, offset = rows["x"], rows["y"], rows.get("offset", 0.0)
    start = tb.estimate(PROBLEMS[name][0], rows, tolerance=0.02, seed=10**6)
    mean, covariance = start["mean"].value, start.posterior.anchor.covariance
    root, d = np.linalg.cholesky(covariance) * 1.1, x.shape[1]
    parts: list[list[np.ndarray]] = []
    for batch in range(BATCHES):
        rng = np.random.default_rng([7, batch])
        z = rng.standard_normal((DRAWS // 2, d)) * np.sqrt(9 / rng.chisquare(9, DRAWS // 2))[:, None]
        z = np.concatenate([z, -z])
        theta = mean + z @ root.T
        likelihood, high, low, slope = (np.zeros(DRAWS) for _ in range(4))
        for some in np.array_split(np.arange(DRAWS), 20):
            eta = theta[some] @ x.T + offset
            likelihood[some] = eta @ y - cumulant(eta).sum(axis=1)
            rest = eta - theta[some, :1] * x[:, 0]
            high[some], low[some] = (MEANS[name](rest + theta[some, :1] * v).mean(axis=1) for v in (1.0, 0.0))
            p = MEANS[name](eta)
            slope[some] = theta[some, 0] * (p * (1 - p) if name == "logistic" else p).mean(axis=1)
        prior = -0.5 * np.sum(theta**2, axis=1)
        log = likelihood + prior + 0.5 * (9 + d) * np.log1p(np.sum(z**2, axis=1) / 9)
        parts.append([log, theta, prior, likelihood, high - low, high / low, slope])
    log, theta, prior, likelihood, *averages = (np.concatenate(each) for each in zip(*parts, strict=True))
    w = np.exp(log - log.max())
    w /= w.sum()
    moved, sd = theta - w @ theta, np.sqrt(w @ (theta - w @ theta) ** 2)
    found = []
    for density in (prior, likelihood):
        own = (density - w @ density) * w
        found.append(np.log(2) * np.stack([own @ moved / sd, own @ moved**2 / (2 * sd**2)], axis=1))
    told = {"sensitivity": np.stack(found)}
    for label, values in zip(("effect", "ratio", "slope"), averages, strict=True):
        centre, order = w @ values, np.argsort(values)
        ends = np.interp([0.025, 0.975], np.cumsum(w[order]), values[order])
        told[label] = np.array([centre, np.sqrt(w @ (values - centre) ** 2), *ends])
    return told


def answers(name: str, seed: int, method: Any) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Values and errors."""
    model, rows, _ = PROBLEMS[name]
    result = tb.estimate(model, rows, tolerance=0.05, seed=seed, method=method)
    sensitivity = result.sensitivity()
    found = {"sensitivity": (sensitivity.values[-2:], sensitivity.errors[-2:])}
    asked = {
        "effect": result.average_effect(0, 1.0, 0.0),
        "ratio": result.average_effect(0, 1.0, 0.0, ratio=True),
        "slope": result.average_slope(0),
    }
    return found | {label: (each.values, each.errors) for label, each in asked.items()}


def summarised(scores: dict[str, list[np.ndarray]]) -> dict[str, Any]:
    """By kind of number."""
    told: dict[str, Any] = {}
    for label, each in scores.items():
        z = np.stack(each)
        if label == "sensitivity":
            named = {
                f"{a} of the {b}": z[:, i, :, j].ravel()
                for i, b in enumerate(("prior", "likelihood"))
                for j, a in enumerate(("mean", "sd"))
            }
        else:
            named = {kind: z[:, place] for place, kind in enumerate(KINDS)}
        for kind, own in named.items():
            told[f"{label}: {kind}"] = {
                "coverage": round(float(np.mean(np.abs(own) < 1.96)), 4),
                "half": round(float(np.mean(np.abs(own) < 0.98)), 4),
                "rms": round(float(np.sqrt(np.mean(own**2))), 3),
                "worst": round(float(np.abs(own).max()), 2),
                "numbers": len(own),
            }
    return told


def small_schools() -> Any:
    """Those of the tests."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import small_schools

    return small_schools


def mixed_draws() -> dict[str, np.ndarray]:
    """Effects at draws of their posterior."""
    own_schools = small_schools()
    schools = np.repeat(np.arange(own_schools.SCHOOLS), own_schools.PUPILS)
    x, parts = own_schools.rows()["x"], []
    nodes, weights = np.polynomial.hermite_e.hermegauss(31)
    for batch in range(4):
        drawn = own_schools.drawn(40_000, seed=100 + batch)

        def mean(x: float, own: np.ndarray, drawn: Any = drawn) -> np.ndarray:
            return np.mean(1 / (1 + np.exp(-drawn.eta(x, own))), axis=1)

        level, slope, tau = drawn.theta.T[:, :, None]
        high, low = (1 / (1 + np.exp(-(level + slope * v + tau * nodes))) @ (weights / weights.sum()) for v in (1, 0))
        slopes = np.zeros(len(drawn.weight))
        for each, school in zip(x, schools, strict=True):
            p = 1 / (1 + np.exp(-drawn.eta(each, np.array([school]))[:, 0]))
            slopes += p * (1 - p) * drawn.theta[:, 1] / len(x)
        one = np.arange(3, 4)
        parts.append(
            {
                "own": mean(1.0, schools) - mean(0.0, schools),
                "ratio": mean(1.0, schools) / mean(0.0, schools),
                "slope": slopes,
                "new": high - low,
                "one school": mean(1.0, one) - mean(-3.0, one),
                "weight": drawn.weight,
            }
        )
    return {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}


def mixed_exact() -> dict[str, np.ndarray]:
    """Mean, sd and ends."""
    drawn = mixed_draws()
    w, told = drawn.pop("weight"), {}
    w = w / w.sum()
    for label, values in drawn.items():
        centre, order = w @ values, np.argsort(values)
        ends = np.interp([0.025, 0.975], np.cumsum(w[order]), values[order])
        told[label] = np.array([centre, np.sqrt(w @ (values - centre) ** 2), *ends])
    return told


def mixed_answers(schools: Any, seed: int, method: Any, dropped: bool = False) -> dict[str, tuple[Any, Any]]:
    """Values and errors; a control has forgotten what is unknown of effects given theta."""
    result = schools.fitted(seed=seed, method=method)
    table = schools.rows()
    inside = np.repeat(np.arange(schools.SCHOOLS), schools.PUPILS) == 3
    third = {name: list(np.asarray(each)[inside]) for name, each in table.items()}
    if dropped:
        from tallbayes.results.averages import targets

        found = targets._drawn
        targets._drawn = lambda *given: [_without_noise(each) for each in found(*given)]
    try:
        asked = {"one school": result.average_effect("x", 1.0, -3.0, rows=third)}
        if not dropped:
            asked |= {
                "own": result.average_effect("x", 1.0, 0.0),
                "ratio": result.average_effect("x", 1.0, 0.0, ratio=True),
                "slope": result.average_slope("x"),
                "new": result.average_effect("x", 1.0, 0.0, groups="new"),
            }
    finally:
        if dropped:
            targets._drawn = found
    return {label: (each.values, each.errors) for label, each in asked.items()}


def _without_noise(drawn: Any) -> Any:
    from dataclasses import replace

    return replace(drawn, noise=None)


def keep(told: dict[str, Any]) -> None:
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    ages.record(RESULTS, ages.grown(RESULTS.name, before, told))


def mixed_coverage(told: dict[str, Any], seeds: int, path_seeds: int) -> None:
    """Seeds that are known are not run again; a control has bars half as long, another lacks what is unknown of
    effects."""
    missing: dict[str, list[int]] = {}
    runs = ("weights", None, seeds, False), ("control", None, 10, True), ("paths", tb.Anchored(), path_seeds, False)
    for how, _, count, _ in runs:
        known = told.setdefault("runs", {}).setdefault(f"mixed by {how}", {})
        missing[how] = [seed for seed in range(count) if str(seed) not in known]
    if not any(missing.values()):
        return
    if "mixed truth" not in told:
        told["mixed truth"] = {label: each.tolist() for label, each in mixed_exact().items()}
        keep(told)
    schools, truth = small_schools(), {label: np.array(each) for label, each in told["mixed truth"].items()}
    for how, method, _, dropped in runs:
        known = told["runs"][f"mixed by {how}"]
        for seed in missing[how]:
            found = mixed_answers(schools, seed, method, dropped)
            known[str(seed)] = {
                label: np.round((values - truth[label]) / errors, 4).tolist()
                for label, (values, errors) in found.items()
            }
            labels = [label for label in truth if label in known[str(seed)]]
            scores = {label: [np.array(run[label]) for run in known.values()] for label in labels}
            told[f"mixed by {how}"] = {"seeds": len(known), **summarised(scores)}
            keep(told)
        print("mixed", how, json.dumps(told.get(f"mixed by {how}"), indent=1), flush=True)


MEMORY = """
import json, sys, threading, time
import tallbayes as tb

largest, running = 0.0, True

def status(name):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(name)) / 1024

def watch():
    global largest
    while running:
        largest = max(largest, status("RssAnon"))
        time.sleep(0.01)

threading.Thread(target=watch, daemon=True).start()
result = tb.fit("y ~ x1 + x2 + (1 | g)", tb.open_table(sys.argv[1]), sys.argv[2], tolerance=0.1)
told = {"of the fit": round(largest), "status": result.status.name}
asked = {"own": {}, "new": {"groups": "new"}}
for name, options in asked.items():
    before, spent = status("RssAnon"), time.process_time()
    largest = 0.0
    found = result.average_effect("x1", 1.0, 0.0, **options)
    told[name] = {
        "before": round(before), "largest": round(largest), "processor_seconds": round(time.process_time() - spent, 1),
        "mean": found.mean.value, "sd": found.sd.value, "errors": found.errors.tolist(), "rows": found.rows,
    }
told["resident"] = round(status("VmHWM"))
print(json.dumps(told))
"""


def memory(told: dict[str, Any], family: str, counts: list[int], folder: Path | None) -> None:
    from mixed_scale import write_rows
    from processes import HIDDEN

    environment = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    for count in counts:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            table = write_rows(Path(place), family, count)
            command = [sys.executable, "-c", MEMORY, str(table), family]
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=environment)
        name = f"memory: {family}, {count} rows"
        told[name] = json.loads(done.stdout.splitlines()[-1])
        keep(told)
        print(name, json.dumps(told[name]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--path-seeds", type=int, default=200)
    parser.add_argument("--problems", nargs="*", default=[*PROBLEMS, "mixed"])
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--families", nargs="*", default=["linear", "logistic"])
    parser.add_argument("--rows", nargs="*", type=int, default=[10**6, 10**7])
    parser.add_argument("--folder", type=Path, help="for tables; default the temporary folder")
    options = parser.parse_args()
    told = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.memory:
        for family in options.families:
            memory(told, family, options.rows, options.folder)
        return
    if "mixed" in options.problems:
        mixed_coverage(told, options.seeds, options.path_seeds)
    for name in (each for each in options.problems if each in PROBLEMS):
        truth = exact(name)
        for how, method, seeds in (("weights", None, options.seeds), ("paths", tb.Anchored(), options.path_seeds)):
            scores: dict[str, list[np.ndarray]] = {}
            for seed in range(seeds):
                for label, (values, errors) in answers(name, seed, method).items():
                    scores.setdefault(label, []).append((values - truth[label]) / errors)
                if (seed + 1) % 20 == 0 or seed + 1 == seeds:
                    told[f"{name} by {how}"] = {"seeds": seed + 1, **summarised(scores)}
                    keep(told)
            print(name, how, json.dumps(told.get(f"{name} by {how}"), indent=1), flush=True)


if __name__ == "__main__":
    main()
