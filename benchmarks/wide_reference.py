"""Wide posteriors beside Hamiltonian Monte Carlo, which shares nothing with the ladder but the units it moves in.

    python benchmarks/wide_reference.py [components-50 | mnist] [--draws 400] [--chains 16]

Chains move in whitened units, z with theta = m + W z, by leapfrog steps of the gradient of all rows in float32; each
draw is accepted or not by an energy whose rows are added up in float64, so the Gaussian matters for speed alone. A
trajectory is between 1/2 and 3/2 of a quarter of a turn. Every mean is compared, z is in units of both errors; those of
the chains are by the spread of their own means. Of fifty numbers a |z| of 3.7 would be one false alarm in a hundred
such studies, of 459 one of 4.2, of 7,850 one of 4.8. `shift_by_chains` is sharper: the chains' mean along the line from
the mode to our own, in units of it, 1 where we are right and 0 where the mode is. Stored in
results/wide_reference.json.
"""

from __future__ import annotations

import argparse
import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import wide
from lines import describe_commit

RESULTS = Path(__file__).parent / "results" / "wide_reference.json"
STEP, WARMING = 0.25, 0.1


@partial(jax.jit, static_argnums=0)
def gradients(heads: int, x: Any, y: Any, mode: Any, w: Any, z: Any) -> tuple[Any, Any]:
    """Log posterior of every chain, rows added up in float64, and its gradient in z."""
    theta = mode + z @ w.T
    eta = jnp.einsum("np,khp->nkh", x, theta.reshape(len(z), heads, -1))
    # Where a class has no coefficients it is the first one.
    eta = eta if heads == 10 else jnp.pad(eta, ((0, 0), (0, 0), (1, 0)))
    value = jnp.take_along_axis(eta, y[:, None, None], axis=2)[:, :, 0] - jax.nn.logsumexp(eta, axis=2)
    left = (jax.nn.one_hot(y, 10, dtype=x.dtype)[:, None] - jax.nn.softmax(eta, axis=2))[:, :, 10 - heads :]
    slope = jnp.einsum("nkh,np->khp", left, x).reshape(len(z), -1) - theta / wide.PRIOR_SCALE**2
    prior = -0.5 * jnp.sum(theta.astype(jnp.float64) ** 2, axis=1) / wide.PRIOR_SCALE**2
    return jnp.sum(value.astype(jnp.float64), axis=0) + prior, slope @ w


def draw(density: Any, start: np.ndarray, draws: int, seconds: float) -> tuple[np.ndarray, float, int]:
    """The mean of every chain in whitened units, the share accepted, and draws of each chain."""
    rng, begun = np.random.default_rng(0), time.monotonic()
    z = start.astype(np.float32)
    value, slope = (np.asarray(part) for part in density(z))
    total, accepted, warm = np.zeros(z.shape), 0.0, max(5, int(WARMING * draws))
    for count in range(draws + warm):
        momentum = rng.standard_normal(z.shape).astype(np.float32)
        there, along, energy = z, momentum, value - (momentum.astype(float) ** 2).sum(axis=1) / 2
        number = round(np.pi / 2 / STEP * rng.uniform(0.5, 1.5))
        further = slope
        for _ in range(number):
            along = along + STEP / 2 * further
            there = there + STEP * along
            reached, further = (np.asarray(part) for part in density(there))
            along = along + STEP / 2 * further
        gained = reached - (along.astype(float) ** 2).sum(axis=1) / 2 - energy
        moves = np.log(rng.random(len(z))) < gained
        z, slope = (np.where(moves[:, None], *pair).astype(np.float32) for pair in ((there, z), (further, slope)))
        value = np.where(moves, reached, value)
        if count >= warm:
            total += z
            accepted += moves.mean()
        if time.monotonic() - begun > seconds and count > warm + 10:
            draws = count + 1 - warm
            break
    return total / draws, accepted / draws, draws


def compare(name: str, draws: int, chains: int, seconds: float) -> dict[str, Any]:
    import tallbayes as tb

    model, rows, _ = wide.mnist() if name == "mnist" else wide.components(int(name.partition("-")[2]))
    result = tb.estimate(model, rows, ["mean"], tolerance=0.02, max_seconds=wide.MOST_SECONDS)
    return beside(result, rows, draws, chains, seconds)


def beside(result: Any, rows: Any, draws: int, chains: int, seconds: float) -> dict[str, Any]:
    anchor, mean = result.anchor, result["mean"]
    x, y = jnp.asarray(rows["x"]), jnp.asarray(rows["y"])
    used = time.process_time()
    with jax.enable_x64(True):
        parts = x, y, anchor.mode.astype(np.float32), anchor.whitening.astype(np.float32)
        density = partial(gradients, anchor.mode.size // x.shape[1], *parts)
        start = np.random.default_rng(1).standard_normal((chains, anchor.mode.size))
        means, accepted, draws = draw(density, start, draws, seconds)
    moved = anchor.displacements(means) / anchor.sd
    theirs, error = moved.mean(axis=0), moved.std(axis=0, ddof=1) / np.sqrt(chains)
    value, own = (np.ravel(each) for each in (mean.value, np.hypot(mean.standard_error, mean.bias_bound)))
    ours = (value - anchor.mode) / anchor.sd
    # Sixteen chains know an error to a sixth: that of all coordinates together is the better one.
    error = np.full_like(error, np.sqrt(np.mean(error**2)))
    z = (ours - theirs) / np.hypot(error, own / anchor.sd)
    some = np.random.default_rng(2).choice(len(z), min(50, len(z)), replace=False)
    # What the chains say along the line of our own shifts: 1 where they are right, 0 where the mode is the mean.
    along = means @ anchor.whitener.pull_back(anchor.precision @ (ours * anchor.sd))
    along /= float((ours * anchor.sd) @ anchor.precision @ (ours * anchor.sd))
    return {
        "status": result.status.name,
        "parameters": len(z),
        "chains": chains,
        "draws_a_chain": draws,
        "accepted": float(accepted),
        "processor_seconds_of_chains": time.process_time() - used,
        "error_of_chains": float(error[0]),
        "largest_difference": float(np.abs(ours - theirs).max()),
        "rms_difference": float(np.sqrt(np.mean((ours - theirs) ** 2))),
        "shift_by_chains": float(along.mean()),
        "error_of_shift": float(along.std(ddof=1) / np.sqrt(chains)),
        "largest_z_of_fifty": float(np.abs(z[some]).max()),
        "largest_z": float(np.abs(z).max()),
        "rms_z": float(np.sqrt(np.mean(z**2))),
        "largest_z_of_the_mode": float(np.abs(theirs / error).max()),
        "rms_z_of_the_mode": float(np.sqrt(np.mean((theirs / error) ** 2))),
        "commit": describe_commit(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", nargs="?", default="components-50", choices=("components-50", "mnist"))
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--chains", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=900.0)
    asked = parser.parse_args()
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    stored[asked.problem] = compare(asked.problem, asked.draws, asked.chains, asked.seconds)
    RESULTS.write_text(json.dumps(stored, indent=1) + "\n")
    print(asked.problem, stored[asked.problem])


if __name__ == "__main__":
    main()
