"""The flights answer beside an exact reference: every mean, sd and interval end, the prediction and the comparison.

    python benchmarks/flights.py

The reference is `flights_reference.json`, importance sampling by other code (`flights_reference.py`, which makes it).
z is the difference over both errors together: `error` of a number includes the bound of its remaining bias, and `se`
does not. 152 numbers of coefficients and five others: a |z| of 3.9 by standard errors is one false alarm in a hundred.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import ages
import numpy as np

import tallbayes as tb

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "examples"))

from nycflights import FORMULA, NAMED_FLIGHT, WORSE, read_flights  # noqa: E402

TOLERANCE = 0.01
KINDS = {"mean": "mean", "sd": "sd", "lower": "quantile_0.025", "upper": "quantile_0.975"}


def main() -> None:
    reference = json.loads((HERE / "results" / "flights_reference.json").read_text())
    result = tb.fit(
        FORMULA, read_flights(), family="logistic", tolerance=TOLERANCE, intercept_scale=1.0, standardise="all"
    )
    table = {kind: compare(result, kind, reference["coefficients"]) for kind in KINDS}
    others = single_numbers(result, reference)
    print(f"{'':14}{'largest |z|':>12}{'rms z':>8}{'by error':>10}{'largest miss':>14}{'Laplace off':>13}")
    for kind, row in table.items():
        print(
            f"{kind:14}{row['largest']:12.2f}{row['rms']:8.2f}{row['largest_by_error']:10.2f}{row['miss']:11.4f} sd"
            f"{row['laplace']:10.3f} sd"
        )
    for name, row in others.items():
        print(f"{name:32} {row['value']:.5f} ± {row['error']:.1g}, reference {row['reference']:.5f}, z {row['z']:+.2f}")
    print(f"{result.status.name}: {result.cost.seconds:.1f} s, {result.cost.epochs:.2f} epochs")
    found = {"tolerance": TOLERANCE, "status": result.status.name, "coefficients": table, "others": others}
    cost = {"seconds": round(result.cost.seconds, 1), "epochs": round(result.cost.epochs, 3)}
    out = HERE / "results" / "flights.json"
    out.write_text(json.dumps(found | {"cost": cost}, indent=1) + "\n")
    ages.record(out)


def compare(result: tb.Result, kind: str, reference: dict[str, Any]) -> dict[str, float]:
    """One kind of number over all coefficients; misses in posterior sds."""
    z, by_error, miss, laplace = [], [], [], []
    quantiles = result.posterior.quantile([0.025, 0.975])
    names = list(result.posterior.labels)
    estimates = {"mean": result["mean"], "sd": result["sd"]}
    for place, each in enumerate(result.coefficients()):
        truth, off = (reference[each.name][f"{KINDS[kind]}{suffix}"] for suffix in ("", "_error"))
        number, sd = getattr(each, kind), reference[each.name]["sd"]
        if kind in estimates:
            error = estimates[kind].flat_standard_error[place]
        else:
            error = quantiles.flat_standard_error[place + (len(names) if kind == "upper" else 0)]
        z.append((number.value - truth) / np.hypot(error, off))
        by_error.append((number.value - truth) / np.hypot(number.error, off))
        miss.append((number.value - truth) / sd)
        gaussian = {"mean": 0.0, "lower": -1.959964, "upper": 1.959964}.get(kind)
        there = each.laplace_sd if gaussian is None else each.laplace_mean + gaussian * each.laplace_sd
        laplace.append((there - truth) / sd)
    return {
        "largest": float(np.max(np.abs(z))),
        "rms": float(np.sqrt(np.mean(np.square(z)))),
        "largest_by_error": float(np.max(np.abs(by_error))),
        "miss": float(np.max(np.abs(miss))),
        "laplace": float(np.max(np.abs(laplace))),
    }


def single_numbers(result: tb.Result, reference: dict[str, Any]) -> dict[str, dict[str, float]]:
    prediction, contrast = result.predict(NAMED_FLIGHT), result.compare("carrier", *WORSE)
    flight, worse = reference["flight"], reference["worse"]
    a, b = WORSE
    pairs = {
        "P(late) of the named flight": (prediction.mean[0], prediction.error[0], flight["mean"], flight["mean_error"]),
        "its posterior sd": (prediction.sd[0], 0.02 * prediction.sd[0], flight["sd"], flight["sd_error"]),
        f"P({a} worse than {b})": (*contrast.probability, worse["probability"], worse["probability_error"]),
    }
    for kind, key in KINDS.items():
        pairs[f"{a} - {b}, {kind}"] = (
            *getattr(contrast, kind),
            worse["difference"][key],
            worse["difference"][f"{key}_error"],
        )
    return {
        name: {
            "value": float(value),
            "error": float(error),
            "reference": float(truth),
            "z": float((value - truth) / np.hypot(error, off)),
        }
        for name, (value, error, truth, off) in pairs.items()
    }


if __name__ == "__main__":
    main()
