"""Predictions of rows with groups: of a mixed model by its formula, or of a model of one's own.

A row of a group that the fit has seen is predicted with what its rows say of the group's effect; one of any other
group with the law that effects have. The former needs the rows of the fit, which a result that was loaded from a file
does not have; the latter does not.

How a new observation scatters is told by its sd alone, sd^2 = E Var(y | theta, b) + Var E(y | theta, b): an interval
would take the law of the effect for normal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.groups.known import KnownGroups
from tallbayes.groups.placing import new_unit
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.model.families import FAMILIES
from tallbayes.model.groups.mixed import extra_of, with_effects
from tallbayes.model.groups.terms import EffectTerm
from tallbayes.model.links import Wanted
from tallbayes.model.model import Model
from tallbayes.model.noise import Noise
from tallbayes.model.parts.extras import ExtraPart
from tallbayes.model.parts.making import with_width
from tallbayes.model.smooths import SmoothTerm, scale_name, with_smooths
from tallbayes.model.space import Space, make_space
from tallbayes.moments import Floats
from tallbayes.posterior.coordinates import STRETCHED
from tallbayes.posterior.group_predictions import GroupPredictor, MixedOutcome, OwnOutcome, Predicted
from tallbayes.posterior.observations import of_indicator
from tallbayes.posterior.posterior import Posterior
from tallbayes.posterior.prediction import ARRAYS, Observation, Prediction, Unpredicted
from tallbayes.results.fitted import excess_width, kept_posterior
from tallbayes.results.new_rows import Asked, NewRows, kept_arrays
from tallbayes.results.result import Result

if TYPE_CHECKING:
    from tallbayes.formula.coding import Coding
    from tallbayes.formula.encoding import Encoding

WITHOUT_INTERVAL = "new observations have an sd but no interval: effects of groups are not normal"


@dataclass(frozen=True, eq=False)
class Mixed:
    """A mixed model as its encoding tells it: where its group terms stand, the one that is integrated out first."""

    terms: tuple[EffectTerm, ...]
    order: tuple[int, ...]
    space: Space
    extras: tuple[ExtraPart, ...]
    noise: Noise | None
    family: str

    @classmethod
    def of(cls, result: Result, encoding: Encoding) -> Mixed:
        """Of a result, in the process that made it or in another."""
        regression, groups = result.regression, encoding.groups
        assert regression is not None
        order = tuple(sorted(range(len(groups)), key=lambda place: -len(groups[place].levels)))
        terms = tuple(
            EffectTerm(
                ":".join(groups[place].term.by),
                len(groups[place].names),
                groups[place].term.correlated,
                levels=len(groups[place].levels) if later else 0,
            )
            for later, place in enumerate(order)
        )
        family, posterior = _family(result, encoding), kept_posterior(result)
        terms = _with_scales((terms[0], *_as_fitted(terms[1:], family, posterior)), posterior)
        model = with_effects(family, *terms)
        assert callable(model.initial)
        space, start = make_space(model.initial({"x": np.zeros(len(encoding.coding.names) or 1)}), model.constraints)
        assert len(start) == len(posterior.anchor.mode)
        noise: Noise | None = Noise(regression.family, regression.noise_scale, regression.degrees_of_freedom)
        if (regression.family == "student_t" and regression.degrees_of_freedom is None) or not CATALOGUE[
            regression.family
        ].is_plain:
            noise = None
        assert model.parts is not None
        return cls(terms, order, space, model.parts.extras, noise, regression.family)

    def rows(self, batch: NewRows) -> tuple[dict[str, Any], np.ndarray]:
        """What a prediction reads, and the groups of the first term."""
        x, offset = batch.inputs
        rows = {"x": np.asarray(x, np.float64), "offset": offset}
        for place, at in enumerate(self.order):
            rows[f"z{place}"] = np.asarray(batch.groups[at].z, np.float64)
            if place:
                rows[f"level{place}"] = batch.groups[at].codes.astype(np.int32)
        return rows, batch.groups[self.order[0]].codes


def _family(result: Result, encoding: Encoding) -> Model:
    """That of the fixed effects; priors do not matter here."""
    regression, coding = result.regression, encoding.coding
    assert regression is not None
    options: dict[str, Any] = {}
    if CATALOGUE[regression.family].response == "ordered":
        options["num_classes"] = len(encoding.classes or ())
    else:
        options["intercept_scale"] = 1.0 if coding.intercept and coding.names else None
    if regression.noise_scale is not None:
        options["noise_scale"] = regression.noise_scale
    width = excess_width(result)
    if not coding.smooths:
        family = FAMILIES[regression.family](**options)
        return family if width is None else with_width(family, width)
    own = FAMILIES[regression.family](prior_scale=np.ones(len(coding.names)), **options)
    own = own if width is None else with_width(own, width)
    return with_smooths(own, _smooths_as_fitted(own, coding, kept_posterior(result)))


def _smooths_as_fitted(family: Model, coding: Coding, posterior: Posterior) -> tuple[SmoothTerm, ...]:
    """Smooths in the coordinates that the posterior has of them: coefficients stand first in theta, scales last."""
    parts = () if posterior.reading is None else posterior.reading.parts
    stretched = [part for part in parts if part.kind == STRETCHED][: len(coding.smooths)]
    names = sorted(scale_name(place) for place in range(len(coding.smooths)))
    scales = dict(zip(names, (part.numbers[0] for part in parts[len(parts) - len(names) :]), strict=True))
    extra = extra_of(family)
    return tuple(
        SmoothTerm(
            smooth.factor,
            smooth.first,
            scales[scale_name(place)],
            part.numbers[3:],
            extra if part.numbers[2] >= 0 else None,
        )
        for place, (smooth, part) in enumerate(zip(coding.smooths, stretched, strict=True))
    )


def _as_fitted(terms: tuple[EffectTerm, ...], family: Model, posterior: Posterior) -> list[EffectTerm]:
    """Terms whose effects are parameters, in the coordinates that the posterior has of them."""
    parts = () if posterior.reading is None else posterior.reading.parts
    stretched = [part for part in parts if part.kind == STRETCHED]
    stretched = stretched[len(stretched) - len(terms) :]
    extra = extra_of(family)
    return [
        replace(term, information=part.numbers[3:], noise=extra if part.numbers[2] >= 0 else None)
        for term, part in zip(terms, stretched, strict=True)
    ]


def _with_scales(terms: tuple[EffectTerm, ...], posterior: Posterior) -> tuple[EffectTerm, ...]:
    """Terms whose scales stand in R^d where the fit has them, by the width of their priors."""
    parts = () if posterior.reading is None else posterior.reading.parts
    scales = [part.numbers[0] for part in parts if part.kind == "half_normal"]
    if len(scales) != len(terms):
        return terms
    # As leaves of theta are: by name.
    order = sorted(range(len(terms)), key=lambda place: f"scales{place}")
    by_place = dict(zip(order, scales, strict=True))
    return tuple(replace(term, scale=by_place[place]) for place, term in enumerate(terms))


def known_of(result: Result) -> KnownGroups | None:
    """The groups that a result has seen, with their rows; None where it does not have them any more."""
    return None if result.effect_source is None else result.effect_source.groups


def mixed_stream(
    result: Result, encoding: Encoding, batches: Iterator[NewRows], ks: tuple[int, ...], interval: float | None
) -> Iterator[tuple[NewRows, Prediction, Observation | None]]:
    """Predictions of a fit by a formula with groups, batch by batch."""
    mixed = Mixed.of(result, encoding)
    facts = CATALOGUE[mixed.family]
    outcome = MixedOutcome(Wanted(mixed.family, ks, excess_width(result)), mixed.terms, mixed.extras, mixed.noise)
    predictor = GroupPredictor(kept_posterior(result), mixed.space, outcome, None)
    notes = (WITHOUT_INTERVAL,) if interval is not None and facts.response != "binary" else ()
    for batch in batches:
        if not batch.usable.any():
            outputs = len(encoding.classes) if facts.response == "ordered" and encoding.classes else 1
            nothing: list[Any] = [np.empty((0, outputs + len(ks)))] * len(ARRAYS)
            found = Predicted(Prediction(*nothing), np.empty(0), np.empty(0))
        else:
            rows, codes = mixed.rows(batch)
            if predictor.known is None and np.any(codes >= 0):
                predictor.known = known_of(result)
                _require_known(predictor.known, batch, mixed, codes)
            known = predictor.known
            found = predictor(rows, np.full(len(codes), -1) if known is None else known.places(codes))
        observation = _observation(mixed, found)
        yield replace(batch, notes=(*batch.notes, *notes)), found.outputs, observation


def _require_known(known: KnownGroups | None, batch: NewRows, mixed: Mixed, codes: np.ndarray) -> None:
    if known is None:
        levels, by = batch.groups[mixed.order[0]].levels, mixed.terms[0].by
        got = f"{levels.names[int(codes[codes >= 0][0])]!r}, and a result from a file, which has no rows"
        hint = (
            "result.predict in the process that fitted it, tallbayes predict with its run and its table in their "
            "place, or a name that no group has for the prediction of a new one"
        )
        raise InputError(explain(f"a new group of {by!r}", got, hint))


@np.errstate(invalid="ignore", divide="ignore", over="ignore")
def _observation(mixed: Mixed, found: Predicted) -> Observation | None:
    outputs = found.outputs
    mean, error, sd, sd_error = (each[:, 0] for each in (outputs.mean, outputs.error, outputs.sd, outputs.sd_error))
    if CATALOGUE[mixed.family].response == "binary":
        return of_indicator(mean, error)
    if mixed.noise is None:
        return None
    total: Floats = np.sqrt(found.noise + sd**2)
    return Observation(total, (found.noise_error + (2 * sd + sd_error) * sd_error) / (2 * total))


def own_stream(result: Result, rows: Any, asked: Asked) -> Iterator[tuple[NewRows, Prediction, None]]:
    """Predictions of a model of one's own with groups: predict(theta, b, row)."""
    posterior, known = kept_posterior(result), known_of(result)
    live = posterior.live
    if live is None or known is None or live[0].predict is None:
        hint = "tb.Model(..., groups=..., predict=lambda theta, b, row: ...), in the process that made the result"
        raise InputError(explain("a model that says what to predict", "one that does not", hint))
    target, predict, by = live[0], live[0].predict, known.integral.groups.by
    if not isinstance(rows, Mapping) or by not in rows:
        got = f"{sorted(map(str, rows))}" if isinstance(rows, Mapping) else type(rows).__name__
        raise InputError(explain(f"a dict of arrays with the column {by!r}", got, "the columns that the fit was given"))
    import jax

    kept = {by, *asked.keep}
    inputs = jax.tree.map(np.asarray, {name: each for name, each in rows.items() if name not in kept})
    column = own_groups_like(np.asarray(rows[by]), known.levels)
    if not inputs:
        inputs = {by: np.zeros(len(column))}
    outcome = OwnOutcome(predict, known.integral)
    unit = new_unit(target, posterior.anchor.mode, known.units["rows"])
    predictor = GroupPredictor(posterior, target.space, outcome, known, unit)
    found = predictor(inputs, known.places(column))
    count = len(column)
    batch = NewRows(inputs, np.ones(count, bool), np.arange(count), kept_arrays(asked.keep, rows, count), Unpredicted())
    yield batch, found.outputs, None


def own_groups_like(column: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Names of groups in the type that the fit found them in."""
    if levels.dtype.kind in "US":
        return column.astype(str)
    if column.dtype.kind in "OUS":
        got = f"text such as {str(column[0])!r}" if len(column) else "text"
        raise InputError(explain("groups that are numbers, as before", got, "convert the column"))
    return column
