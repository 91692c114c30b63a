"""Where a formula with smooths ends: in the family's model with a scale for each of them.

Parameters are reported in the units of the table; sd(s(x)) is in those of the linear predictor, and of the response
where that is standardised:

    sd(s(x)) = s_y s
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.formula.design_steps import Design
from tallbayes.model.groups.mixed import IN_UNITS_OF_NOISE, extra_of, row_information
from tallbayes.model.model import Model
from tallbayes.model.smooths import SmoothTerm, require_one_predictor, scale_name, with_smooths
from tallbayes.programs.functions import functions_of
from tallbayes.programs.later import jnp
from tallbayes.rows.on_disk import Stored
from tallbayes.structure import Structure

SAMPLE_ROWS = 4_096
LEAST = 1e-6


def scale_label(smooth: str) -> str:
    """What the scale of a smooth is called in a report."""
    return f"sd({smooth})"


def smooth_scale(smooth: str, scales: Any) -> float:
    """That of the half-normal prior of a smooth's scale: one number, or one by its text."""
    return float(scales.get(smooth, 1.0) if isinstance(scales, Mapping) else scales)


def require_own_scale(given: Any, design: Design) -> None:
    """Refuse a prior scale of a coefficient that shares a learnt one."""
    for smooth in design.encoding.coding.smooths:
        for place in smooth.places:
            name = design.names[place]
            if isinstance(given, Mapping) and name in given:
                hint = f"group_scale={{{smooth.factor!r}: {given[name]}}}, for the scale that they share"
                raise InputError(explain("prior_scale of coefficients of their own", repr(name), hint))


def smoothed(model: Model, design: Design, scales: Any = 1.0) -> Model:
    """The family's model, which reports in the table's units, with the smooths of a design; itself where it has none.

    `scales` are those of the half-normal priors of the smooths' scales.
    """
    coding = design.encoding.coding
    if not coding.smooths:
        return model
    require_one_predictor(model)
    fixed = replace(model, parts=_by_coefficient(model, len(coding.names)))
    terms = tuple(
        SmoothTerm(smooth.factor, smooth.first, smooth_scale(smooth.factor, scales), *told)
        for smooth, told in zip(coding.smooths, _told(fixed, design), strict=True)
    )
    return _in_own_units(with_smooths(fixed, terms), model, terms, design.encoding.response_scale)


def _by_coefficient(model: Model, width: int) -> Any:
    assert model.parts is not None
    scale = np.asarray(model.parts.scales["coefficients"], np.float64)
    return model.parts._replace(scales={**model.parts.scales, "coefficients": np.broadcast_to(scale, (width,))})


def _told(model: Model, design: Design) -> list[tuple[tuple[float, ...], str | None]]:
    """What the rows say of every coefficient of each smooth, to the nearest power of the root of two, and in which
    units: rows that are much alike make the same program."""
    assert model.parts is not None
    coding, extra = design.encoding.coding, extra_of(model)
    rows = design.rows.rows() if isinstance(design.rows, Stored) else design.rows
    count = len(rows["y"])
    some = np.unique(np.linspace(0, count - 1, min(count, SAMPLE_ROWS)).astype(int))
    x = np.asarray(rows["x"][some], np.float64)
    weights = rows[design.weights] if isinstance(design.weights, str) else design.weights
    each = np.ones(len(some)) if weights is None else np.asarray(weights, np.float64)[some]
    total = row_information(model.parts.density, model.parts.extras, rows) * count * (each @ x**2) / len(some)
    total = 2.0 ** (np.rint(2 * np.log2(np.maximum(total, LEAST))) / 2)
    noise = extra if model.family in IN_UNITS_OF_NOISE else None
    places = {place: column for column, place in enumerate(coding.dense)}
    return [(tuple(float(total[places[k]]) for k in smooth.places), noise) for smooth in coding.smooths]


def _in_own_units(model: Model, fixed: Model, terms: tuple[SmoothTerm, ...], scale: float) -> Model:
    assert fixed.structure is not None
    names = (*map(str, fixed.structure.keys), *(scale_label(term.name) for term in terms))
    structure = Structure.container("dict", [(name, Structure.leaf(())) for name in names])
    flat = partial(_flat_report, fixed.flat_report, len(terms))
    units = {**fixed.units, "smooth_scale": np.asarray(scale, np.float64)}
    report = partial(_report, names, flat)
    return replace(model, report=report, flat_report=flat, units=units, structure=structure, affine_report=False)


def _report(names: tuple[str, ...], flat: Any, theta: Any, units: Any) -> dict[str, Any]:
    return dict(zip(names, jnp.unstack(flat(theta, units)), strict=True))


def _flat_report(fixed: Any, count: int, theta: Any, units: Any) -> Any:
    scales = [units["smooth_scale"] * theta[scale_name(place)] for place in range(count)]
    return functions_of(theta["coefficients"]).concatenate([fixed(theta, units), *scales])


def smooths_in_words(design: Design, scales: Any) -> list[str]:
    """Their priors."""
    return [
        f"scale of {smooth.factor} half-normal({smooth_scale(smooth.factor, scales):g})"
        for smooth in design.encoding.coding.smooths
    ]
