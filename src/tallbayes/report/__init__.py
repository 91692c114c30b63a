"""The report of a result: one page that needs nothing else, for people who have not run anything.

    1  the answer     what was fitted and how it ended; then `report_answer`
    2  how sure       `report_errors`
    3  what it cost   `report_cost`

No script, no network, no font of its own: a policy in the page's head forbids all three. It is read on a phone, on a
desk, in the dark and on paper alike; see `stylesheet`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.report.answer import answer, as_pairs, finding
from tallbayes.report.cost import cost
from tallbayes.report.effects import Effects, effects_of
from tallbayes.report.errors import certainty
from tallbayes.report.markup import Markup, counted, element, join, listed
from tallbayes.report.stylesheet import SHEET
from tallbayes.result import Result, Status

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
FAMILIES = {
    "logistic": "Logistic regression",
    "probit": "Probit regression",
    "linear": "Linear regression",
    "student_t": "Linear regression with Student-t noise",
    "poisson": "Poisson regression",
    "negative_binomial": "Negative binomial regression",
    "multinomial": "Multinomial regression",
}
UNITS = {"tolerance": " posterior sd", "relative_tolerance": " of its value", "absolute_tolerance": ""}
SHORT_OF_BUDGET = (
    "The numbers are the best this run has. Their errors are stated as far as they are known, and are larger than what "
    "was asked for. Going on from here costs only the difference: result.extend()."
)
NOT_TO_BE_TRUSTED = "Do not rely on the numbers or on their errors."
MEANINGS = {
    Status.max_evaluations: SHORT_OF_BUDGET,
    Status.max_seconds: SHORT_OF_BUDGET,
    Status.interrupted: SHORT_OF_BUDGET,
    Status.max_levels: "The levels that were not sampled may still shift the numbers by more than was asked for; "
    "how much at most is stated as their bias bound.",
    Status.diverged: f"Some paths ran away from the posterior. {NOT_TO_BE_TRUSTED}",
    Status.no_contraction: f"Paths keep the memory of where they began, so the bias is not under control. "
    f"{NOT_TO_BE_TRUSTED}",
    Status.paths_too_short: f"Paths were stopped while they still remembered where they began. {NOT_TO_BE_TRUSTED}",
    Status.slow_decay: "Finer levels bring little, so the accuracy asked for is out of reach at a sensible price; "
    "the errors stated are larger than that.",
    Status.heavy_tails: "A few paths make up most of the error, so the error itself may be far off. Take the numbers "
    "as rough.",
    Status.infinite_variance: "As far out as was looked, the tails of a quantity do not end: its expectation may not "
    "exist, and has no error that could be known. Ask for a median or for a quantile instead.",
    Status.no_mode: "There are no numbers: the search for the mode, from which all paths start, had no end. That is "
    "usual where effects have a common scale and are written centred; written non-centred (scale × effect, with "
    "standard normal effects) they have a mode.",
    Status.inconsistent: f"A check of the sampler against itself failed, which should not happen. {NOT_TO_BE_TRUSTED}",
    Status.second_mode: "The posterior has another mode that these numbers know nothing of. They describe one of them.",
}


def write_report(
    result: Result,
    path: str | os.PathLike[str],
    predictions: Any = None,
    comparisons: Sequence[Any] = (),
    title: str | None = None,
    settings: dict[str, Any] | None = None,
) -> Path:
    """Write the page, atomically, and return where it is.

    `predictions` are (label, result.predict(...)) pairs, `comparisons` what result.compare(...) returned, `settings`
    those of a run beside the result's own.
    """
    place = Path(path)
    if place.is_dir() or not place.parent.is_dir():
        got = f"the folder {str(place)!r}" if place.is_dir() else f"no folder {str(place.parent)!r}"
        raise InputError(explain("a file to write the report to", got, "report.html"))
    page = render_report(result, predictions, comparisons, title, settings)
    partial = place.with_name(f".{place.name}.{os.getpid()}.partial")
    try:
        partial.write_text(page, encoding="utf-8")
        os.replace(partial, place)
    finally:
        partial.unlink(missing_ok=True)
    return place


# What is not finite is shown as unknown.
@np.errstate(all="ignore")
def render_report(
    result: Result,
    predictions: Any = None,
    comparisons: Sequence[Any] = (),
    title: str | None = None,
    settings: dict[str, Any] | None = None,
) -> str:
    """The page as text."""
    effects = effects_of(result)
    asked = {**(settings or {}), **result.settings}
    name = title or _title(result, effects)
    parts = [
        _header(result, effects, asked, name),
        _section("answer", "The answer", answer(result, effects, as_pairs(predictions), list(comparisons))),
        _section("certainty", "How sure", certainty(result, effects)),
        _section("cost", "What it cost", cost(result, asked)),
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


def _section(name: str, heading: str, content: Markup) -> Markup:
    return element("section", element("h2", heading, id=f"{name}-heading"), content, id=name)


def _title(result: Result, effects: Effects) -> str:
    """What was fitted, in a few words."""
    family = FAMILIES.get(result.regression.family) if result.regression is not None else None
    if family and result.encoding is not None:
        return f"{family} of {result.encoding['response']}"
    if family:
        return family
    if not effects.all:
        return f"Posterior expectations of {listed(list(result))}"
    return f"Posterior of {counted(len(effects.all), 'parameter')}"


def _header(result: Result, effects: Effects, settings: dict[str, Any], title: str) -> Markup:
    formula = settings.get("formula") or _formula(result)
    links = [("#answer", "The answer"), ("#certainty", "How sure"), ("#cost", "What it cost")]
    return element(
        "header",
        element("h1", title),
        element("p", element("code", formula), class_="formula") if formula else None,
        element("p", _lead(result, effects, settings), class_="lead"),
        _status(result, settings),
        element("nav", *(element("a", text, href=href) for href, text in links), aria_label="Parts of this report"),
    )


def _formula(result: Result) -> str | None:
    encoding = result.encoding
    return None if encoding is None else f"{encoding['response']} ~ {encoding['coding']['right']}"


def _lead(result: Result, effects: Effects, settings: dict[str, Any]) -> str:
    """What was fitted to what, and what the intervals say."""
    kind = "coefficient" if effects.is_regression else "parameter"
    family = FAMILIES.get(result.regression.family) if result.regression is not None else None
    what = family or "A posterior"
    size = f" with {counted(len(effects.all), kind)}" if effects.all else ""
    source = f" of {os.path.basename(str(settings['data']))}" if settings.get("data") else ""
    rows = f"{what}{size}, given {counted(result.cost.num_data, 'row')}{source}."
    return f"{rows} {finding(effects)}".strip()


def _status(result: Result, settings: dict[str, Any]) -> Markup:
    if result.converged:
        return element(
            "p", f"✓ Converged: every number met the accuracy asked for{_accuracy(settings)}.", class_="status"
        )
    estimates = result.estimates.values()
    total = sum(each.structure.size for each in estimates)
    missed = sum(int(np.sum(~(each.flat_error <= each.flat_tolerance))) for each in estimates)
    unknown = sum(int(np.sum(~np.isfinite(each.flat_error))) for each in estimates)
    blind = f" Of {unknown:,} the error is unknown{', as too few levels were sampled' * (len(result.levels) < 3)}."
    words = f"{missed:,} of {counted(total, 'number')} missed the accuracy asked for{_accuracy(settings)}."
    status = str(result.status)
    return element(
        "div",
        element("p", element("strong", "Not converged. "), f"{status[:1].upper()}{status[1:]}."),
        element("p", MEANINGS.get(result.status, NOT_TO_BE_TRUSTED)),
        element("p", words + (blind if unknown else "")) if missed else None,
        class_="warning",
        role="note",
        aria_label="Warning",
    )


def _accuracy(settings: dict[str, Any]) -> str:
    """What was asked for, in words."""
    for kind, unit in UNITS.items():
        sizes = settings.get(kind)
        if sizes is not None:
            each = sizes.items() if isinstance(sizes, dict) else [("", sizes)]
            return ", " + listed([f"{size:g}{unit}{f' for {name}' if name else ''}" for name, size in each])
    return ""
