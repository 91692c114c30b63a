"""Is the evidence true? Against quadrature, plain importance sampling and R's bridgesampling, over 200 seeds.

    python benchmarks/evidence.py [--seeds 200] [--case NAME ...] [--without-r] [--out FILE]

Each case is fitted once, and its evidence found with every seed to 0.01 nat: the RMSE, the share of 95% intervals that
hold the reference, and what it took. References are NumPy's and scipy's alone: a grid where there are five parameters
or fewer, and elsewhere 10^5 and more draws of Student's t about the posterior's moments with plain weights, whose own
error is given. bridgesampling has 8,000 draws of an independence sampler, made the same way. The controls drop a
constant and a term, and must not be covered; and intervals half as long must cover about 70%. The ranked case is
`tb.rank(by="evidence")` of a nested pair of logistic regressions, fitted anew for each of fifty seeds, against the
difference of two grids. The tall case is a nested pair of logistic regressions of 10^6 rows, with plain weights about
the mode for a reference; wall and processor seconds are those beyond the fits.

What is in benchmarks/results/evidence.json is not run again, and of a case that takes seconds a seed no seed that is:
delete it, or a case in it, after a change.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import ages
import numpy as np
import problems
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import halfnorm, multivariate_t, norm

import tallbayes as tb

OUT = Path(__file__).parent / "results" / "evidence.json"
TOLERANCE, CHAIN, NODES = 0.01, 8_000, 41
LOGISTIC = ("logistic-300-5", "logistic-1000-20", "steep-200-20")
COUNTS, MIXED, TALL = "poisson-2000-4", "random-intercept-30-5", "pair-1000000-20"
RANKED = "ranked-300-5"
CASES = (*LOGISTIC, COUNTS, RANKED, MIXED, TALL)
GROUPS, EACH = 30, 5
# Of cases that take seconds a seed.
RANKED_SEEDS, TALL_SEEDS = 50, 3
QUANTILE = 1.96

LogJoint = Callable[[np.ndarray], np.ndarray]
Keep = Callable[[], None]


class Reference(NamedTuple):
    value: float
    error: float
    how: str


def glm(rows: dict[str, np.ndarray], counts: bool) -> LogJoint:
    """log p(y, theta) with all constants, priors N(0, 1)."""
    x, y = rows["x"], rows["y"]

    def log_joint(theta: np.ndarray) -> np.ndarray:
        eta = x @ theta.T
        terms = y @ eta - (np.exp(eta) if counts else np.logaddexp(0, eta)).sum(axis=0)
        return terms - (gammaln(y + 1).sum() if counts else 0.0) + norm.logpdf(theta).sum(axis=1)

    return log_joint


def weighed(log_joint: LogJoint, mean: np.ndarray, covariance: np.ndarray, draws: int) -> tuple[Reference, Any]:
    """Plain weights, about moments that are found again twice; and the law that the last draws are of."""
    rng = np.random.default_rng(99)
    for count in (4_000, 8_000, draws):
        law = multivariate_t(mean, covariance, df=8)
        theta = law.rvs(count, random_state=rng).reshape(count, -1)
        parts = np.array_split(theta, max(1, count // 500))
        log_weights = np.concatenate([log_joint(part) for part in parts]) - law.logpdf(theta)
        share = np.exp(log_weights - logsumexp(log_weights))
        if count < draws:
            mean = share @ theta
            covariance = (theta - mean).T @ (share[:, None] * (theta - mean))
    value = float(logsumexp(log_weights) - np.log(draws))
    error = float(np.std(share * draws) / np.sqrt(draws))
    return Reference(value, error, f"{draws:,} draws with plain weights"), law


def on_grid(log_joint: LogJoint, anchor: Any) -> Reference:
    """An even grid of one sd, in as many dimensions as there are: of what is smooth it errs by exp(-2 pi^2)."""
    d = len(anchor.mode)
    axis = np.arange(-7.0, 7.5)
    z = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
    theta = anchor.mode + anchor.displacements(z)
    heights = np.concatenate([log_joint(part) for part in np.array_split(theta, len(theta) // 500)])
    value = float(logsumexp(heights) + np.linalg.slogdet(anchor.whitening)[1])
    return Reference(value, 1e-6, f"a grid of {len(z):,} points")


def chain(log_joint: LogJoint, law: Any) -> np.ndarray:
    """An independence sampler."""
    rng = np.random.default_rng(7)
    proposed = law.rvs(CHAIN, random_state=rng)
    heights = np.concatenate([log_joint(part) for part in np.array_split(proposed, CHAIN // 500)])
    heights = heights - law.logpdf(proposed)
    kept, place = np.empty_like(proposed), 0
    for step in range(CHAIN):
        if np.log(rng.random()) < heights[step] - heights[place]:
            place = step
        kept[step] = proposed[place]
    return kept


R_CODE = """
suppressMessages(library(bridgesampling)); set.seed(1)
theta <- as.matrix(read.csv("theta.csv")); rows <- as.matrix(read.csv("rows.csv"))
y <- rows[, 1]; x <- rows[, -1, drop = FALSE]
target <- function(par, data) {
  eta <- as.vector(x %*% par)
  like <- if (KIND == "poisson") sum(dpois(y, exp(eta), log = TRUE)) else sum(y * eta - log1p(exp(eta)))
  like + sum(dnorm(par, log = TRUE))
}
d <- ncol(theta); names <- colnames(theta)
found <- bridge_sampler(theta, log_posterior = target, data = list(), silent = TRUE,
  lb = setNames(rep(-Inf, d), names), ub = setNames(rep(Inf, d), names))
cat(sprintf("%.10f %.10f\\n", found$logml, error_measures(found)$cv))
"""


def bridge(rows: dict[str, np.ndarray], theta: np.ndarray, kind: str) -> dict[str, Any]:
    """R's number with its coefficient of variation, or why there is none."""
    if shutil.which("Rscript") is None:
        return {"none": "Rscript is not installed"}
    with tempfile.TemporaryDirectory() as folder:
        names = ",".join(f"b{place}" for place in range(theta.shape[1]))
        np.savetxt(Path(folder) / "theta.csv", theta, delimiter=",", header=names, comments="")
        both = np.column_stack([rows["y"], rows["x"]])
        header = ",".join(["y", *names.split(",")])
        np.savetxt(Path(folder) / "rows.csv", both, delimiter=",", header=header, comments="")
        code = f'KIND <- "{kind}"\n' + R_CODE
        begun = time.monotonic()
        done = subprocess.run(["Rscript", "-e", code], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            return {"none": done.stderr[-300:]}
        value, error = map(float, done.stdout.split()[-2:])
        return {"value": value, "error": error, "seconds": time.monotonic() - begun}


def mixed_rows() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    group, x = np.repeat(np.arange(GROUPS), EACH), rng.standard_normal(GROUPS * EACH)
    effect = 0.8 * rng.standard_normal(GROUPS)
    y = rng.random(GROUPS * EACH) < expit(0.3 + 0.6 * x + effect[group])
    return {"y": y.astype(int), "x": x, "g": np.array([f"g{each:02d}" for each in group])}


def mixed_reference(rows: dict[str, np.ndarray]) -> Reference:
    """On a grid of intercept, slope and log sd; effects by 41 nodes, which 61 change by next to nothing."""
    x, y = rows["x"], rows["y"]
    nodes, shares = np.polynomial.hermite_e.hermegauss(NODES)
    shares = shares / shares.sum()
    b0, b1 = np.linspace(-3.2, 3.8, 29), np.linspace(-1.2, 3.0, 25)
    u = np.linspace(-11, 2.0, 105)
    total = []
    for log_sd in u:
        sd = np.exp(log_sd)
        points = np.stack(np.meshgrid(b0, b1, indexing="ij"), axis=-1).reshape(-1, 2)
        heights = []
        for part in np.array_split(points, 8):
            eta = (part[:, :1] + part[:, 1:] * x)[:, :, None] + sd * nodes
            each = y[:, None] * eta - np.logaddexp(0, eta)
            by_group = each.reshape(len(part), GROUPS, EACH, NODES).sum(axis=2)
            heights.append(logsumexp(by_group + np.log(shares), axis=2).sum(axis=1))
        prior = norm.logpdf(points[:, 0], 0, 10) + norm.logpdf(points[:, 1]) + halfnorm.logpdf(sd) + log_sd
        total.append(logsumexp(np.concatenate(heights) + prior))
    volume = np.log((b0[1] - b0[0]) * (b1[1] - b1[0]) * (u[1] - u[0]))
    return Reference(float(logsumexp(total) + volume), 1e-5, "a grid of 29 x 25 x 105")


def over_seeds(result: tb.Result, reference: Reference, seeds: int, runs: dict[str, Any], keep: Keep) -> dict[str, Any]:
    """By runs that are known, and those that are missing."""
    missing = [seed for seed in range(seeds) if str(seed) not in runs]
    if missing:
        result.evidence(TOLERANCE)
    for seed in missing:
        begun, work = time.monotonic(), time.process_time()
        found = result.evidence(TOLERANCE, seed=seed)
        runs[str(seed)] = {
            "value": found.value,
            "interval": list(found.interval),
            "error": found.error,
            "converged": found.converged,
            "laplace": found.laplace,
            "elbo": found.elbo,
            "draws": found.draws,
            "rows_read": found.rows_read,
            "seconds": time.monotonic() - begun,
            "processor_seconds": time.process_time() - work,
        }
        if seed % 10 == 9:
            keep()
    some = [runs[str(seed)] for seed in range(seeds)]
    parts = {name: np.array([run[name] for run in some], float) for name in some[0]}
    errors = parts["value"] - reference.value

    middle, half = parts["interval"].mean(axis=1), np.diff(parts["interval"], axis=1)[:, 0] / 2

    def covered(values: Any, share: float = 1.0) -> float:
        return float(np.mean(np.abs(values - middle) <= share * half))

    return {
        "seeds": seeds,
        "reference": reference._asdict(),
        "coverage": covered(reference.value),
        "rmse": float(np.sqrt(np.mean(errors**2))),
        "mean_error": float(errors.mean()),
        "stated": float(np.sqrt(np.mean(parts["error"] ** 2))),
        "largest": float(np.abs(errors).max()),
        "converged": float(parts["converged"].mean()),
        "laplace_off": some[0]["laplace"] - reference.value,
        "elbo_off": float(parts["elbo"].mean()) - reference.value,
        "draws": float(parts["draws"].mean()),
        "rows_read": float(parts["rows_read"].mean()),
        "seconds": float(parts["seconds"].mean()),
        "controls": {
            "constant": covered(reference.value - 0.5 * np.log(2 * np.pi)),
            "laplace_alone": covered(parts["laplace"]),
            "half": covered(reference.value, 0.5),
        },
    }


def ranked(seeds: int) -> dict[str, Any]:
    """All columns, and all but the first, fitted with every seed: the difference that is told, and its errors."""
    _, rows = problems.make("logistic-300-5")
    every = {"whole": rows, "without": {**rows, "x": np.ascontiguousarray(rows["x"][:, 1:])}}
    model, exact, found = tb.families.logistic(), {}, []
    for seed in range(seeds):
        results = {name: tb.estimate(model, own, tolerance=0.1, seed=seed) for name, own in every.items()}
        if not exact:
            exact = {name: on_grid(glm(every[name], False), each.posterior.anchor) for name, each in results.items()}
        ranking = tb.rank(results, by="evidence")
        places = ranking.names.index("whole"), ranking.names.index("without")
        parts = ranking.differences, ranking.standard_errors, ranking.bias_bounds
        found.append([float(each[places]) for each in parts])
    difference, error, bias = np.array(found).T
    truth = exact["whole"].value - exact["without"].value
    half = QUANTILE * error + bias
    return {
        "seeds": seeds,
        "reference": truth,
        "coverage": float(np.mean(np.abs(difference - truth) <= half)),
        "rmse": float(np.sqrt(np.mean((difference - truth) ** 2))),
        "mean_error": float(np.mean(difference - truth)),
        "stated": float(np.sqrt(np.mean(error**2 + bias**2))),
        "controls": {"constant": float(np.mean(np.abs(difference - truth - 0.5 * np.log(2 * np.pi)) <= half))},
    }


def _holds(found: tb.Evidence, value: float) -> bool:
    return bool(found.interval[0] <= value <= found.interval[1])


def one(name: str, seeds: int, with_r: bool, runs: dict[str, Any], keep: Keep) -> dict[str, Any]:
    if name == MIXED:
        rows = mixed_rows()
        result = tb.fit("y ~ x + (1 | g)", rows, "logistic", tolerance=0.05, standardise=False)
        return over_seeds(result, mixed_reference(rows), seeds, runs, keep)
    if name == RANKED:
        return ranked(RANKED_SEEDS)
    if name == TALL:
        return tall(TALL_SEEDS)
    _, rows = problems.make(name)
    counts = name == COUNTS
    model = tb.families.poisson() if counts else tb.families.logistic()
    result = tb.estimate(model, rows, tolerance=0.05)
    anchor = result.posterior.anchor
    log_joint = glm(rows, counts)
    reference, law = weighed(log_joint, anchor.mode, anchor.covariance, 200_000 if len(rows["y"]) > 500 else 400_000)
    if len(anchor.mode) <= 5:
        reference = on_grid(log_joint, anchor)
    found = over_seeds(result, reference, seeds, runs, keep)
    if with_r:
        found["bridgesampling"] = bridge(rows, chain(log_joint, law), "poisson" if counts else "logistic")
    return found


def tall(seeds: int) -> dict[str, Any]:
    """The evidence of all columns less that without the first."""
    _, rows = problems.make("logistic-1000000-20")
    found: dict[str, Any] = {"seeds": seeds}
    for label, columns in (("whole", slice(None)), ("without", slice(1, None))):
        x = np.ascontiguousarray(rows["x"][:, columns])
        result = tb.estimate(tb.families.logistic(), {"x": x, "y": rows["y"]}, tolerance=0.05)
        begun, work = time.monotonic(), time.process_time()
        first = result.evidence(TOLERANCE)
        spent = time.monotonic() - begun, time.process_time() - work
        anchor = result.posterior.anchor
        value, error = about_mode(x, rows["y"], anchor)
        others = [result.evidence(TOLERANCE, seed=seed) for seed in range(1, seeds)]
        every = [first, *others]
        found[label] = {
            "seconds": spent[0],
            "processor_seconds": spent[1],
            "draws": first.draws,
            "value": first.value,
            "stated": first.error,
            "reference": value,
            "reference_error": error,
            "rmse": float(np.sqrt(np.mean([(each.value - value) ** 2 for each in every]))),
            "covered": float(np.mean([_holds(each, value) for each in every])),
            "laplace_off": first.laplace - value,
        }
    both = found["whole"], found["without"]
    found["difference"] = both[0]["value"] - both[1]["value"]
    found["difference_off"] = found["difference"] - (both[0]["reference"] - both[1]["reference"])
    return found


def about_mode(x: np.ndarray, y: np.ndarray, anchor: Any) -> tuple[float, float]:
    """log Z by 64 plain draws of the Gaussian at the mode."""
    d, rng = x.shape[1], np.random.default_rng(5)
    z = rng.standard_normal((64, d))
    theta = anchor.mode + anchor.displacements(z)
    heights = norm.logpdf(theta).sum(axis=1)
    for start in range(0, len(y), 50_000):
        eta = x[start : start + 50_000].astype(float) @ theta.T
        heights = heights + y[start : start + 50_000].astype(float) @ eta - np.logaddexp(0, eta).sum(axis=0)
    size = np.linalg.slogdet(anchor.whitening)[1]
    beyond = heights + np.sum(z**2, axis=1) / 2 + d / 2 * np.log(2 * np.pi) + size
    weights = np.exp(beyond - beyond.max())
    value = float(beyond.max() + np.log(weights.mean()))
    return value, float(weights.std() / weights.mean() / np.sqrt(len(weights)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--without-r", action="store_true")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    known: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}

    def keep() -> None:
        before = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps(known, indent=1) + "\n")
        ages.record(options.out, ages.grown(options.out.name, before, known))

    for name in options.case or CASES:
        if known.get(name, {}).get("seeds", 0) < (options.seeds if name == MIXED else 1):
            runs = known.setdefault("runs", {}).setdefault(name, {})
            known[name] = one(name, options.seeds, not options.without_r, runs, keep)
            if name != MIXED:
                del known["runs"][name]
            keep()
        print(name, json.dumps(known[name], indent=1))


if __name__ == "__main__":
    main()
