"""Rows that arrive: the flights of a year day by day, a hundred segments of ten million rows, and groups that grow.

    python benchmarks/arrivals.py flights     every day's update; on 20 days beside a fit from scratch
    python benchmarks/arrivals.py 170-200     the same from a fit of the first 170 days on, with 5 days beside a fit
    python benchmarks/arrivals.py nuts        some draws of NUTS on the rows of the whole year, if NumPyro is installed
    python benchmarks/arrivals.py segments    10^7 rows by five columns in a hundred daily segments
    python benchmarks/arrivals.py groups      100 groups that get rows for 20 days, and a new one each day
    python benchmarks/arrivals.py table       what results/arrivals.json says

Days are written as they end, by their dates. A run that goes on skips none, since each builds on the one before, but it
does not fit again from scratch what it has. The fit from scratch is of the same rows, columns and priors
(`result.question`), with another seed and half the tolerance. z is the difference over both standard errors and bounds
of the bias together.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ages
import numpy as np

import tallbayes as tb
from tallbayes.arrivals.days import answered
from tallbayes.arrivals.memory import roomy
from tallbayes.estimation.question import read_changes

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "arrivals.json"
sys.path.insert(0, str(HERE.parent / "examples"))

TOLERANCE, FIRST_DAYS, CHECKS = 0.02, 7, 20
GROUPS, GROUP_ROWS, GROUP_DAYS, DAY_ROWS, FORGOTTEN, GROUP_TOLERANCE = 100, 6_000, 20, 100, 5, 0.05
ROWS, COLUMNS, SEGMENTS = 10_000_000, 5, 100
NUTS_WARM_UP, NUTS_DRAWS = 50, 150


def main() -> None:
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for part in sys.argv[1:] or ["flights", "segments", "table"]:
        if part[0].isdigit():
            flights(known, *map(int, part.split("-")), checks=5)
        else:
            {"flights": flights, "nuts": nuts, "segments": segments, "groups": groups, "table": table}[part](known)


def keep(known: dict[str, Any]) -> None:
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(known, indent=1) + "\n")
    ages.record(RESULTS, ages.grown(RESULTS.name, before, known))


def flights(known: dict[str, Any], first: int = FIRST_DAYS, last: int = 365, checks: int = CHECKS) -> None:
    import pyarrow as pa
    from nycflights import FORMULA, read_flights

    rows = read_flights()
    dates = np.array(rows["date"].to_pylist())
    days = np.unique(dates)
    checked = set(np.linspace(first + 2, last - 1, checks).astype(int).tolist())
    scratch = known.setdefault("scratch", {})
    kept = known.setdefault("flights", {})
    result = tb.fit(
        FORMULA,
        rows.filter(pa.array(np.isin(dates, days[:first]))),
        family="logistic",
        tolerance=TOLERANCE,
        intercept_scale=1.0,
    )
    for place in range(first, last):
        new = rows.filter(pa.array(dates == days[place]))
        started, busy = time.monotonic(), time.process_time()
        result = result.update(new, new_levels="add")
        name = str(days[place])
        day = {
            "new": new.num_rows,
            "rows": result.cost.num_data,
            "seconds": round(time.monotonic() - started, 3),
            "processor_seconds": round(time.process_time() - busy, 3),
            "gradients": result.cost.evaluations,
            "set_up": result.cost.setup_evaluations,
            "places": places_of(result),
            "status": result.status.name,
            "moved": any(note.startswith("centre: moved") for note in result.notes),
            "levels": any(note.startswith("levels:") for note in result.notes),
        }
        if place in checked:
            scratch[name] = scratch.get(name) or from_scratch(result)
            day["z"], day["apart"] = beside(result, scratch[name])
        kept[name] = day
        print(name, json.dumps({key: value for key, value in day.items() if key != "z"}), flush=True)
        if place in checked or place % 10 == 0:
            keep(known)
    keep(known)


def places_of(result: tb.Result) -> int | None:
    """Places of the list in the batches of fine paths: coarse paths see the same ones, and `evaluations` counts both.
    Pilots, of which a day that follows another has none, are left out."""
    if result.path_source is None or any(not hasattr(level, "samples") for level in result.levels):
        return None
    steps = sum(round(level.samples * level.time / level.step) for level in result.levels)
    return steps * result.path_source().rows_per_gradient


def from_scratch(result: tb.Result) -> dict[str, Any]:
    """The same rows, columns and priors, by a fit that knows of no days."""
    asked, started, busy = result.question, time.monotonic(), time.process_time()
    found = tb.estimate(asked.model, asked.data, weights=asked.weights, tolerance=TOLERANCE / 2, seed=2013)
    seconds, busy = time.monotonic() - started, time.process_time() - busy
    return {
        "status": found.status.name,
        "seconds": round(seconds, 2),
        "processor_seconds": round(busy, 2),
        "gradients": found.cost.evaluations,
        "numbers": {kind: numbers(found, kind) for kind in ("mean", "sd")},
    }


def numbers(result: tb.Result, kind: str) -> dict[str, list[float]]:
    each = result[kind]
    parts = each.flat_value, each.flat_standard_error, each.flat_bias_bound
    return dict(zip(("value", "error", "bias"), (part.tolist() for part in parts), strict=True))


def beside(result: tb.Result, scratch: dict[str, Any]) -> tuple[list[float], float]:
    """z of all means and sds, and the largest difference in posterior sds."""
    z, apart, sd = [], [], np.array(scratch["numbers"]["sd"]["value"])
    for kind in ("mean", "sd"):
        here, there = numbers(result, kind), {k: np.array(v) for k, v in scratch["numbers"][kind].items()}
        difference = np.array(here["value"]) - there["value"]
        error = np.sqrt(sum(np.square(each) for each in (here["error"], here["bias"], there["error"], there["bias"])))
        z += (difference / error).tolist()
        apart.append(float(np.max(np.abs(difference) / sd)))
    return z, max(apart)


def segments(known: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    truth, size = rng.normal(size=COLUMNS) * 0.3, ROWS // SEGMENTS
    per_day = 1_000

    def made(count: int) -> dict[str, np.ndarray]:
        x = rng.normal(size=(count, COLUMNS)).astype(np.float32)
        y = rng.random(count) < 1 / (1 + np.exp(-(x @ truth)))
        return {"x": x, "y": y.astype(np.float32)}

    started = time.monotonic()
    result = tb.estimate(tb.families.logistic(), made(size), tolerance=TOLERANCE)
    kept = []
    for number in range(1, SEGMENTS):
        kept.append(timed(result, made(size)))
        result = kept[-1].pop("result")
        print(number, kept[-1], flush=True)
        known["segments"] = {"size": size, "days": kept}
        keep(known)
    small = []
    for _ in range(10):
        small.append(timed(result, made(per_day)))
        result = small[-1].pop("result")
        print("small", small[-1], flush=True)
    known["segments"] = {"size": size, "days": kept, "small": small, "seconds": time.monotonic() - started}
    keep(known)


def groups(known: dict[str, Any]) -> None:
    """Every day beside a fit of all its rows; the control's sums lack the last five days. z of effects is apart."""
    kept: list[dict[str, Any]] = []
    result = tb.fit("y ~ x + (1 | g)", of_groups(0, GROUP_ROWS), family="logistic", tolerance=GROUP_TOLERANCE)
    centres = []
    for day in range(1, GROUP_DAYS + 1):
        found = timed(result, of_groups(day, DAY_ROWS))
        result = found.pop("result")
        started, busy = time.monotonic(), time.process_time()
        scratch = again(result, seed=1_000 + day)
        found["scratch_seconds"] = round(time.monotonic() - started, 3)
        found["scratch_processor_seconds"] = round(time.process_time() - busy, 3)
        found["scratch_gradients"] = scratch.cost.evaluations + scratch.cost.setup_evaluations
        found |= {"z": both(result, scratch), "effects_z": of_effects(result, scratch)}
        centres.append(result.standing.centre)
        if day == GROUP_DAYS:
            found["control_z"] = both(forgetting(result, centres[-1 - FORGOTTEN]), scratch)
        kept.append(found)
        print(day, {name: each for name, each in found.items() if "z" not in name}, flush=True)
        known["groups"] = kept
        keep(known)


def of_groups(day: int, count: int) -> dict[str, np.ndarray]:
    """A day's rows; there is one more group every day."""
    effects = 0.7 * np.random.default_rng(2).normal(size=GROUPS + GROUP_DAYS)
    rng = np.random.default_rng([2, day])
    group, x = rng.integers(0, GROUPS + day, count), rng.normal(size=count)
    y = rng.random(count) < 1 / (1 + np.exp(-(0.3 + 0.5 * x + effects[group])))
    return {"y": y.astype(float), "x": x, "g": np.array([f"g{each:03d}" for each in group])}


def again(result: tb.Result, seed: int) -> tb.Result:
    """The same rows by a fit that knows of no days."""
    asked = result.question
    return tb.estimate(asked.model, asked.data, tolerance=GROUP_TOLERANCE, seed=seed)


def both(result: tb.Result, scratch: tb.Result) -> list[float]:
    return beside(result, {"numbers": {kind: numbers(scratch, kind) for kind in ("mean", "sd")}})[0]


def of_effects(result: tb.Result, scratch: tb.Result) -> list[float]:
    here, there = result.effects("g"), scratch.effects("g")
    found = []
    for name in ("mean", "sd"):
        error = np.hypot(getattr(here, f"{name}_error"), getattr(there, f"{name}_error"))
        found += ((getattr(here, name) - getattr(there, name)) / error).ravel().tolist()
    return found


def forgetting(result: tb.Result, centre: Any) -> tb.Result:
    """The day again, by sums of some days before."""
    standing = result.standing
    same = np.array_equal(centre.theta, standing.centre.theta)
    assert same, "all units were read anew meanwhile"
    laid = replace(standing.laid, centre=replace(centre, num_rows=standing.centre.num_rows))
    return answered(replace(standing, laid=laid), read_changes(standing.question))


def timed(result: tb.Result, rows: dict[str, np.ndarray]) -> dict[str, Any]:
    started, busy = time.monotonic(), time.process_time()
    found = result.update(rows)
    return {
        "result": found,
        "rows": found.cost.num_data,
        "seconds": round(time.monotonic() - started, 3),
        "processor_seconds": round(time.process_time() - busy, 3),
        "gradients": found.cost.evaluations,
        "set_up": found.cost.setup_evaluations,
        "moved": any(note.startswith("centre: moved") for note in found.notes),
        "status": found.status.name,
    }


def nuts(known: dict[str, Any]) -> None:
    """NUTS on the rows of the whole year for some draws, from the mode and with the posterior's sds as its masses, so
    that warm-up is of the step size alone; and from its effective draws a gradient what every mean to TOLERANCE takes.
    """
    import jax
    import jax.numpy as jnp
    import numpyro
    from numpyro.diagnostics import effective_sample_size
    from numpyro.infer import MCMC, NUTS, init_to_value
    from nycflights import FORMULA, read_flights

    from tallbayes.formula.design import build_design

    rows = read_flights()
    design = build_design(FORMULA, rows)
    x = np.asarray(design.encoding.transform(rows), np.float64)
    scales = np.where(x.std(axis=0) > 0, x.std(axis=0), 1)
    x = np.column_stack([np.ones(len(x)), (x - x.mean(axis=0)) / scales])
    y = np.asarray(design.rows["y"], np.float64)
    mode, sd = by_newton(x, y)
    data = jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)

    def model(x: Any, y: Any) -> None:
        theta = numpyro.sample("theta", numpyro.distributions.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
        numpyro.sample("y", numpyro.distributions.Bernoulli(logits=x @ theta), obs=y)

    start = init_to_value(values={"theta": jnp.asarray(mode, jnp.float32)})
    masses = jnp.asarray(sd**2, jnp.float32)
    kernel = NUTS(model, init_strategy=start, inverse_mass_matrix=masses, adapt_mass_matrix=False)
    run = MCMC(kernel, num_warmup=NUTS_WARM_UP, num_samples=NUTS_DRAWS, progress_bar=False)
    run.warmup(jax.random.key(0), *data)
    begun, busy = time.monotonic(), time.process_time()
    run.run(jax.random.key(1), *data, extra_fields=("num_steps",))
    seconds, busy = time.monotonic() - begun, time.process_time() - busy
    steps = int(np.sum(run.get_extra_fields()["num_steps"]))
    draws = np.asarray(run.get_samples()["theta"])[None]
    effective = np.asarray(effective_sample_size(draws)), np.asarray(effective_sample_size(draws**2))
    least = float(min(each.min() for each in effective))
    wanted = TOLERANCE**-2
    known["nuts"] = {
        "rows": len(y),
        "parameters": x.shape[1],
        "draws": NUTS_DRAWS,
        "steps": steps,
        "seconds": round(seconds, 1),
        "processor_seconds": round(busy, 1),
        "least_effective": round(least, 1),
        "median_effective": round(float(np.median(effective[0])), 1),
        "processor_seconds_to_tolerance": round(busy * wanted / least, 1),
        "row_gradients_to_tolerance": steps * len(y) * wanted / least,
    }
    print(known["nuts"])
    keep(known)


def by_newton(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mode of a logistic regression with priors N(0, 1), and its sds there."""
    theta = np.zeros(x.shape[1])
    for _ in range(8):
        chance = 1 / (1 + np.exp(-x @ theta))
        precision = (x.T * (chance * (1 - chance))) @ x + np.eye(len(theta))
        theta = theta + np.linalg.solve(precision, x.T @ (y - chance) - theta)
    return theta, np.sqrt(np.diag(np.linalg.inv(precision)))


def table(known: dict[str, Any]) -> None:
    days = list(known.get("flights", {}).values())
    if days:
        read = np.array([day["gradients"] + day["set_up"] for day in days])
        bound = np.array([5 * day["new"] + 20_000 for day in days])
        seconds = np.array([day["seconds"] for day in days])
        z = np.concatenate([day["z"] for day in days if "z" in day])
        quiet = np.array([not (day["moved"] or day["levels"]) for day in days])
        seen = np.array([day["places"] + day["set_up"] for day in days if day.get("places") is not None])
        met = sum(day["status"] == "converged" for day in days)
        print(f"{len(days)} days, {int(quiet.sum())} without a pass; converged {met}")
        print(f"rows read a day: median {np.median(read):,.0f}, of days without a pass {np.median(read[quiet]):,.0f}")
        if len(seen):
            print(f"places in batches of fine paths, and set-up: median {np.median(seen):,.0f}")
        print(f"bound: median {np.median(bound):,.0f}; met on {np.mean(read <= bound):.0%} of days")
        print(f"seconds a day: median {np.median(seconds):.2f}, of days without a pass {np.median(seconds[quiet]):.2f}")
        print(f"z: {len(z)} numbers, rms {np.sqrt(np.mean(z**2)):.2f}, largest {np.abs(z).max():.2f}")
        apart = max(day["apart"] for day in days if "z" in day)
        print(f"within 1.96: {np.mean(np.abs(z) < 1.96):.1%}; largest difference {apart:.3f} sd")
        whole = [each["processor_seconds"] for each in known["scratch"].values()]
        busy = np.array([day["processor_seconds"] for day in days])
        print(f"processor seconds a day: median {np.median(busy):.2f}, without a pass {np.median(busy[quiet]):.2f}")
        print(f"from scratch, to half the tolerance: median {np.median(whole):.2f} processor seconds")
    if "groups" in known:
        table_of_groups(known["groups"])
    if "segments" in known:
        size, days = known["segments"]["size"], known["segments"]["days"]
        warm = [day for day in days if not day["moved"] and roomy(day["rows"]) == roomy(day["rows"] - size)]
        seconds = [day["processor_seconds"] for day in warm]
        first, last = np.median(seconds[:20]), np.median(seconds[-20:])
        print(f"segments: processor seconds of {len(warm)} warm days: first twenty {first:.2f}, last twenty {last:.2f}")


def table_of_groups(days: list[dict[str, Any]]) -> None:
    def median(name: str) -> float:
        return float(np.median([day[name] for day in days[1:]]))

    met = sum(day["status"] == "converged" for day in days)
    print(f"groups: {len(days)} days, converged {met}; units looked at by set-up a day: median {median('set_up'):,.0f}")
    print(f"units on paths a day: median {median('gradients'):,.0f}; from scratch {median('scratch_gradients'):,.0f}")
    mine, theirs = median("processor_seconds"), median("scratch_processor_seconds")
    print(f"processor seconds a day: median {mine:.2f}, from scratch {theirs:.2f}")
    for name in ("z", "effects_z", "control_z"):
        z = np.concatenate([day.get(name, []) for day in days])
        within = np.mean(np.abs(z) < 1.96)
        print(f"{name}: {len(z)} numbers, rms {np.sqrt(np.mean(z**2)):.2f}, within 1.96 {within:.1%}")


if __name__ == "__main__":
    main()
