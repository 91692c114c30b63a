"""Ribbons: intervals of so many groups that no line could be seen, as one band about the line of their sorted means.

In every stretch of ranks the line is the mean of the means, and the band reaches from the mean lower end to the mean
upper one; a faint edge on either side is where a tenth of the ends of the stretch lie beyond. Stretches are the shorter
the nearer they are to the highest and the lowest rank, where means fall fastest. The size on the page does not depend
on how many groups there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tallbayes.moments import Floats
from tallbayes.views.report.markup import Markup, element

STRETCHES = 60
HEIGHT = 150.0
FAR = 0.1


@dataclass(frozen=True, eq=False)
class Ribbon:
    """By stretch of ranks, the highest first: how far down its middle is, from 0 to 1; means, mean ends, and ends that
    a tenth lies beyond. `text` says what it is of."""

    text: str
    down: Floats
    middle: Floats
    lower: Floats
    upper: Floats
    lowest: Floats
    highest: Floats

    @property
    def places(self) -> list[float]:
        """That an axis must hold."""
        return [float(np.nanmin(self.lowest)), float(np.nanmax(self.highest))]


def ribbon_of(text: str, mean: Floats, lower: Floats, upper: Floats) -> Ribbon:
    """Of groups in the order they are drawn in."""
    count = min(STRETCHES, len(mean))
    edges = np.round(len(mean) * 0.5 * (1 - np.cos(np.linspace(0, np.pi, count + 1)))).astype(int)
    edges = np.unique(edges)
    parts = [slice(*pair) for pair in pairwise(edges)]

    def each(function: Callable[[Floats], float], values: Floats) -> Floats:
        return np.array([function(values[part]) for part in parts])

    return Ribbon(
        text,
        0.5 * (edges[1:] + edges[:-1]) / len(mean),
        each(lambda some: float(np.mean(some)), mean),
        each(lambda some: float(np.mean(some)), lower),
        each(lambda some: float(np.mean(some)), upper),
        each(lambda some: float(np.quantile(some, FAR)), lower),
        each(lambda some: float(np.quantile(some, 1 - FAR)), upper),
    )


def drawn(ribbon: Ribbon, across: Callable[[float], float], top: float) -> list[Markup]:
    """Bands and the line of means, from a height downwards."""
    heights = [top + HEIGHT * float(each) for each in ribbon.down]
    bands = [
        element("path", d=_outline(low, high, across, heights), class_=kind)
        for low, high, kind in (
            (ribbon.lowest, ribbon.highest, "ribbon far"),
            (ribbon.lower, ribbon.upper, "ribbon"),
        )
    ]
    points = [f"{across(x):.1f} {y:.1f}" for x, y in zip(ribbon.middle, heights, strict=True)]
    return [*bands, element("path", d=f"M{'L'.join(points)}", class_="ribbon-line")]


def _outline(low: Floats, high: Floats, across: Callable[[float], float], heights: Sequence[float]) -> str:
    """Down along one side, and up along the other."""
    down = [f"{across(x):.1f} {y:.1f}" for x, y in zip(low, heights, strict=True)]
    up = [f"{across(x):.1f} {y:.1f}" for x, y in zip(high, heights, strict=True)]
    return f"M{'L'.join([*down, *reversed(up)])}Z"
