"""Ranking: several results for the same rows side by side, each difference with its errors.

    by leave-one-out    elpd_a - elpd_b,   sampling error sqrt(N Var_i (elpd_ai - elpd_bi)): rows are common to both
    by evidence         log Z_a - log Z_b,   posterior odds exp of it where models are equally likely beforehand

The Monte Carlo error of a difference is that of both, added. Results of other rows are refused: rows are told by their
number and by their responses, in the order of the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import DataError, InputError, explain, require_extra
from tallbayes.leave_one_out.loo import Loo, left_out, loo, responses_of
from tallbayes.moments import Floats
from tallbayes.results.result import Result

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

WAYS = ("loo", "evidence")
QUANTITIES = {"loo": "elpd", "evidence": "log evidence"}
# Of the spread of the response: what float32 leaves of it.
SAME = 1e-5
QUANTILE = 1.96


@dataclass(frozen=True)
class Ranked:
    """A model in the ranking: its own value, and how far it is from the best one, below 0.

    `error` and `bias_bound` are Monte Carlo's of the difference, `sampling_error` is over rows, `odds` are posterior
    odds against the best.
    """

    name: str
    value: float
    value_error: float
    difference: float
    standard_error: float
    bias_bound: float
    sampling_error: float
    p_loo: float | None = None
    certified: bool = True

    @property
    def error(self) -> float:
        return float(np.hypot(self.standard_error, self.bias_bound))

    @property
    def odds(self) -> float:
        return float(np.exp(self.difference))


@dataclass(frozen=True, eq=False)
class Ranking:
    """Models, the best first. `differences[i, j]` is model i less model j in that order; `sampling_errors` and
    `standard_errors` and `bias_bounds` are its errors."""

    by: str
    places: tuple[Ranked, ...]
    differences: Floats
    sampling_errors: Floats
    standard_errors: Floats
    bias_bounds: Floats

    @property
    def quantity(self) -> str:
        return QUANTITIES[self.by]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.places)

    def __getitem__(self, name: str) -> Ranked:
        for each in self.places:
            if each.name == name:
                return each
        raise KeyError(name)

    def __len__(self) -> int:
        return len(self.places)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know of the numbers."""
        told = ["± Monte Carlo, of this table"]
        if self.by == "loo":
            told[0] += "; sampling error: of the difference, over rows that all models share"
            close = [
                each.name
                for each in self.places[1:]
                if abs(each.difference) < 2 * np.hypot(each.sampling_error, each.error)
            ]
            if close:
                told.append(f"less than two errors behind the first: {', '.join(close)}")
        else:
            told.append("posterior odds against the first, of models that are equally likely beforehand")
        doubted = [each.name for each in self.places if not each.certified]
        return (*told, *([f"not certified: {', '.join(doubted)}"] if doubted else []))

    def to_pandas(self) -> pandas.DataFrame:
        """A row a model."""
        frame = require_extra("pandas", "data", "data frames").DataFrame
        columns: dict[str, list[Any]] = {
            "model": list(self.names),
            self.quantity.replace(" ", "_"): [each.value for each in self.places],
            "error": [each.value_error for each in self.places],
            "difference": [each.difference for each in self.places],
            "difference_error": [each.error for each in self.places],
        }
        if self.by == "loo":
            columns |= {
                "sampling_error": [each.sampling_error for each in self.places],
                "p_loo": [each.p_loo for each in self.places],
            }
        else:
            columns["posterior_odds"] = [each.odds for each in self.places]
        return frame(columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """How far each model is behind the best, with two errors to either side."""
        if ax is None:
            ax = require_extra("matplotlib.pyplot", "plot", "plots").subplots()[1]
        heights = range(len(self))[::-1]
        for height, each in zip(heights, self.places, strict=True):
            both = QUANTILE * np.hypot(each.sampling_error, each.standard_error) + each.bias_bound
            ax.errorbar(each.difference, height, xerr=both, fmt="o", color="#0b6e4f", capsize=3)
        ax.axvline(0.0, color="#9aa3ad", linewidth=1)
        ax.set_yticks(list(heights), self.names)
        ax.margins(y=0.2)
        ax.set_xlabel(f"{self.quantity} less that of {self.names[0]}, 95% intervals")
        return ax

    def __repr__(self) -> str:
        from tallbayes.views.leaving_out import ranking_in_a_line

        return ranking_in_a_line(self)

    def __str__(self) -> str:
        from tallbayes.views.leaving_out import ranking_text

        return ranking_text(self)

    def _repr_html_(self) -> str:
        from tallbayes.views.leaving_out import ranking_html

        return ranking_html(self)


def rank(
    *results: Any,
    by: str = "loo",
    names: Sequence[str] | None = None,
    tolerance: float = 0.01,
    unit: str | None = None,
) -> Ranking:
    """Results for the same rows, the best first, by leave-one-out or by evidence.

    Results one by one, called a, b, c, ... unless `names` are given, or one dict of them by name. What is left out is a
    `unit` that all of them have: "row" or "group"; unless it is given, rows where some have groups and some have none.

    >>> small = tb.fit("late ~ 1", rows, tolerance=0.1)  # rows and `result` as in the example of `Result`
    >>> rank(small, result, by="evidence", names=["none", "hour"]).names[0]
    'hour'
    """
    if len(results) == 1 and isinstance(results[0], Mapping):
        names, results = list(results[0]), tuple(results[0].values())
    names = list(names) if names is not None else [chr(97 + k % 26) * (1 + k // 26) for k in range(len(results))]
    if len(results) < 2:
        raise InputError(explain("two results or more", str(len(results)), "tb.rank(a, b)"))
    if by not in WAYS:
        raise InputError(explain(f"by={' or by='.join(map(repr, WAYS))}", repr(by), 'by="loo"'))
    if len(names) != len(results) or len(set(names)) != len(names):
        raise InputError(explain(f"{len(results)} names, each once", repr(names), 'names=["small", "large"]'))
    unit = _unit_of(results, unit)
    require_same_rows(names, results, unit)
    return _by_loo(names, results, tolerance, unit) if by == "loo" else _by_evidence(names, results)


def require_same_rows(names: Sequence[str], results: Sequence[Result], unit: str | None) -> None:
    """Refuse results whose rows or responses differ: densities of other things cannot be compared."""
    hint = "results that were fitted to the same table, with the same rows left out for missing values"
    first: Floats | None = None
    count = 0
    for name, result in zip(names, results, strict=True):
        left = left_out(result, unit)
        if count and left.count != count:
            expected = f"{count:,} {left.unit}s, as {names[0]!r} has"
            raise DataError(explain(expected, f"{name!r} of {left.count:,}", hint))
        count, y = left.count, responses_of(result, left)
        if y is None:
            continue
        if first is None:
            first = y
            continue
        apart = np.abs(y - first) > SAME * (np.std(first) + np.abs(first))
        if apart.any():
            where = f"{int(apart.sum()):,} rows, the first of them {int(np.argmax(apart)):,}"
            got = f"{name!r}, which has another one in {where}"
            raise DataError(explain(f"the response of {names[0]!r}", got, hint))


def _unit_of(results: Sequence[Result], unit: str | None) -> str | None:
    """What they all can leave out: rows, where some have groups and some have none."""
    if unit is None and len({result.unit for result in results}) > 1:
        return "row"
    return unit


def _by_loo(names: Sequence[str], results: Sequence[Result], tolerance: float, unit: str | None) -> Ranking:
    found = [loo(result, pointwise=True, tolerance=tolerance, unit=unit) for result in results]
    order = np.argsort([-each.elpd for each in found], kind="stable")
    found, names = [found[k] for k in order], [names[k] for k in order]
    count, sampling = len(found), np.zeros((len(found), len(found)))
    for i in range(count):
        for j in range(i):
            sampling[i, j] = sampling[j, i] = _sampling_error(found[i], found[j])
    parts = [np.array([getattr(each, part) for each in found]) for part in ("elpd", "standard_error", "bias_bound")]
    places = [_place(names[k], found[k], parts, sampling[k, 0], k) for k in range(count)]
    return _ranking("loo", places, parts, sampling)


def _sampling_error(one: Loo, other: Loo) -> float:
    assert one.pointwise is not None
    assert other.pointwise is not None
    return float(np.sqrt(one.num_rows * np.var(one.pointwise - other.pointwise)))


def _place(name: str, found: Any, parts: Sequence[Floats], sampling: float, k: int) -> Ranked:
    values, errors, bounds = parts
    return Ranked(
        name=name,
        value=float(values[k]),
        value_error=float(np.hypot(errors[k], bounds[k])),
        difference=float(values[k] - values[0]),
        standard_error=float(np.hypot(errors[k], errors[0])) if k else 0.0,
        bias_bound=float(bounds[k] + bounds[0]) if k else 0.0,
        sampling_error=sampling,
        p_loo=getattr(found, "p_loo", None),
        certified=bool(getattr(found, "certified", True)),
    )


def _ranking(by: str, places: Sequence[Ranked], parts: Sequence[Floats], sampling: Floats) -> Ranking:
    values, errors, bounds = parts
    apart = 1.0 - np.eye(len(values))
    return Ranking(
        by,
        tuple(places),
        values[:, None] - values,
        sampling,
        apart * np.hypot(errors[:, None], errors),
        np.where(apart > 0, bounds[:, None] + bounds, 0.0),
    )


def _by_evidence(names: Sequence[str], results: Sequence[Any]) -> Ranking:
    found = []
    for name, result in zip(names, results, strict=True):
        evidence = getattr(result, "evidence", None)
        if evidence is None:
            raise InputError(explain(f"a result with evidence() for {name!r}", "one without", 'by="loo"'))
        found.append(evidence())
    order = np.argsort([-float(each.value) for each in found], kind="stable")
    found, names = [found[k] for k in order], [names[k] for k in order]
    parts = [
        np.array([float(getattr(each, part)) for each in found]) for part in ("value", "standard_error", "bias_bound")
    ]
    places = [_place(names[k], found[k], parts, 0.0, k) for k in range(len(found))]
    return _ranking("evidence", places, parts, np.zeros((len(found), len(found))))
