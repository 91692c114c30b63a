"""Mixed models in Python: one contestant on one problem, answered in lines of JSON.

    python mixed_fits.py FOLDER CONTESTANT

The folder has problem.json and a file of numbers for every column. The first line is said when the contestant is
imported and the columns are loaded; the second has the seconds of the fit alone, coefficients, standard errors or
posterior sds, and scales by the name of their groups. Priors, where a contestant has any, are those of the problem.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

DRAWS, CHAINS = 500, 2
TOLERANCE = 0.02
Table = dict[str, np.ndarray]
Settings = dict[str, Any]


def load(folder: Path) -> tuple[Settings, Table]:
    settings = json.loads((folder / "problem.json").read_text())
    kinds = {"number": np.float64, "group": np.int32}
    table = {name: np.fromfile(folder / f"{name}.bin", kinds[kind]) for name, kind in settings["columns"].items()}
    return settings, table


def design(settings: Settings, table: Table) -> tuple[list[str], np.ndarray]:
    fixed = [name for name, kind in settings["columns"].items() if kind == "number" and name != "y"]
    return ["Intercept", *fixed], np.column_stack([np.ones(len(table["y"])), *(table[name] for name in fixed)])


def groups(settings: Settings) -> list[str]:
    return [name for name, kind in settings["columns"].items() if kind == "group"]


def named(names: list[str], values: Any) -> dict[str, float]:
    return dict(zip(names, map(float, values), strict=True))


def by_gpboost(settings: Settings, table: Table) -> dict[str, Any]:
    """GPModel as its documentation fits it; the Laplace approximation for binary rows."""
    import gpboost

    names, x = design(settings, table)
    by = groups(settings)
    likelihood = {"linear": "gaussian", "logistic": "bernoulli_logit", "poisson": "poisson"}[settings["family"]]
    started = time.perf_counter()
    model = gpboost.GPModel(group_data=np.column_stack([table[name] for name in by]), likelihood=likelihood)
    model.fit(y=table["y"], X=x)
    coefficients = np.asarray(model.get_coef(std_err=True))
    seconds = time.perf_counter() - started
    variances = np.atleast_2d(np.asarray(model.get_cov_pars()))[0]
    order = ["sigma", *by] if settings["family"] == "linear" else by
    return {
        "seconds": seconds,
        "coefficients": named(names, coefficients[0]),
        "standard_errors": named(names, coefficients[1]),
        "scales": named(order, np.sqrt(variances[: len(order)])),
    }


def by_statsmodels(settings: Settings, table: Table) -> dict[str, Any]:
    """MixedLM for linear rows; for binary ones BinomialBayesMixedGLM, variational, whose priors are its own."""
    names, x = design(settings, table)
    (by,) = groups(settings)
    if settings["family"] == "linear":
        from statsmodels.regression.mixed_linear_model import MixedLM

        started = time.perf_counter()
        fit = MixedLM(table["y"], x, groups=table[by]).fit()
        seconds = time.perf_counter() - started
        scales = {by: float(np.sqrt(fit.cov_re[0, 0])), "sigma": float(np.sqrt(fit.scale))}
        coefficients, errors = fit.fe_params, fit.bse_fe
    else:
        from scipy.sparse import csr_matrix
        from statsmodels.genmod.bayes_mixed_glm import BinomialBayesMixedGLM

        count = len(table["y"])
        incidence = csr_matrix((np.ones(count), (np.arange(count), table[by])))
        started = time.perf_counter()
        model = BinomialBayesMixedGLM(table["y"], x, incidence, np.zeros(incidence.shape[1], int), vcp_p=1, fe_p=2.5)
        fit = model.fit_vb()
        seconds = time.perf_counter() - started
        scales = {by: float(np.exp(fit.vcp_mean[0]))}
        coefficients, errors = fit.fe_mean, fit.fe_sd
    found = {"coefficients": named(names, coefficients), "standard_errors": named(names, errors)}
    return found | {"seconds": seconds, "scales": scales}


def by_nuts(settings: Settings, table: Table) -> dict[str, Any]:
    """NumPyro's NUTS with non-centred effects, two chains one after the other, and the effective draws of the scale."""
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro import distributions as dist
    from numpyro.diagnostics import summary
    from numpyro.infer import MCMC, NUTS

    names, x = design(settings, table)
    (by,) = groups(settings)
    code, priors, count = jnp.asarray(table[by]), settings["priors"], int(table[by].max()) + 1
    outcome = {"logistic": lambda eta: dist.Bernoulli(logits=eta), "poisson": lambda eta: dist.Poisson(jnp.exp(eta))}

    def model(x: Any, y: Any) -> None:
        beta = numpyro.sample("beta", dist.Normal(0, priors["coefficients"]).expand([x.shape[1]]))
        tau = numpyro.sample("tau", dist.HalfNormal(priors["scales"]))
        u = numpyro.sample("u", dist.Normal(0, 1).expand([count]))
        numpyro.sample("y", outcome[settings["family"]](x @ beta + tau * u[code]), obs=y)

    started = time.perf_counter()
    sampler = MCMC(NUTS(model), num_warmup=DRAWS, num_samples=DRAWS, num_chains=CHAINS, progress_bar=False)
    sampler.run(jax.random.key(0), jnp.asarray(x), jnp.asarray(table["y"]), extra_fields=("num_steps",))
    draws = jax.device_get(sampler.get_samples(group_by_chain=True))
    seconds = time.perf_counter() - started
    told = summary({"tau": draws["tau"], "beta": draws["beta"]})
    flat = draws["beta"].reshape(-1, len(names))
    return {
        "seconds": seconds,
        "coefficients": named(names, flat.mean(axis=0)),
        "standard_errors": named(names, flat.std(axis=0)),
        "scales": {by: float(draws["tau"].mean())},
        "scale_sd": {by: float(draws["tau"].std())},
        "effective_draws": float(told["tau"]["n_eff"]),
        "effective_draws_per_second": float(told["tau"]["n_eff"]) / seconds,
        "r_hat": float(told["tau"]["r_hat"]),
        "smallest_effective_draws": float(min(told["tau"]["n_eff"], np.min(told["beta"]["n_eff"]))),
        "steps": int(np.sum(sampler.get_extra_fields()["num_steps"])),
        "chains": CHAINS,
        "draws": DRAWS,
    }


def by_tallbayes(settings: Settings, table: Table) -> dict[str, Any]:
    """Every coefficient and scale, and the effects, to 2% of a posterior sd."""
    import tallbayes as tb

    text = {name: np.array([f"{name}{code}" for code in range(table[name].max() + 1)]) for name in groups(settings)}
    table = {name: text[name][values] if name in text else values for name, values in table.items()}
    scale = settings["priors"]["coefficients"]
    options = {"tolerance": TOLERANCE, "prior_scale": scale, "intercept_scale": scale, "progress": False}
    started = time.perf_counter()
    result = tb.fit(settings["formula"], table, family=settings["family"], **options)
    seconds = time.perf_counter() - started
    found = result.coefficients()
    names, _ = design(settings, table)
    fixed = [each for each in found if each.name in names]
    started = time.perf_counter()
    effects = {name: len(result.effects(name)) for name in groups(settings)}
    return {
        "seconds": seconds,
        "effects_seconds": time.perf_counter() - started,
        "effects": effects,
        "status": result.status.name,
        "coefficients": {each.name: float(each.mean.value) for each in fixed},
        "standard_errors": {each.name: float(each.sd.value) for each in fixed},
        "scales": {each.name: float(each.mean.value) for each in found if each.name not in names},
        "scale_errors": {each.name: float(each.mean.error) for each in found if each.name not in names},
    }


CONTESTANTS = {
    "GPBoost": ("gpboost", by_gpboost),
    "statsmodels": ("statsmodels", by_statsmodels),
    "NumPyro NUTS": ("numpyro", by_nuts),
    "tallbayes": ("tallbayes", by_tallbayes),
}


def main() -> None:
    folder, contestant = sys.argv[1:]
    package, fit = CONTESTANTS[contestant]
    with os.fdopen(os.dup(1), "w") as channel:
        os.dup2(2, 1)
        __import__(package)
        settings, table = load(Path(folder))
        print(json.dumps({"version": f"{package} {version(package)}"}), file=channel, flush=True)
        started = time.process_time()
        answer = fit(settings, table)
        answer["processor_seconds"] = time.process_time() - started
        print(json.dumps(answer), file=channel, flush=True)


if __name__ == "__main__":
    main()
