"""Leave-one-out: are its Monte Carlo errors true, what does it cost on tall tables, and what do others say?

    python benchmarks/leave_one_out.py [--seeds 200] [--tall 6,7] [--only coverage|tall|others]

Coverage: for every seed draws of its own, on four tables of each kind by turns, against a reference in NumPy that has
no code of it: importance draws by the hundred thousand with the integral of 1 / p_i under a Gaussian as a control, or
a grid where parameters are few. Three kinds: logistic 300 x 5; steep, logistic 200 x 20 with large coefficients;
outlier, 60 x 3 with a row far out on the wrong side.
Tall: 10^k rows, d = 20, seconds and memory beyond the fit. Others: ArviZ's PSIS-LOO on exact draws of the same
posteriors, and the subsampled LOO of R's loo where it is installed. What is finished is kept, and not run again.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import ages
import numpy as np
from scipy.special import logsumexp

import tallbayes as tb

RESULTS = Path(__file__).parent / "results" / "leave_one_out.json"
KINDS = {"logistic-300-5": (300, 5, 1.0), "steep-200-20": (200, 20, 1.5), "outlier-60-3": (60, 3, 1.0)}
DRAWS = {"logistic-300-5": 200_000, "steep-200-20": 400_000}
REACH, POINTS = 10.0, 51
TABLES, TOLERANCE = 4, 0.03
PART = 20_000
FREEDOM, WIDER = 8.0, 1.1


def rows_of(kind: str, seed: int) -> dict[str, np.ndarray]:
    count, d, scale = KINDS[kind]
    rng = np.random.default_rng(1_000 + seed)
    x = rng.normal(size=(count, d))
    x[:, -1] = 1.0
    theta = rng.normal(size=d) * (scale if kind.startswith("steep") else np.sqrt(3 / d))
    y = (rng.random(count) < 1 / (1 + np.exp(-x @ theta))).astype(float)
    if kind.startswith("outlier"):
        x[0, 0] = 6.0
        y[0] = float(theta[0] < 0)
    return {"x": x, "y": y}


class Reference:
    """Logistic regression with prior N(0, I): Newton's mode, and draws of a t about it with weights."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self.x, self.y, d = x, y, x.shape[1]
        theta = np.zeros(d)
        for _ in range(50):
            p = 1 / (1 + np.exp(-x @ theta))
            curvature = np.eye(d) + (x.T * (p * (1 - p))) @ x
            theta = theta + np.linalg.solve(curvature, x.T @ (y - p) - theta)
        self.mode, self.root = theta, np.linalg.inv(np.linalg.cholesky(curvature)).T

    def with_own_moments(self, rng: np.random.Generator) -> Reference:
        """About the posterior's mean and covariance, which draws about the mode say."""
        for _ in range(2):
            theta, log_w, _ = self.draws(rng, PART)
            w = np.exp(log_w - log_w.max())
            self.mode = w @ theta / w.sum()
            self.root = np.linalg.cholesky(np.cov(theta.T, aweights=w))
        return self

    def draws(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """theta, log pi / q and log G / q up to constants."""
        d = len(self.mode)
        z = rng.standard_normal((count, d)) * (WIDER * np.sqrt(FREEDOM / rng.chisquare(FREEDOM, count)))[:, None]
        theta = self.mode + z @ self.root.T
        square = np.sum(z**2, axis=1)
        log_q = -0.5 * (FREEDOM + d) * np.log1p(square / (FREEDOM * WIDER**2))
        eta = theta @ self.x.T
        log_pi = eta @ self.y - np.logaddexp(0, eta).sum(axis=1) - 0.5 * np.sum(theta**2, axis=1)
        return theta, log_pi - log_q, -0.5 * square - log_q


def by_draws(x: np.ndarray, y: np.ndarray, seed: int, count: int) -> np.ndarray:
    """log p(y_i | y_-i) = -log E 1 / p_i, with that of the Gaussian, known by quadrature, as a control."""
    rng = np.random.default_rng(7_000_000 + seed)
    found = Reference(x, y).with_own_moments(rng)
    sign = 2 * y - 1
    mean, sd = sign * (x @ found.mode), np.sqrt(np.sum((x @ found.root) ** 2, axis=1))
    # E (1 + exp -eta) of a normal eta has a closed form.
    exact = 1 + np.exp(-mean + sd**2 / 2)
    sums: Any = 0.0
    top = None
    for _ in range(count // PART):
        theta, log_w, log_g = found.draws(rng, PART)
        top = (log_w.max(), log_g.max()) if top is None else top
        w, g = np.exp(log_w - top[0]), np.exp(log_g - top[1])
        inverse = 1 + np.exp(-(theta @ x.T) * sign)
        sums = sums + np.concatenate([[w.sum()], [g.sum()], w @ inverse, g @ inverse])
    n = len(y)
    ratio = (sums[2 : 2 + n] / sums[0]) / (sums[2 + n :] / sums[1])
    return -np.log(exact * ratio)


def by_grid(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The same of few parameters, by the trapezoidal rule."""
    model, sign = Reference(x, y), 2 * y - 1
    axis = np.linspace(-REACH, REACH, POINTS)
    z = np.stack(np.meshgrid(*[axis] * x.shape[1], indexing="ij"), axis=-1).reshape(-1, x.shape[1])
    theta = model.mode + z @ model.root.T
    eta = theta @ x.T
    log_p = -np.logaddexp(0, -eta * sign)
    log_pi = log_p.sum(axis=1) - 0.5 * np.sum(theta**2, axis=1)
    return logsumexp(log_pi) - logsumexp(log_pi[:, None] - log_p, axis=0)


def reference(kind: str, rows: dict[str, np.ndarray], seed: int) -> np.ndarray:
    if kind.startswith("outlier"):
        return by_grid(rows["x"], rows["y"])
    return by_draws(rows["x"], rows["y"], seed, DRAWS[kind])


@cache
def table(kind: str, number: int) -> tuple[np.ndarray, tb.Result]:
    """The reference of a table, and its fit."""
    rows = rows_of(kind, number)
    return reference(kind, rows, number), tb.estimate(tb.families.logistic(), rows, tolerance=0.05)


def one(kind: str, seed: int) -> dict[str, Any]:
    exact, result = table(kind, seed % TABLES)
    started = time.monotonic()
    loo = result.loo(pointwise=True, seed=seed, tolerance=TOLERANCE)
    assert loo.pointwise is not None
    return {
        "truth": float(exact.sum()),
        "elpd": loo.elpd,
        "sampling_error": loo.sampling_error,
        "standard_error": loo.standard_error,
        "bias_bound": loo.bias_bound,
        "interval": list(loo.interval),
        "status": loo.status,
        "draws": loo.draws,
        "worst_row": float(np.abs(loo.pointwise - exact).max()),
        "seconds": time.monotonic() - started,
    }


def coverage(known: dict[str, Any], seeds: int) -> None:
    for kind in ("outlier-60-3", "logistic-300-5", "steep-200-20"):
        runs = known.setdefault("coverage", {}).setdefault(kind, {})
        for seed in range(seeds):
            if str(seed) not in runs:
                runs[str(seed)] = one(kind, seed)
                if seed % 10 == 9:
                    keep(known)
        keep(known)
        print(kind, summary(list(runs.values())), flush=True)


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    error = np.array([run["elpd"] - run["truth"] for run in runs])
    certified = np.array([run["status"] == "certified" for run in runs])
    stated = np.array([run["standard_error"] for run in runs])
    sampling = np.array([run["sampling_error"] for run in runs])
    ends = np.array([run["interval"] for run in runs])
    # Intervals half as long are the control.
    held, half = (np.abs(error) <= share * np.diff(ends, axis=1)[:, 0] / 2 for share in (1.0, 0.5))
    return {
        "runs": len(runs),
        "certified": int(certified.sum()),
        "coverage": float(held[certified].mean()),
        "half": float(half[certified].mean()),
        "rmse_over_stated": float(np.sqrt(np.mean(error[certified] ** 2) / np.mean(stated[certified] ** 2))),
        "rmse_over_sampling_error": float(np.sqrt(np.mean((error / sampling)[certified] ** 2))),
        "largest_bias_bound": float(max(run["bias_bound"] for run in runs)),
        "seconds": float(np.median([run["seconds"] for run in runs])),
    }


def tall(known: dict[str, Any], powers: list[int]) -> None:
    for power in powers:
        runs = known.setdefault("tall", {})
        if str(power) in runs:
            continue
        count, d = 10**power, 20
        rng = np.random.default_rng(0)
        x = np.empty((count, d), np.float32)
        for start in range(0, count, 10**6):
            x[start : start + 10**6] = rng.standard_normal((min(10**6, count), d), np.float32)
        x[:, -1] = 1
        theta = (np.random.default_rng(0).normal(size=d) * np.sqrt(3 / d)).astype(np.float32)
        y = (rng.random(count, np.float32) < 1 / (1 + np.exp(-x @ theta))).astype(np.float32)
        started = time.monotonic()
        result = tb.estimate(tb.families.logistic(), {"x": x, "y": y}, tolerance=0.05)
        fitted, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        cpu = time.process_time()
        loo = result.loo()
        runs[str(power)] = {
            "fit_seconds": fitted - started,
            "seconds": time.monotonic() - fitted,
            "processor_seconds": time.process_time() - cpu,
            "more_memory_mb": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
            "elpd": loo.elpd,
            "sampling_error": loo.sampling_error,
            "standard_error": loo.standard_error,
            "bias_bound": loo.bias_bound,
            "p_loo": loo.p_loo,
            "status": loo.status,
            "draws": loo.draws,
        }
        print(power, runs[str(power)], flush=True)
        keep(known)


def others(known: dict[str, Any], seeds: int = TABLES) -> None:
    """ArviZ on 4,000 draws from the weights of many, where its k allows and where it does not."""
    import arviz as az

    for kind in KINDS:
        if kind in known.setdefault("arviz", {}):
            continue
        runs = []
        for seed in range(seeds):
            rows = rows_of(kind, seed)
            exact, rng = reference(kind, rows, seed), np.random.default_rng(9_000 + seed)
            theta, log_w, _ = Reference(rows["x"], rows["y"]).with_own_moments(rng).draws(rng, 5 * PART)
            w = np.exp(log_w - log_w.max())
            theta = theta[rng.choice(5 * PART, 4_000, p=w / w.sum())]
            eta = theta @ rows["x"].T
            log_p = rows["y"] * eta - np.logaddexp(0, eta)
            data = az.from_dict(posterior={"theta": theta[None]}, log_likelihood={"y": log_p[None]})
            psis = az.loo(data, pointwise=True)
            k, own = np.asarray(psis.pareto_k), np.asarray(psis.loo_i)
            mine = tb.estimate(tb.families.logistic(), rows, tolerance=0.05, seed=seed).loo(pointwise=True, seed=seed)
            bad = k > 0.7
            runs.append(
                {
                    "rows_above": int(bad.sum()),
                    "psis": float(own.sum() - exact.sum()),
                    "ours": float(mine.elpd - exact.sum()),
                    "stated": mine.error,
                    "psis_where_bad": float(np.abs(own - exact)[bad].max(initial=0.0)),
                    "ours_where_bad": float(np.abs(mine.pointwise - exact)[bad].max(initial=0.0)),
                }
            )
        known["arviz"][kind] = runs
        keep(known)
        rms = {name: float(np.sqrt(np.mean([run[name] ** 2 for run in runs]))) for name in runs[0]}
        print("arviz", kind, rms, flush=True)
    subsampled(known)


def subsampled(known: dict[str, Any]) -> None:
    """R's loo_subsample on 100,000 rows, with draws of the Gaussian; left out where R or its loo is not installed."""
    if shutil.which("Rscript") is None or "r-loo" in known:
        return
    count, d = 10**5, 20
    rng = np.random.default_rng(5)
    x = rng.normal(size=(count, d))
    x[:, -1] = 1
    theta = np.random.default_rng(0).normal(size=d) * np.sqrt(3 / d)
    y = (rng.random(count) < 1 / (1 + np.exp(-x @ theta))).astype(float)
    result = tb.estimate(tb.families.logistic(), {"x": x, "y": y}, tolerance=0.05)
    started = time.monotonic()
    mine = result.loo()
    seconds = time.monotonic() - started
    model = Reference(x, y)
    draws = model.mode + rng.standard_normal((1_000, d)) @ model.root.T
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        np.column_stack([y, x]).tofile(place / "rows.bin")
        draws.tofile(place / "draws.bin")
        (place / "run.R").write_text(R_PROGRAM.format(folder=folder, count=count, d=d))
        found = subprocess.run(["Rscript", str(place / "run.R")], capture_output=True, text=True, check=False)
    if found.returncode:
        print("R's loo:", found.stderr[-300:])
        return
    value, error, subsampling, r_seconds = (float(each) for each in found.stdout.split()[-4:])
    known["r-loo"] = {
        "elpd": value,
        "sampling_error": error,
        "subsampling_error": subsampling,
        "seconds": r_seconds,
        "ours": {"elpd": mine.elpd, "sampling_error": mine.sampling_error, "error": mine.error, "seconds": seconds},
    }
    keep(known)
    print("R's loo", known["r-loo"], flush=True)


R_PROGRAM = """
suppressMessages(library(loo))
rows <- matrix(readBin("{folder}/rows.bin", "double", {count} * ({d} + 1)), {count}, {d} + 1, byrow = TRUE)
draws <- matrix(readBin("{folder}/draws.bin", "double", 1000 * {d}), 1000, {d}, byrow = TRUE)
llfun <- function(data_i, draws) {{
  eta <- draws %*% data_i[1, -1]
  data_i[1, 1] * eta - log1p(exp(eta))
}}
begin <- proc.time()[3]
found <- loo_subsample(llfun, data = rows, draws = draws, observations = 400, loo_approximation = "plpd",
                       r_eff = rep(1, {count}))
cat(found$estimates["elpd_loo", c("Estimate", "SE", "subsampling SE")], proc.time()[3] - begin)
"""


def keep(known: dict[str, Any]) -> None:
    known["summary"] = {kind: summary(list(runs.values())) for kind, runs in known.get("coverage", {}).items() if runs}
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    ages.record(RESULTS, ages.grown(RESULTS.name, before, known))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--tall", default="6,7")
    parser.add_argument("--only", choices=("coverage", "tall", "others"))
    options = parser.parse_args()
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if options.only in (None, "coverage"):
        coverage(known, options.seeds)
    if options.only in (None, "tall"):
        tall(known, [int(power) for power in options.tall.split(",")])
    if options.only in (None, "others"):
        others(known)


if __name__ == "__main__":
    main()
