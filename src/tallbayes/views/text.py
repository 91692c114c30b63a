"""Results as plain aligned text: quantities, levels, cost, status."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tallbayes.estimator.estimates import Estimate
from tallbayes.results.coefficients import interval_ends, parameter_names
from tallbayes.results.result import Cost, Mode, Result
from tallbayes.views.numbers import UNKNOWN, figures, fixed, neat, plain, rounded, share, spread

MAX_ROWS = 24


def describe(result: Result) -> str:
    """The whole result, the answer first."""
    parts = [
        _quantities(result),
        *_ends(result),
        *_modes(result),
        *([_levels(result), _rates(result)] if result.levels else []),
        _cost(result),
        *_tuning(result),
        *(["\n".join(result.notes)] if result.notes else []),
        f"status: {result.status}",
    ]
    return "\n\n".join(parts)


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
            labels = list(mode.structure.labels("parameter"))[:MAX_ROWS]
            rows = zip(labels, mode.flat_location, mode.flat_sd, strict=False)
            body = table(("", "mode", "sd"), [(name, rounded(at, sd), spread(sd)) for name, at, sd in rows])
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


def _quantities(result: Result) -> str:
    header = ("quantity", "value", "std error", "bias bound", "95% interval", "tolerance", "met")
    rows, hidden = [], 0
    for estimate in result.estimates.values():
        labels = list(estimate.structure.labels(estimate.name))
        hidden += max(0, len(labels) - MAX_ROWS)
        rows += [_row(estimate, i, label) for i, label in enumerate(labels[:MAX_ROWS])]
    text = table(header, rows)
    return text + (f"\n... and {hidden} more components" if hidden else "")


def _row(estimate: Estimate, i: int, label: str) -> list[str]:
    error, ends = estimate.flat_error[i], [end[i] for end in estimate.flat_interval]
    return [
        label,
        rounded(estimate.flat_value[i], error),
        spread(estimate.flat_standard_error[i]),
        spread(estimate.flat_bias_bound[i]),
        f"[{', '.join(rounded(end, error) for end in ends)}]" if np.all(np.isfinite(ends)) else UNKNOWN,
        spread(estimate.flat_tolerance[i]),
        "yes" if error <= estimate.flat_tolerance[i] else "no",
    ]


def _ends(result: Result) -> list[str]:
    """Equal-tailed intervals of the first parameters, each end with its Monte Carlo error."""
    ends = interval_ends(result, MAX_ROWS)
    if ends is None:
        return []
    names = parameter_names(result)[: len(ends.lower.flat_value)]
    rows = []
    for i, name in enumerate(names):
        cells = [(each.flat_value[i], each.flat_error[i]) for each in (ends.lower, ends.upper)]
        rows.append([name, *(text for cell in cells for text in figures(*cell))])
    header = ("interval", ends.lower.name, "error", ends.upper.name, "error")
    return [f"{table(header, rows)}\n({ends.note})"]


def _levels(result: Result) -> str:
    header = (
        "level",
        "step",
        "time",
        "samples",
        "evaluations",
        "|mean|",
        "variance",
        "kurtosis",
        "consistency",
    )
    rows = []
    for number, level in enumerate(result.levels):
        rows.append(
            [
                f"{number}+" if result.unbiased and number == len(result.levels) - 1 else str(number),
                neat(level.step),
                neat(level.time),
                f"{level.samples:,}",
                f"{level.evaluations:,}",
                plain(_largest(level.mean)),
                plain(_largest(level.variance)),
                plain(_largest(level.kurtosis)),
                plain(_largest(level.consistency)) if number and np.isfinite(_first(level.consistency)) else "",
            ]
        )
    return table(header, rows) + "\n(largest component of any quantity; consistency in standard errors)"


def _first(by_quantity: dict[str, np.ndarray]) -> float:
    return float(next(iter(by_quantity.values()))[0])


def _largest(by_quantity: dict[str, np.ndarray]) -> float:
    return max(float(np.max(np.abs(part))) for part in by_quantity.values())


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
        f"cost: {cost.evaluations:,} row gradients ({neat(cost.epochs)} epochs of {cost.num_data:,} rows)"
        f" and {cost.setup_evaluations:,} in set-up ({_passes(cost.passes)});"
        f" {neat(cost.seconds)} s\nmethod: {result.method}"
    )


def spent(cost: Cost) -> str:
    """Seconds, set-up and paths, in a few words."""
    seconds, passes = neat(cost.seconds), neat(cost.passes)
    return f"{seconds} s: {passes} passes over the rows, then {cost.evaluations:,} row gradients"


def _tuning(result: Result) -> list[str]:
    """What was chosen, out of what, and why."""
    tuning = result.tuning
    if tuning is None:
        return []
    header = ("tuning", "first step", "rows a step", "window", "predicted price", "strained", "evaluations")
    rows = [
        [
            "chosen" if trial == tuning.chosen else "",
            neat(trial.first_step),
            f"{trial.batch_size:,}",
            neat(trial.window * tuning.time) if trial.window else "",
            plain(trial.price),
            share(trial.strained),
            f"{trial.evaluations:,}",
        ]
        for trial in tuning.trials
    ]
    why = f"{tuning.reason}; paths of time {neat(tuning.time)} + {neat(tuning.time)} a level"
    if tuning.chosen.window:
        why += f" + {neat(tuning.chosen.window * tuning.time)} over which they are averaged"
    return [f"{table(header, rows)}\n({why}; {tuning.evaluations:,} row gradients in all)"]


def _passes(number: float) -> str:
    return f"{neat(number)} pass" + ("" if number == 1 else "es")
