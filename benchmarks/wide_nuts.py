"""What NumPyro's NUTS would take for a logistic regression of 10^5 rows and a thousand columns or more: extrapolated.

    python benchmarks/wide_nuts.py [--columns 1000] [--draws 20]

It is given what takes it longest to find: it starts where the Gaussian at the mode puts it, in coordinates in which the
posterior is about N(0, I) (by the Hessian), with a step that is accepted about as often as NUTS wants it. A warm-up by
itself did not end at 1,000 columns in 330 s. Of a few draws an effective sample size says nothing, so each is taken for
an independent one: means to 2% of an sd are then 2,500 draws. Gradients a draw and seconds a gradient are measured, the
rest is a product.
What is found is the entry "nuts-COLUMNS" of results/wide_nuts.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import ages
import jax
import jax.numpy as jnp
import numpy as np
import wide
from lines import describe_commit
from numpyro.infer import MCMC, NUTS

RESULTS = Path(__file__).parent / "results" / "wide_nuts.json"
TOLERANCE, STEPS = 0.02, 8
# Of leapfrogs in units of the posterior, at a thousand columns.
STEP = 0.35


def main() -> None:
    parser = argparse.ArgumentParser(description="What NUTS would take for a wide logistic regression")
    parser.add_argument("--columns", type=int, default=1_000)
    parser.add_argument("--draws", type=int, default=20)
    given = parser.parse_args()
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    known[f"nuts-{given.columns}"] = run(given.columns, given.draws)
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    ages.record(RESULTS)
    print(json.dumps(known, indent=1))


def run(columns: int, count: int) -> dict[str, Any]:
    _, rows, _ = wide.logistic(columns)
    mode, root = gaussian(rows)
    x, y, centre, whitening = (jnp.asarray(each, jnp.float32) for each in (rows["x"], rows["y"], mode, root))

    def potential(z: Any) -> Any:
        theta = centre + whitening @ z
        eta = x @ theta
        return jnp.sum(jnp.logaddexp(0, eta) - y * eta) + theta @ theta / 2

    kernel = NUTS(potential_fn=potential, adapt_mass_matrix=False, adapt_step_size=False, step_size=STEP)
    chain = MCMC(kernel, num_warmup=2, num_samples=count, progress_bar=False)
    fields = ("num_steps", "accept_prob", "adapt_state.step_size")
    start = jax.random.normal(jax.random.key(2), (columns,))
    chain.warmup(jax.random.key(0), init_params=start, extra_fields=fields, collect_warmup=False)
    started, busy = time.monotonic(), time.process_time()
    chain.run(jax.random.key(1), init_params=start, extra_fields=fields)
    found = {name: np.asarray(each) for name, each in chain.get_extra_fields().items()}
    seconds, busy = time.monotonic() - started, time.process_time() - busy
    gradients, wanted = int(found["num_steps"].sum()), round(1 / TOLERANCE**2)
    return {
        "columns": columns,
        "draws": count,
        "gradients_a_draw": gradients / count,
        "acceptance": float(found["accept_prob"].mean()),
        "step_size": float(found["adapt_state.step_size"][-1]),
        "seconds_a_gradient": seconds / gradients,
        "processor_seconds_a_gradient": busy / gradients,
        "independent_draws_wanted": wanted,
        "extrapolated_epochs": wanted * gradients / count,
        "extrapolated_processor_seconds": wanted * busy / count,
        "commit": describe_commit(),
    }


def gaussian(rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """The mode under N(0, I) by Newton's steps in NumPy, and a root of the inverse of the Hessian there."""
    x, y = rows["x"], rows["y"]
    theta, hessian = np.zeros(x.shape[1], np.float32), np.eye(x.shape[1])
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-(x @ theta)))
        hessian = np.float64(x.T @ ((chance * (1 - chance))[:, None] * x)) + np.eye(len(theta))
        theta = theta + np.linalg.solve(hessian, x.T @ (y - chance) - theta).astype(np.float32)
    return theta, np.linalg.inv(np.linalg.cholesky(hessian)).T


if __name__ == "__main__":
    main()
