"""Average effects as text and as HTML: a row each, mean, sd and 95% interval with their errors."""

from __future__ import annotations

from collections.abc import Sequence

from tallbayes.results.averages.answers import AverageEffect
from tallbayes.views.notebook.tables import grid_html
from tallbayes.views.tables import Cell, Grid, count
from tallbayes.views.text import listed, paired

WIDTH = 100
HEADS = ("mean", "sd", "2.5%", "97.5%")
FACTS = [
    ("mean", "of the posterior of the average over these rows, in the units of the response"),
    ("error", "of the number to its left: Monte Carlo, root mean square, remaining bias included"),
]


def average_grid(effects: Sequence[AverageEffect]) -> Grid:
    columns = {"rows": [Cell(each.rows, count) for each in effects]}
    for place, head in enumerate(HEADS):
        columns[head] = [Cell(float(each.values[place]), error=float(each.errors[place])) for each in effects]
    return Grid([each.name for each in effects], columns)


def average_text(effects: Sequence[AverageEffect]) -> str:
    return "\n\n".join([paired("average effect", average_grid(effects)), listed(FACTS, WIDTH)])


def average_html(effects: Sequence[AverageEffect]) -> str:
    facts = [f"{word}: {text}" for word, text in FACTS]
    return grid_html("", [("average effect", average_grid(effects))], facts)
