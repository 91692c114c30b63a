"""What is said of priors beside every result: those that were stated, in their own words, then all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tallbayes.formula.coding import INTERCEPT
from tallbayes.formula.design_steps import Design
from tallbayes.formula.groups.design import GroupDesign
from tallbayes.formula.priors.stated import Stated, StatedPriors
from tallbayes.formula.smooths.fit import smooths_in_words
from tallbayes.model.model import Model
from tallbayes.model.priors.prior import Prior
from tallbayes.model.priors.shrinkage import ShrinkagePrior

CUT_POINTS = "cut_points"
ALL_PRIORS = "the scales of all priors"


def prior_note(
    design: Design,
    scales: Any,
    intercept_scale: float,
    group_scale: Any,
    rule: str,
    stated: StatedPriors,
    laws: Mapping[str, str],
) -> str:
    """The priors of a fit in a line; `laws` are the usual ones of what stands beside the coefficients."""
    on = {
        "numbers": "standardised columns of numbers, and on levels of categories as they are",
        "all": "standardised columns",
        "nothing": "columns as they are",
    }[rule]
    encoding, own = design.encoding, len(stated.by_column)
    if rule == "numbers" and not encoding.coding.of_categories and all(encoding.means):
        on = "standardised columns"
    unit = ", in standard deviations of the response" if encoding.response_scale != 1 else ""
    parts = _stated_parts(stated, any(encoding.means), f"{on}{unit}")
    own = own if stated.shrinkage is None else len(design.names)
    which = "other coefficients" if own else "coefficients"
    if len(design.names) > own and np.ndim(scales) == 0:
        parts.append(f"{which} N(0, {scales:g}^2) on {on}")
    elif len(design.names) > own:
        parts.append(f"{which} N(0, s^2), s from {np.min(scales):g} to {np.max(scales):g}, on {on}")
    if design.intercept and INTERCEPT not in stated.by_name and CUT_POINTS not in laws:
        parts.append(f"intercept N(0, {intercept_scale:g}^2){_at(any(encoding.means))}")
    centred = _at(any(encoding.means))
    parts += [
        f"{name.replace('_', ' ')} {law}{centred if name.endswith(f':{INTERCEPT}') else ''}"
        for name, law in laws.items()
        if name not in stated.by_name
    ]
    parts += smooths_in_words(design, group_scale)
    if design.groups:
        parts += _group_parts(design.groups, group_scale, stated)
    both = (
        ", and so are the priors of single names" if stated and not all(map(_in_sds, stated.by_name.values())) else ""
    )
    return f"prior: {', '.join(parts)}; results are for the table's own columns{both}"


def usual_laws(model: Model, design: Design) -> dict[str, str]:
    """What stands beside the coefficients, with the laws that its family has of it."""
    second = design.encoding.coding.second
    name = {"real": "" if second is None else f"{second.name}:{INTERCEPT}"}
    extras = () if model.parts is None else model.parts.extras
    return {name.get(extra.space, extra.name): str(extra.prior) for extra in extras}


def design_notes(design: Design, stated: StatedPriors) -> tuple[str, ...]:
    """What was decided on the way to the design; priors of single names are in other units than all others."""
    but = f"{ALL_PRIORS} that are not stated" if stated else ALL_PRIORS
    return tuple(note.replace(ALL_PRIORS, but) for note in design.notes)


def _in_sds(prior: Stated) -> bool:
    return isinstance(prior, ShrinkagePrior) or (isinstance(prior, Prior) and prior.standardised)


def _at(centred: bool) -> str:
    return " at the columns' means" if centred else ""


def _stated_parts(stated: StatedPriors, centred: bool, on: str) -> list[str]:
    parts = []
    for name, prior in stated.by_name.items():
        if isinstance(prior, ShrinkagePrior):
            parts.append(f"{name} ~ {prior} together, on {on}")
            continue
        each = f" each of {stated.count(name)}" if stated.count(name) > 1 else ""
        where = _at(centred) if name.split(":")[-1] == INTERCEPT else ""
        rounded = ""
        if isinstance(prior, Prior) and prior.law == "laplace":
            rounded = f" (its corner rounded within {prior.shape[0]:g} of its scale)"
        parts.append(f"{name} ~ {prior}{each}{where}{rounded}")
    return parts


def _group_parts(groups: tuple[GroupDesign, ...], scales: Any, stated: StatedPriors) -> list[str]:
    """Of scales and correlations that are not stated."""
    parts = []
    for group in groups:
        by = ":".join(group.term.by)
        left = [each for each in group.names if stated.one(f"sd({each}|{by})") is None]
        if stated.one(f"sd({by})") is None and left:
            which = "scales" if len(left) == len(group.names) else "other scales"
            parts.append(f"{which} of effects by {by} half-normal({group_scale_of(by, scales):g})")
    if any(
        group.term.correlated and len(group.names) > 1 and f"cor({':'.join(group.term.by)})" not in stated.by_name
        for group in groups
    ):
        parts.append("their correlations LKJ(2)")
    return parts


def group_scale_of(by: str, scales: Any) -> float:
    """One number for all factors, or one by the text of a factor."""
    return float(scales.get(by, 1.0)) if isinstance(scales, Mapping) else float(scales)
