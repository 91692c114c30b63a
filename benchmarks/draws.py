"""Draws: is every marginal that of the posterior, are they independent, and what do they cost?

    make bench-draws    prints a table, writes results/draws.json (10 minutes)

8,000 draws, by the default and by the ladder, of four posteriors: every marginal's Kolmogorov-Smirnov distance from a
reference of a hundred thousand weighted points, the density written out here in NumPy. The level is 0.01 for all
marginals of a posterior together. ArviZ's rank-normalised R-hat and ESS are those of four chains, into which the draws
are cut. `laplace` and `balanced` are as many draws of these Gaussians, of which the former must fail. Last, 10,000
draws at N = 10^6, d = 20: seconds warm, and rows a draw; beside it NumPyro's NUTS in the same process, on the same rows
in float32 with one's own likelihood, begun at the mode with the fit's own covariance for its mass, as a gift. It is so
slow that a hundred draws are made, and 10,000 effective ones extrapolated from their gradients; its warm-up is not
counted.
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import ages
import numpy as np
from lines import describe_commit
from scipy.special import gammaln, logsumexp
from scipy.stats import kstwobign

import tallbayes as tb
from tallbayes.views.text import table

RESULTS = Path(__file__).parent / "results" / "draws.json"
DRAWS, REFERENCE, LEVEL = 8_000, 100_000, 0.01
TALL, TALL_DRAWS = 1_000_000, 10_000
NUTS_WARM_UP, NUTS_DRAWS, NUTS_GRADIENTS = 50, 100, 20


def logistic(num_rows: int, dimension: int, size: float, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, dimension))
    x[:, -1] = 1.0
    theta = size * rng.normal(size=dimension)
    y = (rng.random(num_rows) < 1 / (1 + np.exp(-x @ theta))).astype(float)

    def log_density(points: np.ndarray) -> np.ndarray:
        eta = points @ x.T
        return eta @ y - np.logaddexp(0, eta).sum(axis=1) - 0.5 * np.sum(points**2, axis=1)

    return {"x": x, "y": y}, log_density


def poisson(num_rows: int, dimension: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(num_rows, dimension))
    x[:, -1] = 1.0
    y = rng.poisson(np.exp(x @ (0.3 * rng.normal(size=dimension)))).astype(float)

    def log_density(points: np.ndarray) -> np.ndarray:
        eta = points @ x.T
        return eta @ y - np.exp(eta).sum(axis=1) - gammaln(y + 1).sum() - 0.5 * np.sum(points**2, axis=1)

    return {"x": x, "y": y}, log_density


def schools(groups: int, size: int, seed: int) -> tuple[Any, Any]:
    """Reported are intercept, slope and the sd of the intercepts; each group's integral on a grid of a = b / sd."""
    rng = np.random.default_rng(seed)
    group, x = np.repeat(np.arange(groups), size), rng.normal(size=groups * size)
    eta = -0.3 + 0.8 * x + rng.normal(size=groups)[group]
    y = (rng.random(len(x)) < 1 / (1 + np.exp(-eta))).astype(float)
    grid = np.linspace(-7, 7, 101)
    log_step = np.log(grid[1] - grid[0]) - grid**2 / 2 - np.log(2 * np.pi) / 2
    sign = np.where(y > 0, 1.0, -1.0)

    def one(point: np.ndarray) -> float:
        intercept, slope, log_scale = point
        scale = np.exp(log_scale)
        near = (intercept + slope * x)[:, None] + scale * grid
        rows = -np.logaddexp(0, -sign[:, None] * near)
        by_group = rows.reshape(groups, size, -1).sum(axis=1) + log_step
        prior = -0.5 * ((intercept / 10) ** 2 + slope**2 + scale**2) + log_scale
        return float(logsumexp(by_group, axis=1).sum() + prior)

    def log_density(points: np.ndarray) -> np.ndarray:
        return np.array([one(point) for point in points])

    return {"y": y, "x": x, "school": group}, log_density


def fit(name: str, rows: Any, method: Any) -> tb.Result:
    asked: dict[str, Any] = {"tolerance": 0.01, "method": method}
    if name.startswith("schools"):
        options: dict[str, Any] = {"prior_scale": 1.0, "intercept_scale": 10.0, "group_scale": 1.0}
        return tb.fit("y ~ x + (1 | school)", rows, family="logistic", standardise=False, **options, **asked)
    return tb.estimate(_family(name), rows, **asked)


def _family(name: str) -> tb.Model:
    return tb.families.poisson() if name.startswith("Poisson") else tb.families.logistic()


def free(name: str, values: np.ndarray) -> np.ndarray:
    """With the log of what is positive."""
    return np.column_stack([values[:, :2], np.log(values[:, 2])]) if name.startswith("schools") else values


def reference(log_density: Any, centre: np.ndarray, root: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Weighted points: t_5, a quarter wider than some draws are."""
    rng, d = np.random.default_rng(20_260_101), len(centre)
    z = rng.standard_normal((count, d)) * np.sqrt(5 / rng.chisquare(5, (count, 1)))
    points = centre + 1.25 * z @ root.T
    log_q = -0.5 * (5 + d) * np.log1p(np.sum(z**2, axis=1) / 5)
    parts = [log_density(points[start : start + 500]) for start in range(0, count, 500)]
    log_weight = np.concatenate(parts) - log_q
    weight = np.exp(log_weight - log_weight.max())
    return points, weight / weight.sum()


def distance(values: np.ndarray, points: np.ndarray, weight: np.ndarray) -> float:
    """sup |F_n - F|."""
    order = np.argsort(points)
    total = np.concatenate([[0.0], np.cumsum(weight[order])])
    ranked = np.sort(values)
    here = total[np.searchsorted(points[order], ranked, side="right")]
    steps = np.arange(len(ranked) + 1) / len(ranked)
    return float(max(np.max(np.abs(here - steps[1:])), np.max(np.abs(here - steps[:-1]))))


def judged(values: np.ndarray, points: np.ndarray, weight: np.ndarray) -> dict[str, float]:
    """The worst marginal, and the p-value of that among all."""
    effective = 1 / np.sum(weight**2)
    worst = max(distance(values[:, j], points[:, j], weight) for j in range(values.shape[1]))
    both = (len(values) * effective / (len(values) + effective)) ** 0.5
    p = min(1.0, values.shape[1] * float(kstwobign.sf(worst * both)))
    return {"worst_ks": worst, "p": p, "reference": float(effective)}


def chains(values: np.ndarray) -> dict[str, float]:
    import arviz

    cut = {"theta": values.reshape(4, -1, values.shape[1])}
    rhat, ess = arviz.rhat(cut)["theta"].to_numpy(), arviz.ess(cut)["theta"].to_numpy()
    return {"rhat": float(rhat.max()), "ess_least": float(ess.min()), "ess_mean": float(ess.mean())}


def study(name: str, rows: Any, log_density: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    known = None
    for label, method in (("default", None), ("ladder", tb.Anchored())):
        result = fit(name, rows, method)
        result.draws(256)
        start = time.perf_counter()
        draws = result.draws(DRAWS, seed=1)
        seconds = time.perf_counter() - start
        values = free(name, draws.flat)
        if known is None:
            root = np.linalg.cholesky(np.atleast_2d(np.cov(values.T)))
            count = REFERENCE // 4 if name.startswith("schools") else REFERENCE
            known = reference(log_density, values.mean(axis=0), root, count)
        tried = judged(values, *known)
        one = {"posterior": name, "by": label, "how": draws.how, **tried, **chains(values)}
        found.append({**one, "bias": draws.bias, "rows_per_draw": draws.rows_per_draw, "seconds": seconds})
        print(found[-1], file=sys.stderr, flush=True)
    assert known is not None
    mean = known[1] @ known[0]
    if name.startswith("schools"):
        return found
    for label, centre in (("laplace", "mode"), ("balanced", "balanced")):
        rough = tb.estimate(_family(name), rows, tolerance=1.0, method=tb.Anchored(anchor=centre))
        anchor = rough.anchor
        assert anchor is not None
        values = anchor.mode + anchor.displacements(np.random.default_rng(3).standard_normal((DRAWS, len(mean))))
        found.append({"posterior": name, "by": label, "how": "a Gaussian alone", **judged(values, *known)})
        print(found[-1], file=sys.stderr, flush=True)
    return found


def tall() -> dict[str, Any]:
    rows, _ = logistic(TALL, 20, (3 / 20) ** 0.5, 9)
    start = time.perf_counter()
    result = tb.estimate(tb.families.logistic(), rows, tolerance=0.01)
    fitted = time.perf_counter() - start
    start = time.perf_counter()
    result.draws(TALL_DRAWS, seed=1)
    cold = time.perf_counter() - start
    start, busy = time.perf_counter(), time.process_time()
    draws = result.draws(TALL_DRAWS, seed=2)
    warm, busy = time.perf_counter() - start, time.process_time() - busy
    found = {"posterior": "logistic 1e6 x 20", "by": "default", "how": draws.how, "fit_seconds": fitted}
    found |= {"cold_seconds": cold, "seconds": warm, "processor_seconds": busy, "bias": draws.bias}
    found["nuts"] = nuts(rows, result)
    return {**found, "rows_per_draw": draws.rows_per_draw, "draws": TALL_DRAWS, **chains(draws.flat[:DRAWS])}


def nuts(rows: Any, result: tb.Result) -> dict[str, float]:
    """Gradients of a short run, seconds of one, and what as many effective draws would take: an extrapolation."""
    import arviz
    import jax
    import jax.numpy as jnp
    from numpyro.infer import MCMC, NUTS

    anchor = result.anchor
    assert anchor is not None
    x, y = jnp.asarray(rows["x"], jnp.float32), jnp.asarray(rows["y"], jnp.float32)
    slope, start = y @ x, jnp.asarray(anchor.mode, jnp.float32)

    def potential(theta: Any) -> Any:
        return jnp.sum(jax.nn.softplus(x @ theta)) - slope @ theta + 0.5 * jnp.sum(theta**2)

    mass = jnp.asarray(anchor.covariance, jnp.float32)
    kernel = NUTS(potential_fn=potential, dense_mass=True, inverse_mass_matrix=mass, adapt_mass_matrix=False)
    sampler = MCMC(kernel, num_warmup=NUTS_WARM_UP, num_samples=NUTS_DRAWS, progress_bar=False)
    sampler.run(jax.random.PRNGKey(0), init_params=start, extra_fields=("num_steps",))
    values = np.asarray(sampler.get_samples(), np.float64)
    if len(np.unique(values[:, 0])) < NUTS_DRAWS / 2:
        raise RuntimeError("NUTS did not move: its draws say nothing of its speed")
    # More than there are draws, as neighbours in opposite directions have it, is not told from so few.
    effective = min(float(arviz.ess({"theta": values[None]})["theta"].min()), NUTS_DRAWS)
    gradients = int(np.sum(sampler.get_extra_fields()["num_steps"]))
    both = jax.jit(jax.value_and_grad(potential))
    jax.block_until_ready(both(start))
    began, busy = time.perf_counter(), time.process_time()
    for _ in range(NUTS_GRADIENTS):
        jax.block_until_ready(both(start))
    seconds, busy = time.perf_counter() - began, time.process_time() - busy
    times = gradients / NUTS_GRADIENTS * TALL_DRAWS / effective
    return {
        "draws": NUTS_DRAWS,
        "gradients": gradients,
        "ess_least": effective,
        "seconds_a_gradient": seconds / NUTS_GRADIENTS,
        "processor_seconds_a_gradient": busy / NUTS_GRADIENTS,
        "extrapolated_seconds": seconds * times,
        "extrapolated_processor_seconds": busy * times,
    }


def main() -> None:
    studies = {
        "logistic 1,000 x 20": logistic(1_000, 20, (3 / 20) ** 0.5, 1),
        "far: logistic 200 x 20": logistic(200, 20, 1.5, 2),
        "Poisson 2,000 x 4": poisson(2_000, 4, 3),
        "schools: 50 x 8": schools(50, 8, 4),
    }
    chosen = sys.argv[1:] or [*studies, "tall"]
    found = []
    for name, (rows, log_density) in studies.items():
        if name in chosen:
            found += study(name, rows, log_density)
    if "tall" in chosen:
        found.append(tall())
        print(found[-1], file=sys.stderr, flush=True)
    known = json.loads(RESULTS.read_text())["cases"] if RESULTS.exists() else []
    kept = [each for each in known if each["posterior"] not in {one["posterior"] for one in found}]
    about = {"tallbayes": version("tallbayes"), "commit": describe_commit(), "draws": DRAWS, "level": LEVEL}
    RESULTS.write_text(json.dumps({**about, "cases": kept + found}, indent=1) + "\n")
    new = [one["posterior"] for one in found]
    ages.record(RESULTS, ages.renewed(RESULTS.name, [each["posterior"] for each in kept + found], new))
    columns = ["posterior", "by", "worst_ks", "p", "rhat", "ess_least", "bias", "rows_per_draw", "seconds"]
    shown = [[_shown(each.get(name, "")) for name in columns] for each in kept + found]
    print(table(columns, shown))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


if __name__ == "__main__":
    main()
