"""Before a fit: what the prior believes of parameters and of responses, beside what was seen.

    theta_k ~ p(theta),   b_k ~ p(b | theta_k),   y_ik ~ p(y | eta_i(theta_k, b_k)),   k = 1..K

Statistics are those of whole responses, draw by draw, so that a block of draws is held at a time and never all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tallbayes.errors import InputError, explain, require_extra, suggestion
from tallbayes.moments import Floats
from tallbayes.results.checks.check import Check

if TYPE_CHECKING:
    import pandas

# Of the chance of a binary response: below it, or above one less it, a row is as good as settled.
SETTLED = 0.01
MOST_HELD = 2**27
ENDS = (0.05, 0.5, 0.95)


@dataclass(frozen=True, eq=False)
class PriorPredictive:
    """What the prior believes: `parameters` (draws, numbers) by the `names` of the result that a fit would have, and
    `checks`, statistics of a whole response over the rows that were looked at, `observed` beside what was drawn.

    Iterate over it for blocks of responses (draws of the block, rows); `rows` are their numbers in the table.
    """

    names: tuple[str, ...]
    parameters: Floats = field(repr=False)
    checks: tuple[Check, ...] = field(repr=False)
    rows: np.ndarray = field(repr=False)
    num_rows: int
    notes: tuple[str, ...]
    again: Callable[[], Iterator[tuple[Floats, Floats]]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.parameters)

    def __iter__(self) -> Iterator[Floats]:
        return (y for y, _ in self.again())

    def __getitem__(self, name: str) -> Floats:
        """The draws of a parameter by its name."""
        if name not in self.names:
            few = f"one of {', '.join(self.names[:20])}"
            raise InputError(explain("the name of a parameter", repr(name), suggestion(str(name), self.names, few)))
        return np.asarray(self.parameters[:, self.names.index(name)])

    @property
    def responses(self) -> Floats:
        """All of them, (draws, rows)."""
        if len(self) * len(self.rows) > MOST_HELD:
            got = f"{len(self):,} draws of {len(self.rows):,} rows"
            raise InputError(explain("responses that may be held at once", got, "iterate over it, a block at a time"))
        return np.concatenate(list(self))

    def to_pandas(self) -> pandas.DataFrame:
        """The statistics: a row each, with what was observed beside quantiles of what was drawn."""
        frame = require_extra("pandas", "data", "data frames").DataFrame
        return frame([dict(each) for each in self.table()])

    def table(self) -> list[Mapping[str, Any]]:
        """The same as plain rows."""
        found: list[Mapping[str, Any]] = []
        for check in self.checks:
            for k, label in enumerate(check.labels):
                ends = {f"{p:.1%}": float(each[k]) for p, each in check.quantiles.items()}
                p = float(check.p_value[k]) if np.isfinite(check.observed[k]) else float("nan")
                name = f"{check.title} {label}".strip()
                found.append({"statistic": name, "observed": float(check.observed[k]), **ends, "p": p})
        return found

    def plot(self, statistic: str = "mean", ax: Any = None) -> Any:
        """A histogram of a statistic over the draws, with what was observed; returns matplotlib's Axes."""
        from tallbayes.views.priors.predictive import plot_check

        known = [each.name for each in self.checks]
        if statistic not in known:
            few = f"one of {', '.join(known)}"
            raise InputError(explain("a statistic of the response", repr(statistic), suggestion(statistic, known, few)))
        return plot_check(self.checks[known.index(statistic)], ax)

    def __str__(self) -> str:
        from tallbayes.views.priors.predictive import predictive_text

        return predictive_text(self)

    def _repr_html_(self) -> str:
        from tallbayes.views.priors.predictive import predictive_html

        return predictive_html(self)


def statistics_of(response: str, classes: tuple[str, ...], y: Floats, mean: Floats) -> dict[str, Floats]:
    """Of responses (draws, rows), whose expectations are `mean`: (draws, numbers) by name."""
    if response == "class":
        return {"shares": np.stack([(y == k).mean(axis=1) for k in range(len(classes))], axis=1)}
    found = {"mean": y.mean(axis=1)[:, None]}
    if response == "binary":
        settled = (mean < SETTLED) | (mean > 1 - SETTLED)
        return found | {"settled": settled.mean(axis=1)[:, None]}
    found["sd"] = y.std(axis=1)[:, None]
    if response == "count":
        found["zeros"] = (y == 0).mean(axis=1)[:, None]
    return found | {"quantiles": np.quantile(y, (0.0, *ENDS, 1.0), axis=1).T}


def titles_of(response: str, classes: tuple[str, ...]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Of every statistic its title, and the labels of its numbers."""
    if response == "class":
        return {"shares": ("share of", classes)}
    if response == "binary":
        settled = f"rows with a chance < {SETTLED:.0%} or > {1 - SETTLED:.0%}"
        return {"mean": ("share of ones", ("",)), "settled": (settled, ("",))}
    quantiles = ("smallest", *(f"{p:.0%} quantile" for p in ENDS), "largest")
    found = {"mean": ("mean", ("",)), "sd": ("standard deviation", ("",))}
    zeros = {"zeros": ("share of zeros", ("",))} if response == "count" else {}
    return found | zeros | {"quantiles": ("", quantiles)}


def checks_of(
    response: str, classes: tuple[str, ...], seen: Floats, blocks: Iterator[tuple[Floats, Floats]]
) -> tuple[Check, ...]:
    """Statistics of the response that was seen, and of those that were drawn; a chance is not seen."""
    parts = [statistics_of(response, classes, y, mean) for y, mean in blocks]
    observed = statistics_of(response, classes, seen[None], np.full((1, len(seen)), np.nan))
    observed |= {"settled": np.full((1, 1), np.nan)} if "settled" in observed else {}
    return tuple(
        Check(name, title, labels, observed[name][0], np.concatenate([part[name] for part in parts]))
        for name, (title, labels) in titles_of(response, classes).items()
    )
