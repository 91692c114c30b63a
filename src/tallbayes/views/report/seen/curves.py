"""Effect curves: a column that enters through squares, a polynomial, a spline or a smooth is drawn as what all its
coefficients say together, since none of them says anything alone.

    f(x)               on the scale of the linear predictor, about its mean over the rows
    exp(f(x) - f(r))   of a family that has ratios: against a reference value r of the column
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor, log10
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.moments import Floats
from tallbayes.results.coefficients import Number, ratio_name
from tallbayes.results.result import Result
from tallbayes.results.terms import columns_read
from tallbayes.views.report.charts import Canvas, fit_in, readable_scale, stroke, twice, written
from tallbayes.views.report.markup import (
    Markup,
    alone,
    element,
    join,
    listed,
    measured,
    neat,
    table,
)
from tallbayes.views.report.seen.at_hand import MOST_ROWS, can_be_asked, if_answered

if TYPE_CHECKING:
    from tallbayes.results.curves import ColumnCurve

POINTS, MOST_CURVES = 25, 8
# Of the rows: beyond these a curve rests on few.
ENDS = (0.01, 0.99)
TABLED = 9
HEIGHT = 210.0
ABOUT_ERRORS = "± is the Monte Carlo error of the number before it (root mean square, remaining bias included)."


@dataclass(frozen=True, eq=False)
class ShownCurve:
    """f, and the same against its value at a reference where the family has ratios; `within` says how far it reaches:
    to the middle 98% of the rows, or as far as is known."""

    curve: ColumnCurve
    against: ColumnCurve | None = None
    reference: float = 0.0
    ratio: str = ""
    within: str = ""

    @property
    def column(self) -> str:
        return self.curve.column


def curves_of(result: Result) -> tuple[ShownCurve, ...]:
    """Of every column of numbers that several columns of the design are made of, and no other column has a part in."""
    columns = _candidates(result)
    if not columns or not can_be_asked(result):
        return ()
    found = [if_answered(partial(_curve, result, each)) for each in columns[:MOST_CURVES]]
    return tuple(each for each in found if each is not None)


def _candidates(result: Result) -> list[str]:
    coding: Any = {} if result.encoding is None else result.encoding["coding"]
    kinds = coding.get("kinds", {})
    read = [columns_read(name, kinds) for name in coding.get("names", ())]
    return [
        column for column, kind in kinds.items() if kind != "categories" and sum(column in each for each in read) > 1
    ]


def _curve(result: Result, column: str) -> ShownCurve | None:
    values = _values(result, column)
    points: Any = POINTS
    if values is not None:
        points = np.linspace(float(np.quantile(values, ENDS[0])), float(np.quantile(values, ENDS[1])), POINTS)
    found = result.curve(column, points)
    if found.left_out or len(found.terms) < 2 or not np.all(np.isfinite([found.mean, found.lower, found.upper])):
        return None
    within = "" if values is None else "It reaches over the middle 98% of the rows."
    ratio = ratio_name(result)
    if ratio is None:
        return ShownCurve(found, within=within)
    middle = float(np.mean(values)) if values is not None else _mean(result, found)
    reference = _round(middle, float(np.ptp(found.x)))
    return ShownCurve(found, result.curve(column, found.x, against=reference), reference, ratio, within)


def _values(result: Result, column: str) -> Floats | None:
    """Of the rows of the fit, where they are at hand."""
    if result.fit_table is None or result.num_rows > MOST_ROWS:
        return None
    from tallbayes.rows.sources import open_source

    values = np.asarray(open_source(result.fit_table.data).read([column]).column(column), np.float64)
    known = values[np.isfinite(values)]
    return known if len(known) else None


def _mean(result: Result, found: ColumnCurve) -> float:
    """Of the column where it is one of the design, else the middle of the curve."""
    coding: Any = result.encoding
    names = coding["coding"]["names"]
    mean = float(coding["means"][names.index(found.column)]) if found.column in names else 0.0
    return mean if found.x[0] < mean < found.x[-1] else float(found.x[0] + found.x[-1]) / 2


def _round(value: float, width: float) -> float:
    """To a place that is small for the width.

    >>> _round(13.9471, 18.0), _round(897.2, 2900.0)
    (14.0, 900.0)
    """
    place = 1 - floor(log10(width)) if width > 0 else 0
    return float(round(value, place))


def effect_curves(shown: Sequence[ShownCurve]) -> Markup | None:
    """A figure a column, with its numbers folded below."""
    if not shown:
        return None
    parts = [element("h3", "Effect curves", id="curves"), element("p", _lead(shown), class_="soft")]
    return join([*parts, *(part for number, each in enumerate(shown) for part in _figure(each, number))])


def _lead(shown: Sequence[ShownCurve]) -> str:
    scale = "on the scale of the linear predictor, about the average row"
    ratio = f"; then as {shown[0].ratio}s against one value of the column" if shown[0].against is not None else ""
    return (
        f"What the fit says of a column while all others stay as they are, {scale}{ratio}. "
        "Band: the 95% interval at each value."
    )


def _figure(shown: ShownCurve, number: int) -> list[Markup]:
    title = f"Effect of {shown.column}"
    finding = curve_finding(shown)
    drawing = twice(f"curve-{number}", title, finding, partial(_draw, shown))
    caption = " ".join(part for part in (finding, shown.within) if part)
    content = element("details", element("summary", f"{shown.column} in numbers"), _table(shown))
    return [element("figure", drawing, element("figcaption", caption)), content]


def curve_finding(shown: ShownCurve) -> str:
    """Where the curve is highest and lowest, and what it is there."""
    curve = shown.against or shown.curve
    places = [int(np.argmax(curve.mean)), int(np.argmin(curve.mean))]
    parts = []
    for place, word in zip(places, ("highest", "lowest"), strict=True):
        point, lower, upper = (_text(number, curve, place, shown) for number in ("mean", "lower", "upper"))
        parts.append(f"{word} at {_at(curve, place)}, where it is {point} ({lower} to {upper})")
    against = f", against {shown.column} = {neat(shown.reference)}," if shown.against is not None else ""
    what = f"The {shown.ratio}{against} is" if shown.against is not None else f"The effect of {shown.column} is"
    return f"{what} {' and '.join(parts)}."


def _at(curve: ColumnCurve, place: int) -> str:
    return neat(_round(float(curve.x[place]), float(np.ptp(curve.x))))


def _number(curve: ColumnCurve, name: str, place: int) -> Number:
    return Number(float(getattr(curve, name)[place]), float(getattr(curve, f"{name}_error")[place]))


def _text(name: str, curve: ColumnCurve, place: int, shown: ShownCurve) -> str:
    """To two digits of the width of the interval there."""
    numbers = [_number(curve, each, place) for each in (name, "lower", "mean", "upper")]
    if shown.against is not None:
        numbers = [each.exponential for each in numbers]
    wanted, lower, middle, upper = numbers
    return alone(*wanted, min(middle.value - lower.value, upper.value - middle.value))


def _table(shown: ShownCurve) -> Markup:
    """At some of the points."""
    places = list(range(0, len(shown.curve), max((len(shown.curve) - 1) // (TABLED - 1), 1)))
    heads = {"mean": "mean", "lower": "2.5% end", "upper": "97.5% end"}
    columns = [measured(head, [_number(shown.curve, name, place) for place in places]) for name, head in heads.items()]
    if shown.against is not None:
        heads = {"mean": shown.ratio, "lower": "2.5% end of it", "upper": "97.5% end of it"}
        columns += [
            measured(head, [_number(shown.against, name, place).exponential for place in places])
            for name, head in heads.items()
        ]
    names = [_at(shown.curve, place) for place in places]
    ratio = f" The {shown.ratio} is against {shown.column} = {neat(shown.reference)}." if shown.against else ""
    caption = f"Of {listed(list(shown.curve.terms))} together.{ratio} {ABOUT_ERRORS}"
    return table(caption, shown.column, names, columns)


def _draw(shown: ShownCurve, canvas: Canvas) -> tuple[list[Markup], float]:
    panels: list[tuple[str, ColumnCurve, bool]] = [("on the scale of the linear predictor", shown.curve, False)]
    if shown.against is not None:
        panels.append((f"{shown.ratio} against {shown.column} = {neat(shown.reference)}", shown.against, True))
    else:
        panels = [(f"effect of {shown.column}", shown.curve, False)]
    width = canvas.width if canvas.stacked or len(panels) < 2 else canvas.width / 2 - 10
    parts: list[Markup] = []
    for number, panel in enumerate(panels):
        left, top = (0.0, number * (HEIGHT + 86)) if canvas.stacked else (number * (canvas.width / 2 + 10), 0.0)
        reference = shown.reference if panel[2] else None
        parts += _panel(*panel, canvas, left, top, width, reference)
    rows = len(panels) if canvas.stacked else 1
    return parts, rows * (HEIGHT + 86)


def _panel(
    title: str,
    curve: ColumnCurve,
    logarithmic: bool,
    canvas: Canvas,
    left: float,
    top: float,
    width: float,
    reference: float | None,
) -> list[Markup]:
    """A curve with its ribbon, from a corner on."""
    begin, end = top + 28.0, top + 28.0 + HEIGHT
    first, last = left + 58, left + width - 12
    level = readable_scale([0.0, *curve.lower, *curve.upper], logarithmic, 5, HEIGHT * 3)
    along = readable_scale([float(curve.x[0]), float(curve.x[-1])], False, canvas.ticks, last - first)

    def across(x: float) -> float:
        return first + along.share(float(x)) * (last - first)

    def up(y: float) -> float:
        return end - min(max(level.share(float(y)), 0.0), 1.0) * (end - begin)

    parts = [written(fit_in(title, width), left, top + 14, "title")]
    for tick in level.ticks:
        parts.append(stroke(first, up(tick.place), last, up(tick.place), "grid"))
        parts.append(written(tick.text, first - 8, up(tick.place) + 4.5, "tick", "end"))
    parts.append(stroke(first, up(0.0), last, up(0.0), "origin"))
    if reference is not None and along.low < reference < along.high:
        parts.append(stroke(across(reference), begin, across(reference), end, "grid"))
    parts.append(element("path", d=_band(curve, across, up), class_="ribbon"))
    parts.append(element("path", d=f"M{_line(curve.x, curve.mean, across, up)}", class_="ribbon-line"))
    parts += [written(tick.text, across(tick.place), end + 18, "tick", "middle") for tick in along.ticks]
    parts.append(written(fit_in(curve.column, width - 80), last, end + 37, "tick", "end"))
    return parts


Place = Callable[[float], float]


def _line(x: Floats, y: Floats, across: Place, up: Place) -> str:
    return "L".join(f"{across(a):.1f} {up(b):.1f}" for a, b in zip(x, y, strict=True))


def _band(curve: ColumnCurve, across: Place, up: Place) -> str:
    back = _line(curve.x[::-1], curve.lower[::-1], across, up)
    return f"M{_line(curve.x, curve.upper, across, up)}L{back}Z"
