"""Average effects and curves as text and as HTML: a row each, mean, sd and interval with their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tallbayes.results.averages.answers import AverageEffect
from tallbayes.views.notebook.tables import grid_html
from tallbayes.views.tables import Cell, Grid, count
from tallbayes.views.text import listed, paired

if TYPE_CHECKING:
    from tallbayes.results.curves import ColumnCurve

WIDTH = 100
SHOWN = 11
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


def curve_grid(curve: ColumnCurve) -> Grid:
    """Some of its points, at equal distances."""
    places = np.unique(np.linspace(0, len(curve) - 1, SHOWN).astype(int))
    tail = (1 - curve.probability) / 2
    parts = {
        "mean": (curve.mean, curve.mean_error),
        "sd": (curve.sd, curve.sd_error),
        f"{tail:.1%}": (curve.lower, curve.lower_error),
        f"{1 - tail:.1%}": (curve.upper, curve.upper_error),
    }
    columns = {
        head: [Cell(float(values[place]), error=float(errors[place])) for place in places]
        for head, (values, errors) in parts.items()
    }
    return Grid([f"{curve.x[place]:.6g}" for place in places], columns)


def curve_text(curve: ColumnCurve) -> str:
    facts = [
        (
            "mean",
            f"of f({curve.column}) on the scale of the linear predictor, from {', '.join(curve.terms[:4])}"
            + (" and so on" if len(curve.terms) > 4 else ""),
        ),
        FACTS[1],
    ]
    facts += (
        [("left out", f"{', '.join(curve.left_out)}, which other columns have a part in")] if curve.left_out else []
    )
    return "\n\n".join([paired(curve.column, curve_grid(curve)), listed(facts, WIDTH)])


def curve_html(curve: ColumnCurve) -> str:
    return grid_html("", [(curve.column, curve_grid(curve))], [])


def average_html(effects: Sequence[AverageEffect]) -> str:
    facts = [f"{word}: {text}" for word, text in FACTS]
    return grid_html("", [("average effect", average_grid(effects))], facts)
