"""Results as HTML, for notebooks: small tables that take colours and fonts from where they are shown.

html(result)    what was met and what was not, coefficients with their errors, other quantities, then cost and notes

All text is escaped, and there are neither scripts nor style sheets.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import isfinite
from typing import TYPE_CHECKING

from tallbayes.estimator.estimates import Estimate
from tallbayes.results.coefficients import Ends, Number, interval_ends, own_parameters, parameter_names
from tallbayes.results.comparisons import Comparison
from tallbayes.results.export import formula_of, readable
from tallbayes.results.result import Result
from tallbayes.views.advice import TYPED
from tallbayes.views.headline import Headline, headline
from tallbayes.views.numbers import ROUGH, UNKNOWN
from tallbayes.views.summary import ABOUT_ERRORS
from tallbayes.views.tables import Cell, Component, Grid, components, measured, met, predictions, spent

if TYPE_CHECKING:
    from tallbayes.posterior.prediction import Prediction

MAX_ROWS = 40
# Ends of intervals are found anew at every display: beyond this many paths times parameters that would be felt.
MOST_WORK = 2**16
LEFT = ' style="text-align:left"'
FAINT = ' style="opacity:0.65"'
# Dollars in names are no formulas.
BLOCK = '<div class="tex2jax_ignore mathjax_ignore">{}</div>'


def html(result: Result) -> str:
    """The answer as one block of HTML."""
    names = parameter_names(readable(result))
    moments = [each for each in _named(result, "mean", "sd") if len(each.flat_value) == len(names)]
    others = [each for each in result.estimates.values() if each not in moments]
    names = names[: own_parameters(result)]
    shown = min(len(names), MAX_ROWS)
    ends = interval_ends(readable(result), shown, quickly=True) if _is_quick(readable(result), shown) else None
    top = headline(result, ends, {})
    tables = [_coefficients(readable(result), names, moments, ends), _quantities(others)]
    return BLOCK.format("".join([_headline(top), _heading(result), *tables, _facts(result, top)]))


def _headline(top: Headline) -> str:
    """How it ended in bold, what is known, and what to do."""
    facts = f": {escape(top.facts)}" if top.facts else ""
    step = TYPED.sub(r"<code>\1</code>", escape(_sentence(top.step)))
    below = f"<div>{step}</div>" if top.step else ""
    return f"<div><b>{escape(_sentence(top.opening, ''))}</b>{facts}.</div>{below}"


def _sentence(words: str, stop: str = ".") -> str:
    return f"{words[:1].upper()}{words[1:]}{stop}"


def _named(result: Result, *names: str) -> list[Estimate]:
    return [result.estimates[name] for name in names if name in result.estimates]


def estimate_html(estimate: Estimate) -> str:
    """Value and errors of every component."""
    rows = [
        (escape(each.name), _cell(each.value), str(each.standard_error), str(each.bias_bound), _span(each))
        for each in components(estimate, MAX_ROWS)
    ]
    header = (escape(estimate.name), "value", "std error", "bias bound", "95% interval")
    return BLOCK.format(_table(header, rows, len(estimate.flat_value)))


def _span(each: Component) -> str:
    return f"{each.lower} to {each.upper}" if isfinite(each.lower.value) else UNKNOWN


def prediction_html(prediction: Prediction) -> str:
    """The first rows, a column for every number."""
    grid = predictions(prediction, MAX_ROWS)
    rows = zip(grid.names, *(map(str, cells) for cells in grid.columns.values()), strict=True)
    return BLOCK.format(_table(("row", *map(escape, grid.columns)), list(rows), len(prediction)))


def comparison_html(comparison: Comparison) -> str:
    """The difference, its ratio where that is one, and the probability that the first is the larger."""
    names = escape(comparison.a), escape(comparison.b)
    rows = [("{} - {}".format(*names), comparison.median, comparison.lower, comparison.upper)]
    if comparison.ratio is not None:
        ratio = comparison.ratio
        rows.append((escape(comparison.kind or ""), ratio.median, ratio.lower, ratio.upper))
    shown = [(name, *map(_number, numbers)) for name, *numbers in rows]
    chance = "P({} &gt; {}) = {}".format(*names, _number(comparison.probability))
    return BLOCK.format(f"{_table(('', 'median', 'lower', 'upper'), shown, len(shown))}<div>{chance}</div>")


def _number(number: Number) -> str:
    return _cell(Cell(number.value, error=number.error))


def _heading(result: Result) -> str:
    parts = [formula_of(result), None if result.regression is None else result.regression.family]
    words = [escape(part) for part in parts if part] + [f"{result.num_rows:,} rows"]
    return f"<div><b>{words[0]}</b>{''.join(f' · {word}' for word in words[1:])}</div>"


def _coefficients(result: Result, names: Sequence[str], moments: Sequence[Estimate], ends: Ends | None) -> str:
    """Means, sds and ends of intervals, as far as they are known."""
    shown = min(len(names), MAX_ROWS)
    columns = {each.name: [_cell(cell) for cell in measured(each, shown)] for each in moments}
    for end in () if ends is None else (ends.lower, ends.upper):
        found = dict(zip(ends.names if ends else (), map(_cell, measured(end)), strict=True))
        columns[end.name] = [found.get(name, "") for name in names[:shown]]
    if not columns or not names:
        return ""
    accurate = met(*moments, most=shown) if moments else [True] * shown
    cells = zip(*columns.values(), strict=True)
    rows = [(escape(name), *row, *_missed(each)) for name, row, each in zip(names, cells, accurate, strict=False)]
    header = ("coefficient" if result.regression is not None else "parameter", *columns)
    return _table(header, rows, len(names))


def _missed(accurate: bool) -> tuple[str, ...]:
    """A cell that says so."""
    return () if accurate else ("not met",)


def _is_quick(result: Result, count: int) -> bool:
    """Whether the ends of so many intervals can be found while somebody waits."""
    posterior = result.posterior
    if posterior is None or posterior.reading is None or not count:
        return False
    return count * sum(points.shape[0] * points.shape[1] for points in posterior.points) <= MOST_WORK


def _quantities(estimates: Sequence[Estimate]) -> str:
    rows = [
        (escape(label), _cell(each.value), *_missed(each.met))
        for estimate in estimates
        for label, each in zip(estimate.structure.labels(estimate.name), components(estimate), strict=True)
    ]
    return _table(("quantity", "expectation"), rows[:MAX_ROWS], len(rows)) if rows else ""


def _facts(result: Result, top: Headline) -> str:
    """What errors and marks are, status, cost, and the notes for who unfolds them."""
    lines = [
        f"<span{FAINT}>± error {escape(ABOUT_ERRORS[1])}</span>",
        *([f"<span{FAINT}>{ROUGH} {escape(top.about_marks)}</span>"] if top.about_marks else []),
        escape(str(result.status)),
        spent(result),
    ]
    notes = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    folded = f"<details><summary>notes</summary><ul>{notes}</ul></details>" if notes else ""
    return f"<div>{'<br>'.join(lines)}</div>{folded}"


def grid_html(top: str, grids: Sequence[tuple[str, Grid]], facts: Sequence[str]) -> str:
    """Tables under a line, and what is to be known of them."""
    tables = []
    for head, grid in grids:
        rows = zip(map(escape, grid.names), *(map(_word, cells) for cells in grid.columns.values()), strict=True)
        tables.append(_table((escape(head), *map(escape, grid.columns)), list(rows), len(grid.names)))
    about = "<br>".join(f"<span{FAINT}>{escape(each)}</span>" for each in facts)
    return BLOCK.format(f"<div>{escape(top)}</div>{''.join(tables)}<div>{about}</div>")


def _word(cell: Cell) -> str:
    return escape(cell.value) if isinstance(cell.value, str) else _cell(cell)


def _cell(cell: Cell) -> str:
    """A number to the second digit of its error, and that error."""
    value, error = cell.texts
    return f"{value}&nbsp;<span{FAINT}>± {error}</span>" if error else value


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], count: int) -> str:
    """Cells are HTML already; `count` is how many rows there would be in all."""
    width = max(len(header), *(len(row) for row in rows))
    head, *body = (_line(row, tag, width) for tag, row in [("th", header), *(("td", row) for row in rows)])
    hidden = count - len(rows)
    more = f"<div{FAINT}>... and {hidden:,} more</div>" if hidden else ""
    style = ' style="color:inherit;text-align:right;font-variant-numeric:tabular-nums"'
    return f"<table{style}><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>{more}"


def _line(cells: Sequence[str], tag: str, width: int) -> str:
    first, *others = [*cells, *[""] * (width - len(cells))]
    return f"<tr><{tag}{LEFT}>{first}</{tag}>{''.join(f'<{tag}>{each}</{tag}>' for each in others)}</tr>"
