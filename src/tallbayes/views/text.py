"""Results as plain aligned text: quantities, levels, cost, status."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tallbayes.estimator.estimates import Estimate
from tallbayes.results.coefficients import interval_ends, parameter_names
from tallbayes.results.result import Mode, Result

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
        f"another mode, with {mode.share:.2g} of the posterior's mass by Laplace's estimate; the numbers above are "
        f"of the heaviest, with {own:.2g}"
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
            body = table(("", "mode", "sd"), [(name, f"{at:.4g}", f"{sd:.2g}") for name, at, sd in rows])
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
    value, half = estimate.flat_value[i], estimate.half_width()[i]
    error, bias = estimate.flat_standard_error[i], estimate.flat_bias_bound[i]
    lower, upper = (end[i] for end in estimate.flat_interval)
    digits = _digits(value, half)
    met = estimate.flat_error[i] <= estimate.flat_tolerance[i]
    return [
        label,
        f"{value:.{digits}g}",
        f"{error:.2g}",
        f"{bias:.2g}",
        f"[{lower:.{digits}g}, {upper:.{digits}g}]",
        f"{estimate.flat_tolerance[i]:.2g}",
        "yes" if met else "no",
    ]


def number(estimated: Any) -> str:
    """A value with its Monte Carlo error, to the error's second digit.

    >>> number((0.123456, 0.0012))
    '0.1235 ± 0.0012'
    """
    value, error = estimated
    return f"{value:.{_digits(value, error)}g} ± {error:.2g}"


def _digits(value: float, half: float) -> int:
    """Significant digits that show the error in its second digit."""
    if not (np.isfinite(value) and np.isfinite(half)) or value == 0 or half == 0:
        return 6
    return int(np.clip(2 + np.floor(np.log10(abs(value))) - np.floor(np.log10(half)), 3, 12))


def _ends(result: Result) -> list[str]:
    """Equal-tailed intervals of the first parameters, each end with its Monte Carlo error."""
    ends = interval_ends(result, MAX_ROWS)
    if ends is None:
        return []
    names = parameter_names(result)[: len(ends.lower.flat_value)]
    rows = []
    for i, name in enumerate(names):
        cells = [(each.flat_value[i], each.flat_error[i]) for each in (ends.lower, ends.upper)]
        rows.append([name, *(text for value, error in cells for text in (_value(value, error), f"{error:.2g}"))])
    header = ("interval", ends.lower.name, "error", ends.upper.name, "error")
    return [f"{table(header, rows)}\n({ends.note})"]


def _value(value: float, error: float) -> str:
    return f"{value:.{_digits(value, error)}g}"


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
    rows, unbounded = [], result.method.startswith("Randomised")
    for number, level in enumerate(result.levels):
        rows.append(
            [
                f"{number}+" if unbounded and number == len(result.levels) - 1 else str(number),
                f"{level.step:.3g}",
                f"{level.time:.3g}",
                f"{level.samples:,}",
                f"{level.evaluations:,}",
                _largest(level.mean, "{:.2g}"),
                _largest(level.variance, "{:.2g}"),
                _largest(level.kurtosis, "{:.3g}"),
                _largest(level.consistency, "{:.1f}") if number and np.isfinite(_first(level.consistency)) else "",
            ]
        )
    return table(header, rows) + "\n(largest component of any quantity; consistency in standard errors)"


def _first(by_quantity: dict[str, np.ndarray]) -> float:
    return float(next(iter(by_quantity.values()))[0])


def _largest(by_quantity: dict[str, np.ndarray], form: str) -> str:
    return form.format(max(float(np.max(np.abs(part))) for part in by_quantity.values()))


def _rates(result: Result) -> str:
    rates = result.rates
    rows = [
        [name, *(f"{exponent[name]:.2f}" for exponent in (rates.alpha, rates.beta, rates.gamma))] for name in result
    ]
    contraction = result.contraction
    rates_table = table(("rates", "alpha", "beta", "gamma"), rows)
    if contraction is None:
        return rates_table
    return (
        f"{rates_table}\ncontraction: paths come closer by a factor {contraction.factor:.3g} a level"
        f" (at most {contraction.upper:.3g}), rate {contraction.rate:.3g}"
    )


def _cost(result: Result) -> str:
    cost = result.cost
    return (
        f"cost: {cost.evaluations:,} row gradients ({cost.epochs:.3g} epochs of {cost.num_data:,} rows)"
        f" and {cost.setup_evaluations:,} in set-up ({_passes(cost.passes)});"
        f" {cost.seconds:.2f} s\nmethod: {result.method}"
    )


def _tuning(result: Result) -> list[str]:
    """What was chosen, out of what, and why."""
    tuning = result.tuning
    if tuning is None:
        return []
    header = ("tuning", "first step", "rows a step", "window", "predicted price", "strained", "evaluations")
    rows = [
        [
            "chosen" if trial == tuning.chosen else "",
            f"{trial.first_step:.3g}",
            f"{trial.batch_size:,}",
            f"{trial.window * tuning.time:.3g}" if trial.window else "",
            f"{trial.price:.2g}",
            f"{trial.strained:.1%}",
            f"{trial.evaluations:,}",
        ]
        for trial in tuning.trials
    ]
    why = f"{tuning.reason}; paths of time {tuning.time:.3g} + {tuning.time:.3g} a level"
    if tuning.chosen.window:
        why += f" + {tuning.chosen.window * tuning.time:.3g} over which they are averaged"
    return [f"{table(header, rows)}\n({why}; {tuning.evaluations:,} row gradients in all)"]


def _passes(number: float) -> str:
    return f"{number:.3g} pass" + ("" if number == 1 else "es")
