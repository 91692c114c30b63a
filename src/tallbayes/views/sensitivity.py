"""Sensitivity as text and as HTML: what the prior's power moves by parameter, and which parts of the prior matter.

    parameter     mean  error       sd  error   finding
    hour        -0.181 0.0018   -0.026 0.0020   prior and data disagree

Numbers are in posterior sds, by doubling a power.
"""

from __future__ import annotations

import numpy as np

from tallbayes.progress import shorten
from tallbayes.results.powers.sensitivity import LIKELIHOOD, MEANINGS, PRIOR, Sensitivity
from tallbayes.views.notebook.tables import grid_html
from tallbayes.views.numbers import with_error
from tallbayes.views.tables import Cell, Grid, with_errors
from tallbayes.views.text import listed, paired

WIDTH, MAX_ROWS, MOST_PARTS = 100, 40, 8


def sensitivity_grid(found: Sensitivity) -> Grid:
    """A row a parameter, ranked: what its mean and its sd do by the power of the prior, then by the likelihood's."""
    names = found.ranked[:MAX_ROWS]
    places = [found.names.index(name) for name in names]
    columns: dict[str, list[Cell]] = {}
    for density in (PRIOR, LIKELIHOOD):
        own = found.densities.index(density)
        for place, what in enumerate(("mean", "sd")):
            head = f"{what} by {density}"
            columns[head] = with_errors(found.values[own, places, place], found.errors[own, places, place])
    if found.parts:
        columns["most by that of"] = [Cell(found.hangs_on(name)) for name in names]
    columns["finding"] = [Cell(found.finding(name)) for name in names]
    return Grid([shorten(name, 36) for name in names], columns)


def parts_grid(found: Sensitivity) -> Grid:
    """A row a part of the prior, ranked: the parameter that it moves most, and how far."""
    cells, moved = [], []
    for part in found.parts[:MOST_PARTS]:
        own = found.densities.index(part)
        place, which = np.unravel_index(np.abs(found.values[own]).argmax(), found.values[own].shape)
        cells.append(Cell(float(found.values[own, place, which]), error=float(found.errors[own, place, which])))
        moved.append(Cell(f"the {('mean', 'sd')[which]} of {shorten(found.names[place], 36)}"))
    columns: dict[str, list[Cell]] = {"moves": cells, "most of all": moved}
    if found.priors:
        columns["as it was stated"] = [Cell(found.stated(part)) for part in found.parts[:MOST_PARTS]]
    return Grid([shorten(part, 36) for part in found.parts[:MOST_PARTS]], columns)


def facts(found: Sensitivity) -> list[tuple[str, str]]:
    """What the numbers are, and what the findings mean, each under a word."""
    said = {found.finding(name) for name in found.names}
    about = (
        "in posterior sds, where the power of the prior or of the likelihood is doubled: slopes at power 1, which are "
        f"exact for small changes alone; above {found.threshold:g} counts as sensitive"
    )
    errors = ("error", "of the number to its left: Monte Carlo, root mean square, remaining bias included")
    notes = [("note", note) for note in found.notes]
    return [("moves", about), *((each, MEANINGS[each]) for each in MEANINGS if each in said), errors, *notes]


def summary(found: Sensitivity) -> str:
    """In a line."""
    count = len(found.sensitive)
    if not count:
        return f"No mean and no sd hangs on the prior: the most is {_largest(found)}."
    few = ", ".join(found.sensitive[:4]) + (", ..." if count > 4 else "")
    return f"{count} of {len(found)} parameters hang on the prior: {few}; the most is {_largest(found)}."


def _largest(found: Sensitivity) -> str:
    own = found.densities.index(PRIOR)
    place = np.unravel_index(np.abs(found.values[own]).argmax(), found.values[own].shape)
    return f"{with_error(float(found.values[own][place]), float(found.errors[own][place]))} posterior sds"


def sensitivity_text(found: Sensitivity) -> str:
    """Both tables under a line that sums them up."""
    parts = [summary(found), paired("parameter", sensitivity_grid(found))]
    if found.parts:
        parts.append(paired("prior of", parts_grid(found)))
    return "\n\n".join([*parts, listed(facts(found), WIDTH)])


def sensitivity_html(found: Sensitivity) -> str:
    grids = [("parameter", sensitivity_grid(found))] + ([("prior of", parts_grid(found))] if found.parts else [])
    return grid_html(summary(found), grids, [f"{word}: {text}" for word, text in facts(found)])
