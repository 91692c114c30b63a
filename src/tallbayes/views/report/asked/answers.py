"""Answers that were asked for beside the fit, each as a table of its own: leave-one-out, evidences, ranks of several
models, average effects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tallbayes.errors import InputError, explain
from tallbayes.views.averages import average_grid
from tallbayes.views.evidence import evidence_facts
from tallbayes.views.leaving_out import loo_cells, loo_facts, loo_heads, ranking_cells, ranking_heads
from tallbayes.views.report.markup import Markup, PageColumn, column, element, in_page, join, measured, table


def answered(answers: Sequence[Any]) -> Markup:
    """A table each, in the order in which they are given."""
    return join([part for each in answers for part in _tables(each)])


def _tables(found: Any) -> list[Markup]:
    kinds: dict[str, Callable[[Any], list[Markup]]] = {
        "Loo": _loo,
        "Evidence": _evidence,
        "Ranking": _ranking,
        "AverageEffect": lambda one: [averages_table([one])],
        "AverageEffects": lambda some: [averages_table([some[level] for level in some])],
    }
    make = kinds.get(type(found).__name__)
    if make is None:
        hint = "result.loo(), result.evidence(), tb.rank(...), result.average_effect(...)"
        raise InputError(explain("answers that a report can show", type(found).__name__, hint))
    return make(found)


def _loo(found: Any) -> list[Markup]:
    facts, rows = loo_facts(found), loo_cells(found)
    caption = f"Leave-one-out: {found.status}. ± is Monte Carlo's error; that of another table is the sampling error."
    columns = [_words("", [number for _, number, _ in facts]), _text("what it is", [words for *_, words in facts])]
    whole = table(caption, "", [name for name, *_ in facts], columns)
    heads = loo_heads(found)
    matter = [_words(head, [cells[place] for cells in rows]) for place, head in enumerate(heads) if place]
    about = f"The {found.unit}s that matter most, by their number in the source."
    notes = [element("p", note, class_="soft footnote") for note in found.notes]
    return [whole, table(about, heads[0], [cells[0] for cells in rows], matter), *notes]


def _evidence(found: Any) -> list[Markup]:
    facts = evidence_facts(found)
    notes = [element("p", note, class_="soft footnote") for note in found.notes]
    columns = [_text("", [text for _, text in facts])]
    return [
        table("Log evidence, in nats, with its Monte Carlo error.", "", [name for name, _ in facts], columns),
        *notes,
    ]


def _ranking(found: Any) -> list[Markup]:
    heads, cells = ranking_heads(found), ranking_cells(found)
    columns = [_words(head, [row[place] for row in cells]) for place, head in enumerate(heads) if place]
    notes = [element("p", each, class_="soft footnote") for each in found.remarks]
    return [table(f"Models by {found.quantity}, the best first.", heads[0], [row[0] for row in cells], columns), *notes]


def averages_table(effects: Sequence[Any]) -> Markup:
    """Of single ones."""
    grid = average_grid(effects)
    columns = [
        measured(head, [(cell.value, cell.error or 0.0) for cell in cells])
        if cells[0].error is not None
        else column(head, [str(cell) for cell in cells])
        for head, cells in grid.columns.items()
    ]
    caption = "Average effects over rows: posterior mean, sd and 95% interval, each ± its Monte Carlo error."
    return table(caption, "average effect", list(grid.names), columns)


def _words(head: str, texts: Sequence[str]) -> PageColumn:
    return column(head, [in_page(text) for text in texts])


def _text(head: str, texts: Sequence[str]) -> PageColumn:
    return PageColumn(head, [in_page(text) for text in texts], numeric=False)
