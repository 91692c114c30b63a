"""Leave-one-out and ranks as text and pages: every number with its error, and what kind of error that is.

elpd       -200.25 ± 0.010    sampling ± 5.1

model    elpd difference   Monte Carlo   sampling
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from tallbayes.views.numbers import plain, spread, with_error

if TYPE_CHECKING:
    from tallbayes.leave_one_out.loo import Loo
    from tallbayes.leave_one_out.ranking import Ranking

MOST_SHOWN = 5


def loo_in_a_line(found: Loo) -> str:
    error = with_error(found.elpd, found.error)
    return f"<tallbayes.Loo elpd {error}, sampling error {spread(found.sampling_error)}: {found.status}>"


def loo_facts(found: Loo) -> list[tuple[str, str, str]]:
    """What is told of it: name, number with its Monte Carlo error, and what it is."""
    unit = found.unit
    return [
        ("elpd", with_error(found.elpd, found.error), f"of {found.num_rows:,} {unit}s, each left out once"),
        ("sampling error", spread(found.sampling_error), f"of elpd, over {unit}s: another table would differ so much"),
        ("p_loo", with_error(found.p_loo, found.p_loo_error), "effective number of parameters"),
        ("looic", with_error(found.looic, 2 * found.error), "-2 elpd"),
    ]


def loo_text(found: Loo) -> str:
    """Its numbers, the rows that matter most, and what to know of the errors."""
    facts = loo_facts(found)
    widths = [max(len(fact[k]) for fact in facts) for k in (0, 1)]
    lines = [f"leave-one-out: {found.status}", ""]
    lines += [f"{name:<{widths[0]}}  {number:>{widths[1]}}  {words}" for name, number, words in facts]
    lines += ["", "".join(f"{head:>12}" for head in loo_heads(found))]
    lines += ["".join(f"{cell:>12}" for cell in cells) for cells in loo_cells(found)]
    about = [
        f"± Monte Carlo: how far from exact leave-one-out of this table; {found.draws:,} weighted draws, "
        f"{found.certified_rows:,} {found.unit}s certified",
        f"influence: by how much the log density of a {found.unit} falls when it is left out",
        *found.notes,
    ]
    return "\n".join([*lines, "", *about])


def loo_heads(found: Loo) -> tuple[str, ...]:
    return (found.unit, "elpd", "influence", "leverage")


def loo_cells(found: Loo) -> list[tuple[str, ...]]:
    shown = found.rows[:MOST_SHOWN]
    return [(f"{each.row:,}", *(plain(number, 3) for number in each[1:])) for each in shown]


def loo_html(found: Loo) -> str:
    facts = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(number)}</td><td>{escape(words)}</td></tr>"
        for name, number, words in loo_facts(found)
    )
    heads = "".join(f"<th>{head}</th>" for head in loo_heads(found))
    rows = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for cells in loo_cells(found))
    notes = "".join(f"<p>{escape(note)}</p>" for note in found.notes)
    return (
        f"<table><caption>leave-one-out: {escape(found.status)}</caption>{facts}</table>"
        f"<table><tr>{heads}</tr>{rows}</table>{notes}"
    )


def ranking_in_a_line(found: Ranking) -> str:
    return f"<tallbayes.Ranking by {found.by}: {' > '.join(each.name for each in found.places)}>"


def ranking_heads(found: Ranking) -> tuple[str, ...]:
    shared = ("model", found.quantity, "behind the first")
    return (*shared, "sampling error", "p_loo") if found.by == "loo" else (*shared, "posterior odds")


def ranking_cells(found: Ranking) -> list[tuple[str, ...]]:
    """A row a model, the best first; each number with its Monte Carlo error."""
    cells: list[tuple[str, ...]] = []
    for each in found.places:
        behind = with_error(each.difference, each.error) if each is not found.places[0] else "0"
        beside: tuple[str, ...]
        if found.by == "loo":
            beside = spread(each.sampling_error) if each is not found.places[0] else "", plain(each.p_loo or 0.0, 3)
        else:
            beside = (plain(each.odds, 3),)
        cells.append((each.name, with_error(each.value, each.value_error), behind, *beside))
    return cells


def ranking_text(found: Ranking) -> str:
    """A table, and what to know of its errors."""
    whole = [ranking_heads(found), *ranking_cells(found)]
    widths = [max(len(row[k]) for row in whole) for k in range(len(whole[0]))]
    lines = []
    for row in whole:
        first, *others = zip(row, widths, strict=True)
        lines.append("  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]).rstrip())
    return "\n".join([*lines, "", *found.remarks])


def ranking_html(found: Ranking) -> str:
    heads = "".join(f"<th>{escape(head)}</th>" for head in ranking_heads(found))
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells in ranking_cells(found)
    )
    remarks = "".join(f"<p>{escape(each)}</p>" for each in found.remarks)
    return f"<table><caption>by {escape(found.by)}</caption><tr>{heads}</tr>{rows}</table>{remarks}"
