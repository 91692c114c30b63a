"""Tables of a result: which rows and columns they have, in cells that know their number; each view sets them anew.

components(estimate)     value ± error, standard error, bias bound, tolerance, ends of the interval, met or not
levels(result)           what every level was and did
trials(tuning, unit)     what was tried before, and which was chosen
predictions(...)         the first rows
effects(effects, place)  the groups whose effects are the farthest apart
partition(...)           shares of variance
places(mode)             where another mode is, and how wide
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallbayes.estimator.decisions import Tuning
from tallbayes.estimator.estimates import Estimate
from tallbayes.moments import Floats
from tallbayes.results.parts import Level, Mode
from tallbayes.results.result import Result
from tallbayes.views.numbers import figures, neat, plain, rounded, share, spread

if TYPE_CHECKING:
    from tallbayes.posterior.prediction import Prediction
    from tallbayes.results.groups.effects import Effects
    from tallbayes.results.groups.partition import VariancePartition

Form = Callable[[Any], str]


@dataclass(frozen=True)
class Cell:
    """A number for programs, its text for people, the error that stands beside it, if any does, and whether that is
    larger than it should be."""

    value: Any
    form: Form = str
    error: float | None = None
    rough: bool = False

    @property
    def texts(self) -> tuple[str, str]:
        """The number and its error."""
        return (self.form(self.value), "") if self.error is None else figures(self.value, self.error, self.rough)

    def __str__(self) -> str:
        return self.texts[0]


@dataclass(frozen=True)
class Grid:
    """A name for every row, and cells by the heads of their columns."""

    names: Sequence[str]
    columns: dict[str, list[Cell]]


class Component(NamedTuple):
    """A row of the table of a quantity: its value with its error, the parts of that, and the ends of the interval."""

    name: str
    value: Cell
    standard_error: Cell
    bias_bound: Cell
    tolerance: Cell
    lower: Cell
    upper: Cell
    met: bool


def component_names(estimate: Estimate) -> list[str]:
    """What tells the components of a quantity apart; of a single number, the quantity's own name.

    Coefficients have their own names, entries of an array their place: "[0]".
    """
    return [label.removeprefix(".") or estimate.name for label in estimate.structure.labels("")]


def measured(estimate: Estimate, most: int | None = None) -> list[Cell]:
    """The first components, each with its error, and marked where that is above what was asked for."""
    # Nothing is above a tolerance that is not a number, where nothing was asked.
    rough = estimate.flat_error[:most] > estimate.flat_tolerance[:most]
    return with_errors(estimate.flat_value[:most], estimate.flat_error[:most], rough)


def with_errors(values: Any, errors: Any, rough: Any = None) -> list[Cell]:
    marks = [False] * len(values) if rough is None else rough
    parts = zip(values, errors, marks, strict=True)
    return [Cell(float(value), error=float(error), rough=bool(mark)) for value, error, mark in parts]


def _rounded(values: Any, errors: Any) -> list[Cell]:
    """Without those errors beside them."""
    return [Cell(value, partial(rounded, error=error)) for value, error in zip(values, errors, strict=True)]


def _column(values: Any, form: Form) -> list[Cell]:
    return [Cell(value, form) for value in values]


def met(*estimates: Estimate, most: int | None = None) -> list[bool]:
    """By component, whether every one of these estimates is as accurate as was asked for."""
    return np.all([each.flat_error[:most] <= each.flat_tolerance[:most] for each in estimates], axis=0).tolist()


def components(estimate: Estimate, most: int | None = None) -> list[Component]:
    """The first components of a quantity."""
    lower, upper = estimate.flat_interval
    rows = zip(
        component_names(estimate)[:most],
        measured(estimate, most),
        _column(estimate.flat_standard_error[:most], spread),
        _column(estimate.flat_bias_bound[:most], spread),
        _column(estimate.flat_tolerance[:most], spread),
        _rounded(lower[:most], estimate.flat_error[:most]),
        _rounded(upper[:most], estimate.flat_error[:most]),
        met(estimate, most=most),
        strict=True,
    )
    return [Component(*row) for row in rows]


def largest(result: Result, level: Level, part: str, power: int = 0) -> float:
    """The largest component of any quantity, in units of a power of its tolerance."""
    found: dict[str, Floats] = getattr(level, part)
    sizes = [np.abs(values) / (units(result, name) ** power if power else 1) for name, values in found.items()]
    return max((float(np.max(each)) for each in sizes if each.size), default=float("nan"))


def units(result: Result, name: str) -> Floats:
    """The tolerance of every component where it has one, else 1."""
    tolerance = result[name].flat_tolerance
    return np.where(np.isfinite(tolerance) & (tolerance > 0), tolerance, 1.0)


def level_names(result: Result) -> list[str]:
    """By number; with a random tail the last stands for all above it."""
    names = [str(number) for number in range(len(result.levels))]
    return [*names[:-1], f"{names[-1]}+"] if names and result.unbiased else names


def levels(result: Result, in_tolerances: bool = False) -> Grid:
    """A row a level; mean and variance in (squared) tolerances, or in the quantities' own units."""
    own: dict[str, Form] = {"step": neat, "time": neat, "samples": count, "evaluations": count}
    columns = {head: _column([getattr(level, head) for level in result.levels], form) for head, form in own.items()}
    for part, power in {"mean": 1, "variance": 2, "kurtosis": 0, "consistency": 0}.items():
        sizes = [largest(result, level, part, power * in_tolerances) for level in result.levels]
        columns["|mean|" if part == "mean" else part] = _column(sizes, plain)
    # Of the first level, and of a random tail, there is none.
    columns["consistency"] = [each if isfinite(each.value) else Cell("") for each in columns["consistency"]]
    return Grid(level_names(result), columns)


def trials(tuning: Tuning, unit: str = "row") -> Grid:
    """A row a trial."""
    tried = tuning.trials
    columns = {
        "first step": _column([each.first_step for each in tried], neat),
        f"{unit}s a step": _column([each.batch_size for each in tried], count),
        "window": _column([each.window * tuning.time for each in tried], lambda time: neat(time) if time else ""),
        "predicted price": _column([each.price for each in tried], plain),
        "strained": _column([each.strained for each in tried], share),
        "evaluations": _column([each.evaluations for each in tried], count),
        "": _column(["chosen" if each == tuning.chosen else "" for each in tried], str),
    }
    return Grid([str(number + 1) for number in range(len(tried))], columns)


def predictions(prediction: Prediction, most: int) -> Grid:
    """The first rows: every number to the second digit of its error, and that error."""
    columns: dict[str, list[Cell]] = {}
    kept: dict[str, Any] = dict(prediction.kept)
    for head, values in kept.items():
        shown = values[:most]
        columns[head] = _column(shown.to_pylist() if hasattr(shown, "to_pylist") else shown.tolist(), str)
    observed = {} if prediction.observation is None else prediction.observation.columns()
    numbers = [(head, values[:most]) for head, values in prediction.numbers().items() if head not in observed]
    every = iter(numbers)
    for value, sd, error, sd_error in zip(every, every, every, every, strict=True):
        columns[value[0]], columns[sd[0]] = with_errors(value[1], error[1]), with_errors(sd[1], sd_error[1])
        columns |= {head: _column(errors, spread) for head, errors in (error, sd_error)}
    # The errors of these are in files and frames; here they tell how many digits there are.
    for name, error_name in (("sd", "sd_error"), ("lower", "interval_error"), ("upper", "interval_error")):
        if f"observation_{name}" in observed:
            pair = observed[f"observation_{name}"][:most], observed[f"observation_{error_name}"][:most]
            columns[f"observation_{name}"] = _rounded(*pair)
    numbers_of = range(len(prediction)) if prediction.rows is None else prediction.rows
    return Grid([str(row) for row in numbers_of[:most]], columns)


def effects(found: Effects, place: int, most: int = 5) -> tuple[str, Grid]:
    """One of the effects of groups, the lowest and the highest by their mean; and what they are."""
    rows = found.extremes(place, most)
    whole = len(rows) == len(found)
    head = f"effects by {found.by}" if len(found.names) == 1 else f"effects by {found.by}, {found.names[place]}"

    def column(name: str, error: str) -> list[Cell]:
        return with_errors(getattr(found, name)[rows, place], getattr(found, error)[rows, place])

    grid = Grid(
        [str(found.levels[row]) for row in rows],
        {
            "rows": _column(found.counts[rows].astype(int), count),
            **({"raw mean": _column(found.raw[rows], neat)} if found.has_raw else {}),
            "mean": column("mean", "mean_error"),
            "sd": column("sd", "sd_error"),
            f"{(1 - found.probability) / 2:.1%}": column("lower", "end_error"),
            f"{(1 + found.probability) / 2:.1%}": column("upper", "end_error"),
        },
    )
    return (
        f"{head}: all {len(found):,}" if whole else f"{head}: the {most} lowest and highest of {len(found):,}"
    ), grid


def partition(found: VariancePartition) -> Grid:
    """A row a share: its mean, and the ends of its interval."""
    tails = (1 - found.probability) / 2, (1 + found.probability) / 2
    heads = "share", *(f"{tail:.1%}" for tail in tails)
    columns = {head: with_errors(found.values[:, i], found.errors[:, i]) for i, head in enumerate(heads)}
    return Grid(found.names, columns)


def places(mode: Mode, most: int | None = None) -> Grid:
    """Laplace's Gaussian there: its centre to the second digit of its width, parameter by parameter."""
    names = [label.removeprefix(".") or "parameter" for label in mode.structure.labels("")]
    centres = _rounded(mode.flat_location[:most], mode.flat_sd[:most])
    return Grid(names[:most], {"mode": centres, "sd": _column(mode.flat_sd[:most], spread)})


def count(number: int) -> str:
    return f"{number:,}"


def passes(number: float) -> str:
    """
    >>> passes(1.0), passes(67.89)
    ('1 pass', '67.9 passes')
    """
    return f"{neat(number)} pass" + ("" if number == 1 else "es")


def spent(result: Result) -> str:
    """Seconds, set-up and paths, in a few words."""
    cost, unit = result.cost, result.unit
    return f"{neat(cost.seconds)} s: {passes(cost.passes)} over the {unit}s, then {cost.evaluations:,} {unit} gradients"
