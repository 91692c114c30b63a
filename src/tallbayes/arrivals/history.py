"""History: the answers of all days, one beside the other.

    Day        what came or was withdrawn, what was foretold of it, and every coefficient with its errors
    History    days in their order: how a coefficient moved, what the rows added to the log evidence, which days were
               a surprise

Days are samples of their own, so their errors are independent. In the folder of a run every day is a file,
RUN/days/0001.json, written whole or not at all; a day counts from the moment it is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from tallbayes.arrivals.foretold import Foretold
from tallbayes.arrivals.standing import Carried
from tallbayes.errors import InputError, ResultFileError, explain, require_extra, suggestion
from tallbayes.moments import Floats
from tallbayes.results.coefficients import Number, coefficients, own_parameters
from tallbayes.results.export import readable
from tallbayes.results.result import Result
from tallbayes.rows.atomic import replacing
from tallbayes.views.text import table

DAYS = "days"
PARTS = ("mean", "sd", "lower", "upper")
MOST_SHOWN = 6


@dataclass(frozen=True)
class Day:
    """One day: `came` rows or `withdrawn` ones, `rows` in all by its end; coefficients by name, each part of them with
    its error. Day 0 is the fit. `source` and `digest` tell the file that it was made of."""

    number: int
    rows: int
    status: str
    coefficients: dict[str, dict[str, tuple[float, float]]] = field(repr=False)
    came: int = 0
    withdrawn: int = 0
    foretold: Foretold | None = None
    evaluations: int = 0
    seconds: float = 0.0
    when: str = ""
    source: str = ""
    digest: str = ""
    new_levels: str = "refuse"

    @classmethod
    def of(cls, result: Result, number: int, **beside: Any) -> Day:
        """What is kept of a result."""
        known = coefficients(readable(result), first=own_parameters(result))
        parts = {
            each.name: {part: (getattr(each, part).value, getattr(each, part).error) for part in PARTS}
            for each in known
        }
        own: dict[str, Any] = {"rows": result.num_rows, "status": result.status.name, "coefficients": parts}
        spent = result.cost.evaluations + result.cost.setup_evaluations
        return cls(number=number, **own, evaluations=spent, seconds=result.cost.seconds, **beside)

    def to_plain(self) -> dict[str, Any]:
        found = asdict(self)
        return {"format": "tallbayes day 1", **found}

    @classmethod
    def from_plain(cls, given: dict[str, Any]) -> Day:
        names = {each.name for each in fields(cls)}
        own = {name: value for name, value in given.items() if name in names}
        parts = {
            name: {part: (float(pair[0]), float(pair[1])) for part, pair in each.items()}
            for name, each in own["coefficients"].items()
        }
        told = own["foretold"]
        return cls(**{**own, "coefficients": parts, "foretold": None if told is None else Foretold(**told)})


@dataclass(frozen=True)
class History:
    """Days in their order.

    >>> History(()).surprises
    ()
    """

    days: tuple[Day, ...]
    folder: Path | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.days)

    def __iter__(self) -> Iterator[Day]:
        return iter(self.days)

    @property
    def names(self) -> tuple[str, ...]:
        """Of coefficients, in the order in which they appeared."""
        return tuple(dict.fromkeys(name for day in self.days for name in day.coefficients))

    @property
    def surprises(self) -> tuple[Day, ...]:
        """Days whose rows were surprising under the posterior of the day before."""
        return tuple(day for day in self.days if day.foretold is not None and day.foretold.is_surprising)

    def track(self, name: str, part: str = "mean") -> tuple[Floats, Floats]:
        """mean, sd, lower or upper of a coefficient by day, and its errors; NaN before it was there."""
        if name not in self.names:
            among = f"one of {', '.join(self.names)}"
            raise InputError(explain("a coefficient", repr(name), suggestion(name, self.names, among)))
        if part not in PARTS:
            raise InputError(explain(f"one of {', '.join(PARTS)}", repr(part), "part='mean'"))
        nothing = (np.nan, np.nan)
        pairs = np.array([day.coefficients.get(name, {}).get(part, nothing) for day in self.days])
        return pairs[:, 0], pairs[:, 1]

    def replay(self, day: int) -> Result:
        """The answer of a day once more, to the bit, for runs on a table on disk; refused where anything that it hangs
        on is not what it was.

        Days before a withdrawal are lost, since their rows are gone.
        """
        if self.folder is None:
            hint = "tb.history(RUN), the folder of a run that was updated"
            raise InputError(explain("days of a run", "results, which are their own answers", hint))
        from tallbayes.arrivals.disk.replay import replayed

        return replayed(self.folder, day)

    @property
    def evidence(self) -> tuple[Floats, Floats]:
        """log p(rows since the fit | rows of the fit) by day, with its error.

        Where rows were withdrawn, or draws were too few to tell, it and what follows is not known.
        """
        added = np.array([_added(day) for day in self.days])
        return np.cumsum(added[:, 0]), np.sqrt(np.cumsum(added[:, 1] ** 2))

    def to_pandas(self) -> Any:
        """A data frame with a row for every day and coefficient."""
        pandas = require_extra("pandas", "data", "data frames")
        rows = [
            {"day": day.number, "rows": day.rows, "name": name}
            | {
                key: value
                for part, pair in each.items()
                for key, value in zip((part, f"{part}_error"), pair, strict=True)
            }
            for day in self.days
            for name, each in day.coefficients.items()
        ]
        return pandas.DataFrame(rows)

    def plot(self, names: Sequence[str] | None = None, axes: Any = None) -> Any:
        """Intervals of coefficients day by day, and below them how surprising each day was; matplotlib's Axes."""
        from tallbayes.arrivals.picture import draw_history

        return draw_history(self, self.names[:MOST_SHOWN] if names is None else tuple(names), axes)

    def __str__(self) -> str:
        head = ("day", "rows", "came", "log score a row", "p", "moved most", "by", "rows read", "s")
        cells = [_cells(before, day) for before, day in zip((None, *self.days), self.days, strict=False)]
        return table(head, cells)

    def _repr_html_(self) -> str:
        from tallbayes.views.notebook.displays import shown

        return shown(self)


def _added(day: Day) -> tuple[float, float]:
    if day.withdrawn:
        return np.nan, np.nan
    if day.foretold is None:
        return (0.0, 0.0) if not day.came else (np.nan, np.nan)
    error = day.foretold.together_error
    return (day.foretold.together, error) if np.isfinite(error) else (np.nan, np.nan)


def moved_most(before: Day, day: Day) -> tuple[str, Number] | None:
    """The coefficient that moved farthest in posterior sds of the day before, and how far, with the error of that."""
    moves = {
        name: Number(
            (each["mean"][0] - was["mean"][0]) / was["sd"][0], np.hypot(each["mean"][1], was["mean"][1]) / was["sd"][0]
        )
        for name, each in day.coefficients.items()
        if (was := before.coefficients.get(name)) is not None and was["sd"][0] > 0
    }
    finite = {name: move for name, move in moves.items() if np.isfinite(move.value)}
    if not finite:
        return None
    name = max(finite, key=lambda each: abs(finite[each].value))
    return name, finite[name]


def _cells(before: Day | None, day: Day) -> list[str]:
    told, moved = day.foretold, None if before is None else moved_most(before, day)
    came = f"{day.came:,}" if not day.withdrawn else f"-{day.withdrawn:,}"
    score = "" if told is None else f"{told.score / told.rows:.4f} ± {told.score_error / told.rows:.1g}"
    p = (
        ""
        if told is None
        else f"{told.p_value:.4f} ± {told.p_error:.1g}" + (" surprising" if told.is_surprising else "")
    )
    by = "" if moved is None else f"{moved[1].value:+.2f} ± {moved[1].error:.1g} sd"
    name = "" if moved is None else moved[0]
    return [str(day.number), f"{day.rows:,}", came, score, p, name, by, f"{day.evaluations:,}", f"{day.seconds:.2f}"]


def line_of(before: Day | None, day: Day) -> str:
    """A day in a line."""
    name = Path(day.source).name if day.source else f"day {day.number}"
    what = f"{day.withdrawn:,} withdrawn" if day.withdrawn else f"{day.came:,} rows"
    parts = [f"{name}: {what}, {day.rows:,} in all"]
    if before is not None and (moved := moved_most(before, day)) is not None:
        parts.append(f"{moved[0]} {moved[1].value:+.2f} sd")
    if day.foretold is not None:
        parts.append(f"p = {day.foretold.p_value:.4f}" + (", SURPRISING" if day.foretold.is_surprising else ""))
    parts.append(f"{day.seconds:.2f} s")
    return "; ".join(parts) + ("" if day.status == "converged" else f"; {day.status}")


def history(run: str | os.PathLike[str] | Sequence[Result]) -> History:
    """The answers of all days: of a run that `tallbayes update` and `watch` have kept, or of results in their order.

    >>> import numpy as np, tallbayes as tb
    >>> rows = {"x": np.ones((40, 1)), "y": np.arange(40) % 5 / 5}
    >>> monday = tb.estimate(tb.families.linear(noise_scale=1.0), rows, tolerance=0.5)
    >>> len(tb.history([monday]))
    1
    """
    if isinstance(run, str | os.PathLike):
        return History(read_days(Path(run)), Path(run))
    results = list(run)
    if not results or not all(isinstance(each, Result) for each in results):
        got = "none" if not results else ", ".join(sorted({type(each).__name__ for each in results}))
        raise InputError(
            explain("the folder of a run, or results in their order", got, "tb.history([monday, tuesday])")
        )
    days = []
    for number, result in enumerate(results):
        before = results[number - 1].num_rows if number else result.num_rows
        change = result.num_rows - before
        days.append(Day.of(result, number, came=max(change, 0), withdrawn=max(-change, 0), foretold=told_of(result)))
    return History(tuple(days))


def told_of(result: Result) -> Foretold | None:
    """What was foretold of the rows of its last day."""
    return result.standing.foretold if isinstance(result.standing, Carried) else None


def read_days(folder: Path) -> tuple[Day, ...]:
    """Of a run, in their order; refused where one is missing or torn."""
    files = sorted((folder / DAYS).glob("*.json"))
    if not files:
        got = f"{str(folder)!r} without {DAYS}"
        raise ResultFileError(explain("a run that was updated", got, "tallbayes update RUN NEW, or tallbayes watch"))
    found = []
    for number, file in enumerate(files):
        try:
            day = Day.from_plain(json.loads(file.read_text()))
        except (OSError, ValueError, TypeError, KeyError) as error:
            what = f"{type(error).__name__}: {error}"
            raise ResultFileError(explain(f"a day in {str(file)!r}", what, "a copy of that file")) from error
        if day.number != number:
            hint = "a copy of what is missing"
            raise ResultFileError(explain(f"day {number} in {str(folder / DAYS)!r}", f"day {day.number}", hint))
        found.append(day)
    return tuple(found)


def write_day(folder: Path, day: Day) -> None:
    """From then on it counts."""
    place = folder / DAYS
    place.mkdir(exist_ok=True)
    with replacing(place / f"{day.number:04d}.json") as partial:
        partial.write_text(json.dumps(day.to_plain(), indent=1) + "\n")
