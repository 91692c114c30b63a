"""Average effects: the mean response with a column at one value against another, on average over the rows of a table.

    (1 / N) sum_i [ E(y | x_i, column = high) - E(y | x_i, column = low) ]      (g-computation)

Its posterior mean, sd and 95% interval, each number with its error; by level of another column; as a ratio of the two
averages; and as a slope, of the mean response in a column of numbers, on average.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import InputError, explain, require_extra
from tallbayes.moments import Floats
from tallbayes.posterior.posterior import Posterior
from tallbayes.results.averages.sides import Change, sides_of
from tallbayes.results.coefficients import Number
from tallbayes.results.fitted import family_of, has_smooths, kept_posterior
from tallbayes.results.result import Result

if TYPE_CHECKING:
    import pandas

    from tallbayes.results.averages.asking import AskedAverage
    from tallbayes.results.averages.ensemble import AveragedEnsemble, DrawnAverages

# Rows times points at which averages are evaluated.
MOST_EVALUATIONS = 2**27
MOST_PARAMETERS, MOST_WITH_EFFECTS = 1024, 4096
OWN = "own"


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
    """Average effects by level of a column, by class or by both, and their contrasts.

    With `same_rows` the last part of a level is a class, or an output of a model of one's own, of the same rows.
    """

    by: Any
    levels: tuple[Any, ...]
    effects: tuple[AverageEffect, ...]
    drawn: tuple[DrawnAverages, ...] = field(repr=False)
    posterior: Posterior = field(repr=False)
    same_rows: bool = False

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
        rows = self.effects[first].rows
        if not (self.same_rows and (not isinstance(a, tuple) or a[:-1] == b[:-1])):
            rows += self.effects[second].rows
        return AverageEffect(f"{self.by}: {a} - {b}", rows, *found)

    def to_pandas(self) -> pandas.DataFrame:
        """A row a level, with errors beside the numbers."""
        frame = _frame(list(self.effects))
        heads = str(self.by).split(", ") if isinstance(self.levels[0], tuple) else [str(self.by)]
        levels = self.levels if len(heads) > 1 else [(each,) for each in self.levels]
        for place, (head, column) in enumerate(zip(heads, zip(*levels, strict=True), strict=True)):
            frame.insert(place, head, list(column))
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


@dataclass(frozen=True)
class Manner:
    """How rows are read that belong to groups, their `own` or `new` ones; and a function of one's own model."""

    groups: str = OWN
    response: Any = None


def average_effect(
    result: Result,
    column: Any,
    high: Any,
    low: Any,
    *,
    by: Any = None,
    rows: Any = None,
    ratio: bool = False,
    groups: str = OWN,
    response: Any = None,
) -> AverageEffect | AverageEffects:
    """See `Result.average_effect`."""
    sign = ":" if ratio else "-"
    change, name = Change(column, low, high, by=by), f"{column}: {high} {sign} {low}"
    return _average(result, change, rows, name, ratio, Manner(groups, response))


def average_slope(
    result: Result, column: Any, *, by: Any = None, rows: Any = None, groups: str = OWN, response: Any = None
) -> AverageEffect | AverageEffects:
    """See `Result.average_slope`."""
    change = Change(column, is_slope=True, by=by)
    return _average(result, change, rows, f"slope of {column}", False, Manner(groups, response))


def _average(
    result: Result, change: Change, rows: Any, name: str, ratio: bool, manner: Manner
) -> AverageEffect | AverageEffects:
    from tallbayes.programs.canary import require_sound

    require_sound()
    asked = _asked(result, change, rows, manner)
    if asked is not None:
        return _of_any_kind(result, replace(asked, by_level=change.by is not None), change.by, name, ratio)
    return _of_one_predictor(result, change, rows, name, ratio)


def _of_one_predictor(
    result: Result, change: Change, rows: Any, name: str, ratio: bool
) -> AverageEffect | AverageEffects:
    """By the linear predictor of every row, to the second order in closed form."""
    from tallbayes.results.averages.ensemble import Contrast, answered, contrast_of, points_of
    from tallbayes.results.averages.sums import Predictors, average_over

    posterior, family = kept_posterior(result), family_of(result)
    assert family is not None
    points = points_of(posterior)
    assert result.regression is not None
    columns = posterior.anchor.displacements(np.eye(len(posterior.anchor.mode)))
    layout = result.regression.intercept, result.regression.extras, result.regression.beside
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


def _of_any_kind(
    result: Result, asked: AskedAverage, by: Any, name: str, ratio: bool
) -> AverageEffect | AverageEffects:
    """Of every level and output, from one sample."""
    from tallbayes.results.averages.ensemble import Contrast, answered
    from tallbayes.results.averages.targets import averaged

    posterior = kept_posterior(result)
    family = family_of(result)
    units = (1.0, 0.0) if family is None or family.has_classes else _units(result)
    found = averaged(asked, posterior, Contrast(ratio, *units), result.num_rows)
    what = "class" if family is not None else "output"
    told = {by: "level", what: "output"} if asked.outputs is not None else {by: "level"}
    told = {each: place for each, place in told.items() if each is not None}
    effects = []
    for each in found:
        parts = [f"{head} = {getattr(each, place)}" for head, place in told.items()]
        whole = answered(each.drawn, posterior)
        effects.append(AverageEffect(", ".join([name, *parts]), each.rows, *whole, is_ratio=ratio))
    if not told:
        return effects[0]
    levels = tuple(tuple(getattr(each, place) for place in told.values()) for each in found)
    single = len(told) == 1
    return AverageEffects(
        next(iter(told)) if single else ", ".join(map(str, told)),
        tuple(each[0] for each in levels) if single else levels,
        tuple(effects),
        tuple(each.drawn for each in found),
        posterior,
        asked.outputs is not None,
    )


def _asked(result: Result, change: Change, rows: Any, manner: Manner) -> AskedAverage | None:
    """What is averaged of a row; None where the row's one linear predictor says it."""
    from tallbayes.results.averages.asking import by_formula
    from tallbayes.results.averages.own_sides import of_own_model

    family = family_of(result)
    size, most = len(kept_posterior(result).anchor.mode), MOST_WITH_EFFECTS if result.factors else MOST_PARAMETERS
    if size > most:
        hint = "result.posterior.expectation of a function of theta, which may average over rows itself"
        raise InputError(explain(f"at most {most:,} parameters", f"{size:,}", hint))
    if family is None:
        return of_own_model(result, change, rows, manner.groups, manner.response)
    if has_smooths(result):
        own = "result.curve(column), or result.predict(rows) of both kinds of rows"
        raise InputError(explain("a regression without smooths, for averages over rows", "a fit with smooths", own))
    if manner.response is not None:
        hint = "leave it out; result.posterior.expectation for a function of theta"
        raise InputError(explain("response= for a model of one's own", f"family {family.name!r}", hint))
    return by_formula(result, family, change, rows, manner.groups)


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
