"""The first part of a report, the answer: a forest plot, every coefficient with its errors, and what else was asked.

effects        ratios on a logarithmic axis where the family has them, else coefficients; then tables of both
quantities     the user's own
modes          see `report_modes`
predictions    (label, Prediction) pairs
comparisons    what result.compare returned
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.estimator.estimates import Estimate
from tallbayes.results.coefficients import Number
from tallbayes.results.result import Result, family_of
from tallbayes.views.numbers import UNKNOWN, decimals_of, rounded, share
from tallbayes.views.report.charts import ForestRow, Panel, intervals
from tallbayes.views.report.effects import Effect, Effects, has_numbers, most_notable
from tallbayes.views.report.markup import (
    Markup,
    PageColumn,
    column,
    counted,
    element,
    fixed,
    join,
    listed,
    measured,
    plain,
    table,
)
from tallbayes.views.report.modes import modes
from tallbayes.views.report.scales import by_magnitude
from tallbayes.views.tables import component_names

if TYPE_CHECKING:
    from tallbayes.posterior.prediction import Prediction
    from tallbayes.results.comparisons import Comparison

MOST_PLOTTED = 40
MOST_OPEN = 60
MOST_PREDICTED = 20
LEAST_SEEN = 0.02
FAR_APART = 8.0
CERTAIN = 1e-6
ABOUT_ERRORS = "± is the Monte Carlo error of the number before it (root mean square, remaining bias included)."


def answer(
    result: Result, effects: Effects, predictions: Sequence[tuple[str, Prediction]], comparisons: Sequence[Comparison]
) -> Markup:
    """All of it, below its heading."""
    if not has_numbers(result):
        return element("p", "None: the run ended before it had a number.")
    parts = [_effects(result, effects), _quantities(result, effects.others), modes(result, effects)]
    parts += [_predictions(result, predictions), _comparisons(comparisons)]
    return join(parts)


def finding(effects: Effects) -> str:
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


def noun(effects: Effects) -> str:
    """What the plotted numbers are called."""
    if effects.shows_ratios:
        return str(effects.ratio)
    return "coefficient" if effects.is_regression else "parameter"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _effects(result: Result, effects: Effects) -> Markup:
    if not effects.all:
        return join([])
    heading = element("h3", f"{noun(effects)}s".capitalize(), id="effects")
    parts = [heading, _forest(effects), *_tables(result, effects)]
    return join(parts)


def _forest(effects: Effects) -> Markup | None:
    if not effects.plotted:
        return None
    shown = most_notable(effects.plotted, MOST_PLOTTED)
    what = noun(effects)
    drawing = intervals("forest", f"{what.capitalize()}s with 95% intervals", finding(effects), _panels(effects, shown))
    return element("figure", drawing, element("figcaption", _forest_caption(effects, shown)))


def _forest_caption(effects: Effects, shown: Sequence[Effect]) -> str:
    ratios, left = effects.shows_ratios, len(effects.plotted) - len(shown)
    point = "posterior median" if ratios and effects.has_quantiles else "posterior mean"
    ends = "95% equal-tailed interval" if effects.has_quantiles else "mean ± 1.96 sd, as this run kept no posterior"
    origin = "1" if ratios else "0"
    sentences = [f"Dot: {point}; line: {ends}. Full dots are clear of {origin}, open ones are not."]
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


def _panels(effects: Effects, shown: Sequence[Effect]) -> list[Panel]:
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


def _axis_title(effects: Effects, key: int, several: bool) -> str:
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
    point, lower, upper = (number.value for number in numbers)
    gap = min(point - lower, upper - point)
    largest = max((number.error for number in numbers if isfinite(number.error)), default=0.0)
    least = max(gap, largest)
    if not (isfinite(least) and least > 0):
        return plain(point, 4), plain(lower, 4), plain(upper, 4)
    decimals = max(decimals_of(least), 0)
    if decimals > 8 or max(abs(lower), abs(upper)) >= 1e7:
        return plain(point, 3), plain(lower, 3), plain(upper, 3)
    return fixed(point, decimals), fixed(lower, decimals), fixed(upper, decimals)


def _tables(result: Result, effects: Effects) -> list[Markup]:
    """Of ratios where there are any, and of coefficients."""
    ends = ("2.5% end", "97.5% end") if effects.has_quantiles else ("mean \N{MINUS SIGN} 1.96 sd", "mean + 1.96 sd")
    kind = "coefficient" if effects.is_regression else "parameter"
    content = _table(f"Posterior of every {kind}. {ABOUT_ERRORS}", effects.all, _columns(result, effects, ends), kind)
    many = counted(len(effects.all), kind)
    if not effects.shows_ratios:
        return [_folded(f"All {many} in numbers" if len(effects.all) > 1 else "In numbers", content, len(effects.all))]
    ratios = [each for each in effects.all if each.is_ratio]
    heads = zip((str(effects.ratio), *ends), ("point", "lower", "upper"), strict=True)
    columns = [measured(head, [getattr(each, part).exponential for each in ratios]) for head, part in heads]
    middle = "median" if effects.has_quantiles else "mean"
    caption = f"exp of a coefficient's posterior {middle}, and of the ends of its 95% interval. {ABOUT_ERRORS}"
    summary = f"All {counted(len(ratios), str(effects.ratio))} in numbers" if len(ratios) > 1 else "In numbers"
    logs = element("details", element("summary", f"All {many}: mean, sd and ends, before exp"), content)
    return [_folded(summary, _table(caption, ratios, columns), len(ratios)), logs]


def _columns(result: Result, effects: Effects, ends: tuple[str, str]) -> list[PageColumn]:
    """Of the coefficients themselves; those of which nothing is known are left out."""
    found = [each.coefficient for each in effects.all]
    parts = [("mean", [each.mean for each in found]), ("sd", [each.sd for each in found])]
    if not any(isfinite(each.mean.value) for each in found):
        parts.append(("median", [each.median for each in found]))
    parts += [(ends[0], [each.lower for each in effects.all]), (ends[1], [each.upper for each in effects.all])]
    columns = [measured(head, numbers) for head, numbers in parts if any(isfinite(each.value) for each in numbers)]
    return columns + _unmet([result[name] for name in ("mean", "sd") if name in result.estimates], len(found))


def _table(caption: str, effects: Sequence[Effect], columns: Sequence[PageColumn], head: str = "coefficient") -> Markup:
    names = [each.term.label for each in effects]
    return table(caption, head, names, columns, [each.term.group for each in effects])


def _folded(summary: str, content: Markup, length: int) -> Markup:
    """Open where it is short."""
    return element("details", element("summary", summary), content, open="" if length <= MOST_OPEN else None)


def _unmet(estimates: Sequence[Estimate], count: int) -> list[PageColumn]:
    """A column that says which numbers missed the accuracy that was asked for, where any did."""
    missed = [~(each.flat_error <= each.flat_tolerance) for each in estimates if each.structure.size == count]
    if not missed or not np.any(missed):
        return []
    return [PageColumn("accuracy", ["not met" if each else "met" for each in np.any(missed, axis=0)], numeric=False)]


def _quantities(result: Result, names: Sequence[str]) -> Markup | None:
    """Whatever else was estimated."""
    estimates = [result[name] for name in names]
    if not estimates:
        return None
    labels, groups, pairs, spans, tolerances, met = [], [], [], [], [], []
    for each in estimates:
        components = component_names(each)
        labels += components
        groups += [each.name if len(components) > 1 else ""] * len(components)
        pairs += list(zip(each.flat_value, each.flat_error, strict=True))
        spans += [_span(low, high) for low, high in zip(*each.flat_interval, strict=True)]
        tolerances += [plain(float(number)) for number in each.flat_tolerance]
        met += [
            "met" if error <= most else "not met"
            for error, most in zip(each.flat_error, each.flat_tolerance, strict=True)
        ]
    columns = [measured("posterior expectation", pairs), PageColumn("95% confidence", spans)]
    columns += [column("asked for", tolerances), PageColumn("accuracy", met, numeric=False)]
    caption = f"Posterior expectations of the quantities that were asked for. {ABOUT_ERRORS}"
    content = table(caption, "quantity", labels, columns, groups)
    shown = content if len(labels) <= MOST_OPEN else _folded(f"All {len(labels):,} numbers", content, len(labels))
    return join([element("h3", "Quantities", id="quantities"), shown])


def _span(low: float, high: float) -> str:
    """Both ends; the whole line says no more than that nothing is known."""
    return f"{plain(float(low), 4)} to {plain(float(high), 4)}" if isfinite(low) and isfinite(high) else UNKNOWN


def _predictions(result: Result, predictions: Sequence[tuple[str, Prediction]]) -> Markup | None:
    if not predictions:
        return None
    rows = [row for label, each in predictions for row in _predicted(result, label, each)]
    left = sum(max(0, len(each) - MOST_PREDICTED) for _, each in predictions)
    columns = [
        PageColumn("what", [what for _, what, *_ in rows], numeric=False),
        measured("posterior mean", [pair for _, _, pair, _, _ in rows]),
        measured("posterior sd", [sd for _, _, _, sd, _ in rows]),
    ]
    if any(span for *_, span in rows):
        columns.append(PageColumn("a new observation", [span for *_, span in rows], numeric=False))
    more = f" {left:,} more rows are not shown." if left else ""
    caption = f"Predictions for new rows. {ABOUT_ERRORS} The sd is that of what is expected, noise apart.{more}"
    return join(
        [
            element("h3", "Predictions", id="predictions"),
            table(caption, "row", [label for label, *_ in rows], columns),
        ]
    )


def _predicted(result: Result, label: str, each: Prediction) -> list[tuple[str, str, Number, Number, str]]:
    """Label, what is predicted, its mean, its sd, and where a new observation would be, for every row and class."""
    found = []
    for row in range(min(len(each), MOST_PREDICTED)):
        name = label if len(each) == 1 else f"{label} {row + 1}".strip()
        if each.mean.ndim == 1:
            found.append((name, _response(result), *_cell(each, row), _observed(each, row)))
        else:
            classes = each.classes or tuple(range(each.mean.shape[1]))
            found += [(name, f"P({kind})", *_cell(each, (row, place)), "") for place, kind in enumerate(classes)]
        found += [(name, f"P({_name(result)} ≥ {k})", *_cell(tail, row), "") for k, tail in each.at_least.items()]
    return found


def _observed(each: Prediction, row: int) -> str:
    """The ends for a new observation, to the digits that are known, and what part of them is between."""
    ends, about = each.observation_interval, each.observation
    if ends is None or about is None or about.interval_error is None or about.probability is None:
        return ""
    low, high = (rounded(float(end[row]), float(about.interval_error[row])) for end in ends)
    return f"{low} to {high} ({share(about.probability)})"


def _cell(each: Prediction, place: Any) -> tuple[Number, Number]:
    pairs = (each.mean, each.error), (each.sd, each.sd_error)
    mean, sd = (Number(float(value[place]), float(error[place])) for value, error in pairs)
    return mean, sd


def _name(result: Result) -> str:
    return "y" if result.encoding is None else str(result.encoding["response"])


def _response(result: Result) -> str:
    """What a single predicted number is called."""
    family = family_of(result)
    if family is None or family.response != "binary":
        return f"expected {_name(result)}" if result.regression is not None else "prediction"
    classes = None if result.encoding is None else result.encoding["classes"]
    if classes is None or classes[-1] in (True, 1):
        return f"P({_name(result)})"
    return f"P({_name(result)} = {classes[-1]})"


def _comparisons(comparisons: Sequence[Comparison]) -> Markup | None:
    if not comparisons:
        return None
    parts = [element("h3", "Comparisons", id="comparisons")]
    for kind, group in groupby(comparisons, key=lambda each: each.kind):
        parts.append(_compared(list(group), kind))
    return join(parts)


def _compared(comparisons: Sequence[Comparison], kind: str | None) -> Markup:
    """A table of comparisons of one kind: as ratios where that is what they are, else as differences."""
    rows: list[Any] = [each.ratio or each for each in comparisons]
    middles = [each.median if kind else each.mean for each in rows]
    columns = [
        measured(kind or "difference", middles),
        measured("lower end", [each.lower for each in rows]),
        measured("upper end", [each.upper for each in rows]),
        _probabilities("P(first is larger)", [each.probability for each in comparisons]),
    ]
    what = f"{kind.capitalize()}: posterior median" if kind else "Difference: posterior mean"
    caption = f"{what}, ends of its equal-tailed interval, and the probability that the first is the larger."
    names = [f"{each.a} against {each.b}" for each in comparisons]
    return table(f"{caption} {ABOUT_ERRORS}", "comparison", names, columns)


def _probabilities(head: str, numbers: Sequence[Number]) -> PageColumn:
    """Those that no digit tells from 0 or 1 are bounded instead."""
    made = measured(head, numbers)
    cells = [
        cell if not (isfinite(each.value) and each.error < CERTAIN) or CERTAIN < each.value < 1 - CERTAIN else bound
        for cell, each in zip(made.cells, numbers, strict=True)
        for bound in [f"> {1 - CERTAIN:.6f}" if each.value > 0.5 else f"< {CERTAIN:.6f}"]
    ]
    return PageColumn(head, cells)


def as_pairs(predictions: Any) -> list[tuple[str, Prediction]]:
    """Predictions as (label, Prediction) pairs, from a list of them, a dict, or one alone."""
    if predictions is None:
        return []
    if isinstance(predictions, Mapping):
        return [(str(label), each) for label, each in predictions.items()]
    if hasattr(predictions, "standard_error"):
        return [("row", predictions)]
    return [(str(label), each) for label, each in predictions]
