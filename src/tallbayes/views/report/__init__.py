"""The report of a result: one page that needs nothing else, for people who have not run anything.

    1  what was seen   observed against predicted, base rates; see `seen`
    2  the answer      `answer`: average effects, curves and intervals, numbers folded below them
    3  what was asked for beside, see `asked`
    4  how sure        `errors`, in a sentence; the rest is folded
    5  what it cost    `cost`, likewise

What needs the rows of the fit is there where they are, and are few, or where it was asked for.

No script, no network, no font of its own: a policy in the page's head forbids all three. It is read on a phone, on a
desk, in the dark and on paper alike; see `stylesheet`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.estimator.estimates import Estimate, Status
from tallbayes.results.coefficients import Ends, Number, end_tolerance, end_unit
from tallbayes.results.export import formula_of
from tallbayes.results.fitted import family_of
from tallbayes.results.result import Result
from tallbayes.results.verdict import has_numbers, is_success
from tallbayes.rows.atomic import replacing
from tallbayes.structure import Structure
from tallbayes.views.advice import BUDGETS, Door
from tallbayes.views.headline import headline
from tallbayes.views.report.answer import answer, as_pairs
from tallbayes.views.report.asked.checks import checked
from tallbayes.views.report.cost import cost
from tallbayes.views.report.effects import ReportedEffects, effects_of
from tallbayes.views.report.errors import certainty
from tallbayes.views.report.forest import finding
from tallbayes.views.report.markup import Markup, counted, element, join, listed, typed
from tallbayes.views.report.modes import elsewhere
from tallbayes.views.report.seen.averages import are_averages, averages_of
from tallbayes.views.report.seen.curves import curves_of
from tallbayes.views.report.seen.observed import observed, observed_check
from tallbayes.views.report.seen.rates import BaseRates, base_rates, rates_in_words
from tallbayes.views.report.stylesheet import SHEET

if TYPE_CHECKING:
    from tallbayes.results.checks.check import Check

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
CHECKED, PARTS = "Does the model fit?", "Parts of this report"
# In place of what a budget means where a run ended before its first paths.
NO_NUMBERS = (
    "There are no numbers: what was allowed was used up before the mode of the posterior was found, from which all "
    "else starts."
)
NORMAL_NUMBERS = (
    "The numbers are those of a normal approximation alone: what was allowed was used up before the first path, so how "
    "far off they are is not known. Take them as a guess."
)
SHORT_OF_BUDGET = (
    "The time or the work that was allowed was used up. The numbers are the best this run has, and their errors are "
    "stated as far as they are known."
)
NOT_TO_BE_TRUSTED = "Do not rely on the numbers or on their errors."
MEANINGS = {
    Status.max_evaluations: SHORT_OF_BUDGET,
    Status.max_seconds: SHORT_OF_BUDGET,
    Status.interrupted: SHORT_OF_BUDGET,
    Status.max_levels: "The levels that were not sampled may still shift the numbers by more than was asked for; "
    "how much at most is stated as their bias bound.",
    Status.diverged: f"Some paths ran away from the posterior. {NOT_TO_BE_TRUSTED}",
    Status.no_contraction: "Paths keep the memory of where they began, as they do between two modes or along a "
    f"direction that rows and prior leave open, so the bias is not under control. {NOT_TO_BE_TRUSTED}",
    Status.paths_too_short: f"Paths were stopped while they still remembered where they began. {NOT_TO_BE_TRUSTED}",
    Status.chains_apart: f"Chains remember where they began, as they do between modes. {NOT_TO_BE_TRUSTED}",
    Status.slow_decay: "Finer levels bring little, so the accuracy asked for is out of reach at a sensible price; "
    "the errors stated are larger than that.",
    Status.heavy_tails: "A few paths make up most of the error, so the error itself may be far off. Take the numbers "
    "that missed as rough. The expectation of a ratio, such as a / b, may not exist at all; a median or a quantile "
    "always does.",
    Status.converged_in_part: "Along the parameters that are named rows and prior leave so much open that paths do not "
    "settle. Their numbers are guesses; all others have errors of their own, which allow for it.",
    Status.infinite_variance: "The expectation of that quantity may not exist, and the number shown for it is no more "
    "than a guess.",
    Status.rough_integrals: "The effects of groups are integrated out by too few nodes for the accuracy asked for; "
    "what that may shift the numbers by is part of their errors, which are as large as stated.",
    Status.no_mode: "There are no numbers: the search for the mode, from which all paths start, had no end. That is "
    "usual where effects have a common scale and are written centred; written non-centred they have a mode.",
    Status.inconsistent: f"A check of the sampler against itself failed, which should not happen. {NOT_TO_BE_TRUSTED}",
    Status.second_mode: "The posterior has several modes, separate places around which its mass gathers. The numbers "
    "on this page describe the heaviest of them, and are no averages over all.",
}
# Where errors may be larger than was asked for, but are what they say.
KNOWN_ERRORS = (
    Status.converged,
    Status.converged_in_part,
    Status.max_levels,
    Status.rough_integrals,
    Status.slow_decay,
    Status.second_mode,
    *BUDGETS,
)
ABOUT_ACCURACY = (
    "Accuracy is that of the computation, in posterior sds: 0.01 means that computing adds a hundredth of the "
    "uncertainty that the rows themselves leave."
)


def write_report(
    result: Result,
    path: str | os.PathLike[str],
    predictions: Any = None,
    comparisons: Sequence[Any] = (),
    title: str | None = None,
    settings: dict[str, Any] | None = None,
    checks: Sequence[Check] = (),
    sensitivity: bool = False,
    answers: Sequence[Any] = (),
) -> Path:
    """Write the page, atomically, and return where it is.

    `predictions` are (label, result.predict(...)) pairs, `comparisons` what result.compare(...) returned, `settings`
    those of a run beside the result's own, `checks` what result.checks() returned, `answers` what result.loo() and the
    like did.
    """
    place = Path(path)
    if place.is_dir() or not place.parent.is_dir():
        got = f"the folder {str(place)!r}" if place.is_dir() else f"no folder {str(place.parent)!r}"
        raise InputError(explain("a file to write the report to", got, "report.html"))
    page = render_report(result, predictions, comparisons, title, settings, checks, sensitivity, answers)
    with replacing(place, shared=True) as partial:
        partial.write_text(page, encoding="utf-8")
    return place


# What is not finite is shown as unknown.
@np.errstate(all="ignore")
def render_report(
    result: Result,
    predictions: Any = None,
    comparisons: Sequence[Any] = (),
    title: str | None = None,
    settings: dict[str, Any] | None = None,
    checks: Sequence[Check] = (),
    sensitivity: bool = False,
    answers: Sequence[Any] = (),
) -> str:
    """The page as text."""
    asked = {**(settings or {}), **result.settings}
    curves = curves_of(result)
    effects = effects_of(result, {name for each in curves for name in each.curve.terms})
    rates, check = base_rates(result), observed_check(result, checks)
    averages = averages_of(result, answers)
    told = as_pairs(predictions), list(comparisons), Door.of(result, asked)
    sections = [
        ("observed", "Observed against predicted" if check else "What was seen", observed(result, check, rates)),
        ("answer", "The answer", answer(result, effects, *told, averages, curves)),
        ("checks", CHECKED, checked([each for each in checks if each is not check])),
        *_asked_for(result, sensitivity, [each for each in answers if not are_averages(each)]),
        ("certainty", "How sure", certainty(result, effects)),
        ("cost", "What it cost", cost(result, asked)),
    ]
    shown = [(place, heading, content) for place, heading, content in sections if content]
    name = title or _title(result, effects)
    parts = [
        _header(result, effects, asked, name, rates, [(place, heading) for place, heading, _ in shown]),
        *(_section(*each) for each in shown),
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", name),
        element("style", Markup(SHEET)),
    )
    body = element("body", join([parts[0], element("main", join(parts[1:], "\n"))], "\n"))
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


Part = tuple[str, str, Markup | None]


def _asked_for(result: Result, sensitivity: bool, answers: Sequence[Any]) -> list[Part]:
    """Sections that appear when they are asked for."""
    found: list[Part] = []
    if answers:
        from tallbayes.views.report.asked.answers import answered

        found.append(("asked", "More answers", answered(answers)))
    if sensitivity:
        from tallbayes.views.report.asked.sensitivity import sensitive

        found.append(("priors", "Which priors matter", sensitive(result.sensitivity())))
    return found


def _section(name: str, heading: str, content: Markup) -> Markup:
    return element("section", element("h2", heading, id=f"{name}-heading"), content, id=name)


def _title(result: Result, effects: ReportedEffects) -> str:
    """What was fitted, in a few words."""
    family = family_of(result)
    if family is not None:
        return family.title if result.encoding is None else f"{family.title} of {result.encoding['response']}"
    if not effects.all:
        return f"Posterior expectations of {listed(list(result))}"
    return f"Posterior of {counted(len(effects.all), 'parameter')}"


def _header(
    result: Result,
    effects: ReportedEffects,
    settings: dict[str, Any],
    title: str,
    rates: BaseRates | None,
    parts: Sequence[tuple[str, str]],
) -> Markup:
    formula = settings.get("formula") or formula_of(result)
    return element(
        "header",
        element("h1", title),
        element("p", element("code", formula), class_="formula") if formula else None,
        element("p", _lead(result, effects, settings), class_="lead"),
        element("p", rates_in_words(result, rates)) if rates is not None else None,
        _status(result, effects, settings),
        element("nav", *(element("a", text, href=f"#{place}") for place, text in parts), aria_label=PARTS),
    )


def _lead(result: Result, effects: ReportedEffects, settings: dict[str, Any]) -> str:
    """What was fitted to what, and what the intervals say."""
    kind = "coefficient" if effects.is_regression else "parameter"
    family = family_of(result)
    what = "A posterior" if family is None else family.title
    size = f" with {counted(len(effects.all), kind)}" if effects.all else ""
    source = f" of {os.path.basename(str(settings['data']))}" if settings.get("data") else ""
    known = result.num_rows > 0
    groups = "".join(f", {each.groups:,} groups by {each.by}" for each in result.factors)
    given = f", given {counted(result.num_rows, 'row')}{source}{groups}" if known else ", of which no row was read yet"
    # What the intervals say is no finding where their errors are not known.
    told = finding(effects) if result.status in KNOWN_ERRORS and result.is_sampled else ""
    told = f"At the heaviest mode, {told[:1].lower()}{told[1:]}" if told and result.modes else told
    return f"{what}{size}{given}. {told}".strip()


def _status(result: Result, effects: ReportedEffects, settings: dict[str, Any]) -> Markup:
    """What was met and what was not, what that means, and what to do."""
    top = headline(result, _shown_ends(result, effects), settings)
    ended, facts = _sentence(top.opening), _sentence(top.facts) if top.facts else ""
    about = element("p", ABOUT_ACCURACY, class_="soft") if "posterior sd" in top.facts else None
    if top.is_good:
        return join([element("p", f"✓ {_sentence(top.line)}", class_="status"), about])
    meaning = MEANINGS.get(result.status, "" if result.converged else NOT_TO_BE_TRUSTED)
    if result.status in BUDGETS and not result.is_sampled:
        meaning = NORMAL_NUMBERS if has_numbers(result) else NO_NUMBERS
    step = element("p", element("strong", "What to do: "), typed(f"{top.step}.")) if top.step else None
    content = [
        element("p", element("strong", ended), f" {facts}" if facts else None),
        element("p", meaning) if meaning else None,
        elsewhere(result),
        step,
    ]
    # Rough ends are to be known of, but the answer is what was asked for.
    kind, label = ("notice", "Note") if is_success(result) else ("warning", "Warning")
    return join([element("div", *content, class_=kind, role="note", aria_label=label), about])


def _shown_ends(result: Result, effects: ReportedEffects) -> Ends | None:
    """Those of the page, which were read already."""
    if not effects.has_quantiles or not effects.all:
        return None
    tolerance, asked = end_tolerance(result)
    ordered = effects.in_order
    names = [each.term.name for each in ordered]
    lower, upper = (_as_estimate([getattr(each, end) for each in ordered], end) for end in ("lower", "upper"))
    allowed = tolerance * end_unit(lower.flat_value, upper.flat_value)
    lower, upper = (replace(end, flat_tolerance=allowed) for end in (lower, upper))
    return Ends(names, lower, upper, tolerance, asked)


def _as_estimate(numbers: Sequence[Number], name: str) -> Estimate:
    values, errors = np.array(numbers, np.float64).T
    nothing = np.zeros(len(values))
    return Estimate(name, Structure.leaf(values.shape), values, errors, nothing, nothing + np.inf, nothing)


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
