"""Predictive checks in the report: the response that was seen, beside responses as the fit would have them.

one number       a histogram of replicated ones, and a line where the observed one is
calibration      means by tenths of what is expected, over a diagonal; bars hold 95% of replicated ones
many numbers     the same bars one below the other, those furthest out
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from tallbayes.views.report.charts import Canvas, readable_scale, stroke, twice, written
from tallbayes.views.report.markup import Markup, column, counted, element, join, listed, measured, neat, table

if TYPE_CHECKING:
    from tallbayes.results.checks.check import Check

BARS, HEIGHT, MOST_ROWS = 40, 54.0, 20
# Of a p-value: nearer to 0 or 1 than this is told in words.
FAR = 0.025
BARS_SAY = "Bars: the statistic of replicated responses; line: that of the response that was seen."
LEAD = (
    "The fit makes responses of its own for the same rows. Where a statistic of the response that was seen is far out "
    "among theirs, the model does not have such responses, and what is said by it of them should not be relied on."
)


def checked(found: Sequence[Check]) -> Markup:
    """The section; nothing of none."""
    if not found:
        return join([])
    single = [each for each in found if len(each.labels) == 1]
    several = [each for each in found if len(each.labels) > 1]
    draws = min(each.draws for each in found)
    about = f"p is the share of {counted(draws, 'replicated response')} whose statistic is above the observed one."
    parts = [element("p", _finding(found)), element("p", f"{LEAD} {about}", class_="soft")]
    if single:
        parts.append(_figure("checks", "Statistics of the response", BARS_SAY, _histograms(single)))
    for each in several:
        parts.append(_figure(f"check-{each.name}", each.title, _of_several(each), _bars(each)))
    if single:
        parts.append(_numbers(single))
    return join(parts, "\n")


def calibration_figure(check: Check) -> Markup:
    """Means by tenths, over the line where they would be what is expected."""
    said = "Dots: observed; bars: 95% of what the fit would have; dashed: where both are the same."
    return _figure("against", "Observed against predicted", said, _calibration(check))


def _figure(name: str, title: str, finding: str, draw: Callable[[Canvas], tuple[list[Markup], float]]) -> Markup:
    return element("figure", twice(name, title, finding, draw), element("figcaption", finding))


def _finding(found: Sequence[Check]) -> str:
    """In a sentence."""
    single = [each for each in found if len(each.labels) == 1]
    out = [each.title.lower() for each in single if min(each.p_value[0], 1 - each.p_value[0]) < FAR]
    many = [_of_several(each) for each in found if len(each.labels) > 1]
    if out:
        said = f"The fit does not have the {listed(out)} that was seen."
    elif single:
        said = "In no single statistic is the response that was seen far out among those that the fit would have."
    else:
        said = ""
    return " ".join([said, *many]).strip()


def _of_several(each: Check) -> str:
    count = len(each.labels)
    outside = round(each.outside * count)
    return (
        f"{each.title}: {outside:,} of {count:,} outside the middle 95% of what was replicated, "
        f"where chance alone may put {ceil(0.05 * count):,} or so."
    )


def _numbers(found: Sequence[Check]) -> Markup:
    columns = [
        column("observed", [neat(float(each.observed[0])) for each in found]),
        measured("replicated", [(float(each.mean[0]), float(each.mean_error[0])) for each in found]),
        measured("sd", [(float(each.sd[0]), float(each.sd_error[0])) for each in found]),
        measured("p", [(float(each.p_value[0]), float(each.p_error[0])) for each in found]),
    ]
    return table("Checks, with their Monte Carlo errors", "statistic", [each.title for each in found], columns)


def _histograms(found: Sequence[Check]) -> Callable[[Canvas], tuple[list[Markup], float]]:
    def draw(canvas: Canvas) -> tuple[list[Markup], float]:
        parts: list[Markup] = []
        top = 0.0
        for each in found:
            some, height = _histogram(each, canvas, top)
            parts += some
            top += height
        return parts, top

    return draw


def _histogram(check: Check, canvas: Canvas, top: float) -> tuple[list[Markup], float]:
    left, right = (canvas.axis[0], canvas.width - 10) if not canvas.stacked else canvas.axis
    values, seen = check.replicated[:, 0], float(check.observed[0])
    scale = readable_scale([*values.tolist(), seen], False, canvas.ticks, right - left)

    def across(place: float) -> float:
        return left + scale.share(place) * (right - left)

    above = 30.0 if canvas.stacked else 8.0
    base = top + above + HEIGHT
    counts, edges = np.histogram(values, bins=BARS, range=(scale.low, scale.high))
    parts = [stroke(across(tick.place), top + above, across(tick.place), base, "grid") for tick in scale.ticks]
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        tall = float(HEIGHT * 0.92 * count / max(counts.max(), 1))
        width = max(across(float(high)) - across(float(low)) - 1, 1.0)
        if count:
            parts.append(
                element("rect", x=across(float(low)), y=base - tall, width=width, height=tall, class_="ribbon")
            )
    parts.append(stroke(left, base, right, base, "origin"))
    parts.append(stroke(across(seen), top + above - 2, across(seen), base, "interval"))
    place = f"M{across(seen) - 5:.1f} {top + above - 6:.1f}h10l-5 8z"
    parts.append(element("path", d=place, class_="point"))
    p = _chance(float(check.p_value[0]))
    if canvas.stacked:
        parts += [written(check.title, 0, top + 13, "title"), written(p, right, top + 13, "tick", "end")]
    else:
        parts += [written(check.title, 0, base - 24, "title"), written(p, 0, base - 6, "tick")]
    parts += [written(tick.text, across(tick.place), base + 16, "tick", "middle") for tick in scale.ticks]
    return parts, above + HEIGHT + 34


def _chance(p: float) -> str:
    if p < 0.005:
        return "p < 0.01"
    return "p > 0.99" if p > 0.995 else f"p = {p:.2f}"


def _calibration(check: Check) -> Callable[[Canvas], tuple[list[Markup], float]]:
    assert check.at is not None
    known = np.isfinite(check.observed) & np.isfinite(check.at)
    at, seen = check.at[known], check.observed[known]
    ends = check.quantiles
    low, high = ends[0.025][known], ends[0.975][known]

    def draw(canvas: Canvas) -> tuple[list[Markup], float]:
        left, right, top, height = 52.0, canvas.width - 14, 30.0, 280.0
        level = readable_scale(at.tolist(), False, canvas.ticks, right - left)
        up_scale = readable_scale([*seen, *low, *high, *at], False, 6, height * 3)

        def across(x: float) -> float:
            return left + level.share(x) * (right - left)

        def up(y: float) -> float:
            return top + (1 - up_scale.share(y)) * height

        parts = [written("observed mean of the response", 0, 14, "title")]
        for tick in up_scale.ticks:
            parts += [stroke(left, up(tick.place), right, up(tick.place), "grid")]
            parts += [written(tick.text, left - 8, up(tick.place) + 4.5, "tick", "end")]
        begin, end = max(level.low, up_scale.low), min(level.high, up_scale.high)
        line = f"M{across(begin):.1f} {up(begin):.1f}L{across(end):.1f} {up(end):.1f}"
        parts.append(element("path", d=line, class_="alone"))
        for x, a, b, y in zip(at, low, high, seen, strict=True):
            parts.append(stroke(across(x), up(float(a)), across(x), up(float(b)), "interval"))
            parts.append(element("circle", cx=across(x), cy=up(float(y)), r=4.5, class_="point"))
        bottom = top + height
        parts += [written(tick.text, across(tick.place), bottom + 18, "tick", "middle") for tick in level.ticks]
        parts.append(written("expected, by tenths of the rows", right, bottom + 38, "tick", "end"))
        return parts, bottom + 48

    return draw


def _bars(check: Check) -> Callable[[Canvas], tuple[list[Markup], float]]:
    """Those furthest out, in their order."""
    spread = np.maximum(check.sd, np.finfo(float).tiny)
    far = np.nan_to_num(np.abs(check.observed - check.mean) / spread, nan=-1.0)
    places = np.sort(np.argsort(-far, kind="stable")[:MOST_ROWS])
    ends = check.quantiles

    def draw(canvas: Canvas) -> tuple[list[Markup], float]:
        left, right = (canvas.axis[0], canvas.width - 10) if not canvas.stacked else canvas.axis
        held = [*check.observed[places], *ends[0.025][places], *ends[0.975][places]]
        scale = readable_scale([float(each) for each in held], False, canvas.ticks, right - left)

        def across(place: float) -> float:
            return left + scale.share(float(place)) * (right - left)

        row, top = (40.0, 8.0) if canvas.stacked else (23.0, 8.0)
        bottom = top + row * len(places)
        parts = [stroke(across(tick.place), top, across(tick.place), bottom, "grid") for tick in scale.ticks]
        for number, place in enumerate(places):
            y = top + row * (number + 0.5) + (8 if canvas.stacked else 0)
            label = check.labels[place]
            parts.append(written(label, 0, y - 12 if canvas.stacked else y + 4.5, "label"))
            parts.append(stroke(across(ends[0.025][place]), y, across(ends[0.975][place]), y, "interval"))
            is_out = not ends[0.025][place] <= check.observed[place] <= ends[0.975][place]
            shape = "point" if is_out else "point open"
            parts.append(element("circle", cx=across(check.observed[place]), cy=y, r=4.5, class_=shape))
        parts += [written(tick.text, across(tick.place), bottom + 18, "tick", "middle") for tick in scale.ticks]
        return parts, bottom + 30

    return draw
