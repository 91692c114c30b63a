"""Effects: every group's own effect, as numbers with their errors, in the order of the groups' names."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import InputError, explain, require_extra, suggestion
from tallbayes.moments import Floats
from tallbayes.rows.atomic import replacing

if TYPE_CHECKING:
    import pandas

    from tallbayes.groups.known import KnownGroups
    from tallbayes.results.groups.partition import VariancePartition
    from tallbayes.results.result import Result

SHOWN = 5
NUMBERS = ("mean", "mean_error", "sd", "sd_error", "lower", "upper", "end_error")


@dataclass(frozen=True, eq=False)
class Effects:
    """Of the groups `by` a column: mean, sd and interval of each effect by group, (groups, effects), and the Monte
    Carlo error of each number; `end_error` is that of both ends.

    `names` are those of the effects, `counts` the rows of a group, `raw` the plain mean of its response, which its
    effect is drawn away from, towards the others'; not a number where a model has no response by that name. `within` is
    how much of the sd is left once all else is known.
    """

    by: str
    levels: tuple[str | int, ...]
    names: tuple[str, ...]
    counts: Floats
    mean: Floats
    mean_error: Floats
    sd: Floats
    sd_error: Floats
    lower: Floats
    upper: Floats
    end_error: Floats
    within: Floats
    raw: Floats
    probability: float = 0.95

    def __len__(self) -> int:
        return len(self.levels)

    def __repr__(self) -> str:
        return f"<tallbayes.Effects of {len(self):,} groups by {self.by}: {', '.join(self.names)}>"

    def place(self, level: object) -> int:
        """Which of the groups goes by this name."""
        found = [place for place, each in enumerate(self.levels) if each == level or str(each) == str(level)]
        if not found:
            names = [str(each) for each in self.levels]
            among = f"{', '.join(names[:8])} and so on"
            raise InputError(explain(f"a group of {self.by!r}", repr(level), suggestion(str(level), names, among)))
        return found[0]

    def columns(self) -> dict[str, Any]:
        """By name, one array a column; one row a group and effect."""
        groups, size = self.mean.shape
        levels = np.array([str(each) for each in self.levels], object)
        found: dict[str, Any] = {self.by: np.repeat(levels, size)}
        if size > 1:
            found["effect"] = np.tile(np.array(self.names, object), groups)
        found |= {"rows": np.repeat(self.counts.astype(np.int64), size), "raw": np.repeat(self.raw, size)}
        return found | {name: getattr(self, name).ravel() for name in NUMBERS}

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame of the columns."""
        return require_extra("pandas", "data", "data frames").DataFrame(self.columns())

    def write(self, path: str | os.PathLike[str]) -> int:
        """All of them into a .csv, .parquet or .arrow file, a row a group and effect; the number of rows."""
        from tallbayes.rows.formats import WRITERS

        place = Path(path)
        if place.suffix not in WRITERS:
            raise InputError(explain(f"a path ending in {' or '.join(WRITERS)}", repr(place.name), "effects.parquet"))
        table = require_extra("pyarrow", "data", "files of effects").table(self.columns())
        with replacing(place) as partial:
            writer = WRITERS[place.suffix](partial, table.schema)
            try:
                writer.write_table(table)
            finally:
                writer.close()
        return int(table.num_rows)

    @property
    def has_raw(self) -> bool:
        """Whether there is a plain mean of a response."""
        return bool(np.any(np.isfinite(self.raw)))

    @cached_property
    def kept(self) -> Floats:
        """Of every group how much of the variance between groups is in its mean, 1 - sd^2 / (E sd^2 + Var mean).

        One where a group's own rows decide, none where it is drawn all the way to the others.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.clip(1 - self.sd**2 / self._variance, 0.0, 1.0)

    def usual_kept(self, effect: int = 0) -> tuple[float, float]:
        """Its median over groups, and the error of that: how far errors of all numbers together could move it."""
        middle = np.mean(self.mean, axis=0)
        each = 2 * self.sd * self.sd_error
        both = np.mean(each + 2 * np.abs(self.mean - middle) * self.mean_error, axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            errors = (each + (1 - self.kept) * both) / self._variance
        return float(np.median(self.kept[:, effect])), float(np.median(errors[:, effect]))

    @property
    def _variance(self) -> Floats:
        """Between groups, by effect: that of the means, and what is unknown of each."""
        return np.asarray(np.mean(self.sd**2, axis=0) + np.var(self.mean, axis=0))

    def extremes(self, effect: int = 0, most: int = SHOWN) -> list[int]:
        """Places of the lowest and of the highest means, in their order; all where they are few."""
        order = np.argsort(self.mean[:, effect], kind="stable")
        if len(order) <= 2 * most:
            return [int(each) for each in order]
        return [int(each) for each in (*order[:most], *order[-most:])]

    def __str__(self) -> str:
        from tallbayes.views.groups import effects_text

        return effects_text(self)

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.displays import shown

        return shown(self)


@dataclass(eq=False)
class EffectSource:
    """Effects that are found when they are first asked for, and kept; and so the partition of variance, and the groups
    themselves, with their rows."""

    find: Callable[[], tuple[Effects, ...]]
    found: tuple[Effects, ...] | None = field(default=None)
    partition: VariancePartition | None = field(default=None)
    gather: Callable[[], KnownGroups] | None = field(default=None)
    gathered: KnownGroups | None = field(default=None)

    def __call__(self) -> tuple[Effects, ...]:
        if self.found is None:
            self.found = self.find()
        return self.found

    @property
    def groups(self) -> KnownGroups | None:
        """What a prediction for a group that is known reads."""
        if self.gathered is None and self.gather is not None:
            self.gathered = self.gather()
        return self.gathered


def nothing_more() -> tuple[Effects, ...]:
    """For effects that are found already."""
    return ()


def has_groups(result: Result) -> bool:
    """Whether effects of groups were integrated out of its posterior."""
    return result.effect_source is not None or (result.encoding is not None and "groups" in result.encoding)


def known_effects(result: Result) -> tuple[Effects, ...]:
    """Of all factors, found now or read from a file; none where there are no groups."""
    if result.stored_effects:
        return result.stored_effects
    return () if result.effect_source is None else result.effect_source()


def found_effects(result: Result) -> tuple[Effects, ...]:
    """Those that were found before, so that to show them takes no time."""
    source = result.effect_source
    return result.stored_effects or (() if source is None else source.found or ())


def effects(result: Result, by: str | None = None) -> Effects:
    """Those by one factor; the only one where none is named."""
    known = known_effects(result)
    if not known:
        raise InputError(explain("effects of groups", *_why_none(result)))
    if by is None and len(known) == 1:
        return known[0]
    found = [each for each in known if each.by == by]
    if not found:
        raise InputError(explain("the column of the groups", repr(by), ", ".join(repr(each.by) for each in known)))
    return found[0]


def _why_none(result: Result) -> tuple[str, str]:
    """What there is in their place, and what to try."""
    if not result.factors and not has_groups(result):
        return "a result without groups", 'tb.fit("y ~ x + (1 | school)", ...), or tb.Model(..., groups=tb.Groups(...))'
    if result.posterior is None:
        got = f"a run that ended before it reached them ({result.status})"
        return got, "more max_seconds or max_evaluations, or none; keep_posterior=True where it was left out"
    return "a result from a file that has none", "the process that fitted it, or its run with the table in its place"


def scaled(effects: Effects, factors: Sequence[float]) -> Effects:
    """In other units, effect by effect."""
    factor = np.asarray(factors, np.float64)
    ends = {name: getattr(effects, name) * factor for name in (*NUMBERS, "within")}
    return replace(effects, **ends)
