"""What a prior believes before a fit: parameters, and statistics of a response beside what was seen.

    response         observed    2.5%    25%    50%    75%  97.5%      p
    share of ones       0.391  0.0060  0.211  0.502  0.790  0.994  0.583

p is the share of draws beyond what was observed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallbayes.errors import require_extra
from tallbayes.progress import shorten
from tallbayes.results.checks.before import PriorPredictive
from tallbayes.results.checks.check import QUANTILES, Check
from tallbayes.views.notebook.tables import grid_html
from tallbayes.views.numbers import neat
from tallbayes.views.tables import Cell, Grid
from tallbayes.views.text import listed, paired

WIDTH, MOST_PARAMETERS = 100, 20
# The colours of other pictures.
DRAWN, SEEN = "#8f969e", "#2f8fd3"


def parameter_grid(found: PriorPredictive) -> Grid:
    """A row a parameter, the first of them."""
    numbers = found.parameters[:, :MOST_PARAMETERS]
    columns = {"mean": numbers.mean(axis=0), "sd": numbers.std(axis=0, ddof=1)}
    columns |= {_percent(p): np.quantile(numbers, p, axis=0) for p in (0.025, 0.5, 0.975)}
    cells = {name: [Cell(float(each), neat) for each in values] for name, values in columns.items()}
    return Grid([shorten(name, 36) for name in found.names[:MOST_PARAMETERS]], cells)


def response_grid(found: PriorPredictive) -> Grid:
    rows = found.table()
    heads = ["observed", *(f"{p:.1%}" for p in QUANTILES), "p"]
    cells = {head.replace(".0%", "%"): [Cell(row[head], _number) for row in rows] for head in heads}
    return Grid([str(row["statistic"]) for row in rows], cells)


def _number(value: float) -> str:
    return neat(value) if np.isfinite(value) else ""


def _percent(p: float) -> str:
    return f"{100 * p:g}%"


def summary(found: PriorPredictive) -> str:
    """In a line."""
    of = "" if len(found.rows) == found.num_rows else f" of {found.num_rows:,}"
    return f"Before the fit: {len(found):,} draws from the prior, and responses of {len(found.rows):,}{of} rows."


def facts(found: PriorPredictive) -> list[tuple[str, str]]:
    more = len(found.names) - MOST_PARAMETERS
    hidden = [("parameters", f"and {more:,} more: .parameters has them")] if more > 0 else []
    about = "the share of draws beyond what was observed: near 0 or 1, the prior all but rules the response out"
    return [*hidden, ("p", about), *(tuple(note.split(": ", 1)) for note in found.notes if ": " in note)]  # type: ignore[list-item]


def predictive_text(found: PriorPredictive) -> str:
    grids = [paired("parameter", parameter_grid(found)), paired("response", response_grid(found))]
    return "\n\n".join([summary(found), *grids, listed(facts(found), WIDTH)])


def predictive_html(found: PriorPredictive) -> str:
    grids = [("parameter", parameter_grid(found)), ("response", response_grid(found))]
    return grid_html(summary(found), grids, [f"{word}: {text}" for word, text in facts(found)])


def plot_check(check: Check, ax: Any = None) -> Any:
    """A histogram of every number of a statistic, with a line where it was observed."""
    if ax is None:
        ax = require_extra("matplotlib.pyplot", "plot", "plots").subplots()[1]
    for k, label in enumerate(check.labels):
        values = check.replicated[:, k]
        low, high = np.quantile(values, (0.005, 0.995))
        shown = values[(values >= low) & (values <= high)]
        ax.hist(shown, bins=40, density=True, color=DRAWN, alpha=0.6 / len(check.labels) + 0.2, label=label or None)
        if np.isfinite(check.observed[k]):
            ax.axvline(check.observed[k], color=SEEN)
    ax.set_xlabel(check.title or check.name)
    ax.set_yticks([])
    return ax
