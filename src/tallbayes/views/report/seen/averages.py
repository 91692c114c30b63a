"""Average effects: what changing one column does to the mean response, on average over the rows.

Those that were asked for; else those of the columns that are numbers or have two levels, where there are few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tallbayes.results.fitted import family_of
from tallbayes.results.result import Result
from tallbayes.views.report.asked.answers import averages_table
from tallbayes.views.report.markup import Markup, PageColumn, alone, column, element, folded, join, table
from tallbayes.views.report.seen.at_hand import are_at_hand, can_be_asked, if_answered
from tallbayes.views.report.seen.rates import response_name

# Each takes most of a second of a processor, however many rows there are.
MOST_COLUMNS = 2
KINDS = ("AverageEffect", "AverageEffects")


def are_averages(answer: Any) -> bool:
    """By its type's name: what they are made of need not be read for a page without them."""
    return type(answer).__name__ in KINDS


def averages_of(result: Result, answers: Sequence[Any]) -> list[Any]:
    """Those that were asked for, or else those that take little."""
    asked = [each for each in answers if are_averages(each)]
    if asked or result.encoding is None or not (are_at_hand(result) and can_be_asked(result)):
        return asked
    questions = _questions(result)
    if not 0 < len(questions) <= MOST_COLUMNS:
        return []
    found = [if_answered(each) for each in questions]
    return [each for each in found if each is not None]


def _questions(result: Result) -> list[Callable[[], Any]]:
    from tallbayes.formula.expressions import read_side

    assert result.encoding is not None
    coding: Any = result.encoding["coding"]
    made: list[Callable[[], Any]] = []
    levels: dict[str, Any] = dict(coding["categories"]["items"])
    kinds = coding.get("kinds", {})
    # Columns that are in the formula of the noise alone move no mean.
    read = kinds if coding.get("second") is None else read_side(coding["right"], tuple(kinds))
    for name, kind in kinds.items():
        if name not in read:
            continue
        if kind != "categories":
            made.append(partial(result.average_slope, name))
            continue
        two: Any = levels.get(name) or levels.get(f"C({name})") or ()
        if len(two) == 2:
            made.append(partial(result.average_effect, name, two[1], two[0]))
    return made


def average_effects(result: Result, found: Sequence[Any]) -> Markup | None:
    if not found:
        return None
    return join(
        [element("h3", "Average effects", id="averages"), element("p", _lead(result), class_="soft"), _table(found)]
    )


def _lead(result: Result) -> str:
    family = family_of(result)
    is_share = family is not None and family.response == "binary"
    what = f"the share with {response_name(result)}" if is_share else f"the mean of {response_name(result)}"
    unit = ": 0.01 is one percentage point" if is_share else ""
    return (
        f"By how much {what} would differ if one column were different in every row and all others stayed as they "
        f"are, on average over the rows{unit}. A slope is for one unit more of its column. That is what the fit says "
        "of rows that differ so, not what would come of changing them."
    )


def _table(found: Sequence[Any]) -> Markup:
    """In words and short numbers; every digit is folded below."""
    single = [one for each in found for one in (each.effects if hasattr(each, "effects") else [each])]
    texts = [_texts(each) for each in single]
    columns = [
        column("on average", [mean for mean, _ in texts]),
        PageColumn("95% interval", [ends for _, ends in texts]),
    ]
    short = table("Average effects.", "of", [each.name for each in single], columns, label="Average effects, short")
    return join([short, folded("Average effects in numbers", [averages_table(single)])])


def _texts(one: Any) -> tuple[str, str]:
    """To two digits of the interval, and no further than errors allow."""
    gap = min(one.mean.value - one.lower.value, one.upper.value - one.mean.value)
    mean, lower, upper = (alone(number.value, number.error, gap) for number in (one.mean, one.lower, one.upper))
    return mean, f"{lower} to {upper}"
