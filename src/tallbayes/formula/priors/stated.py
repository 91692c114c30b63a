"""Priors as a formula's owner states them: by the names that the result reports, in the units of the table.

    hour, carrier[T.UA]         of one coefficient
    carrier, hour:carrier       of every coefficient of a term
    coefficients                of all that no other name is nearer to
    Intercept                   of the intercept at the means of the columns of numbers, where these are centred
    noise_scale, overdispersion of the parameter beside the coefficients; sigma is the first
    sigma:z, sigma:Intercept    of a formula of its own, on the scale of its log
    sd(x|g), sd(g), cor(g)      of a scale of the effects of a factor, of all of its scales, and of their correlations

With b_j = s_y theta_j / s_j and so on (see `units`), a prior of b is one of theta with another centre and scale. What
is `standardised` is one of theta as it is, and so is a shrinkage prior, which is of all coefficients together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, isfinite, log
from typing import Any

import numpy as np

from tallbayes.errors import InputError, explain, suggestion
from tallbayes.formula.coding import INTERCEPT, Coding
from tallbayes.formula.design_steps import Design
from tallbayes.formula.groups.design import GroupDesign
from tallbayes.model.catalogue import NOISE, SIGMA, Extra
from tallbayes.model.groups.terms import SHAPE, EffectTerm
from tallbayes.model.priors.assigned import require_kind
from tallbayes.model.priors.named import Lkj, as_prior, half_normal, normal
from tallbayes.model.priors.prior import Prior
from tallbayes.model.priors.shrinkage import ShrinkagePrior

ALL = "coefficients"
Stated = Prior | Lkj | ShrinkagePrior
LEVEL = re.compile(r"\[[^\[\]]*\]")
MOST_NAMES = 20


@dataclass(frozen=True)
class StatedPriors:
    """What was stated, by name; `columns` are the names of coefficients and `places` where those of a name stand."""

    by_name: Mapping[str, Stated]
    columns: tuple[str, ...] = ()
    places: Mapping[str, tuple[int, ...]] | None = None

    def __bool__(self) -> bool:
        return bool(self.by_name)

    @property
    def by_column(self) -> dict[int, Prior]:
        """The prior of every coefficient that has one: that of the nearest name."""
        found: dict[int, Prior] = {}
        if self.shrinkage is not None:
            return {}
        places = self.places or {}
        # The fewer a name stands for, the nearer it is.
        for name in sorted(places.keys() & self.by_name.keys(), key=lambda each: -len(places[each])):
            if name == ALL and ALL not in self.columns:
                found = {place: _one(self.by_name[name]) for place in places[name]} | found
            else:
                found |= {place: _one(self.by_name[name]) for place in places[name]}
        return found

    @property
    def shrinkage(self) -> ShrinkagePrior | None:
        """That of all coefficients together."""
        found = self.by_name.get(ALL)
        return found if isinstance(found, ShrinkagePrior) else None

    def count(self, name: str) -> int:
        """How many coefficients a name stands for."""
        return len((self.places or {}).get(name, ()))

    def one(self, name: str) -> Prior | None:
        """That of a single number."""
        found = self.by_name.get(name)
        return None if found is None else _one(found)

    @property
    def words(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, str(each)) for name, each in self.by_name.items())


def read_priors(given: Any, design: Design, extras: tuple[Extra, ...]) -> StatedPriors:
    """Priors by name, held against what can be named; `extras` are the unknown parameters beside the coefficients."""
    if not given:
        return StatedPriors({})
    if not isinstance(given, Mapping):
        hint = 'priors={"hour": tb.priors.normal(0.1, 0.5)}'
        raise InputError(explain("priors by name, in a dict", repr(given), hint))
    places = _places(design.encoding.coding)
    scales, correlations = _of_groups(design)
    positive = [*scales, *(extra.name for extra in extras if extra.space in ("positive", "excess"))]
    beside = [extra.reported for extra in extras if extra.space == "real"]
    known = [*places, *([INTERCEPT] if design.intercept else []), *positive, *beside, *correlations]
    found: dict[str, Stated] = {}
    for name, each in given.items():
        own = NOISE.name if name == SIGMA and NOISE.name in positive and SIGMA not in places else name
        if own not in known:
            few = ", ".join(_in_order(places, known)[:MOST_NAMES]) + (", ..." if len(known) > MOST_NAMES else "")
            hint = suggestion(str(name), known, f"priors can be stated of {few}")
            raise InputError(explain("priors of what the formula reports", repr(name), hint))
        prior = as_prior(each, own)
        if own in correlations:
            if not isinstance(prior, Lkj):
                raise InputError(explain(f"a prior of correlations for {own!r}", str(prior), "lkj(2)"))
            found[own] = prior
        elif isinstance(prior, ShrinkagePrior) and own in places:
            _require_together(prior, own, given, places, design)
            found[own] = prior
        else:
            found[own] = require_kind(prior, own, own in positive)
    return StatedPriors(found, design.names, places)


def _in_order(places: Mapping[str, Any], known: list[str]) -> list[str]:
    """Terms and what is not of a column first: levels may be thousands."""
    return sorted(known, key=lambda name: name in places and len(places[name]) == 1 and "[" in name)


def _places(coding: Coding) -> dict[str, tuple[int, ...]]:
    """Where the coefficients of every name stand: of columns, of terms, and of all."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(coding.names):
        found.setdefault(LEVEL.sub("", name), []).append(place)
    for term in coding.indexed:
        for name in (term.factor, term.column):
            found[name] = list(range(term.first, term.first + term.count))
    every = {ALL: list(range(len(coding.names)))} if coding.names else {}
    single = {name: [place] for place, name in enumerate(coding.names)}
    shared = {place for smooth in coding.smooths for place in smooth.places}
    whole = {smooth.factor for smooth in coding.smooths}
    named = {name: each for name, each in {**every, **found, **single}.items() if name not in whole}
    own = {name: tuple(place for place in each if place not in shared) for name, each in named.items()}
    return {name: each for name, each in own.items() if each}


def _of_groups(design: Design) -> tuple[list[str], list[str]]:
    """Names of scales, and of correlations."""
    scales, correlations = [], []
    for group in design.groups:
        by = ":".join(group.term.by)
        scales += [f"sd({by})", *(f"sd({effect}|{by})" for effect in group.names)]
        correlations += [f"cor({by})"] if group.term.correlated and len(group.names) > 1 else []
    return scales, correlations


def _require_together(
    prior: ShrinkagePrior, name: str, given: Mapping[str, Any], places: Mapping[str, Any], design: Design
) -> None:
    """A shrinkage prior is one of all coefficients, and of nothing else."""
    if name != ALL or ALL in design.names:
        hint = f'"{ALL}", which is all of them (of a column of that name none is to be had)'
        raise InputError(explain(f"{prior} for all coefficients together", f"one for {name!r}", hint))
    beside = [each for each in given if each in places and each != ALL]
    if beside:
        hint = f"leave it out, or give every coefficient a prior of its own in place of {prior}"
        raise InputError(explain(f"no priors of single coefficients beside {prior}", f"one of {beside[0]!r}", hint))
    if design.groups:
        got = f"effects by {':'.join(design.groups[0].term.by)}"
        hint = "C(...) in place of the bar, as columns that are shrunk too, or normal priors of the coefficients"
        raise InputError(explain(f"a formula without groups under {prior}", got, hint))
    if design.encoding.coding.smooths:
        got, hint = repr(design.encoding.coding.smooths[0].factor), "poly(x, 3) or bs(x, df=6) in its place"
        raise InputError(explain(f"a formula without smooths under {prior}", got, hint))


def _one(prior: Stated) -> Prior:
    assert isinstance(prior, Prior)
    return prior


def family_priors(
    stated: StatedPriors, design: Design, scales: Any, intercept_scale: float, extras: tuple[Extra, ...]
) -> dict[str, Any]:
    """What the family is told: priors of theta by its own names. Coefficients that are not named are normal."""
    encoding = design.encoding
    found: dict[str, Any] = {} if stated.shrinkage is None else {"coefficients": stated.shrinkage}
    unit = encoding.response_scale
    by_column = stated.by_column
    # Those of smooths have a prior of their own, given the scale that they share.
    shared = {place for smooth in encoding.coding.smooths for place in smooth.places}
    if by_column or shared:
        widths = np.broadcast_to(np.asarray(scales, np.float64), len(design.names))
        moving = len(design.names) - encoding.coding.beside
        widths = np.where([j in shared for j in range(len(widths))], np.inf, widths)
        found["coefficients"] = [
            by_column[j].within(0.0, (unit if j < moving else 1.0) / encoding.scales[j])
            if j in by_column
            else _normal(widths[j])
            for j in range(len(design.names))
        ]
    intercept = stated.one(INTERCEPT)
    if intercept is not None:
        own = intercept.within(encoding.response_mean, unit)
        # An intercept by itself is the coefficient of a column of ones.
        found |= {"intercept": own} if design.names else {"coefficients": own}
    for extra in extras:
        beside = stated.one(extra.reported)
        if beside is not None:
            own_units = unit if extra.has_units else 1.0
            is_log = extra.space == "real"
            found[extra.name] = beside.within(log(own_units), 1.0) if is_log else beside.within(0.0, own_units)
    return found


def _normal(scale: float) -> Prior:
    return normal(0.0, scale) if isfinite(scale) else Prior("flat", text="flat()")


def effect_term(stated: StatedPriors, group: GroupDesign, scale: float, levels: int, response: float) -> EffectTerm:
    """A factor's term, with the priors of its scales and correlations; `scale` is that of the half-normal ones, and
    `response` the unit of the response."""
    by = ":".join(group.term.by)
    own = [stated.one(f"sd({effect}|{by})") or stated.one(f"sd({by})") for effect in group.names]
    shape = stated.by_name.get(f"cor({by})")
    laws: tuple[Prior, ...] = ()
    if any(own):
        units = response / group.scale
        laws = tuple(
            half_normal(scale) if each is None else each.within(0.0, float(unit))
            for each, unit in zip(own, units, strict=True)
        )
        spreads = [each.spread for each in laws if isfinite(each.spread)]
        # Where scales stand in R^d: a matter of speed alone.
        scale = exp(sum(map(log, spreads)) / len(spreads)) if spreads else 1.0
    lkj = shape.shape if isinstance(shape, Lkj) else SHAPE
    return EffectTerm(by, len(group.names), group.term.correlated, scale, levels, laws=laws, shape=lkj)
