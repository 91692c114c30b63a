"""Units: coefficients of standardised columns, reported as coefficients of the owner's own columns.

    b_j = s_y theta_j / s_j,     b_0 = m_y + s_y (theta_0 - sum_j m_j theta_j / s_j),     noise = s_y noise_scale
    cut points  c_k + sum_j m_j theta_j / s_j
    log sigma   g_j = theta_j / s_j,     g_0 = log s_y + theta_0 - sum_j m_j theta_j / s_j,  of the columns of its own

m and s are the means and scales of columns and response (0 and 1 where they were left as they are). They are handed
to the report as arrays, so that one compiled program serves all tables of a shape. The equation is here for every
door, in JAX or NumPy; `in_own_units` names the columns of a formula.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.formula.coding import INTERCEPT
from tallbayes.formula.encoding import Encoding
from tallbayes.model.catalogue import Extra
from tallbayes.model.model import Model
from tallbayes.programs.functions import functions_of
from tallbayes.programs.later import jnp
from tallbayes.structure import Structure

# Whether there is an intercept, what is beside it, and how many columns are those of the last of that.
Made = tuple[bool, tuple[Extra, ...], int]
UNITS = ("means", "scales", "response_mean", "response_scale")


def own_slopes(coefficients: Any, units: Any) -> Any:
    """b_j, along the last axis."""
    return units["response_scale"] * coefficients / units["scales"]


def own_intercept(intercept: Any, slopes: Any, units: Any) -> Any:
    """b_0, given b_j."""
    return units["response_scale"] * intercept + units["response_mean"] - slopes @ units["means"]


def own_extra(value: Any, extra: Extra, units: Any) -> Any:
    """A parameter beside the coefficients."""
    return value * (units["response_scale"] if extra.has_units else 1.0)


def own_cuts(cuts: Any, slopes: Any, units: Any) -> Any:
    """Cut points c_k, given b_j, along the last axis."""
    return cuts + (slopes @ units["means"])[..., None]


def own_logarithm(value: Any, extra: Extra, slopes: Any, means: Any, units: Any) -> Any:
    """g_0 of a parameter that has columns of its own, given g_j."""
    f = functions_of(slopes)
    shift = f.log(units["response_scale"]) if extra.has_units else 0.0
    return value + shift - slopes @ means


def in_own_units(
    model: Model, encoding: Encoding, extras: tuple[Extra, ...] = (), by_class: bool = False, ordered: bool = False
) -> Model:
    """The model with its parameters reported by the names of the columns, in the table's units.

    `extras` are the parameters beside the coefficients. With `by_class` there is such a report for every class but the
    first, under the class's name; what is `ordered` has cut points in place of an intercept.
    """
    intercept = encoding.coding.intercept and not ordered
    cuts = cut_names(encoding.classes or ()) if ordered else ()
    beside = tuple(extra.reported for extra in extras if extra.size)
    names = (INTERCEPT,) * intercept + encoding.coding.names + cuts + beside
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(explain("columns of other names", f"one called {twice!r}", "rename it"))
    units = {each: np.asarray(getattr(encoding, each), np.float64) for each in UNITS}
    classes = tuple(str(each) for each in encoding.classes[1:]) if by_class and encoding.classes else ()
    made = intercept, extras, encoding.coding.beside
    report = partial(_report, names, made, classes)
    flat = partial(_flat_report, made)
    structure = _structure(names, classes)
    told: dict[str, Any] = {"report": report, "flat_report": flat, "units": units, "structure": structure}
    is_affine = all(extra.space == "real" for extra in extras)
    return replace(model, **told, affine_report=is_affine, columns=encoding.coding.names)


def cut_names(classes: tuple[Any, ...]) -> tuple[str, ...]:
    """Of cut points, by the classes that they part.

    >>> cut_names(("low", "middle", "high"))
    ('low|middle', 'middle|high')
    """
    return tuple(f"{below}|{above}" for below, above in pairwise(classes))


def _report(names: tuple[str, ...], made: Made, classes: tuple[str, ...], theta: Any, units: Any) -> Any:
    # Traced anew for every program of a run: a fifth of the time of as many indexings.
    columns = list(jnp.unstack(_own(*made, theta, units), axis=-1))
    if not classes:
        return dict(zip(names, columns, strict=True))
    return {
        each: {name: column[place] for name, column in zip(names, columns, strict=True)}
        for place, each in enumerate(classes)
    }


def _flat_report(made: Made, theta: Any, units: Any) -> Any:
    own = _own(*made, theta, units)
    return functions_of(own).ravel(own)


def _own(intercept: bool, extras: tuple[Extra, ...], beside: int, theta: Any, units: Any) -> Any:
    """Intercept, slopes and extras along the last axis, class by class; so many of the last slopes are `beside` the
    mean's, and those of the last extra."""
    parts = theta if isinstance(theta, dict) else {"coefficients": theta}
    if intercept and "intercept" not in parts:
        # An intercept by itself is the coefficient of a column of ones.
        ones = parts["coefficients"]
        parts = parts | {"intercept": ones[..., 0], "coefficients": ones[..., :0]}
    slopes = own_slopes(parts["coefficients"], units)
    columns, means = [slopes], units
    if beside:
        moving, count = parts["coefficients"][-beside:] / units["scales"][-beside:], len(units["means"]) - beside
        columns, slopes, means = [slopes[:count], moving], slopes[:count], {**units, "means": units["means"][:count]}
    if intercept:
        columns.insert(0, own_intercept(parts["intercept"], slopes, means)[..., None])
    for extra in extras:
        own = parts[extra.name]
        if extra.space == "real":
            columns.append(own_logarithm(own, extra, moving, units["means"][-beside:], units)[..., None])
            continue
        columns.append(own_extra(own, extra, units)[..., None] if extra.size else own_cuts(own, slopes, units))
    return functions_of(columns[-1]).concatenate(columns, axis=-1)


def _structure(names: tuple[str, ...], classes: tuple[str, ...]) -> Structure:
    one = Structure.container("dict", [(name, Structure.leaf(())) for name in names])
    return Structure.container("dict", [(each, one) for each in classes]) if classes else one
