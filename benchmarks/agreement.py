"""Do the families agree with NumPyro's NUTS? Means and sds of all parameters, the same posterior written twice.

    python benchmarks/agreement.py [--out FOLDER]      prints a table, writes benchmarks/results/agreement.json

Every family on rows of `simulations`, and logistic regression with group effects that have a common scale, which has no
family. Both sides state an error, and every difference is held against the two together:

    z = (ours - NUTS) / sqrt(e^2 + s^2),   e = (t_nu se + bias bound) / 4.5 at the level of 4.5 sigma,   |z| <= 4.5

which all but 1 in 150,000 differences of right answers meet. s is sd / sqrt(ESS) for a mean; for an sd it is that of
the squared deviations over 2 sd. NUTS runs in float64. One more comparison must fail: our prior is half as wide there.
Every finished piece is stored at once and not run again: delete agreement.json after the sampler has changed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import ages
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import log_ndtr
from scipy.special import ndtr
from simulations import EXTRA_SCALE, FREEDOM, INTERCEPT_SCALE, KNOWN_NOISE, SIMULATIONS, Simulation

import tallbayes as tb
from tallbayes.errors import require_extra
from tallbayes.experiments.store import Measurement, Store
from tallbayes.views.text import table

numpyro = require_extra("numpyro", "bench", "draws to compare with")
dist, infer = (import_module(f"numpyro.{each}") for each in ("distributions", "infer"))
effective_sample_size = import_module("numpyro.diagnostics").effective_sample_size
MCMC, NUTS = infer.MCMC, infer.NUTS

RESULTS = Path(__file__).parent / "results"
NAME = "agreement"
NUM_ROWS, DIMENSION, SEED, TOLERANCE = 2_000, 5, 1, 0.02
GROUPED, GROUP_ROWS, GROUPS, GROUP_SCALE = "grouped logistic", 3_000, 30, 0.7
CHAINS, WARM_UP, DRAWS = 2, 1_000, 5_000
MAX_SECONDS = 1200.0
LIMIT = 4.5
FALSE_ALARM = 2 * float(ndtr(-LIMIT))
CONTROL = "control: logistic, our prior half as wide"


class Case(NamedTuple):
    """A posterior in both languages; rows are the argument of the NumPyro model."""

    model: tb.Model
    numpyro_model: Callable[[Any], None]
    rows: dict[str, np.ndarray]


RESPONSES: dict[str, Callable[[Any, Any], Any]] = {
    "logistic": lambda eta, _: dist.Bernoulli(logits=eta),
    "probit": lambda eta, _: dist.Bernoulli(logits=log_ndtr(eta) - log_ndtr(-eta)),
    "linear, noise known": lambda eta, _: dist.Normal(eta, KNOWN_NOISE),
    "linear": lambda eta, noise_scale: dist.Normal(eta, noise_scale),
    "student_t": lambda eta, noise_scale: dist.StudentT(FREEDOM, eta, noise_scale),
    "poisson": lambda eta, _: dist.Poisson(jnp.exp(eta)),
    "negative_binomial": lambda eta, excess: dist.NegativeBinomial2(jnp.exp(eta), 1 / excess),
    "multinomial": lambda eta, _: dist.Categorical(logits=jnp.pad(eta, ((0, 0), (1, 0)))),
}


def numpyro_family(name: str, rows: Any) -> None:
    """The family as a reader of its documentation would write it."""
    simulation = SIMULATIONS[name]
    scales = np.broadcast_to(simulation.scales(DIMENSION), (*simulation.heads, DIMENSION))
    coefficients = numpyro.sample("coefficients", dist.Normal(0.0, scales))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, INTERCEPT_SCALE * np.ones(simulation.heads)))
    extra = None
    for each in simulation.extras:
        extra = numpyro.sample(each, dist.HalfNormal(EXTRA_SCALE))
    eta = rows["x"] @ coefficients.T + intercept + rows.get("offset", 0.0)
    whole = name == "multinomial"
    numpyro.sample("y", RESPONSES[name](eta, extra), obs=rows["y"].astype(int) if whole else rows["y"])


def family_case(name: str, narrowing: float = 1.0) -> Case:
    simulation: Simulation = SIMULATIONS[name]
    rng = np.random.default_rng([SEED, list(SIMULATIONS).index(name)])
    _, rows = simulation.draw(rng, NUM_ROWS, DIMENSION)
    return Case(simulation.model(DIMENSION, narrowing), partial(numpyro_family, name), rows)


def grouped_log_prior(theta: Any) -> Any:
    standard = theta["coefficients"], theta["effects"], theta["group_scale"], theta["intercept"] / INTERCEPT_SCALE
    return -0.5 * sum(jnp.sum(part**2) for part in standard)


def grouped_log_likelihood(theta: Any, row: Any) -> Any:
    eta = row["x"] @ theta["coefficients"] + theta["intercept"] + theta["group_scale"] * theta["effects"][row["group"]]
    return row["y"] * eta - jnp.logaddexp(0.0, eta)


def numpyro_grouped(rows: Any) -> None:
    coefficients = numpyro.sample("coefficients", dist.Normal(0.0, np.ones(DIMENSION)))
    intercept = numpyro.sample("intercept", dist.Normal(0.0, INTERCEPT_SCALE))
    group_scale = numpyro.sample("group_scale", dist.HalfNormal(1.0))
    effects = numpyro.sample("effects", dist.Normal(0.0, np.ones(GROUPS)))
    eta = rows["x"] @ coefficients + intercept + group_scale * effects[rows["group"]]
    numpyro.sample("y", dist.Bernoulli(logits=eta), obs=rows["y"])


def grouped_case() -> Case:
    rng = np.random.default_rng([SEED, len(SIMULATIONS)])
    x, group = rng.normal(size=(GROUP_ROWS, DIMENSION)), rng.integers(0, GROUPS, GROUP_ROWS)
    eta = x @ rng.normal(size=DIMENSION) * 0.5 + GROUP_SCALE * rng.normal(size=GROUPS)[group]
    rows = {"x": x, "y": (rng.random(GROUP_ROWS) < 1 / (1 + np.exp(-eta))).astype(float), "group": group}
    initial = {
        "coefficients": np.zeros(DIMENSION),
        "intercept": 0.0,
        "group_scale": 1.0,
        "effects": np.zeros(GROUPS),
    }
    constraints = {"group_scale": tb.constraints.positive}
    model = tb.Model(grouped_log_prior, grouped_log_likelihood, initial, constraints=constraints)
    return Case(model, numpyro_grouped, rows)


def run_nuts(case: Case) -> dict[str, Any]:
    """Means and sds of all parameters with their errors, parameters by name and flat as in a Structure."""
    started = time.perf_counter()
    with jax.enable_x64(True):
        kernel = NUTS(case.numpyro_model)
        sampler = MCMC(
            kernel, num_warmup=WARM_UP, num_samples=DRAWS, num_chains=CHAINS, chain_method="vectorized",
            progress_bar=False,
        )  # fmt: skip
        rows = {name: jnp.asarray(each) for name, each in case.rows.items()}
        sampler.run(jax.random.PRNGKey(SEED), rows, extra_fields=("diverging",))
        by_name = {name: np.asarray(each) for name, each in sampler.get_samples(group_by_chain=True).items()}
        diverging = int(np.sum(sampler.get_extra_fields()["diverging"]))
    samples = np.concatenate([by_name[name].reshape(CHAINS, DRAWS, -1) for name in sorted(by_name)], axis=2)
    if samples.dtype != np.float64:
        raise RuntimeError(f"expected NUTS to run in float64, got {samples.dtype}")
    mean, sd = samples.mean(axis=(0, 1)), samples.std(axis=(0, 1))
    squares = (samples - mean) ** 2
    ess, ess_squares = effective_sample_size(samples), effective_sample_size(squares)
    return {
        "mean": mean,
        "sd": sd,
        "mean_error": sd / np.sqrt(ess),
        "sd_error": squares.std(axis=(0, 1)) / np.sqrt(ess_squares) / (2 * sd),
        "ess": float(min(ess.min(), ess_squares.min())),
        "diverging": diverging,
        "seconds": time.perf_counter() - started,
    }


def compare(make_case: Callable[[], Case]) -> dict[str, Any]:
    """Both answers, component by component, and how far they are apart."""
    case = make_case()
    result = tb.estimate(case.model, case.rows, tolerance=TOLERANCE, seed=SEED, max_seconds=MAX_SECONDS)
    nuts = run_nuts(case)
    found: dict[str, Any] = {
        "status": result.status.name,
        "notes": list(result.notes),
        "seconds": result.cost.seconds,
        "nuts_seconds": nuts["seconds"],
        "least_ess": nuts["ess"],
        "diverging": nuts["diverging"],
        "components": [],
    }
    for name in ("mean", "sd"):
        ours = result[name]
        labels = ours.structure.labels(name)
        error = ours.half_width(1 - FALSE_ALARM) / LIMIT
        difference = ours.flat_value - nuts[name]
        z = difference / np.hypot(error, nuts[f"{name}_error"])
        columns = ours.flat_value, error, nuts[name], nuts[f"{name}_error"], difference / nuts["sd"], z
        fields = "ours", "error", "nuts", "nuts_error", "difference_sd", "z"
        for label, *numbers in zip(labels, *columns, strict=True):
            found["components"].append({"name": label} | dict(zip(fields, map(float, numbers), strict=True)))
    return found


def pieces() -> dict[str, Measurement]:
    common = {
        "tolerance": TOLERANCE, "seed": SEED, "dimension": DIMENSION, "chains": CHAINS, "warm_up": WARM_UP,
        "draws": DRAWS, "limit": LIMIT,
    }  # fmt: skip
    rows = common | {"num_rows": NUM_ROWS}
    made = {name: Measurement(rows, partial(compare, partial(family_case, name))) for name in SIMULATIONS}
    grouped = common | {"num_rows": GROUP_ROWS, "groups": GROUPS}
    made[GROUPED] = Measurement(grouped, partial(compare, grouped_case))
    made[CONTROL] = Measurement(rows | {"narrowing": 0.5}, partial(compare, partial(family_case, "logistic", 0.5)))
    return made


def largest(result: dict[str, Any], field: str) -> float:
    return float(np.max(np.abs([each[field] for each in result["components"]])))


def show(results: dict[str, Any]) -> str:
    header = (
        "posterior", "comparisons", "max |z|", "rms z", "max difference (sd)", "seconds", "NUTS seconds", "least ESS",
        "divergences", "status",
    )  # fmt: skip
    cells = []
    for name, each in results.items():
        rms = np.sqrt(np.mean([one["z"] ** 2 for one in each["components"]]))
        cells.append(
            [
                name, str(len(each["components"])), f"{largest(each, 'z'):.2f}", f"{rms:.2f}",
                f"{largest(each, 'difference_sd'):.4f}", f"{each['seconds']:.1f}", f"{each['nuts_seconds']:.0f}",
                f"{each['least_ess']:,.0f}", str(each["diverging"]), each["status"],
            ]
        )  # fmt: skip
    held = {name: each for name, each in results.items() if name != CONTROL}
    number = sum(len(each["components"]) for each in held.values())
    promises = {
        f"all of {number} |z| <= {LIMIT} (false alarms: {number * FALSE_ALARM:.1g})": all(
            largest(each, "z") <= LIMIT for each in held.values()
        ),
        "every run converged": all(each["status"] == "converged" for each in held.values()),
        f"{CONTROL}: |z| > {LIMIT}": largest(results[CONTROL], "z") > LIMIT,
    }
    return "\n".join(
        [table(header, cells), *(f"{'kept' if kept else 'NOT KEPT'}: {p}" for p, kept in promises.items())]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="agreement with NUTS")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    store = Store(given.out)
    ages.complete(store, NAME, pieces())
    print(show(store.results(NAME)))


if __name__ == "__main__":
    main()
