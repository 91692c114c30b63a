"""Where a formula with groups ends: in a mixed model whose largest factor is integrated out.

Of several group terms the one with the most groups is integrated; the effects of the others, crossed or nested, are
parameters. Parameters are reported in the units of the table, with A from `GroupDesign.to_own` and s the response's,

    sd(x|g) = s sqrt((A D A^T)_jj),     cor(x,w|g) = (A D A^T)_jk / sqrt((A D A^T)_jj (A D A^T)_kk),     D = L L^T
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.estimation.estimate import estimate
from tallbayes.formula.design_steps import Design
from tallbayes.formula.groups.design import GroupDesign
from tallbayes.formula.groups.factors import Factors, crossed_factor, spread_of, with_factors
from tallbayes.formula.priors.stated import StatedPriors, effect_term
from tallbayes.formula.priors.words import group_scale_of
from tallbayes.model.groups.integral import WEIGHT
from tallbayes.model.groups.mixed import with_effects, with_information
from tallbayes.model.groups.terms import EffectTerm, root_of, scales_and_correlations
from tallbayes.model.model import Model
from tallbayes.programs.later import jnp
from tallbayes.results.result import Result
from tallbayes.rows.on_disk import Stored
from tallbayes.structure import Structure

# Numbers that are parameters beside the factor that is integrated.
MOST_PARAMETERS = 4_000


@dataclass(frozen=True, eq=False)
class GroupQuestion:
    """What is asked of a mixed model.

    `model` is the family's for the fixed effects alone, reporting in the table's units; `design` holds its rows and the
    `groups`; `quantities`, and `options` with tolerances and weights, are those of `tb.estimate`. `scales` are those of
    the half-normal priors of the effects' scales: one number, or one by the text of a term's groups; `stated` has
    priors by name.
    """

    design: Design
    model: Model
    quantities: Any
    options: Mapping[str, Any]
    scales: Any = 1.0
    stated: StatedPriors = StatedPriors({})
    order: tuple[int, ...] | None = None


def fit_groups(question: GroupQuestion) -> Result:
    """The result of a mixed model."""
    model, rows = mixed_model(question.design, question.model, question.scales, question.stated)
    result = estimate(model, rows, question.quantities, **question.options)
    return with_factors(factors_beside(question, rows["y"]), result)


def mixed_model(
    design: Design,
    fixed: Model,
    scales: Any = 1.0,
    stated: StatedPriors | None = None,
    order: tuple[int, ...] | None = None,
) -> tuple[Model, dict[str, Any]]:
    """A design's model with its effects by group, and the rows that it reads."""
    groups = _in_order(design, order)
    _require_few(groups[1:])
    known, unit = stated or StatedPriors({}), design.encoding.response_scale
    terms = tuple(_term(each, scales, place > 0, known, unit) for place, each in enumerate(groups))
    rows = _rows(design.rows, groups, terms)
    weights = rows[design.weights] if isinstance(design.weights, str) else design.weights
    weighted = rows if weights is None else {**rows, WEIGHT: weights}
    others = (with_information(fixed, each, place, weighted) for place, each in enumerate(terms[1:], 1))
    terms = (terms[0], *others)
    scale = design.encoding.response_scale
    model = with_effects(fixed, *terms, names=groups[0].names)
    model = _in_own_units(model, fixed, groups, terms, scale)
    shown = partial(_shown, terms[0], scale * groups[0].to_own)
    assert model.groups is not None
    levels = tuple(groups[0].levels.names)
    model = replace(model, groups=replace(model.groups, shown=shown, levels=levels))
    return model, rows


def factors_beside(question: GroupQuestion, response: Any) -> Factors:
    """Those beside the first, whose effects stand after all other parameters."""
    design = question.design
    groups = _in_order(design, question.order)
    unit = design.encoding.response_scale
    terms = [_term(each, question.scales, place > 0, question.stated, unit) for place, each in enumerate(groups)]
    assert question.model.structure is not None
    place, crossed = len(question.model.structure.keys), []
    place += sum(len(_scale_names(*each)) for each in zip(groups, terms, strict=True))
    for group in groups[1:]:
        crossed.append(crossed_factor(by_name(group), group, response, place))
        place += crossed[-1].factor.count
    encoding = design.encoding
    return Factors(tuple(crossed), spread_of(groups[0]), encoding.response_mean, encoding.response_scale)


def by_size(groups: tuple[Any, ...]) -> tuple[int, ...]:
    """Terms in the order of a model: the factor that is integrated first."""
    return tuple(sorted(range(len(groups)), key=lambda place: -len(groups[place].levels)))


def _in_order(design: Design, order: tuple[int, ...] | None) -> list[GroupDesign]:
    return [design.groups[place] for place in order or by_size(design.groups)]


def by_name(group: GroupDesign) -> str:
    """A factor as a formula writes it."""
    return ":".join(group.term.by)


def _term(group: GroupDesign, scales: Any, explicit: bool, stated: StatedPriors, response: float) -> EffectTerm:
    levels = len(group.levels) if explicit else 0
    return effect_term(stated, group, group_scale_of(by_name(group), scales), levels, response)


def _require_few(others: list[GroupDesign]) -> None:
    total = sum(len(each.levels) * len(each.names) for each in others)
    if total > MOST_PARAMETERS:
        names = ", ".join(f"{by_name(each)} ({len(each.levels):,})" for each in others)
        hint = "leave out the factors that matter least, or give each of them by itself to a fit of its own"
        expected = f"at most {MOST_PARAMETERS:,} effects beside those of the factor with the most groups"
        raise InputError(explain(expected, f"{total:,}: {names}", hint))


def _rows(rows: Any, groups: list[GroupDesign], terms: tuple[EffectTerm, ...]) -> dict[str, Any]:
    """Those of the family, and of every term its columns and levels; of the first, the levels are the groups."""
    own = dict(rows.rows()) if isinstance(rows, Stored) else dict(rows)
    own = {name: each for name, each in own.items() if not name.startswith(("group_", "effects_"))}
    for place, group in enumerate(groups):
        own[f"z{place}"] = group.z
        own[f"level{place}" if place else terms[0].by] = group.codes
    return own


def _shown(term: EffectTerm, to_own: np.ndarray, theta: Any, b: Any) -> Any:
    return jnp.asarray(to_own, b.dtype) @ (root_of(term, theta, 0) @ b)


def _in_own_units(
    model: Model, fixed: Model, groups: list[GroupDesign], terms: tuple[EffectTerm, ...], scale: float
) -> Model:
    names = [_scale_names(*each) for each in zip(groups, terms, strict=True)] + [
        _effect_names(each) for each in groups[1:]
    ]
    flat = tuple(name for each in names for name in each)
    assert fixed.structure is not None
    base = tuple(str(key) for key in fixed.structure.keys)
    structure = Structure.container("dict", [(name, Structure.leaf(())) for name in (*base, *flat)])
    units = {**fixed.units, "effects": [scale * group.to_own for group in groups]}
    report = partial(_flat_report, fixed.flat_report, terms)
    return replace(
        model,
        report=partial(_report, (*base, *flat), report),
        flat_report=report,
        units=units,
        structure=structure,
        affine_report=False,
    )


def _scale_names(group: GroupDesign, term: EffectTerm) -> list[str]:
    """Of scales and correlations."""
    by, effects = by_name(group), group.names
    names = [f"sd({effect}|{by})" for effect in effects]
    if term.correlations:
        names += [f"cor({effects[k]},{effects[j]}|{by})" for j in range(term.size) for k in range(j)]
    return names


def _effect_names(group: GroupDesign) -> list[str]:
    """Of effects that are parameters, in the order of the levels."""
    return [f"{effect}|{by_name(group)}[{level}]" for level in group.levels.names for effect in group.names]


def _report(names: tuple[str, ...], flat: Any, theta: Any, units: Any) -> dict[str, Any]:
    return dict(zip(names, jnp.unstack(flat(theta, units)), strict=True))


def _flat_report(fixed: Any, terms: tuple[EffectTerm, ...], theta: Any, units: Any) -> Any:
    own = {name: each for name, each in theta.items() if not name.startswith(("scales", "correlations", "effects"))}
    parts, effects = [fixed(own if len(own) > 1 else own["coefficients"], units)], []
    for place, term in enumerate(terms):
        to_own = units["effects"][place]
        parts += scales_and_correlations(term, theta, place, to_own)
        if place:
            effects.append(jnp.ravel(theta[f"effects{place}"] @ to_own.T))
    # Last, so that whoever shows parameters can leave off what may be thousands.
    return jnp.concatenate([*parts, *effects])
