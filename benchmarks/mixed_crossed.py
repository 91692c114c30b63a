"""Crossed and nested effects beside long runs of NumPyro's NUTS: every parameter, scale and effect, mean and sd.

    make bench-mixed-crossed                                                               (resumable, half an hour)
    python benchmarks/mixed_crossed.py [--only NAME ...] [--stored]

    "poisson-crossed"   y ~ x1 + x2 + (1 | a) + (1 | b)     30 by 20 levels, 1,500 rows
    "logistic-nested"   y ~ x1 + x2 + (1 | a/b)             8 by 5 levels, 800 rows

Ours is a fit by formula, as users write it, everything to 2% of a posterior sd. NUTS has standard normal effects times
their scale, a dense mass matrix, float64 and four chains; the error of its mean is sd / sqrt(ESS), that of its sd is by
the ESS of squared deviations. Every number has

    z = (ours - theirs) / sqrt(our standard error^2 + theirs^2),     red above 4.5

which one of 600 such studies of 216 numbers reaches by chance. The control is ours with a prior of the scales that is a
quarter as wide, and must be red. A run is a line of results/mixed_crossed.jsonl, made by a process of its own, and is
not run again; what is compared is in results/mixed_crossed.json.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import ages
import lines
import numpy as np
from mixed_problems import standard

RESULTS = Path(__file__).parent / "results"
SEED, TOLERANCE, MOST_SECONDS, RED = 5, 0.02, 10800.0, 4.5
CHAINS, WARM_UP = 4, 800
PRIOR, SCALE, NARROW = 2.5, 1.0, 0.25
PROBLEMS = ("poisson-crossed", "logistic-nested")
# The scale of eight levels is where short steps are needed.
DRAWS = {"poisson-crossed": 2000, "logistic-nested": 6000}
ACCEPTED = {"poisson-crossed": 0.8, "logistic-nested": 0.95}
CONTESTANTS = ("tallbayes", "NUTS", "control")
COEFFICIENTS = {"poisson-crossed": (0.5, 0.3, -0.2), "logistic-nested": (-0.4, 0.7, -0.4)}
SCALES = {"poisson-crossed": (0.5, 0.3), "logistic-nested": (0.8, 0.6)}
Numbers = dict[str, dict[str, list[float]]]


class Key(NamedTuple):
    """What a stored run is found by."""

    problem: str
    contestant: str


class Problem(NamedTuple):
    """The table, and the codes of the levels of every factor by its name in the formula."""

    table: dict[str, np.ndarray]
    codes: dict[str, np.ndarray]
    formula: str
    family: str


def make(name: str) -> Problem:
    """The problem of this name; the same rows on every call."""
    rng = np.random.default_rng([SEED, PROBLEMS.index(name)])
    if name == "poisson-crossed":
        count = 1500
        codes = {"a": rng.permutation(np.arange(count) % 30), "b": rng.permutation(np.arange(count) % 20)}
        labels, bars = codes, "(1 | a) + (1 | b)"
    else:
        count = 800
        outer, inner = np.divmod(rng.permutation(np.arange(count) % 40), 5)
        codes = {"a": outer, "a:b": 5 * outer + inner}
        labels, bars = {"a": outer, "b": inner}, "(1 | a/b)"
    x1, x2 = standard(rng.standard_normal((2, count)))
    intercept, of_x1, of_x2 = COEFFICIENTS[name]
    eta = intercept + of_x1 * x1 + of_x2 * x2
    for scale, code in zip(SCALES[name], codes.values(), strict=True):
        eta = eta + scale * rng.standard_normal(code.max() + 1)[code]
    family = name.partition("-")[0]
    y = rng.poisson(np.exp(eta)) if family == "poisson" else (rng.random(count) < 1 / (1 + np.exp(-eta))).astype(int)
    text = {column: np.array([f"{column}{code:02d}" for code in each]) for column, each in labels.items()}
    return Problem({"x1": x1, "x2": x2, "y": y, **text}, codes, f"y ~ x1 + x2 + {bars}", family)


def run(key: Key) -> dict[str, Any]:
    problem = make(key.problem)
    started = time.process_time(), time.perf_counter()
    if key.contestant == "NUTS":
        found = by_nuts(problem, DRAWS[key.problem], ACCEPTED[key.problem])
    else:
        found = by_tallbayes(problem, NARROW if key.contestant == "control" else SCALE)
    seconds = time.process_time() - started[0], time.perf_counter() - started[1]
    return found | {"processor_seconds": round(seconds[0], 1), "seconds": round(seconds[1], 1)}


def by_tallbayes(problem: Problem, group_scale: float) -> dict[str, Any]:
    """Of every number, mean and sd with their standard errors."""
    import tallbayes as tb

    priors = {"prior_scale": PRIOR, "intercept_scale": PRIOR, "group_scale": group_scale}
    options = {"tolerance": TOLERANCE, "seed": 0, "max_seconds": MOST_SECONDS, "progress": False}
    result = tb.fit(problem.formula, problem.table, problem.family, **priors, **options)
    mean, sd = result["mean"], result["sd"]
    columns = (mean.flat_value, mean.half_width() / 1.96, sd.flat_value, sd.half_width() / 1.96)
    numbers: Numbers = {"parameters": {}}
    for label, *row in zip(mean.value, *columns, strict=True):
        numbers["parameters"][label] = [float(each) for each in row]
    for by in problem.codes:
        found = result.effects(by)
        own = (found.mean, found.mean_error, found.sd, found.sd_error)
        numbers[by] = {str(level): [float(each[place, 0]) for each in own] for place, level in enumerate(found.levels)}
    return {
        "status": result.status.name,
        "method": result.method.partition("(")[0],
        "notes": list(result.notes),
        "numbers": numbers,
    }


def by_nuts(problem: Problem, count: int, accepted: float) -> dict[str, Any]:
    """Of every number, mean and sd with their standard errors, and the smaller of the two ESS."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as dist
    from numpyro.infer import MCMC, NUTS

    numpyro.enable_x64()
    x = jnp.column_stack([jnp.ones(len(problem.table["y"])), problem.table["x1"], problem.table["x2"]])
    codes = {by: (jnp.asarray(each), int(each.max()) + 1) for by, each in problem.codes.items()}

    def model(y: Any) -> None:
        eta = x @ numpyro.sample("beta", dist.Normal(0, PRIOR).expand([3]))
        for by, (code, levels) in codes.items():
            scale = numpyro.sample(f"scale {by}", dist.HalfNormal(SCALE))
            standardised = numpyro.sample(f"standardised {by}", dist.Normal(0, 1).expand([levels]))
            eta = eta + numpyro.deterministic(by, scale * standardised)[code]
        law = dist.Poisson(jnp.exp(eta)) if problem.family == "poisson" else dist.Bernoulli(logits=eta)
        numpyro.sample("y", law, obs=y)

    sampler = MCMC(
        NUTS(model, dense_mass=True, target_accept_prob=accepted), num_warmup=WARM_UP, num_samples=count,
        num_chains=CHAINS, chain_method="sequential", progress_bar=False,
    )  # fmt: skip
    sampler.run(jax.random.key(SEED), jnp.asarray(problem.table["y"]), extra_fields=("diverging", "num_steps"))
    draws = {name: np.asarray(each) for name, each in sampler.get_samples(group_by_chain=True).items()}
    fields = sampler.get_extra_fields()
    names = ("Intercept", "x1", "x2")
    numbers: Numbers = {"parameters": {name: of_draws(draws["beta"][..., k]) for k, name in enumerate(names)}}
    numbers["parameters"] |= {f"sd(Intercept|{by})": of_draws(draws[f"scale {by}"]) for by in codes}
    for by, (_, levels) in codes.items():
        numbers[by] = {str(k): of_draws(draws[by][..., k]) for k in range(levels)}
    return {
        "status": "sampled",
        "chains": CHAINS,
        "draws": count,
        "diverging": int(np.sum(fields["diverging"])),
        "steps": int(np.sum(fields["num_steps"])),
        "r_hat": max(each[5] for part in numbers.values() for each in part.values()),
        "least_effective": min(each[4] for part in numbers.values() for each in part.values()),
        "numbers": numbers,
    }


def of_draws(draws: np.ndarray) -> list[float]:
    """Mean, its error, sd, its error, the smaller ESS and R hat, of (chains, draws)."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    mean, sd = float(draws.mean()), float(draws.std())
    square = (draws - mean) ** 2
    effective = [float(effective_sample_size(each)) for each in (draws, square)]
    sd_error = float(square.std()) / (2 * sd * np.sqrt(effective[1]))
    return [mean, sd / np.sqrt(effective[0]), sd, sd_error, min(effective), float(split_gelman_rubin(draws))]


def compare(ours: Numbers, theirs: Numbers) -> dict[str, dict[str, float]]:
    """By kind of number, how many there are, the largest z and the RMS of z."""
    found = {}
    for part, own in ours.items():
        there = theirs[part]
        keys = {name: name for name in there}  # beside parameters ours may report effects too
        if part != "parameters":  # ours go by the names of levels, those of NUTS by their codes, in the same order
            keys = dict(zip(sorted(own), sorted(there, key=int), strict=True))
        a, b = (np.array(each)[:, :4] for each in ([own[k] for k in keys], [there[k] for k in keys.values()]))
        z = np.concatenate([(a[:, k] - b[:, k]) / np.hypot(a[:, k + 1], b[:, k + 1]) for k in (0, 2)])
        apart = np.concatenate([(a[:, k] - b[:, k]) / b[:, 2] for k in (0, 2)])
        found[part] = {
            "numbers": len(z),
            "largest_z": float(np.max(np.abs(z))),
            "rms_z": float(np.sqrt(np.mean(z**2))),
            "largest_difference": float(np.max(np.abs(apart))),
        }
    return found


def summarise(name: str, stored: dict[Key, dict[str, Any]]) -> dict[str, Any] | None:
    """What of a problem is there."""
    runs = {who: stored[Key(name, who)] for who in CONTESTANTS if Key(name, who) in stored}
    if "NUTS" not in runs:
        return None
    theirs = runs["NUTS"]["numbers"]
    row: dict[str, Any] = {"problem": name, "rows": len(make(name).table["y"]), "formula": make(name).formula}
    for who, each in runs.items():
        row[who] = {key: value for key, value in each.items() if key not in ("problem", "contestant")}
        if who != "NUTS":
            row[who]["compared"] = compare(each["numbers"], theirs)
            row[who]["largest_z"] = max(part["largest_z"] for part in row[who]["compared"].values())
            row[who]["red"] = not row[who]["largest_z"] <= RED
    return row


def shown(row: dict[str, Any]) -> str:
    nuts = row["NUTS"]
    text = [
        f"{row['problem']}: NUTS {nuts['processor_seconds']:.0f} processor s, least ESS {nuts['least_effective']:.0f}, "
        f"R hat {nuts['r_hat']:.4f}, {nuts['diverging']} diverging"
    ]
    for who in ("tallbayes", "control"):
        if who in row:
            parts = (
                f"{part} {c['numbers']} numbers, z {c['largest_z']:.2f}" for part, c in row[who]["compared"].items()
            )
            end = "red" if row[who]["red"] else "green"
            text.append(f"  {who}, {row[who]['processor_seconds']:.0f} processor s: {'; '.join(parts)}: {end}")
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description="crossed and nested effects beside NUTS")
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--stored", action="store_true", help="compare what is stored, run nothing")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    path = given.out / "mixed_crossed.jsonl"
    if not given.stored:
        for name in given.only:
            for who in given.contestants:
                lines.complete([Key(name, who)], path, run, workers=1)
    stored = lines.read(path, Key)
    rows = [row for row in (summarise(name, stored) for name in PROBLEMS) if row is not None]
    print("\n".join(shown(row) for row in rows))
    versions = {name: version(name) for name in ("tallbayes", "jax", "numpyro", "numpy")}
    document = {"tolerance": TOLERANCE, "red_above": RED, "versions": versions, "rows": rows}
    summary = given.out / "mixed_crossed.json"
    summary.write_text(json.dumps(document, indent=1) + "\n")
    ages.record(summary, {" ".join(key): ages.of_lines([line]) for key, line in stored.items()})


if __name__ == "__main__":
    main()
