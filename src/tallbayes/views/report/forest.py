"""The forest plot of a report: every effect as a point and an interval, and in a sentence what they say.

Categories share an axis, numeric columns have others by their magnitude. Numbers stand beside the lines without their
errors, so they end at the last digit that these leave alone; tables have all digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from tallbayes.results.coefficients import Number
from tallbayes.views.numbers import ROUGH
from tallbayes.views.report.charts import ForestRow, Panel, intervals
from tallbayes.views.report.effects import Effect, ReportedEffects, most_notable
from tallbayes.views.report.markup import Markup, alone, element, listed, plain
from tallbayes.views.report.scales import by_magnitude

MOST_PLOTTED = 40
LEAST_SEEN = 0.02
FAR_APART = 8.0
LONGEST = 11
ABOUT_MARKS = "~ stands before a number that is less accurate than it should be, or whose error is unknown."


def finding(effects: ReportedEffects) -> str:
    """What the intervals say, in a sentence."""
    shown, origin = effects.plotted, "1" if effects.shows_ratios else "0"
    clear = [each for each in shown if each.is_clear]
    if not shown:
        return ""
    if len(shown) == 1:
        return f"The 95% interval of {shown[0].term.short} {'leaves out' if clear else 'holds'} {origin}."
    what = f"{len(shown):,} {noun(effects)}s"
    if not clear:
        return f"None of the {what} is clear of {origin}: every 95% interval holds it."
    most = sorted(clear, key=lambda each: -each.clearness)[:3]
    named = listed([f"{each.term.short} ({_texts(each, effects.shows_ratios)[0]})" for each in most])
    many = f"All {what} are" if len(clear) == len(shown) else f"{len(clear):,} of {what} {_be(len(clear))}"
    most_of_all = ", most of all" if len(clear) > len(most) else ":"
    return f"{many} clear of {origin} (the 95% interval leaves it out){most_of_all} {named}."


def noun(effects: ReportedEffects) -> str:
    """What the plotted numbers are called."""
    if effects.shows_ratios:
        return str(effects.ratio)
    return "coefficient" if effects.is_regression else "parameter"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def forest(effects: ReportedEffects) -> Markup | None:
    if not effects.plotted:
        return None
    shown = most_notable(effects.plotted, MOST_PLOTTED)
    what = noun(effects)
    drawing = intervals("forest", f"{what.capitalize()}s with 95% intervals", finding(effects), _panels(effects, shown))
    return element("figure", drawing, element("figcaption", _forest_caption(effects, shown)))


def _forest_caption(effects: ReportedEffects, shown: Sequence[Effect]) -> str:
    ratios, left = effects.shows_ratios, len(effects.plotted) - len(shown)
    point = "posterior median" if ratios and effects.has_quantiles else "posterior mean"
    ends = "95% equal-tailed interval" if effects.has_quantiles else "mean ± 1.96 sd, as this run kept no posterior"
    origin = "1" if ratios else "0"
    sentences = [f"Dot: {point}; line: {ends}. Full dots are clear of {origin}, open ones are not."]
    if any(any(each.is_rough) for each in shown):
        sentences.append(ABOUT_MARKS)
    numeric = [each for each in shown if not (each.term.is_category or each.term.is_intercept or each.term.is_extra)]
    if numeric and effects.is_regression:
        sentences.append("Numeric columns: for one unit more, each in a unit of its own.")
    if ratios:
        sentences.append("Axes are logarithmic.")
    if left:
        sentences.append(f"Shown are the {len(shown)} that are clearest of {origin}; the table has {left:,} more.")
    missing = [each for each in effects.all if each not in effects.plotted]
    names = list(dict.fromkeys(e.term.label for e in missing if e.term.is_intercept or e.term.is_extra))
    if names and len(names) <= 4:
        sentences.append(f"Left out of the plot: {listed(names)}.")
    return " ".join(sentences)


def _panels(effects: ReportedEffects, shown: Sequence[Effect]) -> list[Panel]:
    """Categories share an axis; numeric columns, which have units of their own, another, or several."""
    numbers = [each for each in shown if not each.term.is_category]
    extents = [max(abs(each.lower.value), abs(each.upper.value)) for each in numbers]
    widths = [each.upper.value - each.lower.value for each in numbers]
    axis = dict(zip((id(each) for each in numbers), by_magnitude(extents, widths, LEAST_SEEN, FAR_APART), strict=True))
    keys = list(dict.fromkeys(axis.get(id(each), -1) for each in shown))
    made = []
    for key in keys:
        mine = [each for each in shown if axis.get(id(each), -1) == key]
        rows = [_interval(each, effects.shows_ratios) for each in mine]
        made.append(Panel(_axis_title(effects, key, len(keys) > 1), rows, effects.shows_ratios))
    return made


def _axis_title(effects: ReportedEffects, key: int, several: bool) -> str:
    what = noun(effects)
    if not several or not effects.is_regression:
        return what
    return f"{what} against the reference" if key < 0 else f"{what} for one unit more"


def _interval(each: Effect, ratio: bool) -> ForestRow:
    point, lower, upper = _texts(each, ratio)
    places = each.point.value, each.lower.value, each.upper.value
    return ForestRow(each.term.label, *places, (point, f"{lower} to {upper}"), each.is_clear, each.term.group)


def _texts(each: Effect, ratio: bool) -> tuple[str, str, str]:
    """Point and ends to two digits of the distance between them, and no further than their errors allow."""
    numbers = [number.exponential if ratio else number for number in (each.point, each.lower, each.upper)]
    gap = min(numbers[0].value - numbers[1].value, numbers[2].value - numbers[0].value)
    texts = [_alone(number, gap, rough) for number, rough in zip(numbers, each.is_rough, strict=True)]
    return texts[0], texts[1], texts[2]


def _alone(number: Number, gap: float, rough: bool) -> str:
    text = alone(*number, gap)
    text = text if len(text) <= LONGEST else plain(number.value, 3)
    return text if not rough or text.startswith(ROUGH) or not isfinite(number.value) else f"{ROUGH}{text}"
