"""Which priors matter, in a report that was asked for it: how far means and sds move with the power of the prior.

Two panels on one page, means and sds, parameters ranked; the band is what does not count as sensitive.
"""

from __future__ import annotations

from tallbayes.results.powers.sensitivity import MEANINGS, PRIOR, Sensitivity
from tallbayes.views.numbers import with_error
from tallbayes.views.report.charts import ForestRow, Panel, intervals
from tallbayes.views.report.markup import Markup, column, element, in_page, join, measured, table
from tallbayes.views.sensitivity import parts_grid, sensitivity_grid, summary

MOST_DRAWN = 20


def sensitive(found: Sensitivity) -> Markup:
    """The figure, and all in numbers."""
    about = (
        "How far a posterior mean or sd moves, in posterior sds, where the power of the prior is doubled: a slope at "
        f"power 1, with its Monte Carlo error. Inside the band, up to {found.threshold:g}, it does not count."
    )
    panels = [_panel(found, 0, "the mean moves by"), _panel(found, 1, "the sd moves by")]
    chart = intervals("sensitivity", "How far answers hang on the prior", summary(found), panels)
    said = {found.finding(name) for name in found.names}
    words = [element("li", element("strong", each), f": {MEANINGS[each]}") for each in MEANINGS if each in said]
    notes = [element("p", note, class_="soft footnote") for note in found.notes]
    parts = [element("p", in_page(summary(found))), element("p", about, class_="soft"), chart]
    return join([*parts, element("ul", *words) if words else None, *_tables(found), *notes])


def _panel(found: Sensitivity, which: int, title: str) -> Panel:
    rows, own = [], found.densities.index(PRIOR)
    for name in found.ranked[:MOST_DRAWN]:
        place = found.names.index(name)
        value, error = float(found.values[own, place, which]), float(found.errors[own, place, which])
        text = in_page(with_error(value, error))
        rows.append(ForestRow(name, value, value - error, value + error, (text, ""), abs(value) > found.threshold))
    return Panel(title, rows, band=found.threshold)


def _tables(found: Sensitivity) -> list[Markup]:
    tables = []
    captions = {
        "parameter": "By parameter, in posterior sds: what the power of the prior moves, and that of the likelihood.",
        "prior of": "By part of the prior: what it moves most of all, in posterior sds.",
    }
    grids = [("parameter", sensitivity_grid(found))] + ([("prior of", parts_grid(found))] if found.parts else [])
    for head, grid in grids:
        columns = [
            column(name, [str(cell) for cell in cells])
            if isinstance(cells[0].value, str)
            else measured(name, [(cell.value, cell.error or 0.0) for cell in cells])
            for name, cells in grid.columns.items()
        ]
        tables.append(table(captions[head], head, list(grid.names), columns))
    return tables
