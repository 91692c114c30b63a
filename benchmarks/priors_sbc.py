"""Are stated priors right? Simulation-based calibration of a logistic regression under every kind of prior.

    python benchmarks/priors_sbc.py [--datasets 100] [--case NAME ...] [--out FOLDER]

    theta* ~ prior,   60 rows ~ p(. | theta*),   u_j = P(theta_j < theta*_j | rows),   u_j uniform on [0, 1]

Draws of the prior are those of `tb.priors` themselves, which tests hold against SciPy's. The scales of the columns rise
from a tenth of the widest, so that the prior decides one coefficient and the rows another. Beside the ranks, every
run says how far its error of a rank reaches. Tests and their false alarms are those of `sbc`; controls are fitted with
another prior than the one that was drawn from. Every run is a line of benchmarks/results/priors_sbc.jsonl, and what is
there is not run again; the summary is printed, and written to benchmarks/results/priors_sbc.json.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lines
import numpy as np
from sbc import RESULTS, Key, Summary, show, summarise, threshold
from scipy.special import expit

import tallbayes as tb

NUM_ROWS, DIMENSION, SEED, WIDEST = 60, 3, 11, 1.5
INTERCEPT = tb.priors.normal(0.5, 0.5)
Make = Callable[[float], Any]

PRIORS: dict[str, Make] = {
    "normal, its own mean": lambda scale: tb.priors.normal(0.3, scale),
    "student_t": lambda scale: tb.priors.student_t(4, 0, scale),
    "laplace": lambda scale: tb.priors.laplace(0, scale),
}
CONTROLS: dict[str, tuple[str, Make]] = {
    "control: laplace, half as wide": ("laplace", lambda scale: tb.priors.laplace(0, scale / 2)),
    "control: normal, its mean left out": ("normal, its own mean", lambda scale: tb.priors.normal(0, scale)),
    "control: student_t, centred elsewhere": ("student_t", lambda scale: tb.priors.student_t(4, scale / 2, scale)),
}
CASES = (*PRIORS, *CONTROLS)


def scales() -> np.ndarray:
    return WIDEST * np.geomspace(0.1, 1.0, DIMENSION)


def drawn_from(case: str) -> list[Any]:
    name = CONTROLS[case][0] if case in CONTROLS else case
    return [PRIORS[name](scale) for scale in scales()]


def fitted_with(case: str) -> list[Any]:
    make = CONTROLS[case][1] if case in CONTROLS else PRIORS[case]
    return [make(scale) for scale in scales()]


def simulate(case: str, number: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The truth, with the intercept last, and rows; a control has those of the case that it is a control of."""
    name = CONTROLS[case][0] if case in CONTROLS else case
    rng = np.random.default_rng([SEED, list(PRIORS).index(name), number])
    truth = np.array([each.draws(rng, ()) for each in (*drawn_from(case), INTERCEPT)])
    x = rng.normal(size=(NUM_ROWS, DIMENSION))
    y = (rng.random(NUM_ROWS) < expit(x @ truth[:-1] + truth[-1])).astype(float)
    return truth, {"x": x, "y": y}


def run(key: Key) -> dict[str, Any]:
    """One data set."""
    truth, rows = simulate(*key)
    model = tb.families.logistic(
        intercept_scale=1.0, priors={"coefficients": fitted_with(key.case), "intercept": INTERCEPT}
    )
    try:
        result = tb.estimate(model, rows, tolerance=0.05, seed=key.number, max_seconds=240)
    except tb.TallbayesError as error:
        return {"status": type(error).__name__, "message": str(error)}
    names = result.posterior.labels
    below = [result.posterior.probability({name: 1.0}, below=each) for name, each in zip(names, truth, strict=True)]
    return {
        "status": result.status.name,
        "names": names,
        "ranks": [float(each.flat_value[0]) for each in below],
        "errors": [float(each.flat_error[0]) for each in below],
        "method": result.method,
        "seconds": round(result.cost.seconds, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="simulation-based calibration of stated priors")
    parser.add_argument("--datasets", type=int, default=100)
    parser.add_argument("--case", choices=CASES, nargs="+", default=CASES)
    parser.add_argument("--workers", type=int, default=lines.WORKERS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    path = given.out / "priors_sbc.jsonl"
    lines.complete([Key(c, n) for c in given.case for n in range(given.datasets)], path, run, given.workers)
    stored = lines.read(path, Key)
    runs = {case: {key.number: each for key, each in sorted(stored.items()) if key.case == case} for case in CASES}
    summaries: list[Summary] = [summarise(case, each) for case, each in runs.items() if each]
    bound = threshold([each for each in summaries if each.case not in CONTROLS])
    print(show(summaries))
    rows = [asdict(each) | {"red": each.least_p < bound} for each in summaries]
    settings = {"num_rows": NUM_ROWS, "dimension": DIMENSION, "seed": SEED, "widest": WIDEST, "red_below": bound}
    (given.out / "priors_sbc.json").write_text(json.dumps({"settings": settings, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
