"""Results as one JSON document, for other programs.

    headline     what was met and what was not, in a line
    next         what to do about it, or null
    status, message, converged
    quantities   name -> component -> value, standard_error, bias_bound, interval, tolerance, met
    intervals    parameter -> lower, upper (2.5% and 97.5% of the posterior), lower_error, upper_error, what
                 they are held against (tolerance), lower_met, upper_met
    modes        where the posterior has others: share (Laplace's), location, sd, status, quantities, reason
    groups       of a mixed model, by factor: how many, of how many rows, how their effects were found; no effects
    variance     shares by factor and residual: share, lower, upper, and their errors
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
from tallbayes.results.coefficients import Ends, interval_ends
from tallbayes.results.groups.partition import known_partition
from tallbayes.results.parts import Mode
from tallbayes.results.result import Result
from tallbayes.views.advice import RUN, unquoted
from tallbayes.views.headline import headline
from tallbayes.views.tables import components, measured, places


def to_json(result: Result, settings: dict[str, Any]) -> str:
    """The document as text; `settings` are those of the run beside the result's own, and its folder."""
    ends = interval_ends(result)
    top = headline(result, ends, settings)
    document = {
        "headline": top.line,
        "next": unquoted(top.step) or None,
        "status": result.status.name,
        "message": str(result.status),
        "converged": result.converged,
        "quantities": {name: _components(estimate) for name, estimate in result.estimates.items()},
        "intervals": {} if ends is None else _intervals(ends),
        **({"modes": [_mode(mode) for mode in result.modes]} if result.modes else {}),
        **_groups(result),
        "cost": asdict(result.cost) | {"epochs": result.cost.epochs},
        "method": result.method,
        "notes": list(result.notes),
        "settings": {name: each for name, each in settings.items() if name != RUN} | result.settings,
    }
    return json.dumps(_plain(document), indent=2, allow_nan=False)


def _components(estimate: Estimate) -> dict[str, Any]:
    return {
        each.name: {
            "value": each.value.value,
            "standard_error": each.standard_error.value,
            "bias_bound": each.bias_bound.value,
            "interval": [each.lower.value, each.upper.value],
            "tolerance": each.tolerance.value,
            "met": each.met,
        }
        for each in components(estimate)
    }


def _groups(result: Result) -> dict[str, Any]:
    if not result.factors:
        return {}
    shares = known_partition(result)
    variance = {
        each.name: {
            "share": each.share.value,
            "share_error": each.share.error,
            "lower": each.lower.value,
            "upper": each.upper.value,
            "lower_error": each.lower.error,
            "upper_error": each.upper.error,
        }
        for each in shares or ()
    }
    return {"groups": {each.by: asdict(each) for each in result.factors}, "variance": variance}


def _mode(mode: Mode) -> dict[str, Any]:
    """Another mode: Laplace's Gaussian there, and the answer to the same question, or why there is none."""
    answer, grid = mode.result, places(mode)
    centres, widths = ({n: c.value for n, c in zip(grid.names, part, strict=True)} for part in grid.columns.values())
    return {
        "share": mode.share,
        "location": centres,
        "sd": widths,
        "status": None if answer is None else answer.status.name,
        "quantities": {} if answer is None else {name: _components(each) for name, each in answer.estimates.items()},
        "reason": mode.reason,
    }


def _intervals(ends: Ends) -> dict[str, Any]:
    both = ends.lower, ends.upper
    met = [(end.flat_error <= end.flat_tolerance).tolist() for end in both]
    rows = zip(ends.names, *map(measured, both), ends.lower.flat_tolerance, *met, strict=True)
    return {
        name: {
            "lower": low.value,
            "upper": high.value,
            "lower_error": low.error,
            "upper_error": high.error,
            "tolerance": float(allowed),
            "lower_met": lower_met,
            "upper_met": upper_met,
        }
        for name, low, high, allowed, lower_met, upper_met in rows
    }


def _plain(value: Any) -> Any:
    """Of JSON's own types, whole numbers and others, with null for what is not finite."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(each) for each in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not isfinite(value) else value
