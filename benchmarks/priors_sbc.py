"""Are stated priors right? Simulation-based calibration of a logistic regression under every kind of prior.

    python benchmarks/priors_sbc.py [--datasets 300] [--shrunk 100] [--case NAME ...] [--out FOLDER]

    theta* ~ prior,   60 rows ~ p(. | theta*),   u_j = P(theta_j < theta*_j | rows),   u_j uniform on [0, 1]

Draws of the prior are those of `tb.priors` themselves, which tests hold against SciPy's; those of shrinkage priors are
written out here, scales and all. The scales of the columns rise from a tenth of the widest, so that the prior decides
one coefficient and the rows another; columns under a shrinkage prior, which it takes for alike, are of one scale. A
logistic regression has no sigma that a shrinkage prior could take from the rows. Tests and their false alarms are those
of `sbc`; controls are fitted with another prior than the one that was drawn from. A run that ends without an error that
it knows, as it does under a horseshoe if a line separates the rows, is not judged: which they are is a question of the
rows alone. Every run is a line of benchmarks/results/priors_sbc.jsonl, and what is there is not run again; the summary
is printed, and written to benchmarks/results/priors_sbc.json, where cases without such lines stay as they are.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import ages
import lines
import numpy as np
from sbc import RESULTS, Key, ranked, show, threshold, weights_alone, with_stored
from scipy.special import expit

import tallbayes as tb

NUM_ROWS, DIMENSION, SEED, WIDEST = 60, 3, 11, 1.5
GLOBAL_SCALE, SLAB_SCALE, SLAB_FREEDOM = 0.3, 1.0, 4.0
MEAN_SHARE, SHARE_PRECISION, CONCENTRATION = 0.5, 4.0, 0.5
TOLERANCE, SHRUNK_TOLERANCE = 0.05, 0.2
INTERCEPT = tb.priors.normal(0.5, 0.5)
Make = Callable[[float], Any]

PRIORS: dict[str, Make] = {
    "normal, its own mean": lambda scale: tb.priors.normal(0.3, scale),
    "student_t": lambda scale: tb.priors.student_t(4, 0, scale),
    "laplace": lambda scale: tb.priors.laplace(0, scale),
}
Law = Callable[[np.random.Generator], np.ndarray]


def half_cauchy(rng: np.random.Generator, size: int | None = None) -> Any:
    return np.abs(rng.standard_cauchy(size))


def horseshoe(rng: np.random.Generator) -> np.ndarray:
    scale = GLOBAL_SCALE * half_cauchy(rng) * half_cauchy(rng, DIMENSION)
    return np.asarray(scale * rng.normal(size=DIMENSION))


def regularised_horseshoe(rng: np.random.Generator) -> np.ndarray:
    """c^2 ~ InvGamma(nu / 2, nu s^2 / 2)."""
    slab = SLAB_FREEDOM * SLAB_SCALE**2 / rng.chisquare(SLAB_FREEDOM)
    free = (GLOBAL_SCALE * half_cauchy(rng) * half_cauchy(rng, DIMENSION)) ** 2
    return np.asarray(np.sqrt(1 / (1 / slab + 1 / free)) * rng.normal(size=DIMENSION))


def r2d2(rng: np.random.Generator) -> np.ndarray:
    explained = rng.beta(MEAN_SHARE * SHARE_PRECISION, (1 - MEAN_SHARE) * SHARE_PRECISION)
    parts = rng.dirichlet(np.full(DIMENSION, CONCENTRATION))
    return np.asarray(np.sqrt(parts * explained / (1 - explained)) * rng.normal(size=DIMENSION))


SHRINKAGE: dict[str, tuple[Law, Any]] = {
    "horseshoe": (horseshoe, tb.priors.horseshoe(GLOBAL_SCALE)),
    "regularised horseshoe": (
        regularised_horseshoe,
        tb.priors.regularised_horseshoe(SLAB_SCALE, SLAB_FREEDOM, scale=GLOBAL_SCALE),
    ),
    "R2D2": (r2d2, tb.priors.r2d2(MEAN_SHARE, SHARE_PRECISION, CONCENTRATION)),
}
SHRINKAGE_CONTROLS: dict[str, tuple[str, Any]] = {
    "control: R2D2, a tenth explained for half": ("R2D2", tb.priors.r2d2(0.1, SHARE_PRECISION, CONCENTRATION)),
}
CONTROLS: dict[str, tuple[str, Make]] = {
    "control: laplace, half as wide": ("laplace", lambda scale: tb.priors.laplace(0, scale / 2)),
    "control: normal, its mean left out": ("normal, its own mean", lambda scale: tb.priors.normal(0, scale)),
    "control: student_t, centred elsewhere": ("student_t", lambda scale: tb.priors.student_t(4, scale / 2, scale)),
}
SHRUNK = (*SHRINKAGE, *SHRINKAGE_CONTROLS)
CASES = (*PRIORS, *CONTROLS, *SHRUNK)


def scales() -> np.ndarray:
    return WIDEST * np.geomspace(0.1, 1.0, DIMENSION)


def right_case(case: str) -> str:
    """What a control is a control of."""
    return (CONTROLS | SHRINKAGE_CONTROLS).get(case, (case, None))[0]


def drawn_from(case: str) -> list[Any]:
    return [PRIORS[right_case(case)](scale) for scale in scales()]


def fitted_with(case: str) -> Any:
    if case in SHRUNK:
        return (SHRINKAGE | SHRINKAGE_CONTROLS)[case][1]
    make = CONTROLS[case][1] if case in CONTROLS else PRIORS[case]
    return [make(scale) for scale in scales()]


def simulate(case: str, number: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The truth, with the intercept last, and rows; a control has those of the case that it is a control of."""
    name = right_case(case)
    rng = np.random.default_rng([SEED, [*PRIORS, *SHRINKAGE].index(name), number])
    if name in SHRINKAGE:
        truth = np.append(SHRINKAGE[name][0](rng), INTERCEPT.draws(rng, ()))
    else:
        truth = np.array([each.draws(rng, ()) for each in (*drawn_from(case), INTERCEPT)])
    x = rng.normal(size=(NUM_ROWS, DIMENSION))
    y = (rng.random(NUM_ROWS) < expit(x @ truth[:-1] + truth[-1])).astype(float)
    return truth, {"x": x, "y": y}


def run(max_seconds: float, key: Key) -> dict[str, Any]:
    """One data set."""
    truth, rows = simulate(*key)
    stated = {"coefficients": fitted_with(key.case), "intercept": INTERCEPT}
    model = tb.families.logistic(intercept_scale=1.0, priors=stated)
    known = {"coefficients": truth[:-1], "intercept": truth[-1]}
    tolerance = SHRUNK_TOLERANCE if key.case in SHRUNK else TOLERANCE
    with weights_alone("logistic"):
        return ranked(model, rows, known, tolerance, seed=key.number, max_seconds=max_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description="simulation-based calibration of stated priors")
    parser.add_argument("--datasets", type=int, default=300)
    parser.add_argument("--shrunk", type=int, default=100, help="data sets of a shrinkage prior, which take longer")
    parser.add_argument("--max-seconds", type=float, default=240.0)
    parser.add_argument("--case", choices=CASES, nargs="+", default=CASES)
    parser.add_argument("--workers", type=int, default=lines.WORKERS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    path = given.out / "priors_sbc.jsonl"
    keys = [
        Key(case, number) for case in given.case for number in range(given.shrunk if case in SHRUNK else given.datasets)
    ]
    lines.complete(keys, path, partial(run, given.max_seconds), given.workers)
    stored = lines.read(path, Key)
    runs = {case: {key.number: each for key, each in sorted(stored.items()) if key.case == case} for case in CASES}
    document = given.out / "priors_sbc.json"
    told = json.loads(document.read_text())["rows"] if document.exists() else []
    before = {row["case"]: row for row in told}
    summaries = with_stored({case: each for case, each in runs.items() if each}, before, CASES)
    bound = threshold(summaries)
    print(show(summaries))
    rows = [asdict(each) | {"red": each.least_p < bound} for each in summaries]
    settings = {"num_rows": NUM_ROWS, "dimension": DIMENSION, "seed": SEED, "widest": WIDEST, "red_below": bound}
    document.write_text(json.dumps({"settings": settings, "rows": rows}, indent=1) + "\n")
    own = {each.case: runs.get(each.case, {}).values() for each in summaries}
    ages.record(document, {case: ages.of_lines(each) if each else None for case, each in own.items()})


if __name__ == "__main__":
    main()
