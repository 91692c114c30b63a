"""Coverage of the errors of sensitivities and of average effects, over many seeds, against exact answers.

    python benchmarks/workflow_answers.py                    both problems, by weights and by paths
    python benchmarks/workflow_answers.py --seeds 20

Logistic, 300 x 5, and Poisson, 300 x 4 with an offset; exact answers are those of a million draws with weights.
`coverage` is the share of numbers within value +- 1.96 error, `rms` the root mean square of errors in stated ones, by
kind of number.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
                "rms": round(float(np.sqrt(np.mean(own**2))), 3),
                "worst": round(float(np.abs(own).max()), 2),
                "numbers": len(own),
            }
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--path-seeds", type=int, default=200)
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    options = parser.parse_args()
    told = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in options.problems:
        truth = exact(name)
        for how, method, seeds in (("weights", None, options.seeds), ("paths", tb.Anchored(), options.path_seeds)):
            scores: dict[str, list[np.ndarray]] = {}
            for seed in range(seeds):
                for label, (values, errors) in answers(name, seed, method).items():
                    scores.setdefault(label, []).append((values - truth[label]) / errors)
                if (seed + 1) % 20 == 0 or seed + 1 == seeds:
                    told[f"{name} by {how}"] = {"seeds": seed + 1, **summarised(scores)}
                    RESULTS.write_text(json.dumps(told, indent=2) + "\n")
            print(name, how, json.dumps(told.get(f"{name} by {how}"), indent=1), flush=True)


if __name__ == "__main__":
    main()
