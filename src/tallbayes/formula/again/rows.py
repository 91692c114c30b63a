"""A run's table read again in another process: its rows, with the model that was fitted to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from math import inf
from pathlib import Path
from typing import Any

from tallbayes.errors import DataError, explain
from tallbayes.formula.again.groups import gather_again
from tallbayes.formula.design import build_design
from tallbayes.formula.design_steps import Design
from tallbayes.formula.fit import coefficient_scales, find_family, formula_parameter, make_model, unknown_extras
from tallbayes.formula.groups.fit import mixed_model
from tallbayes.formula.priors.stated import read_priors
from tallbayes.formula.standardising import read_rule
from tallbayes.groups.placing import gather, place_again
from tallbayes.model.model import Model
from tallbayes.model.weights import weigh
from tallbayes.results.fitted import FitTable, Fitted, kept_posterior
from tallbayes.results.groups.effects import EffectSource, has_groups, nothing_more
from tallbayes.results.result import Result
from tallbayes.rows.on_disk import Stored
from tallbayes.rows.sources import open_source
from tallbayes.setup.preparation import check_data, check_stored, place

FAMILY_OPTIONS = ("noise_scale", "degrees_of_freedom")
TOLERANCE = 0.05


def with_rows(result: Result, settings: Mapping[str, Any]) -> Result:
    """A result that was read with its run, able to answer what needs its table where that is in its place."""
    data = settings.get("data")
    if result.posterior is None or data is None or not Path(data).exists():
        return result
    table = FitTable(str(data), settings.get("weights"))
    found = replace(result, fitted_source=cache(partial(_fitted_again, result, settings)), fit_table=table)
    if not has_groups(result):
        return found
    again = partial(gather_again, result, partial(_mixed_again, settings), str(data))
    return replace(found, effect_source=EffectSource(nothing_more, result.stored_effects, gather=again))


def design_again(settings: Mapping[str, Any]) -> tuple[Design, Model]:
    """The design of the table that a run's settings name, and the family's model for it, without groups."""
    known, _ = find_family(settings["family"])
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
        parameter=formula_parameter(known),
    )
    return design, model_again(settings, design)


def model_again(settings: Mapping[str, Any], design: Design) -> Model:
    """The model of the family that a run's settings name, for a design, without groups."""
    known, make = find_family(settings["family"])
    chosen = {name: settings[name] for name in FAMILY_OPTIONS if settings.get(name) is not None}
    scales = coefficient_scales(_number(settings.get("prior_scale", 1.0)), design.names)
    stated = read_priors(settings.get("prior"), design, unknown_extras(known, chosen, design))
    intercept, group_scale = _number(settings.get("intercept_scale", 10.0)), settings.get("group_scale") or 1.0
    return make_model(known, make, design, scales, intercept, chosen, stated, group_scale)


def _mixed_again(settings: Mapping[str, Any]) -> tuple[Model, Any, Any]:
    """The model with its groups, its rows and their weights; where parameters stand in R^d hangs on their priors."""
    design, model = design_again(settings)
    known = find_family(settings["family"])[0]
    stated = read_priors(settings.get("prior"), design, unknown_extras(known, settings, design))
    return *mixed_model(design, model, settings.get("group_scale") or 1.0, stated), design.weights


def _number(given: Any) -> Any:
    """Infinity is text in a file of settings."""
    return inf if given == "inf" else given


def _fitted_again(result: Result, settings: Mapping[str, Any]) -> Fitted:
    design, model = design_again(settings)
    if design.groups:
        placed = place_again(gather(*_mixed_again(settings)), kept_posterior(result).anchor, TOLERANCE)
    elif isinstance(design.rows, Stored):
        model, rows = check_stored(model, design.rows, design.weights)
        placed = place(model, rows, "float64", True, design.rows)
    else:
        rows = check_data(model, design.rows)
        if design.weights is not None:
            model, rows = weigh(model, rows, design.weights)
        placed = place(model, rows, "float64", True, None)
    if placed.table.num_rows != kept_posterior(result).anchor.num_rows:
        got = f"{settings['data']!r}, which has {placed.table.num_rows:,} rows as they are fitted"
        expected = f"the table that was fitted, of {kept_posterior(result).anchor.num_rows:,}"
        raise DataError(explain(expected, got, "tallbayes fit anew"))
    return Fitted(placed.target, placed.table, placed.grouping)
