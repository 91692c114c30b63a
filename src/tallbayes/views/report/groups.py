"""Groups in a report: shares of variance, then by factor a caterpillar plot, how groups are drawn together, and tables.

Up to `MOST_NAMED` groups all are named; beyond that the highest and the lowest are, and the others are a ribbon of
their sorted means (`ribbons`), which is as readable with a hundred thousand groups as with a hundred.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tallbayes.results.fitted import family_of
from tallbayes.results.groups.effects import Effects, known_effects
from tallbayes.results.groups.partition import VariancePartition, known_partition
from tallbayes.results.result import Result
from tallbayes.views.numbers import with_error
from tallbayes.views.report.charts import ForestRow, Panel, intervals
from tallbayes.views.report.markup import (
    Markup,
    PageColumn,
    alone,
    column,
    counted,
    element,
    in_page,
    join,
    listed,
    measured,
    neat,
    table,
)
from tallbayes.views.report.ribbons import FAR, Ribbon, ribbon_of
from tallbayes.views.report.shrinkage import LINKS, MOST_DOTS, shrinkage, some_groups

MOST_NAMED = 60
EXTREMES = 10
MOST_OPEN = 10
ABOUT_ERRORS = "± is the Monte Carlo error of the number before it (root mean square, remaining bias included)."


def groups(result: Result) -> Markup | None:
    """All that is known of them; None where there are none."""
    if not result.factors and not result.stored_effects:
        return None
    shares = known_partition(result)
    parts: list[Markup | None] = [] if shares is None else [_partition(shares)]
    for number, found in enumerate(known_effects(result)):
        parts.append(_factor(result, found, number))
    return join(parts)


def _partition(shares: VariancePartition) -> Markup:
    columns = [
        measured(head, [(each.value, each.error) for each in numbers])
        for head, numbers in (
            ("share", [each.share for each in shares]),
            ("2.5% end", [each.lower for each in shares]),
            ("97.5% end", [each.upper for each in shares]),
        )
    ]
    caption = (
        "Shares of the variance of a row about its mean, on the scale of the linear predictor (of one factor with an "
        f"intercept alone, the intraclass correlation): posterior mean and 95% interval. The residual is "
        f"{shares.residual.replace('pi^2 / 3', 'π² / 3')}. {ABOUT_ERRORS}"
    )
    heading = element("h3", "Shares of variance", id="shares")
    return join([heading, table(caption, "variance of", list(shares.names), columns)])


def _factor(result: Result, found: Effects, number: int) -> Markup:
    heading = element("h3", f"Effects by {found.by}", id=f"groups-{number}")
    plots = [_caterpillar(found, place, f"groups-{number}-{place}") for place in range(len(found.names))]
    drawn = _shrinkage(result, found, f"shrinkage-{number}")
    return join([heading, element("p", _lead(found)), *plots, drawn, _table(found)])


def _lead(found: Effects) -> str:
    """How many, how large, and how strongly they are drawn together."""
    counts = found.counts
    sizes = f"{neat(float(np.median(counts)))} rows each in the median, {counts.min():,.0f} to {counts.max():,.0f}"
    clear = [
        f"{int(np.sum(is_clear)):,}{f' ({name})' if len(found.names) > 1 else ''}"
        for name, is_clear in zip(found.names, _clear(found).T, strict=True)
    ]
    kept = [
        f"{in_page(with_error(*found.usual_kept(place)))}{f' ({name})' if len(found.names) > 1 else ''}"
        for place, name in enumerate(found.names)
    ]
    return (
        f"{counted(len(found), 'group')} by {found.by}, {sizes}. The 95% interval of {listed(clear)} of them leaves "
        f"out 0, the usual group. Of the variance between groups {listed(kept)} is kept by the median group: "
        "1 would be a group that its own rows decide, 0 one that is drawn all the way to the others."
    )


def _clear(found: Effects) -> np.ndarray:
    """By group and effect, whether its interval leaves out zero, surely."""
    return (found.lower - 2 * found.end_error > 0) | (found.upper + 2 * found.end_error < 0)


def _caterpillar(found: Effects, place: int, name: str) -> Markup:
    order = np.argsort(-found.mean[:, place], kind="stable")
    few = len(order) <= MOST_NAMED
    named = order if few else np.concatenate([order[:EXTREMES], order[-EXTREMES:]])
    clear = _clear(found)[:, place]
    rows = [_row(found, int(group), place, bool(clear[group])) for group in named]
    what = f"effect by {found.by}" if len(found.names) == 1 else f"{found.names[place]} by {found.by}"
    rest = None if few else _ribbon(found, order[EXTREMES:-EXTREMES], place)
    highest, lowest = (str(found.levels[int(group)]) for group in (order[0], order[-1]))
    finding = f"The highest is {highest}, the lowest {lowest}, of {counted(len(found), 'group')}."
    drawing = intervals(name, f"{what.capitalize()}, sorted", finding, [Panel(what, rows, ribbon=rest)])
    dot = "Dot: posterior mean; line: 95% interval. Full dots are clear of 0, open ones are not."
    if rest is not None:
        dot += (
            f" Named are the {EXTREMES} highest and the {EXTREMES} lowest. Between them, in the order of their means: "
            f"the line of the means, and the band of the intervals, on average; beyond its faint edge lie {FAR:.0%} of "
            "the ends at that height."
        )
    return element("figure", drawing, element("figcaption", dot))


def _ribbon(found: Effects, order: np.ndarray, place: int) -> Ribbon:
    text = f"{len(order):,} groups between"
    return ribbon_of(text, *(getattr(found, part)[order, place] for part in ("mean", "lower", "upper")))


def _row(found: Effects, group: int, place: int, is_clear: bool) -> ForestRow:
    mean, lower, upper = (float(getattr(found, part)[group, place]) for part in ("mean", "lower", "upper"))
    own, end = float(found.mean_error[group, place]), float(found.end_error[group, place])
    gap = min(mean - lower, upper - mean)
    texts = alone(mean, own, gap), f"{alone(lower, end, gap)} to {alone(upper, end, gap)}"
    return ForestRow(str(found.levels[group]), mean, lower, upper, texts, is_clear)


def _shrinkage(result: Result, found: Effects, name: str) -> Markup | None:
    """Of intercepts alone: the effect of a column is none on the mean of a response."""
    if found.names[0].lower() not in ("intercept", "effect") or len(some_groups(found)) < 2:
        return None
    family = family_of(result)
    link = None if family is None else family.link
    title = f"Effects by {found.by} over raw means"
    finding = "The fewer rows a group has, the nearer to zero its effect is drawn."
    drawing = shrinkage(name, title, finding, found, link)
    sentences = [
        "Every group: the posterior mean of its effect over the plain mean of its response. The larger a dot, the more "
        "rows the group has (in thirds)."
    ]
    if link in LINKS:
        sentences.append(
            "Dashed: where a group would be that stood for itself and whose rows were like all others in the other "
            "columns."
        )
    if len(found) > MOST_DOTS:
        sentences.append(f"Drawn are {len(some_groups(found)):,} of {len(found):,}, evenly in the order of raw means.")
    return element("figure", drawing, element("figcaption", " ".join(sentences)))


def _table(found: Effects) -> Markup:
    """Of all groups, or of those that are named."""
    few, size = len(found) <= MOST_NAMED, len(found.names)
    parts, names, heads = [], [], []
    for place in range(size):
        rows = found.extremes(place, MOST_NAMED // 2 if few else EXTREMES)[::-1]
        parts += [(row, place) for row in rows]
        names += [str(found.levels[row]) for row in rows]
        heads += [found.names[place] if size > 1 else ""] * len(rows)
    caption = f"Effects by {found.by}, the highest first. {ABOUT_ERRORS}"
    if not few:
        caption += f' result.effects("{found.by}") and tallbayes effects have all {len(found):,}.'
    summary = f"All {len(found):,} groups in numbers" if few else "The highest and the lowest in numbers"
    content = table(caption, found.by, names, _columns(found, parts), heads)
    is_open = len(names) <= MOST_OPEN
    return element("details", element("summary", summary), content, open="" if is_open else None)


def _columns(found: Effects, parts: Sequence[tuple[int, int]]) -> list[PageColumn]:
    made = [column("rows", [f"{found.counts[row]:,.0f}" for row, _ in parts])]
    if found.has_raw:
        made.append(column("raw mean", [neat(float(found.raw[row])) for row, _ in parts]))
    named = {"mean": "mean", "sd": "sd", "lower": "2.5% end", "upper": "97.5% end"}
    for part, head in named.items():
        errors = getattr(found, "end_error" if part in ("lower", "upper") else f"{part}_error")
        made.append(measured(head, [(getattr(found, part)[at], errors[at]) for at in parts]))
    return made
