"""Mean squared relative error against epochs: the multilevel method beside MALA, for growing N.

    relative accuracies 2^(-k/2), k = 2..10;   MALA with 10^4 steps, 10^3 of them burn-in, acceptance 0.574

The ladder is the paper's, m = 5 and h_0 = 1/N, with n = ceil(N^(1/3)) rows a step.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

from tallbayes import baselines
from tallbayes.estimator.ladder import Ladder
from tallbayes.experiments import style
from tallbayes.experiments.claims import Claim
from tallbayes.experiments.problem import batch_size, make_rows, reference
from tallbayes.experiments.runs import repeat, subject
from tallbayes.experiments.store import Measurement, numbers
from tallbayes.model import families
from tallbayes.sampler.gradients import Taylor
from tallbayes.workers.executors import default_executor

NAME = "accuracy"
TITLE = "Mean squared relative error against epochs (the paper's figure 3a)"
STEPS, BURN_IN = 5, 1000
METHODS = {"antithetic + Taylor": 0, "antithetic + Taylor + averaging": 3}


def pieces(quick: bool) -> dict[str, Measurement]:
    sizes = (100, 1000) if quick else (100, 316, 1000, 3162, 10000)
    powers, repeats = ((2, 4, 6, 8, 10), 8) if quick else (tuple(range(2, 11)), 50)
    lengths = (2000, 3000) if quick else (2000, 4500, 10000)
    work: dict[str, Measurement] = {}
    for num_rows in sizes:
        shared = {"num_rows": num_rows, "repeats": repeats, "seeds": f"0..{repeats - 1}"}
        for name, window in METHODS.items():
            work[f"{name}, N = {num_rows}"] = Measurement(
                shared | {"n": batch_size(num_rows), "m": STEPS, "window_steps": window, "powers": powers},
                partial(run_multilevel, num_rows, batch_size(num_rows), window, powers, repeats),
            )
        work[f"MALA, N = {num_rows}"] = Measurement(
            shared | {"steps": lengths, "burn_in": BURN_IN, "target_acceptance": 0.574},
            partial(run_mala, num_rows, lengths, repeats),
        )
    return work


def run_multilevel(num_rows: int, rows_a_step: int, window: int, powers: Any, repeats: int) -> dict[str, Any]:
    """Errors and costs at every accuracy."""
    rows, truth = make_rows(num_rows), reference(num_rows)
    ladder = Ladder(1 / num_rows, start_steps=STEPS, added_steps=STEPS, window_steps=window)
    this = subject(rows, ladder, Taylor(rows_a_step))
    points = []
    for power in powers:
        runs = repeat(this, 2 ** (-power / 2), range(repeats))
        errors = np.array([run["value"] for run in runs]) / truth.value - 1
        costs = np.array([run["evaluations"] for run in runs])
        points.append(
            {
                "power": power,
                "msre": float(np.mean(errors**2)),
                "msre_error": float(np.std(errors**2, ddof=1) / np.sqrt(repeats)),
                "evaluations": float(costs.mean()),
                "evaluations_error": float(costs.std(ddof=1) / np.sqrt(repeats)),
                "levels": float(np.mean([run["levels"] for run in runs])),
                "converged": sum(run["status"] == "converged" for run in runs),
                "repeats": repeats,
            }
        )
    return {
        "reference": truth.value,
        "reference_error": truth.error,
        "slowest": rows.slowest,
        "setup_evaluations": this.prepared.setup_evaluations,
        "points": points,
    }


def run_mala(num_rows: int, lengths: Any, repeats: int) -> dict[str, Any]:
    """Errors of MALA after different numbers of steps; each repeat is a chain of its own."""
    rows, truth = make_rows(num_rows), reference(num_rows)
    model, mode = families.logistic(prior_scale=1.0), rows.mode
    distance = {"g": lambda theta: jnp.sum((theta - mode) ** 2)}
    run = partial(baselines.mala, model, rows.data, distance, burn_in=BURN_IN)
    anchor, points = run(steps=2 * BURN_IN).anchor, []
    for steps in lengths:
        with default_executor() as executor:
            one = partial(run, steps=steps, anchor=anchor)
            chains = list(executor.map(lambda seed, one=one: one(seed=seed), range(repeats)))
        errors = [chain["g"].value / truth.value - 1 for chain in chains]
        squares = np.array(errors) ** 2
        points.append(
            {
                "steps": steps,
                "msre": float(squares.mean()),
                "msre_error": float(squares.std(ddof=1) / np.sqrt(repeats)),
                "evaluations": float(chains[0].evaluations),
                "acceptance": float(np.mean([chain.acceptance for chain in chains])),
            }
        )
    return {"reference": truth.value, "reference_error": truth.error, "points": points}


def draw(results: dict[str, Any]) -> Any:
    figure, axes = style.new_figure(3, height=4.2)
    sizes = numbers(results)
    for ax, method in zip(axes, (*METHODS, "MALA"), strict=True):
        for number, size in enumerate(sizes):
            points = results[f"{method}, N = {size}"]["points"]
            epochs = [point["evaluations"] / size for point in points]
            ax.loglog(epochs, [point["msre"] for point in points], label=f"N = {size:,}", **style.mark(number))
        ax.set(title=method, xlabel="epochs (set-up apart)")
        ax.set_ylim(1e-5, 1)
    axes[0].set_ylabel("mean squared relative error")
    axes[-1].legend(frameon=False)
    return figure


def claims(results: dict[str, Any]) -> list[Claim]:
    sizes = numbers(results, "MALA")
    points = [p for method in METHODS for size in sizes for p in results[f"{method}, N = {size}"]["points"]]
    ratios = [float(np.sqrt(point["msre"]) * 2 ** (point["power"] / 2)) for point in points]
    total, done = (sum(point[key] for point in points) for key in ("repeats", "converged"))
    missed = "" if done == total else f"; the other {total - done} said why not"
    chains = [results[f"MALA, N = {size}"]["points"][-1] for size in sizes]
    errors = [chain["msre"] for chain in chains]
    slopes = []
    for size in sizes:
        finest = results[f"{next(iter(METHODS))}, N = {size}"]["points"][-4:]
        cost, tolerance = np.log([p["evaluations"] for p in finest]), [-p["power"] / 2 * np.log(2) for p in finest]
        slopes.append(float(np.polyfit(cost, tolerance, 1)[0]))
    return [
        Claim(
            "4.2",
            "The multilevel estimator controls its error and stops when the accuracy is reached.",
            f"RMSE / tolerance between {min(ratios):.2f} and {max(ratios):.2f} over all N, accuracies and both "
            f"methods; {done:,} of {total:,} runs converged{missed}",
            "holds",
            NAME,
        ),
        Claim(
            "4.2",
            "MALA's error at a given number of epochs does not depend on N.",
            f"mean squared relative error after {chains[0]['steps']:,} steps between {min(errors):.2g} and "
            f"{max(errors):.2g} for N = {sizes[0]} to {sizes[-1]:,}; acceptance "
            f"{np.mean([chain['acceptance'] for chain in chains]):.3f}",
            "holds",
            NAME,
        ),
        Claim(
            "abstract",
            "For a prescribed accuracy the multilevel method costs c with RMSE ~ c^(-1/2).",
            f"slope of log accuracy on log cost between {min(slopes):.2f} and {max(slopes):.2f} over the four finest "
            "accuracies of each N",
            "holds",
            NAME,
        ),
    ]
