"""What is true of the contest's posteriors: means and sds by importance sampling, with their errors.

    python benchmarks/peers/truths.py [NAME ...]      all of them by default; what is stored is not run again

    theta = centre +- R t,   t from Student's t,   w = pi(theta | X) / q(t),   E g = E_q[w g] / E_q[w]

The logistic problems and the counts are those of benchmarks/references.py. For the others, draws come in pairs, and
with u_j = (R t)_j / its sd, every moment of theta_j is regressed on phi(t) / q(t) times 1, u_j^2 and u_j T(t), whose
means are known: phi is the Gaussian N(0, I), T the cubic term of the log density where the centre is the mode. At
the non-Gaussian posterior, centre and R R' are its mean and covariance, from rounds of draws that are then forgotten.
Two seeds run apart, each until every mean and sd is known to its goal; they are pooled, and how far they are from each
other is stored as z-scores. Results go to benchmarks/results/truths.json; nothing here is shared with any contestant
but the mode, which `check` confirms. With OPENBLAS_NUM_THREADS=1 the two threads do not get in each other's way.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import gammaln

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import flights_reference  # noqa: E402
import references  # noqa: E402
from references import Reference  # noqa: E402

from peers import posteriors  # noqa: E402

RESULTS = HERE.parent / "results" / "truths.json"
GOAL, COUNTS_GOAL, CLASS_GOAL = 5e-4, 1e-4, 1.5e-3
MAX_DRAWS, MAX_CLASS_DRAWS = 20_000_000, 65_536
SEEDS = (20260201, 20260202)
CLASS_TILE, CLASS_PAIRS = 64, 128
MATCHING_ROUNDS, MATCHING_DRAWS = 3, 200_000
CHECKED_DRAWS, CHECK_LIMIT = 4, 1e-6

Ratio = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Target:
    """A density about a centre, and the Gaussian N(centre, root root') that stands for it.

    log_ratio    of moves (n, d): log pi(centre + move) and log pi(centre - move) less log pi(centre), and T, each (n,)
    skew         E[u_j T] under the Gaussian, (d,); 0 where there is no T
    """

    centre: np.ndarray
    root: np.ndarray
    log_ratio: Ratio
    skew: np.ndarray
    pairs: int

    @property
    def scale(self) -> np.ndarray:
        """The Gaussian's sds."""
        return np.sqrt(np.sum(self.root**2, axis=1))


class Sums:
    """Batch means of the moments w, w u, w u^2 and of the controls, (3, d) each, and their products for regression."""

    def __init__(self) -> None:
        self.moments: list[np.ndarray] = []
        self.controls: list[np.ndarray] = []
        self.products: Any = 0.0
        self.crosses: Any = 0.0
        self.squares = 0.0

    def add(self, moments: np.ndarray, controls: np.ndarray, squares: float) -> None:
        """Of pairs: both are (3, pairs, d)."""
        self.moments.append(moments.mean(axis=1))
        self.controls.append(controls.mean(axis=1))
        centred = controls - self.controls[-1][:, None]
        self.products = self.products + np.einsum("anj,bnj->jab", centred, centred)
        self.crosses = self.crosses + np.einsum("anj,bnj->jab", centred, moments)
        self.squares += squares

    def estimates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and sd of every u_j, (d,), and the errors of both, (2, d)."""
        slopes = np.linalg.pinv(self.products, rcond=1e-12, hermitian=True) @ self.crosses
        moments = np.array(self.moments) - np.einsum("kaj,jab->kbj", np.array(self.controls), slopes)
        return references.mean_and_sd(*moments.swapaxes(0, 1))


def solve(target: Target, freedom: float, goal: float, max_draws: int, seed: int) -> Reference:
    """Draw pairs until every mean and sd is known to `goal` posterior sds, or `max_draws` are drawn."""
    started = time.monotonic()
    d, scale = len(target.centre), target.scale
    constant = gammaln((freedom + d) / 2) - gammaln(freedom / 2) - d / 2 * np.log(freedom / 2)

    def task(index: int) -> tuple[np.ndarray, np.ndarray, float]:
        rng = np.random.default_rng([seed, index])
        t = rng.standard_normal((target.pairs, d))
        t *= np.sqrt(freedom / rng.chisquare(freedom, size=(target.pairs, 1)))
        norm = np.sum(t**2, axis=1)
        proposal = constant - 0.5 * (freedom + d) * np.log1p(norm / freedom)
        move = t @ target.root.T
        plus, minus, cubic = target.log_ratio(move)
        plus, minus, gaussian = (np.exp(each - proposal) for each in (plus, minus, -0.5 * norm))
        even, odd, gaussian = (each[:, None] for each in ((plus + minus) / 2, (plus - minus) / 2, gaussian))
        u, ones = move / scale, np.ones(d)
        moments = np.stack([even * ones, odd * u, even * u**2])
        known = [(gaussian - 1) * ones, gaussian * (u**2 - 1), gaussian * cubic[:, None] * u - target.skew]
        return moments, np.stack(known), float(np.sum(plus**2 + minus**2))

    sums, done = Sums(), 0
    with ThreadPoolExecutor(references.THREADS) as executor:
        while True:
            count = references.BATCHES * max(1, done // 2 // references.BATCHES)
            for results in executor.map(task, range(done, done + count)):
                sums.add(*results)
            done += count
            mean, sd, error = sums.estimates()
            worst, draws = float(np.max(error / sd)), 2 * target.pairs * done
            if worst <= goal or draws >= max_draws:
                break
    total = sum(each[0, 0] for each in sums.moments) * 2 * target.pairs
    return Reference(
        mean=(target.centre + scale * mean).tolist(),
        sd=(scale * sd).tolist(),
        mean_error=(scale * error[0]).tolist(),
        sd_error=(scale * error[1]).tolist(),
        worst_error=worst,
        effective_fraction=float(total**2 / sums.squares / draws),
        draws=draws,
        freedom=freedom,
        goal=goal,
        seed=seed,
        seconds=round(time.monotonic() - started, 2),
    )


def solve_twice(target: Target, freedom: float, goal: float, max_draws: int) -> tuple[Reference, dict[str, float]]:
    """Two seeds, each with half the draws, pooled; and the z-scores of their differences."""
    one, two = (solve(target, freedom, np.sqrt(2) * goal, max_draws // 2, seed) for seed in SEEDS)
    first, second = (np.array([each.mean, each.sd]) for each in (one, two))
    off = np.array([[each.mean_error, each.sd_error] for each in (one, two)])
    z = (first - second) / np.hypot(*off)
    mean, sd = (first + second) / 2
    mean_error, sd_error = np.hypot(*off) / 2
    pooled = Reference(
        mean=mean.tolist(),
        sd=sd.tolist(),
        mean_error=mean_error.tolist(),
        sd_error=sd_error.tolist(),
        worst_error=float(np.max([mean_error / sd, sd_error / sd])),
        effective_fraction=(one.effective_fraction + two.effective_fraction) / 2,
        draws=one.draws + two.draws,
        freedom=freedom,
        goal=goal,
        seed=one.seed,
        seconds=round(one.seconds + two.seconds, 2),
    )
    spread = {"numbers": z.size, "rms": float(np.sqrt(np.mean(z**2))), "largest": float(np.max(np.abs(z)))}
    return pooled, {"mean_z": float(np.mean(z)), **spread}


def about_the_mode(
    posterior: references.Posterior, log_density: Callable[[np.ndarray], np.ndarray], pairs: int
) -> Target:
    """The Gaussian is Laplace's; T comes from all third derivatives."""
    mode, precision = posterior.mode
    root = np.linalg.inv(np.linalg.cholesky(precision)).T
    tensor = posterior.cubic(root)
    d, peak = len(mode), log_density(mode[None])[0]
    inverse = np.linalg.inv(root)

    def log_ratio(move: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        z = move @ inverse.T
        cubic = np.einsum("nj,nk,njk->n", z, z, (z @ tensor.reshape(d, -1)).reshape(-1, d, d)) / 6
        plus, minus = np.split(log_density(np.concatenate([mode + move, mode - move])) - peak, 2)
        return plus, minus, cubic

    scale = np.sqrt(np.sum(root**2, axis=1))
    return Target(mode, root, log_ratio, root @ np.einsum("jkk->j", tensor) / 2 / scale, pairs)


def about_the_mean(posterior: references.Posterior, freedom: float, pairs: int) -> Target:
    """The Gaussian has the posterior's mean and covariance, as rounds of importance sampling find them."""
    centre, precision = posterior.mode
    covariance = np.linalg.inv(precision)
    rng = np.random.default_rng(SEEDS[0] - 1)
    for _ in range(MATCHING_ROUNDS):
        t = rng.standard_normal((MATCHING_DRAWS, len(centre)))
        t *= np.sqrt(freedom / rng.chisquare(freedom, size=(MATCHING_DRAWS, 1)))
        theta = centre + t @ np.linalg.cholesky(covariance).T
        log_weights = posterior.log_density(theta)
        log_weights += 0.5 * (freedom + len(centre)) * np.log1p(np.sum(t**2, axis=1) / freedom)
        weights = np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        centre = weights @ theta
        covariance = (theta - centre).T @ (weights[:, None] * (theta - centre))
    peak = posterior.log_density(centre[None])[0]

    def log_ratio(move: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        plus, minus = np.split(posterior.log_density(np.concatenate([centre + move, centre - move])) - peak, 2)
        return plus, minus, np.zeros(len(move))

    return Target(centre, np.linalg.cholesky(covariance), log_ratio, np.zeros(len(centre)), pairs)


@dataclass(frozen=True, eq=False)
class Classes:
    """A multinomial posterior about its mode, in NumPy.

    With p the chances at the mode and delta = x . move a class, the row's log likelihood changes by delta_y - K(delta),
    K(delta) = log sum_k p_k exp(delta_k), and T is minus the sum of K's third cumulants over 6.
    """

    posterior: posteriors.Posterior

    def log_density(self, theta: np.ndarray) -> np.ndarray:
        """Of every row of theta, up to a constant."""
        x, y = self.posterior.x, self.posterior.y.astype(int)
        total = -0.5 * np.sum(theta**2, axis=1)
        for place, each in enumerate(theta):
            eta = np.column_stack([np.zeros(len(y)), x @ self.posterior.split(each).T])
            total[place] += np.sum(eta[np.arange(len(y)), y] - np.log(np.sum(np.exp(eta), axis=1)))
        return total

    def target(self) -> Target:
        x, mode = self.posterior.x, self.posterior.mode
        root = np.linalg.inv(np.linalg.cholesky(self.posterior.precision)).T
        chances = posteriors.chances(x @ self.posterior.split(mode).T)
        own = self.posterior.y[:, None] == np.arange(1, chances.shape[1] + 1)
        linear = (own.T.astype(float) @ x).ravel() - mode

        def log_ratio(move: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            plus, minus, cubic = self._sums(chances, move)
            odd, even = move @ linear, -0.5 * np.sum(move**2, axis=1)
            return even + odd - plus, even - odd - minus, -cubic / 6

        covariance = root @ root.T
        skew = covariance @ self._contracted(chances, covariance) / 2 / np.sqrt(np.diag(covariance))
        return Target(mode, root, log_ratio, skew, CLASS_PAIRS)

    def _sums(self, chances: np.ndarray, move: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Over all rows: K(delta), K(-delta) and the third cumulant, for each move; sums are float64, rows float32."""
        sums = np.zeros((3, len(move)))
        columns = self.posterior.x.shape[1]
        moves = move.reshape(len(move), -1, columns).transpose(2, 1, 0).reshape(columns, -1).astype(np.float32)
        for start in range(0, len(chances), CLASS_TILE):
            tile = slice(start, start + CLASS_TILE)
            p = chances[tile, :, None].astype(np.float32)
            base = 1 - p.sum(axis=1)
            delta = (self.posterior.x[tile].astype(np.float32) @ moves).reshape(len(p), -1, len(move))
            odds = np.exp(delta)
            sums[0] += np.sum(np.log(base + np.sum(p * odds, axis=1)), axis=0, dtype=np.float64)
            sums[1] += np.sum(np.log(base + np.sum(p / odds, axis=1)), axis=0, dtype=np.float64)
            powers = p * delta
            one = powers.sum(axis=1)
            powers *= delta
            two = powers.sum(axis=1)
            powers *= delta
            sums[2] += np.sum(powers.sum(axis=1) - 3 * two * one + 2 * one**3, axis=0, dtype=np.float64)
        return sums[0], sums[1], sums[2]

    def _contracted(self, chances: np.ndarray, covariance: np.ndarray) -> np.ndarray:
        """Sum_kl C_kl T_jkl over all j, (d,): of a row -p_a (q_a - sum_c p_c q_c), q_c = (e_c - p)' C_i (e_c - p).

        C_i is the covariance of the row's delta, and q_0 = p' C_i p.
        """
        x, heads = self.posterior.x, chances.shape[1]
        blocks = covariance.reshape(heads, x.shape[1], heads, x.shape[1])
        spread = np.empty((len(x), heads, heads))
        for a in range(heads):
            for b in range(heads):
                spread[:, a, b] = np.sum((x @ blocks[a, :, b]) * x, axis=1)
        pull = np.einsum("nab,nb->na", spread, chances)
        base = np.sum(pull * chances, axis=1, keepdims=True)
        q = np.einsum("naa->na", spread) - 2 * pull + base
        average = np.sum(chances * q, axis=1, keepdims=True) + (1 - chances.sum(axis=1, keepdims=True)) * base
        return -((chances * (q - average)).T @ x).ravel()


Found = tuple[Reference, dict[str, float] | None, str]


def compute(name: str) -> Found:
    """The reference, how two seeds differ where two were run, and the method in words."""
    return OTHERS.get(name, _standard)(name)


def _standard(name: str) -> Found:
    stored = references.load()
    if name in stored:
        return stored[name], None, "importance sampling about the mode, stored in references.json"
    return references.compute(name), None, "importance sampling about the mode, references.py"


def _randhie(name: str) -> Found:
    found = references.solve(_plain(posteriors.load(name)), COUNTS_GOAL, 10.0)
    return found, None, "importance sampling about the mode, references.py"


def _flights(name: str) -> Found:
    groups = flights_reference.make_problem().groups
    target = about_the_mode(_plain(posteriors.load(name)), groups.log_density, 64)
    found, z = solve_twice(target, flights_reference.FREEDOM, GOAL, 2 * 2 * flights_reference.PAIRS)
    return found, z, "importance sampling about the mode, over groups of equal flights"


def _classes(name: str) -> Found:
    found, z = solve_twice(Classes(posteriors.load(name)).target(), 1000.0, CLASS_GOAL, MAX_CLASS_DRAWS)
    return found, z, "importance sampling about the mode"


def _non_gaussian(name: str) -> Found:
    freedom = 15.0
    found, z = solve_twice(about_the_mean(_plain(posteriors.load(name)), freedom, 4096), freedom, GOAL / 2, MAX_DRAWS)
    return found, z, "importance sampling about the mean, covariance matched"


OTHERS: dict[str, Callable[[str], Found]] = {
    "flights": _flights,
    "randhie": _randhie,
    "multinomial": _classes,
    "non-gaussian": _non_gaussian,
}


def _plain(posterior: posteriors.Posterior) -> references.Posterior:
    likelihood = references.POISSON if posterior.response is posteriors.POISSON else references.LOGISTIC
    return references.Posterior(likelihood, posterior.x, posterior.y)


def check(name: str) -> dict[str, float]:
    """How far the JAX log density is from that in NumPy and from tallbayes' model, and mode and precision from JAX's.

    Densities are compared about the mode, up to a constant; the gradient at the mode is in posterior sds, and the
    precision's error along one direction relative.
    """
    posterior = posteriors.load(name)
    root = np.linalg.inv(np.linalg.cholesky(posterior.precision)).T
    moves = np.random.default_rng(0).standard_normal((CHECKED_DRAWS, posterior.dimension)) @ root.T
    theta = posterior.mode + np.concatenate([np.zeros((1, posterior.dimension)), 2 * moves])
    plain = Classes(posterior) if posterior.response is posteriors.MULTINOMIAL else _plain(posterior)
    model, rows = posterior.model()
    with jax.enable_x64(True):
        rows = {key: jnp.asarray(value, jnp.float64) for key, value in rows.items()}

        def log_density(each: Any) -> Any:
            return posterior.log_prior(each) + jnp.sum(posterior.log_likelihood(each, rows["x"], rows["y"]))

        def of_model(each: Any) -> Any:
            parameter = posterior.split(each)
            likelihood = jax.vmap(model.log_likelihood, in_axes=(None, 0))(parameter, rows)
            return model.log_prior(parameter) + jnp.sum(likelihood)

        ours = np.array([log_density(each) for each in jnp.asarray(theta)])
        theirs = np.array([of_model(each) for each in jnp.asarray(theta)])
        gradient, turn = map(np.array, jax.jvp(jax.grad(log_density), (theta[0],), (moves[0],)))
    found = {
        "numpy": _apart(ours, plain.log_density(theta)),
        "tallbayes": _apart(ours, theirs),
        "gradient": float(np.max(np.abs(root.T @ gradient))),
        "precision": float(np.max(np.abs(turn @ root + moves[0] @ posterior.precision @ root))),
    }
    wrong = {key: value for key, value in found.items() if not value < CHECK_LIMIT}
    if wrong:
        raise ArithmeticError(f"expected differences below {CHECK_LIMIT} of {name}; got {wrong}")
    return found


def _apart(one: np.ndarray, two: np.ndarray) -> float:
    return float(np.max(np.abs((one - one[0]) - (two - two[0]))))


def load(path: Path = RESULTS) -> dict[str, dict[str, Any]]:
    """What is stored, by posterior."""
    return json.loads(path.read_text())["truths"] if path.exists() else {}


def get(name: str, path: Path = RESULTS) -> Reference:
    """From the store, computed, checked and stored if it is not there."""
    stored = load(path)
    if name not in stored:
        stored[name] = _entry(name)
        settings = {"errors": "one standard error, in the quantity's units; worst_error in posterior sds"}
        truths = {each: stored[each] for each in posteriors.NAMES if each in stored}
        versions = {package: version(package) for package in ("numpy", "scipy", "jax")}
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps({"settings": settings, "versions": versions, "truths": truths}, indent=1) + "\n")
        os.replace(partial, path)
    return Reference(**{field.name: stored[name][field.name] for field in fields(Reference)})


def _entry(name: str) -> dict[str, Any]:
    checked = check(name)
    found, z, method = compute(name)
    posterior = posteriors.load(name)
    laplace = {"mean": posterior.mode.tolist(), "sd": np.sqrt(np.diag(np.linalg.inv(posterior.precision))).tolist()}
    return asdict(found) | {"method": method, "two_seeds": z, "check": checked, "laplace": laplace}


def main() -> None:
    from tallbayes.views.text import table

    parser = argparse.ArgumentParser(description="reference means and sds of the contest's posteriors")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(posteriors.NAMES)}; all of them by default")
    rows = []
    for name in parser.parse_args().names or posteriors.NAMES:
        print(name, file=sys.stderr, flush=True)
        this, stored = get(name), load()[name]
        mean, sd, z = np.array(this.mean), np.array(this.sd), stored["two_seeds"]
        gap = np.max(np.abs(np.array(stored["laplace"]["mean"]) - mean) / sd)
        spread = np.max(np.abs(np.array(stored["laplace"]["sd"]) / sd - 1))
        two = "" if z is None else f"{z['rms']:.2f}, {z['largest']:.2f}"
        cells = [f"{this.draws:,}", f"{this.effective_fraction:.2f}", f"{this.worst_error:.1e}", two]
        cells += [f"{gap:.3f}", f"{spread:.3f}", f"{max(stored['check'].values()):.0e}", f"{this.seconds:.1f}"]
        rows.append([name, *cells])
    heads = ("posterior", "draws", "ESS / draws", "worst error (sds)", "z of two seeds: rms, largest")
    print(table((*heads, "Laplace's means off (sds)", "its sds", "check", "seconds"), rows))


if __name__ == "__main__":
    main()
