"""Checks: a statistic of the response that was seen, held against that of replicated responses.

    p = P(T(y_rep) > T(y)) + P(T(y_rep) = T(y)) / 2     over y_rep ~ p(y | rows)

Over K replicated responses p errs by sqrt(p (1 - p) / K), with p drawn towards a half by two more of them where all
are on one side, and by 0.4 times the bias of the draws: what a shift of a normal law by so many sds does to a
probability. p is near 0 or 1 where the model does not have responses like the one that was seen; it uses the rows
twice, so that it is nearer to a half than a uniform number where the model is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tallbayes.errors import InputError, explain
from tallbayes.model.catalogue import CATALOGUE
from tallbayes.moments import Floats
from tallbayes.results.checks.batches import RowBatch, require_unweighted
from tallbayes.results.checks.simulation import ReplicatedRows, Simulation, simulate
from tallbayes.results.checks.statistics import (
    BINS,
    DEFAULTS,
    PLAIN,
    RowFacts,
    Statistic,
    by_group,
    calibration,
    of_rows,
    shares,
)
from tallbayes.results.draws.drawn import known_groups, level_names
from tallbayes.results.result import Result

QUANTILES = (0.025, 0.25, 0.5, 0.75, 0.975)
# Of a normal law, by so many of its sds that it is shifted.
SLOPE = 0.4
MOST_WHOLE = 2**27

Asked = str | Callable[[Any, Any], Any]


@dataclass(frozen=True, eq=False)
class Check:
    """A statistic of one or several numbers, `labels` naming them: `observed`, and of replicated responses `mean`, `sd`
    and `quantiles`, with the Monte Carlo errors of the first two; `p_value` with its error.

    `replicated` has the statistic of every replicated response, (draws, numbers), and `at` is where a bin stands.
    """

    name: str
    title: str
    labels: tuple[str, ...]
    observed: Floats
    replicated: Floats = field(repr=False)
    bias: float = 0.0
    at: Floats | None = None

    @property
    def draws(self) -> int:
        return len(self.replicated)

    @property
    def mean(self) -> Floats:
        return np.asarray(self.replicated.mean(axis=0))

    @property
    def sd(self) -> Floats:
        return np.asarray(self.replicated.std(axis=0, ddof=1))

    @property
    def mean_error(self) -> Floats:
        return self.sd * (self.draws**-0.5 + self.bias)

    @property
    def sd_error(self) -> Floats:
        """By the fourth moment of what was replicated."""
        apart = self.replicated - self.mean
        with np.errstate(invalid="ignore", divide="ignore"):
            kurtosis = np.nan_to_num(np.mean(apart**4, axis=0) / np.mean(apart**2, axis=0) ** 2, nan=1.0)
        return self.sd * (np.sqrt(np.maximum(kurtosis - 1, 0.0) / self.draws) / 2 + self.bias)

    @property
    def quantiles(self) -> dict[float, Floats]:
        """At 2.5, 25, 50, 75 and 97.5 percent."""
        return {p: np.asarray(np.quantile(self.replicated, p, axis=0)) for p in QUANTILES}

    @property
    def p_value(self) -> Floats:
        """P(T(y_rep) >= T(y)), ties by half."""
        above = (self.replicated > self.observed).mean(axis=0)
        return np.asarray(above + (self.replicated == self.observed).mean(axis=0) / 2)

    @property
    def p_error(self) -> Floats:
        held = (self.p_value * self.draws + 1) / (self.draws + 2)
        return np.asarray(np.sqrt(held * (1 - held) / self.draws) + SLOPE * self.bias)

    @property
    def outside(self) -> float:
        """The share of the numbers that are outside the middle 95% of what was replicated; 0.05 or less is expected."""
        ends = self.quantiles
        return float(np.mean((self.observed < ends[0.025]) | (self.observed > ends[0.975])))

    def __str__(self) -> str:
        from tallbayes.views.text import table

        head = ("", "observed", "replicated", "sd", "p", "±")
        rows = [
            [f"{self.name} {label}".strip(), *(f"{each:.4g}" for each in numbers)]
            for label, *numbers in zip(
                self.labels, self.observed, self.mean, self.sd, self.p_value, self.p_error, strict=True
            )
        ]
        return table(head, rows)

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.displays import shown

        return shown(self)


def checks(
    result: Result, statistics: Sequence[Asked] | None = None, rows: Any = None, draws: int = 200, seed: int = 0
) -> tuple[Check, ...]:
    """See `Result.checks`."""
    if rows is None:
        require_unweighted(result)
    replicated = simulate(result, rows, draws, seed=seed)
    first = next(replicated.batches(), None)
    if first is not None and np.any(first.batch.beside.get("censored", 0)):
        got = "times of which some are only bounds"
        hint = "result.simulate, held against what was seen; or rows= of those whose events were seen"
        raise InputError(explain("responses that were seen", got, hint))
    if first is None or first.batch.observed is None:
        hint = "a table that has the response too"
        raise InputError(explain("rows with the response that was seen", "rows without it", hint))
    chosen = _defaults(result, first) if statistics is None else list(statistics)
    made, whole = [], []
    for asked in chosen:
        statistic = _statistic(result, asked, first)
        if statistic is None:
            assert callable(asked)
            whole.append(asked)
        else:
            made.append(statistic)
    found = _summed(replicated, made) if made else ()
    return (*found, *(_of_whole(replicated, each) for each in whole))


def _defaults(result: Result, first: ReplicatedRows) -> list[Asked]:
    regression = result.regression
    family = None if regression is None else CATALOGUE[regression.family]
    names: list[Asked] = list(DEFAULTS[_looks_like(first) if family is None else family.response])
    if family is not None and family.has_classes:
        return names
    return [*names, "groups"] if first.batch.groups is not None and np.any(first.batch.groups >= 0) else names


def _looks_like(first: ReplicatedRows) -> str:
    """What a response of a model of one's own seems to be."""
    seen = np.concatenate([np.ravel(first.y), _seen(first.batch)])
    if np.all((seen == 0) | (seen == 1)):
        return "binary"
    return "count" if np.all((seen >= 0) & (seen == np.round(seen))) else "real"


def _statistic(result: Result, asked: Asked, first: ReplicatedRows) -> Statistic | None:
    """None of a function of a whole response."""
    observed = first.batch.observed
    assert observed is not None
    if callable(asked):
        name = getattr(asked, "__name__", "statistic")
        facts = _facts(first, 0.0, None)
        value = np.asarray(asked(observed, {**facts.columns, "mean": facts.expected}))
        if value.shape == observed.shape:
            return of_rows(asked, name)
        if value.ndim:
            hint = "a number a row, whose mean is the statistic, or one number of a whole response"
            raise InputError(explain(f"a number, or {len(observed)} of them", f"shape {value.shape}", hint))
        return None
    if asked in PLAIN:
        return PLAIN[asked]
    family = CATALOGUE[result.regression.family] if result.regression is not None else None
    if asked == "shares" and family is not None and family.has_classes:
        classes = None if result.encoding is None else result.encoding["classes"]
        every = range(first.mean.shape[-1]) if classes is None else classes
        return shares(tuple(str(each) for each in every))
    if asked == "calibration" and (family is None or not family.has_classes):
        expected = first.mean.mean(axis=0)
        edges = np.unique(np.quantile(expected, np.arange(1, BINS) / BINS))
        return calibration(edges)
    if asked == "groups" and first.batch.groups is not None:
        known = known_groups(result)
        return by_group(tuple(str(each) for each in level_names(known)), known.integral.groups.by)
    names = (*PLAIN, "calibration", "shares", "groups")
    raise InputError(explain(f"a function, or one of {', '.join(names)} where it applies", repr(asked), "'mean'"))


def _facts(each: ReplicatedRows, centre: float, places: Any) -> RowFacts:
    batch, expected = each.batch, each.mean.mean(axis=0)
    columns: dict[str, Any] = dict(batch.own) or {"x": batch.x, "offset": batch.offset}
    columns |= {} if batch.groups is None else {"group": batch.groups}
    groups = None if places is None or batch.groups is None else places(batch.groups)
    return RowFacts(expected, centre, None, groups, columns)


def _summed(replicated: Simulation, made: list[Statistic]) -> tuple[Check, ...]:
    """All of them in one pass over the rows."""
    places = None
    if any(each.name == "groups" for each in made):
        levels = known_groups(replicated.result).levels

        def places(codes: np.ndarray) -> np.ndarray:
            return np.searchsorted(levels, codes)

    totals: list[Any] = [None] * len(made)
    count, centre = 0, 0.0
    for each in replicated.batches():
        seen = _seen(each.batch)
        centre = float(seen.mean()) if not count else centre
        facts = _facts(each, centre, places)
        both = np.concatenate([seen[None], each.y])
        for place, statistic in enumerate(made):
            part = statistic.features(both, facts)
            totals[place] = part if totals[place] is None else statistic.join(totals[place], part)
        count += len(each.batch)
    return tuple(
        _concluded(statistic, total, count, centre, replicated) for statistic, total in zip(made, totals, strict=True)
    )


def _concluded(statistic: Statistic, total: Floats, count: int, centre: float, replicated: Simulation) -> Check:
    values = statistic.value(total, count, centre)
    found = Check(
        statistic.name, statistic.title, statistic.labels, values[0], values[1:], float(replicated.draws.bias)
    )
    if statistic.name != "calibration":
        return found
    bins = len(statistic.labels)
    with np.errstate(invalid="ignore", divide="ignore"):
        return replace(found, at=total[0, 2 * bins :] / total[0, bins : 2 * bins])


def _seen(batch: RowBatch) -> Floats:
    assert batch.observed is not None
    return batch.observed


def _of_whole(replicated: Simulation, function: Callable[[Any, Any], Any]) -> Check:
    """A function of a whole response and of all rows, which are then held in memory, some draws at a time."""
    parts, facts, rows = [], [], 0
    for each in replicated.batches():
        rows += len(each.batch)
        if rows * len(replicated.draws) > MOST_WHOLE:
            got = f"more than {rows:,} rows, and {len(replicated.draws):,} draws"
            hint = "a function that returns a number a row, whose mean over rows is the statistic"
            raise InputError(explain("rows that may be held in memory for all draws at once", got, hint))
        facts.append(_facts(each, 0.0, None))
        parts.append((each.y, _seen(each.batch)))
    columns = {name: np.concatenate([each.columns[name] for each in facts]) for name in facts[0].columns}
    columns["mean"] = np.concatenate([each.expected for each in facts])
    y, seen = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
    values = np.array([[float(function(one, columns))] for one in y])
    name = getattr(function, "__name__", "statistic")
    observed = np.array([float(function(seen, columns))])
    return Check(name, name, ("",), observed, values, float(replicated.draws.bias))
