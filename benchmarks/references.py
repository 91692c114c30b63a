"""Exact posterior means and standard deviations by importance sampling, without any code of the sampler.

    python benchmarks/references.py [NAME ...]      the standard problems; what is stored is not run again (10 minutes)

    theta = theta_0 + L^-T z,   z from N(0, I) or Student's t,   w = pi(theta | X) / q(z),   E g = E_q[w g] / E_q[w]

Draws come as z and -z, so everything odd is exact. What is even is regressed on phi(z) / q(z) times 1, z_j z_k,
z_j T(z) and T(z)^2, whose means are known: phi is the Gaussian at the mode, T the cubic term of the log density there.
The error is estimated from batches. It runs until every mean and sd is known to `goal` posterior sds; what is found
goes to benchmarks/results/references.json. The Gaussian problem has a closed form.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import gammaln

RESULTS = Path(__file__).parent / "results" / "references.json"
BATCHES, THREADS, SEED = 32, 2, 20260101
TILE_ENTRIES = 1 << 18
FACTORS = 16
FREEDOM = 4.0
CALIBRATION_GOAL, TALL_GOAL = 1e-4, 5e-4
TALL_SIZES = (1_000, 3_162, 10_000, 31_623, 100_000, 316_228, 1_000_000, 10_000_000)


def _sigmoid(eta: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-eta))


def _log_product(factors: np.ndarray) -> np.ndarray:
    """The sum of logarithms down the first axis, one logarithm for every 16 factors (each between 1 and e^44)."""
    whole = len(factors) // FACTORS * FACTORS
    blocks = factors[:whole].reshape(-1, FACTORS, factors.shape[1])
    return np.log(np.multiply.reduce(blocks, axis=1)).sum(axis=0) + np.log(factors[whole:]).sum(axis=0)


@dataclass(frozen=True)
class Likelihood:
    """The log likelihood of rows given eta = X theta: its sum down the rows, and its derivatives a row."""

    total: Callable[[np.ndarray, np.ndarray], np.ndarray]
    slope: Callable[[np.ndarray, np.ndarray], np.ndarray]
    curvature: Callable[[np.ndarray, np.ndarray], np.ndarray]
    third: Callable[[np.ndarray, np.ndarray], np.ndarray]


LOGISTIC = Likelihood(
    total=lambda eta, y: y @ eta - _log_product(1 + np.exp(np.minimum(eta, 44.0))) - np.maximum(eta - 44.0, 0).sum(0),
    slope=lambda eta, y: y - _sigmoid(eta),
    curvature=lambda eta, y: -_sigmoid(eta) * _sigmoid(-eta),
    third=lambda eta, y: -_sigmoid(eta) * _sigmoid(-eta) * (1 - 2 * _sigmoid(eta)),
)
POISSON = Likelihood(
    total=lambda eta, y: y @ eta - np.exp(eta).sum(axis=0),
    slope=lambda eta, y: y - np.exp(eta),
    curvature=lambda eta, y: -np.exp(eta),
    third=lambda eta, y: -np.exp(eta),
)
STUDENT = Likelihood(
    total=lambda eta, y: -(FREEDOM + 1) / 2 * _log_product(1 + (y[:, None] - eta) ** 2 / FREEDOM),
    slope=lambda eta, y: (FREEDOM + 1) * (y - eta) / (FREEDOM + (y - eta) ** 2),
    curvature=lambda eta, y: (FREEDOM + 1) * ((y - eta) ** 2 - FREEDOM) / (FREEDOM + (y - eta) ** 2) ** 2,
    third=lambda eta, y: (
        2 * (FREEDOM + 1) * (y - eta) * ((y - eta) ** 2 - 3 * FREEDOM) / (FREEDOM + (y - eta) ** 2) ** 3
    ),
)
GAUSSIAN = Likelihood(
    total=lambda eta, y: -0.5 * np.sum((y[:, None] - eta) ** 2, axis=0),
    slope=lambda eta, y: y - eta,
    curvature=lambda eta, y: -np.ones_like(eta),
    third=lambda eta, y: np.zeros_like(eta),
)
LIKELIHOODS = {"logistic": LOGISTIC, "paper": LOGISTIC, "poisson": POISSON, "student": STUDENT, "gaussian": GAUSSIAN}


@dataclass(frozen=True, eq=False)
class Posterior:
    """Rows with a likelihood and the prior N(0, I); everything is float64, a tile of rows at a time."""

    likelihood: Likelihood
    x: np.ndarray
    y: np.ndarray

    def log_density(self, theta: np.ndarray) -> np.ndarray:
        """Of every row of theta, up to a constant."""
        size = max(FACTORS, TILE_ENTRIES // len(theta) // FACTORS * FACTORS)
        total = -0.5 * np.sum(theta**2, axis=1)
        for x, y in self._tiles(size):
            total += self.likelihood.total(x @ theta.T, y)
        return total

    @cached_property
    def mode(self) -> tuple[np.ndarray, np.ndarray]:
        """Newton's method from least squares; the mode and the negative Hessian there."""
        gram, moment = np.eye(self.x.shape[1]), np.zeros(self.x.shape[1])
        for x, y in self._tiles(TILE_ENTRIES):
            gram, moment = gram + x.T @ x, moment + x.T @ y
        theta = np.linalg.solve(gram, moment)
        for _ in range(60):
            gradient, hessian = -theta, np.eye(len(theta))
            for x, y in self._tiles(TILE_ENTRIES):
                eta = x @ theta
                gradient = gradient + x.T @ self.likelihood.slope(eta, y)
                hessian = hessian - x.T @ (self.likelihood.curvature(eta, y)[:, None] * x)
            step = np.linalg.solve(hessian, gradient)
            theta = theta + step
            if step @ hessian @ step < 1e-18:
                return theta, hessian
        raise RuntimeError("expected Newton to reach the mode in 60 steps")

    def cubic(self, root: np.ndarray) -> np.ndarray:
        """The third derivatives at the mode in the coordinates theta = mode + root z, (d, d, d)."""
        tensor = np.zeros((root.shape[1],) * 3)
        for x, y in self._tiles(TILE_ENTRIES):
            third, x = self.likelihood.third(x @ self.mode[0], y), x @ root
            for j in range(len(tensor)):
                tensor[j] += x.T @ ((third * x[:, j])[:, None] * x)
        return tensor

    def _tiles(self, size: int) -> Any:
        for start in range(0, len(self.y), size):
            part = slice(start, start + size)
            yield self.x[part].astype(np.float64), self.y[part].astype(np.float64)


@dataclass(frozen=True)
class Reference:
    """Posterior means and sds, their estimated errors in their own units, and how they were found."""

    mean: list[float]
    sd: list[float]
    mean_error: list[float]
    sd_error: list[float]
    worst_error: float
    effective_fraction: float
    draws: int
    freedom: float | None
    goal: float
    seed: int
    seconds: float


class Sums:
    """Batch means of the weighted moments and of the controls, and their products for the regression."""

    def __init__(self) -> None:
        self.moments: list[np.ndarray] = []
        self.controls: list[np.ndarray] = []
        self.products: Any = 0.0
        self.crosses: Any = 0.0
        self.squares = 0.0

    def add(self, moments: np.ndarray, controls: np.ndarray) -> None:
        self.moments.append(moments.mean(axis=0))
        self.controls.append(controls.mean(axis=0))
        centred = controls - self.controls[-1]
        self.products = self.products + centred.T @ centred
        self.crosses = self.crosses + centred.T @ moments

    def estimates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and sd of every scaled coordinate, and the errors of both, (2, d)."""
        moments, controls = np.array(self.moments), np.array(self.controls)
        moments = moments - controls @ np.linalg.lstsq(self.products, self.crosses, rcond=1e-12)[0]
        d = moments.shape[1] // 2
        return mean_and_sd(moments[:, :1], moments[:, 1 : d + 1], moments[:, d + 1 :])


def mean_and_sd(weight: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of u, from batch means of w, w u, w u^2, (batches, d) each: mean and sd, (d,), and the errors of both, (2, d)."""
    whole = weight.mean(axis=0)
    mean, square = first.mean(axis=0) / whole, second.mean(axis=0) / whole
    sd = np.sqrt(square - mean**2)
    off, square_off = (first - mean * weight) / whole, (second - square * weight) / whole
    influence = np.array([off, (square_off - 2 * mean * off) / (2 * sd)])
    groups = np.array_split(np.arange(len(weight)), BATCHES)
    batches = np.stack([influence[:, group].mean(axis=1) for group in groups], axis=1)
    return mean, sd, batches.std(axis=1, ddof=1) / np.sqrt(BATCHES)


def solve(posterior: Posterior, goal: float, freedom: float | None, max_draws: int = 20_000_000) -> Reference:
    """Draw until every mean and sd is known to `goal` posterior sds; `freedom` None proposes from the Gaussian."""
    started = time.monotonic()
    mode, hessian = posterior.mode
    root = np.linalg.inv(np.linalg.cholesky(hessian)).T
    scale = np.sqrt(np.sum(root**2, axis=1))
    peak = posterior.log_density(mode[None])[0]
    d, num_rows = len(mode), len(posterior.y)
    pairs = int(np.clip(20_000_000 // num_rows, 16, 8192))
    constant = (
        0.0 if freedom is None else gammaln((freedom + d) / 2) - gammaln(freedom / 2) - d / 2 * np.log(freedom / 2)
    )
    upper, cubic = np.triu_indices(d), posterior.cubic(root)
    trace = np.einsum("jkk->j", cubic)
    square = np.sum(cubic**2) / 6 + np.sum(trace**2) / 4
    known = np.concatenate([[1.0], upper[0] == upper[1], trace / 2, [square]])

    def task(index: int) -> tuple[np.ndarray, np.ndarray, float]:
        rng = np.random.default_rng([SEED, index])
        z = rng.standard_normal((pairs, d))
        if freedom is not None:
            z *= np.sqrt(freedom / rng.chisquare(freedom, size=(pairs, 1)))
        norm = np.sum(z**2, axis=1)
        proposal = -0.5 * norm if freedom is None else constant - 0.5 * (freedom + d) * np.log1p(norm / freedom)
        move = z @ root.T
        both = posterior.log_density(np.concatenate([mode + move, mode - move])) - peak - np.tile(proposal, 2)
        plus, minus = np.exp(both[:pairs]), np.exp(both[pairs:])
        even, odd, unit = (plus + minus)[:, None] / 2, (plus - minus)[:, None] / 2, move / scale
        moments = np.concatenate([even, odd * unit, even * unit**2], axis=1)
        term = np.sum((z @ cubic.reshape(d, -1)).reshape(pairs, d, d) * z[:, :, None] * z[:, None, :], axis=(1, 2)) / 6
        features = [np.ones((pairs, 1)), z[:, upper[0]] * z[:, upper[1]], term[:, None] * z, term[:, None] ** 2]
        controls = np.exp(-0.5 * norm - proposal)[:, None] * np.concatenate(features, axis=1) - known
        return moments, controls, float(np.sum(plus**2 + minus**2))

    sums, done = Sums(), 0
    with ThreadPoolExecutor(THREADS) as executor:
        while True:
            count = BATCHES if done == 0 else max(BATCHES, done // 2 // BATCHES * BATCHES)
            for moments, controls, squares in executor.map(task, range(done, done + count)):
                sums.add(moments, controls)
                sums.squares += squares
            done += count
            mean, sd, error = sums.estimates()
            worst, draws = float(np.max(error / sd)), 2 * pairs * done
            if worst <= goal or draws >= max_draws:
                break
    total = sum(each[0] for each in sums.moments) * 2 * pairs
    return Reference(
        mean=list(map(float, mode + scale * mean)),
        sd=list(map(float, scale * sd)),
        mean_error=list(map(float, scale * error[0])),
        sd_error=list(map(float, scale * error[1])),
        worst_error=worst,
        effective_fraction=float(total**2 / sums.squares / draws),
        draws=draws,
        freedom=freedom,
        goal=goal,
        seed=SEED,
        seconds=round(time.monotonic() - started, 2),
    )


def closed_form(posterior: Posterior) -> Reference:
    """A Gaussian posterior: its mode and its Hessian say everything."""
    mode, hessian = posterior.mode
    sd = np.sqrt(np.diag(np.linalg.inv(hessian)))
    nothing = [0.0] * len(mode)
    return Reference(mode.tolist(), sd.tolist(), nothing, nothing, 0.0, 1.0, 0, None, 0.0, SEED, 0.0)


def compute(name: str) -> Reference:
    """The reference of a standard problem."""
    import problems

    kind, num_rows, dimension = problems.split(name)
    _, rows = problems.make(name)
    posterior = Posterior(LIKELIHOODS[kind], rows["x"], rows["y"])
    if kind == "gaussian":
        return closed_form(posterior)
    # The heavier the tails, the more draws are wasted where d is large; where N is large the Gaussian has no tails.
    freedom = None if num_rows >= 100_000 else 10.0 if dimension <= 10 else 40.0
    return solve(posterior, CALIBRATION_GOAL if dimension <= 10 else TALL_GOAL, freedom)


def load(path: Path = RESULTS) -> dict[str, Reference]:
    """What is stored, by problem."""
    if not path.exists():
        return {}
    return {name: Reference(**stored) for name, stored in json.loads(path.read_text())["references"].items()}


def get(name: str, path: Path = RESULTS) -> Reference:
    """From the store, computed and stored if it is not there."""
    stored = load(path)
    if name not in stored:
        stored[name] = compute(name)
        versions = {"numpy": version("numpy")}
        settings = {"batches": BATCHES, "threads": THREADS, "errors": "one standard error, in the quantity's units"}
        references = {each: asdict(stored[each]) for each in sorted(stored)}
        path.parent.mkdir(exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"settings": settings, "versions": versions, "references": references}, indent=1))
        os.replace(partial, path)
    return stored[name]


def main() -> None:
    import problems

    from tallbayes.views.text import table

    parser = argparse.ArgumentParser(description="reference means and sds of the standard problems")
    parser.add_argument("names", nargs="*", help="kind-N-d, such as logistic-300-5; all of them by default")
    names = parser.parse_args().names
    if not names:
        tall = map(problems.tall_name, TALL_SIZES)
        names = [problems.GAUSSIAN, *problems.CALIBRATION, problems.PAPER, *tall]
    rows = []
    for name in names:
        print(name, file=sys.stderr, flush=True)
        this = get(name)
        freedom = "" if this.freedom is None else f"{this.freedom:.0f}"
        cells = [f"{this.draws:,}", freedom, f"{this.effective_fraction:.2f}", f"{this.worst_error:.1e}"]
        rows.append([name, *cells, f"{this.goal:.0e}", f"{this.seconds:.1f}"])
    print(table(("problem", "draws", "t freedom", "ESS / draws", "worst error (sds)", "goal", "seconds"), rows))


if __name__ == "__main__":
    main()
