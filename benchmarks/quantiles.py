"""Are the stated errors of interval ends and probabilities true? Many seeds of a small logistic model.

    python benchmarks/quantiles.py [--seeds 100]

Two problems of three coefficients: the paper's, 1,000 rows and prior N(0, 1), and a harder one, 200 rows and prior
N(0, 2^2), less Gaussian, once more with paths that are averaged and kept at stops; the truth is by quadrature. For
every seed the run stops by its own rule at tolerance 0.02; then the 2.5% and 97.5% ends of every coefficient and
P(a > b) are read off its posterior. RMSE / stated error is the root mean square of the errors over that of the stated
standard errors: 1 if these are true and nothing is left of the bias, which is stated by a bound of its own. Coverage is
the share of 95% intervals, that bound included, that hold the truth.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import ages
import numpy as np
from scipy.interpolate import CubicSpline

import tallbayes as tb
from tallbayes.experiments.problem import make_rows

RESULTS = Path(__file__).parent / "results" / "quantiles.json"
TOLERANCE = 0.02
ENDS = (0.025, 0.975)


class Problem(NamedTuple):
    name: str
    rows: dict[str, np.ndarray]
    scale: float
    pair: tuple[int, int]
    window: int | None = None

    @property
    def chance(self) -> str:
        return "P(theta[{}] > theta[{}])".format(*self.pair)

    @property
    def difference(self) -> np.ndarray:
        return np.eye(3)[self.pair[0]] - np.eye(3)[self.pair[1]]


def problems() -> list[Problem]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(200, 3))
    y = (rng.random(200) < 1 / (1 + np.exp(-x @ [1.0, -0.5, 0.8]))).astype(float)
    return [
        Problem("the paper's, 1,000 rows", make_rows(1000).data, 1.0, (1, 0)),
        Problem("200 rows, wide prior", {"x": x, "y": y}, 2.0, (0, 2)),
        Problem("the same, with a window of 4 dT", {"x": x, "y": y}, 2.0, (0, 2), window=4),
    ]


def truth(problem: Problem) -> dict[str, float]:
    """Ends and P(a > b) by quadrature on a grid."""
    anchor = tb.estimate(tb.families.logistic(problem.scale), problem.rows, tolerance=0.5).anchor
    found = {}
    for j in range(3):
        at, below = distribution(problem, anchor, np.eye(3)[j])
        for p in ENDS:
            found[f"{p:.1%} of theta[{j}]"] = float(np.interp(p, below, at))
    at, below = distribution(problem, anchor, problem.difference)
    found[problem.chance] = float(1 - np.interp(0.0, at, below))
    return found


def distribution(
    problem: Problem, anchor: Any, direction: np.ndarray, points: int = 81
) -> tuple[np.ndarray, np.ndarray]:
    """The distribution function of direction . theta: its density is a sum over the two other axes of a grid, which
    converges faster than any power of the step, and a spline through it is integrated."""
    axes = np.eye(3)
    axes[int(np.argmax(np.abs(direction)))] = direction
    axes = axes[np.argsort([not np.array_equal(each, direction) for each in axes], kind="stable")]
    sd = np.sqrt(np.einsum("ij,jk,ik->i", axes, anchor.covariance, axes))
    t = np.linspace(-7, 7, points)
    grid = np.stack(np.meshgrid(t, t, t, indexing="ij"), axis=-1).reshape(-1, 3)
    theta = (axes @ anchor.mode + sd * grid) @ np.linalg.inv(axes).T
    log_density = -0.5 * np.sum((theta / problem.scale) ** 2, axis=1)
    for x, y in zip(problem.rows["x"], problem.rows["y"], strict=True):
        eta = theta @ x
        log_density += y * eta - np.logaddexp(0, eta)
    density = np.exp(log_density - log_density.max()).reshape(points, -1).sum(axis=1)
    spline = CubicSpline(t, density).antiderivative()
    fine = np.linspace(-7, 7, 20_001)
    return direction @ anchor.mode + sd[0] * fine, spline(fine) / spline(7.0)


def answers(problem: Problem, result: tb.Result) -> dict[str, tuple[float, float, float, float]]:
    """Value, standard error, bias bound and half width of the 95% interval, by name."""
    ends = result.posterior.quantile(ENDS)
    found = {}
    for place, label in enumerate(f"{p:.1%} of theta[{j}]" for p in ENDS for j in range(3)):
        found[label] = _numbers(ends, place)
    a, b = problem.pair
    line = result.posterior.probability({f"[{a}]": 1, f"[{b}]": -1}, above=0.0)
    event = result.posterior.probability(lambda theta: theta[a] > theta[b])
    found |= {problem.chance: _numbers(line, 0), f"{problem.chance}, as an event": _numbers(event, 0)}
    return found


def _numbers(estimate: Any, place: int) -> tuple[float, float, float, float]:
    return tuple(
        float(each[place])
        for each in (estimate.flat_value, estimate.flat_standard_error, estimate.flat_bias_bound, estimate.half_width())
    )


def summarise(runs: list[dict[str, Any]], exact: dict[str, float]) -> dict[str, Any]:
    table = {}
    for label in runs[0]:
        values = np.array([run[label] for run in runs])
        error = values[:, 0] - exact[label.removesuffix(", as an event")]
        table[label] = {
            "truth": exact[label.removesuffix(", as an event")],
            "rmse": float(np.sqrt(np.mean(error**2))),
            "stated": float(np.sqrt(np.mean(values[:, 1] ** 2))),
            "bias": float(error.mean()),
            "bias_bound": float(values[:, 2].mean()),
            "coverage": float(np.mean(np.abs(error) <= values[:, 3])),
        }
    return table


def study(problem: Problem, seeds: int) -> dict[str, Any]:
    exact, model = truth(problem), tb.families.logistic(problem.scale)
    method = tb.Anchored(window=problem.window)
    results = [tb.estimate(model, problem.rows, tolerance=TOLERANCE, seed=s, method=method) for s in range(seeds)]
    table = summarise([answers(problem, result) for result in results], exact)
    print(f"\n{problem.name:38}{'truth':>9}{'RMSE':>9}{'stated':>9}{'ratio':>7}{'mean off':>10}{'coverage':>10}")
    for label, row in table.items():
        print(
            f"{label:38}{row['truth']:9.4f}{row['rmse']:9.5f}{row['stated']:9.5f}{row['rmse'] / row['stated']:7.2f}"
            f"{row['bias']:10.5f}{row['coverage']:10.0%}",
            flush=True,
        )
    return {"converged": sum(result.converged for result in results), "answers": table}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=100)
    options = parser.parse_args()
    started = time.monotonic()
    found = {problem.name: study(problem, options.seeds) for problem in problems()}
    settings = {"seeds": options.seeds, "tolerance": TOLERANCE, "seconds": round(time.monotonic() - started, 1)}
    RESULTS.write_text(json.dumps(settings | {"problems": found}, indent=1) + "\n")
    ages.record(RESULTS)


if __name__ == "__main__":
    main()
