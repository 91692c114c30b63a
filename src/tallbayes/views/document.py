"""Results as one JSON document, for other programs.

    status, message, converged
    quantities   name -> component -> value, standard_error, bias_bound, interval, tolerance, met
    intervals    parameter -> lower, upper (2.5% and 97.5% of the posterior), lower_error, upper_error
    modes        where the posterior has others: share (Laplace's), location, sd, status, quantities, reason
    cost, method, notes, settings

Numbers that are not finite are null.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isfinite
from typing import Any

import numpy as np

from tallbayes.estimator.estimates import Estimate
from tallbayes.results.coefficients import interval_ends, parameter_names
from tallbayes.results.result import Mode, Result


def to_json(result: Result, settings: dict[str, Any]) -> str:
    """The document as text; `settings` are those of the run beside the result's own."""
    document = {
        "status": result.status.name,
        "message": str(result.status),
        "converged": result.converged,
        "quantities": {name: _components(estimate) for name, estimate in result.estimates.items()},
        "intervals": _intervals(result),
        **({"modes": [_mode(mode) for mode in result.modes]} if result.modes else {}),
        "cost": asdict(result.cost) | {"epochs": result.cost.epochs},
        "method": result.method,
        "notes": list(result.notes),
        "settings": settings | result.settings,
    }
    return json.dumps(_plain(document), indent=2, allow_nan=False)


def component_names(estimate: Estimate) -> list[str]:
    """What tells the components of a quantity apart; of a single number, the quantity's own name.

    Coefficients have their own names, entries of an array their place: "[0]".
    """
    return [label.removeprefix(".") or estimate.name for label in estimate.structure.labels("")]


def _components(estimate: Estimate) -> dict[str, Any]:
    lower, upper = estimate.flat_interval
    return {
        name: {
            "value": estimate.flat_value[i],
            "standard_error": estimate.flat_standard_error[i],
            "bias_bound": estimate.flat_bias_bound[i],
            "interval": [lower[i], upper[i]],
            "tolerance": estimate.flat_tolerance[i],
            "met": bool(estimate.flat_error[i] <= estimate.flat_tolerance[i]),
        }
        for i, name in enumerate(component_names(estimate))
    }


def _mode(mode: Mode) -> dict[str, Any]:
    """Another mode: Laplace's Gaussian there, and the answer to the same question, or why there is none."""
    names = [label.removeprefix(".") or "parameter" for label in mode.structure.labels("")]
    answer = mode.result
    return {
        "share": mode.share,
        "location": dict(zip(names, mode.flat_location, strict=True)),
        "sd": dict(zip(names, mode.flat_sd, strict=True)),
        "status": None if answer is None else answer.status.name,
        "quantities": {} if answer is None else {name: _components(each) for name, each in answer.estimates.items()},
        "reason": mode.reason,
    }


def _intervals(result: Result) -> dict[str, Any]:
    ends = interval_ends(result)
    if ends is None:
        return {}
    numbers = ends.lower.flat_value, ends.upper.flat_value, ends.lower.flat_error, ends.upper.flat_error
    keys = ("lower", "upper", "lower_error", "upper_error")
    rows = zip(parameter_names(result), zip(*numbers, strict=True), strict=True)
    return {name: dict(zip(keys, row, strict=True)) for name, row in rows}


def _plain(value: Any) -> Any:
    """Of JSON's own types, whole numbers and others, with null for what is not finite."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not isfinite(value) else value
