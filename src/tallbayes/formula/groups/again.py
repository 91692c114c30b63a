"""The groups of a run read again from its table, for predictions in another process.

What a group's rows say of its effect hangs on theta, so that no few numbers could stand for them. A table that is not
the one that was fitted is told by the number of rows of its groups, and by the means of their response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.errors import DataError, explain
from tallbayes.estimation.group_effects import known_groups, raw_means
from tallbayes.formula.design import build_design
from tallbayes.formula.fit import find_family, make_model
from tallbayes.formula.groups.fit import mixed_model
from tallbayes.formula.standardising import read_rule
from tallbayes.groups.placing import gather, place_again
from tallbayes.posterior.group_predictions import KnownGroups
from tallbayes.results.groups.effects import EffectSource, has_groups, nothing_more
from tallbayes.results.result import Result, kept_posterior
from tallbayes.rows.sources import open_source

FAMILY_OPTIONS = ("noise_scale", "degrees_of_freedom")
TOLERANCE = 0.05


def with_groups(result: Result, settings: Mapping[str, Any]) -> Result:
    """A result that was read with its run, able to predict for the groups of its table where that is in its place."""
    data = settings.get("data")
    if not has_groups(result) or result.posterior is None or data is None or not Path(data).exists():
        return result
    source = EffectSource(nothing_more, result.stored_effects, gather=partial(gather_again, result, settings))
    return replace(result, effect_source=source)


def gather_again(result: Result, settings: Mapping[str, Any]) -> KnownGroups:
    """The groups of the table that a run's settings name, with nodes at the centre of its posterior."""
    known, make = find_family(settings["family"])
    standardise = not settings.get("raw") and settings.get("standardise", True)
    design = build_design(
        settings["formula"],
        open_source(Path(settings["data"])),
        standardise=standardise,
        missing=settings.get("missing") or "error",
        weights=settings.get("weights"),
        offset=settings.get("offset"),
        response=known.response,
        standardise_response=read_rule(standardise) != "nothing" and known.response == "real",
    )
    chosen = {name: settings[name] for name in FAMILY_OPTIONS if settings.get(name) is not None}
    # Priors do not matter to effects given theta; a flat one fits any number of columns.
    model, rows = mixed_model(design, make_model(known, make, design, inf, inf, chosen))
    placed = place_again(gather(model, rows, design.weights), kept_posterior(result).anchor, TOLERANCE)
    found = known_groups(placed)
    _require_same(result, found, settings["data"])
    return found


def _require_same(result: Result, found: KnownGroups, data: str) -> None:
    for effects in result.stored_effects:
        if effects.by != found.integral.groups.by:
            continue
        counts, raw = (each[found.order] for each in (found.units["count"], raw_means(found.units)))
        same = len(counts) == len(effects) and np.array_equal(counts, effects.counts)
        if not same or not np.allclose(raw, effects.raw, rtol=1e-4, atol=1e-4, equal_nan=True):
            got = f"{data!r}, whose groups have other rows"
            raise DataError(explain("the table that was fitted", got, "tallbayes fit anew"))
