"""Shrinkage priors beside NumPyro's NUTS: 10^5 rows of 100 columns, five of which matter, logistic and linear.

    python benchmarks/shrinkage.py [case ...]      prints a table, writes results/shrinkage.json (20 minutes)

tallbayes is asked for every mean and sd, `kept` and the log of the global scale to 0.02 posterior sds. What NUTS would
take to the same is extrapolated, in one chain, float32 and scales that are not centred: processor seconds of a
gradient at all rows, times the steps that a draw took in a run of the same model at `SMALL` rows, times warm-up and as
many draws as its smallest effective share there asks for. More rows make the posterior's scales more unequal, and would
take more steps. Both times are processor seconds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import ages
import numpy as np
from lines import describe_commit

import tallbayes as tb
from tallbayes.errors import require_extra

RESULTS = Path(__file__).parent / "results" / "shrinkage.json"
ROWS, COLUMNS, TOLERANCE = 100_000, 100, 0.02
SLOPES = (1.0, -1.0, 0.5, -0.5, 0.25)
GRADIENTS = 20
SMALL, WARM_UP, DRAWS = 2_000, 300, 300
CASES = ("logistic horseshoe", "logistic regularised", "logistic R2D2", "linear horseshoe")
PRIORS = {
    "horseshoe": tb.priors.horseshoe(),
    "regularised": tb.priors.regularised_horseshoe(expected_nonzero=5),
    "R2D2": tb.priors.r2d2(),
}


def rows_of(family: str, count: int = ROWS) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((count, COLUMNS))
    eta = x[:, : len(SLOPES)] @ SLOPES
    if family == "linear":
        return {"x": x, "y": eta + rng.standard_normal(count)}
    return {"x": x, "y": (rng.random(count) < 1 / (1 + np.exp(-eta))).astype(float)}


def ours(family: str, prior: str) -> dict[str, Any]:
    rows = rows_of(family)
    known = {"noise_scale": 1.0} if family == "linear" else {}
    model = getattr(tb.families, family)(priors={"coefficients": PRIORS[prior]}, **known)
    begun, spent = time.monotonic(), time.process_time()
    result = tb.estimate(model, rows, tolerance=TOLERANCE)
    taken = {"seconds": time.monotonic() - begun, "processor_seconds": time.process_time() - spent}
    sds = result["sd"].flat_value
    error = np.concatenate([result["mean"].flat_error / sds, result["sd"].flat_error / sds])
    return taken | {
        "status": result.status.name,
        "largest_error": float(error.max()),
        "weights": result.weighing.efficiency if result.weighing else None,
        "epochs": result.cost.epochs,
        "notes": list(result.notes),
    }


def nuts(family: str) -> dict[str, Any]:
    """The horseshoe: seconds of a gradient at all rows, and steps and effective shares at few."""
    jax = require_extra("jax", "bench", "NUTS")
    jnp = jax.numpy
    dist = require_extra("numpyro.distributions", "bench", "NUTS")
    numpyro = require_extra("numpyro", "bench", "NUTS")
    infer = require_extra("numpyro.infer", "bench", "NUTS")
    diagnostics = require_extra("numpyro.diagnostics", "bench", "NUTS")

    def written(x: Any, y: Any) -> None:
        common = numpyro.sample("common", dist.HalfCauchy(1.0))
        local = numpyro.sample("local", dist.HalfCauchy(1.0).expand([COLUMNS]).to_event(1))
        raw = numpyro.sample("raw", dist.Normal(0.0, 1.0).expand([COLUMNS]).to_event(1))
        eta = x @ numpyro.deterministic("slopes", common * local * raw)
        like = dist.Bernoulli(logits=eta) if family == "logistic" else dist.Normal(eta, 1.0)
        numpyro.sample("y", like, obs=y)

    few = rows_of(family, SMALL)
    kernel = infer.NUTS(written, target_accept_prob=0.9)
    chain = infer.MCMC(kernel, num_warmup=WARM_UP, num_samples=DRAWS, progress_bar=False)
    begun = time.process_time()
    chain.run(jax.random.PRNGKey(0), few["x"], few["y"], extra_fields=("num_steps", "diverging"))
    small_seconds = time.process_time() - begun
    extra, samples = chain.get_extra_fields(), chain.get_samples(group_by_chain=True)
    slopes, scale = np.asarray(samples["slopes"]), np.log(np.asarray(samples["common"]))
    numbers = [slopes, (slopes - slopes.mean((0, 1))) ** 2, scale, (scale - scale.mean()) ** 2]
    effective = min(float(np.min(diagnostics.effective_sample_size(each))) for each in numbers)

    all_rows = {name: jnp.asarray(array, jnp.float32) for name, array in rows_of(family).items()}
    start = {"common": jnp.array(-6.0), "local": jnp.zeros(COLUMNS), "raw": jnp.zeros(COLUMNS)}

    @jax.jit
    def gradient(at: Any) -> Any:
        def energy(at: Any) -> Any:
            return infer.util.potential_energy(written, (all_rows["x"], all_rows["y"]), {}, at)

        return jax.grad(energy)(at)

    jax.block_until_ready(gradient(start))
    begun = time.process_time()
    for _ in range(GRADIENTS):
        jax.block_until_ready(gradient(start))
    each = (time.process_time() - begun) / GRADIENTS
    steps = float(np.mean(extra["num_steps"]))
    draws = WARM_UP + DRAWS / effective / TOLERANCE**2
    return {
        "seconds_a_gradient": each,
        "steps_a_draw": steps,
        "effective_share": effective / DRAWS,
        "divergences": int(np.sum(extra["diverging"])),
        "small_processor_seconds": small_seconds,
        "extrapolated_processor_seconds": draws * steps * each,
    }


def main(names: list[str]) -> None:
    stored = json.loads(RESULTS.read_text())["cases"] if RESULTS.exists() else {}
    print(
        f"{'case':22} {'status':10} {'seconds':>8} {'processor':>9} {'error':>6} {'NUTS, estimated':>18} {'ratio':>6}"
    )
    for name in names or CASES:
        family, prior = name.split()
        row = stored.get(name, {}) | ours(family, prior) | {"commit": describe_commit()}
        if prior == "horseshoe":
            row["nuts"] = nuts(family)
        stored[name] = row
        RESULTS.write_text(json.dumps({"tolerance": TOLERANCE, "cases": stored}, indent=1) + "\n")
        ages.record(RESULTS, ages.renewed(RESULTS.name, stored, [name]))
        other = row["nuts"]["extrapolated_processor_seconds"] if "nuts" in row else float("nan")
        print(
            f"{name:22} {row['status']:10} {row['seconds']:8.1f} {row['processor_seconds']:9.1f} "
            f"{row['largest_error']:6.3f} {other:18,.0f} {other / row['processor_seconds']:6.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
