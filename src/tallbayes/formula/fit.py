"""The formula door: a formula, a table and the name of a family, to a result in the table's own units.

fit("late ~ hour + C(carrier)", "flights.parquet", family="logistic", tolerance=0.01)
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tallbayes.errors import InputError, PosteriorError, explain, suggestion
from tallbayes.estimation.estimate import estimate
from tallbayes.estimation.outline import blank
from tallbayes.estimator.estimands import KINDS, check_tolerances
from tallbayes.estimator.estimates import Status
from tallbayes.estimator.run import budget_within
from tallbayes.formula.again.arriving import FormulaDoor
from tallbayes.formula.coding import INTERCEPT
from tallbayes.formula.design import build_design
from tallbayes.formula.design_steps import Design
from tallbayes.formula.encoding import Encoding
from tallbayes.formula.groups.design import GroupDesign
from tallbayes.formula.groups.fit import GroupQuestion, by_size, fit_groups
from tallbayes.formula.priors.stated import StatedPriors, family_priors, read_priors
from tallbayes.formula.priors.words import design_notes, prior_note, usual_laws
from tallbayes.formula.second import formula_text
from tallbayes.formula.smooths.fit import require_own_scale, smoothed
from tallbayes.formula.standardising import read_rule
from tallbayes.formula.units import in_own_units
from tallbayes.model.catalogue import ALIASES, CATALOGUE, Extra, Family
from tallbayes.model.families import FAMILIES
from tallbayes.model.linear import Indexed
from tallbayes.model.model import Model
from tallbayes.model.parts.making import settled, with_codes
from tallbayes.moments import Floats
from tallbayes.progress import reporter, teller
from tallbayes.results.fitted import FitTable
from tallbayes.results.parts import Tolerance
from tallbayes.results.result import Result
from tallbayes.rows.on_disk import Stored
from tallbayes.rows.sources import open_source
from tallbayes.watch import OutOfTime, aside, begin, watching

NOTHING_STATED = StatedPriors({})
OWN_OPTIONS = ("prior_scale", "intercept_scale", "num_classes", "cut_scale", "priors", "noise_columns")


def fit(
    formula: str | Sequence[str],
    data: Any = None,
    family: str | Callable[..., Model] = "logistic",
    *,
    table: Any = None,
    tolerance: Tolerance | None = None,
    relative_tolerance: Tolerance | None = None,
    absolute_tolerance: Tolerance | None = None,
    quantities: Mapping[str, Callable[[Any], Any]] | Sequence[str] | None = None,
    prior_scale: float | Sequence[float] | Mapping[str, float] = 1.0,
    intercept_scale: float = 10.0,
    group_scale: float | Mapping[str, float] = 1.0,
    priors: Mapping[str, Any] | None = None,
    standardise: bool | str = True,
    missing: str = "error",
    weights: str | Sequence[float] | Floats | None = None,
    offset: str | Sequence[float] | Floats | None = None,
    family_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Result:
    """Posterior means and sds of a regression that a formula describes, named, and in the units of the table.

    `data` (or `table`, another name for it) is a path (.csv, .parquet, .arrow), a pandas or polars frame, an Arrow
    table or a dict of arrays; or what `tb.ingest` made, or its path, and then nothing of the size of the table is held
    in memory. Priors are N(0, prior_scale^2) for coefficients (one number, one by column, or a dict by name) and N(0,
    intercept_scale^2). With `standardise` they are stated for standardised columns of numbers, that is per standard
    deviation of a column, the intercept being that at their means; for the levels of categories, and for flags of 0 and
    1, as they are: of the difference that a level makes on the scale of the linear predictor. For "linear" and
    "student_t" all are in standard deviations of the response. "all" standardises levels and flags like numbers, which
    gives rare ones a very wide prior. With False all is for columns and response as they are. Reported is always the
    raw scale. Effects of groups are written as lme4 and bambi have them, (1 + x | g); their scales are half-normal a
    priori, of the scale `group_scale` (one number, or a dict by factor), in the same units. `priors` of `tb.priors`
    take the place of these by the names that the result reports, in its own units: {"hour": tb.priors.normal(0.1, 0.5),
    "carrier": tb.priors.student_t(4, 0, 1), "Intercept": ..., "noise_scale": ..., "sd(carrier)": ...}, where a term is
    all of its coefficients, and "coefficients" all that are not named. A shrinkage prior of "coefficients", such as
    tb.priors.horseshoe(0.1), is of all of them, on columns as they are standardised. `family_options` go to the family
    ({"noise_scale": 2.0}, in the response's units), `options` to `tb.estimate` (seed, method, ...);
    `quantities` are functions of the reported dict. "y ~ x; sigma ~ z", or the two in a list, has a formula for the
    scale of normal and Student-t noise: log sigma is linear in z, with priors as of other coefficients.

    >>> import numpy as np, tallbayes as tb
    >>> hour = np.arange(200) % 24
    >>> rows = {"late": (7 * np.arange(200)) % 24 < hour, "hour": hour}
    >>> result = tb.fit("late ~ hour", rows, tolerance=0.5)
    >>> list(result["mean"].value)
    ['Intercept', 'hour']
    """
    table, formula = one_table(data, table), formula_text(formula)
    known, make = find_family(family)
    rule = read_rule(standardise)
    chosen = dict(family_options or {})
    require_options(chosen, options, make)
    accuracy: dict[str, Any] = dict(zip(KINDS, (tolerance, relative_tolerance, absolute_tolerance), strict=True))
    kind, size = check_tolerances(accuracy)
    budget = budget_within(None, None, options.get("max_seconds"))
    asked: dict[str, Any] = {
        "standardise": standardise,
        "missing": missing,
        "weights": weights,
        "offset": offset,
        "response": known.response,
        "standardise_response": rule != "nothing" and known.response == "real",
        "parameter": formula_parameter(known),
    }
    with reporter(options.pop("progress", None)) as report, watching(budget.max_seconds, teller(report)) as watch:
        try:
            design = aside(_design, formula, table, asked)
        except OutOfTime:
            own = {"quantities": quantities, "prior_scale": prior_scale, "intercept_scale": intercept_scale}
            own |= {"group_scale": group_scale, "priors": priors}
            own |= {"family_options": family_options, "standardise": standardise, "missing": missing}
            again = partial(_fit_again, formula, table, family, {**own, "weights": weights, "offset": offset}, options)
            names, seconds = [str(each) for each in quantities or ("mean", "sd")], time.monotonic() - watch.started
            return blank(Status.max_seconds, names, {kind: size}, watch.phase, seconds, partial(again, accuracy))
        scales = coefficient_scales(prior_scale, design.names)
        stated = read_priors(priors, design, unknown_extras(known, chosen, design))
        require_own_scale(prior_scale, design)
        try:
            model = make_model(known, make, design, scales, intercept_scale, chosen, stated, group_scale)
            asked = accuracy | options | {"weights": design.weights, "progress": report}
            if design.groups:
                result = fit_groups(GroupQuestion(design, model, quantities, asked, group_scale, stated))
            else:
                result = estimate(model, design.rows, quantities, **asked)
        except PosteriorError as error:
            raise _by_column(error, design.names) from error
    said = prior_note(design, scales, intercept_scale, group_scale, rule, stated, usual_laws(model, design))
    notes = (*_family_notes(family), *_second_notes(design), said, *design_notes(design, stated))
    column = None if offset is None else offset if isinstance(offset, str) else ""
    kept = FitTable(table, weights, None if isinstance(offset, str) else offset)
    encoding = replace(design.encoding, offset=column)
    given = known, make, prior_scale, intercept_scale, chosen, priors, group_scale
    door = FormulaDoor(encoding, known.name, notes, kept, partial(_remade, *given))
    if design.groups:
        order = by_size(design.groups)
        door = replace(door, grouped=partial(_asked_again, given, order), group_order=order)
    return described(door, result)


def _remade(
    family: Family,
    make: Callable[..., Model],
    prior_scale: Any,
    intercept_scale: float,
    chosen: dict[str, Any],
    priors: Any,
    group_scale: Any,
    encoding: Encoding,
    rows: Any,
) -> Model:
    """The family's model for rows that were encoded otherwise."""
    given = family, make, prior_scale, intercept_scale, chosen, priors, group_scale
    return _asked_again(given, (), encoding, rows, ()).model


def _asked_again(
    given: tuple[Any, ...], order: tuple[int, ...], encoding: Encoding, rows: Any, groups: tuple[GroupDesign, ...]
) -> GroupQuestion:
    """The same of rows that were encoded otherwise, with their groups."""
    family, make, prior_scale, intercept_scale, chosen, priors, group_scale = given
    design = Design(rows, None, 0, encoding, (), groups)
    stated = read_priors(priors, design, unknown_extras(family, chosen, design))
    scales = coefficient_scales(prior_scale, design.names)
    model = make_model(family, make, design, scales, intercept_scale, chosen, stated, group_scale)
    return GroupQuestion(design, model, None, {}, group_scale, stated, order)


def one_table(data: Any, table: Any) -> Any:
    if (data is None) == (table is None):
        got = "neither" if data is None else "both"
        hint = 'tb.fit("late ~ hour", data=flights), where flights is a path, a frame or a dict of columns'
        raise InputError(explain("a table, as data= or as table=", got, hint))
    return table if data is None else data


def _design(formula: Any, table: Any, asked: dict[str, Any]) -> Design:
    begin("reading the table")
    source = open_source(table)
    begin("reading the table", source.label)
    return build_design(formula, replace(source, load=partial(_announced, source.load)), **asked)


def _announced(load: Callable[[list[str]], Any], wanted: list[str]) -> Any:
    table = load(wanted)
    begin("encoding columns")
    return table


def _fit_again(
    formula: str | Sequence[str],
    table: Any,
    family: Any,
    own: dict[str, Any],
    options: dict[str, Any],
    accuracy: dict[str, Any],
    **changes: Any,
) -> Result:
    """The same call with another tolerance or budget, where the last one ended before the table was read."""
    accuracy = accuracy if not set(changes) & set(KINDS) else {}
    return fit(formula, table, family, **own, **{**accuracy, **options, "max_seconds": None, **changes})


def make_model(
    family: Family,
    make: Callable[..., Model],
    design: Design,
    scales: Any,
    intercept_scale: float,
    chosen: dict[str, Any],
    stated: StatedPriors = NOTHING_STATED,
    group_scale: Any = 1.0,
) -> Model:
    """The family's model for a design, reporting in the table's units; an intercept alone is a column of ones."""
    ordered = family.response == "ordered"
    priors: dict[str, Any]
    if ordered:
        _require_slopes(design)
        priors = {"prior_scale": scales, "cut_scale": intercept_scale}
    elif not design.names:
        priors = {"prior_scale": intercept_scale}
    else:
        priors = {"prior_scale": scales, "intercept_scale": intercept_scale if design.intercept else None}
    if design.encoding.coding.beside:
        _require_unknown(family, chosen)
        priors["noise_columns"] = design.encoding.coding.beside
    extras = unknown_extras(family, chosen, design)
    if stated:
        priors["priors"] = family_priors(stated, design, scales, intercept_scale, extras)
    if family.has_classes:
        chosen = chosen | {"num_classes": len(design.encoding.classes or ())}
    for extra in family.extras:
        given = chosen.get(extra.name)
        if extra.has_units and isinstance(given, int | float | np.number):
            chosen = chosen | {extra.name: given / design.encoding.response_scale}
    rows = design.rows.rows() if isinstance(design.rows, Stored) else design.rows
    model = settled(make(**priors, **chosen), rows)
    coding = design.encoding.coding
    if coding.indexed:
        categories = tuple((term.first, term.count) for term in coding.indexed)
        model = with_codes(model, Indexed(len(coding.names), coding.dense, categories))
    model = smoothed(in_own_units(model, design.encoding, extras, family.by_class, ordered), design, group_scale)
    return _with_words(model, stated) if stated else model


def _with_words(model: Model, stated: StatedPriors) -> Model:
    """Its priors known by the names of columns, in the table's units."""
    assert model.parts is not None
    return replace(model, parts=model.parts._replace(words=stated.words))


def unknown_extras(family: Family, chosen: Mapping[str, Any], design: Design) -> tuple[Extra, ...]:
    """The parameters beside the coefficients that are not known beforehand; of one that has a formula its logarithm."""
    if design.encoding.coding.beside:
        return (*family.extras[:-1], family.extras[-1].logarithm)
    return tuple(each for each in family.extras if chosen.get(each.name) is None)


def formula_parameter(family: Family) -> str:
    """The name of the parameter that may have a formula of its own."""
    return family.extras[-1].formula_name if family.distributional else ""


def _require_unknown(family: Family, chosen: Mapping[str, Any]) -> None:
    extra = family.extras[-1]
    if chosen.get(extra.name) is not None:
        got = f"{extra.name}={chosen[extra.name]!r} beside it"
        raise InputError(explain(f"a formula of {extra.formula_name}, or its value", got, "leave one of them out"))


def _require_slopes(design: Design) -> None:
    """Cut points take the place of an intercept: without it columns are not about their means, and there are none of
    an intercept alone."""
    if not design.intercept:
        hint = "leave out the 0: cut points stand for the intercept"
        raise InputError(explain("an ordinal formula with its intercept", "one without", hint))
    if not design.names:
        hint = "family='multinomial' for the chances of the classes alone"
        raise InputError(explain("a term beside the cut points", "none", hint))


def described(door: FormulaDoor, result: Result) -> Result:
    """The result with what the formula door has to say, and so every extension of it."""

    def further(continuation: Callable[..., Result], **changes: Any) -> Result:
        return described(door, continuation(**changes))

    continuation = None if result.continuation is None else partial(further, result.continuation)
    modes = tuple(
        each if each.result is None else replace(each, result=described(door, each.result)) for each in result.modes
    )
    own: dict[str, Any] = {"encoding": door.encoding.to_plain(), "fit_table": door.table, "door": door}
    return replace(result, notes=(*door.notes, *result.notes), modes=modes, continuation=continuation, **own)


def _by_column(error: PosteriorError, names: tuple[str, ...]) -> PosteriorError:
    """The same error about columns, as the formula names them, in place of parameters of standardised ones."""

    def column(match: re.Match[str]) -> str:
        return repr(names[int(match[1])]) if names else "the intercept"

    message = re.sub(r'theta(?:\["coefficients"\])?\[(?:\d+, )?(\d+)\]', column, str(error))
    message = re.sub(r'theta\["intercept"\](?:\[\d+\])?', "the intercept", message)
    return type(error)(message, error.places, error.value)


def find_family(family: Any) -> tuple[Family, Callable[..., Model]]:
    known = ALIASES.get(family, family) if isinstance(family, str) else family
    for name, make in FAMILIES.items():
        if known == name or family is make:
            return CATALOGUE[name], make
    names = f"one of {', '.join(FAMILIES)}"
    hint = suggestion(family, (*FAMILIES, *ALIASES), names) if isinstance(family, str) else names
    raise InputError(explain("the name of a family", repr(family), hint))


def _family_notes(family: Any) -> tuple[str, ...]:
    """What is meant by another package's name of a family, and what there is to be known of it."""
    known, _ = find_family(family)
    alias = (f"family: {family} is {known.name} here",) if isinstance(family, str) and family in ALIASES else ()
    return (*alias, *((known.note,) if known.note else ()))


def _second_notes(design: Design) -> tuple[str, ...]:
    second = design.encoding.coding.second
    if second is None:
        return ()
    name, unit = second.name, "noise scales"
    return (
        f"{name}: log {name} of a row is {name}:{INTERCEPT} and the sum of its columns times {name}:...; "
        f"exp of such a coefficient is a ratio of {unit}",
    )


def require_options(chosen: Mapping[str, Any], options: Mapping[str, Any], make: Callable[..., Any]) -> None:
    """Refuse what neither the family nor `tb.estimate` takes."""
    _require_known("family_options", chosen, make, OWN_OPTIONS)
    theirs, known = inspect.signature(make).parameters, inspect.signature(estimate).parameters
    for option in options.keys() & theirs.keys() - known.keys() - set(OWN_OPTIONS):
        hint = f"family_options={{{option!r}: {options[option]!r}}}"
        raise InputError(explain("options of estimate", f"{option!r}, which is one of the family", hint))
    _require_known("options", options, estimate, ("model", "data"))


def _require_known(what: str, given: Mapping[str, Any], function: Callable[..., Any], apart: tuple[str, ...]) -> None:
    known = [each for each in inspect.signature(function).parameters if each not in apart]
    for option in given:
        if option not in known:
            among = f"one of {', '.join(known)}" if known else f"none: {function.__name__} has no options"
            raise InputError(
                explain(f"{what} that {function.__name__} has", repr(option), suggestion(option, known, among))
            )


def coefficient_scales(given: Any, names: tuple[str, ...]) -> Any:
    """One number, or one for every column."""
    if isinstance(given, Mapping):
        for name in given:
            if name not in names:
                among = f"the columns are {', '.join(names[:20])}"
                raise InputError(explain("prior_scale by column", repr(name), suggestion(str(name), names, among)))
        return np.array([float(given.get(name, 1.0)) for name in names])
    if np.ndim(given) and len(given) != len(names):
        got = f"{len(given)} for {len(names)} columns {', '.join(names[:20])}"
        raise InputError(explain("one prior_scale a column", got, "a dict by name, or one number"))
    return given if np.ndim(given) == 0 else np.asarray(given, np.float64)
