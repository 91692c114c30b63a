"""A prediction: by row and output its posterior mean and sd, and the Monte Carlo errors of each of the two; beside it
how a new observation would scatter, the numbers of the rows in their source, and what was kept of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import require_extra
from tallbayes.moments import Floats

if TYPE_CHECKING:
    import pandas

ARRAYS = ("mean", "sd", "standard_error", "bias_bound", "sd_standard_error", "sd_bias_bound")
SPREADS = ("sd", "error", "sd_error")
ROW = "row"


@dataclass(frozen=True, eq=False)
class Observation:
    """A new observation of every row: its sd, noise and posterior together, and the ends of an equal-tailed interval.

        sd^2 = E Var(y | theta) + Var E(y | theta)

    `sd_error` and `interval_error` bound what the two err by, the latter also by the shape that is taken for the
    posterior of a row (see `observations`). There is no interval of a class, and none where none was asked for.
    """

    sd: Floats
    sd_error: Floats
    lower: Floats | None = None
    upper: Floats | None = None
    interval_error: Floats | None = None
    probability: float | None = None

    @classmethod
    def joined(cls, parts: Sequence[Observation]) -> Observation:
        """Of the rows of all parts, in their order."""
        arrays = zip(*(part.columns().values() for part in parts), strict=True)
        return parts[0]._of([np.concatenate(each) for each in arrays])

    def columns(self) -> dict[str, Floats]:
        """By name, those that there are."""
        named = {
            "observation_sd": self.sd,
            "observation_sd_error": self.sd_error,
            "observation_lower": self.lower,
            "observation_upper": self.upper,
            "observation_interval_error": self.interval_error,
        }
        return {name: values for name, values in named.items() if values is not None}

    def changed(self, function: Callable[[Floats], Floats]) -> Observation:
        """The same of a function of every array."""
        return self._of([function(values) for values in self.columns().values()])

    def _of(self, arrays: list[Any]) -> Observation:
        """With these in place of its own."""
        return replace(Observation(*arrays), probability=self.probability)

    def scaled(self, factor: float, shift: float) -> Observation:
        """Of shift + factor y."""
        moved = self.changed(lambda values: values * factor)
        if moved.lower is None or moved.upper is None:
            return moved
        return replace(moved, lower=moved.lower + shift, upper=moved.upper + shift)


@dataclass(frozen=True)
class Unpredicted:
    """How many rows have NaN for a prediction, and why: by column, values that are missing (or not finite once they
    are transformed), and categories that the fit does not know."""

    rows: int = 0
    missing: Mapping[str, int] = field(default_factory=dict)
    unknown: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.rows > 0

    def __add__(self, other: Unpredicted) -> Unpredicted:
        missing, unknown = (dict(Counter(a) + Counter(b)) for a, b in _pairs(self, other))
        return Unpredicted(self.rows + other.rows, missing, unknown)

    def __str__(self) -> str:
        reasons = [f"a missing value in {name!r} ({count:,})" for name, count in self.missing.items()]
        reasons += [f"an unknown category in {name!r} ({count:,})" for name, count in self.unknown.items()]
        return f"{self.rows:,} {'row' if self.rows == 1 else 'rows'} predicted as NaN: {', '.join(reasons)}"


def _pairs(one: Unpredicted, other: Unpredicted) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    return (one.missing, other.missing), (one.unknown, other.unknown)


@dataclass(frozen=True, eq=False)
class Prediction:
    """Posterior expectations by row, or by row and class: of the response, of P(y = class), of P(y >= k).

    `sd` is that of the expectation over the posterior, noise of the response apart; `standard_error` and `bias_bound`
    are the Monte Carlo errors of `mean`, `sd_standard_error` and `sd_bias_bound` those of `sd`. `at_least` holds the
    same for P(y >= k), by k. `observation` tells of a new observation, where the family says how it scatters.

    `rows` are the numbers of the rows in their source, counted from 0; None where a table on disk does not know them.
    `kept` holds columns of the input, `unpredicted` how many rows are NaN, `notes` what is to be known of their order.
    """

    mean: Floats
    sd: Floats
    standard_error: Floats
    bias_bound: Floats
    sd_standard_error: Floats
    sd_bias_bound: Floats
    classes: tuple[str | int | bool, ...] | None = None
    at_least: Mapping[int, Prediction] = field(default_factory=dict)
    observation: Observation | None = None
    rows: np.ndarray | None = None
    kept: Mapping[str, object] = field(default_factory=dict)
    unpredicted: Unpredicted = Unpredicted()
    notes: tuple[str, ...] = ()

    @classmethod
    def joined(cls, parts: Sequence[Prediction]) -> Prediction:
        """Of the rows of all parts, in their order."""
        first = parts[0]
        if len(parts) == 1:
            return first
        arrays: list[Any] = [np.concatenate([getattr(part, each) for part in parts]) for each in ARRAYS]
        observed = [part.observation for part in parts if part.observation is not None]
        return replace(
            cls(*arrays),
            classes=first.classes,
            at_least={k: cls.joined([part.at_least[k] for part in parts]) for k in first.at_least},
            observation=Observation.joined(observed) if observed else None,
            rows=None if first.rows is None else np.concatenate([part.rows for part in parts if part.rows is not None]),
            kept={name: _concatenated([part.kept[name] for part in parts]) for name in first.kept},
            unpredicted=sum((part.unpredicted for part in parts), Unpredicted()),
            notes=first.notes,
        )

    def outputs(self, places: int | slice) -> Prediction:
        """Of some of the outputs, which are columns."""
        return Prediction(*(getattr(self, each)[:, places] for each in ARRAYS))

    def scaled(self, factor: float, shift: float) -> Prediction:
        """Of shift + factor f."""
        mean, *others = (getattr(self, each) * factor for each in ARRAYS)
        return Prediction(mean + shift, *others)

    def spread_out(self, usable: np.ndarray) -> Prediction:
        """With NaN for the rows that are not usable, the others being those of this prediction in their order."""

        def among(values: Floats) -> Floats:
            whole = np.full((len(usable), *values.shape[1:]), np.nan)
            whole[usable] = values
            return whole

        arrays: list[Any] = [among(getattr(self, each)) for each in ARRAYS]
        return replace(
            Prediction(*arrays),
            classes=self.classes,
            at_least={k: tail.spread_out(usable) for k, tail in self.at_least.items()},
            observation=None if self.observation is None else self.observation.changed(among),
        )

    def __len__(self) -> int:
        return len(self.mean)

    def __repr__(self) -> str:
        return f"<tallbayes.Prediction of {len(self):,} rows>"

    @property
    def error(self) -> Floats:
        """sqrt(standard_error^2 + bias_bound^2)."""
        return np.hypot(self.standard_error, self.bias_bound)

    @property
    def sd_error(self) -> Floats:
        """sqrt(sd_standard_error^2 + sd_bias_bound^2)."""
        return np.hypot(self.sd_standard_error, self.sd_bias_bound)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is to be known of the rows, in words."""
        return (*self.notes, *([str(self.unpredicted)] if self.unpredicted else []))

    @property
    def observation_sd(self) -> Floats | None:
        """That of a new observation; None where the family does not say how it scatters."""
        return None if self.observation is None else self.observation.sd

    @property
    def observation_interval(self) -> tuple[Floats, Floats] | None:
        """Lower and upper ends for a new observation; None where there are none."""
        found = self.observation
        return None if found is None or found.lower is None or found.upper is None else (found.lower, found.upper)

    def numbers(self) -> dict[str, Floats]:
        """By name, one array a column: value, sd, and the error of each of the two; then those of an observation."""
        whole = self.mean, self.sd, self.error, self.sd_error
        if self.mean.ndim == 1:
            parts = dict(zip(("prediction", *SPREADS), whole, strict=True))
        else:
            parts = {}
            for place, each in enumerate(self.classes or range(self.mean.shape[1])):
                names = (f"{name}({each})" for name in ("P", *SPREADS))
                parts |= dict(zip(names, (values[:, place] for values in whole), strict=True))
        for k, tail in self.at_least.items():
            names = (f"{name}(y>={k})" for name in ("P", *SPREADS))
            parts |= dict(zip(names, (tail.mean, tail.sd, tail.error, tail.sd_error), strict=True))
        return parts if self.observation is None else parts | self.observation.columns()

    def columns(self) -> dict[str, object]:
        """By name, as they are written to files: the number of the row, what was kept of it, and `numbers`."""
        key = {} if self.rows is None else {ROW: self.rows}
        return key | dict(self.kept) | self.numbers()

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame of the columns."""
        kept = {name: each.to_pandas() if hasattr(each, "to_pandas") else each for name, each in self.kept.items()}
        return require_extra("pandas", "data", "data frames").DataFrame(self.columns() | kept)

    def __str__(self) -> str:
        from tallbayes.views.tables import predictions
        from tallbayes.views.text import laid_out

        shown = 10
        more = f"\n... and {len(self) - shown:,} more rows" if len(self) > shown else ""
        return laid_out(ROW, predictions(self, shown)) + more + "".join(f"\n{each}" for each in self.remarks)

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.displays import shown

        return shown(self)


def _concatenated(parts: list[Any]) -> Any:
    """Arrays of NumPy, or chunks of Arrow's."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    from tallbayes.rows.columns import require

    arrow = require("pyarrow")
    return arrow.chunked_array([chunk for part in parts for chunk in getattr(part, "chunks", [part])])
