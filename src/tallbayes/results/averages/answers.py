"""Average effects: the mean response with a column at one value against another, on average over the rows of a table.

    (1 / N) sum_i [ E(y | x_i, column = high) - E(y | x_i, column = low) ]      (g-computation)

Its posterior mean, sd and 95% interval, each number with its error; by level of another column; as a ratio of the two
averages; and as a slope, of the mean response in a column of numbers, on average.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import InputError, explain, require_extra
from tallbayes.model.catalogue import Family
from tallbayes.moments import Floats
from tallbayes.posterior.posterior import Posterior
from tallbayes.results.averages.sides import Change, sides_of
from tallbayes.results.coefficients import Number
from tallbayes.results.fitted import family_of, kept_posterior
from tallbayes.results.result import Result

if TYPE_CHECKING:
    import pandas

    from tallbayes.results.averages.ensemble import AveragedEnsemble, DrawnAverages

# Rows times points at which averages are evaluated.
MOST_EVALUATIONS = 2**27
MOST_PARAMETERS = 1024


@dataclass(frozen=True, eq=False)
class AverageEffect:
    """One of them: posterior mean, sd and 95% interval, and over how many rows it is; `name` says what it is.

    `standard_errors` and `bias_bounds` are those of mean, sd, lower and upper.
    """

    name: str
    rows: int
    values: Floats
    standard_errors: Floats
    bias_bounds: Floats
    is_ratio: bool = False

    @property
    def errors(self) -> Floats:
        """sqrt(se^2 + bias bound^2)."""
        return np.hypot(self.standard_errors, self.bias_bounds)

    @property
    def mean(self) -> Number:
        return self._number(0)

    @property
    def sd(self) -> Number:
        return self._number(1)

    @property
    def lower(self) -> Number:
        return self._number(2)

    @property
    def upper(self) -> Number:
        return self._number(3)

    def to_pandas(self) -> pandas.DataFrame:
        """One row, with errors beside the numbers."""
        return _frame([self])

    def __str__(self) -> str:
        from tallbayes.views.averages import average_text

        return average_text([self])

    def _repr_html_(self) -> str:
        from tallbayes.views.averages import average_html

        return average_html([self])

    def _number(self, place: int) -> Number:
        return Number(float(self.values[place]), float(self.errors[place]))


@dataclass(frozen=True, eq=False)
class AverageEffects:
    """Average effects by level of a column, and their contrasts."""

    by: Any
    levels: tuple[Any, ...]
    effects: tuple[AverageEffect, ...]
    drawn: tuple[DrawnAverages, ...] = field(repr=False)
    posterior: Posterior = field(repr=False)

    def __getitem__(self, level: Any) -> AverageEffect:
        return self.effects[self._place(level)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.levels)

    def __len__(self) -> int:
        return len(self.levels)

    def contrast(self, a: Any, b: Any) -> AverageEffect:
        """That at level a less that at level b, from the same points of the posterior."""
        from tallbayes.results.averages.ensemble import answered

        first, second = self._place(a), self._place(b)
        found = answered(self.drawn[first].minus(self.drawn[second]), self.posterior)
        rows = self.effects[first].rows + self.effects[second].rows
        return AverageEffect(f"{self.by}: {a} - {b}", rows, *found)

    def to_pandas(self) -> pandas.DataFrame:
        """A row a level, with errors beside the numbers."""
        frame = _frame(list(self.effects))
        frame.insert(0, str(self.by), list(self.levels))
        return frame

    def __str__(self) -> str:
        from tallbayes.views.averages import average_text

        return average_text(self.effects)

    def _repr_html_(self) -> str:
        from tallbayes.views.averages import average_html

        return average_html(self.effects)

    def _place(self, level: Any) -> int:
        if level not in self.levels:
            among = f"one of {', '.join(map(str, self.levels[:20]))}"
            raise InputError(explain(f"a level of {self.by!r}", repr(level), among))
        return self.levels.index(level)


def average_effect(
    result: Result, column: Any, high: Any, low: Any, *, by: Any = None, rows: Any = None, ratio: bool = False
) -> AverageEffect | AverageEffects:
    """See `Result.average_effect`."""
    sign = ":" if ratio else "-"
    return _average(result, Change(column, low, high, by=by), rows, f"{column}: {high} {sign} {low}", ratio)


def average_slope(result: Result, column: Any, *, by: Any = None, rows: Any = None) -> AverageEffect | AverageEffects:
    """See `Result.average_slope`."""
    return _average(result, Change(column, is_slope=True, by=by), rows, f"slope of {column}", False)


def _average(result: Result, change: Change, rows: Any, name: str, ratio: bool) -> AverageEffect | AverageEffects:
    from tallbayes.programs.canary import require_sound
    from tallbayes.results.averages.ensemble import Contrast, answered, contrast_of, points_of
    from tallbayes.results.averages.sums import Predictors, average_over

    require_sound()
    posterior, family = kept_posterior(result), _family(result)
    points = points_of(posterior)
    assert result.regression is not None
    columns = posterior.anchor.displacements(np.eye(len(posterior.anchor.mode)))
    layout = result.regression.intercept, result.regression.extras
    predictors = Predictors(family.link, *layout, posterior.anchor.mode, columns)
    averaged = average_over(sides_of(result, change, rows), predictors, MOST_EVALUATIONS // points.count)
    contrast = Contrast(ratio, *_units(result))
    drawn = tuple(contrast_of(points, averaged, level, contrast) for level in range(len(averaged.levels)))
    found: list[AveragedEnsemble] = [answered(each, posterior) for each in drawn]
    names = [name] if change.by is None else [f"{name}, {change.by} = {level}" for level in averaged.levels]
    parts = zip(names, averaged.rows, found, strict=True)
    effects = tuple(AverageEffect(each, count, *own, is_ratio=ratio) for each, count, own in parts)
    if change.by is None:
        return effects[0]
    return AverageEffects(change.by, averaged.levels, effects, drawn, posterior)


def _family(result: Result) -> Family:
    """That of the result, or an error that says what is not to be had."""
    family = family_of(result)
    expected = "a regression of one of tb.families with one linear predictor a row, without groups"
    hint = "result.posterior.expectation of a function of theta, which may average over rows itself"
    if family is None:
        raise InputError(explain(expected, "a model of its own", hint))
    if result.factors or "groups" in (result.encoding or {}):
        raise InputError(explain(expected, "a mixed model", "result.predict(rows) of both kinds of rows, or " + hint))
    if family.by_class:
        raise InputError(explain(expected, f"family {family.name!r}", hint))
    if family.mean_of_extras:
        raise InputError(explain(expected, f"family {family.name!r}, whose mean hangs on more", hint))
    size = len(kept_posterior(result).anchor.mode)
    if size > MOST_PARAMETERS:
        raise InputError(explain(f"at most {MOST_PARAMETERS} parameters", f"{size:,}", hint))
    return family


def _units(result: Result) -> tuple[float, float]:
    """Scale and shift of the response."""
    if result.encoding is not None:
        return float(result.encoding["response_scale"]), float(result.encoding["response_mean"])
    assert result.regression is not None
    return result.regression.response_scale, result.regression.response_mean


def _frame(effects: list[AverageEffect]) -> pandas.DataFrame:
    frame = require_extra("pandas", "data", "data frames").DataFrame
    columns: dict[str, Any] = {"of": [each.name for each in effects], "rows": [each.rows for each in effects]}
    for place, what in enumerate(("mean", "sd", "lower", "upper")):
        columns[what] = [each.values[place] for each in effects]
        columns[f"{what}_error"] = [each.errors[place] for each in effects]
    return frame(columns)
