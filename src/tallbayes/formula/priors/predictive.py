"""Prior predictive: parameters and responses as the priors of a formula have them, before any fit.

The arguments are those of `tb.fit`. Responses are drawn at rows of the table, a subsample of them unless all are asked
for, a block of draws at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.formula.design import build_design
from tallbayes.formula.design_steps import Design
from tallbayes.formula.fit import (
    coefficient_scales,
    find_family,
    formula_parameter,
    make_model,
    one_table,
    require_options,
    unknown_extras,
)
from tallbayes.formula.groups.fit import mixed_model
from tallbayes.formula.priors.stated import read_priors
from tallbayes.formula.priors.words import design_notes, prior_note, usual_laws
from tallbayes.formula.second import formula_text
from tallbayes.formula.standardising import read_rule
from tallbayes.model.catalogue import BESIDE, CATALOGUE
from tallbayes.model.groups.mixed import powers_of
from tallbayes.model.groups.terms import EffectTerm, root_of
from tallbayes.model.linear import Layout
from tallbayes.model.model import Model
from tallbayes.model.parts.extras import ExtraPart, OfExcess, coordinates
from tallbayes.model.priors.assigned import draws_of, gaussian_leaves, runs_of
from tallbayes.model.priors.named import half_normal
from tallbayes.moments import Floats
from tallbayes.programs.later import jax, jnp
from tallbayes.results.checks.batches import RowBatch
from tallbayes.results.checks.before import PriorPredictive, checks_of
from tallbayes.results.checks.responses import ResponseDrawer
from tallbayes.results.parts import Regression
from tallbayes.rows.on_disk import Stored
from tallbayes.shrinkage.laws import facts_of, law_of

MOST_NUMBERS = 2**21


class Unfitted(NamedTuple):
    """What a drawer of responses reads of a result."""

    regression: Regression
    encoding: Mapping[str, Any]


def prior_predictive(
    formula: str | Sequence[str],
    data: Any = None,
    family: str | Callable[..., Model] = "logistic",
    *,
    table: Any = None,
    draws: int = 1000,
    rows: int | None = 1000,
    seed: int = 0,
    prior_scale: Any = 1.0,
    intercept_scale: float = 10.0,
    group_scale: float | Mapping[str, float] = 1.0,
    priors: Mapping[str, Any] | None = None,
    standardise: bool | str = True,
    missing: str = "error",
    weights: Any = None,
    offset: Any = None,
    family_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> PriorPredictive:
    """What the prior believes before a fit, with the arguments of `tb.fit`: parameters drawn from it, and responses.

    Responses are drawn at `rows` rows of the table, chosen by the `seed` (all with None), and summed up beside the
    response that is there: the share of positives, quantiles, zeros. Improper priors are refused. What else `tb.fit`
    takes may be given too, and is not used.

    >>> import numpy as np, tallbayes as tb
    >>> rows = {"late": np.arange(200) % 3 == 0, "hour": np.arange(200) % 24}
    >>> wide = tb.prior_predictive("late ~ hour", rows, intercept_scale=10.0)
    >>> tight = tb.prior_predictive("late ~ hour", rows, priors={"Intercept": tb.priors.normal(-1, 0.5)})
    >>> bool(tight.checks[0].sd < wide.checks[0].sd)
    True
    """
    known, make = find_family(family)
    rule, chosen = read_rule(standardise), dict(family_options or {})
    require_options(chosen, options, make)
    _require_count("draws", draws)
    design = build_design(
        formula_text(formula),
        one_table(data, table),
        standardise=standardise,
        missing=missing,
        weights=weights,
        offset=offset,
        response=known.response,
        standardise_response=rule != "nothing" and known.response == "real",
        parameter=formula_parameter(known),
    )
    if design.encoding.coding.smooths:
        hint = "poly(x, 3) or bs(x, df=6) in its place; the prior of a smooth's curve is not drawn yet"
        raise InputError(explain("a formula without smooths", repr(design.encoding.coding.smooths[0].factor), hint))
    scales = coefficient_scales(prior_scale, design.names)
    stated = read_priors(priors, design, unknown_extras(known, chosen, design))
    fixed = make_model(known, make, design, scales, intercept_scale, chosen, stated)
    arrays, model = dict(design.rows.rows()) if isinstance(design.rows, Stored) else dict(design.rows), fixed
    if design.groups:
        model, arrays = mixed_model(design, fixed, group_scale, stated)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0]))
    theta = _draws(model, fixed.layout, arrays, rng, draws)
    if model.shrinkage is not None:
        theta |= _shrunk_draws(model, fixed.layout, arrays, design.weights, theta, rng, draws)
    numbers = _chosen_rows(len(arrays["y"]), rows, seed)
    some = {name: np.asarray(each)[numbers] for name, each in arrays.items()}
    drawn = _Responses(model, fixed.layout, _unfitted(model, fixed.layout, design), theta, some, seed)
    shift, scale = design.encoding.response_mean, design.encoding.response_scale
    classes = tuple(str(each) for each in design.encoding.classes or ())
    checks = checks_of(known.response, classes, shift + scale * np.asarray(some["y"], np.float64), drawn.blocks())
    said = prior_note(design, scales, intercept_scale, group_scale, rule, stated, usual_laws(model, design))
    names, values = _reported(model, theta)
    notes = (said, *design_notes(design, stated))
    return PriorPredictive(names, values, checks, numbers, len(arrays["y"]), notes, drawn.blocks)


def _require_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(explain(f"{name} a whole number of 1 or more", repr(value), f"{name}=1000"))


def _chosen_rows(count: int, wanted: int | None, seed: int) -> np.ndarray:
    if wanted is None or wanted == count:
        return np.arange(count)
    _require_count("rows", wanted)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
    return np.arange(count) if wanted > count else np.sort(rng.choice(count, wanted, replace=False))


def _unfitted(model: Model, layout: Layout, design: Design) -> Unfitted:
    encoding, noise = design.encoding, model.noise
    scale, freedom = (None, None) if noise is None else noise[1:]
    parts = layout.heads, layout.intercept, layout.extras
    regression = Regression(
        model.family or "", *parts, noise_scale=scale, degrees_of_freedom=freedom, beside=layout.beside
    )
    units = {"response_mean": encoding.response_mean, "response_scale": encoding.response_scale}
    return Unfitted(regression, units)


def _draws(model: Model, layout: Layout, rows: Any, rng: np.random.Generator, count: int) -> dict[str, Floats]:
    """theta, leaf by leaf: what the family has, then scales, correlations, and effects that are parameters."""
    parts = model.parts
    assert parts is not None
    width, heads = layout.width(rows), () if not CATALOGUE[model.family or ""].by_class else (layout.heads,)
    shapes: dict[str, tuple[int, ...]] = {"coefficients": (*heads, width), "intercept": heads}
    leaves = gaussian_leaves(parts.own) if parts.priors is None else parts.priors.leaves
    if model.shrinkage is not None:
        leaves = {name: each for name, each in leaves.items() if name != "coefficients"}
    theta = draws_of(leaves, shapes, rng, count) | {each.name: each.draws(rng, count) for each in parts.extras}
    for place, term in enumerate(parts.terms):
        laws = runs_of(term.laws or (half_normal(term.scale),) * term.size)
        theta |= draws_of({f"scales{place}": laws}, {f"scales{place}": (term.size,)}, rng, count)
        if term.correlations:
            powers = powers_of(term) + 1
            theta[f"correlations{place}"] = 2 * rng.beta(powers, powers, (count, len(powers))) - 1
        if place:
            free = rng.standard_normal((count, term.levels, term.size))
            theta[f"effects{place}"] = np.einsum("dij,dgj->dgi", _roots(term, theta, place), free)
    return theta


def _shrunk_draws(
    model: Model,
    layout: Layout,
    rows: Any,
    weights: Any,
    theta: Mapping[str, Floats],
    rng: np.random.Generator,
    count: int,
) -> dict[str, Floats]:
    """Coefficients under a shrinkage prior, given the noise of every draw."""
    assert model.shrinkage is not None
    extra = CATALOGUE[model.family or ""].extra
    known = 1.0 if model.noise is None else model.noise.scale or 1.0
    extras = np.full(count, known) if extra is None or extra.name not in theta else theta[extra.name]
    y = np.asarray(rows["y"], np.float64)
    weights = rows[weights] if isinstance(weights, str) else weights
    weights = None if weights is None else np.asarray(weights, np.float64)
    facts, width = facts_of(model.family or "", y, weights, 1.0), layout.width(rows)
    laws = [law_of(model.shrinkage, width, facts._replace(extra=float(each))) for each in extras]
    log_variance = np.concatenate([law.drawn(rng, 1) for law in laws])
    return {"coefficients": np.exp(log_variance / 2) * rng.standard_normal((count, width))}


def _roots(term: EffectTerm, theta: dict[str, Floats], place: int) -> Floats:
    """L of every draw."""
    own = {name: each for name, each in theta.items() if name in (f"scales{place}", f"correlations{place}")}
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(lambda one: root_of(term, one, place))(own))


def _reported(model: Model, theta: dict[str, Floats]) -> tuple[tuple[str, ...], Floats]:
    """What a result would report, without effects of groups."""
    assert model.structure is not None
    report, units = model.flat_report, model.units
    assert report is not None
    names = tuple(label.removeprefix(".") for label in model.structure.labels(""))
    own = theta if len(theta) > 1 else theta["coefficients"]
    with jax.enable_x64(True):
        values = np.asarray(jax.vmap(lambda one: report(one, units))(own))
    kept = [place for place, name in enumerate(names) if not ("|" in name and name.endswith("]"))]
    return tuple(names[place] for place in kept), values[:, kept]


def _places(extras: tuple[ExtraPart, ...], theta: dict[str, Floats]) -> Floats:
    """Where extras stand in R^d, (draws, numbers)."""

    def flat(one: dict[str, Any]) -> Any:
        return jnp.concatenate(coordinates(extras, one))

    if not extras:
        return np.empty((0, 0))
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(flat)({extra.name: theta[extra.name] for extra in extras}))


@dataclass(frozen=True, eq=False)
class _Responses:
    """Responses at some rows, a block of draws at a time: a pure function of the seed and the block."""

    model: Model
    layout: Layout
    unfitted: Unfitted
    theta: dict[str, Floats]
    rows: dict[str, Any]
    seed: int

    def blocks(self) -> Iterator[tuple[Floats, Floats]]:
        """y and its expectation given theta."""
        count, rows = len(self.theta["coefficients"]), len(self.rows["y"])
        size = max(1, MOST_NUMBERS // max(rows, 1))
        for number, start in enumerate(range(0, count, size)):
            rng = np.random.default_rng(np.random.SeedSequence([self.seed, 2, number]))
            theta = {name: each[start : start + size] for name, each in self.theta.items()}
            drawer, batch = self._drawer(theta), self._batch()
            eta = self._predictors(theta, rng)
            yield drawer.responses(eta, batch, rng), drawer.means(eta, batch)

    def _batch(self) -> RowBatch:
        """What responses read of the rows."""
        count, beside = len(self.rows["y"]), {name: self.rows[name] for name in BESIDE if name in self.rows}
        x = self.rows["x"] if self.layout.beside else np.zeros((count, 0))
        return RowBatch(np.arange(count), np.asarray(x, np.float64), np.zeros(count), beside=beside)

    def _drawer(self, theta: dict[str, Floats]) -> ResponseDrawer:
        facts: Any = self.unfitted
        known = self.unfitted.regression.noise_scale
        parts = self.model.parts
        assert parts is not None
        width = parts.density.width if isinstance(parts.density, OfExcess) else None
        own: Any = theta[parts.extras[0].name] if parts.extras else known
        nothing: Any = None
        given = facts, nothing, self.layout, None
        if self.layout.beside:
            return ResponseDrawer(*given, np.exp(own), known={"points": theta["coefficients"]})
        return ResponseDrawer(*given, own, _places(parts.extras, theta), width)

    def _predictors(self, theta: dict[str, Floats], rng: np.random.Generator) -> Floats:
        """eta, (draws, rows), with a last axis of heads where there are several."""
        rows, layout = self.rows, self.layout
        count = len(rows["y"])
        x = np.asarray(rows.get("x", np.zeros((count, 0))), np.float64)
        coefficients = theta["coefficients"].reshape(len(theta["coefficients"]), layout.heads, -1)
        plain = coefficients if layout.indexed is None else coefficients[..., list(layout.indexed.columns)]
        own = x.shape[1] - layout.beside
        eta = np.einsum("dhp,np->dnh", plain[..., :own], x[:, :own])
        if layout.indexed is not None:
            padded = np.concatenate([coefficients, np.zeros((*coefficients.shape[:2], 1))], axis=2)
            for codes in np.asarray(rows["codes"]).T:
                eta += padded[..., codes].transpose(0, 2, 1)
        if layout.intercept:
            eta += theta["intercept"].reshape(len(eta), 1, layout.heads)
        eta += np.asarray(rows.get("offset", np.zeros(count)), np.float64)[:, None]
        assert self.model.parts is not None
        for place, term in enumerate(self.model.parts.terms):
            eta[..., 0] += self._effects(place, term, theta, rng)
        by_class = CATALOGUE[self.model.family or ""].by_class
        return eta if by_class and layout.heads > 1 else eta[..., 0]

    def _effects(self, place: int, term: EffectTerm, theta: dict[str, Floats], rng: np.random.Generator) -> Floats:
        """z . b of every draw and row; of the first term effects are drawn for the groups of these rows."""
        z = np.asarray(self.rows[f"z{place}"], np.float64)
        if place:
            values, which = theta[f"effects{place}"], np.asarray(self.rows[f"level{place}"])
        else:
            names, which = np.unique(self.rows[term.by], return_inverse=True)
            free = rng.standard_normal((len(theta["scales0"]), len(names), term.size))
            values = np.einsum("dij,dgj->dgi", _roots(term, theta, 0), free)
        return np.einsum("nq,dnq->dn", z, values[:, which])
