"""Comparisons: ratios, and one thing against another, each with an interval and the errors of its ends.

result.ratios()                             odds ratios or rate ratios of all coefficients
result.compare("carrier", "EV", "UA")       two categories of a formula's column, or two groups
result.compare({"hour": 19, ...}, {...})    two rows: the difference of their linear predictors
result.compare("a", "b")                    two parameters
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.moments import Floats
from tallbayes.posterior.coordinates import ReportedLine
from tallbayes.results.coefficients import Number, are_ratios, coefficients, is_ratio, ratio_name
from tallbayes.results.fitted import has_smooths, kept_posterior
from tallbayes.results.groups.effects import has_groups
from tallbayes.results.result import Result

# What is compared, and a line; or weights of parameters by name, where their sum is none.
Line = tuple[str, str, ReportedLine | dict[str, float], str | None]


@dataclass(frozen=True)
class Ratio:
    """exp of a coefficient: its posterior median and the ends of its interval."""

    name: str
    median: Number
    lower: Number
    upper: Number


@dataclass(frozen=True)
class Comparison:
    """a - b: its posterior mean, sd, interval, and the probability that a is the larger; exp of it where that is a
    ratio of the family (`kind`)."""

    a: str
    b: str
    mean: Number
    sd: Number
    median: Number
    lower: Number
    upper: Number
    probability: Number
    kind: str | None = None

    @property
    def ratio(self) -> Ratio | None:
        if self.kind is None:
            return None
        return Ratio(f"{self.a} : {self.b}", self.median.exponential, self.lower.exponential, self.upper.exponential)

    def __str__(self) -> str:
        from tallbayes.views.numbers import with_error

        lines = [
            f"{self.a} - {self.b}: {with_error(*self.mean)}, sd {with_error(*self.sd)}, "
            f"interval {with_error(*self.lower)} to {with_error(*self.upper)}"
        ]
        if self.ratio is not None:
            lines.append(
                f"{self.kind} {with_error(*self.ratio.median)}, "
                f"interval {with_error(*self.ratio.lower)} to {with_error(*self.ratio.upper)}"
            )
        lines.append(f"P({self.a} > {self.b}) = {with_error(*self.probability)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.displays import shown

        return shown(self)


def ratios(result: Result, probability: float = 0.95) -> tuple[Ratio, ...]:
    """exp of every coefficient of this family that is a ratio by itself: no piece of a polynomial, say."""
    if ratio_name(result) is None:
        got = "a model of its own" if result.regression is None else f"family {result.regression.family!r}"
        hint = "result.posterior.quantile(p, lambda theta: ...) of what you mean"
        raise InputError(explain("a family whose coefficients are logs of ratios", got, hint))
    found = coefficients(result, probability)
    return tuple(
        Ratio(each.name, each.median.exponential, each.lower.exponential, each.upper.exponential)
        for each, is_one in zip(found, are_ratios([each.name for each in found], result), strict=True)
        if is_one
    )


def compare(result: Result, *things: Any, probability: float = 0.95) -> Comparison:
    """See the head of this file for what may be compared."""
    posterior = kept_posterior(result)
    found = _with_groups(result, things, probability) if has_groups(result) else _line(result, things)
    if isinstance(found, Comparison):
        return found
    a, b, line, kind = found
    if isinstance(line, dict):
        return _of_sum(result, a, b, line, kind, probability)
    if not np.any(line.direction):
        raise InputError(explain("two things that differ", f"{a} and {b}", "two categories, rows or parameters"))
    tail = (1 - probability) / 2
    mean, square = posterior.line_moments(line)
    ends = posterior.line_quantiles(line, np.array([tail, 0.5, 1 - tail]))
    lower, median, upper = (Number.of(ends, place) for place in range(3))
    chance = Number.of(posterior.line_probability(line, above=0.0), 0)
    return Comparison(a, b, Number.of(mean, 0), Number.of(square, 0), median, lower, upper, chance, kind)


def _with_groups(result: Result, things: tuple[Any, ...], probability: float) -> Comparison | Line:
    """Of a result with groups: compared where their effects come in, and a line where they do not."""
    from tallbayes.results.groups import comparisons as groups

    kind = ratio_name(result)
    if len(things) in (3, 4) and isinstance(things[0], str):
        column, a, b, *rest = things
        effect = rest[0] if rest else None
        if groups.is_group(result, column):
            return Comparison(**vars(groups.compare_groups(result, column, a, b, effect, probability)), kind=kind)
        names = groups.explicit_names(result, column, a, b, effect)
        if names is None:
            return _line(result, things)
        return *names, _sum(result, {names[0]: 1.0, names[1]: -1.0} if names[0] != names[1] else {}), kind
    if len(things) == 2 and all(isinstance(each, Mapping) for each in things) and result.encoding is not None:
        found = groups.compare_rows(result, *things, probability)
        if isinstance(found, groups.GroupContrast):
            return Comparison(**vars(found), kind=kind)
        return "the first row", "the second row", _sum(result, found), kind
    return _line(result, things)


def _line(result: Result, things: tuple[Any, ...]) -> Line:
    if len(things) == 3 and isinstance(things[0], str):
        return _categories(result, *things)
    if len(things) != 2:
        hint = 'compare("carrier", "EV", "UA"), compare(row, row) or compare("a", "b")'
        raise InputError(explain("two things, or a column and two of its categories", f"{len(things)}", hint))
    a, b = things
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return "the first row", "the second row", _between_rows(result, a, b), ratio_name(result)
    weights = kept_posterior(result).weights({a: 1.0}) - kept_posterior(result).weights({b: 1.0})
    both = is_ratio(a, result) and is_ratio(b, result)
    return a, b, _straight(result, weights), ratio_name(result) if both else None


def _sum(result: Result, weights: dict[str, float]) -> ReportedLine | dict[str, float]:
    """A sum of parameters as a line, or as it is where it is none."""
    posterior = kept_posterior(result)
    line = None if posterior.reading is None else posterior.reading.combination(posterior.weights(weights))
    return weights if line is None else line


def _of_sum(
    result: Result, a: str, b: str, weights: dict[str, float], kind: str | None, probability: float
) -> Comparison:
    """Of a sum of parameters that is no line, by draws."""
    posterior, tail = kept_posterior(result), (1 - probability) / 2

    def total(theta: Any) -> Any:
        return sum(weight * theta[name] for name, weight in weights.items())

    mean = Number.of(posterior.expectation(total, "mean"), 0)
    square = Number.of(posterior.expectation(lambda theta: (total(theta) - mean.value) ** 2, "square"), 0)
    sd = float(np.sqrt(max(square.value, np.finfo(float).tiny)))
    ends = posterior.quantile([tail, 0.5, 1 - tail], weights)
    lower, median, upper = (Number.of(ends, place) for place in range(3))
    chance = Number.of(posterior.probability(weights, above=0.0), 0)
    return Comparison(a, b, mean, Number(sd, square.error / (2 * sd)), median, lower, upper, chance, kind)


def _straight(result: Result, weights: Floats) -> ReportedLine:
    reading = kept_posterior(result).reading
    line = None if reading is None else reading.combination(weights)
    if line is None:
        hint = "result.posterior.probability(lambda theta: ...)"
        raise InputError(explain("parameters that are linear in R^d", "others", hint))
    return line


def _categories(result: Result, column: str, a: Any, b: Any) -> Line:
    """Two categories of a column that stands in the formula by itself: the difference of their coefficients."""
    encoding = _encoding(result)
    factor = next((each for each in (column, f"C({column})") if each in encoding.coding.categories), None)
    if factor is None:
        known = ", ".join(encoding.coding.categories) or "none"
        raise InputError(explain("a column of categories in the formula", repr(column), f"one of: {known}"))
    levels = encoding.coding.categories[factor]
    weights: dict[str, float] = {}
    for level, sign in ((a, 1.0), (b, -1.0)):
        if level not in levels:
            shown = ", ".join(map(repr, levels[:30]))
            raise InputError(explain(f"a category of {column!r}", repr(level), f"one of {shown}"))
        name = f"{factor}[T.{level}]"
        if name in encoding.coding.names:
            weights[name] = weights.get(name, 0.0) + sign
        elif level != levels[0]:
            raise InputError(explain(f"{column!r} coded against its first category", name, "compare two rows instead"))
    if any(factor in name.split(":")[0] and ":" in name for name in encoding.coding.parts[0].names):
        hint = "compare two rows, which say at which values of the others"
        raise InputError(explain(f"{column!r} without interactions", "a formula that has one", hint))
    return str(a), str(b), _straight(result, _by_label(result, weights)), ratio_name(result)


def _by_label(result: Result, weights: Mapping[str, float]) -> Floats:
    if result.regression is not None and result.regression.heads > 1:
        raise InputError(
            explain("two classes", "several", 'compare("b.carrier[T.EV]", "b.carrier[T.UA]") by parameter')
        )
    return np.asarray(kept_posterior(result).weights(weights))


def _between_rows(result: Result, a: Mapping[str, Any], b: Mapping[str, Any]) -> ReportedLine | dict[str, float]:
    encoding = _encoding(result)
    if result.regression is not None and result.regression.heads > 1:
        raise InputError(explain("two classes", "several", "result.predict of the two rows"))
    from tallbayes.rows.columns import base_columns

    read = base_columns(tuple(encoding.coding.kinds), tuple(a))
    x = encoding.encode({name: [a.get(name), b.get(name)] for name in read})
    if has_smooths(result):
        own = (x[0] - x[1]) * np.array(encoding.scales)
        return _sum(result, {name: float(each) for name, each in zip(encoding.coding.names, own, strict=True) if each})
    direction = np.zeros(len(kept_posterior(result).anchor.mode))
    # Columns of the noise move no mean.
    mean = x.shape[1] - encoding.coding.beside
    direction[:mean] = (x[0] - x[1])[:mean] * encoding.response_scale
    return ReportedLine(direction, 0.0)


def _encoding(result: Result) -> Any:
    if result.encoding is None:
        hint = 'compare("[0]", "[1]") by parameter, or result.posterior.probability'
        raise InputError(explain("a fit by a formula", "one without", hint))
    from tallbayes.formula.encoding import Encoding

    return Encoding.from_plain(result.encoding)
