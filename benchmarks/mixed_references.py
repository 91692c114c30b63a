"""Exact references of mixed models, without any code of the sampler: NumPy and SciPy alone.

    python benchmarks/mixed_references.py [NAME ...] [--goal E]     solves what results/mixed_references.json has not

    phi = (beta, log tau, atanh rho, log sigma),     b_g = L(phi) u_g,  u_g ~ N(0, I),  L L' = D
    pi(phi) = p(phi) prod_g integral N(u; 0, I) prod_{i in g} p(y_i | x_i' beta + z_i' L u, sigma) du

mixed_likelihood.py has the integrals: in closed form for the linear family, else by Gauss-Hermite nodes placed anew
about the mode of u_g at every phi. The posterior of phi is then weighed by importance: draws from the mixture of
mixed_proposals.py, first at the mode of pi, then at the mean and covariance that the weights gave, from Sobol' points
scrambled independently REPLICATES times. Points are doubled until the error of every mean and sd, as a share of the
posterior sd, is below the goal; the stated errors are the jackknife's over the scrambles. Effects are averaged over
their nodes at every draw: E b_g = E_phi E[b_g | phi], and their sds are by total variance. The nodes' own error, also
in posterior sds, is the sd of what twice as many change in log pi.

    make(name)      the problem, with its table (mixed_problems.py)
    truth(name)     its stored reference
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mixed_problems
import numpy as np
from lines import describe_commit
from mixed_likelihood import Likelihood
from mixed_problems import Priors, Problem, make
from mixed_proposals import Bulk, Mixture, Tail
from scipy.optimize import minimize
from scipy.special import betaln

RESULTS = Path(__file__).parent / "results" / "mixed_references.json"
GOAL = 0.003
FREEDOM = 8.0
REPLICATES = 16
FIRST, PILOT, MOST = 64, 2048, 1 << 15
CHECKED = 64
NODES = {1: 21, 2: 11}


@dataclass(frozen=True, eq=False)
class Posterior:
    """log pi of many phi at once, and what is asked of each."""

    likelihood: Likelihood
    priors: Priors

    @property
    def names(self) -> list[str]:
        """Of phi, then of the scales, the correlation and the noise themselves."""
        likelihood = self.likelihood
        scales = [f"tau[{name}]" for name in likelihood.effects]
        rho, sigma = ["rho"] * (len(scales) == 2), ["sigma"] * likelihood.noisy
        logs = [f"log {each}" for each in scales]
        return [*likelihood.coefficients, *logs, *(f"atanh {each}" for each in rho)] + (
            [f"log {each}" for each in sigma] + scales + rho + sigma
        )

    @property
    def dimension(self) -> int:
        p, q = len(self.likelihood.coefficients), len(self.likelihood.effects)
        return p + q + (q == 2) + self.likelihood.noisy

    def parts(self, phi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """beta, tau, rho and sigma of every row of phi; rho is 0 and sigma 1 where there is none."""
        p, q = len(self.likelihood.coefficients), len(self.likelihood.effects)
        rho = np.tanh(phi[:, p + q]) if q == 2 else np.zeros(len(phi))
        sigma = np.exp(phi[:, -1]) if self.likelihood.noisy else np.ones(len(phi))
        return phi[:, :p], np.exp(phi[:, p : p + q]), rho, sigma

    def quantities(self, phi: np.ndarray) -> np.ndarray:
        _, tau, rho, sigma = self.parts(phi)
        whole = [phi, tau, *([rho[:, None]] if tau.shape[1] == 2 else [])]
        return np.hstack([*whole, *([sigma[:, None]] if self.likelihood.noisy else [])])

    def log_prior(self, phi: np.ndarray) -> np.ndarray:
        """Normalised, with the Jacobians of log and atanh."""
        beta, tau, rho, sigma = self.parts(phi)
        eta = self.priors.correlation
        found = np.sum(log_normal(beta, self.priors.coefficients), axis=1)
        found += np.sum(np.log(2) + log_normal(tau, self.priors.scales) + np.log(tau), axis=1)
        if tau.shape[1] == 2:
            found += eta * np.log1p(-(rho**2)) - (2 * eta - 1) * np.log(2) - betaln(eta, eta)
        if self.likelihood.noisy:
            found += np.log(2) + log_normal(sigma, self.priors.noise) + np.log(sigma)
        return found

    def evaluate(self, phi: np.ndarray, nodes: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """log pi, and the first two moments of every effect, given each phi."""
        beta, tau, rho, sigma = self.parts(phi)
        root = roots(tau, rho)
        value, first, second = self.likelihood.evaluate(beta, root, sigma, nodes or NODES[tau.shape[1]])
        return value + self.log_prior(phi), first, second

    def log_likelihood(self, phi: np.ndarray) -> np.ndarray:
        return self.evaluate(phi)[0] - self.log_prior(phi)

    def log_density(self, phi: np.ndarray) -> np.ndarray:
        return self.evaluate(phi)[0]


def log_normal(x: np.ndarray, scale: float) -> np.ndarray:
    return -0.5 * (x / scale) ** 2 - np.log(scale) - 0.5 * np.log(2 * np.pi)


def roots(tau: np.ndarray, rho: np.ndarray) -> np.ndarray:
    """L = diag(tau) chol(R), of every phi."""
    if tau.shape[1] == 1:
        return tau[:, :, None]
    root = np.zeros((len(tau), 2, 2))
    root[:, 0, 0], root[:, 1, 0], root[:, 1, 1] = tau[:, 0], tau[:, 1] * rho, tau[:, 1] * np.sqrt(1 - rho**2)
    return root


def of_problem(problem: Problem) -> Posterior:
    table = problem.table
    effects = ("Intercept", "x1") if problem.slope else ("Intercept",)
    columns = {"Intercept": np.ones(len(table["y"])), "x1": table["x1"], "x2": table["x2"]}
    return Posterior(Likelihood.of_rows(problem.family, columns, effects, table["g"], table["y"]), problem.priors)


def climb(function: Any, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The maximum of a function of many points at once, and its covariance -Hess^-1 there, by central differences."""
    steps = 1e-4 * np.vstack([np.eye(len(start)), -np.eye(len(start))])

    def descent(phi: np.ndarray) -> tuple[float, np.ndarray]:
        values = function(np.vstack([phi, phi + steps]))
        up, down = np.split(values[1:], 2)
        return -float(values[0]), -(up - down) / 2e-4

    found = minimize(descent, start, jac=True, method="BFGS", options={"gtol": 1e-4, "maxiter": 200})
    return found.x, covariance(function, found.x, np.sqrt(np.diag(found.hess_inv)))


def covariance(function: Any, mode: np.ndarray, sds: np.ndarray) -> np.ndarray:
    """-Hess^-1 by second differences over a tenth of an sd; a direction that is not concave counts as wide."""
    d = len(mode)
    step = 0.1 * np.clip(sds, 1e-4, 2.0)
    corners = [(i, j, s, t) for i in range(d) for j in range(i + 1) for s in (1, -1) for t in (1, -1)]
    points = np.array([mode + s * step * np.eye(d)[i] + t * step * np.eye(d)[j] for i, j, s, t in corners])
    curvature = np.zeros((d, d))
    for (i, j, s, t), value in zip(corners, function(points), strict=True):
        curvature[i, j] -= s * t * value / 4
    curvature = np.tril(curvature) + np.tril(curvature, -1).T
    values, vectors = np.linalg.eigh(curvature)
    spread = step[:, None] * vectors / np.sqrt(np.maximum(values, 1e-3))
    return spread @ spread.T


@dataclass(eq=False)
class Sums:
    """Weighted sums of one scramble about `centre`: of quantities, then of effects, and of their squares."""

    weight: float = 0.0
    squared: float = 0.0
    first: Any = 0.0
    second: Any = 0.0
    count: int = 0

    def add(self, weight: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
        self.weight += float(weight.sum())
        self.squared += float(np.sum(weight**2))
        self.first += weight @ first
        self.second += weight @ second
        self.count += len(weight)


@dataclass(frozen=True, eq=False)
class Truth:
    """Means and sds with their errors; quantities first, then effects, group by group."""

    names: list[str]
    mean: np.ndarray
    sd: np.ndarray
    mean_error: np.ndarray
    sd_error: np.ndarray
    draws: int
    effective: float
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def worst_error(self) -> float:
        """As a share of the posterior sd."""
        return float(np.max(np.maximum(self.mean_error, self.sd_error) / self.sd))


def moments(weight: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mean = first / weight
    return mean, np.sqrt(np.maximum(second / weight - mean**2, 0))


def summarise(names: list[str], centre: np.ndarray, replicates: list[Sums]) -> Truth:
    """Pooled moments, and the jackknife's errors over scrambles."""
    weight = np.array([each.weight for each in replicates])[:, None]
    first, second = np.array([each.first for each in replicates]), np.array([each.second for each in replicates])
    mean, sd = moments(weight.sum(0), first.sum(0), second.sum(0))
    without = moments(*(total.sum(0) - total for total in (weight, first, second)))
    share = np.sqrt((len(replicates) - 1) ** 2 / len(replicates))
    mean_error, sd_error = (share * each.std(axis=0, ddof=1) for each in without)
    effective = float(weight.sum() ** 2 / sum(each.squared for each in replicates))
    return Truth(names, centre + mean, sd, mean_error, sd_error, sum(each.count for each in replicates), effective)


def weigh(posterior: Posterior, phi: np.ndarray, log_density: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """log weights, first and second moments given phi of quantities and effects."""
    value, first, second = posterior.evaluate(phi)
    quantities, count = posterior.quantities(phi), len(phi)
    firsts = np.hstack([quantities, first.reshape(count, -1)])
    return value - log_density, firsts, np.hstack([quantities**2, second.reshape(count, -1)])


def tail(posterior: Posterior, mode: np.ndarray, spread: np.ndarray, place: int) -> Tail:
    """A proposal for what is left of the posterior where one scale is near 0."""
    p, q = len(posterior.likelihood.coefficients), len(posterior.likelihood.effects)
    correlation = p + q if q == 2 else None
    others = [each for each in range(len(mode)) if each not in (place, correlation)]
    scale = float(np.exp(mode[place] - min(1.0, np.sqrt(spread[place, place]))))
    fixed = mode.copy()
    fixed[place] = np.log(scale / 2)
    if correlation is not None:
        fixed[correlation] = 0.0

    def profile(points: np.ndarray) -> np.ndarray:
        phi = np.repeat(fixed[None], len(points), axis=0)
        phi[:, others] = points
        return posterior.log_density(phi)

    centre, covariance = climb(profile, mode[others])
    rest = Bulk(centre, np.linalg.cholesky(covariance), FREEDOM)
    return Tail(rest, others, place, scale, correlation, posterior.priors.correlation)


def pilot(posterior: Posterior, mode: np.ndarray, spread: np.ndarray, size: int) -> tuple[Mixture, np.ndarray, float]:
    """The proposals at weighted mean and covariance, with the means of all that is asked and the weights' scale."""
    d, p = posterior.dimension, len(posterior.likelihood.coefficients)
    places = range(p, p + len(posterior.likelihood.effects))
    tails = tuple(tail(posterior, mode, spread, place) for place in places)
    mixture = Mixture(Bulk(mode, np.linalg.cholesky(spread), FREEDOM), tails)
    for seed in (1, 2):
        log_weight, first, _ = weigh(posterior, *mixture.draw(mixture.scramble(seed), size))
        weight = np.exp(log_weight - log_weight.max())
        weight /= weight.sum()
        mean = weight @ first
        apart = first[:, :d] - mean[:d]
        mixture = replace(mixture, bulk=Bulk(mean[:d], np.linalg.cholesky((weight * apart.T) @ apart), FREEDOM))
    return mixture, mean, float(log_weight.max())


def solve(posterior: Posterior, goal: float = GOAL, most: int = MOST, pilot_size: int = PILOT) -> Truth:
    """Double the points until every error is below the goal, or `most` draws a scramble are reached."""
    p = len(posterior.likelihood.coefficients)
    start = np.zeros(posterior.dimension)
    start[p : p + len(posterior.likelihood.effects)] = np.log(0.5)
    mode, spread = climb(posterior.log_density, start)
    mixture, centre, shift = pilot(posterior, mode, spread, pilot_size)
    scrambles = [mixture.scramble(100 + number) for number in range(REPLICATES)]
    replicates, size, drawn = [Sums() for _ in scrambles], FIRST, 0
    while True:
        for sobols, sums in zip(scrambles, replicates, strict=True):
            log_weight, first, second = weigh(posterior, *mixture.draw(sobols, size))
            about = second - 2 * first * centre + centre**2
            sums.add(np.exp(log_weight - shift), first - centre, about)
        drawn += size
        size, found = drawn, summarise(posterior.names, centre, replicates)
        print(f"  {found.draws} draws, error {found.worst_error:.4f}", file=sys.stderr, flush=True)
        if found.worst_error <= goal or drawn >= most:
            break
    found.extra.update(mode=mode, maximum=climb(posterior.log_likelihood, mode)[0])
    found.extra["node_error"] = node_error(posterior, mixture)
    return found


def node_error(posterior: Posterior, mixture: Mixture) -> float:
    """The posterior sd of what twice the nodes change in log pi, from a few weighed draws.

    To first order E f moves by Cov(f, change), so by at most this share of the sd of f.
    """
    phi, log_density = mixture.draw(mixture.scramble(3), CHECKED)
    value, nodes = posterior.log_density(phi), NODES[len(posterior.likelihood.effects)]
    change = posterior.evaluate(phi, 2 * nodes + 1)[0] - value
    weight = np.exp(value - log_density - np.max(value - log_density))
    weight /= weight.sum()
    return float(np.sqrt(weight @ (change - weight @ change) ** 2))


def described(problem: Problem, posterior: Posterior, found: Truth) -> dict[str, Any]:
    """A reference as the file has it: effects as one list of groups for every effect."""
    likelihood, count = posterior.likelihood, len(found.names)
    fields = {"mean": found.mean, "sd": found.sd, "mean_error": found.mean_error, "sd_error": found.sd_error}
    quantities = {
        name: {each: float(f"{values[place]:.8g}") for each, values in fields.items()}
        for place, name in enumerate(found.names)
    }
    effects: dict[str, Any] = {}
    if len(likelihood.levels) <= 2000:
        effects["levels"] = list(likelihood.levels)
        for place, name in enumerate(likelihood.effects):
            of_groups = {
                each: values[count:].reshape(-1, len(likelihood.effects))[:, place] for each, values in fields.items()
            }
            effects[name] = {each: [float(f"{v:.6g}") for v in values] for each, values in of_groups.items()}
    phi = found.names[: posterior.dimension]
    return mixed_problems.settings(problem) | {
        "rows": len(problem.table["y"]),
        "groups": len(likelihood.levels),
        "quantities": quantities,
        "effects": effects,
        "mode": dict(zip(phi, found.extra["mode"].tolist(), strict=True)),
        "likelihood_maximum": dict(zip(phi, found.extra["maximum"].tolist(), strict=True)),
        "worst_error": found.worst_error,
        "node_error": found.extra["node_error"],
        "draws": found.draws,
        "effective_draws": found.effective,
    }


def truth(name: str, path: Path = RESULTS) -> dict[str, Any]:
    """The stored reference of a problem."""
    return json.loads(path.read_text())[name]


def main() -> None:
    parser = argparse.ArgumentParser(description="exact references of mixed models")
    parser.add_argument("names", nargs="*", default=list(mixed_problems.SMALL))
    parser.add_argument("--goal", type=float, default=GOAL, help="largest error of a mean or sd, in posterior sds")
    parser.add_argument("--most", type=int, default=MOST, help="draws of a scramble at which to stop")
    parser.add_argument("--pilot", type=int, default=PILOT, help="draws of each of the two pilots")
    parser.add_argument("--again", action="store_true", help="solve what is stored too")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    for name in given.names:
        stored = json.loads(given.out.read_text()) if given.out.exists() else {}
        if name in stored and not given.again:
            continue
        print(name, file=sys.stderr, flush=True)
        started, problem = time.process_time(), make(name)
        posterior = of_problem(problem)
        found = described(problem, posterior, solve(posterior, given.goal, given.most, given.pilot))
        found |= {"processor_seconds": round(time.process_time() - started, 1), "commit": describe_commit()}
        stored = json.loads(given.out.read_text()) if given.out.exists() else {}  # others may have written since
        given.out.write_text(json.dumps(stored | {name: found}, indent=1) + "\n")
        print(f"  {found['processor_seconds']} s, error {found['worst_error']:.4f}, nodes {found['node_error']:.1e}")


if __name__ == "__main__":
    main()
