"""Results as HTML, for notebooks: small tables that take colours and fonts from where they are shown.

html(result)    coefficients with their errors, other quantities, then status, cost and notes

All text is escaped, and there are neither scripts nor style sheets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.estimator.estimates import Estimate
from tallbayes.posterior.posterior import Posterior
from tallbayes.results.coefficients import Number, parameter_names
from tallbayes.results.comparisons import Comparison
from tallbayes.results.export import formula_of, readable
from tallbayes.results.result import Result
from tallbayes.views.document import component_names
from tallbayes.views.numbers import figures, rounded, spread
from tallbayes.views.summary import ABOUT_ERRORS
from tallbayes.views.text import spent

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
    parts = [_heading(result), _coefficients(readable(result), names, moments), _quantities(others), _facts(result)]
    return BLOCK.format("".join(parts))


def _named(result: Result, *names: str) -> list[Estimate]:
    return [result.estimates[name] for name in names if name in result.estimates]


def estimate_html(estimate: Estimate) -> str:
    """Value and errors of every component."""
    lower, upper = estimate.flat_interval
    fields = zip(
        estimate.flat_value,
        estimate.flat_error,
        estimate.flat_standard_error,
        estimate.flat_bias_bound,
        lower,
        upper,
        strict=True,
    )
    rows = [
        (
            escape(name),
            _value(value, error),
            spread(se),
            spread(bias),
            f"{rounded(low, error)} to {rounded(up, error)}",
        )
        for name, (value, error, se, bias, low, up) in _first(zip(component_names(estimate), fields, strict=True))
    ]
    header = (escape(estimate.name), "value", "std error", "bias bound", "95% interval")
    return BLOCK.format(_table(header, rows, len(estimate.flat_value)))


def prediction_html(prediction: Prediction) -> str:
    """The first rows, a column for every number."""
    columns = prediction.columns()
    header = ("row", *(escape(name) for name in columns))
    rows = [(str(i), *(f"{values[i]:.4g}" for values in columns.values())) for i in _first(range(len(prediction)))]
    return BLOCK.format(_table(header, rows, len(prediction)))


def comparison_html(comparison: Comparison) -> str:
    """The difference, its ratio where that is one, and the probability that the first is the larger."""
    names = escape(comparison.a), escape(comparison.b)
    rows = [("{} - {}".format(*names), comparison.median, comparison.lower, comparison.upper)]
    if comparison.ratio is not None:
        ratio = comparison.ratio
        rows.append((escape(comparison.kind or ""), ratio.median, ratio.lower, ratio.upper))
    shown = [(name, *(_value(*each) for each in numbers)) for name, *numbers in rows]
    chance = "P({} &gt; {}) = {}".format(*names, _value(*comparison.probability))
    return BLOCK.format(f"{_table(('', 'median', 'lower', 'upper'), shown, len(shown))}<div>{chance}</div>")


def _heading(result: Result) -> str:
    parts = [formula_of(result), None if result.regression is None else result.regression.family]
    words = [escape(part) for part in parts if part] + [f"{result.cost.num_data:,} rows"]
    return f"<div><b>{words[0]}</b>{''.join(f' · {word}' for word in words[1:])}</div>"


def _coefficients(result: Result, names: Sequence[str], moments: Sequence[Estimate]) -> str:
    """Means, sds and ends of intervals, as far as they are known."""
    shown = range(min(len(names), MAX_ROWS))
    columns = {each.name: [_value(*_of(each, place)) for place in shown] for each in moments}
    ends = [_ends(result.posterior, place) for place in shown] if _is_quick(result, len(shown)) else []
    if any(lower for lower, _ in ends):
        columns |= {"2.5%": [lower for lower, _ in ends], "97.5%": [upper for _, upper in ends]}
    if not columns or not names:
        return ""
    rows = [
        (escape(names[place]), *(cells[place] for cells in columns.values()), *_missed(moments, place))
        for place in shown
    ]
    header = ("coefficient" if result.regression is not None else "parameter", *columns)
    return _table(header, rows, len(names))


def _of(estimate: Estimate, place: int) -> Number:
    return Number(float(estimate.flat_value[place]), float(estimate.flat_error[place]))


def _missed(estimates: Sequence[Estimate], place: int) -> tuple[str, ...]:
    """A cell that says so where one of them missed its tolerance."""
    met = all(each.flat_error[place] <= each.flat_tolerance[place] for each in estimates)
    return () if met else ("not met",)


def _is_quick(result: Result, count: int) -> bool:
    """Whether the ends of so many intervals can be found while somebody waits."""
    posterior = result.posterior
    if posterior is None or posterior.reading is None or not count:
        return False
    return count * sum(points.shape[0] * points.shape[1] for points in posterior.points) <= MOST_WORK


def _ends(posterior: Posterior, place: int) -> tuple[str, str]:
    """Of the 95% interval; empty where a program would have to be compiled for it."""
    line = None if posterior.reading is None else posterior.reading.line(place)
    if line is None:
        return "", ""
    both = posterior.line_quantiles(line, np.array([0.025, 0.975]))
    return _value(*_of(both, 0)), _value(*_of(both, 1))


def _quantities(estimates: Sequence[Estimate]) -> str:
    rows = [
        (escape(label), _value(*_of(each, place)), *_missed([each], place))
        for each in estimates
        for place, label in enumerate(each.structure.labels(each.name))
    ]
    return _table(("quantity", "expectation"), rows[:MAX_ROWS], len(rows)) if rows else ""


def _facts(result: Result) -> str:
    """Status, cost, what errors are, and the notes for who unfolds them."""
    status = escape(str(result.status))
    lines = [
        status if result.converged else f"<b>{status}</b>",
        spent(result.cost),
        f"<span{FAINT}>± error {escape(ABOUT_ERRORS[1])}</span>",
    ]
    notes = "".join(f"<li>{escape(note)}</li>" for note in result.notes)
    folded = f"<details><summary>notes</summary><ul>{notes}</ul></details>" if notes else ""
    return f"<div>{'<br>'.join(lines)}</div>{folded}"


def _value(value: float, error: float) -> str:
    """A number to the second digit of its error, and that error."""
    shown, beside = figures(value, error)
    return f"{shown}&nbsp;<span{FAINT}>± {beside}</span>" if beside else shown


def _first(items: Iterable[Any]) -> list[Any]:
    return [item for item, _ in zip(items, range(MAX_ROWS), strict=False)]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], count: int) -> str:
    """Cells are HTML already; `count` is how many rows there would be in all."""
    width = max([len(header), *(len(row) for row in rows)])
    head, *body = (_line(row, tag, width) for tag, row in [("th", header), *(("td", row) for row in rows)])
    hidden = count - len(rows)
    more = f"<div{FAINT}>... and {hidden:,} more</div>" if hidden else ""
    style = ' style="color:inherit;text-align:right;font-variant-numeric:tabular-nums"'
    return f"<table{style}><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>{more}"


def _line(cells: Sequence[str], tag: str, width: int) -> str:
    first, *others = [*cells, *[""] * (width - len(cells))]
    return f"<tr><{tag}{LEFT}>{first}</{tag}>{''.join(f'<{tag}>{each}</{tag}>' for each in others)}</tr>"
