"""Charts as inline SVG: intervals one below the other, and how levels decay.

    intervals(panels, ...)    a forest plot: label, interval with its point, numbers; an axis for every panel
    decay(plots, ...)         sizes by level on a logarithmic axis, with the fitted rate as a line

Each chart is drawn twice, for a wide page and for a narrow one, since letters must not shrink with the drawing; the
style sheet shows one of the two. Colours are the style sheet's, and none of them says anything that shape does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, log, log2
from unicodedata import east_asian_width

from tallbayes.views.report.markup import Markup, element, fixed, join
from tallbayes.views.report.ribbons import HEIGHT, Ribbon, drawn
from tallbayes.views.report.scales import Scale, log_ticks, scale_of

SIZE = 13
# Roughly, in sizes of the font, since what font a reader has is not known.
LETTER, CAPITAL, WIDEST, NARROWEST = 0.64, 0.76, 0.98, 0.40
SHAPES = ("circle", "square", "triangle", "diamond")


@dataclass(frozen=True)
class Canvas:
    """Measures of a drawing: where labels end, where the axis is, and whether it lies below its labels."""

    kind: str
    width: float
    axis: tuple[float, float]
    row: float
    stacked: bool
    ticks: int


WIDE = Canvas("wide", 760, axis=(206, 530), row=23, stacked=False, ticks=6)
NARROW = Canvas("narrow", 340, axis=(8, 332), row=41, stacked=True, ticks=5)


@dataclass(frozen=True)
class ForestRow:
    """A row of a forest plot: what it is, its point and ends, the same as text, and whether the origin is outside."""

    label: str
    point: float
    lower: float
    upper: float
    texts: tuple[str, str]
    is_clear: bool
    group: str = ""


@dataclass(frozen=True)
class Panel:
    """Intervals on one axis, about an origin; a band about it where small differences do not matter; a ribbon between
    the first half of the intervals and the others."""

    title: str
    intervals: Sequence[ForestRow]
    logarithmic: bool = False
    band: float | None = None
    ribbon: Ribbon | None = None


@dataclass(frozen=True)
class Series:
    """Sizes by level with their relative errors, the rate at which they were found to fall, and a name."""

    name: str
    sizes: Sequence[float]
    errors: Sequence[float]
    rate: float


@dataclass(frozen=True)
class Plot:
    """Series on one axis."""

    title: str
    letter: str
    series: Sequence[Series]


def intervals(name: str, title: str, finding: str, panels: Sequence[Panel]) -> Markup:
    """A forest plot; `title` and `finding` are for those who cannot see it."""

    def draw(canvas: Canvas) -> tuple[list[Markup], float]:
        parts: list[Markup] = []
        top = 0.0
        for panel in panels:
            drawn, height = _panel(panel, canvas, top)
            parts += drawn
            top += height
        return parts, top

    return twice(name, title, finding, draw)


def decay(name: str, title: str, finding: str, plots: Sequence[Plot], levels: Sequence[str]) -> Markup:
    """Plots of sizes by level, beside one another where there is room."""

    def draw(canvas: Canvas) -> tuple[list[Markup], float]:
        parts: list[Markup] = []
        bottom = 0.0
        for number, plot in enumerate(plots):
            wide = not canvas.stacked
            left, width = (number * (canvas.width / 2 + 10), canvas.width / 2 - 10) if wide else (0.0, canvas.width)
            drawn, height = _plot(plot, levels, left, width, 0.0 if wide else bottom)
            parts += drawn
            bottom = max(bottom, height) if wide else bottom + height
        return parts, bottom

    return twice(name, title, finding, draw)


def twice(name: str, title: str, finding: str, draw: Callable[[Canvas], tuple[list[Markup], float]]) -> Markup:
    return join([_drawing(f"{name}-{each.kind}", title, finding, each, *draw(each)) for each in (WIDE, NARROW)])


def _drawing(name: str, title: str, finding: str, canvas: Canvas, parts: Sequence[Markup], height: float) -> Markup:
    said = element("title", title, id=f"{name}-title"), element("desc", finding, id=f"{name}-finding")
    return element(
        "svg",
        *said,
        *parts,
        viewBox=f"0 0 {canvas.width:g} {height:.0f}",
        class_=f"chart {canvas.kind}",
        role="img",
        aria_labelledby=f"{name}-title {name}-finding",
    )


def _panel(panel: Panel, canvas: Canvas, top: float) -> tuple[list[Markup], float]:
    """The parts of a panel that begins at a height, and how high it is."""
    left, right = canvas.axis
    scale = readable_scale(_held(panel), panel.logarithmic, canvas.ticks, right - left)

    def across(place: float) -> float:
        return left + min(max(scale.share(place), 0.0), 1.0) * (right - left)

    parts = [written(panel.title, left if not canvas.stacked else 0, top + 14, "title")] if panel.title else []
    begin = top + (22 if panel.title else 4)
    many = len(panel.intervals) > 14
    below = begin + (20 if many else 4)
    rows, stretches, end = _rows(panel, canvas, across, scale, below)
    end += 4
    # Where labels stand above the lines, the grid is drawn below them alone: no letter stands on a line.
    stretches = stretches if canvas.stacked else [(below, end)]
    back = [part for stretch in stretches for part in _grid(panel, scale, across, *stretch)]
    parts += [*back, *rows, *_tick_texts(scale, canvas, across, end + 16)]
    if many:
        parts += _tick_texts(scale, canvas, across, below - 7)
    return parts, end + 34 - top


def readable_scale(places: Sequence[float], logarithmic: bool, most: int, width: float) -> Scale:
    """With as many ticks as their texts leave room for."""
    scale = scale_of(places, logarithmic, most)
    while most > 1 and _crowded(scale, width):
        most -= 1
        scale = scale_of(places, logarithmic, most)
    return scale


def _crowded(scale: Scale, width: float) -> bool:
    """Whether the texts of neighbouring ticks would meet, on an axis so wide."""
    return any(
        (scale.share(right.place) - scale.share(left.place)) * width
        < (length_of(left.text) + length_of(right.text) + SIZE) / 2
        for left, right in pairwise(scale.ticks)
    )


def _held(panel: Panel) -> list[float]:
    """Places that an axis must hold: the origin, all points, and ends unless they are far beyond all points."""
    points = [each.point for each in panel.intervals if isfinite(each.point)] + [0.0]
    if panel.band is not None:
        points += [-panel.band, panel.band]
    if panel.ribbon is not None:
        points += panel.ribbon.places
    ends = [end for each in panel.intervals for end in (each.lower, each.upper) if isfinite(end)]
    widths = sorted(each.upper - each.lower for each in panel.intervals if isfinite(each.upper - each.lower))
    usual = widths[len(widths) // 2] if widths else 0.0
    room = max(max(points) - min(points), 2 * usual)
    low, high = min(points) - room, max(points) + room
    return points + [min(max(end, low), high) for end in ends]


def _grid(panel: Panel, scale: Scale, across: Callable[[float], float], top: float, bottom: float) -> list[Markup]:
    parts = []
    if panel.band is not None and isfinite(panel.band):
        left, right = across(-panel.band), across(panel.band)
        parts.append(element("rect", x=left, y=top, width=right - left, height=bottom - top, class_="band"))
    parts += [stroke(across(each.place), top, across(each.place), bottom, "grid") for each in scale.ticks]
    return [*parts, stroke(across(0.0), top, across(0.0), bottom, "origin")]


def _tick_texts(scale: Scale, canvas: Canvas, across: Callable[[float], float], y: float) -> list[Markup]:
    """Below their ticks, and within the drawing."""
    parts = []
    for tick in scale.ticks:
        half = length_of(tick.text) / 2
        x = min(max(across(tick.place), half), canvas.width - half)
        parts.append(written(tick.text, x, y, "tick", "middle"))
    return parts


def _rows(
    panel: Panel, canvas: Canvas, across: Callable[[float], float], scale: Scale, top: float
) -> tuple[list[Markup], list[tuple[float, float]], float]:
    """Their parts, from where to where lines of each are below its label, and where the last ends."""
    parts: list[Markup] = []
    stretches: list[tuple[float, float]] = []
    group, y = "", top
    for place, each in enumerate(panel.intervals):
        if panel.ribbon is not None and 2 * place == len(panel.intervals):
            room = canvas.axis[0] - 12 if not canvas.stacked else canvas.width
            at = y + (18 if canvas.stacked else 0.5 * HEIGHT)
            parts += _lines(panel.ribbon.text, room, at)
            y += 26 if canvas.stacked else 6
            parts += drawn(panel.ribbon, across, y)
            stretches.append((y, y + HEIGHT))
            y += HEIGHT + 6
        if each.group != group:
            group = each.group
            if group:
                parts.append(written(fit_in(group, canvas.width), 0, y + 18, "group"))
                y += 26
        indent = 12 if group and not canvas.stacked else 0
        parts += _row(each, canvas, across, scale, y, indent)
        stretches.append((y + 20, y + 37))
        y += canvas.row
    return parts, stretches, y


def _lines(text: str, room: float, y: float) -> list[Markup]:
    """A text in as many lines as it needs."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        lines = [*lines[:-1], longer] if length_of(longer) <= room else [*lines, word]
    return [written(line, 0, y + 18 * place, "tick") for place, line in enumerate(lines)]


def _row(
    each: ForestRow, canvas: Canvas, across: Callable[[float], float], scale: Scale, y: float, indent: float
) -> list[Markup]:
    point, ends = each.texts
    base = y + (16 if canvas.stacked else 0.5 * canvas.row + 4.5)
    middle = y + (28 if canvas.stacked else 0.5 * canvas.row)
    if canvas.stacked:
        room = canvas.width - length_of(point + ends) - 24
        texts = [written(f"{point} ({ends})" if point else ends, canvas.width, base, "number", "end")]
    else:
        room = canvas.axis[0] - indent - 12
        texts = [written(point, canvas.axis[1] + 64, base, "number", "end")]
        if length_of(ends) < canvas.width - canvas.axis[1] - (74 if point else 8):
            texts.append(written(ends, canvas.width, base, "number ends", "end"))
    label = written(fit_in(each.label, room), indent, base, "label")
    if not (isfinite(each.point) and isfinite(each.lower) and isfinite(each.upper)):
        return [label, *texts]
    return [label, *_mark(each, across, scale, middle), *texts]


def _mark(each: ForestRow, across: Callable[[float], float], scale: Scale, y: float) -> list[Markup]:
    """The interval as a line, with an arrow where it leaves the axis, and its point: full if clear of the origin."""
    left, right = across(each.lower), across(each.upper)
    parts = [stroke(left, y, right, y, "interval")]
    if each.lower < scale.low:
        parts.append(element("path", d=f"M{left + 6:.1f} {y - 4:.1f}L{left:.1f} {y:.1f}l6 4", class_="arrow"))
    if each.upper > scale.high:
        parts.append(element("path", d=f"M{right - 6:.1f} {y - 4:.1f}L{right:.1f} {y:.1f}l-6 4", class_="arrow"))
    kind = "point" if each.is_clear else "point open"
    return [*parts, element("circle", cx=across(each.point), cy=y, r=3.2, class_=kind)]


def _plot(plot: Plot, levels: Sequence[str], left: float, width: float, top: float) -> tuple[list[Markup], float]:
    """Sizes on a logarithmic axis over levels on a plain one; a line of key for each series."""
    key = [written(plot.title, left, top + 14, "title")]
    for number, series in enumerate(plot.series):
        y = top + 34 + 18 * number
        rate = f", {plot.letter} = {fixed(series.rate, 2)}" if isfinite(series.rate) else ""
        key.append(_symbol(number, left + 6, y - 4.5))
        key.append(written(fit_in(series.name, width - 140) + rate, left + 18, y, "label"))
    begin = top + 44 + 18 * len(plot.series)
    end, first, last = begin + 190, left + 58, left + width - 14
    held = [log(size) for series in plot.series for size in series.sizes if isfinite(size) and size > 0]
    scale = scale_of(held, logarithmic=False, most=5)
    low, high = min(scale.low, scale.high - log(8)), scale.high
    ticks = log_ticks(low, high, 5)

    def up(size: float) -> float:
        return end - min(max((log(size) - low) / (high - low), 0.0), 1.0) * (end - begin)

    def across(level: float) -> float:
        return first + (level + 0.3) / max(len(levels) - 0.4, 1) * (last - first)

    parts = key
    for tick in ticks:
        y = end - (tick.place - low) / (high - low) * (end - begin)
        parts += [stroke(first, y, last, y, "grid"), written(tick.text, first - 8, y + 4.5, "tick", "end")]
    parts += [written(text, across(level), end + 18, "tick", "middle") for level, text in enumerate(levels)]
    parts.append(written("level", last, end + 36, "tick", "end"))
    for number, series in enumerate(plot.series):
        parts += _series(series, number, len(plot.series), across, up)
    return parts, end + 50 - top


def _series(
    series: Series, number: int, count: int, across: Callable[[float], float], up: Callable[[float], float]
) -> list[Markup]:
    parts: list[Markup] = []
    usable = [(l, size) for l, size in enumerate(series.sizes) if isfinite(size) and size > 0]
    fitted = [(l, log2(size)) for l, size in usable if l > 0]
    beside = 7 * (number - (count - 1) / 2)
    if isfinite(series.rate) and len(fitted) > 1:
        height = sum(size + series.rate * l for l, size in fitted) / len(fitted)
        ends = [(across(l) + beside, up(2 ** (height - series.rate * l))) for l in (fitted[0][0], fitted[-1][0])]
        parts.append(stroke(*ends[0], *ends[1], f"fitted series{number % len(SHAPES)}"))
    for level, size in usable:
        error = series.errors[level]
        x, kind = across(level) + beside, f"whisker series{number % len(SHAPES)}"
        if isfinite(error) and error > 0:
            parts.append(stroke(x, up(size * max(1 - error, 1e-9)), x, up(size * (1 + error)), kind))
        parts.append(_symbol(number, x, up(size)))
    return parts


def _symbol(number: int, x: float, y: float) -> Markup:
    shape = SHAPES[number % len(SHAPES)]
    kind = f"symbol series{number % len(SHAPES)}"
    if shape == "circle":
        return element("circle", cx=x, cy=y, r=4.5, class_=kind)
    outline = {
        "square": "m-4 -4h8v8h-8z",
        "triangle": "m0 -5l5 9h-10z",
        "diamond": "m0 -5.5l5 5.5l-5 5.5l-5 -5.5z",
    }[shape]
    return element("path", d=f"M{x:.1f} {y:.1f}{outline}", class_=kind)


def stroke(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=kind)


def written(text: str, x: float, y: float, kind: str, anchor: str | None = None) -> Markup:
    return element("text", text, x=float(x), y=float(y), class_=kind, text_anchor=anchor)


def length_of(text: str) -> float:
    """Roughly how long a text is drawn."""
    return SIZE * sum(_width(letter) for letter in text)


def _width(letter: str) -> float:
    if east_asian_width(letter) in "WF" or letter in "mwMW@%…":
        return WIDEST
    if letter in " ijlI.,:;'|!()[]":
        return NARROWEST
    return CAPITAL if letter.isupper() else LETTER


def fit_in(text: str, room: float) -> str:
    """Within so much room: both ends stay, since either may tell it from others."""
    text = " ".join(text.split())
    if length_of(text) <= room:
        return text
    kept = text
    while len(kept) > 2 and length_of(kept) > room - SIZE * WIDEST:
        half = len(kept) // 2
        kept = kept[:half] + kept[half + 1 :]
    half = (len(kept) + 1) // 2
    return f"{kept[:half]}…{kept[half:]}"
