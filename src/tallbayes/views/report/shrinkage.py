"""Shrinkage, drawn: the posterior mean of every group's effect over the plain mean of its response.

A group that stood for itself would be on the dashed line, link(raw mean) - link(mean of all rows); the fewer rows it
has, the nearer to zero it is drawn. A dot is the larger the more rows there are; of very many groups some are drawn,
at equal distances in the order of their raw means.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

import numpy as np

from tallbayes.moments import Floats
from tallbayes.results.groups.effects import Effects
from tallbayes.views.report.charts import Canvas, readable_scale, stroke, twice, written
from tallbayes.views.report.markup import Markup, element

MOST_DOTS = 300
SIZES = (4.0, 6.5, 9.0)
HEIGHT = 260.0
ON_LINE = 80
Link = Callable[[Floats], Floats]


def probits(p: Floats) -> Floats:
    from scipy.special import ndtri

    return np.asarray(ndtri(p))


LINKS: dict[str, Link] = {
    "identity": lambda mean: mean,
    "logit": lambda p: np.log(p) - np.log1p(-p),
    "probit": probits,
    "log": np.log,
}


def some_groups(found: Effects) -> np.ndarray:
    """Places of those that are drawn."""
    known = np.flatnonzero(np.isfinite(found.raw) & np.isfinite(found.mean[:, 0]))
    order = known[np.argsort(found.raw[known], kind="stable")]
    if len(order) <= MOST_DOTS:
        return order
    return order[np.unique(np.linspace(0, len(order) - 1, MOST_DOTS).round().astype(int))]


def shrinkage(name: str, title: str, finding: str, found: Effects, link: str | None) -> Markup:
    """The chart; `title` and `finding` are for those who cannot see it."""
    places = some_groups(found)
    raw, mean, counts = found.raw[places], found.mean[places, 0], found.counts[places]

    def draw(canvas: Canvas) -> tuple[list[Markup], float]:
        left, right, top = 52.0, canvas.width - 14, 30.0
        level = readable_scale(raw.tolist(), False, canvas.ticks, right - left)
        height = readable_scale([0.0, *mean.tolist()], False, 6, HEIGHT * 3)

        def across(x: float) -> float:
            return left + level.share(x) * (right - left)

        def up(y: float) -> float:
            return top + (1 - height.share(y)) * HEIGHT

        parts = [written("posterior mean of the effect", 0, 14, "title")]
        for tick in height.ticks:
            parts += [stroke(left, up(tick.place), right, up(tick.place), "grid")]
            parts += [written(tick.text, left - 8, up(tick.place) + 4.5, "tick", "end")]
        parts += [stroke(left, up(0.0), right, up(0.0), "origin")]
        parts += [written(tick.text, across(tick.place), top + HEIGHT + 18, "tick", "middle") for tick in level.ticks]
        parts += [written("raw mean of the response", right, top + HEIGHT + 38, "tick", "end")]
        parts += _alone(found, link, (level.low, level.high), (height.low, height.high), across, up)
        return [*parts, *_dots(raw, mean, counts, across, up)], top + HEIGHT + 48

    return twice(name, title, finding, draw)


def _alone(
    found: Effects,
    link: str | None,
    across_from: tuple[float, float],
    up_from: tuple[float, float],
    across: Callable[[float], float],
    up: Callable[[float], float],
) -> list[Markup]:
    """Where groups would be if none were drawn towards the others, as far as that is within the drawing."""
    if link not in LINKS:
        return []
    known = np.isfinite(found.raw)
    overall = np.array([np.average(found.raw[known], weights=found.counts[known])])
    x = np.linspace(*across_from, ON_LINE)
    with np.errstate(all="ignore"):
        y = LINKS[link](x) - LINKS[link](overall)
    inside = [(a, b) for a, b in zip(x, y, strict=True) if isfinite(b) and up_from[0] <= b <= up_from[1]]
    if len(inside) < 2:
        return []
    points = [f"{across(a):.1f} {up(b):.1f}" for a, b in inside]
    return [element("path", d=f"M{'L'.join(points)}", class_="alone")]


def _dots(
    raw: Floats, mean: Floats, counts: Floats, across: Callable[[float], float], up: Callable[[float], float]
) -> list[Markup]:
    """A path of points for every size."""
    thirds = np.quantile(counts, [1 / 3, 2 / 3])
    size = np.searchsorted(thirds, counts, side="left") if counts.min() < counts.max() else np.ones(len(counts), int)
    parts = []
    for number, width in enumerate(SIZES):
        marks = [
            f"M{across(x):.1f} {up(y):.1f}h0" for x, y in zip(raw[size == number], mean[size == number], strict=True)
        ]
        if marks:
            parts.append(element("path", d="".join(marks), class_="dots", stroke_width=width))
    return parts
