"""Leave-one-out of rows of mixed models, each given the others of its group: are its Monte Carlo errors true?

    python benchmarks/loo_by_group.py [--seeds 200] [--only KIND ...]                           (resumable)

Each table is fitted once, and `result.loo(unit="row")` is found with every seed, on the tables of a kind by turns, to
0.05 of the sampling error. References have no code of it: an even grid of theta with the integral over an effect
written out by a fine grid or 41 nodes ("poisson-singles", half of its groups of one row, one of them far out;
"logistic-30-5"); the closed form of normal rows on a grid of theta ("linear-40"), and for thousands of draws of
theta with weights ("linear-crossed-30-20", V of both factors written out); and draws of theta and all effects of the
second factor with weights, effects of the first by 41 nodes ("poisson-crossed-20-12").

Controls: intervals half as long must cover about 70%, and a row left in its own group, in ten seeds, next to nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import ages
import numpy as np
from leave_one_out import summary
from scipy.optimize import minimize
from scipy.special import gammaln, logsumexp
from scipy.stats import halfnorm, norm

import tallbayes as tb

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from left_out import PoissonByGroup, exact_loo, log_prior_by_group

RESULTS = Path(__file__).parent / "results" / "loo_by_group.json"
TOLERANCE, CONTROLS = 0.05, 10
NODES, FREEDOM = 41, 8.0
PART, ROUNDS = 250, (1_000, 2_000, 2_000)
INTERCEPT, SLOPE = 10.0, 1.0


class Problem(NamedTuple):
    """A table, how it is fitted, and log p(y_i | all others) of its rows, with what their sum is off by."""

    formula: str
    family: str
    table: dict[str, np.ndarray]
    exact: np.ndarray
    error: float = 0.0


def names(codes: np.ndarray, letter: str) -> np.ndarray:
    return np.array([f"{letter}{each:02d}" for each in codes])


def poisson_singles(number: int) -> Problem:
    """Eight groups of three rows and nine of one."""
    rng = np.random.default_rng([1, number])
    group = rng.permutation(np.repeat(np.arange(17), np.r_[[3] * 8, [1] * 9]))
    y = rng.poisson(np.exp(1.5 + rng.normal(size=17)[group])).astype(float)
    y[group == 12] = 40
    model = PoissonByGroup(y, group)
    exact = exact_loo(log_prior_by_group, model.rows, np.array([1.5, 0.0]), model.total)
    return Problem("y ~ 1 + (1 | g)", "poisson", {"y": y, "g": names(group, "g")}, exact)


def rule() -> tuple[np.ndarray, np.ndarray]:
    nodes, shares = np.polynomial.hermite_e.hermegauss(NODES)
    return nodes, np.log(shares / shares.sum())


def logistic_grouped(number: int) -> Problem:
    """Thirty groups of five rows, as in evidence.py."""
    rng = np.random.default_rng([2, number])
    groups, each = 30, 5
    group, x = np.repeat(np.arange(groups), each), rng.standard_normal(groups * each)
    y = (rng.random(groups * each) < 1 / (1 + np.exp(-0.3 - 0.6 * x - 0.8 * rng.standard_normal(groups)[group]))) * 1.0
    nodes, log_shares = rule()
    points = np.stack(np.meshgrid(np.linspace(-2.7, 3.3, 25), np.linspace(-1.0, 2.4, 21), indexing="ij"), axis=-1)
    points = points.reshape(-1, 2)
    whole, without = [], []
    for log_sd in np.linspace(-7.0, 1.8, 36):
        for part in np.array_split(points, 8):
            eta = (part[:, :1] + part[:, 1:] * x)[:, :, None] + np.exp(log_sd) * nodes
            rows = y[:, None] * eta - np.logaddexp(0, eta)
            joint = rows.reshape(len(part), groups, each, NODES).sum(axis=2) + log_shares
            own = logsumexp(joint, axis=2)
            sd = np.exp(log_sd)
            prior = norm.logpdf(part[:, 0], 0, INTERCEPT) + norm.logpdf(part[:, 1], 0, SLOPE)
            total = own.sum(axis=1) + prior + halfnorm.logpdf(sd) + log_sd
            given = own[:, group] - logsumexp(joint[:, group] - rows, axis=2)
            whole.append(total)
            without.append(logsumexp(total[:, None] - given, axis=0))
    exact = logsumexp(np.concatenate(whole)) - logsumexp(np.stack(without), axis=0)
    return Problem("y ~ x + (1 | g)", "logistic", {"y": y.astype(int), "x": x, "g": names(group, "g")}, exact)


def linear_grouped(number: int) -> Problem:
    """Forty groups of two to six rows; [V^-1 e]_i / [V^-1]_ii."""
    rng = np.random.default_rng([3, number])
    counts = rng.permutation(np.r_[[2] * 8, [3] * 8, [4] * 8, [5] * 8, [6] * 8])
    group = np.repeat(np.arange(40), counts)
    y = 3.0 + 2.0 * rng.normal(size=40)[group] + 1.5 * rng.normal(size=len(group))
    sums, squares = np.bincount(group, y), np.bincount(group, y**2)

    def scales(theta: Any) -> Any:
        return np.exp(2 * theta[:, 1:2]), np.exp(2 * theta[:, 2:3])

    def total(theta: Any) -> Any:
        b, (tau2, sigma2) = theta[:, :1], scales(theta)
        square, apart, spread = squares - 2 * b * sums + counts * b**2, sums - counts * b, sigma2 + counts * tau2
        fit = square / sigma2 - tau2 * apart**2 / (sigma2 * spread)
        return -0.5 * np.sum(fit + (counts - 1) * np.log(sigma2) + np.log(spread), axis=1)

    def rows(theta: Any) -> Any:
        b, (tau2, sigma2) = theta[:, :1], scales(theta)
        shrunk = tau2 / (sigma2 + counts * tau2)
        precision = (1 - shrunk)[:, group] / sigma2
        off = (y - b - ((sums - counts * b) * shrunk)[:, group]) / sigma2 / precision
        return 0.5 * (np.log(precision) - precision * off**2 - np.log(2 * np.pi))

    exact = exact_loo(log_prior_of_linear, rows, np.array([3.0, 0.7, 0.4]), total)
    return Problem("y ~ 1 + (1 | g)", "linear", {"y": y, "g": names(group, "g")}, exact)


def log_prior_of_linear(theta: Any) -> Any:
    """b ~ N(0, 10^2), all scales half-normal(1), and the Jacobian of their logarithms."""
    scales = np.exp(theta[:, 1:])
    return -0.5 * (theta[:, 0] / INTERCEPT) ** 2 - 0.5 * np.sum(scales**2, axis=1) + theta[:, 1:].sum(axis=1)


def by_draws(
    look: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], start: np.ndarray, sds: np.ndarray, count: int
) -> tuple[np.ndarray, float]:
    """-log E 1 / p_i by draws of Student's t, moved to the moments that they tell, a few times; and the error of their
    sum.

    `look` has log pi (draws,) and log p_i (draws, rows).
    """
    rng, d = np.random.default_rng(17), len(start)
    found = minimize(lambda theta: -float(look(theta[None])[0][0]), start, method="BFGS")
    # What BFGS makes of the curvature is no more than a beginning.
    mean, root = found.x, np.linalg.cholesky((found.hess_inv + found.hess_inv.T) / 4 + 0.5 * np.diag(sds**2))
    for draws in (*ROUNDS, count):
        parts: list[tuple[Any, ...]] = []
        for _ in range(draws // PART):
            z = rng.standard_normal((PART, d)) * np.sqrt(FREEDOM / rng.chisquare(FREEDOM, PART))[:, None]
            theta = mean + 1.05 * z @ root.T
            log_pi, log_p = look(theta)
            log_w = log_pi + 0.5 * (FREEDOM + d) * np.log1p(np.sum(z**2, axis=1) / FREEDOM)
            parts.append((theta, log_w, log_w[:, None] - log_p))
        theta, log_w, log_inverse = (np.concatenate([part[k] for part in parts]) for k in (0, 1, 2))
        w = np.exp(log_w - logsumexp(log_w))
        w = np.minimum(w, 1 / np.sqrt(draws))
        kept = max(0.05, min(0.9, d * np.sum(w**2) / np.sum(w) ** 2))
        mean = w @ theta / w.sum()
        root = np.linalg.cholesky((1 - kept) * np.cov(theta.T, aweights=w) + kept * root @ root.T)
    shares = np.exp(log_w - logsumexp(log_w))[:, None] - np.exp(log_inverse - logsumexp(log_inverse, axis=0))
    error = float(np.sqrt(np.sum(shares.sum(axis=1) ** 2)))
    print(f"reference: worth {1 / np.sum(w**2):.0f} of {count}, error {error:.3f}", flush=True)
    return logsumexp(log_w) - logsumexp(log_inverse, axis=0), error


def crossed_codes(rng: np.random.Generator, levels: tuple[int, int], count: int) -> tuple[np.ndarray, np.ndarray]:
    first, second = (rng.permutation(np.arange(count) % size) for size in levels)
    return first, second


def linear_crossed(number: int) -> Problem:
    """Thirty levels by twenty, 150 rows: V = sigma^2 I + U C U^T, of the mean and both factors, and its inverse."""
    rng = np.random.default_rng([4, number])
    first, second = crossed_codes(rng, (30, 20), 150)
    y = 1.0 + 0.9 * rng.normal(size=30)[first] + 0.6 * rng.normal(size=20)[second] + 0.8 * rng.normal(size=150)
    u = np.column_stack([np.ones(150), np.eye(30)[first], np.eye(20)[second]])
    place, gram = np.repeat([0, 1, 2], [1, 30, 20]), u.T @ u

    def at(theta: np.ndarray) -> tuple[float, np.ndarray]:
        scales = np.exp(theta)
        sigma2 = scales[2] ** 2
        c = np.r_[INTERCEPT, scales[:2]][place] ** 2
        inside = np.linalg.inv(np.diag(1 / c) + gram / sigma2)
        across = u @ inside
        fit = (y - across @ (u.T @ y) / sigma2) / sigma2
        variance = 1 / (1 / sigma2 - np.sum(across * u, axis=1) / sigma2**2)
        log_det = 150 * np.log(sigma2) + np.sum(np.log(c)) - np.linalg.slogdet(inside)[1]
        log_pi = halfnorm_density(scales) + theta.sum() - 0.5 * (y @ fit + log_det)
        return log_pi, -0.5 * (variance * fit**2 + np.log(2 * np.pi * variance))

    def look(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = [at(each) for each in theta]
        return np.array([each[0] for each in found]), np.stack([each[1] for each in found])

    exact, error = by_draws(look, np.log([0.9, 0.6, 0.8]), np.array([0.15, 0.25, 0.08]), 6_000)
    table = {"y": y, "a": names(first, "a"), "b": names(second, "b")}
    return Problem("y ~ 1 + (1 | a) + (1 | b)", "linear", table, exact, error)


def halfnorm_density(scales: np.ndarray) -> float:
    """Its logarithm, up to a constant."""
    return float(-0.5 * np.sum(scales**2))


def poisson_crossed(number: int) -> Problem:
    """Twenty levels by twelve, 120 rows."""
    rng = np.random.default_rng([5, number])
    first, second = crossed_codes(rng, (20, 12), 120)
    y = rng.poisson(np.exp(0.8 + 0.6 * rng.normal(size=20)[first] + 0.5 * rng.normal(size=12)[second])).astype(float)
    nodes, log_shares = rule()
    constant, member = gammaln(y + 1)[:, None], np.arange(20)[:, None] == first
    # Nodes about each level's own likelihood, whose law is told again by the weights.
    seen, total = member @ np.ones(120), member @ y

    def one(theta: np.ndarray) -> tuple[float, np.ndarray]:
        b, tau, other, beside = theta[0], np.exp(theta[1]), np.exp(theta[2]), theta[3:]
        base = b + beside[second]
        rates = member @ np.exp(base)
        # The mode of an effect e: total - rates exp(tau e) tau - e, by Newton's method.
        e = np.zeros(20)
        for _ in range(12):
            mean = rates * np.exp(np.clip(tau * e, -30, 30))
            e = e + np.clip((tau * (total - mean) - e) / (tau**2 * mean + 1), -1, 1)
        sd = 1.2 / np.sqrt(tau**2 * rates * np.exp(tau * e) + 1)
        at = e[:, None] + sd[:, None] * nodes
        own = norm.logpdf(at) + np.log(sd)[:, None] + 0.5 * nodes**2 + 0.5 * np.log(2 * np.pi) + log_shares
        eta = base[:, None] + tau * at[first]
        rows = y[:, None] * eta - np.exp(eta) - constant
        joint = own + member @ rows
        groups = logsumexp(joint, axis=1)
        prior = -0.5 * (b / INTERCEPT) ** 2 - 0.5 * (tau**2 + other**2) + theta[1] + theta[2]
        prior += norm.logpdf(beside, 0, other).sum()
        return prior + groups.sum(), groups[first] - logsumexp(joint[first] - rows, axis=1)

    def look(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found = [one(each) for each in theta]
        return np.array([each[0] for each in found]), np.stack([each[1] for each in found])

    assert seen.min() > 0
    sds = np.r_[0.2, 0.25, 0.3, np.full(12, 0.25)]
    exact, error = by_draws(look, np.r_[0.8, np.log(0.6), np.log(0.5), np.zeros(12)], sds, 20_000)
    table = {"y": y, "a": names(first, "a"), "b": names(second, "b")}
    return Problem("y ~ 1 + (1 | a) + (1 | b)", "poisson", table, exact, error)


KINDS: dict[str, tuple[Callable[[int], Problem], int]] = {
    "poisson-singles": (poisson_singles, 4),
    "logistic-30-5": (logistic_grouped, 2),
    "linear-40": (linear_grouped, 4),
    "linear-crossed-30-20": (linear_crossed, 1),
    "poisson-crossed-20-12": (poisson_crossed, 1),
}


@cache
def fitted(kind: str, number: int) -> tuple[Problem, tb.Result]:
    """A table with its reference, and its fit."""
    problem = KINDS[kind][0](number)
    options: dict[str, Any] = {"tolerance": 0.05, "standardise": False, "intercept_scale": INTERCEPT}
    return problem, tb.fit(problem.formula, problem.table, problem.family, **options)


def one(kind: str, seed: int) -> dict[str, Any]:
    problem, result = fitted(kind, seed % KINDS[kind][1])
    exact = problem.exact
    started = time.process_time()
    loo = result.loo(unit="row", pointwise=True, seed=seed, tolerance=TOLERANCE)
    assert loo.pointwise is not None
    return {
        "truth": float(exact.sum()),
        "truth_error": problem.error,
        "elpd": loo.elpd,
        "sampling_error": loo.sampling_error,
        "standard_error": loo.standard_error,
        "bias_bound": loo.bias_bound,
        "interval": list(loo.interval),
        "status": loo.status,
        "draws": loo.draws,
        "worst_row": float(np.abs(loo.pointwise - exact).max()),
        "seconds": time.process_time() - started,
    }


def left_in(kind: str, seed: int) -> dict[str, Any]:
    """A control: a row is foretold with its own group's effect, itself included."""
    from tallbayes.leave_one_out import answer

    right = answer.RowsOfGroups.in_parts

    def wrong(*arguments: Any) -> Any:
        return ((part, given, given) for part, _, given in right(*arguments))

    answer.RowsOfGroups.in_parts = wrong  # type: ignore[method-assign]
    try:
        return one(kind, seed)
    finally:
        answer.RowsOfGroups.in_parts = right  # type: ignore[method-assign]


def keep(known: dict[str, Any]) -> None:
    known["summary"] = {
        kind: summary(list(runs.values())) for part in ("coverage", "left in") for kind, runs in named(known, part)
    }
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    ages.record(RESULTS, ages.grown(RESULTS.name, before, known))


def named(known: dict[str, Any], part: str) -> list[tuple[str, dict[str, Any]]]:
    end = "" if part == "coverage" else f", {part}"
    return [(kind + end, runs) for kind, runs in known.get(part, {}).items() if runs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    known: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for kind in options.only:
        for part, make, seeds in (("coverage", one, options.seeds), ("left in", left_in, CONTROLS)):
            runs = known.setdefault(part, {}).setdefault(kind, {})
            for seed in (each for each in range(seeds) if str(each) not in runs):
                runs[str(seed)] = make(kind, seed)
                if seed % 20 == 19:
                    keep(known)
            keep(known)
        print(kind, known["summary"][kind], flush=True)


if __name__ == "__main__":
    main()
