"""Results as plain aligned text: quantities, levels, cost, status."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from math import isfinite

import numpy as np

from tallbayes.progress import shorten
from tallbayes.results.coefficients import Ends, interval_ends, least, own_parameters, shown_size
from tallbayes.results.parts import DrawWeights, Mode
from tallbayes.results.result import Result
from tallbayes.views.advice import unquoted
from tallbayes.views.headline import Headline, headline
from tallbayes.views.numbers import ROUGH, UNKNOWN, fixed, neat, plain
from tallbayes.views.tables import Component, Grid, components, levels, measured, passes, places, trials
from tallbayes.weighing.weights import MOST_TAIL

MAX_ROWS = 24
WIDTH = 110
LONGEST_NAME = 36


def describe(result: Result) -> str:
    """The whole result: what was met and what was not, then the answer."""
    ends = interval_ends(result, least(own_parameters(result), MAX_ROWS))
    top = headline(result, ends, {})
    # The same of a result and of its file, though only one of the two can go on.
    sharper = f"; interval_tolerance={neat(top.tolerance)} asks for sharper ends" if top.verdict.has_rough_ends else ""
    said = [top.line, *([f"{ROUGH} {top.about_marks}{sharper}"] if top.about_marks else [])]
    lines = [line for each in said for line in textwrap.wrap(each, WIDTH, subsequent_indent="    ")]
    return "\n\n".join(["\n".join(lines), *_groups(result), details(result, ends)])


def _groups(result: Result) -> list[str]:
    """Shares of variance, where there are groups."""
    from tallbayes.results.groups.partition import known_partition

    shares = known_partition(result)
    return [] if shares is None else [str(shares)]


def remarks(top: Headline) -> list[tuple[str, str]]:
    """What the mark of rough numbers means and what to do, each under a word."""
    marks = [(ROUGH, top.about_marks)] if top.about_marks else []
    return [*marks, ("next", unquoted(top.step))] if top.step else marks


def about_ends(result: Result, ends: Ends) -> str:
    """How accurate the ends are, and what it would cost to have no rough ones, or all as accurate as the means."""
    errors = ends.errors
    text = "2.5% and 97.5% of the posterior"
    if not errors.size:
        return text
    text += f"; errors at most {plain(float(errors.max()))} sd"
    rough = bool(np.any(~(errors <= ends.tolerance)))
    wanted = ends.tolerance if rough else result.settings.get("tolerance")
    if not isinstance(wanted, float) or not (rough or errors.max() > wanted) or not isfinite(ends.price(wanted)):
        return text
    price = f"{plain(ends.price(wanted))} {result.unit} gradients"
    return f"{text}; {neat(wanted)} sd at every one would take about {price} in all"


def details(result: Result, ends: Ends | None) -> str:
    """All below the headline."""
    parts = [
        _quantities(result),
        *([] if ends is None else [_ends(result, ends)]),
        *_modes(result),
        *([_levels(result), _rates(result)] if result.levels else []),
        *([] if result.weighing is None else [about_weights(result.weighing)]),
        _cost(result),
        *_tuning(result),
        *(["\n".join(result.notes)] if result.notes else []),
        f"status: {result.status}",
    ]
    return "\n\n".join(parts)


def in_a_line(result: Result) -> str:
    """What it is, how it ended and what it took: for a prompt that shows whatever it is given."""
    sizes = [f"{name} of {len(each.flat_value):,}" for name, each in result.estimates.items()]
    more = [f"{len(sizes) - 4} more"] if len(sizes) > 4 else []
    cost = (
        f"{neat(result.cost.epochs)} epochs of {result.cost.num_data:,} {result.unit}s, {neat(result.cost.seconds)} s"
    )
    return f"<tallbayes.Result: {result.status.name}; {', '.join([*sizes[:4], *more])}; {cost}>"


def mode_heading(result: Result, mode: Mode) -> str:
    """What the numbers of another mode are, in a sentence."""
    own = 1 - sum(each.share for each in result.modes)
    sentence = (
        f"another mode, with {neat(mode.share, 2)} of the posterior's mass by Laplace's estimate; the numbers above "
        f"are of the heaviest, with {neat(own, 2)}"
    )
    return (
        sentence
        if mode.result is not None
        else f"{sentence}; not answered, since {mode.reason}; Laplace's Gaussian there"
    )


def _modes(result: Result) -> list[str]:
    parts = []
    for mode in result.modes:
        if mode.result is not None:
            body = f"{_quantities(mode.result)}\nstatus there: {mode.result.status}"
        else:
            body = laid_out("parameter", places(mode, MAX_ROWS))
        parts.append(f"{mode_heading(result, mode)}\n{body}")
    return parts


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned to the right, the first to the left."""
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in [header, *rows]
    ]
    return "\n".join(line.rstrip() for line in lines)


def aligned(head: str, texts: Sequence[str], gap: int) -> list[str]:
    """A column of one width after a gap, points below points, and its head above the middle."""
    split = [text.partition(".") for text in texts]
    left = max((len(before) for before, _, _ in split), default=0)
    right = max((len(point + after) for _, point, after in split), default=0)
    lined = [before.rjust(left) + (point + after).ljust(right) for before, point, after in split]
    width = max(len(head), left + right)
    return [" " * gap + each for each in (head.center(width), *(line.center(width) for line in lined))]


def paired(head: str, grid: Grid) -> str:
    """A column for every number, and one for its error where it has one; of words alone they begin to the left."""
    columns: list[list[str]] = []
    for name, cells in grid.columns.items():
        values, errors = zip(*(cell.texts for cell in cells), strict=True) if cells else ((), ())
        if all(isinstance(cell.value, str) for cell in cells):
            width = max(map(len, (name, *values)))
            columns.append([f"    {each.ljust(width)}" for each in (name, *values)])
            continue
        columns.append(aligned(name, values, 4))
        if any(cell.error is not None for cell in cells):
            columns.append(aligned("error", [each or UNKNOWN for each in errors], 2))
    labels: Sequence[str] = [shorten(name, LONGEST_NAME) for name in (head, *grid.names)]
    longest = max(map(len, labels))
    rows = zip([each.ljust(longest) for each in labels], *columns, strict=True)
    return "\n".join("".join(row).rstrip() for row in rows)


def listed(facts: Sequence[tuple[str, str]], width: int) -> str:
    """Each under its word, within a width."""
    indent = max(len(word) for word, _ in facts) + 2
    return "\n".join("\n".join(wrap(word.ljust(indent) + text, width, indent)) for word, text in facts if text)


def wrap(text: str, width: int, indent: int = 0) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent=" " * indent, break_on_hyphens=False)


def laid_out(head: str, grid: Grid) -> str:
    """A table with the names of its rows before them."""
    rows = zip(grid.names, *(map(str, cells) for cells in grid.columns.values()), strict=True)
    return table((head, *grid.columns), list(rows))


def _quantities(result: Result) -> str:
    header = ("quantity", "value", "std error", "bias bound", "95% interval", "tolerance", "met")
    rows, hidden = [], 0
    for estimate in result.estimates.values():
        labels = list(estimate.structure.labels(estimate.name))[: shown_size(result, estimate)]
        hidden += max(0, len(labels) - MAX_ROWS)
        some = components(estimate, min(len(labels), MAX_ROWS))
        rows += [_row(label, each) for label, each in zip(labels, some, strict=False)]
    text = table(header, rows)
    return text + (f"\n... and {hidden} more components" if hidden else "")


def _row(label: str, each: Component) -> list[str]:
    interval = f"[{each.lower}, {each.upper}]" if isfinite(each.lower.value) else UNKNOWN
    numbers = each.value, each.standard_error, each.bias_bound, interval, each.tolerance
    return [label, *map(str, numbers), "yes" if each.met else "no"]


def _ends(result: Result, ends: Ends) -> str:
    """Equal-tailed intervals of the first parameters, each end with its Monte Carlo error."""
    cells = zip(ends.names, measured(ends.lower), measured(ends.upper), strict=True)
    rows = [[name, *lower.texts, *upper.texts] for name, lower, upper in cells]
    header = ("interval", ends.lower.name, "error", ends.upper.name, "error")
    return f"{table(header, rows)}\n({about_ends(result, ends)})"


def _levels(result: Result) -> str:
    about = "(largest component of any quantity; consistency in standard errors)"
    return f"{laid_out('level', levels(result))}\n{about}"


def about_weights(weighing: DrawWeights) -> str:
    """How many draws, and how their weights behave."""
    tail = f"their tail index {fixed(weighing.tail, 2)}" if isfinite(weighing.tail) else "with no tail"
    share, largest = plain(100 * weighing.efficiency), plain(weighing.largest)
    return (
        f"weights: {weighing.draws:,} draws {weighing.about}, worth {share}% of as many from the posterior; "
        f"the largest weighs {largest} times the mean, {tail} (trusted up to {plain(MOST_TAIL)})"
    )


def _rates(result: Result) -> str:
    rates = result.rates
    rows = [
        [name, *(fixed(exponent[name], 2) for exponent in (rates.alpha, rates.beta, rates.gamma))] for name in result
    ]
    contraction = result.contraction
    rates_table = table(("rates", "alpha", "beta", "gamma"), rows)
    if contraction is None:
        return rates_table
    return (
        f"{rates_table}\ncontraction: paths come closer by a factor {neat(contraction.factor)} a level"
        f" (at most {neat(contraction.upper)}), rate {neat(contraction.rate)}"
    )


def _cost(result: Result) -> str:
    cost = result.cost
    return (
        f"cost: {cost.evaluations:,} {result.unit} gradients ({neat(cost.epochs)} epochs of {cost.num_data:,} "
        f"{result.unit}s)"
        f" and {cost.setup_evaluations:,} in set-up ({passes(cost.passes)});"
        f" {neat(cost.seconds)} s\nmethod: {result.method}{_anchor(result)}"
    )


def _anchor(result: Result) -> str:
    """Which Gaussian the paths ran about, and why."""
    anchor = result.anchor
    if anchor is None or not anchor.reason:
        return ""
    return f"\nanchor: {'balanced' if anchor.recentred else 'the mode'}; {anchor.reason}"


def _tuning(result: Result) -> list[str]:
    """What was chosen, out of what, and why."""
    tuning = result.tuning
    if tuning is None:
        return []
    tried = trials(tuning, result.unit).columns
    chosen = list(map(str, tried.pop("")))
    why = f"{tuning.reason}; paths of time {neat(tuning.time)} + {neat(tuning.time)} a level"
    if tuning.chosen.window:
        why += f" + {neat(tuning.chosen.window * tuning.time)} over which they are averaged"
    return [
        f"{laid_out('tuning', Grid(chosen, tried))}\n({why}; {tuning.evaluations:,} {result.unit} gradients in all)"
    ]
