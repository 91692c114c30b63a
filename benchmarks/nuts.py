"""The whole call beside NumPyro's NUTS to the same accuracy: logistic regression, N = 10^5, d = 20, one machine.

    python benchmarks/nuts.py [--out FOLDER]      prints a table, writes benchmarks/results/nuts.json (5 minutes)

tallbayes: tolerance 0.01 for every mean and sd. Cold is a fresh Python process without a compile cache, from its start
to the printed answer; warm is a later call in that process with another seed and other rows of the same shape.
NUTS: dense mass, started at the mode (its search is a gift), float32, a potential without the constant terms; the
fastest of one chain, two vectorised chains and two chains in parallel. Its time is that of a fresh process through
imports, compiling and warm-up, plus sampling until ESS 10^4 for the worst mean, from its own ESS and speed.
Every piece runs in a process of its own, one after another, and is stored; delete nuts.json to measure again.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import ages
import numpy as np
from processes import measured

RESULTS = Path(__file__).parent / "results"
NAME = "nuts"
NUM_ROWS, DIMENSION, TOLERANCE, TARGET_ESS = 100_000, 20, 0.01, 1e4
COLD_RUNS, WARM_RUNS = 3, 5
WARM_UP, DRAWS = 500, 1500
COMPILING = ("/jax/core/compile/backend_compile_duration", "/jax/core/compile/jaxpr_to_mlir_module_duration")
CHAINS = {"one chain": 1, "two chains vectorized": 2, "two chains parallel": 2}


def load(folder: Path, number: int) -> dict[str, np.ndarray]:
    return {name: np.load(folder / f"{name}{number}.npy") for name in ("x", "y")}


def save_rows(folder: Path) -> None:
    """Two data sets of one shape, and the mode of the first."""
    import problems
    import references

    _, rows = problems.make(problems.tall_name(NUM_ROWS))
    rng = np.random.default_rng(2)
    again = {"x": rows["x"][rng.permutation(NUM_ROWS)]}
    theta = rng.normal(size=DIMENSION) * np.sqrt(3 / DIMENSION)
    again["y"] = (rng.random(NUM_ROWS) < 1 / (1 + np.exp(-again["x"] @ theta))).astype(float)
    for number, each in enumerate((rows, again)):
        for name, array in each.items():
            np.save(folder / f"{name}{number}.npy", array)
    np.save(folder / "mode.npy", references.Posterior(references.LOGISTIC, rows["x"], rows["y"]).mode[0])


def tallbayes_role(folder: Path) -> None:
    """The process that is measured: an answer as soon as there is one, then warm calls."""
    import tallbayes as tb

    model, rows = tb.families.logistic(prior_scale=1.0), load(folder, 0)
    result = tb.estimate(model, rows, tolerance=TOLERANCE, seed=0)
    cost = result.cost
    answer = {
        "mean": result["mean"].flat_value.tolist(),
        "sd": result["sd"].flat_value.tolist(),
        "status": result.status.name,
        "epochs": cost.epochs,
        "setup_passes": cost.setup_evaluations / cost.num_data,
        "inside": cost.seconds,
    }
    print(json.dumps(answer), flush=True)
    other, warm = load(folder, 1), []
    for seed in range(1, WARM_RUNS + 1):
        started = time.perf_counter()
        again = tb.estimate(model, other, tolerance=TOLERANCE, seed=seed)
        warm.append(
            {"seconds": time.perf_counter() - started, "status": again.status.name, "epochs": again.cost.epochs}
        )
    print(json.dumps(warm), flush=True)


def nuts_role(folder: Path, chains: str) -> None:
    """Warm up, then draw; NumPyro compiles again for the draws, and JAX says for how long."""
    from tallbayes.errors import require_extra

    require_extra("numpyro", "bench", "NUTS beside tallbayes")
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS

    rows, mode = load(folder, 0), np.load(folder / "mode.npy")
    x, slope = jnp.asarray(rows["x"], jnp.float32), jnp.asarray(rows["y"] @ rows["x"], jnp.float32)

    def potential(theta: Any) -> Any:
        return jnp.sum(jax.nn.softplus(x @ theta)) - slope @ theta + 0.5 * jnp.sum(theta**2)

    number = CHAINS[chains]
    method = {"one chain": "sequential"}.get(chains, chains.rsplit(" ", 1)[-1])
    kernel = NUTS(potential_fn=potential, dense_mass=True)
    sampler = MCMC(
        kernel, num_warmup=WARM_UP, num_samples=DRAWS, num_chains=number, chain_method=method, progress_bar=False
    )
    start = jnp.asarray(mode, jnp.float32)
    sampler.warmup(
        jax.random.PRNGKey(0),
        init_params=start if number == 1 else jnp.tile(start, (number, 1)),
        extra_fields=("num_steps",),
    )
    jax.block_until_ready(sampler.post_warmup_state)
    print(json.dumps("warm"), flush=True)
    compiling: list[float] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, duration, **_: compiling.append(duration) if event in COMPILING else None
    )
    started = time.perf_counter()
    sampler.run(sampler.post_warmup_state.rng_key, extra_fields=("num_steps",))
    samples = np.asarray(sampler.get_samples(group_by_chain=True), np.float64)
    seconds = time.perf_counter() - started
    found = {
        "compiling": sum(compiling),
        "drawing": seconds - sum(compiling),
        "ess": float(np.min(effective_sample_size(samples))),
        "gradients": int(np.sum(sampler.get_extra_fields()["num_steps"])),
        "mean": samples.mean(axis=(0, 1)).tolist(),
        "numpyro": numpyro.__version__,
    }
    print(json.dumps(found), flush=True)


def run_tallbayes(folder: Path) -> dict[str, Any]:
    import problems
    import references

    reference = references.get(problems.tall_name(NUM_ROWS))
    runs = [measured(__file__, ["--role", "tallbayes", "--rows", str(folder)], {}) for _ in range(COLD_RUNS)]
    answer = runs[0][0][1]
    sd = np.array(reference.sd)
    error = {name: np.max(np.abs(np.array(answer[name]) - getattr(reference, name)) / sd) for name in ("mean", "sd")}
    warm = [each for run in runs for each in run[1][1]]
    return {
        "cold": float(np.median([run[0][0] for run in runs])),
        "colds": [run[0][0] for run in runs],
        "warm": float(np.median([each["seconds"] for each in warm])),
        "warms": [each["seconds"] for each in warm],
        "statuses": sorted({answer["status"], *(each["status"] for each in warm)}),
        "epochs": answer["epochs"],
        "warm_epochs": float(np.median([each["epochs"] for each in warm])),
        "setup_passes": answer["setup_passes"],
        "worst_error": float(max(error.values())),
    }


def run_nuts(folder: Path, chains: str) -> dict[str, Any]:
    """Time to ESS 10^4: start to the end of warm-up, compiling the sampling once, and the draws at their own speed."""
    import problems
    import references

    reference = references.get(problems.tall_name(NUM_ROWS))
    devices = "2" if chains.endswith("parallel") else "1"
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    (warm, _), (_, found) = measured(__file__, ["--role", "nuts", "--rows", str(folder), "--chains", chains], flags)
    sampling = found["drawing"] * TARGET_ESS / found["ess"]
    worst = np.max(np.abs(np.array(found.pop("mean")) - reference.mean) / reference.sd)
    return found | {
        "warm_up": warm + found["compiling"],
        "sampling": sampling,
        "speed": found["ess"] / found["drawing"],
        "total": warm + found["compiling"] + sampling,
        "epochs": found["gradients"] * TARGET_ESS / found["ess"],
        "worst_error": float(worst),
    }


def pieces(folder: Path) -> dict[str, Any]:
    from tallbayes.experiments.store import Measurement

    common = {"num_rows": NUM_ROWS, "dimension": DIMENSION, "cores": os.cpu_count()}
    ours = common | {"tolerance": TOLERANCE, "cold_runs": COLD_RUNS, "warm_runs": WARM_RUNS}
    theirs = common | {"warm_up": WARM_UP, "draws": DRAWS, "ess": TARGET_ESS}
    made = {"tallbayes": Measurement(ours, partial(run_tallbayes, folder))}
    return made | {
        chains: Measurement(theirs | {"chains": chains}, partial(run_nuts, folder, chains)) for chains in CHAINS
    }


def show(results: dict[str, Any]) -> str:
    from tallbayes.views.text import table

    ours = results["tallbayes"]
    nuts = {chains: results[chains] for chains in CHAINS}
    best = min(each["total"] for each in nuts.values())
    header = ("", "seconds", "of it start and warm-up", "epochs", "ESS per second", "worst error (sd)", "NUTS / this")
    cells = [
        ["tallbayes, cold", f"{ours['cold']:.2f}", "", f"{ours['epochs']:.2f} + {ours['setup_passes']:.0f} set-up", "",
         f"{ours['worst_error']:.4f}", f"{best / ours['cold']:.0f}"],
        ["tallbayes, warm", f"{ours['warm']:.3f}", "", f"{ours['warm_epochs']:.2f}", "", "",
         f"{best / ours['warm']:.0f}"],
    ]  # fmt: skip
    for chains, each in nuts.items():
        numbers = (f"{each['total']:.1f}", f"{each['warm_up']:.1f}", f"{each['epochs']:,.0f}", f"{each['speed']:.0f}")
        cells.append([f"NUTS, {chains}", *numbers, f"{each['worst_error']:.4f} ({DRAWS} draws a chain)", ""])
    promises = {
        "sampling below half an epoch": ours["epochs"] < 0.5,
        "cold at least 15 times faster": best / ours["cold"] >= 15,
        "warm at least 150 times faster": best / ours["warm"] >= 150,
        "every run converged": ours["statuses"] == ["converged"],
    }
    return "\n".join(
        [table(header, cells), *(f"{'kept' if kept else 'NOT KEPT'}: {p}" for p, kept in promises.items())]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="beside NUTS")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--role", choices=("tallbayes", "nuts"), help=argparse.SUPPRESS)
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--chains", choices=tuple(CHAINS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.role == "tallbayes":
        return tallbayes_role(given.rows)
    if given.role == "nuts":
        return nuts_role(given.rows, given.chains)
    from tallbayes.experiments.store import Store

    store = Store(given.out)
    with tempfile.TemporaryDirectory() as folder:
        save_rows(Path(folder))
        ages.complete(store, NAME, pieces(Path(folder)))
    print(show(store.results(NAME)))
    return None


if __name__ == "__main__":
    main()
