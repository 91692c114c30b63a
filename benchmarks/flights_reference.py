"""The exact posterior of "will my flight be late?", by importance sampling, sharing no code with the package.

    python benchmarks/flights_reference.py    tables, and benchmarks/results/flights_reference.json (two minutes)

The model is the logistic regression of examples/nycflights.py with the prior N(0, I) on standardised columns, the
intercept being that at their means. Flights of equal covariates make one group of n flights, k of them late:

    log p(theta) = -|theta|^2 / 2 + sum_groups k eta - n log(1 + e^eta),     eta = z . theta

Newton finds the mode and the Hessian H there. Pairs mode +- t are drawn from Student's t with scale H^-1, and every
draw has the weight p / q, computed in float64. Reported are the formula's own columns, b_j = theta_j / s_j and
b_0 = theta_0 - sum_j m_j theta_j / s_j. Standard errors are those of self-normalised weights (delta method), a pair
being one observation; those of quantiles are divided by the density there. What the same draws say, with weights
g / q, of the Gaussian g at the mode, whose moments and probabilities are known, serves as control variates.

The schedule makes it quick: hour, distance, origin and carrier (cells) and weekday and month (periods) add up in eta,
so that e^eta is a product of two short tables, and groups of the same n share one logarithm.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import nycflights

RESULTS = Path(__file__).parent / "results" / "flights_reference.json"
SEED, PAIRS, BLOCK_PAIRS, THREADS = 20130101, 2**16, 64, 2
FREEDOM = 40.0
RUN, TILE_RUNS = 16, 64
CELL, PERIOD = ["time_of_day", "log_distance", "origin", "carrier"], ["weekday", "month"]
LEVELS, QUANTILE_STEPS = (0.025, 0.975), 5
DIFFERENCE, FLIGHT_ODDS = -2, -1
CHECKED_DRAWS = 8


def design(flights: pd.DataFrame, levels: dict[str, Sequence[Any]]) -> pd.DataFrame:
    """The columns of the formula as they are, intercept first, under the names that the formula gives them."""
    time_of_day = flights["time_of_day"]
    columns = {"Intercept": np.ones(len(flights)), "time_of_day": time_of_day, "I(time_of_day ** 2)": time_of_day**2}
    columns["log_distance"] = flights["log_distance"]
    for factor in ("weekday", "origin", "carrier", "month"):
        label = "C(month)" if factor == "month" else factor
        for level in levels[factor][1:]:
            columns[f"{label}[T.{level}]"] = flights[factor] == level
    return pd.DataFrame(columns).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Groups:
    """Distinct covariates: standardised columns z (ones first), n, k; and e^eta as a product of two tables.

    A run is 16 groups of the same n, the last of each n filled up with a cell beyond the table, of odds 0.
    """

    z: np.ndarray
    n: np.ndarray
    k: np.ndarray
    cells: np.ndarray
    periods: np.ndarray
    run_cell: np.ndarray
    run_period: np.ndarray
    run_n: np.ndarray

    def mode(self) -> tuple[np.ndarray, np.ndarray]:
        """Newton's method from 0: the mode and the negative Hessian there."""
        theta = np.zeros(self.z.shape[1])
        for _ in range(50):
            chance = expit(self.z @ theta)
            gradient = self.z.T @ (self.k - self.n * chance) - theta
            hessian = self.z.T @ ((self.n * chance * (1 - chance))[:, None] * self.z) + np.eye(len(theta))
            step = np.linalg.solve(hessian, gradient)
            theta = theta + step
            if step @ hessian @ step < 1e-20:
                return theta, hessian
        raise RuntimeError("expected Newton to reach the mode in 50 steps")

    def log_density(self, theta: np.ndarray) -> np.ndarray:
        """Of every row of theta, up to a constant."""
        cell_odds = np.vstack([np.exp(self.cells @ theta.T), np.zeros(len(theta))])
        period_odds = np.exp(self.periods @ theta.T)
        total = theta @ (self.k @ self.z) - 0.5 * np.sum(theta**2, axis=1)
        for start in range(0, len(self.run_n), TILE_RUNS):
            tile = slice(start, start + TILE_RUNS)
            factors = cell_odds.take(self.run_cell[tile], axis=0)
            factors *= period_odds.take(self.run_period[tile], axis=0)
            factors += 1
            total -= self.run_n[tile] @ np.log(np.multiply.reduce(factors, axis=1))
        return total


@dataclass(frozen=True, eq=False)
class Problem:
    """The groups, the names of the coefficients, and the linear functions of theta that are reported.

    `linear` has a row for every coefficient, then the difference of two carriers and the log odds of the flight.
    """

    groups: Groups
    names: list[str]
    means: np.ndarray
    scales: np.ndarray
    linear: np.ndarray
    flights: pd.DataFrame
    levels: dict[str, Sequence[Any]]

    def direct_log_density(self, theta: np.ndarray) -> np.ndarray:
        """The same as that of the groups, row by row of the flights and without any of their shortcuts."""
        z = (design(self.flights, self.levels).to_numpy() - self.means) / self.scales
        sign = np.where(self.flights["late"], -1.0, 1.0)
        rows = [-np.logaddexp(0.0, sign * (z @ each)).sum() - 0.5 * each @ each for each in theta]
        return np.array(rows)


def make_problem() -> Problem:
    """Read the flights, group them and standardise the columns over all of them."""
    flights = nycflights.read_flights().to_pandas()
    levels = {factor: sorted(flights[factor].unique()) for factor in ("origin", "carrier", "month")}
    levels["weekday"] = nycflights.WEEKDAYS
    grouped = flights.groupby(CELL + PERIOD, observed=True)["late"].agg(n="size", k="sum").reset_index()
    columns = design(grouped, levels)
    names, raw = list(columns), columns.to_numpy()
    means, scales = _moments(raw, grouped["n"].to_numpy(np.float64))
    groups = _split(grouped, (raw - means) / scales, names)
    return Problem(groups, names, means, scales, _reported(names, means, scales, levels), flights, levels)


def _moments(raw: np.ndarray, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over all flights; 0 and 1 for the intercept, which is left as it is."""
    means = n @ raw / n.sum()
    scales = np.sqrt(n @ (raw - means) ** 2 / n.sum())
    means[0], scales[0] = 0.0, 1.0
    return means, scales


def _split(grouped: pd.DataFrame, z: np.ndarray, names: list[str]) -> Groups:
    in_period = np.array([name.startswith(("weekday", "C(month)")) for name in names])
    n, k = (grouped[name].to_numpy(np.float64) for name in ("n", "k"))
    cells, cell = _distinct(grouped[CELL], z * ~in_period)
    periods, period = _distinct(grouped[PERIOD], z * in_period)
    members = [np.flatnonzero(n == each) for each in np.unique(n)]
    run_cell = np.concatenate([_in_runs(cell[each], len(cells)) for each in members])
    run_period = np.concatenate([_in_runs(period[each], 0) for each in members])
    run_n = np.concatenate([n[each][::RUN] for each in members])
    return Groups(z, n, k, cells, periods, run_cell, run_period, run_n)


def _distinct(keys: pd.DataFrame, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One row for every distinct key, and which of them each row is."""
    codes = keys.groupby(list(keys.columns), observed=True).ngroup()
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    return rows[first], which


def _in_runs(indices: np.ndarray, filling: int) -> np.ndarray:
    return np.pad(indices, (0, -len(indices) % RUN), constant_values=filling).reshape(-1, RUN)


def _reported(names: list[str], means: np.ndarray, scales: np.ndarray, levels: dict[str, Any]) -> np.ndarray:
    """b = A theta for the columns as they are; then the difference of the carriers, and the flight's log odds."""
    own = np.diag(1 / scales)
    own[0] -= means / scales
    first, second = (own[names.index(f"carrier[T.{carrier}]")] for carrier in nycflights.WORSE)
    flight = design(pd.DataFrame(nycflights.NAMED_FLIGHT), levels).to_numpy()[0]
    return np.vstack([own, first - second, flight @ own])


@dataclass(frozen=True, eq=False)
class Sample:
    """Draws of the reported functions (pairs, 2, functions), and the mean and sd of each under the Gaussian.

    `weights` (pairs, 2) are p / q and sum to 1; `gaussian` (pairs, 1) is g / q, of expectation 1.
    """

    values: np.ndarray
    weights: np.ndarray
    gaussian: np.ndarray
    mode: np.ndarray
    laplace_sd: np.ndarray
    log_density_error: float

    def standardised(self, place: int) -> np.ndarray:
        """One reported function, of mean 0 and sd 1 under the Gaussian."""
        return (self.values[..., place] - self.mode[place]) / self.laplace_sd[place]


def draw(problem: Problem) -> Sample:
    """Antithetic pairs about the mode, block by block, each block from a stream of its own."""
    mode, hessian = problem.groups.mode()
    root = np.linalg.inv(np.linalg.cholesky(hessian)).T
    dimension = len(mode)
    constant = gammaln((FREEDOM + dimension) / 2) - gammaln(FREEDOM / 2) - dimension / 2 * np.log(FREEDOM / 2)

    def block(index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng([SEED, index])
        t = rng.standard_normal((BLOCK_PAIRS, dimension))
        t *= np.sqrt(FREEDOM / rng.chisquare(FREEDOM, size=(BLOCK_PAIRS, 1)))
        square = np.sum(t**2, axis=1, keepdims=True)
        proposal = constant - 0.5 * (FREEDOM + dimension) * np.log1p(square / FREEDOM)
        theta = mode + np.concatenate([t, -t]) @ root.T
        log_density = problem.groups.log_density(theta).reshape(2, -1).T
        values = (theta @ problem.linear.T).reshape(2, BLOCK_PAIRS, -1).swapaxes(0, 1)
        return values, log_density - proposal, np.exp(-0.5 * square - proposal)

    with ThreadPoolExecutor(THREADS) as executor:
        blocks = list(executor.map(block, range(PAIRS // BLOCK_PAIRS)))
    values, log_weights, gaussian = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return Sample(
        values=values,
        weights=np.exp(log_weights - logsumexp(log_weights)),
        gaussian=gaussian,
        mode=problem.linear @ mode,
        laplace_sd=np.sqrt(np.sum((problem.linear @ root) ** 2, axis=1)),
        log_density_error=_compare_densities(problem, mode, root),
    )


def _compare_densities(problem: Problem, mode: np.ndarray, root: np.ndarray) -> float:
    """The largest difference between the log density's two forms, relative to the mode, over a few draws."""
    moves = np.random.default_rng(SEED).standard_normal((CHECKED_DRAWS, len(mode))) @ root.T
    theta = np.vstack([mode, mode + moves])
    difference = problem.groups.log_density(theta) - problem.direct_log_density(theta)
    return float(np.max(np.abs(difference - difference[0])))


def summarise(
    sample: Sample, place: int, transform: Callable[[np.ndarray], np.ndarray] = np.asarray
) -> dict[str, float]:
    """Mean, sd and quantiles of one reported function, or of an increasing transform of it, each with its error."""
    values, weights = transform(sample.values[..., place]), sample.weights
    controls = [sample.standardised(place) ** 2 - 1]
    mean = np.sum(weights * values)
    sd = np.sqrt(np.sum(weights * (values - mean) ** 2))
    found = {
        "mean": _refine(mean, values - mean, sample, controls),
        "sd": _refine(sd, ((values - mean) ** 2 - sd**2) / (2 * sd), sample, controls),
    }
    for level in LEVELS:
        quantile, error = _quantile(sample, place, level)
        half_width = (transform(quantile + error) - transform(quantile - error)) / 2
        found[f"quantile_{level}"] = float(transform(quantile)), float(half_width)
    return {name: value for name, (value, _) in found.items()} | {f"{name}_error": e for name, (_, e) in found.items()}


def _quantile(sample: Sample, place: int, level: float) -> tuple[float, float]:
    """Newton's method on the distribution function, from the Gaussian's quantile; and the error."""
    width = sample.laplace_sd[place] * effective_draws(sample.weights) ** -0.2
    quantile = sample.mode[place] + norm.ppf(level) * sample.laplace_sd[place]
    for _ in range(QUANTILE_STEPS):
        share, error = share_below(sample, place, quantile)
        density = np.sum(sample.weights * norm.pdf(sample.values[..., place], quantile, width))
        quantile += (level - share) / density
    return quantile, error / density


def share_below(sample: Sample, place: int, bound: float) -> tuple[float, float]:
    """The probability that a reported function is at most `bound`, and its error."""
    below = sample.values[..., place] <= bound
    share = np.sum(sample.weights * below)
    gaussian_share = norm.cdf((bound - sample.mode[place]) / sample.laplace_sd[place])
    return _refine(share, below - share, sample, [sample.standardised(place) ** 2 - 1, below - gaussian_share])


def _refine(estimate: float, influence: np.ndarray, sample: Sample, controls: list[np.ndarray]) -> tuple[float, float]:
    """An estimate less its regression on controls, whose expectation under the Gaussian is 0, and its error."""
    observed = len(influence) * np.sum(sample.weights * influence, axis=1)
    known = [sample.gaussian[:, 0] - 1, *(np.mean(sample.gaussian * control, axis=1) for control in controls)]
    means = np.mean(known, axis=1)
    centred = np.transpose(known) - means
    slopes = np.linalg.lstsq(centred, observed, rcond=None)[0]
    error = np.std(observed - centred @ slopes) / np.sqrt(len(observed))
    return float(estimate - means @ slopes), float(error)


def effective_draws(weights: np.ndarray) -> float:
    return float(1 / np.sum(weights**2))


def compute() -> dict[str, Any]:
    """The reference as it is stored."""
    started = time.monotonic()
    problem = make_problem()
    sample = draw(problem)
    return {
        "problem": {
            "data": f"{nycflights.PACKAGE} {version(nycflights.PACKAGE)}",
            "formula": nycflights.FORMULA,
            "prior": "N(0, 1) on standardised columns, intercept N(0, 1) at their means",
            "rows": len(problem.flights),
            "groups": len(problem.groups.n),
        },
        "settings": {"seed": SEED, "draws": 2 * PAIRS, "freedom": FREEDOM, "errors": "one standard error"},
        "checks": {
            "effective_draws": effective_draws(sample.weights),
            "largest_weight": float(sample.weights.max()),
            "log_density_error": sample.log_density_error,
        },
        "coefficients": {name: _linear(sample, place) for place, name in enumerate(problem.names)},
        "flight": _flight(sample),
        "worse": _worse(sample),
        "versions": {name: version(name) for name in ("numpy", "pandas", "scipy")},
        "seconds": round(time.monotonic() - started, 1),
    }


def _linear(sample: Sample, place: int) -> dict[str, float]:
    laplace = {"mode": float(sample.mode[place]), "laplace_sd": float(sample.laplace_sd[place])}
    return summarise(sample, place) | laplace


def _flight(sample: Sample) -> dict[str, Any]:
    """The named flight's probability of being late."""
    summary = summarise(sample, FLIGHT_ODDS, expit)
    return {"text": nycflights.NAMED_FLIGHT_TEXT} | summary | {"at_the_mode": float(expit(sample.mode[FLIGHT_ODDS]))}


def _worse(sample: Sample) -> dict[str, Any]:
    """The probability that the first carrier's coefficient is the larger, and their difference."""
    at_most_zero, error = share_below(sample, DIFFERENCE, 0.0)
    return {
        "carriers": list(nycflights.WORSE),
        "probability": 1 - at_most_zero,
        "probability_error": error,
        "laplace_probability": float(norm.cdf(sample.mode[DIFFERENCE] / sample.laplace_sd[DIFFERENCE])),
        "difference": _linear(sample, DIFFERENCE),
    }


def laplace_gaps(summary: dict[str, float]) -> list[float]:
    """How far Laplace's mean, sd and two quantiles are above the posterior's, in posterior sds."""
    approximations = [summary["mode"], summary["laplace_sd"]]
    approximations += [summary["mode"] + norm.ppf(level) * summary["laplace_sd"] for level in LEVELS]
    exact = [summary["mean"], summary["sd"], *(summary[f"quantile_{level}"] for level in LEVELS)]
    return [(near - true) / summary["sd"] for near, true in zip(approximations, exact, strict=True)]


def show(reference: dict[str, Any]) -> str:
    checks, flight, worse = reference["checks"], reference["flight"], reference["worse"]
    gaps = {name: laplace_gaps(summary) for name, summary in reference["coefficients"].items()}
    most = sorted(gaps, key=lambda name: -abs(gaps[name][0]))[:5]
    lines = [
        f"{checks['effective_draws']:,.0f} effective of {reference['settings']['draws']:,} draws, "
        f"{reference['problem']['groups']:,} groups, {reference['seconds']:.0f} s",
        f"{flight['text']}: late with probability {flight['mean']:.5f} +- {flight['mean_error']:.1e}, "
        f"of posterior sd {flight['sd']:.5f} +- {flight['sd_error']:.1e}",
        f"{' worse than '.join(worse['carriers'])}: {worse['probability']:.4f} +- {worse['probability_error']:.1e}, "
        f"by Laplace {worse['laplace_probability']:.4f}",
        f"{'Laplace minus posterior, in posterior sds':42}    mean      sd    2.5%   97.5%",
    ]
    lines += [f"  {name:40}" + "".join(f"{gap:+8.4f}" for gap in gaps[name]) for name in most]
    return "\n".join(lines)


def main() -> None:
    reference = compute()
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(reference, indent=1) + "\n")
    print(show(reference))


if __name__ == "__main__":
    main()
