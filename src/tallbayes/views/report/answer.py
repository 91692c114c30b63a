"""The first part of a report, the answer: a forest plot, every coefficient with its errors, and what else was asked.

averages       what changing one column does, see `seen`
curves         squares, splines and smooths as curves, see `seen`
effects        ratios on a logarithmic axis where the family has them, else coefficients; then tables of both
groups         see `report_groups`
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

from tallbayes.results.coefficients import Number, shown_size
from tallbayes.results.fitted import family_of
from tallbayes.results.result import Result
from tallbayes.results.verdict import has_numbers
from tallbayes.views.advice import Door
from tallbayes.views.numbers import UNKNOWN, rounded, share
from tallbayes.views.report.effects import Effect, ReportedEffects
from tallbayes.views.report.forest import ABOUT_MARKS, forest, noun
from tallbayes.views.report.groups import groups
from tallbayes.views.report.markup import (
    Markup,
    PageColumn,
    column,
    counted,
    element,
    figures,
    join,
    listed,
    measured,
    plain,
    table,
    typed,
)
from tallbayes.views.report.modes import modes
from tallbayes.views.report.seen.averages import average_effects
from tallbayes.views.report.seen.curves import ShownCurve, effect_curves
from tallbayes.views.tables import component_names

if TYPE_CHECKING:
    from tallbayes.posterior.prediction import Prediction
    from tallbayes.results.comparisons import Comparison

MOST_OPEN = 20
MOST_PREDICTED = 20
CERTAIN = 1e-6
MOST_NAMED = 4
ABOUT_ERRORS = "± is the Monte Carlo error of the number before it (root mean square, remaining bias included)."


def answer(
    result: Result,
    effects: ReportedEffects,
    predictions: Sequence[tuple[str, Prediction]],
    comparisons: Sequence[Comparison],
    door: Door,
    averages: Sequence[Any] = (),
    curves: Sequence[ShownCurve] = (),
) -> Markup:
    """All of it, below its heading."""
    if not has_numbers(result):
        return element("p", "None: the run ended before it had a number.")
    parts = [average_effects(result, averages), effect_curves(curves)]
    parts += [_effects(result, effects, door), groups(result), _quantities(result, effects.others)]
    parts += [modes(result, effects)]
    parts += [_predictions(result, predictions), _comparisons(comparisons)]
    return join(parts)


def _effects(result: Result, effects: ReportedEffects, door: Door) -> Markup:
    if not effects.all:
        return join([])
    heading = element("h3", f"{noun(effects)}s".capitalize(), id="effects")
    return join([heading, forest(effects), _without_ratio(effects, door), *_tables(result, effects)])


def _without_ratio(effects: ReportedEffects, door: Door) -> Markup | None:
    """Why some coefficients have no ratio."""
    without = effects.without_ratio
    if not without:
        return None
    names = list(dict.fromkeys(each.term.factor or each.term.label for each in without))
    most = [*names[:MOST_NAMED], *([f"{len(names) - MOST_NAMED:,} more"] if len(names) > MOST_NAMED else [])]
    why = (
        f"No {effects.ratio} is given for {listed(most)}: none of these columns can change while all others stay as "
        f"they are (x cannot while its square stays), so that exp of one coefficient is no {effects.ratio} between any "
        "two rows. Their coefficients are below"
    )
    return element("p", why, "; for what they do together, ", typed(door.at_two_rows), ".", class_="soft footnote")


def _tables(result: Result, effects: ReportedEffects) -> list[Markup]:
    """Of ratios where there are any, and of coefficients."""
    ends = ("2.5% end", "97.5% end") if effects.has_quantiles else ("mean \N{MINUS SIGN} 1.96 sd", "mean + 1.96 sd")
    kind = "coefficient" if effects.is_regression else "parameter"
    missed = not all(each.met for name, each in result.estimates.items() if name in ("mean", "sd"))
    marked = f" {ABOUT_MARKS}" if missed or any(any(each.is_rough) for each in effects.all) else ""
    about = f"Posterior of every {kind}. {ABOUT_ERRORS}{marked}"
    content = _table(about, effects.all, _columns(result, effects, ends), kind)
    many = counted(len(effects.all), kind)
    if not effects.shows_ratios:
        return [_folded(f"All {many} in numbers" if len(effects.all) > 1 else "In numbers", content)]
    ratios = [each for each in effects.all if each.is_ratio]
    heads = zip((str(effects.ratio), *ends), ("point", "lower", "upper"), strict=True)
    columns = [
        measured(head, [getattr(each, part).exponential for each in ratios], [each.is_rough[place] for each in ratios])
        for place, (head, part) in enumerate(heads)
    ]
    middle = "median" if effects.has_quantiles else "mean"
    marks = f" {ABOUT_MARKS}" if any(any(each.is_rough) for each in ratios) else ""
    caption = f"exp of a coefficient's posterior {middle}, and of the ends of its 95% interval. {ABOUT_ERRORS}{marks}"
    summary = f"All {counted(len(ratios), str(effects.ratio))} in numbers" if len(ratios) > 1 else "In numbers"
    logs = _folded(f"All {many}: mean, sd and ends, before exp", content)
    return [_folded(summary, _table(caption, ratios, columns)), logs]


def _columns(result: Result, effects: ReportedEffects, ends: tuple[str, str]) -> list[PageColumn]:
    """Of the coefficients themselves; those of which nothing is known are left out."""
    found, missed = [each.coefficient for each in effects.all], _missed(result, effects)
    rough = list(zip(*(each.is_rough for each in effects.all), strict=True))
    parts: list[tuple[str, list[Number], Sequence[bool]]] = [
        (name, [getattr(each, name) for each in found], missed.get(name, ())) for name in ("mean", "sd")
    ]
    if not any(isfinite(each.mean.value) for each in found):
        parts.append(("median", [each.median for each in found], rough[0]))
    parts += [(ends[0], [each.lower for each in effects.all], rough[1])]
    parts += [(ends[1], [each.upper for each in effects.all], rough[2])]
    columns = [measured(*part) for part in parts if any(isfinite(each.value) for each in part[1])]
    if not any(map(any, missed.values())):
        return columns
    words = ["not met" if any(each) else "met" for each in zip(*missed.values(), strict=True)]
    return [*columns, PageColumn("accuracy", words, numeric=False)]


def _missed(result: Result, effects: ReportedEffects) -> dict[str, list[bool]]:
    """Of means and sds, which missed the accuracy that was asked for."""
    found = {}
    for name in ("mean", "sd"):
        estimate = result.estimates.get(name)
        if estimate is not None and shown_size(result, estimate) == len(effects.all):
            missed = ~(estimate.flat_error <= estimate.flat_tolerance)
            found[name] = [bool(missed[each.place]) for each in effects.all]
    return found


def _table(caption: str, effects: Sequence[Effect], columns: Sequence[PageColumn], head: str = "coefficient") -> Markup:
    names = [each.term.label for each in effects]
    return table(caption, head, names, columns, [each.term.group for each in effects])


def _folded(summary: str, content: Markup) -> Markup:
    """For those who want every digit."""
    return element("details", element("summary", summary), content)


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
        spans += [_span(*ends) for ends in zip(*each.flat_interval, each.flat_error, strict=True)]
        tolerances += [plain(float(number)) for number in each.flat_tolerance]
        met += [
            "met" if error <= most else "not met"
            for error, most in zip(each.flat_error, each.flat_tolerance, strict=True)
        ]
    rough = [each == "not met" for each in met]
    columns = [measured("posterior expectation", pairs, rough), PageColumn("95% confidence", spans)]
    columns += [column("asked for", tolerances), PageColumn("accuracy", met, numeric=False)]
    marks = f" {ABOUT_MARKS}" if any(rough) else ""
    caption = f"Posterior expectations of the quantities that were asked for. {ABOUT_ERRORS}{marks}"
    content = table(caption, "quantity", labels, columns, groups)
    shown = content if len(labels) <= MOST_OPEN else _folded(f"All {len(labels):,} numbers", content)
    return join([element("h3", "Quantities", id="quantities"), shown])


def _span(low: float, high: float, error: float) -> str:
    """Both ends; the whole line says no more than that nothing is known."""
    return f"{figures(low, error)[0]} to {figures(high, error)[0]}" if isfinite(low) and isfinite(high) else UNKNOWN


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
